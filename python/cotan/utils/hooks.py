"""Handles of hooks, by the path of torch.utils.hooks."""
from ..nn.module import RemovableHandle  # noqa: F401
