"""Indexing, scattering, searching, sorting and differences with PyTorch's signatures."""
import math
from builtins import range as builtin_range

from .. import _core, _creation, _reductions, _searching, _shaping
from .._core import Tensor, ops
from .._dtypes import BOOL, COMPLEX, FLOATS, get_default_dtype, result_type
from .._elementwise import scalar_of_dtype
from .._searching import scatter_flat, unravel, wrap_negative_indices
from .._shaping import normalize_axis
from . import return_types
from ._define import define


def with_axis(x):
    """Returns a 0-d tensor as one of one element; others as they are."""
    return x if x.ndim else ops.reshape(x, (1,))


def slice_axis(x, dim, start, stop):
    return ops.slice(x, axes=dim, start=start, stop=stop)


# --------------------------------------------------------------------------------- gathering, scattering

def _or_on_bools(op, on_bools):
    """Returns a scatter op that takes bools, too: they are scattered as numbers by another op."""
    def scatter(x, indices, updates, **options):
        if x.dtype not in BOOL:
            return op(x, indices, updates, **options)
        return ops.cast(on_bools(ops.cast(x, _core.uint8), indices, ops.cast(updates, _core.uint8), **options), _core.bool)

    return scatter


SCATTER_ADD, SCATTER_MUL = _or_on_bools(ops.scatter_add, ops.scatter_max), _or_on_bools(ops.scatter_mul, ops.scatter_min)


@define("gather(input, dim: int, index: Tensor, *, sparse_grad: bool=False, out=None)", "fm")
def gather(x, dim, index, sparse_grad):
    """Returns y with y[i][j] = x[index[i][j]][j] for dim 0; gradients are dense, whatever sparse_grad says."""
    if not index.numel():
        return _core.full(index.shape, 0, x.dtype)
    return _searching.gather(x, dim, index)


def scatter(x, dim, index, src, reduce, name="scatter"):
    """Returns y with y[index[i][j]][j] = src[i][j] for dim 0, and x elsewhere; reduce "add" or "multiply" combines both."""
    known = {None: ops.scatter, "add": SCATTER_ADD, "multiply": SCATTER_MUL}
    if reduce not in known:
        raise RuntimeError(f"scatter: reduce is one of add, multiply, not {reduce!r}")
    return scatter_flat(name, known[reduce], x, dim, index, src) if index.numel() else x.clone()


for _source in ("src: Tensor", "value: float"):
    define(f"scatter(input, dim: int, index: Tensor, {_source}, *, reduce: str=None, out=None)", "fmi")(scatter)


@define("scatter_add(input, dim: int, index: Tensor, src: Tensor, *, out=None)", "fmi")
def scatter_add(x, dim, index, src):
    """Returns x with src[i][j] added at [index[i][j]][j] for dim 0."""
    return scatter(x, dim, index, src, "add", "scatter_add")


def _scatter_product(x, dim, index, src, include_self):
    """Returns the product of scatter_reduce with a gradient: for each factor the product of the others, also where one of
    them is 0."""
    def product(x, src):
        return _searching.scatter_reduce(x, dim, index, src, "prod", include_self=include_self)

    def at_index(total):
        return _searching.gather(total, dim, index)

    x0, src0 = ops.stop_gradient(x), ops.stop_gradient(src)
    zero, result = ops.equal(src, 0), product(x0, src0)
    zeros = at_index(_searching.scatter_add(x0 * 0, dim, index, ops.cast(zero, x.dtype)))
    only = ops.and_(zero, ops.equal(zeros, 1))
    others = ops.select(only, at_index(product(x0, ops.select(only, 1.0, src0))),
                        at_index(result) / ops.select(zero, 1.0, src0))
    whole = ops.select(ops.equal(x, 0), 1.0, x0)
    result = result + (x - x0) * (product(whole, src0) / whole if include_self else _untouched(x0, dim, index))
    return scatter_flat("scatter_reduce", ops.scatter_add, result, dim, index, (src - src0) * others)


def _untouched(x, dim, index):
    """Returns 1 where the index writes nothing, else 0."""
    return scatter_flat("scatter_reduce", ops.scatter, x * 0 + 1, dim, index, 0)


