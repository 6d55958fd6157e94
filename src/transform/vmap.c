// vmap: turns a function of elements into a function of batches.
//
// The function's nodes are recorded again in order. A value either has the batch as axis 0 or is the same for
// all elements; nodes none of whose operands is batched are unchanged. The batching rule of a node is that of
// its op, else that of its kind (kinds/batch.h); a composition without a rule is batched through its body.
#include <string.h>

#include "kinds/batch.h"
#include "ops/rules.h"
#include "transform/trace.h"

typedef struct {
    ct_tensor t;
    bool batched;
} batched_value; // one output of a node

typedef struct batcher {
    ct_ctx *ctx;
    int64_t size; // of the batch; CT_DYN marks a dynamic one
    ct_loc here;
} batcher;

static bool vmap_no_memory(const batcher *b, size_t n) {
    return ct__err_memory(&b->ctx->err, b->here, "vmap", n * sizeof(batched_value));
}

static bool vmap_nodes(const batcher *b, ct_node *const *nodes, size_t n, const batched_value *args,
                       const ct_val *outs, size_t n_outs, batched_value *out);

// ------------------------------------------------------------------------------------- one node

// Appends what a body captured to the arguments, unbatched: numbers that the body introduces are captured
// from outside when a function is traced, and are operands, too. (A composition's body is traced on
// parameters like its operands without the batch, then batched as any function is.)
static const batched_value *vmap_add_captured(const batcher *b, ct_arena *scratch,
                                              const ct_body *body, const batched_value *args) {
    const size_t n = body->n_params, more = body->n_captured;
    if (!more) return args;
    batched_value *all = ct__arena(scratch, (n + more) * sizeof *all);
    if (!all) return vmap_no_memory(b, n + more), NULL;
    if (n) memcpy(all, args, n * sizeof *all);
    for (size_t i = 0; i < more; i++)
        all[n + i] = (batched_value){ct__handle_of(body->captured_from[i]), false};
    return all;
}
static void vmap_call_body(const ct_tensor *in, ct_tensor *out, void *user) {
    ct__call_body(ct__ctx(), user, in, out);
}
static bool vmap_composition(const batcher *b, ct_node *node, const batched_value *in,
                             batched_value *out) {
    CT_ARENA scratch = {0};
    const ct_type **types = ct__arena(&scratch, (node->n_in + 1u) * sizeof *types);
    if (!types) return vmap_no_memory(b, node->n_in);
    for (int k = 0; k < node->n_in; k++) types[k] = ct__type(node->in[k]);
    const ct_traced traced = {.op = node->op->name,
                              .f = vmap_call_body,
                              .user = node,
                              .unset = "its body did not set output"};
    ct_body *body = ct__trace(b->ctx, &traced, types, node->n_in, node->n_out, node->here);
    const batched_value *args = body ? vmap_add_captured(b, &scratch, body, in) : NULL;
    bool ok =
        args && vmap_nodes(b, body->nodes, body->n_nodes, args, body->outs, body->n_outs, out);
    return ok;
}

// Checks that the results of a rule are those of the node, with the batch as axis 0 of the `batched` ones.
static bool vmap_check_results(const batcher *b, const ct_node *node, const ct_tensor *out,
                               const bool *batched) {
    for (int k = 0; k < node->n_out; k++) {
        ct_val v;
        if (!ct__resolve(b->ctx, out[k], &v, node->op->name, k, node->here)) return false;
        const ct_type *is = ct__type(v), *recorded = &node->out[k];
        const int more = batched[k];
        bool fits = is->dtype == recorded->dtype && is->rank == recorded->rank + more &&
                    (!more || is->dim[0] == ct__unmarked(b->size));
        for (int a = 0; a < recorded->rank && fits; a++)
            fits = is->dim[a + more] == recorded->dim[a];
        if (fits) continue;
        return ct__refuse(b->ctx, CT_E_INTERNAL, node->here, node->op->name,
                          "batched it gives %s, an element is %s", ct__type_text(is).s,
                          ct__type_text(recorded).s);
    }
    return true;
}

