"""Divergences between two distributions, by the pair of their classes."""
import math

from .. import _core
from .._core import ops
from ._continuous import Cauchy, Exponential, Laplace, Normal, Uniform
from ._discrete import (Bernoulli, Binomial, Categorical, Geometric, OneHotCategorical, Poisson)
from ._gamma import Beta, Dirichlet, Gamma
from ._multivariate import LowRankMultivariateNormal, MultivariateNormal, log_diagonal, triangular_solve
from ._transformed import Gumbel, HalfNormal, Independent, Pareto, TransformedDistribution
from .distribution import Distribution
from .transforms import sum_rightmost
from .utils import euler_constant

__all__ = ["kl_divergence", "register_kl"]

_REGISTRY = {}


def register_kl(type_p, type_q):
    """Registers the decorated function(p, q) for two classes of distributions and those derived from them."""
    for name, kind in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(kind, type) or not issubclass(kind, Distribution):
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {kind}")

    def register(function):
        _REGISTRY[type_p, type_q] = function
        return function

    return register


def kl_divergence(p, q):
    """Returns the divergence of p from q: the mean under p of log p - log q."""
    kinds = [(one, two) for one in type(p).__mro__ for two in type(q).__mro__ if (one, two) in _REGISTRY]
    if not kinds:
        raise NotImplementedError(f"kl_divergence: of {type(p).__name__} from {type(q).__name__} there is no formula here")
    return _REGISTRY[kinds[0]](p, q)


def _term(p, q, difference):
    """Returns the term of an outcome of probability p: 0 if it is impossible, infinity if it is impossible only
    under q."""
    return ops.select(ops.equal(p, 0), 0.0, ops.select(ops.equal(q, 0), math.inf, p * difference))


def _infinite(p, q):
    """Returns infinity: p has outcomes that are impossible under q."""
    return _core.full(p.batch_shape, math.inf, p.mean.dtype)


def _infinite_outside(result, *outside):
    """Returns infinity where any of the conditions holds, else the result."""
    for condition in outside:
        result = ops.select(condition, math.inf, result)
    return result


@register_kl(Bernoulli, Bernoulli)
def _(p, q):
    softplus = ops.softplus
    return (_term(p.probs, q.probs, softplus(-q.logits) - softplus(-p.logits))
            + _term(1 - p.probs, 1 - q.probs, softplus(q.logits) - softplus(p.logits)))


register_kl(Bernoulli, Poisson)(lambda p, q: -p.entropy() - (p.probs * q.rate.log() - q.rate))


@register_kl(Binomial, Binomial)
def _(p, q):
    kl = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
    return _infinite_outside(kl, p.total_count > q.total_count)


register_kl(Categorical, Categorical)(lambda p, q: _term(p.probs, q.probs, p.logits - q.logits).sum(-1))
register_kl(OneHotCategorical, OneHotCategorical)(lambda p, q: kl_divergence(p._categorical, q._categorical))
register_kl(Geometric, Geometric)(lambda p, q: -p.entropy() - (-q.probs).log1p() / p.probs - q.logits)
register_kl(Poisson, Poisson)(lambda p, q: p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate))
register_kl(Beta, Beta)(lambda p, q: kl_divergence(p._dirichlet, q._dirichlet))


@register_kl(Dirichlet, Dirichlet)
def _(p, q):
    a, b = p.concentration, q.concentration
    total = a.sum(-1, keepdim=True)
    return (total.squeeze(-1).lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
            + ((a - b) * (a.digamma() - total.digamma())).sum(-1))


register_kl(Beta, Exponential)(lambda p, q: -p.entropy() - q.rate.log() + q.rate * p.mean)


@register_kl(Beta, Gamma)
def _(p, q):
    mean_log = p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
    return (-p.entropy() + q.concentration.lgamma() - q.concentration * q.rate.log()
            - (q.concentration - 1) * mean_log + q.rate * p.mean)


def _from_normal(p, q):
    """Returns the divergence from a normal distribution, by the mean and the variance of p."""
    return (-p.entropy() + 0.5 * (2 * math.pi * q.scale ** 2).log()
            + 0.5 * (p.variance + (p.mean - q.loc) ** 2) / q.scale ** 2)


for _kind in (Beta, Exponential, Gamma, Gumbel, Laplace, Uniform):
    register_kl(_kind, Normal)(_from_normal)


@register_kl(Beta, Uniform)
def _(p, q):
    return _infinite_outside(-p.entropy() + (q.high - q.low).log(), q.low > p.support.lower_bound, q.high < p.support.upper_bound)


