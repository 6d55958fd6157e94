"""Special functions, by the names of torch.special. All are computed in float64 and rounded to the dtype of the operand; integers
give float32. Bessel functions are in _bessel.py, orthogonal polynomials in _polynomials.py."""
import functools
import math

from .. import _core
from .._core import Tensor, ops
from .._rules import custom_jvp
from .._shaping import broadcast_arrays, stack
from .._transforms import while_loop
from ._define import define, functions
from ._pointwise import as_float, category, common_dtype

_SQRT_HALF = math.sqrt(0.5)


def float_pair(*operands):
    """Returns tensors and numbers as tensors of their common dtype; integers become floats."""
    dtype = common_dtype(*operands)
    return [ops.cast(x, dtype if category(dtype) > 1 else _core.float32) for x in operands]


def constants(values):
    return _core.asarray(list(values), dtype=_core.float64)


def sum_over_nodes(x, terms):
    """Returns the sums over the last axis of terms(x with an axis of 1 at the end): a rule of quadrature."""
    return ops.sum(terms(ops.reshape(x, (*x.shape, 1))), axes=-1)


def polynomial(x, coefficients):
    """Returns c[0] + c[1] x + c[2] x^2 ..., by Horner's rule."""
    total = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total


def unary(slope=None):
    """Makes a function of one operand from its float64 body; slope(x, y) is its derivative. Without one there is no gradient."""
    def decorate(body):
        def values(x):
            y = body(ops.cast(x if slope else ops.stop_gradient(x), _core.float64))
            return ops.cast(y, x.dtype)

        function = custom_jvp(values) if slope else values
        if slope:
            function.defjvps(lambda t, y, x: t * slope(x, y))

        @functools.wraps(body)
        def wrapper(input):
            return function(as_float(input))

        return wrapper

    return decorate


def where(condition, a, b):
    return ops.select(condition, a, b)


# Functions that the top level has, too
for _name in """digamma psi=digamma erf erfc erfinv exp2 expit=sigmoid expm1 gammaln=lgamma log1p log_softmax logit logsumexp
round sinc softmax xlogy""".split():
    _name, _, _same = _name.partition("=")
    functions["special." + _name] = functions[_same or _name]


# ------------------------------------------------------------------------------------ entropy, logarithms

@define("special.entr(input, *, out=None)")
@unary(lambda x, y: -1.0 - ops.log(x))
def entr(x):
    """Returns -input log(input); 0 at 0, -inf for negative numbers."""
    y = -x * ops.log(x)
    return where(ops.equal(x, 0.0), 0.0, where(ops.less(x, 0.0), -math.inf, y))


@custom_jvp
def _xlog1py(x, y):
    none = ops.and_(ops.equal(x, 0.0), ops.not_(ops.is_nan(y)))
    return where(none, 0.0, x * ops.log1p(y))


def _xlog1py_slope(t, _, x, y):
    none = ops.and_(ops.equal(x, 0.0), ops.less_equal(y, -1.0))
    return where(none, 0.0, t * ops.log1p(where(none, 0.0, y)))


_xlog1py.defjvps(_xlog1py_slope, lambda t, _, x, y: t * x / (y + 1.0))


@define("special.xlog1py(input: Tensor|float, other: Tensor|float, *, out=None)")
def xlog1py(input, other):
    """Returns input log(1 + other); 0 where input is 0 and other is no NaN."""
    return _xlog1py(*float_pair(input, other))


# --------------------------------------------------------------------------------- the normal distribution

_ERFCX_STEP = 0.5
_ERFCX_NODES = [(k - 0.5) * _ERFCX_STEP for k in range(1, 14)]


def _erfcx_of_positive(x):
    """Returns exp(x^2) erfc(x) for x >= 0 by the midpoint rule for its integral, with the residue of the integrand's pole
    (Hunter and Regan, Mathematics of Computation 26, 1972)."""
    squares, weights = constants(t * t for t in _ERFCX_NODES), constants(math.exp(-t * t) for t in _ERFCX_NODES)
    line = sum_over_nodes(x, lambda a: weights / (squares / a + a)) * (2 * _ERFCX_STEP / math.pi)
    near = ops.minimum(x, math.pi / _ERFCX_STEP)  # beyond, the residue is less than rounding errors
    residue = 2.0 / (ops.exp(-near * near) + ops.exp(near * (2 * math.pi / _ERFCX_STEP - near)))
    return line + where(ops.less(x, math.pi / _ERFCX_STEP), residue, 0.0)


