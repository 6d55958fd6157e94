"""An interactive session: what an error or Ctrl-C leaves, and what out-of-range indices do on every device."""
import os
import pty
import re
import select
import subprocess
import sys
import time

import numpy as np
import pytest

import cotan
from cotan import linalg, nn, optim

MISTAKES = """
import cotan
from cotan import linalg, nn
model = nn.Linear(2, 2)
pending = cotan.ones(3) * 2
lost = linalg.inv(cotan.zeros(2, 2))
cotan.ones(3) + cotan.ones(4)
lost
print("model", model(cotan.ones(1, 2)).shape)
print("pending", pending.tolist())
lost.sum()
cotan.vmap(lambda x: x.item())(cotan.ones(3))
cotan.vmap(lambda x: 1 // 0)(cotan.ones(3))
with cotan.no_grad(): _ = model.bias.fill_(7)

lost
print("bias", model.bias.tolist())
pending.nothing
model(cotan.ones(1, 3))
model(cotan.ones(1, 2)).sum().backward()
print("grad", model.bias.grad.tolist())
"""


def test_mistakes_leave_a_session_as_it_was():
    done = subprocess.run([sys.executable, "-i", "-q"], input=MISTAKES, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["model torch.Size([1, 2])".replace("torch", "cotan"), "pending [2.0, 2.0, 2.0]",
                                        "bias [7.0, 7.0]", "grad [1.0, 1.0]"], done.stderr
    errors = re.findall(r"^(?:cotan\.)?(\w+Error)\b", done.stderr, re.M)
    assert errors == ["ShapeError", "LinAlgError", "LinAlgError", "TraceError", "ZeroDivisionError", "LinAlgError",
                      "AttributeError", "ShapeError"], done.stderr


class Terminal:
    """python -i at a terminal of its own."""

    def __init__(self):
        self.end, child = pty.openpty()
        begin = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.executable, [sys.executable, '-iq'])"
        self.process = subprocess.Popen([sys.executable, "-c", begin], stdin=child, stdout=child, stderr=child,
                                        start_new_session=True,
                                        env={**os.environ, "PYTHON_BASIC_REPL": "1", "TERM": "dumb"})
        os.close(child)

    def send(self, text):
        os.write(self.end, text.encode())

    def wait_for(self, text, seconds=60):
        """What comes up to the text, which is not what was typed: that echoes."""
        seen, end = "", time.monotonic() + seconds
        while text not in seen:
            assert select.select([self.end], [], [], max(0, end - time.monotonic()))[0], f"no {text!r} in {seen!r}"
            seen += os.read(self.end, 4096).decode(errors="replace")
        return seen

    def close(self):
        os.close(self.end)
        self.process.kill()
        self.process.wait()


def test_ctrl_c_at_a_terminal_stops_a_long_plan():
    terminal = Terminal()
    try:
        terminal.send("import cotan; from cotan import nn; model = nn.Linear(2, 1); w = nn.Parameter(cotan.zeros(2))\n")
        terminal.send("x = y = cotan.ones(1200, 1200) / 1200\n")
        terminal.send("for i in range(3000): y = y @ x\n\n")
        terminal.send("print('be' + 'gin'); y.tolist()\n")
        terminal.wait_for("begin")
        time.sleep(1)  # it computes by now, for half a minute
        begin = time.monotonic()
        terminal.send("\x03")
        terminal.wait_for("KeyboardInterrupt")
        assert time.monotonic() - begin < 5
        terminal.send("print('ag' + 'ain'); y.tolist()\n")  # what was given up is long yet
        terminal.wait_for("again\r\n")
        time.sleep(0.5)
        terminal.send("\x03")
        terminal.wait_for("KeyboardInterrupt", 10)
        terminal.send("print('su' + 'm', round((x * 2).sum().item()), model(cotan.ones(1, 2)).shape, w.tolist())\n")
        assert "sum 2400 " in (said := terminal.wait_for("[0.0, 0.0]", 20)), said
    finally:
        terminal.close()


# ------------------------------------------------------------------------------------------ indices

OUTSIDE = """
import sys
import cotan
cotan.set_device(sys.argv[1])
x, i = cotan.asarray([[1.0, 2, 3], [4, 5, 6]]), cotan.asarray([[1, 7, -1, -9]])
print("read", x[:, i[0]].tolist(), x[i[0, 1]].tolist())
print("take", cotan.take(x, i[0], axis=1).tolist())
print("gather", cotan.gather(x, 1, i).tolist(), cotan.take_along_axis(x, i, axis=1).tolist())
print("embedding", cotan.nn.functional.embedding(cotan.asarray([0, 2]), x).tolist())
y = cotan.zeros(3)
y[i[0]] = 5.0
print("write", y.tolist())
print("scatter", cotan.scatter(cotan.zeros(1, 3), 1, i[:, :2], cotan.ones(1, 2)).tolist())
print("add", cotan.index_add(cotan.zeros(3), 0, i[0, :2], cotan.ones(2)).tolist())
print("loss", cotan.nn.functional.cross_entropy(x, cotan.asarray([1, 9]), reduction="none").isnan().tolist())
"""


