"""The table of PyTorch's functions and Tensor's methods: its families, each a module."""
from . import convert, create, define, index, pointwise, reduce, return_types, sampling, settings, shape  # noqa: F401
from . import products, special  # noqa: E402, F401  whose rows use those of the others
from . import bessel, factors, fft, linalg, polynomials, sparse, windows  # noqa: E402, F401
