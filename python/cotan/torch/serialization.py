"""torch.serialization: save and load, and the lists of classes that PyTorch's load takes from files."""
from ._whole import load, save  # noqa: F401

_safe = []


def add_safe_globals(safe_globals):
    """Remembers the classes. load with weights_only=True reads data only, whatever is listed here."""
    _safe.extend(one for one in safe_globals if one not in _safe)


def get_safe_globals():
    return list(_safe)


def clear_safe_globals():
    _safe.clear()


class safe_globals:
    """Remembers the classes within a block."""

    def __init__(self, safe_globals):
        self._added = safe_globals

    def __enter__(self):
        self._before = get_safe_globals()
        add_safe_globals(self._added)

    def __exit__(self, *exception):
        _safe[:] = self._before


def get_unsafe_globals_in_checkpoint(f):
    return []


def set_default_load_endianness(endianness):
    """Does nothing: files say their order of bytes."""


class skip_data:
    def __init__(self, materialize_fake_tensors=False):
        raise NotImplementedError("torch.serialization.skip_data: files are written with their data")
