// Where the threads of a group must wait for each other: between a store and what another thread may do with
// the same element. A LANES loop is one step, for its iterations are independent.
#include <string.h>

#include "compile/render/render_sync.h"

// What has been done to a buffer since all threads met.
enum {
    READ = 1,
    ONE = 2,     // written by lane 0
    VECTOR = 4,  // by all lanes in a row, by a VSTORE
    STRIPES = 8, // by a LANES loop, in a row
    PLACES = 16, // elsewhere
    WRITTEN = ONE | VECTOR | STRIPES | PLACES
};

typedef struct {
    const ct_kir *k;
    const ct_kshape *shape;
    const int *class_of; // (nbufs) buffers that may overlap are one
    const bool *reread;  // (nbufs) by class: read and written, by one kernel
    uint8_t *now;        // (nbufs) by class
    uint8_t *acts;       // (nbufs) what the instruction does
    uint8_t **before;    // (n) of a LOOP: (nbufs) where an iteration may begin; NULL: of others
    uint8_t **after;     // (n) of a LOOP: (nbufs) where it is left by a BREAK
    bool *sync;
    bool changed;
} finder;

static bool is_memory(const ct_kins *ins) {
    return ins->op == CT_K_LOAD || ins->op == CT_K_STORE || ins->op == CT_K_VLOAD ||
           ins->op == CT_K_VSTORE;
}

static void act(finder *f, const ct_kins *ins, bool in_lanes) {
    if (!is_memory(ins)) return;
    const ct_kshape index = f->shape[ins->a];
    const bool in_row = index.vary == CT_AFFINE && index.stride == 1;
    int what = PLACES;
    if (ins->op == CT_K_LOAD || ins->op == CT_K_VLOAD)
        what = READ;
    else if (ins->op == CT_K_VSTORE)
        what = VECTOR;
    else if (in_lanes && in_row)
        what = STRIPES;
    else if (!in_lanes && f->k->ins[ins->a].lanes == 1)
        what = ONE;
    f->acts[f->class_of[ins->imm.i]] |= (uint8_t)what;
}

// VSTOREs beside each other, and loops that write a result part by part, do not write one element twice
// unless it is read between.
static bool conflict(int before, int now, bool reread) {
    const int written = before & WRITTEN, writes = now & WRITTEN;
    if ((written && now & READ) || (writes && before & READ)) return true;
    if (!written || !writes) return false;
    return written != writes || writes == PLACES || (writes == STRIPES && reread);
}

static void step(finder *f, ct_kval at) {
    bool waits = f->sync[at];
    for (size_t c = 0; c < f->k->nbufs && !waits; c++)
        waits = f->acts[c] && conflict(f->now[c], f->acts[c], f->reread[c]);
    if (waits) {
        f->changed |= !f->sync[at];
        f->sync[at] = true;
        memset(f->now, 0, f->k->nbufs);
    }
    for (size_t c = 0; c < f->k->nbufs; c++) f->now[c] |= f->acts[c];
    memset(f->acts, 0, f->k->nbufs);
}

static void join(finder *f, uint8_t *into) {
    for (size_t c = 0; c < f->k->nbufs; c++) {
        f->changed |= (f->now[c] & ~into[c]) != 0;
        into[c] |= f->now[c];
    }
}

static void walk(finder *f) {
    const ct_kir *k = f->k;
    memset(f->now, 0, k->nbufs);
    for (ct_kval i = 0; i < (ct_kval)k->n; i++) {
        const ct_kins *ins = &k->ins[i];
        if (ins->op == CT_K_LOOP && ins->sub == CT_BIND_LANES) {
            for (ct_kval b = i; b < ins->end; b++) act(f, &k->ins[b], true);
            step(f, i);
            i = ins->end;
        } else if (ins->op == CT_K_LOOP || ins->op == CT_K_END) {
            const ct_kval loop = ins->op == CT_K_END ? ins->a : i;
            if (k->ins[loop].sub == CT_BIND_ROWS) continue; // a group runs one
            join(f, f->before[loop]);
            for (size_t c = 0; c < k->nbufs; c++)
                f->now[c] = f->before[loop][c] | (loop == i ? 0 : f->after[loop][c]);
        } else if (ins->op == CT_K_BREAK) {
            join(f, f->after[ins->in]);
        } else {
            act(f, ins, false);
            step(f, i);
        }
    }
}

static void classes(const ct_kir *k, int *class_of, bool *reread) {
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
    ct_arena arena = {0};
    int *class_of = ct__arena_zero(&arena, (k->nbufs + 1) * sizeof *class_of);
    bool *reread = ct__arena_zero(&arena, k->nbufs + 1);
    finder f = {.k = k, .shape = shape, .class_of = class_of, .reread = reread, .sync = sync};
    f.now = ct__arena_zero(&arena, k->nbufs + 1);
    f.acts = ct__arena_zero(&arena, k->nbufs + 1);
    f.before = ct__arena_zero(&arena, k->n * sizeof *f.before);
    f.after = ct__arena_zero(&arena, k->n * sizeof *f.after);
    bool ok = class_of && reread && f.now && f.acts && f.before && f.after;
    for (size_t i = 0; i < k->n && ok; i++) {
        const int bind = k->ins[i].sub;
        if (k->ins[i].op != CT_K_LOOP || bind == CT_BIND_LANES || bind == CT_BIND_ROWS) continue;
        f.before[i] = ct__arena_zero(&arena, k->nbufs + 1);
        f.after[i] = ct__arena_zero(&arena, k->nbufs + 1);
        ok = f.before[i] && f.after[i];
    }
    memset(sync, 0, k->n);
    if (ok) classes(k, class_of, reread);
    for (f.changed = ok; f.changed;) { // what is found stays, so that it ends
        f.changed = false;
        walk(&f);
    }
    ct__arena_free(&arena);
    return ok || ct__err_memory(err, CT_NOWHERE, "kernel", k->n * sizeof *f.before);
}
