"""Creates tensors: data, constants, ranges, identities, complex numbers of parts."""
import math

from .. import _core, _creation, _elementwise
from .._core import Tensor, ops
from .._creation import finish_new_tensor, parse_sizes
from .._dtypes import COMPLEX, DEFAULTS, FLOATS
from .define import define

LIKE = "dtype: dtype=None, layout=None, device=None, requires_grad: bool=False, memory_format=None"
PLACE = "dtype: dtype=None, layout=None, device=None, requires_grad: bool=False, pin_memory: bool=False"
OPTIONS = "out=None, " + PLACE


def finish(x, layout, device, requires_grad):
    """Places a new tensor. The memory layout is not visible: a memory format, strides and pin_memory change
    nothing."""
    if layout not in (None, "strided"):
        raise NotImplementedError(f"the layout is {layout}, tensors are made strided\n  hint: .to_sparse()")
    return finish_new_tensor(x, requires_grad, device)


def constant(shape, value, dtype, layout, device, requires_grad):
    """Returns a new tensor whose elements are all `value`, in its own dtype unless one is given."""
    if any(size < 0 for size in shape):
        raise RuntimeError(f"a tensor of sizes {tuple(shape)} is asked for, they must not be negative")
    dtype = DEFAULTS.get(type(value)) if dtype is None else _core.dtype(dtype)
    if isinstance(value, Tensor):
        value = ops.expand(value if dtype is None else ops.cast(value, dtype), tuple(shape))
        return finish(value.detach(), layout, device, requires_grad)
    return finish(_core.full(tuple(shape), value, dtype), layout, device, requires_grad)


def _define_constant(name, value):
    """Defines NAME(size), NAME_like(tensor) and Tensor.new_NAME(size)."""
    def function(size, *rest):
        dtype, layout, device, requires_grad, *_ = rest
        return constant(parse_sizes((size,)), value, dtype or DEFAULTS[float], layout, device, requires_grad)

    def like(input, dtype, layout, device, requires_grad, memory_format):
        return constant(input.shape, value, dtype or input.dtype, layout, device or input._device_name(), requires_grad)

    def new(input, size, dtype, layout, device, requires_grad, pin_memory):
        return constant(parse_sizes((size,)), value, dtype or input.dtype, layout, device or input._device_name(), requires_grad)

    for f, what in ((function, "of these sizes"), (like, "like the input"), (new, "of these sizes, of the tensor's dtype")):
        f.__doc__ = f"Returns a tensor of {'zeros' if name == 'empty' else name} {what}."
    define(f"{name}(*size: ints, {OPTIONS}, memory_format=None)")(function)
    define(f"{name}_like(input, *, {LIKE})")(like)
    define(f"Tensor.new_{name}(self, *size: ints, {PLACE})")(new)


for _name, _value in (("zeros", 0), ("ones", 1), ("empty", 0)):
    _define_constant(_name, _value)


@define(f"full(size: ints, fill_value: float, *, {OPTIONS})")
def full(size, fill_value, dtype, layout, device, requires_grad, pin_memory):
    """Returns a tensor whose elements are all fill_value."""
    return constant(parse_sizes((size,)), fill_value, dtype, layout, device, requires_grad)


@define(f"full_like(input, fill_value: float, *, {LIKE})")
def full_like(input, fill_value, dtype, layout, device, requires_grad, memory_format):
    return constant(input.shape, fill_value, dtype or input.dtype, layout, device or input._device_name(), requires_grad)


@define(f"Tensor.new_full(self, size: ints, fill_value: float, *, {PLACE})")
def new_full(self, size, fill_value, dtype, layout, device, requires_grad, pin_memory):
    """Returns a tensor whose elements are all fill_value, of this tensor's dtype and device."""
    return constant(parse_sizes((size,)), fill_value, dtype or self.dtype, layout, device or self._device_name(), requires_grad)


@define(f"empty_strided(size: ints, stride: ints, *, {PLACE})")
@define(f"empty_permuted(size: ints, physical_layout: ints, *, {PLACE})")
def empty_strided(size, stride, dtype, layout, device, requires_grad, pin_memory):
    """Returns zeros of these sizes; the order in memory is not visible."""
    return constant(parse_sizes((size,)), 0, dtype or DEFAULTS[float], layout, device, requires_grad)


@define(f"Tensor.new_empty_strided(self, size: ints, stride: ints, *, {PLACE})")
def new_empty_strided(self, size, stride, dtype, layout, device, requires_grad, pin_memory):
    return constant(parse_sizes((size,)), 0, dtype or self.dtype, layout, device or self._device_name(), requires_grad)


@define(f"scalar_tensor(s: float, *, {PLACE})")
def scalar_tensor(s, dtype, layout, device, requires_grad, pin_memory):
    return constant((), s, dtype or DEFAULTS[float], layout, device, requires_grad)


# --------------------------------------------------------------------------------------- data

