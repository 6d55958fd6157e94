"""JAX's transforms of functions. grad and its like run functions on real values, so that print and if work
inside.

Arguments and results are trees (tree_util). The gradient of complex numbers is JAX's, the conjugate of
PyTorch's .grad.
"""
import contextlib
import functools

from . import _core
from ._core import Tensor, ops
from ._dtypes import COMPLEX, FLOATS
from ._grad import enable_grad
from ._random import Draws, with_iteration
from ._shaping import concat_parts
from .tree_util import tree_flatten, tree_map, tree_unflatten


def _track_leaf(x, name):
    """Returns x as a value at which a history begins; the history that it already has continues before it."""
    x = x if isinstance(x, Tensor) else _core.asarray(x)
    if x.dtype not in FLOATS and x.dtype not in COMPLEX:
        raise TypeError(f"{name}: gradients with respect to {x.dtype!r} are asked for, only floats and complex numbers have any")
    return ops.cast(x, x.dtype) if x.requires_grad else _core._track(x)


def _split_aux(result, has_aux, name):
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(f"{name}: with has_aux the function gives a pair (result, more), not {type(result).__name__}")
    return result


def _gradients(total, leaves, retain=False):
    results = _core._grad(total, tuple(leaves), None, retain, None) if total.requires_grad else [None] * len(leaves)
    return [ops.cast(_core.full(leaf.shape, 0), leaf.dtype) if grad is None else grad for grad, leaf in zip(results, leaves)]


def value_and_grad(fun, argnums=0, has_aux=False, holomorphic=False):
    """Returns a function with fun's arguments that returns fun's value, a scalar, and its gradients with
    respect to the arguments of argnums (a number or a tuple), each with its argument's structure. has_aux:
    fun returns (value, aux), and aux is passed on."""
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
            leaves = [_track_leaf(leaf, "grad") for leaf in leaves]
            args[number] = tree_unflatten(structure, leaves)
            flat.append(leaves)
            structures.append(structure)
        with enable_grad():
            value, aux = _split_aux(fun(*args, **options), has_aux, "grad")
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
        value = value if any(leaf.requires_grad for leaf in _core_arguments(trees)) else _core._snapshot(value)
        result = trees[0] if isinstance(argnums, int) else tuple(trees)
        return ((value, aux) if has_aux else value), result

    return function


def _core_arguments(trees):
    return [leaf for tree in trees for leaf in tree_flatten(tree)[0]]


def grad(fun, argnums=0, has_aux=False, holomorphic=False):
    """Returns a function with fun's arguments that returns the gradients of fun's value, a scalar; see
    value_and_grad."""
    both = value_and_grad(fun, argnums, has_aux, holomorphic)

    @functools.wraps(fun)
    def function(*args, **options):
        value, gradients = both(*args, **options)
        return (gradients, value[1]) if has_aux else gradients

    return function


def vjp(fun, *primals, has_aux=False):
    """Returns (result, back): back(cotangents), with the result's structure, returns a tuple of cotangents,
    one for each primal. It may be called several times. has_aux: returns (result, back, aux)."""
    trees = [tree_flatten(primal) for primal in primals]
    flat = [[_track_leaf(leaf, "vjp") for leaf in leaves] for leaves, _ in trees]
    with enable_grad():
        tracked = [tree_unflatten(structure, leaves) for leaves, (_, structure) in zip(flat, trees)]
        result, aux = _split_aux(fun(*tracked), has_aux, "vjp")
    outputs, structure = tree_flatten(result)
    all_leaves = [leaf for leaves in flat for leaf in leaves]

    def back(cotangents):
        parts, given = tree_flatten(cotangents)
        if given != structure:
            raise ValueError(f"vjp: the cotangents have the structure {given}, the result has {structure}")
        with enable_grad():
            grads = _gradients(_sum_of_products(outputs, parts), all_leaves, retain=True)
        results = []
        for leaves, (_, inside) in zip(flat, trees):
            results.append(tree_unflatten(inside, grads[:len(leaves)]))
            grads = grads[len(leaves):]
        return tuple(results)

    back_to_values = tree_map(lambda x: x, result)
    return (back_to_values, back, aux) if has_aux else (back_to_values, back)


def _sum_of_products(outputs, cotangents):
    """Returns the sum of all products, a real scalar."""
    total = None
    for output, cotangent in zip(outputs, cotangents):
        product = _core._paired(output, cotangent)
        total = product if total is None else total + product
    return total


