"""Bessel functions of orders 0 and 1, modified ones, and the Airy function, by the names of torch.special.

Near 0 they are integrals over a period (DLMF 10.9.1, 10.32.1), for which the midpoint rule converges faster than any power; the
logarithmic ones add Neumann's series (DLMF 10.8.1, 10.31.2), whose sum is a weight of each node. Far from 0 they are Hankel's
asymptotic expansions (DLMF 10.17, 10.40). Errors are a few units in the last place of float64, relative to the largest value
nearby."""
import math

from .._core import ops
from ._define import define, functions
from ._special import constants, polynomial, sum_over_nodes, unary, where

_FAR = 25.0  # from here on the asymptotic expansions are exact to rounding
_NODES = 32
_ANGLES = [(k + 0.5) * math.pi / (2 * _NODES) for k in range(_NODES)]
_SINES = [math.sin(angle) for angle in _ANGLES]
# The sum of (-1)^m cos(2 m angle) / m, which multiplies J(2m) and I(2m) in Neumann's series.
_NEUMANN = [sum((-1) ** m * math.cos(2 * m * angle) / m for m in range(1, _NODES + 1)) for angle in _ANGLES]
_EULER = 0.5772156649015329


def _hankel_coefficients(order, count=24):
    a = [1.0]
    for k in range(1, count):
        a.append(a[-1] * (4 * order * order - (2 * k - 1) ** 2) / (8 * k))
    return a


_HANKEL = [_hankel_coefficients(0), _hankel_coefficients(1)]


def _over_angles(x, terms):
    """Returns the mean of terms(x, sine, weight) over the nodes."""
    sines, weights = constants(_SINES), constants(_NEUMANN)
    return sum_over_nodes(x, lambda a: terms(a, sines, weights)) * (1 / _NODES)


def _waves(order, x):
    """Returns (J, Y) of large x by Hankel's expansions."""
    inverse, a = 1.0 / x, _HANKEL[order]
    square = inverse * inverse
    p = polynomial(square, [c * (-1) ** k for k, c in enumerate(a[::2])])
    q = polynomial(square, [c * (-1) ** k for k, c in enumerate(a[1::2])]) * inverse
    sine, cosine = ops.sin(x), ops.cos(x)
    # The cosine and sine of x - pi / 4 - order pi / 2, times the root of 2
    cosine, sine = (cosine + sine, sine - cosine) if not order else (sine - cosine, -sine - cosine)
    size = ops.sqrt(inverse * (1 / math.pi))
    return size * (cosine * p - sine * q), size * (sine * p + cosine * q)


def _near_far(x, near, far):
    """Returns near(x) up to _FAR and far(x) beyond, each of arguments of its own range."""
    is_far = ops.greater(x, _FAR)
    return where(is_far, far(where(is_far, x, _FAR)), near(where(is_far, 1.0, x)))


def _j0_near(x):
    return _over_angles(x, lambda a, s, w: ops.cos(a * s))


def _j1_near(x):
    return _over_angles(x, lambda a, s, w: s * ops.sin(a * s))


def _y0_near(x):
    mean = _over_angles(x, lambda a, s, w: w * ops.cos(a * s))
    return (2 / math.pi) * ((ops.log(0.5 * x) + _EULER) * _j0_near(x) - 2.0 * mean)


def _y1_near(x):
    mean = _over_angles(x, lambda a, s, w: w * s * ops.sin(a * s))
    return (2 / math.pi) * ((ops.log(0.5 * x) + _EULER) * _j1_near(x) - _j0_near(x) / x - 2.0 * mean)


def _at_edges(x, y, at_zero):
    """Returns y with its limit at 0 and NaN for negative x."""
    return where(ops.less(x, 0.0), math.nan, where(ops.equal(x, 0.0), at_zero, y))


@define("special.bessel_j0(input, *, out=None)")
@unary(lambda x, y: -bessel_j1(x))
def bessel_j0(x):
    """Returns the Bessel function of the first kind of order 0."""
    return _near_far(ops.abs(x), _j0_near, lambda a: _waves(0, a)[0])


@define("special.bessel_j1(input, *, out=None)")
@unary(lambda x, y: bessel_j0(x) - where(ops.equal(x, 0.0), 0.5, y / x))
def bessel_j1(x):
    """Returns the Bessel function of the first kind of order 1."""
    y = _near_far(ops.abs(x), _j1_near, lambda a: _waves(1, a)[0])
    return where(ops.less(x, 0.0), -y, y)


