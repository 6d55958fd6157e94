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
from .linalg import cdist, cholesky, cross, det, inv, matmul, matrix_power, norm, outer, tensordot, vecdot  # noqa: E402, F401
from . import _copies, _protocol, _random, autograd, flatten_util, func, nn, optim, tree_util, utils  # noqa: E402, F401
from ._core import is_grad_enabled  # noqa: E402, F401
from ._grad import enable_grad, inference_mode, no_grad, set_grad_enabled  # noqa: E402, F401
from ._random import (Generator, bernoulli, get_rng_state, initial_seed, manual_seed, multinomial, normal,  # noqa: E402, F401
                      rand, rand_like, randint, randint_like, randn, randn_like, randperm, seed, set_rng_state)
from ._transforms import (cond, fori_loop, grad, hessian, jacfwd, jacrev, jvp, scan, value_and_grad, vjp, vmap,  # noqa: E402, F401
                          while_loop)
from . import library  # noqa: E402, F401
from .export import export_c  # noqa: E402, F401
from .serialization import load, save  # noqa: E402, F401

__array_api_version__ = "2024.12"
