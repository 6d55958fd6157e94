// The matrix product, after BLIS. A task computes one block of the result: for each chunk of k it packs its
// block of A, then B panel by panel, and a register tile of rows x columns runs over both. The sums of all
// chunks but the last are kept in scratch, so each element of the result is stored once.
#include "kinds/matmul.h"

#include <string.h>

enum { MAX_VECTORS = 8 };

typedef struct axes {
    int n;
    const ct_kval *size; // (n)
} axes;

// A position along axes: all axes but the last as one flat position, and the last axis.
typedef struct position {
    ct_kval outer, last;
} position;

typedef struct matmul {
    ct_kir *k;
    const ct_matmul_spec *s;
    axes row_axes, column_axes, inner_axes, result_axes;
    int group;      // panels of b that are packed together
    int mr, nv, nr; // the register tile: rows, vectors, columns
    int64_t mc, nc; // the task's block
    int64_t size;   // steps of k in a chunk
    // steps of k of a packed tile of a, one more than needed, so that tiles do not all begin in one set of
    // the L1 cache
    int64_t a_tile;
    bool a_by_k;                 // A is packed as [tile][k][row], else as [row][k]
    bool a_is_gathered;          // A is contiguous along neither axis
    int64_t mrp;                 // rows of a packed tile with their padding
    bool may_have_chunks;        // there may be more than one chunk
    bool b_by_column;            // b is contiguous along k
    bool a_in_place, b_in_place; // not packed: the tile reads the operand in place
    // rows of a packed panel of b, more than needed if windows are packed next to each other, so that panels
    // do not all begin in one set of the L1 cache
    int64_t pitch;
    bool packs_all_a; // all chunks of a are packed at once, and the panels are the outer loop
    int64_t a_chunk, sum_width; // elements: a packed chunk of a, a row of the sums
    int stage;                  // scratch for transposing columns of b
    int a, b, tile, sum; // scratch: packed block of A, packed panel of B, a tile, the sums so far
    ct_kval at[2 * CT_MAX_RANK];    // the task's batch index, then free for further axes
    ct_kval batch;                  // its flat index
    ct_kval row0, rows, col0, cols; // the task's block
    ct_kval chunk, last, k0, kn;    // the current chunk
    bool prefetches_operands, prefetches_result; // whether memory that is needed soon is prefetched
    ct_kval next_k, next_column;                 // the part of b that is packed next
} matmul;

static ct_kval matmul_sub(ct_kir *k, ct_kval a, ct_kval b) { return ct__kir_sub(k, a, b); }
// Returns the smaller one of a - b and `most`.
static ct_kval matmul_clip_rest(ct_kir *k, ct_kval a, ct_kval b, int64_t most) {
    ct_kval limit = ct__kir_int(k, most);
    return ct__kir_min(k, matmul_sub(k, a, b), limit);
}

// ------------------------------------------------------------------------------------- positions

static position matmul_split_position(const matmul *m, const axes *x, ct_kval flat) {
    if (x->n == 1) return (position){-1, flat};
    ct_kval width = x->size[x->n - 1];
    return (position){ct__kir_div(m->k, flat, width), ct__kir_mod(m->k, flat, width)};
}

// Sets the positions that follow n others. Returns the number of all positions.
static int matmul_set_position(matmul *m, int n, const axes *x, position at) {
    ct__unflatten(m->k, at.outer, x->n - 1, x->size, m->at + n);
    m->at[n + x->n - 1] = at.last;
    return n + x->n;
}

static ct_kval matmul_load_a(matmul *m, ct_kval row, position inner) {
    int n = matmul_set_position(m, m->s->n_batch, &m->row_axes, (position){-1, row});
    return ct__source_load(m->k, &m->s->a, matmul_set_position(m, n, &m->inner_axes, inner), m->at);
}
static ct_kval matmul_load_b(matmul *m, position inner, position column) {
    int n = matmul_set_position(m, m->s->n_batch, &m->inner_axes, inner);
    return ct__source_load(m->k, &m->s->b, matmul_set_position(m, n, &m->column_axes, column),
                           m->at);
}

// Divides the flat position of the outer axes now, outside of the loops that use its parts. Equal
// instructions are shared, and no compiler hoists a division out of a loop that may run zero times.
static void matmul_hoist_division(matmul *m, const axes *x, ct_kval outer) {
    ct_kval each[CT_MAX_RANK];
    ct__unflatten(m->k, outer, x->n - 1, x->size, each);
}

// A LANES loop over positions starting at `from`; with several axes, one loop for each run along the last of
// them.
typedef struct run {
    ct_kval i; // in [0, count)
    position at;
} run;
static run matmul_open_run(matmul *m, const axes *x, ct_kval from, ct_kval count,
                           const char *name) {
    ct_kir *k = m->k;
    if (x->n == 1) {
        ct_kval i = ct__kir_loop(k, CT_BIND_LANES, count, name);
        return (run){i, {-1, ct__kir_add(k, from, i)}};
    }
    ct_kval width = x->size[x->n - 1], end = ct__kir_add(k, from, count);
    ct_kval first = ct__kir_div(k, from, width);
    ct_kval runs = matmul_sub(k, ct__kir_div(k, ct__kir_addi(k, end, -1), width), first);
    ct_kval r = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_addi(k, runs, 1), "run");
    ct_kval outer = ct__kir_add(k, first, r), base = ct__kir_mul(k, outer, width);
    matmul_hoist_division(m, x, outer);
    ct_kval begin = ct__kir_max(k, from, base);
    end = ct__kir_min(k, end, ct__kir_add(k, base, width));
    ct_kval i = ct__kir_loop(k, CT_BIND_LANES, matmul_sub(k, end, begin), name);
    return (run){ct__kir_add(k, matmul_sub(k, begin, from), i),
                 {outer, ct__kir_add(k, matmul_sub(k, begin, base), i)}};
}
static void matmul_close_run(matmul *m, const axes *x) {
    ct__kir_end(m->k);
    if (x->n > 1) ct__kir_end(m->k);
}

static ct_kval matmul_zero(const matmul *m) { return ct__kir_const(m->k, m->s->dtype, 0); }
static ct_kval matmul_packed_zero(const matmul *m) {
    return m->s->pairs ? ct__kir_const_int(m->k, CT_U32, 0) : matmul_zero(m);
}

