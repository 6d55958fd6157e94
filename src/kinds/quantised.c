// Products with columns of codes, by the templates.
#include "kinds/quantised.h"

#include <string.h>

#include "kinds/emit.h"

enum { ROWS, ROW_SCALES, COLUMNS, COLUMN_SCALES, RESULT, PARTS };
enum { WHICH = 4 }; // operand: of several matrices of codes, which one

typedef struct part {
    ct_emit *e;
    ct_val v;
    bool words;   // its words lie as such in memory
    bool half;    // half of what its scales are
    bool columns; // a position has the first of some columns, and which behind it
    bool grouped; // that first one is a group's number
    bool chosen;  // it is one of several,
    ct_ix which;  // this one, once the kernel has begun
} part;

static ct_ix bound(const part *p, ct_kval at, int axis, int64_t each) {
    ct_ix size = ct__emit_size(p->e, p->v, axis);
    if (each > 1) size = ct__ix_div(p->e->pool, size, ct__ix_int(p->e->pool, each));
    return ct__emit_bind(p->e, at, size);
}
// Where the element stands that is the first of `each`, or, in groups, of as many of each column.
static void index_of(const part *p, const ct_kval *at, int64_t each, ct_ix *index) {
    ct_ix_pool *pool = p->e->pool;
    ct_ix many = ct__ix_int(pool, each);
    const int first = p->chosen;
    if (p->chosen) index[0] = p->which;
    if (p->grouped) {
        index[first] = bound(p, at[0], first, 1);
        index[first + 1] = bound(p, at[2], first + 1, 1);
        index[first + 2] = ct__ix_mul(pool, bound(p, at[1], first + 2, each), many);
        return;
    }
    ct_kval row = p->columns ? ct__kir_add(p->e->kir, at[0], at[1]) : at[0];
    index[first] = bound(p, row, first, 1);
    index[first + 1] = ct__ix_mul(pool, bound(p, at[p->columns ? 2 : 1], first + 1, each), many);
}
static int64_t codes_of_word(const part *p) {
    return 32 / ct_dtype_bits((ct_dtype)ct__type(p->v)->dtype);
}

static ct_kval word_value(void *env, ct_kir *k, const ct_kval *at) {
    const part *p = env;
    const int64_t each = codes_of_word(p), bits = 32 / each;
    const int last = ct__type(p->v)->rank - 1;
    ct_ix index[4], own[4];
    index_of(p, at, each, index);
    if (p->words) return ct__kir_bitcast(k, ct__emit_word(p->e, p->v, index), CT_I32);
    ct_kval all = ct__kir_const_int(k, CT_I32, 0);
    memcpy(own, index, sizeof own);
    for (int64_t i = 0; i < each; i++) { // one by one, of what lies otherwise
        own[last] = ct__ix_add(p->e->pool, index[last], ct__ix_int(p->e->pool, i));
        ct_kval x = ct__emit_value_apart(p->e, p->v, own, CT_I32);
        x = ct__kir_bin(k, CT_K_AND, x, ct__kir_const_int(k, CT_I32, ((int64_t)1 << bits) - 1));
        x = ct__kir_bin(k, CT_K_SHL, x, ct__kir_const_int(k, CT_I32, i * bits));
        all = ct__kir_bin(k, CT_K_OR, all, x);
    }
    return all;
}
static ct_kval scale_value(void *env, ct_kir *k, const ct_kval *at) {
    (void)k;
    const part *p = env;
    ct_ix index[4];
    index_of(p, at, 1, index);
    return ct__emit_value_apart(p->e, p->v, index, CT_F32);
}
// The columns' scales: numbers, or exponents of 2, plus 127 (e8m0: 255 is NaN).
static ct_kval column_scale(void *env, ct_kir *k, const ct_kval *at) {
    const part *p = env;
    ct_ix index[4];
    if (ct__type(p->v)->dtype != CT_U8) return scale_value(env, k, at);
    index_of(p, at, 1, index);
    ct_kval e = ct__emit_value_apart(p->e, p->v, index, CT_I32);
    ct_kval bits = ct__kir_bin(k, CT_K_SHL, e, ct__kir_const_int(k, CT_I32, 23));
    const int64_t special[2][2] = {{0, 1 << 22}, {255, 0x7fc00000}}; // 2^-127 is subnormal
    for (int i = 0; i < 2; i++) {
        ct_kval is = ct__kir_bin(k, CT_K_EQ, e, ct__kir_const_int(k, CT_I32, special[i][0]));
        bits = ct__kir_select(k, is, ct__kir_const_int(k, CT_I32, special[i][1]), bits);
    }
    ct_kval scale = ct__kir_bitcast(k, bits, CT_F32);
    return p->half ? ct__kir_mul(k, scale, ct__kir_const(k, CT_F32, 0.5)) : scale;
}
double ct__quantised_number(const ct_quantised_spec *s, int code) {
    return s->f4 ? ct__decode_float(CT_F4, (uint32_t)code) : code < 8 ? code : code - 16;
}
static void store(void *env, ct_kir *k, const ct_kval *at, ct_kval v) {
    (void)k;
    const part *p = env;
    ct_ix index[2];
    index_of(p, at, 1, index);
    ct__emit_store_apart(p->e, p->v, index, v);
}

