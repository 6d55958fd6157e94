"""Device opencl, on whatever driver is there (PoCL in CI): the bits of device cpu, with guards behind every buffer. Some ops stand here
for all: `make test-all` runs every test of tests/ops with COTAN_TEST_DEVICES=opencl."""
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from op_cases import NUMPY, Case, Failure, read_table, run

ROOT = Path(__file__).resolve().parents[2]
COTAN = Path(os.environ.get("COTAN_BUILD", ROOT / "build")).resolve() / "cotan"
TABLE = read_table()
SEED = 20261126
RNG = np.random.default_rng(SEED)


def normal(*dims, dtype="f32"):
    return (RNG.normal(size=dims) * 3).astype(np.float32).astype(NUMPY[dtype])


A, B = normal(7, 45), normal(7, 45)
SOME = [
    Case(TABLE["add"], [A, B]), Case(TABLE["exp"], [A * 20]), Case(TABLE["sin"], [A * 1e5]),
    Case(TABLE["div"], [A.astype(np.int32), B.astype(np.int32)]), Case(TABLE["pow"], [np.abs(A.astype(np.float64)), B.astype(np.float64)]),
    *[Case(TABLE["mul"], [normal(5, 19, dtype=d), normal(5, 19, dtype=d)]) for d in ("bf16", "f16", "f8e4m3", "i8")],
    Case(TABLE["cast"], [A * 1e3], {"dtype": "u8"}), Case(TABLE["sum"], [normal(3, 5000)], {"axes": [1]}),
    Case(TABLE["max"], [np.where(A > 5, np.nan, A)], {"axes": [0]}), Case(TABLE["argmax"], [A], {"axis": 1}),
    Case(TABLE["matmul"], [normal(33, 300), normal(300, 40)]), Case(TABLE["matmul"], [normal(1, 300, dtype="bf16"), normal(300, 40, dtype="bf16")]),
    Case(TABLE["cumsum"], [normal(3, 1500)], {"axis": 1}), Case(TABLE["sort"], [A], {"axis": 1}),
    Case(TABLE["gather"], [A, np.array([[6], [0], [3]], np.int32)], {"axis": 0}),
]


@pytest.mark.parametrize("device", ["opencl", "async:opencl"])
def test_the_bits_of_cpu(device):
    """Of every kind of op, and of arithmetic: behind a queue the kernels come from the disk."""
    wants = run(SOME, "cpu", compiled=False)
    leaks = ROOT / "tests/support/leaks-of-drivers.txt"  # what the sanitizers' builds do not count
    env = {"COTAN_CHECK": "bounds", "LSAN_OPTIONS": f"suppressions={leaks}:print_suppressions=0"}
    for case, want, got in zip(SOME, wants, run(SOME, device, **env)):
        assert not isinstance(want, Failure) and not isinstance(got, Failure), (SEED, case, want, got)
        for w, g in zip(want, got):
            assert w.dtype == g.dtype and w.shape == g.shape and w.tobytes() == g.tobytes(), (SEED, case, w, g)


def trained(folder, device, precision):
    """The run of `make run`, a hundred steps of it: what each step said but for its speed, and the weights. Both devices have
    the same numerics then."""
    sizes = ["--layers", "4", "--heads", "4", "--width", "128", "--context", "64", "--batch", "12", "--seed", "1", "--precision", precision]
    done = subprocess.run([str(COTAN), "train", "--data", str(ROOT / "src"), str(ROOT / "docs"), "--out", str(folder), "--steps", "100",
                           "--eval-every", "100", "--save-every", "100", "--eval-batches", "2", "--device", device, *sizes],
                          capture_output=True, text=True, env=os.environ | {"COTAN_BF16_DOT": "0"})
    assert done.returncode == 0, done.stderr
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    said = [{k: v for k, v in step.items() if k not in ("ms", "tokens_per_s")} for step in steps]
    return said, [(folder / f"{file}.safetensors").read_bytes() for file in ("model", "state")]


@pytest.mark.skipif(os.environ.get("COTAN_TEST_ALL") != "1", reason="half a minute of the driver's compiler")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_text_run_has_the_bits_of_cpu(tmp_path, precision):
    (said, files), (said_here, files_here) = (trained(tmp_path / device, device, precision) for device in ("cpu", "opencl"))
    assert len(said) == 100 and said == said_here
    assert files == files_here
