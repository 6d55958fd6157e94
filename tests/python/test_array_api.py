"""Twins: every function of the array API standard beside array-api-strict, on drawn operands of every dtype it takes."""
import math

import array_api_strict as strict
import support.interpreted  # noqa: F401, I001: before cotan
import cotan
import numpy as np
import pytest

strict.set_array_api_strict_flags(api_version="2024.12")
KINDS = {"b": ["bool"], "i": ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"], "f": ["float32", "float64"],
         "c": ["complex64", "complex128"]}
SEED = 20241
draw = np.random.default_rng(SEED)


def array(dtype, shape=(3, 4), low=None, high=None):
    return np.asarray(numbers(dtype, shape, low, high), dtype)


def numbers(dtype, shape, low, high):
    if dtype == "bool":
        return draw.random(shape) < 0.5
    if dtype[0] in "iu":
        return draw.integers(0 if dtype[0] == "u" else -7 if low is None else low, 8 if high is None else high, shape)
    if dtype[0] == "c":
        return (draw.uniform(-0.9, 0.9, shape) + 1j * draw.uniform(-0.9, 0.9, shape))
    return draw.uniform(-0.9 if low is None else low, 0.9 if high is None else high, shape)


def to(xp, value):
    if isinstance(value, np.ndarray):
        if xp is cotan:
            return xp.asarray(value)
        return xp.reshape(xp.asarray(value.ravel().tolist(), dtype=getattr(xp, value.dtype.name)), value.shape)
    if isinstance(value, str) and value.startswith("dtype:"):
        return getattr(xp, value[6:])
    if isinstance(value, (list, tuple)):
        return type(value)(to(xp, part) for part in value)
    return value


def dtype_name(x):
    return str(x.dtype).rpartition(".")[2].strip("'>")


def same(ours, theirs, name):
    if isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs):
            same(a, b, name)
        return
    if not hasattr(theirs, "dtype"):
        assert ours == theirs
        return
    assert dtype_name(ours) == dtype_name(theirs) and tuple(ours.shape) == tuple(theirs.shape), (ours.dtype, theirs.dtype)
    a, b = ours.numpy(), np.asarray(theirs._array)
    if a.dtype.kind in "biu":
        assert (a == b).all()
    else:
        tolerance = 1e-5 if a.dtype.itemsize // (1 + (a.dtype.kind == "c")) == 4 else 1e-12
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def check(name, *operands, **options):
    path = name.split(".")
    ours, theirs = cotan, strict
    for part in path:
        ours, theirs = getattr(ours, part), getattr(theirs, part)
    got = ours(*to(cotan, operands), **{key: to(cotan, value) for key, value in options.items()})
    wanted = theirs(*to(strict, operands), **{key: to(strict, value) for key, value in options.items()})
    same(got, wanted, name)


UNARY = {"abs": "ifc", "acos": "fc", "asin": "fc", "asinh": "fc", "atan": "fc", "atanh": "fc", "bitwise_invert": "bi", "ceil": "if",
         "conj": "c", "cos": "fc", "cosh": "fc", "exp": "fc", "expm1": "fc", "floor": "if", "imag": "c", "isfinite": "ifc",
         "isinf": "ifc", "isnan": "ifc", "logical_not": "b", "negative": "ifc", "positive": "ifc", "real": "c", "round": "ifc",
         "sign": "ifc", "signbit": "f", "sin": "fc", "sinh": "fc", "square": "ifc", "tan": "fc", "tanh": "fc", "trunc": "if",
         "reciprocal": "fc"}
ABOVE_ZERO = {"log": "f", "log1p": "f", "log2": "f", "log10": "f", "sqrt": "f"}
BINARY = {"add": "ifc", "atan2": "f", "bitwise_and": "bi", "bitwise_or": "bi", "bitwise_xor": "bi", "copysign": "f", "equal": "bifc",
          "floor_divide": "f", "greater": "if", "greater_equal": "if", "hypot": "f", "less": "if", "less_equal": "if",
          "logaddexp": "f", "logical_and": "b", "logical_or": "b", "logical_xor": "b", "maximum": "if", "minimum": "if",
          "multiply": "ifc", "nextafter": "f", "not_equal": "bifc", "remainder": "f", "subtract": "ifc", "divide": "fc"}


def dtypes(kinds):
    return [dtype for kind in kinds for dtype in KINDS[kind]]


@pytest.mark.parametrize("name", [*UNARY, *ABOVE_ZERO, "acosh"])
def test_unary(name):
    for dtype in dtypes(UNARY.get(name, "f")):
        low, high = (0.1, 3.0) if name in ABOVE_ZERO else (1.1, 3.0) if name == "acosh" else (None, None)
        for shape in ((3, 4), (), (0, 2)):
            check(name, array(dtype, shape, low, high))


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    for dtype in dtypes(BINARY[name]):
        check(name, array(dtype), array(dtype))
        check(name, array(dtype, (3, 1)), array(dtype, (4,)))


