"""Calls of modules with other parameters, by the names of torch.nn.utils.stateless."""
import warnings

__all__ = ["functional_call"]


def functional_call(module, parameters_and_buffers, args=None, kwargs=None, *, tie_weights=True, strict=False):
    """The same as cotan.func.functional_call, by its older name."""
    from ...func import functional_call as call
    warnings.warn("This API is deprecated and will be removed in a future PyTorch release. Please use torch.func.functional_call "
                  "as a drop-in replacement.", FutureWarning, stacklevel=2)
    return call(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)
