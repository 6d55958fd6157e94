"""cotan.torch.linalg and products at the top level: NumPy, identities, and what errors say."""
import itertools
import math

import numpy as np
import pytest

import cotan
import cotan.torch as torch
from cotan import complex64, float32, float64, int32, int64, tensor

RANDOM = np.random.default_rng(0)
REAL = RANDOM.standard_normal((2, 4, 4))
COMPLEX = REAL + 1j * RANDOM.standard_normal((2, 4, 4))
POSITIVE = COMPLEX @ COMPLEX.conj().swapaxes(-1, -2) + np.eye(4)
TALL, WIDE = RANDOM.standard_normal((2, 5, 3)), RANDOM.standard_normal((2, 3, 5))
linalg = torch.linalg


def near(x, expected, tolerance=1e-10):
    assert tuple(x.shape) == np.shape(expected)
    np.testing.assert_allclose(x.detach().numpy(), expected, rtol=tolerance, atol=tolerance)


def slopes(function, *arrays, step=1e-6):
    """Compares the gradient of a weighted sum of the results with differences, in a random direction."""
    leaves = [tensor(x).requires_grad_() for x in arrays]
    random = np.random.default_rng(1)
    moves = [random.standard_normal(np.shape(x)) for x in arrays]

    def total(*operands):
        y = function(*operands)
        weights = tensor(np.random.default_rng(2).standard_normal(tuple(y.shape)))
        return ((torch.real(y) + torch.imag(y) if y.is_complex() else y) * weights).sum()

    grads = cotan.autograd.grad(total(*leaves), leaves)
    along = sum((torch.real(g) * tensor(m)).sum().item() for g, m in zip(grads, moves))
    ends = [total(*(tensor(x + sign * step * m) for x, m in zip(arrays, moves))).item() for sign in (1, -1)]
    assert along == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-6, abs=1e-7)


# ------------------------------------------------------------------------------------ factorisations

@pytest.mark.parametrize("x", [REAL, COMPLEX, TALL, WIDE, REAL[0, :0], np.zeros((3, 3))],
                         ids="real complex tall wide empty zero".split())
def test_factors_multiply_to_the_matrix(x):
    a = tensor(x)
    p, l, u = linalg.lu(a)
    near(p @ l @ u, x)
    factors, pivots = linalg.lu_factor(a)
    assert pivots.dtype == int32 and type(linalg.lu_factor(a)).__name__ == "linalg_lu_factor"
    for part, other in zip(torch.lu_unpack(factors, pivots), (p, l, u)):
        near(part, other.numpy())
    for q, r in (linalg.qr(a), torch.qr(a), linalg.qr(a, "complete")):
        near(q @ r, x)
    near(linalg.qr(a, mode="r").R, linalg.qr(a).R.numpy())
    assert linalg.qr(a, "r").Q.shape == (0,)
    u, s, vh = linalg.svd(a, full_matrices=False)
    near((u * s[..., None, :]) @ vh, x)
    assert linalg.svd(a).U.shape[-1] == x.shape[-2]
    u, s, v = torch.svd(a)
    near((u * s[..., None, :]) @ v.mH, x)
    near(torch.svd(a, compute_uv=False).S, linalg.svdvals(a).numpy())


def test_cholesky_and_what_is_solved_with_it():
    a, b = tensor(POSITIVE), tensor(COMPLEX)
    for upper in (False, True):
        factor = linalg.cholesky(a, upper=upper)
        near(factor.mH @ factor if upper else factor @ factor.mH, POSITIVE)
        near(a @ torch.cholesky_solve(b, factor, upper), COMPLEX)
        near(torch.cholesky_inverse(factor, upper=upper), np.linalg.inv(POSITIVE))
        near(torch.triangular_solve(b, factor, upper=upper).solution, np.linalg.solve(factor.numpy(), COMPLEX))


