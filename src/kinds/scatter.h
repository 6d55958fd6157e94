// Putting elements together at positions that are data. Operands are seen with few axes.
#ifndef COTAN_KINDS_SCATTER_H
#define COTAN_KINDS_SCATTER_H

#include "kinds/template.h"

// x is (batch, middle, n, tail), the positions (batch, picks), the updates (batch, middle, picks,
// tail).
typedef struct ct_picking {
    ct_kval batch, middle, n, picks, tail;
} ct_picking;

// out = x; then for i in order: out[b, m, positions[b, i], t] op= updates[b, m, i, t]. Each element
// is one chain of operations from x on, in the order of i; positions outside are left out.
typedef struct ct_scatter_spec {
    ct_kred op;
    ct_picking size;
    ct_source x, positions, updates;
    int out; // a dense buffer that can be read and written
} ct_scatter_spec;
void ct__template_scatter(ct_kir *k, const ct_scatter_spec *spec);

#endif
