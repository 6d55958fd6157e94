"""The examples in Python run, and learn."""
import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.digits import write_idx, written_by_hand

ROOT = Path(__file__).resolve().parents[2]
MNIST = ROOT / "examples/python/mnist.py"
DATA = Path(os.environ.get("COTAN_DATA", ROOT.parent / "shared/data"))


def accuracies(train, test):
    done = subprocess.run([sys.executable, MNIST, train, test], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return [float(x) for x in re.findall(r"accuracy (\S+) %", done.stdout)]


def test_digits_are_learned_in_thirty_lines(tmp_path):
    """1,500 digits written by hand to learn from, and the others to tell."""
    assert len(MNIST.read_text().splitlines()) <= 30
    digits = written_by_hand()
    write_idx(tmp_path / "train", digits[:1500])
    write_idx(tmp_path / "test", digits[1500:])
    for path in list(tmp_path.iterdir()):
        Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
    shown = accuracies(tmp_path / "train", tmp_path / "test")
    assert len(shown) == 5 and shown[-1] > 85


@pytest.mark.skipif(not (DATA / "mnist10k-train-images-idx3-ubyte.gz").exists(), reason=f"{DATA} has no MNIST")
def test_mnist_is_learned():
    shown = accuracies(DATA / "mnist10k-train", DATA / "mnist10k-test")
    assert len(shown) == 5 and shown[-1] > 93
