// Products of many rows with few columns, where the rows are contiguous along k in memory and each is used
// once: the weights of a convolution or a layer with one small image. Here lanes run along the rows, whose
// number is a multiple of whole vectors, since lanes along the columns would be partly unused. The columns
// are packed once per task. Then panels of rows are read from beginning to end in memory order, transposed in
// registers on the way into scratch, and used for all columns while they are in cache. In weights the taps of
// a channel are adjacent, while k is ordered by taps: a panel has all of k, so no cache line is read twice.
#include "kinds/matmul.h"

enum {
    PANEL = 2 * CT_LANES, // rows
    MAX_COLUMNS = 256,    // columns
    LINE = 16,            // elements of a cache line
    MAX_INNER = 5 << 10,  // steps of k: a panel then fits in a core's L2 cache
    MAX_PACKED = 1 << 19, // elements of b
};

typedef struct panels {
    ct_kir *k;
    const ct_matmul_spec *s;
    int64_t rows, columns, inner, taps;
    int width;     // columns of a register tile
    int64_t tiles; // of the columns
    int64_t step;  // elements of a tile's step of k: a whole cache line, if that is little more
    int a, b;      // scratch: the panel (inner, PANEL), the columns (tiles, inner, step)
    int sum, out;  // scratch: a tile (CT_LANES, PANEL), the panel's result (PANEL, pitch)
    // columns of whole tiles, plus capacity for the 16 lanes in which the last one is written
    int64_t pitch;
    ct_kval at[2 * CT_MAX_RANK];
} panels;

// Columns with the same position in all axes but the last: a run along the last axis.
typedef struct run {
    ct_kval first; // offset of the run in all columns
    ct_kval lane;  // of the LANES loop that is open, from 0
} run;

// Opens a loop over the runs in [begin, end), and one over the lanes of each; writes the positions along the
// axes to `at`.
static run panels_open_runs(panels *p, const ct_kval *size, int n, ct_kval begin, ct_kval end,
                            ct_kval *at) {
    ct_kir *k = p->k;
    ct_kval base = ct__kir_int(k, 0), start = begin;
    if (n > 1) {
        ct_kval axis = size[n - 1], first = ct__kir_div(k, begin, axis);
        ct_kval runs = ct__kir_sub(k, ct__kir_div(k, ct__kir_addi(k, end, -1), axis), first);
        ct_kval r = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_addi(k, runs, 1), "run of columns");
        ct_kval outer = ct__kir_add(k, first, r);
        base = ct__kir_mul(k, outer, axis);
        start = ct__kir_max(k, begin, base);
        end = ct__kir_min(k, end, ct__kir_add(k, base, axis));
        ct__unflatten(k, outer, n - 1, size, at);
    }
    ct_kval lane = ct__kir_loop(k, CT_BIND_LANES, ct__kir_sub(k, end, start), "column");
    at[n - 1] = ct__kir_add(k, ct__kir_sub(k, start, base), lane);
    return (run){ct__kir_sub(k, start, begin), lane};
}
static void panels_close_runs(panels *p, int n) {
    ct__kir_end(p->k);
    if (n > 1) ct__kir_end(p->k);
}

// Returns the index in the packed columns of a tile's step of k.
static ct_kval panels_b_index(const panels *p, ct_kval tile, ct_kval step) {
    ct_kval row = ct__kir_add(p->k, ct__kir_muli(p->k, tile, p->inner), step);
    return ct__kir_muli(p->k, row, p->step);
}

