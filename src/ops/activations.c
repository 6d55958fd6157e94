// Activations of PyTorch other than those of functions.c. NaN stays NaN in all of them.
#include <math.h>

#include "ops/functions.h"

static ct_tensor activation_attr_constant(ct_num given, double otherwise, const ct_rule *r) {
    return rule_constant(ct__num_or(given, otherwise), r);
}
static ct_tensor activation_min_zero(ct_tensor x) { return ct_minimum(x, ct_f(0)); }

// --------------------------------------------------------------------------------- exponential units

#define ELU_ATTRS(F, op) F(op, num, alpha)
CT_ATTRS(elu, ELU_ATTRS);
static ct_tensor elu_alpha(const ct_rule *r) {
    return activation_attr_constant(((const elu_attrs *)r->attrs)->alpha, 1, r);
}
// exp is not evaluated for large x: infinity times 0 would be NaN
static bool elu_body(ct_rule *r) {
    ct_tensor x = r->in[0], low = ct_mul(ct_expm1(activation_min_zero(x)), elu_alpha(r));
    return ct__set_body(r, ct_select(ct_greater(x, ct_f(0)), x, low));
}
static bool elu_jvp(ct_rule *r) {
    ct_tensor x = r->in[0], low = ct_mul(ct_exp(activation_min_zero(x)), elu_alpha(r));
    return ct__jvp_times(r, ct_select(ct_greater(x, ct_f(0)), ct_f(1), low));
}
const ct_opdef ct__op_elu = {
    FUNCTION_WITH_JVP(ELU, elu, 1),
    CT_FIELDS(elu),
    .doc = "x where it is positive, else alpha (default 1) times exp(x) - 1.",
    .accepts = CT_FLOATS,
    .onnx = "Elu",
    .samples = {.ulp = 3, .kinks = true},
};

CT_ATTRS(celu, ELU_ATTRS);
static bool celu_body(ct_rule *r) {
    ct_tensor x = r->in[0], alpha = elu_alpha(r);
    ct_tensor low = ct_mul(ct_expm1(ct_div(activation_min_zero(x), alpha)), alpha);
    return ct__set_body(r, ct_select(ct_greater(x, ct_f(0)), x, low));
}
static bool celu_jvp(ct_rule *r) {
    ct_tensor x = r->in[0], low = ct_exp(ct_div(activation_min_zero(x), elu_alpha(r)));
    return ct__jvp_times(r, ct_select(ct_greater(x, ct_f(0)), ct_f(1), low));
}
const ct_opdef ct__op_celu = {
    FUNCTION_WITH_JVP(CELU, celu, 1),
    CT_FIELDS(celu),
    .doc = "x where it is positive, else alpha (default 1) times exp(x / alpha) - 1.",
    .accepts = CT_FLOATS,
    .onnx = "Celu",
    .samples = {.ulp = 3, .kinks = true},
};

static bool selu_body(ct_rule *r) {
    ct_tensor unit = ct_elu(r->in[0], .alpha = CT_F(1.6732632423543772));
    return ct__set_body(r, ct_mul(unit, rule_constant(1.0507009873554805, r)));
}
const ct_opdef ct__op_selu = {
    FUNCTION(SELU, selu, 1),
    .doc = "1.0507 times elu with alpha 1.67326: it keeps mean 0 and variance 1.",
    .accepts = CT_FLOATS,
    .onnx = "Selu",
    .samples = {.ulp = 4, .kinks = true},
};

static bool mish_body(ct_rule *r) {
    return ct__set_body(r, ct_mul(r->in[0], ct_tanh(ct_softplus(r->in[0]))));
}
const ct_opdef ct__op_mish = {
    FUNCTION(MISH, mish, 1), .doc = "x times tanh(softplus(x)).",
    .accepts = CT_FLOATS,    .onnx = "Mish",
    .samples = {.ulp = 5},
};

// --------------------------------------------------------------------------------------- piecewise

// Clips to [low, high], with derivative 0 at both limits.
static ct_tensor activation_clip(ct_tensor x, ct_tensor low, ct_tensor high) {
    ct_tensor upper = ct_select(ct_greater_equal(x, high), high, x);
    return ct_select(ct_less_equal(x, low), low, upper);
}

