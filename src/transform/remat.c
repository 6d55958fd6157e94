// Rematerialisation: a function of which a gradient stores the operands but not the intermediate values,
// which are recomputed.
//
// The reverse rule records the function's body once more, on operands that are ordered after the cotangents
// (op "control_dependency"), and differentiates that. So the second computation shares no nodes with the first, and is
// scheduled when the gradient has arrived there. Values that a policy saves are taken from the body recorded
// on the original operands, which is shared with the first computation: such a value replaces that of the
// second computation, whose derivative is unchanged.
#include <string.h>

#include "kinds/kind.h"
#include "ops/rules.h"
#include "transform/trace.h"

// names: of the named values that are saved, each terminated by a NUL.
#define REMAT_ATTRS(F, op) F(op, body, body) F(op, i64, policy) F(op, data, names)
CT_ATTRS(remat, REMAT_ATTRS);
#define NAMED_ATTRS(F, op) F(op, data, name)
CT_ATTRS(named, NAMED_ATTRS);

static bool remat_no_memory(const ct_node *node, size_t n) {
    return ct__err_memory(&ct__ctx()->err, node->here, "remat", n * sizeof(ct_tensor));
}

// ------------------------------------------------------------------------------------------- names

static bool named_infer(ct_call *call) {
    call->out[0] = *call->in[0];
    return true;
}
static bool named_body(ct_rule *r) { return ct__set_body(r, r->in[0]); }
static bool named_jvp(ct_rule *r) { return ct__set_tangent(r, r->t_in[0]); }
static bool named_batch(ct_batching *b) {
    ct__outputs(ct__record(b->node->op, b->attrs, b->in, b->n_in, b->node->here), b->out, 1);
    return !b->node->ctx->err.code;
}
const ct_opdef ct__op_named = {
    CT_COMPOSED(NAMED, named, 1, 1),
    .doc = "The operand, by a name that ct_remat knows.",
    CT_FIELDS(named),
    .accepts = CT_ANY,
    .jvp = named_jvp,
    .batch = named_batch,
};

ct_tensor ct_remat_name_at(ct_tensor t, const char *name, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_NONE;
    if (!ct__given(ctx, name, here, "name", "the name")) return ct__poison(ctx, here);
    const named_attrs attrs = {.name = {name, strlen(name) + 1}};
    return ct__record(&ct__op_named, &attrs, &t, 1, here);
}

// The value of operand 0, taken from operand 1; its derivative is that of operand 0.
static bool stored_body(ct_rule *r) { return ct__set_body(r, r->in[1]); }
const ct_opdef ct__op_stored = {
    CT_OP(STORED, stored, composition, 2, 1),
    .doc = "A value that was stored, for one that would be computed again.",
    .accepts = CT_ANY,
    .infer = named_infer,
    .body = stored_body,
    .jvp = named_jvp,
};

static bool remat_is_listed(const remat_attrs *a, const named_attrs *named) {
    const char *at = a->names.bytes, *end = at + a->names.n;
    for (; at < end; at += strlen(at) + 1)
        if (strcmp(at, named->name.bytes) == 0) return true;
    return false;
}

// -------------------------------------------------------------------------------- recomputation

// User functions inside the region are expanded; all other compositions are one value.
static bool remat_is_opaque(const ct_node *node) {
    return node->op != &ct__op_call && node->op != &ct__op_remat;
}

static bool remat_saves_some(const remat_attrs *a) {
    return a->policy == CT_REMAT_SAVE_MATMULS || a->policy == CT_REMAT_SAVE_NAMED;
}
static bool remat_is_saved(const remat_attrs *a, const ct_node *node) {
    if (a->policy == CT_REMAT_SAVE_NAMED)
        return node->op == &ct__op_named && remat_is_listed(a, node->attrs);
    return node->op->kind->products != NULL;
}

// The region that is differentiated, on parameters.
typedef struct {
    const ct_node *node;
    const remat_attrs *a;
    ct_arena scratch;
    size_t n_in, n_out;
    const ct_tensor *first; // (n_in) operands
    ct_tensor *cots;        // (n_out) of the results; CT_NONE: it has none
    ct_tensor *wait;        // space for a value, followed by the cotangents that it waits for
    int n_wait;
    ct_tensor *in, *out; // (n_in) operands, (n_out) results of the recomputation
} region;

