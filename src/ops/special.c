// The complementary error function, and the logarithm of the gamma function with its derivative.
#include <math.h>

#include "ops/functions.h"

// exp(x x) (1 + 2 x) erfc(x) in (x - 3) / (x + 3), for x to 11 and 28 (scripts/math-coefficients.py)
static const double erfc_p_f32[] = {1.25300801,    -0.13562116,    -0.0475623719,  0.129646853,
                                    -0.119270943,  0.0682927445,   -0.0238000583,  0.00257290457,
                                    0.00200978224, -0.00077589741, -0.000269006792};
static const double erfc_p_f64[] = {
    1.2530080582697296,     -0.1356211061245807,    -0.047562294353446374,   0.12964515870270552,
    -0.11927366341552853,   0.06830802734580459,    -0.02377051491423367,    0.002529391788270445,
    0.001888690312003782,   -0.0007798320379611115, -0.00010515949033775975, 0.00012509815174864322,
    4.948147875576539e-06,  -2.009663087595395e-05, -7.275875746667183e-07,  3.463997532352904e-06,
    3.4899197889744293e-07, -6.050048623933503e-07, -1.311166137536459e-07,  9.186243026143847e-08,
    3.29163439676632e-08,   -8.500119502115306e-09, -4.210104975119195e-09};

static ct_tensor special_polynomial(const double *c, int n, ct_tensor x) {
    ct_tensor sum = ct__number_like(c[n - 1], x);
    for (int i = n - 2; i >= 0; i--) sum = ct_add(ct_mul(sum, x), ct__number_like(c[i], x));
    return sum;
}

// erfc(|x|), or 2 minus it; exp includes the rounding error of the square
static bool erfc_body(ct_rule *r) {
    const bool f64 = r->node->out->dtype == CT_F64;
    ct_tensor x = ct_minimum(ct_abs(r->in[0]), ct_f(f64 ? 28 : 11)), three = ct_f(3);
    ct_tensor t = ct_div(ct_sub(x, three), ct_add(x, three));
    ct_tensor p =
        f64 ? special_polynomial(erfc_p_f64, 23, t) : special_polynomial(erfc_p_f32, 11, t);
    ct_pair square = ct__exact_product(x, x);
    p = ct_div(p, ct_add(ct_add(x, x), ct_f(1)));
    ct_tensor tail = ct_mul(ct_exp(ct_neg(square.high)), ct_sub(p, ct_mul(p, square.low)));
    ct_tensor minus = ct_less(r->in[0], ct_f(0));
    return ct__set_body(r, ct_select(minus, ct_sub(ct_f(2), tail), tail));
}
static bool erfc_jvp(ct_rule *r) { // -2 / sqrt(pi) exp(-x x)
    ct_tensor bell = ct_exp(ct_neg(ct_mul(r->in[0], r->in[0])));
    return ct__jvp_times(r, ct_mul(bell, rule_constant(-1.1283791670955126, r)));
}
const ct_opdef ct__op_erfc = {
    FUNCTION_WITH_JVP(ERFC, erfc, 1),
    .doc = "1 less the error function of x, exact where x is large.",
    .accepts = CT_FLOATS,
    .samples = {.ulp = 6},
};

// ----------------------------------------------------------------------------------- gamma function

// Computed in f64, since both functions have zeros near which their terms cancel. Below 1/2 the reflection
// to 1 - x is used; y is the argument, increased by 8 if it is below 8: product is y (y + 1) ... (y + 7)
// and slope its derivative there.
typedef struct {
    ct_tensor reflected, is_integer, part; // bool, bool; x minus the nearest integer
    ct_tensor y, product, slope;
} gamma_parts;
static gamma_parts gamma_reduce(const ct_rule *r) {
    ct_tensor x = ct_cast(r->in[0], CT_F64), one = ct_f(1), near = ct_round(x);
    ct_tensor reflected = ct_less(x, ct_f(0.5)), y = ct_select(reflected, ct_sub(one, x), x);
    ct_tensor low = ct_less(y, ct_f(8)), product = one, slope = ct_f(0);
    ct_tensor z = ct_select(low, y, one);
    for (int i = 0; i < 8; i++) {
        ct_tensor factor = ct_add(z, ct_f(i));
        slope = i ? ct_add(ct_mul(slope, factor), product) : one;
        product = ct_mul(product, factor);
    }
    ct_tensor part = ct_select(reflected, ct_sub(x, near), ct_f(0.25)); // 0.25 where it is unused
    return (gamma_parts){.reflected = reflected,
                         .is_integer = ct_and(reflected, ct_equal(near, x)),
                         .part = part,
                         .y = ct_select(low, ct_add(y, ct_f(8)), y),
                         .product = ct_select(low, product, one),
                         .slope = ct_select(low, slope, ct_f(0))};
}

