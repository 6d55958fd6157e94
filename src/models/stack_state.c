// Recurrent layers, which keep a state instead of keys and values: Mamba (Gu and Dao 2023) and RWKV 4 (Peng
// et al. 2023). The tokens of a sequence update the state one after the other in order, so that chunked
// prefill changes no bit.
#include "models/stack.h"
#include "ops/rules.h"

// -------------------------------------------------------------------------------------------- states

// Returns the states of a segment's sequences: (B, ...) from the pool (sequences, ...), zeros at the
// beginning of a sequence.
static ct_tensor state_load(const ct_lm_pass *pass, int segment, ct_tensor pool, ct_ints shape) {
    const ct_lm_segment *g = &pass->segment[segment];
    const ct_loc here = pass->here;
    int64_t sizes[4] = {g->batch}, ones[4] = {-1, 1, 1, 1};
    for (int64_t a = 0; a < shape.n; a++) sizes[a + 1] = shape.v[a];
    const ct_ints dims = {shape.n + 1, sizes};
    if (!pool.bits) return ct_zeros_at(CT_F32, dims, here);
    ct_tensor old_state =
        ct_gather_with((ct_gather_args){.x = pool, .indices = g->state, .here = here});
    ct_tensor is_continued =
        ct_greater_at(ct_reshape_at(g->position, (ct_ints){dims.n, ones}, here), ct_i(0), here);
    return ct_select_at(is_continued, old_state, ct_f(0), here);
}

// Returns the pool with the new states of a segment; `updated` is the pool updated by an earlier segment.
static ct_tensor state_store(const ct_lm_pass *pass, int segment, ct_tensor pool, ct_tensor updated,
                             ct_tensor state) {
    if (!pool.bits) return updated;
    return ct_scatter_with((ct_scatter_args){.x = updated.bits ? updated : pool,
                                             .indices = pass->segment[segment].state,
                                             .updates = state,
                                             .here = pass->here});
}

// rows (B * T, n) -> (B, T, n)
static ct_tensor state_segment_rows(const ct_lm_pass *pass, int segment, ct_tensor rows) {
    const ct_lm_segment *g = &pass->segment[segment];
    rows = ct__stack_rows(pass, segment, rows);
    return ct_reshape_at(rows, CT_DIMS(g->batch, g->time, ct_dim(rows, 1)), pass->here);
}
static ct_tensor state_join_rows(const ct_lm_pass *pass, ct_tensor outputs[2]) {
    ct_tensor rows[2];
    for (int i = 0; i < pass->segments; i++)
        rows[i] = ct_reshape_at(outputs[i], CT_DIMS(-1, ct_dim(outputs[i], 2)), pass->here);
    return pass->segments == 1 ? rows[0] : ct_concat_at(rows, pass->segments, 0, pass->here);
}

// Returns the segment's T tokens of x (B, n + T, m) from index `from`: (B, T, m); or the last n tokens: (B,
// n, m).
static ct_tensor state_shift(const ct_lm_pass *pass, int segment, ct_tensor x, int64_t from) {
    return ct_dynamic_slice_with(
        (ct_dynamic_slice_args){.x = x,
                                .starts = ct_i(from),
                                .axes = CT_AXES(1),
                                .sizes = CT_DIMS(pass->segment[segment].time),
                                .here = pass->here});
}
static ct_tensor state_last_tokens(const ct_lm_pass *pass, ct_tensor x, int64_t n) {
    return ct_slice_with(
        (ct_slice_args){.x = x, .axes = CT_AXES(1), .start = CT_INTS(-n), .here = pass->here});
}

