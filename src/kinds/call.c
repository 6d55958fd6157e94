// Calls of library functions on the host, with whole operands and results in memory. The op's `eval` calls
// the function on every device. Each operand is a batch of what its last `op.core` axes contain, and the axes
// before those broadcast.
#include "kinds/batch.h"

bool ct__batch_cores(ct_batching *b) {
    ct_tensor in[sizeof b->node->op->core];
    int n_broadcast = 0;
    for (int i = 0; i < b->n_in; i++) {
        const int own_broadcast = ct__type(b->node->in[i])->rank - b->node->op->core[i];
        if (own_broadcast > n_broadcast) n_broadcast = own_broadcast;
    }
    for (int i = 0; i < b->n_in; i++)
        in[i] = ct__batch_aligned(b, i, n_broadcast + b->node->op->core[i]);
    return ct__batch_record(b, b->attrs, in);
}

const ct_kind ct__kind_call = {
    .name = "call",
    .doc = "What a library's function on the host computes, of a matrix after the other.",
    .scheduled = CT_CALLED,
    .batch = ct__batch_cores,
};
