// Mixtures of experts (Shazeer et al. 2017): a router chooses a few of many MLPs for each token. Tokens are
// sorted by expert, so that all experts are one product of ragged groups.
#include <math.h>

#include "models/lm_codes.h"
#include "models/stack.h"
#include "ops/rules.h"

typedef struct moe_routing {
    ct_tensor weight; // (N, top) f32: routing weights
    ct_tensor expert; // (N, top) i32
} moe_routing;

static ct_tensor moe_softmax(ct_tensor x, ct_loc here) {
    return ct_softmax_with((ct_softmax_args){.x = x, .axes = CT_AXES(-1), .here = here});
}
static ct_tensor moe_sum_last(ct_tensor x, ct_loc here) {
    return ct_sum_with((ct_sum_args){.x = x, .axes = CT_AXES(-1), .keepdims = true, .here = here});
}

// Masks scores (N, experts) outside of the best groups with `hidden`; a group is ranked by its best expert,
// or by the sum of its best two (DeepSeek-AI 2024, section 2.1.2).
static ct_tensor moe_mask_groups(const ct_spec *s, ct_tensor scores, int best, double hidden,
                                 ct_loc here) {
    if (s->groups == 1) return scores;
    const int64_t group_size = s->experts / s->groups;
    // (N, groups, experts of a group)
    ct_tensor grouped = ct__stack_split(scores, s->groups, group_size, here);
    ct_tensor group_scores = ct_sum_with((ct_sum_args){.x = ct_topk_at(grouped, best, here).values,
                                                       .axes = CT_AXES(-1),
                                                       .here = here}); // (N, groups)
    ct_tensor moe_row_job =
        ct_topk_at(group_scores, s->top_groups, here).indices; // (N, top_groups)
    ct_tensor one_hot =
        ct_one_hot_at(moe_row_job, s->groups, CT_F32, here); // (N, top_groups, groups)
    one_hot =
        ct_sum_with((ct_sum_args){.x = one_hot, .axes = CT_AXES(-2), .here = here}); // (N, groups)
    ct_tensor is_chosen =
        ct_greater_at(ct__stack_split(one_hot, s->groups, 1, here), ct_f(0), here);
    grouped = ct_select_at(is_chosen, grouped, ct_f(hidden), here);
    return ct_reshape_at(grouped, CT_DIMS(-1, s->experts), here);
}

static ct_tensor moe_take_weights(ct_tensor scores, ct_tensor expert, ct_loc here) {
    return ct_take_along_with(
        (ct_take_along_args){.x = scores, .indices = expert, .axis = -1, .here = here});
}

// PhiMoE's routing (Liu et al. 2024): the best expert, then the best of the others, each weighted among
// those that are nearly as good.
static moe_routing moe_sparse_mixer(const ct_spec *s, ct_tensor logits, ct_loc here) {
    moe_routing c;
    ct_tensor weight[2], expert[2], rest = logits;
    for (int i = 0; i < 2; i++) {
        ct_tensor best = ct_max_with((ct_max_args){
            .x = rest, .axes = CT_AXES(-1), .keepdims = true, .here = here}); // (N, 1)
        ct_tensor magnitude = ct_maximum_at(ct_abs_at(logits, here), best, here);
        ct_tensor is_worse = ct_greater_at(
            ct_div_at(ct_sub_at(best, logits, here), magnitude, here), ct_f(2 * s->jitter), here);
        expert[i] = ct_topk_at(rest, 1, here).indices; // (N, 1)
        ct_tensor candidates = ct_select_at(is_worse, ct_f(-INFINITY), rest, here);
        weight[i] = moe_take_weights(moe_softmax(candidates, here), expert[i], here);
        ct_tensor is_expert =
            ct_equal_at(ct_iota_at(CT_I32, CT_DIMS(s->experts), 0, here), expert[i], here);
        rest = ct_select_at(is_expert, ct_f(-INFINITY), rest, here);
    }
    c.weight = ct_concat_at(weight, 2, -1, here);
    c.expert = ct_concat_at(expert, 2, -1, here);
    return c;
}

