// Attention: softmax(scale q k') v, computed by one recurrence over blocks of keys.
//
// The blocks have a fixed size and are aligned at key 0, whatever the sizes of the call, and a key
// that is masked or absent adds exactly nothing: a row's bits depend neither on how many queries
// there are, nor on how far a cache of keys reaches beyond those that count.
#include <math.h>

#include "kinds/batch.h"
#include "ops/rules.h"

enum { BLOCK = 64 };

#define ATTENTION_ATTRS(F, op)                                                                     \
    F(op, bool, causal) F(op, i64, window) F(op, num, scale) F(op, num, softcap) F(op, i64, present)
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
        if ((mask->dtype != CT_BOOL && mask->dtype != call->in[0]->dtype) ||
            !mask_fits(mask, call->in[0], call->in[1]))
            return ct__call_err(call, CT_E_SHAPE,
                                "the mask is %s, it must be bool or of the queries' dtype, and "
                                "broadcast to the queries and keys of q %s and k %s",
                                ct__type_text(mask).s, ct__type_text(call->in[0]).s,
                                ct__type_text(call->in[1]).s);
    }
    return true;
}

static bool numbers_fit(ct_call *call, const attention_attrs *attrs) {
    if (attrs->window < 0)
        return ct__call_err(call, CT_E_ARGUMENT, "window is %lld, it must be at least 0",
                            (long long)attrs->window) ||
               ct__call_hint(call, "0 keys, the default, is no limit");
    if (attrs->window && !attrs->causal)
        return ct__call_err(call, CT_E_ARGUMENT, "a window has no meaning without .causal") ||
               ct__call_hint(call, "it says how many keys a query looks at, its own the last: add "
                                   ".causal = true");
    double cap = attrs->softcap.value;
    if (ct__num_given(attrs->softcap) && !(cap >= 0 && cap < INFINITY))
        return ct__call_err(call, CT_E_ARGUMENT, "softcap is %g, it must be finite and at least 0",
                            cap) ||
               ct__call_hint(call, "0, the default, is no cap");
    return true;
}

