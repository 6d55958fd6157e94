"""torch.special"""
from . import _bessel, _polynomials, _special  # noqa: F401
from ._define import functions

globals().update({name[8:]: function for name, function in functions.items() if name.startswith("special.")})
