"""cotan info of files that are no run's: what they hold is said whatever they are called."""
import gzip
import os
import struct
import subprocess
from pathlib import Path

import pytest

COTAN = Path(os.environ.get("COTAN_BUILD", Path(__file__).resolve().parents[2] / "build")) / "cotan"


def info(path):
    done = subprocess.run([COTAN, "info", path], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def idx(code, dims, data):
    return bytes([0, 0, code, len(dims)]) + struct.pack(f">{len(dims)}I", *dims) + data


IMAGES = idx(8, (3, 28, 28), bytes(3 * 28 * 28))


@pytest.mark.parametrize("content,said", [
    (IMAGES, f"idx: {'(3, 28, 28) u8':<28} 2352 bytes\n"),
    (idx(14, (2,), bytes(16)), f"idx: {'(2,) f64':<28} 16 bytes\n"),
    (idx(11, (0, 7), b""), f"idx: {'(0, 7) i16':<28} 0 bytes\n"),
    (gzip.compress(IMAGES, mtime=0), "gzip: {n} bytes, packed; unpack it: gunzip {path}\n"),
    (b"\0\0\x08\0a", "not UTF-8 text: 5 bytes; there are zero bytes in it\n"),  # too little to go by
    (b"\0\0\x0a\1\0\0\0\1a", "not UTF-8 text: 9 bytes; there are zero bytes in it\n"),  # an unknown type
    (b"\0\0\x08\x21\0\0\0\1a", "not UTF-8 text: 9 bytes; there are zero bytes in it\n"),  # too many axes
], ids=["images", "f64", "of-nothing", "packed", "no-axes", "unknown-type", "many-axes"])
def test_files_known_by_their_content(tmp_path, content, said):
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(content)
    assert info(path) == (0, said.format(n=len(content), path=path))


def test_an_idx_file_that_is_cut_short(tmp_path):
    path = tmp_path / "images"
    path.write_bytes(IMAGES[:-1])
    assert info(path) == (
        1, f"cotan: {path}: the sizes ask for 2352 elements of 1 bytes, the file holds 2351 bytes\n")


def test_metrics_alone(tmp_path):
    """The line of a run's last step evaluated the weights behind it, which its configuration tells."""
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 0, "loss": 4.5, "val_loss": 4}\n{"step": 1, "loss": 3.25}\n'
                    '{"step": 2, "loss": 2.5, "val_loss": 2}\n')
    told = "training: 3 steps, loss 4.5000 at first and 2.5000 at last\nvalidation: loss 2.0000 after {} steps\n"
    assert info(path) == (0, told.format(2))
    (tmp_path / "config.json").write_text('{"training": {"evaluated": 3}}')
    assert info(path) == (0, told.format(3))
    done = subprocess.run([COTAN, "info", path.name], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, told.format(3))
    path.write_text('{"step": 0, "accuracy": 1}\n')
    assert info(path) == (0, "metrics: no losses\n")
    path.rename(other := tmp_path / "my-metrics.jsonl")
    assert info(other)[1].startswith("text: 27 bytes, 27 characters, 1 lines\n")
