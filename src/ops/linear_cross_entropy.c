// The cross-entropy of a linear layer's classes, without the logits of all rows: blocks of rows compute their
// logits and gradients one after the other, in the same memory.
//
// The op is a sum over rows, each with a coefficient, and its gradients are computed together with it: the
// logits of a block are computed once, and become softmax minus one-hot in place. A caller that uses the sum
// only does not pay for the gradients, since a loop computes only the results that are used. (Hsu et al.,
// "Liger Kernel", 2024, section 3.2.)
#include <math.h>

#include "ops/rules.h"

// Rows of a block: as many as a chunk of a dot product, so that the weight's gradient is the same chain of
// additions as without blocks; for many rows an eighth of them, since each block reads all weights.
enum { MIN_ROWS = 256, MAX_ROWS = 1024 };

static int64_t lce_block_rows(int64_t rows) {
    if (ct__marked(rows)) return MIN_ROWS;
    if (rows <= MIN_ROWS) return rows;
    const int64_t eighth = rows / 8 / MIN_ROWS * MIN_ROWS;
    return eighth < MIN_ROWS ? MIN_ROWS : eighth > MAX_ROWS ? MAX_ROWS : eighth;
}

// ------------------------------------------------------------------------- linear_cross_entropy_sum

#define LINEAR_CROSS_ENTROPY_SUM_ATTRS(F, op) F(op, num, smoothing) F(op, num, softcap)
CT_ATTRS(linear_cross_entropy_sum, LINEAR_CROSS_ENTROPY_SUM_ATTRS);
enum { X, WEIGHT, TARGETS, FACTORS, BIAS };                    // operands
enum { SUM, ROWS, X_GRAD, WEIGHT_GRAD, BIAS_GRAD, N_OUTPUTS }; // outputs

// x (N, D), weight (V, D), targets (N), factors (N), optional bias (V) -> the sum (), the rows (N), and the
// gradients of the sum with respect to x, weight and bias.
static bool linear_cross_entropy_sum_infer(ct_call *call) {
    const ct_type *factors = call->in[FACTORS], *weight = call->in[WEIGHT];
    ct_shape bias = ct__call_shape(call, 1);
    if (!bias.dim) return false;
    ct__shape_add_axis(&bias, weight, 0);
    call->out[SUM] = (ct_type){.dtype = factors->dtype};
    call->out[ROWS] = *factors;
    call->out[X_GRAD] = *call->in[X];
    call->out[WEIGHT_GRAD] = *weight;
    call->out[BIAS_GRAD] = ct__shaped(&bias, (ct_dtype)weight->dtype, false);
    return true;
}

typedef struct lce_loss {
    const linear_cross_entropy_sum_attrs *attrs;
    ct_tensor weight, bias; // (V, D), (V) or CT_NONE
} lce_loss;

static ct_ints lce_last_axis(int64_t *last, ct_tensor t) {
    *last = ct__type_of(t)->rank - 1;
    return (ct_ints){1, last};
}

