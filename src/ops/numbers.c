// Arithmetic that is composed of other arithmetic: remainders as in Python, signs, neighbours, absolute
// values, and functions of two numbers.
#include <math.h>

#include "ops/functions.h"

// Returns operand k in the dtype of the result.
static ct_tensor numbers_operand(const ct_rule *r, int k) {
    const ct_dtype dtype = (ct_dtype)r->node->out->dtype;
    return (ct_dtype)ct__type_of(r->in[k])->dtype == dtype ? r->in[k] : ct_cast(r->in[k], dtype);
}
static bool numbers_is_float(const ct_rule *r) {
    return ct__is_float((ct_dtype)r->node->out->dtype);
}

// --------------------------------------------------------------------------------------- remainders

// True if the result of mod, which has the sign of a, and b have opposite signs.
static ct_tensor remainder_signs_differ(ct_tensor mod, ct_tensor b) {
    ct_tensor zero = ct_i(0), other = ct_not_equal(ct_less(mod, zero), ct_less(b, zero));
    return ct_and(ct_not_equal(mod, zero), other);
}

static bool remainder_body(ct_rule *r) {
    ct_tensor a = numbers_operand(r, 0), b = numbers_operand(r, 1), mod = ct_mod(a, b);
    ct_tensor value = ct_select(remainder_signs_differ(mod, b), ct_add(mod, b), mod);
    if (numbers_is_float(r)) value = ct_select(ct_equal(mod, ct_f(0)), ct_copysign(mod, b), value);
    return ct__set_body(r, value);
}
static bool remainder_jvp(ct_rule *r) { // a - floor(a / b) b
    ct_tensor t = r->t_in[1];
    if (!ct__is_none(t)) {
        t = ct_neg(ct_mul(t, ct_floor_divide(r->in[0], r->in[1])));
    }
    return ct__set_tangent(r, ct__add_zero(r->t_in[0], t));
}
const ct_opdef ct__op_remainder = {
    FUNCTION_WITH_JVP(REMAINDER, remainder, 2),
    .doc = "The remainder of a / b, with the sign of b, as Python's %. Integers: 0 where b is 0.",
    .accepts = CT_INTEGERS | CT_FLOATS,
    .samples = {.lo = 0.5, .hi = 3, .jumps = true, .kinks = true},
};

static bool floor_divide_body(ct_rule *r) {
    ct_tensor a = numbers_operand(r, 0), b = numbers_operand(r, 1), mod = ct_mod(a, b);
    ct_tensor is_less = remainder_signs_differ(mod, b), one = ct_i(1);
    if (!numbers_is_float(r)) {
        ct_tensor quotient = ct_div(a, b);
        r->body_out[0] = ct_select(is_less, ct_sub(quotient, one), quotient);
        return true;
    }
    ct_tensor whole = ct_div(ct_sub(a, mod), b), quotient = ct_div(a, b);
    whole = ct_round(ct_select(is_less, ct_sub(whole, one), whole));
    whole = ct_select(ct_equal(whole, ct_f(0)), ct_copysign(whole, quotient), whole);
    return ct__set_body(r, ct_select(ct_equal(b, ct_f(0)), quotient, whole));
}
const ct_opdef ct__op_floor_divide = {
    FUNCTION(FLOOR_DIVIDE, floor_divide, 2),
    .doc = "The largest whole number that is at most a / b, as Python's //. Integers: 0 where b is "
           "0. No gradient.",
    .accepts = CT_INTEGERS | CT_FLOATS,
    .jvp = CT_NO_GRAD,
    .samples = {.lo = 0.5, .hi = 3, .jumps = true},
};

// ------------------------------------------------------------------------------- signs, neighbours

static ct_tensor numbers_bits(ct_tensor x) {
    return ct_bitcast(x, ct__float_bits((ct_dtype)ct__type_of(x)->dtype).dtype);
}

static bool signbit_body(ct_rule *r) {
    return ct__set_body(r, ct_less(numbers_bits(r->in[0]), ct_i(0)));
}
const ct_opdef ct__op_signbit = {
    PREDICATE(SIGNBIT, signbit, 1),
    .doc = "Where x has a minus, as bool: -0 and some NaNs, too.",
    .accepts = CT_FLOATS,
};

