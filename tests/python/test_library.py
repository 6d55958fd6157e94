"""Ops from outside: elementwise ones and attentions, in C and in Python, eager, differentiated, batched, compiled and exported, beside
NumPy and JAX; what is wrong with one, in whole sentences; docs/custom-ops.md runs."""
import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import cotan
import jax
import jax.numpy as jnp
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "examples/plugin/window_attention.c"
SWISH = "x / (1 + exp(-beta * x))"
WINDOW = 3


@pytest.fixture(scope="module")
def plugin():
    return cotan.library.load(PLUGIN)


def draw(*shapes):
    rng = np.random.default_rng(7)
    return [rng.standard_normal(shape).astype("float32") for shape in shapes]


def swish_jax(x, beta):
    return x / (1 + jnp.exp(-beta * x))


def attention_jax(q, k, v):
    scores = q @ jnp.swapaxes(k, -1, -2) / q.shape[-1] ** 0.5
    distance = jnp.arange(q.shape[-2])[:, None] - jnp.arange(q.shape[-2])
    return jax.nn.softmax(jnp.where((distance >= 0) & (distance < WINDOW), scores, -jnp.inf)) @ v


def attention_in_python():
    def seen(q):
        distance = cotan.arange(q.shape[-2])[:, None] - cotan.arange(q.shape[-2])
        return (distance >= 0) & (distance < WINDOW)

    def weights(q, k):
        return cotan.softmax(cotan.where(seen(q), q @ k.mT / q.shape[-1] ** 0.5, -cotan.inf), -1)

    def vjp(operands, y, cotangent):
        q, k, v = operands
        p, slope = weights(q, k), cotangent @ v.mT
        slope = p * (slope - cotan.sum(slope * p, axis=-1, keepdims=True)) / q.shape[-1] ** 0.5
        return slope @ k, slope.mT @ q, p.mT @ cotangent

    return cotan.library.custom_op(lambda q, k, v: weights(q, k) @ v, vjp=vjp)


# Each an op, what JAX has for it, and shapes without a batch.
OPS = {
    "elementwise in C": (lambda p: p.swish, swish_jax, [(6, 5), (5,)]),
    "elementwise in Python": (lambda p: cotan.library.elementwise("swish", "x beta", SWISH), swish_jax, [(6, 5), (5,)]),
    "attention in C": (lambda p: lambda q, k, v: p.window_attention(q, k, v, window=WINDOW), attention_jax, [(6, 4), (6, 4), (6, 5)]),
    "attention in Python": (lambda p: attention_in_python(), attention_jax, [(6, 4), (6, 4), (6, 5)]),
}


@pytest.fixture(params=OPS)
def case(request, plugin):
    op, twin, shapes = OPS[request.param]
    return op(plugin), twin, shapes


def near(ours, theirs):
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=2e-5, atol=2e-6)


def test_eager(case):
    op, twin, shapes = case
    arrays = draw(*shapes)
    near(op(*map(cotan.asarray, arrays)), twin(*arrays))


def test_grad(case):
    op, twin, shapes = case
    arrays = draw(*shapes)
    places = tuple(range(len(shapes)))
    theirs = jax.grad(lambda *args: jnp.sin(twin(*args)).sum(), places)(*arrays)
    for ours, wanted in zip(cotan.grad(lambda *args: cotan.sin(op(*args)).sum(), places)(*map(cotan.asarray, arrays)), theirs):
        near(ours, wanted)
    leaves = [cotan.tensor(a, requires_grad=True) for a in arrays]
    cotan.sin(op(*leaves)).sum().backward()
    for leaf, wanted in zip(leaves, theirs):
        near(leaf.grad, wanted)


