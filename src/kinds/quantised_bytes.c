// Rows of bytes times columns of codes. A tile is 16 columns, whose words are turned in registers, times up to eight
// rows, whose words are numbers for all lanes; four products of bytes are one instruction where the processor has it
// (DOT4). Codes are made unsigned for it, and what that adds is where sums begin.
#include "kinds/quantised.h"

enum {
    HIGH = 8,       // rows of a tile, at most
    WORDS = 16,     // of a column, that are turned at a time
    TILES = 32,     // of 16 columns, of a task at most
    FEW = 2,        // rows behind whole tiles that go one by one
    MOST_ROWS = 64, // of a task
};

typedef struct quantised {
    ct_kir *k;
    const ct_quantised_spec *s;
    int64_t words, blocks; // of a row of bytes; of k
    int64_t numbers;       // scales of a column, up to whole vectors
    int high;              // rows of a tile
    int64_t tiles;         // of 16 columns, of a task
    int rows,
        begin; // scratch: words of all rows, as the columns' meet them; where sums begin (rows, blocks)
    ct_quantised_scales scales;
    int out; // scratch: (high, 16)
    ct_kval row0, column0;
} quantised;

static ct_kval word(const quantised *q, int64_t bytes) {
    return ct__kir_const_int(q->k, CT_I32, (int32_t)(uint32_t)bytes);
}
static ct_kval bits_of(const quantised *q, ct_kop op, ct_kval a, int64_t b) {
    return ct__kir_bin(q->k, op, a, word(q, b));
}

// ----------------------------------------------------------------------------------------- the rows

static ct_kval last_at_most(const quantised *q, ct_kval row) {
    return ct__kir_min(q->k, row, ct__kir_addi(q->k, q->s->rows, -1));
}
static ct_kval row_word(const quantised *q, ct_kval row, ct_kval at) {
    const ct_kval place[2] = {row, at};
    return ct__source_load(q->k, &q->s->row_words, 2, place);
}

// A word of codes of 4 bits has eight, the even ones in the low halves of its bytes: bytes of rows lie so that the
// even ones of eight come first, then the odd ones.
static void store_parted(const quantised *q, ct_kval row, ct_kval to, ct_kval pair) {
    ct_kir *k = q->k;
    ct_kval first = ct__kir_muli(k, pair, 2), a = row_word(q, row, first);
    ct_kval b = row_word(q, row, ct__kir_addi(k, first, 1)), out[2];
    for (int odd = 0; odd < 2; odd++) {
        ct_kval x = odd ? bits_of(q, CT_K_SHR, a, 8) : a, y = odd ? bits_of(q, CT_K_SHR, b, 8) : b;
        ct_kval low = bits_of(q, CT_K_AND, x, 255), high = bits_of(q, CT_K_AND, x, 255 << 16);
        out[odd] = ct__kir_bin(k, CT_K_OR, low, bits_of(q, CT_K_SHR, high, 8));
        low = bits_of(q, CT_K_AND, y, 255), high = bits_of(q, CT_K_AND, y, 255 << 16);
        y = ct__kir_bin(k, CT_K_OR, low, bits_of(q, CT_K_SHR, high, 8));
        out[odd] = ct__kir_bin(k, CT_K_OR, out[odd], bits_of(q, CT_K_SHL, y, 16));
    }
    for (int odd = 0; odd < 2; odd++)
        ct__kir_store(k, q->rows, ct__kir_addi(k, ct__kir_add(k, to, first), odd), out[odd]);
}

// What makes the columns' codes unsigned: half of their range, of f4 twice the largest.
static int64_t added(const quantised *q) { return q->s->f4 ? 12 : (int64_t)1 << (q->s->bits - 1); }

// Of each block that adds so many times the sum of the bytes.
static void store_begins(const quantised *q, ct_kval row, ct_kval from) {
    ct_kir *k = q->k;
    const int64_t each = CT_QUANTISED_BLOCK / 4;
    ct_kval b = ct__kir_loop_n(k, CT_BIND_LANES, q->blocks, "block");
    ct_kval at = ct__kir_add(k, from, ct__kir_muli(k, b, each)), sum = word(q, 0),
            ones = word(q, 0x01010101);
    for (int64_t i = 0; i < each; i++)
        sum = ct__kir_dot4(k, ones, ct__kir_load(k, q->rows, ct__kir_addi(k, at, i)), sum);
    sum = ct__kir_mul(k, sum, word(q, -added(q)));
    ct__kir_store(k, q->begin, ct__kir_add(k, ct__kir_muli(k, row, q->blocks), b), sum);
    ct__kir_end(k);
}

