// Batching rules: what a kind records for a node of which some operands have one more leading axis (the
// batch).
//
// A node's attributes change according to their meaning: an axis is incremented, a list of one number per
// axis gets the number that leaves the batch unchanged, sizes get the size of the batch. So most ops need no
// rule of their own.
#ifndef COTAN_KINDS_BATCH_H
#define COTAN_KINDS_BATCH_H

#include "kinds/kind.h"

// Batches an op whose operands broadcast: operands of lower rank get axes of size 1 after the batch, the
// others are unchanged.
bool ct__batch_pointwise(ct_batching *b);
// Records the op itself with attributes that leave the batch axis alone. Operands without the batch are
// broadcast to it.
bool ct__batch_shifted(ct_batching *b);
// For ops whose operands broadcast in the axes before their `core` axes: operands with the batch get it in
// front, followed by axes of size 1 where another operand has more broadcast axes.
bool ct__batch_cores(ct_batching *b);
// Refuses explicitly: the op cannot be batched.
bool ct__no_vmap(ct_batching *b);
#define CT_NO_VMAP ct__no_vmap

// Returns operand i with the batch as axis 0, broadcast if the operand has none.
ct_tensor ct__batch_operand(const ct_batching *b, int i);
// Returns operand i with the batch as axis 0, followed by axes of size 1 so that `rank` axes follow it. An
// operand without a batch is returned unchanged.
ct_tensor ct__batch_aligned(const ct_batching *b, int i, int rank);
// Moves axis `from` of t, which has `rank` axes, to position `to`.
ct_tensor ct__batch_move(const ct_batching *b, ct_tensor t, int rank, int from, int to);
// Records the op with other operands and attributes as the node's results.
bool ct__batch_record(ct_batching *b, const void *attrs, const ct_tensor *in);
// Returns a copy of the attributes with axes incremented. `leading`: the batch is one more of the axes that
// operands 0 and 1 share. Returns NULL if out of memory; the error is recorded.
void *ct__batch_attrs(const ct_batching *b, bool leading);

#endif