def test_vmap(case):
    op, twin, shapes = case
    arrays = draw((3, *shapes[0]), *shapes[1:])
    axes = (0,) + (None,) * (len(shapes) - 1)
    near(cotan.vmap(op, in_axes=axes)(*map(cotan.asarray, arrays)), jax.vmap(twin, in_axes=axes)(*arrays))
    ours = cotan.vmap(cotan.grad(lambda *args: op(*args).sum()), in_axes=axes)(*map(cotan.asarray, arrays))
    near(ours, jax.vmap(jax.grad(lambda *args: twin(*args).sum()), in_axes=axes)(*arrays))


def test_compiled(case):
    """A step with it is one plan, which is found again."""
    op, twin, shapes = case
    arrays = draw(*shapes)
    weight = cotan.tensor(arrays[0], requires_grad=True)
    sgd = cotan.optim.SGD([weight], lr=0.5)
    expected, others, plans = arrays[0], list(map(cotan.asarray, arrays[1:])), []
    for _ in range(6):
        sgd.zero_grad()
        op(weight, *others).square().mean().backward()
        sgd.step()
        plans.append(cotan.stats()["plans_made"])
        expected = expected - 0.5 * jax.grad(lambda w: (twin(w, *arrays[1:]) ** 2).mean())(expected)
    near(weight.detach(), expected)
    assert plans[2:] == plans[2:3] * 4


def run_exported(folder, arrays, shape, *sources):
    """What the C that was written computes, compiled with the op's own file."""
    library = folder / "net.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-I", cotan.library.get_include(), folder / "net.c", *sources, "-o", library, "-lm"], check=True)
    header = (folder / "net.h").read_text()
    members = re.findall(r"^    (?:const )?(\w+) (\*?)(\w+);", header[header.index("struct net {"):header.index("};")], re.M)
    fields = [(name, ctypes.c_void_p if star or name == "arena" else ctypes.c_float) for _, star, name in members]
    struct = type("net", (ctypes.Structure,), {"_fields_": fields})()
    code = ctypes.CDLL(str(library))
    code.net_init(ctypes.byref(struct))
    arena = np.zeros(int(re.search(r"ARENA_BYTES (\d+)", header)[1]) + 64, np.uint8)
    struct.arena = (arena.ctypes.data + 63) // 64 * 64
    result = np.zeros(shape, np.float32)
    for name, array in [*arrays.items(), ("result", result)]:
        setattr(struct, name, array.ctypes.data)
    assert code.net(ctypes.byref(struct)) == 0
    return result


def test_exported(case, tmp_path):
    op, _, shapes = case
    arrays = dict(zip("abc", draw((3, *shapes[0]), *shapes[1:])))
    wanted = op(*map(cotan.asarray, arrays.values())).numpy()
    net = (lambda a, b: op(a, b)) if len(shapes) == 2 else (lambda a, b, c: op(a, b, c))
    cotan.export_c(tmp_path / "net", net, *arrays.values())
    assert run_exported(tmp_path, arrays, wanted.shape, PLUGIN).tobytes() == wanted.tobytes()


def test_a_module_is_exported(tmp_path):
    cotan.manual_seed(1)
    net = cotan.nn.Sequential(cotan.nn.Linear(4, 8), cotan.nn.Tanh(), cotan.nn.Linear(8, 2))
    x, = draw((5, 4))
    wanted = net(cotan.asarray(x)).detach().numpy()
    weights = {"v" + name.replace(".", "_"): p.detach().numpy() for name, p in net.state_dict().items()}
    for embed in False, True:
        folder = tmp_path / str(embed)
        folder.mkdir()
        cotan.export_c(folder / "net", net, x, embed=embed)
        given = {"input": x} if embed else {"input": x, **weights}
        assert run_exported(folder, given, wanted.shape).tobytes() == wanted.tobytes()


def test_a_module_in_training_is_exported_as_it_is_in_eval(tmp_path):
    net = cotan.nn.Sequential(cotan.nn.BatchNorm1d(4), cotan.nn.Dropout(0.5))
    x, = draw((5, 4))
    cotan.export_c(tmp_path / "net", net, x, embed=True)
    assert net.training and net[1].training and net[0].running_mean.tolist() == [0] * 4
    wanted = net.eval()(cotan.asarray(x)).detach().numpy()
    given = {"input": x, **{"v0_" + name: value.numpy() for name, value in net[0].named_buffers() if name != "num_batches_tracked"}}
    assert run_exported(tmp_path, given, wanted.shape).tobytes() == wanted.tobytes()