// Rows beyond the last are the last again.
static void take_rows(const quantised *q, ct_kval count) {
    ct_kir *k = q->k;
    ct_kval r = ct__kir_loop(k, CT_BIND_SEQ, count, "row"), from = ct__kir_muli(k, r, q->words);
    ct_kval row = last_at_most(q, ct__kir_add(k, q->row0, r));
    if (q->s->bits == 4) {
        store_parted(q, row, from, ct__kir_loop_n(k, CT_BIND_LANES, q->words / 2, "two words"));
    } else {
        ct_kval w = ct__kir_loop_n(k, CT_BIND_LANES, q->words, "word");
        ct__kir_store(k, q->rows, ct__kir_add(k, from, w), row_word(q, row, w));
    }
    ct__kir_end(k);
    store_begins(q, r, from);
    ct__kir_end(k);
}

// -------------------------------------------------------------------------------------- the columns

void ct__quantised_scales(ct_kir *k, const ct_quantised_spec *s, const ct_quantised_scales *to) {
    ct_kval c = ct__kir_loop_n(k, CT_BIND_SEQ, to->width, "column");
    const int64_t blocks = s->inner / CT_QUANTISED_BLOCK,
                  n = s->scale_blocks ? blocks / s->scale_blocks : 1;
    ct_kval i = ct__kir_loop_n(k, CT_BIND_LANES, n, "scale");
    const ct_kval at[2] = {ct__kir_add(k, to->column0, c), i},
                  next[2] = {ct__kir_addi(k, at[0], to->width), i};
    ct__kir_prefetches(k, true); // those of the next tile
    (void)ct__source_load(k, &s->column_scale, 2, next);
    ct__kir_prefetches(k, false);
    ct_kval v = ct__source_load(k, &s->column_scale, 2, at);
    ct__kir_store(k, to->rows, ct__kir_add(k, ct__kir_muli(k, c, to->numbers), i), v);
    ct__kir_end(k);
    ct__kir_end(k);
    ct_kval some = ct__kir_loop_n(k, CT_BIND_SEQ, to->numbers / CT_LANES, "16 scales"), x[CT_LANES];
    some = ct__kir_muli(k, some, CT_LANES);
    ct_kval group = ct__kir_loop_n(k, CT_BIND_SEQ, to->width / CT_LANES, "16 columns");
    ct_kval lane = ct__kir_loop_n(k, CT_BIND_TILE, CT_LANES, "column");
    lane = ct__kir_add(k, ct__kir_muli(k, group, CT_LANES), lane);
    ct_kval from = ct__kir_add(k, ct__kir_muli(k, lane, to->numbers), some);
    for (int j = 0; j < CT_LANES; j++) x[j] = ct__kir_load(k, to->rows, ct__kir_addi(k, from, j));
    ct_kval place = ct__kir_add(k, ct__kir_muli(k, some, to->width), lane);
    for (int j = 0; j < CT_LANES; j++)
        ct__kir_store(k, to->turned, ct__kir_addi(k, place, j * to->width), x[j]);
    for (int open = 0; open < 3; open++) ct__kir_end(k);
}
int64_t ct__quantised_numbers(const ct_quantised_spec *s) {
    const int64_t n = s->scale_blocks ? s->inner / CT_QUANTISED_BLOCK / s->scale_blocks : 1;
    return (n + CT_LANES - 1) / CT_LANES * CT_LANES;
}

// Twice the numbers of eight codes of f4, made unsigned.
static ct_kval f4_bytes(const quantised *q, int first) {
    uint64_t bytes = 0;
    for (int i = 0; i < 8; i++) {
        const int64_t twice = (int64_t)(2 * ct__quantised_number(q->s, first + i)) + added(q);
        bytes |= (uint64_t)twice << (8 * i);
    }
    return ct__kir_const_int(q->k, CT_I64, (int64_t)bytes);
}
// The block's codes of the columns as unsigned bytes, eight words of them.
static void unsigned_bytes(const quantised *q, const ct_kval *words, int block, ct_kval *to) {
    ct_kir *k = q->k;
    for (int i = 0; i < CT_QUANTISED_BLOCK / 4; i++) {
        if (q->s->bits == 8) {
            to[i] = bits_of(q, CT_K_XOR, words[block * (CT_QUANTISED_BLOCK / 4) + i], 0x80808080);
            continue;
        }
        if (q->s->f4) {
            ct_kval w = words[block * (CT_QUANTISED_BLOCK / 8) + i / 2];
            to[i] = ct__kir_lookup4(k, i % 2 ? bits_of(q, CT_K_SHR, w, 4) : w, f4_bytes(q, 0),
                                    f4_bytes(q, 8));
            continue;
        }
        ct_kval w =
            bits_of(q, CT_K_XOR, words[block * (CT_QUANTISED_BLOCK / 8) + i / 2], 0x88888888);
        to[i] =
            bits_of(q, CT_K_AND, i % 2 ? ct__kir_bin(k, CT_K_SHR, w, word(q, 4)) : w, 0x0f0f0f0f);
    }
}

