// Attention of a language model's layer: computes queries, keys and values from the layer's weights, and
// the attention mask.
#include <math.h>

#include "models/stack.h"
#include "ops/rules.h"

typedef struct attn_qkv { // (N, heads, head); keys and values have their own number of heads
    ct_tensor q, k, v;
} attn_qkv;

static attn_qkv attn_project(const ct_lm_pass *pass, int64_t layer, ct_tensor x) {
    const ct_spec *s = &pass->lm->spec;
    const ct_weight_pair *w = pass->lm->layer[layer];
    const ct_loc here = pass->here;
    attn_qkv p;
    if (s->qkv == CT_QKV_SPLIT) {
        p.q = ct__stack_linear(pass, &w[CT_NAME_q], x);
        p.k = ct__stack_linear(pass, &w[CT_NAME_k], x);
        p.v = ct__stack_linear(pass, &w[CT_NAME_v], x);
        if (s->qk_norm == CT_QK_WHOLE) {
            p.q = ct__stack_norm(pass, &w[CT_NAME_q_norm], p.q);
            p.k = ct__stack_norm(pass, &w[CT_NAME_k_norm], p.k);
        }
    } else if (s->qkv == CT_QKV_FUSED) {
        const int64_t q = s->heads * s->head, k = s->kv_heads * s->head,
                      v = s->kv_heads * s->value_head;
        ct_tensor joined = ct__stack_linear(pass, &w[CT_NAME_fused_qkv], x); // (N, q + k + v)
        p.q = ct__stack_cut(joined, 0, q, here);
        p.k = ct__stack_cut(joined, q, q + k, here);
        p.v = ct__stack_cut(joined, q + k, q + k + v, here);
    } else {
        ct_tensor joined = ct__stack_linear(pass, &w[CT_NAME_fused_qkv], x);
        joined = ct__stack_split(joined, s->heads, 3 * s->head, here); // (N, heads, 3 * head)
        return (attn_qkv){ct__stack_cut(joined, 0, s->head, here),
                          ct__stack_cut(joined, s->head, 2 * s->head, here),
                          ct__stack_cut(joined, 2 * s->head, 3 * s->head, here)};
    }
    return (attn_qkv){ct__stack_split(p.q, s->heads, s->head, here),
                      ct__stack_split(p.k, s->kv_heads, s->head, here),
                      ct__stack_split(p.v, s->kv_heads, s->value_head, here)};
}

static const ct_rope *attn_get_rope(const ct_lm_pass *pass, int64_t layer) {
    const ct_spec *s = &pass->lm->spec;
    return &s->ropes[s->layer[layer].mask == CT_LAYER_MASK_SLIDING];
}

static ct_tensor attn_rotate(const ct_lm_pass *pass, int64_t layer, ct_tensor x, bool first) {
    const ct_spec *s = &pass->lm->spec;
    const ct_rope_tables tables = pass->cos_sin[s->layer[layer].mask == CT_LAYER_MASK_SLIDING];
    return ct__rope_apply(s, attn_get_rope(pass, layer), tables, x, first, pass->here);
}

// Returns the part of latent attention's weight that makes keys, or values, from the latent vector: (heads,
// n, latent)
static ct_tensor attn_latent_weight(const ct_lm_pass *pass, int64_t layer, bool values) {
    const ct_spec *s = &pass->lm->spec;
    const ct_loc here = pass->here;
    const ct_weight_pair *weights = pass->lm->layer[layer];
    if (weights[CT_NAME_k_b].weight.bits) // separate weights, that of keys transposed
        return values ? ct__stack_matrix(&weights[CT_NAME_v_b], here)
                      : ct_permute_at(ct__stack_matrix(&weights[CT_NAME_k_b], here),
                                      CT_AXES(0, 2, 1), here);
    ct_tensor w = ct__stack_matrix(&weights[CT_NAME_kv_b], here);
    w = ct_reshape_at(w, CT_DIMS(s->heads, s->nope_head + s->value_head, s->kv_lora_rank), here);
    return ct_slice_with(
        (ct_slice_args){.x = w,
                        .axes = CT_AXES(1),
                        .start = CT_INTS(values ? s->nope_head : 0),
                        .stop = CT_INTS(values ? s->nope_head + s->value_head : s->nope_head),
                        .here = here});
}

