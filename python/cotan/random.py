"""Random numbers from explicit keys, by the names of jax.random: the same key gives the same numbers,
whatever else is drawn.

Bits are JAX's under jax_threefry_partitionable=True, the default since JAX 0.5: keys, splits, bits, uniform,
bernoulli, randint, permutation and choice agree in every bit; functions of log, erf or tan differ in last
bits. A key is a tensor (2,) uint32; dtypes are float32 and int32 by default. Without keys, use
cotan.manual_seed, rand, randn, ... (PyTorch's)."""
import math

from . import _core
from ._core import Tensor, ops
from ._dtypes import finfo, iinfo
from ._searching import take

__all__ = """PRNGKey bernoulli bits categorical cauchy choice exponential fold_in gumbel key key_data laplace logistic
multivariate_normal normal permutation rademacher randint split truncated_normal uniform wrap_key_data""".split()
# Random bits of float16, float32, float64; bfloat16 draws 8 bits for its 7.
_MANTISSA = {16: 10, 32: 23, 64: 52}
_UNSIGNED = {8: _core.uint8, 16: _core.uint16, 32: _core.uint32, 64: _core.uint64}


def PRNGKey(seed):
    """Returns a key (2,) of an integer: its upper and its lower 32 bits."""
    if isinstance(seed, Tensor):
        low = ops.cast(seed, _core.uint32)
        high = ops.cast(seed >> 32, _core.uint32) if seed.itemsize == 8 else low * 0
        return ops.concat([ops.reshape(high, (1,)), ops.reshape(low, (1,))], 0)
    seed = int(seed) & (1 << 64) - 1
    return _core.random_key(seed - (1 << 64) if seed >> 63 else seed)


key = PRNGKey


def key_data(keys):
    """Returns the words of a key, which here is the key itself."""
    return keys


wrap_key_data = key_data


def split(key, num=2):
    """Returns num new keys (num, 2), or keys of a shape (*num, 2), from one, which should not be used
    again."""
    if isinstance(num, int):
        return ops.random_split(key, num)
    return ops.reshape(ops.random_split(key, math.prod(num)), (*num, 2))


def fold_in(key, data):
    """Returns a new key from a key and an integer, such as a step's number."""
    return ops.random_fold_in(key, data)


def _bits(key, shape, width):
    if width == 64:
        # (n, 2): both words of each counter.
        words = ops.cast(ops.random_split(key, math.prod(shape)), _core.uint64)
        return ops.reshape(words[:, 0] << 32 | words[:, 1], shape)
    result = ops.random_bits(key, shape)
    return result if width == 32 else ops.cast(result, _UNSIGNED[width])


def bits(key, shape=(), dtype=None):
    """Returns random bits as unsigned integers."""
    dtype = _core.dtype(dtype or _core.uint32)
    if dtype.kind != "u" or dtype.bits not in _UNSIGNED:
        raise TypeError(f"dtype argument to `bits` must be an unsigned int dtype, got {dtype!r}")
    return _bits(key, tuple(shape), dtype.bits)


def _float(name, dtype):
    dtype = _core.dtype(dtype or _core.float32)
    if dtype not in (_core.float16, _core.bfloat16, _core.float32, _core.float64):
        raise ValueError(f"dtype argument to `{name}` must be a float dtype, got {dtype!r}")
    return dtype


def _as_dtype(x, dtype):
    """Returns x in the dtype."""
    return ops.cast(x if isinstance(x, Tensor) else _core.asarray(x, dtype=dtype), dtype)


def uniform(key, shape=(), dtype=None, minval=0.0, maxval=1.0):
    """Returns floats from minval to maxval, maxval excluded, uniformly distributed."""
    dtype, shape = _float("uniform", dtype), tuple(shape)
    drawn, mantissa = (8, 7) if dtype == _core.bfloat16 else (dtype.bits, _MANTISSA[dtype.bits])
    unsigned = _UNSIGNED[dtype.bits]
    one = ops.bitcast(_core.asarray(1, dtype=dtype), unsigned)
    above = ops.cast(_bits(key, shape, drawn), unsigned) >> (drawn - mantissa) | one  # from 1 to 2
    floats = ops.bitcast(above, dtype) - _core.asarray(1, dtype=dtype)
    if not isinstance(minval, Tensor) and not isinstance(maxval, Tensor) and (minval, maxval) == (0, 1):
        return floats
    low, high = _as_dtype(minval, dtype), _as_dtype(maxval, dtype)
    return ops.maximum(low, floats * (high - low) + low)


