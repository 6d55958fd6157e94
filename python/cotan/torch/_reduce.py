"""Reductions over axes and cumulative functions with PyTorch's signatures, defaults and named tuples."""
import math
from collections import namedtuple

from .. import _core, _reductions, _transforms
from .._core import Tensor, ops
from .._dtypes import BOOL, COMPLEX, FLOATS
from . import return_types
from ._define import define
from ._pointwise import as_float, logaddexp_complex, with_bools


def axes_of(name, x, dim):
    """Returns the axes as primitive ops take them: None for all; a tensor without axes has axis 0 and -1."""
    if dim is None or isinstance(dim, (tuple, list)) and not dim:
        return None
    if x.ndim:
        return dim
    for axis in dim if isinstance(dim, (tuple, list)) else (dim,):
        if not -1 <= axis <= 0:
            raise IndexError(f"{name}: axis {axis} is out of range for a tensor without axes, which has axis 0 and -1")
    return None


def reduce(name, op, x, dim, keepdim, **options):
    return op(x, axes=axes_of(name, x, dim), keepdims=keepdim, **options)


def along_axis(function):
    """Makes a function of (input, dim, …) work on a tensor without axes, as if it had one."""
    def of_any_rank(input, dim, *more):
        if input.ndim or dim is None:
            return function(input, dim, *more)
        axes_of(function.__name__, input, dim)
        result = function(ops.reshape(input, (1,)), 0, *more)
        if isinstance(result, tuple):
            return type(result)(*(ops.reshape(x, ()) for x in result))
        return ops.reshape(result, ())

    of_any_rank.__name__, of_any_rank.__doc__ = function.__name__, function.__doc__
    return of_any_rank


def named(name, function):
    """Makes a function of (input, dim, …) return PyTorch's named tuple, and work on a tensor without axes."""
    function = along_axis(function)
    return lambda *args: getattr(return_types, name)(*function(*args))


def _summed(x, dtype):
    if dtype is not None:
        return ops.cast(x, dtype)
    return x if x.dtype in FLOATS + COMPLEX else ops.cast(x, _core.int64)


_OVER = "(input, dim: int|ints=None, keepdim: bool=False, *, dtype: dtype=None, out=None)"


@define("sum" + _OVER, "fm")
def sum(input, dim, keepdim, dtype):
    """Returns the sum over axes; of integers in int64."""
    return reduce("sum", ops.sum, _summed(input, dtype), dim, keepdim)


@define("nansum" + _OVER, "fm")
def nansum(input, dim, keepdim, dtype):
    """Returns the sum over axes of the elements that are not NaN."""
    input = _summed(input, dtype)
    return reduce("nansum", ops.nansum if input.dtype in FLOATS else ops.sum, input, dim, keepdim)


@define("prod(input, dim: int=None, keepdim: bool=False, *, dtype: dtype=None, out=None)", "fm")
def prod(input, dim, keepdim, dtype):
    """Returns the product of all elements or along an axis; of integers in int64."""
    return reduce("prod", ops.prod, _summed(input, dtype), dim, keepdim)


def _as_mean(name, input, dtype):
    if dtype is None and input.dtype not in FLOATS + COMPLEX:
        raise RuntimeError(f"{name}(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. "
                           f"Got: {input.dtype.name}")
    return input if dtype is None else ops.cast(input, dtype)


@define("mean" + _OVER, "fm")
def mean(input, dim, keepdim, dtype):
    """Returns the mean over axes."""
    return reduce("mean", ops.mean, _as_mean("mean", input, dtype), dim, keepdim)


@define("nanmean" + _OVER, "fm")
def nanmean(input, dim, keepdim, dtype):
    """Returns the mean over axes of the elements that are not NaN."""
    return reduce("nanmean", ops.nanmean, _as_mean("nanmean", input, dtype), dim, keepdim)


