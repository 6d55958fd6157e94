"""Probability distributions, by the names of torch.distributions: samples, log probabilities, entropies,
divergences."""
import math

from . import _core, _random
from ._core import Tensor, ops
from ._dtypes import FLOATS, finfo
from ._elementwise import scalar_of_dtype
from ._grad import no_grad
from ._shaping import broadcast_tensors
from .nn.functional import binary_cross_entropy_with_logits

__all__ = ["Bernoulli", "Categorical", "Distribution", "Normal", "Uniform", "kl_divergence"]


def _floats(*values):
    """Returns numbers and tensors as float tensors of one shape."""
    values = [value if isinstance(value, Tensor) else _core.asarray(value) for value in values]
    return broadcast_tensors(*(x if x.dtype in FLOATS else ops.cast(x, _core.float32) for x in values))


def _shape(sample_shape):
    return (sample_shape,) if hasattr(sample_shape, "__index__") else tuple(sample_shape)


class Distribution:
    """batch_shape: the shape of the parameters, each of which has a distribution of its own; event_shape:
    that of a sample."""

    def __init__(self, batch_shape=(), event_shape=()):
        self._batch_shape, self._event_shape = tuple(batch_shape), tuple(event_shape)

    @property
    def batch_shape(self):
        return self._batch_shape

    @property
    def event_shape(self):
        return self._event_shape

    @property
    def stddev(self):
        return self.variance.sqrt()

    def sample(self, sample_shape=()):
        """Returns samples (*sample_shape, *batch_shape), without a history."""
        with no_grad():
            return _core._snapshot(self._draw((*_shape(sample_shape), *self._batch_shape)))

    def sample_n(self, n):
        return self.sample((n,))

    def rsample(self, sample_shape=()):
        raise NotImplementedError(f"{type(self).__name__}: rsample is asked for, its outcomes have no gradients")


class Normal(Distribution):
    """The normal distribution: loc is the mean, scale the standard deviation."""

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = _floats(loc, scale)
        super().__init__(self.loc.shape)

    mean = mode = property(lambda self: self.loc)
    stddev = property(lambda self: self.scale)
    variance = property(lambda self: self.scale ** 2)

    def _draw(self, shape):
        return self.loc + self.scale * _random.gaussian(shape, dtype=self.loc.dtype)

    def rsample(self, sample_shape=()):
        """Returns samples through which gradients reach loc and scale."""
        return self._draw((*_shape(sample_shape), *self._batch_shape))

    def log_prob(self, value):
        return -((value - self.loc) ** 2) / (2 * self.scale ** 2) - self.scale.log() - math.log(math.sqrt(2 * math.pi))

    def cdf(self, value):
        return 0.5 * (1 + ops.erf((value - self.loc) / self.scale / math.sqrt(2)))

    def icdf(self, value):
        return self.loc + self.scale * ops.erfinv(2 * value - 1) * math.sqrt(2)

    def entropy(self):
        return 0.5 + 0.5 * math.log(2 * math.pi) + self.scale.log()


class Uniform(Distribution):
    """The uniform distribution from low to high."""

    def __init__(self, low, high, validate_args=None):
        self.low, self.high = _floats(low, high)
        super().__init__(self.low.shape)

    mean = property(lambda self: (self.low + self.high) / 2)
    variance = property(lambda self: (self.high - self.low) ** 2 / 12)

    def _draw(self, shape):
        drawn = self.low + (self.high - self.low) * _random.uniform(shape, dtype=self.low.dtype)
        low, high = self.low.detach(), self.high.detach()
        step = ops.maximum(ops.abs(low), ops.abs(high)) * finfo(low.dtype).eps
        return ops.minimum(drawn, ops.maximum(low, high - step))  # sums are rounded up to high

    def rsample(self, sample_shape=()):
        """Returns samples through which gradients reach low and high."""
        return self._draw((*_shape(sample_shape), *self._batch_shape))

    def log_prob(self, value):
        inside = ops.cast((value >= self.low) & (value < self.high), self.low.dtype)
        return inside.log() - (self.high - self.low).log()

    def entropy(self):
        return (self.high - self.low).log()


