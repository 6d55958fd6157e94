// exp, exp2, expm1, log, log1p, sin, cos, tanh and erf in kernel IR.
//
// Method. Each function is reduced to a short interval around 0 where it is a polynomial, evaluated
// by Horner's rule in fma. The coefficients are those of the polynomials interpolating at Chebyshev
// nodes, computed with 120 digits and rounded to the dtype (scripts/math-coefficients.py prints
// them); below, the error of each is under a tenth of a unit in the last place of the result.
// Special values result from the arithmetic where possible, otherwise from a select.
#include "kir/kir_math.h"

static const double exp_q_f32[] = {0.5, 0.166665763, 0.0416665524, 0.00836323295, 0.00139262504};
static const double log_q_f32[] = {-0.49999997,  0.333333313,  -0.250007808,
                                   0.200012341,  -0.166266456, 0.142048538,
                                   -0.131275594, 0.127226889,  -0.0767365098};
static const double tanh_p_f32[] = {-0.333333105, 0.13330476, -0.0533871092, 0.0179887451};
static const double sin_p_f32[] = {-0.166666642, 0.00833271258, -0.000195803135};
static const double cos_q_f32[] = {0.0416666642, -0.00138882676, 2.4540348e-05};
static const double erf_p_f32[] = {0.128379166,   -0.376126349,    0.112836994,   -0.0268595926,
                                   0.00520146685, -0.000814720232, 8.38759079e-05};
static const double erf_t_f32[] = {-3.08791494,    -1.37029088,    -0.0503017642,   0.0148625961,
                                   -0.0041639749,  0.00106295652,  -0.000236281878, 3.5264402e-05,
                                   9.44529347e-06, -6.93317361e-06};
static const double exp_q_f64[] = {0.5,
                                   0.1666666666666667,
                                   0.04166666666666667,
                                   0.008333333333326084,
                                   0.0013888888888883711,
                                   0.0001984126987500228,
                                   2.480158732567746e-05,
                                   2.755725517000089e-06,
                                   2.755727347871858e-07,
                                   2.5105312729622103e-08,
                                   2.0914755325893198e-09};
static const double log_r_f64[] = {0.6666666666666666,  0.4000000000000088,  0.28571428570803253,
                                   0.22222222391794727, 0.18181795631498243, 0.15386240172447838,
                                   0.13268760562036724, 0.1308675766695207};
static const double tanh_p_f64[] = {
    -0.3333333333333333,    0.13333333333333042,   -0.05396825396789699,   0.021869488519008305,
    -0.008863235103240878,  0.0035921217511549622, -0.0014557754120478055, 0.0005896606577757043,
    -0.0002375906496055562, 9.257116129556769e-05, -3.12011014257974e-05,  6.485163482793113e-06};
static const double sin_p_f64[] = {-0.16666666666666666,    0.008333333333333331,
                                   -0.00019841269841265063, 2.7557319219337312e-06,
                                   -2.5052106231802837e-08, 1.6058531516797758e-10,
                                   -7.586691094197958e-13};
static const double cos_q_f64[] = {
    0.041666666666666664,   -0.0013888888888888887,  2.4801587301584645e-05, -2.755731922140179e-07,
    2.0876755790721963e-09, -1.1470460830795304e-11, 4.7458685530816656e-14};
static const double erf_p_f64[] = {
    0.1283791670955126,      -0.37612638903183754,    0.1128379167095512,
    -0.02686617064512984,    0.0052239776254232985,   -0.000854832702193483,
    0.00012055332902888736,  -1.4925647567519332e-05, 1.6462045441468418e-06,
    -1.6364642158167616e-07, 1.4792401209404813e-08,  -1.216456005728345e-09,
    8.709045129053106e-11,   -4.230945824295338e-12};
