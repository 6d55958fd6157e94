// Which values one kernel computes together.
//
// Three kinds of nodes. Cheap elementwise and moved values are *inlined*: computed anew wherever
// they are used. Reductions, roots, and elementwise values worth keeping are *units*: computed once
// in a group, which is one kernel. The rest has a template: a kernel of its own.
//
// Units join groups greedily in graph order. Where a unit reads a group's values is asked of the
// index expressions: it may join when each row axis of the group is an axis of its own, position by
// position, so that a thread that has a row has all that the row needs. Names of ops and the order
// of axes play no part. docs/design/fusion.md says why so and what else was weighed.
#include <stdlib.h>
#include <string.h>

#include "compile/schedule/sched.h"
#include "kinds/reduce.h"

enum {
    KEEP_WEIGHT = 6,     // ops of a value above which several users share a buffer
    KEEP_LOADS = 3,      // or loads: such as a sum of a few layers' results
    POSITION_WEIGHT = 3, // ops of positions above which many rows share a buffer
    MOST_WEIGHT = 160,   // ops inlined into one value
    MOST_LOADS = 48,     // of them, loads
    MOST_DEPTH = 96,     // of nested inlining in a unit
    GROUP_DEPTH = 256,   // and through the units of a group
    MOST_READS = 160,    // of a group, loads (a kernel takes 1,280 buffers)
    MANY_SCALARS = 8,    // that one is computed from, from as many kernels
    MOST_SCALARS = 1000, // that a kernel of such reads
    FEW_ROWS = 8,        // below, whole rows are not worth keeping together ...
    LONG_ROW = 4096,     // ... that are longer than this
    ROWS_A_TASK = 64,    // where lanes run along them
    ROWS_ACROSS = 256,   // that are worth a sum over them in their own kernel ...
    TASKS_A_CORE = 4,    // ... if cores find so many accumulators of it
    PROLOGUE_STEPS = 32, // of what a template computes while it packs
    FEW_STEPS = 4,       // the same where that spares a kernel, but few bytes
    AGAIN_SOURCES = 8,   // of a value that is computed again
    AGAIN_BYTES = 1 << 16,
    SMALL_PART = 8,      // of a value: what costs next to nothing to keep and to read
    FEW_GATHERED = 64,   // one in so many elements
    MOST_READERS = 1024, // of a value that everything reads, the newest are looked at
};
#define FOLDED_BYTES (1 << 24) // of a value of few sources that is stored for a reduction
#define MANY_BYTES (INT64_MAX / 4)

typedef struct { // of a node
    uint32_t users;
    int weight, loads, depth;
    bool unit, costly;
    bool heavy;   // costly, and other for each element along the last axis
    bool early;   // a kernel of its own, that can run as soon as it is possible
    bool torn;    // moved so that a step along the last axis is no step in memory, but a quotient
    bool divided; // stored: a reduction's index over several axes would be divided for its places
    bool folded;  // a loop of a reduction reads it, maybe through elementwise and moved values
    size_t edge;  // the newest that reads it, plus one; 0: none
} cost;

typedef struct { // an element that a unit reads of another unit, a template's result or a leaf
    ct_val v;
    const ct_ix *at;
    bool in_line; // the unit's own element, in the order of both
} read;

typedef struct fuser {
    ct_sched *s;
    cost *of;    // (graph->n)
    ct_emit *e;  // expressions of the unit being looked at
    read *reads; // (n_reads) of it
    size_t n_reads, reads_cap;
    ct_ix axis[CT_MAX_RANK];   // its variables: elementwise: of its axes; reduction: of the
    bool reduced[CT_MAX_RANK]; // operand's axes
    int rank;
    struct edge {
        ct_node *from;
        int32_t unit; // reader, by node index
        size_t older; // edge of the same node, plus one; 0: none
        bool in_line;
    } * edges; // (n_edges) all reads of units, to know who must be stored
    size_t n_edges, edges_cap;
    struct deps {
        int32_t *v; // (n) groups that it reads
        size_t n, cap;
        int32_t *by; // (n_by) groups that read it
        size_t n_by, by_cap;
        uint64_t *needs; // (words) a bit for each group that must run before
        size_t words, words_cap;
        int depth;
        size_t reads; // at most so many buffers
    } * deps;         // (n_groups)
    size_t deps_cap;
    int32_t *walk;
    size_t walk_cap;
} fuser;

static bool no_memory(ct_sched *s) {
    return ct__err_memory(s->err, CT_NOWHERE, "plan", sizeof(ct_group));
}
// Has it a group of its own?
static bool stands_alone(const ct_node *n) {
    return n->op->kind->scheduled == CT_TEMPLATE || ct__is_loop(n) || ct__is_called(n);
}
// Is its value in memory, whoever uses it?
static bool lies_in_memory(const ct_node *n) {
    return ct__is_leaf(n) || (stands_alone(n) && !n->op->kind->epilogue);
}

static int64_t bytes_of(ct_val v) {
    const ct_type *t = ct__type(v);
    return ct__guess(t, ~0u) * ct_dtype_bits((ct_dtype)t->dtype) / 8;
}

// ------------------------------------------------------------------------------------------ groups

static ct_group *new_group(fuser *f) {
    ct_sched *s = f->s;
    ct_group *g = ct__arena_zero(&s->arena, sizeof *g);
    if (!g || !CT_GROW(s->groups, s->groups_cap, s->n_groups + 1) ||
        !CT_GROW(f->deps, f->deps_cap, s->n_groups + 1)) {
        no_memory(s);
        return NULL;
    }
    g->id = (int32_t)s->n_groups;
    f->deps[s->n_groups] = (struct deps){0};
    s->groups[s->n_groups++] = g;
    return g;
}

static bool add_unit(fuser *f, ct_group *g, const ct_unit *u) {
    if (!CT_GROW(g->units, g->units_cap, g->n_units + 1)) return no_memory(f->s);
    g->units[g->n_units++] = *u;
    g->has_reduce |= u->reduce;
    g->has_across |= u->across;
    ct__sval(f->s, u->v)->group = g->id;
    return true;
}
static ct_unit unit_of(ct_node *node) {
    ct_unit u = {.v = {node, 0}, .axes = {node, 0}, .reduce = ct__is_reduced(node), .store = true};
    memset(u.row, -1, sizeof u.row);
    return u;
}

// One number of many numbers, such as the sum of what kernels of their own have reduced. It stands behind
// all of them: in the kernel of one it would draw that one away from what it reduces, and none of
// them could run beside the others.
static bool gathers(const fuser *f, const ct_node *node) {
    return f->s->fuse && ct__is_pointwise(node) && !node->out->dyn && ct__count(node->out) == 1 &&
           f->of[node->index].loads >= MANY_SCALARS;
}

// A reduction's rows are all axes of its result.
static void own_rows(ct_group *g, ct_unit *u) {
    const ct_type *t = ct__type(u->v);
    for (int a = 0; a < t->rank; a++) {
        if (ct__is_one(t, a)) continue;
        g->rows[g->n_rows].v = u->v;
        g->rows[g->n_rows].axis = a;
        u->row[a] = (int8_t)g->n_rows++;
    }
}

// What a group needs, directly or through others, is known at any time as a set of bits: ages of
// groups say nothing, since an old group grows by units that read new ones.
static bool needs(const fuser *f, int32_t from, int32_t to) {
    const struct deps *d = &f->deps[from];
    return from == to || ((size_t)to / 64 < d->words && d->needs[to / 64] >> to % 64 & 1);
}
// The same by a way that leaves `from` to another group than `to`.
static bool needs_around(const fuser *f, int32_t from, int32_t to) {
    for (size_t i = 0; i < f->deps[from].n; i++)
        if (f->deps[from].v[i] != to && needs(f, f->deps[from].v[i], to)) return true;
    return false;
}

