// associative_scan: all prefixes of the elements along an axis, combined by a traced associative function, in
// a logarithmic number of rounds.
//
// The function is traced once, on elements; a round is its body for a batch. Neighbours are combined in
// pairs, the prefixes of the pairs are computed recursively, and the elements between them follow from these
// (Blelloch). How an element is combined depends only on its index, not on the number of later elements. The
// node is a composition of that, from which its derivatives follow.
#include <string.h>

#include "graph/symbols.h"
#include "ops/rules.h"
#include "transform/loop.h"

#define ASSOCIATIVE_SCAN_ATTRS(F, op) F(op, body, body) F(op, axis, axis) F(op, bool, reverse)
CT_ATTRS(associative_scan, ASSOCIATIVE_SCAN_ATTRS);

static bool associative_scan_infer(ct_call *call) {
    const associative_scan_attrs *a = call->attrs;
    if (!ct__call_outs(call, (int)a->body->n_outs)) return false;
    for (size_t i = 0; i < a->body->n_outs; i++) {
        call->out[i] = *call->in[i];
        call->out[i].weak = false;
    }
    return true;
}

// -------------------------------------------------------------------------------------- the rounds

typedef struct {
    const ct_body *body;
    const ct_tensor *captured;
    size_t n; // tensors
    ct_arena *arena;
    ct_loc here;
} assoc_scan;

static ct_tensor *assoc_alloc(const assoc_scan *r, size_t n) {
    ct_tensor *t = ct__arena_zero(r->arena, (n + 1) * sizeof *t);
    if (!t) ct__err_memory(&ct__ctx()->err, r->here, "associative_scan", n * sizeof *t);
    return t;
}

// Returns elements start, start + 2 ... before `stop` of each tensor.
static ct_tensor *assoc_every_second(const assoc_scan *r, const ct_tensor *x, int64_t start,
                                     int64_t stop) {
    const int64_t two = 2;
    ct_tensor *out = assoc_alloc(r, r->n);
    for (size_t i = 0; i < r->n && out; i++)
        out[i] = ct_slice(x[i], .start = {1, &start}, .stop = {1, &stop}, .step = {1, &two});
    return out;
}
static ct_tensor *assoc_head(const assoc_scan *r, const ct_tensor *x, int64_t n) {
    ct_tensor *out = assoc_alloc(r, r->n);
    for (size_t i = 0; i < r->n && out; i++) out[i] = ct_slice(x[i], .stop = {1, &n});
    return out;
}

// Combines `size` elements of a with those of b.
static ct_tensor *assoc_combine(const assoc_scan *r, int64_t size, const ct_tensor *a,
                                const ct_tensor *b) {
    ct_ctx *ctx = ct__ctx();
    size_t n = r->n, n_captured = r->body->n_captured, all = 2 * n + n_captured;
    ct_tensor *in = assoc_alloc(r, all), *out = assoc_alloc(r, n);
    bool *batched = ct__arena_zero(r->arena, all + n + 1);
    if (!in || !out || !batched || !a || !b) return NULL;
    memcpy(in, a, n * sizeof *in);
    memcpy(in + n, b, n * sizeof *in);
    if (n_captured) memcpy(in + 2 * n, r->captured, n_captured * sizeof *in);
    for (size_t i = 0; i < 2 * n; i++) batched[i] = true;
    if (!ct__inline_batched(ctx, r->body, size, in, batched, out, batched + all)) return NULL;
    for (size_t i = 0; i < n; i++) { // a result that is the same for all elements is broadcast
        if (batched[all + i]) continue;
        ct_dims_buffer dims;
        ct__dims_of(a[i], &dims);
        dims.v[0] = size;
        out[i] = ct_expand(out[i], dims.list);
    }
    return out;
}

// Returns a0 b0 a1 b1 ...; a has as many elements as b, or one more.
static ct_tensor assoc_interleave(ct_tensor a, ct_tensor b) {
    const ct_type *t = ct__type_of(b);
    int64_t dim[CT_MAX_RANK + 1], m = t->dim[0], n = ct__type_of(a)->dim[0];
    dim[0] = m;
    dim[1] = 1;
    for (int i = 1; i < t->rank; i++) dim[1 + i] = ct__size_of(t, i);
    const ct_ints pairs = {t->rank + 1, dim};
    const ct_tensor both[2] = {ct_reshape(ct_slice(a, .stop = {1, &m}), pairs),
                               ct_reshape(b, pairs)};
    ct_tensor joined = ct_concat(both, 2, 1); // (m, 2, ...)
    dim[1] = 2 * m;
    ct_tensor out = ct_reshape(joined, ((ct_ints){t->rank, dim + 1}));
    if (n == m) return out;
    const ct_tensor parts[2] = {out, ct_slice(a, .start = {1, &m})};
    return ct_concat(parts, 2, 0);
}

