"""Linear algebra: values against NumPy and SciPy, derivatives and batches against JAX (f64 to 1e-8); errors, NaN, a library
that is not there. Under COTAN_TEST_ALL every op's derivatives are tried, of complex numbers and batches too."""
import ctypes
import zlib

import numpy as np
import pytest
import scipy.linalg
from op_cases import Failure
from op_transforms import ALL, DEVICES, SEED
from programs import run_jax, run_programs

NARROW = {"f8": "f4", "c16": "c8"}
DTYPES = ["f8", "f4", "c16", "c8"]
LEADS = [(), (3,), (2, 3), (0,)]


def rng_of(*what):
    return np.random.default_rng([SEED, zlib.crc32(repr(what).encode())])


def numbers(rng, shape, dtype):
    x = rng.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.normal(size=shape)
    return x.astype(dtype)


def adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


def square(rng, lead, n, dtype):
    """Away from singular ones."""
    return numbers(rng, (*lead, n, n), dtype) + (3 * np.eye(n)).astype(dtype)


def positive(rng, lead, n, dtype):
    x = numbers(rng, (*lead, n, n), dtype)
    return x @ adjoint(x) + np.eye(n, dtype=dtype)


def tolerance(dtype):
    return 1e-8 if np.dtype(dtype) in (np.float64, np.complex128) else 2e-4


def near(got, want, dtype, what=""):
    assert got.shape == want.shape and got.dtype == want.dtype, (what, got.shape, got.dtype, want.shape, want.dtype)
    off = np.abs(got - want) / np.maximum(1, np.abs(want))
    assert np.isfinite(got).all() and off.max(initial=0) <= tolerance(dtype), (what, off.max(initial=0))


def values(programs, device=DEVICES[-1], **env):
    """The results of (f, operands), all in one process."""
    got = run_programs(programs, device, **env)
    for (_, operands), result in zip(programs, got):
        assert not isinstance(result, Failure), (operands[0].shape, result)
    return got


def each(f, *xs):
    """f of each matrix of batches of one lead."""
    lead = xs[0].shape[:-2]
    results = [f(*(x.reshape(-1, *x.shape[-2:])[i] for x in xs)) for i in range(int(np.prod(lead)))]
    return np.stack(results).reshape(*lead, *np.shape(results[0])) if results else None


# ------------------------------------------------------------------------------------------- values

@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_solving(device, dtype):
    rng = rng_of("solving", dtype)
    cases, wants = [], []
    for lead in LEADS:
        for n in (1, 5, 40) if lead == () else (4,):
            x, b = square(rng, lead, n, dtype), numbers(rng, (*lead, n, 3), dtype)
            p = positive(rng, lead, n, dtype)
            cases += [(lambda o, x, b: (o.solve(x, b), o.inv(x), o.det(x), *o.slogdet(x)), [x, b]),
                      (lambda o, p: (o.cholesky(p), o.cholesky(p, upper=True)), [p])]
            sign, log = np.linalg.slogdet(x)
            wants.append([np.linalg.solve(x, b), np.linalg.inv(x), np.linalg.det(x), sign, log])
            wants.append([np.linalg.cholesky(p), adjoint(np.linalg.cholesky(p))])
    for (_, operands), got, want in zip(cases, values(cases, device), wants):
        for g, w in zip(got, want):
            scale = np.maximum(1, np.abs(w).max(initial=0))  # of determinants, which are large
            near(g / scale, (w / scale).astype(g.dtype), dtype, operands[0].shape)


@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_triangular_solve(dtype):
    rng = rng_of("triangular", dtype)
    cases, wants = [], []
    for upper in (False, True):
        for transpose in (0, 1, 2):
            for unit in (False, True):
                a, b = square(rng, (), 5, dtype), numbers(rng, (5, 2), dtype)
                cases.append((lambda o, a, b, k=dict(upper=upper, transpose=transpose, unit=unit): o.triangular_solve(a, b, **k), [a, b]))
                wants.append(scipy.linalg.solve_triangular(a, b, transpose, not upper, unit_diagonal=unit))
    for got, want in zip(values(cases), wants):
        near(got[0], want, dtype)


