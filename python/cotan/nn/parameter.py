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


class UninitializedTensorMixin:
    """A parameter or buffer whose shape is not known yet: a lazy module's, before its first call."""

    _becomes = None

    def materialize(self, shape, device=None, dtype=None):
        """Gives it the shape, with zeros; from then on it is a Parameter, or a Tensor."""
        value = _core.full(tuple(shape), 0, self.dtype if dtype is None else dtype)
        _core._replace(self, value._to(self._device_name() if device is None else str(device)))
        self.__class__ = self._becomes

    @property
    def shape(self):
        raise RuntimeError("Can't access the shape of an uninitialized parameter or buffer. This error usually happens in "
                           "`load_state_dict` when trying to load an uninitialized parameter into an initialized module. Call "
                           "`forward` to initialize the parameters before accessing their attributes.")

    def share_memory_(self):
        raise RuntimeError("Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the "
                           "parameters before calling `module.share_memory()`.")

    def __repr__(self):
        return f"<{type(self).__name__}>"


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    _becomes = Parameter

    def __new__(cls, requires_grad=True, device=None, dtype=None):
        self = Parameter.__new__(cls, _core.full((0,), 0, dtype or _core.float32), requires_grad)
        return self if device is None else self._to(str(device))

    def __init__(self, requires_grad=True, device=None, dtype=None):
        pass

    def __deepcopy__(self, memo):
        return memo.setdefault(id(self), type(self)(self.requires_grad, dtype=self.dtype))


class UninitializedBuffer(UninitializedTensorMixin, _core.Tensor):
    _becomes = _core.Tensor

    def __new__(cls, requires_grad=False, device=None, dtype=None, persistent=True):
        self = _core.Tensor.__new__(cls, _core.full((0,), 0, dtype or _core.float32))
        self.persistent = persistent
        return self if device is None else self._to(str(device))

    def __init__(self, requires_grad=False, device=None, dtype=None, persistent=True):
        pass


def is_lazy(param):
    """True for a parameter or buffer without a shape."""
    return isinstance(param, UninitializedTensorMixin)
