"""Moves tensors between devices; they stay the same objects."""
import threading

from . import _core

# The number of moves so far. Code that stores something per parameter checks the parameter's device again
# when this has changed.
move_count = 0


class _DefaultDevice(threading.local):
    """The devices on which this thread makes tensors: the last of these names, None for that of set_device."""

    def __init__(self):
        self.names = [None]


default_device = _DefaultDevice()


def device_name(device):
    return f"cuda:{device}" if isinstance(device, int) else str(device)


def move_in_place(tensor, device):
    """Moves the tensor itself, and its gradient, to the device of this name."""
    global move_count
    if tensor._device_name() != device:
        tensor._move(device)
        move_count += 1
    grad = tensor.grad
    if grad is not None and grad._device_name() != device:
        tensor.grad = grad._to(device)


def canonical_device_name(device):
    """Returns the name as a tensor's device reports it. Raises an error if there is no such device."""
    return _core.ops.iota(_core.int32, (1,), 0)._to(device_name(device))._device_name()
