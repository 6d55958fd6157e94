// Elementwise functions that are composed of other functions.
#include <math.h>

#include "ops/functions.h"

// ------------------------------------------------------------------------------------------ powers

static bool square_body(ct_rule *r) { return ct__set_body(r, ct_mul(r->in[0], r->in[0])); }
const ct_opdef ct__op_square = {
    FUNCTION(SQUARE, square, 1),
    .doc = "x * x.",
    .accepts = CT_NUMBERS | CT_COMPLEX,
};

static bool reciprocal_body(ct_rule *r) { return ct__set_body(r, ct_div(ct_f(1), r->in[0])); }
const ct_opdef ct__op_reciprocal = {
    FUNCTION(RECIPROCAL, reciprocal, 1), .doc = "1 / x.",
    .accepts = CT_FLOATS | CT_COMPLEX,   .onnx = "Reciprocal",
    .samples = {.lo = 0.5, .hi = 3},     .autocast = CT_CAST_F32,
};

static bool rsqrt_body(ct_rule *r) { return ct__set_body(r, ct_div(ct_f(1), ct_sqrt(r->in[0]))); }
const ct_opdef ct__op_rsqrt = {
    FUNCTION(RSQRT, rsqrt, 1),
    .doc = "1 / sqrt(x).",
    .accepts = CT_FLOATS,
    .stablehlo = "rsqrt",
    .samples = {.lo = 0.25, .hi = 4, .ulp = 1},
    .autocast = CT_CAST_F32,
};

ct_frexp_parts ct__frexp(ct_tensor x) {
    const ct_dtype dtype = (ct_dtype)ct__type_of(x)->dtype;
    const ct_float_bits of = ct__float_bits(dtype);
    const bool f64 = dtype == CT_F64;
    ct_tensor zero = ct_f(0);
    ct_tensor plain = ct_and(ct_less(zero, x), ct_less(x, ct_f(INFINITY)));
    ct_tensor subnormal = ct_less(x, ct__number_like(f64 ? 0x1p-1022 : 0x1p-126, x));
    ct_tensor scaled =
        ct_select(subnormal, ct_mul(x, ct__number_like(f64 ? 0x1p54 : 0x1p24, x)), x);
    ct_tensor bits = ct_bitcast(scaled, of.dtype), by = ct_i(of.mantissa);
    // exponents are counted from sqrt(1/2), so that the bits are never negative
    const int64_t from =
        ((int64_t)of.bias << of.mantissa) - (f64 ? 0x3fe6a09e667f3bcd : 0x3f3504f3);
    ct_tensor shift = ct_cast(ct_const(&from, CT_I64, CT_SCALAR), of.dtype);
    ct_tensor e = ct_sub(ct_shift_right(ct_add(bits, shift), by), ct_i(of.bias));
    ct_tensor m = ct_bitcast(ct_sub(bits, ct_shift_left(e, by)), dtype);
    ct_tensor added = ct_select(subnormal, ct_f(f64 ? 54 : 24), zero);
    return (ct_frexp_parts){ct_select(plain, m, x),
                            ct_select(plain, ct_sub(ct_cast(e, dtype), added), zero)};
}

