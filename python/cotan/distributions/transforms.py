"""Invertible functions, with the logarithms of their derivatives' determinants."""
import copy
import math
import weakref

from .. import _core
from .._core import Tensor, ops
from .._dtypes import finfo
from .._shaping import broadcast_shapes, broadcast_tensors, stack
from .._types import Size
from . import constraints
from .utils import constant_like, identity_like, tril_matrix_to_vec, vec_to_tril_matrix

__all__ = ["AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform",
           "CumulativeDistributionTransform", "ExpTransform", "IndependentTransform", "LowerCholeskyTransform",
           "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform",
           "SoftplusTransform", "StackTransform", "StickBreakingTransform", "TanhTransform", "Transform", "identity_transform"]


def sum_rightmost(value, ndims):
    """Returns the sum over the last ndims axes."""
    return value.sum(tuple(range(-ndims, 0))) if ndims else value


class Transform:
    """A function from domain to codomain, two constraints. Where bijective, t.inv is the inverse; sign is that of the derivative.
    cache_size=1 keeps the last x and y: the inverse of that y is exactly that x."""

    bijective, domain, codomain = False, None, None
    sign = property(lambda self: self._missing("sign"))

    def __init__(self, cache_size=0):
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        self._cache_size, self._inv, self._cached_x_y = cache_size, None, (None, None)

    def _missing(self, what):
        raise NotImplementedError(f"{type(self).__name__}: {what} is asked for, it has none")

    @property
    def inv(self):
        inverse = self._inv() if self._inv is not None else None
        if inverse is None:
            inverse = _InverseTransform(self)
            self._inv = weakref.ref(inverse)
        return inverse

    def with_cache(self, cache_size=1):
        """Returns the same transform, whose parts have the same cache_size."""
        if self._cache_size == cache_size:
            return self
        new = copy.copy(self)
        new._cache_size, new._inv, new._cached_x_y = cache_size, None, (None, None)
        for name, value in self.__dict__.items():
            if isinstance(value, Transform):
                new.__dict__[name] = value.with_cache(cache_size)
            elif isinstance(value, list) and value and isinstance(value[0], Transform):
                new.__dict__[name] = [one.with_cache(cache_size) for one in value]
        return new

    def __eq__(self, other):
        return self is other

    __hash__ = object.__hash__

    def __call__(self, x):
        old_x, old_y = self._cached_x_y
        y = old_y if self._cache_size and x is old_x else self._call(x)
        self._cached_x_y = (x, y) if self._cache_size else (None, None)
        return y

    def _inv_call(self, y):
        old_x, old_y = self._cached_x_y
        x = old_x if self._cache_size and y is old_y else self._inverse(y)
        self._cached_x_y = (x, y) if self._cache_size else (None, None)
        return x

    def _call(self, x):
        self._missing("_call")

    def _inverse(self, y):
        self._missing("the inverse")

    def log_abs_det_jacobian(self, x, y):
        """Returns log |det dy / dx| of x and y = self(x)."""
        self._missing("log_abs_det_jacobian")

    def forward_shape(self, shape):
        """Returns the shape of self(x) for x of this shape."""
        return shape

    def inverse_shape(self, shape):
        return shape

    def __repr__(self):
        return type(self).__name__ + "()"


class _InverseTransform(Transform):
    def __init__(self, transform):
        super().__init__(cache_size=transform._cache_size)
        self._inv = transform

    inv = property(lambda self: self._inv)
    bijective = property(lambda self: self._inv.bijective)
    sign = property(lambda self: self._inv.sign)
    domain = constraints.dependent_property(lambda self: self._inv.codomain)
    codomain = constraints.dependent_property(lambda self: self._inv.domain)

    def with_cache(self, cache_size=1):
        return self.inv.with_cache(cache_size).inv

    def __eq__(self, other):
        return isinstance(other, _InverseTransform) and self._inv == other._inv

    __hash__ = object.__hash__

    def __call__(self, x):
        return self._inv._inv_call(x)

    def _inv_call(self, y):
        return self._inv(y)

    def log_abs_det_jacobian(self, x, y):
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape):
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape):
        return self._inv.forward_shape(shape)

    def __repr__(self):
        return f"{type(self).__name__}({self._inv!r})"


