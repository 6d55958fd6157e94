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
// is one chain of operations from x on, in the order of i; positions outside are left out, or, with
// clip, moved to the nearest one inside.
typedef enum ct_scatter_pass {
    CT_SCATTER_WHOLE,  // a task has a block of rows of out, and reads all positions
    CT_SCATTER_COPY,   // or, where no position stands twice, in two launches: out = x,
    CT_SCATTER_PICKS,  // then a task has a block of positions
    CT_SCATTER_CHANGE, // all picks of a result that holds x already
} ct_scatter_pass;
typedef struct ct_scatter_spec {
    ct_scatter_pass pass;
    ct_kred op; // CT_RED_NONE: the update replaces what was there
    bool clip;
    bool sorted; // positions do not fall: a task looks for its own
    ct_picking size;
    ct_source x, positions, updates;
    int out; // a dense buffer that can be read and written
} ct_scatter_spec;
void ct__template_scatter(ct_kir *k, const ct_scatter_spec *spec);

#endif