static ct_pair functions_exact_sum(ct_tensor a, ct_tensor b) { // Knuth's TwoSum
    ct_tensor sum = ct_add(a, b), part = ct_sub(sum, a);
    return (ct_pair){sum, ct_add(ct_sub(a, ct_sub(sum, part)), ct_sub(b, part))};
}
static ct_pair functions_split_digits(ct_tensor x) { // Dekker's split into halves of the digits
    const double cut = ct__type_of(x)->dtype == CT_F64 ? 0x1p27 + 1 : 0x1p12 + 1;
    ct_tensor wide = ct_mul(x, ct__number_like(cut, x));
    ct_tensor high = ct_sub(wide, ct_sub(wide, x));
    return (ct_pair){high, ct_sub(x, high)};
}
ct_pair ct__exact_product(ct_tensor a, ct_tensor b) { // Dekker's product
    ct_pair x = functions_split_digits(a), y = functions_split_digits(b);
    ct_tensor product = ct_mul(a, b), rest = ct_sub(ct_mul(x.high, y.high), product);
    rest = ct_add(ct_add(rest, ct_mul(x.high, y.low)), ct_mul(x.low, y.high));
    return (ct_pair){product, ct_add(rest, ct_mul(x.low, y.low))};
}
// log(x) of a positive f64. With s = f / (2 + f): log(1 + f) = 2 s + s^3 (2 / 3 + ...).
static ct_pair pow_log(ct_tensor x) {
    static const double series[] = {0.6666666666666666,  0.4000000000000088,  0.28571428570803253,
                                    0.22222222391794727, 0.18181795631498243, 0.15386240172447838,
                                    0.13268760562036724, 0.1308675766695207}; // log_r of kir_math.c
    ct_frexp_parts parts = ct__frexp(x);
    ct_tensor f = ct_sub(parts.m, ct_f(1)), by = ct_add(f, ct_f(2));
    ct_tensor s = ct_div(f, by), square = ct_mul(s, s);
    ct_pair product = ct__exact_product(s, by);
    ct_tensor lost = ct_mul(s, ct_sub(f, ct_sub(by, ct_f(2)))); // the rounding error of 2 + f
    ct_tensor rest = ct_sub(ct_sub(ct_sub(f, product.high), product.low), lost);
    // 2 / (2 + f) to seven bits, which suffice for the small rest
    ct_tensor near = ct_sub(ct_f(1), ct_mul(f, ct_sub(ct_f(0.5), ct_mul(f, ct_f(0.25)))));
    ct_tensor tail = ct__number_like(series[7], x);
    for (int i = 6; i >= 0; i--) tail = ct_add(ct_mul(tail, square), ct__number_like(series[i], x));
    tail = ct_add(ct_mul(ct_mul(s, square), tail), ct_mul(rest, near));
    ct_pair sum =
        functions_exact_sum(ct_mul(parts.e, ct__number_like(0x1.62e42p-1, x)), ct_add(s, s));
    tail = ct_add(tail, ct_mul(parts.e, ct__number_like(0x1.fdf473de6af28p-22, x)));
    tail = ct_add(tail, sum.low);
    ct_tensor high = ct_add(sum.high, tail);
    return (ct_pair){high, ct_sub(tail, ct_sub(high, sum.high))};
}
// size^y in f64.
static ct_tensor pow_f64(ct_tensor size, ct_tensor y) {
    ct_tensor far = ct__number_like(1e25, y), infinity = ct_f(INFINITY), zero = ct_f(0);
    ct_pair log = pow_log(size);
    // larger exponents give 0 or infinity
    ct_tensor by = ct_minimum(ct_maximum(y, ct_neg(far)), far);
    ct_pair exponent = ct__exact_product(by, log.high);
    ct_tensor rest = ct_add(exponent.low, ct_mul(by, log.low));
    // for 0 and infinity
    ct_tensor none = ct_equal(size, zero), all = ct_equal(size, infinity);
    ct_tensor end = ct_select(none, ct_f(-INFINITY), ct_select(all, infinity, log.high));
    ct_tensor plain = ct_or(ct_or(none, all), ct_equal(ct_abs(y), infinity));
    ct_tensor value = ct_exp(ct_select(plain, ct_mul(y, end), exponent.high));
    plain = ct_or(plain, ct_or(ct_equal(value, zero), ct_equal(value, infinity)));
    // determines the rounding error of exp, so that exact results are exact
    ct_pair got = pow_log(value);
    rest = ct_add(rest, ct_sub(ct_sub(exponent.high, got.high), got.low));
    return ct_select(plain, value, ct_add(value, ct_mul(value, rest)));
}

