// Rows of bytes times columns of codes. A tile is 16 columns, whose words are turned in registers, times up to eight
// rows, whose words are numbers for all lanes; four products of bytes are one instruction where the processor has it
// (DOT4). Codes are made unsigned for it, and what that adds is where sums begin. For more rows than a tile has, turned
// words are kept, of as many blocks of k as a first cache holds beside what rows need (a panel), while all rows pass.
#include "kinds/quantised.h"

enum {
    HIGH = 8,         // rows of a tile, at most
    WORDS = 16,       // of a column, that are turned at a time
    TILES = 32,       // of 16 columns, of a task at most
    FEW = 2,          // rows behind whole tiles that go one by one
    MOST_ROWS = 128,  // of a task
    NEAR = 512 << 10, // bytes of them, in a second cache
    PANEL = 16,       // blocks of k
    BLOCK_WORDS = CT_QUANTISED_BLOCK / 4,
};

typedef struct quantised {
    ct_kir *k;
    const ct_quantised_spec *s;
    int64_t words, blocks; // of a row of bytes; of k
    int64_t numbers;       // scales of a column, up to whole vectors
    int sums;              // of a block: 2 where its halves have scales of their own
    int high;              // rows of a tile
    int64_t width;         // columns of a tile
    int64_t tiles;         // of a task
    int64_t most;          // rows of a task
    int rows;              // scratch: words of all rows, as the columns' meet them
    int begin;             // scratch: where sums begin, (rows, sums); with panels (sums, rows)
    ct_quantised_scales scales;
    int out;     // scratch: (high, width); with a panel of all rows
    bool panels; // turned words are kept
    int panel;   // scratch: unsigned bytes, four a word, (PANEL, 8, width)
    ct_kval row0;
    ct_kval first, column0; // of the tile: as columns are known, and its number
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
    const int64_t each = BLOCK_WORDS / q->sums, n = q->blocks * q->sums;
    ct_kval b = ct__kir_loop_n(k, CT_BIND_LANES, n, "block");
    ct_kval at = ct__kir_add(k, from, ct__kir_muli(k, b, each)), sum = word(q, 0),
            ones = word(q, 0x01010101);
    for (int64_t i = 0; i < each; i++)
        sum = ct__kir_dot4(k, ones, ct__kir_load(k, q->rows, ct__kir_addi(k, at, i)), sum);
    sum = ct__kir_mul(k, sum, word(q, -added(q)));
    ct__kir_store(k, q->begin, ct__kir_add(k, ct__kir_muli(k, row, n), b), sum);
    ct__kir_end(k);
}

// The same of all rows, 16 at a time, whose words are turned.
static void store_all_begins(const quantised *q, ct_kval count) {
    ct_kir *k = q->k;
    ct_kval group = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_ceil_div(k, count, CT_LANES), "16 rows");
    ct_kval pair = ct__kir_loop_n(k, CT_BIND_SEQ, q->blocks / 2, "two blocks"), x[WORDS];
    ct_kval row = ct__kir_loop_n(k, CT_BIND_TILE, CT_LANES, "row");
    row = ct__kir_add(k, ct__kir_muli(k, group, CT_LANES), row);
    ct_kval from = ct__kir_add(k, ct__kir_muli(k, row, q->words), ct__kir_muli(k, pair, WORDS));
    for (int i = 0; i < WORDS; i++) x[i] = ct__kir_load(k, q->rows, ct__kir_addi(k, from, i));
    const int n = 2 * q->sums, each = WORDS / n;
    for (int b = 0; b < n; b++) {
        ct_kval sum = word(q, 0), block = ct__kir_addi(k, ct__kir_muli(k, pair, n), b);
        for (int i = 0; i < each; i++)
            sum = ct__kir_dot4(k, word(q, 0x01010101), x[b * each + i], sum);
        ct__kir_store(k, q->begin, ct__kir_add(k, ct__kir_muli(k, block, q->most), row),
                      ct__kir_mul(k, sum, word(q, -added(q))));
    }
    for (int open = 0; open < 3; open++) ct__kir_end(k);
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
    if (!q->panels) store_begins(q, r, from);
    ct__kir_end(k);
    if (q->panels) store_all_begins(q, count);
}

// -------------------------------------------------------------------------------------- the columns

ct_kval ct__quantised_behind(ct_kir *k, const ct_quantised_spec *s, ct_kval first, ct_kval groups) {
    return ct__kir_add(k, first, s->grouped ? groups : ct__kir_muli(k, groups, CT_LANES));
}

