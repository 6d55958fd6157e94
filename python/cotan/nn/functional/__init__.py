"""Functions of neural networks, by the names and arguments of torch.nn.functional."""
from .activation import *  # noqa: F401, F403
from .attention import *  # noqa: F401, F403
from .ctc import *  # noqa: F401, F403
from .grid import *  # noqa: F401, F403
from .loss import *  # noqa: F401, F403
from .normalization import *  # noqa: F401, F403
from .window import *  # noqa: F401, F403
from .window_max import *  # noqa: F401, F403
