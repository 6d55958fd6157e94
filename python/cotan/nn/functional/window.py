"""Linear maps, convolutions, pooling, padding, resampling, embedding: inputs are (N, C, ...); the batch axis
may be missing."""
import math

from ... import _core
from ..._core import ops
from ..._elementwise import scalar_of_dtype, root_with_zero_grad
from ..._dtypes import FLOATS
from ..._grad import no_grad
from .base import concat, per_axis, slice_axis, with_bias

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "bilinear",
    "conv1d",
    "conv2d", "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "embedding", "embedding_bag",
    "fold", "interpolate", "linear", "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_pool1d",
    "max_pool1d_with_indices", "max_pool2d", "max_pool2d_with_indices", "max_pool3d", "max_pool3d_with_indices", "max_unpool1d",
    "max_unpool2d", "max_unpool3d", "one_hot", "pad", "pixel_shuffle",
    "pixel_unshuffle", "unfold", "upsample", "upsample_bilinear", "upsample_nearest"]


def linear(input, weight, bias=None):
    """input (..., in), weight (out, in) or (in,), bias (out,)."""
    vector = weight.ndim == 1
    if vector:
        weight = ops.reshape(weight, (1, -1))
    y = _matmul(input, ops.permute(weight, (1, 0)))
    if vector:
        y = ops.reshape(y, tuple(y.shape)[:-1])
    return with_bias(y, bias)


def _matmul(a, b):
    """a (..., K) and b (K, N); a vector is a row."""
    if a.ndim == 1:
        return ops.reshape(ops.matmul(ops.reshape(a, (1, -1)), b), (-1,))
    return ops.matmul(a, b)


def bilinear(input1, input2, weight, bias=None):
    """input1 (..., A), input2 (..., B), weight (O, A, B)."""
    lead = tuple(input1.shape)[:-1]
    a = ops.reshape(input1, (-1, input1.shape[-1]))
    b = ops.reshape(input2, (-1, input2.shape[-1]))
    y = ops.reshape(_core.einsum("ni,oij,nj->no", a, weight, b), lead + (weight.shape[0],))
    return with_bias(y, bias)


# ------------------------------------------------------------------------------------ convolutions


def _add_batch(input, n, name):
    """Returns the input as (N, C, ...), and whether it had no batch axis."""
    rank = len(input.shape)
    if rank == n + 2:
        return input, False
    if rank == n + 1:
        return ops.reshape(input, (1,) + tuple(input.shape)), True
    raise RuntimeError(f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {name}, but got input of size: "
                       f"{list(input.shape)}")


def _remove_batch(y, single):
    return ops.reshape(y, tuple(y.shape)[1:]) if single else y


def _in_float64(op):
    """Returns the op, which of integers computes in float64: exactly up to 2^53."""
    def call(x, weight, bias, **options):
        if x.dtype in FLOATS:
            return op(x, weight, bias, **options)
        operands = [one if one is None else ops.cast(one, "float64") for one in (x, weight, bias)]
        return ops.cast(op(*operands, **options), x.dtype)

    return call


