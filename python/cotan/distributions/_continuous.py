"""Distributions of one real number that are given by a location, a scale or bounds."""
import math

from .. import _core, _random
from .._core import ops
from .._dtypes import finfo
from . import constraints
from ._sampling import von_mises_draws
from .distribution import Distribution, ExponentialFamily
from .utils import broadcast_all, constant_like, lazy_property, open_unit

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class _LocationScale(Distribution):
    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support, has_rsample = constraints.real, True

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)


class Normal(_LocationScale, ExponentialFamily):
    """The normal distribution: loc is the mean, scale the standard deviation."""

    mean = mode = property(lambda self: self.loc)
    stddev = property(lambda self: self.scale)
    variance = property(lambda self: self.scale ** 2)

    def rsample(self, sample_shape=()):
        return self.loc + self.scale * _random.gaussian(self._extended_shape(sample_shape), dtype=self.loc.dtype)

    def log_prob(self, value):
        self._validate_sample(value)
        return -((value - self.loc) ** 2) / (2 * self.variance) - self.scale.log() - _HALF_LOG_2PI

    def cdf(self, value):
        self._validate_sample(value)
        return 0.5 * (1 + ((value - self.loc) / self.scale / math.sqrt(2)).erf())

    def icdf(self, value):
        return self.loc + self.scale * (2 * value - 1).erfinv() * math.sqrt(2)

    def entropy(self):
        return 0.5 + _HALF_LOG_2PI + self.scale.log()


class Laplace(_LocationScale):
    """The density is exp(-|x - loc| / scale) / (2 scale)."""

    mean = mode = property(lambda self: self.loc)
    variance = property(lambda self: 2 * self.scale ** 2)
    stddev = property(lambda self: math.sqrt(2) * self.scale)

    def rsample(self, sample_shape=()):
        u = 2 * open_unit(self._extended_shape(sample_shape), self.loc.dtype) - 1
        return self.loc - self.scale * u.sign() * (-u.abs()).log1p()

    def log_prob(self, value):
        self._validate_sample(value)
        return -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    def cdf(self, value):
        self._validate_sample(value)
        return 0.5 - 0.5 * (value - self.loc).sign() * (-(value - self.loc).abs() / self.scale).expm1()

    def icdf(self, value):
        term = value - 0.5
        return self.loc - self.scale * term.sign() * (-2 * term.abs()).log1p()

    def entropy(self):
        return 1 + (2 * self.scale).log()


class Cauchy(_LocationScale):
    """The distribution of the quotient of two normal numbers; loc is the median, scale half of the width at half the height."""

    mean = property(lambda self: constant_like(self.loc, math.nan))
    variance = property(lambda self: constant_like(self.loc, math.inf))
    mode = property(lambda self: self.loc)

    def rsample(self, sample_shape=()):
        return self.icdf(open_unit(self._extended_shape(sample_shape), self.loc.dtype))

    def log_prob(self, value):
        self._validate_sample(value)
        return -math.log(math.pi) - self.scale.log() - (((value - self.loc) / self.scale) ** 2).log1p()

    def cdf(self, value):
        self._validate_sample(value)
        return ((value - self.loc) / self.scale).atan() / math.pi + 0.5

    def icdf(self, value):
        return (math.pi * (value - 0.5)).tan() * self.scale + self.loc

    def entropy(self):
        return math.log(4 * math.pi) + self.scale.log()


