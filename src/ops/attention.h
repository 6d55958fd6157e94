// What attention is told by: its op, and the products and the softmax that stand for it (attention_pattern.c).
#ifndef COTAN_OPS_ATTENTION_H
#define COTAN_OPS_ATTENTION_H

#include "graph/graph.h"

// Does it spread to scores (..., T, S)?
bool ct__attention_mask_fits(const ct_type *mask, const ct_type *scores);
// Are these q (..., T, D), k turned (..., D, S), and v (..., S, E), whose axes in front attention takes?
bool ct__attention_fits(const ct_type *q, const ct_type *k_turned, const ct_type *v);
// Over the last axis; masked_zero: as the softmax has it.
bool ct__is_softmax_of_last(const ct_node *node, bool *masked_zero);
// `larger` of a product of matrices.
ct_tensor ct__attention_of_product(const ct_match *match);

#endif
