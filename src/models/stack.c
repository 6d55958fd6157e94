// The stack of layers of language models, made from a spec: its variables, and the recording of a forward
// pass.
#include "models/stack.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/quantise.h"
#include "ops/rules.h"

// ----------------------------------------------------------------------------------------- variables

typedef struct stack_shape {
    int64_t dims[3];
    int rank;         // rank of the weight; 0: there is none
    int64_t bias;     // elements of the bias, per expert; 0: there is none
    bool has_experts; // axis 0 is the experts
    bool full_name;   // the name is complete, without ".weight"
} stack_shape;

static stack_shape stack_matrix_shape(const ct_spec *s, int64_t out, int64_t in, bool bias) {
    stack_shape own = {{out, in}, 2, bias ? out : 0, false, false};
    if (s->in_out) own.dims[0] = in, own.dims[1] = out;
    return own;
}
static stack_shape stack_table_shape(int64_t rows, int64_t width) {
    return (stack_shape){{rows, width}, 2, 0, false, false};
}
static stack_shape stack_vector_shape(int64_t n, bool bias) {
    return (stack_shape){{n}, 1, bias ? n : 0, false, false};
}
static stack_shape stack_bare_shape(int64_t n) { return (stack_shape){{n}, 1, 0, false, true}; }
static const stack_shape stack_no_shape;

static stack_shape stack_model_shape(const ct_spec *s, int name) {
    const int64_t w = s->width;
    switch (name) {
    case CT_NAME_embed: return stack_table_shape(s->vocab, w);
    case CT_NAME_position_table: return stack_table_shape(s->positions, w);
    case CT_NAME_type_table: return stack_table_shape(s->types, w);
    case CT_NAME_embed_norm:
    case CT_NAME_final_norm:
    case CT_NAME_output_norm: return stack_vector_shape(w, s->norm_bias);
    case CT_NAME_output_dense:
        return (stack_shape){{w, w}, 2, s->head_bias && s->norm_bias ? w : 0, false, false};
    case CT_NAME_output:
        if (s->tied) return stack_no_shape;
        return (stack_shape){{s->vocab, w},
                             2,
                             s->head_bias && !s->name[CT_NAME_logit_bias] ? s->vocab : 0,
                             false,
                             false};
    case CT_NAME_logit_bias:
        return s->name[CT_NAME_encoder] ? (stack_shape){{1, s->vocab}, 2, 0, false, true}
                                        : stack_bare_shape(s->vocab);
    default: return stack_no_shape;
    }
}

static stack_shape stack_latent_shape(const ct_spec *s, int name) {
    const int64_t w = s->width, rotary_dim = s->head - s->nope_head, queries = s->heads * s->head;
    switch (name) {
    case CT_NAME_q:
        return s->q_lora_rank ? stack_no_shape : stack_matrix_shape(s, queries, w, false);
    case CT_NAME_q_a:
        return s->q_lora_rank ? stack_matrix_shape(s, s->q_lora_rank, w, s->qkv_bias)
                              : stack_no_shape;
    case CT_NAME_q_a_norm:
        return s->q_lora_rank ? stack_vector_shape(s->q_lora_rank, false) : stack_no_shape;
    case CT_NAME_q_b:
        return s->q_lora_rank ? stack_matrix_shape(s, queries, s->q_lora_rank, false)
                              : stack_no_shape;
    case CT_NAME_kv_a: return stack_matrix_shape(s, s->kv_lora_rank + rotary_dim, w, s->qkv_bias);
    case CT_NAME_kv_a_norm: return stack_vector_shape(s->kv_lora_rank, false);
    case CT_NAME_kv_b:
        return stack_matrix_shape(s, s->heads * (s->nope_head + s->value_head), s->kv_lora_rank,
                                  false);
    case CT_NAME_k_b:
        return (stack_shape){{s->heads, s->kv_lora_rank, s->nope_head}, 3, 0, false, false};
    case CT_NAME_v_b:
        return (stack_shape){{s->heads, s->value_head, s->kv_lora_rank}, 3, 0, false, false};
    default: return stack_no_shape;
    }
}

