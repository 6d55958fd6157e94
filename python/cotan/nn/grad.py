"""Gradients of convolutions with respect to one operand, by the names of torch.nn.grad."""
from .. import _core
from .._grad import enable_grad
from . import functional as F


def _differentiate(n, input, weight, grad_output, options):
    """Differentiates a convolution by the operand of which only the size is given."""
    from ..autograd import grad
    with enable_grad():
        operands = [one if isinstance(one, _core.Tensor) else _core.full(tuple(one), 0, grad_output.dtype).requires_grad_()
                    for one in (input, weight)]
        leaf = operands[0] if operands[0] is not input else operands[1]
        return grad(getattr(F, f"conv{n}d")(*operands, None, *options), leaf, grad_output)[0]


def _by_input(n):
    def conv_input(input_size, weight, grad_output, stride=1, padding=0, dilation=1, groups=1):
        return _differentiate(n, input_size, weight, grad_output, (stride, padding, dilation, groups))

    return conv_input


def _by_weight(n):
    def conv_weight(input, weight_size, grad_output, stride=1, padding=0, dilation=1, groups=1):
        return _differentiate(n, input, weight_size, grad_output, (stride, padding, dilation, groups))

    return conv_weight


conv1d_input, conv2d_input, conv3d_input = map(_by_input, (1, 2, 3))
conv1d_weight, conv2d_weight, conv3d_weight = map(_by_weight, (1, 2, 3))
