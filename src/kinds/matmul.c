// The matrix product, after BLIS: a task computes one block of the result; for each chunk of k it
// packs its block of A, then panel by panel of B, and a register tile of rows x columns runs over
// both. The sums of the chunks before the last wait in scratch, so each element is stored once.
#include "kinds/matmul.h"

#include <string.h>

enum { MOST_VECTORS = 8 };

typedef struct axes {
    int n;
    const ct_kval *size; // (n)
} axes;

// A position along axes: of all but the last as one number, and along the last.
typedef struct place {
    ct_kval outer, last;
} place;

typedef struct matmul {
    ct_kir *k;
    const ct_matmul_spec *s;
    axes row_axes, column_axes, inner_axes, result_axes;
    int group;      // panels of b that are packed together
    int mr, nv, nr; // the register tile: rows, vectors, columns
    int64_t mc, nc; // the task's block
    int64_t size;   // steps of k in a chunk
    int64_t
        a_tile;   // of a tile of a that is packed by k, one more than needed, so that tiles do not
                  // all begin in one set of the first cache
    bool a_by_k;  // A is packed as [tile][k][row], else as [row][k]
    bool gathers; // A is contiguous along neither
    int64_t mrp;  // rows of a packed tile with their padding
    bool many;    // may there be more than one chunk?
    bool b_by_column;            // b is contiguous along k
    bool a_in_place, b_in_place; // not packed: the tile reads where it lies
    int64_t pitch; // rows of a packed panel of b, more than needed where windows are packed side by
                   // side, so that panels do not all begin in one set of the first cache
    bool deep;     // all chunks of a are packed at once, and the panels are the outer loop
    int64_t a_chunk, sum_width; // elements: a packed chunk of a, a row of the sums
    int stage;                  // scratch for turning columns of b
    int a, b, tile, sum; // scratch: packed block of A, packed panel of B, a tile, the sums so far
    ct_kval at[2 * CT_MAX_RANK];             // the task's batch position, then free for others
    ct_kval batch;                           // its number
    ct_kval row0, rows, col0, cols;          // the task's block
    ct_kval chunk, last, k0, kn;             // the chunk
    bool asks_for_operands, asks_for_result; // memory that is wanted soon
    ct_kval next_k, next_column;             // what of b is packed next
} matmul;

static ct_kval minus(ct_kir *k, ct_kval a, ct_kval b) { return ct__kir_sub(k, a, b); }
// The smaller of a - b and a number.
static ct_kval rest_of(ct_kir *k, ct_kval a, ct_kval b, int64_t most) {
    ct_kval limit = ct__kir_int(k, most);
    return ct__kir_min(k, minus(k, a, b), limit);
}

// ------------------------------------------------------------------------------------- positions

static place place_at(const matmul *m, const axes *x, ct_kval flat) {
    if (x->n == 1) return (place){-1, flat};
    ct_kval width = x->size[x->n - 1];
    return (place){ct__kir_div(m->k, flat, width), ct__kir_mod(m->k, flat, width)};
}

// Writes the positions behind the batch's; gives how many there are in all.
static int put(matmul *m, int n, const axes *x, place at) {
    ct__unflatten(m->k, at.outer, x->n - 1, x->size, m->at + n);
    m->at[n + x->n - 1] = at.last;
    return n + x->n;
}

static ct_kval load_a(matmul *m, ct_kval row, place inner) {
    int n = put(m, m->s->n_batch, &m->row_axes, (place){-1, row});
    return ct__source_load(m->k, &m->s->a, put(m, n, &m->inner_axes, inner), m->at);
}
static ct_kval load_b(matmul *m, place inner, place column) {
    int n = put(m, m->s->n_batch, &m->inner_axes, inner);
    return ct__source_load(m->k, &m->s->b, put(m, n, &m->column_axes, column), m->at);
}

// Divides the number of the outer axes now, outside of the loops in which its parts are wanted: equal
// instructions are shared, and no compiler takes a division out of a loop that may run not at all.
static void divide_here(matmul *m, const axes *x, ct_kval outer) {
    ct_kval each[CT_MAX_RANK];
    ct__unflatten(m->k, outer, x->n - 1, x->size, each);
}

// A LANES loop over positions from `from` on; where there are several axes, one for each run of the
// last of them.
typedef struct run {
    ct_kval i; // in [0, count)
    place at;
} run;
static run open_run(matmul *m, const axes *x, ct_kval from, ct_kval count, const char *name) {
    ct_kir *k = m->k;
    if (x->n == 1) {
        ct_kval i = ct__kir_loop(k, CT_BIND_LANES, count, name);
        return (run){i, {-1, ct__kir_add(k, from, i)}};
    }
    ct_kval width = x->size[x->n - 1], end = ct__kir_add(k, from, count);
    ct_kval first = ct__kir_div(k, from, width);
    ct_kval runs = minus(k, ct__kir_div(k, ct__kir_addi(k, end, -1), width), first);
    ct_kval r = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_addi(k, runs, 1), "run");
    ct_kval outer = ct__kir_add(k, first, r), base = ct__kir_mul(k, outer, width);
    divide_here(m, x, outer);
    ct_kval begin = ct__kir_max(k, from, base);
    end = ct__kir_min(k, end, ct__kir_add(k, base, width));
    ct_kval i = ct__kir_loop(k, CT_BIND_LANES, minus(k, end, begin), name);
    return (run){ct__kir_add(k, minus(k, begin, from), i),
                 {outer, ct__kir_add(k, minus(k, begin, base), i)}};
}
static void close_run(matmul *m, const axes *x) {
    ct__kir_end(m->k);
    if (x->n > 1) ct__kir_end(m->k);
}

