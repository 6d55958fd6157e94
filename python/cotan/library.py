"""Custom ops: an op in C, or as an expression, is recorded, differentiated, batched and compiled like a
built-in op.

    swish = cotan.library.elementwise("swish", "x beta", "x / (1 + exp(-beta * x))")
    attention = cotan.library.load("window_attention.c").window_attention      # C: include/cotan/custom_op.h
    y = swish(attention(q, k, v, window=64), 1.5)
"""
import os
import subprocess
import tempfile
import types
from pathlib import Path

from . import _core
from ._rules import custom_jvp, custom_vjp

__all__ = ["Op", "custom_op", "elementwise", "get_include", "load"]


class Op:
    """A custom op. It is called with its operands, by position or by name, and its attributes, by name or
    after the operands."""

    def __init__(self, handle):
        self._handle = handle
        self.__name__, doc, operands, attributes, self._n_in, self._n_out = _core._op_info(handle)
        self.operands = tuple(operands.replace(",", " ").split()) or tuple(f"x{i}" for i in range(self._n_in))
        self.attributes = tuple(attributes.replace(",", " ").split())
        self.__doc__ = f"{self.__name__}({', '.join(self.operands + self.attributes)})\n\n{doc}"

    def __call__(self, *args, **named):
        names = self.operands + self.attributes
        if len(args) > len(names):
            raise TypeError(f"{self.__name__}() takes {len(names)} arguments, not {len(args)}")
        args = list(args)
        for name in names[len(args):]:
            if name not in named:
                raise TypeError(f"{self.__name__}() needs argument '{name}'")
            args.append(named.pop(name))
        if named:
            name = next(iter(named))
            raise TypeError(f"{self.__name__}() " + (f"got argument '{name}' twice" if name in names
                                                     else f"has no argument '{name}'"))
        return _core._op_call(self._handle, tuple(args[:self._n_in]), args[self._n_in:])

    def __repr__(self):
        return f"<op {self.__name__}({', '.join(self.operands + self.attributes)})>"


def elementwise(name, operands, expression, doc=""):
    """Defines an elementwise op, which broadcasts its operands. `operands` has their names ("x beta"), and
    `expression` is one in C over them. It may use numbers, + - * /, comparisons, && || !, ?:, the
    elementwise ops without attributes by name (cotan.ops: exp, maximum, atan2 …), and names for parts: "s = 1
    / (1 + exp(-x)); s * (1 - s)". It is compiled into kernels, and its gradient is that of the expression.
    16-bit floats are computed in float32 and rounded once."""
    operands = operands if isinstance(operands, str) else " ".join(operands)
    return Op(_core._op_define(name, doc, operands, expression))


def custom_op(function, *, vjp=None, jvp=None):
    """Makes a function of tensors an op with a rule of its own, with the interface that ops in C have.
    vjp(operands, results, cotangents) returns the operands' cotangents, None for one without a gradient;
    jvp(operands, results, tangents) returns the results' tangents, linear in those of the operands, and is
    transposed for reverse mode. Without a rule it is the function itself."""
    if vjp is not None and jvp is not None:
        raise TypeError("custom_op: one of vjp and jvp is the rule, both are given")
    if vjp is not None:
        op = custom_vjp(function)

        def ahead(*operands):
            results = function(*operands)
            return results, (operands, results)

        op.defvjp(ahead, lambda saved, cotangents: tuple(_as_list(vjp(*saved, cotangents))))
        return op
    if jvp is not None:
        op = custom_jvp(function)

        def rule(operands, tangents):
            results = function(*operands)
            return results, jvp(operands, results, tangents)

        op.defjvp(rule)
        return op
    return function


def _as_list(result):
    return result if isinstance(result, (tuple, list)) else (result,)


def get_include():
    """Returns the folder of the C headers: cc -O2 -shared -fPIC -I FOLDER my_ops.c -o my_ops.so."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "include")


def _compile_source(source, folder):
    out = os.path.join(folder, Path(source).stem + ".so")
    compiler = os.environ.get("COTAN_CC") or "cc"
    command = [compiler, "-O2", "-march=native", "-ffp-contract=off", "-shared", "-fPIC", "-I", get_include(), os.fspath(source),
               "-o", out, "-lm"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise _core.CompilerError(f"load: {compiler} cannot be run, which compiles {source}: {error.strerror}\n"
                                  "  hint: install gcc or clang, or load a shared library that was compiled elsewhere") from None
    if done.returncode:
        raise _core.CompilerError(f"load: {compiler} does not compile {source}:\n{done.stderr.rstrip()}")
    return out


def load(path):
    """Loads the ops of a shared library, or of a C file, which is compiled first (COTAN_CC, cc). The file
    includes <cotan/custom_op.h>, which documents the interface, and has a function `void cotan_ops(void)`, which
    defines the ops. They are kept until the process ends. Returns a namespace with an Op under each name."""
    path = os.fspath(path)
    if not path.endswith(".c"):
        handles = _core._op_load(os.path.abspath(path) if os.path.exists(path) else path)
    else:
        with tempfile.TemporaryDirectory(prefix="cotan-") as folder:
            handles = _core._op_load(_compile_source(path, folder))
    result = [Op(handle) for handle in handles]
    return types.SimpleNamespace(**{op.__name__: op for op in result})
