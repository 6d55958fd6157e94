// Attention of a language model's layer: its queries, keys and values from whatever weights make them, and
// what they may see.
#include <math.h>

#include "models/stack.h"
#include "ops/rules.h"

typedef struct projected { // (N, heads, head), of keys and values their own heads
    ct_tensor q, k, v;
} projected;

static projected project(const ct_lm_pass *pass, int64_t layer, ct_tensor x) {
    const ct_spec *s = &pass->lm->spec;
    const ct_weight_pair *w = pass->lm->layer[layer];
    const ct_loc here = pass->here;
    projected p;
    if (s->qkv == CT_QKV_SPLIT) {
        p.q = ct__stack_linear(pass, &w[CT_NAME_q], x);
        p.k = ct__stack_linear(pass, &w[CT_NAME_k], x);
        p.v = ct__stack_linear(pass, &w[CT_NAME_v], x);
        if (s->qk_norm == CT_QK_WHOLE) {
            p.q = ct__stack_norm(pass, &w[CT_NAME_q_norm], p.q);
            p.k = ct__stack_norm(pass, &w[CT_NAME_k_norm], p.k);
        }
    } else if (s->qkv == CT_QKV_JOINED) {
        const int64_t q = s->heads * s->head, k = s->kv_heads * s->head,
                      v = s->kv_heads * s->value_head;
        ct_tensor all = ct__stack_linear(pass, &w[CT_NAME_joined_qkv], x); // (N, q + k + v)
        p.q = ct__stack_cut(all, 0, q, here);
        p.k = ct__stack_cut(all, q, q + k, here);
        p.v = ct__stack_cut(all, q + k, q + k + v, here);
    } else {
        ct_tensor all = ct__stack_linear(pass, &w[CT_NAME_joined_qkv], x);
        all = ct__stack_split(all, s->heads, 3 * s->head, here); // (N, heads, 3 * head)
        return (projected){ct__stack_cut(all, 0, s->head, here),
                           ct__stack_cut(all, s->head, 2 * s->head, here),
                           ct__stack_cut(all, 2 * s->head, 3 * s->head, here)};
    }
    return (projected){ct__stack_split(p.q, s->heads, s->head, here),
                       ct__stack_split(p.k, s->kv_heads, s->head, here),
                       ct__stack_split(p.v, s->kv_heads, s->value_head, here)};
}

static const ct_rope *rope_of(const ct_lm_pass *pass, int64_t layer) {
    const ct_spec *s = &pass->lm->spec;
    return &s->turn[s->layer[layer].sight == CT_SIGHT_SLIDING];
}

static ct_tensor turn(const ct_lm_pass *pass, int64_t layer, ct_tensor x, bool first) {
    const ct_spec *s = &pass->lm->spec;
    const ct_turned turned = pass->turned[s->layer[layer].sight == CT_SIGHT_SLIDING];
    return ct__rope_apply(s, rope_of(pass, layer), turned, x, first, pass->here);
}

// The part of latent attention's weight that makes keys, or values, of the narrow vector: (heads, n, latent)
static ct_tensor widen(const ct_lm_pass *pass, int64_t layer, bool values) {
    const ct_spec *s = &pass->lm->spec;
    const ct_loc here = pass->here;
    const ct_weight_pair *own = pass->lm->layer[layer];
    if (own[CT_NAME_k_b].weight.bits) // apart, that of keys the other way round
        return values ? ct__stack_matrix(&own[CT_NAME_v_b], here)
                      : ct_permute_at(ct__stack_matrix(&own[CT_NAME_k_b], here), CT_AXES(0, 2, 1),
                                      here);
    ct_tensor w = ct__stack_matrix(&own[CT_NAME_kv_b], here);
    w = ct_reshape_at(w, CT_DIMS(s->heads, s->plain_head + s->value_head, s->latent), here);
    return ct_slice_with(
        (ct_slice_args){.x = w,
                        .axes = CT_AXES(1),
                        .start = CT_INTS(values ? s->plain_head : 0),
                        .stop = CT_INTS(values ? s->plain_head + s->value_head : s->plain_head),
                        .here = here});
}

