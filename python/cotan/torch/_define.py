"""The table of cotan.torch: functions and Tensor's methods, each declared once by its signature.

A row is a signature as PyTorch's docs have it and a function that takes all its parameters by position, defaults filled
in, without `out`:

    @define("std(input, dim: int|ints=None, *, correction: float=1, keepdim: bool=False, out=None)", forms="fm")
    def std(input, dim, correction, keepdim): ...

`python/src/signature.c` says what annotations mean; arguments are bound there. Decorators of one name are overloads: the
lowest is tried first. A name has a namespace, "linalg.svd", or is a method alone, "Tensor.where".
"""
import re

from .. import _core
from .._core import Tensor
from .._dtypes import category
from .._torch_function import disabled_torch_function
from ._docs import doc_of

FLOATS, BOOLS, REAL = 1, 2, 4  # as in python/src/call.h


class Row:
    """A name of the table: its signatures, its forms (f function, m method, i in-place method, I in-place function)."""

    def __init__(self, name):
        self.name, self.signatures, self.forms, self.capsule, self.doc = name, [], "", None, ""


rows = {}  # name: Row


def _text_signature(signature, method):
    text = re.sub(r": ?[A-Za-z|]+", "", signature[signature.index("("):])
    return re.sub(r"\((input|self)\b", "($self", text, count=1) if method else text


def _add_forms(row, name, forms):
    base = name.rpartition(".")[2]
    function, method = (f"{_text_signature(row.signatures[0], is_method)}\n--\n\n{row.doc}" for is_method in (False, True))
    if "f" in forms:
        rows.setdefault(name, row)
        functions[name] = _core._function(row.capsule, base, base + function, False)
    if "I" in forms:
        functions[name + "_"] = _core._function(row.capsule, base + "_", base + "_" + function, True)
    if "m" in forms:
        _core._method(row.capsule, base, base + method, False)
    if "i" in forms:
        _core._method(row.capsule, base + "_", base + "_" + method, True)


functions = {}  # full name: the function of the module


def define(signature, forms="f", alias=(), op=None, floats=False, bools=False, real=False):
    """Adds a row to the table, or a signature to its row.

    `op` names a primitive op that is called in the function's place while all parameters after its operands have their
    defaults; its operands' dtypes are promoted as PyTorch does (`floats`: integers become floats; `bools`: the op takes no
    booleans, which are computed as integers; `real`: it takes no complex numbers, for which the function is called).
    """
    name = signature[:signature.index("(")]
    if name.startswith("Tensor."):
        forms = forms.replace("f", "m")

    def decorate(function=None):
        row = rows.get(name)
        if row is None:
            row = rows[name] = Row(name)
        first = row.capsule is None
        row.capsule = _core._define(row.capsule, signature, function, op, FLOATS * floats | BOOLS * bools | REAL * real)
        row.signatures.append(signature)
        if first:
            row.forms, row.doc = forms, getattr(function, "__doc__", None) or doc_of(name)
            for known_as in (name, *((alias,) if isinstance(alias, str) else alias)):
                _add_forms(row, known_as, forms)
        return function

    return decorate


def functions_of(namespace):
    """Returns the functions of a namespace, such as "fft", by their names in it."""
    return {name.rpartition(".")[2]: f for name, f in functions.items() if name.rpartition(".")[0] == namespace}


def _write_one(name, out, result):
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be a Tensor, not {type(out).__name__}")
    if category(out.dtype) < category(result.dtype):
        raise RuntimeError(f"result type {result.dtype.name} can't be cast to the desired output type {out.dtype.name}")
    if out.requires_grad or result.requires_grad:
        raise RuntimeError(f"{name}(): functions with out=... arguments don't support automatic differentiation, "
                           "but one of the arguments requires grad.")
    if out.shape != result.shape:
        return _core._replace(out, result.to(out.dtype))
    return out.copy_(result)


def _write_out(name, out, result):
    """Writes results to the tensors of `out`, which take their shapes."""
    if isinstance(result, tuple):
        for to, value in zip(out, result, strict=True):
            _write_one(name, to, value)
        return type(result)(*out) if hasattr(result, "_fields") else out
    return _write_one(name, out, result)


def _dispatch(public, args, options):
    """Calls __torch_function__ of the arguments, subclasses first."""
    types, found = [], []
    for value in (*args, *options.values()):
        for x in value if isinstance(value, (tuple, list)) else (value,):
            hook = getattr(type(x), "__torch_function__", None)
            if hook is not None and type(x) is not Tensor and type(x) not in types:
                types.append(type(x))
                found.append(x)
    found.sort(key=lambda x: -len(type(x).__mro__))
    for x in found:
        result = type(x).__torch_function__(public, tuple(types), args, options)
        if result is not NotImplemented:
            return result
    raise TypeError(f"no implementation found for '{getattr(public, '__name__', public)}' on types that implement "
                    f"__torch_function__: {types}")


_core._signature_hooks(_write_out, _dispatch, disabled_torch_function)