def test_indices_outside_are_the_same_on_every_device():
    said = [subprocess.run([sys.executable, "-c", OUTSIDE, device], capture_output=True, text=True) for device in ("cpu", "ref")]
    assert said[0].stdout == said[1].stdout and not said[0].returncode, said[0].stderr
    found = dict(line.split(" ", 1) for line in said[0].stdout.splitlines())
    assert found["read"] == "[[2.0, 3.0, 3.0, 1.0], [5.0, 6.0, 6.0, 4.0]] [4.0, 5.0, 6.0]"  # the nearest element
    assert found["write"] == "[0.0, 5.0, 5.0]"  # nothing outside is written
    assert found["embedding"] == "[[1.0, 2.0, 3.0], [nan, nan, nan]]"


@pytest.mark.parametrize("index", [3, -4, (0, 5), [[0, 5]], np.array([7]), (slice(None), np.array([0, -6])), (np.array([True, False]),),
                                   (0, 0, 0), 1.5, "a", (Ellipsis, Ellipsis), [True, False, True, False]])
def test_static_indices_have_numpys_errors(index):
    x = np.ones((3, 5), "float32")
    with pytest.raises(IndexError) as theirs:
        x[index]
    with pytest.raises(IndexError) as ours:
        cotan.asarray(x)[index]
    assert str(ours.value) == str(theirs.value)
    with pytest.raises(IndexError) as ours:
        cotan.asarray(x)[index] = 1
    assert str(ours.value) == str(theirs.value)


# ------------------------------------------------------------------------------------------- arrays

def test_arrays_of_every_make():
    plain = np.arange(12, dtype="float32").reshape(3, 4)
    locked = plain.copy()
    locked.flags.writeable = False
    odd = np.frombuffer(b"x" + plain.tobytes(), "u1")[1:].view("f4").reshape(3, 4)
    for array in (locked, odd, plain.astype(">f4"), plain[::-1, ::2], plain.T):
        for make in (cotan.asarray, cotan.tensor, cotan.from_numpy, cotan.Tensor):
            assert make(array).tolist() == array.tolist()
        assert (cotan.ones(1) * array).tolist() == array.tolist()
    assert cotan.asarray(locked, copy=False).tolist() == locked.tolist()


def fails(call, error, text):
    with pytest.raises(error) as told:
        call()
    assert str(told.value) == text


@pytest.mark.parametrize("make", [cotan.asarray, cotan.tensor, cotan.from_numpy, cotan.Tensor, lambda x: cotan.ones(2) * x])
def test_arrays_that_cannot_be_tensors(make):
    fails(lambda: make(np.array([None, 1])), TypeError, "arrays of dtype object cannot be made tensors")
    fails(lambda: make(np.array(["a", "b"])), TypeError, "arrays of dtype <U1 cannot be made tensors")
    fails(lambda: make(np.array([0, 1], "datetime64[s]")), TypeError, "arrays of dtype datetime64[s] cannot be made tensors")


def test_arrays_that_cannot_be_shared():
    odd = np.frombuffer(b"x" + bytes(12), "u1")[1:].view("f4")
    fails(lambda: cotan.asarray(odd, copy=False), ValueError,
          "copy=False: the array's memory is not aligned for its elements\n  hint: copy=None copies where that is needed")
    fails(lambda: cotan.asarray([1.0], copy=False), ValueError, "copy=False: [1.0] has no memory that a tensor could share")


# ---------------------------------------------------------------------------------------- gradients

def test_wrong_uses_of_gradients():
    w = nn.Parameter(cotan.ones(3))
    fails(lambda: (w * 2).backward(), RuntimeError, "backward: the loss must be one number, it is cotan.Size([3])\n"
          "  hint: mean() or sum() makes it one; or give backward(gradient) of its shape")
    fails(lambda: w.add_(1), RuntimeError, "a leaf that requires gradients is written in its place, which its gradient would not "
          "know\n  hint: with cotan.no_grad(): around it, or detach() before")
    loss = (w * w).sum()
    loss.backward()
    with pytest.raises(cotan.GradError) as told:
        loss.backward()
    assert re.fullmatch(r"\S+:\d+: backward: the history of the value of \S+:\d+ was used by an earlier backward, the latest "
                        r"one at \S+:\d+\n"
                        r"  hint: backward\(retain_graph=True\) keeps it; detach\(\) makes the value a constant, where "
                        r"gradients shall end at it", str(told.value))
    x = cotan.asarray([1.0, 2.0]).requires_grad_()
    square = x * x  # its gradient needs x
    square.tolist()
    with cotan.no_grad():
        x += 1
    cotan.eval()
    square.sum().backward()
    with pytest.raises(cotan.OverwrittenError) as told:
        x.grad.tolist()
    assert re.fullmatch(r'\S+:\d+: grad: the value needs variable "tensor" as it was read at \S+:\d+, but it was assigned at \S+:\d+ '
                        r"and is gone\n  hint: .*", str(told.value)), str(told.value)
    assert "ct_" not in str(told.value)