@define("logsumexp(input, dim: int|ints, keepdim: bool=False, *, out=None)", "fm")
def logsumexp(input, dim, keepdim):
    """Returns the logarithm of the sum of exp over axes, without overflow."""
    input = as_float(input)
    if input.dtype not in COMPLEX:
        return reduce("logsumexp", ops.logsumexp, input, dim, keepdim)
    most = reduce("logsumexp", ops.max, ops.real(input), dim, True)
    most = ops.stop_gradient(ops.select(ops.is_finite(most), most, 0.0))
    total = ops.log(reduce("logsumexp", ops.sum, ops.exp(input - most), dim, True)) + most
    return total if keepdim else ops.reshape(total, reduce("logsumexp", ops.sum, input, dim, False).shape)


@define("count_nonzero(input, dim: int|ints=None)", "fm")
def count_nonzero(input, dim):
    """Returns the number of elements that are not 0."""
    return reduce("count_nonzero", ops.sum, ops.cast(ops.not_equal(input, 0), _core.int64), dim, False)


def _define_all(name):
    def all(input, dim, keepdim):
        result = reduce(name, getattr(ops, name), input if input.dtype in BOOL else ops.not_equal(input, 0), dim, keepdim)
        return ops.cast(result, _core.uint8) if input.dtype == _core.uint8 else result

    all.__doc__ = f"Returns whether {name} of the elements over axes {'are' if name == 'all' else 'is'} true."
    define(f"{name}(input, dim: int|ints=None, keepdim: bool=False, *, out=None)", "fm")(all)


_define_all("all")
_define_all("any")


# -------------------------------------------------------------------------------------------- extremes

def _refuse_empty(name, x, dim):
    taken = range(x.ndim) if dim is None else [axis % max(x.ndim, 1) for axis in (dim if isinstance(dim, (tuple, list)) else (dim,))]
    if x.ndim and any(x.shape[axis] == 0 for axis in taken):
        raise IndexError(f"{name}(): Expected reduction dim to have non-zero size: the tensor is {tuple(x.shape)}")


def _define_extreme(name, largest):
    op, pair = (with_bools(ops.max), "maximum") if largest else (with_bools(ops.min), "minimum")

    def of_all(input):
        _refuse_empty(name, input, None)
        return op(input)

    def along(input, dim, keepdim):
        _refuse_empty(name, input, dim)
        return with_bools(_reductions.extreme_with_indices)(input, dim, keepdim, largest)

    def over(input, dim, keepdim):
        axes = axes_of("a" + name, input, dim)
        _refuse_empty("a" + name, input, axes)
        return op(input, axes=axes, keepdims=keepdim)

    word = "largest" if largest else "smallest"
    of_all.__doc__ = f"Returns the {word} element; along dim, (values, indices); of two tensors, the {word} of each pair."
    over.__doc__ = f"Returns the {word} element over axes; equal ones share the gradient."
    along.__name__ = name
    define(f"{name}(input, *, out=None)", "fm")(of_all)
    define(f"{name}(input, other: Tensor, *, out=None)", op=pair, bools=True)(getattr(ops, pair))
    define(f"{name}(input, dim: int, keepdim: bool=False, *, out=None)")(named(name, along))
    define(f"a{name}(input, dim: int|ints=(), keepdim: bool=False, *, out=None)", "fm")(over)

    def arg(input, dim, keepdim):
        _refuse_empty("arg" + name, input, dim)
        if dim is not None and not input.ndim:
            return _core.full((), 0, _core.int64)
        return (_reductions.argmax if largest else _reductions.argmin)(input, dim, keepdim)

    arg.__doc__ = f"Returns the index of the {word} element along an axis, or in row-major order."
    define(f"arg{name}(input, dim: int=None, keepdim: bool=False, *, out=None)", "fm")(arg)


_define_extreme("max", True)
_define_extreme("min", False)


@define("aminmax(input, *, dim: int=None, keepdim: bool=False, out=None)", "fm")
def aminmax(input, dim, keepdim):
    """Returns (min, max) of all elements or along an axis."""
    axes = axes_of("aminmax", input, dim)
    return return_types.aminmax(*(with_bools(op)(input, axes=axes, keepdims=keepdim) for op in (ops.min, ops.max)))


