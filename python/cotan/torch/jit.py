"""torch.jit: functions and modules run as they are, so what compiles or marks them gives them back.
cotan.compile, torch.compile here, compiles them."""
import contextlib
import typing

from ..nn import Module

__path__ = []
Final = typing.Final
# Of jit.annotations.
Dict, List, Optional, Tuple, Union, Any = typing.Dict, typing.List, typing.Optional, typing.Tuple, typing.Union, typing.Any
BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = typing.List


class ScriptModule(Module):
    """The class of compiled modules: a class to check against, of which there are no objects unless a
    program's class inherits from it."""


RecursiveScriptModule = ScriptModule


class ScriptFunction:
    """The class of compiled functions, of which there are no objects."""


class TracerWarning(Warning):
    """Is never given."""

    @staticmethod
    def ignore_lib_warnings():
        """Does nothing."""


def script(obj, optimize=None, _frames_up=0, _rcb=None, example_inputs=None):
    """Returns the function, module or class itself."""
    return obj


def trace(func=None, example_inputs=None, *args, **options):
    """Returns the function or module itself."""
    return func


def trace_module(mod, inputs, *args, **options):
    """Returns the module itself."""
    return mod


def _mark(thing=None, *args, **options):
    return thing if callable(thing) else _mark


ignore = unused = export = script_method = _mark
script_if_tracing = _script_if_tracing = interface = _overload = _overload_method = _mark
freeze = optimize_for_inference = onednn_fusion = _mark


def annotate(the_type, the_value):
    return the_value


def Attribute(value, type=None):
    return value


def is_scripting():
    return False


is_tracing = is_scripting


def fork(func, *args, **options):
    """Calls the function; wait returns its result."""
    return func(*args, **options)


def wait(future):
    return future


def _block(*args, **options):
    return contextlib.nullcontext()


optimized_execution = fuser = strict_fusion = set_fusion_strategy = enable_onednn_fusion = _block


def save(m, f, _extra_files=None):
    raise NotImplementedError("torch.jit.save: programs of TorchScript are not written\n  hint: torch.save writes a state_dict()")


def load(f, map_location=None, _extra_files=None, _restore_shapes=False):
    raise NotImplementedError("torch.jit.load: programs of TorchScript are not run\n  hint: torch.load reads a state dict")