// Do the sizes in front of the last two fit? The heads of q may be a multiple of those of k and v.
static bool lead_fits(const ct_type *q, const ct_type *k) {
    for (int a = 0; a < q->rank - 2; a++) {
        bool heads = a == q->rank - 3 && !ct__is_dyn(q, a) && !ct__is_dyn(k, a) && k->dim[a] > 0 &&
                     q->dim[a] % k->dim[a] == 0;
        if (q->dim[a] != k->dim[a] && !heads) return false;
    }
    return true;
}
// Queries' heads that share one of keys and values.
static int64_t group_of(const ct_type *q, const ct_type *k) {
    int heads = q->rank - 3;
    return heads < 0 || q->dim[heads] == k->dim[heads] ? 1 : q->dim[heads] / k->dim[heads];
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
    for (int a = 0; fits && a < rank - 1; a++) fits = k->dim[a] == v->dim[a];
    if (!fits || !lead_fits(q, k) || q->dim[rank - 1] != k->dim[rank - 1])
        return ct__call_err(call, CT_E_SHAPE,
                            "shapes do not fit (..., T, D), (..., S, D), (..., S, E): q is %s, k "
                            "is %s, v is %s",
                            ct__type_text(q).s, ct__type_text(k).s, ct__type_text(v).s) ||
               ct__call_hint(call,
                             "T queries and S keys of size D, S values of size E; heads are an "
                             "axis before: (B, H, T, D), of q as many as of k or a multiple");
    if (k->dim[rank - 2] == 0)
        return ct__call_err(call, CT_E_SHAPE, "there are no keys: k is %s", ct__type_text(k).s);
    if (!numbers_fit(call, attrs) || !extras_fit(call, attrs)) return false;
    if (!ct__num_given(attrs->scale))
        attrs->scale = (ct_num){1 / sqrt((double)(q->dim[rank - 1] ? q->dim[rank - 1] : 1)), true};
    ct_shape shape = ct__call_shape(call, rank);
    if (!shape.dim) return false;
    for (int a = 0; a < rank - 2; a++) {
        const int64_t size = ct__same_size(k, a, v, a);
        if (!ct__is_dyn(q, a) && q->dim[a] != k->dim[a]) {
            ct__shape_add_axis(&shape, q, a);
            continue;
        }
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
    bool wide;               // the mask has a place for each key
    bool bias;               // the mask is added
    bool loop;               // the number of keys is dynamic
    int64_t group, kv_heads; // heads of q that share one of k and v; those
    int64_t n;               // blocks; where it is known, those that some query sees
    int64_t blocks;          // the same of all keys, as attributes hold it
    // Recorded where they are used, outside of the loop and inside:
    ct_tensor scale, low, none; // -infinity; 0
    ct_tensor cap;              // what bounds scores, or CT_NONE
    ct_tensor query;            // (T, 1) positions, for the causal mask
} blocks;

typedef struct block {
    ct_tensor k, v; // (..., block, D), (..., block, E)
    ct_tensor key;  // (block) positions, for the causal mask
    ct_tensor mask; // bool, or CT_NONE
    ct_tensor bias; // or CT_NONE
} block;

static void lay_numbers(blocks *b) {
    b->scale = ct__number_like(b->attrs->scale.value, b->q);
    b->low = ct__number_like(-INFINITY, b->q);
    b->none = ct__number_like(0, b->q);
    double cap = b->attrs->softcap.value;
    b->cap = cap > 0 ? ct__number_like(cap, b->q) : CT_NONE;
    if (!b->attrs->causal) return;
    int query = b->rank - 2;
    int64_t column[2] = {ct__size_of(b->q_type, query), 1};
    b->query = ct_iota(CT_I32, ((ct_ints){2, column}), 0);
    if (!ct__is_none(b->position)) b->query = ct_add(b->query, b->position);
}

// (..., heads, n, m) with its heads as (keys' heads, queries' heads to each), if there are fewer of keys.
static ct_tensor grouped(const blocks *b, ct_tensor t) {
    const ct_type *type = ct__type_of(t);
    int heads = type->rank - 3;
    if (b->group == 1 || heads < 0) return t;
    int64_t dim[CT_MAX_RANK], n = type->dim[heads],
                              each = n == b->kv_heads * b->group ? b->group : 1;
    for (int a = 0; a < type->rank; a++) dim[a + (a > heads)] = ct__size_of(type, a);
    dim[heads] = n / each;
    dim[heads + 1] = each;
    return ct_reshape(t, ((ct_ints){type->rank + 1, dim}));
}

static void lay_blocks(blocks *b, const ct_rule *r) {
    *b = (blocks){.attrs = r->attrs, .q = r->in[0], .k = r->in[1], .v = r->in[2]};
    const ct_type *q = ct__type_of(b->q), *k = ct__type_of(b->k);
    b->group = group_of(q, k);
    b->kv_heads = q->rank > 2 ? k->dim[q->rank - 3] : 1;
    b->q = grouped(b, b->q);
    b->k = grouped(b, b->k);
    b->v = grouped(b, b->v);
    int next = 3;
    if (b->attrs->present & HAS_POSITION) b->position = r->in[next++];
    if (b->attrs->present & HAS_MASK) {
        const ct_type *type = ct__type_of(r->in[next]);
        int last = type->rank - 1;
        b->mask = grouped(b, r->in[next]);
        b->bias = type->dtype != CT_BOOL;
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
    ct_tensor mask = b->mask;
    if (b->wide) mask = cut(b, mask, ct__type_of(mask)->rank - 1, i);
    if (b->bias)
        x.bias = mask;
    else if (b->wide)
        x.mask = mask;
    return x;
}

// ------------------------------------------------------------------------------------------------
// a dynamic number of keys: a loop over the blocks, the last one filled up with keys that no query
// may look at

enum { LOOP_XS = 5 };

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

// What the loop goes along: keys, values, which keys may be looked at, each block's first position,
// what is added.
static size_t loop_xs(const blocks *b, ct_tensor *xs) {
    const bool no = false, yes = true;
    ct_tensor never = ct_const(&no, CT_BOOL, CT_SCALAR);
    int64_t keys = ct__size_of(b->k_type, b->rank - 2), n = b->blocks;
    xs[0] = blocked(b, b->k, b->rank - 2, b->none);
    xs[1] = blocked(b, b->v, b->rank - 2, b->none);
    if (b->wide && !b->bias) {
        xs[2] = blocked(b, b->mask, ct__type_of(b->mask)->rank - 1, never);
    } else {
        ct_tensor present = ct_expand(ct_const(&yes, CT_BOOL, CT_SCALAR), ((ct_ints){1, &keys}));
        xs[2] = blocked(b, present, 0, never);
    }
    size_t n_xs = 3;
    if (b->attrs->causal) xs[n_xs++] = ct_mul(ct_iota(CT_I32, ((ct_ints){1, &n}), 0), ct_i(BLOCK));
    if (b->wide && b->bias)
        xs[n_xs++] = blocked(b, b->mask, ct__type_of(b->mask)->rank - 1, b->none);
    return n_xs;
}
static block block_in_loop(const blocks *b, const ct_tensor *xs) {
    block x = {.k = xs[0], .v = xs[1], .mask = xs[2]};
    const int64_t size = BLOCK;
    int next = 3;
    if (b->attrs->causal) x.key = ct_add(ct_iota(CT_I32, ((ct_ints){1, &size}), 0), xs[next++]);
    if (b->bias) x.bias = b->wide ? xs[next] : b->mask;
    return x;
}

// ---------------------------------------------------------------------------------- the recurrence

// Scores of a block (..., T, block), -infinity where a query must not look; of those with a cap also
// tanh(score / cap), which the gradient needs.
static ct_tensor scores(const blocks *b, const block *x, ct_tensor *bent) {
    ct_tensor s = ct_mul(ct_matmul(b->q, ct__swap_last(x->k)), b->scale);
    if (!ct__is_none(b->cap)) {
        *bent = ct_tanh(ct_div(s, b->cap));
        s = ct_mul(*bent, b->cap);
    }
    if (!ct__is_none(x->bias)) s = ct_add(s, x->bias);
    if (b->attrs->causal) s = ct_select(ct_less_equal(x->key, b->query), s, b->low);
    if (b->attrs->window) {
        ct_tensor before = ct_sub(b->query, ct_i(b->attrs->window)); // the last key not looked at
        s = ct_select(ct_less(before, x->key), s, b->low);
    }
    if (!ct__is_none(x->mask)) s = ct_select(x->mask, s, b->low);
    if (!ct__is_none(b->mask) && !b->wide && !b->bias) s = ct_select(b->mask, s, b->low);
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
    ct_tensor bent, s = scores(b, x, &bent);
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
    ct__type_dims(b->q_type, &row);
    row.v[b->rank - 1] = 1;
    ct_ints wide_dims = ct__type_dims(b->q_type, &wide);
    wide.v[b->rank - 1] = ct__size_of(ct__type_of(b->v), b->rank - 1);
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
// Of a block: cotangents of its keys, values and summands; what it adds to those of the queries.
typedef struct block_cotangents {
    ct_tensor k, v, bias, q;
} block_cotangents;

// c summed over the axes along which t, whose last axis may be cut, was spread; they stay as 1.
static ct_tensor summed_like(ct_tensor c, ct_tensor t) {
    const ct_type *from = ct__type_of(c), *to = ct__type_of(t);
    int64_t axes[CT_MAX_RANK];
    int n = 0, lead = from->rank - to->rank;
    for (int a = 0; a < from->rank; a++)
        if (a < lead || (to->dim[a - lead] == 1 && !ct__is_dyn(to, a - lead))) axes[n++] = a;
    return n ? ct_sum(c, .axes = {n, axes}, .keepdims = true) : c;
}
// Keys and values that a group of heads shares: (..., keys' heads, queries' heads to each, n, m).
static ct_tensor over_group(const blocks *b, ct_tensor c) {
    int64_t axis = b->rank - 3;
    return b->group == 1 ? c : ct_sum(c, .axes = {1, &axis}, .keepdims = true);
}

static block_cotangents go_back(const backward *g, const block *x) {
    const blocks *b = &g->b;
    block_cotangents c = {0};
    ct_tensor bent, p = ct_exp(ct_sub(scores(b, x, &bent), g->total)); // (..., T, block)
    c.v = over_group(b, ct_matmul(ct__swap_last(p), g->c));
    ct_tensor c_p = ct_matmul(g->c, ct__swap_last(x->v));
    ct_tensor c_s = ct_mul(p, ct_sub(c_p, g->delta));
    if (b->bias) c.bias = summed_like(c_s, b->mask);
    if (!ct__is_none(b->cap))
        c_s = ct_mul(c_s, ct_sub(ct__number_like(1, c_s), ct_mul(bent, bent)));
    c_s = ct_mul(c_s, b->scale);
    c.k = over_group(b, ct_matmul(ct__swap_last(c_s), b->q));
    c.q = ct_matmul(c_s, x->k);
    return c;
}

// Blocks joined along the axis of keys, zeros for keys that no query saw.
static ct_tensor joined(const blocks *b, ct_tensor *part, int64_t axis, ct_tensor like) {
    int64_t n = b->n;
    while (n > 1) { // a concat takes only so many
        int64_t made = 0;
        for (int64_t i = 0; i < n; i += CT_MAP_PIECES) {
            int take = n - i < CT_MAP_PIECES ? (int)(n - i) : CT_MAP_PIECES;
            part[made++] = take == 1 ? part[i] : ct_concat(part + i, take, axis);
        }
        n = made;
    }
    int64_t have = block_end(b, b->n - 1), high[CT_MAX_RANK] = {0};
    ct_tensor all = part[0];
    high[axis] = b->k_type->dim[b->rank - 2] - have;
    if (high[axis]) all = ct_pad(all, b->none, .high = {ct__type_of(all)->rank, high});
    return ct__is_none(like) ? all : ct__shaped_like(all, like);
}
// The same of what a loop made: (n, ..., 64, D) as (..., S, D).
static ct_tensor joined_in_loop(const blocks *b, ct_tensor parts, int64_t axis, ct_tensor like) {
    int64_t axes[CT_MAX_RANK], dim[CT_MAX_RANK];
    const ct_type *type = ct__type_of(parts);
    int rank = type->rank - 1;
    for (int a = 0; a <= rank; a++) axes[a] = a < axis ? a + 1 : a == axis ? 0 : a;
    for (int a = 0; a < rank; a++) dim[a] = ct__size_of(type, a + 1);
    dim[axis] = ct__size_mul(b->blocks, BLOCK);
    ct_tensor all = ct_permute(parts, ((ct_ints){rank + 1, axes}));
    all = ct_reshape(all, ((ct_ints){rank, dim}));
    int64_t stop = ct__size_of(b->k_type, b->rank - 2);
    all = ct_slice(all, .axes = {1, &axis}, .stop = {1, &stop});
    return ct__is_none(like) ? all : ct__shaped_like(all, like);
}

// Carried: cotangents of queries and of summands that all keys share; made: of keys, values, and
// summands of their own.
static void go_back_in_loop(const ct_tensor *in, ct_tensor *out, void *user) {
    backward g = *(const backward *)user;
    const bool shared = g.b.bias && !g.b.wide;
    lay_numbers(&g.b);
    block x = block_in_loop(&g.b, in + 1 + shared);
    block_cotangents c = go_back(&g, &x);
    *out++ = ct__shaped_like(ct_add(in[0], c.q), in[0]);
    if (shared) *out++ = ct__shaped_like(ct_add(in[1], c.bias), in[1]);
    *out++ = c.k;
    *out++ = c.v;
    if (g.b.bias && g.b.wide) *out = c.bias;
}
// A summand's sizes with 1 for each axis that the scores have beyond them.
static ct_tensor zeros_of_bias(const blocks *b) {
    ct_dims_buffer dims;
    const ct_type *type = ct__type_of(b->mask);
    int lead = b->rank - type->rank;
    for (int a = 0; a < b->rank; a++) dims.v[a] = a < lead ? 1 : ct__size_of(type, a - lead);
    return ct_expand(b->none, ((ct_ints){b->rank, dims.v}));
}
static block_cotangents go_back_by_loop(backward *g, ct_loc here) {
    blocks *b = &g->b;
    const bool shared = b->bias && !b->wide, own = b->bias && b->wide;
    ct_tensor xs[LOOP_XS], carry[2] = {ct__zeros_like(b->q)}, last[2] = {CT_NONE, CT_NONE},
                           parts[3];
    if (shared) carry[1] = zeros_of_bias(b);
    size_t n_xs = loop_xs(b, xs);
    ct_scan_with((ct_scan_args){.body = go_back_in_loop,
                                .user = g,
                                .carry = carry,
                                .n_carry = 1 + shared,
                                .xs = xs,
                                .n_xs = n_xs,
                                .n_ys = 2 + own,
                                .here = here},
                 last, parts);
    block_cotangents c = {.q = last[0], .bias = last[1]};
    c.k = joined_in_loop(b, parts[0], b->rank - 2, b->k);
    c.v = joined_in_loop(b, parts[1], b->rank - 2, b->v);
    if (own) c.bias = joined_in_loop(b, parts[2], b->rank - 1, CT_NONE);
    return c;
}
static bool go_back_by_copies(const backward *g, ct_loc here, block_cotangents *c) {
    const blocks *b = &g->b;
    const size_t n = (size_t)b->n, bytes = 3 * n * sizeof(ct_tensor);
    ct_tensor *c_k = ct__malloc(bytes), *c_v = c_k + n, *c_bias = c_v + n;
    if (!c_k) return ct__err_memory(&ct__ctx()->err, here, "attention", bytes);
    for (int64_t i = 0; i < b->n; i++) {
        block x = block_at(b, i);
        block_cotangents part = go_back(g, &x);
        c_k[i] = part.k;
        c_v[i] = part.v;
        c_bias[i] = part.bias;
        c->q = ct__add_zero(c->q, part.q);
        if (b->bias && !b->wide) c->bias = ct__add_zero(c->bias, part.bias);
    }
    c->k = joined(b, c_k, b->rank - 2, b->k);
    c->v = joined(b, c_v, b->rank - 2, b->v);
    if (b->bias && b->wide) c->bias = joined(b, c_bias, b->rank - 1, CT_NONE);
    ct__free(c_k);
    return true;
}

static ct_tensor in_operands_shape(ct_tensor c, ct_tensor operand) {
    return ct__shaped_like(ct__of_type(c, ct__type_of(operand)), operand);
}

static bool attention_vjp(ct_rule *r) {
    backward g;
    blocks *b = &g.b;
    lay_blocks(b, r);
    int64_t last = b->rank - 1;
    ct_ints row = {1, &last};
    g.c = grouped(b, ct__or_zeros(r->c_out[0], r->out[0]));
    // Scores of all blocks would be (..., T, S): they are computed again, when the gradient comes here.
    if (b->n > 1 && !b->loop) b->q = ct__after((ct_tensor[]){b->q, g.c}, 2, r->node->here);
    g.total = grounded(b, grouped(b, ct__add_last(r->out[1])));
    g.delta = ct_sum(ct_mul(g.c, grouped(b, r->out[0])), .axes = row, .keepdims = true);
    if (!ct__is_none(r->c_out[1])) g.delta = ct_sub(g.delta, grouped(b, ct__add_last(r->c_out[1])));
    block_cotangents c = {0};
    if (b->loop) {
        c = go_back_by_loop(&g, r->node->here);
    } else if (!go_back_by_copies(&g, r->node->here, &c)) {
        return false;
    }
    r->c_in[0] = in_operands_shape(positive_zeros(b, c.q), r->in[0]);
    r->c_in[1] = in_operands_shape(c.k, r->in[1]);
    r->c_in[2] = in_operands_shape(c.v, r->in[2]);
    if (b->bias) r->c_in[r->n_in - 1] = in_operands_shape(c.bias, r->in[r->n_in - 1]);
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
           "sqrt(D) unless given. q (..., H, T, D) may have a multiple of the heads of k and v: "
           "neighbouring ones share (Ainslie et al. 2023, grouped queries). causal: query i looks "
           "at keys 0 to position + i (position: one integer, default 0); window: at the last so "
           "many of them (default 0: all). softcap: scores are c tanh(score / c) (default 0: as "
           "they are). mask: broadcast to (..., T, S); bool, true where a query may look, or "
           "floats of q's dtype, which are added to the scores. A query that may look nowhere "
           "gets zeros.",
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
