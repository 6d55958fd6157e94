// Sums of products over axes that two operands share: matrix products, (..., M, K) x (..., K, N).
// The kernel is the matrix template with the graph's values as operands and result.
#include <math.h>

#include "kinds/batch.h"
#include "kinds/emit.h"
#include "kinds/matmul.h"

typedef struct contract {
    ct_emit *e;
    ct_val out, in[2];
    ct_dtype dtype;
    int rank;                // of the result
    bool flat;               // the second operand has no batch: all axes but the last are rows
    ct_ix size[CT_MAX_RANK]; // of the result
} contract;
typedef struct side {
    contract *c;
    int which; // operand
} side;

// The place along each axis of the result but the last, from the batch axes and the row; when flat,
// from the row alone.
static void leading(const contract *c, const ct_ix *batch, ct_ix row, ct_ix *to) {
    ct_ix_pool *pool = c->e->pool;
    for (int a = c->rank - 2; a >= 0; a--) {
        if (c->flat && a > 0) {
            to[a] = ct__ix_mod(pool, row, c->size[a]);
            row = ct__ix_div(pool, row, c->size[a]);
        } else {
            to[a] = c->flat || a == c->rank - 2 ? row : batch[a];
        }
    }
}

static ct_ix row_count(const contract *c) {
    ct_ix n = c->size[c->rank - 2];
    for (int a = 0; c->flat && a < c->rank - 2; a++) n = ct__ix_mul(c->e->pool, n, c->size[a]);
    return n;
}

// The index of an operand's element: (batch..., i, k) or (batch..., k, j); axes of size 1
// broadcast.
static void operand_index(const contract *c, int which, const ct_ix *batch, ct_ix first,
                          ct_ix second, ct_ix *to) {
    const ct_type *type = ct__type(c->in[which]), *out = ct__type(c->out);
    ct_ix lead[CT_MAX_RANK], zero = ct__ix_int(c->e->pool, 0);
    int batches = type->rank - 2, skip = c->rank - type->rank;
    leading(c, batch, which == 0 ? first : zero, lead);
    for (int a = 0; a < batches; a++)
        to[a] = type->dim[a] == 1 && out->dim[a + skip] != 1 ? zero : lead[a + skip];
    to[batches] = which == 0 ? lead[c->rank - 2] : first;
    to[batches + 1] = second;
}

// The template's positions as index variables: batch axes (none when flat), then two more.
static void bound(const contract *c, const ct_kval *at, ct_ix first, ct_ix second, ct_ix *batch,
                  ct_ix *pair) {
    int n = c->flat ? 0 : c->rank - 2;
    for (int a = 0; a < n; a++) batch[a] = ct__emit_bind(c->e, at[a], c->size[a]);
    pair[0] = ct__emit_bind(c->e, at[n], first);
    pair[1] = ct__emit_bind(c->e, at[n + 1], second);
}

static ct_ix inner_size(const contract *c) {
    return ct__emit_size(c->e, c->in[0], ct__type(c->in[0])->rank - 1);
}

static ct_kval value(void *env, ct_kir *k, const ct_kval *at) {
    (void)k;
    const side *s = env;
    const contract *c = s->c;
    ct_ix batch[CT_MAX_RANK], pair[2], index[CT_MAX_RANK];
    bool a = s->which == 0;
    bound(c, at, a ? row_count(c) : inner_size(c), a ? inner_size(c) : c->size[c->rank - 1], batch,
          pair);
    operand_index(c, s->which, batch, pair[0], pair[1], index);
    return ct__emit_value_apart(c->e, c->in[s->which], index, c->dtype);
}

static void store(void *env, ct_kir *k, const ct_kval *at, ct_kval v) {
    (void)k;
    const contract *c = env;
    ct_ix batch[CT_MAX_RANK], pair[2], index[CT_MAX_RANK];
    bound(c, at, row_count(c), c->size[c->rank - 1], batch, pair);
    leading(c, batch, pair[0], index);
    index[c->rank - 1] = pair[1];
    ct__emit_store_apart(c->e, c->out, index, v);
}

