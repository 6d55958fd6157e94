// Complex numbers: two floats per element, the real part first. Kernels see only the parts: the `split` of an
// op's record, defined here, gives the op in terms of parts. Derivatives are taken before that, by the same
// rules as for floats: those of functions of a complex variable.
#include <math.h>

#include "kinds/batch.h"
#include "ops/rules.h"

// --------------------------------------------------------------------------------- parts and whole

static bool complex_infer(ct_call *call) {
    if (!ct__infer_elementwise(call)) return false;
    call->out->dtype = call->out->dtype == CT_F32 ? CT_C64 : CT_C128;
    return true;
}
static bool complex_eval(const ct_ref *ref) {
    const ct_dtype part = ct__part((ct_dtype)ref->out_type->dtype);
    for (int64_t i = 0; i < ct__count(ref->out_type); i++)
        for (int p = 0; p < 2; p++) {
            const ct_type *in = &ref->in_type[p];
            int64_t at = ct__broadcast_index(ref->out_type, in, i);
            ct__store_f64(part, ref->out[0], 2 * i + p,
                          ct__load_f64((ct_dtype)in->dtype, ref->in[p], at));
        }
    return true;
}
static bool complex_jvp(ct_rule *r) {
    return ct__set_tangent(
        r, ct_complex(ct__or_zeros(r->t_in[0], r->in[0]), ct__or_zeros(r->t_in[1], r->in[1])));
}
// For a cotangent c the real part of c x' counts, as in JAX: that of i x' is -Im(c) x'.
static bool complex_transpose(ct_rule *r) {
    if (r->linear[0]) r->c_in[0] = ct_real(r->c_out[0]);
    if (r->linear[1]) r->c_in[1] = ct_neg(ct_imag(r->c_out[0]));
    return true;
}
static ct_kval complex_never_emitted(const ct_elem *e) {
    return (void)e, -1;
} // it exists only in memory
const ct_opdef ct__op_complex = {
    CT_OP(COMPLEX, complex, elementwise, 2, 1),
    .doc = "The complex numbers re + i im.",
    .accepts = CT_MASK(CT_F32) | CT_MASK(CT_F64),
    .infer = complex_infer,
    .eval = complex_eval,
    .jvp = complex_jvp,
    .transpose = complex_transpose,
    .emit = complex_never_emitted,
    .stablehlo = "complex",
};

static bool part_infer(ct_call *call) {
    if (!ct__infer_elementwise(call)) return false;
    call->out->dtype = (uint8_t)ct__part((ct_dtype)call->out->dtype);
    return true;
}
static bool part_eval(const ct_ref *ref) {
    const ct_dtype part = (ct_dtype)ref->out_type->dtype;
    for (int64_t i = 0; i < ct__count(ref->out_type); i++)
        ct__store_f64(part, ref->out[0], i,
                      ct__load_f64(part, ref->in[0], 2 * i + ref->node->op->part - 1));
    return true;
}
static bool real_transpose(ct_rule *r) {
    return ct__set_cotangent(r, ct_complex(r->c_out[0], ct__zeros_like(r->c_out[0])));
}
static bool imag_transpose(ct_rule *r) {
    return ct__set_cotangent(r, ct_complex(ct__zeros_like(r->c_out[0]), ct_neg(r->c_out[0])));
}
#define PART(ID, op, number)                                                                       \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_elementwise, .n_in = 1, .n_out = 1,           \
    .accepts = CT_COMPLEX, .infer = part_infer, .eval = part_eval, .jvp = ct__jvp_same,            \
    .transpose = op##_transpose, .emit = complex_never_emitted, .part = number,                    \
    .undoes = &ct__op_complex, .stablehlo = #op
const ct_opdef ct__op_real = {PART(REAL, real, 1), .doc = "The real part of complex numbers."};
const ct_opdef ct__op_imag = {PART(IMAG, imag, 2), .doc = "The imaginary part of complex numbers."};

