"""Creates tensors: numbers, ranges, identities."""
import math

from . import _core, _devices
from ._core import Tensor, ops
from ._devices import device_name
from ._dtypes import COMPLEX, DEFAULTS, FLOATS, complex_dtype, result_type

__all__ = [
    "arange", "as_tensor", "empty", "empty_like", "eye", "full", "full_like", "geomspace", "identity",
    "linspace", "logspace", "meshgrid", "ones", "ones_like", "tensor", "tri", "tril", "triu", "zeros", "zeros_like"]


def move_to_device(x, device):
    """Returns the tensor on the device of this name; a number means a GPU. None leaves it where it is."""
    return x if device is None else x._to(device_name(device))


def device_of_tensor(x):
    return x._device_name() if isinstance(x, Tensor) else None


def finish_new_tensor(x, requires_grad=False, device=None):
    """Places a new tensor: one that a user creates is computed on the device on which it was made; constants
    within functions go to the device on which they are used."""
    device = _devices.default_device.names[-1] if device is None else device
    there = move_to_device(x, device)
    x = there._stays() if there is x else there
    return x.requires_grad_() if requires_grad else x


def parse_sizes(shape):
    """Returns the sizes of zeros(2, 3), zeros((2, 3)) or zeros(5)."""
    if len(shape) == 1 and not hasattr(shape[0], "__index__"):
        return tuple(shape[0])
    if len(shape) == 1 and isinstance(shape[0], Tensor) and shape[0].ndim:
        return tuple(shape[0].tolist())
    return tuple(shape)


def full(shape, fill_value, *, dtype=None, device=None, requires_grad=False):
    """Returns a tensor whose elements are all fill_value. Its dtype is the number's unless one is given."""
    shape = (shape,) if hasattr(shape, "__index__") else tuple(shape)
    if isinstance(fill_value, Tensor):
        value = fill_value if dtype is None else ops.cast(fill_value, dtype)
        return finish_new_tensor(ops.expand(value, shape), requires_grad, device)
    dtype = DEFAULTS[type(fill_value)] if dtype is None and type(fill_value) in DEFAULTS else dtype
    return finish_new_tensor(_core.full(shape, fill_value, dtype), requires_grad, device)


def zeros(shape, *more, dtype=None, device=None, requires_grad=False):
    """Returns a tensor of zeros: zeros(2, 3) or zeros((2, 3))."""
    return full(parse_sizes((shape, *more)), 0, dtype=dtype or DEFAULTS[float], device=device, requires_grad=requires_grad)


def ones(shape, *more, dtype=None, device=None, requires_grad=False):
    """Returns a tensor of ones: ones(2, 3) or ones((2, 3))."""
    return full(parse_sizes((shape, *more)), 1, dtype=dtype or DEFAULTS[float], device=device, requires_grad=requires_grad)


def empty(shape, *more, dtype=None, device=None, requires_grad=False):
    """Returns zeros: there is no memory before there are values."""
    return zeros(shape, *more, dtype=dtype, device=device, requires_grad=requires_grad)


def full_like(x, /, fill_value, *, dtype=None, device=None, requires_grad=False):
    return full(x.shape, fill_value, dtype=dtype or x.dtype, device=device or device_of_tensor(x), requires_grad=requires_grad)


def zeros_like(x, /, *, dtype=None, device=None, requires_grad=False):
    return full_like(x, 0, dtype=dtype, device=device, requires_grad=requires_grad)


def ones_like(x, /, *, dtype=None, device=None, requires_grad=False):
    return full_like(x, 1, dtype=dtype, device=device, requires_grad=requires_grad)


def empty_like(x, /, *, dtype=None, device=None, requires_grad=False):
    return zeros_like(x, dtype=dtype, device=device, requires_grad=requires_grad)


