// Reductions over axes: means, softmax and its relatives, norms, cross-entropy. Each is written so that
// all of it is computed over one row: a fusing compiler makes it one kernel.
#include <math.h>

#include "ops/attention.h"
#include "ops/functions.h"

static ct_tensor stats_sum(ct_tensor x, const ct_ints *axes) { // keeps the axes with size 1
    return ct_sum(x, .axes = *axes, .keepdims = true);
}
static ct_tensor stats_count(ct_tensor x, const ct_ints *axes) {
    return ct__count_along(x, axes->v, (int)axes->n);
}

// ----------------------------------------------------------------------------------------- moments

#define MEAN_ATTRS(F, op) F(op, axes, axes) F(op, bool, keepdims)
#define VAR_ATTRS(F, op) F(op, axes, axes) F(op, bool, keepdims) F(op, i64, correction)
CT_ATTRS(mean, MEAN_ATTRS);
CT_ATTRS(var, VAR_ATTRS);

static bool mean_body(ct_rule *r) {
    const mean_attrs *attrs = r->attrs;
    ct_tensor sum = ct_sum(r->in[0], .axes = attrs->axes, .keepdims = attrs->keepdims);
    return ct__set_body(r, attrs->axes.n ? ct_div(sum, stats_count(r->in[0], &attrs->axes)) : sum);
}
const ct_opdef ct__op_mean = {
    STATISTIC(MEAN, mean, ct__infer_reduce),
    .doc = "The mean over axes (default: all); NaN of nothing.",
    .accepts = CT_FLOATS | CT_COMPLEX,
    .onnx = "ReduceMean",
};

static bool var_body(ct_rule *r) {
    const var_attrs *attrs = r->attrs;
    ct_tensor x = r->in[0], count = stats_count(x, &attrs->axes);
    ct_tensor mean = attrs->axes.n ? ct_div(stats_sum(x, &attrs->axes), count) : x;
    ct_tensor d = ct_sub(x, mean), square = ct_mul(d, d);
    if (attrs->axes.n) square = ct_sum(square, .axes = attrs->axes, .keepdims = attrs->keepdims);
    if (attrs->correction) {
        count = ct_sub(count, ct__number_like((double)attrs->correction, x));
        count = ct_maximum(count, ct__number_like(0, x));
    }
    return ct__set_body(r, ct_div(square, count));
}
const ct_opdef ct__op_var = {
    STATISTIC(VAR, var, ct__infer_reduce),
    .doc = "The variance over axes (default: all): the mean squared distance from the mean; the "
           "divisor is the count less `correction`, 0 at least: then infinity, or NaN of equals.",
    .accepts = CT_FLOATS,
};

CT_ATTRS(any, MEAN_ATTRS);
CT_ATTRS(all, MEAN_ATTRS);
// Where the largest of the bools, or with `every` the smallest, is true. Both ops have one layout.
static bool any_or_all_body(ct_rule *r, bool every) {
    const any_attrs *attrs = r->attrs;
    ct_tensor bits = ct_cast(r->in[0], CT_I32);
    if (attrs->axes.n)
        bits = every ? ct_min(bits, .axes = attrs->axes, .keepdims = attrs->keepdims)
                     : ct_max(bits, .axes = attrs->axes, .keepdims = attrs->keepdims);
    return ct__set_body(r, ct_greater(bits, ct_i(0)));
}
static bool any_body(ct_rule *r) { return any_or_all_body(r, false); }
const ct_opdef ct__op_any = {
    STATISTIC(ANY, any, ct__infer_reduce),
    .doc = "Does x (bool) hold anywhere over axes (default: all)? False of nothing.",
    .accepts = CT_MASK(CT_BOOL),
    .jvp = CT_NO_GRAD,
};
static bool all_body(ct_rule *r) { return any_or_all_body(r, true); }
const ct_opdef ct__op_all = {
    STATISTIC(ALL, all, ct__infer_reduce),
    .doc = "Does x (bool) hold everywhere over axes (default: all)? True of nothing.",
    .accepts = CT_MASK(CT_BOOL),
    .jvp = CT_NO_GRAD,
};

// ------------------------------------------------------------------------ softmax and its relatives

#define SOFTMAX_ATTRS(F, op) F(op, axes, axes) F(op, bool, masked_zero)
#define LOG_SOFTMAX_ATTRS(F, op) F(op, axes, axes)
CT_ATTRS(softmax, SOFTMAX_ATTRS);
CT_ATTRS(log_softmax, LOG_SOFTMAX_ATTRS);
CT_ATTRS(logsumexp, MEAN_ATTRS);

