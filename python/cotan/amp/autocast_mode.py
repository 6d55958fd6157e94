"""Autocasting: products are recorded in 16 bits, by PyTorch's lists, which are part of the ops' definitions
(docs/mixed-precision.md)."""
import functools
import warnings

from .. import _core
from .._decorated import decorate_with_context
from .._whole import whole

_DEFAULTS = {"cpu": _core.bfloat16, "opencl": _core.float16}
_LOW = (_core.bfloat16, _core.float16)


def is_autocast_available(device_type):
    return device_type in _DEFAULTS


def get_autocast_dtype(device_type="cpu"):
    """Returns the dtype of products if autocasting is on, else the device's default."""
    current = _core._autocast_dtype()
    return current if current in _LOW else _DEFAULTS.get(device_type, _core.float16)


def is_autocast_enabled(device_type=None):
    return _core._autocast_dtype() in _LOW


class autocast:
    """with autocast("cpu", dtype=cotan.bfloat16): products recorded inside, in this thread, take floats in
    that dtype; ops whose values are large, or sums of many, take them in float32. Can be used as a decorator.
    Equal casts of a step are computed once, with or without `cache_enabled`."""

    def __init__(self, device_type, dtype=None, enabled=True, cache_enabled=None):
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        self.device = device_type
        if device_type == "cuda" and enabled:
            warnings.warn("User provided device_type of 'cuda', but CUDA is not available. Disabling", stacklevel=2)
            enabled = False
        elif device_type != "cuda" and not is_autocast_available(device_type):
            raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
        self.fast_dtype = _core.dtype(dtype) if dtype is not None else _DEFAULTS.get(device_type, _core.float16)
        if enabled and self.fast_dtype not in _LOW:
            warnings.warn(f"In {device_type.upper()} autocast, but the target dtype is not supported. Disabling autocast.\n"
                          f"{device_type.upper()} Autocast only supports dtype of cotan.bfloat16, cotan.float16 currently.",
                          stacklevel=2)
            enabled = False
        self._enabled = bool(enabled)
        self._before = []

    @whole
    def __enter__(self):
        self._before.append(_core._autocast(self.fast_dtype if self._enabled else _core.float32))
        return self

    @whole
    def __exit__(self, *exception):
        _core._autocast(self._before.pop())

    def __call__(self, function):
        return decorate_with_context(function, lambda: autocast(self.device, self.fast_dtype, self._enabled))


def _cast(value, dtype):
    """Casts all floats in the value, except float64, to the dtype."""
    if isinstance(value, _core.Tensor):
        return _core.ops.cast(value, dtype) if value.dtype in (*_LOW, _core.float32) and value.dtype != dtype else value
    if isinstance(value, dict):
        return {key: _cast(one, dtype) for key, one in value.items()}
    return type(value)(_cast(one, dtype) for one in value) if isinstance(value, (list, tuple)) else value


def custom_fwd(fwd=None, *, device_type, cast_inputs=None):
    """Decorates forward of an autograd.Function: with `cast_inputs`, if autocasting is on, forward gets its
    floats in that dtype and runs without autocasting."""
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def inside(ctx, *args, **options):
        ctx._dtype, ctx._fwd_used_autocast = get_autocast_dtype(device_type), is_autocast_enabled()
        if cast_inputs is None or not ctx._fwd_used_autocast:
            return fwd(ctx, *args, **options)
        ctx._fwd_used_autocast = False
        with autocast(device_type, enabled=False):
            return fwd(ctx, *_cast(args, cast_inputs), **_cast(options, cast_inputs))

    return inside


def custom_bwd(bwd=None, *, device_type):
    """Decorates backward of an autograd.Function: it runs with the autocasting with which its forward,
    decorated with custom_fwd, ran."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def inside(ctx, *args):
        with autocast(device_type, dtype=ctx._dtype, enabled=ctx._fwd_used_autocast):
            return bwd(ctx, *args)

    return inside
