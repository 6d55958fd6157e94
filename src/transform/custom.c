// Functions with custom derivative rules: custom_jvp and custom_vjp.
//
// Operands of such a node: the function's, then the numbers that it captured, then those of its rule.
#include <string.h>

#include "kinds/batch.h"
#include "ops/rules.h"
#include "transform/trace.h"

#define CUSTOM_ATTRS(F, op) F(op, body, body) F(op, body, rule)
CT_ATTRS(custom, CUSTOM_ATTRS);

static const custom_attrs *custom_attrs_of(const ct_node *node) { return node->attrs; }

static bool custom_infer(ct_call *call) {
    return ct__infer_body(call, ((const custom_attrs *)call->attrs)->body);
}
static bool custom_body(ct_rule *r) {
    return ct__inline(ct__ctx(), ((const custom_attrs *)r->attrs)->body, r->in, r->body_out);
}

// Calls the rule on the function's operands, results and tangents or cotangents, followed by the rule's own
// captured numbers, which are the last of `numbers`.
static bool custom_call_rule(const ct_node *node, const ct_tensor *in, const ct_tensor *outs,
                             const ct_tensor *slopes, size_t n_slopes, const ct_tensor *numbers,
                             ct_tensor *results) {
    const ct_body *rule = custom_attrs_of(node)->rule;
    size_t n_in = custom_attrs_of(node)->body->n_params,
           n_out = custom_attrs_of(node)->body->n_outs, n = n_in + n_out + n_slopes;
    CT_ARENA scratch = {0};
    ct_tensor *args = ct__arena(&scratch, (n + rule->n_captured + 1) * sizeof *args);
    bool ok = args || ct__err_memory(&ct__ctx()->err, node->here, node->op->name, n * sizeof *args);
    if (ok) {
        if (n_in) memcpy(args, in, n_in * sizeof *args);
        memcpy(args + n_in, outs, n_out * sizeof *args);
        memcpy(args + n_in + n_out, slopes, n_slopes * sizeof *args);
        if (rule->n_captured) memcpy(args + n, numbers, rule->n_captured * sizeof *args);
        ok = ct__inline(ct__ctx(), rule, args, results);
    }
    return ok;
}

// ------------------------------------------------------------------------------------------ batches

// A function of elements as a function of batches, all parameters of which have the batch; its captured
// numbers come from outside, unchanged.
typedef struct {
    const ct_body *body;
    const ct_tensor *numbers;
    const ct_batching *batching;
} batched_function;
static void custom_inline_element(const ct_tensor *in, ct_tensor *out, void *body) {
    ct__inline(ct__ctx(), body, in, out);
}
static void custom_trace_batched(const ct_tensor *in, ct_tensor *out, void *user) {
    const batched_function *f = user;
    const size_t n = f->body->n_params, all = n + f->body->n_captured;
    CT_ARENA scratch = {0};
    ct_tensor *args = ct__arena(&scratch, (all + 1) * sizeof *args);
    int64_t *axes = ct__arena(&scratch, (all + f->body->n_outs + 1) * sizeof *axes);
    if (!args || !axes) ct__err_memory(&ct__ctx()->err, f->body->here, "vmap", all * sizeof *args);
    for (size_t i = 0; i < all && args && axes; i++) {
        args[i] = i < n ? in[i] : f->numbers[i - n];
        axes[i] = i < n ? 0 : CT_NO_AXIS;
    }
    if (args && axes)
        ct_vmap_with((ct_vmap_args){.f = custom_inline_element,
                                    .user = (void *)(uintptr_t)f->body,
                                    .in = args,
                                    .n_in = all,
                                    .out = out,
                                    .n_out = f->body->n_outs,
                                    .in_axes = {(int64_t)all, axes},
                                    .size = f->batching->size,
                                    .here = f->body->here});
}

static ct_body *custom_batch_body(const ct_batching *b, const ct_body *body,
                                  const ct_tensor *numbers, const ct_type *const *types) {
    batched_function f = {body, numbers, b};
    const ct_traced traced = {.op = b->node->op->name,
                              .f = custom_trace_batched,
                              .user = &f,
                              .unset = "f did not set output"};
    return ct__trace(ct__ctx(), &traced, types, body->n_params, body->n_outs, b->node->here);
}