@define("scatter_reduce(input, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool=True, out=None)", "fmi")
def scatter_reduce(x, dim, index, src, reduce, include_self):
    """Combines the elements of src that go to one position, and x there, by sum, prod, mean, amax or amin."""
    if not index.numel():
        return x.clone()
    if x.dtype in BOOL:
        x, src, reduce = ops.cast(x, _core.uint8), ops.cast(src, _core.uint8), {"sum": "amax", "prod": "amin"}.get(reduce, reduce)
        return ops.cast(_searching.scatter_reduce(x, dim, index, src, reduce, include_self=include_self), _core.bool)
    if reduce == "prod" and (x.requires_grad or src.requires_grad):
        return _scatter_product(x, dim, index, src, include_self)
    return _searching.scatter_reduce(x, dim, index, src, reduce, include_self=include_self)


@define("index_reduce(input, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool=True, out=None)", "fmi")
def index_reduce(x, dim, index, source, reduce, include_self):
    """Combines the slices of source that go to one index along dim, and x there, by prod, mean, amax or amin."""
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(f"index_reduce: reduce is one of prod, mean, amax, amin, not {reduce!r}")
    at = normalize_axis(dim, x.ndim, "index_reduce")
    line = with_axis(x)
    index = ops.reshape(index, [-1 if axis == at else 1 for axis in range(line.ndim)])
    source = ops.reshape(source, [index.numel() if axis == at else n for axis, n in enumerate(line.shape)])
    return ops.reshape(scatter_reduce(line, at, ops.expand(index, source.shape), source, reduce, include_self), x.shape)


def _write_slices(name, op, x, dim, index, source):
    """Applies a scatter op to the slices of source along dim."""
    line, index = with_axis(x), ops.reshape(index, (-1,))
    dim = normalize_axis(dim, x.ndim, name)
    wanted = [*line.shape[:dim], index.numel(), *line.shape[dim + 1:]]
    source = ops.reshape(source, wanted) if source.ndim else ops.expand(source, wanted)
    return ops.reshape(op(line, wrap_negative_indices(index, line.shape[dim]), ops.cast(source, x.dtype), axis=dim), x.shape)


@define("index_add(input, dim: int, index: Tensor, source: Tensor, *, alpha: float=1, out=None)", "fmi")
def index_add(x, dim, index, source, alpha):
    """Adds slices of alpha source to those of x at the index along dim."""
    if alpha != 1:
        source = ops.and_(source, bool(alpha)) if source.dtype in BOOL else source * scalar_of_dtype(alpha, source.dtype)
    return _write_slices("index_add", SCATTER_ADD, x, dim, index, source)


@define("index_copy(input, dim: int, index: Tensor, source: Tensor, *, out=None)", "fmi")
def index_copy(x, dim, index, source):
    """Writes slices of source to those of x at the index along dim."""
    return _write_slices("index_copy", ops.scatter, x, dim, index, source)


@define("index_fill(input, dim: int, index: Tensor, value: float)", "fmi")
def index_fill(x, dim, index, value):
    """Fills the slices of x at the index along dim."""
    return _write_slices("index_fill", ops.scatter, x, dim, index, scalar_of_dtype(value, x.dtype))


@define("index_select(input, dim: int, index: Tensor, *, out=None)", "fm")
def index_select(x, dim, index):
    """Returns the slices of x at the index along dim."""
    selected = _searching.index_select(with_axis(x), dim, with_axis(index))
    return selected if x.ndim else ops.reshape(selected, ())


@define("index_put(input, indices, values: Tensor|float, accumulate: bool=False)", "fm")
def index_put(x, indices, values, accumulate):
    """Returns x with values written, or added, at the indices, one an axis; None is a whole axis."""
    return index_put_(x.clone(), indices, values, accumulate)


_write_at = Tensor.index_put_


@define("index_put_(input, indices, values: Tensor|float, accumulate: bool=False)", "fm")
def index_put_(x, indices, values, accumulate):
    """Writes values, or adds them, at the indices in place."""
    if accumulate and x.dtype in BOOL:
        return x.copy_(ops.not_equal(_write_at(ops.cast(x, _core.int32), indices, values, True), 0))
    return _write_at(x, indices, values, accumulate)


