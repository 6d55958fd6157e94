"""torch.compiler and torch._dynamo: marks for a compiler of Python code, which Cotan has not: functions run as they
are, and torch.compile compiles what they compute."""
import contextlib
import types

from .. import compile  # noqa: F401
from ..nn import Module

__path__ = []


class _Nothing(contextlib.ContextDecorator, contextlib.nullcontext):
    """A context manager and decorator that changes nothing."""


class _Options(types.SimpleNamespace):
    """Options that may be set and are ignored."""

    def patch(self, *args, **options):
        return _Nothing()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return False


config = _Options()


class OptimizedModule(Module):
    """The class that torch.compile gives modules in PyTorch: to check against."""


def disable(fn=None, recursive=True, *, reason=None):
    """Returns the function itself; as a decorator with or without arguments."""
    return (lambda function: function) if fn is None else fn


def allow_in_graph(fn):
    return fn


assume_constant_result = forbid_in_graph = disallow_in_graph = wrap_numpy = run = allow_in_graph
nonstrict_trace = skip = skip_guard_eval_unsafe = allow_in_graph


def optimize(*args, **options):
    """Returns a decorator that gives the function back."""
    return lambda function: function


def substitute_in_graph(original_fn, *args, **options):
    return lambda function: function


def is_compiling():
    return False


is_dynamo_compiling = is_exporting = is_compiling


def is_compile_supported(device_type):
    return False


def reset():
    """Does nothing: compiled programs are kept by the functions they are of."""


cudagraph_mark_step_begin = graph_break = reset


def mark_static_address(t, guard=True):
    """Does nothing."""


mark_dynamic = maybe_mark_dynamic = mark_static = mark_unbacked = lambda t, *args, **options: None


def set_stance(stance="default", **options):
    return _Nothing()


def list_backends(exclude_tags=()):
    return []


def explain(f, *args, **options):
    raise NotImplementedError("torch._dynamo.explain: there are no graphs of Python code to explain")


class TransformGetItemToIndex(contextlib.nullcontext):
    """Changes nothing."""
