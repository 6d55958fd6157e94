// Attention and its gradients as ops of the graph: binds operands and results to the templates.
#include "kinds/attention.h"

#include <math.h>
#include <string.h>

#include "kinds/emit.h"

typedef struct bound {
    ct_emit *e;
    const ct_node *node;
    const attention_attrs *attrs;
    ct_dtype dtype;
    int rank; // of q, k and v
    ct_ix lead[CT_MAX_RANK], group, queries, keys, d, e_size;
} bound;
// An operand or a result: `index` computes its own index from positions in the template.
typedef struct part part;
typedef void (*part_index)(const part *x, const ct_kval *at, ct_ix *index);
struct part {
    const bound *b;
    ct_val v;
    part_index index;
};
enum { Q, K, V };

static ct_ix attention_index_zero(const bound *b) { return ct__ix_int(b->e->pool, 0); }

// Sets the index variables of position lead..., group, query in a query's shape without its last axis.
// Returns their number. In `at`, axes after these are one position further on.
static int attention_put_row_index(const bound *b, const ct_kval *at, ct_ix *index) {
    const int n = b->rank - 2;
    ct_ix_pool *p = b->e->pool;
    for (int a = 0; a < n; a++) index[a] = ct__emit_bind(b->e, at[a], b->lead[a]);
    ct_ix group_index = ct__emit_bind(b->e, at[n], b->group);
    if (n) index[n - 1] = ct__ix_add(p, ct__ix_mul(p, index[n - 1], b->group), group_index);
    index[n] = ct__emit_bind(b->e, at[n + 1], b->queries);
    return n + 1;
}

static ct_kval attention_value(void *env, ct_kir *k, const ct_kval *at) {
    (void)k;
    const part *x = env;
    ct_ix index[CT_MAX_RANK];
    x->index(x, at, index);
    const bool is_mask = ct__type(x->v)->dtype == CT_BOOL;
    return ct__emit_value_apart(x->b->e, x->v, index, is_mask ? CT_BOOL : x->b->dtype);
}
static void attention_store(void *env, ct_kir *k, const ct_kval *at, ct_kval v) {
    (void)k;
    const part *x = env;
    ct_ix index[CT_MAX_RANK];
    x->index(x, at, index);
    ct__emit_store_apart(x->b->e, x->v, index, v);
}

static ct_ix attention_last_size(const part *x) {
    return ct__emit_size(x->b->e, x->v, ct__type(x->v)->rank - 1);
}
// (lead..., group, query)
static void attention_row_index(const part *x, const ct_kval *at, ct_ix *index) {
    attention_put_row_index(x->b, at, index);
}
// (lead..., group, query, element)
static void attention_query_index(const part *x, const ct_kval *at, ct_ix *index) {
    const int n = attention_put_row_index(x->b, at, index);
    index[n] = ct__emit_bind(x->b->e, at[n + 1], attention_last_size(x));
}
// (lead..., key, element)
static void attention_key_index(const part *x, const ct_kval *at, ct_ix *index) {
    const int n = x->b->rank - 2;
    for (int a = 0; a < n; a++) index[a] = ct__emit_bind(x->b->e, at[a], x->b->lead[a]);
    index[n] = ct__emit_bind(x->b->e, at[n], x->b->keys);
    index[n + 1] = ct__emit_bind(x->b->e, at[n + 1], attention_last_size(x));
}
// Of an operand that broadcasts to the first n axes of `whole`.
static void attention_broadcast_index(const part *x, const ct_ix *whole, int n, ct_ix *index) {
    const ct_type *type = ct__type(x->v);
    for (int a = 0; a < type->rank; a++)
        index[a] = ct__is_one(type, a) ? attention_index_zero(x->b) : whole[a + n - type->rank];
}
// (lead..., group, query, key), of an operand that broadcasts to leading axes of q, queries and keys
static void attention_score_index(const part *x, const ct_kval *at, ct_ix *index) {
    ct_ix whole[CT_MAX_RANK];
    const int n = attention_put_row_index(x->b, at, whole);
    whole[n] = ct__emit_bind(x->b->e, at[n + 1], x->b->keys);
    attention_broadcast_index(x, whole, x->b->rank, index);
}
// (lead..., group, query), of an operand that broadcasts to the leading axes of q
static void attention_head_index(const part *x, const ct_kval *at, ct_ix *index) {
    ct_ix whole[CT_MAX_RANK];
    const int n = attention_put_row_index(x->b, at, whole) - 1;
    attention_broadcast_index(x, whole, n, index);
}