// |x|^y as exp(y log|x|) loses digits as the exponent grows, so f32 computes it in f64, and f64 in twice f64;
// then come the special cases that the formula does not cover, as in C's pow.
static bool complex_pow_body(ct_rule *r, ct_dtype dtype) {
    ct_tensor x = ct_cast(r->in[0], CT_C128), y = ct_cast(r->in[1], CT_C128), zero = ct_f(0);
    ct_tensor value = ct_exp(ct_mul(y, ct_log(x)));
    ct_tensor of_zero = ct_select(ct_equal(y, zero), ct_f(1), zero);
    return ct__set_body(r, ct_cast(ct_select(ct_equal(x, zero), of_zero, value), dtype));
}
// The product of the powers x^1, x^2, x^4, ... for which y has a bit, modulo the dtype's range. For a
// negative y this is correct for 1 and -1.
static bool whole_pow_body(ct_rule *r, ct_dtype dtype) {
    ct_tensor x = ct_cast(r->in[0], dtype), y = ct_cast(r->in[1], dtype), zero = ct_i(0);
    ct_tensor one = ct_i(1), power = x, product = one;
    for (int bit = 0; bit < ct_dtype_bits(dtype); bit++) {
        ct_tensor has = ct_not_equal(ct_and(ct_shift_right(y, ct_i(bit)), one), zero);
        product = ct_mul(product, ct_select(has, power, one));
        power = ct_mul(power, power);
    }
    ct_tensor small = ct_and(ct_less(y, zero), ct_not_equal(ct_abs(x), one));
    return ct__set_body(r, ct_select(small, zero, product));
}
static bool pow_body(ct_rule *r) {
    ct_dtype dtype = r->node->out->dtype;
    if (ct__is_complex(dtype)) return complex_pow_body(r, dtype);
    if (!ct__is_float(dtype)) return whole_pow_body(r, dtype);
    ct_tensor x = ct_cast(r->in[0], dtype), y = ct_cast(r->in[1], dtype);
    ct_tensor zero = ct_f(0), one = ct_f(1), size = ct_abs(x);
    ct_tensor value = CT_NONE;
    if (dtype == CT_F64)
        value = pow_f64(size, y);
    else
        value = ct_cast(ct_exp(ct_mul(ct_cast(y, CT_F64), ct_log(ct_cast(size, CT_F64)))), dtype);
    ct_tensor whole = ct_equal(ct_floor(y), y); // infinities count as even integers
    ct_tensor half = ct_mul(y, ct_f(0.5));
    ct_tensor odd = ct_and(whole, ct_not_equal(ct_floor(half), half));
    ct_tensor bits = ct_bitcast(x, dtype == CT_F64 ? CT_I64 : CT_I32);
    ct_tensor minus = ct_less(bits, ct_i(0)); // a negative base or -0
    value = ct_select(ct_and(minus, odd), ct_neg(value), value);
    ct_tensor lost = ct_and(ct_less(x, zero), ct_and(ct_not(whole), ct_less(size, ct_f(INFINITY))));
    value = ct_select(lost, ct_f(NAN), value);
    ct_tensor plain = ct_or(ct_equal(y, zero), ct_equal(x, one));
    ct_tensor turning = ct_and(ct_equal(size, one), ct_equal(ct_abs(y), ct_f(INFINITY)));
    return ct__set_body(r, ct_select(ct_or(plain, turning), one, value));
}
static bool pow_jvp(ct_rule *r) { // y x^(y - 1) x' + x^y log(x) y'
    ct_tensor x = r->in[0], y = r->in[1], zero = ct_f(0), t[2] = {CT_NONE, CT_NONE};
    if (!ct__is_none(r->t_in[0])) {
        ct_tensor lower = ct_mul(y, ct_pow(x, ct_sub(y, ct_f(1))));
        t[0] = ct_mul(r->t_in[0], ct_select(ct_equal(y, zero), zero, lower));
    }
    if (!ct__is_none(r->t_in[1])) {
        ct_tensor base = ct_cast(x, ct_dtype_of(r->out[0])); // it may be an integer
        const bool complex = ct__is_complex(ct_dtype_of(y));
        ct_tensor up = ct_greater_equal(complex ? ct_real(y) : y, zero);
        ct_tensor none = ct_and(ct_equal(x, zero), up); // else infinite
        ct_tensor log = ct_select(none, zero, ct_log(base));
        t[1] = ct_mul(r->t_in[1], ct_mul(r->out[0], log));
    }
    return ct__set_tangent(r, ct__add_zero(t[0], t[1]));
}
const ct_opdef ct__op_pow = {
    FUNCTION_WITH_JVP(POW, pow, 2),
    .doc = "x to the power y; NaN for a negative x and a y that is not whole. Of complex numbers "
           "exp(y log(x)), and 0 of an x that is 0, but 1 to the power 0. Integers wrap; to a "
           "negative "
           "power they are 0, but for 1 and -1.",
    .accepts = CT_NUMBERS | CT_COMPLEX,
    .onnx = "Pow",
    .stablehlo = "power",
    .samples = {.lo = 0.5, .hi = 2, .ulp = 1},
    .autocast = CT_CAST_F32,
};

