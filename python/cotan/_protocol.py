"""Python's own protocols: iteration and `in`."""
from . import _core


def iterated(x):
    """The rows along the first axis, as views."""
    if not x.ndim:
        raise TypeError("a tensor without axes cannot be iterated over")
    return (x[i] for i in range(x.shape[0]))


def contained(x, value):
    """Is any element equal to the value?"""
    return bool((x == value).numpy().any())


_core.Tensor.__iter__ = iterated
_core.Tensor.__contains__ = contained