class ComposeTransform(Transform):
    """Transforms one after another."""

    def __init__(self, parts, cache_size=0):
        super().__init__(cache_size)
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else list(parts)

    def __eq__(self, other):
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = object.__hash__

    def _end(self, parts, inner, outer):
        """Returns the constraint `inner` of the first of the parts, with as many axes as any of them needs."""
        if not parts:
            return constraints.real
        result, dim = getattr(parts[0], inner), getattr(parts[-1], outer).event_dim
        for part in reversed(parts):
            dim = max(dim + getattr(part, inner).event_dim - getattr(part, outer).event_dim, getattr(part, inner).event_dim)
        return constraints.independent(result, dim - result.event_dim) if dim > result.event_dim else result

    domain = constraints.dependent_property(lambda self: self._end(self.parts, "domain", "codomain"))
    codomain = constraints.dependent_property(lambda self: self._end(self.parts[::-1], "codomain", "domain"))
    bijective = property(lambda self: all(part.bijective for part in self.parts))
    sign = property(lambda self: math.prod(part.sign for part in self.parts))

    @property
    def inv(self):
        inverse = self._inv() if self._inv is not None else None
        if inverse is None:
            inverse = ComposeTransform([part.inv for part in reversed(self.parts)])
            self._inv, inverse._inv = weakref.ref(inverse), lambda: self
        return inverse

    def __call__(self, x):
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x, y):
        if not self.parts:
            return constant_like(x, 0)
        values = [x]
        for part in self.parts[:-1]:
            values.append(part(values[-1]))
        values.append(y)
        dim, total = self.domain.event_dim, 0
        for part, x, y in zip(self.parts, values, values[1:]):
            total = total + sum_rightmost(part.log_abs_det_jacobian(x, y), dim - part.domain.event_dim)
            dim += part.codomain.event_dim - part.domain.event_dim
        return total

    def forward_shape(self, shape):
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape):
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self):
        return "ComposeTransform(\n    " + ",\n    ".join(repr(part) for part in self.parts) + "\n)"


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """A transform whose last reinterpreted_batch_ndims axes count as one event: the logarithms are summed over them."""

    def __init__(self, base_transform, reinterpreted_batch_ndims, cache_size=0):
        super().__init__(cache_size)
        self.base_transform, self.reinterpreted_batch_ndims = base_transform.with_cache(cache_size), reinterpreted_batch_ndims

    bijective = property(lambda self: self.base_transform.bijective)
    sign = property(lambda self: self.base_transform.sign)
    domain = constraints.dependent_property(
        lambda self: constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims))
    codomain = constraints.dependent_property(
        lambda self: constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims))

    def _call(self, x):
        if x.ndim < self.domain.event_dim:
            raise ValueError("Too few dimensions on input")
        return self.base_transform(x)

    def _inverse(self, y):
        if y.ndim < self.codomain.event_dim:
            raise ValueError("Too few dimensions on input")
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x, y):
        return sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape):
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape):
        return self.base_transform.inverse_shape(shape)

    def __repr__(self):
        return f"IndependentTransform({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