#define HARDTANH_ATTRS(F, op) F(op, num, low) F(op, num, high)
CT_ATTRS(hardtanh, HARDTANH_ATTRS);
static bool hardtanh_body(ct_rule *r) {
    const hardtanh_attrs *attrs = r->attrs;
    return ct__set_body(r, activation_clip(r->in[0], activation_attr_constant(attrs->low, -1, r),
                                           activation_attr_constant(attrs->high, 1, r)));
}
const ct_opdef ct__op_hardtanh = {
    FUNCTION(HARDTANH, hardtanh, 1),
    CT_FIELDS(hardtanh),
    .doc = "x, but at least low (default -1) and at most high (default 1), where its slope is 0.",
    .accepts = CT_FLOATS,
    .samples = {.kinks = true},
};

static bool relu6_body(ct_rule *r) {
    return ct__set_body(r, activation_clip(r->in[0], ct_i(0), ct_i(6)));
}
const ct_opdef ct__op_relu6 = {
    FUNCTION(RELU6, relu6, 1),
    .doc = "x, but at least 0 and at most 6, where its slope is 0.",
    .accepts = CT_NUMBERS,
    .samples = {.kinks = true},
};

static bool hardsigmoid_body(ct_rule *r) {
    return ct__set_body(r, ct_div(ct_relu6(ct_add(r->in[0], ct_f(3))), ct_f(6)));
}
const ct_opdef ct__op_hardsigmoid = {
    FUNCTION(HARDSIGMOID, hardsigmoid, 1),
    .doc = "relu6(x + 3) / 6.",
    .accepts = CT_FLOATS,
    .samples = {.lo = -4, .hi = 4, .ulp = 3, .kinks = true},
};
static bool hardswish_body(ct_rule *r) {
    return ct__set_body(r, ct_mul(r->in[0], ct_hardsigmoid(r->in[0])));
}
const ct_opdef ct__op_hardswish = {
    FUNCTION(HARDSWISH, hardswish, 1),
    .doc = "x times relu6(x + 3) / 6.",
    .accepts = CT_FLOATS,
    .onnx = "HardSwish",
    .samples = {.lo = -4, .hi = 4, .ulp = 3, .kinks = true},
};

static bool softsign_body(ct_rule *r) {
    return ct__set_body(r, ct_div(r->in[0], ct_add(ct_abs(r->in[0]), ct_f(1))));
}
static bool softsign_jvp(ct_rule *r) { // 1 / (1 + |x|)^2, also at 0
    ct_tensor by = ct_add(ct_abs(r->in[0]), ct_f(1));
    return ct__jvp_divided(r, ct_mul(by, by));
}
const ct_opdef ct__op_softsign = {
    FUNCTION_WITH_JVP(SOFTSIGN, softsign, 1),
    .doc = "x / (1 + |x|).",
    .accepts = CT_FLOATS,
    .onnx = "Softsign",
    .samples = {.ulp = 2, .kinks = true},
};

// ----------------------------------------------------------------------------- shrinkage around 0

static bool tanhshrink_body(ct_rule *r) {
    return ct__set_body(r, ct_sub(r->in[0], ct_tanh(r->in[0])));
}
const ct_opdef ct__op_tanhshrink = {
    FUNCTION(TANHSHRINK, tanhshrink, 1),
    .doc = "x - tanh(x).",
    .accepts = CT_FLOATS,
    .samples = {.ulp = 8},
};

#define SOFTSHRINK_ATTRS(F, op) F(op, num, lambda)
CT_ATTRS(softshrink, SOFTSHRINK_ATTRS);
CT_ATTRS(hardshrink, SOFTSHRINK_ATTRS);
static ct_tensor shrink_lambda(const ct_rule *r) {
    return activation_attr_constant(((const softshrink_attrs *)r->attrs)->lambda, 0.5, r);
}
static bool softshrink_body(ct_rule *r) {
    ct_tensor x = r->in[0], lambda = shrink_lambda(r);
    ct_tensor less = ct_select(ct_less(x, ct_f(0)), ct_add(x, lambda), ct_sub(x, lambda));
    return ct__set_body(r, ct_select(ct_less_equal(ct_abs(x), lambda), ct_f(0), less));
}
const ct_opdef ct__op_softshrink = {
    FUNCTION(SOFTSHRINK, softshrink, 1),
    CT_FIELDS(softshrink),
    .doc = "x nearer to 0 by lambda (default 0.5), and 0 where |x| is at most that.",
    .accepts = CT_FLOATS,
    .samples = {.kinks = true},
};
static bool hardshrink_body(ct_rule *r) {
    ct_tensor none = ct_less_equal(ct_abs(r->in[0]), shrink_lambda(r));
    return ct__set_body(r, ct_select(none, ct_f(0), r->in[0]));
}
const ct_opdef ct__op_hardshrink = {
    FUNCTION(HARDSHRINK, hardshrink, 1),
    CT_FIELDS(hardshrink),
    .doc = "x, and 0 where |x| is at most lambda (default 0.5).",
    .accepts = CT_FLOATS,
    .samples = {.jumps = true, .kinks = true},
};

