"""Weight norm as a hook before forward, by the names of torch.nn.utils.weight_norm; newer programs use parametrizations."""
import warnings

from ..parameter import Parameter, is_lazy
from .parametrizations import norm_except_dim

__all__ = ["WeightNorm", "remove_weight_norm", "weight_norm"]


def _find_hook(module, kind, name):
    """Returns the number of the hook of this kind for the parameter, or None."""
    return next((key for key, hook in module._forward_pre_hooks.items() if isinstance(hook, kind) and hook.name == name), None)


def _check_can_hook(module, kind, name, what):
    if _find_hook(module, kind, name) is not None:
        raise RuntimeError(f"Cannot register two {what} hooks on the same parameter {name}")
    if is_lazy(getattr(module, name)):
        raise ValueError(f"The module passed to `{kind.__name__}` can't have uninitialized parameters. Make sure to run the dummy "
                         "forward before applying it")


class WeightNorm:
    """The hook that sets the weight to weight_g times weight_v over its norm."""

    def __init__(self, name, dim):
        self.name, self.dim = name, -1 if dim is None else dim

    def compute_weight(self, module):
        g, v = getattr(module, self.name + "_g"), getattr(module, self.name + "_v")
        return v * (g / norm_except_dim(v, 2, self.dim))

    @staticmethod
    def apply(module, name, dim):
        warnings.warn("`torch.nn.utils.weight_norm` is deprecated in favor of `torch.nn.utils.parametrizations.weight_norm`.",
                      FutureWarning, stacklevel=3)
        _check_can_hook(module, WeightNorm, name, "weight_norm")
        hook, weight = WeightNorm(name, dim), getattr(module, name)
        del module._parameters[name]
        module.register_parameter(name + "_g", Parameter(norm_except_dim(weight, 2, hook.dim).detach()))
        module.register_parameter(name + "_v", Parameter(weight.detach()))
        hook(module, None)
        module.register_forward_pre_hook(hook)
        return hook

    def remove(self, module):
        weight = self.compute_weight(module).detach()
        delattr(module, self.name)
        del module._parameters[self.name + "_g"], module._parameters[self.name + "_v"]
        setattr(module, self.name, Parameter(weight))

    def __call__(self, module, inputs):
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module, name="weight", dim=0):
    """Makes the weight a length weight_g times the direction of weight_v; lengths are over all axes but dim (None: all)."""
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module, name="weight"):
    """Makes the weight a parameter again, with its present value."""
    key = _find_hook(module, WeightNorm, name)
    if key is None:
        raise ValueError(f"weight_norm of '{name}' not found in {module}")
    module._forward_pre_hooks.pop(key).remove(module)
    return module
