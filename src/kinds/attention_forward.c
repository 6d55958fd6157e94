// Attention's forward pass for a block of queries. For each block of keys it computes the scores, the new
// running maxima, exp(score - maximum), and rescales the sums and results so far by exp(old maximum - new
// maximum).
#include "kinds/attention_block.h"

#include <math.h>

enum { BLOCK = CT_ATTENTION_BLOCK, TILE = CT_ATTENTION_TILE };

typedef struct forward {
    ct_attention a;
    int max, sum, rescale; // scratch: (width) running maxima and sums; exp(old maximum - new one)
    // scratch: (width) the old maximum; (16, width) sums over the keys of each residue mod 16
    int old_max, partial_sums;
    int out;      // scratch: (e_pitch, width)
    int out_rows; // scratch: (width, e_pitch)
    ct_kval row;  // of the tiles being written: the first key, or the first element of a value
} forward;

// Writes the scores of a tile and updates each row's running maximum.
static void attention_fwd_write_scores(void *env, ct_kval lane) {
    forward *f = env;
    ct_kir *k = f->a.k;
    ct_kval s[TILE], tanh_scores[TILE];
    ct__attention_scores(&f->a, f->row, lane, s, tanh_scores);
    ct_kval max = ct__kir_load(k, f->max, lane);
    for (int r = 0; r < f->a.high; r++) {
        ct__kir_store(k, f->a.p, ct__attention_in_row(&f->a, ct__kir_addi(k, f->row, r), lane),
                      s[r]);
        max = ct__kir_max(k, max, s[r]);
    }
    ct__kir_store(k, f->max, lane, max);
}

static void attention_fwd_scores(forward *f) {
    ct_kir *k = f->a.k;
    f->row = ct__kir_loop_n(k, CT_BIND_SEQ, BLOCK / f->a.high, "keys");
    f->row = ct__kir_muli(k, f->row, f->a.high);
    ct__attention_tiles(&f->a, f->a.width, attention_fwd_write_scores, f);
    ct__kir_end(k);
}

// Computes exp(score - maximum) and their sums, a tree over the keys (docs/design/bits.md).
static void attention_fwd_softmax(forward *f) {
    const ct_attention *a = &f->a;
    ct_kir *k = a->k;
    const ct_dtype dtype = a->s->dtype;
    ct_kval low = ct__kir_const(k, dtype, -INFINITY), zero = ct__kir_const(k, dtype, 0);
    ct_kval lane = ct__kir_loop_n(k, CT_BIND_LANES, a->width, "row");
    ct_kval max = ct__kir_load(k, f->max, lane), old_max = ct__kir_load(k, f->old_max, lane);
    ct_kval base = ct__kir_select(k, ct__kir_bin(k, CT_K_EQ, max, low), zero, max);
    ct_kval rescale = ct__kir_math(k, CT_MATH_EXP, ct__kir_sub(k, old_max, base));
    ct__kir_store(k, f->old_max, lane, max);
    ct__kir_store(k, f->rescale, lane, rescale);
    ct_kval i = ct__kir_loop_n(k, CT_BIND_SEQ, CT_LANES, "key mod 16"), part = -1;
    for (int round = 0; round < BLOCK / CT_LANES; round++) {
        ct_kval key = ct__kir_addi(k, i, round * CT_LANES),
                at = ct__attention_in_row(&f->a, key, lane);
        ct_kval p = ct__kir_math(k, CT_MATH_EXP, ct__kir_sub(k, ct__kir_load(k, a->p, at), base));
        part = part < 0 ? p : ct__kir_add(k, part, p);
        if (a->s->keep.extent != CT_ATTENTION_NONE)
            p = ct__kir_mul(k, p, ct__attention_panel_at(a, &a->keep, key, lane));
        ct__kir_store(k, a->p, at, p);
    }
    ct__kir_store(k, f->partial_sums, ct__attention_in_row(&f->a, i, lane), part);
    ct__kir_end(k);
    ct_kval x[CT_LANES];
    for (int j = 0; j < CT_LANES; j++)
        x[j] = ct__kir_load(k, f->partial_sums, ct__kir_addi(k, lane, j * a->width));
    for (int half = CT_LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++) x[j] = ct__kir_add(k, x[j], x[j + half]);
    ct_kval sum = ct__kir_mul(k, ct__kir_load(k, f->sum, lane), rescale);
    ct__kir_store(k, f->sum, lane, ct__kir_add(k, sum, x[0]));
    ct__kir_end(k);
}

// Adds the block's values, weighted by the probabilities, to the results.
static void attention_fwd_write_values(void *env, ct_kval lane) {
    forward *f = env;
    const ct_attention *a = &f->a;
    ct_kir *k = a->k;
    ct_kval own[TILE], rescale = ct__kir_load(k, f->rescale, lane);
    const ct_attention_chain products = {.n = BLOCK,
                                         .numbers = a->values,
                                         .at = f->row,
                                         .by_row = 1,
                                         .by_i = a->e_pitch,
                                         .lanes = a->p,
                                         .lane = lane,
                                         .lane_by_i = a->width};
    ct__attention_chain(a, &products, own);
    for (int r = 0; r < f->a.high; r++) {
        ct_kval at = ct__attention_in_row(&f->a, ct__kir_addi(k, f->row, r), lane);
        ct_kval before = ct__kir_mul(k, ct__kir_load(k, f->out, at), rescale);
        ct__kir_store(k, f->out, at, ct__kir_add(k, before, own[r]));
    }
}

static void attention_fwd_add_values(forward *f) {
    ct_kir *k = f->a.k;
    const int64_t tiles = (f->a.s->e + f->a.high - 1) / f->a.high;
    f->row = ct__kir_loop_n(k, CT_BIND_SEQ, tiles, "numbers of a value");
    f->row = ct__kir_muli(k, f->row, f->a.high);
    ct__attention_tiles(&f->a, f->a.width, attention_fwd_write_values, f);
    ct__kir_end(k);
}

