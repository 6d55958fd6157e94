// Products with quantised columns as ops of the graph: binds operands and results to the templates.
#include "kinds/quantised.h"

#include <string.h>

#include "kinds/emit.h"

enum { ROWS, ROW_SCALES, COLUMNS, COLUMN_SCALES, COLUMN_OFFSETS, RESULT, PARTS };
enum { WHICH = 4 };   // operand: with several quantised matrices, the index of the one to use
enum { OFFSETS = 3 }; // operand with float rows: the columns' offsets, if present

typedef struct part {
    ct_emit *e;
    ct_val v;
    bool words;        // words are contiguous in memory and can be loaded as such
    bool halves_scale; // the values are half of the stored scales
    bool columns;      // a position is a first column and an offset from it
    bool grouped;      // the first column is the index of a group
    bool has_selector; // it is one of several matrices,
    ct_ix which;       // the index of the matrix, once the kernel has begun
} part;

static ct_ix quantised_bind(const part *p, ct_kval at, int axis, int64_t count) {
    ct_ix size = ct__emit_size(p->e, p->v, axis);
    if (count > 1) size = ct__ix_div(p->e->pool, size, ct__ix_int(p->e->pool, count));
    return ct__emit_bind(p->e, at, size);
}
// Computes the index of an element that is the first of `each` elements, or, in groups, of as many of each
// column.
static void quantised_index(const part *p, const ct_kval *at, int64_t each, ct_ix *index) {
    ct_ix_pool *pool = p->e->pool;
    ct_ix count = ct__ix_int(pool, each);
    const int first = p->has_selector;
    if (p->has_selector) index[0] = p->which;
    if (p->grouped) {
        index[first] = quantised_bind(p, at[0], first, 1);
        index[first + 1] = quantised_bind(p, at[2], first + 1, 1);
        index[first + 2] = ct__ix_mul(pool, quantised_bind(p, at[1], first + 2, each), count);
        return;
    }
    ct_kval row = p->columns ? ct__kir_add(p->e->kir, at[0], at[1]) : at[0];
    index[first] = quantised_bind(p, row, first, 1);
    index[first + 1] =
        ct__ix_mul(pool, quantised_bind(p, at[p->columns ? 2 : 1], first + 1, each), count);
}
static int64_t quantised_word_size(const part *p) {
    return 32 / ct_dtype_bits((ct_dtype)ct__type(p->v)->dtype);
}

static ct_kval quantised_load_word(void *env, ct_kir *k, const ct_kval *at) {
    const part *p = env;
    const int64_t each = quantised_word_size(p), bits = 32 / each;
    const int last = ct__type(p->v)->rank - 1;
    ct_ix index[4], own[4];
    quantised_index(p, at, each, index);
    if (p->words) return ct__kir_bitcast(k, ct__emit_word(p->e, p->v, index), CT_I32);
    ct_kval all = ct__kir_const_int(k, CT_I32, 0);
    memcpy(own, index, sizeof own);
    for (int64_t i = 0; i < each; i++) { // one by one, if they are not in memory as words
        own[last] = ct__ix_add(p->e->pool, index[last], ct__ix_int(p->e->pool, i));
        ct_kval x = ct__emit_value_apart(p->e, p->v, own, CT_I32);
        x = ct__kir_bin(k, CT_K_AND, x, ct__kir_const_int(k, CT_I32, ((int64_t)1 << bits) - 1));
        x = ct__kir_bin(k, CT_K_SHL, x, ct__kir_const_int(k, CT_I32, i * bits));
        all = ct__kir_bin(k, CT_K_OR, all, x);
    }
    return all;
}
static ct_kval quantised_load_f32(void *env, ct_kir *k, const ct_kval *at) {
    (void)k;
    const part *p = env;
    ct_ix index[4];
    quantised_index(p, at, 1, index);
    return ct__emit_value_apart(p->e, p->v, index, CT_F32);
}
// Loads a scale of the columns: a float, or an exponent of 2 plus 127 (e8m0: 255 is NaN).
static ct_kval quantised_load_scale(void *env, ct_kir *k, const ct_kval *at) {
    const part *p = env;
    ct_ix index[4];
    if (ct__type(p->v)->dtype != CT_U8) return quantised_load_f32(env, k, at);
    quantised_index(p, at, 1, index);
    ct_kval e = ct__emit_value_apart(p->e, p->v, index, CT_I32);
    ct_kval bits = ct__kir_bin(k, CT_K_SHL, e, ct__kir_const_int(k, CT_I32, 23));
    const int64_t special[2][2] = {{0, 1 << 22}, {255, 0x7fc00000}}; // 2^-127 is subnormal
    for (int i = 0; i < 2; i++) {
        ct_kval is = ct__kir_bin(k, CT_K_EQ, e, ct__kir_const_int(k, CT_I32, special[i][0]));
        bits = ct__kir_select(k, is, ct__kir_const_int(k, CT_I32, special[i][1]), bits);
    }
    ct_kval scale = ct__kir_bitcast(k, bits, CT_F32);
    return p->halves_scale ? ct__kir_mul(k, scale, ct__kir_const(k, CT_F32, 0.5)) : scale;
}
double ct__quantised_number(const ct_quantised_spec *s, int code) {
    return s->f4                         ? ct__decode_float(CT_F4, (uint32_t)code)
           : s->without_sign || code < 8 ? code
                                         : code - 16;
}
static void quantised_store(void *env, ct_kir *k, const ct_kval *at, ct_kval v) {
    (void)k;
    const part *p = env;
    ct_ix index[2];
    quantised_index(p, at, 1, index);
    ct__emit_store_apart(p->e, p->v, index, v);
}