@define("put(input, index: Tensor, source: Tensor, accumulate: bool=False)", "fmi")
def put(x, index, source, accumulate):
    """Returns x with source written, or added, at row-major positions."""
    at = wrap_negative_indices(ops.reshape(index, (-1,)), x.numel())
    op, source = SCATTER_ADD if accumulate else ops.scatter, ops.cast(ops.reshape(source, (-1,)), x.dtype)
    return ops.reshape(op(ops.reshape(x, (-1,)), at, source, axis=0), x.shape) if at.numel() else x.clone()


define("take(input, index: Tensor, *, out=None)")(_searching.take)
define("Tensor.take(self, index: Tensor)")(_searching.take)
define("Tensor.take(self, indices, dim: int=None)")(_searching.take)
define("take_along_dim(input, indices: Tensor, dim: int=None, *, out=None)", "fm")(_searching.take_along_dim)
define("unravel_index(indices: Tensor, shape: int|ints)")(
    lambda indices, shape: _searching.unravel_index(indices, (shape,) if hasattr(shape, "__index__") else tuple(shape)))

# ---------------------------------------------------------------------------------------------- masks

define("masked_fill(input, mask: Tensor, value: float)", "fmi")(_searching.masked_fill)


def _broadcast(*tensors):
    return _shaping.broadcast_arrays(*tensors)


@define("masked_select(input, mask: Tensor, *, out=None)", "fm")
def masked_select(x, mask):
    """Returns the elements of x where the mask holds, as a vector."""
    x, mask = _broadcast(with_axis(x), mask)
    return x[mask]


@define("masked_scatter(input, mask: Tensor, source: Tensor)", "fmi")
def masked_scatter(x, mask, source):
    """Returns x with successive elements of source where the mask holds."""
    return _searching.masked_scatter(*_broadcast(x, mask), source)


def where(condition, x, other):
    """Returns x where the condition holds, else other."""
    if isinstance(x, Tensor) and isinstance(other, Tensor):
        x, other = _core._met(x, other)
    elif getattr(x if isinstance(x, Tensor) else other, "dtype", _core.bool) in BOOL:  # an int beside bools is int64
        dtype = result_type(x, other)
        x, other = scalar_of_dtype(x, dtype), scalar_of_dtype(other, dtype)
    return _searching.where(condition, x, other)


define("where(condition: Tensor, input: Tensor|float, other: Tensor|float, *, out=None)")(where)
define("where(condition: Tensor)")(lambda condition: nonzero(condition, True))
define("Tensor.where(self, condition: Tensor, other: Tensor|float)")(lambda x, condition, other: where(condition, x, other))


@define("nonzero(input, *, out=None, as_tuple: bool=False)", "fm")
def nonzero(x, as_tuple):
    """Returns (n, ndim): the indices of elements that are not 0; with as_tuple one tensor for each axis."""
    if x.ndim or as_tuple:
        return _searching.nonzero(with_axis(x), as_tuple=as_tuple)
    return ops.reshape(_searching.nonzero(with_axis(x))[0], (-1, 1))[:, :0]


@define("argwhere(input)", "fm")
def argwhere(x):
    return nonzero(x, False)


@define("nonzero_static(input, *, size: int, fill_value: int=-1, out=None)", "fm")
def nonzero_static(x, size, fill_value):
    """Returns (size, ndim): the first indices of elements that are not 0, then fill_value."""
    flat = ops.not_equal(ops.reshape(x, (-1,)), 0) if x.dtype not in BOOL else ops.reshape(x, (-1,))
    to = ops.select(flat, ops.cumsum(ops.cast(flat, _core.int64), axis=0) - 1, -1)
    at = ops.scatter(_core.full((size,), -1, _core.int64), to, ops.iota(_core.int64, flat.shape, 0), axis=0)
    columns = [ops.reshape(ops.select(ops.less(at, 0), fill_value, one), (-1, 1)) for one in unravel(at, x.shape)]
    return ops.concat(columns, 1) if columns else _core.full((size, 0), 0, _core.int64)


