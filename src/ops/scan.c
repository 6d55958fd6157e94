// Scans: the combination by a monoid of all elements up to each along an axis: running sums, products,
// extremes. The order is described in kinds/scan.h and docs/design/bits.md.
#include <math.h>

#include "ops/rules.h"

#define CUMSUM_ATTRS(F, op) F(op, axis, axis) F(op, reverse, reverse)
CT_ATTRS(cumsum, CUMSUM_ATTRS);
CT_ATTRS(cumprod, CUMSUM_ATTRS);
CT_ATTRS(cummax, CUMSUM_ATTRS);
CT_ATTRS(cummin, CUMSUM_ATTRS);
CT_ATTRS(logcumsumexp, CUMSUM_ATTRS);
CT_ATTRS(linear_recurrence, CUMSUM_ATTRS);
// They share one layout.
typedef cumsum_attrs scan_attrs;

static bool scan_infer(ct_call *call) {
    scan_attrs *attrs = call->attrs;
    *call->out = *call->in[0];
    return ct__check_accepts(call, 0) && ct__normal_axis(call, &attrs->axis);
}

#define SCAN(ID, op)                                                                               \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_scan, .n_in = 1, .n_out = 1, CT_FIELDS(op),   \
    .infer = scan_infer

// Shifts x by one element along the axis, in the direction of the scan; the first element is `fill`.
static ct_tensor scan_shift(ct_tensor x, const scan_attrs *attrs, double fill) {
    int64_t low[CT_MAX_RANK] = {0}, high[CT_MAX_RANK] = {0};
    int rank = ct__type_of(x)->rank;
    (attrs->reverse ? high : low)[attrs->axis] = 1;
    ct_tensor longer =
        ct_pad(x, ct__number_like(fill, x), .low = {rank, low}, .high = {rank, high});
    const int64_t stop = attrs->reverse ? CT_END : -1;
    return ct__shaped_like(ct__slice_axis(longer, attrs->axis, attrs->reverse, stop), x);
}

// For complex numbers, which have no running product: one product per element, in which the element is 1.
static ct_tensor scan_product_of_others(ct_tensor x, int64_t axis) {
    const int rank = ct__type_of(x)->rank;
    int64_t outer_dims[CT_MAX_RANK + 1], inner_dims[CT_MAX_RANK + 1], order[CT_MAX_RANK];
    for (int a = 0; a <= rank; a++) outer_dims[a] = inner_dims[a] = 1;
    outer_dims[0] = inner_dims[axis + 1] = ct__size_like(x, (int)axis);
    const ct_ints by_place = {rank + 1, outer_dims}, by_element = {rank + 1, inner_dims};
    ct_tensor own = ct_equal(ct_iota(CT_I64, by_place, 0), ct_iota(CT_I64, by_element, axis + 1));
    const int64_t along = axis + 1;
    ct_tensor all = ct_prod(ct_select(own, ct__number_like(1, x), x), .axes = {1, &along});
    for (int64_t a = 0; a < rank; a++) order[a] = a < axis ? a + 1 : a == axis ? 0 : a;
    return ct__shaped_like(ct_permute(all, ((ct_ints){rank, order})), x);
}
ct_tensor ct__product_of_others(ct_tensor x, int64_t axis) {
    const scan_attrs up = {.axis = axis}, down = {.axis = axis, .reverse = true};
    if (ct__is_complex((ct_dtype)ct__type_of(x)->dtype)) return scan_product_of_others(x, axis);
    ct_tensor before = scan_shift(ct_cumprod(x, .axis = axis), &up, 1);
    ct_tensor after = scan_shift(ct_cumprod(x, .axis = axis, .reverse = true), &down, 1);
    return ct_mul(before, after);
}

// --------------------------------------------------------------------------------------------- sum

static bool cumsum_transpose(ct_rule *r) { // element i contributes to all later sums
    const cumsum_attrs *attrs = r->attrs;
    return ct__set_cotangent(
        r, ct_cumsum(r->c_out[0], .axis = attrs->axis, .reverse = !attrs->reverse));
}
const ct_opdef ct__op_cumsum = {
    SCAN(CUMSUM, cumsum),
    .doc = "The sum of all elements up to each along an axis (reverse: from each on). Integers "
           "keep their dtype and wrap, as in ct_sum.",
    .accepts = CT_NUMBERS | CT_COMPLEX,
    .split = ct__split_each,
    .data = 1,
    .reduction = CT_RED_ADD,
    .jvp = ct__jvp_same,
    .transpose = cumsum_transpose,
    .onnx = "CumSum",
    .autocast = CT_CAST_F32,
};

