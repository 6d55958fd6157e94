// Elementwise arithmetic and functions. Operands promote and broadcast; every op rounds to its dtype.
#include <math.h>

#include "kir/kir_math.h"
#include "ops/functions.h"

static ct_tensor elementwise_times(ct_tensor t, ct_tensor factor) {
    return ct__is_none(t) ? CT_NONE : ct_mul(t, factor);
}
static ct_tensor elementwise_negate(ct_tensor t) { return ct__is_none(t) ? CT_NONE : ct_neg(t); }

#define BINARY(ID, op, by, rule)                                                                   \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_elementwise, .n_in = 2, .n_out = 1,           \
    .infer = ct__infer_elementwise, .eval_f64 = op##_f64, .emit = ct__elem_bin,                    \
    .instruction = CT_K_##by, .jvp = rule
#define UNARY(ID, op, by)                                                                          \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_elementwise, .n_in = 1, .n_out = 1,           \
    .infer = ct__infer_elementwise, .eval_f64 = op##_f64, .emit = ct__elem_un,                     \
    .instruction = CT_K_##by
#define MATH(ID, op)                                                                               \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_elementwise, .n_in = 1, .n_out = 1,           \
    .infer = ct__infer_elementwise, .eval_f64 = op##_f64, .emit = ct__elem_math,                   \
    .instruction = CT_MATH_##ID, .work = CT_FUNCTION_WORK, .jvp = op##_jvp

// ------------------------------------------------------------------------------------------ linear

static double add_f64(const double *x) { return x[0] + x[1]; }
static int64_t add_i64(const int64_t *x, ct_dtype d) {
    return (void)d, (int64_t)((uint64_t)x[0] + (uint64_t)x[1]);
}
static bool add_jvp(ct_rule *r) { return ct__set_tangent(r, ct__add_zero(r->t_in[0], r->t_in[1])); }
static bool add_transpose(ct_rule *r) {
    for (int i = 0; i < 2; i++)
        if (r->linear[i]) r->c_in[i] = r->c_out[0];
    return true;
}
const ct_opdef ct__op_add = {
    BINARY(ADD, add, ADD, add_jvp),
    .doc = "a + b.",
    .accepts = CT_NUMBERS | CT_COMPLEX,
    .eval_i64 = add_i64,
    .transpose = add_transpose,
    .onnx = "Add",
    .stablehlo = "add",
    .split = ct__split_each,
    .data = 3,
};

static double sub_f64(const double *x) { return x[0] - x[1]; }
static int64_t sub_i64(const int64_t *x, ct_dtype d) {
    return (void)d, (int64_t)((uint64_t)x[0] - (uint64_t)x[1]);
}
static bool sub_jvp(ct_rule *r) {
    if (ct__is_none(r->t_in[0]))
        r->t_out[0] = elementwise_negate(r->t_in[1]);
    else
        r->t_out[0] = ct__is_none(r->t_in[1]) ? r->t_in[0] : ct_sub(r->t_in[0], r->t_in[1]);
    return true;
}
static bool sub_transpose(ct_rule *r) {
    if (r->linear[0]) r->c_in[0] = r->c_out[0];
    if (r->linear[1]) r->c_in[1] = ct_neg(r->c_out[0]);
    return true;
}
const ct_opdef ct__op_sub = {
    BINARY(SUB, sub, SUB, sub_jvp),
    .doc = "a - b.",
    .accepts = CT_NUMBERS | CT_COMPLEX,
    .eval_i64 = sub_i64,
    .transpose = sub_transpose,
    .onnx = "Sub",
    .stablehlo = "subtract",
    .neutral = {0, false, true},
    .split = ct__split_each,
    .data = 3,
};

static double neg_f64(const double *x) { return -x[0]; }
static int64_t neg_i64(const int64_t *x, ct_dtype d) {
    return (void)d, (int64_t)(0 - (uint64_t)x[0]);
}
static bool neg_transpose(ct_rule *r) { return ct__set_cotangent(r, ct_neg(r->c_out[0])); }
const ct_opdef ct__op_neg = {
    UNARY(NEG, neg, NEG),
    .jvp = ct__jvp_same,
    .doc = "-x.",
    .accepts = CT_NUMBERS | CT_COMPLEX,
    .eval_i64 = neg_i64,
    .transpose = neg_transpose,
    .onnx = "Neg",
    .stablehlo = "negate",
    .involution = true,
    .split = ct__split_each,
    .data = 1,
};

