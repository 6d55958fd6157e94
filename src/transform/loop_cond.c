// Branches, one of whose bodies runs: cond (selected by a bool) and switch (selected by an integer).
//
// The gradient is a branch with the same index between the bodies' gradients, in which each body is
// recomputed.
#include <stdio.h>
#include <string.h>

#include "graph/symbols.h"
#include "ops/rules.h"
#include "transform/loop.h"

#define BRANCH_ATTRS(F, op) F(op, bodies, branches) F(op, i64, n_shared)
CT_ATTRS(branch, BRANCH_ATTRS);

static void branch_loop(const ct_node *node, ct_loop *loop) {
    const branch_attrs *a = node->attrs;
    *loop = (ct_loop){
        .form = CT_LOOP_SWITCH, .first = 1, .n_shared = (size_t)a->n_shared, .bodies = a->branches};
}

// Names a branch in messages: those of cond are in the order false, true.
static const char *branch_name(const ct_opdef *op, size_t branch, char buffer[32]) {
    if (op == &ct__op_cond) return branch ? "where the predicate holds" : "where it does not";
    snprintf(buffer, 32, "in branch %zu", branch);
    return buffer;
}

static bool branch_infer(ct_call *call) {
    const ct_bodies *branches = &((const branch_attrs *)call->attrs)->branches;
    const ct_body *first = branches->v[branches->n - 1];
    if (!ct__call_outs(call, (int)first->n_outs)) return false;
    ct__loop_sizes(call);
    for (size_t i = 0; i < first->n_outs; i++) {
        const ct_type *t = ct__type(first->outs[i]);
        for (size_t b = 0; b + 1 < branches->n; b++) {
            const ct_type *other = ct__type(branches->v[b]->outs[i]);
            char name1[32], name2[32];
            const bool same = call->marks ? ct__same_sizes(other, t) : ct__same_shape(other, t);
            if (other->dtype == t->dtype && same) {
                for (int a = 0; a < t->rank; a++)
                    ct__size_equal(ct__size_of(other, a), ct__size_of(t, a));
                continue;
            }
            ct__call_err(call, CT_E_SHAPE, "result %zu is %s %s, %s %s", i + 1, ct__type_text(t).s,
                         branch_name(call->op, branches->n - 1, name1), ct__type_text(other).s,
                         branch_name(call->op, b, name2));
            return ct__call_hint(call, ct__same_shape(other, t) ? "ct_cast it in one of them"
                                       : ct__same_sizes(other, t)
                                           ? CT_HINT_DYNAMIC
                                           : "all must give it in one shape: ct_expand repeats, "
                                             "ct_pad fills up");
        }
        ct_shape shape = ct__call_shape(call, t->rank); // the body is freed with the user's scope
        if (!shape.dim) return false;
        for (int a = 0; a < t->rank; a++) ct__shape_add_axis(&shape, t, a);
        call->out[i] = ct__shaped(&shape, (ct_dtype)t->dtype, false);
    }
    return true;
}

// --------------------------------------------------------------------------------------- recording

bool ct__record_choice(ct_ctx *ctx, const ct_choice *c, ct_tensor *node) {
    ct_operands o;
    const char *op = c->op->name;
    ct_body **bodies = ct__arena(ct__top(ctx)->arena, (c->n_branches + 1) * sizeof *bodies);
    if (!bodies) return ct__err_memory(&ctx->err, c->here, op, c->n_branches * sizeof *bodies);
    if (!ct__operands(ctx, &o, op, NULL, 0, c->in, c->n_in, c->here)) return false;
    for (size_t b = 0; b < c->n_branches; b++) {
        const ct_traced traced = {.op = op,
                                  .f = c->branches[b],
                                  .user = c->users ? c->users[b] : c->user,
                                  .unset = "a branch did not set output"};
        if (!(bodies[b] = ct__trace(ctx, &traced, o.types, o.n, c->n_out, c->here))) return false;
    }
    branch_attrs attrs = {.branches = {c->n_branches, bodies}, .n_shared = (int64_t)c->n_in};
    *node = ct__record_loop(ctx, c->op, &attrs, c->index, &o, attrs.branches, c->here);
    return !ctx->err.code;
}

static bool branch_check_predicate(ct_ctx *ctx, ct_tensor pred, ct_loc here) {
    ct_val v;
    if (!ct__resolve(ctx, pred, &v, "cond", 0, here)) return false;
    const ct_type *t = ct__type(v);
    bool is_bool = t->dtype == CT_BOOL;
    if (is_bool && t->rank == 0) return true;
    ct__fail(ctx, is_bool ? CT_E_SHAPE : CT_E_DTYPE, here, "cond",
             "the predicate is %s, it must be one bool", ct__type_text(t).s);
    return ct__err_hint(&ctx->err,
                        is_bool ? "ct_select chooses element by element; ct_all or ct_any makes "
                                  "one of many"
                                : "compare it with something, as ct_less does");
}