// Loads an integer operand at a leading index, to which it broadcasts.
static ct_kval attention_int_at(const bound *b, int flag, const ct_kval *lead) {
    const ct_val v = b->node->in[ct__attention_operand(b->attrs->present, flag)];
    const ct_type *type = ct__type(v);
    ct_ix index[CT_MAX_RANK];
    for (int a = 0; a < type->rank; a++) {
        const int own = a + b->rank - 2 - type->rank;
        index[a] = ct__is_one(type, a) ? attention_index_zero(b)
                                       : ct__emit_bind(b->e, lead[own], b->lead[own]);
    }
    return ct__kir_cast(b->e->kir, ct__emit_value_apart(b->e, v, index, (ct_dtype)type->dtype),
                        CT_I64);
}
static ct_kval attention_position(void *env, ct_kir *k, const ct_kval *lead) {
    (void)k;
    return attention_int_at(env, CT_ATTENTION_POSITION, lead);
}
static ct_kval attention_length(void *env, ct_kir *k, const ct_kval *lead) {
    (void)k;
    return attention_int_at(env, CT_ATTENTION_LENGTH, lead);
}

static ct_kval attention_fill_value(void *env, ct_kir *k) {
    (void)k;
    const bound *b = env;
    const ct_val v = b->node->in[ct__attention_operand(b->attrs->present, CT_ATTENTION_FILL)];
    return ct__emit_value_apart(b->e, v, NULL, b->dtype);
}

// ---------------------------------------------------------------------------------------- the kernels

typedef struct writing {
    bound b;
    ct_attention_spec spec;
    ct_kval lead[CT_MAX_RANK];
    part part[CT_ATTENTION_MOST_OPERANDS + 3];
    int n_parts;
} writing;

static part *attention_new_part(writing *w, ct_val v, part_index index) {
    part *x = &w->part[w->n_parts++];
    *x = (part){&w->b, v, index};
    return x;
}
static ct_source attention_source(writing *w, int operand, part_index index) {
    return (ct_source){.value = attention_value,
                       .env = attention_new_part(w, w->b.node->in[operand], index),
                       .along = -1};
}
// Returns keys or values as a source. is_load is set if an element is one load, of whatever dtype, at an
// index that depends on no other value.
static ct_source attention_key_source(writing *w, int operand) {
    const bound *b = &w->b;
    const ct_val v = b->node->in[operand];
    ct_source s = attention_source(w, operand, attention_key_index);
    ct_ix index[CT_MAX_RANK];
    for (int a = 0; a < b->rank; a++) index[a] = ct__ix_var(b->e->pool, ct__emit_size(b->e, v, a));
    s.is_load = ct__emit_is_load(b->e, v, index, (ct_dtype)ct__type(v)->dtype);
    return s;
}
static ct_sink attention_sink(writing *w, uint32_t out, part_index index) {
    const ct_val v = {(ct_node *)(uintptr_t)w->b.node, out};
    return (ct_sink){.store = attention_store, .env = attention_new_part(w, v, index)};
}

// True if the operand depends only on the leading index and the key.
static bool attention_depends_on_key_only(const bound *b, ct_val v) {
    const ct_type *type = ct__type(v);
    const int query = type->rank - 2, head = type->rank - 3;
    int64_t group = 1;
    ct__ix_is_int(b->e->pool, b->group, &group);
    return (query < 0 || ct__is_one(type, query)) &&
           (head < 0 || group == 1 || ct__is_one(type, head));
}
static ct_attention_extra attention_extra_operand(writing *w, int flag) {
    const int operand = ct__attention_operand(w->b.attrs->present, flag);
    if (operand < 0) return (ct_attention_extra){.extent = CT_ATTENTION_NONE};
    const ct_val v = w->b.node->in[operand];
    return (ct_attention_extra){
        .extent = attention_depends_on_key_only(&w->b, v) ? CT_ATTENTION_KEYS : CT_ATTENTION_ALL,
        .at = attention_source(w, operand, attention_score_index)};
}

