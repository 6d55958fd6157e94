"""PyTorch's names and meaning over Cotan's tensors: import cotan.torch as torch."""
from .. import *  # noqa: F403
from .. import Tensor, dtype, float32, save, load  # noqa: F401
from . import _modules

_modules.setup(__name__)
