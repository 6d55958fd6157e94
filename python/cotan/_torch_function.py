"""__torch_function__: subclasses of Tensor, and other classes, that functions of cotan.torch call."""
from . import _core
from ._core import Tensor


class DisableTorchFunctionSubclass:
    """Within it functions do not call __torch_function__ of subclasses, in this thread."""

    def __enter__(self):
        self.was = _core._dispatch_off(True)

    def __exit__(self, *error):
        _core._dispatch_off(self.was)


def disabled_torch_function(func, types, args=(), kwargs=None):
    """As a class's __torch_function__: its objects are tensors like any other."""
    with DisableTorchFunctionSubclass():
        return func(*args, **kwargs or {})


def _as_subclass(x, cls):
    if isinstance(x, Tensor) and not isinstance(x, cls):
        return _core._as_type(x, cls)
    if isinstance(x, (tuple, list)):
        items = [_as_subclass(item, cls) for item in x]
        return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
    return x


def _torch_function(cls, func, types, args=(), kwargs=None):
    """Calls the function; tensors of the result are of the subclass."""
    if not all(issubclass(cls, one) for one in types):
        return NotImplemented
    return _as_subclass(disabled_torch_function(func, types, args, kwargs), cls)


Tensor.__torch_function__ = classmethod(_torch_function)