# ------------------------------------------------------------------------------------------- sorting

@define("sort(input, dim: int=-1, descending: bool=False, stable: bool=False, *, out=None)", "fm")
def sort(x, dim, descending, stable):
    """Returns (values, indices) along dim in order; the sort is stable, whatever `stable` says."""
    values, indices = _searching.sort_with_indices(x, dim, descending)
    return return_types.sort(values if x.ndim else x.clone(), indices)



@define("argsort(input, dim: int=-1, descending: bool=False, stable: bool=False)", "fm")
def argsort(x, dim, descending, stable):
    return _searching.argsort(x, dim, descending)


define("msort(input, *, out=None)")(_searching.msort)


def _selected(name, x, dim, keepdim, values, indices):
    """Returns (values, indices) of one element along dim, without dim unless keepdim."""
    if not x.ndim or not keepdim:
        shape = [n for axis, n in enumerate(x.shape) if axis != dim]
        values, indices = ops.reshape(values, shape), ops.reshape(indices, shape)
    return getattr(return_types, name)(values, indices)


@define("topk(input, k: int, dim: int=-1, largest: bool=True, sorted: bool=True, *, out=None)", "fm")
def topk(x, k, dim, largest, sorted):
    """Returns (values, indices) of the k largest (or smallest) elements along dim, in order."""
    values, indices = _searching.topk(with_axis(x), k, dim, largest)
    return return_types.topk(values, indices) if x.ndim else _selected("topk", x, 0, False, values, indices)


@define("kthvalue(input, k: int, dim: int=-1, keepdim: bool=False, *, out=None)", "fm")
def kthvalue(x, k, dim, keepdim):
    """Returns (value, index) of the k-th smallest element along dim, counted from 1."""
    return _selected("kthvalue", x, normalize_axis(dim, x.ndim, "kthvalue"), keepdim,
                     *_searching.kthvalue(with_axis(x), k, dim, True))


@define("mode(input, dim: int=-1, keepdim: bool=False, *, out=None)", "fm")
def mode(x, dim, keepdim):
    """Returns (values, indices) of the most frequent element along dim, the smallest of several, where it is last."""
    at, line = normalize_axis(dim, x.ndim, "mode"), with_axis(x)
    order = _searching.argsort(line, at)
    ordered, n = ops.take_along(line, order, axis=at), line.shape[at]
    place = ops.expand(ops.iota(_core.int64, [n if axis == at else 1 for axis in range(line.ndim)], at), line.shape)
    new = ops.not_equal(slice_axis(ordered, at, 1, n), slice_axis(ordered, at, 0, n - 1))
    begins = ops.concat([slice_axis(place, at, 0, 1), ops.select(new, slice_axis(place, at, 1, n), 0)], at)
    longest = ops.argmax(place - ops.cummax(begins, axis=at), axis=at, keepdims=True)
    indices = ops.take_along(order, ops.cast(longest, _core.int64), axis=at)
    return _selected("mode", x, at, keepdim, ops.take_along(line, indices, axis=at), indices)


# ----------------------------------------------------------------------------------------- searching

@define("searchsorted(sorted_sequence: Tensor, input: Tensor|float, *, out_int32: bool=False, right: bool=False, side: str=None, "
        "sorter: Tensor=None, out=None)")
def searchsorted(sorted_sequence, x, out_int32, right, side, sorter):
    """Returns the indices at which values belong in a sorted vector, or in each row of a tensor."""
    if side not in (None, "left", "right"):
        raise RuntimeError(f"searchsorted: side is \"left\" or \"right\", not {side!r}")
    at = _searching.searchsorted(sorted_sequence, x, side=side or "left", right=right, sorter=sorter)
    return ops.cast(at, _core.int32) if out_int32 else at


@define("bucketize(input: Tensor|float, boundaries: Tensor, *, out_int32: bool=False, right: bool=False, out=None)")
def bucketize(x, boundaries, out_int32, right):
    """Returns the index of the interval between boundaries in which each element is."""
    return searchsorted(boundaries, x, out_int32, right, None, None)


