// Reductions over axes, for the nest that holds their loops (src/compile/schedule/nest.c).
#ifndef COTAN_KINDS_REDUCE_H
#define COTAN_KINDS_REDUCE_H

#include "kinds/emit.h"

// A reduction's axes: groups of adjacent reduced ones, outermost first, each flattened.
typedef struct ct_folds {
    int n;
    int first[CT_MAX_RANK], count[CT_MAX_RANK];
    ct_ix extent[CT_MAX_RANK];
} ct_folds;
ct_folds ct__folds_of(ct_emit *e, const ct_node *node);
// The operand's element for an output index and a position in each fold.
ct_kval ct__folded_value(ct_emit *e, const ct_node *node, const ct_folds *f, const ct_ix *at,
                         const ct_ix *position);
// The operand's index where the axes of the last fold are one variable, which is given. CT_IX_NONE: it has one axis
// alone, or behind it are axes that stay, along which memory lies.
ct_ix ct__fold_lanes(ct_emit *e, const ct_node *node, ct_ix *at);
// Are there so few elements, a static number, that a kernel may write each out (ct_emit.unrolls)?
bool ct__fold_is_short(ct_emit *e, const ct_node *node);
// What a REDUCE of the kernel IR gives, in the dtype of the node.
ct_kval ct__fold_result(ct_emit *e, const ct_node *node, ct_kval r);

#endif
