// Trigonometric and hyperbolic functions with their inverses, and logarithms to base 2 and 10: composed of
// the functions of elementwise.c so that no step overflows before the result does, and results near 0 keep
// their digits.
#include <math.h>

#include "ops/functions.h"

static ct_tensor trig_plus_one(ct_tensor x) { return ct_add(x, ct_f(1)); }
static ct_tensor trig_minus_one(ct_tensor x) { return ct_sub(x, ct_f(1)); }
static ct_tensor trig_one_minus(ct_tensor x) { return ct_sub(ct_f(1), x); }
static ct_tensor trig_square(ct_tensor x) { return ct_mul(x, x); }

// ------------------------------------------------------------------------ trigonometric functions

static bool tan_body(ct_rule *r) {
    return ct__set_body(r, ct_div(ct_sin(r->in[0]), ct_cos(r->in[0])));
}
static bool tan_jvp(ct_rule *r) { return ct__jvp_times(r, trig_plus_one(trig_square(r->out[0]))); }
const ct_opdef ct__op_tan = {
    FUNCTION_WITH_JVP(TAN, tan, 1),
    .doc = "The tangent of x, in radians; right for |x| up to 2^52.",
    .accepts = CT_FLOATS | CT_COMPLEX,
    .onnx = "Tan",
    .stablehlo = "tan",
    .samples = {.lo = -1.4, .hi = 1.4, .ulp = 4, .largest = 0x1p52},
    .split = ct__split_tan,
    .autocast = CT_CAST_F32,
};

// sqrt(1 - x^2), from (1 - x) (1 + x): 1 - x is exact near x = 1.
static ct_tensor trig_sqrt_one_minus_square(ct_tensor x) {
    return ct_sqrt(ct_mul(trig_one_minus(x), trig_plus_one(x)));
}

static bool asin_body(ct_rule *r) {
    return ct__set_body(r, ct_atan2(r->in[0], trig_sqrt_one_minus_square(r->in[0])));
}
static bool asin_jvp(ct_rule *r) {
    return ct__jvp_divided(r, trig_sqrt_one_minus_square(r->in[0]));
}
const ct_opdef ct__op_asin = {
    FUNCTION_WITH_JVP(ASIN, asin, 1),
    .doc = "The angle whose sine is x, from -pi / 2 to pi / 2; NaN outside of -1 to 1.",
    .accepts = CT_FLOATS | CT_COMPLEX,
    .onnx = "Asin",
    .samples = {.lo = -0.9, .hi = 0.9, .ulp = 4},
    .split = ct__split_asin,
    .autocast = CT_CAST_F32,
};

static bool acos_body(ct_rule *r) {
    return ct__set_body(r, ct_atan2(trig_sqrt_one_minus_square(r->in[0]), r->in[0]));
}
static bool acos_jvp(ct_rule *r) {
    return ct__jvp_divided(r, ct_neg(trig_sqrt_one_minus_square(r->in[0])));
}
const ct_opdef ct__op_acos = {
    FUNCTION_WITH_JVP(ACOS, acos, 1),
    .doc = "The angle whose cosine is x, from 0 to pi; NaN outside of -1 to 1.",
    .accepts = CT_FLOATS | CT_COMPLEX,
    .onnx = "Acos",
    .samples = {.lo = -0.9, .hi = 0.9, .ulp = 4},
    .split = ct__split_acos,
    .autocast = CT_CAST_F32,
};

static bool atan_body(ct_rule *r) { return ct__set_body(r, ct_atan2(r->in[0], ct_f(1))); }
static bool atan_jvp(ct_rule *r) {
    return ct__jvp_divided(r, trig_plus_one(trig_square(r->in[0])));
}
const ct_opdef ct__op_atan = {
    FUNCTION_WITH_JVP(ATAN, atan, 1),
    .doc = "The angle whose tangent is x, from -pi / 2 to pi / 2.",
    .accepts = CT_FLOATS | CT_COMPLEX,
    .onnx = "Atan",
    .samples = {.ulp = 3},
    .split = ct__split_atan,
};

// --------------------------------------------------------------------------- hyperbolic functions

