"""JAX's functions with derivatives of their own: custom_vjp and custom_jvp. Both run on real values; inside of functions that are
traced (vmap, scan) the rules are traced as well."""
import functools

from . import _core
from ._core import Tensor, ops
from ._dtypes import COMPLEX, FLOATS
from ._grad import enable_grad, no_grad
from ._sweep import Owner
from .tree_util import tree_flatten, tree_map, tree_unflatten


def has_slope(x):
    return x.dtype in FLOATS or x.dtype in COMPLEX


def zeros_like(x):
    return ops.cast(_core.full(x.shape, 0), x.dtype)


def as_tensors(leaves):
    return [leaf if isinstance(leaf, Tensor) else _core.asarray(leaf) for leaf in leaves]


def _specs(tensors):
    return [(one.dtype, tuple(one.shape)) for one in tensors]


def traced_rule(forward, backward, operands):
    """(results, saved) of forward(operands), with a reverse rule that is traced: backward(operands, results, saved, cotangents)
    gives a cotangent, or None, for each operand."""
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


class _Custom:
    """A function of trees, some of whose arguments stay what they are."""

    def __init__(self, fun, nondiff_argnums=()):
        self.fun, self.nondiff_argnums = fun, tuple(nondiff_argnums)
        functools.update_wrapper(self, fun)

    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self, instance)

    def _name(self):
        return getattr(self.fun, "__name__", "the function")

    def __call__(self, *args, **options):
        if options:  # by their places, as the rules see them
            import inspect
            bound = inspect.signature(self.fun).bind(*args, **options)
            bound.apply_defaults()
            args = bound.args
        fixed = {i % len(args): args[i] for i in self.nondiff_argnums}
        moving = [one for i, one in enumerate(args) if i not in fixed]
        leaves, structure = tree_flatten(tuple(moving))
        leaves = as_tensors(leaves)
        tracked = [i for i, one in enumerate(leaves) if _core.is_grad_enabled() and one.requires_grad and has_slope(one)]

        def arguments(operands):
            rest = iter(tree_unflatten(structure, operands))
            return [fixed[i] if i in fixed else next(rest) for i in range(len(args))]

        call = self._traced if _core._tracing() else self._eager if tracked else None
        if call is None:
            return self.fun(*args)
        return call(list(fixed.values()), arguments, leaves, structure, tracked)

    @staticmethod
    def _marked(results, inputs, owner):
        """The results as values whose gradients the owner knows."""
        places = [k for k, one in enumerate(results) if has_slope(one)]
        with no_grad():
            results = [one.detach() if one.requires_grad else one for one in results]
            owner.slopes, owner.like = places, [(tuple(one.shape), one.dtype) for one in results]
            if places:
                for k, one in zip(places, _core._mark(tuple(results[k] for k in places), tuple(inputs), owner)):
                    results[k] = one
        return results


class _Rule(Owner):
    """One call: backward(cotangents), one a result, gives one a leaf of the arguments, or None."""

    def __init__(self, backward, tracked):
        self.backward, self.tracked = backward, tracked

    def pull(self, operands, results, cotangents):
        inside = [ops.cast(_core.full(shape, 0), dtype) for shape, dtype in self.like]
        for k, cotangent in zip(self.slopes, cotangents):
            inside[k] = inside[k] if cotangent is None else cotangent
        found = self.backward(inside)
        inputs = operands[len(results):]
        return [(bits, found[i]) for bits, i in zip(inputs, self.tracked) if found[i] is not None]


