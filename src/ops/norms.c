// Normalisation per channel of x (N, C, ...): over groups of an image's channels, or over all images.
#include <math.h>

#include "kinds/batch.h"
#include "ops/rules.h"

#define GROUP_NORM_ATTRS(F, op) F(op, i64, groups) F(op, num, eps) F(op, i64, present)
#define INSTANCE_NORM_ATTRS(F, op) F(op, num, eps) F(op, i64, present)
#define BATCH_NORM_TRAIN_ATTRS(F, op) F(op, num, eps) F(op, num, momentum) F(op, i64, present)
CT_ATTRS(group_norm, GROUP_NORM_ATTRS);
CT_ATTRS(instance_norm, INSTANCE_NORM_ATTRS);
CT_ATTRS(batch_norm, INSTANCE_NORM_ATTRS);
CT_ATTRS(batch_norm_train, BATCH_NORM_TRAIN_ATTRS);

// Checks x (N, C, ...) with at least `min_rank` axes, and all other operands (C,), in its dtype.
static bool norm_check_operands(ct_call *call, int min_rank, ct_num *eps) {
    const ct_type *x = call->in[0];
    if (!ct__check_accepts(call, 0)) return false;
    if (x->rank < min_rank)
        return ct__call_err(call, CT_E_SHAPE, "x is %s, it must be %s", ct__type_text(x).s,
                            min_rank > 2 ? "(N, C, ...) with one more axis at least"
                                         : "(N, C, ...)");
    for (int i = 1; i < call->n_in; i++) {
        const ct_type *w = call->in[i];
        // With a narrower x, f32 weights and statistics are accepted and used as they are (mixed precision).
        if (w->dtype != x->dtype && !(w->dtype == CT_F32 && ct__is_narrow_float(x->dtype)))
            return ct__call_err(call, CT_E_DTYPE, "operand %d is %s, x is %s", i + 1,
                                ct__type_text(w).s, ct__type_text(x).s) ||
                   ct__hint_cast(call, "operand", (ct_dtype)x->dtype);
        if (w->rank != 1 || w->dim[0] != x->dim[1])
            return ct__call_err(call, CT_E_SHAPE, "operand %d is %s, it must be (%lld,) for x %s",
                                i + 1, ct__type_text(w).s, (long long)x->dim[1],
                                ct__type_text(x).s) ||
                   ct__call_hint(call, "one number a channel, which axis 1 counts");
        (void)ct__same_size(x, 1, w, 0);
    }
    if (!ct__normal_eps(call, eps)) return false;
    *call->out = *x;
    call->out->weak = false;
    return true;
}

// Reshapes (C,) to broadcast to x (N, C, ...).
static ct_tensor norm_per_channel(ct_tensor t, ct_tensor x) {
    int64_t dims[CT_MAX_RANK], rank = ct__type_of(x)->rank;
    for (int64_t a = 1; a < rank; a++) dims[a] = 1;
    dims[1] = ct__size_like(t, 0);
    return ct_reshape(t, ((ct_ints){rank - 1, dims + 1}));
}
// Sums x (N, C, ...) to (C,).
static ct_tensor norm_sum_to_channels(ct_tensor x) {
    int64_t axes[CT_MAX_RANK], n = 0;
    for (int64_t a = 0; a < ct__type_of(x)->rank; a++)
        if (a != 1) axes[n++] = a;
    return ct_sum(x, .axes = {n, axes});
}

typedef struct norm_state {
    int64_t v[CT_MAX_RANK];
    ct_ints axes;    // the axes of the mean and variance
    ct_tensor count; // the number of elements along them
    // the mean, and the sum of squared distances from it, with size 1 along the axes
    ct_tensor mean, sum_squares;
    ct_tensor normalised; // x normalised
    ct_tensor inv_std;    // 1 / standard deviation
} norm_state;
static ct_tensor norm_sum(const norm_state *n, ct_tensor t) {
    return ct_sum(t, .axes = n->axes, .keepdims = true);
}
static void norm_compute(norm_state *n, ct_tensor x, double eps) {
    n->count = ct__count_along(x, n->axes.v, (int)n->axes.n);
    n->mean = ct_div(norm_sum(n, x), n->count);
    ct_tensor d = ct_sub(x, n->mean);
    n->sum_squares = norm_sum(n, ct_mul(d, d));
    ct_tensor var = ct_add(ct_div(n->sum_squares, n->count), ct__number_like(eps, x));
    n->inv_std = ct_div(ct_f(1), ct_sqrt(var));
    n->normalised = ct_mul(d, n->inv_std);
}
// Indices of the optional operands weight and bias, which are the last ones that are present.
typedef struct norm_affine {
    int weight, bias; // 0: absent
} norm_affine;
static norm_affine norm_affine_of(const ct_rule *r, int64_t present) {
    int bias = present & 2 ? r->n_in - 1 : 0;
    return (norm_affine){present & 1 ? (bias ? bias : r->n_in) - 1 : 0, bias};
}
static ct_tensor norm_scale_and_shift(const ct_rule *r, norm_affine of, ct_tensor y) {
    if (of.weight) y = ct_mul(y, norm_per_channel(r->in[of.weight], y));
    return of.bias ? ct_add(y, norm_per_channel(r->in[of.bias], y)) : y;
}

