"""Every op of the table, in every dtype that it accepts, against NumPy."""
import os

import numpy as np
import op_samples as samples
import pytest
from op_cases import NUMPY, Case, Failure, Operand, dyn, read_table, run

TABLE = read_table()
FLOATS = ("f32", "f64")
DEVICES = os.environ.get("COTAN_TEST_DEVICES", "ref,cpu").split(",")
# Ops that have functions of the user as attributes are tested where those are traced, what an
# optimizer records by tests/unit/test_optim.c.
OPTIM = {"global_norm", "update"}
TESTED = {n: op for n, op in TABLE.items() if op.kind not in ("leaf", "transform", "loop")
          and n not in OPTIM
          and not any(kind == "body" for kind, _ in op.fields)}
# Ops whose result on ref is the exact one, rounded once; the sign of a zero counts, too.
EXACT_ZERO = {"add", "sub", "mul", "div", "neg", "abs", "floor", "ceil", "round", "sqrt"}


def close(got, want, ulp, scale=None):
    """Do all elements agree to `ulp` units of the last place of the larger of |want| and scale?"""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.shape} {got.dtype} instead of {want.shape} {want.dtype}"
    if got.dtype.kind != "f":
        bad = got != want
    else:
        with np.errstate(invalid="ignore"):
            size = np.abs(want.astype(np.float64))
        if scale is not None:
            size = np.maximum(size, scale)
        unit = np.finfo(got.dtype).eps * np.where(np.isfinite(size), size, 1)
        unit = np.maximum(unit, np.finfo(got.dtype).tiny)
        with np.errstate(invalid="ignore"):
            off = np.abs(got.astype(np.float64) - want.astype(np.float64)) > ulp * unit
            bad = np.where(np.isfinite(want), off | ~np.isfinite(got),
                           ~((got == want) | (np.isnan(got) & np.isnan(want))))
    if not bad.any():
        return None
    at = tuple(np.argwhere(bad)[0])
    return f"{bad.sum()} of {bad.size} differ, first at {at}: {got[at]!r} instead of {want[at]!r}"


def in_double(array):
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def check(cases, wants, ulps, device, scales=None):
    results = run(cases, device)
    errors = []
    for i, (case, want, ulp) in enumerate(zip(cases, wants, ulps)):
        got = results[i]
        if isinstance(got, Failure):
            errors.append(f"{case}: {got}")
            continue
        want = want if isinstance(want, list) else [want]
        assert len(got) == len(want), case
        for j, (g, w) in enumerate(zip(got, want)):
            message = close(g, np.asarray(w), ulp, scales[i] if scales else None)
            if message:
                errors.append(f"{case} output {j}: {message}")
    assert not errors, f"seed {samples.RNG_SEED}\n" + "\n".join(errors[:20])


def test_every_op_has_samples():
    known = set(samples.ELEMENTWISE) | set(samples.SAMPLES) | samples.SPECIAL
    assert set(TESTED) == known, ("an op without samples: add a line to ELEMENTWISE (or SAMPLES) in "
                                  f"tests/ops/op_samples.py for {sorted(set(TESTED) ^ known)}")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", sorted(samples.ELEMENTWISE))
def test_elementwise(name, device):
    op, f = TABLE[name], samples.ELEMENTWISE[name]
    rng = np.random.default_rng(samples.RNG_SEED)
    cases, wants, ulps = [], [], []
    for dtype in op.accepts:
        if dtype in ("f16", "bf16"):
            continue
        layouts = list(samples.elementwise(rng, op, dtype)) + [samples.edges(op, dtype)]
        for operands in layouts:
            for attrs in samples.ELEMENTWISE_ATTRS.get(name, [{}]):
                case = Case(op, operands, attrs)
                with np.errstate(all="ignore"):
                    want = np.asarray(f(*[in_double(o.value()) for o in case.operands], **attrs))
                    if want.dtype == np.float64:
                        want = want.astype(NUMPY[dtype])
                cases.append(case)
                wants.append(want)
                # A function of NumPy may be a unit off itself; in f64 ours has no wider type to hide in.
                loose = 4 if dtype == "f64" else 1
                ulps.append(max(op.ulp * loose, 0 if name in EXACT_ZERO else 1))
    # The f32 polynomial of erfinv loses bits near 1; gelu and silu cancel where they are small.
    scales = [0.1] * len(cases) if name in ("gelu", "erfinv", "silu") else None
    check(cases, wants, ulps, device, scales)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", sorted(EXACT_ZERO))
