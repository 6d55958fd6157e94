"""ct_einsum against NumPy: values of floats, integers and complex numbers, on both devices, fused and not; derivatives and batches against JAX."""
import jax
import numpy as np
import pytest
from op_cases import EXPANDED, REVERSED, Failure, Operand, dyn
from op_transforms import DEVICES, SEED, check
from programs import run_programs

SIZES = dict(zip("abcdefghijklmnopqrstuvwxyzABXYZ", [2, 3, 4, 2, 3, 2, 3, 2, 5, 7, 13, 4, 3, 5, 2, 3, 2, 3, 5, 2, 3, 2, 3, 4, 3, 2, 3, 4, 2, 3, 5]))
# Letters have the sizes above; an operand's ellipsis those behind its colon.
EXPRESSIONS = """
ij->ij ij->ji ij ji i-> ->  ij->i ij->j ij-> ijk->ki ijk->k kji
ii ii->i ii-> iij->j iij->ij iji->ij iii->i iiij->ji ijij->ij ijji->ij
i,i i,i->i i,j i,j->ji i,->i ,->  ,i
ij,jk ij,jk->ik ij,jk->ki ij,jk->k ij,jk-> ij,kj->ik ji,jk->ik ij,ij ij,ij->ij ij,ij->i ij,ij->j ij,ji ij,ji->i
ij,j ij,j->ij i,ij j,ij->ij jk,ij->ik
bij,bjk->bik bij,bjk bij,bjk->ibk bij,jk->bik ij,bjk->bik bij,bkj->bik bij,bij->b bij,bj->bi bi,bij->bj bi,bi->b bi,bj->bij
bhqd,bhkd->bhqk bqhd,bkhd->bhqk bhqk,bkhd->bqhd bthd,hdm->btm btm,mhd->bthd btm,mhd->bhtd
ijkl,lkm->ijm ijkl,klji->  ijkl,likj->ki aebc,bdca->ed abc,cad,->bd
iij,jk->ik ii,ii->i ii,jj-> iji,jk->ki ik,kk->i
ij,jk,kl ij,jk,kl->il ij,jk,kl->li i,j,k->kji ij,ij,ij->ij ij,jk,ki ij,jk,ik->i ab,bc,cd,de->ae a,ab,b,c->c ij,i,j->ij ijk,il,jm,kn->lmn
Ba,aA BA,A->B Zz zZ,ZY
""".split()
DOTTED = [("...i->...", [(2, 3), (5,)]), ("i...->...", [(2, 3)]), ("...ij->...ji", [(2,)]), ("i...j->j...i", [(3, 2)]), ("...", [(2, 3)]),
          ("...ij,...jk->...ik", [(2,), (2,)]), ("...ij,...jk", [(2, 3), (3,)]), ("...ij,...jk->...ik", [(2, 1), (3,)]), ("...ij,jk", [(2, 3), ()]),
          ("b...,c...->...", [(4,), (4,)]), ("...,...", [(2, 3), (3,)]), ("...,...->...", [(2, 1, 3), (4, 1)]), ("...i,...i->...", [(1, 3), (2, 1)]),
          ("i...,j...->ij...", [(1,), (3,)]), ("...i,...i,...j->...j", [(2,), (), (1,)]), (" i j , j k -> i k ", [(), ()]), ("...ii->...i", [(2, 3)]),
          ("ij->...ij", [()]), ("...a->a...", [(1, 2)])]
CASES = [(e, [()] * (e.count(",") + 1)) for e in EXPRESSIONS] + DOTTED


def shapes(expression, dots):
    for term, more in zip(expression.replace(" ", "").split("->")[0].split(","), dots):
        own = [[SIZES[c] for c in part] for part in term.split("...")]
        yield tuple(own[0] + (list(more) + own[1] if "..." in term else []))


def drawn(rng, shape, dtype):
    if np.dtype(dtype).kind == "f":
        return rng.uniform(-2, 2, shape).astype(dtype)
    return rng.integers(-99 if np.dtype(dtype).kind == "i" else 0, 99, shape).astype(dtype)