static const double erf_t_f64[] = {
    -4.032124972042335,      -2.3099818688020397,     -0.07635769146681107,
    0.03121237684263742,     -0.01254358029339928,    0.00484982925791878,
    -0.0017631053334703495,  0.0005810760173591742,   -0.00015974670809855985,
    2.6156325265421962e-05,  7.28864589271263e-06,    -1.0484488491833262e-05,
    7.066512537127765e-06,   -3.743427633605253e-06,  1.6970380389530892e-06,
    -6.629124602051503e-07,  2.1039165848955084e-07,  -4.285985407070897e-08,
    -3.988668157237802e-09,  1.3418982267642713e-08,  -1.3779008676299674e-08,
    7.166133828190026e-09,   -4.1754950537990864e-10, 2.5370140348199047e-10,
    -1.6342548290335044e-09, 5.719077842376002e-10,   3.4022868401652005e-10,
    -1.654182641978409e-10};

const char *ct__kir_math_name(ct_kmath f) {
    static const char *const names[] = {
#define X(NAME, name) #name,
        CT_KMATHS(X)
#undef X
    };
    return (unsigned)f < CT_MATH_COUNT ? names[f] : "?";
}

#define MATH_COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

// The constants in which f32 and f64 differ.
typedef struct {
    ct_dtype f, i;           // the float dtype and the int dtype of its size
    int mantissa, bias;      // explicit bits of the mantissa, bias of the exponent
    double magic;            // 1.5 * 2^mantissa: adding it rounds to an integer in the low bits
    int64_t magic_bits;      // its bits
    int64_t sign;            // the sign bit
    double ln2_hi, ln2_lo;   // ln 2 in two parts; hi times an exponent is exact
    double exp_min, exp_max; // beyond: 0, infinity
    double tiny;             // below: f(x) = x for the odd functions, expm1 and log1p
} math_format;

static const math_format math_f32 = {CT_F32,         CT_I32,     23,        127,
                                     0x1.8p23,       0x4b400000, INT32_MIN, 0x1.62ep-1,
                                     0x1.0bfbe8p-15, -104,       89,        0x1p-26};
static const math_format math_f64 = {CT_F64,    CT_I64,       52,
                                     1023,      0x1.8p52,     0x4338000000000000,
                                     INT64_MIN, 0x1.62e42p-1, 0x1.fdf473de6af28p-22,
                                     -746,      710,          0x1p-55};

// ------------------------------------------------------------------------------------- shorthands

ct_kval ct__kir_poly(ct_kir *k, ct_dtype dtype, const double *c, int n, ct_kval x) {
    ct_kval sum = ct__kir_const(k, dtype, c[n - 1]);
    for (int i = n - 2; i >= 0; i--) sum = ct__kir_fma(k, sum, x, ct__kir_const(k, dtype, c[i]));
    return sum;
}

static ct_kval math_const(ct_kir *k, const math_format *t, double x) {
    return ct__kir_const(k, t->f, x);
}
static ct_kval math_int(ct_kir *k, const math_format *t, int64_t x) {
    return ct__kir_const_int(k, t->i, x);
}

ct_kval ct__kir_copy_sign(ct_kir *k, ct_kval magnitude, ct_kval x) {
    const math_format *t = x >= 0 && k->ins[x].dtype == CT_F64 ? &math_f64 : &math_f32;
    ct_kval sign = math_int(k, t, t->sign);
    ct_kval s = ct__kir_bin(k, CT_K_AND, ct__kir_bitcast(k, x, t->i), sign);
    ct_kval others = math_int(k, t, ~t->sign);
    ct_kval m = ct__kir_bin(k, CT_K_AND, ct__kir_bitcast(k, magnitude, t->i), others);
    return ct__kir_bitcast(k, ct__kir_bin(k, CT_K_OR, m, s), t->f);
}

static ct_kval math_poly(ct_kir *k, const math_format *t, const double *c, int n, ct_kval x) {
    return ct__kir_poly(k, t->f, c, n, x);
}

static ct_kval math_less(ct_kir *k, const math_format *t, ct_kval x, double limit) {
    return ct__kir_lt(k, x, math_const(k, t, limit));
}

// The smaller of x and limit; NaN stays NaN.
static ct_kval math_clamp_above(ct_kir *k, const math_format *t, ct_kval x, double limit) {
    ct_kval c = math_const(k, t, limit);
    return ct__kir_select(k, ct__kir_lt(k, c, x), c, x);
}
static ct_kval math_clamp_below(ct_kir *k, const math_format *t, ct_kval x, double limit) {
    ct_kval c = math_const(k, t, limit);
    return ct__kir_select(k, ct__kir_lt(k, x, c), c, x);
}

