"""Reductions over axes: sums, extremes, moments; and cumulative ones.

Functions follow the array API standard, which names an axis by `axis=`; with `dim`, by keyword or position,
they follow PyTorch.
"""
import builtins
import math
from collections import namedtuple

from . import _core
from ._core import Tensor, ops
from ._dtypes import BOOL, COMPLEX, FLOATS, SIGNED, UNSIGNED
from ._elementwise import root_with_zero_grad, strong

__all__ = [
    "all", "amax", "amin", "aminmax", "any", "argmax", "argmin", "average", "corrcoef", "count_nonzero", "cov",
    "cummax", "cummin", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "diff", "logcumsumexp",
    "logsumexp", "max", "mean", "median", "min", "nanmax", "nanmean", "nanmin", "nanprod", "nanstd", "nansum",
    "nanvar", "percentile", "prod", "ptp", "quantile", "std", "std_mean", "sum", "trapezoid", "var", "var_mean"]

Extreme = namedtuple("Extreme", "values indices")


def reduced(op, x, axis, keepdims, **options):
    """Applies op over axes: None means all, () none."""
    x = strong(x)
    if isinstance(axis, (tuple, list)) and not axis:
        return op(ops.reshape(x, (*x.shape, 1)), axes=-1, **options)
    return op(x, axes=axis, keepdims=bool(keepdims), **options)


def widened(x, dtype, torch=False):
    """Returns x in the dtype in which it is summed: small integers are summed in 64 bits."""
    x = strong(x)
    if dtype is not None:
        return ops.cast(x, dtype)
    if x.dtype in BOOL or x.dtype in SIGNED:
        return x if x.dtype == _core.int64 else ops.cast(x, _core.int64)
    if x.dtype in UNSIGNED:
        return ops.cast(x, _core.int64 if torch else _core.uint64)
    return x


def _needs_float(x, dtype=None):
    x = strong(x)
    if dtype is not None:
        return ops.cast(x, dtype)
    return x if x.dtype in FLOATS or x.dtype in COMPLEX else ops.cast(x, _core.float32)


def sum(x, /, axis=None, dtype=None, keepdims=False, *, dim=None, keepdim=False):
    """Returns the sum over axes; of integers in 64 bits."""
    return reduced(ops.sum, widened(x, dtype, dim is not None), axis if dim is None else dim, keepdims or keepdim)


def prod(x, /, axis=None, dtype=None, keepdims=False, *, dim=None, keepdim=False):
    """Returns the product over axes; of integers in 64 bits."""
    return reduced(ops.prod, widened(x, dtype, dim is not None), axis if dim is None else dim, keepdims or keepdim)


def mean(x, /, axis=None, keepdims=False, *, dtype=None, dim=None, keepdim=False):
    """Returns the mean over axes."""
    return reduced(ops.mean, _needs_float(x, dtype), axis if dim is None else dim, keepdims or keepdim)


def _moment(op, x, axis, correction, keepdims, dim, unbiased, ddof):
    if correction is None:
        correction = ddof if ddof is not None else 0 if dim is None and unbiased is None else int(unbiased is not False)
    x, axis = _needs_float(x), axis if dim is None else dim
    if correction == int(correction):
        return reduced(op, x, axis, keepdims, correction=int(correction))
    count = reduced(ops.sum, _core.full(x.shape, 1, x.dtype), axis, keepdims)
    share = count / ops.maximum(count - correction, 0.0)
    return reduced(op, x, axis, keepdims) * (share if op is ops.var else ops.sqrt(share))


def var(x, /, dim=None, unbiased=None, keepdim=False, *, axis=None, correction=None, keepdims=False, ddof=None):
    """Returns the variance over axes; the divisor is the count less `correction` (0; with dim 1, as in
    PyTorch)."""
    return _moment(ops.var, x, axis, correction, keepdims or keepdim, dim, unbiased, ddof)


def std(x, /, dim=None, unbiased=None, keepdim=False, *, axis=None, correction=None, keepdims=False, ddof=None):
    """Returns the standard deviation over axes, the root of var."""
    return _moment(ops.std, x, axis, correction, keepdims or keepdim, dim, unbiased, ddof)


