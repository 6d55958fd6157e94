// Makes the launches of kernels from groups of values.
//
//   sizes     finds dynamic axes that have one size (sizes.c); before fusing, which needs it
//   buffers   allocates them; assignments write into their variable if no reader is disturbed
//   order     operands first; readers of a variable before the launch that overwrites it
//   kernels   the loops of each group (nest.c), or its template
#include "compile/passes/env.h"
#include "compile/schedule/sched.h"

#include <string.h>

static bool schedule_no_memory(ct_sched *s, size_t bytes) {
    return ct__err_memory(s->err, CT_NOWHERE, "plan", bytes);
}

static bool schedule_add_copy(ct_sched *s, uint32_t from, size_t offset, uint32_t to, int64_t bytes,
                              const ct_node *node) {
    return ct__program_copy(s->program, (ct_arg){.buf = from, .offset = offset},
                            (ct_arg){.buf = to}, node, bytes) ||
           schedule_no_memory(s, sizeof(ct_launch));
}

// ----------------------------------------------------------------------------------------- buffers

// Gives the buffer of its first root to each computed value; that of an assignment only if the value has no
// other root.
static bool schedule_alloc_roots(ct_sched *s) {
    const ct_graph *g = s->graph;
    for (int assigns = 0; assigns < 2; assigns++)
        for (size_t i = 0; i < g->n_roots; i++) {
            ct_val v = g->roots[i].val;
            ct_sval *val = ct__sval(s, v);
            bool assign = g->roots[i].kind == CT_ROOT_ASSIGN;
            if (assign != assigns || ct__is_leaf(v.node) || val->buf != UINT32_MAX) continue;
            val->buf = ct__sched_buf(s, (ct_buf){.kind = CT_BUF_ROOT,
                                                 .index = (uint32_t)i,
                                                 .size = ct__bytes_of(ct__type(v)),
                                                 .node = v.node});
            val->root = (int32_t)i;
            if (val->buf == UINT32_MAX) return false;
        }
    return true;
}

// Gives a buffer to each value that a group stores.
static bool schedule_alloc_stored(ct_sched *s) {
    for (size_t i = 0; i < s->graph->n; i++) {
        ct_node *node = s->graph->nodes[i];
        for (int o = 0; o < node->n_out; o++) {
            ct_sval *val = &s->vals[i][o];
            if (!val->stored || val->buf != UINT32_MAX || ct__is_leaf(node)) continue;
            val->buf = ct__sched_buf(
                s,
                (ct_buf){.kind = CT_BUF_TEMP, .size = ct__bytes_of(&node->out[o]), .node = node});
            if (val->buf == UINT32_MAX) return false;
        }
    }
    return true;
}

// Moves a value from its variable to a temporary buffer, which is copied to the variable at the end.
static bool schedule_move_to_temp(ct_sched *s, ct_sval *val, ct_node *node, uint32_t out) {
    val->root = -1;
    val->buf = ct__sched_buf(
        s, (ct_buf){.kind = CT_BUF_TEMP, .size = ct__bytes_of(&node->out[out]), .node = node});
    return val->buf != UINT32_MAX;
}

// ------------------------------------------------------------------------------------------- order

// The dependencies of a group.
typedef struct {
    int32_t *predecessors; // groups that must run before
    size_t n_predecessors, predecessors_cap;
    int64_t *leaves; // numbers of the leaves that it reads
    size_t n_leaves, leaves_cap;
    ct_sval **read; // computed values that it reads, each once
    int64_t *bytes; // (n_read) sizes of these
    size_t n_read, read_cap, bytes_cap;
    size_t n_pending;    // number of edges from groups that have not run
    int32_t *successors; // groups that must run after
    size_t n_successors, successors_cap;
    int64_t temp_bytes; // bytes of temporaries that it computes
    bool done;
} schedule_deps;
typedef struct {
    ct_sched *s;
    schedule_deps *deps;
    int32_t group;
} schedule_read_env;

