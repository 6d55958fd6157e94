"""The modules of torch. `cotan.torch.X.Y` is the file of that name here, or a module of _tables.py, or
else the very module `cotan.X.Y`. install() makes `import torch` give cotan.torch in this process, under
which the same modules are found."""
import importlib
import importlib.machinery
import importlib.util
import opcode
import re
import sys

from . import _tables

VERSION = "2.7.0"
missing = _tables.missing


class TorchVersion(str):
    """A version that compares by its numbers, with a string or a tuple: "2.10.0" is above "2.7"."""

    @staticmethod
    def _numbers(version):
        if not isinstance(version, (str, int)):
            version = ".".join(map(str, version))
        release, stage, _ = re.match(r"v?(\d+(?:\.\d+)*)[.-]?([a-z]*)(.*)", str(version)).groups()
        numbers = [int(part) for part in release.split(".")]
        while numbers and not numbers[-1]:
            numbers.pop()
        return numbers, stage in ("", "post"), stage

    def _compare(self, other, operator):
        try:
            return operator(self._numbers(self), self._numbers(other))
        except (AttributeError, TypeError):  # no version
            return operator(str(self), str(other))

    def __lt__(self, other):
        return self._compare(other, lambda a, b: a < b)

    def __le__(self, other):
        return self._compare(other, lambda a, b: a <= b)

    def __gt__(self, other):
        return self._compare(other, lambda a, b: a > b)

    def __ge__(self, other):
        return self._compare(other, lambda a, b: a >= b)

    def __eq__(self, other):
        return self._compare(other, lambda a, b: a == b)

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


# -------------------------------------------------------------------------------------------- finding


class _Alias:
    """Loads a module by giving the one of another name."""

    def __init__(self, name):
        self.name = name

    def create_module(self, spec):
        module = importlib.import_module(self.name)
        self.alias, self.spec = spec.name, module.__spec__
        return module

    def exec_module(self, module):
        module.__spec__ = self.spec  # which importing under another name has replaced
        shared = "cotan.torch." + self.alias.removeprefix("cotan.").removeprefix("torch.")
        vars(module).setdefault("__getattr__", _missing_names(module, shared))
        before, name = module.__name__ + ".", self.alias + "."
        if before.rpartition(".")[0].rpartition(".")[2] == self.alias.rpartition(".")[2]:
            # Importing one of these later would put the module over a function of its name in this one.
            for other, inside in [item for item in sys.modules.items() if item[0].startswith(before)]:
                inner = name + other.removeprefix(before)
                sys.modules.setdefault(inner, inside)
                if name.startswith("cotan."):
                    vars(inside).setdefault("__getattr__", _missing_names(inside, inner))


class _Own(importlib.machinery.SourceFileLoader):
    """Loads a file of this folder."""

    def exec_module(self, module):
        super().exec_module(module)
        vars(module).setdefault("__getattr__", _missing_names(module, module.__name__))


class _Made:
    """Loads a module of _tables.py, whose names are made there."""

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        vars(module).update(_tables.contents(module.__name__.removeprefix("cotan.torch.")))
        module.__getattr__ = _missing_names(module, module.__name__)


def _exists(name):
    """True if there is a module of this name."""
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the one before its last dot is no package
        return False


def _target_name(name):
    """Returns the name of the module that `cotan.torch.X` is, None if there is none such."""
    parent, _, last = name.rpartition(".")
    path = name.removeprefix("cotan.torch.")
    if path in _tables.SAME:
        same = _tables.SAME[path]
        return same if same.startswith("cotan.") else "cotan.torch." + same
    inside = sys.modules[parent]
    if parent == "cotan.torch" and last not in _tables.SHARED or not hasattr(inside, "__path__"):
        return None
    other = f"cotan.{last}" if parent == "cotan.torch" else f"{inside.__name__}.{last}"
    return other if other != name and _exists(other) else None


class _Finder:
    """Finds modules of cotan.torch and, after install, of torch."""

    installed = False

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.startswith("cotan.torch."):
            return cls._find_here(name, path)
        if cls.installed and name.startswith("torch."):
            other = "cotan." + name
            return cls._spec(name, other) if _exists(other) else None
        return None

    @classmethod
    def _find_here(cls, name, path):
        parent = sys.modules[name.rpartition(".")[0]]
        if parent.__name__ == name.rpartition(".")[0] and path:
            own = importlib.machinery.PathFinder.find_spec(name, path)
            if own and own.has_location:  # not a folder of type stubs alone
                own.loader = _Own(name, own.origin)
                return own
        other = _target_name(name)
        if other:
            return cls._spec(name, other)
        made = name.removeprefix("cotan.torch.") in _tables.MODULES
        return importlib.machinery.ModuleSpec(name, _Made(), is_package=True) if made else None

    @staticmethod
    def _spec(name, other):
        return importlib.machinery.ModuleSpec(name, _Alias(other))


