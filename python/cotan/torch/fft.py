"""torch.fft: discrete Fourier transforms."""
from .._torch.define import functions_of

globals().update(functions_of("fft"))
