"""Dtypes: promotion of all pairs, its errors included, against JAX; casts against ml_dtypes, bit for bit: all 65,536 codes of
f16 and bf16, the 256 of f8e4m3 and f8e5m2, the 16 of u4, i4 and f4, and 100,000 roundings to each (1,000,000 in make test-all). Complex numbers have
tests/ops/test_complex.py."""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from op_cases import DTYPES, EVERY, NARROW, NUMPY, PACKED, PROGRAM, WHOLE, Case, Failure, odd_f32, read_table, rounded, run
from support.program import EMULATOR

TABLE = read_table()

# Asked of a JAX in a process of its own: the size of its default dtypes, which decide of bare numbers, is set at its start.
ASK_JAX = """
import sys, jax, numpy, ml_dtypes
BARE = {"i32*": 1, "i64*": 1, "f32*": 1.0, "c64*": 1j}
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
    """This JAX does not know float4_e2m1fn; later ones have it where the 8-bit floats stand."""
    return dtype if dtype.endswith("*") else NUMPY["f8e4m3" if dtype == "f4" else dtype].__name__


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
        if "f4" in (a, b):
            want = "none" if {a, b} == {"f4", "f8e4m3"} else "f4" if want == "f8e4m3" else want
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
    bare = ("i32*", "i64*", "f32*", "c64*")
    lines = [line for line in written("--promotions") if any(x in bare for x in line[:2])
             and all("*" not in x or x in bare for x in line[:2])]
    assert len(lines) == 2 * 4 * len(NUMPY) + 16
    check(lines, "32")


# ------------------------------------------------------------------------------------------ casts

DEVICES = os.environ.get("COTAN_TEST_DEVICES", "ref,cpu").split(",")
OTHER_MACHINES = ["x86-64", "x86-64-v3"] if os.uname().machine == "x86_64" and not EMULATOR else []
ALL = bool(os.environ.get("COTAN_TEST_ALL"))
SEED = 20261123


def casts(pairs, device, machines=()):
    """Each array in its dtype; on cpu interpreted, and by compiled kernels for this machine and others: all the same bits."""
    cases = [Case(TABLE["cast"], [x], {"dtype": dtype}) for x, dtype in pairs]
    outs = [r[0] for r in run(cases, device, COTAN_COMPILE="wait")]
    if device != "ref":
        # What is not compiled yet would be interpreted.
        for how in [{"compiled": False}] + [{"COTAN_MARCH": march, "COTAN_COMPILE": "wait"} for march in machines]:
            for a, b in zip(outs, run(cases, device, **how)):
                assert a.tobytes() == b[0].tobytes(), how
    return outs


def casts_elsewhere(pairs, device, dtype):
    """On another machine, too: the one that is the dtype's, or all of them."""
    one = len(dtype) % 2
    return casts(pairs, device, OTHER_MACHINES if ALL else OTHER_MACHINES[one:one + 1])


def cast(x, dtype, device):
    return casts_elsewhere([(x, dtype)], device, dtype)[0]