// Layers of Mamba and RWKV, which are neither attention nor MLP.
static stack_shape stack_state_shape(const ct_spec *s, int64_t layer, int name) {
    const int64_t w = s->width, h = s->hidden, a = s->attn_width;
    switch (name) {
    case CT_NAME_ssm_in: return stack_matrix_shape(s, 2 * h, w, s->mlp_bias);
    case CT_NAME_ssm_conv:
        return (stack_shape){{h, 1, s->conv}, 3, s->conv_bias ? h : 0, false, false};
    case CT_NAME_ssm_x: return stack_matrix_shape(s, s->step_rank + 2 * s->state, h, false);
    case CT_NAME_ssm_step: return stack_matrix_shape(s, h, s->step_rank, true);
    case CT_NAME_ssm_decay: return (stack_shape){{h, s->state}, 2, 0, false, true};
    case CT_NAME_ssm_skip: return stack_bare_shape(h);
    case CT_NAME_ssm_out: return stack_matrix_shape(s, w, h, s->mlp_bias);
    case CT_NAME_first_norm: return layer ? stack_no_shape : stack_vector_shape(w, s->norm_bias);
    case CT_NAME_mix_k:
    case CT_NAME_mix_v:
    case CT_NAME_mix_r:
    case CT_NAME_mlp_mix_k:
    case CT_NAME_mlp_mix_r: return (stack_shape){{1, 1, w}, 3, 0, false, true};
    case CT_NAME_decay:
    case CT_NAME_bonus: return stack_bare_shape(a);
    case CT_NAME_k:
    case CT_NAME_v:
    case CT_NAME_r: return stack_matrix_shape(s, a, w, false);
    case CT_NAME_o: return stack_matrix_shape(s, w, a, false);
    case CT_NAME_up: return stack_matrix_shape(s, h, w, false);
    case CT_NAME_down: return stack_matrix_shape(s, w, h, false);
    case CT_NAME_mlp_r: return stack_matrix_shape(s, w, w, false);
    default: return stack_no_shape;
    }
}

static stack_shape stack_attention_shape(const ct_spec *s, int64_t layer, int name) {
    const int64_t w = s->width, q = s->heads * s->head, k = s->kv_heads * s->head,
                  v = s->kv_heads * s->value_head;
    const bool split = s->qkv == CT_QKV_SPLIT, is_whole = s->qk_norm == CT_QK_WHOLE;
    switch (name) {
    case CT_NAME_q: return split ? stack_matrix_shape(s, q, w, s->qkv_bias) : stack_no_shape;
    case CT_NAME_k: return split ? stack_matrix_shape(s, k, w, s->qkv_bias) : stack_no_shape;
    case CT_NAME_v: return split ? stack_matrix_shape(s, v, w, s->qkv_bias) : stack_no_shape;
    case CT_NAME_fused_qkv:
        return split ? stack_no_shape : stack_matrix_shape(s, q + k + v, w, s->qkv_bias);
    case CT_NAME_q_norm: return stack_vector_shape(is_whole ? q : s->head, false);
    case CT_NAME_k_norm: return stack_vector_shape(is_whole ? k : s->head, false);
    case CT_NAME_sinks: return stack_bare_shape(s->heads);
    case CT_NAME_relative: return layer ? stack_no_shape : stack_table_shape(s->buckets, s->heads);
    case CT_NAME_cross_q: return stack_matrix_shape(s, q, w, s->qkv_bias);
    case CT_NAME_cross_k: return stack_matrix_shape(s, k, w, s->qkv_bias);
    case CT_NAME_cross_v: return stack_matrix_shape(s, v, w, s->qkv_bias);
    case CT_NAME_cross_o: return stack_matrix_shape(s, w, s->heads * s->value_head, s->out_bias);
    default: return stack_no_shape;
    }
}

// Weights of all experts are one variable (experts, out, in).
static stack_shape stack_expert_shape(const ct_spec *s, int name) {
    const int64_t w = s->width, h = s->expert_hidden, e = s->experts;
    const bool in_out = s->expert_in_out, bias = s->expert_bias;
    int64_t out = w, in = w;
    switch (name) {
    case CT_NAME_router: return (stack_shape){{e, w}, 2, s->expert_bias ? e : 0, false, false};
    case CT_NAME_router_bias: return stack_bare_shape(e);
    case CT_NAME_expert_gate:
    case CT_NAME_expert_up: out = h; break;
    case CT_NAME_expert_gate_up: out = 2 * h; break;
    case CT_NAME_expert_down: in = h; break;
    case CT_NAME_shared_gate:
    case CT_NAME_shared_up: return stack_matrix_shape(s, s->shared_hidden, w, false);
    case CT_NAME_shared_down: return stack_matrix_shape(s, w, s->shared_hidden, false);
    case CT_NAME_shared_expert_gate: return stack_matrix_shape(s, 1, w, false);
    default: return stack_no_shape;
    }
    const bool is_complete = !strchr(s->name[name], '#'); // one weight in the file, too
    return (stack_shape){
        {e, in_out ? in : out, in_out ? out : in}, 3, bias ? out : 0, true, is_complete};
}

static stack_shape stack_mlp_shape(const ct_spec *s, int name) {
    const int64_t w = s->width, h = s->experts ? s->dense_hidden : s->hidden;
    const bool is_gated = s->mlp == CT_MLP_GATED, is_ungated = s->mlp == CT_MLP_UNGATED;
    switch (name) {
    case CT_NAME_gate: return is_gated ? stack_matrix_shape(s, h, w, s->mlp_bias) : stack_no_shape;
    case CT_NAME_up:
        if (is_ungated && s->name[CT_NAME_ungated_up]) return stack_no_shape;
        return is_gated || is_ungated ? stack_matrix_shape(s, h, w, s->mlp_bias) : stack_no_shape;
    case CT_NAME_ungated_up:
        return is_ungated ? stack_matrix_shape(s, h, w, s->mlp_bias) : stack_no_shape;
    case CT_NAME_gate_up:
        return is_gated || is_ungated ? stack_no_shape
                                      : stack_matrix_shape(s, 2 * h, w, s->mlp_bias);
    case CT_NAME_down: return stack_matrix_shape(s, w, h, s->mlp_bias);
    default: return stack_no_shape;
    }
}

