// Writes the loops of a kernel without reductions: its axes, their ranges and cells, and what is prefetched.
#include <math.h>

#include "compile/schedule/nest.h"
#include "kinds/reduce.h"

enum {
    SHORT_ROW = 512,      // elements of a pointwise row that is not worth a task of its own
    TRANSPOSED_ROW = 512, // elements of a row of transposed blocks that are a task
    PREFETCH_BLOCKS = 2,  // distance at which the lines of a block are prefetched (memory latency)
};

typedef struct {
    ct_nest *n;
    ct_val value; // the value whose axes are looped over
    // the axes before `tasks` belong to the task, those before `outer` are loops in it
    int rank, tasks, outer;
    ct_ix n_cells[CT_MAX_RANK]; // number of iterations over each axis
    ct_ix at[CT_MAX_RANK]; // index of the current iteration, counted from the begin of its range
    int64_t begin[CT_MAX_RANK],
        step[CT_MAX_RANK];   // of the range: its first element, and the elements of an iteration
    ct_ix inner, iterations; // number of iterations after axis `outer`, and from it on
    // number of the chunk of the LANES loop; CT_IX_NONE: the loop is whole
    ct_ix chunk_index;
    int64_t chunk_size; // iterations of a chunk
    bool transposed;    // an iteration computes a column of a block
    bool prefetches;    // loads are prefetches, and nothing is stored
} pointwise_space;

// Returns the number of elements along the lanes that are worth a task: fewer where each is made from
// several.
static int64_t pointwise_task_elements(const ct_nest *n) {
    int64_t copies = 1, elements;
    for (size_t i = 0; i < n->g->n_units && n->unrolls; i++) {
        if (!n->g->units[i].reduce) continue;
        const ct_folds f = ct__folds_of(n->e, n->g->units[i].v.node);
        if (f.n && ct__ix_is_int(n->e->pool, f.extent[f.n - 1], &elements))
            while (copies < elements && copies < n->e->target.task / CT_LANES) copies *= 2;
    }
    return n->e->target.task / copies;
}

const ct_cut ct__nest_whole_axis = {.elements = 1};

static const ct_cut *pointwise_axis_split(const ct_nest *n, int axis) {
    return n->axis_split ? &n->axis_split[axis] : &ct__nest_whole_axis;
}

// Return the elements of an iteration over a range, and its number of iterations. The elements of an axis
// after its last cell are a range of single elements.
static int64_t pointwise_range_step(const ct_cut *axis_split, int range) {
    return range ? 1 : axis_split->elements;
}

static int64_t pointwise_range_length(const ct_cut *axis_split, int range) {
    return (axis_split->start[range + 1] - axis_split->start[range]) /
           pointwise_range_step(axis_split, range);
}

static ct_ix pointwise_count_cells(ct_emit *e, const ct_cut *axis_split, ct_ix size) {
    int64_t cells = 0;
    for (int r = 0; r < axis_split->n; r++) cells += pointwise_range_length(axis_split, r);
    if (axis_split->n) return ct__ix_int(e->pool, cells);
    return ct__ix_div(e->pool, size, ct__ix_int(e->pool, axis_split->elements));
}

// Returns the value whose axes the loops run over. Other units have as many elements.
ct_val ct__nest_space_value(const ct_group *g) {
    size_t best = 0;
    for (size_t i = 1; i < g->n_units; i++)
        if (ct__type(g->units[i].v)->rank > ct__type(g->units[best].v)->rank) best = i;
    return g->units[best].v;
}

// Writes the elements of one iteration: all values before any store, since a store may overwrite what
// another value reads.
static void pointwise_write_elements(pointwise_space *x) {
    ct_nest *n = x->n;
    ct_emit *e = n->e;
    ct_group *g = n->g;
    int copies = 1;
    for (int a = 0; a < x->rank; a++) copies *= (int)x->step[a];
    const double before = e->flops;
    e->flops = 0;
    ct_kval *value = ct__arena(&e->arena, g->n_units * (size_t)copies * sizeof *value);
    for (int pass = 0; pass < (x->prefetches ? 1 : 2) && value; pass++)
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
                ct__emit_index_as(e, g->units[i].v, at, x->value, own_at);
                if (pass)
                    ct__emit_store(e, g->units[i].v, own_at, *own);
                else
                    *own = ct__emit_value(e, g->units[i].v, own_at, CT_DEFAULT);
            }
        }
    if (e->flops < before) e->flops = before; // other ranges are other elements
}

