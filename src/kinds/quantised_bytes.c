// Quantised rows times quantised columns. A tile is 16 columns, whose words are transposed in registers,
// times up to eight rows, whose words are broadcast to all lanes. Four products of bytes are one instruction
// if the processor has it (DOT4); quants are made unsigned for it, and sums start from what compensates for
// that (the bias). For more rows than a tile has, transposed words are stored, of as many blocks of k as fit
// in an L1 cache together with what the rows need (a panel), while all rows are multiplied by them.
#include "kinds/quantised.h"

enum {
    MAX_TILE_ROWS = 8,       // rows of a tile, at most
    WORDS = 16,              // words of a column that are transposed at a time
    TILES = 32,              // tiles of 16 columns of a task, at most
    MAX_SINGLE_ROWS = 2,     // rows after whole tiles that are processed one by one
    MAX_ROWS = 128,          // of a task
    CACHE_BYTES = 512 << 10, // bytes of the rows, which fit in an L2 cache
    PANEL = 16,              // blocks of k
    BLOCK_WORDS = CT_QUANTISED_BLOCK / 4,
};

typedef struct quantised {
    ct_kir *k;
    const ct_quantised_spec *s;
    int64_t words, blocks; // of a quantised row; of k
    int64_t numbers;       // scales of a column, rounded up to whole vectors
    int sums;              // of a block: 2 if its halves have scales of their own
    int tile_rows;         // rows of a tile
    int64_t width;         // columns of a tile
    int64_t tiles;         // of a task
    int64_t max_rows;      // rows of a task
    int rows;  // scratch: words of all rows, in the order in which the columns' words use them
    int begin; // scratch: start values of sums, (rows, sums); with panels (sums, rows)
    ct_quantised_scales scales;
    int out;          // scratch: (tile_rows, width); with a panel, of all rows
    bool uses_panels; // transposed words are stored in panels
    int panel;        // scratch: unsigned bytes, four per word, (PANEL, 8, width)
    ct_kval row0;
    ct_kval first, column0; // of the tile: as columns are addressed, and its index
} quantised;

static ct_kval qbytes_word(const quantised *q, int64_t bytes) {
    return ct__kir_const_int(q->k, CT_I32, (int32_t)(uint32_t)bytes);
}
static ct_kval qbytes_bit_op(const quantised *q, ct_kop op, ct_kval a, int64_t b) {
    return ct__kir_bin(q->k, op, a, qbytes_word(q, b));
}

// ----------------------------------------------------------------------------------------- the rows

static ct_kval qbytes_clamp_row(const quantised *q, ct_kval row) {
    return ct__kir_min(q->k, row, ct__kir_addi(q->k, q->s->rows, -1));
}
static ct_kval qbytes_load_row_word(const quantised *q, ct_kval row, ct_kval at) {
    const ct_kval index[2] = {row, at};
    return ct__source_load(q->k, &q->s->row_words, 2, index);
}

// Stores two words of a row in the order of 4-bit quants. A word of these has eight, with the even ones in
// the low halves of its bytes. So of eight bytes of a row the even ones are stored first, then the odd ones.
static void qbytes_store_split(const quantised *q, ct_kval row, ct_kval to, ct_kval pair) {
    ct_kir *k = q->k;
    ct_kval first = ct__kir_muli(k, pair, 2), a = qbytes_load_row_word(q, row, first);
    ct_kval b = qbytes_load_row_word(q, row, ct__kir_addi(k, first, 1)), out[2];
    for (int odd = 0; odd < 2; odd++) {
        ct_kval x = odd ? qbytes_bit_op(q, CT_K_SHR, a, 8) : a,
                y = odd ? qbytes_bit_op(q, CT_K_SHR, b, 8) : b;
        ct_kval low = qbytes_bit_op(q, CT_K_AND, x, 255),
                high = qbytes_bit_op(q, CT_K_AND, x, 255 << 16);
        out[odd] = ct__kir_bin(k, CT_K_OR, low, qbytes_bit_op(q, CT_K_SHR, high, 8));
        low = qbytes_bit_op(q, CT_K_AND, y, 255), high = qbytes_bit_op(q, CT_K_AND, y, 255 << 16);
        y = ct__kir_bin(k, CT_K_OR, low, qbytes_bit_op(q, CT_K_SHR, high, 8));
        out[odd] = ct__kir_bin(k, CT_K_OR, out[odd], qbytes_bit_op(q, CT_K_SHL, y, 16));
    }
    for (int odd = 0; odd < 2; odd++)
        ct__kir_store(k, q->rows, ct__kir_addi(k, ct__kir_add(k, to, first), odd), out[odd]);
}

