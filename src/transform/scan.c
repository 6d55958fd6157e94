// Loops in the graph: one traced body run many times, with its gradient.
//
// Operands of a scan node: carried tensors, xs, then what the body captured. Outputs: the last
// carried tensors, ys. The gradient is a scan in the other direction that calls the body's vjp at
// each element; the carried tensors of every iteration are kept by a forward scan that gives them
// out as ys, and everything inside an iteration is computed again.
#include <string.h>

#include "backend/backend.h"
#include "ops/rules.h"
#include "transform/trace.h"

CT_ATTR_FIELDS(scan, SCAN_ATTRS);

// One element of x along axis 0, as the body sees it.
static ct_type element_type(const ct_type *x) {
    return (ct_type){.dtype = x->dtype,
                     .rank = (uint8_t)(x->rank - 1),
                     .dyn = x->dyn >> 1,
                     .dim = x->dim + 1,
                     .mark = x->mark && x->dyn >> 1 ? x->mark + 1 : NULL};
}

static bool scan_infer(ct_call *call) {
    const scan_attrs *a = call->attrs;
    const ct_body *body = a->body;
    if (!ct__call_outs(call, (int)body->n_outs)) return false;
    for (int64_t i = 0; i < (int64_t)body->n_outs; i++) {
        const ct_type *out = ct__type(body->outs[i]);
        if (i < a->n_carry) {
            const ct_type *in = call->in[i];
            if (out->dtype != in->dtype || !ct__same_shape(out, in))
                return ct__call_err(call, CT_E_SHAPE,
                                    "carried tensor %lld is %s, the body makes it %s",
                                    (long long)i + 1, ct__type_text(in).s, ct__type_text(out).s);
            call->out[i] = *in; // not the body's sizes, which go with the user's scope
            call->out[i].weak = false;
            continue;
        }
        ct_shape shape = ct__call_shape(call, out->rank + 1);
        if (!shape.dim) return false;
        ct__shape_add(&shape, a->length);
        for (int k = 0; k < out->rank; k++) ct__shape_add_axis(&shape, out, k);
        call->out[i] = ct__shaped(&shape, out->dtype, false);
    }
    return true;
}

// ---------------------------------------------------------------------------- reference evaluation

typedef struct {
    void ***slot; // (n_nodes) of each node of the body, where its outputs lie
    void **args;  // operands and outputs of one node
} frame;

static bool run_body(const ct_ref *ref, const ct_body *body, frame *f) {
    for (size_t i = 0; i < body->n_nodes; i++) {
        const ct_node *node = body->nodes[i];
        if (node->op->kind == &ct__kind_leaf) continue;
        for (int k = 0; k < node->n_in; k++)
            f->args[k] = f->slot[node->in[k].node->index][node->in[k].out];
        for (int k = 0; k < node->n_out; k++) f->args[node->n_in + k] = f->slot[i][k];
        if (!ct__ref_node(node, f->args, ref->err)) return false;
    }
    return true;
}

static bool make_frame(const ct_body *body, ct_arena *arena, frame *f) {
    size_t most = 0;
    f->slot = ct__arena(arena, (body->n_nodes + 1) * sizeof *f->slot);
    for (size_t i = 0; i < body->n_nodes && f->slot; i++) {
        ct_node *node = body->nodes[i];
        node->index = (uint32_t)i;
        if (node->n_in + node->n_out > most) most = node->n_in + node->n_out;
        if (!(f->slot[i] = ct__arena(arena, node->n_out * sizeof **f->slot))) return false;
        for (int k = 0; k < node->n_out; k++)
            if (!(f->slot[i][k] = ct__arena(arena, ct__type_bytes(&node->out[k]) + 8)))
                return false;
        if (node->op == &ct__op_const) {
            const ct_data_bytes *data = node->attrs;
            memcpy(f->slot[i][0], data->bytes, data->n);
        }
    }
    f->args = ct__arena(arena, (most + 1) * sizeof *f->args);
    return f->slot && f->args;
}

// Of values without elements there may be no memory.
static void copy(void *to, const void *from, size_t bytes) {
    if (bytes) memcpy(to, from, bytes);
}

