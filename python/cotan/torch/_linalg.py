"""Norms, determinants, systems of equations and functions of matrices, with PyTorch's signatures. Factorisations are in
_factors.py. A matrix that cannot be inverted or factorised is an error, LinAlgError, when the result is read."""
import functools
import math

from .. import _core, linalg as _linalg
from .._core import LinAlgError, Tensor, ops
from .._dtypes import COMPLEX, FLOATS, finfo, real_dtype
from .._reductions import conj_transposed
from .._rules import custom_jvp, custom_vjp
from .._shaping import moveaxis, normalize_axes
from .._transforms import while_loop
from . import return_types
from ._define import define


def check_matrices(name, x, square=False):
    """Checks that x is matrices of fractions."""
    if x.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor A must have at least 2 dimensions.")
    if square and x.shape[-1] != x.shape[-2]:
        raise RuntimeError(f"{name}: A must be batches of square matrices, but they are {x.shape[-2]} by {x.shape[-1]} matrices")
    check_fractions(name, x)


def check_fractions(name, x):
    if x.dtype not in FLOATS + COMPLEX:
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {x.dtype.name}")


def identity_like(x):
    """Returns identity matrices of the shape and dtype of square matrices."""
    n = x.shape[-1]
    return ops.expand(ops.cast(ops.equal(ops.iota(_core.int32, (n, n), 0), ops.iota(_core.int32, (n, n), 1)), x.dtype), x.shape)


def raise_if(name, info, what):
    """Raises LinAlgError if a number of info is not 0."""
    if ops.any(ops.not_equal(info, 0)).item():
        raise LinAlgError(f"{name}: {what}")


def column(x):
    return ops.reshape(x, (*x.shape, 1))


# --------------------------------------------------------------------------------------------- norms

def _norm_operand(name, x, dtype):
    if dtype is not None:
        return ops.cast(x, dtype)
    check_fractions(name, x)
    return x


@define("linalg.vector_norm(input, ord: float=2, dim: int|ints=None, keepdim: bool=False, *, dtype: dtype=None, out=None)")
def vector_norm(input, ord, dim, keepdim, dtype):
    """Returns the norm over axes: the sum of absolute values to the power ord, to the power 1 / ord; inf is the largest, -inf the
    smallest, 0 the number of elements that are not 0."""
    x, ord = _norm_operand("linalg.vector_norm", input, dtype), float(ord)
    axes = range(x.ndim) if dim is None or isinstance(dim, (tuple, list)) and not dim else (dim,) if isinstance(dim, int) else dim
    if not x.ndim:
        size = ops.abs(x)
        return size if ord else ops.cast(ops.not_equal(size, 0.0), size.dtype)
    axes = normalize_axes(tuple(axes), x.ndim, "linalg.vector_norm")
    if any(not x.shape[axis] for axis in axes):
        if ord < 0 or ord == math.inf:
            raise RuntimeError(f"linalg.vector_norm cannot compute the {ord} norm on an empty tensor because the operation does not "
                               "have an identity")
        return ops.sum(ops.abs(x), axes=axes, keepdims=keepdim)
    wide = x if x.dtype.itemsize > 2 else ops.cast(x, _core.float32)
    return ops.cast(ops.vector_norm(wide, axes=axes, keepdims=keepdim, ord=ord), real_dtype(x.dtype))


@define('linalg.matrix_norm(input, ord: float|str="fro", dim: ints=(-2, -1), keepdim: bool=False, *, dtype: dtype=None, out=None)')
def matrix_norm(input, ord, dim, keepdim, dtype):
    """Returns the norm of matrices, two axes: "fro", "nuc", 1, 2, inf and their negatives."""
    x = _norm_operand("linalg.matrix_norm", input, dtype)
    if x.ndim < 2 or len(dim) != 2:
        raise RuntimeError("linalg.matrix_norm: The input tensor A must have at least 2 dimensions, and dim must be a 2-tuple.")
    if ord == "fro":
        return vector_norm(x, 2, dim, keepdim, None)
    if ord != "nuc" and (isinstance(ord, str) or abs(ord) not in (1, 2, math.inf)):
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    rows, columns = normalize_axes(tuple(dim), x.ndim, "linalg.matrix_norm")
    if ord == "nuc" or abs(ord) == 2:
        s = ops.svdvals(moveaxis(x, (rows, columns), (-2, -1)))
        y = ops.sum(s, axes=-1) if ord == "nuc" else (ops.max if ord > 0 else ops.min)(s, axes=-1)
    else:
        first, second = (rows, columns) if abs(ord) == 1 else (columns, rows)
        y = ops.sum(ops.abs(x), axes=first)
        y = (ops.max if ord > 0 else ops.min)(y, axes=second - (second > first))
    return ops.reshape(y, [1 if i in (rows, columns) else n for i, n in enumerate(x.shape)]) if keepdim else y


