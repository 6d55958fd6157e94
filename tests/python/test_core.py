"""The extension: numbers in and out, operators, lines, errors."""
import gc
import pickle
import signal
import subprocess
import sys

import ml_dtypes
import numpy
import pytest

import cotan
from cotan import ops

NUMPY_DTYPES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32",
                "float64", "complex64", "complex128"]


def drawn(dtype, shape, seed=1):
    return (numpy.random.default_rng(seed).standard_normal(shape) * 50).astype(dtype)


@pytest.mark.parametrize("dtype", NUMPY_DTYPES + ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"])
def test_arrays_come_back_as_they_went(dtype):
    numpy_dtype = numpy.dtype(getattr(ml_dtypes, dtype, dtype))
    x = (numpy.arange(12).reshape(3, 4) % 7).astype(numpy_dtype)
    if dtype in ("int4", "uint4"):
        t = cotan.asarray((numpy.arange(12).reshape(3, 4) % 7), dtype=getattr(cotan, dtype))
    else:
        t = cotan.asarray(x)
    assert t.dtype == getattr(cotan, dtype) and t.shape == (3, 4)
    back = t.numpy()
    assert back.dtype == numpy_dtype and (back == x).all()
    assert back.flags.writeable == ("int4" in dtype)  # which has no memory to share
    assert t.tolist() == (x if dtype in NUMPY_DTYPES else x.astype("float64")).tolist()


def test_foreign_orders_strides_and_alignments_are_copied():
    x = drawn("float32", (6, 8))
    odd = numpy.frombuffer(b"x" + x.tobytes(), "u1")[1:].view("f4").reshape(6, 8)
    for array in (x.astype(">f4"), x[::-2, ::3], x.T, odd, numpy.asfortranarray(x), (x + 1j * x).astype(">c8")):
        assert (cotan.asarray(array).numpy() == array).all()
    assert cotan.asarray(memoryview(b"abc")).tolist() == [97, 98, 99]
    x[:] = 0  # what came from it stays


def test_lists_take_the_default_dtypes():
    for data, dtype in (([1, 2], cotan.int64), ([1, 2.5], cotan.float32), ([True, False], cotan.bool),
                        ([True, 2], cotan.int64), ([1j, 2], cotan.complex64), ([], cotan.float32), (3, cotan.int64),
                        ([2**63], cotan.uint64), ([[[]]], cotan.float32)):
        t = cotan.asarray(data)
        assert t.dtype == dtype and t.tolist() == data and t.shape == numpy.shape(data)
    assert cotan.asarray([1, 2], dtype=cotan.float16).dtype == cotan.float16


@pytest.mark.parametrize("data, text", [
    ([[1, 2], [3]], "the lists are ragged: element [1] has 1 elements, others there have 2"),
    ([[1, 2], 3], "the lists are ragged: element [1] is a number, others there have 2 elements"),
    ([1, [3]], "the lists are ragged: element [1] has 1 elements, others there are numbers"),
    ([[[1], [2]], [[3], [4, 5]]], "the lists are ragged: element [1][1] has 2 elements, others there have 1"),
])
def test_ragged_lists_tell_where(data, text):
    with pytest.raises(ValueError) as error:
        cotan.asarray(data)
    assert str(error.value) == text


def test_an_error_has_its_line_its_type_and_leaves_the_session_usable():
    x = cotan.asarray([[1.0, 2.0]])
    y = x + 1
    with pytest.raises(cotan.ShapeError) as error:
        ops.matmul(x, x)
    line = error.traceback[0].lineno + 1
    assert error.value.text == str(error.value)
    assert str(error.value).startswith(f"{__file__}:{line}: matmul: inner sizes differ: ")
    assert isinstance(error.value, (ValueError, cotan.Error)) and error.value.code == 2
    assert y.tolist() == [[2.0, 3.0]]
    with pytest.raises(TypeError, match=r"^sum\(\) has no argument 'axis'$"):
        ops.sum(x, axis=0)
    with pytest.raises(TypeError, match=r"^sum\(\) needs argument 'x'$"):
        ops.sum(axes=0)


OPERATORS = [lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a // b, lambda a, b: a % b,
             lambda a, b: a < b, lambda a, b: a <= b, lambda a, b: a == b, lambda a, b: a != b, lambda a, b: a > b,
             lambda a, b: a >= b, lambda a, b: divmod(a, b)[0], lambda a, b: divmod(a, b)[1]]


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "float32", "float64"])
def test_operators_are_numpys(dtype):
    a, b = drawn(dtype, (5, 40)), drawn(dtype, (40,), 2)
    b[b == 0] = 3
    for f in OPERATORS:
        got, want = f(cotan.asarray(a), cotan.asarray(b)).numpy(), f(a, b)
        assert got.dtype == want.dtype and (got == want).all(), f(a, b)
        assert (f(cotan.asarray(a), 3).numpy() == f(a, 3)).all()
        assert (f(100, cotan.asarray(b)).numpy() == f(numpy.asarray(100, dtype), b)).all()


def test_numpys_arrays_and_pythons_types_at_the_other_side():
    a, t = drawn("float32", (3,)), cotan.asarray(drawn("float32", (3,), 2))
    assert type(a + t) is cotan.Tensor and (a + t).tolist() == (a + t.numpy()).tolist()
    assert (t == None) is False and (t != "x") is True  # noqa: E711
    with pytest.raises(TypeError, match="unsupported operand"):
        t + "x"


