// The stack of layers that language models are, from a spec: variables, and a pass over tokens.
#include "models/stack.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/plain.h"
#include "ops/quantise.h"
#include "ops/rules.h"

// ---------------------------------------------------------------------------------------- variables

typedef struct shape {
    int64_t dim[3];
    int n;        // axes of the weight; 0: there is none
    int64_t bias; // numbers of it, of each expert; 0: there is none
    bool experts; // axis 0 is theirs
    bool plain;   // named as it stands, without ".weight"
} shape;

static shape matrix(const ct_spec *s, int64_t out, int64_t in, bool bias) {
    shape own = {{out, in}, 2, bias ? out : 0, false, false};
    if (s->in_out) own.dim[0] = in, own.dim[1] = out;
    return own;
}
static shape table(int64_t rows, int64_t width) {
    return (shape){{rows, width}, 2, 0, false, false};
}
static shape vector(int64_t n, bool bias) { return (shape){{n}, 1, bias ? n : 0, false, false}; }
static shape bare(int64_t n) { return (shape){{n}, 1, 0, false, true}; }
static const shape nothing;

static shape whole_shape(const ct_spec *s, int name) {
    const int64_t w = s->width;
    switch (name) {
    case CT_NAME_embed: return table(s->vocab, w);
    case CT_NAME_position_table: return table(s->positions, w);
    case CT_NAME_type_table: return table(s->types, w);
    case CT_NAME_embed_norm:
    case CT_NAME_final_norm:
    case CT_NAME_output_norm: return vector(w, s->norm_bias);
    case CT_NAME_output_dense:
        return (shape){{w, w}, 2, s->head_bias && s->norm_bias ? w : 0, false, false};
    case CT_NAME_output:
        if (s->tied) return nothing;
        return (shape){{s->vocab, w},
                       2,
                       s->head_bias && !s->name[CT_NAME_logit_bias] ? s->vocab : 0,
                       false,
                       false};
    case CT_NAME_logit_bias:
        return s->name[CT_NAME_encoder] ? (shape){{1, s->vocab}, 2, 0, false, true}
                                        : bare(s->vocab);
    default: return nothing;
    }
}

static shape latent_shape(const ct_spec *s, int name) {
    const int64_t w = s->width, turned = s->head - s->plain_head, queries = s->heads * s->head;
    switch (name) {
    case CT_NAME_q: return s->query_rank ? nothing : matrix(s, queries, w, false);
    case CT_NAME_q_a: return s->query_rank ? matrix(s, s->query_rank, w, s->qkv_bias) : nothing;
    case CT_NAME_q_a_norm: return s->query_rank ? vector(s->query_rank, false) : nothing;
    case CT_NAME_q_b: return s->query_rank ? matrix(s, queries, s->query_rank, false) : nothing;
    case CT_NAME_kv_a: return matrix(s, s->latent + turned, w, s->qkv_bias);
    case CT_NAME_kv_a_norm: return vector(s->latent, false);
    case CT_NAME_kv_b:
        return matrix(s, s->heads * (s->plain_head + s->value_head), s->latent, false);
    case CT_NAME_k_b: return (shape){{s->heads, s->latent, s->plain_head}, 3, 0, false, false};
    case CT_NAME_v_b: return (shape){{s->heads, s->value_head, s->latent}, 3, 0, false, false};
    default: return nothing;
    }
}

// Of Mamba and RWKV, which are neither attention nor MLP.
static shape state_shape(const ct_spec *s, int64_t layer, int name) {
    const int64_t w = s->width, h = s->hidden, a = s->attn_width;
    switch (name) {
    case CT_NAME_ssm_in: return matrix(s, 2 * h, w, s->mlp_bias);
    case CT_NAME_ssm_conv: return (shape){{h, 1, s->conv}, 3, s->conv_bias ? h : 0, false, false};
    case CT_NAME_ssm_x: return matrix(s, s->step_rank + 2 * s->state, h, false);
    case CT_NAME_ssm_step: return matrix(s, h, s->step_rank, true);
    case CT_NAME_ssm_decay: return (shape){{h, s->state}, 2, 0, false, true};
    case CT_NAME_ssm_skip: return bare(h);
    case CT_NAME_ssm_out: return matrix(s, w, h, s->mlp_bias);
    case CT_NAME_first_norm: return layer ? nothing : vector(w, s->norm_bias);
    case CT_NAME_mix_k:
    case CT_NAME_mix_v:
    case CT_NAME_mix_r:
    case CT_NAME_mlp_mix_k:
    case CT_NAME_mlp_mix_r: return (shape){{1, 1, w}, 3, 0, false, true};
    case CT_NAME_decay:
    case CT_NAME_bonus: return bare(a);
    case CT_NAME_k:
    case CT_NAME_v:
    case CT_NAME_r: return matrix(s, a, w, false);
    case CT_NAME_o: return matrix(s, w, a, false);
    case CT_NAME_up: return matrix(s, h, w, false);
    case CT_NAME_down: return matrix(s, w, h, false);
    case CT_NAME_mlp_r: return matrix(s, w, w, false);
    default: return nothing;
    }
}

