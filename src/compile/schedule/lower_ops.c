// The lowering for devices that evaluate ops: one launch a node.
#include "compile/schedule/program.h"

static bool lower_ops_nodes(const ct_graph *g, ct_program *p, ct_location **locations,
                            uint32_t *leaf_buf) {
    uint32_t scalars = UINT32_MAX;
    for (size_t i = 0; i < g->n; i++) {
        ct_node *node = g->nodes[i];
        node->index = (uint32_t)i;
        locations[i] = ct__arena(p->arena, node->n_out * sizeof **locations);
        if (!locations[i]) return false;
        if (node->op->kind == &ct__kind_leaf) {
            if (!ct__program_leaf(p, node, leaf_buf, &scalars, locations[i])) return false;
            continue;
        }
        ct_launch *launch = ct__program_launch(p, (ct_launch){.kind = CT_LAUNCH_NODE, .node = node},
                                               node->n_in + node->n_out, 0u);
        if (!launch) return false;
        for (int k = 0; k < node->n_in; k++) {
            ct_location operand = locations[node->in[k].node->index][node->in[k].out];
            launch->args[k] = (ct_arg){.buf = operand.buf, .offset = operand.offset};
        }
        for (int k = 0; k < node->n_out; k++) {
            uint32_t buf = ct__program_buf(
                p,
                (ct_buf){.kind = CT_BUF_TEMP, .size = ct__bytes_of(&node->out[k]), .node = node});
            if (buf == UINT32_MAX) return false;
            locations[i][k] = (ct_location){buf, 0};
            launch->args[node->n_in + k] = (ct_arg){.buf = buf, .write = true};
        }
    }
    return true;
}

// Assignments come last, after all reads of the old values; assigned leaves are copied before.
bool ct__lower_ops(const ct_graph *g, ct_program *p, ct_err *err) {
    ct_location **locations = ct__arena(p->arena, (g->n + 1) * sizeof *locations);
    uint32_t *leaf_buf = ct__arena(p->arena, (g->n_leaves + 1) * sizeof *leaf_buf);
    if (!locations || !leaf_buf)
        return ct__err_memory(err, CT_NOWHERE, "plan", g->n * sizeof *locations);
    for (size_t i = 0; i < g->n_leaves; i++) leaf_buf[i] = UINT32_MAX;
    bool ok = lower_ops_nodes(g, p, locations, leaf_buf);
    ct_location *copies = ct__arena(p->arena, (g->n_roots + 1) * sizeof *copies);
    ok = ok && copies;
    for (size_t i = 0; i < g->n_roots && ok; i++) {
        ct_val v = g->roots[i].val;
        if (g->roots[i].kind != CT_ROOT_ASSIGN || v.node->op != &ct__op_data) continue;
        int64_t bytes = ct__bytes_of(ct__type(v));
        copies[i] = (ct_location){
            ct__program_buf(p, (ct_buf){.kind = CT_BUF_TEMP, .size = bytes, .node = v.node}), 0};
        ok = copies[i].buf != UINT32_MAX &&
             ct__program_copy(p, ct__arg_at(locations[v.node->index][v.out]), ct__arg_at(copies[i]),
                              v.node, bytes);
    }
    for (int assigns = 0; assigns < 2 && ok; assigns++)
        for (size_t i = 0; i < g->n_roots && ok; i++) {
            if ((g->roots[i].kind == CT_ROOT_ASSIGN) != assigns) continue;
            ct_val v = g->roots[i].val;
            int64_t bytes = ct__bytes_of(ct__type(v));
            ct_location from = locations[v.node->index][v.out];
            if (assigns && v.node->op == &ct__op_data)
                from = copies[i]; // another assignment may overwrite it
            uint32_t buf = ct__program_buf(
                p,
                (ct_buf){.kind = CT_BUF_ROOT, .index = (uint32_t)i, .size = bytes, .node = v.node});
            ok = buf != UINT32_MAX &&
                 ct__program_copy(p, ct__arg_at(from), (ct_arg){.buf = buf}, v.node, bytes);
        }
    return ok || ct__err_memory(err, CT_NOWHERE, "plan", g->n * sizeof(ct_launch));
}