// ------------------------------------------------------------------------------------------- order

static bool sign_body(ct_rule *r) { // 0, -0 and NaN are unchanged
    ct_tensor x = r->in[0], zero = ct_i(0);
    return ct__set_body(
        r, ct_select(ct_less(x, zero), ct_i(-1), ct_select(ct_greater(x, zero), ct_i(1), x)));
}
const ct_opdef ct__op_sign = {
    FUNCTION(SIGN, sign, 1),
    .doc =
        "-1, 0 or 1 as x is negative, zero or positive; NaN of NaN; of complex numbers x / |x|. No "
        "gradient.",
    .accepts = CT_NUMBERS | CT_COMPLEX,
    .split = ct__split_sign,
    .jvp = CT_NO_GRAD,
    .onnx = "Sign",
    .stablehlo = "sign",
};

static bool clamp_body(ct_rule *r) {
    return ct__set_body(r, ct_minimum(ct_maximum(r->in[0], r->in[1]), r->in[2]));
}
// At both limits x has the gradient; if low is above high, high has it.
static bool clamp_jvp(ct_rule *r) {
    ct_tensor x = r->in[0], low = r->in[1], high = r->in[2], zero = ct_f(0);
    const ct_tensor own[3] = {
        ct_and(ct_less_equal(low, x), ct_less_equal(x, high)),
        ct_and(ct_less(x, low), ct_less(low, high)),
        ct_or(ct_less(high, x), ct_less(high, low)),
    };
    r->t_out[0] = CT_NONE;
    for (int i = 0; i < 3; i++)
        if (!ct__is_none(r->t_in[i]))
            r->t_out[0] = ct__add_zero(r->t_out[0], ct_select(own[i], r->t_in[i], zero));
    return true;
}
const ct_opdef ct__op_clamp = {
    FUNCTION_WITH_JVP(CLAMP, clamp, 3),
    .doc = "x, but at least `low` and at most `high`; NaN of NaN. Where x is at a limit, x has the "
           "gradient.",
    .accepts = CT_NUMBERS,
    .onnx = "Clip",
    .stablehlo = "clamp",
    .samples = {.kinks = true},
};

static bool is_nan_body(ct_rule *r) { return ct__set_body(r, ct_not_equal(r->in[0], r->in[0])); }
const ct_opdef ct__op_is_nan = {
    PREDICATE(IS_NAN, is_nan, 1),
    .doc = "Where x is NaN (of complex numbers a part of it), as bool.",
    .accepts = CT_NUMBERS | CT_COMPLEX,
    .onnx = "IsNaN",
};
static bool functions_has_infinity(const ct_rule *r) {
    return ct__is_float((ct_dtype)ct__type_of(r->in[0])->dtype);
}
static bool is_inf_body(ct_rule *r) {
    ct_tensor x = r->in[0];
    return ct__set_body(r, functions_has_infinity(r) ? ct_equal(ct_abs(x), ct_f(INFINITY))
                                                     : ct_not_equal(x, x));
}
const ct_opdef ct__op_is_inf = {
    PREDICATE(IS_INF, is_inf, 1),
    .doc = "Where x is infinite, of either sign (of complex numbers a part of it), as bool.",
    .accepts = CT_NUMBERS | CT_COMPLEX,
    .split = ct__split_is_inf,
    .onnx = "IsInf",
};
static bool is_finite_body(ct_rule *r) {
    ct_tensor x = r->in[0];
    return ct__set_body(r, functions_has_infinity(r) ? ct_less(ct_abs(x), ct_f(INFINITY))
                                                     : ct_equal(x, x));
}
const ct_opdef ct__op_is_finite = {
    PREDICATE(IS_FINITE, is_finite, 1),
    .doc = "Where x is neither infinite nor NaN (of complex numbers no part of it), as bool.",
    .accepts = CT_NUMBERS | CT_COMPLEX,
    .split = ct__split_is_finite,
    .stablehlo = "is_finite",
};

