"""Shape functions, which move elements and compute nothing. Results are views where that is possible: a write
to either is seen in both."""
import math

from . import _core
from ._core import Tensor, ops
from ._dtypes import result_type
from ._elementwise import scalar_of_dtype, strong

__all__ = [
    "array_split", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_arrays", "broadcast_shapes",
    "broadcast_tensors", "broadcast_to", "cat", "chunk", "column_stack", "concat", "concatenate", "diag",
    "diag_embed", "diagflat", "diagonal", "dstack", "expand", "expand_dims", "flatten", "flip", "fliplr", "flipud",
    "hsplit", "hstack", "matrix_transpose", "moveaxis", "movedim", "narrow", "pad", "permute", "permute_dims",
    "ravel", "repeat", "repeat_interleave", "reshape", "roll", "rollaxis", "rot90", "row_stack", "select", "split",
    "squeeze", "stack", "swapaxes", "swapdims", "t", "tensor_split", "tile", "trace", "transpose", "unbind",
    "unflatten", "unsqueeze", "unstack", "vsplit", "vstack"]


def normalize_axis(axis, rank, name):
    """Returns an axis, counted from the start."""
    if not -max(rank, 1) <= axis < max(rank, 1):
        raise IndexError(f"{name}: axis {axis} is out of range for a tensor of {rank} axes")
    return axis % rank if rank else 0


def normalize_axes(axes, rank, name):
    axes = (axes,) if hasattr(axes, "__index__") else tuple(axes)
    results = [normalize_axis(int(axis), rank, name) for axis in axes]
    if len(set(results)) < len(results):
        raise ValueError(f"{name}: axes {axes} name one twice")
    return results


def parse_size_args(sizes):
    """Returns the sizes of view(2, 3) or view((2, 3))."""
    if len(sizes) == 1 and not hasattr(sizes[0], "__index__"):
        return tuple(sizes[0])
    return sizes


def make_view(x, *moves):
    return _core._view(x, moves)


def reshape(x, /, shape, *, copy=None):
    """Returns the same elements in row-major order with other sizes; one size may be -1, which is inferred. A
    view, unless copy=True."""
    x = strong(x)
    shape = (shape,) if hasattr(shape, "__index__") else tuple(shape)
    return ops.reshape(x, shape) if copy else make_view(x, ("reshape", shape))


def permute_dims(x, /, axes):
    """Returns a view whose axis i is axis axes[i] of x."""
    axes = normalize_axes(axes, x.ndim, "permute_dims")
    if len(axes) != x.ndim:
        raise ValueError(f"permute_dims: {len(axes)} axes are named, the tensor has {x.ndim}")
    return make_view(x, ("permute", tuple(axes)))


def permute(x, *dims, **named):
    return permute_dims(x, parse_size_args(dims) if dims else named["dims"])


def transpose(x, dim0=None, dim1=None, *, axes=None):
    """Exchanges two axes, transpose(x, 0, 1); or, as in NumPy, reverses all axes or permutes them by a
    tuple."""
    if dim1 is not None:
        return swapaxes(x, dim0, dim1)
    order = axes if dim0 is None else dim0
    return permute_dims(x, range(x.ndim - 1, -1, -1) if order is None else order)


def swapped_axes(x, axis0, axis1):
    """Returns the axes in order, with two exchanged."""
    order = list(range(x.ndim))
    first, second = normalize_axis(axis0, x.ndim, "transpose"), normalize_axis(axis1, x.ndim, "transpose")
    if order:
        order[first], order[second] = order[second], order[first]
    return tuple(order)


def swapaxes(x, axis0, axis1):
    return make_view(x, ("permute", swapped_axes(x, axis0, axis1)))


swapdims = swapaxes


def t(x):
    """Returns a matrix transposed, and a vector as it is."""
    if x.ndim > 2:
        raise RuntimeError(f"t: it takes a vector or a matrix, the tensor has {x.ndim} axes\n  hint: mT, or transpose")
    return permute_dims(x, range(x.ndim - 1, -1, -1))


def matrix_transpose(x, /):
    return x.mT


def moveaxis(x, source, destination, /):
    """Moves axes to other positions; the others stay in their order."""
    source, destination = normalize_axes(source, x.ndim, "moveaxis"), normalize_axes(destination, x.ndim, "moveaxis")
    if len(source) != len(destination):
        raise ValueError(f"moveaxis: {len(source)} axes do not go to {len(destination)} positions")
    order = [axis for axis in range(x.ndim) if axis not in source]
    for to, axis in sorted(zip(destination, source)):
        order.insert(to, axis)
    return make_view(x, ("permute", tuple(order)))


