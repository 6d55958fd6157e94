"""Attention: queries (..., T, D), keys (..., S, D)."""
import math

from ..._core import ops
from ..._shaping import broadcast_shapes
from .activation import dropout
from .base import concat, slice_axis
from .window import linear, pad


def _is_bool(mask):
    return repr(mask.dtype).endswith(".bool")


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                                 enable_gqa=False):
    """Returns softmax(scale q k') v; a bool mask is true where a query attends, a float mask is added."""
    if attn_mask is not None and is_causal:
        raise RuntimeError("_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True")
    if not enable_gqa and len(query.shape) > 2 and query.shape[-3] != key.shape[-3] != 1:
        raise RuntimeError(f"scaled_dot_product_attention: the query has {query.shape[-3]} heads, the key {key.shape[-3]}; heads that "
                           "share keys are asked for by enable_gqa=True")
    if query.ndim != key.ndim or key.ndim != value.ndim:  # axes before (..., T, D) broadcast
        lead = broadcast_shapes(*(tuple(x.shape)[:-2] for x in (query, key, value)))
        query, key, value = (ops.expand(x, (*lead, *tuple(x.shape)[-2:])) for x in (query, key, value))
    if _op_supports_mask(query, attn_mask):
        keep = None
        if dropout_p:
            ones = ops.expand(ops.cast(1.0, query.dtype), (*query.shape[:-1], key.shape[-2]))
            keep = dropout(ones, dropout_p, True)
        return ops.attention(query, key, value, mask=attn_mask, keep=keep, causal=is_causal, scale=scale)
    if enable_gqa:
        key, value = (_repeat_heads(x, query.shape[-3] // x.shape[-3]) for x in (key, value))
    weights = attention_weights(query, key, attn_mask, is_causal, scale)
    return ops.matmul(dropout(weights, dropout_p, True), value)


def _op_supports_mask(query, mask):
    return mask is None or len(mask.shape) <= len(query.shape) and (_is_bool(mask) or mask.dtype == query.dtype)


def _repeat_heads(x, times):
    """Repeats each head of (..., H, S, D)."""
    *lead, h, s, d = x.shape
    x = ops.expand(ops.reshape(x, (*lead, h, 1, s, d)), (*lead, h, times, s, d))
    return ops.reshape(x, (*lead, h * times, s, d))


def attention_weights(query, key, mask=None, causal=False, scale=None):
    """Returns (..., T, S), whose rows add up to 1; a row is zero if its query attends nowhere."""
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    rank = len(key.shape)
    scores = ops.matmul(query * scale, ops.permute(key, (*range(rank - 2), rank - 1, rank - 2)))
    if causal:
        t, s = query.shape[-2], key.shape[-2]
        mask = ops.less_equal(ops.iota("int32", (1, s), 1), ops.iota("int32", (t, 1), 0))
    if mask is not None:
        scores = ops.select(mask, scores, -math.inf) if _is_bool(mask) else scores + mask
    return ops.softmax(scores, masked_zero=True)


def _split_heads(x, n):
    """Returns (L, N, H D) as (N, H, L, D)."""
    length, batch, width = x.shape
    return ops.permute(ops.reshape(x, (length, batch, n, width // n)), (1, 2, 0, 3))


def _additive_mask(mask, dtype):
    """Returns an additive mask; for a bool mask, true becomes minus infinity."""
    if not _is_bool(mask):
        return ops.cast(mask, dtype)
    return ops.select(mask, ops.cast(-math.inf, dtype), ops.cast(0.0, dtype))


def _merge_masks(attn_mask, key_padding_mask, batch, heads, dtype):
    """Merges both masks into one that broadcasts to (N, H, T, S): a bool mask that is true where a query
    attends, or an additive mask."""
    if attn_mask is not None and len(attn_mask.shape) == 3:
        attn_mask = ops.reshape(attn_mask, (batch, heads) + tuple(attn_mask.shape)[1:])
    if key_padding_mask is not None:
        key_padding_mask = ops.reshape(key_padding_mask, (batch, 1, 1, key_padding_mask.shape[-1]))
    masks = [mask for mask in (attn_mask, key_padding_mask) if mask is not None]
    if not masks:
        return None
    if all(_is_bool(mask) for mask in masks):
        hidden = masks[0] if len(masks) == 1 else ops.or_(*masks)
        return ops.not_(hidden)
    added = [_additive_mask(mask, dtype) for mask in masks]
    return added[0] if len(added) == 1 else added[0] + added[1]


def _project(query, key, value, weights, bias):
    """Returns queries, keys and values; by one product if they are of the same tensor."""
    width = query.shape[-1]
    if query is key and key is value and not isinstance(weights, tuple):
        both = linear(query, weights, bias)
        return [slice_axis(both, len(both.shape) - 1, i * width, (i + 1) * width) for i in range(3)]
    if not isinstance(weights, tuple):
        weights = tuple(slice_axis(weights, 0, i * width, (i + 1) * width) for i in range(3))
    biases = [None] * 3 if bias is None else [slice_axis(bias, 0, i * width, (i + 1) * width) for i in range(3)]
    return [linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases)]


def multi_head_attention_forward(query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k,
                                 bias_v, add_zero_attn, dropout_p, out_proj_weight, out_proj_bias, training=True,
                                 key_padding_mask=None, need_weights=True, attn_mask=None, use_separate_proj_weight=False,
                                 q_proj_weight=None, k_proj_weight=None, v_proj_weight=None, static_k=None, static_v=None,
                                 average_attn_weights=True, is_causal=False):
    """query (L, N, E) or (L, E), key and value (S, N, E): returns the output, and the weights (N, L, S) or
    None."""
    single = len(query.shape) == 2
    if single:
        same = query is key and key is value
        query = ops.reshape(query, (query.shape[0], 1, query.shape[1]))
        key, value = (query, query) if same else (
            ops.reshape(x, (x.shape[0], 1, x.shape[1])) for x in (key, value))
        if key_padding_mask is not None:
            key_padding_mask = ops.reshape(key_padding_mask, (1, -1))
    length, batch, width = query.shape
    if width != embed_dim_to_check:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim_to_check}, but got {width}")
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    weights = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else in_proj_weight
    q, k, v = _project(query, key, value, weights, in_proj_bias)
    if (static_k is not None or static_v is not None) and (bias_k is not None or add_zero_attn):
        raise RuntimeError("multi_head_attention_forward: bias_k and add_zero_attn cannot be added to static_k and static_v")
    more = (bias_k is not None) + bool(add_zero_attn)
    if bias_k is not None:
        k = concat([k, ops.expand(bias_k, (1, batch, width))], 0)
        v = concat([v, ops.expand(bias_v, (1, batch, width))], 0)
    if add_zero_attn:
        zeros = ops.expand(ops.cast(0.0, k.dtype), (1, batch, width))
        k, v = concat([k, zeros], 0), concat([v, zeros], 0)
    if more:
        attn_mask = None if attn_mask is None else pad(attn_mask, (0, more))
        key_padding_mask = None if key_padding_mask is None else pad(key_padding_mask, (0, more))
    q = _split_heads(q, num_heads)
    k, v = (_split_heads(x, num_heads) if static is None else ops.reshape(static, (batch, num_heads, *tuple(static.shape)[1:]))
            for x, static in ((k, static_k), (v, static_v)))  # static ones are (N H, S, D)
    mask = _merge_masks(attn_mask, key_padding_mask, batch, num_heads, q.dtype)
    dropout_p = dropout_p if training else 0.0
    seen = None
    if need_weights:
        seen = dropout(attention_weights(q, k, mask), dropout_p, True)
        y = ops.matmul(seen, v)
        seen = ops.mean(seen, axes=(1,)) if average_attn_weights else seen
        seen = ops.reshape(seen, tuple(seen.shape)[1:]) if single else seen
    else:
        y = scaled_dot_product_attention(q, k, v, mask, dropout_p)
    y = ops.reshape(ops.permute(y, (2, 0, 1, 3)), (length, batch, width))
    y = linear(y, out_proj_weight, out_proj_bias)
    return (ops.reshape(y, (length, width)) if single else y), seen


__all__ = ["multi_head_attention_forward", "scaled_dot_product_attention"]
