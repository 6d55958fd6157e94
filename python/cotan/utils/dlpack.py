"""Exchanges tensors with other libraries, by the names of torch.utils.dlpack."""
from .._core import from_dlpack  # noqa: F401


def to_dlpack(tensor):
    """Returns the tensor's capsule."""
    return tensor.__dlpack__()
