"""Factorisations of matrices and what is computed from factors, with PyTorch's signatures."""
from .. import _core
from .._core import ops
from .._dtypes import COMPLEX
from .._random import randn
from .._reductions import conj_transposed
from .._transforms import scan
from . import return_types
from ._define import define
from ._linalg import check_matrices, column, first_index, identity_like, raise_if, singular_info


def _empty(dtype):
    return _core.full((0,), 0, dtype)


# ------------------------------------------------------------------------------------------- Cholesky

@define("linalg.cholesky(input, *, upper: bool=False, out=None)")
def cholesky(input, upper):
    """Returns the lower triangular L with L L^H = input, of positive definite matrices; `upper`: its adjoint."""
    check_matrices("linalg.cholesky", input, True)
    return ops.cholesky(input, upper=upper)


define("cholesky(input, upper: bool=False, *, out=None)", "fm")(cholesky)


def _not_positive(a):
    """Returns the order of the first leading minor that is not positive, counted from 1, int32, or 0, of matrices whose lower
    triangle is read: by elimination, one column a step."""
    a = ops.tril(a) + conj_transposed(ops.tril(a, diagonal=-1))
    n = a.shape[-1]

    def eliminate(a, k):
        here = ops.cast(ops.equal(ops.iota(_core.int64, (n,), 0), k), a.dtype)
        line = ops.sum(a * here, axes=-1)  # column k
        pivot = ops.sum(line * here, axes=-1, keepdims=True)
        size = ops.real(pivot) if a.dtype in COMPLEX else pivot
        fine = ops.greater(size, 0.0)
        line = column(line / ops.cast(ops.sqrt(ops.select(fine, size, 1.0)), a.dtype))
        return a - line @ conj_transposed(line), ops.not_(fine)

    marks = scan(eliminate, a, ops.iota(_core.int64, (n,), 0))[1] if n else _core.full((0, *a.shape[:-2], 1), False)
    return first_index(ops.reshape(marks, marks.shape[:-1]).moveaxis(0, -1))


@define("linalg.cholesky_ex(input, *, upper: bool=False, check_errors: bool=False, out=None)")
def cholesky_ex(input, upper, check_errors):
    """Returns cholesky's result, and for each matrix the order of the first leading minor that is not positive, else 0; the
    factor of such a matrix is NaN."""
    check_matrices("linalg.cholesky_ex", input, True)
    fixed = ops.stop_gradient(input)
    info = _not_positive(conj_transposed(fixed) if upper else fixed)
    if check_errors:
        raise_if("linalg.cholesky_ex", info, "The factorization could not be completed because the input is not positive-definite.")
    bad = ops.not_equal(column(column(info)), 0)
    factor = ops.cholesky(ops.select(bad, identity_like(input), input), upper=upper)
    return return_types.linalg_cholesky_ex(ops.select(bad, float("nan"), factor), info)


@define("cholesky_solve(input, input2: Tensor, upper: bool=False, *, out=None)", "fm")
def cholesky_solve(input, input2, upper):
    """Returns the X of A X = input, given the Cholesky factor of A."""
    first = ops.triangular_solve(input2, input, upper=upper, transpose=2 if upper else 0)
    return ops.triangular_solve(input2, first, upper=upper, transpose=0 if upper else 2)


@define("cholesky_inverse(input, upper: bool=False, *, out=None)", "fm")
def cholesky_inverse(input, upper):
    """Returns the inverse of the matrices with these Cholesky factors."""
    check_matrices("cholesky_inverse", input, True)
    return cholesky_solve(identity_like(input), input, upper)


@define("triangular_solve(input, A: Tensor, upper: bool=True, transpose: bool=False, unitriangular: bool=False, *, out=None)", "fm")
def triangular_solve(input, A, upper, transpose, unitriangular):
    """Returns the X of A X = input for triangular matrices A, and A."""
    solution = ops.triangular_solve(A, input, upper=upper, transpose=int(transpose), unit=unitriangular)
    return return_types.triangular_solve(solution, A.clone())


# ------------------------------------------------------------------------------------------------ LU