void ct_cond_with(ct_cond_args args, ct_tensor *out) {
    ct_ctx *ctx = ct__ctx();
    ct_tensor node = CT_NONE;
    if (!ctx || !ct__possible(ctx, args.n_in, args.here, "cond", "the operands") ||
        !ct__possible(ctx, args.n_out, args.here, "cond", "the results") ||
        (args.n_out && !ct__given(ctx, out, args.here, "cond", "the array for the results")))
        return;
    const ct_fn branches[2] = {args.otherwise, args.then};
    const ct_choice c = {.op = &ct__op_cond,
                         .index = args.pred,
                         .branches = branches,
                         .user = args.user,
                         .n_branches = 2,
                         .in = args.in,
                         .n_in = args.n_in,
                         .n_out = args.n_out,
                         .here = args.here};
    bool ok = ct__given(ctx, (void *)(uintptr_t)args.then, args.here, "cond", "then") &&
              ct__given(ctx, (void *)(uintptr_t)args.otherwise, args.here, "cond", "otherwise") &&
              (!args.n_in || ct__given(ctx, args.in, args.here, "cond", "the list of operands")) &&
              branch_check_predicate(ctx, args.pred, args.here) &&
              ct__record_choice(ctx, &c, &node);
    ct__loop_results(ctx, ok, node, 0, out, args.n_out, args.here);
}

// Converts the index to a dtype that the device supports: wider integers are clamped to a valid branch first.
static bool branch_clamp_index(ct_ctx *ctx, ct_switch_args *args) {
    ct_val v;
    if (!ct__resolve(ctx, args->index, &v, "switch", 0, args->here)) return false;
    const ct_type *t = ct__type(v);
    if (t->rank || !(CT_INTEGERS & CT_MASK(t->dtype))) {
        ct__fail(ctx, t->rank ? CT_E_SHAPE : CT_E_DTYPE, args->here, "switch",
                 "the index is %s, it must be one integer", ct__type_text(t).s);
        if (t->rank)
            ct__err_hint(&ctx->err, "where each element has its own, ct_vmap a function of one");
        else
            ct__err_hint(&ctx->err, "cast it: ct_cast(index, CT_I32)");
        return false;
    }
    if (t->dtype == CT_I64 || t->dtype == CT_U64 || t->dtype == CT_U32) {
        ct_tensor last = ct__number_like((double)(args->n_branches - 1), args->index);
        args->index = ct_cast(ct_clamp(args->index, ct__number_like(0, args->index), last), CT_I32);
    }
    return !ctx->err.code;
}

static bool branch_check_branches(ct_ctx *ctx, const ct_switch_args *args) {
    if (!args->n_branches)
        return ct__refuse(ctx, CT_E_ARGUMENT, args->here, "switch", "there are no branches");
    if (!ct__given(ctx, args->branches, args->here, "switch", "the list of branches")) return false;
    for (size_t b = 0; b < args->n_branches; b++)
        if (!ct__given(ctx, (void *)(uintptr_t)args->branches[b], args->here, "switch", "a branch"))
            return false;
    return true;
}

void ct_switch_with(ct_switch_args args, ct_tensor *out) {
    ct_ctx *ctx = ct__ctx();
    ct_tensor node = CT_NONE;
    if (!ctx || !ct__possible(ctx, args.n_in, args.here, "switch", "the operands") ||
        !ct__possible(ctx, args.n_out, args.here, "switch", "the results") ||
        !ct__possible(ctx, args.n_branches, args.here, "switch", "the branches") ||
        (args.n_out && !ct__given(ctx, out, args.here, "switch", "the array for the results")))
        return;
    bool ok =
        branch_check_branches(ctx, &args) &&
        (!args.n_in || ct__given(ctx, args.in, args.here, "switch", "the list of operands")) &&
        branch_clamp_index(ctx, &args);
    const ct_choice c = {.op = &ct__op_switch,
                         .index = args.index,
                         .branches = args.branches,
                         .user = args.user,
                         .n_branches = args.n_branches,
                         .in = args.in,
                         .n_in = args.n_in,
                         .n_out = args.n_out,
                         .here = args.here};
    ok = ok && ct__record_choice(ctx, &c, &node);
    ct__loop_results(ctx, ok, node, 0, out, args.n_out, args.here);
}

// ------------------------------------------------------------------------------------ the gradient

typedef struct { // of one branch
    const ct_rule *rule;
    ct_loop loop;
    size_t branch;
    const bool *wants; // (n_in) operands that are floats
} backward;

static bool branch_no_memory(const ct_node *node, size_t bytes) {
    return ct__err_memory(&ct__ctx()->err, node->here, node->op->name, bytes);
}

