"""scripts/check-layers goes red on each kind of violation and stays green on a clean tree."""
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/check-layers"


def check(root, files):
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    done = subprocess.run([sys.executable, str(SCRIPT), str(root)], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.returncode == (1 if done.stdout else 0)
    return done.stdout.splitlines()


CLEAN = {
    "include/cotan/cotan.h": "",
    "src/base/mem.h": "#include <stdio.h>\n",
    "src/graph/node.h": '#include "base/mem.h"\n#include "cotan/cotan.h"\n',
    "src/backend/cpu/run.c": '#include "graph/node.h"\n#include "ops/ops.list"\n',
    "src/ops/ops.list": "OP(LOG, log)\n",
    "src/io/npy.h": "",
    "src/data/text.c": '#include "io/npy.h"\n',
    "cli/args.h": "",
    "cli/main.c": '#include "args.h"\n#include <cotan/cotan.h>\n',
    "tests/unit/test_x.c": '#include "graph/node.h"\n',
}


def test_a_clean_tree_passes(tmp_path):
    assert check(tmp_path, CLEAN) == []


def test_a_lower_layer_may_not_include_a_higher_one(tmp_path):
    files = CLEAN | {"src/base/mem.c": '\n#  include "graph/node.h"\n'}
    assert check(tmp_path, files) == [
        'src/base/mem.c:2: "graph/node.h" is not allowed here: layer base is below layer graph']


def test_models_and_training_see_plans_through_the_graph(tmp_path):
    files = CLEAN | {"src/compile/plan.h": "", "src/graph/plans.h": "", "src/dist/sum.c": '#include "compile/plan.h"\n',
                     "src/models/lm.c": '#include "graph/plans.h"\n#include "compile/plan.h"\n',
                     "src/train/fit.c": '#include "backend/cpu/run.h"\n', "src/backend/cpu/run.h": ""}
    through = "uses plans and devices through the public headers and graph/plans.h"
    assert check(tmp_path, files) == [
        f'src/models/lm.c:2: "compile/plan.h" is not allowed here: layer models {through}',
        f'src/train/fit.c:1: "backend/cpu/run.h" is not allowed here: layer train {through}']


def test_passes_name_no_ops(tmp_path):
    files = CLEAN | {
        "src/transform/grad.c": "const ct_opdef ct__op_grad = {\n    .id = CT_OP_GRAD,\n};\n",
        "src/transform/call.c": "bool b = op == &ct__op_grad; // or ct__op_add\n",
        "src/compile/schedule/fuse.c": "bool a = op == &ct__op_const;\nbool b = op->id == CT_OP_CAST;\n"
                              "bool c = op == &ct__op_grad;\nbool d = !strcmp(node->op->name, x);\n"
                              "bool e = !strcmp(op->fields[i].name, x);\nfor (i = 0; i < ct__n_ops;) f();\n",
    }
    ask = "ask for its kind, or its record for what you need"
    compares = "a pass compares names of ops or attributes: let the record say it"
    assert check(tmp_path, files) == [
        f"src/compile/schedule/fuse.c:2: a pass names the op cast: {ask}",
        f"src/compile/schedule/fuse.c:3: a pass names the op grad: {ask}",
        f"src/compile/schedule/fuse.c:4: {compares}", f"src/compile/schedule/fuse.c:5: {compares}"]


def test_kinds_are_asked_not_named(tmp_path):
    names = ("bool a = kind == &ct__kind_leaf || kind == &ct__kind_loop; // no ct__kind_sort\n"
             "bool b = kind == &ct__kind_sort;\n")
    allowed = {"src/kinds/sort.c": names, "src/ops/sort.c": names, "tests/unit/test_y.c": names}
    assert check(tmp_path, CLEAN | allowed) == []
    refused = {"src/graph/order.c": names, "src/transform/grad.c": names, "src/compile/schedule/fuse.c": names}
    assert check(tmp_path, CLEAN | allowed | refused) == [
        f"{path}:2: the kind sort is named: ask its record for the property that you need" for path in sorted(refused)]


def test_the_program_and_examples_use_public_headers_only(tmp_path):
    files = CLEAN | {"cli/main.c": '#include "base/mem.h"\n',
                     "examples/01.c": '#include "../src/base/mem.h"\n'}
    assert check(tmp_path, files) == [
        'cli/main.c:1: "base/mem.h" is not allowed here: cli/ uses only the public headers cotan/*.h',
        'examples/01.c:1: "../src/base/mem.h" is not allowed here: '
        "examples/ uses only the public headers cotan/*.h"]


def test_public_headers_stand_alone(tmp_path):
    files = CLEAN | {"include/cotan/cotan.h": '#include "base/mem.h"\n'}
    assert check(tmp_path, files) == [
        'include/cotan/cotan.h:1: "base/mem.h" is not allowed here: '
        "a public header includes only public headers"]


def test_includes_are_written_from_src(tmp_path):
    files = CLEAN | {"src/base/mem.c": '#include "mem.h"\n#include <cotan/none.h>\n'}
    assert check(tmp_path, files) == [
        'src/base/mem.c:1: "mem.h" is no file of src/ or include/',
        'src/base/mem.c:2: "cotan/none.h" is no file of src/ or include/']


def test_stages_of_the_compiler_go_one_way(tmp_path):
    files = CLEAN | {"src/compile/passes/a.c": '#include "compile/schedule/b.h"\n', "src/compile/schedule/b.h": "",
                     "src/compile/run/c.c": '#include "compile/schedule/b.h"\n', "src/compile/else/d.c": ""}
    assert check(tmp_path, files) == [
        "src/compile/else/d.c:1: the file belongs to no stage of its layer",
        'src/compile/passes/a.c:1: "compile/schedule/b.h" is not allowed here: stage passes is before stage schedule']


def test_every_source_belongs_to_a_layer(tmp_path):
    files = CLEAN | {"src/util/x.c": "", "src/y.c": ""}
    assert check(tmp_path, files) == ["src/util/x.c:1: the file belongs to no layer",
                                      "src/y.c:1: the file belongs to no layer"]


def test_functions_without_a_use_are_found(tmp_path):
    files = CLEAN | {
        "src/base/mem.h": "bool ct__idle(int a);\nint *ct__called(void);\n#define NAMED ct__by_macro(1)\n",
        "src/base/mem.c": "bool ct__idle(int a) { // not ct__idle alone\n    return ct__called() && a;\n}\n"
                          "int *ct__called(void) { return 0; }\nbool ct__by_macro(int a) { return a; }\n"
                          "ct_words ct__of_a_test(int a,\n                       int b) {}\n"
                          "const f *ct__in_a_table(void) {}\nint ct__prelude;\nstatic int ct__own(int a) {}\n",
        "src/base/table.inc": "ROW(ct__in_a_table)\n", "tests/unit/test_x.c": "    ct__of_a_test(1, 2);\n"}
    assert check(tmp_path, files) == ["src/base/mem.c:1: nobody uses ct__idle"]


def test_circles_of_includes_are_found(tmp_path):
    files = CLEAN | {"src/ops/a.h": '#include "ops/b.h"\n', "src/ops/b.h": '\n#include "ops/c.h"\n',
                     "src/ops/c.h": '#include "ops/a.h"\n'}
    assert check(tmp_path, files) == [
        "src/ops/c.h:1: a circle of includes: "
        "src/ops/a.h -> src/ops/b.h -> src/ops/c.h -> src/ops/a.h"]


def test_long_files_and_functions_are_found(tmp_path):
    def function(head, length):
        return head + "\n" + "    f();\n" * (length - 1 - head.count("\n") - 1) + "}\n\n"

    text = (function("static int fits(int a,\n                int b) {", 79) +
            function("static int too_long(int a,\n                    int b) {", 80) +
            "static const int table[] = {\n" + "    1,\n" * 90 + "};\n" +
            "struct big {\n" + "    int (*f)(int);\n" * 90 + "};\n" +
            "#define LONG(x) do { \\\n" + "    f(); \\\n" * 90 + "} while (0)\n" +
            function("void last(void) { // why", 81))
    long_file = "int x;\n" * 1201
    out = check(tmp_path, CLEAN | {"src/nn/f.c": text, "src/nn/g.c": long_file, "src/nn/h.c": long_file[7:],
                                   "python/cotan/g.py": "x = 1\n" * 1201})
    line = text[:text.index("void last")].count("\n") + 1
    assert out == ["python/cotan/g.py:1201: the file has 1201 lines; the limit is 1200",
                   "src/nn/f.c:81: too_long has 80 lines; the limit is 79",
                   f"src/nn/f.c:{line}: last has 81 lines; the limit is 79",
                   "src/nn/g.c:1201: the file has 1201 lines; the limit is 1200"]
