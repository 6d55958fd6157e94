// Traced functions as nodes: call, custom_vjp.
#include <string.h>

#include "ops/rules.h"
#include "transform/trace.h"

// Operands with what the body captured behind them.
static ct_tensor *with_captured(ct_ctx *ctx, const ct_body *body, const ct_tensor *in,
                                size_t n_in) {
    ct_tensor *all = ct__arena(ct__top(ctx)->arena, (n_in + body->n_captured + 1) * sizeof *all);
    if (!all) return NULL;
    if (n_in) memcpy(all, in, n_in * sizeof *all);
    for (size_t i = 0; i < body->n_captured; i++)
        all[n_in + i] = ct__handle_of(body->captured_from[i]);
    return all;
}

// The operands' types, and `to` told of the operands; NULL: one is bad and its error recorded.
static const ct_type **types_of(ct_ctx *ctx, ct_traced *to, const ct_tensor *in, size_t n_in,
                                ct_loc here) {
    ct_arena *arena = ct__top(ctx)->arena;
    const ct_type **types = ct__arena(arena, (n_in + 1) * sizeof *types);
    ct_val *operands = ct__arena(arena, (n_in + 1) * sizeof *operands);
    if (!types || !operands) {
        ct__err_memory(&ctx->err, here, to->op, n_in * sizeof *operands);
        return NULL;
    }
    for (size_t i = 0; i < n_in; i++) {
        if (!ct__resolve(ctx, in[i], &operands[i], to->op, (int)i, here)) return NULL;
        types[i] = ct__type(operands[i]);
    }
    to->operands = operands;
    to->n_operands = n_in;
    return types;
}

static bool body_outputs(ct_call *call) {
    const ct_body *body = ((const call_attrs *)call->attrs)->body;
    if (!ct__call_outs(call, (int)body->n_outs)) return false;
    for (size_t i = 0; i < body->n_outs; i++) call->out[i] = *ct__type(body->outs[i]);
    return true;
}
static bool inline_body(ct_rule *r) {
    return ct__inline(ct__ctx(), ((const call_attrs *)r->attrs)->body, r->in, r->body_out);
}

CT_ATTR_FIELDS(call, CALL_ATTRS);
const ct_opdef ct__op_call = {
    .id = CT_OP_CALL,
    .name = "call",
    .doc = "A traced function of C.",
    .kind = &ct__kind_composition,
    .n_in = -1,
    .n_out = -1,
    CT_FIELDS(call),
    .accepts = CT_ANY,
    .infer = body_outputs,
    .body = inline_body,
};

// What the caller must give; without room for results nothing can be poisoned.
static bool all_given(ct_ctx *ctx, const char *op, const ct_tensor *in, size_t n_in,
                      const ct_tensor *out, size_t n_out, ct_loc here) {
    return ct__possible(ctx, n_in, here, op, "the operands") &&
           ct__possible(ctx, n_out, here, op, "the results") &&
           (!n_in || ct__given(ctx, in, here, op, "the list of operands")) &&
           (!n_out || ct__given(ctx, out, here, op, "the room for the results"));
}

static void poison_all(ct_ctx *ctx, ct_tensor *out, size_t n_out, ct_loc here) {
    for (size_t i = 0; i < n_out; i++) out[i] = ct__poison(ctx, here);
}

void ct_call_at(ct_fn f, void *user, const ct_tensor *in, size_t n_in, ct_tensor *out, size_t n_out,
                ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !all_given(ctx, "call", in, n_in, out, n_out, here)) return;
    bool traceable = ct__given(ctx, (void *)(uintptr_t)f, here, "call", "the function");
    ct_traced traced = {.op = "call", .f = f, .user = user, .unset = "f did not set output"};
    const ct_type **types = traceable ? types_of(ctx, &traced, in, n_in, here) : NULL;
    ct_body *body = types ? ct__trace(ctx, &traced, types, n_in, n_out, here) : NULL;
    ct_tensor *all = body ? with_captured(ctx, body, in, n_in) : NULL;
    if (!all) {
        poison_all(ctx, out, n_out, here);
        return;
    }
    call_attrs attrs = {.body = body};
    ct__outputs(ct__record(&ct__op_call, &attrs, all, (int)(n_in + body->n_captured), here), out,
                n_out);
}

