// Reductions over axes. Floats add and multiply in a tree of fixed shape over the index
// (docs/design/bits.md).
#include <math.h>

#include "ops/rules.h"

#define SUM_ATTRS(F, op) F(op, axes, axes) F(op, bool, keepdims)
#define ARGMAX_ATTRS(F, op) F(op, axis, axis) F(op, bool, keepdims)
CT_ATTRS(sum, SUM_ATTRS);
CT_ATTRS(prod, SUM_ATTRS);
CT_ATTRS(max, SUM_ATTRS);
CT_ATTRS(min, SUM_ATTRS);
CT_ATTRS(argmax, ARGMAX_ATTRS);
CT_ATTRS(argmin, ARGMAX_ATTRS);
// The four have the same layout, so they share one shape rule.
typedef sum_attrs reduce_attrs;

bool ct__reduced_type(ct_call *call, const ct_ints *axes, bool keepdims, ct_type *out) {
    const ct_type *in = call->in[0];
    ct_shape shape = ct__call_shape(call, in->rank);
    if (!shape.dim) return false;
    for (int a = 0; a < in->rank; a++) {
        if (!ct__has_axis(axes, a))
            ct__shape_add_axis(&shape, in, a);
        else if (keepdims)
            ct__shape_add(&shape, 1);
    }
    *out = ct__shaped(&shape, in->dtype, in->weak);
    return true;
}

bool ct__infer_reduce(ct_call *call) {
    reduce_attrs *attrs = call->attrs;
    if (!ct__check_accepts(call, 0) || !ct__normal_axes(call, &attrs->axes, call->in[0]->rank))
        return false;
    return ct__reduced_type(call, &attrs->axes, attrs->keepdims, call->out);
}

ct_tensor ct__with_axes(ct_tensor reduced, ct_tensor like, const ct_ints *axes, bool keepdims) {
    if (keepdims) return reduced;
    ct_dims_buffer dims;
    ct__dims_of(like, &dims);
    for (int64_t i = 0; i < axes->n; i++) dims.v[axes->v[i]] = 1;
    return ct_reshape(reduced, dims.list);
}

static bool sum_transpose(ct_rule *r) {
    const sum_attrs *attrs = r->attrs;
    ct_dims_buffer dims;
    return ct__set_cotangent(
        r, ct_expand(ct__with_axes(r->c_out[0], r->in[0], &attrs->axes, attrs->keepdims),
                     ct__dims_of(r->in[0], &dims)));
}
#define REDUCE(ID, op, by, rule)                                                                   \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_reduce, .n_in = 1, .n_out = 1, CT_FIELDS(op), \
    .infer = ct__infer_reduce, .jvp = rule, .reduction = CT_RED_##by
const ct_opdef ct__op_sum = {
    REDUCE(SUM, sum, ADD, ct__jvp_same),
    .accepts = CT_NUMBERS | CT_COMPLEX,
    .split = ct__split_each,
    .data = 1,
    .doc =
        "The sum over axes (default: all). Floats add in a tree of fixed shape. Integers keep "
        "their dtype and wrap, unlike NumPy's, which add up in 64 bits: u8 200 + 100 is 44. Cast "
        "small ones first.",
    .transpose = sum_transpose,
    .onnx = "ReduceSum",
    .stablehlo = "reduce add",
    .autocast = CT_CAST_F32,
};

// Axis by axis, the sum of x' times the product of the other elements, which is finite where factors are
// 0.
static bool prod_jvp(ct_rule *r) {
    const prod_attrs *attrs = r->attrs;
    const ct_dtype dtype = (ct_dtype)ct__type_of(r->in[0])->dtype;
    // Computes in f32, like the product itself, which is not rounded in between.
    const bool narrow = ct_dtype_bits(dtype) < 32;
    ct_tensor x = narrow ? ct_cast(r->in[0], CT_F32) : r->in[0],
              t = narrow ? ct_cast(r->t_in[0], CT_F32) : r->t_in[0];
    for (int64_t i = 0; i < attrs->axes.n; i++) {
        const ct_ints axis = {1, &attrs->axes.v[i]};
        t = ct_sum(ct_mul(t, ct__product_of_others(x, axis.v[0])), .axes = axis, .keepdims = true);
        if (i + 1 < attrs->axes.n) x = ct_prod(x, .axes = axis, .keepdims = true);
    }
    return ct__set_tangent(r, ct__shaped_like(narrow ? ct_cast(t, dtype) : t, r->out[0]));
}
const ct_opdef ct__op_prod = {
    REDUCE(PROD, prod, MUL, prod_jvp),
    .accepts = CT_NUMBERS | CT_COMPLEX,
    .split = ct__split_prod,
    .doc = "The product over axes (default: all). Of complex numbers it is the product of their "
           "sizes at the sum of their angles, and a gradient takes a product for each element. "
           "Integers keep their dtype and wrap, as in ct_sum.",
    .onnx = "ReduceProd",
    .stablehlo = "reduce multiply",
    .samples = {.lo = 0.5, .hi = 1.5},
    .autocast = CT_CAST_F32,
};