class ReshapeTransform(Transform):
    """Gives the last axes, of the sizes in_shape, the sizes out_shape."""

    bijective, sign = True, 1

    def __init__(self, in_shape, out_shape, cache_size=0):
        self.in_shape, self.out_shape = Size(in_shape), Size(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ValueError("in_shape, out_shape have different numbers of elements")
        super().__init__(cache_size)

    domain = constraints.dependent_property(lambda self: constraints.independent(constraints.real, len(self.in_shape)))
    codomain = constraints.dependent_property(lambda self: constraints.independent(constraints.real, len(self.out_shape)))

    def _call(self, x):
        return x.reshape((*x.shape[:x.ndim - len(self.in_shape)], *self.out_shape))

    def _inverse(self, y):
        return y.reshape((*y.shape[:y.ndim - len(self.out_shape)], *self.in_shape))

    def log_abs_det_jacobian(self, x, y):
        return _core.full(x.shape[:x.ndim - len(self.in_shape)], 0, x.dtype)

    def _reshaped(self, shape, before, after):
        cut = len(shape) - len(before)
        if cut < 0:
            raise ValueError("Too few dimensions on input")
        if tuple(shape[cut:]) != before:
            raise ValueError(f"Shape mismatch: expected {tuple(shape[cut:])} but got {before}")
        return (*shape[:cut], *after)

    def forward_shape(self, shape):
        return self._reshaped(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape):
        return self._reshaped(shape, self.out_shape, self.in_shape)


class _Elementwise(Transform):
    """A transform without parameters: all of its class are equal."""

    bijective, domain, codomain = True, constraints.real, constraints.real

    def __eq__(self, other):
        return type(self) is type(other)

    __hash__ = object.__hash__


class ExpTransform(_Elementwise):
    """y = exp(x): (...) to (...)."""

    codomain, sign = constraints.positive, 1
    _call, _inverse = staticmethod(ops.exp), staticmethod(ops.log)

    def log_abs_det_jacobian(self, x, y):
        return x


class PowerTransform(Transform):
    """y = x^exponent, of positive numbers."""

    bijective, domain, codomain = True, constraints.positive, constraints.positive

    def __init__(self, exponent, cache_size=0):
        super().__init__(cache_size)
        self.exponent = exponent if isinstance(exponent, Tensor) else _core.asarray(float(exponent))

    sign = property(lambda self: self.exponent.sign())

    def __eq__(self, other):
        return isinstance(other, PowerTransform) and bool((self.exponent == other.exponent).all())

    __hash__ = object.__hash__

    def _call(self, x):
        return x ** self.exponent

    def _inverse(self, y):
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x, y):
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape):
        return broadcast_shapes(shape, self.exponent.shape)

    inverse_shape = forward_shape


class SigmoidTransform(_Elementwise):
    """y = 1 / (1 + exp(-x)): (...) to (...)."""

    codomain, sign = constraints.unit_interval, 1

    def _call(self, x):
        return x.sigmoid().clamp(finfo(x.dtype).tiny, 1 - finfo(x.dtype).eps)

    def _inverse(self, y):
        y = y.clamp(finfo(y.dtype).tiny, 1 - finfo(y.dtype).eps)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x, y):
        return -ops.softplus(-x) - ops.softplus(x)


class SoftplusTransform(_Elementwise):
    """y = log(1 + exp(x)): (...) to (...)."""

    codomain, sign = constraints.positive, 1
    _call = staticmethod(ops.softplus)

    def _inverse(self, y):
        return (-(-y).expm1()).log() + y

    def log_abs_det_jacobian(self, x, y):
        return -ops.softplus(-x)


class TanhTransform(_Elementwise):
    """y = tanh(x): (...) to (...)."""

    codomain, sign = constraints.interval(-1.0, 1.0), 1
    _call, _inverse = staticmethod(ops.tanh), staticmethod(ops.atanh)

    def log_abs_det_jacobian(self, x, y):
        return 2 * (math.log(2.0) - x - ops.softplus(-2 * x))


class AbsTransform(_Elementwise):
    """y = |x|: (...) to (...)."""

    bijective, codomain = False, constraints.positive
    _call = staticmethod(ops.abs)

    def _inverse(self, y):
        return y