static ct_source attention_head_source(writing *w, int flag) {
    return attention_source(w, ct__attention_operand(w->b.attrs->present, flag),
                            attention_head_index);
}

static bool attention_begin_kernel(writing *w, ct_sched *s, ct_node *node) {
    bound *b = &w->b;
    ct_emit *e = ct__emit_new(s, node);
    if (!e) return false;
    ct__emit_declare_sizes(e, node);
    const ct_type *q = ct__type(node->in[Q]), *k = ct__type(node->in[K]),
                  *v = ct__type(node->in[V]);
    *w = (writing){.b = {.e = e, .node = node, .attrs = node->attrs, .rank = q->rank}};
    b->dtype = (ct_dtype)q->dtype;
    for (int a = 0; a < q->rank - 2; a++) {
        b->lead[a] = ct__emit_size(e, node->in[K], a);
        w->lead[a] = ct__emit_ix(e, b->lead[a]);
    }
    const int heads = q->rank - 3;
    const bool shared = heads >= 0 && q->dim[heads] != k->dim[heads];
    b->group = ct__ix_int(e->pool, shared ? q->dim[heads] / k->dim[heads] : 1);
    b->queries = ct__emit_size(e, node->in[Q], q->rank - 2);
    b->keys = ct__emit_size(e, node->in[K], q->rank - 2);
    w->spec = (ct_attention_spec){.dtype = b->dtype,
                                  .n_lead = q->rank - 2,
                                  .lead = w->lead,
                                  .group = ct__emit_ix(e, b->group),
                                  .queries = ct__emit_ix(e, b->queries),
                                  .keys = ct__emit_ix(e, b->keys),
                                  .d = q->dim[q->rank - 1],
                                  .e = v->dim[q->rank - 1],
                                  .scale = b->attrs->scale.value,
                                  .cap = b->attrs->softcap.value,
                                  .causal = b->attrs->causal,
                                  .window = b->attrs->window,
                                  .masked_nan = b->attrs->masked_nan,
                                  .q = attention_source(w, Q, attention_query_index),
                                  .k = attention_key_source(w, K),
                                  .v = attention_key_source(w, V),
                                  .env = b,
                                  .target = e->target};
    if (b->attrs->present & CT_ATTENTION_POSITION) w->spec.position = attention_position;
    if (b->attrs->present & CT_ATTENTION_LENGTH) w->spec.length = attention_length;
    const int mask = ct__attention_operand(b->attrs->present, CT_ATTENTION_MASK);
    const bool is_mask = mask >= 0 && ct__type(node->in[mask])->dtype == CT_BOOL;
    w->spec.mask = attention_extra_operand(w, is_mask ? CT_ATTENTION_MASK : 0);
    w->spec.added =
        attention_extra_operand(w, mask >= 0 && !is_mask ? CT_ATTENTION_MASK : CT_ATTENTION_BIAS);
    if (b->attrs->present & CT_ATTENTION_FILL) w->spec.fill = attention_fill_value;
    w->spec.keep = attention_extra_operand(w, CT_ATTENTION_KEEP);
    w->spec.has_alibi = b->attrs->present & CT_ATTENTION_ALIBI;
    w->spec.has_sinks = b->attrs->present & CT_ATTENTION_SINKS;
    if (w->spec.has_alibi) w->spec.alibi = attention_head_source(w, CT_ATTENTION_ALIBI);
    if (w->spec.has_sinks) w->spec.sinks = attention_head_source(w, CT_ATTENTION_SINKS);
    return true;
}

static double attention_products(const ct_node *node) { // per query: the number of keys
    const ct_type *k = ct__type(node->in[K]);
    return (double)k->dim[k->rank - 2];
}
static double attention_row_count(const ct_node *node) {
    const ct_type *q = ct__type(node->in[Q]);
    const int64_t d = q->dim[q->rank - 1];
    return d ? (double)(ct__count(q) / d) : 0;
}
// Returns the floating-point operations of so many products along d and along e.
static double attention_flops(const writing *w, int d_products, int e_products) {
    const double half = w->spec.causal ? 0.5 : 1;
    return 2 * half * attention_row_count(w->b.node) * attention_products(w->b.node) *
           (d_products * (double)w->spec.d + e_products * (double)w->spec.e);
}