static bool schedule_visit_read(void *env_, ct_val v, bool loaded) {
    schedule_read_env *env = env_;
    schedule_deps *x = &env->deps[env->group];
    if (!loaded) return true;
    if (ct__is_leaf(v.node)) {
        if (v.node->op == &ct__op_scalar || v.node->op == &ct__op_const) return true;
        if (!CT_GROW(x->leaves, x->leaves_cap, x->n_leaves + 1))
            return schedule_no_memory(env->s, 8);
        x->leaves[x->n_leaves++] = (int64_t)v.node->number;
        return true;
    }
    if (!CT_GROW(x->predecessors, x->predecessors_cap, x->n_predecessors + 1))
        return schedule_no_memory(env->s, 8);
    x->predecessors[x->n_predecessors++] = ct__sval(env->s, v)->group;
    if (!CT_GROW(x->read, x->read_cap, x->n_read + 1) ||
        !CT_GROW(x->bytes, x->bytes_cap, x->n_read + 1))
        return schedule_no_memory(env->s, 8);
    for (size_t i = 0; i < x->n_read; i++)
        if (x->read[i] == ct__sval(env->s, v)) return true;
    x->bytes[x->n_read] = (int64_t)ct__type_bytes(ct__type(v));
    x->read[x->n_read++] = ct__sval(env->s, v);
    return true;
}

static bool schedule_add_edge(ct_sched *s, schedule_deps *deps, int32_t before, int32_t after) {
    if (before == after) return true;
    schedule_deps *x = &deps[before];
    if (!CT_GROW(x->successors, x->successors_cap, x->n_successors + 1))
        return schedule_no_memory(s, 8);
    x->successors[x->n_successors++] = after;
    return true;
}

static size_t schedule_group_values(ct_group *g, ct_val *out) {
    size_t n = 0;
    for (uint32_t o = 0; g->only && o < g->only->n_out; o++) out[n++] = (ct_val){g->only, o};
    for (size_t i = 0; i < g->n_units; i++) out[n++] = g->units[i].v;
    return n;
}
static size_t schedule_max_values(const ct_group *g) {
    return g->n_units + (g->only ? g->only->n_out : 0u);
}

static bool schedule_build_deps(ct_sched *s, schedule_deps *deps) {
    ct_val *values = NULL;
    size_t cap = 0;
    bool ok = true;
    for (size_t i = 0; i < s->n_groups && ok; i++) {
        ct_group *g = s->groups[i];
        if (g->dead) continue;
        ok = CT_GROW(values, cap, schedule_max_values(g) + 1);
        schedule_read_env env = {s, deps, g->id};
        ok = ok && ct__sched_walk(s, g->id, values, schedule_group_values(g, values),
                                  schedule_visit_read, &env);
        for (size_t k = 0; k < deps[i].n_predecessors && ok; k++)
            ok = schedule_add_edge(s, deps, deps[i].predecessors[k], (int32_t)i);
    }
    ct__free(values);
    return ok;
}

static bool schedule_reads_leaf(const schedule_deps *x, int64_t leaf) {
    for (size_t i = 0; i < x->n_leaves; i++)
        if (x->leaves[i] == leaf) return true;
    return false;
}

// True if the group may end the run: a loop that has no other end, or a call, which may fail.
static bool schedule_can_end_run(const ct_group *g) {
    return g->only && (ct__is_loop(g->only) || ct__is_called(g->only));
}

// Marks the groups that run after a group: (n_groups) flags, and scratch for as many numbers.
static void schedule_mark_successors(const ct_sched *s, const schedule_deps *deps, int32_t group,
                                     bool *later, int32_t *stack) {
    size_t n = 0;
    memset(later, 0, s->n_groups);
    stack[n++] = group;
    later[group] = true;
    while (n > 0) {
        const schedule_deps *x = &deps[stack[--n]];
        for (size_t k = 0; k < x->n_successors; k++) {
            if (later[x->successors[k]]) continue;
            later[x->successors[k]] = true;
            stack[n++] = x->successors[k];
        }
    }
}

