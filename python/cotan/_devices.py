"""Tensors that move to other devices and stay the same objects."""
from . import _core

moves = 0  # so far: who keeps something beside a parameter looks where that lies when this has changed


def device_name(device):
    return f"cuda:{device}" if isinstance(device, int) else str(device)


def move(tensor, device):
    """The tensor itself, and its gradient, to the device of this name."""
    global moves
    if tensor._place() != device:
        tensor._move(device)
        moves += 1
    grad = tensor.grad
    if grad is not None and grad._place() != device:
        tensor.grad = grad._to(device)


def canonical(device):
    """The name as a tensor's place has it. There is no such device: an error."""
    return _core.ops.iota(_core.int32, (1,), 0)._to(device_name(device))._place()
