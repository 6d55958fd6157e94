"""The page of ops: each public op stands there, with its sentence and what the built library's table says of it."""
import re
import sys
from pathlib import Path

from op_cases import read_table

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import ops_page  # noqa: E402

ENTRY = re.compile(r"### ct_(\w+)\n\n(.+)\n\n```c\n(.+);\n```\n\nDtypes: ([a-z0-9 ]+)\. (Has a|No) gradient\.(.*)\n")


def test_every_op_has_an_entry():
    page = ops_page.page(ROOT)
    entries = ENTRY.findall(page)
    listed = re.findall(r"^OP\(\w+, (\w+), [^-]", (ROOT / "src/ops/ops.list").read_text(), re.M)
    assert [e[0] for e in entries] == listed and len(listed) > 80
    assert page.count("### ") == len(entries)
    for name, doc, signature, *_ in entries:
        assert doc.endswith(".") and len(doc) > 2, name
        assert f" ct_{name}(" in signature


def test_entries_say_what_the_table_does():
    table = read_table(leave_out=())
    for name, _, _, dtypes, gradient, more in ENTRY.findall(ops_page.page(ROOT)):
        op = table[name]
        assert sorted(dtypes.split()) == sorted(op.takes), name
        assert (gradient == "Has a") == op.gradient, name
        fields = [field for _, field in op.fields if field != "present"]
        assert re.findall(r"`(\w+)`", more.partition("Attributes:")[2]) == fields, name


def test_a_number_left_out_is_said():
    """A named option that is left out is 0, which for an axis is the first; one given by place has no default."""
    more = {name: more.partition(" Attributes: ")[2] for name, *_, more in ENTRY.findall(ops_page.page(ROOT))}
    assert more["argmax"] == "`axis` an axis, default 0, `keepdims` true or false."
    assert more["cumsum"] == "`axis` an axis, default 0, `reverse` true or false."
    assert more["concat"] == "`axis` an axis."