// Returns the tile's first row in all of a. In an operand that is not packed, tiles have no rows beyond the
// edge: the last tile begins earlier.
static ct_kval matmul_tile_first_row(const matmul *m, ct_kval row) {
    ct_kir *k = m->k;
    ct_kval at = ct__kir_add(k, m->row0, row);
    return m->a_in_place ? ct__kir_min(k, at, ct__kir_addi(k, m->s->rows, -m->mr)) : at;
}

// ------------- packing: rows and columns beyond the edge become zeros, so that every tile is whole

// Returns the index in the packed block of A of a row, or of a tile if it is packed by k.
static ct_kval matmul_a_index(const matmul *m, ct_kval row_or_tile) {
    ct_kir *k = m->k;
    if (m->s->a_packed) {
        ct_kval n = ct__kir_ceil_div(k, m->s->inner, m->size);
        ct_kval chunk = ct__kir_add(k, ct__kir_mul(k, m->batch, n), m->chunk);
        ct_kval row = ct__kir_add(k, m->row0, row_or_tile);
        return ct__kir_muli(k, ct__kir_add(k, ct__kir_mul(k, chunk, m->s->rows), row), m->size);
    }
    ct_kval at = ct__kir_muli(k, row_or_tile, m->a_by_k ? m->a_tile * m->mrp : m->size);
    return m->packs_all_a ? ct__kir_add(k, at, ct__kir_muli(k, m->chunk, m->a_chunk)) : at;
}

static void matmul_pack_a_by_row(matmul *m) {
    ct_kir *k = m->k;
    ct_kval row = ct__kir_loop(k, CT_BIND_SEQ, m->rows, "pack row of a");
    run kk = matmul_open_run(m, &m->inner_axes, m->k0, m->kn, "k");
    ct_kval v = matmul_load_a(m, ct__kir_add(k, m->row0, row), kk.at);
    ct__kir_store(k, m->a, ct__kir_add(k, matmul_a_index(m, row), kk.i), v);
    matmul_close_run(m, &m->inner_axes);
    ct__kir_end(k);
    ct_kval whole = ct__kir_muli(k, ct__kir_ceil_div(k, m->rows, m->mr), m->mr);
    row =
        ct__kir_loop(k, CT_BIND_SEQ, matmul_sub(k, whole, m->rows), "rows to the edge of the tile");
    row = ct__kir_add(k, row, m->rows);
    ct_kval to = ct__kir_loop(k, CT_BIND_LANES, m->kn, "k");
    v = matmul_packed_zero(m);
    ct__kir_store(k, m->a, ct__kir_add(k, matmul_a_index(m, row), to), v);
    ct__kir_end_n(k, 2);
}

// Packs `extent` rows of a tile, at one k.
static void matmul_pack_a_step(matmul *m, ct_kval tile, ct_kval kk, ct_kval extent) {
    ct_kir *k = m->k;
    ct_kval row = ct__kir_add(k, m->row0, ct__kir_muli(k, tile, m->mr));
    ct_kval to = ct__kir_muli(k, kk, m->mrp);
    to = ct__kir_add(k, matmul_a_index(m, tile), to);
    ct_kval r = ct__kir_loop(k, CT_BIND_LANES, extent, "row");
    position from = matmul_split_position(m, &m->inner_axes, ct__kir_add(k, m->k0, kk));
    ct_kval v = matmul_load_a(m, ct__kir_add(k, row, r), from);
    ct__kir_store(k, m->a, ct__kir_add(k, to, r), v);
    ct__kir_end(k);
}

static void matmul_pack_a_by_k(matmul *m) {
    ct_kir *k = m->k;
    ct_kval height = ct__kir_int(k, m->mr), whole = ct__kir_div(k, m->rows, height);
    ct_kval rest = ct__kir_mod(k, m->rows, height);
    ct_kval kk = ct__kir_loop(k, CT_BIND_SEQ, m->kn, "pack a by k");
    matmul_pack_a_step(m, ct__kir_loop(k, CT_BIND_SEQ, whole, "tile"), kk, height);
    ct__kir_end_n(k, 2);
    ct__kir_if(k, ct__kir_lt(k, ct__kir_int(k, 0), rest));
    kk = ct__kir_loop(k, CT_BIND_SEQ, m->kn, "pack the last tile of a");
    matmul_pack_a_step(m, whole, kk, rest);
    ct_kval r = ct__kir_loop(k, CT_BIND_LANES, matmul_sub(k, height, rest), "edge");
    ct_kval to = ct__kir_muli(k, kk, m->mrp);
    to = ct__kir_add(k, matmul_a_index(m, whole), to);
    ct_kval none = matmul_packed_zero(m);
    ct__kir_store(k, m->a, ct__kir_add(k, ct__kir_add(k, to, rest), r), none);
    ct__kir_end_n(k, 3);
}

// Returns the index of (k, column) in the packed panels: [panel][k][column].
static ct_kval matmul_b_index(const matmul *m, ct_kval kk, ct_kval column) {
    ct_kir *k = m->k;
    ct_kval width = ct__kir_int(k, m->nr), panel = ct__kir_div(k, column, width);
    ct_kval row = ct__kir_add(k, ct__kir_muli(k, panel, m->pitch), kk);
    ct_kval within = ct__kir_mod(k, column, width);
    return ct__kir_add(k, ct__kir_muli(k, row, m->nr), within);
}

// Fills the columns from `valid` to the edge of the last panel with zeros.
static void matmul_pad_b(matmul *m, ct_kval valid) {
    ct_kir *k = m->k;
    ct_kval rest = matmul_sub(k, ct__kir_muli(k, ct__kir_ceil_div(k, valid, m->nr), m->nr), valid);
    ct__kir_if(k, ct__kir_lt(k, ct__kir_int(k, 0), rest));
    ct_kval kk = ct__kir_loop(k, CT_BIND_SEQ, m->kn, "columns to the edge of the panel");
    // All of them are in the last panel, so the index of the first one suffices.
    ct_kval to = matmul_b_index(m, kk, valid);
    ct_kval j = ct__kir_loop(k, CT_BIND_LANES, rest, "column");
    ct_kval none = matmul_packed_zero(m);
    ct__kir_store(k, m->b, ct__kir_add(k, to, j), none);
    ct__kir_end_n(k, 3);
}

// Steps of k that are packed together: a run along the last inner axis.
typedef struct steps {
    ct_kval outer, at, n; // their start; their number
    ct_kval row;          // row of the panel of the first one
} steps;