static void panels_pack_columns(panels *p) {
    ct_kir *k = p->k;
    const ct_matmul_spec *s = p->s;
    const int n = s->n_inner_axes > 1 ? s->n_inner_axes : 1;
    const int m = s->n_column_axes > 1 ? s->n_column_axes : 1;
    ct_kval last = n > 1 ? s->inner_axis[n - 1] : s->inner;
    ct_kval outer = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_div(k, s->inner, last), "outer k");
    ct__unflatten(k, outer, n - 1, s->inner_axis, p->at);
    ct_kval tile = ct__kir_loop_n(k, CT_BIND_SEQ, p->tiles, "tile of columns");
    ct_kval begin = ct__kir_muli(k, tile, p->width);
    ct_kval end = ct__kir_min(k, ct__kir_addi(k, begin, p->width), s->columns);
    run j = panels_open_runs(p, s->column_axis, m, begin, end, p->at + n);
    ct_kval step = ct__kir_loop(k, CT_BIND_SEQ, last, "k");
    p->at[n - 1] = step;
    ct_kval v = ct__source_load(k, &s->b, n + m, p->at);
    ct_kval to = panels_b_index(p, tile, ct__kir_add(k, ct__kir_mul(k, outer, last), step));
    to = ct__kir_add(k, ct__kir_add(k, to, j.first), j.lane);
    ct__kir_store(k, p->b, to, v);
    ct__kir_end(k);
    panels_close_runs(p, m);
    ct__kir_end_n(k, 2);
    const int64_t padding = p->tiles * p->width - p->columns;
    if (!padding) return;
    step = ct__kir_loop_n(k, CT_BIND_SEQ, p->inner, "columns beyond the edge");
    to = ct__kir_addi(k, panels_b_index(p, ct__kir_int(k, p->tiles - 1), step), p->width - padding);
    ct_kval lane = ct__kir_loop_n(k, CT_BIND_LANES, padding, "column");
    ct__kir_store(k, p->b, ct__kir_add(k, to, lane), ct__kir_const(k, s->dtype, 0));
    ct__kir_end_n(k, 2);
}

// Returns the index in the panel of a step of k. Chunks are separated by a line of the panel, so that the
// taps of a channel do not map to one set of a cache.
static ct_kval panels_a_index(const panels *p, ct_kval step) {
    ct_kval chunk = ct__kir_div(p->k, step, ct__kir_int(p->k, CT_DOT_CHUNK));
    return ct__kir_muli(p->k, ct__kir_add(p->k, step, chunk), PANEL);
}

// Packs 16 channels of 16 rows at a time, with all their taps: adjacent elements of a row are loaded
// together.
static void panels_pack_rows(panels *p, ct_kval row0) {
    ct_kir *k = p->k;
    const int64_t channels = p->inner / p->taps;
    ct_kval group = ct__kir_loop_n(k, CT_BIND_SEQ, channels / CT_LANES, "16 channels");
    ct_kval from = ct__kir_muli(k, group, CT_LANES);
    for (int part = 0; part < PANEL / CT_LANES; part++) {
        ct_kval lane = ct__kir_loop_n(k, CT_BIND_TILE, CT_LANES, "row");
        ct_kval to[CT_MOST_TAPS], x[CT_LANES];
        for (int64_t tap = 0; tap < p->taps; tap++) {
            ct_kval step = ct__kir_addi(k, from, tap * channels);
            to[tap] = ct__kir_add(
                k, ct__kir_addi(k, panels_a_index(p, step), (int64_t)part * CT_LANES), lane);
        }
        ct_kval row = ct__kir_add(k, ct__kir_addi(k, row0, (int64_t)part * CT_LANES), lane);
        for (int64_t first = 0; first < p->taps * CT_LANES; first += CT_LANES) {
            for (int64_t i = 0; i < CT_LANES; i++)
                x[i] = p->s->a_in_memory(p->s->a.env, k, row, from, (first + i) / p->taps,
                                         (first + i) % p->taps);
            for (int64_t i = 0; i < CT_LANES; i++) {
                const int64_t channel = (first + i) / p->taps, tap = (first + i) % p->taps;
                ct__kir_store(k, p->a, ct__kir_addi(k, to[tap], channel * PANEL), x[i]);
            }
        }
        ct__kir_end(k);
    }
    ct__kir_end(k);
}

// Prefetches the next panel: each tile requests some rows, one line of each at a time, while it computes as
// many steps of k as a line has elements. A core cannot have more requests in flight.
static void panels_prefetch_rows(panels *p, ct_kval row0, ct_kval tile, ct_kval line) {
    ct_kir *k = p->k;
    const int64_t each = (PANEL + p->tiles - 1) / p->tiles;
    // The first channel whose first tap is in the line.
    ct_kval channel = ct__kir_ceil_div(k, ct__kir_muli(k, line, LINE), p->taps);
    ct_kval row = ct__kir_add(k, ct__kir_addi(k, row0, PANEL), ct__kir_muli(k, tile, each));
    ct__kir_set_prefetch_mode(k, true);
    for (int64_t i = 0; i < each; i++)
        (void)p->s->a_in_memory(p->s->a.env, k, ct__kir_addi(k, row, i), channel, 0, 0);
    ct__kir_set_prefetch_mode(k, false);
}

