"""Every op of the table, in every dtype that it accepts, against NumPy."""
import os
import zlib

import jax
import ml_dtypes
import numpy as np
import op_samples as samples
import pytest
from op_cases import (EVERY, FLOATS, NARROW, NUMPY, WHOLE, Case, Failure, Operand, dyn, is_float, read_table,
                      rounded, run)

TABLE = read_table()
DEVICES = os.environ.get("COTAN_TEST_DEVICES", "ref,cpu").split(",")
# Ops that have functions of the user as attributes are tested where those are traced, what an
# optimizer records by tests/unit/test_optim.c, what gradients and assignments do by
# tests/unit/test_grad.c and test_semantics_variables.c.
RECORDED = {"global_norm", "update", "same", "copy", "pack", "unpack", "named", "stored", "control_dependency"}
TESTED = {n: op for n, op in TABLE.items() if op.kind not in ("leaf", "transform", "loop")
          and n not in RECORDED
          and not any(kind == "body" for kind, _ in op.fields)}
# Ops whose result on ref is the exact one, rounded once; the sign of a zero counts, too.
EXACT_ZERO = {"add", "sub", "mul", "div", "neg", "abs", "floor", "ceil", "round", "sqrt"}


def close(got, want, ulp, scale=None):
    """Do all elements agree to `ulp` units of the last place of the larger of |want| and scale?"""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.shape} {got.dtype} instead of {want.shape} {want.dtype}"
    if not is_float(got):
        bad = got != want
    else:
        with np.errstate(invalid="ignore"):
            size = np.abs(want.astype(np.float64))
        narrow, info = any(got.dtype == NUMPY[d] for d in NARROW), ml_dtypes.finfo(got.dtype)
        if scale is not None and not narrow:
            size = np.maximum(size, scale)
        unit = float(info.eps) * np.where(np.isfinite(size), size, 1)
        unit = np.maximum(unit, float(info.smallest_subnormal if narrow else info.tiny))
        # Sums of narrow floats are those of f32, and rounded once.
        before = 16 * np.finfo(np.float32).eps * (scale or 0) if narrow else 0
        got, want = got.astype(np.float64), want.astype(np.float64)
        with np.errstate(invalid="ignore"):
            off = np.abs(got - want) > ulp * unit + before
            bad = np.where(np.isfinite(want), off | ~np.isfinite(got),
                           ~((got == want) | (np.isnan(got) & np.isnan(want))))
    if not bad.any():
        return None
    at = tuple(np.argwhere(bad)[0])
    return f"{bad.sum()} of {bad.size} differ, first at {at}: {got[at]!r} instead of {want[at]!r}"


def in_double(array):
    return array.astype(np.float64) if is_float(array) else array


def compiled_dtypes(op):
    """All kernels run interpreted. To compile each would take most of the tests' time, so it is those of f32 or i32, and of
    every third op those of one dtype more that changes from op to op, with `make test-all` of two for each: they follow from
    the name, so that a new op changes no other's."""
    if op.kind.startswith("attention") and not os.environ.get("COTAN_TEST_ALL"):
        return {"f32"}  # a kernel takes the compiler half a second
    first, at = "f32" if "f32" in op.accepts else "i32", zlib.crc32(op.name.encode())
    if op.kind == "elementwise" and at % 2 and not os.environ.get("COTAN_TEST_ALL"):
        return set()  # the random graphs have all of them
    if os.environ.get("COTAN_TEST_ALL"):
        return {first, op.accepts[at % len(op.accepts)], op.accepts[(5 * at + 3) % len(op.accepts)]}
    return {first, op.accepts[at % len(op.accepts)]} if at // 16 % 3 == 0 else {first}


def check(cases, wants, ulps, device, scales=None):
    errors, every = [], range(len(cases))
    if device == "cpu":
        errors += compare(cases, wants, ulps, device, scales, every, False)
    if device != "ref":
        every = [i for i in every if cases[i].compiled]
    errors += compare(cases, wants, ulps, device, scales, every, True)
    assert not errors, f"seed {samples.RNG_SEED}\n" + "\n".join(errors[:20])