// In: all operands after the index, then the cotangents of the results that have one. Out: the cotangents of
// the operands that are floats.
static void branch_trace_gradient(const ct_tensor *in, ct_tensor *out, void *user) {
    const backward *b = user;
    const ct_rule *r = b->rule;
    ct_body *body = b->loop.bodies.v[b->branch];
    ct_ctx *ctx = ct__ctx();
    size_t n = body->n_params + body->n_captured, n_outs = body->n_outs,
           next_cotangent = (size_t)r->n_in - 1;
    CT_ARENA scratch = {0};
    ct_tensor *args = ct__arena_zero(&scratch, (n + 1) * sizeof *args),
              *outs = ct__arena_zero(&scratch, (n_outs + 1) * sizeof *outs),
              *cots = ct__arena_zero(&scratch, (n_outs + 1) * sizeof *cots),
              *grads = ct__arena_zero(&scratch, (n + 1) * sizeof *grads),
              *all = ct__arena_zero(&scratch, (size_t)r->n_in * sizeof *all);
    ct_val *vals = ct__arena_zero(&scratch, (n_outs + 1) * sizeof *vals),
           *wrt = ct__arena_zero(&scratch, (n + 1) * sizeof *wrt);
    bool ok = args && outs && cots && grads && all && vals && wrt;
    if (!ok) branch_no_memory(r->node, n * sizeof *args);
    for (size_t p = 0; p < n && ok; p++) args[p] = in[ct__loop_operand(&b->loop, b->branch, p) - 1];
    ok = ok && ct__inline(ctx, body, args, outs);
    for (size_t i = 0; i < n_outs && ok; i++) {
        ok = ct__resolve(ctx, outs[i], &vals[i], r->node->op->name, (int)i, r->node->here);
        if (!ct__is_none(r->c_out[i])) cots[i] = in[next_cotangent++];
    }
    ok = ok && ct__resolve_all(ctx, args, n, wrt, r->node->op->name, r->node->here);
    ok = ok && ct__vjp_expand(ctx, r->node->here, vals, cots, n_outs, wrt, n, grads);
    for (size_t p = 0; p < n && ok; p++) all[ct__loop_operand(&b->loop, b->branch, p)] = grads[p];
    for (size_t k = 0, at = 0; k < (size_t)r->n_in && ok; k++)
        if (b->wants[k]) out[at++] = ct__is_none(all[k]) ? ct__zeros_like(in[k - 1]) : all[k];
}

static bool branch_vjp(ct_rule *r) {
    const branch_attrs *a = r->attrs;
    size_t n_branches = a->branches.n, n_in = (size_t)r->n_in, n_wants = 0, n_cots = 0;
    ct_ctx *ctx = ct__ctx();
    CT_ARENA scratch = {0};
    backward *back = ct__arena_zero(&scratch, n_branches * sizeof *back);
    void **users = ct__arena(&scratch, n_branches * sizeof *users);
    ct_fn *branches = ct__arena(&scratch, n_branches * sizeof *branches);
    bool *wants = ct__arena_zero(&scratch, n_in);
    ct_tensor *in = ct__arena(&scratch, (n_in + (size_t)r->n_out) * sizeof *in),
              *out = ct__arena_zero(&scratch, n_in * sizeof *out), node;
    bool ok = (back && users && branches && wants && in && out) || branch_no_memory(r->node, n_in);
    for (size_t b = 0; b < n_branches && ok; b++) {
        back[b] = (backward){r, ct__loop_of(r->node), b, wants};
        users[b] = &back[b];
        branches[b] = branch_trace_gradient;
    }
    for (size_t k = 1; k < n_in && ok; k++) {
        in[k - 1] = r->in[k];
        wants[k] = ct__is_differentiable(ct__type_of(r->in[k])->dtype);
        n_wants += wants[k];
    }
    for (int i = 0; i < r->n_out && ok; i++)
        if (!ct__is_none(r->c_out[i])) in[n_in - 1 + n_cots++] = r->c_out[i];
    const ct_choice c = {.op = r->node->op,
                         .index = r->in[0],
                         .branches = branches,
                         .users = users,
                         .n_branches = n_branches,
                         .in = in,
                         .n_in = n_in - 1 + n_cots,
                         .n_out = n_wants,
                         .here = r->node->here};
    ok = ok && (!n_wants || ct__record_choice(ctx, &c, &node));
    for (size_t k = 0, at = 0; k < n_in && ok; k++)
        if (wants[k]) r->c_in[k] = ct__output(node, (uint32_t)at++);
    return ok && !ctx->err.code;
}

#define BRANCHES(ID, op)                                                                           \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_loop, .n_in = -1, .n_out = -1,                \
    CT_FIELDS(branch), .accepts = CT_ANY, .loop = branch_loop, .infer = branch_infer,              \
    .eval = ct__loop_eval, .jvp = ct__branch_jvp, .vjp = branch_vjp, .batch = ct__branch_batch

const ct_opdef ct__op_cond = {
    BRANCHES(COND, cond),
    .doc = "One of two traced bodies, by a bool.",
};
const ct_opdef ct__op_switch = {
    BRANCHES(SWITCH, switch),
    .doc = "One of several traced bodies, by a number; one outside of them is the nearest.",
};
