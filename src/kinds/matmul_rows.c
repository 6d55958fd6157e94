// Products of a few rows: there is nothing to gain from packing b, each element of which is used once a
// row, so it goes from memory straight into the sums. The rows of a are packed, since every column reads
// them. Where b is contiguous along k a tile is 16 columns, whose loads are turned in registers; else
// sums of many columns wait in scratch while a few rows of b run over them.
#include "kinds/matmul.h"

enum {
    STEPS = 8,             // rows of b that run over the sums at a time: more share a cache's set
    MOST_PACKED = 1 << 17, // elements of a that a task packs
    PIECE = 128,           // columns of them at a time, while the next rows are asked for
    LINE = 16,             // elements of a cache line
    WIDE = 1024,           // columns of a task whose sums wait in scratch
    NARROW = 64,           // of any: it packs all of a
};

typedef struct few {
    ct_kir *k;
    const ct_matmul_spec *s;
    int rows;
    int64_t inner, block;
    bool pairs;      // b is read two neighbours at a time
    int a, acc, sum; // scratch: (rows, inner), (rows, block), (rows, block)
    ct_kval at[CT_MAX_RANK + 2];
    ct_kval col0, cols;    // the task's columns
    ct_kval chunk, k0, kn; // the chunk
} few;

static ct_kval load_b(few *f, ct_kval k, ct_kval column) {
    int n = f->s->n_batch;
    f->at[n] = k;
    f->at[n + 1] = ct__kir_add(f->k, f->col0, column);
    return ct__source_load(f->k, &f->s->b, n + 2, f->at);
}
// Two steps of k as they lie, the first in the low half.
static ct_kval load_pair(few *f, ct_kval pair, ct_kval column) {
    f->at[f->s->n_batch] = pair;
    f->at[f->s->n_batch + 1] = ct__kir_add(f->k, f->col0, column);
    return f->s->b.pair(f->s->b.env, f->k, f->at);
}
static ct_kval packed(few *f, int row, ct_kval k) {
    return ct__kir_load(f->k, f->a, ct__kir_addi(f->k, k, row * f->inner));
}
static ct_kval in_block(few *f, int row, ct_kval column) {
    return ct__kir_addi(f->k, column, row * f->block);
}
static ct_kval zero(few *f) { return ct__kir_const(f->k, f->s->dtype, 0); }

static void pack_rows(few *f) {
    ct_kir *k = f->k;
    int n = f->s->n_batch;
    for (int r = 0; r < f->rows; r++) {
        ct_kval kk = ct__kir_loop_n(k, CT_BIND_LANES, f->inner, "pack row of a");
        f->at[n] = ct__kir_int(k, r);
        f->at[n + 1] = kk;
        ct_kval v = ct__source_load(k, &f->s->a, n + 2, f->at);
        ct__kir_store(k, f->a, ct__kir_addi(k, kk, r * f->inner), v);
        ct__kir_end(k);
    }
}

static void open_chunk(few *f) {
    ct_kir *k = f->k;
    const int64_t steps = ct__matmul_chunk(f->s), chunks = (f->inner + steps - 1) / steps;
    ct_kval size = ct__kir_int(k, steps);
    f->chunk = ct__kir_loop_n(k, CT_BIND_SEQ, chunks, "chunk of k");
    f->k0 = ct__kir_muli(k, f->chunk, steps);
    f->kn = ct__kir_min(k, ct__kir_sub(k, ct__kir_int(k, f->inner), f->k0), size);
}

// The chunk's sum put to those before it.
static ct_kval with_chunk(few *f, ct_kval before, ct_kval own) {
    ct_kir *k = f->k;
    ct_kval first = ct__kir_bin(k, CT_K_EQ, f->chunk, ct__kir_int(k, 0));
    return ct__kir_select(k, first, own, ct__kir_add(k, before, own));
}

