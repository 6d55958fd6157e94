"""What is derived from the ops (scripts/gen-ops.awk, scripts/replace-derived): what a change makes be compiled anew."""
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIST = """// elementwise.c: arithmetic
OP(ADD, add, a b)
OP(SUM, sum, x .)
OP(NEG, neg, x)
"""
SOURCE = """#define SUM_ATTRS(F, op) F(op, ints, axes) F(op, bool, keepdims)
const ct_opdef ct__op_add = {
    .doc = "a + b.",
};
const ct_opdef ct__op_sum = {
    .doc = "The sum.",
};
"""
OLD, NEW = 1_000_000_000, 1_500_000_000  # times of files, in seconds


@pytest.fixture
def derive(tmp_path):
    """Derives a part from texts; says whether the file's time is new."""
    def run(part, ops=LIST, source=SOURCE):
        (tmp_path / "ops.list").write_text(ops)
        (tmp_path / "elementwise.c").write_text(source)
        output, fresh = tmp_path / ("ops_api.c" if part == "source" else f"{part}.h"), tmp_path / "fresh"
        made = subprocess.run(["awk", "-v", f"part={part}", "-f", ROOT / "scripts/gen-ops.awk", tmp_path / "ops.list",
                               tmp_path / "elementwise.c"], capture_output=True, text=True)
        if made.returncode:
            return made.stderr
        fresh.write_text(made.stdout)
        os.utime(fresh, (NEW, NEW))
        subprocess.run([ROOT / "scripts/replace-derived", fresh, output], check=True)
        assert output.read_text() == made.stdout and not fresh.exists()
        is_new = output.stat().st_mtime == NEW
        os.utime(output, (OLD, OLD))
        return is_new

    return run


@pytest.mark.parametrize("part", ["header", "enum"])
@pytest.mark.parametrize("before", ["OP(ADD", "OP(SUM", "OP(NEG"])
def test_a_new_op_leaves_headers_as_they_were(derive, part, before):
    assert derive(part)
    assert not derive(part)
    assert not derive(part, LIST.replace(before, "OP(LOG, log, x)\n" + before))
    assert derive(part)  # it goes again


@pytest.mark.parametrize("old, new", [
    ("keepdims)", "keepdims) F(op, i64, more)"), ("F(op, bool, keepdims)", ""), ("bool, keepdims", "i64, keepdims")])
def test_changed_attributes_do_not(derive, old, new):
    derive("header")
    assert derive("header", source=SOURCE.replace(old, new))


def test_changed_operands_do_not(derive):
    derive("header")
    assert derive("header", LIST.replace("add, a b", "add, a b c"))


def test_a_renamed_op_does_not(derive):
    for part in ("header", "enum"):
        derive(part)
        assert derive(part, LIST.replace("OP(NEG, neg", "OP(MINUS, minus"))


def test_a_changed_comment_does(derive):
    derive("header")
    assert not derive("header", source=SOURCE.replace("The sum.", "The sum of all elements along axes, or of all there are, "
                                                      "in the order that the page on bits describes."))


def test_the_table_is_new_with_every_op(derive):
    assert derive("source")
    assert not derive("source")
    assert derive("source", LIST + "OP(LOG, log, x)\n")


def test_a_number_depends_on_the_name_alone(tmp_path):
    def numbers(text):
        (tmp_path / "ops.list").write_text(text)
        made = subprocess.run(["awk", "-v", "part=enum", "-f", ROOT / "scripts/gen-ops.awk", tmp_path / "ops.list"],
                              capture_output=True, text=True, check=True)
        return dict(re.findall(r"CT_OP_(\w+) = (\d+)", made.stdout))

    few, more = numbers(LIST), numbers("OP(LOG, log, x)\n" + LIST)
    assert len(few) == 3 and more == few | {"LOG": more["LOG"]} and len(set(more.values())) == 4
    assert all(0 < int(n) < 2**31 for n in more.values())


def test_equal_numbers_are_refused(derive):
    a, b = "rtxtpjthz", "kzgoywanz"  # found by trying 100,000 names
    assert derive("enum", f"OP(A, {a}, x)\nOP(B, {b}, x)\n") == (
        f"scripts/gen-ops.awk: {b} and {a} have the same number: rename one\n")
