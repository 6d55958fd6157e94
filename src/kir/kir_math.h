// exp, log, sin ... as kernel IR functions: built from fma, polynomials and bit operations alone,
// so that scalar code, vector code and every target give the same bits.
#ifndef COTAN_KIR_KIR_MATH_H
#define COTAN_KIR_KIR_MATH_H

#include "kir/kir.h"

// Appends the whole function (PARAM, body, RET) to an empty kernel; f32 or f64.
void ct__kir_math_body(ct_kir *k, ct_kmath f, ct_dtype dtype);

#endif