#define NORM(ID, op, outs)                                                                         \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_composition, .n_in = -1, .n_out = outs,       \
    CT_FIELDS(op), .accepts = CT_FLOATS, .infer = op##_infer, .body = op##_body, .widens = true,   \
    .samples = {.ulp = 32}

// ------------------------------------------------------------------------------------- group norm

static bool group_norm_infer(ct_call *call) {
    group_norm_attrs *attrs = call->attrs;
    const ct_type *x = call->in[0];
    if (!norm_check_operands(call, 2, &attrs->eps)) return false;
    if (attrs->groups == 0) attrs->groups = 1;
    if (attrs->groups < 1)
        return ct__call_err(call, CT_E_ARGUMENT, "groups is %lld, it must be at least 1",
                            (long long)attrs->groups);
    return x->dim[1] % attrs->groups == 0 ||
           ct__call_err(call, CT_E_SHAPE, "%lld groups do not divide the %lld channels of x %s",
                        (long long)attrs->groups, (long long)x->dim[1], ct__type_text(x).s);
}
// Reshapes x to (N, groups, C / groups, ...), which is normalised over the axes from 2 on.
static ct_tensor group_norm_reshape(const ct_rule *r, ct_tensor x, norm_state *n) {
    int64_t groups = ((const group_norm_attrs *)r->attrs)->groups, dims[CT_MAX_RANK + 1];
    const ct_type *type = ct__type_of(x);
    int rank = type->rank + 1;
    dims[0] = ct__size_of(type, 0);
    dims[1] = groups;
    dims[2] = groups == 1 ? ct__size_of(type, 1) : type->dim[1] / groups;
    for (int a = 3; a < rank; a++) dims[a] = ct__size_of(type, a - 1);
    for (int a = 2; a < rank; a++) n->v[a - 2] = a;
    n->axes = (ct_ints){rank - 2, n->v};
    return ct_reshape(x, ((ct_ints){rank, dims}));
}
static bool group_norm_body(ct_rule *r) {
    const group_norm_attrs *attrs = r->attrs;
    norm_state n;
    norm_compute(&n, group_norm_reshape(r, r->in[0], &n), attrs->eps.value);
    ct_tensor normalised = ct__of_type(n.normalised, ct__type_of(r->in[0]));
    return ct__set_body(r, norm_scale_and_shift(r, norm_affine_of(r, attrs->present), normalised));
}
// Sums x (N, C, ...) to (N, C).
static ct_tensor group_norm_sum_to_images(ct_tensor x) {
    int64_t axes[CT_MAX_RANK], rank = ct__type_of(x)->rank;
    for (int64_t a = 2; a < rank; a++) axes[a - 2] = a;
    return rank > 2 ? ct_sum(x, .axes = {rank - 2, axes}) : x;
}
// Sums t (N, C) to the groups and divides by the number of elements; broadcasts to x (N, groups, C /
// groups, ...).
static ct_tensor group_norm_mean_of_sums(const norm_state *n, ct_tensor t, ct_tensor x) {
    ct_dims_buffer dims;
    ct__dims_of(x, &dims);
    ct_tensor sums = ct_sum(ct_reshape(t, ((ct_ints){3, dims.v})), .axes = CT_AXES(2));
    for (int64_t a = 2; a < dims.list.n; a++) dims.v[a] = 1;
    return ct_div(ct_reshape(sums, dims.list), n->count);
}
// The parts of a cotangent along the mean and along the normalised x have no effect. Both are computed
// from sums per channel, which also give the gradients of weight and bias.
static bool group_norm_vjp(ct_rule *r) {
    const group_norm_attrs *attrs = r->attrs;
    const ct_type *type = ct__type_of(r->in[0]);
    const norm_affine of = norm_affine_of(r, attrs->present);
    ct_tensor c = r->c_out[0];
    if (ct__is_none(c)) return true;
    norm_state n, same;
    norm_compute(&n, group_norm_reshape(r, r->in[0], &n), attrs->eps.value);
    ct_tensor sum_c = group_norm_sum_to_images(c),
              sum_c_x = group_norm_sum_to_images(ct_mul(c, ct__of_type(n.normalised, type)));
    if (of.bias) r->c_in[of.bias] = ct_sum(sum_c, .axes = CT_AXES(0));
    if (of.weight) {
        ct_tensor weight = r->in[of.weight];
        r->c_in[of.weight] = ct_sum(sum_c_x, .axes = CT_AXES(0));
        c = ct_mul(c, norm_per_channel(weight, c));
        sum_c = ct_mul(sum_c, weight);
        sum_c_x = ct_mul(sum_c_x, weight);
    }
    c = group_norm_reshape(r, c, &same);
    ct_tensor rest = ct_sub(c, group_norm_mean_of_sums(&n, sum_c, c));
    rest = ct_sub(rest, ct_mul(n.normalised, group_norm_mean_of_sums(&n, sum_c_x, c)));
    return ct__set_cotangent(r, ct__of_type(ct_mul(rest, n.inv_std), type));
}
// If only x is batched, the batch is more images. Batched weights are left to the body.
static bool group_norm_batch(ct_batching *b) {
    const ct_type *x = ct__type(b->node->in[0]);
    int64_t dims[CT_MAX_RANK + 1];
    for (int i = 1; i < b->n_in; i++)
        if (b->batched[i]) return true;
    ct_tensor in[3] = {b->in[0], b->n_in > 1 ? b->in[1] : CT_NONE,
                       b->n_in > 2 ? b->in[2] : CT_NONE};
    for (int a = 0; a < x->rank; a++) dims[a + 1] = ct__size_of(x, a);
    dims[1] = ct__size_mul(b->size, dims[1]);
    in[0] = ct_reshape(in[0], ((ct_ints){x->rank, dims + 1}));
    if (!ct__batch_record(b, b->attrs, in)) return false;
    dims[0] = b->size;
    dims[1] = ct__size_of(x, 0);
    b->out[0] = ct_reshape(b->out[0], ((ct_ints){x->rank + 1, dims}));
    return true;
}
const ct_opdef ct__op_group_norm = {
    NORM(GROUP_NORM, group_norm, 1),
    .vjp = group_norm_vjp,
    .batch = group_norm_batch,
    .doc =
        "x (N, C, ...) whose channels are so many groups (default 1), each less its mean over an "
        "image and divided by its standard deviation (eps is added to the variance; default "
        "1e-5), times weight (C,) plus bias (C,); both may be left out.",
    .onnx = "GroupNormalization",
    .autocast = CT_CAST_F32,
};