static bool scan_eval(const ct_ref *ref) {
    const scan_attrs *a = ref->attrs;
    const ct_body *body = a->body;
    ct_arena arena = {0};
    frame f = {0};
    bool ok = make_frame(body, &arena, &f);
    if (!ok) ct__err_memory(ref->err, ref->node->here, "scan", body->n_nodes * sizeof *f.slot);
    for (int64_t i = 0; i < a->n_carry && ok; i++)
        copy(ref->out[i], ref->in[i], ct__type_bytes(&ref->out_type[i]));
    int64_t length = ct__unmarked(a->length);
    for (int64_t step = 0; step < length && ok; step++) {
        int64_t at = a->reverse ? length - 1 - step : step;
        for (size_t i = 0; i < body->n_nodes; i++) {
            const ct_node *node = body->nodes[i];
            if (node->op != &ct__op_param) continue;
            size_t bytes = ct__type_bytes(node->out);
            int64_t p = (int64_t)node->number;
            const char *from = p < a->n_carry ? ref->out[p] : ref->in[p];
            if (p >= a->n_carry && p < a->n_carry + a->n_xs) from += (size_t)at * bytes;
            copy(f.slot[i][0], from, bytes);
        }
        ok = run_body(ref, body, &f);
        for (size_t i = 0; i < body->n_outs && ok; i++) {
            size_t bytes = ct__type_bytes(ct__type(body->outs[i]));
            char *to = (char *)ref->out[i] + ((int64_t)i < a->n_carry ? 0 : (size_t)at * bytes);
            copy(to, f.slot[body->outs[i].node->index][body->outs[i].out], bytes);
        }
    }
    ct__arena_free(&arena);
    return ok;
}

// ------------------------------------------------------------------------------------ the gradient

typedef struct { // what the traced functions of the gradient know
    const ct_node *node;
    const scan_attrs *a;
    const ct_tensor *captured; // (n_captured) operands of the scan
    size_t n_captured;
    const bool *wants; // (n_captured) is float
} backward;

static bool no_memory(const ct_node *node) {
    return ct__err_memory(&ct__ctx()->err, node->here, "scan", sizeof(ct_tensor));
}

static void keep_carries(const ct_tensor *in, ct_tensor *out, void *user) {
    const backward *b = user;
    size_t n = b->a->body->n_outs, carried = (size_t)b->a->n_carry;
    ct_arena scratch = {0};
    size_t own = carried + (size_t)b->a->n_xs;
    ct_tensor *args = ct__arena(&scratch, (own + b->n_captured + 1) * sizeof *args);
    if (args) {
        memcpy(args, in, own * sizeof *args);
        memcpy(args + own, b->captured, b->n_captured * sizeof *args);
        ct_tensor *all = ct__arena_zero(&scratch, (n + 1) * sizeof *all);
        if (!all)
            no_memory(b->node);
        else if (ct__inline(ct__ctx(), b->a->body, args, all))
            memcpy(out, all, carried * sizeof *out);
        for (size_t i = 0; i < carried; i++) out[carried + i] = in[i];
    } else {
        no_memory(b->node);
    }
    ct__arena_free(&scratch);
}

// One element backwards. In: cotangents of the carried tensors, sums of cotangents of what was
// captured, then elements of the kept carries, of xs and of the cotangents of ys. Out: the same
// sums after it, then cotangents of xs.
static void one_back(const ct_tensor *in, ct_tensor *out, void *user) {
    const backward *b = user;
    const ct_body *body = b->a->body;
    ct_ctx *ctx = ct__ctx();
    size_t nc = (size_t)b->a->n_carry, nx = (size_t)b->a->n_xs, ncap = b->n_captured;
    size_t own = nc + nx, total = own + ncap;
    const ct_tensor *c_carry = in, *sums = in + nc, *carries = sums + ncap, *xs = carries + nc,
                    *c_ys = xs + nx;
    ct_arena scratch = {0};
    ct_tensor *args = ct__arena_zero(&scratch, (total + 1) * sizeof *args),
              *outs = ct__arena_zero(&scratch, (body->n_outs + 1) * sizeof *outs);
    ct_tensor *cots = ct__arena_zero(&scratch, (body->n_outs + 1) * sizeof *cots),
              *grads = ct__arena_zero(&scratch, (total + 1) * sizeof *grads);
    ct_val *vals = ct__arena_zero(&scratch, (body->n_outs + 1) * sizeof *vals),
           *wrt = ct__arena_zero(&scratch, (total + 1) * sizeof *wrt);
    bool ok = (args && outs && cots && grads && vals && wrt) || no_memory(b->node);
    if (ok) {
        memcpy(args, carries, nc * sizeof *args);
        memcpy(args + nc, xs, nx * sizeof *args);
        for (size_t i = 0; i < ncap; i++) args[own + i] = b->captured[i];
        ok = ct__inline(ctx, body, args, outs);
    }
    for (size_t i = 0; i < body->n_outs && ok; i++) {
        ok = ct__resolve(ctx, outs[i], &vals[i], "scan", (int)i, b->node->here);
        cots[i] = !ct__is_float(ct__type(vals[i])->dtype) ? CT_NONE
                  : i < nc                                ? c_carry[i]
                                                          : c_ys[i - nc];
    }
    for (size_t i = 0; i < total && ok; i++)
        ok = ct__resolve(ctx, args[i], &wrt[i], "scan", (int)i, b->node->here);
    ok = ok && ct__vjp_expand(ctx, b->node->here, vals, cots, body->n_outs, wrt, total, grads);
    for (size_t i = 0; i < total && ok; i++)
        if (ct__is_none(grads[i]) || !ct__is_float(ct__type(wrt[i])->dtype))
            grads[i] = ct__zeros_like(args[i]);
    for (size_t i = 0; i < nc && ok; i++) out[i] = grads[i];
    for (size_t i = 0; i < ncap && ok; i++)
        out[nc + i] = b->wants[i] ? ct_add(sums[i], grads[own + i]) : sums[i];
    for (size_t i = 0; i < nx && ok; i++) out[nc + ncap + i] = grads[nc + i];
    ct__arena_free(&scratch);
}

