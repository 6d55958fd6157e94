"""torch.ops: ops by namespace; those of aten are the functions of torch, other namespaces are torch.library's."""
from .library import ops as _custom


class _Overloads:
    """A function and its overloads, torch.ops.aten.add.Tensor: all are the function."""

    def __init__(self, function):
        self._function, self.__name__ = function, function.__name__

    def __call__(self, *args, **options):
        return self._function(*args, **options)

    def overloads(self):
        return ["default"]

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self


# Ops that packages name as keys of their tables for __torch_dispatch__, which is not called here.
_KEYS = "_to_copy _pin_memory _sparse_addmm _sparse_mm_reduce_impl alias index slice".split()


def _absent(name):
    def refuse(*args, **options):
        raise NotImplementedError(f"torch.ops.aten.{name}: PyTorch's dispatcher is not there")

    refuse.__name__ = name
    return refuse


class _Namespace:
    def __init__(self, name):
        self._name = name

    def __getattr__(self, name):
        if self._name in ("aten", "prims", "prim"):
            from .. import torch
            from ..nn import functional
            function = next((getattr(one, name) for one in (torch, functional, torch.Tensor) if hasattr(one, name)),
                            _absent(name) if name in _KEYS else None)
            if function is not None:
                return _Overloads(function)
        elif f"{self._name}::{name}" in _custom:
            return _custom[f"{self._name}::{name}"]
        raise AttributeError(f"'_OpNamespace' '{self._name}' object has no attribute '{name}'")


_made = {}


def load_library(path):
    raise OSError(f"torch.ops.load_library: {path}: libraries of PyTorch's ops are not loaded")


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return _made.setdefault(name, _Namespace(name))