// ---------------------------------------------------------------------------------- instance norm

static bool instance_norm_infer(ct_call *call) {
    return norm_check_operands(call, 3, &((instance_norm_attrs *)call->attrs)->eps);
}
static bool instance_norm_body(ct_rule *r) {
    const instance_norm_attrs *attrs = r->attrs;
    group_norm_attrs group = {ct__type_of(r->in[0])->dim[1], attrs->eps, attrs->present};
    if (group.groups == 0) group.groups = 1; // for x without channels
    return ct__set_body(r, ct__record(&ct__op_group_norm, &group, r->in, r->n_in, r->node->here));
}
const ct_opdef ct__op_instance_norm = {
    NORM(INSTANCE_NORM, instance_norm, 1),
    .batch = group_norm_batch,
    .doc = "ct_group_norm with each channel of x (N, C, ...) a group of its own.",
    .onnx = "InstanceNormalization",
};

// ------------------------------------------------------------------------------------- batch norm

static bool batch_norm_infer(ct_call *call) {
    return norm_check_operands(call, 2, &((batch_norm_attrs *)call->attrs)->eps);
}
static bool batch_norm_body(ct_rule *r) {
    const batch_norm_attrs *attrs = r->attrs;
    ct_tensor x = r->in[0], var = ct_add(r->in[2], ct__number_like(attrs->eps.value, x));
    ct_tensor inv_std = ct_div(ct_f(1), ct_sqrt(var)); // (C,)
    ct_tensor normalised =
        ct_mul(ct_sub(x, norm_per_channel(r->in[1], x)), norm_per_channel(inv_std, x));
    return ct__set_body(r, norm_scale_and_shift(r, norm_affine_of(r, attrs->present), normalised));
}
const ct_opdef ct__op_batch_norm = {
    NORM(BATCH_NORM, batch_norm, 1),
    .doc =
        "x (N, C, ...) less mean (C,) and divided by the root of var (C,) plus eps (default 1e-5), "
        "times weight (C,) plus bias (C,); the last two may be left out.",
    .onnx = "BatchNormalization",
};

