// while: a body that runs as long as a predicate holds; and fori: counted loops.
//
// The node has two bodies: the predicate on the carried tensors, and the user's body followed by the
// predicate on its results, so that an iteration and the decision whether there is another one are computed
// together.
#include <string.h>

#include "graph/symbols.h"
#include "ops/rules.h"
#include "transform/loop.h"

#define WHILE_ATTRS(F, op) F(op, bodies, bodies)
CT_ATTRS(while, WHILE_ATTRS);

static void while_loop(const ct_node *node, ct_loop *loop) {
    const while_attrs *a = node->attrs;
    size_t n = a->bodies.v[1]->n_outs - 1;
    *loop = (ct_loop){.form = CT_LOOP_WHILE, .n_shared = n, .n_carry = n, .bodies = a->bodies};
}

static bool while_infer(ct_call *call) {
    const ct_body *body = ((const while_attrs *)call->attrs)->bodies.v[1];
    if (!ct__call_outs(call, (int)body->n_outs - 1)) return false;
    ct__loop_sizes(call);
    for (int i = 0; i < call->n_out; i++) {
        call->out[i] = *call->in[i];
        call->out[i].weak = false;
    }
    return true;
}

// The number of iterations is unknown, so memory for what a gradient needs of each iteration cannot be
// allocated.
static bool while_vjp(ct_rule *r) {
    ct_ctx *ctx = ct__ctx();
    ct__fail(ctx, CT_E_GRAD, r->node->here, "grad",
             "a loop that a predicate ends has no gradient in reverse mode");
    return ct__err_hint(&ctx->err,
                        "ct_scan has one, and ct_fori between two constants: run the largest "
                        "number of iterations, and keep finished values with ct_select");
}

const ct_opdef ct__op_while = {
    CT_OP(WHILE, while, loop, -1, -1),
    .doc = "A traced body run as long as a traced predicate of what it carries holds.",
    CT_FIELDS(while),
    .accepts = CT_ANY,
    .loop = while_loop,
    .infer = while_infer,
    .eval = ct__loop_eval,
    .jvp = ct__loop_jvp,
    .vjp = while_vjp,
    .batch = ct__while_batch,
};

// --------------------------------------------------------------------------------------- recording

typedef struct {
    const ct_while_args *args;
    const char *op; // the function that the user called: "while", "fori"
    ct_operands o;
    const ct_body *predicate;
} while_tracing;

// The user's body, followed by the predicate on its results.
static void while_trace_body(const ct_tensor *in, ct_tensor *out, void *user) {
    const while_tracing *w = user;
    const ct_while_args *a = w->args;
    ct_ctx *ctx = ct__ctx();
    size_t n = w->o.n, more = w->predicate->n_captured;
    a->body(in, out, a->user);
    if (!ct__carries_on(ctx, w->op, w->o.types, n, out, n, a->here)) return;
    CT_ARENA scratch = {0};
    ct_tensor *args = ct__arena(&scratch, (n + more + 1) * sizeof *args);
    if (args && n) memcpy(args, out, n * sizeof *args);
    for (size_t i = 0; i < more && args; i++)
        args[n + i] = ct__handle_of(w->predicate->captured_from[i]);
    if (args)
        ct__inline(ctx, w->predicate, args, &out[n]);
    else
        ct__err_memory(&ctx->err, a->here, w->op, (n + more) * sizeof *args);
}

static bool while_check_predicate(ct_ctx *ctx, const while_tracing *w, const ct_body *cond) {
    const ct_type *t = ct__type(cond->outs[0]);
    bool is_bool = t->dtype == CT_BOOL;
    if (is_bool && t->rank == 0) return true;
    ct__fail(ctx, is_bool ? CT_E_SHAPE : CT_E_DTYPE, w->args->here, w->op,
             "the predicate is %s, it must be one bool", ct__type_text(t).s);
    return ct__err_hint(&ctx->err, is_bool ? "ct_all or ct_any makes one of many"
                                           : "compare it with something, as ct_less does");
}

static bool while_record(ct_ctx *ctx, const char *op, ct_while_args args, ct_tensor *node) {
    while_tracing w = {.args = &args, .op = op};
    ct_body *both[2];
    const ct_traced predicate = {
        .op = op, .f = args.cond, .user = args.user, .unset = "the predicate did not set output"};
    const ct_traced body = {.op = op, .f = while_trace_body, .user = &w};
    size_t n = args.n_carry;
    if (!ct__operands(ctx, &w.o, op, args.carry, n, NULL, 0, args.here) ||
        !(both[0] = ct__trace(ctx, &predicate, w.o.types, n, 1, args.here)) ||
        !while_check_predicate(ctx, &w, both[0]))
        return false;
    w.predicate = both[0];
    if (!(both[1] = ct__trace(ctx, &body, w.o.types, n, n + 1, args.here))) return false;
    while_attrs attrs = {.bodies = {2, both}};
    *node = ct__record_loop(ctx, &ct__op_while, &attrs, CT_NONE, &w.o, attrs.bodies, args.here);
    return true;
}

void ct_while_with(ct_while_args args, ct_tensor *carry_out) {
    ct_ctx *ctx = ct__ctx();
    ct_tensor node = CT_NONE;
    if (!ctx || !ct__possible(ctx, args.n_carry, args.here, "while", "the carried tensors") ||
        (args.n_carry && !ct__given(ctx, carry_out, args.here, "while", "the array for carry_out")))
        return;
    bool ok = ct__given(ctx, (void *)(uintptr_t)args.cond, args.here, "while", "the predicate") &&
              ct__given(ctx, (void *)(uintptr_t)args.body, args.here, "while", "the body") &&
              (!args.n_carry || ct__given(ctx, args.carry, args.here, "while", "carry")) &&
              while_record(ctx, "while", args, &node);
    ct__loop_results(ctx, ok, node, 0, carry_out, args.n_carry, args.here);
}

