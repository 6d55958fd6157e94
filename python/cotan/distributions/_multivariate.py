"""Normal distributions of vectors."""
import math

from .. import _random
from .._core import ops
from .._shaping import broadcast_shapes
from . import constraints
from .distribution import Distribution
from .utils import identity_like, lazy_property

_LOG_2PI = math.log(2 * math.pi)


def triangular_solve(lower, x):
    """Returns lower^-1 x for vectors x (*S, *B, n) and matrices lower (*B, n, n): one solve for each of the matrices."""
    n, batch = x.shape[-1], lower.ndim - 2
    shape = broadcast_shapes(x.shape[:-1], lower.shape[:-2])
    lead, own = shape[:len(shape) - batch], shape[len(shape) - batch:]
    columns = x.expand(*shape, n).reshape(math.prod(lead), *own, n)
    columns = ops.permute(columns, (*range(1, columns.ndim), 0))  # (*B, n, S)
    solved = ops.triangular_solve(lower.expand(*own, n, n), columns, upper=False, unit=False)
    return ops.permute(solved, (solved.ndim - 1, *range(solved.ndim - 1))).reshape(*shape, n)


def log_diagonal(lower):
    """Returns half of the logarithm of the determinant of lower lower^T."""
    return ops.diagonal(lower).log().sum(-1)


def precision_to_scale_tril(precision):
    """Returns the Cholesky factor of the inverse: that of the matrix read from its end gives it without the inverse."""
    factor = ops.flip(ops.cholesky(ops.flip(precision, (-2, -1))), (-2, -1)).mT
    return ops.triangular_solve(factor, identity_like(precision), upper=False, unit=False)


def inverse_of_tril(lower):
    """Returns the inverse of lower lower^T."""
    half = ops.triangular_solve(lower, identity_like(lower), upper=False, unit=False)
    return half.mT @ half