// -------------------------------------------------------------------------------------- custom vjp

#define CUSTOM_ATTRS(F, op) F(op, body, body) F(op, body, vjp)
CT_ATTRS(custom, CUSTOM_ATTRS);

// Operands: the function's, then the numbers that it uses, then those of its rule.
static bool custom_body(ct_rule *r) {
    return ct__inline(ct__ctx(), ((const custom_attrs *)r->attrs)->body, r->in, r->body_out);
}

// The rule's result is a node of its own: the operands of the function's node, its outputs, their
// cotangents. What the rule records is the body; but its derivative is that of the function's
// gradient, since a rule need not be differentiable (or true to second order).
static bool back_infer(ct_call *call) {
    const ct_body *vjp = ((const custom_attrs *)call->attrs)->vjp;
    if (!ct__call_outs(call, (int)vjp->n_outs)) return false;
    for (size_t i = 0; i < vjp->n_outs; i++) call->out[i] = *ct__type(vjp->outs[i]);
    return true;
}
static bool back_body(ct_rule *r) {
    const ct_body *vjp = ((const custom_attrs *)r->attrs)->vjp;
    size_t n_out = ((const custom_attrs *)r->attrs)->body->n_outs, own = vjp->n_outs,
           all = (size_t)r->n_in - 2 * n_out;
    ct_arena scratch = {0};
    ct_tensor *args = ct__arena(&scratch, (own + 2 * n_out + vjp->n_captured + 1) * sizeof *args);
    bool ok = args != NULL;
    for (size_t i = 0; i < own && ok; i++) args[i] = r->in[i];
    for (size_t i = 0; i < 2 * n_out && ok; i++) args[own + i] = r->in[all + i];
    for (size_t i = 0; i < vjp->n_captured && ok; i++)
        args[own + 2 * n_out + i] = r->in[all - vjp->n_captured + i];
    ok = ok && ct__inline(ct__ctx(), vjp, args, r->body_out);
    ct__arena_free(&scratch);
    return ok;
}

// The gradient of the function's gradient. In: the function's operands, the cotangents of its
// outputs, the cotangents of its operands' cotangents. Out: cotangents of the first two.
static void back_twice(const ct_tensor *in, ct_tensor *out, void *user) {
    const ct_node *node = user;
    const ct_body *body = ((const custom_attrs *)node->attrs)->body;
    ct_ctx *ctx = ct__ctx();
    size_t own = body->n_params, n_in = own + body->n_captured, n_out = body->n_outs, n = 0;
    ct_arena scratch = {0};
    ct_tensor *outs = ct__arena_zero(&scratch, (n_out + 1) * sizeof *outs),
              *once = ct__arena_zero(&scratch, (own + 1) * sizeof *once),
              *cots = ct__arena_zero(&scratch, (own + n_out + 1) * sizeof *cots);
    ct_val *vals = ct__arena(&scratch, (own + n_out + 1) * sizeof *vals),
           *wrt = ct__arena(&scratch, (n_in + n_out + 1) * sizeof *wrt);
    bool ok = outs && once && cots && vals && wrt && ct__inline(ctx, body, in, outs);
    for (size_t i = 0; i < n_in + n_out && ok; i++)
        ok = ct__resolve(ctx, in[i], &wrt[i], "custom_vjp", (int)i, node->here);
    for (size_t i = 0; i < n_out && ok; i++) {
        ok = ct__resolve(ctx, outs[i], &vals[i], "custom_vjp", (int)i, node->here);
        cots[i] = ok && ct__is_float(ct__type(vals[i])->dtype) ? in[n_in + i] : CT_NONE;
    }
    ok = ok && ct__vjp_expand(ctx, node->here, vals, cots, n_out, wrt, own, once);
    for (size_t i = 0; i < own && ok; i++) {
        if (ct__is_none(once[i]) || !ct__is_float(ct__type(wrt[i])->dtype)) continue;
        ok = ct__resolve(ctx, once[i], &vals[n], "custom_vjp", (int)i, node->here);
        cots[n++] = in[n_in + n_out + i];
    }
    ok = ok && ct__vjp_expand(ctx, node->here, vals, cots, n, wrt, n_in + n_out, out);
    for (size_t i = 0; i < n_in + n_out && ok; i++)
        if (ct__is_none(out[i]) || !ct__is_float(ct__type(wrt[i])->dtype))
            out[i] = ct__zeros_like(in[i]);
    if (!ok) ct__err_memory(&ctx->err, node->here, "custom_vjp", n_in * sizeof *outs); // else known
    ct__arena_free(&scratch);
}