// Packs whole panels with straight-line code, so that many loads are in flight at a time, and neighbours in
// memory are read one after the other.
static void matmul_pack_b_rows(matmul *m, ct_kval col, const steps *s) {
    ct_kir *k = m->k;
    // Windows are packed 16 at a time, in a loop of one iteration, so that conditions on their positions
    // precede the loop over k.
    const int64_t width = m->inner_axes.n > 1 ? CT_LANES : m->nr;
    ct_kval kk = ct__kir_loop(k, CT_BIND_SEQ, s->n, "pack row of b");
    ct_kval row = ct__kir_add(k, s->row, kk);
    for (int64_t first = 0; first < m->group * m->nr; first += width) {
        ct_kval j = ct__kir_loop_n(k, CT_BIND_LANES, width, "column");
        ct_kval from = ct__kir_addi(k, ct__kir_add(k, col, j), first);
        ct_kval v =
            matmul_load_b(m, (position){s->outer, ct__kir_add(k, s->at, kk)}, (position){-1, from});
        ct__kir_store(k, m->b, ct__kir_add(k, matmul_b_index(m, row, ct__kir_int(k, first)), j), v);
        ct__kir_end(k);
    }
    ct__kir_end(k);
}

static void matmul_pack_b_part(matmul *m, ct_kval col, ct_kval valid, const steps *s) {
    ct_kir *k = m->k;
    ct_kval kk = ct__kir_loop(k, CT_BIND_SEQ, s->n, "pack part of a row of b");
    ct_kval j = ct__kir_loop(k, CT_BIND_LANES, valid, "column");
    ct_kval from = ct__kir_add(k, col, j);
    ct_kval v =
        matmul_load_b(m, (position){s->outer, ct__kir_add(k, s->at, kk)}, (position){-1, from});
    ct__kir_store(k, m->b, matmul_b_index(m, ct__kir_add(k, s->row, kk), j), v);
    ct__kir_end_n(k, 2);
}

// Packs panels if columns have several axes: in pieces that are runs of columns, so that the positions in the
// other axes are evaluated once per piece.
static void matmul_pack_b_runs(matmul *m, ct_kval col, ct_kval valid, const steps *s) {
    ct_kir *k = m->k;
    ct_kval panel = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_ceil_div(k, valid, m->nr), "panel of b");
    ct_kval first = ct__kir_muli(k, panel, m->nr);
    ct_kval to = ct__kir_add(k, ct__kir_muli(k, panel, m->pitch), s->row);
    run j = matmul_open_run(m, &m->column_axes, ct__kir_add(k, col, first),
                            matmul_clip_rest(k, valid, first, m->nr), "column");
    ct_kval kk = ct__kir_loop(k, CT_BIND_SEQ, s->n, "k");
    ct_kval v = matmul_load_b(m, (position){s->outer, ct__kir_add(k, s->at, kk)}, j.at);
    ct_kval row = ct__kir_muli(k, ct__kir_add(k, to, kk), m->nr);
    ct__kir_store(k, m->b, ct__kir_add(k, row, j.i), v);
    ct__kir_end(k);
    matmul_close_run(m, &m->column_axes);
    ct__kir_end(k);
}

// Packs steps of k in the form that the columns allow.
static void matmul_pack_b_steps(matmul *m, ct_kval col, ct_kval valid, const steps *s) {
    ct_kir *k = m->k;
    int64_t columns = 0, width = (int64_t)m->group * m->nr;
    const bool known = ct__kir_is_int(k, m->s->columns, &columns);
    if (m->column_axes.n > 1) {
        matmul_pack_b_runs(m, col, valid, s);
    } else if (known && columns < width) {
        matmul_pack_b_part(m, col, valid, s);
    } else if (known && columns % width == 0 && m->nc % width == 0) {
        matmul_pack_b_rows(m, col, s);
    } else {
        ct_kval whole = ct__kir_bin(k, CT_K_EQ, valid, ct__kir_int(k, width));
        ct__kir_if(k, whole);
        matmul_pack_b_rows(m, col, s);
        ct__kir_end(k);
        ct__kir_if(k, ct__kir_un(k, CT_K_NOT, whole));
        matmul_pack_b_part(m, col, valid, s);
        ct__kir_end(k);
    }
}

static void matmul_pack_b_by_row(matmul *m, ct_kval col, ct_kval valid) {
    ct_kir *k = m->k;
    const axes *x = &m->inner_axes;
    steps s = {.outer = -1, .at = m->k0, .n = m->kn, .row = ct__kir_int(k, 0)};
    if (x->n > 1) {
        ct_kval width = x->size[x->n - 1], end = ct__kir_add(k, m->k0, m->kn);
        ct_kval first = ct__kir_div(k, m->k0, width);
        ct_kval runs = matmul_sub(k, ct__kir_div(k, ct__kir_addi(k, end, -1), width), first);
        ct_kval r = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_addi(k, runs, 1), "run of k");
        s.outer = ct__kir_add(k, first, r);
        matmul_hoist_division(m, x, s.outer);
        ct_kval base = ct__kir_mul(k, s.outer, width), begin = ct__kir_max(k, m->k0, base);
        s.n = matmul_sub(k, ct__kir_min(k, end, ct__kir_add(k, base, width)), begin);
        s.at = matmul_sub(k, begin, base);
        s.row = matmul_sub(k, begin, m->k0);
    }
    matmul_pack_b_steps(m, col, valid, &s);
    if (x->n > 1) ct__kir_end(k);
    int64_t columns = 0, width = (int64_t)m->group * m->nr;
    const bool even =
        ct__kir_is_int(k, m->s->columns, &columns) && columns % width == 0 && m->nc % width == 0;
    if (!even) matmul_pad_b(m, valid);
}

// Transposes 16 x 16 elements of the staged columns, or of b itself, into rows of the panel at column
// `group`.
static void matmul_transpose_b(matmul *m, ct_kval col, ct_kval group) {
    ct_kir *k = m->k;
    ct_kval x[CT_LANES];
    ct_kval kb =
        ct__kir_loop(k, CT_BIND_SEQ, ct__kir_ceil_div(k, m->kn, CT_LANES), "16 steps of k");
    kb = ct__kir_muli(k, kb, CT_LANES);
    ct_kval c = ct__kir_loop_n(k, CT_BIND_TILE, CT_LANES, "column");
    ct_kval from = ct__kir_add(k, kb, ct__kir_muli(k, c, m->size));
    ct_kval step = ct__kir_add(k, m->k0, kb),
            column = ct__kir_add(k, ct__kir_add(k, col, group), c);
    for (int r = 0; r < CT_LANES; r++)
        x[r] = m->stage < 0 ? matmul_load_b(m, (position){-1, ct__kir_addi(k, step, r)},
                                            (position){-1, column})
                            : ct__kir_load(k, m->stage, ct__kir_addi(k, from, r));
    ct_kval to = ct__kir_add(k, matmul_b_index(m, kb, group), c);
    for (int r = 0; r < CT_LANES; r++)
        ct__kir_store(k, m->b, ct__kir_addi(k, to, (int64_t)r * m->nr), x[r]);
    ct__kir_end_n(k, 2);
}

