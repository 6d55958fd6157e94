// Packs elements of 4 bits, two per byte.
#include "kinds/batch.h"
#include "kinds/emit.h"

enum { CHUNK = 4096 }; // bytes of a task

static ct_kval pack_load_code(ct_emit *e, ct_val v, const ct_ix *size, ct_ix flat) {
    ct_ix at[CT_MAX_RANK];
    ct__unflatten_ix(e->pool, flat, size, ct__type(v)->rank, at);
    return ct__emit_value_apart(e, v, at, CT_U8);
}

static bool pack_kernels(ct_sched *s, ct_node *node) {
    ct_emit *e = ct__emit_new(s, node);
    if (!e) return false;
    ct__emit_declare_sizes(e, node);
    ct_ix_pool *p = e->pool;
    ct_kir *k = e->kir;
    ct_val v = node->in[0];
    ct_ix size[CT_MAX_RANK], n = ct__ix_int(p, 1), two = ct__ix_int(p, 2), one = ct__ix_int(p, 1);
    for (int a = 0; a < ct__type(v)->rank; a++) {
        size[a] = ct__emit_size(e, v, a);
        n = ct__ix_mul(p, n, size[a]);
    }
    int out = ct__emit_result_buffer(e, (ct_val){node, 0}, CT_KIR_WRITE);
    ct_ix bytes = ct__ix_div(p, ct__ix_add(p, n, one), two), chunk = ct__ix_int(p, CHUNK);
    ct_ix chunks = ct__ix_div(p, ct__ix_add(p, bytes, ct__ix_int(p, CHUNK - 1)), chunk);
    ct_ix begin = ct__ix_mul(p, ct__emit_loop(e, CT_BIND_ROWS, chunks, "bytes"), chunk);
    ct_ix some = ct__ix_min(p, chunk, ct__ix_sub(p, bytes, begin));
    ct_ix byte = ct__ix_add(p, begin, ct__emit_loop(e, CT_BIND_LANES, some, NULL));
    ct_ix even = ct__ix_mul(p, byte, two), odd = ct__ix_add(p, even, one);
    ct_kval low = pack_load_code(e, v, size, even);
    e->guard = ct__ix_lt(p, odd, n); // the last byte may be half full
    ct_kval high = pack_load_code(e, v, size, odd);
    high = ct__kir_select(k, ct__emit_condition(e, e->guard), high, ct__kir_const_int(k, CT_U8, 0));
    e->guard = CT_IX_NONE;
    high = ct__kir_bin(k, CT_K_SHL, high, ct__kir_const_int(k, CT_U8, 4));
    ct__kir_store(k, out, ct__emit_ix(e, byte), ct__kir_bin(k, CT_K_OR, low, high));
    ct__emit_end(e);
    ct__emit_end(e);
    return ct__emit_done(e, (double)ct__count(node->out));
}

const ct_kind ct__kind_pack = {
    .name = "pack",
    .doc = "4-bit quants, unpacked to a byte each, of which two are stored in a byte.",
    .scheduled = CT_TEMPLATE,
    .kernels = pack_kernels,
    .batch = CT_NO_VMAP, // recorded when a plan is made, after all transforms
};