static ct_kval zero(const matmul *m) { return ct__kir_const(m->k, m->s->dtype, 0); }
static ct_kval packed_zero(const matmul *m) {
    return m->s->pairs ? ct__kir_const_int(m->k, CT_U32, 0) : zero(m);
}

// The tile's first row in all of a. Tiles of what is not packed have no rows beyond the edge: the last
// begins earlier.
static ct_kval first_row(const matmul *m, ct_kval row) {
    ct_kir *k = m->k;
    ct_kval at = ct__kir_add(k, m->row0, row);
    return m->a_in_place ? ct__kir_min(k, at, ct__kir_addi(k, m->s->rows, -m->mr)) : at;
}

// ------------- packing: rows and columns beyond the edge become zeros, so that every tile is whole

// The place in the packed block of A of a row, or of a tile where it is packed by k.
static ct_kval a_place(const matmul *m, ct_kval row_or_tile) {
    ct_kir *k = m->k;
    if (m->s->a_packed) {
        ct_kval n = ct__kir_ceil_div(k, m->s->inner, m->size);
        ct_kval chunk = ct__kir_add(k, ct__kir_mul(k, m->batch, n), m->chunk);
        ct_kval row = ct__kir_add(k, m->row0, row_or_tile);
        return ct__kir_muli(k, ct__kir_add(k, ct__kir_mul(k, chunk, m->s->rows), row), m->size);
    }
    ct_kval at = ct__kir_muli(k, row_or_tile, m->a_by_k ? m->a_tile * m->mrp : m->size);
    return m->deep ? ct__kir_add(k, at, ct__kir_muli(k, m->chunk, m->a_chunk)) : at;
}

static void pack_a_by_row(matmul *m) {
    ct_kir *k = m->k;
    ct_kval row = ct__kir_loop(k, CT_BIND_SEQ, m->rows, "pack row of a");
    run kk = open_run(m, &m->inner_axes, m->k0, m->kn, "k");
    ct_kval v = load_a(m, ct__kir_add(k, m->row0, row), kk.at);
    ct__kir_store(k, m->a, ct__kir_add(k, a_place(m, row), kk.i), v);
    close_run(m, &m->inner_axes);
    ct__kir_end(k);
    ct_kval whole = ct__kir_muli(k, ct__kir_ceil_div(k, m->rows, m->mr), m->mr);
    row = ct__kir_loop(k, CT_BIND_SEQ, minus(k, whole, m->rows), "rows to the edge of the tile");
    row = ct__kir_add(k, row, m->rows);
    ct_kval to = ct__kir_loop(k, CT_BIND_LANES, m->kn, "k");
    v = packed_zero(m);
    ct__kir_store(k, m->a, ct__kir_add(k, a_place(m, row), to), v);
    ct__kir_end(k);
    ct__kir_end(k);
}

// `extent` rows of a tile, at one k.
static void pack_k(matmul *m, ct_kval tile, ct_kval kk, ct_kval extent) {
    ct_kir *k = m->k;
    ct_kval row = ct__kir_add(k, m->row0, ct__kir_muli(k, tile, m->mr));
    ct_kval to = ct__kir_muli(k, kk, m->mrp);
    to = ct__kir_add(k, a_place(m, tile), to);
    ct_kval r = ct__kir_loop(k, CT_BIND_LANES, extent, "row");
    place from = place_at(m, &m->inner_axes, ct__kir_add(k, m->k0, kk));
    ct_kval v = load_a(m, ct__kir_add(k, row, r), from);
    ct__kir_store(k, m->a, ct__kir_add(k, to, r), v);
    ct__kir_end(k);
}

static void pack_a_by_k(matmul *m) {
    ct_kir *k = m->k;
    ct_kval height = ct__kir_int(k, m->mr), whole = ct__kir_div(k, m->rows, height);
    ct_kval rest = ct__kir_mod(k, m->rows, height);
    ct_kval kk = ct__kir_loop(k, CT_BIND_SEQ, m->kn, "pack a by k");
    pack_k(m, ct__kir_loop(k, CT_BIND_SEQ, whole, "tile"), kk, height);
    ct__kir_end(k);
    ct__kir_end(k);
    ct__kir_if(k, ct__kir_lt(k, ct__kir_int(k, 0), rest));
    kk = ct__kir_loop(k, CT_BIND_SEQ, m->kn, "pack the last tile of a");
    pack_k(m, whole, kk, rest);
    ct_kval r = ct__kir_loop(k, CT_BIND_LANES, minus(k, height, rest), "edge");
    ct_kval to = ct__kir_muli(k, kk, m->mrp);
    to = ct__kir_add(k, a_place(m, whole), to);
    ct_kval none = packed_zero(m);
    ct__kir_store(k, m->a, ct__kir_add(k, ct__kir_add(k, to, rest), r), none);
    ct__kir_end(k);
    ct__kir_end(k);
    ct__kir_end(k);
}

// The place of (k, column) in the packed panels: [panel][k][column].
static ct_kval b_place(const matmul *m, ct_kval kk, ct_kval column) {
    ct_kir *k = m->k;
    ct_kval width = ct__kir_int(k, m->nr), panel = ct__kir_div(k, column, width);
    ct_kval row = ct__kir_add(k, ct__kir_muli(k, panel, m->pitch), kk);
    ct_kval within = ct__kir_mod(k, column, width);
    return ct__kir_add(k, ct__kir_muli(k, row, m->nr), within);
}

