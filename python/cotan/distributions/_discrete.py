"""Distributions of whole numbers and of classes."""
import math

from .. import _core, _random
from .._core import Tensor, ops
from .._dtypes import finfo
from .._grad import no_grad
from .._shaping import broadcast_tensors
from ..nn.functional import binary_cross_entropy_with_logits
from . import constraints
from ._gamma import Gamma
from ._sampling import binomial_draws, poisson_draws
from .distribution import Distribution, ExponentialFamily
from .utils import broadcast_all, clamp_probs, constant_like, lazy_property, logits_to_probs, open_unit, probs_to_logits


def check_one_of(name, probs, logits):
    if (probs is None) == (logits is None):
        raise ValueError(f"{name}: either probs or logits is needed, not {'both' if logits is not None else 'none'} of them")


class BinaryParameters:
    """The probabilities or logits of two outcomes: the one that is not given is computed of the other."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}

    def _set(self, probs, logits, *others):
        """Sets what is given, broadcast with others, which are returned."""
        check_one_of(type(self).__name__, probs, logits)
        name = "logits" if probs is None else "probs"
        self.__dict__[name], *others = broadcast_all(logits if probs is None else probs, *others)
        return others

    _param = property(lambda self: self.__dict__["probs" if "probs" in self.__dict__ else "logits"])
    param_shape = property(lambda self: self._param.shape)

    @lazy_property
    def logits(self):
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self):
        return logits_to_probs(self.logits, is_binary=True)


class Bernoulli(BinaryParameters, ExponentialFamily):
    """1 with probability probs, else 0; logits are log(probs / (1 - probs))."""

    support, has_enumerate_support = constraints.boolean, True

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._set(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)

    mean = property(lambda self: self.probs)
    mode = property(lambda self: ops.select(ops.equal(self.probs, 0.5), math.nan, ops.cast(self.probs >= 0.5, self.probs.dtype)))
    variance = property(lambda self: self.probs * (1 - self.probs))

    def sample(self, sample_shape=()):
        return _random.bernoulli(self.probs.detach().expand(self._extended_shape(sample_shape)))

    def log_prob(self, value):
        self._validate_sample(value)
        logits, value = broadcast_tensors(self.logits, ops.cast(value, self.logits.dtype))
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self):
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand=True):
        return self._all_outcomes(_core.asarray([0.0, 1.0], dtype=self._param.dtype), expand)


class Geometric(BinaryParameters, Distribution):
    """The number of failures before the first success, of trials that succeed with probability probs."""

    support = constraints.nonnegative_integer

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._set(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)
        if self._validate_args and probs is not None and not _core._tracing() and not (self.probs > 0).all():
            raise ValueError(f"Expected parameter probs (Tensor of shape {tuple(self.probs.shape)}) of distribution {self!r} to be "
                             f"positive but found invalid values:\n{self.probs}")

    mean = property(lambda self: 1 / self.probs - 1)
    mode = property(lambda self: constant_like(self.probs, 0))
    variance = property(lambda self: (1 / self.probs - 1) / self.probs)

    def sample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        return (open_unit(shape, self.probs.dtype).log() / (-self.probs.detach()).log1p()).floor()

    def log_prob(self, value):
        self._validate_sample(value)
        value, probs = broadcast_tensors(value, self.probs)
        none = ops.and_(ops.equal(probs, 1), ops.equal(value, 0))
        return value * (-ops.select(none, 0.0, probs)).log1p() + self.probs.log()

    def entropy(self):
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs


class Binomial(BinaryParameters, Distribution):
    """The number of successes in total_count trials that succeed with probability probs."""

    arg_constraints = {"total_count": constraints.nonnegative_integer, **BinaryParameters.arg_constraints}
    has_enumerate_support = True

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        count = total_count if isinstance(total_count, Tensor) else float(total_count)
        count, = self._set(probs, logits, count)
        self.total_count = ops.cast(count, self._param.dtype)
        super().__init__(self._param.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self):
        return constraints.integer_interval(0, self.total_count)

    mean = property(lambda self: self.total_count * self.probs)
    mode = property(lambda self: ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count))
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape=()):
        return binomial_draws(self.total_count, self.probs, self._extended_shape(sample_shape))

    def log_prob(self, value):
        self._validate_sample(value)
        n = self.total_count
        chosen = (n + 1).lgamma() - (value + 1).lgamma() - (n - value + 1).lgamma()
        return value * self.logits + chosen - n * ops.softplus(self.logits)

    def _one_count(self, what):
        least, most = self.total_count.min(), self.total_count.max()
        if not (least == most).item():
            raise NotImplementedError(f"Inhomogeneous total count not supported by `{what}`.")
        return int(most.item())

    def entropy(self):
        self._one_count("entropy")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand=True):
        n = self._one_count("enumerate_support")
        return self._all_outcomes(ops.cast(ops.iota(_core.int64, (n + 1,), 0), self._param.dtype), expand)


class NegativeBinomial(BinaryParameters, Distribution):
    """The number of successes, of probability probs, before total_count failures."""

    arg_constraints = {"total_count": constraints.greater_than_eq(0), "probs": constraints.half_open_interval(0.0, 1.0),
                       "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(self, total_count, probs=None, logits=None, validate_args=None):
        count = total_count if isinstance(total_count, Tensor) else float(total_count)
        count, = self._set(probs, logits, count)
        self.total_count = ops.cast(count, self._param.dtype)
        super().__init__(self._param.shape, validate_args=validate_args)

    mean = property(lambda self: self.total_count * self.logits.exp())
    mode = property(lambda self: ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0))
    variance = property(lambda self: self.mean / (-self.logits).sigmoid())

    def sample(self, sample_shape=()):
        with no_grad():
            rate = Gamma(self.total_count, (-self.logits).exp(), validate_args=False).sample(sample_shape)
            return poisson_draws(rate, tuple(rate.shape))

    def log_prob(self, value):
        self._validate_sample(value)
        n = self.total_count
        unnormalized = -n * ops.softplus(self.logits) - value * ops.softplus(-self.logits)
        none = ops.equal(n + value, 0)
        n, value = ops.select(none, 1.0, n + 0 * value), ops.select(none, 0.0, value + 0 * n)
        return unnormalized + (n + value).lgamma() - (1 + value).lgamma() - n.lgamma()


class Poisson(ExponentialFamily):
    """The number of events at this rate: rate^x exp(-rate) / x!"""

    arg_constraints, support = {"rate": constraints.nonnegative}, constraints.nonnegative_integer

    def __init__(self, rate, validate_args=None):
        self.rate, = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    mean = variance = property(lambda self: self.rate)
    mode = property(lambda self: self.rate.floor())

    def sample(self, sample_shape=()):
        return poisson_draws(self.rate, self._extended_shape(sample_shape))

    def log_prob(self, value):
        self._validate_sample(value)
        return ops.xlogy(value, self.rate) - self.rate - (value + 1).lgamma()


class Categorical(Distribution):
    """0 to n - 1 with the probabilities (..., n), which need not add up to 1; logits are their logarithms. Samples are (...)."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True

    def __init__(self, probs=None, logits=None, validate_args=None):
        check_one_of("Categorical", probs, logits)
        name, given = ("probs", probs) if logits is None else ("logits", logits)
        if given.ndim < 1:
            raise ValueError(f"Categorical: {name} is one number, it needs at least one axis")
        self.__dict__[name] = given / given.sum(-1, keepdim=True) if logits is None else given - given.logsumexp(-1, keepdim=True)
        super().__init__(given.shape[:-1], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self):
        return constraints.integer_interval(0, self._num_events - 1)

    _param = BinaryParameters._param
    _num_events = property(lambda self: self._param.shape[-1])
    param_shape = property(lambda self: self._param.shape)

    @lazy_property
    def logits(self):
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self):
        return logits_to_probs(self.logits)

    mean = variance = property(lambda self: constant_like(self._param[..., 0], math.nan))
    mode = property(lambda self: self.probs.argmax(-1))

    def sample(self, sample_shape=()):
        shape, n = self._extended_shape(sample_shape), self._num_events
        count = math.prod(shape) // max(math.prod(self._batch_shape), 1)
        drawn = _random.multinomial(self.probs.detach().reshape(-1, n), max(count, 1), True)  # (batch, count)
        return ops.permute(drawn, (1, 0))[:count].reshape(shape)

    def log_prob(self, value):
        self._validate_sample(value)
        value = ops.cast(value, _core.int64)
        shape = broadcast_tensors(value, self._param[..., 0])[0].shape
        logits = self.logits.expand(*shape, self._num_events)
        return logits.gather(-1, value.expand(shape).unsqueeze(-1)).squeeze(-1)

    def entropy(self):
        return -(self.logits.clamp(min=finfo(self.logits.dtype).min) * self.probs).sum(-1)  # outcomes of probability 0 add 0

    def enumerate_support(self, expand=True):
        return self._all_outcomes(ops.iota(_core.int64, (self._num_events,), 0), expand)


