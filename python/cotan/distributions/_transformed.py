"""Distributions that are made of others: transformed, mixed, and with axes of the batch counted as the event's."""
import math

from .._core import ops
from .._dtypes import finfo
from .._grad import no_grad
from . import constraints
from ._continuous import Cauchy, Exponential, Normal, Uniform
from ._discrete import Categorical, ExpRelaxedCategorical, LogitRelaxedBernoulli
from .distribution import Distribution
from .transforms import (AbsTransform, AffineTransform, ComposeTransform, ExpTransform, PowerTransform, SigmoidTransform, Transform,
                         sum_rightmost)
from .utils import broadcast_all, constant_like, euler_constant


class Independent(Distribution):
    """The last reinterpreted_batch_ndims axes of the batch of a distribution count as axes of the event: values
    (..., *event), log_prob (...)."""

    arg_constraints = {}

    def __init__(self, base_distribution, reinterpreted_batch_ndims, validate_args=None):
        batch, event, n = tuple(base_distribution.batch_shape), tuple(base_distribution.event_shape), reinterpreted_batch_ndims
        if n > len(batch):
            raise ValueError("Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual "
                             f"{n} vs {len(batch)}")
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, n
        super().__init__(batch[:len(batch) - n], batch[len(batch) - n:] + event, validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = super().expand(batch_shape, _instance)
        new.base_dist = self.base_dist.expand((*batch_shape, *self._event_shape[:self.reinterpreted_batch_ndims]))
        return new

    has_rsample = property(lambda self: self.base_dist.has_rsample)
    has_enumerate_support = property(lambda self: not self.reinterpreted_batch_ndims and self.base_dist.has_enumerate_support)
    mean = property(lambda self: self.base_dist.mean)
    mode = property(lambda self: self.base_dist.mode)
    variance = property(lambda self: self.base_dist.variance)

    @constraints.dependent_property
    def support(self):
        support, n = self.base_dist.support, self.reinterpreted_batch_ndims
        return constraints.independent(support, n) if n else support

    def sample(self, sample_shape=()):
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape=()):
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value):
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self):
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand=True):
        if self.reinterpreted_batch_ndims:
            raise NotImplementedError("Enumeration over cartesian product is not implemented")
        return self.base_dist.enumerate_support(expand=expand)

    def __repr__(self):
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamily(Distribution):
    """A mixture: mixture_distribution (Categorical) selects one along the last axis of component_distribution's
    batch (..., n)."""

    arg_constraints = {}

    def __init__(self, mixture_distribution, component_distribution, validate_args=None):
        self._mixture_distribution, self._component_distribution = mixture_distribution, component_distribution
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(" The Mixture distribution needs to be an instance of torch.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution need to be an instance of torch.distributions.Distribution")
        batch, components = tuple(mixture_distribution.batch_shape), tuple(component_distribution.batch_shape[:-1])
        for one, two in zip(reversed(batch), reversed(components)):
            if one != 1 and two != 1 and one != two:
                raise ValueError(f"`mixture_distribution.batch_shape` ({batch}) is not compatible with "
                                 f"`component_distribution.batch_shape`({components})")
        count, available = mixture_distribution._num_events, component_distribution.batch_shape[-1]
        if count != available:
            raise ValueError(f"`mixture_distribution component` ({count}) does not equal `component_distribution.batch_shape[-1]` "
                             f"({available})")
        self._num_component = count
        self._event_ndims = len(component_distribution.event_shape)
        super().__init__(components, component_distribution.event_shape, validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = super().expand(batch_shape, _instance)
        new._component_distribution = self._component_distribution.expand((*batch_shape, self._num_component))
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        return new

    mixture_distribution = property(lambda self: self._mixture_distribution)
    component_distribution = property(lambda self: self._component_distribution)
    support = constraints.dependent_property(
        lambda self: constraints.MixtureSameFamilyConstraint(self._component_distribution.support))

    def _weighted(self, values):
        """Returns the mean over the components of values (..., n, *event_shape)."""
        probs = self._mixture_distribution.probs
        return (probs.reshape((*probs.shape, *[1] * self._event_ndims)) * values).sum(-1 - self._event_ndims)

    mean = property(lambda self: self._weighted(self._component_distribution.mean))

    @property
    def variance(self):
        offset = self._component_distribution.mean - self._pad(self.mean)
        return self._weighted(self._component_distribution.variance) + self._weighted(offset ** 2)

    def _pad(self, x):
        return x.unsqueeze(-1 - self._event_ndims)

    def cdf(self, value):
        self._validate_sample(value)
        return (self._component_distribution.cdf(self._pad(value)) * self._mixture_distribution.probs).sum(-1)

    def log_prob(self, value):
        self._validate_sample(value)
        log_probs = self._component_distribution.log_prob(self._pad(value))
        return (log_probs + self._mixture_distribution.logits.log_softmax(-1)).logsumexp(-1)

    def sample(self, sample_shape=()):
        with no_grad():
            shape = tuple(self._extended_shape(sample_shape))
            batch = shape[:len(shape) - self._event_ndims]
            drawn = self._component_distribution.sample(sample_shape)  # (*batch, n, *event)
            chosen = self._mixture_distribution.expand(self._batch_shape).sample(sample_shape)
            chosen = chosen.reshape(*batch, *[1] * (1 + self._event_ndims)).expand(*batch, 1, *self._event_shape)
            return drawn.gather(len(batch), chosen).squeeze(len(batch))

    def __repr__(self):
        return f"MixtureSameFamily(\n  {self._mixture_distribution},\n  {self._component_distribution})"


class TransformedDistribution(Distribution):
    """The distribution of transforms of a distribution's samples."""

    arg_constraints = {}

    def __init__(self, base_distribution, transforms, validate_args=None):
        self.transforms = [transforms] if isinstance(transforms, Transform) else transforms
        if not isinstance(self.transforms, list) or not all(isinstance(t, Transform) for t in self.transforms):
            raise ValueError("transforms must be a Transform or a list of Transforms")
        composed = ComposeTransform(self.transforms)
        base_shape = tuple(base_distribution.batch_shape) + tuple(base_distribution.event_shape)
        if len(base_shape) < composed.domain.event_dim:
            raise ValueError(f"base_distribution needs to have shape with size at least {composed.domain.event_dim}, but got "
                             f"{base_shape}.")
        shape = composed.forward_shape(base_shape)
        base_batch = composed.inverse_shape(shape)[:len(base_shape) - len(base_distribution.event_shape)]
        base_distribution = base_distribution.expand(base_batch)
        more = composed.domain.event_dim - len(base_distribution.event_shape)
        self.base_dist = Independent(base_distribution, more) if more > 0 else base_distribution
        change = composed.codomain.event_dim - composed.domain.event_dim
        event_dim = max(composed.codomain.event_dim, len(self.base_dist.event_shape) + change)
        cut = len(shape) - event_dim
        super().__init__(shape[:cut], shape[cut:], validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = super().expand(batch_shape, _instance)
        shape = ComposeTransform(self.transforms).inverse_shape((*batch_shape, *self._event_shape))
        new.base_dist = self.base_dist.expand(shape[:len(shape) - len(self.base_dist.event_shape)])
        return new

    has_rsample = property(lambda self: self.base_dist.has_rsample)

    @constraints.dependent_property(is_discrete=False)
    def support(self):
        support, n = self.transforms[-1].codomain if self.transforms else self.base_dist.support, len(self._event_shape)
        return constraints.independent(support, n - support.event_dim) if n > support.event_dim else support

    def _forward(self, x):
        for transform in self.transforms:
            x = transform(x)
        return x

    def _backward(self, y):
        for transform in reversed(self.transforms):
            y = transform.inv(y)
        return y

    def sample(self, sample_shape=()):
        with no_grad():
            return self._forward(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape=()):
        return self._forward(self.base_dist.rsample(sample_shape))

    def log_prob(self, value):
        self._validate_sample(value)
        event_dim, total, y = len(self._event_shape), 0.0, value
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            event_dim += transform.domain.event_dim - transform.codomain.event_dim
            total = total - sum_rightmost(transform.log_abs_det_jacobian(x, y), event_dim - transform.domain.event_dim)
            y = x
        return total + sum_rightmost(self.base_dist.log_prob(y), event_dim - len(self.base_dist.event_shape))

    def _mirrored(self, value):
        """Returns 1 - value where the transforms together fall, else value."""
        sign = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        return value if isinstance(sign, int) and sign == 1 else sign * (value - 0.5) + 0.5

    def cdf(self, value):
        self._validate_sample(value)
        return self._mirrored(self.base_dist.cdf(self._backward(value)))

    def icdf(self, value):
        return self._forward(self.base_dist.icdf(self._mirrored(value)))


class LogNormal(TransformedDistribution):
    """The distribution of exponentials of normal numbers of the mean loc and the standard deviation scale."""

    arg_constraints, support, has_rsample = Normal.arg_constraints, constraints.positive, True

    def __init__(self, loc, scale, validate_args=None):
        super().__init__(Normal(loc, scale, validate_args=validate_args), ExpTransform(), validate_args=validate_args)

    loc = property(lambda self: self.base_dist.loc)
    scale = property(lambda self: self.base_dist.scale)
    mean = property(lambda self: (self.loc + self.scale ** 2 / 2).exp())
    mode = property(lambda self: (self.loc - self.scale ** 2).exp())
    variance = property(lambda self: (self.scale ** 2).expm1() * (2 * self.loc + self.scale ** 2).exp())

    def entropy(self):
        return self.base_dist.entropy() + self.loc


class _Half(TransformedDistribution):
    """The distribution of absolute values of numbers around 0."""

    arg_constraints, support, has_rsample = {"scale": constraints.positive}, constraints.nonnegative, True

    def __init__(self, scale, validate_args=None):
        super().__init__(self._base(0, scale, validate_args=False), AbsTransform(), validate_args=validate_args)

    scale = property(lambda self: self.base_dist.scale)
    mode = property(lambda self: constant_like(self.scale, 0))

    def log_prob(self, value):
        self._validate_sample(value)
        log_prob = self.base_dist.log_prob(value) + math.log(2)
        return ops.select(ops.greater_equal(value, 0), log_prob, -math.inf)

    def cdf(self, value):
        self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, prob):
        return self.base_dist.icdf((prob + 1) / 2)

    def entropy(self):
        return self.base_dist.entropy() - math.log(2)


class HalfNormal(_Half):
    """The distribution of absolute values of normal numbers of mean 0."""

    _base = Normal
    mean = property(lambda self: self.scale * math.sqrt(2 / math.pi))
    variance = property(lambda self: self.scale ** 2 * (1 - 2 / math.pi))


class HalfCauchy(_Half):
    """The distribution of absolute values of Cauchy's distribution around 0."""

    _base = Cauchy
    mean = property(lambda self: constant_like(self.scale, math.inf))
    variance = property(lambda self: self.base_dist.variance)


class Gumbel(TransformedDistribution):
    """The distribution of the largest of many numbers: the cdf is exp(-exp(-(x - loc) / scale))."""

    arg_constraints, support = {"loc": constraints.real, "scale": constraints.positive}, constraints.real

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = broadcast_all(loc, scale)
        limits = finfo(self.loc.dtype)
        base = Uniform(constant_like(self.loc, limits.tiny), constant_like(self.loc, 1 - limits.eps), validate_args=validate_args)
        steps = [ExpTransform().inv, AffineTransform(0, -1), ExpTransform().inv, AffineTransform(self.loc, -self.scale)]
        super().__init__(base, steps, validate_args=validate_args)

    mean = property(lambda self: self.loc + self.scale * euler_constant)
    mode = property(lambda self: self.loc)
    stddev = property(lambda self: math.pi / math.sqrt(6) * self.scale)
    variance = property(lambda self: self.stddev ** 2)

    def log_prob(self, value):
        self._validate_sample(value)
        y = (self.loc - value) / self.scale
        return y - y.exp() - self.scale.log()

    def entropy(self):
        return self.scale.log() + (1 + euler_constant)


class Pareto(TransformedDistribution):
    """The density is alpha scale^alpha / x^(alpha + 1) from scale on."""

    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}

    def __init__(self, scale, alpha, validate_args=None):
        self.scale, self.alpha = broadcast_all(scale, alpha)
        base = Exponential(self.alpha, validate_args=validate_args)
        super().__init__(base, [ExpTransform(), AffineTransform(0, self.scale)], validate_args=validate_args)

    support = constraints.dependent_property(lambda self: constraints.greater_than_eq(self.scale), is_discrete=False, event_dim=0)
    mode = property(lambda self: self.scale)

    @property
    def mean(self):
        a = ops.select(self.alpha > 1, self.alpha, 1.0)
        return a * self.scale / (a - 1)

    @property
    def variance(self):
        a = ops.select(self.alpha > 2, self.alpha, 2.0)
        return self.scale ** 2 * a / ((a - 1) ** 2 * (a - 2))

    def entropy(self):
        return (self.scale / self.alpha).log() + (1 + self.alpha.reciprocal())


