"""Files of named tensors: safetensors, and NumPy's .npz."""
import os
from collections.abc import Mapping

from . import _core
from ._core import Tensor

__all__ = ["load_file", "safe_open", "save_file"]


def _is_npz(path):
    """True for NumPy's files, which are zip archives; safetensors files begin with the length of a header."""
    with open(path, "rb") as file:
        return file.read(4) in (b"PK\3\4", b"PK\5\6")


class safe_open:
    """A file whose tensors are read on request: `with safe_open(path) as f: f.get_tensor(f.keys()[0])`.

    Each tensor is read by itself, however large the file is. If the file is replaced meanwhile, the old one
    is read."""

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
        """Returns the names, in the order of the file."""
        return list(self._keys)

    offset_keys = keys

    def metadata(self):
        """Returns the file's metadata, a dict of strings, or None."""
        return dict(self._metadata) or None

    def get_tensor(self, name):
        """Returns the tensor of that name."""
        if self._file is None:
            raise ValueError(f"safe_open: {self._name} is closed")
        if name not in self._keys:
            raise KeyError(f"{self._name} has no tensor {name!r}")
        result = _core._file_get(self._file, name)
        return result if self._device == "cpu" else result.to(self._device)


def load_file(filename, device="cpu"):
    """Returns all tensors of a safetensors or .npz file, as a dict by name."""
    with safe_open(filename, device=device) as file:
        return {name: file.get_tensor(name) for name in file.keys()}


def save_file(tensors, filename, metadata=None):
    """Writes tensors, a dict by name, to a safetensors file, or to a NumPy file if the name ends in .npz.

    The file is written completely or not at all, and replaces an existing one. `metadata`: a dict of
    strings."""
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
