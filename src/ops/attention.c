// Attention: softmax(scale q k') v, computed by one recurrence over blocks of keys.
//
// The blocks have a fixed size and are aligned to key 0, whatever the sizes of the call, and a key that is
// masked or absent adds exactly nothing. So a row's bits depend neither on the number of queries, nor on the
// capacity of a key cache beyond the valid keys.
#include <math.h>

#include "kinds/attention.h"
#include "kinds/batch.h"
#include "ops/attention.h"
#include "ops/rules.h"

enum { BLOCK = CT_ATTENTION_BLOCK };

CT_ATTR_FIELDS(attention, ATTENTION_ATTRS);

bool ct__attention_mask_fits(const ct_type *mask, const ct_type *scores) {
    const int lead = scores->rank - mask->rank;
    for (int a = 0; a < mask->rank && lead >= 0; a++)
        if (mask->dim[a] != scores->dim[lead + a] && (mask->dim[a] != 1 || ct__is_dyn(mask, a)))
            return false;
    return lead >= 0;
}

// True if the mask broadcasts to (..., T, S).
static bool attention_mask_broadcasts(const ct_type *mask, const ct_type *q, const ct_type *k) {
    int lead = q->rank - mask->rank;
    for (int a = 0; a < mask->rank && lead >= 0; a++) {
        int own = lead + a;
        int64_t size = own == q->rank - 1 ? k->dim[q->rank - 2] : q->dim[own];
        if (mask->dim[a] != size && (mask->dim[a] != 1 || ct__is_dyn(mask, a))) return false;
    }
    return lead >= 0;
}

static const ct_type *attention_optional_type(const ct_call *call, const attention_attrs *attrs,
                                              int flag) {
    const int at = ct__attention_operand(attrs->present, flag);
    return at < 0 ? NULL : call->in[at];
}

// True if the sizes broadcast to the axes before the last two.
static bool attention_broadcasts_to_lead(const ct_type *t, const ct_type *to) {
    const int lead = to->rank - 2 - t->rank;
    for (int a = 0; a < t->rank && lead >= 0; a++)
        if (t->dim[a] != to->dim[lead + a] && (t->dim[a] != 1 || ct__is_dyn(t, a))) return false;
    return lead >= 0;
}

static bool attention_check_positions(ct_call *call, const attention_attrs *attrs) {
    static const struct {
        int flag;
        const char *name;
    } of[] = {{CT_ATTENTION_POSITION, "position"}, {CT_ATTENTION_LENGTH, "length"}};
    if (attrs->present & CT_ATTENTION_POSITION && !attrs->causal &&
        !(attrs->present & CT_ATTENTION_ALIBI))
        return ct__call_err(call, CT_E_ARGUMENT, "a position has no meaning without .causal") ||
               ct__call_hint(
                   call,
                   "it is the position of the first query among the keys: add .causal = true");
    for (int i = 0; i < 2; i++) {
        const ct_type *t = attention_optional_type(call, attrs, of[i].flag);
        if (!t ||
            ((CT_INTEGERS & CT_MASK(t->dtype)) && attention_broadcasts_to_lead(t, call->in[1])))
            continue;
        const bool fits = attention_broadcasts_to_lead(t, call->in[1]);
        return ct__call_err(
                   call, fits ? CT_E_DTYPE : CT_E_SHAPE,
                   "the %s is %s, it must be one integer, or some that broadcast to the axes "
                   "in front of the keys, k %s",
                   of[i].name, ct__type_text(t).s, ct__type_text(call->in[1]).s) ||
               ct__call_hint(
                   call, "a number is ct_i(10); one for each of B sequences with heads is (B, 1)");
    }
    return true;
}

static bool attention_check_optional(ct_call *call, const attention_attrs *attrs) {
    const ct_type *q = call->in[0], *k = call->in[1];
    const ct_type *mask = attention_optional_type(call, attrs, CT_ATTENTION_MASK);
    const ct_type *keep = attention_optional_type(call, attrs, CT_ATTENTION_KEEP);
    if (!attention_check_positions(call, attrs)) return false;
    if (mask && ((mask->dtype != CT_BOOL && mask->dtype != q->dtype) ||
                 !attention_mask_broadcasts(mask, q, k)))
        return ct__call_err(call, CT_E_SHAPE,
                            "the mask is %s, it must be bool or of the queries' dtype, and "
                            "broadcast to the queries and keys of q %s and k %s",
                            ct__type_text(mask).s, ct__type_text(q).s, ct__type_text(k).s);
    if (keep && (keep->dtype != q->dtype || !attention_mask_broadcasts(keep, q, k)))
        return ct__call_err(
            call, CT_E_SHAPE,
            "keep is %s, it must be of the queries' dtype and broadcast to the queries "
            "and keys of q %s and k %s",
            ct__type_text(keep).s, ct__type_text(q).s, ct__type_text(k).s);
    const ct_type *bias = attention_optional_type(call, attrs, CT_ATTENTION_BIAS),
                  *fill = attention_optional_type(call, attrs, CT_ATTENTION_FILL);
    const bool has_bools = mask && mask->dtype == CT_BOOL;
    if (bias && mask && !has_bools)
        return ct__call_err(call, CT_E_ARGUMENT,
                            "a mask of floats is a bias: one of them is enough");
    if (bias && (bias->dtype != q->dtype || !attention_mask_broadcasts(bias, q, k)))
        return ct__call_err(
            call, CT_E_SHAPE,
            "the bias is %s, it must be of the queries' dtype and broadcast to the queries "
            "and keys of q %s and k %s",
            ct__type_text(bias).s, ct__type_text(q).s, ct__type_text(k).s);
    if (fill && (!has_bools || fill->rank || fill->dtype != q->dtype))
        return ct__call_err(
            call, CT_E_ARGUMENT,
            "fill is %s: it must be one number of the queries' dtype, beside a mask of bools",
            ct__type_text(fill).s);
    for (int i = 0; i < 2; i++) {
        const ct_type *t =
            attention_optional_type(call, attrs, i ? CT_ATTENTION_SINKS : CT_ATTENTION_ALIBI);
        if (!t || (t->dtype == q->dtype && attention_broadcasts_to_lead(t, q))) continue;
        return ct__call_err(
                   call, CT_E_SHAPE,
                   "%s is %s, it must be of the queries' dtype and broadcast to the axes in "
                   "front of q %s",
                   i ? "sinks" : "alibi", ct__type_text(t).s, ct__type_text(q).s) ||
               ct__call_hint(call, "a number for each of H heads is (H)");
    }
    return true;
}