#define FUNCTION(ID, op)                                                                           \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_composition, .n_in = 1, .n_out = 1,           \
    .accepts = CT_COMPLEX, .body = op##_body, .batch = ct__batch_pointwise
static bool conj_body(ct_rule *r) {
    return ct__set_body(r, ct_complex(ct_real(r->in[0]), ct_neg(ct_imag(r->in[0]))));
}
static bool conj_transpose(ct_rule *r) { // the real part of c conj(x') is that of conj(c) x'
    return ct__set_cotangent(r, ct_conj(r->c_out[0]));
}
const ct_opdef ct__op_conj = {
    FUNCTION(CONJ, conj),
    .jvp = ct__jvp_same,
    .transpose = conj_transpose,
    .infer = ct__infer_elementwise,
    .doc = "The complex conjugate of x: its imaginary part is negated.",
};
static bool angle_body(ct_rule *r) {
    return ct__set_body(r, ct_atan2(ct_imag(r->in[0]), ct_real(r->in[0])));
}
const ct_opdef ct__op_angle = {
    FUNCTION(ANGLE, angle),
    .infer = part_infer,
    .doc = "The angle of complex numbers, from -pi to pi.",
};

// ------------------------------------------------------------------------------------ ops of parts

typedef struct {
    ct_tensor re, im;
} parts;

// Returns operand k in the dtype in which the node computes.
static parts complex_operand(const ct_rule *r, int k) {
    const ct_dtype dtype = ct__compute_dtype(r->node);
    ct_tensor x = r->in[k];
    if ((ct_dtype)ct__type_of(x)->dtype != dtype) x = ct_cast(x, dtype);
    return (parts){ct_real(x), ct_imag(x)};
}
static bool complex_return(ct_rule *r, ct_tensor re, ct_tensor im) {
    return ct__set_body(r, ct_complex(re, im));
}
// The function of operand 0, or of it with the parts exchanged, whose result's are exchanged back: functions of
// i z are those of z that way, sinh(z) = -i sin(i z).
static bool complex_apply(ct_rule *r, parts (*f)(parts)) {
    parts y = f(complex_operand(r, 0));
    return complex_return(r, y.re, y.im);
}
static bool complex_apply_swapped(ct_rule *r, parts (*f)(parts)) {
    parts x = complex_operand(r, 0), y = f((parts){x.im, x.re});
    return complex_return(r, y.im, y.re);
}

bool ct__split_equal(ct_rule *r) {
    parts a = complex_operand(r, 0), b = complex_operand(r, 1);
    return ct__set_body(r, ct_and(ct_equal(a.re, b.re), ct_equal(a.im, b.im)));
}
bool ct__split_not_equal(ct_rule *r) {
    parts a = complex_operand(r, 0), b = complex_operand(r, 1);
    return ct__set_body(r, ct_or(ct_not_equal(a.re, b.re), ct_not_equal(a.im, b.im)));
}

bool ct__split_mul(ct_rule *r) {
    parts a = complex_operand(r, 0), b = complex_operand(r, 1);
    return complex_return(r, ct_sub(ct_mul(a.re, b.re), ct_mul(a.im, b.im)),
                          ct_add(ct_mul(a.re, b.im), ct_mul(a.im, b.re)));
}
static ct_tensor complex_part_product(ct_rule *r, ct_tensor a, ct_tensor b) {
    return ct__record(r->node->op, r->attrs, (ct_tensor[]){a, b}, 2, r->node->here);
}
bool ct__split_contraction(ct_rule *r) {
    const ct_dtype dtype = (ct_dtype)r->node->out->dtype;
    parts x[2];
    for (int k = 0; k < 2; k++) {
        ct_tensor t = r->in[k];
        if ((ct_dtype)ct__type_of(t)->dtype != dtype) t = ct_cast(t, dtype);
        x[k] = (parts){ct_real(t), ct_imag(t)};
    }
    return complex_return(r,
                          ct_sub(complex_part_product(r, x[0].re, x[1].re),
                                 complex_part_product(r, x[0].im, x[1].im)),
                          ct_add(complex_part_product(r, x[0].re, x[1].im),
                                 complex_part_product(r, x[0].im, x[1].re)));
}

