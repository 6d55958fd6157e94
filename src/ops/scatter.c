// Writing at indices that are data: updates are applied to elements of x, in the order of the indices.
#include "ops/rules.h"

#define SCATTER_ADD_ATTRS(F, op)                                                                   \
    F(op, axis, axis)                                                                              \
    F(op, leading, batch_dims) F(op, mode, mode) F(op, unique, unique) F(op, sorted, sorted)
CT_ATTRS(scatter_add, SCATTER_ADD_ATTRS);
CT_ATTRS(scatter, SCATTER_ADD_ATTRS);
CT_ATTRS(scatter_mul, SCATTER_ADD_ATTRS);
CT_ATTRS(scatter_min, SCATTER_ADD_ATTRS);
CT_ATTRS(scatter_max, SCATTER_ADD_ATTRS);
// They share one layout.
typedef scatter_add_attrs scatter_any_attrs;

static bool scatter_check_mode(ct_call *call, int64_t mode) {
    if (mode >= CT_MODE_DROP && mode <= CT_MODE_PROMISE_IN_BOUNDS) return true;
    return ct__call_err(call, CT_E_ARGUMENT, "there is no mode %lld", (long long)mode) ||
           ct__call_hint(call, "modes are CT_MODE_DROP, CT_MODE_CLIP, CT_MODE_PROMISE_IN_BOUNDS");
}

static bool scatter_infer(ct_call *call) {
    scatter_any_attrs *attrs = call->attrs;
    const ct_type *x = call->in[0], *update = call->in[2];
    ct_shape shape = {0};
    if (!ct__picked_shape(call, &attrs->axis, attrs->batch_dims, &shape)) return false;
    if (!scatter_check_mode(call, attrs->mode)) return false;
    if (ct__promote(x->dtype, x->weak, update->dtype, update->weak) != x->dtype)
        return ct__call_err(call, CT_E_DTYPE, "the updates are %s, x is %s",
                            ct__type_text(update).s, ct__type_text(x).s) ||
               ct__hint_cast(call, "updates", (ct_dtype)x->dtype);
    if (!ct__call_fits(call, 2, x->dtype)) return false;
    ct_type required = ct__shaped(&shape, x->dtype, false);
    if (!ct__same_sizes(&required, update))
        return ct__call_err(call, CT_E_SHAPE, "the updates are %s, x and the indices ask for %s",
                            ct__type_text(update).s, ct__type_text(&required).s) ||
               ct__call_hint(call, "updates have the shape of ct_gather(x, indices); ct_expand "
                                   "repeats one");
    *call->out = *x;
    return true;
}

#define SCATTER(ID, op)                                                                            \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_scatter, .n_in = 3, .n_out = 1,               \
    CT_FIELDS(op), .infer = scatter_infer, .stablehlo = "scatter"

// Returns for each update the index of the element that it applies to; an invalid index if it applies to
// none.
static ct_tensor scatter_indices(const ct_rule *r) {
    const scatter_any_attrs *attrs = r->attrs;
    if (attrs->mode != CT_MODE_CLIP) return r->in[1];
    ct_tensor n = ct__size_number(ct__size_like(r->in[0], (int)attrs->axis), CT_I64);
    ct_tensor at = ct_maximum(ct_cast(r->in[1], CT_I64), ct_i(0));
    return ct_minimum(at, ct_sub(n, ct_i(1)));
}
// Gathers from t, which has x's shape, the elements that updates apply to, or 0 if there is none.
static ct_tensor scatter_gather(const ct_rule *r, ct_tensor t) {
    const scatter_any_attrs *attrs = r->attrs;
    ct_tensor p = ct_gather(t, scatter_indices(r), .axis = attrs->axis,
                            .batch_dims = attrs->batch_dims, .zero_outside = true);
    return ct__shaped_like(p, r->in[2]);
}

// The same with another op, x and updates; all have one layout of attributes.
static ct_tensor scatter_by(const ct_rule *r, const ct_opdef *op, ct_tensor x, ct_tensor updates) {
    return ct__record(op, r->attrs, (ct_tensor[]){x, r->in[1], updates}, 3, r->node->here);
}