def different(got, want, payloads=False):
    """Elements of other bits. `payloads`: which NaN it is does not count, but its sign."""
    unsigned = f"u{want.dtype.itemsize}"
    if any(want.dtype == NUMPY[d] for d in PACKED):  # what else NumPy's byte holds is no part of the number
        return int(((got.view(np.uint8) ^ want.view(np.uint8)) & 15 != 0).sum())
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
    codes, wide, others = EVERY[dtype], ["f32", "f64"], sorted({*NARROW} - {dtype})
    out = casts_elsewhere([(codes, other) for other in wide + others], device, dtype)
    back = casts_elsewhere([(up, dtype) for up in out[:2]], device, dtype)
    with np.errstate(all="ignore"):
        for i, name in enumerate(wide):
            assert different(out[i], codes.astype(NUMPY[name]), payloads=True) == 0
            assert different(back[i], codes.astype(NUMPY[name]).astype(NUMPY[dtype]), payloads=dtype in ("f16", "bf16")) == 0
        for got, other in zip(out[2:], others):
            want = codes.astype(np.float32).astype(NUMPY[other])
            assert different(got, want, payloads=other in ("f16", "bf16")) == 0, other


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", NARROW)
def test_many_roundings(dtype, device):
    """From f32 as ml_dtypes rounds (f16: NumPy); from f64 the same, but rounded once, as NumPy does to f16. The numbers lie
    between all neighbours of the narrow dtype, and on their midpoints and beside them."""
    rng, n = np.random.default_rng(SEED), 10**6 if ALL else 10**5
    with np.errstate(all="ignore"):
        codes = EVERY[dtype].astype(np.float64)
    finite = np.unique(codes[np.isfinite(codes)])
    middles = ((finite[1:] + finite[:-1]) / 2).astype(np.float32)
    with np.errstate(all="ignore"):
        beside = np.concatenate([middles, np.nextafter(middles, np.float32(np.inf)), np.nextafter(middles, np.float32(-np.inf))])
        x = np.concatenate([beside, random_floats(rng, "f32", n)])
        want, single = x.astype(NUMPY[dtype]), x
        x = np.concatenate([np.nextafter(middles.astype(np.float64), np.inf), np.nextafter(middles.astype(np.float64), -np.inf),
                            random_floats(rng, "f64", n)])
        of_single, got = casts_elsewhere([(single, dtype), (x, dtype)], device, dtype)
        assert different(of_single, want, payloads=dtype in ("f16", "bf16")) == 0
        once = rounded(x, dtype)
        if dtype == "f16":
            assert different(once, x.astype(np.float16), payloads=True) == 0
        assert different(got, once, payloads=dtype in ("f16", "bf16")) == 0
        print(f"{dtype}: {n + len(beside)} from f32, {len(x)} from f64, of which by way of f32 other bits: "
              f"{different(got, x.astype(np.float32).astype(NUMPY[dtype]), payloads=True)}")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", NARROW)
def test_integers_become_narrow_floats_by_way_of_f32(dtype, device):
    rng, arrays = np.random.default_rng(SEED), []
    for whole in ("bool", "u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"):
        kind = np.dtype(NUMPY[whole])
        arrays.append(rng.integers(0, 2, 100).astype(bool) if whole == "bool" else np.concatenate(
            [rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, 20000, kind, endpoint=True), np.arange(100).astype(kind)]))
    for x, got in zip(arrays, casts_elsewhere([(x, dtype) for x in arrays], device, dtype)):
        with np.errstate(all="ignore"):
            assert different(got, x.astype(np.float32).astype(NUMPY[dtype])) == 0, x.dtype


# ------------------------------------------------------------------------------------------ 4 bits

CODES = {d: (np.arange(16, dtype=np.uint8) if d != "i4" else ((np.arange(16, dtype=np.uint8) ^ 8) - np.uint8(8))).view(NUMPY[d])
         for d in PACKED}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", PACKED)
def test_every_code_of_4_bits(dtype, device):
    """All codes as every other dtype, and back; an odd number of them, too."""
    pairs, wants = [], []
    for codes in (CODES[dtype], CODES[dtype][:15].reshape(3, 5)):
        numbers = codes.astype(np.float32)
        for other in WHOLE:
            if other == "bool":
                want = numbers != 0
            elif other[0] == "u":  # a negative one wraps from i4, and saturates from f4
                want = (numbers.astype(np.int64) if dtype == "i4" else np.maximum(numbers, 0)).astype(NUMPY[other])
            else:
                want = numbers.astype(NUMPY[other])
            pairs.append((codes, other))
            wants.append(want)
            if other in ("f8e4m3", "f16", "bf16", "f32", "f64") or (other in ("i8", "i32", "i64") and dtype != "f4"):
                pairs.append((numbers.astype(NUMPY[other]), dtype))
                wants.append(codes)
        for other in PACKED:
            if other == "f4":
                want = numbers.astype(NUMPY[other])
            else:
                lo, hi = (0, 15) if other == "u4" else (-8, 7)
                want = (np.clip(np.trunc(numbers), lo, hi) if dtype == "f4" else numbers).astype(np.int64).astype(NUMPY[other])
            pairs.append((codes, other))
            wants.append(want)
    for (_, other), want, got in zip(pairs, wants, casts(pairs, device)):
        assert different(got, want) == 0, (other, got, want)