static double mul_f64(const double *x) { return x[0] * x[1]; }
static int64_t mul_i64(const int64_t *x, ct_dtype d) {
    return (void)d, (int64_t)((uint64_t)x[0] * (uint64_t)x[1]);
}
static bool mul_jvp(ct_rule *r) {
    return ct__set_tangent(r, ct__add_zero(elementwise_times(r->t_in[0], r->in[1]),
                                           elementwise_times(r->t_in[1], r->in[0])));
}
static bool mul_transpose(ct_rule *r) { // linear in one operand at a time: the other is a factor
    if (r->linear[0])
        r->c_in[0] = ct_mul(r->c_out[0], r->in[1]);
    else
        r->c_in[1] = ct_mul(r->c_out[0], r->in[0]);
    return true;
}
const ct_opdef ct__op_mul = {
    BINARY(MUL, mul, MUL, mul_jvp),
    .doc = "a * b.",
    .accepts = CT_NUMBERS | CT_COMPLEX,
    .eval_i64 = mul_i64,
    .transpose = mul_transpose,
    .onnx = "Mul",
    .stablehlo = "multiply",
    .neutral = {1, true, true},
    .split = ct__split_mul,
};

static double div_f64(const double *x) { return x[0] / x[1]; }
static int64_t div_i64(const int64_t *x, ct_dtype d) {
    if (x[1] == 0) return 0;
    if (d == CT_U64) return (int64_t)((uint64_t)x[0] / (uint64_t)x[1]);
    return x[1] == -1 ? (int64_t)(0 - (uint64_t)x[0]) : x[0] / x[1];
}
static bool div_jvp(ct_rule *r) { // (a / b)' = (a' - (a / b) b') / b
    ct_tensor t = elementwise_times(r->t_in[1], r->out[0]);
    if (ct__is_none(r->t_in[0]))
        t = elementwise_negate(t);
    else
        t = ct__is_none(t) ? r->t_in[0] : ct_sub(r->t_in[0], t);
    return ct__set_tangent(r, ct_div(t, r->in[1]));
}
static bool div_transpose(ct_rule *r) {
    return ct__set_cotangent(r, ct_div(r->c_out[0], r->in[1]));
}
const ct_opdef ct__op_div = {
    BINARY(DIV, div, DIV, div_jvp),
    .doc = "a / b. Integers: towards zero, and 0 where b is 0.",
    .accepts = CT_NUMBERS | CT_COMPLEX,
    .eval_i64 = div_i64,
    .transpose = div_transpose,
    .onnx = "Div",
    .stablehlo = "divide",
    .samples = {.lo = 0.5, .hi = 3},
    .neutral = {1, false, true},
    .work = CT_DIVISION_WORK,
    .split = ct__split_div,
};

static double mod_f64(const double *x) { return fmod(x[0], x[1]); }
static int64_t mod_i64(const int64_t *x, ct_dtype d) {
    if (d == CT_U64) return x[1] ? (int64_t)((uint64_t)x[0] % (uint64_t)x[1]) : 0;
    return x[1] == 0 || x[1] == -1 ? 0 : x[0] % x[1];
}
static bool mod_jvp(ct_rule *r) { // a - trunc(a / b) b
    ct_tensor quotient = ct_div(r->in[0], r->in[1]);
    ct_tensor whole = ct_select(ct_less(quotient, ct_f(0)), ct_ceil(quotient), ct_floor(quotient));
    return ct__set_tangent(
        r, ct__add_zero(r->t_in[0], elementwise_negate(elementwise_times(r->t_in[1], whole))));
}
const ct_opdef ct__op_mod = {
    BINARY(MOD, mod, MOD, mod_jvp),
    .doc = "The remainder of a / b, with the sign of a. Integers: 0 where b is 0.",
    .accepts = CT_INTEGERS | CT_FLOATS,
    .eval_i64 = mod_i64,
    .onnx = "Mod",
    .stablehlo = "remainder",
    .samples = {.lo = 0.5, .hi = 3, .jumps = true, .kinks = true},
    .work = CT_FUNCTION_WORK,
};

// ---------------------------------------------------------------------------------- order and size