// Scans over time: `body` gets the state and one token's elements of each x (B, T, ...), and returns the
// next state and y.
static ct_tensor state_scan(const ct_lm_pass *pass, ct_fn body, void *user, ct_tensor *state,
                            size_t n_state, const ct_tensor *xs, size_t n_xs) {
    enum { MAX_XS = 8 };
    const ct_loc here = pass->here;
    ct_tensor by_time[MAX_XS], next[MAX_XS], y = CT_NONE;
    for (size_t i = 0; i < n_xs; i++) by_time[i] = ct_permute_at(xs[i], CT_AXES(1, 0, 2), here);
    ct_scan_with((ct_scan_args){.body = body,
                                .user = user,
                                .carry = state,
                                .n_carry = n_state,
                                .xs = by_time,
                                .n_xs = n_xs,
                                .n_ys = 1,
                                .here = here},
                 next, &y);
    for (size_t i = 0; i < n_state; i++) state[i] = next[i];
    return ct_permute_at(y, CT_AXES(1, 0, 2), here); // (B, T, ...)
}

// --------------------------------------------------------------------------------------------- Mamba

// Causal depthwise convolution. x (N, hidden)
static ct_tensor mamba_conv(const ct_lm_pass *pass, int64_t layer, ct_tensor x) {
    const ct_spec *s = &pass->lm->spec;
    const ct_weight_pair *w = &pass->lm->layer[layer][CT_NAME_ssm_conv];
    const ct_loc here = pass->here;
    ct_tensor taps =
        ct_reshape_at(ct__stack_numbers(w->weight, here), CT_DIMS(s->hidden, s->conv), here);
    ct_tensor pool = pass->cache ? pass->cache->layer[layer].weight : CT_NONE, new_pool = CT_NONE,
              outputs[2];
    for (int i = 0; i < pass->segments; i++) {
        ct_tensor tokens = state_segment_rows(pass, i, x); // (B, T, hidden)
        ct_tensor parts[2] = {state_load(pass, i, pool, CT_DIMS(s->conv - 1, s->hidden)), tokens};
        ct_tensor all = ct_concat_at(parts, 2, 1, here); // (B, taps - 1 + T, hidden)
        ct_tensor y = CT_NONE;
        for (int64_t k = 0; k < s->conv; k++) {
            ct_tensor tap =
                ct_reshape_at(ct__stack_cut(taps, k, k + 1, here), CT_DIMS(s->hidden), here);
            ct_tensor term = ct_mul_at(state_shift(pass, i, all, k), tap, here);
            y = y.bits ? ct_add_at(y, term, here) : term;
        }
        outputs[i] = w->bias.bits ? ct_add_at(y, ct__stack_numbers(w->bias, here), here) : y;
        new_pool = state_store(pass, i, pool, new_pool, state_last_tokens(pass, all, s->conv - 1));
    }
    if (new_pool.bits) ct_assign_at(pool, new_pool, here);
    return ct__stack_activate(pass, state_join_rows(pass, outputs));
}

typedef struct mamba_scan_args {
    ct_loc here;
    ct_tensor decay; // (hidden, n)
} mamba_scan_args;

// in: state (B, hidden, n); of one token the step (B, hidden), x (B, hidden), B (B, n) and C (B, n)
static void mamba_scan_body(const ct_tensor *in, ct_tensor *out, void *user) {
    const mamba_scan_args *u = user;
    const ct_loc here = u->here;
    const ct_ints row = CT_DIMS(ct__size_like(in[3], 0), 1, ct__size_like(in[3], 1)); // (B, 1, n)
    ct_tensor step = ct__add_last(in[1]), x = ct__add_last(in[2]); // (B, hidden, 1)
    ct_tensor b = ct_reshape_at(in[3], row, here), c = ct_reshape_at(in[4], row, here);
    ct_tensor decay = ct_exp_at(ct_mul_at(step, u->decay, here), here); // (B, hidden, n)
    ct_tensor input = ct_mul_at(ct_mul_at(step, b, here), x, here);
    out[0] = ct_add_at(ct_mul_at(decay, in[0], here), input, here);
    out[1] = ct_sum_with((ct_sum_args){
        .x = ct_mul_at(out[0], c, here), .axes = CT_AXES(-1), .here = here}); // (B, hidden)
}

