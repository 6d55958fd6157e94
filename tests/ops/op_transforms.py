"""What tests of ops under transforms share: their cases, which of them are tried, and how results compare with JAX's."""
import os
import zlib

import jax
import numpy as np
import op_samples as samples
from op_cases import Case, Failure, whole
from op_twins import TABLE, TWINS
from programs import listed, run_jax, run_programs
from test_op_gradients import clean

DEVICES = os.environ.get("COTAN_TEST_DEVICES", "ref,cpu").split(",")
ALL = bool(os.environ.get("COTAN_TEST_ALL"))
SEED = 20261011
TOLERANCE = 1e-6
worst = {}


def chosen(*what):
    """True of the thirtieth part that is tried without COTAN_TEST_ALL. Another seed, another part."""
    return ALL or zlib.crc32(" ".join(map(str, (*what, SEED))).encode()) % 30 == 0


# ------------------------------------------------------------------------------------------ cases

def special_cases(rng, op, dtype):
    """Of ops whose samples op_samples.py does not hold."""
    key = np.array([7, 11], np.uint32)
    name = op.name
    if name == "cast":
        yield [samples.draw(rng, op, "f64", (2, 3))], {"dtype": "f64"}
        yield [rng.integers(-9, 9, (2, 3)).astype(np.int32)], {"dtype": "f64"}
    elif name == "bitcast":
        yield [samples.draw(rng, op, "f32", (2, 3))], {"dtype": "i32"}
    elif name == "iota":
        yield [], {"dtype": "i32", "dims": [2, 3], "axis": 1}
    elif name == "one_hot":
        yield [np.array([[0, 2, 1], [3, -1, 5]], np.int32)], {"n": 4, "dtype": "f64"}
        yield [np.int32(2)], {"n": 4}
    elif name == "random_split":
        yield [key], {"n": 3}
    elif name == "random_fold_in":
        yield [key, np.int32(5)], {}
    elif name == "random_int":
        yield [key, np.int32(-3), np.int32(9)], {"dims": [2, 5]}
    elif name == "random_bernoulli":
        yield [key, np.float32(0.3)], {"dims": [2, 5]}
    elif name == "dropout":
        yield [samples.draw(rng, op, "f64", (5, 7)), key, np.float32(0.3)], {}
    else:
        yield [key], {"dims": [2, 5]}
        yield [key], {"dims": []}


def cases(name):
    op, rng = TABLE[name], np.random.default_rng(samples.RNG_SEED)
    dtype = next(d for d in ("f64", "i32", "bool", "u32") if d in op.accepts)
    if name in samples.ELEMENTWISE:
        for operands in samples.elementwise(rng, op, dtype):
            for attrs in samples.ELEMENTWISE_ATTRS.get(name, [{}]):
                yield Case(op, operands, attrs)
    elif name in samples.SPECIAL:
        for operands, attrs in special_cases(rng, op, dtype):
            yield Case(op, operands, attrs)
    else:
        for operands, attrs in samples.SAMPLES[name][1](rng, op, dtype):
            yield Case(op, operands, attrs)


def is_f64(operand):
    return operand.dtype == "f64"


def results(case):
    """Shapes and dtypes of the op's results."""
    values = [o.value() for o in case.operands]
    return listed(jax.eval_shape(lambda *x: listed(TWINS[case.op.name](*x, **case.attrs)), *values))


def shaped_like(o, slopes, values, case):
    """Slopes with sizes that are dynamic where those of the values are, which is only asked where the case has such."""
    if not any(operand.dims for operand in case.operands):
        return slopes
    return [o.mul(slope, o.add(o.mul(v, 0.0), 1.0)) for slope, v in zip(slopes, values())]


def smooth(case):
    """May it be differentiated: are operands and results finite, no two tied, and some floats of f64? Scans of long lines take
    JAX minutes to compile."""
    if not (case.op.gradient and clean(case)) or (case.op.kind == "scan" and any(o.value().size > 1000 for o in case.operands)):
        return False
    outs = results(case)
    if not any(out.dtype == np.float64 for out in outs) or not all(out.size for out in outs):
        return False
    known = samples.ELEMENTWISE.get(case.op.name) or samples.SAMPLES.get(case.op.name, [None])[0]
    if not known:
        return True
    with np.errstate(all="ignore"):
        attrs = {k: whole(v) if isinstance(v, list) else v for k, v in case.attrs.items()}
        values = listed(known(*[o.value() for o in case.operands], **attrs))
    return all(np.isfinite(v).all() for v in values)


# ------------------------------------------------------------------------------------------ comparing

def difference(got, want, tolerance=TOLERANCE):
    """What differs, or None; and by how much the worst element is off."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.shape} {got.dtype} instead of {want.shape} {want.dtype}", 0
    if got.dtype.kind not in "fc":
        return (None if (got == want).all() else f"{got.tolist()} instead of {want.tolist()}"), 0
    with np.errstate(all="ignore"):
        finite = np.isfinite(want)
        off = np.where(finite, np.abs(got - want) / np.maximum(1, np.abs(want)), 0)
        same = (got == want) | (np.isnan(got) & np.isnan(want))
    off = np.where(np.isnan(off), np.inf, off)
    bad = np.where(finite, off > tolerance, ~same)
    if not bad.any():
        return None, float(off.max(initial=0))
    at = tuple(np.argwhere(bad)[0])
    return f"{bad.sum()} of {bad.size} differ, first at {at}: {got[at]!r} instead of {want[at]!r}", 0


def check(name, programs):
    """programs: (what, program, operands)."""
    errors, wants = [], [run_jax(f, operands) for _, f, operands in programs]
    for device in DEVICES:
        found = run_programs([(f, operands) for _, f, operands in programs], device)
        for (what, _, _), got, want in zip(programs, found, wants):
            if isinstance(got, Failure) or len(got) != len(want):
                errors.append(f"{what}, {device}: {got if isinstance(got, Failure) else len(got)}")
                continue
            for i, (g, w) in enumerate(zip(got, want)):
                text, off = difference(g, w)
                worst[name] = max(worst.get(name, 0), off)
                if text:
                    errors.append(f"{what}, {device}, result {i}: {text}")
    assert not errors, f"seed {SEED}\n" + "\n".join(errors[:20])