// Scales as they lie, a column's at a time.
static void scales_of_columns(ct_kir *k, const ct_quantised_spec *s,
                              const ct_quantised_scales *to) {
    ct_kval c = ct__kir_loop_n(k, CT_BIND_SEQ, to->width, "column");
    const int64_t n = s->scale_codes ? s->inner / s->scale_codes : 1;
    ct_kval i = ct__kir_loop_n(k, CT_BIND_LANES, n, "scale");
    const ct_kval at[3] = {to->first, c, i},
                  next[3] = {ct__kir_addi(k, to->first, to->width), c, i};
    ct__kir_prefetches(k, s->lined); // those of the next tile
    if (s->lined) (void)ct__source_load(k, &s->column_scale, 3, next);
    ct__kir_prefetches(k, false);
    ct_kval v = ct__source_load(k, &s->column_scale, 3, at);
    ct__kir_store(k, to->rows, ct__kir_add(k, ct__kir_muli(k, c, to->numbers), i), v);
    ct__kir_end(k);
    ct__kir_end(k);
}
static void turn_scales(ct_kir *k, const ct_quantised_scales *to) {
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
// Of groups, which lie turned.
static void scales_of_groups(ct_kir *k, const ct_quantised_spec *s, const ct_quantised_scales *to) {
    const int64_t n = s->scale_codes ? s->inner / s->scale_codes : 1;
    ct_kval group = ct__kir_loop_n(k, CT_BIND_SEQ, to->width / CT_LANES, "16 columns");
    ct_kval first = ct__quantised_behind(k, s, to->first, group);
    ct_kval i = ct__kir_loop_n(k, CT_BIND_SEQ, n, "scale");
    ct_kval lane = ct__kir_loop_n(k, CT_BIND_TILE, CT_LANES, "column");
    const ct_kval at[3] = {first, lane, i};
    ct_kval place = ct__kir_add(k, ct__kir_muli(k, i, to->width), ct__kir_muli(k, group, CT_LANES));
    ct__kir_store(k, to->turned, ct__kir_add(k, place, lane),
                  ct__source_load(k, &s->column_scale, 3, at));
    for (int open = 0; open < 3; open++) ct__kir_end(k);
}
void ct__quantised_scales(ct_kir *k, const ct_quantised_spec *s, const ct_quantised_scales *to) {
    if (s->grouped) {
        scales_of_groups(k, s, to);
    } else {
        scales_of_columns(k, s, to);
        turn_scales(k, to);
    }
}
int64_t ct__quantised_numbers(const ct_quantised_spec *s) {
    const int64_t n = s->scale_codes ? s->inner / s->scale_codes : 1;
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
    for (int i = 0; i < BLOCK_WORDS; i++) {
        if (q->s->bits == 8) {
            to[i] = bits_of(q, CT_K_XOR, words[block * BLOCK_WORDS + i], 0x80808080);
            continue;
        }
        if (q->s->f4) {
            ct_kval w = words[block * (BLOCK_WORDS / 2) + i / 2];
            to[i] = ct__kir_lookup4(k, i % 2 ? bits_of(q, CT_K_SHR, w, 4) : w, f4_bytes(q, 0),
                                    f4_bytes(q, 8));
            continue;
        }
        ct_kval w = bits_of(q, CT_K_XOR, words[block * (BLOCK_WORDS / 2) + i / 2], 0x88888888);
        to[i] =
            bits_of(q, CT_K_AND, i % 2 ? ct__kir_bin(k, CT_K_SHR, w, word(q, 4)) : w, 0x0f0f0f0f);
    }
}

// What the next tile reads in the same step: a line of each column.
static void ask_for_next(const quantised *q, ct_kval group, ct_kval lane, ct_kval first) {
    const ct_kval behind = ct__kir_addi(q->k, group, q->width / CT_LANES);
    const ct_kval at[3] = {ct__quantised_behind(q->k, q->s, q->first, behind), lane, first};
    ct__kir_prefetches(q->k, true);
    (void)ct__source_load(q->k, &q->s->column_words, 3, at);
    ct__kir_prefetches(q->k, false);
}

// 16 words of each of the group's 16 columns. Those of groups are read in one stream, which processors see coming.
static void turn_words(const quantised *q, ct_kval first, ct_kval group, ct_kval lane,
                       ct_kval *words) {
    ct_kir *k = q->k;
    ct_kval column = ct__quantised_behind(k, q->s, q->first, group);
    if (q->s->lined) ask_for_next(q, group, lane, first);
    for (int i = 0; i < WORDS; i++) {
        const ct_kval at[3] = {column, lane, ct__kir_addi(k, first, i)};
        words[i] = ct__source_load(k, &q->s->column_words, 3, at);
    }
}

// Of a block's half, or of a whole one, as its `sum`-th.
static void sum_of_rows(const quantised *q, ct_kval row, ct_kval lane, ct_kval block, int part,
                        const ct_kval *bytes, const ct_kval *y) {
    ct_kir *k = q->k;
    const ct_quantised_spec *s = q->s;
    const int each = BLOCK_WORDS / q->sums;
    ct_kval sum_at = q->sums == 1 ? block : ct__kir_addi(k, ct__kir_muli(k, block, 2), part);
    ct_kval number =
        !s->scale_codes ? ct__kir_int(k, 0)
        : q->sums == 2  ? sum_at
                       : ct__kir_div(k, block, ct__kir_int(k, s->scale_codes / CT_QUANTISED_BLOCK));
    ct_kval scale;
    if (q->panels || !s->grouped) {
        ct_kval from = ct__kir_muli(k, number, q->width);
        scale = ct__kir_load(k, q->scales.turned, ct__kir_add(k, from, lane));
    } else {
        const ct_kval at[3] = {q->first, lane, number};
        scale = ct__source_load(k, &s->column_scale, 3, at);
    }
    for (int r = 0; r < q->high; r++) {
        ct_kval own = ct__kir_addi(k, row, r);
        ct_kval from =
            ct__kir_add(k, ct__kir_muli(k, own, q->words), ct__kir_muli(k, block, BLOCK_WORDS));
        ct_kval start = q->panels
                            ? ct__kir_add(k, ct__kir_muli(k, sum_at, q->most), own)
                            : ct__kir_add(k, ct__kir_muli(k, own, q->blocks * q->sums), sum_at);
        ct_kval sum = ct__kir_load(k, q->begin, start);
        if (q->panels) sum = ct__kir_reg(k, sum); // a word serves both vectors at once
        for (int i = part * each; i < (part + 1) * each; i++) {
            ct_kval four = ct__kir_load(k, q->rows, ct__kir_addi(k, from, i));
            if (q->panels)
                ct__kir_set(k, sum, ct__kir_dot4(k, bytes[i], four, ct__kir_get(k, sum)));
            else
                sum = ct__kir_dot4(k, bytes[i], four, sum);
        }
        if (q->panels) sum = ct__kir_get(k, sum);
        const ct_kval at[2] = {last_at_most(q, ct__kir_add(k, q->row0, own)), block};
        ct_kval by = ct__kir_mul(k, ct__source_load(k, &s->row_scale, 2, at), scale);
        ct_kval f = ct__kir_cast(k, sum, CT_F32);
        ct__kir_set(k, y[r], ct__kir_fma(k, f, by, ct__kir_get(k, y[r])));
    }
}
// A block's products of `high` rows from `row` of the scratch on, put to what their registers hold.
static void block_of_rows(const quantised *q, ct_kval row, ct_kval lane, ct_kval block,
                          const ct_kval *bytes, const ct_kval *y) {
    for (int part = 0; part < q->sums; part++) sum_of_rows(q, row, lane, block, part, bytes, y);
}

static int64_t step_blocks(const quantised *q) {
    return ct__quantised_step(q->s->bits) / CT_QUANTISED_BLOCK;
}

// Of `high` rows from `row` of the scratch on and 16 columns, all of k.
static void tile(const quantised *q, ct_kval row, ct_kval lane) {
    ct_kir *k = q->k;
    ct_kval y[HIGH], words[WORDS], bytes[BLOCK_WORDS];
    for (int r = 0; r < q->high; r++) y[r] = ct__kir_reg(k, ct__kir_const(k, CT_F32, 0));
    ct_kval step = ct__kir_loop_n(k, CT_BIND_SEQ, q->blocks / step_blocks(q), "16 words");
    turn_words(q, ct__kir_muli(k, step, WORDS), ct__kir_int(k, 0), lane, words);
    for (int b = 0; b < (int)step_blocks(q); b++) {
        ct_kval block = ct__kir_addi(k, ct__kir_muli(k, step, step_blocks(q)), b);
        unsigned_bytes(q, words, b, bytes);
        block_of_rows(q, row, lane, block, bytes, y);
    }
    ct__kir_end(k);
    for (int r = 0; r < q->high; r++)
        ct__kir_store(k, q->out, ct__kir_addi(k, lane, r * q->width), ct__kir_get(k, y[r]));
}

// ---------------------------------------------------------------------------------------- panels

// `count` blocks of the tile's columns from `block0` on.
static void fill_panel(const quantised *q, ct_kval block0, ct_kval count) {
    ct_kir *k = q->k;
    ct_kval words[WORDS], bytes[BLOCK_WORDS], each = ct__kir_int(k, step_blocks(q));
    ct_kval step = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_div(k, count, each), "16 words");
    ct_kval group = ct__kir_loop_n(k, CT_BIND_SEQ, q->width / CT_LANES, "16 columns");
    ct_kval lane = ct__kir_loop_n(k, CT_BIND_TILE, CT_LANES, "column");
    ct_kval before = ct__kir_div(k, block0, each);
    turn_words(q, ct__kir_muli(k, ct__kir_add(k, before, step), WORDS), group, lane, words);
    lane = ct__kir_add(k, ct__kir_muli(k, group, CT_LANES), lane);
    for (int b = 0; b < (int)step_blocks(q); b++) {
        unsigned_bytes(q, words, b, bytes);
        ct_kval block = ct__kir_addi(k, ct__kir_muli(k, step, step_blocks(q)), b);
        ct_kval to = ct__kir_add(k, ct__kir_muli(k, block, BLOCK_WORDS * q->width), lane);
        for (int i = 0; i < BLOCK_WORDS; i++)
            ct__kir_store(k, q->panel, ct__kir_addi(k, to, i * q->width), bytes[i]);
    }
    for (int open = 0; open < 3; open++) ct__kir_end(k);
}

