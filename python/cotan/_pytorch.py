"""Names that PyTorch has in addition to NumPy's: the device, tensor types, methods as functions."""
import itertools

from . import _core, _creation, _devices, linalg
from ._core import Tensor, ops
from ._dtypes import DEFAULTS, result_type, set_default_dtype  # noqa: F401
from ._elementwise import scalar_of_dtype
from ._reductions import trapezoid
from ._shaping import concat_parts

__all__ = [
    "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "HalfTensor", "IntTensor", "LongTensor", "ShortTensor",
    "adjoint", "block_diag", "cartesian_prod", "channels_last", "combinations", "contiguous_format", "device", "get_num_threads",
    "is_nonzero", "is_tensor", "logdet", "preserve_format", "scalar_tensor", "set_default_dtype", "set_num_threads", "strided",
    "trapz", "tril_indices", "triu_indices", "use_deterministic_algorithms"]


class _Name(str):
    """A value that is its name."""

    def __repr__(self):
        return f"torch.{str.__str__(self)}"

    __str__ = __repr__


class layout(_Name):
    """How the elements of a tensor are stored: strided or, of a SparseTensor, sparse_coo or sparse_csr."""


class memory_format(_Name):
    """The order of elements in memory, which is not visible: it is accepted and ignored."""


strided, sparse_coo, sparse_csr, sparse_csc, sparse_bsr, sparse_bsc, jagged = map(
    layout, "strided sparse_coo sparse_csr sparse_csc sparse_bsr sparse_bsc jagged".split())
contiguous_format, channels_last, channels_last_3d, preserve_format = map(
    memory_format, "contiguous_format channels_last channels_last_3d preserve_format".split())


class device(str):
    """A device's name, "cpu" or "opencl:1", with its type and index."""

    def __new__(cls, type, index=None):
        name, _, number = str(type).rpartition(":")
        name, number = (name, number) if number.isdecimal() and name else (str(type), "")
        if number and index is not None:
            raise RuntimeError(f"device: {str(type)!r} has an index, another one is given: {index}")
        index = int(number) if number else index
        self = super().__new__(cls, name if index is None else f"{name}:{index}")
        self.type, self.index = name, index
        return self

    def __repr__(self):
        return f"device(type={self.type!r})" if self.index is None else f"device(type={self.type!r}, index={self.index})"

    def __getnewargs__(self):
        return self.type, self.index

    def __enter__(self):
        _devices.default_device.names.append(self)
        return self

    def __exit__(self, *exception):
        _devices.default_device.names.pop()


Tensor.device = property(lambda self: device(self._device_name()), doc="The device on which it is, or will be.")
Tensor.layout = property(lambda self: strided, doc="How its elements are stored.")
Tensor.is_sparse = property(lambda self: False, doc="There are no sparse tensors.")


class _TensorTypeMeta(type):
    """A class that makes tensors of one dtype, from data or from sizes; every tensor of that dtype is an
    instance of it."""

    def __call__(cls, *data):
        if all(isinstance(n, int) for n in data):
            return _creation.zeros(data, dtype=cls.dtype)
        return Tensor(data[0], cls.dtype) if len(data) == 1 else super().__call__(*data)

    def __instancecheck__(cls, x):
        return isinstance(x, Tensor) and x.dtype == cls.dtype


FloatTensor, DoubleTensor, HalfTensor, LongTensor, IntTensor, ShortTensor, CharTensor, ByteTensor, BoolTensor = (
    _TensorTypeMeta(f"{name}Tensor", (), {"dtype": getattr(_core, dtype), "__doc__": f"Makes tensors of {dtype}."}) for name, dtype in (
        ("Float", "float32"), ("Double", "float64"), ("Half", "float16"), ("Long", "int64"), ("Int", "int32"), ("Short", "int16"),
        ("Char", "int8"), ("Byte", "uint8"), ("Bool", "bool")))


def adjoint(x):
    """Returns the matrices (the last two axes) transposed and conjugated."""
    return x.mH


def is_tensor(obj):
    return isinstance(obj, Tensor)


def is_nonzero(input):
    return bool(input)


def scalar_tensor(s, *, dtype=None, device=None):
    return _creation.full((), s, dtype=dtype or DEFAULTS[float], device=device)


def _triangle_indices(row, col, offset, upper, dtype):
    i, j = ops.iota(_core.int64, (row, col), 0), ops.iota(_core.int64, (row, col), 1)
    rows, columns = ((j - i >= offset) if upper else (j - i <= offset)).nonzero(as_tuple=True)
    return ops.cast(ops.concat([rows[None], columns[None]], 0), dtype)


def triu_indices(row, col, offset=0, *, dtype=_core.int64, device=None):
    """Returns (2, n): rows and columns of the elements on and above a diagonal."""
    return _creation.move_to_device(_triangle_indices(row, col, offset, True, dtype), device)


def tril_indices(row, col, offset=0, *, dtype=_core.int64, device=None):
    """Returns (2, n): rows and columns of the elements on and below a diagonal."""
    return _creation.move_to_device(_triangle_indices(row, col, offset, False, dtype), device)


def cartesian_prod(*tensors):
    """Returns all combinations of the vectors' elements, one in each row."""
    if len(tensors) == 1:
        return tensors[0]
    return ops.concat([ops.reshape(x, (-1, 1)) for x in _creation.meshgrid(*tensors, indexing="ij")], 1)


def combinations(input, r=2, with_replacement=False):
    """Returns all choices of r elements of a vector, in order, one in each row."""
    chosen = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(chosen(range(input.shape[0]), r)) if r else []
    return input[_core.asarray(rows)] if rows else _creation.zeros((0, r) if r else (0,), dtype=input.dtype)


def block_diag(*tensors):
    """Returns a matrix with the given matrices along its diagonal (a vector is a row, a number is 1 by 1),
    and zeros elsewhere."""
    tensors = [ops.reshape(x, (1,) * (2 - x.ndim) + tuple(x.shape)) for x in tensors]
    width = sum(x.shape[1] for x in tensors)
    dtype, left, rows = result_type(*tensors), 0, []
    for x in tensors:
        rows.append(ops.pad(ops.cast(x, dtype), scalar_of_dtype(0, dtype), low=[0, left], high=[0, width - left - x.shape[1]]))
        left += x.shape[1]
    return concat_parts(rows, 0)


def logdet(input):
    """Returns the logarithm of the determinant; NaN where that is negative."""
    sign, logarithm = linalg.slogdet(input)
    return ops.select(ops.less(sign, 0), scalar_of_dtype(float("nan"), logarithm.dtype), logarithm)


def trapz(y, x=None, *, dx=1, dim=-1):
    """Returns the integral by the trapezoidal rule."""
    return trapezoid(y, x, dx=dx, axis=dim)


_threads = [0]


def set_num_threads(n):
    """Sets the number of threads from the next plan on; 0 means all cores."""
    _core.set_num_threads(n)
    _threads[0] = n


def get_num_threads():
    """Returns the number that set_num_threads was given, else the number of cores."""
    import os
    return _threads[0] or len(os.sched_getaffinity(0))


def use_deterministic_algorithms(mode, *, warn_only=False):
    """Accepted and ignored: results are the same in every run."""
