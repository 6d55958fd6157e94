// Inlines a kernel into another one: appends each instruction through the builder.
#include <string.h>

#include "kir/kir.h"

typedef struct {
    ct_kir *k;
    const ct_kir *from;
    const ct_kir_inlined *with;
    int *buf;      // (from->nbufs)
    ct_kval *made; // (from->n) the value in k of each of its values
} inline_state;

static ct_kval inline_value(const inline_state *x, ct_kval v) { return v < 0 ? -1 : x->made[v]; }

static ct_kval inline_index(const inline_state *x, const ct_kins *ins) {
    ct_kval index = x->made[ins->a], offset = x->with->offset[ins->imm.i];
    return offset < 0 ? index : ct__kir_add(x->k, index, offset);
}

static ct_kval inline_access(const inline_state *x, const ct_kins *ins) {
    ct_kir *k = x->k;
    int buf = x->buf[ins->imm.i];
    ct_kval at = inline_index(x, ins), b = inline_value(x, ins->b), c = inline_value(x, ins->c);
    switch (ins->op) {
    case CT_K_LOAD: return ct__kir_load_if(k, buf, at, b);
    case CT_K_VLOAD: return ct__kir_vload(k, buf, at, b);
    case CT_K_STORE: ct__kir_store_if(k, buf, at, b, c); return -1;
    case CT_K_PREFETCH: ct__kir_prefetch(k, buf, at, ins->sub); return -1;
    default: ct__kir_vstore(k, buf, at, b, c); return -1;
    }
}

static ct_kval inline_constant(ct_kir *k, const ct_kins *ins) {
    ct_dtype dtype = (ct_dtype)ins->dtype;
    if (ct__is_float(dtype)) return ct__kir_const(k, dtype, ins->imm.f);
    return ct__kir_const_int(k, dtype, ins->imm.i);
}

bool ct__kir_is_pure(const ct_kins *ins) { return ins->op == CT_K_CONST || ins->op >= CT_K_NEG; }

ct_kval ct__kir_clone(ct_kir *k, const ct_kins *ins, ct_kval a, ct_kval b, ct_kval c) {
    switch (ins->op) {
    case CT_K_CONST: return inline_constant(k, ins);
    case CT_K_REDUCE: return ct__kir_reduce(k, ins->sub, a);
    case CT_K_REG: return ct__kir_reg(k, a);
    case CT_K_GET: return ct__kir_get(k, a);
    case CT_K_SPLAT: return ct__kir_splat(k, a);
    case CT_K_IOTA: return ct__kir_iota(k);
    case CT_K_FOLD: return ct__kir_fold(k, ins->sub, a);
    case CT_K_ZIP: return ct__kir_zip(k, a, b, ins->sub);
    case CT_K_CAST: return ct__kir_cast(k, a, (ct_dtype)ins->sub);
    case CT_K_LOW_HALF:
    case CT_K_HIGH_HALF: return ct__kir_unpack_half(k, a, ins->op == CT_K_HIGH_HALF);
    case CT_K_BITCAST: return ct__kir_bitcast(k, a, (ct_dtype)ins->dtype);
    case CT_K_MATH: return ct__kir_math(k, ins->sub, a);
    case CT_K_SCALE: return ct__kir_scale(k, a, b);
    case CT_K_MATH_WHERE: return ct__kir_math_where(k, ins->sub, a, b, c);
    case CT_K_FMA: return ct__kir_fma(k, a, b, c);
    case CT_K_DOT4: return ct__kir_dot4(k, a, b, c, ins->sub);
    case CT_K_DOT2: return ct__kir_dot2(k, a, b, c);
    case CT_K_LOOKUP4: return ct__kir_lookup4(k, a, b, c);
    case CT_K_SELECT: return ct__kir_select(k, a, b, c);
    default: return ins->op >= CT_K_ADD ? ct__kir_bin(k, ins->op, a, b) : ct__kir_un(k, ins->op, a);
    }
}

static ct_kval inline_instruction(const inline_state *x, const ct_kins *ins) {
    ct_kir *k = x->k;
    switch (ins->op) {
    case CT_K_LOOP: {
        ct_kbind bind = ins->sub == CT_BIND_ROWS ? CT_BIND_SEQ : ins->sub;
        return ct__kir_loop(k, bind, x->made[ins->a], ins->name);
    }
    case CT_K_END: ct__kir_end(k); return -1;
    case CT_K_BREAK: ct__kir_break(k, x->made[ins->a]); return -1;
    case CT_K_SET: ct__kir_set(k, x->made[ins->a], x->made[ins->b]); return -1;
    case CT_K_LOAD:
    case CT_K_VLOAD:
    case CT_K_STORE:
    case CT_K_VSTORE:
    case CT_K_PREFETCH: return inline_access(x, ins);
    case CT_K_ARG: return x->with->arg[ins->imm.i];
    default:
        return ct__kir_clone(k, ins, inline_value(x, ins->a), inline_value(x, ins->b),
                             inline_value(x, ins->c));
    }
}

void ct__kir_inline(ct_kir *k, const ct_kir *from, const ct_kir_inlined *with) {
    CT_ARENA arena = {0};
    inline_state x = {.k = k, .from = from, .with = with};
    x.buf = ct__arena(&arena, (from->nbufs + 1) * sizeof *x.buf);
    x.made = ct__arena(&arena, (from->n + 1) * sizeof *x.made);
    if (!x.buf || !x.made) ct__err_memory(&k->err, CT_NOWHERE, "kernel", from->n * sizeof *x.made);
    for (size_t i = 0; i < from->nbufs && !k->err.code; i++) {
        const ct_kbuf *b = &from->bufs[i];
        x.buf[i] = b->flags & CT_KIR_LOCAL ? ct__kir_local(k, b->dtype, b->count) : with->buf[i];
    }
    for (size_t i = 0; i < from->n && !k->err.code; i++)
        x.made[i] = inline_instruction(&x, &from->ins[i]);
}
