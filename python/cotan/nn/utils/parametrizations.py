"""Weight norm, spectral norm and orthogonal matrices, by the names of torch.nn.utils.parametrizations."""
from ... import _core, _random, linalg
from ..._core import ops
from ..._grad import no_grad
from ..functional import normalize
from ..functional.base import concat
from ..module import Module
from . import parametrize

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def norm_except_dim(v, pow=2, dim=0):
    """Returns the norm over all axes but one; reduced axes keep size 1; dim -1: over all axes, as a number."""
    axes = [axis for axis in range(v.ndim) if dim == -1 or axis != dim % v.ndim]
    if pow != 2:
        return ops.vector_norm(v, axes=axes, keepdims=dim != -1, ord=float(pow)) if axes else ops.abs(v)
    return ops.sqrt(ops.sum(v * v, axes=axes, keepdims=dim != -1)) if axes else ops.abs(v)


class _WeightNorm(Module):
    def __init__(self, dim=0):
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g, weight_v):
        return weight_v * (weight_g / norm_except_dim(weight_v, 2, self.dim))

    def right_inverse(self, weight):
        return norm_except_dim(weight, 2, self.dim), weight


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


def _transposed(x):
    """Returns the conjugate transpose of matrices (..., N, K)."""
    return ops.conj(x.mT) if x.is_complex() else x.mT


def _matrix_exp(a):
    """Returns the exponential of matrices (..., N, N), of norm at most 1000: the series of a / 2^s, squared s times."""
    norm = ops.max(ops.sum(ops.abs(a), axes=(-2,), keepdims=True), axes=(-1,), keepdims=True)
    s = ops.stop_gradient(ops.clamp(ops.ceil(ops.log2(ops.maximum(norm, 1.0))), 0.0, 10.0))  # (..., 1, 1)
    identity = _identity(a)
    x, total = a / ops.cast(ops.exp2(s), a.dtype), identity
    for k in range(18, 0, -1):
        total = identity + (x @ total) / k
    for k in range(10):
        total = ops.select(ops.less(k, s), total @ total, total)
    return total


def _identity(a):
    n = a.shape[-1]
    return ops.one_hot(ops.iota("int32", (n,), 0), n, a.dtype) if not a.is_complex() else \
        ops.cast(ops.one_hot(ops.iota("int32", (n,), 0), n, "float32"), a.dtype)


def _orthonormal_columns(x):
    """Returns Q of the decomposition Q R with a positive diagonal of R."""
    import numpy
    q, r = numpy.linalg.qr(x.numpy())
    diagonal = numpy.diagonal(r, axis1=-2, axis2=-1)
    return _core.asarray(q * (diagonal / numpy.where(diagonal == 0, 1, abs(diagonal)))[..., None, :])


class _Orthogonal(Module):
    """A matrix with orthonormal columns, or rows if there are fewer of them: base times a map of the original."""

    def __init__(self, weight, orthogonal_map, use_trivialization=True):
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape, self.orthogonal_map, self.use_trivialization = tuple(weight.shape), orthogonal_map, use_trivialization
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X):
        wide = X.shape[-2] < X.shape[-1]
        X = X.mT if wide else X
        n, k = X.shape[-2:]
        rows, columns = ops.iota("int32", (n, 1), 0), ops.iota("int32", (1, k), 1)
        if self.orthogonal_map == "householder":
            Q = self._reflections(X, rows, columns)
        else:
            X = ops.select(ops.greater_equal(rows, columns), X, 0.0)
            X = X if n == k else ops.pad(X, ops.cast(0.0, X.dtype), low=(0,) * X.ndim, high=(0,) * (X.ndim - 1) + (n - k,))
            A = X - _transposed(X)
            if self.orthogonal_map == "matrix_exp":
                Q = _matrix_exp(A)
            else:
                Q = linalg.solve(_identity(A) - A * 0.5, _identity(A) + A * 0.5)
            Q = Q[..., :k]
        if self.use_trivialization:
            Q = self.base @ Q
        return Q.mT if wide else Q

    @staticmethod
    def _reflections(X, rows, columns):
        """Returns the first columns of the product of reflections by the columns below the diagonal: I - V T V' (Schreiber,
        Van Loan 1989), T the inverse of half of V' V's diagonal and what is above it."""
        k = X.shape[-1]
        one = ops.cast(ops.equal(rows, columns), X.dtype)
        V = ops.select(ops.greater(rows, columns), X, one)  # (..., N, K)
        products, upper = V.mT @ V, ops.less(rows[:k], columns)
        inverse = ops.select(upper, products, ops.select(ops.equal(rows[:k], columns), products * 0.5, 0.0))
        Q = one - V @ linalg.solve_triangular(inverse, V[..., :k, :].mT, upper=True)
        signs = ops.stop_gradient(ops.trunc(ops.sum(ops.select(one > 0, X, 0.0), axes=(-2,), keepdims=True)))
        return Q * signs

    def right_inverse(self, Q):
        if tuple(Q.shape) != self.shape:
            raise ValueError(f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape "
                             f"{tuple(Q.shape)}.")
        with no_grad():
            return self._originals_of(Q.detach())

    def _originals_of(self, Q):
        import numpy
        shape, dtype = tuple(Q.shape), Q.dtype
        wide = shape[-2] < shape[-1]
        Q = Q.mT if wide else Q
        n, k = Q.shape[-2:]
        if not self.use_trivialization:
            if self.orthogonal_map != "householder":
                raise NotImplementedError("It is not possible to assign to the matrix exponential or the Cayley parametrizations "
                                          "when use_trivialization=False.")
            h, tau = numpy.linalg.qr(Q.numpy(), mode="raw")
            A = numpy.swapaxes(h, -1, -2).copy()
            i = numpy.arange(k)
            A[..., i, i] = numpy.sign(A[..., i, i]) * numpy.where(tau == 0, -1, 1)
            A = _core.asarray(A)
            return A.mT if wide else A
        values = Q.numpy()
        if n == k and numpy.allclose(values.conj().swapaxes(-1, -2) @ values, numpy.eye(n),
                                     atol=10 * n * numpy.finfo(values.dtype).eps):
            self.base = Q.clone()
        else:
            more = ops.cast(_random.gaussian((*Q.shape[:-1], n - k), 0.0, 1.0), dtype)
            self.base = _orthonormal_columns(concat([Q, more], Q.ndim - 1) if n > k else Q)
        rows, columns = ops.iota("int32", (shape[-2], 1), 0), ops.iota("int32", (1, shape[-1]), 1)
        return ops.expand(ops.cast(ops.select(ops.equal(rows, columns), -1.0, 0.0), dtype), shape)


def orthogonal(module, name="weight", orthogonal_map=None, *, use_trivialization=True):
    """Parametrizes a matrix, or each of a batch, so that it stays orthogonal: by "matrix_exp", "cayley" or "householder"."""
    weight = getattr(module, name, None)
    if not isinstance(weight, _core.Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if weight.shape[-2] == weight.shape[-1] or weight.is_complex() else "householder"
    if orthogonal_map not in ("matrix_exp", "cayley", "householder"):
        raise ValueError(f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}')
    parametrize.register_parametrization(module, name, _Orthogonal(weight, orthogonal_map, use_trivialization), unsafe=True)
    return module
