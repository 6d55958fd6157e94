"""Derivatives of functions of tensors, by the names of torch.autograd.functional.

Inputs and results of a function are tensors or tuples of them; what is returned is nested in the same way.
"""
from .. import _core, _transforms
from .._core import Tensor, ops
from .._grad import enable_grad
from .._shaping import concat_parts
from . import grad

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _track_inputs(inputs, create_graph):
    """Returns the inputs as values at which histories begin; with create_graph their own histories
    continue."""
    single = isinstance(inputs, Tensor)
    inputs = (inputs,) if single else tuple(inputs)
    return single, tuple(ops.cast(x, x.dtype) if create_graph and x.requires_grad else _core._track(x) for x in inputs)


def _call(func, inputs, name):
    with enable_grad():
        outputs = func(*inputs)
    single = isinstance(outputs, Tensor)
    outputs = (outputs,) if single else tuple(outputs)
    for output in outputs:
        if not isinstance(output, Tensor):
            raise TypeError(f"{name}: the function must give tensors, it gave {type(output).__name__}")
    return single, outputs


def _finish_outputs(tree, create_graph):
    if isinstance(tree, tuple):
        return tuple(_finish_outputs(one, create_graph) for one in tree)
    return tree if create_graph else _core._snapshot(tree)


def _gradients_or_zeros(outputs, inputs, create_graph, cotangents=None):
    """Returns gradients; zeros for inputs on which nothing depends."""
    behind = [(y, c) for y, c in zip(outputs, cotangents or [None] * len(outputs)) if y.requires_grad]
    if not behind:
        return tuple(_core.full(x.shape, 0, x.dtype) for x in inputs)
    outputs, given = zip(*behind)
    return grad(outputs, inputs, None if cotangents is None else given, retain_graph=True, create_graph=create_graph,
                allow_unused=True, materialize_grads=True)


def _jacobian_rows(output, inputs, create_graph):
    """Returns one output's Jacobian with respect to each input, with its axes before the input's."""
    with enable_grad():
        flat = ops.reshape(output, (-1,))
        rows = [_gradients_or_zeros((flat[i],), inputs, create_graph) for i in range(flat.shape[0])]
        if not rows:
            return tuple(_core.full((*output.shape, *x.shape), 0, x.dtype) for x in inputs)
        return tuple(ops.reshape(concat_parts([ops.reshape(row[k], (1, *x.shape)) for row in rows], 0), (*output.shape, *x.shape))
                     for k, x in enumerate(inputs))


def jacobian(func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"):
    """Returns the derivatives of func's results with respect to its inputs: the result's axes, then the
    input's."""
    single_in, inputs = _track_inputs(inputs, create_graph)
    single_out, outputs = _call(func, inputs, "jacobian")
    result = tuple(_jacobian_rows(output, inputs, create_graph) for output in outputs)
    result = tuple(row[0] for row in result) if single_in else result
    return _finish_outputs(result[0] if single_out else result, create_graph)


def _scalar_function(func, name):
    def function(*inputs):
        output = func(*inputs)
        if not isinstance(output, Tensor) or output.numel() != 1:
            raise RuntimeError(f"{name}: the function must give one number")
        return ops.reshape(output, ())

    return function


def _gradient_of(func, name):
    def function(*inputs):
        return _gradients_or_zeros((_scalar_function(func, name)(*inputs),), inputs, True)

    return function


def hessian(func, inputs, create_graph=False, strict=False, vectorize=False, outer_jacobian_strategy="reverse-mode"):
    """Returns the second derivatives of func's scalar result with respect to its inputs."""
    result = jacobian(_gradient_of(func, "hessian"), inputs, create_graph)
    return result[0] if isinstance(inputs, Tensor) else result


def _check_vectors(v, like, name):
    if v is None:
        if any(x.numel() != 1 for x in like):
            raise RuntimeError(f"{name}: v may be left out only where there is one number for it")
        return tuple(_core.full(x.shape, 1, x.dtype) for x in like)
    v = (v,) if isinstance(v, Tensor) else tuple(v)
    if [tuple(one.shape) for one in v] != [tuple(x.shape) for x in like]:
        raise RuntimeError(f"{name}: v has the sizes {', '.join(str(tuple(one.shape)) for one in v)}, it needs "
                           f"{', '.join(str(tuple(x.shape)) for x in like)}")
    return v


def vjp(func, inputs, v=None, create_graph=False, strict=False):
    """Returns (func's results, v times the Jacobian); v has the form of the results."""
    single_in, inputs = _track_inputs(inputs, create_graph)
    single_out, outputs = _call(func, inputs, "vjp")
    result = _gradients_or_zeros(outputs, inputs, create_graph, _check_vectors(v, outputs, "vjp"))
    return (_finish_outputs(outputs[0] if single_out else outputs, create_graph), _finish_outputs(result[0] if single_in else result, create_graph))


def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """Returns (func's results, the Jacobian times v); v has the form of the inputs."""
    _, inputs = _track_inputs(inputs, create_graph)
    return _finish_outputs(_transforms.jvp(func, inputs, _check_vectors(v, inputs, "jvp")), create_graph)


def vhp(func, inputs, v=None, create_graph=False, strict=False):
    """Returns (func's scalar result, v times its second derivatives); v has the form of the inputs."""
    single, inputs = _track_inputs(inputs, create_graph)
    with enable_grad():
        output = _scalar_function(func, "vhp")(*inputs)
        result = _gradients_or_zeros(_gradients_or_zeros((output,), inputs, True), inputs, create_graph, _check_vectors(v, inputs, "vhp"))
    return _finish_outputs(output, create_graph), _finish_outputs(result[0] if single else result, create_graph)


hvp = vhp  # second derivatives are symmetric
