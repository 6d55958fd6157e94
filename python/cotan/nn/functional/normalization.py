"""Norms: x minus a mean, divided by a root, over the last axes, channels or groups of them."""
import math

from ... import _core
from ..._core import ops
from ..._grad import no_grad
from .base import channel_shape

_EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def _flatten_normalized(input, normalized_shape):
    """Returns the last axes as one."""
    wanted, shape = tuple(normalized_shape), tuple(input.shape)
    if not wanted or shape[-len(wanted):] != wanted:
        stars = ", ".join(["*", *map(str, wanted)])
        raise RuntimeError(f"Given normalized_shape={list(wanted)}, expected input with shape [{stars}], but got input of "
                           f"size{list(shape)}")
    return input if len(wanted) == 1 else ops.reshape(input, shape[:-len(wanted)] + (math.prod(wanted),))


def _as_vector(weight):
    return weight if weight is None or len(weight.shape) == 1 else ops.reshape(weight, (-1,))


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    x = _flatten_normalized(input, normalized_shape)
    y = ops.layer_norm(x, _as_vector(weight), _as_vector(bias), eps=eps)
    return y if x is input else ops.reshape(y, tuple(input.shape))


def rms_norm(input, normalized_shape, weight=None, eps=None):
    x = _flatten_normalized(input, normalized_shape)
    eps = _EPS[repr(input.dtype).rpartition(".")[2]] if eps is None else eps
    y = ops.rms_norm(x, _as_vector(weight), eps=eps)
    return y if x is input else ops.reshape(y, tuple(input.shape))


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5):
    if input.shape[1] % num_groups:
        raise RuntimeError(f"Expected number of channels in input to be divisible by num_groups, but got input of shape "
                           f"{list(input.shape)} and num_groups={num_groups}")
    return ops.group_norm(input, weight, bias, groups=num_groups, eps=eps)


def _check_more_than_one(input, axes, why):
    if math.prod(input.shape[axis] for axis in axes) <= 1:
        raise ValueError(f"{why}, got input size {input.shape!r}")


def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    """In training, the running statistics are updated in place by the batch's; momentum may be a tensor."""
    return counted_batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps, ())


def counted_batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps, counted):
    """The same as batch_norm(); counted: None, or a tensor and the value that is written to it with the
    statistics."""
    if not training:
        return ops.batch_norm(input, running_mean, running_var, weight, bias, eps=eps)
    rank = len(input.shape)
    if 0 in input.shape:  # an empty batch has no statistics: the running ones stay
        with no_grad():
            _core._write([*counted[:1]], [*counted[1:]])
        return input * 1.0 if weight is None else input * channel_shape(weight, rank)
    _check_more_than_one(input, [axis for axis in range(rank) if axis != 1], "Expected more than 1 value per channel when training")
    mean, var = running_mean, running_var
    if mean is None:
        mean = ops.expand(ops.cast(0.0, input.dtype), (input.shape[1],))
        var = mean
    tensor = isinstance(momentum, _core.Tensor)
    y, mean, var = ops.batch_norm_train(input, mean, var, weight, bias, eps=eps, momentum=1.0 if tensor else momentum)
    if running_mean is not None:
        with no_grad():
            if tensor:
                mean = running_mean + (mean - running_mean) * momentum
                var = running_var + (var - running_var) * momentum
            _core._write([running_mean, running_var, *counted[:1]], [mean, var, *counted[1:]])
    return y


def instance_norm(input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1,
                  eps=1e-5):
    if not use_input_stats:
        return ops.batch_norm(input, running_mean, running_var, weight, bias, eps=eps)
    axes = tuple(range(2, len(input.shape)))
    _check_more_than_one(input, axes, "Expected more than 1 spatial element when training")
    if running_mean is not None:
        with no_grad():
            mean = ops.mean(ops.mean(input, axes=axes), axes=(0,))
            var = ops.mean(ops.var(input, axes=axes, correction=1), axes=(0,))
            _core._write([running_mean, running_var], [running_mean * (1 - momentum) + mean * momentum,
                                                       running_var * (1 - momentum) + var * momentum])
    return ops.instance_norm(input, weight, bias, eps=eps)


def local_response_norm(input, size, alpha=1e-4, beta=0.75, k=1.0):
    """Divides each element by a power of the mean square of its neighbours in the channels."""
    if len(input.shape) < 3:
        raise ValueError(f"Expected 3D or higher dimensionality input (got {len(input.shape)} dimensions)")
    near = ops.windows(input * input, axes=(1,), size=(size,), low=(size // 2,), high=((size - 1) // 2,))
    mean = ops.sum(near, axes=(-1,)) / float(size)
    return input / ops.pow(mean * alpha + k, float(beta))




__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "rms_norm"]
