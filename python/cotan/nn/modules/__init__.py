"""The classes of cotan.nn under PyTorch's paths: nn.modules.linear.Linear is nn.Linear."""
from ..._core import Tensor
from ..._paths import add_paths
from .. import activations as _activations
from .. import adaptive as _adaptive
from .. import container as _container
from .. import functional as _functional
from .. import init as _init
from .. import layers as _layers
from .. import lazy as _lazy
from .. import losses as _losses
from .. import module as _module
from .. import recurrent as _recurrent
from .. import transformer as _transformer
from ..activations import *  # noqa: F401, F403
from ..adaptive import AdaptiveLogSoftmaxWithLoss  # noqa: F401
from ..container import Container, ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential  # noqa: F401
from ..layers import *  # noqa: F401, F403
from ..lazy import *  # noqa: F401, F403
from ..losses import *  # noqa: F401, F403
from ..module import Module
from ..parameter import Parameter, UninitializedBuffer, UninitializedParameter
from ..recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNBase, RNNCell, RNNCellBase  # noqa: F401
from ..transformer import (MultiheadAttention, Transformer, TransformerDecoder, TransformerDecoderLayer,  # noqa: F401
                           TransformerEncoder, TransformerEncoderLayer)
from . import utils  # noqa: F401
from .utils import _ntuple, _pair, _quadruple, _reverse_repeat_tuple, _single, _triple

# By module: the names, and PyTorch's names of private bases as NAME=OUR_NAME.
_NAMES = {
    "activation": "CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid LogSoftmax Mish "
                  "MultiheadAttention NonDynamicallyQuantizableLinear PReLU RReLU ReLU ReLU6 SELU SiLU Sigmoid Softmax Softmax2d "
                  "Softmin Softplus "
                  "Softshrink Softsign Tanh Tanhshrink Threshold",
    "adaptive": "AdaptiveLogSoftmaxWithLoss",
    "batchnorm": "BatchNorm1d BatchNorm2d BatchNorm3d LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyModuleMixin "
                 "SyncBatchNorm _BatchNorm _NormBase=_Norm _LazyNormBase=_LazyNorm",
    "channelshuffle": "ChannelShuffle",
    "container": "Container ModuleDict ModuleList ParameterDict ParameterList Sequential",
    "conv": "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d LazyConv1d LazyConv2d LazyConv3d "
            "LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d LazyModuleMixin _ConvNd=_Conv "
            "_ConvTransposeNd=_TransposedConv "
            "_LazyConvXdMixin=_LazyConv",
    "distance": "CosineSimilarity PairwiseDistance",
    "dropout": "AlphaDropout Dropout Dropout1d Dropout2d Dropout3d FeatureAlphaDropout _DropoutNd=_Dropout",
    "flatten": "Flatten Unflatten",
    "fold": "Fold Unfold",
    "instancenorm": "InstanceNorm1d InstanceNorm2d InstanceNorm3d LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d "
                    "_InstanceNorm _NormBase=_Norm _LazyNormBase=_LazyNorm",
    "lazy": "LazyModuleMixin",
    "linear": "Bilinear Identity LazyLinear LazyModuleMixin Linear NonDynamicallyQuantizableLinear",
    "loss": "BCELoss BCEWithLogitsLoss CTCLoss CosineEmbeddingLoss CrossEntropyLoss GaussianNLLLoss HingeEmbeddingLoss HuberLoss "
            "KLDivLoss L1Loss MSELoss MarginRankingLoss MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss NLLLoss "
            "NLLLoss2d "
            "PairwiseDistance PoissonNLLLoss SmoothL1Loss SoftMarginLoss TripletMarginLoss TripletMarginWithDistanceLoss _Loss "
            "_WeightedLoss",
    "module": "Module _IncompatibleKeys=IncompatibleKeys _addindent=_indented register_module_backward_hook "
              "register_module_forward_hook register_module_forward_pre_hook register_module_full_backward_hook "
              "register_module_full_backward_pre_hook RemovableHandle",
    "normalization": "CrossMapLRN2d GroupNorm LayerNorm LocalResponseNorm RMSNorm",
    "padding": "CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d ReflectionPad1d "
               "ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d ZeroPad1d ZeroPad2d ZeroPad3d "
               "_ConstantPadNd=_ConstantPad _ReflectionPadNd=_ReflectionPad _ReplicationPadNd=_ReplicationPad "
               "_CircularPadNd=_CircularPad",
    "pixelshuffle": "PixelShuffle PixelUnshuffle",
    "pooling": "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d "
               "AvgPool1d AvgPool2d AvgPool3d FractionalMaxPool2d FractionalMaxPool3d LPPool1d LPPool2d LPPool3d MaxPool1d "
               "MaxPool2d MaxPool3d "
               "MaxUnpool1d MaxUnpool2d MaxUnpool3d _AdaptiveAvgPoolNd=_AdaptiveAvgPool _AdaptiveMaxPoolNd=_AdaptiveMaxPool "
               "_AvgPoolNd=_AvgPool _LPPoolNd=_LPPool _MaxPoolNd=_MaxPool _MaxUnpoolNd=_MaxUnpool",
    "rnn": "GRU GRUCell LSTM LSTMCell PackedSequence RNN RNNBase RNNCell RNNCellBase",
    "sparse": "Embedding EmbeddingBag",
    "transformer": "LayerNorm MultiheadAttention Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder "
                   "TransformerEncoderLayer _get_activation_fn=_activation_function _get_clones=_clone_module",
    "upsampling": "Upsample UpsamplingBilinear2d UpsamplingNearest2d",
}


def _find(name):
    for home in (_activations, _layers, _lazy, _losses, _container, _recurrent, _transformer, _adaptive, _module):
        if hasattr(home, name):
            return getattr(home, name)
    raise AttributeError(name)


def _members(names):
    pairs = [name.partition("=") for name in names.split()]
    return {name: _find(ours or name) for name, _, ours in pairs}


add_paths(__name__, {name: _members(names) for name, names in _NAMES.items()}, {
    "Tensor": Tensor, "Module": Module, "Parameter": Parameter, "F": _functional, "init": _init, "_pair": _pair, "_single": _single,
    "_triple": _triple, "_quadruple": _quadruple, "_ntuple": _ntuple, "_reverse_repeat_tuple": _reverse_repeat_tuple,
    "UninitializedParameter": UninitializedParameter, "UninitializedBuffer": UninitializedBuffer})
__all__ = [name for names in _NAMES.values() for name in names.split() if name in globals() and not name.startswith("_")]
