"""Activations, and other elementwise functions."""
import functools

from ... import _core
from ..._core import ops
from ..._dtypes import FLOATS
from ..._random import unit_floats, next_key
from .base import axis_of, concat, in_float32_if_narrow, slice_axis, finish_inplace

__all__ = [
    "alpha_dropout", "celu", "celu_", "channel_shuffle", "dropout", "dropout1d", "dropout2d", "dropout3d", "elu", "elu_",
    "feature_alpha_dropout", "gelu", "glu", "gumbel_softmax", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "hardtanh_",
    "leaky_relu", "leaky_relu_", "log_softmax", "logsigmoid", "mish", "native_channel_shuffle", "normalize", "prelu", "relu",
    "relu6", "relu_", "rrelu", "rrelu_",
    "selu", "selu_", "sigmoid", "silu", "softmax", "softmin", "softplus", "softshrink", "softsign", "tanh", "tanhshrink",
    "threshold", "threshold_"]


def relu(input, inplace=False):
    return finish_inplace(input, ops.relu(input), inplace)


def relu_(input):
    return relu(input, True)


def relu6(input, inplace=False):
    return finish_inplace(input, ops.relu6(input), inplace)


def hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False):
    if input.dtype not in FLOATS:
        return finish_inplace(input, ops.clamp(input, int(min_val), int(max_val)), inplace)
    return finish_inplace(input, ops.hardtanh(input, low=float(min_val), high=float(max_val)), inplace)


def sigmoid(input):
    return ops.sigmoid(input)


def tanh(input):
    return ops.tanh(input)


def silu(input, inplace=False):
    return finish_inplace(input, ops.silu(input), inplace)


def gelu(input, approximate="none"):
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    return ops.gelu(input, exact=approximate == "none")


def elu(input, alpha=1.0, inplace=False):
    return finish_inplace(input, ops.elu(input, alpha=alpha), inplace)


def selu(input, inplace=False):
    return finish_inplace(input, ops.selu(input), inplace)


def celu(input, alpha=1.0, inplace=False):
    return finish_inplace(input, ops.celu(input, alpha=alpha), inplace)


def leaky_relu(input, negative_slope=0.01, inplace=False):
    return finish_inplace(input, ops.leaky_relu(input, slope=negative_slope), inplace)


def prelu(input, weight):
    """The slope below 0 is the weight: one number, or one for each channel."""
    if weight.shape and weight.shape[0] != 1:
        if len(input.shape) < 2 or input.shape[1] != weight.shape[0]:
            raise RuntimeError(f"prelu: the weight has {weight.shape[0]} channels, the input is {tuple(input.shape)}")
        weight = ops.reshape(weight, (-1,) + (1,) * (len(input.shape) - 2))
    return ops.prelu(input, weight if input.shape else ops.reshape(weight, ()))


def rrelu(input, lower=1.0 / 8, upper=1.0 / 3, training=False, inplace=False):
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    slope = unit_floats(tuple(input.shape), input.dtype) * (upper - lower) + lower
    return finish_inplace(input, ops.select(ops.greater_equal(input, 0.0), input, input * slope), inplace)


