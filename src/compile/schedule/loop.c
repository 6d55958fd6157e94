// What goes through its operands' memory, which have buffers (fuse.c). Loops (scan): their bodies are
// lowered on their own and run between LOOP and END. Calls: a launch that evaluates the node.
#include "compile/schedule/sched.h"

// Where operands and results lie.
static bool find_places(ct_sched *s, ct_node *node, ct_place **in, ct_place **out) {
    *in = ct__arena(&s->arena, (node->n_in + 1u) * sizeof **in);
    *out = ct__arena(&s->arena, (node->n_out + 1u) * sizeof **out);
    if (!*in || !*out)
        return ct__err_memory(s->err, node->here, node->op->name, node->n_in * sizeof **in);
    for (int i = 0; i < node->n_in; i++) {
        const ct_sval *val = ct__sval(s, node->in[i]);
        ct_node *operand = node->in[i].node;
        if (ct__is_leaf(operand) && !ct__sched_place_leaf(s, operand)) return false;
        (*in)[i] = (ct_place){val->buf, val->offset};
        if (val->buf == UINT32_MAX)
            return ct__err(s->err, CT_E_INTERNAL, node->here, node->op->name,
                           "operand %d has no buffer", i + 1);
    }
    for (int i = 0; i < node->n_out; i++) {
        ct_sval *val = ct__sval(s, (ct_val){node, (uint32_t)i});
        if (val->buf == UINT32_MAX) val->buf = ct__sched_temp(s, ct__bytes_of(&node->out[i]));
        (*out)[i] = (ct_place){val->buf, val->offset};
        if (val->buf == UINT32_MAX) return false;
    }
    return true;
}

bool ct__sched_loop(ct_sched *s, ct_node *node) {
    ct_place *in, *out;
    return find_places(s, node, &in, &out) &&
           ct__lower_loop(s->program, node, in, out, ct__lower_kernels, s->err);
}

bool ct__sched_call(ct_sched *s, ct_node *node) {
    ct_place *in, *out;
    if (!find_places(s, node, &in, &out)) return false;
    ct_launch *launch =
        ct__program_launch(s->program, (ct_launch){.kind = CT_LAUNCH_NODE, .node = node},
                           node->n_in + node->n_out, 0u);
    if (!launch) return ct__err_memory(s->err, node->here, node->op->name, sizeof *launch);
    for (int i = 0; i < node->n_in; i++) launch->args[i] = ct__arg_at(in[i]);
    for (int i = 0; i < node->n_out; i++) {
        launch->args[node->n_in + i] = ct__arg_at(out[i]);
        launch->args[node->n_in + i].write = true;
    }
    return true;
}
