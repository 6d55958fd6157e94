"""JAX's functions with custom derivatives: custom_vjp and custom_jvp. Functions and rules run on real values;
inside traced functions (vmap, scan) they are traced."""
import functools

from . import _core
from ._core import Tensor, ops
from ._dtypes import COMPLEX, FLOATS
from ._grad import enable_grad, no_grad
from ._sweep import HookOwner
from ._whole import Swap
from .tree_util import tree_flatten, tree_map, tree_unflatten


def is_differentiable(x):
    return x.dtype in FLOATS or x.dtype in COMPLEX


def zeros_like(x):
    return ops.cast(_core.full(x.shape, 0), x.dtype)


def as_tensors(leaves):
    return [leaf if isinstance(leaf, Tensor) else _core.asarray(leaf) for leaf in leaves]


def _specs(tensors):
    return [(one.dtype, tuple(one.shape)) for one in tensors]


def traced_rule(forward, backward, operands):
    """Returns (results, saved) of forward(operands), with a traced reverse rule: backward(operands, results,
    saved, cotangents) returns a cotangent, or None, for each operand."""
    seen = {}

    def values(inside):
        results, saved = forward(list(inside))
        seen.update(n=len(results), specs=_specs([*results, *saved]))
        return (*results, *saved)

    function, count = _core._trace(values, tuple(_specs(operands)))
    n_in, n = len(operands), seen["n"]

    def rule(inside):
        given, made, cotangents = inside[:n_in], inside[n_in:n_in + count], inside[n_in + count:]
        found = backward(list(given), list(made[:n]), list(made[n:]), list(cotangents[:n]))
        return tuple(zeros_like(one) if grad is None else grad for one, grad in zip(given, found))

    back, _ = _core._trace(rule, (*_specs(operands), *seen["specs"], *seen["specs"]))
    made = _core._custom(function, back, tuple(operands), count, False)
    return list(made[:n]), list(made[n:])


class _CustomFunction:
    """A function of trees with a custom derivative, some of whose arguments are not differentiated."""

    def __init__(self, fun, nondiff_argnums=()):
        self.fun, self.nondiff_argnums, self._plain = fun, tuple(nondiff_argnums), False
        functools.update_wrapper(self, fun)

    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self, instance)

    def _name(self):
        return getattr(self.fun, "__name__", "the function")

    def __call__(self, *args, **options):
        if options:  # bound to their positions, as the rules see them
            import inspect
            bound = inspect.signature(self.fun).bind(*args, **options)
            bound.apply_defaults()
            args = bound.args
        call = _CustomCall(self.nondiff_argnums, args)
        run = None if self._plain else self._traced if _core._tracing() else self._eager if call.tracked else None
        return self.fun(*args) if run is None else run(call)

    @staticmethod
    def _hooked(results, call, backward):
        """Returns the results as values whose gradients are those of backward(cotangents), one for each
        operand."""
        positions = [k for k, one in enumerate(results) if is_differentiable(one)]
        owner = _CustomRule(backward, call.tracked, positions, [(tuple(one.shape), one.dtype) for one in results])
        results = list(results)
        if positions:
            inputs = tuple(call.operands[i] for i in call.tracked)
            for k, one in zip(positions, _core._hook(tuple(results[k] for k in positions), inputs, owner)):
                results[k] = one
        return results


class _CustomCall:
    """The arguments of one call: leaves that are arrays are operands; all others (Python numbers) are
    constants."""

    def __init__(self, nondiff_argnums, args):
        self.n = len(args)
        self.fixed = {i % self.n: args[i] for i in nondiff_argnums}
        self.leaves, self.structure = tree_flatten(tuple(one for i, one in enumerate(args) if i not in self.fixed))
        self.positions = [i for i, one in enumerate(self.leaves) if hasattr(one, "shape")]
        self.operands = as_tensors([self.leaves[i] for i in self.positions])
        self.tracked = [i for i, one in enumerate(self.operands) if _core.is_grad_enabled() and one.requires_grad
                        and is_differentiable(one)]

    def trees(self, operands, others=None):
        """Returns a tree for each differentiated argument, with these values as its operands; others: values
        for all other leaves."""
        leaves = list(self.leaves) if others is None else [others] * len(self.leaves)
        for i, one in zip(self.positions, operands):
            leaves[i] = one
        return tree_unflatten(self.structure, leaves)

    def arguments(self, operands):
        rest = iter(self.trees(operands))
        return [self.fixed[i] if i in self.fixed else next(rest) for i in range(self.n)]