def _factorise(name, A, pivot):
    """Returns (factors, pivots from 0, order of the rows) of matrices of any shape."""
    check_matrices(name, A)
    if not pivot:
        raise RuntimeError(f"{name}: LU without pivoting is not implemented on the CPU")
    rows, columns = A.shape[-2:]
    factors, pivots, order = ops.lu(ops.stop_gradient(A))
    if not A.requires_grad:
        return factors, pivots, order
    # The derivative is that of square matrices; what is beside or below them follows by a triangular solve.
    k = min(rows, columns)
    moved = ops.matmul(_permutation(order, A.dtype).mT, A)
    square = ops.lu(moved[..., :k, :k])[0]
    if rows > k:
        below = ops.triangular_solve(square, moved[..., k:, :].mT, upper=True, transpose=1).mT
        square = ops.concat([square, below], -2)
    if columns > k:
        square = ops.concat([square, ops.triangular_solve(square, moved[..., k:], unit=True)], -1)
    return square, pivots, order


def _permutation(order, dtype):
    """Returns P with (P^T A)[i] = A[order[i]], for order (..., M)."""
    n = order.shape[-1]
    rows = ops.iota(order.dtype, (n, 1), 0)
    return ops.cast(ops.equal(rows, ops.reshape(order, (*order.shape[:-1], 1, n))), dtype)


def _order_of(pivots, rows):
    """Returns the order of the rows, (..., rows), after row i was exchanged with row pivots[i], counted from 1, for each i."""
    places = ops.iota(_core.int32, (rows,), 0)

    def exchange(order, step):
        i, j = step
        j = column(j) - 1
        at_i, at_j = ops.equal(places, i), ops.equal(places, j)
        first = ops.sum(ops.select(at_i, order, 0), axes=-1, keepdims=True)
        second = ops.sum(ops.select(at_j, order, 0), axes=-1, keepdims=True)
        return ops.select(at_i, second, ops.select(at_j, first, order)), ()

    start = ops.expand(places, (*pivots.shape[:-1], rows))
    if not pivots.shape[-1]:
        return start
    steps = (ops.iota(_core.int32, (pivots.shape[-1],), 0), ops.cast(pivots, _core.int32).moveaxis(-1, 0))
    return scan(exchange, start, steps)[0]


def _split(factors):
    """Returns L with its diagonal of ones, and U."""
    k = min(factors.shape[-2:])
    lower = ops.tril(factors[..., :k], diagonal=-1)
    rows, columns = (ops.iota(_core.int32, lower.shape[-2:], axis) for axis in (0, 1))
    return lower + ops.cast(ops.equal(rows, columns), lower.dtype), ops.triu(factors[..., :k, :])


@define("linalg.lu(A: Tensor, *, pivot: bool=True, out=None)")
def lu(A, pivot):
    """Returns a permutation P, the lower triangular L and the upper triangular U with A = P L U."""
    factors, _, order = _factorise("linalg.lu", A, pivot)
    return return_types.linalg_lu(_permutation(order, A.dtype), *_split(factors))


@define("linalg.lu_factor(A: Tensor, *, pivot: bool=True, out=None)")
def lu_factor(A, pivot):
    """Returns L and U in one matrix, and the row that each row was exchanged with, counted from 1."""
    factors, pivots, _ = _factorise("linalg.lu_factor", A, pivot)
    return return_types.linalg_lu_factor(factors, pivots + 1)


@define("linalg.lu_factor_ex(A: Tensor, *, pivot: bool=True, check_errors: bool=False, out=None)")
def lu_factor_ex(A, pivot, check_errors):
    """Returns lu_factor's results, and for each matrix the number of the first pivot that is 0, else 0."""
    factors, pivots = lu_factor(A, pivot)
    info = singular_info(A)
    if check_errors:
        raise_if("linalg.lu_factor_ex", info, "U is singular: an element of its diagonal is zero.")
    return return_types.linalg_lu_factor_ex(factors, pivots, info)


def _lu(A, pivot, get_infos):
    """Returns (LU, pivots), with get_infos also the numbers of the first pivots that are 0."""
    result = lu_factor_ex(A, pivot, False)
    return tuple(result) if get_infos else tuple(result[:2])


