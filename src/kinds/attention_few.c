// Attention's forward pass for a few queries, as in decoding. Lanes run along keys, then along the elements
// of a value. Keys are transposed in registers, once for all rows; scores, probabilities and results are
// stored by row. Operands that are plain loads are read in place while the next block is prefetched; a last
// block that is partial is copied to scratch. The chains and sums are the same as for many queries
// (docs/design/bits.md).
#include <math.h>

#include "kinds/attention_block.h"

enum { BLOCK = CT_ATTENTION_BLOCK, CHUNK = 256, WIDE = 64 };

typedef struct few {
    ct_attention a;
    int rows;
    // scratch: (rows) running maxima; sums of exponentials; exp(old maximum - new one)
    int max, sum, rescale;
    int out;             // scratch: (rows, e_pitch)
    bool block_in_place; // the block of keys is whole and is read in place
} few;

static ct_kval attention_few_zero(const few *f) { return ct__kir_const(f->a.k, f->a.s->dtype, 0); }
static ct_kval attention_few_score_index(const few *f, int row, ct_kval key) {
    return ct__kir_addi(f->a.k, key, (int64_t)row * BLOCK);
}

// Loads an element of a key or a value of the block.
static ct_kval attention_few_load(few *f, const ct_source *from, ct_kval key, ct_kval element) {
    ct_attention *a = &f->a;
    const int at = a->s->n_lead;
    a->lead[at] = ct__kir_add(a->k, a->key0, key);
    a->lead[at + 1] = element;
    return ct__source_load(a->k, from, at + 2, a->lead);
}
static ct_kval attention_few_load_key(few *f, ct_kval key, ct_kval element) {
    const ct_attention *a = &f->a;
    if (f->block_in_place) return attention_few_load(f, &a->s->k, key, element);
    return ct__kir_load(a->k, a->keys,
                        ct__kir_add(a->k, ct__kir_muli(a->k, key, a->d_pitch), element));
}
// Prefetches the same element of the next block.
static void attention_few_prefetch_next(few *f, const ct_source *from, ct_kval key,
                                        ct_kval element) {
    ct_kir *k = f->a.k;
    ct__kir_set_prefetch_mode(k, true);
    (void)attention_few_load(f, from, ct__kir_addi(k, key, BLOCK), element);
    ct__kir_set_prefetch_mode(k, false);
}

// Adds steps `from` to from + n to the dot products of the loop's keys.
static void attention_few_dot_steps(few *f, ct_kval key, ct_kval from, int64_t n,
                                    const ct_kval *acc) {
    const ct_attention *a = &f->a;
    ct_kir *k = a->k;
    ct_kval x[CT_LANES];
    if (f->block_in_place) attention_few_prefetch_next(f, &a->s->k, key, from);
    for (int i = 0; i < CT_LANES; i++)
        x[i] = attention_few_load_key(f, key, ct__kir_addi(k, from, i));
    for (int i = 0; i < n; i++)
        for (int r = 0; r < f->rows; r++) {
            ct_kval q = ct__kir_load(k, a->q_rows, ct__kir_addi(k, from, r * a->d_pitch + i));
            ct__kir_set(k, acc[r], ct__kir_fma(k, x[i], q, ct__kir_get(k, acc[r])));
        }
}

// Computes the dot products of a tile of keys with all rows, as chains in chunks like those of any product.
static void attention_few_dot_products(few *f, ct_kval key, ct_kval *out) {
    ct_kir *k = f->a.k;
    for (int64_t from = 0; from < f->a.s->d; from += CHUNK) {
        ct_kval acc[CT_LANES];
        const int64_t left = f->a.s->d - from, n = left < CHUNK ? left : CHUNK;
        for (int r = 0; r < f->rows; r++) acc[r] = ct__kir_reg(k, attention_few_zero(f));
        if (n >= CT_LANES) {
            ct_kval chunk = ct__kir_loop_n(k, CT_BIND_SEQ, n / CT_LANES, "16 numbers");
            attention_few_dot_steps(f, key, ct__kir_addi(k, ct__kir_muli(k, chunk, CT_LANES), from),
                                    CT_LANES, acc);
            ct__kir_end(k);
        }
        if (n % CT_LANES)
            attention_few_dot_steps(f, key, ct__kir_int(k, from + n / CT_LANES * CT_LANES),
                                    n % CT_LANES, acc);
        for (int r = 0; r < f->rows; r++) {
            ct_kval own = ct__kir_get(k, acc[r]);
            out[r] = from ? ct__kir_add(k, out[r], own) : own;
        }
    }
}

static void attention_few_scores(few *f) {
    const ct_attention *a = &f->a;
    ct_kir *k = a->k;
    ct_kval tile = ct__kir_loop_n(k, CT_BIND_SEQ, BLOCK / CT_LANES, "16 keys"), out[CT_LANES],
            tanh_score;
    ct_kval key = ct__kir_loop_n(k, CT_BIND_TILE, CT_LANES, "key");
    key = ct__kir_add(k, ct__kir_muli(k, tile, CT_LANES), key);
    attention_few_dot_products(f, key, out);
    for (int r = 0; r < f->rows; r++) {
        ct_kval s = ct__attention_score(a, key, ct__kir_int(k, r), out[r], &tanh_score);
        ct__kir_store(k, a->p, attention_few_score_index(f, r, key), s);
    }
    ct__kir_end_n(k, 2);
}