// Where the lines lie that rows ask for while they meet the panel, one a block: of what the next panel is filled with, which
// else is waited for. Behind all of k that is the next tile's.
typedef struct asked {
    ct_kval column, word;
} asked;
static asked next_panel(const quantised *q, ct_kval row, ct_kval block0) {
    ct_kir *k = q->k;
    const int64_t words = PANEL / step_blocks(q) * WORDS, groups = q->width / CT_LANES,
                  all = q->blocks / step_blocks(q) * WORDS;
    ct_kval part = ct__kir_div(k, row, ct__kir_int(k, q->high)), none = ct__kir_int(k, 0);
    ct_kval group = ct__kir_div(k, part, ct__kir_int(k, words / PANEL));
    ct_kval from = ct__kir_div(k, block0, ct__kir_int(k, step_blocks(q)));
    ct_kval word = ct__kir_mod(k, part, ct__kir_int(k, words / PANEL));
    word = ct__kir_add(k, ct__kir_muli(k, from, WORDS), ct__kir_muli(k, word, PANEL));
    word = ct__kir_addi(k, word, words);
    ct_kval behind = ct__kir_lt(k, ct__kir_int(k, all - 1), word);
    group = ct__kir_add(k, ct__kir_mod(k, group, ct__kir_int(k, groups)),
                        ct__kir_select(k, behind, ct__kir_int(k, groups), none));
    return (asked){ct__quantised_behind(k, q->s, q->first, group),
                   ct__kir_sub(k, word, ct__kir_select(k, behind, ct__kir_int(k, all), none))};
}
static void ask_for(const quantised *q, const asked *from, ct_kval block) {
    ct_kir *k = q->k;
    const ct_kval at[3] = {from->column, ct__kir_int(k, 0), ct__kir_add(k, from->word, block)};
    ct__kir_prefetches(k, true);
    (void)ct__source_load(k, &q->s->column_words, 3, at);
    ct__kir_prefetches(k, false);
}