static bool vmap_by_rule(const batcher *b, ct_node *node, bool (*rule)(ct_batching *),
                         const batched_value *in, batched_value *out) {
    CT_ARENA scratch = {0};
    ct_tensor *t_in = ct__arena(&scratch, (node->n_in + 1u) * sizeof *t_in),
              *t_out = ct__arena_zero(&scratch, node->n_out * sizeof *t_out);
    bool *batched = ct__arena(&scratch, node->n_in + 1u),
         *out_batched = ct__arena(&scratch, node->n_out);
    bool ok = (t_in && t_out && batched && out_batched) || vmap_no_memory(b, node->n_in);
    for (int k = 0; k < node->n_out && ok; k++) out_batched[k] = true;
    for (int k = 0; k < node->n_in && ok; k++) t_in[k] = in[k].t, batched[k] = in[k].batched;
    ct_batching batching = {.node = node,
                            .attrs = node->attrs,
                            .n_in = node->n_in,
                            .n_out = node->n_out,
                            .in = t_in,
                            .batched = batched,
                            .size = b->size,
                            .out = t_out,
                            .out_batched = out_batched};
    ok = ok && rule(&batching) && !b->ctx->err.code;
    if (ok && !ct__is_none(t_out[0])) ok = vmap_check_results(b, node, t_out, out_batched);
    for (int k = 0; k < node->n_out && ok; k++) out[k] = (batched_value){t_out[k], out_batched[k]};
    return ok;
}

// A rule of a composition that does not support these operands leaves the node to its body.
static bool vmap_node(const batcher *b, ct_node *node, const batched_value *in,
                      batched_value *out) {
    bool (*rule)(ct_batching *) = node->op->batch ? node->op->batch : node->op->kind->batch;
    if (rule && !vmap_by_rule(b, node, rule, in, out)) return false;
    if (rule && !ct__is_none(out[0].t)) return true;
    if (node->op->body) return vmap_composition(b, node, in, out);
    return ct__refuse(b->ctx, CT_E_INTERNAL, node->here, node->op->name,
                      "it has no rule for batches");
}

// Records a node none of whose operands is batched.
static bool vmap_unbatched_node(const batcher *b, const ct_node *node, const batched_value *in,
                                batched_value *out) {
    CT_ARENA scratch = {0};
    ct_tensor *t = ct__arena(&scratch, (node->n_in + node->n_out + 1u) * sizeof *t);
    bool ok = t || vmap_no_memory(b, node->n_in);
    for (int k = 0; k < node->n_in && ok; k++) t[k] = in[k].t;
    if (ok)
        ct__outputs(ct__record(node->op, node->attrs, t, node->n_in, node->here), t + node->n_in,
                    node->n_out);
    for (int k = 0; k < node->n_out && ok; k++) out[k] = (batched_value){t[node->n_in + k], false};
    return ok && !b->ctx->err.code;
}

static bool vmap_copy_leaf(const batcher *b, const ct_node *node, const batched_value *args,
                           batched_value *out) {
    if (node->op == &ct__op_param) {
        *out = args[node->number];
        return true;
    }
    ct_node *leaf = ct__leaf(b->ctx, node->op, node->attrs, *node->out, node->here);
    if (leaf) *out = (batched_value){ct__handle(leaf, 0), false};
    return leaf != NULL;
}

// --------------------------------------------------------------------------------- all of a function

// args: the values of the parameters. Nodes are in order, operands first, with transforms expanded.
static bool vmap_nodes(const batcher *b, ct_node *const *nodes, size_t n, const batched_value *args,
                       const ct_val *outs, size_t n_outs, batched_value *out) {
    CT_ARENA scratch = {0};
    batched_value **map = ct__arena(&scratch, (n + 1) * sizeof *map), *in = NULL;
    size_t capacity = 0;
    for (size_t i = 0; i < n; i++) {
        nodes[i]->index = (uint32_t)i; // no other walk visits them
        if (nodes[i]->n_in > capacity) capacity = nodes[i]->n_in;
    }
    bool ok =
        (map && (in = ct__arena(&scratch, (capacity + 1) * sizeof *in))) || vmap_no_memory(b, n);
    for (size_t i = 0; i < n && ok; i++) {
        ct_node *node = nodes[i];
        map[i] = ct__arena_zero(&scratch, node->n_out * sizeof **map);
        ok = map[i] || vmap_no_memory(b, node->n_out);
        bool leaf = node->op->kind == &ct__kind_leaf, batched = false;
        for (int k = 0; k < node->n_in && ok && !leaf; k++) {
            in[k] = map[node->in[k].node->index][node->in[k].out];
            batched = batched || in[k].batched;
        }
        ok = ok && (leaf      ? vmap_copy_leaf(b, node, args, map[i])
                    : batched ? vmap_node(b, node, in, map[i])
                              : vmap_unbatched_node(b, node, in, map[i]));
    }
    for (size_t i = 0; i < n_outs && ok; i++) out[i] = map[outs[i].node->index][outs[i].out];
    return ok && !b->ctx->err.code;
}