// What the next tile reads in the same step: a line of each column.
static void ask_for_next(const quantised *q, ct_kval column, ct_kval first) {
    const ct_kval at[2] = {ct__kir_addi(q->k, column, CT_LANES), first};
    ct__kir_prefetches(q->k, true);
    (void)ct__source_load(q->k, &q->s->column_words, 2, at);
    ct__kir_prefetches(q->k, false);
}

// Of `high` rows from `row` of the scratch on and 16 columns.
static void tile(const quantised *q, ct_kval row, ct_kval lane) {
    ct_kir *k = q->k;
    const ct_quantised_spec *s = q->s;
    const int64_t each = CT_QUANTISED_BLOCK / 4,
                  step_blocks = ct__quantised_step(s->bits) / CT_QUANTISED_BLOCK;
    ct_kval y[HIGH], words[WORDS], bytes[CT_QUANTISED_BLOCK / 4];
    for (int r = 0; r < q->high; r++) y[r] = ct__kir_reg(k, ct__kir_const(k, CT_F32, 0));
    ct_kval step = ct__kir_loop_n(k, CT_BIND_SEQ, q->blocks / step_blocks, "16 words");
    ct_kval first = ct__kir_muli(k, step, WORDS), column = ct__kir_add(k, q->column0, lane);
    ask_for_next(q, column, first);
    for (int i = 0; i < WORDS; i++) {
        const ct_kval at[2] = {column, ct__kir_addi(k, first, i)};
        words[i] = ct__source_load(k, &s->column_words, 2, at);
    }
    for (int b = 0; b < (int)step_blocks; b++) {
        ct_kval block = ct__kir_addi(k, ct__kir_muli(k, step, step_blocks), b);
        ct_kval number = s->scale_blocks ? ct__kir_div(k, block, ct__kir_int(k, s->scale_blocks))
                                         : ct__kir_int(k, 0);
        ct_kval scale = ct__kir_load(k, q->scales.turned,
                                     ct__kir_add(k, ct__kir_muli(k, number, CT_LANES), lane));
        unsigned_bytes(q, words, b, bytes);
        for (int r = 0; r < q->high; r++) {
            ct_kval own = ct__kir_addi(k, row, r);
            ct_kval from =
                ct__kir_add(k, ct__kir_muli(k, own, q->words), ct__kir_muli(k, block, each));
            ct_kval sum =
                ct__kir_load(k, q->begin, ct__kir_add(k, ct__kir_muli(k, own, q->blocks), block));
            for (int i = 0; i < (int)each; i++)
                sum = ct__kir_dot4(k, bytes[i], ct__kir_load(k, q->rows, ct__kir_addi(k, from, i)),
                                   sum);
            const ct_kval at[2] = {last_at_most(q, ct__kir_add(k, q->row0, own)), block};
            ct_kval by = ct__kir_mul(k, ct__source_load(k, &s->row_scale, 2, at), scale);
            ct_kval f = ct__kir_cast(k, sum, CT_F32);
            ct__kir_set(k, y[r], ct__kir_fma(k, f, by, ct__kir_get(k, y[r])));
        }
    }
    ct__kir_end(k);
    for (int r = 0; r < q->high; r++)
        ct__kir_store(k, q->out, ct__kir_addi(k, lane, r * CT_LANES), ct__kir_get(k, y[r]));
}

// Rows and columns that are there, each once: the last tile's first columns are those of the tile before.
static void store_tile(const quantised *q, ct_kval row, ct_kval early) {
    ct_kir *k = q->k;
    ct_kval from = ct__kir_add(k, q->row0, row), high = ct__kir_int(k, q->high);
    ct_kval r =
        ct__kir_loop(k, CT_BIND_SEQ, ct__kir_min(k, ct__kir_sub(k, q->s->rows, from), high), "row");
    ct_kval width = ct__kir_sub(k, ct__kir_int(k, CT_LANES), early);
    ct_kval lane = ct__kir_add(k, early, ct__kir_loop(k, CT_BIND_LANES, width, "column"));
    const ct_kval at[2] = {ct__kir_add(k, from, r), ct__kir_add(k, q->column0, lane)};
    ct_kval v = ct__kir_load(k, q->out, ct__kir_add(k, ct__kir_muli(k, r, CT_LANES), lane));
    ct__sink_store(k, &q->s->out, 2, at, v);
    ct__kir_end(k);
    ct__kir_end(k);
}

