// The graph's attention and its gradients, by the templates.
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
// An operand or a result.
typedef struct part {
    const bound *b;
    ct_val v;
} part;
enum { Q, K, V };

static ct_ix zero(const bound *b) { return ct__ix_int(b->e->pool, 0); }

// The index variables of positions lead..., group, query: the axes in front of a query's numbers; how many.
// What is behind stands one position further on.
static int put_row(const bound *b, const ct_kval *at, ct_ix *index) {
    const int n = b->rank - 2;
    ct_ix_pool *p = b->e->pool;
    for (int a = 0; a < n; a++) index[a] = ct__emit_bind(b->e, at[a], b->lead[a]);
    ct_ix member = ct__emit_bind(b->e, at[n], b->group);
    if (n) index[n - 1] = ct__ix_add(p, ct__ix_mul(p, index[n - 1], b->group), member);
    index[n] = ct__emit_bind(b->e, at[n + 1], b->queries);
    return n + 1;
}

static ct_kval row_value(void *env, ct_kir *k, const ct_kval *at) { // (lead..., group, query)
    (void)k;
    const part *x = env;
    ct_ix index[CT_MAX_RANK];
    put_row(x->b, at, index);
    return ct__emit_value_apart(x->b->e, x->v, index, x->b->dtype);
}
static ct_ix last_size(const part *x) {
    return ct__emit_size(x->b->e, x->v, ct__type(x->v)->rank - 1);
}
static ct_kval query_value(void *env, ct_kir *k, const ct_kval *at) { // its number i as well
    (void)k;
    const part *x = env;
    ct_ix index[CT_MAX_RANK];
    const int n = put_row(x->b, at, index);
    index[n] = ct__emit_bind(x->b->e, at[n + 1], last_size(x));
    return ct__emit_value_apart(x->b->e, x->v, index, x->b->dtype);
}
static void key_index(const part *x, const ct_kval *at, ct_ix *index) { // (lead..., key, number)
    const int n = x->b->rank - 2;
    for (int a = 0; a < n; a++) index[a] = ct__emit_bind(x->b->e, at[a], x->b->lead[a]);
    index[n] = ct__emit_bind(x->b->e, at[n], x->b->keys);
    index[n + 1] = ct__emit_bind(x->b->e, at[n + 1], last_size(x));
}
static ct_kval key_value(void *env, ct_kir *k, const ct_kval *at) {
    (void)k;
    const part *x = env;
    ct_ix index[CT_MAX_RANK];
    key_index(x, at, index);
    return ct__emit_value_apart(x->b->e, x->v, index, x->b->dtype);
}

static void store_row(void *env, ct_kir *k, const ct_kval *at, ct_kval v) {
    (void)k;
    const part *x = env;
    ct_ix index[CT_MAX_RANK];
    put_row(x->b, at, index);
    ct__emit_store_apart(x->b->e, x->v, index, v);
}
static void store_query(void *env, ct_kir *k, const ct_kval *at, ct_kval v) {
    (void)k;
    const part *x = env;
    ct_ix index[CT_MAX_RANK];
    const int n = put_row(x->b, at, index);
    index[n] = ct__emit_bind(x->b->e, at[n + 1], last_size(x));
    ct__emit_store_apart(x->b->e, x->v, index, v);
}
static void store_key(void *env, ct_kir *k, const ct_kval *at, ct_kval v) {
    (void)k;
    const part *x = env;
    ct_ix index[CT_MAX_RANK];
    key_index(x, at, index);
    ct__emit_store_apart(x->b->e, x->v, index, v);
}

// The index in what spreads to (axes of q in front, queries, keys), of index variables there.
static void spread(const bound *b, ct_val v, const ct_ix *whole, ct_ix *index) {
    const ct_type *type = ct__type(v);
    for (int a = 0; a < type->rank; a++)
        index[a] = ct__is_one(type, a) ? zero(b) : whole[a + b->rank - type->rank];
}
static ct_kval score_value(void *env, ct_kir *k,
                           const ct_kval *at) { // (lead..., group, query, key)
    (void)k;
    const part *x = env;
    ct_ix whole[CT_MAX_RANK], index[CT_MAX_RANK];
    const int n = put_row(x->b, at, whole);
    whole[n] = ct__emit_bind(x->b->e, at[n + 1], x->b->keys);
    spread(x->b, x->v, whole, index);
    const bool is_mask = ct__type(x->v)->dtype == CT_BOOL;
    return ct__emit_value_apart(x->b->e, x->v, index, is_mask ? CT_BOOL : x->b->dtype);
}