// Records the same op for batches, so that its rule remains a rule.
static bool custom_batch(ct_batching *b) {
    const custom_attrs *a = b->attrs;
    ct_ctx *ctx = ct__ctx();
    const size_t n_in = a->body->n_params, n_numbers = a->body->n_captured,
                 n_slopes = a->rule->n_params - n_in - a->body->n_outs;
    CT_ARENA scratch = {0};
    ct_tensor *in = ct__arena(&scratch, (n_in + 1) * sizeof *in);
    const ct_type **types = ct__arena(&scratch, (a->rule->n_params + 1) * sizeof *types);
    custom_attrs own = {0};
    bool ok = in && types;
    if (!ok) ct__err_memory(&ctx->err, b->node->here, "vmap", n_in * sizeof *in);
    for (size_t i = 0; i < n_in && ok; i++) {
        in[i] = ct__batch_operand(b, (int)i);
        types[i] = ct__type_of(in[i]);
    }
    ok = ok && !ctx->err.code && (own.body = custom_batch_body(b, a->body, b->in + n_in, types));
    for (size_t i = 0; i < a->body->n_outs && ok; i++)
        types[n_in + i] = ct__type(own.body->outs[i]);
    const bool forward = b->node->op == &ct__op_custom_jvp;
    for (size_t i = 0; i < n_slopes && ok; i++)
        types[n_in + a->body->n_outs + i] = types[forward ? i : n_in + i];
    ok = ok && (own.rule = custom_batch_body(b, a->rule, b->in + n_in + n_numbers, types));
    ct_tensor *all = ok ? ct__with_captured(ctx, own.body, in, n_in, own.rule->n_captured) : NULL;
    const size_t first = n_in + (ok ? own.body->n_captured : 0);
    for (size_t i = 0; all && i < own.rule->n_captured; i++)
        all[first + i] = ct__handle_of(own.rule->captured_from[i]);
    if (all)
        ct__outputs(
            ct__record(b->node->op, &own, all, (int)(first + own.rule->n_captured), b->node->here),
            b->out, a->body->n_outs);
    return all && !ctx->err.code;
}

// -------------------------------------------------------------------------------------- custom vjp

// The result of the rule is a node of its own. Its operands are those of the function's node, its outputs,
// and their cotangents; its body is what the rule records. Its derivative is that of the function's gradient,
// since a rule need not be differentiable (or correct to second order).
static bool custom_back_infer(ct_call *call) {
    return ct__infer_body(call, ((const custom_attrs *)call->attrs)->rule);
}
static bool custom_back_body(ct_rule *r) {
    const custom_attrs *a = r->attrs;
    size_t n_out = a->body->n_outs, all = (size_t)r->n_in - 2 * n_out;
    return custom_call_rule(r->node, r->in, r->in + all, r->in + all + n_out, n_out,
                            r->in + all - a->rule->n_captured, r->body_out);
}