@define("special.erfcx(input, *, out=None)")
@unary(lambda x, y: 2.0 * x * y - 2 / math.sqrt(math.pi))
def erfcx(x):
    """Returns exp(input^2) erfc(input), without overflow or underflow for positive numbers."""
    y = _erfcx_of_positive(ops.abs(x))
    return where(ops.less(x, 0.0), 2.0 * ops.exp(x * x) - y, y)


@define("special.ndtr(input, *, out=None)")
@unary(lambda x, y: ops.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi)))
def ndtr(x):
    """Returns the distribution function of the standard normal distribution."""
    return 0.5 * ops.erfc(x * -_SQRT_HALF)


@define("special.log_ndtr(input, *, out=None)")
@unary(lambda x, y: math.sqrt(2 / math.pi) / erfcx(x * -_SQRT_HALF))
def log_ndtr(x):
    """Returns the logarithm of ndtr, without underflow."""
    low = ops.less(x, -1.0)
    tail = ops.log(0.5 * _erfcx_of_positive(ops.abs(where(low, x, 0.0)) * _SQRT_HALF)) - 0.5 * x * x
    return where(low, tail, ops.log1p(-0.5 * ops.erfc(x * _SQRT_HALF)))


@define("special.ndtri(input, *, out=None)")
@unary(lambda x, y: math.sqrt(2 * math.pi) * ops.exp(0.5 * y * y))
def ndtri(p):
    """Returns the inverse of ndtr. In the tails the estimate of Abramowitz and Stegun 26.2.23 is improved by two steps of
    Halley's method for log(ndtr)."""
    upper = ops.greater(p, 0.5)
    q = where(upper, 1.0 - p, p)
    tail = where(ops.and_(ops.greater(q, 0.0), ops.less(q, 0.1)), q, 0.1)
    goal = ops.log(tail)
    t = ops.sqrt(-2.0 * goal)
    x = t - polynomial(t, (2.515517, 0.802853, 0.010328)) / polynomial(t, (1.0, 1.432788, 0.189269, 0.001308))
    for _ in range(2):
        scaled = _erfcx_of_positive(x * _SQRT_HALF)
        error = ops.log(0.5 * scaled) - 0.5 * x * x - goal
        hazard = math.sqrt(2 / math.pi) / scaled  # minus the slope of log(ndtr(-x)), whose second derivative is h (x - h)
        x = x + error / (hazard + 0.5 * error * (x - hazard))
    x = where(ops.less(q, 0.1), -x, math.sqrt(2) * ops.erfinv(2.0 * q - 1.0))
    x = where(ops.equal(q, 0.0), -math.inf, where(ops.less(q, 0.0), math.nan, x))
    return where(upper, -x, x)


# ------------------------------------------------------------------------------ the gamma function's family

# B(2j) / (2j)!, of the Euler-Maclaurin formula
_BERNOULLI = [1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000]
_ZETA_TERMS = 20


def _zeta_of_positive(s, q):
    """Returns the Hurwitz zeta function for s > 1 and q > 0: its first terms, and the Euler-Maclaurin formula for the others
    (DLMF 25.11.5, 2.10.1)."""
    steps = constants(range(_ZETA_TERMS))
    first = ops.sum(ops.exp(ops.log(ops.reshape(q, (*q.shape, 1)) + steps) * -ops.reshape(s, (*s.shape, 1))), axes=-1)
    a = q + float(_ZETA_TERMS)
    power = ops.exp(ops.log(a) * -s)
    total, factor = power * a / (s - 1.0) + 0.5 * power, s * power / a
    for j, c in enumerate(_BERNOULLI):
        total = total + c * factor
        factor = factor * (s + (2 * j + 1.0)) / a * (s + (2 * j + 2.0)) / a
    return first + where(ops.equal(power, 0.0), 0.0, total)