// Calls step for the chunk's k, `group` at a time and then one at a time.
static void each_k(few *f, int group, void (*step)(few *f, ct_kval k, int n, void *env),
                   void *env) {
    ct_kir *k = f->k;
    ct_kval many = ct__kir_int(k, group), done = ct__kir_div(k, f->kn, many);
    ct_kval g = ct__kir_loop(k, CT_BIND_SEQ, done, "steps of k");
    step(f, ct__kir_add(k, f->k0, ct__kir_muli(k, g, group)), group, env);
    ct__kir_end(k);
    if (f->pairs) return; // k is whole groups of them
    g = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_mod(k, f->kn, many), "step of k");
    ct_kval from = ct__kir_add(k, f->k0, ct__kir_muli(k, done, group));
    step(f, ct__kir_add(k, from, g), 1, env);
    ct__kir_end(k);
}

// ------------------------------------------------------------------------ b is contiguous along k

typedef struct column_sums {
    ct_kval tile, column; // its first, and the lane's
    const ct_kval *acc;   // (rows) registers
    bool ahead;           // are there columns behind?
} column_sums;

// b at n steps of k from `at` on. Pairs are turned as they lie, which is half the work, and are widened
// in registers.
static void load_steps(few *f, ct_kval at, int n, ct_kval column, ct_kval *b) {
    ct_kir *k = f->k;
    if (!f->pairs) {
        for (int i = 0; i < n; i++) b[i] = load_b(f, ct__kir_addi(k, at, i), column);
        return;
    }
    ct_kval first = ct__kir_div(k, at, ct__kir_int(k, 2));
    for (int i = 0; i < n / 2; i++) b[2 * i] = load_pair(f, ct__kir_addi(k, first, i), column);
    if (f->s->b.pair_of == CT_F16) {
        for (int i = 0; i < n; i += 2) {
            b[i + 1] = ct__kir_half(k, b[i], true);
            b[i] = ct__kir_half(k, b[i], false);
        }
        return;
    }
    ct_kval half = ct__kir_const_int(k, CT_U32, 16),
            high = ct__kir_const_int(k, CT_U32, 0xffff0000);
    for (int i = 0; i < n; i += 2) {
        ct_kval two = b[i];
        b[i] = ct__kir_bitcast(k, ct__kir_bin(k, CT_K_SHL, two, half), CT_F32);
        b[i + 1] = ct__kir_bitcast(k, ct__kir_bin(k, CT_K_AND, two, high), CT_F32);
    }
}

// The next 16 columns, while these are summed: in the order of memory, which is the faster one, as many lines a step as
// it takes of these, where they are lines of one column.
static void ask_for_columns(few *f, ct_kval at, int n, const column_sums *c) {
    ct_kir *k = f->k;
    ct_kval inner = ct__kir_int(k, f->inner), done = ct__kir_muli(k, at, CT_LANES);
    const bool in_order = f->inner % (CT_LANES * n) == 0;
    ct_kval next = in_order ? ct__kir_add(k, c->tile, ct__kir_div(k, done, inner)) : c->column;
    if (in_order) at = ct__kir_mod(k, done, inner);
    next = ct__kir_addi(k, next, CT_LANES);
    ct__kir_prefetches(k, true);
    for (int i = 0; i < (in_order ? CT_LANES : 1); i++, at = ct__kir_addi(k, at, n)) {
        if (f->pairs)
            (void)load_pair(f, ct__kir_div(k, at, ct__kir_int(k, 2)), next);
        else
            (void)load_b(f, at, next);
    }
    ct__kir_prefetches(k, false);
}

static void columns_step(few *f, ct_kval at, int n, void *env) {
    const column_sums *c = env;
    ct_kir *k = f->k;
    ct_kval b[2 * CT_LANES];
    if (n > 1 && c->ahead) ask_for_columns(f, at, n, c);
    load_steps(f, at, n, c->column, b);
    for (int i = 0; i < n; i++)
        for (int r = 0; r < f->rows; r++) {
            ct_kval a = packed(f, r, ct__kir_addi(k, at, i));
            ct__kir_set(k, c->acc[r], ct__matmul_step(k, f->s, a, b[i], ct__kir_get(k, c->acc[r])));
        }
}

