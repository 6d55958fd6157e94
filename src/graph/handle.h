// Slots behind handles; used inside the graph layer alone.
#ifndef COTAN_GRAPH_HANDLE_H
#define COTAN_GRAPH_HANDLE_H

#include "graph/graph.h"

enum { CT_OUT_BITS = 12, CT_SLOT_BITS = 26, CT_GEN_BITS = 26, CT_CHUNK_BITS = 12 };

typedef struct ct_slot {
    _Atomic(ct_node *) node;
    _Atomic uint32_t gen;
    ct_loc made, ended; // of the last node that had it: for the message of a stale handle
} ct_slot;
extern _Atomic(ct_slot *) ct__slot_chunks[1u << (CT_SLOT_BITS - CT_CHUNK_BITS)];

static inline ct_slot *ct__slot_at(uint32_t i) {
    ct_slot *chunk =
        atomic_load_explicit(&ct__slot_chunks[i >> CT_CHUNK_BITS], memory_order_acquire);
    return chunk ? &chunk[i & ((1u << CT_CHUNK_BITS) - 1)] : NULL;
}

// ct__peek, for recording.
static inline ct_node *ct__peek_fast(ct_tensor t, uint32_t *out) {
    uint32_t i = (uint32_t)(t.bits >> CT_OUT_BITS) & ((1u << CT_SLOT_BITS) - 1);
    ct_slot *s = t.bits ? ct__slot_at(i) : NULL;
    if (!s || atomic_load_explicit(&s->gen, memory_order_acquire) !=
                  t.bits >> (CT_OUT_BITS + CT_SLOT_BITS))
        return NULL;
    ct_node *node = atomic_load_explicit(&s->node, memory_order_acquire);
    *out = (uint32_t)(t.bits & ((1u << CT_OUT_BITS) - 1));
    return node && *out < node->n_out ? node : NULL;
}

void ct__slot_release(ct_ctx *ctx, ct_node *node, ct_loc ended);
void ct__slot_move(ct_node *from, ct_node *to);
void ct__slots_return(ct_ctx *ctx);
// Leaves: without an error record; with the types (and kind) of another node, in another frame;
// back to the frame's spares.
ct_node *ct__leaf_quiet(ct_ctx *ctx, const ct_opdef *op, const void *attrs, ct_type type,
                        ct_loc here);
ct_node *ct__leaf_like(ct_ctx *ctx, ct_frame *frame, const ct_node *like);
void ct__leaf_recycle(ct_node *leaf);
void ct__leaf_drop(ct_node *leaf);

bool ct__stale_lines(ct_tensor t, ct_loc *made, ct_loc *ended);

#endif
