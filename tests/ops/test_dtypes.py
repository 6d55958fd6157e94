"""Dtypes: promotion of all pairs against JAX, casts against ml_dtypes, bit for bit."""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from op_cases import DTYPES, EVERY, NARROW, NUMPY, PROGRAM, Case, read_table, rounded, run
from support.program import EMULATOR

TABLE = read_table()

# Asked of a JAX in a process of its own: the size of its default dtypes, which decide of bare numbers, is set at its start.
ASK_JAX = """
import sys, jax, numpy, ml_dtypes
BARE = {"i32*": 1, "i64*": 1, "f32*": 1.0}
for line in sys.stdin:
    a, b = line.split()
    bare = a in BARE or b in BARE
    a, b = (BARE[x] if x in BARE else numpy.dtype(getattr(ml_dtypes, x, x)) for x in (a, b))
    try:
        print(jax.numpy.result_type(a, b) if bare else jax.numpy.promote_types(a, b))
    except jax._src.dtypes.TypePromotionError:
        print("none")
"""


def written(mode):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*PROGRAM, mode, f"{folder}/lines"], check=True)
        return [line.split() for line in Path(f"{folder}/lines").read_text().splitlines()]


def numpy_name(dtype):
    return dtype if dtype.endswith("*") else NUMPY[dtype].__name__


def jax_promotes(pairs, bits):
    asked = "".join(f"{numpy_name(a)} {numpy_name(b)}\n" for a, b in pairs)
    env = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1", "JAX_DEFAULT_DTYPE_BITS": bits}
    done = subprocess.run([sys.executable, "-c", ASK_JAX], input=asked, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    ours = {n.__name__: name for name, n in NUMPY.items()} | {"none": "none"}
    return [ours[line] for line in done.stdout.split()]


def test_names_and_sizes():
    assert [name for name, _ in written("--dtypes")] == DTYPES[1:]


def check(lines, bits):
    bad = []
    for (a, b, met), want in zip(lines, jax_promotes([(a, b) for a, b, _ in lines], bits)):
        if "i64*" in (a, b) and {a, b} <= {"bool", "i32*", "i64*"}:  # JAX's bare integers have one size
            want = "i64"
        if met != want:
            bad.append(f"{a} and {b}: {met}, JAX has {want}")
    print(f"{len(lines)} pairs")
    assert not bad, "\n".join(bad)


def test_promotion_is_that_of_jax():
    pairs = [line for line in written("--promotions") if "*" not in line[0] + line[1]]
    assert len(pairs) == len(NUMPY) ** 2
    check(pairs, "64")


def test_promotion_of_bare_numbers_is_that_of_jax():
    bare = ("i32*", "i64*", "f32*")
    lines = [line for line in written("--promotions") if any(x in bare for x in line[:2])
             and all("*" not in x or x in bare for x in line[:2])]
    assert len(lines) == 2 * 3 * len(NUMPY) + 9
    check(lines, "32")


# ------------------------------------------------------------------------------------------ casts

DEVICES = os.environ.get("COTAN_TEST_DEVICES", "ref,cpu").split(",")
OTHER_MACHINES = ["x86-64", "x86-64-v3"] if os.uname().machine == "x86_64" and not EMULATOR else []
SEED = 20261123


def cast(x, dtype, device):
    """The array in a dtype; on cpu by compiled kernels of each width of vectors, and interpreted: all the same bits."""
    cases = [Case(TABLE["cast"], [x], {"dtype": dtype})]
    out = run(cases, device)[0][0]
    if device != "ref":
        for how in [{"compiled": False}] + [{"COTAN_MARCH": march} for march in OTHER_MACHINES]:
            assert run(cases, device, **how)[0][0].tobytes() == out.tobytes(), how
    return out


def different(got, want, payloads=False):
    """Elements of other bits. `payloads`: which NaN it is does not count, but its sign."""
    unsigned = f"u{want.dtype.itemsize}"
    same = got.view(unsigned) == want.view(unsigned)
    if payloads:
        nan = np.isnan(got.astype(np.float64)) & np.isnan(want.astype(np.float64))
        same |= nan & (np.signbit(got.astype(np.float64)) == np.signbit(want.astype(np.float64)))
    return int((~same).sum())


def random_floats(rng, dtype, n):
    """Of all exponents, most of them near those of the narrow floats."""
    size = np.exp2(np.where(rng.random(n) < 0.9, rng.uniform(-30, 20, n), rng.uniform(-149, 127, n)))
    x = (size * rng.choice([-1, 1], n)).astype(NUMPY[dtype])
    x[: len(SPECIAL)] = SPECIAL
    return x


SPECIAL = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 3e38, -3e38, 448, 464, 464.00003, 480, 57344, 61440,
           61439.996, -61440, 65504, 65519.996, 65520, 2.0**-10, 2.0**-10 * 1.0000001, 2.0**-17, 3 * 2.0**-17, 2.0**-24, 2.0**-25]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", NARROW)