def test_through_ref(plugin):
    program = f"""
import cotan, numpy as np
ops = cotan.library.load({str(PLUGIN)!r})
q = cotan.tensor(np.arange(24, dtype="float32").reshape(2, 3, 4) / 7, requires_grad=True)
y = ops.swish(ops.window_attention(q, q, q, 2), 0.5)
y.sum().backward()
print(y.tolist(), q.grad.tolist())
"""
    said = []
    for device in "cpu", "ref":
        text = program.replace("import cotan, numpy as np", f"import cotan, numpy as np\ncotan.set_device({device!r})")
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        said.append(np.array(eval(done.stdout.replace("] [", "], ["))))
    np.testing.assert_allclose(said[0], said[1], rtol=1e-5, atol=1e-6)


def whole(error):
    return re.sub(r"^\S+test_library.py:\d+: ", "", str(error.value))


def test_what_is_wrong(plugin, tmp_path):
    with pytest.raises(cotan.ArgumentError) as error:
        cotan.library.elementwise("f", "x", "x + y")
    assert whole(error) == 'f: column 5 of its expression: "y" is no operand'
    with pytest.raises(TypeError) as error:
        plugin.window_attention(1, 2, 3)
    assert str(error.value) == "window_attention() needs argument 'window'"
    with pytest.raises(TypeError) as error:
        plugin.window_attention(1, 2, 3, 4, window=4)
    assert str(error.value) == "window_attention() got argument 'window' twice"
    with pytest.raises(TypeError) as error:
        plugin.window_attention(1, 2, 3, 4, 5)
    assert str(error.value) == "window_attention() takes 4 arguments, not 5"
    q, k = cotan.zeros(3, 4), cotan.zeros(3, 5)
    with pytest.raises(cotan.ShapeError) as error:
        plugin.window_attention(q, k, q, window=2)
    assert whole(error) == "window_attention: size d differs: operand 1 (q) is (3, 4) float32, operand 2 (k) is (3, 5) float32"
    with pytest.raises(cotan.DTypeError) as error:
        plugin.window_attention(*[cotan.zeros(3, 4, dtype=cotan.int64)] * 3, window=2)
    assert whole(error) == "window_attention: operand 1 (q) is (3, 4) int64, it must be float32 or float64\n  hint: cast it"
    q.requires_grad_()
    grad = cotan.autograd.grad(plugin.window_attention(q, q, q, 2).sum(), q, create_graph=True)[0]
    with pytest.raises(cotan.GradError) as error:
        grad.sum().backward()
        q.grad.numpy()
    assert whole(error) == "window_attention_back: it was defined without a vjp or jvp"
    with pytest.raises(cotan.GradError) as error:  # jvp transposes vjp, so it differentiates the function that goes back
        cotan.jvp(lambda x: plugin.window_attention(x, x, x, 2), (q.detach(),), (cotan.ones(3, 4),))[1].numpy()
    assert whole(error) == "window_attention_back: it was defined without a vjp or jvp"
    with pytest.raises(cotan.FileError) as error:
        cotan.library.load(tmp_path / "none.so")
    assert "none.so: cannot open shared object file: No such file or directory" in str(error.value)
    (tmp_path / "empty.c").write_text("int nothing;\n")
    with pytest.raises(cotan.FormatError) as error:
        cotan.library.load(tmp_path / "empty.c")
    assert str(error.value).endswith("empty.so has no function cotan_ops, which defines the ops")
    (tmp_path / "wrong.c").write_text("this is no C\n")
    with pytest.raises(cotan.CompilerError) as error:
        cotan.library.load(tmp_path / "wrong.c")
    assert str(error.value).startswith(f"load: cc does not compile {tmp_path / 'wrong.c'}:\n")