// Packs b if it is contiguous along k: 16 columns at a time are transposed. If they may end within 16 steps,
// or cost more than a load, they are first staged in scratch.
static void matmul_pack_b_by_column(matmul *m, ct_kval col, ct_kval valid) {
    ct_kir *k = m->k;
    ct_kval groups = ct__kir_ceil_div(k, valid, CT_LANES);
    ct_kval group = ct__kir_loop(k, CT_BIND_SEQ, groups, "16 columns of b");
    group = ct__kir_muli(k, group, CT_LANES);
    if (m->stage < 0) {
        matmul_transpose_b(m, col, group);
        ct__kir_end(k);
        matmul_pad_b(m, valid);
        return;
    }
    ct_kval some = matmul_clip_rest(k, valid, group, CT_LANES);
    ct_kval j = ct__kir_loop(k, CT_BIND_SEQ, some, "pack column of b");
    ct_kval from = ct__kir_add(k, col, ct__kir_add(k, group, j));
    position column = matmul_split_position(m, &m->column_axes, from);
    run kk = matmul_open_run(m, &m->inner_axes, m->k0, m->kn, "k");
    ct_kval v = matmul_load_b(m, kk.at, column);
    ct__kir_store(k, m->stage, ct__kir_add(k, ct__kir_muli(k, j, m->size), kk.i), v);
    matmul_close_run(m, &m->inner_axes);
    ct__kir_end(k);
    matmul_transpose_b(m, col, group);
    ct__kir_end(k);
    matmul_pad_b(m, valid);
}

static void matmul_pack_b(matmul *m, ct_kval first, ct_kval valid) {
    if (m->b_in_place) return;
    ct_kval col = ct__kir_add(m->k, m->col0, first);
    if (m->b_by_column)
        matmul_pack_b_by_column(m, col, valid);
    else
        matmul_pack_b_by_row(m, col, valid);
}

// --------------------------------------------------------------------------------- a register tile

// Returns the index of the tile's sums of the chunks before.
static ct_kval matmul_sum_index(const matmul *m, ct_kval row, ct_kval group, ct_kval panel) {
    ct_kir *k = m->k;
    ct_kval column = m->packs_all_a ? panel : ct__kir_add(k, group, panel);
    return ct__kir_add(k, ct__kir_muli(k, row, m->sum_width), column);
}

// Stores the tile's rows, `width` elements apart.
static void matmul_store_tile(const matmul *m, const ct_kval *acc, int buf, ct_kval at,
                              int64_t width) {
    for (int r = 0; r < m->mr; r++)
        ct__kir_store(m->k, buf, ct__kir_addi(m->k, at, r * width), ct__kir_get(m->k, acc[r]));
}

// Adds the sums of the chunks before to the tile, which is stored for the next chunk or, after the last one,
// for the result.
static void matmul_add_chunk(const matmul *m, const ct_kval *acc, ct_kval sum_at, ct_kval j) {
    ct_kir *k = m->k;
    ct_kval first = ct__kir_bin(k, CT_K_EQ, m->chunk, ct__kir_int(k, 0));
    ct__kir_if(k, ct__kir_un(k, CT_K_NOT, first));
    for (int r = 0; r < m->mr; r++) {
        ct_kval before = ct__kir_load(k, m->sum, ct__kir_addi(k, sum_at, r * m->sum_width));
        ct__kir_set(k, acc[r], ct__kir_add(k, before, ct__kir_get(k, acc[r])));
    }
    ct__kir_end(k);
    ct__kir_if(k, ct__kir_un(k, CT_K_NOT, m->last));
    matmul_store_tile(m, acc, m->sum, sum_at, m->sum_width);
    ct__kir_end(k);
    ct__kir_if(k, m->last);
    matmul_store_tile(m, acc, m->tile, j, m->nr);
    ct__kir_end(k);
}

// Computes the chunk's chains of fused multiply-adds, from +0.
static void matmul_multiply_tile(matmul *m, ct_kval row, ct_kval group, ct_kval panel) {
    ct_kir *k = m->k;
    ct_kval acc[CT_TILE_ROWS];
    ct_kval j = ct__kir_loop_n(k, CT_BIND_TILE, m->nr, "column");
    for (int r = 0; r < m->mr; r++) acc[r] = ct__kir_reg(k, matmul_zero(m));
    ct_kval base = matmul_a_index(m, m->a_by_k ? ct__kir_div(k, row, ct__kir_int(k, m->mr)) : row);
    ct_kval kk = ct__kir_loop(k, CT_BIND_SEQ, m->kn, "k"), b;
    const position inner = {-1, ct__kir_add(k, m->k0, kk)};
    if (m->b_in_place) {
        ct_kval column = ct__kir_add(k, m->col0, ct__kir_add(k, group, panel));
        b = matmul_load_b(m, inner, (position){-1, ct__kir_add(k, column, j)});
    } else {
        ct_kval b_row = ct__kir_muli(k, kk, m->nr);
        b_row = ct__kir_add(k, matmul_b_index(m, ct__kir_int(k, 0), panel), b_row);
        b = ct__kir_load(k, m->b, ct__kir_add(k, b_row, j));
    }
    ct_kval from = ct__kir_add(k, base, ct__kir_muli(k, kk, m->a_by_k ? m->mrp : 1));
    ct_kval begin = matmul_tile_first_row(m, row), a;
    for (int r = 0; r < m->mr; r++) {
        if (m->a_in_place)
            a = matmul_load_a(m, ct__kir_addi(k, begin, r), inner);
        else
            a = ct__kir_load(k, m->a, ct__kir_addi(k, from, m->a_by_k ? r : r * m->size));
        ct__kir_set(k, acc[r], ct__matmul_step(k, m->s, a, b, ct__kir_get(k, acc[r])));
    }
    ct__kir_end(k);
    if (m->may_have_chunks)
        matmul_add_chunk(m, acc, ct__kir_add(k, matmul_sum_index(m, row, group, panel), j), j);
    else
        matmul_store_tile(m, acc, m->tile, j, m->nr);
    ct__kir_end(k);
}

