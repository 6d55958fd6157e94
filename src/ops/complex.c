// Complex numbers: two floats an element, the real part first. Kernels have the parts alone: here
// stands what an op of complex numbers is of them (the `split` of the op's record). Derivatives are
// taken before that, by the rules that floats have, too: those of functions of a complex variable.
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
            int64_t at = ct__broadcast_place(ref->out_type, in, i);
            ct__store_f64(part, ref->out[0], 2 * i + p,
                          ct__load_f64((ct_dtype)in->dtype, ref->in[p], at));
        }
    return true;
}
static bool complex_jvp(ct_rule *r) {
    r->t_out[0] =
        ct_complex(ct__or_zeros(r->t_in[0], r->in[0]), ct__or_zeros(r->t_in[1], r->in[1]));
    return true;
}
// Of a cotangent c the real part of c x' counts, as in JAX: that of i x' is -Im(c) x'.
static bool complex_transpose(ct_rule *r) {
    if (r->linear[0]) r->c_in[0] = ct_real(r->c_out[0]);
    if (r->linear[1]) r->c_in[1] = ct_neg(ct_imag(r->c_out[0]));
    return true;
}
static ct_kval never_emitted(const ct_elem *e) { return (void)e, -1; } // it is for memory alone
const ct_opdef ct__op_complex = {
    .id = CT_OP_COMPLEX,
    .name = "complex",
    .doc = "The complex numbers re + i im.",
    .kind = &ct__kind_elementwise,
    .n_in = 2,
    .n_out = 1,
    .accepts = CT_MASK(CT_F32) | CT_MASK(CT_F64),
    .infer = complex_infer,
    .eval = complex_eval,
    .jvp = complex_jvp,
    .transpose = complex_transpose,
    .emit = never_emitted,
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
    r->c_in[0] = ct_complex(r->c_out[0], ct__zeros_like(r->c_out[0]));
    return true;
}
static bool imag_transpose(ct_rule *r) {
    r->c_in[0] = ct_complex(ct__zeros_like(r->c_out[0]), ct_neg(r->c_out[0]));
    return true;
}
#define PART(ID, op, number)                                                                       \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_elementwise, .n_in = 1, .n_out = 1,           \
    .accepts = CT_COMPLEX, .infer = part_infer, .eval = part_eval, .jvp = ct__jvp_same,            \
    .transpose = op##_transpose, .emit = never_emitted, .part = number, .undoes = &ct__op_complex, \
    .stablehlo = #op
const ct_opdef ct__op_real = {PART(REAL, real, 1), .doc = "The real part of complex numbers."};
const ct_opdef ct__op_imag = {PART(IMAG, imag, 2), .doc = "The imaginary part of complex numbers."};

#define FUNCTION(ID, op)                                                                           \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_composition, .n_in = 1, .n_out = 1,           \
    .accepts = CT_COMPLEX, .body = op##_body, .batch = ct__batch_pointwise
