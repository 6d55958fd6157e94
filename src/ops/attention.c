// Attention: softmax(scale q k') v, computed by one recurrence over blocks of keys.
//
// The blocks have a fixed size and are aligned at key 0, whatever the sizes of the call, and a key
// that is masked or absent adds exactly nothing: a row's bits depend neither on how many queries
// there are, nor on how far a cache of keys reaches beyond those that count.
#include <math.h>

#include "ops/rules.h"

enum { BLOCK = 64 };

#define ATTENTION_ATTRS(F, op) F(op, bool, causal) F(op, num, scale) F(op, i64, present)
CT_ATTRS(attention, ATTENTION_ATTRS);
enum { HAS_POSITION = 1, HAS_MASK = 2 };

// Does the mask spread to (..., T, S)?
static bool mask_fits(const ct_type *mask, const ct_type *q, const ct_type *k) {
    int lead = q->rank - mask->rank;
    for (int a = 0; a < mask->rank && lead >= 0; a++) {
        int own = lead + a;
        int64_t size = own == q->rank - 1 ? k->dim[q->rank - 2] : q->dim[own];
        if (mask->dim[a] != size && (mask->dim[a] != 1 || ct__is_dyn(mask, a))) return false;
    }
    return lead >= 0;
}

static bool extras_fit(ct_call *call, const attention_attrs *attrs) {
    int next = 3;
    if (attrs->present & HAS_POSITION) {
        const ct_type *position = call->in[next++];
        if (!attrs->causal)
            return ct__call_err(call, CT_E_ARGUMENT, "a position has no meaning without .causal");
        if (position->rank != 0 || !(CT_INTEGERS & CT_MASK(position->dtype)))
            return ct__call_err(call, CT_E_DTYPE, "the position is %s, it must be one integer",
                                ct__type_text(position).s);
    }
    if (attrs->present & HAS_MASK) {
        const ct_type *mask = call->in[next];
        if (mask->dtype != CT_BOOL || !mask_fits(mask, call->in[0], call->in[1]))
            return ct__call_err(call, CT_E_SHAPE,
                                "the mask is %s, it must be bool and broadcast to the queries and "
                                "keys of q %s and k %s",
                                ct__type_text(mask).s, ct__type_text(call->in[0]).s,
                                ct__type_text(call->in[1]).s);
    }
    return true;
}

// q (..., T, D), k (..., S, D), v (..., S, E): (..., T, E), and of each query log(sum(exp(scores)))
// (..., T), which is all that the gradient needs of the forward pass.
static bool attention_infer(ct_call *call) {
    attention_attrs *attrs = call->attrs;
    const ct_type *q = call->in[0], *k = call->in[1], *v = call->in[2];
    int rank = q->rank;
    for (int i = 0; i < 3; i++)
        if (!ct__check_accepts(call, call->in[i]->dtype, i)) return false;
    if (k->dtype != q->dtype || v->dtype != q->dtype)
        return ct__call_err(call, CT_E_DTYPE, "dtypes differ: q is %s, k is %s, v is %s",
                            ct__type_text(q).s, ct__type_text(k).s, ct__type_text(v).s);
    bool fits = rank >= 2 && k->rank == rank && v->rank == rank;
    for (int a = 0; fits && a < rank - 1; a++)
        fits = k->dim[a] == v->dim[a] && (a == rank - 2 || q->dim[a] == k->dim[a]);
    if (!fits || q->dim[rank - 1] != k->dim[rank - 1])
        return ct__call_err(call, CT_E_SHAPE,
                            "shapes do not fit (..., T, D), (..., S, D), (..., S, E): q is %s, k "
                            "is %s, v is %s",
                            ct__type_text(q).s, ct__type_text(k).s, ct__type_text(v).s);
    if (k->dim[rank - 2] == 0)
        return ct__call_err(call, CT_E_SHAPE, "there are no keys: k is %s", ct__type_text(k).s);
    if (!extras_fit(call, attrs)) return false;
    if (!attrs->scale.given)
        attrs->scale = (ct_num){1 / sqrt((double)(q->dim[rank - 1] ? q->dim[rank - 1] : 1)), true};
    ct_shape shape = {.dim = ct__call_dims(call, rank)};
    if (!shape.dim) return false;
    for (int a = 0; a < rank - 1; a++)
        ct__shape_add(&shape, q->dim[a],
                      ct__is_dyn(q, a) || (a < rank - 2 && (ct__is_dyn(k, a) || ct__is_dyn(v, a))));
    call->out[1] = ct__shaped(&shape, q->dtype, false);
    ct__shape_add_axis(&shape, v, rank - 1);
    call->out[0] = ct__shaped(&shape, q->dtype, false);
    return true;
}