// x (N, heads, a) times w (heads, a, b) -> (N, heads, b)
static ct_tensor by_head(ct_tensor x, ct_tensor w, ct_loc here) {
    x = ct_matmul_at(ct_permute_at(x, CT_AXES(1, 0, 2), here), w, here); // (heads, N, b)
    return ct_permute_at(x, CT_AXES(1, 0, 2), here);
}

// Keys and values come from one narrow vector a token (DeepSeek-AI 2024, section 2.1). Queries are brought to
// its width instead of it to theirs, so that it alone is kept and read: all heads share it as key and value. One
// form for training, reading and writing gives all the same bits.
static projected latent(const ct_lm_pass *pass, int64_t layer, ct_tensor x) {
    const ct_spec *s = &pass->lm->spec;
    const ct_weight_pair *w = pass->lm->layer[layer];
    const ct_loc here = pass->here;
    const int64_t turned = s->head - s->plain_head;
    ct_tensor q;
    if (s->query_rank) {
        q = ct__stack_norm(pass, &w[CT_NAME_q_a_norm], ct__stack_linear(pass, &w[CT_NAME_q_a], x));
        q = ct__stack_linear(pass, &w[CT_NAME_q_b], q);
    } else {
        q = ct__stack_linear(pass, &w[CT_NAME_q], x);
    }
    q = ct__stack_split(q, s->heads, s->head, here);
    ct_tensor query[2] = {
        by_head(ct__stack_cut(q, 0, s->plain_head, here), widen(pass, layer, false), here),
        turn(pass, layer, ct__stack_cut(q, s->plain_head, s->head, here), true)};
    ct_tensor both = ct__stack_linear(pass, &w[CT_NAME_kv_a], x); // (N, latent + turned)
    ct_tensor narrow =
        ct__stack_norm(pass, &w[CT_NAME_kv_a_norm], ct__stack_cut(both, 0, s->latent, here));
    ct_tensor place = ct__stack_cut(both, s->latent, s->latent + turned, here);
    ct_tensor key[2] = {ct__stack_split(narrow, 1, s->latent, here),
                        turn(pass, layer, ct__stack_split(place, 1, turned, here), true)};
    return (projected){ct_concat_at(query, 2, -1, here), ct_concat_at(key, 2, -1, here), CT_NONE};
}

// To the size 1, without weights.
static ct_tensor unit(const ct_lm_pass *pass, ct_tensor x) {
    return ct_rms_norm_with(
        (ct_rms_norm_args){.x = x, .eps = CT_F(pass->lm->spec.eps), .here = pass->here});
}

// Queries of layers that do not turn grow with their position (Nakanishi 2025).
static ct_tensor tune(const ct_lm_pass *pass, ct_tensor q) {
    const ct_spec *s = &pass->lm->spec;
    const ct_loc here = pass->here;
    ct_tensor at = ct_add_at(ct_cast_at(pass->positions, CT_F32, here), ct_f(1), here); // (N)
    at = ct_log1p_at(ct_floor_at(ct_div_at(at, ct_f(s->tune_floor), here), here), here);
    at = ct_add_at(ct_mul_at(at, ct_f(s->tune_scale), here), ct_f(1), here);
    return ct_mul_at(q, ct_reshape_at(at, CT_DIMS(-1, 1, 1), here), here);
}

static projected queries_keys_values(const ct_lm_pass *pass, int64_t layer, ct_tensor x) {
    const ct_spec *s = &pass->lm->spec;
    const ct_weight_pair *w = pass->lm->layer[layer];
    if (s->latent) return latent(pass, layer, x);
    projected p = project(pass, layer, x);
    if (s->qk_norm == CT_QK_HEAD) {
        p.q = ct__stack_norm(pass, &w[CT_NAME_q_norm], p.q);
        p.k = ct__stack_norm(pass, &w[CT_NAME_k_norm], p.k);
    }
    if (s->layer[layer].rotates) {
        p.q = turn(pass, layer, p.q, true);
        p.k = turn(pass, layer, p.k, true);
        if (s->qk_norm == CT_QK_UNIT) {
            p.q = unit(pass, p.q);
            p.k = unit(pass, p.k);
        }
    } else if (s->tune_queries) {
        p.q = tune(pass, p.q);
    }
    return p;
}

// ------------------------------------------------------------------------------------------ the cache

