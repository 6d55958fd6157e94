"""Gradients of every op that has one, against finite differences in f64, to second order.

A case's outputs x, as x + x x / 2 times fixed weights, add up to a loss. Its gradient along a random direction is compared with the
loss's central difference; then that gradient, times other weights, is a number whose gradient is compared likewise.
On cpu too, where the plans of second derivatives are what fusion meets nowhere else: interpreted, since each is run once.
"""
import os

import numpy as np
import op_samples as samples
import pytest
from op_cases import Case, Failure, Operand, read_table, run

TABLE = read_table()
DEVICES = os.environ.get("COTAN_TEST_DEVICES", "ref,cpu").split(",")
STEP = 1e-5
TOLERANCE = 2e-7


def float_cases(name):
    """Operand lists in f64, each a list of Operands, with attributes."""
    op, rng = TABLE[name], np.random.default_rng(samples.RNG_SEED)
    if name in samples.ELEMENTWISE:
        for operands in samples.elementwise(rng, op, "f64"):
            for attrs in samples.ELEMENTWISE_ATTRS.get(name, [{}]):
                yield Case(op, operands, attrs)
    elif name == "cast":
        for dtype in ("f64", "f32"):
            yield Case(op, [samples.draw(rng, op, "f64", (2, 3))], {"dtype": dtype})
    elif name == "dropout":
        yield Case(op, [samples.draw(rng, op, "f64", (5, 7)), np.array([1, 2], np.uint32), np.float32(0.3)])
    else:
        for operands, attrs in samples.SAMPLES[name][1](rng, op, "f64"):
            yield Case(op, operands, attrs)


def clean(case):
    """Are all operands finite and is there something to differentiate?"""
    floats = [o for o in case.operands if o.dtype == "f64"]
    if case.op.name == "scatter_mul" and not case.attrs.get("unique"):
        return False
    if (case.op.kinks or case.op.name == "std") and any(
            len(np.unique(v)) < v.size for v in ((o.value() if case.op.kind == "reduce" or case.op.name == "std" else o.array)
                                                 for o in floats)):
        return False  # a tie: no derivative; nor has a deviation of equals
    return floats and all(np.isfinite(o.array).all() and o.value().size for o in floats)


def moved(case, by, along, again=False):
    """The case with its f64 operands moved along a direction (of what the op sees: views are gone)."""
    operands, place = [], 0
    for o in case.operands:
        if o.dtype == "f64":
            value = o.value() + by * along[place]
            operands.append(Operand(value, dims=o.dims if o.view == 0 else None))
            place += 1
        else:
            operands.append(o)
    return Case(case.op, operands, case.attrs, case.weights, case.directions, again)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", sorted(n for n, op in TABLE.items() if op.gradient
                                        and "f64" in op.accepts and n in (
                                            set(samples.ELEMENTWISE) | set(samples.SAMPLES)
                                            | {"cast", "dropout"})))
def test_gradient(name, device):
    rng = np.random.default_rng(samples.RNG_SEED + 1)
    plain = [case for case in float_cases(name) if clean(case)]
    values = run([Case(c.op, c.operands, c.attrs) for c in plain], device, compiled=False)
    cases = []
    for case, outs in zip(plain, values):
        if isinstance(outs, Failure):
            pytest.fail(f"{case}: {outs}")
        floats = [o for o in case.operands if o.dtype == "f64"]
        weights = [rng.normal(size=o.shape) if o.dtype.kind == "f" else np.zeros(0) for o in outs]
        if not any(w.size for w in weights) or any(not np.isfinite(o).all() for o in outs):
            continue
        directions = [rng.normal(size=o.value().shape) for o in floats]
        cases.append(Case(case.op, case.operands, case.attrs, weights, directions))
    assert cases
    step = 0.05 if name == "cast" else STEP
    requests, along = [], []
    for case in cases:
        d = [rng.normal(size=w.shape) for w in case.directions]
        along.append(d)
        requests += [case, moved(case, step, d), moved(case, -step, d)]
    results = run(requests, device, compiled=False)
    errors = []
    for i, case in enumerate(cases):
        here, up, down = results[3 * i:3 * i + 3]
        for r in (here, up, down):
            if isinstance(r, Failure):
                errors.append(f"{case}: {r}")
        if any(isinstance(r, Failure) for r in (here, up, down)):
            continue
        n_out, n = len(case.weights), len(case.directions)
        loss, slope = n_out, n_out + 1
        first, second = here[n_out + 2:n_out + 2 + n], here[n_out + 2 + n:]
        exact = sum(float((g * d).sum()) for g, d in zip(first, along[i]))
        bend = sum(float((g * d).sum()) for g, d in zip(second, along[i]))
        assert len(second) == n
        size = sum(float(np.abs(g).sum()) for g in first)
        tolerance = 1e-2 if name == "cast" and case.attrs["dtype"] == "f32" else 1.0
        for what, got, place in (("first", exact, loss), ("second", bend, slope)):
            difference = (float(up[place]) - float(down[place])) / (2 * step)
            scale = max(1.0, abs(got), size, *(abs(float(v[place])) for v in (up, down)))
            if abs(difference - got) > TOLERANCE * scale * (1e3 if tolerance < 1 else 1):
                errors.append(f"{case}: {what} derivative {got!r}, finite difference {difference!r}")
    assert not errors, f"seed {samples.RNG_SEED}\n" + "\n".join(errors[:20])
