// Leaves: values from outside the graph.
#include <string.h>

#include "cotan/binding.h"
#include "graph/allocation_registry.h"
#include "ops/rules.h"

#define CONST_ATTRS(F, op) F(op, data, bytes)
CT_ATTRS(const, CONST_ATTRS);

static bool leaf_infer(ct_call *call) {
    return ct__call_err(call, CT_E_INTERNAL, "a leaf has no shape rule");
}

#define LEAF(ID, op, text)                                                                         \
    .id = CT_OP_##ID, .name = #op, .doc = text, .kind = &ct__kind_leaf, .n_in = 0, .n_out = 1,     \
    .accepts = CT_ANY, .infer = leaf_infer, .jvp = CT_NO_GRAD
const ct_opdef ct__op_data = {LEAF(DATA, data, "Elements in a storage.")};
const ct_opdef ct__op_scalar = {
    LEAF(SCALAR, scalar, "One number; an operand, whatever its value.")};
const ct_opdef ct__op_const = {LEAF(CONST, const, "Elements that are part of the plan."),
                               CT_FIELDS(const), .varies = "what varies is no constant: ct_from"};
const ct_opdef ct__op_read = {LEAF(READ, read, "A variable's value at one version.")};
const ct_opdef ct__op_variable = {
    LEAF(VARIABLE, variable, "A variable; reads resolve to its latest version.")};
const ct_opdef ct__op_param = {LEAF(PARAM, param, "A parameter of a body.")};

ct_tensor ct_from_at(const void *data, ct_dtype dtype, ct_ints dims, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    ct_type type;
    if (!ctx) return CT_NONE;
    if (!ct__type_from_dims(ct__top(ctx)->arena, dtype, dims, &type, &ctx->err, here, "from"))
        return ct__poison(ctx, here);
    size_t bytes = ct__type_bytes(&type);
    if (!data && bytes)
        return ct__fail(ctx, CT_E_ARGUMENT, here, "from", "no data for %s", ct__type_text(&type).s);
    if (ctx->tracing) return ct_const_at(data, dtype, dims, here);
    ct_node *node = ct__leaf(ctx, &ct__op_data, NULL, type, here);
    if (!node) return ct__poison(ctx, here);
    node->value[0] = ct__hooks.upload(ctx, data, bytes);
    if (!node->value[0]) return ct__poison(ctx, here);
    ct__registry_describe(
        node->value[0], (ct_alloc_info){.here = here, .wanted = here, .op = "from", .type = type});
    return ct__handle(node, 0);
}

ct_tensor ct_adopt_at(const void *data, ct_dtype dtype, ct_ints dims, ct_release_fn release,
                      void *user, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    ct_err bad = {0}; // ct_from reports it
    ct_type type;
    const bool fits =
        ctx && release && data && !ctx->tracing && ct_dtype_size(dtype) &&
        (uintptr_t)data % ct_dtype_size(dtype) == 0 &&
        ct__type_from_dims(ct__top(ctx)->arena, dtype, dims, &type, &bad, here, "from");
    ct_node *node = fits ? ct__leaf(ctx, &ct__op_data, NULL, type, here) : NULL;
    if (node) node->value[0] = ct__hooks.adopt(ctx, data, ct__type_bytes(&type), release, user);
    if (node && node->value[0]) return ct__handle(node, 0);
    ct_tensor copy = ct_from_at(data, dtype, dims, here);
    if (release) release(user);
    return copy;
}

ct_tensor ct_const_at(const void *data, ct_dtype dtype, ct_ints dims, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    ct_type type;
    if (!ctx) return CT_NONE;
    if (!ct__type_from_dims(ct__top(ctx)->arena, dtype, dims, &type, &ctx->err, here, "const"))
        return ct__poison(ctx, here);
    if (type.dyn)
        return ct__fail(ctx, CT_E_SHAPE, here, "const", "a constant's sizes cannot be dynamic: %s",
                        ct__type_text(&type).s);
    size_t bytes = ct__type_bytes(&type);
    if (!data && bytes)
        return ct__fail(ctx, CT_E_ARGUMENT, here, "const", "no data for %s",
                        ct__type_text(&type).s);
    const_attrs attrs = {.bytes = {data, bytes}};
    ct_node *node = ct__leaf(ctx, &ct__op_const, &attrs, type, here);
    return node ? ct__handle(node, 0) : ct__poison(ctx, here);
}