// Column `column` of the block, whose sums go to scratch.
static void sum_column(few *f, ct_kval tile, ct_kval column, bool ahead) {
    ct_kir *k = f->k;
    ct_kval acc[CT_FEW_ROWS], sum[CT_FEW_ROWS];
    for (int r = 0; r < f->rows; r++) sum[r] = ct__kir_reg(k, zero(f));
    open_chunk(f);
    for (int r = 0; r < f->rows; r++) acc[r] = ct__kir_reg(k, zero(f));
    each_k(f, f->pairs ? 2 * CT_LANES : CT_LANES, columns_step,
           &(column_sums){tile, column, acc, ahead});
    for (int r = 0; r < f->rows; r++)
        ct__kir_set(k, sum[r], with_chunk(f, ct__kir_get(k, sum[r]), ct__kir_get(k, acc[r])));
    ct__kir_end(k);
    for (int r = 0; r < f->rows; r++)
        ct__kir_store(k, f->sum, in_block(f, r, column), ct__kir_get(k, sum[r]));
}

static void by_column(few *f) {
    ct_kir *k = f->k;
    ct_kval lanes = ct__kir_int(k, CT_LANES), whole = ct__kir_div(k, f->cols, lanes);
    ct_kval tile = ct__kir_loop(k, CT_BIND_SEQ, whole, "16 columns");
    tile = ct__kir_muli(k, tile, CT_LANES);
    ct_kval c = ct__kir_loop_n(k, CT_BIND_TILE, CT_LANES, "column");
    sum_column(f, tile, ct__kir_add(k, tile, c), true);
    ct__kir_end(k);
    ct__kir_end(k);
    c = ct__kir_loop(k, CT_BIND_LANES, ct__kir_mod(k, f->cols, lanes), "last column");
    whole = ct__kir_muli(k, whole, CT_LANES);
    sum_column(f, whole, ct__kir_add(k, whole, c), false);
    ct__kir_end(k);
}

// ------------------------------------------------------------------------------------------ b is not

// Steps of k that are STEPS rows.
static int steps_of(const few *f) { return f->s->pairs ? STEPS / 2 : STEPS; }

// The next rows of b from column `from` on.
static void ask_for_rows(few *f, ct_kval at, ct_kval from) {
    ct_kir *k = f->k;
    ct_kval i = ct__kir_loop_n(k, CT_BIND_SEQ, steps_of(f), "row wanted soon");
    ct_kval line = ct__kir_loop_n(k, CT_BIND_SEQ, PIECE / LINE, "line");
    at = ct__kir_add(k, ct__kir_addi(k, at, steps_of(f)), i);
    ct__kir_prefetches(k, true);
    (void)load_b(f, at, ct__kir_add(k, from, ct__kir_muli(k, line, LINE)));
    ct__kir_prefetches(k, false);
    ct__kir_end(k);
    ct__kir_end(k);
}

static void rows_step(few *f, ct_kval at, int n, void *env) {
    (void)env;
    ct_kir *k = f->k;
    ct_kval piece =
        ct__kir_loop(k, CT_BIND_SEQ, ct__kir_ceil_div(k, f->cols, PIECE), "piece of rows");
    ct_kval from = ct__kir_muli(k, piece, PIECE), most = ct__kir_int(k, PIECE);
    if (n > 1) ask_for_rows(f, at, from);
    ct_kval some = ct__kir_min(k, ct__kir_sub(k, f->cols, from), most);
    ct_kval b[STEPS], j = ct__kir_loop(k, CT_BIND_LANES, some, "column");
    j = ct__kir_add(k, from, j);
    for (int i = 0; i < n; i++) b[i] = load_b(f, ct__kir_addi(k, at, i), j);
    for (int r = 0; r < f->rows; r++) {
        ct_kval v = ct__kir_load(k, f->acc, in_block(f, r, j));
        for (int i = 0; i < n; i++)
            v = ct__matmul_step(k, f->s, packed(f, r, ct__kir_addi(k, at, i)), b[i], v);
        ct__kir_store(k, f->acc, in_block(f, r, j), v);
    }
    ct__kir_end(k);
    ct__kir_end(k);
}