// What a layer keeps of keys or of values: numbers, or codes and their scales.
typedef struct pool_of {
    ct_tensor numbers, scales; // CT_NONE: there are none
} pool_of;

static ct_tensor write_rows(const ct_lm_pass *pass, ct_tensor pool, ct_tensor rows) {
    ct_tensor now = ct_scatter_with(
        (ct_scatter_args){.x = pool, .indices = pass->slots, .updates = rows, .here = pass->here});
    ct_assign_at(pool, now, pass->here);
    return now;
}

// The pool with the rows of x (N, heads, head) written to their slots: later reads see them, too. Codes are the nearest
// 127ths of a head's largest number.
static pool_of remember(const ct_lm_pass *pass, pool_of pool, ct_tensor x) {
    const ct_loc here = pass->here;
    if (!pool.numbers.bits || !x.bits) return (pool_of){CT_NONE, CT_NONE};
    if (!pool.scales.bits) {
        x = ct_cast_at(x, ct_dtype_of(pool.numbers), here);
        return (pool_of){write_rows(pass, pool.numbers, x), CT_NONE};
    }
    ct_tensor most = ct_max_with(
        (ct_max_args){.x = ct_abs_at(x, here), .axes = CT_AXES(2), .keepdims = true, .here = here});
    ct_tensor scale = ct_div_at(ct_maximum_at(most, ct_f(1e-30), here), ct_f(127), here);
    ct_tensor codes = ct_cast_at(ct_round_at(ct_div_at(x, scale, here), here), CT_I8, here);
    return (pool_of){write_rows(pass, pool.numbers, codes), write_rows(pass, pool.scales, scale)};
}

// Rows of a pool (slots, heads, n) by the pages of each text: (B, heads, S, n)
static ct_tensor in_order(const ct_lm_segment *g, ct_tensor pool, ct_loc here) {
    const int64_t heads = ct_dim(pool, 1), n = ct_dim(pool, 2);
    const int64_t all = CT_DYN(ct_dim(pool, 0) / CT_LM_PAGE);
    ct_tensor pages = ct_reshape_at(pool, CT_DIMS(all, CT_LM_PAGE, heads, n), here);
    ct_tensor rows = ct_gather_with(
        (ct_gather_args){.x = pages, .indices = g->table, .here = here}); // (B, P, 16, heads, n)
    rows = ct_permute_at(rows, CT_AXES(0, 3, 1, 2, 4), here);
    return ct__stack_numbers(ct_reshape_at(rows, CT_DIMS(g->batch, heads, -1, n), here), here);
}

// What the texts of a segment see of x (N, heads, head): (B, heads, S, head), out of the pool's pages where there
// is one.
static ct_tensor seen(const ct_lm_pass *pass, int segment, ct_tensor x, pool_of pool) {
    const ct_lm_segment *g = &pass->segment[segment];
    const ct_loc here = pass->here;
    if (!pool.numbers.bits) {
        x = ct__stack_rows(pass, segment, x);
        ct_ints dims = CT_DIMS(g->batch, g->time, ct_dim(x, 1), ct_dim(x, 2));
        return ct_permute_at(ct_reshape_at(x, dims, here), CT_AXES(0, 2, 1, 3), here);
    }
    ct_tensor rows = in_order(g, pool.numbers, here);
    return pool.scales.bits ? ct_mul_at(rows, in_order(g, pool.scales, here), here) : rows;
}

// --------------------------------------------------------------------------------------- what is seen

// What queries may see beside what causality and a window say: bools that spread to (B, 1, T, S), or CT_NONE.
static ct_tensor mask_of(const ct_lm_pass *pass, int segment, int64_t layer, ct_tensor keys) {
    const ct_spec *s = &pass->lm->spec;
    const ct_loc here = pass->here;
    const ct_layer_sight sight = s->layer[layer].sight;
    const bool near = s->bidirectional && sight == CT_SIGHT_SLIDING;
    if (sight != CT_SIGHT_CHUNK && !near) return CT_NONE;
    const ct_lm_segment *g = &pass->segment[segment];
    ct_tensor key = ct_iota_at(CT_I32, CT_DIMS(ct__size_like(keys, 2)), 0, here); // (S)
    ct_tensor query = ct_iota_at(CT_I32, CT_DIMS(g->time, 1), 0, here);           // (T, 1)
    if (g->position.bits)                                                         // (B, 1, T, 1)
        query = ct_add_at(query, ct_reshape_at(g->position, CT_DIMS(-1, 1, 1, 1), here), here);
    if (near) {
        ct_tensor away = ct_abs_at(ct_sub_at(query, key, here), here);
        return ct_less_equal_at(away, ct_i(s->window / 2), here);
    }
    ct_tensor size = ct_i(s->chunk);
    return ct_equal_at(ct_floor_divide_at(query, size, here), ct_floor_divide_at(key, size, here),
                       here);
}