// x (N, heads, a) times w (heads, a, b) -> (N, heads, b)
static ct_tensor attn_matmul_by_head(ct_tensor x, ct_tensor w, ct_loc here) {
    x = ct_matmul_at(ct_permute_at(x, CT_AXES(1, 0, 2), here), w, here); // (heads, N, b)
    return ct_permute_at(x, CT_AXES(1, 0, 2), here);
}

// Latent attention: keys and values come from one narrow vector per token (DeepSeek-AI 2024, section 2.1).
// Queries are projected to its width instead of it to theirs, so that only the vector is cached and read:
// all heads share it as key and value. The same form is used for training, prefill and decoding, which
// gives all the same bits.
static attn_qkv attn_project_latent(const ct_lm_pass *pass, int64_t layer, ct_tensor x) {
    const ct_spec *s = &pass->lm->spec;
    const ct_weight_pair *w = pass->lm->layer[layer];
    const ct_loc here = pass->here;
    const int64_t rotary_dim = s->head - s->nope_head;
    ct_tensor q;
    if (s->q_lora_rank) {
        q = ct__stack_norm(pass, &w[CT_NAME_q_a_norm], ct__stack_linear(pass, &w[CT_NAME_q_a], x));
        q = ct__stack_linear(pass, &w[CT_NAME_q_b], q);
    } else {
        q = ct__stack_linear(pass, &w[CT_NAME_q], x);
    }
    q = ct__stack_split(q, s->heads, s->head, here);
    ct_tensor query[2] = {
        attn_matmul_by_head(ct__stack_cut(q, 0, s->nope_head, here),
                            attn_latent_weight(pass, layer, false), here),
        attn_rotate(pass, layer, ct__stack_cut(q, s->nope_head, s->head, here), true)};
    ct_tensor joined = ct__stack_linear(pass, &w[CT_NAME_kv_a], x); // (N, latent + rotary)
    ct_tensor latent_vector = ct__stack_norm(pass, &w[CT_NAME_kv_a_norm],
                                             ct__stack_cut(joined, 0, s->kv_lora_rank, here));
    ct_tensor rotary_part =
        ct__stack_cut(joined, s->kv_lora_rank, s->kv_lora_rank + rotary_dim, here);
    ct_tensor key[2] = {
        ct__stack_split(latent_vector, 1, s->kv_lora_rank, here),
        attn_rotate(pass, layer, ct__stack_split(rotary_part, 1, rotary_dim, here), true)};
    return (attn_qkv){ct_concat_at(query, 2, -1, here), ct_concat_at(key, 2, -1, here), CT_NONE};
}

// Normalises to size 1, without weights.
static ct_tensor attn_unit_norm(const ct_lm_pass *pass, ct_tensor x) {
    return ct_rms_norm_with(
        (ct_rms_norm_args){.x = x, .eps = CT_F(pass->lm->spec.eps), .here = pass->here});
}

// Scales the queries of layers without rope by their position (Nakanishi 2025).
static ct_tensor attn_scale_queries(const ct_lm_pass *pass, ct_tensor q) {
    const ct_spec *s = &pass->lm->spec;
    const ct_loc here = pass->here;
    ct_tensor at = ct_add_at(ct_cast_at(pass->positions, CT_F32, here), ct_f(1), here); // (N)
    at = ct_log1p_at(ct_floor_at(ct_div_at(at, ct_f(s->tune_floor), here), here), here);
    at = ct_add_at(ct_mul_at(at, ct_f(s->tune_scale), here), ct_f(1), here);
    return ct_mul_at(q, ct_reshape_at(at, CT_DIMS(-1, 1, 1), here), here);
}

static attn_qkv attn_make_qkv(const ct_lm_pass *pass, int64_t layer, ct_tensor x) {
    const ct_spec *s = &pass->lm->spec;
    const ct_weight_pair *w = pass->lm->layer[layer];
    if (s->kv_lora_rank) return attn_project_latent(pass, layer, x);
    attn_qkv p = attn_project(pass, layer, x);
    if (s->qk_norm == CT_QK_HEAD) {
        p.q = ct__stack_norm(pass, &w[CT_NAME_q_norm], p.q);
        p.k = ct__stack_norm(pass, &w[CT_NAME_k_norm], p.k);
    }
    if (s->layer[layer].has_rope) {
        p.q = attn_rotate(pass, layer, p.q, true);
        p.k = attn_rotate(pass, layer, p.k, true);
        if (s->qk_norm == CT_QK_UNIT) {
            p.q = attn_unit_norm(pass, p.q);
            p.k = attn_unit_norm(pass, p.k);
        }
    } else if (s->tune_queries) {
        p.q = attn_scale_queries(pass, p.q);
    }
    return p;
}

