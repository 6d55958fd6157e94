"""torch.signal.windows: window functions of M elements; with sym=False, periodic ones."""
from .. import _windows  # noqa: F401
from .._define import functions_of

globals().update(functions_of("signal.windows"))