static bool copysign_body(ct_rule *r) {
    ct_tensor size = ct_abs(numbers_operand(r, 0));
    return ct__set_body(r, ct_select(ct_signbit(numbers_operand(r, 1)), ct_neg(size), size));
}
static bool copysign_jvp(ct_rule *r) {
    if (ct__is_none(r->t_in[0])) return true;
    ct_tensor differs = ct_not_equal(ct_signbit(r->in[0]), ct_signbit(r->in[1])), zero = ct_f(0);
    ct_tensor sign = ct_select(differs, ct_f(-1), ct_f(1)); // at 0 the derivative is that of abs
    return ct__jvp_times(r, ct_select(ct_equal(r->in[0], zero), zero, sign));
}
const ct_opdef ct__op_copysign = {
    FUNCTION_WITH_JVP(COPYSIGN, copysign, 2),
    .doc = "a with the sign of b, that of a zero or NaN, too.",
    .accepts = CT_FLOATS,
    .samples = {.jumps = true, .kinks = true},
};

// The bits plus or minus 1: the bits of floats of one sign are ordered as absolute values are.
static bool nextafter_body(ct_rule *r) {
    const ct_dtype dtype = (ct_dtype)r->node->out->dtype;
    ct_tensor a = numbers_operand(r, 0), b = numbers_operand(r, 1), zero = ct_f(0),
              bits = numbers_bits(a);
    ct_tensor grows = ct_equal(ct_less(a, b), ct_greater(a, zero));
    ct_tensor next = ct_bitcast(ct_add(bits, ct_select(grows, ct_i(1), ct_i(-1))), dtype);
    ct_tensor smallest = rule_constant(dtype == CT_F64 ? 0x1p-1074 : 0x1p-149, r);
    next = ct_select(ct_equal(a, zero), ct_copysign(ct_cast(smallest, dtype), b), next);
    next = ct_select(ct_equal(a, b), b, next);
    return ct__set_body(r, ct_select(ct_or(ct_is_nan(a), ct_is_nan(b)), ct_f(NAN), next));
}
const ct_opdef ct__op_nextafter = {
    FUNCTION(NEXTAFTER, nextafter, 2),
    .doc = "The number next to a on the way to b; no gradient.",
    .accepts = CT_MASK(CT_F32) | CT_MASK(CT_F64),
    .jvp = CT_NO_GRAD,
    .samples = {.jumps = true},
};

static bool heaviside_body(ct_rule *r) {
    ct_tensor x = numbers_operand(r, 0), zero = ct_i(0);
    ct_tensor value = ct_select(ct_greater(x, zero), ct_i(1), x);
    value = ct_select(ct_less(x, zero), zero, value);
    return ct__set_body(r, ct_select(ct_equal(x, zero), numbers_operand(r, 1), value));
}
const ct_opdef ct__op_heaviside = {
    FUNCTION(HEAVISIDE, heaviside, 2),
    .doc = "0 where x is negative, 1 where it is positive, `at_zero` where it is 0; NaN of NaN; no "
           "gradient.",
    .accepts = CT_NUMBERS,
    .jvp = CT_NO_GRAD,
    .samples = {.jumps = true},
};

// -------------------------------------------------------------------------------------------- sizes

// The larger one times sqrt(1 + ratio^2), so that no square overflows.
static bool hypot_body(ct_rule *r) {
    ct_tensor a = ct_abs(numbers_operand(r, 0)), b = ct_abs(numbers_operand(r, 1)),
              infinity = ct_f(INFINITY);
    ct_tensor large = ct_maximum(a, b), ratio = ct_div(ct_minimum(a, b), large);
    ct_tensor size = ct_mul(large, ct_sqrt(ct_add(ct_mul(ratio, ratio), ct_f(1))));
    size = ct_select(ct_equal(large, ct_f(0)), large, size);
    // also if the other one is NaN
    ct_tensor far = ct_or(ct_equal(a, infinity), ct_equal(b, infinity));
    return ct__set_body(r, ct_select(far, infinity, size));
}
static bool hypot_jvp(ct_rule *r) { // (a a' + b b') / size
    ct_tensor by = ct_select(ct_equal(r->out[0], ct_f(0)), ct_f(1), r->out[0]), t[2];
    for (int k = 0; k < 2; k++)
        t[k] = ct__is_none(r->t_in[k]) ? CT_NONE : ct_mul(r->t_in[k], ct_div(r->in[k], by));
    return ct__set_tangent(r, ct__add_zero(t[0], t[1]));
}
const ct_opdef ct__op_hypot = {
    FUNCTION_WITH_JVP(HYPOT, hypot, 2),
    .doc = "sqrt(a a + b b) without overflow; infinite where either is. Its gradient at (0, 0) is "
           "0.",
    .accepts = CT_FLOATS,
    .samples = {.ulp = 2},
};