@define("linalg.norm(input, ord: float|str=None, dim: int|ints=None, keepdim: bool=False, *, out=None, dtype: dtype=None)")
def norm_of(input, ord, dim, keepdim, dtype):
    """Returns vector_norm; for two axes, or a matrix with an ord, matrix_norm."""
    two = isinstance(dim, (tuple, list)) and len(dim) == 2 or dim is None and input.ndim == 2
    if ord is None or not two and not isinstance(ord, str):
        if dim is None and ord is not None and input.ndim > 1:
            raise RuntimeError("linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D.")
        return vector_norm(input, 2 if ord is None else ord, dim, keepdim, dtype)
    return matrix_norm(input, ord, (-2, -1) if dim is None else dim, keepdim, dtype)


def _norm(input, p, dim, keepdim, dtype):
    """Returns the p-norm over axes (None: all); "nuc" is a norm of matrices."""
    if p == "nuc":
        return matrix_norm(input, p, (-2, -1) if dim is None else dim, keepdim, dtype)
    return vector_norm(input, 2 if p in ("fro", None) else p, dim, keepdim, dtype)


define('norm(input, p: float|str="fro", dim: int|ints=None, keepdim: bool=False, out=None, dtype: dtype=None)')(_norm)
define('Tensor.norm(input, p: float|str="fro", dim: int|ints=None, keepdim: bool=False, dtype: dtype=None)', "m")(_norm)


@define("linalg.cond(input, p: float|str=None, *, out=None)")
def cond(input, p):
    """Returns the condition number of matrices."""
    check_matrices("linalg.cond", input, p not in (None, 2, -2))
    if p in (None, 2, -2):
        s = ops.svdvals(input)
        return s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    inverse, info = inv_ex(input, False)
    product = matrix_norm(input, p, (-2, -1), False, None) * matrix_norm(inverse, p, (-2, -1), False, None)
    return ops.select(ops.not_equal(info, 0), math.inf, product)


# ------------------------------------------------------------------------- determinants and inverses

@define("linalg.det(A: Tensor, *, out=None)")
def det(A):
    """Returns the determinants of square matrices."""
    check_matrices("linalg.det", A, True)
    return ops.det(A)


@define("linalg.slogdet(A: Tensor, *, out=None)")
def slogdet(A):
    """Returns the sign of the determinants, of size 1, and the logarithm of their absolute values."""
    check_matrices("linalg.slogdet", A, True)
    return return_types.linalg_slogdet(*ops.slogdet(A))


define("det(input)", "fm")(det)
define("slogdet(input, *, out=None)", "fm")(lambda input: return_types.slogdet(*slogdet(input)))


@define("logdet(input)", "fm")
def logdet(input):
    """Returns the logarithm of the determinants; NaN where that is negative."""
    sign, logarithm = slogdet(input)
    if input.dtype in COMPLEX:
        return ops.complex(logarithm, ops.angle(sign))
    return ops.select(ops.less(sign, 0.0), math.nan, logarithm)


@define("linalg.inv(A: Tensor, *, out=None)")
def inv(A):
    """Returns the inverses of square matrices."""
    check_matrices("linalg.inv", A, True)
    return ops.inv(A)


define("inverse(input, *, out=None)", "fm")(inv)


def singular_info(A):
    """Returns the number of the first pivot that is 0, int32, or 0."""
    diagonal = ops.diagonal(ops.lu(ops.stop_gradient(A))[0])
    return first_index(ops.equal(diagonal, 0.0))


