// The gradients of attention. Probabilities are made again, as exp(score - log(sum(exp(scores)))); with the
// cotangents of the result (c) and delta, the sum of c times the result, the cotangents are
//     of values p' c,    of scores p (c v' - delta),    of queries and keys those times keys and queries.
#include "kinds/attention_block.h"

#include <math.h>

enum { BLOCK = CT_ATTENTION_BLOCK, TILE = CT_ATTENTION_TILE };

typedef struct backward {
    ct_attention a;
    int c_rows, c_turned; // scratch: (width, e_pitch), (e_pitch, width)
    int c_scores;         // scratch: (block, width)
    int total, delta;     // scratch: (width)
    int c_q, c_k, c_v;    // scratch: (width, d_pitch), (block, d_pitch), (block, e_pitch)
    bool in_memory;       // cotangents of queries are put to the result where it lies
    ct_kval row;          // of the tiles being written: the first key or query
    // Of a product being put to `to`: rows of `numbers`, lanes of `lanes`.
    int numbers, lanes, to;
    int64_t by_row, by_i, pitch;
} backward;

// Probabilities of a few keys, and the cotangents of their products with the queries.
static void probabilities(void *env, ct_kval lane) {
    backward *b = env;
    const ct_attention *a = &b->a;
    const ct_attention_spec *s = a->s;
    ct_kir *k = a->k;
    ct_kval p[TILE], bent[TILE], c[TILE], total = ct__kir_load(k, b->total, lane);
    ct__attention_scores(a, b->row, lane, p, bent);
    for (int r = 0; r < b->a.high; r++)
        p[r] = ct__kir_math(k, CT_MATH_EXP, ct__kir_sub(k, p[r], total));
    const bool keeps = s->keep.extent != CT_ATTENTION_NONE;
    ct_kval keep[TILE];
    for (int r = 0; r < b->a.high; r++) {
        ct_kval key = ct__kir_addi(k, b->row, r), kept = p[r];
        if (keeps) {
            keep[r] = ct__attention_panel_at(a, &a->keep, key, lane);
            kept = ct__kir_mul(k, kept, keep[r]);
        }
        ct__kir_store(k, a->p, ct__attention_in_row(&b->a, key, lane), kept);
    }
    const ct_attention_chain products = {.n = s->e,
                                         .numbers = a->values,
                                         .at = ct__kir_muli(k, b->row, a->e_pitch),
                                         .by_row = a->e_pitch,
                                         .by_i = 1,
                                         .lanes = b->c_turned,
                                         .lane = lane,
                                         .lane_by_i = a->width};
    ct__attention_chain(a, &products, c);
    ct_kval delta = ct__kir_load(k, b->delta, lane), one = ct__kir_const(k, s->dtype, 1);
    for (int r = 0; r < b->a.high; r++) {
        if (keeps) c[r] = ct__kir_mul(k, c[r], keep[r]);
        ct_kval v = ct__kir_mul(k, p[r], ct__kir_sub(k, c[r], delta));
        if (s->cap > 0)
            v = ct__kir_mul(k, v, ct__kir_sub(k, one, ct__kir_mul(k, bent[r], bent[r])));
        if (s->fill) { // what is hidden has a score that hangs on nothing
            ct_kval seen = ct__attention_panel_at(a, &a->mask, ct__kir_addi(k, b->row, r), lane);
            ct_kval zero = ct__kir_const(k, s->dtype, 0);
            v = ct__kir_select(k, ct__kir_bin(k, CT_K_NE, seen, zero), v, zero);
        }
        if (s->scale != 1) v = ct__kir_mul(k, v, ct__kir_const(k, s->dtype, s->scale));
        ct__kir_store(k, b->c_scores, ct__attention_in_row(&b->a, ct__kir_addi(k, b->row, r), lane),
                      v);
    }
}

