"""torch.library: functions of a program's own that are called as ops, torch.ops.NAMESPACE.NAME."""
import functools

from .._function import Function
from ._tables import absent

__all__ = ["CustomOpDef", "Library", "custom_op", "define", "fallthrough_kernel", "impl", "impl_abstract", "opcheck",
           "register_autograd",
           "register_fake", "register_kernel", "register_torch_dispatch", "register_vmap", "triton_op", "wrap_triton"]
ops = {}  # {"namespace::name": CustomOpDef}
opcheck, wrap_triton = (absent("library", name, "ops of a program are its functions") for name in ("opcheck", "wrap_triton"))


class CustomOpDef:
    """An op: the function that computes it, whose gradient is that of its ops unless register_autograd gives
    another."""

    def __init__(self, name, function=None):
        self._name, self._function, self._backward, self._setup = name, function, None, None
        self.__name__ = name.rpartition(":")[2].partition(".")[0]
        ops[name.partition(".")[0]] = self

    def __call__(self, *args, **options):
        if self._function is None:
            raise NotImplementedError(f"{self._name}: the op has no implementation")
        if self._backward is None:
            return self._function(*args, **options)
        return self._with_gradient(options).apply(*args)

    def _with_gradient(self, options):
        def forward(ctx, *args):
            result = self._function(*args, **options)
            if self._setup:
                named = {"keyword_only_inputs": options} if options else {}
                self._setup(ctx=ctx, inputs=args, output=result, **named)
            return result
        return type(self.__name__, (Function,), {"forward": staticmethod(forward), "backward": staticmethod(self._backward)})

    def register_autograd(self, backward, /, *, setup_context=None):
        self._backward, self._setup = backward, setup_context

    def register_kernel(self, device_types, func=None, /):
        """Sets the function for devices; there is one for all."""
        if func is None:
            return functools.partial(self.register_kernel, device_types)
        if device_types is None or "cpu" in device_types or self._function is None:
            self._function = func
        return func

    def register_fake(self, fn=None, /):
        """Does nothing: shapes are those of what is computed."""
        return fn if fn is not None else self.register_fake

    register_vmap = register_torch_dispatch = lambda self, *args: args[-1] if args else self.register_fake
    default = property(lambda self: self)


def custom_op(name, fn=None, /, *, mutates_args=(), device_types=None, schema=None, tags=None):
    """Makes a function an op, torch.ops.NAMESPACE.NAME; as a decorator or with the function."""
    return CustomOpDef(name, fn) if fn is not None else functools.partial(CustomOpDef, name)


triton_op = custom_op


def _find(op):
    return op if isinstance(op, CustomOpDef) else ops.get(op.partition(".")[0]) or CustomOpDef(op)


def define(qualname, schema=None, *, lib=None, tags=()):
    return _find(qualname)


def impl(qualname, types, func=None, *, lib=None):
    return _find(qualname).register_kernel(None if types in ("default", "CompositeImplicitAutograd") else str(types).lower(), func)


def register_kernel(op, device_types, func=None, /, *, lib=None):
    return _find(op).register_kernel(device_types, func)


def register_autograd(op, backward, /, *, setup_context=None, lib=None):
    _find(op).register_autograd(backward, setup_context=setup_context)


def register_fake(op, func=None, /, *, lib=None, _stacklevel=1, allow_override=False):
    return _find(op).register_fake(func)


impl_abstract = register_fake


def register_vmap(op, func=None, /, *, lib=None):
    return func if func is not None else lambda function: function


register_torch_dispatch = register_vmap


def fallthrough_kernel():
    raise NotImplementedError("fallthrough_kernel() should never be called.")


class Library:
    """The ops of a namespace."""

    def __init__(self, ns, kind, dispatch_key=""):
        self.ns, self.kind = ns, kind

    def define(self, schema, alias_analysis="", *, tags=()):
        name = schema.partition("(")[0].strip()
        _find(f"{self.ns}::{name}")
        return name

    def impl(self, op_name, fn, dispatch_key="", *, with_keyset=False):
        if "Meta" not in dispatch_key:
            _find(op_name if "::" in str(op_name) else f"{self.ns}::{op_name}").register_kernel(None, fn)

    def _destroy(self):
        """Does nothing."""


def _scoped_library(*args, **options):
    import contextlib
    return contextlib.nullcontext(Library(*args, **options))
