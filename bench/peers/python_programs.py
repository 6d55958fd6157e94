"""Programs by PyTorch's names, which run under torch and cotan: what an eager loop costs."""
import numpy as np


def chain(t, compiled):
    """1,000 small ops one after the other, eagerly, and a read."""
    x, found = t.ones(100), []

    def program():
        y = x
        for _ in range(250):
            y = (t.tanh(y * 1.0001 + 0.1)).abs()
        return y.sum()

    def run():
        found[:] = [program().item()]

    return run, lambda: [np.array(found)]


def chain_gradient(t, compiled):
    """1,000 small ops with a history, eagerly, backward, and a read."""
    w, found = t.ones(100, requires_grad=True), []

    def program():
        y = w
        for _ in range(250):
            y = (t.tanh(y * 1.0001 + 0.1)).abs()
        return y.sum()

    def run():
        w.grad = None
        program().backward()
        found[:] = [w.grad.detach().numpy()]

    return run, lambda: [x + 1.0 for x in found]  # the gradient is next to 0


def drawn(*shape, seed):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def filled(t, model):
    with t.no_grad():
        for i, parameter in enumerate(model.parameters()):
            parameter.copy_(t.from_numpy(0.2 * drawn(*parameter.shape, seed=i)))
    return model


def mlp(t, compiled):
    """A step of Adam of 16 - 32 - 1 on 32 samples, whose loss is read every 100 steps."""
    nn = t.nn
    model = filled(t, nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = t.optim.Adam(model.parameters(), lr=1e-6, fused=True)
    x, y = t.from_numpy(drawn(32, 16, seed=10)), t.from_numpy(drawn(32, 1, seed=11))
    found = []

    def loss_of(x, y):
        return nn.functional.mse_loss(model(x), y)

    loss_of = t.compile(loss_of) if compiled else loss_of

    def run():
        optimizer.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        found[:] = [loss]

    return run, lambda: [found[0].detach().numpy()]


EXAMPLES = {"count": 64, "width": 256, "hidden": 256, "classes": 10}


def examples():
    e = EXAMPLES
    return (0.05 * drawn(e["width"], e["hidden"], seed=1), 0.05 * drawn(e["hidden"], e["classes"], seed=2),
            drawn(e["count"], e["width"], seed=3),
            np.eye(e["classes"], dtype=np.float32)[np.arange(e["count"]) % e["classes"]])


def example_gradients(t, compiled):
    """The gradient of each of 64 examples, by vmap of grad."""
    w1, w2, x, y = (t.from_numpy(part) for part in examples())
    found = []

    def loss(weights, x, y):
        logits = t.tanh(x @ weights[0]) @ weights[1]
        return t.logsumexp(logits, -1) - (logits * y).sum()

    gradients = t.func.vmap(t.func.grad(loss), in_dims=(None, 0, 0))
    gradients = t.compile(gradients) if compiled else gradients

    def run():
        found[:] = gradients((w1, w2), x, y)
        found[-1].sum().item()

    return run, lambda: [part.numpy() for part in found]


def example_gradients_jax(jax):
    operands = [jax.numpy.asarray(part) for part in examples()]
    found = []

    def loss(weights, x, y):
        logits = jax.numpy.tanh(x @ weights[0]) @ weights[1]
        return jax.nn.logsumexp(logits, -1) - (logits * y).sum()

    gradients = jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0, 0)))

    def run():
        found[:] = jax.block_until_ready(gradients(operands[:2], *operands[2:]))

    return run, lambda: [np.asarray(part) for part in found]
