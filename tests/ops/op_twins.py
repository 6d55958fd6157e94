"""For each op what JAX has for it: a function of arrays and of the op's attributes, with JAX's own derivatives and batching.

An op of the table that is neither here nor among WITHOUT_TWIN fails tests/ops/test_op_transforms.py.
"""
import math
import os

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from op_cases import END, NUMPY, least, most, read_table, whole
from op_attention import attention_backward as any_attention_backward
from op_attention import attention_extras, attention_scores
from op_samples import CLIP, DROP
from op_windows import conv_options, fitted, np_windows, spread

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_threefry_partitionable", True)
TABLE = read_table()


def axes_of(x, axes):
    return tuple(axes) or tuple(range(x.ndim))


def is_float(x):
    return jnp.issubdtype(jnp.result_type(x), jnp.inexact)


def together(f):
    """A function of lax, of operands that are broadcast and promoted before."""
    return lambda *xs: f(*jnp.broadcast_arrays(*(jnp.asarray(x, jnp.result_type(*xs)) for x in xs)))


@together
def div(a, b):
    if is_float(a):
        return a / b
    return jnp.where(b == 0, 0, lax.div(a, jnp.where(b == 0, 1, b)))


@together
def mod(a, b):
    if is_float(a):
        return lax.rem(a, b)
    return jnp.where(b == 0, 0, lax.rem(a, jnp.where(b == 0, 1, b)))


def shift(f):
    @together
    def g(a, b):
        bits = jnp.iinfo(a.dtype).bits
        inside = (b >= 0) & (b < bits)
        return jnp.where(inside, f(a, jnp.where(inside, b, 0)), 0)
    return g


def reduce_with(f, of_nothing=None):
    def g(x, axes=(), keepdims=False):
        start = {} if of_nothing is None or x.size else {"initial": of_nothing(x.dtype)}
        return f(x, axis=axes_of(x, axes), keepdims=keepdims, **start)
    return g


def typed(f):
    """JAX, as NumPy, adds small integers up in wide ones."""
    return lambda x, axes=(), keepdims=False: f(x, axis=axes_of(x, axes), keepdims=keepdims, dtype=x.dtype)


def var(x, axes=(), keepdims=False, correction=0):
    return jnp.var(x, axis=axes_of(x, axes), keepdims=keepdims, ddof=correction)


def cumulative(f):
    return lambda x, axis=0, reverse=False: f(x, axis % x.ndim, reverse)


def linear_recurrence(a, b, axis=0, reverse=False):
    def step(y, x):
        y = x[0] * y + x[1]
        return y, y
    a, b = jnp.moveaxis(a, axis, 0), jnp.moveaxis(b, axis, 0)
    return jnp.moveaxis(lax.scan(step, jnp.zeros(a.shape[1:], a.dtype), (a, b), reverse=reverse)[1], 0, axis)


def cut(x, axes=(), start=(), stop=(), step=()):
    by = [slice(None)] * x.ndim
    axes = list(axes) or list(range(max(len(start), len(stop), len(step))))
    for i, a in enumerate(axes):
        end = whole(stop)[i] if stop else END
        by[a] = slice(whole(start)[i] if start else 0, None if end == END else end, min(step[i], x.shape[a] or 1) if step else 1)
    return x[tuple(by)]


def pad(x, fill, low=(), high=(), interior=()):
    low, high, interior = (whole(v) or [0] * x.ndim for v in (low, high, interior))
    interior = [0 if n < 2 else i for n, i in zip(x.shape, interior)]
    return lax.pad(x, jnp.asarray(fill, x.dtype), list(zip(low, high, interior)))


def starts_of(x, starts, axes):
    """A start an axis of x."""
    at = [0] * x.ndim
    for i, a in enumerate(list(axes) or range(x.ndim)):
        at[a] = jnp.reshape(starts, -1)[i].astype(jnp.int64)
    return at


def dynamic_slice(x, starts, axes=(), sizes=()):
    size = list(x.shape)
    for a, n in zip(list(axes) or range(x.ndim), whole(sizes)):
        size[a] = n
    return lax.dynamic_slice(x, inside(x, starts_of(x, starts, axes), size), size)


def inside(x, at, size):
    """Below 0 lax counts from the end."""
    return [jnp.clip(jnp.asarray(a), 0, n - s) for a, n, s in zip(at, x.shape, size)]


