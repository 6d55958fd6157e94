// Mixtures of experts (Shazeer et al. 2017): a router chooses a few of many MLPs for each token. Tokens are
// brought into the order of their experts, so that all experts are one product of ragged groups.
#include <math.h>

#include "models/lm_codes.h"
#include "models/stack.h"
#include "ops/rules.h"

typedef struct choice {
    ct_tensor weight; // (N, top) f32: what an expert's result counts
    ct_tensor expert; // (N, top) i32
} choice;

static ct_tensor softmax(ct_tensor x, ct_loc here) {
    return ct_softmax_with((ct_softmax_args){.x = x, .axes = CT_AXES(-1), .here = here});
}
static ct_tensor sum_last(ct_tensor x, ct_loc here) {
    return ct_sum_with((ct_sum_args){.x = x, .axes = CT_AXES(-1), .keepdims = true, .here = here});
}

// scores (N, experts), those outside of the best groups replaced by `hidden`; a group is as good as its best
// expert, or as its best two together (DeepSeek-AI 2024, section 2.1.2).
static ct_tensor best_groups(const ct_spec *s, ct_tensor scores, int best, double hidden,
                             ct_loc here) {
    if (s->groups == 1) return scores;
    const int64_t each = s->experts / s->groups;
    ct_tensor grouped = ct__stack_split(scores, s->groups, each, here); // (N, groups, each)
    ct_tensor good = ct_sum_with((ct_sum_args){.x = ct_topk_at(grouped, best, here).values,
                                               .axes = CT_AXES(-1),
                                               .here = here});        // (N, groups)
    ct_tensor chosen = ct_topk_at(good, s->top_groups, here).indices; // (N, top_groups)
    ct_tensor hot = ct_one_hot_at(chosen, s->groups, CT_F32, here);   // (N, top_groups, groups)
    hot = ct_sum_with((ct_sum_args){.x = hot, .axes = CT_AXES(-2), .here = here}); // (N, groups)
    ct_tensor seen = ct_greater_at(ct__stack_split(hot, s->groups, 1, here), ct_f(0), here);
    grouped = ct_select_at(seen, grouped, ct_f(hidden), here);
    return ct_reshape_at(grouped, CT_DIMS(-1, s->experts), here);
}

static ct_tensor weights_at(ct_tensor scores, ct_tensor expert, ct_loc here) {
    return ct_take_along_with(
        (ct_take_along_args){.x = scores, .indices = expert, .axis = -1, .here = here});
}

// PhiMoE's (Liu et al. 2024): the best expert, then the best of the others, each weighed among those that are
// nearly as good.
static choice sparse_mixer(const ct_spec *s, ct_tensor logits, ct_loc here) {
    choice c;
    ct_tensor weight[2], expert[2], left = logits;
    for (int i = 0; i < 2; i++) {
        ct_tensor best = ct_max_with((ct_max_args){
            .x = left, .axes = CT_AXES(-1), .keepdims = true, .here = here}); // (N, 1)
        ct_tensor size = ct_maximum_at(ct_abs_at(logits, here), best, here);
        ct_tensor far = ct_greater_at(ct_div_at(ct_sub_at(best, logits, here), size, here),
                                      ct_f(2 * s->jitter), here);
        expert[i] = ct_topk_at(left, 1, here).indices; // (N, 1)
        ct_tensor near = ct_select_at(far, ct_f(-INFINITY), left, here);
        weight[i] = weights_at(softmax(near, here), expert[i], here);
        ct_tensor own =
            ct_equal_at(ct_iota_at(CT_I32, CT_DIMS(s->experts), 0, here), expert[i], here);
        left = ct_select_at(own, ct_f(-INFINITY), left, here);
    }
    c.weight = ct_concat_at(weight, 2, -1, here);
    c.expert = ct_concat_at(expert, 2, -1, here);
    return c;
}