// --------------------------------------------------------------------------------- exp and expm1

// x = n ln 2 + r with |r| <= ln 2 / 2 and an integer n; q with exp(r) - 1 = r + r^2 q.
typedef struct {
    ct_kval n, r, q;
} math_exp_parts;

static math_exp_parts math_reduce_exp(ct_kir *k, const math_format *t, ct_kval x) {
    ct_kval magic = math_const(k, t, t->magic);
    ct_kval shifted = ct__kir_fma(k, x, math_const(k, t, 0x1.71547652b82fep+0), magic);
    ct_kval n = ct__kir_sub(k, shifted, magic);
    ct_kval r = ct__kir_fma(k, n, math_const(k, t, -t->ln2_hi), x);
    r = ct__kir_fma(k, n, math_const(k, t, -t->ln2_lo), r);
    ct_kval q = t == &math_f32 ? math_poly(k, t, exp_q_f32, MATH_COUNT(exp_q_f32), r)
                               : math_poly(k, t, exp_q_f64, MATH_COUNT(exp_q_f64), r);
    return (math_exp_parts){n, r, q};
}

static ct_kval math_build_exp(ct_kir *k, const math_format *t, ct_kval x) {
    ct_kval clamped = math_clamp_below(k, t, math_clamp_above(k, t, x, t->exp_max), t->exp_min),
            one = math_const(k, t, 1);
    math_exp_parts e = math_reduce_exp(k, t, clamped);
    ct_kval y = ct__kir_fma(k, ct__kir_fma(k, e.q, e.r, one), e.r, one);
    return ct__kir_scale(k, y, e.n); // rounds once, also to subnormal numbers
}

// 2^x = 2^n exp(r ln 2) with n the integer nearest to x: exact if x is an integer.
static ct_kval math_build_exp2(ct_kir *k, const math_format *t, ct_kval x) {
    double min = t == &math_f32 ? -151 : -1076, max = t == &math_f32 ? 129 : 1025;
    ct_kval clamped = math_clamp_below(k, t, math_clamp_above(k, t, x, max), min),
            one = math_const(k, t, 1);
    ct_kval n = ct__kir_un(k, CT_K_ROUND, clamped);
    ct_kval r = ct__kir_mul(k, ct__kir_sub(k, clamped, n), math_const(k, t, 0x1.62e42fefa39efp-1));
    ct_kval q = t == &math_f32 ? math_poly(k, t, exp_q_f32, MATH_COUNT(exp_q_f32), r)
                               : math_poly(k, t, exp_q_f64, MATH_COUNT(exp_q_f64), r);
    return ct__kir_scale(k, ct__kir_fma(k, ct__kir_fma(k, q, r, one), r, one), n);
}

// (exp(x) - 1) / 2 = 2^(n - 1) p + 2^(n - 1) - 1/2, for x up to the format's exp_max: 2^n may overflow
// although the result does not.
static ct_kval math_expm1_half(ct_kir *k, const math_format *t, ct_kval x) {
    math_exp_parts e = math_reduce_exp(k, t, x);
    ct_kval p = ct__kir_fma(k, ct__kir_mul(k, e.r, e.r), e.q, e.r);
    ct_kval half = math_const(k, t, 0.5), s = ct__kir_scale(k, half, e.n);
    return ct__kir_fma(k, s, p, ct__kir_sub(k, s, half));
}

static ct_kval math_build_expm1(ct_kir *k, const math_format *t, ct_kval x) {
    ct_kval clamped =
        math_clamp_below(k, t, math_clamp_above(k, t, x, t->exp_max), t == &math_f32 ? -30 : -60);
    ct_kval y = math_expm1_half(k, t, clamped);
    y = ct__kir_add(k, y, y);
    return ct__kir_select(k, math_less(k, t, ct__kir_un(k, CT_K_ABS, x), t->tiny), x, y);
}

// --------------------------------------------------------------------------------- log and log1p