def test_a_step_that_fails_changes_no_parameter():
    w = nn.Parameter(cotan.zeros(2, 2))
    sgd = optim.SGD([w], 0.1)
    for _ in range(2):
        linalg.inv(w).sum().backward()
        with pytest.raises(cotan.LinAlgError):
            sgd.step()
        assert w.tolist() == [[0, 0], [0, 0]]
        sgd.zero_grad()
    (w + 1).sum().backward()
    sgd.step()
    assert w.flatten().tolist() == pytest.approx([-0.1] * 4)


def test_state_dicts_that_do_not_fit_tell_all():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    state = model.state_dict()
    del state["0.bias"], state["1.bias"]
    state["more"], state["0.weight"], state["1.weight"] = cotan.ones(1), cotan.ones(3, 3), cotan.ones(2)
    fails(lambda: model.load_state_dict(state), RuntimeError,
          'Error(s) in loading state_dict for Sequential:\n\tMissing key(s) in state_dict: "0.bias", "1.bias". \n\t'
          'Unexpected key(s) in state_dict: "more". \n\tsize mismatch for 0.weight: copying a param with shape '
          "cotan.Size([3, 3]) from checkpoint, the shape in current model is cotan.Size([3, 2]).\n\tsize mismatch for 1.weight: "
          "copying a param with shape cotan.Size([2]) from checkpoint, the shape in current model is cotan.Size([1, 3]).")


@pytest.mark.parametrize("inside", [lambda x: x.item(), lambda x: float(x), lambda x: x if x > 0 else -x, lambda x: x.tolist(),
                                    lambda x: x.numpy(), lambda x: repr(x), lambda x: int(x), lambda x: np.asarray(x)])
@pytest.mark.parametrize("trace", [lambda f: cotan.vmap(f)(cotan.ones(3)),
                                   lambda f: cotan.scan(lambda c, x: (c, f(x)), cotan.ones(()), cotan.ones(3)),
                                   lambda f: cotan.cond(True, f, f, cotan.ones(()))])
def test_values_are_not_read_inside_of_traced_functions(trace, inside):
    with pytest.raises(cotan.TraceError) as told:
        trace(inside)
    assert re.fullmatch(rf"{__file__}:\d+: a value is read inside a traced function\n  hint: return it as a result of the function, "
                        "and read it outside", str(told.value))
    assert cotan.ones(2).sum().item() == 2


def test_exceptions_inside_of_traced_functions_keep_their_traceback():
    def inner(x):
        raise KeyError("mine")

    for trace in (lambda: cotan.vmap(inner)(cotan.ones(3)), lambda: cotan.grad(inner)(cotan.ones(())),
                  lambda: cotan.scan(lambda c, x: inner(x), cotan.ones(()), cotan.ones(3)),
                  lambda: cotan.while_loop(inner, inner, cotan.ones(())), lambda: cotan.cond(True, inner, inner, cotan.ones(()))):
        with pytest.raises(KeyError, match="mine") as told:
            trace()
        assert told.traceback[-1].name == "inner" and cotan.ones(2).sum().item() == 2


def test_without_numpy():
    """A new environment has no NumPy, which only printing and what is made of arrays needs."""
    program = """
import sys
sys.modules["numpy"] = None
import cotan
from cotan import nn, optim
model = nn.Linear(3, 1)
adam = optim.Adam(model.parameters())
model(cotan.ones(2, 3)).sum().backward()
adam.step()
print(model.weight.grad, cotan.arange(3), cotan.tensor(1.5), cotan.zeros(2, 0), cotan.ones(2, 999))
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (found.stdout, found.stderr) == (
        "tensor([[2.0, 2.0, 2.0]]) tensor([0, 1, 2]) tensor(1.5) tensor([[], []], shape=(2, 0), dtype=cotan.float32) "
        "tensor(..., shape=(2, 999))\n", "")


def test_bfloat16_is_printed():
    assert repr(cotan.tensor([1.0, 0.1]).bfloat16()) == "tensor([1.        , 0.10009766], dtype=cotan.bfloat16)"


def test_randint_without_size():
    with pytest.raises(TypeError, match=r"randint: it needs the size, too: randint\(5, \(2, 3\)\)"):
        cotan.randint(5)