// Computes the scores of a block of keys, which are read in place if the block is whole, else from scratch.
static void attention_few_block_scores(few *f) {
    ct_attention *a = &f->a;
    ct_kir *k = a->k;
    const bool in_place = a->s->k.is_load && a->s->d % CT_LANES == 0;
    ct_kval is_whole = ct__kir_bin(k, CT_K_EQ, a->n_keys, ct__kir_int(k, BLOCK));
    if (in_place) {
        if (a->tail) ct__kir_if(k, is_whole);
        f->block_in_place = true;
        attention_few_scores(f);
        f->block_in_place = false;
        if (!a->tail) return;
        ct__kir_end(k);
        ct__kir_if(k, ct__kir_un(k, CT_K_NOT, is_whole));
    }
    ct__attention_pack(a, &a->s->k, a->keys, a->s->d, a->d_pitch);
    attention_few_scores(f);
    if (in_place) ct__kir_end(k);
}

// Computes exp(score - maximum) of a row and their sum, a tree over the keys.
static void attention_few_softmax(const few *f, int row) {
    const ct_attention *a = &f->a;
    ct_kir *k = a->k;
    const ct_dtype dtype = a->s->dtype;
    ct_kval low = ct__kir_const(k, dtype, -INFINITY), at = ct__kir_int(k, row);
    ct_kval key = ct__kir_loop_n(k, CT_BIND_LANES, BLOCK, "key");
    ct_kval max = ct__kir_reduce(k, CT_RED_MAX,
                                 ct__kir_load(k, a->p, attention_few_score_index(f, row, key)));
    ct__kir_end(k);
    ct_kval old_max = ct__kir_load(k, f->max, at);
    max = ct__kir_max(k, old_max, max);
    ct_kval base = ct__kir_select(k, ct__kir_bin(k, CT_K_EQ, max, low), attention_few_zero(f), max);
    ct_kval rescale = ct__kir_math(k, CT_MATH_EXP, ct__kir_sub(k, old_max, base));
    ct__kir_store(k, f->max, at, max);
    ct__kir_store(k, f->rescale, at, rescale);
    key = ct__kir_loop_n(k, CT_BIND_LANES, BLOCK, "key");
    ct_kval index = attention_few_score_index(f, row, key);
    ct_kval p = ct__kir_math(k, CT_MATH_EXP, ct__kir_sub(k, ct__kir_load(k, a->p, index), base));
    ct_kval own = ct__kir_reduce(k, CT_RED_ADD, p);
    if (a->s->keep.extent != CT_ATTENTION_NONE)
        p = ct__kir_mul(k, p, ct__attention_panel_at(a, &a->keep, key, at));
    ct__kir_store(k, a->p, index, p);
    ct__kir_end(k);
    ct_kval sum = ct__kir_mul(k, ct__kir_load(k, f->sum, at), rescale);
    ct__kir_store(k, f->sum, at, ct__kir_add(k, sum, own));
}

// Adds the block's values, weighted by the probabilities, to `lanes` elements of the results starting at
// `first`.
static void attention_few_value_tile(few *f, int64_t first, int64_t lanes, bool in_place) {
    const ct_attention *a = &f->a;
    ct_kir *k = a->k;
    ct_kval acc[CT_LANES], lane = ct__kir_loop_n(k, CT_BIND_TILE, lanes, "number of a value");
    lane = ct__kir_addi(k, lane, first);
    for (int r = 0; r < f->rows; r++) acc[r] = ct__kir_reg(k, attention_few_zero(f));
    // further keys have probability 0
    ct_kval key = ct__kir_loop(k, CT_BIND_SEQ, a->n_keys, "key"), v;
    if (in_place) {
        attention_few_prefetch_next(f, &a->s->v, key, lane);
        v = attention_few_load(f, &a->s->v, key, lane);
    } else {
        v = ct__kir_load(k, a->values, ct__kir_add(k, ct__kir_muli(k, key, a->e_pitch), lane));
    }
    for (int r = 0; r < f->rows; r++) {
        ct_kval p = ct__kir_load(k, a->p, attention_few_score_index(f, r, key));
        ct__kir_set(k, acc[r], ct__kir_fma(k, p, v, ct__kir_get(k, acc[r])));
    }
    ct__kir_end(k);
    for (int r = 0; r < f->rows; r++) {
        ct_kval at = ct__kir_addi(k, lane, r * a->e_pitch),
                rescale = ct__kir_load(k, f->rescale, ct__kir_int(k, r));
        ct_kval before = ct__kir_mul(k, ct__kir_load(k, f->out, at), rescale);
        ct__kir_store(k, f->out, at, ct__kir_add(k, before, ct__kir_get(k, acc[r])));
    }
    ct__kir_end(k);
}