def compare(cases, wants, ulps, device, scales, which, compiled):
    errors, results = [], run([cases[i] for i in which], device, compiled)
    for got, i in zip(results, which):
        case, want, ulp = cases[i], wants[i], ulps[i]
        if isinstance(got, Failure):
            errors.append(f"{case}: {got}")
            continue
        want = want if isinstance(want, list) else [want]
        assert len(got) == len(want), case
        for j, (g, w) in enumerate(zip(got, want)):
            message = close(g, np.asarray(w), ulp, scales[i] if scales else None)
            if message:
                how = "compiled" if compiled else "interpreted"
                errors.append(f"{case} output {j}, {how}: {message}")
    return errors


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
        layouts = list(samples.elementwise(rng, op, dtype)) + [samples.edges(op, dtype)]
        for operands in layouts:
            for attrs in samples.ELEMENTWISE_ATTRS.get(name, [{}]):
                case = Case(op, operands, attrs)
                with np.errstate(all="ignore"):
                    values = [o.value() if name in samples.IN_OWN_DTYPE else in_double(o.value()) for o in case.operands]
                    want = np.asarray(f(*values, **attrs))
                    if want.dtype == np.float64:
                        want = rounded(want, dtype)
                case.compiled = dtype in compiled_dtypes(op)
                cases.append(case)
                wants.append(want)
                # A function of NumPy may be a unit off itself; in f64 ours has no wider type to hide in.
                loose = 4 if dtype == "f64" else 0 if dtype in NARROW else 1
                ulps.append(max(op.ulp * loose, 0 if name in EXACT_ZERO else 1))
    # The f32 polynomial of erfinv loses bits near 1; gelu, silu and others cancel where they are small; NumPy's sinc is
    # not 0 at whole numbers.
    scales = [0.1] * len(cases) if name in ("gelu", "erfinv", "silu", "logaddexp", "sinc", "tanhshrink") else None
    if name in ("lgamma", "digamma"):  # what is larger cancels; f64 has no wider type to do that in
        scales = [{"lgamma": 16, "digamma": 2}[name] if case.operands[0].dtype == "f64" else None for case in cases]
    check(cases, wants, ulps, device, scales)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", sorted(EXACT_ZERO))
def test_signs_of_zeros(name, device):
    op, f = TABLE[name], samples.ELEMENTWISE[name]
    for dtype in FLOATS:
        case = Case(op, samples.edges(op, dtype))
        with np.errstate(all="ignore"):
            want = rounded(f(*[in_double(o.value()) for o in case.operands]), dtype)
        got = run([case], device, compiled=False)[0][0]
        zero = want == 0
        assert zero.any() and (np.signbit(got[zero]) == np.signbit(want[zero])).all(), name


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", NARROW)
def test_every_narrow_float(dtype, device):
    """What IEEE 754 defines, of all of them, each beside some others: the exact bits."""
    x, rng, cases, wants = EVERY[dtype], np.random.default_rng(samples.RNG_SEED), [], []
    for name in sorted(EXACT_ZERO | {"trunc", "maximum", "minimum", "mod"}):
        op = TABLE[name]
        if op.n_in == 1:
            pairs = [[x]]
        elif len(x) == 256:  # each beside each
            pairs = [[np.repeat(x, 256), np.tile(x, 256)]]
        else:
            pairs = [[x, rng.permutation(x)] for _ in range(3)]
        for operands in pairs:
            cases.append(Case(op, operands))
            with np.errstate(all="ignore"):
                wants.append(rounded(samples.ELEMENTWISE[name](*map(in_double, operands)), dtype))
    for case, want, got in zip(cases, wants, run(cases, device, compiled=False)):
        assert not isinstance(got, Failure), got
        code = f"u{want.itemsize}"
        same = (got[0].view(code) == want.view(code)) | (np.isnan(got[0]) & np.isnan(want))
        if case.op.name in ("maximum", "minimum"):  # NumPy does not order zeros
            same |= got[0] == want
        assert same.all(), (case, np.argwhere(~same)[:5], got[0][~same][:5], want[~same][:5])


def magnitudes(case):
    """What sums may reach along the way: rounding errors are measured against it."""
    return max((largest(o.value()) for o in case.operands if is_float(o.array)), default=1.0)


def largest(array):
    """Of the finite elements' sizes and 1."""
    sizes = np.abs(array.astype(np.float64))
    return sizes[np.isfinite(sizes)].max(initial=1)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", sorted(samples.SAMPLES))
