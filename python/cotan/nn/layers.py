"""Linear maps, convolutions, pooling, padding, norms and embeddings as modules."""
import math

from .. import _core
from .._core import ops
from .._grad import no_grad
from .._paths import own_names as _own_names
from . import functional as F
from . import init
from .functional.base import per_axis
from .functional.normalization import counted_batch_norm
from .init import empty_parameter_values as empty
from .module import Module
from .parameter import Parameter


def _of_axes(base, name, **attribute):
    """Returns the classes of a base for 1, 2 and 3 spatial axes, or the last of these: each has its own of the attribute's values."""
    (key, values), = attribute.items()
    values = list(values)
    return [type(f"{name}{n}d", (base,), {"__module__": base.__module__, key: value}) for n, value in enumerate(values, 4 - len(values))]


class Identity(Module):
    """Returns its input (...); arguments are ignored."""

    def __init__(self, *args, **kwargs):
        super().__init__()

    def forward(self, input):
        return input


class Flatten(Module):
    """Merges axes start_dim to end_dim into one: (N, C, H, W) to (N, C H W)."""

    def __init__(self, start_dim=1, end_dim=-1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input):
        shape = tuple(input.shape)
        first, last = self.start_dim % max(len(shape), 1), self.end_dim % max(len(shape), 1)
        return ops.reshape(input, shape[:first] + (math.prod(shape[first:last + 1]),) + shape[last + 1:])

    def extra_repr(self):
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Splits an axis into several of the given sizes: (..., n m, ...) to (..., n, m, ...)."""

    def __init__(self, dim, unflattened_size):
        super().__init__()
        if not isinstance(dim, int):
            raise TypeError("Unflatten: dim must be a whole number, names of axes are not known")
        self.dim, self.unflattened_size = dim, unflattened_size

    def forward(self, input):
        shape = tuple(input.shape)
        axis = self.dim % len(shape)
        return ops.reshape(input, shape[:axis] + tuple(self.unflattened_size) + shape[axis + 1:])

    def extra_repr(self):
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class Linear(Module):
    """x W' + b: (..., in) to (..., out), weight (out, in), bias (out,)."""

    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(empty((out_features, in_features), dtype))
        self.register_parameter("bias", Parameter(empty((out_features,), dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input):
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self):
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """x1' W x2 + b for each output: (..., in1) and (..., in2) to (..., out), weight (out, in1, in2)."""

    def __init__(self, in1_features, in2_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = Parameter(empty((out_features, in1_features, in2_features), dtype))
        self.register_parameter("bias", Parameter(empty((out_features,), dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        bound = 1 / math.sqrt(self.in1_features)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def forward(self, input1, input2):
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self):
        return (f"in1_features={self.in1_features}, in2_features={self.in2_features}, out_features={self.out_features}, "
                f"bias={self.bias is not None}")


# ------------------------------------------------------------------------------------ convolutions


class _Conv(Module):
    """n: the number of spatial axes. The weight is (out, in / groups, ...); transposed it is (in, out /
    groups, ...)."""

    n, transposed = 0, False

    def _make(self, in_channels, out_channels, kernel_size, stride, padding, dilation, output_padding, groups, bias,
              padding_mode, dtype):
        Module.__init__(self)
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups:
            raise ValueError("out_channels must be divisible by groups")
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ValueError(f"Invalid padding string {padding!r}, should be one of {{'valid', 'same'}}")
        if padding_mode not in ("zeros", "reflect", "replicate", "circular"):
            raise ValueError("padding_mode must be one of {'zeros', 'reflect', 'replicate', 'circular'}, but got "
                             f"padding_mode='{padding_mode}'")
        n = self.n
        self.in_channels, self.out_channels, self.groups, self.padding_mode = in_channels, out_channels, groups, padding_mode
        self.kernel_size, self.stride, self.dilation = per_axis(kernel_size, n), per_axis(stride, n), per_axis(dilation, n)
        if padding == "same" and any(step != 1 for step in self.stride):
            raise ValueError("padding='same' is not supported for strided convolutions")
        self.padding = padding if isinstance(padding, str) else per_axis(padding, n)
        self.output_padding = per_axis(output_padding, n)
        sizes = (in_channels, out_channels // groups) if self.transposed else (out_channels, in_channels // groups)
        self.weight = Parameter(empty(sizes + self.kernel_size, dtype))
        self.register_parameter("bias", Parameter(empty((out_channels,), dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in:
                init.uniform_(self.bias, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))

    def _borders(self):
        """Returns the numbers of elements to pad, as functional.pad takes them."""
        if self.padding == "same":
            totals = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size)]
            pairs = [(total // 2, total - total // 2) for total in totals]
        else:
            pairs = [(0, 0)] * self.n if self.padding == "valid" else [(p, p) for p in self.padding]
        return [number for pair in reversed(pairs) for number in pair]

    def forward(self, input):
        padding = self.padding
        if self.padding_mode != "zeros":
            input, padding = F.pad(input, self._borders(), mode=self.padding_mode), 0
        f = (F.conv1d, F.conv2d, F.conv3d)[self.n - 1]
        return f(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)

    def extra_repr(self):
        n = self.n
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        for name, usual in (("padding", (0,) * n), ("dilation", (1,) * n), ("output_padding", (0,) * n), ("groups", 1)):
            if getattr(self, name) != usual:
                text += f", {name}={getattr(self, name)}"
        if self.bias is None:
            text += ", bias=False"
        return text + (f", padding_mode={self.padding_mode}" if self.padding_mode != "zeros" else "")


class _PlainConv(_Conv):
    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True,
                 padding_mode="zeros", device=None, dtype=None):
        self._make(in_channels, out_channels, kernel_size, stride, padding, dilation, 0, groups, bias, padding_mode, dtype)


Conv1d, Conv2d, Conv3d = _of_axes(_PlainConv, "Conv", n=(1, 2, 3))


class _TransposedConv(_Conv):
    transposed = True

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, output_padding=0, groups=1, bias=True,
                 dilation=1, padding_mode="zeros", device=None, dtype=None):
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        self._make(in_channels, out_channels, kernel_size, stride, padding, dilation, output_padding, groups, bias,
                   padding_mode, dtype)

    def forward(self, input, output_size=None):
        more = self.output_padding
        if output_size is not None:
            sizes, wanted = tuple(input.shape)[-self.n:], tuple(output_size)[-self.n:]
            least = [(size - 1) * s - 2 * p + d * (k - 1) + 1 for size, s, p, d, k in
                     zip(sizes, self.stride, self.padding, self.dilation, self.kernel_size)]
            more = tuple(want - low for want, low in zip(wanted, least))
            if any(not 0 <= extra < max(s, d) for extra, s, d in zip(more, self.stride, self.dilation)):
                raise ValueError(f"requested an output size of {list(wanted)}, but valid sizes range from {least} to "
                                 f"{[low + s - 1 for low, s in zip(least, self.stride)]} (for an input of {list(sizes)})")
        f = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[self.n - 1]
        return f(input, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation)


ConvTranspose1d, ConvTranspose2d, ConvTranspose3d = _of_axes(_TransposedConv, "ConvTranspose", n=(1, 2, 3))


class _Windows(Module):
    def __init__(self, kernel_size, dilation=1, padding=0, stride=1):
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def extra_repr(self):
        return (f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, "
                f"stride={self.stride}")


class Unfold(_Windows):
    def forward(self, input):
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)


class Fold(_Windows):
    def __init__(self, output_size, kernel_size, dilation=1, padding=0, stride=1):
        super().__init__(kernel_size, dilation, padding, stride)
        self.output_size = output_size

    def forward(self, input):
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self):
        return f"output_size={self.output_size}, " + super().extra_repr()


# ------------------------------------------------------------------------------------------ pooling


class _MaxPool(Module):
    n = 0

    def __init__(self, kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False):
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation, self.return_indices, self.ceil_mode = padding, dilation, return_indices, ceil_mode

    def forward(self, input):
        f = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[self.n - 1]
        return f(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices)

    def extra_repr(self):
        return (f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}, "
                f"ceil_mode={self.ceil_mode}")


MaxPool1d, MaxPool2d, MaxPool3d = _of_axes(_MaxPool, "MaxPool", n=(1, 2, 3))


class _MaxUnpool(Module):
    n = 0

    def __init__(self, kernel_size, stride=None, padding=0):
        super().__init__()
        self.kernel_size = per_axis(kernel_size, self.n)
        self.stride = per_axis(kernel_size if stride is None else stride, self.n)
        self.padding = per_axis(padding, self.n)

    def forward(self, input, indices, output_size=None):
        f = (F.max_unpool1d, F.max_unpool2d, F.max_unpool3d)[self.n - 1]
        return f(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


MaxUnpool1d, MaxUnpool2d, MaxUnpool3d = _of_axes(_MaxUnpool, "MaxUnpool", n=(1, 2, 3))


class _AvgPool(Module):
    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPool):
    def __init__(self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
        super().__init__()
        self.kernel_size = per_axis(kernel_size, 1)
        self.stride = self.kernel_size if stride is None else per_axis(stride, 1)
        self.padding = per_axis(padding, 1)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, input):
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class _AvgPoolOfImages(_AvgPool):
    function = None

    def __init__(self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, kernel_size if stride is None else stride, padding
        self.ceil_mode, self.count_include_pad, self.divisor_override = ceil_mode, count_include_pad, divisor_override

    def forward(self, input):
        return self.function(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
                             self.divisor_override)


AvgPool2d, AvgPool3d = _of_axes(_AvgPoolOfImages, "AvgPool", function=map(staticmethod, (F.avg_pool2d, F.avg_pool3d)))


class _LPPool(Module):
    n = 0

    def __init__(self, norm_type, kernel_size, stride=None, ceil_mode=False):
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def forward(self, input):
        f = (F.lp_pool1d, F.lp_pool2d, F.lp_pool3d)[self.n - 1]
        return f(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self):
        return (f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
                f"ceil_mode={self.ceil_mode}")


LPPool1d, LPPool2d, LPPool3d = _of_axes(_LPPool, "LPPool", n=(1, 2, 3))


class _AdaptiveAvgPool(Module):
    function = None

    def __init__(self, output_size):
        super().__init__()
        self.output_size = output_size

    def forward(self, input):
        return self.function(input, self.output_size)

    def extra_repr(self):
        return f"output_size={self.output_size}"


AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d = _of_axes(
    _AdaptiveAvgPool, "AdaptiveAvgPool", function=map(staticmethod, (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)))


class _AdaptiveMaxPool(Module):
    function = None

    def __init__(self, output_size, return_indices=False):
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    def forward(self, input):
        return self.function(input, self.output_size, self.return_indices)

    def extra_repr(self):
        return f"output_size={self.output_size}"


AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d = _of_axes(
    _AdaptiveMaxPool, "AdaptiveMaxPool", function=map(staticmethod, (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)))


class _FractionalMaxPool(Module):
    n = 0

    def __init__(self, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
        super().__init__()
        if (output_size is None) == (output_ratio is None):
            raise ValueError(f"{type(self).__name__} requires specifying either an output size, or a pooling ratio"
                             if output_size is None else "only one of output_size and output_ratio may be specified")
        self.kernel_size, self.return_indices = per_axis(kernel_size, self.n), return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else per_axis(output_size, self.n)
        self.output_ratio = None if output_ratio is None else \
            (output_ratio,) * self.n if isinstance(output_ratio, float) else tuple(output_ratio)
        if self.output_ratio is not None and not all(0 < ratio < 1 for ratio in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input):
        f = F.fractional_max_pool2d if self.n == 2 else F.fractional_max_pool3d
        return f(input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples)


FractionalMaxPool2d, FractionalMaxPool3d = _of_axes(_FractionalMaxPool, "FractionalMaxPool", n=(2, 3))


# ------------------------------------------------------------------------------- padding, resampling


class _Pad(Module):
    n, mode = 0, "constant"

    def __init__(self, padding):
        super().__init__()
        self.padding = per_axis(padding, 2 * self.n)

    def forward(self, input):
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self):
        return f"{self.padding}"


class _ConstantPad(_Pad):
    def __init__(self, padding, value):
        super().__init__(padding)
        self.value = value

    def forward(self, input):
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self):
        return f"padding={self.padding}, value={self.value}"


ConstantPad1d, ConstantPad2d, ConstantPad3d = _of_axes(_ConstantPad, "ConstantPad", n=(1, 2, 3))


class _ZeroPad(_ConstantPad):
    def __init__(self, padding):
        super().__init__(padding, 0.0)

    def extra_repr(self):
        return f"{self.padding}"


ZeroPad1d, ZeroPad2d, ZeroPad3d = _of_axes(_ZeroPad, "ZeroPad", n=(1, 2, 3))


class _ReflectionPad(_Pad):
    mode = "reflect"


ReflectionPad1d, ReflectionPad2d, ReflectionPad3d = _of_axes(_ReflectionPad, "ReflectionPad", n=(1, 2, 3))


class _ReplicationPad(_Pad):
    mode = "replicate"


ReplicationPad1d, ReplicationPad2d, ReplicationPad3d = _of_axes(_ReplicationPad, "ReplicationPad", n=(1, 2, 3))


class _CircularPad(_Pad):
    mode = "circular"


CircularPad1d, CircularPad2d, CircularPad3d = _of_axes(_CircularPad, "CircularPad", n=(1, 2, 3))


class Upsample(Module):
    def __init__(self, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None):
        super().__init__()
        self.name = type(self).__name__
        self.size = size
        self.scale_factor = tuple(map(float, scale_factor)) if isinstance(scale_factor, tuple) else \
            float(scale_factor) if scale_factor else None
        self.mode, self.align_corners, self.recompute_scale_factor = mode, align_corners, recompute_scale_factor

    def forward(self, input):
        return F.interpolate(input, self.size, self.scale_factor, self.mode, self.align_corners,
                             self.recompute_scale_factor)

    def extra_repr(self):
        what = f"size={self.size!r}" if self.scale_factor is None else f"scale_factor={self.scale_factor!r}"
        return f"{what}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    def __init__(self, size=None, scale_factor=None):
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    def __init__(self, size=None, scale_factor=None):
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)


class PixelShuffle(Module):
    def __init__(self, upscale_factor):
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input):
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self):
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    def __init__(self, downscale_factor):
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input):
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self):
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    def __init__(self, groups):
        super().__init__()
        self.groups = groups

    def forward(self, input):
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self):
        return f"groups={self.groups}"


