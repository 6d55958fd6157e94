"""Checkpointing, by the names of torch.utils.checkpoint."""
from .._checkpoint import checkpoint_sequential
from .._checkpoint import checkpoint_values as checkpoint

__all__ = ["checkpoint", "checkpoint_sequential"]
