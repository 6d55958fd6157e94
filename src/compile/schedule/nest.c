// Writes the loop nest of the kernel that computes a group of values.
//
// A group without reductions: the trailing axes along which all accesses have constant strides are one
// LANES loop. Chunks of that loop, or the axes before it, are the ROWS loop. Axes may be split (cuts.c):
// into ranges, each with a loop of its own, or into cells of a few elements that one iteration computes.
//
// A group with reductions: the ROWS loop runs over rows, which are the axes that all reductions keep. In a
// row, independent reductions over the same extent share a loop; the values that need them are computed in
// later loops. Lanes run along the reduced axes, or along the last row axes where memory is contiguous
// along those (sums over columns).
//
// A long reduction with few rows is split into the blocks of the reduction rule (kir.h), which changes no
// bit, and a second launch that folds the blocks. A reduction over a dynamic extent may be long, so it is
// split too: making a plan determines the number of blocks.
#include <math.h>
#include <string.h>

#include "compile/schedule/nest.h"
#include "kinds/reduce.h"

enum {
    MAX_COPIES = 64,                // of the body of a pointwise kernel
    MAX_SPLIT_INSTRUCTIONS = 8000,  // of a kernel with split axes: its compile time is bounded, too
    PREFETCH_ROWS = 2,              // distance at which short rows are prefetched; long rows: 1
    PREFETCH_SHORT_BYTES = 1 << 15, // largest short row
    PREFETCH_MAX_BYTES = 1 << 18,   // largest row that is prefetched
    UNCACHED_BYTES = 1 << 20,       // smallest buffer that a core's cache does not hold
    TASKS_PER_CORE = 4,             // fewest tasks for each core where rows are summed
    // fewest rows, and elements, whose sums are worth a second launch that folds accumulators
    MIN_SUMMED_ROWS = 256,
    MIN_SUMMED_ELEMENTS = 1 << 18,
};

int64_t ct__nest_estimate(const ct_emit *e, ct_ix x) {
    const ct_ix_node *n = ct__ix_node(e->pool, x);
    int64_t r = 0;
    for (int i = 0; n->kind == CT_IX_SUM && i < n->n; i++) {
        int syms[16], m = ct__ix_mono(e->pool, n->term[i].mono, syms, 16);
        int64_t t = n->term[i].coef;
        for (int k = 0; k < m && t < (INT64_MAX >> 8); k++) t *= 64;
        r += t;
    }
    return n->kind == CT_IX_SUM ? r : 64;
}
ct_ix ct__nest_product(ct_emit *e, const ct_ix *size, int n) {
    ct_ix r = ct__ix_int(e->pool, 1);
    for (int i = 0; i < n; i++) r = ct__ix_mul(e->pool, r, size[i]);
    return r;
}
double ct__nest_estimate_product(const ct_emit *e, const ct_ix *size, int n) {
    double r = 1;
    for (int i = 0; i < n; i++) r *= (double)ct__nest_estimate(e, size[i]);
    return r;
}
bool ct__nest_is_dynamic(const ct_emit *e, ct_ix x) {
    int64_t n;
    return !ct__ix_is_int(e->pool, x, &n);
}
bool ct__nest_is_one(const ct_emit *e, ct_ix x) {
    int64_t n;
    return ct__ix_is_int(e->pool, x, &n) && n == 1;
}
// Returns the variable of the nth inner loop over an extent. It is the same variable in all stages, so that
// values computed in two stages have equal indices.
static ct_ix nest_inner_var(ct_nest *n, ct_ix extent, int nth) {
    for (int i = 0; i < n->n_inner; i++)
        if (n->inner[i].extent == extent && n->inner[i].nth == nth) return n->inner[i].var;
    ct_ix var = ct__ix_var(n->e->pool, extent);
    if (n->n_inner < CT_NEST_MOST_INNER) {
        n->inner[n->n_inner].extent = extent;
        n->inner[n->n_inner].nth = nth;
        n->inner[n->n_inner++].var = var;
    }
    return var;
}
static void nest_open_lanes(ct_nest *n, ct_ix extent, ct_ix var) {
    ct__emit_open(n->e, CT_BIND_LANES, extent, NULL, var);
    for (int i = 0; i < n->n_lane_vars; i++)
        if (n->lane_vars[i] == var) return;
    if (n->n_lane_vars < CT_NEST_MOST_INNER) n->lane_vars[n->n_lane_vars++] = var;
}

// ---------------------------------------------------------------------------------- units of a row

// Computes the index of a unit's value. Row axes have the row's index, axes of size 1 have 0, inner axes
// are taken from `inner`.
static void nest_unit_index(ct_nest *n, const ct_unit *u, const ct_ix *inner, ct_ix *at) {
    const ct_type *t = ct__type(u->axes);
    ct_ix along[CT_MAX_RANK];
    for (int a = 0, i = 0; a < t->rank; a++) {
        if (ct__is_one(t, a))
            along[a] = ct__ix_int(n->e->pool, 0);
        else if (u->row[a] >= 0)
            along[a] = n->row[u->row[a]];
        else
            along[a] = inner[i++];
    }
    ct__emit_index_as(n->e, u->v, along, u->axes, at);
}
static int nest_inner_sizes(ct_nest *n, const ct_unit *u, ct_ix *size) {
    const ct_type *t = ct__type(u->axes);
    int count = 0;
    for (int a = 0; a < t->rank; a++)
        if (u->row[a] < 0 && !(ct__is_one(t, a))) size[count++] = ct__emit_size(n->e, u->axes, a);
    return count;
}

static void nest_store_result(ct_nest *n, const ct_unit *u, ct_kval r) {
    ct_ix at[CT_MAX_RANK];
    nest_unit_index(n, u, NULL, at);
    ct__emit_remember(n->e, u->v, at, r);
    if (u->store) ct__emit_store(n->e, u->v, at, r);
}

// Returns the offset of a row's result of a block: ordered by block, then by row.
static ct_ix nest_partial_offset(ct_nest *n, ct_ix block) {
    ct_ix at = block;
    for (int i = 0; i < n->g->n_rows; i++)
        at = ct__ix_add(n->e->pool, ct__ix_mul(n->e->pool, at, n->row_size[i]), n->row[i]);
    return at;
}
static ct_dtype nest_partial_dtype(const ct_unit *u) { // as wide as the sum
    return ct__kir_compute_dtype((ct_dtype)ct__type(u->v.node->in[0])->dtype);
}

static ct_ix nest_block_count(ct_emit *e, ct_ix extent) {
    ct_ix up = ct__ix_add(e->pool, extent, ct__ix_int(e->pool, CT_REDUCE_BLOCK - 1));
    return ct__ix_div(e->pool, up, ct__ix_int(e->pool, CT_REDUCE_BLOCK));
}

