// State of attention kernels: scratch, blocks of rows and of keys, scores, register tiles.
#include "kinds/attention_block.h"

#include <math.h>

enum {
    CHUNK = 256,            // steps of a chain (docs/design/bits.md)
    MAX_DISTANCE = 1 << 30, // larger than the index of any key
};

static int64_t attention_round_to_vectors(int64_t n) {
    return (n + CT_LANES - 1) / CT_LANES * CT_LANES;
}

int ct__attention_operand(int64_t present, int flag) {
    int at = 3;
    if (!(present & flag)) return -1;
    for (int before = 1; before < flag; before *= 2) at += (present & before) != 0;
    return at;
}

// ---------------------------------------------------------------------------------- sizes and scratch

// Chooses the register tile: half of the registers hold its sums. Measured with AVX-512, in GFLOP/s of one
// core: 8 rows of 32 lanes 95, 16 of 16 and 8 of 48 93, 4 of 64 or 96 80.
static void attention_choose_tile(ct_attention *a) {
    const ct_target *target = &a->s->target;
    const int n_vectors =
        target->registers * target->lanes / CT_LANES / (a->s->dtype == CT_F64 ? 2 : 1);
    a->high = n_vectors >= 16 ? CT_ATTENTION_TILE : n_vectors >= 8 ? 4 : 2;
    a->tile = n_vectors >= 32 && a->width > CT_LANES ? 2 * CT_LANES : CT_LANES;
}

static void attention_alloc_panel(ct_attention *a, ct_attention_panel *p,
                                  const ct_attention_extra *from) {
    const bool all = from->extent == CT_ATTENTION_ALL;
    const int64_t n = CT_ATTENTION_BLOCK * (all ? a->width : 1);
    *p = (ct_attention_panel){from, -1, -1};
    if (from->extent == CT_ATTENTION_NONE) return;
    if (all) p->rows = ct__kir_local(a->k, a->s->dtype, n);
    p->turned = all && a->few ? p->rows : ct__kir_local(a->k, a->s->dtype, n);
}

void ct__attention_begin(ct_attention *a, ct_kir *k, const ct_attention_spec *s, int64_t width) {
    int64_t size = 0;
    *a = (ct_attention){.k = k, .s = s, .width = width, .few = width < CT_LANES, .unseen = -1};
    attention_choose_tile(a);
    a->d_pitch = attention_round_to_vectors(s->d);
    a->e_pitch = attention_round_to_vectors(s->e);
    a->tail =
        s->length || s->position || !ct__kir_is_int(k, s->keys, &size) || size % CT_ATTENTION_BLOCK;
    a->q_rows = ct__kir_local(k, s->dtype, width * a->d_pitch);
    a->q_turned = a->few ? -1 : ct__kir_local(k, s->dtype, width * a->d_pitch);
    a->keys = ct__kir_local(k, s->dtype, CT_ATTENTION_BLOCK * a->d_pitch);
    a->values = ct__kir_local(k, s->dtype, CT_ATTENTION_BLOCK * a->e_pitch);
    a->p = ct__kir_local(k, s->dtype, CT_ATTENTION_BLOCK * width);
    a->query = s->causal || s->has_alibi ? ct__kir_local(k, CT_I32, width) : -1;
    a->slopes = s->has_alibi ? ct__kir_local(k, s->dtype, width) : -1;
    attention_alloc_panel(a, &a->added, &s->added);
    attention_alloc_panel(a, &a->mask, &s->mask);
    attention_alloc_panel(a, &a->keep, &s->keep);
    a->rows = ct__kir_mul(k, s->group, s->queries);
}

void ct__attention_fill(const ct_attention *a, int buf, int64_t n, double value) {
    ct_kir *k = a->k;
    ct_kval i = ct__kir_loop_n(k, CT_BIND_LANES, n, "fill");
    ct__kir_store(k, buf, i, ct__kir_const(k, a->s->dtype, value));
    ct__kir_end(k);
}