def first_index(marks):
    """Returns the index of the first true element along the last axis, counted from 1, as int32; 0 if there is none."""
    n = marks.shape[-1]
    if not n:
        return _core.full(marks.shape[:-1], 0, _core.int32)
    index = ops.min(ops.select(marks, ops.iota(_core.int32, marks.shape, marks.ndim - 1), n), axes=-1)
    return ops.select(ops.equal(index, n), 0, index + 1)


def replace_singular(A, info):
    """Returns A with the identity in place of the matrices whose info is not 0."""
    return ops.select(ops.not_equal(column(column(info)), 0), identity_like(A), A)


@define("linalg.inv_ex(A: Tensor, *, check_errors: bool=False, out=None)")
def inv_ex(A, check_errors):
    """Returns inverses, and for each the number of the first pivot that is 0, else 0; the inverse of such a matrix is infinite."""
    check_matrices("linalg.inv_ex", A, True)
    info = singular_info(A)
    if check_errors:
        raise_if("linalg.inv_ex", info, "The inversion could not be completed because the input matrix is singular.")
    inverse = ops.inv(replace_singular(A, info))
    return return_types.linalg_inv_ex(ops.select(ops.not_equal(column(column(info)), 0), math.inf, inverse), info)


# --------------------------------------------------------------------------------- systems of equations

def is_vector(A, B):
    """True if B is one right side for each matrix of A, without an axis of its own."""
    return B.ndim == 1 or A.ndim - 1 == B.ndim and B.shape == A.shape[:-1]


def _solve(name, A, B, left):
    check_matrices(name, A, True)
    if A.dtype != B.dtype:
        raise RuntimeError(f"{name}: Expected A and B to have the same dtype, but found A of type {A.dtype.name} and B of type "
                           f"{B.dtype.name} instead")
    if is_vector(A, B):
        if not left:
            raise RuntimeError(f"{name}: Vector broadcasting of the left hand side is not supported for left=False.")
        y = ops.solve(A, column(B))
        return ops.reshape(y, y.shape[:-1])
    return ops.solve(A, B) if left else ops.solve(A.mT, B.mT).mT


@define("linalg.solve(A: Tensor, B: Tensor, *, left: bool=True, out=None)")
def solve(A, B, left):
    """Returns the X of A X = B, or of X A = B; B is matrices, or one vector for each matrix."""
    return _solve("linalg.solve", A, B, left)


@define("linalg.solve_ex(A: Tensor, B: Tensor, *, left: bool=True, check_errors: bool=False, out=None)")
def solve_ex(A, B, left, check_errors):
    """Returns solve's result, and for each matrix the number of the first pivot that is 0, else 0."""
    check_matrices("linalg.solve_ex", A, True)
    info = singular_info(A)
    if check_errors:
        raise_if("linalg.solve_ex", info, "The solver failed because the input matrix is singular.")
    return return_types.linalg_solve_ex(_solve("linalg.solve_ex", replace_singular(A, info), B, left), info)


@define("linalg.solve_triangular(input, B: Tensor, *, upper: bool, left: bool=True, unitriangular: bool=False, out=None)")
def solve_triangular(input, B, upper, left, unitriangular):
    """Returns the X of A X = B, or of X A = B, for triangular matrices A."""
    check_matrices("linalg.solve_triangular", input, True)
    return _linalg.solve_triangular(input, B, upper=upper, left=left, unitriangular=unitriangular)


@define("linalg.tensorsolve(input, other: Tensor, dims: ints=None, *, out=None)")
def tensorsolve(input, other, dims):
    """Returns the x of tensordot(input, x, x.ndim) = other; dims are moved to the end of input first."""
    if dims is not None:
        input = moveaxis(input, tuple(dims), tuple(range(input.ndim - len(dims), input.ndim)))
    shape = tuple(input.shape[other.ndim:])
    if math.prod(shape) != other.numel():
        raise RuntimeError("Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]),"
                           f" but got {math.prod(shape)} != {other.numel()}")
    return ops.reshape(solve(ops.reshape(input, (-1, math.prod(shape))), ops.reshape(other, (-1,)), True), shape)