// A group needs another one, and what that one needs. *more: it did not know.
static bool take_needs(fuser *f, int32_t group, int32_t on, bool *more) {
    struct deps *d = &f->deps[group];
    const struct deps *from = &f->deps[on];
    size_t words = (size_t)on / 64 + 1;
    if (from->words > words) words = from->words;
    *more = false;
    if (words > d->words) {
        if (!CT_GROW(d->needs, d->words_cap, words)) return no_memory(f->s);
        memset(d->needs + d->words, 0, (words - d->words) * sizeof *d->needs);
        d->words = words;
    }
    for (size_t w = 0; w < words; w++) {
        uint64_t bits = w < from->words ? from->needs[w] : 0;
        if (w == (size_t)on / 64) bits |= 1ull << on % 64;
        *more |= (bits & ~d->needs[w]) != 0;
        d->needs[w] |= bits;
    }
    return true;
}
// Those who read a group learn what it needs by now.
static bool spread_needs(fuser *f, int32_t group) {
    size_t depth = 0;
    if (!CT_GROW(f->walk, f->walk_cap, 1)) return no_memory(f->s);
    f->walk[depth++] = group;
    while (depth > 0) {
        const int32_t on = f->walk[--depth];
        for (size_t i = 0; i < f->deps[on].n_by; i++) {
            bool more;
            if (!take_needs(f, f->deps[on].by[i], on, &more)) return false;
            if (!more) continue;
            if (!CT_GROW(f->walk, f->walk_cap, depth + 1)) return no_memory(f->s);
            f->walk[depth++] = f->deps[on].by[i];
        }
    }
    return true;
}

static bool add_dep(fuser *f, int32_t group, int32_t on) {
    struct deps *d = &f->deps[group], *other = &f->deps[on];
    bool more;
    if (group == on) return true;
    for (size_t i = 0; i < d->n; i++)
        if (d->v[i] == on) return true;
    if (!CT_GROW(d->v, d->cap, d->n + 1) || !CT_GROW(other->by, other->by_cap, other->n_by + 1))
        return no_memory(f->s);
    d->v[d->n++] = on;
    other->by[other->n_by++] = group;
    return take_needs(f, group, on, &more) && (!more || spread_needs(f, group));
}

// -------------------------------------------------------------------------- what is worth a buffer

static void weigh(fuser *f, const ct_node *node) {
    cost *c = &f->of[node->index];
    c->weight = ct__is_pointwise(node) ? 1 : node->n_in > 2 ? node->n_in : 0;
    c->costly = node->op->work && (node->out->dyn || ct__count(node->out) > 1);
    c->heavy = c->costly && node->out->rank && !ct__is_one(node->out, node->out->rank - 1);
    for (int i = 0; i < (node->op->waits ? 1 : node->n_in); i++) {
        const ct_node *in = node->in[i].node;
        const ct_type *t = ct__type(node->in[i]);
        const cost *x = &f->of[in->index];
        if (ct__is_leaf(in) || x->unit || stands_alone(in)) {
            c->loads += in->op != &ct__op_const || ct__count(in->out) != 1;
            continue;
        }
        c->weight += x->weight;
        c->loads += x->loads;
        c->costly |= x->costly;
        c->heavy |= x->heavy && (!ct__is_pointwise(node) || !ct__is_one(t, t->rank - 1));
        if (x->depth >= c->depth) c->depth = x->depth + 1;
    }
}

// A template reads its operands element by element, several times: it should meet plain memory, or
// views of it whose steps are plain (a vector of 16 never crosses a multiple of 16).
static bool plain_view(fuser *f, ct_val v, ct_node **base) {
    if (!ct__emit_restart(f->e)) return false;
    ct_ix var[CT_MAX_RANK], at[CT_MAX_RANK];
    int rank = ct__type(v)->rank;
    for (int a = 0; a < rank; a++)
        at[a] = var[a] = ct__ix_var(f->e->pool, ct__emit_size(f->e, v, a));
    ct_val from = v;
    while (ct__is_view(from.node) && !f->of[from.node->index].unit) {
        ct_map map;
        if (!ct__emit_map(f->e, from.node, at, &map)) return false;
        const bool filled = map.n_pieces == 2 && map.piece[1].operand < 0; // where nothing is seen
        if ((map.n_pieces != 1 && !filled) || map.piece[0].operand != 0) break;
        // Windows with padding are read under conditions, which no lane should divide for.
        for (int a = 0; a < rank && map.piece[0].valid >= 0; a++)
            if (ct__ix_divides(f->e->pool, map.piece[0].valid, var[a], CT_LANES)) return false;
        from = from.node->in[0];
        if (ct__type(from)->rank) memcpy(at, map.piece[0].from, sizeof at);
    }
    *base = from.node;
    ct_ix offset = ct__emit_offset(f->e, from, at);
    for (int a = 0; a < rank; a++)
        if (ct__ix_divides(f->e->pool, offset, var[a], CT_LANES)) return false;
    return true;
}
static bool lies_near(const fuser *f, ct_val v) {
    return ct__is_leaf(v.node) || stands_alone(v.node) || f->of[v.node->index].unit;
}
// Bytes behind a value that is computed from memory in a few cheap steps, at most `steps`; else more
// than any value has. given: no other kernel makes them.
static int64_t bytes_behind(const fuser *f, const ct_node *template, ct_val v, int *steps,
                            bool *given) {
    const ct_node *node = v.node;
    if (lies_near(f, v)) {
        *given &= ct__is_leaf(node);
        return bytes_of(v);
    }
    int64_t bytes = 0;
    // Rows that are gathered a block at a time, as pages of a cache are, lie where they are: no copy of all is made.
    if (template->op->kind->takes && node->op->kind->positions && lies_near(f, node->in[0]) &&
        --*steps >= 0)
        return bytes_behind(f, template, node->in[1], steps, given);
    const bool numbers = ct__is_inlined(node) && !node->n_in; // counted, not read
    bool cheap = (ct__is_pointwise(node) || ct__is_view(node) || numbers) && !node->op->work;
    cheap = cheap && --*steps >= 0;
    for (int i = 0; i < node->n_in && cheap; i++) {
        bytes += bytes_behind(f, template, node->in[i], steps, given);
        cheap = bytes < MANY_BYTES;
    }
    return cheap ? bytes : MANY_BYTES;
}
// Is less to be read where a template reads the value than if it were stored before? Codes and their
// scales become numbers on their way into a product; so does what is cast or scaled, unless a kernel
// that made it can do that once. The steps are repeated with each packing: for B once in some 256
// rows of the result, which take 256 multiply-adds an element, for A once in some 384 columns.
static bool is_prologue(const fuser *f, const ct_node *template, ct_val v) {
    int steps = PROLOGUE_STEPS;
    bool given = true;
    if (!template->op->kind->packs) return false;
    const int64_t bytes = bytes_behind(f, template, v, &steps, &given), stored = bytes_of(v);
    if (bytes * 2 < stored) return true;
    return given && steps >= PROLOGUE_STEPS - FEW_STEPS && bytes <= stored + stored / 10;
}

static bool reads_leaf(const fuser *f, const ct_node *node, const ct_node *leaf) {
    uint32_t *stamp = &f->s->stamp[node->index];
    if (node == leaf) return true;
    if (ct__is_leaf(node) || stands_alone(node) || *stamp == f->s->stamp_now) return false;
    *stamp = f->s->stamp_now;
    for (int i = 0; i < node->n_in; i++)
        if (reads_leaf(f, node->in[i].node, leaf)) return true;
    return false;
}
// What changes its variable in place cannot read the old version meanwhile: rows that are put elsewhere in their
// variable are stored first, which are few, where else all of it would be copied.
static bool is_moved_within(const fuser *f, const ct_node *template, ct_val v) {
    const ct_graph *g = f->s->graph;
    const ct_node *leaf = template->in[0].node;
    if (!template->op->kind->changes_operand || leaf->op != &ct__op_data) return false;
    size_t r = 0;
    while (r < g->n_roots &&
           !(g->roots[r].kind == CT_ROOT_ASSIGN && g->roots[r].val.node == template &&
             g->roots[r].leaf == (int64_t)leaf->number))
        r++;
    f->s->stamp_now++;
    return r < g->n_roots && reads_leaf(f, v.node, leaf);
}

