// The lowering for devices that evaluate ops: a launch a node.
#include "compile/schedule/program.h"

static bool lower_nodes(const ct_graph *g, ct_program *p, ct_place **homes, uint32_t *leaf_buf) {
    uint32_t scalars = UINT32_MAX;
    for (size_t i = 0; i < g->n; i++) {
        ct_node *node = g->nodes[i];
        node->index = (uint32_t)i;
        homes[i] = ct__arena(p->arena, node->n_out * sizeof **homes);
        if (!homes[i]) return false;
        if (node->op->kind == &ct__kind_leaf) {
            if (!ct__program_leaf(p, node, leaf_buf, &scalars, homes[i])) return false;
            continue;
        }
        ct_launch *launch = ct__program_launch(p, (ct_launch){.kind = CT_LAUNCH_NODE, .node = node},
                                               node->n_in + node->n_out, 0u);
        if (!launch) return false;
        for (int k = 0; k < node->n_in; k++) {
            ct_place h = homes[node->in[k].node->index][node->in[k].out];
            launch->args[k] = (ct_arg){.buf = h.buf, .offset = h.offset};
        }
        for (int k = 0; k < node->n_out; k++) {
            uint32_t buf = ct__program_buf(
                p,
                (ct_buf){.kind = CT_BUF_TEMP, .size = ct__bytes_of(&node->out[k]), .node = node});
            if (buf == UINT32_MAX) return false;
            homes[i][k] = (ct_place){buf, 0};
            launch->args[node->n_in + k] = (ct_arg){.buf = buf, .write = true};
        }
    }
    return true;
}

// Assignments come last, so that they follow all reads of older versions; their values are copied.
bool ct__lower_ops(const ct_graph *g, ct_program *p, ct_err *err) {
    ct_place **homes = ct__arena(p->arena, (g->n + 1) * sizeof *homes);
    uint32_t *leaf_buf = ct__arena(p->arena, (g->n_leaves + 1) * sizeof *leaf_buf);
    if (!homes || !leaf_buf) return ct__err_memory(err, CT_NOWHERE, "plan", g->n * sizeof *homes);
    for (size_t i = 0; i < g->n_leaves; i++) leaf_buf[i] = UINT32_MAX;
    bool ok = lower_nodes(g, p, homes, leaf_buf);
    ct_place *early = ct__arena(p->arena, (g->n_roots + 1) * sizeof *early);
    ok = ok && early;
    for (size_t i = 0; i < g->n_roots && ok; i++) {
        ct_val v = g->roots[i].val;
        if (g->roots[i].kind != CT_ROOT_ASSIGN || v.node->op != &ct__op_data) continue;
        int64_t bytes = ct__bytes_of(ct__type(v));
        early[i] = (ct_place){
            ct__program_buf(p, (ct_buf){.kind = CT_BUF_TEMP, .size = bytes, .node = v.node}), 0};
        ok = early[i].buf != UINT32_MAX &&
             ct__program_copy(p, ct__arg_at(homes[v.node->index][v.out]), ct__arg_at(early[i]),
                              v.node, bytes);
    }
    for (int assigns = 0; assigns < 2 && ok; assigns++)
        for (size_t i = 0; i < g->n_roots && ok; i++) {
            if ((g->roots[i].kind == CT_ROOT_ASSIGN) != assigns) continue;
            ct_val v = g->roots[i].val;
            int64_t bytes = ct__bytes_of(ct__type(v));
            ct_place from = homes[v.node->index][v.out];
            if (assigns && v.node->op == &ct__op_data)
                from = early[i]; // another assignment may overwrite it
            uint32_t buf = ct__program_buf(
                p,
                (ct_buf){.kind = CT_BUF_ROOT, .index = (uint32_t)i, .size = bytes, .node = v.node});
            ok = buf != UINT32_MAX &&
                 ct__program_copy(p, ct__arg_at(from), (ct_arg){.buf = buf}, v.node, bytes);
        }
    return ok || ct__err_memory(err, CT_NOWHERE, "plan", g->n * sizeof(ct_launch));
}