static stack_shape stack_layer_shape(const ct_spec *s, int64_t layer, int name) {
    if (!s->name[name]) return stack_no_shape;
    switch (name) {
    case CT_NAME_attn_norm: // the input of ModernBERT's first layer is normalised already
        if (layer == 0 && s->family == CT_FAMILY_ENCODER && s->order == CT_ORDER_PRE)
            return stack_no_shape;
        return stack_vector_shape(s->width, s->norm_bias);
    case CT_NAME_cross_norm:
    case CT_NAME_attn_post:
    case CT_NAME_mlp_norm:
    case CT_NAME_mlp_post: return stack_vector_shape(s->width, s->norm_bias);
    default: break;
    }
    if (s->family >= CT_FAMILY_MAMBA) return stack_state_shape(s, layer, name);
    if (name == CT_NAME_o)
        return stack_matrix_shape(s, s->width, s->heads * s->value_head, s->out_bias);
    if (name < CT_NAME_gate)
        return s->kv_lora_rank ? stack_latent_shape(s, name)
                               : stack_attention_shape(s, layer, name);
    if (name <= CT_NAME_down)
        return s->layer[layer].experts ? stack_no_shape : stack_mlp_shape(s, name);
    return s->layer[layer].experts ? stack_expert_shape(s, name) : stack_no_shape;
}

// Writes the full name; % is replaced by the layer's number.
static bool stack_full_name(const ct_spec *s, int64_t layer, int name, const char *suffix,
                            char *out) {
    const char *layer_name = s->name[CT_NAME_layer],
               *percent = layer_name ? strchr(layer_name, '%') : NULL;
    int n;
    if (layer < 0)
        n = snprintf(out, CT_NN_MAX_PATH, "%s%s", s->name[name], suffix);
    else if (!percent)
        return false;
    else
        n = snprintf(out, CT_NN_MAX_PATH, "%.*s%lld%s.%s%s", (int)(percent - layer_name),
                     layer_name, (long long)layer, percent + 1, s->name[name], suffix);
    return n < CT_NN_MAX_PATH;
}

// Returns the use of a weight; tied embeddings are mostly used in the product of the output layer.
static ct_lm_use stack_weight_use(const ct_spec *s, int name, const stack_shape *shape) {
    if (shape->has_experts) return CT_LM_PRODUCTS;
    if (shape->rank != 2) return CT_LM_NUMBERS;
    switch (name) {
    case CT_NAME_embed: return s->tied ? CT_LM_PRODUCTS : CT_LM_CODES;
    case CT_NAME_position_table:
    case CT_NAME_type_table:
    case CT_NAME_router:
    case CT_NAME_kv_b:
    case CT_NAME_relative:
    case CT_NAME_ssm_decay: return CT_LM_CODES; // used as f32 values
    default: return CT_LM_PRODUCTS;
    }
}

static bool stack_make_weight(ct_lm *lm, int64_t layer, int name, stack_shape shape,
                              ct_weight_pair *w, ct_loc here) {
    char full_name[CT_NN_MAX_PATH];
    if (!shape.rank || !lm->spec.name[name]) return true;
    bool ok = stack_full_name(&lm->spec, layer, name, shape.full_name ? "" : ".weight", full_name);
    const bool is_new = lm->is_new && !ct_params_find(lm->params, full_name).bits;
    if (is_new) lm->next_init = ct__lm_begins(&lm->spec, name);
    if (ok)
        ct__lm_variable(lm, full_name, (ct_ints){shape.rank, shape.dims},
                        stack_weight_use(&lm->spec, name, &shape), w, here);
    if (ok && shape.bias) {
        const int64_t dim[2] = {shape.has_experts ? shape.dims[0] : shape.bias, shape.bias};
        const size_t n = strlen(full_name);
        if (shape.full_name && ct__ends_with(full_name, ".weight"))
            snprintf(full_name + n - strlen(".weight"), sizeof full_name - n, ".bias");
        else
            ok = stack_full_name(&lm->spec, layer, name, shape.full_name ? "_bias" : ".bias",
                                 full_name);
        ct_weight_pair bias = {0};
        lm->next_init = CT_NN_ZEROS;
        if (ok)
            ct__lm_variable(lm, full_name, (ct_ints){shape.has_experts ? 2 : 1, dim}, CT_LM_NUMBERS,
                            &bias, here);
        w->bias = bias.weight;
    }
    ct_ctx *ctx = ct__ctx();
    if (!ok)
        ct__fail(ctx, CT_E_ARGUMENT, here, "lm", "a weight's name is longer than %d bytes",
                 CT_NN_MAX_PATH);
    if (ok && is_new) ct__lm_begin(lm, layer, name, w, here);
    return ok && !ctx->err.code;
}