// Stores an element of the result at a row of the block and a position along the columns in the layout of the
// result.
static void matmul_store_element(matmul *m, ct_kval row, position column, ct_kval v) {
    ct_kval in_all = ct__kir_add(m->k, m->row0, row);
    int n = matmul_set_position(m, m->s->n_batch, &m->row_axes, (position){-1, in_all});
    n = matmul_set_position(m, n, &m->result_axes, column);
    ct__sink_store(m->k, &m->s->c, n, m->at, v);
}

static void matmul_store_result(matmul *m, ct_kval row, ct_kval group, ct_kval panel,
                                ct_kval valid) {
    ct_kir *k = m->k;
    const axes *over = &m->result_axes;
    ct_kval rows = matmul_clip_rest(k, m->rows, row, m->mr), zero_column = ct__kir_int(k, 0);
    ct_kval r = ct__kir_loop(k, CT_BIND_SEQ, rows, "row of the result");
    ct_kval from = ct__kir_add(k, m->col0, ct__kir_add(k, group, panel));
    run j = matmul_open_run(m, over, over->n > 1 ? from : zero_column, valid, "column");
    if (over->n == 1) j.at.last = ct__kir_add(k, from, j.i);
    ct_kval overlap = matmul_sub(k, ct__kir_add(k, m->row0, row), matmul_tile_first_row(m, row));
    ct_kval in_tile = ct__kir_muli(k, ct__kir_add(k, r, overlap), m->nr);
    ct_kval v = ct__kir_load(k, m->tile, ct__kir_add(k, in_tile, j.i));
    matmul_store_element(m, ct__kir_add(k, row, r), j.at, v);
    matmul_close_run(m, over);
    ct__kir_end(k);
}

// ------------------------------------------------------------------------------------- prefetching

// Cache lines are prefetched while earlier tiles are computed, whose operands are in cache. So memory and
// arithmetic overlap, which no processor looks far enough ahead to do by itself.
enum { LINE = 16 }; // elements of f32 in a cache line

// Prefetches the tile's part of the result, and the other operands of its elements' epilogue.
static void matmul_prefetch_result(matmul *m, ct_kval row, ct_kval group, ct_kval panel) {
    ct_kir *k = m->k;
    ct_kval r = ct__kir_loop_n(k, CT_BIND_SEQ, m->mr, "row wanted soon");
    ct_kval column = ct__kir_add(k, m->col0, ct__kir_add(k, group, panel));
    for (int64_t i = 0; i < m->nr; i += LINE) {
        position at = matmul_split_position(m, &m->result_axes, ct__kir_addi(k, column, i));
        ct__kir_set_prefetch_mode(k, true);
        matmul_store_element(m, ct__kir_add(k, row, r), at, matmul_zero(m));
        ct__kir_set_prefetch_mode(k, false);
    }
    ct__kir_end(k);
}

// Prefetches share `part` of `parts` of an operand's next piece: `outer` lines of `length` elements.
static void matmul_prefetch_share(matmul *m,
                                  ct_kval (*prefetch)(matmul *m, ct_kval outer, ct_kval inner),
                                  ct_kval wanted, ct_kval part, int64_t parts, int64_t outer,
                                  int64_t length) {
    ct_kir *k = m->k;
    const int64_t each = (outer + parts - 1) / parts;
    ct_kval n_lines = ct__kir_select(k, wanted, ct__kir_int(k, each), ct__kir_int(k, 0));
    ct_kval o = ct__kir_loop(k, CT_BIND_SEQ, n_lines, "wanted soon");
    ct_kval i = ct__kir_loop_n(k, CT_BIND_SEQ, (length + LINE - 1) / LINE, "line");
    ct__kir_set_prefetch_mode(k, true);
    prefetch(m, ct__kir_add(k, ct__kir_muli(k, part, each), o), ct__kir_muli(k, i, LINE));
    ct__kir_set_prefetch_mode(k, false);
    ct__kir_end_n(k, 2);
}
static ct_kval matmul_prefetch_b(matmul *m, ct_kval outer, ct_kval inner) {
    ct_kval kk = ct__kir_add(m->k, m->next_k, m->b_by_column ? inner : outer);
    ct_kval column = ct__kir_add(m->k, m->next_column, m->b_by_column ? outer : inner);
    return matmul_load_b(m, (position){-1, kk}, (position){-1, ct__kir_add(m->k, m->col0, column)});
}
static ct_kval matmul_prefetch_a(matmul *m, ct_kval outer, ct_kval inner) {
    ct_kval kk = ct__kir_add(m->k, m->next_k, m->a_by_k ? outer : inner);
    ct_kval row = ct__kir_add(m->k, m->row0, m->a_by_k ? inner : outer);
    return matmul_load_a(m, row, (position){-1, kk});
}

// Prefetches a panel's share of what the next tile reads of a, if a is read in place.
static void matmul_prefetch_next_tile(matmul *m, ct_kval panel, ct_kval tile) {
    ct_kir *k = m->k;
    ct_kval row = ct__kir_muli(k, ct__kir_addi(k, tile, 1), m->mr);
    ct_kval has_next = ct__kir_lt(k, row, m->rows), none = ct__kir_int(k, 0);
    row = ct__kir_select(k, has_next, row, none);
    m->next_k = ct__kir_select(k, has_next, m->k0, ct__kir_addi(k, m->k0, m->size));
    const int64_t lines = m->a_by_k ? m->size : m->mr, share = (lines + m->group - 1) / m->group;
    ct_kval first = ct__kir_muli(k, ct__kir_div(k, panel, ct__kir_int(k, m->nr)), share);
    ct_kval o = ct__kir_loop_n(k, CT_BIND_SEQ, share, "wanted soon");
    o = ct__kir_add(k, first, o);
    ct__kir_set_prefetch_mode(k, true);
    if (m->a_by_k) { // the beginning of the tile is in cache
        matmul_prefetch_a(m, o, ct__kir_addi(k, row, m->mr - 1));
    } else {
        ct_kval i = ct__kir_loop_n(k, CT_BIND_SEQ, m->size / LINE, "line");
        matmul_prefetch_a(m, ct__kir_add(k, row, o), ct__kir_muli(k, i, LINE));
        ct__kir_end(k);
    }
    ct__kir_set_prefetch_mode(k, false);
    ct__kir_end(k);
}