# --------------------------------------------------------------------------------------------- moments

def _moment(name, input, dim, correction, keepdim):
    if input.dtype not in FLOATS + COMPLEX:
        raise RuntimeError(f"{name} only support floating point and complex dtypes")
    if input.dtype in COMPLEX:
        parts = (_moment("var", part(input), dim, correction, keepdim) for part in (ops.real, ops.imag))
        value = next(parts) + next(parts)
        return ops.sqrt(value) if name == "std" else value
    return _reductions._moment(getattr(ops, name), input, axes_of(name, input, dim), 1 if correction is None else correction,
                               keepdim, None, None, None)


def _define_moment(name):
    result = namedtuple(f"{name}_mean", f"{name} mean")
    method, of_mean = f"{name}(input, ", f"{name}_mean(input, "

    def moment(input, dim, correction, keepdim):
        return _moment(name, input, dim, correction, keepdim)

    def with_mean(input, dim, correction, keepdim):
        return result(_moment(name, input, dim, correction, keepdim), reduce(name, ops.mean, input, dim, keepdim))

    for signature, function, forms in ((method, moment, "fm"), (of_mean, with_mean, "f")):
        function.__doc__ = (f"Returns the {'variance' if name == 'var' else 'standard deviation'} over axes"
                            f"{' and the mean' if function is with_mean else ''}; the divisor is the count less `correction`.")
        more = "" if function is with_mean else ", out=None"
        define(f"{signature}dim: int|ints=None, *, correction: float|None=1, keepdim: bool=False{more})", forms)(function)
        define(f"{signature}dim: int|ints, unbiased: bool, keepdim: bool=False{', *' + more if more else ''})")(
            lambda input, dim, unbiased, keepdim, function=function: function(input, dim, int(unbiased), keepdim))
        define(f"{signature}unbiased: bool)")(
            lambda input, unbiased, function=function: function(input, None, int(unbiased), False))
        define(f"{signature}dim: int|ints, *, unbiased: bool=True, keepdim: bool=False)")(
            lambda input, dim, unbiased, keepdim, function=function: function(input, dim, int(unbiased), keepdim))


_define_moment("var")
_define_moment("std")


# ----------------------------------------------------------------------------------------- order statistics

@define("median(input)", "fm")
def median(input):
    """Returns the lower of the two middle elements; NaN if there is one. Along dim, (values, indices)."""
    return _reductions.lower_median(input) if input.numel() else _core.full((), math.nan, input.dtype)


define("median(input, dim: int, keepdim: bool=False, *, out=None)")(named("median", _reductions.lower_median))