@define("tensor(data, *, dtype: dtype=None, device=None, requires_grad: bool=False, pin_memory: bool=False)")
def tensor(data, dtype, device, requires_grad, pin_memory):
    """Returns a tensor with a copy of the data: numbers, lists of them, arrays, tensors."""
    data = data.detach() if isinstance(data, Tensor) else data
    return _creation.tensor(data, dtype=dtype, device=device, requires_grad=requires_grad)


@define("as_tensor(data, dtype: dtype=None, device=None)")
def as_tensor(data, dtype, device):
    """Returns the data as a tensor; the data itself if it is a tensor of this dtype."""
    return data.to(dtype=dtype, device=device) if isinstance(data, Tensor) else _creation.tensor(data, dtype=dtype, device=device)


@define("asarray(obj, *, dtype: dtype=None, device=None, copy: bool=None, requires_grad: bool=False)")
def asarray(obj, dtype, device, copy, requires_grad):
    """Returns a tensor of the object, without a history unless requires_grad."""
    if not isinstance(obj, Tensor):
        if copy is False and not hasattr(obj, "__array_interface__"):
            raise ValueError(f"asarray: copy is False, and {type(obj).__name__} has no memory that a tensor could share")
        return _creation.tensor(obj, dtype=dtype, device=device, requires_grad=requires_grad)
    result = obj.to(dtype=dtype, device=device)
    if copy is False and result is not obj:
        raise ValueError("asarray: copy is False, and another dtype or device needs one")
    result = result.clone() if copy and result is obj else result
    result = result if requires_grad or not result.requires_grad else result.detach()
    return result.requires_grad_() if requires_grad and not result.requires_grad else result


