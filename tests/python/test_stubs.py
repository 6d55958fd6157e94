"""python/cotan/_core.pyi, which editors and mypy read: it says what the extension has, and a typed program passes mypy.

COTAN_DOCS=write writes it anew.
"""
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import cotan
import pytest

ROOT = Path(__file__).resolve().parents[2]
STUB = ROOT / "python/cotan/_core.pyi"
HEAD = '''"""What the extension has, for editors and type checkers. tests/python/test_stubs.py keeps it current."""
import builtins
from typing import Any, Iterator, Optional, Sequence, Union

from ._types import Count, Size

Number = Union[builtins.bool, builtins.int, builtins.float, builtins.complex]
Operand = Union["Tensor", Number, Any]

__version__: str


class dtype:
    name: str
    itemsize: builtins.int
    bits: builtins.int
    kind: str
    is_complex: builtins.bool
    is_floating_point: builtins.bool
    is_signed: builtins.bool
    def __init__(self, what: Any) -> None: ...
'''
SEVERAL = {"batch_norm_train", "eig", "eigh", "lu", "qr", "quantise", "slogdet", "sort_pairs", "svd", "topk", "unique"}
# What Tensor's attributes and methods are that don't give a Tensor.
TYPES = {"shape": "Size", "size": "Count", "ndim": "int", "dtype": "dtype", "itemsize": "int", "nbytes": "int", "device": "str",
         "requires_grad": "bool", "is_leaf": "bool", "is_cuda": "bool", "layout": "str", "grad": "Optional[Tensor]",
         "numel": "int", "nelement": "int", "dim": "int", "ndimension": "int", "element_size": "int", "item": "Any",
         "tolist": "Any", "numpy": "Any", "backward": "None", "is_contiguous": "bool", "is_floating_point": "bool",
         "is_complex": "bool", "equal": "bool", "allclose": "bool", "stride": "Any", "type": "Any", "register_hook": "Any",
         "retain_grad": "None", "__len__": "int", "__bool__": "bool", "__float__": "float", "__int__": "int", "__index__": "int",
         "__contains__": "bool", "__iter__": "Iterator[Tensor]", "__complex__": "complex", "__format__": "str", "cuda": "None",
         "__array_namespace__": "Any", "__setitem__": "None", "__divmod__": "Any", "__rdivmod__": "Any", "__hash__": "int"}