@define("special.bessel_y0(input, *, out=None)")
@unary(lambda x, y: -bessel_y1(x))
def bessel_y0(x):
    """Returns the Bessel function of the second kind of order 0."""
    return _at_edges(x, _near_far(x, _y0_near, lambda a: _waves(0, a)[1]), -math.inf)


@define("special.bessel_y1(input, *, out=None)")
@unary(lambda x, y: bessel_y0(x) - y / x)
def bessel_y1(x):
    """Returns the Bessel function of the second kind of order 1."""
    return _at_edges(x, _near_far(x, _y1_near, lambda a: _waves(1, a)[1]), -math.inf)


@define("special.spherical_bessel_j0(input, *, out=None)")
@unary()
def spherical_bessel_j0(x):
    """Returns sin(input) / input; 1 at 0."""
    far = ops.is_inf(x)
    return where(far, 0.0, ops.sinc(where(far, 0.0, x) * (1 / math.pi)))


# ------------------------------------------------------------------------------------- modified functions

def _i_far(order, x):
    """Returns exp(-x) I of large x."""
    terms = [c * (-1) ** k for k, c in enumerate(_HANKEL[order])]
    return polynomial(1.0 / x, terms) / ops.sqrt(2 * math.pi * x)


def _i0e(x):
    """Returns exp(-x) I0(x) for x >= 0."""
    def near(a):
        return _over_angles(a, lambda b, s, w: ops.exp(b * (s - 1.0)) + ops.exp(b * (-1.0 - s))) * 0.5

    return _near_far(x, near, lambda a: _i_far(0, a))


def _i1e(x):
    """Returns exp(-x) I1(x) for x >= 0."""
    def near(a):
        return _over_angles(a, lambda b, s, w: s * ops.exp(b * (s - 1.0)) * ops.expm1(-2.0 * b * s)) * -0.5

    return _near_far(x, near, lambda a: _i_far(1, a))


def _grown(x, y):
    """Returns exp(x) y, which overflows only where the product does."""
    root = ops.exp(0.5 * x)
    return where(ops.equal(x, math.inf), math.inf, root * y * root)


@define("i0(input, *, out=None)", "fmiI")
@unary(lambda x, y: i1(x))
def i0(x):
    """Returns the modified Bessel function of the first kind of order 0."""
    return _grown(ops.abs(x), _i0e(ops.abs(x)))


@define("special.i0e(input, *, out=None)")
@unary(lambda x, y: i1e(x) - ops.sign(x) * y)
def i0e(x):
    """Returns exp(-|input|) i0(input)."""
    return _i0e(ops.abs(x))


def _signed(x, y):
    return where(ops.less(x, 0.0), -y, y)


@define("special.i1(input, *, out=None)")
@unary(lambda x, y: i0(x) - where(ops.equal(x, 0.0), 0.5, y / x))
def i1(x):
    """Returns the modified Bessel function of the first kind of order 1."""
    return _signed(x, _grown(ops.abs(x), _i1e(ops.abs(x))))


@define("special.i1e(input, *, out=None)")
@unary(lambda x, y: i0e(x) - ops.sign(x) * y - where(ops.equal(x, 0.0), 0.5, y / x))
def i1e(x):
    """Returns exp(-|input|) i1(input)."""
    return _signed(x, _i1e(ops.abs(x)))


for _name, _same in (("i0", "i0"), ("modified_bessel_i0", "i0"), ("modified_bessel_i1", "special.i1")):
    functions["special." + _name] = functions[_same]

_K_STEP = 0.25
_K_NODES = [k * _K_STEP for k in range(26)]
_K_WEIGHTS = [_K_STEP * math.exp(-u * u) * (1 if u else 0.5) for u in _K_NODES]
_K_SMALL = 1.5


def _k_near(order, x):
    """Returns K of small x by Neumann's series and its derivative."""
    logarithm = ops.log(0.5 * x) + _EULER
    i0 = _over_angles(x, lambda a, s, w: ops.cosh(a * s))
    if not order:
        return 2.0 * _over_angles(x, lambda a, s, w: w * ops.cosh(a * s)) - logarithm * i0
    i1 = _over_angles(x, lambda a, s, w: s * ops.sinh(a * s))
    return i0 / x + logarithm * i1 - 2.0 * _over_angles(x, lambda a, s, w: w * s * ops.sinh(a * s))