def bernoulli(key, p=0.5, shape=None):
    """Returns bools that are true with probability p, a number or a tensor."""
    dtype = p.dtype if isinstance(p, Tensor) else _core.float32
    shape = (tuple(p.shape) if isinstance(p, Tensor) else ()) if shape is None else shape
    return ops.less(uniform(key, shape, dtype), _as_dtype(p, dtype))


def randint(key, shape, minval, maxval, dtype=None):
    """Returns integers from minval to maxval, maxval excluded."""
    dtype, shape = _core.dtype(dtype or _core.int32), tuple(shape)
    if dtype.kind not in "iu" or dtype.bits not in _UNSIGNED:
        raise TypeError(f"randint only accepts integer dtypes, got {dtype!r}")
    width, limits = dtype.bits, iinfo(dtype)
    keys = ops.random_split(key, 2)
    higher, lower = _bits(keys[0], shape, width), _bits(keys[1], shape, width)
    low, high = (_as_dtype(x if isinstance(x, Tensor) else min(max(x, limits.min), limits.max), dtype)
                 for x in (minval, maxval))
    unsigned = _UNSIGNED[width]
    one = _core.asarray(1, dtype=unsigned)
    span = ops.select(ops.less_equal(high, low), one, ops.cast(high - low, unsigned))
    if not isinstance(maxval, Tensor) and maxval > limits.max:  # the largest number is included, too
        span = ops.select(ops.greater(high, low), span + one, span)
        if not isinstance(minval, Tensor) and minval <= limits.min:
            return low + ops.cast(lower, dtype)  # the span is the whole range of the dtype
    unit = _core.asarray(1 << width // 2, dtype=unsigned) % span  # 2^width modulo the span
    unit = unit * unit % span
    offset = (higher % span * unit + lower % span) % span
    return low + ops.cast(offset, dtype)


def _shuffle(key, x, axis):
    """Sorts x by random numbers, in as many rounds as are needed so that no two elements had the same numbers
    in all of them."""
    size = x.numel()
    for _ in range(math.ceil(3 * math.log(max(1, size)) / math.log((1 << 32) - 1))):
        keys = ops.random_split(key, 2)
        key = keys[0]
        order = ops.argsort(ops.random_bits(keys[1], x.shape), axis=axis)
        x = ops.take_along(x, order, axis=axis)
    return x


def permutation(key, x, axis=0, independent=False):
    """Returns the integers 0 to x - 1, or x's slices along the axis, in a random order; independent: each
    slice along the axis in its own order."""
    if isinstance(x, int):
        return _shuffle(key, ops.iota(_core.int32, (x,), 0), 0)
    x = x if isinstance(x, Tensor) else _core.asarray(x)
    axis %= x.ndim
    if independent or x.ndim == 1:
        return _shuffle(key, x, axis)
    return take(x, _shuffle(key, ops.iota(_core.int32, (x.shape[axis],), 0), 0), axis)


def choice(key, a, shape=(), replace=True, p=None, axis=0):
    """Returns elements of a along the axis, or integers below a; p: their probabilities."""
    whole = None if isinstance(a, int) else a if isinstance(a, Tensor) else _core.asarray(a)
    n, draws = (a if whole is None else whole.shape[axis]), math.prod(shape)
    if n <= 0 < draws:
        raise ValueError("a must be greater than 0 unless no samples are taken")
    if not replace and draws > n:
        raise ValueError(f"Cannot take a larger sample (size {draws}) than population (size {n}) when 'replace=False'")
    if p is not None:
        p = p if isinstance(p, Tensor) else _core.asarray(p)
        if tuple(p.shape) != (n,):
            raise ValueError("p must be None or a 1D vector with the same size as a.shape[axis]. "
                             f"p has shape {tuple(p.shape)} and a.shape[axis] is {n}.")
    if p is None and not replace:
        x, index = permutation(key, a if whole is None else whole, axis), ops.iota(_core.int32, (draws,), 0)
    else:
        x = whole
        if p is None:
            index = randint(key, shape, 0, n)
        elif replace:
            cumulated = ops.cumsum(p, axis=0)
            index = ops.searchsorted(cumulated, cumulated[-1] * (1 - uniform(key, shape, p.dtype)))
        else:
            index = ops.argsort(-gumbel(key, (n,), p.dtype) - ops.log(p), axis=0)[:draws]
        index = ops.reshape(ops.cast(index, _core.int32), (draws,))
    if whole is None:
        return ops.reshape(index if x is None else x[:draws], shape)
    axis %= whole.ndim
    return ops.reshape(take(x, index, axis), (*whole.shape[:axis], *shape, *whole.shape[axis + 1:]))


def normal(key, shape=(), dtype=None):
    """Returns normally distributed floats of mean 0 and variance 1; for a complex dtype, both parts have
    variance 1/2."""
    dtype = _core.dtype(dtype or _core.float32)
    if dtype in (_core.complex64, _core.complex128):
        keys = ops.random_split(key, 2)
        part = _core.float32 if dtype == _core.complex64 else _core.float64
        real, imaginary = (normal(keys[i], shape, part) for i in range(2))
        return ops.complex(real, imaginary) / math.sqrt(2)
    dtype = _float("normal", dtype)
    if dtype == _core.float32:
        return ops.random_normal(key, tuple(shape))
    low = ops.nextafter(_core.asarray(-1, dtype=dtype), _core.asarray(0, dtype=dtype))
    return ops.erfinv(uniform(key, shape, dtype, low, 1.0)) * _core.asarray(math.sqrt(2), dtype=dtype)


def multivariate_normal(key, mean, cov, shape=None, dtype=None):
    """Returns normally distributed vectors of this mean (..., n) and covariance (..., n, n)."""
    mean, cov = (x if isinstance(x, Tensor) else _core.asarray(x) for x in (mean, cov))
    shape = tuple(mean.shape[:-1]) if shape is None else tuple(shape)
    drawn = normal(key, (*shape, mean.shape[-1]), dtype or mean.dtype)
    return mean + ops.reshape(ops.matmul(ops.cholesky(cov), ops.reshape(drawn, (*drawn.shape, 1))), drawn.shape)


def truncated_normal(key, lower, upper, shape=None, dtype=None):
    """Returns floats with the normal distribution between two bounds."""
    dtype = _float("truncated_normal", dtype)
    lower, upper = _as_dtype(lower, dtype), _as_dtype(upper, dtype)
    shape = tuple((lower + upper).shape) if shape is None else tuple(shape)
    root = _core.asarray(math.sqrt(2), dtype=dtype)
    result = root * ops.erfinv(uniform(key, shape, dtype, ops.erf(lower / root), ops.erf(upper / root)))
    infinity = _core.asarray(math.inf, dtype=dtype)
    return ops.minimum(ops.maximum(result, ops.nextafter(lower, infinity)), ops.nextafter(upper, -infinity))


def exponential(key, shape=(), dtype=None):
    """Returns floats with the exponential distribution of mean 1."""
    return -ops.log1p(-uniform(key, shape, _float("exponential", dtype)))


def gumbel(key, shape=(), dtype=None):
    """Returns floats with the Gumbel distribution."""
    dtype = _float("gumbel", dtype)
    return -ops.log(-ops.log(uniform(key, shape, dtype, finfo(dtype).tiny, 1.0)))


def categorical(key, logits, axis=-1, shape=None):
    """Returns indices along the axis, drawn with the softmax of the logits as their probabilities."""
    logits = logits if isinstance(logits, Tensor) else _core.asarray(logits)
    axis = axis - logits.ndim if axis >= 0 else axis
    batch = list(logits.shape)
    n = batch.pop(axis)
    shape = tuple(batch) if shape is None else tuple(shape)
    ahead, own = shape[:len(shape) - len(batch)], list(shape[len(shape) - len(batch):])
    own.insert(axis % logits.ndim, n)
    return ops.cast(ops.argmax(gumbel(key, (*ahead, *own), logits.dtype) + logits, axis=axis), _core.int32)


def laplace(key, shape=(), dtype=None):
    """Returns floats with the Laplace distribution."""
    dtype = _float("laplace", dtype)
    drawn = uniform(key, shape, dtype, -1.0 + finfo(dtype).eps / 2, 1.0)
    return ops.sign(drawn) * ops.log1p(-ops.abs(drawn))


def logistic(key, shape=(), dtype=None):
    """Returns floats with the logistic distribution."""
    dtype = _float("logistic", dtype)
    drawn = uniform(key, shape, dtype, finfo(dtype).eps, 1.0)
    return ops.log(drawn / (1 - drawn))


def cauchy(key, shape=(), dtype=None):
    """Returns floats with the Cauchy distribution."""
    dtype = _float("cauchy", dtype)
    drawn = uniform(key, shape, dtype, finfo(dtype).eps, 1.0)
    return ops.tan((drawn - 0.5) * math.pi)


def rademacher(key, shape=(), dtype=None):
    """Returns 1 or -1, both with probability 1/2."""
    return ops.cast(ops.cast(bernoulli(key, 0.5, shape), _core.int32) * 2 - 1, dtype or _core.int32)
