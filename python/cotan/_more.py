"""NumPy's functions beyond the array API standard, made of other functions."""
import math

from . import _core
from ._core import ops
from ._dtypes import COMPLEX, result_type
from ._elementwise import scalar_of_dtype, lerp, strong
from ._paths import own_names as _own_names
from ._reductions import argmax, argmin, diff
from ._searching import nonzero, searchsorted, sort, take, take_along_axis, where
from ._shaping import broadcast_arrays, broadcast_shapes, concat, expand_dims, normalize_axis, ravel, split, stack
from .linalg import tensordot

# ------------------------------------------------------------------------------------------- products

def _promote(a, b):
    dtype = result_type(a, b)
    return ops.cast(strong(a), dtype), ops.cast(strong(b), dtype)


def dot(a, b):
    """Returns the sums of products over a's last axis and b's last but one, or its only one; for numbers,
    their product."""
    a, b = _promote(a, b)
    if not a.ndim or not b.ndim:
        return a * b
    if a.shape[-1] != b.shape[max(b.ndim - 2, 0)]:
        raise ValueError(f"dot: inner sizes differ: a is {tuple(a.shape)}, b is {tuple(b.shape)}")
    return tensordot(a, b, ([a.ndim - 1], [max(b.ndim - 2, 0)]))


def inner(a, b):
    """Returns the sums of products over the last axes."""
    a, b = _promote(a, b)
    return tensordot(a, b, ([a.ndim - 1], [b.ndim - 1])) if a.ndim and b.ndim else a * b


def vdot(a, b):
    """Returns the sum of all products, with the first factors conjugated."""
    a, b = _promote(a, b)
    return ops.vecdot(ravel(a), ravel(b))


def kron(a, b):
    """Returns the Kronecker product: each element of a times b, as blocks; the axes are aligned from the
    last."""
    a, b = _promote(a, b)
    rank = max(a.ndim, b.ndim)
    sizes = [(1,) * (rank - x.ndim) + tuple(x.shape) for x in (a, b)]
    a = ops.reshape(a, [n for size in sizes[0] for n in (size, 1)])
    b = ops.reshape(b, [n for size in sizes[1] for n in (1, size)])
    return ops.reshape(a * b, [m * n for m, n in zip(*sizes)])


def matvec(x1, x2, /):
    """Multiplies matrices (..., M, N) by vectors (..., N): (..., M)."""
    return (strong(x1) @ strong(x2)[..., None])[..., 0]


def vecmat(x1, x2, /):
    """Multiplies vectors (..., M), conjugated, by matrices (..., M, N): (..., N)."""
    x1 = strong(x1)
    x1 = ops.conj(x1) if x1.dtype in COMPLEX else x1
    return (x1[..., None, :] @ strong(x2))[..., 0, :]


def _window_indices(n, first, count):
    """Returns indices (count, n): row k begins at first + k."""
    return ops.iota(_core.int64, (count, n), 0) + ops.iota(_core.int64, (count, n), 1) + first