// Which of the first layer's scores counts for a distance: places up to half of the buckets of a side each have their
// own, farther ones share one by the logarithm (Raffel et al. 2020, section 2.1). In f32, as it was trained.
static ct_tensor bucket_table(const ct_spec *s, ct_loc here) {
    enum { MOST = 4096 };
    int32_t table[MOST];
    const int64_t all = s->bidirectional ? s->buckets / 2 : s->buckets, own = all / 2,
                  n = s->farthest < MOST ? s->farthest + 1 : MOST;
    for (int64_t d = 0; d < n; d++) {
        const float share =
            logf((float)d / (float)own) / (float)log((double)s->farthest / (double)own);
        const int64_t far = d < own ? d : own + (int64_t)(share * (float)(all - own));
        table[d] = (int32_t)(far < all ? far : all - 1);
    }
    return ct_const_at(table, CT_I32, CT_DIMS(n), here);
}

// Learned scores by distance: (1, heads, T, S), or (B, heads, T, S) where texts have come to different places.
static ct_tensor scores_of(const ct_lm_pass *pass, int segment, ct_tensor keys) {
    const ct_spec *s = &pass->lm->spec;
    const ct_lm_segment *g = &pass->segment[segment];
    const ct_loc here = pass->here;
    if (!s->buckets) return CT_NONE;
    ct_tensor key = ct_iota_at(CT_I32, CT_DIMS(ct__size_like(keys, 2)), 0, here); // (S)
    ct_tensor query = ct_iota_at(CT_I32, CT_DIMS(1, g->time, 1), 1, here);        // (1, T, 1)
    if (g->position.bits)
        query = ct_add_at(query, ct_reshape_at(g->position, CT_DIMS(-1, 1, 1), here), here);
    ct_tensor away = ct_sub_at(key, query, here); // (B, T, S)
    ct_tensor distance = s->bidirectional ? ct_abs_at(away, here)
                                          : ct_maximum_at(ct_neg_at(away, here), ct_i(0), here);
    ct_tensor table = bucket_table(s, here);
    distance = ct_minimum_at(distance, ct_i(ct_dim(table, 0) - 1), here);
    ct_tensor bucket =
        ct_gather_with((ct_gather_args){.x = table, .indices = distance, .here = here});
    if (s->bidirectional) {
        ct_tensor behind = ct_cast_at(ct_greater_at(away, ct_i(0), here), CT_I32, here);
        bucket = ct_add_at(bucket, ct_mul_at(behind, ct_i(s->buckets / 2), here), here);
    }
    ct_tensor learned =
        ct__stack_matrix(&pass->lm->layer[0][CT_NAME_relative], here); // (buckets, heads)
    ct_tensor scores = ct_gather_with(
        (ct_gather_args){.x = learned, .indices = bucket, .here = here}); // (B, T, S, heads)
    return ct_permute_at(scores, CT_AXES(0, 3, 1, 2), here);
}

static double scale_of(const ct_spec *s) {
    return s->scale != 0 ? s->scale : 1 / sqrt(s->scale_of > 0 ? s->scale_of : (double)s->head);
}