static bool attention_kernels(ct_sched *s, ct_node *node) {
    writing w;
    if (!attention_begin_kernel(&w, s, node)) return false;
    w.spec.out = attention_sink(&w, 0, attention_query_index);
    w.spec.total = attention_sink(&w, 1, attention_row_index);
    ct__template_attention(w.b.e->kir, &w.spec);
    return ct__emit_done(w.b.e, attention_flops(&w, 1, 1));
}

// Operands after those of attention, and outputs.
enum { C, TOTAL, DELTA, N_COTANGENTS };

static bool attention_write_backward(ct_sched *s, ct_node *node, bool wants_q, bool wants_kv) {
    writing w;
    if (!attention_begin_kernel(&w, s, node)) return false;
    const int first = node->n_in - N_COTANGENTS;
    w.spec.c = attention_source(&w, first + C, attention_query_index);
    w.spec.log_total = attention_source(&w, first + TOTAL, attention_row_index);
    w.spec.delta = attention_source(&w, first + DELTA, attention_row_index);
    w.spec.wants_q = wants_q;
    w.spec.wants_kv = wants_kv;
    if (wants_q) {
        const int flags = wants_kv ? CT_KIR_READ | CT_KIR_WRITE : CT_KIR_WRITE;
        w.spec.c_q = ct__emit_result_buffer(w.b.e, (ct_val){node, Q}, flags);
    }
    if (wants_kv) {
        w.spec.c_k = attention_sink(&w, K, attention_key_index);
        w.spec.c_v = attention_sink(&w, V, attention_key_index);
    }
    ct__template_attention_backward(w.b.e->kir, &w.spec);
    // The products are the scores and their cotangents, and one for each wanted operand.
    return ct__emit_done(w.b.e, attention_flops(&w, 1 + wants_q + wants_kv, 1 + wants_kv));
}

// With one task per head, one launch takes five products. With separate launches for blocks of queries and
// blocks of keys it is seven products, which pays off if one task per head would leave cores idle for longer.
static bool attention_backward_kernels(ct_sched *s, ct_node *node) {
    enum { FUSED_PRODUCTS = 5, SPLIT_PRODUCTS = 7 };
    const ct_type *k = ct__type(node->in[K]);
    const double cores = ct__sched_target(s)->cores > 0 ? ct__sched_target(s)->cores : 1;
    double heads = 1;
    for (int a = 0; a < k->rank - 2; a++) heads *= (double)k->dim[a];
    const double rounds = ceil(heads / cores);
    if (rounds * cores * FUSED_PRODUCTS <= heads * SPLIT_PRODUCTS)
        return attention_write_backward(s, node, true, true);
    return attention_write_backward(s, node, true, false) &&
           attention_write_backward(s, node, false, true);
}

// True if the sizes that determine the scratch are static and small enough.
static bool attention_is_supported(const ct_node *node) {
    const ct_type *q = ct__type(node->in[Q]), *v = ct__type(node->in[V]);
    const int last = q->rank - 1;
    const ct_dtype dtype = (ct_dtype)q->dtype;
    return (dtype == CT_F32 || dtype == CT_F64) && !ct__is_dyn(q, last) && !ct__is_dyn(v, last) &&
           !ct__is_dyn(ct__type(node->in[K]), last) && q->dim[last] > 0 && v->dim[last] > 0 &&
           q->dim[last] <= CT_ATTENTION_MOST && v->dim[last] <= CT_ATTENTION_MOST;
}

const ct_kind ct__kind_attention = {
    .name = "attention",
    .doc = "Attention over blocks of keys, which a kernel goes through one after the other.",
    .scheduled = CT_TEMPLATE,
    .kernels = attention_kernels,
    .takes = attention_is_supported,
    .epilogue = true,
    .packs = true,
    .products = attention_products,
};
const ct_kind ct__kind_attention_backward = {
    .name = "attention_gradients",
    .doc = "The gradients of attention, block by block.",
    .scheduled = CT_TEMPLATE,
    .kernels = attention_backward_kernels,
    .takes = attention_is_supported,
    .packs = true,
    .products = attention_products,
};