// x (N, width)
static choice route(const ct_lm_pass *pass, int64_t layer, ct_tensor x) {
    const ct_spec *s = &pass->lm->spec;
    const ct_weight_pair *w = pass->lm->layer[layer];
    const ct_loc here = pass->here;
    ct_tensor weight =
        ct_permute_at(ct__stack_matrix(&w[CT_NAME_router], here), CT_AXES(1, 0), here);
    ct_tensor logits = ct_matmul_at(x, weight, here); // (N, experts)
    if (w[CT_NAME_router].bias.bits)
        logits = ct_add_at(logits, ct__stack_numbers(w[CT_NAME_router].bias, here), here);
    if (s->routing == CT_ROUTE_MIXER) return sparse_mixer(s, logits, here);
    choice c;
    if (s->routing == CT_ROUTE_CHOSEN || s->routing == CT_ROUTE_SCALED) {
        ct_topk_out top = ct_topk_at(logits, s->top, here);
        c.expert = top.indices;
        c.weight = s->routing == CT_ROUTE_CHOSEN ? softmax(top.values, here)
                                                 : ct_sigmoid_at(top.values, here);
    } else if (s->routing == CT_ROUTE_SIGMOID) {
        ct_tensor scores = ct_sigmoid_at(logits, here), ranked = scores;
        if (w[CT_NAME_router_bias].weight.bits)
            ranked =
                ct_add_at(scores, ct__stack_numbers(w[CT_NAME_router_bias].weight, here), here);
        ranked = best_groups(s, ranked, 2, -INFINITY, here);
        c.expert = ct_topk_at(ranked, s->top, here).indices;
        c.weight = weights_at(scores, c.expert, here);
    } else {
        ct_topk_out top =
            ct_topk_at(best_groups(s, softmax(logits, here), 1, 0, here), s->top, here);
        c = (choice){top.values, top.indices};
    }
    if (s->renormalise) {
        ct_tensor all = sum_last(c.weight, here);
        if (s->routing == CT_ROUTE_SIGMOID) all = ct_add_at(all, ct_f(1e-20), here);
        c.weight = ct_div_at(c.weight, all, here);
    }
    if (s->routed_scale != 1) c.weight = ct_mul_at(c.weight, ct_f(s->routed_scale), here);
    return c;
}

typedef struct groups {
    ct_tensor sizes;  // (experts) i32: rows of each
    ct_tensor expert; // (M) i32: of each row, in order
} groups;

typedef struct chosen {
    const ct_weight_pair *of; // (experts, out, in)
    ct_loc here;
} chosen;

// (experts, ...) at the expert: (...)
static ct_tensor one_of(ct_tensor all, ct_tensor expert, ct_loc here) {
    if (!all.bits) return CT_NONE;
    return ct_gather_with((ct_gather_args){.x = all, .indices = expert, .here = here});
}

// A row times its expert's codes.
static void row_product(const ct_tensor *in, ct_tensor *out, void *user) {
    const chosen *c = user;
    ct_weight_pair own = *c->of;
    if (own.blocks)
        own.weight = one_of(own.weight, in[1], c->here);
    else
        own.which = in[1];
    own.offsets = one_of(own.offsets, in[1], c->here);
    out[0] = ct__stack_product(in[0], &own, false, c->here);
}

typedef struct coded {
    const ct_weight_pair *of; // (experts, out, in)
    int64_t out, in;
    ct_loc here;
} coded;

// x (M, in), row by row: so one token's experts alone are read. Rows that are no whole steps of the kernel, or have
// offsets, are a loop.
static void by_rows(const ct_tensor *in, ct_tensor *out, void *user) {
    const coded *w = user;
    chosen c = {w->of, w->here};
    if (!w->of->blocks && !w->of->offsets.bits && w->in % CT_LM_WIDE_STEP == 0) {
        ct_weight_pair own = *w->of;
        own.which = in[2];
        *out = ct__stack_product(in[0], &own, false, w->here);
        return;
    }
    const ct_tensor xs[2] = {ct__stack_split(in[0], 1, w->in, w->here), in[2]}; // (M, 1, in), (M)
    ct_tensor y;
    ct_scan_with(
        (ct_scan_args){
            .body = row_product, .user = &c, .xs = xs, .n_xs = 2, .n_ys = 1, .here = w->here},
        NULL, &y);
    *out = ct_reshape_at(y, CT_DIMS(-1, w->out), w->here);
}