def test_axes_in_front_broadcast():
    rng = rng_of("broadcast")
    a, b = square(rng, (2, 1), 3, "f8"), numbers(rng, (4, 3, 2), "f8")
    low = np.tril(a)
    got = values([(lambda o, a, b: (o.solve(a, b), o.triangular_solve(a, b)), [a, b])])[0]
    near(got[0], np.linalg.solve(a, b), "f8")
    near(got[1], np.linalg.solve(low, b), "f8")


@pytest.mark.parametrize("dtype", DTYPES)
def test_lu(dtype):
    rng = rng_of("lu", dtype)
    shapes = [(4, 4), (5, 3), (3, 5), (2, 4, 4), (1, 1), (0, 0), (3, 0)]
    cases = [(lambda o, x: o.lu(x), [numbers(rng, s, dtype)]) for s in shapes]
    for (_, (x,)), (factors, pivots, order) in zip(cases, values(cases)):
        m, n = x.shape[-2:]
        k = min(m, n)
        l = np.tril(factors[..., :k], -1) + np.eye(m, k, dtype=dtype)
        u = np.triu(factors[..., :k, :])
        near(l @ u, np.take_along_axis(x, order[..., None].astype(np.int64), -2), dtype)
        if x.ndim == 2 and k:
            want, piv = scipy.linalg.lu_factor(x)
            assert (piv == pivots).all() and np.allclose(want, factors, atol=1e-4)


SHAPES = [(4, 4), (6, 3), (3, 6), (2, 5, 3), (2, 3, 4, 4), (1, 1), (0, 0), (3, 0), (0, 3), (0, 2, 2), (60, 40)]


