// The slots of handles; internal to the graph layer.
#ifndef COTAN_GRAPH_HANDLE_H
#define COTAN_GRAPH_HANDLE_H

#include <pthread.h>

#include "graph/graph.h"

enum { CT_OUT_BITS = 12, CT_SLOT_BITS = 26, CT_GEN_BITS = 26, CT_CHUNK_BITS = 12 };

typedef struct ct_slot {
    _Atomic(ct_node *) node;
    _Atomic uint32_t gen;   // starts at 1, so that no slot has that of CT_NONE; 0: retired
    _Atomic uint32_t owner; // the context that has reserved it: low bits of its id
} ct_slot;
typedef enum { // why a handle is stale
    CT_PAST_SCOPE,
    CT_PAST_TRACE,
    CT_PAST_DROP,
    CT_PAST_PARAMS,
    CT_PAST_CONTEXT
} ct_past_kind;
typedef struct ct_slot_past { // the slot's last node, for the message about a stale handle
    ct_loc made, ended;       // ended: end of the scope, or where it was dropped
    ct_past_kind kind;
} ct_slot_past;
typedef struct ct_slot_chunk {
    ct_slot slot[1u << CT_CHUNK_BITS]; // separate arrays, since recording reads only this one
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

static inline ct_slot *ct__slot_of(ct_tensor t) { // NULL: no slot has this number
    return ct__slot_at((uint32_t)(t.bits >> CT_OUT_BITS) & ((1u << CT_SLOT_BITS) - 1));
}
// The slot's node, if the generation is the handle's; NULL: it is another, or the output number is too large.
static inline ct_node *ct__slot_node(const ct_slot *s, ct_tensor t, uint32_t *out) {
    uint64_t gen = t.bits >> (CT_OUT_BITS + CT_SLOT_BITS);
    // The node is read first: a new node is stored after the generation has changed.
    ct_node *node = atomic_load_explicit(&s->node, memory_order_acquire);
    if (atomic_load_explicit(&s->gen, memory_order_acquire) != gen) return NULL;
    *out = (uint32_t)(t.bits & ((1u << CT_OUT_BITS) - 1));
    return node && *out < node->n_out ? node : NULL;
}

// ct__peek for recording. The slot tells the owner: another context's node may be freed.
static inline ct_node *ct__peek_fast(const ct_ctx *ctx, ct_tensor t, uint32_t *out) {
    const ct_slot *s = ct__slot_of(t);
    if (!s || atomic_load_explicit(&s->owner, memory_order_acquire) != (uint32_t)ctx->id)
        return NULL;
    return ct__slot_node(s, t, out);
}

// ct__peek for the handle of any context. Another context's node, its handle and its value stay valid until
// ct__peek_unlock; before that the caller must not take a lock, end a handle or record an error. Its flags
// and values are read by ct__flags and ct__values. False: stale or none, and ct__peek_unlock must not be
// called.
typedef struct ct_peeked {
    ct_node *node;
    uint32_t out;
    pthread_mutex_t *lock; // NULL: the node is of the thread's context
} ct_peeked;
bool ct__peek_foreign(ct_tensor t, ct_peeked *at);
static inline bool ct__peek_lock(ct_tensor t, ct_peeked *at) {
    const ct_ctx *ctx = ct__ctx();
    at->lock = NULL;
    at->node = ctx ? ct__peek_fast(ctx, t, &at->out) : NULL;
    return at->node || ct__peek_foreign(t, at);
}
static inline void ct__peek_unlock(const ct_peeked *at) {
    if (at->lock) pthread_mutex_unlock(at->lock);
}
static inline unsigned ct__flags(const ct_peeked *at) {
    return __atomic_load_n(&at->node->flags, __ATOMIC_RELAXED);
}
static inline ct_storage **ct__values(const ct_peeked *at) { // (n_out), or NULL
    return __atomic_load_n(&at->node->value, __ATOMIC_ACQUIRE);
}
static inline ct_storage *ct__value(const ct_peeked *at, int i) { // value of output i; NULL: none
    ct_storage **values = ct__values(at);
    return values ? __atomic_load_n(&values[i], __ATOMIC_ACQUIRE) : NULL;
}

// ct__resolve, inline for the common case: most operands are pending nodes of this context.
static inline bool ct__resolve_fast(ct_ctx *ctx, ct_tensor t, ct_val *val, const char *op,
                                    int argument, ct_loc here) {
    ct_node *node = val->node = ct__peek_fast(ctx, t, &val->out);
    if (__builtin_expect(
            node && !(node->flags & (CT_NODE_POISON | CT_NODE_VARIABLE)) && !ctx->tracing, 1))
        return true;
    return ct__resolve(ctx, t, val, op, argument, here);
}

// A context's lock is held while its handles end or change their nodes, and while a value is released that a
// handle names: what others have peeked (ct__peek_lock) stays valid meanwhile. No user function but the
// allocator is called under it.
void ct__handles_lock(const ct_ctx *ctx);
void ct__handles_unlock(const ct_ctx *ctx);
void ct__slot_end(ct_ctx *ctx, ct_node *node, ct_past_kind kind,
                  ct_loc ended); // with the lock held
// Takes the lock. The node may be a variable of another context; the slot then becomes `ctx`'s.
void ct__slot_release(ct_ctx *ctx, ct_node *node, ct_past_kind kind, ct_loc ended);
void ct__slot_move(ct_node *from, ct_node *to);
void ct__slots_return(ct_ctx *ctx);
// Leaves: without recording an error; with the types (and kind) of another node, in another frame; returned
// to the frame's free lists.
ct_node *ct__leaf_quiet(ct_ctx *ctx, const ct_opdef *op, const void *attrs, ct_type type,
                        ct_loc here);
ct_node *ct__leaf_like(ct_ctx *ctx, ct_frame *frame, const ct_node *like);
void ct__leaf_recycle(ct_node *leaf);
void ct__leaf_drop(ct_node *leaf);

bool ct__stale_past(ct_tensor t, ct_slot_past *past);

#endif
