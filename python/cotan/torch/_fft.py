"""Discrete Fourier transforms, torch.fft.*, and short-time ones, stft and istft."""
from .. import _core, _dtypes, fft as _fft
from .._core import ops
from .._creation import finish_new_tensor
from .._dtypes import COMPLEX, FLOATS
from .._elementwise import view_as_real
from ._define import define

_ONE, _TWO, _ALL = "n: int=None, dim: int=-1", "s: int|ints=None, dim: int|ints=(-2, -1)", "s: int|ints=None, dim: int|ints=None"
_MUST_BE_REAL = {"fft": False, "ifft": False, "rfft": True, "irfft": False, "hfft": False, "ihfft": True}


def _to_floats(x, name, real=False):
    """Returns x as float32, float64 or complex numbers; integers become floats of the default dtype."""
    if real and x.dtype in COMPLEX:
        raise RuntimeError(f"{name}: {x.dtype.name} is given, it expects real numbers")
    if x.dtype not in FLOATS + COMPLEX:
        return ops.cast(x, _dtypes.get_default_dtype())
    if x.dtype in FLOATS and x.dtype not in (_core.float32, _core.float64):
        raise RuntimeError(f"{name}: transforms are of float32 and float64, not of {x.dtype.name}\n  hint: .float()")
    return x


def _call(transform, *args):
    try:
        return transform(*args)
    except ValueError as error:  # of the array API; PyTorch raises another one
        raise RuntimeError(*error.args) from None


def _define_one_axis(name, real):
    transform = getattr(_fft, name)

    @define(f"fft.{name}(input, {_ONE}, norm: str=None, *, out=None)")
    def function(input, n, dim, norm):
        return _call(transform, _to_floats(input, name, real), n, dim, norm)


def _transform_axes(base, input, s, dim, norm, name):
    """Returns the transform `base` of several axes; those of Hermitian numbers are of the conjugate, in the other
    direction."""
    x = _to_floats(input, name, _MUST_BE_REAL[base])
    s = (s,) if isinstance(s, int) else s
    if s is not None and len(s) > x.ndim:
        raise RuntimeError(f"{name}: there are {len(s)} sizes for a tensor of {x.ndim} axes")
    if isinstance(dim, int):
        dim = (dim,)
    elif dim is None:
        dim = tuple(range(-len(s), 0)) if s is not None else tuple(range(x.ndim))
    if not dim and base not in ("fft", "ifft"):
        raise RuntimeError(f"{name}: it must transform at least one axis")
    if base == "hfft":
        return _call(_fft.irfftn, ops.conj(x) if x.dtype in COMPLEX else x, s, dim, _fft.OTHER.get(norm, norm))
    if base == "ihfft":
        return ops.conj(_call(_fft.rfftn, x, s, dim, _fft.OTHER.get(norm, norm)))
    return _call(getattr(_fft, base + "n"), x, s, dim, norm)


def _define_more_axes(base):
    for suffix, parameters in (("2", _TWO), ("n", _ALL)):
        @define(f"fft.{base}{suffix}(input, {parameters}, norm: str=None, *, out=None)")
        def function(input, s, dim, norm, name=base + suffix):
            return _transform_axes(base, input, s, dim, norm, name)


for _name, _real in _MUST_BE_REAL.items():
    _define_one_axis(_name, _real)
    _define_more_axes(_name)