static bool attention_check_numbers(ct_call *call, const attention_attrs *attrs) {
    if (attrs->window < 0)
        return ct__call_err(call, CT_E_ARGUMENT, "window is %lld, it must be at least 0",
                            (long long)attrs->window) ||
               ct__call_hint(call, "0 keys, the default, is no limit");
    if (attrs->window && !attrs->causal)
        return ct__call_err(call, CT_E_ARGUMENT, "a window has no meaning without .causal") ||
               ct__call_hint(call, "it is the number of keys that a query attends to, up to its "
                                   "own: add .causal = true");
    if (attrs->masked_nan &&
        (attrs->causal || attrs->present & (CT_ATTENTION_LENGTH | CT_ATTENTION_SINKS)))
        return ct__call_err(call, CT_E_ARGUMENT,
                            "masked_nan goes with neither .causal, a length nor sinks") ||
               ct__call_hint(call, "it is the softmax's NaN where a mask hides all keys");
    double cap = attrs->softcap.value;
    if (ct__num_given(attrs->softcap) && !(cap >= 0 && cap < INFINITY))
        return ct__call_err(call, CT_E_ARGUMENT, "softcap is %g, it must be finite and at least 0",
                            cap) ||
               ct__call_hint(call, "0, the default, is no cap");
    return true;
}

// True if the sizes before the last two agree. The heads of q may be a multiple of those of k and v.
static bool attention_lead_fits(const ct_type *q, const ct_type *k) {
    for (int a = 0; a < q->rank - 2; a++) {
        bool heads = a == q->rank - 3 && !ct__is_dyn(q, a) && !ct__is_dyn(k, a) && k->dim[a] > 0 &&
                     q->dim[a] % k->dim[a] == 0;
        if (q->dim[a] != k->dim[a] && !heads) return false;
    }
    return true;
}
bool ct__attention_fits(const ct_type *q, const ct_type *k, const ct_type *v) {
    const int rank = q->rank;
    if (rank < 2 || k->rank != rank || v->rank != rank || !attention_lead_fits(q, k)) return false;
    for (int a = 0; a < rank - 2; a++)
        if (k->dim[a] != v->dim[a]) return false;
    return k->dim[rank - 1] == v->dim[rank - 2] && k->dim[rank - 1] > 0 &&
           q->dim[rank - 1] == k->dim[rank - 2];
}
// Returns the number of query heads per head of keys and values.
static int64_t attention_group_size(const ct_type *q, const ct_type *k) {
    int heads = q->rank - 3;
    return heads < 0 || q->dim[heads] == k->dim[heads] ? 1 : q->dim[heads] / k->dim[heads];
}

static void attention_set_scale(attention_attrs *attrs, const ct_type *q) {
    const int64_t d = q->dim[q->rank - 1];
    if (!ct__num_given(attrs->scale)) attrs->scale = (ct_num){1 / sqrt((double)(d ? d : 1)), true};
}

// q (..., T, D), k (..., S, D), v (..., S, E) -> (..., T, E), and for each query log(sum(exp(scores))) (...,
// T), which is all that the gradient needs of the forward pass.
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
    if (!fits || !attention_lead_fits(q, k) || q->dim[rank - 1] != k->dim[rank - 1])
        return ct__call_err(call, CT_E_SHAPE,
                            "shapes do not fit (..., T, D), (..., S, D), (..., S, E): q is %s, k "
                            "is %s, v is %s",
                            ct__type_text(q).s, ct__type_text(k).s, ct__type_text(v).s) ||
               ct__call_hint(call,
                             "T queries and S keys of size D, S values of size E; heads are an "
                             "axis before: (B, H, T, D), of q as many as of k or a multiple");
    if (k->dim[rank - 2] == 0)
        return ct__call_err(call, CT_E_SHAPE, "there are no keys: k is %s", ct__type_text(k).s);
    if (!attention_check_numbers(call, attrs) || !attention_check_optional(call, attrs))
        return false;
    attention_set_scale(attrs, q);
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
    return ct__set_out(call, &shape, q->dtype, false);
}

// State that body and vjp share.
typedef struct blocks {
    const attention_attrs *attrs;
    ct_tensor q, k, v, mask, added, keep; // with heads as (key heads, query heads per key head)
    ct_tensor fill;                       // or CT_NONE
    ct_tensor position, length;           // (..., 1, 1), or CT_NONE
    ct_tensor slopes, sinks;              // (..., 1, 1), or CT_NONE
    const ct_type *q_type, *k_type;
    int rank;
    bool mask_per_key;       // the mask has a key axis
    bool bias, bias_per_key; // something is added to the scores; it has a key axis
    bool keep_per_key;       // keep has a key axis
    bool needs_positions;    // the positions of keys are needed
    bool is_dynamic;         // the number of keys is dynamic
    int64_t group, kv_heads; // query heads per head of k and v; the number of these
    int64_t n;               // number of blocks; if static, of those that some query attends to
    int64_t blocks;          // number of blocks of all keys, in the encoding of attributes
    // Recorded again wherever they are used, outside of the loop and inside:
    ct_tensor scale, neg_inf, zero; // -infinity; 0
    ct_tensor cap;                  // the soft cap of the scores, or CT_NONE
    ct_tensor query;                // (..., T, 1) key index of each query
} blocks;

