// Derivatives of functions: jvp and vjp as nodes that own the function's body.
//
// The expansion of such a node is computed when its plan is made: the body is recorded on parameters and
// differentiated there, and the result is recorded on the node's operands. It consists of plain ops, so that
// every other transform can handle it.
#include <stdio.h>
#include <string.h>

#include "ops/rules.h"
#include "transform/trace.h"

bool ct__on_parameters(const ct_node *node, ct_fn f, const void *user, const ct_tensor *args,
                       size_t n, ct_tensor *out, size_t n_out) {
    ct_ctx *ctx = ct__ctx();
    const char *op = node->op->name;
    CT_ARENA scratch = {0};
    const ct_type **types = ct__arena(&scratch, (n + 1) * sizeof *types);
    bool ok = types || ct__err_memory(&ctx->err, node->here, op, n * sizeof *types);
    for (size_t i = 0; i < n && ok; i++) types[i] = ct__type_of(args[i]);
    const ct_traced traced = {
        .op = op, .f = f, .user = (void *)(uintptr_t)user, .unset = "the transform did not set"};
    ct_body *body = ok ? ct__trace(ctx, &traced, types, n, n_out, node->here) : NULL;
    // Numbers that derivatives introduce are captured from outside and become operands.
    const ct_tensor *all = body ? ct__with_captured(ctx, body, args, n, 0) : NULL;
    ok = all && ct__inline(ctx, body, all, out);
    return ok;
}
static bool derivative_trace_body(ct_rule *r, ct_fn f) {
    return ct__on_parameters(r->node, f, r->node, r->in, (size_t)r->n_in, r->body_out,
                             (size_t)r->n_out);
}

// A function's body that was inlined on values, and its results as values.
typedef struct inlined {
    ct_arena scratch;
    ct_tensor *outs;   // (n_outs)
    ct_val *vals;      // (n_outs) results, followed by (n) values of wrt
    ct_tensor *slopes; // (n_outs or n) space for derivatives
} inlined;
static bool derivative_inline(inlined *to, const ct_node *node, const ct_body *body,
                              const ct_tensor *in, const int64_t *wrt, size_t n_wrt) {
    ct_ctx *ctx = ct__ctx();
    size_t n = body->n_outs, capacity = n > n_wrt ? n : n_wrt;
    *to = (inlined){0};
    to->outs = ct__arena_zero(&to->scratch, (n + 1) * sizeof *to->outs);
    to->vals = ct__arena(&to->scratch, (n + n_wrt + 1) * sizeof *to->vals);
    to->slopes = ct__arena_zero(&to->scratch, (capacity + 1) * sizeof *to->slopes);
    bool ok = to->outs && to->vals && to->slopes;
    if (!ok) ct__err_memory(&ctx->err, node->here, node->op->name, n * sizeof *to->vals);
    ok = ok && ct__inline(ctx, body, in, to->outs);
    ok = ok && ct__resolve_all(ctx, to->outs, n, to->vals, node->op->name, node->here);
    for (size_t i = 0; i < n_wrt && ok; i++)
        ok =
            ct__resolve(ctx, in[wrt[i]], &to->vals[n + i], node->op->name, (int)wrt[i], node->here);
    if (!ok) ct__arena_free(&to->scratch);
    return ok;
}

static bool derivative_has_slope(const ct_type *type) { return ct__is_differentiable(type->dtype); }
// The outputs of a node: those of the body, then one like each of `also` that is a float.
static bool derivative_infer(ct_call *call, const ct_body *body, size_t n_also,
                             const ct_type *const *also) {
    size_t n = body->n_outs, at = n, slopes = 0;
    for (size_t i = 0; i < n_also; i++) slopes += derivative_has_slope(also[i]);
    if (!ct__call_outs(call, (int)(n + slopes))) return false;
    for (size_t i = 0; i < n; i++) call->out[i] = *ct__type(body->outs[i]);
    for (size_t i = 0; i < n_also; i++) {
        if (!derivative_has_slope(also[i])) continue;
        call->out[at] = *also[i];
        call->out[at++].weak = false;
    }
    return true;
}

