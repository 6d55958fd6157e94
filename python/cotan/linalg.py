"""Linear algebra, by the names of the array API standard, NumPy and PyTorch. Matrices are the last two
axes."""
import math
from collections import namedtuple

from . import _core
from ._core import LinAlgError, ops  # noqa: F401
from ._dtypes import COMPLEX, FLOATS, result_type
from ._elementwise import strong
from ._reductions import conj_transposed, reduced, widened
from ._shaping import diagonals, moveaxis, normalize_axis

Eigh = namedtuple("Eigh", "eigenvalues eigenvectors")
Qr = namedtuple("Qr", "Q R")
Slogdet = namedtuple("Slogdet", "sign logabsdet")
Svd = namedtuple("Svd", "U S Vh")
Lstsq = namedtuple("Lstsq", "solution residuals rank singular_values")


def _floats(x):
    x = strong(x)
    return x if x.dtype in FLOATS or x.dtype in COMPLEX else ops.cast(x, _core.float32)


def matmul(x1, x2, /, *, out=None):
    """Returns the product of matrices; a vector is a row on the left, a column on the right."""
    product = strong(x1) @ x2
    return product if out is None else out.copy_(product)


def matrix_transpose(x, /):
    return x.mT


def vecdot(x1, x2, /, *, axis=-1, dim=None):
    """Returns sums of products along an axis, with the first factors conjugated."""
    axis = axis if dim is None else dim
    if axis not in (-1, x1.ndim - 1) or x1.ndim != x2.ndim:
        if axis >= 0 and x1.ndim != x2.ndim:
            raise ValueError(f"vecdot: axis {axis} must be counted from the end, as -1, the tensors have {x1.ndim} and {x2.ndim}")
        if x1.shape[axis] != x2.shape[axis]:
            raise ValueError(f"vecdot: the axes have {x1.shape[axis]} and {x2.shape[axis]} elements")
        x1, x2 = moveaxis(x1, axis, -1), moveaxis(x2, axis, -1)
    if x1.shape[-1] != x2.shape[-1]:
        raise ValueError(f"vecdot: the axes have {x1.shape[-1]} and {x2.shape[-1]} elements")
    return ops.vecdot(x1, x2)


def tensordot(x1, x2, /, axes=2, *, dims=None):
    """Returns sums of products over pairs of axes: the last axes of x1, as many as given, with the first of
    x2; or two lists of axes."""
    axes = axes if dims is None else dims
    dtype = result_type(x1, x2)
    x1, x2 = ops.cast(x1, dtype), ops.cast(x2, dtype)
    if hasattr(axes, "__index__"):
        first, second = list(range(x1.ndim - axes, x1.ndim)), list(range(axes))
    else:
        first, second = ([one] if hasattr(one, "__index__") else list(one) for one in axes)
    first = [normalize_axis(axis, x1.ndim, "tensordot") for axis in first]
    second = [normalize_axis(axis, x2.ndim, "tensordot") for axis in second]
    for a, b in zip(first, second):
        if x1.shape[a] != x2.shape[b]:
            raise ValueError(f"tensordot: axis {a} of {tuple(x1.shape)} and axis {b} of {tuple(x2.shape)} differ: they have "
                             f"{x1.shape[a]} and {x2.shape[b]} elements")
    return ops.contract(x1, x2, a_axes=first, b_axes=second)


def outer(x1, x2, /):
    """Returns all products of an element of x1 and one of x2, both vectors."""
    if x1.ndim != 1 or x2.ndim != 1:
        raise ValueError(f"outer: it takes two vectors, not tensors of {x1.ndim} and {x2.ndim} axes")
    return ops.outer(x1, x2)


def cross(x1, x2, /, *, axis=-1, dim=None):
    """Returns the cross product of vectors of three elements along an axis."""
    axis = axis if dim is None else dim
    if axis in (-1, max(x1.ndim, x2.ndim) - 1):
        return ops.cross(x1, x2)
    return moveaxis(ops.cross(moveaxis(x1, axis, -1), moveaxis(x2, axis, -1)), -1, axis)