// Orders the groups that may end the run before a group that writes into its variable, since a run may end
// early only while no variable has changed. *in_place: that is possible; else the value has to be written
// elsewhere.
static bool schedule_order_run_ends(ct_sched *s, schedule_deps *deps, int32_t writer,
                                    bool *in_place) {
    size_t n_ends = 0;
    *in_place = true;
    for (size_t i = 0; i < s->n_groups; i++) n_ends += schedule_can_end_run(s->groups[i]);
    if (!n_ends || s->graph->is_body) return true; // a body changes no variable
    bool *later = ct__malloc(s->n_groups * sizeof *later);
    int32_t *stack = ct__malloc(s->n_groups * sizeof *stack);
    bool ok = later && stack ? true : schedule_no_memory(s, s->n_groups * sizeof *stack);
    if (ok) schedule_mark_successors(s, deps, writer, later, stack);
    for (size_t i = 0; i < s->n_groups && ok; i++)
        *in_place = *in_place && !(schedule_can_end_run(s->groups[i]) && later[i]);
    for (size_t i = 0; i < s->n_groups && ok && *in_place; i++)
        if (schedule_can_end_run(s->groups[i])) ok = schedule_add_edge(s, deps, (int32_t)i, writer);
    ct__free(later);
    ct__free(stack);
    return ok;
}

static bool schedule_is_other_leaf(void *leaf, ct_val v, bool loaded) {
    return !loaded || v.node->op != &ct__op_data || (int64_t)v.node->number != *(int64_t *)leaf;
}
// True if a template itself reads the leaf, rather than its epilogue.
static bool schedule_template_reads(ct_sched *s, const ct_group *g, int64_t leaf) {
    return !ct__sched_walk(s, g->id, &(ct_val){g->only, 0}, 1, schedule_is_other_leaf, &leaf);
}

bool ct__sched_changes(const ct_sched *s, const ct_node *node) {
    const int32_t r = ct__sval(s, (ct_val){(ct_node *)node, 0})->root;
    const struct ct_graph_root *root = r >= 0 ? &s->graph->roots[r] : NULL;
    const ct_node *x = node->in[0].node;
    return root && root->kind == CT_ROOT_ASSIGN && root->leaf >= 0 && !s->graph->is_body &&
           node->op->kind->changes_operand && x->op == &ct__op_data &&
           (int64_t)x->number == root->leaf;
}

// True if the template reads the leaf as its operand 0 alone, and keeps the elements that it does not
// change.
static bool schedule_updates_in_place(ct_sched *s, const ct_group *g, int64_t leaf) {
    ct_val more[8];
    size_t n = 0;
    if (!g->only || g->n_units || g->only->n_in > 8 || !ct__sched_changes(s, g->only)) return false;
    for (int i = 1; i < g->only->n_in; i++) {
        const ct_val v = g->only->in[i];
        if (v.node == g->only->in[0].node) return false;
        if (ct__sval(s, v)->group < 0 || ct__sval(s, v)->group == g->id) more[n++] = v;
    }
    return ct__sched_walk(s, g->id, more, n, schedule_is_other_leaf, &leaf);
}

// For assignments in place, orders the groups that may end the run, and all other readers of the old value,
// before the writer.
static bool schedule_protect_leaves(ct_sched *s, schedule_deps *deps) {
    for (size_t r = 0; r < s->graph->n_roots; r++) {
        const struct ct_graph_root *root = &s->graph->roots[r];
        ct_sval *val = ct__sval(s, root->val);
        if (root->kind != CT_ROOT_ASSIGN || val->root != (int32_t)r) continue;
        ct_group *writer = s->groups[val->group];
        bool in_place;
        if (!schedule_order_run_ends(s, deps, val->group, &in_place)) return false;
        // A template's operands, or rows that are read more than once, could read what the group has
        // overwritten.
        if (root->leaf >= 0 && schedule_reads_leaf(&deps[val->group], root->leaf) &&
            (writer->has_reduce ||
             (writer->only && schedule_template_reads(s, writer, root->leaf) &&
              !schedule_updates_in_place(s, writer, root->leaf))))
            in_place = false;
        if (!in_place) {
            if (!schedule_move_to_temp(s, val, root->val.node, root->val.out)) return false;
            continue;
        }
        for (size_t i = 0; i < s->n_groups && root->leaf >= 0; i++)
            if (!s->groups[i]->dead && schedule_reads_leaf(&deps[i], root->leaf) &&
                !schedule_add_edge(s, deps, (int32_t)i, val->group))
                return false;
    }
    return true;
}