// --------------------------------------------------------------------------------------------- jvp

// Operands: the function's, what it captured, tangents of the operands that have one.
#define JVP_ATTRS(F, op) F(op, body, body) F(op, positions, moving)
CT_ATTRS(jvp, JVP_ATTRS);

static bool jvp_infer(ct_call *call) {
    const ct_body *body = ((const jvp_attrs *)call->attrs)->body;
    const ct_type **outs = ct__arena(call->arena, (body->n_outs + 1) * sizeof *outs);
    if (!outs) return ct__err_memory(call->err, call->here, "jvp", body->n_outs * sizeof *outs);
    for (size_t i = 0; i < body->n_outs; i++) outs[i] = ct__type(body->outs[i]);
    return derivative_infer(call, body, body->n_outs, outs);
}

static void jvp_trace(const ct_tensor *in, ct_tensor *out, void *user) {
    const ct_node *node = user;
    const jvp_attrs *a = node->attrs;
    const ct_body *body = a->body;
    size_t n = body->n_outs, moving = (size_t)a->moving.n, at = n;
    const ct_tensor *tangents = in + body->n_params + body->n_captured;
    inlined r;
    if (!derivative_inline(&r, node, body, in, a->moving.v, moving)) return;
    bool ok =
        ct__jvp_expand(ct__ctx(), node->here, r.vals, n, r.vals + n, tangents, moving, r.slopes);
    for (size_t i = 0; i < n && ok; i++) {
        out[i] = r.outs[i];
        if (derivative_has_slope(ct__type(r.vals[i])))
            out[at++] = ct__or_zeros(r.slopes[i], r.outs[i]);
    }
    ct__arena_free(&r.scratch);
}
static bool jvp_body(ct_rule *r) { return derivative_trace_body(r, jvp_trace); }

const ct_opdef ct__op_jvp = {
    CT_COMPOSED(JVP, jvp, -1, -1),
    .doc = "A traced function and its derivative along tangents.",
    CT_FIELDS(jvp),
    .accepts = CT_ANY,
};

// --------------------------------------------------------------------------------------------- vjp

// Operands: the function's, what it captured, cotangents of the outputs that have one.
#define VJP_ATTRS(F, op) F(op, body, body) F(op, positions, given)
CT_ATTRS(vjp, VJP_ATTRS);

static bool vjp_infer(ct_call *call) {
    const ct_body *body = ((const vjp_attrs *)call->attrs)->body;
    return derivative_infer(call, body, body->n_params, call->in);
}

static void vjp_trace(const ct_tensor *in, ct_tensor *out, void *user) {
    const ct_node *node = user;
    const vjp_attrs *a = node->attrs;
    const ct_body *body = a->body;
    size_t n = body->n_outs, n_wrt = 0;
    const ct_tensor *cotangents_in = in + body->n_params + body->n_captured;
    inlined r;
    CT_ARENA scratch = {0};
    int64_t *wrt = ct__arena(&scratch, (body->n_params + 1) * sizeof *wrt);
    ct_tensor *cotangents = ct__arena_zero(&scratch, (n + 1) * sizeof *cotangents);
    bool ok = wrt && cotangents;
    if (!ok) ct__err_memory(&ct__ctx()->err, node->here, "vjp", n * sizeof *cotangents);
    for (size_t i = 0; i < body->n_params && ok; i++)
        if (derivative_has_slope(ct__type_of(in[i]))) wrt[n_wrt++] = (int64_t)i;
    for (int64_t i = 0; i < a->given.n && ok; i++) cotangents[a->given.v[i]] = cotangents_in[i];
    ok = ok && derivative_inline(&r, node, body, in, wrt, n_wrt);
    if (ok) {
        ok = ct__vjp_expand(ct__ctx(), node->here, r.vals, cotangents, n, r.vals + n, n_wrt,
                            r.slopes);
        for (size_t i = 0; i < n && ok; i++) out[i] = r.outs[i];
        for (size_t i = 0; i < n_wrt && ok; i++) out[n + i] = ct__or_zeros(r.slopes[i], in[wrt[i]]);
        ct__arena_free(&r.scratch);
    }
}
static bool vjp_body(ct_rule *r) { return derivative_trace_body(r, vjp_trace); }