def unitary(x, dtype, what):
    near(adjoint(x) @ x, np.broadcast_to(np.eye(x.shape[-1], dtype=dtype), (*x.shape[:-2], x.shape[-1], x.shape[-1])), dtype, what)


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_qr(dtype, complete):
    rng = rng_of("qr", dtype, complete)
    cases = [(lambda o, x: o.qr(x, complete=complete), [numbers(rng, s, dtype)]) for s in SHAPES]
    for (_, (x,)), (q, r) in zip(cases, values(cases)):
        m, n = x.shape[-2:]
        k = m if complete else min(m, n)
        assert q.shape == (*x.shape[:-2], m, k) and r.shape == (*x.shape[:-2], k, n)
        near(q @ r, x, dtype, x.shape)
        unitary(q, dtype, x.shape)
        assert (np.tril(r, -1) == 0).all()
        if x.ndim == 2 and x.size:  # SciPy calls the same functions
            want = scipy.linalg.qr(x, mode="full" if complete else "economic")
            near(q, want[0], dtype)
            near(r, want[1], dtype)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_svd(dtype, full):
    rng = rng_of("svd", dtype, full)
    cases = [(lambda o, x: (*o.svd(x, full=full), o.svdvals(x)), [numbers(rng, s, dtype)]) for s in SHAPES]
    for (_, (x,)), (u, s, vh, alone) in zip(cases, values(cases)):
        m, n = x.shape[-2:]
        k = min(m, n)
        assert u.shape == (*x.shape[:-2], m, m if full else k) and vh.shape == (*x.shape[:-2], n if full else k, n)
        near((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], x, dtype, x.shape)
        unitary(u, dtype, x.shape)
        unitary(adjoint(vh), dtype, x.shape)
        if x.size:
            want = np.linalg.svd(x, compute_uv=False)
            near(s, want, dtype)
            near(alone, want, dtype)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_eigh(dtype, upper):
    """Of the other triangle nothing is read."""
    rng = rng_of("eigh", dtype, upper)
    xs = [numbers(rng, s, dtype) for s in SHAPES if s[-1] == s[-2]]
    cases = [(lambda o, x: (*o.eigh(x, upper=upper), o.eigvalsh(x, upper=upper)), [x]) for x in xs]
    for x, (w, v, alone) in zip(xs, values(cases)):
        part = np.triu(x, 1) if upper else np.tril(x, -1)
        whole = part + adjoint(part) + np.eye(x.shape[-1], dtype=dtype) * np.real(x)
        near(whole @ v, w[..., None, :] * v, dtype)
        unitary(v, dtype, x.shape)
        if x.size:
            want = np.linalg.eigvalsh(x, "U" if upper else "L")
            near(w, want, dtype)
            near(alone, want, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_eig(dtype):
    rng = rng_of("eig", dtype)
    xs = [numbers(rng, s, dtype) for s in SHAPES if s[-1] == s[-2]] + [np.array([[0, 1], [-1, 0]], dtype)]
    cases = [(lambda o, x: (*o.eig(x), o.eigvals(x)), [x]) for x in xs]
    for x, (w, v, alone) in zip(xs, values(cases)):
        wide = np.result_type(dtype, np.complex64)
        near(x @ v, w[..., None, :] * v, wide)
        if x.size:
            near(np.linalg.norm(v, axis=-2), np.ones(w.shape, v.real.dtype), dtype)
            near(np.sort_complex(w), np.sort_complex(np.linalg.eigvals(x).astype(wide)), wide)
            near(np.sort_complex(alone), np.sort_complex(w), wide)


def low_rank(rng, m, n, k, dtype):
    return numbers(rng, (m, k), dtype) @ numbers(rng, (k, n), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_least_squares(dtype):
    rng = rng_of("least squares", dtype)
    xs = [numbers(rng, s, dtype) for s in ((5, 3), (3, 5), (4, 4), (2, 5, 3), (0, 3), (3, 0))] + [low_rank(rng, 6, 5, 2, dtype), np.zeros((3, 3), dtype)]
    eps = np.finfo(dtype).eps
    for x, (p, rank) in zip(xs, values([(lambda o, x: (o.pinv(x), o.matrix_rank(x)), [x]) for x in xs])):
        near(p, np.linalg.pinv(x, rcond=max(x.shape[-2:]) * eps).astype(dtype), dtype, x.shape)
        assert rank.dtype == np.int64 and (rank == (np.linalg.matrix_rank(x) if x.size else 0)).all()
    for x in xs[:3] + xs[6:7]:
        b = numbers(rng, (x.shape[0], 2), dtype)
        got, few = values([(lambda o, x, b: (o.lstsq(x, b), o.pinv(x, rtol=0.5)), [x, b])])[0]
        near(got, np.linalg.lstsq(x, b, rcond=max(x.shape) * eps)[0], dtype)
        near(few, np.linalg.pinv(x, rcond=0.5), dtype)


ORDERS = [1, -1, 2, -2, np.inf, -np.inf]


@pytest.mark.parametrize("dtype", DTYPES)
def test_norms(dtype):
    rng = rng_of("norms", dtype)
    x, y, v = square(rng, (2,), 4, dtype), numbers(rng, (3, 5), dtype), numbers(rng, (3, 4, 2), dtype)
    v[0, 0] = 0
    cases, wants = [], []

    def case(f, x, want):
        cases.append((f, [x]))
        wants.append(np.asarray(want))
    for ord in ORDERS:
        case(lambda o, x, ord=ord: o.matrix_norm(x, ord=ord), x, np.linalg.norm(x, ord, (-2, -1)))
        case(lambda o, x, ord=ord: o.matrix_norm(x, ord=ord, keepdims=True), y, np.linalg.norm(y, ord, (-2, -1), keepdims=True))
        case(lambda o, x, ord=ord: o.matrix_cond(x, ord=ord), x, np.linalg.cond(x, ord))
    case(lambda o, x: o.matrix_cond(x), y, np.linalg.cond(y))
    case(lambda o, x: o.matrix_norm(x), x, np.linalg.norm(x, "fro", (-2, -1)))
    case(lambda o, x: o.matrix_norm(x, nuclear=True), x, np.linalg.norm(x, "nuc", (-2, -1)))
    for ord in (*ORDERS, 0, 3, 0.5, -1.5):
        case(lambda o, x, ord=ord: o.vector_norm(x, ord=ord), v[1], np.linalg.norm(v[1].ravel(), ord))
        case(lambda o, x, ord=ord: o.vector_norm(x, axes=[1], ord=ord, keepdims=True), v[1:], np.linalg.norm(v[1:], ord, 1, keepdims=True))
    case(lambda o, x: o.vector_norm(x, axes=[0, 2]), v, np.sqrt((np.abs(v) ** 2).sum((0, 2))))
    case(lambda o, x: o.vector_norm(x), v[0, 0, 0], 0)
    part = np.dtype(dtype).type(0).real.dtype
    for want, (got,) in zip(wants, values(cases)):
        near(got, np.real(want).astype(part), part)


@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "i4", "u1"])
def test_products_and_parts(dtype):
    """Of integers too, which wrap."""
    rng = rng_of("products", dtype)

    def drawn(*shape):
        return rng.integers(0, 9, shape).astype(dtype) if np.dtype(dtype).kind in "iu" else numbers(rng, shape, dtype)
    a, b, m, n, s = drawn(2, 1, 3), drawn(4, 3), drawn(2, 3), drawn(2, 5), drawn(2, 4, 4)
    cases = [(lambda o, a, b: (o.vecdot(a, b), o.cross(a, b), o.outer(a, b)), [a, b]), (lambda o, m, n: o.kron(m, n), [m, n])]
    wants = [[np.sum(np.conj(a) * b, -1, dtype=dtype), np.cross(a, b), a[..., :, None] * b[..., None, :]], [np.kron(m, n)]]
    for offset in (0, 1, -2, 4, -7):
        for x in (s, n, n.T.copy()):
            cases.append((lambda o, x, k=offset: (o.diagonal(x, offset=k), o.matrix_trace(x, offset=k)), [x]))
            wants.append([np.diagonal(x, offset, -2, -1), np.trace(x, offset, -2, -1, dtype=dtype)])
    for power in (0, 1, 2, 5, 9) if np.dtype(dtype).kind in "fc" else ():
        cases.append((lambda o, x, k=power: o.matrix_power(x, n=k), [s / 3]))
        wants.append([np.linalg.matrix_power(s / 3, power)])
        cases.append((lambda o, x, k=power: o.matrix_power(x, n=-k), [s]))
        wants.append([np.linalg.matrix_power(s, -power)])
    for device in DEVICES:
        for (_, operands), got, want in zip(cases, values(cases, device), wants):
            for g, w in zip(got, want):
                near(g, np.asarray(w, g.dtype), dtype if g.dtype.kind in "fc" else "f8", operands[0].shape)
                assert g.dtype == dtype


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_of_several(dtype):
    rng = rng_of("several", dtype)
    chains = [(3, 40, 2, 50, 1, 7), (5, 5), (2, 3, 4), (10, 1, 10, 1, 10)]
    for sizes in chains:
        xs = [numbers(rng, s, dtype) for s in zip(sizes, sizes[1:])]
        got = values([(lambda o, *x: o.multi_dot(*x), xs), (lambda o, *x: o.grad(lambda *x: o.sum(o.abs(o.multi_dot(*x))))(*x), xs)])
        near(got[0][0], np.linalg.multi_dot(xs) if len(xs) > 1 else xs[0], dtype)
        assert [g.shape for g in got[1]] == [x.shape for x in xs]


