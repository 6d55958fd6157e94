"""Optimizers, as in torch.optim."""
from .._paths import add_paths as _add_paths
from . import lr_scheduler, swa_utils
from .algorithms import (ASGD, SGD, Adadelta, Adafactor, Adagrad, Adam, Adamax, AdamW, NAdam, RAdam, RMSprop, Rprop,
                         SparseAdam)
from .lbfgs import LBFGS
from .optimizer import Optimizer

__all__ = ["ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "NAdam", "Optimizer", "RAdam", "RMSprop",
           "Rprop", "SGD", "SparseAdam", "lr_scheduler", "swa_utils"]

_KINDS = ASGD, SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, NAdam, RAdam, RMSprop, Rprop
_add_paths(__name__, {"sparse_adam": {"SparseAdam": SparseAdam}, **{kind.__name__.lower(): {kind.__name__: kind} for kind in _KINDS}},
           {"Optimizer": Optimizer})
