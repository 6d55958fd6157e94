"""JAX's gradients of functions, which run on their real values: prints and ifs inside are ordinary ones.

Arguments and results are trees (tree_util). Of complex numbers the gradient is JAX's, the conjugate of PyTorch's .grad.
"""
import functools

from . import _core
from ._core import Tensor, ops
from ._dtypes import COMPLEX, FLOATS
from ._grad import enable_grad
from .tree_util import tree_flatten, tree_map, tree_unflatten


def _leaf(x, name):
    """x as a value at which a history begins; one that has a history keeps it behind this one."""
    x = x if isinstance(x, Tensor) else _core.asarray(x)
    if x.dtype not in FLOATS and x.dtype not in COMPLEX:
        raise TypeError(f"{name}: gradients with respect to {x.dtype!r} are asked for, only floats and complex numbers have any")
    return ops.cast(x, x.dtype) if x.requires_grad else _core._track(x)


def _split(result, has_aux, name):
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(f"{name}: with has_aux the function gives a pair (result, more), not {type(result).__name__}")
    return result


def _gradients(total, leaves, retain=False):
    found = _core._grad(total, tuple(leaves), None, retain, None) if total.requires_grad else [None] * len(leaves)
    return [ops.cast(_core.full(leaf.shape, 0), leaf.dtype) if grad is None else grad for grad, leaf in zip(found, leaves)]


def value_and_grad(fun, argnums=0, has_aux=False, holomorphic=False):
    """A function with fun's arguments that gives fun's value, one number, and its gradients with respect to the arguments of
    argnums (a number or a tuple), each with its argument's structure. has_aux: fun gives (value, more), and more comes along."""
    name = getattr(fun, "__name__", "the function")

    @functools.wraps(fun)
    def function(*args, **options):
        numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        for number in numbers:
            if not -len(args) <= number < len(args):
                raise ValueError(f"grad: argument {number} of {name} is asked for, it is called with {len(args)}")
        args, flat, structures = list(args), [], []
        for number in numbers:
            leaves, structure = tree_flatten(args[number])
            leaves = [_leaf(leaf, "grad") for leaf in leaves]
            args[number] = tree_unflatten(structure, leaves)
            flat.append(leaves)
            structures.append(structure)
        with enable_grad():
            value, aux = _split(fun(*args, **options), has_aux, "grad")
            if not isinstance(value, Tensor) or value.numel() != 1 or value.ndim:
                shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
                raise TypeError(f"grad: {name} must give one number, a tensor of shape (), it gave {shape}")
            if value.dtype in COMPLEX and not holomorphic:
                raise TypeError(f"grad: {name} gave a complex number\n  hint: real(y), or holomorphic=True")
            total = ops.real(value) if value.dtype in COMPLEX else value
            grads = _gradients(total, [leaf for leaves in flat for leaf in leaves])
        trees = []
        for leaves, structure in zip(flat, structures):
            trees.append(tree_unflatten(structure, grads[:len(leaves)]))
            grads = grads[len(leaves):]
        value = value if any(leaf.requires_grad for leaf in _core_arguments(trees)) else value.detach()
        result = trees[0] if isinstance(argnums, int) else tuple(trees)
        return ((value, aux) if has_aux else value), result

    return function


def _core_arguments(trees):
    return [leaf for tree in trees for leaf in tree_flatten(tree)[0]]


def grad(fun, argnums=0, has_aux=False, holomorphic=False):
    """A function with fun's arguments that gives the gradients of fun's value, one number: see value_and_grad."""
    both = value_and_grad(fun, argnums, has_aux, holomorphic)

    @functools.wraps(fun)
    def function(*args, **options):
        value, gradients = both(*args, **options)
        return (gradients, value[1]) if has_aux else gradients

    return function