def jvp(fun, primals, tangents, has_aux=False):
    """Returns (result, tangent): the derivative of fun's result at the primals, a tuple, in the direction of
    the tangents. It is the transpose of vjp, which is linear in its cotangents."""
    if len(primals) != len(tangents):
        raise ValueError(f"jvp: there are {len(primals)} primals and {len(tangents)} tangents")
    results = vjp(fun, *primals, has_aux=has_aux)
    result, back = results[:2]
    outputs, structure = tree_flatten(result)
    with enable_grad():
        probes = [_core._track(_core.full(output.shape, 0, output.dtype)) for output in outputs]
        grads = tree_flatten(back(tree_unflatten(structure, probes)))[0]
        moved = _gradients(_sum_of_products(grads, tree_flatten(tuple(tangents))[0]), probes, retain=True)
    tangent = tree_unflatten(structure, moved)
    return (result, tangent, results[2]) if has_aux else (result, tangent)


def _select_arguments(args, argnums, name):
    """Returns the leaves of the arguments of argnums, and functions that put such a list of leaves back into
    the arguments or into their structure."""
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for number in numbers:
        if not -len(args) <= number < len(args):
            raise ValueError(f"{name}: argument {number} is asked for, there are {len(args)}")
    leaves, structure = tree_flatten(tuple(args[number] for number in numbers))

    def put(items):
        """Returns args with these leaves."""
        given = list(args)
        for number, part in zip(numbers, tree_unflatten(structure, items)):
            given[number] = part
        return given

    def shaped(items):
        trees = tree_unflatten(structure, items)
        return trees[0] if isinstance(argnums, int) else trees

    return _as_tensors(leaves), put, shaped


def jacrev(fun, argnums=0, has_aux=False):
    """Returns the Jacobian of fun's result with respect to the arguments of argnums (a number or a tuple):
    the result's axes, then the argument's; computed row by row. For trees it is a tree: the result's
    structure, with the arguments' structure in place of each leaf. has_aux: fun returns (result, aux), and
    aux is passed on."""
    def function(*args):
        leaves, put, shaped = _select_arguments(args, argnums, "jacrev")
        leaves = [_track_leaf(leaf, "jacrev") for leaf in leaves]
        with enable_grad():
            result, aux = _split_aux(fun(*put(leaves)), has_aux, "jacrev")
            outputs, structure = tree_flatten(result)
            results = []
            for output in _as_tensors(outputs):
                rows = [_gradients(_core._paired(output, row), leaves, retain=True) for row in _basis(output)]
                results.append(shaped([_stacked(parts, tuple(output.shape) + tuple(parts[0].shape)) for parts in zip(*rows)]))
        results = tree_unflatten(structure, results)
        return (results, aux) if has_aux else results

    return function


def jacfwd(fun, argnums=0, has_aux=False):
    """Returns the Jacobian of fun's result with respect to the arguments of argnums, as jacrev does; computed
    column by column."""
    def function(*args):
        leaves, put, shaped = _select_arguments(args, argnums, "jacfwd")

        results = vjp(lambda *leaves: fun(*put(leaves)), *leaves, has_aux=has_aux)
        outputs, structure = tree_flatten(results[0])
        outputs = _as_tensors(outputs)
        with enable_grad():
            probes = [_core._track(_core.full(output.shape, 0, output.dtype)) for output in outputs]
            slopes = results[1](tree_unflatten(structure, probes))  # linear in the probes
            parts = []
            for x, slope in zip(leaves, slopes):
                columns = [_gradients(_core._paired(slope, column), probes, retain=True) for column in _basis(x)]
                parts.append([_jacobian_columns(moved, x) for moved in zip(*columns)])
        result = tree_unflatten(structure, [shaped(list(of)) for of in zip(*parts)])
        return (result, results[2]) if has_aux else result

    return function


def _jacobian_columns(moved, x):
    size = tuple(moved[0].shape)
    last = _stacked(moved, (x.numel(), *size))
    return ops.reshape(ops.permute(last, (*range(1, len(size) + 1), 0)), size + tuple(x.shape))


def hessian(fun, argnums=0):
    """Returns the second derivatives of fun's scalar result with respect to the arguments of argnums: their
    axes twice; for trees, a tree of trees."""
    return jacfwd(grad(fun, argnums), argnums)


def _basis(x):
    n = x.numel()
    rows = ops.equal(ops.iota(_core.int64, (n, n), 0), ops.iota(_core.int64, (n, n), 1))
    rows = ops.reshape(ops.cast(rows, x.dtype), (n, *x.shape))
    return [rows[i] for i in range(n)]


def _stacked(parts, shape):
    return ops.reshape(concat_parts([ops.reshape(part, (1, *part.shape)) for part in parts], 0), shape)


# --------------------------------------------------------------------------------- traced functions

