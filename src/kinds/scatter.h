// Scatter: combines updates into elements at positions that are data. Operands are seen with few axes.
#ifndef COTAN_KINDS_SCATTER_H
#define COTAN_KINDS_SCATTER_H

#include "graph/type.h"
#include "kinds/template.h"

// x is (batch, middle, n, tail), the positions are (batch, picks), the updates (batch, middle, picks, tail).
typedef struct ct_picking {
    ct_kval batch, middle, n, picks, tail;
} ct_picking;
// The same as numbers.
typedef struct ct_picked {
    int64_t batch, middle, n, picks, tail;
} ct_picked;
ct_picked ct__picked_sizes(const ct_type *x, const ct_type *at, int axis, int batch);

// out = x; then for i in order: out[b, m, positions[b, i], t] op= updates[b, m, i, t]. Each element is one
// chain of operations from x on, in the order of i. Positions out of bounds are dropped, or, with clip, moved
// to the nearest valid one.
typedef enum ct_scatter_pass {
    CT_SCATTER_WHOLE,  // a task owns a block of rows of out, and reads all positions
    CT_SCATTER_COPY,   // or, if positions are unique, in two launches: out = x,
    CT_SCATTER_PICKS,  // then a task owns a block of positions
    CT_SCATTER_CHANGE, // all updates of a result that contains x already
} ct_scatter_pass;
typedef struct ct_scatter_spec {
    ct_scatter_pass pass;
    ct_kred op; // CT_RED_NONE: the update replaces the element
    bool clip;
    bool sorted; // positions are in ascending order: a task finds its own by search
    ct_picking size;
    ct_source x, positions, updates;
    int out; // a dense buffer that can be read and written
} ct_scatter_spec;
void ct__template_scatter(ct_kir *k, const ct_scatter_spec *spec);

#endif