static ct_tensor remat_wait(const region *g, ct_tensor t) {
    g->wait[0] = t;
    return ct__control_dependency(g->wait, g->n_wait, g->node->here);
}

// Replaces a recomputed value by the one that was computed the first time.
static ct_tensor remat_stored(const region *g, ct_tensor recomputed, ct_tensor first) {
    const ct_tensor in[2] = {recomputed, remat_wait(g, first)};
    return ct__record(&ct__op_stored, NULL, in, 2, g->node->here);
}

// Records one node of the first computation's body once more.
static bool remat_record_node(region *g, ct_node *node, ct_tensor *const *map, ct_tensor *to) {
    ct_tensor *in = ct__arena(&g->scratch, (node->n_in + 1u) * sizeof *in);
    if (!in) return remat_no_memory(g->node, node->n_in);
    for (int k = 0; k < node->n_in; k++) in[k] = map[node->in[k].node->index][node->in[k].out];
    ct__outputs(ct__record(node->op, node->attrs, in, node->n_in, node->here), to, node->n_out);
    for (uint32_t k = 0; k < node->n_out && remat_is_saved(g->a, node); k++)
        to[k] = remat_stored(g, to[k], ct__handle(node, k));
    return !ct__ctx()->err.code;
}

// Records the body once more except for saved values. list: the body of the first computation, its operands
// first. vals: its results, its operands.
static bool remat_record_body(region *g, const ct_nodes *list, const ct_val *vals) {
    ct_tensor **map = ct__arena(&g->scratch, (list->n + 1) * sizeof *map);
    bool ok = map || remat_no_memory(g->node, list->n);
    for (size_t i = 0; i < list->n && ok; i++) {
        ct_node *node = list->v[i];
        map[i] = ct__arena_zero(&g->scratch, node->n_out * sizeof **map);
        ok = map[i] || remat_no_memory(g->node, node->n_out);
        for (size_t k = 0; k < g->n_in && i < list->n_ends && ok; k++)
            if (vals[g->n_out + k].node == node) map[i][0] = g->in[k];
        if (!ok || i < list->n_ends) continue;
        if (node->op->kind == &ct__kind_leaf)
            map[i][0] = ct__handle(node, 0);
        else
            ok = remat_record_node(g, node, map, map[i]);
    }
    for (size_t i = 0; i < g->n_out && ok; i++) g->out[i] = map[vals[i].node->index][vals[i].out];
    return ok;
}

// Recomputes the region except for the values that the policy saves.
static bool remat_recompute(region *g) {
    ct_ctx *ctx = ct__ctx();
    const size_t n_in = g->n_in, n_out = g->n_out;
    ct_val *vals = ct__arena(&g->scratch, (n_in + n_out + 1) * sizeof *vals);
    ct_tensor *first = ct__arena_zero(&g->scratch, (n_out + 1) * sizeof *first);
    ct_nodes list = {0};
    bool ok = (vals && first) || remat_no_memory(g->node, n_in + n_out);
    ok = ok && ct__inline(ctx, g->a->body, g->first, first);
    for (size_t i = 0; i < n_out + n_in && ok; i++)
        ok = ct__resolve(ctx, i < n_out ? first[i] : g->first[i - n_out], &vals[i], "remat", (int)i,
                         g->node->here);
    ok = ok && ct__expand_bodies(ctx, vals, n_out, n_in, remat_is_opaque) &&
         ct__reach_to(&list, vals, n_out, vals + n_out, n_in, &ctx->err) &&
         remat_record_body(g, &list, vals);
    ct__nodes_free(&list);
    return ok;
}

// ------------------------------------------------------------------------------------ if needed

// Estimates the bytes of what the nodes compute and would otherwise not be in memory, and the operations for
// it.
static struct ct_region remat_measure(ct_node *const *nodes, size_t n) {
    struct ct_region is = {0};
    for (size_t i = 0; i < n; i++) {
        const ct_node *node = nodes[i];
        if (node->op->kind == &ct__kind_leaf || ct__is_view(node)) continue;
        double made = 0, terms = 1;
        for (int k = 0; k < node->n_out; k++) {
            made += (double)ct__count(&node->out[k]);
            is.bytes += (double)ct__type_bytes(&node->out[k]);
        }
        if (node->op->kind->products) terms = 2 * node->op->kind->products(node);
        is.work += made * terms;
    }
    return is;
}

