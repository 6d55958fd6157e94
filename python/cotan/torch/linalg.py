"""torch.linalg"""
from .._core import LinAlgError  # noqa: F401
from . import _factors, _linalg, _products  # noqa: F401
from ._define import functions_of

globals().update(functions_of("linalg"))