// Stores, in the open loop, the stored values that run over its extent and need only reductions of earlier
// levels, so that what the loop and these values share is computed once.
static void nest_store_in_loop(ct_nest *n, int level, ct_ix extent, ct_ix var, bool *done) {
    ct_emit *e = n->e;
    ct_ix size[CT_MAX_RANK], inner[CT_MAX_RANK], at[CT_MAX_RANK];
    size_t members[64], m = 0;
    ct_kval value[64];
    for (size_t i = 0; i < n->g->n_units && m < 64 && n->flat && n->pass == 0; i++) {
        const ct_unit *u = &n->g->units[i];
        int count = u->reduce ? 0 : nest_inner_sizes(n, u, size);
        if (done[i] || count == 0 || u->level > level || ct__nest_product(e, size, count) != extent)
            continue;
        ct__unflatten_ix(e->pool, var, size, count, inner);
        nest_unit_index(n, u, inner, at);
        value[m] = ct__emit_value(e, u->v, at, CT_DEFAULT);
        members[m++] = i;
        done[i] = true;
    }
    for (size_t i = 0; i < m; i++) {
        const ct_unit *u = &n->g->units[members[i]];
        int count = nest_inner_sizes(n, u, size);
        ct__unflatten_ix(e->pool, var, size, count, inner);
        nest_unit_index(n, u, inner, at);
        ct__emit_store(e, u->v, at, value[i]);
    }
}

// Fills the scratch memory of reused values in the first loop over their elements that can compute them.
static void nest_fill_reused(ct_nest *n, int level, ct_ix extent, ct_ix var) {
    ct_emit *e = n->e;
    ct_ix size[CT_MAX_RANK], inner[CT_MAX_RANK], at[CT_MAX_RANK];
    for (int i = 0; i < e->draft->n_kept; i++) {
        ct_kept *k = &e->draft->kept[i];
        if (k->buf < 0 || k->filled || k->unit->level > level) continue;
        const int count = nest_inner_sizes(n, k->unit, size);
        if (ct__nest_product(e, size, count) != extent) continue;
        ct__unflatten_ix(e->pool, var, size, count, inner);
        nest_unit_index(n, k->unit, inner, at);
        const ct_kval value = ct__emit_value(e, k->unit->v, at, CT_DEFAULT);
        ct__kir_store(e->kir, k->buf, ct__emit_ix(e, var), value);
        k->filling = true;
    }
}
static void nest_end_loop(ct_nest *n) {
    ct_kernel_builder *d = n->e->draft;
    ct__emit_end(n->e);
    for (int i = 0; i < d->n_kept; i++) d->kept[i].filled |= d->kept[i].filling;
}

// Registers the values that a row may reuse: floats of a static number of elements, where lanes run inside
// of the row.
static void nest_make_reused(ct_nest *n) {
    ct_kernel_builder *d = n->e->draft;
    for (int i = 0; i < n->g->n_kept && !n->lanes && !n->pass && n->flat; i++) {
        const ct_unit *u = &n->g->kept[i];
        const ct_dtype dtype = (ct_dtype)ct__type(u->v)->dtype;
        ct_ix size[CT_MAX_RANK];
        int64_t count;
        const int axes = nest_inner_sizes(n, u, size);
        if (!ct__is_float(dtype) ||
            !ct__ix_is_int(n->e->pool, ct__nest_product(n->e, size, axes), &count) ||
            count < CT_LANES || count > n->e->target.reuse_elements ||
            (n->reuse_decided && !(n->reused_mask >> i & 1)))
            continue;
        ct_kept *k = &d->kept[d->n_kept++];
        *k = (ct_kept){.unit = u, .number = i, .buf = -1};
        if (n->reuse_decided)
            k->buf = ct__kir_local(n->e->kir, ct__kir_compute_dtype(dtype), count);
    }
}

// True if an access reads elements that advance from row to row, in a buffer that fits into no cache. *row
// is the distance between rows.
static bool nest_advances_by_row(const ct_nest *n, const ct_seen *x, int64_t *row) {
    ct_ix_pool *p = n->e->pool;
    const ct_buf *buf = &n->e->draft->sched->program->bufs[x->buf];
    ct_ix by;
    return n->row_index >= 0 && !x->write && x->guard < 0 &&
           (ct__marked(buf->size) || buf->bytes >= UNCACHED_BYTES) &&
           ct__ix_stride(p, x->offset, n->row_index, &by) && ct__ix_is_int(p, by, row) &&
           *row >= CT_LANES;
}

static bool nest_is_first_access(const ct_kernel_builder *d, size_t first, size_t access) {
    const ct_seen *x = &d->seen[access];
    while (first < access && (d->seen[first].buf != x->buf || d->seen[first].offset != x->offset))
        first++;
    return first == access;
}

// Returns the number of operands that advance by rows.
static int nest_count_row_operands(const ct_nest *n) {
    const ct_kernel_builder *d = n->e->draft;
    int64_t row;
    int count = 0;
    for (size_t i = n->row_first_access; i < d->n_seen; i++)
        count += nest_is_first_access(d, n->row_first_access, i) &&
                 nest_advances_by_row(n, &d->seen[i], &row);
    return count;
}

// Prefetches, for later rows, what earlier loops read of the row: a row that is read again is in a cache,
// so memory would be idle meanwhile. The processor prefetches a single operand of short rows by itself.
static void nest_prefetch_rows(ct_nest *n, ct_ix extent, ct_ix var) {
    ct_emit *e = n->e;
    ct_kernel_builder *d = e->draft;
    const size_t n_seen = d->n_seen;
    int64_t elements, row, step;
    ct_ix by;
    if (!ct__ix_is_int(e->pool, extent, &elements)) return;
    for (size_t i = n->row_first_access; i < n_seen; i++) {
        const ct_seen x = d->seen[i];
        const int64_t bytes = elements * (int64_t)ct_dtype_size(x.dtype);
        const bool is_short = bytes <= PREFETCH_SHORT_BYTES;
        if ((is_short && n->n_row_operands < 2) || bytes > PREFETCH_MAX_BYTES ||
            !nest_is_first_access(d, n->row_first_access, i) ||
            !nest_advances_by_row(n, &x, &row) || row < elements ||
            !ct__ix_stride(e->pool, x.offset, var, &by) || !ct__ix_is_int(e->pool, by, &step) ||
            step != 1)
            continue;
        bool prefetched = false;
        for (int k = 0; k < n->n_prefetched; k++) prefetched |= n->prefetched[k] == i;
        if (prefetched || n->n_prefetched == CT_NEST_MOST_PREFETCHED) continue;
        n->prefetched[n->n_prefetched++] = i;
        const ct_ix more = ct__ix_int(e->pool, (is_short ? PREFETCH_ROWS : 1) * row);
        const ct_ix later = ct__ix_add(e->pool, x.offset, more);
        ct__emit_ix(e, later); // an index that is loaded is not prefetched
        ct__kir_set_prefetch_mode(e->kir, true);
        ct__emit_load_at(e, x.buf, x.bytes, x.dtype, later);
        ct__kir_set_prefetch_mode(e->kir, false);
        d->n_seen = n_seen; // a prefetch is no access
    }
}