bool ct__inline_batched(ct_ctx *ctx, const ct_body *body, int64_t size, const ct_tensor *args,
                        const bool *batched, ct_tensor *out, bool *out_batched) {
    const batcher b = {.ctx = ctx, .size = size, .here = body->here};
    const size_t n = body->n_params + body->n_captured;
    CT_ARENA scratch = {0};
    batched_value *in = ct__arena(&scratch, (n + 1) * sizeof *in),
                  *outs = ct__arena_zero(&scratch, (body->n_outs + 1) * sizeof *outs);
    bool ok = (in && outs) || vmap_no_memory(&b, n);
    for (size_t i = 0; i < n && ok; i++) in[i] = (batched_value){args[i], batched[i]};
    const ct_body *expanded = ok ? ct__body_without_transforms(ctx, body) : NULL;
    const batched_value *all = expanded ? vmap_add_captured(&b, &scratch, expanded, in) : NULL;
    ok = all && vmap_nodes(&b, expanded->nodes, expanded->n_nodes, all, expanded->outs,
                           expanded->n_outs, outs);
    for (size_t i = 0; i < body->n_outs && ok; i++) {
        out[i] = outs[i].t;
        out_batched[i] = outs[i].batched;
    }
    return ok;
}

// -------------------------------------------------------------------------------------- the node

#define VMAP_ATTRS(F, op)                                                                          \
    F(op, body, body) F(op, positions, in_axes) F(op, positions, out_axes) F(op, i64, size)
CT_ATTRS(vmap, VMAP_ATTRS);

static const int64_t NO_AXIS = CT_NO_AXIS;

// Computes a type with the batch as axis `axis`, in the call's memory. Returns false if an error was
// reported.
static bool vmap_add_axis(ct_call *call, const ct_type *of, int64_t axis, int64_t size,
                          ct_type *out) {
    ct_shape shape = ct__call_shape(call, of->rank + 1);
    if (!shape.dim) return false;
    for (int a = 0; a <= of->rank; a++) {
        if (a == axis) ct__shape_add(&shape, size);
        if (a < of->rank) ct__shape_add_axis(&shape, of, a);
    }
    *out = ct__shaped(&shape, of->dtype, of->weak);
    out->device = of->device;
    return true;
}

// Returns the size of the batch: that of an operand, with which the others agree.
static int64_t vmap_batch_size(const ct_call *call, const vmap_attrs *a) {
    int64_t size = a->size, first = -1;
    for (int64_t i = 0; i < a->in_axes.n; i++) {
        if (a->in_axes.v[i] == NO_AXIS) continue;
        const ct_type *type = call->in[i];
        const int64_t own = ct__size_of(type, (int)a->in_axes.v[i]);
        if (first >= 0 && ct__marked(own) && ct__marked(size)) ct__size_equal(size, own);
        if (first < 0 || ct__marked(own)) size = own;
        first = i;
    }
    return size;
}