// BLOCK: rows that one expert is read for at once, at most. FULL: how many an expert should have on
// average before blocks are worth it.
enum { BLOCK = 16, FULL = 4 };

typedef struct block_of {
    const coded *w;
    ct_tensor x; // (M, in)
} block_of;
static void product_of_block(const ct_tensor *in, ct_tensor *out, void *user) {
    const block_of *b = user;
    const ct_loc here = b->w->here;
    const ct_tensor rows =
                        ct_gather_with((ct_gather_args){.x = b->x, .indices = in[0], .here = here}),
                    both[2] = {rows, in[1]};
    chosen c = {b->w->of, here};
    row_product(both, out, &c);
}
static void no_block(const ct_tensor *in, ct_tensor *out, void *user) {
    const block_of *b = user;
    (void)in;
    *out = ct_zeros_at(CT_F32, CT_DIMS(BLOCK, b->w->out), b->w->here);
}
static void one_block(const ct_tensor *in, ct_tensor *out, void *user) {
    block_of *b = user;
    ct_cond_with((ct_cond_args){.pred = in[2],
                                .then = product_of_block,
                                .otherwise = no_block,
                                .user = b,
                                .in = in,
                                .n_in = 2,
                                .n_out = 1,
                                .here = b->w->here},
                 out);
}

static ct_tensor cumsum(ct_tensor x, ct_loc here) {
    return ct_cumsum_with((ct_cumsum_args){.x = x, .axis = 0, .here = here});
}
static ct_tensor at(ct_tensor x, ct_tensor index, ct_loc here) {
    return ct_gather_with((ct_gather_args){.x = x, .indices = index, .here = here});
}

// x (M, in), whose rows stand in the order of their experts, sizes (experts), expert (M): blocks of rows of one expert
// each, as many as there may be at most; those behind the last one are not computed.
static void by_blocks(const ct_tensor *in, ct_tensor *out, void *user) {
    const coded *w = user;
    const ct_loc here = w->here;
    const ct_tensor x = in[0], sizes = in[1], expert = in[2];
    const int64_t experts = ct_dim(sizes, 0), m = ct_dim(x, 0), most = m / BLOCK + experts;
    const int64_t n = ct__size_like(x, 0) == m ? most : CT_DYN(most);
    ct_tensor ends = cumsum(sizes, here), starts = ct_sub_at(ends, sizes, here); // (experts)
    ct_tensor each = ct_floor_divide_at(ct_add_at(sizes, ct_i(BLOCK - 1), here), ct_i(BLOCK), here);
    ct_tensor last = cumsum(each, here), first = ct_sub_at(last, each, here);
    ct_tensor b = ct_iota_at(CT_I32, CT_DIMS(n), 0, here); // (blocks)
    ct_tensor own = ct_searchsorted_with(
        (ct_searchsorted_args){.x = last, .values = b, .right = true, .here = here});
    own = ct_minimum_at(ct_cast_at(own, CT_I32, here), ct_i(experts - 1), here);
    ct_tensor behind = ct_mul_at(ct_sub_at(b, at(first, own, here), here), ct_i(BLOCK), here);
    ct_tensor row =
        ct_reshape_at(ct_add_at(at(starts, own, here), behind, here), CT_DIMS(n, 1), here);
    row = ct_add_at(row, ct_iota_at(CT_I32, CT_DIMS(BLOCK), 0, here), here); // (blocks, BLOCK)
    ct_tensor all = ct__stack_cut(ends, experts - 1, experts, here),
              used = ct__stack_cut(last, experts - 1, experts, here); // (1)
    row = ct_clamp_at(row, ct_i(0), ct_sub_at(all, ct_i(1), here), here);
    block_of block = {.w = w, .x = x};
    const ct_tensor xs[3] = {row, own, ct_less_at(b, used, here)};
    ct_tensor y; // (blocks, BLOCK, out)
    ct_scan_with(
        (ct_scan_args){
            .body = one_block, .user = &block, .xs = xs, .n_xs = 3, .n_ys = 1, .here = here},
        NULL, &y);
    ct_tensor place = ct_sub_at(ct_mul_at(first, ct_i(BLOCK), here), starts, here); // (experts)
    place = ct_add_at(at(place, expert, here),
                      ct_iota_at(CT_I32, CT_DIMS(ct__size_like(x, 0)), 0, here),
                      here); // (M)
    *out = at(ct_reshape_at(y, CT_DIMS(-1, w->out), here), place, here);
}

