"""Copies and pickles of tensors: deep copies and pickles have values of their own; a shallow copy shares its
elements."""
import copy
import warnings

from . import _core
from .nn.parameter import Parameter

HOOKS = ("_backward_hooks", "_hooks")  # belong to one tensor, not to its copies


def attributes(x):
    return {name: value for name, value in x.__dict__.items() if name not in HOOKS}


def tensor_deepcopy(x, memo):
    if id(x) not in memo:
        if not x.is_leaf:
            raise RuntimeError("deepcopy: only tensors without a history are copied\n  hint: detach() before")
        made = _core.Tensor.__new__(type(x), _core._snapshot(x))
        memo[id(x)] = made.requires_grad_() if x.requires_grad else made
        if x.grad is not None and not isinstance(x, Parameter):  # as in PyTorch
            made.grad = copy.deepcopy(x.grad, memo)
        made.__dict__.update(copy.deepcopy(attributes(x), memo))
    return memo[id(x)]


def tensor_copy(x):
    """Returns a leaf with the same elements; a write to either is seen in both."""
    made = _core._detached(x)
    made.__dict__.update(attributes(x))
    return made.requires_grad_() if x.requires_grad else made


def tensor_reduce(x, protocol):
    for hook in x.__dict__.get("_backward_hooks", {}).values():
        warnings.warn(f"pickle: the hook {hook!r} of a tensor is left out", stacklevel=2)
    return made_again, (type(x), x.detach().numpy(), x.dtype, x.requires_grad, attributes(x))


def made_again(cls, array, dtype, requires_grad, attributes):
    tensor = _core.Tensor.__new__(cls, array, dtype)
    tensor.__dict__.update(attributes)
    return tensor.requires_grad_() if requires_grad else tensor


_core.Tensor.__deepcopy__ = tensor_deepcopy
_core.Tensor.__copy__ = tensor_copy
_core.Tensor.__reduce_ex__ = tensor_reduce