def _trace(fun, specs, structure):
    """Traces fun once on operands of these (dtype, shape); returns (the traced function, the number of
    results, their structure)."""
    seen = []

    def flat(operands):
        leaves, out = tree_flatten(fun(*tree_unflatten(structure, operands)))
        seen.append(out)
        return tuple(leaf if isinstance(leaf, Tensor) else _core.asarray(leaf) for leaf in leaves)

    function, count = _core._trace(flat, tuple(specs))
    return function, count, seen[0]


def _trace_with_number(fun, specs, structure):
    """Traces fun with one more operand, an integer by which its random draws differ."""
    def numbered(*operands):
        *operands, number = operands
        with with_iteration(number):
            return fun(*tree_unflatten(structure, operands))

    return _trace(numbered, [*specs, (_core.int64, ())], tree_flatten(tuple(range(len(specs) + 1)))[1])


def _trace_iteration(fun, specs, structure):
    """Traces fun as _trace does; returns also whether there is one more operand, the iteration number,
    because fun draws random numbers."""
    draws = Draws()
    try:
        with with_iteration(draws):
            return (*_trace(fun, specs, structure), False)
    except Draws as raised:
        if raised is not draws:
            raise
    return (*_trace_with_number(fun, specs, structure), True)


def _leaf_axes(axes, tree, name):
    """Returns one axis (or None) for each leaf; an axis for a subtree is used for all of its leaves."""
    if axes is None or isinstance(axes, int):
        return [axes] * len(tree_flatten(tree)[0])
    if isinstance(axes, (list, tuple)) and isinstance(tree, (list, tuple)) and len(axes) == len(tree):
        return [axis for one, part in zip(axes, tree) for axis in _leaf_axes(one, part, name)]
    if isinstance(axes, dict) and isinstance(tree, dict) and axes.keys() == tree.keys():
        return [axis for key in sorted(tree) for axis in _leaf_axes(axes[key], tree[key], name)]
    raise ValueError(f"vmap: {name} {axes} does not fit the structure {tree_flatten(tree)[1]}")


def _as_tensors(leaves):
    return [leaf if isinstance(leaf, Tensor) else _core.asarray(leaf) for leaf in leaves]


_NO_DRAWS = ("vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' randomness "
             "flags on vmap or perform the randomness operation out of vmap")


def vmap(fun, in_axes=0, out_axes=0, axis_size=None, *, in_dims=None, out_dims=None, randomness="same"):
    """Returns fun mapped over batches: arguments lose their axes in_axes (None: the same for all elements),
    and results get axes out_axes. fun is traced: it runs once, on one element, whose values cannot be read.
    randomness determines what it draws: the "same" numbers for all elements, "different" ones, or "error".
    (jax.vmap; torch.func.vmap's in_dims and randomness)"""
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    in_axes, out_axes = in_axes if in_dims is None else in_dims, out_axes if out_dims is None else out_dims

    @functools.wraps(fun)
    def function(*args, **options):
        leaves, structure = tree_flatten(args)
        leaves = _as_tensors(leaves)
        axes = _leaf_axes(in_axes, args, "in_axes")
        size, specs = axis_size, []
        for leaf, axis in zip(leaves, axes):
            shape = list(leaf.shape)
            if axis is not None:
                if not -len(shape) <= axis < len(shape):
                    raise ValueError(f"vmap: axis {axis} of a tensor {tuple(shape)} is asked for")
                n = shape.pop(axis)
                if size is not None and n != size:
                    raise ValueError(f"vmap: the batch has {size} elements in one argument, {n} in another")
                size = n
            specs.append((leaf.dtype, tuple(shape)))
        if size is None:
            raise ValueError("vmap: no argument has an axis for the batch\n  hint: give the size of the batch as axis_size")
        element = functools.partial(fun, **options)
        if randomness == "different":
            traced, count, out = _trace_with_number(element, specs, structure)
            leaves, axes = [*leaves, ops.iota(_core.int64, (size,), 0)], [*axes, 0]
        else:
            with with_iteration(RuntimeError(_NO_DRAWS)) if randomness == "error" else contextlib.nullcontext():
                traced, count, out = _trace(element, specs, structure)
        places = _leaf_axes(out_axes, tree_unflatten(out, [0] * count), "out_axes") if not isinstance(out_axes, int) else [out_axes] * count
        return tree_unflatten(out, _core._vmap(traced, count, leaves, tuple(axes), tuple(places), size))

    return function


def _same_structure(name, what, given, wanted):
    if given != wanted:
        raise TypeError(f"{name}: {what} has the structure {given}, it must be {wanted}")