def _add_distribution():
    """Makes importlib.metadata find the shim's version of torch, which packages ask for."""
    from importlib import metadata

    class Distribution(metadata.Distribution):
        def read_text(self, filename):
            return {"METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {VERSION}\n", "top_level.txt": "torch\n"}.get(filename)

        def locate_file(self, path):
            return path

    _Finder.find_distributions = staticmethod(
        lambda context=metadata.DistributionFinder.Context(): [Distribution()] if context.name in (None, "torch") else [])


# -------------------------------------------------------------------------------------- missing names


def _missing_names(module, name):
    """Returns __getattr__ of a module: a module inside of it is imported when it is first used; another
    name is counted."""
    def find(attribute):
        if not attribute.startswith("__"):
            known = [name, *(f"cotan.torch.{path}" for path, same in _tables.SAME.items() if f"cotan.torch.{same}" == name)]
            inner = next((f"{path}.{attribute}" for path in known if _exists(f"{path}.{attribute}")), None)
            if inner:
                return importlib.import_module(inner)
            # hasattr and getattr only ask: what needs the name loads it by an instruction for that.
            frame = sys._getframe(1)
            if opcode.opname[frame.f_code.co_code[frame.f_lasti]] in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"):
                missing[f"{name.removeprefix('cotan.')}.{attribute}"] += 1
        full = f"{name.removeprefix('cotan.')}.{attribute}"
        raise AttributeError(f"{module.__name__} has no attribute '{attribute}': PyTorch's {full} is not there yet", name=attribute,
                             obj=module)
    return find


# ------------------------------------------------------------------------------------- torch's own name


class _Installer:
    """Unpickled first in a spawned process, it installs there too."""

    def __reduce__(self):
        return install, ()


def _install_in_children():
    import multiprocessing.spawn as spawn
    prepare = spawn.get_preparation_data
    spawn.get_preparation_data = lambda name: {"cotan_torch": _Installer(), **prepare(name)}


def install():
    """Makes `import torch` give cotan.torch in this process and in those that it spawns: modules below it,
    its version and importlib's answers too. To be called before the first import of torch."""
    package = importlib.import_module("cotan.torch")
    if sys.modules.get("torch", package) is not package:
        raise RuntimeError(f"install: PyTorch itself is imported already ({getattr(sys.modules['torch'], '__file__', 'torch')})\n"
                           "  hint: call cotan.torch.install() before the first import of torch")
    if _Finder.installed:
        return
    _Finder.installed = True
    sys.modules["torch"] = package
    for name, module in [item for item in sys.modules.items() if item[0].startswith("cotan.torch.")]:
        sys.modules[name.removeprefix("cotan.")] = module
    _add_distribution()
    _install_in_children()


def report(file=None):
    """Writes which names of PyTorch the program met that are not there, and how often."""
    if missing:
        lines = [f"  {name}  ({count} times)" if count > 1 else f"  {name}" for name, count in missing.most_common()]
        print("cotan.torch: names of PyTorch that this program met and that are not there yet:", *lines, sep="\n",
              file=file or sys.stderr)


def setup(name):
    """Prepares the package: its modules are found from here on, and a name that is not there says so."""
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
    package = sys.modules[name]
    vars(package).update(__version__=TorchVersion(VERSION), install=install, torch=package,
                         __getattr__=_missing_names(package, name))
    for attribute, value in vars(importlib.import_module(f"{name}._names")).items():
        vars(package).setdefault(attribute, value)
    whole = importlib.import_module(f"{name}._whole")
    vars(package).update(load=whole.load, save=whole.save)
    for attribute, value in list(vars(package).items()):  # cotan.random, say, is JAX's
        if isinstance(value, type(sys)) and value.__name__.startswith("cotan.") and attribute not in _tables.SHARED and \
                not value.__name__.startswith("cotan.torch"):
            delattr(package, attribute)
    for shared in _tables.SHARED:
        importlib.import_module(f"{name}.{shared}")
