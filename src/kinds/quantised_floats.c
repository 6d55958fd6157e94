// Few rows of floats times columns of codes. Words of 64 columns are turned into scratch, 16 of each column at a time;
// there lanes run along the columns, each code of a word becomes a number where it is used, and sums of 64 columns and
// a few rows are chains enough for the processor not to wait for one.
#include "kinds/matmul.h"
#include "kinds/quantised.h"

enum { WIDTH = CT_QUANTISED_WIDTH, WORDS = 16, HIGH = 8, TILES = 16 };

typedef struct floats {
    ct_kir *k;
    const ct_quantised_spec *s;
    int64_t step, steps; // codes of 16 words; of a chunk
    int high;            // rows of a tile
    int64_t lanes;       // of a tile
    int64_t tiles;       // of 64 columns, of a task
    int rows;            // scratch: (rows, k)
    int table;           // scratch: (16), what codes of 4 bits stand for
    int words;           // scratch: (16, 64)
    int acc, sum;        // scratch: (rows, 64) of the chunk; of the chunks before
    ct_quantised_scales scales;
    ct_kval column0;
} floats;

static void take_rows(const floats *f) {
    ct_kir *k = f->k;
    ct_kval r = ct__kir_loop_n(k, CT_BIND_SEQ, f->s->n_rows, "row");
    ct_kval i = ct__kir_loop_n(k, CT_BIND_LANES, f->s->inner, "k");
    const ct_kval at[2] = {r, i};
    ct_kval v = ct__source_load(k, &f->s->row_numbers, 2, at);
    ct__kir_store(k, f->rows, ct__kir_add(k, ct__kir_muli(k, r, f->s->inner), i), v);
    ct__kir_end(k);
    ct__kir_end(k);
}

// 16 words of each column, from `first` on; the same of the next columns is asked for.
static void turn_words(const floats *f, ct_kval first) {
    ct_kir *k = f->k;
    ct_kval group = ct__kir_loop_n(k, CT_BIND_SEQ, WIDTH / CT_LANES, "16 columns"), x[WORDS];
    ct_kval lane = ct__kir_loop_n(k, CT_BIND_TILE, CT_LANES, "column");
    lane = ct__kir_add(k, ct__kir_muli(k, group, CT_LANES), lane);
    const ct_kval next[3] = {ct__kir_addi(k, f->column0, WIDTH), lane, first};
    ct__kir_prefetches(k, f->s->lined);
    if (f->s->lined) (void)ct__source_load(k, &f->s->column_words, 3, next);
    ct__kir_prefetches(k, false);
    for (int i = 0; i < WORDS; i++) {
        const ct_kval at[3] = {f->column0, lane, ct__kir_addi(k, first, i)};
        x[i] = ct__source_load(k, &f->s->column_words, 3, at);
    }
    for (int i = 0; i < WORDS; i++)
        ct__kir_store(k, f->words, ct__kir_addi(k, lane, i * WIDTH), x[i]);
    ct__kir_end(k);
    ct__kir_end(k);
}

// What codes of 4 bits stand for lies in a table, which processors look up 16 lanes at a time in.
static void fill_table(const floats *f) {
    ct_kir *k = f->k;
    for (int i = 0; i < CT_LANES; i++)
        ct__kir_store(k, f->table, ct__kir_int(k, i),
                      ct__kir_const(k, CT_F32, ct__quantised_number(f->s, i)));
}
// Code `i` of a word, whose bytes begin with its lowest.
static ct_kval code_of(const floats *f, ct_kval word, int i) {
    ct_kir *k = f->k;
    const int bits = f->s->bits, from = bits * i, up = 32 - bits - from;
    if (bits == 4) {
        if (from) word = ct__kir_bin(k, CT_K_SHR, word, ct__kir_const_int(k, CT_I32, from));
        return ct__kir_lookup(k, f->table, word);
    }
    // Its sign comes from where it stands highest.
    if (up) word = ct__kir_bin(k, CT_K_SHL, word, ct__kir_const_int(k, CT_I32, up));
    word = ct__kir_bin(k, CT_K_SHR, word, ct__kir_const_int(k, CT_I32, 32 - bits));
    return ct__kir_cast(k, word, CT_F32);
}