ct_tensor ct__stack_mamba(ct_lm_pass *pass, int64_t layer, ct_tensor x) {
    const ct_spec *s = &pass->lm->spec;
    const ct_weight_pair *w = pass->lm->layer[layer];
    const ct_loc here = pass->here;
    ct_tensor x_and_gate = ct__stack_linear(pass, &w[CT_NAME_ssm_in], x); // (N, 2 * hidden)
    ct_tensor gate = ct__stack_cut(x_and_gate, s->hidden, 2 * s->hidden, here);
    x = mamba_conv(pass, layer, ct__stack_cut(x_and_gate, 0, s->hidden, here)); // (N, hidden)
    ct_tensor step_b_c = ct__stack_linear(pass, &w[CT_NAME_ssm_x], x); // (N, rank + 2 * state)
    ct_tensor step = ct__stack_linear(pass, &w[CT_NAME_ssm_step],
                                      ct__stack_cut(step_b_c, 0, s->step_rank, here));
    step = ct_softplus_at(step, here); // (N, hidden)
    ct_tensor b = ct__stack_cut(step_b_c, s->step_rank, s->step_rank + s->state, here),
              c = ct__stack_cut(step_b_c, s->step_rank + s->state, s->step_rank + 2 * s->state,
                                here);
    ct_tensor log = ct__stack_matrix(&w[CT_NAME_ssm_decay], here); // (hidden, state)
    mamba_scan_args user = {here, ct_neg_at(ct_exp_at(log, here), here)};
    ct_tensor pool = pass->cache ? pass->cache->layer[layer].bias : CT_NONE, new_pool = CT_NONE,
              outputs[2];
    for (int i = 0; i < pass->segments; i++) {
        ct_tensor state = state_load(pass, i, pool, CT_DIMS(s->hidden, s->state));
        const ct_tensor xs[4] = {state_segment_rows(pass, i, step), state_segment_rows(pass, i, x),
                                 state_segment_rows(pass, i, b), state_segment_rows(pass, i, c)};
        outputs[i] = state_scan(pass, mamba_scan_body, &user, &state, 1, xs, 4);
        new_pool = state_store(pass, i, pool, new_pool, state);
    }
    if (new_pool.bits) ct_assign_at(pool, new_pool, here);
    ct_tensor skip = ct__stack_numbers(w[CT_NAME_ssm_skip].weight, here); // (hidden)
    ct_tensor y = ct_add_at(state_join_rows(pass, outputs), ct_mul_at(x, skip, here), here);
    y = ct_mul_at(y, ct__stack_activate(pass, gate), here);
    return ct__stack_linear(pass, &w[CT_NAME_ssm_out], y);
}

// ---------------------------------------------------------------------------------------------- RWKV

// Rows of a layer's state: x before time mixing, x before channel mixing, and the numerator, denominator
// and largest exponent of the weighted mean.
enum { SHIFT_TIME, SHIFT_CHANNEL, NUMERATOR };

// Returns each token's predecessor: (B, T, width). `last` gets the last token (B, 1, width).
static ct_tensor rwkv_previous_token(const ct_lm_pass *pass, int segment, ct_tensor tokens,
                                     ct_tensor previous, ct_tensor *last) {
    ct_tensor parts[2] = {previous, tokens};
    ct_tensor all = ct_concat_at(parts, 2, 1, pass->here); // (B, 1 + T, width)
    *last = state_last_tokens(pass, all, 1);
    return state_shift(pass, segment, all, 0);
}

static ct_tensor rwkv_state_row(ct_tensor state, int64_t row,
                                ct_loc here) { // (B, 5, n) -> (B, 1, n)
    return ct_slice_with((ct_slice_args){.x = state,
                                         .axes = CT_AXES(1),
                                         .start = CT_INTS(row),
                                         .stop = CT_INTS(row + 1),
                                         .here = here});
}

// Interpolates x and its predecessor channel by channel.
static ct_tensor rwkv_mix(const ct_lm_pass *pass, int64_t layer, int name, ct_tensor x,
                          ct_tensor previous) {
    const ct_loc here = pass->here;
    ct_tensor weight =
        ct__stack_numbers(pass->lm->layer[layer][name].weight, here); // (1, 1, width)
    weight = ct_reshape_at(weight, CT_DIMS(pass->lm->spec.width), here);
    ct_tensor rest = ct_sub_at(ct_f(1), weight, here);
    return ct_add_at(ct_mul_at(x, weight, here), ct_mul_at(previous, rest, here), here);
}