static int64_t stack_count_elements(const ct_spec *s, int name, stack_shape shape) {
    int64_t n = shape.rank > 0 && s->name[name];
    bool overflows = false;
    for (int a = 0; a < shape.rank; a++) overflows |= __builtin_mul_overflow(n, shape.dims[a], &n);
    if (shape.bias && n) {
        int64_t bias = shape.has_experts ? shape.dims[0] : 1;
        overflows |= __builtin_mul_overflow(bias, shape.bias, &bias);
        overflows |= __builtin_add_overflow(n, bias, &n);
    }
    return overflows ? INT64_MAX : n;
}

int64_t ct__stack_size(const ct_spec *s) {
    int64_t total = 0;
    bool overflows = false;
    for (int name = CT_NAME_embed; name < CT_NAME_WHOLE; name++)
        overflows |= __builtin_add_overflow(
            total, stack_count_elements(s, name, stack_model_shape(s, name)), &total);
    for (int64_t i = 0; i < s->layers; i++)
        for (int name = CT_NAME_WHOLE; name < CT_NAMES_ALL; name++)
            overflows |= __builtin_add_overflow(
                total, stack_count_elements(s, name, stack_layer_shape(s, i, name)), &total);
    return overflows ? INT64_MAX : total;
}

bool ct__stack_make(ct_lm *lm, ct_loc here) {
    const int end = lm->has_no_output ? CT_NAME_output_dense : CT_NAME_WHOLE;
    lm->layer = ct__calloc((size_t)lm->spec.layers, sizeof *lm->layer);
    if (!lm->layer)
        return ct__err_memory(&ct__ctx()->err, here, "lm",
                              (size_t)lm->spec.layers * sizeof *lm->layer);
    for (int name = CT_NAME_embed; name < end; name++)
        if (!stack_make_weight(lm, -1, name, stack_model_shape(&lm->spec, name),
                               &lm->model_weights[name], here))
            return false;
    for (int64_t i = 0; i < lm->spec.layers; i++)
        for (int name = CT_NAME_WHOLE; name < CT_NAMES_ALL; name++)
            if (!stack_make_weight(lm, i, name, stack_layer_shape(&lm->spec, i, name),
                                   &lm->layer[i][name], here))
                return false;
    return true;
}

static bool stack_zero_bias(const ct_spec *s, int64_t layer, int name, stack_shape shape,
                            bool (*put)(const char *name, int64_t n, void *user), void *user) {
    char full_name[CT_NN_MAX_PATH];
    if (!shape.rank || !shape.bias || !s->name[name]) return true;
    return stack_full_name(s, layer, name, ".bias", full_name) && put(full_name, shape.bias, user);
}

bool ct__stack_zero_biases(const ct_lm *lm, bool (*put)(const char *name, int64_t n, void *user),
                           void *user) {
    ct_spec s = lm->spec;
    if (s.bias) return true;
    s.norm_bias = s.qkv_bias = s.out_bias = s.mlp_bias = 1;
    bool ok = true;
    for (int name = CT_NAME_embed; ok && name < CT_NAME_WHOLE; name++)
        ok = stack_zero_bias(&s, -1, name, stack_model_shape(&s, name), put, user);
    for (int64_t i = 0; i < s.layers; i++)
        for (int name = CT_NAME_WHOLE; ok && name < CT_NAMES_ALL; name++)
            ok = stack_zero_bias(&s, i, name, stack_layer_shape(&s, i, name), put, user);
    return ok;
}

// ----------------------------------------------------------------------------------- parts of layers

ct_tensor ct__stack_numbers(ct_tensor weight, ct_loc here) {
    return ct_dtype_of(weight) == CT_F32 ? weight : ct_cast_at(weight, CT_F32, here);
}

// Dequantises values (..., K): each times its scale, plus its block's offset (..., K / block size).
static ct_tensor stack_dequantise(const ct_weight_pair *w, ct_tensor quants, ct_tensor scales,
                                  ct_tensor offsets, ct_loc here) {
    if (w->exact && offsets.bits) return ct__dequantise_offset(quants, scales, offsets, here);
    ct_tensor x = ct_dequantise_at(quants, scales, w->layout, here);
    if (!ct_ok(x) || !offsets.bits) return x;
    const int last = ct_rank(x) - 1;
    const int64_t width = ct_dim(x, last), groups = ct_dim(offsets, last);
    int64_t sizes[CT_MAX_RANK];
    for (int a = 0; a < last; a++) sizes[a] = ct__size_like(x, a);
    sizes[last] = width;
    x = ct_add_at(ct__stack_split(x, groups, width / groups, here),
                  ct__stack_split(ct__stack_numbers(offsets, here), groups, 1, here), here);
    return ct_reshape_at(x, (ct_ints){last + 1, sizes}, here);
}

