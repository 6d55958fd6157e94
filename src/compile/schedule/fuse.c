// Chooses which values one kernel computes together (fusion).
//
// There are three kinds of nodes. Cheap elementwise and moved values are *inlined*: each user computes them
// anew. Reductions, roots, and elementwise values worth storing are *units*: a group, which is one kernel,
// computes each of them once. All other nodes have a template: a kernel of their own.
//
// Units join groups greedily in graph order. Index expressions tell where a unit reads a group's values: it
// may join if each row axis of the group is one of its own axes, at equal indices, so that the thread that
// has a row has all values that the row needs. Names of ops and the order of axes have no influence.
// docs/design/fusion.md gives the reasons and the alternatives.
#include <string.h>

#include "compile/schedule/fuse.h"
#include "kinds/reduce.h"

enum {
    SHARED_OPS = 6,        // ops of a value above which several users share a buffer of it
    SHARED_LOADS = 3,      // or loads, such as a sum of the results of a few layers
    POSITION_OPS = 3,      // ops of positions above which many rows share a buffer of them
    MANY_SCALARS = 8,      // operands from which a single number is gathered, from as many kernels
    MAX_SCALARS = 1000,    // loads of a kernel that gathers scalars
    FEW_ROWS = 8,          // fewer whole rows do not share a kernel ...
    LONG_ROW = 4096,       // ... if they are longer than this
    ROWS_PER_TASK = 64,    // rows of a task where lanes run along them
    MIN_SUMMED_ROWS = 256, // fewest rows whose sum their own kernel computes ...
    TASKS_PER_CORE = 4,    // ... if each core has so many of its accumulators
    MAX_PROLOGUE_STEPS = 32, // ops that a template computes while it packs an operand
    FEW_STEPS = 4,           // the same where that spares a kernel, but few bytes
    FEW_GATHERED = 64,       // a gather of few elements takes at most one in so many
    MAX_READERS = 1024,      // number of newest readers of a value that are examined
};
#define MAX_STORED_BYTES (1 << 24) // of a value with small sources that is stored for a reduction
#define INFINITE_BYTES (INT64_MAX / 4)

bool ct__fuse_no_memory(ct_sched *s) {
    return ct__err_memory(s->err, CT_NOWHERE, "plan", sizeof(ct_group));
}
// True if the node has a group of its own.
static bool fuse_has_own_group(const ct_node *n) {
    return n->op->kind->scheduled == CT_TEMPLATE || ct__is_loop(n) || ct__is_called(n);
}
// True if the node's value is in memory whatever its users are.
static bool fuse_is_in_memory(const ct_node *n) {
    return ct__is_leaf(n) || (fuse_has_own_group(n) && !n->op->kind->epilogue);
}

int64_t ct__fuse_bytes(ct_val v) {
    const ct_type *t = ct__type(v);
    return ct__guess(t, ~0u) * ct_dtype_bits((ct_dtype)t->dtype) / 8;
}

// ------------------------------------------------------------------------------------------ groups

static ct_group *fuse_group_new(ct_fuser *f) {
    ct_sched *s = f->s;
    ct_group *g = ct__arena_zero(&s->arena, sizeof *g);
    if (!g || !CT_GROW(s->groups, s->groups_cap, s->n_groups + 1) ||
        !CT_GROW(f->deps, f->deps_cap, s->n_groups + 1)) {
        ct__fuse_no_memory(s);
        return NULL;
    }
    g->id = (int32_t)s->n_groups;
    f->deps[s->n_groups] = (struct deps){0};
    s->groups[s->n_groups++] = g;
    return g;
}

static bool fuse_add_unit(ct_fuser *f, ct_group *g, const ct_unit *u) {
    if (!CT_GROW(g->units, g->units_cap, g->n_units + 1)) return ct__fuse_no_memory(f->s);
    g->units[g->n_units++] = *u;
    g->has_reduce |= u->reduce;
    g->has_across |= u->across;
    ct__sval(f->s, u->v)->group = g->id;
    return true;
}
static ct_unit fuse_unit_new(ct_node *node) {
    ct_unit u = {.v = {node, 0}, .axes = {node, 0}, .reduce = ct__is_reduced(node), .store = true};
    memset(u.row, -1, sizeof u.row);
    return u;
}

// True if the node computes one number from many, such as the sum of the results of separate reductions. It
// runs after all of them in a kernel of its own: in the kernel of one of them it would delay that kernel
// until after the others, and none of them could run in parallel with it.
static bool fuse_gathers_scalars(const ct_fuser *f, const ct_node *node) {
    return f->s->fuse && ct__is_pointwise(node) && !node->out->dyn && ct__count(node->out) == 1 &&
           f->costs[node->index].loads >= MANY_SCALARS;
}

// Makes all axes of a reduction's result the rows of its group.
static void fuse_set_rows(ct_group *g, ct_unit *u) {
    const ct_type *t = ct__type(u->v);
    for (int a = 0; a < t->rank; a++) {
        if (ct__is_one(t, a)) continue;
        g->rows[g->n_rows].v = u->v;
        g->rows[g->n_rows].axis = a;
        u->row[a] = (int8_t)g->n_rows++;
    }
}

// True if group `from` is group `to` or depends on it, directly or through others. The set of all groups
// that a group depends on is kept as bits. Comparing ages of groups would not do, since an old group grows
// by units that read new groups.
static bool fuse_depends_on(const ct_fuser *f, int32_t from, int32_t to) {
    const struct deps *d = &f->deps[from];
    return from == to || ((size_t)to / 64 < d->words && d->ancestors[to / 64] >> to % 64 & 1);
}
// True if `from` depends on `to` through another group.
static bool fuse_depends_indirectly(const ct_fuser *f, int32_t from, int32_t to) {
    for (size_t i = 0; i < f->deps[from].n; i++)
        if (f->deps[from].v[i] != to && fuse_depends_on(f, f->deps[from].v[i], to)) return true;
    return false;
}

