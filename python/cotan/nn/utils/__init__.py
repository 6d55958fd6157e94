"""Helpers around modules, as in torch.nn.utils."""
from . import parametrizations, parametrize, rnn  # noqa: F401
from .clip import (clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm,  # noqa: F401
                   parameters_to_vector, vector_to_parameters)