class _CustomRule(HookOwner):
    """The hook of one call: backward(cotangents), one for each result, returns one for each operand, or
    None."""

    def __init__(self, backward, tracked, differentiable_outputs, like):
        self.backward, self.tracked, self.differentiable_outputs, self.like = backward, tracked, differentiable_outputs, like

    def pull(self, operands, results, cotangents):
        inside = [ops.cast(_core.full(shape, 0), dtype) for shape, dtype in self.like]
        for k, cotangent in zip(self.differentiable_outputs, cotangents):
            inside[k] = inside[k] if cotangent is None else cotangent
        found = self.backward(inside)
        return [(bits, found[i]) for bits, i in zip(operands[len(results):], self.tracked) if found[i] is not None]


class custom_vjp(_CustomFunction):
    """f with the gradients of its rules: f.defvjp(fwd, bwd), where fwd(*args) returns (f's result, residuals)
    and bwd(residuals, cotangent) returns a tuple of cotangents, one for each argument. Arguments of
    nondiff_argnums come first in bwd, and have none. (jax.custom_vjp)"""

    fwd = bwd = None

    def defvjp(self, fwd, bwd):
        self.fwd, self.bwd = fwd, bwd
        return bwd

    def __call__(self, *args, **options):
        if self.fwd is None:
            raise AttributeError(f"No VJP defined for custom_vjp function {self._name()} using defvjp.")
        return super().__call__(*args, **options)

    def _ahead(self, args):
        pair = self.fwd(*args)
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(f"custom_vjp: the forward rule of {self._name()} gives a pair (result, residuals), "
                            f"not {type(pair).__name__}")
        return pair

    def _back(self, call, residuals, cotangent):
        """Calls the rule; returns its cotangents, one for each operand."""
        found, trees, name = self.bwd(*call.fixed.values(), residuals,
                                      cotangent), call.trees(call.operands), self._name()
        if not isinstance(found, tuple) or len(found) != len(trees):
            what = f"{len(found)} of them" if isinstance(found, tuple) else type(found).__name__
            raise TypeError(f"custom_vjp: the reverse rule of {name} gives a tuple of {len(trees)} cotangents, one an "
                            f"argument, "
                            f"not {what}")
        grads = []
        for i, (grad, tree) in enumerate(zip(found, trees)):
            wanted, inside = tree_flatten(tree)
            parts, given = ([None] * len(wanted), inside) if grad is None else tree_flatten(grad)
            if given != inside:
                raise TypeError(f"custom_vjp: the reverse rule of {name} gives a cotangent of the structure {given} "
                                f"for "
                                f"argument {i}, it has {inside}")
            for part, one in zip(parts, wanted):
                part = part if part is None or isinstance(part, Tensor) else _core.asarray(part)
                if part is not None and isinstance(one, Tensor):
                    if tuple(part.shape) != tuple(one.shape):
                        raise ValueError(f"custom_vjp: the reverse rule of {name} gives a cotangent "
                                         f"{tuple(part.shape)} for "
                                         f"argument {i}, it is {tuple(one.shape)}")
                    part = None if not is_differentiable(one) else part if part.dtype == one.dtype else ops.cast(part,
                        one.dtype)
                grads.append(part)
        return [grads[i] for i in call.positions]

    def _eager(self, call):
        result, residuals = self._ahead(call.arguments(call.operands))
        results, out = tree_flatten(result)
        results = [_core._snapshot(one) for one in as_tensors(results)]
        return tree_unflatten(out, self._hooked(results, call, self._backward(call, residuals, out)))

    def _backward(self, call, residuals, out):
        return lambda cotangents: self._back(call, residuals, tree_unflatten(out, cotangents))

    def _traced(self, call):
        seen = {}

        def forward(operands):
            result, residuals = self._ahead(call.arguments(operands))
            results, seen["out"] = tree_flatten(result)
            saved, seen["inside"] = tree_flatten(residuals)
            seen["saved"] = [None if hasattr(one, "shape") else one
                             for one in saved]  # Python numbers stay constants
            return as_tensors(results), as_tensors([one for one in saved if hasattr(one, "shape")])

        def backward(operands, results, saved, cotangents):
            rest = iter(saved)
            residuals = tree_unflatten(seen["inside"], [next(rest) if one is None else one for one in seen["saved"]])
            return self._backward(call, residuals, seen["out"])(cotangents)

        results, _ = traced_rule(forward, backward, call.operands)
        # Gradients may be taken inside the trace, too: they find the history of what fwd records here.
        if call.tracked:
            residuals = self._ahead(call.arguments(call.operands))[1]
            results = self._hooked(results, call, self._backward(call, residuals, seen["out"]))
        return tree_unflatten(seen["out"], results)


