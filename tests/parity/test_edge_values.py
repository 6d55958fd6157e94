"""Values and gradients of every op and of every function of cotan.nn.functional at the edges of their domains, beside PyTorch's and JAX's:
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
pytest.importorskip("jax")
import support.interpreted  # noqa: E402, F401: before cotan
cotan = pytest.importorskip("cotan")
import edge_jax  # noqa: E402
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


def weights_of(arrays):
    return [1.0] if len(arrays[0].shape) == 1 else [1.0, 2.0, 3.0, 5.0, 7.0]


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
        weights = np.resize(weights_of(arrays), value.shape).astype(dtype)
        try:
            slopes = library.grad(y, tensors, library.make(weights), allow_unused=True)
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
    """Of one case (a row, or an element) of a call's inputs. `theirs` is PyTorch's, or JAX's; `jax` what that has beside PyTorch."""

    def __init__(self, call, what, dtype, inputs, ours, theirs, jax=None):
        self.jax = jax
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
    """Differences from PyTorch, and those of JAX from what Cotan and PyTorch have alike."""
    found, jax_alone = [], []
    for dtype in DTYPES:
        for arrays, constants in INPUTS[kind]:
            a, b = run(Ours, ours, arrays, constants, dtype), run(Theirs, theirs, arrays, constants, dtype)
            by_jax = edge_jax.run(call, arrays, constants, dtype, weights_of(arrays)) if call in edge_jax.CALLS else {}
            for what in {**a, **b}:
                x, y, z = a.get(what), b.get(what), by_jax.get(what)
                if x is None or y is None:
                    if not (x is None and y is None):
                        found.append(Difference(call, what, dtype, arrays, x, y, z))
                    continue
                assert x.shape == y.shape, f"{call}: {what} is {x.shape}, PyTorch's {y.shape}"
                assert z is None or z.shape == x.shape, f"{call}: {what} is {x.shape}, JAX's {z.shape}"
                each = kind not in ("whole", "matrix")  # cases stand along the first axis
                n = len(arrays[0]) if each else 1
                other = differ(x, y, dtype).reshape(n, -1).any(1)
                for i in np.flatnonzero(other):
                    rows = ([v[i] for v in arrays], x[i], y[i], None if z is None else z[i]) if each else (arrays, x, y, z)
                    found.append(Difference(call, what, dtype, *rows))
                for i in [] if z is None else np.flatnonzero(differ(x, z, dtype).reshape(n, -1).any(1) & ~other):
                    rows = ([v[i] for v in arrays], x[i], z[i]) if each else (arrays, x, z)
                    jax_alone.append(Difference(call, what, dtype, *rows))
    return found, jax_alone


@pytest.fixture(scope="module")
def compared():
    return {call: compare(call, *rest) for call, rest in CALLS.items()}


@pytest.fixture(scope="module")
def differences(compared):
    return {call: found for call, (found, _) in compared.items()}


@pytest.fixture(scope="module")
def jax_alone(compared):
    return {call: found for call, (_, found) in compared.items()}


def test_every_op_and_function_is_compared():
    texts = "\n".join(ours for _, ours, _ in CALLS.values())
    named = set(re.findall(r"\bops\.(\w+)", texts)), set(re.findall(r"\bF\.(\w+)", texts))
    ops = {name for name in dir(OPS) if not name.startswith("_")}
    functions = {name for module in (F.activation, F.attention, F.ctc, F.grid, F.loss, F.normalization, F.window) for name in module.__all__}
    assert not ops - named[0] - EXEMPT.keys(), "ops that are neither compared nor exempt"
    assert not functions - named[1] - {name[2:] for name in EXEMPT}, "functions of nn.functional that are neither compared nor exempt"
    assert not edge_jax.CALLS.keys() - CALLS.keys(), "JAX's of calls that are not compared"
    assert not {name for name in EXEMPT if name in named[0] or name[:2] == "F." and name[2:] in named[1]}, "exempt, and compared"


def test_every_difference_has_a_reason(differences):
    lines = [f"{d.call}: {d.what} at {', '.join(map(short, d.inputs))} in {d.dtype}: {short(d.ours)}, PyTorch {short(d.theirs)}"
             for found in differences.values() for d in found if d.why() is None]
    assert not lines, f"{len(lines)} differences:\n" + "\n".join(lines[:200])


HEAD = """# Values at the edge of a domain

Values and gradients of all ops and of the functions of `cotan.nn.functional` are compared with PyTorch's (1.13, as Debian has it) at
zeros of both signs, ties, infinities, NaN, where functions saturate, and at 1e30 and 1e-30, whose squares no f32 holds. They are
the same but for what this page lists. A row is the first input at which a function differs for one reason, and the number of such
inputs. Gradients are those of the sum of the results, in which rows are weighted by 1, 2, 3, 5 and 7. `make parity`
compares again; `COTAN_DOCS=write` writes the page.

- `floor`, `ceil`, `round`, `trunc`, `sign` and the like have no gradient: one that passes through them alone is an error,
  where PyTorch gives zeros; beside other terms they add nothing.
- What depends on data and would be an error in PyTorch is listed under [names](python-names.md).

- JAX's (0.4.38, jitted) are beside them where it has the function. Where PyTorch and JAX differ, Cotan follows PyTorch: the second table.

| Call | What | Input | Cotan | PyTorch | JAX | Why | Inputs |
|---|---|---|---|---|---|---|---|
"""

JAX_HEAD = """
## Where JAX differs from PyTorch

Cotan has what PyTorch has. Gradients beside NaN, those that are infinite or NaN in all three, and those of `svdvals`, which for equal
singular values depend on the machine's LAPACK, are left out. `j` is `jax.numpy`,
`nn` `jax.nn`, `lax` `jax.lax`, `L` `jax.numpy.linalg`, `sp` `jax.scipy.special`. XLA takes `sqrt(x * x)` for `abs(x)`.

| Call | JAX's | What | Input | Cotan and PyTorch | JAX | Inputs |
|---|---|---|---|---|---|---|
"""


def jax_lines(jax_alone):
    rows = {}
    for found in jax_alone.values():
        for d in found:
            if not (d.slope and (d.nan_in or "svdvals" in d.call)) and not d.none_finite():
                rows.setdefault((d.call, d.what.partition(" ")[0]), []).append(d)
    return [f"| `{call}` | `{edge_jax.CALLS[call]}` | {found[0].what} | {'; '.join(map(short, found[0].inputs))} | {short(found[0].ours)} | "
            f"{short(found[0].theirs)} | {len(found)} |\n" for (call, _), found in rows.items()]


def page(differences, jax_alone):
    rows = {}
    for found in differences.values():
        for d in found:
            rows.setdefault((d.call, d.why(), d.what.partition(" ")[0]), []).append(d)
    lines = []
    for (call, why, _), found in rows.items():
        d = found[0]
        shown = "; ".join(map(short, d.inputs)), short(d.ours), short(d.theirs), "" if d.jax is None else short(d.jax)
        lines.append(f"| `{call.replace('|', '/')}` | {d.what} | {' | '.join(shown)} | {why} | {len(found)} |\n")
    return HEAD + "".join(lines) + JAX_HEAD + "".join(jax_lines(jax_alone))


def test_the_page_is_current(differences, jax_alone):
    if not torch.__version__.startswith("1.13"):
        return  # the page quotes that one
    text = page(differences, jax_alone)
    if os.environ.get("COTAN_DOCS") == "write":
        PAGE.write_text(text)
    assert PAGE.read_text() == text, "COTAN_DOCS=write make parity writes it"
