// Slots and handles. A handle is (output:12, slot:26, generation:26); the generation moves on when
// a slot is released, and a slot whose generations run out is retired. Slots are process-wide: a
// context takes them in batches.
//
// A slot's owner, the end of its generation and its past change under the lock of its owner, and so
// does the node that it has in one generation. The owner itself looks at its nodes without: nobody
// else ends them but variables, whose records stay until it lets them go.
#include <pthread.h>
#include <string.h>

#include "graph/handle.h"

enum { OUT_BITS = CT_OUT_BITS, SLOT_BITS = CT_SLOT_BITS, CHUNK_BITS = CT_CHUNK_BITS, BATCH = 256 };
#define LAST_GEN ((1u << CT_GEN_BITS) - 1)
#define LAST_SLOT ((1u << SLOT_BITS) - 1)

_Atomic(ct_slot_chunk *) ct__slot_chunks[1u << (SLOT_BITS - CHUNK_BITS)];
static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t *pool; // released slots that no context holds
static size_t n_pool, pool_cap;
static uint32_t fresh = 1; // first slot never given out; 0 means "no slot"

// Locks of contexts, which outlive them; some share one.
enum { LOCKS = 64 };
static struct {
    _Alignas(64) pthread_mutex_t lock;
} locks[LOCKS] = {[0 ... LOCKS - 1] = {PTHREAD_MUTEX_INITIALIZER}};

static pthread_mutex_t *lock_of(uint32_t owner) { return &locks[owner % LOCKS].lock; }
void ct__handles_lock(const ct_ctx *ctx) { pthread_mutex_lock(lock_of((uint32_t)ctx->id)); }
void ct__handles_unlock(const ct_ctx *ctx) { pthread_mutex_unlock(lock_of((uint32_t)ctx->id)); }

static pthread_mutex_t *lock_slot(const ct_slot *s) { // to be unlocked
    for (;;) {
        const uint32_t owner = atomic_load_explicit(&s->owner, memory_order_acquire);
        pthread_mutex_lock(lock_of(owner));
        if (atomic_load_explicit(&s->owner, memory_order_acquire) == owner) return lock_of(owner);
        pthread_mutex_unlock(lock_of(owner));
    }
}
static void give_slot(uint32_t i, const ct_ctx *to) {
    ct_slot *s = ct__slot_at(i);
    pthread_mutex_t *lock = lock_slot(s);
    atomic_store_explicit(&s->owner, (uint32_t)to->id, memory_order_release);
    pthread_mutex_unlock(lock);
}

static bool make_chunk(uint32_t i) {
    if (ct__slot_chunk(i)) return true;
    ct_slot_chunk *chunk = ct__calloc(1, sizeof *chunk);
    if (!chunk) return false;
    for (uint32_t k = 0; k < 1u << CHUNK_BITS; k++) atomic_init(&chunk->slot[k].gen, 1);
    atomic_store_explicit(&ct__slot_chunks[i >> CHUNK_BITS], chunk, memory_order_release);
    return true;
}

static bool refill(ct_ctx *ctx) {
    if (!CT_GROW(ctx->free_slots, ctx->free_cap, ctx->n_free + BATCH)) return false;
    pthread_mutex_lock(&pool_lock);
    for (int k = 0; k < BATCH; k++) {
        if (n_pool) {
            give_slot(ctx->free_slots[ctx->n_free++] = pool[--n_pool], ctx);
        } else if (fresh <= LAST_SLOT && make_chunk(fresh)) {
            give_slot(ctx->free_slots[ctx->n_free++] = fresh++, ctx);
        } else {
            break;
        }
    }
    pthread_mutex_unlock(&pool_lock);
    return ctx->n_free > 0;
}

ct_tensor ct__handle(ct_node *node, uint32_t out) {
    bool has_none = !node->slot;
    if (has_none) {
        ct_ctx *ctx = node->ctx;
        if (!ctx->n_free && !refill(ctx)) return CT_NONE;
        node->slot = ctx->free_slots[--ctx->n_free];
    }
    ct_slot *slot = ct__slot_at(node->slot);
    if (has_none) atomic_store_explicit(&slot->node, node, memory_order_release);
    uint64_t gen = atomic_load_explicit(&slot->gen, memory_order_relaxed);
    return (ct_tensor){gen << (OUT_BITS + SLOT_BITS) | (uint64_t)node->slot << OUT_BITS | out};
}