typedef struct {
    size_t unit[64], n;
    ct_folds folds; // of the first; the others have equal extents
    int level;
} nest_reductions;

// Finds the reductions of one level that run over the same extents as unit `first`.
static nest_reductions nest_find_reductions(const ct_nest *n, size_t first, const bool *done) {
    const ct_group *g = n->g;
    const ct_unit *u = &g->units[first];
    nest_reductions m = {.folds = ct__folds_of(n->e, u->v.node), .level = u->level};
    const size_t bytes = (size_t)m.folds.n * sizeof *m.folds.extent;
    for (size_t i = first; i < g->n_units && m.n < 64; i++) {
        u = &g->units[i];
        if (!u->reduce || u->across || done[i] || u->level != m.level) continue;
        const ct_folds own = ct__folds_of(n->e, u->v.node);
        if (own.n == m.folds.n && memcmp(own.extent, m.folds.extent, bytes) == 0) m.unit[m.n++] = i;
    }
    return m;
}

// Computes the elements of the reductions at a position, or their results over the folds from `fold` on,
// which are nested loops.
static void nest_reduce_from(ct_nest *n, const nest_reductions *m, int fold, ct_ix *position,
                             ct_kval *value, bool *done) {
    ct_emit *e = n->e;
    const int folds = m->folds.n;
    if (fold == folds) {
        for (size_t i = 0; i < m->n; i++) {
            const ct_unit *u = &n->g->units[m->unit[i]];
            const ct_folds own = ct__folds_of(e, u->v.node);
            ct_ix at[CT_MAX_RANK];
            nest_unit_index(n, u, NULL, at);
            value[i] = n->pass == 2
                           ? ct__emit_load_at(e, n->partials[m->unit[i]], 0, nest_partial_dtype(u),
                                              nest_partial_offset(n, position[0]))
                           : ct__folded_value(e, u->v.node, &own, at, position);
        }
        e->flops += (double)m->n;
        return;
    }
    const ct_ix extent =
        n->pass == 2 ? nest_block_count(e, m->folds.extent[fold]) : m->folds.extent[fold];
    const ct_ix var = nest_inner_var(n, extent, folds - 1 - fold);
    position[fold] = ct__nest_is_one(e, extent) ? ct__ix_int(e->pool, 0) : var;
    if (fold < folds - 1 || ct__in_vector(e->kir))
        ct__emit_open(e, CT_BIND_SEQ, extent, NULL, var);
    else
        nest_open_lanes(n, extent, var);
    if (folds == 1) {
        nest_prefetch_rows(n, extent, var);
        if (n->pass == 0) nest_fill_reused(n, m->level, extent, var);
        nest_store_in_loop(n, m->level, extent, var, done);
    }
    nest_reduce_from(n, m, fold + 1, position, value, done);
    for (size_t i = 0; i < m->n; i++)
        value[i] = ct__kir_reduce(e->kir, n->g->units[m->unit[i]].v.node->op->reduction, value[i]);
    nest_end_loop(n);
}

// Writes the reductions of one level and equal extents as one loop nest, and marks them in `done`.
static void nest_reduce_stage(ct_nest *n, size_t first, bool *done) {
    ct_emit *e = n->e;
    ct_group *g = n->g;
    const nest_reductions m = nest_find_reductions(n, first, done);
    ct_ix position[CT_MAX_RANK];
    ct_kval value[64];
    e->draft->stage++;
    nest_reduce_from(n, &m, 0, position, value, done);
    for (size_t i = 0; i < m.n; i++) {
        const ct_unit *u = &g->units[m.unit[i]];
        nest_store_result(n, u, ct__fold_result(e, u->v.node, value[i]));
        done[m.unit[i]] = true;
    }
}

// Returns the offset at which a row adds its part to a sum over all rows: accumulators are in memory.
static ct_ix nest_accumulator_offset(ct_nest *n, ct_ix accumulator, const ct_ix *size, int count,
                                     const ct_ix *inner) {
    ct_ix at = accumulator;
    for (int i = 0; i < count; i++)
        at = ct__ix_add(n->e->pool, ct__ix_mul(n->e->pool, at, size[i]), inner[i]);
    return at;
}
static ct_kval nest_add_to_accumulator(ct_nest *n, size_t unit, ct_ix offset, const ct_ix *inner) {
    const ct_unit *u = &n->g->units[unit];
    const ct_folds own = ct__folds_of(n->e, u->v.node);
    ct_ix at[CT_MAX_RANK], row = ct__ix_int(n->e->pool, 0);
    for (int i = 0; i < n->g->n_rows; i++)
        row = ct__ix_add(n->e->pool, ct__ix_mul(n->e->pool, row, n->row_size[i]), n->row[i]);
    nest_unit_index(n, u, inner, at);
    const ct_kval value = ct__folded_value(n->e, u->v.node, &own, at, &row);
    n->e->flops++;
    return ct__kir_add(n->e->kir,
                       ct__emit_load_at(n->e, n->partials[unit], 0, nest_partial_dtype(u), offset),
                       value);
}

// Stores values with inner axes: values of equal inner sizes share a loop.
static void nest_store_stage(ct_nest *n, size_t first, bool *done) {
    ct_emit *e = n->e;
    ct_group *g = n->g;
    ct_ix size[CT_MAX_RANK], own[CT_MAX_RANK], inner[CT_MAX_RANK], at[CT_MAX_RANK];
    int count = nest_inner_sizes(n, &g->units[first], size), opened = 0;
    ct_ix var = CT_IX_NONE;
    e->draft->stage++;
    if (n->flat && count > 1) {
        ct_ix extent = ct__nest_product(e, size, count);
        var = nest_inner_var(n, extent, 0);
        if (ct__in_vector(e->kir))
            ct__emit_open(e, CT_BIND_SEQ, extent, NULL, var);
        else
            nest_open_lanes(n, extent, var);
        opened = 1;
        ct__unflatten_ix(e->pool, var, size, count, inner);
    } else {
        for (int i = 0; i < count; i++) {
            inner[i] = var = nest_inner_var(n, size[i], i == count - 1 ? 0 : i + 1);
            if (i < count - 1 || ct__in_vector(e->kir))
                ct__emit_open(e, CT_BIND_SEQ, size[i], NULL, inner[i]);
            else
                nest_open_lanes(n, size[i], inner[i]);
            opened++;
        }
    }
    if (opened == 1) nest_prefetch_rows(n, ct__nest_product(e, size, count), var);
    size_t members[64], m = 0;
    ct_kval value[64];
    for (size_t i = first; i < g->n_units && m < 64; i++) {
        const ct_unit *u = &g->units[i];
        if ((u->reduce && !u->across) || done[i] || nest_inner_sizes(n, u, own) != count ||
            memcmp(own, size, (size_t)count * sizeof *own) != 0)
            continue;
        nest_unit_index(n, u, inner, at);
        value[m] =
            u->across
                ? nest_add_to_accumulator(
                      n, i, nest_accumulator_offset(n, n->accumulator, size, count, inner), inner)
                : ct__emit_value(e, u->v, at, CT_DEFAULT);
        members[m++] = i;
        done[i] = true;
    }
    // All values are computed before any store, since a store may overwrite what another value reads.
    for (size_t i = 0; i < m; i++) {
        const ct_unit *u = &g->units[members[i]];
        nest_unit_index(n, u, inner, at);
        if (u->across)
            ct__emit_store_at(e, n->partials[members[i]], 0, nest_partial_dtype(u),
                              nest_accumulator_offset(n, n->accumulator, size, count, inner),
                              value[i]);
        else
            ct__emit_store(e, u->v, at, value[i]);
    }
    while (opened--) ct__emit_end(e);
}

