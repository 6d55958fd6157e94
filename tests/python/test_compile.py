"""cotan.compile: what it gives is in every bit what the plain function gives."""
import copy
import json
import os
import subprocess
import sys

import cotan
import numpy as np
import pytest
from cotan import nn, optim
from cotan.nn import functional as F

RNG = np.random.default_rng(12)
A, B = RNG.standard_normal((4, 6)).astype("float32"), RNG.standard_normal((4, 6)).astype("float32")
IMAGES = RNG.standard_normal((2, 3, 8, 8)).astype("float32")

# Functions of x and y, (4, 6) each.
FUNCTIONS = {
    "add": lambda x, y: x + y, "mixed": lambda x, y: (x * 2 - y / 3) ** 2, "sin": lambda x, y: cotan.sin(x) * cotan.cos(y),
    "exp": lambda x, y: cotan.exp(-x * x), "tanh": lambda x, y: cotan.tanh(x @ y.T), "relu": lambda x, y: F.relu(x) + y,
    "gelu": lambda x, y: F.gelu(x), "softmax": lambda x, y: F.softmax(x, 1), "log_softmax": lambda x, y: F.log_softmax(x, dim=0),
    "sum": lambda x, y: x.sum(), "mean": lambda x, y: x.mean(1), "max": lambda x, y: x.max(1).values, "argmax": lambda x, y: x.argmax(1),
    "var": lambda x, y: x.var(0), "norm": lambda x, y: cotan.linalg.norm(x, axis=1), "matmul": lambda x, y: x @ y.T,
    "einsum": lambda x, y: cotan.einsum("ij,kj->ik", x, y), "transpose": lambda x, y: x.T, "reshape": lambda x, y: x.reshape(3, 8),
    "slice": lambda x, y: x[1:3, ::2], "row": lambda x, y: x[0], "index": lambda x, y: x[cotan.asarray([0, 2])], "newaxis": lambda x, y: x[:, None],
    "cat": lambda x, y: cotan.concat([x, y], axis=1), "stack": lambda x, y: cotan.stack([x, y]), "split": lambda x, y: x.split(2),
    "where": lambda x, y: cotan.where(x > 0, x, y), "clip": lambda x, y: cotan.clip(x, -0.5, 0.5), "sort": lambda x, y: cotan.sort(x, axis=1),
    "topk": lambda x, y: x.topk(2), "cumsum": lambda x, y: x.cumsum(1), "compare": lambda x, y: (x < y) & (x > 0),
    "cast": lambda x, y: x.to(cotan.float64) * y, "integers": lambda x, y: (x * 10).to(cotan.int32) // 3,
    "creation": lambda x, y: cotan.zeros(4, 6) + cotan.arange(6) + x, "constant": lambda x, y: x * cotan.asarray([1.0, 2, 3, 4, 5, 6]),
    "linear": lambda x, y: F.linear(x, y), "layer_norm": lambda x, y: F.layer_norm(x, (6,)), "mse": lambda x, y: F.mse_loss(x, y),
    "cross_entropy": lambda x, y: F.cross_entropy(x, cotan.argmax(y, axis=1)), "dropout": lambda x, y: F.dropout(x, 0.5),
    "randn": lambda x, y: x + cotan.randn(4, 6) * cotan.rand(6), "scan": lambda x, y: cotan.scan(lambda c, r: (c + r, c * r), x[0], y)[1],
    "vmap": lambda x, y: cotan.vmap(lambda a, b: a @ b)(x, y), "cond": lambda x, y: cotan.cond(x.sum() > 0, lambda v: v * 2, lambda v: v, x),
    "grad": lambda x, y: cotan.grad(lambda x: (cotan.sin(x) * y).sum())(x), "checkpoint": lambda x, y: cotan.checkpoint(cotan.tanh)(x),
    "in place": lambda x, y: x.clone().mul_(2).add_(y), "tree": lambda x, y: {"a": (x, None), "b": [y * 2, 3, "name"]},
    "same": lambda x, y: (x, x, x), "fft": lambda x, y: cotan.fft.fft(x).real, "complex": lambda x, y: cotan.abs(cotan.complex(x, y)),
}


