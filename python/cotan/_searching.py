"""Indexing, scattering, sorting, searching, counting, and sets."""
import math
from collections import namedtuple

from . import _core
from ._core import Tensor, ops
from ._dtypes import BOOL, FLOATS, INTEGERS
from ._elementwise import scalar_of_dtype, strong
from ._reductions import Extreme
from ._shaping import normalize_axis, ravel

__all__ = [
    "UniqueAll", "UniqueCounts", "UniqueInverse", "argsort", "argwhere", "bincount", "bucketize", "digitize",
    "flatnonzero", "gather", "histc", "histogram", "index_add", "index_copy", "index_fill", "index_select",
    "intersect1d", "isin", "kthvalue", "lexsort", "masked_fill", "masked_scatter", "masked_select", "msort",
    "nonzero", "put_along_axis", "ravel_multi_index", "scatter", "scatter_add", "scatter_reduce", "searchsorted",
    "setdiff1d", "setxor1d", "sort", "take", "take_along_axis", "take_along_dim", "topk", "union1d", "unique",
    "unique_all", "unique_counts", "unique_inverse", "unique_values", "unravel_index", "where"]


def wrap_negative_indices(indices, n):
    """Returns indices in int64, where negative ones count from the end."""
    indices = strong(indices)
    if indices.dtype in BOOL:
        return indices
    wide = ops.cast(indices, _core.int64)
    return ops.select(ops.less(indices, 0), wide + n, wide)


def take(x, indices, /, axis=None, *, dim=None):
    """Returns the elements of x at indices along an axis (None: in row-major order)."""
    axis, x = axis if dim is None else dim, strong(x)
    if axis is None:
        return ravel(x)[indices] if x.ndim != 1 else x[indices]
    return x[(slice(None),) * normalize_axis(axis, x.ndim, "take") + (indices,)]


def index_select(x, dim, index):
    return take(x, index, axis=dim)


def take_along_axis(x, indices, /, axis=-1, *, dim=None):
    """Returns the elements of x at indices along an axis, slice by slice: both have the same shape except
    along the axis (or broadcast)."""
    axis = axis if dim is None else dim
    if axis is None:
        return ops.take_along(ravel(x), wrap_negative_indices(ravel(indices), x.numel()), axis=0)
    axis = normalize_axis(axis, x.ndim, "take_along_axis")
    if indices.ndim != x.ndim:
        raise ValueError(f"take_along_axis: the indices have {indices.ndim} axes, the tensor {x.ndim}")
    shape = [max(a, b) if a and b else 0 for a, b in zip(x.shape, indices.shape)]
    wanted = [*shape[:axis], indices.shape[axis], *shape[axis + 1:]]
    whole = [*shape[:axis], x.shape[axis], *shape[axis + 1:]]
    x = x if list(x.shape) == whole else ops.expand(x, whole)
    indices = indices if list(indices.shape) == wanted else ops.expand(indices, wanted)
    return ops.take_along(x, wrap_negative_indices(indices, x.shape[axis]), axis=axis)


def take_along_dim(x, indices, dim=None):
    return take_along_axis(x, indices, dim)


def _crop_to_index(x, shape, dim):
    """Crops x to the sizes of an index, except along dim."""
    for axis, size in enumerate(shape):
        if axis != dim and size < x.shape[axis]:
            x = ops.slice(x, axes=axis, start=0, stop=size)
    return x


def gather(x, dim, index):
    """Returns y with y[i][j] = x[index[i][j]][j] for dim 0, as in PyTorch."""
    dim = normalize_axis(dim, x.ndim, "gather")
    if not x.ndim:
        return ops.reshape(ops.take_along(ops.reshape(x, (1,)), ops.reshape(index, (-1,)), axis=0), index.shape)
    return ops.take_along(_crop_to_index(x, index.shape, dim), index, axis=dim)


def _flat_indices(name, x, dim, index):
    """Returns the row-major positions in x of the elements of an index; -1 where the index is out of range of
    the axis dim."""
    for axis, size in enumerate(index.shape):
        if axis != dim and size > x.shape[axis]:
            raise _core.ShapeError(f"{name}: the index is {tuple(index.shape)}, the tensor {tuple(x.shape)}: along axis {axis} "
                                   f"it may have {x.shape[axis]} elements at most")
    strides = [math.prod(x.shape[axis + 1:]) for axis in range(x.ndim)]
    along = ops.cast(index, _core.int64)
    at = along * strides[dim]
    for axis in range(x.ndim):
        if axis != dim and index.shape[axis] > 1:
            shape = [index.shape[axis] if i == axis else 1 for i in range(x.ndim)]
            at = at + ops.iota(_core.int64, shape, axis) * strides[axis]
    inside = ops.and_(ops.greater_equal(along, 0), ops.less(along, x.shape[dim]))
    return ops.select(inside, at, -1)