// Adds group `on`, and all that it depends on, to the ancestors of a group. *more: one of them is new.
static bool fuse_add_ancestors(ct_fuser *f, int32_t group, int32_t on, bool *more) {
    struct deps *d = &f->deps[group];
    const struct deps *from = &f->deps[on];
    size_t words = (size_t)on / 64 + 1;
    if (from->words > words) words = from->words;
    *more = false;
    if (words > d->words) {
        if (!CT_GROW(d->ancestors, d->words_cap, words)) return ct__fuse_no_memory(f->s);
        memset(d->ancestors + d->words, 0, (words - d->words) * sizeof *d->ancestors);
        d->words = words;
    }
    for (size_t w = 0; w < words; w++) {
        uint64_t bits = w < from->words ? from->ancestors[w] : 0;
        if (w == (size_t)on / 64) bits |= 1ull << on % 64;
        *more |= (bits & ~d->ancestors[w]) != 0;
        d->ancestors[w] |= bits;
    }
    return true;
}
// Adds the ancestors of a group to those of all groups that read it.
static bool fuse_propagate_ancestors(ct_fuser *f, int32_t group) {
    size_t depth = 0;
    if (!CT_GROW(f->worklist, f->worklist_cap, 1)) return ct__fuse_no_memory(f->s);
    f->worklist[depth++] = group;
    while (depth > 0) {
        const int32_t on = f->worklist[--depth];
        for (size_t i = 0; i < f->deps[on].n_readers; i++) {
            bool more;
            if (!fuse_add_ancestors(f, f->deps[on].readers[i], on, &more)) return false;
            if (!more) continue;
            if (!CT_GROW(f->worklist, f->worklist_cap, depth + 1)) return ct__fuse_no_memory(f->s);
            f->worklist[depth++] = f->deps[on].readers[i];
        }
    }
    return true;
}

static bool fuse_add_dependency(ct_fuser *f, int32_t group, int32_t on) {
    struct deps *d = &f->deps[group], *other = &f->deps[on];
    bool more;
    if (group == on) return true;
    for (size_t i = 0; i < d->n; i++)
        if (d->v[i] == on) return true;
    if (!CT_GROW(d->v, d->cap, d->n + 1) ||
        !CT_GROW(other->readers, other->readers_cap, other->n_readers + 1))
        return ct__fuse_no_memory(f->s);
    d->v[d->n++] = on;
    other->readers[other->n_readers++] = group;
    return fuse_add_ancestors(f, group, on, &more) && (!more || fuse_propagate_ancestors(f, group));
}

// -------------------------------------------------------------------------- what is worth a buffer

static void fuse_count_cost(ct_fuser *f, const ct_node *node) {
    ct_fuse_cost *c = &f->costs[node->index];
    c->ops = ct__is_pointwise(node) ? 1 : node->n_in > 2 ? node->n_in : 0;
    c->expensive = node->op->work && (node->out->dyn || ct__count(node->out) > 1);
    c->expensive_per_lane =
        c->expensive && node->out->rank && !ct__is_one(node->out, node->out->rank - 1);
    for (int i = 0; i < (node->op->waits ? 1 : node->n_in); i++) {
        const ct_node *in = node->in[i].node;
        const ct_type *t = ct__type(node->in[i]);
        const ct_fuse_cost *x = &f->costs[in->index];
        if (ct__is_leaf(in) || x->unit || fuse_has_own_group(in)) {
            c->loads += in->op != &ct__op_const || ct__count(in->out) != 1;
            continue;
        }
        c->ops += x->ops;
        c->loads += x->loads;
        c->expensive |= x->expensive;
        c->expensive_per_lane |=
            x->expensive_per_lane && (!ct__is_pointwise(node) || !ct__is_one(t, t->rank - 1));
        if (x->depth >= c->depth) c->depth = x->depth + 1;
    }
}

