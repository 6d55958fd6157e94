// Scan: a traced body that runs once per element of xs, and its gradient.
//
// Operands of a scan node: carried tensors, xs, then what the body captured. Outputs: the last carried
// tensors, ys. The gradient is a scan in the other direction that calls the body's vjp at each element. The
// carried tensors of every iteration are stored by a forward scan that returns them as ys, and everything
// inside an iteration is recomputed.
#include <string.h>

#include "ops/rules.h"
#include "transform/loop.h"

#define SCAN_ATTRS(F, op)                                                                          \
    F(op, bodies, bodies)                                                                          \
    F(op, i64, n_carry) F(op, i64, n_xs) F(op, turns, length) F(op, bool, reverse)
CT_ATTRS(scan, SCAN_ATTRS);
static const ct_body *scan_body(const scan_attrs *a) { return a->bodies.v[0]; }

static void scan_loop(const ct_node *node, ct_loop *loop) {
    const scan_attrs *a = node->attrs;
    *loop = (ct_loop){.form = CT_LOOP_SCAN,
                      .n_shared = (size_t)(a->n_carry + a->n_xs),
                      .n_carry = (size_t)a->n_carry,
                      .n_xs = (size_t)a->n_xs,
                      .length = a->length,
                      .reverse = a->reverse,
                      .bodies = a->bodies};
}

// A scan slices a tensor into elements that are contiguous in memory: elements of 4 bits must fill whole
// bytes.
static bool scan_check_whole_bytes(ct_call *call, const char *what, int64_t number,
                                   const ct_type *element) {
    const int64_t bits = ct_dtype_bits((ct_dtype)element->dtype);
    int64_t known_bits = bits; // a divisor of its number of bits, whatever the dynamic sizes are
    for (int i = 0; i < element->rank; i++)
        if (!ct__is_dyn(element, i)) known_bits = known_bits * element->dim[i] % 8;
    if (known_bits % 8 == 0) return true;
    ct__call_err(call, CT_E_DTYPE, "an element of %s %lld is %s, which is no whole number of bytes",
                 what, (long long)number, ct__type_text(element).s);
    return ct__call_hint(call, "go along a tensor of 8 bits, and cast it inside or after");
}

static bool loop_scan_infer(ct_call *call) {
    const scan_attrs *a = call->attrs;
    const ct_body *body = scan_body(a);
    if (!ct__call_outs(call, (int)body->n_outs)) return false;
    ct__loop_sizes(call);
    for (int64_t i = a->n_carry; i < a->n_carry + a->n_xs; i++) {
        if (call->marks) ct__size_equal(a->length, ct__size_of(call->in[i], 0));
        const ct_type element = ct__element_type(call->in[i]);
        if (!scan_check_whole_bytes(call, "operand", i + 1, &element)) return false;
    }
    for (int64_t i = 0; i < (int64_t)body->n_outs; i++) {
        const ct_type *out = ct__type(body->outs[i]);
        if (i < a->n_carry) {
            // not the body's sizes, which are freed with the user's scope
            call->out[i] = *call->in[i];
            call->out[i].weak = false;
            continue;
        }
        if (!scan_check_whole_bytes(call, "output", i + 1, out)) return false;
        ct_shape shape = ct__call_shape(call, out->rank + 1);
        if (!shape.dim) return false;
        ct__shape_add(&shape, a->length);
        for (int k = 0; k < out->rank; k++) ct__shape_add_axis(&shape, out, k);
        call->out[i] = ct__shaped(&shape, out->dtype, false);
    }
    return true;
}

// ------------------------------------------------------------------------------------ the gradient

typedef struct { // state of the traced functions of the gradient
    const ct_node *node;
    const scan_attrs *a;
    const ct_tensor *captured; // (n_captured) operands of the scan
    size_t n_captured;
    const bool *wants; // (n_captured) true if float
} backward;

static bool scan_no_memory(const ct_node *node) {
    return ct__err_memory(&ct__ctx()->err, node->here, "scan", sizeof(ct_tensor));
}