// Dequantises blocks (..., bytes), which contain their scales.
static ct_tensor stack_dequantise_blocks(const ct_weight_pair *w, ct_tensor blocks, ct_loc here) {
    int64_t dim[CT_MAX_RANK];
    const int rank = ct_rank(blocks);
    for (int a = 0; a < rank; a++) dim[a] = a < rank - 1 ? ct__size_like(blocks, a) : 0;
    ct_tensor no_scales = ct_zeros_at(CT_U8, (ct_ints){rank, dim}, here);
    return ct_dequantise_at(blocks, no_scales, w->layout, here);
}

typedef struct stack_blocks_job {
    const ct_weight_pair *w;
    ct_tensor x; // (M, in)
    ct_loc here;
} stack_blocks_job;
static void stack_blocks_chunk(const ct_tensor *in, ct_tensor *out, void *user) {
    const stack_blocks_job *p = user;
    ct_tensor w = stack_dequantise_blocks(p->w, in[0], p->here); // (chunk, in)
    out[0] = ct_matmul_at(p->x, ct_permute_at(w, CT_AXES(1, 0), p->here), p->here);
}
// Returns how many rows of the weight to convert at a time so that they stay in the cache: a divisor of all
// rows.
static int64_t stack_chunk_rows(int64_t n, int64_t in) {
    enum { NUMBERS = 2 << 20 };
    int64_t rows = NUMBERS / in < 1 ? 1 : NUMBERS / in < n ? NUMBERS / in : n;
    while (n % rows) rows--;
    return rows;
}
// Multiplies x (..., in) by blocks (out, bytes), which are read once.
static ct_tensor stack_blocks_matmul(ct_tensor x, const ct_weight_pair *w, ct_loc here) {
    if (!ct_ok(x)) return x;
    const int last = ct_rank(x) - 1;
    const int64_t n = ct_dim(w->weight, 0), bytes = ct_dim(w->weight, 1), in = ct_dim(x, last),
                  chunk = stack_chunk_rows(n, in);
    int64_t dim[CT_MAX_RANK];
    for (int a = 0; a < last; a++) dim[a] = ct__size_like(x, a);
    dim[last] = n;
    stack_blocks_job p = {w, ct_reshape_at(x, CT_DIMS(-1, in), here), here};
    const ct_tensor xs = ct_reshape_at(w->weight, CT_DIMS(n / chunk, chunk, bytes), here);
    ct_tensor y; // (n / chunk, M, chunk)
    ct_scan_with(
        (ct_scan_args){
            .body = stack_blocks_chunk, .user = &p, .xs = &xs, .n_xs = 1, .n_ys = 1, .here = here},
        NULL, &y);
    return ct_reshape_at(ct_permute_at(y, CT_AXES(1, 0, 2), here), (ct_ints){last + 1, dim}, here);
}

ct_tensor ct__stack_matrix(const ct_weight_pair *w, ct_loc here) {
    if (w->is_blocks) return stack_dequantise_blocks(w, w->weight, here);
    if (!w->scales.bits) return ct__stack_numbers(w->weight, here);
    return stack_dequantise(w, w->weight, w->scales, w->offsets, here);
}

// Multiplies quantised values by quantised rows; an offset is multiplied by the sum of its block's elements
// of x. An exact weight is dequantised and multiplied with the f32 rows.
ct_tensor ct__stack_product(ct_tensor x, const ct_weight_pair *w, bool in_out, ct_loc here) {
    if (w->is_blocks) return stack_blocks_matmul(x, w, here);
    if (!w->scales.bits || w->exact) {
        ct_tensor weight = ct__stack_matrix(w, here);
        const bool use_as_is = in_out && !w->scales.bits;
        return ct_matmul_at(x, use_as_is ? weight : ct_permute_at(weight, CT_AXES(1, 0), here),
                            here);
    }
    ct_tensor y = w->matrix_index.bits
                      ? ct__chosen_matmul(x, w->weight, w->scales, w->layout, w->matrix_index, here)
                      : ct_quantised_matmul_at(x, w->weight, w->scales, w->layout, here);
    if (!ct_ok(y) || !w->offsets.bits) return y;
    const int64_t groups = ct_dim(w->offsets, 1);
    ct_tensor sums =
        ct_sum_with((ct_sum_args){.x = ct__stack_split(x, groups, ct_dim(x, -1) / groups, here),
                                  .axes = CT_AXES(-1),
                                  .here = here}); // (..., blocks)
    ct_tensor offsets = ct_permute_at(ct__stack_numbers(w->offsets, here), CT_AXES(1, 0), here);
    return ct_add_at(y, ct_matmul_at(sums, offsets, here), here);
}

static ct_tensor stack_gather_rows(ct_tensor stack_table_shape, ct_tensor indices, ct_loc here) {
    if (!stack_table_shape.bits) return CT_NONE;
    return ct_gather_with(
        (ct_gather_args){.x = stack_table_shape, .indices = indices, .here = here});
}

