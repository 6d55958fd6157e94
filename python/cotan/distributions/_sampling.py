"""Draws that need more than one uniform number, and the incomplete gamma function.

Rejection sampling makes all its proposals at once, along a new first axis, and takes the first accepted one: nothing is read,
and the probability that none is accepted is below 1e-9.
"""
import functools
import math

from .. import _core, _random
from .._core import ops
from .._dtypes import finfo
from .._rules import custom_vjp
from .._searching import take_along_axis
from .._shaping import broadcast_tensors
from .utils import open_unit

_ROUNDS = 20
_SMALL_MEAN, _SMALL_OUTCOMES = 10, 64  # counts of a mean below 10 are below 64


def _first_accepted(proposals, accepted):
    """Returns the first accepted proposal along the first axis."""
    first = ops.argmax(ops.cast(accepted, _core.int32), axis=0)
    return take_along_axis(proposals, first.unsqueeze(0), 0).squeeze(0)


@functools.cache
def _half_line_nodes():
    """Returns nodes and weights for integrals from 0 to infinity of what decays exponentially at the scale 1: the
    trapezoidal rule in t with s = exp(t - exp(-t)), which is dense at 0."""
    steps = [-4.0 + 0.08 * i for i in range(108)]
    nodes = [math.exp(t - math.exp(-t)) for t in steps]
    weights = [0.08 * s * (1 + math.exp(-t)) for s, t in zip(nodes, steps)]
    return nodes, weights


def _gamma_integrals(a, x):
    """Returns (sign, exponents, s, weights), (..., n): for a >= 1, the integral of t^(a - 1) e^-t from 0 to x where x < a (sign
    1), else from x to infinity (sign -1), is x^a e^-x sum(exp(exponents) weights); its variable is t = x exp(-sign s)."""
    nodes, weights = (_core.asarray(numbers, dtype=_core.float64) for numbers in _half_line_nodes())
    a, x = a.unsqueeze(-1), x.unsqueeze(-1)
    sign = ops.cast(x < a, a.dtype) * 2 - 1
    scale = ops.stop_gradient(1 / ((a - x).abs() + x.sqrt()))
    s = nodes * scale  # (..., n)
    return sign, -x * ops.expm1((-sign * s).clamp(max=700)) - sign * a * s, s, weights * scale


def gamma_cdf(a, x):
    """Returns the regularized lower incomplete gamma function P(a, x) = P(a + 1, x) + x^a e^-x / Gamma(a + 1), the first by
    quadrature in float64; its gradients are those of the quadrature."""
    dtype = ops.add(a, x).dtype
    a, x = broadcast_tensors(ops.cast(a, _core.float64), ops.cast(x, _core.float64))
    inside = (x > 0) & (x < math.inf)
    kept = ops.select(inside, x, 1.0)
    sign, exponents, _, weights = _gamma_integrals(a + 1, kept)
    first = (a * kept.log() - kept - (a + 1).lgamma()).exp()
    part = first * kept * (exponents.exp() * weights).sum(-1)
    result = first + ops.select(ops.greater(sign.squeeze(-1), 0), part, 1 - part)
    return ops.cast(ops.select(inside, result, ops.cast(x > 0, x.dtype)), dtype)


@custom_vjp
def _log_gamma_with_slope(a, log_x):
    """Returns log_x, the logarithm of a gamma draw, whose derivative by a is that of the draw at a constant P(a, x)."""
    return log_x


def _log_gamma_backward(saved, cotangent):
    a, log_x = (ops.cast(one, _core.float64) for one in saved)
    x = log_x.exp()
    sign, exponents, s, weights = _gamma_integrals(a + 1, x)
    excess = log_x - (a + 1).digamma()  # d log density / da at t = x; at t = x exp(-sign s) it is less by sign s
    above = (sign * exponents.exp() * weights * (excess.unsqueeze(-1) - sign * s)).sum(-1)  # of P(a + 1, x)
    return cotangent * ops.cast(-(above * x + excess) / a, cotangent.dtype), None


_log_gamma_with_slope.defvjp(lambda a, log_x: (log_x, (a, log_x)), _log_gamma_backward)


def log_gamma_draws(concentration, shape):
    """Returns logarithms of gamma draws of rate 1; concentration is broadcast to the shape.

    They are Marsaglia and Tsang's draws of concentration + 1, times u^(1 / concentration). At least 95 of 100 proposals are
    accepted. The gradient is implicit: with P the cdf, dx/da = -(dP/da) / (dP/dx).
    """
    a = concentration.expand(shape)
    fixed = ops.stop_gradient(a)
    rounds = (10, *shape)
    d = fixed + 2 / 3
    normal = _random.gaussian(rounds, dtype=a.dtype)
    cube = (1 + normal / (9 * d).sqrt()) ** 3
    log_cube = cube.clamp(min=finfo(a.dtype).tiny).log()
    bound = normal * normal / 2 + d * (1 - cube + log_cube)
    log_v = _first_accepted(log_cube, (cube > 0) & (open_unit(rounds, a.dtype).log() < bound))
    return _log_gamma_with_slope(a, ops.stop_gradient(d.log() + log_v + open_unit(shape, a.dtype).log() / fixed))


