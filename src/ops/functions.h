// What the records of functions that are made of others share.
#ifndef COTAN_OPS_FUNCTIONS_H
#define COTAN_OPS_FUNCTIONS_H

#include "kinds/batch.h"
#include "ops/rules.h"

#define FUNCTION(ID, op, n)                                                                        \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_composition, .n_in = n, .n_out = 1,           \
    .infer = ct__infer_elementwise, .body = op##_body, .batch = ct__batch_pointwise,               \
    .widens = true
// Of which the result is bool.
#define QUESTION(ID, op, n)                                                                        \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_composition, .n_in = n, .n_out = 1,           \
    .infer = ct__infer_elementwise_bool, .body = op##_body, .batch = ct__batch_pointwise,          \
    .widens = true, .jvp = CT_NO_GRAD

// Of rows: a record with attributes.
#define STATISTIC(ID, op)                                                                          \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_composition, .n_in = 1, .n_out = 1,           \
    CT_FIELDS(op), .body = op##_body, .batch = ct__batch_shifted, .widens = true

// A constant of operand 0's dtype: one that ct_f would round to f32.
static inline ct_tensor number(double value, const ct_rule *r) {
    return ct__number_like(value, r->in[0]);
}
// The tangent of a function of one operand is its slope times the operand's tangent.
static inline bool ct__slope(ct_rule *r, ct_tensor factor) {
    r->t_out[0] = ct_mul(r->t_in[0], factor);
    return true;
}
// The operand's tangent by the inverse of its slope.
static inline bool ct__slope_by(ct_rule *r, ct_tensor divisor) {
    r->t_out[0] = ct_div(r->t_in[0], divisor);
    return true;
}
// The integers of a float's size, and how its numbers are laid out in them.
typedef struct ct_float_bits {
    ct_dtype dtype;
    int mantissa, bias;
} ct_float_bits;
static inline ct_float_bits ct__float_bits(ct_dtype of) {
    return of == CT_F64 ? (ct_float_bits){CT_I64, 52, 1023} : (ct_float_bits){CT_I32, 23, 127};
}
// x = m 2^e with m from sqrt(1/2) to sqrt(2), of an f32 or f64. Of 0, infinity, NaN and what is negative m
// is x and e 0.
typedef struct ct_binary {
    ct_tensor m, e;
} ct_binary;
ct_binary ct__taken_apart(ct_tensor x);
// A number of twice the digits of an f32 or f64: the sum of two.
typedef struct ct_pair {
    ct_tensor high, low;
} ct_pair;
ct_pair ct__exact_product(ct_tensor a, ct_tensor b); // of what is not near the dtype's largest

#endif