def test_results_that_say_why_there_is_none():
    good = POSITIVE[0].real
    bad = good.copy()
    bad[2, 2] = -1
    factor, info = linalg.cholesky_ex(tensor(np.stack([good, bad])))
    assert info.tolist() == [0, 3] and info.dtype == int32
    near(factor[0], np.linalg.cholesky(good))
    assert linalg.cholesky_ex(tensor(bad), upper=True).info.item() == 3
    singular = np.array([[1.0, 2], [2, 4]])
    both = tensor(np.stack([singular, np.eye(2)]))
    inverse, info = linalg.inv_ex(both)
    assert info.tolist() == [2, 0] and inverse[1].tolist() == [[1, 0], [0, 1]]
    assert linalg.solve_ex(both, tensor(np.ones((2, 2, 1)))).info.tolist() == [2, 0]
    assert linalg.lu_factor_ex(both).info.tolist() == [2, 0] and torch.lu(both, get_infos=True)[2].tolist() == [2, 0]
    assert linalg.cond(both, 1).tolist() == [math.inf, 1.0]
    for name, arguments in (("inv_ex", [both]), ("solve_ex", [both, both]), ("lu_factor_ex", [both]), ("cholesky_ex", [tensor(bad)])):
        with pytest.raises(linalg.LinAlgError, match=f"linalg.{name}: "):
            getattr(linalg, name)(*arguments, check_errors=True)
    with pytest.raises(RuntimeError, match="singular"):
        linalg.inv(both).tolist()


@pytest.mark.parametrize("left, adjoint", itertools.product((True, False), repeat=2))
def test_systems_with_lu_factors(left, adjoint):
    factors, pivots = linalg.lu_factor(tensor(COMPLEX))
    a = COMPLEX.conj().swapaxes(-1, -2) if adjoint else COMPLEX
    x = linalg.lu_solve(factors, pivots, tensor(POSITIVE), left=left, adjoint=adjoint).numpy()
    np.testing.assert_allclose(a @ x if left else x @ a, POSITIVE, atol=1e-10)
    near(torch.lu_solve(tensor(POSITIVE), factors, pivots), np.linalg.solve(COMPLEX, POSITIVE))


@pytest.mark.parametrize("x", [REAL, COMPLEX, TALL, WIDE], ids="real complex tall wide".split())
def test_householder_reflections(x):
    a, tau = torch.geqrf(tensor(x))
    k = min(x.shape[-2:])
    q, r = linalg.qr(tensor(x))
    near(a.triu()[..., :k, :], r.numpy())
    near(linalg.householder_product(a[..., :k], tau), q.numpy())
    other = RANDOM.standard_normal((2, x.shape[-2], 2)).astype(x.dtype)
    whole = linalg.qr(tensor(x), "complete").Q.numpy()
    near(torch.ormqr(a[..., :k], tau, tensor(other)), whole @ other)
    near(torch.ormqr(a[..., :k], tau, tensor(other).mH, left=False, transpose=True), (whole @ other).conj().swapaxes(-1, -2))


def test_eigenvalues_and_approximations_of_low_rank():
    a = tensor(POSITIVE)
    values, vectors = linalg.eigh(a)
    near(a @ vectors, (vectors * values[..., None, :]).numpy())
    near(linalg.eigvalsh(a, UPLO="U"), np.linalg.eigvalsh(POSITIVE))
    values, vectors = linalg.eig(tensor(REAL))
    near(tensor(REAL + 0j) @ vectors, (vectors * values[..., None, :]).numpy())
    near(linalg.eigvals(tensor(REAL)), values.numpy())
    with pytest.raises(RuntimeError, match="Expected UPLO argument to be 'L' or 'U', but got X"):
        linalg.eigh(a, "X")
    low = TALL[0] @ WIDE[0]  # (5, 5) of rank 3
    for u, s, v in (torch.svd_lowrank(tensor(low), q=4), torch.svd_lowrank(tensor(low[:4]), q=3)):
        near((u * s) @ v.mT, low[:u.shape[0]])
    u, s, v = torch.pca_lowrank(tensor(low), q=3)
    near((u * s) @ v.mT, low - low.mean(0))
    symmetric = low @ low.T
    value, vector = torch.lobpcg(tensor(symmetric), k=1, B=tensor(np.eye(5) * 2))
    near(value, np.linalg.eigvalsh(symmetric)[-1:] / 2)
    near(tensor(symmetric) @ vector, (2 * value * vector).numpy())