// If one operand is NaN, the result is the other one; it is NaN if both are.
static bool fminmax_body(ct_rule *r, ct_tensor value) {
    ct_tensor a = numbers_operand(r, 0), b = numbers_operand(r, 1);
    if (numbers_is_float(r)) value = ct_select(ct_is_nan(a), b, ct_select(ct_is_nan(b), a, value));
    return ct__set_body(r, value);
}
// The tangent of a where `first` is true or b is NaN, else that of b.
static bool fminmax_jvp(ct_rule *r, ct_tensor first) {
    ct_tensor zero = ct_f(0);
    if (numbers_is_float(r)) first = ct_or(first, ct_is_nan(r->in[1]));
    ct_tensor a = r->t_in[0], b = r->t_in[1];
    if (!ct__is_none(a)) a = ct_select(first, a, zero);
    if (!ct__is_none(b)) b = ct_select(first, zero, b);
    return ct__set_tangent(r, ct__add_zero(a, b));
}
static bool fmax_jvp(ct_rule *r) { return fminmax_jvp(r, ct_greater_equal(r->in[0], r->in[1])); }
static bool fmin_jvp(ct_rule *r) { return fminmax_jvp(r, ct_less_equal(r->in[0], r->in[1])); }
static bool fmax_body(ct_rule *r) {
    return fminmax_body(r, ct_maximum(numbers_operand(r, 0), numbers_operand(r, 1)));
}
const ct_opdef ct__op_fmax = {
    FUNCTION_WITH_JVP(FMAX, fmax, 2),
    .doc = "The larger of a and b; where one is NaN, the other. Of equals a has the gradient.",
    .accepts = CT_NUMBERS,
    .samples = {.kinks = true},
};
static bool fmin_body(ct_rule *r) {
    return fminmax_body(r, ct_minimum(numbers_operand(r, 0), numbers_operand(r, 1)));
}
const ct_opdef ct__op_fmin = {
    FUNCTION_WITH_JVP(FMIN, fmin, 2),
    .doc = "The smaller of a and b; where one is NaN, the other. Of equals a has the gradient.",
    .accepts = CT_NUMBERS,
    .samples = {.kinks = true},
};

// ------------------------------------------------------------------------ exponentials, logarithms

// Returns a - b, but 0 for infinities that are equal.
static ct_tensor logaddexp_difference(const ct_rule *r) {
    return ct_select(ct_equal(r->in[0], r->in[1]), ct_f(0), ct_sub(r->in[0], r->in[1]));
}
static bool logaddexp_body(ct_rule *r) {
    ct_tensor tail = ct_log1p(ct_exp(ct_neg(ct_abs(logaddexp_difference(r)))));
    return ct__set_body(r, ct_add(ct_maximum(r->in[0], r->in[1]), tail));
}
static bool logaddexp_jvp(ct_rule *r) {
    ct_tensor d = logaddexp_difference(r), t[2] = {CT_NONE, CT_NONE};
    if (!ct__is_none(r->t_in[0])) t[0] = ct_mul(r->t_in[0], ct_sigmoid(d));
    if (!ct__is_none(r->t_in[1])) t[1] = ct_mul(r->t_in[1], ct_sigmoid(ct_neg(d)));
    return ct__set_tangent(r, ct__add_zero(t[0], t[1]));
}
const ct_opdef ct__op_logaddexp = {
    FUNCTION_WITH_JVP(LOGADDEXP, logaddexp, 2),
    .doc = "log(exp(a) + exp(b)), without overflow.",
    .accepts = CT_FLOATS,
    .samples = {.ulp = 3},
};

