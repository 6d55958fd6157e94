"""Helpers of the functions of this package."""
from ... import _core
from ..._core import ops
from ..._dtypes import FLOATS
from ..._shaping import concat_parts as concat

Tensor = _core.Tensor


def axis_of(x, axis):
    """Returns the axis, counted from the start."""
    return axis + len(x.shape) if axis < 0 else axis


def per_axis(value, n):
    """Returns a number for each of n axes, given as one for all or as a sequence."""
    if isinstance(value, int):
        return (value,) * n
    value = tuple(value)
    return value * n if len(value) == 1 else value


def slice_axis(x, axis, start, stop, step=1):
    """Returns elements start to stop along an axis."""
    return ops.slice(x, axes=(axis,), start=(start,), stop=(stop,), step=(step,))


def index_axis(x, axis, index):
    """Returns element `index` along an axis, which is removed."""
    axis = axis_of(x, axis)
    shape = tuple(x.shape)
    return ops.reshape(slice_axis(x, axis, index, index + 1), shape[:axis] + shape[axis + 1:])


def stack(parts, axis=0):
    """Stacks the parts along a new axis."""
    shape = list(parts[0].shape)
    shape.insert(axis if axis >= 0 else axis + len(shape) + 1, 1)
    return concat([ops.reshape(part, shape) for part in parts], axis)


def swap_axes(x, a, b):
    """Exchanges two axes."""
    axes = list(range(len(x.shape)))
    axes[a], axes[b] = axes[b], axes[a]
    return ops.permute(x, axes)


def move_axis(x, source, target):
    """Moves one axis to another position; the others stay in order."""
    axes = list(range(len(x.shape)))
    axes.insert(target if target >= 0 else target + len(axes), axes.pop(source))
    return ops.permute(x, axes)


def channel_shape(weight, rank):
    """Reshapes (C,) so that it broadcasts to (N, C, ...) of this rank."""
    return ops.reshape(weight, (1, -1) + (1,) * (rank - 2))


def reduce_loss(values, reduction, weight=None):
    """Reduces the elements of a loss: to their mean, their sum, or not at all."""
    if reduction == "mean":
        return ops.mean(values)
    if reduction == "sum":
        return ops.sum(values)
    if reduction == "none":
        return values
    raise ValueError(f"{reduction} is not a valid value for reduction")


def in_float32(*tensors):
    """Casts 16-bit floats to float32 if autocasting is on, as PyTorch's list requires for losses."""
    if _core._autocast_dtype() == _core.float32:
        return tensors
    return tuple(ops.cast(x, "float32") if isinstance(x, Tensor) and x.dtype in (_core.float16, _core.bfloat16) else x
                 for x in tensors)


def in_float32_if_narrow(x):
    """Casts floats of few bits to float32, in which their squares do not overflow."""
    return ops.cast(x, "float32") if x.dtype in FLOATS and x.dtype.itemsize < 4 else x


def with_bias(y, bias):
    """Adds a bias to a product; autocasting treats both as one op."""
    if bias is None:
        return y
    return y + (bias if _core._autocast_dtype() == _core.float32 else ops.cast(bias, y.dtype))


def finish_inplace(x, y, inplace):
    """Returns the result of a function that may be asked to write in place."""
    return x.copy_(y) if inplace else y
