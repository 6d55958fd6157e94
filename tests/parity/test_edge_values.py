"""Values and gradients of every op and of every function of cotan.nn.functional at the edges of their domains, beside PyTorch's:
zeros of both signs, ties, infinities, NaN, what saturates, overflows or underflows, in f32 and f64.

A difference is either a fault or has a reason in WHY; docs/edge-values.md lists those, one row a function and reason, and is
written anew by COTAN_DOCS=write. A new op or function must be among CALLS or EXEMPT.
"""
import os
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import support.interpreted  # noqa: E402, F401: before cotan
cotan = pytest.importorskip("cotan")
from edge_calls import CALLS, EXEMPT, INPUTS, WHY  # noqa: E402

PAGE = Path(__file__).resolve().parents[2] / "docs/edge-values.md"
OPS, F = cotan._core.ops, cotan.nn.functional
DTYPES = {"float32": (1e-4, 1e-6), "float64": (1e-6, 1e-12)}  # relative and absolute tolerance
NO_SLOPE = "nothing behind", "does not require grad"


class Ours:
    """What a call's text means here: `m` is cotan, `ops` its ops."""
    names = {"m": cotan, "ops": OPS, "F": F, "L": cotan.linalg, "inf": np.inf, "nan": np.nan}
    make, numpy = staticmethod(cotan.asarray), staticmethod(lambda x: x.detach().numpy())
    grad, errors = staticmethod(cotan.autograd.grad), (cotan.Error, ValueError, RuntimeError)


class Theirs:
    names = {"m": torch, "F": torch.nn.functional, "L": torch.linalg, "inf": np.inf, "nan": np.nan}
    make, numpy = staticmethod(torch.tensor), staticmethod(lambda x: x.detach().numpy())
    grad, errors = staticmethod(torch.autograd.grad), (RuntimeError, NotImplementedError)


def run(library, text, arrays, constants, dtype):
    """The value and, of floats, the slopes by each operand of its weighted sum; in their place the error, if it is one."""
    tensors = [library.make(x.astype(dtype)).requires_grad_() for x in arrays]
    named = dict(zip("xyz", tensors))
    named |= {name: library.make(x.astype(dtype) if x.dtype.kind == "f" else x) for name, x in constants.items()}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = eval(text, library.names, named)
        value = library.numpy(y)
    except library.errors:
        return {"value": None}
    found = {"value": value}
    if value.dtype.kind == "f":
        weights = np.ones(value.shape) if len(arrays[0].shape) == 1 else np.resize([1.0, 2.0, 3.0, 5.0, 7.0], value.shape)
        try:
            slopes = library.grad(y, tensors, library.make(weights.astype(dtype)), allow_unused=True)
        except library.errors as error:
            slopes = [None if any(text in str(error) for text in NO_SLOPE) else error] * len(tensors)
        for name, x, slope in zip("xyz", arrays, slopes):
            failed = isinstance(slope, Exception)
            found[f"slope by {name}"] = None if failed else np.zeros(x.shape) if slope is None else library.numpy(slope)
    return found


def differ(ours, theirs, dtype):
    """Where two arrays differ. (Zeros of either sign are equal.)"""
    if ours.dtype.kind != "f":
        return ours != theirs
    rtol, atol = DTYPES[dtype]
    with np.errstate(all="ignore"):
        return ~((ours == theirs) | (np.isnan(ours) & np.isnan(theirs)) | (np.abs(ours - theirs) <= atol + rtol * np.abs(theirs)))


class Difference:
    """Of one case (a row, or an element) of a call's inputs."""

    def __init__(self, call, what, dtype, inputs, ours, theirs):
        self.call, self.what, self.dtype, self.inputs, self.ours, self.theirs = call, what, dtype, inputs, ours, theirs
        flat = np.concatenate([np.ravel(x) for x in inputs])
        self.nan_in, self.inf_in = bool(np.isnan(flat).any()), bool(np.isinf(flat).any())
        self.large_in = bool((np.abs(flat[np.isfinite(flat)]) > 1e20).any())
        self.small_in = bool(((flat != 0) & (np.abs(flat) < 1e-20)).any())
        self.slope = what != "value"
        failed = ours is None or theirs is None
        self.error = "ours" if ours is None else "theirs" if theirs is None else None
        at = None if failed else differ(np.asarray(ours), np.asarray(theirs), dtype)
        self.at = (None, None) if failed else (np.asarray(ours)[at], np.asarray(theirs)[at])

    def ours_finite(self):
        return self.error is None and bool(np.isfinite(self.at[0]).all())

    def theirs_nan(self):
        return self.error is None and self.at[1].dtype.kind == "f" and bool(np.isnan(self.at[1]).all())

    def near(self, room):
        return self.error is None and bool((np.abs(self.at[0] - self.at[1]) <= room).all())

    def none_finite(self):
        return self.error is None and not np.isfinite(self.at[0]).any() and not np.isfinite(self.at[1]).any()

    def why(self):
        return next((text for text, calls, holds in WHY if re.fullmatch(calls, self.call) and holds(self)), None)