typedef struct rwkv_scan_args {
    ct_loc here;
    ct_tensor decay, bonus; // (n)
} rwkv_scan_args;

// in: numerator, denominator, largest exponent (B, n); key and value of one token (B, n)
static void rwkv_scan_body(const ct_tensor *in, ct_tensor *out, void *user) {
    const rwkv_scan_args *u = user;
    const ct_loc here = u->here;
    ct_tensor exponent = ct_add_at(in[3], u->bonus, here),
              largest = ct_maximum_at(in[2], exponent, here);
    ct_tensor old = ct_exp_at(ct_sub_at(in[2], largest, here), here),
              new = ct_exp_at(ct_sub_at(exponent, largest, here), here);
    ct_tensor numerator = ct_add_at(ct_mul_at(old, in[0], here), ct_mul_at(new, in[4], here), here),
              denominator = ct_add_at(ct_mul_at(old, in[1], here), new, here);
    out[3] = ct_div_at(numerator, denominator, here);
    ct_tensor decayed = ct_add_at(in[2], u->decay, here);
    largest = ct_maximum_at(decayed, in[3], here);
    old = ct_exp_at(ct_sub_at(decayed, largest, here), here);
    new = ct_exp_at(ct_sub_at(in[3], largest, here), here);
    out[0] = ct_add_at(ct_mul_at(old, in[0], here), ct_mul_at(new, in[4], here), here);
    out[1] = ct_add_at(ct_mul_at(old, in[1], here), new, here);
    out[2] = largest;
}

// Returns a row of the state (B, 5, n); at the beginning of a sequence the largest exponent is the smallest
// value, since there is nothing to weigh.
static ct_tensor rwkv_load_row(const ct_lm_pass *pass, int segment, int64_t layer, int64_t row) {
    const ct_loc here = pass->here;
    const int64_t n = pass->lm->spec.width, batch = pass->segment[segment].batch;
    ct_tensor pool = pass->cache ? pass->cache->layer[layer].weight : CT_NONE;
    ct_tensor state = rwkv_state_row(state_load(pass, segment, pool, CT_DIMS(5, n)), row, here);
    if (row != NUMERATOR + 2) return state;
    ct_tensor smallest = ct_full_at(ct_scalar(-1e38, CT_F32), CT_DIMS(batch, 1, n), here);
    if (!pool.bits) return smallest;
    ct_tensor at = ct_reshape_at(pass->segment[segment].position, CT_DIMS(-1, 1, 1), here);
    return ct_select_at(ct_greater_at(at, ct_i(0), here), state, smallest, here);
}

typedef struct rwkv_new_state { // new state rows of one segment
    ct_tensor shift[2];         // (B, 1, n): the last token's x
    ct_tensor mean[3];          // (B, n): numerator, denominator, largest exponent
} rwkv_new_state;

