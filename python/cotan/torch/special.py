"""torch.special: functions of mathematics and statistics."""
from .._torch.define import functions_of

globals().update(functions_of("special"))