def _k_far(order, x):
    """Returns exp(x) K, the integral of exp(-u^2) 2 (1 + u^2 / x)^order / sqrt(u^2 + 2 x) over u from 0 (DLMF 10.32.9 with
    u = sqrt(2 x) sinh(t / 2)), by the trapezoidal rule."""
    squares, weights = constants(u * u for u in _K_NODES), constants(_K_WEIGHTS)

    def terms(a):
        y = 2.0 * weights / ops.sqrt(squares + 2.0 * a)
        return y * (1.0 + squares / a) if order else y

    return sum_over_nodes(x, terms)


def _k_of(order, x, scaled):
    is_far = ops.greater(x, _K_SMALL)
    low, high = where(is_far, 1.0, x), where(is_far, x, 2.0)
    near, far = _k_near(order, low), _k_far(order, high)
    near, far = (near * ops.exp(low), far) if scaled else (near, far * ops.exp(-high))
    return _at_edges(x, where(is_far, far, near), math.inf)


@define("special.modified_bessel_k0(input, *, out=None)")
@unary(lambda x, y: -modified_bessel_k1(x))
def modified_bessel_k0(x):
    """Returns the modified Bessel function of the second kind of order 0."""
    return _k_of(0, x, False)


@define("special.modified_bessel_k1(input, *, out=None)")
@unary(lambda x, y: -modified_bessel_k0(x) - y / x)
def modified_bessel_k1(x):
    """Returns the modified Bessel function of the second kind of order 1."""
    return _k_of(1, x, False)


@define("special.scaled_modified_bessel_k0(input, *, out=None)")
@unary(lambda x, y: y - scaled_modified_bessel_k1(x))
def scaled_modified_bessel_k0(x):
    """Returns exp(x) modified_bessel_k0(x)."""
    return _k_of(0, x, True)


@define("special.scaled_modified_bessel_k1(input, *, out=None)")
@unary(lambda x, y: y - scaled_modified_bessel_k0(x) - y / x)
def scaled_modified_bessel_k1(x):
    """Returns exp(x) modified_bessel_k1(x)."""
    return _k_of(1, x, True)


# ------------------------------------------------------------------------------------- the Airy function

_AIRY_SMALL = 2.0
_AIRY_STEP = 0.125
_AIRY_NODES = [k * _AIRY_STEP for k in range(54)]
_AIRY_WEIGHTS = [_AIRY_STEP / math.pi * (1 if u else 0.5) for u in _AIRY_NODES]


def _airy_series(x):
    """Returns Maclaurin's series (DLMF 9.4.1), for |x| <= 2."""
    at_zero, slope = 3 ** (-2 / 3) / math.gamma(2 / 3), -(3 ** (-1 / 3)) / math.gamma(1 / 3)
    even, odd = [at_zero], [slope]
    for k in range(1, 14):
        even.append(even[-1] / ((3 * k - 1) * 3 * k))
        odd.append(odd[-1] / (3 * k * (3 * k + 1)))
    cube = x * x * x
    return polynomial(cube, even) + x * polynomial(cube, odd)


def _airy_far(x, negative):
    """Returns Ai(x) exp(2/3 x^1.5), or Ai(-x), for x >= 2: the integral of exp(-sqrt(x) t^2) cos(t^3 / 3) (DLMF 9.5.6), of
    negative arguments on the two rays at 60 degrees (DLMF 9.2.14), by the trapezoidal rule in u = x^(1/4) t."""
    u, weights = constants(_AIRY_NODES), constants(_AIRY_WEIGHTS)
    root = ops.sqrt(x)
    quarter = ops.sqrt(root)

    def terms(a):
        b = ops.sqrt(a)
        cosine = ops.cos(u * u * u / (3.0 * b * ops.sqrt(b)))
        if not negative:
            return weights * ops.exp(-u * u) * cosine
        return 2.0 * weights * ops.exp(-math.sqrt(0.75) * u * u) * cosine * ops.cos(math.pi / 3 - a * b * (2 / 3) - 0.5 * u * u)

    return sum_over_nodes(x, terms) / quarter


@define("special.airy_ai(input, *, out=None)")
@unary()
def airy_ai(x):
    """Returns the Airy function Ai."""
    size = ops.abs(x)
    is_far = ops.and_(ops.greater(size, _AIRY_SMALL), ops.less(size, math.inf))
    a = where(is_far, size, _AIRY_SMALL)
    far = where(ops.less(x, 0.0), _airy_far(a, True), _airy_far(a, False) * ops.exp(a * ops.sqrt(a) * (-2 / 3)))
    near = _airy_series(where(is_far, 0.0, x))
    return where(ops.is_inf(x), math.nan, where(is_far, far, near))
