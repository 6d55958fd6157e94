// Float rows times quantised columns. Words of 64 columns are transposed into scratch, 16 of each column at a
// time. There lanes run along the columns, each quant of a word is dequantised where it is used, and the sums
// of 64 columns and a few rows are enough independent chains to hide latency. With more than a few rows a
// task has as many rows as an L2 cache holds; then the dequantised values of 16 words are stored (a panel)
// while all of these rows are multiplied by them.
#include "kinds/matmul.h"
#include "kinds/quantised.h"

enum { WIDTH = CT_QUANTISED_WIDTH, WORDS = 16, MAX_TILE_ROWS = 8, TILES = 16 };
enum { PANEL_QUANTS = 4 };                       // quants of a panel that one loop iteration takes
enum { MAX_ROWS = 64, CACHE_BYTES = 512 << 10 }; // of a task with panels: rows, bytes of them

typedef struct floats {
    ct_kir *k;
    const ct_quantised_spec *s;
    int64_t step, steps; // quants of 16 words; of a chunk
    int tile_rows;       // rows of a tile
    int64_t max_rows;    // rows of a task
    bool uses_panels;    // dequantised values are stored in panels
    int panel;           // scratch: (step, 64)
    int64_t lanes;       // of a tile
    int64_t tiles;       // of 64 columns, of a task
    int rows;            // scratch: (rows, k)
    int table;           // scratch: (16), the values of 4-bit quants
    int words;           // scratch: (16, 64)
    int acc, sum;        // scratch: (rows, 64) of the chunk; of the chunks before
    ct_quantised_scales scales, offsets;
    ct_kval column0;
    ct_kval row0, count; // of the task: its first row, and the number of its rows
} floats;

// Returns the rows of a task, rounded up to whole tiles; the rows after the last one repeat it.
static ct_kval qfloats_padded_rows(const floats *f) {
    if (!f->uses_panels) return f->count;
    return ct__kir_muli(f->k, ct__kir_ceil_div(f->k, f->count, f->tile_rows), f->tile_rows);
}
static void qfloats_load_rows(const floats *f) {
    ct_kir *k = f->k;
    ct_kval r = ct__kir_loop(k, CT_BIND_SEQ, qfloats_padded_rows(f), "row"), row = r;
    if (f->uses_panels)
        row = ct__kir_min(k, ct__kir_add(k, f->row0, r), ct__kir_addi(k, f->s->rows, -1));
    ct_kval i = ct__kir_loop_n(k, CT_BIND_LANES, f->s->inner, "k");
    const ct_kval at[2] = {row, i};
    ct_kval v = ct__source_load(k, &f->s->row_numbers, 2, at);
    ct__kir_store(k, f->rows, ct__kir_add(k, ct__kir_muli(k, r, f->s->inner), i), v);
    ct__kir_end_n(k, 2);
}

// Transposes 16 words of each column, starting at `first`, and prefetches the same words of the next columns.
static void qfloats_transpose_words(const floats *f, ct_kval first) {
    ct_kir *k = f->k;
    ct_kval group = ct__kir_loop_n(k, CT_BIND_SEQ, WIDTH / CT_LANES, "16 columns"), x[WORDS];
    ct_kval lane = ct__kir_loop_n(k, CT_BIND_TILE, CT_LANES, "column");
    lane = ct__kir_add(k, ct__kir_muli(k, group, CT_LANES), lane);
    const ct_kval next[3] = {ct__kir_addi(k, f->column0, WIDTH), lane, first};
    ct__kir_set_prefetch_mode(k, f->s->lined);
    if (f->s->lined) (void)ct__source_load(k, &f->s->column_words, 3, next);
    ct__kir_set_prefetch_mode(k, false);
    for (int i = 0; i < WORDS; i++) {
        const ct_kval at[3] = {f->column0, lane, ct__kir_addi(k, first, i)};
        x[i] = ct__source_load(k, &f->s->column_words, 3, at);
    }
    for (int i = 0; i < WORDS; i++)
        ct__kir_store(k, f->words, ct__kir_addi(k, lane, i * WIDTH), x[i]);
    ct__kir_end_n(k, 2);
}

