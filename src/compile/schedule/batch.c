// Horizontal fusion: launches that do not depend on each other become one launch, a BATCH.
//
// A launch moves forward into an earlier batch if all launches that it depends on, or whose operands it
// overwrites, have run before that. The temporaries that a member computes live through the whole batch, so
// only launches that compute few temporaries join: updates of variables, sums over gradients. No launch
// crosses a loop or a switch, and no update of a variable crosses a call that may end the run. Kernels and
// their arguments do not change, so results have the same bits.

#include "compile/passes/env.h"
#include "compile/schedule/batch.h"

// A member computes at most SMALL_BYTES of temporaries, or at most 1/SMALL_PART of the bytes that it reads.
enum { SMALL_BYTES = 1024, SMALL_PART = 256 };

// Slots of launches are counted from 1; the launches of a batch share a slot.
typedef struct {
    ct_program *p;
    const ct_graph *graph;
    uint32_t *storage;      // (n_bufs) the first buffer that has the same storage
    size_t *written, *read; // (n_bufs) the last slot that writes and reads it; 0: none
    size_t *slot;           // (n_launches)
    // (n_launches + 1) number of launches of each slot
    size_t *members;
    size_t *open_slots; // (n_open) slots that launches can join, in order
    size_t n_open, n_slots;
    size_t last_call; // the last slot with a call
} hfuse;

// Finds the storage of each buffer. A variable's new value has the storage of its old one.
static void hfuse_find_storages(const hfuse *b, const ct_graph *graph, uint32_t *of_leaf,
                                uint32_t *of_root) {
    const ct_program *p = b->p;
    for (size_t i = 0; i < graph->n_leaves; i++) of_leaf[i] = UINT32_MAX;
    for (size_t i = 0; i < graph->n_roots; i++) of_root[i] = UINT32_MAX;
    for (size_t i = 0; i < p->n_bufs; i++)
        if (p->bufs[i].kind == CT_BUF_LEAF) of_leaf[p->bufs[i].index] = (uint32_t)i;
    for (size_t i = 0; i < p->n_bufs; i++) {
        const ct_buf *buf = &p->bufs[i];
        b->storage[i] = (uint32_t)i;
        if (buf->kind != CT_BUF_ROOT) continue;
        const int32_t leaf = graph->roots[buf->index].leaf;
        if (graph->roots[buf->index].kind == CT_ROOT_ASSIGN && leaf >= 0 &&
            of_leaf[leaf] != UINT32_MAX)
            of_root[buf->index] = of_leaf[leaf];
        if (of_root[buf->index] == UINT32_MAX) of_root[buf->index] = (uint32_t)i;
        b->storage[i] = of_root[buf->index];
    }
}

static bool hfuse_can_join(const ct_program *p, const ct_launch *l) {
    size_t made = 0, read = 0;
    if (l->kind != CT_LAUNCH_KERNEL && l->kind != CT_LAUNCH_COPY) return false;
    for (uint32_t a = 0; a < l->n_args; a++) {
        const ct_buf *buf = &p->bufs[l->args[a].buf];
        if (!l->args[a].write && !ct__marked(buf->size)) read += buf->bytes;
        if (!l->args[a].write || buf->kind != CT_BUF_TEMP) continue;
        if (ct__marked(buf->size)) return false; // no choice may depend on a length
        made += buf->bytes;
    }
    return made <= SMALL_BYTES || made <= read / SMALL_PART;
}

// Returns the last slot of the launches that must run before a launch.
static size_t hfuse_last_dependency(const hfuse *b, const ct_launch *l) {
    size_t last = 0;
    for (uint32_t a = 0; a < l->n_args; a++) {
        const uint32_t buf = b->storage[l->args[a].buf];
        if (b->written[buf] > last) last = b->written[buf];
        if (!l->args[a].write) continue;
        if (b->read[buf] > last) last = b->read[buf];
        const ct_buf *own = &b->p->bufs[l->args[a].buf];
        const bool assigns =
            own->kind == CT_BUF_ROOT && b->graph->roots[own->index].kind == CT_ROOT_ASSIGN;
        if (assigns && b->last_call > last) last = b->last_call;
    }
    return last;
}

// Returns the first open slot after a slot; 0: none.
static size_t hfuse_find_batch(const hfuse *b, size_t slot) {
    size_t low = 0, high = b->n_open;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (b->open_slots[middle] > slot)
            high = middle;
        else
            low = middle + 1;
    }
    return low < b->n_open ? b->open_slots[low] : 0;
}

