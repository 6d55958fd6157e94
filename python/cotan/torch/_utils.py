"""Names of torch._utils and the like that packages import."""
import traceback

__path__ = []


class ExceptionWrapper:
    """An exception of another thread, with its text."""

    def __init__(self, exc_info=None, where="in background"):
        kind, error, trace = exc_info
        self.exc_type, self.where = kind, where
        self.exc_msg = "".join(traceback.format_exception(kind, error, trace))

    def reraise(self):
        raise self.exc_type(f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}")


def _flatten_dense_tensors(tensors):
    """Returns a vector of all elements."""
    from .. import cat
    return cat([tensor.reshape(-1) for tensor in tensors])


def _unflatten_dense_tensors(flat, tensors):
    """Returns the parts of a vector in the tensors' shapes."""
    parts, begin = [], 0
    for tensor in tensors:
        parts.append(flat[begin:begin + tensor.numel()].reshape(tensor.shape))
        begin += tensor.numel()
    return tuple(parts)


def _get_device_index(device, optional=False, allow_cpu=False):
    return -1 if str(device).startswith("cpu") else getattr(device, "index", device)


def _get_all_device_indices():
    return []


def _get_available_device_type():
    return None


def is_contiguous_or_false(tensor, *args, **options):
    return tensor.is_contiguous()


def alert_not_deterministic(caller):
    """Does nothing: results are the same in every run."""


def get_ctx():
    raise NotImplementedError("torch._custom_ops.get_ctx: results have shapes that depend on data as they are")