static void nest_write_row(ct_nest *n) {
    ct_group *g = n->g;
    bool done[512] = {false};
    int deepest = 0;
    nest_make_reused(n);
    n->row_first_access = n->e->draft->n_seen;
    n->n_prefetched = 0;
    size_t units = g->n_units < 512 ? g->n_units : 512;
    for (size_t i = 0; i < units; i++)
        if (g->units[i].level > deepest) deepest = g->units[i].level;
    for (int level = 0; level <= deepest; level++)
        for (size_t i = 0; i < units; i++)
            if (g->units[i].reduce && !g->units[i].across && g->units[i].level == level && !done[i])
                nest_reduce_stage(n, i, done);
    for (size_t i = 0; i < units; i++) done[i] |= g->units[i].late;
    for (size_t i = 0; i < units; i++)
        if (!done[i]) nest_store_stage(n, i, done);
    if (!n->reuse_decided) n->n_row_operands = nest_count_row_operands(n);
}

static const ct_node *nest_first_reduction(const ct_group *g) {
    size_t i = 0;
    while (!g->units[i].reduce) i++;
    return g->units[i].v.node;
}

// Writes the block results of a split reduction.
static void nest_write_block(ct_nest *n, ct_ix block) {
    ct_emit *e = n->e;
    ct_group *g = n->g;
    ct_folds f = ct__folds_of(e, nest_first_reduction(g));
    ct_ix width = ct__ix_int(e->pool, CT_REDUCE_BLOCK), at[CT_MAX_RANK];
    ct_ix start = ct__ix_mul(e->pool, block, width);
    ct_ix extent = ct__ix_min(e->pool, width, ct__ix_sub(e->pool, f.extent[0], start));
    ct_ix lane = ct__ix_var(e->pool, width), var = nest_inner_var(n, f.extent[0], 0);
    if (ct__in_vector(e->kir))
        ct__emit_open(e, CT_BIND_SEQ, extent, NULL, lane);
    else
        nest_open_lanes(n, extent, lane);
    ct__emit_bind_to(e, var, ct__emit_ix(e, ct__ix_add(e->pool, start, lane)));
    ct_kval value[64];
    size_t count = g->n_units < 64 ? g->n_units : 64;
    for (size_t i = 0; i < count; i++) {
        const ct_unit *u = &g->units[i];
        if (!u->reduce) continue;
        const ct_folds own =
            ct__folds_of(e, u->v.node); // of as many elements, but perhaps of other axes
        nest_unit_index(n, u, NULL, at);
        value[i] = ct__folded_value(e, u->v.node, &own, at, &var);
        value[i] = ct__kir_reduce(e->kir, u->v.node->op->reduction, value[i]);
        e->flops++;
    }
    ct__emit_end(e);
    for (size_t i = 0; i < count; i++)
        if (g->units[i].reduce)
            ct__emit_store_at(e, n->partials[i], 0, nest_partial_dtype(&g->units[i]),
                              nest_partial_offset(n, block), value[i]);
}

// -------------------------------------------------------------------------- the loops around a row

static size_t nest_first_row_sum(const ct_group *g) {
    size_t i = 0;
    while (!g->units[i].across) i++;
    return i;
}
// Gets the inner sizes of the units that are sums over all rows, which are equal for all of them. Returns
// the number of inner axes.
static int nest_row_sum_sizes(ct_nest *n, ct_ix *size) {
    for (int i = 0; i < n->g->n_rows; i++)
        n->row_size[i] = ct__emit_size(n->e, n->g->rows[i].v, n->g->rows[i].axis);
    return nest_inner_sizes(n, &n->g->units[nest_first_row_sum(n->g)], size);
}

// Writes the rows whose values are summed over all rows, in the 16 accumulators of each block of the
// reduction rule. A task has a block, whose rows are adjacent in memory, or the rows of some of its
// accumulators, so that there are tasks for all cores.
static void nest_write_row_sums(ct_nest *n) {
    ct_emit *e = n->e;
    ct_group *g = n->g;
    ct_ix_pool *p = e->pool;
    ct_ix size[CT_MAX_RANK];
    const int axes = nest_row_sum_sizes(n, size);
    const ct_ix rows = ct__nest_product(e, n->row_size, g->n_rows),
                blocks = nest_block_count(e, rows);
    int64_t own = CT_LANES, count; // number of accumulators of a task
    while (own > 1 &&
           ct__nest_estimate(e, blocks) * CT_LANES / own < TASKS_PER_CORE * e->target.cores)
        own /= 2;
    const ct_ix lanes = ct__ix_int(p, CT_LANES), some = ct__ix_int(p, own);
    const ct_ix parts = ct__ix_int(p, CT_LANES / own);
    const ct_ix task = ct__emit_loop(e, CT_BIND_ROWS, ct__ix_mul(p, blocks, parts), "task");
    const ct_ix wide = ct__ix_mul(p, some, ct__nest_product(e, size, axes)),
                flat = ct__ix_var(p, wide);
    nest_open_lanes(n, wide, flat);
    for (size_t i = nest_first_row_sum(g); i < g->n_units; i++)
        if (g->units[i].across)
            ct__emit_store_at(
                e, n->partials[i], 0, nest_partial_dtype(&g->units[i]),
                ct__ix_add(p, ct__ix_mul(p, task, wide), flat),
                ct__kred_identity_value(e->kir, CT_RED_ADD, nest_partial_dtype(&g->units[i])));
    ct__emit_end(e);
    const ct_ix first =
        ct__ix_add(p, ct__ix_mul(p, ct__ix_div(p, task, parts), ct__ix_int(p, CT_REDUCE_BLOCK)),
                   ct__ix_mul(p, ct__ix_mod(p, task, parts), some));
    const ct_ix max_turns = ct__ix_int(p, CT_REDUCE_BLOCK / CT_LANES),
                turn = ct__ix_var(p, max_turns);
    const ct_ix n_left = ct__ix_add(p, ct__ix_sub(p, rows, first), ct__ix_int(p, CT_LANES - 1));
    ct__emit_open(e, CT_BIND_SEQ, ct__ix_min(p, max_turns, ct__ix_div(p, n_left, lanes)), NULL,
                  turn);
    ct__share(&n->trip_counts, e->kir, CT_REDUCE_BLOCK / CT_LANES);
    const ct_ix begin = ct__ix_add(p, first, ct__ix_mul(p, turn, lanes));
    const bool even = ct__ix_is_int(p, rows, &count) && count % own == 0;
    const ct_ix slot = ct__ix_var(p, some), row = ct__ix_var(p, rows);
    ct__emit_open(e, CT_BIND_SEQ, even ? some : ct__ix_min(p, some, ct__ix_sub(p, rows, begin)),
                  "row", slot);
    ct__share(&n->trip_counts, e->kir, (double)own);
    ct__emit_bind_to(e, row, ct__emit_ix(e, ct__ix_add(p, begin, slot)));
    n->row_index = row;
    ct__unflatten_ix(p, row, n->row_size, g->n_rows, n->row);
    n->accumulator = ct__ix_add(p, ct__ix_mul(p, task, some), slot);
    nest_write_row(n);
    for (int loops = 0; loops < 3; loops++) ct__emit_end(e);
}