# -------------------------------------------------------------------------------------------- norms


class _Norm(Module):
    """The base of norms with statistics of channels: those of the batch, or running ones."""

    _version = 2
    ranks = ()

    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, device=None, dtype=None,
                 *, bias=True):
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self.register_parameter("weight", Parameter(empty((num_features,), dtype)) if affine else None)
        self.register_parameter("bias", Parameter(empty((num_features,), dtype)) if affine and bias else None)
        tracked = track_running_stats
        self.register_buffer("running_mean", empty((num_features,), dtype) if tracked else None)
        self.register_buffer("running_var", empty((num_features,), dtype) + 1 if tracked else None)
        self.register_buffer("num_batches_tracked", _core.asarray(0) if tracked else None)
        self.reset_parameters()

    def reset_running_stats(self):
        if self.track_running_stats:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            init.zeros_(self.num_batches_tracked)

    def reset_parameters(self):
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def _check_rank(self, input):
        if len(input.shape) not in self.ranks:
            wanted = " or ".join(f"{rank}D" for rank in self.ranks)
            raise ValueError(f"expected {wanted} input (got {len(input.shape)}D input)")

    def extra_repr(self):
        return (f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
                f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}")

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
        """State dicts of the first version have no counter."""
        key = prefix + "num_batches_tracked"
        if (local_metadata.get("version") or 1) < 2 and self.track_running_stats and key not in state_dict:
            state_dict[key] = _core.asarray(0)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class _BatchNorm(_Norm):
    def forward(self, input):
        self._check_rank(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        counted = ()
        if self.training and self.num_batches_tracked is not None:
            with no_grad():
                counted = self.num_batches_tracked, self.num_batches_tracked + 1
                if self.momentum is None:  # the mean over all batches
                    momentum = 1.0 / ops.cast(counted[1], self.running_mean.dtype)
        own = self.training or self.running_mean is None
        kept = self.track_running_stats or not self.training
        return counted_batch_norm(input, self.running_mean if kept else None, self.running_var if kept else None,
                                  self.weight, self.bias, own, momentum, self.eps, counted)


BatchNorm1d, BatchNorm2d, BatchNorm3d = _of_axes(_BatchNorm, "BatchNorm", ranks=((2, 3), (4,), (5,)))


class SyncBatchNorm(_BatchNorm):
    """Batch norm with the statistics of all processes, of which there is one: (N, C, ...) to the same shape."""

    ranks = (2, 3, 4, 5)

    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, process_group=None, device=None,
                 dtype=None):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype=dtype)
        self.process_group = process_group

    @classmethod
    def convert_sync_batchnorm(cls, module, process_group=None):
        """Returns the module with each batch norm in it replaced by a SyncBatchNorm of the same parameters and buffers."""
        result = module
        if isinstance(module, _BatchNorm):
            result = cls(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats, process_group)
            for kind in ("_parameters", "_buffers"):
                result.__dict__[kind].update(module.__dict__[kind])
            result.training = module.training
        for name, child in module.named_children():
            result.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return result


