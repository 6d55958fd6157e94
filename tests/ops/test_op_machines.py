"""The same bits whatever instructions kernels are made of: compiled for the oldest machine of this kind, without fused
multiply-add; and under an emulator those of another machine beside this one's."""
import os
from pathlib import Path

import numpy as np
import op_samples as samples
import pytest
from op_cases import Case, Failure, read_table, run
from support.program import EMULATOR

TABLE = read_table()
OLDEST = "armv8-a" if os.uname().machine == "aarch64" else "x86-64"
FEW = ["exp", "matmul", "mod", "round", "softmax", "sum"]
NAMES = sorted((set(samples.ELEMENTWISE) | set(samples.SAMPLES)) & set(TABLE))


def cases_of(name):
    """Numbers from everywhere, and all pairs of the values at which functions change their mind."""
    op, rng, cases = TABLE[name], np.random.default_rng(samples.RNG_SEED), []
    for dtype in op.accepts:
        if dtype in ("f16", "bf16"):
            continue
        if name in samples.ELEMENTWISE:
            cases += [Case(op, operands, attrs)
                      for operands in [*samples.elementwise(rng, op, dtype), samples.edges(op, dtype)]
                      for attrs in samples.ELEMENTWISE_ATTRS.get(name, [{}])]
        else:
            cases += [Case(op, operands, attrs) for operands, attrs in samples.SAMPLES[name][1](rng, op, dtype)]
    return cases


def other_bits(a, b):
    """How many elements differ; NaNs do not."""
    assert a.dtype == b.dtype and a.shape == b.shape
    equal = np.frombuffer(a.tobytes(), f"V{a.itemsize}") == np.frombuffer(b.tobytes(), f"V{b.itemsize}")
    if a.dtype.kind == "f":
        equal |= (np.isnan(a) & np.isnan(b)).ravel()
    return int((~equal).sum())


@pytest.mark.parametrize("name", NAMES if EMULATOR else FEW)
def test_same_bits(name):
    cases = cases_of(name)
    if EMULATOR:
        native = [str(Path(os.environ["COTAN_NATIVE"]) / "tests/ops/test_ops")]
        ours = run(cases, "cpu", program=native, COTAN_CC="cc", COTAN_MARCH="native")
        others = run(cases, "cpu")
    else:
        ours, others = run(cases, "cpu"), run(cases, "cpu", COTAN_MARCH=OLDEST)
    wrong = []
    for case, a, b in zip(cases, ours, others):
        assert not isinstance(a, Failure) and not isinstance(b, Failure), (case, a, b)
        n = sum(other_bits(x, y) for x, y in zip(a, b))
        if n:
            wrong.append(f"{case}: {n} elements differ")
    assert not wrong, "\n".join(wrong)