// Of what spreads to the axes of q in front.
static ct_kval head_value(void *env, ct_kir *k, const ct_kval *at) { // (lead..., group, query)
    (void)k;
    const part *x = env;
    const ct_type *type = ct__type(x->v);
    ct_ix whole[CT_MAX_RANK], index[CT_MAX_RANK];
    const int n = put_row(x->b, at, whole) - 1;
    for (int a = 0; a < type->rank; a++)
        index[a] = ct__is_one(type, a) ? zero(x->b) : whole[a + n - type->rank];
    return ct__emit_value_apart(x->b->e, x->v, index, x->b->dtype);
}

// A whole number for each place in front, or one for all.
static ct_kval number_at(const bound *b, int flag, const ct_kval *lead) {
    const ct_val v = b->node->in[ct__attention_operand(b->attrs->present, flag)];
    const ct_type *type = ct__type(v);
    ct_ix index[CT_MAX_RANK];
    for (int a = 0; a < type->rank; a++) {
        const int own = a + b->rank - 2 - type->rank;
        index[a] = ct__is_one(type, a) ? zero(b) : ct__emit_bind(b->e, lead[own], b->lead[own]);
    }
    return ct__kir_cast(b->e->kir, ct__emit_value_apart(b->e, v, index, (ct_dtype)type->dtype),
                        CT_I64);
}
static ct_kval position(void *env, ct_kir *k, const ct_kval *lead) {
    (void)k;
    return number_at(env, CT_ATTENTION_POSITION, lead);
}
static ct_kval length(void *env, ct_kir *k, const ct_kval *lead) {
    (void)k;
    return number_at(env, CT_ATTENTION_LENGTH, lead);
}

static ct_kval fill(void *env, ct_kir *k) {
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

static part *part_of(writing *w, ct_val v) {
    part *x = &w->part[w->n_parts++];
    *x = (part){&w->b, v};
    return x;
}
static ct_source source(writing *w, int operand,
                        ct_kval (*value)(void *, ct_kir *, const ct_kval *)) {
    return (ct_source){.value = value, .env = part_of(w, w->b.node->in[operand]), .along = -1};
}
// Keys or values; is_load: an element is one load, of whatever dtype, at a place that hangs on no other.
static ct_source source_of_keys(writing *w, int operand) {
    const bound *b = &w->b;
    const ct_val v = b->node->in[operand];
    ct_source s = source(w, operand, key_value);
    ct_ix index[CT_MAX_RANK];
    for (int a = 0; a < b->rank; a++) index[a] = ct__ix_var(b->e->pool, ct__emit_size(b->e, v, a));
    s.is_load = ct__emit_is_load(b->e, v, index, (ct_dtype)ct__type(v)->dtype);
    return s;
}
static ct_sink sink(writing *w, uint32_t out,
                    void (*store)(void *, ct_kir *, const ct_kval *, ct_kval)) {
    return (ct_sink){.store = store,
                     .env = part_of(w, (ct_val){(ct_node *)(uintptr_t)w->b.node, out})};
}

// Does it hang on no more than the place in front and the key?
static bool is_alike(const bound *b, ct_val v) {
    const ct_type *type = ct__type(v);
    const int query = type->rank - 2, head = type->rank - 3;
    int64_t group = 1;
    ct__ix_is_int(b->e->pool, b->group, &group);
    return (query < 0 || ct__is_one(type, query)) &&
           (head < 0 || group == 1 || ct__is_one(type, head));
}
static ct_attention_extra extra(writing *w, int flag) {
    const int operand = ct__attention_operand(w->b.attrs->present, flag);
    if (operand < 0) return (ct_attention_extra){.extent = CT_ATTENTION_NONE};
    const ct_val v = w->b.node->in[operand];
    return (ct_attention_extra){.extent = is_alike(&w->b, v) ? CT_ATTENTION_KEYS : CT_ATTENTION_ALL,
                                .at = source(w, operand, score_value)};
}

static ct_source of_heads(writing *w, int flag) {
    return source(w, ct__attention_operand(w->b.attrs->present, flag), head_value);
}

static bool begin(writing *w, ct_sched *s, ct_node *node) {
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
                                  .q = source(w, Q, query_value),
                                  .k = source_of_keys(w, K),
                                  .v = source_of_keys(w, V),
                                  .env = b,
                                  .target = e->target};
    if (b->attrs->present & CT_ATTENTION_POSITION) w->spec.position = position;
    if (b->attrs->present & CT_ATTENTION_LENGTH) w->spec.length = length;
    const int mask = ct__attention_operand(b->attrs->present, CT_ATTENTION_MASK);
    const bool is_mask = mask >= 0 && ct__type(node->in[mask])->dtype == CT_BOOL;
    w->spec.mask = extra(w, is_mask ? CT_ATTENTION_MASK : 0);
    w->spec.added = extra(w, mask >= 0 && !is_mask ? CT_ATTENTION_MASK : CT_ATTENTION_BIAS);
    if (b->attrs->present & CT_ATTENTION_FILL) w->spec.fill = fill;
    w->spec.keep = extra(w, CT_ATTENTION_KEEP);
    w->spec.has_alibi = b->attrs->present & CT_ATTENTION_ALIBI;
    w->spec.has_sinks = b->attrs->present & CT_ATTENTION_SINKS;
    if (w->spec.has_alibi) w->spec.alibi = of_heads(w, CT_ATTENTION_ALIBI);
    if (w->spec.has_sinks) w->spec.sinks = of_heads(w, CT_ATTENTION_SINKS);
    return true;
}