// log(2^e (1 + f)) for 1 + f in [sqrt(1/2), sqrt(2)]
static ct_kval math_log_of_parts(ct_kir *k, const math_format *t, ct_kval e, ct_kval f) {
    ct_kval z = ct__kir_mul(k, f, f);
    if (t == &math_f32) {
        ct_kval p = ct__kir_fma(k, z, math_poly(k, t, log_q_f32, MATH_COUNT(log_q_f32), f), f);
        // one rounding: a low part of ln 2 is not needed
        return ct__kir_fma(k, e, math_const(k, t, 0x1.62e43p-1), p);
    }
    // with s = f / (2 + f): log(1 + f) = 2 s + s^3 r(s^2) = f - f^2/2 + s (f^2/2 + s^2 r)
    ct_kval s = ct__kir_div(k, f, ct__kir_add(k, f, math_const(k, t, 2))),
            s2 = ct__kir_mul(k, s, s);
    ct_kval half = ct__kir_mul(k, z, math_const(k, t, 0.5)),
            low = ct__kir_mul(k, e, math_const(k, t, t->ln2_lo));
    ct_kval r = math_poly(k, t, log_r_f64, MATH_COUNT(log_r_f64), s2);
    ct_kval rest = ct__kir_fma(k, s, ct__kir_fma(k, s2, r, half), low);
    rest = ct__kir_add(k, f, ct__kir_sub(k, rest, half));
    return ct__kir_fma(k, e, math_const(k, t, t->ln2_hi), rest);
}

// log of a normal number, times 2 to the power `add`
static ct_kval math_log_normal(ct_kir *k, const math_format *t, ct_kval x, ct_kval add) {
    int64_t root_half = t == &math_f32 ? 0x3f3504f3 : 0x3fe6a09e667f3bcd; // bits of sqrt(1/2)
    ct_kval bits = ct__kir_bitcast(k, x, t->i), width = math_int(k, t, t->mantissa);
    ct_kval e = ct__kir_bin(k, CT_K_SHR, ct__kir_sub(k, bits, math_int(k, t, root_half)), width);
    ct_kval m = ct__kir_sub(k, bits, ct__kir_bin(k, CT_K_SHL, e, width));
    ct_kval f = ct__kir_sub(k, ct__kir_bitcast(k, m, t->f), math_const(k, t, 1));
    ct_kval ef = ct__kir_cast(k, e, t->f);
    return math_log_of_parts(k, t, add < 0 ? ef : ct__kir_add(k, ef, add), f);
}

static ct_kval math_build_log_any(ct_kir *k, const math_format *t, ct_kval x) {
    double smallest = t == &math_f32 ? 0x1p-126 : 0x1p-1022, up = t == &math_f32 ? 0x1p23 : 0x1p52;
    ct_kval subnormal = math_less(k, t, x, smallest);
    ct_kval y = ct__kir_select(k, subnormal, ct__kir_mul(k, x, math_const(k, t, up)), x);
    ct_kval add = ct__kir_select(k, subnormal, math_const(k, t, -t->mantissa), math_const(k, t, 0));
    ct_kval r = math_log_normal(k, t, y, add);
    // infinity and NaN are unchanged
    r = ct__kir_select(k, ct__kir_lt(k, x, math_const(k, t, __builtin_inf())), r, x);
    ct_kval nan = math_const(k, t, __builtin_nan(""));
    r = ct__kir_select(k, math_less(k, t, x, 0), nan, r);
    ct_kval zero = ct__kir_bin(k, CT_K_EQ, x, math_const(k, t, 0));
    return ct__kir_select(k, zero, math_const(k, t, -__builtin_inf()), r);
}

static ct_kval math_build_log(ct_kir *k, const math_format *t, ct_kval x) {
    ct_dtype u = t == &math_f32 ? CT_U32 : CT_U64;
    // the smallest normal number
    ct_kval smallest = ct__kir_const_int(k, u, (int64_t)1 << t->mantissa);
    ct_kval range = ct__kir_const_int(k, u, (int64_t)(2 * t->bias) << t->mantissa);
    ct_kval distance = ct__kir_sub(k, ct__kir_bitcast(k, x, u), smallest);
    ct_kval is_special = ct__kir_bin(k, CT_K_LE, range, distance);
    return ct__kir_math_where(k, CT_MATH_LOG_ANY, is_special, x, math_log_normal(k, t, x, -1));
}