@define("linalg.tensorinv(input, ind: int=2, *, out=None)")
def tensorinv(input, ind):
    """Returns the inverse of tensordot with input over `ind` axes."""
    if ind <= 0:
        raise RuntimeError("Expected a strictly positive integer for 'ind'")
    shape = tuple(input.shape)
    return ops.reshape(inv(ops.reshape(input, (math.prod(shape[:ind]), -1))), shape[ind:] + shape[:ind])


# --------------------------------------------------------------------------------------- least squares

def _threshold(x, s, atol, rtol):
    """Returns the values, (..., 1), above which singular values s count: the larger of atol and rtol times the largest."""
    if rtol is None:
        eps = max(x.shape[-2:]) * finfo(x.dtype).eps
        if isinstance(atol, Tensor):
            rtol = ops.select(ops.greater(atol, 0.0), 0.0, eps)
        else:
            rtol = 0.0 if atol else eps
    atol = 0.0 if atol is None else atol
    atol, rtol = (column(ops.cast(t, s.dtype)) if isinstance(t, Tensor) else t for t in (atol, rtol))
    return ops.maximum(ops.max(s, axes=-1, keepdims=True) * rtol, atol)


@define("linalg.matrix_rank(input, *, atol: Tensor|float=None, rtol: Tensor|float=None, hermitian: bool=False, out=None)")
def matrix_rank(input, atol, rtol, hermitian):
    """Returns the number of singular values above the larger of atol and rtol times the largest one."""
    check_matrices("linalg.matrix_rank", input)
    if not all(input.shape[-2:]):
        return _core.full(input.shape[:-2], 0, _core.int64)
    s = ops.stop_gradient(ops.abs(ops.eigvalsh(input)) if hermitian else ops.svdvals(input))
    return ops.sum(ops.cast(ops.greater(s, _threshold(input, s, atol, rtol)), _core.int64), axes=-1)


@define("linalg.matrix_rank(input, tol: Tensor|float, hermitian: bool=False, *, out=None)")
def _matrix_rank_of_tol(input, tol, hermitian):
    return matrix_rank(input, tol, 0.0, hermitian)


@functools.partial(custom_jvp, nondiff_argnums=(1, 2, 3))
def _pinv(input, atol, rtol, hermitian):
    if not all(input.shape[-2:]):
        return _core.full((*input.shape[:-2], input.shape[-1], input.shape[-2]), 0, input.dtype)
    if hermitian:
        values, u = ops.eigh(input)
        size, vh = ops.abs(values), conj_transposed(u)
    else:
        u, values, vh = ops.svd(input, full=False)
        size = values
    keep = ops.greater(size, _threshold(input, size, atol, rtol))
    inverse = ops.select(keep, 1.0 / ops.select(keep, values, 1.0), 0.0)
    return (conj_transposed(vh) * ops.cast(inverse[..., None, :], input.dtype)) @ conj_transposed(u)


def _pinv_rule(atol, rtol, hermitian, primals, tangents):
    """Golub and Pereyra's derivative, in which the singular vectors do not appear."""
    (x,), (t,) = primals, tangents
    p = _pinv(x, atol, rtol, hermitian)
    ph, th = conj_transposed(p), conj_transposed(t)
    left, right = p @ ph @ th, th @ ph @ p
    return p, left - left @ x @ p + right - p @ (x @ right) - p @ t @ p


_pinv.defjvp(_pinv_rule)


@define("linalg.pinv(input, *, atol: Tensor|float=None, rtol: Tensor|float=None, hermitian: bool=False, out=None)")
def pinv(input, atol, rtol, hermitian):
    """Returns the pseudo-inverses; singular values count above the larger of atol and rtol times the largest."""
    check_matrices("linalg.pinv", input, hermitian)
    return _pinv(input, atol, rtol, hermitian)


@define("linalg.pinv(input, rcond: Tensor|float, hermitian: bool=False, *, out=None)")
def _pinv_of_rcond(input, rcond, hermitian):
    return pinv(input, None, rcond, hermitian)


@define("pinverse(input, rcond: float=1e-15)", "fm")
def pinverse(input, rcond):
    """Returns the pseudo-inverses; singular values count above rcond times the largest."""
    return pinv(input, None, rcond, False)