// Fills the table of the values of 4-bit quants, which processors look up for 16 lanes at a time.
static void qfloats_fill_table(const floats *f) {
    ct_kir *k = f->k;
    for (int i = 0; i < CT_LANES; i++)
        ct__kir_store(k, f->table, ct__kir_int(k, i),
                      ct__kir_const(k, CT_F32, ct__quantised_number(f->s, i)));
}
// Unpacks quant `i` of a word, whose lowest byte is the first.
static ct_kval qfloats_unpack(const floats *f, ct_kval word, int i) {
    ct_kir *k = f->k;
    const int bits = f->s->bits, from = bits * i, left_shift = 32 - bits - from;
    if (bits == 4) {
        if (from) word = ct__kir_bin(k, CT_K_SHR, word, ct__kir_const_int(k, CT_I32, from));
        return ct__kir_lookup(k, f->table, word);
    }
    if (f->s->without_sign) {
        if (from) word = ct__kir_bin(k, CT_K_SHR, word, ct__kir_const_int(k, CT_I32, from));
        word = ct__kir_bin(k, CT_K_AND, word, ct__kir_const_int(k, CT_I32, 255));
        return ct__kir_cast(k, word, CT_F32);
    }
    // Shifting it to the top extends its sign.
    if (left_shift) word = ct__kir_bin(k, CT_K_SHL, word, ct__kir_const_int(k, CT_I32, left_shift));
    word = ct__kir_bin(k, CT_K_SHR, word, ct__kir_const_int(k, CT_I32, 32 - bits));
    return ct__kir_cast(k, word, CT_F32);
}

// The scale, and the offset, of a quant and its neighbours.
typedef struct block_scale {
    ct_kval scale, offset;
} block_scale;
static block_scale qfloats_load_scale(const floats *f, ct_kval code, ct_kval lane) {
    ct_kir *k = f->k;
    const ct_quantised_spec *s = f->s;
    const int64_t least =
        s->scale_codes == CT_QUANTISED_BLOCK / 2 ? CT_QUANTISED_BLOCK / 2 : CT_QUANTISED_BLOCK;
    ct_kval none = ct__kir_int(k, 0), block = ct__kir_div(k, code, ct__kir_int(k, least));
    ct_kval number =
        s->scale_codes ? ct__kir_div(k, block, ct__kir_int(k, s->scale_codes / least)) : none;
    ct_kval at = ct__kir_add(k, ct__kir_muli(k, number, WIDTH), lane);
    block_scale both = {ct__kir_load(k, f->scales.turned, at), none};
    if (s->rounded) both.offset = ct__kir_load(k, f->offsets.turned, at);
    return both;
}
// Dequantises quant `i` of a word.
static ct_kval qfloats_dequantise(const floats *f, ct_kval word, int i, const block_scale *by) {
    ct_kir *k = f->k;
    const ct_dtype rounded = f->s->rounded;
    ct_kval v = ct__kir_mul(k, qfloats_unpack(f, word, i), by->scale);
    if (!rounded) return v;
    return ct__kir_cast(k, ct__kir_add(k, ct__kir_cast(k, v, rounded), by->offset), rounded);
}

