"""PyTorch's own sample inputs of its ops (its op_db) through cotan.torch: values, dtypes, shapes and gradients.

Each op that is not right in some form is a row of opinfo_known.tsv, with the reason; a row that is no longer needed is a
failure, too. OPINFO=all (make test-all) takes all ops, otherwise a fixed twentieth is taken. OPINFO=write renews the table.
"""
import itertools
import os
import random
import re
import signal
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import cotan
import cotan.torch

pytest.importorskip("expecttest")
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

KNOWN = Path(__file__).with_name("opinfo_known.tsv")
SAMPLES = {"float32": 8, "float64": 4, "int64": 4, "bool": 4, "complex64": 4}
TOLERANCE = {"float32": 1e-5, "complex64": 1e-5, "float64": 1e-9, "complex128": 1e-9}
# Factors of which only the product, or the absolute value, is determined.
FREE_SIGNS = {"svd", "linalg.svd", "linalg.eig", "linalg.eigh", "linalg.qr", "qr", "svd_lowrank", "pca_lowrank", "geqrf"}
# What they have is not determined by their arguments.
FREE_VALUES = re.compile("empty|resize|rand|normal|bernoulli|multinomial|dropout|uniform|exponential|cauchy|geometric|rrelu|fractional")
SKIPPED = re.compile(r"^(_|masked\.|jiterator|torch\.ops|sparse\.|to_sparse|nn\.functional\.(scaled_dot|embedding_bag|_))|backward|_copy$")


class Skipped(Exception):
    pass


def array_of(t):
    if t.layout != torch.strided:
        raise Skipped("layout")
    t = t.detach().resolve_conj().resolve_neg()
    return np.array((t.float() if t.dtype is torch.bfloat16 else t).numpy(), copy=True, order="C")


def to_cotan(v, leaves):
    """Returns the sample with Cotan's tensors; leaves that require gradients are appended."""
    if isinstance(v, torch.Tensor):
        c = cotan.tensor(array_of(v), dtype=getattr(cotan, str(v.dtype)[6:]))
        if v.requires_grad:
            leaves.append(c.requires_grad_())
        return c
    if isinstance(v, (torch.dtype, torch.layout, torch.memory_format)):
        found = getattr(cotan.torch, str(v)[6:], None)
        if found is None:
            raise Skipped(str(v))
        return found
    if isinstance(v, torch.device):
        return v.type
    if isinstance(v, torch.Generator) or callable(v):
        raise Skipped(type(v).__name__)
    if isinstance(v, (tuple, list)):
        return (list if isinstance(v, list) else tuple)(to_cotan(x, leaves) for x in v)
    return {k: to_cotan(x, leaves) for k, x in v.items()} if isinstance(v, dict) else v


def cloned(v, leaves):
    if isinstance(v, torch.Tensor):
        c = v.detach().clone()
        if v.requires_grad:
            leaves.append(c.requires_grad_())
        return c
    if isinstance(v, (tuple, list)) and not isinstance(v, torch.Size):
        return type(v)(cloned(x, leaves) for x in v)
    return {k: cloned(x, leaves) for k, x in v.items()} if isinstance(v, dict) else v


def flat(v, kind):
    return [v] if isinstance(v, kind) or not isinstance(v, (tuple, list)) else [x for part in v for x in flat(part, kind)]


def difference(got, right, dtype, factor, free_sign):
    """Returns what differs, or None."""
    if got.shape != right.shape:
        return f"shape {got.shape} for {right.shape}"
    if free_sign:
        got, right = abs(got), abs(right)
    if right.dtype.kind not in "fc":
        return None if (got == right).all() else f"{got.ravel()[:4]} for {right.ravel()[:4]}"
    tolerance = TOLERANCE.get(dtype, 2e-2) * factor
    scale = max(1.0, float(np.max(abs(right[np.isfinite(right)]), initial=0)))
    return None if np.allclose(got, right, 10 * tolerance, tolerance * scale, equal_nan=True) else f"{got.ravel()[:4]} for {right.ravel()[:4]}"


def gradients(results, leaves, library, weights):
    total = None
    for result, w in zip(results, weights):
        if w is not None:
            part = (result * library.tensor(w).to(result.dtype)).sum()
            part = part.real if w.dtype.kind == "c" else part
            total = part if total is None else total + part
    return library.autograd.grad(total, leaves, allow_unused=True)