static void template_operand(fuser *f, const ct_node *template, ct_val v) {
    ct_node *node = v.node;
    if (ct__is_leaf(node) || stands_alone(node)) return;
    if (is_moved_within(f, template, v)) {
        f->of[node->index].unit = true;
        return;
    }
    if (f->s->fuse && is_prologue(f, template, v)) return;
    if (!f->s->fuse || !plain_view(f, v, &node)) node = v.node;
    if (!ct__is_leaf(node) && !stands_alone(node)) f->of[node->index].unit = true;
}
// A loop's launches go through its operands' memory, and so does a called function.
static void loop_operand(fuser *f, const ct_node *node) {
    if (!ct__is_leaf(node) && !stands_alone(node)) f->of[node->index].unit = true;
}

// Fewer bits of a reduction that nobody else wants: they are stored instead of it.
static bool narrows(const fuser *f, const ct_node *node) {
    if (!ct__is_pointwise(node) || node->n_in != 1) return false;
    const ct_node *in = node->in[0].node;
    return ct__is_reduced(in) && f->of[in->index].users == 1 &&
           ct_dtype_bits((ct_dtype)node->out->dtype) < ct_dtype_bits((ct_dtype)in->out->dtype);
}

// A few elements of a large temporary: picked when it is there, they do not keep all of it until they
// are used, as a loss would its logits.
static bool picks_few(const fuser *f, const ct_node *node) {
    if (!node->op->kind->positions || !f->s->fuse) return false;
    const ct_node *from = node->in[0].node;
    const int64_t bytes = bytes_of(node->in[0]);
    uint32_t users = f->of[from->index].users;
    for (; ct__is_view(from) && !f->of[from->index].unit; from = from->in[0].node)
        users += f->of[from->in[0].node->index].users - 1;
    return (stands_alone(from) || f->of[from->index].unit) && users > 1 && bytes >= AGAIN_BYTES &&
           ct__guess(node->out, ~0u) <= ct__guess(ct__type(node->in[0]), ~0u) / FEW_GATHERED;
}

static void mark_folded(fuser *f) {
    const ct_graph *g = f->s->graph;
    for (size_t i = g->n; i-- > 0;) {
        const ct_node *node = g->nodes[i];
        const bool loops = ct__is_reduced(node) && !ct__fold_is_short(f->e, node);
        const bool passes = loops || (ct__is_inlined(node) && f->of[i].folded);
        for (int k = 0; k < node->n_in && passes; k++) f->of[node->in[k].node->index].folded = true;
    }
}

static bool stops(const fuser *f, const ct_node *node) {
    return ct__is_leaf(node) || stands_alone(node) || f->of[node->index].unit;
}

static bool look(fuser *f, ct_node *node);
static bool visit(fuser *f, ct_val v, const ct_ix *at);

// Such are phases put in turns, what a gradient's strides leave. Loops of a reduction would divide for
// each element; a kernel that only puts them together has a cell for each turn (cuts.c).
static bool is_torn(fuser *f, ct_node *node) {
    const ct_type *t = node->out;
    bool torn = ct__is_pointwise(node), any = false;
    for (int k = 0; k < node->n_in && torn; k++) {
        if (ct__count(ct__type(node->in[k])) == 1) continue;
        torn = any = f->of[node->in[k].node->index].torn;
    }
    if (torn && any) return true;
    if (node->op->kind->scheduled != CT_MAPPED || t->dyn || !t->rank || ct__is_one(t, t->rank - 1))
        return false;
    int64_t from = 0;
    if (!look(f, node)) return false;
    const ct_ix var = f->axis[t->rank - 1];
    torn = false;
    for (size_t i = 0; i < f->n_reads; i++) {
        const read *r = &f->reads[i];
        if (ct__count(ct__type(r->v)) > 1 && !ct__type(r->v)->dyn)
            from += ct__count(ct__type(r->v));
        torn |= ct__ix_divides(f->e->pool, ct__emit_offset(f->e, r->v, r->at), var, CT_LANES);
    }
    return torn && from >= ct__count(t) / 2; // it is no view of few elements, again and again
}
// What is torn is stored where others than views read it, and a reduction behind them.
static void tear(fuser *f, ct_node *node) {
    cost *c = &f->of[node->index];
    c->torn = c->folded && ct__is_inlined(node) && is_torn(f, node);
    for (int k = 0; k < node->n_in && !c->torn; k++) {
        cost *in = &f->of[node->in[k].node->index];
        in->unit |= in->torn && in->folded && !ct__is_view(node);
    }
}

// True where lanes along several reduced axes divide their index for places of what is broadcast along one.
static bool fuse_fold_divides(fuser *f, const ct_node *node, int64_t *from) {
    ct_ix at[CT_MAX_RANK], var = CT_IX_NONE;
    bool divides = false;
    f->n_reads = 0;
    if (ct__emit_restart(f->e)) var = ct__fold_lanes(f->e, node, at);
    if (var == CT_IX_NONE || !visit(f, node->in[0], at)) return false;
    for (size_t i = 0; i < f->n_reads; i++) {
        const read *r = &f->reads[i];
        *from += ct__guess(ct__type(r->v), ~0u);
        divides |= ct__ix_divides(f->e->pool, ct__emit_offset(f->e, r->v, r->at), var, CT_LANES);
    }
    return divides;
}
// Such an operand is stored by a kernel that loops over its axes, if it is small or not much larger than its sources.
static void fuse_store_divided(fuser *f, const ct_node *node) {
    const ct_node *in = node->in[0].node;
    int64_t from = 0;
    if (stops(f, in) || !ct__is_inlined(in) || ct__fold_is_short(f->e, node) ||
        !fuse_fold_divides(f, node, &from))
        return;
    if (from >= ct__guess(in->out, ~0u) / 2 || bytes_of(node->in[0]) <= FOLDED_BYTES)
        f->of[in->index].unit = f->of[in->index].divided = true;
}

static void mark_units(fuser *f) {
    const ct_graph *g = f->s->graph;
    for (size_t i = 0; i < g->n; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++) f->of[g->nodes[i]->in[k].node->index].users++;
    for (size_t r = 0; r < g->n_roots; r++) f->of[g->roots[r].val.node->index].unit = true;
    mark_folded(f);
    for (size_t i = 0; i < g->n; i++) {
        const ct_node *node = g->nodes[i];
        // What lies in memory anyway is read where it is used; else it takes a kernel of its own,
        // behind the operand's.
        bool memory = ct__reads_memory(node) && !lies_in_memory(node->in[0].node);
        f->of[i].unit |= memory;
        for (int k = 0; k < node->n_in; k++) {
            if (ct__is_loop(node) || ct__is_called(node))
                loop_operand(f, node->in[k].node);
            else if (stands_alone(node))
                template_operand(f, node, node->in[k]);
            if (memory) f->of[node->in[0].node->index].unit = true; // its memory is read
        }
    }
    for (size_t i = 0; i < g->n; i++) {
        ct_node *node = g->nodes[i];
        cost *c = &f->of[i];
        if (ct__is_leaf(node) || stands_alone(node)) {
            c->unit = false;
            continue;
        }
        for (int k = 0; k < node->n_in && f->s->fuse; k++) {
            cost *in = &f->of[node->in[k].node->index];
            const bool much =
                in->heavy || (node->op->kind->positions && k == 1 && in->weight >= POSITION_WEIGHT);
            in->unit |= much && ct__is_inlined(node->in[k].node) && ct__repeats_operand(node, k);
        }
        weigh(f, node);
        if (f->s->fuse) tear(f, node);
        if (f->s->fuse && ct__is_reduced(node)) fuse_store_divided(f, node);
        bool shared =
            c->users > 1 && (c->costly || c->weight > KEEP_WEIGHT || c->loads > KEEP_LOADS);
        c->early = picks_few(f, node);
        c->unit |= ct__is_reduced(node) || !f->s->fuse || shared || narrows(f, node) || c->early ||
                   c->weight > MOST_WEIGHT || c->loads > MOST_LOADS || c->depth > MOST_DEPTH;
    }
}