def test_binary_mixed():
    for a in dtypes("if"):
        for b in dtypes("i" if a[0] in "iu" else "fc"):
            if {a[0], b[0]} == {"i", "u"} and "uint64" in (a, b):
                continue
            check("add", array(a), array(b))


def test_whole_numbers():
    for dtype in dtypes("i"):
        x, y = array(dtype), array(dtype, low=1, high=5) + np.asarray(1, dtype)
        for name in ("floor_divide", "remainder"):
            check(name, x, y)
        check("pow", x, array(dtype, low=0, high=3))
        for name in ("bitwise_left_shift", "bitwise_right_shift"):
            check(name, x, array(dtype, low=0, high=7))
    check("pow", array("float32", low=0.1), array("float32"))
    for dtype in dtypes("if"):
        check("clip", array(dtype), 2 if dtype[0] != "f" else -0.5, 5 if dtype[0] != "f" else 0.5)


AXES = [None, 0, -1, (0, 1), ()]


@pytest.mark.parametrize("name, kinds", [("sum", "ifc"), ("prod", "ifc"), ("max", "if"), ("min", "if"), ("mean", "fc"), ("var", "f"),
                                         ("std", "f"), ("any", "bifc"), ("all", "bifc"), ("count_nonzero", "bifc")])
def test_reductions(name, kinds):
    for dtype in dtypes(kinds):
        for axis in AXES:
            for keepdims in (False, True):
                check(name, array(dtype), axis=axis, keepdims=keepdims)
    if name in ("var", "std"):
        check(name, array("float64"), axis=1, correction=1)
        check(name, array("float64"), correction=0.5)


def test_running_and_places():
    for dtype in dtypes("c"):
        check("take", array(dtype), np.array([2, 0, 0]), axis=0)
        check("take_along_axis", array(dtype), np.array([[1], [0], [2]]), axis=1)
    for dtype in dtypes("if"):
        for name in ("argmax", "argmin"):
            for axis in (None, 0, 1):
                check(name, array(dtype), axis=axis, keepdims=axis == 0)
        for name in ("cumulative_sum", "cumulative_prod"):
            check(name, array(dtype), axis=1)
            check(name, array(dtype), axis=0, include_initial=True)
        for descending in (False, True):
            check("sort", array(dtype), axis=0, descending=descending)
            check("argsort", array(dtype), descending=descending)
        check("diff", array(dtype), n=2)
        check("searchsorted", np.sort(array(dtype, (9,))), array(dtype, (5,)), side="right")
        for name in ("unique_values", "unique_counts", "unique_inverse", "unique_all"):
            check(name, array(dtype))
        check("take", array(dtype), np.array([2, 0, 0]), axis=0)
        check("take_along_axis", array(dtype), np.array([[1], [0], [2]]), axis=1)
        check("nonzero", array(dtype))
        check("where", array("bool"), array(dtype), array(dtype, (4,)))


def test_shapes():
    for dtype in ("bool", "int16", "float32", "complex128"):
        x = array(dtype, (2, 1, 3))
        check("reshape", x, (3, -1))
        check("permute_dims", x, (2, 0, 1))
        check("moveaxis", x, (0, 1), (-1, 0))
        check("squeeze", x, 1)
        check("expand_dims", x, axis=-1)
        check("flip", x)
        check("flip", x, axis=(0, 2))
        check("roll", x, 2)
        check("roll", x, (1, -2), axis=(0, 2))
        check("broadcast_to", x, (4, 2, 5, 3))
        check("broadcast_arrays", x, array(dtype, (2, 1)))
        check("concat", [x, array(dtype, (1, 1, 3))], axis=0)
        check("concat", [x, x], axis=None)
        check("stack", [x, x], axis=-1)
        check("unstack", x, axis=2)
        check("tile", x, (2, 1, 2, 1))
        check("repeat", x, 3, axis=2)
        check("repeat", x, np.array([1, 0, 2]), axis=2)
        check("matrix_transpose", x)
        check("tril", array(dtype, (3, 4)), k=1)
        check("triu", array(dtype, (3, 4)), k=-1)
        check("meshgrid", array(dtype, (2,)), array(dtype, (3,)), indexing="ij")
        check("meshgrid", array(dtype, (2,)), array(dtype, (3,)))


