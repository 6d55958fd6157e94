"""cotan.checkpoint and cotan.utils.checkpoint: gradients are those of the plain function, memory is less."""
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


def steps(how, layers=24, n=32, rows=256, turns=3):
    """Gradients of the last of some steps, and the bytes of temporaries that its plan has."""
    blocks, x = net(layers, n), cotan.asarray(RNG.standard_normal((rows, n)).astype("float32"))
    cotan.manual_seed(1)
    for _ in range(turns):
        for parameter in blocks.parameters():
            parameter.grad = None
        cotan.eval()
        before = cotan.stats()["arena_bytes"]
        h = x
        for block in blocks:
            h = how(block, h)
        loss = (h * h).mean()
        loss.backward()
        cotan.eval()
    return [parameter.grad.numpy() for parameter in blocks.parameters()], before, cotan.stats()["arena_bytes"]


PLAIN = "import tests"


@pytest.mark.parametrize("name", ["cotan.checkpoint", "utils"])
def test_less_memory(name):
    """24 layers keep at most 40 % of what plain ones keep, and the gradients are the same. Dropout draws the same numbers."""
    import json
    import os
    import subprocess
    import sys
    program = """
import json, sys
import numpy as np
import python.test_checkpoint as t, cotan
hows = {"plain": lambda f, x: f(x), "utils": t.checkpoint, "cotan.checkpoint": lambda f, x: cotan.checkpoint(f)(x)}
t.RNG = np.random.default_rng(8)
grads, _, arena = t.steps(hows[sys.argv[1]])
np.savez(sys.argv[2], *grads)
print(json.dumps({"arena": arena, "most": cotan.stats()["most_memory"]}))
"""
    import tempfile
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for how in ("plain", name):
            path = os.path.join(folder, how + ".npz")
            done = subprocess.run([sys.executable, "-c", program, how, path], capture_output=True, text=True, check=True)
            with np.load(path) as arrays:
                found[how] = json.loads(done.stdout), [arrays[key] for key in arrays.files]
    for a, b in zip(found[name][1], found["plain"][1]):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6 * np.abs(b).max())
    print(found[name][0], found["plain"][0])
    assert found[name][0]["arena"] <= 0.4 * found["plain"][0]["arena"]
