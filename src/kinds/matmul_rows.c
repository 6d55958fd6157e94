// Products of a few rows (small-M, GEMV). Each element of b is used once per row, so packing it gains
// nothing, and it goes from memory straight into the sums. The rows of a are packed, since every column reads
// them. If b is contiguous along k a tile is 16 columns, whose loads are transposed in registers; else the
// sums of many columns are kept in scratch while a few rows of b are added to them.
#include "kinds/matmul.h"

enum {
    // rows of b that are added to the sums at a time: more would share a set of the cache
    STEPS = 8,
    MAX_PACKED = 1 << 17, // elements of a that a task packs
    PIECE = 128,          // columns of a piece, during which the next rows are prefetched
    LINE = 16,            // elements of a cache line
    WIDE = 1024,          // columns of a task whose sums are in scratch
    NARROW = 64,          // minimum columns of any task, since it packs all of a
};

typedef struct few {
    ct_kir *k;
    const ct_matmul_spec *s;
    int rows;
    int64_t inner, block;
    bool pairs;      // b is read as pairs of neighbours
    int a, acc, sum; // scratch: (rows, inner), (rows, block), (rows, block)
    ct_kval at[CT_MAX_RANK + 2];
    ct_kval col0, cols;    // the task's columns
    ct_kval chunk, k0, kn; // the current chunk
} few;

static ct_kval few_rows_load_b(few *f, ct_kval k, ct_kval column) {
    int n = f->s->n_batch;
    f->at[n] = k;
    f->at[n + 1] = ct__kir_add(f->k, f->col0, column);
    return ct__source_load(f->k, &f->s->b, n + 2, f->at);
}
// Loads two steps of k in memory order, the first in the low half.
static ct_kval few_rows_load_pair(few *f, ct_kval pair, ct_kval column) {
    f->at[f->s->n_batch] = pair;
    f->at[f->s->n_batch + 1] = ct__kir_add(f->k, f->col0, column);
    return f->s->b.pair(f->s->b.env, f->k, f->at);
}
static ct_kval few_rows_load_a(few *f, int row, ct_kval k) {
    return ct__kir_load(f->k, f->a, ct__kir_addi(f->k, k, row * f->inner));
}
static ct_kval few_rows_index(few *f, int row, ct_kval column) {
    return ct__kir_addi(f->k, column, row * f->block);
}
static ct_kval few_rows_zero(few *f) { return ct__kir_const(f->k, f->s->dtype, 0); }

static void few_rows_pack_a(few *f) {
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

static void few_rows_open_chunk(few *f) {
    ct_kir *k = f->k;
    const int64_t steps = ct__matmul_chunk(f->s), chunks = (f->inner + steps - 1) / steps;
    ct_kval size = ct__kir_int(k, steps);
    f->chunk = ct__kir_loop_n(k, CT_BIND_SEQ, chunks, "chunk of k");
    f->k0 = ct__kir_muli(k, f->chunk, steps);
    f->kn = ct__kir_min(k, ct__kir_sub(k, ct__kir_int(k, f->inner), f->k0), size);
}

// Adds the chunk's sum to the sum of the chunks before.
static ct_kval few_rows_add_chunk(few *f, ct_kval before, ct_kval own) {
    ct_kir *k = f->k;
    ct_kval first = ct__kir_bin(k, CT_K_EQ, f->chunk, ct__kir_int(k, 0));
    return ct__kir_select(k, first, own, ct__kir_add(k, before, own));
}

// Calls step for the chunk's k, `group` at a time and then one at a time.
static void few_rows_loop_k(few *f, int group, void (*step)(few *f, ct_kval k, int n, void *env),
                            void *env) {
    ct_kir *k = f->k;
    ct_kval many = ct__kir_int(k, group), done = ct__kir_div(k, f->kn, many);
    ct_kval g = ct__kir_loop(k, CT_BIND_SEQ, done, "steps of k");
    step(f, ct__kir_add(k, f->k0, ct__kir_muli(k, g, group)), group, env);
    ct__kir_end(k);
    if (f->pairs) return; // k is a multiple of the group
    g = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_mod(k, f->kn, many), "step of k");
    ct_kval from = ct__kir_add(k, f->k0, ct__kir_muli(k, done, group));
    step(f, ct__kir_add(k, from, g), 1, env);
    ct__kir_end(k);
}

// ------------------------------------------------------------------------ b is contiguous along k

typedef struct column_sums {
    ct_kval tile, column; // the first column of the tile, and the lane's
    const ct_kval *acc;   // (rows) registers
    bool has_next;        // there are columns after this tile
} column_sums;