// Divides both parts by the divisor's larger part, so that no square overflows (Smith, "Algorithm 116", CACM
// 1962).
bool ct__split_div(ct_rule *r) {
    parts a = complex_operand(r, 0), b = complex_operand(r, 1);
    ct_tensor swapped = ct_less(ct_abs(b.re), ct_abs(b.im));
    ct_tensor large = ct_select(swapped, b.im, b.re), small = ct_select(swapped, b.re, b.im);
    ct_tensor first = ct_select(swapped, a.im, a.re), second = ct_select(swapped, a.re, a.im);
    ct_tensor ratio = ct_div(small, large), by = ct_add(large, ct_mul(small, ratio));
    ct_tensor im = ct_div(ct_sub(second, ct_mul(first, ratio)), by);
    return complex_return(r, ct_div(ct_add(first, ct_mul(second, ratio)), by),
                          ct_select(swapped, ct_neg(im), im));
}

static ct_tensor complex_larger_part(parts x) { return ct_maximum(ct_abs(x.re), ct_abs(x.im)); }
static ct_tensor complex_smaller_part(parts x) { return ct_minimum(ct_abs(x.re), ct_abs(x.im)); }
static ct_tensor complex_abs(parts x) { return ct_hypot(x.re, x.im); }
static bool complex_is_double(parts x) { return ct__type_of(x.re)->dtype == CT_F64; }
// True if a part is so large that the sum or the absolute value may overflow.
static ct_tensor complex_is_huge(parts x) {
    return ct_less(ct__number_like(complex_is_double(x) ? 0x1p1020 : 0x1p124, x.re),
                   complex_larger_part(x));
}
bool ct__split_abs(ct_rule *r) { return ct__set_body(r, complex_abs(complex_operand(r, 0))); }

static ct_tensor complex_part_is_inf(ct_tensor x) { return ct_equal(ct_abs(x), ct_f(INFINITY)); }
// Multiplies an absolute value by a sine or another factor: 0 where one is 0, also if the other is infinite
// or NaN.
static ct_tensor complex_sign_factor(ct_tensor x) {
    return ct_select(ct_less(x, ct_f(0)), ct_f(-1), ct_f(1));
}
static ct_tensor complex_scale(ct_tensor size, ct_tensor factor) {
    ct_tensor zero = ct_f(0), a = ct_equal(size, zero), b = ct_equal(factor, zero);
    return ct_mul(ct_select(ct_and(b, ct_not(a)), complex_sign_factor(size), size),
                  ct_select(ct_and(a, ct_not(b)), complex_sign_factor(factor), factor));
}
// The same for an absolute value that is infinite because x is: where the factor is NaN, the result is the
// absolute value.
static ct_tensor complex_scale_or_inf(ct_tensor x, ct_tensor size, ct_tensor factor) {
    return ct_select(ct_and(complex_part_is_inf(x), ct_is_nan(factor)), size,
                     complex_scale(size, factor));
}
static ct_tensor complex_half(ct_tensor x) { return ct_mul(x, ct_f(0.5)); }

