"""Turns the recording of histories on and off."""
from . import _core
from ._decorated import decorate_with_context


class set_grad_enabled(_core.GradSetting):
    """Turns histories on or off from here on; as `with set_grad_enabled(mode):` only within the block, and as
    a decorator only within the function.

    The mode belongs to the thread. What is recorded without a history is a constant for gradients, even if it
    was computed from a tensor that requires them.
    """

    def __call__(self, function):
        _core._set_grad_enabled(self.before)  # a decorator changes nothing at the point where it is written
        return decorate_with_context(function, lambda: set_grad_enabled(self.mode))


class _GradModeDecorator(_core.GradMode):
    """A context manager and decorator, with or without parentheses: @no_grad, @no_grad(), with no_grad():"""

    mode = False

    def __new__(cls, function=None):
        self = super().__new__(cls)
        return self if function is None else decorate_with_context(function, cls)

    def __call__(self, function):
        return decorate_with_context(function, type(self))


class no_grad(_GradModeDecorator):
    """A context manager: nothing that is recorded inside has a history, and variables may be written in
    place."""


class inference_mode(_GradModeDecorator):
    """The same as no_grad, for code that never needs gradients."""


class enable_grad(_GradModeDecorator):
    """A context manager that keeps histories again inside no_grad."""

    mode = True