def test_every_code(dtype, device):
    """All codes as f32 and f64, and back; and as every other narrow float."""
    codes = EVERY[dtype]
    with np.errstate(all="ignore"):
        for wide in ("f32", "f64"):
            up = cast(codes, wide, device)
            assert different(up, codes.astype(NUMPY[wide]), payloads=True) == 0
            back = cast(up, dtype, device)
            assert different(back, codes.astype(NUMPY[wide]).astype(NUMPY[dtype]), payloads=dtype in ("f16", "bf16")) == 0
        for other in set(NARROW) - {dtype}:
            got, want = cast(codes, other, device), codes.astype(np.float32).astype(NUMPY[other])
            assert different(got, want, payloads=other in ("f16", "bf16")) == 0, other


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", NARROW)
def test_a_million_roundings(dtype, device):
    """From f32 as ml_dtypes rounds (f16: NumPy); from f64 the same, but rounded once, as NumPy does to f16. The numbers lie
    between all neighbours of the narrow dtype, and on their midpoints and beside them."""
    rng, n = np.random.default_rng(SEED), 10**6
    with np.errstate(all="ignore"):
        codes = EVERY[dtype].astype(np.float64)
    finite = np.unique(codes[np.isfinite(codes)])
    middles = ((finite[1:] + finite[:-1]) / 2).astype(np.float32)
    with np.errstate(all="ignore"):
        beside = np.concatenate([middles, np.nextafter(middles, np.float32(np.inf)), np.nextafter(middles, np.float32(-np.inf))])
        x = np.concatenate([beside, random_floats(rng, "f32", n)])
        want = x.astype(NUMPY[dtype])
        got = cast(x, dtype, device)
        assert different(got, want, payloads=dtype in ("f16", "bf16")) == 0
        x = np.concatenate([np.nextafter(middles.astype(np.float64), np.inf), np.nextafter(middles.astype(np.float64), -np.inf),
                            random_floats(rng, "f64", n)])
        once, got = rounded(x, dtype), cast(x, dtype, device)
        if dtype == "f16":
            assert different(once, x.astype(np.float16), payloads=True) == 0
        assert different(got, once, payloads=dtype in ("f16", "bf16")) == 0
        print(f"{dtype}: {n + len(beside)} from f32, {len(x)} from f64, of which by way of f32 other bits: "
              f"{different(got, x.astype(np.float32).astype(NUMPY[dtype]), payloads=True)}")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", NARROW)
def test_integers_become_narrow_floats_by_way_of_f32(dtype, device):
    rng = np.random.default_rng(SEED)
    for whole in ("bool", "u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"):
        kind = np.dtype(NUMPY[whole])
        x = rng.integers(0, 2, 100).astype(bool) if whole == "bool" else np.concatenate(
            [rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, 20000, kind, endpoint=True), np.arange(100).astype(kind)])
        with np.errstate(all="ignore"):
            assert different(cast(x, dtype, device), x.astype(np.float32).astype(NUMPY[dtype])) == 0, whole
