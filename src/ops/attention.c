// Attention: softmax(scale q k') v, computed by one recurrence over blocks of keys.
//
// The blocks have a fixed size and are aligned at key 0, whatever the sizes of the call, and a key
// that is masked or absent adds exactly nothing: a row's bits depend neither on how many queries
// there are, nor on how far a cache of keys reaches beyond those that count.
#include <math.h>

#include "kinds/batch.h"
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
            return ct__call_err(call, CT_E_ARGUMENT, "a position has no meaning without .causal") ||
                   ct__call_hint(call, "it says where among the keys the first query stands: add "
                                       ".causal = true");
        if (position->rank != 0 || !(CT_INTEGERS & CT_MASK(position->dtype)))
            return ct__call_err(call, CT_E_DTYPE, "the position is %s, it must be one integer",
                                ct__type_text(position).s) ||
                   ct__call_hint(call, "a number is ct_i(10)");
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
        if (!ct__check_accepts(call, i)) return false;
    if (k->dtype != q->dtype || v->dtype != q->dtype)
        return ct__call_err(call, CT_E_DTYPE, "dtypes differ: q is %s, k is %s, v is %s",
                            ct__type_text(q).s, ct__type_text(k).s, ct__type_text(v).s) ||
               ct__hint_cast(call, k->dtype == q->dtype ? "v" : "k", (ct_dtype)q->dtype);
    bool fits = rank >= 2 && k->rank == rank && v->rank == rank;
    for (int a = 0; fits && a < rank - 1; a++)
        fits = k->dim[a] == v->dim[a] && (a == rank - 2 || q->dim[a] == k->dim[a]);
    if (!fits || q->dim[rank - 1] != k->dim[rank - 1])
        return ct__call_err(call, CT_E_SHAPE,
                            "shapes do not fit (..., T, D), (..., S, D), (..., S, E): q is %s, k "
                            "is %s, v is %s",
                            ct__type_text(q).s, ct__type_text(k).s, ct__type_text(v).s) ||
               ct__call_hint(call,
                             "T queries and S keys of size D, S values of size E; heads are an "
                             "axis before: (B, H, T, D)");
    if (k->dim[rank - 2] == 0)
        return ct__call_err(call, CT_E_SHAPE, "there are no keys: k is %s", ct__type_text(k).s);
    if (!extras_fit(call, attrs)) return false;
    if (!ct__num_given(attrs->scale))
        attrs->scale = (ct_num){1 / sqrt((double)(q->dim[rank - 1] ? q->dim[rank - 1] : 1)), true};
    ct_shape shape = ct__call_shape(call, rank);
    if (!shape.dim) return false;
    for (int a = 0; a < rank - 2; a++) {
        const int64_t size = ct__same_size(k, a, v, a);
        ct__shape_add(&shape,
                      ct__is_dyn(q, a)
                          ? ct__same_size(q, a, ct__marked(size) && ct__is_dyn(k, a) ? k : v, a)
                          : size);
    }
    ct__shape_add_axis(&shape, q, rank - 2);
    (void)ct__same_size(k, rank - 2, v, rank - 2);
    (void)ct__same_size(q, rank - 1, k, rank - 1);
    call->out[1] = ct__shaped(&shape, q->dtype, false);
    ct__shape_add_axis(&shape, v, rank - 1);
    call->out[0] = ct__shaped(&shape, q->dtype, false);
    return true;
}

// What body and vjp share.
typedef struct blocks {
    const attention_attrs *attrs;
    ct_tensor q, k, v, position, mask;
    const ct_type *q_type, *k_type;
    int rank;
    bool wide;      // the mask has a place for each key
    bool loop;      // the number of keys is dynamic
    int64_t n;      // blocks; where it is known, those that some query sees
    int64_t blocks; // the same of all keys, as attributes hold it
    // Recorded where they are used, outside of the loop and inside:
    ct_tensor scale, low, none; // -infinity; 0
    ct_tensor query;            // (T, 1) positions, for the causal mask
} blocks;

typedef struct block {
    ct_tensor k, v; // (..., block, D), (..., block, E)
    ct_tensor key;  // (block) positions, for the causal mask
    ct_tensor mask; // or CT_NONE
} block;

