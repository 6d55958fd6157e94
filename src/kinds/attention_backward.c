// The gradients of attention. Probabilities are recomputed as exp(score - log(sum(exp(scores)))). With the
// cotangent of the result (c) and delta, the sum of c times the result, the cotangents are
//     of values p' c,    of scores p (c v' - delta),    of queries and keys those times keys and queries.
#include "kinds/attention_block.h"

#include <math.h>

enum { BLOCK = CT_ATTENTION_BLOCK, TILE = CT_ATTENTION_TILE };

typedef struct backward {
    ct_attention a;
    int c_rows, c_transposed; // scratch: (width, e_pitch), (e_pitch, width)
    int c_scores;             // scratch: (block, width)
    int total, delta;         // scratch: (width)
    int c_q, c_k, c_v;        // scratch: (width, d_pitch), (block, d_pitch), (block, e_pitch)
    bool accumulates_q;       // cotangents of queries are accumulated in the result's buffer
    ct_kval row;              // of the tiles being written: the first key or query
    // The product that is added to `to`: rows of `numbers`, lanes of `lanes`.
    int numbers, lanes, to;
    int64_t by_row, by_i, pitch;
} backward;

// Writes the probabilities of a tile of keys, and the cotangents of the dot products with the queries.
static void attention_bwd_write_scores(void *env, ct_kval lane) {
    backward *b = env;
    const ct_attention *a = &b->a;
    const ct_attention_spec *s = a->s;
    ct_kir *k = a->k;
    ct_kval p[TILE], tanh_scores[TILE], c[TILE], total = ct__kir_load(k, b->total, lane);
    ct__attention_scores(a, b->row, lane, p, tanh_scores);
    for (int r = 0; r < b->a.high; r++)
        p[r] = ct__kir_math(k, CT_MATH_EXP, ct__kir_sub(k, p[r], total));
    const bool has_keep = s->keep.extent != CT_ATTENTION_NONE;
    ct_kval keep[TILE];
    for (int r = 0; r < b->a.high; r++) {
        ct_kval key = ct__kir_addi(k, b->row, r), dropped = p[r];
        if (has_keep) {
            keep[r] = ct__attention_panel_at(a, &a->keep, key, lane);
            dropped = ct__kir_mul(k, dropped, keep[r]);
        }
        ct__kir_store(k, a->p, ct__attention_in_row(&b->a, key, lane), dropped);
    }
    const ct_attention_chain products = {.n = s->e,
                                         .numbers = a->values,
                                         .at = ct__kir_muli(k, b->row, a->e_pitch),
                                         .by_row = a->e_pitch,
                                         .by_i = 1,
                                         .lanes = b->c_transposed,
                                         .lane = lane,
                                         .lane_by_i = a->width};
    ct__attention_chain(a, &products, c);
    ct_kval delta = ct__kir_load(k, b->delta, lane), one = ct__kir_const(k, s->dtype, 1);
    for (int r = 0; r < b->a.high; r++) {
        if (has_keep) c[r] = ct__kir_mul(k, c[r], keep[r]);
        ct_kval v = ct__kir_mul(k, p[r], ct__kir_sub(k, c[r], delta));
        if (s->cap > 0)
            v = ct__kir_mul(k, v,
                            ct__kir_sub(k, one, ct__kir_mul(k, tanh_scores[r], tanh_scores[r])));
        if (s->fill) { // a masked score is a constant, so it has no gradient
            ct_kval visible = ct__attention_panel_at(a, &a->mask, ct__kir_addi(k, b->row, r), lane);
            ct_kval zero = ct__kir_const(k, s->dtype, 0);
            v = ct__kir_select(k, ct__kir_bin(k, CT_K_NE, visible, zero), v, zero);
        }
        if (s->scale != 1) v = ct__kir_mul(k, v, ct__kir_const(k, s->dtype, s->scale));
        ct__kir_store(k, b->c_scores, ct__attention_in_row(&b->a, ct__kir_addi(k, b->row, r), lane),
                      v);
    }
}

