"""Each public header stands alone, in C99, C17, C++17 and C++20, with all warnings."""
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("COTAN_BUILD", ROOT / "build"))
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]
HEADERS = sorted(p.name for p in (ROOT / "include/cotan").glob("*.h")) + ["ops.h"]
INCLUDES = ["-I", str(ROOT / "include"), "-I", str(BUILD / "derived")]


def compile_text(compiler, standard, text):
    language = "c++" if "++" in standard else "c"
    return subprocess.run([compiler, "-x", language, f"-std={standard}", *WARNINGS, "-fsyntax-only",
                           *INCLUDES, "-"], input=text, text=True, capture_output=True)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("header, standard", [
    *[(h, s) for h in HEADERS for s in ("c99", "c17", "c++17")], ("cotan.hpp", "c++17"), ("cotan.hpp", "c++20")])
def test_header_compiles_alone(compiler, header, standard):
    done = compile_text(compiler, standard, f"#include <cotan/{header}>\n")
    assert done.returncode == 0 and not done.stderr, done.stderr


@pytest.mark.parametrize("header", sorted(p.name for p in (ROOT / "include/cotan").glob("*.h")))
def test_header_reads_as_a_manual(header):
    """What formatting breaks: a heading is one line, 100 wide, above its declarations; a declaration begins with its type and name."""
    lines = (ROOT / "include/cotan" / header).read_text().splitlines()
    for number, line in enumerate(lines, 1):
        if line.startswith("// ----"):
            assert re.fullmatch(r"// -+ [\w -]+", line) and len(line) == 100, f"{header}:{number}: {line}"
            assert lines[number] == "" and not lines[number + 1].startswith("// ----"), f"{header}:{number}: {line}"
        assert not re.fullmatch(r"CT_API [^(]*", line), f"{header}:{number}: the name stands on the next line"
        assert not re.fullmatch(r" {8,}.*; // .*", line), f"{header}:{number}: the comment belongs above"


C_USE = """
#include <cotan/optim.h>
ct_tensor use(ct_params *params, const float *x);
ct_tensor use(ct_params *params, const float *x) {
    CT_SCOPE;
    ct_tensor t = ct_from(x, CT_F32, CT_DIMS(2, 3));
    ct_optim *o = ct_adamw(params, .lr = 0.1, .beta1 = CT_F(0));
    ct_optim_step(o, ct_sum(t));
    return ct_keep(ct_sum(t, .axes = CT_AXES(0), .keepdims = true));
}
"""
CXX17_USE = """
#include <cotan/cotan.hpp>
ct_tensor use(ct_params *params, const float *x);
ct_tensor use(ct_params *params, const float *x) {
    CT_SCOPE;
    ct_tensor t = cotan::from(x, CT_F32, {2, 3});
    cotan::optim_options adamw;
    adamw.lr = 0.1;
    adamw.beta1 = 0;
    ct_optim_step(cotan::adamw(params, adamw), cotan::sum(t));
    cotan::sum_args rows;
    rows.axes = {0};
    rows.keepdims = true;
    return ct_keep(cotan::concat({cotan::sum(t, rows), cotan::and_(t, t)}, 0));
}
"""
CXX20_USE = """
#include <cotan/cotan.hpp>
#include <vector>
ct_tensor use(ct_params *params, const float *x);
ct_tensor use(ct_params *params, const float *x) {
    CT_SCOPE;
    ct_tensor t = cotan::from(x, CT_F32, {2, 3});
    cotan::optim_step(cotan::adamw(params, {.lr = 0.1, .beta1 = 0}), cotan::sum(t));
    cotan::nn_linear(ct_nn_place_in(params, 1), {.in = 2, .out = 3, .no_bias = true});
    std::vector<ct_tensor> two = {t, cotan::slice(t, {.axes = {0}, .start = {1}})};
    cotan::attention(t, t, t, {.mask = t, .causal = true});
    return ct_keep(cotan::concat(two, 0));
}
"""


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("standard, text", [
    ("c99", C_USE), ("c17", C_USE), ("c++17", CXX17_USE), ("c++20", CXX17_USE), ("c++20", CXX20_USE)])
def test_named_options_compile_without_a_warning(compiler, standard, text):
    done = compile_text(compiler, standard, text)
    assert done.returncode == 0 and not done.stderr, done.stderr


@pytest.mark.parametrize("standard, text, option", [
    ("c17", C_USE, "keepdims"), ("c++17", CXX17_USE, "keepdims"), ("c++20", CXX20_USE, "causal")])
def test_a_misspelt_option_is_an_error(standard, text, option):
    name = option + "x"
    done = compile_text("clang", standard, text.replace("." + option, "." + name))
    assert done.returncode != 0 and name in done.stderr


def test_every_op_is_there_in_cpp():
    """Each function of ops.h that takes a line has its wrapper."""
    ops = (BUILD / "derived/cotan/ops.h").read_text()
    wrappers = set(re.findall(r"::(ct_\w+)\(", (BUILD / "derived/cotan/functions.hpp").read_text()))
    named = set(re.findall(r"\b(ct_\w+_(?:at|with))\((?=ct_|const)", ops))
    assert len(named) > 90 and not named - wrappers


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_cpp_errors_name_the_callers_line(compiler, tmp_path):
    source, program = tmp_path / "user.cpp", tmp_path / "user"
    source.write_text('#include <cotan/cotan.hpp>\n#include <cstdio>\n\nint main() {\n'
                      '    ct_tensor t = cotan::sum(CT_NONE, {});\n    std::puts(ct_error_text());\n'
                      '    cotan::reshape(t, {1, 2});\n    ct_error_clear();\n'
                      '    cotan::zeros(CT_F32, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17,\n'
                      '        18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34});\n'
                      '    std::puts(ct_error_text());\n}\n')
    sanitized = "COTAN_SANITIZE:BOOL=ON" in (BUILD / "CMakeCache.txt").read_text()
    sanitize = ["-fsanitize=address,undefined"] if sanitized else []
    if sanitized and compiler == "clang++":
        return  # its runtime is another one than that of gcc's library
    done = subprocess.run([compiler, "-std=c++17", *sanitize, *INCLUDES, str(source), "-o", str(program),
                           f"-L{BUILD}", "-lcotan", f"-Wl,-rpath,{BUILD}"],
                          text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([program], text=True, capture_output=True)
    lines = done.stdout.splitlines()
    assert lines[0] == f"{source}:5: sum: operand 1 is no tensor"
    assert lines[1].startswith(f"{source}:9: ") or lines[1].startswith(f"{source}:10: ")
    assert "33" in lines[1]
