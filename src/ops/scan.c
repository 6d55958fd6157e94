// Running sums along an axis, one element after the other.
#include "ops/rules.h"

#define CUMSUM_ATTRS(F, op) F(op, axis, axis) F(op, reverse, reverse)
CT_ATTRS(cumsum, CUMSUM_ATTRS);

static bool cumsum_infer(ct_call *call) {
    cumsum_attrs *attrs = call->attrs;
    *call->out = *call->in[0];
    return ct__check_accepts(call, 0) && ct__normal_axis(call, &attrs->axis);
}
static bool cumsum_eval(const ct_ref *ref) {
    const cumsum_attrs *attrs = ref->attrs;
    const ct_type *in = ref->in_type;
    int64_t n = in->dim[attrs->axis], inner = 1, count = ct__count(in);
    for (int a = (int)attrs->axis + 1; a < in->rank; a++) inner *= in->dim[a];
    for (int64_t line = 0; n && line < count / n; line++) {
        int64_t base = line / inner * inner * n + line % inner;
        double sum = 0;
        uint64_t whole = 0;
        for (int64_t k = 0; k < n; k++) {
            int64_t at = base + (attrs->reverse ? n - 1 - k : k) * inner;
            if (ct__is_float(in->dtype)) {
                sum += ct__load_f64(in->dtype, ref->in[0], at);
                ct__store_f64(in->dtype, ref->out[0], at, sum);
            } else {
                whole += (uint64_t)ct__load_i64(in->dtype, ref->in[0], at);
                ct__store_i64(in->dtype, ref->out[0], at, (int64_t)whole);
            }
        }
    }
    return true;
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
    .eval = cumsum_eval,
    .reduction = CT_RED_ADD,
    .jvp = ct__jvp_same,
    .transpose = cumsum_transpose,
    .onnx = "CumSum",
};
