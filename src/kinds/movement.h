// Kinds whose elements are elements of an operand, or constants, at an index that op.map computes.
#ifndef COTAN_KINDS_MOVEMENT_H
#define COTAN_KINDS_MOVEMENT_H

#include "kinds/emit.h"

ct_kval ct__value_by_map(ct_emit *e, ct_val v, const ct_ix *at); // for `value`

#endif