bool ct__split_exp(ct_rule *r) {
    parts x = complex_operand(r, 0);
    ct_tensor size = ct_exp(x.re), nan = ct_f(NAN), inside = ct_less(ct_abs(x.re), ct_f(INFINITY));
    ct_tensor lost = ct_and(inside, ct_not(ct_less(ct_abs(x.im), ct_f(INFINITY)))); // no direction
    return complex_return(r, ct_select(lost, nan, complex_scale_or_inf(x.re, size, ct_cos(x.im))),
                          ct_select(lost, nan, complex_scale(size, ct_sin(x.im))));
}
// exp(x) cos(y) - 1 = (exp(x) - 1) cos(y) + (cos(y) - 1), and cos(y) - 1 = -2 sin(y / 2)^2.
bool ct__split_expm1(ct_rule *r) {
    parts x = complex_operand(r, 0);
    ct_tensor sine = ct_sin(complex_half(x.im)), less = ct_mul(ct_mul(sine, sine), ct_f(-2));
    return complex_return(r, ct_add(ct_mul(ct_expm1(x.re), ct_cos(x.im)), less),
                          complex_scale(ct_exp(x.re), ct_sin(x.im)));
}
// For huge numbers, computes with half of the number.
static ct_tensor complex_log_abs_large(parts x) {
    ct_tensor huge = complex_is_huge(x), by = ct_select(huge, ct_f(0.5), ct_f(1));
    ct_tensor log2 = ct__number_like(0.6931471805599453, x.re);
    ct_tensor own = ct_log(complex_abs((parts){ct_mul(x.re, by), ct_mul(x.im, by)}));
    return ct_select(huge, ct_add(own, log2), own);
}
// The logarithm of an absolute value near 1 is that of 1 + (large - 1) (large + 1) + small small.
static ct_tensor complex_log_abs(parts x) {
    ct_tensor large = complex_larger_part(x), small = complex_smaller_part(x), one = ct_f(1);
    ct_tensor off = ct_add(ct_mul(ct_sub(large, one), ct_add(large, one)), ct_mul(small, small));
    ct_tensor near = ct_less(ct_abs(off), ct_f(0.5));
    return ct_select(near, ct_mul(ct_log1p(off), ct_f(0.5)), complex_log_abs_large(x));
}
bool ct__split_log(ct_rule *r) {
    parts x = complex_operand(r, 0);
    return complex_return(r, complex_log_abs(x), ct_atan2(x.im, x.re));
}
static bool complex_log_base(ct_rule *r, double factor) {
    parts x = complex_operand(r, 0);
    ct_tensor log = ct_log(ct_complex(x.re, x.im)), by = ct__number_like(factor, x.re);
    return complex_return(r, ct_mul(ct_real(log), by), ct_mul(ct_imag(log), by));
}
bool ct__split_log2(ct_rule *r) { return complex_log_base(r, 1.4426950408889634); }
bool ct__split_log10(ct_rule *r) { return complex_log_base(r, 0.43429448190325182); }
// if the absolute value is near 1, computes from x, since 1 + x may be rounded
bool ct__split_log1p(ct_rule *r) {
    parts x = complex_operand(r, 0), more = {ct_add(x.re, ct_f(1)), x.im};
    ct_tensor off = ct_add(ct_mul(x.re, ct_add(x.re, ct_f(2))), ct_mul(x.im, x.im));
    ct_tensor near = ct_and(ct_less(ct_abs(off), ct_f(0.5)), ct_less(ct_abs(x.re), ct_f(0.5)));
    ct_tensor size = ct_select(near, complex_half(ct_log1p(off)), complex_log_abs(more));
    return complex_return(r, size, ct_atan2(more.im, more.re));
}
static ct_tensor complex_is_negative(ct_tensor x) { // also for -0
    return ct_or(ct_less(x, ct_f(0)), ct_less(ct_div(ct_f(1), x), ct_f(0)));
}
static parts complex_sqrt(parts x) {
    ct_tensor huge = complex_is_huge(x), by = ct_select(huge, ct_f(0.25), ct_f(1)), zero = ct_f(0);
    parts own = {ct_mul(x.re, by), ct_mul(x.im, by)};
    ct_tensor large = ct_sqrt(complex_half(ct_add(ct_abs(own.re), complex_abs(own))));
    ct_tensor both = complex_part_is_inf(x.im); // both parts are infinite, also if the other is NaN
    large = ct_select(both, ct_f(INFINITY), large);
    ct_tensor small = complex_half(ct_div(ct_abs(own.im), large));
    small = ct_select(ct_or(ct_equal(large, zero), both), large, small);
    by = ct_select(huge, ct_f(2), ct_f(1));
    large = ct_mul(large, by), small = ct_mul(small, by);
    ct_tensor left = ct_less(x.re, zero), im = ct_select(left, large, small);
    return (parts){ct_select(left, small, large),
                   ct_select(complex_is_negative(x.im), ct_neg(im), im)};
}
bool ct__split_sqrt(ct_rule *r) { return complex_apply(r, complex_sqrt); }

