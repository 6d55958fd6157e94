"""Where histories are kept and where not, and gradients of values."""
from . import _core
from ._decorated import decorated


class set_grad_enabled(_core.GradSetting):
    """Histories are kept from here on, or not; as `with set_grad_enabled(mode):` inside alone, as a decorator in the function.

    It is the thread's. What is recorded where none are kept is a constant to gradients, also of what requires them.
    """

    def __call__(self, function):
        _core._set_grad_enabled(self.before)  # a decorator changes nothing where it stands
        return decorated(function, lambda: set_grad_enabled(self.mode))


class _Mode(_core.GradMode):
    """A context manager and decorator, with or without parentheses: @no_grad, @no_grad(), with no_grad():"""

    mode = False

    def __new__(cls, function=None):
        self = super().__new__(cls)
        return self if function is None else decorated(function, cls)

    def __call__(self, function):
        return decorated(function, type(self))


class no_grad(_Mode):
    """with no_grad(): nothing that is recorded inside has a history; variables may be written in their place."""


class inference_mode(_Mode):
    """no_grad, by the name of who never wants gradients."""


class enable_grad(_Mode):
    """with enable_grad(): inside of no_grad, histories are kept again."""

    mode = True