@define("isin(elements: Tensor|float, test_elements: Tensor|float, *, assume_unique: bool=False, invert: bool=False, out=None)")
def isin(elements, test_elements, assume_unique, invert):
    """True for the elements that occur in test_elements; assume_unique changes nothing."""
    return _searching.isin(elements, test_elements, invert=invert)


def _rank_columns(keys):
    """Returns the rank of each element in its column (N, C): equal elements have one."""
    order = _searching.argsort(keys, 0)
    ordered, n = ops.take_along(keys, order, axis=0), keys.shape[0]
    new = ops.cast(ops.not_equal(slice_axis(ordered, 0, 1, n), slice_axis(ordered, 0, 0, n - 1)), _core.int64)
    ranks = ops.concat([ops.cast(slice_axis(order, 0, 0, 1) * 0, _core.int64), ops.cumsum(new, axis=0)], 0)
    return ops.take_along(ranks, _searching.argsort(order, 0), axis=0)


def _sort_rows(rows):
    """Returns the indices that sort rows (N, C) by their elements, the first ones first. Pairs of columns become one until
    one is left."""
    ranks, n = _rank_columns(rows), rows.shape[0]
    while ranks.shape[1] > 1:
        if ranks.shape[1] % 2:
            ranks = ops.pad(ranks, _core.full((), 0, _core.int64), low=[0, 0], high=[0, 1])
        ranks = _rank_columns(ranks[:, ::2] * n + ranks[:, 1::2])
    return _searching.argsort(ops.reshape(ranks, (n,)), 0)


def _distinct(x, dim, in_order, return_inverse, return_counts):
    """Returns the distinct slices along dim (None: elements), and what else is asked for; in_order: only neighbours are
    compared."""
    lines = ops.reshape(x, (-1,)) if dim is None else _shaping.moveaxis(with_axis(x), dim, 0)
    n = lines.shape[0]
    rows = ops.reshape(lines, (n, math.prod(lines.shape[1:])))
    rows = ops.cast(rows, _core.uint8) if x.dtype in BOOL else rows
    order = ops.iota(_core.int64, (n,), 0)
    if not in_order and n and rows.shape[1]:
        order = _sort_rows(rows)
        rows = ops.gather(rows, order, axis=0)
    new = ops.any(ops.not_equal(slice_axis(rows, 0, 1, n), slice_axis(rows, 0, 0, n - 1)), axes=1) if n else None
    new = ops.concat([_core.full((1,), True, _core.bool), new], 0) if n else _core.full((0,), False, _core.bool)
    first = ops.iota(_core.int64, (n,), 0)[new]
    values = _shaping.moveaxis(ops.gather(lines, ops.gather(order, first, axis=0), axis=0), 0, dim or 0)
    results = [values]
    if return_inverse:
        which = ops.cumsum(ops.cast(new, _core.int64), axis=0) - 1
        inverse = ops.scatter(_core.full((n,), 0, _core.int64), order, which, axis=0, unique=True)
        results.append(ops.reshape(inverse, x.shape) if dim is None else inverse)
    if return_counts:
        results.append(ops.concat([first[1:], _core.full((min(n, 1),), n, _core.int64)], 0) - first)
    return tuple(results) if len(results) > 1 else values


@define("unique(input, sorted: bool=True, return_inverse: bool=False, return_counts: bool=False, dim: int=None)", "fm")
def unique(x, sorted, return_inverse, return_counts, dim):
    """Returns the distinct elements, or slices along dim, in order, whatever `sorted` says; then the index of each element's
    value, and the counts, if asked for."""
    if x.dtype in COMPLEX and dim is None:
        return _searching.unique(x, True, return_inverse, return_counts)
    return _distinct(x, dim, False, return_inverse, return_counts)


@define("unique_consecutive(input, return_inverse: bool=False, return_counts: bool=False, dim: int=None)", "fm")
def unique_consecutive(x, return_inverse, return_counts, dim):
    """Returns the elements, or slices along dim, that differ from the one before."""
    return _distinct(x, dim, True, return_inverse, return_counts)


# ------------------------------------------------------------------------------------------ counting