static bool vmap_infer(ct_call *call) {
    vmap_attrs *a = call->attrs;
    size_t n = a->body->n_outs;
    const int64_t size = vmap_batch_size(call, a);
    int64_t *own = ct__arena(call->arena, (n + 1) * sizeof *own);
    if (!own) return ct__err_memory(call->err, call->here, "vmap", n * sizeof *own);
    if (!ct__call_outs(call, (int)n)) return false;
    for (size_t i = 0; i < n; i++) {
        const ct_type *of = ct__type(a->body->outs[i]);
        int64_t given = a->out_axes.n ? a->out_axes.v[i] : 0;
        call->out[i] = *of;
        own[i] = NO_AXIS;
        if (given == NO_AXIS) continue;
        own[i] = ct__axis(given, of->rank + 1);
        if (own[i] < 0) {
            ct__call_err(call, CT_E_ARGUMENT,
                         "axis %lld is out of range for result %zu, whose elements are %s",
                         (long long)given, i + 1, ct__type_text(of).s);
            return ct__err_hint(call->err, "axes of the whole are %d to %d", -of->rank - 1,
                                of->rank);
        }
        if (!vmap_add_axis(call, of, own[i], size, &call->out[i])) return false;
    }
    a->out_axes = (ct_ints){(int64_t)n, own};
    return true;
}

// Moves axis `from` of t to position `to`.
static ct_tensor vmap_move_axis(ct_tensor t, int from, int to, ct_loc here) {
    int rank = ct__type_of(t)->rank, n = 0;
    int64_t axes[CT_MAX_RANK];
    if (from == to) return t;
    for (int a = 0; a <= rank; a++) {
        if (n == to) axes[n++] = from;
        if (a < rank && a != from) axes[n++] = a;
    }
    return ct_permute_at(t, (ct_ints){rank, axes}, here);
}

// Returns a result as its type requires: with the batch at its axis, or without.
static ct_tensor vmap_place_result(const batcher *b, batched_value of, size_t i, int64_t axis) {
    if (axis == NO_AXIS && of.batched) {
        ct__fail(b->ctx, CT_E_ARGUMENT, b->here, "vmap",
                 "result %zu has no axis, but is not the same for all elements", i + 1);
        ct__err_hint(&b->ctx->err, "give it one in .out_axes");
    }
    if (axis == NO_AXIS || b->ctx->err.code) return of.t;
    if (!of.batched) {
        ct_dims_buffer dims;
        int64_t all[CT_MAX_RANK + 1] = {b->size};
        ct__dims_of(of.t, &dims);
        for (int64_t a = 0; a < dims.list.n; a++) all[a + 1] = dims.v[a];
        of.t = ct_expand_at(of.t, (ct_ints){dims.list.n + 1, all}, b->here);
    }
    return vmap_move_axis(of.t, 0, (int)axis, b->here);
}

// Computes a type without an axis; its sizes are in the arena. Returns false if out of memory.
static bool vmap_drop_axis(ct_arena *arena, const ct_type *type, int axis, ct_type *out) {
    ct_shape shape = {.dim = ct__arena(arena, (type->rank + 1u) * sizeof(int64_t)),
                      .mark = type->mark ? ct__arena(arena, type->rank * sizeof(int64_t)) : NULL};
    if (!shape.dim || (type->mark && !shape.mark)) return false;
    for (int a = 0; a < type->rank; a++)
        if (a != axis) ct__shape_add_axis(&shape, type, a);
    *out = ct__shaped(&shape, type->dtype, type->weak);
    out->device = type->device;
    return true;
}

static void vmap_inline_element(const ct_tensor *in, ct_tensor *out, void *user) {
    ct__inline(ct__ctx(), user, in, out);
}

// Traces the function of an element on parameters in the plan, and moves the batch of the operands to the
// front.
static ct_body *vmap_trace_element(batcher *b, const ct_rule *r, ct_arena *scratch,
                                   batched_value *args) {
    const vmap_attrs *a = r->attrs;
    const size_t n = (size_t)r->n_in;
    const ct_type **types = ct__arena(scratch, (n + 1) * sizeof *types);
    ct_type *elements = ct__arena(scratch, (n + 1) * sizeof *elements);
    bool ok = (types && elements) || vmap_no_memory(b, n);
    for (size_t i = 0; i < n && ok; i++) {
        int64_t axis = (int64_t)i < a->in_axes.n ? a->in_axes.v[i] : NO_AXIS;
        types[i] = ct__type_of(r->in[i]);
        args[i] = (batched_value){r->in[i], axis != NO_AXIS};
        if (axis == NO_AXIS) continue;
        if (!ct__marked(b->size) || ct__is_dyn(types[i], (int)axis))
            b->size = ct__size_of(types[i], (int)axis);
        args[i].t = vmap_move_axis(r->in[i], (int)axis, 0, b->here);
        ok = vmap_drop_axis(scratch, types[i], (int)axis, &elements[i]) || vmap_no_memory(b, n);
        types[i] = &elements[i];
    }
    const ct_traced traced = {
        .op = "vmap", .f = vmap_inline_element, .user = a->body, .unset = "f did not set output"};
    return ok ? ct__trace(b->ctx, &traced, types, n, (size_t)r->n_out, b->here) : NULL;
}