# --------------------------------------------------------------------------- systems, functions, norms

def test_systems_of_equations():
    a, b = tensor(REAL), tensor(TALL[:, :4])
    near(linalg.solve(a, b), np.linalg.solve(REAL, TALL[:, :4]))
    near(linalg.solve(a, b[..., 0]), np.linalg.solve(REAL, TALL[:, :4, :1])[..., 0])
    near(linalg.solve(a, b.mT, left=False) @ a, TALL[:, :4].swapaxes(-1, -2))
    near(a.triu() @ linalg.solve_triangular(a.triu(), b, upper=True), TALL[:, :4])
    right = REAL[1, :2, :2]
    near(linalg.tensorsolve(tensor(REAL[0].reshape(2, 2, 4)), tensor(right)), np.linalg.solve(REAL[0], right.ravel()))
    near(linalg.tensorinv(tensor(REAL[0].reshape(4, 2, 2)), 1), np.linalg.tensorinv(REAL[0].reshape(4, 2, 2), 1))
    with pytest.raises(RuntimeError, match="Expected A and B to have the same dtype"):
        linalg.solve(a, b.float())


def test_least_squares():
    a, b = tensor(TALL), tensor(RANDOM.standard_normal((2, 5, 2)))
    solution = np.linalg.pinv(TALL) @ b.numpy()
    rest = ((TALL @ solution - b.numpy()) ** 2).sum(-2)
    for driver, residuals, rank, values in ((None, 0, 2, 0), ("gels", 2, 0, 0), ("gelsd", 2, 2, 2), ("gelsy", 0, 2, 0)):
        found = linalg.lstsq(a, b, driver=driver)
        near(found.solution, solution)
        assert [len(part) for part in found[1:]] == [residuals, rank, values]
        if residuals:
            near(found.residuals, rest)
    near(linalg.pinv(a), np.linalg.pinv(TALL))
    near(torch.pinverse(a), np.linalg.pinv(TALL))
    near(linalg.pinv(tensor(POSITIVE), hermitian=True), np.linalg.inv(POSITIVE))
    cut = np.diag([1.0, 0.5, 1e-3])
    near(linalg.pinv(tensor(cut), atol=0.01), np.diag([1.0, 2, 0]))
    near(linalg.pinv(tensor(cut), rtol=tensor(0.6)), np.diag([1.0, 0, 0]))
    assert linalg.matrix_rank(tensor(cut), atol=0.01).item() == 2
    assert linalg.matrix_rank(tensor(cut), tol=0.6).item() == 1 and linalg.matrix_rank(tensor(-cut), hermitian=True).item() == 3


def test_functions_of_matrices():
    values, vectors = np.linalg.eig(COMPLEX)
    for scale in (1e-3, 1.0, 30.0):
        expected = (vectors * np.exp(scale * values)[..., None, :]) @ np.linalg.inv(vectors)
        y = torch.matrix_exp(tensor(scale * COMPLEX)).numpy()
        np.testing.assert_allclose(y, expected, atol=1e-11 * abs(expected).max())
    near(linalg.matrix_exp(tensor([[0.0, 1], [0, 0]])), [[1, 1], [0, 1]])
    assert math.isnan(torch.matrix_exp(tensor([[math.inf]])).item())
    near(torch.matrix_power(tensor(REAL), -2), np.linalg.matrix_power(REAL, -2))
    sign, logarithm = torch.slogdet(tensor(REAL))
    near(sign * logarithm.exp(), np.linalg.det(REAL))
    near(torch.det(tensor(COMPLEX)), np.linalg.det(COMPLEX))
    assert math.isnan(torch.logdet(tensor([[-1.0]])).item()) and torch.logdet(tensor([[math.e]])).item() == pytest.approx(1)
    near(tensor(REAL).inverse(), np.linalg.inv(REAL))