// ------------------------------------------------------------------------------ linear recurrence

// Records the recurrence that computes the derivatives of the other scans.
static ct_tensor scan_recurrence(ct_tensor a, ct_tensor b, const scan_attrs *attrs) {
    return ct_linear_recurrence(a, b, .axis = attrs->axis, .reverse = attrs->reverse);
}

static bool linear_recurrence_infer(ct_call *call) {
    scan_attrs *attrs = call->attrs;
    const ct_type *a = call->in[0], *b = call->in[1];
    if (!ct__check_accepts(call, 0) || !ct__check_accepts(call, 1)) return false;
    if (!ct__same_sizes(a, b))
        return ct__call_err(call, CT_E_SHAPE, "a is %s, b is %s, they must have one shape",
                            ct__type_text(a).s, ct__type_text(b).s) ||
               ct__call_hint(call, "ct_expand brings one to the shape of the other");
    ct_shape shape = ct__call_shape(call, a->rank);
    if (!shape.dim) return false;
    for (int i = 0; i < a->rank; i++) ct__shape_add(&shape, ct__same_size(a, i, b, i));
    *call->out =
        ct__shaped(&shape, ct__promote(a->dtype, a->weak, b->dtype, b->weak), a->weak && b->weak);
    return ct__normal_axis(call, &attrs->axis);
}

// Composes two steps y -> a y + b into one step.
static void linear_recurrence_join(const ct_elem *e, ct_kval *to) {
    to[0] = ct__kir_mul(e->k, e->x[2], e->x[0]);
    to[1] = ct__kir_add(e->k, ct__kir_mul(e->k, e->x[2], e->x[1]), e->x[3]);
}

static bool linear_recurrence_eval(const ct_ref *ref) {
    const scan_attrs *attrs = ref->attrs;
    const ct_type *out = ref->out_type;
    int64_t n = out->dim[attrs->axis], inner = 1, count = ct__count(out);
    for (int a = (int)attrs->axis + 1; a < out->rank; a++) inner *= out->dim[a];
    for (int64_t line = 0; n && line < count / n; line++) {
        double y = 0;
        for (int64_t k = 0; k < n; k++) {
            int64_t at =
                line / inner * inner * n + line % inner + (attrs->reverse ? n - 1 - k : k) * inner;
            y = ct__load_f64(ref->in_type[0].dtype, ref->in[0], at) * y +
                ct__load_f64(ref->in_type[1].dtype, ref->in[1], at);
            ct__store_f64(out->dtype, ref->out[0], at, y);
        }
    }
    return true;
}

static bool linear_recurrence_jvp(ct_rule *r) { // y'[k] = a[k] y'[k - 1] + a'[k] y[k - 1] + b'[k]
    ct_tensor by_a = CT_NONE;
    if (!ct__is_none(r->t_in[0])) by_a = ct_mul(r->t_in[0], scan_shift(r->out[0], r->attrs, 0));
    return ct__set_tangent(r, scan_recurrence(r->in[0], ct__add_zero(by_a, r->t_in[1]), r->attrs));
}
static bool linear_recurrence_transpose(ct_rule *r) { // c[k] + a[k + 1] times the result for k + 1
    scan_attrs back = *(const scan_attrs *)r->attrs;
    back.reverse = !back.reverse;
    r->c_in[1] = scan_recurrence(scan_shift(r->in[0], &back, 0), r->c_out[0], &back);
    return true;
}
const ct_opdef ct__op_linear_recurrence = {
    CT_OP(LINEAR_RECURRENCE, linear_recurrence, scan, 2, 1),
    CT_FIELDS(linear_recurrence),
    .infer = linear_recurrence_infer,
    .doc = "y[k] = a[k] y[k - 1] + b[k] along an axis, from y = 0 on (reverse: from the end).",
    .accepts = CT_FLOATS,
    .monoid = {linear_recurrence_join, {1, 0}},
    .eval = linear_recurrence_eval,
    .jvp = linear_recurrence_jvp,
    .transpose = linear_recurrence_transpose,
    .samples = {.lo = -1, .hi = 1},
};

// ----------------------------------------------------------------------------------------- product

