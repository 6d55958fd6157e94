"""torch.overrides: classes that act like tensors, by __torch_function__."""
import functools

from .._core import Tensor


def _overloaded(args):
    """Returns the arguments with a __torch_function__ of their own, subclasses before their bases."""
    found = []
    for x in args:
        if type(x) is not Tensor and hasattr(type(x), "__torch_function__") and type(x) not in map(type, found):
            at = next((i for i, other in enumerate(found) if issubclass(type(x), type(other))), len(found))
            found.insert(at, x)
    return [x for x in found if type(x).__torch_function__ is not getattr(Tensor, "__torch_function__", None)]


def has_torch_function(relevant_args):
    return bool(_overloaded(relevant_args))


def has_torch_function_unary(x):
    return bool(_overloaded((x,)))


def has_torch_function_variadic(*args):
    return bool(_overloaded(args))


def handle_torch_function(public_api, relevant_args, *args, **kwargs):
    """Returns what the first __torch_function__ gives that does not give NotImplemented."""
    found = _overloaded(relevant_args)
    for x in found:
        result = type(x).__torch_function__(public_api, tuple(map(type, found)), args, kwargs)
        if result is not NotImplemented:
            return result
    raise TypeError(f"no implementation found for '{public_api.__module__}.{public_api.__name__}' on types that implement "
                    f"__torch_function__: {[type(x) for x in found]}")


def wrap_torch_function(dispatcher):
    """Returns a decorator: the function asks the arguments that dispatcher returns first."""
    def decorate(function):
        @functools.wraps(function)
        def wrapped(*args, **options):
            relevant = dispatcher(*args, **options)
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **options)
            return function(*args, **options)
        return wrapped
    return decorate


def is_tensor_like(inp):
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")


def _public(namespace):
    return [value for name, value in vars(namespace).items() if callable(value) and not name.startswith("_")
            and not isinstance(value, type)]


@functools.lru_cache
def get_overridable_functions():
    """Returns {namespace: its functions}."""
    from .. import torch
    from ..nn import functional
    return {torch: _public(torch), functional: _public(functional), Tensor: _public(Tensor)}


def resolve_name(f):
    from .. import torch
    from ..nn import functional
    for name, namespace in (("torch.Tensor", Tensor), ("torch", torch), ("torch.nn.functional", functional)):
        if getattr(namespace, getattr(f, "__name__", ""), None) is f:
            return f"{name}.{f.__name__}"
    return None


class TorchFunctionMode:
    def __enter__(self):
        raise NotImplementedError("TorchFunctionMode: functions are not intercepted for a block\n"
                                  "  hint: __torch_function__ of a class is called")