// The step's products of rows `row` to row + high and the tile's columns put to the chunk's sums.
static void tile(const floats *f, ct_kval row, int high, ct_kval lane, ct_kval code0) {
    ct_kir *k = f->k;
    const ct_quantised_spec *s = f->s;
    const int codes = 32 / s->bits;
    ct_kval acc[HIGH], place[HIGH], none = ct__kir_int(k, 0);
    for (int r = 0; r < high; r++) {
        place[r] = ct__kir_add(k, ct__kir_muli(k, ct__kir_addi(k, row, r), WIDTH), lane);
        acc[r] = ct__kir_reg(k, ct__kir_load(k, f->acc, place[r]));
    }
    ct_kval w = ct__kir_loop_n(k, CT_BIND_SEQ, WORDS, "word");
    ct_kval code = ct__kir_add(k, code0, ct__kir_muli(k, w, codes));
    ct_kval block = ct__kir_div(k, code, ct__kir_int(k, CT_QUANTISED_BLOCK));
    ct_kval number =
        s->scale_codes ? ct__kir_div(k, block, ct__kir_int(k, s->scale_codes / CT_QUANTISED_BLOCK))
                       : none;
    ct_kval scale =
        ct__kir_load(k, f->scales.turned, ct__kir_add(k, ct__kir_muli(k, number, WIDTH), lane));
    ct_kval word = ct__kir_load(k, f->words, ct__kir_add(k, lane, ct__kir_muli(k, w, WIDTH)));
    for (int i = 0; i < codes; i++) {
        ct_kval v = ct__kir_mul(k, code_of(f, word, i), scale);
        for (int r = 0; r < high; r++) {
            ct_kval at = ct__kir_add(k, ct__kir_muli(k, ct__kir_addi(k, row, r), s->inner), code);
            ct_kval a = ct__kir_load(k, f->rows, ct__kir_addi(k, at, i));
            ct__kir_set(k, acc[r], ct__kir_fma(k, a, v, ct__kir_get(k, acc[r])));
        }
    }
    ct__kir_end(k);
    for (int r = 0; r < high; r++) ct__kir_store(k, f->acc, place[r], ct__kir_get(k, acc[r]));
}

static void step(const floats *f, ct_kval code0) {
    ct_kir *k = f->k;
    turn_words(f, ct__kir_div(k, code0, ct__kir_int(k, 32 / f->s->bits)));
    for (int64_t row = 0; row < f->s->n_rows; row += f->high) {
        const int64_t left = f->s->n_rows - row;
        ct_kval part = ct__kir_loop_n(k, CT_BIND_SEQ, WIDTH / f->lanes, "lanes");
        ct_kval lane = ct__kir_loop_n(k, CT_BIND_TILE, f->lanes, "column");
        lane = ct__kir_add(k, ct__kir_muli(k, part, f->lanes), lane);
        tile(f, ct__kir_int(k, row), left < f->high ? (int)left : f->high, lane, code0);
        ct__kir_end(k);
        ct__kir_end(k);
    }
}

// The sums of the chunks before, to which the chunk's are put.
static void end_chunk(const floats *f, ct_kval chunk) {
    ct_kir *k = f->k;
    ct_kval first = ct__kir_bin(k, CT_K_EQ, chunk, ct__kir_int(k, 0));
    ct_kval i = ct__kir_loop_n(k, CT_BIND_LANES, f->s->n_rows * WIDTH, "sum");
    ct_kval own = ct__kir_load(k, f->acc, i),
            both = ct__kir_add(k, ct__kir_load(k, f->sum, i), own);
    ct__kir_store(k, f->sum, i, ct__kir_select(k, first, own, both));
    ct__kir_store(k, f->acc, i, ct__kir_const(k, CT_F32, 0));
    ct__kir_end(k);
}

static void fill(const floats *f, int buf) {
    ct_kir *k = f->k;
    ct_kval i = ct__kir_loop_n(k, CT_BIND_LANES, f->s->n_rows * WIDTH, "sum");
    ct__kir_store(k, buf, i, ct__kir_const(k, CT_F32, 0));
    ct__kir_end(k);
}