def scatter_flat(name, op, x, dim, index, source):
    """Scatters elements of source into x along dim: by one index over all elements. Indices out of range
    write nothing."""
    index, shape = strong(index), x.shape
    if not x.ndim:
        x, index = ops.reshape(x, (1,)), ops.reshape(index, (-1,))
    dim = normalize_axis(dim, x.ndim, name)
    if not index.ndim and x.ndim == 1:
        index = ops.reshape(index, (1,))
    if index.ndim != x.ndim:
        raise _core.ShapeError(f"{name}: the index has {index.ndim} axes, the tensor {x.ndim}")
    if isinstance(source, Tensor):
        source = source if source.ndim else ops.reshape(source, (1,) * index.ndim)
        if source.ndim != index.ndim or any(a < b for a, b in zip(source.shape, index.shape)):
            raise _core.ShapeError(f"{name}: the index is {tuple(index.shape)}, the source {tuple(source.shape)}: it has an "
                                   "element for each of the index")
        for axis, size in enumerate(index.shape):
            source = source if source.shape[axis] == size else ops.slice(source, axes=axis, start=0, stop=size)
    else:
        source = ops.expand(scalar_of_dtype(source, x.dtype), index.shape)
    source = source if source.dtype == x.dtype else ops.cast(source, x.dtype)
    at = _flat_indices(name, x, dim, index)
    flat = op(ops.reshape(x, (-1,)), ops.reshape(at, (-1,)), ops.reshape(source, (-1,)), axis=0)
    return ops.reshape(flat, shape)


def scatter(x, dim, index, src=None, *, value=None, reduce=None):
    """Returns y with y[index[i][j]][j] = src[i][j] for dim 0, and x elsewhere, as in PyTorch; reduce "add" or
    "multiply"."""
    known = {None: ops.scatter, "add": ops.scatter_add, "multiply": ops.scatter_mul}
    if reduce not in known:
        raise RuntimeError(f"scatter: reduce is one of add, multiply, not {reduce!r}")
    return scatter_flat("scatter", known[reduce], x, dim, index, value if src is None else src)


def scatter_add(x, dim, index, src):
    """Returns y with y[index[i][j]][j] += src[i][j] for dim 0."""
    return scatter_flat("scatter_add", ops.scatter_add, x, dim, index, src)


def scatter_reduce(x, dim, index, src, reduce, *, include_self=True):
    """Scatters with sum, prod, amax, amin or mean of the elements that go to the same position (and of x
    there)."""
    name = "scatter_reduce"
    known = {"sum": ops.scatter_add, "prod": ops.scatter_mul, "amax": ops.scatter_max, "amin": ops.scatter_min}
    if reduce != "mean" and reduce not in known:
        raise RuntimeError(f"scatter_reduce: reduce is one of sum, prod, mean, amax, amin, not {reduce!r}")
    if not include_self:
        neutral = {"sum": 0, "mean": 0, "prod": 1}.get(reduce)
        if neutral is None:
            neutral = -math.inf if reduce == "amax" else math.inf
        x = scatter_flat(name, ops.scatter, x, dim, index, neutral)
    if reduce != "mean":
        return scatter_flat(name, known[reduce], x, dim, index, src)
    ones = _core.full(src.shape, 1, x.dtype)
    count = scatter_flat(name, ops.scatter_add, _core.full(x.shape, int(include_self), x.dtype), dim, index, ones)
    total, count = scatter_flat(name, ops.scatter_add, x, dim, index, src), ops.maximum(count, 1)
    return ops.floor_divide(total, count) if x.dtype in INTEGERS else total / count


def index_add(x, dim, index, source, *, alpha=1):
    """Adds slices of source to those of x at the index."""
    return ops.scatter_add(x, wrap_negative_indices(index, x.shape[dim]), ops.cast(source if alpha == 1 else source * alpha, x.dtype), axis=dim)


def index_copy(x, dim, index, source):
    return ops.scatter(x, wrap_negative_indices(index, x.shape[dim]), ops.cast(source, x.dtype), axis=dim)


def index_fill(x, dim, index, value):
    shape, index = list(x.shape), ops.reshape(strong(index), (-1,))
    shape[dim] = index.numel()
    return ops.scatter(x, wrap_negative_indices(index, x.shape[dim]), ops.expand(scalar_of_dtype(value, x.dtype), shape), axis=dim)


