"""Parameters: tensors that require gradients, and that modules register when they are assigned."""
from .. import _core
from .._torch_function import disabled_torch_function


class Parameter(_core.Tensor):
    """Parameter(data, requires_grad=True): a new leaf with the data."""

    __torch_function__ = staticmethod(disabled_torch_function)

    def __new__(cls, data=None, requires_grad=True):
        data = _core.asarray([]) if data is None else data
        self = _core.Tensor.__new__(cls, _core._snapshot(data) if isinstance(data, _core.Tensor) else data)
        if requires_grad:
            self.requires_grad_()
        return self

    def __init__(self, data=None, requires_grad=True):
        pass

    def __repr__(self):
        return "Parameter containing:\n" + _core.Tensor.__repr__(self)


class Buffer(_core.Tensor):
    """A tensor that modules register as a buffer when it is assigned."""

    __torch_function__ = staticmethod(disabled_torch_function)

    def __new__(cls, data=None, *, persistent=True):
        self = _core.Tensor.__new__(cls, _core.asarray([]) if data is None else data)
        self.persistent = persistent
        return self

    def __init__(self, data=None, *, persistent=True):
        pass