// Zeros in the columns from `valid` to the edge of the last panel.
static void pad_b(matmul *m, ct_kval valid) {
    ct_kir *k = m->k;
    ct_kval rest = minus(k, ct__kir_muli(k, ct__kir_ceil_div(k, valid, m->nr), m->nr), valid);
    ct__kir_if(k, ct__kir_lt(k, ct__kir_int(k, 0), rest));
    ct_kval kk = ct__kir_loop(k, CT_BIND_SEQ, m->kn, "columns to the edge of the panel");
    // All of them are in the last panel, so the first one's place is enough.
    ct_kval to = b_place(m, kk, valid);
    ct_kval j = ct__kir_loop(k, CT_BIND_LANES, rest, "column");
    ct_kval none = packed_zero(m);
    ct__kir_store(k, m->b, ct__kir_add(k, to, j), none);
    ct__kir_end(k);
    ct__kir_end(k);
    ct__kir_end(k);
}

// Steps of k that are packed together: a run of the last inner axis.
typedef struct steps {
    ct_kval outer, at, n; // where they begin; how many
    ct_kval row;          // of the panel that is the first's
} steps;

// Whole panels: straight code, so that many loads are on their way at a time, and neighbours in memory
// are read one after the other.
static void pack_whole_rows(matmul *m, ct_kval col, const steps *s) {
    ct_kir *k = m->k;
    // Of windows 16 at a time, a loop that is none, so that what is asked of their places stands before
    // the loop over k.
    const int64_t width = m->inner_axes.n > 1 ? CT_LANES : m->nr;
    ct_kval kk = ct__kir_loop(k, CT_BIND_SEQ, s->n, "pack row of b");
    ct_kval row = ct__kir_add(k, s->row, kk);
    for (int64_t first = 0; first < m->group * m->nr; first += width) {
        ct_kval j = ct__kir_loop_n(k, CT_BIND_LANES, width, "column");
        ct_kval from = ct__kir_addi(k, ct__kir_add(k, col, j), first);
        ct_kval v = load_b(m, (place){s->outer, ct__kir_add(k, s->at, kk)}, (place){-1, from});
        ct__kir_store(k, m->b, ct__kir_add(k, b_place(m, row, ct__kir_int(k, first)), j), v);
        ct__kir_end(k);
    }
    ct__kir_end(k);
}

static void pack_some_columns(matmul *m, ct_kval col, ct_kval valid, const steps *s) {
    ct_kir *k = m->k;
    ct_kval kk = ct__kir_loop(k, CT_BIND_SEQ, s->n, "pack part of a row of b");
    ct_kval j = ct__kir_loop(k, CT_BIND_LANES, valid, "column");
    ct_kval from = ct__kir_add(k, col, j);
    ct_kval v = load_b(m, (place){s->outer, ct__kir_add(k, s->at, kk)}, (place){-1, from});
    ct__kir_store(k, m->b, b_place(m, ct__kir_add(k, s->row, kk), j), v);
    ct__kir_end(k);
    ct__kir_end(k);
}

// Where columns have several axes: pieces of panels that are runs of columns, so that what a place in the
// other axes means is asked once a piece.
static void pack_runs(matmul *m, ct_kval col, ct_kval valid, const steps *s) {
    ct_kir *k = m->k;
    ct_kval panel = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_ceil_div(k, valid, m->nr), "panel of b");
    ct_kval first = ct__kir_muli(k, panel, m->nr);
    ct_kval to = ct__kir_add(k, ct__kir_muli(k, panel, m->pitch), s->row);
    run j = open_run(m, &m->column_axes, ct__kir_add(k, col, first),
                     rest_of(k, valid, first, m->nr), "column");
    ct_kval kk = ct__kir_loop(k, CT_BIND_SEQ, s->n, "k");
    ct_kval v = load_b(m, (place){s->outer, ct__kir_add(k, s->at, kk)}, j.at);
    ct_kval row = ct__kir_muli(k, ct__kir_add(k, to, kk), m->nr);
    ct__kir_store(k, m->b, ct__kir_add(k, row, j.i), v);
    ct__kir_end(k);
    close_run(m, &m->column_axes);
    ct__kir_end(k);
}

// Steps of k, in the form that the columns allow.
static void pack_steps(matmul *m, ct_kval col, ct_kval valid, const steps *s) {
    ct_kir *k = m->k;
    int64_t columns = 0, width = (int64_t)m->group * m->nr;
    const bool known = ct__kir_is_int(k, m->s->columns, &columns);
    if (m->column_axes.n > 1) {
        pack_runs(m, col, valid, s);
    } else if (known && columns < width) {
        pack_some_columns(m, col, valid, s);
    } else if (known && columns % width == 0 && m->nc % width == 0) {
        pack_whole_rows(m, col, s);
    } else {
        ct_kval whole = ct__kir_bin(k, CT_K_EQ, valid, ct__kir_int(k, width));
        ct__kir_if(k, whole);
        pack_whole_rows(m, col, s);
        ct__kir_end(k);
        ct__kir_if(k, ct__kir_un(k, CT_K_NOT, whole));
        pack_some_columns(m, col, valid, s);
        ct__kir_end(k);
    }
}

static void pack_b_by_row(matmul *m, ct_kval col, ct_kval valid) {
    ct_kir *k = m->k;
    const axes *x = &m->inner_axes;
    steps s = {.outer = -1, .at = m->k0, .n = m->kn, .row = ct__kir_int(k, 0)};
    if (x->n > 1) {
        ct_kval width = x->size[x->n - 1], end = ct__kir_add(k, m->k0, m->kn);
        ct_kval first = ct__kir_div(k, m->k0, width);
        ct_kval runs = minus(k, ct__kir_div(k, ct__kir_addi(k, end, -1), width), first);
        ct_kval r = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_addi(k, runs, 1), "run of k");
        s.outer = ct__kir_add(k, first, r);
        divide_here(m, x, s.outer);
        ct_kval base = ct__kir_mul(k, s.outer, width), begin = ct__kir_max(k, m->k0, base);
        s.n = minus(k, ct__kir_min(k, end, ct__kir_add(k, base, width)), begin);
        s.at = minus(k, begin, base);
        s.row = minus(k, begin, m->k0);
    }
    pack_steps(m, col, valid, &s);
    if (x->n > 1) ct__kir_end(k);
    int64_t columns = 0, width = (int64_t)m->group * m->nr;
    const bool even =
        ct__kir_is_int(k, m->s->columns, &columns) && columns % width == 0 && m->nc % width == 0;
    if (!even) pad_b(m, valid);
}