static void pointwise_write_elements_at(pointwise_space *x, ct_ix flat, ct_ix at) {
    ct_emit *e = x->n->e;
    ct__emit_bind_to(e, flat, ct__emit_ix(e, at));
    ct__unflatten_ix(e->pool, flat, x->n_cells + x->outer, x->rank - x->outer, x->at + x->outer);
    pointwise_write_elements(x);
}

// Prefetches the lines of a later block. They are far from each other, so no processor predicts them.
static void pointwise_prefetch(pointwise_space *x, ct_ix at) {
    ct_emit *e = x->n->e;
    const size_t seen = e->draft->n_seen, known = e->draft->n_memo; // a prefetch is no access
    ct__kir_set_prefetch_mode(e->kir, true);
    x->prefetches = true;
    pointwise_write_elements_at(x, ct__ix_var(e->pool, x->iterations), at);
    x->prefetches = false;
    ct__kir_set_prefetch_mode(e->kir, false);
    e->draft->n_seen = seen;
    e->draft->n_memo = known;
}

// Writes the iterations from `begin` on, 16 at once, and the remaining ones. An iteration computes as many
// neighbours along an outer axis, so that ct__kir_lower_tiles loads along that axis what is contiguous along it,
// and transposes it in registers.
static void pointwise_write_blocks(pointwise_space *x, ct_ix begin, ct_ix extent) {
    ct_emit *e = x->n->e;
    ct_ix_pool *p = e->pool;
    ct_ix width = ct__ix_int(p, CT_LANES), many = ct__ix_div(p, extent, width);
    ct_ix block = ct__emit_loop(e, CT_BIND_SEQ, many, "block");
    const double chunks =
        x->chunk_index < 0
            ? 1
            : ceil((double)ct__nest_estimate(e, x->iterations) / (double)x->chunk_size);
    ct__share(&x->n->trip_counts, e->kir,
              (double)ct__nest_estimate(e, x->iterations) / CT_LANES / chunks);
    ct_ix lane = ct__emit_loop(e, CT_BIND_TILE, width, "column");
    ct_ix at = ct__ix_add(p, begin, ct__ix_mul(p, block, width));
    at = ct__ix_add(p, at, lane);
    pointwise_prefetch(x, ct__ix_add(p, at, ct__ix_int(p, PREFETCH_BLOCKS * CT_LANES)));
    pointwise_write_elements_at(x, ct__ix_var(p, x->iterations), at);
    ct__emit_end(e);
    ct__emit_end(e);
    int64_t size;
    if (ct__ix_is_int(p, x->iterations, &size) && size % CT_LANES == 0) return;
    ct_ix done = ct__ix_mul(p, many, width);
    lane = ct__emit_loop(e, CT_BIND_LANES, ct__ix_sub(p, extent, done), "rest");
    ct__share(&x->n->trip_counts, e->kir, 1 / chunks); // the last chunk alone
    pointwise_write_elements_at(x, ct__ix_var(p, x->iterations),
                                ct__ix_add(p, ct__ix_add(p, begin, done), lane));
    ct__emit_end(e);
}

