"""torch.save and torch.load, which write and read whole modules too: their classes by name, and their attributes.

load reads data only unless weights_only=False is given; then classes and functions that a file names are imported
and called, as far as they are PyTorch's, or of packages other than Python's own library."""
import copyreg
import importlib
import os
import sys
import types
from collections import OrderedDict
from pickle import UnpicklingError

from .. import serialization as _files
from .._core import Tensor
from .._types import Size
from ..nn import Module

_DATA = (tuple, list, dict, set, bytearray, OrderedDict, Size)
# What files may call of Python's own library.
_BUILT_IN = {"builtins": "bool bytes complex dict float frozenset int list object range set slice str tuple type".split(),
             "collections": ["defaultdict", "deque"], "copyreg": ["_reconstructor", "__newobj__"], "functools": ["partial"],
             "types": ["SimpleNamespace"], "argparse": ["Namespace"], "datetime": ["date", "datetime", "timedelta"],
             "pathlib": ["PosixPath", "PurePosixPath"], "decimal": ["Decimal"]}
_COPYREG = {"copy_reg": "copyreg", "__builtin__": "builtins"}  # their names in protocol 2


def _torch_path(value):
    """Returns (module, name) by which a class or function of cotan is found in PyTorch."""
    name, prefix = value.__name__, "cotan.nn.modules."
    functional = sys.modules["cotan.nn.functional"]
    modules = sorted(key for key in sys.modules if key.startswith(prefix)) if isinstance(value, type) else []
    for key, module in [(key, sys.modules[key]) for key in modules] + [("cotan.nn.functional", functional),
                                                                      ("cotan.torch", sys.modules["cotan.torch"])]:
        if vars(module).get(name) is value:
            return "torch" + key.removeprefix("cotan").removeprefix(".torch"), name
    return value.__module__, value.__qualname__


class _Pickler(_files.Pickler):
    """Writes objects of any class that can be found by its name."""

    def write_object(self, kind, value):
        if isinstance(value, Tensor) or kind in _DATA:
            super().write_object(kind, value)
        elif isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
            self.write_name(value)
        else:
            self.write_instance(value)

    def write_name(self, value):
        module, name = _torch_path(value)
        if not module.startswith("torch") and getattr(sys.modules.get(module), name, None) is not value:
            self.refuse(f"names {module}.{name}, which is not found by that name")
        self.name({"builtins": "__builtin__", "copyreg": "copy_reg"}.get(module, module), name)

    def write_instance(self, value):
        reduced = value.__reduce_ex__(2)
        if isinstance(reduced, str):
            self.refuse(f"is the object {reduced} of a module, which is not written")
        function, args, state, items, pairs = (*reduced, None, None, None)[:5]
        is_new = function is copyreg.__newobj__
        self.write_name(args[0] if is_new else function)
        self.write_tuple(args[1:] if is_new else args)
        self.out += b"\x81" if is_new else b"R"
        self.remember(id(value), value)
        for each, code in ((items, b"e"), ((part for pair in pairs for part in pair) if pairs else None, b"u")):
            if each:
                self.out += b"("
                for i, item in enumerate(each):
                    self.inside(i, item)
                self.out += code
        if isinstance(value, Module):  # hooks are not written; PyTorch needs these two
            state = {name: one for name, one in state.items() if not (name.startswith("_") and "hook" in name)}
            state |= {"_backward_hooks": OrderedDict(), "_forward_hooks": OrderedDict()}
        if state is not None:
            self.inside(type(value).__name__, state)
            self.out += b"b"


def save(obj, f, pickle_module=None, pickle_protocol=2, _use_new_zipfile_serialization=True):
    """Writes tensors, data and modules to a path or file that torch.load reads. Files are of the format since
    PyTorch 1.6 and pickles of protocol 2, whatever is asked for."""
    _files.save(obj, f, _Pickler)


def _find(module, name):
    """Returns a class or function that a file names."""
    module = _COPYREG.get(module, module)
    allowed = name in _BUILT_IN.get(module, ())
    try:
        if not allowed and module.partition(".")[0] in sys.stdlib_module_names:
            raise UnpicklingError
        found = importlib.import_module("cotan." + module if module.partition(".")[0] == "torch" else module)
        for part in name.split("."):
            found = getattr(found, part)
        if not allowed and str(getattr(found, "__module__", module)).partition(".")[0] in sys.stdlib_module_names:
            raise UnpicklingError  # by a module that imports it
    except UnpicklingError:
        raise UnpicklingError(f"load: the file names {module}.{name}, of Python's own library, which files do not call") from None
    except (ImportError, AttributeError) as error:
        raise UnpicklingError(f"load: the file names {module}.{name}, which is not found: {error}") from None
    return found


def load(f, map_location=None, pickle_module=None, *, weights_only=None, mmap=None, **pickle_load_args):
    """Loads a file of torch.save. By default nothing of it is run. weights_only=False is for files that are
    trusted: it makes objects of the classes that the file names, which runs code of theirs."""
    if weights_only is None or weights_only:
        return _files.load(f, map_location)
    _files.check_location(map_location)
    if isinstance(f, (str, bytes, os.PathLike)):
        with open(f, "rb") as file:
            return _files.load_file(os.fsdecode(f), file, _find)
    return _files.load_file(getattr(f, "name", None) or "the file", f, _find)