// ------------------------------------------------------------------------- circles and hyperbolas

static parts complex_sin(parts x) {
    return (parts){complex_scale(ct_cosh(x.im), ct_sin(x.re)),
                   complex_scale_or_inf(x.im, ct_sinh(x.im), ct_cos(x.re))};
}
static parts complex_cos(parts x) {
    return (parts){complex_scale_or_inf(x.im, ct_cosh(x.im), ct_cos(x.re)),
                   ct_neg(complex_scale(ct_sinh(x.im), ct_sin(x.re)))};
}
// (sinh cosh + i sin cos) / (sinh^2 + cos^2), both divided by cosh^2.
static parts complex_tanh(parts x) {
    ct_tensor cosh = ct_cosh(x.re), tanh = ct_tanh(x.re), cos = ct_cos(x.im);
    ct_tensor less = ct_div(ct_f(1), ct_mul(cosh, cosh));
    ct_tensor by = ct_add(ct_mul(tanh, tanh), ct_mul(ct_mul(cos, cos), less));
    ct_tensor way = ct_mul(ct_sin(x.im), cos), im = ct_div(ct_mul(way, less), by);
    // For an infinite z the imaginary part is a zero; for a real or an imaginary z the other part is a zero.
    ct_tensor far = complex_part_is_inf(x.re), axis = ct_equal(x.re, ct_f(0)),
              real = ct_equal(x.im, ct_f(0));
    im = ct_select(far, ct_copysign(ct_f(0), ct_select(ct_is_nan(way), x.im, way)), im);
    return (parts){ct_select(ct_or(far, axis), tanh, ct_div(tanh, by)), ct_select(real, x.im, im)};
}
bool ct__split_sin(ct_rule *r) { return complex_apply(r, complex_sin); }
bool ct__split_sinh(ct_rule *r) { return complex_apply_swapped(r, complex_sin); }
bool ct__split_cos(ct_rule *r) { return complex_apply(r, complex_cos); }
bool ct__split_cosh(ct_rule *r) {
    parts x = complex_operand(r, 0);
    return complex_return(r, complex_scale_or_inf(x.re, ct_cosh(x.re), ct_cos(x.im)),
                          complex_scale(ct_sinh(x.re), ct_sin(x.im)));
}
bool ct__split_tanh(ct_rule *r) { return complex_apply(r, complex_tanh); }
bool ct__split_tan(ct_rule *r) { return complex_apply_swapped(r, complex_tanh); }