static void lay_numbers(blocks *b) {
    b->scale = ct__number_like(b->attrs->scale.value, b->q);
    b->low = ct__number_like(-INFINITY, b->q);
    b->none = ct__number_like(0, b->q);
    if (!b->attrs->causal) return;
    int query = b->rank - 2;
    int64_t column[2] = {ct__size_of(b->q_type, query), 1};
    b->query = ct_iota(CT_I32, ((ct_ints){2, column}), 0);
    if (!ct__is_none(b->position)) b->query = ct_add(b->query, b->position);
}

static void lay_blocks(blocks *b, const ct_rule *r) {
    *b = (blocks){.attrs = r->attrs, .q = r->in[0], .k = r->in[1], .v = r->in[2]};
    int next = 3;
    if (b->attrs->present & HAS_POSITION) b->position = r->in[next++];
    if (b->attrs->present & HAS_MASK) {
        b->mask = r->in[next];
        const ct_type *type = ct__type_of(b->mask);
        int last = type->rank - 1;
        b->wide = last >= 0 && (type->dim[last] != 1 || ct__is_dyn(type, last));
    }
    b->q_type = ct__type_of(b->q);
    b->k_type = ct__type_of(b->k);
    b->rank = b->q_type->rank;
    int query = b->rank - 2;
    b->loop = ct__is_dyn(b->k_type, query) || ct__is_dyn(ct__type_of(b->v), query);
    int64_t seen = b->k_type->dim[query], queries = b->q_type->dim[query];
    bool bounded = b->attrs->causal && ct__is_none(b->position) && !b->loop &&
                   !ct__is_dyn(b->q_type, query) && queries > 0;
    if (bounded && queries < seen) seen = queries; // query i sees keys 0 to i
    b->n = (seen + BLOCK - 1) / BLOCK;
    b->blocks = ct__size_div_up(ct__size_of(b->k_type, query), BLOCK);
    lay_numbers(b);
}

// ---------------------------------------- a known number of keys: a copy of the recurrence a block

static int64_t block_end(const blocks *b, int64_t i) {
    int64_t keys = b->k_type->dim[b->rank - 2], end = (i + 1) * BLOCK;
    return end < keys ? end : keys;
}
// Block i of a tensor along an axis that has a place for each key.
static ct_tensor cut(const blocks *b, ct_tensor t, int axis, int64_t i) {
    int64_t a = axis, start = i * BLOCK, stop = block_end(b, i);
    if (start == 0 && stop == ct__type_of(t)->dim[axis]) return t;
    return ct_slice(t, .axes = {1, &a}, .start = {1, &start}, .stop = {1, &stop});
}
static block block_at(const blocks *b, int64_t i) {
    block x = {.k = cut(b, b->k, b->rank - 2, i), .v = cut(b, b->v, b->rank - 2, i)};
    if (b->attrs->causal) {
        int64_t size = block_end(b, i) - i * BLOCK;
        x.key = ct_iota(CT_I32, ((ct_ints){1, &size}), 0);
        if (i) x.key = ct_add(x.key, ct_i(i * BLOCK));
    }
    if (b->wide) x.mask = cut(b, b->mask, ct__type_of(b->mask)->rank - 1, i);
    return x;
}

// ------------------------------------------------------------------------------------------------
// a dynamic number of keys: a loop over the blocks, the last one filled up with keys that no query
// may look at

enum { LOOP_XS = 4 };

// A tensor (..., S, ...) as (n, ..., 64, ...).
static ct_tensor blocked(const blocks *b, ct_tensor t, int axis, ct_tensor fill) {
    const ct_type *type = ct__type_of(t);
    int rank = type->rank;
    int64_t high[CT_MAX_RANK] = {0}, dim[CT_MAX_RANK], axes[CT_MAX_RANK];
    high[axis] = ct__size_sub(ct__size_mul(b->blocks, BLOCK), ct__size_of(type, axis));
    t = ct_pad(t, fill, .high = {rank, high});
    type = ct__type_of(t);
    for (int a = 0, to = 0; a < rank; a++) {
        if (a == axis) {
            dim[to++] = b->blocks;
            dim[to++] = BLOCK;
        } else {
            dim[to++] = ct__size_of(type, a);
        }
    }
    t = ct_reshape(t, ((ct_ints){rank + 1, dim}));
    axes[0] = axis;
    for (int a = 0; a < rank; a++) axes[a + 1] = a < axis ? a : a + 1;
    return ct_permute(t, ((ct_ints){rank + 1, axes}));
}

