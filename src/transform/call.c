// Traced functions as nodes (ct_call), and what calls of user functions share.
#include <string.h>

#include "ops/rules.h"
#include "transform/trace.h"

ct_tensor *ct__with_captured(ct_ctx *ctx, const ct_body *body, const ct_tensor *in, size_t n_in,
                             size_t more) {
    size_t n = n_in + body->n_captured + more;
    ct_tensor *all = ct__arena(ct__top(ctx)->arena, (n + 1) * sizeof *all);
    if (!all) return ct__null_memory(&ctx->err, body->here, "call", n * sizeof *all);
    if (n_in) memcpy(all, in, n_in * sizeof *all);
    for (size_t i = 0; i < body->n_captured; i++)
        all[n_in + i] = ct__handle_of(body->captured_from[i]);
    return all;
}

const ct_type **ct__operand_types(ct_ctx *ctx, ct_traced *to, const ct_tensor *in, size_t n_in,
                                  ct_loc here) {
    ct_arena *arena = ct__top(ctx)->arena;
    const ct_type **types = ct__arena(arena, (n_in + 1) * sizeof *types);
    ct_val *operands = ct__arena(arena, (n_in + 1) * sizeof *operands);
    if (!types || !operands)
        return ct__null_memory(&ctx->err, here, to->op, n_in * sizeof *operands);
    for (size_t i = 0; i < n_in; i++) {
        if (!ct__resolve(ctx, in[i], &operands[i], to->op, (int)i, here)) return NULL;
        types[i] = ct__type(operands[i]);
    }
    to->operands = operands;
    to->n_operands = n_in;
    return types;
}

bool ct__infer_body(ct_call *call, const ct_body *body) {
    if (!ct__call_outs(call, (int)body->n_outs)) return false;
    for (size_t i = 0; i < body->n_outs; i++) call->out[i] = *ct__type(body->outs[i]);
    return true;
}
static bool call_infer(ct_call *call) {
    return ct__infer_body(call, ((const call_attrs *)call->attrs)->body);
}
static bool call_body(ct_rule *r) {
    return ct__inline(ct__ctx(), ((const call_attrs *)r->attrs)->body, r->in, r->body_out);
}

CT_ATTR_FIELDS(call, CALL_ATTRS);
const ct_opdef ct__op_call = {
    CT_COMPOSED(CALL, call, -1, -1),
    .doc = "A traced function of C.",
    CT_FIELDS(call),
    .accepts = CT_ANY,
};

bool ct__call_given(ct_ctx *ctx, const char *op, const ct_tensor *in, size_t n_in,
                    const ct_tensor *out, size_t n_out, ct_loc here) {
    return ct__possible(ctx, n_in, here, op, "the operands") &&
           ct__possible(ctx, n_out, here, op, "the results") &&
           (!n_in || ct__given(ctx, in, here, op, "the list of operands")) &&
           (!n_out || ct__given(ctx, out, here, op, "the array for the results"));
}

void ct__poison_all(ct_ctx *ctx, ct_tensor *out, size_t n_out, ct_loc here) {
    for (size_t i = 0; i < n_out; i++) out[i] = ct__poison(ctx, here);
}

void ct_call_at(ct_fn f, void *user, const ct_tensor *in, size_t n_in, ct_tensor *out, size_t n_out,
                ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__call_given(ctx, "call", in, n_in, out, n_out, here)) return;
    bool traceable = ct__given(ctx, (void *)(uintptr_t)f, here, "call", "the function");
    ct_traced traced = {.op = "call", .f = f, .user = user, .unset = "f did not set output"};
    const ct_type **types = traceable ? ct__operand_types(ctx, &traced, in, n_in, here) : NULL;
    ct_body *body = types ? ct__trace(ctx, &traced, types, n_in, n_out, here) : NULL;
    ct_tensor *all = body ? ct__with_captured(ctx, body, in, n_in, 0) : NULL;
    if (!all) {
        ct__poison_all(ctx, out, n_out, here);
        return;
    }
    call_attrs attrs = {.body = body};
    ct__outputs(ct__record(&ct__op_call, &attrs, all, (int)(n_in + body->n_captured), here), out,
                n_out);
}