// x (N, width)
static moe_routing moe_route(const ct_lm_pass *pass, int64_t layer, ct_tensor x) {
    const ct_spec *s = &pass->lm->spec;
    const ct_weight_pair *w = pass->lm->layer[layer];
    const ct_loc here = pass->here;
    ct_tensor weight =
        ct_permute_at(ct__stack_matrix(&w[CT_NAME_router], here), CT_AXES(1, 0), here);
    ct_tensor logits = ct_matmul_at(x, weight, here); // (N, experts)
    if (w[CT_NAME_router].bias.bits)
        logits = ct_add_at(logits, ct__stack_numbers(w[CT_NAME_router].bias, here), here);
    if (s->routing == CT_ROUTE_MIXER) return moe_sparse_mixer(s, logits, here);
    moe_routing c;
    if (s->routing == CT_ROUTE_TOPK_SOFTMAX || s->routing == CT_ROUTE_SCALED) {
        ct_topk_out top = ct_topk_at(logits, s->experts_per_token, here);
        c.expert = top.indices;
        c.weight = s->routing == CT_ROUTE_TOPK_SOFTMAX ? moe_softmax(top.values, here)
                                                       : ct_sigmoid_at(top.values, here);
    } else if (s->routing == CT_ROUTE_SIGMOID) {
        ct_tensor scores = ct_sigmoid_at(logits, here), ranked = scores;
        if (w[CT_NAME_router_bias].weight.bits)
            ranked =
                ct_add_at(scores, ct__stack_numbers(w[CT_NAME_router_bias].weight, here), here);
        ranked = moe_mask_groups(s, ranked, 2, -INFINITY, here);
        c.expert = ct_topk_at(ranked, s->experts_per_token, here).indices;
        c.weight = moe_take_weights(scores, c.expert, here);
    } else {
        ct_topk_out top = ct_topk_at(moe_mask_groups(s, moe_softmax(logits, here), 1, 0, here),
                                     s->experts_per_token, here);
        c = (moe_routing){top.values, top.indices};
    }
    if (s->renormalise) {
        ct_tensor all = moe_sum_last(c.weight, here);
        if (s->routing == CT_ROUTE_SIGMOID) all = ct_add_at(all, ct_f(1e-20), here);
        c.weight = ct_div_at(c.weight, all, here);
    }
    if (s->routed_scale != 1) c.weight = ct_mul_at(c.weight, ct_f(s->routed_scale), here);
    return c;
}

typedef struct moe_groups {
    ct_tensor sizes;  // (experts) i32: rows of each
    ct_tensor expert; // (M) i32: expert of each sorted row
} moe_groups;

typedef struct moe_row_job {
    const ct_weight_pair *weights; // (experts, out, in)
    ct_loc here;
} moe_row_job;

// all (experts, ...) -> (...), the one of the expert
static ct_tensor moe_select_expert(ct_tensor weights, ct_tensor expert, ct_loc here) {
    if (!weights.bits) return CT_NONE;
    return ct_gather_with((ct_gather_args){.x = weights, .indices = expert, .here = here});
}

// Multiplies a row by its expert's quantised weight.
static void moe_row_matmul(const ct_tensor *in, ct_tensor *out, void *user) {
    const moe_row_job *c = user;
    ct_weight_pair weight = *c->weights;
    if (weight.is_blocks || weight.exact) {
        weight.weight = moe_select_expert(weight.weight, in[1], c->here);
        weight.scales = moe_select_expert(weight.scales, in[1], c->here);
    } else {
        weight.matrix_index = in[1];
    }
    weight.offsets = moe_select_expert(weight.offsets, in[1], c->here);
    out[0] = ct__stack_product(in[0], &weight, false, c->here);
}

typedef struct moe_quant_job {
    const ct_weight_pair *weights; // (experts, out, in)
    int64_t out, in;
    ct_loc here;
} moe_quant_job;

// Multiplies x (M, in) row by row, so that only the chosen experts' weights are read. A loop is used where
// rows do not have whole steps of the kernel, or the weight has offsets.
static void moe_matmul_by_rows(const ct_tensor *in, ct_tensor *out, void *user) {
    const moe_quant_job *w = user;
    moe_row_job c = {w->weights, w->here};
    if (!w->weights->is_blocks && !w->weights->exact && !w->weights->offsets.bits &&
        w->in % CT_LM_WIDE_STEP == 0) {
        ct_weight_pair weight = *w->weights;
        weight.matrix_index = in[2];
        *out = ct__stack_product(in[0], &weight, false, w->here);
        return;
    }
    const ct_tensor xs[2] = {ct__stack_split(in[0], 1, w->in, w->here), in[2]}; // (M, 1, in), (M)
    ct_tensor y;
    ct_scan_with(
        (ct_scan_args){
            .body = moe_row_matmul, .user = &c, .xs = xs, .n_xs = 2, .n_ys = 1, .here = w->here},
        NULL, &y);
    *out = ct_reshape_at(y, CT_DIMS(-1, w->out), w->here);
}