// For a block of rows, x (R, D), targets (R), factors (R), computes out[ROWS] and the gradients.
static void lce_block(const lce_loss *l, ct_tensor x, ct_tensor targets, ct_tensor factors,
                      ct_tensor out[N_OUTPUTS]) {
    const double cap = l->attrs->softcap.value, smoothing = l->attrs->smoothing.value;
    ct_tensor z = ct_matmul(x, ct__swap_last(l->weight)), cap_slope = CT_NONE; // (R, V)
    if (!ct__is_none(l->bias)) z = ct_add(z, l->bias);
    if (cap > 0) {
        ct_tensor limit = ct__number_like(cap, z), tanh_z = ct_tanh(ct_div(z, limit));
        z = ct_mul(tanh_z, limit);
        cap_slope = ct_sub(ct_f(1), ct_mul(tanh_z, tanh_z));
    }
    int64_t last;
    const ct_ints axes = lce_last_axis(&last, z);
    ct_tensor max_logit = ct_stop_gradient(ct_max(z, .axes = axes, .keepdims = true)); // (R, 1)
    ct_tensor sum = ct_sum(ct_exp(ct_sub(z, max_logit)), .axes = axes, .keepdims = true);
    ct_tensor log = ct_add(ct_log(sum), max_logit); // (R, 1)
    ct_tensor target_logit = ct__add_last(ct_gather(z, targets, .axis = last, .batch_dims = last));
    ct_tensor expected = target_logit; // (R, 1)
    ct_tensor shared = ct__number_like(smoothing, z), own = ct__number_like(1 - smoothing, z);
    if (smoothing > 0)
        expected = ct_add(ct_mul(own, target_logit),
                          ct_mul(shared, ct_mean(z, .axes = axes, .keepdims = true)));
    out[ROWS] = ct__of_type(ct_sub(log, expected), ct__type_of(factors));

    ct_tensor f = ct__add_last(factors), zero = ct_f(0), class_index;
    const int64_t classes = ct__size_like(l->weight, 0);
    class_index = ct_iota(CT_I32, ((ct_ints){1, &classes}), 0);
    ct_tensor is_target = ct_equal(class_index, ct__add_last(targets)), target_factor = f;
    ct_tensor p = ct_mul(ct_exp(ct_sub(z, log)), f);
    if (smoothing > 0) {
        ct_tensor count = ct__size_number(classes, (ct_dtype)ct__type_of(z)->dtype);
        p = ct_sub(p, ct_div(ct_mul(f, shared), count));
        target_factor = ct_mul(f, own);
    }
    p = ct_sub(p, ct_select(is_target, target_factor, zero));
    if (cap > 0) p = ct_mul(p, cap_slope);
    out[X_GRAD] = ct_matmul(p, l->weight);
    out[WEIGHT_GRAD] = ct_matmul(ct__swap_last(p), x);
    out[BIAS_GRAD] = ct_sum(p, .axes = CT_AXES(0));
}

// Carry: the gradients of the weight and the bias so far. xs: x, targets, factors of a block.
static void lce_loop_body(const ct_tensor *in, ct_tensor *out, void *user) {
    ct_tensor grads[N_OUTPUTS];
    lce_block(user, in[2], in[3], in[4], grads);
    out[0] = ct_add(in[0], grads[WEIGHT_GRAD]);
    out[1] = ct_add(in[1], grads[BIAS_GRAD]);
    out[2] = grads[ROWS];
    out[3] = grads[X_GRAD];
}

// Reshapes (N, ...) to (blocks, rows, ...), padded with zeros.
static ct_tensor lce_split_blocks(ct_tensor t, int64_t blocks, int64_t rows) {
    const ct_type *type = ct__type_of(t);
    const int64_t n = ct__size_of(type, 0);
    int64_t high[2] = {ct__size_sub(ct__size_mul(blocks, rows), n), 0}, dims[3] = {blocks, rows};
    const int rank = type->rank;
    if (rank == 2) dims[2] = ct__size_of(type, 1);
    if (high[0]) t = ct_pad(t, ct__number_like(0, t), .high = {rank, high});
    return ct_reshape(t, ((ct_ints){rank + 1, dims}));
}
// Reshapes (blocks, rows, ...) to the first rows, in the shape of a type.
static ct_tensor lce_merge_blocks(ct_tensor t, const ct_type *type) {
    const ct_type *own = ct__type_of(t);
    int64_t dims[2] = {ct__size_mul(ct__size_of(own, 0), ct__size_of(own, 1))}, stop[2], axis = 0;
    if (own->rank == 3) dims[1] = ct__size_of(own, 2);
    stop[0] = ct__size_of(type, 0);
    t = ct_reshape(t, ((ct_ints){own->rank - 1, dims}));
    return ct_slice(t, .axes = {1, &axis}, .stop = {1, stop});
}