def diagonal(x, /, *, offset=0):
    return diagonals(x, offset)


def trace(x, /, *, offset=0, dtype=None):
    """Returns the sums of the diagonals."""
    return reduced(ops.sum, widened(ops.diagonal(x, offset=offset), dtype), -1, False)


def cholesky(x, /, *, upper=False):
    return ops.cholesky(_floats(x), upper=upper)


det = ops.det
inv = ops.inv
eigvals = ops.eigvals
svdvals = ops.svdvals
matrix_power = ops.matrix_power


def solve(x1, x2, /):
    """Returns the x of x1 x = x2; x2 is one vector, or matrices."""
    x1, x2 = _floats(x1), _floats(x2)
    dtype = result_type(x1, x2)
    x1, x2 = ops.cast(x1, dtype), ops.cast(x2, dtype)
    if x2.ndim == 1:
        y = ops.solve(x1, ops.reshape(x2, (-1, 1)))
        return ops.reshape(y, y.shape[:-1])
    return ops.solve(x1, x2)


def solve_triangular(x1, x2, *, upper, left=True, unitriangular=False):
    if not left:
        return solve_triangular(x1.mT, x2.mT, upper=not upper, unitriangular=unitriangular).mT
    return ops.triangular_solve(x1, x2, upper=upper, unit=unitriangular)


def qr(x, /, *, mode="reduced"):
    if mode not in ("reduced", "complete"):
        raise ValueError(f"qr: mode is \"reduced\" or \"complete\", not {mode!r}")
    result = ops.qr(_floats(x), complete=mode == "complete")
    return Qr(result[0], result[1])


def svd(x, /, *, full_matrices=True):
    result = ops.svd(_floats(x), full=full_matrices)
    return Svd(result[0], result[1], result[2])


def eigh(x, /, *, UPLO="L"):
    result = ops.eigh(_floats(x), upper=UPLO == "U")
    return Eigh(result[0], result[1])


def eigvalsh(x, /, *, UPLO="L"):
    return ops.eigvalsh(_floats(x), upper=UPLO == "U")


def eig(x, /):
    result = ops.eig(_floats(x))
    return Eigh(result[0], result[1])


def slogdet(x, /):
    result = ops.slogdet(_floats(x))
    return Slogdet(result[0], result[1])


def matrix_rank(x, /, *, rtol=None, tol=None):
    """Returns the number of singular values above rtol times the largest one (tol: above this number)."""
    x = _floats(x)
    values = ops.svdvals(x)
    if tol is None:
        share = max(x.shape[-2:]) * _finfo(x).eps if rtol is None else rtol
        share = strong(share) if not isinstance(share, float) else share
        tol = ops.max(values, axes=-1, keepdims=True) * (
            ops.reshape(share, (*share.shape, 1)) if hasattr(share, "shape") else share) if values.shape[-1] else 0.0
    return ops.sum(ops.cast(ops.greater(values, tol), _core.int64), axes=-1)


def _finfo(x):
    from ._dtypes import finfo
    return finfo(x.dtype)


def pinv(x, /, *, rtol=None):
    """Returns the pseudo-inverse; singular values are used if they are above rtol (one number, or one for
    each matrix) times the largest."""
    x = _floats(x)
    if rtol is None or isinstance(rtol, (int, float)):
        return ops.pinv(x, rtol=rtol)
    u, s, vh = svd(x, full_matrices=False)
    least = ops.reshape(ops.cast(rtol, s.dtype), (*rtol.shape, 1)) * ops.max(s, axes=-1, keepdims=True)
    inverse = ops.select(ops.greater(s, least), 1 / s, 0.0)
    return ops.matmul(conj_transposed(vh) * ops.cast(ops.reshape(inverse, (*s.shape[:-1], 1, s.shape[-1])), x.dtype),
                      conj_transposed(u))


