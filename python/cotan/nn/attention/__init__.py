"""The choice of attention's implementation, by the names of torch.nn.attention. There is one implementation, which never stores
the weights of all pairs at once where the kernel can avoid it; the choice is remembered and changes nothing else."""
import contextlib
import enum

__all__ = ["SDPBackend", "WARN_FOR_UNFUSED_KERNELS", "sdpa_kernel"]

WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(enum.IntEnum):
    """PyTorch's implementations of scaled_dot_product_attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


_enabled = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def _cur_sdpa_kernel_backends():
    return list(_enabled)


@contextlib.contextmanager
def sdpa_kernel(backends, set_priority=False):
    """A context in which PyTorch would use one of the given implementations; here the results are the same with each."""
    if not isinstance(backends, (list, SDPBackend)):
        raise AssertionError("Backend must be an instance of SDPBackend or a list of SDPBackend instances")
    before = list(_enabled)
    _enabled[:] = [backends] if isinstance(backends, SDPBackend) else backends
    try:
        yield {}
    finally:
        _enabled[:] = before