@define("from_numpy(ndarray)")
def from_numpy(ndarray):
    """Returns a tensor of an array: a copy, to which later writes to the array are not visible."""
    import numpy
    if not isinstance(ndarray, numpy.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    return _creation.tensor(ndarray)


@define("frombuffer(buffer, *, dtype: dtype, count: int=-1, offset: int=0, requires_grad: bool=False)")
def frombuffer(buffer, dtype, count, offset, requires_grad):
    """Returns a tensor of `count` elements, a copy of a buffer's bytes from `offset` on."""
    dtype, data = _core.dtype(dtype), memoryview(buffer).cast("B")
    left = len(data) - offset
    if not 0 <= offset < len(data) or count == 0 or count < -1:
        raise ValueError(f"frombuffer: offset is {offset}, count is {count}, the buffer has {len(data)} bytes")
    if count == -1 and left % dtype.itemsize or count * dtype.itemsize > left:
        raise ValueError(f"frombuffer: there are {left} bytes for "
                         f"{'whole elements' if count == -1 else f'{count} elements'} of {dtype.name}")
    count = left // dtype.itemsize if count == -1 else count
    return finish_new_tensor(_core._of_bytes(data[offset:offset + count * dtype.itemsize], dtype, (count,)), requires_grad)


def _new(self, *args, device=None):
    """Returns zeros of these sizes, ints or a Size, or a tensor of the data, of this tensor's dtype and device."""
    device = device or self._device_name()
    if len(args) == 1 and not isinstance(args[0], (int, type(self.shape))):
        return tensor(args[0], self.dtype, device, False, False)
    return constant(parse_sizes(args) if args else (0,), 0, self.dtype, None, device, False)


Tensor.new = _new


@define("Tensor.new_tensor(self, data, *, dtype: dtype=None, device=None, requires_grad: bool=False, layout=None, "
        "pin_memory: bool=False)")
def new_tensor(self, data, dtype, device, requires_grad, layout, pin_memory):
    """Returns a tensor of the data, of this tensor's dtype and device unless others are given."""
    return tensor(data, dtype or self.dtype, device or self._device_name(), requires_grad, pin_memory)


# ------------------------------------------------------------------------------------- ranges

def _number(x):
    return x.item() if hasattr(x, "item") else x


def _check_range(name, start, end, step):
    if step == 0:
        raise RuntimeError(f"{name}: the step is 0")
    if not math.isfinite(start) or not math.isfinite(end):
        raise RuntimeError(f"{name}: numbers from {start} to {end} are asked for, which have no count")
    if (end - start) * step < 0:
        raise RuntimeError(f"{name}: upper bound and lower bound inconsistent with step sign: {start} to {end} by {step}")


def _progression(start, step, n, dtype):
    """Returns start + i step for n integers i: of integers in int64, else in float64."""
    wide = _core.float64 if dtype in FLOATS or not isinstance(start, int) or not isinstance(step, int) else _core.int64
    line = ops.iota(wide, (n,), 0)
    line = line if step == 1 else line * _core.asarray(step, dtype=wide)
    return ops.cast(line if start == 0 else line + _core.asarray(start, dtype=wide), dtype)


def _arange(name, start, end, step, dtype, inclusive=False):
    start, end, step = map(_number, (start, end, step))
    if dtype is None:
        dtype = DEFAULTS[float] if inclusive or float in map(type, (start, end, step)) else _core.int64
    dtype = _core.dtype(dtype)
    first, last, by = (start, end, step) if dtype in FLOATS else map(int, (start, end, step))
    if dtype == _core.int64 or inclusive:
        start, end, step = first, last, by
    _check_range(name, start, end, by and step)
    if isinstance(start, int) and isinstance(end, int) and isinstance(step, int):
        n = (end - start) // step + 1 if inclusive else -((start - end) // step)
    else:
        n = int((end - start) / step + 1) if inclusive else math.ceil((end - start) / step)
    return _progression(first, by, n, dtype)


@define(f"arange(end: float, *, {OPTIONS})")
def arange_to(end, dtype, layout, device, requires_grad, pin_memory):
    """Returns start, start + step, …, up to but not including end: integers if all three are, else floats."""
    return finish(_arange("arange", 0, end, 1, dtype), layout, device, requires_grad)


@define(f"arange(start: float, end: float, step: float=1, *, {OPTIONS})")
def arange(start, end, step, dtype, layout, device, requires_grad, pin_memory):
    return finish(_arange("arange", start, end, step, dtype), layout, device, requires_grad)


@define(f"range(start: float=0, end: float=None, step: float=1, *, {OPTIONS})")
def range_with_end(start, end, step, dtype, layout, device, requires_grad, pin_memory):
    """Returns start, start + step, …, up to end, floats unless a dtype is given."""
    start, end = (0, start) if end is None else (start, end)
    return finish(_arange("range", start, end, step, dtype, inclusive=True), layout, device, requires_grad)


def _line(name, start, end, steps, dtype):
    """Returns `steps` numbers from start to end in float64 or complex128, and the dtype of the result."""
    if steps < 0:
        raise RuntimeError(f"{name}: number of steps must be non-negative, it is {steps}")
    for x in (start, end):
        if isinstance(x, Tensor) and x.ndim:
            raise RuntimeError(f"{name} only supports 0-dimensional start and end tensors, but got one of {x.ndim} axes")
    is_complex = any(isinstance(x, complex) or isinstance(x, Tensor) and x.dtype in COMPLEX for x in (start, end))
    dtype = DEFAULTS[complex if is_complex else float] if dtype is None else _core.dtype(dtype)
    wide = _core.complex128 if dtype in COMPLEX else _core.float64
    if dtype not in FLOATS + COMPLEX:  # of integers, ends are integers
        start, end = (ops.trunc(ops.cast(x, wide)) if isinstance(x, Tensor) else int(x) for x in (start, end))
    return _creation.linspace(start, end, steps, dtype=wide), dtype


@define(f"linspace(start: float, end: float, steps: int, *, {OPTIONS})")
def linspace(start, end, steps, dtype, layout, device, requires_grad, pin_memory):
    """Returns `steps` numbers from start to end at equal distances."""
    line, dtype = _line("linspace", start, end, int(steps), dtype)
    return finish(ops.cast(line, dtype), layout, device, requires_grad)


@define(f"logspace(start: float, end: float, steps: int, base: float=10.0, *, {OPTIONS})")
def logspace(start, end, steps, base, dtype, layout, device, requires_grad, pin_memory):
    """Returns base to the powers that linspace gives."""
    line, dtype = _line("logspace", start, end, int(steps), dtype)
    return finish(ops.cast(ops.pow(_core.asarray(base, dtype=line.dtype), line), dtype), layout, device, requires_grad)


@define(f"eye(n: int, m: int=None, *, {OPTIONS})")
def eye(n, m, dtype, layout, device, requires_grad, pin_memory):
    """Returns a matrix (n, m) with ones on the diagonal, and zeros elsewhere."""
    if n < 0 or (m or 0) < 0:
        raise RuntimeError(f"eye: a matrix of {n} rows{'' if m is None else f' and {m} columns'} is asked for")
    return finish(_creation.eye(n, m, dtype=dtype), layout, device, requires_grad)


# ------------------------------------------------------------------------------------ complex

def _check_parts(name, a, b):
    if a.dtype != b.dtype or a.dtype not in (_core.float32, _core.float64):
        raise RuntimeError(f"{name}: the parts are {a.dtype.name} and {b.dtype.name}, both must be float32 or both float64")


@define("complex(real: Tensor, imag: Tensor, *, out=None)")
def complex_of_parts(real, imag):
    """Returns complex numbers of their real and imaginary parts."""
    _check_parts("complex", real, imag)
    return ops.complex(real, imag)


@define("polar(abs: Tensor, angle: Tensor, *, out=None)")
def polar(abs, angle):
    """Returns complex numbers of their absolute values and angles."""
    _check_parts("polar", abs, angle)
    return _elementwise.polar(abs, angle)