// Breaks a cycle of readers and writers: the writers write into temporary buffers instead.
static bool schedule_break_cycle(ct_sched *s, schedule_deps *deps) {
    bool found = false;
    for (size_t r = 0; r < s->graph->n_roots; r++) {
        const struct ct_graph_root *root = &s->graph->roots[r];
        ct_sval *val = ct__sval(s, root->val);
        if (root->kind != CT_ROOT_ASSIGN || val->root != (int32_t)r || root->leaf < 0) continue;
        int32_t writer = val->group;
        if (deps[writer].done || s->groups[writer]->order >= 0) continue;
        size_t n_removed = 0;
        for (size_t i = 0; i < s->n_groups; i++) {
            if (s->groups[i]->dead || (int32_t)i == writer ||
                !schedule_reads_leaf(&deps[i], root->leaf))
                continue;
            if (deps[i].done) continue;
            // One of the edges i -> writer was added for this leaf.
            for (size_t k = 0; k < deps[i].n_successors; k++)
                if (deps[i].successors[k] == writer) {
                    bool needed = false;
                    for (size_t m = 0; m < deps[writer].n_predecessors; m++)
                        needed |= deps[writer].predecessors[m] == (int32_t)i;
                    if (needed) continue;
                    deps[i].successors[k] = deps[i].successors[--deps[i].n_successors];
                    deps[writer].n_pending--;
                    n_removed++;
                    break;
                }
        }
        if (!n_removed) continue;
        found = true;
        if (!schedule_move_to_temp(s, val, root->val.node, root->val.out)) return false;
    }
    return found ||
           ct__err(s->err, CT_E_INTERNAL, CT_NOWHERE, "plan", "its kernels depend on each other");
}

// Returns the bytes of temporaries that a group computes.
static int64_t schedule_count_temp_bytes(ct_sched *s, ct_group *g) {
    int64_t bytes = 0;
    for (uint32_t o = 0; g->only && o < g->only->n_out; o++) {
        const ct_sval *val = &s->vals[g->only->index][o];
        if (val->stored && val->root < 0) bytes += (int64_t)ct__type_bytes(&g->only->out[o]);
    }
    for (size_t i = 0; i < g->n_units; i++) {
        const ct_sval *val = ct__sval(s, g->units[i].v);
        if (val->stored && val->root < 0) bytes += (int64_t)ct__type_bytes(ct__type(g->units[i].v));
    }
    return bytes;
}

// Returns the number of bytes that a group frees beyond those that it computes.
static int64_t schedule_count_gain(const schedule_deps *x, int64_t *read) {
    int64_t freed = 0;
    *read = 0;
    for (size_t k = 0; k < x->n_read; k++) {
        if (x->read[k]->root >= 0) continue;
        *read += x->bytes[k];
        if (x->read[k]->readers == 1) freed += x->bytes[k];
    }
    return freed - x->temp_bytes;
}

// True if the group frees memory, or computes so little that other groups may free memory after it.
static bool schedule_frees_memory(const schedule_deps *x, int64_t *gain) {
    // such as a sum over rows, which must be computed before the rows can be freed
    enum { FEW = 8 };
    int64_t read;
    *gain = schedule_count_gain(x, &read);
    return *gain >= 0 || x->temp_bytes * FEW <= read;
}

