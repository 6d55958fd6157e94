// Batching: what a kind records for a node of which some operands have one axis more in front.
//
// A node's attributes change by what they mean: an axis is one further back, a list of one number an
// axis gets the number that leaves the batch as it is, sizes get that of the batch. So most ops need
// no rule of their own.
#ifndef COTAN_KINDS_BATCH_H
#define COTAN_KINDS_BATCH_H

#include "kinds/kind.h"

// Operands broadcast: those of lower rank get axes of 1 behind the batch, the others stay as they
// are.
bool ct__batch_pointwise(ct_batching *b);
// The op itself, with its attributes changed so that it leaves the batch alone. Operands without the
// batch are spread over it.
bool ct__batch_shifted(ct_batching *b);
// Axes in front of the `core` of each operand broadcast: those with the batch get it in front, and axes
// of 1 behind it where another operand has more of them.
bool ct__batch_cores(ct_batching *b);
// An explicit "cannot be batched".
bool ct__no_vmap(ct_batching *b);
#define CT_NO_VMAP ct__no_vmap

// Operand i with the batch in front, spread over it where it has none.
ct_tensor ct__batch_operand(const ct_batching *b, int i);
// Operand i with the batch, and axes of 1 behind it so that `rank` axes follow. Of an operand that
// has no batch: itself.
ct_tensor ct__batch_aligned(const ct_batching *b, int i, int rank);
// Axis `from` of t, which has `rank` axes, at place `to`.
ct_tensor ct__batch_move(const ct_batching *b, ct_tensor t, int rank, int from, int to);
// Records the op with other operands and attributes as the node's results.
bool ct__batch_record(ct_batching *b, const void *attrs, const ct_tensor *in);
// A copy of the attributes with axes one further back. `leading`: of the axes that operands 0 and 1
// share the batch is another one. NULL: no memory, recorded.
void *ct__batch_attrs(const ct_batching *b, bool leading);

#endif
