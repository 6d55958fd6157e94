"""The step of `build/bench/rows train gpt2` in JAX: one jitted function that is given its weights back."""
import jax
import jax.numpy as jnp
import numpy as np


def weights_of(vocab, context, layers, width):
    draw = np.random.default_rng(1337)

    def matrix(*shape):
        return jnp.asarray(0.02 * draw.standard_normal(shape, dtype=np.float32))

    def vector(n, value):
        return jnp.full((n,), value, jnp.float32)

    def block():
        linear = {name: {"w": matrix(m, n), "b": vector(n, 0)} for name, m, n in (
            ("attn", width, 3 * width), ("proj", width, width), ("fc", width, 4 * width), ("out", 4 * width, width))}
        return linear | {name: {"w": vector(width, 1), "b": vector(width, 0)} for name in ("ln_1", "ln_2")}

    return {"wte": matrix(vocab, width), "wpe": matrix(context, width), "blocks": [block() for _ in range(layers)],
            "ln_f": {"w": vector(width, 1), "b": vector(width, 0)}}


def norm(p, x):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5) * p["w"] + p["b"]


def linear(p, x):
    return x @ p["w"] + p["b"]


def loss_of(weights, x, y, heads):
    B, T = x.shape
    h = weights["wte"][x] + weights["wpe"][:T]  # (B, T, C)
    for p in weights["blocks"]:
        q, k, v = (t.reshape(B, T, heads, -1) for t in jnp.split(linear(p["attn"], norm(p["ln_1"], h)), 3, -1))
        a = jax.nn.dot_product_attention(q, k, v, is_causal=True)  # (B, T, H, D)
        h = h + linear(p["proj"], a.reshape(B, T, -1))
        h = h + linear(p["out"], jax.nn.gelu(linear(p["fc"], norm(p["ln_2"], h))))
    logits = norm(weights["ln_f"], h) @ weights["wte"].T
    right = jnp.take_along_axis(logits, y[..., None], -1)[..., 0]
    return (jax.nn.logsumexp(logits, -1) - right).mean()


def update(state, x, y, heads):
    weights, m, v, count = state
    loss, grads = jax.value_and_grad(loss_of)(weights, x, y, heads)
    squares = sum(jnp.square(g).sum() for g in jax.tree.leaves(grads))
    clip = jnp.minimum(1, 1 / (jnp.sqrt(squares) + 1e-6))
    grads = jax.tree.map(lambda g: g * clip, grads)
    count = count + 1
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)

    def stepped(w, m, v):
        decay = 0.1 if w.ndim > 1 else 0.0
        return w - 1e-3 * (m / (1 - 0.9**count) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-8) + decay * w)
    return (jax.tree.map(stepped, weights, m, v), m, v, count), loss


def trainer(options):
    vocab, batch, context = 50257, options["batch"], options["context"]
    weights = weights_of(vocab, max(1024, context), options["layers"], options["width"])
    zeros = [jax.tree.map(jnp.zeros_like, weights) for _ in range(2)]
    state = [(weights, *zeros, jnp.float32(0))]
    compiled = jax.jit(lambda state, x, y: update(state, x, y, options["heads"]), donate_argnums=0)
    draw = np.random.default_rng(7)

    def step():
        x, y = draw.integers(0, vocab, (2, batch, context), dtype=np.int32)
        state[0], loss = compiled(state[0], x, y)
        jax.block_until_ready(state[0])
        return float(loss)
    return step, jax.__version__