class Weibull(TransformedDistribution):
    """The cdf is 1 - exp(-(x / scale)^concentration)."""

    arg_constraints, support = {"scale": constraints.positive, "concentration": constraints.positive}, constraints.positive

    def __init__(self, scale, concentration, validate_args=None):
        self.scale, self.concentration = broadcast_all(scale, concentration)
        self.concentration_reciprocal = self.concentration.reciprocal()
        base = Exponential(constant_like(self.scale, 1), validate_args=validate_args)
        super().__init__(base, [PowerTransform(self.concentration_reciprocal), AffineTransform(0, self.scale)],
                         validate_args=validate_args)

    def _moment(self, n):
        return (1 + n / self.concentration).lgamma().exp()

    mean = property(lambda self: self.scale * self._moment(1))
    variance = property(lambda self: self.scale ** 2 * (self._moment(2) - self._moment(1) ** 2))
    mode = property(lambda self: self.scale * ((self.concentration - 1) / self.concentration) ** (1 / self.concentration))

    def entropy(self):
        reciprocal = self.concentration.reciprocal()
        return euler_constant * (1 - reciprocal) + (self.scale * reciprocal).log() + 1


class Kumaraswamy(TransformedDistribution):
    """The cdf is 1 - (1 - x^concentration1)^concentration0, from 0 to 1."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval

    def __init__(self, concentration1, concentration0, validate_args=None):
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        base = Uniform(*(constant_like(self.concentration0, end) for end in (0, 1)), validate_args=validate_args)
        steps = [PowerTransform(self.concentration0.reciprocal()), AffineTransform(1.0, -1.0),
                 PowerTransform(self.concentration1.reciprocal())]
        super().__init__(base, steps, validate_args=validate_args)

    def _moment(self, n):
        """Returns the mean of x^n."""
        b, arg = self.concentration0, 1 + n / self.concentration1
        return b * (arg.lgamma() + b.lgamma() - (arg + b).lgamma()).exp()

    mean = property(lambda self: self._moment(1))
    variance = property(lambda self: self._moment(2) - self._moment(1) ** 2)

    @property
    def mode(self):
        a, b = self.concentration1, self.concentration0
        log_mode = a.reciprocal() * (-b).log1p() - (-a * b).log1p() * a.reciprocal()
        return ops.select(ops.or_(a < 1, b < 1), math.nan, log_mode.exp())

    def entropy(self):
        a, b = self.concentration1, self.concentration0
        harmonic = (b + 1).digamma() + euler_constant
        return 1 - b.reciprocal() + (1 - a.reciprocal()) * harmonic - a.log() - b.log()


class _Relaxed(TransformedDistribution):
    """What RelaxedBernoulli and RelaxedOneHotCategorical share."""

    has_rsample = True
    temperature = property(lambda self: self.base_dist.temperature)
    logits = property(lambda self: self.base_dist.logits)
    probs = property(lambda self: self.base_dist.probs)


class RelaxedBernoulli(_Relaxed):
    """Numbers from 0 to 1 that are near 0 and 1 for a low temperature."""

    arg_constraints, support = LogitRelaxedBernoulli.arg_constraints, constraints.unit_interval

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        super().__init__(LogitRelaxedBernoulli(temperature, probs, logits), SigmoidTransform(), validate_args=validate_args)


class RelaxedOneHotCategorical(_Relaxed):
    """Probabilities that are near those of one class for a low temperature (Gumbel-softmax): (..., n)."""

    arg_constraints, support = ExpRelaxedCategorical.arg_constraints, constraints.simplex

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)