// Traced, so that operands which are the same tensor stay apart.
static bool back_vjp(ct_rule *r) {
    const custom_attrs *a = r->attrs;
    size_t own = a->body->n_params, first = own + a->body->n_captured, n_out = a->body->n_outs,
           all = (size_t)r->n_in - 2 * n_out, n = first + n_out + own;
    ct_arena scratch = {0};
    ct_tensor *args = ct__arena(&scratch, n * sizeof *args),
              *out = ct__arena_zero(&scratch, n * sizeof *out);
    const ct_type **types = ct__arena(&scratch, n * sizeof *types);
    bool ok = args && out && types;
    for (size_t i = 0; i < n && ok; i++) {
        size_t k = i - first - n_out;
        if (i < first)
            args[i] = r->in[i];
        else if (i < first + n_out)
            args[i] = r->in[all + n_out + i - first];
        else
            args[i] = ct__is_none(r->c_out[k]) ? ct__zeros_like(r->out[k]) : r->c_out[k];
        types[i] = ct__type_of(args[i]);
    }
    const ct_traced traced = {.op = "custom_vjp",
                              .f = back_twice,
                              .user = (void *)(uintptr_t)r->node,
                              .unset = "the second derivative did not set cotangent"};
    ct_body *twice = ok && !ct_failed()
                         ? ct__trace(ct__ctx(), &traced, types, n, first + n_out, r->node->here)
                         : NULL;
    ok = twice && ct__inline(ct__ctx(), twice, args, out);
    for (size_t i = 0; i < first + n_out && ok; i++)
        r->c_in[i < first ? i : all + n_out + i - first] = out[i];
    ct__arena_free(&scratch);
    return ok;
}
const ct_opdef ct__op_custom_back = {
    .id = CT_OP_CUSTOM_BACK,
    .name = "custom_back",
    .doc = "What the reverse rule of a custom node gives.",
    .kind = &ct__kind_composition,
    .n_in = -1,
    .n_out = -1,
    CT_FIELDS(custom),
    .accepts = CT_ANY,
    .infer = back_infer,
    .body = back_body,
    .vjp = back_vjp,
};

static bool custom_vjp(ct_rule *r) {
    size_t n_in = (size_t)r->n_in, n_out = (size_t)r->n_out;
    ct_arena scratch = {0};
    ct_tensor *args = ct__arena(&scratch, (n_in + 2 * n_out) * sizeof *args);
    if (!args) return false;
    memcpy(args, r->in, n_in * sizeof *args);
    for (size_t i = 0; i < n_out; i++) {
        args[n_in + i] = r->out[i];
        args[n_in + n_out + i] = ct__is_none(r->c_out[i]) ? ct__zeros_like(r->out[i]) : r->c_out[i];
    }
    ct__outputs(
        ct__record(&ct__op_custom_back, r->attrs, args, (int)(n_in + 2 * n_out), r->node->here),
        r->c_in, ((const custom_attrs *)r->attrs)->vjp->n_outs);
    ct__arena_free(&scratch);
    return !ct_failed();
}
const ct_opdef ct__op_custom = {
    .id = CT_OP_CUSTOM,
    .name = "custom",
    .doc = "A traced function with its own reverse rule.",
    .kind = &ct__kind_composition,
    .n_in = -1,
    .n_out = -1,
    CT_FIELDS(custom),
    .accepts = CT_ANY,
    .infer = body_outputs,
    .body = custom_body,
    .vjp = custom_vjp,
};

