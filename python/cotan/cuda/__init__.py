"""torch.cuda on a machine without a GPU: what a program asks is answered, what needs one says that there is none."""
from .._no_device import answers

globals().update(answers("cuda"))
from . import amp  # noqa: E402, F401