class AffineTransform(Transform):
    """y = loc + scale x; event_dim is the number of last axes that are one event."""

    bijective = True

    def __init__(self, loc, scale, event_dim=0, cache_size=0):
        super().__init__(cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    event_dim = property(lambda self: self._event_dim)

    @constraints.dependent_property(is_discrete=False)
    def domain(self):
        return constraints.independent(constraints.real, self._event_dim) if self._event_dim else constraints.real

    codomain = domain

    @property
    def sign(self):
        return self.scale.sign() if isinstance(self.scale, Tensor) else (self.scale > 0) - (self.scale < 0)

    def __eq__(self, other):
        if not isinstance(other, AffineTransform):
            return False
        pairs = (self.loc, other.loc), (self.scale, other.scale)
        return all(bool((one == two).all()) if isinstance(one == two, Tensor) else one == two for one, two in pairs)

    __hash__ = object.__hash__

    def _call(self, x):
        return self.loc + self.scale * x

    def _inverse(self, y):
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x, y):
        scale = self.scale if isinstance(self.scale, Tensor) else _core.asarray(self.scale, dtype=x.dtype)
        result = scale.abs().log()
        shape = x.shape[:x.ndim - self._event_dim]
        if self._event_dim:
            result = sum_rightmost(broadcast_tensors(result, x)[0], self._event_dim)
        return result.expand(broadcast_shapes(shape, result.shape))

    def forward_shape(self, shape):
        return broadcast_shapes(shape, getattr(self.loc, "shape", ()), getattr(self.scale, "shape", ()))

    inverse_shape = forward_shape


class SoftmaxTransform(_Elementwise):
    """Numbers to probabilities that are proportional to their exponentials; the inverse is the logarithm."""

    bijective, domain, codomain = False, constraints.real_vector, constraints.simplex

    def _call(self, x):
        return x.softmax(-1)

    def _inverse(self, y):
        return y.log()


class StickBreakingTransform(_Elementwise):
    """n numbers to n + 1 probabilities: each number is the logit of the share of what is left."""

    domain, codomain = constraints.real_vector, constraints.simplex

    def _offset(self, x):
        """Returns the logarithms of the numbers of probabilities that follow: equal shares are at x = 0."""
        n = x.shape[-1]
        return _core.asarray([math.log(n - i) for i in range(n)], dtype=x.dtype)

    def _call(self, x):
        x = x - self._offset(x)
        log_left = (-ops.softplus(x)).cumsum(-1)
        first = ops.concat([log_left[..., :1] * 0, log_left], axis=-1)
        return first.exp() * ops.concat([x.sigmoid(), x[..., :1] * 0 + 1], axis=-1)

    def _inverse(self, y):
        shares = y[..., :-1]
        left = (1 - shares.cumsum(-1)).clamp(min=finfo(y.dtype).tiny)
        return shares.log() - left.log() + self._offset(shares)

    def log_abs_det_jacobian(self, x, y):
        x = x - self._offset(x)
        return (y[..., :-1].log() - ops.softplus(x)).sum(-1)

    def forward_shape(self, shape):
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape):
        return (*shape[:-1], shape[-1] - 1)


class CorrCholeskyTransform(_Elementwise):
    """n (n - 1) / 2 numbers to the Cholesky factor of a correlation matrix (n, n): their tanh are partial correlations."""

    domain, codomain = constraints.real_vector, constraints.corr_cholesky

    def _call(self, x):
        eps = finfo(x.dtype).eps
        partial = vec_to_tril_matrix(x.tanh().clamp(-1 + eps, 1 - eps), -1)
        left = (1 - partial ** 2).sqrt().cumprod(-1)
        return (partial + identity_like(partial)) * ops.concat([left[..., :1] * 0 + 1, left[..., :-1]], axis=-1)

    def _inverse(self, y):
        left = 1 - (y * y).cumsum(-1)
        left = ops.concat([left[..., :1] * 0 + 1, left[..., :-1]], axis=-1)
        tanh = tril_matrix_to_vec(y, -1) / tril_matrix_to_vec(left, -1).sqrt()
        return (tanh.log1p() - (-tanh).log1p()) / 2

    def log_abs_det_jacobian(self, x, y):
        left = tril_matrix_to_vec(1 - (y * y).cumsum(-1), -2)
        return 0.5 * left.log().sum(-1) - 2 * (x + ops.softplus(-2 * x) - math.log(2.0)).sum(-1)

    def forward_shape(self, shape):
        n = round((0.25 + 2 * shape[-1]) ** 0.5 + 0.5)
        if n * (n - 1) // 2 != shape[-1]:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return (*shape[:-1], n, n)

    def inverse_shape(self, shape):
        if shape[-2] != shape[-1]:
            raise ValueError("Input is not square")
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)


