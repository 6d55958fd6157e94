// Gather: reads elements at positions that are data.
#include "kinds/batch.h"
#include "kinds/movement.h"

// If only one operand has the batch, the batch goes after the axes that both operands share. In the result it
// is there, or at the gathered axis.
static bool gather_batch(ct_batching *b) {
    const ct_node *node = b->node;
    const ct_along along = ct__along(node);
    const bool first = b->batched[0];
    if (first && b->batched[1]) return ct__batch_shifted(b);
    ct_tensor in[2] = {b->in[0], b->in[1]};
    const int rank = ct__type(node->in[!first])->rank + 1;
    const void *attrs = first ? ct__batch_attrs(b, false) : b->attrs;
    in[!first] = ct__batch_move(b, in[!first], rank, 0, along.leading);
    if (!attrs || !ct__batch_record(b, attrs, in)) return false;
    b->out[0] =
        ct__batch_move(b, b->out[0], node->out->rank + 1, first ? along.leading : along.axis, 0);
    return true;
}

const ct_kind ct__kind_gather = {
    .name = "gather",
    .doc = "Each element is one of operand 0, at a position along an axis that operand 1 holds.",
    .scheduled = CT_MAPPED,
    .value = ct__value_by_map,
    .positions = 1,
    .batch = gather_batch,
};
