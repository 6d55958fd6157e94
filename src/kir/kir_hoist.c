// Hoists loads and computations that are equal for all iterations, such as a learning rate or values
// computed from the step count, out of all loops but the one over tasks.
#include <string.h>

#include "kir/kir.h"

// True for a load of an element at a constant index of a read-only buffer, which exists even if no loop
// around the load runs.
static bool hoist_is_uniform_load(const ct_kir *k, const int64_t *least, const ct_kins *ins) {
    int64_t at;
    return ins->op == CT_K_LOAD && ins->lanes == 1 && ins->b < 0 &&
           k->bufs[ins->imm.i].flags == CT_KIR_READ && ct__kir_is_int(k, ins->a, &at) && at >= 0 &&
           at < least[ins->imm.i];
}

static const ct_kval *hoist_operands(const ct_kins *ins, ct_kval v[4]) {
    v[0] = ins->a, v[1] = ins->b, v[2] = ins->c, v[3] = ins->d;
    return v;
}

// Marks the instructions after `from` that move: such loads, values computed only from them and from
// constants, and these constants. Returns how many of them are in an inner loop.
static size_t hoist_mark(const ct_kir *k, const int64_t *least, ct_kval from, bool *moves) {
    size_t inner = 0;
    ct_kval v[4];
    for (size_t i = (size_t)(from + 1); i < k->n; i++) {
        const ct_kins *ins = &k->ins[i];
        bool any = hoist_is_uniform_load(k, least, ins),
             all = any || (ct__kir_is_pure(ins) && ins->lanes == 1);
        hoist_operands(ins, v);
        for (int o = 0; o < 4 && all && !any; o++) {
            if (v[o] < 0) continue;
            const bool fixed = v[o] <= from || k->ins[v[o]].op == CT_K_CONST;
            all = fixed || moves[v[o]];
        }
        for (int o = 0; o < 4 && all && !any; o++) any = v[o] > from && moves[v[o]];
        moves[i] = all && any;
        inner += moves[i] && ins->in != from;
    }
    for (size_t i = k->n; i-- > (size_t)(from + 1);) {
        if (!moves[i] || k->ins[i].op == CT_K_CONST) continue;
        hoist_operands(&k->ins[i], v);
        for (int o = 0; o < 4; o++)
            if (v[o] > from && k->ins[v[o]].op == CT_K_CONST) moves[v[o]] = true;
    }
    return inner;
}

static ct_kval hoist_renumber(const ct_kval *to, ct_kval v) { return v < 0 ? v : to[v]; }

void ct__kir_hoist(ct_kir *k, const int64_t *least) {
    if (k->err.code || k->open >= 0) return;
    ct_kval from = -1; // the loop over tasks
    for (size_t i = 0; i < k->n && from < 0; i++)
        if (k->ins[i].op == CT_K_LOOP && k->ins[i].sub == CT_BIND_ROWS) from = (ct_kval)i;
    CT_ARENA arena = {0};
    bool *moves = ct__arena_zero(&arena, k->n + 1);
    ct_kval *to = ct__arena(&arena, (k->n + 1) * sizeof *to);
    ct_kins *ins = ct__arena(&arena, (k->n + 1) * sizeof *ins);
    if (!moves || !to || !ins) {
        ct__err_memory(&k->err, CT_NOWHERE, "kernel", k->n * sizeof *ins);
    } else if (hoist_mark(k, least, from, moves)) {
        ct_kval n = 0;
        for (int pass = 0; pass < 3; pass++) // before the loop, moved ones, the rest
            for (size_t i = 0; i < k->n; i++)
                if (((ct_kval)i <= from ? 0 : moves[i] ? 1 : 2) == pass) to[i] = n++;
        for (size_t i = 0; i < k->n; i++) {
            ct_kins *x = &ins[to[i]];
            *x = k->ins[i];
            x->a = hoist_renumber(to, x->a), x->b = hoist_renumber(to, x->b);
            x->c = hoist_renumber(to, x->c), x->d = hoist_renumber(to, x->d);
            x->in = moves[i] ? from : hoist_renumber(to, x->in);
            if (x->op == CT_K_LOOP) x->end = hoist_renumber(to, x->end);
        }
        memcpy(k->ins, ins, k->n * sizeof *ins);
        ct__free(k->shared); // it has the old numbers
        k->shared = NULL;
        k->shared_cap = k->nshared = 0;
    }
}
