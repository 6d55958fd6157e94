"""Autocasting and loss scaling beside PyTorch's: the dtype of each op's result, and the scale over injected infinities."""
import contextlib
import re
from pathlib import Path

import cotan
import numpy as np
import pytest
import torch

pytestmark = pytest.mark.skipif(not hasattr(torch.amp, "GradScaler"), reason="Needs PyTorch 2")
RNG = np.random.default_rng(14)
# Of each: PyTorch's name in its lists, how both libraries call it, the operands' shapes.
OPS = {
    "matmul": (lambda t, a, b: t.matmul(a, b), (3, 4), (4, 5)),
    "bmm": (lambda t, a, b: t.bmm(a, b), (2, 3, 4), (2, 4, 5)),
    "mm": (lambda t, a, b: t.mm(a, b), (3, 4), (4, 5)),
    "mv": (lambda t, a, b: t.mv(a, b), (3, 4), (4,)),
    "einsum": (lambda t, a, b: t.einsum("ij,jk->ik", a, b), (3, 4), (4, 5)),
    "linear": (lambda t, a, b, c: t.nn.functional.linear(a, b, c), (3, 4), (5, 4), (5,)),
    "conv1d": (lambda t, a, b, c: t.nn.functional.conv1d(a, b, c), (1, 2, 8), (3, 2, 3), (3,)),
    "conv2d": (lambda t, a, b, c: t.nn.functional.conv2d(a, b, c), (1, 2, 8, 8), (3, 2, 3, 3), (3,)),
    "conv3d": (lambda t, a, b, c: t.nn.functional.conv3d(a, b, c), (1, 2, 4, 4, 4), (3, 2, 3, 3, 3), (3,)),
    "conv_transpose1d": (lambda t, a, b: t.nn.functional.conv_transpose1d(a, b), (1, 2, 8), (2, 3, 3)),
    "conv_transpose2d": (lambda t, a, b: t.nn.functional.conv_transpose2d(a, b), (1, 2, 8, 8), (2, 3, 3, 3)),
    "prelu": (lambda t, a, b: t.nn.functional.prelu(a, b), (3, 4), (1,)),
    "linalg_vecdot": (lambda t, a, b: t.linalg.vecdot(a, b), (3, 4), (3, 4)),
    "linalg_multi_dot": (lambda t, a, b: t.linalg.multi_dot([a, b]), (3, 4), (4, 5)),
    "scaled_dot_product_attention": (lambda t, a, b, c: t.nn.functional.scaled_dot_product_attention(a, b, c),
                                     (1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)),
    "softmax": (lambda t, a: t.nn.functional.softmax(a, -1), (3, 4)),
    "log_softmax": (lambda t, a: t.nn.functional.log_softmax(a, -1), (3, 4)),
    "layer_norm": (lambda t, a: t.nn.functional.layer_norm(a, (4,)), (3, 4)),
    "rms_norm": (lambda t, a: t.nn.functional.rms_norm(a, (4,)), (3, 4)),
    "group_norm": (lambda t, a: t.nn.functional.group_norm(a, 2), (3, 4, 5)),
    "batch_norm": (lambda t, a: t.nn.functional.batch_norm(a, t.zeros(4), t.ones(4), t.ones(4), t.zeros(4), True), (3, 4, 5)),
    "pow": (lambda t, a: t.pow(a, 2.0), (3, 4)),
    "prod": (lambda t, a: t.prod(a, 0), (3, 4)),
    "sum": (lambda t, a: t.sum(a), (3, 4)),
    "mean": (lambda t, a: t.mean(a), (3, 4)),
    "cumsum": (lambda t, a: t.cumsum(a, 0), (3, 4)),
    "cumprod": (lambda t, a: t.cumprod(a, 0), (3, 4)),
    "logsumexp": (lambda t, a: t.logsumexp(a, 0), (3, 4)),
    "linalg_vector_norm": (lambda t, a: t.linalg.vector_norm(a), (3, 4)),
    "linalg_matrix_norm": (lambda t, a: t.linalg.matrix_norm(a), (3, 4)),
    "softplus": (lambda t, a: t.nn.functional.softplus(a), (3, 4)),
    "quantile": (lambda t, a: t.quantile(a, 0.5), (3, 4)),
    "trace": (lambda t, a: t.trace(a), (3, 3)),
    "linalg_inv": (lambda t, a: t.linalg.inv(a), (3, 3)),
    "linalg_solve": (lambda t, a, b: t.linalg.solve(a, b), (3, 3), (3, 2)),
    "linalg_svdvals": (lambda t, a: t.linalg.svdvals(a), (3, 3)),
    "linalg_eigvalsh": (lambda t, a: t.linalg.eigvalsh(a), (3, 3)),
    "linalg_qr": (lambda t, a: t.linalg.qr(a)[0], (3, 3)),
    "linalg_svd": (lambda t, a: t.linalg.svd(a)[1], (3, 3)),
    "mse_loss": (lambda t, a, b: t.nn.functional.mse_loss(a, b), (3, 4), (3, 4)),
    "l1_loss": (lambda t, a, b: t.nn.functional.l1_loss(a, b), (3, 4), (3, 4)),
    "smooth_l1_loss": (lambda t, a, b: t.nn.functional.smooth_l1_loss(a, b), (3, 4), (3, 4)),
    "huber_loss": (lambda t, a, b: t.nn.functional.huber_loss(a, b), (3, 4), (3, 4)),
    "kl_div": (lambda t, a, b: t.nn.functional.kl_div(a, b, reduction="sum"), (3, 4), (3, 4)),
    "poisson_nll_loss": (lambda t, a, b: t.nn.functional.poisson_nll_loss(a, b), (3, 4), (3, 4)),
    "soft_margin_loss": (lambda t, a, b: t.nn.functional.soft_margin_loss(a, b), (3, 4), (3, 4)),
    "hinge_embedding_loss": (lambda t, a, b: t.nn.functional.hinge_embedding_loss(a, b), (3, 4), (3, 4)),
    "margin_ranking_loss": (lambda t, a, b, c: t.nn.functional.margin_ranking_loss(a, b, c), (4,), (4,), (4,)),
    "triplet_margin_loss": (lambda t, a, b, c: t.nn.functional.triplet_margin_loss(a, b, c), (3, 4), (3, 4), (3, 4)),
    "cosine_similarity": (lambda t, a, b: t.nn.functional.cosine_similarity(a, b), (3, 4), (3, 4)),
    "binary_cross_entropy_with_logits": (lambda t, a, b: t.nn.functional.binary_cross_entropy_with_logits(a, b), (3, 4), (3, 4)),
    "nll_loss": (lambda t, a: t.nn.functional.nll_loss(a, t.tensor([0, 1, 2])), (3, 4)),
    "cross_entropy_loss": (lambda t, a: t.nn.functional.cross_entropy(a, t.tensor([0, 1, 2])), (3, 4)),
    "cdist": (lambda t, a, b: t.cdist(a, b), (3, 4), (5, 4)),
    "atan2": (lambda t, a, b: t.atan2(a, b), (3, 4), (3, 4)),
    "max_pool2d": (lambda t, a: t.nn.functional.max_pool2d(a, 2), (1, 2, 4, 4)),
    "avg_pool2d": (lambda t, a: t.nn.functional.avg_pool2d(a, 2), (1, 2, 4, 4)),
    "adaptive_avg_pool2d": (lambda t, a: t.nn.functional.adaptive_avg_pool2d(a, 1), (1, 2, 4, 4)),
    "embedding": (lambda t, a: t.nn.functional.embedding(t.tensor([0, 2]), a), (3, 4)),
    "max": (lambda t, a: t.amax(a), (3, 4)),
    "var": (lambda t, a: t.var(a), (3, 4)),
    "where": (lambda t, a, b: t.where(a > 0, a, b), (3, 4), (3, 4)),
}
for name in ("acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh",
             "tan", "sin", "cos", "sqrt", "abs", "sigmoid", "tanh", "square", "erf", "floor"):
    OPS[name] = (lambda t, a, name=name: getattr(t, name)(a), (3, 4))
