"""What all distributions have."""
import warnings

from .. import _core
from .._core import Tensor
from .._grad import no_grad
from .._types import Size
from . import constraints
from .utils import lazy_property

__all__ = ["Distribution", "ExponentialFamily"]


class Distribution:
    """batch_shape: the shape of the parameters, each of which has a distribution of its own; event_shape: that of one
    sample. With validate_args, which is the default, parameters and values are read to check that they are allowed."""

    has_rsample = has_enumerate_support = False
    _validate_args = __debug__

    def __init__(self, batch_shape=(), event_shape=(), validate_args=None):
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args and not _core._tracing():
            self._validate_parameters()

    def _validate_parameters(self):
        try:
            known = self.arg_constraints
        except NotImplementedError:
            warnings.warn(f"{type(self)} does not define `arg_constraints`. Please set `arg_constraints = {{}}` or initialize the "
                          "distribution with `validate_args=False` to turn off validation.", stacklevel=4)
            return
        for name, constraint in known.items():
            unset = name not in self.__dict__ and isinstance(getattr(type(self), name, None), lazy_property)
            if constraints.is_dependent(constraint) or unset:
                continue
            value = getattr(self, name)
            if not constraint.check(value).all():
                raise ValueError(f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of "
                                 f"distribution {self!r} to satisfy the constraint {constraint!r}, but found invalid "
                                 f"values:\n{value}")

    @staticmethod
    def set_default_validate_args(value):
        """Sets whether parameters and values are checked where validate_args is not given."""
        if value not in (True, False):
            raise ValueError
        Distribution._validate_args = value

    batch_shape = property(lambda self: self._batch_shape)
    event_shape = property(lambda self: self._event_shape)

    def expand(self, batch_shape, _instance=None):
        """Returns the distribution with another batch_shape, to which its own is broadcast."""
        new = type(self).__new__(type(self)) if _instance is None else _instance
        new.__dict__.update(self.__dict__)
        for name, constraint in self.arg_constraints.items():
            value = self.__dict__.get(name)
            if isinstance(value, Tensor):
                new.__dict__[name] = value.expand((*batch_shape, *value.shape[value.ndim - constraint.event_dim:]))
        new._batch_shape = Size(batch_shape)
        return new

    def _get_checked_instance(self, cls, _instance=None):
        """Returns the new distribution of an expand that a subclass outside writes."""
        if _instance is None and type(self).__init__ is not cls.__init__:
            raise NotImplementedError(f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ method "
                                      "must also define a custom .expand() method.")
        return type(self).__new__(type(self)) if _instance is None else _instance

    def _missing(self, what):
        raise NotImplementedError(f"{type(self).__name__}: {what} is asked for, it has none")

    arg_constraints = property(lambda self: self._missing("arg_constraints"))
    support = property(lambda self: self._missing("support"))
    mean = property(lambda self: self._missing("mean"))
    mode = property(lambda self: self._missing("mode"))
    variance = property(lambda self: self._missing("variance"))
    stddev = property(lambda self: self.variance.sqrt())

    def sample(self, sample_shape=()):
        """Returns samples (*sample_shape, *batch_shape, *event_shape), without a history."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape=()):
        """Returns samples through which gradients reach the parameters."""
        raise NotImplementedError(f"{type(self).__name__}: rsample is asked for, its outcomes have no gradients")

    def sample_n(self, n):
        return self.sample((n,))

    def log_prob(self, value):
        """Returns the logarithm of the density, or of the probability, at a value."""
        self._missing("log_prob")

    def cdf(self, value):
        """Returns the probability of at most the value."""
        self._missing("cdf")

    def icdf(self, value):
        """Returns the number for which cdf is the value."""
        self._missing("icdf")

    def enumerate_support(self, expand=True):
        """Returns all outcomes (n, *batch_shape, *event_shape); without expand, the axes of the batch are 1."""
        self._missing("enumerate_support")

    def _all_outcomes(self, values, expand):
        """Returns these outcomes (n, *event_shape) as enumerate_support does."""
        values = values.reshape(len(values), *[1] * len(self._batch_shape), *self._event_shape)
        return values.expand(len(values), *self._batch_shape, *self._event_shape) if expand else values

    def entropy(self):
        self._missing("entropy")

    def perplexity(self):
        return self.entropy().exp()

    def _extended_shape(self, sample_shape=()):
        """Returns the shape of samples."""
        sample_shape = (sample_shape,) if hasattr(sample_shape, "__index__") else tuple(sample_shape)
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def _validate_sample(self, value):
        """Raises an error if the value cannot be a sample, where the distribution validates."""
        if not self._validate_args:
            return
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        shape, whole = tuple(value.shape), tuple(self._batch_shape) + tuple(self._event_shape)
        event = shape[len(shape) - len(self._event_shape):]
        if event != tuple(self._event_shape):
            raise ValueError(f"The right-most size of value must match event_shape: {event} vs {tuple(self._event_shape)}.")
        if any(1 not in (i, j) and i != j for i, j in zip(reversed(shape), reversed(whole))):
            raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {shape} vs {whole}.")
        if _core._tracing():
            return
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(f"{type(self)} does not define `support` to enable sample validation. Please initialize the distribution "
                          "with `validate_args=False` to turn off validation.", stacklevel=3)
            return
        if not support.check(value).all():
            raise ValueError(f"Expected value argument ({type(value).__name__} of shape {shape}) to be within the support "
                             f"({support!r}) of the distribution {self!r}, but found invalid values:\n{value}")

    def __repr__(self):
        texts = []
        for name in self.arg_constraints:
            if (value := self.__dict__.get(name)) is not None:
                short = value.item() if not value.ndim else value if value.numel() == 1 else tuple(value.shape)
                texts.append(f"{name}: {short}")
        return f"{type(self).__name__}({', '.join(texts)})"


class ExponentialFamily(Distribution):
    """Distributions with the densities exp(<natural parameters, statistics> - log normalizer + carrier measure)."""

    _natural_params = property(lambda self: self._missing("_natural_params"))
    _mean_carrier_measure = property(lambda self: self._missing("_mean_carrier_measure"))

    def _log_normalizer(self, *natural_params):
        self._missing("_log_normalizer")

    def entropy(self):
        """Returns the log normalizer minus its gradient times the parameters: what a subclass outside may use."""
        from ..autograd import grad
        params = [param.detach().requires_grad_() for param in self._natural_params]
        normalizer = self._log_normalizer(*params)
        result = normalizer - self._mean_carrier_measure
        for param, slope in zip(params, grad(normalizer.sum(), params, create_graph=True)):
            part = param * slope
            result = result - part.reshape(*self._batch_shape, -1).sum(-1)
        return result
