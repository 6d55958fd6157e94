// Norms by channels, of x (N, C, ...): over groups of an image's channels, or over all images.
#include <math.h>

#include "kinds/batch.h"
#include "ops/rules.h"

#define GROUP_NORM_ATTRS(F, op) F(op, i64, groups) F(op, num, eps) F(op, i64, present)
#define INSTANCE_NORM_ATTRS(F, op) F(op, num, eps) F(op, i64, present)
#define BATCH_NORM_ATTRS(F, op) F(op, num, eps) F(op, i64, present)
#define BATCH_NORM_TRAIN_ATTRS(F, op) F(op, num, eps) F(op, num, momentum) F(op, i64, present)
CT_ATTRS(group_norm, GROUP_NORM_ATTRS);
CT_ATTRS(instance_norm, INSTANCE_NORM_ATTRS);
CT_ATTRS(batch_norm, BATCH_NORM_ATTRS);
CT_ATTRS(batch_norm_train, BATCH_NORM_TRAIN_ATTRS);

// x (N, C, ...) with at least `least` axes; all other operands (C,) in its dtype.
static bool channels_fit(ct_call *call, int least, ct_num *eps) {
    const ct_type *x = call->in[0];
    if (!ct__check_accepts(call, 0)) return false;
    if (x->rank < least)
        return ct__call_err(call, CT_E_SHAPE, "x is %s, it must be %s", ct__type_text(x).s,
                            least > 2 ? "(N, C, ...) with one more axis at least" : "(N, C, ...)");
    for (int i = 1; i < call->n_in; i++) {
        const ct_type *w = call->in[i];
        // f32 beside what is narrower is computed with as it is: weights and statistics of mixed precision.
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

// (C,) beside x (N, C, ...).
static ct_tensor by_channel(ct_tensor t, ct_tensor x) {
    int64_t dims[CT_MAX_RANK], rank = ct__type_of(x)->rank;
    for (int64_t a = 1; a < rank; a++) dims[a] = 1;
    dims[1] = ct__size_like(t, 0);
    return ct_reshape(t, ((ct_ints){rank - 1, dims + 1}));
}
// x (N, C, ...) added up to (C,).
static ct_tensor channel_sums(ct_tensor x) {
    int64_t axes[CT_MAX_RANK], n = 0;
    for (int64_t a = 0; a < ct__type_of(x)->rank; a++)
        if (a != 1) axes[n++] = a;
    return ct_sum(x, .axes = {n, axes});
}

typedef struct normal {
    int64_t v[CT_MAX_RANK];
    ct_ints axes;           // that are normalised over
    ct_tensor count;        // elements in them
    ct_tensor mean, square; // sums over them keep them as 1: the mean, and of the squared distances
    ct_tensor hat;          // x normalised
    ct_tensor rate;         // what its distance from the mean was multiplied with
} normal;
static ct_tensor over(const normal *n, ct_tensor t) {
    return ct_sum(t, .axes = n->axes, .keepdims = true);
}
static void normalise(normal *n, ct_tensor x, double eps) {
    n->count = ct__count_along(x, n->axes.v, (int)n->axes.n);
    n->mean = ct_div(over(n, x), n->count);
    ct_tensor d = ct_sub(x, n->mean);
    n->square = over(n, ct_mul(d, d));
    ct_tensor var = ct_add(ct_div(n->square, n->count), ct__number_like(eps, x));
    n->rate = ct_div(ct_f(1), ct_sqrt(var));
    n->hat = ct_mul(d, n->rate);
}
// Operands in turn: weight and bias are the last that are present.
typedef struct affine {
    int weight, bias; // 0: absent
} affine;
static affine affine_of(const ct_rule *r, int64_t present) {
    int bias = present & 2 ? r->n_in - 1 : 0;
    return (affine){present & 1 ? (bias ? bias : r->n_in) - 1 : 0, bias};
}
static ct_tensor scaled(const ct_rule *r, affine of, ct_tensor y) {
    if (of.weight) y = ct_mul(y, by_channel(r->in[of.weight], y));
    return of.bias ? ct_add(y, by_channel(r->in[of.bias], y)) : y;
}

#define NORM(ID, op, outs)                                                                         \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_composition, .n_in = -1, .n_out = outs,       \
    CT_FIELDS(op), .accepts = CT_FLOATS, .infer = op##_infer, .body = op##_body, .widens = true,   \
    .samples = {.ulp = 32}

// ------------------------------------------------------------------------------------- group norm

static bool group_norm_infer(ct_call *call) {
    group_norm_attrs *attrs = call->attrs;
    const ct_type *x = call->in[0];
    if (!channels_fit(call, 2, &attrs->eps)) return false;
    if (attrs->groups == 0) attrs->groups = 1;
    if (attrs->groups < 1)
        return ct__call_err(call, CT_E_ARGUMENT, "groups is %lld, it must be at least 1",
                            (long long)attrs->groups);
    return x->dim[1] % attrs->groups == 0 ||
           ct__call_err(call, CT_E_SHAPE, "%lld groups do not divide the %lld channels of x %s",
                        (long long)attrs->groups, (long long)x->dim[1], ct__type_text(x).s);
}
// x as (N, groups, C / groups, ...), over whose axes from 2 on it is normalised.
static ct_tensor grouped(const ct_rule *r, ct_tensor x, normal *n) {
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
    normal n;
    normalise(&n, grouped(r, r->in[0], &n), attrs->eps.value);
    ct_tensor hat = ct__of_type(n.hat, ct__type_of(r->in[0]));
    r->body_out[0] = scaled(r, affine_of(r, attrs->present), hat);
    return true;
}
// x (N, C, ...) added up to (N, C).
static ct_tensor image_sums(ct_tensor x) {
    int64_t axes[CT_MAX_RANK], rank = ct__type_of(x)->rank;
    for (int64_t a = 2; a < rank; a++) axes[a - 2] = a;
    return rank > 2 ? ct_sum(x, .axes = {rank - 2, axes}) : x;
}
// t (N, C) added up to each group's share of an element, beside x (N, groups, C / groups, ...).
static ct_tensor group_share(const normal *n, ct_tensor t, ct_tensor x) {
    ct_dims_buffer dims;
    ct__dims_of(x, &dims);
    ct_tensor sums = ct_sum(ct_reshape(t, ((ct_ints){3, dims.v})), .axes = CT_AXES(2));
    for (int64_t a = 2; a < dims.list.n; a++) dims.v[a] = 1;
    return ct_div(ct_reshape(sums, dims.list), n->count);
}
// Of a cotangent the parts along hat and the mean change nothing. Both are sums of each channel's, of
// which the gradients of weight and bias are made too.
static bool group_norm_vjp(ct_rule *r) {
    const group_norm_attrs *attrs = r->attrs;
    const ct_type *type = ct__type_of(r->in[0]);
    const affine of = affine_of(r, attrs->present);
    ct_tensor c = r->c_out[0];
    if (ct__is_none(c)) return true;
    normal n, same;
    normalise(&n, grouped(r, r->in[0], &n), attrs->eps.value);
    ct_tensor even = image_sums(c), along = image_sums(ct_mul(c, ct__of_type(n.hat, type)));
    if (of.bias) r->c_in[of.bias] = ct_sum(even, .axes = CT_AXES(0));
    if (of.weight) {
        ct_tensor weight = r->in[of.weight];
        r->c_in[of.weight] = ct_sum(along, .axes = CT_AXES(0));
        c = ct_mul(c, by_channel(weight, c));
        even = ct_mul(even, weight);
        along = ct_mul(along, weight);
    }
    c = grouped(r, c, &same);
    ct_tensor rest = ct_sub(c, group_share(&n, even, c));
    rest = ct_sub(rest, ct_mul(n.hat, group_share(&n, along, c)));
    r->c_in[0] = ct__of_type(ct_mul(rest, n.rate), type);
    return true;
}
// A batch of x alone is more images; weights that differ are for the body.
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
    return channels_fit(call, 3, &((instance_norm_attrs *)call->attrs)->eps);
}
static bool instance_norm_body(ct_rule *r) {
    const instance_norm_attrs *attrs = r->attrs;
    group_norm_attrs group = {ct__type_of(r->in[0])->dim[1], attrs->eps, attrs->present};
    if (group.groups == 0) group.groups = 1; // of no channels
    r->body_out[0] = ct__record(&ct__op_group_norm, &group, r->in, r->n_in, r->node->here);
    return true;
}
const ct_opdef ct__op_instance_norm = {
    NORM(INSTANCE_NORM, instance_norm, 1),
    .batch = group_norm_batch,
    .doc = "ct_group_norm with each channel of x (N, C, ...) a group of its own.",
    .onnx = "InstanceNormalization",
};

// ------------------------------------------------------------------------------------- batch norm

static bool batch_norm_infer(ct_call *call) {
    return channels_fit(call, 2, &((batch_norm_attrs *)call->attrs)->eps);
}
static bool batch_norm_body(ct_rule *r) {
    const batch_norm_attrs *attrs = r->attrs;
    ct_tensor x = r->in[0], var = ct_add(r->in[2], ct__number_like(attrs->eps.value, x));
    ct_tensor rate = ct_div(ct_f(1), ct_sqrt(var)); // (C,)
    ct_tensor hat = ct_mul(ct_sub(x, by_channel(r->in[1], x)), by_channel(rate, x));
    r->body_out[0] = scaled(r, affine_of(r, attrs->present), hat);
    return true;
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
    if (!channels_fit(call, 2, &attrs->eps)) return false;
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
static void over_images(ct_tensor x, normal *n) { // all axes but the channels'
    int64_t rank = ct__type_of(x)->rank;
    n->axes = (ct_ints){rank - 1, n->v};
    for (int64_t a = 0, i = 0; a < rank; a++)
        if (a != 1) n->v[i++] = a;
}
// A running statistic with its new value mixed in, (C,).
static ct_tensor mixed(ct_tensor running, ct_tensor now, double momentum) {
    ct_tensor kept = ct_mul(running, ct__number_like(1 - momentum, running));
    now = ct__of_type(now, ct__type_of(running));
    return ct_add(kept, ct_mul(now, ct__number_like(momentum, running)));
}
static bool batch_norm_train_body(ct_rule *r) {
    const batch_norm_train_attrs *attrs = r->attrs;
    ct_tensor x = r->in[0], one = ct__number_like(1, x);
    normal n;
    over_images(x, &n);
    normalise(&n, x, attrs->eps.value);
    r->body_out[0] = scaled(r, affine_of(r, attrs->present), n.hat);
    r->body_out[1] = mixed(r->in[1], n.mean, attrs->momentum.value);
    ct_tensor var = ct_div(n.square, ct_sub(n.count, one));
    r->body_out[2] = mixed(r->in[2], var, attrs->momentum.value);
    return true;
}
static bool batch_norm_train_vjp(ct_rule *r) {
    const batch_norm_train_attrs *attrs = r->attrs;
    ct_tensor x = r->in[0], c_x = CT_NONE, share[3];
    normal n;
    over_images(x, &n);
    normalise(&n, x, attrs->eps.value);
    if (!ct__is_none(r->c_out[0])) {
        const affine of = affine_of(r, attrs->present);
        ct_tensor c = r->c_out[0], rate = n.rate;
        ct_tensor even = channel_sums(c), along = channel_sums(ct_mul(c, n.hat)); // (C,)
        if (of.bias) r->c_in[of.bias] = even;
        if (of.weight) r->c_in[of.weight] = along;
        if (of.weight) rate = ct_mul(rate, by_channel(r->in[of.weight], x));
        ct_tensor rest = ct_sub(c, by_channel(ct_div(even, n.count), x));
        rest = ct_sub(rest, ct_mul(n.hat, by_channel(ct_div(along, n.count), x)));
        c_x = ct_mul(rest, rate);
    }
    for (int i = 1; i < 3; i++) { // what a running statistic keeps of itself, and takes of x
        ct_tensor c = r->c_out[i];
        if (ct__is_none(c)) continue;
        r->c_in[i] = ct_mul(c, ct__number_like(1 - attrs->momentum.value, x));
        share[i] = by_channel(ct_mul(c, ct__number_like(attrs->momentum.value, x)), x);
    }
    ct_dims_buffer dims;
    if (!ct__is_none(r->c_out[1])) {
        ct_tensor even = ct_expand(ct_div(share[1], n.count), ct__dims_of(x, &dims));
        c_x = ct__add_zero(c_x, even);
    }
    if (!ct__is_none(r->c_out[2])) {
        ct_tensor twice = ct_mul(ct_sub(x, n.mean), ct__number_like(2, x));
        ct_tensor rest = ct_sub(n.count, ct__number_like(1, x));
        c_x = ct__add_zero(c_x, ct_mul(twice, ct_div(share[2], rest)));
    }
    r->c_in[0] = c_x;
    return true;
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