// What body and vjp share: the operands, and which keys stand in which block.
typedef struct blocks {
    const attention_attrs *attrs;
    ct_tensor q, k, v, position, mask;
    const ct_type *q_type, *k_type;
    int rank;
    int64_t n;                  // blocks that some query sees
    ct_tensor scale, low, none; // -infinity; 0
    ct_tensor query;            // (T, 1) positions, for the causal mask
} blocks;

static void lay_blocks(blocks *b, const ct_rule *r) {
    *b = (blocks){.attrs = r->attrs, .q = r->in[0], .k = r->in[1], .v = r->in[2]};
    int next = 3;
    if (b->attrs->present & HAS_POSITION) b->position = r->in[next++];
    if (b->attrs->present & HAS_MASK) b->mask = r->in[next];
    b->q_type = ct__type_of(b->q);
    b->k_type = ct__type_of(b->k);
    b->rank = b->q_type->rank;
    int query = b->rank - 2;
    int64_t seen = b->k_type->dim[query], queries = b->q_type->dim[query];
    bool bounded = b->attrs->causal && ct__is_none(b->position) && !ct__is_dyn(b->q_type, query) &&
                   queries > 0;
    if (bounded && queries < seen) seen = queries; // query i sees keys 0 to i
    b->n = (seen + BLOCK - 1) / BLOCK;
    b->scale = ct__number_like(b->attrs->scale.value, b->q);
    b->low = ct__number_like(-INFINITY, b->q);
    b->none = ct__number_like(0, b->q);
    if (!b->attrs->causal) return;
    int64_t column[2] = {ct__mark(queries, ct__is_dyn(b->q_type, query)), 1};
    b->query = ct_iota(CT_I32, ((ct_ints){2, column}), 0);
    if (!ct__is_none(b->position)) b->query = ct_add(b->query, b->position);
}

// Where block i ends; marked where that is a dynamic size.
static int64_t block_end(const blocks *b, int64_t i) {
    int64_t keys = b->k_type->dim[b->rank - 2], end = (i + 1) * BLOCK;
    if (end < keys) return end;
    return ct__mark(keys, ct__is_dyn(b->k_type, b->rank - 2));
}
// Block i of a tensor along an axis that has a place for each key.
static ct_tensor block_of(const blocks *b, ct_tensor t, int axis, int64_t i) {
    int64_t a = axis, start = i * BLOCK, stop = block_end(b, i);
    if (start == 0 && ct__unmarked(stop) == ct__type_of(t)->dim[axis]) return t;
    return ct_slice(t, .axes = {1, &a}, .start = {1, &start}, .stop = {1, &stop});
}

// Scores of block i (..., T, block), -infinity where a query must not look.
static ct_tensor scores(const blocks *b, int64_t i) {
    ct_tensor k = block_of(b, b->k, b->rank - 2, i);
    ct_tensor s = ct_mul(ct_matmul(b->q, ct__swap_last(k)), b->scale);
    if (b->attrs->causal) {
        int64_t end = block_end(b, i),
                size = ct__mark(ct__unmarked(end) - i * BLOCK, ct__marked(end));
        ct_tensor key = ct_iota(CT_I32, ((ct_ints){1, &size}), 0);
        if (i) key = ct_add(key, ct_i(i * BLOCK));
        s = ct_select(ct_less_equal(key, b->query), s, b->low);
    }
    if (!ct__is_none(b->mask)) {
        const ct_type *type = ct__type_of(b->mask);
        int last = type->rank - 1;
        bool wide = last >= 0 && (type->dim[last] != 1 || ct__is_dyn(type, last));
        s = ct_select(wide ? block_of(b, b->mask, last, i) : b->mask, s, b->low);
    }
    return s;
}

// x, but 0 where it is -infinity: of a query that has seen no key yet.
static ct_tensor grounded(const blocks *b, ct_tensor x) {
    return ct_select(ct_equal(x, b->low), b->none, x);
}

