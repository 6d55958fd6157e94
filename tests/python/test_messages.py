"""What wrong programs are told: the op, the shapes, what mends it, and the line of the user's own function."""
import logging
import os
import re
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest

import cotan
from cotan import linalg, nn

F = nn.functional
NAMES = {"ones": cotan.ones, "tensor": cotan.asarray, "cotan": cotan, "nn": nn, "F": F, "linalg": linalg, "np": np}

BROADCAST = "\n  hint: counted from the last axis, sizes must be equal or 1: here they are {} and {}"
INNER = "\n  hint: (..., M, K) times (..., K, N) gives (..., M, N)"
WRONG = [
    ("ones(2, 3) @ ones(2, 3)", cotan.ShapeError,
     "user.py:1: matmul: inner sizes differ: a is (2, 3) float32, b is (2, 3) float32 (axis 1 of a, axis 0 of b)\n"
     "  hint: permute b: its last axis has the size"),
    ("ones(2, 3) @ ones(4)", ValueError, "matmul: inner sizes differ: a is (2, 3) float32, b is (4,) float32"),
    ("ones(3) + ones(4)", cotan.ShapeError,
     "user.py:1: add: shapes do not broadcast: (3,) float32 and (4,) float32" + BROADCAST.format(3, 4)),
    ("ones(2, 3) * ones(3, 2)", cotan.ShapeError,
     "user.py:1: mul: shapes do not broadcast: (2, 3) float32 and (3, 2) float32\n"
     "  hint: one is the transpose of the other's shape: cotan.permute(x, (1, 0))"),
    ("ones(3) < ones(2, 2)", cotan.ShapeError,
     "user.py:1: less: shapes do not broadcast: (3,) float32 and (2, 2) float32" + BROADCAST.format(3, 2)),
    ("cotan.where(ones(3) > 0, ones(3), ones(4))", cotan.ShapeError,
     "user.py:1: where: shapes do not broadcast: (3,) bool, (3,) float32 and (4,) float32" + BROADCAST.format(3, 4)),
    ("cotan.maximum(ones(3), ones(2, 1, 4))", cotan.ShapeError,
     "user.py:1: maximum: shapes do not broadcast: (3,) float32 and (2, 1, 4) float32" + BROADCAST.format(3, 4)),
    ("ones(2, 3).reshape(4, 2)", cotan.ShapeError,
     "user.py:1: reshape: (2, 3) float32 has 6 elements, the new shape (4, 2) float32 has 8\n"
     "  hint: one size may be -1: it is computed from the others"),
    ("ones(2, 3).reshape(-1, -1)", cotan.ArgumentError, "user.py:1: reshape: axis 1 has size -1\n"
     "  hint: one size may be -1: it is computed from the others"),
    ("ones(2, 3).expand(3, 3)", cotan.ShapeError,
     "user.py:1: expand: (2, 3) float32 does not expand to (3, 3) float32\n"
     "  hint: axes of static size 1 expand, and new axes are in front"),
    ("cotan.concat([ones(2, 3), ones(2, 4)])", cotan.ShapeError,
     "user.py:1: concat: operand 2 is (2, 4) float32, operand 1 is (2, 3) float32 (axis 0)\n"
     "  hint: only axis 0 may differ"),
    ("cotan.stack([ones(2), ones(3)])", ValueError,
     "stack: the tensors must have one shape, there are (2,) and (3,)"),
    ("ones(2, 3).sum(2)", cotan.ArgumentError, "user.py:1: sum: axis 2 is out of range for (2, 3) float32\n"
     "  hint: its axes are 0 to 1, or -2 to -1 from the last one"),
    ("ones(2, 3).transpose(0, 2)", IndexError, "transpose: axis 2 is out of range for a tensor of 2 axes"),
    ("ones(2, 3).permute(0, 0)", ValueError, "permute_dims: axes (0, 0) name one twice"),
    ("cotan.squeeze(ones(2, 3), axis=0)", ValueError, "squeeze: axis 0 has 2 elements, it must have 1"),
    ('cotan.einsum("ij,jk->ik", ones(2, 3), ones(2, 3))', cotan.ShapeError,
     'user.py:1: einsum: \'j\' is 3 in operand 1, (2, 3) float32, and 2 in operand 2, (2, 3) float32, of "ij,jk->ik"'),
    ("cotan.tensordot(ones(2, 3), ones(4, 5), axes=1)", ValueError,
     "tensordot: axis 1 of (2, 3) and axis 0 of (4, 5) differ: they have 3 and 4 elements"),
    ("cotan.dot(ones(3), ones(4))", ValueError, "dot: inner sizes differ: a is (3,), b is (4,)"),
    ("cotan.interp(ones(2), ones(3), ones(4))", ValueError,
     "interp: xp and fp must be vectors of one length, at least 1, they are (3,) and (4,)"),
    ("nn.Linear(3, 4)(ones(2, 5))", cotan.ShapeError,
     "user.py:1: matmul: inner sizes differ: a is (2, 5) float32, b is (3, 4) float32 (axis 1 of a, axis 0 of b)" + INNER),
    ("nn.Conv2d(3, 4, 3)(ones(1, 2, 8, 8))", RuntimeError,
     "Given groups=1, weight of size [4, 3, 3, 3], expected input[1, 2, 8, 8] to have 3 channels, but got 2 "
     "channels instead"),
    ("nn.Conv2d(3, 4, 9)(ones(1, 3, 4, 4))", cotan.ShapeError,
     "user.py:1: conv: no window fits axis 2 of (1, 3, 4, 4) float32: it spans 9 (size 9, dilation 1), with "
     "padding there are 4"),
    ("nn.Embedding(3, 4)(ones(2))", cotan.DTypeError,
     "user.py:1: gather: the indices are (2,) float32, they must be integers\n"
     "  hint: cast them: cotan.astype(x, cotan.int32)"),
    ("nn.LSTM(3, 4)(ones(2, 2, 5))", RuntimeError, "input.size(-1) must be equal to input_size. Expected 3, got 5"),
    ("nn.LayerNorm(4)(ones(2, 3))", RuntimeError,
     "Given normalized_shape=[4], expected input with shape [*, 4], but got input of size[2, 3]"),
    ("nn.BatchNorm1d(3)(ones(2, 4))", cotan.ShapeError,
     "user.py:1: batch_norm_train: operand 2 is (3,) float32, it must be (4,) for x (2, 4) float32\n"
     "  hint: one number a channel, which axis 1 counts"),
    ("F.cross_entropy(ones(2, 3), tensor([0, 1, 2]))", ValueError,
     "cross_entropy: the target has shape (3,), with this input it must be (2,)"),
    ("F.cross_entropy(ones(2, 3), ones(2))", cotan.DTypeError,
     "user.py:1: cross_entropy: the targets are (2,) float32, they must be integers\n"
     "  hint: cast them: cotan.astype(x, cotan.int32)"),
    ("F.mse_loss(ones(2), ones(3))", cotan.ShapeError,
     "user.py:1: sub: shapes do not broadcast: (2,) float32 and (3,) float32" + BROADCAST.format(2, 3)),
    ("F.binary_cross_entropy(ones(2), ones(3))", ValueError,
     "binary_cross_entropy: the target has shape (3,), the input (2,); they must be the same"),
    ("F.softmax(ones(2, 3), 5)", cotan.ArgumentError,
     "user.py:1: softmax: axis 5 is out of range for (2, 3) float32\n"
     "  hint: its axes are 0 to 1, or -2 to -1 from the last one"),
    ("ones(2) & ones(2)", cotan.DTypeError,
     "user.py:1: bitwise_and: operand 1 is (2,) float32, accepted are bool and integers\n"
     "  hint: cast it: cotan.astype(x, cotan.bool)"),
    ("ones(2) << 1", cotan.DTypeError,
     "user.py:1: bitwise_left_shift: operand 1 is (2,) float32, accepted are integers\n"
     "  hint: cast it: cotan.astype(x, cotan.int32)"),
    ("cotan.floor(tensor([1j]))", cotan.DTypeError,
     "user.py:1: floor: operand 1 is (1,) complex64, accepted are floats\n"
     "  hint: cotan.real, cotan.imag and cotan.abs make floats of complex numbers"),
    ("cotan.scan(lambda c, x: (c[:1], x), ones(2), ones(3))", cotan.ShapeError,
     "user.py:1: scan: carried tensor 1 is (2,) float32, the body makes it (1,) float32\n"
     "  hint: it keeps its shape; what each iteration adds is returned as ys"),
    ("ones(4).split(0)", RuntimeError, "split: pieces of 0 elements are asked for"),
    ("ones(4).chunk(0)", RuntimeError, "chunk: 0 pieces are asked for, there must be 1 or more"),
    ("cotan.max(ones(0))", ValueError, "max: axis 0 of (0,) has no elements, so none is the largest"),
    ("cotan.zeros((2, -3))", cotan.ShapeError, "user.py:1: full: axis 1 has size -3"),
    ('cotan.asarray([1, 2], device="cuda")', cotan.DeviceError, 'user.py:1: to: device: there is no device "cuda": known are cpu, ref, opencl (or opencl:1), and async: or dry: before them'
     '\n  hint: programs for GPUs run on "cpu", or by OpenCL on "opencl"'),
    ('ones(3).to("cuda")', cotan.DeviceError, 'user.py:1: to: device: there is no device "cuda": known are cpu, ref, opencl (or opencl:1), and async: or dry: before them'
     '\n  hint: programs for GPUs run on "cpu", or by OpenCL on "opencl"'),
    ("ones(3).backward()", RuntimeError, "backward: the loss must be one number, it is cotan.Size([3])\n"
     "  hint: mean() or sum() makes it one; or give backward(gradient) of its shape"),
    ("cotan.topk(ones(3), 5)", RuntimeError, "topk: 5 elements are asked for, axis 0 has 3"),
    ("linalg.inv(ones(2, 3))", cotan.ShapeError, "user.py:1: inv: operand 1 is (2, 3) float32, and no square matrix"),
    ("linalg.inv(ones(2, 2)).tolist()", cotan.LinAlgError,
     "user.py:1: solve: the matrix is singular: pivot 2 of 2 is 0"),
    ("linalg.cholesky(-cotan.eye(2)).tolist()", cotan.LinAlgError,
     "user.py:1: cholesky: the matrix is not positive definite: its first 1 rows and columns are not"),
    ("linalg.solve(ones(2, 2), ones(3, 1))", cotan.ShapeError,
     "user.py:1: solve: sizes differ: a is (2, 2) float32, b is (3, 1) float32\n"
     "  hint: they are (..., N, N) and (..., N, K)"),
    ("linalg.eigh(ones(3))", cotan.ShapeError, "user.py:1: eigh: operand 1 is (3,) float32, and no matrix\n"
     "  hint: matrices are the last two axes, (..., M, N)"),
    ("linalg.det(ones(2, 3))", cotan.ShapeError, "user.py:1: det: operand 1 is (2, 3) float32, and no square matrix"),
    ("linalg.inv(zeros_like(ones(3, 0)))", NameError, "name 'zeros_like' is not defined"),
    ("cotan.argmax(ones(0))", cotan.ShapeError, "user.py:1: argmax: axis 0 of (0,) float32 has no elements"),
    ("cotan.cross(ones(2), ones(2))", cotan.ShapeError,
     "user.py:1: cross: last axes have 3 elements: a is (2,) float32, b is (2,) float32"),
    ("cotan.trace(ones(3))", ValueError, "trace: a matrix is expected, got a tensor (3,)"),
    ("cotan.diag(ones(2, 2, 2))", ValueError, "diag: a vector or a matrix is expected, got a tensor (2, 2, 2)"),
]


