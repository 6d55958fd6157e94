// Which axes a contraction multiplies, sums over and keeps. Ops of this kind describe their nodes so
// (`contraction` of their record), so that all of them have one kernel, one reference and one error bound.
#ifndef COTAN_KINDS_CONTRACTION_H
#define COTAN_KINDS_CONTRACTION_H

#include "kinds/kind.h"

// The axes of one role, outermost first: of operand 0, operand 1 and the result, or -1 if absent there. An
// operand's axis of size 1 broadcasts to a longer one of the result.
typedef struct ct_role {
    int n;
    int8_t of[3][CT_MAX_RANK];
} ct_role;
typedef struct ct_contraction {
    ct_role batch;   // of both operands and the result; an operand may lack it
    ct_role rows;    // of operand 0 and the result
    ct_role columns; // of operand 1 and the result
    ct_role inner;   // of both operands: summed over, in row-major order
} ct_contraction;

static inline void ct__role_add(ct_role *role, int a, int b, int out) {
    role->of[0][role->n] = (int8_t)(a < 0 ? -1 : a);
    role->of[1][role->n] = (int8_t)(b < 0 ? -1 : b);
    role->of[2][role->n++] = (int8_t)(out < 0 ? -1 : out);
}

#endif