def _check_one_of(name, probs, logits):
    if (probs is None) == (logits is None):
        raise ValueError(f"{name}: either probs or logits is needed, not {'both' if logits is not None else 'none'} of them")


class Bernoulli(Distribution):
    """1 with probability probs, else 0; logits are log(probs / (1 - probs))."""

    def __init__(self, probs=None, logits=None, validate_args=None):
        _check_one_of("Bernoulli", probs, logits)
        if logits is None:
            self.probs, = _floats(probs)
            eps = 2.0 ** -23 if self.probs.dtype != _core.float64 else 2.0 ** -52
            kept = self.probs.clamp(eps, 1 - eps)
            self.logits = kept.log() - ops.log1p(-kept)
        else:
            self.logits, = _floats(logits)
            self.probs = self.logits.sigmoid()
        super().__init__(self.probs.shape)

    mean = property(lambda self: self.probs)
    variance = property(lambda self: self.probs * (1 - self.probs))

    def _draw(self, shape):
        return _random.bernoulli(self.probs.expand(shape))

    def log_prob(self, value):
        logits, value = broadcast_tensors(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self):
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")


class Categorical(Distribution):
    """0 to n - 1 with the probabilities along the last axis, which need not add up to 1; logits are their
    logarithms."""

    def __init__(self, probs=None, logits=None, validate_args=None):
        _check_one_of("Categorical", probs, logits)
        given, = _floats(logits if probs is None else probs)
        if given.ndim < 1:
            raise ValueError(f"Categorical: {'logits' if probs is None else 'probs'} is one number, it needs at least one axis")
        if probs is None:
            self.logits = given - given.logsumexp(-1, keepdim=True)
            self.probs = self.logits.softmax(-1)
        else:
            self.probs = given / given.sum(-1, keepdim=True)
            eps = 2.0 ** -23 if given.dtype != _core.float64 else 2.0 ** -52
            self.logits = self.probs.clamp(eps, 1 - eps).log()
        super().__init__(given.shape[:-1])

    @property
    def mode(self):
        return self.probs.argmax(-1)

    def _draw(self, shape):
        n = self.probs.shape[-1]
        count = math.prod(shape) // max(math.prod(self._batch_shape), 1)
        drawn = _random.multinomial(ops.reshape(self.probs, (-1, n)), max(count, 1), True)  # (batch, count)
        return ops.reshape(ops.permute(drawn, (1, 0)), shape)

    def log_prob(self, value):
        value = ops.cast(value, _core.int64)
        shape = tuple(broadcast_tensors(value, self.logits[..., 0])[0].shape)
        logits = self.logits.expand(*shape, self.logits.shape[-1])
        return logits.gather(-1, value.expand(shape).unsqueeze(-1)).squeeze(-1)

    def entropy(self):
        least = scalar_of_dtype(finfo(self.logits.dtype).min, self.logits.dtype)  # outcomes of probability 0 add 0
        return -(ops.maximum(self.logits, least) * self.probs).sum(-1)


def _divergence_term(p, q, difference):
    """Returns the term of an outcome of probability p: 0 if it is impossible, infinity if it is impossible
    only under q."""
    zero, infinity = scalar_of_dtype(0, difference.dtype), scalar_of_dtype(math.inf, difference.dtype)
    return ops.select(ops.equal(p, 0), zero, ops.select(ops.equal(q, 0), infinity, p * difference))


def kl_divergence(p, q):
    """Returns the divergence of p from q: the mean under p of log p - log q."""
    kinds = type(p), type(q)
    if kinds == (Normal, Normal):
        ratio = (p.scale / q.scale) ** 2
        return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - ratio.log())
    if kinds == (Categorical, Categorical):
        return _divergence_term(p.probs, q.probs, p.logits - q.logits).sum(-1)
    if kinds == (Bernoulli, Bernoulli):
        softplus = ops.softplus
        return (_divergence_term(p.probs, q.probs, softplus(-q.logits) - softplus(-p.logits))
                + _divergence_term(1 - p.probs, 1 - q.probs, softplus(q.logits) - softplus(p.logits)))
    raise NotImplementedError(f"kl_divergence: of {kinds[0].__name__} from {kinds[1].__name__} there is no formula here")