const ct_opdef ct__op_vjp = {
    CT_COMPOSED(VJP, vjp, -1, -1),
    .doc = "A traced function and the gradients of its results, weighted by cotangents.",
    CT_FIELDS(vjp),
    .accepts = CT_ANY,
};

// --------------------------------------------------------------------------------------- recording

// A call that is being recorded: the function's body, space for the node's operands, and the tangents or
// cotangents (slopes) among them.
typedef struct derived {
    ct_ctx *ctx;
    const char *op; // as the user calls it
    ct_loc here;
    const ct_type **types, **outs; // of the operands and the results
    ct_body *body;
    ct_tensor *all; // operands, what was captured, slopes
    size_t n_operands, n_slopes;
    int64_t *positions; // (n_slopes) the operand or result of each slope
} derived;

static bool derivative_begin(derived *d, ct_fn f, void *user, const ct_tensor *in, size_t n_in,
                             size_t n_out) {
    ct_arena *arena = ct__top(d->ctx)->arena;
    ct_traced traced = {.op = d->op, .f = f, .user = user, .unset = "f did not set output"};
    size_t capacity = n_in > n_out ? n_in : n_out;
    if (!ct__given(d->ctx, (void *)(uintptr_t)f, d->here, d->op, "the function")) return false;
    d->types = ct__operand_types(d->ctx, &traced, in, n_in, d->here);
    d->body = d->types ? ct__trace(d->ctx, &traced, d->types, n_in, n_out, d->here) : NULL;
    d->all = d->body ? ct__with_captured(d->ctx, d->body, in, n_in, capacity) : NULL;
    if (!d->all) return false;
    d->n_operands = n_in + d->body->n_captured;
    d->positions = ct__arena(arena, (capacity + 1) * sizeof *d->positions);
    d->outs = ct__arena(arena, (n_out + 1) * sizeof *d->outs);
    if (!d->positions || !d->outs)
        return ct__err_memory(&d->ctx->err, d->here, d->op, capacity * sizeof *d->positions);
    for (size_t i = 0; i < n_out; i++) d->outs[i] = ct__type(d->body->outs[i]);
    return true;
}

// Appends one tangent or cotangent after checking its type; a bare number takes the required dtype.
static bool derivative_add_slope(derived *d, const char *what, const char *of, size_t i,
                                 ct_tensor slope, const ct_type *type) {
    ct_val v;
    if (!ct__resolve(d->ctx, slope, &v, d->op, (int)i, d->here)) return false;
    const ct_type *is = ct__type(v);
    if (!derivative_has_slope(type)) {
        ct__fail(d->ctx, CT_E_GRAD, d->here, d->op, "%s %zu is given, but %s %zu is %s", what,
                 i + 1, of, i + 1, ct__type_text(type).s);
        return ct__err_hint(&d->ctx->err, "only floats have derivatives: give CT_NONE");
    }
    if (!ct__same_shape(is, type) || (is->dtype != type->dtype && !is->weak)) {
        ct__fail(d->ctx, CT_E_SHAPE, d->here, d->op, "%s %zu is %s, %s %zu is %s", what, i + 1,
                 ct__type_text(is).s, of, i + 1, ct__type_text(type).s);
        return ct__err_hint(&d->ctx->err, "a %s has the shape and the dtype of its %s", what, of);
    }
    if (is->weak) slope = ct_cast_at(slope, (ct_dtype)type->dtype, d->here);
    d->all[d->n_operands + d->n_slopes] = slope;
    d->positions[d->n_slopes++] = (int64_t)i;
    return true;
}
static bool derivative_add_slopes(derived *d, const char *what, const char *of,
                                  const ct_tensor *slopes, const ct_type *const *types, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!ct__is_none(slopes[i]) && !derivative_add_slope(d, what, of, i, slopes[i], types[i]))
            return false;
    return true;
}

