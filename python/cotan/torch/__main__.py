"""Runs a PyTorch script over Cotan: python -m cotan.torch train.py ..."""
import atexit
import os
import runpy
import sys
import types

from . import Tensor, _modules

HELP = """Runs a program that is written for PyTorch: `import torch` gives cotan.torch, PyTorch's names over Cotan.

usage: python -m cotan.torch train.py [argument ...]     run a script
       python -m cotan.torch -m package.module [...]     run a module, as python -m does
       python -m cotan.torch -c 'import torch; ...'      run a line of code

The program does not change. Modules that import torch themselves (einops, torchmetrics, timm) get
cotan.torch too. Names of PyTorch that the program meets and that are not there are reported at the end, on
stderr. In a program of your own, `import cotan.torch as torch` needs no more, and
`cotan.torch.install()` does for a process what this command does."""


def _set_traceback():
    """An error's traceback begins with the program's own lines."""
    shown = sys.excepthook

    def hook(kind, error, trace):
        while trace and trace.tb_next and trace.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>"):
            trace = trace.tb_next
        obj, name = getattr(error, "obj", None), getattr(error, "name", None)
        if isinstance(error, AttributeError) and isinstance(obj, Tensor):
            _modules.missing[f"Tensor.{name}"] += 1
        shown(kind, error.with_traceback(trace), trace)
    sys.excepthook = hook


def _run(code, path):
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=__builtins__, __cached__=None)
    if path is None:
        del main.__file__
    _run.launcher = sys.modules["__main__"]  # whose globals must live on
    sys.modules["__main__"] = main
    exec(compile(code, path or "<string>", "exec"), main.__dict__)


def main(args):
    if not args or args[0] in ("-h", "--help"):
        print(HELP)
        return 0 if args else 2
    option, rest = (args[0], args[1:]) if args[0] in ("-m", "-c") else (None, args)
    if not rest or (option is None and args[0].startswith("-")):
        print(f"python -m cotan.torch: {args[0]}: " + ("what to run is missing" if option else "no such option; see --help"),
              file=sys.stderr)
        return 2
    _modules.install()
    atexit.register(_modules.report)
    _set_traceback()
    sys.argv = [option or rest[0], *rest[1:]] if option != "-m" else list(rest)
    if option == "-m":
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return 0
    folder = "" if option else os.path.dirname(os.path.realpath(rest[0]))
    if not sys.flags.safe_path:
        sys.path[0] = folder
    if option:
        _run(rest[0], None)
        return 0
    try:
        with open(rest[0], "rb") as file:
            source = file.read()
    except OSError as error:
        print(f"python -m cotan.torch: {rest[0]}: {error.strerror}", file=sys.stderr)
        return 2
    _run(source, rest[0])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