static bool scan_vjp(ct_rule *r) {
    const scan_attrs *a = r->attrs;
    size_t nc = (size_t)a->n_carry, nx = (size_t)a->n_xs, ny = (size_t)r->n_out - nc,
           ncap = (size_t)r->n_in - nc - nx;
    ct_arena scratch = {0};
    bool *wants = ct__arena_zero(&scratch, ncap + 1);
    ct_tensor *kept = ct__arena_zero(&scratch, (2 * nc + 1) * sizeof *kept),
              *carry = ct__arena(&scratch, (nc + ncap + 1) * sizeof *carry);
    ct_tensor *xs = ct__arena(&scratch, (nc + nx + ny + 1) * sizeof *xs),
              *c_xs = ct__arena_zero(&scratch, (nx + 1) * sizeof *c_xs);
    ct_tensor *last = ct__arena_zero(&scratch, (nc + ncap + 1) * sizeof *last);
    if (!wants || !kept || !carry || !xs || !c_xs || !last) {
        ct__arena_free(&scratch);
        return no_memory(r->node);
    }
    backward b = {r->node, a, r->in + nc + nx, ncap, wants};
    ct_scan_with((ct_scan_args){.body = keep_carries,
                                .user = &b,
                                .carry = r->in,
                                .n_carry = nc,
                                .xs = r->in + nc,
                                .n_xs = nx,
                                .n_ys = nc,
                                .length = a->length,
                                .reverse = a->reverse,
                                .here = r->node->here},
                 kept, kept + nc);
    for (size_t i = 0; i < nc; i++)
        carry[i] = ct__is_none(r->c_out[i]) ? ct__zeros_like(r->out[i]) : r->c_out[i];
    for (size_t i = 0; i < ncap; i++) {
        wants[i] = ct__is_float(ct__type_of(b.captured[i])->dtype);
        carry[nc + i] = ct__zeros_like(b.captured[i]);
    }
    memcpy(xs, kept + nc, nc * sizeof *xs);
    memcpy(xs + nc, r->in + nc, nx * sizeof *xs);
    for (size_t i = 0; i < ny; i++)
        xs[nc + nx + i] =
            ct__is_none(r->c_out[nc + i]) ? ct__zeros_like(r->out[nc + i]) : r->c_out[nc + i];
    ct_scan_with((ct_scan_args){.body = one_back,
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
    ct__arena_free(&scratch);
    return !ct_failed();
}

const ct_opdef ct__op_scan = {
    .id = CT_OP_SCAN,
    .name = "scan",
    .doc = "A traced body run once an element of xs, carrying tensors along.",
    .kind = &ct__kind_loop,
    .n_in = -1,
    .n_out = -1,
    CT_FIELDS(scan),
    .accepts = CT_ANY,
    .infer = scan_infer,
    .eval = scan_eval,
    .vjp = scan_vjp,
};

// --------------------------------------------------------------------------------------- recording

// The length is dynamic where it is declared so, or some xs' axis 0 is.
static bool scan_types(ct_ctx *ctx, ct_scan_args *args, const ct_tensor *in, ct_type *types) {
    bool given = args->length != 0;
    int64_t length = ct__unmarked(args->length);
    for (size_t i = 0; i < args->n_carry + args->n_xs; i++) {
        ct_val v;
        if (!ct__resolve(ctx, in[i], &v, "scan", (int)i, args->here)) return false;
        const ct_type *t = ct__type(v);
        if (i < args->n_carry) {
            types[i] = *t;
            types[i].weak = false; // behind the first round it is what the body made
            continue;
        }
        if (t->rank == 0) {
            ct__fail(ctx, CT_E_SHAPE, args->here, "scan",
                     "operand %zu is %s, it has no axis to go along", i + 1, ct__type_text(t).s);
            return false;
        }
        if (!given && i == args->n_carry) args->length = ct__size_of(t, 0), length = t->dim[0];
        if (t->dim[0] != length) {
            ct__fail(ctx, CT_E_SHAPE, args->here, "scan",
                     "operand %zu is %s, the loop has length %lld", i + 1, ct__type_text(t).s,
                     (long long)length);
            return false;
        }
        ct__size_equal(args->length, ct__size_of(t, 0));
        if (!ct__marked(args->length)) args->length = ct__size_of(t, 0);
        types[i] = element_type(t);
    }
    if (length < 0) {
        ct__fail(ctx, CT_E_ARGUMENT, args->here, "scan", "the length is %lld", (long long)length);
        return false;
    }
    return true;
}

static bool record_scan(ct_ctx *ctx, ct_scan_args args, ct_tensor *result) {
    size_t own = args.n_carry + args.n_xs, n_out = args.n_carry + args.n_ys;
    ct_arena *arena = ct__top(ctx)->arena;
    ct_tensor *in = ct__arena(arena, (own + 1) * sizeof *in);
    ct_type *types = ct__arena(arena, (own + 1) * sizeof *types);
    const ct_type **refs = ct__arena(arena, (own + 1) * sizeof *refs);
    if (!in || !types || !refs)
        return ct__err_memory(&ctx->err, args.here, "scan", own * sizeof *types);
    if (args.n_carry) memcpy(in, args.carry, args.n_carry * sizeof *in);
    if (args.n_xs) memcpy(in + args.n_carry, args.xs, args.n_xs * sizeof *in);
    if (!scan_types(ctx, &args, in, types)) return false;
    for (size_t i = 0; i < own; i++) refs[i] = &types[i];
    const ct_traced traced = {
        .op = "scan", .f = args.body, .user = args.user, .unset = "the body did not set output"};
    ct_body *body = ct__trace(ctx, &traced, refs, own, n_out, args.here);
    ct_tensor *all = body ? ct__arena(arena, (own + body->n_captured + 1) * sizeof *all) : NULL;
    if (!all) return false;
    memcpy(all, in, own * sizeof *all);
    for (size_t i = 0; i < body->n_captured; i++)
        all[own + i] = ct__handle_of(body->captured_from[i]);
    scan_attrs attrs = {.body = body,
                        .n_carry = (int64_t)args.n_carry,
                        .n_xs = (int64_t)args.n_xs,
                        .length = args.length,
                        .reverse = args.reverse};
    *result = ct__record(&ct__op_scan, &attrs, all, (int)(own + body->n_captured), args.here);
    return true;
}

void ct_scan_with(ct_scan_args args, ct_tensor *carry_out, ct_tensor *ys) {
    ct_ctx *ctx = ct__ctx();
    ct_tensor t = CT_NONE;
    if (!ctx || !ct__possible(ctx, args.n_carry, args.here, "scan", "the carried tensors") ||
        !ct__possible(ctx, args.n_xs, args.here, "scan", "xs") ||
        !ct__possible(ctx, args.n_ys, args.here, "scan", "ys") ||
        (args.n_carry && !ct__given(ctx, carry_out, args.here, "scan", "the room for carry_out")) ||
        (args.n_ys && !ct__given(ctx, ys, args.here, "scan", "the room for ys")))
        return;
    bool ok = ct__given(ctx, (void *)(uintptr_t)args.body, args.here, "scan", "the body") &&
              (!args.n_carry || ct__given(ctx, args.carry, args.here, "scan", "carry")) &&
              (!args.n_xs || ct__given(ctx, args.xs, args.here, "scan", "xs")) &&
              record_scan(ctx, args, &t);
    for (size_t i = 0; i < args.n_carry; i++)
        carry_out[i] = ok ? ct__output(t, (uint32_t)i) : ct__poison(ctx, args.here);
    for (size_t i = 0; i < args.n_ys; i++)
        ys[i] = ok ? ct__output(t, (uint32_t)(args.n_carry + i)) : ct__poison(ctx, args.here);
}
