"""Hooks of all modules, and hooks of the gradients of a module's inputs and outputs."""
from collections import OrderedDict

from .. import _core
from .._grad import no_grad
from .._sweep import HookOwner, conj

Tensor = _core.Tensor
GLOBAL = OrderedDict()  # {number: (kind, hook)} of hooks that every module calls
GLOBAL_WITH_KWARGS, GLOBAL_ALWAYS_CALLED = set(), set()


def hooks_of(kind, own):
    """Returns the pairs (number, hook) of a kind: those of all modules before the module's own."""
    everywhere = [(key, hook) for key, (which, hook) in GLOBAL.items() if which == kind] if GLOBAL else []
    return everywhere + list(own.items())


class _GradientTap(HookOwner):
    """A point in the history at which a function sees, and may replace, the gradients of several tensors."""

    def __init__(self, see):
        self.see = see

    def pull(self, operands, results, cotangents):
        grads = self.see([conj(one) for one in cotangents])
        return [(bits, conj(grad)) for bits, grad in zip(operands[len(results):], grads) if grad is not None]


def _tap(values, see):
    """Returns the values with see(gradients) in the history of those that require gradients, and their positions."""
    positions = [i for i, x in enumerate(values) if isinstance(x, Tensor) and x.requires_grad] if _core.is_grad_enabled() else []
    result = list(values)
    if positions:
        with no_grad():
            tapped = _core._hook(tuple(values[i].detach() for i in positions), tuple(values[i] for i in positions),
                                 _GradientTap(see))
        for i, x in zip(positions, tapped):
            result[i] = x
    return tuple(result), positions


def _at_positions(positions, grads, n):
    full = [None] * n
    for i, grad in zip(positions, grads):
        full[i] = grad
    return tuple(full)


class ModuleGradients:
    """One call of a module whose backward hooks see the gradients of its inputs and outputs."""

    def __init__(self, module, hooks, pre_hooks):
        self.module, self.hooks, self.pre_hooks = module, hooks, pre_hooks
        self.outputs = None  # the gradients of the outputs, while those of the inputs are not known yet

    def tap_inputs(self, args):
        args, self.input_positions = _tap(args, self._see_inputs)
        self.n_inputs = len(args)
        return args

    def tap_outputs(self, result):
        single = isinstance(result, Tensor)
        if not single and not isinstance(result, tuple):
            import warnings
            warnings.warn("For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but received "
                          f"{type(result)}", stacklevel=3)
            return result
        values, self.output_positions = _tap((result,) if single else result, self._see_outputs)
        self.n_outputs = len(values)
        if single:
            return values[0]
        return type(result)(*values) if hasattr(result, "_fields") else values

    def _replaced(self, changed, grads, what):
        """Returns what a hook gave in place of the gradients."""
        if changed is None:
            return grads
        changed = changed if isinstance(changed, tuple) else (changed,)
        if len(changed) != len(grads):
            raise RuntimeError(f"Backward {what} returned an invalid number of grad_{'output' if 'pre' in what else 'input'}, got "
                               f"{len(changed)}, but expected {len(grads)}")
        return changed

    def _see_outputs(self, grads):
        grads = _at_positions(self.output_positions, grads, self.n_outputs)
        for hook in self.pre_hooks:
            grads = self._replaced(hook(self.module, grads), grads, "pre hook")
        self.outputs = grads
        if not self.input_positions:
            for hook in self.hooks:
                changed = hook(self.module, (None,) * self.n_inputs, grads)
                if changed is not None and any(one is not None for one in changed):
                    raise RuntimeError("Backward hook for Modules where no input requires gradient should always return None or "
                                       "None for all gradients.")
        return [grads[i] for i in self.output_positions]

    def _see_inputs(self, grads):
        grads = _at_positions(self.input_positions, grads, self.n_inputs)
        for hook in self.hooks:
            grads = self._replaced(hook(self.module, grads, self.outputs), grads, "hook")
        return [grads[i] for i in self.input_positions]