def convolve(a, v, mode="full"):
    """Returns the convolution of two vectors, (N,) and (M,): (N + M - 1,); mode "same" returns the middle
    max(N, M) elements, "valid" those for which the shorter vector lies fully within the other."""
    a, v = _promote(a, v)
    if a.ndim != 1 or v.ndim != 1:
        raise ValueError(f"convolve: the operands are {tuple(a.shape)} and {tuple(v.shape)}, they must have one axis each")
    if not a.numel() or not v.numel():
        raise ValueError("convolve: an operand has no elements")
    if mode not in ("full", "same", "valid"):
        raise ValueError(f'convolve: mode is {mode!r}, it must be "full", "same" or "valid"')
    a, v = (a, v) if a.numel() >= v.numel() else (v, a)
    n, m = a.numel(), v.numel()
    first, count = {"full": (0, n + m - 1), "same": ((m - 1) // 2, n), "valid": (m - 1, n - m + 1)}[mode]
    line = ops.pad(a, scalar_of_dtype(0, a.dtype), low=[m - 1], high=[m - 1])
    return ops.sum(take(line, _window_indices(m, first, count)) * ops.flip(v, (0,)), axes=[1])


def correlate(a, v, mode="valid"):
    """Returns the sums of a's elements, shifted, times v's conjugates; see convolve for the modes."""
    a, v = _promote(a, v)
    v = ops.conj(v) if v.dtype in COMPLEX else v
    if a.ndim == 1 and v.ndim == 1 and a.numel() < v.numel():  # the same sums, from the last to the first
        return ops.flip(convolve(ops.flip(a, (0,)), v, mode), (0,))
    return convolve(a, ops.flip(v, (0,)), mode)


def polyval(p, x):
    """Returns the polynomial with coefficients p, the highest power first, at x."""
    p, x = _promote(p, x)
    y = x * 0
    for i in range(p.shape[0]):
        y = y * x + p[i]
    return y


def vander(x, N=None, increasing=False):
    """Returns the powers of each element, (len(x), N): from N - 1 down to 0, or increasing."""
    x = strong(x)
    N = x.shape[0] if N is None else N
    columns = [ops.expand(scalar_of_dtype(1, x.dtype), x.shape)]
    while len(columns) < N:
        columns.append(columns[-1] * x)
    columns = columns[:N] if increasing else columns[:N][::-1]
    return stack(columns, axis=1) if columns else ops.cast(_core.full((x.shape[0], 0), 0), x.dtype)


def interp(x, xp, fp, left=None, right=None):
    """Returns the linear interpolation at x of the points (xp, fp), where xp increases; outside of them the
    values are left and right, by default the first and the last of fp."""
    x, xp = _promote(x, xp)
    fp = strong(fp)
    if xp.ndim != 1 or tuple(xp.shape) != tuple(fp.shape) or not xp.shape[0]:
        raise ValueError(f"interp: xp and fp must be vectors of one length, at least 1, they are {tuple(xp.shape)} and "
                         f"{tuple(fp.shape)}")
    last = xp.shape[0] - 1
    at = searchsorted(xp, x, side="right")
    low, high = ops.clamp(at - 1, 0, last), ops.clamp(at, 0, last)
    x0, x1, y0, y1 = take(xp, low), take(xp, high), take(fp, low), take(fp, high)
    part = (x - x0) / where(ops.equal(x1, x0), x1 * 0 + 1, x1 - x0)
    y = where(ops.equal(low, high), y0, lerp(y0, y1, part))
    y = where(ops.equal(x, x), y, x)
    y = y if left is None else where(ops.less(x, xp[0]), left, y)
    return y if right is None else where(ops.greater(x, xp[last]), right, y)


# ---------------------------------------------------------------------------------------------- NaN

def _replace_nan(x, number):
    x = strong(x)
    return where(ops.not_equal(x, x), number, x)


def nanargmax(x, axis=None, *, keepdims=False):
    """Returns the index of the largest element that is not NaN; 0 if there is none."""
    return argmax(_replace_nan(x, -math.inf), axis=axis, keepdims=keepdims)


def nanargmin(x, axis=None, *, keepdims=False):
    """Returns the index of the smallest element that is not NaN; 0 if there is none."""
    return argmin(_replace_nan(x, math.inf), axis=axis, keepdims=keepdims)


def nancumsum(x, axis=None):
    """Returns cumulative sums (None: of the flattened elements); NaN counts as 0."""
    x = _replace_nan(x, 0)
    return ops.cumsum(ravel(x), axis=0) if axis is None else ops.cumsum(x, axis=normalize_axis(axis, x.ndim, "nancumsum"))


def nancumprod(x, axis=None):
    """Returns cumulative products (None: of the flattened elements); NaN counts as 1."""
    x = _replace_nan(x, 1)
    return ops.cumprod(ravel(x), axis=0) if axis is None else ops.cumprod(x, axis=normalize_axis(axis, x.ndim, "nancumprod"))


def nanmedian(x, axis=None, *, keepdims=False):
    """Returns the median of the elements that are not NaN along an axis (None: of all); NaN if there is
    none."""
    x = strong(x)
    rank = x.ndim
    line, along = (ravel(x), 0) if axis is None else (x, normalize_axis(axis, rank, "nanmedian"))
    count = ops.sum(ops.cast(ops.equal(line, line), _core.int64), axes=[along], keepdims=True)
    line = sort(line, axis=along)  # NaN is sorted last
    low, high = (take_along_axis(line, ops.maximum(ops.floor_divide(count - k, 2), 0), axis=along) for k in (1, 0))
    middle = where(ops.equal(count, 0), math.nan, (low + high) / 2)
    if axis is None:
        return ops.reshape(middle, (1,) * rank if keepdims else ())
    return middle if keepdims else ops.reshape(middle, [n for a, n in enumerate(middle.shape) if a != along])


# ----------------------------------------------------------------------------------------- indexing

def append(arr, values, axis=None):
    """Appends values to arr along an axis (None: both flattened)."""
    arr, values = strong(arr), strong(values)
    return concat([ravel(arr), ravel(values)]) if axis is None else concat([arr, values], axis=axis)


def delete(arr, obj, axis=None):
    """Returns arr without the elements at the indices obj, a number, a list or a slice, along an axis (None:
    flattened)."""
    arr = strong(arr)
    arr, axis = (ravel(arr), 0) if axis is None else (arr, normalize_axis(axis, arr.ndim, "delete"))
    n = arr.shape[axis]
    if isinstance(obj, slice):
        gone = range(*obj.indices(n))
    else:
        gone = [obj] if hasattr(obj, "__index__") else list(obj)
    for at in gone:
        if not -n <= at < n:
            raise IndexError(f"delete: index {at} is out of bounds for axis {axis} with size {n}")
    gone = {at % n for at in gone}
    return take(arr, _core.asarray([at for at in range(n) if at not in gone], dtype=_core.int64), axis=axis)


def extract(condition, arr):
    """Returns the elements of arr where the condition holds, as a vector. The condition is evaluated."""
    return compress(ravel(strong(condition)), ravel(strong(arr)))


def compress(condition, a, axis=None):
    """Returns the slices of a along an axis (None: its flattened elements) where the condition holds. The
    condition is evaluated."""
    a, condition = strong(a), strong(condition)
    a, axis = (ravel(a), 0) if axis is None else (a, normalize_axis(axis, a.ndim, "compress"))
    if condition.ndim != 1:
        raise ValueError(f"compress: the condition is {tuple(condition.shape)}, it must have one axis")
    at = nonzero(condition)[0]
    if condition.shape[0] > a.shape[axis] and at.numel() and at[-1].item() >= a.shape[axis]:
        raise IndexError(f"compress: index {at[-1].item()} is out of bounds for axis {axis} with size {a.shape[axis]}")
    return take(a, at, axis=axis)


def choose(a, choices):
    """Returns for each element of a, the number of a choice, that choice's element at the same position; a
    number out of range means the nearest choice."""
    choices = [strong(choice) for choice in choices]
    dtype = result_type(*choices)
    a, *choices = broadcast_arrays(strong(a), *[ops.cast(choice, dtype) for choice in choices])
    at = ops.clamp(a, 0, len(choices) - 1)
    return take_along_axis(stack(choices), expand_dims(at, axis=0), axis=0)[0]


def ediff1d(ary, to_end=None, to_begin=None):
    """Returns the differences of successive elements, flattened, between other values."""
    parts = [to_begin, diff(ravel(strong(ary)), axis=0), to_end]
    dtype = parts[1].dtype
    return concat([ravel(ops.cast(strong(part), dtype)) for part in parts if part is not None])


def dsplit(ary, indices_or_sections):
    """Splits along axis 2."""
    if strong(ary).ndim < 3:
        raise ValueError(f"dsplit: the tensor has {strong(ary).ndim} axes, there must be 3 or more")
    return split(ary, indices_or_sections, axis=2)


def indices(dimensions, dtype=None):
    """Returns the indices of a grid: (axes, *dimensions), the row of each element first, then its column, and
    so on."""
    dtype, dimensions = _core.int64 if dtype is None else dtype, tuple(dimensions)
    return stack([ops.iota(dtype, dimensions, a) for a in range(len(dimensions))]) if dimensions else _core.full((0,), 0, dtype)


def copy(a):
    """Returns a tensor of the same values that shares nothing with a."""
    return strong(a).clone()


# --------------------------------------------------------------------------------------- predicates

def iscomplex(x):
    """True where the imaginary part is not 0."""
    x = strong(x)
    return ops.not_equal(ops.imag(x), 0) if x.dtype in COMPLEX else _core.full(x.shape, False, _core.bool)


def iscomplexobj(x):
    return strong(x).dtype in COMPLEX


def isrealobj(x):
    return not iscomplexobj(x)


def ndim(a):
    """Returns the number of axes."""
    return strong(a).ndim


def array_equiv(a1, a2):
    """True if all elements are equal after the shapes are broadcast."""
    a1, a2 = strong(a1), strong(a2)
    try:
        broadcast_shapes(a1.shape, a2.shape)
    except (RuntimeError, ValueError):
        return False
    return bool(ops.all(ops.equal(a1, a2)))


# ------------------------------------------------------------------------------------------- windows

def _cosine_window(M, dtype, weights):
    """Returns sums of cosines with whole periods over M samples."""
    dtype = _core.float32 if dtype is None else dtype
    if M < 2:
        return _core.full((max(M, 0),), 1, dtype)
    turn = ops.cast(ops.iota(_core.int64, (M,), 0), _core.float64) * (2 * math.pi / (M - 1))
    terms = [weight * ops.cos(turn * k) for k, weight in enumerate(weights)]
    return ops.cast(sum(terms[1:], terms[0]), dtype)


def hanning(M, *, dtype=None):
    """Returns the window 0.5 - 0.5 cos(2 pi n / (M - 1)), (M,)."""
    return _cosine_window(M, dtype, (0.5, -0.5))


def hamming(M, *, dtype=None):
    """Returns the window 0.54 - 0.46 cos(2 pi n / (M - 1)), (M,)."""
    return _cosine_window(M, dtype, (0.54, -0.46))


def blackman(M, *, dtype=None):
    """Returns the window 0.42 - 0.5 cos(2 pi n / (M - 1)) + 0.08 cos(4 pi n / (M - 1)), (M,)."""
    return _cosine_window(M, dtype, (0.42, -0.5, 0.08))


def bartlett(M, *, dtype=None):
    """Returns the triangular window, which rises from 0 to 1 and falls again, (M,)."""
    dtype = _core.float32 if dtype is None else dtype
    if M < 2:
        return _core.full((max(M, 0),), 1, dtype)
    n = ops.cast(ops.iota(_core.int64, (M,), 0), _core.float64) * (2 / (M - 1))
    return ops.cast(ops.minimum(n, 2 - n), dtype)


__all__ = _own_names(globals())
