"""Parametrizations, parameters that are computed from others: by the names of torch.nn.utils.parametrize.

A module's parameter becomes a property of a new class of the module, which applies modules to the original
parameter, stored under module.parametrizations.
"""
from ... import _core
from ..._grad import no_grad
from ..._whole import Around
from ..container import ModuleDict, ModuleList
from ..module import Module
from ..parameter import Parameter

Tensor = _core.Tensor
_cache, _cached = {}, 0


def cached():
    """A context manager in which each parametrized tensor is computed once."""
    return Around(lambda: _add_cache_depth(1), lambda: _add_cache_depth(-1))


def _add_cache_depth(more):
    global _cached
    _cached += more
    if not _cached:
        _cache.clear()


class ParametrizationList(ModuleList):
    """The modules that are applied to one tensor, and the tensors that it is computed from: `original`, or
    original0, original1 and so on."""

    def __init__(self, modules, original, unsafe=False):
        super().__init__(modules)
        self.unsafe = unsafe
        value = original
        with no_grad():
            for module in reversed(self):
                if hasattr(module, "right_inverse"):
                    try:
                        value = module.right_inverse(value)
                    except NotImplementedError:  # as without one: the tensor itself is the original
                        pass
        self.is_tensor = isinstance(value, Tensor)
        self.ntensors = 1 if self.is_tensor else len(value)
        if self.is_tensor:
            if value is not original and not _has_same_type(value, original):
                raise ValueError(f"right_inverse gave {tuple(value.shape)} {value.dtype.name} for a tensor {tuple(original.shape)} "
                                 f"{original.dtype.name}, it must keep shape and dtype")
            self._own("original", value, original)
        else:
            for i, part in enumerate(value):
                self._own(f"original{i}", part, original)
        if not unsafe:
            with no_grad():
                result = self()
            if not isinstance(result, Tensor) or not _has_same_type(result, original):
                made = f"{tuple(result.shape)} {result.dtype.name}" if isinstance(result, Tensor) else type(result).__name__
                raise ValueError("a parametrization must keep the tensor's shape and dtype, it made of "
                                 f"{tuple(original.shape)} {original.dtype.name} {made}\n  hint: unsafe=True")

    def _own(self, name, value, original):
        if isinstance(original, Parameter):
            self.register_parameter(name, original if value is original else
                                    Parameter(value.detach(), requires_grad=original.requires_grad))
        else:
            self.register_buffer(name, value)

    def _originals(self):
        return [self.original] if self.is_tensor else [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def right_inverse(self, value):
        """Writes to the originals the values for which the parametrized tensor has the given value."""
        with no_grad():
            for module in reversed(self):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} has no right_inverse")
                value = module.right_inverse(value)
            for original, part in zip(self._originals(), [value] if self.is_tensor else value):
                original.copy_(part)

    def forward(self):
        first, *rest = self
        value = first(*self._originals())
        for module in rest:
            value = module(value)
        return value


def _has_same_type(a, b):
    return tuple(a.shape) == tuple(b.shape) and a.dtype == b.dtype


def _parametrized_property(name):
    def read(self):
        parametrization = self.parametrizations[name]
        if not _cached:
            return parametrization()
        key = id(self), name
        if key not in _cache:
            _cache[key] = parametrization()
        return _cache[key]

    def write(self, value):
        self.parametrizations[name].right_inverse(value)

    return property(read, write)


def register_parametrization(module, tensor_name, parametrization, *, unsafe=False):
    """Makes module.tensor_name the parametrization of its value; a second one is applied after the first."""
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        module.parametrizations[tensor_name].append(parametrization)
        return module
    original = module._parameters.get(tensor_name)
    original = module._buffers.get(tensor_name) if original is None else original
    if original is None:
        raise ValueError(f"module {type(module).__name__} has no parameter, buffer or parametrized tensor {tensor_name!r}")
    if not is_parametrized(module):
        plain = type(module)
        module.__class__ = type(f"Parametrized{plain.__name__}", (plain,), {"__module__": plain.__module__})
        module.parametrizations = ModuleDict()
    parametrizations = ParametrizationList([parametrization], original, unsafe)
    delattr(module, tensor_name)
    setattr(type(module), tensor_name, _parametrized_property(tensor_name))
    module.parametrizations[tensor_name] = parametrizations
    return module


def is_parametrized(module, tensor_name=None):
    results = module.__dict__.get("_modules", {}).get("parametrizations")
    if results is None:
        return False
    return len(results) > 0 if tensor_name is None else tensor_name in results


def remove_parametrizations(module, tensor_name, leave_parametrized=True):
    """Makes module.tensor_name a parameter again, with its present value or its original one."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"module {type(module).__name__} has no parametrization on {tensor_name}")
    parametrizations = module.parametrizations[tensor_name]
    original = parametrizations._originals()[0]
    if leave_parametrized:
        with no_grad():
            value = getattr(module, tensor_name).detach()
        if parametrizations.is_tensor and _has_same_type(original, value):
            original.data.copy_(value)
        else:
            needs = any(one.requires_grad for one in parametrizations._originals())
            original = Parameter(value, requires_grad=needs) if isinstance(original, Parameter) else value
    elif not parametrizations.is_tensor:
        raise ValueError("leave_parametrized=False is only for a tensor that is computed of one original")
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if isinstance(original, Parameter):
        module.register_parameter(tensor_name, original)
    else:
        module.register_buffer(tensor_name, original)
    if not is_parametrized(module):
        del module.parametrizations
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module):
    return type(module).__bases__[0] if is_parametrized(module) else type(module)