// x (M, in), rows in the order of their experts -> (M, out). A row's products of codes have the same bits in a block.
static ct_tensor expert_product(const ct_lm_pass *pass, const ct_weight_pair *w, const groups *g,
                                ct_tensor x) {
    const ct_loc here = pass->here;
    if (w->scales.bits || w->blocks) {
        coded c = {w, ct_dim(w->weight, 1), ct_dim(x, 1), here};
        if (!w->blocks) ct__lm_codes_sizes(w, &c.out, &c.in);
        const int64_t experts = ct_dim(w->weight, 0);
        const ct_tensor in[3] = {x, g->sizes, g->expert};
        ct_tensor y, rows = ct_sum_with((ct_sum_args){.x = g->sizes, .here = here});
        ct_cond_with((ct_cond_args){.pred = ct_less_at(rows, ct_i(FULL * experts), here),
                                    .then = by_rows,
                                    .otherwise = by_blocks,
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

static ct_tensor expert_linear(const ct_lm_pass *pass, const ct_weight_pair *w, const groups *g,
                               ct_tensor x) {
    const ct_loc here = pass->here;
    x = expert_product(pass, w, g, x);
    if (!w->bias.bits) return x;
    ct_tensor bias = ct_gather_with(
        (ct_gather_args){.x = w->bias, .indices = g->expert, .here = here}); // (M, out)
    return ct_add_at(x, ct__stack_numbers(bias, here), here);
}

// gpt-oss limits gates and what they gate.
static ct_tensor limited(const ct_lm_pass *pass, ct_tensor gate, ct_tensor up) {
    const ct_spec *s = &pass->lm->spec;
    const ct_loc here = pass->here;
    gate = ct_minimum_at(gate, ct_f(s->limit), here);
    up = ct_clamp_at(up, ct_f(-s->limit), ct_f(s->limit), here);
    ct_tensor open = ct_sigmoid_at(ct_mul_at(gate, ct_f(s->gate_alpha), here), here);
    return ct_mul_at(ct_add_at(up, ct_f(1), here), ct_mul_at(gate, open, here), here);
}

static ct_tensor experts(const ct_lm_pass *pass, int64_t layer, const groups *g, ct_tensor x) {
    const ct_spec *s = &pass->lm->spec;
    const ct_weight_pair *w = pass->lm->layer[layer];
    const ct_loc here = pass->here;
    if (w[CT_NAME_expert_gate_up].weight.bits) {
        ct_tensor both = expert_linear(pass, &w[CT_NAME_expert_gate_up], g, x); // (M, 2 * hidden)
        if (s->limit != 0) {                                                    // in turn
            ct_tensor pairs = ct__stack_split(both, s->expert_hidden, 2, here); // (M, hidden, 2)
            const ct_ints dims = CT_DIMS(-1, s->expert_hidden);
            x = limited(pass, ct_reshape_at(ct__stack_cut(pairs, 0, 1, here), dims, here),
                        ct_reshape_at(ct__stack_cut(pairs, 1, 2, here), dims, here));
        } else {
            ct_tensor gate = ct__stack_cut(both, 0, s->expert_hidden, here);
            ct_tensor up = ct__stack_cut(both, s->expert_hidden, 2 * s->expert_hidden, here);
            x = ct_mul_at(ct__stack_activate(pass, gate), up, here);
        }
    } else {
        ct_tensor gate = expert_linear(pass, &w[CT_NAME_expert_gate], g, x); // (M, hidden)
        ct_tensor up = expert_linear(pass, &w[CT_NAME_expert_up], g, x);
        x = s->limit != 0 ? limited(pass, gate, up)
                          : ct_mul_at(ct__stack_activate(pass, gate), up, here);
    }
    return expert_linear(pass, &w[CT_NAME_expert_down], g, x); // (M, width)
}

// What every token goes through. x (N, width)
static ct_tensor shared(const ct_lm_pass *pass, int64_t layer, ct_tensor x, ct_tensor y) {
    const ct_weight_pair *w = pass->lm->layer[layer];
    const ct_loc here = pass->here;
    ct_tensor gate = ct__stack_linear(pass, &w[CT_NAME_shared_gate], x);
    ct_tensor up = ct__stack_linear(pass, &w[CT_NAME_shared_up], x);
    ct_tensor own = ct_mul_at(ct__stack_activate(pass, gate), up, here);
    own = ct__stack_linear(pass, &w[CT_NAME_shared_down], own);
    if (w[CT_NAME_shared_switch].weight.bits) {
        ct_tensor open = ct__stack_linear(pass, &w[CT_NAME_shared_switch], x); // (N, 1)
        own = ct_mul_at(ct_sigmoid_at(open, here), own, here);
    }
    return ct_add_at(y, own, here);
}

ct_tensor ct__stack_experts(const ct_lm_pass *pass, int64_t layer, ct_tensor x) {
    const ct_spec *s = &pass->lm->spec;
    const ct_loc here = pass->here;
    if (!ct_ok(x)) return x;
    const int64_t n = ct__size_like(x, 0), top = s->top;
    const choice c = route(pass, layer, x);
    ct_tensor flat = ct_reshape_at(c.expert, CT_DIMS(-1), here); // (M): M = N * top
    ct_tensor order = ct_argsort_with((ct_argsort_args){.x = flat, .here = here});
    ct_tensor back = ct_argsort_with((ct_argsort_args){.x = order, .here = here});
    const groups g = {ct_bincount_at(flat, s->experts, here),
                      ct_gather_with((ct_gather_args){.x = flat, .indices = order, .here = here})};
    ct_tensor token = ct_floor_divide_at(order, ct_i(top), here);
    ct_tensor rows =
        ct_gather_with((ct_gather_args){.x = x, .indices = token, .here = here}); // (M, width)
    ct_tensor weight = ct_reshape_at(c.weight, CT_DIMS(n, top, 1), here);
    const bool first = s->routing == CT_ROUTE_SCALED; // Llama 4 weighs what goes in
    if (first) {
        ct_tensor by = ct_gather_with((ct_gather_args){
            .x = ct_reshape_at(weight, CT_DIMS(-1), here), .indices = order, .here = here});
        rows = ct_mul_at(rows, ct_reshape_at(by, CT_DIMS(-1, 1), here), here);
    }
    ct_tensor y = experts(pass, layer, &g, rows);
    y = ct_gather_with((ct_gather_args){.x = y, .indices = back, .here = here});
    y = ct_reshape_at(y, CT_DIMS(n, top, s->width), here);
    if (!first) y = ct_mul_at(y, weight, here);
    y = ct_sum_with((ct_sum_args){.x = y, .axes = CT_AXES(1), .here = here}); // (N, width)
    return s->shared_hidden ? shared(pass, layer, x, y) : y;
}