@define("bincount(input, weights: Tensor=None, minlength: int=0)", "fm")
def bincount(x, weights, minlength):
    """Returns how often (or with which total weight) each integer from 0 on occurs in x."""
    if weights is not None and weights.dtype not in FLOATS:
        weights = ops.cast(weights, _core.float64)
    return _searching.bincount(x, weights, minlength)


@define("histc(input, bins: int=100, min: float=0, max: float=0, *, out=None)", "fm")
def histc(x, bins, min, max):
    """Returns the number of elements in each of the bins from min to max; both 0: of the elements' range."""
    return _searching.histc(x, bins, *((min, max) if min < max else _range_of(x, None)))


def _range_of(x, range):
    """Returns the lowest and the highest edge of bins: of the range, or of x's elements."""
    low, high = range if range is not None else (x.min().item(), x.max().item()) if x.numel() else (0.0, 1.0)
    if low > high:
        raise RuntimeError(f"histogram: the range is from {low} to {high}, it must increase")
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _histogram(x, bins, range, weight, density):
    """Returns the counts of points (N, D) in a grid, and its edges along each axis; bins: D numbers or vectors of edges."""
    columns = [ops.reshape(slice_axis(x, 1, d, d + 1), (-1,)) for d in builtin_range(x.shape[1])]
    edges = [n if isinstance(n, Tensor) else ops.cast(_creation.linspace(
        *_range_of(column, None if range is None else range[2 * d:2 * d + 2]), n + 1, dtype=_core.float64), x.dtype)
        for d, (column, n) in enumerate(zip(columns, bins, strict=True))]
    counts = [edge.numel() - 1 for edge in edges]
    flat, inside = 0, True
    for column, edge, n in zip(columns, edges, counts):
        at = _searching.searchsorted(edge, column, right=True) - 1
        at = ops.select(ops.equal(column, edge[-1]), n - 1, at)
        within = ops.and_(ops.greater_equal(column, edge[0]), ops.less_equal(column, edge[-1]))
        flat, inside = flat * n + at, within if inside is True else ops.and_(inside, within)
    total = _core.full((math.prod(counts),), 0, x.dtype)
    one = ops.expand(scalar_of_dtype(1, x.dtype), flat.shape) if weight is None else ops.cast(ops.reshape(weight, (-1,)), x.dtype)
    hist = ops.reshape(ops.scatter_add(total, ops.select(inside, flat, -1), one, axis=0), counts)
    if density:
        hist = hist / ops.sum(hist)
        for d, edge in enumerate(edges):
            hist = hist / ops.reshape(ops.diff(edge), [-1 if axis == d else 1 for axis in builtin_range(len(counts))])
    return hist, tuple(edges)


@define("histogram(input, bins: int|Tensor=100, *, range=None, weight: Tensor=None, density: bool=False, out=None)", "fm")
def histogram(x, bins, range, weight, density):
    """Returns (hist, bin_edges): the number of elements, or their weight, in each bin; the last one includes its upper edge."""
    hist, edges = _histogram(ops.reshape(x, (x.numel(), 1)), [bins], range, weight, density)
    return return_types.histogram(hist, edges[0])