static void columns(const floats *f, ct_kval early) {
    ct_kir *k = f->k;
    const ct_quantised_spec *s = f->s;
    fill(f, f->acc);
    fill(f, f->sum);
    ct_kval chunks = ct__kir_int(k, (s->inner + CT_DOT_CHUNK - 1) / CT_DOT_CHUNK),
            size = ct__kir_int(k, f->steps);
    ct_kval chunk = ct__kir_loop(k, CT_BIND_SEQ, chunks, "chunk of k"),
            first = ct__kir_muli(k, chunk, f->steps);
    ct_kval many = ct__kir_min(k, ct__kir_sub(k, ct__kir_int(k, s->inner / f->step), first), size);
    ct_kval i = ct__kir_loop(k, CT_BIND_SEQ, many, "16 words");
    step(f, ct__kir_muli(k, ct__kir_add(k, first, i), f->step));
    ct__kir_end(k);
    end_chunk(f, chunk);
    ct__kir_end(k);
    // Columns that are there, each once: the last tile's first ones are those of the tile before.
    ct_kval r = ct__kir_loop_n(k, CT_BIND_SEQ, s->n_rows, "row"), width = ct__kir_int(k, WIDTH);
    ct_kval lane = ct__kir_loop(k, CT_BIND_LANES, ct__kir_sub(k, width, early), "column");
    lane = ct__kir_add(k, early, lane);
    const ct_kval at[2] = {r, ct__kir_add(k, f->column0, lane)};
    ct_kval v = ct__kir_load(k, f->sum, ct__kir_add(k, ct__kir_muli(k, r, WIDTH), lane));
    ct__sink_store(k, &s->out, 2, at, v);
    ct__kir_end(k);
    ct__kir_end(k);
}

static void choose(floats *f) {
    const ct_quantised_spec *s = f->s;
    const bool large = s->target.registers * s->target.lanes / CT_LANES >= 32;
    f->step = ct__quantised_step(s->bits);
    f->steps = CT_DOT_CHUNK / f->step;
    // A third of the registers or more hold sums.
    f->high = s->n_rows < HIGH ? (int)s->n_rows : HIGH;
    f->lanes = large && f->high <= 4 ? 64 : large ? 32 : CT_LANES;
    if (!large && f->high > 4) f->high = 4;
    f->tiles = ct__quantised_tiles(f->k, s, WIDTH, TILES);
}

void ct__template_dequantised(ct_kir *k, const ct_quantised_spec *s) {
    floats f = {.k = k, .s = s};
    const int64_t numbers = ct__quantised_numbers(s);
    choose(&f);
    f.rows = ct__kir_local(k, CT_F32, s->n_rows * s->inner);
    f.words = ct__kir_local(k, CT_I32, WORDS * WIDTH);
    if (s->bits == 4) f.table = ct__kir_local(k, CT_F32, CT_LANES);
    f.acc = ct__kir_local(k, CT_F32, s->n_rows * WIDTH);
    f.sum = ct__kir_local(k, CT_F32, s->n_rows * WIDTH);
    f.scales = (ct_quantised_scales){.width = WIDTH, .numbers = numbers};
    f.scales.rows = ct__kir_local(k, CT_F32, WIDTH * numbers);
    f.scales.turned = ct__kir_local(k, CT_F32, WIDTH * numbers);
    ct_kval tiles = ct__kir_ceil_div(k, s->columns, WIDTH);
    ct_kval task = ct__kir_loop(k, CT_BIND_ROWS, ct__kir_ceil_div(k, tiles, f.tiles), "block");
    ct_kval first = ct__kir_muli(k, task, f.tiles);
    if (s->bits == 4) fill_table(&f);
    take_rows(&f);
    ct_kval many = ct__kir_min(k, ct__kir_sub(k, tiles, first), ct__kir_int(k, f.tiles));
    ct_kval t = ct__kir_loop(k, CT_BIND_SEQ, many, "64 columns");
    // The last tile begins earlier, so that all are whole.
    ct_kval begin = ct__kir_muli(k, ct__kir_add(k, first, t), WIDTH);
    f.column0 = ct__kir_min(k, begin, ct__kir_addi(k, s->columns, -WIDTH));
    f.scales.first = f.column0;
    ct__quantised_scales(k, s, &f.scales);
    columns(&f, ct__kir_sub(k, begin, f.column0));
    ct__kir_end(k);
    ct__kir_end(k);
}