// Rows `row` on of `to` get what rows of numbers and columns of lanes give over the block.
static void put_product(void *env, ct_kval lane) {
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
static void product(backward *b, int numbers, int64_t by_row, int64_t by_i, int lanes,
                    int64_t pitch, int to) {
    ct_kir *k = b->a.k;
    b->numbers = numbers, b->by_row = by_row, b->by_i = by_i;
    b->lanes = lanes, b->pitch = pitch, b->to = to;
    b->row = ct__kir_loop_n(k, CT_BIND_SEQ, BLOCK / b->a.high, "rows");
    b->row = ct__kir_muli(k, b->row, b->a.high);
    ct__attention_tiles(&b->a, pitch, put_product, b);
    ct__kir_end(k);
}

// ---------------------------------------------------------------------------------------- the blocks

// A row of scratch that becomes zeros.
static void backward_clear_row(backward *b, int of, ct_kval row, int64_t pitch) {
    ct_kir *k = b->a.k;
    ct_kval i = ct__kir_loop_n(k, CT_BIND_LANES, pitch, "number of a row that sees nothing");
    i = ct__kir_add(k, ct__kir_muli(k, row, pitch), i);
    ct__kir_store(k, of, i, ct__kir_const(k, b->a.s->dtype, 0));
    ct__kir_end(k);
}
// 1 where a row may look nowhere: all that it gives is NaN, to keys that are hidden from every row, too.
static ct_kval backward_any_unseen(backward *b, ct_kval low) {
    ct_kir *k = b->a.k;
    const ct_dtype dtype = b->a.s->dtype;
    ct_kval one = ct__kir_const(k, dtype, 1), zero = ct__kir_const(k, dtype, 0);
    ct_kval i = ct__kir_loop_n(k, CT_BIND_LANES, b->a.width, "row that may see nothing");
    ct_kval is_low = ct__kir_bin(k, CT_K_EQ, ct__kir_load(k, b->total, i), low);
    ct_kval most = ct__kir_reduce(k, CT_RED_MAX, ct__kir_select(k, is_low, one, zero));
    ct__kir_end(k);
    return ct__kir_bin(k, CT_K_EQ, most, one);
}

// Logarithms and deltas of the rows. A query that may look nowhere gives and gets zeros, whatever it and its
// cotangent hold; or, with masked_nan, its probabilities are NaN as -infinity less -infinity is.
static void take_row_numbers(backward *b) {
    ct_attention *a = &b->a;
    ct_kir *k = a->k;
    ct_kval zero = ct__kir_const(k, a->s->dtype, 0);
    ct_kval low = ct__kir_const(k, a->s->dtype, -INFINITY);
    ct__attention_fill(a, b->total, a->width,
                       INFINITY); // rows beyond the last have no probabilities
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
        backward_clear_row(b, a->q_rows, r, a->d_pitch);
        backward_clear_row(b, b->c_rows, r, a->e_pitch);
        ct__kir_end(k);
    }
    ct__kir_store(k, b->total, r, total);
    ct__kir_store(k, b->delta, r, delta);
    ct__kir_end(k);
    if (a->s->masked_nan) a->unseen = backward_any_unseen(b, low);
}

static void take_rows(backward *b, ct_kval block) {
    ct_attention *a = &b->a;
    const ct_attention_spec *s = a->s;
    ct__attention_take_rows(a, block);
    ct__attention_stage(a, &s->q, a->q_rows, s->d, a->d_pitch);
    ct__attention_stage(a, &s->c, b->c_rows, s->e, a->e_pitch);
    take_row_numbers(b);
    ct__attention_turn(a, a->q_rows, a->width, a->d_pitch, a->q_turned);
    ct__attention_turn(a, b->c_rows, a->width, a->e_pitch, b->c_turned);
}

// What queries get is summed in scratch, and put to what earlier blocks of keys gave where it lies.
static void put_queries(backward *b, bool adds) {
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
    ct__kir_end(k);
    ct__kir_end(k);
}

static void put_keys(backward *b) {
    ct_attention *a = &b->a;
    ct_kir *k = a->k;
    const ct_attention_spec *s = a->s;
    // Keys that no query may look at get zeros.
    ct_kval many = ct__kir_sub(k, s->keys, a->key0), most = ct__kir_int(k, BLOCK);
    many = ct__kir_min(k, many, most);
    for (int which = 0; which < 2; which++) {
        const int64_t n = which ? s->e : s->d, pitch = which ? a->e_pitch : a->d_pitch;
        ct_kval j = ct__kir_loop(k, CT_BIND_SEQ, many, "key");
        ct_kval place = ct__kir_muli(k, j, pitch);
        ct_kval i = ct__kir_loop_n(k, CT_BIND_LANES, n, "number of a key");
        a->lead[s->n_lead] = ct__kir_add(k, a->key0, j);
        a->lead[s->n_lead + 1] = i;
        ct_kval v = ct__kir_load(k, which ? b->c_v : b->c_k, ct__kir_add(k, place, i));
        ct__sink_store(k, which ? &s->c_v : &s->c_k, s->n_lead + 2, a->lead, v);
        ct__kir_end(k);
        ct__kir_end(k);
    }
}

// Of a block of rows and a block of keys that see each other.
static void products(backward *b) {
    ct_attention *a = &b->a;
    ct_kir *k = a->k;
    b->row = ct__kir_loop_n(k, CT_BIND_SEQ, BLOCK / b->a.high, "keys");
    b->row = ct__kir_muli(k, b->row, b->a.high);
    ct__attention_tiles(a, a->width, probabilities, b);
    ct__kir_end(k);
    if (a->s->wants_kv) {
        product(b, a->p, a->width, 1, b->c_rows, a->e_pitch, b->c_v);
        product(b, b->c_scores, a->width, 1, a->q_rows, a->d_pitch, b->c_k);
    }
    if (!a->s->wants_q) return;
    if (b->in_memory) ct__attention_fill(a, b->c_q, a->width * a->d_pitch, 0);
    product(b, b->c_scores, 1, a->width, a->keys, a->d_pitch, b->c_q);
    if (b->in_memory) put_queries(b, true);
}