static bool xlogy_body(ct_rule *r) {
    ct_tensor x = numbers_operand(r, 0), y = numbers_operand(r, 1), zero = ct_f(0);
    ct_tensor none = ct_and(ct_equal(x, zero), ct_not(ct_is_nan(y)));
    return ct__set_body(r, ct_select(none, zero, ct_mul(x, ct_log(y))));
}
static bool xlogy_jvp(ct_rule *r) {
    ct_tensor x = r->in[0], y = r->in[1], t[2] = {CT_NONE, CT_NONE};
    if (!ct__is_none(r->t_in[0])) {
        ct_tensor zero = ct_f(0), none = ct_and(ct_equal(x, zero), ct_less_equal(y, zero));
        t[0] = ct_mul(r->t_in[0], ct_select(none, zero, ct_log(y)));
    }
    if (!ct__is_none(r->t_in[1])) t[1] = ct_mul(r->t_in[1], ct_div(x, y));
    return ct__set_tangent(r, ct__add_zero(t[0], t[1]));
}
const ct_opdef ct__op_xlogy = {
    FUNCTION_WITH_JVP(XLOGY, xlogy, 2),
    .doc = "x log(y), 0 where x is 0; its gradient at (0, 0) is 0 by x and NaN by y.",
    .accepts = CT_FLOATS,
    .samples = {.lo = 0.5, .hi = 3, .ulp = 3},
};

// exp(log|x| / 3), then one step of Newton's method; nothing overflows.
static bool cbrt_body(ct_rule *r) {
    ct_tensor x = ct_abs(r->in[0]), third = rule_constant(0.33333333333333331, r);
    ct_tensor y = ct_exp(ct_mul(ct_log(x), third));
    ct_tensor step = ct_mul(ct_sub(y, ct_div(x, ct_mul(y, y))), third);
    ct_tensor plain = ct_or(ct_equal(x, ct_f(0)), ct_equal(x, ct_f(INFINITY)));
    return ct__set_body(r, ct_copysign(ct_select(plain, x, ct_sub(y, step)), r->in[0]));
}
static bool cbrt_jvp(ct_rule *r) {
    return ct__jvp_divided(r, ct_mul(ct_mul(r->out[0], r->out[0]), ct_f(3)));
}
const ct_opdef ct__op_cbrt = {
    FUNCTION_WITH_JVP(CBRT, cbrt, 1),
    .doc = "The cube root of x, of negative numbers too.",
    .accepts = CT_FLOATS,
    .stablehlo = "cbrt",
    .samples = {.lo = 0.25, .hi = 4, .ulp = 2},
};

// ------------------------------------------------------------------------------------------- angles

static bool deg2rad_body(ct_rule *r) {
    return ct__set_body(r, ct_mul(r->in[0], rule_constant(0.017453292519943295, r)));
}
const ct_opdef ct__op_deg2rad = {
    FUNCTION(DEG2RAD, deg2rad, 1),
    .doc = "An angle of x degrees in radians.",
    .accepts = CT_FLOATS,
    .samples = {.ulp = 1},
};
static bool rad2deg_body(ct_rule *r) {
    return ct__set_body(r, ct_mul(r->in[0], rule_constant(57.295779513082323, r)));
}
const ct_opdef ct__op_rad2deg = {
    FUNCTION(RAD2DEG, rad2deg, 1),
    .doc = "An angle of x radians in degrees.",
    .accepts = CT_FLOATS,
    .samples = {.ulp = 1},
};