class Uniform(Distribution):
    """The uniform distribution from low to high, high excluded."""

    arg_constraints = {"low": constraints.dependent(is_discrete=False, event_dim=0),
                       "high": constraints.dependent(is_discrete=False, event_dim=0)}
    has_rsample = True

    def __init__(self, low, high, validate_args=None):
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)
        if self._validate_args and not _core._tracing() and not (self.low < self.high).all():
            raise ValueError("Uniform is not defined when low>= high")

    support = constraints.dependent_property(lambda self: constraints.interval(self.low, self.high), is_discrete=False, event_dim=0)
    mean = property(lambda self: (self.low + self.high) / 2)
    mode = property(lambda self: math.nan * self.high)
    variance = property(lambda self: (self.high - self.low) ** 2 / 12)
    stddev = property(lambda self: (self.high - self.low) / math.sqrt(12))

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        drawn = self.low + (self.high - self.low) * _random.uniform(shape, dtype=self.low.dtype)
        low, high = self.low.detach(), self.high.detach()
        step = ops.maximum(low.abs(), high.abs()) * finfo(low.dtype).eps
        return ops.minimum(drawn, ops.maximum(low, high - step))  # sums are rounded up to high

    def log_prob(self, value):
        self._validate_sample(value)
        inside = ops.cast((value >= self.low) & (value < self.high), self.low.dtype)
        return inside.log() - (self.high - self.low).log()

    def cdf(self, value):
        self._validate_sample(value)
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value):
        return value * (self.high - self.low) + self.low

    def entropy(self):
        return (self.high - self.low).log()


class Exponential(ExponentialFamily):
    """The density is rate exp(-rate x)."""

    arg_constraints = {"rate": constraints.positive}
    support, has_rsample = constraints.nonnegative, True

    def __init__(self, rate, validate_args=None):
        self.rate, = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    mean = stddev = property(lambda self: self.rate.reciprocal())
    mode = property(lambda self: constant_like(self.rate, 0))
    variance = property(lambda self: self.rate ** -2)

    def rsample(self, sample_shape=()):
        return -open_unit(self._extended_shape(sample_shape), self.rate.dtype).log() / self.rate

    def log_prob(self, value):
        self._validate_sample(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value):
        self._validate_sample(value)
        return 1 - (-self.rate * value).exp()

    def icdf(self, value):
        return -(-value).log1p() / self.rate

    def entropy(self):
        return 1 - self.rate.log()


# Abramowitz and Stegun, 9.8.1 to 9.8.4: the modified Bessel functions of order 0 and 1, for x below 3.75 by powers of
# (x / 3.75)^2, above by powers of 3.75 / x.
_BESSEL_SMALL = ((1.0, 3.5156229, 3.0899424, 1.2067492, 0.2659732, 0.360768e-1, 0.45813e-2),
                 (0.5, 0.87890594, 0.51498869, 0.15084934, 0.2658733e-1, 0.301532e-2, 0.32411e-3))
_BESSEL_LARGE = (
    (0.39894228, 0.1328592e-1, 0.225319e-2, -0.157565e-2, 0.916281e-2, -0.2057706e-1, 0.2635537e-1, -0.1647633e-1, 0.392377e-2),
    (0.39894228, -0.3988024e-1, -0.362018e-2, 0.163801e-2, -0.1031555e-1, 0.2282967e-1, -0.2895312e-1, 0.1787654e-1, -0.420059e-2))


def _polynomial(y, coefficients):
    result = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        result = coefficient + y * result
    return result


def _log_modified_bessel(x, order):
    """Returns the logarithm of the modified Bessel function of order 0 or 1 at x > 0."""
    below = x < 3.75
    few, many = ops.minimum(x, 3.75), ops.maximum(x, 3.75)
    small = _polynomial((few / 3.75) ** 2, _BESSEL_SMALL[order]).log() + (few.log() if order else 0)
    large = many - 0.5 * many.log() + _polynomial(3.75 / many, _BESSEL_LARGE[order]).log()
    return ops.select(below, small, large)


class VonMises(Distribution):
    """The distribution of an angle around loc, with the density exp(concentration cos(x - loc)) / (2 pi I0(concentration))."""

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real

    def __init__(self, loc, concentration, validate_args=None):
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    mean = mode = property(lambda self: self.loc)

    @lazy_property
    def variance(self):
        """The circular variance."""
        return 1 - (_log_modified_bessel(self.concentration, 1) - _log_modified_bessel(self.concentration, 0)).exp()

    def sample(self, sample_shape=()):
        angle = self.loc.detach() + von_mises_draws(self.concentration, self._extended_shape(sample_shape))
        return (angle + math.pi) % (2 * math.pi) - math.pi

    def log_prob(self, value):
        self._validate_sample(value)
        k = self.concentration
        return k * (value - self.loc).cos() - math.log(2 * math.pi) - _log_modified_bessel(k, 0)
