"""Dynamic loss scaling: a factor keeps small float16 gradients from underflowing to 0; it is reduced when
they overflow."""
import math
import struct

from .. import _core
from .._core import ops
from .._grad import no_grad
from .._whole import whole

_READY, _UNSCALED, _STEPPED = range(3)


def _round_to_float32(number):
    """Rounds to float32, the dtype of a scale."""
    return struct.unpack("f", struct.pack("f", number))[0]


class GradScaler:
    """torch.amp.GradScaler: scale(loss).backward(), step(optimizer), update(); unscale_(optimizer) before
    gradients are clipped.

    A step whose gradients are not all finite is skipped, and the scale is multiplied by `backoff_factor`;
    after `growth_interval` successful steps in a row it is multiplied by `growth_factor`."""

    def __init__(self, device="cpu", init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000,
                 enabled=True):
        assert not enabled or growth_factor > 1.0, "The growth factor must be > 1.0."
        assert not enabled or backoff_factor < 1.0, "The backoff factor must be < 1.0."
        self._device, self._enabled, self._scale = device, enabled, _round_to_float32(init_scale)
        self._growth_factor, self._backoff_factor, self._growth_interval = growth_factor, backoff_factor, growth_interval
        self._growth_tracker, self._scaled = 0, False
        # For each optimizer, since the last update: its stage, and whether all gradients were finite.
        self._stages, self._found = {}, {}

    def scale(self, outputs):
        """Returns a tensor, or an iterable of tensors, times the scale."""
        if not self._enabled:
            return outputs
        self._scaled = True
        if isinstance(outputs, _core.Tensor):
            narrow = not outputs.shape and outputs.dtype in (_core.float16, _core.bfloat16)
            return (ops.cast(outputs, "float32") if narrow else outputs) * self._scale
        if not hasattr(outputs, "__iter__"):
            raise ValueError("outputs must be a Tensor or an iterable of Tensors")
        scaled = map(self.scale, outputs)
        return type(outputs)(scaled) if isinstance(outputs, (list, tuple)) else scaled

    def _check_scaled(self, function):
        assert self._scaled, (f"Attempted {function} but _scale is None.  This may indicate your script did not use "
                              "scaler.scale(loss or outputs) earlier in the iteration.")

    def unscale_(self, optimizer):
        """Divides the gradients of the optimizer's parameters by the scale, in place; once between two
        updates."""
        if not self._enabled:
            return
        self._check_scaled("unscale_")
        stage = self._stages.get(id(optimizer), _READY)
        if stage == _UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if stage == _STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        self._divide(optimizer, self._look(optimizer))

    def _look(self, optimizer):
        """Returns for each gradient of the optimizer whether it is finite."""
        grads = [param.grad for group in optimizer.param_groups for param in group["params"] if param.grad is not None]
        if any(grad.dtype == _core.float16 for grad in grads):
            raise ValueError("Attempting to unscale FP16 gradients.")
        with no_grad():
            return [ops.all(ops.is_finite(grad)) for grad in grads]

    @whole
    def _divide(self, optimizer, results):
        """Divides the gradients; returns their previous values."""
        factor, before = _round_to_float32(1.0 / self._scale), []
        with no_grad():
            for grad in [param.grad for group in optimizer.param_groups for param in group["params"]]:
                if grad is not None:
                    before.append((grad, _core._snapshot(grad)))
                    grad.mul_(factor)
        self._found[id(optimizer)], self._stages[id(optimizer)] = results, _UNSCALED
        return before

    def _is_finite(self, key):
        """True if all gradients of an optimizer are finite. It is read once, since that runs what is
        pending."""
        results = self._found[key] = self._read(self._found[key])
        return results

    def _read(self, results):
        if not isinstance(results, list):
            return results
        assert results, "No inf checks were recorded for this optimizer."
        together = results[0]
        for one in results[1:]:
            together = ops.and_(together, one)
        return bool(together)

    def step(self, optimizer, *args, **options):
        """Calls optimizer.step() with unscaled gradients and returns its result; returns None without calling
        it if a gradient is not finite."""
        if not self._enabled:
            return optimizer.step(*args, **options)
        if "closure" in options:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._check_scaled("step")
        if self._stages.get(id(optimizer)) == _STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        ready = self._stages.get(id(optimizer), _READY) == _READY
        finite = self._read(self._look(optimizer)) if ready else self._is_finite(id(optimizer))
        return self._step(optimizer, ready, finite, args, options)

    @whole
    def _step(self, optimizer, ready, finite, args, options):
        """Steps; if the step is interrupted, the division is undone as well."""
        before = self._divide(optimizer, finite) if ready else []
        try:
            result = optimizer.step(*args, **options) if finite else None
        except BaseException:
            if ready:
                with no_grad():
                    for grad, value in before:
                        grad.copy_(value)
                del self._stages[id(optimizer)], self._found[id(optimizer)]
            raise
        self._stages[id(optimizer)] = _STEPPED
        return result

    def update(self, new_scale=None):
        """Sets the scale for the next iteration, by what the steps since the last update found, or to a new
        value."""
        if not self._enabled:
            return
        self._check_scaled("update")
        if new_scale is not None:
            new_scale, finite = _round_to_float32(float(new_scale)), True
        else:
            assert self._found, "No inf checks were recorded prior to update."
            finite = all([self._is_finite(key) for key in self._found])
        self._update(new_scale, finite)

    @whole
    def _update(self, new_scale, finite):
        if new_scale is not None:
            self._scale = new_scale
        else:
            if finite:
                self._growth_tracker += 1
                if self._growth_tracker == self._growth_interval:
                    self._grow()
            else:
                self._scale, self._growth_tracker = _round_to_float32(self._scale * self._backoff_factor), 0
        self._stages, self._found = {}, {}

    def _grow(self):
        self._growth_tracker = 0
        larger = _round_to_float32(self._scale * self._growth_factor)
        if math.isfinite(larger):
            self._scale = larger

    def get_scale(self):
        return self._scale if self._enabled else 1.0

    def get_growth_factor(self):
        return self._growth_factor

    def set_growth_factor(self, new_factor):
        self._growth_factor = new_factor

    def get_backoff_factor(self):
        return self._backoff_factor

    def set_backoff_factor(self, new_factor):
        self._backoff_factor = new_factor

    def get_growth_interval(self):
        return self._growth_interval

    def set_growth_interval(self, new_interval):
        self._growth_interval = new_interval

    def is_enabled(self):
        return self._enabled

    def state_dict(self):
        if not self._enabled:
            return {}
        return {"scale": self._scale, "growth_factor": self._growth_factor, "backoff_factor": self._backoff_factor,
                "growth_interval": self._growth_interval, "_growth_tracker": self._growth_tracker}

    def load_state_dict(self, state_dict):
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("The source state dict is empty, possibly because it was saved from a disabled instance of "
                               "GradScaler.")
        self._scale, self._growth_factor = state_dict["scale"], state_dict["growth_factor"]
        self._backoff_factor, self._growth_interval = state_dict["backoff_factor"], state_dict["growth_interval"]
        self._growth_tracker = state_dict["_growth_tracker"]
