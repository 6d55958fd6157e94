"""torch.xpu on a machine without such a device."""
from .._no_device import answers

__path__ = []
globals().update(answers("xpu"))
