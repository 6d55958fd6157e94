// Adding at positions that are data.
#include "compile/schedule/template_index.h"

enum { GRAIN = 8192 }; // elements that are worth a task of their own

static int64_t literal(const ct_kir *k, ct_kval v, int64_t otherwise) {
    int64_t n = 0;
    return ct__kir_is_int(k, v, &n) ? n : otherwise;
}

static ct_kval position(ct_kir *k, const ct_source *s, ct_kval batch, ct_kval i) {
    ct_kval v = ct__source_load(k, s, 2, (ct_kval[]){batch, i});
    return v >= 0 && k->ins[v].dtype != CT_I64 ? ct__kir_cast(k, v, CT_I64) : v;
}

static ct_kval in_range(ct_kir *k, ct_kval v, ct_kval from, ct_kval to) {
    return ct__kir_bin(k, CT_K_AND, ct__kir_bin(k, CT_K_LE, from, v), ct__kir_lt(k, v, to));
}

// A task owns a block of destination rows: no two threads meet, and the order of the additions to
// an element is that of the positions. Every task reads all positions, so a block is as much work
// as that at least.
void ct__template_scatter_add(ct_kir *k, const ct_scatter_spec *spec) {
    const ct_picking *p = &spec->size;
    int64_t tail = literal(k, p->tail, 64), picks = literal(k, p->picks, GRAIN);
    int64_t work = picks > GRAIN ? picks : GRAIN;
    int64_t block = work / (tail > 1 ? tail : 1);
    if (block < 1) block = 1;
    ct_kval blocks = ct__kir_ceil_div(k, p->n, block);
    ct_kval task = ct__kir_loop(
        k, CT_BIND_CORE, ct__kir_mul(k, ct__kir_mul(k, p->batch, p->middle), blocks), "block");
    ct_kval first = ct__kir_muli(k, ct__kir_mod(k, task, blocks), block);
    ct_kval lead = ct__kir_div(k, task, blocks);
    ct_kval m = ct__kir_mod(k, lead, p->middle), b = ct__kir_div(k, lead, p->middle);
    ct_kval rows = ct__kir_min(k, ct__kir_sub(k, p->n, first), ct__kir_int(k, block));
    ct_kval base = ct__kir_mul(k, lead, p->n); // rows of out before this matrix
    ct_kbind along_tail = literal(k, p->tail, CT_LANES) < 4 ? CT_BIND_SEQ : CT_BIND_VECTOR;

    ct_kval row = ct__kir_add(k, first, ct__kir_loop(k, CT_BIND_SEQ, rows, "row of x"));
    ct_kval t = ct__kir_loop(k, along_tail, p->tail, "tail");
    ct_kval to = ct__kir_add(k, ct__kir_mul(k, ct__kir_add(k, base, row), p->tail), t);
    ct__kir_store(k, spec->out, to, ct__source_load(k, &spec->x, 4, (ct_kval[]){b, m, row, t}));
    ct__kir_end(k);
    ct__kir_end(k);

    ct_kval i = ct__kir_loop(k, CT_BIND_SEQ, p->picks, "pick");
    ct_kval at = position(k, &spec->positions, b, i);
    ct__kir_if(k, in_range(k, at, first, ct__kir_add(k, first, rows)));
    t = ct__kir_loop(k, along_tail, p->tail, "tail");
    to = ct__kir_add(k, ct__kir_mul(k, ct__kir_add(k, base, at), p->tail), t);
    ct_kval update = ct__source_load(k, &spec->updates, 4, (ct_kval[]){b, m, i, t});
    ct__kir_store(k, spec->out, to, ct__kir_add(k, ct__kir_load(k, spec->out, to), update));
    ct__kir_end(k);
    ct__kir_end(k);
    ct__kir_end(k);
    ct__kir_end(k);
}
