"""torch.special"""
from . import _bessel, _polynomials, _special  # noqa: F401
from ._define import functions_of

globals().update(functions_of("special"))
