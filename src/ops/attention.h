// Attention as an op, and its recognition in graphs that compute it with matrix products and a softmax
// (attention_pattern.c).
#ifndef COTAN_OPS_ATTENTION_H
#define COTAN_OPS_ATTENTION_H

#include "graph/graph.h"

// True if the mask broadcasts to scores (..., T, S).
bool ct__attention_mask_fits(const ct_type *mask, const ct_type *scores);
// True if these are q (..., T, D), k transposed (..., D, S), and v (..., S, E), with leading axes that
// attention supports.
bool ct__attention_fits(const ct_type *q, const ct_type *k_turned, const ct_type *v);
// True for a softmax over the last axis; masked_zero: that of the softmax.
bool ct__is_softmax_of_last(const ct_node *node, bool *masked_zero);
// The pattern matcher (`larger`) of a matrix product.
ct_tensor ct__match_attention(const ct_match *match);

#endif