def _count_below(u, log_probs):
    """Returns the number of outcomes along the last axis up to which the probabilities add up to less than u."""
    return ops.cast(log_probs.exp().cumsum(-1) < u.unsqueeze(-1), _core.float64).sum(-1)


def _transformed_rejection(center, spread, log_probs, rounds_shape, a, alpha):
    """Returns draws of Hörmann's transformed rejection: proposals are floor((2 a / (0.5 - |u|) + spread) u + center), and are
    accepted with the probability of exp(log_probs(k)) (a / (0.5 - |u|)^2 + spread) / alpha."""
    u, v = open_unit(rounds_shape, _core.float64) - 0.5, open_unit(rounds_shape, _core.float64)
    distance = 0.5 - u.abs()
    k = ((2 * a / distance + spread) * u + center).floor()
    log_density = log_probs(k) + (a / (distance * distance) + spread).log() - alpha.log()
    return _first_accepted(k, v.log() <= log_density)


def poisson_draws(rate, shape):
    """Returns Poisson draws: by inversion for rates below 10, else by rejection (Hörmann's PTRS)."""
    mean = ops.cast(ops.stop_gradient(rate), _core.float64).expand(shape)
    outcomes = _core.asarray([float(k) for k in range(_SMALL_OUTCOMES)], dtype=_core.float64)

    def log_probs(mean, k):
        return ops.select(ops.less(k, 0), -math.inf, ops.xlogy(k, mean) - mean - (k.clamp(min=0) + 1).lgamma())

    few = _count_below(open_unit(shape, _core.float64), log_probs(mean.clamp(max=_SMALL_MEAN).unsqueeze(-1), outcomes))
    large = mean.clamp(min=_SMALL_MEAN)
    spread = 0.931 + 2.53 * large.sqrt()
    many = _transformed_rejection(large + 0.43, spread, lambda k: log_probs(large, k), (_ROUNDS, *shape), -0.059 + 0.02483 * spread,
                                  1.1239 + 1.1328 / (spread - 3.4))
    return ops.cast(ops.select(ops.less(mean, _SMALL_MEAN), few, many), rate.dtype)


def binomial_draws(count, probs, shape):
    """Returns binomial draws: by inversion for means below 10, else by rejection (Hörmann's BTRS)."""
    n, p = (ops.cast(ops.stop_gradient(one), _core.float64).expand(shape) for one in (count, probs))
    flipped = p > 0.5
    rare = ops.select(flipped, 1 - p, p)
    small = n * rare < _SMALL_MEAN

    def log_probs(n, p, k):
        known = (k >= 0) & (k <= n)
        k = ops.select(known, k, 0.0)
        chosen = (n + 1).lgamma() - (k + 1).lgamma() - (n - k + 1).lgamma()
        return ops.select(known, chosen + ops.xlogy(k, p) + (n - k) * (-p).log1p(), -math.inf)

    outcomes = _core.asarray([float(k) for k in range(_SMALL_OUTCOMES)], dtype=_core.float64)
    few = _count_below(open_unit(shape, _core.float64),
                       log_probs(n.unsqueeze(-1), ops.select(small, rare, 0.0).unsqueeze(-1), outcomes))
    few = ops.minimum(few, n)
    m, q = ops.select(small, 40.0, n), ops.select(small, 0.5, rare)
    deviation = (m * q * (1 - q)).sqrt()
    spread = 1.15 + 2.53 * deviation
    at_mode = log_probs(m, q, ((m + 1) * q).floor())
    many = _transformed_rejection(m * q + 0.5, spread, lambda k: log_probs(m, q, k) - at_mode, (_ROUNDS, *shape),
                                  -0.0873 + 0.0248 * spread + 0.01 * q, (2.83 + 5.1 / spread) * deviation)
    drawn = ops.select(small, few, many)
    return ops.cast(ops.select(flipped, n - drawn, drawn), probs.dtype)


def von_mises_draws(concentration, shape):
    """Returns angles around 0, by Best and Fisher's rejection, in float64: at least 65 of 100 proposals are accepted."""
    k = ops.cast(ops.stop_gradient(concentration), _core.float64).expand(shape)
    tau = 1 + (1 + 4 * k * k).sqrt()
    rho = (tau - (2 * tau).sqrt()) / (2 * k)
    r = ops.select(ops.less(k, 1e-5), 1 / k + k, (1 + rho * rho) / (2 * rho))  # rho has no digits left there
    rounds = (_ROUNDS, *shape)
    z = (math.pi * open_unit(rounds, _core.float64)).cos()
    u = open_unit(rounds, _core.float64)
    f = (1 + r * z) / (r + z)
    c = k * (r - f)
    angle = _first_accepted(f, (c * (2 - c) - u > 0) | ((c / u).log() + 1 - c >= 0)).clamp(-1, 1).acos()
    sign = ops.select(ops.less(open_unit(shape, _core.float64), 0.5), ops.cast(-1.0, _core.float64), ops.cast(1.0, _core.float64))
    return ops.cast(sign * angle, concentration.dtype)
