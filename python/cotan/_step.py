"""Where a training step ends, and what lives from one to the next."""
from . import _core


def run():
    """Everything that is pending runs as one plan."""
    _core.eval()


def variable(value):
    """The value as a tensor that plans update in its place, without a history: an optimizer's state."""
    tensor = _core.Tensor(value, requires_grad=True)
    tensor.requires_grad_(False)
    return tensor