static bool linear_cross_entropy_sum_body(ct_rule *r) {
    lce_loss l = {r->attrs, r->in[WEIGHT], r->n_in > BIAS ? r->in[BIAS] : CT_NONE};
    ct_tensor x = r->in[X], targets = r->in[TARGETS], factors = r->in[FACTORS], *out = r->body_out;
    const int64_t n = ct__size_like(x, 0), rows = lce_block_rows(n);
    if (n == rows) {
        lce_block(&l, x, targets, factors, out);
    } else {
        const int64_t blocks = ct__size_div_up(n, rows), classes = ct__size_like(l.weight, 0);
        const ct_dtype dtype = (ct_dtype)ct__type_of(l.weight)->dtype;
        const ct_tensor xs[3] = {lce_split_blocks(x, blocks, rows),
                                 lce_split_blocks(targets, blocks, rows),
                                 lce_split_blocks(factors, blocks, rows)};
        const ct_tensor carry[2] = {ct__zeros_like(l.weight), ct_zeros(dtype, CT_DIMS(classes))};
        ct_tensor ys[2];
        ct_scan_with((ct_scan_args){.body = lce_loop_body,
                                    .user = &l,
                                    .carry = carry,
                                    .n_carry = 2,
                                    .xs = xs,
                                    .n_xs = 3,
                                    .n_ys = 2,
                                    .here = r->node->here},
                     &out[WEIGHT_GRAD], ys);
        out[ROWS] = lce_merge_blocks(ys[0], ct__type_of(factors));
        out[X_GRAD] = lce_merge_blocks(ys[1], ct__type_of(x));
    }
    // A row with factor 0 may have a target that is no class.
    ct_tensor none = ct__number_like(0, factors);
    out[SUM] = ct_sum(ct_select(ct_equal(factors, none), none, ct_mul(out[ROWS], factors)));
    return true;
}

// The gradients as a function of x, weight, factors and bias, for second-order gradients: computes all rows
// at once.
static void lce_gradients(const ct_tensor *in, ct_tensor *out, void *user) {
    const ct_rule *r = user;
    const lce_loss l = {r->attrs, in[1], r->n_in > BIAS ? in[3] : CT_NONE};
    ct_tensor grads[N_OUTPUTS];
    lce_block(&l, in[0], r->in[TARGETS], in[2], grads);
    for (int i = 0; i < 3; i++) out[i] = grads[X_GRAD + i];
}
static void lce_add_second_order(ct_rule *r) {
    static const int of[4] = {X, WEIGHT, FACTORS, BIAS};
    const int n = r->n_in - 1; // all but the targets
    ct_tensor in[4], value[3], cotangent[3], grad[4];
    bool any = false;
    for (int i = 0; i < 3; i++) {
        any = any || !ct__is_none(r->c_out[X_GRAD + i]);
        cotangent[i] = ct__or_zeros(r->c_out[X_GRAD + i], r->out[X_GRAD + i]);
    }
    if (!any) return;
    for (int i = 0; i < n; i++) in[i] = r->in[of[i]];
    ct_vjp_at(lce_gradients, r, in, (size_t)n, value, 3, cotangent, grad, r->node->here);
    for (int i = 0; i < n; i++) r->c_in[of[i]] = ct__add_zero(r->c_in[of[i]], grad[i]);
}

static bool linear_cross_entropy_sum_vjp(ct_rule *r) {
    static const int of[3] = {X, WEIGHT, BIAS};
    const int n = r->n_in > BIAS ? 3 : 2;
    const ct_tensor c = r->c_out[SUM], c_rows = r->c_out[ROWS];
    for (int i = 0; i < n && !ct__is_none(c); i++) r->c_in[of[i]] = ct_mul(r->out[X_GRAD + i], c);
    if (!ct__is_none(c)) r->c_in[FACTORS] = ct_mul(r->out[ROWS], c);
    if (!ct__is_none(c_rows)) { // factors that are only known here: records all blocks again
        ct_tensor in[5], again;
        for (int i = 0; i < r->n_in; i++) in[i] = i == FACTORS ? c_rows : r->in[i];
        again = ct__record(r->node->op, r->attrs, in, r->n_in, r->node->here);
        for (int i = 0; i < n; i++)
            r->c_in[of[i]] =
                ct__add_zero(r->c_in[of[i]], ct__output(again, (uint32_t)(X_GRAD + i)));
    }
    lce_add_second_order(r);
    return true;
}
const ct_opdef ct__op_linear_cross_entropy_sum = {
    CT_COMPOSED(LINEAR_CROSS_ENTROPY_SUM, linear_cross_entropy_sum, -1, N_OUTPUTS),
    .doc = "The sum over rows of factor * cross-entropy of a linear layer's classes, the rows' "
           "cross-entropies, and the sum's gradients.",
    CT_FIELDS(linear_cross_entropy_sum),
    .accepts = CT_FLOATS,
    .widens = true,
    .vjp = linear_cross_entropy_sum_vjp,
    .samples = {.ulp = 8},
};