// Which of the operand's two axes is contiguous in memory, as the template counts axes; -1: none.
static int contiguous(const contract *c, int which) {
    ct_ix_pool *pool = c->e->pool;
    ct_ix batch[CT_MAX_RANK], index[CT_MAX_RANK];
    int n = c->flat ? 0 : c->rank - 2;
    for (int a = 0; a < n; a++) batch[a] = ct__ix_var(pool, c->size[a]);
    ct_ix first = ct__ix_var(pool, which == 0 ? row_count(c) : inner_size(c));
    ct_ix second = ct__ix_var(pool, which == 0 ? inner_size(c) : c->size[c->rank - 1]);
    operand_index(c, which, batch, first, second, index);
    if (ct__emit_contiguous(c->e, c->in[which], index, second)) return n + 1;
    return ct__emit_contiguous(c->e, c->in[which], index, first) ? n : -1;
}

static bool contraction_kernels(ct_sched *s, ct_node *node) {
    ct_emit *e = ct__emit_new(s, node);
    if (!e) return false;
    ct__emit_declare_sizes(e, node);
    const ct_type *out = &node->out[0], *b = ct__type(node->in[1]), *a = ct__type(node->in[0]);
    contract c = {.e = e,
                  .out = {node, 0},
                  .in = {node->in[0], node->in[1]},
                  .dtype = ct__kir_held(out->dtype), // sums are rounded once, at their end
                  .rank = out->rank,
                  .flat = true};
    for (int i = 0; i < b->rank - 2; i++) c.flat &= ct__is_one(b, i);
    for (int i = 0; i < c.rank; i++) c.size[i] = ct__emit_size(e, c.out, i);
    ct_kval batch[CT_MAX_RANK];
    int n = c.flat ? 0 : c.rank - 2;
    for (int i = 0; i < n; i++) batch[i] = ct__emit_ix(e, c.size[i]);
    side sides[2] = {{&c, 0}, {&c, 1}};
    ct_matmul_spec spec = {
        .dtype = c.dtype,
        .n_batch = n,
        .batch = batch,
        .rows = ct__emit_ix(e, row_count(&c)),
        .columns = ct__emit_ix(e, c.size[c.rank - 1]),
        .inner = ct__emit_ix(e, inner_size(&c)),
        .a = {.value = value, .env = &sides[0], .along = contiguous(&c, 0)},
        .b = {.value = value, .env = &sides[1], .along = contiguous(&c, 1)},
        .c = {.store = store, .env = &c},
        .target = e->target,
    };
    ct__template_matmul(e->kir, &spec);
    return ct__emit_done(e, 2.0 * (double)ct__count(out) * (double)a->dim[a->rank - 1]);
}

static double contraction_roundings(const ct_node *node, bool in_order) {
    const ct_type *a = ct__type(node->in[0]);
    double k = (double)a->dim[a->rank - 1];
    if (!ct__is_float(node->out->dtype)) return 0;
    return in_order ? k : fmin(k, CT_DOT_CHUNK) + k / CT_DOT_CHUNK;
}

// A second operand alone that is one matrix becomes the rows of one product, all turned over:
// (B, K, N) and (M, K) as (B, N, K) and (K, M). A first one alone has its batch among the rows.
static bool contraction_batch(ct_batching *b) {
    const ct_type *x = ct__type(b->node->in[0]), *y = ct__type(b->node->in[1]);
    const int rank = b->node->out->rank;
    ct_tensor in[2] = {ct__batch_aligned(b, 0, rank), ct__batch_aligned(b, 1, rank)};
    bool turned = !b->batched[0] && x->rank == 2 && y->rank == 2;
    if (turned) {
        in[0] = ct__batch_move(b, b->in[1], 3, 1, 2);
        in[1] = ct__batch_move(b, b->in[0], 2, 0, 1);
    }
    if (!ct__batch_record(b, b->attrs, in)) return false;
    if (turned) b->out[0] = ct__batch_move(b, b->out[0], 3, 1, 2);
    return true;
}

const ct_kind ct__kind_contraction = {
    .name = "contraction",
    .doc = "Sums of products over axes that two operands share.",
    .scheduled = CT_TEMPLATE,
    .kernels = contraction_kernels,
    .epilogue = true,
    .packs = true,
    .roundings = contraction_roundings,
    .products = true,
    .batch = contraction_batch,
};