// Returns what is added to the columns' quants to make them unsigned: half of their range, or, for f4, twice
// the largest value.
static int64_t qbytes_unsigned_offset(const quantised *q) {
    return q->s->f4 ? 12 : (int64_t)1 << (q->s->bits - 1);
}

// Stores, for each block, the start value that compensates for unsigned quants: minus that offset times the
// sum of the row's bytes.
static void qbytes_store_bias(const quantised *q, ct_kval row, ct_kval from) {
    ct_kir *k = q->k;
    const int64_t each = BLOCK_WORDS / q->sums, n = q->blocks * q->sums;
    ct_kval b = ct__kir_loop_n(k, CT_BIND_LANES, n, "block");
    ct_kval at = ct__kir_add(k, from, ct__kir_muli(k, b, each)), sum = qbytes_word(q, 0),
            ones = qbytes_word(q, 0x01010101);
    for (int64_t i = 0; i < each; i++)
        sum = ct__kir_dot4(k, ones, ct__kir_load(k, q->rows, ct__kir_addi(k, at, i)), sum, true);
    sum = ct__kir_mul(k, sum, qbytes_word(q, -qbytes_unsigned_offset(q)));
    ct__kir_store(k, q->begin, ct__kir_add(k, ct__kir_muli(k, row, n), b), sum);
    ct__kir_end(k);
}

// Stores the start values of all rows, 16 at a time, whose words are transposed.
static void qbytes_store_all_bias(const quantised *q, ct_kval count) {
    ct_kir *k = q->k;
    ct_kval group = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_ceil_div(k, count, CT_LANES), "16 rows");
    ct_kval pair = ct__kir_loop_n(k, CT_BIND_SEQ, q->blocks / 2, "two blocks"), x[WORDS];
    ct_kval row = ct__kir_loop_n(k, CT_BIND_TILE, CT_LANES, "row");
    row = ct__kir_add(k, ct__kir_muli(k, group, CT_LANES), row);
    ct_kval from = ct__kir_add(k, ct__kir_muli(k, row, q->words), ct__kir_muli(k, pair, WORDS));
    for (int i = 0; i < WORDS; i++) x[i] = ct__kir_load(k, q->rows, ct__kir_addi(k, from, i));
    const int n = 2 * q->sums, each = WORDS / n;
    for (int b = 0; b < n; b++) {
        ct_kval sum = qbytes_word(q, 0), block = ct__kir_addi(k, ct__kir_muli(k, pair, n), b);
        for (int i = 0; i < each; i++)
            sum = ct__kir_dot4(k, qbytes_word(q, 0x01010101), x[b * each + i], sum, true);
        ct__kir_store(k, q->begin, ct__kir_add(k, ct__kir_muli(k, block, q->max_rows), row),
                      ct__kir_mul(k, sum, qbytes_word(q, -qbytes_unsigned_offset(q))));
    }
    ct__kir_end_n(k, 3);
}

// Copies the rows to scratch. Rows after the last one repeat it.
static void qbytes_load_rows(const quantised *q, ct_kval count) {
    ct_kir *k = q->k;
    ct_kval r = ct__kir_loop(k, CT_BIND_SEQ, count, "row"), from = ct__kir_muli(k, r, q->words);
    ct_kval row = qbytes_clamp_row(q, ct__kir_add(k, q->row0, r));
    if (q->s->bits == 4) {
        qbytes_store_split(q, row, from,
                           ct__kir_loop_n(k, CT_BIND_LANES, q->words / 2, "two words"));
    } else {
        ct_kval w = ct__kir_loop_n(k, CT_BIND_LANES, q->words, "word");
        ct__kir_store(k, q->rows, ct__kir_add(k, from, w), qbytes_load_row_word(q, row, w));
    }
    ct__kir_end(k);
    if (!q->uses_panels) qbytes_store_bias(q, r, from);
    ct__kir_end(k);
    if (q->uses_panels) qbytes_store_all_bias(q, count);
}

// -------------------------------------------------------------------------------------- the columns

ct_kval ct__quantised_behind(ct_kir *k, const ct_quantised_spec *s, ct_kval first, ct_kval groups) {
    return ct__kir_add(k, first, s->grouped ? groups : ct__kir_muli(k, groups, CT_LANES));
}