def test_structured(name, device):
    op, (f, make) = TABLE[name], samples.SAMPLES[name]
    rng = np.random.default_rng(samples.RNG_SEED)
    cases, wants, ulps, scales = [], [], [], []
    for dtype in op.accepts:
        for operands, attrs in make(rng, op, dtype):
            case = Case(op, operands, attrs)
            arrays = [in_double(o.value()) for o in case.operands]
            # What is put to elements in memory is rounded each time; the reference rounds once.
            in_memory = op.kind == "scatter" and dtype in NARROW and device != "ref"
            want = f(*[o.value() for o in case.operands], **attrs) if in_memory else f(*arrays, **attrs)
            wide = samples.WIDE_OUTPUTS.get(name, 0) if dtype in NARROW else 0
            wants.append([rounded(np.asarray(w), "f32" if i < wide else dtype) if np.asarray(w).dtype == np.float64
                          else np.asarray(w) for i, w in enumerate(want if isinstance(want, list) else [want])])
            # A kernel of attention takes the compiler half a second: every fourth case.
            some = os.environ.get("COTAN_TEST_ALL") or not op.kind.startswith("attention") or len(cases) % 4 == 0
            case.compiled = dtype in compiled_dtypes(op) and bool(some)
            cases.append(case)
            exact = op.kind in ("movement",) or name in ("gather", "max", "min", "cummax", "cummin", "topk",
                                                              "argmax", "argmin", "scatter", "scatter_min", "scatter_max", "sort", "sort_pairs", "take_along", "unique")
            ulps.append(0 if exact or in_memory else 1 if dtype in NARROW and not wide else max(op.ulp, 4) * 4)
            # An element of a scan or scatter is as uncertain as the largest sum on the way to it.
            scan = op.kind in ("scan", "scatter") and not exact and np.size(want)
            scales.append(0 if exact else largest(f(*map(np.abs, arrays), **attrs)) if scan else magnitudes(case))
    assert cases
    check(cases, wants, ulps, device, scales)


# ------------------------------------------------------------------------------------------ dtypes

def promoted(a, b):
    """None: JAX promotes to nothing."""
    try:
        with jax.experimental.enable_x64():
            dtype = jax.numpy.promote_types(NUMPY[a], NUMPY[b])
    except jax._src.dtypes.TypePromotionError:
        return None
    return next(name for name, n in NUMPY.items() if np.dtype(n) == dtype)


@pytest.mark.parametrize("device", DEVICES)
def test_promotion(device):
    cases, wants, refused = [], [], []
    for first in WHOLE:
        for second in WHOLE:
            a, b, met = np.array([1, 0], NUMPY[first]), np.array([1, 1], NUMPY[second]), promoted(first, second)
            if met is None:
                refused.append((Case(TABLE["add"], [a, b]), f"add: {first} and {second} do not promote to one dtype\n"))
                continue
            cases += [Case(TABLE["less"], [a, b]),
                      Case(TABLE["select"], [np.array([True, False]), a, b])]
            wants += [np.array([False, True]), np.array([1, 1], NUMPY[met])]
            for case in cases[-2:]:
                case.compiled = len(cases) // 2 % 7 == 0
    check(cases, wants, [0] * len(cases), device)
    assert len(refused) == 2 + 2 * 2 * sum(d in ("f16", "bf16", "f32", "f64") for d in NUMPY)
    for (_, want), got in zip(refused, run([case for case, _ in refused], device)):
        assert isinstance(got, Failure) and want in got, (want, got)


CAST_FROM = {"f32": [np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, -1.5, 2.5, 127.5, -128.9, 255.0, 256.0, -1.0, 32767.5,
                     1e10, -3e9, 65519.0, 65520.0, 1e-8, 6e-8, 9.3e18, 1.8e19, 1.9e19],
             "f64": [np.nan, np.inf, -np.inf, -0.0, 1.9, -1.9, 1e300, 1e-320, 2.0**53, 4294967295.0, 1 + 2.0**-24,
                     2.0**63, 2.0**64 - 2048, 2.0**64],
             "bool": [False, True], "u8": [0, 1, 127, 128, 255], "u16": [0, 1, 255, 2**15, 2**16 - 1],
             "u32": [0, 1, 2**31, 2**32 - 1], "u64": [0, 1, 2**53 + 2**29 + 1, 2**63, 2**63 + 1025, 2**64 - 1],
             "i8": [0, 1, -1, 127, -128], "i16": [0, 1, -1, 255, 2**15 - 1, -2**15],
             "i32": [0, 1, -1, 255, 256, 2**31 - 1, -2**31],
             "i64": [0, 1, -1, 2**40 + 3, -2**53 - 2**29 - 1, -2**63, 2**63 - 1],
             **EVERY}