// Stores the results divided by the sums, or 0 or NaN for a query without a visible key, and the logarithms
// of the sums.
static void attention_fwd_store_result(forward *f) {
    ct_attention *a = &f->a;
    ct_kir *k = a->k;
    const ct_attention_spec *s = a->s;
    ct_kval zero = ct__kir_const(k, s->dtype, 0), low = ct__kir_const(k, s->dtype, -INFINITY);
    ct_kval empty_value = ct__attention_nothing(a);
    ct__attention_turn(a, f->out, a->e_pitch, a->width, f->out_rows);
    ct_kval r = ct__kir_loop(k, CT_BIND_SEQ, a->n_rows, "row of the result");
    const int at = ct__attention_put_row(a, ct__kir_add(k, a->row0, r));
    ct_kval sum = ct__kir_load(k, f->sum, r), max = ct__kir_load(k, f->max, r);
    ct_kval empty = ct__kir_bin(k, CT_K_EQ, sum, zero), row_offset = ct__kir_muli(k, r, a->e_pitch);
    ct_kval base = ct__kir_select(k, ct__kir_bin(k, CT_K_EQ, max, low), zero, max);
    ct_kval total = ct__kir_add(k, base, ct__kir_math(k, CT_MATH_LOG, sum));
    ct__sink_store(k, &s->total, at, a->lead, total);
    ct_kval i = ct__kir_loop_n(k, CT_BIND_LANES, s->e, "number of a value");
    a->lead[at] = i;
    ct_kval v = ct__kir_add(k, ct__kir_load(k, f->out_rows, ct__kir_add(k, row_offset, i)), zero);
    v = ct__kir_select(k, empty, empty_value, ct__kir_div(k, v, sum));
    ct__sink_store(k, &s->out, at + 1, a->lead, v);
    ct__kir_end_n(k, 2);
}

// Initialises the running state: empty, or, with attention sinks, the score of a key that has no value.
static void attention_fwd_init(forward *f) {
    ct_attention *a = &f->a;
    ct_kir *k = a->k;
    ct__attention_fill(a, f->out, a->e_pitch * a->width, 0);
    ct__attention_fill(a, f->max, a->width, -INFINITY);
    ct__attention_fill(a, f->old_max, a->width, -INFINITY);
    ct__attention_fill(a, f->sum, a->width, a->s->has_sinks);
    if (!a->s->has_sinks) return;
    ct_kval r = ct__kir_loop(k, CT_BIND_SEQ, a->n_rows, "row");
    const int at = ct__attention_put_row(a, ct__kir_add(k, a->row0, r));
    ct_kval sink = ct__source_load(k, &a->s->sinks, at, a->lead);
    ct__kir_store(k, f->max, r, sink);
    ct__kir_store(k, f->old_max, r, sink);
    ct__kir_end(k);
}

// Returns the block's number of rows. A small static number of rows takes fewer lanes.
static int64_t attention_fwd_choose_width(const ct_kir *k, const ct_attention_spec *s) {
    int64_t group, queries;
    if (!ct__kir_is_int(k, s->group, &group) || !ct__kir_is_int(k, s->queries, &queries))
        return BLOCK;
    const int64_t rows = group * queries;
    return rows <= CT_LANES ? CT_LANES : rows <= 2 * CT_LANES ? 2 * CT_LANES : BLOCK;
}

void ct__template_attention(ct_kir *k, const ct_attention_spec *s) {
    forward f;
    ct_attention *a = &f.a;
    if (ct__attention_few_rows(k, s)) {
        ct__template_attention_few(k, s);
        return;
    }
    ct__attention_begin(a, k, s, attention_fwd_choose_width(k, s));
    f.max = ct__kir_local(k, s->dtype, a->width);
    f.old_max = ct__kir_local(k, s->dtype, a->width);
    f.sum = ct__kir_local(k, s->dtype, a->width);
    f.rescale = ct__kir_local(k, s->dtype, a->width);
    f.partial_sums = ct__kir_local(k, s->dtype, CT_LANES * a->width);
    f.out = ct__kir_local(k, s->dtype, a->e_pitch * a->width);
    f.out_rows = ct__kir_local(k, s->dtype, a->e_pitch * a->width);
    ct_kval blocks = ct__kir_ceil_div(k, a->rows, a->width), tasks = blocks;
    for (int i = 0; i < s->n_lead; i++) tasks = ct__kir_mul(k, tasks, s->lead[i]);
    ct_kval task = ct__kir_loop(k, CT_BIND_ROWS, tasks, "block of rows");
    ct__attention_at(a, ct__kir_div(k, task, blocks));
    ct__attention_take_rows(a, ct__kir_mod(k, task, blocks));
    ct__attention_stage(a, &s->q, a->q_rows, s->d, a->d_pitch);
    ct__attention_turn(a, a->q_rows, a->width, a->d_pitch, a->q_turned);
    attention_fwd_init(&f);
    ct_kval first, end;
    // Keys after the last one that any row attends to are not read: unused capacity of a cache, unmapped
    // pages.
    a->end = ct__attention_seen(a, &first, &end);
    ct_kval block = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_sub(k, end, first), "block of keys");
    ct__attention_take_keys(a, ct__kir_add(k, first, block));
    const int open = ct__attention_take_panels(a);
    attention_fwd_scores(&f);
    attention_fwd_softmax(&f);
    attention_fwd_add_values(&f);
    for (int i = 0; i < open; i++) ct__kir_end(k);
    ct__kir_end(k);
    attention_fwd_store_result(&f);
    ct__kir_end(k);
}