class MultivariateNormal(Distribution):
    """The normal distribution of vectors (..., n), of one of covariance_matrix, precision_matrix and scale_tril, which is
    the Cholesky factor of the covariance."""

    arg_constraints = {"loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite,
                       "precision_matrix": constraints.positive_definite, "scale_tril": constraints.lower_cholesky}
    support, has_rsample = constraints.real_vector, True

    def __init__(self, loc, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        if loc.ndim < 1:
            raise ValueError("loc must be at least one-dimensional.")
        matrices = {"covariance_matrix": covariance_matrix, "scale_tril": scale_tril, "precision_matrix": precision_matrix}
        given = [(name, matrix) for name, matrix in matrices.items() if matrix is not None]
        if len(given) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        (name, matrix), = given
        if matrix.ndim < 2:
            raise ValueError(f"{name} must be at least two-dimensional, with optional leading batch dimensions")
        batch, n = broadcast_shapes(matrix.shape[:-2], loc.shape[:-1]), loc.shape[-1]
        self.loc = loc.expand(*batch, n)
        setattr(self, name, matrix.expand(*batch, *matrix.shape[-2:]))
        super().__init__(batch, (n,), validate_args=validate_args)
        self._unbroadcasted_scale_tril = matrix if name == "scale_tril" else (
            ops.cholesky(matrix) if name == "covariance_matrix" else precision_to_scale_tril(matrix))

    def _whole(self, matrix):
        return matrix.expand(*self._batch_shape, *self._event_shape, *self._event_shape)

    @lazy_property
    def scale_tril(self):
        return self._whole(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self):
        return self._whole(self._unbroadcasted_scale_tril @ self._unbroadcasted_scale_tril.mT)

    @lazy_property
    def precision_matrix(self):
        return self._whole(inverse_of_tril(self._unbroadcasted_scale_tril))

    mean = mode = property(lambda self: self.loc)
    variance = property(lambda self: (self._unbroadcasted_scale_tril ** 2).sum(-1).expand(*self._batch_shape, *self._event_shape))

    def rsample(self, sample_shape=()):
        noise = _random.gaussian(self._extended_shape(sample_shape), dtype=self.loc.dtype)
        return self.loc + (self._unbroadcasted_scale_tril @ noise.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value):
        self._validate_sample(value)
        distance = (triangular_solve(self._unbroadcasted_scale_tril, value - self.loc) ** 2).sum(-1)
        return -0.5 * (self._event_shape[0] * _LOG_2PI + distance) - log_diagonal(self._unbroadcasted_scale_tril)

    def entropy(self):
        half = 0.5 * self._event_shape[0] * (1 + _LOG_2PI) + log_diagonal(self._unbroadcasted_scale_tril)
        return half.expand(self._batch_shape)


class LowRankMultivariateNormal(Distribution):
    """The normal distribution of vectors (..., n) of the covariance cov_factor cov_factor^T + diag(cov_diag); cov_factor is
    (..., n, rank)."""

    arg_constraints = {"loc": constraints.real_vector, "cov_factor": constraints.independent(constraints.real, 2),
                       "cov_diag": constraints.independent(constraints.positive, 1)}
    support, has_rsample = constraints.real_vector, True

    def __init__(self, loc, cov_factor, cov_diag, validate_args=None):
        if loc.ndim < 1:
            raise ValueError("loc must be at least one-dimensional.")
        n = loc.shape[-1]
        if cov_factor.ndim < 2 or cov_factor.shape[-2] != n:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {n} x m")
        if cov_diag.shape[-1:] != (n,):
            raise ValueError(f"cov_diag must be a batch of vectors with shape {(n,)}")
        batch = broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        self.loc, self.cov_diag = loc.expand(*batch, n), cov_diag.expand(*batch, n)
        self.cov_factor = cov_factor.expand(*batch, *cov_factor.shape[-2:])
        super().__init__(batch, (n,), validate_args=validate_args)
        scaled = cov_factor.mT / cov_diag.unsqueeze(-2)  # W^T D^-1
        inner = scaled @ cov_factor
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = cov_factor, cov_diag
        self._capacitance_tril = ops.cholesky(inner + identity_like(inner))

    mean = mode = property(lambda self: self.loc)

    @lazy_property
    def variance(self):
        return ((self.cov_factor ** 2).sum(-1) + self.cov_diag).expand(*self._batch_shape, *self._event_shape)

    @lazy_property
    def covariance_matrix(self):
        low = self.cov_factor @ self.cov_factor.mT
        return low + identity_like(low) * self.cov_diag.unsqueeze(-1)

    @lazy_property
    def scale_tril(self):
        return ops.cholesky(self.covariance_matrix)

    @lazy_property
    def precision_matrix(self):
        scaled = self.cov_factor.mT / self.cov_diag.unsqueeze(-2)
        lower = self._capacitance_tril.expand(*scaled.shape[:-1], scaled.shape[-2])
        half = ops.triangular_solve(lower, scaled, upper=False, unit=False)
        reduced = half.mT @ half
        return identity_like(reduced) / self.cov_diag.unsqueeze(-1) - reduced

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        low = _random.gaussian((*shape[:-1], self.cov_factor.shape[-1]), dtype=self.loc.dtype)
        return (self.loc + (self._unbroadcasted_cov_factor @ low.unsqueeze(-1)).squeeze(-1)
                + self._unbroadcasted_cov_diag.sqrt() * _random.gaussian(shape, dtype=self.loc.dtype))

    def _distance(self, x):
        """Returns x^T covariance^-1 x, by Woodbury's identity."""
        scaled = x / self._unbroadcasted_cov_diag
        inner = (self._unbroadcasted_cov_factor.mT @ scaled.unsqueeze(-1)).squeeze(-1)
        return (x * scaled).sum(-1) - (triangular_solve(self._capacitance_tril, inner) ** 2).sum(-1)

    def _log_determinant(self):
        return 2 * log_diagonal(self._capacitance_tril) + self._unbroadcasted_cov_diag.log().sum(-1)

    def log_prob(self, value):
        self._validate_sample(value)
        return -0.5 * (self._event_shape[0] * _LOG_2PI + self._log_determinant() + self._distance(value - self.loc))

    def entropy(self):
        return (0.5 * (self._event_shape[0] * (1 + _LOG_2PI) + self._log_determinant())).expand(self._batch_shape)