// Prefetches this tile's share of the panels of b that come next, and after a chunk's last panels, of the
// next rows of a.
static void matmul_prefetch_operands(matmul *m, ct_kval group, ct_kval panel, ct_kval tile) {
    ct_kir *k = m->k;
    const int64_t width = (int64_t)m->group * m->nr, height = m->mc / m->mr;
    ct_kval next_group = ct__kir_addi(k, group, width), none = ct__kir_int(k, 0);
    ct_kval has_next = ct__kir_lt(k, next_group, m->cols), chunk = ct__kir_addi(k, m->k0, m->size);
    ct_kval wanted = ct__kir_bin(k, CT_K_OR, has_next, ct__kir_un(k, CT_K_NOT, m->last));
    m->next_k = m->packs_all_a ? ct__kir_select(k, m->last, none, chunk)
                               : ct__kir_select(k, has_next, m->k0, chunk);
    m->next_column = m->packs_all_a ? ct__kir_select(k, m->last, next_group, group)
                                    : ct__kir_select(k, has_next, next_group, none);
    ct_kval part = ct__kir_div(k, panel, ct__kir_int(k, m->nr));
    part = ct__kir_add(k, ct__kir_muli(k, part, height), tile);
    const int64_t parts = height * m->group;
    matmul_prefetch_share(m, matmul_prefetch_b, wanted, part, parts,
                          m->b_by_column ? width : m->size, m->b_by_column ? m->size : width);
    if (m->a_in_place) matmul_prefetch_next_tile(m, panel, tile);
    if (m->packs_all_a || !m->may_have_chunks || m->s->a_packed || m->a_in_place) return;
    wanted = ct__kir_bin(k, CT_K_AND, wanted, ct__kir_un(k, CT_K_NOT, has_next));
    matmul_prefetch_share(m, matmul_prefetch_a, wanted, part, parts, m->a_by_k ? m->size : m->mc,
                          m->a_by_k ? m->mc : m->size);
}

static void matmul_loop_tiles(matmul *m, ct_kval group, ct_kval columns) {
    ct_kir *k = m->k;
    ct_kval row = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_ceil_div(k, m->rows, m->mr), "tile");
    ct_kval panel = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_ceil_div(k, columns, m->nr), "panel of b");
    panel = ct__kir_muli(k, panel, m->nr);
    ct_kval rest = matmul_sub(k, m->cols, ct__kir_add(k, group, panel));
    ct_kval valid = ct__kir_min(k, rest, ct__kir_int(k, m->nr));
    if (m->prefetches_operands) matmul_prefetch_operands(m, group, panel, row);
    row = ct__kir_muli(k, row, m->mr);
    if (m->prefetches_result) {
        if (m->may_have_chunks) ct__kir_if(k, m->last);
        matmul_prefetch_result(m, row, group, panel);
        if (m->may_have_chunks) ct__kir_end(k);
    }
    matmul_multiply_tile(m, row, group, panel);
    if (m->may_have_chunks) ct__kir_if(k, m->last);
    matmul_store_result(m, row, group, panel, valid);
    if (m->may_have_chunks) ct__kir_end(k);
    ct__kir_end_n(k, 2);
}

// Opens the loop over the chunks.
static void matmul_open_chunks(matmul *m) {
    ct_kir *k = m->k;
    // There is at least one chunk: an empty sum is +0.
    ct_kval n = ct__kir_ceil_div(k, m->s->inner, m->size);
    n = ct__kir_max(k, ct__kir_int(k, 1), n);
    m->chunk = ct__kir_loop(k, CT_BIND_SEQ, n, "chunk of k");
    m->last = ct__kir_bin(k, CT_K_EQ, m->chunk, ct__kir_addi(k, n, -1));
    m->k0 = ct__kir_muli(k, m->chunk, m->size);
    m->kn = matmul_clip_rest(k, m->s->inner, m->k0, m->size);
}

static void matmul_pack_a(matmul *m) {
    if (m->a_by_k)
        matmul_pack_a_by_k(m);
    else
        matmul_pack_a_by_row(m);
}

// Loops over the panels, which are packed a few at a time: rows of b are read in longer pieces, and each
// panel is used while it is in cache.
static void matmul_loop_panels(matmul *m) {
    ct_kir *k = m->k;
    int64_t width = (int64_t)m->group * m->nr;
    ct_kval groups = ct__kir_ceil_div(k, m->cols, width);
    ct_kval group = ct__kir_loop(k, CT_BIND_SEQ, groups, "panels of b");
    group = ct__kir_muli(k, group, width);
    if (m->packs_all_a) matmul_open_chunks(m);
    ct_kval valid = matmul_clip_rest(k, m->cols, group, width);
    matmul_pack_b(m, group, valid);
    matmul_loop_tiles(m, group, valid);
    if (m->packs_all_a) ct__kir_end(k);
    ct__kir_end(k);
}

// Computes a block of the result. If all of a is small it is packed once, and the columns of b are read to
// their ends one after the other; else one chunk of both at a time.
static void matmul_block(matmul *m) {
    const bool packs = !m->s->a_packed && !m->a_in_place;
    if (packs || !m->packs_all_a) matmul_open_chunks(m);
    if (packs) matmul_pack_a(m);
    if (packs && m->packs_all_a) ct__kir_end(m->k);
    matmul_loop_panels(m);
    if (!m->packs_all_a) ct__kir_end(m->k);
}

// -------------------------------------------------------------------------------------- the kernel

static int64_t matmul_static_min(const ct_kir *k, ct_kval v, int64_t otherwise) {
    int64_t n = 0;
    return ct__kir_is_int(k, v, &n) && n < otherwise ? n : otherwise;
}

static int64_t matmul_round_up(int64_t n, int64_t multiple) {
    return n <= 0 ? multiple : (n + multiple - 1) / multiple * multiple;
}

// Returns the size of equal blocks of n, of at most about `most`, each a multiple of `unit`.
static int64_t matmul_equal_blocks(int64_t n, int64_t most, int64_t unit) {
    int64_t blocks = (n + most - 1) / most;
    return blocks > 0 ? matmul_round_up((n + blocks - 1) / blocks, unit) : unit;
}