// What the loop goes along: keys, values, which keys may be looked at, each block's first position.
static size_t loop_xs(const blocks *b, ct_tensor *xs) {
    const bool no = false, yes = true;
    ct_tensor never = ct_const(&no, CT_BOOL, CT_SCALAR);
    int64_t keys = ct__size_of(b->k_type, b->rank - 2), n = b->blocks;
    xs[0] = blocked(b, b->k, b->rank - 2, b->none);
    xs[1] = blocked(b, b->v, b->rank - 2, b->none);
    if (b->wide) {
        xs[2] = blocked(b, b->mask, ct__type_of(b->mask)->rank - 1, never);
    } else {
        ct_tensor present = ct_expand(ct_const(&yes, CT_BOOL, CT_SCALAR), ((ct_ints){1, &keys}));
        xs[2] = blocked(b, present, 0, never);
    }
    if (!b->attrs->causal) return LOOP_XS - 1;
    xs[3] = ct_mul(ct_iota(CT_I32, ((ct_ints){1, &n}), 0), ct_i(BLOCK));
    return LOOP_XS;
}
static block block_in_loop(const blocks *b, const ct_tensor *xs) {
    block x = {.k = xs[0], .v = xs[1], .mask = xs[2]};
    const int64_t size = BLOCK;
    if (b->attrs->causal) x.key = ct_add(ct_iota(CT_I32, ((ct_ints){1, &size}), 0), xs[3]);
    return x;
}

// ---------------------------------------------------------------------------------- the recurrence

// Scores of a block (..., T, block), -infinity where a query must not look.
static ct_tensor scores(const blocks *b, const block *x) {
    ct_tensor s = ct_mul(ct_matmul(b->q, ct__swap_last(x->k)), b->scale);
    if (b->attrs->causal) s = ct_select(ct_less_equal(x->key, b->query), s, b->low);
    if (!ct__is_none(x->mask)) s = ct_select(x->mask, s, b->low);
    if (!ct__is_none(b->mask) && !b->wide) s = ct_select(b->mask, s, b->low);
    return s;
}

// x, but 0 where it is -infinity: of a query that has seen no key yet.
static ct_tensor grounded(const blocks *b, ct_tensor x) {
    return ct_select(ct_equal(x, b->low), b->none, x);
}
// A chain that ends in -0, because what it summed was too small, gives +0 when a block that adds
// nothing follows. Which blocks there are must not show: it always gives +0.
static ct_tensor positive_zeros(const blocks *b, ct_tensor x) { return ct_add(x, b->none); }

// What goes from block to block; CT_NONE before the first. The result is out / sum.
typedef struct running {
    ct_tensor most, sum; // (..., T, 1)
    ct_tensor out;       // (..., T, E)
} running;

static void attend(const blocks *b, const block *x, running *r) {
    int64_t last = b->rank - 1;
    ct_ints row = {1, &last};
    bool first = ct__is_none(r->most);
    ct_tensor s = scores(b, x);
    ct_tensor top = ct_stop_gradient(ct_max(s, .axes = row, .keepdims = true));
    ct_tensor before = r->most;
    r->most = first ? top : ct_maximum(before, top);
    ct_tensor base = grounded(b, r->most);
    ct_tensor p = ct_exp(ct_sub(s, base)); // (..., T, block)
    ct_tensor p_sum = ct_sum(p, .axes = row, .keepdims = true), pv = ct_matmul(p, x->v);
    ct_tensor shrink = first ? CT_NONE : ct_exp(ct_sub(before, base));
    r->sum = first ? p_sum : ct_add(ct_mul(r->sum, shrink), p_sum);
    r->out = first ? pv : ct_add(ct_mul(r->out, shrink), pv);
}

