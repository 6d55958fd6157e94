// Reductions of NumPy besides those of statistics.c: counts, standard deviation, reductions without NaN,
// quantiles.
#include <math.h>

#include "ops/functions.h"

// ------------------------------------------------------------------------------------------- counts

#define COUNT_NONZERO_ATTRS(F, op) F(op, axes, axes) F(op, bool, keepdims)
CT_ATTRS(count_nonzero, COUNT_NONZERO_ATTRS);
static bool count_nonzero_infer(ct_call *call) {
    if (!ct__infer_reduce(call)) return false;
    call->out->dtype = CT_I32;
    call->out->weak = false;
    return true;
}
static bool count_nonzero_body(ct_rule *r) {
    const count_nonzero_attrs *attrs = r->attrs;
    ct_tensor ones = ct_cast(ct_cast(r->in[0], CT_BOOL), CT_I32);
    return ct__set_body(r, ct_sum(ones, .axes = attrs->axes, .keepdims = attrs->keepdims));
}
const ct_opdef ct__op_count_nonzero = {
    STATISTIC(COUNT_NONZERO, count_nonzero, count_nonzero_infer),
    .doc = "How many elements over axes (default: all) are not 0, as i32; NaN is not.",
    .accepts = CT_NUMBERS | CT_MASK(CT_BOOL),
    .jvp = CT_NO_GRAD,
};

#define STD_ATTRS(F, op) F(op, axes, axes) F(op, bool, keepdims) F(op, i64, correction)
CT_ATTRS(std, STD_ATTRS);
static bool std_body(ct_rule *r) {
    const std_attrs *attrs = r->attrs;
    ct_tensor var = ct_var(r->in[0], .axes = attrs->axes, .keepdims = attrs->keepdims,
                           .correction = attrs->correction);
    return ct__set_body(r, ct__root_or_zero(var, 2));
}
const ct_opdef ct__op_std = {
    STATISTIC(STD, std, ct__infer_reduce),
    .doc = "The standard deviation over axes (default: all), the root of ct_var. Its gradient "
           "where it "
           "is 0 is 0.",
    .accepts = CT_FLOATS,
    .samples = {.ulp = 4},
};

// ------------------------------------------------------------------------------------- without NaN

CT_ATTRS(nansum, COUNT_NONZERO_ATTRS);
CT_ATTRS(nanmean, COUNT_NONZERO_ATTRS);
CT_ATTRS(nanmax, COUNT_NONZERO_ATTRS);
CT_ATTRS(nanmin, COUNT_NONZERO_ATTRS);
static ct_tensor nan_replace(const ct_rule *r, double instead) {
    return ct_select(ct_is_nan(r->in[0]), rule_constant(instead, r), r->in[0]);
}
// Returns the number of elements that are not NaN, in x's dtype. All four ops have one layout.
static ct_tensor nan_count_numbers(const ct_rule *r) {
    const nansum_attrs *attrs = r->attrs;
    ct_tensor one = ct_select(ct_is_nan(r->in[0]), rule_constant(0, r), rule_constant(1, r));
    return ct_sum(one, .axes = attrs->axes, .keepdims = attrs->keepdims);
}
static ct_tensor nan_sum(const ct_rule *r) {
    const nansum_attrs *attrs = r->attrs;
    return ct_sum(nan_replace(r, 0), .axes = attrs->axes, .keepdims = attrs->keepdims);
}

static bool nansum_body(ct_rule *r) { return ct__set_body(r, nan_sum(r)); }
const ct_opdef ct__op_nansum = {
    STATISTIC(NANSUM, nansum, ct__infer_reduce),
    .doc = "The sum over axes (default: all), NaN counted as 0.",
    .accepts = CT_FLOATS,
};
static bool nanmean_body(ct_rule *r) {
    return ct__set_body(r, ct_div(nan_sum(r), nan_count_numbers(r)));
}
const ct_opdef ct__op_nanmean = {
    STATISTIC(NANMEAN, nanmean, ct__infer_reduce),
    .doc = "The mean over axes (default: all) of what is not NaN; NaN of nothing.",
    .accepts = CT_FLOATS,
};

static bool nan_extreme(ct_rule *r, ct_tensor extreme) {
    return ct__set_body(r, ct_select(ct_equal(nan_count_numbers(r), ct_f(0)), ct_f(NAN), extreme));
}
static bool nanmax_body(ct_rule *r) {
    const nanmax_attrs *attrs = r->attrs;
    return nan_extreme(
        r, ct_max(nan_replace(r, -INFINITY), .axes = attrs->axes, .keepdims = attrs->keepdims));
}
const ct_opdef ct__op_nanmax = {
    STATISTIC(NANMAX, nanmax, ct__infer_reduce),
    .doc = "The largest element over axes (default: all) that is not NaN; NaN of nothing.",
    .accepts = CT_FLOATS,
    .samples = {.kinks = true},
};
static bool nanmin_body(ct_rule *r) {
    const nanmin_attrs *attrs = r->attrs;
    return nan_extreme(
        r, ct_min(nan_replace(r, INFINITY), .axes = attrs->axes, .keepdims = attrs->keepdims));
}
const ct_opdef ct__op_nanmin = {
    STATISTIC(NANMIN, nanmin, ct__infer_reduce),
    .doc = "The smallest element over axes (default: all) that is not NaN; NaN of nothing.",
    .accepts = CT_FLOATS,
    .samples = {.kinks = true},
};