// Copies scales in memory order, one column at a time.
static void qbytes_copy_scales(ct_kir *k, const ct_quantised_spec *s, const ct_source *from,
                               const ct_quantised_scales *to) {
    ct_kval c = ct__kir_loop_n(k, CT_BIND_SEQ, to->width, "column");
    const int64_t n = s->scale_codes ? s->inner / s->scale_codes : 1;
    ct_kval i = ct__kir_loop_n(k, CT_BIND_LANES, n, "scale");
    const ct_kval at[3] = {to->first, c, i},
                  next[3] = {ct__kir_addi(k, to->first, to->width), c, i};
    ct__kir_set_prefetch_mode(k, s->lined); // those of the next tile
    if (s->lined) (void)ct__source_load(k, from, 3, next);
    ct__kir_set_prefetch_mode(k, false);
    ct_kval v = ct__source_load(k, from, 3, at);
    ct__kir_store(k, to->rows, ct__kir_add(k, ct__kir_muli(k, c, to->numbers), i), v);
    ct__kir_end_n(k, 2);
}
static void qbytes_transpose_scales(ct_kir *k, const ct_quantised_scales *to) {
    ct_kval some = ct__kir_loop_n(k, CT_BIND_SEQ, to->numbers / CT_LANES, "16 scales"), x[CT_LANES];
    some = ct__kir_muli(k, some, CT_LANES);
    ct_kval group = ct__kir_loop_n(k, CT_BIND_SEQ, to->width / CT_LANES, "16 columns");
    ct_kval lane = ct__kir_loop_n(k, CT_BIND_TILE, CT_LANES, "column");
    lane = ct__kir_add(k, ct__kir_muli(k, group, CT_LANES), lane);
    ct_kval from = ct__kir_add(k, ct__kir_muli(k, lane, to->numbers), some);
    for (int j = 0; j < CT_LANES; j++) x[j] = ct__kir_load(k, to->rows, ct__kir_addi(k, from, j));
    ct_kval index = ct__kir_add(k, ct__kir_muli(k, some, to->width), lane);
    for (int j = 0; j < CT_LANES; j++)
        ct__kir_store(k, to->turned, ct__kir_addi(k, index, j * to->width), x[j]);
    ct__kir_end_n(k, 3);
}
// Copies the scales of groups, which are transposed in memory.
static void qbytes_copy_group_scales(ct_kir *k, const ct_quantised_spec *s, const ct_source *from,
                                     const ct_quantised_scales *to) {
    const int64_t n = s->scale_codes ? s->inner / s->scale_codes : 1;
    ct_kval group = ct__kir_loop_n(k, CT_BIND_SEQ, to->width / CT_LANES, "16 columns");
    ct_kval first = ct__quantised_behind(k, s, to->first, group);
    ct_kval i = ct__kir_loop_n(k, CT_BIND_SEQ, n, "scale");
    ct_kval lane = ct__kir_loop_n(k, CT_BIND_TILE, CT_LANES, "column");
    const ct_kval at[3] = {first, lane, i};
    ct_kval index = ct__kir_add(k, ct__kir_muli(k, i, to->width), ct__kir_muli(k, group, CT_LANES));
    ct__kir_store(k, to->turned, ct__kir_add(k, index, lane), ct__source_load(k, from, 3, at));
    ct__kir_end_n(k, 3);
}
void ct__quantised_scales(ct_kir *k, const ct_quantised_spec *s, const ct_source *from,
                          const ct_quantised_scales *to) {
    if (s->grouped) {
        qbytes_copy_group_scales(k, s, from, to);
    } else {
        qbytes_copy_scales(k, s, from, to);
        qbytes_transpose_scales(k, to);
    }
}
int64_t ct__quantised_numbers(const ct_quantised_spec *s) {
    const int64_t n = s->scale_codes ? s->inner / s->scale_codes : 1;
    return (n + CT_LANES - 1) / CT_LANES * CT_LANES;
}

