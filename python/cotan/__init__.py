"""Cotan: deep learning that is written eagerly and runs compiled."""
from . import _core
from ._types import Count, Size

_core._start(__file__.rpartition("/")[0] + "/", Size, Count)

from ._core import *  # noqa: E402, F403
from . import _print  # noqa: E402, F401
from ._core import Tensor, __version__, dtype, ops  # noqa: E402, F401
from ._creation import *  # noqa: E402, F403
from ._dtypes import (__array_namespace_info__, astype, can_cast, finfo, get_default_dtype, iinfo, is_complex,  # noqa: E402, F401
                      is_floating_point, isdtype, promote_types, result_type)
from ._elementwise import *  # noqa: E402, F403
from ._reductions import *  # noqa: E402, F403
from ._searching import *  # noqa: E402, F403
from ._shaping import *  # noqa: E402, F403
from . import _methods, fft, linalg  # noqa: E402, F401
from ._more import *  # noqa: E402, F403
from ._pytorch import *  # noqa: E402, F403
from .linalg import cdist, cholesky, cross, det, inv, matmul, matrix_power, outer, tensordot, vecdot  # noqa: E402, F401
from . import _copies, _protocol, _random, accelerator, autograd, backends, cuda, flatten_util, func, nn  # noqa: E402, F401
from . import optim, random, tree_util, utils  # noqa: E402, F401
from ._core import is_grad_enabled  # noqa: E402, F401
from ._grad import enable_grad, inference_mode, no_grad, set_grad_enabled  # noqa: E402, F401
from ._random import (Generator, bernoulli, get_rng_state, initial_seed, manual_seed, multinomial, normal,  # noqa: E402, F401
                      rand, rand_like, randint, randint_like, randn, randn_like, randperm, seed, set_rng_state)
from ._checkpoint import checkpoint  # noqa: E402, F401
from ._compile import compile  # noqa: E402, F401
from ._memory import memory_snapshot  # noqa: E402, F401
from ._rules import custom_jvp, custom_vjp  # noqa: E402, F401
from ._transforms import (associative_scan, cond, fori_loop, grad, hessian, jacfwd, jacrev, jvp, scan,  # noqa: E402, F401
                          value_and_grad, vjp, vmap, while_loop)
from .nn.functional import (avg_pool1d, bilinear, conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d,  # noqa: E402, F401
                            conv_transpose3d, cosine_embedding_loss, cosine_similarity, dropout, group_norm, hinge_embedding_loss,
                            kl_div, layer_norm, margin_ranking_loss, max_pool1d, max_pool2d, max_pool3d, pairwise_distance,
                            pixel_shuffle, pixel_unshuffle, relu_, triplet_margin_loss)
from . import amp  # noqa: E402, F401
from .amp.autocast_mode import (autocast, get_autocast_dtype, is_autocast_available,  # noqa: E402, F401
                                is_autocast_enabled)
from .export import export_c  # noqa: E402, F401
from ._files import load_file, safe_open, save_file  # noqa: E402, F401
from .serialization import load, save  # noqa: E402, F401
from . import _torch  # noqa: E402, F401

globals().update({name: _torch.define.functions[name] for name in """addmm addmv baddbmm bmm clone detach dist inverse mm mv norm
numel""".split()})

__array_api_version__ = "2024.12"

_WHEN_USED = {"distributions", "library", "lm", "profiler", "torch"}  # modules that few programs need, and that take long to import


def __getattr__(name):
    if name not in _WHEN_USED:
        raise AttributeError(f"module 'cotan' has no attribute {name!r}")
    from importlib import import_module
    return import_module(f"cotan.{name}")


def __dir__():
    return sorted({*globals(), *_WHEN_USED})