# -------------------------------------------------------------------------------------- derivatives

def tall(rng, lead, n, dtype):
    return numbers(rng, (*lead, n + 2, n), dtype)


def wide(rng, lead, n, dtype):
    return numbers(rng, (*lead, n, n + 2), dtype)


def plain(rng, lead, n, dtype):
    """One matrix, whatever the lead."""
    return square(rng, (), n, dtype)


def sizes(o, x):
    size = o.abs(x)
    return o.mul(size, size)


# What is differentiated: a function, its operands by lead and dtype, whose results do not hang on a choice of signs.
SMOOTH = {
    "cholesky": (lambda o, x: o.cholesky(x), [positive]),
    "cholesky upper": (lambda o, x: o.cholesky(x, upper=True), [positive]),
    "triangular_solve": (lambda o, a, b: o.triangular_solve(a, b), [square, numbers]),
    "triangular_solve adjoint": (lambda o, a, b: o.triangular_solve(a, b, upper=True, transpose=2), [square, numbers]),
    "triangular_solve unit": (lambda o, a, b: o.triangular_solve(a, b, transpose=1, unit=True), [square, numbers]),
    "lu": (lambda o, x: o.lu(x)[0], [square]),
    "solve": (lambda o, a, b: o.solve(a, b), [square, numbers]),
    "solve adjoint": (lambda o, a, b: o.solve(a, b, transpose=2), [square, numbers]),
    "inv": (lambda o, x: o.inv(x), [square]),
    "det": (lambda o, x: o.det(x), [square]),
    "slogdet": (lambda o, x: o.slogdet(x)[1], [square]),
    "sign of a determinant": (lambda o, x: o.mul(o.slogdet(x)[0], 2.0), [square]),
}