def test_ints_divide_to_floats_and_shift_with_their_sign():
    x = cotan.asarray([7, -7])
    assert (x / 2).dtype == cotan.float32 and (x / 2).tolist() == [3.5, -3.5]
    assert (x >> 1).tolist() == [3, -4] and (x << 1).tolist() == [14, -14] and (~x).tolist() == [-8, 6]


def test_shape_size_and_the_like():
    x = cotan.asarray(drawn("float16", (2, 3, 4)))
    assert x.shape == (2, 3, 4) and x.shape.numel() == 24 and repr(x.shape) == "cotan.Size([2, 3, 4])"
    assert x.size == 24 and x.size() == (2, 3, 4) and x.size(-1) == 4 and x.numel() == 24
    assert x.ndim == x.dim() == 3 and x.nbytes == 48 and x.itemsize == x.element_size() == 2 and len(x) == 2
    assert x.T.shape == (4, 3, 2) and x.mT.shape == (2, 4, 3) and (x.T.numpy() == x.numpy().T).all()


def test_numbers_come_out():
    assert cotan.ones(2, requires_grad=True).numpy(force=True).tolist() == [1, 1]
    assert float(cotan.asarray(2.5)) == 2.5 and int(cotan.asarray([3])) == 3 and bool(cotan.asarray(0)) is False
    assert cotan.asarray(2**63).item() == 2**63 and [1, 2, 3][cotan.asarray(1)] == 2
    with pytest.raises(ValueError, match="^a tensor of 2 elements is neither true nor false: use any.. or all..$"):
        bool(cotan.asarray([1, 2]))
    with pytest.raises(ValueError, match="^a tensor of 2 elements is no number: it must have one$"):
        cotan.asarray([1, 2]).item()


def test_dtypes():
    assert repr(cotan.float32) == "cotan.float32" and cotan.float32 == numpy.float32 == cotan.dtype("float32")
    assert cotan.float is cotan.float32 and cotan.long is cotan.int64 and cotan.dtype(int) == cotan.int64
    assert numpy.dtype(cotan.int8) == numpy.int8 and numpy.dtype(cotan.bfloat16) == ml_dtypes.bfloat16
    assert pickle.loads(pickle.dumps(cotan.uint4)) is cotan.uint4 and len({cotan.int8, cotan.int8}) == 1
    with pytest.raises(TypeError, match="^'float31' is no dtype that Cotan has$"):
        cotan.asarray(1, dtype="float31")


def test_a_view_outlives_its_tensor():
    array = (cotan.asarray(drawn("float64", (1000,))) + 1).numpy()
    gc.collect()
    for i in range(20):
        (cotan.asarray(drawn("float64", (1000,), i)) * 2).numpy()
    assert (array == drawn("float64", (1000,)) + 1).all()


def test_text():
    assert repr(cotan.asarray([[1, 2], [3, 4]])) == "tensor([[1, 2],\n        [3, 4]])"
    assert repr(cotan.asarray([1.5, 2])) == "tensor([1.5, 2. ])"
    assert repr(cotan.asarray([1.5], dtype=cotan.float64)) == "tensor([1.5], dtype=cotan.float64)"
    assert f"{cotan.asarray(2.0):.2f}" == "2.00"


def test_subclasses_and_attributes():
    class Mine(cotan.Tensor):
        pass

    x = Mine([1.0, 2.0])
    x.name = "weights"
    assert type(x) is Mine and x.name == "weights" and type(x + 1) is cotan.Tensor
    y = cotan.Tensor(x)
    del x
    assert y.tolist() == [1.0, 2.0]


CTRL_C = """
import cotan, os, signal, threading, time
x = cotan.asarray([[1.0] * 1500] * 1500)
threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
begin = time.monotonic()
try:
    while True:
        y = x
        for i in range(2000):
            y = (y @ x) * 1e-3
        y.tolist()
except KeyboardInterrupt:
    print("stopped", time.monotonic() - begin < 3)
print((x + 1).numpy()[0, 0])
"""


def test_ctrl_c_stops_a_plan_and_the_session_goes_on():
    done = subprocess.run([sys.executable, "-c", CTRL_C], capture_output=True, text=True, timeout=60)
    assert done.stdout == "stopped True\n2.0\n", done.stderr
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_lines_are_those_of_the_users_frames(tmp_path):
    source = "from cotan._core import _line\nlines = []\nfor i in range(3):\n    lines.append(_line())\n" + "x = 1\n" * 3000
    names = {}
    exec(compile(source + "lines.append(_line())", "mine.py", "exec"), names)
    assert names["lines"] == [("mine.py", 4)] * 3 + [("mine.py", 3005)]


def test_iteration_and_in_are_numpys():
    x = drawn("int32", (3, 4))
    t = cotan.asarray(x)
    assert [row.tolist() for row in t] == [row.tolist() for row in x] and len(list(cotan.asarray(x[:0]))) == 0
    for row in t:
        row.copy_(0)  # a view
    assert t.tolist() == [[0] * 4] * 3
    assert (int(x[1, 2]) in cotan.asarray(x)) and (1000 not in cotan.asarray(x)) and (2.5 in cotan.asarray([1, 2.5]))
    with pytest.raises(TypeError) as error:
        iter(cotan.asarray(1))
    assert str(error.value) == "a tensor without axes cannot be iterated over"