// 16 x 16 elements of the staged columns, or of b itself, turned into rows of the panel at column `group`.
static void transpose(matmul *m, ct_kval col, ct_kval group) {
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
        x[r] = m->stage < 0 ? load_b(m, (place){-1, ct__kir_addi(k, step, r)}, (place){-1, column})
                            : ct__kir_load(k, m->stage, ct__kir_addi(k, from, r));
    ct_kval to = ct__kir_add(k, b_place(m, kb, group), c);
    for (int r = 0; r < CT_LANES; r++)
        ct__kir_store(k, m->b, ct__kir_addi(k, to, (int64_t)r * m->nr), x[r]);
    ct__kir_end(k);
    ct__kir_end(k);
}

// Where b is contiguous along k: 16 columns at a time are turned; where they may end within 16 steps, or
// cost more than a load, they are staged in scratch before.
static void pack_b_by_column(matmul *m, ct_kval col, ct_kval valid) {
    ct_kir *k = m->k;
    ct_kval groups = ct__kir_ceil_div(k, valid, CT_LANES);
    ct_kval group = ct__kir_loop(k, CT_BIND_SEQ, groups, "16 columns of b");
    group = ct__kir_muli(k, group, CT_LANES);
    if (m->stage < 0) {
        transpose(m, col, group);
        ct__kir_end(k);
        pad_b(m, valid);
        return;
    }
    ct_kval some = rest_of(k, valid, group, CT_LANES);
    ct_kval j = ct__kir_loop(k, CT_BIND_SEQ, some, "pack column of b");
    ct_kval from = ct__kir_add(k, col, ct__kir_add(k, group, j));
    place column = place_at(m, &m->column_axes, from);
    run kk = open_run(m, &m->inner_axes, m->k0, m->kn, "k");
    ct_kval v = load_b(m, kk.at, column);
    ct__kir_store(k, m->stage, ct__kir_add(k, ct__kir_muli(k, j, m->size), kk.i), v);
    close_run(m, &m->inner_axes);
    ct__kir_end(k);
    transpose(m, col, group);
    ct__kir_end(k);
    pad_b(m, valid);
}

static void pack_b(matmul *m, ct_kval first, ct_kval valid) {
    if (m->b_in_place) return;
    ct_kval col = ct__kir_add(m->k, m->col0, first);
    if (m->b_by_column)
        pack_b_by_column(m, col, valid);
    else
        pack_b_by_row(m, col, valid);
}

// --------------------------------------------------------------------------------- a register tile

// Where the tile's sums of the chunks before lie.
static ct_kval sum_place(const matmul *m, ct_kval row, ct_kval group, ct_kval panel) {
    ct_kir *k = m->k;
    ct_kval column = m->deep ? panel : ct__kir_add(k, group, panel);
    return ct__kir_add(k, ct__kir_muli(k, row, m->sum_width), column);
}

// Stores the tile's rows, `width` elements apart.
static void store_tile(const matmul *m, const ct_kval *acc, int buf, ct_kval at, int64_t width) {
    for (int r = 0; r < m->mr; r++)
        ct__kir_store(m->k, buf, ct__kir_addi(m->k, at, r * width), ct__kir_get(m->k, acc[r]));
}

// The sums of the chunks before are put to the tile, which is kept for the next chunk or, behind the
// last, for the result.
static void add_chunk(const matmul *m, const ct_kval *acc, ct_kval kept, ct_kval j) {
    ct_kir *k = m->k;
    ct_kval first = ct__kir_bin(k, CT_K_EQ, m->chunk, ct__kir_int(k, 0));
    ct__kir_if(k, ct__kir_un(k, CT_K_NOT, first));
    for (int r = 0; r < m->mr; r++) {
        ct_kval before = ct__kir_load(k, m->sum, ct__kir_addi(k, kept, r * m->sum_width));
        ct__kir_set(k, acc[r], ct__kir_add(k, before, ct__kir_get(k, acc[r])));
    }
    ct__kir_end(k);
    ct__kir_if(k, ct__kir_un(k, CT_K_NOT, m->last));
    store_tile(m, acc, m->sum, kept, m->sum_width);
    ct__kir_end(k);
    ct__kir_if(k, m->last);
    store_tile(m, acc, m->tile, j, m->nr);
    ct__kir_end(k);
}