// A heap of groups that can run next. On top is the best one: the largest gain, then the first in the
// graph.
typedef struct {
    int64_t gain;
    int32_t group;
} schedule_candidate;
typedef struct {
    schedule_candidate *v;
    size_t n, cap;
} schedule_heap;
static bool schedule_is_better(schedule_candidate a, schedule_candidate b) {
    return a.gain != b.gain ? a.gain > b.gain : a.group < b.group;
}
static bool schedule_heap_push(schedule_heap *h, schedule_candidate c) {
    if (!CT_GROW(h->v, h->cap, h->n + 1)) return false;
    size_t i = h->n++;
    for (; i && schedule_is_better(c, h->v[(i - 1) / 2]); i = (i - 1) / 2)
        h->v[i] = h->v[(i - 1) / 2];
    h->v[i] = c;
    return true;
}
static schedule_candidate schedule_heap_pop(schedule_heap *h) {
    const schedule_candidate top = h->v[0], last = h->v[--h->n];
    size_t i = 0;
    for (size_t c; (c = 2 * i + 1) < h->n; i = c) {
        c += c + 1 < h->n && schedule_is_better(h->v[c + 1], h->v[c]);
        if (!schedule_is_better(h->v[c], last)) break;
        h->v[i] = h->v[c];
    }
    h->v[i] = last;
    return top;
}

typedef struct {
    ct_sched *s;
    schedule_deps *deps;
    // groups that free memory, by their gain; all groups, by their position in the graph
    schedule_heap freeing, ready;
    ct_group **sorted; // (n)
    size_t n;
    bool saves_memory, failed;
    int64_t live, peak; // bytes of temporaries
} schedule_order;

// Pushes a group that can run now, or (is_known) whose gain has grown.
static void schedule_push_ready(schedule_order *o, int32_t group, bool is_known) {
    schedule_deps *x = &o->deps[group];
    int64_t gain;
    if (x->done || x->n_pending) return;
    if (!is_known && !schedule_heap_push(&o->ready, (schedule_candidate){0, group}))
        o->failed = true;
    if (o->saves_memory && schedule_frees_memory(x, &gain) &&
        !schedule_heap_push(&o->freeing, (schedule_candidate){gain, group}))
        o->failed = true;
}

static void schedule_run_group(schedule_order *o, int32_t group) {
    schedule_deps *x = &o->deps[group];
    x->done = true;
    o->s->groups[group]->order = (int)o->n;
    o->sorted[o->n++] = o->s->groups[group];
    o->live += x->temp_bytes;
    if (o->live > o->peak) o->peak = o->live;
    for (size_t k = 0; k < x->n_read; k++) {
        ct_sval *val = x->read[k];
        val->last_readers ^= (uint32_t)group;
        if (--val->readers == 0 && val->root < 0) o->live -= x->bytes[k];
        // that group would free it
        if (val->readers == 1) schedule_push_ready(o, (int32_t)val->last_readers, true);
    }
    for (size_t k = 0; k < x->n_successors; k++) {
        schedule_deps *next = &o->deps[x->successors[k]];
        if (--next->n_pending == 0) schedule_push_ready(o, x->successors[k], false);
    }
}

static void schedule_push_all_ready(schedule_order *o) {
    for (size_t i = 0; i < o->s->n_groups; i++)
        if (!o->s->groups[i]->dead) schedule_push_ready(o, (int32_t)i, false);
}

static void schedule_begin_order(schedule_order *o, size_t *live) {
    o->n = o->freeing.n = o->ready.n = 0;
    o->live = o->peak = 0;
    *live = 0;
    for (size_t i = 0; i < o->s->n_groups; i++) {
        schedule_deps *x = &o->deps[i];
        o->s->groups[i]->order = -1;
        x->n_pending = 0;
        x->done = false;
        for (size_t k = 0; k < x->n_read; k++) x->read[k]->readers = x->read[k]->last_readers = 0;
    }
    for (size_t i = 0; i < o->s->n_groups; i++) {
        const schedule_deps *x = &o->deps[i];
        if (o->s->groups[i]->dead) continue;
        ++*live;
        for (size_t k = 0; k < x->n_successors; k++) o->deps[x->successors[k]].n_pending++;
        for (size_t k = 0; k < x->n_read; k++) {
            x->read[k]->readers++;
            x->read[k]->last_readers ^= (uint32_t)i;
        }
    }
    for (size_t i = 0; i < o->s->n_groups; i++)
        if (!o->s->groups[i]->dead)
            o->deps[i].temp_bytes = schedule_count_temp_bytes(o->s, o->s->groups[i]);
    schedule_push_all_ready(o);
}