// ------------------------------------------------------------------------------ where a unit reads

static bool visit_operands(fuser *f, const ct_node *node, const ct_ix *at) {
    ct_ix own[CT_MAX_RANK];
    if (ct__is_pointwise(node)) {
        for (int i = 0; i < node->n_in; i++) {
            ct__broadcast_ix(f->e, node->in[i], node->out->rank, at, own);
            if (!visit(f, node->in[i], own)) return false;
        }
        return true;
    }
    ct_map map;
    if (!ct__emit_map(f->e, node, at, &map)) return false;
    for (int i = 0; i < node->n_in; i++) {
        bool placed = false;
        for (int k = 0; k < map.n_pieces; k++) {
            if (map.piece[k].operand != i) continue;
            placed = true;
            if (!visit(f, node->in[i], map.piece[k].from)) return false;
        }
        if (placed) continue;
        // A position: it is read somewhere, in line with nothing.
        for (int a = 0; a < ct__type(node->in[i])->rank; a++)
            own[a] = ct__ix_var(f->e->pool, ct__emit_size(f->e, node->in[i], a));
        if (!visit(f, node->in[i], own)) return false;
    }
    return true;
}

static bool visit(fuser *f, ct_val v, const ct_ix *at) {
    if (ct__emit_recalls(f->e, v, at)) return true;
    ct__emit_remember(f->e, v, at, 0);
    if (f->s->err->code) return false;
    if (!stops(f, v.node)) return visit_operands(f, v.node, at);
    if (!CT_GROW(f->reads, f->reads_cap, f->n_reads + 1)) return no_memory(f->s);
    f->reads[f->n_reads++] = (read){v, f->e->draft->memo[f->e->draft->n_memo - 1].at, false};
    return true;
}

// Fills reads, axis, reduced, rank for a unit. The axes are those of a value of as many elements.
static bool look_along(fuser *f, ct_node *node, ct_val v) {
    f->n_reads = 0;
    if (!ct__emit_restart(f->e)) return false;
    const ct_type *t = ct__type(v);
    uint32_t mask = ct__is_reduced(node) ? ct__along(node).axes : 0;
    f->rank = t->rank;
    for (int a = 0; a < t->rank; a++) {
        f->reduced[a] = mask >> a & 1;
        f->axis[a] = ct__is_one(t, a) ? ct__ix_int(f->e->pool, 0)
                                      : ct__ix_var(f->e->pool, ct__emit_size(f->e, v, a));
    }
    ct_ix own[CT_MAX_RANK];
    if (!ct__is_reduced(node)) ct__emit_index_as(f->e, (ct_val){node, 0}, f->axis, v, own);
    if (!(ct__is_reduced(node) ? visit(f, v, f->axis) : visit_operands(f, node, own))) return false;
    const ct_ix offset = ct__emit_offset(f->e, v, f->axis);
    for (size_t i = 0; i < f->n_reads; i++) {
        read *r = &f->reads[i];
        r->in_line = ct__is_pointwise(r->v.node) &&
                     ct__guess(ct__type(r->v), ~0u) == ct__guess(t, ~0u) &&
                     ct__emit_offset(f->e, r->v, r->at) == offset;
    }
    return true;
}
static bool look(fuser *f, ct_node *node) {
    return look_along(f, node, ct__is_reduced(node) ? node->in[0] : (ct_val){node, 0});
}

// Which of the unit's axes is this expression? -1: none.
static int axis_of(const fuser *f, ct_ix x) {
    for (int a = 0; a < f->rank; a++)
        if (f->axis[a] == x && ct__ix_node(f->e->pool, x)->kind == CT_IX_VAR) return a;
    return -1;
}

// ----------------------------------------------------------------------------------------- joining

static bool is_of(const fuser *f, const read *r, const ct_group *g) {
    return !ct__is_leaf(r->v.node) && ct__sval(f->s, r->v)->group == g->id;
}

static bool same_axes(fuser *f, ct_val v, ct_val w) {
    int rank = ct__type(v)->rank;
    if (ct__type(w)->rank != rank) return false;
    for (int a = 0; a < rank; a++)
        if (ct__emit_size(f->e, v, a) != ct__emit_size(f->e, w, a)) return false;
    return true;
}

// Is each value of the group read where the unit, which is elementwise, has its own element?
static bool reads_in_place(const fuser *f, const ct_group *g) {
    for (size_t i = 0; i < f->n_reads; i++) {
        const read *r = &f->reads[i];
        for (int a = 0; is_of(f, r, g) && a < f->rank; a++)
            if (r->at[a] != f->axis[a]) return false;
    }
    return true;
}

static const ct_unit *find_unit(const ct_group *g, ct_val v) {
    for (size_t i = 0; i < g->n_units; i++)
        if (g->units[i].v.node == v.node) return &g->units[i];
    return NULL;
}

// The axis of the unit that runs along each row axis of a group with rows. False: they are not in
// line somewhere.
static bool rows_along(fuser *f, const ct_group *g, int8_t *along, bool *touched) {
    memset(along, -1, CT_MAX_RANK);
    *touched = false;
    for (size_t i = 0; i < f->n_reads; i++) {
        const read *r = &f->reads[i];
        if (!is_of(f, r, g)) continue;
        const ct_unit *m = find_unit(g, r->v);
        if (!m || m->across || m->axes.node != m->v.node) return false;
        *touched = true;
        for (int a = 0; a < ct__type(r->v)->rank; a++) {
            if (m->row[a] < 0) continue;
            int axis = axis_of(f, r->at[a]);
            ct_ix size = ct__emit_size(f->e, r->v, a);
            if (axis < 0 || f->reduced[axis] || ct__ix_node(f->e->pool, r->at[a])->a != size)
                return false;
            if (along[m->row[a]] >= 0 && along[m->row[a]] != axis) return false;
            along[m->row[a]] = (int8_t)axis;
        }
    }
    for (int i = 0; i < g->n_rows; i++) {
        if (*touched && along[i] < 0) return false;
        for (int k = 0; k < i; k++)
            if (*touched && along[k] == along[i]) return false;
    }
    return true;
}

// The unit's output axis of each of its axes (reductions: the operand's).
static int output_axis(const fuser *f, const ct_node *node, int axis) {
    if (!ct__is_reduced(node) || node->out->rank == f->rank) return axis;
    int o = 0;
    for (int a = 0; a < axis; a++) o += !f->reduced[a];
    return o;
}

// Is one thread enough for whole rows? Where the last axis is one of the rows, lanes run along it, and
// as many rows as a task takes are one.
static bool worth_keeping_rows(int64_t rows, uint32_t inner, const ct_type *t) {
    int last = t->rank - 1;
    while (last > 0 && ct__is_one(t, last)) last--;
    if (last >= 0 && !(inner >> last & 1)) rows /= ROWS_A_TASK;
    return rows >= FEW_ROWS || ct__guess(t, inner) <= LONG_ROW;
}