static bool conj_body(ct_rule *r) {
    r->body_out[0] = ct_complex(ct_real(r->in[0]), ct_neg(ct_imag(r->in[0])));
    return true;
}
static bool conj_transpose(ct_rule *r) { // the real part of c conj(x') is that of conj(c) x'
    r->c_in[0] = ct_conj(r->c_out[0]);
    return true;
}
const ct_opdef ct__op_conj = {
    FUNCTION(CONJ, conj),
    .jvp = ct__jvp_same,
    .transpose = conj_transpose,
    .infer = ct__infer_elementwise,
    .doc = "The complex conjugate of x: its imaginary part is negated.",
};
static bool angle_body(ct_rule *r) {
    r->body_out[0] = ct_atan2(ct_imag(r->in[0]), ct_real(r->in[0]));
    return true;
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

// Operand k in the dtype in which the node computes.
static parts operand(const ct_rule *r, int k) {
    const ct_dtype dtype = ct__compute_dtype(r->node);
    ct_tensor x = r->in[k];
    if ((ct_dtype)ct__type_of(x)->dtype != dtype) x = ct_cast(x, dtype);
    return (parts){ct_real(x), ct_imag(x)};
}
static bool whole(ct_rule *r, ct_tensor re, ct_tensor im) {
    r->body_out[0] = ct_complex(re, im);
    return true;
}

bool ct__split_equal(ct_rule *r) {
    parts a = operand(r, 0), b = operand(r, 1);
    r->body_out[0] = ct_and(ct_equal(a.re, b.re), ct_equal(a.im, b.im));
    return true;
}
bool ct__split_not_equal(ct_rule *r) {
    parts a = operand(r, 0), b = operand(r, 1);
    r->body_out[0] = ct_or(ct_not_equal(a.re, b.re), ct_not_equal(a.im, b.im));
    return true;
}

bool ct__split_mul(ct_rule *r) {
    parts a = operand(r, 0), b = operand(r, 1);
    return whole(r, ct_sub(ct_mul(a.re, b.re), ct_mul(a.im, b.im)),
                 ct_add(ct_mul(a.re, b.im), ct_mul(a.im, b.re)));
}
static ct_tensor product(ct_rule *r, ct_tensor a, ct_tensor b) {
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
    return whole(r, ct_sub(product(r, x[0].re, x[1].re), product(r, x[0].im, x[1].im)),
                 ct_add(product(r, x[0].re, x[1].im), product(r, x[0].im, x[1].re)));
}

// Both by the divisor's larger part, so that no square overflows (Smith, "Algorithm 116", CACM 1962).
bool ct__split_div(ct_rule *r) {
    parts a = operand(r, 0), b = operand(r, 1);
    ct_tensor turned = ct_less(ct_abs(b.re), ct_abs(b.im));
    ct_tensor large = ct_select(turned, b.im, b.re), small = ct_select(turned, b.re, b.im);
    ct_tensor first = ct_select(turned, a.im, a.re), second = ct_select(turned, a.re, a.im);
    ct_tensor ratio = ct_div(small, large), by = ct_add(large, ct_mul(small, ratio));
    ct_tensor im = ct_div(ct_sub(second, ct_mul(first, ratio)), by);
    return whole(r, ct_div(ct_add(first, ct_mul(second, ratio)), by),
                 ct_select(turned, ct_neg(im), im));
}

static ct_tensor larger(parts x) { return ct_maximum(ct_abs(x.re), ct_abs(x.im)); }
static ct_tensor smaller(parts x) { return ct_minimum(ct_abs(x.re), ct_abs(x.im)); }
static ct_tensor size_of(parts x) { // sqrt(re re + im im), without overflow
    ct_tensor large = larger(x), ratio = ct_div(smaller(x), large);
    ct_tensor size = ct_mul(large, ct_sqrt(ct_add(ct_mul(ratio, ratio), ct_f(1))));
    ct_tensor plain = ct_or(ct_equal(large, ct_f(0)), ct_equal(large, ct_f(INFINITY)));
    return ct_select(plain, large, size);
}
bool ct__split_abs(ct_rule *r) {
    r->body_out[0] = size_of(operand(r, 0));
    return true;
}

bool ct__split_exp(ct_rule *r) {
    parts x = operand(r, 0);
    ct_tensor size = ct_exp(x.re);
    return whole(r, ct_mul(size, ct_cos(x.im)), ct_mul(size, ct_sin(x.im)));
}
// The logarithm of a size near 1 is that of 1 + (large - 1) (large + 1) + small small.
bool ct__split_log(ct_rule *r) {
    parts x = operand(r, 0);
    ct_tensor large = larger(x), small = smaller(x), one = ct_f(1);
    ct_tensor off = ct_add(ct_mul(ct_sub(large, one), ct_add(large, one)), ct_mul(small, small));
    ct_tensor near = ct_less(ct_abs(off), ct_f(0.5));
    ct_tensor size = ct_select(near, ct_mul(ct_log1p(off), ct_f(0.5)), ct_log(size_of(x)));
    return whole(r, size, ct_atan2(x.im, x.re));
}
static ct_tensor is_negative(ct_tensor x) { // -0 too
    return ct_or(ct_less(x, ct_f(0)), ct_less(ct_div(ct_f(1), x), ct_f(0)));
}
bool ct__split_sqrt(ct_rule *r) {
    parts x = operand(r, 0);
    ct_tensor half = ct_f(0.5), zero = ct_f(0);
    ct_tensor large = ct_sqrt(ct_mul(ct_add(ct_abs(x.re), size_of(x)), half));
    ct_tensor small = ct_mul(ct_div(ct_abs(x.im), large), half);
    small = ct_select(ct_equal(large, zero), large, small);
    ct_tensor left = ct_less(x.re, zero), im = ct_select(left, large, small);
    return whole(r, ct_select(left, small, large), ct_select(is_negative(x.im), ct_neg(im), im));
}

// sinh and cosh, the former exact near 0.
static parts hyperbolic(ct_tensor x) {
    ct_tensor rise = ct_expm1(ct_abs(x)), e = ct_add(rise, ct_f(1)), half = ct_f(0.5);
    ct_tensor fall = ct_select(ct_less(rise, ct_f(INFINITY)), ct_div(rise, e), ct_f(1));
    ct_tensor sinh = ct_mul(ct_add(rise, fall), half);
    return (parts){ct_select(ct_less(x, ct_f(0)), ct_neg(sinh), sinh),
                   ct_mul(ct_add(e, ct_div(ct_f(1), e)), half)};
}
bool ct__split_sin(ct_rule *r) {
    parts x = operand(r, 0), h = hyperbolic(x.im);
    return whole(r, ct_mul(ct_sin(x.re), h.im), ct_mul(ct_cos(x.re), h.re));
}
bool ct__split_cos(ct_rule *r) {
    parts x = operand(r, 0), h = hyperbolic(x.im);
    return whole(r, ct_mul(ct_cos(x.re), h.im), ct_neg(ct_mul(ct_sin(x.re), h.re)));
}
// (sinh cosh + i sin cos) / (sinh^2 + cos^2), both divided by cosh^2.
bool ct__split_tanh(ct_rule *r) {
    parts x = operand(r, 0);
    ct_tensor cosh = hyperbolic(x.re).im, tanh = ct_tanh(x.re), cos = ct_cos(x.im);
    ct_tensor less = ct_div(ct_f(1), ct_mul(cosh, cosh));
    ct_tensor by = ct_add(ct_mul(tanh, tanh), ct_mul(ct_mul(cos, cos), less));
    ct_tensor im = ct_mul(ct_mul(ct_sin(x.im), cos), less);
    return whole(r, ct_div(tanh, by), ct_div(im, by));
}

// The product of the sizes at the sum of the angles, in f64.
bool ct__split_prod(ct_rule *r) {
    const ct_dtype dtype = (ct_dtype)r->node->out->dtype;
    ct_tensor x = ct_cast(r->in[0], CT_C128), all[2] = {ct_abs(x), ct_angle(x)};
    ct_tensor size = ct__record(r->node->op, r->attrs, &all[0], 1, r->node->here);
    ct_tensor angle = ct__record(&ct__op_sum, r->attrs, &all[1], 1, r->node->here);
    ct_tensor product = ct_complex(ct_mul(size, ct_cos(angle)), ct_mul(size, ct_sin(angle)));
    r->body_out[0] = ct_cast(product, dtype);
    return true;
}

// To complex numbers from any others, or from complex ones of another size.
bool ct__split_to_complex(ct_rule *r) {
    const ct_dtype part = ct__part((ct_dtype)r->node->out->dtype);
    ct_tensor x = r->in[0];
    if (ct__is_complex((ct_dtype)ct__type_of(x)->dtype))
        return whole(r, ct_cast(ct_real(x), part), ct_cast(ct_imag(x), part));
    x = ct_cast(x, part);
    return whole(r, x, ct__zeros_like(x));
}
