"""torch.linalg"""
from .._core import LinAlgError  # noqa: F401
from . import _factors, _linalg, _products  # noqa: F401
from ._define import functions

globals().update({name[7:]: function for name, function in functions.items() if name.startswith("linalg.")})