// Differentiates the function's gradient in forward mode. In: the function's operands and numbers, the
// cotangents of its results, and the tangents of those of all these that have one. Out: the tangent of the
// gradient for each operand that is a float.
typedef struct {
    const ct_node *node;
    const int64_t *moving;
    size_t n_moving;
} back_tangents;
static void custom_back_tangents(const ct_tensor *in, ct_tensor *out, void *user) {
    const back_tangents *m = user;
    ct_ctx *ctx = ct__ctx();
    ct_loc here = m->node->here;
    const ct_body *body = custom_attrs_of(m->node)->body;
    size_t n_out = body->n_outs, n_in = body->n_params, first = n_in + body->n_captured, n = 0;
    CT_ARENA scratch = {0};
    ct_tensor *outs = ct__arena_zero(&scratch, (n_out + 1) * sizeof *outs),
              *grads = ct__arena_zero(&scratch, (n_in + 1) * sizeof *grads),
              *slopes = ct__arena_zero(&scratch, (n_in + 1) * sizeof *slopes),
              *cots = ct__arena_zero(&scratch, (n_out + 1) * sizeof *cots);
    ct_val *vals = ct__arena(&scratch, (n_in + n_out + 1) * sizeof *vals),
           *wrt = ct__arena(&scratch, (n_in + m->n_moving + 1) * sizeof *wrt);
    bool ok = outs && grads && slopes && cots && vals && wrt;
    if (!ok) ct__err_memory(&ctx->err, here, "custom_vjp", n_in * sizeof *wrt);
    ok = ok && ct__inline(ctx, body, in, outs);
    for (size_t i = 0; i < n_out && ok; i++) {
        ok = ct__resolve(ctx, outs[i], &vals[i], "custom_vjp", (int)i, here);
        cots[i] = ok && ct__has_slope(outs[i]) ? in[first + i] : CT_NONE;
    }
    for (size_t i = 0; i < n_in && ok; i++)
        if (ct__has_slope(in[i]))
            ok = ct__resolve(ctx, in[i], &wrt[n++], "custom_vjp", (int)i, here);
    ok = ok && ct__vjp_expand(ctx, here, vals, cots, n_out, wrt, n, grads);
    for (size_t i = 0, k = 0; i < n_in && ok; i++) {
        if (!ct__has_slope(in[i])) continue;
        if (ct__is_none(grads[k])) grads[k] = ct__zeros_like(in[i]);
        ok = ct__resolve(ctx, grads[k], &vals[k], "custom_vjp", (int)i, here);
        k++;
    }
    for (size_t i = 0; i < m->n_moving && ok; i++)
        ok = ct__resolve(ctx, in[m->moving[i]], &wrt[i], "custom_vjp", (int)i, here);
    ok = ok && ct__jvp_expand(ctx, here, vals, n, wrt, in + first + n_out, m->n_moving, slopes);
    for (size_t i = 0; i < n && ok; i++) out[i] = ct__or_zeros(slopes[i], grads[i]);
}

static bool custom_back_jvp(ct_rule *r) {
    const custom_attrs *a = r->attrs;
    size_t n_in = a->body->n_params, first = n_in + a->body->n_captured, n_out = a->body->n_outs,
           cots = (size_t)r->n_in - n_out, n = first + n_out, n_float = 0;
    CT_ARENA scratch = {0};
    ct_tensor *args = ct__arena(&scratch, 2 * (n + 1) * sizeof *args),
              *slopes = ct__arena_zero(&scratch, (n_in + 1) * sizeof *slopes);
    int64_t *moving = ct__arena(&scratch, (n + 1) * sizeof *moving);
    back_tangents m = {r->node, moving, 0};
    bool ok = args && slopes && moving;
    if (!ok) ct__err_memory(&ct__ctx()->err, r->node->here, "custom_vjp", n * sizeof *args);
    for (size_t i = 0; i < n && ok; i++) {
        size_t of = i < first ? i : cots + i - first;
        args[i] = r->in[of];
        if (ct__is_none(r->t_in[of]) || !ct__has_slope(r->in[of])) continue;
        args[n + m.n_moving] = r->t_in[of];
        moving[m.n_moving++] = (int64_t)i;
    }
    for (size_t i = 0; i < n_in && ok; i++) n_float += ct__has_slope(r->in[i]);
    ok = ok && ct__on_parameters(r->node, custom_back_tangents, &m, args, n + m.n_moving, slopes,
                                 n_float);
    for (size_t i = 0, k = 0; i < n_in && ok; i++)
        r->t_out[i] = ct__has_slope(r->in[i]) ? slopes[k++] : CT_NONE;
    return ok;
}
const ct_opdef ct__op_custom_back = {
    CT_COMPOSED(CUSTOM_BACK, custom_back, -1, -1),
    .doc = "What the reverse rule of a custom_vjp node gives.",
    CT_FIELDS(custom),
    .accepts = CT_ANY,
    .jvp = custom_back_jvp,
};