bool ct__region_again(ct_regions *regions, ct_node *const *nodes, size_t n) {
    if (!regions) return false;
    if (regions->at == regions->n) {
        // continues without this region
        if (regions->counted || !CT_GROW(regions->v, regions->cap, regions->n + 1)) return false;
        regions->v[regions->n++] = remat_measure(nodes, n);
    }
    return regions->v[regions->at++].again;
}

// --------------------------------------------------------------------------------- the gradient

// in: the region's operands, then the cotangents of its results that have one.
static bool remat_begin_region(region *g, const ct_tensor *in) {
    g->first = in;
    g->wait = ct__arena(&g->scratch, (g->n_out + 1) * sizeof *g->wait);
    g->in = ct__arena(&g->scratch, (g->n_in + 1) * sizeof *g->in);
    g->out = ct__arena_zero(&g->scratch, (g->n_out + 1) * sizeof *g->out);
    if (!g->wait || !g->in || !g->out) return remat_no_memory(g->node, g->n_in + g->n_out);
    g->n_wait = 1;
    for (size_t i = 0, next = g->n_in; i < g->n_out; i++)
        if (!ct__is_none(g->cots[i])) g->wait[g->n_wait++] = g->cots[i] = in[next++];
    const ct_body *body = g->a->body;
    const bool recompute = g->a->policy != CT_REMAT_AUTO ||
                           ct__region_again(ct__ctx()->regions, body->nodes, body->n_nodes);
    for (size_t i = 0; i < g->n_in; i++) g->in[i] = recompute ? remat_wait(g, in[i]) : in[i];
    return !ct__ctx()->err.code;
}

// out: the gradients of the operands that are floats.
static void remat_trace_gradient(const ct_tensor *in, ct_tensor *out, void *user) {
    region *g = user;
    ct_ctx *ctx = ct__ctx();
    ct_loc here = g->node->here;
    bool ok = remat_begin_region(g, in);
    ct_val *vals = ct__arena(&g->scratch, (g->n_out + 1) * sizeof *vals),
           *wrt = ct__arena(&g->scratch, (g->n_in + 1) * sizeof *wrt);
    size_t n = 0;
    ok = ok && ((vals && wrt) || remat_no_memory(g->node, g->n_in + g->n_out));
    ok = ok &&
         (remat_saves_some(g->a) ? remat_recompute(g) : ct__inline(ctx, g->a->body, g->in, g->out));
    ok = ok && ct__resolve_all(ctx, g->out, g->n_out, vals, "remat", here);
    for (size_t i = 0; i < g->n_in && ok; i++)
        if (ct__has_slope(g->in[i]))
            ok = ct__resolve(ctx, g->in[i], &wrt[n++], "remat", (int)i, here);
    ok = ok && ct__vjp_expand(ctx, here, vals, g->cots, g->n_out, wrt, n, out);
    for (size_t i = 0; i < n && ok; i++) out[i] = ct__or_zeros(out[i], ct__handle_of(wrt[i]));
}

// The gradient is computed on parameters, since it walks the graph while the gradient around it does.
static bool remat_vjp(ct_rule *r) {
    const size_t n_in = (size_t)r->n_in, n_out = (size_t)r->n_out;
    region g = {.node = r->node, .a = r->attrs, .n_in = n_in, .n_out = n_out};
    ct_tensor *args = ct__arena(&g.scratch, (n_in + n_out + 1) * sizeof *args),
              *grads = ct__arena_zero(&g.scratch, (n_in + 1) * sizeof *grads);
    g.cots = ct__arena(&g.scratch, (n_out + 1) * sizeof *g.cots);
    size_t n = n_in, n_float = 0;
    bool ok = (args && grads && g.cots) || remat_no_memory(r->node, n_in + n_out);
    for (size_t i = 0; i < n_in && ok; i++) {
        args[i] = r->in[i];
        n_float += ct__has_slope(r->in[i]);
    }
    for (size_t i = 0; i < n_out && ok; i++) {
        g.cots[i] = r->c_out[i];
        if (!ct__is_none(r->c_out[i])) args[n++] = r->c_out[i];
    }
    if (ok && n > n_in) // else no result has a cotangent
        ok = ct__on_parameters(r->node, remat_trace_gradient, &g, args, n, grads, n_float);
    for (size_t i = 0, k = 0; i < n_in && ok; i++)
        if (ct__has_slope(r->in[i])) r->c_in[i] = grads[k++];
    ct__arena_free(&g.scratch);
    return ok && !ct__ctx()->err.code;
}

