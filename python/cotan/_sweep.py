"""Gradients of histories with marks: places where Python says how they go on (autograd.Function, hooks, checkpoint).

A sweep goes backwards from cut to cut (ct_cut): what lies between two is differentiated by the library, as one node,
and a mark's owner gives from the cotangents of its results those of its operands. Values are named by the bits of
their handles."""
import threading
import weakref

from . import _core
from ._core import ops
from ._dtypes import COMPLEX
from ._grad import enable_grad, no_grad
from ._whole import Swap, whole


class _State(threading.local):
    inside = False  # a sweep of this thread is on its way
    retained = ()   # what it found for tensors that retain their gradients


_state = _State()


class Owner:
    """What a mark has: pull(operands, results, cotangents) gives pairs (value, cotangent) from which the sweep goes
    on. operands and results are bits, a value is bits or a Tensor, a cotangent a Tensor, or None where nothing
    came."""

    def free(self):
        """The history that led here is used up."""


def _add(to, bits, cotangent):
    to[bits] = to[bits] + cotangent if bits in to else cotangent


def _sweep(root, targets, create):
    """({bits: gradient} of leaves and targets, the roots of all parts of the history, the owners met)."""
    frontier = {_core._bits(root): ops.cast(_core.full((), 1), root.dtype)}
    found, used, owners, alive = {}, [], [], {}  # alive: values that nothing else holds yet
    while frontier:
        owner, at, operands, inside, behind, leaves = _core._cut(tuple(frontier), targets)
        cotangents = tuple(frontier.pop(bits) for bits in inside)
        used += inside
        if behind or leaves:
            grads = _core._segment(inside, cotangents, behind + leaves, create)
            for bits, grad in zip(behind, grads):
                _add(frontier, bits, grad)
            for bits, grad in zip(leaves, grads[len(behind):]):
                _add(found, bits, grad)
        for bits in inside:
            alive.pop(bits, None)
        if not at:
            break
        cotangents = [frontier.pop(bits, None) for bits in at]
        used += at
        if owner is None or at[0] in targets:
            found[at[0]] = owner.seen(cotangents[0]) if isinstance(owner, Hooks) else cotangents[0]
        elif any(cotangent is not None for cotangent in cotangents):
            owners.append(owner)
            for value, cotangent in owner.pull(operands, at, cotangents):
                if not isinstance(value, int):
                    alive[_core._bits(value)] = value
                    value = _core._bits(value)
                _add(frontier, value, cotangent)
    return found, tuple(used), owners


def _run(root, targets, retain, create):
    traced = _core._tracing() if _state.inside else _core._begin_backward()
    retained = []
    with Swap(_state, "inside", True), Swap(_state, "retained", retained), (enable_grad if create else no_grad)():
        found, used, owners = _sweep(root, targets, create)
    if not (retain or create or traced):
        _core._use_history(used)
        for owner in owners:
            owner.free()
    return found, retained


@whole
def _give(found, retained, create):
    """All that a backward found, or nothing: what raises comes before the first is given."""
    _core._give(tuple(found), tuple(found.values()), create)
    _retain(retained)


@whole
def _retain(retained):
    for x, grad in retained:
        x.grad = grad if x.grad is None else x.grad + grad


def _backward(loss, retain, create, inputs):
    if not loss.requires_grad:
        _core._leaves(loss)  # raises
    found, retained = _run(loss, (), retain, create)
    if inputs is not None:
        wanted = {_core._bits(one) for one in (inputs if isinstance(inputs, (list, tuple)) else (inputs,))}
        found = {bits: grad for bits, grad in found.items() if bits in wanted}
    _give(found, retained, create)


def _grad(loss, inputs, retain, create):
    wanted = tuple(_core._bits(one) for one in inputs)
    if not loss.requires_grad:
        return (None,) * len(inputs)
    if create is None:
        create = any(bits not in wanted for bits in _core._leaves(loss))
    found, retained = _run(loss, wanted, retain, create)
    _retain(retained)
    return tuple(found.get(bits) for bits in wanted)


def _written(x):
    """The gradient that x retains is that of its new value; hooks stay with the value that they were registered for."""
    _, owner = x.__dict__.pop("_hooks")
    if owner.retained:
        owner.retained = None
        if x.requires_grad:
            x.retain_grad()


_core._on_marks(_backward, _grad, _written)


def conj(x):
    """The library's cotangents of complex numbers are the conjugates of what PyTorch's users see, and the other way
    round."""
    return ops.conj(x) if x is not None and x.dtype in COMPLEX else x


class Hooks(Owner):
    """The owner of a tensor that is computed, at which functions look."""

    def __init__(self):
        self.hooks, self.retained = {}, None

    @classmethod
    def of(cls, x):
        """That of x, which gets one where it has none, or another value than it had then."""
        bits, owner = x.__dict__.get("_hooks", (None, None))
        if bits != _core._bits(x):
            if _core._followed(x):
                raise RuntimeError("register_hook, retain_grad: something was computed of the tensor before, whose "
                                   "gradient would not come by here\n  hint: call it where the tensor is made, before it is used")
            owner = cls()
            x.__dict__["_hooks"] = (_core._mark_here(x, owner), owner)
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
