"""Exports functions as C for machines without Python and without the library."""
import os

from . import _core
from ._core import Tensor
from ._grad import no_grad
from ._whole import Around
from .tree_util import tree_flatten_with_path

__all__ = ["export_c"]


def _name(text):
    """Returns a C name for the Python name `text`."""
    name = "".join(c if c.isascii() and c.isalnum() else "_" for c in text).strip("_") or "x"
    return "x" + name if name[0].isdigit() else name


def _path_name(prefix, path):
    parts = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", "")))) for key in path]
    return _name("_".join([prefix, *parts]))


def _parameter_names(function, n):
    call = getattr(function, "forward", function)
    try:
        import inspect
        names = [p.name for p in inspect.signature(call).parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    except (TypeError, ValueError):
        names = []
    return [names[i] if i < len(names) else f"input_{i}" for i in range(n)]


def export_c(path, function, *args, embed=False):
    """Writes what function(*args) computes as a C file and its header, PATH.c and PATH.h; the last part of
    the path is the name of the C function. It needs libm only and no library, allocates nothing, starts no
    thread and gives the same bits. Its struct has a pointer for each input, named after the function's
    parameters, for each result (`result`, or `result_NAME` of several), and for the weights of a Module by
    their names; with `embed` the weights are in the file instead (for small models: a compiler takes some 200
    bytes of memory for each word). A Module is exported in eval mode. args are examples that give the sizes
    and dtypes."""
    _core.eval()  # what is pending before is not part of it
    named, leaves = {}, []
    for prefix, arg in zip(_parameter_names(function, len(args)), args):
        pairs, structure = tree_flatten_with_path(arg)
        values = [_core._snapshot(x) if isinstance(x, Tensor) else _core.asarray(x) for _, x in pairs]
        _core.eval(*values)
        named.update({_path_name(prefix, place): value for (place, _), value in zip(pairs, values)})
        leaves.append(structure.unflatten(values))
    modules = [module for module in function.modules() if module.training] if hasattr(function, "named_parameters") else []
    def train(mode):
        for module in modules:
            module.training = mode

    with Around(lambda: train(False), lambda: train(True)), no_grad():
        result = function(*leaves)
    outs, _ = tree_flatten_with_path(result)
    for place, value in outs:
        if not isinstance(value, Tensor):
            raise TypeError(f"export_c: the function gave {type(value).__name__}, it must give tensors")
        named[_path_name("result", place)] = value
    weights = []
    if hasattr(function, "named_parameters"):
        weights = [*function.named_parameters(), *function.named_buffers()]
    _core._write_c(os.fspath(path), tuple(named.items()), tuple(weights), embed)