static ct_tensor attend(const ct_lm_pass *pass, int segment, int64_t layer, const projected *p,
                        const pool_of pool[2]) {
    const ct_spec *s = &pass->lm->spec;
    const ct_lm_segment *g = &pass->segment[segment];
    const ct_loc here = pass->here;
    const ct_weight_pair sinks = pass->lm->layer[layer][CT_NAME_sinks];
    double scale = scale_of(s);
    if (s->latent) scale *= rope_of(pass, layer)->score_factor;
    ct_tensor q = seen(pass, segment, p->q, (pool_of){CT_NONE, CT_NONE}),
              k = seen(pass, segment, p->k, pool[0]);
    ct_tensor v =
        s->latent ? ct__stack_cut(k, 0, s->latent, here) : seen(pass, segment, p->v, pool[1]);
    const bool causal = !s->bidirectional;
    ct_tensor y = ct_attention_with((ct_attention_args){
        .q = q,
        .k = k,
        .v = v,
        .mask = mask_of(pass, segment, layer, k),
        .bias = scores_of(pass, segment, k),
        .position = causal ? g->position : CT_NONE,
        .length = g->lengths,
        .sinks = sinks.weight.bits ? ct__stack_numbers(sinks.weight, here) : CT_NONE,
        .causal = causal,
        .window = causal && s->layer[layer].sight == CT_SIGHT_SLIDING ? s->window : 0,
        .scale = CT_F(scale),
        .softcap = CT_F(s->softcap),
        .here = here,
    }); // (B, heads, T, width of a value)
    if (!ct_ok(y)) return y;
    const int64_t width = ct_dim(y, 3);
    return ct_reshape_at(ct_permute_at(y, CT_AXES(0, 2, 1, 3), here), CT_DIMS(-1, s->heads, width),
                         here);
}

ct_tensor ct__stack_attention(ct_lm_pass *pass, int64_t layer, ct_tensor x) {
    const ct_spec *s = &pass->lm->spec;
    const ct_loc here = pass->here;
    projected p = queries_keys_values(pass, layer, x);
    pool_of pool[2] = {0}; // keys, values
    if (pass->cache) {
        const ct_weight_pair none = {0}, at = pass->cache->layer[layer],
                             scale = pass->cache->scale ? pass->cache->scale[layer] : none;
        pool[0] = remember(pass, (pool_of){at.weight, scale.weight}, p.k);
        pool[1] = remember(pass, (pool_of){at.bias, scale.bias}, p.v);
    }
    ct_tensor part[2]; // (B * T, heads, width of a value)
    for (int i = 0; i < pass->segments; i++) part[i] = attend(pass, i, layer, &p, pool);
    ct_tensor y = pass->segments == 1 ? part[0] : ct_concat_at(part, pass->segments, 0, here);
    if (s->latent)
        y = by_head(y, ct_permute_at(widen(pass, layer, true), CT_AXES(0, 2, 1), here), here);
    y = ct_reshape_at(y, CT_DIMS(-1, s->heads * s->value_head), here);
    return ct__stack_linear(pass, &pass->lm->layer[layer][CT_NAME_o], y);
}

// Of the encoder's result: keys and values of all of it.
ct_tensor ct__stack_cross(ct_lm_pass *pass, int64_t layer, ct_tensor x) {
    const ct_spec *s = &pass->lm->spec;
    const ct_weight_pair *w = pass->lm->layer[layer];
    const ct_lm_segment *g = &pass->segment[0];
    const ct_loc here = pass->here;
    ct_tensor q =
        ct__stack_split(ct__stack_linear(pass, &w[CT_NAME_cross_q], x), s->heads, s->head, here);
    ct_tensor k = ct__stack_linear(pass, &w[CT_NAME_cross_k], pass->memory); // (B, S, heads * head)
    ct_tensor v = ct__stack_linear(pass, &w[CT_NAME_cross_v], pass->memory);
    k = ct__stack_split(k, s->kv_heads, s->head, here);
    v = ct__stack_split(v, s->kv_heads, s->value_head, here);
    q = ct_reshape_at(q, CT_DIMS(g->batch, g->time, s->heads, s->head), here);
    ct_tensor y = ct_attention_with((ct_attention_args){
        .q = ct_permute_at(q, CT_AXES(0, 2, 1, 3), here),
        .k = ct_permute_at(k, CT_AXES(0, 2, 1, 3), here),
        .v = ct_permute_at(v, CT_AXES(0, 2, 1, 3), here),
        .scale = CT_F(scale_of(s)),
        .here = here,
    }); // (B, heads, T, value_head)
    y = ct_reshape_at(ct_permute_at(y, CT_AXES(0, 2, 1, 3), here),
                      CT_DIMS(-1, s->heads * s->value_head), here);
    return ct__stack_linear(pass, &w[CT_NAME_cross_o], y);
}