// The chunk's chains of fused multiply-adds, from +0.
static void multiply(matmul *m, ct_kval row, ct_kval group, ct_kval panel) {
    ct_kir *k = m->k;
    ct_kval acc[CT_TILE_ROWS];
    ct_kval j = ct__kir_loop_n(k, CT_BIND_TILE, m->nr, "column");
    for (int r = 0; r < m->mr; r++) acc[r] = ct__kir_reg(k, zero(m));
    ct_kval base = a_place(m, m->a_by_k ? ct__kir_div(k, row, ct__kir_int(k, m->mr)) : row);
    ct_kval kk = ct__kir_loop(k, CT_BIND_SEQ, m->kn, "k"), b;
    const place inner = {-1, ct__kir_add(k, m->k0, kk)};
    if (m->b_in_place) {
        ct_kval column = ct__kir_add(k, m->col0, ct__kir_add(k, group, panel));
        b = load_b(m, inner, (place){-1, ct__kir_add(k, column, j)});
    } else {
        ct_kval b_row = ct__kir_muli(k, kk, m->nr);
        b_row = ct__kir_add(k, b_place(m, ct__kir_int(k, 0), panel), b_row);
        b = ct__kir_load(k, m->b, ct__kir_add(k, b_row, j));
    }
    ct_kval from = ct__kir_add(k, base, ct__kir_muli(k, kk, m->a_by_k ? m->mrp : 1));
    ct_kval begin = first_row(m, row), a;
    for (int r = 0; r < m->mr; r++) {
        if (m->a_in_place)
            a = load_a(m, ct__kir_addi(k, begin, r), inner);
        else
            a = ct__kir_load(k, m->a, ct__kir_addi(k, from, m->a_by_k ? r : r * m->size));
        ct__kir_set(k, acc[r], ct__matmul_step(k, m->s, a, b, ct__kir_get(k, acc[r])));
    }
    ct__kir_end(k);
    if (m->many)
        add_chunk(m, acc, ct__kir_add(k, sum_place(m, row, group, panel), j), j);
    else
        store_tile(m, acc, m->tile, j, m->nr);
    ct__kir_end(k);
}

// An element of the result, at a row of the block and a place along the columns as the result has them.
static void store_result(matmul *m, ct_kval row, place column, ct_kval v) {
    ct_kval in_all = ct__kir_add(m->k, m->row0, row);
    int n = put(m, m->s->n_batch, &m->row_axes, (place){-1, in_all});
    n = put(m, n, &m->result_axes, column);
    ct__sink_store(m->k, &m->s->c, n, m->at, v);
}

static void finish(matmul *m, ct_kval row, ct_kval group, ct_kval panel, ct_kval valid) {
    ct_kir *k = m->k;
    const axes *over = &m->result_axes;
    ct_kval rows = rest_of(k, m->rows, row, m->mr), none = ct__kir_int(k, 0);
    ct_kval r = ct__kir_loop(k, CT_BIND_SEQ, rows, "row of the result");
    ct_kval from = ct__kir_add(k, m->col0, ct__kir_add(k, group, panel));
    run j = open_run(m, over, over->n > 1 ? from : none, valid, "column");
    if (over->n == 1) j.at.last = ct__kir_add(k, from, j.i);
    ct_kval early = minus(k, ct__kir_add(k, m->row0, row), first_row(m, row));
    ct_kval in_tile = ct__kir_muli(k, ct__kir_add(k, r, early), m->nr);
    ct_kval v = ct__kir_load(k, m->tile, ct__kir_add(k, in_tile, j.i));
    store_result(m, ct__kir_add(k, row, r), j.at, v);
    close_run(m, over);
    ct__kir_end(k);
}

// -------------------------------------------------------------------------- what is wanted soon

// Cache lines are asked for while the tiles before are computed, whose operands lie near: so memory and
// arithmetic overlap, which no processor looks far enough ahead to do by itself.
enum { LINE = 16 }; // elements, of f32

// The tile's part of the result, and what else its elements are computed from.
static void prefetch_result(matmul *m, ct_kval row, ct_kval group, ct_kval panel) {
    ct_kir *k = m->k;
    ct_kval r = ct__kir_loop_n(k, CT_BIND_SEQ, m->mr, "row wanted soon");
    ct_kval column = ct__kir_add(k, m->col0, ct__kir_add(k, group, panel));
    for (int64_t i = 0; i < m->nr; i += LINE) {
        place at = place_at(m, &m->result_axes, ct__kir_addi(k, column, i));
        ct__kir_prefetches(k, true);
        store_result(m, ct__kir_add(k, row, r), at, zero(m));
        ct__kir_prefetches(k, false);
    }
    ct__kir_end(k);
}

// `part` of `parts` of an operand's next piece: `outer` lines of `length` elements.
static void prefetch_part(matmul *m, ct_kval (*ask)(matmul *m, ct_kval outer, ct_kval inner),
                          ct_kval wanted, ct_kval part, int64_t parts, int64_t outer,
                          int64_t length) {
    ct_kir *k = m->k;
    const int64_t each = (outer + parts - 1) / parts;
    ct_kval many = ct__kir_select(k, wanted, ct__kir_int(k, each), ct__kir_int(k, 0));
    ct_kval o = ct__kir_loop(k, CT_BIND_SEQ, many, "wanted soon");
    ct_kval i = ct__kir_loop_n(k, CT_BIND_SEQ, (length + LINE - 1) / LINE, "line");
    ct__kir_prefetches(k, true);
    ask(m, ct__kir_add(k, ct__kir_muli(k, part, each), o), ct__kir_muli(k, i, LINE));
    ct__kir_prefetches(k, false);
    ct__kir_end(k);
    ct__kir_end(k);
}
static ct_kval ask_b(matmul *m, ct_kval outer, ct_kval inner) {
    ct_kval kk = ct__kir_add(m->k, m->next_k, m->b_by_column ? inner : outer);
    ct_kval column = ct__kir_add(m->k, m->next_column, m->b_by_column ? outer : inner);
    return load_b(m, (place){-1, kk}, (place){-1, ct__kir_add(m->k, m->col0, column)});
}
static ct_kval ask_a(matmul *m, ct_kval outer, ct_kval inner) {
    ct_kval kk = ct__kir_add(m->k, m->next_k, m->a_by_k ? outer : inner);
    ct_kval row = ct__kir_add(m->k, m->row0, m->a_by_k ? inner : outer);
    return load_a(m, row, (place){-1, kk});
}