@define("linalg.lstsq(input, b: Tensor, rcond: float=None, *, driver: str=None)")
def lstsq(input, b, rcond, driver):
    """Returns (solution, residuals, rank, singular_values) of the least-squares problem input x = b; which of the last three are
    computed, and not empty, depends on the driver as in PyTorch."""
    check_matrices("linalg.lstsq", input)
    driver = "gelsy" if driver is None else driver
    if driver not in ("gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(f"torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss), not {driver}")
    rows, columns = input.shape[-2:]
    vector = is_vector(input, b)
    right = column(b) if vector else b
    solution = ops.lstsq(input, right, rtol=rcond)
    empty = _core.full((0,), 0, real_dtype(input.dtype))
    values = ops.svdvals(ops.stop_gradient(input)) if driver in ("gelsd", "gelss") else empty
    rank = _core.full((0,), 0, _core.int64)
    if driver != "gels":
        rank = matrix_rank(input, None, rcond, False)
    residuals = empty
    if rows > columns and (driver == "gels" or driver != "gelsy" and ops.all(ops.equal(rank, columns)).item()):
        residuals = ops.sum(ops.square(ops.abs(input @ solution - right)), axes=-2)
        residuals = ops.reshape(residuals, residuals.shape[:-1]) if vector else residuals
    return return_types.linalg_lstsq(ops.reshape(solution, solution.shape[:-1]) if vector else solution, residuals, rank, values)


# --------------------------------------------------------------------------------- functions of matrices

# The numerator of Pade's approximant [13/13] of exp, exact for norms up to _PADE_NORM (Higham, SIAM J. Matrix Anal. 26, 2005)
_PADE = [math.factorial(26 - j) // (math.factorial(j) * math.factorial(13 - j)) for j in range(14)]
_PADE_NORM = 5.371920351148152


def _exp_values(A):
    """Returns exp(A): A is halved until its norm is small, and the approximant squared as often."""
    wide = ops.cast(A, _core.complex128 if A.dtype in COMPLEX else _core.float64)
    norm = ops.max(ops.sum(ops.abs(wide), axes=-2, keepdims=True), axes=-1, keepdims=True)
    count = ops.clamp(ops.ceil(ops.log2(norm * (1 / _PADE_NORM))), 0.0, 1024.0)
    count = ops.select(ops.is_finite(norm), count, 0.0)
    a = wide * ops.exp2(-count)
    one, a2 = identity_like(a), a @ a
    a4 = a2 @ a2
    a6 = a4 @ a2

    def part(c, first):
        return a6 @ (a6 * c[first + 12] + a4 * c[first + 10] + a2 * c[first + 8]) + (
            a6 * c[first + 6] + a4 * c[first + 4] + a2 * c[first + 2] + one * c[first])

    even, odd = part(_PADE, 0), a @ part(_PADE, 1)

    def square(carry):
        y, k = carry
        return ops.select(ops.less(k, count), y @ y, y), k + 1.0

    start = (ops.solve(even - odd, even + odd), ops.cast(0.0, _core.float64))
    return ops.cast(while_loop(lambda carry: ops.any(ops.less(carry[1], count)), square, start)[0], A.dtype)


def _exp_backward(A, cotangent):
    """The exponential of [[A^T, cotangent], [0, A^T]] has the cotangent of A above its diagonal."""
    n, at = A.shape[-1], A.mT
    block = ops.concat([ops.concat([at, cotangent], -1), ops.concat([at * 0.0, at], -1)], -2)
    return (_exp(block)[..., :n, n:],)


_exp = custom_vjp(_exp_values)
_exp.defvjp(lambda A: (_exp_values(A), A), _exp_backward)


@define("linalg.matrix_exp(input)")
def matrix_exp(input):
    """Returns the exponential of square matrices."""
    check_matrices("linalg.matrix_exp", input, True)
    return _exp(input) if input.numel() else +input


define("matrix_exp(input)", "fm")(matrix_exp)


@define("linalg.matrix_power(input, n: int, *, out=None)")
def matrix_power(input, n):
    """Returns the product of n times the square matrices; of n below 0 of their inverses."""
    if input.ndim < 2 or input.shape[-1] != input.shape[-2]:
        raise RuntimeError("linalg.matrix_power: A must be batches of square matrices")
    return ops.matrix_power(input, n)


define("matrix_power(input, n: int, *, out=None)", "fm")(matrix_power)