static bool quantised_has_words(ct_emit *e, ct_val v) {
    ct_ix index[4];
    const part p = {.e = e, .v = v};
    const int last = ct__type(v)->rank - 1;
    for (int a = 0; a <= last; a++) index[a] = ct__ix_var(e->pool, ct__emit_size(e, v, a));
    index[last] = ct__ix_mul(e->pool, index[last], ct__ix_int(e->pool, quantised_word_size(&p)));
    ct_dtype of;
    return ct__emit_has_word(e, v, index, &of);
}
// True if neighbours along k are neighbours in memory.
static bool quantised_is_lined(ct_emit *e, ct_val v) {
    ct_ix index[4];
    const int rank = ct__type(v)->rank;
    for (int a = 0; a < rank; a++) index[a] = ct__ix_var(e->pool, ct__emit_size(e, v, a));
    return ct__emit_contiguous(e, v, index, index[rank - 1]);
}

// Reads which of several matrices is used: one for all rows, or one for this row.
static void quantised_select_matrix(void *env, ct_kir *k, ct_kval row) {
    part *p = env;
    ct_emit *e = p[RESULT].e;
    const ct_val own = p[RESULT].v.node->in[WHICH];
    ct_ix at = ct__type(own)->rank ? ct__emit_bind(e, row, ct__emit_size(e, own, 0)) : -1;
    ct_kval which = ct__emit_value_apart(e, own, ct__type(own)->rank ? &at : NULL, CT_I64);
    const int64_t n = ct__type(p[COLUMNS].v)->dim[0];
    which = ct__kir_max(k, ct__kir_int(k, 0), ct__kir_min(k, which, ct__kir_int(k, n - 1)));
    p[COLUMNS].which = p[COLUMN_SCALES].which = quantised_bind(&p[COLUMNS], which, 0, 1);
}