def numpy_einsum(expression, operands):
    """In their common dtype; floats in f64. One operand after the other: NumPy has no bits to agree on."""
    dtype = np.result_type(*operands)
    wide = [np.asarray(x, np.float64 if dtype.kind == "f" else dtype) for x in operands]
    return np.einsum(expression, *wide), dtype


def compare(programs, device, tolerance=None, **env):
    got = run_programs([(lambda o, *x, e=e: o.einsum(e, *x), operands) for e, operands in programs], device, compiled=device == "cpu", **env)
    for (e, operands), result in zip(programs, got):
        assert not isinstance(result, Failure), (e, result)
        values = [x.value() if isinstance(x, Operand) else x for x in operands]
        want, dtype = numpy_einsum(e, values)
        assert result[0].shape == want.shape and result[0].dtype == dtype, (e, result[0].shape, result[0].dtype)
        if dtype.kind != "f":
            assert (result[0] == want).all(), e
        else:
            scale = numpy_einsum(e, [abs(x) for x in values])[0]
            assert (abs(result[0] - want) <= 200 * np.finfo(dtype).eps * scale).all(), e
    return got


def test_there_are_many():
    assert len(CASES) > 100 and len(set(e for e, _ in CASES)) > 100


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "u1", "i8"])
def test_values(device, dtype):
    rng = np.random.default_rng(SEED)
    compare([(e, [drawn(rng, s, dtype) for s in shapes(e, dots)]) for e, dots in CASES], device)


@pytest.mark.parametrize("dtype", ["f4", "i2"])
def test_bits_do_not_depend_on_fusion(dtype):
    rng = np.random.default_rng(SEED)
    programs = [(e, [drawn(rng, s, dtype) for s in shapes(e, dots)]) for e, dots in CASES]
    fused, not_fused = compare(programs, "cpu"), compare(programs, "cpu", COTAN_FUSE="0")
    for (e, _), a, b in zip(programs, fused, not_fused):
        assert a[0].tobytes() == b[0].tobytes(), e


@pytest.mark.parametrize("device", DEVICES)
def test_integers_of_all_sizes(device):
    """Products and sums that wrap, among them the largest numbers; NumPy computes in the dtype, too."""
    rng, programs = np.random.default_rng(SEED), []
    for dtype in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"):
        info = np.iinfo(dtype)
        for e in ("ij,jk->ik", "ij,kj->ik", "ij,j->i", "ij,ij->i", "bi,bi->b", "i,i", "ij,jk,k->i"):
            operands = [rng.integers(info.min, info.max, s, dtype, endpoint=True) for s in shapes(e, [()] * 3)]
            operands[0].flat[0] = info.min
            programs.append((e, operands))
    a, b = rng.integers(-2**62, 2**62, (70, 300)), rng.integers(-2**62, 2**62, (300, 40))
    programs += [("ij,jk", [a, b]), ("ij,kj", [a, b.T.copy()]), ("ij,jk", [a.astype(np.int8), b]),
                 ("i,i,i->i", [np.int8([100, 3]), np.int8([100, 4]), np.int32([5, 6])]), ("i,i", [np.uint8([200, 3]), np.float32([2, 3])])]
    compare(programs, device)