// Records the node. Its outputs are the results, then a slope for each of `also` that is a float.
static void derivative_record(derived *d, const ct_opdef *op, const void *attrs, ct_tensor *out,
                              size_t n_out, const ct_type *const *also, size_t n_also,
                              ct_tensor *slopes) {
    ct_tensor t = ct__record(op, attrs, d->all, (int)(d->n_operands + d->n_slopes), d->here);
    uint32_t at = (uint32_t)n_out;
    ct__outputs(t, out, n_out);
    for (size_t i = 0; i < n_also; i++)
        slopes[i] = derivative_has_slope(also[i]) ? ct__output(t, at++) : CT_NONE;
}

void ct__jvp(const char *op, const char *what, ct_fn f, void *user, const ct_tensor *in,
             size_t n_in, ct_tensor *out, size_t n_out, const ct_tensor *tangents,
             ct_tensor *out_tangents, ct_loc here) {
    derived d = {.ctx = ct__ctx(), .op = op, .here = here};
    if (!d.ctx || !ct__call_given(d.ctx, op, in, n_in, out, n_out, here) ||
        (n_out && !ct__given(d.ctx, out_tangents, here, op, "the array for the tangents")))
        return;
    char list[32];
    snprintf(list, sizeof list, "the list of %ss", what);
    if ((!n_in || ct__given(d.ctx, tangents, here, op, list)) &&
        derivative_begin(&d, f, user, in, n_in, n_out) &&
        derivative_add_slopes(&d, what, "operand", tangents, d.types, n_in)) {
        const jvp_attrs attrs = {.body = d.body, .moving = {(int64_t)d.n_slopes, d.positions}};
        derivative_record(&d, &ct__op_jvp, &attrs, out, n_out, d.outs, n_out, out_tangents);
    } else {
        ct__poison_all(d.ctx, out, n_out, here);
        ct__poison_all(d.ctx, out_tangents, n_out, here);
    }
}
void ct_jvp_at(ct_fn f, void *user, const ct_tensor *in, size_t n_in, ct_tensor *out, size_t n_out,
               const ct_tensor *tangents, ct_tensor *out_tangents, ct_loc here) {
    ct__jvp("jvp", "tangent", f, user, in, n_in, out, n_out, tangents, out_tangents, here);
}

void ct_vjp_at(ct_fn f, void *user, const ct_tensor *in, size_t n_in, ct_tensor *out, size_t n_out,
               const ct_tensor *cotangents, ct_tensor *grads, ct_loc here) {
    derived d = {.ctx = ct__ctx(), .op = "vjp", .here = here};
    if (!d.ctx || !ct__call_given(d.ctx, "vjp", in, n_in, out, n_out, here) ||
        (n_in && !ct__given(d.ctx, grads, here, "vjp", "the array for the gradients")))
        return;
    if ((!n_out || ct__given(d.ctx, cotangents, here, "vjp", "the list of cotangents")) &&
        derivative_begin(&d, f, user, in, n_in, n_out) &&
        derivative_add_slopes(&d, "cotangent", "result", cotangents, d.outs, n_out)) {
        const vjp_attrs attrs = {.body = d.body, .given = {(int64_t)d.n_slopes, d.positions}};
        derivative_record(&d, &ct__op_vjp, &attrs, out, n_out, d.types, n_in, grads);
    } else {
        ct__poison_all(d.ctx, out, n_out, here);
        ct__poison_all(d.ctx, grads, n_in, here);
    }
}

// ------------------------------------------------------------------------------------ linear maps