class _InstanceNorm(_Norm):
    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=False, track_running_stats=False, device=None,
                 dtype=None, *, bias=True):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def forward(self, input):
        self._check_rank(input)
        single = len(input.shape) == self.ranks[0]
        x = ops.reshape(input, (1,) + tuple(input.shape)) if single else input
        if x.shape[1] != self.num_features and self.affine:
            raise ValueError(f"expected input's size at dim={0 if single else 1} to match num_features "
                             f"({self.num_features}), but got: {x.shape[1]}.")
        y = F.instance_norm(x, self.running_mean, self.running_var, self.weight, self.bias,
                            self.training or not self.track_running_stats, 0.0 if self.momentum is None else self.momentum,
                            self.eps)
        return ops.reshape(y, tuple(input.shape)) if single else y


InstanceNorm1d, InstanceNorm2d, InstanceNorm3d = _of_axes(_InstanceNorm, "InstanceNorm", ranks=((2, 3), (3, 4), (4, 5)))


class LayerNorm(Module):
    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True, device=None, dtype=None):
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        shape = self.normalized_shape
        self.register_parameter("weight", Parameter(empty(shape, dtype)) if elementwise_affine else None)
        self.register_parameter("bias", Parameter(empty(shape, dtype)) if elementwise_affine and bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        if self.elementwise_affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def forward(self, input):
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return (f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
                f"bias={self.bias is not None}")


class RMSNorm(Module):
    def __init__(self, normalized_shape, eps=None, elementwise_affine=True, device=None, dtype=None):
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.register_parameter("weight", Parameter(empty(self.normalized_shape, dtype)) if elementwise_affine else None)
        self.reset_parameters()

    def reset_parameters(self):
        if self.elementwise_affine:
            init.ones_(self.weight)

    def forward(self, x):
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self):
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    def __init__(self, num_groups, num_channels, eps=1e-5, affine=True, device=None, dtype=None, *, bias=True):
        super().__init__()
        if num_channels % num_groups:
            raise ValueError("num_channels must be divisible by num_groups")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self.register_parameter("weight", Parameter(empty((num_channels,), dtype)) if affine else None)
        self.register_parameter("bias", Parameter(empty((num_channels,), dtype)) if affine and bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        if self.affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def forward(self, input):
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return (f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
                f"bias={self.bias is not None}")


class LocalResponseNorm(Module):
    def __init__(self, size, alpha=1e-4, beta=0.75, k=1.0):
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input):
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self):
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(Module):
    """Divides by a power of the sum of squares of (size - 1) // 2 neighbours in the channels on both sides: (N, C, H, W) to the
    same shape; as in PyTorch, the first channel counts for all that come after it."""

    def __init__(self, size, alpha=1e-4, beta=0.75, k=1):
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input):
        side, squares = (self.size - 1) // 2, input * input
        near = ops.sum(ops.windows(squares, axes=(1,), size=(2 * side + 1,), low=(side,), high=(side,)), axes=(-1,))
        far = ops.greater(ops.iota("int32", (1, input.shape[1], 1, 1), 1), side)
        total = near + ops.select(far, squares[:, :1], 0.0)
        return input / ops.pow(total * (self.alpha / self.size) + self.k, float(self.beta))

    def extra_repr(self):
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


