"""Without a compiler: kernels are interpreted, and give the same bits as compiled ones."""
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("COTAN_BUILD", ROOT / "build"))
# Programs whose expectations hold to the bit, whoever runs their kernels.
SUITES = ["unit/test_kir", "unit/test_kir_math", "unit/test_kir_ops", "unit/test_kir_reduce", "unit/test_template_index",
          "unit/test_template_matmul", "unit/test_template_nodes", "unit/test_schedule",
          "unit/test_schedule_places", "unit/test_grad"]


def run(*words, **env):
    return subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=600,
                          stdin=subprocess.DEVNULL, cwd=ROOT, env={**os.environ, **env})


@pytest.mark.parametrize("suite", SUITES)
def test_suite(suite, tmp_path):
    done = run(BUILD / "tests" / suite, COTAN_CC="none", COTAN_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASSED" in done.stdout + done.stderr
    assert not list(tmp_path.iterdir()), "something was compiled"


def train(out, **env):
    return run(BUILD / "cotan", "train", "--data", ROOT / "README.md", "--layers", 2, "--heads", 2, "--width", 64,
               "--context", 40, "--batch", 5, "--steps", 8, "--dropout", 0.1, "--eval-every", 4, "--eval-batches", 2,
               "--seed", 3, "--device", "cpu", "--out", out, **env)


def test_training_gives_the_bits_of_compiled_kernels(tmp_path):
    folders = [tmp_path / name for name in ("compiled", "interpreted", "unfused")]
    for folder, env in zip(folders, ({}, {"COTAN_CC": "none"}, {"COTAN_CC": "none", "COTAN_FUSE": "0"})):
        done = train(folder, **env)
        assert done.returncode == 0, done.stderr
        assert "hint" not in done.stderr, "asked for, so nothing to tell"
    for name in ("model.safetensors", "state.safetensors"):
        assert len({(folder / name).read_bytes() for folder in folders}) == 1, name
    texts = [run(BUILD / "cotan", "sample", folder, "--prompt", "The ", "--max-tokens", 20, "--seed", 1, **env).stdout
             for folder, env in zip(folders[:2], ({}, {"COTAN_CC": "none"}))]
    assert len(texts[0]) >= 20 and texts[0] == texts[1]


def test_a_machine_without_a_compiler_is_told_so_once(tmp_path):
    done = train(tmp_path / "run", COTAN_CC="", PATH="")
    told = ("cpu: neither cc, gcc nor clang is on PATH: kernels are interpreted, several times slower\n"
            "  hint: install gcc or clang")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(told) == 1 and done.stderr.count("interpreted") == 1, done.stderr