static bool softmax_infer(ct_call *call) { // no axes: the last one
    softmax_attrs *attrs = call->attrs;
    const ct_type *in = call->in[0];
    int64_t last = -1;
    if (!ct__check_accepts(call, 0)) return false;
    if (in->rank == 0)
        return ct__call_err(call, CT_E_SHAPE, "x is %s, it needs an axis", ct__type_text(in).s);
    if (attrs->axes.n == 0) attrs->axes = (ct_ints){1, &last};
    *call->out = *in;
    return ct__normal_axes(call, &attrs->axes, in->rank);
}

// Subtracts the largest element along axes, so that exp stays in range. It cancels in the result, so it
// has no gradient.
static ct_tensor softmax_shift(ct_tensor x, const ct_ints *axes) {
    return ct_sub(x, ct_stop_gradient(ct_max(x, .axes = *axes, .keepdims = true)));
}

// exp(x) divided by its sum; a row of only -infinity gives 0 / 1.
static ct_tensor softmax_masked_zero(ct_tensor x, const ct_ints *axes) {
    ct_tensor largest = ct_max(x, .axes = *axes, .keepdims = true), zero = ct__number_like(0, x);
    ct_tensor none = ct_equal(largest, ct__number_like(-(double)INFINITY, x));
    ct_tensor e = ct_exp(ct_sub(x, ct_stop_gradient(ct_select(none, zero, largest))));
    return ct_div(e, ct_select(none, ct__number_like(1, x), stats_sum(e, axes)));
}
static bool softmax_body(ct_rule *r) {
    const softmax_attrs *attrs = r->attrs;
    if (attrs->masked_zero) {
        r->body_out[0] = softmax_masked_zero(r->in[0], &attrs->axes);
        return true;
    }
    ct_tensor e = ct_exp(softmax_shift(r->in[0], &attrs->axes));
    return ct__set_body(r, ct_div(e, stats_sum(e, &attrs->axes)));
}
static bool softmax_vjp(ct_rule *r) { // y (c - sum(c y))
    const softmax_attrs *attrs = r->attrs;
    if (ct__is_none(r->c_out[0])) return true;
    ct_tensor cy = ct_mul(r->c_out[0], r->out[0]);
    return ct__set_cotangent(r, ct_sub(cy, ct_mul(r->out[0], stats_sum(cy, &attrs->axes))));
}
bool ct__is_softmax_of_last(const ct_node *node, bool *masked_zero) {
    if (node->op != &ct__op_softmax) return false;
    const softmax_attrs *attrs = node->attrs;
    *masked_zero = attrs->masked_zero;
    return attrs->axes.n == 1 && attrs->axes.v[0] == node->out->rank - 1;
}
const ct_opdef ct__op_softmax = {
    STATISTIC(SOFTMAX, softmax, softmax_infer),
    .doc = "exp(x) divided by its sum over axes (default: the last). Where all of them are "
           "-infinity: NaN, or, with masked_zero, zeros.",
    .accepts = CT_FLOATS,
    .vjp = softmax_vjp,
    .onnx = "Softmax",
    .samples = {.ulp = 8},
    .autocast = CT_CAST_F32,
};

static bool log_softmax_body(ct_rule *r) {
    const log_softmax_attrs *attrs = r->attrs;
    ct_tensor z = softmax_shift(r->in[0], &attrs->axes);
    return ct__set_body(r, ct_sub(z, ct_log(stats_sum(ct_exp(z), &attrs->axes))));
}
static bool log_softmax_vjp(ct_rule *r) { // c - exp(y) sum(c)
    const log_softmax_attrs *attrs = r->attrs;
    ct_tensor c = r->c_out[0];
    if (ct__is_none(c)) return true;
    return ct__set_cotangent(r, ct_sub(c, ct_mul(ct_exp(r->out[0]), stats_sum(c, &attrs->axes))));
}
const ct_opdef ct__op_log_softmax = {
    STATISTIC(LOG_SOFTMAX, log_softmax, softmax_infer),
    .doc = "The logarithm of softmax over axes (default: the last).",
    .accepts = CT_FLOATS,
    .vjp = log_softmax_vjp,
    .onnx = "LogSoftmax",
    .samples = {.ulp = 8},
    .autocast = CT_CAST_F32,
};