@pytest.mark.parametrize("device", DEVICES)
def test_views_and_dynamic_sizes(device):
    rng = np.random.default_rng(SEED)

    def x(*shape):
        return drawn(rng, shape, "f8")

    def at(array, dims):
        return Operand(array, dims=dims)
    compare([
        ("ij,jk", [Operand(x(5, 7), REVERSED), Operand(x(7, 13), REVERSED)]),
        ("bij,bjk->bik", [Operand(x(5, 1), EXPANDED, (3, 5, 7)), x(3, 7, 4)]),
        ("ii->i", [Operand(x(4, 4), REVERSED)]), ("iij->j", [Operand(x(1), EXPANDED, (4, 4, 3))]),
        ("ii->i", [at(x(5, 5), [dyn(5), dyn(5)])]), ("iij,jk->ik", [at(x(5, 5, 3), [dyn(5), 5, 3]), x(3, 2)]),
        ("ij,jk", [at(x(5, 7), [dyn(5), dyn(7)]), at(x(7, 3), [dyn(7), 3])]),
        ("bqhd,bkhd->bhqk", [at(x(2, 5, 3, 4), [dyn(2), dyn(5), 3, 4]), at(x(2, 6, 3, 4), [dyn(2), dyn(6), 3, 4])]),
        ("bhqk,bkhd->bqhd", [at(x(2, 3, 5, 6), [dyn(2), 3, dyn(5), dyn(6)]), at(x(2, 6, 3, 4), [dyn(2), dyn(6), 3, 4])]),
        ("...i,...i->...", [at(x(5, 6), [dyn(5), 6]), at(x(6), [6])]), ("ij,ij->i", [at(x(5, 6), [dyn(5), dyn(6)]), x(5, 6)]),
        ("ij->ji", [at(x(5, 6), [dyn(5), 6])]), ("ij,jk,kl", [at(x(5, 6), [5, dyn(6)]), x(6, 3), x(3, 2)]),
        ("ij,jk", [x(0, 3), x(3, 2)]), ("ij,jk", [x(2, 0), x(0, 3)]), ("ii->i", [x(0, 0)]), ("ii->i", [x(1, 1)]), ("ij,ij->", [x(0, 3), x(0, 3)]),
        ("ij,jk", [x(3, 700), x(700, 40)]), ("i,i->", [x(3000), x(3000)]), ("bhqd,bhkd->bhqk", [x(2, 3, 70, 40), x(2, 3, 50, 40)])], device)


@pytest.mark.parametrize("device", DEVICES)
def test_operands_made_of_their_indices(device):
    """one_hot compares labels with an iota: its class axis reads the same labels, and has other values."""
    rng, programs = np.random.default_rng(SEED), []
    size = {"n": 8, "a": 4, "b": 3, "c": 5, "h": 6}
    for e in ("nabh,hbanc->hac", "nbh,hbnc->hc", "nbh,nbc->hc", "nah,nhc->nac", "nbh,hbc->nc", "nah,hac->hnc", "bh,hc->hbc"):
        index, other = (tuple(size[c] for c in term) for term in (e.split(",")[0][:-1], e.split(",")[1].split("->")[0]))
        labels, values = rng.integers(0, 6, index), drawn(rng, other, "f8")
        want = np.einsum(e, np.eye(6)[labels], values)
        for one in (labels, Operand(labels, dims=[dyn(n) for n in index])):
            programs.append((e, want, lambda o, i, v, e=e: o.einsum(e, o.one_hot(i, n=6, dtype="f64"), v), [one, values]))
    for env in ({}, {"COTAN_FUSE": "0"}):
        got = run_programs([(f, operands) for _, _, f, operands in programs], device, compiled=device == "cpu", **env)
        for (e, want, _, _), result in zip(programs, got):
            assert not isinstance(result, Failure), (e, result)
            np.testing.assert_allclose(result[0], want, rtol=1e-12, atol=1e-12, err_msg=e)