// --------------------------------------------------------------------------------------------- cache

// A layer's pool of keys or of values: f32, f16 or bf16 elements, or 8-bit values and their scales.
typedef struct attn_pool {
    ct_tensor values, scales; // CT_NONE: there are none
} attn_pool;

static ct_tensor attn_write_slots(const ct_lm_pass *pass, ct_tensor pool, ct_tensor rows) {
    ct_tensor updated = ct_scatter_with(
        (ct_scatter_args){.x = pool, .indices = pass->slots, .updates = rows, .here = pass->here});
    ct_assign_at(pool, updated, pass->here);
    return updated;
}

// Returns the pool with the rows of x (N, heads, head) written to their slots, which later reads see, too.
// 8-bit values are multiples of 1/127 of a head's largest magnitude, rounded to nearest.
static attn_pool attn_update_cache(const ct_lm_pass *pass, attn_pool pool, ct_tensor x) {
    const ct_loc here = pass->here;
    if (!pool.values.bits || !x.bits) return (attn_pool){CT_NONE, CT_NONE};
    if (!pool.scales.bits) {
        x = ct_cast_at(x, ct_dtype_of(pool.values), here);
        return (attn_pool){attn_write_slots(pass, pool.values, x), CT_NONE};
    }
    ct_tensor largest = ct_max_with(
        (ct_max_args){.x = ct_abs_at(x, here), .axes = CT_AXES(2), .keepdims = true, .here = here});
    ct_tensor scale = ct_div_at(ct_maximum_at(largest, ct_f(1e-30), here), ct_f(127), here);
    ct_tensor quants = ct_cast_at(ct_round_at(ct_div_at(x, scale, here), here), CT_I8, here);
    return (attn_pool){attn_write_slots(pass, pool.values, quants),
                       attn_write_slots(pass, pool.scales, scale)};
}

// Gathers the rows of a pool (slots, heads, n) by each sequence's pages: (B, heads, S, n)
static ct_tensor attn_gather_pages(const ct_lm_segment *g, ct_tensor pool, ct_loc here) {
    const int64_t heads = ct_dim(pool, 1), n = ct_dim(pool, 2);
    const int64_t n_pages = CT_DYN(ct_dim(pool, 0) / CT_LM_PAGE);
    ct_tensor pages = ct_reshape_at(pool, CT_DIMS(n_pages, CT_LM_PAGE, heads, n), here);
    ct_tensor rows = ct_gather_with(
        (ct_gather_args){.x = pages, .indices = g->table, .here = here}); // (B, P, 16, heads, n)
    rows = ct_permute_at(rows, CT_AXES(0, 3, 1, 2, 4), here);
    return ct__stack_numbers(ct_reshape_at(rows, CT_DIMS(g->batch, heads, -1, n), here), here);
}

// Returns the keys or values that a segment's sequences attend to, from x (N, heads, head) or from the
// pool's pages: (B, heads, S, head)
static ct_tensor attn_get_keys(const ct_lm_pass *pass, int segment, ct_tensor x, attn_pool pool) {
    const ct_lm_segment *g = &pass->segment[segment];
    const ct_loc here = pass->here;
    if (!pool.values.bits) {
        x = ct__stack_rows(pass, segment, x);
        ct_ints dims = CT_DIMS(g->batch, g->time, ct_dim(x, 1), ct_dim(x, 2));
        return ct_permute_at(ct_reshape_at(x, dims, here), CT_AXES(0, 2, 1, 3), here);
    }
    ct_tensor rows = attn_gather_pages(g, pool.values, here);
    return pool.scales.bits ? ct_mul_at(rows, attn_gather_pages(g, pool.scales, here), here) : rows;
}

// ---------------------------------------------------------------------------------- masks and scores