def equal(ours, plain):
    ours, plain = cotan.tree_util.tree_flatten(ours), cotan.tree_util.tree_flatten(plain)
    assert ours[1] == plain[1]
    for a, b in zip(ours[0], plain[0]):
        if isinstance(b, cotan.Tensor):
            assert a.dtype == b.dtype and a.shape == b.shape
            assert a.detach().numpy().tobytes() == b.detach().numpy().tobytes()
        else:
            assert a == b


def test_there_are_fifty():
    assert len(FUNCTIONS) >= 50


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    """Three calls with new values, compiled (where nothing may run as it is) and not: one flag tells."""
    cotan.manual_seed(4)
    place = cotan.get_rng_state()
    found = []
    for disable in (True, False):
        cotan.set_rng_state(place)
        function = cotan.compile(FUNCTIONS[name], disable=disable, fullgraph=True)
        found.append([function(cotan.asarray(A * k), cotan.asarray(B + k)) for k in (1, 2, 3)])
    equal(found[1], found[0])


def test_second_calls_make_nothing_and_run_no_python():
    calls = []

    @cotan.compile
    def function(x, y):
        calls.append(1)
        return cotan.tanh(x * 2) @ y.T

    def run(k):
        return function(cotan.asarray(A * k), cotan.asarray(B)).numpy()

    run(1)
    before, times = cotan.stats(), len(calls)
    for k in range(2, 6):
        run(k)
    after = cotan.stats()
    assert [after[name] - before[name] for name in ("plans_made", "kernels_compiled")] == [0, 0] and len(calls) == times
    function(cotan.asarray(A[:2]), cotan.asarray(B))  # another signature
    assert len(calls) > times
    found, plans = run(1), cotan.stats()["plans_made"]
    np.testing.assert_array_equal(found, (cotan.tanh(cotan.asarray(A) * 2) @ cotan.asarray(B).T).numpy())
    assert cotan.stats()["plans_made"] == plans  # the plan is the plain one's, too


def test_the_cache_on_disk(tmp_path):
    """A second process compiles nothing."""
    program = ("import cotan, json\nf = cotan.compile(lambda x: (cotan.tanh(x * 1.25) + 0.375).sum(1))\n"
               "f(cotan.ones(64, 64)).numpy()\nprint(json.dumps(cotan.stats()))")
    env = dict(os.environ, XDG_CACHE_HOME=str(tmp_path), COTAN_COMPILE="wait")
    first, second = (json.loads(subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True).stdout)
                     for _ in range(2))
    assert first["kernels_compiled"] > 0 and second["kernels_compiled"] == 0
    assert second["kernels_loaded"] > 0


def net():
    cotan.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Dropout(0.3), nn.Linear(16, 3))


def train(model, steps=6):
    cotan.manual_seed(1)
    adam, losses = optim.Adam(model.parameters(), lr=1e-2), []
    for step in range(steps):
        adam.zero_grad()
        loss = F.cross_entropy(model(cotan.asarray(A * (1 + 0.1 * step))), cotan.asarray([0, 1, 2, 0]))
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return losses


def test_a_module_is_trained():
    """Parameters, statistics that the layers write, random masks and losses are those of the plain module."""
    plain, other = net(), net()
    compiled = cotan.compile(other, fullgraph=True)
    assert train(compiled) == train(plain)
    for (name, a), (_, b) in zip(plain.state_dict().items(), other.state_dict().items()):
        assert a.numpy().tobytes() == b.numpy().tobytes(), name
    compiled.eval()
    plain.eval()
    equal(compiled(cotan.asarray(A)), plain(cotan.asarray(A)))
    assert compiled._orig_mod is other and compiled.training is False and list(compiled.state_dict())[0] == "_orig_mod.0.weight"
    image = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    equal(cotan.compile(image, fullgraph=True)(cotan.asarray(IMAGES)), image(cotan.asarray(IMAGES)))


def test_gradients():
    found = []
    for disable in (True, False):
        x, y = (cotan.asarray(part).requires_grad_() for part in (A, B))
        function = cotan.compile(lambda x, y: (cotan.sin(x) * y).sum() + (x @ y.T).tanh().sum(), disable=disable, fullgraph=True)
        for _ in range(2):
            function(x, y).backward()
        found.append((x.grad, y.grad, cotan.grad(function)(cotan.asarray(A), cotan.asarray(B)),
                      cotan.vmap(function)(cotan.asarray(A[:, None]), cotan.asarray(B[:, None]))))
    equal(found[1], found[0])