// Returns the table of twice the values of eight f4 quants, made unsigned.
static ct_kval qbytes_f4_table(const quantised *q, int first) {
    uint64_t bytes = 0;
    for (int i = 0; i < 8; i++) {
        const int64_t twice =
            (int64_t)(2 * ct__quantised_number(q->s, first + i)) + qbytes_unsigned_offset(q);
        bytes |= (uint64_t)twice << (8 * i);
    }
    return ct__kir_const_int(q->k, CT_I64, (int64_t)bytes);
}
// Unpacks the block's quants of the columns to unsigned bytes, eight words of them.
static void qbytes_unpack(const quantised *q, const ct_kval *words, int block, ct_kval *to) {
    ct_kir *k = q->k;
    for (int i = 0; i < BLOCK_WORDS; i++) {
        if (q->s->bits == 8) {
            to[i] = qbytes_bit_op(q, CT_K_XOR, words[block * BLOCK_WORDS + i], 0x80808080);
            continue;
        }
        if (q->s->f4) {
            ct_kval w = words[block * (BLOCK_WORDS / 2) + i / 2];
            to[i] = ct__kir_lookup4(k, i % 2 ? qbytes_bit_op(q, CT_K_SHR, w, 4) : w,
                                    qbytes_f4_table(q, 0), qbytes_f4_table(q, 8));
            continue;
        }
        ct_kval w =
            qbytes_bit_op(q, CT_K_XOR, words[block * (BLOCK_WORDS / 2) + i / 2], 0x88888888);
        to[i] = qbytes_bit_op(
            q, CT_K_AND, i % 2 ? ct__kir_bin(k, CT_K_SHR, w, qbytes_word(q, 4)) : w, 0x0f0f0f0f);
    }
}

// Prefetches what the next tile reads in the same step: a line of each column.
static void qbytes_prefetch_next(const quantised *q, ct_kval group, ct_kval lane, ct_kval first) {
    const ct_kval next_group = ct__kir_addi(q->k, group, q->width / CT_LANES);
    const ct_kval at[3] = {ct__quantised_behind(q->k, q->s, q->first, next_group), lane, first};
    ct__kir_set_prefetch_mode(q->k, true);
    (void)ct__source_load(q->k, &q->s->column_words, 3, at);
    ct__kir_set_prefetch_mode(q->k, false);
}

// Loads 16 words of each of the group's 16 columns. Words of grouped columns are one stream, which hardware
// prefetchers recognise.
static void qbytes_load_words(const quantised *q, ct_kval first, ct_kval group, ct_kval lane,
                              ct_kval *words) {
    ct_kir *k = q->k;
    ct_kval column = ct__quantised_behind(k, q->s, q->first, group);
    if (q->s->lined) qbytes_prefetch_next(q, group, lane, first);
    for (int i = 0; i < WORDS; i++) {
        const ct_kval at[3] = {column, lane, ct__kir_addi(k, first, i)};
        words[i] = ct__source_load(k, &q->s->column_words, 3, at);
    }
}

// Adds the products of a half block, or of a whole one, as its `part`-th sum.
static void qbytes_sum_part(const quantised *q, ct_kval row, ct_kval lane, ct_kval block, int part,
                            const ct_kval *bytes, const ct_kval *y) {
    ct_kir *k = q->k;
    const ct_quantised_spec *s = q->s;
    const int each = BLOCK_WORDS / q->sums;
    const bool low = s->bits < 8; // quants made unsigned are at most 24
    ct_kval sum_at = q->sums == 1 ? block : ct__kir_addi(k, ct__kir_muli(k, block, 2), part);
    ct_kval number =
        !s->scale_codes ? ct__kir_int(k, 0)
        : q->sums == 2  ? sum_at
                       : ct__kir_div(k, block, ct__kir_int(k, s->scale_codes / CT_QUANTISED_BLOCK));
    ct_kval scale;
    if (q->uses_panels || !s->grouped) {
        ct_kval from = ct__kir_muli(k, number, q->width);
        scale = ct__kir_load(k, q->scales.turned, ct__kir_add(k, from, lane));
    } else {
        const ct_kval at[3] = {q->first, lane, number};
        scale = ct__source_load(k, &s->column_scale, 3, at);
    }
    for (int r = 0; r < q->tile_rows; r++) {
        ct_kval own = ct__kir_addi(k, row, r);
        ct_kval from =
            ct__kir_add(k, ct__kir_muli(k, own, q->words), ct__kir_muli(k, block, BLOCK_WORDS));
        ct_kval start = q->uses_panels
                            ? ct__kir_add(k, ct__kir_muli(k, sum_at, q->max_rows), own)
                            : ct__kir_add(k, ct__kir_muli(k, own, q->blocks * q->sums), sum_at);
        ct_kval sum = ct__kir_load(k, q->begin, start);
        if (q->uses_panels) sum = ct__kir_reg(k, sum); // a word serves both vectors at once
        for (int i = part * each; i < (part + 1) * each; i++) {
            ct_kval four = ct__kir_load(k, q->rows, ct__kir_addi(k, from, i));
            if (q->uses_panels)
                ct__kir_set(k, sum, ct__kir_dot4(k, bytes[i], four, ct__kir_get(k, sum), low));
            else
                sum = ct__kir_dot4(k, bytes[i], four, sum, low);
        }
        if (q->uses_panels) sum = ct__kir_get(k, sum);
        const ct_kval at[2] = {qbytes_clamp_row(q, ct__kir_add(k, q->row0, own)), block};
        ct_kval by = ct__kir_mul(k, ct__source_load(k, &s->row_scale, 2, at), scale);
        ct_kval f = ct__kir_cast(k, sum, CT_F32);
        ct__kir_set(k, y[r], ct__kir_fma(k, f, by, ct__kir_get(k, y[r])));
    }
}
// Adds a block's products of `tile_rows` rows, starting at `row` of the scratch, to their registers.
static void qbytes_sum_block(const quantised *q, ct_kval row, ct_kval lane, ct_kval block,
                             const ct_kval *bytes, const ct_kval *y) {
    for (int part = 0; part < q->sums; part++) qbytes_sum_part(q, row, lane, block, part, bytes, y);
}