static bool batch_norm_train_infer(ct_call *call) {
    batch_norm_train_attrs *attrs = call->attrs;
    const ct_type *x = call->in[0];
    if (!norm_check_operands(call, 2, &attrs->eps)) return false;
    if (!ct__num_given(attrs->momentum)) attrs->momentum = (ct_num){0.1, true};
    if (!(attrs->momentum.value >= 0 && attrs->momentum.value <= 1))
        return ct__call_err(call, CT_E_ARGUMENT, "momentum is %g, it must be from 0 to 1",
                            attrs->momentum.value);
    int64_t each = 1;
    for (int a = 0; a < x->rank; a++) each *= a == 1 ? 1 : x->dim[a];
    if (each == 1)
        return ct__call_err(call, CT_E_SHAPE,
                            "x is %s: a channel needs more than one element in training",
                            ct__type_text(x).s);
    for (int i = 1; i < 3; i++) {
        call->out[i] = *call->in[i];
        call->out[i].weak = false;
    }
    return true;
}
static void batch_norm_axes(ct_tensor x, norm_state *n) { // all axes but the channels'
    int64_t rank = ct__type_of(x)->rank;
    n->axes = (ct_ints){rank - 1, n->v};
    for (int64_t a = 0, i = 0; a < rank; a++)
        if (a != 1) n->v[i++] = a;
}
// Returns the new running statistic, (C,): (1 - momentum) running + momentum now.
static ct_tensor batch_norm_update(ct_tensor running, ct_tensor now, double momentum) {
    ct_tensor kept = ct_mul(running, ct__number_like(1 - momentum, running));
    now = ct__of_type(now, ct__type_of(running));
    return ct_add(kept, ct_mul(now, ct__number_like(momentum, running)));
}
static bool batch_norm_train_body(ct_rule *r) {
    const batch_norm_train_attrs *attrs = r->attrs;
    ct_tensor x = r->in[0], one = ct__number_like(1, x);
    norm_state n;
    batch_norm_axes(x, &n);
    norm_compute(&n, x, attrs->eps.value);
    r->body_out[0] = norm_scale_and_shift(r, norm_affine_of(r, attrs->present), n.normalised);
    r->body_out[1] = batch_norm_update(r->in[1], n.mean, attrs->momentum.value);
    ct_tensor var = ct_div(n.sum_squares, ct_sub(n.count, one));
    r->body_out[2] = batch_norm_update(r->in[2], var, attrs->momentum.value);
    return true;
}
static bool batch_norm_train_vjp(ct_rule *r) {
    const batch_norm_train_attrs *attrs = r->attrs;
    ct_tensor x = r->in[0], c_x = CT_NONE, share[3];
    norm_state n;
    batch_norm_axes(x, &n);
    norm_compute(&n, x, attrs->eps.value);
    if (!ct__is_none(r->c_out[0])) {
        const norm_affine of = norm_affine_of(r, attrs->present);
        ct_tensor c = r->c_out[0], inv_std = n.inv_std;
        ct_tensor sum_c = norm_sum_to_channels(c),
                  sum_c_x = norm_sum_to_channels(ct_mul(c, n.normalised)); // (C,)
        if (of.bias) r->c_in[of.bias] = sum_c;
        if (of.weight) r->c_in[of.weight] = sum_c_x;
        if (of.weight) inv_std = ct_mul(inv_std, norm_per_channel(r->in[of.weight], x));
        ct_tensor rest = ct_sub(c, norm_per_channel(ct_div(sum_c, n.count), x));
        rest = ct_sub(rest, ct_mul(n.normalised, norm_per_channel(ct_div(sum_c_x, n.count), x)));
        c_x = ct_mul(rest, inv_std);
    }
    // the cotangents of running statistics, to their old values and to those of x
    for (int i = 1; i < 3; i++) {
        ct_tensor c = r->c_out[i];
        if (ct__is_none(c)) continue;
        r->c_in[i] = ct_mul(c, ct__number_like(1 - attrs->momentum.value, x));
        share[i] = norm_per_channel(ct_mul(c, ct__number_like(attrs->momentum.value, x)), x);
    }
    ct_dims_buffer dims;
    if (!ct__is_none(r->c_out[1])) {
        ct_tensor from_mean = ct_expand(ct_div(share[1], n.count), ct__dims_of(x, &dims));
        c_x = ct__add_zero(c_x, from_mean);
    }
    if (!ct__is_none(r->c_out[2])) {
        ct_tensor twice = ct_mul(ct_sub(x, n.mean), ct__number_like(2, x));
        ct_tensor rest = ct_sub(n.count, ct__number_like(1, x));
        c_x = ct__add_zero(c_x, ct_mul(twice, ct_div(share[2], rest)));
    }
    return ct__set_cotangent(r, c_x);
}
const ct_opdef ct__op_batch_norm_train = {
    NORM(BATCH_NORM_TRAIN, batch_norm_train, 3),
    .vjp = batch_norm_train_vjp,
    .doc =
        "x (N, C, ...) less the mean of each channel over all images and divided by its standard "
        "deviation (eps is added to the variance; default 1e-5), times weight (C,) plus bias "
        "(C,); both may be left out. mean and var (C,) come back with momentum (default 0.1) of "
        "those of x mixed in, the variance with one element fewer as its divisor.",
};