def _zeta(s, q):
    dtype = q.dtype
    s, q = broadcast_arrays(ops.cast(s, _core.float64), ops.cast(q, _core.float64))
    usual, low = ops.greater(s, 1.0), ops.less_equal(q, 0.0)
    s1 = where(usual, ops.minimum(s, 1e300), 2.0)
    # Below 0 the terms of negative base are, up to their sign, a difference of two zetas of positive arguments.
    part = -q - ops.floor(-q)
    pole = ops.and_(low, ops.equal(q, ops.floor(q)))
    inside = ops.and_(low, ops.not_(pole))
    three = [where(low, 1.0 - where(inside, part, 0.5), q), where(inside, part, 0.5), 1.0 - where(inside, q, 0.0)]
    three = _zeta_of_positive(ops.reshape(s1, (1, *s1.shape)), stack(three))
    y, mirrored = three[0], three[1] - three[2]
    odd = ops.not_equal(ops.remainder(s1, 2.0), 0.0)
    mirrored = where(ops.equal(s, ops.floor(s)), where(odd, -mirrored, mirrored), math.nan)
    y = where(pole, math.inf, where(inside, y + mirrored, y))
    y = where(usual, y, where(ops.equal(s, 1.0), math.inf, math.nan))
    return ops.cast(where(ops.or_(ops.is_nan(s), ops.is_nan(q)), math.nan, y), dtype)


_zeta_rule = custom_jvp(_zeta)
_zeta_rule.defjvp(lambda p, t: (_zeta_rule(*p), _only_second("zeta", t) * (-p[0] * _zeta_rule(p[0] + 1.0, p[1]))))


def _only_second(name, tangents):
    if isinstance(tangents[0], Tensor) and tangents[0].requires_grad:
        raise RuntimeError(f"{name}: the derivative with respect to the first operand is not implemented")
    return tangents[1]


@define("special.zeta(input: Tensor|float, other: Tensor|float, *, out=None)")
def zeta(input, other):
    """Returns the Hurwitz zeta function, the sum of (k + other)^-input over k = 0, 1, ..."""
    return _zeta_rule(*float_pair(input, other))


@custom_jvp
def _polygamma(x, n):
    z = ops.cast(x, _core.float64)
    return ops.cast((1.0 if n % 2 else -1.0) * math.gamma(n + 1) * _zeta(ops.cast(n + 1.0, _core.float64), z), x.dtype)


_polygamma.defjvp(lambda p, t: (_polygamma(*p), t[0] * _polygamma(p[0], p[1] + 1)))


@define("polygamma(n: int, input, *, out=None)")
def polygamma(n, input):
    """Returns the derivative of order n of digamma."""
    if n < 0:
        raise RuntimeError(f"polygamma(n, x) does not support negative n. n is {n}")
    return ops.digamma(as_float(input)) if n == 0 else _polygamma(as_float(input), n)


@define("mvlgamma(input, p: int, *, out=None)", "fmi")
def mvlgamma(input, p):
    """Returns the logarithm of the multivariate gamma function of dimension p."""
    x = as_float(input)
    total = p * (p - 1) / 4 * math.log(math.pi)
    for j in range(p):
        total = total + ops.lgamma(x - 0.5 * j)
    return total


def _gamma_prefactor(a, x):
    """Returns x^a exp(-x) / gamma(a + 1); large a by Stirling's series (DLMF 5.11.1), whose large terms cancel in advance."""
    large = ops.greater(a, 20.0)
    big = where(large, a, 20.0)
    ratio = (x - big) / big
    inverse = 1.0 / (big * big)
    stirling = polynomial(inverse, (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)) / big
    smooth = -big * (ratio - ops.log1p(ratio)) - 0.5 * ops.log(2 * math.pi * big) - stirling
    small = where(large, 1.0, a)
    return ops.exp(where(large, smooth, small * ops.log(x) - x - ops.lgamma(small + 1.0)))