// The inverses (Kahan, "Branch cuts for complex elementary functions", 1987) use the roots of 1 - z and 1 +
// z, whose parts do not cancel and whose zeros have the signs of the sides of the cuts.
static parts complex_sqrt_one_minus(parts x) {
    return complex_sqrt((parts){ct_sub(ct_f(1), x.re), ct_neg(x.im)});
}
static parts complex_sqrt_one_plus(parts x) {
    return complex_sqrt((parts){ct_add(x.re, ct_f(1)), x.im});
}
// The parts of conj(a) b.
static ct_tensor complex_dot(parts a, parts b) {
    return ct_add(ct_mul(a.re, b.re), ct_mul(a.im, b.im));
}
static ct_tensor complex_cross(parts a, parts b) {
    return ct_sub(ct_mul(a.re, b.im), ct_mul(a.im, b.re));
}
// Far from 0 the inverses are log(2 |z|) and the direction of z, which is determined by an infinite part
// alone.
static ct_tensor complex_inf_direction(ct_tensor x) { // for an infinite z; NaN stays
    ct_tensor size = ct_select(complex_part_is_inf(x), ct_f(1), ct_f(0));
    return ct_select(ct_is_nan(x), x, ct_copysign(size, x));
}
typedef struct {
    ct_tensor is; // bool
    ct_tensor log;
    parts way;
} far_limit;
static far_limit complex_far_limit(parts x) {
    ct_tensor infinite = ct_or(complex_part_is_inf(x.re), complex_part_is_inf(x.im));
    ct_tensor large = ct_less(ct__number_like(1e10, x.re), complex_larger_part(x));
    ct_tensor log = ct_add(complex_log_abs_large(x), ct__number_like(0.6931471805599453, x.re));
    return (far_limit){ct_or(infinite, large),
                       ct_select(infinite, ct_f(INFINITY), log),
                       {ct_select(infinite, complex_inf_direction(x.re), x.re),
                        ct_select(infinite, complex_inf_direction(x.im), x.im)}};
}
static parts complex_select_far(const far_limit *far, parts limit, parts value) {
    return (parts){ct_select(far->is, limit.re, value.re), ct_select(far->is, limit.im, value.im)};
}
static parts complex_asin(parts x) {
    parts less = complex_sqrt_one_minus(x), more = complex_sqrt_one_plus(x);
    ct_tensor down = ct_sub(ct_mul(less.re, more.re), ct_mul(less.im, more.im));
    far_limit far = complex_far_limit(x);
    parts limit = {ct_atan2(far.way.re, ct_abs(far.way.im)), ct_copysign(far.log, x.im)};
    parts y = {ct_atan2(x.re, down), ct_asinh(complex_cross(less, more))};
    y = complex_select_far(&far, limit, y);
    y.re = ct_select(ct_equal(x.re, ct_f(0)), x.re, y.re); // also if the other part is NaN
    return y;
}
bool ct__split_asin(ct_rule *r) { return complex_apply(r, complex_asin); }
bool ct__split_asinh(ct_rule *r) { return complex_apply_swapped(r, complex_asin); }
bool ct__split_acos(ct_rule *r) {
    parts x = complex_operand(r, 0), less = complex_sqrt_one_minus(x),
          more = complex_sqrt_one_plus(x);
    ct_tensor angle = ct_atan2(less.re, more.re);
    far_limit far = complex_far_limit(x);
    parts limit = {ct_atan2(ct_abs(far.way.im), far.way.re), ct_copysign(far.log, ct_neg(x.im))};
    parts y = {ct_add(angle, angle), ct_asinh(complex_cross(more, less))};
    y = complex_select_far(&far, limit, y);
    ct_tensor quarter = ct__number_like(1.5707963267948966, x.re);
    y.re = ct_select(ct_equal(x.re, ct_f(0)), quarter, y.re); // also if the other part is NaN
    return complex_return(r, y.re, y.im);
}
bool ct__split_acosh(ct_rule *r) {
    parts x = complex_operand(r, 0), down = complex_sqrt((parts){ct_sub(x.re, ct_f(1)), x.im}),
          more = complex_sqrt_one_plus(x);
    ct_tensor angle = ct_atan2(down.im, more.re);
    far_limit far = complex_far_limit(x);
    parts limit = {far.log, ct_atan2(far.way.im, far.way.re)};
    parts y = complex_select_far(&far, limit,
                                 (parts){ct_asinh(complex_dot(down, more)), ct_add(angle, angle)});
    return complex_return(r, y.re, y.im);
}
// log((1 + z) / (1 - z)) / 2 for a real part x >= 0: log(1 + 4 x / h^2) / 4 with h = |1 - z|; near the pole
// (log(4 x + h^2) - 2 log(h)) / 4, so that no square underflows; the angle of 1 - |z|^2 + 2 i y, halved.
static parts complex_atanh(parts x) {
    ct_tensor one = ct_f(1), size = ct_abs(x.re), less = ct_sub(one, size), zero = ct_f(0);
    ct_tensor h = ct_hypot(less, x.im), four = ct_mul(size, ct_f(4));
    ct_tensor half_h = ct_hypot(complex_half(less), complex_half(x.im)); // which is in range
    ct_tensor ratio = ct_mul(ct_div(complex_half(size), half_h), ct_div(ct_f(2), half_h));
    ct_tensor pole = ct_sub(ct_log(ct_add(four, ct_mul(h, h))), ct_mul(ct_log(h), ct_f(2)));
    ct_tensor re =
        complex_half(complex_half(ct_select(ct_less(h, ct_f(0.5)), pole, ct_log1p(ratio))));
    ct_tensor down = ct_sub(ct_mul(less, ct_add(size, one)), ct_mul(x.im, x.im));
    ct_tensor im = complex_half(ct_atan2(x.im, complex_half(down)));
    // also if the other part is NaN: on the imaginary axis
    ct_tensor far = ct_or(complex_part_is_inf(x.re), complex_part_is_inf(x.im));
    ct_tensor quarter = ct_copysign(ct__number_like(1.5707963267948966, x.re), x.im);
    re = ct_select(ct_or(far, ct_equal(x.re, zero)), zero, re);
    im = ct_select(far, ct_select(ct_is_nan(x.im), x.im, quarter), im);
    return (parts){ct_copysign(re, x.re), im};
}
bool ct__split_atanh(ct_rule *r) { return complex_apply(r, complex_atanh); }
bool ct__split_atan(ct_rule *r) { return complex_apply_swapped(r, complex_atanh); }