// To a group with reductions.
static bool joins_rows(fuser *f, ct_group *g, ct_unit *u) {
    int8_t along[CT_MAX_RANK];
    bool touched;
    ct_node *node = u->v.node;
    if (!rows_along(f, g, along, &touched) || !touched) return false;
    const ct_type *t = ct__type(ct__is_reduced(node) ? node->in[0] : u->axes);
    uint32_t inner = 0;
    for (int a = 0; a < f->rank; a++)
        if (!ct__is_one(t, a)) inner |= 1u << a;
    for (int i = 0; i < g->n_rows; i++) {
        inner &= ~(1u << along[i]);
        u->row[output_axis(f, node, along[i])] = (int8_t)i;
    }
    for (int a = 0; a < f->rank && ct__is_reduced(node); a++)
        if (inner >> a & 1 && !f->reduced[a]) return false; // a reduction has rows alone
    // Reductions and rows that follow a reduction over few, long rows are better spread anew.
    int64_t rows = 1;
    for (int i = 0; i < g->n_rows; i++)
        rows *= ct__guess(ct__type(g->rows[i].v), 1u << g->rows[i].axis);
    return !inner || worth_keeping_rows(rows, inner, t);
}

// A reduction like one of the group's (same operand shape and axes), that shares an input. What it reads
// of other rows, as a convolution's gradient reads its windows of the result, would be computed anew for
// each of its elements.
static bool joins_beside(fuser *f, ct_group *g, ct_unit *u) {
    const ct_node *node = u->v.node;
    int8_t along[CT_MAX_RANK];
    bool touched;
    if (!u->reduce || !rows_along(f, g, along, &touched)) return false;
    for (size_t i = 0; i < g->n_units; i++) {
        const ct_unit *m = &g->units[i];
        const ct_node *other = m->v.node;
        if (!m->reduce || m->across || ct__along(other).axes != ct__along(node).axes ||
            other->out->rank != node->out->rank ||
            !ct__same_shape(ct__type(other->in[0]), ct__type(node->in[0])))
            continue;
        if (!same_axes(f, m->v, u->v)) return false;
        memcpy(u->row, m->row, sizeof u->row);
        return true;
    }
    return false;
}

// The operand's axis of each of the group's rows, where a reduction of the group leaves just those
// and the unit just the others, over an operand of the same sizes.
static bool complements(fuser *f, const ct_group *g, const ct_unit *m, const ct_node *node,
                        int8_t *along) {
    const ct_node *other = m->v.node;
    const ct_type *in = ct__type(node->in[0]);
    if (!m->reduce || m->across || !same_axes(f, other->in[0], node->in[0])) return false;
    const uint32_t kept = ~ct__along(other).axes, reduced = ct__along(node).axes;
    int row = 0;
    for (int a = 0, o = 0; a < in->rank; a++) {
        if (other->out->rank == in->rank) o = a;
        if (!ct__is_one(in, a)) {
            if ((kept >> a & 1) != (reduced >> a & 1)) return false;
            if (kept >> a & 1 && m->row[o] != row) return false;
            if (kept >> a & 1) along[row++] = (int8_t)a;
        }
        o += kept >> a & 1;
    }
    return row == g->n_rows;
}
// A sum over the rows of a group with reductions: what is read in a row is read once for both. Each of
// the rule's accumulators is a task, so many rows are wanted.
static bool joins_across(fuser *f, const ct_group *g, ct_unit *u) {
    const ct_node *node = u->v.node;
    const ct_type *in = ct__type(node->in[0]);
    int8_t along[CT_MAX_RANK];
    bool found = false;
    if (!u->reduce || node->op->reduction != CT_RED_ADD || ct__folds_of(f->e, node).n != 1)
        return false;
    for (size_t i = 0; i < g->n_units && !found; i++) {
        found = complements(f, g, &g->units[i], node, along);
        if (g->units[i].across && !same_axes(f, g->units[i].v.node->in[0], node->in[0]))
            return false;
    }
    const uint32_t reduced = ct__along(node).axes;
    int last = in->rank - 1;
    while (last > 0 && ct__is_one(in, last)) last--;
    const int64_t rows = ct__guess(in, reduced), wide = ct__guess(in, ~reduced);
    const int64_t tasks = (rows + CT_REDUCE_BLOCK - 1) / CT_REDUCE_BLOCK * CT_LANES;
    if (!found || reduced >> last & 1 || rows < ROWS_ACROSS || wide < ROWS_A_TASK ||
        tasks < TASKS_A_CORE * f->s->program->target.cores)
        return false;
    for (size_t i = 0; i < f->n_reads; i++) {
        const read *r = &f->reads[i];
        if (!is_of(f, r, g)) continue;
        const ct_unit *m = find_unit(g, r->v);
        if (!m || m->across || m->axes.node != m->v.node) return false;
        for (int a = 0; a < ct__type(r->v)->rank; a++)
            if (m->row[a] >= 0 && axis_of(f, r->at[a]) != along[m->row[a]]) return false;
    }
    memset(u->row, -1, sizeof u->row);
    return u->across = true;
}

static bool is_flat(const ct_type *t) {
    int axes = 0;
    for (int a = 0; a < t->rank; a++) axes += !ct__is_one(t, a);
    return axes <= 1;
}
// Do two values have as many elements, and one of them along a single axis? Random bits are flat.
static bool flattens(ct_val v, ct_val w) {
    const ct_type *a = ct__type(v), *b = ct__type(w);
    return !a->dyn && !b->dyn && ct__count(a) == ct__count(b) && (is_flat(a) || is_flat(b));
}
// Is each value of the group read where the unit has its own element, in the order of both?
static bool reads_in_order(fuser *f, const ct_group *g, const ct_unit *u) {
    const ct_ix own = ct__emit_offset(f->e, u->v, f->axis);
    for (size_t i = 0; i < f->n_reads; i++)
        if (is_of(f, &f->reads[i], g) &&
            ct__emit_offset(f->e, f->reads[i].v, f->reads[i].at) != own)
            return false;
    return true;
}

// An elementwise unit to a group of elementwise ones: the same axes, read in place; or as many
// elements in the same order.
static bool joins_pointwise(fuser *f, ct_group *g, ct_unit *u) {
    if (u->reduce) return false;
    if (same_axes(f, u->v, g->units[0].v)) return reads_in_place(f, g);
    return flattens(u->v, g->units[0].v) && reads_in_order(f, g, u);
}
static bool has_one_shape(fuser *f, const ct_group *g) {
    for (size_t i = 1; i < g->n_units; i++)
        if (!same_axes(f, g->units[i].v, g->units[0].v)) return false;
    return true;
}

// A reduction to a group of elementwise units: the group's axes are its rows and what it reduces.
static bool reduces_pointwise(fuser *f, ct_group *g, ct_unit *u) {
    int8_t axis[CT_MAX_RANK];
    memset(axis, -1, sizeof axis);
    if (!u->reduce || !has_one_shape(f, g)) return false;
    const ct_type *t = ct__type(g->units[0].v), *in = ct__type(u->v.node->in[0]);
    bool touched = false;
    for (size_t i = 0; i < f->n_reads; i++) {
        const read *r = &f->reads[i];
        if (!is_of(f, r, g)) continue;
        touched = true;
        for (int a = 0; a < t->rank; a++) {
            if (ct__is_one(t, a)) continue;
            int own = axis_of(f, r->at[a]);
            if (own < 0 || (axis[a] >= 0 && axis[a] != own) ||
                ct__ix_node(f->e->pool, r->at[a])->a != ct__emit_size(f->e, r->v, a))
                return false;
            axis[a] = (int8_t)own;
        }
    }
    uint32_t used = 0, rows = 0, inner = 0;
    for (int a = 0; a < t->rank; a++)
        if (axis[a] >= 0) {
            if (used >> axis[a] & 1) return false;
            used |= 1u << axis[a];
        }
    for (int a = 0; a < in->rank; a++) {
        if (ct__is_one(in, a)) continue;
        if (!(used >> a & 1)) return false;
        if (f->reduced[a])
            inner |= 1u << a;
        else
            rows |= 1u << a;
    }
    if (!touched || !worth_keeping_rows(ct__guess(in, rows), inner, in)) return false;
    own_rows(g, u);
    for (size_t i = 0; i < g->n_units; i++)
        for (int a = 0; a < t->rank; a++)
            if (axis[a] >= 0 && !f->reduced[axis[a]])
                g->units[i].row[a] = u->row[output_axis(f, u->v.node, axis[a])];
    return true;
}