def _gamma_series(a, x):
    """Returns 1 + x / (a + 1) + x^2 / ((a + 1) (a + 2)) ... (DLMF 8.11.4)"""
    def step(carry):
        total, term, n = carry
        term = term * x / (a + n)
        return total + term, term, n + 1.0

    def goes_on(carry):
        return ops.and_(ops.any(ops.greater(carry[1], carry[0] * 1e-17)), ops.less(carry[2], 1e5))

    one = _core.full(a.shape, 1.0, _core.float64)
    return while_loop(goes_on, step, (one, one, ops.cast(1.0, _core.float64)))[0]


def _gamma_fraction(a, x):
    """Returns the continued fraction of gamma(a, x) exp(x) x^-a (DLMF 8.9.2), by Lentz's method."""
    def step(carry):
        h, c, d, _, n = carry
        b, numerator = x + 1.0 - a + 2.0 * n, n * (a - n)
        d, c = 1.0 / (numerator * d + b), b + numerator / c
        return h * c * d, c, d, ops.abs(c * d - 1.0), n + 1.0

    def goes_on(carry):
        return ops.and_(ops.any(ops.greater(carry[3], 3e-16)), ops.less(carry[4], 1e5))

    first = x + 1.0 - a
    start = (1.0 / first, first * 0.0 + math.inf, 1.0 / first, first * 0.0 + 1.0, ops.cast(1.0, _core.float64))
    return while_loop(goes_on, step, start)[0]


def _incomplete_gamma(a, x, complement):
    dtype = x.dtype
    a, x = broadcast_arrays(ops.cast(a, _core.float64), ops.cast(x, _core.float64))
    usual = ops.and_(ops.and_(ops.greater(a, 0.0), ops.greater(x, 0.0)), ops.and_(ops.less(a, math.inf), ops.less(x, math.inf)))
    by_series = ops.less_equal(x, a + 1.0)
    lower, upper = ops.and_(usual, by_series), ops.and_(usual, ops.not_(by_series))
    scale = _gamma_prefactor(where(usual, a, 1.0), where(usual, x, 1.0))
    p = scale * _gamma_series(where(lower, a, 1.0), where(lower, x, 1.0))
    q = scale * a * _gamma_fraction(where(upper, a, 1.0), where(upper, x, 3.0))
    y = where(by_series, 1.0 - p, q) if complement else where(by_series, p, 1.0 - q)
    at_low, at_high = (1.0, 0.0) if complement else (0.0, 1.0)
    y = where(ops.equal(x, math.inf), at_high, y)
    y = where(ops.equal(a, math.inf), where(ops.equal(x, math.inf), math.nan, at_low), y)
    y = where(ops.equal(x, 0.0), at_low, y)
    y = where(ops.equal(a, 0.0), where(ops.greater(x, 0.0), at_high, math.nan), y)
    bad = ops.or_(ops.or_(ops.less(a, 0.0), ops.less(x, 0.0)), ops.or_(ops.is_nan(a), ops.is_nan(x)))
    return ops.cast(where(bad, math.nan, y), dtype)


def _incomplete_gamma_rule(name, complement):
    function = custom_jvp(lambda a, x: _incomplete_gamma(a, x, complement))
    sign = -1.0 if complement else 1.0

    def rule(primals, tangents):
        a, x = primals
        density = ops.exp(ops.log(x) * (a - 1.0) - x - ops.lgamma(a))
        return function(a, x), _only_second(name, tangents) * density * sign

    function.defjvp(rule)
    return function


_lower_rule, _upper_rule = _incomplete_gamma_rule("gammainc", False), _incomplete_gamma_rule("gammaincc", True)


@define("igamma(input, other, *, out=None)", "fmi")
def gammainc(input, other):
    """Returns the regularised lower incomplete gamma function P(input, other)."""
    return _lower_rule(*float_pair(input, other))


@define("igammac(input, other, *, out=None)", "fmi")
def gammaincc(input, other):
    """Returns the regularised upper incomplete gamma function Q(input, other)."""
    return _upper_rule(*float_pair(input, other))



@define("Tensor.polygamma(input, n: int)", "mi")
def polygamma_of(input, n):
    """Returns the derivative of order n of digamma."""
    return polygamma(n, input)


for _name, _same in (("polygamma", "polygamma"), ("multigammaln", "mvlgamma"), ("gammainc", "igamma"), ("gammaincc", "igammac")):
    functions["special." + _name] = functions[_same]