static bool custom_vjp(ct_rule *r) {
    size_t n_in = (size_t)r->n_in, n_out = (size_t)r->n_out;
    CT_ARENA scratch = {0};
    ct_tensor *args = ct__arena(&scratch, (n_in + 2 * n_out) * sizeof *args);
    if (!args) return false;
    memcpy(args, r->in, n_in * sizeof *args);
    for (size_t i = 0; i < n_out; i++) {
        args[n_in + i] = r->out[i];
        args[n_in + n_out + i] = ct__or_zeros(r->c_out[i], r->out[i]);
    }
    ct__outputs(
        ct__record(&ct__op_custom_back, r->attrs, args, (int)(n_in + 2 * n_out), r->node->here),
        r->c_in, ((const custom_attrs *)r->attrs)->rule->n_outs);
    return !ct_failed();
}
// In forward mode it is differentiated through its body.
const ct_opdef ct__op_custom_vjp = {
    CT_OP(CUSTOM_VJP, custom_vjp, composition, -1, -1),
    .doc = "A traced function with its own reverse rule.",
    CT_FIELDS(custom),
    .accepts = CT_ANY,
    .infer = custom_infer,
    .body = custom_body,
    .vjp = custom_vjp,
    .batch = custom_batch,
};

// -------------------------------------------------------------------------------------- custom jvp

// Checks that each result is linear in the n tangents: its derivative with respect to them exists and does
// not depend on them.
static bool custom_check_linear(ct_ctx *ctx, const ct_node *node, const ct_val *slopes,
                                size_t n_slopes, const ct_val *tangents, size_t n) {
    CT_ARENA scratch = {0};
    ct_nodes list = {0};
    ct_tensor *moves = ct__arena(&scratch, (n + 1) * sizeof *moves),
              *derivative = ct__arena_zero(&scratch, (n_slopes + 1) * sizeof *derivative);
    bool ok = moves && derivative, linear = true;
    for (size_t i = 0; i < n && ok; i++) {
        ct_node *move = ct__leaf(ctx, &ct__op_param, NULL, *ct__type(tangents[i]), node->here);
        ok = move != NULL;
        if (ok) moves[i] = ct__handle(move, 0);
    }
    if (!ok) ct__err_memory(&ctx->err, node->here, "custom_jvp", n * sizeof *moves);
    ok = ok && ct__jvp_expand(ctx, node->here, slopes, n_slopes, tangents, moves, n, derivative);
    for (size_t i = 0; i < n_slopes && ok && linear; i++) {
        ct_val v = slopes[i];
        bool none = ct__is_none(derivative[i]);
        ok = none || ct__resolve(ctx, derivative[i], &v, "custom_jvp", (int)i, node->here);
        ok = ok && ct__reach(&list, &v, 1, &ctx->err);
        for (size_t k = 0; k < n && ok; k++) linear &= tangents[k].node->epoch != list.epoch;
    }
    if (ok && !linear) {
        ct__fail(ctx, CT_E_GRAD, node->here, "custom_jvp",
                 "the rule's results are not linear in the tangents");
        ct__err_hint(&ctx->err, "a tangent may be multiplied by what the operands give, and added");
    }
    ct__nodes_free(&list);
    return ok && linear;
}

// Records the rule. In: the function's operands, its results, the operands' tangents, the rule's numbers.
static void custom_trace_forward_rule(const ct_tensor *in, ct_tensor *out, void *user) {
    const ct_forward_rule *rule = user;
    const ct_node *node = rule->node;
    ct_ctx *ctx = ct__ctx();
    size_t n_in = rule->n_in, n_out = rule->n_out, n = 0;
    const ct_tensor *tangents = in + n_in + n_out;
    CT_ARENA scratch = {0};
    ct_val *slopes = ct__arena(&scratch, (n_out + n_in + n_out + n_in + 1) * sizeof *slopes),
           *ends = slopes + n_out, *moving = ends;
    bool ok =
        slopes || ct__err_memory(&ctx->err, node->here, node->op->name, n_in * sizeof *slopes);
    ok = ok && rule->record(node, in, in + n_in, tangents, out);
    ok = ok && ct__resolve_all(ctx, out, n_out, slopes, node->op->name, node->here);
    for (size_t i = 0; i < n_in && ok; i++)
        if (ct__has_slope(tangents[i]))
            ok = ct__resolve(ctx, tangents[i], &moving[n++], node->op->name, (int)i, node->here);
    // Only ops have transpose rules.
    ok = ok && ct__expand_bodies(ctx, slopes, n_out, n, NULL) &&
         custom_check_linear(ctx, node, slopes, n_out, moving, n);
    for (size_t i = 0; i < n_out && ok; i++) out[i] = ct__handle_of(slopes[i]);
}

