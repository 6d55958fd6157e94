// Forward mode of loops and branches: the same node, on the original values and their tangents.
#include <string.h>

#include "ops/rules.h"
#include "transform/loop.h"

typedef struct {
    const ct_rule *rule;
    ct_loop loop;
    size_t body;
} forward;

static bool loop_jvp_no_memory(const ct_rule *r, size_t n) {
    return ct__err_memory(&ct__ctx()->err, r->node->here, r->node->op->name, n * sizeof(ct_tensor));
}

// Inlines a body on args, and computes the tangents of its results along the tangents of args (CT_NONE: 0).
// Results that are not floats have none.
static bool loop_jvp_inline_body(const forward *f, const ct_tensor *args, const ct_tensor *tangents,
                                 ct_tensor *outs, ct_tensor *slopes) {
    const ct_body *body = f->loop.bodies.v[f->body];
    const ct_node *node = f->rule->node;
    ct_ctx *ctx = ct__ctx();
    size_t n = body->n_params + body->n_captured, n_wrt = 0;
    CT_ARENA scratch = {0};
    ct_val *vals = ct__arena(&scratch, (body->n_outs + 1) * sizeof *vals),
           *wrt = ct__arena(&scratch, (n + 1) * sizeof *wrt);
    ct_tensor *tangents_wrt = ct__arena(&scratch, (n + 1) * sizeof *tangents_wrt);
    bool ok = (vals && wrt && tangents_wrt) || loop_jvp_no_memory(f->rule, n);
    ok = ok && ct__inline(ctx, body, args, outs);
    ok = ok && ct__resolve_all(ctx, outs, body->n_outs, vals, node->op->name, node->here);
    for (size_t i = 0; i < n && ok; i++) {
        if (ct__is_none(tangents[i]) || !ct__has_slope(args[i])) continue;
        ok = ct__resolve(ctx, args[i], &wrt[n_wrt], node->op->name, (int)i, node->here);
        tangents_wrt[n_wrt++] = tangents[i];
    }
    ok =
        ok && ct__jvp_expand(ctx, node->here, vals, body->n_outs, wrt, tangents_wrt, n_wrt, slopes);
    for (size_t i = 0; i < body->n_outs && ok; i++)
        slopes[i] = ct__has_slope(outs[i]) ? ct__or_zeros(slopes[i], outs[i]) : CT_NONE;
    return ok;
}

// Space for a body's parameters and results, with tangents.
typedef struct {
    ct_arena scratch;
    ct_tensor *args, *tangents, *outs, *slopes;
} body_buffers;
static bool loop_jvp_alloc(const forward *f, body_buffers *to) {
    const ct_body *body = f->loop.bodies.v[f->body];
    size_t n = body->n_params + body->n_captured, n_outs = body->n_outs;
    *to = (body_buffers){0};
    to->args = ct__arena_zero(&to->scratch, (n + 1) * sizeof(ct_tensor));
    to->tangents = ct__arena_zero(&to->scratch, (n + 1) * sizeof(ct_tensor));
    to->outs = ct__arena_zero(&to->scratch, (n_outs + 1) * sizeof(ct_tensor));
    to->slopes = ct__arena_zero(&to->scratch, (n_outs + 1) * sizeof(ct_tensor));
    return (to->args && to->tangents && to->outs && to->slopes) || loop_jvp_no_memory(f->rule, n);
}

// ------------------------------------------------------------------------------------------- loops

