"""Puts a batch norm of running statistics into the layer before it, as torch.nn.utils.fusion."""
import copy

from ..._core import ops
from ..._creation import ones_like, zeros_like
from ..parameter import Parameter


def _fuse(weight, bias, mean, var, eps, scale, shift, axis):
    """Returns weight and bias of the layer and the norm; `axis` of the weight has the outputs."""
    bias = zeros_like(mean) if bias is None else bias
    scale, shift = ones_like(mean) if scale is None else scale, zeros_like(mean) if shift is None else shift
    factor = scale * ops.rsqrt(var + eps)
    shape = [1] * weight.ndim
    shape[axis] = -1
    fused = (weight * factor.reshape(shape)).detach(), ((bias - mean) * factor + shift).detach()
    return Parameter(fused[0], weight.requires_grad), Parameter(fused[1], bias.requires_grad)


def fuse_conv_bn_weights(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, transpose=False):
    return _fuse(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 1 if transpose else 0)


def fuse_linear_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b):
    return _fuse(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 0)


def fuse_conv_bn_eval(conv, bn, transpose=False):
    """Returns a copy of the convolution that computes both; both are in eval mode."""
    assert not (conv.training or bn.training), "Fusion only for eval!"
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(conv.weight, conv.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias,
                                                    transpose)
    return fused


def fuse_linear_bn_eval(linear, bn):
    """Returns a copy of the linear layer that computes both; both are in eval mode."""
    return fuse_conv_bn_eval(linear, bn)
