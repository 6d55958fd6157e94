"""Prints tensors: numbers in NumPy's layout, within PyTorch's notation."""
import sys

from . import _core
from ._dtypes import FLOATS, get_default_dtype

# What torch.set_printoptions sets: precision, threshold, edgeitems, linewidth, sci_mode. Without a precision numbers
# have NumPy's digits.
options = {}


def _array(x):
    """Returns x as a NumPy array; bfloat16, which NumPy lacks, becomes float32 with the same values."""
    return (x.float() if x.dtype == _core.bfloat16 else x).numpy()


def _list(numbers):
    """Formats numbers as Python does, floats to 8 digits."""
    if isinstance(numbers, list):
        return f"[{', '.join(map(_list, numbers))}]"
    return repr(float(f"{numbers:.8g}")) if isinstance(numbers, float) else str(numbers)


def _layout(numpy, x, array):
    """Returns the options for NumPy by which set_printoptions holds."""
    result = {"edgeitems": options.get("edgeitems"), "max_line_width": options.get("linewidth")}
    precision = options.get("precision", 4 if options.get("sci_mode") is not None else None)
    if precision is None or x.dtype not in FLOATS:
        return result
    result.update(precision=precision, suppress_small=options.get("sci_mode") is False)
    finite = array[numpy.isfinite(array)]
    if options.get("sci_mode"):
        result["formatter"] = {"float_kind": lambda number: f"{number:.{precision}e}"}
    elif (finite != numpy.floor(finite)).any():
        result["floatmode"] = "fixed"
    return result


def tensor_repr(x):
    """Returns for example tensor([[1., 2.]], dtype=cotan.float64); the dtype is given if the numbers do not
    show it."""
    prefix = "tensor("
    try:
        import numpy
    except ModuleNotFoundError:  # NumPy is not installed in a new environment
        text = _list(x.detach().tolist()) if x.numel() <= 1000 else "..."
    else:
        array = _array(x)
        limit = sys.maxsize if numpy.get_printoptions()["threshold"] >= x.numel() else 1000
        limit = min(options.get("threshold", limit), sys.maxsize)
        text = numpy.array2string(array, separator=", ", prefix=prefix, threshold=limit, **_layout(numpy, x, array))
    shown = "" if x.dtype in (get_default_dtype(), _core.int64, _core.bool) and x.numel() else f", dtype={x.dtype!r}"
    if not x.numel() and x.shape != (0,) or text == "...":
        shown = f", shape={tuple(x.shape)}" + shown
    return f"{prefix}{text}{shown}{_history(x)})"


class GradFn:
    """The op that computed a value with a history: x.grad_fn.name() is its name."""

    def __init__(self, name):
        self._name = name

    def name(self):
        return self._name

    def __repr__(self):
        return f"<{self._name}>"


def grad_fn(x):
    """Returns the op that computed a value with a history; None for leaves."""
    return None if x._op is None or x.is_leaf else GradFn("Function" if x._op == "mark" else x._op)


def _history(x):
    if not x.requires_grad:
        return ""
    return ", requires_grad=True" if x.is_leaf else f", grad_fn={grad_fn(x)!r}"


def text(x):
    """Returns the numbers alone, without commas, as NumPy's str does; for a 0-d tensor, its number."""
    return str(_array(x))


def tensor_format(x, spec):
    """Formats a tensor of one element as its number."""
    return format(x.item(), spec) if spec and x.numel() == 1 else format(str(x), spec)


_core.Tensor.__repr__ = tensor_repr
_core.Tensor.grad_fn = property(grad_fn)
_core.Tensor.__str__ = lambda x: repr(x)
_core.Tensor.__format__ = tensor_format
