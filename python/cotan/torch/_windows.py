"""Window functions: torch.signal.windows.*, and hann_window and the other ones of the top level."""
import math

from .. import _core, _dtypes
from .._core import ops
from .._creation import finish_new_tensor
from ._define import define

_OPTIONS = "dtype: dtype=None, layout=None, device=None, requires_grad: bool=False"


def _finish_window(name, values, M, dtype, layout, device, requires_grad, error=ValueError):
    """Returns the window of values(k), for the indices k in float64; without indices it is empty."""
    dtype = _dtypes.get_default_dtype() if dtype is None else _core.dtype(dtype)
    if M < 0:
        raise error(f"{name}: the length is {M}, it must not be negative")
    if layout not in (None, "strided"):
        raise ValueError(f"{name}: the layout is {layout}, windows are strided")
    return finish_new_tensor(ops.cast(values(ops.iota(_core.float64, (M,), 0)), dtype), requires_grad, device)


def _define_window(name, values, parameters=""):
    """Defines signal.windows.NAME. values(k, span, M, *parameters) gives its numbers; the window is symmetric over
    `span` + 1 elements, and has the first M of them."""
    @define(f"signal.windows.{name}(M: int, *, {parameters}{', ' if parameters else ''}sym: bool=True, {_OPTIONS})")
    def window(M, *rest):
        *own, sym, dtype, layout, device, requires_grad = rest
        if dtype is not None and _core.dtype(dtype) not in (_core.float32, _core.float64):
            raise ValueError(f"{name}: the dtype is {_core.dtype(dtype).name}, windows are float32 or float64")
        span = M - 1 if sym else M
        return _finish_window(name, lambda k: values(k, span, M, *own), M, dtype, layout, device, requires_grad)


def _cosine_sum(k, span, M, weights):
    if M <= 1:
        return k + 1
    if not weights:
        raise ValueError("general_cosine: the coefficients are empty")
    return sum((ops.cos(k * (2 * math.pi * i / span)) * ((-1) ** i * weight) for i, weight in enumerate(weights)), start=k * 0)


def _bartlett(k, span, M):
    return 1 - abs(k * (2 / span) - 1) if M > 1 else k + 1


def _check_positive(name, what, number):
    if number <= 0:
        raise ValueError(f"{name}: {what} is {number}, it must be above 0")


def _cosine(k, span, M):
    return ops.sin((k + 0.5) * (math.pi / (span + 1 if M > 1 else M or 1)))


def _exponential(k, span, M, center, tau):
    _check_positive("exponential", "tau", tau)
    if span == M - 1 and center is not None:
        raise ValueError("exponential: the center is given, which is for sym=False only")
    return ops.exp(-abs(k - ((span if M > 1 else M - 1) / 2 if center is None else center)) / tau)


def _gaussian(k, span, M, std):
    _check_positive("gaussian", "std", std)
    return ops.exp(-ops.square((k - (span if M > 1 else M - 1) / 2) / (std * math.sqrt(2))))


def _bessel_i0(square, largest):
    """Returns the modified Bessel function of order 0 of the root of 4 `square`, which is at most `largest`: its
    power series, whose terms are positive."""
    total = term = square * 0 + 1
    for i in range(1, int(1.4 * largest) + 25):
        term = term * square / (i * i)
        total = total + term
    return total


def _kaiser(k, span, M, beta):
    if beta < 0:
        raise ValueError(f"kaiser: beta is {beta}, it must not be negative")
    if M <= 1:
        return k + 1
    square = ops.maximum(1 - ops.square(k * (2 / span) - 1), 0) * (beta * beta / 4)
    return _bessel_i0(square, beta) / _bessel_i0(_core.asarray(beta * beta / 4, dtype=_core.float64), beta)


def _with_weights(*weights):
    return lambda k, span, M: _cosine_sum(k, span, M, weights)


_define_window("bartlett", _bartlett)
_define_window("blackman", _with_weights(0.42, 0.5, 0.08))
_define_window("cosine", _cosine)
_define_window("exponential", _exponential, "center: float=None, tau: float=1.0")
_define_window("gaussian", _gaussian, "std: float=1.0")
_define_window("general_cosine", _cosine_sum, "a")
_define_window("general_hamming", lambda k, span, M, alpha: _cosine_sum(k, span, M, (alpha, 1 - alpha)), "alpha: float=0.54")
_define_window("hamming", _with_weights(0.54, 0.46))
_define_window("hann", _with_weights(0.5, 0.5))
_define_window("kaiser", _kaiser, "beta: float=12.0")
_define_window("nuttall", _with_weights(0.3635819, 0.4891775, 0.1365995, 0.0106411))


def _define_top_window(name, values, parameters=""):
    """Defines NAME_window, of any float dtype."""
    @define(f"{name}_window(window_length: int, periodic: bool=True, {parameters}{', ' if parameters else ''}*, {_OPTIONS}, "
            "pin_memory: bool=False, out=None)")
    def window(M, periodic, *rest):
        *own, dtype, layout, device, requires_grad, _ = rest
        if dtype is not None and _core.dtype(dtype) not in _dtypes.FLOATS:
            raise RuntimeError(f"{name}_window: the dtype is {_core.dtype(dtype).name}, windows are floats")
        span = M if periodic else M - 1
        return _finish_window(f"{name}_window", lambda k: values(k, span, M, *own), M, dtype, layout, device, requires_grad,
                              RuntimeError)


_define_top_window("hann", _with_weights(0.5, 0.5))
_define_top_window("hamming", lambda k, span, M, alpha, beta: _cosine_sum(k, span, M, (alpha, beta)),
                   "alpha: float=0.54, beta: float=0.46")
_define_top_window("blackman", _with_weights(0.42, 0.5, 0.08))
_define_top_window("bartlett", _bartlett)
_define_top_window("kaiser", _kaiser, "beta: float=12.0")