static void attend_in_loop(const ct_tensor *in, ct_tensor *out, void *user) {
    blocks b = *(const blocks *)user;
    lay_numbers(&b);
    block x = block_in_loop(&b, in + 3);
    running r = {in[0], in[1], in[2]};
    attend(&b, &x, &r);
    out[0] = ct__shaped_like(r.most, in[0]);
    out[1] = ct__shaped_like(r.sum, in[1]);
    out[2] = ct__shaped_like(r.out, in[2]);
}
static void attend_by_loop(blocks *b, const ct_rule *r, running *result) {
    ct_dims_buffer row, wide;
    ct_tensor xs[LOOP_XS], last[3];
    ct__type_dims(&r->node->out[1], &row);
    row.v[row.list.n++] = 1;
    ct_ints wide_dims = ct__type_dims(&r->node->out[0], &wide);
    ct_tensor carry[3] = {ct_expand(b->low, row.list), ct_expand(b->none, row.list),
                          ct_expand(b->none, wide_dims)};
    size_t n_xs = loop_xs(b, xs);
    ct_scan_with((ct_scan_args){.body = attend_in_loop,
                                .user = b,
                                .carry = carry,
                                .n_carry = 3,
                                .xs = xs,
                                .n_xs = n_xs,
                                .here = r->node->here},
                 last, NULL);
    *result = (running){last[0], last[1], last[2]};
}

static bool attention_body(ct_rule *r) {
    blocks b;
    lay_blocks(&b, r);
    running x = {CT_NONE, CT_NONE, CT_NONE};
    if (b.loop) attend_by_loop(&b, r, &x);
    for (int64_t i = 0; i < b.n && !b.loop; i++) {
        block now = block_at(&b, i);
        attend(&b, &now, &x);
    }
    // A query that sees no key at all gets zeros.
    ct_tensor out = ct_div(positive_zeros(&b, x.out), x.sum);
    out = ct_select(ct_equal(x.sum, b.none), b.none, out);
    r->body_out[0] = ct__of_type(out, &r->node->out[0]);
    ct_tensor log_sum = ct_add(grounded(&b, x.most), ct_log(x.sum));
    r->body_out[1] = ct__of_type(log_sum, &r->node->out[1]);
    return true;
}

// ------------------------------------------------------------------------------------ the gradient

typedef struct backward {
    blocks b;
    ct_tensor total; // (..., T, 1) log(sum(exp(scores)))
    ct_tensor c;     // (..., T, E) of the result
    ct_tensor delta; // (..., T, 1)
} backward;

// Cotangents of a block of keys and values; what it adds to those of the queries.
static ct_tensor go_back(const backward *g, const block *x, ct_tensor *c_k, ct_tensor *c_v) {
    const blocks *b = &g->b;
    ct_tensor p = ct_exp(ct_sub(scores(b, x), g->total)); // (..., T, block)
    *c_v = ct_matmul(ct__swap_last(p), g->c);
    ct_tensor c_p = ct_matmul(g->c, ct__swap_last(x->v));
    ct_tensor c_s = ct_mul(ct_mul(p, ct_sub(c_p, g->delta)), b->scale);
    *c_k = ct_matmul(ct__swap_last(c_s), b->q);
    return ct_matmul(c_s, x->k);
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
    int64_t have = block_end(b, b->n - 1), high[CT_MAX_RANK] = {0};
    high[axis] = ct__type_of(like)->dim[axis] - have;
    ct_tensor all = part[0];
    if (high[axis]) all = ct_pad(all, b->none, .high = {b->rank, high});
    return ct__shaped_like(all, like);
}
// The same of what a loop made: (n, ..., 64, D) as (..., S, D).
static ct_tensor joined_in_loop(const blocks *b, ct_tensor parts, ct_tensor like) {
    int64_t axis = b->rank - 2, axes[CT_MAX_RANK], dim[CT_MAX_RANK];
    for (int a = 0; a <= b->rank; a++) axes[a] = a < axis ? a + 1 : a == axis ? 0 : a;
    const ct_type *type = ct__type_of(parts);
    for (int a = 0; a < b->rank; a++) dim[a] = ct__size_of(type, a + 1);
    dim[axis] = ct__size_mul(b->blocks, BLOCK);
    ct_tensor all = ct_permute(parts, ((ct_ints){b->rank + 1, axes}));
    all = ct_reshape(all, ((ct_ints){b->rank, dim}));
    int64_t stop = ct__size_of(ct__type_of(like), (int)axis);
    all = ct_slice(all, .axes = {1, &axis}, .stop = {1, &stop});
    return ct__shaped_like(all, like);
}

