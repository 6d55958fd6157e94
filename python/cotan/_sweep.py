"""Gradients of histories with hooks: points at which Python computes how gradients continue
(autograd.Function, tensor hooks, checkpoints).

A sweep goes backwards from cut to cut (ct_history_cut). The part of the history between two cuts is differentiated by
the library, as one node; a hook's owner computes the cotangents of its operands from those of its results.
Values are given by the bits of their handles."""
import threading
import weakref

from . import _core
from ._core import ops
from ._dtypes import COMPLEX
from ._grad import enable_grad, no_grad
from ._whole import Swap, whole


class _SweepState(threading.local):
    inside = False  # true while this thread is in a sweep
    retained = ()  # the gradients found for tensors that retain them


_state = _SweepState()


class HookOwner:
    """The owner of a hook: pull(operands, results, cotangents) returns pairs (value, cotangent) from which
    the sweep continues. operands and results are bits; a value is bits or a Tensor; a cotangent is a Tensor,
    or None if there is no gradient."""

    def free(self):
        """Called when the history that leads here is used up."""


def _accumulate(to, bits, cotangent):
    to[bits] = to[bits] + cotangent if bits in to else cotangent


def _backward_pass(root, targets, create):
    """Returns ({bits: gradient} of leaves and targets, the roots of all parts of the history, the owners
    called)."""
    pending = {_core._bits(root): ops.cast(_core.full((), 1), root.dtype)}
    result, used, owners, alive = {}, [], [], {}  # alive: values that nothing else holds yet
    while pending:
        owner, boundary, operands, inside_roots, frontier, leaves = _core._cut(tuple(pending), targets)
        cotangents = tuple(pending.pop(bits) for bits in inside_roots)
        used += inside_roots
        if frontier or leaves:
            grads = _core._segment(inside_roots, cotangents, frontier + leaves, create)
            for bits, grad in zip(frontier, grads):
                _accumulate(pending, bits, grad)
            for bits, grad in zip(leaves, grads[len(frontier):]):
                _accumulate(result, bits, grad)
        for bits in inside_roots:
            alive.pop(bits, None)
        if not boundary:
            break
        cotangents = [pending.pop(bits, None) for bits in boundary]
        used += boundary
        if owner is None or boundary[0] in targets:
            result[boundary[0]] = owner.seen(cotangents[0]) if isinstance(owner, TensorHooks) else cotangents[0]
        elif any(cotangent is not None for cotangent in cotangents):
            owners.append(owner)
            for value, cotangent in owner.pull(operands, boundary, cotangents):
                if not isinstance(value, int):
                    alive[_core._bits(value)] = value
                    value = _core._bits(value)
                _accumulate(pending, value, cotangent)
    return result, tuple(used), owners


def _run_pass(root, targets, retain, create):
    traced = _core._tracing() if _state.inside else _core._begin_backward()
    retained = []
    with Swap(_state, "inside", True), Swap(_state, "retained", retained), (enable_grad if create else no_grad)():
        result, used, owners = _backward_pass(root, targets, create)
    if not (retain or create or traced):
        _core._use_history(used)
        for owner in owners:
            owner.free()
    return result, retained


@whole
def _store_grads(result, retained, create):
    """Stores all gradients that a backward pass found, or none: whatever may raise runs before the first is
    stored."""
    _core._give(tuple(result), tuple(result.values()), create)
    _store_retained_grads(retained)


@whole
def _store_retained_grads(retained):
    for x, grad in retained:
        x.grad = grad if x.grad is None else x.grad + grad


def _backward(loss, retain, create, inputs):
    if not loss.requires_grad:
        _core._leaves(loss)  # raises an error if there are none
    result, retained = _run_pass(loss, (), retain, create)
    if inputs is not None:
        wanted = {_core._bits(one) for one in (inputs if isinstance(inputs, (list, tuple)) else (inputs,))}
        result = {bits: grad for bits, grad in result.items() if bits in wanted}
    _store_grads(result, retained, create)


def _grad(loss, inputs, retain, create):
    wanted = tuple(_core._bits(one) for one in inputs)
    if not loss.requires_grad:
        return (None,) * len(inputs)
    if create is None:
        create = any(bits not in wanted for bits in _core._leaves(loss))
    result, retained = _run_pass(loss, wanted, retain, create)
    _store_retained_grads(retained)
    return tuple(result.get(bits) for bits in wanted)


def _on_write(x):
    """Called after a write in place: the gradient that x retains becomes that of its new value; hooks stay
    with the value for which they were registered."""
    _, owner = x.__dict__.pop("_hooks")
    if owner.retained:
        owner.retained = None
        if x.requires_grad:
            x.retain_grad()


_core._set_sweeps(_backward, _grad, _on_write)


def conj(x):
    """Conjugates: the library's cotangents of complex numbers are the conjugates of PyTorch's."""
    return ops.conj(x) if x is not None and x.dtype in COMPLEX else x


class TensorHooks(HookOwner):
    """The owner of a computed tensor that has hooks."""

    def __init__(self):
        self.hooks, self.retained = {}, None

    @classmethod
    def of(cls, x):
        """Returns the owner of x; makes one if x has none, or if its value has changed since."""
        bits, owner = x.__dict__.get("_hooks", (None, None))
        if bits != _core._bits(x):
            if _core._followed(x):
                raise RuntimeError("register_hook, retain_grad: something was computed of the tensor before, whose "
                                   "gradient would not come by here\n  hint: call it where the tensor is made, before it is used")
            owner = cls()
            x.__dict__["_hooks"] = (_core._hook_here(x, owner), owner)
        return owner

    def retain(self, x):
        self.retained = weakref.ref(x)

    def seen(self, cotangent):
        grad = conj(cotangent)
        for hook in list(self.hooks.values()):
            changed = hook(grad)
            grad = grad if changed is None else changed
        x = self.retained and self.retained()
        if x is not None:
            _state.retained.append((x, grad))
        return conj(grad)

    def pull(self, operands, results, cotangents):
        return [(operands[0], self.seen(cotangents[0]))]
