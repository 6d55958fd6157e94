"""The benchmark `programs` in JAX: each program of bench/rows_programs.c as one would write it there, by its name.

Of the operands a function gets arrays; what it gives back is a result or a tuple of them.
"""
import re
from pathlib import Path


def programs(jax):
    jnp, lax, nn = jax.numpy, jax.lax, jax.nn

    def padded(x, by):
        return jnp.pad(x, [(0, 0), (0, 0), (by, by), (by, by)])

    def window(p, y, x):
        return p[:, :, y:p.shape[2] - 2 + y, x:p.shape[3] - 2 + x]

    def gelu(x):
        return nn.gelu(x, approximate=True)

    def layer_norm(x, weight, bias):
        m = x.mean(-1, keepdims=True)
        v = jnp.square(x - m).mean(-1, keepdims=True)
        return (x - m) * lax.rsqrt(v + 1e-5) * weight + bias

    def standardised(x, axes):
        m = x.mean(axes, keepdims=True)
        v = jnp.square(x - m).mean(axes, keepdims=True)
        return (x - m) * lax.rsqrt(v + 1e-5)

    # ---------------------------------------------------------------------------------- pictures

    def preprocess(x, mean, deviation):
        return jnp.transpose((x.astype(jnp.float32) / 255 - mean) / deviation, (0, 3, 1, 2))

    def crop_flip(x, mean, deviation):
        return preprocess(jnp.flip(x[:, 16:240, 16:240], 2), mean, deviation)

    def resize(x):
        at = (jnp.arange(160).astype(jnp.float32) * 0.8).astype(jnp.int32)
        return x[:, :, at][:, :, :, at]

    def upsample(x, y):
        return jnp.repeat(jnp.repeat(x, 2, 2), 2, 3) + y

    def pixel_shuffle(x):
        x = x.reshape(8, 16, 2, 2, 64, 64).transpose(0, 1, 4, 2, 5, 3)
        return nn.relu(x.reshape(8, 16, 128, 128))

    def colours(x):
        r, g, b = x[..., 0:1], x[..., 1:2], x[..., 2:3]
        y = r * 0.299 + g * 0.587 + b * 0.114
        return jnp.concatenate([y, (b - y) * 0.492, (r - y) * 0.877], 3)

    def histogram(x):
        return nn.one_hot(x, 32).sum(0)

    # ------------------------------------------------------------------------------------ windows

    def depthwise(x, w):
        p = padded(x, 1)
        return sum(window(p, k // 3, k % 3) * w[k].reshape(32, 1, 1) for k in range(9))

    def im2col(x, w):
        p = padded(x, 1)
        return w @ jnp.concatenate([window(p, k // 3, k % 3) for k in range(9)], 1).reshape(8, 144, 4096)

    def im2col_of_gelu(x, w, scale, shift):
        return im2col(gelu(x * scale + shift), w)

    def nine_padded(x):
        h, w = x.shape[2:]

        def moved(dy, dx):
            part = x[:, :, max(dy, 0):h + min(dy, 0), max(dx, 0):w + min(dx, 0)]
            return jnp.pad(part, [(0, 0), (0, 0), (max(-dy, 0), max(dy, 0)), (max(-dx, 0), max(dx, 0))])
        return jnp.concatenate([moved(k // 3 - 1, k % 3 - 1) for k in range(9)], 1)

    def frames(x, w):
        return x[:, jnp.arange(398)[:, None] * 160 + jnp.arange(400)] * w

    def by_slices(x):
        top, low = x[:, :, 0::2], x[:, :, 1::2]
        return jnp.maximum(jnp.maximum(top[..., 0::2], top[..., 1::2]), jnp.maximum(low[..., 0::2], low[..., 1::2]))

    def by_reshape(x):
        return x.reshape(8, 32, 32, 2, 32, 2).max((3, 5))

    def gradient_of(pool):
        return lambda x, dy: jax.grad(lambda x: (pool(x) * dy).sum())(x)

    # ----------------------------------------------------------------------------- padding, joining

    def joined_last(x):
        return jnp.concatenate([x[2048 * i:2048 * (i + 1)] * (i + 1.0) for i in range(16)], 1)

    def joined_first(x):
        return jnp.concatenate([jnp.tanh(x[2048 * i:2048 * (i + 1)] * (i + 1.0)) for i in range(16)], 0)

    def stack(x):
        return jnp.stack([x * i if i % 2 else jnp.square(x) + i for i in range(8)], 1)

    def joined_two(a, b, c):
        return jnp.concatenate([nn.silu(a), nn.silu(b)], 1) + c

    # ------------------------------------------------------------------------------------- stencils

    def blur(x):
        x = padded(x, 2)
        for axis in (2, 3):
            n = x.shape[axis] - 4
            x = sum(lax.slice_in_dim(x, k, n + k, axis=axis) * (w / 16) for k, w in enumerate((1, 4, 6, 4, 1)))
        return x

    def sobel(x):
        p = padded(x, 1)
        w = [window(p, k // 3, k % 3) for k in range(9)]
        gx = w[2] - w[0] + (w[5] - w[3]) * 2 + (w[8] - w[6])
        gy = w[6] - w[0] + (w[7] - w[1]) * 2 + (w[8] - w[2])
        return jnp.sqrt(jnp.square(gx) + jnp.square(gy))

    def heat(x):
        for _ in range(4):
            p = padded(x, 1)
            near = window(p, 0, 1) + window(p, 2, 1) + window(p, 1, 0) + window(p, 1, 2)
            x = x + (near - x * 4) * 0.2
        return x

    def rolled(x):
        for _ in range(4):
            near = jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0) + jnp.roll(x, 1, 1) + jnp.roll(x, -1, 1)
            x = x * 0.2 + near * 0.2
        return x

    def moving_mean(x):
        s = jnp.pad(jnp.cumsum(x, 1), [(0, 0), (1, 0)])
        return (s[:, 16:] - s[:, :-16]) / 16

    # ---------------------------------------------------------------------------------- recurrences

    def elman(x, w, u, b):
        h = jnp.zeros((64, 128))
        for t in range(8):
            h = jnp.tanh(x[:, t] @ w + h @ u + b)
        return h

    def gru(x, w, u, bias):
        h, hs = jnp.zeros((64, 128)), []
        for t in range(6):
            a, b = jnp.split(x[:, t] @ w + bias, 3, 1), jnp.split(h @ u, 3, 1)
            r, z = nn.sigmoid(a[0] + b[0]), nn.sigmoid(a[1] + b[1])
            h = (1 - z) * jnp.tanh(a[2] + r * b[2]) + z * h
            hs.append(h)
        return jnp.stack(hs, 1)

    def lstm(x, w):
        h = c = jnp.zeros((64, 128))
        for t in range(6):
            i, f, o, u = jnp.split(jnp.concatenate([x[:, t], h], 1) @ w, 4, 1)
            c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(u)
            h = nn.sigmoid(o) * jnp.tanh(c)
        return h, c

    # ------------------------------------------------------------------------- tables and positions

    def one_hot_loss(x, labels):
        return -(nn.one_hot(labels, 512) * nn.log_softmax(x)).sum(-1).mean()

    def sinusoids(x):
        at = jnp.arange(256.0)[:, None] * jnp.exp(jnp.arange(128.0) * -0.07)
        return x + jnp.stack([jnp.sin(at), jnp.cos(at)], 2).reshape(256, 256)

    def rotary_halves(x, c, s):
        return x * c + jnp.concatenate([-x[..., 32:], x[..., :32]], 3) * s

    def rotary_pairs(x, c, s):
        x = x.reshape(4, 8, 256, 32, 2)
        a, b = x[..., :1], x[..., 1:]
        return jnp.concatenate([a * c - b * s, a * s + b * c], 4).reshape(4, 8, 256, 64)

    def shuffled(x):
        return x[(jnp.arange(256)[:, None] * 2 + jnp.arange(8) * 33) % 512] * 2

    # ------------------------------------------------------------------------------ norms and masks

    def group_norm(x, weight, bias):
        return standardised(x.reshape(8, 4, 8, 64, 64), (2, 3, 4)).reshape(8, 32, 64, 64) * weight + bias

    def layer_norm_grad(x, weight, bias, dy):
        return jax.grad(lambda *of: (layer_norm(*of) * dy).sum(), (0, 1, 2))(x, weight, bias)

    def causal(x):
        i = jnp.arange(256)
        return nn.softmax(jnp.where(i <= i[:, None], x * 0.125, -1e9), -1)

    def masked_mean(x, lengths):
        inside = jnp.arange(512)[None, :, None] < lengths
        return jnp.where(inside, x, 0).sum(1) / lengths.reshape(16, 1).astype(jnp.float32)

    def dropouts(x):
        for i in range(2):
            y = gelu(x)
            x = x + jnp.where(jax.random.bernoulli(jax.random.key(i), 0.9, y.shape), y / 0.9, 0)
        return x

    def loss_gradient(x, labels):
        rows = jnp.arange(1024)
        return jax.grad(lambda x: (nn.logsumexp(x, -1) - x[rows, labels]).mean())(x)

    def standardise(x):
        return (x - x.mean(0)) / jnp.sqrt(x.var(0) + 1e-8)

    return {
        "preprocess": preprocess,
        "crop and flip": crop_flip,
        "resize": resize,
        "upsample": upsample,
        "pixel shuffle": pixel_shuffle,
        "colours": colours,
        "histogram": histogram,
        "depthwise by slices": depthwise,
        "im2col": im2col,
        "im2col of a gelu": im2col_of_gelu,
        "nine padded slices": nine_padded,
        "frames": frames,
        "pool by slices": by_slices,
        "pool by slices, gradient": gradient_of(by_slices),
        "pool by reshape": by_reshape,
        "pool by reshape, gradient": gradient_of(by_reshape),
        "mean pool by reshape": lambda x: x.reshape(8, 32, 16, 4, 16, 4).mean((3, 5)),
        "global pool": lambda x: x.mean((2, 3)),
        "pad and relu": lambda x: nn.relu(padded(x, 3)),
        "gelu and pad": lambda x: padded(gelu(x), 2),
        "pad by reflection": lambda x: jnp.pad(x, [(0, 0), (0, 0), (3, 3), (3, 3)], mode="reflect"),
        "pad around": lambda x: jnp.pad(x, [(0, 0), (0, 0), (2, 2), (2, 2)], mode="wrap"),
        "concat of 16, last axis": joined_last,
        "concat of 16, first axis": joined_first,
        "stack of 8": stack,
        "concat of two": joined_two,
        "blur": blur,
        "sobel": sobel,
        "heat by slices": heat,
        "heat by roll": rolled,
        "moving mean": moving_mean,
        "elman": elman,
        "gru": gru,
        "lstm": lstm,
        "one-hot product": lambda ids, table: nn.one_hot(ids, 512) @ table,
        "one-hot loss": one_hot_loss,
        "embedding": lambda ids, table, places, weight, bias: layer_norm(table[ids] + places, weight, bias),
        "sinusoids": sinusoids,
        "rotary by halves": rotary_halves,
        "rotary by pairs": rotary_pairs,
        "shuffled rows": shuffled,
        "batch norm": lambda x, weight, bias: nn.relu(standardised(x, (0, 2, 3)) * weight + bias),
        "channel statistics": lambda x: (x.mean((0, 2, 3)), jnp.square(x).mean((0, 2, 3))),
        "batch norm, channels last": lambda x: standardised(x, (0, 1, 2)),
        "instance norm": lambda x: standardised(x, (2, 3)),
        "group norm": group_norm,
        "layer norm and gelu": lambda x, weight, bias: gelu(layer_norm(x, weight, bias)),
        "layer norm, gradient": layer_norm_grad,
        "causal softmax": causal,
        "mean under a mask": masked_mean,
        "dropout chain": dropouts,
        "cross-entropy, gradient": loss_gradient,
        "transposed add": lambda x: x + x.T,
        "cumulative share": lambda x: (jnp.cumsum(nn.softmax(x), 1) < 0.9).astype(jnp.float32),
        "distances": lambda x, y: jnp.sqrt(jnp.square(x[:, None] - y[None]).sum(2)),
        "outer product": lambda x, y: jnp.exp(-jnp.square(x[:, None] - y)),
        "accuracy": lambda x, labels: (x.argmax(1) == labels).astype(jnp.float32).mean(),
        "standardise": standardise,
    }


def operands():
    """Of each program, as the table of bench/rows_programs.c says them: dtype, what integers are below, sizes."""
    source = (Path(__file__).resolve().parents[2] / "bench" / "rows_programs.c").read_text()
    table = source[source.index("program programs[] = {"):]

    def read(text):
        dtype, *sizes = text.split()
        below = int(sizes.pop(0)) if dtype == "i32" else 256
        return dtype, below, tuple(map(int, sizes))
    return {name: [read(text) for text in all_of.split(";")]
            for name, all_of in re.findall(r'\{"([^"]+)",\s*\w+,\s*"([^"]+)"\}', table)}