typedef struct block {
    ct_tensor k, v;    // (..., block, D), (..., block, E)
    ct_tensor key;     // (block) key indices, if needed
    ct_tensor mask;    // bool, or CT_NONE
    ct_tensor present; // bool, or CT_NONE: all keys are present
    ct_tensor bias;    // or CT_NONE
    ct_tensor keep;    // or CT_NONE
} block;

static void attention_record_constants(blocks *b) {
    b->scale = ct__number_like(b->attrs->scale.value, b->q);
    b->neg_inf = ct__number_like(-INFINITY, b->q);
    b->zero = ct__number_like(0, b->q);
    double cap = b->attrs->softcap.value;
    b->cap = cap > 0 ? ct__number_like(cap, b->q) : CT_NONE;
    if (!b->attrs->causal && ct__is_none(b->slopes)) return;
    int query = b->rank - 2;
    int64_t column[2] = {ct__size_of(b->q_type, query), 1};
    b->query = ct_iota(CT_I32, ((ct_ints){2, column}), 0);
    if (!ct__is_none(b->position)) b->query = ct_add(b->query, b->position);
}

// Splits the heads of (..., heads, n, m) into (key heads, query heads per key head), if there are fewer key
// heads.
static ct_tensor attention_split_heads(const blocks *b, ct_tensor t) {
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
// Expands a tensor of the leading axes (...) to (..., 1, 1), with heads split.
static ct_tensor attention_expand_lead(const blocks *b, ct_tensor t) {
    return attention_split_heads(b, ct__add_last(ct__add_last(t)));
}

static bool attention_has_key_axis(ct_tensor t) {
    const ct_type *type = ct__type_of(t);
    int last = type->rank - 1;
    return last >= 0 && (type->dim[last] != 1 || ct__is_dyn(type, last));
}

static ct_tensor attention_optional(const ct_rule *r, const attention_attrs *attrs, int flag) {
    const int at = ct__attention_operand(attrs->present, flag);
    return at < 0 ? CT_NONE : r->in[at];
}

static void attention_init_optional(blocks *b, const ct_rule *r) {
    ct_tensor mask = attention_optional(r, b->attrs, CT_ATTENTION_MASK),
              keep = attention_optional(r, b->attrs, CT_ATTENTION_KEEP),
              position = attention_optional(r, b->attrs, CT_ATTENTION_POSITION),
              length = attention_optional(r, b->attrs, CT_ATTENTION_LENGTH),
              slopes = attention_optional(r, b->attrs, CT_ATTENTION_ALIBI),
              sinks = attention_optional(r, b->attrs, CT_ATTENTION_SINKS);
    const bool adds = !ct__is_none(mask) && ct__type_of(mask)->dtype != CT_BOOL;
    ct_tensor bias = adds ? mask : attention_optional(r, b->attrs, CT_ATTENTION_BIAS);
    b->fill = attention_optional(r, b->attrs, CT_ATTENTION_FILL);
    if (!ct__is_none(mask) && !adds) {
        b->mask = attention_split_heads(b, mask);
        b->mask_per_key = attention_has_key_axis(mask);
    }
    if (!ct__is_none(bias)) {
        b->bias = true;
        b->added = attention_split_heads(b, bias);
        b->bias_per_key = attention_has_key_axis(bias);
    }
    if (!ct__is_none(keep)) {
        b->keep = attention_split_heads(b, keep);
        b->keep_per_key = attention_has_key_axis(keep);
    }
    if (!ct__is_none(position)) b->position = attention_expand_lead(b, position);
    if (!ct__is_none(length)) b->length = attention_expand_lead(b, length);
    if (!ct__is_none(slopes)) b->slopes = attention_expand_lead(b, slopes);
    if (!ct__is_none(sinks)) b->sinks = attention_expand_lead(b, sinks);
    b->needs_positions = b->attrs->causal || !ct__is_none(slopes) || !ct__is_none(length);
}

static void attention_init_blocks(blocks *b, const ct_rule *r) {
    *b = (blocks){.attrs = r->attrs, .q = r->in[0], .k = r->in[1], .v = r->in[2]};
    const ct_type *q = ct__type_of(b->q), *k = ct__type_of(b->k);
    b->group = attention_group_size(q, k);
    b->kv_heads = q->rank > 2 ? k->dim[q->rank - 3] : 1;
    b->q = attention_split_heads(b, b->q);
    b->k = attention_split_heads(b, b->k);
    b->v = attention_split_heads(b, b->v);
    attention_init_optional(b, r);
    b->q_type = ct__type_of(b->q);
    b->k_type = ct__type_of(b->k);
    b->rank = b->q_type->rank;
    int query = b->rank - 2;
    b->is_dynamic = ct__is_dyn(b->k_type, query) || ct__is_dyn(ct__type_of(b->v), query);
    int64_t n_keys = b->k_type->dim[query], queries = b->q_type->dim[query];
    bool bounded = b->attrs->causal && ct__is_none(b->position) && !b->is_dynamic &&
                   !ct__is_dyn(b->q_type, query) && queries > 0;
    if (bounded && queries < n_keys) n_keys = queries;        // query i attends to keys 0 to i
    b->n = n_keys > BLOCK ? (n_keys + BLOCK - 1) / BLOCK : 1; // without keys: one empty block
    b->blocks = ct__size_div_up(ct__size_of(b->k_type, query), BLOCK);
    attention_record_constants(b);
}

// ---------------------------------------------- a static number of keys: the recurrence is unrolled

static int64_t attention_block_end(const blocks *b, int64_t i) {
    int64_t keys = b->k_type->dim[b->rank - 2], end = (i + 1) * BLOCK;
    return end < keys ? end : keys;
}
// Slices block i of a tensor along its key axis.
static ct_tensor attention_slice_block(const blocks *b, ct_tensor t, int axis, int64_t i) {
    int64_t start = i * BLOCK, stop = attention_block_end(b, i);
    if (start == 0 && stop == ct__type_of(t)->dim[axis]) return t;
    return ct__slice_axis(t, axis, start, stop);
}
static block attention_block_at(const blocks *b, int64_t i) {
    block x = {.k = attention_slice_block(b, b->k, b->rank - 2, i),
               .v = attention_slice_block(b, b->v, b->rank - 2, i)};
    if (b->needs_positions) {
        int64_t size = attention_block_end(b, i) - i * BLOCK;
        x.key = ct_iota(CT_I32, ((ct_ints){1, &size}), 0);
        if (i) x.key = ct_add(x.key, ct_i(i * BLOCK));
    }
    if (b->mask_per_key)
        x.mask = attention_slice_block(b, b->mask, ct__type_of(b->mask)->rank - 1, i);
    x.bias = b->bias_per_key
                 ? attention_slice_block(b, b->added, ct__type_of(b->added)->rank - 1, i)
                 : b->added;
    x.keep = b->keep_per_key ? attention_slice_block(b, b->keep, ct__type_of(b->keep)->rank - 1, i)
                             : b->keep;
    return x;
}

// ------------------------------------------------------------------------------------------------
// a dynamic number of keys: a loop over the blocks, the last one padded with masked keys

enum { MAX_LOOP_XS = 7 };

// Reshapes a tensor (..., S, ...) to (n, ..., 64, ...), padded with `fill`.
static ct_tensor attention_reshape_to_blocks(const blocks *b, ct_tensor t, int axis,
                                             ct_tensor fill) {
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

// Sets the xs of the loop: keys, values, which keys are present, mask, each block's first index, bias,
// factors of the probabilities. Returns their number.
static size_t attention_loop_xs(const blocks *b, ct_tensor *xs) {
    const bool no = false, yes = true;
    ct_tensor never = ct_const(&no, CT_BOOL, CT_SCALAR);
    int64_t keys = ct__size_of(b->k_type, b->rank - 2), n = b->blocks;
    xs[0] = attention_reshape_to_blocks(b, b->k, b->rank - 2, b->zero);
    xs[1] = attention_reshape_to_blocks(b, b->v, b->rank - 2, b->zero);
    ct_tensor present = ct_expand(ct_const(&yes, CT_BOOL, CT_SCALAR), ((ct_ints){1, &keys}));
    xs[2] = attention_reshape_to_blocks(b, present, 0, never);
    size_t n_xs = 3;
    if (b->mask_per_key)
        xs[n_xs++] = attention_reshape_to_blocks(b, b->mask, ct__type_of(b->mask)->rank - 1, never);
    if (b->needs_positions)
        xs[n_xs++] = ct_mul(ct_iota(CT_I32, ((ct_ints){1, &n}), 0), ct_i(BLOCK));
    if (b->bias_per_key)
        xs[n_xs++] =
            attention_reshape_to_blocks(b, b->added, ct__type_of(b->added)->rank - 1, b->zero);
    if (b->keep_per_key)
        xs[n_xs++] =
            attention_reshape_to_blocks(b, b->keep, ct__type_of(b->keep)->rank - 1, b->zero);
    return n_xs;
}
static block attention_loop_block(const blocks *b, const ct_tensor *xs) {
    block x = {.k = xs[0], .v = xs[1], .present = xs[2]};
    const int64_t size = BLOCK;
    int next = 3;
    if (b->mask_per_key) x.mask = xs[next++];
    if (b->needs_positions) x.key = ct_add(ct_iota(CT_I32, ((ct_ints){1, &size}), 0), xs[next++]);
    x.bias = b->bias_per_key ? xs[next++] : b->added;
    x.keep = b->keep_per_key ? xs[next] : b->keep;
    return x;
}

// ---------------------------------------------------------------------------------- the recurrence

// Returns the distance of queries from keys (..., T, block).
static ct_tensor attention_distance(const blocks *b, const block *x) {
    return ct_cast(ct_abs(ct_sub(b->query, x->key)), (ct_dtype)b->q_type->dtype);
}

// Returns the scores of a block (..., T, block), -infinity where masked; with a cap also tanh(score / cap),
// which the gradient needs.
static ct_tensor attention_record_scores(const blocks *b, const block *x, ct_tensor *tanh_scores) {
    ct_tensor s = ct_mul(ct_matmul(b->q, ct__swap_last(x->k)), b->scale);
    if (!ct__is_none(b->cap)) {
        *tanh_scores = ct_tanh(ct_div(s, b->cap));
        s = ct_mul(*tanh_scores, b->cap);
    }
    if (!ct__is_none(x->bias)) s = ct_add(s, x->bias);
    if (!ct__is_none(b->slopes)) s = ct_sub(s, ct_mul(b->slopes, attention_distance(b, x)));
    if (!ct__is_none(b->mask))
        s = ct_select(b->mask_per_key ? x->mask : b->mask, s,
                      ct__is_none(b->fill) ? b->neg_inf : b->fill);
    if (!ct__is_none(x->present)) s = ct_select(x->present, s, b->neg_inf);
    if (!ct__is_none(b->length)) s = ct_select(ct_less(x->key, b->length), s, b->neg_inf);
    if (b->attrs->causal) s = ct_select(ct_less_equal(x->key, b->query), s, b->neg_inf);
    if (b->attrs->window) {
        // the last key outside of the window
        ct_tensor before = ct_sub(b->query, ct_i(b->attrs->window));
        s = ct_select(ct_less(before, x->key), s, b->neg_inf);
    }
    return s;
}

// Replaces -infinity by 0, for a query that has not attended to any key yet.
static ct_tensor attention_zero_if_neg_inf(const blocks *b, ct_tensor x) {
    return ct_select(ct_equal(x, b->neg_inf), b->zero, x);
}
// A chain that underflows to -0 becomes +0 when a block that adds nothing follows. The number of blocks must
// not affect the result, so it is always +0.
static ct_tensor attention_positive_zeros(const blocks *b, ct_tensor x) {
    return ct_add(x, b->zero);
}

// State that is passed from block to block; CT_NONE before the first. The result is out / sum.
typedef struct running {
    ct_tensor max, sum; // (..., T, 1)
    ct_tensor out;      // (..., T, E)
} running;

static void attention_step(const blocks *b, const block *x, running *r) {
    int64_t last = b->rank - 1;
    ct_ints row = {1, &last};
    bool first = ct__is_none(r->max);
    ct_tensor tanh_scores, s = attention_record_scores(b, x, &tanh_scores);
    ct_tensor block_max = ct_stop_gradient(ct_max(s, .axes = row, .keepdims = true));
    ct_tensor old_max = r->max;
    r->max = first ? block_max : ct_maximum(old_max, block_max);
    ct_tensor base = attention_zero_if_neg_inf(b, r->max);
    ct_tensor p = ct_exp(ct_sub(s, base)); // (..., T, block)
    ct_tensor p_sum = ct_sum(p, .axes = row, .keepdims = true);
    if (!ct__is_none(x->keep)) p = ct_mul(p, x->keep);
    ct_tensor pv = ct_matmul(p, x->v);
    ct_tensor rescale = first ? CT_NONE : ct_exp(ct_sub(old_max, base));
    r->sum = first ? p_sum : ct_add(ct_mul(r->sum, rescale), p_sum);
    r->out = first ? pv : ct_add(ct_mul(r->out, rescale), pv);
}

static void attention_loop_body(const ct_tensor *in, ct_tensor *out, void *user) {
    blocks b = *(const blocks *)user;
    attention_record_constants(&b);
    block x = attention_loop_block(&b, in + 3);
    running r = {in[0], in[1], in[2]};
    attention_step(&b, &x, &r);
    out[0] = ct__shaped_like(r.max, in[0]);
    out[1] = ct__shaped_like(r.sum, in[1]);
    out[2] = ct__shaped_like(r.out, in[2]);
}
// Returns the state before the first block: empty, or the score of a key that has no value (attention sink).
static running attention_initial_state(const blocks *b) {
    ct_dims_buffer row, wide;
    ct__type_dims(b->q_type, &row);
    row.v[b->rank - 1] = 1;
    ct_ints wide_dims = ct__type_dims(b->q_type, &wide);
    wide.v[b->rank - 1] = ct__size_of(ct__type_of(b->v), b->rank - 1);
    const bool sinks = !ct__is_none(b->sinks);
    return (running){ct_expand(sinks ? b->sinks : b->neg_inf, row.list),
                     ct_expand(sinks ? ct__number_like(1, b->q) : b->zero, row.list),
                     ct_expand(b->zero, wide_dims)};
}

static void attention_run_loop(blocks *b, const ct_rule *r, running *result) {
    ct_tensor xs[MAX_LOOP_XS], last[3];
    ct_tensor carry[3] = {result->max, result->sum, result->out};
    size_t n_xs = attention_loop_xs(b, xs);
    ct_scan_with((ct_scan_args){.body = attention_loop_body,
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
    attention_init_blocks(&b, r);
    running x = {CT_NONE, CT_NONE, CT_NONE};
    if (b.is_dynamic || !ct__is_none(b.sinks)) x = attention_initial_state(&b);
    if (b.is_dynamic) attention_run_loop(&b, r, &x);
    for (int64_t i = 0; i < b.n && !b.is_dynamic; i++) {
        block now = attention_block_at(&b, i);
        attention_step(&b, &now, &x);
    }
    // A query without a visible key gets zeros, or NaN.
    ct_tensor out = ct_div(attention_positive_zeros(&b, x.out), x.sum);
    ct_tensor empty_value = b.attrs->masked_nan ? ct__number_like((double)NAN, b.q) : b.zero;
    out = ct_select(ct_equal(x.sum, b.zero), empty_value, out);
    r->body_out[0] = ct__of_type(out, &r->node->out[0]);
    ct_tensor log_sum = ct_add(attention_zero_if_neg_inf(&b, x.max), ct_log(x.sum));
    r->body_out[1] = ct__of_type(log_sum, &r->node->out[1]);
    return true;
}

// ------------------------------------------------------------------------------------ the gradient

typedef struct backward {
    blocks b;
    ct_tensor total; // (..., T, 1) log(sum(exp(scores)))
    ct_tensor c;     // (..., T, E) cotangent of the result
    ct_tensor delta; // (..., T, 1)
} backward;
// For a block: cotangents of its keys, values and bias; its contribution to those of the queries and slopes;
// those of the factors.
typedef struct block_cotangents {
    ct_tensor k, v, bias, q, slopes, keep, fill;
} block_cotangents;

// Sums c over the axes along which t, whose last axis may be sliced, was broadcast; they remain with size 1.
static ct_tensor attention_sum_to_shape(ct_tensor c, ct_tensor t) {
    const ct_type *from = ct__type_of(c), *to = ct__type_of(t);
    int64_t axes[CT_MAX_RANK];
    int n = 0, lead = from->rank - to->rank;
    for (int a = 0; a < from->rank; a++)
        if (a < lead || (to->dim[a - lead] == 1 && !ct__is_dyn(to, a - lead))) axes[n++] = a;
    return n ? ct_sum(c, .axes = {n, axes}, .keepdims = true) : c;
}
// Sums over the query heads that share a key head: (..., key heads, query heads per key head, n, m).
static ct_tensor attention_sum_group(const blocks *b, ct_tensor c) {
    int64_t axis = b->rank - 3;
    return b->group == 1 ? c : ct_sum(c, .axes = {1, &axis}, .keepdims = true);
}

static block_cotangents attention_grad_block(const backward *g, const block *x) {
    const blocks *b = &g->b;
    block_cotangents c = {0};
    ct_tensor tanh_scores, p = ct_exp(ct_sub(attention_record_scores(b, x, &tanh_scores),
                                             g->total)); // (..., T, block)
    ct_tensor c_p = ct_matmul(g->c, ct__swap_last(x->v)), dropped = p;
    if (!ct__is_none(x->keep)) {
        c.keep = attention_sum_to_shape(ct_mul(p, c_p), b->keep);
        dropped = ct_mul(p, x->keep);
        c_p = ct_mul(c_p, x->keep);
    }
    c.v = attention_sum_group(b, ct_matmul(ct__swap_last(dropped), g->c));
    ct_tensor c_s = ct_mul(p, ct_sub(c_p, g->delta));
    if (!ct__is_none(b->fill)) {
        ct_tensor visible = b->mask_per_key ? x->mask : b->mask;
        c.fill = ct_sum(ct_select(visible, b->zero, c_s));
        c_s = ct_select(visible, c_s, b->zero);
    }
    if (b->bias) c.bias = attention_sum_to_shape(c_s, b->added);
    if (!ct__is_none(b->slopes))
        c.slopes = attention_sum_to_shape(ct_neg(ct_mul(c_s, attention_distance(b, x))), b->slopes);
    if (!ct__is_none(b->cap))
        c_s = ct_mul(c_s, ct_sub(ct__number_like(1, c_s), ct_mul(tanh_scores, tanh_scores)));
    c_s = ct_mul(c_s, b->scale);
    c.k = attention_sum_group(b, ct_matmul(ct__swap_last(c_s), b->q));
    c.q = ct_matmul(c_s, x->k);
    return c;
}

// Concatenates blocks along the axis of keys, with zeros for keys that no query attends to.
static ct_tensor attention_concat_blocks(const blocks *b, ct_tensor *part, int64_t axis,
                                         ct_tensor like) {
    int64_t n = b->n;
    while (n > 1) { // the number of operands of a concat is limited
        int64_t made = 0;
        for (int64_t i = 0; i < n; i += CT_MAP_PIECES) {
            int take = n - i < CT_MAP_PIECES ? (int)(n - i) : CT_MAP_PIECES;
            part[made++] = take == 1 ? part[i] : ct_concat(part + i, take, axis);
        }
        n = made;
    }
    int64_t n_present = attention_block_end(b, b->n - 1), high[CT_MAX_RANK] = {0};
    ct_tensor all = part[0];
    high[axis] = b->k_type->dim[b->rank - 2] - n_present;
    if (high[axis]) all = ct_pad(all, b->zero, .high = {ct__type_of(all)->rank, high});
    return ct__is_none(like) ? all : ct__shaped_like(all, like);
}
// The same for the ys of a loop: (n, ..., 64, D) as (..., S, D).
static ct_tensor attention_unblock(const blocks *b, ct_tensor parts, int64_t axis, ct_tensor like) {
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

// The loop carries the cotangents of queries, and of operands without a key axis. Its ys are those of keys,
// values, and operands with a key axis.
enum { MAX_CARRY = 5, MAX_YS = 4 };
static int attention_grad_carry(const blocks *b, block_cotangents *c, ct_tensor *at[MAX_CARRY]) {
    int n = 0;
    at[n++] = &c->q;
    if (b->bias && !b->bias_per_key) at[n++] = &c->bias;
    if (!ct__is_none(b->keep) && !b->keep_per_key) at[n++] = &c->keep;
    if (!ct__is_none(b->slopes)) at[n++] = &c->slopes;
    if (!ct__is_none(b->fill)) at[n++] = &c->fill;
    return n;
}
static int attention_grad_ys(const blocks *b, const block_cotangents *c, ct_tensor *to) {
    int n = 0;
    to[n++] = c->k;
    to[n++] = c->v;
    if (b->bias_per_key) to[n++] = c->bias;
    if (b->keep_per_key) to[n++] = c->keep;
    return n;
}

static void attention_grad_loop_body(const ct_tensor *in, ct_tensor *out, void *user) {
    backward g = *(const backward *)user;
    ct_tensor *now[MAX_CARRY];
    block_cotangents c = {0};
    const int n = attention_grad_carry(&g.b, &c, now);
    attention_record_constants(&g.b);
    block x = attention_loop_block(&g.b, in + n);
    c = attention_grad_block(&g, &x);
    for (int i = 0; i < n; i++) out[i] = ct__shaped_like(ct_add(in[i], *now[i]), in[i]);
    attention_grad_ys(&g.b, &c, out + n);
}
// Returns zeros with an operand's sizes, preceded by size 1 for each further axis of the scores.
static ct_tensor attention_zeros_at_rank(const blocks *b, ct_tensor t) {
    ct_dims_buffer dims;
    const ct_type *type = ct__type_of(t);
    int lead = b->rank - type->rank;
    for (int a = 0; a < b->rank; a++) dims.v[a] = a < lead ? 1 : ct__size_of(type, a - lead);
    return ct_expand(b->zero, ((ct_ints){b->rank, dims.v}));
}
static block_cotangents attention_grad_loop(backward *g, ct_loc here) {
    blocks *b = &g->b;
    ct_tensor xs[MAX_LOOP_XS], carry[MAX_CARRY], *own[MAX_CARRY], last[MAX_CARRY] = {CT_NONE},
                                                                  parts[MAX_YS] = {CT_NONE};
    block_cotangents c = {.q = ct__zeros_like(b->q)};
    if (b->bias && !b->bias_per_key) c.bias = attention_zeros_at_rank(b, b->added);
    if (!ct__is_none(b->keep) && !b->keep_per_key) c.keep = attention_zeros_at_rank(b, b->keep);
    if (!ct__is_none(b->slopes)) c.slopes = attention_zeros_at_rank(b, b->slopes);
    if (!ct__is_none(b->fill)) c.fill = ct__zeros_like(b->fill);
    const int n = attention_grad_carry(b, &c, own), n_made = attention_grad_ys(b, &c, parts);
    for (int i = 0; i < n; i++) carry[i] = *own[i];
    size_t n_xs = attention_loop_xs(b, xs);
    ct_scan_with((ct_scan_args){.body = attention_grad_loop_body,
                                .user = g,
                                .carry = carry,
                                .n_carry = (size_t)n,
                                .xs = xs,
                                .n_xs = n_xs,
                                .n_ys = (size_t)n_made,
                                .here = here},
                 last, parts);
    for (int i = 0; i < n; i++) *own[i] = last[i];
    int at = 0;
    c.k = attention_unblock(b, parts[at++], b->rank - 2, b->k);
    c.v = attention_unblock(b, parts[at++], b->rank - 2, b->v);
    if (b->bias_per_key) c.bias = attention_unblock(b, parts[at++], b->rank - 1, CT_NONE);
    if (b->keep_per_key) c.keep = attention_unblock(b, parts[at], b->rank - 1, CT_NONE);
    return c;
}
static bool attention_grad_unrolled(const backward *g, ct_loc here, block_cotangents *c) {
    const blocks *b = &g->b;
    const size_t n = (size_t)b->n, bytes = MAX_YS * n * sizeof(ct_tensor);
    ct_tensor *part = ct__malloc(bytes), *sum[MAX_CARRY], *term[MAX_CARRY]; // part: (MAX_YS, n)
    if (!part) return ct__err_memory(&ct__ctx()->err, here, "attention", bytes);
    for (int64_t i = 0; i < b->n; i++) {
        block x = attention_block_at(b, i);
        block_cotangents own = attention_grad_block(g, &x);
        part[i] = own.k;
        part[n + (size_t)i] = own.v;
        part[2 * n + (size_t)i] = own.bias;
        part[3 * n + (size_t)i] = own.keep;
        const int n_sums = attention_grad_carry(b, &own, term);
        attention_grad_carry(b, c, sum);
        for (int s = 0; s < n_sums; s++) *sum[s] = ct__add_zero(*sum[s], *term[s]);
    }
    c->k = attention_concat_blocks(b, part, b->rank - 2, b->k);
    c->v = attention_concat_blocks(b, part + n, b->rank - 2, b->v);
    if (b->bias_per_key) c->bias = attention_concat_blocks(b, part + 2 * n, b->rank - 1, CT_NONE);
    if (b->keep_per_key) c->keep = attention_concat_blocks(b, part + 3 * n, b->rank - 1, CT_NONE);
    ct__free(part);
    return true;
}

static ct_tensor attention_operand_shape(ct_tensor c, ct_tensor operand) {
    return ct__shaped_like(ct__of_type(c, ct__type_of(operand)), operand);
}

// A query without a visible key gives and gets zeros, whatever it and its cotangent contain. With masked_nan
// its probabilities are NaN instead, since -infinity minus -infinity is.
static void attention_zero_masked_rows(backward *g) {
    blocks *b = &g->b;
    ct_tensor is_masked = ct_equal(g->total, b->neg_inf);
    b->q = ct_select(is_masked, b->zero, b->q);
    g->c = ct_select(is_masked, b->zero, g->c);
    g->delta = ct_select(is_masked, b->zero, g->delta);
    g->total = attention_zero_if_neg_inf(b, g->total);
}

// Computes all cotangents by the recurrence, for a rule whose operands are those of attention. c, total,
// delta: in the shapes of its results.
static bool attention_grad_recurrence(backward *g, const ct_rule *r, ct_tensor c, ct_tensor total,
                                      ct_tensor delta, block_cotangents *to) {
    blocks *b = &g->b;
    attention_init_blocks(b, r);
    g->c = attention_split_heads(b, c);
    g->total = attention_split_heads(b, ct__add_last(total));
    g->delta = attention_split_heads(b, ct__add_last(delta));
    if (!b->attrs->masked_nan) attention_zero_masked_rows(g);
    // Scores of all blocks would be (..., T, S), so they are recomputed when the gradient arrives here.
    if (b->n > 1 && !b->is_dynamic)
        b->q = ct__control_dependency((ct_tensor[]){b->q, g->c}, 2, r->node->here);
    *to = (block_cotangents){0};
    if (!b->is_dynamic) return attention_grad_unrolled(g, r->node->here, to);
    *to = attention_grad_loop(g, r->node->here);
    return true;
}

// Cotangents of queries, keys and values are an op of its own, whose kernels work block by block. Those of
// operands that are rarely trained, which have (T, S) elements or few, use the recurrence.
static bool attention_vjp(ct_rule *r) {
    const attention_attrs *attrs = r->attrs;
    ct_tensor in[CT_ATTENTION_MOST_OPERANDS], out[3];
    const ct_tensor c = ct__or_zeros(r->c_out[0], r->out[0]);
    int64_t last = ct__type_of(c)->rank - 1;
    ct_tensor delta = ct_sum(ct_mul(c, r->out[0]), .axes = {1, &last}); // (..., T)
    if (!ct__is_none(r->c_out[1])) delta = ct_sub(delta, r->c_out[1]);
    const int sinks = ct__attention_operand(attrs->present, CT_ATTENTION_SINKS);
    attention_attrs attrs_without_sinks = *attrs; // the logarithm includes the sinks
    attrs_without_sinks.present &= ~CT_ATTENTION_SINKS;
    int n = 0;
    for (int i = 0; i < r->n_in; i++)
        if (i != sinks) in[n++] = r->in[i];
    in[n] = c;
    in[n + 1] = r->out[1];
    in[n + 2] = delta;
    ct__outputs(
        ct__record(&ct__op_attention_backward, &attrs_without_sinks, in, n + 3, r->node->here), out,
        3);
    for (int i = 0; i < 3; i++) r->c_in[i] = out[i];
    const int mask = ct__attention_operand(attrs->present, CT_ATTENTION_MASK),
              keep = ct__attention_operand(attrs->present, CT_ATTENTION_KEEP),
              slopes = ct__attention_operand(attrs->present, CT_ATTENTION_ALIBI);
    const int bias = mask >= 0 && ct__type_of(r->in[mask])->dtype != CT_BOOL
                         ? mask
                         : ct__attention_operand(attrs->present, CT_ATTENTION_BIAS);
    if (sinks >= 0) {                               // its share of the probability has no value
        ct_tensor own = ct__add_last(r->in[sinks]); // (..., H, 1)
        ct_tensor p = ct_exp(ct_sub(own, r->out[1]));
        r->c_in[sinks] = attention_operand_shape(
            ct_neg(attention_sum_to_shape(ct_mul(p, delta), own)), r->in[sinks]);
    }
    const int fill = ct__attention_operand(attrs->present, CT_ATTENTION_FILL);
    if (bias < 0 && keep < 0 && slopes < 0 && fill < 0) return true;
    backward g;
    block_cotangents all;
    if (!attention_grad_recurrence(&g, r, c, r->out[1], delta, &all)) return false;
    if (bias >= 0) r->c_in[bias] = attention_operand_shape(all.bias, r->in[bias]);
    if (keep >= 0) r->c_in[keep] = attention_operand_shape(all.keep, r->in[keep]);
    if (fill >= 0) r->c_in[fill] = all.fill;
    if (slopes >= 0) r->c_in[slopes] = attention_operand_shape(all.slopes, r->in[slopes]);
    return true;
}

static bool attention_backward_infer(ct_call *call) {
    attention_set_scale(call->attrs, call->in[0]);
    for (int i = 0; i < 3; i++) call->out[i] = *call->in[i];
    return true;
}

static bool attention_backward_body(ct_rule *r) {
    backward g;
    block_cotangents c;
    const ct_tensor *in = r->in + r->n_in - 3;
    if (!attention_grad_recurrence(&g, r, in[0], in[1], in[2], &c)) return false;
    r->body_out[0] = attention_operand_shape(attention_positive_zeros(&g.b, c.q), r->in[0]);
    r->body_out[1] = attention_operand_shape(c.k, r->in[1]);
    r->body_out[2] = attention_operand_shape(c.v, r->in[2]);
    return true;
}

// The batch is one more leading axis of all operands; those with fewer leading axes broadcast.
static bool attention_batch(ct_batching *b) {
    const attention_attrs *attrs = b->attrs;
    ct_tensor in[CT_ATTENTION_MOST_OPERANDS];
    const int rank = ct__type(b->node->in[0])->rank;
    const int position = ct__attention_operand(attrs->present, CT_ATTENTION_POSITION),
              length = ct__attention_operand(attrs->present, CT_ATTENTION_LENGTH),
              slopes = ct__attention_operand(attrs->present, CT_ATTENTION_ALIBI),
              sinks = ct__attention_operand(attrs->present, CT_ATTENTION_SINKS),
              fill = ct__attention_operand(attrs->present, CT_ATTENTION_FILL);
    const bool is_backward = b->node->op == &ct__op_attention_backward;
    if (fill >= 0 && b->batched[fill]) return true; // handled by the body
    for (int i = 0; i < b->n_in; i++) {
        if (i == fill) {
            in[i] = b->in[i];
            continue;
        }
        const bool whole = i < 3 || (is_backward && i >= b->n_in - 3),
                   front = i == position || i == length || i == slopes || i == sinks;
        in[i] = whole ? ct__batch_operand(b, i) : ct__batch_aligned(b, i, front ? rank - 2 : rank);
    }
    return ct__batch_record(b, attrs, in);
}

const ct_opdef ct__op_attention_backward = {
    CT_OP(ATTENTION_BACKWARD, attention_backward, attention_backward, -1, 3),
    .doc = "The cotangents of attention's q, k and v, given its operands, the cotangent of its "
           "result, its "
           "log(sum(exp(scores))), and the sum over each value of cotangent times result, less the "
           "cotangent of that logarithm.",
    CT_FIELDS(attention),
    .accepts = CT_FLOATS,
    .infer = attention_backward_infer,
    .body = attention_backward_body,
    .batch = attention_batch,
    .widens = true,
    .samples = {.ulp = 32},
};

const ct_opdef ct__op_attention = {
    CT_OP(ATTENTION, attention, attention, -1, 2),
    .doc =
        "softmax(scale q k') v for q (..., T, D), k (..., S, D), v (..., S, E); scale: 1 / sqrt(D) "
        "unless given. q (..., H, T, D) may have a multiple of the heads of k and v: neighbouring "
        "ones share (Ainslie et al. 2023, grouped queries). causal: query i attends to keys 0 to "
        "position + i (position: one integer, default 0); window: at the last so many of them "
        "(default 0: all). softcap: scores are c tanh(score / c) (default 0: as they are). mask: "
        "broadcast to (..., T, S); bool, true where a query may look, or floats of q's dtype, "
        "which are added to the scores. length: keys beyond it are not looked at. position, "
        "length: one integer, or some that broadcast to k's axes in front, so (B, 1) for B texts. "
        "alibi: slopes that broadcast to q's axes in front, as (H): slope times the distance is "
        "taken from the scores. sinks: as alibi, a score whose value is nothing. keep: factors of "
        "the probabilities, broadcast to (..., T, S), as of a dropout. bias: floats that are "
        "added, beside a mask of bools. fill: the score that such a mask puts (default -infinity). "
        "A query that may look nowhere gets zeros, and so do its gradients; masked_nan: where "
        "masks and summands alone hide keys, NaN, as from the softmax written out.",
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