#define THRESHOLD_ATTRS(F, op) F(op, f64, threshold) F(op, f64, value)
CT_ATTRS(threshold, THRESHOLD_ATTRS);
static bool threshold_body(ct_rule *r) {
    const threshold_attrs *attrs = r->attrs;
    ct_tensor low = ct_less_equal(r->in[0], rule_constant(attrs->threshold, r));
    return ct__set_body(r, ct_select(low, rule_constant(attrs->value, r), r->in[0]));
}
const ct_opdef ct__op_threshold = {
    FUNCTION(THRESHOLD, threshold, 1),
    CT_FIELDS(threshold),
    .doc = "x where it is above the threshold, else `value`.",
    .accepts = CT_FLOATS,
    .samples = {.jumps = true, .kinks = true},
};

// ------------------------------------------------------------------------------- of several numbers

static bool prelu_body(ct_rule *r) {
    ct_tensor x = r->in[0];
    return ct__set_body(r, ct_select(ct_greater(x, ct_f(0)), x, ct_mul(x, r->in[1])));
}
const ct_opdef ct__op_prelu = {
    FUNCTION(PRELU, prelu, 2),
    .doc = "x where it is positive, else x times slope, which broadcasts: of (N, C, H, W) one a "
           "channel is (C, 1, 1).",
    .accepts = CT_FLOATS,
    .onnx = "PRelu",
    .samples = {.kinks = true},
    .autocast = CT_CAST_LOW,
};

static bool logit_body(ct_rule *r) {
    return ct__set_body(r, ct_log(ct_div(r->in[0], ct_sub(ct_f(1), r->in[0]))));
}
static bool logit_jvp(ct_rule *r) {
    ct_tensor x = r->in[0], by = ct_mul(x, ct_sub(ct_f(1), x)); // nonnegative inside the domain
    return ct__jvp_divided(r, ct_select(ct_less(by, ct_f(0)), ct_f(NAN), by));
}
const ct_opdef ct__op_logit = {
    FUNCTION_WITH_JVP(LOGIT, logit, 1),
    .doc = "log(x / (1 - x)), the inverse of sigmoid; NaN outside of 0 to 1.",
    .accepts = CT_FLOATS,
    .samples = {.lo = 0.1, .hi = 0.4, .ulp = 6},
};

#define GLU_ATTRS(F, op) F(op, axis, axis)
CT_ATTRS(glu, GLU_ATTRS);
static bool glu_infer(ct_call *call) {
    glu_attrs *attrs = call->attrs;
    const ct_type *in = call->in[0];
    if (!ct__check_accepts(call, 0) || !ct__normal_axis(call, &attrs->axis)) return false;
    const int axis = (int)attrs->axis;
    if (ct__is_dyn(in, axis) || in->dim[axis] % 2)
        return ct__call_err(call, CT_E_SHAPE,
                            "axis %d of %s is cut in two halves: its size must be static and even",
                            axis, ct__type_text(in).s);
    return ct__resized_type(call, in, axis, in->dim[axis] / 2, (ct_dtype)in->dtype, false,
                            call->out);
}
static bool glu_body(ct_rule *r) {
    const int64_t axis = ((const glu_attrs *)r->attrs)->axis;
    const int64_t half = ct__type_of(r->in[0])->dim[axis] / 2;
    ct_tensor a = ct__slice_axis(r->in[0], axis, 0, half);
    ct_tensor b = ct__slice_axis(r->in[0], axis, half, CT_END);
    return ct__set_body(r, ct_mul(a, ct_sigmoid(b)));
}
const ct_opdef ct__op_glu = {
    CT_COMPOSED(GLU, glu, 1, 1),
    .doc = "The first half of x along an axis times the sigmoid of the second.",
    CT_FIELDS(glu),
    .accepts = CT_FLOATS,
    .batch = ct__batch_shifted,
    .widens = true,
    .samples = {.ulp = 4},
};