def glu(input, dim=-1):
    dim = axis_of(input, dim)
    n = input.shape[dim]
    if n % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim} is size {n}")
    return slice_axis(input, dim, 0, n // 2) * ops.sigmoid(slice_axis(input, dim, n // 2, n))


def hardsigmoid(input, inplace=False):
    return finish_inplace(input, ops.hardsigmoid(input), inplace)


def hardswish(input, inplace=False):
    return finish_inplace(input, ops.hardswish(input), inplace)


def hardshrink(input, lambd=0.5):
    inside = ops.less_equal(ops.abs(input), float(lambd))
    return ops.select(inside, 0.0, input)


def softshrink(input, lambd=0.5):
    if lambd < 0:
        raise RuntimeError(f"lambda must be greater or equal to 0, but found to be {lambd}.")
    return ops.softshrink(input, **{"lambda": float(lambd)})


def tanhshrink(input):
    return input - ops.tanh(input if input.dtype in FLOATS else ops.cast(input, "float32"))


def softplus(input, beta=1.0, threshold=20.0):
    scaled = input * beta
    large = ops.greater(scaled, float(threshold))
    return ops.select(large, input, ops.softplus(ops.select(large, 0.0, scaled)) / beta)


def softsign(input):
    return input / (ops.abs(input) + 1.0)


def mish(input, inplace=False):
    return finish_inplace(input, ops.mish(input), inplace)


def logsigmoid(input):
    return ops.log_sigmoid(input)


def threshold(input, threshold, value, inplace=False):
    if input.dtype not in FLOATS:
        return finish_inplace(input, ops.select(ops.greater(input, int(threshold)), input, int(value)), inplace)
    return finish_inplace(input, ops.threshold(input, float(threshold), float(value)), inplace)


def _in_place(function):
    """Returns the variant of an activation that writes to its input."""
    @functools.wraps(function)
    def variant(input, *args, **options):
        return function(input, *args, **options, inplace=True)

    variant.__name__ = variant.__qualname__ = function.__name__ + "_"
    return variant


celu_, elu_, hardtanh_, leaky_relu_, rrelu_, selu_, threshold_ = map(
    _in_place, (celu, elu, hardtanh, leaky_relu, rrelu, selu, threshold))


def _default_axis(input, dim):
    if dim is None:
        return 0 if len(input.shape) in (0, 1, 3) else 1
    return dim


def softmax(input, dim=None, _stacklevel=3, dtype=None):
    input = input if dtype is None else ops.cast(input, dtype)
    return ops.softmax(input, axes=(_default_axis(input, dim),)) if input.shape else input * 0.0 + 1.0


def log_softmax(input, dim=None, _stacklevel=3, dtype=None):
    input = input if dtype is None else ops.cast(input, dtype)
    return ops.log_softmax(input, axes=(_default_axis(input, dim),)) if input.shape else input * 0.0


def softmin(input, dim=None, _stacklevel=3, dtype=None):
    return softmax(-input, dim, dtype=dtype)


def gumbel_softmax(logits, tau=1, hard=False, eps=1e-10, dim=-1):
    noise = -ops.log(-ops.log(unit_floats(tuple(logits.shape), logits.dtype) + 2.0**-33))
    soft = softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    dim = axis_of(soft, dim)
    shape = [1] * len(soft.shape)
    shape[dim] = soft.shape[dim]
    places = ops.iota("int32", shape, dim)
    best = ops.cast(ops.equal(places, ops.argmax(soft, axis=dim, keepdims=True)), soft.dtype)
    return best - _core._snapshot(soft) + soft


def normalize(input, p=2.0, dim=1, eps=1e-12, out=None):
    wide = in_float32_if_narrow(input)
    norm = vector_norm(wide, p, dim, keepdim=True) if input.shape else ops.abs(wide)
    result = ops.cast(wide / ops.maximum(norm, float(eps)), input.dtype)
    return result if out is None else out.copy_(result)


def vector_norm(x, p=2.0, dim=None, keepdim=False):
    """Returns the p-norm over an axis, or over all; its gradient at 0 is 0."""
    axes = () if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    return ops.cast(ops.vector_norm(in_float32_if_narrow(x), axes=axes, keepdims=keepdim, ord=float(p)), x.dtype)


# ----------------------------------------------------------------------------------------- dropout


def _check_dropout_probability(p):
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def dropout(input, p=0.5, training=True, inplace=False):
    _check_dropout_probability(p)
    if not training or p == 0:
        return input
    return finish_inplace(input, input * 0.0 if p == 1 else ops.dropout(input, next_key(), float(p)), inplace)


def _dropout_channels(input, p, training, inplace, batched_rank):
    _check_dropout_probability(p)
    if not training or p == 0:
        return input
    shape = tuple(input.shape)
    kept = shape[:2] if len(shape) >= batched_rank else shape[:1]
    mask = ops.cast(ops.random_bernoulli(next_key(), 1.0 - p, kept + (1,) * (len(shape) - len(kept))), input.dtype)
    return finish_inplace(input, input * 0.0 if p == 1 else input * (mask / (1 - p)), inplace)


def dropout1d(input, p=0.5, training=True, inplace=False):
    return _dropout_channels(input, p, training, inplace, 3)


def dropout2d(input, p=0.5, training=True, inplace=False):
    return _dropout_channels(input, p, training, inplace, 3)  # PyTorch, too, takes 3 axes as a batch


def dropout3d(input, p=0.5, training=True, inplace=False):
    return _dropout_channels(input, p, training, inplace, 5)


def _alpha_dropout_with_mask(input, p, mask):
    """Sets the elements that are dropped to SELU's lowest value, scaled so that mean and variance are
    kept."""
    if p == 1:
        return input * 0.0
    low = -1.7580993408473766
    a = (1 - p + p * low * low * (1 - p)) ** -0.5
    return ops.select(mask, input, low) * a + -a * low * p


def alpha_dropout(input, p=0.5, training=False, inplace=False):
    _check_dropout_probability(p)
    if not training or p == 0:
        return input
    return finish_inplace(input, _alpha_dropout_with_mask(input, p, ops.random_bernoulli(next_key(), 1.0 - p, tuple(input.shape))), inplace)


def feature_alpha_dropout(input, p=0.5, training=False, inplace=False):
    _check_dropout_probability(p)
    if not training or p == 0:
        return input
    shape = tuple(input.shape)
    mask = ops.random_bernoulli(next_key(), 1.0 - p, shape[:2] + (1,) * (len(shape) - 2))
    return finish_inplace(input, _alpha_dropout_with_mask(input, p, mask), inplace)


def channel_shuffle(input, groups):
    n, c, *rest = input.shape
    parts = ops.reshape(input, (n, groups, c // groups, *rest))
    axes = [0, 2, 1, *range(3, len(rest) + 3)]
    return ops.reshape(ops.permute(parts, axes), (n, c, *rest))


native_channel_shuffle = channel_shuffle


def halves(input, dim, n):
    """Returns n equal parts along an axis."""
    size = input.shape[dim] // n
    return [slice_axis(input, dim, i * size, (i + 1) * size) for i in range(n)]