int64_t ct__quantised_tiles(const ct_kir *k, const ct_quantised_spec *s, int64_t width,
                            int64_t most) {
    enum { TASKS = 8 }; // a core
    const int cores = s->target.cores > 0 ? s->target.cores : 1;
    int64_t columns = 0;
    const int64_t n =
        ct__kir_is_int(k, s->columns, &columns) ? columns / width / (TASKS * cores) : 1;
    return n < 1 ? 1 : n > most ? most : n;
}

// Rows of a task: all, or as many as lie near.
static int64_t choose(quantised *q) {
    const int64_t n = q->s->n_rows ? q->s->n_rows : MOST_ROWS;
    q->high = n < HIGH ? (int)n : HIGH;
    q->tiles = ct__quantised_tiles(q->k, q->s, CT_LANES, TILES);
    const int64_t rows = n < MOST_ROWS ? n : MOST_ROWS;
    return (rows + q->high - 1) / q->high * q->high;
}

static void rows_by(quantised *q, int high, ct_kval first, ct_kval count, ct_kval early) {
    ct_kir *k = q->k;
    ct_kval row = ct__kir_loop(k, CT_BIND_SEQ, count, "rows");
    row = ct__kir_add(k, first, ct__kir_muli(k, row, high));
    q->high = high;
    ct_kval lane = ct__kir_loop_n(k, CT_BIND_TILE, CT_LANES, "column");
    tile(q, row, lane);
    ct__kir_end(k);
    store_tile(q, row, early);
    ct__kir_end(k);
}

// Tiles of rows; where it is not known how many rows there are, one or two that are left go one by one.
static void all_rows(quantised *q, ct_kval rows, ct_kval early) {
    ct_kir *k = q->k;
    const int high = q->high;
    ct_kval none = ct__kir_int(k, 0), tiles = ct__kir_ceil_div(k, rows, high);
    if (!q->s->n_rows)
        tiles = ct__kir_div(k, ct__kir_addi(k, rows, high - 1 - FEW), ct__kir_int(k, high));
    rows_by(q, high, none, tiles, early);
    if (q->s->n_rows) return;
    ct_kval done = ct__kir_muli(k, tiles, high);
    rows_by(q, 1, done, ct__kir_sub(k, rows, done), early);
    q->high = high;
}

void ct__template_quantised(ct_kir *k, const ct_quantised_spec *s) {
    quantised q = {.k = k, .s = s, .words = s->inner / 4, .blocks = s->inner / CT_QUANTISED_BLOCK};
    const int64_t most = choose(&q), numbers = ct__quantised_numbers(s);
    q.rows = ct__kir_local(k, CT_I32, most * q.words);
    q.begin = ct__kir_local(k, CT_I32, most * q.blocks);
    q.scales = (ct_quantised_scales){.width = CT_LANES, .numbers = numbers};
    q.scales.rows = ct__kir_local(k, CT_F32, CT_LANES * numbers);
    q.scales.turned = ct__kir_local(k, CT_F32, CT_LANES * numbers);
    q.out = ct__kir_local(k, CT_F32, (int64_t)q.high * CT_LANES);
    ct_kval tiles = ct__kir_ceil_div(k, s->columns, CT_LANES),
            parts = ct__kir_ceil_div(k, tiles, q.tiles);
    ct_kval blocks = ct__kir_ceil_div(k, s->rows, most);
    ct_kval task = ct__kir_loop(k, CT_BIND_ROWS, ct__kir_mul(k, blocks, parts), "block");
    ct_kval first = ct__kir_muli(k, ct__kir_mod(k, task, parts), q.tiles);
    q.row0 = ct__kir_muli(k, ct__kir_div(k, task, parts), most);
    ct_kval rows = ct__kir_min(k, ct__kir_sub(k, s->rows, q.row0), ct__kir_int(k, most));
    // Tiles are whole: their last rows are the last one again.
    take_rows(&q, ct__kir_muli(k, ct__kir_ceil_div(k, rows, q.high), q.high));
    ct_kval many = ct__kir_min(k, ct__kir_sub(k, tiles, first), ct__kir_int(k, q.tiles));
    ct_kval t = ct__kir_loop(k, CT_BIND_SEQ, many, "16 columns");
    // The last tile begins earlier, so that all are whole.
    ct_kval begin = ct__kir_muli(k, ct__kir_add(k, first, t), CT_LANES);
    q.column0 = ct__kir_min(k, begin, ct__kir_addi(k, s->columns, -CT_LANES));
    q.scales.column0 = q.column0;
    ct__quantised_scales(k, s, &q.scales);
    all_rows(&q, rows, ct__kir_sub(k, begin, q.column0));
    ct__kir_end(k);
    ct__kir_end(k);
}
