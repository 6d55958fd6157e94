"""Spectral norm as a hook before forward, by the names of torch.nn.utils.spectral_norm; newer programs use parametrizations."""
from ... import _core, _random
from ..._core import ops
from ..._grad import no_grad
from ..functional import normalize
from ..parameter import Parameter
from .weight_norm import _check_can_hook, _find_hook

__all__ = ["SpectralNorm", "remove_spectral_norm", "spectral_norm"]


class SpectralNorm:
    """The hook that divides the weight by its largest singular value, as vectors weight_u and weight_v track it."""

    def __init__(self, name="weight", n_power_iterations=1, dim=0, eps=1e-12):
        if n_power_iterations <= 0:
            raise ValueError(f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}")
        self.name, self.dim, self.n_power_iterations, self.eps = name, dim, n_power_iterations, eps

    def reshape_weight_to_matrix(self, weight):
        order = [self.dim, *(axis for axis in range(weight.ndim) if axis != self.dim)]
        return ops.reshape(ops.permute(weight, order), (weight.shape[self.dim], -1))

    def compute_weight(self, module, do_power_iteration):
        weight, u, v = (getattr(module, self.name + end) for end in ("_orig", "_u", "_v"))
        matrix = self.reshape_weight_to_matrix(weight)
        if do_power_iteration:
            with no_grad():
                new_u, new_v = u, v
                for _ in range(self.n_power_iterations):
                    new_v = normalize(matrix.mT @ new_u, dim=0, eps=self.eps)
                    new_u = normalize(matrix @ new_v, dim=0, eps=self.eps)
                _core._write([u, v], [new_u, new_v])
        return weight / ops.sum(u.clone() * (matrix @ v.clone()))

    def remove(self, module):
        with no_grad():
            weight = self.compute_weight(module, False)
        for end in ("", "_u", "_v", "_orig"):
            delattr(module, self.name + end)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module, inputs):
        setattr(module, self.name, self.compute_weight(module, module.training))

    @staticmethod
    def apply(module, name, n_power_iterations, dim, eps):
        _check_can_hook(module, SpectralNorm, name, "spectral_norm")
        hook, weight = SpectralNorm(name, n_power_iterations, dim, eps), module._parameters[name]
        if weight is None:
            raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
        sizes = hook.reshape_weight_to_matrix(weight).shape
        delattr(module, name)
        module.register_parameter(name + "_orig", weight)
        setattr(module, name, weight.detach())
        for end, size in zip(("_u", "_v"), sizes):
            start = ops.cast(_random.gaussian((size,), 0.0, 1.0), weight.dtype)
            module.register_buffer(name + end, normalize(start, dim=0, eps=eps))
        module.register_forward_pre_hook(hook)
        module._register_state_dict_hook(_StateDictHook(hook))
        return hook


class _StateDictHook:
    """Writes the version of the hook's state, by which PyTorch knows that weight_v is there."""

    def __init__(self, fn):
        self.fn = fn

    def __call__(self, module, state_dict, prefix, local_metadata):
        local_metadata.setdefault("spectral_norm", {})[self.fn.name + ".version"] = 1


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """Divides the weight by its largest singular value; dim is the axis of outputs."""
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    SpectralNorm.apply(module, name, n_power_iterations, dim, eps)
    return module


def remove_spectral_norm(module, name="weight"):
    """Makes the weight a parameter again, with its present value."""
    key = _find_hook(module, SpectralNorm, name)
    if key is None:
        raise ValueError(f"spectral_norm of '{name}' not found in {module}")
    module._forward_pre_hooks.pop(key).remove(module)
    for key, (hook, _) in list(module._state_dict_hooks.items()):
        if isinstance(hook, _StateDictHook) and hook.fn.name == name:
            del module._state_dict_hooks[key]
    return module