class custom_vjp(_Custom):
    """f, whose gradients are those of its rules: f.defvjp(fwd, bwd), where fwd(*args) gives (f's result, residuals) and
    bwd(residuals, cotangent) a tuple of cotangents, one an argument. Arguments of nondiff_argnums come first in bwd, and have
    none. (jax.custom_vjp)"""

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

    def _back(self, fixed, residuals, cotangent, leaves, structure):
        """The rule's cotangents, one a leaf."""
        found = self.bwd(*fixed, residuals, cotangent)
        trees = tree_unflatten(structure, leaves)
        if not isinstance(found, tuple) or len(found) != len(trees):
            what = f"{len(found)} of them" if isinstance(found, tuple) else type(found).__name__
            raise TypeError(f"custom_vjp: the reverse rule of {self._name()} gives a tuple of {len(trees)} cotangents, one an argument, "
                            f"not {what}")
        grads = []
        for i, (grad, tree) in enumerate(zip(found, trees)):
            wanted, inside = tree_flatten(tree)
            if grad is None:
                grads += [None] * len(wanted)
                continue
            parts, given = tree_flatten(grad)
            if given != inside:
                raise TypeError(f"custom_vjp: the reverse rule of {self._name()} gives a cotangent of the structure {given} for "
                                f"argument {i}, it has {inside}")
            for part, one in zip(as_tensors(parts), wanted):
                if tuple(part.shape) != tuple(one.shape):
                    raise ValueError(f"custom_vjp: the reverse rule of {self._name()} gives a cotangent {tuple(part.shape)} for "
                                     f"argument {i}, it is {tuple(one.shape)}")
                grads.append(part if part.dtype == one.dtype else ops.cast(part, one.dtype) if has_slope(one) else None)
        return grads

    def _eager(self, fixed, arguments, leaves, structure, tracked):
        result, residuals = self._ahead(arguments(leaves))
        results, out = tree_flatten(result)
        shapes = [one.detach() if i in tracked else one for i, one in enumerate(leaves)]

        def backward(cotangents):
            return self._back(fixed, residuals, tree_unflatten(out, cotangents), shapes, structure)

        marked = self._marked(as_tensors(results), [leaves[i] for i in tracked], _Rule(backward, tracked))
        return tree_unflatten(out, marked)

    def _traced(self, fixed, arguments, leaves, structure, tracked):
        seen = {}

        def forward(operands):
            result, residuals = self._ahead(arguments(operands))
            results, seen["out"] = tree_flatten(result)
            saved, seen["inside"] = tree_flatten(residuals)
            return as_tensors(results), as_tensors(saved)

        def backward(operands, results, saved, cotangents):
            residuals = tree_unflatten(seen["inside"], saved)
            return self._back(fixed, residuals, tree_unflatten(seen["out"], cotangents), operands, structure)

        results, saved = traced_rule(forward, backward, leaves)
        if tracked:
            owner = _Rule(lambda cotangents: backward(leaves, results, saved, cotangents), tracked)
            results = self._marked(results, [leaves[i] for i in tracked], owner)
        return tree_unflatten(seen["out"], results)


class custom_jvp(_Custom):
    """f, whose derivatives are those of its rule: f.defjvp(rule), where rule(primals, tangents), two tuples, gives f's result and
    how it moves, which is linear in the tangents; gradients go backwards through the rule. Arguments of nondiff_argnums come
    first in it. (jax.custom_jvp)"""

    rule = None

    def defjvp(self, rule):
        self.rule = rule
        return rule

    def defjvps(self, *rules):
        """A rule an argument: rule(tangent, result, *primals); None where it does not move the result."""
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

    def _moved(self, fixed, primals, tangents, structure):
        """How the results move, one a leaf."""
        pair = self.rule(*fixed, tree_unflatten(structure, primals), tree_unflatten(structure, tangents))
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(f"custom_jvp: the rule of {self._name()} gives a pair (result, tangent), not {type(pair).__name__}")
        results, inside = tree_flatten(pair[0])
        parts, given = tree_flatten(pair[1])
        if inside != given:
            raise TypeError(f"custom_jvp: the rule of {self._name()} gives a tangent of the structure {given}, its result has {inside}")
        moved = []
        for part, one in zip(as_tensors(parts), as_tensors(results)):
            if tuple(part.shape) != tuple(one.shape):
                raise ValueError(f"custom_jvp: the rule of {self._name()} gives a tangent {tuple(part.shape)}, its result "
                                 f"is {tuple(one.shape)}")
            moved.append(part if part.dtype == one.dtype else ops.cast(part, one.dtype))
        return moved

    def _eager(self, fixed, arguments, leaves, structure, tracked):
        with no_grad():
            results, out = tree_flatten(self.fun(*arguments(leaves)))

        def backward(cotangents):
            further = _core.is_grad_enabled()
            primals = leaves if further else [one.detach() for one in leaves]
            with enable_grad():
                probes = [_core._track(zeros_like(one)) if i in tracked else zeros_like(one) for i, one in enumerate(leaves)]
                moved = self._moved(fixed, primals, probes, structure)
                total = None
                for one, cotangent in zip(moved, cotangents):
                    if has_slope(one):
                        part = ops.sum(ops.real(one * cotangent) if one.dtype in COMPLEX else one * cotangent)
                        total = part if total is None else total + part
                found = dict(zip(tracked, _core._grad(total, tuple(probes[i] for i in tracked), None, True, None)))
            return [found.get(i) for i in range(len(leaves))]

        marked = self._marked(as_tensors(results), [leaves[i] for i in tracked], _Rule(backward, tracked))
        return tree_unflatten(out, marked)

    def _traced(self, fixed, arguments, leaves, structure, tracked):
        seen = {}

        def values(operands):
            results, seen["out"] = tree_flatten(self.fun(*arguments(operands)))
            seen["specs"] = _specs(as_tensors(results))
            return tuple(as_tensors(results))

        function, count = _core._trace(values, tuple(_specs(leaves)))
        n = len(leaves)

        def rule(operands):
            return tuple(self._moved(fixed, list(operands[:n]), list(operands[n + count:]), structure))

        specs = _specs(leaves)
        moves, _ = _core._trace(rule, (*specs, *seen["specs"], *specs))
        return tree_unflatten(seen["out"], _core._custom(function, moves, tuple(leaves), count, True))