def var_mean(x, dim=None, *, correction=1, keepdim=False):
    return var(x, axis=dim, correction=correction, keepdims=keepdim), mean(x, dim, keepdim)


def std_mean(x, dim=None, *, correction=1, keepdim=False):
    return std(x, axis=dim, correction=correction, keepdims=keepdim), mean(x, dim, keepdim)


def extreme_with_indices(x, dim, keepdim, largest):
    """Returns (values, indices) along one axis, as PyTorch does."""
    indices = ops.cast((ops.argmax if largest else ops.argmin)(x, axis=dim, keepdims=True), _core.int64)
    if x.requires_grad:
        values = ops.take_along(x, indices, axis=dim)  # the first of equal elements has the gradient
    else:
        values = (ops.max if largest else ops.min)(x, axes=dim, keepdims=True)
    if not keepdim and x.ndim:
        shape = list(x.shape)
        del shape[dim]
        values, indices = ops.reshape(values, shape), ops.reshape(indices, shape)
    return Extreme(values, indices)


def _extreme(x, axis, keepdims, dim, keepdim, largest):
    if isinstance(dim, Tensor):
        return (ops.maximum if largest else ops.minimum)(x, dim)
    if dim is not None:
        return extreme_with_indices(strong(x), dim, keepdim, largest)
    x = strong(x)
    for index, size in enumerate(x.shape):
        taken = axis is None or index in (axis if isinstance(axis, (tuple, list)) else (axis, axis + x.ndim))
        if not size and taken:
            raise ValueError(f"{'max' if largest else 'min'}: axis {index} of {tuple(x.shape)} has no elements, so none is the "
                             f"{'largest' if largest else 'smallest'}")
    return reduced(ops.max if largest else ops.min, x, axis, keepdims or keepdim)


def max(x, /, dim=None, keepdim=False, *, axis=None, keepdims=False):
    """Returns the largest element over axes; with dim, (values, indices); of two tensors, the larger of each
    pair of elements."""
    return _extreme(x, axis, keepdims, dim, keepdim, True)


def min(x, /, dim=None, keepdim=False, *, axis=None, keepdims=False):
    """Returns the smallest element over axes; with dim, (values, indices); of two tensors, the smaller of
    each pair of elements."""
    return _extreme(x, axis, keepdims, dim, keepdim, False)


def amax(x, axis=None, keepdims=False, *, dim=None, keepdim=False):
    return max(x, axis=axis if dim is None else dim, keepdims=keepdims or keepdim)


def amin(x, axis=None, keepdims=False, *, dim=None, keepdim=False):
    return min(x, axis=axis if dim is None else dim, keepdims=keepdims or keepdim)


def aminmax(x, *, dim=None, keepdim=False):
    return amin(x, dim, keepdim), amax(x, dim, keepdim)


def ptp(x, axis=None, keepdims=False):
    """Returns the difference of the largest and the smallest element over axes."""
    return max(x, axis=axis, keepdims=keepdims) - min(x, axis=axis, keepdims=keepdims)


def _arg_extreme(op, x, axis, keepdims):
    x = strong(x)
    if x.dtype in BOOL:
        x = ops.cast(x, _core.uint8)
    if axis is None:
        index = op(ops.reshape(x, (-1,)), axis=0)
        index = ops.reshape(index, (1,) * x.ndim) if keepdims else index
    else:
        index = op(x, axis=axis, keepdims=bool(keepdims))
    return ops.cast(index, _core.int64)


def argmax(x, /, axis=None, keepdims=False, *, dim=None, keepdim=False):
    """Returns the index of the largest element along an axis (None: in row-major order), the first of equal
    ones, as int64."""
    return _arg_extreme(ops.argmax, x, axis if dim is None else dim, keepdims or keepdim)


def argmin(x, /, axis=None, keepdims=False, *, dim=None, keepdim=False):
    """Returns the index of the smallest element along an axis (None: in row-major order), the first of equal
    ones, as int64."""
    return _arg_extreme(ops.argmin, x, axis if dim is None else dim, keepdims or keepdim)


def _reduce_bools(op, x, axis, keepdims):
    x = strong(x)
    return reduced(op, x if x.dtype in BOOL else ops.not_equal(x, 0), axis, keepdims)