// Returns the mask beside causality and window: bools that broadcast to (B, 1, T, S), or CT_NONE.
static ct_tensor attn_make_mask(const ct_lm_pass *pass, int segment, int64_t layer,
                                ct_tensor keys) {
    const ct_spec *s = &pass->lm->spec;
    const ct_loc here = pass->here;
    const ct_layer_mask mask_kind = s->layer[layer].mask;
    const bool is_local = s->bidirectional && mask_kind == CT_LAYER_MASK_SLIDING;
    if (mask_kind != CT_LAYER_MASK_CHUNKED && !is_local) return CT_NONE;
    const ct_lm_segment *g = &pass->segment[segment];
    ct_tensor key = ct_iota_at(CT_I32, CT_DIMS(ct__size_like(keys, 2)), 0, here); // (S)
    ct_tensor query = ct_iota_at(CT_I32, CT_DIMS(g->time, 1), 0, here);           // (T, 1)
    if (g->position.bits)                                                         // (B, 1, T, 1)
        query = ct_add_at(query, ct_reshape_at(g->position, CT_DIMS(-1, 1, 1, 1), here), here);
    if (is_local) {
        ct_tensor distance = ct_abs_at(ct_sub_at(query, key, here), here);
        return ct_less_equal_at(distance, ct_i(s->window / 2), here);
    }
    ct_tensor size = ct_i(s->chunk);
    return ct_equal_at(ct_floor_divide_at(query, size, here), ct_floor_divide_at(key, size, here),
                       here);
}

// Returns the bucket of each distance: distances up to half of the buckets of a side each have their own,
// larger ones share buckets on a logarithmic scale (Raffel et al. 2020, section 2.1). Computed in f32, as
// for the training of T5.
static ct_tensor attn_bucket_table(const ct_spec *s, ct_loc here) {
    enum { MAX_DISTANCE = 4096 };
    int32_t table[MAX_DISTANCE];
    const int64_t n_buckets = s->bidirectional ? s->buckets / 2 : s->buckets,
                  n_exact = n_buckets / 2,
                  n = s->max_distance < MAX_DISTANCE ? s->max_distance + 1 : MAX_DISTANCE;
    for (int64_t d = 0; d < n; d++) {
        const float fraction =
            logf((float)d / (float)n_exact) / (float)log((double)s->max_distance / (double)n_exact);
        const int64_t bucket =
            d < n_exact ? d : n_exact + (int64_t)(fraction * (float)(n_buckets - n_exact));
        table[d] = (int32_t)(bucket < n_buckets ? bucket : n_buckets - 1);
    }
    return ct_const_at(table, CT_I32, CT_DIMS(n), here);
}

// Returns the learned scores by distance: (1, heads, T, S), or (B, heads, T, S) where sequences have
// different positions.
static ct_tensor attn_relative_bias(const ct_lm_pass *pass, int segment, ct_tensor keys) {
    const ct_spec *s = &pass->lm->spec;
    const ct_lm_segment *g = &pass->segment[segment];
    const ct_loc here = pass->here;
    if (!s->buckets) return CT_NONE;
    ct_tensor key = ct_iota_at(CT_I32, CT_DIMS(ct__size_like(keys, 2)), 0, here); // (S)
    ct_tensor query = ct_iota_at(CT_I32, CT_DIMS(1, g->time, 1), 1, here);        // (1, T, 1)
    if (g->position.bits)
        query = ct_add_at(query, ct_reshape_at(g->position, CT_DIMS(-1, 1, 1), here), here);
    ct_tensor offset = ct_sub_at(key, query, here); // (B, T, S)
    ct_tensor distance = s->bidirectional ? ct_abs_at(offset, here)
                                          : ct_maximum_at(ct_neg_at(offset, here), ct_i(0), here);
    ct_tensor table = attn_bucket_table(s, here);
    distance = ct_minimum_at(distance, ct_i(ct_dim(table, 0) - 1), here);
    ct_tensor bucket =
        ct_gather_with((ct_gather_args){.x = table, .indices = distance, .here = here});
    if (s->bidirectional) {
        ct_tensor is_later = ct_cast_at(ct_greater_at(offset, ct_i(0), here), CT_I32, here);
        bucket = ct_add_at(bucket, ct_mul_at(is_later, ct_i(s->buckets / 2), here), here);
    }
    ct_tensor learned =
        ct__stack_matrix(&pass->lm->layer[0][CT_NAME_relative], here); // (buckets, heads)
    ct_tensor scores = ct_gather_with(
        (ct_gather_args){.x = learned, .indices = bucket, .here = here}); // (B, T, S, heads)
    return ct_permute_at(scores, CT_AXES(0, 3, 1, 2), here);
}