// Adds the step's products of rows `row` to row + n_rows and the tile's columns to the chunk's sums.
static void qfloats_tile(const floats *f, ct_kval row, int n_rows, ct_kval lane, ct_kval k0) {
    ct_kir *k = f->k;
    const ct_quantised_spec *s = f->s;
    const int quants = f->uses_panels ? PANEL_QUANTS : 32 / s->bits;
    ct_kval acc[MAX_TILE_ROWS], sum_index[MAX_TILE_ROWS], word = ct__kir_int(k, 0), panel_at = word,
                                                          v;
    for (int r = 0; r < n_rows; r++) {
        sum_index[r] = ct__kir_add(k, ct__kir_muli(k, ct__kir_addi(k, row, r), WIDTH), lane);
        acc[r] = ct__kir_reg(k, ct__kir_load(k, f->acc, sum_index[r]));
    }
    ct_kval w = ct__kir_loop_n(k, CT_BIND_SEQ, f->step / quants, f->uses_panels ? "codes" : "word");
    ct_kval k_index = ct__kir_add(k, k0, ct__kir_muli(k, w, quants));
    block_scale by = {0};
    if (f->uses_panels) {
        panel_at = ct__kir_add(k, ct__kir_muli(k, w, quants * WIDTH), lane);
    } else {
        by = qfloats_load_scale(f, k_index, lane);
        word = ct__kir_load(k, f->words, ct__kir_add(k, lane, ct__kir_muli(k, w, WIDTH)));
    }
    for (int i = 0; i < quants; i++) {
        if (f->uses_panels)
            v = ct__kir_load(k, f->panel, ct__kir_addi(k, panel_at, i * WIDTH));
        else
            v = qfloats_dequantise(f, word, i, &by);
        for (int r = 0; r < n_rows; r++) {
            ct_kval at =
                ct__kir_add(k, ct__kir_muli(k, ct__kir_addi(k, row, r), s->inner), k_index);
            ct_kval a = ct__kir_load(k, f->rows, ct__kir_addi(k, at, i));
            ct__kir_set(k, acc[r], ct__kir_fma(k, a, v, ct__kir_get(k, acc[r])));
        }
    }
    ct__kir_end(k);
    for (int r = 0; r < n_rows; r++) ct__kir_store(k, f->acc, sum_index[r], ct__kir_get(k, acc[r]));
}

// Opens loops over tiles of `lanes` columns.
static ct_kval qfloats_open_lanes(const floats *f) {
    ct_kir *k = f->k;
    ct_kval part = ct__kir_loop_n(k, CT_BIND_SEQ, WIDTH / f->lanes, "lanes");
    ct_kval lane = ct__kir_loop_n(k, CT_BIND_TILE, f->lanes, "column");
    return ct__kir_add(k, ct__kir_muli(k, part, f->lanes), lane);
}
static void qfloats_close_lanes(const floats *f) { ct__kir_end_n(f->k, 2); }

// Dequantises the transposed words, for all rows of the task.
static void qfloats_fill_panel(const floats *f, ct_kval code0) {
    ct_kir *k = f->k;
    const int codes = 32 / f->s->bits;
    ct_kval lane = qfloats_open_lanes(f), w = ct__kir_loop_n(k, CT_BIND_SEQ, WORDS, "word");
    ct_kval first = ct__kir_muli(k, w, codes);
    const block_scale by = qfloats_load_scale(f, ct__kir_add(k, code0, first), lane);
    ct_kval word = ct__kir_load(k, f->words, ct__kir_add(k, lane, ct__kir_muli(k, w, WIDTH)));
    ct_kval to = ct__kir_add(k, ct__kir_muli(k, first, WIDTH), lane);
    for (int i = 0; i < codes; i++)
        ct__kir_store(k, f->panel, ct__kir_addi(k, to, i * WIDTH),
                      qfloats_dequantise(f, word, i, &by));
    ct__kir_end(k);
    qfloats_close_lanes(f);
}

static void qfloats_step(const floats *f, ct_kval code0) {
    ct_kir *k = f->k;
    qfloats_transpose_words(f, ct__kir_div(k, code0, ct__kir_int(k, 32 / f->s->bits)));
    if (f->uses_panels) {
        qfloats_fill_panel(f, code0);
        ct_kval row =
            ct__kir_loop(k, CT_BIND_SEQ, ct__kir_ceil_div(k, f->count, f->tile_rows), "rows");
        qfloats_tile(f, ct__kir_muli(k, row, f->tile_rows), f->tile_rows, qfloats_open_lanes(f),
                     code0);
        qfloats_close_lanes(f);
        ct__kir_end(k);
        return;
    }
    for (int64_t row = 0; row < f->s->n_rows; row += f->tile_rows) {
        const int64_t left = f->s->n_rows - row;
        ct_kval lane = qfloats_open_lanes(f);
        qfloats_tile(f, ct__kir_int(k, row), left < f->tile_rows ? (int)left : f->tile_rows, lane,
                     code0);
        qfloats_close_lanes(f);
    }
}