static int64_t qbytes_step_blocks(const quantised *q) {
    return ct__quantised_step(q->s->bits) / CT_QUANTISED_BLOCK;
}

// Computes `tile_rows` rows, starting at `row` of the scratch, times 16 columns, over all of k.
static void qbytes_tile(const quantised *q, ct_kval row, ct_kval lane) {
    ct_kir *k = q->k;
    ct_kval y[MAX_TILE_ROWS], words[WORDS], bytes[BLOCK_WORDS];
    for (int r = 0; r < q->tile_rows; r++) y[r] = ct__kir_reg(k, ct__kir_const(k, CT_F32, 0));
    ct_kval step = ct__kir_loop_n(k, CT_BIND_SEQ, q->blocks / qbytes_step_blocks(q), "16 words");
    qbytes_load_words(q, ct__kir_muli(k, step, WORDS), ct__kir_int(k, 0), lane, words);
    for (int b = 0; b < (int)qbytes_step_blocks(q); b++) {
        ct_kval block = ct__kir_addi(k, ct__kir_muli(k, step, qbytes_step_blocks(q)), b);
        qbytes_unpack(q, words, b, bytes);
        qbytes_sum_block(q, row, lane, block, bytes, y);
    }
    ct__kir_end(k);
    for (int r = 0; r < q->tile_rows; r++)
        ct__kir_store(k, q->out, ct__kir_addi(k, lane, r * q->width), ct__kir_get(k, y[r]));
}

// ---------------------------------------------------------------------------------------- panels

// Fills the panel with `count` blocks of the tile's columns, starting at `block0`.
static void qbytes_fill_panel(const quantised *q, ct_kval block0, ct_kval count) {
    ct_kir *k = q->k;
    ct_kval words[WORDS], bytes[BLOCK_WORDS], each = ct__kir_int(k, qbytes_step_blocks(q));
    ct_kval step = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_div(k, count, each), "16 words");
    ct_kval group = ct__kir_loop_n(k, CT_BIND_SEQ, q->width / CT_LANES, "16 columns");
    ct_kval lane = ct__kir_loop_n(k, CT_BIND_TILE, CT_LANES, "column");
    ct_kval before = ct__kir_div(k, block0, each);
    qbytes_load_words(q, ct__kir_muli(k, ct__kir_add(k, before, step), WORDS), group, lane, words);
    lane = ct__kir_add(k, ct__kir_muli(k, group, CT_LANES), lane);
    for (int b = 0; b < (int)qbytes_step_blocks(q); b++) {
        qbytes_unpack(q, words, b, bytes);
        ct_kval block = ct__kir_addi(k, ct__kir_muli(k, step, qbytes_step_blocks(q)), b);
        ct_kval to = ct__kir_add(k, ct__kir_muli(k, block, BLOCK_WORDS * q->width), lane);
        for (int i = 0; i < BLOCK_WORDS; i++)
            ct__kir_store(k, q->panel, ct__kir_addi(k, to, i * q->width), bytes[i]);
    }
    ct__kir_end_n(k, 3);
}

