"""Gradients as PyTorch has them, writes in place and views."""
import asyncio
import gc
import inspect
import re

import numpy
import pytest

import cotan
from cotan import _core, ops


def leaf(values, dtype="float32"):
    return cotan.Tensor(numpy.array(values, dtype), requires_grad=True)


def test_leaves_and_results():
    w, x = leaf([1, 2]), cotan.asarray([3.0, 4.0])
    y = w * x
    assert (w.requires_grad, w.is_leaf) == (True, True)
    assert (x.requires_grad, x.is_leaf) == (False, True)
    assert (y.requires_grad, y.is_leaf) == (True, False)
    assert (y.detach().requires_grad, (x * x).requires_grad) == (False, False)
    with cotan.no_grad():
        assert not (w * x).requires_grad
    assert (w > 1).requires_grad is False  # no slope leads through it
    y.sum = None  # attributes are free


def test_modes():
    w = leaf([1.0])

    @cotan.no_grad()
    def without():
        return w * 2

    @cotan.inference_mode
    def neither():
        with cotan.enable_grad():
            assert (w * 2).requires_grad
        return w * 2

    assert not without().requires_grad and not neither().requires_grad and (w * 2).requires_grad
    with cotan.set_grad_enabled(False):
        assert not cotan.is_grad_enabled() and not (w * 2).requires_grad
    assert cotan.is_grad_enabled()
    with pytest.raises(KeyError), cotan.no_grad():
        raise KeyError
    assert cotan.is_grad_enabled()
    cotan.set_grad_enabled(False)
    assert not (w * 2).requires_grad
    cotan.set_grad_enabled(True)
    assert cotan.set_grad_enabled(True)(lambda: (w * 2).requires_grad)()


def test_gradients_add_up():
    w = leaf([1, 2, 3])
    for times in (1, 2):
        ops.sum(w * w).backward()
        assert w.grad.tolist() == [2 * times, 4 * times, 6 * times]
    held = w.grad
    ops.sum(w * w).backward()
    assert held is w.grad and held.tolist() == [6, 12, 18]
    w.grad = None
    (w * 2).backward(cotan.asarray([1.0, 10.0, 100.0]))
    assert w.grad.tolist() == [2, 20, 200]


def test_values_outlive_the_names_of_leaves():
    other, w = cotan.asarray([1.0]), leaf([1.0, 2.0])
    other.item()
    y = w.detach() * 2
    del w
    assert other.item() == 1  # is there: nothing runs
    assert y.tolist() == [2, 4]


def test_inputs_choose_leaves():
    a, b = leaf([1.0]), leaf([2.0])
    ops.sum(a * b).backward(inputs=[b])
    assert a.grad is None and b.grad.tolist() == [1]


@pytest.mark.parametrize("read", [False, True])
def test_descent_makes_no_plan_once_it_runs(read):
    rng = numpy.random.default_rng(3)
    x, y = rng.standard_normal((16, 4)).astype("f"), rng.standard_normal((16, 1)).astype("f")
    w, theirs = leaf(numpy.zeros((4, 1))), numpy.zeros((4, 1))
    for step in range(40):
        off = ops.matmul(cotan.asarray(x), w) - cotan.asarray(y)
        loss = ops.mean(off * off)
        if read:
            assert loss.item() >= 0
        w.grad = None
        loss.backward()
        with cotan.no_grad():
            w -= 0.1 * w.grad
        cotan.eval()
        theirs -= 0.1 * 2 * x.T @ (x @ theirs - y) / 16
        if step == 5:
            plans = cotan.stats()["plans_made"]
    assert cotan.stats()["plans_made"] == plans
    numpy.testing.assert_allclose(w.numpy(), theirs, rtol=1e-4, atol=1e-6)


def test_loops_hold_memory_level():
    """With and without a backward, and with losses that nobody differentiates."""
    w, x = leaf(numpy.ones(64)), cotan.asarray(numpy.ones(64, "f"))
    for turn in range(3000):
        loss = ops.sum(w * x)
        if turn % 3:
            loss.item()
        else:
            w.grad = None
            loss.backward()
            with cotan.no_grad():
                w += 0.001 * w.grad
        if turn == 299:
            cotan.eval()
            memory, live = cotan.stats()["memory"], cotan.stats()["live_bytes"]
    cotan.eval()
    assert (cotan.stats()["memory"], cotan.stats()["live_bytes"]) == (memory, live)


def sentence(error):
    return re.sub(r"\S*test_autograd\.py", "t.py", str(error.value))


