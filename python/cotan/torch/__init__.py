"""PyTorch's names with PyTorch's meaning, over Cotan's tensors: import cotan.torch as torch."""
from . import _define, _fft, _pointwise, _windows  # noqa: F401
from ._define import functions_of

globals().update(functions_of(""))
from . import fft, signal  # noqa: E402, F401