def put_along_axis(x, indices, values, axis):
    """Returns x with values at indices along an axis (None: in row-major order), slice by slice; x itself is
    not changed."""
    if axis is None:
        return ops.reshape(put_along_axis(ravel(x), ravel(indices), values, 0), x.shape)
    values, indices, axis = strong(values), strong(indices), normalize_axis(axis, x.ndim, "put_along_axis")
    if indices.ndim == x.ndim:  # one row of indices broadcasts to all rows of x
        indices = ops.expand(indices, [*x.shape[:axis], indices.shape[axis], *x.shape[axis + 1:]])
    return scatter_flat("put_along_axis", ops.scatter, x, axis, wrap_negative_indices(indices, x.shape[axis]), ops.expand(values, indices.shape))


def masked_fill(x, mask, value):
    """Returns value where the mask holds, else x."""
    return ops.select(mask, scalar_of_dtype(value, x.dtype), x)


def masked_select(x, mask):
    """Returns the elements of x where the mask holds, as a vector."""
    shape = (x + ops.cast(mask, x.dtype)).shape if x.shape != mask.shape else x.shape
    return ops.expand(x, shape)[ops.expand(mask, shape)]


def masked_scatter(x, mask, source):
    """Returns x with successive elements of source where the mask holds; elements stay as they are when
    source has no more."""
    mask = ops.reshape(ops.expand(mask, x.shape), (-1,))
    at = ops.cumsum(ops.cast(mask, _core.int64), axis=0) - 1
    source, n = ops.reshape(source, (-1,)), source.numel()
    if not n:
        return +x if x.dtype not in BOOL else x
    mask = ops.and_(mask, ops.less(at, n))
    taken = ops.gather(source, ops.clamp(at, 0, n - 1), axis=0)
    return ops.reshape(ops.select(mask, taken, ops.reshape(x, (-1,))), x.shape)


def where(condition, x1=None, x2=None, /):
    """Returns x1 where the condition holds, else x2; of the condition alone, the indices at which it holds,
    as nonzero."""
    if x1 is None:
        return nonzero(condition)
    condition = strong(condition)
    condition = condition if condition.dtype in BOOL else ops.not_equal(condition, 0)
    if not isinstance(x1, Tensor) and not isinstance(x2, Tensor):
        x1 = strong(x1)
    return ops.select(condition, x1, x2)


def nonzero(x, /, *, as_tuple=True):
    """Returns a tuple of the indices along each axis of elements that are not 0, in row-major order."""
    x = strong(x)
    if not x.ndim:
        raise ValueError("nonzero: the tensor has no axes\n  hint: atleast_1d")
    holds = ops.reshape(ops.not_equal(x, 0), (-1,)) if x.dtype not in BOOL else ops.reshape(x, (-1,))
    at = ops.iota(_core.int64, (x.numel(),), 0)[holds] if x.numel() else _core.full((0,), 0, _core.int64)
    result = unravel(at, x.shape)
    if as_tuple:
        return result
    return ops.concat([ops.reshape(one, (-1, 1)) for one in result], 1)


def argwhere(x):
    return nonzero(x, as_tuple=False)


def flatnonzero(x):
    return nonzero(ravel(x))[0]


def unravel(indices, shape):
    return tuple(ops.remainder(ops.floor_divide(indices, max(math.prod(shape[i + 1:]), 1)), max(shape[i], 1))
                 for i in range(len(shape)))


def unravel_index(indices, shape):
    """Returns row-major positions as a tuple of indices along each axis; -1 along each axis for positions
    outside of the shape."""
    indices = ops.cast(strong(indices), _core.int64)
    inside = ops.and_(ops.greater_equal(indices, 0), ops.less(indices, math.prod(shape)))
    return tuple(ops.select(inside, at, -1) for at in unravel(indices, shape))


def ravel_multi_index(indices, dims):
    """Returns row-major positions of indices, the inverse of unravel_index: -1 if an index is out of
    range."""
    at, inside = 0, True
    for index, size in zip(indices, dims):
        index = ops.cast(strong(index), _core.int64)
        at = at * size + index
        within = ops.and_(ops.greater_equal(index, 0), ops.less(index, size))
        inside = within if inside is True else ops.and_(inside, within)
    return ops.select(inside, at, -1)


# ------------------------------------------------------------------------------------------ sorting