@pytest.mark.parametrize("program, error, text", WRONG, ids=[program for program, _, _ in WRONG])
def test_wrong_programs(program, error, text):
    with pytest.raises(error) as told, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eval(compile(program, "user.py", "eval"), NAMES)
    assert str(told.value) == text and type(told.value) is error
    assert (cotan.ones(2) + 1).tolist() == [2, 2]  # the session goes on


def test_no_message_speaks_of_c():
    assert not [text for _, _, text in WRONG if re.search(r"\bct_|\bCT_|\bf32\b", text)]


# ------------------------------------------------------------------------------- lines inside of functions

INSIDE = """
import cotan
from cotan import linalg, nn, optim
from cotan.nn import functional as F

def layer(x):
    h = x * 2
    return h @ WRONG_HERE

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(3, 4)

    def forward(self, x):
        x = self.one(x)
        return layer(x)

def ragged(c, x):
    return c + cotan.ones(7), x

def singular(x):
    y = x * 0
    return linalg.inv(y)

def elsewhere(x):
    return cotan.concat([x, cotan.ones(2, 5)])
"""
LINES = {name: 1 + INSIDE[:INSIDE.index(text)].count("\n") for name, text in {
    "layer": "return h @", "ragged": "return c +", "singular": "return linalg", "elsewhere": "return cotan.concat"}.items()}


