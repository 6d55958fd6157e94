"""Sampling images at computed positions: spatial transformers."""
import struct

from ... import _core
from ..._core import ops
from ..._elementwise import scalar_of_dtype
from .base import concat, slice_axis
from .window import cubic_weights

__all__ = ["affine_grid", "grid_sample"]


def _round_to_float32(x):
    """Returns x rounded to float32."""
    return struct.unpack("f", struct.pack("f", x))[0]


def _element_centres(n, align_corners, like):
    """Returns the centres of n elements; the outermost centres (align_corners), or the edges, are at -1 and
    1. In float32 each step is rounded as in PyTorch, since the last bit may decide between which two elements
    a position is."""
    rounded = _round_to_float32 if like.dtype == _core.float32 else float
    step = rounded(2 / (n - 1)) if n > 1 else 0.0
    at = [rounded(-1 + step * i) if i < n // 2 else rounded(1 - step * (n - 1 - i)) for i in range(n)]
    if n == 1:
        at = [-1.0 if align_corners else 0.0]
    elif not align_corners:
        at = [rounded(rounded(x * (n - 1)) / n) for x in at]
    return _core.asarray(at, dtype=like.dtype)


def affine_grid(theta, size, align_corners=None):
    """Returns (N, H, W, 2) or (N, D, H, W, 3): the position to which theta, (N, 2, 3) or (N, 3, 4), maps each
    element of (N, C, ...)."""
    n, sizes = len(size) - 2, [int(s) for s in size[2:]]
    if n not in (2, 3) or tuple(theta.shape) != (int(size[0]), n, n + 1):
        raise ValueError(f"affine_grid: theta is {tuple(theta.shape)} and the size {tuple(size)}, they must be (N, 2, 3) and "
                         "(N, C, H, W), or (N, 3, 4) and (N, C, D, H, W)")
    if min(sizes) < 1:
        raise ValueError(f"affine_grid: the size is {tuple(size)}, it must be positive")
    shape = (*sizes, 1)
    lines = [ops.expand(ops.reshape(_element_centres(s, bool(align_corners), theta), [s if i == axis else 1 for i in range(n + 1)]), shape)
             for axis, s in enumerate(sizes)]
    base = concat([*reversed(lines), ops.expand(scalar_of_dtype(1, theta.dtype), shape)], n)
    grid = ops.matmul(ops.reshape(base, (1, -1, n + 1)), ops.permute(theta, (0, 2, 1)))
    return ops.reshape(grid, (theta.shape[0], *sizes, n))


def _reflect(at, low, high):
    """Reflects at both ends, as often as needed."""
    span = high - low
    if span == 0:
        return at * 0 + low
    at = ops.abs(at - low)
    rest = at - ops.floor(at / span) * span
    odd = ops.floor(at / span) - 2 * ops.floor(at / (2 * span)) > 0
    return ops.select(odd, span - rest, rest) + low


def _grid_to_indices(at, size, padding_mode, align_corners):
    """Converts positions from -1 to 1 to positions among the elements of an axis."""
    at = (at + 1) * ((size - 1) / 2) if align_corners else (at + 1) * (size / 2) - 0.5
    return _keep_inside(at, size, padding_mode, align_corners)


def _keep_inside(at, size, padding_mode, align_corners):
    """Reflects or clips positions among the elements of an axis, unless what is outside is 0."""
    if padding_mode == "reflection":
        at = _reflect(at, 0, size - 1) if align_corners else _reflect(at, -0.5, size - 0.5)
    if padding_mode == "zeros":
        return at
    return ops.select(ops.greater(at, 0), ops.select(ops.less(at, size - 1), at, scalar_of_dtype(size - 1, at.dtype)), scalar_of_dtype(0, at.dtype))


def _gather_corner(flat, places, sizes, channels):
    """Returns the elements (N, C, P) at integer positions, one (N, P) for each axis; 0 outside."""
    index = inside = None
    for at, size in zip(places, sizes):
        here = ops.and_(ops.greater_equal(at, 0), ops.less_equal(at, size - 1))
        inside = here if inside is None else ops.and_(inside, here)
        at = ops.cast(ops.minimum(ops.maximum(at, 0), size - 1), _core.int64)
        index = at if index is None else index * size + at
    index, inside = (ops.reshape(x, (x.shape[0], 1, x.shape[1])) for x in (index, inside))
    result = ops.take_along(flat, ops.expand(index, (index.shape[0], channels, index.shape[2])), axis=2)
    return ops.select(inside, result, scalar_of_dtype(0, flat.dtype))


def _sample_bicubic(flat, places, sizes, channels, padding_mode, align_corners):
    """Returns (N, C, P): the sums of the 4 x 4 elements around each position, by Keys' cubic."""
    taps = []  # of each axis: positions and weights (N, P) of four elements
    for at, size in zip(places, sizes):
        first = ops.stop_gradient(ops.floor(at))
        at4 = [_keep_inside(first + step, size, padding_mode, align_corners) for step in (-1, 0, 1, 2)]
        taps.append(list(zip(at4, cubic_weights(at - first))))
    total = None
    for row, high in taps[0]:
        for column, wide in taps[1]:
            weight = high * wide
            part = _gather_corner(flat, [row, column], sizes, channels) * ops.reshape(weight, (weight.shape[0], 1, -1))
            total = part if total is None else total + part
    return total


def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    """Samples (N, C, H, W) or (N, C, D, H, W) at the positions of a grid (N, ..., 2 or 3): x, y (and z) from
    -1 to 1."""
    n = len(input.shape) - 2
    if n not in (2, 3) or len(grid.shape) != n + 2 or grid.shape[-1] != n or grid.shape[0] != input.shape[0]:
        raise RuntimeError(f"grid_sample: the input is {tuple(input.shape)} and the grid {tuple(grid.shape)}, they must be (N, C, H, W) "
                           "and (N, H', W', 2), or (N, C, D, H, W) and (N, D', H', W', 3)")
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(f"grid_sample: mode is {mode!r}, it must be \"bilinear\", \"nearest\" or \"bicubic\"")
    if mode == "bicubic" and n != 2:
        raise RuntimeError("grid_sample: mode is \"bicubic\", which is for (N, C, H, W) only")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(f"grid_sample: padding_mode is {padding_mode!r}, it must be \"zeros\", \"border\" or \"reflection\"")
    batch, channels, *sizes = input.shape
    flat = ops.reshape(input, (batch, channels, -1))
    spots = ops.reshape(grid, (batch, -1, n))
    inside = "zeros" if mode == "bicubic" else padding_mode  # of a cubic's taps, each is kept inside
    places = [_grid_to_indices(ops.reshape(slice_axis(spots, 2, n - 1 - axis, n - axis), (batch, -1)), size, inside,
                               bool(align_corners))
              for axis, size in enumerate(sizes)]
    if mode == "bicubic":
        total = _sample_bicubic(flat, places, sizes, channels, padding_mode, bool(align_corners))
    elif mode == "nearest":
        total = _gather_corner(flat, [ops.round(at) for at in places], sizes, channels)
    else:
        total = None
        first = [ops.stop_gradient(ops.floor(at)) for at in places]
        after = [at - low for at, low in zip(places, first)]
        for corner in range(2 ** n):
            high = [corner >> axis & 1 for axis in range(n)]
            at = [low + one for low, one in zip(first, high)]
            weight = None
            for one, share in zip(high, after):
                near = share if one else 1 - share
                weight = near if weight is None else weight * near
            part = _gather_corner(flat, at, sizes, channels) * ops.reshape(weight, (batch, 1, -1))
            total = part if total is None else total + part
    return ops.reshape(total, (batch, channels, *grid.shape[1:-1]))