// BLOCK_ROWS: maximum of rows that an expert's weight is read for at once. MIN_ROWS: rows per expert on
// average from which blocks are worth it.
enum { BLOCK_ROWS = 16, MIN_ROWS = 4 };

typedef struct moe_block_job {
    const moe_quant_job *w;
    ct_tensor x; // (M, in)
} moe_block_job;
static void moe_block_matmul(const ct_tensor *in, ct_tensor *out, void *user) {
    const moe_block_job *b = user;
    const ct_loc here = b->w->here;
    const ct_tensor rows =
                        ct_gather_with((ct_gather_args){.x = b->x, .indices = in[0], .here = here}),
                    both[2] = {rows, in[1]};
    moe_row_job c = {b->w->weights, here};
    moe_row_matmul(both, out, &c);
}
static void moe_empty_block(const ct_tensor *in, ct_tensor *out, void *user) {
    const moe_block_job *b = user;
    (void)in;
    *out = ct_zeros_at(CT_F32, CT_DIMS(BLOCK_ROWS, b->w->out), b->w->here);
}
static void moe_one_block(const ct_tensor *in, ct_tensor *out, void *user) {
    moe_block_job *b = user;
    ct_cond_with((ct_cond_args){.pred = in[2],
                                .then = moe_block_matmul,
                                .otherwise = moe_empty_block,
                                .user = b,
                                .in = in,
                                .n_in = 2,
                                .n_out = 1,
                                .here = b->w->here},
                 out);
}

static ct_tensor moe_cumsum(ct_tensor x, ct_loc here) {
    return ct_cumsum_with((ct_cumsum_args){.x = x, .axis = 0, .here = here});
}
static ct_tensor moe_gather(ct_tensor x, ct_tensor index, ct_loc here) {
    return ct_gather_with((ct_gather_args){.x = x, .indices = index, .here = here});
}

// Multiplies x (M, in), sorted by expert, with sizes (experts) and expert (M), in blocks of rows of one
// expert each. The number of blocks is the maximum possible; those after the last one are not computed.
static void moe_matmul_by_blocks(const ct_tensor *in, ct_tensor *out, void *user) {
    const moe_quant_job *w = user;
    const ct_loc here = w->here;
    const ct_tensor x = in[0], sizes = in[1], expert = in[2];
    const int64_t moe_expert_mlp = ct_dim(sizes, 0), m = ct_dim(x, 0),
                  max_blocks = m / BLOCK_ROWS + moe_expert_mlp;
    const int64_t n = ct__size_like(x, 0) == m ? max_blocks : CT_DYN(max_blocks);
    ct_tensor ends = moe_cumsum(sizes, here), starts = ct_sub_at(ends, sizes, here); // (experts)
    ct_tensor block_counts =
        ct_floor_divide_at(ct_add_at(sizes, ct_i(BLOCK_ROWS - 1), here), ct_i(BLOCK_ROWS), here);
    ct_tensor last = moe_cumsum(block_counts, here), first = ct_sub_at(last, block_counts, here);
    ct_tensor b = ct_iota_at(CT_I32, CT_DIMS(n), 0, here); // (blocks)
    ct_tensor block_expert = ct_searchsorted_with(
        (ct_searchsorted_args){.x = last, .values = b, .right = true, .here = here});
    block_expert =
        ct_minimum_at(ct_cast_at(block_expert, CT_I32, here), ct_i(moe_expert_mlp - 1), here);
    ct_tensor row_offset = ct_mul_at(ct_sub_at(b, moe_gather(first, block_expert, here), here),
                                     ct_i(BLOCK_ROWS), here);
    ct_tensor row = ct_reshape_at(
        ct_add_at(moe_gather(starts, block_expert, here), row_offset, here), CT_DIMS(n, 1), here);
    row = ct_add_at(row, ct_iota_at(CT_I32, CT_DIMS(BLOCK_ROWS), 0, here),
                    here); // (blocks, BLOCK_ROWS)
    ct_tensor n_rows = ct__stack_cut(ends, moe_expert_mlp - 1, moe_expert_mlp, here),
              n_used = ct__stack_cut(last, moe_expert_mlp - 1, moe_expert_mlp, here); // (1)
    row = ct_clamp_at(row, ct_i(0), ct_sub_at(n_rows, ct_i(1), here), here);
    moe_block_job block = {.w = w, .x = x};
    const ct_tensor xs[3] = {row, block_expert, ct_less_at(b, n_used, here)};
    ct_tensor y; // (blocks, BLOCK_ROWS, out)
    ct_scan_with(
        (ct_scan_args){
            .body = moe_one_block, .user = &block, .xs = xs, .n_xs = 3, .n_ys = 1, .here = here},
        NULL, &y);
    ct_tensor shift =
        ct_sub_at(ct_mul_at(first, ct_i(BLOCK_ROWS), here), starts, here); // (experts)
    shift = ct_add_at(moe_gather(shift, expert, here),
                      ct_iota_at(CT_I32, CT_DIMS(ct__size_like(x, 0)), 0, here),
                      here); // (M)
    *out = moe_gather(ct_reshape_at(y, CT_DIMS(-1, w->out), here), shift, here);
}