@register_kl(Exponential, Exponential)
def _(p, q):
    ratio = q.rate / p.rate
    return -ratio.log() + ratio - 1


@register_kl(Exponential, Gamma)
def _(p, q):
    ratio = q.rate / p.rate
    return (-q.concentration * ratio.log() + ratio + q.concentration.lgamma() + q.concentration * euler_constant
            - (1 + euler_constant))


@register_kl(Exponential, Gumbel)
def _(p, q):
    product, scaled = p.rate * q.scale, q.loc / q.scale
    return product.log() - 1 + product.reciprocal() + scaled.exp() * (product / (product + 1)) - scaled


@register_kl(Gamma, Gamma)
def _(p, q):
    return (q.concentration * (p.rate / q.rate).log() + q.concentration.lgamma() - p.concentration.lgamma()
            + (p.concentration - q.concentration) * p.concentration.digamma() + (q.rate - p.rate) * (p.concentration / p.rate))


register_kl(Gamma, Exponential)(lambda p, q: -p.entropy() - q.rate.log() + q.rate * p.concentration / p.rate)


@register_kl(Gamma, Gumbel)
def _(p, q):
    product, scaled = p.rate * q.scale, q.loc / q.scale
    return ((p.concentration - 1) * p.concentration.digamma() - p.concentration.lgamma() - p.concentration + product.log()
            + p.concentration / product - scaled + scaled.exp() * (1 + product.reciprocal()) ** -p.concentration)


@register_kl(Gumbel, Gumbel)
def _(p, q):
    ratio, p_loc, q_loc = p.scale / q.scale, p.loc / q.scale, q.loc / q.scale
    return (-ratio.log() - q_loc + p_loc + ratio * euler_constant
            + (q_loc + (1 + ratio).lgamma() - p_loc).exp() - (1 + euler_constant))


register_kl(HalfNormal, HalfNormal)(lambda p, q: kl_divergence(p.base_dist, q.base_dist))


@register_kl(Laplace, Laplace)
def _(p, q):
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + distance / q.scale + ratio * (-distance / p.scale).exp() - 1


@register_kl(Normal, Normal)
def _(p, q):
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - ratio.log())


@register_kl(Normal, Gumbel)
def _(p, q):
    offset, variance = (p.loc - q.loc) / q.scale, (p.scale / q.scale) ** 2
    return -0.5 * variance.log() + offset + (0.5 * variance - offset).exp() - 0.5 * (1 + math.log(2 * math.pi))


@register_kl(Normal, Laplace)
def _(p, q):
    offset, ratio = p.loc - q.loc, p.scale / q.scale
    scaled = offset / p.scale
    distance = math.sqrt(2 / math.pi) * p.scale * (-0.5 * scaled ** 2).exp() + offset * (math.sqrt(0.5) * scaled).erf()
    return -ratio.log() + distance / q.scale - 0.5 * math.log(0.5 * math.pi) - 0.5