// Gathers rows (N, K) of quantised values or scales in interleaved groups (rows / 16, words, 16 * elements
// per word).
static ct_tensor stack_gather_interleaved(ct_tensor stack_table_shape, ct_tensor indices,
                                          ct_dtype dtype, ct_loc here) {
    ct_tensor sixteen = ct_i(CT_LANES), group = ct_floor_divide_at(indices, sixteen, here);
    ct_tensor lane = ct_sub_at(indices, ct_mul_at(group, sixteen, here), here); // (N)
    const int64_t n = ct__size_like(indices, 0), words = ct_dim(stack_table_shape, 1),
                  each = ct_dim(stack_table_shape, 2) / CT_LANES;
    ct_tensor rows = ct_cast_at(stack_gather_rows(stack_table_shape, group, here), dtype, here);
    rows = ct_reshape_at(rows, CT_DIMS(n, words, CT_LANES, each), here);
    lane = ct_expand_at(ct_reshape_at(lane, CT_DIMS(n, 1, 1, 1), here), CT_DIMS(n, words, 1, each),
                        here);
    rows = ct_take_along_with(
        (ct_take_along_args){.x = rows, .indices = lane, .axis = 2, .here = here});
    return ct_reshape_at(rows, CT_DIMS(n, words * each), here);
}

ct_tensor ct__stack_lookup(const ct_weight_pair *w, ct_tensor indices, ct_loc here) {
    if (w->is_blocks)
        return stack_dequantise_blocks(w, stack_gather_rows(w->weight, indices, here), here);
    if (!w->scales.bits)
        return ct__stack_numbers(stack_gather_rows(w->weight, indices, here), here);
    ct_tensor offsets = stack_gather_rows(w->offsets, indices, here);
    if (!(w->layout & CT_LAYOUT_INTERLEAVED))
        return stack_dequantise(w, stack_gather_rows(w->weight, indices, here),
                                stack_gather_rows(w->scales, indices, here), offsets, here);
    ct_weight_pair linear = *w;
    linear.layout = (ct_layout)(w->layout & ~CT_LAYOUT_INTERLEAVED);
    ct_tensor quants = stack_gather_interleaved(w->weight, indices, CT_I8, here);
    return stack_dequantise(&linear, ct_cast_at(quants, ct_dtype_of(w->weight), here),
                            stack_gather_interleaved(w->scales, indices, CT_F16, here), offsets,
                            here);
}

ct_tensor ct__stack_linear(const ct_lm_pass *pass, const ct_weight_pair *w, ct_tensor x) {
    const ct_loc here = pass->here;
    if (!w->weight.bits) return x;
    x = ct__stack_product(x, w, pass->lm->spec.in_out, here);
    return w->bias.bits ? ct_add_at(x, ct__stack_numbers(w->bias, here), here) : x;
}

ct_tensor ct__stack_norm(const ct_lm_pass *pass, const ct_weight_pair *w, ct_tensor x) {
    const ct_spec *s = &pass->lm->spec;
    const ct_loc here = pass->here;
    if (!w->weight.bits) return x;
    ct_tensor weight = ct__stack_numbers(w->weight, here); // (width)
    if (s->norm == CT_LM_NORM_LAYER)
        return ct_layer_norm_with(
            (ct_layer_norm_args){.x = x,
                                 .weight = weight,
                                 .bias = w->bias.bits ? ct__stack_numbers(w->bias, here) : CT_NONE,
                                 .eps = CT_F(s->eps),
                                 .here = here});
    if (s->norm == CT_LM_NORM_RMS1) weight = ct_add_at(weight, ct_f(1), here);
    return ct_rms_norm_with(
        (ct_rms_norm_args){.x = x, .weight = weight, .eps = CT_F(s->eps), .here = here});
}

ct_tensor ct__stack_activate(const ct_lm_pass *pass, ct_tensor x) {
    enum { SILU, GELU, GELU_NEW, GELU_TANH, GELU_FAST, RELU, SWISH, RELU2, QUICK, TANH };
    const ct_loc here = pass->here;
    switch (pass->lm->spec.act) {
    case GELU: return ct_gelu_with((ct_gelu_args){.x = x, .exact = true, .here = here});
    case GELU_NEW:
    case GELU_TANH:
    case GELU_FAST: return ct_gelu_with((ct_gelu_args){.x = x, .here = here});
    case RELU: return ct_relu_at(x, here);
    case RELU2: return ct_square_at(ct_relu_at(x, here), here);
    case QUICK: return ct_mul_at(x, ct_sigmoid_at(ct_mul_at(x, ct_f(1.702), here), here), here);
    case TANH: return ct_tanh_at(x, here);
    default: return ct_silu_at(x, here);
    }
}

ct_tensor ct__stack_cut(ct_tensor x, int64_t from, int64_t to, ct_loc here) {
    return ct_slice_with((ct_slice_args){
        .x = x, .axes = CT_AXES(-1), .start = CT_INTS(from), .stop = CT_INTS(to), .here = here});
}