static bool has_words(ct_emit *e, ct_val v) {
    ct_ix index[4];
    const part p = {.e = e, .v = v};
    const int last = ct__type(v)->rank - 1;
    for (int a = 0; a <= last; a++) index[a] = ct__ix_var(e->pool, ct__emit_size(e, v, a));
    index[last] = ct__ix_mul(e->pool, index[last], ct__ix_int(e->pool, codes_of_word(&p)));
    ct_dtype of;
    return ct__emit_has_word(e, v, index, &of);
}
// Are neighbours along k neighbours in memory?
static bool is_lined(ct_emit *e, ct_val v) {
    ct_ix index[4];
    const int rank = ct__type(v)->rank;
    for (int a = 0; a < rank; a++) index[a] = ct__ix_var(e->pool, ct__emit_size(e, v, a));
    return ct__emit_contiguous(e, v, index, index[rank - 1]);
}

// Reads which of several matrices it is: for all rows, or for this one.
static void choose(void *env, ct_kir *k, ct_kval row) {
    part *p = env;
    ct_emit *e = p[RESULT].e;
    const ct_val own = p[RESULT].v.node->in[WHICH];
    ct_ix at = ct__type(own)->rank ? ct__emit_bind(e, row, ct__emit_size(e, own, 0)) : -1;
    ct_kval which = ct__emit_value_apart(e, own, ct__type(own)->rank ? &at : NULL, CT_I64);
    const int64_t n = ct__type(p[COLUMNS].v)->dim[0];
    which = ct__kir_max(k, ct__kir_int(k, 0), ct__kir_min(k, which, ct__kir_int(k, n - 1)));
    p[COLUMNS].which = p[COLUMN_SCALES].which = bound(&p[COLUMNS], which, 0, 1);
}