// ct_linearize records a call. Each use of the linear map records the function once more, together with its
// derivative; a plan computes equal nodes once.
ct_linear_map ct_linearize_at(ct_fn f, void *user, const ct_tensor *in, size_t n_in, ct_tensor *out,
                              size_t n_out, ct_loc here) {
    derived d = {.ctx = ct__ctx(), .op = "linearize", .here = here};
    const ct_linear_map none = {CT_NONE, n_in, n_out};
    if (!d.ctx || !ct__call_given(d.ctx, d.op, in, n_in, out, n_out, here)) return none;
    if (!n_out) {
        ct__fail(d.ctx, CT_E_ARGUMENT, here, d.op, "the function has no results");
        return none;
    }
    if (!derivative_begin(&d, f, user, in, n_in, n_out)) {
        ct__poison_all(d.ctx, out, n_out, here);
        return (ct_linear_map){out[0], n_in, n_out};
    }
    const call_attrs attrs = {.body = d.body};
    ct__outputs(ct__record(&ct__op_call, &attrs, d.all, (int)d.n_operands, here), out, n_out);
    return (ct_linear_map){out[0], n_in, n_out};
}

// Initialises d from the function of a linear map and its operands, like derivative_begin.
static bool derivative_begin_linear(derived *d, ct_linear_map map) {
    ct_arena *arena = ct__top(d->ctx)->arena;
    ct_val v;
    uint32_t output;
    const ct_node *node = ct__peek(map.out, &output);
    if (!node || node->op != &ct__op_call) {
        if (ct__resolve(d->ctx, map.out, &v, d->op, 0, d->here))
            ct__fail(d->ctx, CT_E_ARGUMENT, d->here, d->op, "it is not what ct_linearize gave");
        return false;
    }
    size_t capacity = map.n_in > map.n_out ? map.n_in : map.n_out;
    d->body = ((const call_attrs *)node->attrs)->body;
    d->n_operands = node->n_in;
    d->all = ct__arena(arena, (d->n_operands + capacity + 1) * sizeof *d->all);
    d->positions = ct__arena(arena, (capacity + 1) * sizeof *d->positions);
    d->types = ct__arena(arena, (map.n_in + 1) * sizeof *d->types);
    d->outs = ct__arena(arena, (map.n_out + 1) * sizeof *d->outs);
    if (!d->all || !d->positions || !d->types || !d->outs)
        return ct__err_memory(&d->ctx->err, d->here, d->op, capacity * sizeof *d->positions);
    for (size_t i = 0; i < d->n_operands; i++) d->all[i] = ct__handle_of(node->in[i]);
    for (size_t i = 0; i < map.n_in; i++) d->types[i] = ct__type(node->in[i]);
    for (size_t i = 0; i < map.n_out; i++) d->outs[i] = ct__type(d->body->outs[i]);
    return true;
}
// Allocates space for the function's results, which are not used again. Returns NULL if out of memory,
// recorded.
static ct_tensor *derivative_alloc_results(const derived *d, size_t n) {
    ct_tensor *out = ct__arena(ct__top(d->ctx)->arena, (n + 1) * sizeof *out);
    if (!out) ct__err_memory(&d->ctx->err, d->here, d->op, n * sizeof *out);
    return out;
}

void ct_linear_apply_at(ct_linear_map map, const ct_tensor *tangents, ct_tensor *out_tangents,
                        ct_loc here) {
    derived d = {.ctx = ct__ctx(), .op = "linear_apply", .here = here};
    ct_tensor *out;
    if (!d.ctx ||
        (map.n_out && !ct__given(d.ctx, out_tangents, here, d.op, "the array for the tangents")))
        return;
    if ((!map.n_in || ct__given(d.ctx, tangents, here, d.op, "the list of tangents")) &&
        derivative_begin_linear(&d, map) && (out = derivative_alloc_results(&d, map.n_out)) &&
        derivative_add_slopes(&d, "tangent", "operand", tangents, d.types, map.n_in)) {
        const jvp_attrs attrs = {.body = d.body, .moving = {(int64_t)d.n_slopes, d.positions}};
        derivative_record(&d, &ct__op_jvp, &attrs, out, map.n_out, d.outs, map.n_out, out_tangents);
    } else {
        ct__poison_all(d.ctx, out_tangents, map.n_out, here);
    }
}