// Adds the chunk's sums to the sums of the chunks before.
static void qfloats_add_chunk(const floats *f, ct_kval chunk) {
    ct_kir *k = f->k;
    ct_kval first = ct__kir_bin(k, CT_K_EQ, chunk, ct__kir_int(k, 0));
    ct_kval i =
        ct__kir_loop(k, CT_BIND_LANES, ct__kir_muli(k, qfloats_padded_rows(f), WIDTH), "sum");
    ct_kval own = ct__kir_load(k, f->acc, i),
            both = ct__kir_add(k, ct__kir_load(k, f->sum, i), own);
    ct__kir_store(k, f->sum, i, ct__kir_select(k, first, own, both));
    ct__kir_store(k, f->acc, i, ct__kir_const(k, CT_F32, 0));
    ct__kir_end(k);
}

static void qfloats_zero_sums(const floats *f, int buf) {
    ct_kir *k = f->k;
    ct_kval i =
        ct__kir_loop(k, CT_BIND_LANES, ct__kir_muli(k, qfloats_padded_rows(f), WIDTH), "sum");
    ct__kir_store(k, buf, i, ct__kir_const(k, CT_F32, 0));
    ct__kir_end(k);
}

static void qfloats_columns(const floats *f, ct_kval early) {
    ct_kir *k = f->k;
    const ct_quantised_spec *s = f->s;
    qfloats_zero_sums(f, f->acc);
    qfloats_zero_sums(f, f->sum);
    ct_kval chunks = ct__kir_int(k, (s->inner + CT_DOT_CHUNK - 1) / CT_DOT_CHUNK),
            size = ct__kir_int(k, f->steps);
    ct_kval chunk = ct__kir_loop(k, CT_BIND_SEQ, chunks, "chunk of k"),
            first = ct__kir_muli(k, chunk, f->steps);
    ct_kval many = ct__kir_min(k, ct__kir_sub(k, ct__kir_int(k, s->inner / f->step), first), size);
    ct_kval i = ct__kir_loop(k, CT_BIND_SEQ, many, "16 words");
    qfloats_step(f, ct__kir_muli(k, ct__kir_add(k, first, i), f->step));
    ct__kir_end(k);
    qfloats_add_chunk(f, chunk);
    ct__kir_end(k);
    // Stores columns that exist, each once: the last tile's first ones may belong to the tile before.
    ct_kval r = ct__kir_loop(k, CT_BIND_SEQ, f->count, "row"), width = ct__kir_int(k, WIDTH);
    ct_kval lane = ct__kir_loop(k, CT_BIND_LANES, ct__kir_sub(k, width, early), "column");
    lane = ct__kir_add(k, early, lane);
    const ct_kval at[2] = {f->uses_panels ? ct__kir_add(k, f->row0, r) : r,
                           ct__kir_add(k, f->column0, lane)};
    ct_kval v = ct__kir_load(k, f->sum, ct__kir_add(k, ct__kir_muli(k, r, WIDTH), lane));
    ct__sink_store(k, &s->out, 2, at, v);
    ct__kir_end_n(k, 2);
}

static void qfloats_choose_blocking(floats *f) {
    const ct_quantised_spec *s = f->s;
    const bool large = s->target.registers * s->target.lanes / CT_LANES >= 32;
    f->step = ct__quantised_step(s->bits);
    f->steps = CT_DOT_CHUNK / f->step;
    f->uses_panels = !s->n_rows || s->n_rows > CT_QUANTISED_ROWS;
    f->max_rows = !f->uses_panels                               ? s->n_rows
                  : s->inner * MAX_ROWS * 4 <= (int)CACHE_BYTES ? MAX_ROWS
                                                                : MAX_ROWS / 2;
    // A third of the registers or more hold sums.
    f->tile_rows = f->max_rows < MAX_TILE_ROWS ? (int)f->max_rows : MAX_TILE_ROWS;
    f->lanes = large && f->tile_rows <= 4 ? 64 : large ? 32 : CT_LANES;
    if (!large && f->tile_rows > 4) f->tile_rows = 4;
    f->tiles = ct__quantised_tiles(f->k, s, WIDTH, TILES);
}