def lstsq(x1, x2, /, *, rcond=None):
    """Returns (solution, residuals, rank, singular_values) of the least-squares problem x1 x = x2."""
    column = x2.ndim == x1.ndim - 1
    right = ops.reshape(x2, (*x2.shape, 1)) if column else x2
    solution = ops.lstsq(x1, right, rtol=rcond)
    residuals = ops.sum(ops.square(ops.abs(ops.matmul(x1, solution) - right)), axes=-2)
    solution = ops.reshape(solution, solution.shape[:-1]) if column else solution
    return Lstsq(solution, residuals, matrix_rank(x1, rtol=rcond), ops.svdvals(x1))


def matrix_norm(x, /, *, keepdims=False, ord="fro", dim=(-2, -1), keepdim=False):
    """Returns the norm of matrices: "fro", "nuc", 1, 2, inf and their negatives."""
    x = _floats(x)
    if tuple(dim) != (-2, -1):
        x = moveaxis(x, dim, (-2, -1))
    keepdims = bool(keepdims or keepdim)
    if ord == "nuc":
        return ops.matrix_norm(x, nuclear=True, keepdims=keepdims)
    if ord == "fro":
        return ops.matrix_norm(x, keepdims=keepdims)
    return ops.matrix_norm(x, ord=ord, keepdims=keepdims)


def vector_norm(x, /, *, axis=None, keepdims=False, ord=2, dim=None, keepdim=False):
    """Returns the norm over axes: the sum of absolute values to the power ord, to the power 1 / ord; inf is
    the largest, -inf the smallest, 0 the number of elements that are not 0."""
    x = _floats(x)
    widened = ops.cast(x, _core.float32) if x.dtype in FLOATS and x.dtype.itemsize < 4 else x
    y = reduced(ops.vector_norm, widened, axis if dim is None else dim, keepdims or keepdim, ord=ord)
    return y if widened is x else ops.cast(y, x.dtype)


def norm(x, ord=None, axis=None, keepdims=False, *, dim=None, keepdim=False, p=None):
    """Returns vector_norm; for two axes, or a matrix with an ord, matrix_norm."""
    axis, keepdims, ord = axis if dim is None else dim, keepdims or keepdim, ord if p is None else p
    if ord is None:
        return vector_norm(x, axis=axis, keepdims=keepdims)
    if isinstance(axis, (tuple, list)) and len(axis) == 2 or axis is None and x.ndim == 2:
        return matrix_norm(x, ord=ord, keepdims=keepdims, dim=axis or (-2, -1))
    return vector_norm(x, axis=axis, keepdims=keepdims, ord=ord)


def cond(x, p=None):
    """Returns the condition number."""
    return ops.matrix_cond(_floats(x)) if p is None else ops.matrix_cond(_floats(x), ord=p)


def multi_dot(tensors):
    return ops.multi_dot(list(tensors))


def tensorsolve(a, b):
    """Returns the x of tensordot(a, x, x.ndim) = b."""
    shape = tuple(a.shape[b.ndim:])
    return ops.reshape(solve(ops.reshape(a, (-1, math.prod(shape))), ops.reshape(b, (-1,))), shape)


def tensorinv(a, ind=2):
    """Returns the inverse of tensordot with a over `ind` axes."""
    shape = tuple(a.shape)
    return ops.reshape(ops.inv(ops.reshape(a, (math.prod(shape[:ind]), -1))), shape[ind:] + shape[:ind])


def cdist(x1, x2, p=2.0):
    """Returns the distances of each row of x1, (..., M, K), to each row of x2, (..., N, K): (..., M, N)."""
    return vector_norm(ops.reshape(x1, (*x1.shape[:-1], 1, x1.shape[-1])) - ops.reshape(x2, (*x2.shape[:-2], 1, *x2.shape[-2:])),
                       axis=-1, ord=p)