def all(x, /, axis=None, keepdims=False, *, dim=None, keepdim=False):
    """True if all elements over axes are true, or not 0. True if there are none."""
    return _reduce_bools(ops.all, x, axis if dim is None else dim, keepdims or keepdim)


def any(x, /, axis=None, keepdims=False, *, dim=None, keepdim=False):
    """True if any element over axes is true, or not 0. False if there are none."""
    return _reduce_bools(ops.any, x, axis if dim is None else dim, keepdims or keepdim)


def count_nonzero(x, /, axis=None, keepdims=False, *, dim=None, keepdim=False):
    """Returns the number of elements over axes that are not 0, as int64."""
    counts = reduced(ops.sum, ops.cast(ops.not_equal(strong(x), 0), _core.int64), axis if dim is None else dim,
                     keepdims or keepdim)
    return counts


def logsumexp(x, dim=None, keepdim=False, *, axis=None, keepdims=False):
    """Returns the logarithm of the sum of exp(x), without overflow."""
    return reduced(ops.logsumexp, _needs_float(x), axis if dim is None else dim, keepdim or keepdims)


def _ignoring_nan(op, whole):
    def function(x, /, axis=None, keepdims=False, *, dim=None, keepdim=False):
        x, axis = strong(x), axis if dim is None else dim
        if x.dtype in FLOATS:
            return reduced(op, x, axis, keepdims or keepdim)
        return whole(x, axis=axis, keepdims=keepdims or keepdim)  # integers have no NaN

    return function


nansum, nanmean, nanmax, nanmin = (_ignoring_nan(getattr(ops, "nan" + whole.__name__), whole) for whole in (sum, mean, max, min))


def nanvar(x, axis=None, ddof=0, keepdims=False):
    """Returns the variance over axes of the elements that are not NaN."""
    known = ops.not_(ops.is_nan(x))
    count = reduced(ops.sum, ops.cast(known, x.dtype), axis, True)
    centre = reduced(ops.nansum, x, axis, True) / count
    squares = ops.square(ops.select(known, x - centre, 0.0))
    divisor = reduced(ops.sum, ops.cast(known, x.dtype), axis, keepdims) - ddof
    return ops.select(ops.greater(divisor, 0.0), reduced(ops.sum, squares, axis, keepdims) / divisor, float("nan"))


def nanstd(x, axis=None, ddof=0, keepdims=False):
    return root_with_zero_grad(nanvar(x, axis, ddof, keepdims))


def nanprod(x, axis=None, keepdims=False):
    return prod(ops.select(ops.is_nan(x), 1.0, x), axis, None, keepdims)


def average(x, axis=None, weights=None, keepdims=False):
    """Returns the mean over axes, weighted by weights."""
    if weights is None:
        return mean(x, axis, keepdims)
    x, weights = _needs_float(x), _needs_float(weights)
    if weights.shape != x.shape:  # one weight for each index along the axis
        weights = ops.reshape(weights, [-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])
        weights = ops.expand(weights, x.shape)
    return reduced(ops.sum, x * weights, axis, keepdims) / reduced(ops.sum, weights, axis, keepdims)


def _cumulative(op, x, axis, initial, first):
    if axis is None:
        if x.ndim > 1:
            raise ValueError(f"cumulative: the tensor has {x.ndim} axes, one of them must be named")
        axis = 0
    y = op(x, axis=axis)
    if not initial:
        return y
    shape = list(x.shape)
    shape[axis] = 1
    return ops.concat([_core.full(shape, first, y.dtype), y], axis)


def cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False):
    """Returns cumulative sums along an axis; with include_initial a 0 comes first."""
    return _cumulative(ops.cumsum, widened(x, dtype), axis, include_initial, 0)


def cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False):
    """Returns cumulative products along an axis; with include_initial a 1 comes first."""
    return _cumulative(ops.cumprod, widened(x, dtype), axis, include_initial, 1)


def _flat(x, axis):
    return (ops.reshape(strong(x), (-1,)), 0) if axis is None else (x, axis)


def cumsum(x, axis=None, dtype=None, *, dim=None):
    """Returns cumulative sums along an axis (None: in row-major order)."""
    x, axis = _flat(x, axis if dim is None else dim)
    return ops.cumsum(widened(x, dtype, dim is not None), axis=axis)


