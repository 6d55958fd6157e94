"""Helpers around training, as in torch.utils."""
from . import checkpoint, data  # noqa: F401
