"""Distributions that are made of gamma draws, through whose samples gradients reach the shape parameters."""
import math

from .. import _core, _random
from .._core import ops
from .._dtypes import finfo
from .._shaping import stack
from . import constraints
from ._sampling import gamma_cdf, log_gamma_draws
from .distribution import Distribution, ExponentialFamily
from .utils import broadcast_all


class Gamma(ExponentialFamily):
    """The density is proportional to x^(concentration - 1) exp(-rate x)."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support, has_rsample = constraints.nonnegative, True

    def __init__(self, concentration, rate, validate_args=None):
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    mean = property(lambda self: self.concentration / self.rate)
    mode = property(lambda self: ((self.concentration - 1) / self.rate).clamp(min=0))
    variance = property(lambda self: self.concentration / self.rate ** 2)

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        return (log_gamma_draws(self.concentration, shape) - self.rate.log()).exp().clamp(min=finfo(self.rate.dtype).tiny)

    def log_prob(self, value):
        self._validate_sample(value)
        a, rate = self.concentration, self.rate
        return ops.xlogy(a, rate) + ops.xlogy(a - 1, value) - rate * value - a.lgamma()

    def cdf(self, value):
        self._validate_sample(value)
        return gamma_cdf(self.concentration, self.rate * value)

    def entropy(self):
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()


class Chi2(Gamma):
    """The distribution of the sum of df squares of normal numbers."""

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df, validate_args=None):
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    df = property(lambda self: self.concentration * 2)

    def expand(self, batch_shape, _instance=None):
        new = super().expand(batch_shape, _instance)
        new.concentration, new.rate = self.concentration.expand(batch_shape), self.rate.expand(batch_shape)
        return new


class Dirichlet(ExponentialFamily):
    """The distribution of probabilities (..., n), with a density proportional to prod(x^(concentration - 1))."""

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support, has_rsample = constraints.simplex, True

    def __init__(self, concentration, validate_args=None):
        if concentration.ndim < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args)

    _total = property(lambda self: self.concentration.sum(-1, keepdim=True))
    mean = property(lambda self: self.concentration / self._total)

    @property
    def mode(self):
        excess = (self.concentration - 1).clamp(min=0)
        total = excess.sum(-1, keepdim=True)
        first = ops.cast(ops.equal(ops.iota(_core.int64, excess.shape, excess.ndim - 1), 0), excess.dtype)
        corner = ops.all(self.concentration < 1, axes=-1, keepdims=True)  # where each corner is a mode, the first is returned
        return ops.select(corner, first, excess / ops.select(corner, 1.0, total))

    @property
    def variance(self):
        total = self._total
        return self.concentration * (total - self.concentration) / (total ** 2 * (total + 1))

    def rsample(self, sample_shape=()):
        return log_gamma_draws(self.concentration, self._extended_shape(sample_shape)).softmax(-1)

    def log_prob(self, value):
        self._validate_sample(value)
        a = self.concentration
        return ops.xlogy(a - 1, value).sum(-1) + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self):
        k, a, total = self.concentration.shape[-1], self.concentration, self.concentration.sum(-1)
        return a.lgamma().sum(-1) - total.lgamma() - (k - total) * total.digamma() - ((a - 1) * a.digamma()).sum(-1)


class Beta(ExponentialFamily):
    """The density is proportional to x^(concentration1 - 1) (1 - x)^(concentration0 - 1)."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support, has_rsample = constraints.unit_interval, True

    def __init__(self, concentration1, concentration0, validate_args=None):
        concentrations = broadcast_all(concentration1, concentration0)
        self._dirichlet = Dirichlet(stack(concentrations, -1), validate_args=validate_args)
        super().__init__(self._dirichlet._batch_shape, validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = super().expand(batch_shape, _instance)
        new._dirichlet = self._dirichlet.expand(batch_shape)
        return new

    concentration1 = property(lambda self: self._dirichlet.concentration[..., 0])
    concentration0 = property(lambda self: self._dirichlet.concentration[..., 1])
    mean = property(lambda self: self.concentration1 / (self.concentration1 + self.concentration0))
    mode = property(lambda self: self._dirichlet.mode[..., 0])

    @property
    def variance(self):
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total ** 2 * (total + 1))

    def rsample(self, sample_shape=()):
        return self._dirichlet.rsample(sample_shape)[..., 0]

    def log_prob(self, value):
        self._validate_sample(value)
        return self._dirichlet.log_prob(stack([value, 1 - value], -1))

    def entropy(self):
        return self._dirichlet.entropy()


class StudentT(Distribution):
    """Student's distribution of df degrees of freedom, times scale, plus loc."""

    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support, has_rsample = constraints.real, True

    def __init__(self, df, loc=0.0, scale=1.0, validate_args=None):
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        super().__init__(self.df.shape, validate_args=validate_args)

    mode = property(lambda self: self.loc)
    mean = property(lambda self: ops.select(ops.less_equal(self.df, 1), math.nan, self.loc))

    @property
    def variance(self):
        finite = self.df > 2
        df = ops.select(finite, self.df, 3.0)
        variance = ops.select(finite, self.scale ** 2 * df / (df - 2), math.inf)
        return ops.select(ops.less_equal(self.df, 1), math.nan, variance)

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        halved = log_gamma_draws(self.df / 2, shape) - (self.df / 2).log()  # log(chi2 / df)
        return self.loc + self.scale * _random.gaussian(shape, dtype=self.df.dtype) * (-0.5 * halved).exp()

    def log_prob(self, value):
        self._validate_sample(value)
        y, df = (value - self.loc) / self.scale, self.df
        normalizer = self.scale.log() + 0.5 * (df * math.pi).log() + (0.5 * df).lgamma() - (0.5 * (df + 1)).lgamma()
        return -0.5 * (df + 1) * (y ** 2 / df).log1p() - normalizer

    def entropy(self):
        half, more = 0.5 * self.df, 0.5 * (self.df + 1)
        log_beta = half.lgamma() + math.lgamma(0.5) - more.lgamma()
        return self.scale.log() + more * (more.digamma() - half.digamma()) + 0.5 * self.df.log() + log_beta
