"""Critical sections, which run completely or not at all, even if Ctrl-C, or another signal's handler, raises
at any moment."""
import functools

from ._core import Swap, Whole

__all__ = ["Around", "Swap", "whole"]


def whole(function):
    """A decorator: during the function signals are held back, and exceptions of their handlers are raised
    after it.

    For a context manager's __enter__, they are raised inside the block. Swap(object, name, value) needs no
    decorator, since it is implemented in C. User code should be outside, since it may take long."""
    return functools.update_wrapper(Whole(function), function)


class Around:
    """with Around(begin, end): calls begin(), runs the block, then calls end(); both calls are critical
    sections."""

    def __init__(self, begin, end):
        self.begin, self.end = begin, end

    @whole
    def __enter__(self):
        self.begin()

    @whole
    def __exit__(self, *exception):
        self.end()
