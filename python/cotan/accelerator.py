"""torch.accelerator's queries: there is no accelerator."""
from . import _core


def is_available():
    return False


def device_count():
    return 0


def current_accelerator(check_available=False):
    return None


def _refuse(*args):
    raise RuntimeError("Cannot access accelerator device when none is available.")


current_device_index = current_device_idx = set_device_index = set_device_idx = current_stream = set_stream = device_index = _refuse


def synchronize(device=None):
    """Computes what was recorded so far."""
    _core.eval()


def empty_cache():
    """Does nothing: there is no cache."""


def max_memory_allocated(device=None):
    return 0


memory_allocated = memory_reserved = max_memory_reserved = max_memory_allocated
reset_peak_memory_stats = reset_accumulated_memory_stats = lambda device=None: None
