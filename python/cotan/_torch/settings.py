"""Limits of dtypes, layouts, and settings of the process."""
from .. import _core, _devices, _dtypes, _print, _pytorch
from .._dtypes import get_default_dtype, promote_types, set_default_dtype  # noqa: F401
from .._pytorch import (channels_last, channels_last_3d, contiguous_format, device, get_num_threads, jagged, layout,  # noqa: F401
                        memory_format, preserve_format, set_num_threads, sparse_bsc, sparse_bsr, sparse_coo, sparse_csc,
                        sparse_csr, strided)
from .._random import default_generator
from .define import define

__all__ = """are_deterministic_algorithms_enabled channels_last channels_last_3d contiguous_format default_generator device finfo
get_default_device get_default_dtype get_deterministic_debug_mode get_float32_matmul_precision get_num_interop_threads
get_num_threads iinfo is_deterministic_algorithms_warn_only_enabled is_storage is_warn_always_enabled jagged layout memory_format
preserve_format promote_types set_default_device set_default_dtype set_default_tensor_type set_deterministic_debug_mode
set_float32_matmul_precision set_flush_denormal set_num_interop_threads set_num_threads set_printoptions set_warn_always
sparse_bsc sparse_bsr sparse_coo sparse_csc sparse_csr strided use_deterministic_algorithms""".split()


class finfo(_dtypes.finfo):
    """The limits of a float dtype; for a complex dtype, those of its parts."""

    def __init__(self, type=None):
        super().__init__(get_default_dtype() if type is None else type)
        self.dtype = self.dtype.name

    def __repr__(self):
        return (f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
                f"smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, dtype={self.dtype})")


class iinfo(_dtypes.iinfo):
    """The limits of an integer dtype."""

    def __init__(self, type):
        super().__init__(type)
        self.dtype = self.dtype.name

    def __repr__(self):
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"


def _never(input):
    """False: values are conjugated and negated when they are computed, and no tensor is bound to inference."""
    return False


for _name in ("is_conj", "is_neg", "is_inference"):
    define(f"{_name}(input)", forms="fm")(_never)


@define("resolve_neg(input)", forms="fm")
def resolve_neg(input):
    """Returns the tensor itself, whose values are never stored conjugated or negated."""
    return input


define("resolve_conj(input)", forms="fm")(resolve_neg)


def is_storage(obj):
    """True for the storage of a tensor's elements."""
    return type(obj).__name__ in ("UntypedStorage", "TypedStorage")


# ---------------------------------------------------------------------------------------- settings

def set_default_tensor_type(t):
    """Sets the default dtype by a tensor type, such as torch.DoubleTensor, or its name."""
    if isinstance(t, str):
        t = getattr(_pytorch, t.rpartition(".")[2])
    set_default_dtype(t.dtype)


def set_default_device(device):
    """Sets the device on which this thread makes tensors; None is that of before."""
    _devices.default_device.names[0] = None if device is None else _pytorch.device(device)


def get_default_device():
    return _pytorch.device(_devices.default_device.names[-1] or _core.full((), 0)._device_name())


def set_printoptions(precision=None, threshold=None, edgeitems=None, linewidth=None, profile=None, sci_mode=None):
    """Sets how tensors are printed: digits after the point, the number of elements above which only edgeitems of each axis
    are shown, characters a line; profile is "default", "short" or "full"."""
    profiles = {"default": (4, 1000, 3, 80), "short": (2, 1000, 2, 80), "full": (4, float("inf"), 3, 80)}
    if profile is not None:
        _print.options.update(zip(("precision", "threshold", "edgeitems", "linewidth"), profiles[profile]))
    given = dict(precision=precision, threshold=threshold, edgeitems=edgeitems, linewidth=linewidth)
    _print.options.update({name: value for name, value in given.items() if value is not None}, sci_mode=sci_mode)


_state = {"interop_threads": 1, "matmul_precision": "highest", "deterministic": False, "warn_only": False, "warn_always": False}


def get_num_interop_threads():
    return _state["interop_threads"]


def set_num_interop_threads(n):
    """Accepted without an effect: a plan uses set_num_threads(n) threads."""
    if n <= 0:
        raise RuntimeError(f"set_num_interop_threads: {n} threads are asked for")
    _state["interop_threads"] = n


def get_float32_matmul_precision():
    return _state["matmul_precision"]


def set_float32_matmul_precision(precision):
    """Accepted without an effect: products of float32 have all its digits."""
    if precision not in ("highest", "high", "medium"):
        raise RuntimeError(f"set_float32_matmul_precision: {precision!r} is no precision: highest, high and medium are")
    _state["matmul_precision"] = precision


def use_deterministic_algorithms(mode, *, warn_only=False):
    """Accepted without an effect: results are the same in every run."""
    _state.update(deterministic=bool(mode), warn_only=bool(warn_only))


def are_deterministic_algorithms_enabled():
    return _state["deterministic"]


def is_deterministic_algorithms_warn_only_enabled():
    return _state["deterministic"] and _state["warn_only"]


def set_deterministic_debug_mode(debug_mode):
    """Accepted without an effect, by number or as "default", "warn", "error"."""
    mode = ("default", "warn", "error").index(debug_mode) if isinstance(debug_mode, str) else debug_mode
    use_deterministic_algorithms(mode > 0, warn_only=mode == 1)


def get_deterministic_debug_mode():
    return _state["deterministic"] * (2 - _state["warn_only"])


def set_warn_always(b):
    """Accepted without an effect: Python's filters determine how often a warning is shown."""
    _state["warn_always"] = bool(b)


def is_warn_always_enabled():
    return _state["warn_always"]


def set_flush_denormal(mode):
    """Returns False: denormal numbers are kept."""
    return False