static void hfuse_choose_slot(hfuse *b, size_t at, bool inside) {
    const ct_launch *l = &b->p->launches[at];
    const bool joins = !inside && hfuse_can_join(b->p, l);
    size_t slot = joins ? hfuse_find_batch(b, hfuse_last_dependency(b, l)) : 0;
    if (!slot) {
        slot = ++b->n_slots;
        if (joins) b->open_slots[b->n_open++] = slot;
    }
    b->slot[at] = slot;
    if (l->kind == CT_LAUNCH_NODE) b->last_call = slot;
    b->members[slot]++;
    for (uint32_t a = 0; a < l->n_args; a++) {
        const uint32_t buf = b->storage[l->args[a].buf];
        size_t *last = l->args[a].write ? &b->written[buf] : &b->read[buf];
        if (slot > *last) *last = slot;
    }
}

static void hfuse_choose_slots(hfuse *b) {
    size_t depth = 0;
    for (size_t i = 0; i < b->p->n_launches; i++) {
        const ct_launch_kind kind = b->p->launches[i].kind;
        depth += kind == CT_LAUNCH_LOOP || kind == CT_LAUNCH_SWITCH;
        if (depth) b->n_open = 0;
        hfuse_choose_slot(b, i, depth > 0);
        depth -= kind == CT_LAUNCH_END;
    }
}

static void hfuse_add_markers(const hfuse *b, ct_launch *launches) {
    for (size_t slot = 1, at = 0; slot <= b->n_slots; slot++) {
        const size_t n = b->members[slot];
        if (n > 1) {
            launches[at] = (ct_launch){
                .kind = CT_LAUNCH_BATCH, .node = launches[at + 1].node, .count = (int64_t)n};
            launches[at + n + 1] = (ct_launch){.kind = CT_LAUNCH_END};
        }
        at += n > 1 ? n + 2 : n;
    }
}

// Writes the launches in the order of their slots, each batch between its marker and an END.
static bool hfuse_write_batches(hfuse *b) {
    ct_program *p = b->p;
    size_t *next = b->open_slots, n = 0; // (n_slots + 1) the position of each slot's next launch
    for (size_t slot = 1; slot <= b->n_slots; slot++) {
        const bool many = b->members[slot] > 1;
        next[slot] = n + many;
        n += b->members[slot] + (many ? 2 : 0);
    }
    if (b->n_slots == p->n_launches) return true; // there are no batches
    ct_launch *launches = ct__calloc(n, sizeof *launches);
    if (!launches) return false;
    for (size_t i = 0; i < p->n_launches; i++) {
        ct_launch *to = &launches[next[b->slot[i]]++];
        *to = p->launches[i];
        to->batched = b->members[b->slot[i]] > 1;
    }
    hfuse_add_markers(b, launches);
    ct__free(p->launches);
    p->launches = launches;
    p->n_launches = p->launches_cap = n;
    return true;
}

bool ct__batch_launches(ct_program *p, const ct_graph *graph, ct_err *err) {
    const size_t n = p->n_launches + 1, n_bufs = p->n_bufs + 1;
    hfuse b = {.p = p,
               .graph = graph,
               .storage = ct__calloc(n_bufs, sizeof *b.storage),
               .written = ct__calloc(n_bufs, sizeof *b.written),
               .read = ct__calloc(n_bufs, sizeof *b.read),
               .slot = ct__calloc(n, sizeof *b.slot),
               .members = ct__calloc(n, sizeof *b.members),
               .open_slots = ct__calloc(n, sizeof *b.open_slots)};
    uint32_t *of_leaf = ct__calloc(graph->n_leaves + 1, sizeof *of_leaf);
    uint32_t *of_root = ct__calloc(graph->n_roots + 1, sizeof *of_root);
    bool ok = b.storage && b.written && b.read && b.slot && b.members && b.open_slots && of_leaf &&
              of_root;
    if (ok && ct__env_fuses()) {
        hfuse_find_storages(&b, graph, of_leaf, of_root);
        hfuse_choose_slots(&b);
        ok = hfuse_write_batches(&b);
    }
    ct__free(b.storage);
    ct__free(b.written);
    ct__free(b.read);
    ct__free(b.slot);
    ct__free(b.members);
    ct__free(b.open_slots);
    ct__free(of_leaf);
    ct__free(of_root);
    return ok || ct__err_memory(err, CT_NOWHERE, "plan", n * sizeof(ct_launch));
}