void ct_linear_transpose_at(ct_linear_map map, const ct_tensor *cotangents, ct_tensor *grads,
                            ct_loc here) {
    derived d = {.ctx = ct__ctx(), .op = "linear_transpose", .here = here};
    ct_tensor *out;
    if (!d.ctx || (map.n_in && !ct__given(d.ctx, grads, here, d.op, "the array for the gradients")))
        return;
    if ((!map.n_out || ct__given(d.ctx, cotangents, here, d.op, "the list of cotangents")) &&
        derivative_begin_linear(&d, map) && (out = derivative_alloc_results(&d, map.n_out)) &&
        derivative_add_slopes(&d, "cotangent", "result", cotangents, d.outs, map.n_out)) {
        const vjp_attrs attrs = {.body = d.body, .given = {(int64_t)d.n_slopes, d.positions}};
        derivative_record(&d, &ct__op_vjp, &attrs, out, map.n_out, d.types, map.n_in, grads);
    } else {
        ct__poison_all(d.ctx, grads, map.n_in, here);
    }
}

// ---------------------------------------------------------------------------------- value and grad

// Checks that the first result can be differentiated: one float.
static bool derivative_check_loss(derived *d, size_t n_out) {
    const bool complex = n_out && ct__is_complex((ct_dtype)d->outs[0]->dtype);
    if (n_out && derivative_has_slope(d->outs[0]) && !complex && ct__count(d->outs[0]) == 1)
        return true;
    if (!n_out)
        return ct__refuse(d->ctx, CT_E_ARGUMENT, d->here, d->op, "the function has no results");
    bool floats = derivative_has_slope(d->outs[0]) && !complex;
    ct__fail(d->ctx, floats ? CT_E_SHAPE : CT_E_DTYPE, d->here, d->op,
             "the first result must be one float, it is %s", ct__type_text(d->outs[0]).s);
    return ct__err_hint(&d->ctx->err, complex  ? "ct_real or ct_abs makes a float of it"
                                      : floats ? "ct_mean or ct_sum makes it one number"
                                               : "only what is computed in floats has gradients");
}

void ct__value_and_grad(const char *op, ct_fn f, void *user, const ct_tensor *in, size_t n_in,
                        ct_tensor *out, size_t n_out, ct_tensor *grads, ct_loc here) {
    derived d = {.ctx = ct__ctx(), .op = op, .here = here};
    if (!d.ctx || !ct__call_given(d.ctx, d.op, in, n_in, out, n_out, here) ||
        (n_in && !ct__given(d.ctx, grads, here, d.op, "the array for the gradients")))
        return;
    if (derivative_begin(&d, f, user, in, n_in, n_out) && derivative_check_loss(&d, n_out)) {
        ct_dims_buffer dims;
        ct_tensor one =
            ct_ones_at((ct_dtype)d.outs[0]->dtype, ct__type_dims(d.outs[0], &dims), here);
        derivative_add_slope(&d, "cotangent", "result", 0, one, d.outs[0]);
        const vjp_attrs attrs = {.body = d.body, .given = {(int64_t)d.n_slopes, d.positions}};
        derivative_record(&d, &ct__op_vjp, &attrs, out, n_out, d.types, n_in, grads);
    } else {
        ct__poison_all(d.ctx, out, n_out, here);
        ct__poison_all(d.ctx, grads, n_in, here);
    }
}
void ct_value_and_grad_at(ct_fn f, void *user, const ct_tensor *in, size_t n_in, ct_tensor *out,
                          size_t n_out, ct_tensor *grads, ct_loc here) {
    ct__value_and_grad("value_and_grad", f, user, in, n_in, out, n_out, grads, here);
}
