// Finds where the threads of a group need a barrier: between a store and an access of another thread to the
// same element. A LANES loop is one step, since its iterations are independent.
#include <string.h>

#include "compile/render/render_sync.h"

// The accesses to a buffer since the last barrier.
enum {
    SYNC_READ = 1,
    SYNC_WRITE_ONE = 2,        // written by lane 0
    SYNC_WRITE_VECTOR = 4,     // by all lanes contiguously, by a VSTORE
    SYNC_WRITE_LANES = 8,      // by a LANES loop, contiguously
    SYNC_WRITE_SCATTERED = 16, // at any other index
    SYNC_WRITTEN = SYNC_WRITE_ONE | SYNC_WRITE_VECTOR | SYNC_WRITE_LANES | SYNC_WRITE_SCATTERED
};

typedef struct {
    const ct_kir *k;
    const ct_kshape *shape;
    const int *class_of;    // (nbufs) buffers that may overlap are one class
    const bool *reread;     // (nbufs) by class: read and written by this kernel
    uint8_t *since_barrier; // (nbufs) by class
    uint8_t *accesses;      // (nbufs) by class: the accesses of the current instruction
    // (n) of a LOOP: (nbufs) the state in which an iteration may begin; NULL: no such loop
    uint8_t **at_entry;
    uint8_t **at_exit; // (n) of a LOOP: (nbufs) the state after a BREAK
    bool *sync;
    bool changed;
} sync_finder;

static bool sync_is_memory(const ct_kins *ins) {
    return ins->op == CT_K_LOAD || ins->op == CT_K_STORE || ins->op == CT_K_VLOAD ||
           ins->op == CT_K_VSTORE;
}

static void sync_add_access(sync_finder *f, const ct_kins *ins, bool in_lanes) {
    if (!sync_is_memory(ins)) return;
    const ct_kshape index = f->shape[ins->a];
    const bool in_row = index.vary == CT_AFFINE && index.stride == 1;
    int access = SYNC_WRITE_SCATTERED;
    if (ins->op == CT_K_LOAD || ins->op == CT_K_VLOAD)
        access = SYNC_READ;
    else if (ins->op == CT_K_VSTORE)
        access = SYNC_WRITE_VECTOR;
    else if (in_lanes && in_row)
        access = SYNC_WRITE_LANES;
    else if (!in_lanes && f->k->ins[ins->a].lanes == 1)
        access = SYNC_WRITE_ONE;
    f->accesses[f->class_of[ins->imm.i]] |= (uint8_t)access;
}

// Adjacent VSTOREs, and loops that write disjoint parts of a result, do not write one element twice unless
// it is read between.
static bool sync_conflicts(int before, int now, bool reread) {
    const int written = before & SYNC_WRITTEN, writes = now & SYNC_WRITTEN;
    if ((written && now & SYNC_READ) || (writes && before & SYNC_READ)) return true;
    if (!written || !writes) return false;
    return written != writes || writes == SYNC_WRITE_SCATTERED ||
           (writes == SYNC_WRITE_LANES && reread);
}

static void sync_step(sync_finder *f, ct_kval at) {
    bool barrier = f->sync[at];
    for (size_t c = 0; c < f->k->nbufs && !barrier; c++)
        barrier =
            f->accesses[c] && sync_conflicts(f->since_barrier[c], f->accesses[c], f->reread[c]);
    if (barrier) {
        f->changed |= !f->sync[at];
        f->sync[at] = true;
        memset(f->since_barrier, 0, f->k->nbufs);
    }
    for (size_t c = 0; c < f->k->nbufs; c++) f->since_barrier[c] |= f->accesses[c];
    memset(f->accesses, 0, f->k->nbufs);
}

static void sync_merge_state(sync_finder *f, uint8_t *into) {
    for (size_t c = 0; c < f->k->nbufs; c++) {
        f->changed |= (f->since_barrier[c] & ~into[c]) != 0;
        into[c] |= f->since_barrier[c];
    }
}

static void sync_walk(sync_finder *f) {
    const ct_kir *k = f->k;
    memset(f->since_barrier, 0, k->nbufs);
    for (ct_kval i = 0; i < (ct_kval)k->n; i++) {
        const ct_kins *ins = &k->ins[i];
        if (ins->op == CT_K_LOOP && ins->sub == CT_BIND_LANES) {
            for (ct_kval b = i; b < ins->end; b++) sync_add_access(f, &k->ins[b], true);
            sync_step(f, i);
            i = ins->end;
        } else if (ins->op == CT_K_LOOP || ins->op == CT_K_END) {
            const ct_kval loop = ins->op == CT_K_END ? ins->a : i;
            if (k->ins[loop].sub == CT_BIND_ROWS) continue; // a group runs one row
            sync_merge_state(f, f->at_entry[loop]);
            for (size_t c = 0; c < k->nbufs; c++)
                f->since_barrier[c] = f->at_entry[loop][c] | (loop == i ? 0 : f->at_exit[loop][c]);
        } else if (ins->op == CT_K_BREAK) {
            sync_merge_state(f, f->at_exit[ins->in]);
        } else {
            sync_add_access(f, ins, false);
            sync_step(f, i);
        }
    }
}

static void sync_find_classes(const ct_kir *k, int *class_of, bool *reread) {
    int alias = -1;
    for (int i = 0; i < (int)k->nbufs; i++) {
        const bool may = k->bufs[i].flags & CT_KIR_ALIAS;
        if (may && alias < 0) alias = i;
        class_of[i] = may ? alias : i;
    }
    for (size_t i = 0; i < k->nbufs; i++) {
        const int flags = k->bufs[i].flags;
        if (flags & (CT_KIR_ALIAS | CT_KIR_LOCAL) ||
            (flags & (CT_KIR_READ | CT_KIR_WRITE)) == (CT_KIR_READ | CT_KIR_WRITE))
            reread[class_of[i]] = true;
    }
}

bool ct__render_find_sync(const ct_kir *k, const ct_kshape *shape, bool *sync, ct_err *err) {
    CT_ARENA arena = {0};
    int *class_of = ct__arena_zero(&arena, (k->nbufs + 1) * sizeof *class_of);
    bool *reread = ct__arena_zero(&arena, k->nbufs + 1);
    sync_finder f = {.k = k, .shape = shape, .class_of = class_of, .reread = reread, .sync = sync};
    f.since_barrier = ct__arena_zero(&arena, k->nbufs + 1);
    f.accesses = ct__arena_zero(&arena, k->nbufs + 1);
    f.at_entry = ct__arena_zero(&arena, k->n * sizeof *f.at_entry);
    f.at_exit = ct__arena_zero(&arena, k->n * sizeof *f.at_exit);
    bool ok = class_of && reread && f.since_barrier && f.accesses && f.at_entry && f.at_exit;
    for (size_t i = 0; i < k->n && ok; i++) {
        const int bind = k->ins[i].sub;
        if (k->ins[i].op != CT_K_LOOP || bind == CT_BIND_LANES || bind == CT_BIND_ROWS) continue;
        f.at_entry[i] = ct__arena_zero(&arena, k->nbufs + 1);
        f.at_exit[i] = ct__arena_zero(&arena, k->nbufs + 1);
        ok = f.at_entry[i] && f.at_exit[i];
    }
    memset(sync, 0, k->n);
    if (ok) sync_find_classes(k, class_of, reread);
    for (f.changed = ok; f.changed;) { // the fixed point exists: flags are only added
        f.changed = false;
        sync_walk(&f);
    }
    return ok || ct__err_memory(err, CT_NOWHERE, "kernel", k->n * sizeof *f.at_entry);
}
