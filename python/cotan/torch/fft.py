"""torch.fft: discrete Fourier transforms."""
from . import _fft  # noqa: F401
from ._define import functions_of

globals().update(functions_of("fft"))