movedim = moveaxis


def rollaxis(x, axis, start=0):
    axis, start = normalize_axis(axis, x.ndim, "rollaxis"), start + x.ndim if start < 0 else start
    return moveaxis(x, axis, start - (axis < start))


def squeezed_sizes(x, axis, dim):
    """Returns the sizes without those of 1: all, or those of the named axes, of which dim may have other
    sizes."""
    axis, strict = (axis, True) if dim is None else (dim, False)
    if axis is None:
        gone = [i for i, size in enumerate(x.shape) if size == 1]
    else:
        gone = normalize_axes(axis, x.ndim, "squeeze")
        for i in gone:
            if strict and x.shape[i] != 1:
                raise ValueError(f"squeeze: axis {i} has {x.shape[i]} elements, it must have 1")
        gone = [i for i in gone if x.ndim and x.shape[i] == 1]
    return tuple(size for i, size in enumerate(x.shape) if i not in gone)


def squeeze(x, /, axis=None, *, dim=None):
    """Removes axes of size 1: all, or the named ones. With dim=, axes of other sizes are kept, as in
    PyTorch."""
    return make_view(x, ("reshape", squeezed_sizes(x, axis, dim)))


def expanded_sizes(x, axis):
    """Returns the sizes with new ones of 1 at these positions."""
    axes = (axis,) if hasattr(axis, "__index__") else tuple(axis)
    rank = x.ndim + len(axes)
    axes, sizes = normalize_axes(axes, rank, "expand_dims"), iter(x.shape)
    return tuple(1 if i in axes else next(sizes) for i in range(rank))


def expand_dims(x, /, axis=0):
    """Adds axes of size 1 at these positions of the result."""
    return make_view(x, ("reshape", expanded_sizes(x, axis)))


def unsqueeze(x, dim):
    return expand_dims(x, dim)


def flatten(x, start_dim=0, end_dim=-1):
    """Merges the axes from start_dim to end_dim into one."""
    if not x.ndim:
        return make_view(x, ("reshape", (1,)))
    first, last = normalize_axis(start_dim, x.ndim, "flatten"), normalize_axis(end_dim, x.ndim, "flatten")
    shape = tuple(x.shape)
    return make_view(x, ("reshape", (*shape[:first], math.prod(shape[first:last + 1]), *shape[last + 1:])))


def unflatten(x, dim, sizes):
    """Splits one axis into several."""
    dim = normalize_axis(dim, x.ndim, "unflatten")
    sizes, n = list(sizes), x.shape[dim]
    if -1 in sizes:
        sizes[sizes.index(-1)] = n // -math.prod(sizes) if math.prod(sizes) else 0
    if math.prod(sizes) != n:
        raise RuntimeError(f"unflatten: {n} elements do not make {tuple(sizes)}")
    return make_view(x, ("reshape", (*x.shape[:dim], *sizes, *x.shape[dim + 1:])))


def ravel(x):
    return make_view(strong(x), ("reshape", (-1,) if x.numel() else (0,)))


def broadcast_to(x, /, shape):
    """Broadcasts x to a shape, as a view that cannot be written."""
    return make_view(strong(x), ("expand", tuple(shape)))


def expand(x, *sizes):
    """Broadcasts x to sizes, where -1 keeps the size of the axis."""
    sizes = parse_size_args(sizes)
    after = len(sizes) - x.ndim
    return broadcast_to(x, [x.shape[i - after] if size == -1 else size for i, size in enumerate(sizes)])


def broadcast_shapes(*shapes):
    """Returns the shape to which all shapes broadcast."""
    rank, result = max((len(shape) for shape in shapes), default=0), []
    for i in range(-rank, 0):
        sizes = {shape[i] for shape in shapes if len(shape) >= -i} - {1}
        if len(sizes) > 1:
            raise ValueError(f"broadcast: the shapes {', '.join(str(tuple(shape)) for shape in shapes)} do not go together")
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def broadcast_arrays(*tensors):
    """Returns a list of the tensors, all broadcast to one shape."""
    shape = broadcast_shapes(*(x.shape for x in tensors))
    return [broadcast_to(x, shape) for x in tensors]


broadcast_tensors = broadcast_arrays


def _concat_dtype(tensors, axis, name):
    tensors = [strong(x) for x in tensors]
    if not tensors:
        raise ValueError(f"{name}: it needs at least one tensor")
    dtype = result_type(*tensors)
    return [x if x.dtype == dtype else ops.cast(x, dtype) for x in tensors]