// With x = n + part, sin(pi x) is sin(pi part), negated if n is odd.
static bool sinc_body(ct_rule *r) {
    ct_tensor x = r->in[0], n = ct_round(x), half = ct_mul(n, ct_f(0.5));
    ct_tensor pi = rule_constant(3.1415926535897931, r), sine = ct_sin(ct_mul(ct_sub(x, n), pi));
    sine = ct_select(ct_equal(ct_floor(half), half), sine, ct_neg(sine));
    ct_tensor none = ct_equal(x, ct_f(0)), by = ct_mul(ct_select(none, ct_f(1), x), pi);
    return ct__set_body(r, ct_select(none, ct_f(1), ct_div(sine, by)));
}
static bool sinc_jvp(ct_rule *r) { // (cos(pi x) - sinc(x)) / x; near 0 from the series
    ct_tensor x = r->in[0], square = ct_mul(x, x);
    ct_tensor near = ct_less(ct_abs(x), ct_f(0.01)), by = ct_select(near, ct_f(1), x);
    ct_tensor far = ct_sub(ct_cos(ct_mul(x, rule_constant(3.1415926535897931, r))), r->out[0]);
    ct_tensor small = ct_mul(square, rule_constant(3.2469697011334144, r)); // pi^4 / 30
    small = ct_mul(x, ct_sub(small, rule_constant(3.2898681336964528, r))); // pi^2 / 3
    return ct__jvp_times(r, ct_select(near, small, ct_div(far, by)));
}
const ct_opdef ct__op_sinc = {
    FUNCTION_WITH_JVP(SINC, sinc, 1),
    .doc = "sin(pi x) / (pi x), 1 at 0.",
    .accepts = CT_FLOATS,
    .samples = {.lo = 0.1, .hi = 0.9, .ulp = 4},
};

// --------------------------------------------------------------------------------- NaN and infinity

#define NAN_TO_NUM_ATTRS(F, op) F(op, num, nan) F(op, num, posinf) F(op, num, neginf)
CT_ATTRS(nan_to_num, NAN_TO_NUM_ATTRS);
static bool nan_to_num_infer(ct_call *call) {
    nan_to_num_attrs *attrs = call->attrs;
    if (!ct__infer_elementwise(call)) return false;
    const double largest = ct__float_max((ct_dtype)call->out->dtype);
    attrs->nan = (ct_num){ct__num_or(attrs->nan, 0), true};
    attrs->posinf = (ct_num){ct__num_or(attrs->posinf, largest), true};
    attrs->neginf = (ct_num){ct__num_or(attrs->neginf, -largest), true};
    return true;
}
static bool nan_to_num_body(ct_rule *r) {
    const nan_to_num_attrs *attrs = r->attrs;
    ct_tensor x = r->in[0], y = ct_select(ct_is_nan(x), rule_constant(attrs->nan.value, r), x);
    y = ct_select(ct_equal(x, ct_f(INFINITY)), rule_constant(attrs->posinf.value, r), y);
    return ct__set_body(
        r, ct_select(ct_equal(x, ct_f(-INFINITY)), rule_constant(attrs->neginf.value, r), y));
}
const ct_opdef ct__op_nan_to_num = {
    CT_COMPOSED(NAN_TO_NUM, nan_to_num, 1, 1),
    .doc = "x with nan (default 0) in the place of NaN, posinf and neginf in that of infinity and "
           "-infinity (default: the dtype's largest number, and less it).",
    CT_FIELDS(nan_to_num),
    .accepts = CT_FLOATS,
    .batch = ct__batch_pointwise,
    .widens = true,
};

#define ISCLOSE_ATTRS(F, op) F(op, num, rtol) F(op, num, atol) F(op, bool, equal_nan)
CT_ATTRS(isclose, ISCLOSE_ATTRS);
static bool isclose_body(ct_rule *r) {
    const isclose_attrs *attrs = r->attrs;
    ct_tensor a = r->in[0], b = r->in[1], off = ct_abs(ct_sub(a, b)), size = ct_abs(b);
    ct_tensor tolerance = ct_mul(size, ct__number_like(ct__num_or(attrs->rtol, 1e-5), size));
    tolerance = ct_add(tolerance, ct__number_like(ct__num_or(attrs->atol, 1e-8), size));
    ct_tensor finite = ct_less(size, ct_f(INFINITY));
    ct_tensor close = ct_or(ct_and(ct_less_equal(off, tolerance), finite), ct_equal(a, b));
    if (attrs->equal_nan) close = ct_or(close, ct_and(ct_not_equal(a, a), ct_not_equal(b, b)));
    return ct__set_body(r, close);
}
const ct_opdef ct__op_isclose = {
    PREDICATE(ISCLOSE, isclose, 2),
    CT_FIELDS(isclose),
    .doc = "Where |a - b| is at most atol (default 1e-8) + rtol (default 1e-5) times |b|, as bool; "
           "equal_nan: and where both are NaN.",
    .accepts = CT_FLOATS | CT_COMPLEX,
};