def vjp(fun, *primals, has_aux=False):
    """(result, back): back(cotangents), with the result's structure, gives a tuple of cotangents, one a primal. It may be called
    several times. has_aux: (result, back, more)."""
    trees = [tree_flatten(primal) for primal in primals]
    flat = [[_leaf(leaf, "vjp") for leaf in leaves] for leaves, _ in trees]
    with enable_grad():
        tracked = [tree_unflatten(structure, leaves) for leaves, (_, structure) in zip(flat, trees)]
        result, aux = _split(fun(*tracked), has_aux, "vjp")
    outputs, structure = tree_flatten(result)
    all_leaves = [leaf for leaves in flat for leaf in leaves]

    def back(cotangents):
        parts, given = tree_flatten(cotangents)
        if given != structure:
            raise ValueError(f"vjp: the cotangents have the structure {given}, the result has {structure}")
        with enable_grad():
            grads = _gradients(_products(outputs, parts), all_leaves, retain=True)
        found = []
        for leaves, (_, inside) in zip(flat, trees):
            found.append(tree_unflatten(inside, grads[:len(leaves)]))
            grads = grads[len(leaves):]
        return tuple(found)

    back_to_values = tree_map(lambda x: x, result)
    return (back_to_values, back, aux) if has_aux else (back_to_values, back)


def _products(outputs, cotangents):
    """The sum of all products, one real number."""
    total = None
    for output, cotangent in zip(outputs, cotangents):
        product = output * cotangent
        product = ops.sum(ops.real(product) if product.dtype in COMPLEX else product)
        total = product if total is None else total + product
    return total


def jvp(fun, primals, tangents, has_aux=False):
    """(result, tangent): how fun's result moves as the primals, a tuple, move along the tangents. It is the transpose of vjp, which
    is linear in its cotangents."""
    if len(primals) != len(tangents):
        raise ValueError(f"jvp: there are {len(primals)} primals and {len(tangents)} tangents")
    found = vjp(fun, *primals, has_aux=has_aux)
    result, back = found[:2]
    outputs, structure = tree_flatten(result)
    with enable_grad():
        probes = [_core._track(_core.full(output.shape, 0, output.dtype)) for output in outputs]
        grads = tree_flatten(back(tree_unflatten(structure, probes)))[0]
        moved = _gradients(_products(grads, tree_flatten(tuple(tangents))[0]), probes, retain=True)
    tangent = tree_unflatten(structure, moved)
    return (result, tangent, found[2]) if has_aux else (result, tangent)


def jacrev(fun, argnums=0):
    """The Jacobian of fun's result, one tensor, with respect to an argument: result's axes, then the argument's; row by row."""
    def function(*args):
        def of(x):
            return fun(*args[:argnums], x, *args[argnums + 1:])

        result, back = vjp(of, args[argnums])
        rows = [back(row)[0] for row in _basis(result)]
        return tree_map(lambda *parts: _stacked(parts, tuple(result.shape) + tuple(parts[0].shape)), *rows)

    return function


def jacfwd(fun, argnums=0):
    """The Jacobian of fun's result with respect to an argument, one tensor: result's axes, then the argument's; column by column."""
    def function(*args):
        x = args[argnums] if isinstance(args[argnums], Tensor) else _core.asarray(args[argnums])

        def of(x):
            return fun(*args[:argnums], x, *args[argnums + 1:])

        columns = [jvp(of, (x,), (column,))[1] for column in _basis(x)]
        size = tuple(columns[0].shape)
        last = _stacked(columns, (x.numel(), *size))
        order = (*range(1, len(size) + 1), 0)
        return ops.reshape(ops.permute(last, order), size + tuple(x.shape))

    return function


def hessian(fun, argnums=0):
    """The second derivatives of fun's one number with respect to an argument: its axes twice."""
    return jacfwd(grad(fun, argnums), argnums)


def _basis(x):
    n = x.numel()
    rows = ops.equal(ops.iota(_core.int64, (n, n), 0), ops.iota(_core.int64, (n, n), 1))
    rows = ops.reshape(ops.cast(rows, x.dtype), (n, *x.shape))
    return [rows[i] for i in range(n)]


def _stacked(parts, shape):
    return ops.reshape(ops.concat([ops.reshape(part, (1, *part.shape)) for part in parts], 0), shape)