// The panel's part of k, put to sums of `high` rows and the tile's columns.
static void tile_of_panel(const quantised *q, ct_kval row, ct_kval block0, ct_kval count) {
    ct_kir *k = q->k;
    ct_kval y[HIGH], place[HIGH], bytes[BLOCK_WORDS];
    const asked next = q->s->grouped ? next_panel(q, row, block0) : (asked){0};
    ct_kval lane = ct__kir_loop_n(k, CT_BIND_TILE, q->width, "column");
    for (int r = 0; r < q->high; r++) {
        place[r] = ct__kir_add(k, ct__kir_muli(k, ct__kir_addi(k, row, r), q->width), lane);
        y[r] = ct__kir_reg(k, ct__kir_load(k, q->out, place[r]));
    }
    ct_kval b = ct__kir_loop(k, CT_BIND_SEQ, count, "block");
    ct_kval from = ct__kir_add(k, ct__kir_muli(k, b, BLOCK_WORDS * q->width), lane);
    if (q->s->grouped) ask_for(q, &next, b);
    for (int i = 0; i < BLOCK_WORDS; i++)
        bytes[i] = ct__kir_load(k, q->panel, ct__kir_addi(k, from, i * q->width));
    block_of_rows(q, row, lane, ct__kir_add(k, block0, b), bytes, y);
    ct__kir_end(k);
    for (int r = 0; r < q->high; r++) ct__kir_store(k, q->out, place[r], ct__kir_get(k, y[r]));
    ct__kir_end(k);
}

