// Reductions in the reference evaluator: floats in double, other dtypes as i64. The monoid is `reduction` of
// the op's record, or else its function of two numbers (eval_f64, eval_i64).
#ifndef COTAN_KINDS_MONOID_H
#define COTAN_KINDS_MONOID_H

#include <math.h>

#include "kinds/kind.h"

typedef union ct_acc {
    double f;
    int64_t i;
} ct_acc;
ct_acc ct__acc_start(const ct_opdef *op, ct_dtype dtype);
ct_acc ct__acc_join(const ct_opdef *op, ct_acc a, ct_acc b, ct_dtype dtype);
ct_acc ct__acc_load(ct_dtype dtype, const void *data, int64_t i);
void ct__acc_store(ct_dtype dtype, void *data, int64_t i, ct_acc value);

// Compares integers as eval_i64 represents them.
static inline bool ct__less_i64(int64_t a, int64_t b, ct_dtype dtype) {
    return dtype == CT_U64 ? (uint64_t)a < (uint64_t)b : a < b;
}

// Maximum and minimum of floats with the semantics of kernels (MAX, MIN): NaN if either operand is NaN, and
// -0 is below 0.
static inline double ct__max_f64(double a, double b) {
    if (isnan(a) || isnan(b)) return NAN;
    return a > b || (a == b && signbit(b)) ? a : b;
}
static inline double ct__min_f64(double a, double b) {
    if (isnan(a) || isnan(b)) return NAN;
    return a < b || (a == b && signbit(a)) ? a : b;
}

#endif
