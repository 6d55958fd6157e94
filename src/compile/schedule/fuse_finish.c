// Finishes the groups that fuse.c made: which values they store, which they recompute instead, and the order of a
// row's reductions.
#include <stdlib.h>

#include "compile/schedule/fuse.h"

enum {
    MAX_REMAT_SOURCES = 8, // of a value that is recomputed
    SMALL_PART = 8,        // the part of a value that costs next to nothing to store and to read
};

static int finish_compare_units(const void *a, const void *b) {
    uint32_t x = ((const ct_unit *)a)->v.node->index, y = ((const ct_unit *)b)->v.node->index;
    return x < y ? -1 : x > y;
}

typedef struct {
    ct_fuser *f;
    const ct_group *g;
    int level;
} finish_level_env;
static bool finish_visit_level(void *env_, ct_val v, bool loaded) {
    finish_level_env *env = env_;
    if (loaded || !ct__is_reduced(v.node)) return true;
    const ct_unit *m = ct__fuse_find_unit(env->g, v);
    if (m && m->level + 1 > env->level) env->level = m->level + 1;
    return true;
}

// Adds a value that several loops of a row may use; nest.c finds out whether they do.
static bool finish_add_reused(ct_fuser *f, ct_group *g, const ct_unit *u) {
    if (!g->kept) g->kept = ct__arena(&f->s->arena, CT_MOST_KEPT * sizeof *g->kept);
    if (!g->kept) return ct__fuse_no_memory(f->s);
    g->kept[g->n_kept++] = *u;
    return true;
}

static bool finish_group(ct_fuser *f, ct_group *g) {
    ct_sched *s = f->s;
    if (g->n_units) qsort(g->units, g->n_units, sizeof *g->units, finish_compare_units);
    size_t n_units = 0;
    for (size_t i = 0; i < g->n_units; i++) {
        ct_unit u = g->units[i];
        ct_sval *val = ct__sval(s, u.v);
        u.store = val->stored;
        if (!u.store && !u.reduce) { // computed where it is used
            val->group = -1;
            const bool reuse = g->has_reduce && f->costs[u.v.node->index].expensive_per_lane &&
                               u.axes.node == u.v.node;
            if (reuse && g->n_kept < CT_MOST_KEPT && !finish_add_reused(f, g, &u)) return false;
            continue;
        }
        g->units[n_units++] = u;
    }
    g->n_units = n_units;
    if (n_units == 0 && !g->only) g->dead = true;
    for (size_t i = 0; i < n_units; i++) {
        ct_unit *u = &g->units[i];
        finish_level_env env = {f, g, 0};
        const ct_val *from = u->reduce ? u->v.node->in : &u->v;
        if (!ct__sched_walk(s, g->id, from, 1, finish_visit_level, &env)) return false;
        u->level = env.level;
    }
    for (int i = 0; i < g->n_kept; i++) {
        finish_level_env env = {f, g, 0};
        if (!ct__sched_walk(s, g->id, &g->kept[i].v, 1, finish_visit_level, &env)) return false;
        g->kept[i].level = env.level;
    }
    return true;
}

// ------------------------------------------------------------ what is recomputed instead of stored

// The sources from which a value is computed, and the work of computing it.
typedef struct {
    ct_val source[MAX_REMAT_SOURCES]; // (n)
    int n, work;
} finish_recipe;

static bool finish_find_recipe(ct_fuser *f, const ct_node *node, finish_recipe *r) {
    ct_sched *s = f->s;
    if (!ct__is_pointwise(node) || node->op->waits || ct__reads_memory(node)) return false;
    r->work += node->op->work ? node->op->work : 1;
    for (int i = 0; i < node->n_in; i++) {
        const ct_val v = node->in[i];
        if (s->stamp[v.node->index] == s->stamp_now) continue;
        s->stamp[v.node->index] = s->stamp_now;
        if (!ct__fuse_is_loaded(f, v.node)) {
            if (!finish_find_recipe(f, v.node, r)) return false;
        } else if (!ct__is_leaf(v.node) || ct__count(ct__type(v)) != 1 || ct__type(v)->dyn) {
            if (r->n == MAX_REMAT_SOURCES) return false;
            r->source[r->n++] = v;
        }
    }
    return true;
}

static bool finish_is_read_by(const ct_fuser *f, const ct_node *node, int32_t group) {
    for (size_t k = f->costs[node->index].newest_edge; k; k = f->edges[k - 1].older)
        if (f->s->vals[f->edges[k - 1].unit][0].group == group) return true;
    return false;
}

// True if a group can read the value's sources where it runs, without any of them living longer for it.
static bool finish_has_sources(const ct_fuser *f, const finish_recipe *r, int64_t bytes,
                               int32_t group) {
    for (int i = 0; i < r->n; i++) {
        const ct_val from = r->source[i];
        if (finish_is_read_by(f, from.node, group)) continue;
        if (ct__is_leaf(from.node) || !ct__sval(f->s, from)->stored ||
            ct__fuse_bytes(from) > bytes / SMALL_PART)
            return false;
    }
    return true;
}