@pytest.mark.parametrize("keepdim", [False, True])
def test_norms(keepdim):
    x, options = tensor(REAL), {"keepdim": keepdim}
    for order in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
        near(linalg.matrix_norm(x, order, **options), np.linalg.norm(REAL, order, (1, 2), keepdims=keepdim))
        near(linalg.norm(x, order, (0, 1), **options), np.linalg.norm(REAL, order, (0, 1), keepdims=keepdim))
    for order in (0, 0.5, 1, 2, 3, math.inf, -math.inf):
        near(linalg.vector_norm(x, order, 1, **options), np.linalg.norm(REAL, order, 1, keepdims=keepdim))
        near(torch.norm(x, order, 1, keepdim), np.linalg.norm(REAL, order, 1, keepdims=keepdim))
        near(x.norm(p=order), np.linalg.norm(REAL.ravel(), order))
    for order in (None, 1, 2, "fro", "nuc", -math.inf):
        near(linalg.cond(x, order), np.linalg.cond(REAL, order), 1e-9)
    near(linalg.vector_norm(tensor(COMPLEX)), np.linalg.norm(COMPLEX.ravel()))
    assert linalg.norm(tensor([[3, 4]], dtype=float32), dtype=float64).dtype == float64
    with pytest.raises(RuntimeError, match="Expected a floating point or complex tensor as input. Got int64"):
        linalg.norm(tensor([1, 2]))
    with pytest.raises(RuntimeError, match="cannot compute the inf norm on an empty tensor"):
        linalg.vector_norm(cotan.zeros(0), math.inf)


# ---------------------------------------------------------------------------------- products, distances

def test_products():
    a, b = RANDOM.integers(-5, 5, (2, 3, 4)), RANDOM.integers(-5, 5, (2, 4, 2))
    x, y = tensor(a), tensor(b)
    near(torch.bmm(x, y), a @ b), near(torch.matmul(x, y[0, :, 0]), a @ b[0, :, 0]), near(torch.mm(x[0], y[0]), a[0] @ b[0])
    near(torch.mv(x[0], y[0, :, 0]), a[0] @ b[0, :, 0]), near(torch.dot(x[0, 0], x[0, 1]), a[0, 0] @ a[0, 1])
    near(torch.vdot(tensor(COMPLEX[0, 0]), tensor(COMPLEX[0, 1])), np.vdot(COMPLEX[0, 0], COMPLEX[0, 1]))
    near(torch.inner(x, x[0]), np.inner(a, a[0])), near(torch.outer(x[0, 0], y[0, :, 0]), np.outer(a[0, 0], b[0, :, 0]))
    near(torch.kron(x[0], y), np.kron(a[0], b)), near(torch.tensordot(x, y, ([2], [1])), np.tensordot(a, b, (2, 1)))
    near(torch.chain_matmul(x[0], y[0], x[0, :2]), a[0] @ b[0] @ a[0, :2])
    near(linalg.multi_dot([tensor(TALL[0]), tensor(WIDE[0])]), TALL[0] @ WIDE[0])
    near(torch.cross(tensor(TALL), tensor(TALL[:, ::-1].copy())), np.cross(TALL, TALL[:, ::-1]))
    near(linalg.vecdot(tensor(COMPLEX), tensor(COMPLEX), dim=1), (COMPLEX.conj() * COMPLEX).sum(1))
    assert torch.trace(x[0, :, :3]).item() == np.trace(a[0, :, :3]) and torch.trace(tensor([[True]])).dtype == int64
    near(linalg.diagonal(x, offset=1, dim1=0, dim2=2), np.diagonal(a, 1, 0, 2))
    near(torch.vander(tensor([1, 2, 3]), 4), np.vander([1, 2, 3], 4)), near(linalg.vander(tensor([[2.0]]), N=3), [[[1, 2, 4]]])
    mask = tensor([[True, False], [True, True]])
    assert torch.mm(mask, mask).tolist() == [[True, False], [True, True]]
    with pytest.raises(RuntimeError, match="mm: mat2 must be a 2-D tensor, it has 3 axes"):
        torch.mm(x[0], y)
    with pytest.raises(RuntimeError, match="must have the same dtype|to have the same dtype"):
        torch.matmul(x, y.float())