register_kl(Cauchy, Cauchy)(lambda p, q: ((p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2).log() - (4 * p.scale * q.scale).log())


@register_kl(Pareto, Pareto)
def _(p, q):
    ratio = q.alpha / p.alpha
    kl = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return _infinite_outside(kl, p.support.lower_bound < q.support.lower_bound)


@register_kl(Pareto, Exponential)
def _(p, q):
    product = p.scale * q.rate
    kl = (p.alpha / product).log() - p.alpha.reciprocal() + p.alpha * product / (p.alpha - 1) - 1
    return _infinite_outside(kl, p.alpha <= 1)


@register_kl(Pareto, Gamma)
def _(p, q):
    mean_log = p.scale.log() + p.alpha.reciprocal()
    kl = (p.alpha.log() - mean_log + q.concentration.lgamma() - q.concentration * q.rate.log() + (1 - q.concentration) * mean_log
          + q.rate * p.alpha * p.scale / (p.alpha - 1) - 1)
    return _infinite_outside(kl, p.alpha <= 1)


@register_kl(Pareto, Normal)
def _(p, q):
    less = p.alpha - 1
    variance = 0.5 * (p.scale / q.scale) ** 2 * p.alpha / (less ** 2 * (p.alpha - 2))
    mean = 0.5 * ((p.alpha * p.scale / less - q.loc) / q.scale) ** 2
    kl = (math.sqrt(2 * math.pi) * q.scale * p.alpha / p.scale).log() - p.alpha.reciprocal() + variance + mean - 1
    return _infinite_outside(kl, p.alpha <= 2)


@register_kl(Uniform, Uniform)
def _(p, q):
    return _infinite_outside(((q.high - q.low) / (p.high - p.low)).log(), q.low > p.low, q.high < p.high)


@register_kl(Uniform, Beta)
def _(p, q):
    width, a, b = p.high - p.low, q.concentration1, q.concentration0
    mean_log = (ops.xlogy(p.high, p.high) - ops.xlogy(p.low, p.low) - width) / width
    mean_log_rest = (ops.xlogy(1 - p.high, 1 - p.high) - ops.xlogy(1 - p.low, 1 - p.low) + width) / width
    kl = (a.lgamma() + b.lgamma() - (a + b).lgamma()) - width.log() - (a - 1) * mean_log + (b - 1) * mean_log_rest
    return _infinite_outside(kl, p.high > q.support.upper_bound, p.low < q.support.lower_bound)


@register_kl(Uniform, Exponential)
def _(p, q):
    return _infinite_outside(q.rate * (p.high + p.low) / 2 - ((p.high - p.low) * q.rate).log(), p.low < 0)


@register_kl(Uniform, Gamma)
def _(p, q):
    width = p.high - p.low
    mean_log = (ops.xlogy(p.high, p.high) - ops.xlogy(p.low, p.low) - width) / width
    kl = (-width.log() + q.concentration.lgamma() - q.concentration * q.rate.log() + (1 - q.concentration) * mean_log
          + q.rate * (p.high + p.low) / 2)
    return _infinite_outside(kl, p.low < 0)


@register_kl(Uniform, Gumbel)
def _(p, q):
    scaled, high, low = q.scale / (p.high - p.low), (p.high - q.loc) / q.scale, (p.low - q.loc) / q.scale
    return scaled.log() + 0.5 * (high + low) - scaled * ((-high).exp() - (-low).exp())


@register_kl(Uniform, Pareto)
def _(p, q):
    width = p.high - p.low
    mean_log = (ops.xlogy(p.high, p.high) - ops.xlogy(p.low, p.low) - width) / width
    kl = (q.alpha + 1) * mean_log - (q.alpha * q.scale ** q.alpha * width).log()
    return _infinite_outside(kl, p.low < q.support.lower_bound)


_INFINITE = ((Beta, Pareto), (Exponential, Beta), (Exponential, Pareto), (Exponential, Uniform), (Gamma, Beta), (Gamma, Pareto),
             (Gamma, Uniform), (Gumbel, Beta), (Gumbel, Exponential), (Gumbel, Gamma), (Gumbel, Pareto), (Gumbel, Uniform),
             (Laplace, Beta), (Laplace, Exponential), (Laplace, Gamma), (Laplace, Pareto), (Laplace, Uniform), (Normal, Beta),
             (Normal, Exponential), (Normal, Gamma), (Normal, Pareto), (Normal, Uniform), (Pareto, Beta), (Pareto, Uniform),
             (Poisson, Bernoulli), (Poisson, Binomial))
for _pair in _INFINITE:
    register_kl(*_pair)(_infinite)


def _normal_of_factors(p, q, p_factors, p_log_det):
    """Returns the divergence of p, whose covariance is the sum of F F^T for F in p_factors (..., n, k), from q; p_log_det is
    half of the logarithm of the determinant of that covariance."""
    columns = [ops.permute(f, (f.ndim - 1, *range(f.ndim - 1))) for f in p_factors]  # (k, *B, n)
    if isinstance(q, LowRankMultivariateNormal):
        distance, q_log_det = q._distance, 0.5 * q._log_determinant()
    else:
        lower = q._unbroadcasted_scale_tril
        q_log_det = log_diagonal(lower)

        def distance(x):
            return (triangular_solve(lower, x) ** 2).sum(-1)

    trace = sum(distance(column).sum(0) for column in columns)
    return q_log_det - p_log_det + 0.5 * (trace + distance(q.loc - p.loc) - p.event_shape[0])


def _multivariate(p, q):
    if p.event_shape != q.event_shape:
        raise ValueError("KL-divergence between two Multivariate Normals with different event shapes cannot be computed")
    if isinstance(p, LowRankMultivariateNormal):
        return _normal_of_factors(p, q, (p.cov_factor, p.cov_diag.sqrt().diag_embed()), 0.5 * p._log_determinant())
    return _normal_of_factors(p, q, (p.scale_tril,), log_diagonal(p._unbroadcasted_scale_tril))


for _p in (MultivariateNormal, LowRankMultivariateNormal):
    for _q in (MultivariateNormal, LowRankMultivariateNormal):
        register_kl(_p, _q)(_multivariate)


@register_kl(Independent, Independent)
def _(p, q):
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _(p, q):
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError
    return kl_divergence(p.base_dist, q.base_dist)