static ct_tensor rwkv_time_mixing(ct_lm_pass *pass, int64_t layer, ct_tensor x,
                                  rwkv_new_state new_state[2]) {
    const ct_weight_pair *w = pass->lm->layer[layer];
    const ct_loc here = pass->here;
    ct_tensor previous[2], outputs[2];
    for (int i = 0; i < pass->segments; i++)
        previous[i] =
            rwkv_previous_token(pass, i, state_segment_rows(pass, i, x),
                                rwkv_load_row(pass, i, layer, SHIFT_TIME), &new_state[i].shift[0]);
    ct_tensor old = state_join_rows(pass, previous);
    ct_tensor k =
        ct__stack_linear(pass, &w[CT_NAME_k], rwkv_mix(pass, layer, CT_NAME_mix_k, x, old));
    ct_tensor v =
        ct__stack_linear(pass, &w[CT_NAME_v], rwkv_mix(pass, layer, CT_NAME_mix_v, x, old));
    ct_tensor r =
        ct__stack_linear(pass, &w[CT_NAME_r], rwkv_mix(pass, layer, CT_NAME_mix_r, x, old));
    ct_tensor decay = ct__stack_numbers(w[CT_NAME_decay].weight, here);
    rwkv_scan_args user = {here, ct_neg_at(ct_exp_at(decay, here), here),
                           ct__stack_numbers(w[CT_NAME_bonus].weight, here)};
    for (int i = 0; i < pass->segments; i++) {
        for (int j = 0; j < 3; j++) {
            ct_tensor row = rwkv_load_row(pass, i, layer, NUMERATOR + j);
            new_state[i].mean[j] = ct_reshape_at(row, CT_DIMS(-1, pass->lm->spec.width), here);
        }
        const ct_tensor xs[2] = {state_segment_rows(pass, i, k), state_segment_rows(pass, i, v)};
        outputs[i] = state_scan(pass, rwkv_scan_body, &user, new_state[i].mean, 3, xs, 2);
    }
    ct_tensor y = ct_mul_at(ct_sigmoid_at(r, here), state_join_rows(pass, outputs), here);
    return ct__stack_linear(pass, &w[CT_NAME_o], y);
}

static ct_tensor rwkv_channel_mixing(ct_lm_pass *pass, int64_t layer, ct_tensor x,
                                     rwkv_new_state new_state[2]) {
    const ct_weight_pair *w = pass->lm->layer[layer];
    const ct_loc here = pass->here;
    ct_tensor previous[2];
    for (int i = 0; i < pass->segments; i++)
        previous[i] = rwkv_previous_token(pass, i, state_segment_rows(pass, i, x),
                                          rwkv_load_row(pass, i, layer, SHIFT_CHANNEL),
                                          &new_state[i].shift[1]);
    ct_tensor old = state_join_rows(pass, previous);
    ct_tensor k =
        ct__stack_linear(pass, &w[CT_NAME_up], rwkv_mix(pass, layer, CT_NAME_mlp_mix_k, x, old));
    ct_tensor r =
        ct__stack_linear(pass, &w[CT_NAME_mlp_r], rwkv_mix(pass, layer, CT_NAME_mlp_mix_r, x, old));
    k = ct__stack_linear(pass, &w[CT_NAME_down], ct_square_at(ct_relu_at(k, here), here));
    return ct_mul_at(ct_sigmoid_at(r, here), k, here);
}

static void rwkv_store_state(const ct_lm_pass *pass, int64_t layer,
                             const rwkv_new_state new_state[2]) {
    const ct_loc here = pass->here;
    ct_tensor pool = pass->cache->layer[layer].weight, new_pool = CT_NONE;
    for (int i = 0; i < pass->segments; i++) {
        ct_tensor row[5] = {new_state[i].shift[0], new_state[i].shift[1]};
        for (int j = 0; j < 3; j++) // (B, 1, n)
            row[NUMERATOR + j] =
                ct_reshape_at(new_state[i].mean[j], CT_DIMS(-1, 1, pass->lm->spec.width), here);
        new_pool = state_store(pass, i, pool, new_pool, ct_concat_at(row, 5, 1, here));
    }
    ct_assign_at(pool, new_pool, here);
}

ct_tensor ct__stack_rwkv(ct_lm_pass *pass, int64_t layer, ct_tensor x) {
    const ct_weight_pair *w = pass->lm->layer[layer];
    rwkv_new_state new_state[2];
    x = ct__stack_norm(pass, &w[CT_NAME_first_norm], x);
    x = ct_add_at(
        x, rwkv_time_mixing(pass, layer, ct__stack_norm(pass, &w[CT_NAME_attn_norm], x), new_state),
        pass->here);
    x = ct_add_at(
        x,
        rwkv_channel_mixing(pass, layer, ct__stack_norm(pass, &w[CT_NAME_mlp_norm], x), new_state),
        pass->here);
    if (pass->cache) rwkv_store_state(pass, layer, new_state);
    return x;
}