// ------------------------------------------------------------------------------------- activations

static bool relu_body(ct_rule *r) { // not maximum: the derivative at 0 is 0, and NaN stays
    return ct__set_body(r, ct_select(ct_less_equal(r->in[0], ct_i(0)), ct_i(0), r->in[0]));
}
const ct_opdef ct__op_relu = {
    FUNCTION(RELU, relu, 1),    .doc = "x where it is positive, else 0; its slope at 0 is 0.",
    .accepts = CT_NUMBERS,      .onnx = "Relu",
    .samples = {.kinks = true},
};

static bool sigmoid_body(ct_rule *r) {
    ct_tensor one = ct_f(1);
    return ct__set_body(r, ct_div(one, ct_add(one, ct_exp(ct_neg(r->in[0])))));
}
static bool sigmoid_jvp(ct_rule *r) {
    ct_tensor slope = ct_mul(r->out[0], ct_sub(ct_f(1), r->out[0]));
    return ct__set_tangent(r, ct_mul(r->t_in[0], slope));
}
const ct_opdef ct__op_sigmoid = {
    FUNCTION_WITH_JVP(SIGMOID, sigmoid, 1),
    .doc = "1 / (1 + exp(-x)).",
    .accepts = CT_FLOATS,
    .onnx = "Sigmoid",
    .stablehlo = "logistic",
    .samples = {.ulp = 4},
};

static bool silu_body(ct_rule *r) {
    return ct__set_body(r, ct_mul(r->in[0], ct_sigmoid(r->in[0])));
}
const ct_opdef ct__op_silu = {
    FUNCTION(SILU, silu, 1),
    .doc = "x * sigmoid(x).",
    .accepts = CT_FLOATS,
    .samples = {.ulp = 4},
};

// max(x, 0) + log(1 + exp(-|x|)): does not overflow and loses no small terms.
static bool softplus_body(ct_rule *r) {
    ct_tensor x = r->in[0];
    ct_tensor tail = ct_log1p(ct_exp(ct_neg(ct_abs(x))));
    return ct__set_body(r, ct_add(ct_relu(x), tail));
}
static bool softplus_jvp(ct_rule *r) { // the body has kinks at 0 that cancel
    return ct__set_tangent(r, ct_mul(r->t_in[0], ct_sigmoid(r->in[0])));
}
const ct_opdef ct__op_softplus = {
    FUNCTION_WITH_JVP(SOFTPLUS, softplus, 1),
    .doc = "log(1 + exp(x)), exact for large and small x.",
    .accepts = CT_FLOATS,
    .onnx = "Softplus",
    .samples = {.ulp = 4},
    .autocast = CT_CAST_F32,
};

static bool log_sigmoid_body(ct_rule *r) {
    return ct__set_body(r, ct_neg(ct_softplus(ct_neg(r->in[0]))));
}
const ct_opdef ct__op_log_sigmoid = {
    FUNCTION(LOG_SIGMOID, log_sigmoid, 1),
    .doc = "log(sigmoid(x)), exact for large and small x.",
    .accepts = CT_FLOATS,
    .samples = {.ulp = 4},
};

