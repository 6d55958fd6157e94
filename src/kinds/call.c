// A function of a library, on the host: its operands and results lie whole in memory. The op's `eval`
// calls it on every device; each operand is a batch of what its last `op.core` axes hold, and axes in
// front broadcast.
#include "kinds/batch.h"

bool ct__batch_cores(ct_batching *b) {
    ct_tensor in[sizeof b->node->op->core];
    int most = 0;
    for (int i = 0; i < b->n_in; i++) {
        const int own = ct__type(b->node->in[i])->rank - b->node->op->core[i];
        if (own > most) most = own;
    }
    for (int i = 0; i < b->n_in; i++) in[i] = ct__batch_aligned(b, i, most + b->node->op->core[i]);
    return ct__batch_record(b, b->attrs, in);
}

const ct_kind ct__kind_call = {
    .name = "call",
    .doc = "What a library's function on the host computes, of a matrix after the other.",
    .scheduled = CT_CALLED,
    .batch = ct__batch_cores,
};