def test_creation():
    for arguments in ((5,), (2, 9, 3), (9, 2, -2), (0.0, 1.0, 0.25), (3, 3)):
        for dtype in (None, "dtype:float64"):
            ours = cotan.arange(*arguments, dtype=to(cotan, dtype))
            assert np.array_equal(ours.numpy(), np.arange(*arguments))
    check("arange", 2, 9, dtype="dtype:int16")
    check("linspace", 1, 2, 7, dtype="dtype:float64")
    check("linspace", 1, 2, 7, dtype="dtype:float64", endpoint=False)
    check("linspace", 1, -3, 1, dtype="dtype:float32")
    check("eye", 3, 4, k=-1, dtype="dtype:int8")
    for name in ("zeros", "ones"):
        check(name, (2, 3), dtype="dtype:complex64")
        check(f"{name}_like", array("uint8"))
    check("full", (2,), 7, dtype="dtype:uint16")
    check("full", (2,), True)
    check("full_like", array("int32"), 3, dtype="dtype:float64")
    for source in dtypes("bif"):
        for target in dtypes("bif"):
            if source[0] != "f" or target[0] != "u":
                check("astype", array(source, low=0), f"dtype:{target}")


def matrices(dtype, shape=(2, 3, 3)):
    return array(dtype, shape) + np.asarray(2 * np.eye(*shape[-2:]), dtype)


def test_linear_algebra():
    for dtype in dtypes("fc"):
        x = matrices(dtype)
        for name in ("det", "inv"):
            check(f"linalg.{name}", x)
        definite = (x @ np.conj(np.swapaxes(x, -1, -2))).astype(dtype)
        check("linalg.cholesky", definite)
        check("linalg.eigvalsh", definite)
        check("linalg.svdvals", x)
        check("linalg.solve", x, matrices(dtype, (2, 3, 2)))
        check("linalg.solve", x, array(dtype, (3,)))
        check("linalg.slogdet", x)
        check("linalg.matrix_power", x, 3)
        check("linalg.matrix_power", x, -2)
        check("linalg.pinv", matrices(dtype, (2, 4, 3)))
        check("linalg.matrix_rank", matrices(dtype, (2, 4, 3)))
        for order in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
            check("linalg.matrix_norm", x, ord=order, keepdims=order == 1)
        for order in (1, 2, 3, math.inf, -math.inf, 0):
            check("linalg.vector_norm", x, ord=order, axis=-1)
        check("linalg.cross", array(dtype, (2, 3)), array(dtype, (2, 3)))
        q, r = cotan.linalg.qr(to(cotan, x))
        np.testing.assert_allclose((q @ r).numpy(), x, rtol=1e-5, atol=1e-5)
        u, s, vh = cotan.linalg.svd(to(cotan, x), full_matrices=False)
        np.testing.assert_allclose(((u * cotan.expand_dims(s, axis=-2)) @ vh).numpy(), x, rtol=1e-5, atol=1e-5)
    for dtype in dtypes("ifc"):
        x = array(dtype, (2, 3, 4))
        check("matmul", x, array(dtype, (4, 2)))
        check("matmul", x, array(dtype, (4,)))
        check("vecdot", x, array(dtype, (4,)))
        check("tensordot", x, array(dtype, (4, 3)), axes=((1, 2), (1, 0)))
        check("tensordot", x, array(dtype, (4, 2)), axes=1)
        check("linalg.outer", array(dtype, (3,)), array(dtype, (2,)))
        check("linalg.diagonal", x, offset=1)
        check("linalg.trace", x, offset=-1)


def test_kinds():
    for a in dtypes("bifc"):
        for kind in ("bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric",
                     ("integral", "bool")):
            assert cotan.isdtype(getattr(cotan, a), kind) == strict.isdtype(getattr(strict, a), kind)
        for b in dtypes("bifc"):
            try:
                wanted = str(strict.result_type(getattr(strict, a), getattr(strict, b))).rpartition(".")[2].strip("'>")
            except TypeError:
                continue
            assert cotan.result_type(getattr(cotan, a), getattr(cotan, b)).name == wanted
            assert cotan.can_cast(getattr(cotan, a), getattr(cotan, b)) == strict.can_cast(getattr(strict, a), getattr(strict, b))
    for dtype in dtypes("f"):
        for field in ("bits", "eps", "max", "min", "smallest_normal"):
            assert getattr(cotan.finfo(getattr(cotan, dtype)), field) == getattr(strict.finfo(getattr(strict, dtype)), field)
    for dtype in dtypes("i"):
        for field in ("bits", "max", "min"):
            assert getattr(cotan.iinfo(getattr(cotan, dtype)), field) == getattr(strict.iinfo(getattr(strict, dtype)), field)


def test_every_name_is_there():
    skipped = {"Device", "ArrayAPIStrictFlags", "set_array_api_strict_flags", "get_array_api_strict_flags", "reset_array_api_strict_flags"}
    missing = [name for name in strict.__all__ if not hasattr(cotan, name) and name not in skipped]
    assert missing == [name for name in ("fft", "from_dlpack") if not hasattr(cotan, name)]
