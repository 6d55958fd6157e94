"""cotan.checkpoint and cotan.utils.checkpoint: gradients are those of the plain function, memory is less."""
import support.interpreted  # noqa: F401, I001: before cotan
import subprocess
import sys

import cotan
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cotan import nn
from cotan.utils.checkpoint import checkpoint, checkpoint_sequential

jax.config.update("jax_enable_x64", True)
RNG = np.random.default_rng(8)
X, W = RNG.standard_normal((4, 3)), RNG.standard_normal((3, 3))


def near(ours, theirs, tolerance=1e-9):
    np.testing.assert_allclose(ours.detach().numpy(), np.asarray(theirs), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("how", [lambda fun: cotan.checkpoint(fun), lambda fun: lambda *args: checkpoint(fun, *args)])
def test_derivatives_of_functions(how):
    """First and second derivatives, inside of vmap, of arguments and of what is closed over, against jax."""
    def program(lib, xp, how, x, w):
        block = how(lambda x, w: {"y": xp.tanh(x @ w), "n": (x * x).sum()})

        def loss(x, w):
            first = block(x, w)
            return (block(first["y"] * x, w)["y"] * first["n"]).sum()

        second = lib.grad(lambda x: (lib.grad(loss)(x, w) ** 2).sum())
        over = lib.grad(lambda w: (how(lambda x: xp.sin(x @ w))(x) * x).sum())
        return [loss(x, w), *lib.grad(loss, argnums=(0, 1))(x, w), second(x), over(w), lib.vmap(lib.grad(lambda row: loss(row, w)))(x),
                lib.grad(lambda x: lib.vmap(lambda row: loss(row, w))(x).sum())(x)]

    ours = program(cotan, cotan, how, cotan.asarray(X), cotan.asarray(W))
    for a, b in zip(ours, program(jax, jnp, jax.checkpoint, jnp.asarray(X), jnp.asarray(W))):
        near(a, b)
    assert not any(one.requires_grad for one in ours)


class Block(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm, self.up, self.down, self.drop = nn.LayerNorm(n), nn.Linear(n, 4 * n), nn.Linear(4 * n, n), nn.Dropout(0.1)

    def forward(self, x):
        return x + self.drop(self.down(nn.functional.gelu(self.up(self.norm(x)))))


def net(layers, n):
    cotan.manual_seed(0)
    return nn.ModuleList([Block(n) for _ in range(layers)])


HOWS = {"plain": lambda block, x: block(x), "utils": checkpoint, "jax": lambda block, x: cotan.checkpoint(block)(x)}


def steps(how, layers=24, n=32, rows=256):
    """Of some training steps: the last gradients; prints the bytes of temporaries that their plans have."""
    blocks, x = net(layers, n), cotan.asarray(np.random.default_rng(8).standard_normal((rows, n)).astype("float32"))
    cotan.manual_seed(1)
    for turn in range(4):
        for parameter in blocks.parameters():
            parameter.grad = None
        h = x
        for block in blocks:
            h = HOWS[how](block, h)
        loss = (h * h).mean()
        loss.backward()
        cotan.eval()
        if turn == 2:
            plans = cotan.stats()["plans_made"]
    assert cotan.stats()["plans_made"] == plans
    return [parameter.grad.numpy() for parameter in blocks.parameters()]


def run_apart(how, folder):
    """In a process of its own, whose arenas no other plan has: its gradients, and the bytes of its arenas."""
    program = ("import sys, numpy as np, cotan, python.test_checkpoint as t\n"
               "np.savez(sys.argv[2], *t.steps(sys.argv[1]))\nprint(cotan.stats()['arena_bytes'])")
    path = str(folder / f"{how}.npz")
    done = subprocess.run([sys.executable, "-c", program, how, path], capture_output=True, text=True, check=True)
    with np.load(path) as arrays:
        return [arrays[key] for key in arrays.files], int(done.stdout)


def test_less_memory(tmp_path):
    """24 layers keep at most 40 % of what plain ones keep; gradients are the same, and dropout draws the same numbers."""
    plain, most = run_apart("plain", tmp_path)
    for how in ("utils", "jax"):
        grads, bytes_ = run_apart(how, tmp_path)
        for a, b in zip(grads, plain):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6 * np.abs(b).max())
        assert bytes_ <= 0.4 * most


def test_values_are_real_both_times(capsys):
    def block(x):
        print("sum", x.sum().item())
        return x * (2 if x.sum().item() > 0 else 3)

    x = cotan.asarray([1.0, 2.0]).requires_grad_()
    checkpoint(block, x, use_reentrant=False).sum().backward()
    assert x.grad.tolist() == [2, 2] and capsys.readouterr().out == "sum 3.0\nsum 3.0\n"
    assert not checkpoint(block, x.detach()).requires_grad
    with pytest.raises(cotan.TraceError, match="a value is read inside a traced function"):
        cotan.checkpoint(block)(x)


def test_what_is_no_tensor():
    x = cotan.asarray(X).requires_grad_()
    for how in (lambda f, *a, **o: checkpoint(f, *a, **o), lambda f, *a, **o: cotan.checkpoint(f)(*a, **o)):
        x.grad = None
        y, name, nothing = how(lambda x, n, w=None: (x ** n * (w or 1), cotan.argmax(x), None), x, 3, w=2.0)
        y.sum().backward()
        near(x.grad, 6 * X * X)
        assert name.item() == X.argmax() and nothing is None
    x.grad = None
    cotan.checkpoint(lambda n, x: x ** n, static_argnums=0)(3, x).sum().backward()
    near(x.grad, 3 * X * X)
    with pytest.raises(ValueError) as error:
        cotan.checkpoint(np.sin, policy="dots")
    assert str(error.value) == "checkpoint: policies are not supported; everything between arguments and results is recomputed"


def test_a_layer_that_writes_its_statistics():
    """BatchNorm in a checkpoint runs twice, as in PyTorch; the last segment of a sequence once."""
    norm = nn.BatchNorm1d(3)
    x = cotan.asarray(X.astype("float32")).requires_grad_()
    checkpoint(norm, x).sum().backward()
    assert norm.num_batches_tracked.item() == 2
    layers = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    found = []
    for run in (layers, lambda x: checkpoint_sequential(layers, 2, x, use_reentrant=False)):
        layers.zero_grad()
        run(x).sum().backward()
        found.append([parameter.grad.numpy() for parameter in layers.parameters()])
    for a, b in zip(*found):
        np.testing.assert_allclose(a, b, rtol=1e-6)