# --------------------------------------------------------------------------------------- embeddings


class _Embedding(Module):
    """Rows of weight (num_embeddings, embedding_dim)."""

    def __init__(self, num_embeddings, embedding_dim, padding_idx=None, max_norm=None, norm_type=2.0,
                 scale_grad_by_freq=False, sparse=False, _weight=None, _freeze=False, device=None, dtype=None):
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise AssertionError("Padding_idx must be within num_embeddings")
            padding_idx %= num_embeddings
        self.padding_idx, self.max_norm, self.norm_type = padding_idx, max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        if _weight is None:
            self.weight = Parameter(empty((num_embeddings, embedding_dim), dtype), not _freeze)
            self.reset_parameters()
        else:
            if tuple(_weight.shape) != (num_embeddings, embedding_dim):
                raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
            self.weight = Parameter(_weight, not _freeze)

    def reset_parameters(self):
        init.normal_(self.weight)
        if self.padding_idx is not None:
            rows = ops.iota("int32", (self.num_embeddings, 1), 0)
            with no_grad():
                self.weight.copy_(ops.select(ops.equal(rows, self.padding_idx), 0.0, self.weight))

    @classmethod
    def from_pretrained(cls, embeddings, freeze=True, **options):
        """Returns a module with the given tensor as its weight."""
        if len(embeddings.shape) != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        rows, columns = embeddings.shape
        made = cls(num_embeddings=rows, embedding_dim=columns, _weight=embeddings, **options)
        made.weight.requires_grad_(not freeze)
        return made

    def _options(self, first, last):
        text = f"{self.num_embeddings}, {self.embedding_dim}" + first
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type}"
        if self.scale_grad_by_freq is not False:
            text += f", scale_grad_by_freq={self.scale_grad_by_freq}"
        return text + last


class Embedding(_Embedding):
    """Returns the rows for indices (...): (..., embedding_dim)."""

    def forward(self, input):
        return F.embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq,
                           self.sparse)

    def extra_repr(self):
        padding = f", padding_idx={self.padding_idx}" if self.padding_idx is not None else ""
        return self._options(padding, ", sparse=True" if self.sparse is not False else "")


class EmbeddingBag(_Embedding):
    def __init__(self, num_embeddings, embedding_dim, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, mode="mean",
                 sparse=False, _weight=None, include_last_offset=False, padding_idx=None, device=None, dtype=None):
        super().__init__(num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse,
                         _weight, dtype=dtype)
        self.mode, self.include_last_offset = mode, include_last_offset

    def forward(self, input, offsets=None, per_sample_weights=None):
        return F.embedding_bag(input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq,
                               self.mode, self.sparse, per_sample_weights, self.include_last_offset, self.padding_idx)

    def extra_repr(self):
        padding = f", padding_idx={self.padding_idx}" if self.padding_idx is not None else ""
        return self._options("", f", mode={self.mode!r}" + padding)


__all__ = _own_names(globals())