SMOOTH |= {  # phases of complex vectors are the library's choice, so that sizes are looked at
    "qr": (lambda o, x: o.qr(x)[0], [square]), "r of qr": (lambda o, x: o.qr(x)[1], [square]),
    "qr of tall": (lambda o, x: o.qr(x)[0], [tall]),
    "eigh": (lambda o, x: sizes(o, o.eigh(x)[1]), [positive]), "values of eigh": (lambda o, x: o.eigh(x, upper=True)[0], [positive]),
    "eigvalsh": (lambda o, x: o.eigvalsh(x), [positive]), "svdvals": (lambda o, x: o.svdvals(x), [tall]),
    "u of svd": (lambda o, x: sizes(o, o.svd(x)[0]), [tall]), "v of svd": (lambda o, x: sizes(o, o.svd(x)[2]), [wide]),
    "s of svd": (lambda o, x: o.svd(x)[1], [square]), "svd together": (lambda o, x: o.matmul(*(o.svd(x)[i] for i in (0, 2))), [square]),
    "eigvals": (lambda o, x: sizes(o, o.eigvals(x)), [square]),
    "pinv": (lambda o, x: o.pinv(x), [tall]), "pinv of wide": (lambda o, x: o.pinv(x), [wide]),
    "lstsq": (lambda o, a, b: o.lstsq(a, b), [square, numbers]), "matrix_power": (lambda o, x: o.matrix_power(x, n=-3), [square]),
    "vector_norm": (lambda o, x: o.vector_norm(x, axes=[-1]), [square]), "vector_norm of 3": (lambda o, x: o.vector_norm(x, ord=3.0), [square]),
    "matrix_norm": (lambda o, x: o.matrix_norm(x), [square]), "matrix_norm of 1": (lambda o, x: o.matrix_norm(x, ord=1), [square]),
    "nuclear norm": (lambda o, x: o.matrix_norm(x, nuclear=True), [square]), "matrix_cond": (lambda o, x: o.matrix_cond(x), [square]),
    "cross": (lambda o, x: o.cross(o.slice(x, stop=[3], axes=[-1]), o.slice(x, start=[1], axes=[-1])), [square]),
    "kron": (lambda o, x: o.kron(x, x), [plain]), "trace": (lambda o, x: o.mul(o.matrix_trace(x, offset=1), 3.0), [square]),
    "outer": (lambda o, x: o.vecdot(o.outer(o.slice(x, stop=[1], axes=[0]), o.diagonal(x)), x), [plain]),
}


def operands_of(rng, makers, lead, dtype):
    return [numbers(rng, (*lead, 4, 2), dtype) if make is numbers else make(rng, lead, 4, dtype) for make in makers]