// Returns the next group; saves_memory: the one with the largest gain, if any group frees memory. -1: none
// can run.
static int32_t schedule_next_group(schedule_order *o) {
    while (o->freeing.n || o->ready.n) {
        const int32_t group = schedule_heap_pop(o->freeing.n ? &o->freeing : &o->ready).group;
        if (!o->deps[group].done) return group; // else it was pushed twice
    }
    return -1;
}

static bool schedule_sort(schedule_order *o, bool saves_memory) {
    size_t live;
    o->saves_memory = saves_memory;
    schedule_begin_order(o, &live);
    while (o->n < live && !o->failed) {
        const int32_t group = schedule_next_group(o);
        if (group >= 0)
            schedule_run_group(o, group);
        else if (!schedule_break_cycle(o->s, o->deps))
            return false;
        else
            schedule_push_all_ready(o);
    }
    return !o->failed || schedule_no_memory(o->s, o->s->n_groups * sizeof *o->freeing.v);
}

// Orders the groups as in the graph, unless the memory is notably lower if groups that free memory run as
// early as possible: the gradient of a weight before that of the preceding layer, a loss before the
// gradients that need only its rows' results.
static bool schedule_order_groups(ct_sched *s, schedule_deps *deps, ct_group **sorted,
                                  size_t *n_sorted) {
    enum { NOTABLE = 64 };
    schedule_order o = {.s = s, .deps = deps, .sorted = sorted};
    bool ok = schedule_sort(&o, false);
    const int64_t peak = o.peak;
    ok = ok && schedule_sort(&o, true);
    if (ok && o.peak > peak - peak / NOTABLE) ok = schedule_sort(&o, false);
    *n_sorted = o.n;
    ct__free(o.freeing.v);
    ct__free(o.ready.v);
    return ok;
}

// --------------------------------------------------------------------- roots that no kernel writes

static bool schedule_is_assigned_leaf(const ct_sched *s, ct_val v) {
    if (v.node->op != &ct__op_data) return false;
    for (size_t r = 0; r < s->graph->n_roots; r++)
        if (s->graph->roots[r].kind == CT_ROOT_ASSIGN &&
            s->graph->roots[r].leaf == (int32_t)v.node->number)
            return true;
    return false;
}

// Copies, before all kernels, the roots that are leaves, and the leaves that are assigned elsewhere and
// will be overwritten.
static bool schedule_copy_leaves(ct_sched *s, uint32_t *leaf_copies) {
    for (size_t r = 0; r < s->graph->n_roots; r++) {
        ct_val v = s->graph->roots[r].val;
        const ct_sval *val = ct__sval(s, v);
        int64_t bytes = ct__bytes_of(ct__type(v));
        bool assign = s->graph->roots[r].kind == CT_ROOT_ASSIGN;
        leaf_copies[r] = UINT32_MAX;
        if (ct__is_leaf(v.node) && !ct__sched_place_leaf(s, v.node)) return false;
        if (!ct__is_leaf(v.node) || (assign && !schedule_is_assigned_leaf(s, v))) continue;
        ct_buf to = {.kind = CT_BUF_ROOT, .index = (uint32_t)r, .size = bytes, .node = v.node};
        if (assign) to.kind = CT_BUF_TEMP;
        leaf_copies[r] = ct__sched_buf(s, to);
        if (leaf_copies[r] == UINT32_MAX ||
            !schedule_add_copy(s, val->buf, val->offset, leaf_copies[r], bytes, v.node))
            return false;
    }
    return true;
}