// ---------------------------------------------------------------------------------------- counting

typedef struct {
    const ct_fori_args *args;
    ct_tensor upper;
    ct_operands o;
} fori_tracing;

// The first carried tensor is the loop index.
static void fori_body(const ct_tensor *in, ct_tensor *out, void *user) {
    const fori_tracing *c = user;
    const ct_fori_args *a = c->args;
    c->args->body(in, out + 1, a->user);
    out[0] = ct_add(in[0], ct__number_like(1, in[0]));
    ct__carries_on(ct__ctx(), "fori", c->o.types, a->n_carry, out + 1, a->n_carry, a->here);
}
static void fori_cond(const ct_tensor *in, ct_tensor *out, void *user) {
    out[0] = ct_less(in[0], ((const fori_tracing *)user)->upper);
}

static bool fori_check_bound(ct_ctx *ctx, ct_tensor t, int number, const char *name, ct_loc here) {
    ct_val v;
    if (ct__is_none(t)) return true;
    if (!ct__resolve(ctx, t, &v, "fori", number, here)) return false;
    const ct_type *type = ct__type(v);
    if (type->rank == 0 && CT_INTEGERS & CT_MASK(type->dtype)) return true;
    ct__fail(ctx, type->rank ? CT_E_SHAPE : CT_E_DTYPE, here, "fori",
             "the %s bound is %s, it must be one integer", name, ct__type_text(type).s);
    if (type->rank)
        ct__err_hint(&ctx->err, "where each element has its own, ct_vmap a function of one");
    else
        ct__err_hint(&ctx->err, "cast it: ct_cast(%s, CT_I32)", name);
    return false;
}

// Returns a bound as a tensor of the dtype of the loop index: i32, or wider if the bounds are.
static ct_tensor fori_bound(ct_tensor t, int64_t number, ct_dtype dtype) {
    if (ct__is_none(t)) t = ct_i(number);
    return ct__type_of(t)->dtype == dtype ? t : ct_cast(t, dtype);
}
static ct_dtype fori_index_dtype(const ct_fori_args *a) {
    bool narrow = true;
    const ct_tensor bounds[2] = {a->lower_value, a->upper_value};
    for (int i = 0; i < 2; i++) {
        ct_dtype own = ct__is_none(bounds[i]) ? CT_I32 : (ct_dtype)ct__type_of(bounds[i])->dtype;
        narrow = narrow && own != CT_I64 && own != CT_U64 && own != CT_U32;
    }
    bool fits = a->lower >= INT32_MIN && ct__unmarked(a->upper) <= INT32_MAX;
    return narrow && fits ? CT_I32 : CT_I64;
}

// A static number of iterations is a scan, which has gradients; otherwise it is a while loop.
static bool fori_record(ct_ctx *ctx, const ct_fori_args *args, ct_tensor *carry_out) {
    ct_arena *arena = ct__top(ctx)->arena;
    size_t n = args->n_carry + 1;
    ct_tensor *carry = ct__arena(arena, 2 * n * sizeof *carry), *out = carry + n;
    fori_tracing c = {.args = args};
    if (!carry) return ct__err_memory(&ctx->err, args->here, "fori", 2 * n * sizeof *carry);
    if (!fori_check_bound(ctx, args->lower_value, 0, "lower", args->here) ||
        !fori_check_bound(ctx, args->upper_value, 1, "upper", args->here) ||
        !ct__operands(ctx, &c.o, "fori", args->carry, n - 1, NULL, 0, args->here))
        return false;
    ct_dtype dtype = fori_index_dtype(args);
    int64_t length = ct__size_sub(args->upper, args->lower);
    carry[0] = fori_bound(args->lower_value, args->lower, dtype);
    if (n > 1) memcpy(carry + 1, args->carry, (n - 1) * sizeof *carry);
    if (ct__is_none(args->lower_value) && ct__is_none(args->upper_value)) {
        ct__scan((ct_scan_args){.body = fori_body,
                                .user = &c,
                                .carry = carry,
                                .n_carry = n,
                                .length = ct__unmarked(length) > 0 ? length : 0,
                                .here = args->here},
                 out, NULL);
    } else {
        ct_tensor node;
        c.upper = fori_bound(args->upper_value, args->upper, dtype);
        const ct_while_args loop = {.cond = fori_cond,
                                    .body = fori_body,
                                    .user = &c,
                                    .carry = carry,
                                    .n_carry = n,
                                    .here = args->here};
        if (!while_record(ctx, "fori", loop, &node)) return false;
        ct__outputs(node, out, n);
    }
    memcpy(carry_out, out + 1, (n - 1) * sizeof *out);
    return !ctx->err.code;
}

void ct_fori_with(ct_fori_args args, ct_tensor *carry_out) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__possible(ctx, args.n_carry, args.here, "fori", "the carried tensors") ||
        (args.n_carry && !ct__given(ctx, carry_out, args.here, "fori", "the array for carry_out")))
        return;
    bool ok = ct__given(ctx, (void *)(uintptr_t)args.body, args.here, "fori", "the body") &&
              (!args.n_carry || ct__given(ctx, args.carry, args.here, "fori", "carry")) &&
              fori_record(ctx, &args, carry_out);
    if (!ok) ct__loop_results(ctx, false, CT_NONE, 0, carry_out, args.n_carry, args.here);
}