// In: carried tensors, tangents of those that are floats, elements of xs, elements of the tangents of xs that
// have one. Out: the same for the next carried tensors, then for ys.
static void loop_jvp_iteration(const ct_tensor *in, ct_tensor *out, void *user) {
    const forward *f = user;
    const ct_rule *r = f->rule;
    const ct_body *body = f->loop.bodies.v[f->body];
    const size_t nc = f->loop.n_carry, shared = nc + f->loop.n_xs, n_out = (size_t)r->n_out;
    body_buffers x;
    bool ok = loop_jvp_alloc(f, &x);
    for (size_t i = 0; i < nc && ok; i++) x.args[i] = *in++;
    for (size_t i = 0; i < nc && ok; i++)
        if (ct__has_slope(x.args[i])) x.tangents[i] = *in++;
    for (size_t i = nc; i < shared && ok; i++) x.args[i] = *in++;
    for (size_t i = nc; i < shared && ok; i++)
        if (!ct__is_none(r->t_in[i])) x.tangents[i] = *in++;
    for (size_t p = shared; p < body->n_params + body->n_captured && ok; p++) {
        size_t operand = ct__loop_operand(&f->loop, f->body, p);
        x.args[p] = r->in[operand];
        x.tangents[p] = r->t_in[operand];
    }
    ok = ok && loop_jvp_inline_body(f, x.args, x.tangents, x.outs, x.slopes);
    const size_t ends[2] = {nc, n_out};
    for (size_t part = 0, from = 0; part < 2 && ok; from = ends[part++]) {
        for (size_t i = from; i < ends[part]; i++) *out++ = x.outs[i];
        for (size_t i = from; i < ends[part]; i++)
            if (!ct__is_none(x.slopes[i])) *out++ = x.slopes[i];
    }
    ct__arena_free(&x.scratch);
}

// The predicate of a while loop on the carried tensors, which come first.
static void loop_jvp_while_cond(const ct_tensor *in, ct_tensor *out, void *user) {
    const forward *f = user;
    const ct_body *body = f->loop.bodies.v[0];
    const size_t nc = f->loop.n_carry, n = body->n_params + body->n_captured;
    CT_ARENA scratch = {0};
    ct_tensor *args = ct__arena(&scratch, (n + 1) * sizeof *args);
    bool ok = args || loop_jvp_no_memory(f->rule, n);
    for (size_t p = 0; p < n && ok; p++)
        args[p] = p < nc ? in[p] : f->rule->in[ct__loop_operand(&f->loop, 0, p)];
    if (ok) ct__inline(ct__ctx(), body, args, out);
}

bool ct__loop_jvp(ct_rule *r) {
    forward f = {r, ct__loop_of(r->node), 0};
    const bool scan = f.loop.form == CT_LOOP_SCAN;
    const size_t nc = f.loop.n_carry, nx = f.loop.n_xs, n_out = (size_t)r->n_out;
    size_t n_carried = nc, n_xs = nx, n_ys = 0;
    CT_ARENA scratch = {0};
    ct_tensor *carry = ct__arena(&scratch, (2 * nc + 1) * sizeof *carry),
              *xs = ct__arena(&scratch, (2 * nx + 1) * sizeof *xs),
              *out = ct__arena(&scratch, (2 * n_out + 1) * sizeof *out);
    bool ok = (carry && xs && out) || loop_jvp_no_memory(r, nc + nx);
    for (size_t i = 0; i < nc && ok; i++) {
        carry[i] = r->in[i];
        if (ct__has_slope(r->in[i])) carry[n_carried++] = ct__or_zeros(r->t_in[i], r->in[i]);
    }
    for (size_t i = 0; i < nx && ok; i++) {
        xs[i] = r->in[nc + i];
        if (!ct__is_none(r->t_in[nc + i])) xs[n_xs++] = r->t_in[nc + i];
    }
    for (size_t i = nc; i < n_out && ok; i++) n_ys += 1 + ct__has_slope(r->out[i]);
    if (ok && scan)
        ct__scan((ct_scan_args){.body = loop_jvp_iteration,
                                .user = &f,
                                .carry = carry,
                                .n_carry = n_carried,
                                .xs = xs,
                                .n_xs = n_xs,
                                .n_ys = n_ys,
                                .length = f.loop.length,
                                .reverse = f.loop.reverse,
                                .here = r->node->here},
                 out, out + n_carried);
    if (ok && !scan) {
        f.body = 1; // the loop body, whose last result is the predicate
        ct_while_with((ct_while_args){.cond = loop_jvp_while_cond,
                                      .body = loop_jvp_iteration,
                                      .user = &f,
                                      .carry = carry,
                                      .n_carry = n_carried,
                                      .here = r->node->here},
                      out);
    }
    size_t at = nc; // the tangents of the carried tensors follow them, and those of ys follow these
    for (size_t i = 0; i < nc && ok; i++)
        r->t_out[i] = ct__has_slope(r->out[i]) ? out[at++] : CT_NONE;
    at += n_out - nc;
    for (size_t i = nc; i < n_out && ok; i++)
        r->t_out[i] = ct__has_slope(r->out[i]) ? out[at++] : CT_NONE;
    return ok && !ct_failed();
}