def test_a_history_is_used_once():
    w = leaf([1, 2])
    loss = ops.sum(w * w)
    loss.backward(retain_graph=True)
    loss.backward()
    assert w.grad.tolist() == [4, 8]
    with pytest.raises(cotan.Error) as error:
        loss.backward()
    assert re.fullmatch(r"t.py:\d+: backward: the history of the value of t.py:\d+ was used by an earlier backward, the "
                        r"latest one at t.py:\d+\n"
                        r"  hint: backward\(retain_graph=True\) keeps it; detach\(\) makes the value a constant, where "
                        r"gradients shall end at it", sentence(error))


def test_truncated_backpropagation_through_time():
    w, h, plans = leaf([0.5]), cotan.asarray([1.0]), []
    for _ in range(4):
        for _ in range(3):
            h = h * w
        ops.sum(h).backward()
        h = h.detach()
        plans.append(cotan.stats()["plans_made"])
    h0, total = 1.0, 0.0
    for _ in range(4):
        total += 3 * h0 * 0.25
        h0 *= 0.125
    assert w.grad.tolist() == pytest.approx([total])


def test_an_overwritten_leaf_tells_both_lines():
    w = leaf([1, 2])
    loss = ops.sum(w * w)
    loss.item()
    with cotan.no_grad():
        w += 1
    cotan.eval()
    loss.backward()
    with pytest.raises(cotan.Error) as error:
        w.grad.numpy()
    assert re.match(r't.py:\d+: grad: the value needs variable "tensor" as it was read at t.py:\d+, but it was assigned at t.py:\d+ and is gone',
                    sentence(error))


@pytest.mark.parametrize("wrong, text", [
    (lambda w: (w * w).backward(), "backward: the loss must be one number, it is cotan.Size([2])\n  hint: mean() or sum() makes it one; or "
     "give backward(gradient) of its shape"),
    (lambda w: w.__iadd__(1), "a leaf that requires gradients is written in its place, which its gradient would not know\n  hint: with "
     "cotan.no_grad(): around it, or detach() before"),
    (lambda w: (w * w).requires_grad_(False), "requires_grad_: requires_grad can be turned off for leaves only; detach() gives a tensor "
     "without a history"),
    (lambda w: cotan.asarray([1, 2]).requires_grad_(), "requires_grad_: only floats and complex numbers have gradients, the tensor is int64"),
    (lambda w: setattr(w, "grad", cotan.asarray([1.0])), "grad: the gradient is cotan.Size([1]), the tensor is cotan.Size([2])"),
    (lambda w: cotan.asarray([1, 2]).__iadd__(0.5), "a tensor of int64 is written in its place, it cannot hold float32"),
])
def test_sentences(wrong, text):
    with pytest.raises(RuntimeError) as error:
        wrong(leaf([1, 2]))
    assert str(error.value) == text


def test_parameters_are_read_before_and_after_a_value():
    """An if in the middle of a step ends a plan; both sides read the same version of the parameter."""
    w, theirs = leaf([1.0, 2.0]), numpy.array([1.0, 2.0])
    for step in range(6):
        h = w * 2
        if step % 2:
            assert h.sum() != 7
        if (h * w).sum() > 1:
            h = h * w
        h.sum().backward()
        slope = 4 * theirs if (theirs * theirs * 2).sum() > 1 else numpy.full(2, 2.0)
        assert w.grad.tolist() == pytest.approx(slope.tolist())
        with cotan.no_grad():
            w -= 0.1 * w.grad
        theirs -= 0.1 * slope
        w.grad = None
    assert w.tolist() == pytest.approx(theirs.tolist())


def test_nothing_requires_gradients():
    with pytest.raises(cotan.Error) as error:
        ops.sum(cotan.asarray([1.0])).backward()
    assert sentence(error).split(": ", 1)[1] == ("backward: nothing that the value depends on requires gradients\n"
                                                 "  hint: set requires_grad=True before the value is computed")


def test_gradients_of_gradients():
    x = leaf(2.0, "float64")
    y = x * x * x
    (first,) = _core._grad(y, (x,), None, True, True)
    first.backward()
    assert (first.item(), x.grad.item()) == (12, 12)
    other = leaf(1.0)
    assert _core._grad(x * 1.0, (x, other), None, False, False)[1] is None