static void scan_forward_body(const ct_tensor *in, ct_tensor *out, void *user) {
    const backward *b = user;
    size_t n = scan_body(b->a)->n_outs, carried = (size_t)b->a->n_carry;
    CT_ARENA scratch = {0};
    size_t own = carried + (size_t)b->a->n_xs;
    ct_tensor *args = ct__arena(&scratch, (own + b->n_captured + 1) * sizeof *args);
    if (args) {
        memcpy(args, in, own * sizeof *args);
        memcpy(args + own, b->captured, b->n_captured * sizeof *args);
        ct_tensor *all = ct__arena_zero(&scratch, (n + 1) * sizeof *all);
        if (!all)
            scan_no_memory(b->node);
        else if (ct__inline(ct__ctx(), scan_body(b->a), args, all))
            memcpy(out, all, carried * sizeof *out);
        for (size_t i = 0; i < carried; i++) out[carried + i] = in[i];
    } else {
        scan_no_memory(b->node);
    }
}

// One element backward. In: cotangents of the carried tensors, sums of cotangents of what was captured, then
// elements of the stored carries, of xs and of the cotangents of ys. Out: the same sums after it, then
// cotangents of xs.
static void scan_backward_body(const ct_tensor *in, ct_tensor *out, void *user) {
    const backward *b = user;
    const ct_body *body = scan_body(b->a);
    ct_ctx *ctx = ct__ctx();
    size_t nc = (size_t)b->a->n_carry, nx = (size_t)b->a->n_xs, ncap = b->n_captured;
    size_t own = nc + nx, total = own + ncap;
    const ct_tensor *c_carry = in, *sums = in + nc, *carries = sums + ncap, *xs = carries + nc,
                    *c_ys = xs + nx;
    CT_ARENA scratch = {0};
    ct_tensor *args = ct__arena_zero(&scratch, (total + 1) * sizeof *args),
              *outs = ct__arena_zero(&scratch, (body->n_outs + 1) * sizeof *outs);
    ct_tensor *cots = ct__arena_zero(&scratch, (body->n_outs + 1) * sizeof *cots),
              *grads = ct__arena_zero(&scratch, (total + 1) * sizeof *grads);
    ct_val *vals = ct__arena_zero(&scratch, (body->n_outs + 1) * sizeof *vals),
           *wrt = ct__arena_zero(&scratch, (total + 1) * sizeof *wrt);
    bool ok = (args && outs && cots && grads && vals && wrt) || scan_no_memory(b->node);
    if (ok) {
        memcpy(args, carries, nc * sizeof *args);
        memcpy(args + nc, xs, nx * sizeof *args);
        // A tensor that was captured twice has two gradients, which are added after the loop.
        for (size_t i = 0; i < ncap; i++)
            args[own + i] = ct__record(&ct__op_same, NULL, &b->captured[i], 1, b->node->here);
        ok = ct__inline(ctx, body, args, outs);
    }
    for (size_t i = 0; i < body->n_outs && ok; i++) {
        ok = ct__resolve(ctx, outs[i], &vals[i], "scan", (int)i, b->node->here);
        cots[i] = !ct__is_differentiable(ct__type(vals[i])->dtype) ? CT_NONE
                  : i < nc                                         ? c_carry[i]
                                                                   : c_ys[i - nc];
    }
    ok = ok && ct__resolve_all(ctx, args, total, wrt, "scan", b->node->here);
    ok = ok && ct__vjp_expand(ctx, b->node->here, vals, cots, body->n_outs, wrt, total, grads);
    for (size_t i = 0; i < total && ok; i++)
        if (ct__is_none(grads[i]) || !ct__is_differentiable(ct__type(wrt[i])->dtype))
            grads[i] = ct__zeros_like(args[i]);
    for (size_t i = 0; i < nc && ok; i++) out[i] = grads[i];
    for (size_t i = 0; i < ncap && ok; i++)
        out[nc + i] = b->wants[i] ? ct_add(sums[i], grads[own + i]) : sums[i];
    for (size_t i = 0; i < nx && ok; i++) out[nc + ncap + i] = grads[nc + i];
}