def dynamic_update(x, update, starts, axes=()):
    return lax.dynamic_update_slice(x, update, inside(x, starts_of(x, starts, axes), update.shape))


def lines(f, batch_dims):
    for _ in range(batch_dims):
        f = jax.vmap(f)
    return f


def gather(x, indices, axis=0, batch_dims=0, zero_outside=False):
    own = axis % x.ndim - batch_dims
    fill = None if is_float(x) and not zero_outside else 0

    def pick(x, i):
        n = x.shape[own]
        i = jnp.where((i < 0) | (i >= n), n, i.astype(jnp.int64))
        return jnp.take(x, i, own, mode="fill", fill_value=fill)
    return lines(pick, batch_dims)(x, jnp.asarray(indices))


def scatter(how):
    """x.at[indices].add(updates) and its like; an index below 0 is outside, where JAX would count from the end."""
    def f(x, indices, updates, axis=0, batch_dims=0, mode=DROP, unique=False, sorted=False):
        own, says = axis % x.ndim - batch_dims, {"unique_indices": unique, "indices_are_sorted": sorted and mode == CLIP}

        def one(x, i, u):
            n, i = x.shape[own], i.astype(jnp.int64)
            i = jnp.maximum(i, 0) if mode == CLIP else jnp.where((i < 0) | (i >= n), n, i)
            at = x.at[(slice(None),) * own + (i,)]
            return getattr(at, how)(u, mode=["drop", "clip", "promise_in_bounds"][mode], **says)
        return lines(one, batch_dims)(x, jnp.asarray(indices), updates)
    return f


def scatter_extreme(extreme, start):
    """From what each element may be: JAX's own rule for .at[].min has NaN as its second derivative where no update wins."""
    def f(x, indices, updates, axis=0, batch_dims=0, mode=DROP, unique=False, sorted=False):
        own = axis % x.ndim - batch_dims

        def one(x, i, u):
            n, i = x.shape[own], i.astype(jnp.int64)
            i = jnp.ravel(jnp.clip(i, 0, n - 1) if mode == CLIP else i)
            x = jnp.moveaxis(x, own, 0)
            u = jnp.moveaxis(u.reshape(u.shape[:own] + (i.size,) + u.shape[u.ndim - x.ndim + own + 1:]), own, 0)
            here = jnp.expand_dims(i[:, None] == jnp.arange(n), range(2, x.ndim + 1))
            some = jnp.where(here, u[:, None], jnp.asarray(start(x.dtype), x.dtype))
            return jnp.moveaxis(extreme(jnp.concatenate([x[None], some]), 0), 0, own)
        return lines(one, batch_dims)(x, jnp.asarray(indices), updates)
    return f


def argsort(x, axis=0, descending=False):
    return jnp.argsort(x, axis, stable=True, descending=descending).astype(jnp.int32)


def lexsort(*keys, axis=0, descending=False):
    if descending:
        return jnp.flip(keys[0].shape[axis] - 1 - lexsort(*(jnp.flip(k, axis) for k in keys), axis=axis), axis)
    return jnp.lexsort(keys[::-1], axis).astype(jnp.int32)


def sort_pairs(keys, values, axis=0, descending=False):
    order = argsort(keys, axis, descending)
    return [jnp.take_along_axis(v, order, axis) for v in (keys, values)]


def take_along(x, indices, axis=0):
    n = x.shape[axis]
    at = jnp.where((indices < 0) | (indices >= n), n, indices)
    return jnp.take_along_axis(x, at, axis, mode="fill", fill_value=None if is_float(x) else 0)


def searchsorted(x, values, batch_dims=0, right=False):
    def f(x, v):
        return jnp.searchsorted(x, v, side="right" if right else "left").astype(jnp.int32)
    return lines(f, batch_dims)(x, values)


def unique(x, *fill, size=0, present=0):
    size = size or x.size
    if not x.size:
        zeros = jnp.zeros(size, jnp.int32)
        return [jnp.full(size, fill[0] if fill else 0, x.dtype), zeros, jnp.zeros(x.shape, jnp.int32), zeros]
    out = jnp.unique(x, size=size, fill_value=fill[0] if fill else None, return_index=True, return_inverse=True, return_counts=True)
    return [out[0], out[1].astype(jnp.int32), out[2].reshape(x.shape).astype(jnp.int32), out[3].astype(jnp.int32)]