def test_no_grad_inside():
    @cotan.compile(fullgraph=True)
    def function(x):
        with cotan.no_grad():
            fixed = x * 2
        return (x * fixed + x.detach()).sum()

    for _ in range(2):
        x = cotan.asarray(A).requires_grad_()
        function(x).backward()
        np.testing.assert_array_equal(x.grad.numpy(), 2 * A)


def test_what_is_closed_over_is_new_each_time():
    scale, model = cotan.asarray(2.0), nn.Linear(6, 2)
    function = cotan.compile(lambda x: model(x) * scale, fullgraph=True)
    x = cotan.asarray(A)
    for value in (3.0, 5.0):
        equal(function(x), model(x) * scale)
        scale.fill_(value)
        with cotan.no_grad():
            model.weight.mul_(value)
    box = [cotan.asarray(1.0)]  # another tensor in its place
    function = cotan.compile(lambda x: x * box[0], fullgraph=True)
    equal(function(x), x)
    box[0] = cotan.asarray(4.0)
    equal(function(x), x * 4)


def test_arguments_that_are_written():
    @cotan.compile(fullgraph=True)
    def function(x, step=1.0):
        x += step
        return x * 2

    x = cotan.asarray(A)
    for _ in range(3):
        equal(function(x, step=2.0), x * 2)
    np.testing.assert_array_equal(x.numpy(), ((A + 2) + 2) + 2)


def test_what_cannot_be_recorded_runs_as_it_is():
    def function(x):
        return x * 2 if x.sum().item() > 0 else x - 1

    compiled = cotan.compile(function)
    for sign in (1, -1, 1):
        equal(compiled(cotan.asarray(abs(A) * sign)), function(cotan.asarray(abs(A) * sign)))
    with pytest.raises(cotan.TraceError) as error:
        cotan.compile(function, fullgraph=True)(cotan.asarray(A))
    assert str(error.value).partition(": ")[2] == ("a value is read inside a traced function\n"
                                                   "  hint: return it as a result of the function, and read it outside")
    generator = cotan.Generator()
    with pytest.raises(RuntimeError) as error:
        cotan.compile(lambda: cotan.rand(3, generator=generator), fullgraph=True)()
    assert str(error.value) == "a function that is compiled draws from the process's generator alone"
    with pytest.raises(ZeroDivisionError):
        cotan.compile(lambda x: 1 / 0)(cotan.asarray(A))


def test_a_tensor_from_outside_is_not_written():
    state = [cotan.asarray(A[0])]
    with pytest.raises(RuntimeError) as error:
        cotan.vmap(lambda x: state[0].add_(x))(cotan.asarray(A))
    assert str(error.value) == ("a tensor from outside is written inside a traced function\n"
                                "  hint: return the value as a result, and write it outside")
    np.testing.assert_array_equal(state[0].numpy(), A[0])


def test_arguments_of_compile():
    function = lambda x: x  # noqa: E731
    assert cotan.compile(function, disable=True) is function and cotan.compile(function, backend="eager") is function
    for options, text in (({"backend": "tvm"}, "compile: there is one backend, which has no options; backend='tvm', options=None are given"),
                          ({"options": {"a": 1}}, "compile: there is one backend, which has no options; backend='inductor', options={'a': 1} are given"),
                          ({"mode": "fast"}, "Unrecognized mode=fast, should be one of: default, reduce-overhead, max-autotune, "
                                             "max-autotune-no-cudagraphs")):
        with pytest.raises(ValueError) as error:
            cotan.compile(function, **options)
        assert str(error.value) == text
    with pytest.raises(TypeError) as error:
        cotan.compile(3)
    assert str(error.value) == "compile: a function or a module is compiled, not int"
    assert cotan.compile(mode="reduce-overhead", dynamic=True)(lambda x: x * 2)(cotan.asarray(2.0)).item() == 4
    assert copy.deepcopy(cotan.compile(net()).eval())(cotan.asarray(A)).shape == (4, 3)