// Computes the sums of a tile over all chunks of k.
static void panels_multiply_tile(panels *p, ct_kval row0, ct_kval tile) {
    ct_kir *k = p->k;
    const int64_t chunks = (p->inner + CT_DOT_CHUNK - 1) / CT_DOT_CHUNK;
    ct_kval chunk = ct__kir_loop_n(k, CT_BIND_SEQ, chunks, "chunk of k"), acc[CT_TILE_ROWS];
    ct_kval k0 = ct__kir_muli(k, chunk, CT_DOT_CHUNK), most = ct__kir_int(k, CT_DOT_CHUNK);
    ct_kval kn = ct__kir_min(k, ct__kir_sub(k, ct__kir_int(k, p->inner), k0), most);
    ct_kval lane = ct__kir_loop_n(k, CT_BIND_TILE, PANEL, "row");
    for (int j = 0; j < p->width; j++) acc[j] = ct__kir_reg(k, ct__kir_const(k, p->s->dtype, 0));
    ct_kval line = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_div(k, kn, ct__kir_int(k, LINE)), "line");
    panels_prefetch_rows(p, row0, tile,
                         ct__kir_add(k, ct__kir_div(k, k0, ct__kir_int(k, LINE)), line));
    ct_kval kk = ct__kir_loop_n(k, CT_BIND_SEQ, LINE, "k");
    kk = ct__kir_add(k, ct__kir_muli(k, line, LINE), kk);
    ct_kval step = ct__kir_add(k, k0, kk);
    ct_kval a = ct__kir_add(k, panels_a_index(p, k0), ct__kir_muli(k, kk, PANEL));
    a = ct__kir_load(k, p->a, ct__kir_add(k, a, lane));
    ct_kval from = panels_b_index(p, tile, step);
    for (int j = 0; j < p->width; j++) {
        ct_kval b = ct__kir_load(k, p->b, ct__kir_addi(k, from, j));
        ct__kir_set(k, acc[j], ct__kir_fma(k, a, b, ct__kir_get(k, acc[j])));
    }
    ct__kir_end_n(k, 2);
    if (chunks > 1) {
        ct_kval first = ct__kir_bin(k, CT_K_EQ, chunk, ct__kir_int(k, 0));
        ct__kir_if(k, ct__kir_un(k, CT_K_NOT, first));
        for (int j = 0; j < p->width; j++) {
            ct_kval before = ct__kir_load(k, p->sum, ct__kir_addi(k, lane, (int64_t)j * PANEL));
            ct__kir_set(k, acc[j], ct__kir_add(k, before, ct__kir_get(k, acc[j])));
        }
        ct__kir_end(k);
    }
    for (int j = 0; j < p->width; j++)
        ct__kir_store(k, p->sum, ct__kir_addi(k, lane, (int64_t)j * PANEL), ct__kir_get(k, acc[j]));
    ct__kir_end_n(k, 2);
}

// Transposes the tile so that its columns are adjacent, as in the result. Lanes beyond its edge belong to the
// next tile, which is written later.
static void panels_transpose_tile(panels *p, ct_kval tile) {
    ct_kir *k = p->k;
    for (int64_t part = 0; part < PANEL; part += CT_LANES) {
        ct_kval x[CT_LANES], column = ct__kir_loop_n(k, CT_BIND_TILE, CT_LANES, "column");
        ct_kval from = ct__kir_muli(k, column, PANEL);
        ct_kval to = ct__kir_add(k, ct__kir_muli(k, tile, p->width), column);
        for (int64_t r = 0; r < CT_LANES; r++)
            x[r] = ct__kir_load(k, p->sum, ct__kir_addi(k, from, part + r));
        for (int64_t r = 0; r < CT_LANES; r++)
            ct__kir_store(k, p->out, ct__kir_addi(k, to, (part + r) * p->pitch), x[r]);
        ct__kir_end(k);
    }
}

