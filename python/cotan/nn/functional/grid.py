"""Images read at places that are computed: spatial transformers."""
import struct

from ... import _core
from ..._core import ops
from ..._elementwise import filling
from .base import concat, take

__all__ = ["affine_grid", "grid_sample"]


def _rounded(x):
    """The float32 next to x."""
    return struct.unpack("f", struct.pack("f", x))[0]


def _centres(n, align_corners, like):
    """Where n elements' centres lie, the outermost (align_corners) or the edges at -1 and 1. In float32 each step is rounded as
    PyTorch does it: between which two elements a place lies must not hang on the last bit."""
    rounded = _rounded if like.dtype == _core.float32 else float
    step = rounded(2 / (n - 1)) if n > 1 else 0.0
    at = [rounded(-1 + step * i) if i < n // 2 else rounded(1 - step * (n - 1 - i)) for i in range(n)]
    if n == 1:
        at = [-1.0 if align_corners else 0.0]
    elif not align_corners:
        at = [rounded(rounded(x * (n - 1)) / n) for x in at]
    return _core.asarray(at, dtype=like.dtype)


def affine_grid(theta, size, align_corners=None):
    """(N, H, W, 2) or (N, D, H, W, 3): for each place of (N, C, ...) where theta, (N, 2, 3) or (N, 3, 4), sends it."""
    n, sizes = len(size) - 2, [int(s) for s in size[2:]]
    if n not in (2, 3) or tuple(theta.shape) != (int(size[0]), n, n + 1):
        raise ValueError(f"affine_grid: theta is {tuple(theta.shape)} and the size {tuple(size)}, they must be (N, 2, 3) and "
                         "(N, C, H, W), or (N, 3, 4) and (N, C, D, H, W)")
    if min(sizes) < 1:
        raise ValueError(f"affine_grid: the size is {tuple(size)}, it must be positive")
    shape = (*sizes, 1)
    lines = [ops.expand(ops.reshape(_centres(s, bool(align_corners), theta), [s if i == axis else 1 for i in range(n + 1)]), shape)
             for axis, s in enumerate(sizes)]
    base = concat([*reversed(lines), ops.expand(filling(1, theta.dtype), shape)], n)
    grid = ops.matmul(ops.reshape(base, (1, -1, n + 1)), ops.permute(theta, (0, 2, 1)))
    return ops.reshape(grid, (theta.shape[0], *sizes, n))


def _reflected(at, low, high):
    """Turned back at both ends as often as it takes."""
    span = high - low
    if span == 0:
        return at * 0 + low
    at = ops.abs(at - low)
    rest = at - ops.floor(at / span) * span
    odd = ops.floor(at / span) - 2 * ops.floor(at / (2 * span)) > 0
    return ops.select(odd, span - rest, rest) + low


def _grid_places(at, size, padding_mode, align_corners):
    """Places from -1 to 1 as places among the elements of an axis."""
    at = (at + 1) * ((size - 1) / 2) if align_corners else (at + 1) * (size / 2) - 0.5
    if padding_mode == "reflection":
        at = _reflected(at, 0, size - 1) if align_corners else _reflected(at, -0.5, size - 0.5)
    if padding_mode == "zeros":
        return at
    return ops.select(ops.greater(at, 0), ops.select(ops.less(at, size - 1), at, filling(size - 1, at.dtype)), filling(0, at.dtype))


def _corner(flat, places, sizes, channels):
    """The elements (N, C, P) at whole places, one (N, P) an axis; 0 outside."""
    index = inside = None
    for at, size in zip(places, sizes):
        here = ops.and_(ops.greater_equal(at, 0), ops.less_equal(at, size - 1))
        inside = here if inside is None else ops.and_(inside, here)
        at = ops.cast(ops.minimum(ops.maximum(at, 0), size - 1), _core.int64)
        index = at if index is None else index * size + at
    index, inside = (ops.reshape(x, (x.shape[0], 1, x.shape[1])) for x in (index, inside))
    found = ops.take_along(flat, ops.expand(index, (index.shape[0], channels, index.shape[2])), axis=2)
    return ops.select(inside, found, filling(0, flat.dtype))


def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    """(N, C, H, W) or (N, C, D, H, W) read at the places of a grid (N, ..., 2 or 3): x, y (and z) from -1 to 1."""
    n = len(input.shape) - 2
    if n not in (2, 3) or len(grid.shape) != n + 2 or grid.shape[-1] != n or grid.shape[0] != input.shape[0]:
        raise RuntimeError(f"grid_sample: the input is {tuple(input.shape)} and the grid {tuple(grid.shape)}, they must be (N, C, H, W) "
                           "and (N, H', W', 2), or (N, C, D, H, W) and (N, D', H', W', 3)")
    if mode not in ("bilinear", "nearest"):
        known = mode == "bicubic"
        raise (NotImplementedError if known else ValueError)(f"grid_sample: mode is {mode!r}, it must be \"bilinear\" or \"nearest\"")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(f"grid_sample: padding_mode is {padding_mode!r}, it must be \"zeros\", \"border\" or \"reflection\"")
    batch, channels, *sizes = input.shape
    flat = ops.reshape(input, (batch, channels, -1))
    spots = ops.reshape(grid, (batch, -1, n))
    places = [_grid_places(ops.reshape(take(spots, 2, n - 1 - axis, n - axis), (batch, -1)), size, padding_mode, bool(align_corners))
              for axis, size in enumerate(sizes)]
    if mode == "nearest":
        total = _corner(flat, [ops.round(at) for at in places], sizes, channels)
    else:
        total = None
        first = [ops.stop_gradient(ops.floor(at)) for at in places]
        behind = [at - low for at, low in zip(places, first)]
        for corner in range(2 ** n):
            high = [corner >> axis & 1 for axis in range(n)]
            at = [low + one for low, one in zip(first, high)]
            weight = None
            for one, share in zip(high, behind):
                near = share if one else 1 - share
                weight = near if weight is None else weight * near
            part = _corner(flat, at, sizes, channels) * ops.reshape(weight, (batch, 1, -1))
            total = part if total is None else total + part
    return ops.reshape(total, (batch, channels, *grid.shape[1:-1]))