ct_kval ct__attention_in_row(const ct_attention *a, ct_kval row, ct_kval lane) {
    return ct__kir_add(a->k, ct__kir_muli(a->k, row, a->width), lane);
}

// Fills rows of scratch (n, pitch) after the first `count` with zeros.
static void attention_pad_rows(const ct_attention *a, int to, int64_t pitch, ct_kval count,
                               int64_t n) {
    ct_kir *k = a->k;
    ct_kval n_padding = ct__kir_sub(k, ct__kir_int(k, n), count);
    ct_kval r = ct__kir_loop(k, CT_BIND_SEQ, n_padding, "row beyond the last");
    ct_kval row_offset = ct__kir_muli(k, ct__kir_add(k, count, r), pitch);
    ct_kval i = ct__kir_loop_n(k, CT_BIND_LANES, pitch, "number of a row");
    ct__kir_store(k, to, ct__kir_add(k, row_offset, i), ct__kir_const(k, a->s->dtype, 0));
    ct__kir_end_n(k, 2);
}

void ct__attention_at(ct_attention *a, ct_kval lead) {
    const ct_attention_spec *s = a->s;
    ct_kir *k = a->k;
    ct__unflatten(k, lead, s->n_lead, s->lead, a->lead);
    a->position = s->position ? s->position(s->env, k, a->lead) : ct__kir_int(k, 0);
    a->fill = s->fill ? s->fill(s->env, k) : ct__kir_const(k, s->dtype, -INFINITY);
    a->end = s->keys;
    if (s->length) a->end = ct__kir_min(k, a->end, s->length(s->env, k, a->lead));
    // Elements that no later loop writes stay zero.
    if (a->d_pitch != s->d) {
        ct__attention_fill(a, a->q_rows, a->width * a->d_pitch, 0);
        ct__attention_fill(a, a->keys, CT_ATTENTION_BLOCK * a->d_pitch, 0);
    }
    if (a->e_pitch != s->e) ct__attention_fill(a, a->values, CT_ATTENTION_BLOCK * a->e_pitch, 0);
}

// ------------------------------------------------------------------------------------ a block of rows

int ct__attention_put_row(ct_attention *a, ct_kval row) {
    const int n = a->s->n_lead;
    a->lead[n] = ct__kir_div(a->k, row, a->s->queries);
    a->lead[n + 1] = ct__kir_mod(a->k, row, a->s->queries);
    return n + 2;
}

static ct_kval attention_block_size(ct_kir *k, ct_kval all, ct_kval from, int64_t limit) {
    return ct__kir_min(k, ct__kir_sub(k, all, from), ct__kir_int(k, limit));
}

void ct__attention_take_rows(ct_attention *a, ct_kval block) {
    ct_kir *k = a->k;
    a->row0 = ct__kir_muli(k, block, a->width);
    a->n_rows = attention_block_size(k, a->rows, a->row0, a->width);
    if (a->query < 0) return;
    ct_kval r = ct__kir_loop_n(k, CT_BIND_SEQ, a->width, "row");
    ct_kval row = ct__kir_min(k, ct__kir_add(k, a->row0, r), ct__kir_addi(k, a->rows, -1));
    const int at = ct__attention_put_row(a, row);
    ct_kval query = ct__kir_add(k, a->position, a->lead[at - 1]);
    query = ct__kir_max(k, query, ct__kir_int(k, -MAX_DISTANCE));
    query = ct__kir_min(k, query, ct__kir_int(k, MAX_DISTANCE));
    ct__kir_store(k, a->query, r, ct__kir_cast(k, query, CT_I32));
    if (a->slopes >= 0)
        ct__kir_store(k, a->slopes, r, ct__source_load(k, &a->s->alibi, at, a->lead));
    ct__kir_end(k);
}

// Computes the first and the last query of the block of rows.
static void attention_query_range(const ct_attention *a, ct_kval *first, ct_kval *last) {
    ct_kir *k = a->k;
    ct_kval n = a->s->queries, end = ct__kir_addi(k, ct__kir_add(k, a->row0, a->n_rows), -1);
    ct_kval same_head = ct__kir_bin(k, CT_K_EQ, ct__kir_div(k, a->row0, n), ct__kir_div(k, end, n));
    *first = ct__kir_select(k, same_head, ct__kir_mod(k, a->row0, n), ct__kir_int(k, 0));
    *last = ct__kir_select(k, same_head, ct__kir_mod(k, end, n), ct__kir_addi(k, n, -1));
}

