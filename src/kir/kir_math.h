// exp, log, sin ... as kernel IR functions, built only from fma, polynomials and bit operations, so that scalar
// code, vector code and every target give the same bits.
#ifndef COTAN_KIR_KIR_MATH_H
#define COTAN_KIR_KIR_MATH_H

#include "kir/kir.h"

// Appends the whole function (PARAM, body, RET) to an empty kernel; f32 or f64.
void ct__kir_math_body(ct_kir *k, ct_kmath f, ct_dtype dtype);

// Building blocks, for ops that define functions of their own.
// poly: c[0] + c[1] x + ... + c[n - 1] x^(n - 1) by Horner's rule.
ct_kval ct__kir_poly(ct_kir *k, ct_dtype dtype, const double *c, int n, ct_kval x);
ct_kval ct__kir_copy_sign(ct_kir *k, ct_kval magnitude, ct_kval x); // |magnitude|, the sign of x

#endif