// For ops that are linear in x and the updates together.
static bool scatter_linear_jvp(ct_rule *r) {
    return ct__set_tangent(r, scatter_by(r, r->node->op, ct__or_zeros(r->t_in[0], r->in[0]),
                                         ct__or_zeros(r->t_in[2], r->in[2])));
}

static bool scatter_add_transpose(ct_rule *r) {
    if (r->linear[0]) r->c_in[0] = r->c_out[0];
    if (r->linear[2]) r->c_in[2] = scatter_gather(r, r->c_out[0]);
    return true;
}
const ct_opdef ct__op_scatter_add = {
    SCATTER(SCATTER_ADD, scatter_add),
    .doc = "x with `updates` added at `indices` along an axis, in the order of the indices; the "
           "updates have the sizes that gather would give. The mode determines what an index out "
           "of bounds does (CT_MODE_DROP: the update is dropped); a negative one is out of bounds, "
           "too. unique and sorted promise that no index occurs twice, and that indices do not "
           "decrease: otherwise the result is undefined.",
    .accepts = CT_NUMBERS | CT_COMPLEX,
    .split = ct__split_each,
    .data = 5,
    .reduction = CT_RED_ADD,
    .jvp = scatter_linear_jvp,
    .transpose = scatter_add_transpose,
    .autocast = CT_CAST_WIDEST,
};

// For indices that occur more than once the last update counts: returns true for the updates that no later
// one overwrites. The shape broadcasts with that of the updates.
static ct_tensor scatter_is_last(const ct_rule *r) {
    const scatter_any_attrs *attrs = r->attrs;
    const ct_type *x = ct__type_of(r->in[0]), *at = ct__type_of(r->in[1]);
    const int batch = (int)attrs->batch_dims, axis = (int)attrs->axis;
    int64_t dims[CT_MAX_RANK];
    ct_dims_buffer buffer;
    ct_ints index_dims = ct__dims_of(r->in[1], &buffer);
    ct_tensor number = ct_zeros(CT_I64, index_dims); // the number of each update, in order
    for (int a = batch; a < at->rank; a++) {
        ct_tensor size = ct__size_number(ct__size_like(r->in[1], a), CT_I64);
        number = ct_add(ct_mul(number, size), ct_iota(CT_I64, index_dims, a));
    }
    for (int a = 0; a < batch; a++) dims[a] = ct__size_like(r->in[0], a);
    dims[batch] = ct__size_like(r->in[0], axis);
    ct_tensor none = ct_sub(ct_zeros(CT_I64, ((ct_ints){batch + 1, dims})), ct_i(1));
    ct_tensor last = ct_scatter(none, r->in[1], number, .axis = batch, .batch_dims = batch,
                                .mode = attrs->mode, .sorted = attrs->sorted);
    ct_tensor winner = ct_gather(last, scatter_indices(r), .axis = batch, .batch_dims = batch);
    int n = batch;
    for (int a = batch; a < axis; a++) dims[n++] = 1;
    for (int a = batch; a < at->rank; a++) dims[n++] = ct__size_like(r->in[1], a);
    for (int a = axis + 1; a < x->rank; a++) dims[n++] = 1;
    return ct_reshape(ct_equal(number, winner), ((ct_ints){n, dims}));
}
static bool scatter_transpose(ct_rule *r) {
    const scatter_any_attrs *attrs = r->attrs;
    if (r->linear[0])
        r->c_in[0] = scatter_by(r, &ct__op_scatter, r->c_out[0], ct__zeros_like(r->in[2]));
    if (!r->linear[2]) return true;
    ct_tensor p = scatter_gather(r, r->c_out[0]);
    r->c_in[2] = attrs->unique ? p : ct_select(scatter_is_last(r), p, ct__number_like(0, p));
    return true;
}
const ct_opdef ct__op_scatter = {
    SCATTER(SCATTER, scatter),
    .doc = "x with the elements at `indices` along an axis replaced by `updates`, in the order of "
           "the indices: the last of those that name one element stays, and has the gradient. "
           "Options are those of ct_scatter_add.",
    .accepts = CT_NUMBERS | CT_MASK(CT_BOOL) | CT_COMPLEX,
    .split = ct__split_each,
    .data = 5,
    .jvp = scatter_linear_jvp,
    .transpose = scatter_transpose,
    .autocast = CT_CAST_WIDEST,
};