static ct_slot_past *past_of(uint32_t i) {
    return &ct__slot_chunk(i)->past[i & ((1u << CHUNK_BITS) - 1)];
}

void ct__slot_end(ct_ctx *ctx, ct_node *node, ct_past_kind kind, ct_loc ended) {
    ct_slot *s = ct__slot_at(node->slot);
    uint32_t gen = atomic_load_explicit(&s->gen, memory_order_relaxed);
    *past_of(node->slot) = (ct_slot_past){node->here, ended, kind};
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
    pthread_mutex_t *lock = lock_slot(s);
    ct__slot_end(ctx, node, kind, ended);
    atomic_store_explicit(&s->owner, (uint32_t)ctx->id, memory_order_release);
    pthread_mutex_unlock(lock);
}

// The same handle names another node from now on; nobody looks at the one before any more.
void ct__slot_move(ct_node *from, ct_node *to) {
    to->slot = from->slot;
    from->slot = 0;
    if (!to->slot) return;
    ct__handles_lock(to->ctx);
    atomic_store_explicit(&ct__slot_at(to->slot)->node, to, memory_order_release);
    ct__handles_unlock(to->ctx);
}

void ct__slots_return(ct_ctx *ctx) {
    pthread_mutex_lock(&pool_lock);
    if (CT_GROW(pool, pool_cap, n_pool + ctx->n_free)) {
        if (ctx->n_free) memcpy(pool + n_pool, ctx->free_slots, ctx->n_free * sizeof *pool);
        n_pool += ctx->n_free;
    }
    pthread_mutex_unlock(&pool_lock);
    ct__free(ctx->free_slots);
    ctx->free_slots = NULL;
    ctx->n_free = ctx->free_cap = 0;
}

// Numbers of slots are not used again, so that old handles stay stale; a process that has shut down
// very often keeps its last slots for want of numbers.
void ct__slots_end(void) {
    pthread_mutex_lock(&pool_lock);
    if (fresh < LAST_SLOT / 2) {
        for (uint32_t i = 0; i < fresh; i += 1u << CHUNK_BITS) {
            ct__free(ct__slot_at(i) ? atomic_load(&ct__slot_chunks[i >> CHUNK_BITS]) : NULL);
            atomic_store(&ct__slot_chunks[i >> CHUNK_BITS], NULL);
        }
        fresh = (fresh + (1u << CHUNK_BITS) - 1) & ~((1u << CHUNK_BITS) - 1);
        n_pool = 0;
    }
    if (!n_pool) {
        ct__free(pool);
        pool = NULL;
        pool_cap = 0;
    }
    pthread_mutex_unlock(&pool_lock);
}

ct_node *ct__peek(ct_tensor t, uint32_t *out) {
    const ct_ctx *ctx = ct__ctx();
    return ctx ? ct__peek_fast(ctx, t, out) : NULL;
}

bool ct__peek_foreign(ct_tensor t, ct_peeked *at) {
    const ct_slot *s = ct__slot_of(t);
    if (!s || ct__forked()) return false; // whose other threads, which held the locks, are gone
    pthread_mutex_t *lock = lock_slot(s);
    at->node = ct__slot_node(s, t, &at->out);
    if (at->node)
        at->lock = lock;
    else
        pthread_mutex_unlock(lock);
    return at->node;
}
// Where a stale handle was made, why and where it ended; false when its slot has had another node
// since.
bool ct__stale_past(ct_tensor t, ct_slot_past *past) {
    uint32_t i = (uint32_t)(t.bits >> OUT_BITS) & LAST_SLOT;
    ct_slot *s = ct__slot_at(i);
    if (!s || ct__forked()) return false;
    pthread_mutex_t *lock = lock_slot(s);
    uint32_t gen = atomic_load_explicit(&s->gen, memory_order_acquire);
    const bool known = (gen ? gen - 1 : LAST_GEN) == t.bits >> (OUT_BITS + SLOT_BITS);
    if (known) *past = *past_of(i);
    pthread_mutex_unlock(lock);
    return known;
}