static bool shares_input(fuser *f, const ct_group *g) {
    for (size_t i = 0; i < f->n_reads; i++) {
        const ct_node *x = f->reads[i].v.node;
        const ct_type *type = ct__type(f->reads[i].v);
        if (!type->dyn && ct__count(type) < 2) continue;
        for (size_t k = f->of[x->index].edge, n = MOST_READERS; k && n--; k = f->edges[k - 1].older)
            if (f->s->vals[f->edges[k - 1].unit][0].group == g->id) return true;
    }
    return false;
}

// Would the unit's other sources need what the group computes?
static bool closes_circle(fuser *f, const ct_group *g) {
    for (size_t i = 0; i < f->n_reads; i++) {
        ct_val v = f->reads[i].v;
        if (ct__is_leaf(v.node)) continue;
        int32_t from = ct__sval(f->s, v)->group;
        if (from != g->id && needs(f, from, g->id)) return true;
    }
    return false;
}

static int depth_in(fuser *f, const ct_group *g, const ct_node *node) {
    bool reads_it = false;
    for (size_t i = 0; i < f->n_reads; i++) reads_it |= is_of(f, &f->reads[i], g);
    return f->of[node->index].depth + 1 + (reads_it ? f->deps[g->id].depth : 0);
}

// An elementwise unit behind a template that takes one: computed from each element before it is
// stored.
static bool joins_epilogue(fuser *f, ct_group *g, ct_unit *u) {
    if (u->reduce || !g->only->op->kind->epilogue) return false;
    for (size_t i = 0; i < f->n_reads;
         i++) // other results of it are stored elsewhere in the kernel
        if (f->reads[i].v.node == g->only && f->reads[i].v.out) return false;
    return same_axes(f, u->v, (ct_val){g->only, 0}) && reads_in_place(f, g);
}

static size_t outside_reads(const fuser *f, const ct_group *g) {
    size_t n = 0;
    for (size_t i = 0; i < f->n_reads; i++) n += !is_of(f, &f->reads[i], g);
    return n;
}

// Only what reads it, to a group that gathers; its values are stored, so that nothing is nested.
static bool joins_gathering(fuser *f, ct_group *g, const ct_unit *u, bool reads_it) {
    if (!reads_it || u->reduce || g->dead || ct__count(u->v.node->out) != 1 ||
        u->v.node->out->dyn || f->deps[g->id].reads + outside_reads(f, g) >= MOST_SCALARS)
        return false;
    return !closes_circle(f, g);
}

// Whatever it does there, has the group a place for the unit?
static bool has_place(fuser *f, const ct_group *g, const ct_unit *u) {
    if (g->dead || g->sealed || g->n_units >= CT_MOST_UNITS ||
        f->deps[g->id].reads + outside_reads(f, g) >= MOST_READS ||
        depth_in(f, g, u->v.node) > GROUP_DEPTH)
        return false;
    if (u->reduce && f->of[u->v.node->in[0].node->index].divided &&
        ct__sval(f->s, u->v.node->in[0])->group == g->id)
        return false;
    if ((g->torn && u->reduce) || (g->has_reduce && f->of[u->v.node->index].torn)) return false;
    return !closes_circle(f, g);
}
static bool joins(fuser *f, ct_group *g, ct_unit *u, bool reads_it) {
    memset(u->row, -1, sizeof u->row);
    if (g->gathers) return joins_gathering(f, g, u, reads_it);
    if (gathers(f, u->v.node) || !has_place(f, g, u)) return false;
    if (g->only) return reads_it && joins_epilogue(f, g, u);
    if (g->has_reduce && (reads_it ? joins_rows(f, g, u) : joins_beside(f, g, u))) return true;
    if (g->has_reduce) return joins_across(f, g, u);
    if (!reads_it) return joins_pointwise(f, g, u);
    return u->reduce ? reduces_pointwise(f, g, u) : joins_pointwise(f, g, u);
}

// A second group that the unit reads becomes part of the first: both elementwise, or both with the
// same rows as the unit sees them.
static bool absorb(fuser *f, ct_group *g, ct_group *b, const ct_unit *u) {
    if (g->only || b->only || b->dead || b->sealed || g->sealed || b == g || u->across ||
        g->has_across || b->has_across || g->gathers || b->gathers ||
        g->n_units + b->n_units > CT_MOST_UNITS ||
        f->deps[g->id].depth + f->deps[b->id].depth > GROUP_DEPTH ||
        f->deps[g->id].reads + f->deps[b->id].reads > MOST_READS ||
        g->has_reduce != b->has_reduce || needs_around(f, g->id, b->id) ||
        needs_around(f, b->id, g->id))
        return true;
    ct_unit again = *u;
    int8_t to[CT_MAX_RANK];
    memset(to, -1, sizeof to);
    if (!b->has_reduce) {
        if (!joins_pointwise(f, b, &again)) return true;
    } else {
        bool touched;
        int8_t along[CT_MAX_RANK];
        if (!rows_along(f, b, along, &touched) || !touched || b->n_rows != g->n_rows) return true;
        for (int i = 0; i < b->n_rows; i++) {
            to[i] = u->row[output_axis(f, u->v.node, along[i])];
            if (to[i] < 0) return true;
        }
    }
    for (size_t i = 0; i < b->n_units; i++) {
        ct_unit m = b->units[i];
        for (int a = 0; a < CT_MAX_RANK; a++)
            if (m.row[a] >= 0) m.row[a] = to[m.row[a]];
        if (!add_unit(f, g, &m)) return false;
    }
    b->dead = true;
    f->deps[g->id].reads += f->deps[b->id].reads;
    if (f->deps[b->id].depth > f->deps[g->id].depth) f->deps[g->id].depth = f->deps[b->id].depth;
    for (size_t i = 0; i < f->deps[b->id].n; i++)
        if (!add_dep(f, g->id, f->deps[b->id].v[i])) return false;
    f->deps[b->id].n = 0;
    for (size_t i = 0; i < f->deps[b->id].n_by; i++) {
        const int32_t by = f->deps[b->id].by[i];
        struct deps *d = &f->deps[by];
        size_t k = 0;
        while (k < d->n && d->v[k] != b->id) k++;
        if (k == d->n) continue; // it is part of another group by now
        d->v[k] = d->v[--d->n];
        if (!add_dep(f, by, g->id)) return false;
    }
    return true;
}

static bool add_read(fuser *f, ct_node *from, int32_t unit, bool in_line) {
    if (!CT_GROW(f->edges, f->edges_cap, f->n_edges + 1)) return no_memory(f->s);
    size_t *newest = &f->of[from->index].edge;
    f->edges[f->n_edges++] = (struct edge){from, unit, *newest, in_line};
    *newest = f->n_edges;
    return true;
}

// To a group with reductions over whose operand's axes the unit runs, too, but for a reshape.
static bool joins_reshaped(fuser *f, ct_group *g, ct_unit *u) {
    const ct_node *node = u->v.node;
    if (u->reduce || !g->has_reduce || g->only) return false;
    for (size_t i = 0; i < g->n_units; i++) {
        const ct_unit *m = &g->units[i];
        const ct_val in = m->v.node->in[0];
        if (!m->reduce || node->out->dyn || ct__type(in)->dyn ||
            ct__count(ct__type(in)) != ct__count(node->out))
            continue;
        u->axes = in;
        if (look_along(f, u->v.node, in) && joins(f, g, u, true)) return true;
        break;
    }
    u->axes = u->v;
    return false;
}