class LowerCholeskyTransform(_Elementwise):
    """Matrices to lower triangular ones with a positive diagonal, the exponentials of theirs."""

    bijective, domain, codomain = False, constraints.independent(constraints.real, 2), constraints.lower_cholesky

    def _with_diagonal(self, x, function):
        on = ops.not_equal(identity_like(x), 0)
        return ops.select(on, function(ops.select(on, x, 1.0)), ops.tril(x))

    def _call(self, x):
        return self._with_diagonal(x, ops.exp)

    def _inverse(self, y):
        return self._with_diagonal(y, ops.log)


class PositiveDefiniteTransform(LowerCholeskyTransform):
    """Matrices to positive definite ones, of which LowerCholeskyTransform gives the Cholesky factors."""

    codomain = constraints.positive_definite

    def _call(self, x):
        factor = super()._call(x)
        return factor @ factor.mT

    def _inverse(self, y):
        return super()._inverse(ops.cholesky(y))


class _PartsTransform(Transform):
    """What CatTransform and StackTransform share: a transform for each part of a tensor along an axis."""

    def __init__(self, tseq, dim=0, cache_size=0):
        super().__init__(cache_size)
        self.transforms, self.dim = [t.with_cache(cache_size) for t in tseq], dim

    bijective = property(lambda self: all(t.bijective for t in self.transforms))

    def _call(self, x):
        return self._join([t(part) for t, part in zip(self.transforms, self._split(x))])

    def _inverse(self, y):
        return self._join([t.inv(part) for t, part in zip(self.transforms, self._split(y))])


class CatTransform(_PartsTransform):
    """Transforms of parts of the given lengths (default 1) along an axis."""

    def __init__(self, tseq, dim=0, lengths=None, cache_size=0):
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)

    length = property(lambda self: sum(self.lengths))
    event_dim = property(lambda self: max(max(t.domain.event_dim, t.codomain.event_dim) for t in self.transforms))
    domain = constraints.dependent_property(
        lambda self: constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths))
    codomain = constraints.dependent_property(
        lambda self: constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths))

    def _split(self, value):
        return value.split(self.lengths, self.dim)

    def _join(self, parts):
        return ops.concat(list(parts), axis=self.dim)

    def log_abs_det_jacobian(self, x, y):
        logs = []
        for t, part, image in zip(self.transforms, self._split(x), self._split(y)):
            log = t.log_abs_det_jacobian(part, image)
            logs.append(sum_rightmost(log, self.event_dim - t.domain.event_dim))
        dim = (self.dim if self.dim < 0 else self.dim - x.ndim) + self.event_dim
        return ops.concat(logs, axis=dim) if dim < 0 else sum(logs)


class StackTransform(_PartsTransform):
    """A transform for each element along an axis."""

    domain = constraints.dependent_property(lambda self: constraints.stack([t.domain for t in self.transforms], self.dim))
    codomain = constraints.dependent_property(lambda self: constraints.stack([t.codomain for t in self.transforms], self.dim))

    def _split(self, value):
        return value.unbind(self.dim)

    def _join(self, parts):
        return stack(parts, self.dim)

    def log_abs_det_jacobian(self, x, y):
        parts = zip(self.transforms, self._split(x), self._split(y))
        return self._join([t.log_abs_det_jacobian(part, image) for t, part, image in parts])


class CumulativeDistributionTransform(Transform):
    """The cdf of a distribution."""

    bijective, sign, codomain = True, 1, constraints.unit_interval

    def __init__(self, distribution, cache_size=0):
        super().__init__(cache_size)
        self.distribution = distribution

    domain = property(lambda self: self.distribution.support)

    def _call(self, x):
        return self.distribution.cdf(x)

    def _inverse(self, y):
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x, y):
        return self.distribution.log_prob(x)
