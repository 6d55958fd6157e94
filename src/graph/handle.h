// Slots behind handles; used inside the graph layer alone.
#ifndef COTAN_GRAPH_HANDLE_H
#define COTAN_GRAPH_HANDLE_H

#include "graph/graph.h"

enum { CT_OUT_BITS = 12, CT_SLOT_BITS = 26, CT_GEN_BITS = 26, CT_CHUNK_BITS = 12 };

typedef struct ct_slot {
    _Atomic(ct_node *) node;
    _Atomic uint32_t gen; // from 1 on, so that no slot is that of CT_NONE; 0: retired
} ct_slot;
typedef enum { // why a handle is stale
    CT_PAST_SCOPE,
    CT_PAST_TRACE,
    CT_PAST_DROP,
    CT_PAST_PARAMS,
    CT_PAST_CONTEXT
} ct_past_kind;
typedef struct ct_slot_past { // of the last node that had a slot: for the message of a stale handle
    ct_loc made, ended;       // ended: of a scope, or where it was dropped
    ct_past_kind kind;
} ct_slot_past;
typedef struct ct_slot_chunk {
    ct_slot slot[1u << CT_CHUNK_BITS]; // by themselves, since recording looks at nothing else
    ct_slot_past past[1u << CT_CHUNK_BITS];
} ct_slot_chunk;
extern _Atomic(ct_slot_chunk *) ct__slot_chunks[1u << (CT_SLOT_BITS - CT_CHUNK_BITS)];

static inline ct_slot_chunk *ct__slot_chunk(uint32_t i) {
    return atomic_load_explicit(&ct__slot_chunks[i >> CT_CHUNK_BITS], memory_order_acquire);
}
static inline ct_slot *ct__slot_at(uint32_t i) {
    ct_slot_chunk *chunk = ct__slot_chunk(i);
    return chunk ? &chunk->slot[i & ((1u << CT_CHUNK_BITS) - 1)] : NULL;
}

// ct__peek, for recording.
static inline ct_node *ct__peek_fast(ct_tensor t, uint32_t *out) {
    ct_slot *s = ct__slot_at((uint32_t)(t.bits >> CT_OUT_BITS) & ((1u << CT_SLOT_BITS) - 1));
    uint64_t gen = t.bits >> (CT_OUT_BITS + CT_SLOT_BITS);
    if (!s || atomic_load_explicit(&s->gen, memory_order_acquire) != gen) return NULL;
    ct_node *node = atomic_load_explicit(&s->node, memory_order_acquire);
    *out = (uint32_t)(t.bits & ((1u << CT_OUT_BITS) - 1));
    return node && *out < node->n_out ? node : NULL;
}

// ct__resolve, inline where it is simple: most operands are pending nodes of this context, whose
// handles say all.
static inline bool ct__resolve_fast(ct_ctx *ctx, ct_tensor t, ct_val *val, const char *op,
                                    int argument, ct_loc here) {
    ct_node *node = val->node = ct__peek_fast(t, &val->out);
    if (__builtin_expect(node && !(node->flags & (CT_NODE_POISON | CT_NODE_VARIABLE)) &&
                             node->ctx == ctx && !ctx->tracing,
                         1))
        return true;
    return ct__resolve(ctx, t, val, op, argument, here);
}

void ct__slot_release(ct_ctx *ctx, ct_node *node, ct_past_kind kind, ct_loc ended);
void ct__slot_move(ct_node *from, ct_node *to);
void ct__slots_return(ct_ctx *ctx);
// Leaves: without an error record; with the types (and kind) of another node, in another frame;
// back to the frame's spares.
ct_node *ct__leaf_quiet(ct_ctx *ctx, const ct_opdef *op, const void *attrs, ct_type type,
                        ct_loc here);
ct_node *ct__leaf_like(ct_ctx *ctx, ct_frame *frame, const ct_node *like);
void ct__leaf_recycle(ct_node *leaf);
void ct__leaf_drop(ct_node *leaf);
// `leaf` stands for the value of `node` where nothing else of it is known.
void ct__leave_variable(const ct_node *node, ct_node *leaf);

bool ct__stale_past(ct_tensor t, ct_slot_past *past);

#endif