static bool scan_vjp(ct_rule *r) {
    const scan_attrs *a = r->attrs;
    size_t nc = (size_t)a->n_carry, nx = (size_t)a->n_xs, ny = (size_t)r->n_out - nc,
           ncap = (size_t)r->n_in - nc - nx;
    CT_ARENA scratch = {0};
    bool *wants = ct__arena_zero(&scratch, ncap + 1);
    ct_tensor *carries = ct__arena_zero(&scratch, (2 * nc + 1) * sizeof *carries),
              *carry = ct__arena(&scratch, (nc + ncap + 1) * sizeof *carry);
    ct_tensor *xs = ct__arena(&scratch, (nc + nx + ny + 1) * sizeof *xs),
              *c_xs = ct__arena_zero(&scratch, (nx + 1) * sizeof *c_xs);
    ct_tensor *last = ct__arena_zero(&scratch, (nc + ncap + 1) * sizeof *last);
    if (!wants || !carries || !carry || !xs || !c_xs || !last) {
        return scan_no_memory(r->node);
    }
    backward b = {r->node, a, r->in + nc + nx, ncap, wants};
    ct__scan((ct_scan_args){.body = scan_forward_body,
                            .user = &b,
                            .carry = r->in,
                            .n_carry = nc,
                            .xs = r->in + nc,
                            .n_xs = nx,
                            .n_ys = nc,
                            .length = a->length,
                            .reverse = a->reverse,
                            .here = r->node->here},
             carries, carries + nc);
    for (size_t i = 0; i < nc; i++)
        carry[i] = ct__is_none(r->c_out[i]) ? ct__zeros_like(r->out[i]) : r->c_out[i];
    for (size_t i = 0; i < ncap; i++) {
        wants[i] = ct__is_differentiable(ct__type_of(b.captured[i])->dtype);
        carry[nc + i] = ct__zeros_like(b.captured[i]);
    }
    memcpy(xs, carries + nc, nc * sizeof *xs);
    memcpy(xs + nc, r->in + nc, nx * sizeof *xs);
    for (size_t i = 0; i < ny; i++)
        xs[nc + nx + i] =
            ct__is_none(r->c_out[nc + i]) ? ct__zeros_like(r->out[nc + i]) : r->c_out[nc + i];
    ct__scan((ct_scan_args){.body = scan_backward_body,
                            .user = &b,
                            .carry = carry,
                            .n_carry = nc + ncap,
                            .xs = xs,
                            .n_xs = nc + nx + ny,
                            .n_ys = nx,
                            .length = a->length,
                            .reverse = !a->reverse,
                            .here = r->node->here},
             last, c_xs);
    for (size_t i = 0; i < nc; i++) r->c_in[i] = last[i];
    for (size_t i = 0; i < nx; i++) r->c_in[nc + i] = c_xs[i];
    for (size_t i = 0; i < ncap; i++) r->c_in[nc + nx + i] = wants[i] ? last[nc + i] : CT_NONE;
    return !ct_failed();
}

const ct_opdef ct__op_scan = {
    CT_OP(SCAN, scan, loop, -1, -1),
    .doc = "A traced body run once an element of xs, carrying tensors along.",
    CT_FIELDS(scan),
    .accepts = CT_ANY,
    .loop = scan_loop,
    .infer = loop_scan_infer,
    .eval = ct__loop_eval,
    .jvp = ct__loop_jvp,
    .vjp = scan_vjp,
    .batch = ct__scan_batch,
};

// --------------------------------------------------------------------------------------- recording

// Finds the length. It is dynamic if it is declared so, or if axis 0 of some xs is. The types of xs become
// those of elements.
static bool scan_find_length(ct_ctx *ctx, ct_scan_args *args, ct_operands *o) {
    bool given = args->length != 0;
    int64_t length = ct__unmarked(args->length);
    for (size_t i = args->n_carry; i < o->n; i++) {
        const ct_type t = o->type[i];
        if (t.rank == 0)
            return ct__refuse(ctx, CT_E_SHAPE, args->here, "scan",
                              "operand %zu is %s, it has no axis to go along", i + 1,
                              ct__type_text(&t).s);
        if (!given && i == args->n_carry) args->length = ct__size_of(&t, 0), length = t.dim[0];
        if (t.dim[0] != length) {
            ct__fail(ctx, CT_E_SHAPE, args->here, "scan",
                     "operand %zu is %s, the loop has length %lld", i + 1, ct__type_text(&t).s,
                     (long long)length);
            return ct__err_hint(&ctx->err,
                                given ? "it is .length; without it, it is the length of the xs"
                                      : "it is the size of axis 0, of all xs the same");
        }
        ct__size_equal(args->length, ct__size_of(&t, 0));
        if (!ct__marked(args->length)) args->length = ct__size_of(&t, 0);
        o->type[i] = ct__element_type(&t);
    }
    if (length < 0) {
        ct__fail(ctx, CT_E_ARGUMENT, args->here, "scan", "the length is %lld", (long long)length);
        return ct__err_hint(&ctx->err, "it is how often the body runs, at least 0");
    }
    return true;
}

