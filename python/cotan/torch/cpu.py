"""torch.cpu: the device that is always there."""
import contextlib

from .. import _core
from .._no_device import _Event as Event  # noqa: F401
from .._no_device import _Stream as Stream  # noqa: F401

__path__ = []


def is_available():
    return True


def is_initialized():
    return True


def device_count():
    return 1


def current_device():
    return "cpu"


def set_device(device):
    """Does nothing: there is one."""


def synchronize(device=None):
    """Computes what was recorded so far."""
    _core.eval()


def current_stream(device=None):
    return Stream()


def stream(stream):
    return contextlib.nullcontext(stream)


StreamContext = Stream