static double products_of(const ct_node *node) { // of each query: keys
    const ct_type *k = ct__type(node->in[K]);
    return (double)k->dim[k->rank - 2];
}
static double rows_of(const ct_node *node) {
    const ct_type *q = ct__type(node->in[Q]);
    const int64_t d = q->dim[q->rank - 1];
    return d ? (double)(ct__count(q) / d) : 0;
}
// Floating-point operations of so many products with numbers of queries, and with those of values.
static double flops(const writing *w, int of_d, int of_e) {
    const double half = w->spec.causal ? 0.5 : 1;
    return 2 * half * rows_of(w->b.node) * products_of(w->b.node) *
           (of_d * (double)w->spec.d + of_e * (double)w->spec.e);
}

static bool attention_kernels(ct_sched *s, ct_node *node) {
    writing w;
    if (!begin(&w, s, node)) return false;
    w.spec.out = sink(&w, 0, store_query);
    w.spec.total = sink(&w, 1, store_row);
    ct__template_attention(w.b.e->kir, &w.spec);
    return ct__emit_done(w.b.e, flops(&w, 1, 1));
}

// Operands behind those of attention, and outputs.
enum { C, TOTAL, DELTA, N_COTANGENTS };

static bool backward_launch(ct_sched *s, ct_node *node, bool wants_q, bool wants_kv) {
    writing w;
    if (!begin(&w, s, node)) return false;
    const int first = node->n_in - N_COTANGENTS;
    w.spec.c = source(&w, first + C, query_value);
    w.spec.log_total = source(&w, first + TOTAL, row_value);
    w.spec.delta = source(&w, first + DELTA, row_value);
    w.spec.wants_q = wants_q;
    w.spec.wants_kv = wants_kv;
    if (wants_q) {
        const int flags = wants_kv ? CT_KIR_READ | CT_KIR_WRITE : CT_KIR_WRITE;
        w.spec.c_q = ct__emit_result_buffer(w.b.e, (ct_val){node, Q}, flags);
    }
    if (wants_kv) {
        w.spec.c_k = sink(&w, K, store_key);
        w.spec.c_v = sink(&w, V, store_key);
    }
    ct__template_attention_backward(w.b.e->kir, &w.spec);
    // Scores and what they get, and for each wanted operand its own product.
    return ct__emit_done(w.b.e, flops(&w, 1 + wants_q + wants_kv, 1 + wants_kv));
}

// A head a task takes five products in one launch; a block of queries and a block of keys as tasks of their own take
// seven, which is worth it where heads would leave cores idle for longer.
static bool backward_kernels(ct_sched *s, ct_node *node) {
    enum { TOGETHER = 5, APART = 7 };
    const ct_type *k = ct__type(node->in[K]);
    const double cores = ct__sched_target(s)->cores > 0 ? ct__sched_target(s)->cores : 1;
    double heads = 1;
    for (int a = 0; a < k->rank - 2; a++) heads *= (double)k->dim[a];
    const double turns = ceil(heads / cores);
    if (turns * cores * TOGETHER <= heads * APART) return backward_launch(s, node, true, true);
    return backward_launch(s, node, true, false) && backward_launch(s, node, false, true);
}

// Sizes that scratch is made of must be known, and fit.
static bool takes(const ct_node *node) {
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
    .takes = takes,
    .epilogue = true,
    .packs = true,
    .products = products_of,
};
const ct_kind ct__kind_attention_backward = {
    .name = "attention_gradients",
    .doc = "The gradients of attention, block by block.",
    .scheduled = CT_TEMPLATE,
    .kernels = backward_kernels,
    .takes = takes,
    .packs = true,
    .products = products_of,
};