bool ct__apply_forward_rule(ct_rule *r, const ct_forward_rule *rule) {
    size_t n_in = rule->n_in, n_out = rule->n_out, n_numbers = rule->n_numbers,
           n = 2 * n_in + n_out;
    CT_ARENA scratch = {0};
    ct_tensor *args = ct__arena(&scratch, (n + n_numbers + 1) * sizeof *args);
    bool ok =
        args || ct__err_memory(&ct__ctx()->err, r->node->here, r->node->op->name, n * sizeof *args);
    for (size_t i = 0; i < n && ok; i++)
        args[i] = i < n_in ? r->in[i]
                  : i < n_in + n_out
                      ? r->out[i - n_in]
                      : ct__or_zeros(r->t_in[i - n_in - n_out], r->in[i - n_in - n_out]);
    if (ok && n_numbers) memcpy(args + n, r->in + r->n_in - n_numbers, n_numbers * sizeof *args);
    ok = ok && ct__on_parameters(r->node, custom_trace_forward_rule, rule, args, n + n_numbers,
                                 r->t_out, n_out);
    for (size_t i = 0; i < n_out && ok; i++)
        if (!ct__has_slope(r->out[i])) r->t_out[i] = CT_NONE;
    return ok;
}

static bool custom_record_rule(const ct_node *node, const ct_tensor *in, const ct_tensor *outs,
                               const ct_tensor *tangents, ct_tensor *slopes) {
    const size_t n_in = custom_attrs_of(node)->body->n_params;
    return custom_call_rule(node, in, outs, tangents, n_in, tangents + n_in, slopes);
}
static bool custom_jvp(ct_rule *r) {
    const custom_attrs *a = r->attrs;
    return ct__apply_forward_rule(r, &(ct_forward_rule){.node = r->node,
                                                        .n_in = a->body->n_params,
                                                        .n_out = a->body->n_outs,
                                                        .n_numbers = a->rule->n_captured,
                                                        .record = custom_record_rule});
}
const ct_opdef ct__op_custom_jvp = {
    CT_OP(CUSTOM_JVP, custom_jvp, composition, -1, -1),
    .doc = "A traced function with its own forward rule.",
    CT_FIELDS(custom),
    .accepts = CT_ANY,
    .infer = custom_infer,
    .body = custom_body,
    .jvp = custom_jvp,
    .batch = custom_batch,
};

// --------------------------------------------------------------------------------------- recording

static bool custom_captures_only_numbers(const ct_body *body) {
    for (size_t i = 0; i < body->n_captured; i++)
        if (!ct__is_number(body->captured_from[i].node)) return false;
    return true;
}

// Checks that the rule's results have the types of the values of which they are tangents or cotangents.
static bool custom_check_result_types(ct_ctx *ctx, const char *op, const char *what, const char *of,
                                      const ct_body *rule, const ct_type *const *types,
                                      ct_loc here) {
    for (size_t i = 0; i < rule->n_outs; i++) {
        const ct_type *is = ct__type(rule->outs[i]);
        if (ct__same_shape(is, types[i]) && is->dtype == types[i]->dtype) continue;
        return ct__refuse(ctx, CT_E_SHAPE, here, op, "the %s of %s %zu is %s, the %s is %s", what,
                          of, i + 1, ct__type_text(is).s, of, ct__type_text(types[i]).s);
    }
    return true;
}

typedef struct custom_call {
    const char *op;
    const ct_opdef *def;
    ct_fn f, rule;
    void *user;
    const ct_tensor *in;
    size_t n_in, n_out;
    bool forward; // the rule returns tangents of the results, else cotangents of the operands
    ct_loc here;
} custom_call;