def cumprod(x, axis=None, dtype=None, *, dim=None):
    """Returns cumulative products along an axis (None: in row-major order)."""
    x, axis = _flat(x, axis if dim is None else dim)
    return ops.cumprod(widened(x, dtype, dim is not None), axis=axis)


def logcumsumexp(x, dim):
    return ops.logcumsumexp(x, axis=dim)


def _cumulative_extreme(op, x, dim):
    values = op(x, axis=dim)
    n = x.shape[dim]
    shape = [n if i == dim % x.ndim else 1 for i in range(x.ndim)]
    places = ops.iota(_core.int64, shape, dim % x.ndim)
    result = ops.select(ops.or_(ops.equal(x, values), ops.is_nan(x) if x.dtype in FLOATS else ops.not_equal(x, x)), places, -1)
    return Extreme(values, ops.cummax(ops.expand(result, x.shape), axis=dim))


def cummax(x, dim):
    """Returns (values, indices) of the largest element so far, the last of equal ones."""
    return _cumulative_extreme(ops.cummax, x, dim)


def cummin(x, dim):
    """Returns (values, indices) of the smallest element so far, the last of equal ones."""
    return _cumulative_extreme(ops.cummin, x, dim)


def diff(x, /, n=1, axis=-1, *, prepend=None, append=None, dim=None):
    """Returns the differences of successive elements along an axis, n times over."""
    axis, x = axis if dim is None else dim, strong(x)
    parts = [part if isinstance(part, Tensor) else _core.asarray(part) for part in (prepend, x, append) if part is not None]
    x = ops.concat(parts, axis) if len(parts) > 1 else x
    for _ in range(n if x.dtype in BOOL else 0):
        x = ops.xor(*(ops.slice(x, axes=axis, start=start, stop=start + x.shape[axis] - 1) for start in (1, 0)))
    if x.dtype in BOOL or n == 0:
        return +x if n == 0 and x.dtype not in BOOL else x
    return ops.diff(x, axis=axis, n=n)


def trapezoid(y, x=None, dx=1.0, axis=-1, *, dim=None):
    """Returns the integral of y along an axis by the trapezoidal rule."""
    axis, y = axis if dim is None else dim, _needs_float(y)
    if x is None:
        return ops.trapezoid(y, axis=axis, dx=dx)
    x = strong(x)
    upper, lower = (ops.slice(y, axes=axis, start=start, stop=start + y.shape[axis] - 1) for start in (1, 0))
    widths = diff(x, axis=-1 if x.ndim == 1 else axis)
    if x.ndim == 1:
        widths = ops.reshape(widths, [-1 if i == axis % y.ndim else 1 for i in range(y.ndim)])
    return reduced(ops.sum, (upper * 0.5 + lower * 0.5) * widths, axis, False)


def _quantile_at(x, q, axis, keepdims):
    """Returns the quantile at a q that requires gradients: they are the slope between two neighbours in
    sorted order. NaN outside of 0 to 1."""
    rank, q = x.ndim, ops.cast(q, x.dtype)
    if q.ndim:
        parts = [_quantile_at(x, q[i], axis, keepdims) for i in range(q.shape[0])]
        return ops.concat([ops.reshape(part, (1, *part.shape)) for part in parts], 0)
    line, along = (ops.reshape(x, (-1,)), 0) if axis is None else (x, axis % rank)
    last = line.shape[along] - 1
    line, place = ops.sort(line, axis=along), q * float(last)
    low = ops.clamp(ops.floor(place), 0.0, float(last - 1 if last else 0))
    at = ops.expand(ops.cast(low, _core.int64), [1 if a == along else n for a, n in enumerate(line.shape)])
    below, above = ops.take_along(line, at, axis=along), ops.take_along(line, ops.minimum(at + 1, last), axis=along)
    largest = ops.slice(line, axes=along, start=last, stop=last + 1)
    y = ops.select(ops.is_nan(largest), largest, below + (above - below) * (place - low))
    y = ops.select(ops.and_(ops.greater_equal(q, 0.0), ops.less_equal(q, 1.0)), y, math.nan)
    kept = [1] * rank if axis is None else list(y.shape)
    return ops.reshape(y, kept if keepdims else [] if axis is None else [n for a, n in enumerate(y.shape) if a != along])