@pytest.mark.parametrize("device", DEVICES)
def test_many_roundings_to_f4(device):
    rng, n = np.random.default_rng(SEED), 10**6 if ALL else 10**5
    finite = np.unique(CODES["f4"].astype(np.float32))
    middles = (finite[1:] + finite[:-1]) / 2
    beside = np.concatenate([middles, np.nextafter(middles, np.float32(9)), np.nextafter(middles, np.float32(-9))])
    x = np.concatenate([beside, random_floats(rng, "f32", n), rng.uniform(-8, 8, n).astype(np.float32)])
    with np.errstate(all="ignore"):
        assert different(cast(x, "f4", device), x.astype(NUMPY["f4"])) == 0
        for dtype in NARROW:
            codes = EVERY[dtype]
            assert different(cast(codes, "f4", device), codes.astype(np.float32).astype(NUMPY["f4"])) == 0
        y = np.concatenate([np.nextafter(middles.astype(np.float64), 9), np.nextafter(middles.astype(np.float64), -9),
                            random_floats(rng, "f64", n)])
        assert different(cast(y, "f4", device), odd_f32(y).astype(NUMPY["f4"])) == 0
    print(f"{len(x)} from f32, {len(y)} from f64")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["i4", "u4"])
def test_to_integers_of_4_bits(dtype, device):
    """Integers wrap, as ml_dtypes' do; floats are cut towards zero and saturate, as all of Cotan's and JAX's do."""
    lo, hi = (0, 15) if dtype == "u4" else (-8, 7)
    pairs, wants = [], []
    for whole in ("bool", "u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"):
        x = np.array([0, 1], bool) if whole == "bool" else np.arange(-300, 300).astype(NUMPY[whole])
        pairs.append((x, dtype))
        wants.append(x.astype(np.int64).astype(NUMPY[dtype]))
    for name in ("f16", "bf16", "f32", "f64"):
        x = np.array([np.nan, np.inf, -np.inf, -0.0, 0.9, -0.9, 7.9, 8, -8.9, -9, 15.5, 16, 100, 255, 256, -1000, 3e4], NUMPY[name])
        with np.errstate(all="ignore"):
            want = np.clip(np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0, posinf=99, neginf=-99), lo, hi)
        pairs.append((x, dtype))
        wants.append(want.astype(np.int64).astype(NUMPY[dtype]))
    for (x, _), want, got in zip(pairs, wants, casts(pairs, device)):
        assert different(got, want) == 0, (x, got, want)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", PACKED)
def test_moves_of_4_bits(dtype, device):
    rng = np.random.default_rng(SEED)
    x = rng.choice(CODES[dtype], (5, 7))
    y, row, at = rng.choice(CODES[dtype], (2, 7)), rng.choice(CODES[dtype], (1, 7)), np.array([3, 0, 4], np.int32)
    one = CODES[dtype][3]
    moves = [("reshape", [x], {"dims": [7, 5]}, x.reshape(7, 5)), ("permute", [x], {"axes": [1, 0]}, x.T),
             ("expand", [row], {"dims": [3, 7]}, np.broadcast_to(row, (3, 7))),
             ("slice", [x], {"start": [1, 3], "stop": [4, 6]}, x[1:4, 3:6]), ("flip", [x], {"axes": [1]}, x[:, ::-1]),
             ("pad", [x, one], {"low": [1, 0], "high": [0, 2]}, np.pad(x.view(np.uint8), ((1, 0), (0, 2)), constant_values=one.view(np.uint8)).view(x.dtype)),
             ("concat", [x, y], {"axis": 0}, np.concatenate([x, y])), ("gather", [x, at], {"axis": 0}, x[at]),
             ("dynamic_slice", [x, np.array([2, 1], np.int32)], {"sizes": [2, 3]}, x[2:4, 1:4]),
             ("dynamic_update", [x, y, np.array([3, 0], np.int32)], {}, np.concatenate([x[:3], y])),
             ("stop_gradient", [x], {}, x)]
    cases = [Case(TABLE[name], operands, attrs) for name, operands, attrs, _ in moves]
    for results in (run(cases, device), run(cases, device, compiled=False)):
        for (name, _, _, want), got in zip(moves, results):
            assert not isinstance(got, Failure), got
            assert got[0].shape == want.shape and different(got[0], np.ascontiguousarray(want)) == 0, name