// (exp(|x|) - 1) / 2 = e (e / 2 + 1) with e = exp(|x| / 2) - 1, which overflows only if sinh does.
static ct_tensor hyperbolic_half_expm1(ct_tensor x) {
    ct_tensor half = ct_f(0.5), e = ct_expm1(ct_mul(ct_abs(x), half));
    return ct_mul(e, trig_plus_one(ct_mul(e, half)));
}

static bool sinh_body(ct_rule *r) { // with q = (exp(|x|) - 1) / 2: q + q / (2 q + 1)
    // limited, since infinity / infinity would be NaN
    ct_tensor q = hyperbolic_half_expm1(r->in[0]), limited = ct_minimum(q, ct_f(1e30));
    ct_tensor size = ct_add(q, ct_div(limited, trig_plus_one(ct_add(limited, limited))));
    return ct__set_body(r, ct_copysign(size, r->in[0]));
}
static bool sinh_jvp(ct_rule *r) { return ct__jvp_times(r, ct_cosh(r->in[0])); }
const ct_opdef ct__op_sinh = {
    FUNCTION_WITH_JVP(SINH, sinh, 1),
    .doc = "The hyperbolic sine of x, exact near 0.",
    .accepts = CT_FLOATS | CT_COMPLEX,
    .onnx = "Sinh",
    .samples = {.ulp = 4},
    .split = ct__split_sinh,
    .autocast = CT_CAST_F32,
};

static bool cosh_body(ct_rule *r) { // with h = exp(|x|) / 2: h + 1 / (4 h)
    ct_tensor h = ct_add(hyperbolic_half_expm1(r->in[0]), ct_f(0.5));
    return ct__set_body(r, ct_add(h, ct_div(ct_f(0.25), h)));
}
static bool cosh_jvp(ct_rule *r) { return ct__jvp_times(r, ct_sinh(r->in[0])); }
const ct_opdef ct__op_cosh = {
    FUNCTION_WITH_JVP(COSH, cosh, 1),
    .doc = "The hyperbolic cosine of x.",
    .accepts = CT_FLOATS | CT_COMPLEX,
    .onnx = "Cosh",
    .samples = {.ulp = 4},
    .split = ct__split_cosh,
    .autocast = CT_CAST_F32,
};

// log(1 + u), or if x is `large` log(1 + x) + log(2), since the terms of u would overflow.
static ct_tensor hyperbolic_log1p(ct_rule *r, ct_tensor large, ct_tensor x, ct_tensor u) {
    ct_tensor more = ct_select(large, rule_constant(0.69314718055994531, r), ct_f(0));
    return ct_add(ct_log1p(ct_select(large, x, u)), more);
}

static bool asinh_body(ct_rule *r) { // log(1 + x + x x / (1 + sqrt(1 + x x))) of |x|
    ct_tensor x = ct_abs(r->in[0]), square = trig_square(x), root = ct_sqrt(trig_plus_one(square));
    ct_tensor u = ct_add(x, ct_div(square, trig_plus_one(root)));
    ct_tensor size = hyperbolic_log1p(r, ct_greater(x, ct_f(1e18)), x, u);
    return ct__set_body(r, ct_copysign(size, r->in[0]));
}
static bool asinh_jvp(ct_rule *r) {
    return ct__jvp_divided(r, ct_sqrt(trig_plus_one(trig_square(r->in[0]))));
}
const ct_opdef ct__op_asinh = {
    FUNCTION_WITH_JVP(ASINH, asinh, 1),
    .doc = "The number whose hyperbolic sine is x.",
    .accepts = CT_FLOATS | CT_COMPLEX,
    .onnx = "Asinh",
    .samples = {.ulp = 4},
    .split = ct__split_asinh,
};