static bool logsumexp_body(ct_rule *r) {
    const logsumexp_attrs *attrs = r->attrs;
    ct_tensor x = r->in[0], largest = x;
    if (attrs->axes.n) largest = ct_max(x, .axes = attrs->axes, .keepdims = true);
    largest = ct_stop_gradient(largest); // infinity minus itself would be NaN
    largest = ct_select(ct_is_finite(largest), largest, ct_f(0));
    ct_tensor e = ct_exp(ct_sub(x, largest));
    ct_tensor sum = attrs->axes.n ? stats_sum(e, &attrs->axes) : e;
    return ct__set_body(r, ct__of_type(ct_add(ct_log(sum), largest), r->node->out));
}
const ct_opdef ct__op_logsumexp = {
    STATISTIC(LOGSUMEXP, logsumexp, ct__infer_reduce),
    .doc = "The logarithm of the sum of exp(x) over axes (default: all), without overflow.",
    .accepts = CT_FLOATS,
    .onnx = "ReduceLogSumExp",
    .samples = {.ulp = 8},
    .autocast = CT_CAST_F32,
};

// ----------------------------------------------------------------------------------- cross-entropy

#define CROSS_ENTROPY_ATTRS(F, op) F(op, bool, per_row)
CT_ATTRS(cross_entropy, CROSS_ENTROPY_ATTRS);

// The second output, log(sum(exp(logits))) of each row, is all that the gradient needs of the forward
// pass: with it, softmax is one exp per element.
static bool cross_entropy_infer(ct_call *call) {
    const cross_entropy_attrs *attrs = call->attrs;
    const ct_type *logits = call->in[0], *targets = call->in[1];
    if (!ct__check_accepts(call, 0)) return false;
    if (!ct__check_integers(call, 1, "the targets")) return false;
    bool fits = logits->rank == targets->rank + 1;
    for (int a = 0; fits && a < targets->rank; a++) fits = logits->dim[a] == targets->dim[a];
    if (!fits)
        return ct__call_err(
                   call, CT_E_SHAPE,
                   "the targets are %s, for logits %s they must have all axes but the last",
                   ct__type_text(targets).s, ct__type_text(logits).s) ||
               ct__call_hint(call,
                             targets->rank == logits->rank
                                 ? "targets are numbers of classes: of one-hot rows "
                                   "ct_argmax(targets, .axis = -1)"
                                 : "targets hold the number of a class for each row of logits");
    ct_shape rows = ct__call_shape(call, targets->rank);
    if (!rows.dim) return false;
    for (int a = 0; a < targets->rank; a++)
        ct__shape_add(&rows, ct__same_size(targets, a, logits, a));
    call->out[1] = ct__shaped(&rows, logits->dtype, false);
    call->out[0] = attrs->per_row ? call->out[1] : (ct_type){.dtype = logits->dtype};
    return true;
}
static bool cross_entropy_body(ct_rule *r) {
    const cross_entropy_attrs *attrs = r->attrs;
    ct_tensor x = r->in[0]; // (..., V)
    int64_t last = ct__type_of(x)->rank - 1;
    ct_ints axes = {1, &last};
    ct_tensor largest = ct_stop_gradient(ct_max(x, .axes = axes, .keepdims = true)); // (..., 1)
    ct_tensor log = ct_log(stats_sum(ct_exp(ct_sub(x, largest)), &axes));
    ct_tensor target = ct_gather(x, r->in[1], .axis = last, .batch_dims = last); // (...)
    ct_tensor rows = ct_sub(log, ct_sub(ct__add_last(target), largest));
    r->body_out[1] = ct__of_type(ct_add(log, largest), &r->node->out[1]);
    rows = ct__of_type(rows, &r->node->out[1]);
    return ct__set_body(r, attrs->per_row ? rows
                                          : ct_div(ct_sum(rows), ct__count_along(rows, NULL, -1)));
}
// For each row: (softmax - one-hot of the target) c, and softmax times the cotangent of log-sum-exp.
static bool cross_entropy_vjp(ct_rule *r) {
    const cross_entropy_attrs *attrs = r->attrs;
    ct_tensor x = r->in[0], c = r->c_out[0], c_sum = r->c_out[1];
    if (ct__is_none(c) && ct__is_none(c_sum)) return true;
    if (!ct__is_none(c))
        c = attrs->per_row ? ct__add_last(c) : ct_div(c, ct__count_along(r->out[1], NULL, -1));
    if (!ct__is_none(c_sum)) c_sum = ct__add_last(c_sum);
    ct_tensor p = ct_exp(ct_sub(x, ct__add_last(r->out[1])));
    p = ct_mul(p, ct__add_zero(c, c_sum));
    if (!ct__is_none(c)) {
        const ct_type *type = ct__type_of(x);
        int last = type->rank - 1;
        int64_t classes = ct__size_of(type, last);
        ct_tensor class_index = ct_iota(CT_I32, ((ct_ints){1, &classes}), 0);
        p = ct_sub(p, ct_select(ct_equal(class_index, ct__add_last(r->in[1])), c, ct_f(0)));
    }
    return ct__set_cotangent(r, p);
}
// The batch is one more axis of rows; the mean is computed afterwards, over the other axes.
static bool cross_entropy_batch(ct_batching *b) {
    cross_entropy_attrs attrs = *(const cross_entropy_attrs *)b->attrs;
    const ct_tensor in[2] = {ct__batch_operand(b, 0), ct__batch_operand(b, 1)};
    const bool mean = !attrs.per_row;
    int64_t axes[CT_MAX_RANK], n = b->node->out[1].rank;
    attrs.per_row = true;
    if (!ct__batch_record(b, &attrs, in)) return false;
    for (int64_t a = 0; a < n; a++) axes[a] = a + 1;
    if (mean && n) b->out[0] = ct_mean(b->out[0], .axes = {n, axes});
    return true;
}
const ct_opdef ct__op_cross_entropy = {
    CT_COMPOSED(CROSS_ENTROPY, cross_entropy, 2, 2),
    .doc = "The mean over rows of -log(softmax(logits))[target]: logits (..., V), integer targets "
           "(...); per_row: not averaged. A target outside 0 to V - 1 gives NaN.",
    CT_FIELDS(cross_entropy),
    .accepts = CT_FLOATS,
    .batch = cross_entropy_batch,
    .widens = true,
    .vjp = cross_entropy_vjp,
    .samples = {.ulp = 8},
    .autocast = CT_CAST_F32,
};