#define LEAKY_RELU_ATTRS(F, op) F(op, num, slope)
CT_ATTRS(leaky_relu, LEAKY_RELU_ATTRS);
static bool leaky_relu_body(ct_rule *r) {
    ct_num slope = ((const leaky_relu_attrs *)r->attrs)->slope;
    ct_tensor x = r->in[0], low = ct_mul(x, rule_constant(ct__num_or(slope, 0.01), r));
    return ct__set_body(r, ct_select(ct_greater(x, ct_f(0)), x, low));
}
const ct_opdef ct__op_leaky_relu = {
    FUNCTION(LEAKY_RELU, leaky_relu, 1),
    CT_FIELDS(leaky_relu),
    .doc = "x where it is positive, else slope (default 0.01) times x.",
    .accepts = CT_FLOATS,
    .onnx = "LeakyRelu",
    .samples = {.kinks = true},
};

#define GELU_ATTRS(F, op) F(op, bool, exact)
CT_ATTRS(gelu, GELU_ATTRS);
// The factor of x: the tanh form's (1 + tanh(y)) / 2 is the sigmoid of 2 y.
static ct_tensor gelu_gate(ct_tensor x, ct_tensor square, const ct_rule *r) {
    if (((const gelu_attrs *)r->attrs)->exact) {
        ct_tensor inner = ct_erf(ct_mul(x, rule_constant(0.70710678118654752, r)));
        return ct_mul(ct_add(inner, ct_f(1)), ct_f(0.5));
    }
    ct_tensor cubic = ct_mul(square, rule_constant(-2 * 0.79788456080286536 * 0.044715, r));
    ct_tensor minus = ct_mul(x, ct_add(cubic, rule_constant(-2 * 0.79788456080286536, r)));
    return ct_div(ct_f(1), ct_add(ct_exp(minus), ct_f(1)));
}
static bool gelu_body(ct_rule *r) {
    ct_tensor x = r->in[0];
    return ct__set_body(r, ct_mul(x, gelu_gate(x, ct_mul(x, x), r)));
}
// With the gate g: g + x g', where g' is the bell curve, or 2 y' g (1 - g), which is finite also where exp is
// infinite.
static bool gelu_jvp(ct_rule *r) {
    ct_tensor x = r->in[0], square = ct_mul(x, x), gate = gelu_gate(x, square, r), slope;
    if (((const gelu_attrs *)r->attrs)->exact) {
        ct_tensor bell = ct_exp(ct_mul(square, ct_f(-0.5)));
        slope = ct_add(gate, ct_mul(ct_mul(x, bell), rule_constant(0.39894228040143268, r)));
    } else {
        ct_tensor cubic = ct_mul(square, rule_constant(6 * 0.79788456080286536 * 0.044715, r));
        ct_tensor steep = ct_mul(x, ct_add(cubic, rule_constant(2 * 0.79788456080286536, r)));
        slope = ct_mul(gate, ct_add(ct_mul(steep, ct_sub(ct_f(1), gate)), ct_f(1)));
    }
    return ct__set_tangent(r, ct_mul(r->t_in[0], slope));
}
const ct_opdef ct__op_gelu = {
    FUNCTION_WITH_JVP(GELU, gelu, 1),
    CT_FIELDS(gelu),
    .doc = "x times the normal distribution's cumulative probability of x, in the tanh form that "
           "GPT-2 uses; exact: by the error function.",
    .accepts = CT_FLOATS,
    .onnx = "Gelu",
    .samples = {.ulp = 16},
};

// --------------------------------------------------------------- the inverse of the error function

