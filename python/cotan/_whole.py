"""What happens whole or not at all, whatever the instant at which Ctrl-C, or another signal's handler, raises."""
import functools

from ._core import Swap, Whole

__all__ = ["Around", "Swap", "whole"]


def whole(function):
    """The function, as a decorator, during which signals wait; what their handlers raise comes up behind it.

    Of a context manager's __enter__ it comes up inside of the block. Swap(object, name, value) needs no such: it is C's.
    What users wrote belongs outside, since it may take long."""
    return functools.update_wrapper(Whole(function), function)


class Around:
    """with Around(begin, end): begin(), then the block, then end(): both are whole."""

    def __init__(self, begin, end):
        self.begin, self.end = begin, end

    @whole
    def __enter__(self):
        self.begin()

    @whole
    def __exit__(self, *exception):
        self.end()