// ----------------------------------------------------------------------------- linear_cross_entropy

#define LINEAR_CROSS_ENTROPY_ATTRS(F, op)                                                          \
    F(op, bool, per_row) F(op, num, smoothing) F(op, num, softcap) F(op, i64, present)
CT_ATTRS(linear_cross_entropy, LINEAR_CROSS_ENTROPY_ATTRS);
enum { HAS_ROW_WEIGHTS = 1, HAS_BIAS = 2 };

static bool lce_check_number(ct_call *call, const char *name, ct_num number, double below) {
    if (!ct__num_given(number) || (number.value >= 0 && number.value < below)) return true;
    return ct__call_err(call, CT_E_ARGUMENT, "%s is %g, it must be %s", name, number.value,
                        below == 1 ? "at least 0 and below 1" : "0 (none) or more");
}

// Checks the shapes of the optional operands; rows have the shape of targets.
static bool lce_check_optional(ct_call *call, const linear_cross_entropy_attrs *attrs) {
    const ct_type *weight = call->in[1], *targets = call->in[2];
    int next = 3;
    if (attrs->present & HAS_ROW_WEIGHTS) {
        const ct_type *given = call->in[next++];
        if (!ct__check_accepts(call, next - 1)) return false;
        if (!ct__same_shape(given, targets))
            return ct__call_err(call, CT_E_SHAPE,
                                "the row weights are %s, for targets %s there must be one a row",
                                ct__type_text(given).s, ct__type_text(targets).s);
    }
    if (attrs->present & HAS_BIAS) {
        const ct_type *bias = call->in[next];
        if (bias->dtype != weight->dtype || bias->rank != 1 || bias->dim[0] != weight->dim[0])
            return ct__call_err(call, CT_E_SHAPE,
                                "the bias is %s, for a weight %s it must have one element a class",
                                ct__type_text(bias).s, ct__type_text(weight).s);
    }
    return lce_check_number(call, "smoothing", attrs->smoothing, 1) &&
           lce_check_number(call, "softcap", attrs->softcap, INFINITY);
}

// Losses are f32 if x is a narrower float.
static ct_dtype lce_loss_dtype(ct_dtype x) { return ct__is_narrow_float(x) ? CT_F32 : x; }

