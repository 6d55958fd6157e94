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
    cotan::compile_args step;
    step.path = "step";
    step.names = {{"t", t}, {"params", t}};
    step.names = {};
    if (!cotan::compile(step)) cotan::error_clear();
    size_t two = 2;
    ct_tensor u = ct_from(x, CT_F32, CT_DIMS(two, 3)), slopes[2], none = ct_zeros(CT_F32, CT_DIMS());
    cotan::grad(cotan::sum(cotan::mul(t, u)), {t, u}, slopes);
    if (!cotan::eval({t, none}) || cotan::failed()) cotan::error_clear();
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
    cotan::nn_linear(ct_nn_builder_for(params, 1), {.in = 2, .out = 3, .no_bias = true});
    std::vector<ct_tensor> two = {t, cotan::slice(t, {.axes = {0}, .start = {1}})};
    cotan::attention(t, t, t, {.mask = t, .causal = true});
    if (!cotan::compile({.path = "step", .names = {{"t", t}}})) cotan::error_clear();
    if (!cotan::compile({.path = "step", .names = {{"t", t}, {"two", two[1]}}, .embed_params = params})) cotan::error_clear();
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


def test_every_function_is_there_in_cpp():
    """Each exported function of the headers that C++ can call has its wrapper, or is said here to have none."""
    wrappers = set(re.findall(r"::(ct_\w+)\(", (BUILD / "derived/cotan/functions.hpp").read_text()))
    wrappers |= set(re.findall(r"::(ct_\w+)\(", (ROOT / "include/cotan/cotan.hpp").read_text()))
    none = {"ct_scope_begin", "ct_scope_end", "ct_nn_builder_child"}  # CT_SCOPE; a format with arguments
    for header in (ROOT / "include/cotan").glob("*.h"):
        text = re.sub(r"//[^\n]*", "", header.read_text())
        names = set(re.findall(r"^CT_API[^;(]*\b(ct_[a-z0-9]\w*)\(", text, re.M))
        assert names <= wrappers | none, f"{header.name}: {names - wrappers - none}"


