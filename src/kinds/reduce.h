// Reductions over axes, for the loop nest that contains their loops (src/compile/schedule/nest.c).
#ifndef COTAN_KINDS_REDUCE_H
#define COTAN_KINDS_REDUCE_H

#include "kinds/emit.h"

// A reduction's axes: groups of adjacent reduced axes, outermost first, each flattened.
typedef struct ct_folds {
    int n;
    int first[CT_MAX_RANK], count[CT_MAX_RANK];
    ct_ix extent[CT_MAX_RANK];
} ct_folds;
ct_folds ct__folds_of(ct_emit *e, const ct_node *node);
// Returns the operand's element for an output index and a position in each group.
ct_kval ct__folded_value(ct_emit *e, const ct_node *node, const ct_folds *f, const ct_ix *at,
                         const ct_ix *position);
// Returns the operand's index with the axes of the last group as one variable, which is returned. Returns
// CT_IX_NONE if the group has a single axis, or if axes that are kept, along which memory is contiguous,
// follow it.
ct_ix ct__fold_lanes(ct_emit *e, const ct_node *node, ct_ix *at);
// True if the number of elements is static and so small that a kernel may unroll them all (ct_emit.unrolls).
bool ct__fold_is_short(ct_emit *e, const ct_node *node);
// Converts the result of a REDUCE of the kernel IR to the dtype of the node.
ct_kval ct__fold_result(ct_emit *e, const ct_node *node, ct_kval r);

#endif