def _conv(n, input, weight, bias, stride, padding, dilation, groups):
    x, single = _add_batch(input, n, f"conv{n}d")
    if x.shape[1] != weight.shape[1] * groups:
        raise RuntimeError(f"Given groups={groups}, weight of size {list(weight.shape)}, expected input{list(x.shape)} to "
                           f"have {weight.shape[1] * groups} channels, but got {x.shape[1]} channels instead")
    stride, dilation = per_axis(stride, n), per_axis(dilation, n)
    if padding == "same":
        if any(step != 1 for step in stride):
            raise ValueError("padding='same' is not supported for strided convolutions")
        total = [d * (k - 1) for d, k in zip(dilation, tuple(weight.shape)[2:])]
        padding = [t // 2 for t in total] + [t - t // 2 for t in total]
    else:
        padding = per_axis(0 if padding == "valid" else padding, n)
    return _remove_batch(_in_float64(ops.conv)(x, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups),
                         single)


def conv1d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    return _conv(1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    return _conv(2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    return _conv(3, input, weight, bias, stride, padding, dilation, groups)


def conv_tbc(input, weight, bias, pad=0):
    """input (T, N, C), weight (taps, C, out)."""
    y = conv1d(ops.permute(input, (1, 2, 0)), ops.permute(weight, (2, 1, 0)), bias, padding=pad)
    return ops.permute(y, (2, 0, 1))


def _conv_transpose(n, input, weight, bias, stride, padding, output_padding, groups, dilation):
    x, single = _add_batch(input, n, f"conv_transpose{n}d")
    y = _in_float64(ops.conv_transpose)(x, weight, bias, stride=per_axis(stride, n), padding=per_axis(padding, n),
                                        output_padding=per_axis(output_padding, n), dilation=per_axis(dilation, n), groups=groups)
    return _remove_batch(y, single)


def conv_transpose1d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    return _conv_transpose(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose2d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    return _conv_transpose(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose3d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    return _conv_transpose(3, input, weight, bias, stride, padding, output_padding, groups, dilation)


def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    """Returns windows of (N, C, H, W) as columns: (N, C * taps, windows)."""
    x, single = _add_batch(input, 2, "unfold")
    pad_each = per_axis(padding, 2)
    w = ops.windows(x, axes=(2, 3), size=per_axis(kernel_size, 2), stride=per_axis(stride, 2),
                    dilation=per_axis(dilation, 2), low=pad_each, high=pad_each)  # (N, C, H', W', h, w)
    n, c, rows, columns, high, wide = w.shape
    y = ops.reshape(ops.permute(w, (0, 1, 4, 5, 2, 3)), (n, c * high * wide, rows * columns))
    return _remove_batch(y, single)


def fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1):
    """Adds the columns at the positions of their windows: (N, C * taps, windows) becomes (N, C, H, W)."""
    single = len(input.shape) == 2
    x = ops.reshape(input, (1,) + tuple(input.shape)) if single else input
    kernel, dilation, padding, stride, output = (per_axis(v, 2) for v in (kernel_size, dilation, padding, stride, output_size))
    taps = kernel[0] * kernel[1]
    counts = [(o + 2 * p - d * (k - 1) - 1) // s + 1 for o, p, d, k, s in zip(output, padding, dilation, kernel, stride)]
    n, c = x.shape[0], x.shape[1] // taps
    x = ops.reshape(x, (n * c, taps, *counts))
    one_hot = ops.one_hot(ops.iota("int32", (taps,), 0), taps, "float32")
    weight = ops.reshape(ops.cast(one_hot, x.dtype), (taps, 1, *kernel))
    rest = [o + 2 * p - ((m - 1) * s + d * (k - 1) + 1)
            for o, p, m, s, d, k in zip(output, padding, counts, stride, dilation, kernel)]
    y = ops.conv_transpose(x, weight, stride=stride, padding=padding, output_padding=rest, dilation=dilation)
    y = ops.reshape(y, (n, c, *output))
    return _remove_batch(y, single)


# ------------------------------------------------------------------------------------------ pooling


def _max_pool(n, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices):
    x, single = _add_batch(input, n, f"max_pool{n}d")
    kernel = per_axis(kernel_size, n)
    options = {"kernel": kernel, "stride": kernel if stride is None or stride == [] else per_axis(stride, n),
               "padding": per_axis(padding, n), "dilation": per_axis(dilation, n), "ceil_mode": ceil_mode}
    y = _remove_batch(ops.max_pool(x, **options), single)
    return (y, _remove_batch(ops.max_pool_indices(x, **options), single)) if return_indices else y


def max_pool1d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    return _max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    return _max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    return _max_pool(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def _pool_with_indices(n):
    def pool(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        return _max_pool(n, input, kernel_size, stride, padding, dilation, ceil_mode, True)

    pool.__name__ = f"max_pool{n}d_with_indices"
    return pool


max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices = map(_pool_with_indices, (1, 2, 3))


def _max_unpool(n, input, indices, kernel_size, stride, padding, output_size):
    """Writes elements to the positions at which max_pool found them; all others are 0."""
    x, single = _add_batch(input, n, f"max_unpool{n}d")
    kernel = per_axis(kernel_size, n)
    stride = kernel if stride is None else per_axis(stride, n)
    sizes = tuple(x.shape)[2:]
    if output_size is None:
        output = [(size - 1) * s - 2 * p + k for size, s, p, k in zip(sizes, stride, per_axis(padding, n), kernel)]
    else:
        output = list(output_size)[-n:]
    lines, places = x.shape[0] * x.shape[1], math.prod(output)
    zeros = ops.expand(ops.cast(0.0, x.dtype), (lines, places))
    indices, values = ops.reshape(indices, (lines, -1)), ops.reshape(x, (lines, -1))
    fixed = ops.stop_gradient(values)
    y = ops.scatter(zeros, indices, fixed, axis=1, batch_dims=1)
    # Of elements with one position the last one stays; each of them has the position's gradient.
    y = ops.scatter_add(y, indices, ops.select(ops.less(ops.abs(fixed), math.inf), values - fixed, 0.0), axis=1, batch_dims=1)
    return _remove_batch(ops.reshape(y, tuple(x.shape)[:2] + tuple(output)), single)


def max_unpool1d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    return _max_unpool(1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    return _max_unpool(2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    return _max_unpool(3, input, indices, kernel_size, stride, padding, output_size)


def _avg_pool(n, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    x, single = _add_batch(input, n, f"avg_pool{n}d")
    kernel = per_axis(kernel_size, n)
    y = ops.avg_pool(x, kernel=kernel, stride=kernel if stride is None or stride == [] else per_axis(stride, n),
                     padding=per_axis(padding, n), ceil_mode=ceil_mode, exclude_padding=not count_include_pad,
                     divisor=divisor_override)
    return _remove_batch(y, single)


def avg_pool1d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def avg_pool2d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    return _avg_pool(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def avg_pool3d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    return _avg_pool(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _lp_pool(n, input, norm_type, kernel_size, stride, ceil_mode):
    x, single = _add_batch(input, n, f"lp_pool{n}d")
    kernel = per_axis(kernel_size, n)
    stride = kernel if stride is None else per_axis(stride, n)
    total = ops.avg_pool(ops.pow(x, float(norm_type)), kernel=kernel, stride=stride, ceil_mode=ceil_mode)
    total = ops.sign(total) * ops.relu(ops.abs(total)) * float(math.prod(kernel))
    return _remove_batch(root_with_zero_grad(total, norm_type), single)


def lp_pool1d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)


def _adaptive_pool(n, op, input, output_size, name):
    x, single = _add_batch(input, n, name)
    sizes = per_axis(output_size, n) if not isinstance(output_size, int) else (output_size,) * n
    sizes = [have if want is None else want for want, have in zip(sizes, tuple(x.shape)[2:])]
    return _remove_batch(op(x, output=sizes), single)


def adaptive_avg_pool1d(input, output_size):
    return _adaptive_pool(1, ops.adaptive_avg_pool, input, output_size, "adaptive_avg_pool1d")


def adaptive_avg_pool2d(input, output_size):
    return _adaptive_pool(2, ops.adaptive_avg_pool, input, output_size, "adaptive_avg_pool2d")


def adaptive_avg_pool3d(input, output_size):
    return _adaptive_pool(3, ops.adaptive_avg_pool, input, output_size, "adaptive_avg_pool3d")


# ------------------------------------------------------------------------------- padding, resampling


def _pad_axis(x, axis, low, high, mode):
    """Pads one axis with its own elements."""
    n = x.shape[axis]
    if mode == "replicate" and (low < 0 or high < 0):
        return ops.gather(x, _core.asarray([min(max(i - low, 0), n - 1) for i in range(n + low + high)], dtype=_core.int64),
                          axis=axis)
    if low < 0 or high < 0:
        x = slice_axis(x, axis, max(-low, 0), n + min(high, 0))
        return _pad_axis(x, axis, max(low, 0), max(high, 0), mode)
    if mode == "replicate":
        shape = list(x.shape)

        def edge(at, times):
            shape[axis] = times
            return ops.expand(slice_axis(x, axis, at, at + 1), shape)

        parts = [edge(0, low)] if low else []
        parts += [x] + ([edge(n - 1, high)] if high else [])
        return concat(parts, axis)
    if mode == "reflect":
        if low >= n or high >= n:
            raise RuntimeError("Padding size should be less than the corresponding input dimension, but got: padding "
                               f"({low}, {high}) at dimension {axis} of input {list(x.shape)}")
        parts = [ops.flip(slice_axis(x, axis, 1, low + 1), (axis,))] if low else []
        parts += [x] + ([ops.flip(slice_axis(x, axis, n - 1 - high, n - 1), (axis,))] if high else [])
    else:
        if low > n or high > n:
            raise RuntimeError(f"Padding value causes wrapping around more than once: padding ({low}, {high}) at dimension "
                               f"{axis} of input {list(x.shape)}")
        parts = [slice_axis(x, axis, n - low, n)] if low else []
        parts += [x] + ([slice_axis(x, axis, 0, high)] if high else [])
    return concat(parts, axis)


def pad(input, pad, mode="constant", value=None):
    """pad: the numbers of elements before and after the last axis, then for the axis before it, and so on."""
    rank, pairs = len(input.shape), [tuple(pad[i:i + 2]) for i in range(0, len(pad), 2)]
    if len(pad) % 2 or len(pairs) > rank:
        raise RuntimeError(f"pad: {len(pad)} numbers are given for a tensor of {rank} axes, it takes 2 an axis")
    if mode == "constant":
        low, high = [0] * rank, [0] * rank
        for i, (before, after) in enumerate(pairs):
            low[rank - 1 - i], high[rank - 1 - i] = before, after
        for axis in range(rank):
            if low[axis] < 0 or high[axis] < 0:
                n = input.shape[axis]
                input = slice_axis(input, axis, max(-low[axis], 0), n + min(high[axis], 0))
                low[axis], high[axis] = max(low[axis], 0), max(high[axis], 0)
        return ops.pad(input, scalar_of_dtype(value or 0, input.dtype), low=low, high=high)
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    for i, (before, after) in enumerate(pairs):
        if before or after:
            input = _pad_axis(input, rank - 1 - i, before, after, mode)
    return input


def pixel_shuffle(input, upscale_factor):
    """Returns (..., C r r, H, W) as (..., C, H r, W r)."""
    *lead, c, h, w = input.shape
    r = upscale_factor
    if c % (r * r):
        raise RuntimeError("pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of "
                           f"upscale_factor, but input.size(-3)={c} is not divisible by {r * r}")
    x, k = ops.reshape(input, (*lead, c // (r * r), r, r, h, w)), len(lead)
    x = ops.permute(x, (*range(k + 1), k + 3, k + 1, k + 4, k + 2))
    return ops.reshape(x, (*lead, c // (r * r), h * r, w * r))


def pixel_unshuffle(input, downscale_factor):
    """Returns (..., C, H r, W r) as (..., C r r, H, W)."""
    *lead, c, h, w = input.shape
    r, k = downscale_factor, len(lead)
    x = ops.reshape(input, (*lead, c, h // r, r, w // r, r))
    x = ops.permute(x, (*range(k + 1), k + 2, k + 4, k + 1, k + 3))
    return ops.reshape(x, (*lead, c * r * r, h // r, w // r))


def _iota(n, dtype):
    return ops.iota(dtype, (n,), 0)


def _nearest(x, axis, size, scale, exact):
    n = x.shape[axis]
    if size % n == 0 and scale in (None, size / n):  # each element is repeated
        shape, times = list(x.shape), size // n
        if times == 1:
            return x
        wide = ops.expand(ops.reshape(x, shape[:axis + 1] + [1] + shape[axis + 1:]),
                          shape[:axis + 1] + [times] + shape[axis + 1:])
        shape[axis] = size
        return ops.reshape(wide, shape)
    ratio = n / size if scale is None else 1 / scale
    at = [min(int((i + 0.5) * ratio if exact else math.floor(i * ratio)), n - 1) for i in range(size)]
    return ops.gather(x, _core.asarray(at), axis=axis)


def _source_positions(size, n, scale, align_corners):
    """Returns the position of each of `size` elements among n."""
    if align_corners:
        return [i * (n - 1) / (size - 1) if size > 1 else 0.0 for i in range(size)]
    ratio = n / size if scale is None else 1 / scale
    return [(i + 0.5) * ratio - 0.5 for i in range(size)]


def cubic_weights(t):
    """Returns the weights of the four neighbours of a position that is t after the second one."""
    a = -0.75
    near = [(a + 2) * d**3 - (a + 3) * d**2 + 1 for d in (t, 1 - t)]
    far = [a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a for d in (1 + t, 2 - t)]
    return [far[0], near[0], near[1], far[1]]


def _interpolation_weights(n, size, scale, align_corners, cubic):
    """Returns (n, size): the weights of the elements from which each of `size` is interpolated."""
    weights = [[0.0] * size for _ in range(n)]
    for column, place in enumerate(_source_positions(size, n, scale, align_corners)):
        if not cubic:
            place = max(place, 0.0)
        first = math.floor(place)
        t = place - first
        for step, weight in zip((-1, 0, 1, 2) if cubic else (0, 1), cubic_weights(t) if cubic else (1 - t, t)):
            weights[min(max(first + step, 0), n - 1)][column] += weight
    return weights


def _antialias_weight(t, cubic):
    """The filter at distance t: a triangle, or Keys' cubic with a = -1/2, as in Pillow."""
    t = abs(t)
    if not cubic:
        return max(1.0 - t, 0.0)
    return (1.5 * t - 2.5) * t * t + 1 if t < 1 else ((-0.5 * t + 2.5) * t - 4) * t + 2 if t < 2 else 0.0


def _antialias_weights(n, size, scale, align_corners, cubic):
    """Returns (n, size): a filter that is as wide as the elements that each of `size` covers."""
    ratio = ((n - 1) / (size - 1) if size > 1 else 0.0) if align_corners else n / size if scale is None else 1 / scale
    wide = max(ratio, 1.0)
    support, weights = (2 if cubic else 1) * wide, [[0.0] * size for _ in range(n)]
    for column in range(size):
        centre = ratio * (column + 0.5)
        rows = range(max(int(centre - support + 0.5), 0), min(int(centre + support + 0.5), n))
        drawn = [_antialias_weight((row - centre + 0.5) / wide, cubic) for row in rows]
        for row, weight in zip(rows, drawn):
            weights[row][column] = weight / sum(drawn)
    return weights


def _resample(x, axis, weights):
    """Resamples one axis by a product with a constant matrix (n, size), which has few weights in each
    column."""
    moved = list(range(len(x.shape)))
    moved.append(moved.pop(axis))
    y = ops.matmul(ops.permute(x, moved), _core.asarray(weights, dtype=x.dtype))
    back = list(range(len(moved) - 1))
    back.insert(axis, len(moved) - 1)
    return ops.permute(y, back)


def interpolate(input, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None,
                antialias=False):
    """Resizes (N, C, ...): nearest, nearest-exact, linear, bilinear, trilinear, bicubic, area."""
    n = len(input.shape) - 2
    if (size is None) == (scale_factor is None):
        raise ValueError("either size or scale_factor should be defined" if size is None else
                         "only one of size or scale_factor should be defined")
    if antialias and not (mode in ("bilinear", "bicubic") and n == 2):
        raise ValueError("Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D tensor as input")
    if mode not in ("nearest", "nearest-exact", "area") and n != {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}.get(mode):
        raise NotImplementedError(f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {n + 2}D) for the modes: "
                                  "nearest | linear | bilinear | bicubic | trilinear | area | nearest-exact "
                                  f"(got {mode})")
    if align_corners is not None and mode in ("nearest", "nearest-exact", "area"):
        raise ValueError("align_corners option can only be set with the interpolating modes: "
                         "linear | bilinear | bicubic | trilinear")
    scales = [None] * n
    if size is not None:
        sizes = per_axis(size, n)
    else:
        scales = [float(s) for s in (scale_factor if isinstance(scale_factor, (tuple, list)) else [scale_factor] * n)]
        sizes = [math.floor(have * s) for have, s in zip(tuple(input.shape)[2:], scales)]
        if recompute_scale_factor:
            scales = [None] * n
    if mode == "area":
        return (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[n - 1](input, sizes)
    for i in range(n):
        if mode.startswith("nearest"):
            input = _nearest(input, i + 2, sizes[i], scales[i], mode == "nearest-exact")
        else:
            weights = (_antialias_weights if antialias else _interpolation_weights)(
                input.shape[i + 2], sizes[i], scales[i], bool(align_corners), mode == "bicubic")
            input = _resample(input, i + 2, weights)
    return input


def upsample(input, size=None, scale_factor=None, mode="nearest", align_corners=None):
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input, size=None, scale_factor=None):
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(input, size=None, scale_factor=None):
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


# ---------------------------------------------------------------------------------------- embedding


def embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    """Returns the rows of weight (V, D) for indices (...): (..., D)."""
    counts = None
    if max_norm is not None or scale_grad_by_freq:
        flat, zeros = ops.reshape(input, (-1,)), _core.full((weight.shape[0],), 0, weight.dtype)
        counts = ops.scatter_add(zeros, flat, ops.expand(ops.cast(1.0, weight.dtype), tuple(flat.shape)), axis=0)  # (V,)
    if max_norm is not None:
        _limit_norms(weight, counts, float(max_norm), float(norm_type))
    rows = ops.gather(weight, input, axis=0)
    if scale_grad_by_freq:  # the value stays, its gradient is divided by the number of times that the row is used
        fixed = ops.stop_gradient(rows)
        rows = fixed + (rows - fixed) / ops.reshape(ops.gather(counts, input, axis=0), (*input.shape, 1))
    if padding_idx is None:
        return rows
    padding_idx = padding_idx + weight.shape[0] if padding_idx < 0 else padding_idx
    padding = ops.reshape(ops.equal(input, padding_idx), tuple(input.shape) + (1,))
    return ops.select(padding, ops.stop_gradient(rows), rows)


def _limit_norms(weight, counts, max_norm, norm_type):
    """Scales the rows that are used, and whose norm is greater than max_norm, down to it: in place."""
    with no_grad():
        norms = ops.vector_norm(weight, axes=(1,), keepdims=True, ord=norm_type)
        large = ops.and_(ops.greater(norms, max_norm), ops.greater(ops.reshape(counts, (-1, 1)), 0.0))
        weight.copy_(ops.select(large, weight * (max_norm / (norms + 1e-7)), weight))


def embedding_bag(input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode="mean",
                  sparse=False, per_sample_weights=None, include_last_offset=False, padding_idx=None):
    """Returns the sum, mean or maximum of the rows of each bag: input (B, L), or (N,) with the bags'
    offsets."""
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(f"embedding_bag: per_sample_weights was not None, they are for mode='sum', got mode='{mode}'")
    rows = embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
    if per_sample_weights is not None:
        rows = rows * ops.reshape(per_sample_weights, tuple(per_sample_weights.shape) + (1,))
    counted = ops.expand(ops.cast(True, weight.dtype), tuple(input.shape))
    if padding_idx is not None:
        counted = ops.cast(ops.not_equal(input, padding_idx % weight.shape[0]), weight.dtype)
    counted = ops.reshape(counted, tuple(input.shape) + (1,))
    masked = ops.select(ops.greater(counted, 0.0), rows, -math.inf if mode == "max" else 0.0)
    if offsets is None:
        if len(input.shape) != 2:
            raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {len(input.shape)}")
        reduced = ops.max(masked, axes=(1,)) if mode == "max" else ops.sum(masked, axes=(1,))
        count = ops.sum(counted, axes=(1,))
    else:
        bags = offsets.shape[0] - bool(include_last_offset)
        starts = slice_axis(offsets, 0, 0, bags)
        places = ops.iota(starts.dtype, (input.shape[0],), 0)
        bag = ops.searchsorted(starts, places, right=True) - 1
        empty = ops.expand(ops.cast(-math.inf if mode == "max" else 0.0, weight.dtype), (bags, weight.shape[1]))
        reduced = (ops.scatter_max if mode == "max" else ops.scatter_add)(empty, bag, masked, axis=0)
        zeros = ops.expand(ops.cast(0.0, weight.dtype), (bags, 1))
        count = ops.scatter_add(zeros, bag, counted, axis=0)
    if mode == "mean":
        return reduced / ops.maximum(count, 1.0)
    return ops.select(ops.greater(count, 0.0), reduced, 0.0) if mode == "max" else reduced


def one_hot(tensor, num_classes=-1):
    """Returns a new last axis that is 1 at the class and 0 elsewhere (int64)."""
    if num_classes == -1:
        num_classes = int(ops.max(tensor).item()) + 1
    return ops.one_hot(tensor, num_classes, "int64")
