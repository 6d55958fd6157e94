"""Modules whose content lives elsewhere, under the paths by which PyTorch's programs import it."""
import sys
from types import ModuleType


def add_paths(package, tables, common=None):
    """Makes modules package.NAME; tables: {NAME: {name: value}}, common: members of all of them."""
    parent = sys.modules[package]
    for name, members in tables.items():
        module = ModuleType(f"{package}.{name}", f"What PyTorch has in {name}.")
        module.__dict__.update({**(common or {}), **members})
        module.__package__ = package
        sys.modules[module.__name__] = module
        if not hasattr(parent, name):  # a function of the same name stays
            setattr(parent, name, module)


def own_names(namespace):
    """Returns the names of the public classes and functions that a module defines: its __all__."""
    return sorted(name for name, value in namespace.items()
                  if name[0] != "_" and getattr(value, "__module__", None) == namespace["__name__"])