static bool cumprod_jvp(ct_rule *r) { // y'[k] = x[k] y'[k - 1] + x'[k] y[k - 1]: correct with zeros
    ct_tensor own = ct_mul(r->t_in[0], scan_shift(r->out[0], r->attrs, 1));
    return ct__set_tangent(r, scan_recurrence(r->in[0], own, r->attrs));
}
const ct_opdef ct__op_cumprod = {
    SCAN(CUMPROD, cumprod),
    .doc = "The product of all elements up to each along an axis (reverse: from each on). Integers "
           "keep their dtype and wrap, as in ct_sum.",
    .accepts = CT_NUMBERS,
    .reduction = CT_RED_MUL,
    .jvp = cumprod_jvp,
    .samples = {.lo = 0.5, .hi = 1.5},
    .autocast = CT_CAST_F32,
};

// ---------------------------------------------------------------------------------------- extremes

// y' is x' where x is the extreme, else the previous y': of equals the last one has the gradient, as in
// PyTorch.
static bool scan_extreme_jvp(ct_rule *r) {
    ct_tensor x = r->in[0], is_new = ct_or(ct_equal(x, r->out[0]), ct_not_equal(x, x));
    ct_tensor zero = ct__number_like(0, r->in[0]), one = ct__number_like(1, r->in[0]);
    return ct__set_tangent(r, scan_recurrence(ct_select(is_new, zero, one),
                                              ct_select(is_new, r->t_in[0], zero), r->attrs));
}
const ct_opdef ct__op_cummax = {
    SCAN(CUMMAX, cummax),
    .doc = "The largest of all elements up to each along an axis (reverse: from each on); NaN from "
           "the first NaN on. Of equals the last has the gradient.",
    .accepts = CT_NUMBERS,
    .reduction = CT_RED_MAX,
    .jvp = scan_extreme_jvp,
    .samples = {.kinks = true},
};
const ct_opdef ct__op_cummin = {
    SCAN(CUMMIN, cummin),
    .doc = "The smallest of all elements up to each along an axis (reverse: from each on); NaN "
           "from the first NaN on. Of equals the last has the gradient.",
    .accepts = CT_NUMBERS,
    .reduction = CT_RED_MIN,
    .jvp = scan_extreme_jvp,
    .samples = {.kinks = true},
};

// ---------------------------------------------------------------------------- sum of exponentials

// log(exp(a) + exp(b)), with the larger one factored out.
static double logaddexp_f64(const double *x) {
    double d = x[0] == x[1] ? 0 : x[0] - x[1];
    return isnan(d) ? d : fmax(x[0], x[1]) + log1p(exp(-fabs(d)));
}
static void logaddexp_join(const ct_elem *e, ct_kval *to) {
    ct_kir *k = e->k;
    ct_kval a = e->x[0], b = e->x[1], equal = ct__kir_bin(k, CT_K_EQ, a, b);
    ct_kval d = ct__kir_select(k, equal, ct__kir_const(k, e->dtype, 0), ct__kir_sub(k, a, b));
    ct_kval small =
        ct__kir_math(k, CT_MATH_EXP, ct__kir_un(k, CT_K_NEG, ct__kir_un(k, CT_K_ABS, d)));
    to[0] = ct__kir_add(k, ct__kir_max(k, a, b), ct__kir_math(k, CT_MATH_LOG1P, small));
}

// y'[k] = exp(y[k - 1] - y[k]) y'[k - 1] + exp(x[k] - y[k]) x'[k]: weights of at most 1.
static bool logcumsumexp_jvp(ct_rule *r) {
    ct_tensor y = r->out[0], none = ct_equal(y, ct__number_like(-(double)INFINITY, y));
    ct_tensor safe = ct_select(none, ct__number_like(0, y), y);
    ct_tensor before = ct_exp(ct_sub(scan_shift(y, r->attrs, -(double)INFINITY), safe));
    ct_tensor own = ct_exp(ct_sub(r->in[0], safe));
    return ct__set_tangent(r, scan_recurrence(before, ct_mul(r->t_in[0], own), r->attrs));
}
const ct_opdef ct__op_logcumsumexp = {
    SCAN(LOGCUMSUMEXP, logcumsumexp),
    .doc = "log(sum(exp(x))) of all elements up to each along an axis (reverse: from each on); "
           "large and small ones neither overflow nor are lost.",
    .accepts = CT_FLOATS,
    .monoid = {logaddexp_join, {-(double)INFINITY}},
    .eval_f64 = logaddexp_f64,
    .jvp = logcumsumexp_jvp,
    .samples = {.ulp = 16},
};