def scan(f, init, xs=None, length=None, reverse=False):
    """Returns (carry, ys), where carry, y = f(carry, x) for each element x of xs along axis 0: one plan for
    any length. (jax.lax.scan)"""
    carry, structure = tree_flatten(init)
    carry = _as_tensors(carry)
    elements, inside = tree_flatten(xs)
    elements = _as_tensors(elements)
    for element in elements:
        if not element.ndim or length is not None and element.shape[0] != length:
            raise ValueError(f"scan: xs has {tuple(element.shape)}, its axis 0 must have {'an element a turn' if length is None else length}")
        length = element.shape[0]
    if length is None:
        raise ValueError("scan: without xs, length is required: the number of iterations")
    specs = [(part.dtype, tuple(part.shape)) for part in carry] + [(part.dtype, tuple(part.shape)[1:]) for part in elements]
    both = tree_flatten((init, xs))[1]
    shapes = []

    def body(c, x):
        result = f(c, x)
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError(f"scan: the function gives a pair (carry, y), not {type(result).__name__}")
        parts, given = tree_flatten(result[0])
        _same_structure("scan", "the carry that the function gives", given, structure)
        shapes.append(tree_flatten(result[1])[1])
        return result

    function, count, _, draws = _trace_iteration(body, specs, both)
    if draws:
        elements = [*elements, ops.iota(_core.int64, (length,), 0)]
    results = _core._scan(function, carry, elements, count - len(carry), length, reverse)
    return tree_unflatten(structure, results[:len(carry)]), tree_unflatten(shapes[0], results[len(carry):])


def associative_scan(fn, elems, reverse=False, axis=0):
    """Returns all prefixes of the elements along the axis, combined by fn, which is associative: element i is
    x0 . x1 . ... . xi (reverse: from the last element on). The number of rounds is the logarithm of the axis'
    size. (jax.lax.associative_scan)"""
    if not callable(fn):
        raise TypeError("lax.associative_scan: fn argument should be callable.")
    leaves, structure = tree_flatten(elems)
    leaves = _as_tensors(leaves)
    specs = []
    for leaf in leaves:
        if not -leaf.ndim <= axis < leaf.ndim:
            raise ValueError(f"associative_scan: axis {axis} of a tensor {tuple(leaf.shape)} is asked for")
        size = list(leaf.shape)
        size.pop(axis)
        specs.append((leaf.dtype, tuple(size)))
    both = tree_flatten((elems, elems))[1]
    with with_iteration(RuntimeError("associative_scan: the function draws random numbers, which would be the same for all elements\n"
                                     "  hint: draw them outside, as elements")):
        function, _, given = _trace(fn, specs + specs, both)
    _same_structure("associative_scan", "what the function gives", given, structure)
    return tree_unflatten(structure, _core._associative_scan(function, leaves, axis, reverse))


def while_loop(cond_fun, body_fun, init):
    """Repeats carry = body_fun(carry) while cond_fun(carry) holds. It has no gradient in reverse mode.
    (jax.lax.while_loop)"""
    carry, structure = tree_flatten(init)
    carry = _as_tensors(carry)
    specs = [(part.dtype, tuple(part.shape)) for part in carry]
    single = tree_flatten((init,))[1]
    goes_on, _, _, draws = _trace_iteration(cond_fun, specs, single)
    body, _, given, more = _trace_iteration(body_fun, specs, single)
    _same_structure("while_loop", "what the body gives", given, structure)
    if draws or more:  # the iteration number is carried along
        counted = tree_flatten((init, 0))[1]
        specs.append((_core.int64, ()))

        def test(c, turn):
            with with_iteration(turn):
                return cond_fun(c)

        def step(c, turn):
            with with_iteration(turn):
                return body_fun(c), turn + 1

        goes_on, _, _ = _trace(test, specs, counted)
        body, _, _ = _trace(step, specs, counted)
        carry = [*carry, ops.cast(0, _core.int64)]
    return tree_unflatten(structure, _core._while(goes_on, body, carry)[:len(specs) - (draws or more)])


def fori_loop(lower, upper, body_fun, init):
    """Repeats carry = body_fun(i, carry) for i from lower to upper, upper excluded. (jax.lax.fori_loop)"""
    count = ops.iota(_core.int64, (max(upper - lower, 0),), 0) + lower
    return scan(lambda carry, i: (body_fun(i, carry), ()), init, count)[0]


def cond(pred, true_fun, false_fun, *operands):
    """Returns true_fun(*operands) if pred, a bool, holds, else false_fun(*operands); only one of them runs.
    (jax.lax.cond)"""
    leaves, structure = tree_flatten(operands)
    leaves = _as_tensors(leaves)
    pred = pred if isinstance(pred, Tensor) else _core.asarray(pred)
    specs = [(leaf.dtype, tuple(leaf.shape)) for leaf in leaves]
    then, count, out = _trace(true_fun, specs, structure)
    otherwise, _, other = _trace(false_fun, specs, structure)
    _same_structure("cond", "what false_fun gives", other, out)
    return tree_unflatten(out, _core._cond(pred, then, otherwise, leaves, count))
