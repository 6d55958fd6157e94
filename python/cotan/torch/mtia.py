"""torch.mtia on a machine without such a device."""
from .._no_device import answers

globals().update(answers("mtia"))
