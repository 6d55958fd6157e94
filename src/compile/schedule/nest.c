// From a group of values to the loops of one kernel.
//
// Without reductions: the trailing axes that all accesses cross with plain strides are one LANES
// loop, chunks of which (or the axes before it) are the ROWS loop. Axes may be cut (cuts.c): into
// ranges, each with a loop of its own, or into cells of a few elements that one iteration computes.
// With reductions: the ROWS loop runs over rows (what all reductions keep); in a row, reductions
// over the same extent that do not need each other share a loop, then values that need them are
// computed in further loops. Lanes run along the reduced axes, or, where memory is contiguous along
// the last row axes instead (sums over columns), along those.
// A long reduction with few rows is split into blocks of the reduction rule (kir.h), which changes
// no bit, and a second launch that folds them. One of a dynamic extent may be long, and is split:
// how many parts there are is found when a plan is made.
#include <math.h>
#include <string.h>

#include "compile/schedule/sched.h"
#include "kinds/reduce.h"

enum {
    MAX_INNER = 16,     // distinct inner loop variables of a kernel
    MOST_COPIES = 64,   // of a pointwise kernel's body
    LONGEST_CUT = 8000, // instructions of a cut kernel: its compiler has to be quick, too
    SHORT_ROW = 512,    // elements of a pointwise row that is not worth a task of its own
    TURNED_ROW = 512,   // elements of a row of blocks that are turned which are a task
    AHEAD = 2,          // blocks early, a memory's latency, the lines of one are asked for;
    ROWS_AHEAD = 2,     // and rows, of at most so many bytes,
    SHORT_AHEAD = 1 << 15,
    LONGEST_AHEAD = 1 << 18, // or the next row of at most so many,
    FAR_BUFFER = 1 << 20,    // of what is larger than a cache of a core
    MOST_ASKED = 8,          // operands of a row
    TASKS_A_CORE = 4,        // of rows in which something is added up over all of them
    FEW_ROWS_ACROSS = 256,   // fewer are not worth a fold of their accumulators,
    LARGE_MATRIX = 1 << 18,  // nor are fewer elements
};

typedef struct {
    ct_emit *e;
    ct_group *g;
    int lanes;         // trailing axes (pointwise) or row axes (reductions) that are the LANES loop
    bool flat;         // inner axes of stored values are one loop
    uint32_t keeps;    // which of the group's costly values are kept for later loops of a row,
    bool decided;      // once that is known
    int pass;          // of a split reduction: 1 blocks, 2 their fold; 0: not split
    uint32_t *part;    // (n_units) split, across: buffer of the blocks' results, of accumulators
    ct_ix accumulator; // across: of the row at hand
    const ct_cut *cut; // (rank) pointwise: of each axis; NULL: they are whole
    bool apart;        // pointwise: every axis is a loop of its own, to look at conditions
    bool unrolls;      // reductions of a few elements are written out: all is pointwise
    int turned; // pointwise: the axis of which a cell is as many elements as there are lanes, along
        // which an operand lies in memory; behind it the lanes' axis. 0: none, else 1 + axis
    ct_shares shares; // pointwise: how often loops run whose extents are no numbers
    ct_ix row[CT_MAX_RANK], row_size[CT_MAX_RANK];
    ct_ix row_at;    // counts the rows, whose elements are loops inside; CT_IX_NONE: nothing does
    size_t row_seen; // accesses before the row
    size_t asked[MOST_ASKED]; // (n_asked) of which later rows are asked for
    int n_asked;
    int operands;         // that come by rows, once it is decided
    ct_ix vec[MAX_INNER]; // variables of LANES loops
    int n_vec;
    struct {
        ct_ix extent, var;
        int nth;
    } inner[MAX_INNER];
    int n_inner;
} nest;