def run_cpp(compiler, tmp_path, text):
    """What a C++17 program says, and its source; None where the sanitizers keep it from running."""
    source, program = tmp_path / "user.cpp", tmp_path / "user"
    source.write_text(text)
    sanitized = "COTAN_SANITIZE:BOOL=ON" in (BUILD / "CMakeCache.txt").read_text()
    sanitize = ["-fsanitize=address,undefined"] if sanitized else []
    if sanitized and compiler == "clang++":
        return source, None  # its runtime is another one than that of gcc's library
    done = subprocess.run([compiler, "-std=c++17", "-O2", *WARNINGS, *sanitize, *INCLUDES, str(source), "-o", str(program),
                           f"-L{BUILD}", "-lcotan", f"-Wl,-rpath,{BUILD}"], text=True, capture_output=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return source, subprocess.run([program], text=True, capture_output=True).stdout.splitlines()


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_lists_of_the_c_headers_work_in_cpp(compiler, tmp_path):
    """CT_DIMS and the like, in C++17 and without cotan.hpp, with sizes of any integer type."""
    _, lines = run_cpp(compiler, tmp_path, """#include <cotan/cotan.h>
#include <cstdio>
#include <vector>

int main() {
    CT_SCOPE;
    std::vector<float> v = {1, 2, 3, 4, 5, 6};
    ct_tensor x = ct_from(v.data(), CT_F32, CT_DIMS(2, v.size() / 2));
    ct_tensor y = ct_permute(ct_reshape(x, CT_DIMS(3u, 1, 2)), CT_AXES(-1, 0, 1));
    const float *values = static_cast<const float *>(ct_data(y));
    for (int i = 0; values && i < 6; i++) std::printf("%g ", static_cast<double>(values[i]));
    std::printf("%d %d\\n", ct_rank(y), ct_rank(ct_zeros(CT_F32, CT_DIMS())));
    if (ct_failed()) std::puts(ct_error_text());
}
""")
    assert lines in (None, ["1 3 5 2 4 6 3 0"])


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_names_are_given_in_braces(compiler, tmp_path):
    """They outlive the statement that filled the options, whatever the tensors are listed in."""
    _, lines = run_cpp(compiler, tmp_path, """#include <cotan/cotan.hpp>
#include <cstdio>
#include <cstring>
#include <string>

int main(int, char **argv) {
    CT_SCOPE;
    const float values[] = {1, 2};
    ct_tensor x = cotan::from(values, CT_F32, {2}), y = cotan::keep(cotan::add(x, x));
    std::string path = std::string(argv[0]) + "_step";
    const ct_named_tensor one[] = {{"pixels", x}};
    cotan::compile_args braces, list;
    braces.path = list.path = path.c_str();
    braces.names = {{"images", x}, {"doubled", y}};
    list.names = ct_named_list{one, 1};
    for (const cotan::compile_args &args : {braces, list}) {
        if (!cotan::compile(args)) std::puts(cotan::error_text());
        std::FILE *header = std::fopen((path + ".h").c_str(), "r");
        char line[256];
        while (header && std::fgets(line, sizeof line, header))
            if (std::strstr(line, "float *")) std::fputs(line, stdout);
        if (header) std::fclose(header);
    }
}
""")
    if lines is not None:
        assert [line.split(";")[0].split("*")[1] for line in lines] == ["images", "doubled", "pixels", "result_1"], lines


# What each compiler makes of the C header's named options in C++, as docs/embedding.md says it.
ALONE = [("ct_sum(x)", "g++", "c++17", True), ("ct_sum(x)", "g++", "c++20", False),
         ("ct_sum(x, .axes = CT_AXES(1))", "g++", "c++17", True), ("ct_sum(x, .axes = CT_AXES(1))", "g++", "c++20", False),
         ("ct_sum(x, .axes = CT_AXES(1))", "clang++", "c++17", True), ("ct_sum(x, .axes = CT_AXES(1))", "clang++", "c++20", True),
         ("ct_compile(\"step\", .names = CT_NAMED_LIST({\"x\", x}))", "g++", "c++17", False),
         ("ct_compile(\"step\", .names = CT_NAMED_LIST({\"x\", x}))", "clang++", "c++20", True),
         ("ct_sum_with({x, CT_AXES(1), true, CT_HERE})", "g++", "c++17", True),
         ("ct_sum_with({.x = x, .axes = CT_AXES(1), .keepdims = true, .here = CT_HERE})", "g++", "c++20", True),
         ("ct_sum_with({.x = x, .axes = CT_AXES(1), .keepdims = true, .here = CT_HERE})", "clang++", "c++20", True)]


@pytest.mark.parametrize("call, compiler, standard, compiles", ALONE)
def test_named_options_of_the_c_header_alone_in_cpp(call, compiler, standard, compiles):
    text = f"#include <cotan/cotan.h>\nauto use(ct_tensor x) {{ return {call}; }}\n"
    done = subprocess.run([compiler, "-x", "c++", f"-std={standard}", "-fsyntax-only", *INCLUDES, "-"], input=text, text=True,
                          capture_output=True)
    assert (done.returncode == 0) == compiles, done.stderr


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_cpp_errors_name_the_callers_line(compiler, tmp_path):
    source, lines = run_cpp(compiler, tmp_path, ('#include <cotan/cotan.hpp>\n#include <cstdio>\n\nint main() {\n'
                      '    ct_tensor t = cotan::sum(CT_NONE, {});\n    std::puts(ct_error_text());\n'
                      '    cotan::reshape(t, {1, 2});\n    ct_error_clear();\n'
                      '    cotan::zeros(CT_F32, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17,\n'
                      '        18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34});\n'
                      '    std::puts(ct_error_text());\n}\n'))
    if lines is None:
        return
    assert lines[0] == f"{source}:5: sum: operand 1 is no tensor"
    assert lines[1].startswith(f"{source}:9: ") or lines[1].startswith(f"{source}:10: ")
    assert "33" in lines[1]
