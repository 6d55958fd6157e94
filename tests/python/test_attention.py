"""Attention that is written out as products and a softmax: the same numbers, gradients, and kernels as the op."""
import support.interpreted  # noqa: F401, I001: before cotan
import math
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import cotan
import cotan.nn.functional as F

B, H, T, D = 2, 4, 70, 8
FIRST = """
import math
import numpy as np, cotan
import cotan.nn.functional as F
rng = np.random.default_rng(0)
q, k, v = (cotan.tensor(rng.standard_normal((2, 4, 70, 8), dtype=np.float32)).requires_grad_() for _ in range(3))
bias = cotan.tensor(rng.standard_normal((70, 70), dtype=np.float32)).requires_grad_()
slopes = cotan.tensor(np.array([0.5, 0.25, 0.1, 0.05], np.float32))
i = cotan.arange(70)
"""

# name: (scores of the plain product, whether a product, a softmax and a product are one op)
VARIANTS = {
    "plain": "s",
    "scaled": "s / math.sqrt(8)",
    "twice": "s * 0.25 * 2",
    "causal": "(s * 0.3).masked_fill(i > i[:, None], -math.inf)",
    "where": "cotan.where(i <= i[:, None], s, -math.inf)",
    "far": "(s * 0.3).masked_fill(i > i[:, None], -1e9)",
    "bias": "s * 0.3 + bias",
    "before": "(s + bias) * 0.3",
    "minus": "s - bias",
    "alibi": "(s / 3 + slopes[:, None, None] * (i - i[:, None])).masked_fill(i > i[:, None], -math.inf)",
    "window": "s.masked_fill((i > i[:, None]) | (i < i[:, None] - 5), -math.inf)",
    "summand": "s + cotan.where(i <= i[:, None], 0.0, -math.inf)",
}
OTHERS = {  # what is no such chain
    "squared": "(s * 0.3) * (s * 0.3)",
    "masked first": "s.masked_fill(i > i[:, None], -5.0) * 0.3",
    "tensors": "s * bias",
}


def numpy_of(text):
    """The result in NumPy, f64."""
    names = {"math": math}
    exec(FIRST, names)
    q, k, v, bias, slopes = (names[name].detach().numpy().astype(np.float64) for name in ("q", "k", "v", "bias", "slopes"))
    i = np.arange(T)

    class Scores(np.ndarray):
        def masked_fill(self, mask, value):
            return np.where(mask, value, np.asarray(self)).view(Scores)

    class Library:
        where = staticmethod(np.where)
    s = (q @ k.swapaxes(-1, -2)).view(Scores)
    s = np.asarray(eval(text, {"s": s, "bias": bias.view(Scores), "slopes": slopes, "i": i, "math": math, "cotan": Library}))
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize("name", [*VARIANTS, *OTHERS])
def test_variants(name):
    text = (VARIANTS | OTHERS)[name]
    names = {}
    exec(FIRST + f"def attend():\n    s = q @ k.transpose(-2, -1)\n    return F.softmax({text}, dim=-1) @ v\ny = attend()\n", names)
    wrt = [names[x] for x in ("q", "k", "v")] + ([names["bias"]] if "bias" in text else [])
    grads = cotan.autograd.grad((names["y"] * names["y"]).sum(), wrt)
    np.testing.assert_allclose(names["y"].detach().numpy(), numpy_of(text), rtol=1e-5, atol=1e-5)
    other = {}  # the softmax is read, so that nothing is put into one
    exec(FIRST + f"s = q @ k.transpose(-2, -1)\np = F.softmax({text}, dim=-1)\ny = p @ v\nt = p.sum()\n", other)
    wrt = [other[x] for x in ("q", "k", "v")] + ([other["bias"]] if "bias" in text else [])
    for got, want in zip(grads, cotan.autograd.grad((other["y"] * other["y"]).sum() + 0 * other["t"], wrt)):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-4)


def groups_of(bodies):
    """What the plan of each is made of, as COTAN_DUMP=groups shows it."""
    text = FIRST + "import sys\n" + "".join(f"sys.stderr.write('\\nBEGIN\\n')\n{textwrap.dedent(body)}\nsys.stderr.flush()\n" for body in bodies)
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True,
                         env=os.environ | {"COTAN_DUMP": "groups"})
    return run.stderr.split("\nBEGIN\n")[1:]


def test_which_are_one_op():
    all_of_them = VARIANTS | OTHERS
    found = groups_of(f"""
        def attend():  # whose names nobody holds in the end
            s = q @ k.transpose(-2, -1)
            return F.softmax({text}, dim=-1) @ v
        y = attend()
        g = cotan.autograd.grad((y * y).sum(), (q, k, v))
        [x.numpy() for x in g]
    """ for text in all_of_them.values())
    made = {name: groups for name, groups in zip(all_of_them, found) if groups.strip()}
    assert len(made) >= 12  # the others have the plan of one before
    for name, groups in made.items():
        assert ("template attention of" in groups) == (name in VARIANTS), name + groups
        assert ("template attention_backward of" in groups) == (name in VARIANTS), name + groups
        assert ("template matmul of" in groups) == (name in OTHERS), name + groups