def test_signs_of_zeros(name, device):
    op, f = TABLE[name], samples.ELEMENTWISE[name]
    for dtype in FLOATS:
        case = Case(op, samples.edges(op, dtype))
        with np.errstate(all="ignore"):
            want = f(*[o.value() for o in case.operands])
        got = run([case], device)[0][0]
        zero = want == 0
        assert zero.any() and (np.signbit(got[zero]) == np.signbit(want[zero])).all(), name


def magnitudes(case):
    """What sums may reach along the way: rounding errors are measured against it."""
    top = max((np.abs(o.value().astype(np.float64)[np.isfinite(o.value().astype(np.float64))]).max(
        initial=0) for o in case.operands if o.array.dtype.kind == "f"), default=0)
    return max(top, 1.0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", sorted(samples.SAMPLES))
def test_structured(name, device):
    op, (f, make) = TABLE[name], samples.SAMPLES[name]
    rng = np.random.default_rng(samples.RNG_SEED)
    cases, wants, ulps, scales = [], [], [], []
    for dtype in op.accepts:
        if dtype in ("f16", "bf16"):
            continue
        for operands, attrs in make(rng, op, dtype):
            case = Case(op, operands, attrs)
            arrays = [in_double(o.value()) for o in case.operands]
            if name == "cumsum":
                arrays = [o.value() for o in case.operands]
            want = f(*arrays, **attrs)
            wants.append([np.asarray(w).astype(NUMPY[dtype]) if np.asarray(w).dtype == np.float64
                          else np.asarray(w) for w in (want if isinstance(want, list) else [want])])
            cases.append(case)
            exact = op.kind in ("movement",) or name in ("gather", "max", "min", "topk", "argmax")
            ulps.append(0 if exact else max(op.ulp, 4) * 4)
            scales.append(0 if exact else magnitudes(case))
    assert cases
    check(cases, wants, ulps, device, scales)


@pytest.mark.parametrize("device", DEVICES)
def test_storage_types_move(device):
    """f16 and bf16 move as bits."""
    rng = np.random.default_rng(samples.RNG_SEED)
    half = rng.normal(size=(3, 4)).astype(np.float16)
    bits = rng.integers(0, 2**16, (3, 4)).astype(np.uint16)
    for name, attrs in (("permute", {}), ("slice", {"start": [1], "stop": [3]}), ("flip", {}),
                        ("reshape", {"dims": [2, 6]}), ("expand", {"dims": [2, 3, 4]})):
        f = samples.SAMPLES[name][0]
        check([Case(TABLE[name], [half], attrs),
               Case(TABLE[name], [Operand(bits, dtype="bf16")], attrs)],
              [f(half, **attrs), f(bits, **attrs)], [0, 0], device)


# ------------------------------------------------------------------------------------------ dtypes

PROMOTED = """
      bool u8  i32 u32 i64 f32 f64
bool  bool u8  i32 u32 i64 f32 f64
u8    u8   u8  i32 u32 i64 f32 f64
i32   i32  i32 i32 i64 i64 f32 f64
u32   u32  u32 i64 u32 i64 f32 f64
i64   i64  i64 i64 i64 i64 f32 f64
f32   f32  f32 f32 f32 f32 f32 f64
f64   f64  f64 f64 f64 f64 f64 f64
"""


@pytest.mark.parametrize("device", DEVICES)
def test_promotion(device):
    lines = PROMOTED.strip().splitlines()
    columns = lines[0].split()
    cases, wants = [], []
    for line in lines[1:]:
        first, *row = line.split()
        for second, dtype in zip(columns, row):
            a, b = np.array([1, 0], NUMPY[first]), np.array([1, 1], NUMPY[second])
            cases += [Case(TABLE["less"], [a, b]),
                      Case(TABLE["select"], [np.array([True, False]), a, b])]
            wants += [np.array([False, True]), np.array([1, 1], NUMPY[dtype])]
    check(cases, wants, [0] * len(cases), device)


CAST_FROM = {"f32": [np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, -1.5, 2.5, 255.0, 256.0, -1.0, 1e10, -3e9, 65519.0,
                     65520.0, 1e-8, 6e-8],
             "f64": [np.nan, np.inf, -np.inf, -0.0, 1.9, -1.9, 1e300, 1e-320, 2.0**53, 4294967295.0, 1 + 2.0**-24],
             "i32": [0, 1, -1, 255, 256, 2**31 - 1, -2**31], "u8": [0, 1, 255],
             "i64": [0, 1, -1, 2**40 + 3, -2**63, 2**63 - 1], "u32": [0, 1, 2**32 - 1], "bool": [False, True]}


def cast(x, dtype):
    if dtype == "bool":
        return x != 0
    if x.dtype.kind == "f" and dtype not in ("f16", "f32", "f64"):
        lo, hi = np.iinfo(NUMPY[dtype]).min, np.iinfo(NUMPY[dtype]).max
        whole = [0 if np.isnan(v) else lo if v <= lo else hi if v >= hi else int(v)
                 for v in x.astype(np.float64)]
        return np.array(whole, NUMPY[dtype])
    with np.errstate(all="ignore"):
        return x.astype(NUMPY[dtype])


@pytest.mark.parametrize("device", DEVICES)
def test_cast(device):
    op, cases, wants = TABLE["cast"], [], []
    for source, values in CAST_FROM.items():
        x = np.array(values, NUMPY[source])
        for dtype in NUMPY:
            cases.append(Case(op, [x], {"dtype": dtype}))
            wants.append(cast(x, dtype))
    x = np.arange(2**16, dtype=np.uint16)
    upper = np.left_shift(x.astype(np.uint32), 16).view(np.float32)
    cases += [Case(op, [x.view(np.float16)], {"dtype": "f32"}),
              Case(op, [Operand(x, dtype="bf16")], {"dtype": "f32"})]
    wants += [x.view(np.float16).astype(np.float32), upper]
    check(cases, wants, [0] * len(cases), device)


@pytest.mark.parametrize("device", DEVICES)
def test_cast_to_bf16_rounds_to_even(device):
    x = np.array([1, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, 3.4e38, np.inf, -0.0], np.float32)
    got = run([Case(TABLE["cast"], [x], {"dtype": "bf16"})], device)[0][0]
    assert [hex(v) for v in got] == ["0x3f80", "0x3f80", "0x3f82", "0x3f81", "0x7f80", "0x7f80", "0x8000"]


@pytest.mark.parametrize("device", DEVICES)
def test_bitcast(device):
    x = np.array([0.0, -0.0, 1.0, np.inf, -2.5], np.float32)
    y = np.array([0.0, -0.0, 1.0, np.inf], np.float64)
    check([Case(TABLE["bitcast"], [x], {"dtype": "u32"}),
           Case(TABLE["bitcast"], [x.view(np.int32)], {"dtype": "f32"}),
           Case(TABLE["bitcast"], [y], {"dtype": "i64"}),
           Case(TABLE["bitcast"], [np.array([True, False])], {"dtype": "u8"})],
          [x.view(np.uint32), x, y.view(np.int64), np.array([1, 0], np.uint8)], [0] * 4, device)


@pytest.mark.parametrize("device", DEVICES)
def test_iota(device):
    cases, wants = [], []
    for dtype in TABLE["iota"].accepts:
        for dims, axis in (((5,), 0), ((2, 3), 0), ((2, 3, 4), -1), ((0, 2), 1), ((3, 300), 1)):
            cases.append(Case(TABLE["iota"], [], {"dtype": dtype, "dims": dims, "axis": axis}))
            line = np.arange(dims[axis]).reshape([-1 if a == axis % len(dims) else 1
                                                  for a in range(len(dims))])
            wants.append(np.broadcast_to(line, dims).astype(NUMPY[dtype]))
    cases.append(Case(TABLE["iota"], [], {"dtype": "i32", "dims": [dyn(6)]}))
    wants.append(np.arange(6, dtype=np.int32))
    check(cases, wants, [0] * len(cases), device)


@pytest.mark.parametrize("device", DEVICES)
def test_one_hot(device):
    x = np.array([[0, 3], [-1, 2]], np.int32)
    want = (x[..., None] == np.arange(3))
    check([Case(TABLE["one_hot"], [x], {"n": 3}),
           Case(TABLE["one_hot"], [x.astype(np.int64)], {"n": 3, "dtype": "bool"}),
           Case(TABLE["one_hot"], [x.astype(np.uint8)], {"n": 0, "dtype": "i32"})],
          [want.astype(np.float32), want, np.zeros((2, 2, 0), np.int32)], [0] * 3, device)