// ------------------------------------------------------------------------ norms over the last axis

#define LAYER_NORM_ATTRS(F, op) F(op, num, eps) F(op, i64, present)
CT_ATTRS(layer_norm, LAYER_NORM_ATTRS);
CT_ATTRS(rms_norm, LAYER_NORM_ATTRS);

// x (..., C); all other operands are (C,), in its dtype.
static bool last_norm_infer(ct_call *call) {
    layer_norm_attrs *attrs = call->attrs; // both have the same layout
    const ct_type *x = call->in[0];
    if (!ct__check_accepts(call, 0)) return false;
    if (x->rank == 0)
        return ct__call_err(call, CT_E_SHAPE, "x is %s, it needs an axis", ct__type_text(x).s);
    for (int i = 1; i < call->n_in; i++) {
        const ct_type *w = call->in[i];
        if (w->dtype != x->dtype)
            return ct__call_err(call, CT_E_DTYPE, "operand %d is %s, x is %s", i + 1,
                                ct__type_text(w).s, ct__type_text(x).s) ||
                   ct__hint_cast(call, "operand", (ct_dtype)x->dtype);
        if (w->rank != 1 || w->dim[0] != x->dim[x->rank - 1])
            return ct__call_err(call, CT_E_SHAPE, "operand %d is %s, it must be (%lld,) for x %s",
                                i + 1, ct__type_text(w).s, (long long)x->dim[x->rank - 1],
                                ct__type_text(x).s) ||
                   ct__call_hint(call, "a norm is over the last axis: one weight an element of it");
    }
    if (!ct__normal_eps(call, &attrs->eps)) return false;
    *call->out = *x;
    return true;
}