// Folds the accumulators of the rows by the reduction rule.
static void nest_fold_row_sums(ct_nest *n) {
    ct_emit *e = n->e;
    ct_group *g = n->g;
    ct_ix_pool *p = e->pool;
    ct_ix size[CT_MAX_RANK], inner[CT_MAX_RANK], at[CT_MAX_RANK];
    const int axes = nest_row_sum_sizes(n, size);
    const ct_ix wide = ct__nest_product(e, size, axes), width = ct__ix_int(p, e->target.columns);
    const ct_ix lanes = ct__ix_int(p, CT_LANES), column = ct__ix_var(p, wide);
    ct_ix tiles = ct__ix_div(p, ct__ix_add(p, wide, ct__ix_int(p, e->target.columns - 1)), width);
    ct_ix task = ct__ix_int(p, 0);
    const bool core = !ct__nest_is_one(e, tiles);
    if (core) task = ct__emit_loop(e, CT_BIND_ROWS, tiles, "task");
    const ct_ix start = ct__ix_mul(p, task, width), lane = ct__ix_var(p, width);
    ct__emit_open(e, CT_BIND_LANES, ct__ix_min(p, width, ct__ix_sub(p, wide, start)), "column",
                  lane);
    ct__emit_bind_to(e, column, ct__emit_ix(e, ct__ix_add(p, start, lane)));
    ct__unflatten_ix(p, column, size, axes, inner);
    const ct_ix blocks = nest_block_count(e, ct__nest_product(e, n->row_size, g->n_rows));
    const ct_ix block = ct__emit_loop(e, CT_BIND_SEQ, blocks, NULL);
    const ct_ix slot = ct__emit_loop(e, CT_BIND_SEQ, lanes, NULL);
    const ct_ix from = ct__ix_add(p, ct__ix_mul(p, block, lanes), slot);
    ct_kval value[CT_MOST_UNITS];
    const size_t units = g->n_units;
    for (size_t i = 0; i < units; i++)
        if (g->units[i].across)
            value[i] = ct__emit_load_at(e, n->partials[i], 0, nest_partial_dtype(&g->units[i]),
                                        nest_accumulator_offset(n, from, size, axes, inner));
    for (int fold = 0; fold < 2; fold++) {
        for (size_t i = 0; i < units; i++)
            if (g->units[i].across) value[i] = ct__kir_reduce(e->kir, CT_RED_ADD, value[i]);
        ct__emit_end(e);
    }
    for (size_t i = 0; i < units; i++) {
        const ct_unit *u = &g->units[i];
        if (!u->across) continue;
        nest_unit_index(n, u, inner, at);
        value[i] = ct__fold_result(e, u->v.node, value[i]);
        ct__emit_remember(e, u->v, at, value[i]);
        if (u->store) ct__emit_store(e, u->v, at, value[i]);
    }
    for (int pass = 0; pass < 2; pass++) // all values before any store
        for (size_t i = 0; i < units; i++) {
            const ct_unit *u = &g->units[i];
            if (!u->late) continue;
            nest_unit_index(n, u, inner, at);
            if (pass)
                ct__emit_store(e, u->v, at, value[i]);
            else
                value[i] = ct__emit_value(e, u->v, at, CT_DEFAULT);
        }
    ct__emit_end(e);
    if (core) ct__emit_end(e);
}

static void nest_write_rows(ct_nest *n) {
    ct_emit *e = n->e;
    ct_group *g = n->g;
    ct_ix_pool *p = e->pool;
    int outer = g->n_rows - n->lanes;
    for (int i = 0; i < g->n_rows; i++)
        n->row_size[i] = ct__emit_size(e, g->rows[i].v, g->rows[i].axis);
    ct_ix rows = ct__nest_product(e, n->row_size, outer),
          wide = ct__nest_product(e, n->row_size + outer, n->lanes);
    ct_ix zero = ct__ix_int(p, 0), one = ct__ix_int(p, 1), width = ct__ix_int(p, e->target.columns);
    ct_ix tiles = one, blocks = one;
    if (n->lanes)
        tiles = ct__ix_div(p, ct__ix_add(p, wide, ct__ix_int(p, e->target.columns - 1)), width);
    if (n->pass == 1)
        blocks = nest_block_count(e, ct__folds_of(e, nest_first_reduction(g)).extent[0]);
    // task = (row, block, tile)
    ct_ix size[3] = {rows, blocks, tiles}, at[3] = {zero, zero, zero};
    ct_ix tasks = ct__nest_product(e, size, 3);
    bool core = !ct__nest_is_one(e, tasks);
    if (core) {
        ct_ix task = ct__emit_loop(e, CT_BIND_ROWS, tasks, "task");
        const double columns = ct__nest_estimate_product(e, n->row_size + outer, n->lanes);
        ct__share(&n->trip_counts, e->kir,
                  ct__nest_estimate_product(e, n->row_size, outer) *
                      (double)ct__nest_estimate(e, blocks) *
                      ceil(columns / (double)e->target.columns));
        ct__unflatten_ix(p, task, size, 3, at);
        if (!n->lanes && !n->pass) n->row_index = task;
    }
    ct__unflatten_ix(p, at[0], n->row_size, outer, n->row);
    if (n->lanes) {
        ct_ix start = ct__ix_mul(p, at[2], width);
        ct_ix extent = ct__ix_min(p, width, ct__ix_sub(p, wide, start));
        ct_ix lane = ct__ix_var(p, width), column = ct__ix_var(p, wide);
        ct__emit_open(e, CT_BIND_LANES, extent, "column", lane);
        ct__share(&n->trip_counts, e->kir, e->target.columns);
        n->lane_vars[n->n_lane_vars++] = column;
        ct__emit_bind_to(e, column, ct__emit_ix(e, ct__ix_add(p, start, lane)));
        ct__unflatten_ix(p, column, n->row_size + outer, n->lanes, n->row + outer);
    }
    if (n->pass == 1)
        nest_write_block(n, at[1]);
    else
        nest_write_row(n);
    if (n->lanes) ct__emit_end(e);
    if (core) ct__emit_end(e);
}