static bool vmap_body(ct_rule *r) {
    const vmap_attrs *a = r->attrs;
    batcher b = {.ctx = ct__ctx(), .size = a->size, .here = r->node->here};
    CT_ARENA scratch = {0};
    batched_value *args = ct__arena(&scratch, ((size_t)r->n_in + 1) * sizeof *args),
                  *outs = ct__arena_zero(&scratch, ((size_t)r->n_out + 1) * sizeof *outs);
    bool ok = (args && outs) || vmap_no_memory(&b, (size_t)r->n_in);
    const ct_body *body = ok ? vmap_trace_element(&b, r, &scratch, args) : NULL;
    const batched_value *all = body ? vmap_add_captured(&b, &scratch, body, args) : NULL;
    ok = all && vmap_nodes(&b, body->nodes, body->n_nodes, all, body->outs, body->n_outs, outs);
    for (int i = 0; i < r->n_out && ok; i++) {
        r->body_out[i] = vmap_place_result(&b, outs[i], (size_t)i, a->out_axes.v[i]);
        ok = !b.ctx->err.code;
    }
    return ok;
}

const ct_opdef ct__op_vmap = {
    CT_COMPOSED(VMAP, vmap, -1, -1),
    .doc = "A traced function of elements, of batches of them.",
    CT_FIELDS(vmap),
    .accepts = CT_ANY,
};

// --------------------------------------------------------------------------------------- recording

// Checks that each list is empty, or has one entry per operand or result.
static bool vmap_check_axes(ct_ctx *ctx, const ct_vmap_args *args) {
    const struct {
        const char *what, *of;
        const int64_t *v;
        int64_t n;
        size_t wanted;
    } lists[] = {{"in_axes", "operands", args->in_axes.v, args->in_axes.n, args->n_in},
                 {"out_axes", "results", args->out_axes.v, args->out_axes.n, args->n_out}};
    for (int i = 0; i < 2; i++) {
        if (!lists[i].n) continue;
        if (!ct__given(ctx, lists[i].v, args->here, "vmap", lists[i].what)) return false;
        if ((size_t)lists[i].n == lists[i].wanted) continue;
        ct__fail(ctx, CT_E_ARGUMENT, args->here, "vmap", "%s has %lld entries for %zu %s",
                 lists[i].what, (long long)lists[i].n, lists[i].wanted, lists[i].of);
        return ct__err_hint(&ctx->err,
                            "one each, CT_NO_AXIS for what has no batch; none: axis 0 of all");
    }
    return true;
}

// The size of the batch, if known, and the operand that it comes from; -1: it was given.
typedef struct {
    bool known;
    int64_t size;
    int operand, axis;
} batch_size;

static bool vmap_check_size(ct_ctx *ctx, const ct_vmap_args *args, const batch_size *batch,
                            size_t i, const ct_type *type, int axis) {
    if (ct__unmarked(batch->size) == type->dim[axis]) return true;
    if (batch->operand < 0)
        ct__fail(ctx, CT_E_SHAPE, args->here, "vmap",
                 ".size is %lld, but axis %d of operand %zu is %lld: it is %s",
                 (long long)ct__unmarked(batch->size), axis, i + 1, (long long)type->dim[axis],
                 ct__type_text(type).s);
    else
        ct__fail(
            ctx, CT_E_SHAPE, args->here, "vmap",
            "sizes disagree: axis %d of operand %d is %lld, axis %d of operand %zu is %lld: it "
            "is %s",
            batch->axis, batch->operand + 1, (long long)ct__unmarked(batch->size), axis, i + 1,
            (long long)type->dim[axis], ct__type_text(type).s);
    return false;
}

