"""torch.linalg: products, factorisations and solutions of matrices."""
from .._core import LinAlgError  # noqa: F401
from .._torch.define import functions_of

globals().update(functions_of("linalg"))
