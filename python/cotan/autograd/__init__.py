"""Gradients of values, by the names of torch.autograd."""
from .. import _core
from .._core import Tensor, ops
from .._dtypes import COMPLEX
from .. import _function as function  # noqa: F401  torch.autograd.function
from .._function import Function
from .._grad import enable_grad, inference_mode, no_grad, set_grad_enabled
from .._gradcheck import gradcheck, gradgradcheck

__all__ = ["Function", "Variable", "backward", "enable_grad", "grad", "gradcheck", "gradgradcheck", "inference_mode",
           "no_grad", "set_grad_enabled"]


def Variable(data, requires_grad=False):
    """The tensor itself: a name from before tensors had histories."""
    return data.requires_grad_() if requires_grad else data


def _listed(tensors):
    return (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)


def _total(outputs, cotangents, name):
    """The one number whose gradients are wanted: the sum of all products."""
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


def _slopes(total, inputs, retain, create):
    """Gradients with respect to each input by itself: one that is computed of another is no constant for that one's."""
    inner = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad and not x.is_leaf]
    groups = [[i] for i in inner] + [[i for i in range(len(inputs)) if i not in inner]]
    groups = [group for group in groups if group] if inner else [range(len(inputs))]
    found = {}
    for k, group in enumerate(groups):
        keeps = retain or k + 1 < len(groups)
        found.update(zip(group, _core._grad(total, tuple(inputs[i] for i in group), None, keeps, create)))
    return [found[i] for i in range(len(inputs))]


def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, only_inputs=True, allow_unused=None,
         is_grads_batched=False, materialize_grads=False):
    """A tuple: the gradients of the outputs (each one number, or times its grad_outputs) with respect to each input, which may
    be any value behind them. An input that no output hangs on is an error, None with allow_unused, 0 with materialize_grads."""
    if is_grads_batched:
        raise NotImplementedError("grad: grad_outputs of a batch are asked for; cotan.vmap of vjp's function gives them")
    outputs, inputs = _listed(outputs), _listed(inputs)
    cotangents = (None,) * len(outputs) if grad_outputs is None else _listed(grad_outputs)
    if len(cotangents) != len(outputs):
        raise RuntimeError(f"grad: there are {len(outputs)} outputs and {len(cotangents)} grad_outputs")
    with enable_grad():
        total = _total(outputs, cotangents, "grad")
        retain = create_graph if retain_graph is None else retain_graph
        found = _slopes(total, inputs, bool(retain), bool(create_graph))
    missing = [i for i, one in enumerate(found) if one is None]
    if missing and materialize_grads:
        found = [_core.full(x.shape, 0, x.dtype) if one is None else one for one, x in zip(found, inputs)]
    elif missing and not allow_unused:
        raise RuntimeError(f"grad: no output hangs on input {missing[0]}\n  hint: allow_unused=True gives None for it")
    return tuple(ops.conj(one) if one is not None and one.dtype in COMPLEX else one for one in found)


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, inputs=None):
    """Adds the gradients of the tensors' sum (of products with grad_tensors) to .grad of the leaves behind them."""
    tensors = _listed(tensors)
    cotangents = (None,) * len(tensors) if grad_tensors is None else _listed(grad_tensors)
    with enable_grad():
        _total(tensors, cotangents, "backward").backward(retain_graph=retain_graph, create_graph=create_graph, inputs=inputs)


from . import functional  # noqa: E402, F401