// Quantised rows have scales, as an operand between them and the columns' quants; float rows have none.
static bool quantised_write_kernel(ct_sched *s, ct_node *node, bool bytes) {
    ct_emit *e = ct__emit_new(s, node);
    if (!e) return false;
    ct__emit_declare_sizes(e, node);
    const ct_val columns_of = node->in[bytes ? 2 : 1], scales_of = node->in[bytes ? 3 : 2];
    const ct_type *rows = ct__type(node->in[0]), *columns = ct__type(columns_of),
                  *scales = ct__type(scales_of);
    const int64_t inner = rows->dim[1];
    const bool f4 = columns->dtype == CT_F4, chosen = node->n_in > WHICH,
               offset = !bytes && node->n_in > OFFSETS, grouped = columns->rank - chosen == 3;
    part p[PARTS] = {
        [ROWS] = {.e = e, .v = node->in[0], .words = bytes && quantised_has_words(e, node->in[0])},
        [ROW_SCALES] = {.e = e, .v = node->in[bytes]},
        [COLUMNS] = {e, columns_of, quantised_has_words(e, columns_of), false, true, grouped,
                     chosen, 0},
        [COLUMN_SCALES] = {e, scales_of, false, bytes && f4, true, grouped, chosen, 0},
        [COLUMN_OFFSETS] = {.e = e, .v = offset ? node->in[OFFSETS] : scales_of, .columns = true},
        [RESULT] = {.e = e, .v = {node, 0}}};
    const ct_ix groups = ct__emit_size(e, columns_of, chosen),
                lanes = ct__ix_int(e->pool, CT_LANES);
    const ct_quantised_spec spec = {
        .grouped = grouped,
        .lined = !grouped && quantised_is_lined(e, columns_of) && quantised_is_lined(e, scales_of),
        .rows = ct__emit_ix(e, ct__emit_size(e, node->in[0], 0)),
        .columns = ct__emit_ix(e, grouped ? ct__ix_mul(e->pool, groups, lanes) : groups),
        .n_rows = ct__is_dyn(rows, 0) ? 0 : rows->dim[0],
        .inner = inner,
        .bits = (int)ct_dtype_bits((ct_dtype)columns->dtype),
        .f4 = f4,
        .without_sign = columns->dtype == CT_U8 || columns->dtype == CT_U4,
        .rounded = offset ? (ct_dtype)scales->dtype : CT_DEFAULT,
        .scale_codes = scales->dim[chosen + 1] > 1 ? inner / scales->dim[chosen + 1] : 0,
        .begin = chosen ? quantised_select_matrix : NULL,
        .each = chosen && ct__type(node->in[WHICH])->rank,
        .env = p,
        .row_words = {.value = quantised_load_word, .env = &p[ROWS], .along = 1},
        .column_words = {.value = quantised_load_word,
                         .env = &p[COLUMNS],
                         .along = grouped ? 1 : 2},
        .row_numbers = {.value = quantised_load_f32, .env = &p[ROWS], .along = 1},
        .row_scale = {.value = quantised_load_f32, .env = &p[ROW_SCALES], .along = 1},
        .column_scale = {.value = quantised_load_scale,
                         .env = &p[COLUMN_SCALES],
                         .along = grouped ? 1 : 2},
        .column_offset = {.value = quantised_load_f32, .env = &p[COLUMN_OFFSETS], .along = 2},
        .out = {.store = quantised_store, .env = &p[RESULT]},
        .target = e->target};
    if (bytes)
        ct__template_quantised(e->kir, &spec);
    else
        ct__template_dequantised(e->kir, &spec);
    return ct__emit_done(e, 2.0 * (double)ct__count(node->out) * (double)inner);
}

static bool quantised_kernels(ct_sched *s, ct_node *node) {
    return quantised_write_kernel(s, node, true);
}
static bool dequantised_kernels(ct_sched *s, ct_node *node) {
    return quantised_write_kernel(s, node, false);
}

static bool quantised_shape_is_supported(const ct_type *rows, const ct_type *columns, bool chosen) {
    const int64_t step = ct__quantised_step((int)ct_dtype_bits((ct_dtype)columns->dtype));
    const bool grouped = columns->rank - chosen == 3;
    return !ct__is_dyn(rows, 1) && rows->dim[1] > 0 && rows->dim[1] % step == 0 &&
           !(chosen && ct__is_dyn(columns, 0)) && !ct__is_dyn(columns, chosen) &&
           (grouped || columns->dim[chosen] >= CT_LANES) &&
           (ct__is_dyn(rows, 0) || rows->dim[0] > 0);
}
static bool quantised_is_supported(const ct_node *node) {
    return quantised_shape_is_supported(ct__type(node->in[0]), ct__type(node->in[2]),
                                        node->n_in > WHICH);
}
static bool dequantised_is_supported(const ct_node *node) {
    const ct_type *rows = ct__type(node->in[0]), *columns = ct__type(node->in[1]);
    const int64_t scales = ct__type(node->in[2])->dim[1],
                  each = scales > 1 ? columns->dim[1] / scales : CT_QUANTISED_BLOCK;
    const bool blocks = each == CT_QUANTISED_BLOCK / 2 || each % CT_QUANTISED_BLOCK == 0;
    return columns->rank == 2 && blocks && quantised_shape_is_supported(rows, columns, false) &&
           columns->dim[0] >= CT_QUANTISED_WIDTH && rows->dtype == CT_F32;
}
static double quantised_inner(const ct_node *node) { return (double)ct__type(node->in[0])->dim[1]; }

const ct_kind ct__kind_quantised = {
    .name = "quantised",
    .doc =
        "Rows of bytes times columns of quants, summed as integers in each block and then scaled.",
    .scheduled = CT_TEMPLATE,
    .kernels = quantised_kernels,
    .takes = quantised_is_supported,
    .epilogue = true,
    .products = quantised_inner,
};
const ct_kind ct__kind_dequantised = {
    .name = "dequantised",
    .doc = "Rows of floats times the numbers that columns of quants represent.",
    .scheduled = CT_TEMPLATE,
    .kernels = dequantised_kernels,
    .takes = dequantised_is_supported,
    .epilogue = true,
    .products = quantised_inner,
};