static shape attention_shape(const ct_spec *s, int64_t layer, int name) {
    const int64_t w = s->width, q = s->heads * s->head, k = s->kv_heads * s->head,
                  v = s->kv_heads * s->value_head;
    const bool split = s->qkv == CT_QKV_SPLIT, whole = s->qk_norm == CT_QK_WHOLE;
    switch (name) {
    case CT_NAME_q: return split ? matrix(s, q, w, s->qkv_bias) : nothing;
    case CT_NAME_k: return split ? matrix(s, k, w, s->qkv_bias) : nothing;
    case CT_NAME_v: return split ? matrix(s, v, w, s->qkv_bias) : nothing;
    case CT_NAME_joined_qkv: return split ? nothing : matrix(s, q + k + v, w, s->qkv_bias);
    case CT_NAME_q_norm: return vector(whole ? q : s->head, false);
    case CT_NAME_k_norm: return vector(whole ? k : s->head, false);
    case CT_NAME_sinks: return bare(s->heads);
    case CT_NAME_relative: return layer ? nothing : table(s->buckets, s->heads);
    case CT_NAME_cross_q: return matrix(s, q, w, s->qkv_bias);
    case CT_NAME_cross_k: return matrix(s, k, w, s->qkv_bias);
    case CT_NAME_cross_v: return matrix(s, v, w, s->qkv_bias);
    case CT_NAME_cross_o: return matrix(s, w, s->heads * s->value_head, s->out_bias);
    default: return nothing;
    }
}

// Weights of all experts are one variable (experts, out, in).
static shape expert_shape(const ct_spec *s, int name) {
    const int64_t w = s->width, h = s->expert_hidden, e = s->experts;
    const bool turned = s->expert_in_out, bias = s->expert_bias;
    int64_t out = w, in = w;
    switch (name) {
    case CT_NAME_router: return (shape){{e, w}, 2, s->expert_bias ? e : 0, false, false};
    case CT_NAME_router_bias: return bare(e);
    case CT_NAME_expert_gate:
    case CT_NAME_expert_up: out = h; break;
    case CT_NAME_expert_gate_up: out = 2 * h; break;
    case CT_NAME_expert_down: in = h; break;
    case CT_NAME_shared_gate:
    case CT_NAME_shared_up: return matrix(s, s->shared_hidden, w, false);
    case CT_NAME_shared_down: return matrix(s, w, s->shared_hidden, false);
    case CT_NAME_shared_switch: return matrix(s, 1, w, false);
    default: return nothing;
    }
    const bool joined = !strchr(s->name[name], '#'); // one weight in the file, too
    return (shape){{e, turned ? in : out, turned ? out : in}, 3, bias ? out : 0, true, joined};
}

static shape mlp_shape(const ct_spec *s, int name) {
    const int64_t w = s->width, h = s->experts ? s->dense_hidden : s->hidden;
    const bool apart = s->mlp == CT_MLP_GATED, plain = s->mlp == CT_MLP_PLAIN;
    switch (name) {
    case CT_NAME_gate: return apart ? matrix(s, h, w, s->mlp_bias) : nothing;
    case CT_NAME_up:
        if (plain && s->name[CT_NAME_plain_up]) return nothing;
        return apart || plain ? matrix(s, h, w, s->mlp_bias) : nothing;
    case CT_NAME_plain_up: return plain ? matrix(s, h, w, s->mlp_bias) : nothing;
    case CT_NAME_gate_up: return apart || plain ? nothing : matrix(s, 2 * h, w, s->mlp_bias);
    case CT_NAME_down: return matrix(s, w, h, s->mlp_bias);
    default: return nothing;
    }
}

