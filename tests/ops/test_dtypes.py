"""The table of dtypes: promotion of all pairs against JAX."""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from op_cases import DTYPES, NUMPY, PROGRAM

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
    except jax.dtypes.TypePromotionError:
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