class OfCategorical(Distribution):
    """Distributions of vectors (n,) that are made of the outcomes of self._categorical."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    _param = property(lambda self: self._categorical._param)
    probs = property(lambda self: self._categorical.probs)
    logits = property(lambda self: self._categorical.logits)
    param_shape = property(lambda self: self._categorical.param_shape)

    def expand(self, batch_shape, _instance=None):
        new = super().expand(batch_shape, _instance)
        new._categorical = self._categorical.expand(batch_shape)
        return new


class OneHotCategorical(OfCategorical):
    """The outcomes of Categorical as vectors (..., n) with a 1 at the class, else 0."""

    support, has_enumerate_support = constraints.one_hot, True

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._categorical = Categorical(probs, logits)
        super().__init__(self._categorical.batch_shape, self._param.shape[-1:], validate_args=validate_args)

    _num_events = property(lambda self: self._categorical._num_events)
    mean = property(lambda self: self.probs)
    mode = property(lambda self: self._one_hot(self._categorical.mode))
    variance = property(lambda self: self.probs * (1 - self.probs))

    def _one_hot(self, classes):
        return ops.one_hot(classes, self._num_events, self._param.dtype)

    def sample(self, sample_shape=()):
        return self._one_hot(self._categorical.sample(sample_shape))

    def log_prob(self, value):
        self._validate_sample(value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self):
        return self._categorical.entropy()

    def enumerate_support(self, expand=True):
        return self._all_outcomes(self._one_hot(ops.iota(_core.int64, (self._num_events,), 0)), expand)


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """OneHotCategorical whose samples (..., n) have the gradient of the probabilities."""

    has_rsample = True

    def rsample(self, sample_shape=()):
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Multinomial(OfCategorical):
    """How often each of n classes is drawn in total_count draws: (..., n)."""

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits)
        super().__init__(self._categorical.batch_shape, self._param.shape[-1:], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self):
        return constraints.multinomial(self.total_count)

    mean = property(lambda self: self.probs * self.total_count)
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        drawn = self._categorical.sample((self.total_count, *shape[:len(shape) - len(self._batch_shape) - 1]))
        return ops.one_hot(drawn, shape[-1], self._param.dtype).sum(0)

    def log_prob(self, value):
        self._validate_sample(value)
        logits, value = broadcast_tensors(self.logits, ops.cast(value, self.logits.dtype))
        logits = ops.select(ops.and_(ops.equal(value, 0), ops.equal(logits, -math.inf)), 0.0, logits)
        return (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1) + (value * logits).sum(-1)

    def entropy(self):
        n = self.total_count
        counts = Binomial(n, probs=self.probs, validate_args=False)
        outcomes = counts.enumerate_support(expand=False)[1:]
        excess = (counts.log_prob(outcomes).exp() * (outcomes + 1).lgamma()).sum((0, -1))
        return n * self._categorical.entropy() - math.lgamma(n + 1) + excess


class LogitRelaxedBernoulli(BinaryParameters, Distribution):
    """The logits of RelaxedBernoulli's samples."""

    support, has_rsample = constraints.real, True

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        self.temperature = temperature
        self._set(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)

    def rsample(self, sample_shape=()):
        probs = clamp_probs(self.probs)
        u = clamp_probs(_random.uniform(self._extended_shape(sample_shape), dtype=probs.dtype))
        return (u.log() - (-u).log1p() + probs.log() - (-probs).log1p()) / self.temperature

    def log_prob(self, value):
        self._validate_sample(value)
        excess = self.logits - value * self.temperature
        return ops.log(_core.asarray(self.temperature, dtype=excess.dtype)) + excess - 2 * ops.softplus(excess)


class ExpRelaxedCategorical(OfCategorical):
    """The logarithms of RelaxedOneHotCategorical's samples: (..., n)."""

    support, has_rsample = constraints.real_vector, True

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        self.temperature = temperature
        self._categorical = Categorical(probs, logits)
        super().__init__(self._categorical.batch_shape, self._param.shape[-1:], validate_args=validate_args)

    def rsample(self, sample_shape=()):
        u = clamp_probs(_random.uniform(self._extended_shape(sample_shape), dtype=self.logits.dtype))
        return ((self.logits - (-(u.log())).log()) / self.temperature).log_softmax(-1)

    def log_prob(self, value):
        self._validate_sample(value)
        k = self._categorical._num_events
        temperature = _core.asarray(self.temperature, dtype=self.logits.dtype)
        score = (self.logits - value * temperature).log_softmax(-1).sum(-1)
        return score + math.lgamma(k) + (k - 1) * temperature.log()