static ct_kval math_build_log1p(ct_kir *k, const math_format *t, ct_kval x) {
    // u + c = 1 + x exactly; log(u + c) = log(u) + c / u
    ct_kval one = math_const(k, t, 1), u = ct__kir_add(k, x, one), part = ct__kir_sub(k, u, x);
    ct_kval c = ct__kir_sub(k, one, part);
    c = ct__kir_add(k, ct__kir_sub(k, x, ct__kir_sub(k, u, part)), c);
    ct_kval log_u = ct__kir_math(k, CT_MATH_LOG, u);
    ct_kval r = ct__kir_add(k, log_u, ct__kir_div(k, c, u));
    // for x = -1 and infinity, c / u is NaN
    ct_kval inside = ct__kir_lt(k, u, math_const(k, t, __builtin_inf()));
    inside = ct__kir_bin(k, CT_K_AND, ct__kir_lt(k, math_const(k, t, 0), u), inside);
    r = ct__kir_select(k, inside, r, log_u);
    return ct__kir_select(k, math_less(k, t, ct__kir_un(k, CT_K_ABS, x), t->tiny), x, r);
}

// ----------------------------------------------------------------------------------- sin and cos

// The integer nearest to x 2/pi, for |x| up to 2^52: for larger x the product alone, rounded to f64, is an
// integer that may not be the nearest one.
static ct_kval math_nearest_quarter(ct_kir *k, ct_kval x) {
    const math_format *d = &math_f64;
    ct_kval high = math_const(k, d, 0x1.45f306dc9c883p-1),
            low = math_const(k, d, -0x1.6b01ec5417056p-55);
    ct_kval product = ct__kir_mul(k, x, high);
    ct_kval rest = ct__kir_fma(k, x, high, ct__kir_un(k, CT_K_NEG, product));
    rest = ct__kir_fma(k, x, low, rest);
    ct_kval q = ct__kir_un(k, CT_K_ROUND, product);
    rest = ct__kir_add(k, ct__kir_sub(k, product, q), rest);
    return ct__kir_add(k, q, ct__kir_un(k, CT_K_ROUND, rest));
}

// In f64: x = q pi/2 + r with pi/2 in three parts (each product is exact in the fma), then a quarter by q
// mod 4. Accurate up to |x| of 2^52 (the samples of the ops sin and cos state it); beyond that, the result
// is only guaranteed to be in [-1, 1]. r of infinity is NaN.
static ct_kval math_build_sin_cos_far(ct_kir *k, const math_format *t, ct_kval x, bool cosine) {
    const math_format *d = &math_f64;
    ct_kval xd = ct__kir_cast(k, x, CT_F64);
    ct_kval q = math_nearest_quarter(k, xd), minus = ct__kir_un(k, CT_K_NEG, q);
    ct_kval r = ct__kir_fma(k, minus, math_const(k, d, 0x1.921fb54442d18p+0), xd);
    r = ct__kir_fma(k, minus, math_const(k, d, 0x1.1a62633145c07p-54), r);
    r = ct__kir_fma(k, minus, math_const(k, d, -0x1.f1976b7ed8fbcp-110), r);
    r = math_clamp_below(k, d, math_clamp_above(k, d, r, 0.7855), -0.7855);
    ct_kval quarter = ct__kir_un(k, CT_K_FLOOR, ct__kir_mul(k, q, math_const(k, d, 0.25)));
    quarter = ct__kir_fma(k, quarter, math_const(k, d, -4), q); // 0, 1, 2 or 3
    if (cosine) quarter = ct__kir_add(k, quarter, math_const(k, d, 1));
    ct_kval z = ct__kir_mul(k, r, r), rz = ct__kir_mul(k, r, z);
    ct_kval sine = math_poly(k, d, sin_p_f64, MATH_COUNT(sin_p_f64), z);
    ct_kval cosined = math_poly(k, d, cos_q_f64, MATH_COUNT(cos_q_f64), z);
    sine = ct__kir_fma(k, rz, sine, r);
    ct_kval one = math_const(k, d, 1), begin = ct__kir_fma(k, z, math_const(k, d, -0.5), one);
    cosined = ct__kir_fma(k, ct__kir_mul(k, z, z), cosined, begin);
    ct_kval first = ct__kir_bin(k, CT_K_EQ, quarter, math_const(k, d, 1));
    ct_kval third = ct__kir_bin(k, CT_K_EQ, quarter, math_const(k, d, 3));
    ct_kval odd = ct__kir_bin(k, CT_K_OR, first, third);
    ct_kval y = ct__kir_select(k, odd, cosined, sine);
    // quarters 2 and 3 are negative; 4 is 0 again
    ct_kval below = ct__kir_lt(k, math_const(k, d, 1.5), quarter),
            above = math_less(k, d, quarter, 3.5);
    ct_kval negative = ct__kir_un(k, CT_K_NEG, y);
    y = ct__kir_select(k, ct__kir_bin(k, CT_K_AND, below, above), negative, y);
    y = ct__kir_cast(k, y, t->f);
    if (cosine) return y;
    return ct__kir_select(k, math_less(k, t, ct__kir_un(k, CT_K_ABS, x), t->tiny), x, y);
}