static void panels_store_result(panels *p, ct_kval row0) {
    ct_kir *k = p->k;
    const int n = p->s->n_result_axes > 1 ? p->s->n_result_axes : 1;
    ct_kval r = ct__kir_loop_n(k, CT_BIND_SEQ, PANEL, "row of the result");
    p->at[0] = ct__kir_add(k, row0, r);
    run j = panels_open_runs(p, p->s->result_axis, n, ct__kir_int(k, 0), p->s->columns, p->at + 1);
    ct_kval from = ct__kir_add(k, ct__kir_muli(k, r, p->pitch), j.first);
    ct_kval v = ct__kir_load(k, p->out, ct__kir_add(k, from, j.lane));
    ct__sink_store(k, &p->s->c, 1 + n, p->at, v);
    panels_close_runs(p, n);
    ct__kir_end(k);
}

// True if the rows are large, and lanes along the columns would be partly unused or rows would be gathered.
bool ct__matmul_has_panels(int64_t rows, int64_t columns, int64_t inner, int64_t taps) {
    enum {
        MIN_ELEMENTS = 1 << 14,
        MIN_WASTE = 10
    }; // elements of a; one of MIN_WASTE lanes is beyond the edge
    const int64_t padding = (PANEL - columns % PANEL) % PANEL;
    return taps >= 1 && taps <= CT_MOST_TAPS && inner % (taps * CT_LANES) == 0 && inner > 0 &&
           inner <= MAX_INNER && rows % PANEL == 0 && rows * inner >= MIN_ELEMENTS &&
           columns >= CT_LANES && columns <= MAX_COLUMNS && columns * inner <= MAX_PACKED &&
           (taps > 1 || padding * MIN_WASTE >= columns);
}

void ct__template_panels(ct_kir *k, const ct_matmul_spec *s) {
    panels p = {.k = k, .s = s, .taps = s->a_taps};
    ct__kir_is_int(k, s->rows, &p.rows);
    ct__kir_is_int(k, s->columns, &p.columns);
    ct__kir_is_int(k, s->inner, &p.inner);
    const int n_vectors = s->target.registers * s->target.lanes / CT_LANES; // vectors of 16 lanes
    int max_width =
        (n_vectors >= 32 ? n_vectors - n_vectors / 8 : n_vectors - 2) / (PANEL / CT_LANES);
    if (s->dtype == CT_F64) max_width /= 2;
    p.width = ct__matmul_tile_rows(p.columns, max_width < 1 ? 1 : max_width);
    p.tiles = (p.columns + p.width - 1) / p.width;
    p.step = p.width > LINE - LINE / 4 && p.width < LINE ? LINE : p.width;
    p.a = ct__kir_local(k, s->dtype, (p.inner + p.inner / CT_DOT_CHUNK) * PANEL);
    p.b = ct__kir_local(k, s->dtype, p.tiles * p.inner * p.step);
    p.sum = ct__kir_local(k, s->dtype, CT_LANES * PANEL);
    p.pitch = p.tiles * p.width + CT_LANES;
    p.out = ct__kir_local(k, s->dtype, PANEL * p.pitch);
    const int64_t cores = s->target.cores > 0 ? s->target.cores : 1, all = p.rows / PANEL;
    const int64_t each = (all + cores - 1) / cores; // panels of a task: each task packs the columns
    ct_kval task = ct__kir_loop_n(k, CT_BIND_ROWS, (all + each - 1) / each, "block");
    panels_pack_columns(&p);
    ct_kval first = ct__kir_muli(k, task, each), rest = ct__kir_sub(k, ct__kir_int(k, all), first);
    rest = ct__kir_min(k, rest, ct__kir_int(k, each));
    ct_kval row0 = ct__kir_add(k, first, ct__kir_loop(k, CT_BIND_SEQ, rest, "panel of rows"));
    row0 = ct__kir_muli(k, row0, PANEL);
    panels_pack_rows(&p, row0);
    ct_kval tile = ct__kir_loop_n(k, CT_BIND_SEQ, p.tiles, "tile of columns");
    panels_multiply_tile(&p, row0, tile);
    panels_transpose_tile(&p, tile);
    ct__kir_end(k);
    panels_store_result(&p, row0);
    ct__kir_end_n(k, 2);
}
