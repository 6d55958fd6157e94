"""Neural networks, by the names of torch.nn."""
from . import functional, init, utils  # noqa: F401
from .activations import *  # noqa: F401, F403
from .adaptive import AdaptiveLogSoftmaxWithLoss  # noqa: F401
from .container import Container, ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential  # noqa: F401
from .layers import *  # noqa: F401, F403
from .losses import *  # noqa: F401, F403
from .module import Module  # noqa: F401
from .parameter import Buffer, Parameter  # noqa: F401
from .recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNBase, RNNCell, RNNCellBase  # noqa: F401
from .transformer import (MultiheadAttention, Transformer, TransformerDecoder, TransformerDecoderLayer,  # noqa: F401
                          TransformerEncoder, TransformerEncoderLayer)
from .lazy import *  # noqa: F401, F403
from .parameter import UninitializedBuffer, UninitializedParameter  # noqa: F401
from . import attention, common_types, grad, modules, parallel  # noqa: F401
from .parallel import DataParallel  # noqa: F401
from ._docs import add_docs as _add_docs

_add_docs(globals())