static bool linear_cross_entropy_infer(ct_call *call) {
    const linear_cross_entropy_attrs *attrs = call->attrs;
    const ct_type *x = call->in[0], *weight = call->in[1], *targets = call->in[2];
    if (!ct__check_accepts(call, 0) || !ct__check_accepts(call, 1) ||
        !ct__check_integers(call, 2, "the targets"))
        return false;
    if (x->dtype != weight->dtype)
        return ct__call_err(call, CT_E_DTYPE, "dtypes differ: x is %s, the weight is %s",
                            ct__type_text(x).s, ct__type_text(weight).s) ||
               ct__hint_cast(call, "weight", (ct_dtype)x->dtype);
    if (x->rank < 1 || weight->rank != 2 || x->dim[x->rank - 1] != weight->dim[1])
        return ct__call_err(call, CT_E_SHAPE,
                            "shapes do not fit (..., D), (V, D): x is %s, the weight is %s",
                            ct__type_text(x).s, ct__type_text(weight).s) ||
               ct__call_hint(
                   call,
                   "a row of the weight is a class, as a linear layer and an embedding have it");
    bool fits = targets->rank == x->rank - 1;
    for (int a = 0; fits && a < targets->rank; a++) fits = x->dim[a] == targets->dim[a];
    if (!fits)
        return ct__call_err(call, CT_E_SHAPE,
                            "the targets are %s, for x %s they must have all axes but the last",
                            ct__type_text(targets).s, ct__type_text(x).s);
    if (!lce_check_optional(call, attrs)) return false;
    ct_shape rows = ct__call_shape(call, targets->rank);
    if (!rows.dim) return false;
    for (int a = 0; a < targets->rank; a++) ct__shape_add(&rows, ct__same_size(targets, a, x, a));
    (void)ct__same_size(x, x->rank - 1, weight, 1);
    const ct_dtype dtype = lce_loss_dtype((ct_dtype)x->dtype);
    *call->out =
        attrs->per_row ? ct__shaped(&rows, dtype, false) : (ct_type){.dtype = (uint8_t)dtype};
    return true;
}

static bool linear_cross_entropy_body(ct_rule *r) {
    const linear_cross_entropy_attrs *attrs = r->attrs;
    ct_tensor x = r->in[0], targets = r->in[2], weights = CT_NONE, factors;
    const ct_type *type = ct__type_of(x);
    const ct_dtype dtype = lce_loss_dtype((ct_dtype)type->dtype);
    int64_t n = 1;
    for (int a = 0; a < type->rank - 1; a++) n = ct__size_mul(n, ct__size_of(type, a));
    if (attrs->present & HAS_ROW_WEIGHTS)
        weights = ct_cast(ct_reshape(r->in[3], CT_DIMS(n)), dtype);
    factors = ct__is_none(weights) ? ct_ones(dtype, CT_DIMS(n)) : weights;
    if (!attrs->per_row)
        factors =
            ct_div(factors, ct__is_none(weights) ? ct__size_number(n, dtype) : ct_sum(weights));
    const linear_cross_entropy_sum_attrs sum = {attrs->smoothing, attrs->softcap};
    const bool biased = attrs->present & HAS_BIAS;
    const ct_tensor in[5] = {ct_reshape(x, CT_DIMS(n, ct__size_of(type, type->rank - 1))), r->in[1],
                             ct_reshape(targets, CT_DIMS(n)), factors,
                             biased ? r->in[r->n_in - 1] : CT_NONE};
    ct_tensor sum_out =
        ct__record(&ct__op_linear_cross_entropy_sum, &sum, in, 4 + biased, r->node->here);
    if (!attrs->per_row) {
        r->body_out[0] = sum_out;
        return true;
    }
    ct_tensor rows = ct__output(sum_out, ROWS), none = ct__number_like(0, factors);
    if (!ct__is_none(weights))
        rows = ct_select(ct_equal(weights, none), none, ct_mul(rows, weights));
    return ct__set_body(r, ct__of_type(rows, r->node->out));
}
const ct_opdef ct__op_linear_cross_entropy = {
    CT_COMPOSED(LINEAR_CROSS_ENTROPY, linear_cross_entropy, -1, 1),
    .doc = "The mean over rows of the cross-entropy of logits x weight^T + bias, as "
           "ct_cross_entropy has it, "
           "without the logits of all rows: x (..., D), weight (V, D), integer targets (...), bias "
           "(V). Blocks "
           "of 256 to 1,024 rows make theirs one after the other, and the gradients with them. "
           "row_weights "
           "(...): a weighted mean; a row of weight 0 does not count, whatever its target is. "
           "per_row: (...), "
           "not averaged, times the row's weight; its gradient makes the blocks' logits once more. "
           "smoothing: "
           "how much of the target all classes share alike. softcap: logits are c tanh(logits / "
           "c). Losses of "
           "16-bit floats are f32. A target outside 0 to V - 1 gives NaN.",
    CT_FIELDS(linear_cross_entropy),
    .accepts = CT_FLOATS,
    .samples = {.ulp = 8},
};