def test_einsum_in_both_formats():
    x, y = tensor(TALL), tensor(WIDE)
    expected = np.einsum("bij,bjk->bik", TALL, WIDE)
    near(torch.einsum("bij,bjk->bik", x, y), expected)
    near(torch.einsum("bij,bjk->bik", [x, y]), expected)
    near(torch.einsum(x, [0, 1, 2], y, [0, 2, 3], [0, 1, 3]), expected)
    near(torch.einsum(x, [..., 1, 2], y, [..., 2, 3]), expected)
    near(torch.einsum(x[0, :3], [0, 0]), np.trace(TALL[0, :3]))
    near(torch.einsum("...ij->j", x), TALL.sum((0, 1)))


def test_sums_of_a_tensor_and_a_product():
    c, a, b = RANDOM.standard_normal((3, 2)), TALL[0, :3], TALL[1, :3, :2]
    near(torch.addmm(tensor(c), tensor(a), tensor(b), beta=2, alpha=3), 2 * c + 3 * a @ b)
    near(torch.addmv(tensor(c[:, 0]), tensor(a), tensor(b[:, 0])), c[:, 0] + a @ b[:, 0])
    near(torch.addr(tensor(c), tensor(a[0]), tensor(b[0]), alpha=2), c + 2 * np.outer(a[0], b[0]))
    near(torch.baddbmm(tensor(c[:, :1]), tensor(WIDE), tensor(TALL), beta=2), 2 * c[:, :1] + WIDE @ TALL)
    ignored = tensor(np.full((3, 2), math.nan))
    near(ignored.addmm(tensor(a), tensor(b), beta=0), a @ b)
    near(torch.addbmm(tensor(np.zeros((5, 5))), tensor(TALL), tensor(WIDE)), (TALL @ WIDE).sum(0))
    assert torch.addr(tensor([[True, False]]), tensor([False]), tensor([True, True])).tolist() == [[True, False]]
    assert torch.addmm(tensor([[1]]), tensor([[2]]), tensor([[3]]), alpha=2).item() == 13


def test_distances_and_covariances():
    x, y = TALL[0], TALL[1]
    for p in (0.5, 1, 2, math.inf):
        near(torch.cdist(tensor(x), tensor(y), p=p), np.array([[np.linalg.norm(a - b, p) for b in y] for a in x]))
        near(torch.dist(tensor(x), tensor(y), p), np.linalg.norm((x - y).ravel(), p))
    y = torch.renorm(tensor(x), 2, 0, 1.0).numpy()
    norms = np.linalg.norm(x, axis=1)
    near(tensor(np.linalg.norm(y, axis=1)), np.minimum(norms, 1), 1e-6)
    weights = tensor([1, 2, 3]), tensor([0.5, 0.25, 1.0], dtype=float64)
    for correction in (0, 1):
        near(torch.cov(tensor(x), correction=correction), np.cov(x, ddof=correction))
        near(torch.cov(tensor(x), correction=correction, fweights=weights[0], aweights=weights[1]),
             np.cov(x, ddof=correction, fweights=[1, 2, 3], aweights=[0.5, 0.25, 1.0]))
    near(torch.corrcoef(tensor(x)), np.corrcoef(x)), near(torch.corrcoef(tensor(COMPLEX[0])), np.corrcoef(COMPLEX[0]))
    assert torch.cov(tensor([1, 2, 3])).item() == 1.0 and torch.corrcoef(tensor([1.0, 2.0])).item() == 1.0