def check(op, sample, right, ours, out=False):
    """Runs one sample in both libraries; returns what differs, or None."""
    ref_leaves, leaves = [], []
    torch.manual_seed(0)
    ref = flat(right(*(cloned(x, ref_leaves) for x in (sample.input, sample.args, sample.kwargs))), torch.Tensor)
    got = flat(ours(*(to_cotan(x, leaves) for x in (sample.input, sample.args, sample.kwargs))), cotan.Tensor)
    if len(ref) != len(got):
        return f"{len(got)} results for {len(ref)}"
    random_values = FREE_VALUES.search(op.name)
    for a, b in zip(got, ref):
        if isinstance(b, torch.Tensor):
            if a.dtype.name != str(b.dtype)[6:]:
                return f"dtype {a.dtype.name} for {str(b.dtype)[6:]}"
            a, b, dtype = a.detach().numpy(), array_of(b), str(b.dtype)[6:]
            what = difference(a, b if not random_values else np.broadcast_to(a, b.shape) if a.shape == b.shape else b, dtype, 1, op.name in FREE_SIGNS)
            if what:
                return what
        elif a != b:
            return f"{a} for {b}"
    if not ref_leaves or random_values or op.name in FREE_SIGNS:
        return None
    draw = np.random.RandomState(0)
    weights = [np.asarray(draw.randn(*x.shape) + (1j * draw.randn(*x.shape) if x.is_complex() else 0))
               if isinstance(x, torch.Tensor) and x.requires_grad else None for x in ref]
    if all(w is None for w in weights):
        return None
    try:
        slopes = gradients(ref, ref_leaves, torch, weights)
    except RuntimeError:  # PyTorch has none
        return None
    for a, b, leaf in zip(gradients(got, leaves, cotan.torch, weights), slopes, ref_leaves):
        a = np.zeros(leaf.shape) if a is None else a.numpy()
        what = difference(a, np.zeros(leaf.shape) if b is None else array_of(b), str(leaf.dtype)[6:], 20, False)
        if what:
            return "gradient " + what
    return None


def forms(op):
    """Yields (form, PyTorch's function, Cotan's) of (input, args, kwargs)."""
    def called(function):
        return lambda input, args, kwargs: function(input, *args, **kwargs)

    ours = cotan.torch
    for part in op.name.split("."):
        ours = getattr(ours, part, None)
    if ours is not None:
        yield "function", called(op.op), called(ours)
    elif op.method_variant is None:
        yield "function", None, None
    if op.method_variant is not None and "." not in op.name and not op.name.startswith("__"):
        method = getattr(cotan.Tensor, op.name, None)
        yield "method", called(op.method_variant), called(method) if method else None


def failures(op):
    """Returns {(form, dtype): what is wrong} of an op."""
    wrong = {}
    for dtype, most in SAMPLES.items():
        if getattr(torch, dtype) not in op.dtypes:
            continue
        grad = op.supports_autograd and getattr(torch, dtype) in op.supported_backward_dtypes("cpu")
        torch.manual_seed(0), random.seed(0), np.random.seed(0)
        samples = list(itertools.islice(op.sample_inputs("cpu", getattr(torch, dtype), requires_grad=grad), 64))
        for form, right, ours in forms(op):
            for i in sorted({int(i) for i in np.linspace(0, len(samples) - 1, min(most, len(samples)))}):
                if form == "method" and not isinstance(samples[i].input, torch.Tensor):
                    continue
                try:
                    what = "absent" if ours is None else check(op, samples[i], right, ours)
                except Skipped:
                    continue
                except Exception as error:
                    what = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
                if what:
                    wrong[form, dtype] = re.sub(r"\S*\.py:\d+: ", "", " ".join(what.split()))[:120]
                    break
    return wrong


def known():
    lines = KNOWN.read_text().splitlines()[1:] if KNOWN.exists() else []
    return {tuple(line.split("\t")[:2]): line.split("\t")[2] for line in lines}


OPS = [op for op in op_db if op.variant_test_name == "" and not SKIPPED.search(op.name) and not getattr(op.op, "__module__", "").startswith("torch.testing")]
TAKEN = OPS if os.environ.get("OPINFO") in ("all", "write") else OPS[7::20]
written = {}


@pytest.mark.parametrize("op", TAKEN, ids=[op.name for op in TAKEN])
def test_op(op):
    signal.alarm(120)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrong = failures(op)
    signal.alarm(0)
    if os.environ.get("OPINFO") == "write":
        for (form, dtype), what in wrong.items():
            written[op.name, dtype] = f"{form}: {what}"
        lines = [f"{name}\t{dtype}\t{what}" for (name, dtype), what in sorted(written.items())]
        KNOWN.write_text("\n".join(["op\tdtype\twhat", *lines, ""]))
        return
    table = known()
    new = {key: what for key, what in wrong.items() if (op.name, key[1]) not in table}
    assert not new, f"{op.name}: {new}"
    mended = [dtype for name, dtype in table if name == op.name and not any(key[1] == dtype for key in wrong)]
    assert not mended, f"{op.name} is right for {', '.join(mended)}: its rows of {KNOWN.name} can go"