define("lu(A: Tensor, pivot: bool=True, get_infos: bool=False, out=None)")(_lu)
define("Tensor.lu(input, pivot: bool=True, get_infos: bool=False)", "m")(_lu)


@define("lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool=True, unpack_pivots: bool=True, *, out=None)")
def lu_unpack(LU_data, LU_pivots, unpack_data, unpack_pivots):
    """Returns P, L and U of lu_factor's results; empty ones of what is not asked for."""
    none = _empty(LU_data.dtype)
    p = _permutation(_order_of(LU_pivots, LU_data.shape[-2]), LU_data.dtype) if unpack_pivots else none
    return return_types.lu_unpack(p, *(_split(LU_data) if unpack_data else (none, none)))


@define("linalg.lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool=True, adjoint: bool=False, out=None)")
def lu_solve(LU, pivots, B, left, adjoint):
    """Returns the X of A X = B, given lu_factor's results; `left=False`: of X A = B, `adjoint`: with A^H in place of A."""
    if not left:
        return conj_transposed(lu_solve(LU, pivots, conj_transposed(B), True, not adjoint))
    p = _permutation(_order_of(pivots, LU.shape[-2]), LU.dtype)
    if adjoint:
        return p @ ops.triangular_solve(LU, ops.triangular_solve(LU, B, upper=True, transpose=2), unit=True, transpose=2)
    return ops.triangular_solve(LU, ops.triangular_solve(LU, p.mT @ B, unit=True), upper=True)


@define("lu_solve(input, LU_data: Tensor, LU_pivots: Tensor, *, out=None)", "fm")
def _lu_solve(input, LU_data, LU_pivots):
    """Returns the X of A X = input, given the factors of A."""
    return lu_solve(LU_data, LU_pivots, input, True, False)


# -------------------------------------------------------------------------------------- QR, Householder

@define('linalg.qr(A: Tensor, mode: str="reduced", *, out=None)')
def qr(A, mode):
    """Returns Q with orthonormal columns and the upper triangular R whose product is A; mode "complete": Q is square, "r": only
    R."""
    check_matrices("linalg.qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'")
    q, r = ops.qr(A, complete=mode == "complete")
    return return_types.linalg_qr(_empty(A.dtype) if mode == "r" else q, r)


@define("qr(input, some: bool=True, *, out=None)", "fm")
def _qr(input, some):
    """Returns linalg.qr's Q and R; complete ones with some=False."""
    return return_types.qr(*qr(input, "reduced" if some else "complete"))


def _reflectors(A, tau):
    """Returns V, (..., M, K), and T of the product of the reflections I - tau v v^H, which is I - V T V^H (Schreiber and Van Loan,
    1989). The vectors v are the columns of A below its diagonal, with 1 on it."""
    v = _split(A[..., :tau.shape[-1]])[0]
    upper = ops.triu(conj_transposed(v) @ v, diagonal=1)
    one = identity_like(upper)
    scale = tau[..., None, :]
    return v, tau[..., None] * ops.triangular_solve(one + upper * scale, one, upper=True, unit=True)


@define("linalg.householder_product(input, tau: Tensor, *, out=None)")
def householder_product(input, tau):
    """Returns the first columns of the product of Householder reflections, as geqrf gives them."""
    check_matrices("linalg.householder_product", input)
    rows, columns = input.shape[-2:]
    if rows < columns or tau.shape[-1] > columns:
        raise RuntimeError("torch.linalg.householder_product: input.shape[-2] must be greater than or equal to input.shape[-1], "
                           "and that to tau.shape[-1]")
    places = [ops.iota(_core.int32, (rows, columns), axis) for axis in (0, 1)]
    one = ops.cast(ops.equal(*places), input.dtype)
    if not tau.shape[-1]:
        return ops.expand(one, input.shape)
    v, t = _reflectors(input, tau)
    return one - v @ (t @ conj_transposed(v)[..., :columns])


@define("orgqr(input, input2: Tensor, *, out=None)", "fm")
def orgqr(input, input2):
    """Returns linalg.householder_product."""
    return householder_product(input, input2)