def _count(start, stop, step, name):
    if step == 0:
        raise ValueError(f"{name}: the step is 0")
    if all(isinstance(number, int) for number in (start, stop, step)):
        return max(0, -((start - stop) // step))
    n = (stop - start) / step
    if not math.isfinite(n):
        raise ValueError(f"{name}: the numbers from {start} to {stop} by {step} are asked for, which have no count")
    return max(0, math.ceil(n))


def arange(start, /, stop=None, step=1, *, dtype=None, device=None, requires_grad=False, end=None):
    """Returns start, start + step, ... up to but not including stop: integers if all three are, else
    floats."""
    stop = end if stop is None else stop
    start, stop = (0, start) if stop is None else (start, stop)
    start, stop, step = (number.item() if hasattr(number, "item") else number for number in (start, stop, step))
    n = _count(start, stop, step, "arange")
    dtype = _core.dtype(dtype) if dtype is not None else result_type(start, stop, step)
    wide = _core.float64 if dtype in FLOATS else _core.int64 if isinstance(start, int) and isinstance(step, int) else \
        _core.float64
    if isinstance(start, int) and isinstance(step, int) and dtype not in FLOATS:
        wide = dtype if (start, step) == (0, 1) else wide
    counted = ops.iota(wide, (n,), 0)
    if step != 1:
        counted = counted * _core.asarray(step, dtype=wide)
    if start != 0:
        counted = counted + _core.asarray(start, dtype=wide)
    return finish_new_tensor(counted if wide == dtype else ops.cast(counted, dtype), requires_grad, device)


def linspace(start, stop, /, num=None, *, dtype=None, device=None, endpoint=True, requires_grad=False, steps=None):
    """Returns num floats from start to stop at equal distances; without endpoint, stop is left out."""
    num = num if steps is None else steps
    if num is None or num < 0:
        raise ValueError(f"linspace: it needs the number of elements, not {num}")
    is_complex = isinstance(start, complex) or isinstance(stop, complex)
    dtype = _core.dtype(dtype) if dtype is not None else DEFAULTS[complex if is_complex else float]
    wide = complex_dtype(_core.float64) if dtype in COMPLEX else _core.float64
    parts = max(num - 1 if endpoint else num, 1)
    first, last = _core.asarray(start, dtype=wide), _core.asarray(stop, dtype=wide)
    places = ops.iota(_core.float64, (num,), 0)
    # Computed from both ends, so that the last element is stop; without endpoint they are the first elements
    # of one more.
    step = (last * 0.5 - first * 0.5) / (parts * 0.5)  # the difference of both may overflow
    from_first = first + ops.cast(places, wide) * step
    from_last = last - ops.cast(parts - places, wide) * step
    line = ops.select(places * 2 < parts, from_first, from_last) if num > 1 or not endpoint else from_first
    return finish_new_tensor(ops.cast(line, dtype), requires_grad, device)


def logspace(start, stop, num=50, base=10.0, *, endpoint=True, dtype=None, device=None):
    """Returns base to the powers that linspace gives."""
    exponents = linspace(start, stop, num, endpoint=endpoint, dtype=_core.float64)
    return move_to_device(ops.cast(ops.pow(_core.asarray(base, dtype=_core.float64), exponents), dtype or DEFAULTS[float]), device)


def geomspace(start, stop, num=50, *, endpoint=True, dtype=None):
    """Returns num floats from start to stop at equal ratios."""
    if not start * stop > 0:
        raise ValueError(f"geomspace: numbers from {start} to {stop} are asked for, both must be above 0 or both below")
    line = logspace(math.log10(abs(start)), math.log10(abs(stop)), num, endpoint=endpoint, dtype=dtype)
    return line if start > 0 else -line


def eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None, requires_grad=False):
    """Returns a matrix with ones on the k-th diagonal above the main one, and zeros elsewhere."""
    shape = (n_rows, n_rows if n_cols is None else n_cols)
    k = max(-shape[0], min(shape[1], k))
    same = ops.equal(ops.iota(_core.int64, shape, 1) - k, ops.iota(_core.int64, shape, 0))
    return finish_new_tensor(ops.cast(same, dtype or DEFAULTS[float]), requires_grad, device)


def identity(n, dtype=None):
    return eye(n, dtype=dtype)


def tri(n, m=None, k=0, dtype=None):
    """Returns a matrix with ones at and below diagonal k, and zeros above."""
    shape = (n, n if m is None else m)
    return ops.cast(ops.less_equal(ops.iota(_core.int64, shape, 1), ops.iota(_core.int64, shape, 0) + k),
                    dtype or _core.float32)


def tril(x, /, diagonal=0, *, k=0):
    """Returns the matrices (the last two axes) with zeros above a diagonal."""
    return ops.tril(x, diagonal=diagonal or k)


def triu(x, /, diagonal=0, *, k=0):
    """Returns the matrices (the last two axes) with zeros below a diagonal."""
    return ops.triu(x, diagonal=diagonal or k)


def meshgrid(*tensors, indexing="xy"):
    """Returns a list of the vectors, each along its own axis and broadcast to all. "xy": the first vector is
    along axis 1, the second along axis 0."""
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tensors[0]
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: indexing is \"xy\" or \"ij\", not {indexing!r}")
    if len({x.dtype for x in tensors}) > 1:
        raise ValueError("meshgrid: the tensors must have one dtype")
    shape = [x.numel() for x in tensors]
    n, order = len(tensors), list(range(len(tensors)))
    if indexing == "xy" and n > 1:
        order[:2], shape[:2] = [1, 0], [shape[1], shape[0]]
    return [ops.expand(ops.reshape(x, [-1 if axis == order[i] else 1 for axis in range(n)]), shape)
            for i, x in enumerate(tensors)]


def as_tensor(data, dtype=None, device=None):
    """Returns a tensor of the data; the data itself if it is a tensor of this dtype."""
    return move_to_device(_core.asarray(data, dtype=dtype), device)


def tensor(data, *, dtype=None, device=None, requires_grad=False):
    """Returns a tensor with a copy of the data: numbers, lists of them, arrays, buffers."""
    return finish_new_tensor(_core.asarray(data, dtype, copy=True), requires_grad, device)
