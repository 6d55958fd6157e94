// Layers that keep a state instead of keys and values: Mamba (Gu and Dao 2023) and RWKV 4 (Peng et al. 2023). A text's
// tokens go through a state one after the other, in one order, so that reading it in pieces changes no bit.
#include "models/stack.h"
#include "ops/rules.h"

// ------------------------------------------------------------------------------------------- states

// What the texts of a segment were left with: (B, ...) of the pool (texts, ...), zeros where they begin.
static ct_tensor state_before(const ct_lm_pass *pass, int segment, ct_tensor pool, ct_ints one) {
    const ct_lm_segment *g = &pass->segment[segment];
    const ct_loc here = pass->here;
    int64_t sizes[4] = {g->batch}, ones[4] = {-1, 1, 1, 1};
    for (int64_t a = 0; a < one.n; a++) sizes[a + 1] = one.v[a];
    const ct_ints dims = {one.n + 1, sizes};
    if (!pool.bits) return ct_zeros_at(CT_F32, dims, here);
    ct_tensor was = ct_gather_with((ct_gather_args){.x = pool, .indices = g->state, .here = here});
    ct_tensor goes_on =
        ct_greater_at(ct_reshape_at(g->position, (ct_ints){dims.n, ones}, here), ct_i(0), here);
    return ct_select_at(goes_on, was, ct_f(0), here);
}

// The pool with what the texts are left with now; what an earlier segment has left stands in `now`.
static ct_tensor state_after(const ct_lm_pass *pass, int segment, ct_tensor pool, ct_tensor now,
                             ct_tensor state) {
    if (!pool.bits) return now;
    return ct_scatter_with((ct_scatter_args){.x = now.bits ? now : pool,
                                             .indices = pass->segment[segment].state,
                                             .updates = state,
                                             .here = pass->here});
}

// rows (B * T, n) -> (B, T, n)
static ct_tensor texts_of(const ct_lm_pass *pass, int segment, ct_tensor rows) {
    const ct_lm_segment *g = &pass->segment[segment];
    rows = ct__stack_rows(pass, segment, rows);
    return ct_reshape_at(rows, CT_DIMS(g->batch, g->time, ct_dim(rows, 1)), pass->here);
}
static ct_tensor rows_again(const ct_lm_pass *pass, ct_tensor part[2]) {
    ct_tensor rows[2];
    for (int i = 0; i < pass->segments; i++)
        rows[i] = ct_reshape_at(part[i], CT_DIMS(-1, ct_dim(part[i], 2)), pass->here);
    return pass->segments == 1 ? rows[0] : ct_concat_at(rows, pass->segments, 0, pass->here);
}

// x (B, n + T, m) from `from` on, as many as the segment has tokens: (B, T, m); or its last n: (B, n, m).
static ct_tensor shifted(const ct_lm_pass *pass, int segment, ct_tensor x, int64_t from) {
    return ct_dynamic_slice_with(
        (ct_dynamic_slice_args){.x = x,
                                .starts = ct_i(from),
                                .axes = CT_AXES(1),
                                .sizes = CT_DIMS(pass->segment[segment].time),
                                .here = pass->here});
}
static ct_tensor last_of(const ct_lm_pass *pass, ct_tensor x, int64_t n) {
    return ct_slice_with(
        (ct_slice_args){.x = x, .axes = CT_AXES(1), .start = CT_INTS(-n), .here = pass->here});
}