// --------------------------------------------------------------------------------------- one axis

// Computes the type of x without an axis, or with size 1 in its place.
static bool summary_axis_infer(ct_call *call, int64_t *axis, bool keepdims) {
    if (!ct__check_accepts(call, 0) || !ct__normal_axis(call, axis)) return false;
    const int64_t one = *axis;
    return ct__reduced_type(call, &(ct_ints){1, &one}, keepdims, call->out);
}

#define QUANTILE_ATTRS(F, op) F(op, f64, q) F(op, axis, axis) F(op, bool, keepdims)
CT_ATTRS(quantile, QUANTILE_ATTRS);
static bool quantile_infer(ct_call *call) {
    quantile_attrs *attrs = call->attrs;
    const ct_type *in = call->in[0];
    if (!summary_axis_infer(call, &attrs->axis, attrs->keepdims)) return false;
    if (!(attrs->q >= 0 && attrs->q <= 1))
        return ct__call_err(call, CT_E_ARGUMENT, "q is %g, it must be from 0 to 1", attrs->q);
    const int axis = (int)attrs->axis;
    return (!ct__is_dyn(in, axis) && in->dim[axis] > 0) ||
           ct__call_err(call, CT_E_SHAPE, "axis %d of %s must have a static size above 0", axis,
                        ct__type_text(in).s);
}
// The element at position q (n - 1) of the sorted row, interpolated between two elements; NaN is sorted
// last.
static bool quantile_body(ct_rule *r) {
    const quantile_attrs *attrs = r->attrs;
    const int64_t axis = attrs->axis, last = ct__type_of(r->in[0])->dim[axis] - 1;
    const double position = attrs->q * (double)last;
    const int64_t low = (int64_t)position, high = low < last ? low + 1 : last;
    ct_tensor row = ct_sort(r->in[0], .axis = axis),
              below = ct__slice_axis(row, axis, low, low + 1);
    ct_tensor value = below;
    // computed from halves, since the difference of both could overflow
    if (position > (double)low) {
        ct_tensor half = rule_constant(0.5, r), first = ct_mul(below, half);
        ct_tensor step = ct_sub(ct_mul(ct__slice_axis(row, axis, high, high + 1), half), first);
        value = ct_add(first, ct_mul(step, rule_constant(position - (double)low, r)));
        value = ct_mul(value, rule_constant(2, r));
    }
    ct_tensor largest = ct__slice_axis(row, axis, last, last + 1);
    value = ct_select(ct_is_nan(largest), largest, value);
    return ct__set_body(r, ct__of_type(value, r->node->out));
}
const ct_opdef ct__op_quantile = {
    STATISTIC(QUANTILE, quantile, quantile_infer),
    .doc = "The number below which the fraction q of an axis is, between two elements in "
           "proportion (q 0.5: the median); NaN if there is one.",
    .accepts = CT_FLOATS,
    .samples = {.kinks = true, .ulp = 2},
    .autocast = CT_CAST_F32,
};

#define TRAPEZOID_ATTRS(F, op) F(op, axis, axis) F(op, num, dx)
CT_ATTRS(trapezoid, TRAPEZOID_ATTRS);
static bool trapezoid_infer(ct_call *call) {
    trapezoid_attrs *attrs = call->attrs;
    if (!summary_axis_infer(call, &attrs->axis, false)) return false;
    const ct_type *in = call->in[0];
    return in->dim[attrs->axis] > 0 ||
           ct__call_err(call, CT_E_SHAPE, "axis %d of %s has no elements", (int)attrs->axis,
                        ct__type_text(in).s);
}
static bool trapezoid_body(ct_rule *r) {
    const trapezoid_attrs *attrs = r->attrs;
    const int64_t axis = attrs->axis;
    ct_tensor y = ct_mul(r->in[0], rule_constant(0.5, r)); // the sum of both could overflow
    ct_tensor mean = ct_add(ct__slice_axis(y, axis, 1, CT_END), ct__slice_axis(y, axis, 0, -1));
    ct_tensor dx = rule_constant(ct__num_or(attrs->dx, 1), r);
    return ct__set_body(r, ct_mul(ct_sum(mean, .axes = {1, &axis}), dx));
}
const ct_opdef ct__op_trapezoid = {
    STATISTIC(TRAPEZOID, trapezoid, trapezoid_infer),
    .doc = "The area under y along an axis by the trapezoidal rule, for points that are dx "
           "(default 1) apart.",
    .accepts = CT_FLOATS,
};