// True if an operand of a template is plain memory, or a view of it with constant steps (a vector of 16
// never crosses a multiple of 16). A template reads each element several times, so other operands are
// stored first.
static bool fuse_is_plain_view(ct_fuser *f, ct_val v, ct_node **base) {
    if (!ct__emit_restart(f->e)) return false;
    ct_ix var[CT_MAX_RANK], at[CT_MAX_RANK];
    int rank = ct__type(v)->rank;
    for (int a = 0; a < rank; a++)
        at[a] = var[a] = ct__ix_var(f->e->pool, ct__emit_size(f->e, v, a));
    ct_val from = v;
    while (ct__is_view(from.node) && !f->costs[from.node->index].unit) {
        ct_map map;
        if (!ct__emit_map(f->e, from.node, at, &map)) return false;
        const bool filled = map.n_pieces == 2 && map.piece[1].operand < 0; // the fill of a padding
        if ((map.n_pieces != 1 && !filled) || map.piece[0].operand != 0) break;
        // Padded windows are read under conditions, for which no lane should divide.
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
static bool fuse_val_is_loaded(const ct_fuser *f, ct_val v) {
    return ct__is_leaf(v.node) || fuse_has_own_group(v.node) || f->costs[v.node->index].unit;
}
// Returns the bytes of memory from which a value is computed in at most `steps` cheap ops; INFINITE_BYTES
// if it is not cheap. leaves_only: no other kernel computes those sources.
static int64_t fuse_source_bytes(const ct_fuser *f, const ct_node *template, ct_val v, int *steps,
                                 bool *leaves_only) {
    const ct_node *node = v.node;
    if (fuse_val_is_loaded(f, v)) {
        *leaves_only &= ct__is_leaf(node);
        return ct__fuse_bytes(v);
    }
    int64_t bytes = 0;
    // Rows that are gathered a block at a time, such as the pages of a cache, are read in place instead of
    // copied.
    if (template->op->kind->takes && node->op->kind->positions &&
        fuse_val_is_loaded(f, node->in[0]) && --*steps >= 0)
        return fuse_source_bytes(f, template, node->in[1], steps, leaves_only);
    const bool generated = ct__is_inlined(node) && !node->n_in; // generated, not read
    bool cheap = (ct__is_pointwise(node) || ct__is_view(node) || generated) && !node->op->work;
    cheap = cheap && --*steps >= 0;
    for (int i = 0; i < node->n_in && cheap; i++) {
        bytes += fuse_source_bytes(f, template, node->in[i], steps, leaves_only);
        cheap = bytes < INFINITE_BYTES;
    }
    return cheap ? bytes : INFINITE_BYTES;
}
// True if the template reads fewer bytes where it computes the value while packing than where the value is
// stored before. Quantised values and their scales become floats on their way into a product. So does a
// cast or scaled value, unless the kernel that computes it can do that once. The ops are repeated at each
// packing: for B once for about 256 rows of the result, which take 256 multiply-adds an element, for A once
// for about 384 columns.
static bool fuse_is_prologue(const ct_fuser *f, const ct_node *template, ct_val v) {
    int steps = MAX_PROLOGUE_STEPS;
    bool leaves_only = true;
    if (!template->op->kind->packs) return false;
    const int64_t bytes = fuse_source_bytes(f, template, v, &steps, &leaves_only),
                  stored = ct__fuse_bytes(v);
    if (bytes * 2 < stored) return true;
    return leaves_only && steps >= MAX_PROLOGUE_STEPS - FEW_STEPS && bytes <= stored + stored / 10;
}

static bool fuse_reads_leaf(const ct_fuser *f, const ct_node *node, const ct_node *leaf) {
    uint32_t *stamp = &f->s->stamp[node->index];
    if (node == leaf) return true;
    if (ct__is_leaf(node) || fuse_has_own_group(node) || *stamp == f->s->stamp_now) return false;
    *stamp = f->s->stamp_now;
    for (int i = 0; i < node->n_in; i++)
        if (fuse_reads_leaf(f, node->in[i].node, leaf)) return true;
    return false;
}
// True if a template that updates its variable in place has an operand that is computed from that variable.
// It cannot read the old values while it writes, so the operand (the few rows that are moved within the
// variable) is stored first; otherwise the whole variable would be copied.
static bool fuse_moves_within_variable(const ct_fuser *f, const ct_node *template, ct_val v) {
    const ct_graph *g = f->s->graph;
    const ct_node *leaf = template->in[0].node;
    if (!template->op->kind->changes_operand || leaf->op != &ct__op_data) return false;
    size_t r = 0;
    while (r < g->n_roots &&
           !(g->roots[r].kind == CT_ROOT_ASSIGN && g->roots[r].val.node == template &&
             g->roots[r].leaf == (int64_t)leaf->number))
        r++;
    f->s->stamp_now++;
    return r < g->n_roots && fuse_reads_leaf(f, v.node, leaf);
}

static void fuse_mark_template_operand(ct_fuser *f, const ct_node *template, ct_val v) {
    ct_node *node = v.node;
    if (ct__is_leaf(node) || fuse_has_own_group(node)) return;
    if (fuse_moves_within_variable(f, template, v)) {
        f->costs[node->index].unit = true;
        return;
    }
    if (f->s->fuse && fuse_is_prologue(f, template, v)) return;
    if (!f->s->fuse || !fuse_is_plain_view(f, v, &node)) node = v.node;
    if (!ct__is_leaf(node) && !fuse_has_own_group(node)) f->costs[node->index].unit = true;
}
// The launches of a loop, and a called function, read their operands from memory.
static void fuse_mark_loop_operand(ct_fuser *f, const ct_node *node) {
    if (!ct__is_leaf(node) && !fuse_has_own_group(node)) f->costs[node->index].unit = true;
}

// True if the node narrows a reduction that has no other user: the narrow value is stored instead.
static bool fuse_narrows_reduction(const ct_fuser *f, const ct_node *node) {
    if (!ct__is_pointwise(node) || node->n_in != 1) return false;
    const ct_node *in = node->in[0].node;
    return ct__is_reduced(in) && f->costs[in->index].users == 1 &&
           ct_dtype_bits((ct_dtype)node->out->dtype) < ct_dtype_bits((ct_dtype)in->out->dtype);
}

// True if the node gathers a few elements of a large temporary. It runs as soon as the temporary is there,
// so that the temporary does not live until those elements are used, as logits would until the loss.
static bool fuse_gathers_few(const ct_fuser *f, const ct_node *node) {
    if (!node->op->kind->positions || !f->s->fuse) return false;
    const ct_node *from = node->in[0].node;
    const int64_t bytes = ct__fuse_bytes(node->in[0]);
    uint32_t users = f->costs[from->index].users;
    for (; ct__is_view(from) && !f->costs[from->index].unit; from = from->in[0].node)
        users += f->costs[from->in[0].node->index].users - 1;
    return (fuse_has_own_group(from) || f->costs[from->index].unit) && users > 1 &&
           bytes >= CT_FUSE_MIN_REMAT_BYTES &&
           ct__guess(node->out, ~0u) <= ct__guess(ct__type(node->in[0]), ~0u) / FEW_GATHERED;
}

static void fuse_mark_reduction_inputs(ct_fuser *f) {
    const ct_graph *g = f->s->graph;
    for (size_t i = g->n; i-- > 0;) {
        const ct_node *node = g->nodes[i];
        const bool loops = ct__is_reduced(node) && !ct__fold_is_short(f->e, node);
        const bool passes = loops || (ct__is_inlined(node) && f->costs[i].feeds_reduction);
        for (int k = 0; k < node->n_in && passes; k++)
            f->costs[node->in[k].node->index].feeds_reduction = true;
    }
}

bool ct__fuse_is_loaded(const ct_fuser *f, const ct_node *node) {
    return ct__is_leaf(node) || fuse_has_own_group(node) || f->costs[node->index].unit;
}

static bool fuse_find_reads(ct_fuser *f, ct_node *node);
static bool fuse_visit(ct_fuser *f, ct_val v, const ct_ix *at);

// True if the value interleaves phases, as the gradient of a strided op does. Loops of a reduction would
// divide for each of its elements; a kernel that only interleaves has a cell for each period (cuts.c).
static bool fuse_is_noncontiguous(ct_fuser *f, ct_node *node) {
    const ct_type *t = node->out;
    bool divides = ct__is_pointwise(node), has_inputs = false;
    for (int k = 0; k < node->n_in && divides; k++) {
        if (ct__count(ct__type(node->in[k])) == 1) continue;
        divides = has_inputs = f->costs[node->in[k].node->index].torn;
    }
    if (divides && has_inputs) return true;
    if (node->op->kind->scheduled != CT_MAPPED || t->dyn || !t->rank || ct__is_one(t, t->rank - 1))
        return false;
    int64_t from = 0;
    if (!fuse_find_reads(f, node)) return false;
    const ct_ix var = f->axis[t->rank - 1];
    divides = false;
    for (size_t i = 0; i < f->n_reads; i++) {
        const ct_fuse_read *r = &f->reads[i];
        if (ct__count(ct__type(r->v)) > 1 && !ct__type(r->v)->dyn)
            from += ct__count(ct__type(r->v));
        divides |= ct__ix_divides(f->e->pool, ct__emit_offset(f->e, r->v, r->at), var, CT_LANES);
    }
    return divides && from >= ct__count(t) / 2; // it is no view that repeats few elements
}
// Stores a noncontiguous value if a node that is not a view reads it and a reduction follows.
static void fuse_store_noncontiguous(ct_fuser *f, ct_node *node) {
    ct_fuse_cost *c = &f->costs[node->index];
    c->torn = c->feeds_reduction && ct__is_inlined(node) && fuse_is_noncontiguous(f, node);
    for (int k = 0; k < node->n_in && !c->torn; k++) {
        ct_fuse_cost *in = &f->costs[node->in[k].node->index];
        in->unit |= in->torn && in->feeds_reduction && !ct__is_view(node);
    }
}

// True if lanes along several reduced axes divide their index to address what is broadcast along one of
// them.
static bool fuse_fold_divides(ct_fuser *f, const ct_node *node, int64_t *from) {
    ct_ix at[CT_MAX_RANK], var = CT_IX_NONE;
    bool divides = false;
    f->n_reads = 0;
    if (ct__emit_restart(f->e)) var = ct__fold_lanes(f->e, node, at);
    if (var == CT_IX_NONE || !fuse_visit(f, node->in[0], at)) return false;
    for (size_t i = 0; i < f->n_reads; i++) {
        const ct_fuse_read *r = &f->reads[i];
        *from += ct__guess(ct__type(r->v), ~0u);
        divides |= ct__ix_divides(f->e->pool, ct__emit_offset(f->e, r->v, r->at), var, CT_LANES);
    }
    return divides;
}
// Stores such an operand, in a kernel that loops over its axes, if it is small or not much larger than its
// sources.
static void fuse_store_divided(ct_fuser *f, const ct_node *node) {
    const ct_node *in = node->in[0].node;
    int64_t from = 0;
    if (ct__fuse_is_loaded(f, in) || !ct__is_inlined(in) || ct__fold_is_short(f->e, node) ||
        !fuse_fold_divides(f, node, &from))
        return;
    if (from >= ct__guess(in->out, ~0u) / 2 || ct__fuse_bytes(node->in[0]) <= MAX_STORED_BYTES)
        f->costs[in->index].unit = f->costs[in->index].avoids_division = true;
}

static void fuse_mark_units(ct_fuser *f) {
    const ct_graph *g = f->s->graph;
    for (size_t i = 0; i < g->n; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            f->costs[g->nodes[i]->in[k].node->index].users++;
    for (size_t r = 0; r < g->n_roots; r++) f->costs[g->roots[r].val.node->index].unit = true;
    fuse_mark_reduction_inputs(f);
    for (size_t i = 0; i < g->n; i++) {
        const ct_node *node = g->nodes[i];
        // An operand that is in memory anyway is read where it is used. Otherwise the node has a kernel of
        // its own, which runs after the operand's.
        bool needs_memory = ct__reads_memory(node) && !fuse_is_in_memory(node->in[0].node);
        f->costs[i].unit |= needs_memory;
        for (int k = 0; k < node->n_in; k++) {
            if (ct__is_loop(node) || ct__is_called(node))
                fuse_mark_loop_operand(f, node->in[k].node);
            else if (fuse_has_own_group(node))
                fuse_mark_template_operand(f, node, node->in[k]);
            // the node reads its memory
            if (needs_memory) f->costs[node->in[0].node->index].unit = true;
        }
    }
    for (size_t i = 0; i < g->n; i++) {
        ct_node *node = g->nodes[i];
        ct_fuse_cost *c = &f->costs[i];
        if (ct__is_leaf(node) || fuse_has_own_group(node)) {
            c->unit = false;
            continue;
        }
        for (int k = 0; k < node->n_in && f->s->fuse; k++) {
            ct_fuse_cost *in = &f->costs[node->in[k].node->index];
            const bool too_expensive =
                in->expensive_per_lane ||
                (node->op->kind->positions && k == 1 && in->ops >= POSITION_OPS);
            in->unit |=
                too_expensive && ct__is_inlined(node->in[k].node) && ct__repeats_operand(node, k);
        }
        fuse_count_cost(f, node);
        if (f->s->fuse) fuse_store_noncontiguous(f, node);
        if (f->s->fuse && ct__is_reduced(node)) fuse_store_divided(f, node);
        bool is_shared =
            c->users > 1 && (c->expensive || c->ops > SHARED_OPS || c->loads > SHARED_LOADS);
        c->runs_early = fuse_gathers_few(f, node);
        c->unit |= ct__is_reduced(node) || !f->s->fuse || is_shared ||
                   fuse_narrows_reduction(f, node) || c->runs_early || c->ops > CT_FUSE_MAX_OPS ||
                   c->loads > CT_FUSE_MAX_LOADS || c->depth > CT_FUSE_MAX_DEPTH;
    }
}

// ------------------------------------------------------------------ the elements that a unit reads

static bool fuse_visit_operands(ct_fuser *f, const ct_node *node, const ct_ix *at) {
    ct_ix own[CT_MAX_RANK];
    if (ct__is_pointwise(node)) {
        for (int i = 0; i < node->n_in; i++) {
            ct__broadcast_ix(f->e, node->in[i], node->out->rank, at, own);
            if (!fuse_visit(f, node->in[i], own)) return false;
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
            if (!fuse_visit(f, node->in[i], map.piece[k].from)) return false;
        }
        if (placed) continue;
        // A position reads an unknown element, which is aligned with nothing.
        for (int a = 0; a < ct__type(node->in[i])->rank; a++)
            own[a] = ct__ix_var(f->e->pool, ct__emit_size(f->e, node->in[i], a));
        if (!fuse_visit(f, node->in[i], own)) return false;
    }
    return true;
}

static bool fuse_visit(ct_fuser *f, ct_val v, const ct_ix *at) {
    if (ct__emit_recalls(f->e, v, at)) return true;
    ct__emit_remember(f->e, v, at, 0);
    if (f->s->err->code) return false;
    if (!ct__fuse_is_loaded(f, v.node)) return fuse_visit_operands(f, v.node, at);
    if (!CT_GROW(f->reads, f->reads_cap, f->n_reads + 1)) return ct__fuse_no_memory(f->s);
    f->reads[f->n_reads++] =
        (ct_fuse_read){v, f->e->draft->memo[f->e->draft->n_memo - 1].at, false};
    return true;
}

// Fills reads, axis, reduced and rank for a unit. The axes are those of `v`, which has as many elements.
static bool fuse_find_reads_along(ct_fuser *f, ct_node *node, ct_val v) {
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
    if (!(ct__is_reduced(node) ? fuse_visit(f, v, f->axis) : fuse_visit_operands(f, node, own)))
        return false;
    const ct_ix offset = ct__emit_offset(f->e, v, f->axis);
    for (size_t i = 0; i < f->n_reads; i++) {
        ct_fuse_read *r = &f->reads[i];
        r->aligned = ct__is_pointwise(r->v.node) &&
                     ct__guess(ct__type(r->v), ~0u) == ct__guess(t, ~0u) &&
                     ct__emit_offset(f->e, r->v, r->at) == offset;
    }
    return true;
}
static bool fuse_find_reads(ct_fuser *f, ct_node *node) {
    return fuse_find_reads_along(f, node, ct__is_reduced(node) ? node->in[0] : (ct_val){node, 0});
}

// Returns the axis of the unit whose variable the expression is. -1: none.
static int fuse_find_axis(const ct_fuser *f, ct_ix x) {
    for (int a = 0; a < f->rank; a++)
        if (f->axis[a] == x && ct__ix_node(f->e->pool, x)->kind == CT_IX_VAR) return a;
    return -1;
}

// ----------------------------------------------------------------------------------------- joining

static bool fuse_reads_group(const ct_fuser *f, const ct_fuse_read *r, const ct_group *g) {
    return !ct__is_leaf(r->v.node) && ct__sval(f->s, r->v)->group == g->id;
}

static bool fuse_has_same_axes(ct_fuser *f, ct_val v, ct_val w) {
    int rank = ct__type(v)->rank;
    if (ct__type(w)->rank != rank) return false;
    for (int a = 0; a < rank; a++)
        if (ct__emit_size(f->e, v, a) != ct__emit_size(f->e, w, a) ||
            ct__is_one(ct__type(v), a) !=
                ct__is_one(ct__type(w), a)) // a dynamic size may be known to be 1
            return false;
    return true;
}

// True if the unit, which is elementwise, reads each value of the group at its own element.
static bool fuse_reads_in_place(const ct_fuser *f, const ct_group *g) {
    for (size_t i = 0; i < f->n_reads; i++) {
        const ct_fuse_read *r = &f->reads[i];
        for (int a = 0; fuse_reads_group(f, r, g) && a < f->rank; a++)
            if (r->at[a] != f->axis[a]) return false;
    }
    return true;
}

const ct_unit *ct__fuse_find_unit(const ct_group *g, ct_val v) {
    for (size_t i = 0; i < g->n_units; i++)
        if (g->units[i].v.node == v.node) return &g->units[i];
    return NULL;
}

// Finds the axis of the unit that runs along each row axis of a group with rows. False: some read does not
// follow the rows.
static bool fuse_map_rows(ct_fuser *f, const ct_group *g, int8_t *along, bool *touched) {
    memset(along, -1, CT_MAX_RANK);
    *touched = false;
    for (size_t i = 0; i < f->n_reads; i++) {
        const ct_fuse_read *r = &f->reads[i];
        if (!fuse_reads_group(f, r, g)) continue;
        const ct_unit *m = ct__fuse_find_unit(g, r->v);
        if (!m || m->across || m->axes.node != m->v.node) return false;
        *touched = true;
        for (int a = 0; a < ct__type(r->v)->rank; a++) {
            if (m->row[a] < 0) continue;
            int axis = fuse_find_axis(f, r->at[a]);
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

// Returns the output axis of one of the unit's axes (of a reduction: the operand's).
static int fuse_output_axis(const ct_fuser *f, const ct_node *node, int axis) {
    if (!ct__is_reduced(node) || node->out->rank == f->rank) return axis;
    int o = 0;
    for (int a = 0; a < axis; a++) o += !f->reduced[a];
    return o;
}

// True if one thread may compute whole rows. Where the last axis is a row axis, lanes run along it, and the
// rows of a task count as one.
static bool fuse_can_keep_rows(int64_t rows, uint32_t inner, const ct_type *t) {
    int last = t->rank - 1;
    while (last > 0 && ct__is_one(t, last)) last--;
    if (last >= 0 && !(inner >> last & 1)) rows /= ROWS_PER_TASK;
    return rows >= FEW_ROWS || ct__guess(t, inner) <= LONG_ROW;
}

// Fits a unit into the rows of a group with reductions: sets its row axes. False: it does not fit (as for
// all functions of this section).
static bool fuse_fit_rows(ct_fuser *f, ct_group *g, ct_unit *u) {
    int8_t along[CT_MAX_RANK];
    bool touched;
    ct_node *node = u->v.node;
    if (!fuse_map_rows(f, g, along, &touched) || !touched) return false;
    const ct_type *t = ct__type(ct__is_reduced(node) ? node->in[0] : u->axes);
    uint32_t inner = 0;
    for (int a = 0; a < f->rank; a++)
        if (!ct__is_one(t, a)) inner |= 1u << a;
    for (int i = 0; i < g->n_rows; i++) {
        inner &= ~(1u << along[i]);
        u->row[fuse_output_axis(f, node, along[i])] = (int8_t)i;
    }
    for (int a = 0; a < f->rank && ct__is_reduced(node); a++)
        if (inner >> a & 1 && !f->reduced[a]) return false; // a reduction has no other axes
    // Reductions and rows that follow a reduction over few, long rows are better spread over threads anew.
    int64_t rows = 1;
    for (int i = 0; i < g->n_rows; i++)
        rows *= ct__guess(ct__type(g->rows[i].v), 1u << g->rows[i].axis);
    return !inner || fuse_can_keep_rows(rows, inner, t);
}

// Fits a reduction that has the operand shape and axes of one of the group's, and shares an input with it.
// It must read no other rows of the group: a convolution's gradient reads windows of the result, which
// would be computed anew for each of its elements.
static bool fuse_fit_sibling(ct_fuser *f, ct_group *g, ct_unit *u) {
    const ct_node *node = u->v.node;
    int8_t along[CT_MAX_RANK];
    bool touched;
    if (!u->reduce || !fuse_map_rows(f, g, along, &touched)) return false;
    for (size_t i = 0; i < g->n_units; i++) {
        const ct_unit *m = &g->units[i];
        const ct_node *other = m->v.node;
        if (!m->reduce || m->across || ct__along(other).axes != ct__along(node).axes ||
            other->out->rank != node->out->rank ||
            !ct__same_shape(ct__type(other->in[0]), ct__type(node->in[0])))
            continue;
        if (!fuse_has_same_axes(f, m->v, u->v)) return false;
        memcpy(u->row, m->row, sizeof u->row);
        return true;
    }
    return false;
}

// Finds the operand's axis of each of the group's rows. True if a reduction of the group keeps exactly
// these axes, and the unit keeps exactly the others, over an operand of the same sizes.
static bool fuse_is_complement(ct_fuser *f, const ct_group *g, const ct_unit *m,
                               const ct_node *node, int8_t *along) {
    const ct_node *other = m->v.node;
    const ct_type *in = ct__type(node->in[0]);
    if (!m->reduce || m->across || !fuse_has_same_axes(f, other->in[0], node->in[0])) return false;
    const uint32_t kept_axes = ~ct__along(other).axes, reduced = ct__along(node).axes;
    int row = 0;
    for (int a = 0, o = 0; a < in->rank; a++) {
        if (other->out->rank == in->rank) o = a;
        if (!ct__is_one(in, a)) {
            if ((kept_axes >> a & 1) != (reduced >> a & 1)) return false;
            if (kept_axes >> a & 1 && m->row[o] != row) return false;
            if (kept_axes >> a & 1) along[row++] = (int8_t)a;
        }
        o += kept_axes >> a & 1;
    }
    return row == g->n_rows;
}
// Fits a sum over the rows of a group with reductions, so that both read each row once. Each accumulator of
// the reduction rule is a task, so there must be many rows.
static bool fuse_fit_row_sum(ct_fuser *f, const ct_group *g, ct_unit *u) {
    const ct_node *node = u->v.node;
    const ct_type *in = ct__type(node->in[0]);
    int8_t along[CT_MAX_RANK];
    bool found = false;
    if (!u->reduce || node->op->reduction != CT_RED_ADD || ct__folds_of(f->e, node).n != 1)
        return false;
    for (size_t i = 0; i < g->n_units && !found; i++) {
        found = fuse_is_complement(f, g, &g->units[i], node, along);
        if (g->units[i].across && !fuse_has_same_axes(f, g->units[i].v.node->in[0], node->in[0]))
            return false;
    }
    const uint32_t reduced = ct__along(node).axes;
    int last = in->rank - 1;
    while (last > 0 && ct__is_one(in, last)) last--;
    const int64_t rows = ct__guess(in, reduced), wide = ct__guess(in, ~reduced);
    const int64_t tasks = (rows + CT_REDUCE_BLOCK - 1) / CT_REDUCE_BLOCK * CT_LANES;
    if (!found || reduced >> last & 1 || rows < MIN_SUMMED_ROWS || wide < ROWS_PER_TASK ||
        tasks < TASKS_PER_CORE * f->s->program->target.cores)
        return false;
    for (size_t i = 0; i < f->n_reads; i++) {
        const ct_fuse_read *r = &f->reads[i];
        if (!fuse_reads_group(f, r, g)) continue;
        const ct_unit *m = ct__fuse_find_unit(g, r->v);
        if (!m || m->across || m->axes.node != m->v.node) return false;
        for (int a = 0; a < ct__type(r->v)->rank; a++)
            if (m->row[a] >= 0 && fuse_find_axis(f, r->at[a]) != along[m->row[a]]) return false;
    }
    memset(u->row, -1, sizeof u->row);
    return u->across = true;
}

static bool fuse_is_flat(const ct_type *t) {
    int axes = 0;
    for (int a = 0; a < t->rank; a++) axes += !ct__is_one(t, a);
    return axes <= 1;
}
// True if two values have as many elements and one of them has a single axis, as random bits have.
static bool fuse_is_flattened(ct_val v, ct_val w) {
    const ct_type *a = ct__type(v), *b = ct__type(w);
    return !a->dyn && !b->dyn && ct__count(a) == ct__count(b) &&
           (fuse_is_flat(a) || fuse_is_flat(b));
}
// True if the unit reads each value of the group at the position of its own element, in the order of both.
static bool fuse_reads_in_order(ct_fuser *f, const ct_group *g, const ct_unit *u) {
    const ct_ix own = ct__emit_offset(f->e, u->v, f->axis);
    for (size_t i = 0; i < f->n_reads; i++)
        if (fuse_reads_group(f, &f->reads[i], g) &&
            ct__emit_offset(f->e, f->reads[i].v, f->reads[i].at) != own)
            return false;
    return true;
}

// Fits an elementwise unit into a group of elementwise ones. They have the same axes and the reads are in
// place, or they have as many elements in the same order.
static bool fuse_fit_pointwise(ct_fuser *f, ct_group *g, ct_unit *u) {
    if (u->reduce) return false;
    if (fuse_has_same_axes(f, u->v, g->units[0].v)) return fuse_reads_in_place(f, g);
    return fuse_is_flattened(u->v, g->units[0].v) && fuse_reads_in_order(f, g, u);
}
static bool fuse_has_one_shape(ct_fuser *f, const ct_group *g) {
    for (size_t i = 1; i < g->n_units; i++)
        if (!fuse_has_same_axes(f, g->units[i].v, g->units[0].v)) return false;
    return true;
}

// Fits a reduction into a group of elementwise units, whose axes become rows and reduced axes.
static bool fuse_fit_reduction(ct_fuser *f, ct_group *g, ct_unit *u) {
    int8_t axis[CT_MAX_RANK];
    memset(axis, -1, sizeof axis);
    if (!u->reduce || !fuse_has_one_shape(f, g)) return false;
    const ct_type *t = ct__type(g->units[0].v), *in = ct__type(u->v.node->in[0]);
    bool touched = false;
    for (size_t i = 0; i < f->n_reads; i++) {
        const ct_fuse_read *r = &f->reads[i];
        if (!fuse_reads_group(f, r, g)) continue;
        touched = true;
        for (int a = 0; a < t->rank; a++) {
            if (ct__is_one(t, a)) continue;
            int own = fuse_find_axis(f, r->at[a]);
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
    if (!touched || !fuse_can_keep_rows(ct__guess(in, rows), inner, in)) return false;
    fuse_set_rows(g, u);
    for (size_t i = 0; i < g->n_units; i++)
        for (int a = 0; a < t->rank; a++)
            if (axis[a] >= 0 && !f->reduced[axis[a]])
                g->units[i].row[a] = u->row[fuse_output_axis(f, u->v.node, axis[a])];
    return true;
}

static bool fuse_shares_input(ct_fuser *f, const ct_group *g) {
    for (size_t i = 0; i < f->n_reads; i++) {
        const ct_node *x = f->reads[i].v.node;
        const ct_type *type = ct__type(f->reads[i].v);
        if (!type->dyn && ct__count(type) < 2) continue;
        for (size_t k = f->costs[x->index].newest_edge, n = MAX_READERS; k && n--;
             k = f->edges[k - 1].older)
            if (f->s->vals[f->edges[k - 1].unit][0].group == g->id) return true;
    }
    return false;
}

// True if another source of the unit depends on the group.
static bool fuse_closes_cycle(ct_fuser *f, const ct_group *g) {
    for (size_t i = 0; i < f->n_reads; i++) {
        ct_val v = f->reads[i].v;
        if (ct__is_leaf(v.node)) continue;
        int32_t from = ct__sval(f->s, v)->group;
        if (from != g->id && fuse_depends_on(f, from, g->id)) return true;
    }
    return false;
}

static int fuse_depth_in(ct_fuser *f, const ct_group *g, const ct_node *node) {
    bool reads_it = false;
    for (size_t i = 0; i < f->n_reads; i++) reads_it |= fuse_reads_group(f, &f->reads[i], g);
    return f->costs[node->index].depth + 1 + (reads_it ? f->deps[g->id].depth : 0);
}

// Fits an elementwise unit as an epilogue of a template, which computes it from each element before that is
// stored.
static bool fuse_fit_epilogue(ct_fuser *f, ct_group *g, ct_unit *u) {
    if (u->reduce || !g->only->op->kind->epilogue) return false;
    for (size_t i = 0; i < f->n_reads;
         i++) // the kernel stores the template's other results elsewhere
        if (f->reads[i].v.node == g->only && f->reads[i].v.out) return false;
    return fuse_has_same_axes(f, u->v, (ct_val){g->only, 0}) && fuse_reads_in_place(f, g);
}

static size_t fuse_count_outside_reads(const ct_fuser *f, const ct_group *g) {
    size_t n = 0;
    for (size_t i = 0; i < f->n_reads; i++) n += !fuse_reads_group(f, &f->reads[i], g);
    return n;
}

// Fits a unit into a group that gathers scalars, if it reads the group. Values of such a group are stored,
// so no inlining is nested.
static bool fuse_fit_scalars(ct_fuser *f, ct_group *g, const ct_unit *u, bool reads_it) {
    if (!reads_it || u->reduce || g->dead || ct__count(u->v.node->out) != 1 ||
        u->v.node->out->dyn || f->deps[g->id].reads + fuse_count_outside_reads(f, g) >= MAX_SCALARS)
        return false;
    return !fuse_closes_cycle(f, g);
}

// True if the group has capacity for the unit, in whatever way the unit fits into it.
static bool fuse_has_capacity(ct_fuser *f, const ct_group *g, const ct_unit *u) {
    if (g->dead || g->sealed || g->n_units >= CT_MOST_UNITS ||
        f->deps[g->id].reads + fuse_count_outside_reads(f, g) >= CT_FUSE_MAX_READS ||
        fuse_depth_in(f, g, u->v.node) > CT_FUSE_MAX_GROUP_DEPTH)
        return false;
    if (u->reduce && f->costs[u->v.node->in[0].node->index].avoids_division &&
        ct__sval(f->s, u->v.node->in[0])->group == g->id)
        return false;
    if ((g->torn && u->reduce) || (g->has_reduce && f->costs[u->v.node->index].torn)) return false;
    return !fuse_closes_cycle(f, g);
}
static bool fuse_fit_unit(ct_fuser *f, ct_group *g, ct_unit *u, bool reads_it) {
    memset(u->row, -1, sizeof u->row);
    if (g->gathers) return fuse_fit_scalars(f, g, u, reads_it);
    if (fuse_gathers_scalars(f, u->v.node) || !fuse_has_capacity(f, g, u)) return false;
    if (g->only) return reads_it && fuse_fit_epilogue(f, g, u);
    if (g->has_reduce && (reads_it ? fuse_fit_rows(f, g, u) : fuse_fit_sibling(f, g, u)))
        return true;
    if (g->has_reduce) return fuse_fit_row_sum(f, g, u);
    if (!reads_it) return fuse_fit_pointwise(f, g, u);
    return u->reduce ? fuse_fit_reduction(f, g, u) : fuse_fit_pointwise(f, g, u);
}

// Merges group b, which the unit also reads, into group g: both are elementwise, or both have the rows that
// the unit has.
static bool fuse_merge_group(ct_fuser *f, ct_group *g, ct_group *b, const ct_unit *u) {
    if (g->only || b->only || b->dead || b->sealed || g->sealed || b == g || u->across ||
        g->has_across || b->has_across || g->gathers || b->gathers ||
        g->n_units + b->n_units > CT_MOST_UNITS ||
        f->deps[g->id].depth + f->deps[b->id].depth > CT_FUSE_MAX_GROUP_DEPTH ||
        f->deps[g->id].reads + f->deps[b->id].reads > CT_FUSE_MAX_READS ||
        g->has_reduce != b->has_reduce || fuse_depends_indirectly(f, g->id, b->id) ||
        fuse_depends_indirectly(f, b->id, g->id))
        return true;
    ct_unit trial = *u;
    int8_t to[CT_MAX_RANK];
    memset(to, -1, sizeof to);
    if (!b->has_reduce) {
        if (!fuse_fit_pointwise(f, b, &trial)) return true;
    } else {
        bool touched;
        int8_t along[CT_MAX_RANK];
        if (!fuse_map_rows(f, b, along, &touched) || !touched || b->n_rows != g->n_rows)
            return true;
        for (int i = 0; i < b->n_rows; i++) {
            to[i] = u->row[fuse_output_axis(f, u->v.node, along[i])];
            if (to[i] < 0) return true;
        }
    }
    for (size_t i = 0; i < b->n_units; i++) {
        ct_unit m = b->units[i];
        for (int a = 0; a < CT_MAX_RANK; a++)
            if (m.row[a] >= 0) m.row[a] = to[m.row[a]];
        if (!fuse_add_unit(f, g, &m)) return false;
    }
    b->dead = true;
    f->deps[g->id].reads += f->deps[b->id].reads;
    if (f->deps[b->id].depth > f->deps[g->id].depth) f->deps[g->id].depth = f->deps[b->id].depth;
    for (size_t i = 0; i < f->deps[b->id].n; i++)
        if (!fuse_add_dependency(f, g->id, f->deps[b->id].v[i])) return false;
    f->deps[b->id].n = 0;
    for (size_t i = 0; i < f->deps[b->id].n_readers; i++) {
        const int32_t by = f->deps[b->id].readers[i];
        struct deps *d = &f->deps[by];
        size_t k = 0;
        while (k < d->n && d->v[k] != b->id) k++;
        if (k == d->n) continue; // it is part of another group by now
        d->v[k] = d->v[--d->n];
        if (!fuse_add_dependency(f, by, g->id)) return false;
    }
    return true;
}

bool ct__fuse_add_edge(ct_fuser *f, ct_node *from, int32_t unit, bool aligned) {
    if (!CT_GROW(f->edges, f->edges_cap, f->n_edges + 1)) return ct__fuse_no_memory(f->s);
    size_t *newest = &f->costs[from->index].newest_edge;
    f->edges[f->n_edges++] = (struct edge){from, unit, *newest, aligned};
    *newest = f->n_edges;
    return true;
}

// Fits a unit that is a reshape of a reduction's operand into the group of that reduction: it runs over the
// operand's axes.
static bool fuse_fit_reshaped(ct_fuser *f, ct_group *g, ct_unit *u) {
    const ct_node *node = u->v.node;
    if (u->reduce || !g->has_reduce || g->only) return false;
    for (size_t i = 0; i < g->n_units; i++) {
        const ct_unit *m = &g->units[i];
        const ct_val in = m->v.node->in[0];
        if (!m->reduce || node->out->dyn || ct__type(in)->dyn ||
            ct__count(ct__type(in)) != ct__count(node->out))
            continue;
        u->axes = in;
        if (fuse_find_reads_along(f, u->v.node, in) && fuse_fit_unit(f, g, u, true)) return true;
        break;
    }
    u->axes = u->v;
    return false;
}

// Returns a group, however old, over whose rows the reduction sums and that reads an operand of it. In a
// training step the gradients of weights come after the whole chain of gradients of activations.
static ct_group *fuse_find_row_group(ct_fuser *f, ct_unit *u) {
    const ct_sched *s = f->s;
    for (size_t i = 0; i < f->n_reads; i++) {
        const ct_type *type = ct__type(f->reads[i].v);
        if (!type->dyn && ct__count(type) < MIN_SUMMED_ROWS) continue;
        int n_left = MAX_READERS;
        for (size_t k = f->costs[f->reads[i].v.node->index].newest_edge; k && n_left--;
             k = f->edges[k - 1].older) {
            ct_group *g = s->groups[s->vals[f->edges[k - 1].unit][0].group];
            if (g->has_reduce && !g->only && fuse_has_capacity(f, g, u) &&
                fuse_fit_row_sum(f, g, u))
                return g;
        }
    }
    return NULL;
}

static bool fuse_place_unit(ct_fuser *f, ct_node *node) {
    ct_sched *s = f->s;
    ct_unit u = fuse_unit_new(node);
    ct_group *group = NULL;
    if (!fuse_find_reads(f, node)) return false;
    const bool needs_memory = ct__reads_memory(node) && !fuse_is_in_memory(node->in[0].node),
               must_seal = needs_memory || f->costs[node->index].runs_early,
               free_to_join = s->fuse && !must_seal;
    for (size_t i = 0; i < f->n_reads && free_to_join && !group; i++) {
        const ct_val v = f->reads[i].v;
        ct_group *g = ct__is_leaf(v.node) ? NULL : s->groups[ct__sval(s, v)->group];
        if (g && g->gathers && fuse_fit_unit(f, g, &u, true)) group = g;
    }
    // Templates come first: an epilogue saves a pass over memory whatever follows.
    for (int other = 0; other < 2 && free_to_join && !group; other++)
        for (size_t i = 0; i < f->n_reads && !group; i++) {
            ct_val v = f->reads[i].v;
            if (ct__is_leaf(v.node)) continue;
            ct_group *g = s->groups[ct__sval(s, v)->group];
            if ((g->only == NULL) == other && fuse_fit_unit(f, g, &u, true)) group = g;
        }
    const size_t n_reads = f->n_reads;
    for (size_t i = 0; i < n_reads && free_to_join && !group; i++) {
        const ct_val v = f->reads[i].v;
        ct_group *g = ct__is_leaf(v.node) ? NULL : s->groups[ct__sval(s, v)->group];
        if (g && fuse_fit_reshaped(f, g, &u)) group = g;
        if (!group && !fuse_find_reads(f, node)) return false;
    }
    for (size_t back = 1; back <= s->n_groups && back <= 16 && free_to_join && !group; back++) {
        ct_group *g = s->groups[s->n_groups - back];
        if (!g->dead && !g->only && fuse_shares_input(f, g) && fuse_fit_unit(f, g, &u, false))
            group = g;
    }
    if (!group && free_to_join && u.reduce) group = fuse_find_row_group(f, &u);
    if (!group) {
        group = fuse_group_new(f);
        if (!group) return false;
        memset(u.row, -1, sizeof u.row);
        if (u.reduce) fuse_set_rows(group, &u);
        group->sealed = must_seal;
        group->gathers = fuse_gathers_scalars(f, node);
    }
    if (group->gathers) ct__sval(s, u.v)->stored = true;
    group->torn |= f->costs[node->index].torn;
    int depth = fuse_depth_in(f, group, node);
    if (!fuse_add_unit(f, group, &u)) return false;
    if (depth > f->deps[group->id].depth) f->deps[group->id].depth = depth;
    f->deps[group->id].reads += fuse_count_outside_reads(f, group) + 1;
    for (size_t i = 0; i < f->n_reads; i++) {
        ct_val v = f->reads[i].v;
        if (!ct__fuse_add_edge(f, v.node, (int32_t)node->index, f->reads[i].aligned)) return false;
        if (!ct__is_leaf(v.node) && !fuse_add_dependency(f, group->id, ct__sval(s, v)->group))
            return false;
    }
    for (size_t i = 0; i < f->n_reads && s->fuse; i++) {
        ct_val v = f->reads[i].v;
        if (!ct__is_leaf(v.node) &&
            !fuse_merge_group(f, group, s->groups[ct__sval(s, v)->group], &u))
            return false;
    }
    return true;
}

static bool fuse_visit_source(void *env, ct_val v, bool loaded) {
    ct_fuser *f = env;
    ct_sched *s = f->s;
    if (ct__is_leaf(v.node) || !loaded) return true;
    ct__sval(s, v)->stored = true;
    return fuse_add_dependency(f, (int32_t)s->n_groups - 1, ct__sval(s, v)->group);
}

static bool fuse_place_template(ct_fuser *f, ct_node *node) {
    ct_sched *s = f->s;
    ct_group *g = fuse_group_new(f);
    if (!g) return false;
    g->only = node;
    for (int o = 0; o < node->n_out; o++) {
        s->vals[node->index][o].group = g->id;
        // Reads are known by node, so results other than the first are in memory.
        s->vals[node->index][o].stored = !s->fuse || !node->op->kind->epilogue || o;
    }
    return ct__sched_walk(s, g->id, &(ct_val){node, 0}, 1, fuse_visit_source, f);
}

bool ct__fuse(ct_sched *s) {
    ct_fuser f = {.s = s};
    f.costs = ct__calloc(s->graph->n + 1, sizeof *f.costs);
    f.e = ct__emit_new(s, NULL);
    bool ok = f.costs && f.e ? true : ct__fuse_no_memory(s);
    if (ok) fuse_mark_units(&f);
    for (size_t i = 0; i < s->graph->n && ok; i++) {
        ct_node *node = s->graph->nodes[i];
        if (fuse_has_own_group(node))
            ok = fuse_place_template(&f, node);
        else if (!ct__is_leaf(node) && f.costs[i].unit)
            ok = fuse_place_unit(&f, node);
    }
    ok = ok && ct__fuse_finish_groups(&f);
    for (size_t i = 0; i < s->n_groups && f.deps; i++) {
        ct__free(f.deps[i].v);
        ct__free(f.deps[i].readers);
        ct__free(f.deps[i].ancestors);
    }
    ct__free(f.deps);
    ct__free(f.costs);
    ct__free(f.reads);
    ct__free(f.edges);
    ct__free(f.worklist);
    ct__emit_free(f.e);
    return ok;
}
