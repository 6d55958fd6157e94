"""Checkpointing, by the names of torch.utils.checkpoint."""
import contextlib

from .._checkpoint import checkpoint_sequential
from .._checkpoint import checkpoint_values as checkpoint

__all__ = ["checkpoint", "checkpoint_sequential", "get_device_states", "noop_context_fn", "set_checkpoint_debug_enabled", "set_checkpoint_early_stop",
           "set_device_states"]


def get_device_states(*args):
    """Returns the devices of the arguments that have random states of their own, and these: there are none."""
    return [], []


def set_device_states(devices, states, *, device_type=None):
    """Does nothing: the process's state is all there is."""


def noop_context_fn():
    return contextlib.nullcontext(), contextlib.nullcontext()


def set_checkpoint_early_stop(enable):
    """Returns a context manager that changes nothing: what is not needed is not recomputed."""
    return contextlib.nullcontext()


set_checkpoint_debug_enabled = set_checkpoint_early_stop
