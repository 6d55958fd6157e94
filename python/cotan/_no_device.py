"""What torch.cuda, torch.xpu and the like answer on a machine that has no such device: programs ask before
they use one, so all that asks, waits, seeds or frees works, and what needs the device says that there is none."""
import contextlib
import time

from . import _core


class _Stream(contextlib.nullcontext):
    """A stream: computations are in the program's order, so there is nothing to wait for."""

    def __init__(self, device=None, priority=0, **options):
        super().__init__(self)
        self.device, self.priority, self.cuda_stream = device, priority, 0

    def synchronize(self):
        _core.eval()

    wait_event = wait_stream = lambda self, other: None

    def record_event(self, event=None):
        event = event or _Event()
        event.record(self)
        return event

    def query(self):
        return True


class _Event:
    """A point in time: record() computes what was recorded so far."""

    def __init__(self, enable_timing=False, blocking=False, interprocess=False):
        self._at = None

    def record(self, stream=None):
        _core.eval()
        self._at = time.perf_counter()

    def elapsed_time(self, end_event):
        """Returns the milliseconds until another event."""
        if self._at is None or end_event._at is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event._at - self._at) * 1000

    def query(self):
        return True

    def synchronize(self):
        """Does nothing: record has waited."""

    wait = synchronize


def _type_class(module, name):
    def refuse(cls, *args, **options):
        raise TypeError(f"type {module}.{name} not available. Torch not compiled with {module.split('.')[1].upper()} enabled.")

    return type(name, (), {"__new__": refuse, "__module__": module})


def answers(kind):
    """Returns the names of the module torch.KIND."""
    sentence = f"Torch not compiled with {kind.upper()} enabled"

    def refuse(*args, **options):
        raise AssertionError(sentence)

    def constant(value):
        return lambda *args, **options: value() if callable(value) else value

    class device(contextlib.nullcontext):
        """Chooses a device within a block; none (-1, None) can be chosen."""

        def __init__(self, device):
            if device is not None and device != -1:
                refuse()
            super().__init__(self)

    def set_device(device):
        if not isinstance(device, int) or device >= 0:
            refuse()

    names = dict.fromkeys("is_available is_initialized is_bf16_supported is_tf32_supported is_current_stream_capturing "
                          "_is_compiled _is_in_bad_fork can_device_access_peer".split(), constant(False))
    names.update(dict.fromkeys("device_count memory_allocated max_memory_allocated memory_reserved max_memory_reserved "
                               "memory_cached "
                               "max_memory_cached _device_count_nvml driver_allocated_memory current_allocated_memory "
                               "recommended_max_memory".split(), constant(0)))
    names.update(dict.fromkeys("empty_cache init manual_seed manual_seed_all seed seed_all reset_peak_memory_stats "
                               "reset_max_memory_allocated reset_max_memory_cached reset_accumulated_memory_stats ipc_collect "
                               "set_per_process_memory_fraction set_sync_debug_mode set_rng_state_all cudart "
                               "range_push range_pop mark".split(), constant(None)))
    names.update(dict.fromkeys("_lazy_init current_device get_device_name get_device_capability get_device_properties mem_get_info "
                               "get_rng_state set_rng_state initial_seed make_graphed_callables memory_snapshot "
                               "utilization temperature power_draw".split(), refuse))
    names.update({"synchronize": constant(_core.eval), "device": device, "set_device": set_device,
                  "device_of": constant(lambda: device(-1)),
                  "Stream": _Stream, "ExternalStream": _Stream, "Event": _Event, "current_stream": constant(_Stream),
                  "default_stream": constant(_Stream), "stream": constant(contextlib.nullcontext), "StreamContext": _Stream,
                  "set_stream": constant(None), "get_arch_list": constant(list), "get_gencode_flags": constant(""),
                  "get_rng_state_all": constant(list), "memory_stats": constant(dict), "memory_summary": constant(""),
                  "get_sync_debug_mode": constant(0), "range": constant(contextlib.nullcontext), "default_generators": (),
                  "has_half": False, "has_magma": False, "OutOfMemoryError": _core.OutOfMemoryError,
                  "DeferredCudaCallError": RuntimeError})
    names.update({name: type(name, (), {"__init__": refuse, "__module__": f"torch.{kind}"}) for name in (
        "CUDAGraph", "graph", "MemPool", "_CudaDeviceProperties")})
    names.update({name: _type_class(f"torch.{kind}", name) for name in (
        "FloatTensor DoubleTensor HalfTensor BFloat16Tensor LongTensor IntTensor ShortTensor CharTensor ByteTensor "
        "BoolTensor").split()})
    names["_initialized"] = False
    return names
