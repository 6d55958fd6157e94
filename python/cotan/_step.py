"""Where a training step ends, and what is recorded without a history."""
from . import _core


def run():
    """Everything that is pending runs as one plan."""
    _core.eval()


class without_history:
    """with without_history(): nothing that is recorded inside has gradients."""

    def __enter__(self):
        self.before = _core._set_grad_enabled(False)

    def __exit__(self, *exception):
        _core._set_grad_enabled(self.before)


def variable(value):
    """The value as a tensor that plans update in its place, without a history: an optimizer's state."""
    tensor = _core.Tensor(value, requires_grad=True)
    tensor.requires_grad_(False)
    return tensor
