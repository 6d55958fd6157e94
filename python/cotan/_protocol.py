"""Python's protocols: iteration and `in`."""
from . import _core


def tensor_iter(x):
    """Yields the rows along the first axis, as views."""
    if not x.ndim:
        raise TypeError("a tensor without axes cannot be iterated over")
    return (x[i] for i in range(x.shape[0]))


def tensor_contains(x, value):
    """True if any element is equal to the value."""
    return bool((x == value).numpy().any())


_core.Tensor.__iter__ = tensor_iter
_core.Tensor.__contains__ = tensor_contains