// Writes `length` iterations of axis `outer` (-1: all of them), with the axes after it, as one loop. `skip`
// iterations precede them.
static void pointwise_write_vectors(pointwise_space *x, int64_t skip, int64_t length) {
    ct_nest *n = x->n;
    ct_emit *e = n->e;
    ct_ix_pool *p = e->pool;
    ct_ix wide = x->iterations, first = ct__ix_int(p, 0), chunk = ct__ix_int(p, x->chunk_size);
    if (length >= 0) wide = ct__ix_mul(p, ct__ix_int(p, length), x->inner);
    if (length >= 0) first = ct__ix_mul(p, ct__ix_int(p, skip), x->inner);
    ct_ix flat = ct__ix_var(p, wide);
    if (x->chunk_index >= 0) {
        ct_ix begin = ct__ix_mul(p, x->chunk_index, chunk), lane = ct__ix_var(p, chunk), extent;
        if (length < 0) {
            extent = ct__ix_min(p, chunk, ct__ix_sub(p, wide, begin));
        } else { // the intersection of the chunk and the range, counted from the begin of the range
            begin = ct__ix_sub(p, begin, first);
            ct_ix end = ct__ix_min(p, ct__ix_add(p, begin, chunk), wide);
            begin = ct__ix_max(p, begin, ct__ix_int(p, 0));
            extent = ct__ix_sub(p, end, begin);
        }
        if (x->transposed) {
            pointwise_write_blocks(x, begin, extent);
            return;
        }
        ct__emit_open(e, CT_BIND_LANES, extent, NULL, lane);
        ct__emit_bind_to(e, flat, ct__emit_ix(e, ct__ix_add(p, begin, lane)));
        ct__share(&n->trip_counts, e->kir,
                  (double)ct__nest_estimate(e, wide) * (double)x->chunk_size /
                      (double)ct__nest_estimate(e, x->iterations));
    } else if (x->transposed) {
        pointwise_write_blocks(x, ct__ix_int(p, 0), wide);
        return;
    } else {
        ct__emit_open(e, CT_BIND_LANES, wide, NULL, flat);
    }
    if (n->n_lane_vars < CT_NEST_MOST_INNER) n->lane_vars[n->n_lane_vars++] = flat;
    ct__unflatten_ix(p, flat, x->n_cells + x->outer, x->rank - x->outer, x->at + x->outer);
    pointwise_write_elements(x);
    ct__emit_end(e);
}

static void pointwise_write_loops(pointwise_space *x, int axis);

// Writes `length` iterations of an axis before `outer` (-1: all of them). The loop of an axis that belongs
// to the task runs once, if the task is in the range.
static void pointwise_write_loop(pointwise_space *x, int axis, int64_t skip, int64_t length,
                                 ct_ix task_at) {
    ct_nest *n = x->n;
    ct_emit *e = n->e;
    ct_ix_pool *p = e->pool;
    ct_ix extent = length < 0 ? x->n_cells[axis] : ct__ix_int(p, length);
    ct_ix first = ct__ix_int(p, skip), var = ct__ix_var(p, extent);
    if (axis < x->tasks) {
        ct_ix end = ct__ix_add(p, first, extent);
        ct_ix inside = ct__ix_and(p, ct__ix_le(p, first, task_at), ct__ix_lt(p, task_at, end));
        ct_ix once = ct__ix_select(p, inside, ct__ix_int(p, 1), ct__ix_int(p, 0));
        ct__emit_open(e, CT_BIND_SEQ, once, NULL, var);
        ct__emit_bind_to(e, var, ct__emit_ix(e, ct__ix_sub(p, task_at, first)));
        ct__share(&n->trip_counts, e->kir,
                  (double)length / (double)ct__nest_estimate(e, x->n_cells[axis]));
    } else {
        ct__emit_open(e, CT_BIND_SEQ, extent, NULL, var);
    }
    if (n->separate_axes) n->row[axis] = var;
    x->at[axis] = var;
    pointwise_write_loops(x, axis + 1);
    ct__emit_end(e);
}

// Writes the loops from an axis on.
static void pointwise_write_loops(pointwise_space *x, int axis) {
    const ct_nest *n = x->n;
    const ct_cut *axis_split = pointwise_axis_split(n, axis);
    const ct_ix task_at = axis < x->rank ? x->at[axis] : CT_IX_NONE;
    if (axis == x->outer && (axis == x->rank || !axis_split->n)) {
        pointwise_write_vectors(x, 0, -1);
        return;
    }
    if (axis < x->tasks && !axis_split->n) {
        pointwise_write_loops(x, axis + 1);
        return;
    }
    int64_t skip = 0;
    for (int r = 0; r < (axis_split->n ? axis_split->n : 1); r++) {
        const int64_t length = axis_split->n ? pointwise_range_length(axis_split, r) : -1;
        x->begin[axis] = axis_split->n ? axis_split->start[r] : 0;
        x->step[axis] = pointwise_range_step(axis_split, r);
        if (n->transposed == axis + 1) x->transposed = x->step[axis] > 1;
        if (axis == x->outer)
            pointwise_write_vectors(x, skip, length);
        else
            pointwise_write_loop(x, axis, skip, length, task_at);
        skip += length;
    }
    x->at[axis] = task_at;
}