def _nanmedian(input, dim, keepdim):
    if input.dtype not in FLOATS:
        return _reductions.lower_median(input, dim, keepdim)
    order = ops.argsort(input, axis=dim)  # NaN is last
    known = ops.sum(ops.cast(ops.not_(ops.is_nan(input)), _core.int64), axes=dim, keepdims=True)
    indices = ops.take_along(order, ops.maximum(known - 1, 0) // 2, axis=dim)
    values = ops.take_along(input, indices, axis=dim)
    result = _reductions.Extreme(values, ops.cast(indices, _core.int64))
    return result if keepdim else _reductions.Extreme(*(x.squeeze(dim) for x in result))


@define("nanmedian(input)", "fm")
def nanmedian(input):
    """Returns the median of the elements that are not NaN."""
    return _nanmedian(ops.reshape(input, (-1,)), 0, False).values


define("nanmedian(input, dim: int, keepdim: bool=False, *, out=None)")(named("nanmedian", _nanmedian))


def _interpolated(line, place, last, interpolation):
    """Returns the elements of sorted lines (…, n) at fractional indices (…, q)."""
    low = ops.clamp(ops.floor(place), 0.0, ops.maximum(last - 1.0, 0.0))
    share = place - low
    if interpolation != "linear":
        place = {"lower": ops.floor, "higher": ops.ceil, "nearest": ops.round}.get(interpolation, ops.floor)(place)
    below = ops.take_along(line, ops.cast(low if interpolation in ("linear", "midpoint") else place, _core.int64), axis=-1)
    if interpolation not in ("linear", "midpoint"):
        return below
    above = ops.take_along(line, ops.cast(ops.minimum(low + 1.0, last), _core.int64), axis=-1)
    if interpolation == "midpoint":
        share = ops.select(ops.equal(share, 0.0), 0.0, ops.select(ops.equal(share, 1.0), 1.0, 0.5))
    return below + (above - below) * share


def _quantile(name, input, q, dim, keepdim, interpolation, skip_nan):
    if interpolation not in ("linear", "lower", "higher", "midpoint", "nearest"):
        raise RuntimeError(f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}")
    if input.dtype not in FLOATS:
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
    q = q if isinstance(q, Tensor) else _core.asarray(float(q), dtype=input.dtype)
    axis = None if dim is None else axes_of(name, input, dim)
    rank = input.ndim
    line = ops.reshape(input, (-1,)) if axis is None else input.movedim(axis, -1)  # (…, n)
    unknown = ops.is_nan(line)
    line = ops.sort(line, axis=-1)
    count = ops.sum(ops.cast(ops.not_(unknown), line.dtype), axes=-1, keepdims=True)
    last = ops.maximum(count - 1.0, 0.0) if skip_nan else count * 0.0 + float(line.shape[-1] - 1)
    flat = ops.reshape(q, (1,) * (line.ndim - 1) + (-1,))
    y = _interpolated(line, flat * last, last, interpolation)  # (…, q)
    if not skip_nan:
        y = ops.select(ops.any(unknown, axes=-1, keepdims=True), math.nan, y)
    else:
        y = ops.select(ops.equal(count, 0.0), math.nan, y)
    y = y.movedim(-1, 0)  # (q, …)
    if keepdim:
        shape = (1,) * rank if axis is None else [1 if a == axis % rank else n for a, n in enumerate(input.shape)]
        y = ops.reshape(y, (y.shape[0], *shape))
    return y if q.ndim else ops.reshape(y, y.shape[1:])


_QUANTILE = '(input, q: Tensor|float, dim: int=None, keepdim: bool=False, *, interpolation: str="linear", out=None)'


@define("quantile" + _QUANTILE, "fm")
def quantile(input, q, dim, keepdim, interpolation):
    """Returns the quantiles q; several make a first axis."""
    return _quantile("quantile", input, q, dim, keepdim, interpolation, False)


@define("nanquantile" + _QUANTILE, "fm")
def nanquantile(input, q, dim, keepdim, interpolation):
    """Returns the quantiles q of the elements that are not NaN."""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation, True)


# ------------------------------------------------------------------------------------------ cumulative

@along_axis
def _cumsum(input, dim, dtype):
    return ops.cumsum(_summed(input, dtype), axis=dim)


@along_axis
def _cumprod(input, dim, dtype):
    input = _summed(input, dtype)
    if input.dtype in COMPLEX and input.numel():
        return _transforms.associative_scan(lambda a, b: a * b, input, axis=dim)
    return ops.cumprod(input, axis=dim) if input.dtype not in COMPLEX else +input


define("cumsum(input, dim: int, *, dtype: dtype=None, out=None)", "fmi")(_cumsum)
define("cumprod(input, dim: int, *, dtype: dtype=None, out=None)", "fmi")(_cumprod)
define("cummax(input, dim: int, *, out=None)", "fm")(named("cummax", with_bools(_reductions.cummax)))
define("cummin(input, dim: int, *, out=None)", "fm")(named("cummin", with_bools(_reductions.cummin)))


@along_axis
def _logcumsumexp(input, dim):
    if input.dtype in COMPLEX:
        return _transforms.associative_scan(logaddexp_complex, input, axis=dim) if input.numel() else +input
    return ops.logcumsumexp(input, axis=dim)


define("logcumsumexp(input, dim: int, *, out=None)", "fm")(_logcumsumexp)