// -------------------------------------------------------------------------------------- the node

static bool remat_infer(ct_call *call) {
    return ct__infer_body(call, ((const remat_attrs *)call->attrs)->body);
}
static bool remat_body(ct_rule *r) {
    return ct__inline(ct__ctx(), ((const remat_attrs *)r->attrs)->body, r->in, r->body_out);
}
const ct_opdef ct__op_remat = {
    CT_COMPOSED(REMAT, remat, -1, -1),
    .doc = "A traced function that gradients compute again.",
    CT_FIELDS(remat),
    .accepts = CT_ANY,
    .vjp = remat_vjp,
};

// Stores the list of names as an attribute. Returns false if an error was reported.
static bool remat_join_names(ct_ctx *ctx, const ct_remat_args *args, ct_data_bytes *to) {
    size_t n = 0;
    for (size_t i = 0; i < args->n_names; i++) {
        if (!ct__given(ctx, args->names[i], args->here, "remat", "a name")) return false;
        n += strlen(args->names[i]) + 1;
    }
    char *bytes = ct__arena(ct__top(ctx)->arena, n + 1);
    if (!bytes) return ct__err_memory(&ctx->err, args->here, "remat", n);
    *to = (ct_data_bytes){bytes, n};
    for (size_t i = 0; i < args->n_names; i++) {
        size_t own = strlen(args->names[i]) + 1;
        memcpy(bytes, args->names[i], own);
        bytes += own;
    }
    return true;
}

static bool remat_check_policy(ct_ctx *ctx, const ct_remat_args *args) {
    if ((unsigned)args->policy > CT_REMAT_AUTO) {
        ct__fail(ctx, CT_E_ARGUMENT, args->here, "remat", "there is no policy %d",
                 (int)args->policy);
        return ct__err_hint(&ctx->err,
                            "CT_REMAT_SAVE_NOTHING, _EVERYTHING, _PRODUCTS, _NAMED and _NEEDED are "
                            "the policies");
    }
    if ((args->policy == CT_REMAT_SAVE_NAMED) != (args->n_names > 0)) {
        ct__fail(ctx, CT_E_ARGUMENT, args->here, "remat",
                 args->n_names ? "names are given, but the policy is not CT_REMAT_SAVE_NAMED"
                               : "the policy is CT_REMAT_SAVE_NAMED, but no names are given");
        return ct__err_hint(&ctx->err,
                            "list in .names what ct_remat_name calls values that are saved");
    }
    return !args->n_names || ct__given(ctx, args->names, args->here, "remat", ".names");
}

static bool remat_record(ct_ctx *ctx, const ct_remat_args *args, ct_tensor *result) {
    ct_traced traced = {
        .op = "remat", .f = args->f, .user = args->user, .unset = "f did not set output"};
    const size_t n = args->n_in;
    remat_attrs attrs = {.policy = args->policy};
    const ct_type **types = ct__operand_types(ctx, &traced, args->in, n, args->here);
    attrs.body = types ? ct__trace(ctx, &traced, types, n, args->n_out, args->here) : NULL;
    ct_tensor *all = attrs.body ? ct__with_captured(ctx, attrs.body, args->in, n, 0) : NULL;
    if (!all || !remat_join_names(ctx, args, &attrs.names)) return false;
    const bool saves_all = args->policy == CT_REMAT_SAVE_EVERYTHING;
    const call_attrs call = {.body = attrs.body};
    *result = ct__record(saves_all ? &ct__op_call : &ct__op_remat,
                         saves_all ? (const void *)&call : &attrs, all,
                         (int)(n + attrs.body->n_captured), args->here);
    return true;
}

void ct_remat_with(ct_remat_args args) {
    ct_ctx *ctx = ct__ctx();
    ct_tensor t;
    if (!ctx || !ct__call_given(ctx, "remat", args.in, args.n_in, args.out, args.n_out, args.here))
        return;
    if (ct__given(ctx, (void *)(uintptr_t)args.f, args.here, "remat", "the function") &&
        remat_check_policy(ctx, &args) && remat_record(ctx, &args, &t))
        ct__outputs(t, args.out, args.n_out);
    else
        ct__poison_all(ctx, args.out, args.n_out, args.here);
}