def short(x):
    """A number or a row as the page shows it."""
    if x is None:
        return "an error"
    if np.size(x) > 16:
        return "..."
    if np.ndim(x):
        return "[" + ", ".join(map(short, x)) + "]"
    return str(x) if np.asarray(x).dtype.kind != "f" else f"{float(x):.4g}"


def compare(call, kind, ours, theirs):
    found = []
    for dtype in DTYPES:
        for arrays, constants in INPUTS[kind]:
            a, b = run(Ours, ours, arrays, constants, dtype), run(Theirs, theirs, arrays, constants, dtype)
            for what in {**a, **b}:
                x, y = a.get(what), b.get(what)
                if x is None or y is None:
                    if not (x is None and y is None):
                        found.append(Difference(call, what, dtype, arrays, x, y))
                    continue
                assert x.shape == y.shape, f"{call}: {what} is {x.shape}, PyTorch's {y.shape}"
                each = kind not in ("whole", "matrix")  # cases stand along the first axis
                n = len(arrays[0]) if each else 1
                for i in np.flatnonzero(differ(x, y, dtype).reshape(n, -1).any(1)):
                    rows = ([v[i] for v in arrays], x[i], y[i]) if each else (arrays, x, y)
                    found.append(Difference(call, what, dtype, *rows))
    return found


@pytest.fixture(scope="module")
def differences():
    return {call: compare(call, *rest) for call, rest in CALLS.items()}


def test_every_op_and_function_is_compared():
    texts = "\n".join(ours for _, ours, _ in CALLS.values())
    named = set(re.findall(r"\bops\.(\w+)", texts)), set(re.findall(r"\bF\.(\w+)", texts))
    ops = {name for name in dir(OPS) if not name.startswith("_")}
    functions = {name for module in (F.activation, F.attention, F.ctc, F.grid, F.loss, F.normalization, F.window) for name in module.__all__}
    assert not ops - named[0] - EXEMPT.keys(), "ops that are neither compared nor exempt"
    assert not functions - named[1] - {name[2:] for name in EXEMPT}, "functions of nn.functional that are neither compared nor exempt"
    assert not {name for name in EXEMPT if name in named[0] or name[:2] == "F." and name[2:] in named[1]}, "exempt, and compared"


def test_every_difference_has_a_reason(differences):
    lines = [f"{d.call}: {d.what} at {', '.join(map(short, d.inputs))} in {d.dtype}: {short(d.ours)}, PyTorch {short(d.theirs)}"
             for found in differences.values() for d in found if d.why() is None]
    assert not lines, f"{len(lines)} differences:\n" + "\n".join(lines[:200])


HEAD = """# Values at the edge of a domain

Values and gradients of all ops and of the functions of `cotan.nn.functional` are compared with PyTorch's (1.13, as Debian has it) at
zeros of both signs, ties, infinities, NaN, where functions saturate, and at 1e30 and 1e-30, whose squares no f32 holds. They are
the same but for what this page lists: of each function and reason the first input, and of how many it holds. A gradient is that of
the sum of the results, of rows weighted 1, 2, 3, 5 and 7. `make parity` compares again; `COTAN_DOCS=write` writes the page.

- `floor`, `ceil`, `round`, `trunc`, `sign` and the like have no gradient: one that passes through them alone is an error,
  where PyTorch gives zeros; beside other terms they add nothing.
- What depends on data and would be an error in PyTorch is listed under [names](python-names.md).

| Call | What | Input | Cotan | PyTorch | Why | Inputs |
|---|---|---|---|---|---|---|
"""


def page(differences):
    rows = {}
    for found in differences.values():
        for d in found:
            rows.setdefault((d.call, d.why(), d.what.partition(" ")[0]), []).append(d)
    lines = []
    for (call, why, _), found in rows.items():
        d = found[0]
        shown = "; ".join(map(short, d.inputs)), short(d.ours), short(d.theirs)
        lines.append(f"| `{call.replace('|', '/')}` | {d.what} | {' | '.join(shown)} | {why} | {len(found)} |\n")
    return HEAD + "".join(lines)


def test_the_page_is_current(differences):
    if not torch.__version__.startswith("1.13"):
        return  # the page quotes that one
    text = page(differences)
    if os.environ.get("COTAN_DOCS") == "write":
        PAGE.write_text(text)
    assert PAGE.read_text() == text, "COTAN_DOCS=write make parity writes it"