_MAX_PARTS = 64  # the maximum of operands of ops.concat


def concat_parts(parts, axis):
    """Concatenates any number of parts of one dtype."""
    done = _core._join(parts, axis, False)
    if done is not None:
        return done
    while len(parts) > _MAX_PARTS:
        parts = [ops.concat(parts[i:i + _MAX_PARTS], axis) for i in range(0, len(parts), _MAX_PARTS)]
    return ops.concat(parts, axis)


def concat(tensors, /, axis=0, *, dim=None, out=None):
    """Concatenates tensors along an axis (None: all flattened)."""
    if out is not None:
        return out.copy_(concat(tensors, axis, dim=dim))
    tensors, axis = _concat_dtype(tensors, axis, "concat"), axis if dim is None else dim
    if axis is None:
        return concat_parts([ops.reshape(x, (-1,)) for x in tensors], 0)
    if dim is not None and len(tensors) > 1:  # PyTorch ignores tensors of shape (0,)
        tensors = [x for x in tensors if tuple(x.shape) != (0,)] or tensors[:1]
    return concat_parts(tensors, axis)


cat = concatenate = concat


def stack(tensors, /, axis=0, *, dim=None, out=None):
    """Stacks tensors of one shape along a new axis."""
    if out is not None:
        return out.copy_(stack(tensors, axis, dim=dim))
    tensors, axis = _concat_dtype(tensors, axis, "stack"), axis if dim is None else dim
    shape = tuple(tensors[0].shape)
    for x in tensors:
        if tuple(x.shape) != shape:
            raise ValueError(f"stack: the tensors must have one shape, there are {shape} and {tuple(x.shape)}")
    at = normalize_axis(axis, len(shape) + 1, "stack")
    done = _core._join(tensors, at, True)
    return done if done is not None else concat_parts([ops.reshape(x, (*shape[:at], 1, *shape[at:])) for x in tensors], at)


def unstack(x, /, *, axis=0):
    """Returns a tuple of the slices along an axis."""
    axis = normalize_axis(axis, x.ndim, "unstack")
    return tuple(select(x, axis, i) for i in range(x.shape[axis]))


def unbind(x, dim=0):
    return unstack(x, axis=dim)


def select(x, dim, index):
    """Returns x[..., index, ...]: one index along an axis, which is removed."""
    return x[(slice(None),) * normalize_axis(dim, x.ndim, "select") + (index,)]


def narrow(x, dim, start, length):
    """Returns `length` elements along an axis, from `start` on."""
    dim = normalize_axis(dim, x.ndim, "narrow")
    start = start + x.shape[dim] if start < 0 else start
    if start + length > x.shape[dim] or start < 0 or length < 0:
        raise RuntimeError(f"narrow: elements {start} to {start + length} of axis {dim} are asked for, it has {x.shape[dim]}")
    return x[(slice(None),) * dim + (slice(start, start + length),)]


def split_sizes(x, sizes, dim):
    """Returns the sizes of PyTorch's split: parts of the given size, of which the last may be smaller; or of
    the sizes of a list."""
    n = x.shape[normalize_axis(dim, x.ndim, "split")]
    if hasattr(sizes, "__index__"):
        if sizes <= 0:
            raise RuntimeError(f"split: pieces of {sizes} elements are asked for")
        sizes = [min(sizes, n - i) for i in range(0, n, sizes)] or [0]
    if sum(sizes) != n:
        raise RuntimeError(f"split: pieces of {list(sizes)} elements make {sum(sizes)}, the axis has {n}")
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return tuple(narrow(x, dim, start, size) for start, size in zip(starts, sizes))