static void go_back_in_loop(const ct_tensor *in, ct_tensor *out, void *user) {
    backward g = *(const backward *)user;
    lay_numbers(&g.b);
    block x = block_in_loop(&g.b, in + 1);
    ct_tensor more = go_back(&g, &x, &out[1], &out[2]);
    out[0] = ct__shaped_like(ct_add(in[0], more), in[0]);
}
static ct_tensor go_back_by_loop(backward *g, ct_rule *r) {
    ct_tensor xs[LOOP_XS], c_q = ct__zeros_like(g->b.q), last, parts[2];
    size_t n_xs = loop_xs(&g->b, xs);
    ct_scan_with((ct_scan_args){.body = go_back_in_loop,
                                .user = g,
                                .carry = &c_q,
                                .n_carry = 1,
                                .xs = xs,
                                .n_xs = n_xs,
                                .n_ys = 2,
                                .here = r->node->here},
                 &last, parts);
    r->c_in[1] = joined_in_loop(&g->b, parts[0], g->b.k);
    r->c_in[2] = joined_in_loop(&g->b, parts[1], g->b.v);
    return last;
}

static bool attention_vjp(ct_rule *r) {
    backward g;
    blocks *b = &g.b;
    lay_blocks(b, r);
    int64_t last = b->rank - 1;
    ct_ints row = {1, &last};
    g.c = ct__or_zeros(r->c_out[0], r->out[0]);
    // Scores of all blocks would be (..., T, S): they are computed again, when the gradient comes here.
    if (b->n > 1 && !b->loop) b->q = ct__after((ct_tensor[]){b->q, g.c}, 2, r->node->here);
    g.total = grounded(b, ct__add_last(r->out[1]));
    g.delta = ct_sum(ct_mul(g.c, r->out[0]), .axes = row, .keepdims = true);
    if (!ct__is_none(r->c_out[1])) g.delta = ct_sub(g.delta, ct__add_last(r->c_out[1]));
    ct_tensor c_q = CT_NONE;
    if (b->loop) {
        c_q = go_back_by_loop(&g, r);
    } else {
        ct_tensor *c_k = ct__malloc(2 * (size_t)b->n * sizeof *c_k), *c_v = c_k + b->n;
        if (!c_k)
            return ct__err_memory(&ct__ctx()->err, r->node->here, "attention",
                                  2 * (size_t)b->n * sizeof *c_k);
        for (int64_t i = 0; i < b->n; i++) {
            block x = block_at(b, i);
            c_q = ct__add_zero(c_q, go_back(&g, &x, &c_k[i], &c_v[i]));
        }
        r->c_in[1] = joined(b, c_k, b->k);
        r->c_in[2] = joined(b, c_v, b->v);
        ct__free(c_k);
    }
    r->c_in[0] = ct__shaped_like(positive_zeros(b, c_q), b->q);
    return true;
}

// The batch is one more axis in front of q, k and v. Positions that differ are for the body.
static bool attention_batch(ct_batching *b) {
    const attention_attrs *attrs = b->attrs;
    ct_tensor in[5];
    for (int i = 0; i < b->n_in; i++) {
        bool position = i == 3 && attrs->present & HAS_POSITION;
        if (position && b->batched[i]) return true;
        in[i] = i < 3 ? ct__batch_operand(b, i)
                      : ct__batch_aligned(b, i, ct__type(b->node->in[0])->rank);
    }
    return ct__batch_record(b, attrs, in);
}

const ct_opdef ct__op_attention = {
    .id = CT_OP_ATTENTION,
    .name = "attention",
    .doc = "softmax(scale q k') v for q (..., T, D), k (..., S, D), v (..., S, E); scale: 1 / "
           "sqrt(D) unless given. causal: query i looks at keys 0 to position + i (position: one "
           "integer, default 0). mask: bool, broadcast to (..., T, S), true where a query may "
           "look. A query that may look nowhere gets zeros.",
    .kind = &ct__kind_composition,
    .n_in = -1,
    .n_out = 2,
    CT_FIELDS(attention),
    .accepts = CT_FLOATS,
    .infer = attention_infer,
    .body = attention_body,
    .batch = attention_batch,
    .widens = true,
    .vjp = attention_vjp,
    .samples = {.ulp = 32},
    .autocast = CT_CAST_LOW,
};