ct_kval ct__attention_seen(const ct_attention *a, ct_kval *first, ct_kval *end) {
    ct_kir *k = a->k;
    ct_kval low, high, zero = ct__kir_int(k, 0), stop = a->end;
    *first = zero;
    if (a->s->causal) {
        attention_query_range(a, &low, &high);
        stop = ct__kir_min(k, stop, ct__kir_addi(k, ct__kir_add(k, a->position, high), 1));
        if (a->s->window) {
            ct_kval from = ct__kir_addi(k, ct__kir_add(k, a->position, low), 1 - a->s->window);
            from = ct__kir_max(k, from, zero);
            *first = ct__kir_div(k, from, ct__kir_int(k, CT_ATTENTION_BLOCK));
        }
    }
    *end = ct__kir_ceil_div(k, ct__kir_max(k, stop, zero), CT_ATTENTION_BLOCK);
    return stop;
}

void ct__attention_stage(ct_attention *a, const ct_source *from, int to, int64_t n, int64_t pitch) {
    ct_kir *k = a->k;
    ct_kval r = ct__kir_loop(k, CT_BIND_SEQ, a->n_rows, "row");
    const int at = ct__attention_put_row(a, ct__kir_add(k, a->row0, r));
    ct_kval row_offset = ct__kir_muli(k, r, pitch);
    ct_kval i = ct__kir_loop_n(k, CT_BIND_LANES, n, "number of a row");
    a->lead[at] = i;
    ct_kval v = ct__source_load(k, from, at + 1, a->lead);
    ct__kir_store(k, to, ct__kir_add(k, row_offset, i), v);
    ct__kir_end_n(k, 2);
    attention_pad_rows(a, to, pitch, a->n_rows, a->width);
}

void ct__attention_turn(const ct_attention *a, int from, int64_t rows, int64_t columns, int to) {
    ct_kir *k = a->k;
    ct_kval r0 = ct__kir_loop_n(k, CT_BIND_SEQ, rows / CT_LANES, "16 rows");
    r0 = ct__kir_muli(k, r0, CT_LANES);
    ct_kval c0 = ct__kir_loop_n(k, CT_BIND_SEQ, columns / CT_LANES, "16 columns");
    c0 = ct__kir_muli(k, c0, CT_LANES);
    ct_kval row = ct__kir_add(k, r0, ct__kir_loop_n(k, CT_BIND_TILE, CT_LANES, "row")), x[CT_LANES];
    ct_kval at = ct__kir_add(k, ct__kir_muli(k, row, columns), c0);
    for (int i = 0; i < CT_LANES; i++) x[i] = ct__kir_load(k, from, ct__kir_addi(k, at, i));
    at = ct__kir_add(k, ct__kir_muli(k, c0, rows), row);
    for (int i = 0; i < CT_LANES; i++) ct__kir_store(k, to, ct__kir_addi(k, at, i * rows), x[i]);
    ct__kir_end_n(k, 3);
}

// ------------------------------------------------------------------------------------ a block of keys

void ct__attention_pack(ct_attention *a, const ct_source *from, int to, int64_t n, int64_t pitch) {
    ct_kir *k = a->k;
    const int at = a->s->n_lead;
    ct_kval j = ct__kir_loop(k, CT_BIND_SEQ, a->n_keys, "key");
    ct_kval row_offset = ct__kir_muli(k, j, pitch);
    ct_kval i = ct__kir_loop_n(k, CT_BIND_LANES, n, "number of a key");
    a->lead[at] = ct__kir_add(k, a->key0, j);
    a->lead[at + 1] = i;
    ct__kir_store(k, to, ct__kir_add(k, row_offset, i), ct__source_load(k, from, at + 2, a->lead));
    ct__kir_end_n(k, 2);
    if (a->tail) attention_pad_rows(a, to, pitch, a->n_keys, CT_ATTENTION_BLOCK);
}

