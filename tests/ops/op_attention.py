"""Attention and its gradients in NumPy, of which op_twins.py has the same in JAX, and the cases that both are tried on."""
import math

import numpy as np
from op_cases import REVERSED, Operand, dyn


def attention_extras(rest, present):
    """Operands of attention behind q, k and v, by name."""
    names = ("position", "mask", "length", "keep", "alibi", "sinks", "bias", "fill")
    rest = list(rest)
    return {name: rest.pop(0) for i, name in enumerate(names) if present >> i & 1}


def attention_scores(q, k, np, causal, window, scale, softcap, position=0, mask=None, length=None, alibi=None, bias=None, fill=None):
    """The scores of all keys (..., T, S), and which of them count."""
    heads = 1 if q.ndim < 3 or q.shape[-3] == k.shape[-3] else q.shape[-3] // k.shape[-3]

    def front(x):  # of the axes in front, (..., 1, 1)
        x = np.asarray(x)[..., None, None]
        return np.repeat(x, heads, axis=-3) if x.ndim > 2 and x.shape[-3] > 1 else x
    if heads > 1:
        k = np.repeat(k, heads, axis=-3)
    s = q @ np.swapaxes(k, -1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    s = np.tanh(s / softcap) * softcap if softcap else s
    at = np.arange(s.shape[-2])[:, None] + front(position)
    key, see = np.arange(s.shape[-1]), np.ones(s.shape, bool)
    s = s if bias is None else s + bias
    if mask is not None and mask.dtype != bool:
        s = s + mask
    if alibi is not None:
        s = s - np.asarray(alibi)[..., None, None] * abs(at - key)
    if mask is not None and mask.dtype == bool:
        s, see = (s, see & mask) if fill is None else (np.where(mask, s, fill), see)
    if length is not None:
        see = see & (key < front(length))
    if causal:
        see = see & (key <= at)
        see = see & (key > at - window) if window else see
    return s, see


def np_attention(q, k, v, *rest, causal=False, window=0, scale=None, softcap=0, masked_nan=False, present=0):
    extras = attention_extras(rest, present)
    keep, sinks = extras.pop("keep", 1), extras.pop("sinks", None)
    s, see = attention_scores(q, k, np, causal, window, scale, softcap, **extras)
    if q.ndim > 2 and q.shape[-3] != v.shape[-3]:
        v = np.repeat(v, q.shape[-3] // v.shape[-3], axis=-3)
    s = np.where(see, s, -np.inf)
    own = -np.inf if sinks is None else np.asarray(sinks)[..., None, None]
    m = np.maximum(s.max(-1, keepdims=True, initial=-np.inf), own)
    m = np.where(np.isfinite(m), m, 0)
    e = np.exp(s - m)
    with np.errstate(all="ignore"):
        total = e.sum(-1, keepdims=True) + np.exp(own - m)
        out = np.where(total == 0, np.nan if masked_nan else 0, (e * keep) @ v / total)
        lse = (np.log(total) + m)[..., 0]
    return [out, lse]


def attention_backward(np, q, k, v, rest, present, causal, window, scale, softcap, masked_nan):
    """The cotangents of q, k and v in NumPy or JAX; `rest`: attention's other operands, then c, total and delta."""
    *rest, c, total, delta = rest
    unseen = np.isneginf(total)  # queries that may look nowhere
    if not masked_nan:
        q, c = (np.where(unseen[..., None], 0, x) for x in (q, c))
        delta = np.where(unseen, 0, delta)
    extras = attention_extras(rest, present)
    keep = extras.pop("keep", 1)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    s, see = attention_scores(q, k, np, causal, window, scale, softcap, **extras)
    group = 1 if q.ndim < 3 else q.shape[-3] // k.shape[-3]
    wide_k, wide_v = (np.repeat(x, group, axis=-3) if group > 1 else x for x in (k, v))

    def shared(x):  # summed over the heads that share one
        return x.reshape(*x.shape[:-3], -1, group, *x.shape[-2:]).sum(-3) if group > 1 else x
    total = np.where(np.isfinite(total), total, 0)[..., None]
    p = np.where(see, np.exp(np.where(see, s - total, 0)), 0)
    p = np.where(unseen[..., None], np.nan, p) if masked_nan else p
    c_s = p * (c @ np.swapaxes(wide_v, -1, -2) * keep - delta[..., None])
    if extras.get("fill") is not None:
        c_s = np.where(extras["mask"], c_s, 0)
    if softcap:
        c_s = c_s * (1 - np.tanh(q @ np.swapaxes(wide_k, -1, -2) * scale / softcap) ** 2)
    c_s = c_s * scale
    return c_s @ wide_k, shared(np.swapaxes(c_s, -1, -2) @ q), shared(np.swapaxes(p * keep, -1, -2) @ c)


def np_attention_backward(q, k, v, *rest, causal=False, window=0, scale=None, softcap=0, masked_nan=False, present=0):
    return list(attention_backward(np, q, k, v, rest, present, causal, window, scale, softcap, masked_nan))


def attention_cases(x, rng):
    """x(*shape) draws an operand."""
    def eighth(y):
        return (y.astype(np.float64) / 8).astype(y.dtype)

    pos = np.int32
    yield [x(3, 4), x(5, 4), x(5, 2)], {}
    yield [x(2, 3, 4), x(2, 5, 4), x(2, 5, 4)], {"scale": 0.3}
    yield [x(2, 2, 5, 4), x(2, 2, 5, 4), x(2, 2, 5, 4)], {"causal": True}
    yield [x(1, 4), x(7, 4), x(7, 4), pos(3)], {"causal": True, "present": 1}
    yield [x(2, 3, 4), x(2, 131, 4), x(2, 131, 4), pos(100)], {"causal": True, "present": 1}
    yield [x(150, 4), x(150, 4), x(150, 3)], {"causal": True}
    yield [x(3, 4), x(70, 4), x(70, 4)], {"causal": True}
    yield [x(2, 3, 4), x(2, 70, 4), x(2, 70, 4), rng.random((3, 70)) < 0.5], {"present": 2}
    yield [x(3, 4), x(6, 4), x(6, 4), np.array([[True], [False], [True]])], {"present": 2}
    yield [x(2, 4, 3, 4), x(2, 2, 70, 4), x(2, 2, 70, 3)], {}
    yield [x(4, 3, 4), x(1, 5, 4), x(1, 5, 4), rng.random((4, 1, 5)) < 0.7], {"present": 2}
    yield [x(75, 4), x(75, 4), x(75, 4)], {"causal": True, "window": 5}
    yield [x(2, 3, 4), x(2, 70, 4), x(2, 70, 4), pos(66)], {"causal": True, "window": 3, "present": 1}
    yield [x(3, 4), x(5, 4), x(5, 4)], {"softcap": 0.5}
    yield [x(2, 3, 4), x(2, 70, 4), x(2, 70, 4), x(3, 70)], {"present": 2, "softcap": 2.0}
    yield [x(4, 3, 4), x(2, 5, 4), x(2, 5, 4), x(4, 1, 5)], {"present": 2}
    yield [x(2, 3, 4), x(2, 70, 4), x(2, 70, 4), x(2, 3, 1)], {"present": 2}
    yield [x(2, 3, 4), x(2, 6, 4), x(2, 6, 4), pos(2), rng.random((2, 1, 6)) < 0.5], \
        {"causal": True, "present": 3}
    yield [Operand(x(5, 4), REVERSED), Operand(x(6, 4), REVERSED),
           Operand(x(6, 3), REVERSED)], {}
    yield [x(0, 4), x(3, 4), x(3, 4)], {}
    keys = [dyn(70), 4]
    yield [x(3, 4), Operand(x(70, 4), dims=keys), Operand(x(70, 4), dims=keys), pos(40)], \
        {"causal": True, "present": 1}
    yield [x(3, 4), Operand(x(70, 4), dims=keys), Operand(x(70, 4), dims=keys), pos(40)], \
        {"causal": True, "window": 7, "softcap": 1.5, "present": 1}
    yield [x(3, 4), Operand(x(70, 4), dims=keys), Operand(x(70, 4), dims=keys),
           Operand(x(3, 70), dims=[3, keys[0]])], {"present": 2}
    yield [x(3, 4), Operand(x(70, 4), dims=keys), Operand(x(70, 4), dims=keys), x(3, 1)], {"present": 2}
    yield [x(2, 3, 4), x(2, 70, 4), x(2, 70, 4), rng.random((3, 70)) < 0.5, x(2, 3, 70)], {"present": 66}
    yield [x(2, 3, 4), x(2, 70, 4), x(2, 70, 4), rng.random((2, 1, 70)) < 0.5, x()], {"present": 130}
    yield [x(4, 3, 4), x(2, 70, 4), x(2, 70, 4), np.arange(70) < 5, x(4, 1, 70), x()], {"present": 194, "softcap": 2.0}
    # several texts: where each stands, how long it is
    yield [x(2, 2, 3, 4), x(2, 2, 70, 4), x(2, 2, 70, 4), np.array([[5], [66]], np.int32)], {"causal": True, "present": 1}
    yield [x(2, 4, 3, 4), x(2, 2, 70, 4), x(2, 2, 70, 4), np.array([[0], [66]], np.int64)], {"present": 4}
    yield [x(2, 3, 4), x(2, 5, 4), x(2, 5, 4), pos(7)], {"present": 4}  # more than there are
    yield [x(2, 3, 4), x(2, 70, 4), x(2, 70, 4), np.array([3, 60], np.int32), np.array([5, 61], np.int32)], \
        {"causal": True, "window": 4, "present": 5}
    # factors of the probabilities, slopes, sinks
    yield [x(2, 3, 4), x(2, 70, 4), x(2, 70, 4), x(3, 70)], {"present": 8}
    yield [x(4, 3, 4), x(2, 5, 4), x(2, 5, 4), x(4, 1, 5)], {"causal": True, "present": 8}
    yield [x(4, 70, 4), x(2, 70, 4), x(2, 70, 4), eighth(x(4))], {"causal": True, "present": 16}
    yield [x(2, 3, 4), x(2, 7, 4), x(2, 7, 4), x()], {"present": 16}
    yield [x(4, 3, 4), x(2, 70, 4), x(2, 70, 4), x(4)], {"causal": True, "present": 32}
    yield [x(2, 4, 3, 4), x(2, 2, 70, 4), x(2, 2, 70, 4), np.array([[5], [66]], np.int32), eighth(x(2, 1, 3, 70)), eighth(x(2, 4, 3, 70)), eighth(x(4)), x(2, 1)], \
        {"causal": True, "window": 40, "softcap": 2.0, "present": 59}
    yield [x(3, 4), Operand(x(70, 4), dims=keys), Operand(x(70, 4), dims=keys), pos(40), Operand(x(3, 70), dims=[3, keys[0]]),
           pos(30), Operand(x(3, 70), dims=[3, keys[0]]), x(), x()], {"causal": True, "softcap": 2.0, "present": 63}
    yield [x(3, 4), Operand(x(70, 4), dims=keys), Operand(x(70, 4), dims=keys), Operand(rng.random((3, 70)) < 0.5, dims=[3, keys[0]]),
           Operand(x(3, 70), dims=[3, keys[0]]), x()], {"present": 194}


def attention_backward_cases(x, rng, dtype):
    for inputs, attrs in attention_cases(x, rng):
        plain = [y.value() if isinstance(y, Operand) else y for y in inputs]
        out, total = np_attention(*(np.asarray(y, np.float64) if np.asarray(y).dtype.kind == "f" else y for y in plain), **attrs)
        c = x(*out.shape)
        if dtype == "f8e4m3":  # has no infinity
            total = np.where(np.isfinite(total), total, 0)
        delta = (c.astype(np.float64) * out).sum(-1)
        present = attrs.get("present", 0)
        if present & 32:  # sinks are in the total
            at = 3 + bin(present & 31).count("1")
            inputs, attrs = inputs[:at] + inputs[at + 1:], {**attrs, "present": present & ~32}
        yield [*inputs, c, total.astype(c.dtype), delta.astype(c.dtype)], attrs