typedef struct {
    const ct_scan_args *args;
    ct_operands o;
} iteration;

static void scan_trace_body(const ct_tensor *in, ct_tensor *out, void *user) {
    const iteration *it = user;
    const ct_scan_args *a = it->args;
    a->body(in, out, a->user);
    ct__carries_on(ct__ctx(), "scan", it->o.types, a->n_carry, out, a->n_carry + a->n_ys, a->here);
}

static bool scan_record(ct_ctx *ctx, ct_scan_args args, ct_tensor *result) {
    iteration it = {.args = &args};
    ct_operands *o = &it.o;
    if (!ct__operands(ctx, o, "scan", args.carry, args.n_carry, args.xs, args.n_xs, args.here) ||
        !scan_find_length(ctx, &args, o))
        return false;
    const ct_traced traced = {.op = "scan", .f = scan_trace_body, .user = &it};
    ct_body *body = ct__trace(ctx, &traced, o->types, o->n, args.n_carry + args.n_ys, args.here);
    if (!body) return false;
    scan_attrs attrs = {.bodies = {1, &body},
                        .n_carry = (int64_t)args.n_carry,
                        .n_xs = (int64_t)args.n_xs,
                        .length = args.length,
                        .reverse = args.reverse};
    *result = ct__record_loop(ctx, &ct__op_scan, &attrs, CT_NONE, o, attrs.bodies, args.here);
    return true;
}

static bool scan_has_length(ct_ctx *ctx, const ct_scan_args *args) {
    if (args->n_xs || args->length) return true;
    ct__fail(ctx, CT_E_ARGUMENT, args->here, "scan", "there are neither xs nor a length");
    return ct__err_hint(&ctx->err,
                        "give .length; ct_fori runs a number of iterations that may be 0");
}

static void scan_record_or_poison(ct_scan_args args, bool allows_zero, ct_tensor *carry_out,
                                  ct_tensor *ys) {
    ct_ctx *ctx = ct__ctx();
    ct_tensor t = CT_NONE;
    if (!ctx || !ct__possible(ctx, args.n_carry, args.here, "scan", "the carried tensors") ||
        !ct__possible(ctx, args.n_xs, args.here, "scan", "xs") ||
        !ct__possible(ctx, args.n_ys, args.here, "scan", "ys") ||
        (args.n_carry &&
         !ct__given(ctx, carry_out, args.here, "scan", "the array for carry_out")) ||
        (args.n_ys && !ct__given(ctx, ys, args.here, "scan", "the array for ys")))
        return;
    bool ok = ct__given(ctx, (void *)(uintptr_t)args.body, args.here, "scan", "the body") &&
              (!args.n_carry || ct__given(ctx, args.carry, args.here, "scan", "carry")) &&
              (!args.n_xs || ct__given(ctx, args.xs, args.here, "scan", "xs")) &&
              (allows_zero || scan_has_length(ctx, &args)) && scan_record(ctx, args, &t);
    ct__loop_results(ctx, ok, t, 0, carry_out, args.n_carry, args.here);
    ct__loop_results(ctx, ok, t, (uint32_t)args.n_carry, ys, args.n_ys, args.here);
}
void ct_scan_with(ct_scan_args args, ct_tensor *carry_out, ct_tensor *ys) {
    scan_record_or_poison(args, false, carry_out, ys);
}
void ct__scan(ct_scan_args args, ct_tensor *carry_out, ct_tensor *ys) {
    scan_record_or_poison(args, true, carry_out, ys);
}