ct_tensor ct__stack_split(ct_tensor x, int64_t n, int64_t m, ct_loc here) {
    int64_t sizes[CT_MAX_RANK + 1];
    const int rank = ct_rank(x);
    for (int a = 0; a < rank - 1; a++) sizes[a] = ct__size_like(x, a);
    if (rank < 1) return x; // x is poisoned
    sizes[rank - 1] = n;
    sizes[rank] = m;
    return ct_reshape_at(x, (ct_ints){rank + 1, sizes}, here);
}

ct_tensor ct__stack_mlp(const ct_lm_pass *pass, int64_t layer, ct_tensor x) {
    const ct_weight_pair *w = pass->lm->layer[layer];
    const ct_spec *s = &pass->lm->spec;
    const ct_loc here = pass->here;
    if (s->layer[layer].experts) return ct__stack_experts(pass, layer, x);
    if (s->mlp == CT_MLP_UNGATED) {
        const int up = w[CT_NAME_ungated_up].weight.bits ? CT_NAME_ungated_up : CT_NAME_up;
        x = ct__stack_activate(pass, ct__stack_linear(pass, &w[up], x));
        return ct__stack_linear(pass, &w[CT_NAME_down], x);
    }
    ct_tensor gate, up; // (..., hidden)
    if (s->mlp == CT_MLP_GATED) {
        gate = ct__stack_linear(pass, &w[CT_NAME_gate], x);
        up = ct__stack_linear(pass, &w[CT_NAME_up], x);
    } else {
        const int64_t h = s->experts ? s->dense_hidden : s->hidden;
        ct_tensor both = ct__stack_linear(pass, &w[CT_NAME_gate_up], x);
        gate = ct__stack_cut(both, 0, h, here);
        up = ct__stack_cut(both, h, 2 * h, here);
    }
    x = ct_mul_at(ct__stack_activate(pass, gate), up, here);
    return ct__stack_linear(pass, &w[CT_NAME_down], x);
}

// -------------------------------------------------------------------------------------- forward pass

static ct_tensor stack_embed(const ct_lm_pass *pass, ct_tensor tokens) {
    const ct_lm *lm = pass->lm;
    const ct_spec *s = &lm->spec;
    const ct_loc here = pass->here;
    ct_tensor x = ct__stack_lookup(&lm->model_weights[CT_NAME_embed], tokens, here); // (N, width)
    const double scale = s->embed_sqrt ? sqrt((double)s->width) : s->embed_scale;
    if (scale != 1) x = ct_mul_at(x, ct_f(scale), here);
    const ct_weight_pair *position_table = &lm->model_weights[CT_NAME_position_table];
    if (position_table->weight.bits) {
        ct_tensor at = pass->positions; // (N)
        if (s->first_position) at = ct_add_at(at, ct_i(s->first_position), here);
        x = ct_add_at(x, ct__stack_lookup(position_table, at, here), here);
    }
    const ct_weight_pair *type_table = &lm->model_weights[CT_NAME_type_table];
    ct_tensor types_of_tokens = pass->token_types; // all of type 0: (1)
    if (type_table->weight.bits && !types_of_tokens.bits)
        types_of_tokens = ct_zeros_at(CT_I32, CT_DIMS(1), here);
    if (type_table->weight.bits)
        x = ct_add_at(x, ct__stack_lookup(type_table, types_of_tokens, here), here);
    x = ct__stack_norm(pass, &lm->model_weights[CT_NAME_embed_norm], x);
    return ct_nn_dropout_at(x, pass->mode, here);
}

static ct_tensor stack_add_residual(const ct_lm_pass *pass, ct_tensor x, ct_tensor update) {
    const double scale = pass->lm->spec.residual_scale;
    if (scale != 1) update = ct_mul_at(update, ct_f(scale), pass->here);
    return ct_add_at(x, ct_nn_dropout_at(update, pass->mode, pass->here), pass->here);
}

// Records a layer with norms after the residual sums.
static ct_tensor stack_post_norm_layer(ct_lm_pass *pass, int64_t i, ct_tensor x) {
    const ct_weight_pair *w = pass->lm->layer[i];
    x = ct__stack_norm(pass, &w[CT_NAME_attn_norm],
                       stack_add_residual(pass, x, ct__stack_attention(pass, i, x)));
    if (w[CT_NAME_cross_q].weight.bits)
        x = ct__stack_norm(pass, &w[CT_NAME_cross_norm],
                           stack_add_residual(pass, x, ct__stack_cross(pass, i, x)));
    return ct__stack_norm(pass, &w[CT_NAME_mlp_norm],
                          stack_add_residual(pass, x, ct__stack_mlp(pass, i, x)));
}