// Address of the lines that rows prefetch while they are multiplied by the panel, one per block: the contents
// of the next panel, which would otherwise stall. After all of k it is the next tile's.
typedef struct prefetch_target {
    ct_kval column, word;
} prefetch_target;
static prefetch_target qbytes_next_panel(const quantised *q, ct_kval row, ct_kval block0) {
    ct_kir *k = q->k;
    const int64_t words = PANEL / qbytes_step_blocks(q) * WORDS, groups = q->width / CT_LANES,
                  all = q->blocks / qbytes_step_blocks(q) * WORDS;
    ct_kval part = ct__kir_div(k, row, ct__kir_int(k, q->tile_rows)), none = ct__kir_int(k, 0);
    ct_kval group = ct__kir_div(k, part, ct__kir_int(k, words / PANEL));
    ct_kval from = ct__kir_div(k, block0, ct__kir_int(k, qbytes_step_blocks(q)));
    ct_kval word = ct__kir_mod(k, part, ct__kir_int(k, words / PANEL));
    word = ct__kir_add(k, ct__kir_muli(k, from, WORDS), ct__kir_muli(k, word, PANEL));
    word = ct__kir_addi(k, word, words);
    ct_kval wraps = ct__kir_lt(k, ct__kir_int(k, all - 1), word);
    group = ct__kir_add(k, ct__kir_mod(k, group, ct__kir_int(k, groups)),
                        ct__kir_select(k, wraps, ct__kir_int(k, groups), none));
    return (prefetch_target){
        ct__quantised_behind(k, q->s, q->first, group),
        ct__kir_sub(k, word, ct__kir_select(k, wraps, ct__kir_int(k, all), none))};
}
static void qbytes_prefetch_panel(const quantised *q, const prefetch_target *from, ct_kval block) {
    ct_kir *k = q->k;
    const ct_kval at[3] = {from->column, ct__kir_int(k, 0), ct__kir_add(k, from->word, block)};
    ct__kir_set_prefetch_mode(k, true);
    (void)ct__source_load(k, &q->s->column_words, 3, at);
    ct__kir_set_prefetch_mode(k, false);
}

// Adds the panel's part of k to the sums of `tile_rows` rows and the tile's columns.
static void qbytes_panel_tile(const quantised *q, ct_kval row, ct_kval block0, ct_kval count) {
    ct_kir *k = q->k;
    ct_kval y[MAX_TILE_ROWS], sum_index[MAX_TILE_ROWS], bytes[BLOCK_WORDS];
    const prefetch_target next =
        q->s->grouped ? qbytes_next_panel(q, row, block0) : (prefetch_target){0};
    ct_kval lane = ct__kir_loop_n(k, CT_BIND_TILE, q->width, "column");
    for (int r = 0; r < q->tile_rows; r++) {
        sum_index[r] = ct__kir_add(k, ct__kir_muli(k, ct__kir_addi(k, row, r), q->width), lane);
        y[r] = ct__kir_reg(k, ct__kir_load(k, q->out, sum_index[r]));
    }
    ct_kval b = ct__kir_loop(k, CT_BIND_SEQ, count, "block");
    ct_kval from = ct__kir_add(k, ct__kir_muli(k, b, BLOCK_WORDS * q->width), lane);
    if (q->s->grouped) qbytes_prefetch_panel(q, &next, b);
    for (int i = 0; i < BLOCK_WORDS; i++)
        bytes[i] = ct__kir_load(k, q->panel, ct__kir_addi(k, from, i * q->width));
    qbytes_sum_block(q, row, lane, ct__kir_add(k, block0, b), bytes, y);
    ct__kir_end(k);
    for (int r = 0; r < q->tile_rows; r++)
        ct__kir_store(k, q->out, sum_index[r], ct__kir_get(k, y[r]));
    ct__kir_end(k);
}

// Stores rows and columns that exist, each once: the last tile's first columns may belong to the tile before.
static void qbytes_store_tile(const quantised *q, ct_kval row, ct_kval high, ct_kval early) {
    ct_kir *k = q->k;
    ct_kval from = ct__kir_add(k, q->row0, row);
    ct_kval r =
        ct__kir_loop(k, CT_BIND_SEQ, ct__kir_min(k, ct__kir_sub(k, q->s->rows, from), high), "row");
    ct_kval width = ct__kir_sub(k, ct__kir_int(k, q->width), early);
    ct_kval lane = ct__kir_add(k, early, ct__kir_loop(k, CT_BIND_LANES, width, "column"));
    const ct_kval at[2] = {ct__kir_add(k, from, r), ct__kir_add(k, q->column0, lane)};
    ct_kval v = ct__kir_load(k, q->out, ct__kir_add(k, ct__kir_muli(k, r, q->width), lane));
    ct__sink_store(k, &q->s->out, 2, at, v);
    ct__kir_end_n(k, 2);
}

