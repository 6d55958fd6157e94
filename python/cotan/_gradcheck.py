"""Checks gradients against central differences."""
from . import _core
from ._core import Tensor, ops
from ._dtypes import COMPLEX, FLOATS


class GradcheckError(RuntimeError):
    """Raised if gradients and differences disagree."""


def _outputs(fn, inputs):
    found = fn(*inputs)
    found = found if isinstance(found, (tuple, list)) else (found,)
    return [one for one in found if isinstance(one, Tensor) and (one.dtype in FLOATS or one.dtype in COMPLEX)]


def _directions(x):
    """Returns the directions in which a number can be varied."""
    return (1, 1j) if x.dtype in COMPLEX else (1,)


def _central_differences(fn, inputs, place, eps):
    """Returns how the outputs change with the input: [output][direction], arrays (elements of the input,
    elements of the output)."""
    import numpy as np

    x = inputs[place].detach().numpy()
    found = []
    for unit in _directions(inputs[place]):
        rows = []
        for i in range(x.size):
            ends = []
            for step in (eps * unit, -eps * unit):
                moved = x.copy().reshape(-1)
                moved[i] += step
                # The dtype in which it is differentiated.
                moved = _core.asarray(moved.reshape(x.shape)).requires_grad_()
                outputs = _outputs(fn, [*inputs[:place], moved, *inputs[place + 1:]])
                ends.append([one.detach().numpy().reshape(-1) for one in outputs])
            rows.append([(a - b) / (2 * eps) for a, b in zip(*ends)])
        found.append([np.array(part).reshape(x.size, -1) for part in zip(*rows)])
    return list(zip(*found))


def gradcheck(func, inputs, *, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True, nondet_tol=0.0,
              check_undefined_grad=True,
              check_grad_dtypes=False, check_batched_grad=False, check_forward_ad=False, check_backward_ad=True, fast_mode=False,
              masked=False):
    """Returns True if func's gradients at the inputs (float64, those that require gradients) agree with
    central differences of step eps; otherwise raises an error that reports the first difference, or returns
    False. Every element is checked."""
    if check_forward_ad or check_batched_grad or not check_backward_ad:
        raise ValueError("gradcheck: gradients in reverse mode are checked, neither forward nor batched ones")
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    places = [i for i, one in enumerate(inputs) if isinstance(one, Tensor) and one.requires_grad]
    if not places:
        raise ValueError("gradcheck expects at least one input tensor to require gradient, but none of the them have "
                         "requires_grad=True.")
    try:
        outputs = _outputs(func, inputs)
        for place in places:
            for k, (output, moved) in enumerate(zip(outputs, _central_differences(func, inputs, place, eps))):
                _compare(inputs[place], place, output, k, moved, atol, rtol)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _compare(x, place, output, k, moved, atol, rtol):
    """Compares for each element of the output the gradients of its real and its imaginary part."""
    import numpy as np

    from .autograd import grad
    for j in range(output.numel()):
        for unit in _directions(output):
            weight = np.zeros(output.numel(), str(output.dtype).rpartition(".")[2])
            weight[j] = unit
            weight = _core.asarray(weight.reshape(tuple(output.shape)))
            found = grad(output, x, weight, retain_graph=True, allow_unused=True)[0] if output.requires_grad else None
            found = np.zeros(x.numel()) if found is None else found.numpy().reshape(-1)
            wanted = sum(direction * np.real(np.conj(unit) * along[:, j]) for direction, along in zip(_directions(x), moved))
            if not np.allclose(found, wanted, rtol=rtol, atol=atol, equal_nan=True):
                raise GradcheckError(f"Jacobian mismatch for output {k} with respect to input "
                                     f"{place},\nnumerical:{wanted}\n"
                                     f"analytical:{found}\n")


def gradgradcheck(func, inputs, grad_outputs=None, *, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True):
    """Checks func's second derivatives: gradcheck of its gradients at grad_outputs (random ones by
    default)."""
    import numpy as np

    from .autograd import grad
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    outputs = _outputs(func, inputs)
    if grad_outputs is None:
        rng = np.random.default_rng(0)
        grad_outputs = [ops.cast(_core.asarray(rng.standard_normal(tuple(one.shape))), one.dtype).requires_grad_()
                        for one in outputs]
    grad_outputs = (grad_outputs,) if isinstance(grad_outputs, Tensor) else tuple(grad_outputs)
    places = [i for i, one in enumerate(inputs) if isinstance(one, Tensor) and one.requires_grad]

    def gradients(*args):
        given = args[:len(inputs)]
        return grad(_outputs(func, given), [given[i] for i in places], args[len(inputs):], create_graph=True,
                    materialize_grads=True)

    return gradcheck(gradients, (*inputs, *grad_outputs), eps=eps, atol=atol, rtol=rtol,
                     raise_exception=raise_exception)
