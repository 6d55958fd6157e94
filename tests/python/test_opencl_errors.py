"""What drivers of OpenCL do wrong, by a library in the place of theirs (opencl_driver.c): each is an error in a sentence."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
PYTHON = Path(os.environ.get("COTAN_BUILD", HERE.parents[1] / "build")).resolve() / "python"
PROGRAM = """
import numpy as np, cotan as ct
try:
    x = ct.tensor(np.ones(3, DTYPE))
    np.asarray(x + x)
except ct.Error as e:
    print(e)
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    folder = tmp_path_factory.mktemp("driver")
    for name, source in ("driver.so", HERE.parent / "error/opencl_driver.c"), ("empty.so", "/dev/null"):
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", str(source), "-o", str(folder / name)], check=True)
    return folder


def said(tmp_path, library, how="", dtype="float32", program=PROGRAM):
    (tmp_path / "step.py").write_text(program.replace("DTYPE", repr(dtype)))
    env = os.environ | {"PYTHONPATH": str(PYTHON), "COTAN_DEVICE": "opencl", "COTAN_OPENCL_LIBRARY": str(library), "DRIVER": how,
                        "COTAN_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "step.py"], cwd=tmp_path, capture_output=True, text=True, env=env)
    return re.sub(r"k_[0-9a-f]{32}", "k_HASH", done.stdout + done.stderr[-300:])


INSTALL = "\n  hint: apt-get install ocl-icd-libopencl1, and the driver of a device (pocl-opencl-icd: the CPU)"


def test_no_library(tmp_path):
    assert said(tmp_path, "/no/library.so") == ("opencl: there is no OpenCL here: /no/library.so: cannot open shared object file: "
                                                f"No such file or directory{INSTALL}\n")


def test_another_library(tmp_path, driver):
    assert said(tmp_path, driver / "empty.so") == f"opencl: {driver}/empty.so has no function clGetPlatformIDs\n"


@pytest.mark.parametrize("how,dtype,message", [
    ("none", "float32", "opencl: no OpenCL driver provides a device\n  hint: install a device's driver (pocl-opencl-icd: the CPU)"),
    ("old", "float32", 'opencl: a stub has "OpenCL 1.1 Stub", and OpenCL 1.2 is the least that is used'),
    ("broken", "float32", "opencl: clGetPlatformIDs failed: out of host memory (-6)"),
    ("full", "float32", "opencl: clCreateBuffer failed: no memory for a buffer on the device (-4)"),
    ("plain", "float64", "step.py:5: opencl: float64 is computed here, and a stub has none (cl_khr_fp64)"),
    ("rejects", "float32", "step.py:5: opencl: the driver's compiler rejects kernel k_HASH (-11): "
                           "<source>:3:7: error: no such thing as vload16"),
    ("lost", "float32", "opencl: clEnqueueNDRangeKernel failed: out of resources (-5)"),
])
def test_a_driver_that_fails(tmp_path, driver, how, dtype, message):
    text = said(tmp_path, driver / "driver.so", how, dtype)
    assert text.replace(str(tmp_path) + "/", "") == message + "\n"


def test_one_that_does_not(tmp_path, driver):
    assert said(tmp_path, driver / "driver.so") == ""


def test_what_was_compiled_stays_on_disk(tmp_path, driver):
    """Two kernels of a step are one program, which the next process finds; not that of another step, nor what is damaged."""
    def counted(step):
        text = said(tmp_path, driver / "driver.so", "keeps", program=f"""
import numpy as np, cotan as ct
x = ct.tensor(np.ones(3, "float32"))
{step}
counts = ct.stats()
print(counts["kernels_compiled"], counts["kernels_loaded"])
""")
        return text.strip()

    step = "ct.eval(x + x, (x * 2.0).sum())"
    assert counted(step) == "2 0" and counted(step) == "0 2" and counted(step + "; ct.eval(ct.exp(x))") == "1 2"
    for kept in (tmp_path / "cache").iterdir():
        kept.write_bytes(kept.read_bytes()[1:])
    assert counted(step) == "2 0"
