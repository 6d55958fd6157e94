"""Every op under vmap, with three choices of axes, and its vjp under vmap, against JAX's batching of its twin (op_twins.py).

Under COTAN_TEST_ALL all is asked of all cases, else of a twentieth, which the op's name and the seed choose.
"""
import zlib

import numpy as np
import pytest
from op_cases import Operand, dyn
from op_transforms import SEED, cases, check, chosen, is_f64, results, shaped_like, smooth
from op_twins import TWINS
from programs import listed

BATCH = 3
BATCHES = ["axis 0 of all", "one operand, its last axis", "mixed axes, dynamic", "mixed axes, of vjp"]


def spread(rng, operand, axis, dynamic):
    """The operand with a batch of values of its own kind along an axis, whose size may be dynamic."""
    value = operand.value()
    many = []
    for _ in range(BATCH):
        mixed = rng.permutation(value.ravel()).reshape(value.shape)
        if value.dtype.kind == "f":
            mixed = (mixed * rng.uniform(0.9, 1)).astype(value.dtype)
        elif value.dtype == np.uint32 and value.shape == (2,):  # a key
            mixed = rng.integers(0, 2**32, 2).astype(np.uint32)
        if value.ndim and value.size > 9 and (np.sort(value, -1) == value).all():  # as may have been promised
            mixed = np.sort(mixed, -1)
        many.append(mixed)
    stack = np.stack(many, axis)
    dims = list(stack.shape)
    dims[axis] = dyn(BATCH) if dynamic else BATCH
    return Operand(stack, dims=dims)


def batch_axes(case, what, rng):
    """An axis an operand, or None."""
    ranks = [o.value().ndim for o in case.operands]
    if what == "axis 0 of all":
        return [0] * len(ranks)
    if what == "one operand, its last axis":
        axes = [None] * len(ranks)
        one = int(rng.integers(len(ranks)))
        axes[one] = ranks[one]
        return axes
    axes = [None if rng.random() < 0.4 else int(rng.integers(-r - 1, r + 1)) for r in ranks]
    if all(a is None for a in axes):
        axes[-1] = 0
    return axes


def batched(case, what, rng):
    """(program, operands) of the op batched."""
    axes, outs = batch_axes(case, what, rng), results(case)
    operands = [o if a is None else spread(rng, o, a, "dynamic" in what) for o, a in zip(case.operands, axes)]
    derive = what.endswith("of vjp")
    floats = [i for i, out in enumerate(outs) if out.dtype == np.float64]
    place = [i for i, o in enumerate(case.operands) if is_f64(o)]
    weights = [rng.normal(size=outs[i].shape) for i in floats]
    ranks = [len(case.operands[i].value().shape) for i in place] if derive else [len(o.shape) for o in outs]
    out_axes = [int(rng.integers(-r - 1, r + 1)) for r in ranks]

    def program(o, *x):
        def one(*x):
            def op(*moved):
                all_of = list(x)
                for i, v in zip(place, moved):
                    all_of[i] = v
                return listed(getattr(o, case.op.name)(*all_of, **case.attrs))
            if not derive:
                return op(*[x[i] for i in place])
            def slopes(*moved):
                return [v for i, v in enumerate(op(*moved)) if i in floats]
            moved = [x[i] for i in place]
            return o.vjp(slopes, moved, shaped_like(o, weights, lambda: slopes(*moved), case))[len(floats):]
        return listed(o.vmap(one, axes, out_axes)(*x))
    return program, operands


def batches_of(case, number):
    derived = smooth(case)
    return [w for w in BATCHES if (derived or not w.endswith("of vjp")) and chosen(case.op.name, number, w)]


@pytest.mark.parametrize("name", sorted(n for n in TWINS if n != "iota"))
def test_batches(name):
    rng, programs = np.random.default_rng([SEED, 1, zlib.crc32(name.encode())]), []
    for number, case in enumerate(cases(name)):
        for what in batches_of(case, number):
            program, operands = batched(case, what, rng)
            programs.append((f"{case}, {what}", program, operands))
    check(name, programs)
