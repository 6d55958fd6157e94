// Slots and handles. A handle is (output:12, slot:26, generation:26). The generation is incremented when a
// slot is released, and a slot that has used all generations is retired. Slots are process-wide; a context
// reserves them in batches.
//
// A slot's owner, generation and past change under the lock of its owner, and so does its node within one
// generation. The owner reads its nodes without the lock: nobody else ends them but variables, whose records
// exist until their owner releases them.
#include <pthread.h>
#include <string.h>

#include "graph/handle.h"

enum { OUT_BITS = CT_OUT_BITS, SLOT_BITS = CT_SLOT_BITS, CHUNK_BITS = CT_CHUNK_BITS, BATCH = 256 };
#define LAST_GEN ((1u << CT_GEN_BITS) - 1)
#define LAST_SLOT ((1u << SLOT_BITS) - 1)

_Atomic(ct_slot_chunk *) ct__slot_chunks[1u << (SLOT_BITS - CHUNK_BITS)];
static pthread_mutex_t slot_pool_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t *slot_pool; // released slots that no context has reserved
static size_t n_slot_pool, slot_pool_cap;
static uint32_t slot_next_unused = 1; // first slot never used; 0 means "no slot"

// One lock for several contexts, which it outlives.
enum { SLOT_LOCKS = 64 };
static struct {
    _Alignas(64) pthread_mutex_t lock;
} slot_locks[SLOT_LOCKS] = {[0 ... SLOT_LOCKS - 1] = {PTHREAD_MUTEX_INITIALIZER}};

static pthread_mutex_t *slot_owner_lock(uint32_t owner) {
    return &slot_locks[owner % SLOT_LOCKS].lock;
}
void ct__handles_lock(const ct_ctx *ctx) { pthread_mutex_lock(slot_owner_lock((uint32_t)ctx->id)); }
void ct__handles_unlock(const ct_ctx *ctx) {
    pthread_mutex_unlock(slot_owner_lock((uint32_t)ctx->id));
}

static pthread_mutex_t *slot_lock(const ct_slot *s) { // returned locked
    for (;;) {
        const uint32_t owner = atomic_load_explicit(&s->owner, memory_order_acquire);
        pthread_mutex_lock(slot_owner_lock(owner));
        if (atomic_load_explicit(&s->owner, memory_order_acquire) == owner)
            return slot_owner_lock(owner);
        pthread_mutex_unlock(slot_owner_lock(owner));
    }
}
static void slot_assign_owner(uint32_t i, const ct_ctx *to) {
    ct_slot *s = ct__slot_at(i);
    pthread_mutex_t *lock = slot_lock(s);
    atomic_store_explicit(&s->owner, (uint32_t)to->id, memory_order_release);
    pthread_mutex_unlock(lock);
}

static bool slot_make_chunk(uint32_t i) {
    if (ct__slot_chunk(i)) return true;
    ct_slot_chunk *chunk = ct__calloc(1, sizeof *chunk);
    if (!chunk) return false;
    for (uint32_t k = 0; k < 1u << CHUNK_BITS; k++) atomic_init(&chunk->slot[k].gen, 1);
    atomic_store_explicit(&ct__slot_chunks[i >> CHUNK_BITS], chunk, memory_order_release);
    return true;
}

static bool slots_refill(ct_ctx *ctx) {
    if (!CT_GROW(ctx->free_slots, ctx->free_cap, ctx->n_free + BATCH)) return false;
    pthread_mutex_lock(&slot_pool_lock);
    for (int k = 0; k < BATCH; k++) {
        if (n_slot_pool) {
            slot_assign_owner(ctx->free_slots[ctx->n_free++] = slot_pool[--n_slot_pool], ctx);
        } else if (slot_next_unused <= LAST_SLOT && slot_make_chunk(slot_next_unused)) {
            slot_assign_owner(ctx->free_slots[ctx->n_free++] = slot_next_unused++, ctx);
        } else {
            break;
        }
    }
    pthread_mutex_unlock(&slot_pool_lock);
    return ctx->n_free > 0;
}

ct_tensor ct__handle(ct_node *node, uint32_t out) {
    bool has_none = !node->slot;
    if (has_none) {
        ct_ctx *ctx = node->ctx;
        if (!ctx->n_free && !slots_refill(ctx)) return CT_NONE;
        node->slot = ctx->free_slots[--ctx->n_free];
    }
    ct_slot *slot = ct__slot_at(node->slot);
    if (has_none) atomic_store_explicit(&slot->node, node, memory_order_release);
    uint64_t gen = atomic_load_explicit(&slot->gen, memory_order_relaxed);
    return (ct_tensor){gen << (OUT_BITS + SLOT_BITS) | (uint64_t)node->slot << OUT_BITS | out};
}