// Adds to rows of `to`, starting at `row`, the product of rows of `numbers` and columns of `lanes` over the
// block.
static void attention_bwd_write_product(void *env, ct_kval lane) {
    backward *b = env;
    const ct_attention *a = &b->a;
    ct_kir *k = a->k;
    ct_kval own[TILE];
    const ct_attention_chain products = {.n = BLOCK,
                                         .numbers = b->numbers,
                                         .at = ct__kir_muli(k, b->row, b->by_row),
                                         .by_row = b->by_row,
                                         .by_i = b->by_i,
                                         .lanes = b->lanes,
                                         .lane = lane,
                                         .lane_by_i = b->pitch};
    ct__attention_chain(a, &products, own);
    for (int r = 0; r < b->a.high; r++) {
        ct_kval at = ct__kir_muli(k, ct__kir_addi(k, b->row, r), b->pitch);
        at = ct__kir_add(k, at, lane);
        ct__kir_store(k, b->to, at, ct__kir_add(k, ct__kir_load(k, b->to, at), own[r]));
    }
}
static void attention_bwd_add_product(backward *b, int numbers, int64_t by_row, int64_t by_i,
                                      int lanes, int64_t pitch, int to) {
    ct_kir *k = b->a.k;
    b->numbers = numbers, b->by_row = by_row, b->by_i = by_i;
    b->lanes = lanes, b->pitch = pitch, b->to = to;
    b->row = ct__kir_loop_n(k, CT_BIND_SEQ, BLOCK / b->a.high, "rows");
    b->row = ct__kir_muli(k, b->row, b->a.high);
    ct__attention_tiles(&b->a, pitch, attention_bwd_write_product, b);
    ct__kir_end(k);
}

// ---------------------------------------------------------------------------------------- the blocks

// Sets a row of scratch to zero.
static void attention_bwd_clear_row(backward *b, int of, ct_kval row, int64_t pitch) {
    ct_kir *k = b->a.k;
    ct_kval i = ct__kir_loop_n(k, CT_BIND_LANES, pitch, "number of a row that sees nothing");
    i = ct__kir_add(k, ct__kir_muli(k, row, pitch), i);
    ct__kir_store(k, of, i, ct__kir_const(k, b->a.s->dtype, 0));
    ct__kir_end(k);
}
// Returns true in the kernel if some row of the block has no visible key. All that such a row contributes is
// NaN, also to keys that are masked for every row.
static ct_kval attention_bwd_any_unseen(backward *b, ct_kval low) {
    ct_kir *k = b->a.k;
    const ct_dtype dtype = b->a.s->dtype;
    ct_kval one = ct__kir_const(k, dtype, 1), zero = ct__kir_const(k, dtype, 0);
    ct_kval i = ct__kir_loop_n(k, CT_BIND_LANES, b->a.width, "row that may see nothing");
    ct_kval is_low = ct__kir_bin(k, CT_K_EQ, ct__kir_load(k, b->total, i), low);
    ct_kval any = ct__kir_reduce(k, CT_RED_MAX, ct__kir_select(k, is_low, one, zero));
    ct__kir_end(k);
    return ct__kir_bin(k, CT_K_EQ, any, one);
}

// Loads the logarithms and deltas of the rows. A query without a visible key gives and gets zeros, whatever
// it and its cotangent contain; or, with masked_nan, its probabilities are NaN, since -infinity minus
// -infinity is.
static void attention_bwd_load_row_state(backward *b) {
    ct_attention *a = &b->a;
    ct_kir *k = a->k;
    ct_kval zero = ct__kir_const(k, a->s->dtype, 0);
    ct_kval low = ct__kir_const(k, a->s->dtype, -INFINITY);
    // rows after the last have probability 0
    ct__attention_fill(a, b->total, a->width, INFINITY);
    ct__attention_fill(a, b->delta, a->width, 0);
    ct_kval r = ct__kir_loop(k, CT_BIND_SEQ, a->n_rows, "row");
    const int at = ct__attention_put_row(a, ct__kir_add(k, a->row0, r));
    ct_kval total = ct__source_load(k, &a->s->log_total, at, a->lead);
    ct_kval delta = ct__source_load(k, &a->s->delta, at, a->lead);
    if (!a->s->masked_nan) {
        ct_kval unseen = ct__kir_bin(k, CT_K_EQ, total, low);
        total = ct__kir_select(k, unseen, zero, total);
        delta = ct__kir_select(k, unseen, zero, delta);
        ct__kir_if(k, unseen);
        attention_bwd_clear_row(b, a->q_rows, r, a->d_pitch);
        attention_bwd_clear_row(b, b->c_rows, r, a->e_pitch);
        ct__kir_end(k);
    }
    ct__kir_store(k, b->total, r, total);
    ct__kir_store(k, b->delta, r, delta);
    ct__kir_end(k);
    if (a->s->masked_nan) a->unseen = attention_bwd_any_unseen(b, low);
}

static void attention_bwd_load_rows(backward *b, ct_kval block) {
    ct_attention *a = &b->a;
    const ct_attention_spec *s = a->s;
    ct__attention_take_rows(a, block);
    ct__attention_stage(a, &s->q, a->q_rows, s->d, a->d_pitch);
    ct__attention_stage(a, &s->c, b->c_rows, s->e, a->e_pitch);
    attention_bwd_load_row_state(b);
    ct__attention_turn(a, a->q_rows, a->width, a->d_pitch, a->q_turned);
    ct__attention_turn(a, b->c_rows, a->width, a->e_pitch, b->c_transposed);
}