// x (M, in), sorted by expert -> (M, out). Quantised products of a row have the same bits in a block.
static ct_tensor moe_expert_matmul(const ct_lm_pass *pass, const ct_weight_pair *w,
                                   const moe_groups *g, ct_tensor x) {
    const ct_loc here = pass->here;
    if (w->scales.bits || w->is_blocks) {
        moe_quant_job c = {w, ct_dim(w->weight, 1), ct_dim(x, 1), here};
        if (!w->is_blocks) ct__lm_codes_sizes(w, &c.out, &c.in);
        const int64_t moe_expert_mlp = ct_dim(w->weight, 0);
        const ct_tensor in[3] = {x, g->sizes, g->expert};
        ct_tensor y, rows = ct_sum_with((ct_sum_args){.x = g->sizes, .here = here});
        ct_cond_with((ct_cond_args){.pred = ct_less_at(rows, ct_i(MIN_ROWS * moe_expert_mlp), here),
                                    .then = moe_matmul_by_rows,
                                    .otherwise = moe_matmul_by_blocks,
                                    .user = &c,
                                    .in = in,
                                    .n_in = 3,
                                    .n_out = 1,
                                    .here = here},
                     &y);
        return y;
    }
    ct_tensor weight =
        ct__stack_numbers(w->weight, here); // (experts, out, in), or (experts, in, out)
    if (!pass->lm->spec.expert_in_out) weight = ct_permute_at(weight, CT_AXES(0, 2, 1), here);
    return ct_ragged_matmul_at(x, weight, g->sizes, here);
}

static ct_tensor moe_expert_linear(const ct_lm_pass *pass, const ct_weight_pair *w,
                                   const moe_groups *g, ct_tensor x) {
    const ct_loc here = pass->here;
    x = moe_expert_matmul(pass, w, g, x);
    if (!w->bias.bits) return x;
    ct_tensor bias = ct_gather_with(
        (ct_gather_args){.x = w->bias, .indices = g->expert, .here = here}); // (M, out)
    return ct_add_at(x, ct__stack_numbers(bias, here), here);
}

// Clamps gates and what they gate, as gpt-oss does.
static ct_tensor moe_clamped_glu(const ct_lm_pass *pass, ct_tensor gate, ct_tensor up) {
    const ct_spec *s = &pass->lm->spec;
    const ct_loc here = pass->here;
    gate = ct_minimum_at(gate, ct_f(s->swiglu_limit), here);
    up = ct_clamp_at(up, ct_f(-s->swiglu_limit), ct_f(s->swiglu_limit), here);
    ct_tensor sigmoid = ct_sigmoid_at(ct_mul_at(gate, ct_f(s->gate_alpha), here), here);
    return ct_mul_at(ct_add_at(up, ct_f(1), here), ct_mul_at(gate, sigmoid, here), here);
}

