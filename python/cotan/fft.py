"""Discrete Fourier transforms, by the names of the array API standard, NumPy and PyTorch.

`n` or `s` cuts or zero-pads first; `norm` determines where the result is divided by the number of elements:
"backward" in the inverse, "forward" in the forward transform, "ortho" by its root in both. PyTorch's `dim` is
`axis` and `axes`.
"""
import math

from . import _core
from ._core import ops
from ._creation import arange
from ._dtypes import COMPLEX, FLOATS
from ._elementwise import strong
from ._shaping import concat, flip, normalize_axis, roll

__all__ = ["fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft", "irfft",
           "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn"]


def _floats(x):
    x = strong(x)
    if x.dtype in COMPLEX or x.dtype in (_core.float32, _core.float64):
        return x
    return ops.cast(x, _core.float32)


def _real(x, name):
    x = _floats(x)
    if x.dtype in COMPLEX:
        raise TypeError(f"{name}: x is {x.dtype}, and must be real")
    return x


def _resize_axis(x, axis, n, name):
    """Returns x with n elements along an axis: cut, or padded with zeros at the end."""
    if n is None:
        return x
    if n < 1:
        raise ValueError(f"{name}: {n} elements are asked for, there must be 1 or more")
    if n <= x.shape[axis]:
        return x[(slice(None),) * axis + (slice(n),)]
    high = [0] * x.ndim
    high[axis] = n - x.shape[axis]
    return ops.pad(x, ops.cast(_core.asarray(0), x.dtype), low=[0] * x.ndim, high=high)


def _scale_factor(norm, count, inverse, name):
    """Returns the factor for ops.fft, which itself divides by the count in the inverse."""
    if norm not in (None, "backward", "forward", "ortho"):
        raise ValueError(f'{name}: norm is {norm!r}, it must be "backward", "forward" or "ortho"')
    factor = {"ortho": math.sqrt(count), "forward": count}.get(norm, 1)
    return factor if inverse else 1 / factor


def _transform(x, axes, inverse, norm, name):
    """Returns the transform over axes, scaled."""
    for axis in axes:
        if x.shape[axis] == 0:
            raise ValueError(f"{name}: axis {axis} has no elements")
    factor = _scale_factor(norm, math.prod(x.shape[axis] for axis in axes), inverse, name)
    y = ops.fft(x, axes=list(axes), inverse=inverse) if axes else ops.cast(x, _complex_of(x.dtype))
    return y if factor == 1 else y * factor


def _complex_of(dtype):
    return _core.complex64 if dtype in (_core.float32, _core.complex64) else _core.complex128


def _parse_axes(x, s, axes, name):
    """Returns the axes, counted from the front, and their sizes, None where they are not changed."""
    if axes is None:
        axes = range(x.ndim) if s is None else range(x.ndim - len(s), x.ndim)
    elif hasattr(axes, "__index__"):
        axes = (axes,)
    axes = [normalize_axis(axis, x.ndim, name) for axis in axes]
    if len(set(axes)) != len(axes):
        raise ValueError(f"{name}: an axis appears twice in {tuple(axes)}")
    s = [None] * len(axes) if s is None else [None if n in (None, -1) else n for n in s]
    if len(s) != len(axes):
        raise ValueError(f"{name}: there are {len(s)} sizes for {len(axes)} axes")
    return axes, s


def _transform_axes(x, s, axes, norm, inverse, name):
    x = _floats(x)
    axes, s = _parse_axes(x, s, axes, name)
    for axis, n in zip(axes, s):
        x = _resize_axis(x, axis, n, name)
    return _transform(x, axes, inverse, norm, name)


def _one_axis(x, n, axis, dim, name):
    axis = normalize_axis(axis if dim is None else dim, x.ndim, name)
    return _resize_axis(x, axis, n, name), axis


def fft(x, /, n=None, axis=-1, norm="backward", *, dim=None):
    """Returns the transform along an axis: sums of x_j exp(-2 pi i j k / n), complex."""
    x, axis = _one_axis(_floats(x), n, axis, dim, "fft")
    return _transform(x, [axis], False, norm, "fft")


def ifft(x, /, n=None, axis=-1, norm="backward", *, dim=None):
    """Returns the inverse of fft."""
    x, axis = _one_axis(_floats(x), n, axis, dim, "ifft")
    return _transform(x, [axis], True, norm, "ifft")


def fftn(x, /, s=None, axes=None, norm="backward", *, dim=None):
    """Returns the transform along several axes (default: all, or the last ones, as many as `s` has sizes)."""
    return _transform_axes(x, s, axes if dim is None else dim, norm, False, "fftn")


def ifftn(x, /, s=None, axes=None, norm="backward", *, dim=None):
    """Returns the inverse of fftn."""
    return _transform_axes(x, s, axes if dim is None else dim, norm, True, "ifftn")


def fft2(x, /, s=None, axes=(-2, -1), norm="backward", *, dim=None):
    """Returns the transform along two axes."""
    return _transform_axes(x, s, axes if dim is None else dim, norm, False, "fft2")


def ifft2(x, /, s=None, axes=(-2, -1), norm="backward", *, dim=None):
    """Returns the inverse of fft2."""
    return _transform_axes(x, s, axes if dim is None else dim, norm, True, "ifft2")