bool ct__split_sign(ct_rule *r) {
    parts x = complex_operand(r, 0);
    ct_tensor size = complex_abs(x), by = ct_select(ct_equal(size, ct_f(0)), ct_f(1), size);
    return complex_return(r, ct_div(x.re, by), ct_div(x.im, by));
}
bool ct__split_is_inf(ct_rule *r) {
    parts x = complex_operand(r, 0);
    return ct__set_body(r, ct_or(ct_is_inf(x.re), ct_is_inf(x.im)));
}
bool ct__split_is_finite(ct_rule *r) {
    parts x = complex_operand(r, 0);
    return ct__set_body(r, ct_and(ct_is_finite(x.re), ct_is_finite(x.im)));
}

// The product of the absolute values at the sum of the angles, in f64.
bool ct__split_prod(ct_rule *r) {
    const ct_dtype dtype = (ct_dtype)r->node->out->dtype;
    ct_tensor x = ct_cast(r->in[0], CT_C128), all[2] = {ct_abs(x), ct_angle(x)};
    ct_tensor size = ct__record(r->node->op, r->attrs, &all[0], 1, r->node->here);
    ct_tensor angle = ct__record(&ct__op_sum, r->attrs, &all[1], 1, r->node->here);
    ct_tensor product = ct_complex(ct_mul(size, ct_cos(angle)), ct_mul(size, ct_sin(angle)));
    return ct__set_body(r, ct_cast(product, dtype));
}

// To complex numbers from any others, or from complex numbers of another size.
bool ct__split_to_complex(ct_rule *r) {
    const ct_dtype part = ct__part((ct_dtype)r->node->out->dtype);
    ct_tensor x = r->in[0];
    if (ct__is_complex((ct_dtype)ct__type_of(x)->dtype))
        return complex_return(r, ct_cast(ct_real(x), part), ct_cast(ct_imag(x), part));
    x = ct_cast(x, part);
    return complex_return(r, x, ct__zeros_like(x));
}
