// Which values one kernel computes together.
#include "compile/schedule_impl.h"

static ct_group *new_group(ct_sched *s) {
    ct_group *g = ct__arena_zero(&s->arena, sizeof *g);
    if (!g || !CT_GROW(s->groups, s->groups_cap, s->n_groups + 1)) {
        ct__err_memory(s->err, CT_NOWHERE, "plan", sizeof *g);
        return NULL;
    }
    g->id = (int32_t)s->n_groups;
    s->groups[s->n_groups++] = g;
    return g;
}

static bool is_one(const ct_type *t, int axis) { return t->dim[axis] == 1 && !ct__is_dyn(t, axis); }

// A reduction alone: its rows are all axes of its result.
static void own_rows(ct_group *g, ct_unit *u) {
    const ct_type *t = ct__type(u->v);
    for (int a = 0; a < t->rank; a++) {
        if (is_one(t, a)) continue;
        g->rows[g->n_rows].v = u->v;
        g->rows[g->n_rows].axis = a;
        u->row[a] = (int8_t)g->n_rows++;
    }
}

static bool alone(ct_sched *s, ct_node *node) {
    ct_group *g = new_group(s);
    if (!g) return false;
    ct_kind kind = node->op->kind;
    if (kind != CT_KIND_ELEMENTWISE && kind != CT_KIND_REDUCE && kind != CT_KIND_MOVEMENT &&
        kind != CT_KIND_SOURCE) {
        g->only = node;
    } else {
        if (!CT_GROW(g->units, g->units_cap, 1))
            return ct__err_memory(s->err, node->here, "plan", sizeof *g->units);
        ct_unit *u = &g->units[g->n_units++];
        *u = (ct_unit){.v = {node, 0}, .reduce = kind == CT_KIND_REDUCE, .store = true};
        for (int a = 0; a < CT_MAX_RANK; a++) u->row[a] = -1;
        g->has_reduce = u->reduce;
        if (u->reduce) own_rows(g, u);
    }
    for (int o = 0; o < node->n_out; o++) s->vals[node->index][o].group = g->id;
    return true;
}

bool ct__sched_fuse(ct_sched *s) {
    for (size_t i = 0; i < s->graph->n; i++)
        if (s->graph->nodes[i]->op->kind != CT_KIND_LEAF && !alone(s, s->graph->nodes[i]))
            return false;
    return true;
}