def argsort(x, /, axis=-1, descending=False, stable=True, *, dim=None):
    """Returns the indices that sort the elements along an axis, with equal elements in their original order,
    as int64."""
    axis = axis if dim is None else dim
    if not x.ndim:
        return _core.full((), 0, _core.int64)
    return ops.cast(ops.argsort(_bool_as_number(x), axis=axis, descending=descending), _core.int64)


def _bool_as_number(x):
    return ops.cast(x, _core.uint8) if x.dtype in BOOL else x


def sort(x, /, dim=None, descending=False, stable=True, *, axis=-1):
    """Returns the elements along an axis in order; with dim, (values, indices)."""
    if dim is not None:
        return sort_with_indices(x, dim, descending)
    if axis is None:
        return sort(ravel(x), axis=0, descending=descending)
    if not x.ndim:
        return +x if x.dtype not in BOOL else x
    return ops.cast(ops.sort(_bool_as_number(x), axis=axis, descending=descending), x.dtype)


def sort_with_indices(x, dim=-1, descending=False):
    indices = argsort(x, dim, descending)
    return Extreme(ops.take_along(x, indices, axis=dim) if x.ndim else x, indices)


def msort(x):
    return sort(x, axis=0)


def lexsort(keys, axis=-1):
    """Returns the indices that sort by several keys, the last one first, as in NumPy."""
    return ops.cast(ops.lexsort(list(keys)[::-1], axis, False), _core.int64)


def topk(x, k, dim=-1, largest=True, sorted=True):
    """Returns (values, indices) of the k largest (or smallest) elements along an axis, in order."""
    dim = normalize_axis(dim, x.ndim, "topk")
    if k > x.shape[dim]:
        raise RuntimeError(f"topk: {k} elements are asked for, axis {dim} has {x.shape[dim]}")
    if largest and dim == x.ndim - 1:
        result = ops.topk(x, k)
        return Extreme(result.values, ops.cast(result.indices, _core.int64))
    order = argsort(x, dim, largest)
    indices = ops.slice(order, axes=dim, start=0, stop=k)
    return Extreme(ops.take_along(x, indices, axis=dim), indices)


def kthvalue(x, k, dim=-1, keepdim=False):
    """Returns (value, index) of the k-th smallest element along an axis, counted from 1."""
    result = topk(x, k, dim, largest=False)
    at = normalize_axis(dim, x.ndim, "kthvalue")
    values, indices = (ops.slice(part, axes=at, start=k - 1, stop=k) for part in result)
    if not keepdim:
        shape = [size for axis, size in enumerate(x.shape) if axis != at]
        values, indices = ops.reshape(values, shape), ops.reshape(indices, shape)
    return Extreme(values, indices)


def searchsorted(x1, x2, /, *, side="left", sorter=None, right=False, **named):
    """Returns the indices at which values belong in a sorted vector (or in each row of a tensor), as
    int64."""
    x2 = strong(x2)
    if sorter is not None:
        x1 = ops.take_along(x1, sorter, axis=-1)
    from ._dtypes import result_type
    dtype = result_type(x1, x2)
    x1, x2 = ops.cast(x1, dtype), ops.cast(x2, dtype)
    behind = right or side == "right"
    shape = x2.shape
    if x1.ndim == 1:
        result = ops.searchsorted(x1, ops.reshape(x2, (-1,)), right=behind)
    else:
        result = ops.searchsorted(x1, x2, right=behind, batch_dims=x1.ndim - 1)
    return ops.cast(ops.reshape(result, shape), _core.int64)


def bucketize(x, boundaries, *, right=False):
    return searchsorted(boundaries, x, right=right)


def digitize(x, bins, right=False):
    """Returns the index of the bin of each value; bins increase or decrease."""
    bins = strong(bins)
    falls = bins.numel() > 1 and (bins[0] > bins[-1]).item()
    if falls:
        return bins.numel() - searchsorted(ops.flip(bins, (0,)), x, side="left" if not right else "right")
    return searchsorted(bins, x, side="left" if right else "right")


def bincount(x, weights=None, minlength=0):
    """Returns how often (or with which total weight) each integer from 0 on occurs in x."""
    n = max(int(ops.max(x).item()) + 1 if x.numel() else 0, minlength)
    if weights is None:
        return ops.cast(ops.bincount(ops.cast(x, _core.int64), n), _core.int64)
    return ops.scatter_add(_core.full((n,), 0, weights.dtype), x, weights, axis=0)