@pytest.mark.parametrize("call, where, text", [
    ("layer(cotan.ones(2, 3))", "layer", "matmul: inner sizes differ: a is (2, 3) float32, b is (5, 2) float32"),
    ("cotan.grad(lambda x: layer(x).sum())(cotan.ones(2, 3))", "layer", "matmul: inner sizes differ: a is (2, 3) float32"),
    ("cotan.vmap(layer)(cotan.ones(6, 2, 3))", "layer", "matmul: inner sizes differ: a is (2, 3) float32"),
    ("cotan.vmap(cotan.grad(lambda x: layer(x).sum()))(cotan.ones(6, 2, 3))", "layer", "matmul: inner sizes differ: a is (2, 3)"),
    ("cotan.scan(lambda c, x: (c, layer(x)), cotan.ones(()), cotan.ones(6, 2, 3))", "layer", "matmul: inner sizes differ"),
    ("Net()(cotan.ones(2, 3))", "layer", "matmul: inner sizes differ: a is (2, 4) float32"),
    ("nn.Sequential(nn.Identity(), Net())(cotan.ones(2, 3))", "layer", "matmul: inner sizes differ: a is (2, 4) float32"),
    ("cotan.scan(ragged, cotan.ones(3), cotan.ones(4))", "ragged", "add: shapes do not broadcast: (3,) float32 and (7,) float32"),
    ("cotan.cond(True, elsewhere, elsewhere, cotan.ones(2, 3))", "elsewhere", "concat: operand 2 is (2, 5) float32, operand 1 is"),
    ("cotan.jacrev(elsewhere)(cotan.ones(3, 3))", "elsewhere", "concat: operand 2 is (2, 5) float32, operand 1 is (3, 3)"),
    ("singular(cotan.ones(2, 2)).tolist()", "singular", "solve: the matrix is singular: pivot 1 of 2 is 0"),
    ("(singular(cotan.ones(2, 2)).sum() * 3).item()", "singular", "solve: the matrix is singular: pivot 1 of 2 is 0"),
    ("cotan.vmap(singular)(cotan.ones(5, 2, 2)).tolist()", "singular", "solve: matrix (0,) of the batch is singular: pivot 1 of 2 is 0"),
])
def test_errors_inside_of_functions_have_the_users_line(call, where, text):
    names = {}
    exec(compile(INSIDE.replace("WRONG_HERE", "cotan.ones(5, 2)"), "user.py", "exec"), names)
    with pytest.raises(cotan.Error) as told:
        eval(compile(call, "call.py", "eval"), names)
    assert str(told.value).startswith(f"user.py:{LINES[where]}: {text}")