static double attn_scale(const ct_spec *s) {
    return s->scale != 0 ? s->scale : 1 / sqrt(s->scale_of > 0 ? s->scale_of : (double)s->head);
}

static ct_tensor attn_attend(const ct_lm_pass *pass, int segment, int64_t layer, const attn_qkv *p,
                             const attn_pool pool[2]) {
    const ct_spec *s = &pass->lm->spec;
    const ct_lm_segment *g = &pass->segment[segment];
    const ct_loc here = pass->here;
    const ct_weight_pair sinks = pass->lm->layer[layer][CT_NAME_sinks];
    double scale = attn_scale(s);
    if (s->kv_lora_rank) scale *= attn_get_rope(pass, layer)->score_scale;
    ct_tensor q = attn_get_keys(pass, segment, p->q, (attn_pool){CT_NONE, CT_NONE}),
              k = attn_get_keys(pass, segment, p->k, pool[0]);
    ct_tensor v = s->kv_lora_rank ? ct__stack_cut(k, 0, s->kv_lora_rank, here)
                                  : attn_get_keys(pass, segment, p->v, pool[1]);
    const bool causal = !s->bidirectional;
    ct_tensor y = ct_attention_with((ct_attention_args){
        .q = q,
        .k = k,
        .v = v,
        .mask = attn_make_mask(pass, segment, layer, k),
        .bias = attn_relative_bias(pass, segment, k),
        .position = causal ? g->position : CT_NONE,
        .length = g->lengths,
        .sinks = sinks.weight.bits ? ct__stack_numbers(sinks.weight, here) : CT_NONE,
        .causal = causal,
        .window = causal && s->layer[layer].mask == CT_LAYER_MASK_SLIDING ? s->window : 0,
        .scale = CT_F(scale),
        .softcap = CT_F(s->softcap),
        .here = here,
    }); // (B, heads, T, value width)
    if (!ct_ok(y)) return y;
    const int64_t width = ct_dim(y, 3);
    return ct_reshape_at(ct_permute_at(y, CT_AXES(0, 2, 1, 3), here), CT_DIMS(-1, s->heads, width),
                         here);
}

ct_tensor ct__stack_attention(ct_lm_pass *pass, int64_t layer, ct_tensor x) {
    const ct_spec *s = &pass->lm->spec;
    const ct_loc here = pass->here;
    attn_qkv p = attn_make_qkv(pass, layer, x);
    attn_pool pool[2] = {0}; // keys, values
    if (pass->cache) {
        const ct_weight_pair none = {0}, at = pass->cache->layer[layer],
                             scale = pass->cache->scales ? pass->cache->scales[layer] : none;
        pool[0] = attn_update_cache(pass, (attn_pool){at.weight, scale.weight}, p.k);
        pool[1] = attn_update_cache(pass, (attn_pool){at.bias, scale.bias}, p.v);
    }
    ct_tensor part[2]; // (B * T, heads, value width)
    for (int i = 0; i < pass->segments; i++) part[i] = attn_attend(pass, i, layer, &p, pool);
    ct_tensor y = pass->segments == 1 ? part[0] : ct_concat_at(part, pass->segments, 0, here);
    if (s->kv_lora_rank)
        y = attn_matmul_by_head(
            y, ct_permute_at(attn_latent_weight(pass, layer, true), CT_AXES(0, 2, 1), here), here);
    y = ct_reshape_at(y, CT_DIMS(-1, s->heads * s->value_head), here);
    return ct__stack_linear(pass, &pass->lm->layer[layer][CT_NAME_o], y);
}

// Cross-attention: keys and values are computed from the whole output of the encoder.
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
        .scale = CT_F(attn_scale(s)),
        .here = here,
    }); // (B, heads, T, value_head)
    y = ct_reshape_at(ct_permute_at(y, CT_AXES(0, 2, 1, 3), here),
                      CT_DIMS(-1, s->heads * s->value_head), here);
    return ct__stack_linear(pass, &w[CT_NAME_cross_o], y);
}