def histogram(x, bins=10, range=None, weights=None, density=False):
    """Returns (counts, edges): the number of elements in each bin; the last bin includes its upper edge."""
    from ._creation import linspace
    x = ravel(x)
    if not isinstance(bins, Tensor):
        low, high = range if range else (x.min().item(), x.max().item())
        bins = linspace(*((low, high) if low < high else (low - 0.5, high + 0.5)), bins + 1, dtype=_core.float64)
    wide = ops.cast(x, _core.float64)
    at = searchsorted(bins, wide, side="right") - 1
    at = ops.select(ops.equal(wide, bins[-1]), bins.numel() - 2, at)
    one = _core.full(x.shape, 1, _core.int64) if weights is None else ravel(weights)
    counts = ops.scatter_add(_core.full((bins.numel() - 1,), 0, one.dtype), at, one, axis=0, mode="drop")
    if density:
        counts = counts / (ops.sum(ops.cast(counts, _core.float64)) * ops.diff(bins))
    return counts, bins


def histc(x, bins=100, min=0, max=0):
    return ops.cast(histogram(x, bins, (min, max) if min < max else None)[0], x.dtype)


# ------------------------------------------------------------------------------------------------- sets

UniqueAll = namedtuple("UniqueAll", "values indices inverse_indices counts")
UniqueCounts = namedtuple("UniqueCounts", "values counts")
UniqueInverse = namedtuple("UniqueInverse", "values inverse_indices")


def unique_all(x, /):
    """Returns the distinct elements in increasing order (each NaN is one), the index of the first occurrence
    of each, the index of each element's value, and the counts."""
    flat = ops.reshape(x, (-1,))
    n = flat.numel()
    if not n:
        none = _core.full((0,), 0, _core.int64)
        return UniqueAll(flat, none, ops.reshape(none, x.shape), none)
    key = _bool_as_number(flat)
    if x.dtype not in FLOATS + INTEGERS + BOOL:
        order = ops.cast(ops.lexsort([ops.real(flat), ops.imag(flat)], 0, False), _core.int64)
    else:
        order = ops.cast(ops.argsort(key, axis=0), _core.int64)
    line = ops.gather(flat, order, axis=0)
    new = ops.not_equal(line[1:], line[:-1])
    new = ops.concat([_core.full((1,), True, _core.bool), new], 0)
    first = ops.iota(_core.int64, (n,), 0)[new]
    which = ops.cumsum(ops.cast(new, _core.int64), axis=0) - 1
    inverse = ops.scatter(_core.full((n,), 0, _core.int64), order, which, axis=0, unique=True)
    ends = ops.concat([first[1:], _core.full((1,), n, _core.int64)], 0)
    return UniqueAll(line[first], order[first], ops.reshape(inverse, x.shape), ends - first)


def unique_counts(x, /):
    result = unique_all(x)
    return UniqueCounts(result.values, result.counts)


def unique_inverse(x, /):
    result = unique_all(x)
    return UniqueInverse(result.values, result.inverse_indices)


def unique_values(x, /):
    return unique_all(x).values


def unique(x, sorted=True, return_inverse=False, return_counts=False, dim=None, *, return_index=False):
    """Returns the distinct elements, and what else is asked for, in PyTorch's order (with return_index in
    NumPy's)."""
    if dim is not None:
        raise NotImplementedError("unique: it takes all elements, dim is not here\n  hint: unique of one number a line")
    result = unique_all(x)
    wanted = [result.values] + [part for part, asked in ((result.indices, return_index), (result.inverse_indices, return_inverse),
                                                         (result.counts, return_counts)) if asked]
    return tuple(wanted) if len(wanted) > 1 else result.values


def isin(x1, x2, /, *, invert=False):
    """True for the elements of x1 that occur in x2."""
    x1, line = strong(x1), ops.sort(_bool_as_number(ops.reshape(strong(x2), (-1,))), axis=0)
    if not line.numel():
        return _core.full(x1.shape, bool(invert), _core.bool)
    key = _bool_as_number(x1)
    at = ops.clamp(searchsorted(line, key), 0, line.numel() - 1)
    result = ops.equal(ops.reshape(ops.gather(line, ops.reshape(at, (-1,)), axis=0), x1.shape), key)
    return ops.not_(result) if invert else result


def union1d(x1, x2):
    return unique_values(ops.concat([ravel(x1), ravel(x2)], 0))


def intersect1d(x1, x2):
    values = unique_values(x1)
    return values[isin(values, x2)]


def setdiff1d(x1, x2):
    values = unique_values(x1)
    return values[isin(values, x2, invert=True)]


def setxor1d(x1, x2):
    return union1d(setdiff1d(x1, x2), setdiff1d(x2, x1))
