"""What the functions of this package are made of."""
from ... import _core
from ..._core import ops
from ..._dtypes import FLOATS
from ..._shaping import joined as concat

Tensor = _core.Tensor


def axis_of(x, axis):
    """A negative axis counts from the end."""
    return axis + len(x.shape) if axis < 0 else axis


def per_axis(value, n):
    """A number for each of n axes, given as one for all or as a sequence."""
    if isinstance(value, int):
        return (value,) * n
    value = tuple(value)
    return value * n if len(value) == 1 else value


def take(x, axis, start, stop, step=1):
    """Elements start to stop along an axis."""
    return ops.slice(x, axes=(axis,), start=(start,), stop=(stop,), step=(step,))


def pick(x, axis, index):
    """Element `index` along an axis, which goes."""
    axis = axis_of(x, axis)
    shape = tuple(x.shape)
    return ops.reshape(take(x, axis, index, index + 1), shape[:axis] + shape[axis + 1:])


def stack(parts, axis=0):
    """The parts side by side along a new axis."""
    shape = list(parts[0].shape)
    shape.insert(axis if axis >= 0 else axis + len(shape) + 1, 1)
    return concat([ops.reshape(part, shape) for part in parts], axis)


def swap(x, a, b):
    """Two axes exchanged."""
    axes = list(range(len(x.shape)))
    axes[a], axes[b] = axes[b], axes[a]
    return ops.permute(x, axes)


def move(x, source, target):
    """One axis at another place, the others in their order."""
    axes = list(range(len(x.shape)))
    axes.insert(target if target >= 0 else target + len(axes), axes.pop(source))
    return ops.permute(x, axes)


def channels(weight, rank):
    """(C,) so that it goes with (N, C, ...) of this rank."""
    return ops.reshape(weight, (1, -1) + (1,) * (rank - 2))


def reduced(values, reduction, weight=None):
    """A loss of its elements: their mean, their sum, or themselves."""
    if reduction == "mean":
        return ops.mean(values)
    if reduction == "sum":
        return ops.sum(values)
    if reduction == "none":
        return values
    raise ValueError(f"{reduction} is not a valid value for reduction")


def in_float32(*tensors):
    """Floats of 16 bits in float32 where autocasting is on: what PyTorch's list says of losses."""
    if _core._autocast_dtype() == _core.float32:
        return tensors
    return tuple(ops.cast(x, "float32") if isinstance(x, Tensor) and x.dtype in (_core.float16, _core.bfloat16) else x
                 for x in tensors)


def in_wide(x):
    """Floats of few bits in float32, whose squares have numbers."""
    return ops.cast(x, "float32") if x.dtype in FLOATS and x.dtype.itemsize < 4 else x


def with_bias(y, bias):
    """A product and its bias, which autocasting takes for one op."""
    if bias is None:
        return y
    return y + (bias if _core._autocast_dtype() == _core.float32 else ops.cast(bias, y.dtype))


def written(x, y, inplace):
    """The result of a function that may be asked to write to its operand."""
    return x.copy_(y) if inplace else y
