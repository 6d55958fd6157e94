"""Initial values of parameters, drawn from the process's generator or another one."""
import functools
import math
import warnings

from .. import _core, _random
from .._core import ops
from .._dtypes import get_default_dtype
from .._grad import no_grad


def _write(tensor, value):
    with no_grad():
        return tensor.copy_(value)


def calculate_gain(nonlinearity, param=None):
    """Returns the factor that keeps the variance through a nonlinearity."""
    if nonlinearity in ("linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
                        "sigmoid"):
        return 1
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    known = {"tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 3.0 / 4}
    if nonlinearity not in known:
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    return known[nonlinearity]


def uniform_(tensor, a=0.0, b=1.0, generator=None):
    return _write(tensor, _random.uniform(tensor.shape, a, b, tensor.dtype, generator))


def normal_(tensor, mean=0.0, std=1.0, generator=None):
    return _write(tensor, _random.gaussian(tensor.shape, mean, std, tensor.dtype, generator))


def trunc_normal_(tensor, mean=0.0, std=1.0, a=-2.0, b=2.0, generator=None):
    """Draws from the normal distribution between a and b, by the inverse of its distribution function."""
    low, high = (math.erf((edge - mean) / (std * math.sqrt(2))) for edge in (a, b))
    wide = tensor.dtype if tensor.dtype == _core.float64 else _core.float32
    drawn = ops.erfinv(_random.uniform(tensor.shape, low, high, wide, generator)) * (std * math.sqrt(2)) + mean
    return _write(tensor, ops.clamp(drawn, float(a), float(b)))


def constant_(tensor, val):
    return _write(tensor, val)


def ones_(tensor):
    return _write(tensor, 1)


def zeros_(tensor):
    return _write(tensor, 0)


def eye_(tensor):
    if len(tensor.shape) != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    return _write(tensor, ops.one_hot(ops.iota("int32", (rows,), 0), columns, tensor.dtype))


def dirac_(tensor, groups=1):
    """Initialises a convolution that returns its input, as far as there are channels."""
    shape = tuple(tensor.shape)
    if len(shape) not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    if shape[0] % groups:
        raise ValueError("dim 0 must be divisible by groups")
    import numpy

    value = numpy.zeros(shape, "float32")
    each, middle = shape[0] // groups, tuple(size // 2 for size in shape[2:])
    for group in range(groups):
        for channel in range(min(each, shape[1])):
            value[(group * each + channel, channel) + middle] = 1
    return _write(tensor, value)


def _calculate_fan_in_and_fan_out(tensor):
    shape = tuple(tensor.shape)
    if len(shape) < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    taps = math.prod(shape[2:])
    return shape[1] * taps, shape[0] * taps


def xavier_uniform_(tensor, gain=1.0, generator=None):
    bound = gain * math.sqrt(6.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor, gain=1.0, generator=None):
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor))), generator)


def _kaiming_std(tensor, a, mode, nonlinearity):
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    fan = _calculate_fan_in_and_fan_out(tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def kaiming_uniform_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    if 0 in tensor.shape:
        return tensor
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    if 0 in tensor.shape:
        return tensor
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def orthogonal_(tensor, gain=1, generator=None):
    """Initialises a matrix whose rows, or columns if there are fewer of them, are orthonormal."""
    shape = tuple(tensor.shape)
    if len(shape) < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    import numpy

    rows, columns = shape[0], math.prod(shape[1:])
    wide = tensor.dtype if tensor.dtype == _core.float64 else _core.float32
    drawn = _random.gaussian((rows, columns), dtype=wide, generator=generator).numpy()
    q, r = numpy.linalg.qr(drawn.T if rows < columns else drawn)
    q = q * numpy.sign(numpy.diag(r))
    return _write(tensor, (q.T if rows < columns else q).reshape(shape) * gain)


def sparse_(tensor, sparsity, std=0.01, generator=None):
    """Draws normally distributed values, with a part of each column set to 0."""
    if len(tensor.shape) != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    order = ops.argsort(_random.uniform((rows, columns), generator=generator), axis=0)
    rank = ops.argsort(order, axis=0)
    drawn = _random.gaussian((rows, columns), 0.0, std, tensor.dtype, generator)
    return _write(tensor, ops.select(ops.less(rank, zeros), 0.0, drawn))


def _deprecated(function):
    """Returns the function by its name without an underscore, which warns."""
    old = function.__name__.rstrip("_")

    @functools.wraps(function)
    def initialize(*args, **kwargs):
        warnings.warn(f"`nn.init.{old}` is now deprecated in favor of `nn.init.{old}_`.", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    initialize.__name__ = old
    return initialize


uniform, normal, constant, eye, dirac, xavier_uniform, xavier_normal, kaiming_uniform, kaiming_normal, orthogonal, sparse = map(
    _deprecated, (uniform_, normal_, constant_, eye_, dirac_, xavier_uniform_, xavier_normal_, kaiming_uniform_, kaiming_normal_,
                  orthogonal_, sparse_))


def empty_parameter_values(shape, dtype=None):
    """Returns zeros, which a layer's reset_parameters overwrites."""
    return _core.full(tuple(shape), 0, dtype or get_default_dtype())
