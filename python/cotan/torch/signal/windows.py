"""torch.signal.windows: window functions of M elements; with sym=False, periodic ones."""
from ..._torch.define import functions_of

globals().update(functions_of("signal.windows"))
