"""How tensors are written: NumPy's layout of numbers, PyTorch's word around it."""
import sys

from . import _core

DEFAULTS = (_core.float32, _core.int64, _core.bool)


def representation(x):
    """tensor([[1., 2.]], dtype=cotan.float64): the dtype where the numbers don't show it."""
    import numpy

    prefix = "tensor("
    array = x.numpy()
    limit = sys.maxsize if numpy.get_printoptions()["threshold"] >= x.numel() else 1000
    text = numpy.array2string(array, separator=", ", prefix=prefix, threshold=limit)
    shown = "" if x.dtype in DEFAULTS and x.numel() else f", dtype={x.dtype!r}"
    if not x.numel() and x.shape != (0,):
        shown = f", shape={tuple(x.shape)}" + shown
    return f"{prefix}{text}{shown})"


def text(x):
    """The numbers alone, without commas, as NumPy's str; of a tensor without axes its number."""
    return str(x.numpy())


def formatted(x, spec):
    """A tensor of one element is formatted as its number."""
    return format(x.item(), spec) if spec and x.numel() == 1 else format(str(x), spec)


_core.Tensor.__repr__ = representation
_core.Tensor.__str__ = lambda x: repr(x)
_core.Tensor.__format__ = formatted