// Stores the block's cotangents of queries, which are summed in scratch; `adds`: adds them to those of
// earlier blocks of keys in the result.
static void attention_bwd_store_dq(backward *b, bool adds) {
    ct_attention *a = &b->a;
    ct_kir *k = a->k;
    const int64_t d = a->s->d;
    ct_kval r = ct__kir_loop(k, CT_BIND_SEQ, a->n_rows, "row of what queries get");
    ct_kval row = ct__kir_add(k, a->row0, r), lead = ct__kir_int(k, 0);
    for (int i = 0; i < a->s->n_lead; i++)
        lead = ct__kir_add(k, ct__kir_mul(k, lead, a->s->lead[i]), a->lead[i]);
    ct_kval to = ct__kir_add(k, ct__kir_mul(k, lead, a->rows), row);
    to = ct__kir_muli(k, to, d);
    ct_kval i = ct__kir_loop_n(k, CT_BIND_LANES, d, "number of a query");
    ct_kval own = ct__kir_load(k, b->c_q, ct__kir_add(k, ct__kir_muli(k, r, a->d_pitch), i));
    ct_kval at = ct__kir_add(k, to, i);
    if (adds) own = ct__kir_add(k, ct__kir_load(k, a->s->c_q, at), own);
    ct__kir_store(k, a->s->c_q, at, own);
    ct__kir_end_n(k, 2);
}

static void attention_bwd_store_dkv(backward *b) {
    ct_attention *a = &b->a;
    ct_kir *k = a->k;
    const ct_attention_spec *s = a->s;
    // Keys that no query attends to get zeros.
    ct_kval n_keys = ct__kir_sub(k, s->keys, a->key0), block = ct__kir_int(k, BLOCK);
    n_keys = ct__kir_min(k, n_keys, block);
    for (int which = 0; which < 2; which++) {
        const int64_t n = which ? s->e : s->d, pitch = which ? a->e_pitch : a->d_pitch;
        ct_kval j = ct__kir_loop(k, CT_BIND_SEQ, n_keys, "key");
        ct_kval row_offset = ct__kir_muli(k, j, pitch);
        ct_kval i = ct__kir_loop_n(k, CT_BIND_LANES, n, "number of a key");
        a->lead[s->n_lead] = ct__kir_add(k, a->key0, j);
        a->lead[s->n_lead + 1] = i;
        ct_kval v = ct__kir_load(k, which ? b->c_v : b->c_k, ct__kir_add(k, row_offset, i));
        ct__sink_store(k, which ? &s->c_v : &s->c_k, s->n_lead + 2, a->lead, v);
        ct__kir_end_n(k, 2);
    }
}

// Computes the products of a block of rows and a block of keys that attend to each other.
static void attention_bwd_block_products(backward *b) {
    ct_attention *a = &b->a;
    ct_kir *k = a->k;
    b->row = ct__kir_loop_n(k, CT_BIND_SEQ, BLOCK / b->a.high, "keys");
    b->row = ct__kir_muli(k, b->row, b->a.high);
    ct__attention_tiles(a, a->width, attention_bwd_write_scores, b);
    ct__kir_end(k);
    if (a->s->wants_kv) {
        attention_bwd_add_product(b, a->p, a->width, 1, b->c_rows, a->e_pitch, b->c_v);
        attention_bwd_add_product(b, b->c_scores, a->width, 1, a->q_rows, a->d_pitch, b->c_k);
    }
    if (!a->s->wants_q) return;
    if (b->accumulates_q) ct__attention_fill(a, b->c_q, a->width * a->d_pitch, 0);
    attention_bwd_add_product(b, b->c_scores, 1, a->width, a->keys, a->d_pitch, b->c_q);
    if (b->accumulates_q) attention_bwd_store_dq(b, true);
}

// Processes a loaded block of rows and a loaded block of keys.
static void attention_bwd_block(backward *b) {
    ct_attention *a = &b->a;
    const int open = ct__attention_take_panels(a);
    attention_bwd_block_products(b);
    for (int i = 0; i < open; i++) ct__kir_end(a->k);
}

static ct_kval attention_bwd_row_blocks(const backward *b) {
    return ct__kir_ceil_div(b->a.k, b->a.rows, b->a.width);
}