// -------------------------------- choice: kernels are written on trial and their accesses examined

// Returns the number of accesses that advance by neither 0 nor 1 along the lanes. `divides`: in some access
// the lanes' variable is divided, even if only by multiples of 16; `divides_unaligned`: by other numbers.
static int nest_count_irregular(ct_nest *n, bool *divides, bool *divides_unaligned) {
    ct_ix_pool *p = n->e->pool;
    int n_irregular = 0;
    *divides = *divides_unaligned = false;
    for (size_t i = 0; i < n->e->draft->n_seen; i++)
        for (int v = 0; v < n->n_lane_vars; v++) {
            const ct_seen *x = &n->e->draft->seen[i];
            ct_ix var = n->lane_vars[v];
            *divides |= ct__ix_divides(p, x->offset, var, 0);
            *divides_unaligned |= ct__ix_divides(p, x->offset, var, CT_LANES);
            if (x->guard >= 0) {
                *divides |= ct__ix_divides(p, x->guard, var, 0);
                *divides_unaligned |= ct__ix_divides(p, x->guard, var, CT_LANES);
            }
            int64_t step;
            if (!ct__ix_lane_step(p, x->offset, var, &step) || (step != 0 && step != 1))
                n_irregular++;
        }
    return n_irregular;
}

static bool nest_write(ct_nest *n, const ct_nest *how) {
    ct_emit *e = how->e;
    *n = (ct_nest){.e = e,
                   .g = how->g,
                   .row_index = CT_IX_NONE,
                   .lanes = how->lanes,
                   .flat = how->flat,
                   .pass = how->pass,
                   .partials = how->partials,
                   .axis_split = how->axis_split,
                   .separate_axes = how->separate_axes,
                   .unrolls = how->unrolls,
                   .transposed = how->transposed,
                   .reused_mask = how->reused_mask,
                   .reuse_decided = how->reuse_decided,
                   .n_row_operands = how->n_row_operands};
    if (!ct__emit_restart(e)) return false;
    e->draft->group = n->g->id;
    e->unrolls = n->unrolls;
    if (n->g->has_across && n->pass)
        nest_fold_row_sums(n);
    else if (n->g->has_across)
        nest_write_row_sums(n);
    else if (n->g->has_reduce && !n->unrolls)
        nest_write_rows(n);
    else
        ct__nest_write_pointwise(n);
    return !e->err->code;
}

// True if an axis has ranges but no loop of its own: generated code then does not know in which range it is.
static bool nest_has_inner_ranges(const ct_nest *n, int rank) {
    for (int a = rank - n->lanes + 1; a < rank && n->axis_split; a++)
        if (n->axis_split[a].n) return true;
    return false;
}

// Chooses the axes of the LANES loop: all trailing axes that no access divides; where those are short, also
// axes that are divided by multiples of 16 alone. If axes are split, the number of axes with the least
// work. *n is the chosen nest.
static bool nest_choose_lanes(ct_nest *n, ct_nest *best) {
    ct_nest how = *best;
    bool divides, divides_unaligned;
    int rank = ct__type(ct__nest_space_value(how.g))->rank, aligned_lanes = 0,
        cheapest = rank ? 1 : 0;
    double least_work = INFINITY;
    for (how.lanes = rank; how.lanes > 0; how.lanes--) {
        if (nest_has_inner_ranges(&how, rank)) continue;
        if (!how.axis_split && how.lanes == 1) break;
        if (!nest_write(n, &how)) return false;
        int n_irregular = nest_count_irregular(n, &divides, &divides_unaligned);
        const double work = how.axis_split ? ct__work(n->e, &n->trip_counts) : 0;
        if (how.axis_split && work < least_work) {
            least_work = work;
            cheapest = how.lanes;
        }
        if (!divides) break;
        if (!divides_unaligned && !n_irregular && !aligned_lanes) aligned_lanes = how.lanes;
    }
    best->lanes = how.axis_split ? cheapest : how.lanes;
    if (!how.axis_split && aligned_lanes > how.lanes) {
        int64_t width = 1;
        const ct_type *t = ct__type(ct__nest_space_value(how.g));
        for (int a = rank - how.lanes; a < rank; a++) width *= ct__is_dyn(t, a) ? 64 : t->dim[a];
        if (width < 8 * CT_LANES) best->lanes = aligned_lanes;
    }
    return nest_write(n, best);
}

// True if the group assigns a variable: a kernel with several copies of its body could read what it has
// overwritten.
static bool nest_assigns_variable(const ct_nest *n) {
    const ct_sched *s = n->e->draft->sched;
    for (size_t i = 0; i < n->g->n_units; i++) {
        const int32_t root = ct__sval(s, n->g->units[i].v)->root;
        if (root >= 0 && s->graph->roots[root].kind == CT_ROOT_ASSIGN) return true;
    }
    return false;
}

// True if an operand is contiguous along `axis` and strided along the last axis. A cell of as many elements
// as there are lanes is then a column of a block that can be transposed in registers.
static bool nest_needs_transpose(const ct_nest *separate, int axis, int rank, int64_t size,
                                 ct_cut *axis_split) {
    const ct_kernel_builder *d = separate->e->draft;
    ct_ix_pool *p = separate->e->pool;
    bool found = false;
    for (size_t i = 0; i < d->n_seen && !found; i++) {
        const ct_seen *x = &d->seen[i];
        ct_ix by, far;
        int64_t step, steps;
        found = !x->write && x->guard < 0 &&
                ct__ix_stride(p, x->offset, separate->row[axis], &by) &&
                ct__ix_stride(p, x->offset, separate->row[rank - 1], &far) &&
                ct__ix_is_int(p, by, &step) && step == 1 &&
                !(ct__ix_is_int(p, far, &steps) && (steps == 0 || steps == 1));
    }
    if (!found || size < CT_LANES) return false;
    *axis_split = (ct_cut){.elements = CT_LANES};
    if (size % CT_LANES) {
        axis_split->n = 2;
        axis_split->start[1] = size - size % CT_LANES;
        axis_split->start[2] = size;
    }
    return true;
}