// A group, however old, of which the reduction is a sum over the rows, and that reads what it reads: in
// a step the gradients of weights come behind the whole chain of those of activations.
static ct_group *rows_beside(fuser *f, ct_unit *u) {
    const ct_sched *s = f->s;
    for (size_t i = 0; i < f->n_reads; i++) {
        const ct_type *type = ct__type(f->reads[i].v);
        if (!type->dyn && ct__count(type) < ROWS_ACROSS) continue;
        int left = MOST_READERS;
        for (size_t k = f->of[f->reads[i].v.node->index].edge; k && left--;
             k = f->edges[k - 1].older) {
            ct_group *g = s->groups[s->vals[f->edges[k - 1].unit][0].group];
            if (g->has_reduce && !g->only && has_place(f, g, u) && joins_across(f, g, u)) return g;
        }
    }
    return NULL;
}

static bool place_unit(fuser *f, ct_node *node) {
    ct_sched *s = f->s;
    ct_unit u = unit_of(node);
    ct_group *home = NULL;
    if (!look(f, node)) return false;
    const bool memory = ct__reads_memory(node) && !lies_in_memory(node->in[0].node),
               sealed = memory || f->of[node->index].early, free_to_join = s->fuse && !sealed;
    for (size_t i = 0; i < f->n_reads && free_to_join && !home; i++) {
        const ct_val v = f->reads[i].v;
        ct_group *g = ct__is_leaf(v.node) ? NULL : s->groups[ct__sval(s, v)->group];
        if (g && g->gathers && joins(f, g, &u, true)) home = g;
    }
    // Behind a template first: that saves a pass over memory whatever follows.
    for (int other = 0; other < 2 && free_to_join && !home; other++)
        for (size_t i = 0; i < f->n_reads && !home; i++) {
            ct_val v = f->reads[i].v;
            if (ct__is_leaf(v.node)) continue;
            ct_group *g = s->groups[ct__sval(s, v)->group];
            if ((g->only == NULL) == other && joins(f, g, &u, true)) home = g;
        }
    const size_t n_reads = f->n_reads;
    for (size_t i = 0; i < n_reads && free_to_join && !home; i++) {
        const ct_val v = f->reads[i].v;
        ct_group *g = ct__is_leaf(v.node) ? NULL : s->groups[ct__sval(s, v)->group];
        if (g && joins_reshaped(f, g, &u)) home = g;
        if (!home && !look(f, node)) return false;
    }
    for (size_t back = 1; back <= s->n_groups && back <= 16 && free_to_join && !home; back++) {
        ct_group *g = s->groups[s->n_groups - back];
        if (!g->dead && !g->only && shares_input(f, g) && joins(f, g, &u, false)) home = g;
    }
    if (!home && free_to_join && u.reduce) home = rows_beside(f, &u);
    if (!home) {
        home = new_group(f);
        if (!home) return false;
        memset(u.row, -1, sizeof u.row);
        if (u.reduce) own_rows(home, &u);
        home->sealed = sealed;
        home->gathers = gathers(f, node);
    }
    if (home->gathers) ct__sval(s, u.v)->stored = true;
    home->torn |= f->of[node->index].torn;
    int depth = depth_in(f, home, node);
    if (!add_unit(f, home, &u)) return false;
    if (depth > f->deps[home->id].depth) f->deps[home->id].depth = depth;
    f->deps[home->id].reads += outside_reads(f, home) + 1;
    for (size_t i = 0; i < f->n_reads; i++) {
        ct_val v = f->reads[i].v;
        if (!add_read(f, v.node, (int32_t)node->index, f->reads[i].in_line)) return false;
        if (!ct__is_leaf(v.node) && !add_dep(f, home->id, ct__sval(s, v)->group)) return false;
    }
    for (size_t i = 0; i < f->n_reads && s->fuse; i++) {
        ct_val v = f->reads[i].v;
        if (!ct__is_leaf(v.node) && !absorb(f, home, s->groups[ct__sval(s, v)->group], &u))
            return false;
    }
    return true;
}

static bool note_source(void *env, ct_val v, bool loaded) {
    fuser *f = env;
    ct_sched *s = f->s;
    if (ct__is_leaf(v.node) || !loaded) return true;
    ct__sval(s, v)->stored = true;
    return add_dep(f, (int32_t)s->n_groups - 1, ct__sval(s, v)->group);
}

static bool place_template(fuser *f, ct_node *node) {
    ct_sched *s = f->s;
    ct_group *g = new_group(f);
    if (!g) return false;
    g->only = node;
    for (int o = 0; o < node->n_out; o++) {
        s->vals[node->index][o].group = g->id;
        // Reads are known by node, so results beside the first lie in memory.
        s->vals[node->index][o].stored = !s->fuse || !node->op->kind->epilogue || o;
    }
    return ct__sched_walk(s, g->id, &(ct_val){node, 0}, 1, note_source, f);
}

// -------------------------------------------------- what is stored, and in which order rows reduce

static int by_index(const void *a, const void *b) {
    uint32_t x = ((const ct_unit *)a)->v.node->index, y = ((const ct_unit *)b)->v.node->index;
    return x < y ? -1 : x > y;
}

typedef struct {
    fuser *f;
    const ct_group *g;
    int level;
} level_env;
static bool note_level(void *env_, ct_val v, bool loaded) {
    level_env *env = env_;
    if (loaded || !ct__is_reduced(v.node)) return true;
    const ct_unit *m = find_unit(env->g, v);
    if (m && m->level + 1 > env->level) env->level = m->level + 1;
    return true;
}

// Several loops of a row may want it; nest.c says whether they do.
static bool add_kept(fuser *f, ct_group *g, const ct_unit *u) {
    if (!g->kept) g->kept = ct__arena(&f->s->arena, CT_MOST_KEPT * sizeof *g->kept);
    if (!g->kept) return no_memory(f->s);
    g->kept[g->n_kept++] = *u;
    return true;
}

static bool finish_group(fuser *f, ct_group *g) {
    ct_sched *s = f->s;
    if (g->n_units) qsort(g->units, g->n_units, sizeof *g->units, by_index);
    size_t kept = 0;
    for (size_t i = 0; i < g->n_units; i++) {
        ct_unit u = g->units[i];
        ct_sval *val = ct__sval(s, u.v);
        u.store = val->stored;
        if (!u.store && !u.reduce) { // computed where it is used
            val->group = -1;
            const bool keep =
                g->has_reduce && f->of[u.v.node->index].heavy && u.axes.node == u.v.node;
            if (keep && g->n_kept < CT_MOST_KEPT && !add_kept(f, g, &u)) return false;
            continue;
        }
        g->units[kept++] = u;
    }
    g->n_units = kept;
    if (kept == 0 && !g->only) g->dead = true;
    for (size_t i = 0; i < kept; i++) {
        ct_unit *u = &g->units[i];
        level_env env = {f, g, 0};
        const ct_val *from = u->reduce ? u->v.node->in : &u->v;
        if (!ct__sched_walk(s, g->id, from, 1, note_level, &env)) return false;
        u->level = env.level;
    }
    for (int i = 0; i < g->n_kept; i++) {
        level_env env = {f, g, 0};
        if (!ct__sched_walk(s, g->id, &g->kept[i].v, 1, note_level, &env)) return false;
        g->kept[i].level = env.level;
    }
    return true;
}

// --------------------------------------------------------------- what is computed again, not stored

// What a value is computed from, and the work of that.
typedef struct {
    ct_val source[AGAIN_SOURCES]; // (n)
    int n, work;
} recipe;

