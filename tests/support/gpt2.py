"""GPT-2 in f64, written as its paper and Hugging Face's model define it, with gradients by JAX; AdamW as PyTorch has it."""
import json
import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")  # a small model runs sooner than it compiles

import jax
import jax.numpy as jnp
import numpy as np
from support import safetensors

jax.config.update("jax_enable_x64", True)


class Config:
    def __init__(self, vocab, context, width, layers, heads):
        self.vocab, self.context, self.width, self.layers, self.heads = vocab, context, width, layers, heads


def shapes(c):
    w = c.width
    block = {"ln_1.weight": (w,), "ln_1.bias": (w,), "attn.c_attn.weight": (w, 3 * w), "attn.c_attn.bias": (3 * w,),
             "attn.c_proj.weight": (w, w), "attn.c_proj.bias": (w,), "ln_2.weight": (w,), "ln_2.bias": (w,),
             "mlp.c_fc.weight": (w, 4 * w), "mlp.c_fc.bias": (4 * w,), "mlp.c_proj.weight": (4 * w, w), "mlp.c_proj.bias": (w,)}
    found = {"wte.weight": (c.vocab, w), "wpe.weight": (c.context, w)}
    found |= {f"h.{i}.{name}": shape for i in range(c.layers) for name, shape in block.items()}
    return found | {"ln_f.weight": (w,), "ln_f.bias": (w,)}


def draw(c, rng, embedding=0.05, scale=0.4):
    """Weights in f32. Embeddings are small, so that the eps of the first norm counts; the others are large enough for
    gelu to bend and attention to choose; zeros and ones would hide what multiplies or adds them."""
    weights = {}
    for name, shape in shapes(c).items():
        size = embedding if name in ("wte.weight", "wpe.weight") else scale
        weights[name] = (rng.normal(0, size, shape) + (1 if "ln_" in name and "weight" in name else 0)).astype(np.float32)
    return weights


def save(folder, c, weights, **more):
    """model.safetensors and config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    safetensors.write(folder / "model.safetensors", weights)
    (folder / "config.json").write_text(json.dumps(
        {"model_type": "gpt2", "vocab_size": c.vocab, "n_positions": c.context, "n_embd": c.width, "n_layer": c.layers,
         "n_head": c.heads, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "resid_pdrop": 0.0,
         "embd_pdrop": 0.0, "attn_pdrop": 0.0, "tie_word_embeddings": True} | more))


def norm(x, weight, bias):
    d = x - x.mean(-1, keepdims=True)
    return d / jnp.sqrt((d * d).mean(-1, keepdims=True) + 1e-5) * weight + bias


def attention(x, p, c):
    batch, time, width = x.shape
    q, k, v = (part.reshape(batch, time, c.heads, -1).transpose(0, 2, 1, 3)
               for part in jnp.split(x @ p("c_attn.weight") + p("c_attn.bias"), 3, -1))
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(width // c.heads)
    scores = jnp.where(np.tril(np.ones((time, time), bool)), scores, -np.inf)
    y = (jax.nn.softmax(scores, -1) @ v).transpose(0, 2, 1, 3).reshape(batch, time, width)
    return y @ p("c_proj.weight") + p("c_proj.bias")


def mlp(x, p):
    h = x @ p("c_fc.weight") + p("c_fc.bias")
    h = 0.5 * h * (1 + jnp.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
    return h @ p("c_proj.weight") + p("c_proj.bias")


def logits(weights, tokens, c):
    """tokens (B, T) -> (B, T, vocab)"""
    x = weights["wte.weight"][tokens] + weights["wpe.weight"][:tokens.shape[1]]
    for i in range(c.layers):
        def of(part): return lambda name: weights[f"h.{i}.{part}{name}"]
        x = x + attention(norm(x, of("ln_1.")("weight"), of("ln_1.")("bias")), of("attn."), c)
        x = x + mlp(norm(x, of("ln_2.")("weight"), of("ln_2.")("bias")), of("mlp."))
    return norm(x, weights["ln_f.weight"], weights["ln_f.bias"]) @ weights["wte.weight"].T


def loss(weights, tokens, targets, c):
    """And the logits."""
    z = logits(weights, tokens, c)
    return -jnp.take_along_axis(jax.nn.log_softmax(z, -1), targets[..., None], -1).mean(), z


def in_double(weights):
    return {name: jnp.asarray(w, jnp.float64) for name, w in weights.items()}


jitted = jax.jit(logits, static_argnums=2)
# ((loss, logits), gradients)
loss_and_gradients = jax.jit(jax.value_and_grad(loss, has_aux=True), static_argnums=3)


def train(weights, tokens, targets, c, lr, beta1, beta2, eps, decay, clip):
    """The loss before each step, and the weights after the last: matrices decay."""
    first = {name: 0.0 for name in weights}
    second, losses = dict(first), []
    for step, (x, y) in enumerate(zip(tokens, targets), 1):
        (value, _), gradients = loss_and_gradients(weights, x, y, c)
        losses.append(float(value))
        size = np.sqrt(sum(float((g * g).sum()) for g in gradients.values()))
        for name, g in gradients.items():
            g = g * min(1.0, clip / (size + 1e-6))
            first[name] = beta1 * first[name] + (1 - beta1) * g
            second[name] = beta2 * second[name] + (1 - beta2) * g * g
            update = (first[name] / (1 - beta1**step)) / (np.sqrt(second[name] / (1 - beta2**step)) + eps)
            if weights[name].ndim >= 2:
                update = update + decay * weights[name]
            weights = weights | {name: weights[name] - lr * update}
    return losses, weights