void ct__nest_write_pointwise(ct_nest *n) {
    ct_emit *e = n->e;
    ct_ix_pool *p = e->pool;
    pointwise_space x = {.n = n,
                         .value = ct__nest_space_value(n->g),
                         .chunk_index = CT_IX_NONE,
                         .chunk_size = pointwise_task_elements(n)};
    x.rank = ct__type(x.value)->rank;
    x.outer = x.tasks = x.rank - n->lanes;
    for (int a = 0; a < x.rank; a++) {
        const ct_ix size = ct__emit_size(e, x.value, a);
        x.n_cells[a] = pointwise_count_cells(e, pointwise_axis_split(n, a), size);
        x.step[a] = pointwise_axis_split(n, a)->elements;
    }
    const int has_outer = x.outer < x.rank;
    x.iterations = ct__nest_product(e, x.n_cells + x.outer, n->lanes);
    x.inner = ct__nest_product(e, x.n_cells + x.outer + has_outer, n->lanes - has_outer);
    ct_ix tiles = ct__ix_int(p, 1);
    if (n->transposed) x.chunk_size = TRANSPOSED_ROW;
    x.transposed = n->transposed;
    const bool chunked = ct__nest_is_dynamic(e, x.iterations) ||
                         ct__nest_estimate(e, x.iterations) > x.chunk_size + x.chunk_size / 2;
    if (chunked)
        tiles = ct__ix_div(p, ct__ix_add(p, x.iterations, ct__ix_int(p, x.chunk_size - 1)),
                           ct__ix_int(p, x.chunk_size));
    // Short rows whose offsets are quotients, or that have conditions: a task has several of them.
    int64_t elements = ct__nest_estimate(e, x.iterations);
    const bool several = x.outer > 1 || n->axis_split;
    while (several && !n->transposed && x.tasks > 0 &&
           ct__nest_estimate(e, x.iterations) < SHORT_ROW &&
           !ct__nest_is_dynamic(e, x.n_cells[x.tasks - 1]) &&
           (elements *= ct__nest_estimate(e, x.n_cells[x.tasks - 1])) <= e->target.task)
        x.tasks--;
    if (n->separate_axes) x.tasks = 0;
    ct_ix rows = ct__nest_product(e, x.n_cells, x.tasks);
    ct_ix tasks = ct__ix_mul(p, rows, tiles), row = ct__ix_int(p, 0);
    const bool core = !ct__nest_is_one(e, tasks);
    ct_ix task = row;
    if (core) {
        task = ct__emit_loop(e, CT_BIND_ROWS, tasks, "task");
        const double chunks =
            chunked ? ceil((double)ct__nest_estimate(e, x.iterations) / (double)x.chunk_size) : 1;
        ct__share(&n->trip_counts, e->kir,
                  ct__nest_estimate_product(e, x.n_cells, x.tasks) * chunks);
    }
    // tasks go down a column of blocks, so that successive blocks are adjacent
    if (core && n->transposed) {
        row = ct__ix_mod(p, task, rows);
        if (chunked) x.chunk_index = ct__ix_div(p, task, rows);
    } else {
        row = core ? ct__ix_div(p, task, tiles) : row;
        if (chunked) x.chunk_index = core ? ct__ix_mod(p, task, tiles) : ct__ix_int(p, 0);
    }
    ct__unflatten_ix(p, row, x.n_cells, x.tasks, x.at);
    pointwise_write_loops(&x, 0);
    if (core) ct__emit_end(e);
}