static bool find_recipe(fuser *f, const ct_node *node, recipe *r) {
    ct_sched *s = f->s;
    if (!ct__is_pointwise(node) || node->op->waits || ct__reads_memory(node)) return false;
    r->work += node->op->work ? node->op->work : 1;
    for (int i = 0; i < node->n_in; i++) {
        const ct_val v = node->in[i];
        if (s->stamp[v.node->index] == s->stamp_now) continue;
        s->stamp[v.node->index] = s->stamp_now;
        if (!stops(f, v.node)) {
            if (!find_recipe(f, v.node, r)) return false;
        } else if (!ct__is_leaf(v.node) || ct__count(ct__type(v)) != 1 || ct__type(v)->dyn) {
            if (r->n == AGAIN_SOURCES) return false;
            r->source[r->n++] = v;
        }
    }
    return true;
}

static bool is_read_by(const fuser *f, const ct_node *node, int32_t group) {
    for (size_t k = f->of[node->index].edge; k; k = f->edges[k - 1].older)
        if (f->s->vals[f->edges[k - 1].unit][0].group == group) return true;
    return false;
}

// Does a group find the value's sources where it runs, without that they live longer for it?
static bool finds_sources(const fuser *f, const recipe *r, int64_t bytes, int32_t group) {
    for (int i = 0; i < r->n; i++) {
        const ct_val from = r->source[i];
        if (is_read_by(f, from.node, group)) continue;
        if (ct__is_leaf(from.node) || !ct__sval(f->s, from)->stored ||
            bytes_of(from) > bytes / SMALL_PART)
            return false;
    }
    return true;
}

// Does the unit that an edge leads to take the value in, within what kernels may hold?
static bool takes_in(const fuser *f, const struct edge *edge, const recipe *r) {
    const cost *of = &f->of[edge->unit], *c = &f->of[edge->from->index];
    const ct_group *g = f->s->groups[f->s->vals[edge->unit][0].group];
    return edge->in_line && !(g->has_reduce && c->costly) &&
           of->weight + c->weight <= MOST_WEIGHT && of->loads + c->loads <= MOST_LOADS &&
           of->depth + c->depth < MOST_DEPTH && f->deps[g->id].depth + c->depth < GROUP_DEPTH &&
           f->deps[g->id].reads + (size_t)r->n <= MOST_READS &&
           finds_sources(f, r, bytes_of((ct_val){edge->from, 0}), g->id);
}

// Is it cheaper to compute the value where it is read than to move it? It is written, which reads
// the lines first, and read by so many groups.
static bool is_cheap(const fuser *f, const ct_node *node, const recipe *r, int64_t readers) {
    const int64_t moved = (2 + readers) * ct_dtype_bits((ct_dtype)node->out->dtype) / 32;
    return r->work * readers <= moved * f->s->program->target.move_work;
}

static bool compute_again(fuser *f, ct_node *node, const recipe *r) {
    for (size_t k = f->of[node->index].edge, older; k; k = older) {
        const struct edge edge = f->edges[k - 1];
        cost *of = &f->of[edge.unit];
        const cost *c = &f->of[node->index];
        const int32_t group = f->s->vals[edge.unit][0].group;
        older = edge.older;
        of->weight += c->weight;
        of->loads += c->loads;
        of->costly |= c->costly;
        of->heavy |= c->heavy;
        if (of->depth <= c->depth) of->depth = c->depth + 1;
        f->deps[group].reads += (size_t)r->n;
        f->deps[group].depth += c->depth + 1;
        for (int i = 0; i < r->n; i++)
            if (!add_read(f, r->source[i].node, edge.unit,
                          edge.in_line && bytes_of(r->source[i]) >= bytes_of((ct_val){node, 0})))
                return false;
    }
    f->of[node->index].unit = false;
    ct__sval(f->s, (ct_val){node, 0})->stored = false;
    return true;
}

// A cheap value that other groups read is computed again by them where they read its sources
// anyway, so that a gradient keeps what an activation is computed from, and nothing in between.
// Such values come before those that are computed from them.
static bool choose_again(fuser *f, ct_node *node, const bool *pinned) {
    ct_sched *s = f->s;
    ct_sval *val = ct__sval(s, (ct_val){node, 0});
    int64_t readers = 0;
    recipe r = {.n = 0};
    if (!f->of[node->index].unit || f->of[node->index].torn || f->of[node->index].divided ||
        !val->stored || pinned[node->index] || node->n_out != 1 ||
        bytes_of((ct_val){node, 0}) < AGAIN_BYTES)
        return true;
    s->stamp_now++;
    if (!find_recipe(f, node, &r)) return true;
    for (size_t k = f->of[node->index].edge; k; k = f->edges[k - 1].older) {
        const struct edge *edge = &f->edges[k - 1];
        const int32_t group = s->vals[edge->unit][0].group;
        if (group == val->group) continue;
        if (!takes_in(f, edge, &r)) return true;
        size_t other = edge->older; // is it counted with another edge of its group?
        while (other && s->vals[f->edges[other - 1].unit][0].group != group)
            other = f->edges[other - 1].older;
        readers += !other;
    }
    return !readers || !is_cheap(f, node, &r, readers) || compute_again(f, node, &r);
}

// What must lie in memory, whoever reads it. pinned: (graph->n).
static void note_pinned(const fuser *f, bool *pinned) {
    const ct_graph *g = f->s->graph;
    for (size_t r = 0; r < g->n_roots; r++) ct__sval(f->s, g->roots[r].val)->stored = true;
    for (size_t i = 0; i < g->n; i++) {
        pinned[i] |= ct__sval(f->s, (ct_val){g->nodes[i], 0})->stored; // templates read it, too
        if (ct__reads_memory(g->nodes[i])) pinned[g->nodes[i]->in[0].node->index] = true;
    }
}

static void store_what_others_read(fuser *f) {
    ct_sched *s = f->s;
    for (size_t i = 0; i < f->n_edges; i++) {
        ct_node *from = f->edges[i].from;
        if (!ct__is_leaf(from) &&
            s->vals[from->index][0].group != s->vals[f->edges[i].unit][0].group)
            s->vals[from->index][0].stored = true;
    }
}

static bool finish_groups(fuser *f) {
    ct_sched *s = f->s;
    bool *pinned = ct__calloc(s->graph->n + 1, sizeof *pinned), ok = pinned != NULL;
    if (!ok) return no_memory(s);
    note_pinned(f, pinned);
    store_what_others_read(f);
    for (size_t i = 0; i < s->graph->n && ok && s->fuse; i++)
        ok = choose_again(f, s->graph->nodes[i], pinned);
    ct__free(pinned);
    for (size_t i = 0; i < s->n_groups && ok; i++)
        if (!s->groups[i]->dead) ok = finish_group(f, s->groups[i]);
    return ok;
}

bool ct__fuse(ct_sched *s) {
    fuser f = {.s = s};
    f.of = ct__calloc(s->graph->n + 1, sizeof *f.of);
    f.e = ct__emit_new(s, NULL);
    bool ok = f.of && f.e ? true : no_memory(s);
    if (ok) mark_units(&f);
    for (size_t i = 0; i < s->graph->n && ok; i++) {
        ct_node *node = s->graph->nodes[i];
        if (stands_alone(node))
            ok = place_template(&f, node);
        else if (!ct__is_leaf(node) && f.of[i].unit)
            ok = place_unit(&f, node);
    }
    ok = ok && finish_groups(&f);
    for (size_t i = 0; i < s->n_groups && f.deps; i++) {
        ct__free(f.deps[i].v);
        ct__free(f.deps[i].by);
        ct__free(f.deps[i].needs);
    }
    ct__free(f.deps);
    ct__free(f.of);
    ct__free(f.reads);
    ct__free(f.edges);
    ct__free(f.walk);
    ct__emit_free(f.e);
    return ok;
}
