"""Gradients of convolutions with respect to one operand, by the names of torch.nn.grad."""
from .. import _core
from .._grad import enable_grad
from . import functional as F


def _convolution_gradient(n, input, weight, grad_output, of_input, options):
    """Differentiates a convolution by one operand; the other one, and grad_output, may have histories."""
    with enable_grad():
        size = input if of_input else weight
        leaf = _core.full(tuple(size), 0, grad_output.dtype).requires_grad_()
        y = getattr(F, f"conv{n}d")(leaf if of_input else input, weight if of_input else leaf, None, *options)
        from ..autograd import grad
        return grad(y, leaf, grad_output)[0]


def conv1d_input(input_size, weight, grad_output, stride=1, padding=0, dilation=1, groups=1):
    return _convolution_gradient(1, input_size, weight, grad_output, True, (stride, padding, dilation, groups))


def conv1d_weight(input, weight_size, grad_output, stride=1, padding=0, dilation=1, groups=1):
    return _convolution_gradient(1, input, weight_size, grad_output, False, (stride, padding, dilation, groups))


def conv2d_input(input_size, weight, grad_output, stride=1, padding=0, dilation=1, groups=1):
    return _convolution_gradient(2, input_size, weight, grad_output, True, (stride, padding, dilation, groups))


def conv2d_weight(input, weight_size, grad_output, stride=1, padding=0, dilation=1, groups=1):
    return _convolution_gradient(2, input, weight_size, grad_output, False, (stride, padding, dilation, groups))


def conv3d_input(input_size, weight, grad_output, stride=1, padding=0, dilation=1, groups=1):
    return _convolution_gradient(3, input_size, weight, grad_output, True, (stride, padding, dilation, groups))


def conv3d_weight(input, weight_size, grad_output, stride=1, padding=0, dilation=1, groups=1):
    return _convolution_gradient(3, input, weight_size, grad_output, False, (stride, padding, dilation, groups))