static bool cotangents_fit(ct_ctx *ctx, const ct_body *vjp, const ct_type *const *in, size_t n_in,
                           ct_loc here) {
    for (size_t i = 0; i < n_in; i++) {
        const ct_type *is = ct__type(vjp->outs[i]);
        if (ct__same_shape(is, in[i]) && is->dtype == in[i]->dtype) continue;
        ct__fail(ctx, CT_E_SHAPE, here, "custom_vjp",
                 "the cotangent of operand %zu is %s, the operand is %s", i + 1,
                 ct__type_text(is).s, ct__type_text(in[i]).s);
        return false;
    }
    return true;
}

static bool only_numbers(const ct_body *body) {
    for (size_t i = 0; i < body->n_captured; i++)
        if (body->captured_from[i].node->op != &ct__op_scalar) return false;
    return true;
}

void ct_custom_vjp_at(ct_fn f, ct_fn vjp, void *user, const ct_tensor *in, size_t n_in,
                      ct_tensor *out, size_t n_out, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !all_given(ctx, "custom_vjp", in, n_in, out, n_out, here)) return;
    bool traceable = ct__given(ctx, (void *)(uintptr_t)f, here, "custom_vjp", "the function") &&
                     ct__given(ctx, (void *)(uintptr_t)vjp, here, "custom_vjp", "the rule");
    ct_traced forward = {.op = "custom_vjp", .f = f, .user = user, .unset = "f did not set output"};
    const ct_type **types = traceable ? types_of(ctx, &forward, in, n_in, here) : NULL;
    const ct_type **more = NULL;
    ct_type *cotangents = NULL;
    custom_attrs attrs = {0};
    ct_traced rule = forward;
    rule.f = vjp;
    rule.unset = "the rule did not set the cotangent of operand";
    if (types) attrs.body = ct__trace(ctx, &forward, types, n_in, n_out, here);
    if (attrs.body) {
        more = ct__arena(ct__top(ctx)->arena, (n_in + 2 * n_out + 1) * sizeof *more);
        cotangents = ct__arena(ct__top(ctx)->arena, (n_out + 1) * sizeof *cotangents);
    }
    if (more && cotangents) {
        if (n_in) memcpy(more, types, n_in * sizeof *more);
        for (size_t i = 0; i < n_out; i++) {
            more[n_in + i] = ct__type(attrs.body->outs[i]);
            cotangents[i] = *more[n_in + i];
            cotangents[i].weak = false; // of a bare number too: it was computed
            more[n_in + n_out + i] = &cotangents[i];
        }
        attrs.vjp = ct__trace(ctx, &rule, more, n_in + 2 * n_out, n_in, here);
    }
    if (attrs.vjp && !(only_numbers(attrs.body) && only_numbers(attrs.vjp))) {
        ct__fail(ctx, CT_E_TRACE, here, "custom_vjp", "the functions use a tensor from outside");
        ct__err_hint(&ctx->err, "pass it as an operand");
        attrs.vjp = NULL;
    }
    if (!attrs.vjp || !cotangents_fit(ctx, attrs.vjp, types, n_in, here)) {
        poison_all(ctx, out, n_out, here);
        return;
    }
    size_t first = attrs.body->n_captured, second = attrs.vjp->n_captured,
           total = n_in + first + second;
    ct_tensor *all = ct__arena(ct__top(ctx)->arena, (total + 1) * sizeof *all);
    if (!all) {
        ct__err_memory(&ctx->err, here, "custom_vjp", total * sizeof *all);
        poison_all(ctx, out, n_out, here);
        return;
    }
    if (n_in) memcpy(all, in, n_in * sizeof *all);
    for (size_t i = 0; i < first; i++) all[n_in + i] = ct__handle_of(attrs.body->captured_from[i]);
    for (size_t i = 0; i < second; i++)
        all[n_in + first + i] = ct__handle_of(attrs.vjp->captured_from[i]);
    ct__outputs(ct__record(&ct__op_custom, &attrs, all, (int)total, here), out, n_out);
}
