// Macros and helpers for the records of functions that are composed of other functions.
#ifndef COTAN_OPS_FUNCTIONS_H
#define COTAN_OPS_FUNCTIONS_H

#include "kinds/batch.h"
#include "ops/rules.h"

#define FUNCTION(ID, op, n)                                                                        \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_composition, .n_in = n, .n_out = 1,           \
    .infer = ct__infer_elementwise, .body = op##_body, .batch = ct__batch_pointwise,               \
    .widens = true
#define FUNCTION_WITH_JVP(ID, op, n) FUNCTION(ID, op, n), .jvp = op##_jvp
// A function whose result is bool.
#define PREDICATE(ID, op, n)                                                                       \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_composition, .n_in = n, .n_out = 1,           \
    .infer = ct__infer_elementwise_bool, .body = op##_body, .batch = ct__batch_pointwise,          \
    .widens = true, .jvp = CT_NO_GRAD

// A function of rows: a record with attributes.
#define STATISTIC(ID, op, shape)                                                                   \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_composition, .n_in = 1, .n_out = 1,           \
    CT_FIELDS(op), .infer = shape, .body = op##_body, .batch = ct__batch_shifted, .widens = true

// Returns a constant of operand 0's dtype, for values that ct_f would round to f32.
static inline ct_tensor rule_constant(double value, const ct_rule *r) {
    return ct__number_like(value, r->in[0]);
}
// The tangent of a function of one operand is its derivative times the operand's tangent.
static inline bool ct__jvp_times(ct_rule *r, ct_tensor factor) {
    return ct__set_tangent(r, ct_mul(r->t_in[0], factor));
}
// The tangent is the operand's tangent divided by the reciprocal of the derivative.
static inline bool ct__jvp_divided(ct_rule *r, ct_tensor divisor) {
    return ct__set_tangent(r, ct_div(r->t_in[0], divisor));
}
// The integer dtype of a float's size, and the layout of the float in it.
typedef struct ct_float_bits {
    ct_dtype dtype;
    int mantissa, bias;
} ct_float_bits;
static inline ct_float_bits ct__float_bits(ct_dtype of) {
    return of == CT_F64 ? (ct_float_bits){CT_I64, 52, 1023} : (ct_float_bits){CT_I32, 23, 127};
}
// frexp: x = m 2^e with m from sqrt(1/2) to sqrt(2), for an f32 or f64. For 0, infinity, NaN and negative
// numbers m is x and e is 0.
typedef struct ct_frexp_parts {
    ct_tensor m, e;
} ct_frexp_parts;
ct_frexp_parts ct__frexp(ct_tensor x);
// A number with twice the digits of an f32 or f64, as the sum of two.
typedef struct ct_pair {
    ct_tensor high, low;
} ct_pair;
// for operands that are not close to the largest number of the dtype
ct_pair ct__exact_product(ct_tensor a, ct_tensor b);

#endif