ANY = set("""aminmax chunk cummax cummin hsplit kthvalue max median min nonzero sort split tensor_split topk unbind unique vsplit
__array__ __dlpack__ __dlpack_device__""".split())
LEFT_OUT = set(dir(object)) - {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__format__"}


def parameters(function, method):
    """Its parameters as text, all of them Any."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return "self, *args: Any, **options: Any" if method else "*args: Any, **options: Any"
    parts, starred = [], False
    for i, p in enumerate(signature.parameters.values()):
        if method and i == 0:
            parts.append("self")
        elif p.kind == p.VAR_POSITIONAL:
            parts.append(f"*{p.name}: Any")
            starred = True
        elif p.kind == p.VAR_KEYWORD:
            parts.append(f"**{p.name}: Any")
        else:
            if p.kind == p.KEYWORD_ONLY and not starred:
                parts.append("*")
                starred = True
            name = f"{p.name}_" if p.name == "lambda" else p.name
            parts.append(f"{name}: Any" + ("" if p.default is p.empty else " = ..."))
    return ", ".join(parts)


def tensor_class():
    lines = ["", "", "class Tensor:", "    def __init__(self, data: Operand, dtype: Any = ..., requires_grad: builtins.bool = ...) -> None: ..."]
    for name in sorted(dir(cotan.Tensor)):
        if name in LEFT_OUT or name.startswith("_") and not name.startswith("__"):
            continue
        value = inspect.getattr_static(cotan.Tensor, name)
        result = TYPES.get(name, "Any" if name in ANY else "Tensor")
        result = f"builtins.{result}" if result in ("bool", "int", "float", "complex") else result
        if not callable(getattr(cotan.Tensor, name, None)):
            if name not in ("__dict__", "__doc__", "__module__", "__weakref__", "__dictoffset__", "__weaklistoffset__",
                            "__array_priority__"):
                lines.append(f"    {name}: {result}")
            continue
        if isinstance(value, (staticmethod, classmethod)) or name in ("__annotations__",):
            continue
        note = "  # type: ignore[override]" if name in ("__eq__", "__ne__") else "  # type: ignore[misc]" if name == "__ipow__" else ""
        lines.append(f"    def {name}({parameters(value, True)}) -> {result}: ...{note}")
    return lines


def stub():
    core = cotan._core
    lines = HEAD.splitlines() + tensor_class() + [""]
    for name in sorted(dir(core)):
        value = getattr(core, name)
        if isinstance(value, core.dtype):
            lines.append(f"{name}: dtype")
        elif isinstance(value, type) and issubclass(value, BaseException):
            bases = ", ".join(base.__name__ for base in value.__bases__)
            lines.append(f"class {name}({bases}): ...")
        elif inspect.isbuiltin(value):
            result = "Tensor" if name in ("asarray", "einsum", "from_dlpack", "from_numpy", "full", "random_key") else "builtins.bool" if "enabled" in name else "Any"
            lines.append(f"def {name}({parameters(value, False)}) -> {result}: ...")
    order = [line for line in lines if line.startswith("class Error(")]
    lines = [line for line in lines if line not in order]
    first = next(i for i, line in enumerate(lines) if line.startswith("class ") and line.endswith("): ..."))
    lines[first:first] = order
    lines += ["", "", "class _Ops:"]
    for name in sorted(dir(core.ops)):
        if not name.startswith("_"):
            result = "Any" if name in SEVERAL else "Tensor"
            text = parameters(getattr(core.ops, name), False)
            lines.append(f"    def {name}(self, {text}) -> {result}: ...")
    return "\n".join([*lines, "", "", "ops: _Ops", ""])


def test_the_stub_is_current():
    text = stub()
    if os.environ.get("COTAN_DOCS") == "write":
        STUB.write_text(text)
    assert STUB.read_text() == text, "COTAN_DOCS=write scripts/run-tests tests/python/test_stubs.py writes it"


MODULES = ["_creation", "_elementwise", "_more", "_reductions", "_searching", "_shaping"]
HELPERS = set("""BOOL COMPLEX DEFAULTS Extreme FLOATS INTEGERS SIGNED Tensor UNSIGNED concat_parts conj_transposed device_of_tensor diagonals
expanded_sizes extreme_with_indices finish_new_tensor lower_median make_view move_to_device normalize_axes normalize_axis
parse_size_args parse_sizes promote_pair reduced root_with_zero_grad scalar_of_dtype scatter_flat sort_with_indices split_sizes
squeezed_sizes strong swapped_axes unravel value widened wrap_negative_indices""".split())


@pytest.mark.parametrize("name", MODULES)
def test_all_names_are_given(name):
    module = getattr(cotan, name)
    names = [key for key, value in vars(module).items() if not (key.startswith("_") or inspect.ismodule(value) or key in HELPERS)
             and (not inspect.isfunction(value) or value.__module__ == module.__name__)]  # others are imported
    assert sorted(names) == sorted(module.__all__)


PROGRAM = '''
import cotan
from cotan import Tensor, nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x).relu()
        return y


x: Tensor = cotan.ones(4, 3)
n: int = x.numel() + len(x)
loss: Tensor = (Net()(x) * 2 + x[:, :2]).sum()
loss.backward()
grad = x.grad
assert grad is not None
value: float = loss.item()
rows: list = [row.tolist() for row in x]
'''


def run_mypy(tmp_path, text):
    (tmp_path / "program.py").write_text(text)
    env = {**os.environ, "MYPYPATH": str(ROOT / "python")}
    return subprocess.run([sys.executable, "-m", "mypy", "--no-error-summary", "--cache-dir", str(tmp_path / "cache"),
                           "--follow-imports", "silent", str(tmp_path / "program.py")], env=env, capture_output=True, text=True)


def test_a_typed_program_passes_mypy(tmp_path):
    pytest.importorskip("mypy")
    assert (run := run_mypy(tmp_path, PROGRAM)).returncode == 0, run.stdout + run.stderr
    wrong = run_mypy(tmp_path, PROGRAM + "word: str = x.sum()\nx.summ()\n")
    assert 'has type "Tensor", variable has type "str"' in wrong.stdout
    assert '"Tensor" has no attribute "summ"' in wrong.stdout


def test_every_counter_of_the_library():
    fields = re.search(r"typedef struct ct_stats \{(.*?)\} ct_stats;", (ROOT / "include/cotan/cotan.h").read_text(), re.S)[1]
    assert sorted(cotan.stats()) == sorted(re.findall(r"(\w+)[,;]", re.sub(r"//.*", "", fields)))
    assert cotan.stats()["kernels_pending"] == 0