def cast(x, dtype):
    if dtype == "bool":
        return x != 0
    if dtype in FLOATS:
        if not is_float(x):  # integers reach narrow floats by way of f32
            return x.astype(np.float32).astype(NUMPY[dtype]) if dtype in NARROW else x.astype(NUMPY[dtype])
        return rounded(x, dtype) if dtype in NARROW else x.astype(NUMPY[dtype])
    if not is_float(x):
        return x.astype(NUMPY[dtype])
    lo, hi = np.iinfo(NUMPY[dtype]).min, np.iinfo(NUMPY[dtype]).max
    whole = [0 if np.isnan(v) else lo if v <= lo else hi if v >= hi else int(v)
             for v in x.astype(np.float64).tolist()]
    return np.array(whole, NUMPY[dtype])


@pytest.mark.parametrize("device", DEVICES)
def test_cast(device):
    """Every dtype to every other one."""
    cases, wants = [], []
    for source in WHOLE:
        x = np.array(CAST_FROM[source], NUMPY[source])
        for dtype in WHOLE:
            cases.append(Case(TABLE["cast"], [x], {"dtype": dtype}))
            cases[-1].compiled = len(cases) % 4 == 0  # 13 dtypes: each comes first and second
            with np.errstate(all="ignore"):
                wants.append(cast(x, dtype))
    check(cases, wants, [0] * len(cases), device)


@pytest.mark.parametrize("device", DEVICES)
def test_cast_to_bf16_rounds_to_even(device):
    x = np.array([1, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, 3.4e38, np.inf, -0.0], np.float32)
    got = run([Case(TABLE["cast"], [x], {"dtype": "bf16"})], device)[0][0]
    assert [hex(v) for v in got.view(np.uint16)] == ["0x3f80", "0x3f80", "0x3f82", "0x3f81", "0x7f80", "0x7f80", "0x8000"]


@pytest.mark.parametrize("device", DEVICES)
def test_bitcast(device):
    """Each dtype as every other one of its size (to bool: what is 0 or 1)."""
    cases, wants = [], []
    values = {"f32": [0.0, -0.0, 1.0, np.inf, -2.5], "f64": [0.0, -0.0, 1.0, np.inf, -2.5],
              "bool": [0, 1], **EVERY}
    for source in WHOLE:
        x = np.array(values.get(source, samples.EDGES.get(source)), NUMPY[source])
        for dtype, kind in ((d, NUMPY[d]) for d in WHOLE):
            if np.dtype(kind).itemsize != x.itemsize or (dtype == "bool" and source != "bool"):
                continue
            cases.append(Case(TABLE["bitcast"], [x], {"dtype": dtype}))
            wants.append(x.view(kind))
    for results in (run(cases, device), run(cases, device, compiled=False)):
        for case, want, got in zip(cases, wants, results):
            assert not isinstance(got, Failure), got
            assert got[0].dtype == want.dtype, case
            # Which NaN it is may change where one is stored as a narrow float.
            same = got[0].view(f"u{want.itemsize}") == want.view(f"u{want.itemsize}")
            assert (same | (np.isnan(got[0]) & np.isnan(want) if any(want.dtype == NUMPY[d] for d in NARROW) else False)).all(), case


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
           Case(TABLE["one_hot"], [x.astype(np.int8)], {"n": 3, "dtype": "bf16"}),
           Case(TABLE["one_hot"], [x.astype(np.uint64)], {"n": 3, "dtype": "u64"}),
           Case(TABLE["one_hot"], [x.astype(np.uint8)], {"n": 0, "dtype": "i32"})],
          [want.astype(np.float32), want, want.astype(ml_dtypes.bfloat16), want.astype(np.uint64),
           np.zeros((2, 2, 0), np.int32)], [0] * 5, device)


# Values whose order has -0 below 0, and what stands for them: whole numbers, of which NumPy knows the order.
ZEROS, ORDER = np.array([-1.5, -0.0, 0.0, 1.5]), np.array([-2.0, -1.0, 1.0, 2.0])


def in_order(x):
    """-0 as -1 and 0 as 1; infinities as they are."""
    code = np.where(np.isfinite(x), np.sign(x) * 2, x)
    return np.where(x == 0, np.where(np.signbit(x), -1.0, 1.0), code)