def test_complex_gradients_are_pytorchs():
    """d|z|^2 along x + i d along y = 2 z."""
    z = cotan.Tensor(numpy.array([1 + 2j, -3 + 0.5j], "complex64"), requires_grad=True)
    ops.sum(ops.square(ops.abs(z))).backward()
    numpy.testing.assert_allclose(z.grad.numpy(), 2 * z.detach().numpy(), rtol=1e-6)
    z.grad = None
    (z * (2 + 1j)).backward(cotan.asarray([1 + 0j, 1j]))
    numpy.testing.assert_allclose(z.grad.numpy(), [2 - 1j, 1 + 2j], rtol=1e-6)


# ------------------------------------------------------------------------------------------ writes and views


def view(x, *moves):
    return _core._view(x, moves)


def test_a_write_is_seen_through_both():
    a = cotan.asarray(numpy.arange(6.0, dtype="f"))
    b = view(a, ("reshape", (2, 3)))
    c, d = b.T, view(b, ("slice", (1,), (1,), (3,), (1,)))
    b += 10
    assert a.tolist() == [10, 11, 12, 13, 14, 15] and c.tolist() == [[10, 13], [11, 14], [12, 15]]
    d *= 0
    assert a.tolist() == [10, 0, 0, 13, 0, 0] and c.tolist() == [[10, 13], [0, 0], [0, 0]]
    a.copy_(7)
    assert d.tolist() == [[7, 7], [7, 7]]


@pytest.mark.parametrize("step", [1, 2, 3, -1, -2])
def test_slices_are_written(step):
    x = numpy.arange(40.0, dtype="f").reshape(8, 5)
    ours = cotan.asarray(x)
    start, stop = (1, 8) if step > 0 else (7, 0)
    part = view(ours, ("slice", (0, 1), (start, 1), (stop, 4), (step, 2)))
    x[start:stop:step, 1:4:2] += 100
    part += 100
    assert ours.tolist() == x.tolist() and part.tolist() == x[start:stop:step, 1:4:2].tolist()


def test_a_lonely_view_does_not_hold_its_parent():
    gc.collect()
    cotan.eval()
    before = cotan.stats()["live_bytes"]
    x = cotan.asarray(numpy.ones(1 << 16, "f"))
    x = view(x * 2, ("reshape", (256, 256)))
    cotan.eval()
    assert cotan.stats()["live_bytes"] - before == 1 << 18
    a, b = view(x, ("permute", (1, 0))), view(x, ("reshape", (-1,)))
    del x
    a += 1
    assert b.tolist()[0] == 3


def test_expanded_tensors_are_not_written():
    with pytest.raises(RuntimeError, match="an expanded tensor is written, of which several elements are one\n  hint: clone\\(\\) before"):
        one = cotan.asarray([1.0])
        part = view(one, ("expand", (4,)))
        part += 1


def test_what_others_look_at_stays():
    x = cotan.asarray([1.0, 2.0])
    theirs = x.numpy()
    x += 1
    assert theirs.tolist() == [1, 2] and x.tolist() == [2, 3]
    del x
    gc.collect()
    for i in range(50):
        cotan.asarray(numpy.full(2, i, "f")).numpy()
    assert theirs.tolist() == [1, 2]


def test_gradients_flow_through_views_and_writes():
    w = leaf(numpy.ones(4))
    x = w * 1.0
    part = view(x, ("slice", (0,), (1,), (3,), (1,)))
    part *= 3
    ops.sum(x * x).backward()
    assert w.grad.tolist() == [2, 18, 18, 2]


def test_a_hook_may_read():
    a, b = cotan.Tensor([1.0, 2.0], requires_grad=True), cotan.Tensor([3.0, 4.0], requires_grad=True)
    seen = []
    for p in (a, b):
        p.register_hook(lambda slope: seen.append(slope.sum().item()))
    (a * b).sum().backward()
    assert seen == [7, 3] and a.grad.tolist() == [3, 4] and b.grad.tolist() == [1, 2]


def test_what_has_a_history_is_shown():
    x = cotan.ones(2, requires_grad=True)
    y = x * 2
    assert repr(x) == "tensor([1., 1.], requires_grad=True)" and x.grad_fn is None
    assert repr(y) == "tensor([2., 2.], grad_fn=<mul>)" and y.grad_fn.name() == "mul"
    assert repr(y.detach()) == "tensor([2., 2.])" and y.detach().grad_fn is None


# ------------------------------------------------------------------------------------- decorators

