// Loops (scan): their bodies are lowered on their own and run between LOOP and END; operands need
// buffers.
#include "compile/schedule_impl.h"
#include "compile/templates.h"

// Row-major place of an element.
static ct_ix flat(ct_emit *e, ct_val v, const ct_ix *at) {
    ct_ix sum = ct__ix_int(e->pool, 0);
    for (int a = 0; a < ct__type(v)->rank; a++)
        sum = ct__ix_add(e->pool, ct__ix_mul(e->pool, sum, ct__emit_size(e, v, a)), at[a]);
    return sum;
}

// Computes what is fused into its users into a temporary.
static bool materialise(ct_sched *s, const ct_node *node, ct_val v, ct_place *to) {
    const ct_type *type = ct__type(v);
    size_t bytes = ct__type_bytes(type);
    ct_emit *e = ct__emit_new(s, node);
    *to = (ct_place){.buf = ct__sched_temp(s, bytes)};
    if (!e || to->buf == UINT32_MAX) return false;
    ct_ix at[CT_MAX_RANK];
    for (int a = 0; a < type->rank; a++)
        at[a] = ct__emit_loop(e, a == 0 ? CT_BIND_CORE : CT_BIND_SEQ, ct__emit_size(e, v, a), "i");
    ct__emit_store_at(e, to->buf, 0, type->dtype, flat(e, v, at),
                      ct__emit_value(e, v, at, CT_DEFAULT));
    for (int a = 0; a < type->rank; a++) ct__emit_end(e);
    return ct__emit_done(e, 0);
}

bool ct__template_loop(ct_sched *s, ct_node *node) {
    ct_place *in = ct__arena(&s->arena, (node->n_in + 1u) * sizeof *in);
    ct_place *out = ct__arena(&s->arena, (node->n_out + 1u) * sizeof *out);
    if (!in || !out) return ct__err_memory(s->err, node->here, "scan", node->n_in * sizeof *in);
    for (int i = 0; i < node->n_in; i++) {
        const ct_sval *val = ct__sval(s, node->in[i]);
        ct_node *operand = node->in[i].node;
        if (operand->op->kind == CT_KIND_LEAF && !ct__sched_place_leaf(s, operand)) return false;
        in[i] = (ct_place){val->buf, val->offset};
        if (val->buf == UINT32_MAX && !materialise(s, node, node->in[i], &in[i])) return false;
    }
    for (int i = 0; i < node->n_out; i++) {
        ct_sval *val = ct__sval(s, (ct_val){node, (uint32_t)i});
        if (val->buf == UINT32_MAX) val->buf = ct__sched_temp(s, ct__type_bytes(&node->out[i]));
        out[i] = (ct_place){val->buf, val->offset};
        if (val->buf == UINT32_MAX) return false;
    }
    return ct__lower_loop(s->program, node, in, out, ct__lower_kernels, s->err);
}