def test_its_sentence_is_an_exception(tmp_path):
    (tmp_path / "sad.c").write_text("""
#include <cotan/custom_op.h>
static const char *sad(const ct_op_array *in, const ct_op_array *out, const int64_t *numbers, void *user) {
    (void)in, (void)out, (void)numbers, (void)user;
    return "it does not want to";
}
void cotan_ops(void) { ct_op_define(.name = "sad", .signature = "(n) -> ()", .compute = sad); }
""")
    sad = cotan.library.load(tmp_path / "sad.c").sad
    with pytest.raises(cotan.OpError) as error:
        sad(cotan.zeros(2, 3)).numpy()
    assert whole(error) == "sad: element (0,) of the batch: it does not want to"
    assert sad.operands == ("x0",) and repr(sad) == "<op sad(x0)>"


def test_a_function_that_reads_is_an_exception(tmp_path):
    (tmp_path / "reader.c").write_text("""
#include <cotan/custom_op.h>
static const char *reads(const ct_op_array *in, const ct_op_array *out, const int64_t *numbers, void *user) {
    (void)in, (void)numbers, (void)user;
    *(float *)out[0].data = (float)ct_item(ct_add(ct_f(1), ct_f(2)));
    return 0;
}
void cotan_ops(void) { ct_op_define(.name = "reads", .signature = "(n) -> ()", .compute = reads); }
""")
    reads = cotan.library.load(tmp_path / "reader.c").reads
    x = cotan.ones(2, 3)
    with pytest.raises(cotan.OpError) as error:
        reads(x).numpy()
    assert whole(error) == ("reads: element (0,) of the batch: its function calls the library, which is running the plan\n"
                            "  hint: it has its operands as memory: what else it needs is an operand, and what is made of "
                            "other ops a body or a rule")
    assert (x + 1).tolist() == [[2.0] * 3] * 2


def test_a_missing_compiler_is_a_sentence(monkeypatch):
    monkeypatch.setenv("COTAN_CC", "/nowhere/cc")
    with pytest.raises(cotan.CompilerError) as error:
        cotan.library.load(PLUGIN)
    assert str(error.value) == (f"load: /nowhere/cc cannot be run, which compiles {PLUGIN}: No such file or directory\n"
                                "  hint: install gcc or clang, or load a shared library that was compiled elsewhere")


def test_the_page_runs(monkeypatch):
    monkeypatch.chdir(ROOT)
    programs = re.findall(r"```python\n(.*?)```", (ROOT / "docs/custom-ops.md").read_text(), re.S)
    assert len(programs) == 3
    for program in programs:
        exec(compile(program, "custom-ops.md", "exec"), {})


def test_a_composition_by_a_forward_rule():
    cube = cotan.library.custom_op(lambda x: x * x * x, jvp=lambda operands, y, tangents: 5 * tangents[0] * operands[0])
    x = cotan.tensor([1.0, 2.0], requires_grad=True)
    cube(x).sum().backward()
    assert x.grad.tolist() == [5, 10] and cotan.grad(cube)(cotan.asarray(3.0)).item() == 15
    with pytest.raises(TypeError) as error:
        cotan.library.custom_op(cube, vjp=cube, jvp=cube)
    assert str(error.value) == "custom_op: one of vjp and jvp is the rule, both are given"


def test_defined_anew_it_is_another():
    x = cotan.ones(3)
    for number in range(1, 5):  # as an interactive session does
        f = cotan.library.elementwise("f", "x", f"x * {number}")
        assert f(x).tolist() == [number] * 3


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="Linux alone tells what is loaded")
def test_plugins_use_the_library_in_the_extension(plugin):
    maps = Path("/proc/self/maps").read_text()
    assert "libcotan" not in maps and plugin.swish(cotan.ones(1), 0.0).tolist() == [0.5]