typedef struct last_norm {
    int64_t last;
    ct_ints axes;         // the last axis
    ct_tensor count;      // C
    ct_tensor normalised; // (..., C) x normalised
    ct_tensor inv_std;    // (..., 1) 1 / standard deviation
} last_norm;
static void last_norm_compute(last_norm *n, const ct_rule *r, bool centred) {
    ct_tensor x = r->in[0], d = x;
    n->last = ct__type_of(x)->rank - 1;
    n->axes = (ct_ints){1, &n->last};
    n->count = stats_count(x, &n->axes);
    if (centred) d = ct_sub(x, ct_div(stats_sum(x, &n->axes), n->count));
    ct_tensor var = ct_div(stats_sum(ct_mul(d, d), &n->axes), n->count);
    ct_tensor eps = ct__number_like(((const layer_norm_attrs *)r->attrs)->eps.value, x);
    n->inv_std = ct_div(ct_f(1), ct_sqrt(ct_add(var, eps)));
    n->normalised = ct_mul(d, n->inv_std);
}
// Sums (..., C) to (C,).
static ct_tensor last_norm_sum_rows(ct_tensor t, int64_t last) {
    int64_t axes[CT_MAX_RANK];
    for (int64_t a = 0; a < last; a++) axes[a] = a;
    return last ? ct_sum(t, .axes = {last, axes}) : t;
}
// Indices of weight and bias among the operands; 0: absent.
static int last_norm_weight(const ct_rule *r) {
    return ((const layer_norm_attrs *)r->attrs)->present & 1 ? 1 : 0;
}
static int last_norm_bias(const ct_rule *r) {
    return ((const layer_norm_attrs *)r->attrs)->present & 2 ? r->n_in - 1 : 0;
}

static bool last_norm_body(ct_rule *r, bool centred) {
    last_norm n;
    last_norm_compute(&n, r, centred);
    ct_tensor y = n.normalised;
    if (last_norm_weight(r)) y = ct_mul(y, r->in[last_norm_weight(r)]);
    if (last_norm_bias(r)) y = ct_add(y, r->in[last_norm_bias(r)]);
    return ct__set_body(r, y);
}
static bool last_norm_vjp(ct_rule *r, bool centred) {
    last_norm n;
    ct_tensor c = r->c_out[0];
    if (ct__is_none(c)) return true;
    last_norm_compute(&n, r, centred);
    ct_tensor scaled = last_norm_weight(r) ? ct_mul(c, r->in[last_norm_weight(r)]) : c;
    // The parts of the cotangent along the normalised x, and in a centred norm along the mean, have no
    // effect.
    ct_tensor mean_c_x = ct_div(stats_sum(ct_mul(scaled, n.normalised), &n.axes), n.count),
              rest = scaled;
    if (centred) rest = ct_sub(scaled, ct_div(stats_sum(scaled, &n.axes), n.count));
    // Sums over rows come after those within rows, so that one kernel reads what they share.
    if (last_norm_bias(r)) r->c_in[last_norm_bias(r)] = last_norm_sum_rows(c, n.last);
    if (last_norm_weight(r))
        r->c_in[last_norm_weight(r)] = last_norm_sum_rows(ct_mul(c, n.normalised), n.last);
    return ct__set_cotangent(r, ct_mul(ct_sub(rest, ct_mul(n.normalised, mean_c_x)), n.inv_std));
}
static bool layer_norm_body(ct_rule *r) { return last_norm_body(r, true); }
static bool layer_norm_vjp(ct_rule *r) { return last_norm_vjp(r, true); }
static bool rms_norm_body(ct_rule *r) { return last_norm_body(r, false); }
static bool rms_norm_vjp(ct_rule *r) { return last_norm_vjp(r, false); }

// Batched weights are left to the body.
static bool last_norm_batch(ct_batching *b) {
    for (int i = 1; i < b->n_in; i++)
        if (b->batched[i]) return true;
    return ct__batch_record(b, b->attrs, b->in);
}

#define NORM(ID, op)                                                                               \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_composition, .n_in = -1, .n_out = 1,          \
    CT_FIELDS(op), .accepts = CT_FLOATS, .infer = last_norm_infer, .body = op##_body,              \
    .vjp = op##_vjp, .batch = last_norm_batch, .widens = true, .samples = {.ulp = 16}
const ct_opdef ct__op_layer_norm = {
    NORM(LAYER_NORM, layer_norm),
    .doc = "x less its mean over the last axis, divided by its standard deviation (eps is added to "
           "the variance; default 1e-5), times weight plus bias; both may be left out.",
    .onnx = "LayerNormalization",
    .autocast = CT_CAST_F32,
};
const ct_opdef ct__op_rms_norm = {
    NORM(RMS_NORM, rms_norm),
    .doc = "x divided by the root of its mean square over the last axis (eps is added to the mean "
           "square; default 1e-5), times weight, which may be left out.",
    .autocast = CT_CAST_F32,
};