def array_split(x, indices_or_sections, axis=0):
    """Splits along an axis into the given number of parts, or at the indices of a list; if the size is not
    divisible, the first parts are larger by one."""
    n = x.shape[normalize_axis(axis, x.ndim, "split")]
    if hasattr(indices_or_sections, "__index__"):
        parts = indices_or_sections
        cuts = [(n // parts) * i + min(i, n % parts) for i in range(1, parts)]
    else:
        cuts = [min(max(cut + n if cut < 0 else cut, 0), n) for cut in indices_or_sections]
    edges = [0, *cuts, n]
    return [narrow(x, axis, start, max(stop - start, 0)) for start, stop in zip(edges, edges[1:])]


def split(x, split_size_or_sections, dim=0, *, axis=None):
    """Splits as PyTorch does: into parts of the given size, of which the last may be smaller, or of the sizes
    of a list. With axis= it splits as NumPy does: into the given number of equal parts, or at the indices of
    a list."""
    if axis is None:
        return split_sizes(x, split_size_or_sections, dim)
    n = x.shape[normalize_axis(axis, x.ndim, "split")]
    if hasattr(split_size_or_sections, "__index__") and n % split_size_or_sections:
        raise ValueError(f"split: {n} elements do not make {split_size_or_sections} pieces of one size\n  hint: array_split, or "
                         "dim= for pieces of so many elements")
    return array_split(x, split_size_or_sections, axis)


tensor_split = array_split


def chunk(x, chunks, dim=0):
    """Splits into at most the given number of parts, all of one size except the last."""
    n = x.shape[normalize_axis(dim, x.ndim, "chunk")]
    if chunks < 1:
        raise RuntimeError(f"chunk: {chunks} pieces are asked for, there must be 1 or more")
    return split_sizes(x, -(-n // chunks) if n else [0] * chunks, dim)


def hsplit(x, parts):
    return split(x, parts, axis=1 if x.ndim > 1 else 0)


def vsplit(x, parts):
    return split(x, parts, axis=0)


def flip(x, /, axis=None, *, dims=None):
    """Reverses the order along axes (None: all)."""
    axis = axis if dims is None else dims
    axes = range(x.ndim) if axis is None else normalize_axes(axis, x.ndim, "flip")
    return ops.flip(x, tuple(axes)) if len(axes) else +x


def fliplr(x):
    return flip(x, axis=1)


def flipud(x):
    return flip(x, axis=0)


def rot90(x, k=1, dims=(0, 1), *, axes=None):
    """Rotates by 90 degrees from the first axis towards the second, k times."""
    first, second = normalize_axes(axes or dims, x.ndim, "rot90")
    if k % 4 == 2:
        return flip(x, axis=(first, second))
    if k % 4 == 0:
        return +x
    return flip(swapaxes(x, first, second), axis=first) if k % 4 == 1 else swapaxes(flip(x, axis=first), first, second)


def roll(x, /, shift=None, axis=None, *, shifts=None, dims=None):
    """Shifts elements along axes (None: in row-major order); those that leave at the end enter at the
    beginning."""
    shift, axis = shift if shifts is None else shifts, axis if dims is None else dims
    if axis is None:
        return ops.reshape(ops.roll(ops.reshape(x, (-1,)), (int(shift),)), x.shape)
    axes = (axis,) if hasattr(axis, "__index__") else tuple(axis)
    all_shifts = [0] * x.ndim
    for i, axis in enumerate(axes):
        all_shifts[normalize_axis(axis, x.ndim, "roll")] += shift if hasattr(shift, "__index__") else shift[i]
    return ops.roll(x, all_shifts) if x.ndim else +x


def tile(x, repetitions, /, *more):
    """Repeats x as a whole along each axis; the last numbers are for the last axes."""
    times = parse_size_args((repetitions, *more))
    rank = max(x.ndim, len(times))
    x = ops.reshape(x, (1,) * (rank - x.ndim) + tuple(x.shape))
    return ops.tile(x, (1,) * (rank - len(times)) + tuple(times)) if rank else +x


def repeat(x, repeats, /, *, axis=None, total=None):
    """Repeats each element along an axis (None: in row-major order). `total`, the size of the result, spares reading
    `repeats`."""
    x = ops.reshape(x, (-1,)) if axis is None else x
    axis = normalize_axis(axis or 0, x.ndim, "repeat")
    if hasattr(repeats, "__index__") and not (isinstance(repeats, Tensor) and repeats.ndim):
        return ops.repeat(x, int(repeats), axis)
    repeats = strong(repeats)
    if repeats.numel() == 1:
        return ops.repeat(x, int(repeats.item()), axis)
    if repeats.numel() != x.shape[axis]:
        raise ValueError(f"repeat: there are {repeats.numel()} numbers for {x.shape[axis]} elements")
    ends = ops.cumsum(ops.cast(repeats, _core.int64), axis=0)
    if total is None:
        total = int(ends[-1].item()) if repeats.numel() else 0
    return ops.gather(x, ops.searchsorted(ends, ops.iota(_core.int64, (total,), 0), right=True), axis=axis)


def repeat_interleave(x, repeats, dim=None):
    return repeat(x, repeats, axis=dim)


def atleast_1d(*tensors):
    return _map_tensors(tensors, lambda x: reshape(x, (1,)) if x.ndim < 1 else x)


def atleast_2d(*tensors):
    return _map_tensors(tensors, lambda x: reshape(x, (1, x.numel())) if x.ndim < 2 else x)


def atleast_3d(*tensors):
    def third(x):
        return reshape(x, (1, x.numel(), 1) if x.ndim < 2 else (*x.shape, 1)) if x.ndim < 3 else x

    return _map_tensors(tensors, third)


def _map_tensors(tensors, function):
    if len(tensors) == 1 and not isinstance(tensors[0], (list, tuple)):
        return function(strong(tensors[0]))
    return [function(strong(x)) for x in (tensors[0] if len(tensors) == 1 else tensors)]


def hstack(tensors):
    tensors = atleast_1d(list(tensors))
    return concat(tensors, axis=0 if tensors[0].ndim == 1 else 1)


def vstack(tensors):
    return concat(atleast_2d(list(tensors)), axis=0)


def dstack(tensors):
    return concat(atleast_3d(list(tensors)), axis=2)


row_stack = vstack


def column_stack(tensors):
    return concat([ops.reshape(x, (-1, 1)) if x.ndim < 2 else x for x in map(strong, tensors)], axis=1)


def pad(x, pad_width, mode="constant", *, constant_values=0):
    """Pads as NumPy does, with modes constant, edge, reflect, symmetric and wrap: (before, after) for all
    axes or for each."""
    x = strong(x)
    widths = [(pad_width, pad_width)] if hasattr(pad_width, "__index__") else pad_width
    widths = [tuple(widths)] if hasattr(widths[0], "__index__") else [tuple(width) for width in widths]
    widths = [width if len(width) == 2 else width * 2 for width in (widths * x.ndim if len(widths) == 1 else widths)]
    if mode == "constant":
        return ops.pad(x, scalar_of_dtype(constant_values, x.dtype), low=[low for low, _ in widths],
                       high=[high for _, high in widths])
    for axis, (low, high) in enumerate(widths):
        n = x.shape[axis]
        at = ops.iota(_core.int64, (low + n + high,), 0) - low
        if mode == "edge":
            at = ops.clamp(at, 0, n - 1)
        elif mode == "wrap":
            at = ops.remainder(at, n)
        elif mode in ("reflect", "symmetric"):
            period = max(2 * n - 2, 1) if mode == "reflect" else 2 * n
            at = ops.remainder(at, period)
            at = ops.select(ops.greater_equal(at, n), period - at - (mode == "symmetric"), at)
        else:
            raise ValueError(f"pad: mode {mode!r} is none of constant, edge, reflect, symmetric, wrap")
        x = ops.gather(x, at, axis=axis) if low or high else x
    return x


def diag(x, diagonal=0, *, k=0):
    """Returns the diagonal of a matrix, or a matrix with a vector on its diagonal."""
    offset = diagonal or k
    if x.ndim not in (1, 2):
        raise ValueError(f"diag: a vector or a matrix is expected, got a tensor {tuple(x.shape)}")
    return diagonals(x, offset).clone() if x.ndim == 2 else diag_embed(x, offset)


def diagonals(x, offset):
    """Returns the diagonals of matrices, the last two axes, as a view."""
    return make_view(x, ("diagonal", (offset,)))


def diag_embed(x, offset=0):
    """Returns matrices with the last axis on a diagonal."""
    n = x.shape[-1] + abs(offset)
    shape = (*x.shape[:-1], n, n)
    rows, columns = ops.iota(_core.int64, (n, n), 0), ops.iota(_core.int64, (n, n), 1)
    before = [0] * x.ndim
    line = ops.pad(ops.reshape(x, (*x.shape[:-1], 1, x.shape[-1])), ops.cast(_core.asarray(0), x.dtype),
                   low=[*before, max(offset, 0)], high=[*before, max(-offset, 0)])
    return ops.select(ops.equal(columns - rows, offset), ops.expand(line, shape), ops.cast(_core.asarray(0), x.dtype))


def diagflat(x, k=0):
    return diag_embed(ops.reshape(x, (-1,)), k)


def diagonal(x, offset=0, axis1=0, axis2=1, *, dim1=None, dim2=None):
    """Returns the diagonals over two axes, as the last axis."""
    axis1, axis2 = axis1 if dim1 is None else dim1, axis2 if dim2 is None else dim2
    return diagonals(moveaxis(x, (axis1, axis2), (-2, -1)), offset)


def trace(x, /, offset=0):
    """Returns the sum of a matrix's diagonal."""
    from ._reductions import sum
    if x.ndim < 2:
        raise ValueError(f"trace: a matrix is expected, got a tensor {tuple(x.shape)}")
    return sum(diagonal(x, offset), -1)