def test_memory_holds_level():
    function = cotan.compile(lambda x, y: cotan.sin(x * y).sum(), fullgraph=True)
    for turn in range(400):
        function(cotan.asarray(A), cotan.asarray(B)).item()
        if turn == 100:
            memory = cotan.stats()["memory"]
    assert cotan.stats()["memory"] == memory


class Holder:
    pass


ELSEWHERE = cotan.asarray(2.0)


def through_a_helper(x):
    return x * ELSEWHERE


def test_tensors_of_other_objects_are_as_they_are_now():
    global ELSEWHERE
    holder, x = Holder(), cotan.asarray(3.0)
    holder.w = cotan.asarray(2.0)
    for f in (cotan.compile(lambda x: x * holder.w), cotan.compile(lambda x: through_a_helper(x))):
        holder.w = ELSEWHERE = cotan.asarray(2.0)
        assert f(x).item() == 6
        holder.w = ELSEWHERE = cotan.asarray(5.0)
        assert f(x).item() == 15
    with pytest.raises(RuntimeError) as error:
        cotan.compile(lambda x: x * holder.w, fullgraph=True)(x)
    assert str(error.value) == ("compile: the function uses a tensor of another object, or of a function that it calls, "
                                "whose place recording cannot look at again\n  hint: pass it as an argument")


NESTED = {
    "grad": lambda f: lambda x: cotan.grad(f)(x).sum(),
    "vmap": lambda f: lambda x: cotan.vmap(f)(cotan.stack([x, x * 2])).sum(),
    "jvp": lambda f: lambda x: sum(cotan.jvp(f, (x,), (x,))),
    "scan": lambda f: lambda x: cotan.scan(lambda c, y: (c + f(y), c), cotan.asarray(0.0), cotan.stack([x, x * 2]))[0],
    "remat": lambda f: lambda x: cotan.checkpoint(f)(x),
    "compile": lambda f: cotan.compile(f),
}


@pytest.mark.parametrize("outer", NESTED)
def test_nested_transforms_of_what_draws(outer):
    """compile around any two of the others, and among them: the plain ones' value. Bodies of compositions that have no
    rule for batches bring numbers along, which where a function is traced come from outside of them."""
    def draw(x):
        return (F.dropout(x * x, 0.5) * cotan.rand(3)).sum()

    def value(function):
        cotan.manual_seed(3)
        return float(function(cotan.asarray([1.0, 2.0, 3.0])))

    for inner in NESTED:
        plain = draw
        for name in (inner, outer):
            plain = plain if name == "compile" else NESTED[name](plain)
        nested = NESTED[outer](NESTED[inner](draw))
        assert value(cotan.compile(nested, fullgraph=True)) == value(plain), inner


def test_what_cannot_be_recorded_runs_once_a_call():
    calls = []
    weight = nn.Parameter(cotan.ones(3))

    def branch(x, k):
        calls.append(1)
        return x * k if x.sum() > 0 else x

    def item(x, k):
        calls.append(1)
        return x * x.sum().item() + k

    def backward(x, k):
        calls.append(1)
        (x * weight * k).sum().backward()
        return x

    def mask(x, k):
        calls.append(1)
        return x[x > k]

    for function in (branch, item, backward, mask):
        fast = cotan.compile(function)
        for i in range(4):  # numbers and sizes change from call to call
            calls.clear()
            equal(fast(cotan.ones(3), i * 0.5), function(cotan.ones(3), i * 0.5))
            assert len(calls) == 2, function
        if function is not backward:
            calls.clear()
            fast(cotan.ones(7), 1.5)
            assert len(calls) == 1, function


def test_draws_that_are_not_the_same_again():
    left = [1, 2]

    def function(x):
        for _ in range(left.pop()):
            x = x + cotan.rand(3)
        return x

    with pytest.raises(RuntimeError) as error:
        cotan.compile(function, fullgraph=True)(cotan.ones(3))
    assert str(error.value) == "compile: the function draws another number of times when it runs again"

    def seeded(x):
        cotan.manual_seed(3)
        return x + cotan.rand(3)

    fast = cotan.compile(seeded)
    for _ in range(3):
        equal(fast(cotan.ones(3)), seeded(cotan.ones(3)))
