"""Every op under jvp, vjp and second derivatives, against JAX's own rules for its twin (op_twins.py), in f64.

A case of op_samples.py makes a program of what is asked of it (programs.py), which the library and JAX run. Derivatives are
compared where operands and results are finite and no two are tied. Under COTAN_TEST_ALL all is asked of all cases, else of a
twentieth, which the op's name and the seed choose: value and vjp of one case of each op at least.
"""
import zlib

import numpy as np
import pytest
from op_transforms import SEED, cases, check, chosen, is_f64, results, shaped_like, smooth
from op_twins import TABLE, TWINS, WITHOUT_TWIN
from programs import listed

DERIVATIVES = ["value", "jvp", "vjp", "forward over reverse", "reverse over reverse"]


def test_every_op_has_a_twin():
    odd = sorted(set(TABLE) ^ (set(TWINS) | WITHOUT_TWIN))
    assert not odd, f"an op without a twin: add JAX's function to TWINS (or WITHOUT_TWIN) in tests/ops/op_twins.py for {odd}"


def asked(case, number, derived):
    """What is compared; `derived`: was any derivative asked of an earlier case?"""
    names = DERIVATIVES if smooth(case) else ["value"]
    always = {"value"} if number == 0 else set()
    if len(names) > 1 and not derived:
        always.add("vjp")
    return [n for n in names if n in always or chosen(case.op.name, number, n)]


def derivatives(case, names, rng):
    """The program of what is asked, as a function of all operands."""
    outs = results(case)
    floats = [i for i, out in enumerate(outs) if out.dtype == np.float64]
    place = [i for i, o in enumerate(case.operands) if is_f64(o)]
    weights = [rng.normal(size=outs[i].shape) for i in floats]
    ways = [rng.normal(size=case.operands[i].value().shape) for i in place]

    def program(o, *x):
        def op(*moved):
            all_of = list(x)
            for i, v in zip(place, moved):
                all_of[i] = v
            return listed(getattr(o, case.op.name)(*all_of, **case.attrs))

        def slopes(*moved):  # its float results
            return [v for i, v in enumerate(op(*moved)) if i in floats]

        def gradient(*moved):  # of its results, bent so that what is linear has second derivatives
            def bent(*moved):
                return [o.add(v, o.mul(o.mul(v, v), 0.5)) for v in slopes(*moved)]
            return o.vjp(bent, moved, given)[len(floats):]

        moved, found = [x[i] for i in place], []
        given = shaped_like(o, weights, lambda: slopes(*moved), case)
        along = shaped_like(o, ways, lambda: moved, case)
        if "value" in names:
            found += op(*moved)
        if "jvp" in names:
            found += o.jvp(slopes, moved, along)
        if "vjp" in names:
            found += o.vjp(slopes, moved, given)
        if "forward over reverse" in names:
            found += o.jvp(gradient, moved, along)[len(place):]
        if "reverse over reverse" in names:
            found += o.vjp(gradient, moved, along)[len(place):]
        return found
    return program


@pytest.mark.parametrize("name", sorted(TWINS))
def test_derivatives(name):
    rng, programs, derived = np.random.default_rng([SEED, zlib.crc32(name.encode())]), [], False
    for number, case in enumerate(cases(name)):
        names = asked(case, number, derived)
        derived = derived or "vjp" in names
        if names:
            programs.append((f"{case}: {', '.join(names)}", derivatives(case, names, rng), case.operands))
    check(name, programs)
