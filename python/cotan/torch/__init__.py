"""PyTorch's names with PyTorch's meaning, over Cotan's tensors: import cotan.torch as torch.

Functions come from the table of cotan._torch; what has PyTorch's meaning in cotan already is the same object.
"""
import cotan as _cotan
from cotan.nn import functional as _functional

from .._torch import return_types, sparse  # noqa: F401
from .._torch.define import functions_of
from .._torch.settings import *  # noqa: F403

_SHARED = """Tensor Size dtype Generator nn optim autograd utils amp cuda backends accelerator profiler func random
distributions float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex64 complex128
float8_e4m3fn float8_e5m2 FloatTensor DoubleTensor HalfTensor LongTensor IntTensor ShortTensor CharTensor ByteTensor BoolTensor
e inf nan pi newaxis OutOfMemoryError no_grad enable_grad inference_mode set_grad_enabled is_grad_enabled manual_seed seed
initial_seed get_rng_state set_rng_state save load serialization compile autocast get_autocast_dtype is_autocast_enabled cond
while_loop vmap export ops"""
_OF_NN = """adaptive_avg_pool1d adaptive_max_pool1d alpha_dropout alpha_dropout_ avg_pool1d batch_norm bilinear
binary_cross_entropy_with_logits celu celu_ channel_shuffle conv1d conv2d conv3d conv_tbc conv_transpose1d
conv_transpose2d conv_transpose3d cosine_embedding_loss cosine_similarity ctc_loss dropout dropout_ embedding embedding_bag
feature_alpha_dropout feature_alpha_dropout_ feature_dropout feature_dropout_ group_norm hardshrink hinge_embedding_loss
instance_norm kl_div layer_norm margin_ranking_loss max_pool1d max_pool1d_with_indices max_pool2d max_pool3d pairwise_distance
pdist pixel_shuffle pixel_unshuffle poisson_nll_loss prelu rms_norm rrelu rrelu_ selu selu_ threshold threshold_
triplet_margin_loss"""
globals().update({name: getattr(_cotan, name) for name in _SHARED.split()})
globals().update({name: getattr(_functional, name) for name in _OF_NN.split() if hasattr(_functional, name)})
float, double, half, int, long, short, cfloat, cdouble = (_cotan.float32, _cotan.float64, _cotan.float16, _cotan.int32, _cotan.int64,
                                                         _cotan.int16, _cotan.complex64, _cotan.complex128)
from . import fft, linalg, signal, special  # noqa: E402, F401
globals().update(functions_of(""))
from . import _modules  # noqa: E402

_modules.setup(__name__)