def test_derivatives_and_batches():
    rng = np.random.default_rng(SEED)
    for e, dots in [("ij,jk->ki", [(), ()]), ("bqhd,bkhd->bhqk", [(), ()]), ("iij,jk->ik", [(), ()]), ("...ij,...jk->...ik", [(2, 1), (3,)]),
                    ("ij,jk,kl->li", [(), (), ()]), ("bi,bi->b", [(), ()]), ("ijkl,lkm->ijm", [(), ()])]:
        x = [drawn(rng, s, "f8") for s in shapes(e, dots)]
        f = lambda o, *x, e=e: o.einsum(e, *x)
        loss = lambda o, *x, f=f: o.sum(o.sin(f(o, *x)))
        many = [np.stack([v, v + 1, 2 * v]) for v in x]
        check(e, [("grad", lambda o, *x: o.grad(lambda *x: loss(o, *x))(*x), x),
                  ("hvp", lambda o, *x: o.hvp(lambda *x: loss(o, *x), x[:len(x) // 2], x[len(x) // 2:]), x + x),
                  ("jvp", lambda o, *x: o.jvp(lambda *x: f(o, *x), x[:len(x) // 2], x[len(x) // 2:]), x + x),
                  ("vmap", lambda o, *x: o.vmap(lambda *x: f(o, *x))(*x), many),
                  ("vmap of one", lambda o, *x: o.vmap(lambda *x: f(o, *x), [0] + [None] * (len(x) - 1))(*x), many[:1] + x[1:]),
                  ("vmap of the last", lambda o, *x: o.vmap(lambda *x: f(o, *x), [None] * (len(x) - 1) + [0])(*x), x[:-1] + many[-1:]),
                  ("vmap of grad", lambda o, *x: o.vmap(o.grad(lambda *x: loss(o, *x)))(*x), many)])


@pytest.mark.parametrize("device", DEVICES)
def test_complex_numbers(device):
    rng = np.random.default_rng(SEED)
    for e, dots in [("ij,jk->ki", [(), ()]), ("bi,bi->b", [(), ()]), ("ii->i", [()]), ("bqhd,bkhd->bhqk", [(), ()])]:
        x = [drawn(rng, s, "f8") + 1j * drawn(rng, s, "f8") for s in shapes(e, dots)]
        got = run_programs([(lambda o, *x: o.einsum(e, *x), x)], device, compiled=device == "cpu")[0]
        assert not isinstance(got, Failure) and np.allclose(got[0], np.einsum(e, *x), rtol=1e-13, atol=1e-13), (e, got)


@pytest.mark.parametrize("device", DEVICES)
def test_bits_are_those_of_matrix_products(device):
    """Of 700 products three chunks are added (docs/design/bits.md), whichever axes they stand on and whoever gives the rows."""
    rng = np.random.default_rng(SEED)

    def x(*shape):
        return rng.normal(size=shape).astype(np.float32)
    a, b, vector, batch, groups = x(50, 700), x(700, 40), x(700), x(5, 50, 700), x(3, 700, 40)
    long, matrix = x(9000), x(3, 4500)  # so long that 16 chunks are summed side by side
    sizes = np.array([7, 0, 41], np.int32)

    def rows(o, a, b, start, stop, g):
        return o.matmul(o.slice(a, start=[start], stop=[stop], axes=[0]), o.reshape(o.slice(b, start=[g], stop=[g + 1], axes=[0]), dims=[700, 40]))
    pairs = [
        (lambda o, a, b: o.matmul(a, b), lambda o, a, b: o.einsum("ik,kj->ij", a, b), [a, b]),
        (lambda o, a, b: o.matmul(a, b), lambda o, a, b: o.permute(o.einsum("ik,kj->ji", a, b), axes=[1, 0]), [a, b]),
        (lambda o, a, b: o.matmul(a, b),
         lambda o, a, b: o.contract(o.reshape(a, dims=[50, 7, 100]), o.reshape(b, dims=[7, 100, 40]), a_axes=[1, 2], b_axes=[0, 1]), [a, b]),
        (lambda o, a, v: o.matmul(a, o.reshape(v, dims=[700, 1])), lambda o, a, v: o.einsum("ij,j->i", a, v), [a, vector]),
        (lambda o, a: o.matmul(o.reshape(a, dims=[50, 1, 700]), o.reshape(a, dims=[50, 700, 1])),
         lambda o, a: o.contract(a, a, a_axes=[1], b_axes=[1], a_batch=[0], b_batch=[0]), [a]),
        (lambda o, v: o.matmul(o.reshape(v, dims=[1, 700]), o.reshape(v, dims=[700, 1])), lambda o, v: o.contract(v, v, a_axes=[0], b_axes=[0]), [vector]),
        (lambda o, v, w: o.matmul(o.reshape(v, dims=[1, 9000]), o.reshape(w, dims=[9000, 1])), lambda o, v, w: o.contract(v, w, a_axes=[0], b_axes=[0]),
         [long, long[::-1].copy()]),
        (lambda o, a: o.matmul(o.reshape(a, dims=[3, 1, 4500]), o.reshape(a, dims=[3, 4500, 1])),
         lambda o, a: o.contract(a, o.mul(a, 1.0), a_axes=[1], b_axes=[1], a_batch=[0], b_batch=[0]), [matrix]),
        (lambda o, c, b: o.matmul(c, b), lambda o, c, b: o.einsum("bik,kj->bij", c, b), [batch, b]),
        (lambda o, a, g, s: o.concat(rows(o, a, g, 0, 7, 0), rows(o, a, g, 7, 48, 2), np.zeros((2, 40), np.float32), axis=0),
         lambda o, a, g, s: o.ragged_matmul(a, g, s), [a, groups, sizes])]
    for fuse in ("1", "0"):
        programs = [(f, operands) for one, other, operands in pairs for f in (one, other)]
        got = run_programs(programs, device, compiled=device == "cpu", **({"COTAN_FUSE": "0"} if fuse == "0" else {}))
        for i in range(0, len(got), 2):
            assert not isinstance(got[i], Failure) and not isinstance(got[i + 1], Failure), (got[i], got[i + 1])
            assert got[i][0].tobytes() == got[i + 1][0].tobytes(), i // 2


@pytest.mark.parametrize("device", DEVICES)
def test_axes_of_all_kinds(device):
    """As many axes as there may be; integers beside floats; operands that meet as numbers without a dtype of their own."""
    rng = np.random.default_rng(SEED)
    many = [drawn(rng, (1,) * 26 + (2, 1, 2, 3, 2, 4), "f8") for _ in range(2)]
    thirty = list(range(31))
    wide, narrow = rng.integers(-99, 99, (5, 70)).astype(np.int8), drawn(rng, (70, 6), "f4")
    wants = [(lambda o, a, b: o.contract(a, b, a_axes=[31], b_axes=[31], a_batch=thirty, b_batch=thirty), many, (many[0] * many[1]).sum(-1)),
             (lambda o, a, b: o.contract(a, b, a_batch=thirty, b_batch=thirty, a_axes=[31], b_axes=[31]), [many[0], many[0]], (many[0] ** 2).sum(-1)),
             (lambda o, a, b: o.matmul(a, b), [wide, narrow], (wide.astype(np.float64) @ narrow).astype(np.float32)),
             (lambda o, a: o.contract(a, 2.5), [narrow], narrow * np.float32(2.5)), (lambda o, a: o.contract(a, 3), [wide], wide * np.int8(3)),
             (lambda o, a: o.einsum("ij,->ji", a, 3), [wide], (wide * np.int8(3)).T), (lambda o, a: o.einsum(",i...,", 0.5, a, 3), [narrow], narrow.T * np.float32(1.5)),
             (lambda o, a, b: o.einsum("ij,j->i", a, b), [narrow, narrow[0] > 0], narrow @ (narrow[0] > 0).astype(np.float32))]
    got = run_programs([(f, operands) for f, operands, _ in wants], device, compiled=device == "cpu")
    for i, ((_, _, want), result) in enumerate(zip(wants, got)):
        assert not isinstance(result, Failure), (i, result)
        assert result[0].dtype == want.dtype and np.allclose(result[0], want, rtol=1e-6 if want.dtype == np.float32 else 1e-13, atol=1e-3 if want.dtype == np.float32 else 1e-13), i


def test_groups_against_jax():
    rng = np.random.default_rng(SEED)
    a, b, sizes = drawn(rng, (40, 5), "f8"), drawn(rng, (4, 5, 3), "f8"), np.array([3, 0, 30, 7], np.int32)
    got = run_programs([(lambda o, a, b, s: o.ragged_matmul(a, b, s), [a, b, sizes])], "cpu", compiled=True)[0]
    assert np.allclose(got[0], jax.lax.ragged_dot(a, b, sizes), rtol=1e-13, atol=1e-13)