static double abs_f64(const double *x) { return fabs(x[0]); }
static int64_t abs_i64(const int64_t *x, ct_dtype d) {
    return x[0] < 0 && d != CT_U64 ? (int64_t)(0 - (uint64_t)x[0]) : x[0];
}
static bool abs_infer(ct_call *call) {
    if (!ct__infer_elementwise(call)) return false;
    const ct_dtype dtype = (ct_dtype)call->out->dtype;
    if (ct__is_complex(dtype)) call->out->dtype = (uint8_t)ct__part(dtype);
    return true;
}
static bool complex_abs_jvp(ct_rule *r) { // the real part of conj(x) x' / |x|
    ct_tensor none = ct_equal(r->out[0], ct_f(0));
    ct_tensor real_product = ct_real(ct_mul(r->t_in[0], ct_conj(r->in[0])));
    return ct__set_tangent(r, ct_div(real_product, ct_select(none, ct_f(1), r->out[0])));
}
static bool abs_jvp(ct_rule *r) { // the derivative at 0 is 0
    if (ct__is_complex((ct_dtype)ct__type_of(r->in[0])->dtype)) return complex_abs_jvp(r);
    ct_tensor zero = ct_f(0);
    ct_tensor sign = ct_select(ct_less(r->in[0], zero), ct_f(-1),
                               ct_select(ct_greater(r->in[0], zero), ct_f(1), zero));
    return ct__jvp_times(r, sign);
}
const ct_opdef ct__op_abs = {
    CT_OP(ABS, abs, elementwise, 1, 1),
    .doc = "The absolute value of x, of complex numbers too; its slope at 0 is 0.",
    .accepts = CT_NUMBERS | CT_COMPLEX,
    .split = ct__split_abs,
    .infer = abs_infer,
    .eval_f64 = abs_f64,
    .eval_i64 = abs_i64,
    .jvp = abs_jvp,
    .emit = ct__elem_un,
    .instruction = CT_K_ABS,
    .onnx = "Abs",
    .stablehlo = "abs",
    .samples = {.kinks = true},
};

// Tangent of the chosen operand; if both are equal each gets a half, and if one is NaN both get all of it. It is
// selected, not multiplied by 0, so that an infinite one of the other operand is not seen.
static bool minmax_jvp(ct_rule *r) {
    ct_tensor is_nan = ct_not_equal(r->out[0], r->out[0]), t[2];
    ct_tensor share = ct_select(ct_equal(r->in[0], r->in[1]), ct_f(0.5), ct_f(1));
    for (int i = 0; i < 2; i++) {
        ct_tensor chosen = ct_or(is_nan, ct_equal(r->out[0], r->in[i])), given = r->t_in[i];
        t[i] = ct__is_none(given) ? given
                                  : ct_select(chosen, elementwise_times(given, share), ct_f(0));
    }
    return ct__set_tangent(r, ct__add_zero(t[0], t[1]));
}
static double maximum_f64(const double *x) { return ct__max_f64(x[0], x[1]); }
static int64_t maximum_i64(const int64_t *x, ct_dtype d) {
    return ct__less_i64(x[1], x[0], d) ? x[0] : x[1];
}
const ct_opdef ct__op_maximum = {
    BINARY(MAXIMUM, maximum, MAX, minmax_jvp),
    .doc = "The larger of a and b, -0 below 0; NaN where either is.",
    .accepts = CT_NUMBERS,
    .eval_i64 = maximum_i64,
    .onnx = "Max",
    .stablehlo = "maximum",
    .samples = {.kinks = true},
};
static double minimum_f64(const double *x) { return ct__min_f64(x[0], x[1]); }
static int64_t minimum_i64(const int64_t *x, ct_dtype d) {
    return ct__less_i64(x[0], x[1], d) ? x[0] : x[1];
}
const ct_opdef ct__op_minimum = {
    BINARY(MINIMUM, minimum, MIN, minmax_jvp),
    .doc = "The smaller of a and b, -0 below 0; NaN where either is.",
    .accepts = CT_NUMBERS,
    .eval_i64 = minimum_i64,
    .onnx = "Min",
    .stablehlo = "minimum",
    .samples = {.kinks = true},
};

