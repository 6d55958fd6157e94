"""torch.cuda.amp: the older names of torch.amp, for the device "cuda"."""
import functools
import warnings

from ..amp import autocast_mode, grad_scaler

custom_bwd = functools.partial(autocast_mode.custom_bwd, device_type="cuda")
custom_fwd = functools.partial(autocast_mode.custom_fwd, device_type="cuda")


class autocast(autocast_mode.autocast):
    def __init__(self, enabled=True, dtype=None, cache_enabled=True):
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(grad_scaler.GradScaler):
    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, enabled=True):
        if enabled:
            warnings.warn("torch.cuda.amp.GradScaler is enabled, but CUDA is not available. Disabling.", stacklevel=2)
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, False)