// Of a that is read where it lies, a panel's share of what the next tile reads.
static void prefetch_next_tile(matmul *m, ct_kval panel, ct_kval tile) {
    ct_kir *k = m->k;
    ct_kval row = ct__kir_muli(k, ct__kir_addi(k, tile, 1), m->mr);
    ct_kval more = ct__kir_lt(k, row, m->rows), none = ct__kir_int(k, 0);
    row = ct__kir_select(k, more, row, none);
    m->next_k = ct__kir_select(k, more, m->k0, ct__kir_addi(k, m->k0, m->size));
    const int64_t lines = m->a_by_k ? m->size : m->mr, share = (lines + m->group - 1) / m->group;
    ct_kval first = ct__kir_muli(k, ct__kir_div(k, panel, ct__kir_int(k, m->nr)), share);
    ct_kval o = ct__kir_loop_n(k, CT_BIND_SEQ, share, "wanted soon");
    o = ct__kir_add(k, first, o);
    ct__kir_prefetches(k, true);
    if (m->a_by_k) { // what the tile has begun is near
        ask_a(m, o, ct__kir_addi(k, row, m->mr - 1));
    } else {
        ct_kval i = ct__kir_loop_n(k, CT_BIND_SEQ, m->size / LINE, "line");
        ask_a(m, ct__kir_add(k, row, o), ct__kir_muli(k, i, LINE));
        ct__kir_end(k);
    }
    ct__kir_prefetches(k, false);
    ct__kir_end(k);
}

// Of the panels of b that come next, and behind a chunk's last panels of the next rows of a, this tile's
// share.
static void prefetch_operands(matmul *m, ct_kval group, ct_kval panel, ct_kval tile) {
    ct_kir *k = m->k;
    const int64_t width = (int64_t)m->group * m->nr, height = m->mc / m->mr;
    ct_kval behind = ct__kir_addi(k, group, width), none = ct__kir_int(k, 0);
    ct_kval more = ct__kir_lt(k, behind, m->cols), chunk = ct__kir_addi(k, m->k0, m->size);
    ct_kval wanted = ct__kir_bin(k, CT_K_OR, more, ct__kir_un(k, CT_K_NOT, m->last));
    m->next_k =
        m->deep ? ct__kir_select(k, m->last, none, chunk) : ct__kir_select(k, more, m->k0, chunk);
    m->next_column =
        m->deep ? ct__kir_select(k, m->last, behind, group) : ct__kir_select(k, more, behind, none);
    ct_kval part = ct__kir_div(k, panel, ct__kir_int(k, m->nr));
    part = ct__kir_add(k, ct__kir_muli(k, part, height), tile);
    const int64_t parts = height * m->group;
    prefetch_part(m, ask_b, wanted, part, parts, m->b_by_column ? width : m->size,
                  m->b_by_column ? m->size : width);
    if (m->a_in_place) prefetch_next_tile(m, panel, tile);
    if (m->deep || !m->many || m->s->a_packed || m->a_in_place) return;
    wanted = ct__kir_bin(k, CT_K_AND, wanted, ct__kir_un(k, CT_K_NOT, more));
    prefetch_part(m, ask_a, wanted, part, parts, m->a_by_k ? m->size : m->mc,
                  m->a_by_k ? m->mc : m->size);
}

static void tiles(matmul *m, ct_kval group, ct_kval columns) {
    ct_kir *k = m->k;
    ct_kval row = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_ceil_div(k, m->rows, m->mr), "tile");
    ct_kval panel = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_ceil_div(k, columns, m->nr), "panel of b");
    panel = ct__kir_muli(k, panel, m->nr);
    ct_kval rest = minus(k, m->cols, ct__kir_add(k, group, panel));
    ct_kval valid = ct__kir_min(k, rest, ct__kir_int(k, m->nr));
    if (m->asks_for_operands) prefetch_operands(m, group, panel, row);
    row = ct__kir_muli(k, row, m->mr);
    if (m->asks_for_result) {
        if (m->many) ct__kir_if(k, m->last);
        prefetch_result(m, row, group, panel);
        if (m->many) ct__kir_end(k);
    }
    multiply(m, row, group, panel);
    if (m->many) ct__kir_if(k, m->last);
    finish(m, row, group, panel, valid);
    if (m->many) ct__kir_end(k);
    ct__kir_end(k);
    ct__kir_end(k);
}

// Opens the loop over the chunks.
static void chunks(matmul *m) {
    ct_kir *k = m->k;
    // One chunk at least: an empty sum is +0.
    ct_kval n = ct__kir_ceil_div(k, m->s->inner, m->size);
    n = ct__kir_max(k, ct__kir_int(k, 1), n);
    m->chunk = ct__kir_loop(k, CT_BIND_SEQ, n, "chunk of k");
    m->last = ct__kir_bin(k, CT_K_EQ, m->chunk, ct__kir_addi(k, n, -1));
    m->k0 = ct__kir_muli(k, m->chunk, m->size);
    m->kn = rest_of(k, m->s->inner, m->k0, m->size);
}

static void pack_a(matmul *m) {
    if (m->a_by_k)
        pack_a_by_k(m);
    else
        pack_a_by_row(m);
}

// Panels are packed a few at a time: rows of b are read in longer pieces, and each panel is used
// while it is near.
static void panels(matmul *m) {
    ct_kir *k = m->k;
    int64_t width = (int64_t)m->group * m->nr;
    ct_kval groups = ct__kir_ceil_div(k, m->cols, width);
    ct_kval group = ct__kir_loop(k, CT_BIND_SEQ, groups, "panels of b");
    group = ct__kir_muli(k, group, width);
    if (m->deep) chunks(m);
    ct_kval valid = rest_of(k, m->cols, group, width);
    pack_b(m, group, valid);
    tiles(m, group, valid);
    if (m->deep) ct__kir_end(k);
    ct__kir_end(k);
}

