"""Lazy modules: sizes of inputs are those of the first input."""
from .. import _core
from .._grad import no_grad
from .layers import (BatchNorm1d, BatchNorm2d, BatchNorm3d, Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d,
                     ConvTranspose3d, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d, Linear)
from .parameter import UninitializedBuffer, UninitializedParameter, is_lazy

__all__ = ["LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d", "LazyConv3d", "LazyConvTranspose1d",
           "LazyConvTranspose2d", "LazyConvTranspose3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d",
           "LazyLinear"]


class LazyModuleMixin:
    """The base of lazy modules. A subclass defines initialize_parameters(*args), called with the first input, and may name the
    class that the module becomes then."""

    cls_to_become = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)

    def initialize_parameters(self, *args, **kwargs):
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self):
        return any(is_lazy(one) for one in (*self._parameters.values(), *self._buffers.values()))

    def _lazy_load_hook(self, state_dict, prefix, *rest):
        """Gives members without a shape the shapes of the values that are loaded."""
        for name, member in [*self._parameters.items(), *self._buffers.items()]:
            value = state_dict.get(prefix + name)
            if is_lazy(member) and value is not None and not is_lazy(value):
                with no_grad():
                    member.materialize(value.shape)

    def _infer_parameters(self, module, args, kwargs=None):
        self.initialize_parameters(*args, **(kwargs or {}))
        if self.has_uninitialized_params():
            raise RuntimeError(f"module {type(self).__name__} has not been fully initialized")
        self._initialize_hook.remove()
        self._load_hook.remove()
        del self._initialize_hook, self._load_hook
        if self.cls_to_become is not None:
            self.__class__ = self.cls_to_become


class LazyLinear(LazyModuleMixin, Linear):
    cls_to_become = Linear

    def __init__(self, out_features, bias=True, device=None, dtype=None):
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(dtype=dtype)
        self.out_features = out_features
        self.bias = UninitializedParameter(dtype=dtype) if bias else None

    def reset_parameters(self):
        if not self.has_uninitialized_params() and self.in_features:
            super().reset_parameters()

    def initialize_parameters(self, input):
        if self.has_uninitialized_params():
            with no_grad():
                self.in_features = input.shape[-1]
                self.weight.materialize((self.out_features, self.in_features))
                if self.bias is not None:
                    self.bias.materialize((self.out_features,))
                self.reset_parameters()


class _LazyConv(LazyModuleMixin):
    """The lazy part of a convolution: the number of input channels."""

    def _make_lazy(self, out_channels, bias, dtype):
        self.out_channels = out_channels
        self.weight = UninitializedParameter(dtype=dtype)
        self.bias = UninitializedParameter(dtype=dtype) if bias else None

    def reset_parameters(self):
        if not self.has_uninitialized_params() and self.in_channels:
            super().reset_parameters()

    def initialize_parameters(self, input, *args, **kwargs):
        if not self.has_uninitialized_params():
            return
        if input.ndim not in (self.n + 1, self.n + 2):
            raise RuntimeError(f"Expected {self.n + 1}D (unbatched) or {self.n + 2}D (batched) input to {type(self).__name__}, but "
                               f"got input of size: {tuple(input.shape)}")
        self.in_channels = input.shape[-self.n - 1]
        if self.in_channels % self.groups:
            raise ValueError("in_channels must be divisible by groups")
        sizes = (self.in_channels, self.out_channels // self.groups) if self.transposed else \
            (self.out_channels, self.in_channels // self.groups)
        with no_grad():
            self.weight.materialize((*sizes, *self.kernel_size))
            if self.bias is not None:
                self.bias.materialize((self.out_channels,))
            self.reset_parameters()


class _LazyPlainConv(_LazyConv):
    def __init__(self, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True, padding_mode="zeros",
                 device=None, dtype=None):
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode)
        self._make_lazy(out_channels, bias, dtype)


class _LazyTransposedConv(_LazyConv):
    def __init__(self, out_channels, kernel_size, stride=1, padding=0, output_padding=0, groups=1, bias=True, dilation=1,
                 padding_mode="zeros", device=None, dtype=None):
        super().__init__(0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode)
        self._make_lazy(out_channels, bias, dtype)


class _LazyNorm(LazyModuleMixin):
    """The lazy part of a norm: the number of channels."""

    def __init__(self, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, device=None, dtype=None):
        super().__init__(0, eps, momentum, False, False)
        self.affine, self.track_running_stats = affine, track_running_stats
        if affine:
            self.weight, self.bias = UninitializedParameter(dtype=dtype), UninitializedParameter(dtype=dtype)
        if track_running_stats:
            self.running_mean, self.running_var = UninitializedBuffer(dtype=dtype), UninitializedBuffer(dtype=dtype)
            self.num_batches_tracked = _core.asarray(0)

    def reset_parameters(self):
        if not self.has_uninitialized_params() and self.num_features:
            super().reset_parameters()

    def initialize_parameters(self, input):
        if self.has_uninitialized_params():
            self.num_features = input.shape[1]
            for member in (self.weight, self.bias, self.running_mean, self.running_var):
                if member is not None:
                    member.materialize((self.num_features,))
            self.reset_parameters()


def _lazy(kind, base):
    """Returns the class Lazy<Kind>, which becomes the kind."""
    return type("Lazy" + kind.__name__, (base, kind), {"cls_to_become": kind, "__module__": __name__})


LazyConv1d, LazyConv2d, LazyConv3d = (_lazy(kind, _LazyPlainConv) for kind in (Conv1d, Conv2d, Conv3d))
LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d = (
    _lazy(kind, _LazyTransposedConv) for kind in (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d))
LazyBatchNorm1d, LazyBatchNorm2d, LazyBatchNorm3d = (_lazy(kind, _LazyNorm) for kind in (BatchNorm1d, BatchNorm2d, BatchNorm3d))
LazyInstanceNorm1d, LazyInstanceNorm2d, LazyInstanceNorm3d = (
    _lazy(kind, _LazyNorm) for kind in (InstanceNorm1d, InstanceNorm2d, InstanceNorm3d))