static bool lgamma_body(ct_rule *r) { // Stirling's series
    static const double series[] = {1.0 / 12,   -1.0 / 360,        1.0 / 1260, -1.0 / 1680,
                                    1.0 / 1188, -691.0 / 360360.0, 1.0 / 156,  -3617.0 / 122400};
    gamma_parts g = gamma_reduce(r);
    ct_tensor inverse = ct_div(ct_f(1), g.y), y = g.y;
    ct_tensor tail = ct_mul(special_polynomial(series, 8, ct_mul(inverse, inverse)), inverse);
    tail = ct_add(tail, ct__number_like(0.91893853320467278, y)); // half of log(2 pi)
    ct_tensor value = ct_mul(ct_sub(y, ct_f(0.5)), ct_sub(ct_log(y), ct_f(1)));
    value = ct_add(value, ct_sub(ct_sub(tail, ct_f(0.5)), ct_log(g.product)));
    ct_tensor pi = ct__number_like(3.1415926535897931, y);
    ct_tensor sine = ct_abs(ct_sin(ct_mul(g.part, pi)));
    value = ct_select(g.reflected, ct_sub(ct_log(ct_div(pi, sine)), value), value);
    ct_tensor far = ct_equal(ct_abs(r->in[0]), ct_f(INFINITY));
    value = ct_select(ct_or(far, g.is_integer), ct_f(INFINITY), value);
    return ct__set_body(r, ct_cast(value, r->node->out->dtype));
}
static bool lgamma_jvp(ct_rule *r) { return ct__jvp_times(r, ct_digamma(r->in[0])); }
const ct_opdef ct__op_lgamma = {
    FUNCTION_WITH_JVP(LGAMMA, lgamma, 1),
    .doc = "The logarithm of the size of the gamma function of x; infinite at 0, -1, -2, ...",
    .accepts = CT_FLOATS,
    .samples = {.lo = 0.1, .hi = 0.9, .ulp = 4},
};

static bool digamma_body(ct_rule *r) {
    static const double series[] = {1.0 / 12,  -1.0 / 120,       1.0 / 252, -1.0 / 240,
                                    1.0 / 132, -691.0 / 32760.0, 1.0 / 12,  -3617.0 / 8160};
    gamma_parts g = gamma_reduce(r);
    ct_tensor inverse = ct_div(ct_f(1), g.y), square = ct_mul(inverse, inverse), x = r->in[0];
    ct_tensor tail = ct_mul(special_polynomial(series, 8, square), square);
    ct_tensor value = ct_sub(ct_log(g.y), ct_add(ct_mul(inverse, ct_f(0.5)), tail));
    value = ct_sub(value, ct_div(g.slope, g.product));
    ct_tensor pi = ct__number_like(3.1415926535897931, g.y);
    ct_tensor reflection =
        ct_div(pi, ct_tan(ct_mul(ct_select(g.is_integer, ct_f(0.25), g.part), pi)));
    value = ct_select(g.reflected, ct_sub(value, reflection), value);
    // At 0 infinite, with the opposite sign; at other poles, and at -infinity, NaN.
    ct_tensor pole =
        ct_select(ct_equal(x, ct_f(0)), ct_copysign(ct_f(INFINITY), ct_neg(x)), ct_f(NAN));
    value = ct_select(g.is_integer, ct_cast(pole, CT_F64), value);
    return ct__set_body(r, ct_cast(value, r->node->out->dtype));
}
const ct_opdef ct__op_digamma = {
    FUNCTION(DIGAMMA, digamma, 1),
    .doc = "The slope of ct_lgamma; -infinity at 0, NaN at -1, -2, ...",
    .accepts = CT_FLOATS,
    .samples = {.lo = 0.1, .hi = 0.9, .ulp = 4},
};