void ct__attention_at_keys(ct_attention *a, ct_kval block) {
    ct_kir *k = a->k;
    a->key0 = ct__kir_muli(k, block, CT_ATTENTION_BLOCK);
    a->n_keys = ct__kir_int(k, CT_ATTENTION_BLOCK);
    if (a->tail) a->n_keys = attention_block_size(k, a->end, a->key0, CT_ATTENTION_BLOCK);
    if (a->s->length || a->s->position) a->n_keys = ct__kir_max(k, a->n_keys, ct__kir_int(k, 0));
}
void ct__attention_take_keys(ct_attention *a, ct_kval block) {
    ct__attention_at_keys(a, block);
    ct__attention_pack(a, &a->s->k, a->keys, a->s->d, a->d_pitch);
    ct__attention_pack(a, &a->s->v, a->values, a->s->e, a->e_pitch);
}

// Loads an operand for the keys of one row to scratch at `place`, padded with zeros.
static void attention_load_panel_row(ct_attention *a, const ct_attention_panel *p, ct_kval row,
                                     int to, ct_kval offset) {
    ct_kir *k = a->k;
    const ct_dtype dtype = a->s->dtype;
    const int at = ct__attention_put_row(a, row);
    ct_kval j = ct__kir_loop(k, CT_BIND_LANES, a->n_keys, "key");
    a->lead[at] = ct__kir_add(k, a->key0, j);
    ct_kval v = ct__source_load(k, &p->from->at, at + 1, a->lead);
    if (p == &a->mask)
        v = ct__kir_select(k, v, ct__kir_const(k, dtype, 1), ct__kir_const(k, dtype, 0));
    ct__kir_store(k, to, ct__kir_add(k, offset, j), v);
    ct__kir_end(k);
    if (!a->tail) return;
    ct_kval n_padding = ct__kir_sub(k, ct__kir_int(k, CT_ATTENTION_BLOCK), a->n_keys);
    j = ct__kir_loop(k, CT_BIND_LANES, n_padding, "key beyond the last");
    j = ct__kir_add(k, a->n_keys, j);
    ct__kir_store(k, to, ct__kir_add(k, offset, j), ct__kir_const(k, dtype, 0));
    ct__kir_end(k);
}

static void attention_load_panel(ct_attention *a, const ct_attention_panel *p) {
    ct_kir *k = a->k;
    if (p->from->extent == CT_ATTENTION_NONE) return;
    if (p->from->extent == CT_ATTENTION_KEYS) {
        attention_load_panel_row(a, p, a->row0, p->turned, ct__kir_int(k, 0));
        return;
    }
    ct_kval r = ct__kir_loop_n(k, CT_BIND_SEQ, a->width, "row");
    ct_kval row = ct__kir_min(k, ct__kir_add(k, a->row0, r), ct__kir_addi(k, a->rows, -1));
    attention_load_panel_row(a, p, row, p->rows, ct__kir_muli(k, r, CT_ATTENTION_BLOCK));
    ct__kir_end(k);
}
static void attention_transpose_panel(const ct_attention *a, const ct_attention_panel *p) {
    if (p->from->extent == CT_ATTENTION_ALL && !a->few)
        ct__attention_turn(a, p->rows, a->width, CT_ATTENTION_BLOCK, p->turned);
}

// True in the kernel if some element of the panel differs from the value that hides a key.
static ct_kval attention_panel_any(const ct_attention *a, const ct_attention_panel *p,
                                   double hidden) {
    ct_kir *k = a->k;
    const bool all = p->from->extent == CT_ATTENTION_ALL;
    const int64_t n = CT_ATTENTION_BLOCK * (all ? a->width : 1);
    ct_kval hidden_value = ct__kir_const(k, a->s->dtype, hidden);
    ct_kval i = ct__kir_loop_n(k, CT_BIND_LANES, n, "number of the panel");
    ct_kval max = ct__kir_reduce(k, CT_RED_MAX, ct__kir_load(k, all ? p->rows : p->turned, i));
    ct__kir_end(k);
    return ct__kir_un(k, CT_K_NOT, ct__kir_bin(k, CT_K_EQ, max, hidden_value)); // true for NaN, too
}