// True if the unit at an edge can compute the value itself, within the limits of kernels.
static bool finish_can_recompute(const ct_fuser *f, const struct edge *edge,
                                 const finish_recipe *r) {
    const ct_fuse_cost *reader_cost = &f->costs[edge->unit], *c = &f->costs[edge->from->index];
    const ct_group *g = f->s->groups[f->s->vals[edge->unit][0].group];
    return edge->aligned && !(g->has_reduce && c->expensive) &&
           reader_cost->ops + c->ops <= CT_FUSE_MAX_OPS &&
           reader_cost->loads + c->loads <= CT_FUSE_MAX_LOADS &&
           reader_cost->depth + c->depth < CT_FUSE_MAX_DEPTH &&
           f->deps[g->id].depth + c->depth < CT_FUSE_MAX_GROUP_DEPTH &&
           f->deps[g->id].reads + (size_t)r->n <= CT_FUSE_MAX_READS &&
           finish_has_sources(f, r, ct__fuse_bytes((ct_val){edge->from, 0}), g->id);
}

// True if computing the value in each of its reader groups takes no longer than moving it: writing it,
// which reads the lines first, and reading it in each of these groups.
static bool finish_is_cheap(const ct_fuser *f, const ct_node *node, const finish_recipe *r,
                            int64_t readers) {
    const int64_t moved = (2 + readers) * ct_dtype_bits((ct_dtype)node->out->dtype) / 32;
    return r->work * readers <= moved * f->s->program->target.move_work;
}

static bool finish_recompute(ct_fuser *f, ct_node *node, const finish_recipe *r) {
    for (size_t k = f->costs[node->index].newest_edge, older; k; k = older) {
        const struct edge edge = f->edges[k - 1];
        ct_fuse_cost *reader_cost = &f->costs[edge.unit];
        const ct_fuse_cost *c = &f->costs[node->index];
        const int32_t group = f->s->vals[edge.unit][0].group;
        older = edge.older;
        reader_cost->ops += c->ops;
        reader_cost->loads += c->loads;
        reader_cost->expensive |= c->expensive;
        reader_cost->expensive_per_lane |= c->expensive_per_lane;
        if (reader_cost->depth <= c->depth) reader_cost->depth = c->depth + 1;
        f->deps[group].reads += (size_t)r->n;
        f->deps[group].depth += c->depth + 1;
        for (int i = 0; i < r->n; i++)
            if (!ct__fuse_add_edge(f, r->source[i].node, edge.unit,
                                   edge.aligned && ct__fuse_bytes(r->source[i]) >=
                                                       ct__fuse_bytes((ct_val){node, 0})))
                return false;
    }
    f->costs[node->index].unit = false;
    ct__sval(f->s, (ct_val){node, 0})->stored = false;
    return true;
}

// Recomputes a cheap value in the other groups that read it, where they read its sources anyway. So a
// gradient keeps what an activation is computed from, and no value in between. Such values are visited
// before those that are computed from them.
static bool finish_choose_recompute(ct_fuser *f, ct_node *node, const bool *pinned) {
    ct_sched *s = f->s;
    ct_sval *val = ct__sval(s, (ct_val){node, 0});
    int64_t readers = 0;
    finish_recipe r = {.n = 0};
    if (!f->costs[node->index].unit || f->costs[node->index].torn ||
        f->costs[node->index].avoids_division || !val->stored || pinned[node->index] ||
        node->n_out != 1 || ct__fuse_bytes((ct_val){node, 0}) < CT_FUSE_MIN_REMAT_BYTES)
        return true;
    s->stamp_now++;
    if (!finish_find_recipe(f, node, &r)) return true;
    for (size_t k = f->costs[node->index].newest_edge; k; k = f->edges[k - 1].older) {
        const struct edge *edge = &f->edges[k - 1];
        const int32_t group = s->vals[edge->unit][0].group;
        if (group == val->group) continue;
        if (!finish_can_recompute(f, edge, &r)) return true;
        size_t other = edge->older; // another edge of the group, which is counted already
        while (other && s->vals[f->edges[other - 1].unit][0].group != group)
            other = f->edges[other - 1].older;
        readers += !other;
    }
    return !readers || !finish_is_cheap(f, node, &r, readers) || finish_recompute(f, node, &r);
}

// Marks the values that must be in memory whatever reads them. pinned: (graph->n).
static void finish_mark_pinned(const ct_fuser *f, bool *pinned) {
    const ct_graph *g = f->s->graph;
    for (size_t r = 0; r < g->n_roots; r++) ct__sval(f->s, g->roots[r].val)->stored = true;
    for (size_t i = 0; i < g->n; i++) {
        pinned[i] |= ct__sval(f->s, (ct_val){g->nodes[i], 0})->stored; // templates read it, too
        if (ct__reads_memory(g->nodes[i])) pinned[g->nodes[i]->in[0].node->index] = true;
    }
}

static void finish_store_read_values(ct_fuser *f) {
    ct_sched *s = f->s;
    for (size_t i = 0; i < f->n_edges; i++) {
        ct_node *from = f->edges[i].from;
        if (!ct__is_leaf(from) &&
            s->vals[from->index][0].group != s->vals[f->edges[i].unit][0].group)
            s->vals[from->index][0].stored = true;
    }
}

bool ct__fuse_finish_groups(ct_fuser *f) {
    ct_sched *s = f->s;
    bool *pinned = ct__calloc(s->graph->n + 1, sizeof *pinned), ok = pinned != NULL;
    if (!ok) return ct__fuse_no_memory(s);
    finish_mark_pinned(f, pinned);
    finish_store_read_values(f);
    for (size_t i = 0; i < s->graph->n && ok && s->fuse; i++)
        ok = finish_choose_recompute(f, s->graph->nodes[i], pinned);
    ct__free(pinned);
    for (size_t i = 0; i < s->n_groups && ok; i++)
        if (!s->groups[i]->dead) ok = finish_group(f, s->groups[i]);
    return ok;
}