MODES = {"no_grad": lambda f: cotan.no_grad(f), "no_grad()": lambda f: cotan.no_grad()(f),
         "inference_mode": lambda f: cotan.inference_mode()(f), "set_grad_enabled": lambda f: cotan.set_grad_enabled(False)(f)}
on = cotan.is_grad_enabled


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_a_generator_runs_inside_of_its_mode(mode):
    seen = []

    @mode
    def steps():
        try:
            seen.append((yield on()))
            try:
                yield on()
            except ValueError:
                seen.append(on())
                yield "caught"
            return "end"
        finally:
            seen.append(on())

    it = steps()
    assert inspect.isgeneratorfunction(steps) and steps.__name__ == "steps"
    assert next(it) is False and on()
    assert it.send("sent") is False and on()
    assert it.throw(ValueError()) == "caught" and on()
    with pytest.raises(StopIteration) as end:
        next(it)
    assert end.value.value == "end" and seen == ["sent", False, False] and on()
    del seen[:]
    it = steps()
    next(it)
    it.close()
    assert seen == [False] and on()
    with pytest.raises(ZeroDivisionError):
        list(mode(lambda: 1 / 0)())
    assert on()


def test_a_generator_may_have_histories_inside_of_no_grad():
    @cotan.enable_grad()
    def steps():
        yield on()
        yield on()

    with cotan.no_grad():
        assert list(steps()) == [True, True] and not on()


def test_coroutines_run_inside_of_their_mode():
    seen = []

    @cotan.no_grad()
    async def waits():
        seen.append(on())
        await asyncio.sleep(0)
        seen.append(on())
        return "done"

    @cotan.no_grad()
    async def pieces():
        try:
            for i in range(3):
                await asyncio.sleep(0)
                yield on()
        finally:
            await asyncio.sleep(0)
            seen.append(on())

    async def looks():
        for _ in range(4):
            seen.append("outside" if on() else "leaked")
            await asyncio.sleep(0)

    async def both():
        result, _ = await asyncio.gather(waits(), looks())
        found = [(one, on()) async for one in pieces()]
        it = pieces()
        await it.__anext__()
        await it.aclose()
        return result, found

    assert inspect.iscoroutinefunction(waits)
    assert asyncio.run(both()) == ("done", [(False, True)] * 3)
    assert seen.count("leaked") == 0 and [one for one in seen if one != "outside"] == [False] * 4


def test_a_class_is_made_inside_of_its_mode():
    with pytest.warns(FutureWarning) as warned:
        @cotan.no_grad()
        class Looks:
            def __init__(self):
                self.made = on()

            def later(self):
                return on()
    assert str(warned[0].message) == (
        "a class is decorated with a context manager: a function that makes its instances inside of it takes its place\n"
        "  hint: decorate its methods, __init__ for the same effect")
    assert (Looks().made, Looks().later()) == (False, True)


# ---------------------------------------------------------------------- retain_grad, then a write

def without_history(b):
    with cotan.no_grad():
        b.mul_(2)
    return (b * b).sum()


@pytest.mark.parametrize("write, retained, before", [
    (lambda b: b.mul_(2).sum(), [1, 1], [2, 2]),
    (lambda b: b.mul_(2).mul_(3).sum(), [1, 1], [6, 6]),
    (lambda b: b.add_(b).sum(), [1, 1], [2, 2]),
    (lambda b: (b.__setitem__(0, 5.0), (b * b).sum())[1], [10, 2], [0, 2]),
    (lambda b: (b[:1].mul_(3), (b * b).sum())[1], [6, 2], [18, 2]),
    (lambda b: (z := b[:1], z.mul_(3), (z * z).sum())[2], [6, 0], [18, 0]),
    (lambda b: ((b * 2).sum(), b.mul_(3))[0] + b.sum(), [1, 1], [5, 5]),
    (without_history, [4, 4], [4, 4]),
])
def test_a_retained_gradient_is_that_of_what_the_tensor_is_now(write, retained, before):
    a, seen = leaf([1, 1]), []
    b = a.clone()
    b.retain_grad()
    b.register_hook(lambda grad: seen.append(grad.tolist()))  # stays with the value from before, as in PyTorch
    write(b).backward()
    assert (b.grad.tolist(), a.grad.tolist(), seen) == (retained, before, [before])


def test_a_view_that_retains_its_gradient():
    a = leaf([1, 1])
    b = a.clone()
    v = b[:1]
    v.retain_grad()
    b.mul_(2)
    (v * v).sum().backward()
    assert (v.grad.tolist(), a.grad.tolist()) == ([4], [8, 0])