// True in the kernel if the block must be processed: a panel shows a key, the mask gives hidden keys a score,
// or a row has no visible key.
static ct_kval attention_block_is_needed(const ct_attention *a, ct_kval any) {
    ct_kir *k = a->k;
    ct_kval low = ct__kir_const(k, a->s->dtype, -INFINITY);
    if (a->s->fill) any = ct__kir_bin(k, CT_K_OR, any, ct__kir_bin(k, CT_K_NE, a->fill, low));
    return a->unseen < 0 ? any : ct__kir_bin(k, CT_K_OR, any, a->unseen);
}

int ct__attention_take_panels(ct_attention *a) {
    ct_kir *k = a->k;
    const ct_attention_spec *s = a->s;
    int open = 0;
    if (s->mask.extent != CT_ATTENTION_NONE) {
        attention_load_panel(a, &a->mask);
        ct__kir_if(k, attention_block_is_needed(a, attention_panel_any(a, &a->mask, 0)));
        open++;
        attention_transpose_panel(a, &a->mask);
    }
    if (s->added.extent != CT_ATTENTION_NONE) {
        attention_load_panel(a, &a->added);
        ct__kir_if(k, attention_block_is_needed(a, attention_panel_any(a, &a->added, -INFINITY)));
        open++;
        attention_transpose_panel(a, &a->added);
    }
    attention_load_panel(a, &a->keep);
    attention_transpose_panel(a, &a->keep);
    return open;
}

ct_kval ct__attention_nothing(const ct_attention *a) {
    return ct__kir_const(a->k, a->s->dtype, a->s->masked_nan ? (double)NAN : 0);
}

ct_kval ct__attention_panel_at(const ct_attention *a, const ct_attention_panel *p, ct_kval key,
                               ct_kval lane) {
    ct_kir *k = a->k;
    if (p->from->extent == CT_ATTENTION_KEYS) return ct__kir_load(k, p->turned, key);
    if (a->few)
        return ct__kir_load(k, p->rows,
                            ct__kir_add(k, ct__kir_muli(k, lane, CT_ATTENTION_BLOCK), key));
    return ct__kir_load(k, p->turned, ct__attention_in_row(a, key, lane));
}

// ------------------------------------------------------------------------------------- register tiles

void ct__attention_chain(const ct_attention *a, const ct_attention_chain *c, ct_kval *out) {
    ct_kir *k = a->k;
    ct_kval zero = ct__kir_const(k, a->s->dtype, 0);
    for (int64_t from = 0; from < c->n; from += CHUNK) {
        ct_kval acc[CT_ATTENTION_TILE];
        for (int r = 0; r < a->high; r++) acc[r] = ct__kir_reg(k, zero);
        ct_kval i =
            ct__kir_loop_n(k, CT_BIND_SEQ, c->n - from < CHUNK ? c->n - from : CHUNK, "step");
        i = ct__kir_addi(k, i, from);
        ct_kval lane = ct__kir_add(k, c->lane, ct__kir_muli(k, i, c->lane_by_i));
        ct_kval x = ct__kir_load(k, c->lanes, lane);
        ct_kval at = ct__kir_add(k, c->at, ct__kir_muli(k, i, c->by_i));
        for (int r = 0; r < a->high; r++) {
            ct_kval number = ct__kir_load(k, c->numbers, ct__kir_addi(k, at, r * c->by_row));
            ct__kir_set(k, acc[r], ct__kir_fma(k, number, x, ct__kir_get(k, acc[r])));
        }
        ct__kir_end(k);
        for (int r = 0; r < a->high; r++) {
            ct_kval own = ct__kir_get(k, acc[r]);
            out[r] = from ? ct__kir_add(k, out[r], own) : own;
        }
    }
}