static int64_t guess(const ct_emit *e, ct_ix x) { // of a size; dynamic ones count as 64
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
static ct_ix product(ct_emit *e, const ct_ix *size, int n) {
    ct_ix r = ct__ix_int(e->pool, 1);
    for (int i = 0; i < n; i++) r = ct__ix_mul(e->pool, r, size[i]);
    return r;
}
// Of all of them together, which as one size may be beyond what is counted.
static double guess_product(const ct_emit *e, const ct_ix *size, int n) {
    double r = 1;
    for (int i = 0; i < n; i++) r *= (double)guess(e, size[i]);
    return r;
}
static bool is_dynamic(const ct_emit *e, ct_ix x) {
    int64_t n;
    return !ct__ix_is_int(e->pool, x, &n);
}
static bool is_one(const ct_emit *e, ct_ix x) {
    int64_t n;
    return ct__ix_is_int(e->pool, x, &n) && n == 1;
}
// The variable of the nth inner loop over an extent: the same one in every stage, so that values
// computed in two stages have equal indices.
static ct_ix inner_var(nest *n, ct_ix extent, int nth) {
    for (int i = 0; i < n->n_inner; i++)
        if (n->inner[i].extent == extent && n->inner[i].nth == nth) return n->inner[i].var;
    ct_ix var = ct__ix_var(n->e->pool, extent);
    if (n->n_inner < MAX_INNER) {
        n->inner[n->n_inner].extent = extent;
        n->inner[n->n_inner].nth = nth;
        n->inner[n->n_inner++].var = var;
    }
    return var;
}
static void open_vector(nest *n, ct_ix extent, ct_ix var) {
    ct__emit_open(n->e, CT_BIND_LANES, extent, NULL, var);
    for (int i = 0; i < n->n_vec; i++)
        if (n->vec[i] == var) return;
    if (n->n_vec < MAX_INNER) n->vec[n->n_vec++] = var;
}

// ---------------------------------------------------------------------------------- units in a row

// Index of a unit's value: row axes from the row, size-1 axes 0, inner ones from `inner`.
static void unit_index(nest *n, const ct_unit *u, const ct_ix *inner, ct_ix *at) {
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
static int inner_sizes(nest *n, const ct_unit *u, ct_ix *size) {
    const ct_type *t = ct__type(u->axes);
    int count = 0;
    for (int a = 0; a < t->rank; a++)
        if (u->row[a] < 0 && !(ct__is_one(t, a))) size[count++] = ct__emit_size(n->e, u->axes, a);
    return count;
}

static void keep_result(nest *n, const ct_unit *u, ct_kval r) {
    ct_ix at[CT_MAX_RANK];
    unit_index(n, u, NULL, at);
    ct__emit_remember(n->e, u->v, at, r);
    if (u->store) ct__emit_store(n->e, u->v, at, r);
}

// Where a row's results of blocks stand: by block, then by row.
static ct_ix part_offset(nest *n, ct_ix block) {
    ct_ix at = block;
    for (int i = 0; i < n->g->n_rows; i++)
        at = ct__ix_add(n->e->pool, ct__ix_mul(n->e->pool, at, n->row_size[i]), n->row[i]);
    return at;
}
static ct_dtype part_dtype(const ct_unit *u) { // as wide as the sum is
    return ct__kir_held((ct_dtype)ct__type(u->v.node->in[0])->dtype);
}

static ct_ix block_count(ct_emit *e, ct_ix extent) {
    ct_ix up = ct__ix_add(e->pool, extent, ct__ix_int(e->pool, CT_REDUCE_BLOCK - 1));
    return ct__ix_div(e->pool, up, ct__ix_int(e->pool, CT_REDUCE_BLOCK));
}

// Stored values that need no more than the reductions before this loop, and run over its extent,
// are stored in it: what both compute is computed once.
static void stores_in_loop(nest *n, int level, ct_ix extent, ct_ix var, bool *done) {
    ct_emit *e = n->e;
    ct_ix size[CT_MAX_RANK], inner[CT_MAX_RANK], at[CT_MAX_RANK];
    size_t members[64], m = 0;
    ct_kval value[64];
    for (size_t i = 0; i < n->g->n_units && m < 64 && n->flat && n->pass == 0; i++) {
        const ct_unit *u = &n->g->units[i];
        int count = u->reduce ? 0 : inner_sizes(n, u, size);
        if (done[i] || count == 0 || u->level > level || product(e, size, count) != extent)
            continue;
        ct__unflatten_ix(e->pool, var, size, count, inner);
        unit_index(n, u, inner, at);
        value[m] = ct__emit_value(e, u->v, at, CT_DEFAULT);
        members[m++] = i;
        done[i] = true;
    }
    for (size_t i = 0; i < m; i++) {
        const ct_unit *u = &n->g->units[members[i]];
        int count = inner_sizes(n, u, size);
        ct__unflatten_ix(e->pool, var, size, count, inner);
        unit_index(n, u, inner, at);
        ct__emit_store(e, u->v, at, value[i]);
    }
}

// Values that later loops want are kept in the first loop over their elements that can compute them.
static void keep_in_loop(nest *n, int level, ct_ix extent, ct_ix var) {
    ct_emit *e = n->e;
    ct_ix size[CT_MAX_RANK], inner[CT_MAX_RANK], at[CT_MAX_RANK];
    for (int i = 0; i < e->draft->n_kept; i++) {
        ct_kept *k = &e->draft->kept[i];
        if (k->buf < 0 || k->filled || k->unit->level > level) continue;
        const int count = inner_sizes(n, k->unit, size);
        if (product(e, size, count) != extent) continue;
        ct__unflatten_ix(e->pool, var, size, count, inner);
        unit_index(n, k->unit, inner, at);
        const ct_kval value = ct__emit_value(e, k->unit->v, at, CT_DEFAULT);
        ct__kir_store(e->kir, k->buf, ct__emit_ix(e, var), value);
        k->filling = true;
    }
}
static void end_loop(nest *n) {
    ct_draft *d = n->e->draft;
    ct__emit_end(n->e);
    for (int i = 0; i < d->n_kept; i++) d->kept[i].filled |= d->kept[i].filling;
}

// What the row may keep: floats of a static number, where lanes run inside of the row.
static void make_kept(nest *n) {
    ct_draft *d = n->e->draft;
    for (int i = 0; i < n->g->n_kept && !n->lanes && !n->pass && n->flat; i++) {
        const ct_unit *u = &n->g->kept[i];
        const ct_dtype dtype = (ct_dtype)ct__type(u->v)->dtype;
        ct_ix size[CT_MAX_RANK];
        int64_t count;
        const int axes = inner_sizes(n, u, size);
        if (!ct__is_float(dtype) || !ct__ix_is_int(n->e->pool, product(n->e, size, axes), &count) ||
            count < CT_LANES || count > n->e->target.kept || (n->decided && !(n->keeps >> i & 1)))
            continue;
        ct_kept *k = &d->kept[d->n_kept++];
        *k = (ct_kept){.unit = u, .number = i, .buf = -1};
        if (n->decided) k->buf = ct__kir_local(n->e->kir, ct__kir_held(dtype), count);
    }
}

// Does an access read numbers of rows that follow each other, of something that no cache holds? *row is
// from one to the next.
static bool comes_by_rows(const nest *n, const ct_seen *x, int64_t *row) {
    ct_ix_pool *p = n->e->pool;
    const ct_buf *buf = &n->e->draft->sched->program->bufs[x->buf];
    ct_ix by;
    return n->row_at >= 0 && !x->write && x->guard < 0 &&
           (ct__marked(buf->size) || buf->bytes >= FAR_BUFFER) &&
           ct__ix_stride(p, x->offset, n->row_at, &by) && ct__ix_is_int(p, by, row) &&
           *row >= CT_LANES;
}

static bool is_new(const ct_draft *d, size_t first, size_t seen) {
    const ct_seen *x = &d->seen[seen];
    while (first < seen && (d->seen[first].buf != x->buf || d->seen[first].offset != x->offset))
        first++;
    return first == seen;
}

// How many operands come by rows.
static int count_by_rows(const nest *n) {
    const ct_draft *d = n->e->draft;
    int64_t row;
    int count = 0;
    for (size_t i = n->row_seen; i < d->n_seen; i++)
        count += is_new(d, n->row_seen, i) && comes_by_rows(n, &d->seen[i], &row);
    return count;
}

// A row that is read again lies in a cache, and memory would be idle meanwhile: what earlier loops read
// of the row is asked for, of later rows. A single operand in short rows comes by itself.
static void ask_for_rows(nest *n, ct_ix extent, ct_ix var) {
    ct_emit *e = n->e;
    ct_draft *d = e->draft;
    const size_t seen = d->n_seen;
    int64_t elements, row, step;
    ct_ix by;
    if (!ct__ix_is_int(e->pool, extent, &elements)) return;
    for (size_t i = n->row_seen; i < seen; i++) {
        const ct_seen x = d->seen[i];
        const int64_t bytes = elements * (int64_t)ct_dtype_size(x.dtype);
        const bool is_short = bytes <= SHORT_AHEAD;
        if ((is_short && n->operands < 2) || bytes > LONGEST_AHEAD || !is_new(d, n->row_seen, i) ||
            !comes_by_rows(n, &x, &row) || row < elements ||
            !ct__ix_stride(e->pool, x.offset, var, &by) || !ct__ix_is_int(e->pool, by, &step) ||
            step != 1)
            continue;
        bool asked = false;
        for (int k = 0; k < n->n_asked; k++) asked |= n->asked[k] == i;
        if (asked || n->n_asked == MOST_ASKED) continue;
        n->asked[n->n_asked++] = i;
        const ct_ix more = ct__ix_int(e->pool, (is_short ? ROWS_AHEAD : 1) * row);
        const ct_ix later = ct__ix_add(e->pool, x.offset, more);
        ct__emit_ix(e, later); // a place that is data is loaded, not asked for
        ct__kir_prefetches(e->kir, true);
        ct__emit_load_at(e, x.buf, x.bytes, x.dtype, later);
        ct__kir_prefetches(e->kir, false);
        d->n_seen = seen; // nothing is read there
    }
}

typedef struct {
    size_t unit[64], n;
    ct_folds folds; // of the first; all have such extents
    int level;
} alike;

// The reductions of one level that run over the same extents as unit `first`.
static alike alike_of(const nest *n, size_t first, const bool *done) {
    const ct_group *g = n->g;
    const ct_unit *u = &g->units[first];
    alike m = {.folds = ct__folds_of(n->e, u->v.node), .level = u->level};
    const size_t bytes = (size_t)m.folds.n * sizeof *m.folds.extent;
    for (size_t i = first; i < g->n_units && m.n < 64; i++) {
        u = &g->units[i];
        if (!u->reduce || u->across || done[i] || u->level != m.level) continue;
        const ct_folds own = ct__folds_of(n->e, u->v.node);
        if (own.n == m.folds.n && memcmp(own.extent, m.folds.extent, bytes) == 0) m.unit[m.n++] = i;
    }
    return m;
}

// Their elements at a position, or what they are over the folds from `fold` on: loops in each other.
static void reduce_from(nest *n, const alike *m, int fold, ct_ix *position, ct_kval *value,
                        bool *done) {
    ct_emit *e = n->e;
    const int folds = m->folds.n;
    if (fold == folds) {
        for (size_t i = 0; i < m->n; i++) {
            const ct_unit *u = &n->g->units[m->unit[i]];
            const ct_folds own = ct__folds_of(e, u->v.node);
            ct_ix at[CT_MAX_RANK];
            unit_index(n, u, NULL, at);
            value[i] = n->pass == 2 ? ct__emit_load_at(e, n->part[m->unit[i]], 0, part_dtype(u),
                                                       part_offset(n, position[0]))
                                    : ct__folded_value(e, u->v.node, &own, at, position);
        }
        e->flops += (double)m->n;
        return;
    }
    const ct_ix extent =
        n->pass == 2 ? block_count(e, m->folds.extent[fold]) : m->folds.extent[fold];
    const ct_ix var = inner_var(n, extent, folds - 1 - fold);
    position[fold] = is_one(e, extent) ? ct__ix_int(e->pool, 0) : var;
    if (fold < folds - 1 || ct__in_vector(e->kir))
        ct__emit_open(e, CT_BIND_SEQ, extent, NULL, var);
    else
        open_vector(n, extent, var);
    if (folds == 1) {
        ask_for_rows(n, extent, var);
        if (n->pass == 0) keep_in_loop(n, m->level, extent, var);
        stores_in_loop(n, m->level, extent, var, done);
    }
    reduce_from(n, m, fold + 1, position, value, done);
    for (size_t i = 0; i < m->n; i++)
        value[i] = ct__kir_reduce(e->kir, n->g->units[m->unit[i]].v.node->op->reduction, value[i]);
    end_loop(n);
}

// Reductions of one level and extents in one nest of loops. `done` marks them.
static void reduce_stage(nest *n, size_t first, bool *done) {
    ct_emit *e = n->e;
    ct_group *g = n->g;
    const alike m = alike_of(n, first, done);
    ct_ix position[CT_MAX_RANK];
    ct_kval value[64];
    e->draft->stage++;
    reduce_from(n, &m, 0, position, value, done);
    for (size_t i = 0; i < m.n; i++) {
        const ct_unit *u = &g->units[m.unit[i]];
        keep_result(n, u, ct__fold_result(e, u->v.node, value[i]));
        done[m.unit[i]] = true;
    }
}

// Where a row adds its part to a sum over all rows: in the task's accumulators, which lie in memory.
static ct_ix across_offset(nest *n, ct_ix accumulator, const ct_ix *size, int count,
                           const ct_ix *inner) {
    ct_ix at = accumulator;
    for (int i = 0; i < count; i++)
        at = ct__ix_add(n->e->pool, ct__ix_mul(n->e->pool, at, size[i]), inner[i]);
    return at;
}
static ct_kval add_across(nest *n, size_t unit, ct_ix offset, const ct_ix *inner) {
    const ct_unit *u = &n->g->units[unit];
    const ct_folds own = ct__folds_of(n->e, u->v.node);
    ct_ix at[CT_MAX_RANK], row = ct__ix_int(n->e->pool, 0);
    for (int i = 0; i < n->g->n_rows; i++)
        row = ct__ix_add(n->e->pool, ct__ix_mul(n->e->pool, row, n->row_size[i]), n->row[i]);
    unit_index(n, u, inner, at);
    const ct_kval value = ct__folded_value(n->e, u->v.node, &own, at, &row);
    n->e->flops++;
    return ct__kir_add(n->e->kir, ct__emit_load_at(n->e, n->part[unit], 0, part_dtype(u), offset),
                       value);
}

// Values with inner axes: those of equal inner sizes share a loop.
static void store_stage(nest *n, size_t first, bool *done) {
    ct_emit *e = n->e;
    ct_group *g = n->g;
    ct_ix size[CT_MAX_RANK], own[CT_MAX_RANK], inner[CT_MAX_RANK], at[CT_MAX_RANK];
    int count = inner_sizes(n, &g->units[first], size), opened = 0;
    ct_ix var = CT_IX_NONE;
    e->draft->stage++;
    if (n->flat && count > 1) {
        ct_ix extent = product(e, size, count);
        var = inner_var(n, extent, 0);
        if (ct__in_vector(e->kir))
            ct__emit_open(e, CT_BIND_SEQ, extent, NULL, var);
        else
            open_vector(n, extent, var);
        opened = 1;
        ct__unflatten_ix(e->pool, var, size, count, inner);
    } else {
        for (int i = 0; i < count; i++) {
            inner[i] = var = inner_var(n, size[i], i == count - 1 ? 0 : i + 1);
            if (i < count - 1 || ct__in_vector(e->kir))
                ct__emit_open(e, CT_BIND_SEQ, size[i], NULL, inner[i]);
            else
                open_vector(n, size[i], inner[i]);
            opened++;
        }
    }
    if (opened == 1) ask_for_rows(n, product(e, size, count), var);
    size_t members[64], m = 0;
    ct_kval value[64];
    for (size_t i = first; i < g->n_units && m < 64; i++) {
        const ct_unit *u = &g->units[i];
        if ((u->reduce && !u->across) || done[i] || inner_sizes(n, u, own) != count ||
            memcmp(own, size, (size_t)count * sizeof *own) != 0)
            continue;
        unit_index(n, u, inner, at);
        value[m] =
            u->across
                ? add_across(n, i, across_offset(n, n->accumulator, size, count, inner), inner)
                : ct__emit_value(e, u->v, at, CT_DEFAULT);
        members[m++] = i;
        done[i] = true;
    }
    // All values before any store: one may overwrite what another reads.
    for (size_t i = 0; i < m; i++) {
        const ct_unit *u = &g->units[members[i]];
        unit_index(n, u, inner, at);
        if (u->across)
            ct__emit_store_at(e, n->part[members[i]], 0, part_dtype(u),
                              across_offset(n, n->accumulator, size, count, inner), value[i]);
        else
            ct__emit_store(e, u->v, at, value[i]);
    }
    while (opened--) ct__emit_end(e);
}

static void row_body(nest *n) {
    ct_group *g = n->g;
    bool done[512] = {false};
    int deepest = 0;
    make_kept(n);
    n->row_seen = n->e->draft->n_seen;
    n->n_asked = 0;
    size_t units = g->n_units < 512 ? g->n_units : 512;
    for (size_t i = 0; i < units; i++)
        if (g->units[i].level > deepest) deepest = g->units[i].level;
    for (int level = 0; level <= deepest; level++)
        for (size_t i = 0; i < units; i++)
            if (g->units[i].reduce && !g->units[i].across && g->units[i].level == level && !done[i])
                reduce_stage(n, i, done);
    for (size_t i = 0; i < units; i++) done[i] |= g->units[i].late;
    for (size_t i = 0; i < units; i++)
        if (!done[i]) store_stage(n, i, done);
    if (!n->decided) n->operands = count_by_rows(n);
}

static const ct_node *first_reduction(const ct_group *g) {
    size_t i = 0;
    while (!g->units[i].reduce) i++;
    return g->units[i].v.node;
}

// The block results of a split reduction.
static void block_body(nest *n, ct_ix block) {
    ct_emit *e = n->e;
    ct_group *g = n->g;
    ct_folds f = ct__folds_of(e, first_reduction(g));
    ct_ix width = ct__ix_int(e->pool, CT_REDUCE_BLOCK), at[CT_MAX_RANK];
    ct_ix start = ct__ix_mul(e->pool, block, width);
    ct_ix extent = ct__ix_min(e->pool, width, ct__ix_sub(e->pool, f.extent[0], start));
    ct_ix lane = ct__ix_var(e->pool, width), var = inner_var(n, f.extent[0], 0);
    if (ct__in_vector(e->kir))
        ct__emit_open(e, CT_BIND_SEQ, extent, NULL, lane);
    else
        open_vector(n, extent, lane);
    ct__emit_bind_to(e, var, ct__emit_ix(e, ct__ix_add(e->pool, start, lane)));
    ct_kval value[64];
    size_t count = g->n_units < 64 ? g->n_units : 64;
    for (size_t i = 0; i < count; i++) {
        const ct_unit *u = &g->units[i];
        if (!u->reduce) continue;
        const ct_folds own =
            ct__folds_of(e, u->v.node); // of as many elements, but maybe other axes
        unit_index(n, u, NULL, at);
        value[i] = ct__folded_value(e, u->v.node, &own, at, &var);
        value[i] = ct__kir_reduce(e->kir, u->v.node->op->reduction, value[i]);
        e->flops++;
    }
    ct__emit_end(e);
    for (size_t i = 0; i < count; i++)
        if (g->units[i].reduce)
            ct__emit_store_at(e, n->part[i], 0, part_dtype(&g->units[i]), part_offset(n, block),
                              value[i]);
}

// -------------------------------------------------------------------------- the loops around a row

static size_t first_across(const ct_group *g) {
    size_t i = 0;
    while (!g->units[i].across) i++;
    return i;
}
// The units that are sums over all rows, whose axes are alike. Gives how many axes.
static int across_sizes(nest *n, ct_ix *size) {
    for (int i = 0; i < n->g->n_rows; i++)
        n->row_size[i] = ct__emit_size(n->e, n->g->rows[i].v, n->g->rows[i].axis);
    return inner_sizes(n, &n->g->units[first_across(n->g)], size);
}

// Rows in which something is added up over all of them, in the 16 accumulators of each block of the
// reduction rule. A task has a block, whose rows follow each other in memory, or the rows of some of
// its accumulators, so that there are tasks for all cores.
static void rows_across(nest *n) {
    ct_emit *e = n->e;
    ct_group *g = n->g;
    ct_ix_pool *p = e->pool;
    ct_ix size[CT_MAX_RANK];
    const int axes = across_sizes(n, size);
    const ct_ix rows = product(e, n->row_size, g->n_rows), blocks = block_count(e, rows);
    int64_t own = CT_LANES, count; // accumulators of a task
    while (own > 1 && guess(e, blocks) * CT_LANES / own < TASKS_A_CORE * e->target.cores) own /= 2;
    const ct_ix lanes = ct__ix_int(p, CT_LANES), some = ct__ix_int(p, own);
    const ct_ix parts = ct__ix_int(p, CT_LANES / own);
    const ct_ix task = ct__emit_loop(e, CT_BIND_ROWS, ct__ix_mul(p, blocks, parts), "task");
    const ct_ix wide = ct__ix_mul(p, some, product(e, size, axes)), flat = ct__ix_var(p, wide);
    open_vector(n, wide, flat);
    for (size_t i = first_across(g); i < g->n_units; i++)
        if (g->units[i].across)
            ct__emit_store_at(e, n->part[i], 0, part_dtype(&g->units[i]),
                              ct__ix_add(p, ct__ix_mul(p, task, wide), flat),
                              ct__kred_start_value(e->kir, CT_RED_ADD, part_dtype(&g->units[i])));
    ct__emit_end(e);
    const ct_ix first =
        ct__ix_add(p, ct__ix_mul(p, ct__ix_div(p, task, parts), ct__ix_int(p, CT_REDUCE_BLOCK)),
                   ct__ix_mul(p, ct__ix_mod(p, task, parts), some));
    const ct_ix most = ct__ix_int(p, CT_REDUCE_BLOCK / CT_LANES), turn = ct__ix_var(p, most);
    const ct_ix left = ct__ix_add(p, ct__ix_sub(p, rows, first), ct__ix_int(p, CT_LANES - 1));
    ct__emit_open(e, CT_BIND_SEQ, ct__ix_min(p, most, ct__ix_div(p, left, lanes)), NULL, turn);
    ct__share(&n->shares, e->kir, CT_REDUCE_BLOCK / CT_LANES);
    const ct_ix begin = ct__ix_add(p, first, ct__ix_mul(p, turn, lanes));
    const bool even = ct__ix_is_int(p, rows, &count) && count % own == 0;
    const ct_ix place = ct__ix_var(p, some), row = ct__ix_var(p, rows);
    ct__emit_open(e, CT_BIND_SEQ, even ? some : ct__ix_min(p, some, ct__ix_sub(p, rows, begin)),
                  "row", place);
    ct__share(&n->shares, e->kir, (double)own);
    ct__emit_bind_to(e, row, ct__emit_ix(e, ct__ix_add(p, begin, place)));
    n->row_at = row;
    ct__unflatten_ix(p, row, n->row_size, g->n_rows, n->row);
    n->accumulator = ct__ix_add(p, ct__ix_mul(p, task, some), place);
    row_body(n);
    for (int loops = 0; loops < 3; loops++) ct__emit_end(e);
}

// What the accumulators of the rows come to, by the reduction rule.
static void fold_across(nest *n) {
    ct_emit *e = n->e;
    ct_group *g = n->g;
    ct_ix_pool *p = e->pool;
    ct_ix size[CT_MAX_RANK], inner[CT_MAX_RANK], at[CT_MAX_RANK];
    const int axes = across_sizes(n, size);
    const ct_ix wide = product(e, size, axes), width = ct__ix_int(p, e->target.columns);
    const ct_ix lanes = ct__ix_int(p, CT_LANES), column = ct__ix_var(p, wide);
    ct_ix tiles = ct__ix_div(p, ct__ix_add(p, wide, ct__ix_int(p, e->target.columns - 1)), width);
    ct_ix task = ct__ix_int(p, 0);
    const bool core = !is_one(e, tiles);
    if (core) task = ct__emit_loop(e, CT_BIND_ROWS, tiles, "task");
    const ct_ix start = ct__ix_mul(p, task, width), lane = ct__ix_var(p, width);
    ct__emit_open(e, CT_BIND_LANES, ct__ix_min(p, width, ct__ix_sub(p, wide, start)), "column",
                  lane);
    ct__emit_bind_to(e, column, ct__emit_ix(e, ct__ix_add(p, start, lane)));
    ct__unflatten_ix(p, column, size, axes, inner);
    const ct_ix blocks = block_count(e, product(e, n->row_size, g->n_rows));
    const ct_ix block = ct__emit_loop(e, CT_BIND_SEQ, blocks, NULL);
    const ct_ix place = ct__emit_loop(e, CT_BIND_SEQ, lanes, NULL);
    const ct_ix from = ct__ix_add(p, ct__ix_mul(p, block, lanes), place);
    ct_kval value[CT_MOST_UNITS];
    const size_t units = g->n_units;
    for (size_t i = 0; i < units; i++)
        if (g->units[i].across)
            value[i] = ct__emit_load_at(e, n->part[i], 0, part_dtype(&g->units[i]),
                                        across_offset(n, from, size, axes, inner));
    for (int fold = 0; fold < 2; fold++) {
        for (size_t i = 0; i < units; i++)
            if (g->units[i].across) value[i] = ct__kir_reduce(e->kir, CT_RED_ADD, value[i]);
        ct__emit_end(e);
    }
    for (size_t i = 0; i < units; i++) {
        const ct_unit *u = &g->units[i];
        if (!u->across) continue;
        unit_index(n, u, inner, at);
        value[i] = ct__fold_result(e, u->v.node, value[i]);
        ct__emit_remember(e, u->v, at, value[i]);
        if (u->store) ct__emit_store(e, u->v, at, value[i]);
    }
    for (int pass = 0; pass < 2; pass++) // all values before any store
        for (size_t i = 0; i < units; i++) {
            const ct_unit *u = &g->units[i];
            if (!u->late) continue;
            unit_index(n, u, inner, at);
            if (pass)
                ct__emit_store(e, u->v, at, value[i]);
            else
                value[i] = ct__emit_value(e, u->v, at, CT_DEFAULT);
        }
    ct__emit_end(e);
    if (core) ct__emit_end(e);
}

static void with_rows(nest *n) {
    ct_emit *e = n->e;
    ct_group *g = n->g;
    ct_ix_pool *p = e->pool;
    int outer = g->n_rows - n->lanes;
    for (int i = 0; i < g->n_rows; i++)
        n->row_size[i] = ct__emit_size(e, g->rows[i].v, g->rows[i].axis);
    ct_ix rows = product(e, n->row_size, outer), wide = product(e, n->row_size + outer, n->lanes);
    ct_ix zero = ct__ix_int(p, 0), one = ct__ix_int(p, 1), width = ct__ix_int(p, e->target.columns);
    ct_ix tiles = one, blocks = one;
    if (n->lanes)
        tiles = ct__ix_div(p, ct__ix_add(p, wide, ct__ix_int(p, e->target.columns - 1)), width);
    if (n->pass == 1) blocks = block_count(e, ct__folds_of(e, first_reduction(g)).extent[0]);
    // task = (row, block, tile)
    ct_ix size[3] = {rows, blocks, tiles}, at[3] = {zero, zero, zero};
    ct_ix tasks = product(e, size, 3);
    bool core = !is_one(e, tasks);
    if (core) {
        ct_ix task = ct__emit_loop(e, CT_BIND_ROWS, tasks, "task");
        const double columns = guess_product(e, n->row_size + outer, n->lanes);
        ct__share(&n->shares, e->kir,
                  guess_product(e, n->row_size, outer) * (double)guess(e, blocks) *
                      ceil(columns / (double)e->target.columns));
        ct__unflatten_ix(p, task, size, 3, at);
        if (!n->lanes && !n->pass) n->row_at = task;
    }
    ct__unflatten_ix(p, at[0], n->row_size, outer, n->row);
    if (n->lanes) {
        ct_ix start = ct__ix_mul(p, at[2], width);
        ct_ix extent = ct__ix_min(p, width, ct__ix_sub(p, wide, start));
        ct_ix lane = ct__ix_var(p, width), column = ct__ix_var(p, wide);
        ct__emit_open(e, CT_BIND_LANES, extent, "column", lane);
        ct__share(&n->shares, e->kir, e->target.columns);
        n->vec[n->n_vec++] = column;
        ct__emit_bind_to(e, column, ct__emit_ix(e, ct__ix_add(p, start, lane)));
        ct__unflatten_ix(p, column, n->row_size + outer, n->lanes, n->row + outer);
    }
    if (n->pass == 1)
        block_body(n, at[1]);
    else
        row_body(n);
    if (n->lanes) ct__emit_end(e);
    if (core) ct__emit_end(e);
}

// ------------------------------------------------------------------- elementwise and moved values

typedef struct {
    nest *n;
    ct_val of;                // whose axes they are
    int rank, tasks, outer;   // axes before `tasks` are the task's, before `outer` loops in it
    ct_ix cells[CT_MAX_RANK]; // of each axis: how many iterations go over it
    ct_ix at[CT_MAX_RANK];    // and the one at hand, counted from the range's begin
    int64_t begin[CT_MAX_RANK],
        step[CT_MAX_RANK]; // of the range: its first element; an iteration's
    ct_ix inner, wide;     // iterations behind axis `outer`, and with it
    ct_ix tile;            // chunk of the LANES loop; CT_IX_NONE: it is whole
    int64_t chunk;         // elements of one
    bool turned;           // an iteration computes a column of a block
    bool asks;             // what it reads is asked for, and nothing is stored
} space;

// Elements along the lanes that are worth a task: fewer where each is made of several.
static int64_t task_of(const nest *n) {
    int64_t most = 1, elements;
    for (size_t i = 0; i < n->g->n_units && n->unrolls; i++) {
        if (!n->g->units[i].reduce) continue;
        const ct_folds f = ct__folds_of(n->e, n->g->units[i].v.node);
        if (f.n && ct__ix_is_int(n->e->pool, f.extent[f.n - 1], &elements))
            while (most < elements && most < n->e->target.task / CT_LANES) most *= 2;
    }
    return n->e->target.task / most;
}

static const ct_cut whole = {.elements = 1};
static const ct_cut *cut_of(const nest *n, int axis) { return n->cut ? &n->cut[axis] : &whole; }

// Iterations over a range. What is left of an axis behind its last cell is a range of single elements.
static int64_t step_of(const ct_cut *cut, int range) { return range ? 1 : cut->elements; }
static int64_t length_of(const ct_cut *cut, int range) {
    return (cut->start[range + 1] - cut->start[range]) / step_of(cut, range);
}
static ct_ix cells_of(ct_emit *e, const ct_cut *cut, ct_ix size) {
    int64_t cells = 0;
    for (int r = 0; r < cut->n; r++) cells += length_of(cut, r);
    if (cut->n) return ct__ix_int(e->pool, cells);
    return ct__ix_div(e->pool, size, ct__ix_int(e->pool, cut->elements));
}

// Whose axes the loops go over. Other units have as many elements.
static ct_val space_of(const ct_group *g) {
    size_t best = 0;
    for (size_t i = 1; i < g->n_units; i++)
        if (ct__type(g->units[i].v)->rank > ct__type(g->units[best].v)->rank) best = i;
    return g->units[best].v;
}
// The elements of one iteration: all values before any store, since one may overwrite what another
// reads.
static void elements(space *x) {
    nest *n = x->n;
    ct_emit *e = n->e;
    ct_group *g = n->g;
    int copies = 1;
    for (int a = 0; a < x->rank; a++) copies *= (int)x->step[a];
    const double before = e->flops;
    e->flops = 0;
    ct_kval *value = ct__arena(&e->arena, g->n_units * (size_t)copies * sizeof *value);
    for (int pass = 0; pass < (x->asks ? 1 : 2) && value; pass++)
        for (int c = 0; c < copies; c++) {
            ct_ix at[CT_MAX_RANK], own_at[CT_MAX_RANK];
            for (int a = x->rank - 1, rest = c; a >= 0; a--) {
                const int k = (int)x->step[a];
                ct_ix first = ct__ix_mul(e->pool, x->at[a], ct__ix_int(e->pool, k));
                at[a] = ct__ix_add(e->pool, first, ct__ix_int(e->pool, x->begin[a] + rest % k));
                rest /= k;
            }
            for (size_t i = 0; i < g->n_units; i++) {
                if (!g->units[i].store) continue; // a reduction, computed where it is used
                ct_kval *own = &value[(size_t)c * g->n_units + i];
                ct__emit_index_as(e, g->units[i].v, at, x->of, own_at);
                if (pass)
                    ct__emit_store(e, g->units[i].v, own_at, *own);
                else
                    *own = ct__emit_value(e, g->units[i].v, own_at, CT_DEFAULT);
            }
        }
    if (e->flops < before) e->flops = before; // other ranges are other elements
}

static void elements_at(space *x, ct_ix flat, ct_ix at) {
    ct_emit *e = x->n->e;
    ct__emit_bind_to(e, flat, ct__emit_ix(e, at));
    ct__unflatten_ix(e->pool, flat, x->cells + x->outer, x->rank - x->outer, x->at + x->outer);
    elements(x);
}

// Lines of a later block. They are far from each other, so that no processor guesses them.
static void ask_for(space *x, ct_ix at) {
    ct_emit *e = x->n->e;
    const size_t seen = e->draft->n_seen, known = e->draft->n_memo; // nothing is read there
    ct__kir_prefetches(e->kir, true);
    x->asks = true;
    elements_at(x, ct__ix_var(e->pool, x->wide), at);
    x->asks = false;
    ct__kir_prefetches(e->kir, false);
    e->draft->n_seen = seen;
    e->draft->n_memo = known;
}

// The iterations from `begin` on by the 16, all at once, and what is left of them. An iteration
// computes as many neighbours of an outer axis, so that ct__kir_bind reads along that axis what lies
// along it, and turns it.
static void blocks(space *x, ct_ix begin, ct_ix extent) {
    ct_emit *e = x->n->e;
    ct_ix_pool *p = e->pool;
    ct_ix width = ct__ix_int(p, CT_LANES), many = ct__ix_div(p, extent, width);
    ct_ix block = ct__emit_loop(e, CT_BIND_SEQ, many, "block");
    const double chunks = x->tile < 0 ? 1 : ceil((double)guess(e, x->wide) / (double)x->chunk);
    ct__share(&x->n->shares, e->kir, (double)guess(e, x->wide) / CT_LANES / chunks);
    ct_ix lane = ct__emit_loop(e, CT_BIND_TILE, width, "column");
    ct_ix at = ct__ix_add(p, begin, ct__ix_mul(p, block, width));
    at = ct__ix_add(p, at, lane);
    ask_for(x, ct__ix_add(p, at, ct__ix_int(p, AHEAD * CT_LANES)));
    elements_at(x, ct__ix_var(p, x->wide), at);
    ct__emit_end(e);
    ct__emit_end(e);
    int64_t size;
    if (ct__ix_is_int(p, x->wide, &size) && size % CT_LANES == 0) return;
    ct_ix done = ct__ix_mul(p, many, width);
    lane = ct__emit_loop(e, CT_BIND_LANES, ct__ix_sub(p, extent, done), "rest");
    ct__share(&x->n->shares, e->kir, 1 / chunks); // the last one alone
    elements_at(x, ct__ix_var(p, x->wide), ct__ix_add(p, ct__ix_add(p, begin, done), lane));
    ct__emit_end(e);
}

// So many iterations of axis `outer` (-1: all of them), with the axes behind it, as one loop. Before
// them are others, `skip`.
static void vectors(space *x, int64_t skip, int64_t length) {
    nest *n = x->n;
    ct_emit *e = n->e;
    ct_ix_pool *p = e->pool;
    ct_ix wide = x->wide, first = ct__ix_int(p, 0), chunk = ct__ix_int(p, x->chunk);
    if (length >= 0) wide = ct__ix_mul(p, ct__ix_int(p, length), x->inner);
    if (length >= 0) first = ct__ix_mul(p, ct__ix_int(p, skip), x->inner);
    ct_ix flat = ct__ix_var(p, wide);
    if (x->tile >= 0) {
        ct_ix begin = ct__ix_mul(p, x->tile, chunk), lane = ct__ix_var(p, chunk), extent;
        if (length < 0) {
            extent = ct__ix_min(p, chunk, ct__ix_sub(p, wide, begin));
        } else { // what the chunk and the range share, counted from where the range begins
            begin = ct__ix_sub(p, begin, first);
            ct_ix end = ct__ix_min(p, ct__ix_add(p, begin, chunk), wide);
            begin = ct__ix_max(p, begin, ct__ix_int(p, 0));
            extent = ct__ix_sub(p, end, begin);
        }
        if (x->turned) {
            blocks(x, begin, extent);
            return;
        }
        ct__emit_open(e, CT_BIND_LANES, extent, NULL, lane);
        ct__emit_bind_to(e, flat, ct__emit_ix(e, ct__ix_add(p, begin, lane)));
        ct__share(&n->shares, e->kir,
                  (double)guess(e, wide) * (double)x->chunk / (double)guess(e, x->wide));
    } else if (x->turned) {
        blocks(x, ct__ix_int(p, 0), wide);
        return;
    } else {
        ct__emit_open(e, CT_BIND_LANES, wide, NULL, flat);
    }
    if (n->n_vec < MAX_INNER) n->vec[n->n_vec++] = flat;
    ct__unflatten_ix(p, flat, x->cells + x->outer, x->rank - x->outer, x->at + x->outer);
    elements(x);
    ct__emit_end(e);
}

static void loops_from(space *x, int axis);

// So many iterations of an axis before `outer` (-1: all of them). One that is the task's runs once, if
// the task lies in the range.
static void loop_over(space *x, int axis, int64_t skip, int64_t length, ct_ix task_at) {
    nest *n = x->n;
    ct_emit *e = n->e;
    ct_ix_pool *p = e->pool;
    ct_ix extent = length < 0 ? x->cells[axis] : ct__ix_int(p, length);
    ct_ix first = ct__ix_int(p, skip), var = ct__ix_var(p, extent);
    if (axis < x->tasks) {
        ct_ix end = ct__ix_add(p, first, extent);
        ct_ix inside = ct__ix_and(p, ct__ix_le(p, first, task_at), ct__ix_lt(p, task_at, end));
        ct_ix once = ct__ix_select(p, inside, ct__ix_int(p, 1), ct__ix_int(p, 0));
        ct__emit_open(e, CT_BIND_SEQ, once, NULL, var);
        ct__emit_bind_to(e, var, ct__emit_ix(e, ct__ix_sub(p, task_at, first)));
        ct__share(&n->shares, e->kir, (double)length / (double)guess(e, x->cells[axis]));
    } else {
        ct__emit_open(e, CT_BIND_SEQ, extent, NULL, var);
    }
    if (n->apart) n->row[axis] = var;
    x->at[axis] = var;
    loops_from(x, axis + 1);
    ct__emit_end(e);
}

// The loops from an axis on.
static void loops_from(space *x, int axis) {
    const nest *n = x->n;
    const ct_cut *cut = cut_of(n, axis);
    const ct_ix task_at = axis < x->rank ? x->at[axis] : CT_IX_NONE;
    if (axis == x->outer && (axis == x->rank || !cut->n)) {
        vectors(x, 0, -1);
        return;
    }
    if (axis < x->tasks && !cut->n) {
        loops_from(x, axis + 1);
        return;
    }
    int64_t skip = 0;
    for (int r = 0; r < (cut->n ? cut->n : 1); r++) {
        const int64_t length = cut->n ? length_of(cut, r) : -1;
        x->begin[axis] = cut->n ? cut->start[r] : 0;
        x->step[axis] = step_of(cut, r);
        if (n->turned == axis + 1) x->turned = x->step[axis] > 1;
        if (axis == x->outer)
            vectors(x, skip, length);
        else
            loop_over(x, axis, skip, length, task_at);
        skip += length;
    }
    x->at[axis] = task_at;
}

static void pointwise(nest *n) {
    ct_emit *e = n->e;
    ct_ix_pool *p = e->pool;
    space x = {.n = n, .of = space_of(n->g), .tile = CT_IX_NONE, .chunk = task_of(n)};
    x.rank = ct__type(x.of)->rank;
    x.outer = x.tasks = x.rank - n->lanes;
    for (int a = 0; a < x.rank; a++) {
        const ct_ix size = ct__emit_size(e, x.of, a);
        x.cells[a] = cells_of(e, cut_of(n, a), size);
        x.step[a] = cut_of(n, a)->elements;
    }
    const int behind = x.outer < x.rank;
    x.wide = product(e, x.cells + x.outer, n->lanes);
    x.inner = product(e, x.cells + x.outer + behind, n->lanes - behind);
    ct_ix tiles = ct__ix_int(p, 1);
    if (n->turned) x.chunk = TURNED_ROW;
    x.turned = n->turned;
    const bool chunked = is_dynamic(e, x.wide) || guess(e, x.wide) > x.chunk + x.chunk / 2;
    if (chunked)
        tiles = ct__ix_div(p, ct__ix_add(p, x.wide, ct__ix_int(p, x.chunk - 1)),
                           ct__ix_int(p, x.chunk));
    // Short rows whose places are quotients, or have conditions: several are one task.
    int64_t elements = guess(e, x.wide);
    const bool several = x.outer > 1 || n->cut;
    while (several && !n->turned && x.tasks > 0 && guess(e, x.wide) < SHORT_ROW &&
           !is_dynamic(e, x.cells[x.tasks - 1]) &&
           (elements *= guess(e, x.cells[x.tasks - 1])) <= e->target.task)
        x.tasks--;
    if (n->apart) x.tasks = 0;
    ct_ix rows = product(e, x.cells, x.tasks);
    ct_ix tasks = ct__ix_mul(p, rows, tiles), row = ct__ix_int(p, 0);
    const bool core = !is_one(e, tasks);
    ct_ix task = row;
    if (core) {
        task = ct__emit_loop(e, CT_BIND_ROWS, tasks, "task");
        const double chunks = chunked ? ceil((double)guess(e, x.wide) / (double)x.chunk) : 1;
        ct__share(&n->shares, e->kir, guess_product(e, x.cells, x.tasks) * chunks);
    }
    if (core && n->turned) { // down a column of blocks, so that the next of them lie side by side
        row = ct__ix_mod(p, task, rows);
        if (chunked) x.tile = ct__ix_div(p, task, rows);
    } else {
        row = core ? ct__ix_div(p, task, tiles) : row;
        if (chunked) x.tile = core ? ct__ix_mod(p, task, tiles) : ct__ix_int(p, 0);
    }
    ct__unflatten_ix(p, row, x.cells, x.tasks, x.at);
    loops_from(&x, 0);
    if (core) ct__emit_end(e);
}

// ------------------------------- choice: kernels are written on trial and their accesses looked at

// How many accesses are not steps of 0 or 1 along the lanes. `crossed`: in some a quotient hangs on
// the lanes' variable, even if only by multiples of 16; `torn`: in some by other numbers.
static int rough(nest *n, bool *crossed, bool *torn) {
    ct_ix_pool *p = n->e->pool;
    int bad = 0;
    *crossed = *torn = false;
    for (size_t i = 0; i < n->e->draft->n_seen; i++)
        for (int v = 0; v < n->n_vec; v++) {
            const ct_seen *x = &n->e->draft->seen[i];
            ct_ix var = n->vec[v];
            *crossed |= ct__ix_divides(p, x->offset, var, 0);
            *torn |= ct__ix_divides(p, x->offset, var, CT_LANES);
            if (x->guard >= 0) {
                *crossed |= ct__ix_divides(p, x->guard, var, 0);
                *torn |= ct__ix_divides(p, x->guard, var, CT_LANES);
            }
            int64_t step;
            if (!ct__ix_lane_step(p, x->offset, var, &step) || (step != 0 && step != 1)) bad++;
        }
    return bad;
}

static bool write_out(nest *n, const nest *how) {
    ct_emit *e = how->e;
    *n = (nest){.e = e,
                .g = how->g,
                .row_at = CT_IX_NONE,
                .lanes = how->lanes,
                .flat = how->flat,
                .pass = how->pass,
                .part = how->part,
                .cut = how->cut,
                .apart = how->apart,
                .unrolls = how->unrolls,
                .turned = how->turned,
                .keeps = how->keeps,
                .decided = how->decided,
                .operands = how->operands};
    if (!ct__emit_restart(e)) return false;
    e->draft->group = n->g->id;
    e->unrolls = n->unrolls;
    if (n->g->has_across && n->pass)
        fold_across(n);
    else if (n->g->has_across)
        rows_across(n);
    else if (n->g->has_reduce && !n->unrolls)
        with_rows(n);
    else
        pointwise(n);
    return !e->err->code;
}

// Ranges of an axis whose loop is not its own cannot be told apart.
static bool has_ranges_inside(const nest *n, int rank) {
    for (int a = rank - n->lanes + 1; a < rank && n->cut; a++)
        if (n->cut[a].n) return true;
    return false;
}

// All trailing axes that no access divides; where those are short, also such that are divided by
// multiples of 16 alone. Of cut ones as many as are the least work. *n is what is chosen.
static bool choose_lanes(nest *n, nest *best) {
    nest how = *best;
    bool crossed, torn;
    int rank = ct__type(space_of(how.g))->rank, tolerant = 0, cheapest = rank ? 1 : 0;
    double least = INFINITY;
    for (how.lanes = rank; how.lanes > 0; how.lanes--) {
        if (has_ranges_inside(&how, rank)) continue;
        if (!how.cut && how.lanes == 1) break;
        if (!write_out(n, &how)) return false;
        int bad = rough(n, &crossed, &torn);
        const double work = how.cut ? ct__work(n->e, &n->shares) : 0;
        if (how.cut && work < least) {
            least = work;
            cheapest = how.lanes;
        }
        if (!crossed) break;
        if (!torn && !bad && !tolerant) tolerant = how.lanes;
    }
    best->lanes = how.cut ? cheapest : how.lanes;
    if (!how.cut && tolerant > how.lanes) {
        int64_t width = 1;
        const ct_type *t = ct__type(space_of(how.g));
        for (int a = rank - how.lanes; a < rank; a++) width *= ct__is_dyn(t, a) ? 64 : t->dim[a];
        if (width < 8 * CT_LANES) best->lanes = tolerant;
    }
    return write_out(n, best);
}

// Would a kernel with several copies of its body be told to read what it has overwritten?
static bool assigns(const nest *n) {
    const ct_sched *s = n->e->draft->sched;
    for (size_t i = 0; i < n->g->n_units; i++) {
        const int32_t root = ct__sval(s, n->g->units[i].v)->root;
        if (root >= 0 && s->graph->roots[root].kind == CT_ROOT_ASSIGN) return true;
    }
    return false;
}

// Does an operand lie in memory along `axis`, and in steps along the last one? Then a cell of as many
// elements as there are lanes is a column of a block that can be turned.
static bool wants_turning(const nest *apart, int axis, int rank, int64_t size, ct_cut *cut) {
    const ct_draft *d = apart->e->draft;
    ct_ix_pool *p = apart->e->pool;
    bool found = false;
    for (size_t i = 0; i < d->n_seen && !found; i++) {
        const ct_seen *x = &d->seen[i];
        ct_ix by, far;
        int64_t step, steps;
        found = !x->write && x->guard < 0 && ct__ix_stride(p, x->offset, apart->row[axis], &by) &&
                ct__ix_stride(p, x->offset, apart->row[rank - 1], &far) &&
                ct__ix_is_int(p, by, &step) && step == 1 &&
                !(ct__ix_is_int(p, far, &steps) && (steps == 0 || steps == 1));
    }
    if (!found || size < CT_LANES) return false;
    *cut = (ct_cut){.elements = CT_LANES};
    if (size % CT_LANES) {
        cut->n = 2;
        cut->start[1] = size - size % CT_LANES;
        cut->start[2] = size;
    }
    return true;
}

// Axes are cut one after the other, outermost first, where that makes the kernel less work. *n is what
// is chosen.
static bool choose_pointwise(nest *n, nest *best, ct_cut *cut) {
    bool crossed, torn, guarded = false;
    const int rank = ct__type(space_of(best->g))->rank;
    if (!choose_lanes(n, best)) return false;
    for (size_t i = 0; i < n->e->draft->n_seen; i++) guarded |= n->e->draft->seen[i].guard >= 0;
    rough(n, &crossed, &torn);
    if (!rank || assigns(n) || (!guarded && !torn && best->lanes == rank)) return true;
    double least = ct__work(n->e, &n->shares);
    nest apart = *best;
    apart.apart = true;
    apart.lanes = 0;
    if (!write_out(n, &apart)) return false;
    enum { RANGES, CELLS, BLOCKS, FORMS };
    ct_cut may[FORMS][CT_MAX_RANK];
    for (int a = 0; a < rank; a++) {
        const ct_ix extent = ct__emit_size(n->e, space_of(best->g), a);
        const int64_t size = guess(n->e, extent);
        for (int k = 0; k < FORMS; k++) may[k][a] = whole;
        cut[a] = whole;
        if (is_dynamic(n->e, extent)) continue;
        ct__find_cuts(n->e, n->row[a], size, a == rank - 1, &may[RANGES][a], &may[CELLS][a]);
        if (a < rank - 1 && !best->unrolls) wants_turning(n, a, rank, size, &may[BLOCKS][a]);
    }
    int copies = 1;
    for (int a = 0; a < rank; a++)
        for (int k = 0; k < FORMS; k++) {
            const int more = (may[k][a].n ? may[k][a].n : 1) - 1 + (int)may[k][a].elements;
            if (more == 1 || copies * more > MOST_COPIES || best->turned) continue;
            const ct_cut before = cut[a];
            nest how = *best;
            cut[a] = may[k][a];
            how.cut = cut;
            how.turned = k == BLOCKS ? a + 1 : 0;
            if (how.turned) how.lanes = 1;
            if (how.turned ? !write_out(n, &how) : !choose_lanes(n, &how)) return false;
            const double work = ct__work(n->e, &n->shares);
            if (work < least * 0.95 && n->e->kir->n <= LONGEST_CUT) {
                least = work;
                *best = how;
                copies *= more;
            } else {
                cut[a] = before;
            }
        }
    return write_out(n, best);
}

static bool choose_rows(nest *best) {
    nest n, how = *best;
    bool crossed, torn;
    how.lanes = 0;
    how.flat = true;
    if (!write_out(&n, &how)) return false;
    int bad = rough(&n, &crossed, &torn);
    if (torn) {
        how.flat = false;
        if (!write_out(&n, &how)) return false;
        bad = rough(&n, &crossed, &torn);
    }
    best->lanes = 0;
    best->flat = how.flat;
    best->decided = true;
    best->operands = n.operands;
    for (int i = 0; i < n.e->draft->n_kept; i++)
        if (n.e->draft->kept[i].wanted) best->keeps |= 1u << n.e->draft->kept[i].number;
    // Lanes along the last row axes: where memory runs along them, or the reductions are tiny.
    bool tiny = true;
    for (size_t i = 0; i < n.g->n_units; i++) {
        if (!n.g->units[i].reduce) continue;
        ct_folds f = ct__folds_of(n.e, n.g->units[i].v.node);
        for (int k = 0; k < f.n; k++) tiny &= guess(n.e, f.extent[k]) < CT_LANES;
    }
    if ((bad == 0 && !tiny) || how.g->has_across) return true;
    const double work = ct__work(n.e, &n.shares);
    for (how.lanes = how.g->n_rows; how.lanes > 0; how.lanes--) {
        if (!write_out(&n, &how)) return false;
        int own = rough(&n, &crossed, &torn);
        if (torn && how.lanes > 1) continue;
        ct_ix wide = product(n.e, n.row_size + how.g->n_rows - how.lanes, how.lanes);
        bool enough = guess(n.e, wide) >= CT_LANES / 2;
        const bool less = tiny && ct__work(n.e, &n.shares) < work;
        if (enough && (own < bad || less)) best->lanes = how.lanes;
        break;
    }
    return true;
}

// Is the group one level of plain reductions over one long extent, with too few tasks?
static bool wants_split(nest *n) {
    ct_group *g = n->g;
    ct_emit *e = n->e;
    ct_ix extent = CT_IX_NONE;
    if (g->n_units > 64 || g->has_across) return false;
    for (size_t i = 0; i < g->n_units; i++) {
        const ct_unit *u = &g->units[i];
        ct_ix size[CT_MAX_RANK];
        if (!u->reduce) {
            if (inner_sizes(n, u, size)) return false;
            continue;
        }
        ct_folds f = ct__folds_of(e, u->v.node);
        if (u->level || f.n != 1 || ct__kred_is_place(u->v.node->op->reduction)) return false;
        if (extent >= 0 && extent != f.extent[0]) return false;
        extent = f.extent[0];
    }
    int outer = g->n_rows - n->lanes;
    int64_t tasks = guess(e, product(e, n->row_size, outer));
    if (n->lanes)
        tasks *= (guess(e, product(e, n->row_size + outer, n->lanes)) + e->target.columns - 1) /
                 e->target.columns;
    return extent >= 0 && tasks < e->target.few_tasks &&
           (is_dynamic(e, extent) || guess(e, extent) >= e->target.long_line);
}

// Are a unit's row axes all of the group's, in their order?
static bool has_all_rows(const nest *n, const ct_unit *u) {
    const ct_type *t = ct__type(u->axes);
    int row = 0;
    for (int a = 0; a < t->rank; a++)
        if (u->row[a] >= 0 && u->row[a] != row++) return false;
    return row == n->g->n_rows && u->axes.node == u->v.node;
}
// Is the group nothing but sums over the many rows of matrices, along whose columns lanes run?
static bool sums_matrices(nest *n) {
    const ct_group *g = n->g;
    ct_emit *e = n->e;
    if (n->lanes != g->n_rows || g->has_across || g->n_units > 64) return false;
    const ct_node *first = first_reduction(g);
    const ct_ix extent = ct__folds_of(e, first).extent[0];
    bool stores = false, late = false;
    for (size_t i = 0; i < g->n_units; i++) {
        const ct_unit *u = &g->units[i];
        ct_ix size[CT_MAX_RANK];
        const bool inner = inner_sizes(n, u, size) > 0;
        if (!has_all_rows(n, u)) return false;
        if (u->reduce) {
            const ct_folds f = ct__folds_of(e, u->v.node);
            if (u->level || f.n != 1 || f.extent[0] != extent || f.first[0] ||
                u->v.node->op->reduction != CT_RED_ADD)
                return false;
        } else if (inner && (u->level || !ct__same_shape(ct__type(u->v), ct__type(first->in[0])))) {
            return false;
        }
        stores |= inner;
        late |= !u->reduce && !inner;
    }
    const int64_t wide = guess(e, product(e, n->row_size, g->n_rows)), rows = guess(e, extent);
    const int64_t tasks = (rows + CT_REDUCE_BLOCK - 1) / CT_REDUCE_BLOCK * CT_LANES;
    return !(stores && late) && wide >= e->target.columns && rows >= FEW_ROWS_ACROSS &&
           rows * wide >= LARGE_MATRIX && tasks >= TASKS_A_CORE * e->target.cores;
}
// Their rows become the group's, so that memory is read in its order.
static void go_by_matrix_rows(ct_group *g) {
    const ct_node *first = first_reduction(g);
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

static bool make_parts(nest *n) {
    ct_sched *s = n->e->draft->sched;
    n->part = ct__arena(&s->arena, n->g->n_units * sizeof *n->part);
    if (!n->part) return ct__err_memory(s->err, CT_NOWHERE, "plan", n->g->n_units);
    for (size_t i = 0; i < n->g->n_units; i++) {
        const ct_unit *u = &n->g->units[i];
        if (!u->reduce || u->across != n->g->has_across) continue;
        int64_t rows = ct__elements_of(&u->v.node->out[0]), blocks = 0;
        if (ct__unmarked(rows))
            blocks =
                ct__size_div_up(ct__size_div_up(ct__elements_of(ct__type(u->v.node->in[0])), rows),
                                CT_REDUCE_BLOCK);
        const int64_t parts = ct__size_mul(rows, ct__size_mul(blocks, u->across ? CT_LANES : 1));
        n->part[i] = ct__sched_temp(s, ct__size_mul(parts, (int64_t)ct_dtype_size(part_dtype(u))));
        if (n->part[i] == UINT32_MAX) return false;
    }
    return true;
}

// Are all reductions over a few elements, and all values of one element a row? Then the rows are what
// lanes run along and cuts may be made in, as if nothing was reduced.
static bool may_unroll(const nest *n) {
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

// In rows, or written out where that is less work. *n is what is chosen.
static bool choose_reduced(nest *n, nest *best, ct_cut *cut) {
    if (!choose_rows(best) || !write_out(n, best)) return false;
    if (sums_matrices(n)) {
        go_by_matrix_rows(best->g);
        *best = (nest){.e = best->e, .g = best->g, .flat = true};
        return make_parts(best) && choose_rows(best) && write_out(n, best);
    }
    if (!may_unroll(n)) return true;
    const double work = ct__work(n->e, &n->shares);
    nest flat = {.e = best->e, .g = best->g, .flat = true, .unrolls = true};
    if (!choose_pointwise(n, &flat, cut)) return false;
    if (ct__work(n->e, &n->shares) >= work || n->e->kir->n > LONGEST_CUT) return write_out(n, best);
    *best = flat;
    return true;
}

static ct_emit *emit_for(ct_sched *s, ct_group *g) { return ct__emit_new(s, g->units[0].v.node); }

bool ct__emit_group(ct_sched *s, ct_group *g) {
    nest n, how = {.e = emit_for(s, g), .g = g, .flat = true};
    ct_cut cut[CT_MAX_RANK];
    if (!how.e) return false;
    bool ok = !g->has_across || make_parts(&how);
    if (ok) ok = g->has_reduce ? choose_reduced(&n, &how, cut) : choose_pointwise(&n, &how, cut);
    if (ok && g->has_reduce && !how.unrolls && (g->has_across || wants_split(&n))) {
        how.pass = !g->has_across;
        ok = (g->has_across || make_parts(&how)) && write_out(&n, &how);
        ok = ok ? ct__emit_done(how.e, 0) : (ct__emit_free(how.e), false);
        if (!ok) return false;
        how.e = emit_for(s, g);
        how.pass = 2;
        how.lanes = g->n_rows;
        ok = how.e && write_out(&n, &how);
    }
    if (!ok) {
        ct__emit_free(how.e);
        return false;
    }
    return ct__emit_done(how.e, 0);
}