static void qfloats_make_scratch(floats *f) {
    ct_kir *k = f->k;
    const ct_quantised_spec *s = f->s;
    const int64_t numbers = ct__quantised_numbers(s);
    f->rows = ct__kir_local(k, CT_F32, f->max_rows * s->inner);
    f->words = ct__kir_local(k, CT_I32, WORDS * WIDTH);
    if (s->bits == 4) f->table = ct__kir_local(k, CT_F32, CT_LANES);
    f->acc = ct__kir_local(k, CT_F32, f->max_rows * WIDTH);
    f->sum = ct__kir_local(k, CT_F32, f->max_rows * WIDTH);
    f->scales = (ct_quantised_scales){.width = WIDTH, .numbers = numbers};
    f->scales.rows = ct__kir_local(k, CT_F32, WIDTH * numbers);
    f->scales.turned = ct__kir_local(k, CT_F32, WIDTH * numbers);
    if (f->uses_panels) f->panel = ct__kir_local(k, CT_F32, f->step * WIDTH);
    if (!s->rounded) return;
    f->offsets = f->scales; // whose rows are scratch of both
    f->offsets.turned = ct__kir_local(k, CT_F32, WIDTH * numbers);
}

// Opens the task's loop and sets its rows. Returns the first of its tiles.
static ct_kval qfloats_open_task(floats *f, ct_kval tiles) {
    ct_kir *k = f->k;
    ct_kval parts = ct__kir_ceil_div(k, tiles, f->tiles);
    f->count = ct__kir_int(k, f->s->n_rows);
    if (!f->uses_panels)
        return ct__kir_muli(k, ct__kir_loop(k, CT_BIND_ROWS, parts, "block"), f->tiles);
    ct_kval blocks = ct__kir_ceil_div(k, f->s->rows, f->max_rows);
    ct_kval task = ct__kir_loop(k, CT_BIND_ROWS, ct__kir_mul(k, blocks, parts), "block");
    f->row0 = ct__kir_muli(k, ct__kir_div(k, task, parts), f->max_rows);
    f->count = ct__kir_min(k, ct__kir_sub(k, f->s->rows, f->row0), ct__kir_int(k, f->max_rows));
    return ct__kir_muli(k, ct__kir_mod(k, task, parts), f->tiles);
}

void ct__template_dequantised(ct_kir *k, const ct_quantised_spec *s) {
    floats f = {.k = k, .s = s};
    qfloats_choose_blocking(&f);
    qfloats_make_scratch(&f);
    ct_kval tiles = ct__kir_ceil_div(k, s->columns, WIDTH), first = qfloats_open_task(&f, tiles);
    if (s->bits == 4) qfloats_fill_table(&f);
    qfloats_load_rows(&f);
    ct_kval many = ct__kir_min(k, ct__kir_sub(k, tiles, first), ct__kir_int(k, f.tiles));
    ct_kval t = ct__kir_loop(k, CT_BIND_SEQ, many, "64 columns");
    // The last tile begins earlier, so that all tiles are whole.
    ct_kval begin = ct__kir_muli(k, ct__kir_add(k, first, t), WIDTH);
    f.column0 = ct__kir_min(k, begin, ct__kir_addi(k, s->columns, -WIDTH));
    f.scales.first = f.offsets.first = f.column0;
    ct__quantised_scales(k, s, &s->column_scale, &f.scales);
    if (s->rounded) ct__quantised_scales(k, s, &s->column_offset, &f.offsets);
    qfloats_columns(&f, ct__kir_sub(k, begin, f.column0));
    ct__kir_end_n(k, 2);
}