// Along time: body sees the state and one token's numbers of each x (B, T, ...), and gives the next state and y.
static ct_tensor over_time(const ct_lm_pass *pass, ct_fn body, void *user, ct_tensor *state,
                           size_t n_state, const ct_tensor *xs, size_t n_xs) {
    enum { MOST = 8 };
    const ct_loc here = pass->here;
    ct_tensor by_time[MOST], next[MOST], y = CT_NONE;
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

// -------------------------------------------------------------------------------------------- Mamba

// Each channel's last few tokens times its taps. x (N, hidden)
static ct_tensor convolve(const ct_lm_pass *pass, int64_t layer, ct_tensor x) {
    const ct_spec *s = &pass->lm->spec;
    const ct_weight_pair *w = &pass->lm->layer[layer][CT_NAME_ssm_conv];
    const ct_loc here = pass->here;
    ct_tensor taps =
        ct_reshape_at(ct__stack_numbers(w->weight, here), CT_DIMS(s->hidden, s->conv), here);
    ct_tensor pool = pass->cache ? pass->cache->layer[layer].weight : CT_NONE, now = CT_NONE,
              part[2];
    for (int i = 0; i < pass->segments; i++) {
        ct_tensor own = texts_of(pass, i, x); // (B, T, hidden)
        ct_tensor two[2] = {state_before(pass, i, pool, CT_DIMS(s->conv - 1, s->hidden)), own};
        ct_tensor all = ct_concat_at(two, 2, 1, here); // (B, taps - 1 + T, hidden)
        ct_tensor y = CT_NONE;
        for (int64_t k = 0; k < s->conv; k++) {
            ct_tensor tap =
                ct_reshape_at(ct__stack_cut(taps, k, k + 1, here), CT_DIMS(s->hidden), here);
            ct_tensor one = ct_mul_at(shifted(pass, i, all, k), tap, here);
            y = y.bits ? ct_add_at(y, one, here) : one;
        }
        part[i] = w->bias.bits ? ct_add_at(y, ct__stack_numbers(w->bias, here), here) : y;
        now = state_after(pass, i, pool, now, last_of(pass, all, s->conv - 1));
    }
    if (now.bits) ct_assign_at(pool, now, here);
    return ct__stack_activate(pass, rows_again(pass, part));
}

typedef struct mamba_user {
    ct_loc here;
    ct_tensor decay; // (hidden, n)
} mamba_user;

// in: state (B, hidden, n); of one token step (B, hidden), x (B, hidden), what enters (B, n) and leaves (B, n)
static void mamba_body(const ct_tensor *in, ct_tensor *out, void *user) {
    const mamba_user *u = user;
    const ct_loc here = u->here;
    const ct_ints row = CT_DIMS(ct__size_like(in[3], 0), 1, ct__size_like(in[3], 1)); // (B, 1, n)
    ct_tensor step = ct__add_last(in[1]), x = ct__add_last(in[2]); // (B, hidden, 1)
    ct_tensor enters = ct_reshape_at(in[3], row, here), leaves = ct_reshape_at(in[4], row, here);
    ct_tensor keep = ct_exp_at(ct_mul_at(step, u->decay, here), here); // (B, hidden, n)
    ct_tensor more = ct_mul_at(ct_mul_at(step, enters, here), x, here);
    out[0] = ct_add_at(ct_mul_at(keep, in[0], here), more, here);
    out[1] = ct_sum_with((ct_sum_args){
        .x = ct_mul_at(out[0], leaves, here), .axes = CT_AXES(-1), .here = here}); // (B, hidden)
}

ct_tensor ct__stack_mamba(ct_lm_pass *pass, int64_t layer, ct_tensor x) {
    const ct_spec *s = &pass->lm->spec;
    const ct_weight_pair *w = pass->lm->layer[layer];
    const ct_loc here = pass->here;
    ct_tensor both = ct__stack_linear(pass, &w[CT_NAME_ssm_in], x); // (N, 2 * hidden)
    ct_tensor gate = ct__stack_cut(both, s->hidden, 2 * s->hidden, here);
    x = convolve(pass, layer, ct__stack_cut(both, 0, s->hidden, here)); // (N, hidden)
    ct_tensor made = ct__stack_linear(pass, &w[CT_NAME_ssm_x], x);      // (N, rank + 2 * state)
    ct_tensor step =
        ct__stack_linear(pass, &w[CT_NAME_ssm_step], ct__stack_cut(made, 0, s->step_rank, here));
    step = ct_softplus_at(step, here); // (N, hidden)
    ct_tensor enters = ct__stack_cut(made, s->step_rank, s->step_rank + s->state, here),
              leaves =
                  ct__stack_cut(made, s->step_rank + s->state, s->step_rank + 2 * s->state, here);
    ct_tensor log = ct__stack_matrix(&w[CT_NAME_ssm_decay], here); // (hidden, state)
    mamba_user user = {here, ct_neg_at(ct_exp_at(log, here), here)};
    ct_tensor pool = pass->cache ? pass->cache->layer[layer].bias : CT_NONE, now = CT_NONE, part[2];
    for (int i = 0; i < pass->segments; i++) {
        ct_tensor state = state_before(pass, i, pool, CT_DIMS(s->hidden, s->state));
        const ct_tensor xs[4] = {texts_of(pass, i, step), texts_of(pass, i, x),
                                 texts_of(pass, i, enters), texts_of(pass, i, leaves)};
        part[i] = over_time(pass, mamba_body, &user, &state, 1, xs, 4);
        now = state_after(pass, i, pool, now, state);
    }
    if (now.bits) ct_assign_at(pool, now, here);
    ct_tensor skip = ct__stack_numbers(w[CT_NAME_ssm_skip].weight, here); // (hidden)
    ct_tensor y = ct_add_at(rows_again(pass, part), ct_mul_at(x, skip, here), here);
    y = ct_mul_at(y, ct__stack_activate(pass, gate), here);
    return ct__stack_linear(pass, &w[CT_NAME_ssm_out], y);
}

// --------------------------------------------------------------------------------------------- RWKV

// Rows of a layer's state: x before time mixing, x before channel mixing, and of the weighted mean its numerator,
// denominator and largest exponent.
enum { SHIFT_TIME, SHIFT_CHANNEL, NUMERATOR };

// Each token's x beside that of the token before: (B, T, width). `left`: the last token's (B, 1, width).
static ct_tensor token_before(const ct_lm_pass *pass, int segment, ct_tensor own, ct_tensor before,
                              ct_tensor *left) {
    ct_tensor two[2] = {before, own};
    ct_tensor all = ct_concat_at(two, 2, 1, pass->here); // (B, 1 + T, width)
    *left = last_of(pass, all, 1);
    return shifted(pass, segment, all, 0);
}

static ct_tensor row_of(ct_tensor state, int64_t row, ct_loc here) { // (B, 5, n) -> (B, 1, n)
    return ct_slice_with((ct_slice_args){.x = state,
                                         .axes = CT_AXES(1),
                                         .start = CT_INTS(row),
                                         .stop = CT_INTS(row + 1),
                                         .here = here});
}

// x and its neighbour, mixed channel by channel.
static ct_tensor mix(const ct_lm_pass *pass, int64_t layer, int name, ct_tensor x,
                     ct_tensor before) {
    const ct_loc here = pass->here;
    ct_tensor share = ct__stack_numbers(pass->lm->layer[layer][name].weight, here); // (1, 1, width)
    share = ct_reshape_at(share, CT_DIMS(pass->lm->spec.width), here);
    ct_tensor rest = ct_sub_at(ct_f(1), share, here);
    return ct_add_at(ct_mul_at(x, share, here), ct_mul_at(before, rest, here), here);
}

typedef struct rwkv_user {
    ct_loc here;
    ct_tensor decay, bonus; // (n)
} rwkv_user;

// in: numerator, denominator, largest exponent (B, n); key and value of one token (B, n)
static void rwkv_body(const ct_tensor *in, ct_tensor *out, void *user) {
    const rwkv_user *u = user;
    const ct_loc here = u->here;
    ct_tensor own = ct_add_at(in[3], u->bonus, here), most = ct_maximum_at(in[2], own, here);
    ct_tensor old = ct_exp_at(ct_sub_at(in[2], most, here), here),
              new = ct_exp_at(ct_sub_at(own, most, here), here);
    ct_tensor above = ct_add_at(ct_mul_at(old, in[0], here), ct_mul_at(new, in[4], here), here),
              below = ct_add_at(ct_mul_at(old, in[1], here), new, here);
    out[3] = ct_div_at(above, below, here);
    ct_tensor faded = ct_add_at(in[2], u->decay, here);
    most = ct_maximum_at(faded, in[3], here);
    old = ct_exp_at(ct_sub_at(faded, most, here), here);
    new = ct_exp_at(ct_sub_at(in[3], most, here), here);
    out[0] = ct_add_at(ct_mul_at(old, in[0], here), ct_mul_at(new, in[4], here), here);
    out[1] = ct_add_at(ct_mul_at(old, in[1], here), new, here);
    out[2] = most;
}

// The state (B, 5, n) of a text that begins has nothing to weigh, so the least exponent.
static ct_tensor rwkv_state(const ct_lm_pass *pass, int segment, int64_t layer, int64_t row) {
    const ct_loc here = pass->here;
    const int64_t n = pass->lm->spec.width, batch = pass->segment[segment].batch;
    ct_tensor pool = pass->cache ? pass->cache->layer[layer].weight : CT_NONE;
    ct_tensor state = row_of(state_before(pass, segment, pool, CT_DIMS(5, n)), row, here);
    if (row != NUMERATOR + 2) return state;
    ct_tensor least = ct_full_at(ct_scalar(-1e38, CT_F32), CT_DIMS(batch, 1, n), here);
    if (!pool.bits) return least;
    ct_tensor at = ct_reshape_at(pass->segment[segment].position, CT_DIMS(-1, 1, 1), here);
    return ct_select_at(ct_greater_at(at, ct_i(0), here), state, least, here);
}

typedef struct mixed_texts { // of one segment
    ct_tensor shift[2];      // (B, 1, n): what the next token will find
    ct_tensor weighed[3];    // (B, n)
} mixed_texts;

static ct_tensor time_mixing(ct_lm_pass *pass, int64_t layer, ct_tensor x, mixed_texts left[2]) {
    const ct_weight_pair *w = pass->lm->layer[layer];
    const ct_loc here = pass->here;
    ct_tensor before[2], part[2];
    for (int i = 0; i < pass->segments; i++)
        before[i] = token_before(pass, i, texts_of(pass, i, x),
                                 rwkv_state(pass, i, layer, SHIFT_TIME), &left[i].shift[0]);
    ct_tensor old = rows_again(pass, before);
    ct_tensor k = ct__stack_linear(pass, &w[CT_NAME_k], mix(pass, layer, CT_NAME_mix_k, x, old));
    ct_tensor v = ct__stack_linear(pass, &w[CT_NAME_v], mix(pass, layer, CT_NAME_mix_v, x, old));
    ct_tensor r = ct__stack_linear(pass, &w[CT_NAME_r], mix(pass, layer, CT_NAME_mix_r, x, old));
    ct_tensor decay = ct__stack_numbers(w[CT_NAME_decay].weight, here);
    rwkv_user user = {here, ct_neg_at(ct_exp_at(decay, here), here),
                      ct__stack_numbers(w[CT_NAME_bonus].weight, here)};
    for (int i = 0; i < pass->segments; i++) {
        for (int j = 0; j < 3; j++) {
            ct_tensor row = rwkv_state(pass, i, layer, NUMERATOR + j);
            left[i].weighed[j] = ct_reshape_at(row, CT_DIMS(-1, pass->lm->spec.width), here);
        }
        const ct_tensor xs[2] = {texts_of(pass, i, k), texts_of(pass, i, v)};
        part[i] = over_time(pass, rwkv_body, &user, left[i].weighed, 3, xs, 2);
    }
    ct_tensor y = ct_mul_at(ct_sigmoid_at(r, here), rows_again(pass, part), here);
    return ct__stack_linear(pass, &w[CT_NAME_o], y);
}

static ct_tensor channel_mixing(ct_lm_pass *pass, int64_t layer, ct_tensor x, mixed_texts left[2]) {
    const ct_weight_pair *w = pass->lm->layer[layer];
    const ct_loc here = pass->here;
    ct_tensor before[2];
    for (int i = 0; i < pass->segments; i++)
        before[i] = token_before(pass, i, texts_of(pass, i, x),
                                 rwkv_state(pass, i, layer, SHIFT_CHANNEL), &left[i].shift[1]);
    ct_tensor old = rows_again(pass, before);
    ct_tensor k =
        ct__stack_linear(pass, &w[CT_NAME_up], mix(pass, layer, CT_NAME_mlp_mix_k, x, old));
    ct_tensor r =
        ct__stack_linear(pass, &w[CT_NAME_mlp_r], mix(pass, layer, CT_NAME_mlp_mix_r, x, old));
    k = ct__stack_linear(pass, &w[CT_NAME_down], ct_square_at(ct_relu_at(k, here), here));
    return ct_mul_at(ct_sigmoid_at(r, here), k, here);
}

static void keep_rwkv(const ct_lm_pass *pass, int64_t layer, const mixed_texts left[2]) {
    const ct_loc here = pass->here;
    ct_tensor pool = pass->cache->layer[layer].weight, now = CT_NONE;
    for (int i = 0; i < pass->segments; i++) {
        ct_tensor row[5] = {left[i].shift[0], left[i].shift[1]};
        for (int j = 0; j < 3; j++) // (B, 1, n)
            row[NUMERATOR + j] =
                ct_reshape_at(left[i].weighed[j], CT_DIMS(-1, 1, pass->lm->spec.width), here);
        now = state_after(pass, i, pool, now, ct_concat_at(row, 5, 1, here));
    }
    ct_assign_at(pool, now, here);
}

ct_tensor ct__stack_rwkv(ct_lm_pass *pass, int64_t layer, ct_tensor x) {
    const ct_weight_pair *w = pass->lm->layer[layer];
    mixed_texts left[2];
    x = ct__stack_norm(pass, &w[CT_NAME_first_norm], x);
    x = ct_add_at(x, time_mixing(pass, layer, ct__stack_norm(pass, &w[CT_NAME_attn_norm], x), left),
                  pass->here);
    x = ct_add_at(x,
                  channel_mixing(pass, layer, ct__stack_norm(pass, &w[CT_NAME_mlp_norm], x), left),
                  pass->here);
    if (pass->cache) keep_rwkv(pass, layer, left);
    return x;
}