// x (N, width) -> (N, width)
static ct_tensor stack_layer(ct_lm_pass *pass, int64_t i, ct_tensor x) {
    const ct_spec *s = &pass->lm->spec;
    const ct_weight_pair *w = pass->lm->layer[i];
    if (s->family == CT_FAMILY_RWKV) return ct__stack_rwkv(pass, i, x);
    if (s->order == CT_ORDER_POST) return stack_post_norm_layer(pass, i, x);
    ct_tensor normed = ct__stack_norm(pass, &w[CT_NAME_attn_norm], x);
    if (s->family == CT_FAMILY_MAMBA)
        return stack_add_residual(pass, x, ct__stack_mamba(pass, i, normed));
    ct_tensor a = ct__stack_attention(pass, i, normed);
    if (s->parallel) {
        if (w[CT_NAME_mlp_norm].weight.bits) normed = ct__stack_norm(pass, &w[CT_NAME_mlp_norm], x);
        return stack_add_residual(pass, x,
                                  ct_add_at(a, ct__stack_mlp(pass, i, normed), pass->here));
    }
    x = stack_add_residual(pass, x, ct__stack_norm(pass, &w[CT_NAME_attn_post], a));
    if (w[CT_NAME_cross_q].weight.bits) {
        normed = ct__stack_norm(pass, &w[CT_NAME_cross_norm], x);
        x = stack_add_residual(pass, x, ct__stack_cross(pass, i, normed));
    }
    ct_tensor m = ct__stack_mlp(pass, i, ct__stack_norm(pass, &w[CT_NAME_mlp_norm], x));
    return stack_add_residual(pass, x, ct__stack_norm(pass, &w[CT_NAME_mlp_post], m));
}

ct_tensor ct__stack_rows(const ct_lm_pass *pass, int segment, ct_tensor x) {
    if (pass->segments == 1) return x;
    const int64_t n = ct__size_like(pass->segment[segment].row_template, 0);
    ct_tensor from = segment
                         ? ct__size_number(ct__size_like(pass->segment[0].row_template, 0), CT_I32)
                         : ct_i(0);
    return ct_dynamic_slice_with((ct_dynamic_slice_args){
        .x = x, .starts = from, .axes = CT_AXES(0), .sizes = CT_DIMS(n), .here = pass->here});
}

ct_tensor ct__stack_hidden(ct_lm_pass *pass, ct_tensor tokens) {
    const ct_spec *s = &pass->lm->spec;
    ct_ctx *ctx = ct__ctx();
    for (int i = 0; i < 2 && s->rope != CT_ROPE_NONE; i++)
        pass->cos_sin[i] = ct__rope_at(&s->ropes[i], pass->positions, pass->max_length, pass->here);
    ct_tensor x = stack_embed(pass, tokens); // (N, width)
    for (int64_t i = 0; i < s->layers; i++) {
        const uint16_t region = ct__region_begin(ctx);
        x = stack_layer(pass, i, x);
        ct__region_end(ctx, region);
    }
    return ct__stack_norm(pass, &pass->lm->model_weights[CT_NAME_final_norm], x);
}

ct_tensor ct__stack_logits(const ct_lm_pass *pass, ct_tensor x) {
    const ct_lm *lm = pass->lm;
    const ct_spec *s = &lm->spec;
    const ct_loc here = pass->here;
    const ct_weight_pair *dense = &lm->model_weights[CT_NAME_output_dense];
    if (dense->weight.bits) {
        x = ct__stack_activate(pass, ct__stack_linear(pass, dense, x));
        x = ct__stack_norm(pass, &lm->model_weights[CT_NAME_output_norm], x);
    }
    const ct_weight_pair *head = &lm->model_weights[s->tied ? CT_NAME_embed : CT_NAME_output];
    x = ct__stack_product(x, head, false, here); // (M, vocab)
    ct_tensor bias = head->bias.bits ? head->bias : lm->model_weights[CT_NAME_logit_bias].weight;
    if (bias.bits) x = ct_add_at(x, ct__stack_numbers(bias, here), here);
    if (s->logit_sqrt) x = ct_div_at(x, ct_f(sqrt((double)s->width)), here);
    if (s->logit_scale != 1) x = ct_div_at(x, ct_f(s->logit_scale), here);
    if (s->final_softcap != 0) {
        ct_tensor cap = ct_f(s->final_softcap);
        x = ct_mul_at(ct_tanh_at(ct_div_at(x, cap, here), here), cap, here);
    }
    return x;
}

ct_tensor ct__stack_scores(const ct_lm_pass *pass, ct_tensor x) {
    const ct_lm *lm = pass->lm;
    const ct_weight_pair *weights[] = {&lm->model_weights[CT_NAME_score_dense],
                                       &lm->model_weights[CT_NAME_score_output]};
    for (int i = 0; i < 2; i++) {
        if (!weights[i]->weight.bits) continue;
        x = ct__stack_product(x, weights[i], false, pass->here);
        if (weights[i]->bias.bits)
            x = ct_add_at(x, ct__stack_numbers(weights[i]->bias, pass->here), pass->here);
        if (i) continue;
        x = lm->spec.score_act == CT_SCORE_TANH   ? ct_tanh_at(x, pass->here)
            : lm->spec.score_act == CT_SCORE_RELU ? ct_relu_at(x, pass->here)
                                                  : ct__stack_activate(pass, x);
        x = ct__stack_norm(pass, &lm->model_weights[CT_NAME_score_norm], x);
    }
    return x;
}