// Returns the block size of n that leaves no core idle at the end if tasks are few.
static int64_t matmul_balance_blocks(const matmul *m, int64_t n, int64_t block, int64_t others,
                                     int64_t unit) {
    enum { FEW = 8 }; // tasks per core
    const int64_t cores = m->s->target.cores > 0 ? m->s->target.cores : 1;
    int64_t blocks = (n + block - 1) / block;
    if (blocks < 1 || others < 1 || blocks >= FEW * cores || others >= FEW * cores ||
        blocks * others >= FEW * cores)
        return block;
    while (blocks * others % cores) blocks++;
    return matmul_round_up((n + blocks - 1) / blocks, unit);
}

// Returns the columns of a task: at least one task for each core, but wide blocks, since each task packs its
// rows of a again (256 x 3072 x 768: 94 % of the speed of OpenBLAS with 384 columns, 84 % with 96).
static int64_t matmul_choose_columns(const matmul *m) {
    enum { NARROW = 96, WIDE = 384, OF_PIECES = 512 };
    // rows that are packed in pieces cost more
    const int64_t wide = m->inner_axes.n > 1 ? OF_PIECES : WIDE;
    int64_t tasks = m->s->target.cores > 0 ? m->s->target.cores : 1;
    int64_t others = 1, size = 1, columns = matmul_static_min(m->k, m->s->columns, INT64_MAX / 16);
    for (int i = 0; i < m->s->n_batch; i++)
        if (ct__kir_is_int(m->k, m->s->batch[i], &size)) others *= size;
    if (ct__kir_is_int(m->k, m->s->rows, &size)) others *= (size + m->mc - 1) / m->mc;
    int64_t width = columns / tasks * (others < tasks ? others : tasks);
    if (width > wide) width = wide;
    if (width < NARROW) width = NARROW;
    // Rows that are gathered are divided among tasks instead, so that each is gathered once.
    if (m->a_is_gathered && others < tasks && columns <= wide) width = wide;
    const int64_t block = matmul_equal_blocks(columns, width, m->nr);
    return block < columns ? matmul_balance_blocks(m, columns, block, others, m->nr) : block;
}

// Returns the rows of a task. If one block of columns covers all of them and sums are long, rows are divided
// among all cores.
static int64_t matmul_choose_rows(const matmul *m, int64_t most) {
    enum { MORE = 320, LONG = 1024 };
    const int64_t rows = matmul_static_min(m->k, m->s->rows, INT64_MAX / 16);
    int64_t columns, size, others = 1;
    if (!ct__kir_is_int(m->k, m->s->columns, &columns) || columns > m->nc ||
        matmul_static_min(m->k, m->s->inner, LONG) < LONG)
        return matmul_equal_blocks(rows, most, m->mr);
    for (int i = 0; i < m->s->n_batch; i++)
        if (ct__kir_is_int(m->k, m->s->batch[i], &size)) others *= size;
    return matmul_balance_blocks(m, rows, matmul_equal_blocks(rows, MORE, m->mr), others, m->mr);
}

int ct__matmul_tile_rows(int64_t rows, int most) {
    int best = most;
    int64_t least = INT64_MAX;
    for (int r = most; r > most / 2; r--) {
        int64_t cost = (rows + r - 1) / r * (r + 1);
        if (cost < least) least = cost, best = r;
    }
    return rows < best ? (int)rows : best;
}

static void matmul_choose_tile(matmul *m) {
    const ct_matmul_tile *t = &m->s->tile;
    const ct_target *target = &m->s->target;
    // Number of vectors of 16 lanes that the registers hold, minus some for operands: 28 with AVX-512, 6 with
    // AVX2.
    const int n_vectors = target->registers * target->lanes / CT_LANES;
    const bool wide = m->s->dtype == CT_F64, large = n_vectors >= 32;
    int vectors = n_vectors - (large ? n_vectors / 8 : 2);
    int most = large ? vectors / 2 : vectors;
    if (wide) vectors /= 2;
    if (wide && !large) most /= 2;
    if (most < 1) most = vectors = 1;
    m->mr = t->rows
                ? t->rows
                : ct__matmul_tile_rows(matmul_static_min(m->k, m->s->rows, INT64_MAX / 16), most);
    if (m->mr < 1) m->mr = 1;
    // With few rows the tile is wide, so that there are enough chains, and long pieces of the rows of B.
    m->nv = t->vectors;
    if (!m->nv)
        for (m->nv = m->b_by_column ? 2 : MAX_VECTORS; m->nv > 1 && m->nv * m->mr > vectors;)
            m->nv /= 2;
}

// True if a is contiguous along one axis and a tile of it is spread over the sets of the L1 cache. If
// neighbours along the other axis are a multiple of 4 KB apart, all of them map to one set.
static bool matmul_a_is_unaliased(const matmul *m) {
    enum { WAY = 4096 }; // bytes
    const int64_t size = m->s->dtype == CT_F64 ? 8 : 4;
    return !m->a_is_gathered && ct__source_step(m->k, &m->s->a, m->s->n_batch + 2) * size % WAY;
}

// Decides which operands are not packed: those that tiles read equally fast in place, and those that so few
// tiles read that packing would cost as much as it saves.
static void matmul_choose_packing(matmul *m) {
    enum { FEW_COLUMNS = 64, FEW_ROWS = 256, NEAR = 1 << 16 }; // NEAR: elements of b
    const ct_kir *k = m->k;
    int64_t rows = 0, columns = 0, length = 0;
    const bool known =
        ct__kir_is_int(k, m->s->rows, &rows) && ct__kir_is_int(k, m->s->inner, &length) &&
        ct__kir_is_int(k, m->s->columns, &columns) && m->column_axes.n == 1 && m->inner_axes.n == 1;
    m->a_in_place = known && !m->s->a_packed &&
                    (columns <= FEW_COLUMNS || matmul_a_is_unaliased(m)) && rows >= m->mr &&
                    ct__source_is_load(&m->s->a);
    // else whole rows of panels are read faster
    m->b_in_place = known && rows <= FEW_ROWS && columns % m->nr == 0 && !m->b_by_column &&
                    length * columns <= NEAR && m->nc % m->nr == 0 && ct__source_is_load(&m->s->b);
}