static bool attention_body(ct_rule *r) {
    blocks b;
    lay_blocks(&b, r);
    int64_t last = b.rank - 1;
    ct_ints row = {1, &last};
    ct_tensor most = CT_NONE, sum = CT_NONE, out = CT_NONE, base = CT_NONE;
    for (int64_t i = 0; i < b.n; i++) {
        ct_tensor s = scores(&b, i), v = block_of(&b, b.v, b.rank - 2, i);
        ct_tensor top = ct_stop_gradient(ct_max(s, .axes = row, .keepdims = true)); // (..., T, 1)
        ct_tensor before = most;
        most = i ? ct_maximum(most, top) : top;
        base = grounded(&b, most);
        ct_tensor p = ct_exp(ct_sub(s, base)); // (..., T, block)
        ct_tensor p_sum = ct_sum(p, .axes = row, .keepdims = true), pv = ct_matmul(p, v);
        ct_tensor shrink = i ? ct_exp(ct_sub(before, base)) : CT_NONE;
        sum = i ? ct_add(ct_mul(sum, shrink), p_sum) : p_sum;
        out = i ? ct_add(ct_mul(out, shrink), pv) : pv;
    }
    // A query that sees no key at all gets zeros.
    out = ct_select(ct_equal(sum, b.none), b.none, ct_div(out, sum));
    r->body_out[0] = ct__of_type(out, &r->node->out[0]);
    r->body_out[1] = ct__of_type(ct_add(base, ct_log(sum)), &r->node->out[1]);
    return true;
}

// Blocks joined along the axis of keys, zeros for keys that no query saw.
static ct_tensor joined(const blocks *b, ct_tensor *part, ct_tensor like) {
    int64_t axis = b->rank - 2, n = b->n;
    while (n > 1) { // a concat takes only so many
        int64_t made = 0;
        for (int64_t i = 0; i < n; i += CT_MAP_PIECES) {
            int take = n - i < CT_MAP_PIECES ? (int)(n - i) : CT_MAP_PIECES;
            part[made++] = take == 1 ? part[i] : ct_concat(part + i, take, axis);
        }
        n = made;
    }
    const ct_type *type = ct__type_of(like);
    int64_t have = ct__unmarked(block_end(b, b->n - 1)), high[CT_MAX_RANK] = {0};
    high[axis] = type->dim[axis] - have;
    ct_tensor all = part[0];
    if (high[axis]) all = ct_pad(all, b->none, .high = {b->rank, high});
    return ct__shaped_like(all, like);
}

static bool attention_vjp(ct_rule *r) {
    blocks b;
    lay_blocks(&b, r);
    int64_t last = b.rank - 1;
    ct_ints row = {1, &last};
    ct_tensor c = ct__or_zeros(r->c_out[0], r->out[0]), c_q = CT_NONE;
    ct_tensor total = grounded(&b, ct__add_last(r->out[1])); // (..., T, 1)
    ct_tensor delta = ct_sum(ct_mul(c, r->out[0]), .axes = row, .keepdims = true);
    if (!ct__is_none(r->c_out[1])) delta = ct_sub(delta, ct__add_last(r->c_out[1]));
    ct_tensor *c_k = ct__malloc(2 * (size_t)b.n * sizeof *c_k), *c_v = c_k + b.n;
    if (!c_k)
        return ct__err_memory(&ct__ctx()->err, r->node->here, "attention",
                              2 * (size_t)b.n * sizeof *c_k);
    for (int64_t i = 0; i < b.n; i++) {
        ct_tensor k = block_of(&b, b.k, b.rank - 2, i), v = block_of(&b, b.v, b.rank - 2, i);
        ct_tensor p = ct_exp(ct_sub(scores(&b, i), total)); // (..., T, block)
        c_v[i] = ct_matmul(ct__swap_last(p), c);
        ct_tensor c_p = ct_matmul(c, ct__swap_last(v));
        ct_tensor c_s = ct_mul(ct_mul(p, ct_sub(c_p, delta)), b.scale);
        c_q = ct__add_zero(c_q, ct_matmul(c_s, k));
        c_k[i] = ct_matmul(ct__swap_last(c_s), b.q);
    }
    r->c_in[0] = ct__shaped_like(c_q, b.q);
    r->c_in[1] = joined(&b, c_k, b.k);
    r->c_in[2] = joined(&b, c_v, b.v);
    ct__free(c_k);
    return true;
}

const ct_opdef ct__op_attention = {
    .id = CT_OP_ATTENTION,
    .name = "attention",
    .doc = "softmax(scale q k') v for q (..., T, D), k (..., S, D), v (..., S, E); scale: 1 / "
           "sqrt(D) unless given. causal: query i looks at keys 0 to position + i (position: one "
           "integer, default 0). mask: bool, broadcast to (..., T, S), true where a query may "
           "look. A query that may look nowhere gets zeros.",
    .kind = CT_KIND_COMPOSITION,
    .n_in = -1,
    .n_out = 2,
    CT_FIELDS(attention),
    .accepts = CT_FLOATS,
    .infer = attention_infer,
    .body = attention_body,
    .vjp = attention_vjp,
    .samples = {.ulp = 32},
};
