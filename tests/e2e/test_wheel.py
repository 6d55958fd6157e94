"""The wheel: made from the sources, installed where there is neither a compiler nor the sources, and used there."""
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not os.environ.get("COTAN_TEST_ALL"), reason="builds the library anew; make test-all does")
PROGRAM = """
import time
begin = time.perf_counter()
import cotan
x = cotan.asarray([1.0, 2.0, 3.0]).requires_grad_()
(x * x).sum().backward()
assert x.grad.tolist() == [2.0, 4.0, 6.0]
print(time.perf_counter() - begin)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    place = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", place, ROOT / "python"], check=True,
                   env={**os.environ, "TMPDIR": str(place)})
    wheel, = place.glob("cotan-*.whl")
    assert "-cp311-abi3-" in wheel.name
    venv.create(place / "venv", with_pip=True)
    python = place / "venv/bin/python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", wheel], check=True)
    return python


def test_it_is_small(installed):
    package, = installed.parents[1].glob("lib/python3*/site-packages/cotan")
    size = sum(path.stat().st_size for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert (package / "py.typed").exists() and (package / "nn/functional/loss.py").exists()
    assert size < 12 << 20
    assert {"custom_op.h", "ops.h", "cotan.h"} <= {path.name for path in (package / "include/cotan").iterdir()}


def test_a_c_file_of_ops_is_loaded(installed):
    plugin = str(ROOT / "examples/plugin/window_attention.c")
    program = f"import cotan; ops = cotan.library.load({plugin!r}); print(ops.swish(cotan.ones(2), 0.0).tolist())"
    done = subprocess.run([installed, "-c", program], capture_output=True, text=True, cwd="/")
    assert done.stdout == "[0.5, 0.5]\n", done.stderr


def run(python, path, **env):
    return subprocess.run([python, "-c", PROGRAM], capture_output=True, text=True, cwd="/",
                          env={"PATH": path, "HOME": str(python.parents[2]), **env})


def test_first_gradient(installed):
    done = run(installed, os.environ["PATH"])
    assert done.returncode == 0 and float(done.stdout) < 60, done.stderr


def test_without_a_compiler_it_interprets_and_says_so(installed, tmp_path):
    done = run(installed, str(tmp_path), XDG_CACHE_HOME=str(tmp_path), COTAN_DEVICE="cpu")
    assert done.returncode == 0 and float(done.stdout) < 60, done.stderr
    assert "interpret" in done.stderr, done.stderr