for name in ("relu", "gelu", "silu", "leaky_relu", "elu", "hardtanh", "mish", "selu"):
    OPS[name] = (lambda t, a, name=name: getattr(t.nn.functional, name)(a), (3, 4))
for name in ("add", "sub", "mul", "div", "maximum", "minimum"):
    OPS[name] = (lambda t, a, b, name=name: getattr(t, name)(a, b), (3, 4), (3, 4))
for name in ("cat", "stack"):
    OPS[name] = (lambda t, a, b, name=name: getattr(t, name)([a, b]), (3, 4), (3, 4))


def cuda_lists():
    """The documented lists, as PyTorch's header has them: name -> "low", "float32" or "promote"."""
    text = (Path(torch.__file__).parent / "include/ATen/autocast_mode.h").read_text()
    lists = {}
    for name, kind in (("LOWER_PRECISION_FP", "low"), ("FP32", "float32"), ("FP32_SET_OPT_DTYPE", "float32"), ("PROMOTE", "promote")):
        part = re.search(rf"#define AT_FORALL_{name}\(_\)((?:.*\\\n)*.*)", text).group(1)
        lists |= {op: kind for op in re.findall(r"_\((\w+)", part)}
    return lists


def dtype_of(lib, name, operands, low, autocast):
    """Of the result: its name; None where the library refuses the dtypes."""
    run, *shapes = OPS[name]
    tensors = [lib.tensor(RNG.uniform(0.2, 0.8, shape).astype("float32")).to(getattr(lib, d)) for shape, d in zip(shapes, operands)]
    try:
        with lib.autocast("cpu", dtype=getattr(lib, low)) if autocast else contextlib.nullcontext():
            return repr(run(lib, *tensors).dtype).rpartition(".")[2]
    except (RuntimeError, NotImplementedError):
        return None