int64_t ct__quantised_tiles(const ct_kir *k, const ct_quantised_spec *s, int64_t width,
                            int64_t most) {
    enum { TASKS = 8 }; // per core
    const int cores = s->target.cores > 0 ? s->target.cores : 1;
    int64_t columns = 0;
    const int64_t n =
        ct__kir_is_int(k, s->columns, &columns) ? columns / width / (TASKS * cores) : 1;
    return n < 1 ? 1 : n > most ? most : n;
}

// Chooses the rows of a task: all, or as many as fit in cache. With panels a tile is as wide as registers
// allow, so that a word of a row serves two vectors, since processors load one per cycle.
static void qbytes_choose_blocking(quantised *q) {
    const ct_target *t = &q->s->target;
    const int64_t max_rows = q->s->inner * MAX_ROWS <= CACHE_BYTES ? MAX_ROWS : MAX_ROWS / 2;
    const int64_t n = q->s->each ? 1 : q->s->n_rows ? q->s->n_rows : max_rows;
    int64_t columns = 0;
    q->uses_panels = n > MAX_TILE_ROWS;
    q->tile_rows = n < MAX_TILE_ROWS ? (int)n : MAX_TILE_ROWS;
    q->width = CT_LANES;
    if (q->uses_panels && t->registers * t->lanes / CT_LANES >= 32 &&
        ct__kir_is_int(q->k, q->s->columns, &columns) && columns >= 2 * CT_LANES)
        q->width = 2 * CT_LANES, q->tile_rows = MAX_TILE_ROWS / 2;
    q->tiles = ct__quantised_tiles(q->k, q->s, q->width, TILES * CT_LANES / q->width);
    const int64_t rows = n < max_rows ? n : max_rows,
                  each = q->uses_panels ? CT_LANES : q->tile_rows;
    q->max_rows = (rows + each - 1) / each * each;
}

// The work for the rows: all of k, after which they are stored; or a panel.
typedef struct pass {
    ct_kval early;
    ct_kval block0, count;
} pass;

static void qbytes_loop_rows(quantised *q, int high, ct_kval first, ct_kval count, const pass *p) {
    ct_kir *k = q->k;
    ct_kval row = ct__kir_loop(k, CT_BIND_SEQ, count, "rows");
    row = ct__kir_add(k, first, ct__kir_muli(k, row, high));
    q->tile_rows = high;
    if (q->uses_panels) {
        qbytes_panel_tile(q, row, p->block0, p->count);
    } else {
        ct_kval lane = ct__kir_loop_n(k, CT_BIND_TILE, CT_LANES, "column");
        qbytes_tile(q, row, lane);
        ct__kir_end(k);
        qbytes_store_tile(q, row, ct__kir_int(k, high), p->early);
    }
    ct__kir_end(k);
}

// Processes rows in tiles. If the number of rows is dynamic, one or two remaining rows are processed one by
// one.
static void qbytes_all_rows(quantised *q, ct_kval rows, const pass *p) {
    ct_kir *k = q->k;
    const int high = q->tile_rows;
    ct_kval none = ct__kir_int(k, 0), tiles = ct__kir_ceil_div(k, rows, high);
    const bool whole = q->s->n_rows || q->s->each;
    if (!whole)
        tiles =
            ct__kir_div(k, ct__kir_addi(k, rows, high - 1 - MAX_SINGLE_ROWS), ct__kir_int(k, high));
    qbytes_loop_rows(q, high, none, tiles, p);
    if (whole) return;
    ct_kval done = ct__kir_muli(k, tiles, high);
    qbytes_loop_rows(q, 1, done, ct__kir_sub(k, rows, done), p);
    q->tile_rows = high;
}

