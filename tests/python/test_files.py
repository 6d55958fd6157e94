"""load_file, save_file, safe_open: safetensors and .npz files of any names."""
import os
import subprocess
import sys

import numpy as np
import pytest

import cotan

I = cotan.asarray
NAMES = ("a.b/c d", "", "Ünï ☃", 'q"\n\\', "x" * 300)
DTYPES = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16", "float32", "float64",
          "complex64", "float8_e4m3fn", "float8_e5m2")


def tensors():
    made = {name: cotan.arange(6, dtype=cotan.float32).reshape(2, 3) + i for i, name in enumerate(NAMES)}  # pending
    made.update({dtype: I([0, 1, 1]).to(dtype) for dtype in DTYPES})
    made.update(scalar=I(2.5), empty=cotan.zeros(0, 3), parameter=cotan.nn.Parameter(cotan.ones(2)), view=cotan.arange(6).reshape(2, 3).T)
    return made


def same(a, b):
    assert list(sorted(a)) == list(sorted(b))
    for name, tensor in a.items():
        other = b[name]
        assert other.dtype == tensor.dtype and tuple(other.shape) == tuple(tensor.shape) and other.tolist() == tensor.tolist(), name


def test_safetensors_read_back(tmp_path):
    path, wanted = tmp_path / "é.safetensors", tensors()
    cotan.save_file(wanted, path, {"format": "pt", "ü": ""})
    same(wanted, cotan.load_file(path))
    with cotan.safe_open(str(path)) as file:
        assert sorted(file.keys()) == sorted(wanted) and file.metadata() == {"format": "pt", "ü": ""}
        kept = file.get_tensor("")
        with pytest.raises(KeyError, match="has no tensor 'a'"):
            file.get_tensor("a")
    assert kept.tolist() == wanted[""].tolist()
    with pytest.raises(ValueError, match="is closed$"):
        file.get_tensor("")
    first = path.read_bytes()
    cotan.save_file(dict(reversed(wanted.items())), path, {"ü": "", "format": "pt"})
    assert path.read_bytes() == first and os.listdir(tmp_path) == ["é.safetensors"]
    cotan.save_file({}, path)
    assert cotan.load_file(path) == {} and cotan.safe_open(path).metadata() is None


def test_npz_read_back(tmp_path):
    path = tmp_path / "x.npz"
    wanted = {name: tensor for name, tensor in tensors().items() if tensor.dtype not in (
        cotan.bfloat16, cotan.float8_e4m3fn, cotan.float8_e5m2)}
    wanted["wide"] = I([1 + 2j], dtype=cotan.complex128)
    cotan.save_file(wanted, path)
    same(wanted, cotan.load_file(path))
    with np.load(path) as theirs:
        assert sorted(theirs) == sorted(wanted) and (theirs["a.b/c d"] == wanted["a.b/c d"].numpy()).all()
    np.savez_compressed(path, **{"p/q": np.arange(3), "é": np.float64(2)})
    assert {name: tensor.tolist() for name, tensor in cotan.load_file(path).items()} == {"p/q": [0, 1, 2], "é": 2.0}


def test_a_replaced_file_and_a_shortened_one(tmp_path):
    path = tmp_path / "x.safetensors"
    cotan.save_file({"a": cotan.zeros(100_000), "b": I([7])}, path)
    with cotan.safe_open(path) as file:
        cotan.save_file({"a": cotan.ones(1)}, path)
        assert file.get_tensor("a").sum().item() == 0 and file.get_tensor("b").tolist() == [7]
    with cotan.safe_open(path) as file:
        os.truncate(path, os.path.getsize(path) - 1)
        with pytest.raises(cotan.Error) as error:
            file.get_tensor("a")
    assert str(path) in str(error.value)
    for n in (0, 7, 8, 20, os.path.getsize(path)):
        os.truncate(path, n)
        with pytest.raises(cotan.Error) as error:
            cotan.load_file(path)
        assert str(path) in str(error.value)
    with pytest.raises(FileNotFoundError):
        cotan.load_file(tmp_path / "none")


FULL = """
import resource, signal, sys, cotan
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
try:
    cotan.save_file({"a": cotan.zeros(100000)}, sys.argv[1])
except cotan.Error as error:
    print(error)
"""


@pytest.mark.parametrize("name", ["x.safetensors", "x.npz"])
def test_a_full_disk_loses_nothing(tmp_path, name):
    path = tmp_path / name
    cotan.save_file({"a": I([1, 2])}, path)
    run = subprocess.run([sys.executable, "-c", FULL, path], capture_output=True, text=True, check=True,
                         env={**os.environ, "COTAN_COMPILE": "wait"})
    assert "File too large" in run.stdout and str(path) in run.stdout
    assert cotan.load_file(path)["a"].tolist() == [1, 2] and os.listdir(tmp_path) == [name]


def test_what_is_refused(tmp_path):
    path, one = tmp_path / "x.safetensors", cotan.ones(1)
    for call, kind, words in (
            (lambda: cotan.save_file({"__metadata__": one}, path), ValueError, 'tensor "__metadata__": this name is reserved by the format'),
            (lambda: cotan.save_file({"z": I([1j], dtype=cotan.complex128)}, path), ValueError,
             'tensor "z": the format has no name for its dtype'),
            (lambda: cotan.save_file({"a\0b": one}, path), ValueError, "save_file: the name 'a\\x00b' holds a zero character"),
            (lambda: cotan.save_file({1: one}, path), TypeError,
             "save_file: 1 is Tensor: each name is a string, what it names a tensor"),
            (lambda: cotan.save_file({"a": 1}, path), TypeError,
             "save_file: 'a' is int: each name is a string, what it names a tensor"),
            (lambda: cotan.save_file([one], path), TypeError, "save_file: tensors by their names are needed, a dict, not list"),
            (lambda: cotan.save_file({"a": one}, path, {"k": 1}), TypeError,
             "save_file: the metadata has 'k': 1: both must be strings without zero characters"),
            (lambda: cotan.save_file({"a": one}, tmp_path / "x.npz", {"k": ""}), ValueError, "save_file: a .npz file has no metadata"),
            (lambda: cotan.safe_open(path, framework="jax"), ValueError,
             "safe_open: the framework is 'jax', tensors are Cotan's: leave it out")):
        with pytest.raises(kind) as error:
            call()
        assert str(error.value).endswith(words)
    assert os.listdir(tmp_path) == []