def _half_spectrum(x, axis):
    """Returns the part of the transform of real numbers that is not redundant: n // 2 + 1 elements along an
    axis."""
    return x[(slice(None),) * axis + (slice(x.shape[axis] // 2 + 1),)]


def _full_spectrum(x, axis, n, name):
    """Returns the n elements of a transform of real numbers, of its first n // 2 + 1: the others are their
    conjugates, in reverse order."""
    n = 2 * (x.shape[axis] - 1) if n is None else n
    if n < 1:
        raise ValueError(f"{name}: {n} elements are asked for, there must be 1 or more")
    x = _resize_axis(x, axis, n // 2 + 1, name)
    again = x[(slice(None),) * axis + (slice(1, n - n // 2),)]
    return concat([x, flip(ops.conj(again), axis=axis)], axis=axis)


def _complex(x):
    x = _floats(x)
    return x if x.dtype in COMPLEX else ops.cast(x, _complex_of(x.dtype))


def rfft(x, /, n=None, axis=-1, norm="backward", *, dim=None):
    """Returns the first n // 2 + 1 elements of the transform of real numbers; the others are conjugates of
    these."""
    x, axis = _one_axis(_real(x, "rfft"), n, axis, dim, "rfft")
    return _half_spectrum(_transform(x, [axis], False, norm, "rfft"), axis)


def irfft(x, /, n=None, axis=-1, norm="backward", *, dim=None):
    """Returns the inverse of rfft, n real numbers (default: 2 (size - 1))."""
    x = _complex(x)
    axis = normalize_axis(axis if dim is None else dim, x.ndim, "irfft")
    return ops.real(_transform(_full_spectrum(x, axis, n, "irfft"), [axis], True, norm, "irfft"))


def rfftn(x, /, s=None, axes=None, norm="backward", *, dim=None):
    """Returns the transform of real numbers along several axes; the last of these is halved."""
    x = _real(x, "rfftn")
    axes, s = _parse_axes(x, s, axes if dim is None else dim, "rfftn")
    for axis, n in zip(axes, s):
        x = _resize_axis(x, axis, n, "rfftn")
    return _half_spectrum(_transform(x, axes, False, norm, "rfftn"), axes[-1])


def irfftn(x, /, s=None, axes=None, norm="backward", *, dim=None):
    """Returns the inverse of rfftn, real."""
    x = _complex(x)
    axes, s = _parse_axes(x, s, axes if dim is None else dim, "irfftn")
    for axis, n in zip(axes[:-1], s):
        x = _resize_axis(x, axis, n, "irfftn")
    x = _transform(x, axes[:-1], True, norm, "irfftn")
    return ops.real(_transform(_full_spectrum(x, axes[-1], s[-1], "irfftn"), axes[-1:], True, norm, "irfftn"))


def rfft2(x, /, s=None, axes=(-2, -1), norm="backward", *, dim=None):
    """Returns rfftn along two axes."""
    return rfftn(x, s, axes if dim is None else dim, norm)


def irfft2(x, /, s=None, axes=(-2, -1), norm="backward", *, dim=None):
    """Returns irfftn along two axes."""
    return irfftn(x, s, axes if dim is None else dim, norm)


# The norm of the transform in the other direction.
OTHER = {None: "forward", "backward": "forward", "forward": "backward"}


def hfft(x, /, n=None, axis=-1, norm="backward", *, dim=None):
    """Returns the transform, n real numbers, of numbers whose second half is omitted, since it is conjugate
    to the first."""
    return irfft(ops.conj(_complex(x)), n, axis, OTHER.get(norm, norm), dim=dim)


def ihfft(x, /, n=None, axis=-1, norm="backward", *, dim=None):
    """Returns the inverse of hfft: the first n // 2 + 1 elements."""
    return ops.conj(rfft(_real(x, "ihfft"), n, axis, OTHER.get(norm, norm), dim=dim))


def _frequencies(k, n, d, dtype):
    dtype = _core.float32 if dtype is None else dtype
    if dtype not in FLOATS:
        raise TypeError(f"the frequencies are {dtype}, and must be floats")
    return ops.cast(ops.cast(k, _core.float64) / (n * d), dtype)


def _count(n, name):
    if n < 1:
        raise ValueError(f"{name}: n is {n}, it must be 1 or more")


def fftfreq(n, /, *, d=1.0, dtype=None, device=None):
    """Returns the frequencies (n,) of fft's elements, for samples at distance d: 0, 1 ..., then the negative
    ones, divided by n d."""
    _count(n, "fftfreq")
    k = concat([arange((n + 1) // 2), arange(-(n // 2), 0)]) if n > 1 else arange(1)
    return _frequencies(k, n, d, dtype)


def rfftfreq(n, /, *, d=1.0, dtype=None, device=None):
    """Returns the frequencies (n // 2 + 1,) of rfft's elements."""
    _count(n, "rfftfreq")
    return _frequencies(arange(n // 2 + 1), n, d, dtype)


def _shifted(x, axes, sign, name):
    x = strong(x)
    axes, _ = _parse_axes(x, None, axes, name)
    return roll(x, [sign * (x.shape[axis] // 2) for axis in axes], axis=axes)


def fftshift(x, /, *, axes=None, dim=None):
    """Returns x with frequency 0 in the middle."""
    return _shifted(x, axes if dim is None else dim, 1, "fftshift")


def ifftshift(x, /, *, axes=None, dim=None):
    """Returns the inverse of fftshift."""
    return _shifted(x, axes if dim is None else dim, -1, "ifftshift")