// The product of x and updates to distinct elements is linear in x, and in the updates.
static bool scatter_mul_jvp(ct_rule *r) {
    const scatter_any_attrs *attrs = r->attrs;
    ct_tensor by_x = CT_NONE, by_updates = CT_NONE;
    if (!ct__is_none(r->t_in[0])) by_x = scatter_by(r, r->node->op, r->t_in[0], r->in[2]);
    if (!ct__is_none(r->t_in[2])) {
        if (!attrs->unique)
            return ct__refuse(
                r->node->ctx, CT_E_UNSUPPORTED, r->node->here, "scatter_mul",
                "the gradient with respect to the updates needs .unique: no index occurs twice");
        by_updates = scatter_by(r, &ct__op_scatter_add, ct__zeros_like(r->in[0]), r->t_in[2]);
        by_updates = ct_mul(r->in[0], by_updates);
    }
    return ct__set_tangent(r, ct__add_zero(by_x, by_updates));
}
static bool scatter_mul_transpose(ct_rule *r) { // with respect to x
    return ct__set_cotangent(r, scatter_by(r, r->node->op, r->c_out[0], r->in[2]));
}
const ct_opdef ct__op_scatter_mul = {
    SCATTER(SCATTER_MUL, scatter_mul),
    .doc =
        "x with the elements at `indices` along an axis multiplied by `updates`, in the order of "
        "the indices. Options are those of ct_scatter_add; updates have a gradient with .unique "
        "only.",
    .accepts = CT_NUMBERS,
    .reduction = CT_RED_MUL,
    .jvp = scatter_mul_jvp,
    .transpose = scatter_mul_transpose,
    .samples = {.lo = 0.5, .hi = 1.5},
};

// The tangent of an element is the mean of the tangents of all candidates that equal it: its own, and
// those of updates that apply to it.
static bool scatter_extreme_jvp(ct_rule *r) {
    ct_tensor x = r->in[0], updates = r->in[2], y = r->out[0];
    ct_tensor zero = ct__number_like(0, x), one = ct__number_like(1, x);
    ct_tensor x_wins = ct_equal(x, y), update_wins = ct_equal(updates, scatter_gather(r, y));
    ct_tensor update_count = ct_select(update_wins, one, zero),
              total = ct_select(x_wins, one, zero);
    ct_tensor t = ct_select(x_wins, ct__or_zeros(r->t_in[0], x), zero);
    total = scatter_by(r, &ct__op_scatter_add, total, update_count);
    if (!ct__is_none(r->t_in[2]))
        t = scatter_by(r, &ct__op_scatter_add, t, ct_select(update_wins, r->t_in[2], zero));
    return ct__set_tangent(r, ct_div(t, ct_maximum(total, one))); // total is 0 at NaN
}
const ct_opdef ct__op_scatter_min = {
    SCATTER(SCATTER_MIN, scatter_min),
    .doc =
        "x with the elements at `indices` along an axis made the smaller one of themselves and of "
        "`updates`; NaN wins. Options are those of ct_scatter_add. Equals share the gradient.",
    .accepts = CT_NUMBERS,
    .reduction = CT_RED_MIN,
    .jvp = scatter_extreme_jvp,
    .samples = {.kinks = true},
};

const ct_opdef ct__op_scatter_max = {
    SCATTER(SCATTER_MAX, scatter_max),
    .doc =
        "x with the elements at `indices` along an axis made the larger one of themselves and of "
        "`updates`; NaN wins. Options are those of ct_scatter_add. Equals share the gradient.",
    .accepts = CT_NUMBERS,
    .reduction = CT_RED_MAX,
    .jvp = scatter_extreme_jvp,
    .samples = {.kinks = true},
};