static double floor_f64(const double *x) { return floor(x[0]); }
const ct_opdef ct__op_floor = {
    UNARY(FLOOR, floor, FLOOR),
    .doc = "The largest whole number that is at most x; no gradient.",
    .accepts = CT_FLOATS,
    .jvp = CT_NO_GRAD,
    .onnx = "Floor",
    .stablehlo = "floor",
};
static double ceil_f64(const double *x) { return ceil(x[0]); }
const ct_opdef ct__op_ceil = {
    UNARY(CEIL, ceil, CEIL), .doc = "The smallest whole number that is at least x; no gradient.",
    .accepts = CT_FLOATS,    .jvp = CT_NO_GRAD,
    .onnx = "Ceil",          .stablehlo = "ceil",
};
static double round_f64(const double *x) { return nearbyint(x[0]); }
const ct_opdef ct__op_round = {
    UNARY(ROUND, round, ROUND),
    .doc = "The nearest whole number, halves to the even one; no gradient.",
    .accepts = CT_FLOATS,
    .jvp = CT_NO_GRAD,
    .onnx = "Round",
    .stablehlo = "round_nearest_even",
};

// --------------------------------------------------------------------------------------- functions

static double sqrt_f64(const double *x) { return sqrt(x[0]); }
static bool sqrt_jvp(ct_rule *r) {
    return ct__set_tangent(r, ct_div(ct_mul(r->t_in[0], ct_f(0.5)), r->out[0]));
}
const ct_opdef ct__op_sqrt = {
    UNARY(SQRT, sqrt, SQRT),
    .jvp = sqrt_jvp,
    .doc = "The square root of x; NaN below 0.",
    .accepts = CT_FLOATS | CT_COMPLEX,
    .onnx = "Sqrt",
    .stablehlo = "sqrt",
    .samples = {.lo = 0.25, .hi = 4},
    .work = CT_DIVISION_WORK,
    .split = ct__split_sqrt,
};

static double exp_f64(const double *x) { return exp(x[0]); }
static bool exp_jvp(ct_rule *r) { return ct__jvp_times(r, r->out[0]); }
const ct_opdef ct__op_exp = {
    MATH(EXP, exp),         .doc = "e to the power x.", .accepts = CT_FLOATS | CT_COMPLEX,
    .onnx = "Exp",          .stablehlo = "exponential", .samples = {.ulp = 2},
    .split = ct__split_exp, .autocast = CT_CAST_F32,
};

static double exp2_f64(const double *x) { return exp2(x[0]); }
static bool exp2_jvp(ct_rule *r) {
    return ct__jvp_times(r, ct_mul(r->out[0], ct__number_like(0.69314718055994531, r->in[0])));
}
const ct_opdef ct__op_exp2 = {
    MATH(EXP2, exp2),
    .doc = "2 to the power x, exact for whole x.",
    .accepts = CT_FLOATS,
    .samples = {.ulp = 2},
};

static double log_f64(const double *x) { return log(x[0]); }
static bool log_jvp(ct_rule *r) { return ct__set_tangent(r, ct_div(r->t_in[0], r->in[0])); }
const ct_opdef ct__op_log = {
    MATH(LOG, log),
    .doc = "The natural logarithm of x; -infinity at 0, NaN below.",
    .accepts = CT_FLOATS | CT_COMPLEX,
    .onnx = "Log",
    .stablehlo = "log",
    .samples = {.lo = 0.25, .hi = 4, .ulp = 2},
    .split = ct__split_log,
    .autocast = CT_CAST_F32,
};

static double expm1_f64(const double *x) { return expm1(x[0]); }
static bool expm1_jvp(ct_rule *r) { return ct__jvp_times(r, ct_add(r->out[0], ct_f(1))); }
const ct_opdef ct__op_expm1 = {
    MATH(EXPM1, expm1),
    .doc = "e to the power x, minus 1, exact near 0.",
    .accepts = CT_FLOATS | CT_COMPLEX,
    .stablehlo = "exponential_minus_one",
    .samples = {.ulp = 2},
    .split = ct__split_expm1,
    .autocast = CT_CAST_F32,
};

