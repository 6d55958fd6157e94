"""Gradient clipping, and parameters as one vector."""
import math

from ... import _core
from ..._core import ops
from ..._grad import no_grad
from ..functional.base import concat

Tensor = _core.Tensor


def _with_grads(parameters):
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [parameter for parameter in parameters if parameter.grad is not None]


def get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Returns the norm of all elements of all tensors, as of one vector."""
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not tensors:
        return _core.asarray(0.0)
    norm_type = float(norm_type)
    if norm_type == math.inf:
        total = ops.max(concat([ops.reshape(ops.max(ops.abs(x)), (1,)) for x in tensors], 0))
    else:
        powers = [ops.sum(x * x if norm_type == 2 else ops.pow(ops.abs(x), norm_type)) for x in tensors]
        total = powers[0]
        for power in powers[1:]:
            total = total + power
        total = ops.sqrt(total) if norm_type == 2 else ops.pow(total, 1.0 / norm_type)
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RuntimeError(f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot "
                           "be clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
                           "`error_if_nonfinite=False`")
    return total


def clip_grads_with_norm_(parameters, max_norm, total_norm, foreach=None):
    """Scales gradients by max_norm / total_norm if that is less than 1."""
    with no_grad():
        scale = ops.minimum(float(max_norm) / (total_norm + 1e-6), 1.0)
        grads = [parameter.grad for parameter in _with_grads(parameters)]
        _core._write(grads, [grad * scale for grad in grads])


def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Scales all gradients together to at most this norm; returns the norm that they had, without reading
    it."""
    parameters = _with_grads(parameters)
    with no_grad():
        total = get_total_norm([parameter.grad for parameter in parameters], norm_type, error_if_nonfinite)
    clip_grads_with_norm_(parameters, max_norm, total)
    return total


def clip_grad_value_(parameters, clip_value, foreach=None):
    """Clips the elements of gradients to at least -clip_value and at most clip_value."""
    with no_grad():
        grads = [parameter.grad for parameter in _with_grads(parameters)]
        _core._write(grads, [ops.clamp(grad, -float(clip_value), float(clip_value)) for grad in grads])


def parameters_to_vector(parameters):
    return concat([ops.reshape(parameter, (-1,)) for parameter in parameters], 0)


def vector_to_parameters(vec, parameters):
    """Writes the elements of a vector to the parameters, one parameter after the other."""
    at, parameters, values = 0, list(parameters), []
    with no_grad():
        for parameter in parameters:
            n = parameter.numel()
            values.append(ops.reshape(ops.slice(vec, axes=(0,), start=(at,), stop=(at + n,)), tuple(parameter.shape)))
            at += n
        _core._write(parameters, values)