// Rows and columns that are there, each once: the last tile's first columns are those of the tile before.
static void store_tile(const quantised *q, ct_kval row, ct_kval high, ct_kval early) {
    ct_kir *k = q->k;
    ct_kval from = ct__kir_add(k, q->row0, row);
    ct_kval r =
        ct__kir_loop(k, CT_BIND_SEQ, ct__kir_min(k, ct__kir_sub(k, q->s->rows, from), high), "row");
    ct_kval width = ct__kir_sub(k, ct__kir_int(k, q->width), early);
    ct_kval lane = ct__kir_add(k, early, ct__kir_loop(k, CT_BIND_LANES, width, "column"));
    const ct_kval at[2] = {ct__kir_add(k, from, r), ct__kir_add(k, q->column0, lane)};
    ct_kval v = ct__kir_load(k, q->out, ct__kir_add(k, ct__kir_muli(k, r, q->width), lane));
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

// Rows of a task: all, or as many as lie near. With panels a tile is as wide as registers allow, so that a word of a row
// serves two vectors: processors load one a cycle.
static void choose(quantised *q) {
    const ct_target *t = &q->s->target;
    const int64_t near = q->s->inner * MOST_ROWS <= NEAR ? MOST_ROWS : MOST_ROWS / 2;
    const int64_t n = q->s->each ? 1 : q->s->n_rows ? q->s->n_rows : near;
    int64_t columns = 0;
    q->panels = n > HIGH;
    q->high = n < HIGH ? (int)n : HIGH;
    q->width = CT_LANES;
    if (q->panels && t->registers * t->lanes / CT_LANES >= 32 &&
        ct__kir_is_int(q->k, q->s->columns, &columns) && columns >= 2 * CT_LANES)
        q->width = 2 * CT_LANES, q->high = HIGH / 2;
    q->tiles = ct__quantised_tiles(q->k, q->s, q->width, TILES * CT_LANES / q->width);
    const int64_t rows = n < near ? n : near, each = q->panels ? CT_LANES : q->high;
    q->most = (rows + each - 1) / each * each;
}

// What is done with rows: all of k, and stored; or a panel.
typedef struct pass {
    ct_kval early;
    ct_kval block0, count;
} pass;

static void rows_by(quantised *q, int high, ct_kval first, ct_kval count, const pass *p) {
    ct_kir *k = q->k;
    ct_kval row = ct__kir_loop(k, CT_BIND_SEQ, count, "rows");
    row = ct__kir_add(k, first, ct__kir_muli(k, row, high));
    q->high = high;
    if (q->panels) {
        tile_of_panel(q, row, p->block0, p->count);
    } else {
        ct_kval lane = ct__kir_loop_n(k, CT_BIND_TILE, CT_LANES, "column");
        tile(q, row, lane);
        ct__kir_end(k);
        store_tile(q, row, ct__kir_int(k, high), p->early);
    }
    ct__kir_end(k);
}

// Tiles of rows; where it is not known how many rows there are, one or two that are left go one by one.
static void all_rows(quantised *q, ct_kval rows, const pass *p) {
    ct_kir *k = q->k;
    const int high = q->high;
    ct_kval none = ct__kir_int(k, 0), tiles = ct__kir_ceil_div(k, rows, high);
    const bool whole = q->s->n_rows || q->s->each;
    if (!whole) tiles = ct__kir_div(k, ct__kir_addi(k, rows, high - 1 - FEW), ct__kir_int(k, high));
    rows_by(q, high, none, tiles, p);
    if (whole) return;
    ct_kval done = ct__kir_muli(k, tiles, high);
    rows_by(q, 1, done, ct__kir_sub(k, rows, done), p);
    q->high = high;
}

static void by_panels(quantised *q, ct_kval rows, ct_kval early) {
    ct_kir *k = q->k;
    ct_kval high = ct__kir_int(k, q->high), tiles = ct__kir_ceil_div(k, rows, q->high);
    ct_kval i = ct__kir_loop(k, CT_BIND_LANES,
                             ct__kir_muli(k, ct__kir_mul(k, tiles, high), q->width), "sum");
    ct__kir_store(k, q->out, i, ct__kir_const(k, CT_F32, 0));
    ct__kir_end(k);
    const int64_t panels = (q->blocks + PANEL - 1) / PANEL;
    ct_kval block0 = ct__kir_muli(k, ct__kir_loop_n(k, CT_BIND_SEQ, panels, "panel"), PANEL);
    ct_kval left = ct__kir_sub(k, ct__kir_int(k, q->blocks), block0);
    const pass p = {.block0 = block0, .count = ct__kir_min(k, left, ct__kir_int(k, PANEL))};
    fill_panel(q, block0, p.count);
    all_rows(q, rows, &p);
    ct__kir_end(k);
    store_tile(q, ct__kir_int(k, 0), rows, early);
}

void ct__template_quantised(ct_kir *k, const ct_quantised_spec *s) {
    quantised q = {.k = k, .s = s, .words = s->inner / 4, .blocks = s->inner / CT_QUANTISED_BLOCK};
    q.sums = s->scale_codes == CT_QUANTISED_BLOCK / 2 ? 2 : 1;
    choose(&q);
    const int64_t numbers = ct__quantised_numbers(s), width = q.width;
    q.rows = ct__kir_local(k, CT_I32, q.most * q.words);
    q.begin = ct__kir_local(k, CT_I32, q.most * q.blocks * q.sums);
    q.scales = (ct_quantised_scales){.width = width, .numbers = numbers};
    if (!s->grouped) q.scales.rows = ct__kir_local(k, CT_F32, width * numbers);
    if (!s->grouped || q.panels) q.scales.turned = ct__kir_local(k, CT_F32, width * numbers);
    q.out = ct__kir_local(k, CT_F32, (q.panels ? q.most : q.high) * width);
    if (q.panels) q.panel = ct__kir_local(k, CT_I32, PANEL * BLOCK_WORDS * width);
    ct_kval tiles = ct__kir_ceil_div(k, s->columns, width),
            parts = ct__kir_ceil_div(k, tiles, q.tiles);
    ct_kval blocks = ct__kir_ceil_div(k, s->rows, q.most);
    ct_kval task = ct__kir_loop(k, CT_BIND_ROWS, ct__kir_mul(k, blocks, parts), "block");
    ct_kval first = ct__kir_muli(k, ct__kir_mod(k, task, parts), q.tiles);
    q.row0 = ct__kir_muli(k, ct__kir_div(k, task, parts), q.most);
    if (s->begin) s->begin(s->env, k, q.row0);
    ct_kval rows = ct__kir_min(k, ct__kir_sub(k, s->rows, q.row0), ct__kir_int(k, q.most));
    // Tiles are whole: their last rows are the last one again.
    const int64_t each = q.panels ? CT_LANES : q.high;
    take_rows(&q, ct__kir_muli(k, ct__kir_ceil_div(k, rows, each), each));
    ct_kval many = ct__kir_min(k, ct__kir_sub(k, tiles, first), ct__kir_int(k, q.tiles));
    ct_kval t = ct__kir_loop(k, CT_BIND_SEQ, many, "columns");
    // The last tile begins earlier, so that all are whole.
    const int64_t unit = s->grouped ? CT_LANES : 1;
    ct_kval begin = ct__kir_muli(k, ct__kir_add(k, first, t), width / unit);
    ct_kval last = ct__kir_addi(k, ct__kir_div(k, s->columns, ct__kir_int(k, unit)), -width / unit);
    q.scales.first = q.first = ct__kir_min(k, begin, last);
    q.column0 = ct__kir_muli(k, q.first, unit);
    if (!s->grouped || q.panels) ct__quantised_scales(k, s, &q.scales);
    const pass whole = {.early = ct__kir_muli(k, ct__kir_sub(k, begin, q.first), unit)};
    if (q.panels)
        by_panels(&q, rows, whole.early);
    else
        all_rows(&q, rows, &whole);
    ct__kir_end(k);
    ct__kir_end(k);
}