static double log1p_f64(const double *x) { return log1p(x[0]); }
static bool log1p_jvp(ct_rule *r) {
    return ct__set_tangent(r, ct_div(r->t_in[0], ct_add(r->in[0], ct_f(1))));
}
const ct_opdef ct__op_log1p = {
    MATH(LOG1P, log1p),
    .doc = "The natural logarithm of 1 + x, exact near 0.",
    .accepts = CT_FLOATS | CT_COMPLEX,
    .stablehlo = "log_plus_one",
    .samples = {.lo = -0.75, .hi = 3, .ulp = 2},
    .split = ct__split_log1p,
    .autocast = CT_CAST_F32,
};

static double sin_f64(const double *x) { return sin(x[0]); }
static bool sin_jvp(ct_rule *r) { return ct__jvp_times(r, ct_cos(r->in[0])); }
const ct_opdef ct__op_sin = {
    MATH(SIN, sin),
    .doc = "The sine of x, in radians; right for |x| up to 2^52.",
    .accepts = CT_FLOATS | CT_COMPLEX,
    .onnx = "Sin",
    .stablehlo = "sine",
    .samples = {.ulp = 2, .largest = 0x1p52},
    .split = ct__split_sin,
};
static double cos_f64(const double *x) { return cos(x[0]); }
static bool cos_jvp(ct_rule *r) { return ct__jvp_times(r, ct_neg(ct_sin(r->in[0]))); }
const ct_opdef ct__op_cos = {
    MATH(COS, cos),
    .doc = "The cosine of x, in radians; right for |x| up to 2^52.",
    .accepts = CT_FLOATS | CT_COMPLEX,
    .onnx = "Cos",
    .stablehlo = "cosine",
    .samples = {.ulp = 2, .largest = 0x1p52},
    .split = ct__split_cos,
};

static double tanh_f64(const double *x) { return tanh(x[0]); }
static bool tanh_jvp(ct_rule *r) {
    return ct__jvp_times(r, ct_sub(ct_f(1), ct_mul(r->out[0], r->out[0])));
}
const ct_opdef ct__op_tanh = {
    MATH(TANH, tanh),
    .doc = "The hyperbolic tangent of x.",
    .accepts = CT_FLOATS | CT_COMPLEX,
    .onnx = "Tanh",
    .stablehlo = "tanh",
    .samples = {.ulp = 2},
    .split = ct__split_tanh,
};

static double erf_f64(const double *x) { return erf(x[0]); }
static bool erf_jvp(ct_rule *r) { // 2 / sqrt(pi) exp(-x x)
    ct_tensor bell = ct_exp(ct_neg(ct_mul(r->in[0], r->in[0])));
    return ct__jvp_times(r, ct_mul(bell, ct__number_like(1.1283791670955126, r->in[0])));
}
const ct_opdef ct__op_erf = {
    MATH(ERF, erf),        .doc = "The error function of x.", .accepts = CT_FLOATS, .onnx = "Erf",
    .samples = {.ulp = 2},
};

static double stop_gradient_f64(const double *x) { return x[0]; }
static int64_t stop_gradient_i64(const int64_t *x, ct_dtype d) { return (void)d, x[0]; }
static ct_kval stop_gradient_emit(const ct_elem *e) { return e->x[0]; }
const ct_opdef ct__op_stop_gradient = {
    CT_OP(STOP_GRADIENT, stop_gradient, elementwise, 1, 1),
    .doc = "x, through which no gradient flows.",
    .accepts = CT_ANY,
    .split = ct__split_each,
    .data = 1,
    .infer = ct__infer_elementwise,
    .eval_f64 = stop_gradient_f64,
    .eval_i64 = stop_gradient_i64,
    .jvp = CT_NO_GRAD,
    .emit = stop_gradient_emit,
    .unchanged = ct__always_unchanged,
};

static double trunc_f64(const double *x) { return trunc(x[0]); }
const ct_opdef ct__op_trunc = {
    UNARY(TRUNC, trunc, TRUNC),
    .doc = "x without its fraction, towards 0; no gradient.",
    .accepts = CT_FLOATS,
    .jvp = CT_NO_GRAD,
};

// (atan(t) - t) / t^3 in t^2, for t up to tan(pi / 8) (scripts/math-coefficients.py)
static const double atan_p_f32[] = {-0.333333313, 0.199995399, -0.142639503, 0.107436687,
                                    -0.0645171851};