@define("histogramdd(input, bins: int|ints|Tensors, range=None, weight: Tensor=None, density: bool=False)")
def histogramdd(x, bins, range, weight, density):
    """Returns (hist, bin_edges) of points, the last axis (D): the number of points in each cell of a grid of D axes."""
    axes = x.shape[-1]
    hist = _histogram(ops.reshape(x, (x.numel() // max(axes, 1), axes)), (bins,) * axes if hasattr(bins, "__index__") else bins,
                      range, weight, density)
    return return_types.histogramdd(*hist)


# ----------------------------------------------------------------------------- differences and integrals

@define("diff(input, n: int=1, dim: int=-1, prepend: Tensor=None, append: Tensor=None, *, out=None)", "fm")
def diff(x, n, dim, prepend, append):
    """Returns the differences of successive elements along dim, n times over."""
    dim = normalize_axis(dim, x.ndim, "diff")
    if not n:
        return x.clone()
    total = x.shape[dim] + sum(part.shape[dim] for part in (prepend, append) if part is not None)
    return _reductions.diff(x, min(n, total), dim, prepend=prepend, append=append)


def _double_areas(y, x, dim):
    """Returns twice the areas below the lines between neighbours of y along dim, in the operands' dtype as PyTorch; without x
    the neighbours are 1 apart."""
    dim, n = normalize_axis(dim, y.ndim, "trapezoid"), y.shape[dim]
    heights = slice_axis(y, dim, min(n, 1), n) + slice_axis(y, dim, 0, max(n - 1, 0))
    if x is None:
        return heights
    if x.ndim == 1:
        x = ops.reshape(x, [-1 if axis == dim else 1 for axis in builtin_range(y.ndim)])
    x = ops.reshape(x, (1,) * (y.ndim - x.ndim) + tuple(x.shape))
    return heights * ops.diff(x, axis=dim)


@define("trapezoid(y: Tensor, x: Tensor=None, *, dx: float=1, dim: int=-1)", alias="trapz")
def trapezoid(y, x, dx, dim):
    """Returns the integral of y along dim by the trapezoidal rule."""
    return _reductions.sum(_double_areas(y, x, dim), dim=dim) * (dx / 2 if x is None else 0.5)


@define("cumulative_trapezoid(y: Tensor, x: Tensor=None, *, dx: float=1, dim: int=-1)")
def cumulative_trapezoid(y, x, dx, dim):
    """Returns the integrals of y from the first element to each later one along dim."""
    return _reductions.cumsum(_double_areas(y, x, dim), dim=dim) * (dx / 2 if x is None else 0.5)


def _derivative(x, dim, step, edge_order):
    """Returns the derivative along one axis; step: the distance of neighbours, or a vector of the distances."""
    n, is_line = x.shape[dim], isinstance(step, Tensor) and step.ndim
    if n <= edge_order:
        raise RuntimeError(f"gradient: axis {dim} has {n} elements, there must be {edge_order + 1} or more")
    line = ops.reshape(step, [-1 if axis == dim else 1 for axis in builtin_range(x.ndim)]) if is_line else step

    def part(start, size):
        return slice_axis(x, dim, start, start + size)

    def steps(start, size):
        return slice_axis(line, dim, start, start + size) if is_line else line

    def three(at, size, sign):  # the parabola through three points, at the middle (0) or at one end (-1, 1)
        f0, f1, f2, h0, h1 = part(at, size), part(at + 1, size), part(at + 2, size), steps(at, size), steps(at + 1, size)
        slope0, slope1, bend = (f1 - f0) / h0, (f2 - f1) / h1, h0 + h1
        if sign == 0:
            return (slope0 * h1 + slope1 * h0) / bend if is_line else (f2 - f0) / bend
        return slope0 - (slope1 - slope0) * h0 / bend if sign < 0 else slope1 + (slope1 - slope0) * h1 / bend

    if edge_order == 1:
        first, last = ((part(at + 1, 1) - part(at, 1)) / steps(at, 1) for at in (0, n - 2))
    else:
        first, last = three(0, 1, -1), three(n - 3, 1, 1)
    return ops.concat([first, *([three(0, n - 2, 0)] if n > 2 else []), last], dim)


@define("gradient(input, *, spacing=1, dim: int|ints=None, edge_order: int=1)")
def gradient(x, spacing, dim, edge_order):
    """Returns the derivative along each axis; spacing: a distance, one for each axis, or the axes' coordinates."""
    if edge_order not in (1, 2):
        raise RuntimeError(f"gradient: edge_order is 1 or 2, not {edge_order}")
    x = x if x.dtype in FLOATS + COMPLEX else ops.cast(x, get_default_dtype())
    dims = builtin_range(x.ndim) if dim is None else _shaping.normalize_axes(dim, x.ndim, "gradient")
    spacing = 1 if spacing is None else spacing
    spacing = spacing if isinstance(spacing, (tuple, list)) else [spacing] * len(dims)
    if len(spacing) != len(dims):
        raise RuntimeError(f"gradient: there are {len(spacing)} spacings for {len(dims)} axes")
    steps = [ops.diff(one) if isinstance(one, Tensor) and one.ndim else one for one in spacing]
    return tuple(_derivative(x, axis, step, edge_order) for axis, step in zip(dims, steps))
