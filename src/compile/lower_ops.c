// The lowering for devices that evaluate ops: a launch a node.
#include "compile/program.h"

static uint32_t add_buf(ct_program *p, ct_buf buf) {
    if (!CT_GROW(p->bufs, p->bufs_cap, p->n_bufs + 1)) return UINT32_MAX;
    p->bufs[p->n_bufs] = buf;
    return (uint32_t)p->n_bufs++;
}

static ct_launch *add_launch(ct_program *p, ct_launch launch, uint32_t n_args) {
    launch.args = ct__arena_zero(p->arena, (n_args + 1) * sizeof *launch.args);
    launch.n_args = n_args;
    if (!launch.args || !CT_GROW(p->launches, p->launches_cap, p->n_launches + 1)) return NULL;
    p->launches[p->n_launches] = launch;
    return &p->launches[p->n_launches++];
}

typedef struct {
    uint32_t buf;
    size_t offset;
} home;

static home leaf_home(ct_program *p, const ct_node *node, uint32_t *leaf_buf, uint32_t *scalars) {
    size_t bytes = ct__type_bytes(node->out);
    if (node->op == &ct__op_scalar) {
        if (*scalars == UINT32_MAX) *scalars = add_buf(p, (ct_buf){.kind = CT_BUF_SCALARS});
        return (home){*scalars, node->number * 8};
    }
    if (node->op == &ct__op_const) {
        const ct_data_bytes *data = node->attrs;
        return (home){
            add_buf(
                p,
                (ct_buf){.kind = CT_BUF_CONST, .bytes = bytes, .data = data->bytes, .node = node}),
            0};
    }
    uint32_t *at = &leaf_buf[node->number];
    if (*at == UINT32_MAX)
        *at = add_buf(p, (ct_buf){.kind = CT_BUF_LEAF,
                                  .index = (uint32_t)node->number,
                                  .bytes = bytes,
                                  .node = node});
    return (home){*at, 0};
}

static bool add_copy(ct_program *p, home from, uint32_t to, const ct_node *node, size_t bytes) {
    ct_launch *copy =
        add_launch(p, (ct_launch){.kind = CT_LAUNCH_COPY, .node = node, .bytes = bytes}, 2);
    if (!copy) return false;
    copy->args[0] = (ct_arg){.buf = from.buf, .offset = from.offset};
    copy->args[1] = (ct_arg){.buf = to, .write = true};
    return true;
}

static bool lower_nodes(const ct_graph *g, ct_program *p, home **homes, uint32_t *leaf_buf) {
    uint32_t scalars = UINT32_MAX;
    for (size_t i = 0; i < g->n; i++) {
        ct_node *node = g->nodes[i];
        node->index = (uint32_t)i;
        homes[i] = ct__arena(p->arena, node->n_out * sizeof **homes);
        if (!homes[i]) return false;
        if (node->op->kind == CT_KIND_LEAF) {
            homes[i][0] = leaf_home(p, node, leaf_buf, &scalars);
            if (homes[i][0].buf == UINT32_MAX) return false;
            continue;
        }
        ct_launch *launch = add_launch(p, (ct_launch){.kind = CT_LAUNCH_NODE, .node = node},
                                       node->n_in + node->n_out);
        if (!launch) return false;
        for (int k = 0; k < node->n_in; k++) {
            home h = homes[node->in[k].node->index][node->in[k].out];
            launch->args[k] = (ct_arg){.buf = h.buf, .offset = h.offset};
        }
        for (int k = 0; k < node->n_out; k++) {
            uint32_t buf = add_buf(p, (ct_buf){.kind = CT_BUF_TEMP,
                                               .bytes = ct__type_bytes(&node->out[k]),
                                               .node = node});
            if (buf == UINT32_MAX) return false;
            homes[i][k] = (home){buf, 0};
            launch->args[node->n_in + k] = (ct_arg){.buf = buf, .write = true};
        }
    }
    return true;
}

// Assignments come last, so that they follow all reads of older versions; their values are copied.
bool ct__lower_ops(const ct_graph *g, ct_program *p, ct_err *err) {
    home **homes = ct__arena(p->arena, (g->n + 1) * sizeof *homes);
    uint32_t *leaf_buf = ct__arena(p->arena, (g->n_leaves + 1) * sizeof *leaf_buf);
    if (!homes || !leaf_buf) return ct__err_memory(err, CT_NOWHERE, "plan", g->n * sizeof *homes);
    for (size_t i = 0; i < g->n_leaves; i++) leaf_buf[i] = UINT32_MAX;
    bool ok = lower_nodes(g, p, homes, leaf_buf);
    home *early = ct__arena(p->arena, (g->n_roots + 1) * sizeof *early);
    ok = ok && early;
    for (size_t i = 0; i < g->n_roots && ok; i++) {
        ct_val v = g->roots[i].val;
        if (g->roots[i].kind != CT_ROOT_ASSIGN || v.node->op != &ct__op_data) continue;
        size_t bytes = ct__type_bytes(ct__type(v));
        early[i] =
            (home){add_buf(p, (ct_buf){.kind = CT_BUF_TEMP, .bytes = bytes, .node = v.node}), 0};
        ok = early[i].buf != UINT32_MAX &&
             add_copy(p, homes[v.node->index][v.out], early[i].buf, v.node, bytes);
    }
    for (int assigns = 0; assigns < 2 && ok; assigns++)
        for (size_t i = 0; i < g->n_roots && ok; i++) {
            if ((g->roots[i].kind == CT_ROOT_ASSIGN) != assigns) continue;
            ct_val v = g->roots[i].val;
            size_t bytes = ct__type_bytes(ct__type(v));
            home from = homes[v.node->index][v.out];
            if (assigns && v.node->op == &ct__op_data)
                from = early[i]; // another assignment may overwrite it
            uint32_t buf = add_buf(
                p, (ct_buf){
                       .kind = CT_BUF_ROOT, .index = (uint32_t)i, .bytes = bytes, .node = v.node});
            ok = buf != UINT32_MAX && add_copy(p, from, buf, v.node, bytes);
        }
    return ok || ct__err_memory(err, CT_NOWHERE, "plan", g->n * sizeof(ct_launch));
}
