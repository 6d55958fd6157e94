"""Maxima over windows at computed positions: fractional max pooling (Graham 2014), adaptive max pooling with indices."""
import math

from ... import _core
from ..._core import ops
from ..._paths import own_names as _own_names
from ..._random import unit_floats


def _max_at(x, positions):
    """Returns the maxima of x (N, C, ...), and their flat indices; positions: for each axis (N or 1, C or 1, outputs, taps)."""
    n, c, *sizes = x.shape
    rank, index = len(sizes), None
    outputs, taps = [at.shape[2] for at in positions], [at.shape[3] for at in positions]
    for axis, (at, size) in enumerate(zip(positions, sizes)):
        shape = [*at.shape[:2], *[1] * (2 * rank)]  # (N, C, outputs of each axis, taps of each axis)
        shape[2 + axis], shape[2 + rank + axis] = at.shape[2:]
        at = ops.reshape(at, shape)
        index = at if index is None else index * size + at
    places, size = math.prod(outputs), math.prod(taps)
    index = ops.reshape(ops.expand(index, (n, c, *outputs, *taps)), (n, c, places * size))
    flat = ops.reshape(x, (n, c, math.prod(sizes)))
    values = ops.reshape(ops.take_along(flat, index, axis=2), (n, c, places, size))
    best = ops.argmax(values, axis=3, keepdims=True)
    index = ops.reshape(ops.take_along(ops.reshape(index, (n, c, places, size)), best, axis=3), (n, c, places))
    return ops.reshape(ops.take_along(flat, index, axis=2), (n, c, *outputs)), ops.reshape(index, (n, c, *outputs))


def _with_batch(input, n, name):
    if input.ndim not in (n + 1, n + 2):
        raise RuntimeError(f"{name}: the input has {input.ndim} axes, it must have {n + 1}, or {n + 2} with a batch")
    return input if input.ndim == n + 2 else ops.reshape(input, (1, *input.shape))


def _without_batch(results, input, return_indices):
    """Removes the batch axis that the input lacks."""
    n = len(results[0].shape)
    results = [x if input.ndim == n else ops.reshape(x, tuple(x.shape)[1:]) for x in results]
    return tuple(results) if return_indices else results[0]


def _adaptive_max(n, input, output_size, return_indices):
    x = _with_batch(input, n, f"adaptive_max_pool{n}d")
    sizes = tuple(x.shape)[2:]
    wanted = (output_size,) * n if isinstance(output_size, int) else tuple(output_size) * (n if len(output_size) == 1 else 1)
    wanted = [have if size is None else size for size, have in zip(wanted, sizes)]
    if not return_indices:
        return _without_batch([ops.adaptive_max_pool(x, output=wanted)], input, False)
    positions = []
    for size, count in zip(sizes, wanted):
        windows = [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]
        taps = max(end - start for start, end in windows)  # shorter windows repeat their last element
        at = [[min(start + j, end - 1) for j in range(taps)] for start, end in windows]
        positions.append(_core.asarray([[at]], dtype=_core.int64))
    return _without_batch(_max_at(x, positions), input, True)


def _adaptive_variant(n, always=False):
    def pool(input, output_size, return_indices=False):
        return _adaptive_max(n, input, output_size, always or return_indices)

    pool.__name__ = f"adaptive_max_pool{n}d" + "_with_indices" * always
    return pool


adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = map(_adaptive_variant, (1, 2, 3))
adaptive_max_pool1d_with_indices, adaptive_max_pool2d_with_indices, adaptive_max_pool3d_with_indices = (
    _adaptive_variant(n, True) for n in (1, 2, 3))


def _fractional_max(n, input, kernel_size, output_size, output_ratio, return_indices, samples):
    name = f"fractional_max_pool{n}d"
    if output_size is None and output_ratio is None:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    x = _with_batch(input, n, name)
    sizes = tuple(x.shape)[2:]
    kernel = (kernel_size,) * n if isinstance(kernel_size, int) else tuple(kernel_size)
    if output_size is None:
        ratios = (output_ratio,) * n if isinstance(output_ratio, float) else tuple(output_ratio)
        output_size = [int(size * ratio) for size, ratio in zip(sizes, ratios)]
    wanted = (output_size,) * n if isinstance(output_size, int) else tuple(output_size)
    if samples is None:
        samples = unit_floats((*x.shape[:2], n), x.dtype)
    positions = []
    for axis, (size, count, taps) in enumerate(zip(sizes, wanted, kernel)):
        if count + taps - 1 > size:
            raise RuntimeError(f"{name}: {count} windows of {taps} elements do not fit into {size}")
        # PyTorch's planes have the sample of the columns first, its volumes that of the depth.
        sample = samples[:, :, axis if n == 3 else n - 1 - axis][:, :, None]
        step = (size - taps) / max(count - 1, 1)
        i = ops.iota(_core.int64, (1, 1, count), 2)
        start = ops.cast((i + sample) * step, "int64") - ops.cast(sample * step, "int64")
        start = ops.select(ops.equal(i, count - 1), size - taps, start)  # (N, C, outputs)
        positions.append(start[..., None] + ops.iota(_core.int64, (1, 1, 1, taps), 3))
    return _without_batch(_max_at(x, positions), input, return_indices)


def _fractional_variant(n, always=False):
    def pool(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
        """Maxima over windows of kernel_size whose starts are drawn; _random_samples (N, C, axes), from 0 to 1."""
        return _fractional_max(n, input, kernel_size, output_size, output_ratio, always or return_indices, _random_samples)

    pool.__name__ = f"fractional_max_pool{n}d" + "_with_indices" * always
    return pool


fractional_max_pool2d, fractional_max_pool3d = map(_fractional_variant, (2, 3))
fractional_max_pool2d_with_indices, fractional_max_pool3d_with_indices = (_fractional_variant(n, True) for n in (2, 3))


__all__ = _own_names(globals())
