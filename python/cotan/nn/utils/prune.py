"""Pruning: masks of parameters that are applied before each forward, by the names of torch.nn.utils.prune."""
from abc import ABC, abstractmethod
from collections.abc import Iterable
from numbers import Integral, Real

from ... import _core, _random
from ..._core import ops
from .clip import parameters_to_vector

Tensor = _core.Tensor


def _ones_like(x):
    return ops.expand(ops.cast(1.0, x.dtype), tuple(x.shape))


class BasePruningMethod(ABC):
    """The base of pruning methods. A subclass defines compute_mask(t, default_mask), the mask of which zeros prune, and
    PRUNING_TYPE: "unstructured", "structured" (along self.dim) or "global"."""

    _tensor_name = None

    def __call__(self, module, inputs):
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t, default_mask):
        """Returns the mask for the importance scores t; default_mask: the mask before."""

    def apply_mask(self, module):
        if self._tensor_name is None:
            raise AssertionError(f"Module {module} has to be pruned")
        original = getattr(module, self._tensor_name + "_orig")
        return ops.cast(getattr(module, self._tensor_name + "_mask"), original.dtype) * original

    @classmethod
    def apply(cls, module, name, *args, importance_scores=None, **kwargs):
        """Prunes module.name, after what pruned it before: the parameter becomes name_orig, the mask the buffer name_mask."""
        found = [key for key, hook in module._forward_pre_hooks.items()
                 if isinstance(hook, BasePruningMethod) and hook._tensor_name == name]
        if len(found) > 1:
            raise AssertionError(f"Avoid adding multiple pruning hooks to the same tensor {name} of module {module}. Use a "
                                 "PruningContainer.")
        method, before = cls(*args, **kwargs), module._forward_pre_hooks[found[0]] if found else None
        method._tensor_name = name
        original = getattr(module, name)
        if importance_scores is not None and tuple(importance_scores.shape) != tuple(original.shape):
            raise AssertionError(f"importance_scores should have the same shape as parameter {name} of {module}")
        scores = (original if importance_scores is None else importance_scores).detach()
        mask = _ones_like(original)
        if before is not None:
            container = before if isinstance(before, PruningContainer) else PruningContainer(before)
            container.add_pruning_method(method)
            method, mask = container, getattr(module, name + "_mask").detach()
        mask = method.compute_mask(scores, default_mask=mask)
        if before is None:
            del module._parameters[name]
            module.register_parameter(name + "_orig", original)
        else:
            del module._forward_pre_hooks[found[0]]
        module.register_buffer(name + "_mask", mask)
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def prune(self, t, default_mask=None, importance_scores=None):
        """Returns t times the mask, without a module."""
        if importance_scores is not None and tuple(importance_scores.shape) != tuple(t.shape):
            raise AssertionError("importance_scores should have the same shape as tensor t")
        scores = t if importance_scores is None else importance_scores
        return t * self.compute_mask(scores, default_mask=_ones_like(t) if default_mask is None else default_mask)

    def remove(self, module):
        """Makes the pruned tensor the parameter; the hook stays for prune.remove to delete."""
        name = self._tensor_name
        weight = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        original = module._parameters.pop(name + "_orig")
        original.data = weight.detach()
        del module._buffers[name + "_mask"]
        setattr(module, name, original)


class PruningContainer(BasePruningMethod):
    """Several methods that prune one tensor, one after the other: each sees what those before it left."""

    def __init__(self, *args):
        self._pruning_methods = ()
        if len(args) == 1:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method):
        if not isinstance(method, BasePruningMethod) and method is not None:
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and self._tensor_name != method._tensor_name:
            raise ValueError(f"Can only add pruning methods acting on the parameter named '{self._tensor_name}' to "
                             f"PruningContainer {self}. Found '{method._tensor_name}'")
        self._pruning_methods += (method,)

    def __len__(self):
        return len(self._pruning_methods)

    def __iter__(self):
        return iter(self._pruning_methods)

    def __getitem__(self, index):
        return self._pruning_methods[index]

    def compute_mask(self, t, default_mask):
        """Computes the last method's mask of what is not pruned yet."""
        method, mask = self._pruning_methods[-1], ops.cast(default_mask, t.dtype)
        if method.PRUNING_TYPE == "global":
            return ops.cast(method.compute_mask(t, default_mask=mask), mask.dtype)
        if method.PRUNING_TYPE == "unstructured":
            kept = (mask == 1).reshape(-1).nonzero().reshape(-1)
            part = method.compute_mask(ops.gather(t.reshape(-1), kept, axis=0),
                                       default_mask=ops.gather(mask.reshape(-1), kept, axis=0))
            return ops.scatter(mask.reshape(-1), kept, ops.cast(part, mask.dtype), axis=0).reshape(tuple(mask.shape))
        if method.PRUNING_TYPE != "structured":
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        if not hasattr(method, "dim"):
            raise AttributeError('Pruning methods of PRUNING_TYPE "structured" need to have the attribute `dim` defined.')
        axis = method.dim + t.ndim if method.dim < 0 else method.dim
        if axis < 0:
            raise IndexError(f"Index is out of bounds for tensor with dimensions {t.ndim}")
        others = tuple(i for i in range(t.ndim) if i != axis)
        kept = (ops.sum(mask, axes=others) != 0).nonzero().reshape(-1)
        part = method.compute_mask(ops.gather(t, kept, axis=axis), default_mask=ops.gather(mask, kept, axis=axis))
        return ops.scatter(mask, kept, ops.cast(part, mask.dtype), axis=axis)