// Copies, after all kernels, the remaining roots.
static bool schedule_copy_roots(ct_sched *s, const uint32_t *leaf_copies) {
    for (int assigns = 0; assigns < 2; assigns++)
        for (size_t r = 0; r < s->graph->n_roots; r++) {
            ct_val v = s->graph->roots[r].val;
            const ct_sval *val = ct__sval(s, v);
            bool assign = s->graph->roots[r].kind == CT_ROOT_ASSIGN;
            if (assign != assigns || val->root == (int32_t)r) continue;
            if (!assign && leaf_copies[r] != UINT32_MAX) continue;
            int64_t bytes = ct__bytes_of(ct__type(v));
            uint32_t from = leaf_copies[r] != UINT32_MAX ? leaf_copies[r] : val->buf;
            uint32_t to = ct__sched_buf(
                s,
                (ct_buf){.kind = CT_BUF_ROOT, .index = (uint32_t)r, .size = bytes, .node = v.node});
            size_t offset = leaf_copies[r] != UINT32_MAX ? 0 : val->offset;
            if (to == UINT32_MAX || !schedule_add_copy(s, from, offset, to, bytes, v.node))
                return false;
        }
    return true;
}

// ----------------------------------------------------------------------------------------- kernels

// True if the value has no elements in any run of the plan. A dynamic size that is broadcast with a size of
// 0 is 0, too.
static bool schedule_is_always_empty(ct_sched *s, ct_val v) {
    for (int a = 0; a < ct__type(v)->rank; a++)
        if (ct__sched_size(s, v, a).coef == 0) return true;
    return false;
}
// nothing to write for any length
static bool schedule_is_group_empty(ct_sched *s, const ct_group *g) {
    for (int o = 0; g->only && o < g->only->n_out; o++)
        if (!schedule_is_always_empty(s, (ct_val){g->only, (uint32_t)o})) return false;
    for (size_t i = 0; i < g->n_units; i++)
        if (g->units[i].store && !schedule_is_always_empty(s, g->units[i].v)) return false;
    return true;
}

bool ct__sched_emit(ct_sched *s, ct_group *g) {
    return g->only ? g->only->op->kind->kernels(s, g->only) : ct__emit_group(s, g);
}

static bool schedule_emit_group(ct_sched *s, ct_group *g) {
    if (g->only && ct__is_loop(g->only)) return ct__sched_loop(s, g->only);
    if (g->only && ct__is_called(g->only)) return ct__sched_call(s, g->only);
    if (schedule_is_group_empty(s, g)) return true;
    const size_t before = s->program->n_launches;
    bool done;
    s->conflict = false;
    if (!ct__sched_again(s, g, &done)) return false;
    if (done) return true;
    if (!ct__sched_emit_first(s, g)) return false;
    if (!s->conflict) return true;
    s->program->n_launches = before;
    // The kernel reads a variable elsewhere than it writes it.
    for (size_t i = 0; i < g->n_units; i++) {
        ct_sval *val = ct__sval(s, g->units[i].v);
        if (val->root >= 0 && s->graph->roots[val->root].kind == CT_ROOT_ASSIGN &&
            !schedule_move_to_temp(s, val, g->units[i].v.node, g->units[i].v.out))
            return false;
    }
    s->conflict = false;
    return ct__sched_emit(s, g);
}

// Finds the buffers that are read for the last time by the group. A root's value is copied at the end, so
// it is no such buffer.
static bool schedule_find_dying(ct_sched *s, const schedule_deps *x) {
    s->n_dying = 0;
    for (size_t k = 0; k < x->n_read; k++) {
        if (--x->read[k]->readers) continue;
        if (!CT_GROW(s->dying, s->dying_cap, s->n_dying + 1)) return schedule_no_memory(s, 8);
        s->dying[s->n_dying++] = x->read[k]->buf;
    }
    return true;
}

static bool schedule_emit_groups(ct_sched *s, const schedule_deps *deps, ct_group *const *sorted,
                                 size_t n) {
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < deps[sorted[i]->id].n_read; k++)
            deps[sorted[i]->id].read[k]->readers++;
    for (size_t r = 0; r < s->graph->n_roots; r++) ct__sval(s, s->graph->roots[r].val)->readers++;
    for (size_t i = 0; i < n; i++)
        if (!schedule_find_dying(s, &deps[sorted[i]->id]) || !schedule_emit_group(s, sorted[i]))
            return false;
    return true;
}

static bool schedule_write(ct_sched *s, schedule_deps *deps, ct_group **sorted,
                           uint32_t *leaf_copies) {
    size_t n = 0;
    return schedule_build_deps(s, deps) && schedule_protect_leaves(s, deps) &&
           schedule_order_groups(s, deps, sorted, &n) && schedule_copy_leaves(s, leaf_copies) &&
           schedule_emit_groups(s, deps, sorted, n) && schedule_copy_roots(s, leaf_copies);
}

