"""Files that hold tensors by name: safetensors, and NumPy's .npz."""
import os
from collections.abc import Mapping

from . import _core
from ._core import Tensor

__all__ = ["load_file", "safe_open", "save_file"]


def _is_npz(path):
    """NumPy's files are zip archives; the first bytes of the others are the length of a header."""
    with open(path, "rb") as file:
        return file.read(4) in (b"PK\3\4", b"PK\5\6")


class safe_open:
    """A file whose tensors are read when they are asked for: `with safe_open(path) as f: f.get_tensor(f.keys()[0])`.

    What one of them holds is read by itself, however large the file is. A file that is replaced is read as it was."""

    def __init__(self, filename, framework="pt", device="cpu"):
        if framework not in ("pt", "torch", "np", "numpy", "cotan"):
            raise ValueError(f"safe_open: the framework is {framework!r}, tensors are Cotan's: leave it out")
        self._name, self._device = os.fspath(filename), str(device)
        self._file, self._keys, self._metadata = _core._file_open(filename, _is_npz(filename))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._file = None

    def keys(self):
        """The names, in the order of the file."""
        return list(self._keys)

    offset_keys = keys

    def metadata(self):
        """Texts that the file holds beside its tensors, or None."""
        return dict(self._metadata) or None

    def get_tensor(self, name):
        """The tensor of that name."""
        if self._file is None:
            raise ValueError(f"safe_open: {self._name} is closed")
        if name not in self._keys:
            raise KeyError(f"{self._name} has no tensor {name!r}")
        found = _core._file_get(self._file, name)
        return found if self._device == "cpu" else found.to(self._device)


def load_file(filename, device="cpu"):
    """All tensors of a safetensors or .npz file, by their names."""
    with safe_open(filename, device=device) as file:
        return {name: file.get_tensor(name) for name in file.keys()}


def save_file(tensors, filename, metadata=None):
    """Writes tensors, a dict by names, to a safetensors file, or to one of NumPy's where the name ends in .npz.

    The file appears whole or not at all, in place of one that was there. `metadata`: texts by texts."""
    is_npz = os.fsdecode(filename).endswith(".npz")
    if not isinstance(tensors, Mapping):
        raise TypeError(f"save_file: tensors by their names are needed, a dict, not {type(tensors).__name__}")
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise TypeError(f"save_file: {name!r} is {type(tensor).__name__}: each name is a string, what it names a tensor")
        if "\0" in name:
            raise ValueError(f"save_file: the name {name!r} holds a zero character")
    for key, value in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(value, str) or "\0" in key + value:
            raise TypeError(f"save_file: the metadata has {key!r}: {value!r}: both must be strings without zero characters")
    if is_npz and metadata:
        raise ValueError("save_file: a .npz file has no metadata")
    _core.eval(*tensors.values())
    _core._file_save(filename, list(tensors.items()), list((metadata or {}).items()), is_npz)
