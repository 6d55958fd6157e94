// Nodes of the kinds index, scan and sort: their operands with axes joined as the templates see
// them.
#include <string.h>

#include "compile/schedule/sched.h"
#include "compile/schedule/template_index.h"
#include "compile/schedule/templates.h"
#include "graph/graph.h"

enum { MOST_GROUPS = 4 };

// A value whose axes start[g] .. start[g + 1] - 1 are one axis of the template.
typedef struct joined {
    ct_emit *e;
    ct_val v;
    ct_dtype as;
    int groups, start[MOST_GROUPS + 1];
} joined;

// An operand is memory, or a chain of views of memory (src/compile/schedule/fuse.c).
static void declare_sizes(ct_emit *e, ct_val v) {
    for (;;) {
        for (int a = 0; a < ct__type(v)->rank; a++)
            if (ct__is_dyn(ct__type(v), a)) ct__emit_ix(e, ct__emit_size(e, v, a));
        if (v.node->op->kind != CT_KIND_MOVEMENT || v.node->n_in != 1) return;
        v = v.node->in[0];
    }
}
void ct__template_sizes(ct_emit *e, ct_node *node) {
    for (int i = 0; i < node->n_in; i++) declare_sizes(e, node->in[i]);
    for (uint32_t o = 0; o < node->n_out; o++)
        for (int a = 0; a < node->out[o].rank; a++)
            if (ct__is_dyn(&node->out[o], a))
                ct__emit_ix(e, ct__emit_size(e, (ct_val){node, o}, a));
}

static joined join(ct_emit *e, ct_val v, ct_dtype as, int groups, const int *start) {
    joined j = {.e = e, .v = v, .as = as, .groups = groups};
    memcpy(j.start, start, (size_t)groups * sizeof *start);
    j.start[groups] = ct__type(v)->rank;
    return j;
}

static ct_ix group_size(const joined *j, int g) {
    ct_ix size = ct__ix_int(j->e->pool, 1);
    for (int a = j->start[g]; a < j->start[g + 1]; a++)
        size = ct__ix_mul(j->e->pool, size, ct__emit_size(j->e, j->v, a));
    return size;
}
static ct_kval group_extent(const joined *j, int g) { return ct__emit_ix(j->e, group_size(j, g)); }

static void place(const joined *j, const ct_kval *at, ct_ix *index) {
    ct_ix size[CT_MAX_RANK];
    for (int a = 0; a < ct__type(j->v)->rank; a++) size[a] = ct__emit_size(j->e, j->v, a);
    for (int g = 0; g < j->groups; g++) {
        int first = j->start[g], n = j->start[g + 1] - first;
        if (n == 0) continue;
        ct_ix flat = ct__emit_bind(j->e, at[g], group_size(j, g));
        ct__unflatten_ix(j->e->pool, flat, &size[first], n, &index[first]);
    }
}

static ct_kval value(void *env, ct_kir *k, const ct_kval *at) {
    (void)k;
    const joined *j = env;
    ct_ix index[CT_MAX_RANK];
    place(j, at, index);
    return ct__emit_value_apart(j->e, j->v, index, j->as);
}
static void store(void *env, ct_kir *k, const ct_kval *at, ct_kval v) {
    (void)k;
    const joined *j = env;
    ct_ix index[CT_MAX_RANK];
    place(j, at, index);
    ct__emit_store_apart(j->e, j->v, index, v);
}
static ct_source source(joined *j) { return (ct_source){.value = value, .env = j, .along = -1}; }
static ct_sink sink(joined *j) { return (ct_sink){.store = store, .env = j}; }

static ct_dtype dtype_of(ct_val v) { return (ct_dtype)ct__type(v)->dtype; }

// ----------------------------------------------------------------------------- adding at positions

// A second op of the kind needs a template, or this one generalised.
static bool only_adds(ct_sched *s, const ct_node *node) {
    return node->op->reduction == CT_RED_ADD ||
           ct__err(s->err, CT_E_INTERNAL, node->here, node->op->name,
                   "its template only adds, it puts elements together otherwise");
}

bool ct__template_index(ct_sched *s, ct_node *node) {
    ct_emit *e = only_adds(s, node) ? ct__emit_new(s, node) : NULL;
    if (!e) return false;
    ct__template_sizes(e, node);
    ct_along along = ct__along(node);
    int axis = along.axis, batch = along.batch, own = ct__type(node->in[1])->rank - batch;
    ct_dtype as = ct__kir_held(dtype_of(node->in[0]));
    joined x = join(e, node->in[0], as, 4, (int[]){0, batch, axis, axis + 1});
    joined positions = join(e, node->in[1], CT_I64, 2, (int[]){0, batch});
    joined updates = join(e, node->in[2], as, 4, (int[]){0, batch, axis, axis + own});
    ct_scatter_spec spec = {
        .size = {group_extent(&x, 0), group_extent(&x, 1), group_extent(&x, 2),
                 group_extent(&positions, 1), group_extent(&x, 3)},
        .x = source(&x),
        .positions = source(&positions),
        .updates = source(&updates),
        .out = ct__emit_result_buffer(e, (ct_val){node, 0}, CT_KIR_READ | CT_KIR_WRITE)};
    ct__template_scatter_add(e->kir, &spec);
    return ct__emit_done(e, (double)ct__count(ct__type(node->in[2])));
}

// --------------------------------------------------------------------------------- cumsum and topk

bool ct__template_scan(ct_sched *s, ct_node *node) {
    ct_emit *e = only_adds(s, node) ? ct__emit_new(s, node) : NULL;
    if (!e) return false;
    ct__template_sizes(e, node);
    ct_along along = ct__along(node);
    int axis = along.axis;
    joined x = join(e, node->in[0], dtype_of(node->in[0]), 3, (int[]){0, axis, axis + 1});
    joined out = join(e, (ct_val){node, 0}, x.as, 3, (int[]){0, axis, axis + 1});
    ct_cumsum_spec spec = {.dtype = x.as,
                           .outer = group_extent(&x, 0),
                           .n = group_extent(&x, 1),
                           .inner = group_extent(&x, 2),
                           .reverse = along.reverse,
                           .x = source(&x),
                           .out = sink(&out)};
    ct__template_cumsum(e->kir, &spec);
    return ct__emit_done(e, (double)ct__count(&node->out[0]));
}

bool ct__template_sort(ct_sched *s, ct_node *node) {
    ct_emit *e = ct__emit_new(s, node);
    if (!e) return false;
    ct__template_sizes(e, node);
    int last = ct__type(node->in[0])->rank - 1;
    joined x = join(e, node->in[0], dtype_of(node->in[0]), 2, (int[]){0, last});
    joined values = join(e, (ct_val){node, 0}, x.as, 2, (int[]){0, last});
    joined places = join(e, (ct_val){node, 1}, CT_I32, 2, (int[]){0, last});
    ct_topk_spec spec = {.dtype = x.as,
                         .rows = group_extent(&x, 0),
                         .n = group_extent(&x, 1),
                         .count = ct__along(node).count,
                         .x = source(&x),
                         .values = sink(&values),
                         .places = sink(&places)};
    ct__template_topk(e->kir, &spec);
    return ct__emit_done(e, (double)ct__count(ct__type(node->in[0])));
}