static bool acosh_body(ct_rule *r) { // log(1 + t + sqrt(t (t + 2))) with t = x - 1
    ct_tensor x = r->in[0];
    ct_tensor t = ct_select(ct_less(x, ct_f(1)), ct_f(NAN), trig_minus_one(x));
    ct_tensor u = ct_add(t, ct_sqrt(ct_mul(t, ct_add(t, ct_f(2)))));
    return ct__set_body(r, hyperbolic_log1p(r, ct_greater(x, ct_f(1e18)), x, u));
}
static bool acosh_jvp(ct_rule *r) {
    return ct__jvp_divided(
        r, ct_mul(ct_sqrt(trig_minus_one(r->in[0])), ct_sqrt(trig_plus_one(r->in[0]))));
}
const ct_opdef ct__op_acosh = {
    FUNCTION_WITH_JVP(ACOSH, acosh, 1),
    .doc = "The number, not negative, whose hyperbolic cosine is x; NaN below 1.",
    .accepts = CT_FLOATS | CT_COMPLEX,
    .onnx = "Acosh",
    .samples = {.lo = 1.1, .hi = 4, .ulp = 4},
    .split = ct__split_acosh,
};

static bool atanh_body(ct_rule *r) { // half of log((1 + x) / (1 - x)) of |x|
    ct_tensor x = ct_abs(r->in[0]), u = ct_div(ct_add(x, x), trig_one_minus(x));
    return ct__set_body(r, ct_copysign(ct_mul(ct_log1p(u), ct_f(0.5)), r->in[0]));
}
static bool atanh_jvp(ct_rule *r) {
    return ct__jvp_divided(r, ct_mul(trig_one_minus(r->in[0]), trig_plus_one(r->in[0])));
}
const ct_opdef ct__op_atanh = {
    FUNCTION_WITH_JVP(ATANH, atanh, 1),
    .doc = "The number whose hyperbolic tangent is x; infinite at -1 and 1, NaN beyond.",
    .accepts = CT_FLOATS | CT_COMPLEX,
    .onnx = "Atanh",
    .samples = {.lo = -0.9, .hi = 0.9, .ulp = 4},
    .split = ct__split_atanh,
};

// ------------------------------------------------------------------------------------- other bases

static bool log2_body(ct_rule *r) {
    ct_frexp_parts x = ct__frexp(r->in[0]);
    return ct__set_body(r, ct_add(x.e, ct_mul(ct_log(x.m), rule_constant(1.4426950408889634, r))));
}
static bool log2_jvp(ct_rule *r) {
    return ct__jvp_divided(r, ct_mul(r->in[0], rule_constant(0.69314718055994531, r)));
}
const ct_opdef ct__op_log2 = {
    FUNCTION_WITH_JVP(LOG2, log2, 1),
    .doc = "The logarithm of x to base 2, exact for powers of 2; -infinity at 0, NaN below.",
    .accepts = CT_FLOATS | CT_COMPLEX,
    .samples = {.lo = 0.25, .hi = 4, .ulp = 3},
    .split = ct__split_log2,
    .autocast = CT_CAST_F32,
};

static bool log10_body(ct_rule *r) { // log10(2) in two parts: the product with the first is exact
    const bool f64 = r->node->out->dtype == CT_F64;
    ct_frexp_parts x = ct__frexp(r->in[0]);
    ct_tensor high = rule_constant(f64 ? 0x1.34413509f6p-2 : 0x1.344p-2, r);
    ct_tensor low = rule_constant(f64 ? 0x1.9fef311f12b36p-42 : 0x1.3509f8p-18, r);
    ct_tensor rest = ct_mul(ct_log(x.m), rule_constant(0.43429448190325182, r));
    return ct__set_body(r, ct_add(ct_mul(x.e, high), ct_add(ct_mul(x.e, low), rest)));
}
static bool log10_jvp(ct_rule *r) {
    return ct__jvp_divided(r, ct_mul(r->in[0], rule_constant(2.3025850929940457, r)));
}
const ct_opdef ct__op_log10 = {
    FUNCTION_WITH_JVP(LOG10, log10, 1),
    .doc = "The logarithm of x to base 10; -infinity at 0, NaN below.",
    .accepts = CT_FLOATS | CT_COMPLEX,
    .samples = {.lo = 0.25, .hi = 4, .ulp = 3},
    .split = ct__split_log10,
    .autocast = CT_CAST_F32,
};
