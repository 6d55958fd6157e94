"""Distributions of matrices."""
import math

from .. import _random
from .._core import ops
from .._creation import arange
from .._dtypes import finfo
from . import constraints
from ._gamma import Beta
from .distribution import Distribution
from .utils import broadcast_all


class LKJCholesky(Distribution):
    """The distribution of lower Cholesky factors (dim, dim) of correlation matrices, whose density is a power of the
    determinant: uniform over the matrices for the concentration 1."""

    arg_constraints, support = {"concentration": constraints.positive}, constraints.corr_cholesky

    def __init__(self, dim, concentration=1.0, validate_args=None):
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        self.concentration, = broadcast_all(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args=validate_args)

    def sample(self, sample_shape=()):
        # Squared lengths of the rows without their diagonals, but the first, which is 0 (Lewandowski et al. 2009).
        half = 0.5 * arange(0, self.dim - 1, dtype=self.concentration.dtype)
        beta = Beta(half + 0.5, self.concentration.unsqueeze(-1) + 0.5 * (self.dim - 2) - half)
        length = beta.sample(sample_shape).unsqueeze(-1)  # (..., dim - 1, 1)
        direction = _random.gaussian(self._extended_shape(sample_shape), dtype=self.concentration.dtype).tril(-1)[..., 1:, :]
        rows = length.sqrt() * direction / (direction * direction).sum(-1, keepdim=True).sqrt()
        low, none = (0,) * (rows.ndim - 2) + (1, 0), (0,) * rows.ndim
        rows = ops.pad(rows, ops.cast(0.0, rows.dtype), low=low, high=none)
        diagonal = (1 - (rows * rows).sum(-1)).clamp(min=finfo(rows.dtype).tiny).sqrt()
        return rows + diagonal.diag_embed()

    def log_prob(self, value):
        self._validate_sample(value)
        orders = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - arange(
            2, self.dim + 1, dtype=self.concentration.dtype)
        density = (orders * ops.diagonal(value)[..., 1:].log()).sum(-1)
        n = self.dim - 1
        alpha = self.concentration + 0.5 * n
        normalizer = 0.5 * n * math.log(math.pi) + (alpha - 0.5).mvlgamma(n) - alpha.lgamma() * n
        return density - normalizer