@define("ormqr(input, input2: Tensor, input3: Tensor, left: bool=True, transpose: bool=False, *, out=None)", "fm")
def ormqr(input, input2, input3, left, transpose):
    """Returns Q input3, or input3 Q, or with Q^H, where Q is the product of all rows of Householder reflections."""
    v, t = _reflectors(input, input2)
    t = conj_transposed(t) if transpose else t
    return input3 - (v @ (t @ (conj_transposed(v) @ input3)) if left else ((input3 @ v) @ t) @ conj_transposed(v))


@define("geqrf(input, *, out=None)", "fm")
def geqrf(input):
    """Returns R, with the vectors of Householder's reflections below its diagonal, and their factors tau: the LU factors of I - Q
    without exchanges of rows (Ballard et al., J. Parallel Distrib. Comput. 85, 2015)."""
    check_matrices("geqrf", input)
    q, r = ops.qr(ops.stop_gradient(input), complete=True)
    k = min(input.shape[-2:])
    places = ops.iota(_core.int64, (q.shape[-1],), 0)

    def eliminate(a, j):
        here = ops.cast(ops.equal(places, j), a.dtype)
        line = ops.sum(a * here, axes=-1)
        row = ops.sum(a * column(here), axes=-2)
        pivot = ops.sum(line * here, axes=-1)
        none = ops.equal(pivot, 0.0)
        line = ops.select(ops.greater(places, j), line, 0.0) / column(ops.select(none, 1.0, pivot))
        return a - column(line) * row[..., None, :], (line, pivot)

    if not k:
        return return_types.geqrf(r, _core.full((*input.shape[:-2], 0), 0, input.dtype))
    vectors, tau = scan(eliminate, identity_like(q) - q, ops.iota(_core.int64, (k,), 0))[1]
    vectors = vectors.moveaxis(0, -1)
    if input.shape[-1] > k:
        vectors = ops.concat([vectors, _core.full((*input.shape[:-1], input.shape[-1] - k), 0, input.dtype)], -1)
    return return_types.geqrf(ops.triu(r) + vectors, tau.moveaxis(0, -1))


# ------------------------------------------------------------------------- singular values, eigenvalues

@define("linalg.svd(A: Tensor, full_matrices: bool=True, *, driver: str=None, out=None)")
def svd(A, full_matrices, driver):
    """Returns U, the singular values S, falling, and V^H, with A = U diag(S) V^H; U and V^H are square if full_matrices. All
    drivers give the same."""
    check_matrices("linalg.svd", A)
    u, s, vh = ops.svd(A, full=full_matrices and not A.requires_grad)
    rows, columns = A.shape[-2:]
    if full_matrices and A.requires_grad and rows != columns:
        # The columns that are not determined have no gradient.
        whole = ops.svd(ops.stop_gradient(A), full=True)
        if rows > columns:
            u = ops.concat([u, whole[0][..., columns:]], -1)
        else:
            vh = ops.concat([vh, whole[2][..., rows:, :]], -2)
    return return_types.linalg_svd(u, s, vh)


@define("svd(input, some: bool=True, compute_uv: bool=True, *, out=None)", "fm")
def _svd(input, some, compute_uv):
    """Returns U, S and V with input = U diag(S) V^H; U and V are square unless some; zeros without compute_uv."""
    check_matrices("svd", input)
    if not compute_uv:
        rows, columns = input.shape[-2:]
        u, v = (_core.full((*input.shape[:-2], n, n), 0, input.dtype) for n in (rows, columns))
        return return_types.svd(u, ops.svdvals(input), v)
    u, s, vh = svd(input, not some, None)
    return return_types.svd(u, s, conj_transposed(vh))


@define("linalg.svdvals(A: Tensor, *, driver: str=None, out=None)")
def svdvals(A, driver):
    """Returns the singular values of matrices, falling."""
    check_matrices("linalg.svdvals", A)
    return ops.svdvals(A)


@define("linalg.eig(input, *, out=None)")
def eig(input):
    """Returns the eigenvalues and eigenvectors of square matrices, complex numbers."""
    check_matrices("linalg.eig", input, True)
    return return_types.linalg_eig(*ops.eig(input))


