// Tensors computed from indices only.
#include "ops/rules.h"

#define IOTA_ATTRS(F, op) F(op, dtype, dtype) F(op, sizes, dims) F(op, axis, axis)
CT_ATTRS(iota, IOTA_ATTRS);

static bool iota_infer(ct_call *call) {
    iota_attrs *attrs = call->attrs;
    if (!ct__type_from_dims(call->arena, attrs->dtype, attrs->dims, call->out, call->err,
                            call->here, "iota"))
        return false;
    if (!(CT_NUMBERS & CT_MASK(attrs->dtype)))
        return ct__call_err(call, CT_E_DTYPE, "there is no iota of %s",
                            ct_dtype_name(attrs->dtype));
    int axis = ct__axis(attrs->axis, call->out->rank);
    if (axis < 0)
        return ct__call_err(call, CT_E_ARGUMENT, "axis %lld is out of range for %s",
                            (long long)attrs->axis, ct__type_text(call->out).s) ||
               ct__hint_axes(call, call->out->rank);
    attrs->axis = axis;
    return true;
}
static bool iota_eval(const ct_ref *ref) {
    const iota_attrs *attrs = ref->attrs;
    const ct_type *out = ref->out_type;
    int64_t n = ct__count(out), inner = 1;
    for (int a = (int)attrs->axis + 1; a < out->rank; a++) inner *= out->dim[a];
    for (int64_t i = 0; i < n; i++)
        ct__store_i64(out->dtype, ref->out[0], i, i / inner % out->dim[attrs->axis]);
    return true;
}
static bool iota_map(ct_map *map) {
    map->value = map->at[((const iota_attrs *)map->node->attrs)->axis];
    return true;
}
const ct_opdef ct__op_iota = {
    CT_OP(IOTA, iota, source, 0, 1),
    .doc = "A tensor whose every element is its index along an axis: 0, 1, 2 ...",
    CT_FIELDS(iota),
    .accepts = CT_NUMBERS,
    .infer = iota_infer,
    .eval = iota_eval,
    .map = iota_map,
    .jvp = CT_NO_GRAD,
    .onnx = "Range",
    .stablehlo = "iota",
};