// A block of the result. Where all of a is small it is packed once, and the columns of b are read
// to their ends one after the other; else one chunk of both at a time.
static void block(matmul *m) {
    const bool packs = !m->s->a_packed && !m->a_in_place;
    if (packs || !m->deep) chunks(m);
    if (packs) pack_a(m);
    if (packs && m->deep) ct__kir_end(m->k);
    panels(m);
    if (!m->deep) ct__kir_end(m->k);
}

// -------------------------------------------------------------------------------------- the kernel

static int64_t at_most(const ct_kir *k, ct_kval v, int64_t otherwise) {
    int64_t n = 0;
    return ct__kir_is_int(k, v, &n) && n < otherwise ? n : otherwise;
}

static int64_t up_to(int64_t n, int64_t multiple) {
    return n <= 0 ? multiple : (n + multiple - 1) / multiple * multiple;
}

// n in equal blocks of at most about `most`, each a multiple of `unit`.
static int64_t equal_blocks(int64_t n, int64_t most, int64_t unit) {
    int64_t blocks = (n + most - 1) / most;
    return blocks > 0 ? up_to((n + blocks - 1) / blocks, unit) : unit;
}

// Blocks of n that leave no core idle at the end where tasks are few.
static int64_t even_blocks(const matmul *m, int64_t n, int64_t block, int64_t others,
                           int64_t unit) {
    enum { FEW = 8 }; // tasks a core
    const int64_t cores = m->s->target.cores > 0 ? m->s->target.cores : 1;
    int64_t blocks = (n + block - 1) / block;
    if (blocks < 1 || others < 1 || blocks >= FEW * cores || others >= FEW * cores ||
        blocks * others >= FEW * cores)
        return block;
    while (blocks * others % cores) blocks++;
    return up_to((n + blocks - 1) / blocks, unit);
}

// Columns of a task: a task for each core at least, but wide, since each task packs its rows of a
// anew (256 x 3072 x 768: 94 % of the speed of OpenBLAS with 384 columns, 84 % with 96).
static int64_t column_block(const matmul *m) {
    enum { NARROW = 96, WIDE = 384, OF_PIECES = 512 };
    const int64_t wide = m->inner_axes.n > 1 ? OF_PIECES : WIDE; // rows in pieces cost more
    int64_t tasks = m->s->target.cores > 0 ? m->s->target.cores : 1;
    int64_t others = 1, size = 1, columns = at_most(m->k, m->s->columns, INT64_MAX / 16);
    for (int i = 0; i < m->s->n_batch; i++)
        if (ct__kir_is_int(m->k, m->s->batch[i], &size)) others *= size;
    if (ct__kir_is_int(m->k, m->s->rows, &size)) others *= (size + m->mc - 1) / m->mc;
    int64_t width = columns / tasks * (others < tasks ? others : tasks);
    if (width > wide) width = wide;
    if (width < NARROW) width = NARROW;
    // Rows that are gathered are rather divided: each is gathered once then.
    if (m->gathers && others < tasks && columns <= wide) width = wide;
    const int64_t block = equal_blocks(columns, width, m->nr);
    return block < columns ? even_blocks(m, columns, block, others, m->nr) : block;
}