class Identity(BasePruningMethod):
    """Prunes nothing."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t, default_mask):
        return default_mask


def _lowest_to_zero(scores, n, mask):
    """Returns the mask with zeros at the n lowest scores (K,); scores are along an axis to which the mask broadcasts."""
    if n == 0:
        return mask
    rank = ops.argsort(ops.argsort(scores, axis=0), axis=0)
    kept = ops.greater_equal(rank, n)
    return ops.select(kept.reshape(tuple(mask.shape)) if kept.numel() == mask.numel() else kept, mask, 0.0)


class _ByAmount(BasePruningMethod):
    """The base of methods that prune a number, or a fraction, of elements or of slices along an axis."""

    def __init__(self, amount):
        if not isinstance(amount, Real):
            raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
        if amount < 0 or not isinstance(amount, Integral) and amount > 1.0:
            raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")
        self.amount = amount

    def _count(self, size):
        if not isinstance(self.amount, Integral):
            return round(self.amount * size)
        if self.amount > size:
            raise ValueError(f"amount={self.amount} should be smaller than the number of parameters to prune={size}")
        return self.amount

    def _mask_of_slices(self, t, scores, default_mask):
        """Masks the slices along self.dim of the lowest scores (size,)."""
        if t.ndim <= 1:
            raise ValueError("Structured pruning can only be applied to multidimensional tensors. Found tensor of shape "
                             f"{tuple(t.shape)} with {t.ndim} dims")
        if self.dim >= t.ndim:
            raise IndexError(f"Invalid index {self.dim} for tensor of size {tuple(t.shape)}")
        axis, count = self.dim % t.ndim, self._count(t.shape[self.dim])
        shape = [t.shape[axis] if i == axis else 1 for i in range(t.ndim)]
        slices = _lowest_to_zero(scores(axis), count, _core.full((t.shape[axis],), 1, t.dtype))
        return ops.cast(default_mask, t.dtype) * ops.reshape(slices, shape)


class RandomUnstructured(_ByAmount):
    """Prunes elements that are drawn."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t, default_mask):
        return _lowest_to_zero(_random.uniform((t.numel(),)), self._count(t.numel()), default_mask)


class L1Unstructured(_ByAmount):
    """Prunes the elements of the lowest magnitude."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t, default_mask):
        return _lowest_to_zero(ops.reshape(ops.abs(t), (-1,)), self._count(t.numel()), default_mask)


class RandomStructured(_ByAmount):
    """Prunes slices along an axis that are drawn."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount, dim=-1):
        super().__init__(amount)
        self.dim = dim

    def compute_mask(self, t, default_mask):
        return self._mask_of_slices(t, lambda axis: _random.uniform((t.shape[axis],)), default_mask)


class LnStructured(RandomStructured):
    """Prunes the slices along an axis of the lowest n-norm."""

    def __init__(self, amount, n, dim=-1):
        super().__init__(amount, dim)
        self.n = n

    def compute_mask(self, t, default_mask):
        return self._mask_of_slices(t, lambda axis: ops.vector_norm(
            t, axes=tuple(i for i in range(t.ndim) if i != axis), ord=2.0 if self.n == "fro" else float(self.n)), default_mask)


class CustomFromMask(BasePruningMethod):
    """Prunes by a mask that is given."""

    PRUNING_TYPE = "global"

    def __init__(self, mask):
        self.mask = mask

    def compute_mask(self, t, default_mask):
        if tuple(default_mask.shape) != tuple(self.mask.shape):
            raise AssertionError(f"the mask is {tuple(self.mask.shape)}, the tensor {tuple(default_mask.shape)}")
        return default_mask * ops.cast(self.mask, default_mask.dtype)


def _function_of(kind):
    """Returns the function that prunes module.name by a method of this kind and returns the module."""
    def prune(module, name, *args, **kwargs):
        kind.apply(module, name, *args, **kwargs)
        return module

    return prune


identity, random_unstructured, l1_unstructured, random_structured, ln_structured, custom_from_mask = map(
    _function_of, (Identity, RandomUnstructured, L1Unstructured, RandomStructured, LnStructured, CustomFromMask))


def global_unstructured(parameters, pruning_method, importance_scores=None, **kwargs):
    """Prunes pairs (module, name) as if they were one tensor."""
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    scores = {} if importance_scores is None else importance_scores
    if not isinstance(scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    parameters, method = list(parameters), pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError('Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
                        f"{pruning_method} of type {method.PRUNING_TYPE}")
    container = PruningContainer()
    container._tensor_name = method._tensor_name = "temp"
    container.add_pruning_method(method)
    values = [getattr(module, name) for module, name in parameters]
    important = parameters_to_vector([scores.get(pair, value).detach() for pair, value in zip(parameters, values)])
    before = parameters_to_vector([getattr(module, name + "_mask", _ones_like(value))
                                   for (module, name), value in zip(parameters, values)])
    mask, at = container.compute_mask(important, before), 0
    for (module, name), value in zip(parameters, values):
        custom_from_mask(module, name, ops.reshape(mask[at:at + value.numel()], tuple(value.shape)))
        at += value.numel()


def remove(module, name):
    """Makes pruning permanent: the pruned tensor is the parameter again."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")


def is_pruned(module):
    """True if the module, or one in it, has a pruned tensor."""
    return any(isinstance(hook, BasePruningMethod) for one in module.modules() for hook in one._forward_pre_hooks.values())