ct_kval ct__attention_score(const ct_attention *a, ct_kval key, ct_kval row, ct_kval x,
                            ct_kval *tanh_score) {
    ct_kir *k = a->k;
    const ct_attention_spec *s = a->s;
    ct_kval low = ct__kir_const(k, s->dtype, -INFINITY), zero = ct__kir_const(k, s->dtype, 0);
    ct_kval query = a->query < 0 ? -1 : ct__kir_load(k, a->query, row);
    if (s->scale != 1) x = ct__kir_mul(k, x, ct__kir_const(k, s->dtype, s->scale));
    if (s->cap > 0) {
        ct_kval cap = ct__kir_const(k, s->dtype, s->cap);
        *tanh_score = ct__kir_math(k, CT_MATH_TANH, ct__kir_div(k, x, cap));
        x = ct__kir_mul(k, *tanh_score, cap);
    }
    if (s->added.extent != CT_ATTENTION_NONE)
        x = ct__kir_add(k, x, ct__attention_panel_at(a, &a->added, key, row));
    ct_kval key_index = ct__kir_cast(k, ct__kir_add(k, a->key0, key), CT_I32);
    if (s->has_alibi) {
        ct_kval slope = ct__kir_load(k, a->slopes, row);
        ct_kval distance = ct__kir_un(k, CT_K_ABS, ct__kir_sub(k, query, key_index));
        x = ct__kir_sub(k, x, ct__kir_mul(k, slope, ct__kir_cast(k, distance, s->dtype)));
    }
    if (s->mask.extent != CT_ATTENTION_NONE) {
        ct_kval visible = ct__attention_panel_at(a, &a->mask, key, row);
        x = ct__kir_select(k, ct__kir_bin(k, CT_K_NE, visible, zero), x, a->fill);
    }
    if (s->causal) x = ct__kir_select(k, ct__kir_bin(k, CT_K_LE, key_index, query), x, low);
    if (s->window) {
        ct_kval size =
            ct__kir_const_int(k, CT_I32, s->window < MAX_DISTANCE ? s->window : MAX_DISTANCE);
        x = ct__kir_select(k, ct__kir_lt(k, ct__kir_sub(k, query, size), key_index), x, low);
    }
    if (a->tail) x = ct__kir_select(k, ct__kir_lt(k, key, a->n_keys), x, low);
    return x;
}

void ct__attention_scores(const ct_attention *a, ct_kval key, ct_kval lane, ct_kval *out,
                          ct_kval *tanh_scores) {
    ct_kir *k = a->k;
    const ct_attention_spec *s = a->s;
    const ct_attention_chain products = {.n = s->d,
                                         .numbers = a->keys,
                                         .at = ct__kir_muli(k, key, a->d_pitch),
                                         .by_row = a->d_pitch,
                                         .by_i = 1,
                                         .lanes = a->q_turned,
                                         .lane = lane,
                                         .lane_by_i = a->width};
    ct__attention_chain(a, &products, out);
    for (int r = 0; r < a->high; r++)
        out[r] = ct__attention_score(a, ct__kir_addi(k, key, r), lane, out[r], &tanh_scores[r]);
}

void ct__attention_tiles(const ct_attention *a, int64_t n, void (*write)(void *env, ct_kval lane),
                         void *env) {
    ct_kir *k = a->k;
    const int64_t n_whole = n / a->tile, rest = n % a->tile;
    if (n_whole) {
        ct_kval t = ct__kir_loop_n(k, CT_BIND_SEQ, n_whole, "lanes");
        ct_kval lane = ct__kir_loop_n(k, CT_BIND_TILE, a->tile, "lane");
        write(env, ct__kir_add(k, ct__kir_muli(k, t, a->tile), lane));
        ct__kir_end_n(k, 2);
    }
    if (!rest) return;
    ct_kval lane = ct__kir_loop_n(k, CT_BIND_TILE, rest, "last lane");
    write(env, ct__kir_addi(k, lane, n_whole * a->tile));
    ct__kir_end(k);
}