class custom_jvp(_CustomFunction):
    """f with the derivatives of its rule: f.defjvp(rule), where rule(primals, tangents), of two tuples,
    returns f's result and its tangent, which is linear in the tangents; reverse-mode gradients transpose the
    rule. Arguments of nondiff_argnums come first in it. (jax.custom_jvp)"""

    rule = None

    def defjvp(self, rule):
        self.rule = rule
        return rule

    def defjvps(self, *rules):
        """Defines a rule for each argument: rule(tangent, result, *primals); None for an argument without a
        derivative."""
        def rule(primals, tangents):
            result = self(*primals)
            moved = [one(tangent, result, *primals) for one, tangent in zip(rules, tangents) if one is not None]
            total = moved[0] if moved else tree_map(zeros_like, result)
            for one in moved[1:]:
                total = tree_map(lambda a, b: a + b, total, one)
            return result, total

        self.rule = rule

    def __call__(self, *args, **options):
        if self.rule is None:
            raise AttributeError(f"No JVP defined for custom_jvp function {self._name()} using defjvp.")
        return super().__call__(*args, **options)

    def _moved(self, call, primals, tangents):
        """Calls the rule; returns the tangents of the results, one for each leaf."""
        pair = self.rule(*call.fixed.values(), call.trees(primals), call.trees(tangents, 0.0))
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(f"custom_jvp: the rule of {self._name()} gives a pair (result, tangent), not "
                            f"{type(pair).__name__}")
        results, inside = tree_flatten(pair[0])
        parts, given = tree_flatten(pair[1])
        if inside != given:
            raise TypeError(f"custom_jvp: the rule of {self._name()} gives a tangent of the structure {given}, its "
                            f"result has {inside}")
        moved = []
        for part, one in zip(as_tensors(parts), as_tensors(results)):
            if tuple(part.shape) != tuple(one.shape):
                raise ValueError(f"custom_jvp: the rule of {self._name()} gives a tangent {tuple(part.shape)}, its "
                                 f"result "
                                 f"is {tuple(one.shape)}")
            moved.append(part if part.dtype == one.dtype else ops.cast(part, one.dtype))
        return moved

    def _eager(self, call):
        with no_grad():
            results, out = tree_flatten(self.fun(*call.arguments(call.operands)))
            results = [_core._snapshot(one) if one.requires_grad else one for one in as_tensors(results)]

        def backward(cotangents):
            further = _core.is_grad_enabled()
            primals = call.operands if further else [_core._snapshot(one) for one in call.operands]
            with enable_grad():
                probes = [_core._track(zeros_like(one)) if i in call.tracked else zeros_like(one) for i,
                          one in enumerate(primals)]
                total = None
                for one, cotangent in zip(self._moved(call, primals, probes), cotangents):
                    if is_differentiable(one):
                        part = _core._paired(one, cotangent)
                        total = part if total is None else total + part
                found = dict(zip(call.tracked, _core._grad(total, tuple(probes[i] for i in call.tracked), None, True,
                                                           further)))
            return [found.get(i) for i in range(len(primals))]

        return tree_unflatten(out, self._hooked(results, call, backward))

    def _traced(self, call):
        seen, n = {}, len(call.operands)

        def values(operands):
            results, seen["out"] = tree_flatten(self.fun(*call.arguments(operands)))
            results = as_tensors(results)
            seen["specs"] = _specs(results)
            return tuple(results)

        def rule(operands):
            # F in its own rule is the plain f, or the rule would be traced without end.
            with Swap(self, "_plain", True):
                return tuple(self._moved(call, list(operands[:n]), list(operands[n + count:])))

        specs = _specs(call.operands)
        function, count = _core._trace(values, tuple(specs))
        moves, _ = _core._trace(rule, (*specs, *seen["specs"], *specs))
        return tree_unflatten(seen["out"], _core._custom(function, moves, tuple(call.operands), count, True))