static bool schedule_run(ct_sched *s) {
    size_t n = s->n_groups;
    schedule_deps *deps = ct__calloc(n + 1, sizeof *deps);
    ct_group **sorted = ct__calloc(n + 1, sizeof *sorted);
    uint32_t *leaf_copies = ct__malloc((s->graph->n_roots + 1) * sizeof *leaf_copies);
    bool ok = deps && sorted && leaf_copies ? schedule_write(s, deps, sorted, leaf_copies)
                                            : schedule_no_memory(s, (n + 1) * sizeof *deps);
    for (size_t i = 0; i < n && deps; i++) {
        ct__free(deps[i].predecessors);
        ct__free(deps[i].leaves);
        ct__free(deps[i].read);
        ct__free(deps[i].bytes);
        ct__free(deps[i].successors);
    }
    ct__free(deps);
    ct__free(sorted);
    ct__free(leaf_copies);
    return ok;
}

static bool schedule_prepare(ct_sched *s) {
    const ct_graph *g = s->graph;
    size_t n = g->n + 1;
    s->vals = ct__arena_zero(&s->arena, n * sizeof *s->vals);
    s->stamp = ct__arena_zero(&s->arena, n * sizeof *s->stamp);
    s->leaf_buf = ct__arena(&s->arena, (g->n_leaves + 1) * sizeof *s->leaf_buf);
    if (!s->vals || !s->stamp || !s->leaf_buf) return schedule_no_memory(s, n * sizeof *s->vals);
    for (size_t i = 0; i < g->n_leaves; i++) s->leaf_buf[i] = UINT32_MAX;
    for (size_t i = 0; i < g->n; i++) {
        ct_node *node = g->nodes[i];
        node->index = (uint32_t)i;
        s->vals[i] = ct__arena_zero(&s->arena, (node->n_out + 1u) * sizeof **s->vals);
        if (!s->vals[i]) return schedule_no_memory(s, sizeof **s->vals);
        for (int o = 0; o < node->n_out; o++)
            s->vals[i][o] = (ct_sval){.buf = UINT32_MAX, .group = -1, .root = -1};
        if ((ct__is_pointwise(node) && !node->op->emit) ||
            (ct__is_reduced(node) && !node->op->reduction))
            return ct__err(s->err, CT_E_INTERNAL, node->here, node->op->name,
                           "it does not define how kernels compute it");
        // Constants of one element are literals, which get a buffer only when something needs one.
        bool literal = node->op == &ct__op_const && ct__count(node->out) == 1;
        if (ct__is_leaf(node) && !literal && !ct__sched_place_leaf(s, node)) return false;
    }
    return ct__sched_sizes(s) || schedule_no_memory(s, sizeof(ct_extent));
}

ct_sched *ct__sched_new(const ct_graph *graph, ct_program *program, ct_err *err) {
    ct_sched *s = ct__calloc(1, sizeof *s);
    if (!s) return ct__null_memory(err, CT_NOWHERE, "plan", sizeof *s);
    s->graph = graph;
    s->program = program;
    s->err = err;
    s->scalars_buf = UINT32_MAX;
    s->fuse = ct__env_fuses();
    if (schedule_prepare(s)) return s;
    ct__sched_free(s);
    return NULL;
}

bool ct__schedule(ct_sched *s) {
    return schedule_alloc_roots(s) && schedule_alloc_stored(s) && schedule_run(s) && !s->err->code;
}

void ct__sched_free(ct_sched *s) {
    if (!s) return;
    for (size_t i = 0; i < s->n_groups; i++) ct__free(s->groups[i]->units);
    ct__free(s->groups);
    ct__free(s->sym_value);
    ct__free(s->sym_atom);
    ct__free(s->stack);
    ct__free(s->dying);
    ct__sched_again_free(s->again);
    ct__arena_free(&s->arena);
    ct__free(s);
}