// For f32 below 2^17, in f32. With x = q pi/2 + r, x - q p for the first 24 bits p of pi/2 is exact. All
// parts of pi/2 have the same sign, so that r of -0 is -0.
static ct_kval math_build_sin_cos_near(ct_kir *k, ct_kval x, bool cosine) {
    const math_format *t = &math_f32;
    ct_kval magic = math_const(k, t, t->magic), one = ct__kir_const_int(k, CT_I32, 1);
    ct_kval shifted = ct__kir_fma(k, x, math_const(k, t, 0x1.45f306dc9c883p-1), magic);
    ct_kval q = ct__kir_sub(k, shifted, magic), quarter = ct__kir_bitcast(k, shifted, CT_I32);
    ct_kval r = ct__kir_fma(k, q, math_const(k, t, -0x1.921fb4p+0), x);
    r = ct__kir_fma(k, q, math_const(k, t, -0x1.4442dp-24), r);
    r = ct__kir_fma(k, q, math_const(k, t, -0x1.84698ap-48), r);
    ct_kval z = ct__kir_mul(k, r, r), sine = math_poly(k, t, sin_p_f32, MATH_COUNT(sin_p_f32), z);
    // for z = 0 this gives a product of +0, so that -0 stays -0
    sine = ct__kir_fma(k, r, ct__kir_fma(k, z, sine, math_const(k, t, 0)), r);
    ct_kval cosined = math_poly(k, t, cos_q_f32, MATH_COUNT(cos_q_f32), z);
    cosined = ct__kir_fma(k, z, cosined, math_const(k, t, -0.5));
    cosined = ct__kir_fma(k, z, cosined, math_const(k, t, 1));
    ct_kval odd = ct__kir_bin(k, CT_K_AND, quarter, one);
    ct_kval even = ct__kir_bin(k, CT_K_EQ, odd, ct__kir_const_int(k, CT_I32, 0));
    ct_kval y = ct__kir_select(k, even, cosine ? cosined : sine, cosine ? sine : cosined);
    if (cosine) quarter = ct__kir_add(k, quarter, one);
    // quarters 2 and 3 are negative
    ct_kval sign = ct__kir_bin(k, CT_K_SHL, quarter, ct__kir_const_int(k, CT_I32, 30));
    sign = ct__kir_bin(k, CT_K_AND, sign, math_int(k, t, t->sign));
    ct_kval bits = ct__kir_bin(k, CT_K_XOR, ct__kir_bitcast(k, y, CT_I32), sign);
    return ct__kir_bitcast(k, bits, CT_F32);
}

static ct_kval math_build_sin_cos(ct_kir *k, const math_format *t, ct_kval x, bool cosine) {
    if (t != &math_f32) return math_build_sin_cos_far(k, t, x, cosine);
    ct_kval is_near = math_less(k, t, ct__kir_un(k, CT_K_ABS, x), 0x1p17);
    ct_kval is_far = ct__kir_un(k, CT_K_NOT, is_near);
    ct_kmath f = cosine ? CT_MATH_COS_FAR : CT_MATH_SIN_FAR;
    return ct__kir_math_where(k, f, is_far, x, math_build_sin_cos_near(k, x, cosine));
}

