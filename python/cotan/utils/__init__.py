"""Helpers around training, as in torch.utils."""
from . import data  # noqa: F401