def test_a_dropout_between_stays_it():
    """The draws are those of the dropout."""
    made = []
    for read in (False, True):
        cotan.manual_seed(3)
        names = {}
        exec(FIRST + "p = F.dropout(F.softmax(q @ k.transpose(-2, -1), dim=-1), 0.4)\ny = p @ v\n", names)
        if read:
            names["p"].numpy()
        made.append(names["y"].detach().numpy())
    np.testing.assert_allclose(made[0], made[1], rtol=1e-4, atol=1e-5)


def test_a_value_that_is_differentiated_stays():
    """The gradient with respect to the probabilities goes through them."""
    names = {}
    exec(FIRST + "p = F.softmax(q @ k.transpose(-2, -1), dim=-1)\ny = (p @ v).sum()\ng, = cotan.autograd.grad(y, (p,))\n", names)
    want = np.broadcast_to(names["v"].detach().numpy().sum(-1)[:, :, None, :], (B, H, T, T))
    np.testing.assert_allclose(names["g"].numpy(), want, rtol=1e-4, atol=1e-4)


def test_weights_that_are_returned_stay():
    groups, = groups_of(["""
        p = F.softmax(q @ k.transpose(-2, -1), dim=-1)
        y = p @ v
        y.numpy(), p.numpy()
    """])
    assert "template attention" not in groups


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"attn_mask": True}])
def test_dropout_of_the_function(options):
    """Kept probabilities are divided by what is kept; the mean over many draws is the result without."""
    rng = np.random.default_rng(1)
    q, k, v = (cotan.tensor(rng.standard_normal((1, 2, 9, 4), dtype=np.float32)) for _ in range(3))
    if options.get("attn_mask"):
        options = {"attn_mask": cotan.tensor(np.tril(np.ones((9, 9), bool)))}
    cotan.manual_seed(0)
    plain = F.scaled_dot_product_attention(q, k, v, **options).numpy()
    many = np.mean([F.scaled_dot_product_attention(q, k, v, dropout_p=0.3, **options).numpy() for _ in range(500)], 0)
    np.testing.assert_allclose(many, plain, atol=0.2)
    assert not np.allclose(F.scaled_dot_product_attention(q, k, v, dropout_p=0.3, **options).numpy(), plain)


MASKED = np.zeros((T, T), bool)
MASKED[:, 65:69] = np.random.default_rng(2).random((T, 4)) < 0.5
MASKED[3] = MASKED[:, :64] = True  # a query that may look nowhere, and a block of keys that no query sees


@pytest.mark.parametrize("text", ["s.masked_fill(hidden, -math.inf)", "s + summand", "(s + summand).masked_fill(hidden, -math.inf)"])
def test_a_row_that_is_masked_is_nan_whatever_is_read(text):
    """As the softmax of PyTorch is, with its gradients: read or not, the probabilities are NaN."""
    made = []
    for read in (False, True):
        names = {"hidden": cotan.tensor(MASKED)}
        exec(FIRST, names)
        names["summand"] = cotan.where(names["hidden"], -math.inf, names["bias"].detach()).requires_grad_()
        exec(f"s = q @ k.transpose(-2, -1)\np = F.softmax({text}, dim=-1)\ny = p @ v\n", names)
        seen = names["y"][:, :, 4:]
        wrt = [names[x] for x in ("q", "k", "v", *(["summand"] if text == "s + summand" else []))]
        if not read:
            names["p"] = names["s"] = None
        made.append([x.detach().numpy() for x in (names["y"], *cotan.autograd.grad(seen.sum(), wrt))])
    (y, q, k, v, *_), _ = made
    assert np.isnan(y[:, :, 3]).all() and not np.isnan(np.delete(y, 3, 2)).any() and np.isnan(v).all()
    assert np.isnan(k).all() == np.isnan(q[:, :, 3]).all() == (text == "s + summand")
    for got, want in zip(*made):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_modules_give_zeros_where_a_query_may_look_nowhere(kind, read):
    cotan.manual_seed(0)
    x, hidden = cotan.randn(2, 3, 4).requires_grad_(), np.array([[True, True, True], [False, True, False]])
    mask = cotan.tensor(hidden if kind == "bool" else np.where(hidden, -np.inf, 0.0).astype(np.float32))
    layer = cotan.nn.MultiheadAttention(4, 2, batch_first=True)
    y, weights = layer(x, x, x, key_padding_mask=mask)
    if read:
        np.testing.assert_allclose(weights.detach().numpy().sum(-1), [[0] * 3, [1] * 3], rtol=1e-6)
        assert not weights.detach().numpy()[0].any()
    del weights
    assert not y.detach().numpy()[0].any() and y.detach().numpy()[1].any()  # biases begin as zeros
    g, = cotan.autograd.grad(y.sum(), (x,))
    assert not g.numpy()[0].any() and g.numpy()[1].all()
    seen = np.tril(np.ones((3, 3), bool), -1)
    of = cotan.tensor(seen if kind == "bool" else np.where(seen, 0.0, -np.inf))  # of f64: another dtype than the queries'
    y = F.scaled_dot_product_attention(x, x, x, attn_mask=of if kind == "bool" else of.to(cotan.float64)).detach().numpy()
    assert not y[:, 0].any() and y[:, 1:].all()