NANS = """
import cotan
from cotan import nn, optim

def root(x):
    y = x - 2
    return cotan.sqrt(y).sum()                   # line 7

def inside(x):
    return cotan.log(x * 0 - 1)                  # line 10

def divided(x):
    return (x * 0) / (x * 0)                     # line 13

w = nn.Parameter(cotan.ones(3))
for call in (lambda: root(cotan.ones(3)).item(),
             lambda: cotan.grad(root)(cotan.ones(3)).tolist(),
             lambda: cotan.vmap(inside)(cotan.ones(3)).tolist(),
             lambda: cotan.scan(lambda c, x: (c + inside(x), x), cotan.zeros(()), cotan.ones(3))[0].item(),
             lambda: (divided(cotan.ones(3)) + 1).sum().item(),
             lambda: (root(w).backward(), optim.SGD([w], 0.1).step())):
    try:
        print("no error:", call())
    except cotan.CheckError as error:
        print(error)
"""


def test_a_nan_has_the_users_line(tmp_path):
    program = tmp_path / "user.py"
    program.write_text(NANS)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, env={**os.environ, "COTAN_CHECK": "nan"})
    lines = [line.removeprefix(f"{tmp_path}/") for line in done.stdout.splitlines()]
    assert [line.split(": made")[0] for line in lines] == [
        "user.py:7: sqrt", "user.py:7: sqrt", "user.py:10: log", "user.py:10: log", "user.py:13: div", "user.py:7: sqrt"], done
    assert lines[0] == "user.py:7: sqrt: made 3 NaN of 3 (first at (0,)): input (3,) float32 in [-1, -1]"


# ----------------------------------------------------------------------------------------- warnings

def test_shapes_of_a_loss_that_broadcast_are_told():
    for loss in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss):
        with pytest.warns(UserWarning) as told:
            assert loss(cotan.ones(4, 1), cotan.zeros(4), reduction="none").shape == (4, 4)
        assert [(str(one.message), one.filename) for one in told] == [
            (f"{loss.__name__}: the input has shape (4, 1), the target (4,), which broadcast to another loss\n"
             "  hint: target.reshape(input.shape)", __file__)]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            loss(cotan.ones(4, 1), cotan.zeros(4, 1))


def test_what_the_log_says_has_pythons_names(caplog):
    with caplog.at_level(logging.WARNING, "cotan"):
        for n in range(2, 30):
            cotan.ops.glu(cotan.ones(2 * n), axis=0).tolist()  # a size that must be static: a plan each
    said = [record.getMessage() for record in caplog.records if "this line has made" in record.getMessage()]
    assert said and not re.search(r"\bct_|\bCT_|f32", " ".join(said))