def from_order(y):
    return np.where(np.isfinite(y), ZEROS[np.searchsorted(ORDER, np.where(np.isfinite(y), y, 1))], y)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin", "clamp", "max", "min", "cummax", "cummin", "scatter_max",
                                  "scatter_min", "max_pool"])
def test_extremes_order_zeros(name, device):
    """-0 is below 0, in whatever order a reduction runs."""
    op, rng, cases, wants = TABLE[name], np.random.default_rng(samples.RNG_SEED), [], []
    f = samples.ELEMENTWISE[name] if name in samples.ELEMENTWISE else samples.SAMPLES[name][0]
    for dtype in ("f16", "bf16", "f32", "f64"):
        if name in samples.ELEMENTWISE:
            given = [([rng.choice(ZEROS, 300) for _ in range(op.n_in)], {})]
        else:
            given = samples.SAMPLES[name][1](rng, op, dtype)
        for operands, attrs in given:
            drawn = []
            for o in Case(op, operands).operands:
                few = rng.choice(ZEROS if rng.random() < 0.5 else ZEROS[1:3], o.array.shape)
                drawn.append(Operand(few.astype(NUMPY[dtype]), o.view, o.wide, o.dims) if is_float(o.array) else o)
            case = Case(op, drawn, attrs)
            values = [in_order(in_double(o.value())) if is_float(o.array) else o.value() for o in drawn]
            cases.append(case)
            want = f(*values, **attrs)
            wants.append(from_order(np.asarray(want[0] if isinstance(want, list) else want)).astype(NUMPY[dtype]))
    for compiled in (False, True) if device == "cpu" else (True,):
        for case, want, got in zip(cases, wants, run(cases, device, compiled=compiled)):
            assert not isinstance(got, Failure), got
            assert got[0].tobytes() == want.tobytes(), (case, got[0], want)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("keys", [5, 131])
def test_a_query_that_may_look_nowhere(keys, device):
    """Zeros, and its gradients are zeros, whatever it and the cotangent of its result hold; masked_nan: as the softmax."""
    forward, backward, cases, wants, rng = TABLE["attention"], TABLE["attention_backward"], [], [], np.random.default_rng(3)
    shown = rng.random((3, keys)) < 0.7
    shown[1] = shown[:, :64 * (keys > 64)] = False  # a block that no query sees, too
    for dtype in ("f16", "f32", "f64"):
        summand = np.where(shown, 0.5, -np.inf).astype(NUMPY[dtype])
        masks = {2: [shown], 130: [shown, np.array(-np.inf, NUMPY[dtype])], 66: [shown, summand]}
        options = [(present, masks[present], nan) for present in masks for nan in (False, True)]
        options += [(2, [summand], False), (2, [summand], True), (4, [np.int32(0)], False), (194, [shown, summand, np.array(-2, NUMPY[dtype])], False)]
        for present, extras, nan in options:
            q, k, v, c = (rng.standard_normal(s).astype(NUMPY[dtype]) for s in ((2, 3, 4), (2, keys, 4), (2, keys, 3), (2, 3, 3)))
            if not nan and present != 194:
                c[:, 1] = np.nan
                if present == 2 and extras[0] is shown:
                    q[:, 1] = np.inf
            if present == 4:  # all of them
                q[0], c[1] = np.nan, np.inf
            attrs = {"present": present, "masked_nan": nan}
            with np.errstate(all="ignore"):
                values = [in_double(x) if is_float(x) else x for x in (q, k, v, *map(np.asarray, extras))]
                out, total = samples.np_attention(*values, **attrs)
                delta = (in_double(c) * out).sum(-1)
                total, delta = total.astype(c.dtype), delta.astype(c.dtype)
                cases += [Case(forward, [q, k, v, *extras], attrs), Case(backward, [q, k, v, *extras, c, total, delta], attrs)]
                wants += [[out, total], samples.np_attention_backward(*values, *map(in_double, (c, total, delta)), **attrs)]
    for case, want, got in zip(cases, wants, run(cases, device, compiled=False)):
        assert not isinstance(got, Failure), got
        for g, w in zip(got, want):
            close_to = 2e-2 if case.operands[0].dtype == "f16" else 1e-4
            np.testing.assert_allclose(in_double(g), w, rtol=close_to, atol=close_to, err_msg=repr(case))
