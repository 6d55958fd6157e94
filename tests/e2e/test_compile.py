"""A training step written ahead of time trains without the library, with the library's bits."""
import gzip
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/examples"))
from test_examples import DATA, draw_digits  # noqa: E402

BUILD = Path(os.environ.get("COTAN_BUILD", ROOT / "build")).resolve()
SANITIZED = "COTAN_SANITIZE:BOOL=ON" in (BUILD / "CMakeCache.txt").read_text()
STEPS, BATCH = 30, 64
FLAGS = ["cc -O2", "cc -O3 -march=native", "clang -O2", "clang -O3 -march=native"]


def compiled(folder, options, *words):
    return subprocess.run([*options.split(), "-Wall", "-Wextra", "-Werror", *map(str, words)], cwd=folder, check=True)


def digits(folder):
    """So many images and labels, as raw bytes."""
    packed = [DATA / f"mnist10k-train-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1")]
    if not all(path.is_file() for path in packed):
        draw_digits(folder / "drawn", STEPS * BATCH, 1)
        packed = [folder / f"drawn-{kind}-ubyte" for kind in ("images-idx3", "labels-idx1")]
    for path, name, head, size in zip(packed, ("images", "labels"), (16, 8), (28 * 28, 1)):
        opened = gzip.open(path) if path.suffix == ".gz" else open(path, "rb")
        with opened as f:
            f.read(head)
            (folder / name).write_bytes(f.read(STEPS * BATCH * size))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The step as C, written where there is neither compiler nor cache, and what the library's training printed."""
    folder = tmp_path_factory.mktemp("compile")
    digits(folder)
    env = os.environ | {"COTAN_CC": "/no/such/compiler", "XDG_CACHE_HOME": str(folder / "no-cache")}
    done = subprocess.run([BUILD / "examples/08_compile", folder / "mnist_step"], env=env, capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"") and not (folder / "no-cache").exists()
    sanitizers = ["-fsanitize=address,undefined"] if SANITIZED else []
    compiled(folder, "cc -O2 -std=gnu17", *sanitizers, f"-I{ROOT}/include", f"-I{BUILD}/derived", "-o", "library",
             ROOT / "tests/e2e/digits.c", BUILD / "libcotan.so", f"-Wl,-rpath,{BUILD}")
    done = subprocess.run([folder / "library"], cwd=folder, capture_output=True, text=True, check=True)
    losses = [float.fromhex(line.split()[0]) for line in done.stdout.splitlines()]
    assert len(losses) == STEPS and losses[0] > 2 and losses[-1] < losses[0] / 2
    return folder, done.stdout


@pytest.mark.parametrize("options", [pytest.param(o, id=o.replace(" ", "")) for o in FLAGS])
def test_bits_of_the_library(trained, options):
    folder, said = trained
    compiled(folder, options, "-DWRITTEN", "-I.", "-o", "written", ROOT / "tests/e2e/digits.c", "mnist_step.c", "-lm")
    done = subprocess.run([folder / "written"], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout == said
    assert (folder / "last-written").read_bytes() == (folder / "last").read_bytes()
    assert (folder / "last").read_bytes() != (folder / "first").read_bytes()


def test_needs_libm_alone(trained):
    folder, _ = trained
    compiled(folder, "cc -O2", "-c", "-o", "step.o", "mnist_step.c")
    symbols = subprocess.run(["nm", "step.o"], cwd=folder, capture_output=True, text=True, check=True).stdout.split("\n")
    wanted = {line.split()[-1] for line in symbols if " U " in line}
    assert wanted <= {"fegetenv", "fesetenv", "fmaf", "sqrtf", "floorf", "rintf", "memcpy", "memmove", "memset",
                      "_GLOBAL_OFFSET_TABLE_", "__stack_chk_fail"}, wanted
    assert [line.split()[-1] for line in symbols if " T " in line] == ["mnist_step", "mnist_step_init"]
    libraries = subprocess.run(["ldd", "written"], cwd=folder, capture_output=True, text=True, check=True).stdout
    assert "libm.so" in libraries and "cotan" not in libraries


def test_other_arithmetic_is_refused(trained):
    folder, _ = trained
    done = subprocess.run(["cc", "-Ofast", "-c", "-o", "fast.o", "mnist_step.c"], cwd=folder, capture_output=True, text=True)
    assert done.returncode and '#error "-ffast-math computes other numbers"' in done.stderr
    text = (folder / "mnist_step.h").read_text()
    other = folder / "other"
    other.mkdir()
    (other / "mnist_step.h").write_text(text.replace("_PLAN 0x", "_PLAN 0x1"))
    shutil.copy(folder / "mnist_step.c", other)
    done = subprocess.run(["cc", "-fsyntax-only", "mnist_step.c"], cwd=other, capture_output=True, text=True)
    assert done.returncode and '#error "mnist_step.h is of another plan"' in done.stderr


def test_example_says_what_is_wrong(tmp_path):
    done = subprocess.run([BUILD / "examples/08_compile", tmp_path / "none/step"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{tmp_path}/none/step.c: cannot create: No such file or directory\n"
    done = subprocess.run([BUILD / "examples/08_compile"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("usage: ")