static const double atan_p_f64[] = {
    -0.3333333333333333,   0.19999999999995516, -0.14285714284665682, 0.11111111015187018,
    -0.0909090457530649,   0.07692183125376892, -0.06664510525508936, 0.05858140904866328,
    -0.050854078345894844, 0.03923044778479309, -0.019175404711104935};

// fraction * pi - r, with pi in two parts so that the difference rounds once.
static ct_kval atan_complement(ct_kir *k, ct_dtype d, double fraction, ct_kval r) {
    double high = d == CT_F64 ? 0x1.921fb54442d18p+1 : 0x1.921fb6p+1;
    double low = d == CT_F64 ? 0x1.1a62633145c07p-53 : -0x1.777a5cp-24;
    r = ct__kir_sub(k, r, ct__kir_const(k, d, fraction * low));
    return ct__kir_sub(k, ct__kir_const(k, d, fraction * high), r);
}
// Computes the angle in the first octant, whose tangent t is the smaller of |y| and |x| divided by the larger
// one (1 if they are equal, 0 if both are 0), reduced to t <= tan(pi / 8), and maps it back to the octant of
// the point.
static ct_kval atan2_emit(const ct_elem *e) {
    ct_kir *k = e->k;
    ct_dtype d = e->dtype == CT_F64 ? CT_F64 : CT_F32;
    ct_kval zero = ct__kir_const(k, d, 0), one = ct__kir_const(k, d, 1);
    ct_kval y = ct__kir_un(k, CT_K_ABS, e->x[0]), x = ct__kir_un(k, CT_K_ABS, e->x[1]);
    ct_kval small = ct__kir_min(k, y, x), large = ct__kir_max(k, y, x);
    ct_kval none = ct__kir_bin(k, CT_K_EQ, large, zero);
    ct_kval t = ct__kir_div(k, small, large), end = ct__kir_select(k, none, zero, one);
    t = ct__kir_select(k, ct__kir_bin(k, CT_K_EQ, small, large), end, t);
    ct_kval steep = ct__kir_lt(k, ct__kir_const(k, d, 0.41421356237309503), t);
    ct_kval rest = ct__kir_add(k, one, t);
    rest = ct__kir_div(k, ct__kir_sub(k, one, t), rest);
    t = ct__kir_select(k, steep, rest, t);
    ct_kval z = ct__kir_mul(k, t, t);
    ct_kval p =
        d == CT_F64 ? ct__kir_poly(k, d, atan_p_f64, 11, z) : ct__kir_poly(k, d, atan_p_f32, 5, z);
    ct_kval r = ct__kir_fma(k, ct__kir_mul(k, t, z), p, t);
    r = ct__kir_select(k, steep, atan_complement(k, d, 0.25, r), r);
    ct_kval upper = atan_complement(k, d, 0.5, r);
    r = ct__kir_select(k, ct__kir_lt(k, x, y), upper, r);
    ct_kval left = ct__kir_lt(k, ct__kir_copy_sign(k, one, e->x[1]), zero); // also for -0
    return ct__kir_copy_sign(k, ct__kir_select(k, left, atan_complement(k, d, 1, r), r), e->x[0]);
}
static double atan2_f64(const double *x) { return atan2(x[0], x[1]); }
static bool atan2_jvp(ct_rule *r) { // (y' x - x' y) / (x x + y y)
    ct_tensor y = r->in[0], x = r->in[1];
    ct_tensor t = ct__add_zero(elementwise_times(r->t_in[0], x),
                               elementwise_negate(elementwise_times(r->t_in[1], y)));
    ct_tensor by = ct_add(ct_mul(x, x), ct_mul(y, y)), zero = ct_f(0);
    return ct__set_tangent(r, ct_div(t, ct_select(ct_equal(by, zero), ct_f(1), by))); // 0 at (0, 0)
}
const ct_opdef ct__op_atan2 = {
    CT_OP(ATAN2, atan2, elementwise, 2, 1),
    .infer = ct__infer_elementwise,
    .eval_f64 = atan2_f64,
    .emit = atan2_emit,
    .doc = "The angle of the point (x, y), from -pi to pi; its gradient at (0, 0) is 0.",
    .accepts = CT_FLOATS,
    .jvp = atan2_jvp,
    .stablehlo = "atan2",
    .samples = {.ulp = 3, .jumps = true},
    .work = CT_FUNCTION_WORK,
};
