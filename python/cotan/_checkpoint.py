"""Checkpointing: gradients store fewer values and recompute them, as jax.checkpoint and
torch.utils.checkpoint do."""
import functools

from . import _core
from ._core import Tensor
from ._grad import enable_grad, no_grad
from ._random import default_generator
from ._rules import as_tensors, is_differentiable
from ._sweep import HookOwner
from .tree_util import tree_flatten, tree_unflatten


def checkpoint(fun=None, *, policy=None, prevent_cse=True, static_argnums=()):
    """Returns a version of fun for which gradients store the arguments alone and recompute the rest: it uses
    less memory for more work, and gives the same gradients of any order. fun is traced. Used as a decorator,
    or as checkpoint(fun). (jax.checkpoint, jax.remat)"""
    if policy is not None:
        raise ValueError("checkpoint: policies are not supported; everything between arguments and results is recomputed")
    if fun is None:
        return functools.partial(checkpoint, static_argnums=static_argnums)
    fixed = {static_argnums} if isinstance(static_argnums, int) else set(static_argnums)

    @functools.wraps(fun)
    def function(*args, **options):
        static = {number % len(args) for number in fixed}
        leaves, structure = tree_flatten(([one for i, one in enumerate(args) if i not in static], options))
        positions = [i for i, one in enumerate(leaves) if hasattr(one, "shape")]
        operands, out = as_tensors([leaves[i] for i in positions]), []

        def flat(inside):
            full = list(leaves)
            for i, one in zip(positions, inside):
                full[i] = one
            moving, named = tree_unflatten(structure, full)
            rest = iter(moving)
            results, made = tree_flatten(fun(*[args[i] if i in static else next(rest) for i in range(len(args))],
                                             **named))
            out.append(made)
            return tuple(as_tensors(results))

        traced, count = _core._trace(flat, tuple((one.dtype, tuple(one.shape)) for one in operands))
        return tree_unflatten(out[0], _core._remat(traced, tuple(operands), count))

    return function


class _CheckpointedCall(HookOwner):
    """A call whose results are recomputed when its gradients are computed."""

    def __init__(self, run, args, position):
        self.run, self.args, self.position = run, args, position
        self.versions = self._versions()

    def _versions(self):
        return [one._version if isinstance(one, Tensor) else None for one in self.args]

    def pull(self, operands, results, cotangents):
        if self._versions() != self.versions:
            raise RuntimeError("checkpoint: an argument was written to in its place since the function ran, which cannot "
                               "be computed again\n  hint: write to a clone(), or give one")
        # The cotangents must be computed before, but are not part of the history.
        given = tuple(_core._snapshot(one) for one in cotangents if one is not None)
        with enable_grad(), default_generator.rewound_to(self.position):
            again = self.run([_core._after(one, given) if isinstance(one, Tensor) else one for one in self.args])
        self.versions = self._versions()
        again = [again[k] for k in self.differentiable_outputs]
        return [(one, cotangent) for one, cotangent in zip(again, cotangents) if cotangent is not None
                and one.requires_grad]

    def free(self):
        self.args = self.run = None


def checkpoint_values(function, *args, use_reentrant=None, preserve_rng_state=True, determinism_check="default",
                      debug=False,
                      context_fn=None, **options):
    """Returns function(*args), for which gradients store the arguments alone and recompute the rest when
    backward reaches it. The function runs on real values both times, and draws the same random numbers from
    the process's generator (unless preserve_rng_state is False). use_reentrant changes nothing.
    (torch.utils.checkpoint.checkpoint)"""
    if context_fn is not None:
        raise ValueError("checkpoint: context_fn is not here")
    if _core._tracing():
        return checkpoint(function)(*args, **options)
    if not _core.is_grad_enabled():
        return function(*args, **options)
    leaves, structure = tree_flatten((args, options))
    position, made = default_generator.position() if preserve_rng_state else None, []

    def run(leaves):
        args, options = tree_unflatten(structure, leaves)
        results, out = tree_flatten(function(*args, **options))
        made.append(out)
        return as_tensors(results)

    # The first run tracks the arguments as leaves: this shows on which other leaves the results depend.
    probes = {i: _core._track(_core._snapshot(one)) for i, one in enumerate(leaves) if isinstance(one, Tensor)
              and one.requires_grad}
    results = run([probes.get(i, one) for i, one in enumerate(leaves)])
    region = _CheckpointedCall(run, leaves, position)
    region.differentiable_outputs = [k for k, one in enumerate(results) if one.requires_grad and is_differentiable(one)]
    if region.differentiable_outputs:
        begins = {bits for k in region.differentiable_outputs for bits in _core._leaves(results[k])}
        inside = {_core._bits(probe): leaves[i] for i, probe in probes.items()}
        with no_grad():
            values = tuple(_core._snapshot(results[k]) for k in region.differentiable_outputs)
        for k, one in zip(region.differentiable_outputs, _core._hook(values, tuple(inside.get(bits, bits)
                                                                                   for bits in sorted(begins)), region)):
            results[k] = one
    return tree_unflatten(made[0], results)


def checkpoint_sequential(functions, segments, input, use_reentrant=None, **options):
    """Calls the functions (or the modules of a Sequential) one after the other, in the given number of
    segments; all segments but the last are checkpointed."""
    functions = list(functions.children()) if hasattr(functions, "children") else list(functions)
    size = len(functions) // segments

    def part(start, end):
        def run(x):
            for one in functions[start:end]:
                x = one(x)
            return x

        return run

    for start in range(0, size * (segments - 1), size):
        input = checkpoint_values(part(start, start + size), input, use_reentrant=use_reentrant, **options)
    return part(size * (segments - 1), len(functions))(input)