static void attention_few_add_values(few *f) {
    const ct_attention *a = &f->a;
    const bool in_place = a->s->v.is_load && a->s->e % CT_LANES == 0;
    if (!in_place) ct__attention_pack(&f->a, &a->s->v, a->values, a->s->e, a->e_pitch);
    const int64_t wide = f->rows <= 4 ? WIDE : WIDE / 2;
    int64_t lanes;
    for (int64_t first = 0; first < f->a.e_pitch; first += lanes) {
        lanes = f->a.e_pitch - first < wide ? f->a.e_pitch - first : wide;
        attention_few_value_tile(f, first, lanes, in_place);
    }
}

// Stores a row's results divided by the sum, or 0 or NaN for a query without a visible key, and the logarithm
// of the sum.
static void attention_few_store_result(few *f, int row) {
    ct_attention *a = &f->a;
    ct_kir *k = a->k;
    const ct_attention_spec *s = a->s;
    ct_kval zero = attention_few_zero(f), low = ct__kir_const(k, s->dtype, -INFINITY),
            r = ct__kir_int(k, row);
    const int at = ct__attention_put_row(a, r);
    ct_kval sum = ct__kir_load(k, f->sum, r), max = ct__kir_load(k, f->max, r);
    ct_kval empty = ct__kir_bin(k, CT_K_EQ, sum, zero);
    ct_kval base = ct__kir_select(k, ct__kir_bin(k, CT_K_EQ, max, low), zero, max);
    ct_kval total = ct__kir_add(k, base, ct__kir_math(k, CT_MATH_LOG, sum));
    ct__sink_store(k, &s->total, at, a->lead, total);
    ct_kval i = ct__kir_loop_n(k, CT_BIND_LANES, s->e, "number of a value");
    a->lead[at] = i;
    ct_kval v = ct__kir_load(k, f->out, ct__kir_addi(k, i, row * a->e_pitch));
    v = ct__kir_div(k, ct__kir_add(k, v, zero), sum);
    v = ct__kir_select(k, empty, ct__attention_nothing(a), v);
    ct__sink_store(k, &s->out, at + 1, a->lead, v);
    ct__kir_end(k);
}

// Initialises the running state: empty, or, with attention sinks, the score of a key that has no value.
static void attention_few_init(few *f) {
    ct_attention *a = &f->a;
    ct_kir *k = a->k;
    ct__attention_fill(a, f->out, f->rows * a->e_pitch, 0);
    for (int row = 0; row < f->rows; row++) {
        ct_kval r = ct__kir_int(k, row), max = ct__kir_const(k, a->s->dtype, -INFINITY);
        const int at = ct__attention_put_row(a, r);
        if (a->s->has_sinks) max = ct__source_load(k, &a->s->sinks, at, a->lead);
        ct__kir_store(k, f->max, r, max);
        ct__kir_store(k, f->sum, r, ct__kir_const(k, a->s->dtype, a->s->has_sinks));
    }
}

int ct__attention_few_rows(const ct_kir *k, const ct_attention_spec *s) {
    enum { MAX_FEW_ROWS = 8 };
    int64_t group, queries;
    const bool is_static =
        ct__kir_is_int(k, s->group, &group) && ct__kir_is_int(k, s->queries, &queries);
    return is_static && group * queries >= 1 && group * queries <= MAX_FEW_ROWS
               ? (int)(group * queries)
               : 0;
}

void ct__template_attention_few(ct_kir *k, const ct_attention_spec *s) {
    few f = {.rows = ct__attention_few_rows(k, s)};
    ct_attention *a = &f.a;
    ct__attention_begin(a, k, s, f.rows);
    f.max = ct__kir_local(k, s->dtype, f.rows);
    f.sum = ct__kir_local(k, s->dtype, f.rows);
    f.rescale = ct__kir_local(k, s->dtype, f.rows);
    f.out = ct__kir_local(k, s->dtype, f.rows * a->e_pitch);
    ct_kval tasks = ct__kir_int(k, 1), first, end;
    for (int i = 0; i < s->n_lead; i++) tasks = ct__kir_mul(k, tasks, s->lead[i]);
    ct__attention_at(a, ct__kir_loop(k, CT_BIND_ROWS, tasks, "heads"));
    ct__attention_take_rows(a, ct__kir_int(k, 0));
    ct__attention_stage(a, &s->q, a->q_rows, s->d, a->d_pitch);
    attention_few_init(&f);
    a->end = ct__attention_seen(a, &first, &end);
    ct_kval block = ct__kir_loop(k, CT_BIND_SEQ, ct__kir_sub(k, end, first), "block of keys");
    ct__attention_at_keys(a, ct__kir_add(k, first, block));
    const int open = ct__attention_take_panels(a);
    attention_few_block_scores(&f);
    for (int r = 0; r < f.rows; r++) attention_few_softmax(&f, r);
    attention_few_add_values(&f);
    for (int i = 0; i < open; i++) ct__kir_end(k);
    ct__kir_end(k);
    for (int r = 0; r < f.rows; r++) attention_few_store_result(&f, r);
    ct__kir_end(k);
}