static ct_tensor leaf_number(double value, int64_t integer, bool is_integer, ct_type type) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_NONE;
    if (ctx->tracing &&
        ct__in_plan(ctx)) { // numbers of rules and library bodies are part of the plan
        char bytes[8];
        if (is_integer)
            ct__store_i64(type.dtype, bytes, 0, integer);
        else
            ct__store_f64(type.dtype, bytes, 0, value);
        const_attrs attrs = {.bytes = {bytes, ct_dtype_size(type.dtype)}};
        ct_node *folded = ct__leaf(ctx, &ct__op_const, &attrs, type, CT_NOWHERE);
        return folded ? ct__handle(folded, 0) : ct__poison(ctx, CT_NOWHERE);
    }
    ct_node *node = ct__number_leaf(ctx, type);
    if (!node) return ct__poison(ctx, CT_NOWHERE);
    if (is_integer)
        ct__store_i64(type.dtype, &node->number, 0, integer);
    else
        ct__store_f64(type.dtype, &node->number, 0, value);
    node->precise = is_integer ? (double)integer : value;
    return ct__handle(node, 0);
}
ct_tensor ct_f(double value) {
    return leaf_number(value, 0, false, (ct_type){.dtype = CT_F32, .weak = true});
}
ct_tensor ct_i(int64_t value) {
    bool small = value >= INT32_MIN && value <= INT32_MAX;
    return leaf_number(0, value, true, (ct_type){.dtype = small ? CT_I32 : CT_I64, .weak = true});
}
ct_tensor ct_c(double re, double im) { return ct_complex_at(ct_f(re), ct_f(im), CT_NOWHERE); }
ct_tensor ct_scalar(double value, ct_dtype dtype) {
    ct_ctx *ctx = ct__ctx();
    if (ctx && !ct__is_dtype(dtype))
        return ct__fail(ctx, CT_E_DTYPE, CT_NOWHERE, "scalar", "%d is not a dtype", (int)dtype);
    if (ctx && ct__has_parts(dtype)) // a scalar's 8 bytes cannot hold such a value
        return ct_cast_at(leaf_number(value, 0, false, (ct_type){.dtype = CT_F64}), dtype,
                          CT_NOWHERE);
    return leaf_number(value, 0, false, (ct_type){.dtype = (uint8_t)dtype});
}

// Expands the value to `dims`. Sizes that are not valid are an error of `op`, not of expand.
static ct_tensor leaf_expand(ct_ctx *ctx, ct_tensor value, ct_dtype dtype, ct_ints dims,
                             const char *op, ct_loc here) {
    ct_type type;
    if (!ct__type_from_dims(ct__top(ctx)->arena, dtype, dims, &type, &ctx->err, here, op))
        return ct__poison(ctx, here);
    return ct_expand_at(value, dims, here);
}

ct_tensor ct_full_at(ct_tensor value, ct_ints dims, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    ct_val v;
    if (!ctx) return CT_NONE;
    if (!ct__resolve(ctx, value, &v, "full", 0, here)) return ct__poison(ctx, here);
    if (ct__type(v)->rank)
        return ct__fail(ctx, CT_E_SHAPE, here, "full", "the value is %s, it must be a scalar",
                        ct__type_text(ct__type(v)).s);
    return leaf_expand(ctx, value, ct__type(v)->dtype, dims, "full", here);
}

static ct_tensor leaf_fill(double value, ct_dtype dtype, ct_ints dims, const char *op,
                           ct_loc here) {
    char bytes[CT_MAX_ELEMENT_BYTES] = {0};
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_NONE;
    if (!ct__is_dtype(dtype))
        return ct__fail(ctx, CT_E_DTYPE, here, op, "%d is not a dtype", (int)dtype);
    ct__store_f64(dtype, bytes, 0, value);
    return leaf_expand(ctx, ct_const_at(bytes, dtype, CT_SCALAR, here), dtype, dims, op, here);
}
ct_tensor ct_zeros_at(ct_dtype dtype, ct_ints dims, ct_loc here) {
    return leaf_fill(0, dtype, dims, "zeros", here);
}
ct_tensor ct_ones_at(ct_dtype dtype, ct_ints dims, ct_loc here) {
    return leaf_fill(1, dtype, dims, "ones", here);
}