// The tangents of the elements that have the extreme value, averaged over them, as in JAX.
static bool reduce_extreme_jvp(ct_rule *r) {
    const reduce_attrs *attrs = r->attrs;
    ct_tensor best = ct__with_axes(r->out[0], r->in[0], &attrs->axes, attrs->keepdims);
    ct_tensor is_best = ct_equal(r->in[0], best);
    ct_tensor one_each = ct_cast(is_best, (ct_dtype)ct__type_of(r->in[0])->dtype);
    ct_sum_args count = {.x = one_each, .axes = attrs->axes, .keepdims = attrs->keepdims};
    ct_sum_args chosen = {.x = ct_select(is_best, r->t_in[0], ct_f(0)),
                          .axes = attrs->axes,
                          .keepdims = attrs->keepdims};
    return ct__set_tangent(r, ct_div(ct_sum_with(chosen), ct_sum_with(count)));
}
const ct_opdef ct__op_max = {
    REDUCE(MAX, max, MAX, reduce_extreme_jvp),
    .accepts = CT_NUMBERS,
    .doc = "The largest element over axes (default: all); NaN if there is one; -infinity or the "
           "least integer of none.",
    .onnx = "ReduceMax",
    .stablehlo = "reduce maximum",
    .samples = {.kinks = true},
    .unchanged = ct__always_unchanged,
};

const ct_opdef ct__op_min = {
    REDUCE(MIN, min, MIN, reduce_extreme_jvp),
    .accepts = CT_NUMBERS,
    .doc = "The smallest element over axes (default: all); NaN if there is one; infinity or the "
           "largest integer of none.",
    .onnx = "ReduceMin",
    .stablehlo = "reduce minimum",
    .samples = {.kinks = true},
    .unchanged = ct__always_unchanged,
};

// ---------------------------------------------------------------------------------- argmax, argmin

// The two have the same layout.
static bool argminmax_infer(ct_call *call) {
    argmax_attrs *attrs = call->attrs;
    const ct_type *in = call->in[0];
    if (!ct__check_accepts(call, 0) || !ct__normal_axis(call, &attrs->axis)) return false;
    int axis = (int)attrs->axis;
    if (in->dim[axis] == 0)
        return ct__call_err(call, CT_E_SHAPE, "axis %d of %s has no elements", axis,
                            ct__type_text(in).s);
    int64_t one = axis;
    if (!ct__reduced_type(call, &(ct_ints){1, &one}, attrs->keepdims, call->out)) return false;
    call->out->dtype = CT_I32;
    call->out->weak = false;
    return true;
}

static bool argminmax_eval(const ct_ref *ref, bool minimum) {
    const argmax_attrs *attrs = ref->attrs;
    const ct_type *in = ref->in_type;
    int64_t inner = 1, n = in->dim[attrs->axis], outer = ct__count(ref->out_type);
    for (int a = (int)attrs->axis + 1; a < in->rank; a++) inner *= in->dim[a];
    bool is_float = ct__is_float(in->dtype);
    for (int64_t o = 0; o < outer; o++) {
        int64_t base = o / inner * inner * n + o % inner, best = 0;
        for (int64_t k = 1; k < n; k++) {
            int64_t at = base + k * inner, was = base + best * inner;
            int64_t low = minimum ? at : was, high = minimum ? was : at;
            double x = ct__load_f64(in->dtype, ref->in[0], at),
                   y = ct__load_f64(in->dtype, ref->in[0], was);
            bool better = is_float ? (isnan(x) && !isnan(y)) || (minimum ? x < y : x > y)
                                   : ct__less_i64(ct__load_i64(in->dtype, ref->in[0], low),
                                                  ct__load_i64(in->dtype, ref->in[0], high),
                                                  (ct_dtype)in->dtype);
            if (better) best = k;
        }
        ((int32_t *)ref->out[0])[o] = (int32_t)best;
    }
    return true;
}
#define ARGMINMAX(ID, op)                                                                          \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_reduce, .n_in = 1, .n_out = 1, CT_FIELDS(op), \
    .accepts = CT_NUMBERS, .infer = argminmax_infer, .eval = op##_eval, .jvp = CT_NO_GRAD,         \
    .reduction = CT_RED_##ID

static bool argmax_eval(const ct_ref *ref) { return argminmax_eval(ref, false); }
const ct_opdef ct__op_argmax = {
    ARGMINMAX(ARGMAX, argmax),
    .doc = "The index (i32) of the largest element along an axis; the first of equals; NaN counts "
           "as largest.",
    .onnx = "ArgMax",
};
static bool argmin_eval(const ct_ref *ref) { return argminmax_eval(ref, true); }
const ct_opdef ct__op_argmin = {
    ARGMINMAX(ARGMIN, argmin),
    .doc = "The index (i32) of the smallest element along an axis; the first of equals; NaN counts "
           "as smallest.",
    .onnx = "ArgMin",
};
