"""Helpers around modules, as in torch.nn.utils."""
import warnings as _warnings

from ..._paths import add_paths as _add_paths
from . import fusion, parametrizations, parametrize, prune, rnn, stateless  # noqa: F401
from .clip import (clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm,
                   parameters_to_vector, vector_to_parameters)
from .fusion import fuse_conv_bn_eval, fuse_conv_bn_weights, fuse_linear_bn_eval, fuse_linear_bn_weights  # noqa: F401
from .spectral_norm import remove_spectral_norm, spectral_norm  # noqa: F401
from .weight_norm import remove_weight_norm, weight_norm  # noqa: F401


def clip_grad_norm(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """The same as clip_grad_norm_, by its older name."""
    _warnings.warn("torch.nn.utils.clip_grad_norm is now deprecated in favor of torch.nn.utils.clip_grad_norm_.", FutureWarning,
                   stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def skip_init(module_cls, *args, **kwargs):
    """Returns a module whose parameters may have any values; the generator of random numbers does not advance."""
    from ..._random import get_rng_state, set_rng_state
    from ..module import Module
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    import inspect
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    before = get_rng_state()
    try:
        return module_cls(*args, **kwargs)
    finally:
        set_rng_state(before)


def convert_conv2d_weight_memory_format(module, memory_format):
    """Returns the module: weights have one layout, whatever is asked for."""
    return module


convert_conv3d_weight_memory_format = convert_conv2d_weight_memory_format

_add_paths(__name__, {
    "clip_grad": {one.__name__: one for one in (clip_grad_norm, clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_,
                                                get_total_norm)},
    "convert_parameters": {one.__name__: one for one in (parameters_to_vector, vector_to_parameters)},
    "init": {"skip_init": skip_init},
    "memory_format": {"convert_conv2d_weight_memory_format": convert_conv2d_weight_memory_format,
                      "convert_conv3d_weight_memory_format": convert_conv3d_weight_memory_format}})