// ---------------------------------------------------------------------------------- tanh and erf

static ct_kval math_build_tanh(ct_kir *k, const math_format *t, ct_kval x) {
    bool f32 = t == &math_f32;
    ct_kval a = ct__kir_un(k, CT_K_ABS, x), z = ct__kir_mul(k, x, x);
    ct_kval p = f32 ? math_poly(k, t, tanh_p_f32, MATH_COUNT(tanh_p_f32), z)
                    : math_poly(k, t, tanh_p_f64, MATH_COUNT(tanh_p_f64), z);
    ct_kval near = ct__kir_fma(k, ct__kir_mul(k, a, z), p, a);
    // with e = (exp(2 a) - 1) / 2: e / (e + 1)
    ct_kval b = math_clamp_above(k, t, a, f32 ? 10 : 20),
            e = math_expm1_half(k, t, ct__kir_add(k, b, b));
    ct_kval far = ct__kir_div(k, e, ct__kir_add(k, e, math_const(k, t, 1)));
    ct_kval y = ct__kir_select(k, math_less(k, t, a, f32 ? 0.5 : 0.625), near, far);
    return ct__kir_copy_sign(k, y, x);
}

static ct_kval math_build_erf(ct_kir *k, const math_format *t, ct_kval x) {
    bool f32 = t == &math_f32;
    double split = f32 ? 0.921875 : 1, end = f32 ? 4 : 6;
    ct_kval a = ct__kir_un(k, CT_K_ABS, x), z = ct__kir_mul(k, x, x);
    ct_kval p = f32 ? math_poly(k, t, erf_p_f32, MATH_COUNT(erf_p_f32), z)
                    : math_poly(k, t, erf_p_f64, MATH_COUNT(erf_p_f64), z);
    ct_kval near = ct__kir_fma(k, x, p, x);
    // 1 - exp(log(erfc(a))), where the logarithm is a times a polynomial in u, in [-1, 1]
    ct_kval b = math_clamp_above(k, t, a, end),
            u = ct__kir_sub(k, b, math_const(k, t, (split + end) / 2));
    u = ct__kir_mul(k, u, math_const(k, t, 2 / (end - split)));
    ct_kval l = f32 ? math_poly(k, t, erf_t_f32, MATH_COUNT(erf_t_f32), u)
                    : math_poly(k, t, erf_t_f64, MATH_COUNT(erf_t_f64), u);
    ct_kval far = ct__kir_math(k, CT_MATH_EXP, ct__kir_mul(k, b, l));
    far = ct__kir_copy_sign(k, ct__kir_sub(k, math_const(k, t, 1), far), x);
    return ct__kir_select(k, math_less(k, t, a, split), near, far);
}

void ct__kir_math_body(ct_kir *k, ct_kmath f, ct_dtype dtype) {
    const math_format *t = dtype == CT_F64 ? &math_f64 : &math_f32;
    ct_kval x = ct__kir_param(k, dtype), y = -1;
    switch (f) {
    case CT_MATH_EXP: y = math_build_exp(k, t, x); break;
    case CT_MATH_EXP2: y = math_build_exp2(k, t, x); break;
    case CT_MATH_EXPM1: y = math_build_expm1(k, t, x); break;
    case CT_MATH_LOG: y = math_build_log(k, t, x); break;
    case CT_MATH_LOG1P: y = math_build_log1p(k, t, x); break;
    case CT_MATH_SIN: y = math_build_sin_cos(k, t, x, false); break;
    case CT_MATH_COS: y = math_build_sin_cos(k, t, x, true); break;
    case CT_MATH_TANH: y = math_build_tanh(k, t, x); break;
    case CT_MATH_ERF: y = math_build_erf(k, t, x); break;
    case CT_MATH_SIN_FAR: y = math_build_sin_cos_far(k, t, x, false); break;
    case CT_MATH_COS_FAR: y = math_build_sin_cos_far(k, t, x, true); break;
    case CT_MATH_LOG_ANY: y = math_build_log_any(k, t, x); break;
    case CT_MATH_COUNT: break;
    }
    ct__kir_ret(k, y);
}
