// From groups of values to launches of kernels.
//
//   sizes     which dynamic axes have one size (sizes.c); before fusing, which asks for it
//   places    buffers; assignments straight into their variable where nobody is disturbed
//   order     operands first; readers of a variable before the launch that overwrites it
//   kernels   the loops of each group (nest.c), or its template
#include "compile/passes/env.h"
#include "compile/schedule/sched.h"

#include <stdlib.h>
#include <string.h>

static bool no_memory(ct_sched *s, size_t bytes) {
    return ct__err_memory(s->err, CT_NOWHERE, "plan", bytes);
}

static bool add_copy(ct_sched *s, uint32_t from, size_t offset, uint32_t to, int64_t bytes,
                     const ct_node *node) {
    return ct__program_copy(s->program, (ct_arg){.buf = from, .offset = offset},
                            (ct_arg){.buf = to}, node, bytes) ||
           no_memory(s, sizeof(ct_launch));
}

// ------------------------------------------------------------------------------------------ places

// The first root of a computed value gives its buffer; an assignment does when no other root can.
static bool place_roots(ct_sched *s) {
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

// Whatever a group stores has a buffer.
static bool place_stored(ct_sched *s) {
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

// The value no longer lies in its variable: it is copied there at the end.
static bool displace(ct_sched *s, ct_sval *val, ct_node *node, uint32_t out) {
    val->root = -1;
    val->buf = ct__sched_buf(
        s, (ct_buf){.kind = CT_BUF_TEMP, .size = ct__bytes_of(&node->out[out]), .node = node});
    return val->buf != UINT32_MAX;
}

// ------------------------------------------------------------------------------------------- order

// What a group needs and disturbs.
typedef struct {
    int32_t *needs; // groups that must run before
    size_t n_needs, needs_cap;
    int64_t *leaves; // numbers of the leaves that it reads
    size_t n_leaves, leaves_cap;
    ct_sval **read; // computed values that it reads, each once
    int64_t *bytes; // (n_read) of these
    size_t n_read, read_cap, bytes_cap;
    size_t waits;   // how many of its `before` edges have not run
    int32_t *after; // groups that wait for it
    size_t n_after, after_cap;
    int64_t made; // bytes of temporaries that it makes
    bool done;
} edges;
typedef struct {
    ct_sched *s;
    edges *of;
    int32_t group;
} order_env;

static bool note_read(void *env_, ct_val v, bool loaded) {
    order_env *env = env_;
    edges *x = &env->of[env->group];
    if (!loaded) return true;
    if (ct__is_leaf(v.node)) {
        if (v.node->op == &ct__op_scalar || v.node->op == &ct__op_const) return true;
        if (!CT_GROW(x->leaves, x->leaves_cap, x->n_leaves + 1)) return no_memory(env->s, 8);
        x->leaves[x->n_leaves++] = (int64_t)v.node->number;
        return true;
    }
    if (!CT_GROW(x->needs, x->needs_cap, x->n_needs + 1)) return no_memory(env->s, 8);
    x->needs[x->n_needs++] = ct__sval(env->s, v)->group;
    if (!CT_GROW(x->read, x->read_cap, x->n_read + 1) ||
        !CT_GROW(x->bytes, x->bytes_cap, x->n_read + 1))
        return no_memory(env->s, 8);
    for (size_t i = 0; i < x->n_read; i++)
        if (x->read[i] == ct__sval(env->s, v)) return true;
    x->bytes[x->n_read] = (int64_t)ct__type_bytes(ct__type(v));
    x->read[x->n_read++] = ct__sval(env->s, v);
    return true;
}

static bool add_edge(ct_sched *s, edges *of, int32_t before, int32_t after) {
    if (before == after) return true;
    edges *x = &of[before];
    if (!CT_GROW(x->after, x->after_cap, x->n_after + 1)) return no_memory(s, 8);
    x->after[x->n_after++] = after;
    return true;
}

static size_t group_values(ct_group *g, ct_val *out) {
    size_t n = 0;
    for (uint32_t o = 0; g->only && o < g->only->n_out; o++) out[n++] = (ct_val){g->only, o};
    for (size_t i = 0; i < g->n_units; i++) out[n++] = g->units[i].v;
    return n;
}
static size_t most_values(const ct_group *g) {
    return g->n_units + (g->only ? g->only->n_out : 0u);
}

static bool build_edges(ct_sched *s, edges *of) {
    ct_val *values = NULL;
    size_t cap = 0;
    bool ok = true;
    for (size_t i = 0; i < s->n_groups && ok; i++) {
        ct_group *g = s->groups[i];
        if (g->dead) continue;
        ok = CT_GROW(values, cap, most_values(g) + 1);
        order_env env = {s, of, g->id};
        ok = ok && ct__sched_walk(s, g->id, values, group_values(g, values), note_read, &env);
        for (size_t k = 0; k < of[i].n_needs && ok; k++)
            ok = add_edge(s, of, of[i].needs[k], (int32_t)i);
    }
    ct__free(values);
    return ok;
}

static bool reads(const edges *x, int64_t leaf) {
    for (size_t i = 0; i < x->n_leaves; i++)
        if (x->leaves[i] == leaf) return true;
    return false;
}

// May it end the run: a loop that has no other end, or a call that finds what it cannot do?
static bool may_end_run(const ct_group *g) {
    return g->only && (ct__is_loop(g->only) || ct__is_called(g->only));
}

// Marks what runs behind a group: (n_groups) flags, and room for as many numbers.
static void mark_later(const ct_sched *s, const edges *of, int32_t group, bool *later,
                       int32_t *stack) {
    size_t n = 0;
    memset(later, 0, s->n_groups);
    stack[n++] = group;
    later[group] = true;
    while (n > 0) {
        const edges *x = &of[stack[--n]];
        for (size_t k = 0; k < x->n_after; k++) {
            if (later[x->after[k]]) continue;
            later[x->after[k]] = true;
            stack[n++] = x->after[k];
        }
    }
}

// A run is given up only while no variable has changed: what may end it comes before the group that
// makes a value in its variable. `can`: it does; else the value is made elsewhere.
static bool run_ends_before(ct_sched *s, edges *of, int32_t writer, bool *can) {
    size_t ends = 0;
    *can = true;
    for (size_t i = 0; i < s->n_groups; i++) ends += may_end_run(s->groups[i]);
    if (!ends || s->graph->is_body) return true; // a body changes no variable
    bool *later = ct__malloc(s->n_groups * sizeof *later);
    int32_t *stack = ct__malloc(s->n_groups * sizeof *stack);
    bool ok = later && stack ? true : no_memory(s, s->n_groups * sizeof *stack);
    if (ok) mark_later(s, of, writer, later, stack);
    for (size_t i = 0; i < s->n_groups && ok; i++)
        *can = *can && !(may_end_run(s->groups[i]) && later[i]);
    for (size_t i = 0; i < s->n_groups && ok && *can; i++)
        if (may_end_run(s->groups[i])) ok = add_edge(s, of, (int32_t)i, writer);
    ct__free(later);
    ct__free(stack);
    return ok;
}

static bool is_another(void *leaf, ct_val v, bool loaded) {
    return !loaded || v.node->op != &ct__op_data || (int64_t)v.node->number != *(int64_t *)leaf;
}
// Does a template itself read the leaf, rather than what is computed behind it?
static bool operands_read(ct_sched *s, const ct_group *g, int64_t leaf) {
    return !ct__sched_walk(s, g->id, &(ct_val){g->only, 0}, 1, is_another, &leaf);
}

bool ct__sched_changes(const ct_sched *s, const ct_node *node) {
    const int32_t r = ct__sval(s, (ct_val){(ct_node *)node, 0})->root;
    const struct ct_graph_root *root = r >= 0 ? &s->graph->roots[r] : NULL;
    const ct_node *x = node->in[0].node;
    return root && root->kind == CT_ROOT_ASSIGN && root->leaf >= 0 && !s->graph->is_body &&
           node->op->kind->changes_operand && x->op == &ct__op_data &&
           (int64_t)x->number == root->leaf;
}

// It reads the leaf as its operand 0 alone, of which it keeps what it does not change.
static bool changes_leaf(ct_sched *s, const ct_group *g, int64_t leaf) {
    ct_val more[8];
    size_t n = 0;
    if (!g->only || g->n_units || g->only->n_in > 8 || !ct__sched_changes(s, g->only)) return false;
    for (int i = 1; i < g->only->n_in; i++) {
        const ct_val v = g->only->in[i];
        if (v.node == g->only->in[0].node) return false;
        if (ct__sval(s, v)->group < 0 || ct__sval(s, v)->group == g->id) more[n++] = v;
    }
    return ct__sched_walk(s, g->id, more, n, is_another, &leaf);
}

// Assignments in place: what may end the run, and all other readers of the old version, come first.
static bool protect_leaves(ct_sched *s, edges *of) {
    for (size_t r = 0; r < s->graph->n_roots; r++) {
        const struct ct_graph_root *root = &s->graph->roots[r];
        ct_sval *val = ct__sval(s, root->val);
        if (root->kind != CT_ROOT_ASSIGN || val->root != (int32_t)r) continue;
        ct_group *writer = s->groups[val->group];
        bool in_place;
        if (!run_ends_before(s, of, val->group, &in_place)) return false;
        // A template's operands, or rows read more than once, could meet what it has overwritten.
        if (root->leaf >= 0 && reads(&of[val->group], root->leaf) &&
            (writer->has_reduce || (writer->only && operands_read(s, writer, root->leaf) &&
                                    !changes_leaf(s, writer, root->leaf))))
            in_place = false;
        if (!in_place) {
            if (!displace(s, val, root->val.node, root->val.out)) return false;
            continue;
        }
        for (size_t i = 0; i < s->n_groups && root->leaf >= 0; i++)
            if (!s->groups[i]->dead && reads(&of[i], root->leaf) &&
                !add_edge(s, of, (int32_t)i, val->group))
                return false;
    }
    return true;
}

// Where readers and writers wait for each other, writers give up their place.
static bool break_cycle(ct_sched *s, edges *of) {
    bool found = false;
    for (size_t r = 0; r < s->graph->n_roots; r++) {
        const struct ct_graph_root *root = &s->graph->roots[r];
        ct_sval *val = ct__sval(s, root->val);
        if (root->kind != CT_ROOT_ASSIGN || val->root != (int32_t)r || root->leaf < 0) continue;
        int32_t writer = val->group;
        if (of[writer].done || s->groups[writer]->order >= 0) continue;
        size_t waited = 0;
        for (size_t i = 0; i < s->n_groups; i++) {
            if (s->groups[i]->dead || (int32_t)i == writer || !reads(&of[i], root->leaf)) continue;
            if (of[i].done) continue;
            // One of the edges i -> writer came from this leaf.
            for (size_t k = 0; k < of[i].n_after; k++)
                if (of[i].after[k] == writer) {
                    bool needed = false;
                    for (size_t m = 0; m < of[writer].n_needs; m++)
                        needed |= of[writer].needs[m] == (int32_t)i;
                    if (needed) continue;
                    of[i].after[k] = of[i].after[--of[i].n_after];
                    of[writer].waits--;
                    waited++;
                    break;
                }
        }
        if (!waited) continue;
        found = true;
        if (!displace(s, val, root->val.node, root->val.out)) return false;
    }
    return found ||
           ct__err(s->err, CT_E_INTERNAL, CT_NOWHERE, "plan", "its kernels wait for each other");
}

// Bytes of temporaries that a group makes.
static int64_t bytes_made(ct_sched *s, ct_group *g) {
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

// How many bytes it frees beyond those that it makes.
static int64_t gain_of(const edges *x, int64_t *read) {
    int64_t freed = 0;
    *read = 0;
    for (size_t k = 0; k < x->n_read; k++) {
        if (x->read[k]->root >= 0) continue;
        *read += x->bytes[k];
        if (x->read[k]->readers == 1) freed += x->bytes[k];
    }
    return freed - x->made;
}

// Does it make room, or cost next to none, so that others may make room behind it?
static bool makes_room(const edges *x, int64_t *gain) {
    enum { FEW = 8 }; // a sum over rows, say, of which the row cannot go before it is made
    int64_t read;
    *gain = gain_of(x, &read);
    return *gain >= 0 || x->made * FEW <= read;
}

// Groups that could run next; what is best is on top: most gained, then first in the graph.
typedef struct {
    int64_t gain;
    int32_t group;
} candidate;
typedef struct {
    candidate *v;
    size_t n, cap;
} heap;
static bool better(candidate a, candidate b) {
    return a.gain != b.gain ? a.gain > b.gain : a.group < b.group;
}
static bool heap_push(heap *h, candidate c) {
    if (!CT_GROW(h->v, h->cap, h->n + 1)) return false;
    size_t i = h->n++;
    for (; i && better(c, h->v[(i - 1) / 2]); i = (i - 1) / 2) h->v[i] = h->v[(i - 1) / 2];
    h->v[i] = c;
    return true;
}
static candidate heap_pop(heap *h) {
    const candidate top = h->v[0], last = h->v[--h->n];
    size_t i = 0;
    for (size_t c; (c = 2 * i + 1) < h->n; i = c) {
        c += c + 1 < h->n && better(h->v[c + 1], h->v[c]);
        if (!better(h->v[c], last)) break;
        h->v[i] = h->v[c];
    }
    h->v[i] = last;
    return top;
}

typedef struct {
    ct_sched *s;
    edges *of;
    heap room, ready;  // those that make room, by what they gain; all, by their place in the graph
    ct_group **sorted; // (n)
    size_t n;
    bool for_room, failed;
    int64_t live, peak; // bytes of temporaries
} order;

// It can run, or gains more by now.
static void offer(order *o, int32_t group, bool again) {
    edges *x = &o->of[group];
    int64_t gain;
    if (x->done || x->waits) return;
    if (!again && !heap_push(&o->ready, (candidate){0, group})) o->failed = true;
    if (o->for_room && makes_room(x, &gain) && !heap_push(&o->room, (candidate){gain, group}))
        o->failed = true;
}

static void run_next(order *o, int32_t group) {
    edges *x = &o->of[group];
    x->done = true;
    o->s->groups[group]->order = (int)o->n;
    o->sorted[o->n++] = o->s->groups[group];
    o->live += x->made;
    if (o->live > o->peak) o->peak = o->live;
    for (size_t k = 0; k < x->n_read; k++) {
        ct_sval *val = x->read[k];
        val->last_readers ^= (uint32_t)group;
        if (--val->readers == 0 && val->root < 0) o->live -= x->bytes[k];
        if (val->readers == 1) offer(o, (int32_t)val->last_readers, true); // it would free it
    }
    for (size_t k = 0; k < x->n_after; k++) {
        edges *next = &o->of[x->after[k]];
        if (--next->waits == 0) offer(o, x->after[k], false);
    }
}

static void offer_all(order *o) {
    for (size_t i = 0; i < o->s->n_groups; i++)
        if (!o->s->groups[i]->dead) offer(o, (int32_t)i, false);
}

static void begin_order(order *o, size_t *live) {
    o->n = o->room.n = o->ready.n = 0;
    o->live = o->peak = 0;
    *live = 0;
    for (size_t i = 0; i < o->s->n_groups; i++) {
        edges *x = &o->of[i];
        o->s->groups[i]->order = -1;
        x->waits = 0;
        x->done = false;
        for (size_t k = 0; k < x->n_read; k++) x->read[k]->readers = x->read[k]->last_readers = 0;
    }
    for (size_t i = 0; i < o->s->n_groups; i++) {
        const edges *x = &o->of[i];
        if (o->s->groups[i]->dead) continue;
        ++*live;
        for (size_t k = 0; k < x->n_after; k++) o->of[x->after[k]].waits++;
        for (size_t k = 0; k < x->n_read; k++) {
            x->read[k]->readers++;
            x->read[k]->last_readers ^= (uint32_t)i;
        }
    }
    for (size_t i = 0; i < o->s->n_groups; i++)
        if (!o->s->groups[i]->dead) o->of[i].made = bytes_made(o->s, o->s->groups[i]);
    offer_all(o);
}

// The next one; for_room: the one that gains most, if any makes room. -1: none can run.
static int32_t next_group(order *o) {
    while (o->room.n || o->ready.n) {
        const int32_t group = heap_pop(o->room.n ? &o->room : &o->ready).group;
        if (!o->of[group].done) return group; // else it was offered twice
    }
    return -1;
}

static bool put_in_order(order *o, bool for_room) {
    size_t live;
    o->for_room = for_room;
    begin_order(o, &live);
    while (o->n < live && !o->failed) {
        const int32_t group = next_group(o);
        if (group >= 0)
            run_next(o, group);
        else if (!break_cycle(o->s, o->of))
            return false;
        else
            offer_all(o);
    }
    return !o->failed || no_memory(o->s, o->s->n_groups * sizeof *o->room.v);
}

// Groups run in the order of the graph, unless it takes notably less memory that those which make room
// run as soon as they can: the gradient of a weight before that of the layer in front, a loss before
// the gradients that leave its rows behind.
static bool order_groups(ct_sched *s, edges *of, ct_group **sorted, size_t *n_sorted) {
    enum { NOTABLE = 64 };
    order o = {.s = s, .of = of, .sorted = sorted};
    bool ok = put_in_order(&o, false);
    const int64_t peak = o.peak;
    ok = ok && put_in_order(&o, true);
    if (ok && o.peak > peak - peak / NOTABLE) ok = put_in_order(&o, false);
    *n_sorted = o.n;
    ct__free(o.room.v);
    ct__free(o.ready.v);
    return ok;
}

// --------------------------------------------------------------------- roots that no kernel writes

static bool assigned_leaf(const ct_sched *s, ct_val v) {
    if (v.node->op != &ct__op_data) return false;
    for (size_t r = 0; r < s->graph->n_roots; r++)
        if (s->graph->roots[r].kind == CT_ROOT_ASSIGN &&
            s->graph->roots[r].leaf == (int32_t)v.node->number)
            return true;
    return false;
}

// Before all kernels: roots that are leaves, and copies of leaves that are about to be overwritten
// and are assigned elsewhere.
static bool copy_leaves(ct_sched *s, uint32_t *early) {
    for (size_t r = 0; r < s->graph->n_roots; r++) {
        ct_val v = s->graph->roots[r].val;
        const ct_sval *val = ct__sval(s, v);
        int64_t bytes = ct__bytes_of(ct__type(v));
        bool assign = s->graph->roots[r].kind == CT_ROOT_ASSIGN;
        early[r] = UINT32_MAX;
        if (ct__is_leaf(v.node) && !ct__sched_place_leaf(s, v.node)) return false;
        if (!ct__is_leaf(v.node) || (assign && !assigned_leaf(s, v))) continue;
        ct_buf to = {.kind = CT_BUF_ROOT, .index = (uint32_t)r, .size = bytes, .node = v.node};
        if (assign) to.kind = CT_BUF_TEMP;
        early[r] = ct__sched_buf(s, to);
        if (early[r] == UINT32_MAX || !add_copy(s, val->buf, val->offset, early[r], bytes, v.node))
            return false;
    }
    return true;
}

// After all kernels.
static bool copy_roots(ct_sched *s, const uint32_t *early) {
    for (int assigns = 0; assigns < 2; assigns++)
        for (size_t r = 0; r < s->graph->n_roots; r++) {
            ct_val v = s->graph->roots[r].val;
            const ct_sval *val = ct__sval(s, v);
            bool assign = s->graph->roots[r].kind == CT_ROOT_ASSIGN;
            if (assign != assigns || val->root == (int32_t)r) continue;
            if (!assign && early[r] != UINT32_MAX) continue;
            int64_t bytes = ct__bytes_of(ct__type(v));
            uint32_t from = early[r] != UINT32_MAX ? early[r] : val->buf;
            uint32_t to = ct__sched_buf(
                s,
                (ct_buf){.kind = CT_BUF_ROOT, .index = (uint32_t)r, .size = bytes, .node = v.node});
            size_t offset = early[r] != UINT32_MAX ? 0 : val->offset;
            if (to == UINT32_MAX || !add_copy(s, from, offset, to, bytes, v.node)) return false;
        }
    return true;
}

// ----------------------------------------------------------------------------------------- kernels

// Has it no elements in any run of the plan? A dynamic size that met one of 0 is 0, too.
static bool never_any(ct_sched *s, ct_val v) {
    for (int a = 0; a < ct__type(v)->rank; a++)
        if (ct__sched_size(s, v, a).coef == 0) return true;
    return false;
}
static bool is_empty(ct_sched *s, const ct_group *g) { // nothing to write for any length
    for (int o = 0; g->only && o < g->only->n_out; o++)
        if (!never_any(s, (ct_val){g->only, (uint32_t)o})) return false;
    for (size_t i = 0; i < g->n_units; i++)
        if (g->units[i].store && !never_any(s, g->units[i].v)) return false;
    return true;
}

bool ct__sched_emit(ct_sched *s, ct_group *g) {
    return g->only ? g->only->op->kind->kernels(s, g->only) : ct__emit_group(s, g);
}

static bool emit_one(ct_sched *s, ct_group *g) {
    if (g->only && ct__is_loop(g->only)) return ct__sched_loop(s, g->only);
    if (g->only && ct__is_called(g->only)) return ct__sched_call(s, g->only);
    if (is_empty(s, g)) return true;
    const size_t before = s->program->n_launches;
    bool done;
    s->conflict = false;
    if (!ct__sched_again(s, g, &done)) return false;
    if (done) return true;
    if (!ct__sched_emit_first(s, g)) return false;
    if (!s->conflict) return true;
    s->program->n_launches = before;
    // It reads a variable elsewhere than it writes it.
    for (size_t i = 0; i < g->n_units; i++) {
        ct_sval *val = ct__sval(s, g->units[i].v);
        if (val->root >= 0 && s->graph->roots[val->root].kind == CT_ROOT_ASSIGN &&
            !displace(s, val, g->units[i].v.node, g->units[i].v.out))
            return false;
    }
    s->conflict = false;
    return ct__sched_emit(s, g);
}

// What has been read for the last time when the group has run. A root's value is copied at the end.
static bool note_dying(ct_sched *s, const edges *x) {
    s->n_dying = 0;
    for (size_t k = 0; k < x->n_read; k++) {
        if (--x->read[k]->readers) continue;
        if (!CT_GROW(s->dying, s->dying_cap, s->n_dying + 1)) return no_memory(s, 8);
        s->dying[s->n_dying++] = x->read[k]->buf;
    }
    return true;
}

static bool emit_groups(ct_sched *s, const edges *of, ct_group *const *sorted, size_t n) {
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < of[sorted[i]->id].n_read; k++) of[sorted[i]->id].read[k]->readers++;
    for (size_t r = 0; r < s->graph->n_roots; r++) ct__sval(s, s->graph->roots[r].val)->readers++;
    for (size_t i = 0; i < n; i++)
        if (!note_dying(s, &of[sorted[i]->id]) || !emit_one(s, sorted[i])) return false;
    return true;
}

static bool schedule(ct_sched *s, edges *of, ct_group **sorted, uint32_t *early) {
    size_t n = 0;
    return build_edges(s, of) && protect_leaves(s, of) && order_groups(s, of, sorted, &n) &&
           copy_leaves(s, early) && emit_groups(s, of, sorted, n) && copy_roots(s, early);
}

static bool run_schedule(ct_sched *s) {
    size_t n = s->n_groups;
    edges *of = ct__calloc(n + 1, sizeof *of);
    ct_group **sorted = ct__calloc(n + 1, sizeof *sorted);
    uint32_t *early = ct__malloc((s->graph->n_roots + 1) * sizeof *early);
    bool ok =
        of && sorted && early ? schedule(s, of, sorted, early) : no_memory(s, (n + 1) * sizeof *of);
    for (size_t i = 0; i < n && of; i++) {
        ct__free(of[i].needs);
        ct__free(of[i].leaves);
        ct__free(of[i].read);
        ct__free(of[i].bytes);
        ct__free(of[i].after);
    }
    ct__free(of);
    ct__free(sorted);
    ct__free(early);
    return ok;
}

static bool prepare(ct_sched *s) {
    const ct_graph *g = s->graph;
    size_t n = g->n + 1;
    s->vals = ct__arena_zero(&s->arena, n * sizeof *s->vals);
    s->stamp = ct__arena_zero(&s->arena, n * sizeof *s->stamp);
    s->leaf_buf = ct__arena(&s->arena, (g->n_leaves + 1) * sizeof *s->leaf_buf);
    if (!s->vals || !s->stamp || !s->leaf_buf) return no_memory(s, n * sizeof *s->vals);
    for (size_t i = 0; i < g->n_leaves; i++) s->leaf_buf[i] = UINT32_MAX;
    for (size_t i = 0; i < g->n; i++) {
        ct_node *node = g->nodes[i];
        node->index = (uint32_t)i;
        s->vals[i] = ct__arena_zero(&s->arena, (node->n_out + 1u) * sizeof **s->vals);
        if (!s->vals[i]) return no_memory(s, sizeof **s->vals);
        for (int o = 0; o < node->n_out; o++)
            s->vals[i][o] = (ct_sval){.buf = UINT32_MAX, .group = -1, .root = -1};
        if ((ct__is_pointwise(node) && !node->op->emit) ||
            (ct__is_reduced(node) && !node->op->reduction))
            return ct__err(s->err, CT_E_INTERNAL, node->here, node->op->name,
                           "it does not say how kernels compute it");
        // Constants of one element are literals: they get a buffer when something wants one.
        bool literal = node->op == &ct__op_const && ct__count(node->out) == 1;
        if (ct__is_leaf(node) && !literal && !ct__sched_place_leaf(s, node)) return false;
    }
    return ct__sched_sizes(s) || no_memory(s, sizeof(ct_extent));
}

ct_sched *ct__sched_new(const ct_graph *graph, ct_program *program, ct_err *err) {
    ct_sched *s = ct__calloc(1, sizeof *s);
    if (!s) {
        ct__err_memory(err, CT_NOWHERE, "plan", sizeof *s);
        return NULL;
    }
    s->graph = graph;
    s->program = program;
    s->err = err;
    s->scalars_buf = UINT32_MAX;
    s->fuse = ct__env_fuses();
    if (prepare(s)) return s;
    ct__sched_free(s);
    return NULL;
}

bool ct__schedule(ct_sched *s) {
    return place_roots(s) && place_stored(s) && run_schedule(s) && !s->err->code;
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
