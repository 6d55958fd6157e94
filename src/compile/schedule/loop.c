// Emits nodes that access their operands through memory, so that their operands have buffers (fuse.c).
// Loops (scan): the bodies are lowered on their own and run between LOOP and END. Calls: a launch evaluates
// the node.
#include "compile/schedule/sched.h"
#include "transform/loop.h"

// Returns the buffer of the initial value of carried tensor i, if the carried tensor can be updated there:
// only the loop reads the initial value, and the tensor is the first of the carried tensors that begin with
// it; the others are copied before the loop begins.
static uint32_t sched_loop_initial_buffer(const ct_sched *s, ct_node *node, size_t i) {
    const ct_loop loop = ct__loop_of(node);
    if (loop.form == CT_LOOP_SWITCH || i >= loop.n_carry) return UINT32_MAX;
    const uint32_t buf = ct__sval(s, node->in[i])->buf;
    if (buf == UINT32_MAX || !ct__sched_dies(s, buf)) return UINT32_MAX;
    const ct_buf *from = &s->program->bufs[buf];
    bool fits = from->kind == CT_BUF_TEMP && from->size == ct__bytes_of(&node->out[i]) &&
                !ct__sval(s, (ct_val){node, (uint32_t)i})->offset;
    for (size_t k = 0; k < node->n_in && fits; k++)
        fits = ct__sval(s, node->in[k])->buf != buf || k == i || (k > i && k < loop.n_carry);
    return fits ? buf : UINT32_MAX;
}

// Finds the locations of operands and wanted results (`wanted`: NULL, all are). A carried tensor has the
// location of its initial value, if nothing else reads that.
static bool sched_loop_find_locations(ct_sched *s, ct_node *node, const bool *wanted,
                                      ct_location **in, ct_location **out) {
    *in = ct__arena(&s->arena, (node->n_in + 1u) * sizeof **in);
    *out = ct__arena(&s->arena, (node->n_out + 1u) * sizeof **out);
    if (!*in || !*out)
        return ct__err_memory(s->err, node->here, node->op->name, node->n_in * sizeof **in);
    for (int i = 0; i < node->n_in; i++) {
        const ct_sval *val = ct__sval(s, node->in[i]);
        ct_node *operand = node->in[i].node;
        if (ct__is_leaf(operand) && !ct__sched_place_leaf(s, operand)) return false;
        (*in)[i] = (ct_location){val->buf, val->offset};
        if (val->buf == UINT32_MAX)
            return ct__err(s->err, CT_E_INTERNAL, node->here, node->op->name,
                           "operand %d has no buffer", i + 1);
    }
    for (int i = 0; i < node->n_out; i++) {
        ct_sval *val = ct__sval(s, (ct_val){node, (uint32_t)i});
        if (wanted && !wanted[i]) continue;
        const uint32_t initial =
            wanted && val->root < 0 ? sched_loop_initial_buffer(s, node, (size_t)i) : UINT32_MAX;
        if (initial != UINT32_MAX) val->buf = initial;
        if (val->buf == UINT32_MAX) val->buf = ct__sched_temp(s, ct__bytes_of(&node->out[i]));
        (*out)[i] = (ct_location){val->buf, val->offset};
        if (val->buf == UINT32_MAX) return false;
    }
    return true;
}

bool ct__sched_loop(ct_sched *s, ct_node *node) {
    ct_location *in, *out;
    bool *wanted = ct__arena(&s->arena, node->n_out + 1u);
    for (int i = 0; wanted && i < node->n_out; i++)
        wanted[i] = ct__sval(s, (ct_val){node, (uint32_t)i})->readers > 0;
    if (!wanted || !ct__loop_wanted(&s->arena, node, wanted))
        return ct__err_memory(s->err, node->here, node->op->name, node->n_out);
    return sched_loop_find_locations(s, node, wanted, &in, &out) &&
           ct__lower_loop(s->program, node, in, out, wanted, ct__lower_kernels, s->err);
}

bool ct__sched_call(ct_sched *s, ct_node *node) {
    ct_location *in, *out;
    if (!sched_loop_find_locations(s, node, NULL, &in, &out)) return false;
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