// Returns the prefixes of `size` elements. Recursive, for half as many.
static ct_tensor *assoc_prefixes(const assoc_scan *r, int64_t size, const ct_tensor *x) {
    if (size < 2) return assoc_head(r, x, size);
    int64_t half = size / 2, rest = (size - 1) / 2; // number of odd and of even indices, without 0
    const ct_tensor *pairs = assoc_combine(r, half, assoc_every_second(r, x, 0, 2 * half),
                                           assoc_every_second(r, x, 1, size));
    const ct_tensor *odd = pairs ? assoc_prefixes(r, half, pairs) : NULL;
    if (!odd) return NULL;
    const ct_tensor *even = NULL, *begin = assoc_head(r, x, 1);
    if (rest && !(even = assoc_combine(r, rest, assoc_head(r, odd, rest),
                                       assoc_every_second(r, x, 2, size))))
        return NULL;
    ct_tensor *out = assoc_alloc(r, r->n);
    for (size_t i = 0; i < r->n && out && begin; i++) {
        const ct_tensor all[2] = {begin[i], even ? even[i] : CT_NONE};
        out[i] = assoc_interleave(even ? ct_concat(all, 2, 0) : begin[i], odd[i]);
    }
    return out;
}

// Moves the axis to axis 0, and back.
static ct_tensor assoc_move_axis(ct_tensor x, int64_t from, int64_t to) {
    int64_t order[CT_MAX_RANK], rank = ct__type_of(x)->rank, at = 0;
    if (from == to) return x;
    for (int64_t a = 0; a < rank; a++) {
        if (a == to) {
            order[a] = from;
            continue;
        }
        at += at == from;
        order[a] = at++;
    }
    return ct_permute(x, ((ct_ints){rank, order}));
}

static bool associative_scan_body(ct_rule *rule) {
    const associative_scan_attrs *a = rule->attrs;
    CT_ARENA scratch = {0};
    assoc_scan r = {a->body, rule->in + rule->n_out, (size_t)rule->n_out, &scratch,
                    rule->node->here};
    const ct_type *t = ct__type_of(rule->in[0]);
    const int64_t size = t->dim[a->axis], zero = 0;
    const ct_ints axis = {1, &zero};
    // The rounds depend on the size, so that another size needs another plan.
    if (t->dyn >> a->axis & 1 && ct__symbols_now()) ct__symbols_incomplete(ct__symbols_now());
    ct_tensor *x = assoc_alloc(&r, r.n), *out = NULL;
    for (size_t i = 0; i < r.n && x; i++) {
        x[i] = ct_slice(assoc_move_axis(rule->in[i], a->axis, 0), .stop = {1, &size});
        if (a->reverse) x[i] = ct_flip(x[i], axis);
    }
    if (x) out = size ? assoc_prefixes(&r, size, x) : x;
    for (size_t i = 0; i < r.n && out; i++)
        rule->body_out[i] =
            assoc_move_axis(a->reverse ? ct_flip(out[i], axis) : out[i], 0, a->axis);
    return out && !ct_failed();
}

const ct_opdef ct__op_associative_scan = {
    CT_COMPOSED(ASSOCIATIVE_SCAN, associative_scan, -1, -1),
    .doc = "All prefixes of the elements along an axis, put together by a traced function.",
    CT_FIELDS(associative_scan),
    .accepts = CT_ANY,
};

// --------------------------------------------------------------------------------------- recording

typedef struct {
    const ct_associative_scan_args *args;
    ct_type *element; // (n_xs)
} traced_f;

static void assoc_trace_f(const ct_tensor *in, ct_tensor *out, void *user) {
    const traced_f *p = user;
    const ct_associative_scan_args *args = p->args;
    ct_ctx *ctx = ct__ctx();
    args->f(in, out, args->user);
    for (size_t i = 0; i < args->n_xs && !ctx->err.code; i++) {
        ct_val v;
        if (!out[i].bits)
            ct__fail(ctx, CT_E_ARGUMENT, args->here, "associative_scan", "f did not set output %zu",
                     i + 1);
        else if (ct__resolve(ctx, out[i], &v, "associative_scan", CT_OUTPUT((int)i), args->here) &&
                 (ct__type(v)->dtype != p->element[i].dtype ||
                  !ct__same_shape(ct__type(v), &p->element[i])))
            ct__fail(ctx, CT_E_SHAPE, args->here, "associative_scan",
                     "an element of operand %zu is %s, f makes %s of two", i + 1,
                     ct__type_text(&p->element[i]).s, ct__type_text(ct__type(v)).s);
    }
}