// Rows of bytes have scales, between them and the columns' codes; rows of floats have none.
static bool product_kernels(ct_sched *s, ct_node *node, bool bytes) {
    ct_emit *e = ct__emit_new(s, node);
    if (!e) return false;
    ct__emit_declare_sizes(e, node);
    const ct_val columns_of = node->in[bytes ? 2 : 1], scales_of = node->in[bytes ? 3 : 2];
    const ct_type *rows = ct__type(node->in[0]), *columns = ct__type(columns_of),
                  *scales = ct__type(scales_of);
    const int64_t inner = rows->dim[1];
    const bool f4 = columns->dtype == CT_F4, chosen = node->n_in > WHICH,
               grouped = columns->rank - chosen == 3;
    part p[PARTS] = {
        [ROWS] = {.e = e, .v = node->in[0], .words = bytes && has_words(e, node->in[0])},
        [ROW_SCALES] = {.e = e, .v = node->in[bytes]},
        [COLUMNS] = {e, columns_of, has_words(e, columns_of), false, true, grouped, chosen, 0},
        [COLUMN_SCALES] = {e, scales_of, false, bytes && f4, true, grouped, chosen, 0},
        [RESULT] = {.e = e, .v = {node, 0}}};
    const ct_ix groups = ct__emit_size(e, columns_of, chosen),
                lanes = ct__ix_int(e->pool, CT_LANES);
    const ct_quantised_spec spec = {
        .grouped = grouped,
        .lined = !grouped && is_lined(e, columns_of) && is_lined(e, scales_of),
        .rows = ct__emit_ix(e, ct__emit_size(e, node->in[0], 0)),
        .columns = ct__emit_ix(e, grouped ? ct__ix_mul(e->pool, groups, lanes) : groups),
        .n_rows = ct__is_dyn(rows, 0) ? 0 : rows->dim[0],
        .inner = inner,
        .bits = (int)ct_dtype_bits((ct_dtype)columns->dtype),
        .f4 = f4,
        .scale_codes = scales->dim[chosen + 1] > 1 ? inner / scales->dim[chosen + 1] : 0,
        .begin = chosen ? choose : NULL,
        .each = chosen && ct__type(node->in[WHICH])->rank,
        .env = p,
        .row_words = {.value = word_value, .env = &p[ROWS], .along = 1},
        .column_words = {.value = word_value, .env = &p[COLUMNS], .along = grouped ? 1 : 2},
        .row_numbers = {.value = scale_value, .env = &p[ROWS], .along = 1},
        .row_scale = {.value = scale_value, .env = &p[ROW_SCALES], .along = 1},
        .column_scale = {.value = column_scale, .env = &p[COLUMN_SCALES], .along = grouped ? 1 : 2},
        .out = {.store = store, .env = &p[RESULT]},
        .target = e->target};
    if (bytes)
        ct__template_quantised(e->kir, &spec);
    else
        ct__template_dequantised(e->kir, &spec);
    return ct__emit_done(e, 2.0 * (double)ct__count(node->out) * (double)inner);
}

static bool quantised_kernels(ct_sched *s, ct_node *node) { return product_kernels(s, node, true); }
static bool dequantised_kernels(ct_sched *s, ct_node *node) {
    return product_kernels(s, node, false);
}

static bool whole_steps(const ct_type *rows, const ct_type *columns, bool chosen) {
    const int64_t step = ct__quantised_step((int)ct_dtype_bits((ct_dtype)columns->dtype));
    const bool grouped = columns->rank - chosen == 3;
    return !ct__is_dyn(rows, 1) && rows->dim[1] > 0 && rows->dim[1] % step == 0 &&
           !(chosen && ct__is_dyn(columns, 0)) && !ct__is_dyn(columns, chosen) &&
           (grouped || columns->dim[chosen] >= CT_LANES) &&
           (ct__is_dyn(rows, 0) || rows->dim[0] > 0);
}
static bool takes(const ct_node *node) {
    return whole_steps(ct__type(node->in[0]), ct__type(node->in[2]), node->n_in > WHICH);
}
// More rows are worth packing.
static bool takes_few(const ct_node *node) {
    const ct_type *rows = ct__type(node->in[0]), *columns = ct__type(node->in[1]);
    const bool halves = ct__type(node->in[2])->dim[1] > columns->dim[1] / CT_QUANTISED_BLOCK;
    return columns->rank == 2 && !halves && whole_steps(rows, columns, false) &&
           !ct__is_dyn(rows, 0) && rows->dim[0] <= CT_QUANTISED_ROWS &&
           columns->dim[0] >= CT_QUANTISED_WIDTH && rows->dtype == CT_F32;
}
static double products(const ct_node *node) { return (double)ct__type(node->in[0])->dim[1]; }

const ct_kind ct__kind_quantised = {
    .name = "quantised",
    .doc =
        "Rows of bytes times columns of codes, summed as integers in each block and then scaled.",
    .scheduled = CT_TEMPLATE,
    .kernels = quantised_kernels,
    .takes = takes,
    .epilogue = true,
    .products = products,
};
const ct_kind ct__kind_dequantised = {
    .name = "dequantised",
    .doc = "A few rows of floats times the numbers that columns of codes stand for.",
    .scheduled = CT_TEMPLATE,
    .kernels = dequantised_kernels,
    .takes = takes_few,
    .epilogue = true,
    .products = products,
};
