// exp, log, sin ... as kernel IR functions: built from fma, polynomials and bit operations alone,
// so that scalar code, vector code and every target give the same bits.
#ifndef COTAN_KIR_KIR_MATH_H
#define COTAN_KIR_KIR_MATH_H

#include "kir/kir.h"

// Appends the whole function (PARAM, body, RET) to an empty kernel; f32 or f64.
void ct__kir_math_body(ct_kir *k, ct_kmath f, ct_dtype dtype);

// What functions are built from, for ops that bring their own.
// c[0] + c[1] x + ... + c[n - 1] x^(n - 1) by Horner's rule
ct_kval ct__kir_poly(ct_kir *k, ct_dtype dtype, const double *c, int n, ct_kval x);
ct_kval ct__kir_copy_sign(ct_kir *k, ct_kval magnitude, ct_kval x); // |magnitude|, the sign of x

#endif
