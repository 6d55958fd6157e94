"""Sets of values, as parameters and samples must be in: a constraint's check returns True where a value is in it."""
import math

from .. import _core
from .._core import ops

__all__ = ["Constraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property", "greater_than", "greater_than_eq",
           "half_open_interval", "independent", "integer_interval", "interval", "is_dependent", "less_than", "lower_cholesky",
           "lower_triangular", "multinomial", "nonnegative", "nonnegative_integer", "one_hot", "positive", "positive_definite",
           "positive_integer", "positive_semidefinite", "real", "real_vector", "simplex", "square", "stack", "symmetric",
           "unit_interval"]


class Constraint:
    """is_discrete: True if the values are whole numbers; event_dim: the number of last axes that are checked together."""

    is_discrete, event_dim = False, 0

    def check(self, value):
        raise NotImplementedError

    def __repr__(self):
        return type(self).__name__[1:] + "()"


class _Dependent(Constraint):
    """The constraint of what depends on other variables, which cannot be checked alone."""

    def __init__(self, *, is_discrete=NotImplemented, event_dim=NotImplemented):
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def _known(self, value, name):
        if value is NotImplemented:
            raise NotImplementedError(f".{name} cannot be determined statically")
        return value

    is_discrete = property(lambda self: self._known(self._is_discrete, "is_discrete"))
    event_dim = property(lambda self: self._known(self._event_dim, "event_dim"))

    def __call__(self, *, is_discrete=NotImplemented, event_dim=NotImplemented):
        return _Dependent(is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
                          event_dim=self._event_dim if event_dim is NotImplemented else event_dim)

    def check(self, x):
        raise ValueError("Cannot determine validity of dependent constraint")


def is_dependent(constraint):
    return isinstance(constraint, _Dependent)


class dependent_property(property, _Dependent):
    """A property whose value is a constraint; read at the class it is a dependent constraint."""

    def __init__(self, fn=None, *, is_discrete=NotImplemented, event_dim=NotImplemented):
        super().__init__(fn)
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def __call__(self, fn):
        return dependent_property(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


class _IndependentConstraint(Constraint):
    """The constraint of values whose last reinterpreted_batch_ndims axes are checked together, too."""

    def __init__(self, base_constraint, reinterpreted_batch_ndims):
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims

    is_discrete = property(lambda self: self.base_constraint.is_discrete)
    event_dim = property(lambda self: self.base_constraint.event_dim + self.reinterpreted_batch_ndims)

    def check(self, value):
        result = self.base_constraint.check(value)
        if result.ndim < self.reinterpreted_batch_ndims:
            expected = self.base_constraint.event_dim + self.reinterpreted_batch_ndims
            raise ValueError(f"Expected value.dim() >= {expected} but got {value.ndim}")
        return ops.all(result, axes=tuple(range(-self.reinterpreted_batch_ndims, 0))) if self.reinterpreted_batch_ndims else result

    def __repr__(self):
        return f"{type(self).__name__[1:]}({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(Constraint):
    """The support of a mixture whose components have the support base_constraint."""

    def __init__(self, base_constraint):
        self.base_constraint = base_constraint

    is_discrete = property(lambda self: self.base_constraint.is_discrete)
    event_dim = property(lambda self: self.base_constraint.event_dim)

    def check(self, value):
        if value.ndim < self.event_dim:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.ndim}")
        result = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))  # against every component
        return ops.all(result, axes=-1)

    def __repr__(self):
        return f"{type(self).__name__}({self.base_constraint!r})"


def _is_whole(x):
    return ops.equal(x % 1, 0)


class _Boolean(Constraint):
    is_discrete = True

    def check(self, value):
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    is_discrete, event_dim = True, 1

    def check(self, value):
        return ops.all((value == 0) | (value == 1), axes=-1) & (value.sum(-1) == 1)


class _Bounded(Constraint):
    """The numbers between bounds, which are given by their names; each may be a number or a tensor."""

    names, whole = (), False

    def __init__(self, *bounds):
        for name, bound in zip(self.names, bounds):
            setattr(self, name, bound)

    def check(self, value):
        low, high = getattr(self, "lower_bound", -math.inf), getattr(self, "upper_bound", math.inf)
        inside = self._inside(value, low, high)
        return inside & _is_whole(value) if self.whole else inside

    def _inside(self, value, low, high):
        return (low <= value) & (value <= high)

    def __repr__(self):
        return f"{type(self).__name__[1:]}({', '.join(f'{name}={getattr(self, name)}' for name in self.names)})"


class _IntegerInterval(_Bounded):
    """Whole numbers from lower_bound to upper_bound."""

    is_discrete, whole, names = True, True, ("lower_bound", "upper_bound")


class _IntegerLessThan(_Bounded):
    is_discrete, whole, names = True, True, ("upper_bound",)


class _IntegerGreaterThan(_Bounded):
    is_discrete, whole, names = True, True, ("lower_bound",)


class _GreaterThan(_Bounded):
    """Numbers above lower_bound."""

    names = ("lower_bound",)

    def _inside(self, value, low, high):
        return low < value


class _GreaterThanEq(_Bounded):
    """Numbers from lower_bound on."""

    names = ("lower_bound",)