static void by_row(few *f) {
    ct_kir *k = f->k;
    open_chunk(f);
    ct_kval j = ct__kir_loop(k, CT_BIND_LANES, f->cols, "column");
    for (int r = 0; r < f->rows; r++) ct__kir_store(k, f->acc, in_block(f, r, j), zero(f));
    ct__kir_end(k);
    each_k(f, steps_of(f), rows_step, NULL);
    j = ct__kir_loop(k, CT_BIND_LANES, f->cols, "column");
    ct_kval later = ct__kir_bin(k, CT_K_NE, f->chunk, ct__kir_int(k, 0));
    for (int r = 0; r < f->rows; r++) {
        ct_kval before = ct__kir_load_if(k, f->sum, in_block(f, r, j), later);
        ct_kval own = ct__kir_load(k, f->acc, in_block(f, r, j));
        ct__kir_store(k, f->sum, in_block(f, r, j), with_chunk(f, before, own));
    }
    ct__kir_end(k);
    ct__kir_end(k);
}

// -------------------------------------------------------------------------------------- the kernel

bool ct__matmul_has_few_rows(const ct_kir *k, const ct_matmul_spec *s) {
    int64_t rows, inner;
    const ct_matmul_tile *t = &s->tile;
    return ct__kir_is_int(k, s->rows, &rows) && rows >= 1 && rows <= CT_FEW_ROWS &&
           ct__kir_is_int(k, s->inner, &inner) && inner >= 1 && rows * inner <= MOST_PACKED &&
           s->n_column_axes < 2 && s->n_inner_axes < 2 && s->n_result_axes < 2 && !t->rows &&
           !t->row_block;
}

// Columns of a task: some tasks a core, since cores do not all run at one speed, but long pieces of rows.
static int64_t column_block(const few *f, int64_t most) {
    int64_t columns = most * 8, cores = f->s->target.cores > 0 ? f->s->target.cores : 1, n = 0;
    if (ct__kir_is_int(f->k, f->s->columns, &n)) columns = n;
    int64_t block = (columns / (cores * 2) + CT_LANES - 1) / CT_LANES * CT_LANES;
    return block < NARROW ? NARROW : block > most ? most : block;
}

void ct__template_few_rows(ct_kir *k, const ct_matmul_spec *s) {
    few f = {.k = k, .s = s, .acc = -1};
    int64_t rows = 1, n = s->n_batch;
    ct__kir_is_int(k, s->rows, &rows);
    ct__kir_is_int(k, s->inner, &f.inner);
    f.rows = (int)rows;
    const bool along_k =
        ct__source_along(k, &s->b, (int)n) && !ct__source_along(k, &s->b, (int)n + 1);
    f.pairs = along_k && s->b.pair && f.inner % (2 * CT_LANES) == 0;
    f.block = column_block(&f, along_k ? WIDE / 4 : WIDE);
    f.a = ct__kir_local(k, ct__matmul_packed(s), rows * f.inner);
    f.sum = ct__kir_local(k, s->dtype, rows * f.block);
    if (!along_k) f.acc = ct__kir_local(k, s->dtype, rows * f.block);
    ct_kval blocks = ct__kir_ceil_div(k, s->columns, f.block), tasks = blocks;
    for (int i = 0; i < n; i++) tasks = ct__kir_mul(k, tasks, s->batch[i]);
    ct_kval task = ct__kir_loop(k, CT_BIND_ROWS, tasks, "block");
    f.col0 = ct__kir_muli(k, ct__kir_mod(k, task, blocks), f.block);
    ct__unflatten(k, ct__kir_div(k, task, blocks), (int)n, s->batch, f.at);
    f.cols = ct__kir_min(k, ct__kir_sub(k, s->columns, f.col0), ct__kir_int(k, f.block));
    pack_rows(&f);
    if (along_k)
        by_column(&f);
    else
        by_row(&f);
    for (int r = 0; r < f.rows; r++) {
        ct_kval j = ct__kir_loop(k, CT_BIND_LANES, f.cols, "column of the result");
        f.at[n] = ct__kir_int(k, r);
        f.at[n + 1] = ct__kir_add(k, f.col0, j);
        ct__sink_store(k, &s->c, (int)n + 2, f.at, ct__kir_load(k, f.sum, in_block(&f, r, j)));
        ct__kir_end(k);
    }
    ct__kir_end(k);
}