// Giles, "Approximating the erfinv function" (GPU Computing Gems, 2012): two polynomials in w = -log(1 - x
// x), highest power first; the single-precision ones, which JAX uses too.
static ct_tensor erfinv_polynomial(const float *coef, int n, ct_tensor w, const ct_rule *r) {
    ct_tensor p = rule_constant((double)coef[0], r);
    for (int i = 1; i < n; i++) p = ct_add(ct_mul(p, w), rule_constant((double)coef[i], r));
    return p;
}
static bool erfinv_body(ct_rule *r) {
    static const float middle[] = {2.81022636e-08f,  3.43273939e-07f, -3.5233877e-06f,
                                   -4.39150654e-06f, 0.00021858087f,  -0.00125372503f,
                                   -0.00417768164f,  0.246640727f,    1.50140941f};
    static const float tail[] = {-0.000200214257f, 0.000100950558f, 0.00134934322f,
                                 -0.00367342844f,  0.00573950773f,  -0.0076224613f,
                                 0.00943887047f,   1.00167406f,     2.83297682f};
    ct_tensor x = r->in[0], w = ct_neg(ct_log1p(ct_neg(ct_mul(x, x))));
    ct_tensor inner = erfinv_polynomial(middle, 9, ct_sub(w, ct_f(2.5)), r);
    ct_tensor outer = erfinv_polynomial(tail, 9, ct_sub(ct_sqrt(w), ct_f(3)), r);
    ct_tensor y = ct_mul(ct_select(ct_less(w, ct_f(5)), inner, outer), x);
    for (int step = 0; step < 2 && r->node->out->dtype == CT_F64; step++) { // a Newton step
        ct_tensor slope =
            ct_mul(ct_exp(ct_neg(ct_mul(y, y))), rule_constant(1.1283791670955126, r));
        y = ct_sub(y, ct_div(ct_sub(ct_erf(y), x), slope));
    }
    ct_tensor edge = ct_equal(ct_abs(x), ct_f(1));
    return ct__set_body(r, ct_select(edge, ct_mul(x, ct_f(INFINITY)), y));
}
static bool erfinv_jvp(ct_rule *r) { // sqrt(pi) / 2 exp(y y)
    ct_tensor bell = ct_exp(ct_mul(r->out[0], r->out[0]));
    return ct__set_tangent(r,
                           ct_mul(r->t_in[0], ct_mul(bell, rule_constant(0.88622692545275801, r))));
}
const ct_opdef ct__op_erfinv = {
    FUNCTION_WITH_JVP(ERFINV, erfinv, 1),
    .doc = "The y whose error function is x; infinite at -1 and 1, NaN beyond.",
    .accepts = CT_FLOATS,
    .samples = {.lo = -0.9, .hi = 0.9, .ulp = 8},
    .autocast = CT_CAST_F32,
};

// -------------------------------------------------------------------------------------- indicators

#define ONE_HOT_ATTRS(F, op) F(op, i64, n) F(op, dtype, dtype)
CT_ATTRS(one_hot, ONE_HOT_ATTRS);
static bool one_hot_infer(ct_call *call) {
    one_hot_attrs *attrs = call->attrs;
    const ct_type *in = call->in[0];
    if (!ct__check_accepts(call, 0)) return false;
    if (ct__unmarked(attrs->n) < 0)
        return ct__call_err(call, CT_E_ARGUMENT, "the new axis has size %lld",
                            (long long)ct__unmarked(attrs->n));
    if (attrs->dtype == CT_DEFAULT) attrs->dtype = CT_F32;
    if (!ct__is_dtype(attrs->dtype))
        return ct__call_err(call, CT_E_DTYPE, "%d is not a dtype", (int)attrs->dtype);
    ct_shape shape = ct__call_shape(call, in->rank + 1);
    if (!shape.dim) return false;
    for (int a = 0; a < in->rank; a++) ct__shape_add_axis(&shape, in, a);
    ct__shape_add(&shape, attrs->n);
    return ct__set_out(call, &shape, attrs->dtype, false);
}
static bool one_hot_body(ct_rule *r) {
    const one_hot_attrs *attrs = r->attrs;
    ct_tensor classes = ct_iota(CT_I32, ((ct_ints){1, &attrs->n}), 0);
    return ct__set_body(r, ct_cast(ct_equal(ct__add_last(r->in[0]), classes), attrs->dtype));
}
const ct_opdef ct__op_one_hot = {
    CT_COMPOSED(ONE_HOT, one_hot, 1, 1),
    .doc = "A new last axis of n elements that is 1 at x and 0 elsewhere (all 0 for an x outside).",
    CT_FIELDS(one_hot),
    .accepts = CT_INTEGERS,
    .batch = ct__batch_shifted,
    .jvp = CT_NO_GRAD,
    .onnx = "OneHot",
    .samples = {.lo = 0, .hi = 3, .integers = true},
};
