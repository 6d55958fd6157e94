"""Kernels written by hand as a GPU's, on OpenCL (PoCL in CI): a group of 16 threads is the vector. COTAN_TEST_ALL=1: of all programs that run such
kernels; PoCL takes minutes to compile them."""
import os
import subprocess
from pathlib import Path

import pytest
from support.program import BUILD

ROOT = Path(__file__).resolve().parents[2]
ALL = ["kir", "kir_ops", "kir_reduce", "kir_math", "template_index", "template_matmul"] if os.environ.get("COTAN_TEST_ALL") == "1" else []


@pytest.mark.parametrize("name", ["kir_narrow", "kir_bind", *ALL])
def test_kernels_of_threads(name):
    leaks = ROOT / "tests/support/leaks-of-drivers.txt"  # what the sanitizers' builds do not count
    env = os.environ | {"COTAN_TEST_KIR": "opencl", "LSAN_OPTIONS": f"suppressions={leaks}:print_suppressions=0"}
    done = subprocess.run([str(BUILD.resolve() / f"tests/unit/test_{name}")], cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