// Loads b at n steps of k starting at `at`. Pairs are transposed as words, which is half the work, and are
// widened in registers.
static void few_rows_load_steps(few *f, ct_kval at, int n, ct_kval column, ct_kval *b) {
    ct_kir *k = f->k;
    if (!f->pairs) {
        for (int i = 0; i < n; i++) b[i] = few_rows_load_b(f, ct__kir_addi(k, at, i), column);
        return;
    }
    ct_kval first = ct__kir_div(k, at, ct__kir_int(k, 2));
    for (int i = 0; i < n / 2; i++)
        b[2 * i] = few_rows_load_pair(f, ct__kir_addi(k, first, i), column);
    if (f->s->b.pair_of == CT_F16) {
        for (int i = 0; i < n; i += 2) {
            b[i + 1] = ct__kir_unpack_half(k, b[i], true);
            b[i] = ct__kir_unpack_half(k, b[i], false);
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

// Prefetches the next 16 columns while these are summed. If they are whole lines of columns, they are
// requested in memory order, which is faster, with as many lines per step as these columns take.
static void few_rows_prefetch_columns(few *f, ct_kval at, int n, const column_sums *c) {
    ct_kir *k = f->k;
    ct_kval inner = ct__kir_int(k, f->inner), done = ct__kir_muli(k, at, CT_LANES);
    const bool in_order = f->inner % (CT_LANES * n) == 0;
    ct_kval next = in_order ? ct__kir_add(k, c->tile, ct__kir_div(k, done, inner)) : c->column;
    if (in_order) at = ct__kir_mod(k, done, inner);
    next = ct__kir_addi(k, next, CT_LANES);
    ct__kir_set_prefetch_mode(k, true);
    for (int i = 0; i < (in_order ? CT_LANES : 1); i++, at = ct__kir_addi(k, at, n)) {
        if (f->pairs)
            (void)few_rows_load_pair(f, ct__kir_div(k, at, ct__kir_int(k, 2)), next);
        else
            (void)few_rows_load_b(f, at, next);
    }
    ct__kir_set_prefetch_mode(k, false);
}

static void few_rows_column_step(few *f, ct_kval at, int n, void *env) {
    const column_sums *c = env;
    ct_kir *k = f->k;
    ct_kval b[2 * CT_LANES];
    if (n > 1 && c->has_next) few_rows_prefetch_columns(f, at, n, c);
    few_rows_load_steps(f, at, n, c->column, b);
    for (int i = 0; i < n; i++)
        for (int r = 0; r < f->rows; r++) {
            ct_kval a = few_rows_load_a(f, r, ct__kir_addi(k, at, i));
            ct__kir_set(k, c->acc[r], ct__matmul_step(k, f->s, a, b[i], ct__kir_get(k, c->acc[r])));
        }
}

// Sums column `column` of the block, and stores the sums to scratch.
static void few_rows_sum_column(few *f, ct_kval tile, ct_kval column, bool has_next) {
    ct_kir *k = f->k;
    ct_kval acc[CT_FEW_ROWS], sum[CT_FEW_ROWS];
    for (int r = 0; r < f->rows; r++) sum[r] = ct__kir_reg(k, few_rows_zero(f));
    few_rows_open_chunk(f);
    for (int r = 0; r < f->rows; r++) acc[r] = ct__kir_reg(k, few_rows_zero(f));
    few_rows_loop_k(f, f->pairs ? 2 * CT_LANES : CT_LANES, few_rows_column_step,
                    &(column_sums){tile, column, acc, has_next});
    for (int r = 0; r < f->rows; r++)
        ct__kir_set(k, sum[r],
                    few_rows_add_chunk(f, ct__kir_get(k, sum[r]), ct__kir_get(k, acc[r])));
    ct__kir_end(k);
    for (int r = 0; r < f->rows; r++)
        ct__kir_store(k, f->sum, few_rows_index(f, r, column), ct__kir_get(k, sum[r]));
}

static void few_rows_by_column(few *f) {
    ct_kir *k = f->k;
    ct_kval lanes = ct__kir_int(k, CT_LANES), whole = ct__kir_div(k, f->cols, lanes);
    ct_kval tile = ct__kir_loop(k, CT_BIND_SEQ, whole, "16 columns");
    tile = ct__kir_muli(k, tile, CT_LANES);
    ct_kval c = ct__kir_loop_n(k, CT_BIND_TILE, CT_LANES, "column");
    few_rows_sum_column(f, tile, ct__kir_add(k, tile, c), true);
    ct__kir_end_n(k, 2);
    c = ct__kir_loop(k, CT_BIND_LANES, ct__kir_mod(k, f->cols, lanes), "last column");
    whole = ct__kir_muli(k, whole, CT_LANES);
    few_rows_sum_column(f, whole, ct__kir_add(k, whole, c), false);
    ct__kir_end(k);
}

// -------------------------------------------------------------------- b is not contiguous along k

// Returns the number of steps of k that are STEPS rows.
static int few_rows_step_count(const few *f) { return f->s->pairs ? STEPS / 2 : STEPS; }

// Prefetches the next rows of b, starting at column `from`.
static void few_rows_prefetch_rows(few *f, ct_kval at, ct_kval from) {
    ct_kir *k = f->k;
    ct_kval i = ct__kir_loop_n(k, CT_BIND_SEQ, few_rows_step_count(f), "row wanted soon");
    ct_kval line = ct__kir_loop_n(k, CT_BIND_SEQ, PIECE / LINE, "line");
    at = ct__kir_add(k, ct__kir_addi(k, at, few_rows_step_count(f)), i);
    ct__kir_set_prefetch_mode(k, true);
    (void)few_rows_load_b(f, at, ct__kir_add(k, from, ct__kir_muli(k, line, LINE)));
    ct__kir_set_prefetch_mode(k, false);
    ct__kir_end_n(k, 2);
}

static void few_rows_row_step(few *f, ct_kval at, int n, void *env) {
    (void)env;
    ct_kir *k = f->k;
    ct_kval piece =
        ct__kir_loop(k, CT_BIND_SEQ, ct__kir_ceil_div(k, f->cols, PIECE), "piece of rows");
    ct_kval from = ct__kir_muli(k, piece, PIECE), piece_size = ct__kir_int(k, PIECE);
    if (n > 1) few_rows_prefetch_rows(f, at, from);
    ct_kval n_columns = ct__kir_min(k, ct__kir_sub(k, f->cols, from), piece_size);
    ct_kval b[STEPS], j = ct__kir_loop(k, CT_BIND_LANES, n_columns, "column");
    j = ct__kir_add(k, from, j);
    for (int i = 0; i < n; i++) b[i] = few_rows_load_b(f, ct__kir_addi(k, at, i), j);
    for (int r = 0; r < f->rows; r++) {
        ct_kval v = ct__kir_load(k, f->acc, few_rows_index(f, r, j));
        for (int i = 0; i < n; i++)
            v = ct__matmul_step(k, f->s, few_rows_load_a(f, r, ct__kir_addi(k, at, i)), b[i], v);
        ct__kir_store(k, f->acc, few_rows_index(f, r, j), v);
    }
    ct__kir_end_n(k, 2);
}

static void few_rows_by_row(few *f) {
    ct_kir *k = f->k;
    few_rows_open_chunk(f);
    ct_kval j = ct__kir_loop(k, CT_BIND_LANES, f->cols, "column");
    for (int r = 0; r < f->rows; r++)
        ct__kir_store(k, f->acc, few_rows_index(f, r, j), few_rows_zero(f));
    ct__kir_end(k);
    few_rows_loop_k(f, few_rows_step_count(f), few_rows_row_step, NULL);
    j = ct__kir_loop(k, CT_BIND_LANES, f->cols, "column");
    ct_kval has_sum = ct__kir_bin(k, CT_K_NE, f->chunk, ct__kir_int(k, 0));
    for (int r = 0; r < f->rows; r++) {
        ct_kval before = ct__kir_load_if(k, f->sum, few_rows_index(f, r, j), has_sum);
        ct_kval own = ct__kir_load(k, f->acc, few_rows_index(f, r, j));
        ct__kir_store(k, f->sum, few_rows_index(f, r, j), few_rows_add_chunk(f, before, own));
    }
    ct__kir_end_n(k, 2);
}

// -------------------------------------------------------------------------------------- the kernel

bool ct__matmul_has_few_rows(const ct_kir *k, const ct_matmul_spec *s) {
    int64_t rows, inner;
    const ct_matmul_tile *t = &s->tile;
    return ct__kir_is_int(k, s->rows, &rows) && rows >= 1 && rows <= CT_FEW_ROWS &&
           ct__kir_is_int(k, s->inner, &inner) && inner >= 1 && rows * inner <= MAX_PACKED &&
           s->n_column_axes < 2 && s->n_inner_axes < 2 && s->n_result_axes < 2 && !t->rows &&
           !t->row_block;
}

// Returns the columns of a task: several tasks per core, since cores do not all run at the same speed, but
// long pieces of rows.
static int64_t few_rows_choose_columns(const few *f, int64_t most) {
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
    f.block = few_rows_choose_columns(&f, along_k ? WIDE / 4 : WIDE);
    f.a = ct__kir_local(k, ct__matmul_packed(s), rows * f.inner);
    f.sum = ct__kir_local(k, s->dtype, rows * f.block);
    if (!along_k) f.acc = ct__kir_local(k, s->dtype, rows * f.block);
    ct_kval blocks = ct__kir_ceil_div(k, s->columns, f.block), tasks = blocks;
    for (int i = 0; i < n; i++) tasks = ct__kir_mul(k, tasks, s->batch[i]);
    ct_kval task = ct__kir_loop(k, CT_BIND_ROWS, tasks, "block");
    f.col0 = ct__kir_muli(k, ct__kir_mod(k, task, blocks), f.block);
    ct__unflatten(k, ct__kir_div(k, task, blocks), (int)n, s->batch, f.at);
    f.cols = ct__kir_min(k, ct__kir_sub(k, s->columns, f.col0), ct__kir_int(k, f.block));
    few_rows_pack_a(&f);
    if (along_k)
        few_rows_by_column(&f);
    else
        few_rows_by_row(&f);
    for (int r = 0; r < f.rows; r++) {
        ct_kval j = ct__kir_loop(k, CT_BIND_LANES, f.cols, "column of the result");
        f.at[n] = ct__kir_int(k, r);
        f.at[n + 1] = ct__kir_add(k, f.col0, j);
        ct__sink_store(k, &s->c, (int)n + 2, f.at,
                       ct__kir_load(k, f.sum, few_rows_index(&f, r, j)));
        ct__kir_end(k);
    }
    ct__kir_end(k);
}