static shape layer_shape(const ct_spec *s, int64_t layer, int name) {
    if (!s->name[name]) return nothing;
    switch (name) {
    case CT_NAME_attn_norm: // ModernBERT's first layer reads what a norm gives already
        if (layer == 0 && s->family == CT_FAMILY_ENCODER && s->order == CT_ORDER_PRE)
            return nothing;
        return vector(s->width, s->norm_bias);
    case CT_NAME_cross_norm:
    case CT_NAME_attn_post:
    case CT_NAME_mlp_norm:
    case CT_NAME_mlp_post: return vector(s->width, s->norm_bias);
    default: break;
    }
    if (s->family >= CT_FAMILY_MAMBA) return state_shape(s, layer, name);
    if (name == CT_NAME_o) return matrix(s, s->width, s->heads * s->value_head, s->out_bias);
    if (name < CT_NAME_gate)
        return s->latent ? latent_shape(s, name) : attention_shape(s, layer, name);
    if (name <= CT_NAME_down) return s->layer[layer].experts ? nothing : mlp_shape(s, name);
    return s->layer[layer].experts ? expert_shape(s, name) : nothing;
}

// The full name: what stands for % is the layer's number.
static bool full_name(const ct_spec *s, int64_t layer, int name, const char *end, char *out) {
    const char *below = s->name[CT_NAME_layer], *mark = below ? strchr(below, '%') : NULL;
    int n;
    if (layer < 0)
        n = snprintf(out, CT_NN_PATH, "%s%s", s->name[name], end);
    else if (!mark)
        return false;
    else
        n = snprintf(out, CT_NN_PATH, "%.*s%lld%s.%s%s", (int)(mark - below), below,
                     (long long)layer, mark + 1, s->name[name], end);
    return n < CT_NN_PATH;
}

// Embeddings that are the last layer's weight, too, are multiplied with more than looked up in.
static ct_lm_use use_of(const ct_spec *s, int name, const shape *own) {
    if (own->experts) return CT_LM_PRODUCTS;
    if (own->n != 2) return CT_LM_NUMBERS;
    switch (name) {
    case CT_NAME_embed: return s->tied ? CT_LM_PRODUCTS : CT_LM_CODES;
    case CT_NAME_position_table:
    case CT_NAME_type_table:
    case CT_NAME_router:
    case CT_NAME_kv_b:
    case CT_NAME_relative:
    case CT_NAME_ssm_decay: return CT_LM_CODES; // what they stand for is used as it is
    default: return CT_LM_PRODUCTS;
    }
}

static bool make_pair(ct_lm *lm, int64_t layer, int name, shape own, ct_weight_pair *w,
                      ct_loc here) {
    char full[CT_NN_PATH];
    if (!own.n || !lm->spec.name[name]) return true;
    bool ok = full_name(&lm->spec, layer, name, own.plain ? "" : ".weight", full);
    const bool first = lm->fresh && !ct_params_find(lm->params, full).bits;
    if (first) lm->init = ct__lm_begins(&lm->spec, name);
    if (ok)
        ct__lm_variable(lm, full, (ct_ints){own.n, own.dim}, use_of(&lm->spec, name, &own), w,
                        here);
    if (ok && own.bias) {
        const int64_t dim[2] = {own.experts ? own.dim[0] : own.bias, own.bias};
        const size_t n = strlen(full);
        if (own.plain && ct__ends_with(full, ".weight"))
            snprintf(full + n - strlen(".weight"), sizeof full - n, ".bias");
        else
            ok = full_name(&lm->spec, layer, name, own.plain ? "_bias" : ".bias", full);
        ct_weight_pair bias = {0};
        lm->init = CT_NN_ZEROS;
        if (ok)
            ct__lm_variable(lm, full, (ct_ints){own.experts ? 2 : 1, dim}, CT_LM_NUMBERS, &bias,
                            here);
        w->bias = bias.weight;
    }
    ct_ctx *ctx = ct__ctx();
    if (!ok)
        ct__fail(ctx, CT_E_ARGUMENT, here, "lm", "a weight's name is longer than %d bytes",
                 CT_NN_PATH);
    if (ok && first) ct__lm_begin(lm, layer, name, w, here);
    return ok && !ctx->err.code;
}