static void matmul_choose_blocking(matmul *m) {
    enum { NEAR = 1 << 17 }; // elements of a block's rows of the result that still fit in cache
    const ct_matmul_tile *t = &m->s->tile;
    const ct_kir *k = m->k;
    const int n = m->s->n_batch, inner = m->inner_axes.n;
    m->b_by_column = ct__source_along(k, &m->s->b, n + inner - 1) &&
                     !ct__source_along(k, &m->s->b, n + inner + m->column_axes.n - 1);
    if (!m->s->a_packed) {
        const bool along_k = ct__source_along(k, &m->s->a, n + inner),
                   along_rows = ct__source_along(k, &m->s->a, n);
        m->a_by_k = along_rows && !along_k;
        m->a_is_gathered = !along_rows && !along_k;
    }
    matmul_choose_tile(m);
    m->nr = m->nv * CT_LANES;
    m->size = ct__matmul_chunk(m->s);
    m->a_tile = m->size + 1;
    m->may_have_chunks = matmul_static_min(k, m->s->inner, m->size + 1) > m->size;
    // Without stored sums, more rows fit in the L2 cache.
    const int64_t rows = matmul_static_min(k, m->s->rows, INT64_MAX / 16),
                  most = m->may_have_chunks ? 256 : 384;
    m->mc = matmul_round_up(t->row_block ? t->row_block : matmul_equal_blocks(rows, most, m->mr),
                            m->mr);
    m->nc = matmul_round_up(t->column_block ? t->column_block : matmul_choose_columns(m), m->nr);
    if (!t->row_block) m->mc = matmul_round_up(matmul_choose_rows(m, most), m->mr);
    m->mrp = matmul_round_up(m->mr, CT_LANES);
    m->group = t->group ? t->group : m->b_by_column ? 1 : 8 / m->nv;
    if (m->group > m->nc / m->nr) m->group = (int)(m->nc / m->nr);
    m->pitch = m->size + (m->inner_axes.n > 1 && !m->b_by_column ? 2 : 0);
    matmul_choose_packing(m);
    // Prefetching pays off if tiles are long and the data is far away. If operands have several axes, an
    // address is computed per line, which would cost a division each.
    const bool plain = m->column_axes.n == 1 && inner == 1;
    const bool long_tiles = matmul_static_min(k, m->s->inner, m->size) >= m->size / 2;
    m->prefetches_operands = plain && m->result_axes.n == 1 && long_tiles && !m->b_in_place;
    m->prefetches_result =
        long_tiles || (plain && m->result_axes.n == 1 &&
                       !(matmul_static_min(k, m->s->columns, NEAR) < NEAR / m->mc));
}

static void matmul_make_scratch(matmul *m) {
    enum { SMALL = 3 << 17 }; // bytes of a that may stay packed: a part of a core's L2 cache
    const ct_dtype packed = ct__matmul_packed(m->s);
    int64_t size = m->s->dtype == CT_F64 ? 8 : 4, n = 0, all = 1;
    m->a_chunk = m->a_by_k ? m->mc / m->mr * m->mrp * m->a_tile : m->mc * m->size;
    if (m->may_have_chunks && ct__kir_is_int(m->k, m->s->inner, &n)) {
        all = (n + m->size - 1) / m->size;
        m->packs_all_a = m->a_in_place || all * m->a_chunk * size <= SMALL;
    }
    m->a = m->s->a_packed ? m->s->a.buf : -1;
    m->b = m->stage = -1;
    if (!m->s->a_packed && !m->a_in_place)
        m->a = ct__kir_local(m->k, packed, m->a_chunk * (m->packs_all_a ? all : 1));
    if (!m->b_in_place) m->b = ct__kir_local(m->k, packed, (int64_t)m->group * m->nr * m->pitch);
    int64_t columns = 1;
    const bool whole = ct__kir_is_int(m->k, m->s->inner, &n) && n % CT_LANES == 0 &&
                       ct__kir_is_int(m->k, m->s->columns, &columns) && columns % CT_LANES == 0 &&
                       m->column_axes.n == 1 && m->inner_axes.n == 1 &&
                       ct__source_is_load(&m->s->b);
    if (m->b_by_column && !whole) m->stage = ct__kir_local(m->k, packed, CT_LANES * m->size);
    m->tile = ct__kir_local(m->k, m->s->dtype, (int64_t)m->mr * m->nr);
    m->sum_width = m->packs_all_a ? (int64_t)m->group * m->nr : m->nc;
    m->sum = m->may_have_chunks ? ct__kir_local(m->k, m->s->dtype, m->mc * m->sum_width) : -1;
}

void ct__template_matmul(ct_kir *k, const ct_matmul_spec *spec) {
    matmul m = {.k = k, .s = spec};
    if (ct__matmul_has_few_rows(k, spec)) {
        ct__template_few_rows(k, spec);
        return;
    }
    m.row_axes = (axes){1, &spec->rows};
    m.column_axes = (axes){1, &spec->columns};
    m.inner_axes = (axes){1, &spec->inner};
    m.result_axes = m.column_axes;
    if (spec->n_column_axes > 1) m.column_axes = (axes){spec->n_column_axes, spec->column_axis};
    if (spec->n_result_axes > 1) m.result_axes = (axes){spec->n_result_axes, spec->result_axis};
    if (spec->n_inner_axes > 1) m.inner_axes = (axes){spec->n_inner_axes, spec->inner_axis};
    matmul_choose_blocking(&m);
    matmul_make_scratch(&m);
    ct_kval row_blocks = ct__kir_ceil_div(k, spec->rows, m.mc);
    ct_kval col_blocks = ct__kir_ceil_div(k, spec->columns, m.nc);
    ct_kval tasks = ct__kir_mul(k, row_blocks, col_blocks);
    for (int i = 0; i < spec->n_batch; i++) tasks = ct__kir_mul(k, tasks, spec->batch[i]);
    ct_kval task = ct__kir_loop(k, CT_BIND_ROWS, tasks, "block");
    m.col0 = ct__kir_muli(k, ct__kir_mod(k, task, col_blocks), m.nc);
    task = ct__kir_div(k, task, col_blocks);
    m.row0 = ct__kir_muli(k, ct__kir_mod(k, task, row_blocks), m.mc);
    task = ct__kir_div(k, task, row_blocks);
    ct__unflatten(k, task, spec->n_batch, spec->batch, m.at);
    m.batch = spec->n_batch ? task : ct__kir_int(k, 0);
    m.rows = matmul_clip_rest(k, spec->rows, m.row0, m.mc);
    m.cols = matmul_clip_rest(k, spec->columns, m.col0, m.nc);
    matmul_block(&m);
    ct__kir_end(k);
}