// Loops over all blocks of rows that attend to the loaded block of keys.
static void attention_bwd_over_rows(backward *b, ct_kval block) {
    ct_attention *a = &b->a;
    ct_kir *k = a->k;
    ct__attention_fill(a, b->c_k, BLOCK * a->d_pitch, 0);
    ct__attention_fill(a, b->c_v, BLOCK * a->e_pitch, 0);
    ct_kval rows = ct__kir_loop(k, CT_BIND_SEQ, attention_bwd_row_blocks(b), "block of rows"),
            first, end;
    a->row0 = ct__kir_muli(k, rows, a->width);
    a->n_rows = ct__kir_min(k, ct__kir_sub(k, a->rows, a->row0), ct__kir_int(k, a->width));
    (void)ct__attention_seen(a, &first, &end);
    ct_kval sees = ct__kir_bin(k, CT_K_LE, first, block);
    ct__kir_if(k, ct__kir_bin(k, CT_K_AND, sees, ct__kir_lt(k, block, end)));
    attention_bwd_load_rows(b, rows);
    attention_bwd_block(b);
    ct__kir_end_n(k, 2);
    attention_bwd_store_dkv(b);
}

static void attention_bwd_zero_dq(backward *b, ct_kval lead) {
    ct_attention *a = &b->a;
    ct_kir *k = a->k;
    ct_kval n = ct__kir_muli(k, a->rows, a->s->d);
    ct_kval i = ct__kir_loop(k, CT_BIND_LANES, n, "number of a query");
    ct_kval at = ct__kir_add(k, ct__kir_mul(k, lead, n), i);
    ct__kir_store(k, a->s->c_q, at, ct__kir_const(k, a->s->dtype, 0));
    ct__kir_end(k);
}

static void attention_bwd_query_task(backward *b, ct_kval task) {
    ct_attention *a = &b->a;
    ct_kir *k = a->k;
    ct_kval n = attention_bwd_row_blocks(b), first, end;
    ct__attention_at(a, ct__kir_div(k, task, n));
    attention_bwd_load_rows(b, ct__kir_mod(k, task, n));
    ct__attention_fill(a, b->c_q, a->width * a->d_pitch, 0);
    (void)ct__attention_seen(a, &first, &end);
    ct_kval block = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_sub(k, end, first), "block of keys");
    ct__attention_take_keys(a, ct__kir_add(k, first, block));
    attention_bwd_block(b);
    ct__kir_end(k);
    attention_bwd_store_dq(b, false);
}

static void attention_bwd_make_scratch(backward *b) {
    ct_kir *k = b->a.k;
    const ct_attention *a = &b->a;
    const ct_dtype dtype = a->s->dtype;
    b->c_rows = ct__kir_local(k, dtype, a->width * a->e_pitch);
    b->c_transposed = ct__kir_local(k, dtype, a->width * a->e_pitch);
    b->c_scores = ct__kir_local(k, dtype, BLOCK * a->width);
    b->total = ct__kir_local(k, dtype, a->width);
    b->delta = ct__kir_local(k, dtype, a->width);
    if (a->s->wants_q) b->c_q = ct__kir_local(k, dtype, a->width * a->d_pitch);
    if (!a->s->wants_kv) return;
    b->c_k = ct__kir_local(k, dtype, BLOCK * a->d_pitch);
    b->c_v = ct__kir_local(k, dtype, BLOCK * a->e_pitch);
}

void ct__template_attention_backward(ct_kir *k, const ct_attention_spec *s) {
    backward b = {.accumulates_q = s->wants_q && s->wants_kv};
    ct_attention *a = &b.a;
    ct__attention_begin(a, k, s, BLOCK);
    attention_bwd_make_scratch(&b);
    ct_kval n = ct__kir_ceil_div(k, s->keys, BLOCK), tasks = ct__kir_int(k, 1);
    for (int i = 0; i < s->n_lead; i++) tasks = ct__kir_mul(k, tasks, s->lead[i]);
    if (!s->wants_kv) tasks = ct__kir_mul(k, tasks, attention_bwd_row_blocks(&b));
    if (!s->wants_q) tasks = ct__kir_mul(k, tasks, n);
    ct_kval task = ct__kir_loop(k, CT_BIND_ROWS, tasks, "block");
    if (a->e_pitch != s->e) ct__attention_fill(a, b.c_rows, a->width * a->e_pitch, 0);
    if (!s->wants_kv) {
        attention_bwd_query_task(&b, task);
    } else {
        ct_kval lead = s->wants_q ? task : ct__kir_div(k, task, n), block;
        ct__attention_at(a, lead);
        if (s->wants_q) attention_bwd_zero_dq(&b, lead);
        block =
            s->wants_q ? ct__kir_loop(k, CT_BIND_SEQ, n, "block of keys") : ct__kir_mod(k, task, n);
        ct__attention_take_keys(a, block);
        attention_bwd_over_rows(&b, block);
        if (s->wants_q) ct__kir_end(k);
    }
    ct__kir_end(k);
}
