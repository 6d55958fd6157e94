"""Gradients of values, by the names of torch.autograd."""
import contextlib

from .. import _core
from .._core import Tensor, ops
from .._dtypes import COMPLEX
from .. import _function as function  # noqa: F401  torch.autograd.function
from .._function import Function
from .._grad import enable_grad, inference_mode, no_grad, set_grad_enabled
from .._gradcheck import gradcheck, gradgradcheck

__all__ = ["Function", "Variable", "backward", "detect_anomaly", "enable_grad", "grad", "gradcheck", "gradgradcheck",
           "inference_mode", "no_grad", "set_detect_anomaly", "set_grad_enabled"]


def Variable(data, requires_grad=False):
    """Returns the tensor itself: a name from before tensors had histories."""
    return data.requires_grad_() if requires_grad else data


def _as_list(tensors):
    return (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)


def _sum_of_products(outputs, cotangents, name):
    """Returns the scalar to differentiate: the sum of all products."""
    total = None
    for output, cotangent in zip(outputs, cotangents):
        if cotangent is None and output.numel() != 1:
            raise RuntimeError(f"{name}: an output is {output.shape}, it must be one number\n  hint: give grad_outputs of its shape")
        if cotangent is not None:
            if tuple(cotangent.shape) != tuple(output.shape):
                raise RuntimeError(f"{name}: the output is {output.shape}, its grad_outputs is {cotangent.shape}")
            output = _core._paired(output, ops.conj(cotangent) if cotangent.dtype in COMPLEX else cotangent)
        total = output if total is None else total + output
    return total


def _gradients(total, inputs, retain, create):
    """Returns the gradients with respect to each input separately: an input that is computed from another one
    is no constant for it."""
    inner = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad and not x.is_leaf]
    groups = [[i] for i in inner] + [[i for i in range(len(inputs)) if i not in inner]]
    groups = [group for group in groups if group] if inner else [range(len(inputs))]
    result = {}
    for k, group in enumerate(groups):
        keeps = retain or k + 1 < len(groups)
        result.update(zip(group, _core._grad(total, tuple(inputs[i] for i in group), None, keeps, create)))
    return [result[i] for i in range(len(inputs))]


def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, only_inputs=True, allow_unused=None,
         is_grads_batched=False, materialize_grads=False):
    """Returns a tuple of the gradients of the outputs (each a scalar, or multiplied by its grad_outputs) with
    respect to each input, which may be any value of their history. For an input on which no output depends it
    raises an error; with allow_unused it returns None, with materialize_grads 0."""
    if is_grads_batched:
        raise NotImplementedError("grad: grad_outputs of a batch are asked for; cotan.vmap of vjp's function gives them")
    outputs, inputs = _as_list(outputs), _as_list(inputs)
    cotangents = (None,) * len(outputs) if grad_outputs is None else _as_list(grad_outputs)
    if len(cotangents) != len(outputs):
        raise RuntimeError(f"grad: there are {len(outputs)} outputs and {len(cotangents)} grad_outputs")
    with enable_grad():
        total = _sum_of_products(outputs, cotangents, "grad")
        retain = create_graph if retain_graph is None else retain_graph
        result = _gradients(total, inputs, bool(retain), bool(create_graph))
    missing = [i for i, one in enumerate(result) if one is None]
    if missing and materialize_grads:
        result = [_core.full(x.shape, 0, x.dtype) if one is None else one for one, x in zip(result, inputs)]
    elif missing and not allow_unused:
        raise RuntimeError(f"grad: no output hangs on input {missing[0]}\n  hint: allow_unused=True gives None for it")
    return tuple(ops.conj(one) if one is not None and one.dtype in COMPLEX else one for one in result)


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, inputs=None):
    """Adds the gradients of the sum of the tensors (multiplied by grad_tensors) to .grad of the leaves of
    their histories."""
    tensors = _as_list(tensors)
    cotangents = (None,) * len(tensors) if grad_tensors is None else _as_list(grad_tensors)
    with enable_grad():
        _sum_of_products(tensors, cotangents, "backward").backward(retain_graph=retain_graph, create_graph=create_graph, inputs=inputs)


class set_detect_anomaly(contextlib.nullcontext):
    """Changes nothing, as a call or a with block: an error of backward names the op and its line as it is, and NaN is no
    error."""

    def __init__(self, mode, check_nan=True):
        super().__init__()


class detect_anomaly(set_detect_anomaly):
    """Changes nothing."""

    def __init__(self, check_nan=True):
        super().__init__(True)


from . import functional, graph  # noqa: E402, F401