static int64_t elements(const ct_spec *s, int name, shape own) {
    int64_t n = own.n > 0 && s->name[name];
    bool over = false;
    for (int a = 0; a < own.n; a++) over |= __builtin_mul_overflow(n, own.dim[a], &n);
    if (own.bias && n) {
        int64_t bias = own.experts ? own.dim[0] : 1;
        over |= __builtin_mul_overflow(bias, own.bias, &bias);
        over |= __builtin_add_overflow(n, bias, &n);
    }
    return over ? INT64_MAX : n;
}

int64_t ct__stack_size(const ct_spec *s) {
    int64_t all = 0;
    bool over = false;
    for (int name = CT_NAME_embed; name < CT_NAME_WHOLE; name++)
        over |= __builtin_add_overflow(all, elements(s, name, whole_shape(s, name)), &all);
    for (int64_t i = 0; i < s->layers; i++)
        for (int name = CT_NAME_WHOLE; name < CT_NAMES_ALL; name++)
            over |= __builtin_add_overflow(all, elements(s, name, layer_shape(s, i, name)), &all);
    return over ? INT64_MAX : all;
}

bool ct__stack_make(ct_lm *lm, ct_loc here) {
    const int end = lm->headless ? CT_NAME_output_dense : CT_NAME_WHOLE;
    lm->layer = ct__calloc((size_t)lm->spec.layers, sizeof *lm->layer);
    if (!lm->layer)
        return ct__err_memory(&ct__ctx()->err, here, "lm",
                              (size_t)lm->spec.layers * sizeof *lm->layer);
    for (int name = CT_NAME_embed; name < end; name++)
        if (!make_pair(lm, -1, name, whole_shape(&lm->spec, name), &lm->whole[name], here))
            return false;
    for (int64_t i = 0; i < lm->spec.layers; i++)
        for (int name = CT_NAME_WHOLE; name < CT_NAMES_ALL; name++)
            if (!make_pair(lm, i, name, layer_shape(&lm->spec, i, name), &lm->layer[i][name], here))
                return false;
    return true;
}

// -------------------------------------------------------------------------------------------- parts

ct_tensor ct__stack_numbers(ct_tensor weight, ct_loc here) {
    return ct_dtype_of(weight) == CT_F32 ? weight : ct_cast_at(weight, CT_F32, here);
}