// Computes the type of one element of operand i, without axis *axis. Returns false if an error was reported.
static bool vmap_element_type(ct_ctx *ctx, const ct_vmap_args *args, size_t i, const ct_type *type,
                              int64_t *axis, batch_size *batch, ct_type *element) {
    int a = ct__axis(*axis, type->rank);
    if (a < 0) {
        ct__fail(ctx, CT_E_ARGUMENT, args->here, "vmap",
                 "axis %lld is out of range for operand %zu, %s", (long long)*axis, i + 1,
                 ct__type_text(type).s);
        return ct__err_hint(&ctx->err,
                            type->rank
                                ? "axes are %d to %d; CT_NO_AXIS: it is the same for all elements"
                                : "CT_NO_AXIS: it is the same for all elements",
                            -type->rank, type->rank - 1);
    }
    int64_t size = ct__size_of(type, a);
    if (!batch->known) *batch = (batch_size){true, size, (int)i, a};
    if (!vmap_check_size(ctx, args, batch, i, type, a)) return false;
    if (ct__marked(size)) batch->size = size;
    *axis = a;
    return vmap_drop_axis(ct__top(ctx)->arena, type, a, element) ||
           ct__err_memory(&ctx->err, args->here, "vmap", type->rank * sizeof *axis);
}

static bool vmap_record(ct_ctx *ctx, const ct_vmap_args *args, ct_tensor *result) {
    ct_arena *arena = ct__top(ctx)->arena;
    size_t n = args->n_in;
    batch_size batch = {args->size != 0, args->size, -1, 0};
    ct_traced traced = {
        .op = "vmap", .f = args->f, .user = args->user, .unset = "f did not set output"};
    const ct_type **types = ct__operand_types(ctx, &traced, args->in, n, args->here);
    int64_t *axes = ct__arena(arena, (n + 1) * sizeof *axes);
    ct_type *elements = ct__arena(arena, (n + 1) * sizeof *elements);
    if (!types) return false;
    if (!axes || !elements)
        return ct__err_memory(&ctx->err, args->here, "vmap", n * sizeof *elements);
    for (size_t i = 0; i < n; i++) {
        axes[i] = args->in_axes.n ? args->in_axes.v[i] : 0;
        if (axes[i] == NO_AXIS) continue;
        if (!vmap_element_type(ctx, args, i, types[i], &axes[i], &batch, &elements[i]))
            return false;
        types[i] = &elements[i];
    }
    if (!batch.known || ct__unmarked(batch.size) < 0) {
        ct__fail(ctx, CT_E_ARGUMENT, args->here, "vmap",
                 batch.known ? ".size is %lld" : "no operand has a batch",
                 (long long)ct__unmarked(batch.size));
        if (!batch.known)
            ct__err_hint(&ctx->err,
                         "name an axis in .in_axes, or give the size of the batch in .size");
        return false;
    }
    traced.operands = NULL; // an element is not the operand
    traced.n_operands = 0;
    ct_body *body = ct__trace(ctx, &traced, types, n, args->n_out, args->here);
    ct_tensor *all = body ? ct__with_captured(ctx, body, args->in, n, 0) : NULL;
    if (!all) return false;
    const vmap_attrs attrs = {.body = body,
                              .in_axes = {(int64_t)n, axes},
                              .out_axes = args->out_axes,
                              .size = batch.size};
    *result = ct__record(&ct__op_vmap, &attrs, all, (int)(n + body->n_captured), args->here);
    return true;
}

void ct_vmap_with(ct_vmap_args args) {
    ct_ctx *ctx = ct__ctx();
    ct_tensor t;
    if (!ctx || !ct__call_given(ctx, "vmap", args.in, args.n_in, args.out, args.n_out, args.here))
        return;
    if (ct__given(ctx, (void *)(uintptr_t)args.f, args.here, "vmap", "the function") &&
        vmap_check_axes(ctx, &args) && vmap_record(ctx, &args, &t))
        ct__outputs(t, args.out, args.n_out);
    else
        ct__poison_all(ctx, args.out, args.n_out, args.here);
}