static void qbytes_by_panels(quantised *q, ct_kval rows, ct_kval early) {
    ct_kir *k = q->k;
    ct_kval high = ct__kir_int(k, q->tile_rows), tiles = ct__kir_ceil_div(k, rows, q->tile_rows);
    ct_kval i = ct__kir_loop(k, CT_BIND_LANES,
                             ct__kir_muli(k, ct__kir_mul(k, tiles, high), q->width), "sum");
    ct__kir_store(k, q->out, i, ct__kir_const(k, CT_F32, 0));
    ct__kir_end(k);
    const int64_t panels = (q->blocks + PANEL - 1) / PANEL;
    ct_kval block0 = ct__kir_muli(k, ct__kir_loop_n(k, CT_BIND_SEQ, panels, "panel"), PANEL);
    ct_kval left = ct__kir_sub(k, ct__kir_int(k, q->blocks), block0);
    const pass p = {.block0 = block0, .count = ct__kir_min(k, left, ct__kir_int(k, PANEL))};
    qbytes_fill_panel(q, block0, p.count);
    qbytes_all_rows(q, rows, &p);
    ct__kir_end(k);
    qbytes_store_tile(q, ct__kir_int(k, 0), rows, early);
}

void ct__template_quantised(ct_kir *k, const ct_quantised_spec *s) {
    quantised q = {.k = k, .s = s, .words = s->inner / 4, .blocks = s->inner / CT_QUANTISED_BLOCK};
    q.sums = s->scale_codes == CT_QUANTISED_BLOCK / 2 ? 2 : 1;
    qbytes_choose_blocking(&q);
    const int64_t numbers = ct__quantised_numbers(s), width = q.width;
    q.rows = ct__kir_local(k, CT_I32, q.max_rows * q.words);
    q.begin = ct__kir_local(k, CT_I32, q.max_rows * q.blocks * q.sums);
    q.scales = (ct_quantised_scales){.width = width, .numbers = numbers};
    if (!s->grouped) q.scales.rows = ct__kir_local(k, CT_F32, width * numbers);
    if (!s->grouped || q.uses_panels) q.scales.turned = ct__kir_local(k, CT_F32, width * numbers);
    q.out = ct__kir_local(k, CT_F32, (q.uses_panels ? q.max_rows : q.tile_rows) * width);
    if (q.uses_panels) q.panel = ct__kir_local(k, CT_I32, PANEL * BLOCK_WORDS * width);
    ct_kval tiles = ct__kir_ceil_div(k, s->columns, width),
            parts = ct__kir_ceil_div(k, tiles, q.tiles);
    ct_kval blocks = ct__kir_ceil_div(k, s->rows, q.max_rows);
    ct_kval task = ct__kir_loop(k, CT_BIND_ROWS, ct__kir_mul(k, blocks, parts), "block");
    ct_kval first = ct__kir_muli(k, ct__kir_mod(k, task, parts), q.tiles);
    q.row0 = ct__kir_muli(k, ct__kir_div(k, task, parts), q.max_rows);
    if (s->begin) s->begin(s->env, k, q.row0);
    ct_kval rows = ct__kir_min(k, ct__kir_sub(k, s->rows, q.row0), ct__kir_int(k, q.max_rows));
    // Tiles are whole: rows after the last one repeat it.
    const int64_t each = q.uses_panels ? CT_LANES : q.tile_rows;
    qbytes_load_rows(&q, ct__kir_muli(k, ct__kir_ceil_div(k, rows, each), each));
    ct_kval many = ct__kir_min(k, ct__kir_sub(k, tiles, first), ct__kir_int(k, q.tiles));
    ct_kval t = ct__kir_loop(k, CT_BIND_SEQ, many, "columns");
    // The last tile begins earlier, so that all tiles are whole.
    const int64_t unit = s->grouped ? CT_LANES : 1;
    ct_kval begin = ct__kir_muli(k, ct__kir_add(k, first, t), width / unit);
    ct_kval last = ct__kir_addi(k, ct__kir_div(k, s->columns, ct__kir_int(k, unit)), -width / unit);
    q.scales.first = q.first = ct__kir_min(k, begin, last);
    q.column0 = ct__kir_muli(k, q.first, unit);
    if (!s->grouped || q.uses_panels) ct__quantised_scales(k, s, &s->column_scale, &q.scales);
    const pass whole = {.early = ct__kir_muli(k, ct__kir_sub(k, begin, q.first), unit)};
    if (q.uses_panels)
        qbytes_by_panels(&q, rows, whole.early);
    else
        qbytes_all_rows(&q, rows, &whole);
    ct__kir_end_n(k, 2);
}