# PyTorch's wrapper of these for CUDA takes parts of what is a function of Python, or other names, there.
CUDA_NAME = {"cross_entropy_loss": "nll_loss"}


@pytest.mark.parametrize("low", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", sorted(OPS))
def test_dtypes_are_pytorch_s(name, low):
    n = len(OPS[name]) - 1
    kind = cuda_lists().get(CUDA_NAME.get(name, name))
    for operands in [("float32",) * n, (low,) * n] + ([(low,) + ("float32",) * (n - 1)] if n > 1 else []):
        ours, theirs = dtype_of(cotan, name, operands, low, True), dtype_of(torch, name, operands, low, True)
        if kind and name not in ("cat", "stack"):  # in CUDA's lists; the CPU's say the same or nothing
            wanted = {"low": low, "float32": "float32", "promote": "float32" if "float32" in operands else low}[kind]
            plain = dtype_of(torch, name, operands, low, False)
            assert theirs in (wanted, plain, None), f"PyTorch's own lists differ in {name} of {operands}: {theirs}"
        else:
            wanted = theirs
        assert wanted is None or ours == wanted, f"{name} of {operands}: {ours}, PyTorch's is {wanted}"


def test_nothing_is_cast_outside():
    for name in ("matmul", "exp", "cat"):
        assert dtype_of(cotan, name, ("bfloat16",) * (len(OPS[name]) - 1), "bfloat16", False) == "bfloat16"


@pytest.mark.parametrize("options", [{}, {"growth_interval": 2}, {"init_scale": 8.0, "growth_factor": 3.3, "backoff_factor": 0.3,
                                                                   "growth_interval": 3}, {"enabled": False},
                                     {"init_scale": 2.0**127, "growth_interval": 1}])
@pytest.mark.parametrize("unscale", [False, True])
def test_scales_over_infinities(options, unscale):
    """Scale, state and parameters after each step, of which some have gradients that are not finite."""
    seen = []
    bad = RNG.random(30) < 0.3
    for lib in (cotan, torch):
        w = lib.nn.Parameter(lib.tensor([1.0, 2.0]))
        optimizer, scaler = lib.optim.SGD([w], lr=0.125), lib.amp.GradScaler("cpu", **options)
        rows = []
        for step in range(30):
            optimizer.zero_grad()
            loss = (w * lib.tensor([0.5, float("inf") if bad[step] and options.get("enabled", True) else 0.25])).sum()
            scaler.scale(loss).backward()
            if unscale:
                scaler.unscale_(optimizer)
                lib.nn.utils.clip_grad_norm_([w], 0.25)
            scaler.step(optimizer)
            scaler.update()
            rows.append((scaler.get_scale(), scaler.state_dict(), w.detach().numpy().tolist()))
        other = lib.amp.GradScaler("cpu", **options)
        other.load_state_dict(scaler.state_dict())
        seen.append((rows, other.state_dict()))
    assert seen[0] == seen[1]


def test_errors_are_pytorch_s():
    for lib in (cotan, torch):
        w = lib.nn.Parameter(lib.tensor([1.0]))
        optimizer, scaler = lib.optim.SGD([w], lr=0.1), lib.amp.GradScaler("cpu")
        with pytest.raises(AssertionError, match="Attempted step but _scale is None"):
            scaler.step(optimizer)
        scaler.scale(w.sum()).backward()
        scaler.unscale_(optimizer)
        with pytest.raises(RuntimeError, match=r"unscale_\(\) has already been called on this optimizer since the last update\(\)\."):
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        with pytest.raises(RuntimeError, match=r"step\(\) has already been called since the last update\(\)\."):
            scaler.step(optimizer)
        with pytest.raises(RuntimeError, match=r"unscale_\(\) is being called after step\(\)\."):
            scaler.unscale_(optimizer)
        scaler.update()
        with pytest.raises(AssertionError, match="No inf checks were recorded prior to update"):
            scaler.update()
