"""Batch norms merged into the layer before them, for inference: by the names of torch.nn.utils.fusion."""
import copy

from ..._core import ops
from ..parameter import Parameter

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]


def _fused_copy(layer, bn, fuse, *more):
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("fusion needs running statistics, the batch norm has none")
    fused = copy.deepcopy(layer)
    fused.weight, fused.bias = fuse(fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, *more)
    return fused


def _fused_weights(weight, bias, mean, var, eps, bn_weight, bn_bias, axis):
    """Scales the weight along the axis of its outputs; returns the new weight and bias as parameters."""
    scale = ops.rsqrt(var + eps) if bn_weight is None else bn_weight * ops.rsqrt(var + eps)
    shape = [-1 if i == axis else 1 for i in range(weight.ndim)]
    new = ops.cast(weight * ops.reshape(scale, shape), weight.dtype)
    shift = ((0.0 if bias is None else bias) - mean) * scale
    shift = shift if bn_bias is None else shift + bn_bias
    like = weight if bias is None else bias
    needs = bias is not None and bias.requires_grad
    return Parameter(new.detach(), weight.requires_grad), Parameter(ops.cast(shift, like.dtype).detach(), needs)


def fuse_conv_bn_weights(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, transpose=False):
    return _fused_weights(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 1 if transpose else 0)


def fuse_conv_bn_eval(conv, bn, transpose=False):
    """Returns the convolution that computes bn(conv(x)) in evaluation."""
    return _fused_copy(conv, bn, fuse_conv_bn_weights, transpose)


def fuse_linear_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b):
    return _fused_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 0)


def fuse_linear_bn_eval(linear, bn):
    """Returns the linear layer that computes bn(linear(x)) in evaluation."""
    if bn.num_features not in (1, linear.out_features):
        raise AssertionError("To fuse, linear.out_features == bn.num_features or bn.num_features == 1")
    return _fused_copy(linear, bn, fuse_linear_bn_weights)
