"""Products of bf16 by dots of pairs: the bits of the chain that products have, but that numbers below the normal ones are zeros."""
import os
import subprocess

import numpy as np
import pytest
from op_cases import Case, Failure, read_table, run
from support.program import command

TABLE = read_table()
SEED = 20261126
# (M, K, N): a row, a few, tiles, several chunks of 256, beyond tiles' edges; an odd K has no pairs.
SIZES = [(1, 64, 48), (1, 4096, 160), (2, 600, 70), (3, 512, 100), (7, 600, 33), (64, 256, 64), (130, 770, 200), (20, 33, 17), (40, 1024, 64)]


def bf16(x):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    return np.asarray(x, np.float32).astype(ml_dtypes.bfloat16)


def products(pairs, form, **env):
    """(M, N) of each (M, K) and (K, N), both held as `form` says: "n", or "t" for one that is a transpose."""
    cases = []
    for a, b in pairs:
        a, b = (np.ascontiguousarray(x.T) if f == "t" else x for x, f in zip((a, b), form))
        k = [0 if form[0] == "t" else 1], [1 if form[1] == "t" else 0]
        cases.append(Case(TABLE["contract"], [a, b], {"a_axes": k[0], "b_axes": k[1]}))
    out = run(cases, "cpu", **env)
    assert not any(isinstance(x, Failure) for x in out), out
    return [x[0].view(np.uint16) for x in out]


def numbers(rng, shape, low, high):
    return bf16(rng.choice([-1, 1], shape) * np.exp2(rng.uniform(low, high, shape)))


@pytest.mark.parametrize("form", ["nn", "nt", "tn", "tt"])
def test_same_bits_as_without(form):
    rng = np.random.default_rng(SEED)
    pairs = [(numbers(rng, (m, k), -6, 6), numbers(rng, (k, n), -6, 6)) for m, k, n in SIZES]
    with_dots, without = (products(pairs, form, COTAN_BF16_DOT=dots) for dots in "10")
    for size, a, b in zip(SIZES, with_dots, without):
        assert (a == b).all(), (size, int((a != b).sum()))


def flushed(x):
    return np.where(np.abs(x) < np.float32(2**-126), np.copysign(np.float32(0), x), x).astype(np.float32)


def by_rule(a, b):
    """Chains of 256 steps, each rounded once (a product of bf16 is exact in double, and a sum of two nearly so), flushed."""
    a, b = flushed(a.astype(np.float32)), flushed(b.astype(np.float32))
    total = None
    for first in range(0, a.shape[1], 256):
        s = np.zeros((a.shape[0], b.shape[1]), np.float32)
        for k in range(first, min(first + 256, a.shape[1])):
            s = flushed((s.astype(np.longdouble) + a[:, k, None].astype(np.longdouble) * b[None, k].astype(np.longdouble)).astype(np.float32))
        total = s if total is None else total + s
    return bf16(total).view(np.uint16)


@pytest.mark.parametrize("form", ["nn", "nt"])
def test_what_is_below_normal_numbers_is_zero(form):
    """Sums around 2^-126: many of them would be subnormal on their way."""
    rng = np.random.default_rng(SEED)
    pairs = [(numbers(rng, (m, k), -66, -60), numbers(rng, (k, n), -66, -60)) for m, k, n in ((1, 64, 48), (24, 300, 40))]
    pairs.append((numbers(rng, (5, 32), -133, -120), numbers(rng, (32, 48), -2, 6)))  # subnormal elements
    got = products(pairs, form, COTAN_BF16_DOT="1")
    for (a, b), bits in zip(pairs, got):
        assert (bits == by_rule(a, b)).all()
    without = products(pairs, form, COTAN_BF16_DOT="0")
    assert any((x != y).any() for x, y in zip(got, without)), "no sum was subnormal: nothing was tested"


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("rows", [1, 4, 40])
def test_rows_of_other_dtypes(dtype, rows):
    """A weight of bf16 (N, K) is read by words where the sums are f32, and one by one where they are f64."""
    rng = np.random.default_rng(SEED)
    x, w = rng.standard_normal((rows, 64)).astype(dtype), bf16(rng.standard_normal((48, 64)))
    out = run([Case(TABLE["contract"], [x, w], {"a_axes": [1], "b_axes": [1]})], "cpu")[0]
    assert not isinstance(out, Failure), out
    np.testing.assert_allclose(out[0].astype(np.float64), x.astype(np.float64) @ w.astype(np.float64).T, rtol=1e-5, atol=1e-5)


def test_another_answer_is_refused(tmp_path):
    (tmp_path / "text.txt").write_text("some text to train on\n" * 100)
    words = ["train", "--data", tmp_path / "text.txt", "--out", tmp_path / "run", "--steps", "1"]
    done = subprocess.run([*command("cotan"), *words], capture_output=True, text=True, env=os.environ | {"COTAN_BF16_DOT": "2"})
    assert done.returncode == 2 and 'cpu: COTAN_BF16_DOT is "2", neither 0 nor 1' in done.stderr, (done.returncode, done.stderr)