// Returns the type of x without the axis; its sizes are in the arena.
static bool assoc_element_type(ct_arena *arena, const ct_type *x, int64_t axis, ct_type *out) {
    int64_t *dim = ct__arena(arena, (x->rank + 1u) * sizeof *dim);
    *out = (ct_type){
        .dtype = x->dtype, .device = x->device, .rank = (uint8_t)(x->rank - 1), .dim = dim};
    if (!dim) return false;
    for (int a = 0, to = 0; a < x->rank; a++) {
        if (a == axis) continue;
        out->dyn |= (x->dyn >> a & 1) << to;
        dim[to++] = x->dim[a];
    }
    return true;
}

// Finds the axis counted from 0, and the types of elements: of the left ones, then of the right ones.
static bool assoc_find_elements(ct_ctx *ctx, const ct_associative_scan_args *args, int64_t *axis,
                                ct_type *element, const ct_type **types) {
    ct_arena *arena = ct__top(ctx)->arena;
    size_t n = args->n_xs;
    int64_t size = -1;
    for (size_t i = 0; i < n; i++) {
        ct_val v;
        if (!ct__resolve(ctx, args->xs[i], &v, "associative_scan", (int)i, args->here))
            return false;
        const ct_type *t = ct__type(v);
        int64_t own = args->axis < 0 ? args->axis + t->rank : args->axis;
        if (own < 0 || own >= t->rank) {
            ct__fail(ctx, CT_E_SHAPE, args->here, "associative_scan",
                     "operand %zu is %s, it has no axis %lld", i + 1, ct__type_text(t).s,
                     (long long)args->axis);
            return ct__hint_axes(&(ct_call){.err = &ctx->err}, t->rank);
        }
        if (i && (own != *axis || t->dim[own] != size))
            return ct__refuse(
                ctx, CT_E_SHAPE, args->here, "associative_scan",
                own != *axis ? "axis %lld of operand %zu is its axis %lld, of the first %lld"
                             : "axis %lld of operand %zu has size %lld, of the first %lld",
                (long long)args->axis, i + 1, (long long)(own != *axis ? own : t->dim[own]),
                (long long)(own != *axis ? *axis : size));
        *axis = own;
        size = t->dim[own];
        if (!assoc_element_type(arena, t, own, &element[i]))
            return ct__err_memory(&ctx->err, args->here, "associative_scan", sizeof *element);
        types[i] = types[n + i] = &element[i];
    }
    return true;
}

static bool assoc_record(ct_ctx *ctx, const ct_associative_scan_args *args, ct_tensor *node) {
    ct_arena *arena = ct__top(ctx)->arena;
    size_t n = args->n_xs;
    associative_scan_attrs attrs = {.reverse = args->reverse};
    traced_f p = {.args = args, .element = ct__arena(arena, n * sizeof *p.element)};
    const ct_type **types = ct__arena(arena, 2 * n * sizeof *types);
    if (!p.element || !types)
        return ct__err_memory(&ctx->err, args->here, "associative_scan", n * sizeof *types);
    if (!assoc_find_elements(ctx, args, &attrs.axis, p.element, types)) return false;
    const ct_traced traced = {.op = "associative_scan", .f = assoc_trace_f, .user = &p};
    attrs.body = ct__trace(ctx, &traced, types, 2 * n, n, args->here);
    if (attrs.body && !ct__stays_in_place(ctx, "associative_scan", attrs.body)) return false;
    ct_tensor *all = attrs.body ? ct__with_captured(ctx, attrs.body, args->xs, n, 0) : NULL;
    if (!all) return false;
    *node = ct__record(&ct__op_associative_scan, &attrs, all, (int)(n + attrs.body->n_captured),
                       args->here);
    return !ctx->err.code;
}

void ct_associative_scan_with(ct_associative_scan_args args, ct_tensor *out) {
    ct_ctx *ctx = ct__ctx();
    ct_tensor node = CT_NONE;
    if (!ctx || !ct__possible(ctx, args.n_xs, args.here, "associative_scan", "xs") ||
        (args.n_xs && !ct__given(ctx, out, args.here, "associative_scan", "the array for results")))
        return;
    bool ok = ct__given(ctx, (void *)(uintptr_t)args.f, args.here, "associative_scan", "f") &&
              (!args.n_xs || ct__given(ctx, args.xs, args.here, "associative_scan", "xs"));
    if (args.n_xs)
        ct__loop_results(ctx, ok && assoc_record(ctx, &args, &node), node, 0, out, args.n_xs,
                         args.here);
}
