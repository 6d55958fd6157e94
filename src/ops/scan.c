// Running sums along an axis, one element after the other.
#include "ops/rules.h"

#define CUMSUM_ATTRS(F, op) F(op, axis, axis) F(op, reverse, reverse)
CT_ATTRS(cumsum, CUMSUM_ATTRS);

static bool cumsum_infer(ct_call *call) {
    cumsum_attrs *attrs = call->attrs;
    *call->out = *call->in[0];
    return ct__check_accepts(call, 0) && ct__normal_axis(call, &attrs->axis);
}
static bool cumsum_transpose(ct_rule *r) { // element i counts in all later sums
    const cumsum_attrs *attrs = r->attrs;
    r->c_in[0] = ct_cumsum(r->c_out[0], .axis = attrs->axis, .reverse = !attrs->reverse);
    return true;
}
const ct_opdef ct__op_cumsum = {
    .id = CT_OP_CUMSUM,
    .name = "cumsum",
    .doc = "The sum of all elements up to each along an axis (reverse: from each on), added one "
           "after the other. Integers keep their dtype and wrap, as in ct_sum.",
    .kind = &ct__kind_scan,
    .n_in = 1,
    .n_out = 1,
    CT_FIELDS(cumsum),
    .accepts = CT_NUMBERS,
    .infer = cumsum_infer,
    .reduction = CT_RED_ADD,
    .jvp = ct__jvp_same,
    .transpose = cumsum_transpose,
    .onnx = "CumSum",
};
