"""The end of a training step, and the state that is kept between steps."""
from . import _core


def run_pending():
    """Runs everything that is pending as one plan."""
    _core.eval()


def make_state_variable(value):
    """Returns the value as a variable, which plans update in place, without a history: an optimizer's
    state."""
    tensor = _core.Tensor(value, requires_grad=True)
    tensor.requires_grad_(False)
    return tensor
