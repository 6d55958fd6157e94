"""Elementwise functions, by the names of the array API standard, NumPy and PyTorch."""
import builtins
import math

from . import _core, _dtypes
from ._core import Tensor, ops
from ._dtypes import BOOL, COMPLEX, FLOATS, INTEGERS, SIGNED, result_type
from ._paths import own_names as _own_names

e, pi, inf, nan, newaxis = math.e, math.pi, math.inf, math.nan, None

# Names of ops, and names by which NumPy and PyTorch call them; mod is NumPy's, with the sign of the divisor.
_SAME = """abs acos acosh add asin asinh atan atan2 atanh cbrt copysign cos cosh deg2rad digamma equal erf erfc erfinv exp exp2
    expm1 fmax fmin gelu greater greater_equal heaviside hypot less less_equal lgamma log log10 log1p log2 logaddexp logit
    maximum minimum mul nan_to_num neg nextafter not_equal pow rad2deg reciprocal relu remainder rsqrt selu sigmoid signbit
    silu sin sinc sinh sqrt square tan tanh xlogy angle sign"""
_OTHER = """absolute=abs  fabs=abs  arccos=acos  arccosh=acosh  bitwise_and=and_  arcsin=asin  arcsinh=asinh  arctan=atan  arctan2=atan2
arctanh=atanh  radians=deg2rad  eq=equal  gt=greater  ge=greater_equal  isfinite=is_finite  isinf=is_inf  isnan=is_nan
lt=less  le=less_equal  fmod=mod  multiply=mul  negative=neg  bitwise_invert=not_  bitwise_not=not_  invert=not_
ne=not_equal  bitwise_or=or_  power=pow  degrees=rad2deg  mod=remainder  bitwise_xor=xor"""
_OPS = {name: getattr(ops, op or name) for name, _, op in (pair.partition("=") for pair in (_SAME + " " + _OTHER).split())}
globals().update(_OPS)


def value(x):
    """Returns x as an operand of operators: a Tensor or a number."""
    return x if isinstance(x, (Tensor, bool, int, float, builtins.complex)) else _core.asarray(x)


def promote_pair(x1, x2):
    """Returns two tensors in the dtype to which the array API standard promotes them; operators count a 0-d
    tensor less."""
    if isinstance(x1, Tensor) and isinstance(x2, Tensor) and x1.dtype != x2.dtype and bool(x1.ndim) != bool(x2.ndim):
        dtype = _dtypes.promote_types(x1.dtype, x2.dtype)
        return ops.cast(x1, dtype), ops.cast(x2, dtype)
    return x1, x2


def strong(x):
    return x if isinstance(x, Tensor) else _core.asarray(x)


def scalar_of_dtype(value, dtype):
    """Returns a value in a dtype; a number keeps all its digits, while a Python float alone would be
    float32."""
    wide = FLOATS if isinstance(value, (int, float)) else COMPLEX if isinstance(value, builtins.complex) else ()
    return _core.asarray(value, dtype=dtype) if dtype in wide else ops.cast(strong(value), dtype)


def root_with_zero_grad(x, p=2):
    """Returns x to the power 1 / p; its gradient at 0 is 0."""
    none = ops.equal(x, 0.0)
    safe = ops.select(none, 1.0, x)
    return ops.select(none, 0.0, ops.sqrt(safe) if p == 2 else ops.pow(safe, 1.0 / p))


def subtract(x1, x2, /, *, alpha=1):
    """Returns x1 - alpha x2."""
    return ops.sub(x1, x2 if alpha == 1 else x2 * alpha)


def divide(x1, x2, /, *, rounding_mode=None):
    """Returns x1 / x2 in floats; rounding_mode "floor" rounds down, "trunc" towards zero."""
    if rounding_mode == "floor":
        return ops.floor_divide(x1, x2)
    if rounding_mode == "trunc":
        quotient = ops.div(x1, x2)
        return quotient if quotient.dtype in INTEGERS else ops.trunc(quotient)
    if rounding_mode is not None:
        raise ValueError(f"divide: rounding_mode is None, \"floor\" or \"trunc\", not {rounding_mode!r}")
    x1, x2 = promote_pair(value(x1), value(x2))
    return (x1 if isinstance(x1, Tensor) or isinstance(x2, Tensor) else strong(x1)) / x2


sub, div, true_divide = subtract, divide, divide


def floor_divide(x1, x2, /):
    """Returns the largest integer that is at most x1 / x2, as x1 // x2 does."""
    x1, x2 = promote_pair(value(x1), value(x2))
    return (x1 if isinstance(x1, Tensor) or isinstance(x2, Tensor) else strong(x1)) // x2


def bitwise_left_shift(x1, x2, /):
    """Returns x1 times 2 to the power x2; bits that are shifted out at the left are lost."""
    x1, x2 = promote_pair(value(x1), value(x2))
    return x1 << x2