def _define_frequencies(name, one_sided):
    @define(f"fft.{name}(n: int, d: float=1.0, *, out=None, dtype: dtype=None, layout=None, device=None, "
            "requires_grad: bool=False, pin_memory: bool=False)")
    def function(n, d, dtype, layout, device, requires_grad, pin_memory):
        dtype = _dtypes.get_default_dtype() if dtype is None else _core.dtype(dtype)
        if dtype not in FLOATS + COMPLEX:
            raise RuntimeError(f"{name}: the dtype is {dtype.name}, frequencies are floats or complex numbers")
        k = ops.iota(_core.float64, (n // 2 + 1 if one_sided else n,), 0)
        k = k if one_sided else k - (k >= (n + 1) // 2) * n
        return finish_new_tensor(ops.cast(ops.div(k, n * d), dtype), requires_grad, device)


_define_frequencies("fftfreq", False)
_define_frequencies("rfftfreq", True)


@define("fft.fftshift(input, dim: int|ints=None)")
def fftshift(input, dim):
    """Returns the input with frequency 0 in the middle."""
    return _fft.fftshift(input, dim=dim)


@define("fft.ifftshift(input, dim: int|ints=None)")
def ifftshift(input, dim):
    """Returns the inverse of fftshift."""
    return _fft.ifftshift(input, dim=dim)


# ---------------------------------------------------------------------------------- short-time transforms

def _padded_window(name, window, win_length, n_fft, like):
    """Returns the window (n_fft,), with zeros at both sides."""
    if not 0 < win_length <= n_fft:
        raise RuntimeError(f"{name}: win_length is {win_length}, it must be from 1 to n_fft, {n_fft}")
    if window is None:
        window = _core.full((win_length,), 1, _dtypes.real_dtype(like.dtype))
    if tuple(window.shape) != (win_length,):
        raise RuntimeError(f"{name}: the window is {tuple(window.shape)}, it must be ({win_length},), as win_length says")
    left = (n_fft - win_length) // 2
    return ops.pad(window, ops.cast(_core.asarray(0), window.dtype), low=[left], high=[n_fft - win_length - left])


def _lengths(name, n_fft, hop_length, win_length):
    hop_length = n_fft // 4 if hop_length is None else hop_length
    if hop_length <= 0:
        raise RuntimeError(f"{name}: hop_length is {hop_length}, it must be above 0")
    return hop_length, n_fft if win_length is None else win_length


@define("stft(input, n_fft: int, hop_length: int=None, win_length: int=None, window: Tensor=None, center: bool=True, "
        "pad_mode: str='reflect', normalized: bool=False, onesided: bool=None, return_complex: bool=None, "
        "align_to_window: bool=None)", forms="fm")
def stft(input, n_fft, hop_length, win_length, window, center, pad_mode, normalized, onesided, return_complex, align_to_window):
    """Returns the transforms (B, frequencies, frames) of windows of a signal (B, L) or (L,)."""
    from ..nn.functional import pad
    is_complex = input.dtype in COMPLEX or window is not None and window.dtype in COMPLEX
    if return_complex is None and not is_complex:
        raise RuntimeError("stft: return_complex must be given for real inputs")
    if center and align_to_window is not None:
        raise RuntimeError("stft: align_to_window is given, which is for center=False only")
    if input.ndim not in (1, 2) or input.dtype not in FLOATS + COMPLEX:
        raise RuntimeError(f"stft: the input is {tuple(input.shape)} of {input.dtype.name}, it must be floats or complex numbers, "
                           "(B, L) or (L,)")
    onesided = not is_complex if onesided is None else onesided
    if onesided and is_complex:
        raise RuntimeError("stft: onesided is True, the transform of complex numbers has two sides")
    hop_length, win_length = _lengths("stft", n_fft, hop_length, win_length)
    x = input[None] if input.ndim == 1 else input  # (B, L)
    if center:
        x = pad(x[None], (n_fft // 2, n_fft // 2), pad_mode)[0]
    elif align_to_window:  # the window begins at the signal's first element
        left = (n_fft - win_length) // 2
        x = pad(x, (left, n_fft - win_length - left))
    if not 0 < n_fft <= x.shape[1]:
        raise RuntimeError(f"stft: n_fft is {n_fft}, it must be from 1 to {x.shape[1]}, the signal's length")
    frames = x.unfold(1, n_fft, hop_length)  # (B, frames, n_fft)
    frames = frames * _padded_window("stft", window, win_length, n_fft, x)
    transform = _fft.rfft if onesided else _fft.fft
    result = ops.permute(transform(frames, norm="ortho" if normalized else None), (0, 2, 1))
    result = result[0] if input.ndim == 1 else result
    return view_as_real(result) if return_complex is False else result


def _overlap_add(x, hop_length):
    """Returns the sums (B, L) of frames (B, frames, n) that begin hop_length elements apart."""
    _, count, n = x.shape
    at = ops.iota(_core.int64, (count, n), 0) * hop_length + ops.iota(_core.int64, (count, n), 1)
    into = ops.cast(_core.full((x.shape[0], n + hop_length * (count - 1)), 0), x.dtype)
    return ops.scatter_add(into, ops.reshape(at, (-1,)), ops.reshape(x, (x.shape[0], count * n)), axis=1)


@define("istft(input, n_fft: int, hop_length: int=None, win_length: int=None, window: Tensor=None, center: bool=True, "
        "normalized: bool=False, onesided: bool=None, length: int=None, return_complex: bool=False)", forms="fm")
def istft(input, n_fft, hop_length, win_length, window, center, normalized, onesided, length, return_complex):
    """Returns the signal (B, L) of transforms (B, frequencies, frames): the least-squares inverse of stft."""
    if input.dtype not in COMPLEX or input.ndim not in (2, 3) or not input.numel():
        raise RuntimeError(f"istft: the input is {tuple(input.shape)} of {input.dtype.name}, it must be complex, "
                           "(B, frequencies, frames) or (frequencies, frames), and not empty")
    hop_length, win_length = _lengths("istft", n_fft, hop_length, win_length)
    x = ops.permute(input[None] if input.ndim == 2 else input, (0, 2, 1))  # (B, frames, frequencies)
    onesided = x.shape[2] != n_fft if onesided is None else onesided
    if x.shape[2] != (n_fft // 2 + 1 if onesided else n_fft):
        raise RuntimeError(f"istft: there are {x.shape[2]} frequencies, it expects {n_fft // 2 + 1 if onesided else n_fft} of "
                           f"n_fft {n_fft}")
    if onesided and return_complex:
        raise RuntimeError("istft: return_complex is True, it needs onesided=False")
    if window is not None and window.dtype in COMPLEX and not return_complex:
        raise RuntimeError("istft: the window is complex, it needs return_complex=True")
    window, norm = _padded_window("istft", window, win_length, n_fft, x), "ortho" if normalized else None
    y = _fft.ifft(x, norm=norm) if return_complex else _fft.irfft(x[:, :, :n_fft // 2 + 1], n_fft, norm=norm)
    y = _overlap_add(y * window, hop_length)
    envelope = _overlap_add(ops.expand(ops.square(window), (1, x.shape[1], n_fft)), hop_length)
    start, full = n_fft // 2 if center else 0, y.shape[1]
    end = start + length if length is not None else full - start
    y, envelope = y[:, start:end], envelope[:, start:end]
    if not _core._tracing() and bool((ops.abs(envelope) < 1e-11).any()):
        raise RuntimeError("istft: the windows do not overlap everywhere: the sum of their squares is 0 at some elements")
    y = y / envelope
    if end > full:
        y = ops.pad(y, ops.cast(_core.asarray(0), y.dtype), low=[0, 0], high=[0, end - full])
    return y[0] if input.ndim == 2 else y
