// Tensors and variables on other devices of their context.
#include "cotan/binding.h"
#include "ops/rules.h"

#define TRANSFER_ATTRS(F, op) F(op, i64, device)
CT_ATTRS(transfer, TRANSFER_ATTRS);

ct_tensor ct__transfer(ct_tensor x, int device, ct_loc here) {
    const transfer_attrs attrs = {device};
    return ct__record(&ct__op_transfer, &attrs, &x, 1, here);
}
static int transfer_device(const ct_rule *r) {
    return (int)((const transfer_attrs *)r->attrs)->device;
}

static bool transfer_infer(ct_call *call) {
    *call->out = *call->in[0];
    call->out->device = (uint8_t)((const transfer_attrs *)call->attrs)->device;
    return true;
}
static double transfer_f64(const double *x) { return x[0]; }
static int64_t transfer_i64(const int64_t *x, ct_dtype d) { return (void)d, x[0]; }
static bool transfer_jvp(ct_rule *r) {
    return ct__set_tangent(r, ct__transfer(r->t_in[0], transfer_device(r), CT_NOWHERE));
}
static bool transfer_transpose(ct_rule *r) { // back to the device of x
    return ct__set_cotangent(r,
                             ct__transfer(r->c_out[0], ct__type_of(r->in[0])->device, CT_NOWHERE));
}
static ct_kval transfer_emit(const ct_elem *e) { return e->x[0]; }
const ct_opdef ct__op_transfer = {
    CT_OP(TRANSFER, transfer, elementwise, 1, 1),
    .doc = "x on another device of the context.",
    CT_FIELDS(transfer),
    .accepts = CT_ANY,
    .split = ct__split_each,
    .data = ~0u,
    .scattered = true,
    .moves = true,
    .infer = transfer_infer,
    .eval_f64 = transfer_f64,
    .eval_i64 = transfer_i64,
    .jvp = transfer_jvp,
    .transpose = transfer_transpose,
    .emit = transfer_emit,
    .unchanged = ct__always_unchanged,
};

ct_tensor ct_to_at(ct_tensor x, const char *device, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_NONE;
    if (!ct__given(ctx, device, here, "to", "the device's name")) return ct__poison(ctx, here);
    ct_val v;
    if (!ct__resolve(ctx, x, &v, "to", 0, here)) return ct__poison(ctx, here);
    const int index = ct__hooks.find_device(ctx, device, here);
    if (index < 0) {
        ct__err_locate(&ctx->err, here, "to");
        return ct__poison(ctx, here);
    }
    return ct__type(v)->device == index ? x : ct__transfer(x, index, here);
}

ct_tensor ct_commit_device_at(ct_tensor x, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    ct_val v;
    if (!ctx) return CT_NONE;
    if (!ct__resolve(ctx, x, &v, "commit_device", 0, here)) return ct__poison(ctx, here);
    const bool floats = ct__type(v)->rank && ct__fits_any_device(v, &v.node->here);
    return floats ? ct__transfer(x, ct__type(v)->device, here) : x;
}

void ct_move_at(ct_tensor variable, const char *device, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, device, here, "move", "the device's name")) return;
    const int index = ct__hooks.find_device(ctx, device, here);
    if (index < 0)
        ct__err_locate(&ctx->err, here, "move");
    else
        ct__var_move(ctx, variable, index, here);
}

void ct_params_move_at(ct_params *params, const char *device, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, params, here, "params_move", "the parameter set") ||
        !ct__given(ctx, device, here, "params_move", "the device's name"))
        return;
    for (size_t i = 0; i < ct_params_count(params) && !ct_failed(); i++)
        ct_move_at(ct_params_get(params, i), device, here);
}

const char *ct_device_of(ct_tensor x) {
    ct_ctx *ctx = ct__ctx();
    return ctx && ct_ok(x) ? ct__hooks.device_name(ctx, ct__type_of(x)->device) : NULL;
}