// Splits axes one after the other, outermost first, where that reduces the kernel's work. *n is the chosen
// nest.
static bool nest_choose_pointwise(ct_nest *n, ct_nest *best, ct_cut *axis_split) {
    bool divides, divides_unaligned, guarded = false;
    const int rank = ct__type(ct__nest_space_value(best->g))->rank;
    if (!nest_choose_lanes(n, best)) return false;
    for (size_t i = 0; i < n->e->draft->n_seen; i++) guarded |= n->e->draft->seen[i].guard >= 0;
    nest_count_irregular(n, &divides, &divides_unaligned);
    if (!rank || nest_assigns_variable(n) ||
        (!guarded && !divides_unaligned && best->lanes == rank))
        return true;
    double least_work = ct__work(n->e, &n->trip_counts);
    ct_nest separate = *best;
    separate.separate_axes = true;
    separate.lanes = 0;
    if (!nest_write(n, &separate)) return false;
    enum { RANGES, CELLS, BLOCKS, FORMS };
    ct_cut candidates[FORMS][CT_MAX_RANK];
    for (int a = 0; a < rank; a++) {
        const ct_ix extent = ct__emit_size(n->e, ct__nest_space_value(best->g), a);
        const int64_t size = ct__nest_estimate(n->e, extent);
        for (int k = 0; k < FORMS; k++) candidates[k][a] = ct__nest_whole_axis;
        axis_split[a] = ct__nest_whole_axis;
        if (ct__nest_is_dynamic(n->e, extent)) continue;
        ct__find_cuts(n->e, n->row[a], size, a == rank - 1, &candidates[RANGES][a],
                      &candidates[CELLS][a]);
        if (a < rank - 1 && !best->unrolls)
            nest_needs_transpose(n, a, rank, size, &candidates[BLOCKS][a]);
    }
    int copies = 1;
    for (int a = 0; a < rank; a++)
        for (int k = 0; k < FORMS; k++) {
            const int more =
                (candidates[k][a].n ? candidates[k][a].n : 1) - 1 + (int)candidates[k][a].elements;
            if (more == 1 || copies * more > MAX_COPIES || best->transposed) continue;
            const ct_cut before = axis_split[a];
            ct_nest how = *best;
            axis_split[a] = candidates[k][a];
            how.axis_split = axis_split;
            how.transposed = k == BLOCKS ? a + 1 : 0;
            if (how.transposed) how.lanes = 1;
            if (how.transposed ? !nest_write(n, &how) : !nest_choose_lanes(n, &how)) return false;
            const double work = ct__work(n->e, &n->trip_counts);
            if (work < least_work * 0.95 && n->e->kir->n <= MAX_SPLIT_INSTRUCTIONS) {
                least_work = work;
                *best = how;
                copies *= more;
            } else {
                axis_split[a] = before;
            }
        }
    return nest_write(n, best);
}

static bool nest_choose_rows(ct_nest *best) {
    ct_nest n, how = *best;
    bool divides, divides_unaligned;
    how.lanes = 0;
    how.flat = true;
    if (!nest_write(&n, &how)) return false;
    int n_irregular = nest_count_irregular(&n, &divides, &divides_unaligned);
    if (divides_unaligned) {
        how.flat = false;
        if (!nest_write(&n, &how)) return false;
        n_irregular = nest_count_irregular(&n, &divides, &divides_unaligned);
    }
    best->lanes = 0;
    best->flat = how.flat;
    best->reuse_decided = true;
    best->n_row_operands = n.n_row_operands;
    for (int i = 0; i < n.e->draft->n_kept; i++)
        if (n.e->draft->kept[i].wanted) best->reused_mask |= 1u << n.e->draft->kept[i].number;
    // Lanes run along the last row axes where these are contiguous, or where the reductions are tiny.
    bool tiny = true;
    for (size_t i = 0; i < n.g->n_units; i++) {
        if (!n.g->units[i].reduce) continue;
        ct_folds f = ct__folds_of(n.e, n.g->units[i].v.node);
        for (int k = 0; k < f.n; k++) tiny &= ct__nest_estimate(n.e, f.extent[k]) < CT_LANES;
    }
    if ((n_irregular == 0 && !tiny) || how.g->has_across) return true;
    const double work = ct__work(n.e, &n.trip_counts);
    for (how.lanes = how.g->n_rows; how.lanes > 0; how.lanes--) {
        if (!nest_write(&n, &how)) return false;
        int own = nest_count_irregular(&n, &divides, &divides_unaligned);
        if (divides_unaligned && how.lanes > 1) continue;
        ct_ix wide = ct__nest_product(n.e, n.row_size + how.g->n_rows - how.lanes, how.lanes);
        bool enough = ct__nest_estimate(n.e, wide) >= CT_LANES / 2;
        const bool less = tiny && ct__work(n.e, &n.trip_counts) < work;
        if (enough && (own < n_irregular || less)) best->lanes = how.lanes;
        break;
    }
    return true;
}

// True if the group is one level of plain reductions over one long extent, with too few tasks.
static bool nest_needs_split(ct_nest *n) {
    ct_group *g = n->g;
    ct_emit *e = n->e;
    ct_ix extent = CT_IX_NONE;
    if (g->n_units > 64 || g->has_across) return false;
    for (size_t i = 0; i < g->n_units; i++) {
        const ct_unit *u = &g->units[i];
        ct_ix size[CT_MAX_RANK];
        if (!u->reduce) {
            if (nest_inner_sizes(n, u, size)) return false;
            continue;
        }
        ct_folds f = ct__folds_of(e, u->v.node);
        if (u->level || f.n != 1 || ct__kred_is_arg(u->v.node->op->reduction)) return false;
        if (extent >= 0 && extent != f.extent[0]) return false;
        extent = f.extent[0];
    }
    int outer = g->n_rows - n->lanes;
    int64_t tasks = ct__nest_estimate(e, ct__nest_product(e, n->row_size, outer));
    if (n->lanes)
        tasks *= (ct__nest_estimate(e, ct__nest_product(e, n->row_size + outer, n->lanes)) +
                  e->target.columns - 1) /
                 e->target.columns;
    return extent >= 0 && tasks < e->target.few_tasks &&
           (ct__nest_is_dynamic(e, extent) || ct__nest_estimate(e, extent) >= e->target.long_line);
}

