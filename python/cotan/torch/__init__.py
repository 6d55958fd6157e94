"""PyTorch's names with PyTorch's meaning, over Cotan's tensors: import cotan.torch as torch."""
from . import _define, _index, _pointwise, _shape, return_types  # noqa: F401

globals().update({name: function for name, function in _define.functions.items() if "." not in name})