static ct_slot_past *slot_past(uint32_t i) {
    return &ct__slot_chunk(i)->past[i & ((1u << CHUNK_BITS) - 1)];
}

void ct__slot_end(ct_ctx *ctx, ct_node *node, ct_past_kind kind, ct_loc ended) {
    ct_slot *s = ct__slot_at(node->slot);
    uint32_t gen = atomic_load_explicit(&s->gen, memory_order_relaxed);
    *slot_past(node->slot) = (ct_slot_past){node->here, ended, kind};
    atomic_store_explicit(&s->node, NULL, memory_order_release);
    if (gen < LAST_GEN) {
        atomic_store_explicit(&s->gen, gen + 1, memory_order_release);
        if (CT_GROW(ctx->free_slots, ctx->free_cap, ctx->n_free + 1))
            ctx->free_slots[ctx->n_free++] = node->slot;
    } else {
        atomic_store_explicit(&s->gen, 0, memory_order_release); // retired
    }
    node->slot = 0;
}

void ct__slot_release(ct_ctx *ctx, ct_node *node, ct_past_kind kind, ct_loc ended) {
    if (!node->slot) return;
    ct_slot *s = ct__slot_at(node->slot);
    pthread_mutex_t *lock = slot_lock(s);
    ct__slot_end(ctx, node, kind, ended);
    atomic_store_explicit(&s->owner, (uint32_t)ctx->id, memory_order_release);
    pthread_mutex_unlock(lock);
}

// The handle now names another node; nobody accesses the previous one through it any more.
void ct__slot_move(ct_node *from, ct_node *to) {
    to->slot = from->slot;
    from->slot = 0;
    if (!to->slot) return;
    ct__handles_lock(to->ctx);
    atomic_store_explicit(&ct__slot_at(to->slot)->node, to, memory_order_release);
    ct__handles_unlock(to->ctx);
}

void ct__slots_return(ct_ctx *ctx) {
    pthread_mutex_lock(&slot_pool_lock);
    if (CT_GROW(slot_pool, slot_pool_cap, n_slot_pool + ctx->n_free)) {
        if (ctx->n_free)
            memcpy(slot_pool + n_slot_pool, ctx->free_slots, ctx->n_free * sizeof *slot_pool);
        n_slot_pool += ctx->n_free;
    }
    pthread_mutex_unlock(&slot_pool_lock);
    ct__free(ctx->free_slots);
    ctx->free_slots = NULL;
    ctx->n_free = ctx->free_cap = 0;
}

// Slot numbers are not reused, so that old handles stay stale; a process that shuts down very often keeps its
// last slots, since numbers run out.
void ct__slots_end(void) {
    pthread_mutex_lock(&slot_pool_lock);
    if (slot_next_unused < LAST_SLOT / 2) {
        for (uint32_t i = 0; i < slot_next_unused; i += 1u << CHUNK_BITS) {
            ct__free(ct__slot_at(i) ? atomic_load(&ct__slot_chunks[i >> CHUNK_BITS]) : NULL);
            atomic_store(&ct__slot_chunks[i >> CHUNK_BITS], NULL);
        }
        slot_next_unused = (slot_next_unused + (1u << CHUNK_BITS) - 1) & ~((1u << CHUNK_BITS) - 1);
        n_slot_pool = 0;
    }
    if (!n_slot_pool) {
        ct__free(slot_pool);
        slot_pool = NULL;
        slot_pool_cap = 0;
    }
    pthread_mutex_unlock(&slot_pool_lock);
}

ct_node *ct__peek(ct_tensor t, uint32_t *out) {
    const ct_ctx *ctx = ct__ctx();
    return ctx ? ct__peek_fast(ctx, t, out) : NULL;
}

bool ct__peek_foreign(ct_tensor t, ct_peeked *at) {
    const ct_slot *s = ct__slot_of(t);
    if (!s || ct__forked()) return false; // the locks' holders may be gone
    pthread_mutex_t *lock = slot_lock(s);
    at->node = ct__slot_node(s, t, &at->out);
    if (at->node)
        at->lock = lock;
    else
        pthread_mutex_unlock(lock);
    return at->node;
}
// Returns where a stale handle was made, why and where it ended; false if its slot has had another node
// since.
bool ct__stale_past(ct_tensor t, ct_slot_past *past) {
    uint32_t i = (uint32_t)(t.bits >> OUT_BITS) & LAST_SLOT;
    ct_slot *s = ct__slot_at(i);
    if (!s || ct__forked()) return false;
    pthread_mutex_t *lock = slot_lock(s);
    uint32_t gen = atomic_load_explicit(&s->gen, memory_order_acquire);
    const bool known = (gen ? gen - 1 : LAST_GEN) == t.bits >> (OUT_BITS + SLOT_BITS);
    if (known) *past = *slot_past(i);
    pthread_mutex_unlock(lock);
    return known;
}