@define("linalg.eigvals(input, *, out=None)")
def eigvals(input):
    """Returns the eigenvalues of square matrices, complex numbers."""
    check_matrices("linalg.eigvals", input, True)
    return ops.eigvals(input)


def _upper(name, UPLO):
    if UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"{name}: Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return UPLO.upper() == "U"


@define('linalg.eigh(input, UPLO: str="L", *, out=None)')
def eigh(input, UPLO):
    """Returns the eigenvalues, rising, and eigenvectors of symmetric (Hermitian) matrices, of which one triangle is read."""
    check_matrices("linalg.eigh", input, True)
    return return_types.linalg_eigh(*ops.eigh(input, upper=_upper("linalg.eigh", UPLO)))


@define('linalg.eigvalsh(input, UPLO: str="L", *, out=None)')
def eigvalsh(input, UPLO):
    """Returns the eigenvalues, rising, of symmetric (Hermitian) matrices, of which one triangle is read."""
    check_matrices("linalg.eigvalsh", input, True)
    return ops.eigvalsh(input, upper=_upper("linalg.eigvalsh", UPLO))


# --------------------------------------------------------------------------------- approximations of low rank

@define("svd_lowrank(A: Tensor, q: int=6, niter: int=2, M: Tensor=None)")
def svd_lowrank(A, q, niter, M):
    """Returns U, S and V of rank q, nearly those of A - M, by subspace iteration from random vectors (Halko et al., SIAM Review
    53, 2011)."""
    A = A if M is None else A - M
    if A.shape[-2] < A.shape[-1]:
        u, s, v = svd_lowrank(conj_transposed(A), q, niter, None)
        return v, s, u
    span = ops.cast(randn(A.shape[-1], q), A.dtype)
    basis = ops.qr(A @ span)[0]
    for _ in range(niter):
        basis = ops.qr(A @ ops.qr(conj_transposed(A) @ basis)[0])[0]
    u, s, vh = ops.svd(conj_transposed(basis) @ A, full=False)
    return basis @ u, s, conj_transposed(vh)


@define("pca_lowrank(A: Tensor, q: int=None, center: bool=True, niter: int=2)")
def pca_lowrank(A, q, center, niter):
    """Returns U, S and V of svd_lowrank of A with its columns centred: the principal directions are the columns of V."""
    q = min(6, *A.shape[-2:]) if q is None else q
    if not 0 <= q <= min(A.shape[-2:]):
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(A.shape[-2:])}")
    return svd_lowrank(A - ops.mean(A, axes=-2, keepdims=True) if center else A, q, niter, None)


@define("lobpcg(A: Tensor, k: int=None, B: Tensor=None, X: Tensor=None, n: int=None, iK: Tensor=None, niter: int=None, "
        "tol: float=None, largest: bool=None, method: str=None, tracker: any=None, ortho_iparams: any=None, ortho_fparams: any=None, "
        "ortho_bparams: any=None)")
def lobpcg(A, k, B, X, n, iK, niter, tol, largest, *others):
    """Returns the k largest (or smallest) eigenvalues and eigenvectors of A x = e B x, for symmetric A and positive definite B.
    They are exact: all are computed, so that a start, preconditioner, tolerance or method change nothing."""
    check_matrices("lobpcg", A, True)
    k = (1 if X is None else X.shape[-1]) if k is None else k
    if A.shape[-1] < 3 * k:
        raise ValueError(f"LPBPCG algorithm is not applicable when the number of A rows (={A.shape[-1]}) is smaller than 3 x the "
                         f"number of requested eigenpairs (={k})")
    lower = None if B is None else ops.cholesky(B)
    if B is not None:
        A = ops.triangular_solve(lower, conj_transposed(ops.triangular_solve(lower, A)))
    values, vectors = ops.eigh(A)
    if largest is None or largest:
        values, vectors = ops.flip(values, axes=-1), ops.flip(vectors, axes=-1)
    vectors = vectors[..., :k]
    return values[..., :k], vectors if B is None else ops.triangular_solve(lower, vectors, transpose=2)