def topk(x, k=0):
    return lax.top_k(x, k)


def contract(a, b, a_axes=(), b_axes=(), a_batch=(), b_batch=()):
    def of(x, axes):
        return [i % x.ndim for i in axes]
    return lax.dot_general(a, b, ((of(a, a_axes), of(b, b_axes)), (of(a, a_batch), of(b, b_batch))))


def of_groups(a, sizes):
    """(M, G): is the row in the group?"""
    ends = jnp.cumsum(jnp.maximum(sizes.astype(jnp.int64), 0))
    row = jnp.arange(a.shape[0])[:, None]
    return ((row < ends) & (row >= jnp.concatenate([jnp.zeros(1, ends.dtype), ends[:-1]]))).astype(a.dtype)


def attention(q, k, v, *rest, causal=False, window=0, scale=None, softcap=0, masked_nan=False, present=0):
    extras = attention_extras(rest, present)
    keep, sinks = extras.pop("keep", 1), extras.pop("sinks", None)
    s, see = attention_scores(q, k, jnp, causal, window, scale, softcap, **extras)
    if q.ndim > 2 and q.shape[-3] != v.shape[-3]:
        v = jnp.repeat(v, q.shape[-3] // v.shape[-3], axis=-3)
    any_key = see.any(-1, keepdims=True) | (sinks is not None)
    safe = jnp.where(see, s, 0)
    m = lax.stop_gradient(jnp.where(see, s, -jnp.inf).max(-1, keepdims=True, initial=-jnp.inf))
    m = jnp.where(jnp.isfinite(m), m, 0)
    e = jnp.where(see, jnp.exp(safe - m), 0)
    own = 0 if sinks is None else jnp.exp(jnp.asarray(sinks)[..., None, None] - m)
    total = jnp.where(any_key, e.sum(-1, keepdims=True) + own, 1)
    out = jnp.where(any_key, jnp.matmul(e * keep, v) / total, jnp.nan if masked_nan else 0)
    return out, jnp.where(any_key, jnp.log(total) + m, -jnp.inf)[..., 0]


def attention_backward(q, k, v, *rest, causal=False, window=0, scale=None, softcap=0, masked_nan=False, present=0):
    return any_attention_backward(jnp, q, k, v, rest, present, causal, window, scale, softcap, masked_nan)


def cross_entropy(x, targets, per_row=False):
    lse = jax.nn.logsumexp(x, -1)
    n = x.shape[-1]
    t = targets.astype(jnp.int64)
    picked = jnp.take_along_axis(x, jnp.where((t < 0) | (t >= n), n, t)[..., None], -1, mode="fill")[..., 0]
    loss = lse - picked
    return loss if per_row else loss.mean(), lse


def linear_logits(x, weight, bias, softcap):
    z = x @ weight.T + (0 if bias is None else bias)
    return jnp.tanh(z / softcap) * softcap if softcap else z


def linear_rows(x, weight, targets, bias, smoothing, softcap):
    z = linear_logits(x, weight, bias, softcap)
    picked = cross_entropy(z, targets, True)[0]
    return (1 - (smoothing or 0)) * picked + (smoothing or 0) * (jax.nn.logsumexp(z, -1) - z.mean(-1))


def linear_cross_entropy_sum(x, weight, targets, factors, bias=None, smoothing=0.0, softcap=0.0):
    def total(x, weight, bias):
        rows = linear_rows(x, weight, targets, bias, smoothing, softcap)
        return (rows * factors).sum(), rows
    (value, rows), (dx, dw, db) = jax.value_and_grad(total, (0, 1, 2), has_aux=True)(
        x, weight, jnp.zeros(weight.shape[0], weight.dtype) if bias is None else bias)
    return value, rows, dx, dw, db


def linear_cross_entropy(x, weight, targets, *rest, per_row=False, smoothing=0.0, softcap=0.0, present=0):
    rest = list(rest)
    weights = rest.pop(0) if present & 1 else jnp.ones(targets.shape, x.dtype)
    rows = linear_rows(x, weight, targets, rest.pop(0) if present & 2 else None, smoothing, softcap)
    rows = jnp.where(weights == 0, 0, jnp.where(weights == 0, 0, rows) * weights)
    return rows if per_row else rows.sum() / weights.sum()


def layer_norm(x, *rest, eps=1e-5, present=0):
    rest = list(rest)
    d = x - x.mean(-1, keepdims=True)
    y = d / jnp.sqrt((d * d).mean(-1, keepdims=True) + eps)
    if present & 1:
        y = y * rest.pop(0)
    return y + rest.pop(0) if present & 2 else y


def rms_norm(x, *rest, eps=1e-5, present=0):
    y = x / jnp.sqrt((x * x).mean(-1, keepdims=True) + eps)
    return y * rest[0] if present else y


def dropout(x, key, rate):
    u = jax.random.uniform(key, x.shape, jnp.float32)
    return jnp.where(u >= rate.astype(jnp.float32), x * (1 / (1 - rate.astype(x.dtype))), 0)


def one_hot(x, n=0, dtype=None):
    return jax.nn.one_hot(x, *whole([n]), dtype=NUMPY[dtype or "f32"])


def windows(x, fill=None, **options):
    """What np_windows makes of the elements' numbers, gathered."""
    at = np_windows(np.arange(x.size).reshape(x.shape), fill=-1, **options)
    return jnp.where(at >= 0, x.ravel()[jnp.maximum(at, 0)] if x.size else 0, jnp.asarray(fill or 0, x.dtype))


def pooled(x, kernel, stride=(), padding=(), dilation=(), ceil_mode=False):
    """The sizes, strides, paddings and dilations of lax.reduce_window, an axis each; padding as it is given, and with what
    ceil_mode puts behind."""
    n = len(kernel)
    stride, dilation = spread(x, ((stride or kernel, 1), (dilation, 1)), n)
    pads = list(padding) if len(padding) == 2 * n else spread(x, ((padding, 0),), n)[0] * 2
    sizes, low, high, ends = x.shape[x.ndim - n:], pads[:n], pads[n:], []
    for s, k, st, d, lo, hi in zip(sizes, kernel, stride, dilation, low, high):
        ends.append((fitted(s, k, st, d, lo, hi, ceil_mode) - 1) * st + (k - 1) * d + 1 - s - lo)
    def whole_axes(own, normal): return [normal] * (x.ndim - n) + list(own)
    return [whole_axes(kernel, 1), whole_axes(stride, 1), whole_axes(zip(low, high), (0, 0)), whole_axes(zip(low, ends), (0, 0)),
            whole_axes(dilation, 1)]


def max_pool(x, **options):
    size, stride, _, ends, dilation = (own[-len(options["kernel"]):] for own in pooled(x, **options))
    taps = math.prod(size)
    w = windows(x, size=size, stride=stride, dilation=dilation, low=[lo for lo, _ in ends], high=[hi for _, hi in ends],
                fill=least(x.dtype))
    w = w.reshape(*w.shape[:x.ndim], taps)
    at = lax.stop_gradient(jnp.argmax(w, -1))
    return jnp.take_along_axis(w, at[..., None], -1)[..., 0], at.astype(jnp.uint8 if taps <= 256 else jnp.int32)


def max_pool_indices(x, kernel, **options):
    n = len(kernel)
    numbers = np.broadcast_to(np.arange(math.prod(x.shape[x.ndim - n:])).reshape(x.shape[x.ndim - n:]), x.shape)
    own = [every[-n:] for every in pooled(x, kernel=kernel, **options)]
    lists = {"size": own[0], "stride": own[1], "dilation": own[4], "low": [lo for lo, _ in own[3]], "high": [hi for _, hi in own[3]]}
    at = max_pool(x, kernel=kernel, **options)[1].astype(jnp.int32)
    w = np_windows(numbers, **lists).reshape(*at.shape, math.prod(kernel))
    return jnp.take_along_axis(jnp.asarray(w), at[..., None], -1)[..., 0]


def window_sums(x, size, stride, padding, dilation):
    return lax.reduce_window(x, np.zeros((), x.dtype), lax.add, size, stride, padding, window_dilation=dilation)


def avg_pool(x, exclude_padding=False, divisor=None, **options):
    size, stride, pads, ends, dilation = pooled(x, **options)
    ones = jnp.ones(x.shape, x.dtype)
    if exclude_padding:
        counts = window_sums(ones, size, stride, ends, dilation)
    else:
        rest = [(0, end - hi) for (_, hi), (_, end) in zip(pads, ends)]
        counts = window_sums(jnp.pad(ones, pads, constant_values=1), size, stride, rest, dilation)
    return window_sums(x, size, stride, ends, dilation) / (divisor or counts)


def lp_pool(x, power=2, **options):
    return (avg_pool(x**power, **options) * math.prod(options["kernel"])) ** (1 / power)


def adaptive_pool(f):
    def g(x, output):
        n = len(output)
        for axis, m in zip(range(x.ndim - n, x.ndim), output):
            s = x.shape[axis]
            parts = [lax.slice_in_dim(x, i * s // m, -(-(i + 1) * s // m), axis=axis) for i in range(m)]
            x = jnp.concatenate([f(p, axis=axis, keepdims=True) for p in parts], axis)
        return x
    return g


def conv(x, w, *bias, groups=0, output=(), present=0, **options):
    own = conv_options(x, w.shape[2:], **options)
    y = lax.conv_general_dilated(x, w, own["stride"], list(zip(own["low"], own["high"])), rhs_dilation=own["dilation"],
                                 feature_group_count=groups or 1)
    y = y[(slice(None),) * 2 + tuple(slice(0, s) for s in output)]
    return y + bias[0].reshape(-1, *[1] * (x.ndim - 2)) if bias else y


def conv_transpose(x, w, *bias, groups=0, output=(), output_padding=(), present=0, **options):
    g, n, own = groups or 1, x.ndim - 2, conv_options(x, w.shape[2:], **options)
    more, pads = spread(x, ((output_padding, 0),), n)[0], []
    for i, (s, k) in enumerate(zip(x.shape[2:], w.shape[2:])):
        span, full = (k - 1) * own["dilation"][i], (s - 1) * own["stride"][i] + (k - 1) * own["dilation"][i] + 1
        extra = output[i] - (full - own["low"][i] - own["high"][i]) if output else more[i]
        pads.append((span - own["low"][i], span - own["high"][i] + extra))
    turned = jnp.flip(w.reshape(g, -1, *w.shape[1:]).swapaxes(1, 2), range(3, 3 + n))
    turned = turned.reshape(-1, *turned.shape[2:])
    y = lax.conv_general_dilated(x, turned, [1] * n, pads, lhs_dilation=own["stride"], rhs_dilation=own["dilation"],
                                 feature_group_count=g)
    return y + bias[0].reshape(-1, *[1] * n) if bias else y


def conv_weight_grad(x, y, size=(), groups=0, **options):
    def f(w):
        return conv(x, w, groups=groups, output=y.shape[2:], **options)
    w = jnp.zeros((y.shape[1], x.shape[1] // (groups or 1), *size), x.dtype)
    return jax.vjp(f, w)[1](y)[0]


def by_channel(t, x):
    return t.reshape(-1, *[1] * (x.ndim - 2))


def weighed(y, rest, present):
    rest = list(rest)
    if present & 1:
        y = y * by_channel(rest.pop(0), y)
    return y + by_channel(rest.pop(0), y) if present & 2 else y


def group_norm(x, *rest, groups=0, eps=1e-5, present=0):
    g = x.reshape(x.shape[0], groups or 1, -1)
    hat = (g - g.mean(-1, keepdims=True)) / jnp.sqrt(g.var(-1, keepdims=True) + eps)
    return weighed(hat.reshape(x.shape), rest, present)


def batch_norm(x, mean, var, *rest, eps=1e-5, present=0):
    return weighed((x - by_channel(mean, x)) / jnp.sqrt(by_channel(var, x) + eps), rest, present)


def batch_norm_train(x, mean, var, *rest, eps=1e-5, momentum=0.1, present=0):
    axes = (0,) + tuple(range(2, x.ndim))
    y = batch_norm(x, x.mean(axes), x.var(axes), *rest, eps=eps, present=present)
    return [y, mean * (1 - momentum) + x.mean(axes) * momentum, var * (1 - momentum) + x.var(axes, ddof=1) * momentum]


def nan_extreme(f):
    def g(x, axis=None, keepdims=False):
        return f(x, axis, keepdims=keepdims) if x.size else jnp.nansum(x, axis, keepdims=keepdims) + jnp.nan
    return g


# Ops that NumPy has by the same name, as JAX has them.
TWINS = {name: getattr(jnp, name) for name in (
    "abs maximum minimum floor ceil sqrt exp log expm1 log1p sin cos tanh trunc equal not_equal less less_equal greater "
    "greater_equal square reciprocal sign matmul tan sinh cosh log2 log10 exp2 remainder floor_divide signbit copysign "
    "nextafter hypot fmax fmin logaddexp cbrt deg2rad rad2deg sinc nan_to_num isclose").split()}
TWINS |= {
    "asin": jnp.arcsin, "acos": jnp.arccos, "atan": jnp.arctan, "asinh": jnp.arcsinh, "acosh": jnp.arccosh,
    "atanh": jnp.arctanh, "heaviside": lambda x, h: jnp.where(x == 0, h, jnp.where(x == x, x > 0, x)).astype(jnp.result_type(x, h)),
    "count_nonzero": lambda x, axes=(), keepdims=False: (x != 0).sum(axes_of(x, axes), keepdims=keepdims).astype(jnp.int32),
    "std": lambda x, **k: jnp.sqrt(var(x, **k)),
    **{name: reduce_with(getattr(jnp, name)) for name in ("nansum", "nanmean")},
    "nanmax": reduce_with(nan_extreme(jnp.nanmax)), "nanmin": reduce_with(nan_extreme(jnp.nanmin)),
    "quantile": lambda x, q, axis=0, keepdims=False: jnp.quantile(x, q, axis, keepdims=keepdims),
    "trapezoid": lambda y, axis=0, dx=1.0: jnp.trapezoid(y, dx=dx, axis=axis),
    "tril": lambda x, diagonal=0: jnp.tril(x, diagonal), "triu": lambda x, diagonal=0: jnp.triu(x, diagonal),
    "roll": lambda x, shifts: jnp.roll(x, shifts, range(x.ndim)) if x.ndim else x,
    "diff": lambda x, axis=0, n=1: jnp.diff(x, n, axis), "repeat": lambda x, n, axis=0: jnp.repeat(x, n, axis),
    "tile": lambda x, times: jnp.tile(x, times),
    "bincount": lambda x, n=0: (x.ravel()[:, None] == jnp.arange(n)).sum(0).astype(jnp.int32),
    "erfc": jax.scipy.special.erfc, "lgamma": jax.scipy.special.gammaln, "digamma": jax.scipy.special.digamma,
    "xlogy": jax.scipy.special.xlogy, "elu": jax.nn.elu, "celu": jax.nn.celu, "selu": jax.nn.selu, "mish": jax.nn.mish,
    "hardtanh": lambda x, low=-1.0, high=1.0: jnp.where(x <= low, low, jnp.where(x >= high, high, x)), "relu6": jax.nn.relu6,
    "hardsigmoid": jax.nn.hard_sigmoid, "hardswish": jax.nn.hard_silu, "softsign": jax.nn.soft_sign,
    "tanhshrink": lambda x: x - jnp.tanh(x),
    "softshrink": lambda x, **k: jnp.where(jnp.abs(x) <= k.get("lambda", 0.5), 0, x - jnp.sign(x) * k.get("lambda", 0.5)),
    "hardshrink": lambda x, **k: jnp.where(jnp.abs(x) <= k.get("lambda", 0.5), 0, x),
    "threshold": lambda x, threshold=0.0, value=0.0: jnp.where(x <= threshold, value, x),
    "prelu": lambda x, slope: jnp.where(x > 0, x, slope * x), "logit": jax.scipy.special.logit,
    "glu": lambda x, axis=0: jax.nn.glu(x, axis),
    "add": jnp.add, "sub": jnp.subtract, "mul": jnp.multiply, "div": div, "mod": mod, "neg": jnp.negative,
    "round": jnp.rint, "erf": jax.scipy.special.erf, "stop_gradient": lax.stop_gradient, "atan2": jnp.arctan2,
    "and": jnp.bitwise_and, "or": jnp.bitwise_or, "xor": jnp.bitwise_xor, "not": jnp.invert,
    "shift_left": shift(lax.shift_left), "shift_right": shift(lax.shift_right_logical), "select": jnp.where,
    "cast": lambda x, dtype: x.astype(NUMPY[dtype]),
    "bitcast": lambda x, dtype: lax.bitcast_convert_type(x, NUMPY[dtype]),
    "contract": contract,
    "ragged_matmul": lambda a, b, sizes: jnp.einsum("mg,mk,gkn->mn", of_groups(a, sizes), a, b),
    "ragged_outer": lambda a, b, sizes: jnp.einsum("mg,mk,mn->gkn", of_groups(a, sizes), a, b),
    "sum": typed(jnp.sum), "prod": typed(jnp.prod), "max": reduce_with(jnp.max, least), "min": reduce_with(jnp.min, most),
    "mean": reduce_with(jnp.mean), "any": reduce_with(jnp.any), "all": reduce_with(jnp.all), "var": var,
    "logsumexp": reduce_with(jax.nn.logsumexp),
    "argmax": lambda x, axis=0, keepdims=False: jnp.argmax(x, axis, keepdims=keepdims).astype(jnp.int32),
    "argmin": lambda x, axis=0, keepdims=False: jnp.argmin(x, axis, keepdims=keepdims).astype(jnp.int32),
    "reshape": lambda x, dims=(): x.reshape(whole(dims)),
    "permute": lambda x, axes=(): jnp.transpose(x, axes or None),
    "expand": lambda x, dims=(): jnp.broadcast_to(x, whole(dims)),
    "slice": cut, "pad": pad, "flip": lambda x, axes=(): jnp.flip(x, tuple(axes) or None),
    "concat": lambda *xs, axis=0: jnp.concatenate(xs, axis),
    "dynamic_slice": dynamic_slice, "dynamic_update": dynamic_update, "gather": gather, "scatter_add": scatter("add"), "scatter_max": scatter_extreme(jnp.max, least), "scatter_min": scatter_extreme(jnp.min, most), "scatter_mul": scatter("multiply"), "scatter": scatter("set"),
    "iota": lambda dtype, dims, axis=0: lax.broadcasted_iota(NUMPY[dtype], whole(dims), axis % len(dims)),
    "cumsum": cumulative(lax.cumsum), "cumprod": cumulative(lax.cumprod), "cummax": cumulative(lax.cummax),
    "cummin": cumulative(lax.cummin), "logcumsumexp": cumulative(lax.cumlogsumexp), "linear_recurrence": linear_recurrence,
    "topk": topk, "argsort": argsort, "lexsort": lexsort, "take_along": take_along, "sort_pairs": sort_pairs,
    "sort": lambda x, axis=0, descending=False: jnp.sort(x, axis, descending=descending),
    "searchsorted": searchsorted, "unique": unique,
    "rsqrt": lax.rsqrt, "pow": jnp.power, "clamp": lambda x, low, high: jnp.minimum(jnp.maximum(x, low), high),
    "is_nan": jnp.isnan, "is_inf": jnp.isinf, "is_finite": jnp.isfinite,
    "relu": jax.nn.relu, "sigmoid": jax.nn.sigmoid, "silu": jax.nn.silu,
    "gelu": lambda x, exact=False: jax.nn.gelu(x, approximate=not exact), "erfinv": jax.scipy.special.erfinv,
    "softplus": jax.nn.softplus, "log_sigmoid": jax.nn.log_sigmoid,
    "leaky_relu": lambda x, slope=0.01: jax.nn.leaky_relu(x, slope), "one_hot": one_hot,
    "softmax": lambda x, axes=(), masked_zero=False: jax.nn.softmax(x, tuple(axes) or -1),
    "log_softmax": lambda x, axes=(): jax.nn.log_softmax(x, tuple(axes) or -1),
    "linear_cross_entropy": linear_cross_entropy, "linear_cross_entropy_sum": linear_cross_entropy_sum,
    "cross_entropy": cross_entropy, "layer_norm": layer_norm, "rms_norm": rms_norm, "attention": attention, "attention_backward": attention_backward,
    "random_bits": lambda key, dims=(): jax.random.bits(key, whole(dims), jnp.uint32),
    "random_split": lambda key, n=0: jax.random.split(key, n), "random_fold_in": jax.random.fold_in,
    "random_uniform": lambda key, dims=(): jax.random.uniform(key, whole(dims), jnp.float32),
    "random_normal": lambda key, dims=(): jax.random.normal(key, whole(dims), jnp.float32),
    "random_bernoulli": lambda key, p, dims=(): jax.random.bernoulli(key, p, whole(dims)),
    "random_int": lambda key, low, high, dims=(): jax.random.randint(key, whole(dims), low, high, jnp.int32),
    "dropout": dropout, "windows": windows, "max_pool": max_pool, "max_pool_indices": max_pool_indices,
    "avg_pool": avg_pool, "lp_pool": lp_pool, "adaptive_max_pool": adaptive_pool(jnp.max), "adaptive_avg_pool": adaptive_pool(jnp.mean),
    "global_max_pool": lambda x: x.max(tuple(range(2, x.ndim)), keepdims=True),
    "global_avg_pool": lambda x: x.mean(tuple(range(2, x.ndim)), keepdims=True),
    "conv": conv, "conv_transpose": conv_transpose, "conv_weight_grad": conv_weight_grad, "group_norm": group_norm,
    "instance_norm": lambda x, *rest, **k: group_norm(x, *rest, groups=x.shape[1], **k),
    "batch_norm": batch_norm, "batch_norm_train": batch_norm_train,
}


def triangular_solve(a, b, upper=False, transpose=0, unit=False):
    lead = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (jnp.broadcast_to(x, lead + x.shape[-2:]) for x in (a, b))
    return lax.linalg.triangular_solve(a, b, left_side=True, lower=not upper, transpose_a=transpose > 0,
                                       conjugate_a=transpose == 2, unit_diagonal=unit)


# Linear algebra, which test_linalg.py tests.
LINALG = {name: getattr(jnp.linalg, name) for name in "cholesky inv det slogdet".split()}
LINALG |= {"qr": lambda x, complete=False: jnp.linalg.qr(x, "complete" if complete else "reduced"),
           "eigh": lambda x, upper=False: jnp.linalg.eigh(x, "U" if upper else "L"),
           "eigvalsh": lambda x, upper=False: jnp.linalg.eigvalsh(x, "U" if upper else "L"),
           "svd": lambda x, full=False: jnp.linalg.svd(x, full), "svdvals": lambda x: jnp.linalg.svd(x, compute_uv=False),
           "eig": jnp.linalg.eig, "eigvals": jnp.linalg.eigvals,
           "pinv": lambda x, rtol=None: jnp.linalg.pinv(x, rtol=rtol), "lstsq": lambda a, b, rtol=None: jnp.linalg.pinv(a, rtol=rtol) @ b,
           "matrix_rank": lambda x, rtol=None: jnp.linalg.matrix_rank(x, rtol=rtol), "matrix_power": lambda x, n: jnp.linalg.matrix_power(x, n),
           "vector_norm": lambda x, axes=(), keepdims=False, ord=2: jnp.linalg.vector_norm(x, axis=tuple(axes) or None, keepdims=keepdims, ord=ord),
           "matrix_norm": lambda x, keepdims=False, ord="fro", nuclear=False: jnp.linalg.matrix_norm(x, keepdims=keepdims, ord="nuc" if nuclear else ord),
           "matrix_cond": lambda x, ord=None: jnp.linalg.cond(x, ord), "vecdot": jnp.vecdot, "multi_dot": lambda *xs: jnp.linalg.multi_dot(xs), "cross": jnp.linalg.cross,
           "outer": lambda a, b: a[..., :, None] * b[..., None, :], "kron": jnp.kron,
           "diagonal": lambda x, offset=0: jnp.linalg.diagonal(x, offset=offset), "matrix_trace": lambda x, offset=0: jnp.linalg.trace(x, offset=offset, dtype=x.dtype),
           "triangular_solve": triangular_solve, "lu": lax.linalg.lu,
           "solve": lambda a, b, transpose=0: jnp.linalg.solve((a, jnp.swapaxes(a, -1, -2), jnp.conj(jnp.swapaxes(a, -1, -2)))[transpose], b)}
# Ops that take functions or are only recorded by the library, and so have no twin of one name.
WITHOUT_TWIN = {name for name, op in TABLE.items()
                if op.kind in ("leaf", "transform", "loop") or any(kind == "body" for kind, _ in op.fields)}
WITHOUT_TWIN |= {"global_norm", "update", "same", "copy", "record_hook", "surrogate_loss", "pack", "unpack", "named", "stored", "control_dependency",
                  "transfer"}