class _LessThan(_Bounded):
    """Numbers below upper_bound."""

    names = ("upper_bound",)

    def _inside(self, value, low, high):
        return value < high


class _Interval(_Bounded):
    """Numbers from lower_bound to upper_bound."""

    names = ("lower_bound", "upper_bound")


class _HalfOpenInterval(_Bounded):
    """Numbers from lower_bound to upper_bound, which is excluded."""

    names = ("lower_bound", "upper_bound")

    def _inside(self, value, low, high):
        return (low <= value) & (value < high)


class _Real(Constraint):
    def check(self, value):
        return value == value  # NaN is not


class _Simplex(Constraint):
    event_dim = 1

    def check(self, value):
        return ops.all(value >= 0, axes=-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Multinomial(Constraint):
    """Counts that add up to at most upper_bound."""

    is_discrete, event_dim = True, 1

    def __init__(self, upper_bound):
        self.upper_bound = upper_bound

    def check(self, x):
        return ops.all(x >= 0, axes=-1) & (x.sum(-1) <= self.upper_bound)


class _LowerTriangular(Constraint):
    event_dim = 2

    def check(self, value):
        return ops.all(ops.tril(value) == value, axes=(-2, -1))


class _LowerCholesky(Constraint):
    event_dim = 2

    def check(self, value):
        return _LowerTriangular.check(self, value) & ops.all(ops.diagonal(value) > 0, axes=-1)


class _CorrCholesky(Constraint):
    event_dim = 2

    def check(self, value):
        tolerance = 1e-15 * 10 ** 8 if value.dtype == _core.float64 else 1e-4
        unit = ops.all((ops.vector_norm(value, axes=-1) - 1).abs() <= tolerance, axes=-1)
        return unit & _LowerCholesky.check(self, value)


class _Square(Constraint):
    event_dim = 2

    def check(self, value):
        return _core.full(value.shape[:-2], value.shape[-2] == value.shape[-1])


class _Symmetric(_Square):
    def check(self, value):
        if value.shape[-2] != value.shape[-1]:
            return super().check(value)
        return ops.all(ops.isclose(value, value.mT, atol=1e-6), axes=(-2, -1))


class _PositiveSemidefinite(_Symmetric):
    def check(self, value):
        symmetric = super().check(value)
        return symmetric if value.shape[-2] != value.shape[-1] else symmetric & ops.all(ops.eigvalsh(value) >= 0, axes=-1)


class _PositiveDefinite(_Symmetric):
    def check(self, value):
        symmetric = super().check(value)
        return symmetric if value.shape[-2] != value.shape[-1] else symmetric & ops.all(ops.eigvalsh(value) > 0, axes=-1)


class _Parts(Constraint):
    """What _Cat and _Stack share: a constraint for each part of a tensor along an axis."""

    def __init__(self, cseq, dim):
        if not all(isinstance(one, Constraint) for one in cseq):
            raise AssertionError(f"{type(self).__name__[1:].lower()}: all of the parts must be constraints")
        self.cseq, self.dim = list(cseq), dim

    is_discrete = property(lambda self: any(one.is_discrete for one in self.cseq))


class _Cat(_Parts):
    """The constraints of parts of the given lengths (default 1) along an axis."""

    def __init__(self, cseq, dim=0, lengths=None):
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)

    event_dim = property(lambda self: max(one.event_dim for one in self.cseq))

    def check(self, value):
        checks, start = [], 0
        for constraint, length in zip(self.cseq, self.lengths):
            checks.append(constraint.check(value.narrow(self.dim, start, length)))
            start += length
        return ops.concat(checks, axis=self.dim)


class _Stack(_Parts):
    """The constraints of the elements along an axis."""

    def __init__(self, cseq, dim=0):
        super().__init__(cseq, dim)

    @property
    def event_dim(self):
        dim = max(one.event_dim for one in self.cseq)
        return dim + 1 if self.dim + dim < 0 else dim

    def check(self, value):
        parts = [constraint.check(value.select(self.dim, i)) for i, constraint in enumerate(self.cseq)]
        return ops.concat([part.unsqueeze(self.dim) for part in parts], axis=self.dim)


dependent, independent, boolean, one_hot = _Dependent(), _IndependentConstraint, _Boolean(), _OneHot()
nonnegative_integer, positive_integer, integer_interval = _IntegerGreaterThan(0), _IntegerGreaterThan(1), _IntegerInterval
real, positive, nonnegative = _Real(), _GreaterThan(0.0), _GreaterThanEq(0.0)
real_vector = independent(real, 1)
greater_than, greater_than_eq, less_than, multinomial = _GreaterThan, _GreaterThanEq, _LessThan, _Multinomial
unit_interval, interval, half_open_interval = _Interval(0.0, 1.0), _Interval, _HalfOpenInterval
simplex, lower_triangular, lower_cholesky, corr_cholesky = _Simplex(), _LowerTriangular(), _LowerCholesky(), _CorrCholesky()
square, symmetric, positive_semidefinite, positive_definite = _Square(), _Symmetric(), _PositiveSemidefinite(), _PositiveDefinite()
cat, stack = _Cat, _Stack