// What codes (..., K) stand for: each times its scale, and the offset of those that share one (..., K / group) put to it.
static ct_tensor of_codes(const ct_weight_pair *w, ct_tensor codes, ct_tensor scales,
                          ct_tensor offsets, ct_loc here) {
    ct_tensor x = ct_dequantise_at(codes, scales, w->layout, here);
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

// What blocks (..., bytes) stand for, which have no scales apart.
static ct_tensor of_blocks(const ct_weight_pair *w, ct_tensor blocks, ct_loc here) {
    int64_t dim[CT_MAX_RANK];
    const int rank = ct_rank(blocks);
    for (int a = 0; a < rank; a++) dim[a] = a < rank - 1 ? ct__size_like(blocks, a) : 0;
    ct_tensor none = ct_zeros_at(CT_U8, (ct_ints){rank, dim}, here);
    return ct_dequantise_at(blocks, none, w->layout, here);
}

typedef struct in_place {
    const ct_weight_pair *w;
    ct_tensor x; // (M, in)
    ct_loc here;
} in_place;
static void some_columns(const ct_tensor *in, ct_tensor *out, void *user) {
    const in_place *p = user;
    ct_tensor w = of_blocks(p->w, in[0], p->here); // (some, in)
    out[0] = ct_matmul_at(p->x, ct_permute_at(w, CT_AXES(1, 0), p->here), p->here);
}
// Rows of the weight at a time, so that their numbers lie in caches: a whole divisor of all.
static int64_t rows_at_a_time(int64_t n, int64_t in) {
    enum { NUMBERS = 2 << 20 };
    int64_t some = NUMBERS / in < 1 ? 1 : NUMBERS / in < n ? NUMBERS / in : n;
    while (n % some) some--;
    return some;
}
// x (..., in) times blocks (out, bytes), which are read once.
static ct_tensor product_in_place(ct_tensor x, const ct_weight_pair *w, ct_loc here) {
    if (!ct_ok(x)) return x;
    const int last = ct_rank(x) - 1;
    const int64_t n = ct_dim(w->weight, 0), bytes = ct_dim(w->weight, 1), in = ct_dim(x, last),
                  some = rows_at_a_time(n, in);
    int64_t dim[CT_MAX_RANK];
    for (int a = 0; a < last; a++) dim[a] = ct__size_like(x, a);
    dim[last] = n;
    in_place p = {w, ct_reshape_at(x, CT_DIMS(-1, in), here), here};
    const ct_tensor xs = ct_reshape_at(w->weight, CT_DIMS(n / some, some, bytes), here);
    ct_tensor y; // (n / some, M, some)
    ct_scan_with(
        (ct_scan_args){
            .body = some_columns, .user = &p, .xs = &xs, .n_xs = 1, .n_ys = 1, .here = here},
        NULL, &y);
    return ct_reshape_at(ct_permute_at(y, CT_AXES(1, 0, 2), here), (ct_ints){last + 1, dim}, here);
}

ct_tensor ct__stack_matrix(const ct_weight_pair *w, ct_loc here) {
    if (w->blocks) return of_blocks(w, w->weight, here);
    if (!w->scales.bits) return ct__stack_numbers(w->weight, here);
    return of_codes(w, w->weight, w->scales, w->offsets, here);
}

// Codes meet rows of codes; an offset meets the sum of the numbers that it is put to.
ct_tensor ct__stack_product(ct_tensor x, const ct_weight_pair *w, bool in_out, ct_loc here) {
    if (w->blocks) return product_in_place(x, w, here);
    if (!w->scales.bits) {
        ct_tensor weight = ct__stack_numbers(w->weight, here);
        return ct_matmul_at(x, in_out ? weight : ct_permute_at(weight, CT_AXES(1, 0), here), here);
    }
    ct_tensor y = w->which.bits
                      ? ct__chosen_matmul(x, w->weight, w->scales, w->layout, w->which, here)
                      : ct_quantised_matmul_at(x, w->weight, w->scales, w->layout, here);
    if (!ct_ok(y) || !w->offsets.bits) return y;
    const int64_t groups = ct_dim(w->offsets, 1);
    ct_tensor sums =
        ct_sum_with((ct_sum_args){.x = ct__stack_split(x, groups, ct_dim(x, -1) / groups, here),
                                  .axes = CT_AXES(-1),
                                  .here = here}); // (..., groups)
    ct_tensor offsets = ct_permute_at(ct__stack_numbers(w->offsets, here), CT_AXES(1, 0), here);
    return ct_add_at(y, ct_matmul_at(sums, offsets, here), here);
}

static ct_tensor rows_at(ct_tensor table, ct_tensor indices, ct_loc here) {
    if (!table.bits) return CT_NONE;
    return ct_gather_with((ct_gather_args){.x = table, .indices = indices, .here = here});
}

// Rows (N, K) of codes, or of scales, that lie in groups (rows / 16, words, 16 * each).
static ct_tensor rows_in_groups(ct_tensor table, ct_tensor indices, ct_dtype dtype, ct_loc here) {
    ct_tensor sixteen = ct_i(CT_LANES), group = ct_floor_divide_at(indices, sixteen, here);
    ct_tensor lane = ct_sub_at(indices, ct_mul_at(group, sixteen, here), here); // (N)
    const int64_t n = ct__size_like(indices, 0), words = ct_dim(table, 1),
                  each = ct_dim(table, 2) / CT_LANES;
    ct_tensor rows = ct_cast_at(rows_at(table, group, here), dtype, here);
    rows = ct_reshape_at(rows, CT_DIMS(n, words, CT_LANES, each), here);
    lane = ct_expand_at(ct_reshape_at(lane, CT_DIMS(n, 1, 1, 1), here), CT_DIMS(n, words, 1, each),
                        here);
    rows = ct_take_along_with(
        (ct_take_along_args){.x = rows, .indices = lane, .axis = 2, .here = here});
    return ct_reshape_at(rows, CT_DIMS(n, words * each), here);
}

ct_tensor ct__stack_lookup(const ct_weight_pair *w, ct_tensor indices, ct_loc here) {
    if (w->blocks) return of_blocks(w, rows_at(w->weight, indices, here), here);
    if (!w->scales.bits) return ct__stack_numbers(rows_at(w->weight, indices, here), here);
    ct_tensor offsets = rows_at(w->offsets, indices, here);
    if (!(w->layout & CT_LAYOUT_GROUPED))
        return of_codes(w, rows_at(w->weight, indices, here), rows_at(w->scales, indices, here),
                        offsets, here);
    ct_weight_pair plain = *w;
    plain.layout = (ct_layout)(w->layout & ~CT_LAYOUT_GROUPED);
    ct_tensor codes = rows_in_groups(w->weight, indices, CT_I8, here);
    return of_codes(&plain, ct_cast_at(codes, ct_dtype_of(w->weight), here),
                    rows_in_groups(w->scales, indices, CT_F16, here), offsets, here);
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
    if (rank < 1) return x; // poisoned
    sizes[rank - 1] = n;
    sizes[rank] = m;
    return ct_reshape_at(x, (ct_ints){rank + 1, sizes}, here);
}

ct_tensor ct__stack_mlp(const ct_lm_pass *pass, int64_t layer, ct_tensor x) {
    const ct_weight_pair *w = pass->lm->layer[layer];
    const ct_spec *s = &pass->lm->spec;
    const ct_loc here = pass->here;
    if (s->layer[layer].experts) return ct__stack_experts(pass, layer, x);
    if (s->mlp == CT_MLP_PLAIN) {
        const int up = w[CT_NAME_plain_up].weight.bits ? CT_NAME_plain_up : CT_NAME_up;
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

// -------------------------------------------------------------------------------------------- a pass

static ct_tensor embed(const ct_lm_pass *pass, ct_tensor tokens) {
    const ct_lm *lm = pass->lm;
    const ct_spec *s = &lm->spec;
    const ct_loc here = pass->here;
    ct_tensor x = ct__stack_lookup(&lm->whole[CT_NAME_embed], tokens, here); // (N, width)
    const double scale = s->embed_sqrt ? sqrt((double)s->width) : s->embed_scale;
    if (scale != 1) x = ct_mul_at(x, ct_f(scale), here);
    const ct_weight_pair *places = &lm->whole[CT_NAME_position_table];
    if (places->weight.bits) {
        ct_tensor at = pass->positions; // (N)
        if (s->first_position) at = ct_add_at(at, ct_i(s->first_position), here);
        x = ct_add_at(x, ct__stack_lookup(places, at, here), here);
    }
    const ct_weight_pair *types = &lm->whole[CT_NAME_type_table];
    ct_tensor kinds = pass->kinds; // all of the first: (1)
    if (types->weight.bits && !kinds.bits) kinds = ct_zeros_at(CT_I32, CT_DIMS(1), here);
    if (types->weight.bits) x = ct_add_at(x, ct__stack_lookup(types, kinds, here), here);
    x = ct__stack_norm(pass, &lm->whole[CT_NAME_embed_norm], x);
    return ct_nn_dropout_at(x, pass->mode, here);
}

static ct_tensor add(const ct_lm_pass *pass, ct_tensor x, ct_tensor more) {
    const double scale = pass->lm->spec.residual_scale;
    if (scale != 1) more = ct_mul_at(more, ct_f(scale), pass->here);
    return ct_add_at(x, ct_nn_dropout_at(more, pass->mode, pass->here), pass->here);
}

// Norms behind the sums.
static ct_tensor post_layer(ct_lm_pass *pass, int64_t i, ct_tensor x) {
    const ct_weight_pair *w = pass->lm->layer[i];
    x = ct__stack_norm(pass, &w[CT_NAME_attn_norm], add(pass, x, ct__stack_attention(pass, i, x)));
    if (w[CT_NAME_cross_q].weight.bits)
        x = ct__stack_norm(pass, &w[CT_NAME_cross_norm], add(pass, x, ct__stack_cross(pass, i, x)));
    return ct__stack_norm(pass, &w[CT_NAME_mlp_norm], add(pass, x, ct__stack_mlp(pass, i, x)));
}

// x (N, width) -> (N, width)
static ct_tensor one_layer(ct_lm_pass *pass, int64_t i, ct_tensor x) {
    const ct_spec *s = &pass->lm->spec;
    const ct_weight_pair *w = pass->lm->layer[i];
    if (s->family == CT_FAMILY_RWKV) return ct__stack_rwkv(pass, i, x);
    if (s->order == CT_ORDER_POST) return post_layer(pass, i, x);
    ct_tensor seen = ct__stack_norm(pass, &w[CT_NAME_attn_norm], x);
    if (s->family == CT_FAMILY_MAMBA) return add(pass, x, ct__stack_mamba(pass, i, seen));
    ct_tensor a = ct__stack_attention(pass, i, seen);
    if (s->parallel) {
        if (w[CT_NAME_mlp_norm].weight.bits) seen = ct__stack_norm(pass, &w[CT_NAME_mlp_norm], x);
        return add(pass, x, ct_add_at(a, ct__stack_mlp(pass, i, seen), pass->here));
    }
    x = add(pass, x, ct__stack_norm(pass, &w[CT_NAME_attn_post], a));
    if (w[CT_NAME_cross_q].weight.bits) {
        seen = ct__stack_norm(pass, &w[CT_NAME_cross_norm], x);
        x = add(pass, x, ct__stack_cross(pass, i, seen));
    }
    ct_tensor m = ct__stack_mlp(pass, i, ct__stack_norm(pass, &w[CT_NAME_mlp_norm], x));
    return add(pass, x, ct__stack_norm(pass, &w[CT_NAME_mlp_post], m));
}

ct_tensor ct__stack_rows(const ct_lm_pass *pass, int segment, ct_tensor x) {
    if (pass->segments == 1) return x;
    const int64_t n = ct__size_like(pass->segment[segment].rows, 0);
    ct_tensor from =
        segment ? ct__size_number(ct__size_like(pass->segment[0].rows, 0), CT_I32) : ct_i(0);
    return ct_dynamic_slice_with((ct_dynamic_slice_args){
        .x = x, .starts = from, .axes = CT_AXES(0), .sizes = CT_DIMS(n), .here = pass->here});
}

ct_tensor ct__stack_hidden(ct_lm_pass *pass, ct_tensor tokens) {
    const ct_spec *s = &pass->lm->spec;
    ct_ctx *ctx = ct__ctx();
    for (int i = 0; i < 2 && s->rope != CT_ROPE_NONE; i++)
        pass->turned[i] = ct__rope_at(&s->turn[i], pass->positions, pass->longest, pass->here);
    ct_tensor x = embed(pass, tokens); // (N, width)
    for (int64_t i = 0; i < s->layers; i++) {
        const uint16_t region = ct__region_begin(ctx);
        x = one_layer(pass, i, x);
        ct__region_end(ctx, region);
    }
    return ct__stack_norm(pass, &pass->lm->whole[CT_NAME_final_norm], x);
}

ct_tensor ct__stack_logits(const ct_lm_pass *pass, ct_tensor x) {
    const ct_lm *lm = pass->lm;
    const ct_spec *s = &lm->spec;
    const ct_loc here = pass->here;
    const ct_weight_pair *dense = &lm->whole[CT_NAME_output_dense];
    if (dense->weight.bits) {
        x = ct__stack_activate(pass, ct__stack_linear(pass, dense, x));
        x = ct__stack_norm(pass, &lm->whole[CT_NAME_output_norm], x);
    }
    const ct_weight_pair *head = &lm->whole[s->tied ? CT_NAME_embed : CT_NAME_output];
    x = ct__stack_product(x, head, false, here); // (M, vocab)
    ct_tensor bias = head->bias.bits ? head->bias : lm->whole[CT_NAME_logit_bias].weight;
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
    const ct_weight_pair *of[] = {&lm->whole[CT_NAME_score_dense],
                                  &lm->whole[CT_NAME_score_output]};
    for (int i = 0; i < 2; i++) {
        if (!of[i]->weight.bits) continue;
        x = ct__stack_product(x, of[i], false, pass->here);
        if (of[i]->bias.bits)
            x = ct_add_at(x, ct__stack_numbers(of[i]->bias, pass->here), pass->here);
        if (i) continue;
        x = lm->spec.score_act == CT_SCORE_TANH   ? ct_tanh_at(x, pass->here)
            : lm->spec.score_act == CT_SCORE_RELU ? ct_relu_at(x, pass->here)
                                                  : ct__stack_activate(pass, x);
        x = ct__stack_norm(pass, &lm->whole[CT_NAME_score_norm], x);
    }
    return x;
}