def derivatives(name, lead, dtype):
    """Programs: (what, f, operands)."""
    f, makers = SMOOTH[name]
    rng = rng_of(name, lead, dtype)
    x = operands_of(rng, makers, lead, dtype)
    out = run_jax(f, x)[0]
    t, c, n = [numbers(rng, v.shape, dtype) for v in x], numbers(rng, out.shape, out.dtype), len(x)
    if positive in makers:  # of what is taken for symmetric
        t = [(v + adjoint(v)) / 2 for v in t]

    def loss(o, *x):
        y = o.mul(f(o, *x), c)
        return o.sum(o.real(y) if np.iscomplexobj(out) else y)

    def bent(o, *x):  # a loss with second derivatives of its own
        y = f(o, *x)
        return o.sum(o.real(o.mul(o.mul(y, y), c)) if np.iscomplexobj(out) else o.mul(o.mul(y, y), c))
    return [("value and jvp", lambda o, *x: o.jvp(lambda *x: f(o, *x), x[:n], x[n:]), [*x, *t]),
            ("gradient", lambda o, *x: o.grad(lambda *x: loss(o, *x))(*x), x),
            ("vmap of the gradient", lambda o, *x: o.vmap(o.grad(lambda *x: loss(o, *x)))(*x), [np.stack([v, v + 0.1 * (v @ adjoint(v) if v.shape[-1] == v.shape[-2] else v)]) for v in x]),
            ("second order", lambda o, *x: o.jvp(lambda *x: o.grad(lambda *x: bent(o, *x))(*x), x[:n], x[n:]), [*x, *t])]


@pytest.mark.parametrize("name,lead,dtype", [(name, lead, dtype) for name in SMOOTH for lead in ((), (2,)) for dtype in ("f8", "c16")
                                             if ALL or (lead, dtype) == ((), "f8")])
def test_derivatives(name, lead, dtype):
    programs = derivatives(name, lead, dtype)
    if not ALL:
        programs = programs[1:2]
    if name == "eigvals":  # JAX has no second order of them
        programs = programs[:3]
    for device in DEVICES:
        got = run_programs([(f, operands) for _, f, operands in programs], device)
        for (what, f, operands), result in zip(programs, got):
            assert not isinstance(result, Failure), (what, result)
            want = run_jax(f, operands)
            assert len(result) == len(want)
            for g, w in zip(result, want):
                off = np.abs(g - w) / max(1, np.abs(w).max())
                assert g.shape == w.shape and g.dtype == w.dtype and off.max() < 1e-8, (device, what, off.max(), g, w)


@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_vectors_of_eig(dtype):
    """Of which JAX has no derivative: against differences, of what phases do not change."""
    rng = rng_of("eig", dtype)
    x, t, c, h = square(rng, (2,), 4, dtype), numbers(rng, (2, 4, 4), dtype), rng.normal(size=(2, 4, 4)), 1e-5

    def f(o, x):
        v = o.eig(x)[1]
        return o.add(o.mul(sizes(o, v), c), sizes(o, o.mul(v, o.conj(o.matmul(x, v)))))
    (_, got), (up,), (down,), (gradient,) = values([
        (lambda o, x: o.jvp(lambda x: f(o, x), [x], [t]), [x]), (f, [x + h * t]), (f, [x - h * t]),
        (lambda o, x: o.grad(lambda x: o.sum(f(o, x)))(x), [x])])
    assert np.abs(got - (up - down) / (2 * h)).max() < 1e-7
    assert abs(np.real(gradient * t).sum() - got.sum()) < 1e-9


def test_without_a_derivative():
    """What is not determined by its matrix."""
    x = numbers(rng_of("none"), (5, 3), "f8")
    for name, attrs, text in (("qr", {"complete": True}, "the complete Q of (5, 3) f64 is not determined, and has no derivative"),
                              ("svd", {"full": True}, "the full U and V of (5, 3) f64 are not determined, and have no derivative"),
                              ("lu", {}, "(5, 3) f64 is no square matrix, and has no derivative here")):
        got = run_programs([(lambda o, x: o.grad(lambda x: o.sum(getattr(o, name)(x, **attrs)[0]))(x), [x])])[0]
        assert got == f"program:1: {name}: {text}"


def test_nan_does_not_hang():
    """All results are NaN; of the other matrix of the batch they are right."""
    x = np.stack([np.full((30, 30), 1.0), np.eye(30)])
    x[0, 3, 4], x[0, 5, 5] = np.nan, np.inf
    names = ["qr", "svd", "svdvals", "eigh", "eigvalsh", "eig", "eigvals"]
    for device in DEVICES:
        for result in sum(values([(lambda o, x, n=n: getattr(o, n)(x), [x]) for n in names], device), []):
            assert np.isnan(result[0]).all() and np.isfinite(result[1]).all()