// Rows of a task: where a block of columns is all of them and sums are long, rows are for all cores.
static int64_t row_block(const matmul *m, int64_t most) {
    enum { MORE = 320, LONG = 1024 };
    const int64_t rows = at_most(m->k, m->s->rows, INT64_MAX / 16);
    int64_t columns, size, others = 1;
    if (!ct__kir_is_int(m->k, m->s->columns, &columns) || columns > m->nc ||
        at_most(m->k, m->s->inner, LONG) < LONG)
        return equal_blocks(rows, most, m->mr);
    for (int i = 0; i < m->s->n_batch; i++)
        if (ct__kir_is_int(m->k, m->s->batch[i], &size)) others *= size;
    return even_blocks(m, rows, equal_blocks(rows, MORE, m->mr), others, m->mr);
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

static void register_tile(matmul *m) {
    const ct_matmul_tile *t = &m->s->tile;
    const ct_target *target = &m->s->target;
    // Values of 16 lanes that the registers hold, less some for operands: 28 with AVX-512, 6 with AVX2.
    const int room = target->registers * target->lanes / CT_LANES;
    const bool wide = m->s->dtype == CT_F64, large = room >= 32;
    int vectors = room - (large ? room / 8 : 2);
    int most = large ? vectors / 2 : vectors;
    if (wide) vectors /= 2;
    if (wide && !large) most /= 2;
    if (most < 1) most = vectors = 1;
    m->mr =
        t->rows ? t->rows : ct__matmul_tile_rows(at_most(m->k, m->s->rows, INT64_MAX / 16), most);
    if (m->mr < 1) m->mr = 1;
    // Few rows: wide tiles, so that there are enough chains, and long pieces of the rows of B.
    m->nv = t->vectors;
    if (!m->nv)
        for (m->nv = m->b_by_column ? 2 : MOST_VECTORS; m->nv > 1 && m->nv * m->mr > vectors;)
            m->nv /= 2;
}

// Is a contiguous along one axis, and what lies in a tile of it not in a few sets of the first cache?
// Where neighbours along the other axis are a multiple of 4 KB apart, all of them meet in one.
static bool lies_well(const matmul *m) {
    enum { WAY = 4096 }; // bytes
    const int64_t size = m->s->dtype == CT_F64 ? 8 : 4;
    return !m->gathers && ct__source_step(m->k, &m->s->a, m->s->n_batch + 2) * size % WAY;
}

// Not packed is what tiles read as fast where it lies, and what so few of them read that packing would
// cost as much as it saves.
static void choose_packing(matmul *m) {
    enum { FEW_COLUMNS = 64, FEW_ROWS = 256, NEAR = 1 << 16 }; // NEAR: elements of b
    const ct_kir *k = m->k;
    int64_t rows = 0, columns = 0, length = 0;
    const bool known =
        ct__kir_is_int(k, m->s->rows, &rows) && ct__kir_is_int(k, m->s->inner, &length) &&
        ct__kir_is_int(k, m->s->columns, &columns) && m->column_axes.n == 1 && m->inner_axes.n == 1;
    m->a_in_place = known && !m->s->a_packed && (columns <= FEW_COLUMNS || lies_well(m)) &&
                    rows >= m->mr && ct__source_is_load(&m->s->a);
    m->b_in_place = known && rows <= FEW_ROWS && columns % m->nr == 0 && !m->b_by_column &&
                    length * columns <= NEAR && // else whole rows of panels are read better
                    m->nc % m->nr == 0 && ct__source_is_load(&m->s->b);
}

static void choose(matmul *m) {
    enum { NEAR = 1 << 17 }; // elements of a block's rows of the result, which then lie near
    const ct_matmul_tile *t = &m->s->tile;
    const ct_kir *k = m->k;
    const int n = m->s->n_batch, inner = m->inner_axes.n;
    m->b_by_column = ct__source_along(k, &m->s->b, n + inner - 1) &&
                     !ct__source_along(k, &m->s->b, n + inner + m->column_axes.n - 1);
    if (!m->s->a_packed) {
        const bool along_k = ct__source_along(k, &m->s->a, n + inner),
                   along_rows = ct__source_along(k, &m->s->a, n);
        m->a_by_k = along_rows && !along_k;
        m->gathers = !along_rows && !along_k;
    }
    register_tile(m);
    m->nr = m->nv * CT_LANES;
    m->size = ct__matmul_chunk(m->s);
    m->a_tile = m->size + 1;
    m->many = at_most(k, m->s->inner, m->size + 1) > m->size;
    // Without sums that wait there is room for more rows in the second cache.
    const int64_t rows = at_most(k, m->s->rows, INT64_MAX / 16), most = m->many ? 256 : 384;
    m->mc = up_to(t->row_block ? t->row_block : equal_blocks(rows, most, m->mr), m->mr);
    m->nc = up_to(t->column_block ? t->column_block : column_block(m), m->nr);
    if (!t->row_block) m->mc = up_to(row_block(m, most), m->mr);
    m->mrp = up_to(m->mr, CT_LANES);
    m->group = t->group ? t->group : m->b_by_column ? 1 : 8 / m->nv;
    if (m->group > m->nc / m->nr) m->group = (int)(m->nc / m->nr);
    m->pitch = m->size + (m->inner_axes.n > 1 && !m->b_by_column ? 2 : 0);
    choose_packing(m);
    // Worth it where tiles are long, and what is asked for is far. Where operands have several axes a place
    // is asked for a line at a time, and would cost a division each.
    const bool plain = m->column_axes.n == 1 && inner == 1;
    const bool long_tiles = at_most(k, m->s->inner, m->size) >= m->size / 2;
    m->asks_for_operands = plain && m->result_axes.n == 1 && long_tiles && !m->b_in_place;
    m->asks_for_result = long_tiles || (plain && m->result_axes.n == 1 &&
                                        !(at_most(k, m->s->columns, NEAR) < NEAR / m->mc));
}

static void make_scratch(matmul *m) {
    enum { SMALL = 3 << 17 }; // bytes of a that may stay packed: some of a core's second cache
    const ct_dtype packed = ct__matmul_packed(m->s);
    int64_t size = m->s->dtype == CT_F64 ? 8 : 4, n = 0, all = 1;
    m->a_chunk = m->a_by_k ? m->mc / m->mr * m->mrp * m->a_tile : m->mc * m->size;
    if (m->many && ct__kir_is_int(m->k, m->s->inner, &n)) {
        all = (n + m->size - 1) / m->size;
        m->deep = m->a_in_place || all * m->a_chunk * size <= SMALL;
    }
    m->a = m->s->a_packed ? m->s->a.buf : -1;
    m->b = m->stage = -1;
    if (!m->s->a_packed && !m->a_in_place)
        m->a = ct__kir_local(m->k, packed, m->a_chunk * (m->deep ? all : 1));
    if (!m->b_in_place) m->b = ct__kir_local(m->k, packed, (int64_t)m->group * m->nr * m->pitch);
    int64_t columns = 1;
    const bool whole = ct__kir_is_int(m->k, m->s->inner, &n) && n % CT_LANES == 0 &&
                       ct__kir_is_int(m->k, m->s->columns, &columns) && columns % CT_LANES == 0 &&
                       m->column_axes.n == 1 && m->inner_axes.n == 1 &&
                       ct__source_is_load(&m->s->b);
    if (m->b_by_column && !whole) m->stage = ct__kir_local(m->k, packed, CT_LANES * m->size);
    m->tile = ct__kir_local(m->k, m->s->dtype, (int64_t)m->mr * m->nr);
    m->sum_width = m->deep ? (int64_t)m->group * m->nr : m->nc;
    m->sum = m->many ? ct__kir_local(m->k, m->s->dtype, m->mc * m->sum_width) : -1;
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
    choose(&m);
    make_scratch(&m);
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
    m.rows = rest_of(k, spec->rows, m.row0, m.mc);
    m.cols = rest_of(k, spec->columns, m.col0, m.nc);
    block(&m);
    ct__kir_end(k);
}