// A block of rows that are taken and a block of keys that are taken.
static void blocks(backward *b) {
    ct_attention *a = &b->a;
    const int open = ct__attention_take_panels(a);
    products(b);
    for (int i = 0; i < open; i++) ct__kir_end(a->k);
}

static ct_kval row_blocks(const backward *b) {
    return ct__kir_ceil_div(b->a.k, b->a.rows, b->a.width);
}

// All blocks of rows that see the block of keys, which is taken.
static void over_rows(backward *b, ct_kval block) {
    ct_attention *a = &b->a;
    ct_kir *k = a->k;
    ct__attention_fill(a, b->c_k, BLOCK * a->d_pitch, 0);
    ct__attention_fill(a, b->c_v, BLOCK * a->e_pitch, 0);
    ct_kval rows = ct__kir_loop(k, CT_BIND_SEQ, row_blocks(b), "block of rows"), first, end;
    a->row0 = ct__kir_muli(k, rows, a->width);
    a->n_rows = ct__kir_min(k, ct__kir_sub(k, a->rows, a->row0), ct__kir_int(k, a->width));
    (void)ct__attention_seen(a, &first, &end);
    ct_kval sees = ct__kir_bin(k, CT_K_LE, first, block);
    ct__kir_if(k, ct__kir_bin(k, CT_K_AND, sees, ct__kir_lt(k, block, end)));
    take_rows(b, rows);
    blocks(b);
    ct__kir_end(k);
    ct__kir_end(k);
    put_keys(b);
}

static void zero_queries(backward *b, ct_kval lead) {
    ct_attention *a = &b->a;
    ct_kir *k = a->k;
    ct_kval n = ct__kir_muli(k, a->rows, a->s->d);
    ct_kval i = ct__kir_loop(k, CT_BIND_LANES, n, "number of a query");
    ct_kval at = ct__kir_add(k, ct__kir_mul(k, lead, n), i);
    ct__kir_store(k, a->s->c_q, at, ct__kir_const(k, a->s->dtype, 0));
    ct__kir_end(k);
}

static void for_queries(backward *b, ct_kval task) {
    ct_attention *a = &b->a;
    ct_kir *k = a->k;
    ct_kval n = row_blocks(b), first, end;
    ct__attention_at(a, ct__kir_div(k, task, n));
    take_rows(b, ct__kir_mod(k, task, n));
    ct__attention_fill(a, b->c_q, a->width * a->d_pitch, 0);
    (void)ct__attention_seen(a, &first, &end);
    ct_kval block = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_sub(k, end, first), "block of keys");
    ct__attention_take_keys(a, ct__kir_add(k, first, block));
    blocks(b);
    ct__kir_end(k);
    put_queries(b, false);
}

static void make_scratch(backward *b) {
    ct_kir *k = b->a.k;
    const ct_attention *a = &b->a;
    const ct_dtype dtype = a->s->dtype;
    b->c_rows = ct__kir_local(k, dtype, a->width * a->e_pitch);
    b->c_turned = ct__kir_local(k, dtype, a->width * a->e_pitch);
    b->c_scores = ct__kir_local(k, dtype, BLOCK * a->width);
    b->total = ct__kir_local(k, dtype, a->width);
    b->delta = ct__kir_local(k, dtype, a->width);
    if (a->s->wants_q) b->c_q = ct__kir_local(k, dtype, a->width * a->d_pitch);
    if (!a->s->wants_kv) return;
    b->c_k = ct__kir_local(k, dtype, BLOCK * a->d_pitch);
    b->c_v = ct__kir_local(k, dtype, BLOCK * a->e_pitch);
}

void ct__template_attention_backward(ct_kir *k, const ct_attention_spec *s) {
    backward b = {.in_memory = s->wants_q && s->wants_kv};
    ct_attention *a = &b.a;
    ct__attention_begin(a, k, s, BLOCK);
    make_scratch(&b);
    ct_kval n = ct__kir_ceil_div(k, s->keys, BLOCK), tasks = ct__kir_int(k, 1);
    for (int i = 0; i < s->n_lead; i++) tasks = ct__kir_mul(k, tasks, s->lead[i]);
    if (!s->wants_kv) tasks = ct__kir_mul(k, tasks, row_blocks(&b));
    if (!s->wants_q) tasks = ct__kir_mul(k, tasks, n);
    ct_kval task = ct__kir_loop(k, CT_BIND_ROWS, tasks, "block");
    if (a->e_pitch != s->e) ct__attention_fill(a, b.c_rows, a->width * a->e_pitch, 0);
    if (!s->wants_kv) {
        for_queries(&b, task);
    } else {
        ct_kval lead = s->wants_q ? task : ct__kir_div(k, task, n), block;
        ct__attention_at(a, lead);
        if (s->wants_q) zero_queries(&b, lead);
        block =
            s->wants_q ? ct__kir_loop(k, CT_BIND_SEQ, n, "block of keys") : ct__kir_mod(k, task, n);
        ct__attention_take_keys(a, block);
        over_rows(&b, block);
        if (s->wants_q) ct__kir_end(k);
    }
    ct__kir_end(k);
}