def test_one_matrix_for_a_batch_of_right_sides():
    rng = rng_of("one for all")
    a, b = square(rng, (), 4, "f8"), numbers(rng, (3, 4, 2), "f8")
    for op in ("solve", "triangular_solve"):
        f = lambda o, a, b, op=op: o.vmap(lambda a, b: getattr(o, op)(a, b), (None, 0))(a, b)
        near(values([(f, [a, b])])[0][0], run_jax(f, [a, b])[0], "f8")
        grad = lambda o, a, b: o.grad(lambda a, b: o.sum(o.mul(f(o, a, b), f(o, a, b))))(a, b)
        for g, w in zip(values([(grad, [a, b])])[0], run_jax(grad, [a, b])):
            near(g, w, "f8")


def test_in_a_loop():
    """Where kernels of a loop's body would become one, a call stays a launch."""
    rng = rng_of("loop")
    x, start = positive(rng, (6,), 3, "f8"), np.eye(3)

    def f(o, x, c):
        return o.scan(lambda c, x: (o.mul(o.solve(o.cholesky(x), c), 2.0), o.det(x)), [c], [x])

    def g(o, x, c):
        return o.grad(lambda x, c: o.sum(o.add(f(o, x, c)[0], 1.0)))(x, c)
    for device in DEVICES:
        for got, program in zip(values([(f, [x, start]), (g, [x, start])], device), (f, g)):
            for result, want in zip(got, run_jax(program, [x, start])):
                near(result, want, "f8")


def test_checks_find_nothing():
    """COTAN_CHECK=ref runs a call beside itself; what is fused around it is compared."""
    x = positive(rng_of("check"), (3,), 5, "f4")
    values([(lambda o, x: o.grad(lambda x: o.sum(o.tanh(o.inv(o.add(x, o.exp(o.neg(x)))))))(x), [x])], "cpu", COTAN_CHECK="ref,nan,bounds")


# -------------------------------------------------------------------------------------------- library

def failure(**env):
    got = run_programs([(lambda o, x: o.cholesky(x), [np.eye(2)])], "ref", **env)[0]
    assert isinstance(got, Failure)
    return got


def test_a_library_that_is_not_there():
    assert failure(COTAN_LAPACK="/nonexistent") == ("program:1: cholesky: COTAN_LAPACK: /nonexistent: cannot open shared object file: "
                                                    "No such file or directory")
    assert failure(COTAN_LAPACK="libm.so.6") == "program:1: cholesky: libm.so.6 has no function spotrf_"


def test_the_reference_library_gives_the_same():
    """liblapack.so.3, where the loader finds it: what is asked for by name is what is used."""
    try:
        ctypes.CDLL("liblapack.so.3")
    except OSError:
        return  # OpenBLAS alone is what tests need
    x = positive(rng_of("reference"), (), 5, "f8")
    near(values([(lambda o, x: o.cholesky(x), [x])], COTAN_LAPACK="liblapack.so.3")[0][0], np.linalg.cholesky(x), "f8")


@pytest.mark.parametrize("threads", ["1", "4"])
def test_bits_do_not_depend_on_threads_or_the_batch(threads):
    rng = rng_of("bits")
    x = square(rng, (40,), 24, "f4")
    both = values([(lambda o, x: (o.inv(x), o.det(x), o.cholesky(o.matmul(x, o.permute(x, axes=[0, 2, 1])))), [x]),
                   (lambda o, x: (o.inv(x), o.det(x), o.cholesky(o.matmul(x, o.permute(x, axes=[0, 2, 1])))), [x[7:8]])],
                  "cpu", COTAN_THREADS=threads)
    alone = values([(lambda o, x: (o.inv(x), o.det(x), o.cholesky(o.matmul(x, o.permute(x, axes=[0, 2, 1])))), [x])], "cpu", COTAN_FUSE="0",
                   COTAN_THREADS="2")[0]
    for whole, one, other in zip(*both, alone):
        assert whole[7:8].tobytes() == one.tobytes() and whole.tobytes() == other.tobytes()