def quantile(x, q, axis=None, keepdims=False, *, dim=None, keepdim=False):
    """Returns the quantiles q along an axis, interpolated linearly between two elements; several q make a
    first axis."""
    axis, x = axis if dim is None else dim, _needs_float(x)
    if isinstance(q, Tensor) and q.requires_grad:
        return _quantile_at(x, q, axis, keepdims or keepdim)
    several = q.tolist() if isinstance(q, Tensor) else q
    if isinstance(several, (list, tuple)):
        return ops.concat([ops.reshape(part, (1, *part.shape)) for part in
                           (quantile(x, one, axis, keepdims or keepdim) for one in several)], 0)
    if axis is None:
        y = ops.quantile(ops.reshape(x, (-1,)), q=several, axis=0)
        return ops.reshape(y, (1,) * x.ndim) if keepdims or keepdim else y
    return ops.quantile(x, q=several, axis=axis, keepdims=bool(keepdims or keepdim))


def percentile(x, q, axis=None, keepdims=False):
    several = q.tolist() if isinstance(q, Tensor) else q
    several = [one / 100 for one in several] if isinstance(several, (list, tuple)) else several / 100
    return quantile(x, several, axis, keepdims)


def median(x, /, dim=None, keepdim=False, *, axis=None, keepdims=False):
    """Returns the median, the mean of the two middle elements if their number is even; with dim, PyTorch's
    (values, indices) of the lower one."""
    if dim is not None:
        return lower_median(x, dim, keepdim)
    return quantile(x, 0.5, axis, keepdims)


def lower_median(x, dim=None, keepdim=False):
    """Returns PyTorch's median: the lower of the two middle elements; NaN if there is a NaN."""
    if dim is None:
        line = ops.sort(ops.reshape(x, (-1,)), axis=0)
        middle, last = line[(line.numel() - 1) // 2], line[-1]  # NaN is sorted last
        if x.dtype not in FLOATS:
            return middle
        equal, least = ops.equal(x, ops.stop_gradient(middle)), ops.equal(middle, -math.inf)
        value = ops.select(least, ops.min(ops.select(equal, x, math.inf)), ops.max(ops.select(equal, x, -math.inf)))
        return ops.select(ops.is_nan(last), last, value)  # equal elements share the gradient
    order = ops.argsort(x, axis=dim)
    at = (x.shape[dim] - 1) // 2
    indices = ops.slice(order, axes=dim, start=at, stop=at + 1)
    if x.dtype in FLOATS:  # the first NaN, if there is one
        unknown = ops.is_nan(x)
        first = ops.argmax(ops.cast(unknown, _core.int32), axis=dim, keepdims=True)
        indices = ops.select(ops.any(unknown, axes=dim, keepdims=True), first, indices)
    values = ops.take_along(x, indices, axis=dim)
    if not keepdim:
        shape = list(x.shape)
        del shape[dim]
        values, indices = ops.reshape(values, shape), ops.reshape(indices, shape)
    return Extreme(values, ops.cast(indices, _core.int64))


def cov(x, y=None, rowvar=True, ddof=None, *, correction=1):
    """Returns the covariance of variables, the rows of x (variables, observations)."""
    x = _needs_float(x)
    x = ops.reshape(x, (1, -1)) if x.ndim < 2 else x if rowvar else x.mT
    if y is not None:
        x = ops.concat([x, ops.reshape(_needs_float(y), (-1, x.shape[1]))], 0)
    correction = correction if ddof is None else ddof
    centred = x - ops.mean(x, axes=1, keepdims=True)
    y = ops.matmul(centred, conj_transposed(centred)) / float(builtins.max(x.shape[1] - correction, 0))
    return ops.reshape(y, ()) if y.numel() == 1 else y


def conj_transposed(x):
    return _core._view(x.mT, (("conj",),)) if x.dtype in COMPLEX else x.mT


def corrcoef(x, y=None, rowvar=True):
    """Returns the correlation of variables, the rows of x."""
    c = cov(x, y, rowvar)
    if not c.ndim:
        return c / c
    deviation = ops.sqrt(ops.diagonal(c))
    return c / ops.reshape(deviation, (-1, 1)) / ops.reshape(deviation, (1, -1))