def bitwise_right_shift(x1, x2, /):
    """Returns x1 divided by 2 to the power x2, rounded down."""
    x1, x2 = promote_pair(value(x1), value(x2))
    return x1 >> x2


left_shift, right_shift = bitwise_left_shift, bitwise_right_shift


def _rounding_op(name):
    op = getattr(ops, name)

    def function(x, /):
        x = strong(x)
        return +x if x.dtype in INTEGERS or x.dtype in BOOL else op(x)

    function.__name__, function.__doc__ = name, op.__doc__
    return function


ceil, floor, trunc = _rounding_op("ceil"), _rounding_op("floor"), _rounding_op("trunc")
fix = trunc


def _round_integers(x, unit):
    """Returns the nearest multiples of a power of 10 that the dtype holds; halves are rounded to even."""
    limits = _dtypes.iinfo(x.dtype)
    if unit > limits.max:
        return x * 0
    whole = ops.div(x, unit)  # rounded towards 0
    near = whole * unit
    rest, odd = ops.abs(x - near), ops.not_equal(ops.mod(whole, 2), 0)
    away = ops.or_(ops.greater(rest, unit // 2), ops.and_(ops.equal(rest, unit // 2), odd))
    up = ops.and_(away, ops.less_equal(near, limits.max - unit))
    if x.dtype not in SIGNED:
        return ops.select(up, near + unit, near)
    down = ops.and_(away, ops.greater_equal(near, limits.min + unit))
    below = ops.less(x, 0)
    return ops.select(ops.and_(below, down), near - unit, ops.select(ops.and_(ops.not_(below), up), near + unit, near))


def _round_floats(x, decimals):
    limits = _dtypes.finfo(x.dtype)
    largest = int(math.log10(limits.max))
    if decimals < -largest:
        return ops.select(ops.is_finite(x), x * 0.0, x)
    if decimals < 0:
        return ops.round(x / 10.0**-decimals) * 10.0**-decimals
    if decimals > 2 * largest:
        return +x
    parts = [10.0**part for part in (min(decimals, largest), decimals - largest) if part > 0]
    scaled = x
    for part in parts:
        scaled = scaled * part
    nearest = ops.round(scaled)
    for part in reversed(parts):
        nearest = nearest / part
    # Numbers above 1 / eps have no fraction: each is its own nearest.
    return ops.select(ops.less(ops.abs(scaled), 1 / limits.eps), nearest, ops.stop_gradient(x))


def round(x, /, decimals=0):
    """Returns the nearest integer, with halves rounded to even; or the nearest number with so many decimals
    (negative: before the point)."""
    x = strong(x)
    if x.dtype in INTEGERS:
        return _round_integers(x, 10**-decimals) if decimals < 0 else +x
    if x.dtype in COMPLEX:
        return ops.complex(round(ops.real(x), decimals), round(ops.imag(x), decimals))
    if not decimals:
        return ops.round(x)
    x = x if x.dtype in FLOATS else ops.cast(x, _core.float32)
    if x.dtype.itemsize < 4:
        return ops.cast(_round_floats(ops.cast(x, _core.float32), decimals), x.dtype)
    return _round_floats(x, decimals)


around = rint = round


def positive(x, /):
    return +strong(x)


def conj(x, /):
    x = strong(x)
    return _core._view(x, (("conj",),)) if x.dtype in COMPLEX else x


conjugate = conj


def real(x, /):
    x = strong(x)
    return _core._view(x, (("real",),)) if x.dtype in COMPLEX else x


def imag(x, /):
    x = strong(x)
    return _core._view(x, (("imag",),)) if x.dtype in COMPLEX else ops.sub(x, x)


def float_power(x1, x2, /):
    """Returns x1 to the power x2 in float64, or in complex128 for complex numbers."""
    x1, x2 = (x if isinstance(x, Tensor) else strong(x) for x in (x1, x2))
    wide = _core.complex128 if x1.dtype in COMPLEX or x2.dtype in COMPLEX else _core.float64
    return ops.pow(ops.cast(x1, wide), ops.cast(x2, wide))


def isclose(a, b, rtol=1e-5, atol=1e-8, equal_nan=False):
    """True where elements are close to each other: |a - b| is at most atol + rtol |b|."""
    a, b = strong(a), strong(b)
    if a.dtype in FLOATS + COMPLEX or b.dtype in FLOATS + COMPLEX:
        return ops.isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)
    near = ops.isclose(*(ops.cast(x, _core.float64) for x in (a, b)), rtol=rtol, atol=atol)
    return ops.equal(a, b) if not rtol and not atol else ops.or_(ops.equal(a, b), near)


def _as_bool(x):
    x = strong(x)
    return x if x.dtype in BOOL else ops.not_equal(x, 0)


def logical_and(x1, x2, /):
    return ops.and_(_as_bool(x1), _as_bool(x2))


def logical_or(x1, x2, /):
    return ops.or_(_as_bool(x1), _as_bool(x2))


def logical_xor(x1, x2, /):
    return ops.xor(_as_bool(x1), _as_bool(x2))


def logical_not(x, /):
    return ops.not_(_as_bool(x))


def clip(x, /, min=None, max=None):
    """Limits x to at least min and at most max (numbers or tensors; None: no limit), in x's dtype."""
    x = strong(x)
    low = ops.cast(min, x.dtype) if isinstance(min, Tensor) else min
    high = ops.cast(max, x.dtype) if isinstance(max, Tensor) else max
    if isinstance(x, Tensor) and x.dtype in INTEGERS:  # limits beyond the dtype's range are no limits
        limits = _dtypes.iinfo(x.dtype)
        low = None if isinstance(low, (int, float)) and low <= limits.min else low
        high = None if isinstance(high, (int, float)) and high >= limits.max else high
        low = math.ceil(low) if isinstance(low, float) else low
        high = math.floor(high) if isinstance(high, float) else high
    if isinstance(x, Tensor) and x.dtype in FLOATS and (low is not None or high is not None):
        # The gradient is 1 at the limits.
        return ops.clamp(x, -inf if low is None else low, inf if high is None else high)
    x = x if low is None else ops.maximum(x, low)
    x = x if high is None else ops.minimum(x, high)
    return +x if low is None and high is None else x


clamp = clip


def clamp_min(x, min):
    return clip(x, min)


def clamp_max(x, max):
    return clip(x, None, max)


def logaddexp2(x1, x2, /):
    """Returns log2(2^x1 + 2^x2), without overflow."""
    return ops.logaddexp(x1 * math.log(2), x2 * math.log(2)) * (1 / math.log(2))


def isreal(x, /):
    return ops.equal(imag(x), 0)


def isposinf(x, /):
    return ops.equal(x, inf)


def isneginf(x, /):
    return ops.equal(x, -inf)


# For each float dtype: the integer dtype of its bits, the bits of the mantissa, the bias of the exponent, and
# the shift of a first step down after which a second step, where it is needed, can round to 0 only.
_FLOAT_LAYOUTS = {_core.float32: (_core.int32, 23, 127, 102), _core.float64: (_core.int64, 52, 1023, 969)}


def _widen_float(x):
    """Returns x as a float of _FLOAT_LAYOUTS: narrower ones are computed in float32, and their results are
    rounded once."""
    x = strong(x)
    return x if x.dtype in _FLOAT_LAYOUTS else ops.cast(x, _core.float32)


def _power_of_two(n, dtype):
    """Returns 2 to an integer power, an exponent of normal numbers, by setting its bits."""
    whole, mantissa, bias, _ = _FLOAT_LAYOUTS[dtype]
    return ops.bitcast(ops.shift_left(ops.cast(n, whole) + bias, mantissa), dtype)


def ldexp(x1, x2, /):
    """Returns x1 times 2 to the power x2, rounded once."""
    x1, n = strong(x1), strong(x2)
    if n.dtype in FLOATS:
        return x1 * ops.exp2(ops.cast(n, x1.dtype))
    y = _widen_float(x1)
    _, _, bias, down = _FLOAT_LAYOUTS[y.dtype]
    least, most = 1 - bias - 2 * down, 3 * bias  # beyond these exponents all results are 0 or infinity
    n = ops.cast(ops.minimum(n, most) if n.dtype == _core.uint64 else n, _core.int64)
    n = ops.cast(ops.clamp(n, least, most), _core.int32)
    for _ in range(2):  # scaling up rounds nothing; scaling down rounds only where the last step gives 0
        step = ops.select(ops.less(n, 1 - bias), -down, ops.clamp(n, 0, bias))
        y, n = y * _power_of_two(step, y.dtype), n - step
    y = y * _power_of_two(n, y.dtype)
    return ops.cast(y, x1.dtype) if x1.dtype in FLOATS else y


def frexp(x, /):
    """Returns (mantissa, exponent) with x = mantissa 2^exponent and a mantissa from 0.5 to 1; for 0, infinity
    and NaN, x and 0."""
    x = strong(x)
    y = _widen_float(x)
    whole, mantissa, bias, _ = _FLOAT_LAYOUTS[y.dtype]
    known = ops.and_(ops.is_finite(y), ops.not_equal(y, 0))
    small = ops.and_(known, ops.less(ops.abs(y), 2.0 ** (1 - bias)))  # numbers below the normal ones
    y = y * ops.select(small, ops.cast(2.0**64, y.dtype), ops.cast(1.0, y.dtype))
    field = ops.and_(ops.shift_right(ops.bitcast(y, whole), mantissa), 2 * bias + 1)
    exponent = ops.select(known, ops.cast(field, _core.int32) - (bias - 1), 0)
    half = ops.shift_right(exponent, 1)  # the whole power may be below the normal numbers
    y = y * _power_of_two(-half, y.dtype) * _power_of_two(half - exponent, y.dtype)
    return ops.cast(y, x.dtype) if x.dtype in FLOATS else y, exponent - ops.select(small, 64, 0)


def modf(x, /):
    """Returns (fraction, integer part), both with x's sign."""
    whole = ops.trunc(x)
    return ops.copysign(ops.select(ops.is_inf(x), 0.0, x - whole), x), whole


def divmod(x1, x2, /):
    return ops.floor_divide(x1, x2), ops.remainder(x1, x2)


def gcd(x1, x2, /):
    """Returns the greatest common divisor of integers, by Euclid's algorithm."""
    a, b = ops.abs(strong(x1)), ops.abs(strong(x2))
    # Lamé: at most five steps for each decimal digit.
    for _ in range(93 if (a + b).dtype.itemsize == 8 else 47):
        a, b = ops.select(ops.not_equal(b, 0), b, a), ops.select(ops.not_equal(b, 0), ops.mod(a, b), b)
    return a


def lcm(x1, x2, /):
    """Returns the least common multiple of integers."""
    divisor = gcd(x1, x2)
    return ops.abs(ops.div(strong(x1), ops.maximum(divisor, 1)) * x2)


def softmax(x, dim=None, dtype=None, *, axis=-1):
    """Returns exp(x) divided by its sum along an axis."""
    x = x if dtype is None else ops.cast(x, dtype)
    return ops.softmax(x, axes=axis if dim is None else dim)


def log_softmax(x, dim=None, dtype=None, *, axis=-1):
    """Returns the logarithm of softmax."""
    x = x if dtype is None else ops.cast(x, dtype)
    return ops.log_softmax(x, axes=axis if dim is None else dim)


def lerp(start, end, weight):
    """Returns start + weight (end - start), computed from the nearer end; it overflows only if the result
    does."""
    start, end = strong(start), strong(end)
    dtype = result_type(start, end)
    if dtype in FLOATS and dtype.itemsize < 4:
        wide = (ops.cast(x, _core.float32) if isinstance(x, Tensor) else x for x in (start, end, weight))
        return ops.cast(lerp(*wide), dtype)
    if dtype not in FLOATS + COMPLEX:
        start, end = ops.cast(start, _core.float32), ops.cast(end, _core.float32)
    # Halves of both, since their difference may overflow.
    first, last = start * 0.5, end * 0.5
    step = last - first
    low, high = first + step * weight, last - step * (1 - weight)
    if not isinstance(weight, Tensor):
        return (low if math.fabs(weight) < 0.5 else high) * 2.0
    return ops.select(ops.less(ops.abs(weight), 0.5), low, high) * 2.0


def addcmul(x, tensor1, tensor2, *, value=1):
    return x + (tensor1 if value == 1 else tensor1 * value) * tensor2


def addcdiv(x, tensor1, tensor2, *, value=1):
    return x + (tensor1 if value == 1 else tensor1 * value) / tensor2


def polar(abs, angle):
    """Returns complex numbers of the given absolute values and angles."""
    return ops.complex(abs * ops.cos(angle), abs * ops.sin(angle))


def complex(real, imag):
    return ops.complex(real, imag)


def view_as_real(x):
    """Views complex (...,) as (..., 2): real and imaginary parts."""
    if x.dtype not in COMPLEX:
        raise RuntimeError(f"view_as_real: the tensor is {x.dtype.name}, it must be complex")
    return _core._view(x, (("view_as_real",),))


def view_as_complex(x):
    """Views (..., 2) as complex (...)."""
    if x.dtype not in FLOATS or not x.ndim or x.shape[-1] != 2:
        raise RuntimeError(f"view_as_complex: the tensor is {x.dtype.name}, {tuple(x.shape)}, it must be of floats whose last axis is 2")
    return _core._view(x, (("view_as_complex",),))


def allclose(a, b, rtol=1e-5, atol=1e-8, equal_nan=False):
    """True if all elements are close to each other."""
    a, b = strong(a), strong(b)
    return ops.all(isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)).item()


def array_equal(a, b):
    """True if both have one shape and all elements are equal."""
    a, b = strong(a), strong(b)
    return tuple(a.shape) == tuple(b.shape) and ops.all(ops.equal(a, b)).item()


__all__ = sorted({*_own_names(globals()), *_OPS, "e", "inf", "nan", "newaxis", "pi"}
                 - {*"promote_pair root_with_zero_grad scalar_of_dtype strong value".split()})