// ---------------------------------------------------------------------------------------- branches

// In: all operands after the index, then the tangents of those that have one. Out: results, then the tangents
// of those that are floats.
static void loop_jvp_branch(const ct_tensor *in, ct_tensor *out, void *user) {
    const forward *f = user;
    const ct_rule *r = f->rule;
    const ct_body *body = f->loop.bodies.v[f->body];
    const size_t n = body->n_params + body->n_captured, n_in = (size_t)r->n_in;
    body_buffers x;
    ct_tensor *tangents = NULL;
    bool ok = loop_jvp_alloc(f, &x);
    if (ok) tangents = ct__arena_zero(&x.scratch, n_in * sizeof *tangents);
    ok = ok && (tangents || loop_jvp_no_memory(r, n_in));
    for (size_t k = 1, at = n_in - 1; k < n_in && ok; k++)
        if (!ct__is_none(r->t_in[k])) tangents[k] = in[at++];
    for (size_t p = 0; p < n && ok; p++) {
        size_t operand = ct__loop_operand(&f->loop, f->body, p);
        x.args[p] = in[operand - 1];
        x.tangents[p] = tangents[operand];
    }
    ok = ok && loop_jvp_inline_body(f, x.args, x.tangents, x.outs, x.slopes);
    for (size_t i = 0; i < body->n_outs && ok; i++) *out++ = x.outs[i];
    for (size_t i = 0; i < body->n_outs && ok; i++)
        if (!ct__is_none(x.slopes[i])) *out++ = x.slopes[i];
    ct__arena_free(&x.scratch);
}

bool ct__branch_jvp(ct_rule *r) {
    const ct_loop loop = ct__loop_of(r->node);
    const size_t n = loop.bodies.n, n_in = (size_t)r->n_in, n_out = (size_t)r->n_out;
    ct_ctx *ctx = ct__ctx();
    CT_ARENA scratch = {0};
    forward *each = ct__arena(&scratch, n * sizeof *each);
    void **users = ct__arena(&scratch, n * sizeof *users);
    ct_fn *branches = ct__arena(&scratch, n * sizeof *branches);
    ct_tensor *in = ct__arena(&scratch, 2 * n_in * sizeof *in), node = CT_NONE;
    bool ok = (each && users && branches && in) || loop_jvp_no_memory(r, n_in);
    size_t n_given = n_in - 1, slopes = 0;
    for (size_t b = 0; b < n && ok; b++) {
        each[b] = (forward){r, loop, b};
        users[b] = &each[b];
        branches[b] = loop_jvp_branch;
    }
    for (size_t k = 1; k < n_in && ok; k++) {
        in[k - 1] = r->in[k];
        if (!ct__is_none(r->t_in[k])) in[n_given++] = r->t_in[k];
    }
    for (size_t i = 0; i < n_out && ok; i++) slopes += ct__has_slope(r->out[i]);
    const ct_choice c = {.op = r->node->op,
                         .index = r->in[0],
                         .branches = branches,
                         .users = users,
                         .n_branches = n,
                         .in = in,
                         .n_in = n_given,
                         .n_out = n_out + slopes,
                         .here = r->node->here};
    ok = ok && ct__record_choice(ctx, &c, &node);
    for (size_t i = 0, at = n_out; i < n_out && ok; i++)
        r->t_out[i] = ct__has_slope(r->out[i]) ? ct__output(node, (uint32_t)at++) : CT_NONE;
    return ok && !ctx->err.code;
}