// Returns the types of the rule's parameters: operands, results, tangents or cotangents.
static const ct_type **custom_rule_types(ct_ctx *ctx, const custom_call *c,
                                         const ct_type *const *types, const ct_body *body) {
    size_t n_slopes = c->forward ? c->n_in : c->n_out, n = c->n_in + c->n_out + n_slopes;
    const ct_type **all = ct__arena(ct__top(ctx)->arena, (n + 1) * sizeof *all);
    ct_type *slopes = ct__arena(ct__top(ctx)->arena, (n_slopes + 1) * sizeof *slopes);
    if (!all || !slopes) return ct__null_memory(&ctx->err, c->here, c->op, n * sizeof *all);
    if (c->n_in) memcpy(all, types, c->n_in * sizeof *all);
    for (size_t i = 0; i < c->n_out; i++) all[c->n_in + i] = ct__type(body->outs[i]);
    for (size_t i = 0; i < n_slopes; i++) {
        slopes[i] = *(c->forward ? all[i] : all[c->n_in + i]);
        slopes[i].weak = false; // a computed value is never weak, even that of a bare number
        all[c->n_in + c->n_out + i] = &slopes[i];
    }
    return all;
}

static bool custom_record(ct_ctx *ctx, const custom_call *c, ct_tensor *result) {
    ct_traced traced = {.op = c->op, .f = c->f, .user = c->user, .unset = "f did not set output"};
    const ct_type **types = ct__operand_types(ctx, &traced, c->in, c->n_in, c->here);
    custom_attrs attrs = {0};
    if (!types || !(attrs.body = ct__trace(ctx, &traced, types, c->n_in, c->n_out, c->here)))
        return false;
    const ct_type **rule_in_types = custom_rule_types(ctx, c, types, attrs.body);
    traced.f = c->rule;
    traced.unset = c->forward ? "the rule did not set the tangent of result"
                              : "the rule did not set the cotangent of operand";
    size_t n_slopes = c->forward ? c->n_in : c->n_out, n_given = c->forward ? c->n_out : c->n_in;
    if (rule_in_types)
        attrs.rule =
            ct__trace(ctx, &traced, rule_in_types, c->n_in + c->n_out + n_slopes, n_given, c->here);
    if (!attrs.rule) return false;
    if (!custom_captures_only_numbers(attrs.body) || !custom_captures_only_numbers(attrs.rule)) {
        ct__fail(ctx, CT_E_TRACE, c->here, c->op, "the functions use a tensor from outside");
        return ct__err_hint(&ctx->err, "pass it as an operand");
    }
    if (!custom_check_result_types(ctx, c->op, c->forward ? "tangent" : "cotangent",
                                   c->forward ? "result" : "operand", attrs.rule,
                                   c->forward ? rule_in_types + c->n_in : rule_in_types, c->here))
        return false;
    size_t first = c->n_in + attrs.body->n_captured, second = attrs.rule->n_captured;
    ct_tensor *all = ct__with_captured(ctx, attrs.body, c->in, c->n_in, second);
    if (!all) return false;
    for (size_t i = 0; i < second; i++)
        all[first + i] = ct__handle_of(attrs.rule->captured_from[i]);
    *result = ct__record(c->def, &attrs, all, (int)(first + second), c->here);
    return true;
}

static void custom_call_or_poison(const ct_opdef *def, ct_fn f, ct_fn rule, void *user,
                                  const ct_tensor *in, size_t n_in, ct_tensor *out, size_t n_out,
                                  ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    ct_tensor t;
    const bool forward = def == &ct__op_custom_jvp;
    const custom_call c = {def->name, def, f, rule, user, in, n_in, n_out, forward, here};
    if (!ctx || !ct__call_given(ctx, c.op, in, n_in, out, n_out, here)) return;
    if (ct__given(ctx, (void *)(uintptr_t)f, here, c.op, "the function") &&
        ct__given(ctx, (void *)(uintptr_t)rule, here, c.op, "the rule") &&
        custom_record(ctx, &c, &t))
        ct__outputs(t, out, n_out);
    else
        ct__poison_all(ctx, out, n_out, here);
}

void ct_custom_vjp_at(ct_fn f, ct_fn vjp, void *user, const ct_tensor *in, size_t n_in,
                      ct_tensor *out, size_t n_out, ct_loc here) {
    custom_call_or_poison(&ct__op_custom_vjp, f, vjp, user, in, n_in, out, n_out, here);
}

void ct_custom_jvp_at(ct_fn f, ct_fn jvp, void *user, const ct_tensor *in, size_t n_in,
                      ct_tensor *out, size_t n_out, ct_loc here) {
    custom_call_or_poison(&ct__op_custom_jvp, f, jvp, user, in, n_in, out, n_out, here);
}
