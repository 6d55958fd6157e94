"""Weight norm and spectral norm, by the names of torch.nn.utils.parametrizations."""
from ... import _core, _random
from ..._core import ops
from ..._grad import no_grad
from ..functional import normalize
from ..module import Module
from . import parametrize

__all__ = ["spectral_norm", "weight_norm"]


def _norm_except(v, dim):
    """Returns the 2-norm over all axes but one; reduced axes keep size 1; dim -1: over all axes."""
    axes = [axis for axis in range(v.ndim) if dim == -1 or axis != dim % v.ndim]
    return ops.sqrt(ops.sum(v * v, axes=axes, keepdims=True)) if axes else ops.abs(v)


class _WeightNorm(Module):
    def __init__(self, dim=0):
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g, weight_v):
        return weight_v * (weight_g / _norm_except(weight_v, self.dim))

    def right_inverse(self, weight):
        return _norm_except(weight, self.dim), weight


def weight_norm(module, name="weight", dim=0):
    """Parametrizes the weight as a length, original0, times a direction: original1 over its norm over all
    axes but dim (None: all)."""
    return parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


class _SpectralNorm(Module):
    def __init__(self, weight, n_power_iterations=1, dim=0, eps=1e-12):
        super().__init__()
        if not -weight.ndim <= dim < weight.ndim:
            raise IndexError(f"spectral_norm: dim is {dim}, the weight has {weight.ndim} axes")
        if n_power_iterations <= 0:
            raise ValueError(f"spectral_norm: n_power_iterations is {n_power_iterations}, it must be positive")
        self.dim, self.eps, self.n_power_iterations = dim % weight.ndim, eps, n_power_iterations
        if weight.ndim > 1:
            with no_grad():
                matrix = self._matrix(weight)
                for name, size in zip(("_u", "_v"), matrix.shape):
                    start = ops.cast(_random.gaussian((size,), 0.0, 1.0), weight.dtype)
                    self.register_buffer(name, normalize(start, dim=0, eps=eps))
                self._iterate(matrix, 15)

    def _matrix(self, weight):
        order = [self.dim, *(axis for axis in range(weight.ndim) if axis != self.dim)]
        return ops.reshape(ops.permute(weight, order), (weight.shape[self.dim], -1))

    def _iterate(self, matrix, n):
        with no_grad():
            v = self._v
            for _ in range(n):
                u = normalize(matrix @ v, dim=0, eps=self.eps)
                v = normalize(matrix.mT @ u, dim=0, eps=self.eps)
            _core._write([self._u, self._v], [u, v])

    def forward(self, weight):
        if weight.ndim == 1:
            return normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix, self.n_power_iterations)
        return weight / ops.sum(self._u.clone() * (matrix @ self._v.clone()))

    def right_inverse(self, value):
        return value


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """Divides the weight by its largest singular value, which the given number of power iterations in each
    call tracks while the module trains."""
    weight = getattr(module, name, None)
    if not isinstance(weight, _core.Tensor):
        raise ValueError(f"Module '{type(module).__name__}' has no parameter or buffer with name '{name}'")
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    return parametrize.register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))
