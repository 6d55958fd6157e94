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


def factory_kwargs(kwargs):
    """Returns the device, dtype and memory_format among a module's options, and those under "factory_kwargs"."""
    names = ("device", "dtype", "memory_format")
    given = kwargs.get("factory_kwargs", {})
    unexpected = set(kwargs) - {*names, "factory_kwargs"} | set(given) - set(names)
    if unexpected:
        raise TypeError(f"unexpected kwargs {unexpected}")
    both = set(kwargs) & set(given)
    if both:
        raise TypeError(f"{sorted(both)[0]} specified twice, in kwargs and in factory_kwargs")
    return {name: value for source in (given, kwargs) for name, value in source.items() if name in names}
