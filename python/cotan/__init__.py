"""Cotan: deep learning that is written eagerly and runs compiled."""
from . import _core
from ._types import Count, Size

_core._start(__file__.rpartition("/")[0] + "/", Size, Count)

from ._core import *  # noqa: E402, F403
from . import _print  # noqa: E402, F401
from ._core import Tensor, __version__, asarray, dtype, ops  # noqa: E402, F401
from . import _copies, _protocol, _random, nn, optim  # noqa: E402, F401
from ._core import is_grad_enabled  # noqa: E402, F401
from ._grad import enable_grad, inference_mode, no_grad, set_grad_enabled  # noqa: E402, F401
from ._random import (Generator, bernoulli, get_rng_state, initial_seed, manual_seed, multinomial, normal,  # noqa: E402, F401
                      rand, rand_like, randint, randint_like, randn, randn_like, randperm, seed, set_rng_state)