# --------------------------------------------------------------------------------------------- gradients

@pytest.mark.parametrize("name, function, arrays", [
    ("lu tall", lambda a: linalg.lu(a)[1].sum() + linalg.lu(a)[2].sum(), [TALL]),
    ("lu wide", lambda a: linalg.lu_factor(a)[0], [WIDE]),
    ("lu_solve", lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b, adjoint=True), [REAL, TALL[:, :4]]),
    ("full svd", lambda a: linalg.svd(a).U[..., :3].abs() * linalg.svd(a).S[..., None, :], [TALL]),
    ("full svd wide", lambda a: linalg.svd(a).Vh[..., :3, :].abs(), [WIDE]),
    ("householder", lambda a, t: linalg.householder_product(a, t), [TALL, TALL[:, 0]]),
    ("ormqr", lambda a, t, c: torch.ormqr(a, t, c, True, True), [TALL, TALL[:, 0], TALL]),
    ("matrix_exp", torch.matrix_exp, [REAL]),
    ("pinv", lambda a: linalg.pinv(a, atol=1e-3), [TALL]),
    ("pinv hermitian", lambda a: linalg.pinv(a + a.mT, hermitian=True), [REAL]),
    ("lstsq", lambda a, b: linalg.lstsq(a, b).solution, [TALL, TALL]),
    ("cholesky_ex", lambda a: linalg.cholesky_ex(a @ a.mT).L, [REAL]),
    ("inv_ex", lambda a: linalg.inv_ex(a).inverse, [REAL]),
    ("cond", lambda a: linalg.cond(a, 1), [REAL]),
    ("cdist", lambda a, b: torch.cdist(a, b), [TALL[0], TALL[1]]),
    ("cov", torch.cov, [TALL[0]]),
    ("einsum", lambda a, b: torch.einsum("bij,bjk->ik", a, b), [TALL, WIDE]),
    ("lobpcg", lambda a: torch.lobpcg(a @ a.mT)[0], [TALL[:, :4]]),
], ids=lambda value: value if isinstance(value, str) else "")
def test_gradients_are_slopes(name, function, arrays):
    slopes(function, *arrays)


def test_second_gradient_of_the_exponential_and_zero_distances():
    x = tensor([[0.25]], dtype=float64).requires_grad_()
    first, = cotan.autograd.grad(torch.matrix_exp(x).sum(), (x,), create_graph=True)
    second, = cotan.autograd.grad(first.sum(), (x,))
    assert second.item() == pytest.approx(math.exp(0.25))
    same = tensor(np.ones((2, 3))).requires_grad_()
    torch.cdist(same, same).sum().backward()
    assert same.grad.tolist() == [[0.0] * 3] * 2


def test_results_go_to_out_and_have_pytorchs_names():
    out = [cotan.zeros(2, 2), cotan.zeros(2), cotan.zeros(2, 2)]
    found = linalg.svd(tensor([[2.0, 0], [0, 1]]), out=tuple(out))
    assert out[1].tolist() == [2, 1] and found.S is out[1] and repr(found).startswith("torch.return_types.linalg_svd(")
    assert torch.linalg.eigvals(tensor([[1.0]])).dtype == complex64
    with pytest.raises(RuntimeError, match="linalg.det: A must be batches of square matrices, but they are 5 by 3 matrices"):
        linalg.det(tensor(TALL))
    with pytest.raises(RuntimeError, match="must have at least 2 dimensions"):
        linalg.svd(tensor([1.0]))