static ct_tensor moe_expert_mlp(const ct_lm_pass *pass, int64_t layer, const moe_groups *g,
                                ct_tensor x) {
    const ct_spec *s = &pass->lm->spec;
    const ct_weight_pair *w = pass->lm->layer[layer];
    const ct_loc here = pass->here;
    if (w[CT_NAME_expert_gate_up].weight.bits) {
        ct_tensor both =
            moe_expert_linear(pass, &w[CT_NAME_expert_gate_up], g, x); // (M, 2 * hidden)
        if (s->swiglu_limit != 0) { // gate and up are interleaved
            ct_tensor pairs = ct__stack_split(both, s->expert_hidden, 2, here); // (M, hidden, 2)
            const ct_ints dims = CT_DIMS(-1, s->expert_hidden);
            x = moe_clamped_glu(pass, ct_reshape_at(ct__stack_cut(pairs, 0, 1, here), dims, here),
                                ct_reshape_at(ct__stack_cut(pairs, 1, 2, here), dims, here));
        } else {
            ct_tensor gate = ct__stack_cut(both, 0, s->expert_hidden, here);
            ct_tensor up = ct__stack_cut(both, s->expert_hidden, 2 * s->expert_hidden, here);
            x = ct_mul_at(ct__stack_activate(pass, gate), up, here);
        }
    } else {
        ct_tensor gate = moe_expert_linear(pass, &w[CT_NAME_expert_gate], g, x); // (M, hidden)
        ct_tensor up = moe_expert_linear(pass, &w[CT_NAME_expert_up], g, x);
        x = s->swiglu_limit != 0 ? moe_clamped_glu(pass, gate, up)
                                 : ct_mul_at(ct__stack_activate(pass, gate), up, here);
    }
    return moe_expert_linear(pass, &w[CT_NAME_expert_down], g, x); // (M, width)
}

// Adds the output of the shared experts, which process every token. x (N, width)
static ct_tensor moe_add_shared(const ct_lm_pass *pass, int64_t layer, ct_tensor x, ct_tensor y) {
    const ct_weight_pair *w = pass->lm->layer[layer];
    const ct_loc here = pass->here;
    ct_tensor gate = ct__stack_linear(pass, &w[CT_NAME_shared_gate], x);
    ct_tensor up = ct__stack_linear(pass, &w[CT_NAME_shared_up], x);
    ct_tensor result = ct_mul_at(ct__stack_activate(pass, gate), up, here);
    result = ct__stack_linear(pass, &w[CT_NAME_shared_down], result);
    if (w[CT_NAME_shared_expert_gate].weight.bits) {
        ct_tensor switch_logit =
            ct__stack_linear(pass, &w[CT_NAME_shared_expert_gate], x); // (N, 1)
        result = ct_mul_at(ct_sigmoid_at(switch_logit, here), result, here);
    }
    return ct_add_at(y, result, here);
}

ct_tensor ct__stack_experts(const ct_lm_pass *pass, int64_t layer, ct_tensor x) {
    const ct_spec *s = &pass->lm->spec;
    const ct_loc here = pass->here;
    if (!ct_ok(x)) return x;
    const int64_t n = ct__size_like(x, 0), top = s->experts_per_token;
    const moe_routing c = moe_route(pass, layer, x);
    ct_tensor flat_experts = ct_reshape_at(c.expert, CT_DIMS(-1), here); // (M): M = N * top
    ct_tensor order = ct_argsort_with((ct_argsort_args){.x = flat_experts, .here = here});
    ct_tensor inverse = ct_argsort_with((ct_argsort_args){.x = order, .here = here});
    const moe_groups g = {
        ct_bincount_at(flat_experts, s->experts, here),
        ct_gather_with((ct_gather_args){.x = flat_experts, .indices = order, .here = here})};
    ct_tensor token = ct_floor_divide_at(order, ct_i(top), here);
    ct_tensor rows =
        ct_gather_with((ct_gather_args){.x = x, .indices = token, .here = here}); // (M, width)
    ct_tensor weight = ct_reshape_at(c.weight, CT_DIMS(n, top, 1), here);
    const bool weights_input = s->routing == CT_ROUTE_SCALED; // Llama 4 weights the input
    if (weights_input) {
        ct_tensor input_weights = ct_gather_with((ct_gather_args){
            .x = ct_reshape_at(weight, CT_DIMS(-1), here), .indices = order, .here = here});
        rows = ct_mul_at(rows, ct_reshape_at(input_weights, CT_DIMS(-1, 1), here), here);
    }
    ct_tensor y = moe_expert_mlp(pass, layer, &g, rows);
    y = ct_gather_with((ct_gather_args){.x = y, .indices = inverse, .here = here});
    y = ct_reshape_at(y, CT_DIMS(n, top, s->width), here);
    if (!weights_input) y = ct_mul_at(y, weight, here);
    y = ct_sum_with((ct_sum_args){.x = y, .axes = CT_AXES(1), .here = here}); // (N, width)
    return s->shared_hidden ? moe_add_shared(pass, layer, x, y) : y;
}
