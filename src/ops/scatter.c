// Writing at positions that are data: updates are put to elements of x, in the order of the indices.
#include "ops/rules.h"

#define SCATTER_ADD_ATTRS(F, op)                                                                   \
    F(op, axis, axis)                                                                              \
    F(op, leading, batch_dims) F(op, mode, mode) F(op, unique, unique) F(op, sorted, sorted)
CT_ATTRS(scatter_add, SCATTER_ADD_ATTRS);
// They share one layout.
typedef scatter_add_attrs any_attrs;

static bool check_mode(ct_call *call, int64_t mode) {
    if (mode >= CT_MODE_DROP && mode <= CT_MODE_PROMISE_IN_BOUNDS) return true;
    return ct__call_err(call, CT_E_ARGUMENT, "there is no mode %lld", (long long)mode) ||
           ct__call_hint(call, "modes are CT_MODE_DROP, CT_MODE_CLIP, CT_MODE_PROMISE_IN_BOUNDS");
}

static bool scatter_infer(ct_call *call) {
    any_attrs *attrs = call->attrs;
    const ct_type *x = call->in[0], *update = call->in[2];
    ct_shape shape = {0};
    if (!ct__picked_shape(call, &attrs->axis, attrs->batch_dims, &shape)) return false;
    if (!check_mode(call, attrs->mode)) return false;
    if (ct__promote(x->dtype, x->weak, update->dtype, update->weak) != x->dtype)
        return ct__call_err(call, CT_E_DTYPE, "the updates are %s, x is %s",
                            ct__type_text(update).s, ct__type_text(x).s) ||
               ct__hint_cast(call, "updates", (ct_dtype)x->dtype);
    if (!ct__call_fits(call, 2, x->dtype)) return false;
    ct_type wanted = ct__shaped(&shape, x->dtype, false);
    bool fits = wanted.rank == update->rank;
    for (int a = 0; fits && a < wanted.rank; a++) fits = wanted.dim[a] == update->dim[a];
    if (!fits)
        return ct__call_err(call, CT_E_SHAPE, "the updates are %s, x and the indices ask for %s",
                            ct__type_text(update).s, ct__type_text(&wanted).s) ||
               ct__call_hint(call, "updates have the shape of ct_gather(x, indices); ct_expand "
                                   "repeats one");
    *call->out = *x;
    return true;
}

#define SCATTER(ID, op)                                                                            \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_scatter, .n_in = 3, .n_out = 1,               \
    CT_FIELDS(op), .infer = scatter_infer, .stablehlo = "scatter"

// The indices, each at the element to which its update goes; one outside where it goes to none.
static ct_tensor places(const ct_rule *r) {
    const any_attrs *attrs = r->attrs;
    if (attrs->mode != CT_MODE_CLIP) return r->in[1];
    ct_tensor n = ct__size_number(ct__size_like(r->in[0], (int)attrs->axis), CT_I64);
    ct_tensor at = ct_maximum(ct_cast(r->in[1], CT_I64), ct_i(0));
    return ct_minimum(at, ct_sub(n, ct_i(1)));
}
// Of t, which has x's shape, the elements to which updates go, 0 where they go to none.
static ct_tensor picked(const ct_rule *r, ct_tensor t) {
    const any_attrs *attrs = r->attrs;
    ct_tensor p = ct_gather(t, places(r), .axis = attrs->axis, .batch_dims = attrs->batch_dims,
                            .zero_outside = true);
    return ct__shaped_like(p, r->in[2]);
}

// Of ops linear in x and the updates together.
static bool linear_jvp(ct_rule *r) {
    const ct_tensor in[3] = {ct__or_zeros(r->t_in[0], r->in[0]), r->in[1],
                             ct__or_zeros(r->t_in[2], r->in[2])};
    r->t_out[0] = ct__record(r->node->op, r->attrs, in, 3, r->node->here);
    return true;
}

static bool scatter_add_transpose(ct_rule *r) {
    if (r->linear[0]) r->c_in[0] = r->c_out[0];
    if (r->linear[2]) r->c_in[2] = picked(r, r->c_out[0]);
    return true;
}
const ct_opdef ct__op_scatter_add = {
    SCATTER(SCATTER_ADD, scatter_add),
    .doc = "x with `updates` added at `indices` along an axis, in the order of the indices; the "
           "updates have the sizes that gather would give. Of an index outside the mode tells "
           "(CT_MODE_DROP: it is left out). unique and sorted promise that no index stands twice, "
           "that they do not fall: what comes of a broken promise is not told.",
    .accepts = CT_NUMBERS,
    .reduction = CT_RED_ADD,
    .jvp = linear_jvp,
    .transpose = scatter_add_transpose,
};