// True if a unit's row axes are all of the group's, in their order.
static bool nest_has_all_rows(const ct_nest *n, const ct_unit *u) {
    const ct_type *t = ct__type(u->axes);
    int row = 0;
    for (int a = 0; a < t->rank; a++)
        if (u->row[a] >= 0 && u->row[a] != row++) return false;
    return row == n->g->n_rows && u->axes.node == u->v.node;
}
// True if the group consists of sums over the many rows of matrices, with lanes along the columns.
static bool nest_sums_matrices(ct_nest *n) {
    const ct_group *g = n->g;
    ct_emit *e = n->e;
    if (n->lanes != g->n_rows || g->has_across || g->n_units > 64) return false;
    const ct_node *first = nest_first_reduction(g);
    const ct_ix extent = ct__folds_of(e, first).extent[0];
    bool stores_rows = false, stores_sums = false;
    for (size_t i = 0; i < g->n_units; i++) {
        const ct_unit *u = &g->units[i];
        ct_ix size[CT_MAX_RANK];
        const bool inner = nest_inner_sizes(n, u, size) > 0;
        if (!nest_has_all_rows(n, u)) return false;
        if (u->reduce) {
            const ct_folds f = ct__folds_of(e, u->v.node);
            if (u->level || f.n != 1 || f.extent[0] != extent || f.first[0] ||
                u->v.node->op->reduction != CT_RED_ADD)
                return false;
        } else if (inner && (u->level || !ct__same_shape(ct__type(u->v), ct__type(first->in[0])))) {
            return false;
        }
        stores_rows |= inner;
        stores_sums |= !u->reduce && !inner;
    }
    const int64_t wide = ct__nest_estimate(e, ct__nest_product(e, n->row_size, g->n_rows)),
                  rows = ct__nest_estimate(e, extent);
    const int64_t tasks = (rows + CT_REDUCE_BLOCK - 1) / CT_REDUCE_BLOCK * CT_LANES;
    return !(stores_rows && stores_sums) && wide >= e->target.columns && rows >= MIN_SUMMED_ROWS &&
           rows * wide >= MIN_SUMMED_ELEMENTS && tasks >= TASKS_PER_CORE * e->target.cores;
}
// Makes the rows of the matrices the group's rows, so that memory is read in order.
static void nest_use_matrix_rows(ct_group *g) {
    const ct_node *first = nest_first_reduction(g);
    const ct_type *in = ct__type(first->in[0]);
    g->has_across = true;
    g->n_rows = 0;
    for (int a = 0; a < in->rank; a++) {
        if (!(ct__along(first).axes >> a & 1) || ct__is_one(in, a)) continue;
        g->rows[g->n_rows].v = first->in[0];
        g->rows[g->n_rows++].axis = a;
    }
    for (size_t i = 0; i < g->n_units; i++) {
        ct_unit *u = &g->units[i];
        const ct_type *t = ct__type(u->v);
        int row = 0;
        u->across = u->reduce;
        u->late = !u->reduce;
        for (int a = 0; a < t->rank; a++) {
            const bool inner = !u->reduce && u->row[a] < 0 && !ct__is_one(t, a);
            u->row[a] = inner ? (int8_t)row++ : -1;
            u->late &= !inner;
        }
    }
}

static bool nest_make_partials(ct_nest *n) {
    ct_sched *s = n->e->draft->sched;
    n->partials = ct__arena(&s->arena, n->g->n_units * sizeof *n->partials);
    if (!n->partials) return ct__err_memory(s->err, CT_NOWHERE, "plan", n->g->n_units);
    for (size_t i = 0; i < n->g->n_units; i++) {
        const ct_unit *u = &n->g->units[i];
        if (!u->reduce || u->across != n->g->has_across) continue;
        int64_t rows = ct__elements_of(&u->v.node->out[0]), blocks = 0;
        if (ct__unmarked(rows))
            blocks =
                ct__size_div_up(ct__size_div_up(ct__elements_of(ct__type(u->v.node->in[0])), rows),
                                CT_REDUCE_BLOCK);
        const int64_t parts = ct__size_mul(rows, ct__size_mul(blocks, u->across ? CT_LANES : 1));
        n->partials[i] =
            ct__sched_temp(s, ct__size_mul(parts, (int64_t)ct_dtype_size(nest_partial_dtype(u))));
        if (n->partials[i] == UINT32_MAX) return false;
    }
    return true;
}

// True if all reductions are over a few elements and all values have one element a row. The rows are then
// what lanes run along and what may be split, as if nothing was reduced.
static bool nest_can_unroll(const ct_nest *n) {
    const ct_group *g = n->g;
    for (size_t i = 0; i < g->n_units; i++) {
        const ct_unit *u = &g->units[i];
        if (u->axes.node != u->v.node) return false;
        if (u->reduce && !ct__fold_is_short(n->e, u->v.node)) return false;
        int row = 0;
        for (int a = 0; a < ct__type(u->v)->rank; a++)
            if (!ct__is_one(ct__type(u->v), a) && u->row[a] != row++) return false;
        if (row != g->n_rows) return false;
    }
    return true;
}

// Chooses between rows and unrolled reductions, whichever is less work. *n is the chosen nest.
static bool nest_choose_reduced(ct_nest *n, ct_nest *best, ct_cut *axis_split) {
    if (!nest_choose_rows(best) || !nest_write(n, best)) return false;
    if (nest_sums_matrices(n)) {
        nest_use_matrix_rows(best->g);
        *best = (ct_nest){.e = best->e, .g = best->g, .flat = true};
        return nest_make_partials(best) && nest_choose_rows(best) && nest_write(n, best);
    }
    if (!nest_can_unroll(n)) return true;
    const double work = ct__work(n->e, &n->trip_counts);
    ct_nest flat = {.e = best->e, .g = best->g, .flat = true, .unrolls = true};
    if (!nest_choose_pointwise(n, &flat, axis_split)) return false;
    if (ct__work(n->e, &n->trip_counts) >= work || n->e->kir->n > MAX_SPLIT_INSTRUCTIONS)
        return nest_write(n, best);
    *best = flat;
    return true;
}

static ct_emit *nest_emit_new(ct_sched *s, ct_group *g) {
    return ct__emit_new(s, g->units[0].v.node);
}

bool ct__emit_group(ct_sched *s, ct_group *g) {
    ct_nest n, how = {.e = nest_emit_new(s, g), .g = g, .flat = true};
    ct_cut axis_split[CT_MAX_RANK];
    if (!how.e) return false;
    bool ok = !g->has_across || nest_make_partials(&how);
    if (ok)
        ok = g->has_reduce ? nest_choose_reduced(&n, &how, axis_split)
                           : nest_choose_pointwise(&n, &how, axis_split);
    if (ok && g->has_reduce && !how.unrolls && (g->has_across || nest_needs_split(&n))) {
        how.pass = !g->has_across;
        ok = (g->has_across || nest_make_partials(&how)) && nest_write(&n, &how);
        ok = ok ? ct__emit_done(how.e, 0) : (ct__emit_free(how.e), false);
        if (!ok) return false;
        how.e = nest_emit_new(s, g);
        how.pass = 2;
        how.lanes = g->n_rows;
        ok = how.e && nest_write(&n, &how);
    }
    if (!ok) {
        ct__emit_free(how.e);
        return false;
    }
    return ct__emit_done(how.e, 0);
}
