// Convolutions: contractions of a view of windows (windows.c) with weights. Windows are never stored.
//
// The three ops are each other's gradients: the gradient of a convolution with respect to x is the transposed
// one, and vice versa; that with respect to the weights is conv_weight_grad, whose own gradients are the other
// two. In all of them the channels are G groups that are processed independently.
#include "base/number.h"
#include "kinds/batch.h"
#include "ops/windows.h"

enum { MAX_SPATIAL = 3, MAX_AXES = CT_MAX_RANK };

#define CONV_ATTRS(F, op)                                                                          \
    F(op, ints, stride)                                                                            \
    F(op, ints, padding)                                                                           \
    F(op, ints, dilation)                                                                          \
    F(op, bool, same) F(op, i64, groups) F(op, extents, output) F(op, i64, present)
#define CONV_TRANSPOSE_ATTRS(F, op)                                                                \
    F(op, ints, stride)                                                                            \
    F(op, ints, padding)                                                                           \
    F(op, ints, output_padding)                                                                    \
    F(op, ints, dilation) F(op, i64, groups) F(op, extents, output) F(op, i64, present)
#define CONV_WEIGHT_GRAD_ATTRS(F, op)                                                              \
    F(op, ints, size)                                                                              \
    F(op, ints, stride) F(op, ints, padding) F(op, ints, dilation) F(op, i64, groups)
CT_ATTRS(conv, CONV_ATTRS);
CT_ATTRS(conv_transpose, CONV_TRANSPOSE_ATTRS);
CT_ATTRS(conv_weight_grad, CONV_WEIGHT_GRAD_ATTRS);

// ------------------------------------------------------------------------------------------- bodies

// The layout of windows along the spatial axes of their operand.
typedef struct geometry {
    int n; // spatial axes
    ct_ints stride, padding, dilation;
    int64_t groups;
} geometry;

static ct_ints conv_list(const int64_t *v, int n) { return (ct_ints){n, v}; }
static void conv_spatial_sizes(const ct_type *t, int from, int n, int64_t *to) {
    for (int i = 0; i < n; i++) to[i] = ct__size_of(t, from + i);
}

// Groups are an axis of their own, except that a single group has none; it is written (G) below.
static int conv_group_axes(int64_t groups) { return groups > 1; }
// Splits the channels of axis `axis` into (G) groups.
static ct_tensor conv_split_groups(ct_tensor t, int axis, int64_t groups) {
    if (groups == 1) return t;
    ct_dims_buffer dims;
    ct__dims_of(t, &dims);
    for (int64_t a = dims.list.n; a > axis; a--) dims.v[a] = dims.v[a - 1];
    dims.v[axis] = groups;
    dims.v[axis + 1] = ct__unmarked(dims.v[axis + 1]) / groups;
    dims.list.n++;
    return ct_reshape(t, dims.list);
}
static ct_tensor conv_merge_groups(ct_tensor t, int axis, int64_t groups) {
    if (groups == 1) return t;
    ct_dims_buffer dims;
    ct__dims_of(t, &dims);
    dims.v[axis] = ct__size_mul(dims.v[axis], dims.v[axis + 1]);
    dims.list.n--;
    for (int64_t a = axis + 1; a < dims.list.n; a++) dims.v[a] = dims.v[a + 1];
    return ct_reshape(t, dims.list);
}
// Inserts n axes of size 1 before `axis`.
static ct_tensor conv_insert_ones(ct_tensor t, int axis, int n) {
    ct_dims_buffer dims;
    ct__dims_of(t, &dims);
    for (int64_t a = dims.list.n - 1; a >= axis; a--) dims.v[a + n] = dims.v[a];
    for (int i = 0; i < n; i++) dims.v[axis + i] = 1;
    dims.list.n += n;
    return ct_reshape(t, dims.list);
}
// Returns the sizes of t without axis `axis`, in `v`.
static ct_ints conv_dims_without(ct_tensor t, int axis, int64_t *v) {
    const ct_type *type = ct__type_of(t);
    int n = 0;
    for (int a = 0; a < type->rank; a++)
        if (a != axis) v[n++] = ct__size_of(type, a);
    return (ct_ints){n, v};
}
static ct_ints conv_list_from(int64_t *v, int first, int n) { // the n numbers from `first` on
    for (int i = 0; i < n; i++) v[i] = first + i;
    return (ct_ints){n, v};
}

// Views x (N, C, i...) as windows (N, (G), C / G, o..., k...), `counts` of them. transposed: o are positions
// in the input of a convolution whose output is x, and each tap sees the element of x whose window has the
// position as that tap.
static ct_tensor conv_window_view(ct_tensor x, const geometry *g, const int64_t *size,
                                  const int64_t *counts, bool transposed) {
    int64_t dilation[MAX_SPATIAL], low[MAX_SPATIAL];
    for (int i = 0; i < g->n; i++) {
        dilation[i] = transposed ? -g->dilation.v[i] : g->dilation.v[i];
        low[i] = transposed ? -g->padding.v[i] : g->padding.v[i];
    }
    ct_windows_args view = {.x = x,
                            .counts = conv_list(counts, g->n),
                            .size = conv_list(size, g->n),
                            .dilation = conv_list(dilation, g->n),
                            .low = conv_list(low, g->n)};
    if (transposed)
        view.base = g->stride;
    else
        view.stride = g->stride;
    return conv_split_groups(ct_windows_with(view), 1, g->groups);
}

// Reshapes weights (G A, B, k...) to ((G), A, B, k...), or exchanged to ((G), B, A, k...).
static ct_tensor conv_group_weights(ct_tensor w, int64_t groups, bool exchanged) {
    int64_t axes[MAX_AXES], a = conv_group_axes(groups);
    w = conv_split_groups(w, 0, groups);
    if (!exchanged) return w;
    ct_ints order = conv_list_from(axes, 0, ct__type_of(w)->rank);
    axes[a] = a + 1;
    axes[a + 1] = a;
    return ct_permute(w, order);
}

// Contracts windows (N, (G), B, o..., k...) with weights ((G), A, B, k...) to (N, G A, o...). A dot product
// runs over the taps, then the channels of the group.
static ct_tensor conv_correlate(ct_tensor windows, ct_tensor weights, const geometry *is) {
    const ct_type *w = ct__type_of(weights);
    const int g = conv_group_axes(is->groups), n = is->n;
    int64_t of_w[1 + MAX_SPATIAL], of_v[1 + MAX_SPATIAL], batch[2], dims[MAX_AXES];
    conv_list_from(of_w, 3 + g, n);
    conv_list_from(of_v, 2 + g + n, n);
    of_w[n] = 2 + g;
    of_v[n] = 1 + g;
    ct_tensor y;
    // depthwise: each result uses one channel, so it is not a matrix product
    if (w->dim[g + 1] == 1 && g) {
        // (G, A, k...), which all positions share
        ct_tensor k = ct_reshape(weights, conv_dims_without(weights, 2, dims));
        y = ct_sum(ct_mul(windows, conv_insert_ones(k, 2, n)), .axes = conv_list(of_v, n));
    } else {
        dims[0] = ct__size_of(ct__type_of(windows), 0);
        for (int a = 0; a < w->rank; a++) dims[a + 1] = ct__size_of(w, a);
        ct_tensor of_each =
            ct_expand(weights, conv_list(dims, w->rank + 1)); // (N, (G), A, B, k...)
        ct_ints shared = conv_list_from(batch, 0, 1 + g);
        y = ct_contract(of_each, windows, .a_axes = conv_list(of_w, n + 1),
                        .b_axes = conv_list(of_v, n + 1), .a_batch = shared, .b_batch = shared);
    }
    return conv_merge_groups(y, 1, is->groups); // of (N, (G), A, o...)
}

// Sums terms (N, G, A, o..., k...) to (G, A, k...): first over the images and all axes of positions but the
// last one, along which memory is contiguous and vectors run, then over that one. If the positions were one
// axis, finding the row of an image would need divisions.
static ct_tensor conv_sum_positions(ct_tensor terms, int n) {
    int64_t order[MAX_AXES], down[MAX_SPATIAL];
    for (int a = 0; a < 3; a++) order[a] = a;
    for (int i = 0; i < n; i++) order[3 + i] = 3 + n + i, order[3 + n + i] = 3 + i;
    for (int i = 0; i < n; i++) down[i] = i ? 2 + n + i : 0;
    ct_tensor columns =
        ct_sum(ct_permute(terms, conv_list(order, 3 + 2 * n)), .axes = conv_list(down, n));
    return ct_sum(columns, .axes = CT_AXES(-1)); // of (G, A, k..., o)
}

// The weights' gradient: contracts windows (N, (G), B, o..., k...) with y (N, G A, o...) to (G A, B, k...). A
// dot product runs over images, then positions.
static ct_tensor conv_correlate_weights(ct_tensor windows, ct_tensor y, const geometry *is) {
    const ct_type *v = ct__type_of(windows);
    const int g = conv_group_axes(is->groups), n = is->n;
    int64_t axes[1 + MAX_SPATIAL], batch[1] = {1};
    ct_ints positions = conv_list_from(axes + 1, 2 + g, n), inner = {1 + positions.n, axes};
    axes[0] = 0;
    y = conv_split_groups(y, 1, is->groups); // (N, (G), A, o...)
    if (v->dim[1 + g] == 1 && g) {
        ct_tensor terms = ct_mul(windows, conv_insert_ones(y, 3 + n, n));
        ct_tensor w = conv_sum_positions(terms, n); // (G, A, k...)
        return conv_insert_ones(conv_merge_groups(w, 0, is->groups), 1, 1);
    }
    ct_ints shared = {g, batch};
    // ((G), A, B, k...)
    ct_tensor w = ct_contract(y, windows, .a_axes = inner, .b_axes = inner, .a_batch = shared,
                              .b_batch = shared);
    return conv_merge_groups(w, 0, is->groups);
}

// Adds a bias (C,) to each channel of y (N, C, o...).
static ct_tensor conv_add_bias(ct_tensor y, ct_tensor bias, int n) {
    int64_t dims[1 + MAX_SPATIAL] = {ct__size_like(bias, 0), 1, 1, 1};
    return ct_add(y, ct_reshape(bias, conv_list(dims, 1 + n)));
}
static ct_tensor conv_bias_grad(ct_tensor c, int n) {
    int64_t axes[1 + MAX_SPATIAL] = {0};
    for (int i = 0; i < n; i++) axes[1 + i] = 2 + i;
    return ct_sum(c, .axes = conv_list(axes, 1 + n));
}

// The images are independent: if only x is batched, the batch is more images.
static bool conv_batch(ct_batching *b) {
    // batched weights are left to the body
    for (int i = 1; i < b->n_in; i++)
        if (b->batched[i]) return true;
    const ct_type *x = ct__type(b->node->in[0]), *out = b->node->out;
    int64_t dims[MAX_AXES];
    ct_tensor in[3] = {b->in[0], b->in[1], b->n_in > 2 ? b->in[2] : CT_NONE};
    for (int a = 0; a < x->rank; a++) dims[a] = ct__size_of(x, a);
    dims[0] = ct__size_mul(b->size, dims[0]);
    in[0] = ct_reshape(in[0], conv_list(dims, x->rank));
    if (!ct__batch_record(b, b->attrs, in)) return false;
    dims[0] = b->size;
    for (int a = 0; a < out->rank; a++) dims[a + 1] = ct__size_of(out, a);
    b->out[0] = ct_reshape(b->out[0], conv_list(dims, out->rank + 1));
    return true;
}

// ------------------------------------------------------------------------------------------- shapes

// Checks x (N, C, ...) and another operand with as many axes, in one dtype.
static bool conv_check_operands(ct_call *call, const char *name, const char *form) {
    const ct_type *x = call->in[0], *w = call->in[1];
    if (!ct__check_accepts(call, 0)) return false;
    if (x->rank < 3 || x->rank > 2 + MAX_SPATIAL)
        return ct__call_err(call, CT_E_SHAPE,
                            "x is %s, it must be (N, C, ...) with 1 to %d more axes",
                            ct__type_text(x).s, MAX_SPATIAL) ||
               ct__call_hint(call, "images of one channel are (N, 1, ...)");
    if (w->dtype != x->dtype)
        return ct__call_err(call, CT_E_DTYPE, "%s is %s, x is %s", name, ct__type_text(w).s,
                            ct__type_text(x).s) ||
               ct__hint_cast(call, name, (ct_dtype)x->dtype);
    if (w->rank != x->rank)
        return ct__call_err(call, CT_E_SHAPE, "%s is %s, for x %s it must be %s", name,
                            ct__type_text(w).s, ct__type_text(x).s, form);
    return true;
}
// Checks that the groups divide the number of channels. 0 groups mean one.
static bool conv_check_groups(ct_call *call, int64_t *groups, int operand, int axis,
                              const char *name) {
    const ct_type *t = call->in[operand];
    if (*groups == 0) *groups = 1;
    if (*groups < 0)
        return ct__call_err(call, CT_E_ARGUMENT, "groups is %lld, it must be at least 1",
                            (long long)*groups);
    if (t->dim[axis] % *groups == 0) return true;
    return ct__call_err(call, CT_E_SHAPE, "%lld groups do not divide the %lld channels of %s %s",
                        (long long)*groups, (long long)t->dim[axis], name, ct__type_text(t).s);
}
// Checks that the weight has the number of channels along an axis that x requires.
static bool conv_check_channels(ct_call *call, int64_t wanted, int axis, int64_t groups) {
    const ct_type *x = call->in[0], *w = call->in[1];
    if (wanted == w->dim[axis]) return true;
    return ct__call_err(call, CT_E_SHAPE,
                        "weight %s has %lld channels along axis %d, for x %s in %lld group%s it "
                        "must have %lld",
                        ct__type_text(w).s, (long long)w->dim[axis], axis, ct__type_text(x).s,
                        (long long)groups, groups == 1 ? "" : "s", (long long)wanted);
}
static bool conv_check_bias(ct_call *call, int64_t channels) {
    if (call->n_in < 3) return true;
    const ct_type *bias = call->in[2], *x = call->in[0];
    if (bias->dtype != x->dtype)
        return ct__call_err(call, CT_E_DTYPE, "bias is %s, x is %s", ct__type_text(bias).s,
                            ct__type_text(x).s) ||
               ct__hint_cast(call, "bias", (ct_dtype)x->dtype);
    if (bias->rank == 1 && bias->dim[0] == channels) return true;
    return ct__call_err(call, CT_E_SHAPE, "bias is %s, it must be (%lld,): one number a channel",
                        ct__type_text(bias).s, (long long)channels);
}
static bool conv_check_kernel(ct_call *call, int n) {
    const ct_type *w = call->in[1];
    for (int i = 0; i < n; i++)
        if (w->dim[2 + i] < 1 || w->dim[2 + i] > CT_MOST_STEP || ct__is_dyn(w, 2 + i))
            return ct__call_err(call, CT_E_SHAPE,
                                "axis %d of weight %s must have a static size of 1 to %lld", 2 + i,
                                ct__type_text(w).s, (long long)CT_MOST_STEP);
    return true;
}
static bool conv_check_output(ct_call *call, const ct_ints *output, int n) {
    return output->n == 0 || output->n == n ||
           ct__call_err(call, CT_E_ARGUMENT, "output has %lld number%s for %d %s",
                        (long long)output->n, output->n == 1 ? "" : "s", n,
                        n == 1 ? "axis" : "axes");
}
static ct_window conv_window_at(const ct_ints *stride, const ct_ints *padding,
                                const ct_ints *dilation, const ct_type *w, int i) {
    return (ct_window){w->dim[2 + i], stride->v[i], dilation->v[i], padding->v[i],
                       padding->v[stride->n + i]};
}

// Returns the largest number of elements after the last window that no window covers.
static int64_t conv_max_remainder(const ct_window *w) {
    return (w->stride > w->dilation ? w->stride : w->dilation) - 1;
}
// True if `count` windows along an axis with n elements are possible: all that fit, or fewer by what a
// transposed convolution may have added at the end.
static bool conv_count_is_valid(const ct_window *w, int64_t n, int64_t count) {
    int64_t rest = n + w->low + w->high - ct__window_span(w) - (count - 1) * w->stride;
    return count > 0 && rest >= 0 && rest <= conv_max_remainder(w);
}

// --------------------------------------------------------------------------------------------- conv

// Computes "same" padding: the number of windows is the size of the axis divided by the stride, rounded up;
// an odd element of padding is at the end.
static bool conv_same_padding(ct_call *call, conv_attrs *attrs, int n) {
    const ct_type *x = call->in[0], *w = call->in[1];
    int64_t *own = ct__call_dims(call, 2 * n);
    if (!own) return false;
    if (attrs->padding.n)
        return ct__call_err(call, CT_E_ARGUMENT, "padding is given, and same too") ||
               ct__call_hint(call, "same finds the padding");
    for (int i = 0; i < n; i++) {
        int64_t size = x->dim[2 + i], s = attrs->stride.v[i];
        int64_t span = (w->dim[2 + i] - 1) * attrs->dilation.v[i] + 1;
        int64_t count = size / s + (size % s > 0), padding = (count - 1) * s + span - size;
        if (padding < 0 || size == 0) padding = 0;
        own[i] = padding / 2;
        own[n + i] = padding - padding / 2;
    }
    attrs->padding = (ct_ints){2 * (int64_t)n, own};
    attrs->same = false;
    return true;
}

static bool conv_infer(ct_call *call) {
    conv_attrs *attrs = call->attrs;
    const ct_type *x = call->in[0], *w = call->in[1];
    int n = x->rank - 2;
    if (!conv_check_operands(call, "weight",
                             "(out, C / groups, ...) with a size for each of its other axes") ||
        !conv_check_kernel(call, n) || !conv_check_groups(call, &attrs->groups, 0, 1, "x") ||
        !conv_check_groups(call, &attrs->groups, 1, 0, "weight") ||
        !conv_check_channels(call, x->dim[1] / attrs->groups, 1, attrs->groups) ||
        !conv_check_bias(call, w->dim[0]) ||
        !ct__window_list(call, "stride", &attrs->stride, n, 1, 1) ||
        !ct__window_list(call, "dilation", &attrs->dilation, n, 1, 1) ||
        (attrs->same && !conv_same_padding(call, attrs, n)) ||
        !ct__window_padding(call, &attrs->padding, n) ||
        !conv_check_output(call, &attrs->output, n))
        return false;
    ct_shape shape = ct__call_shape(call, x->rank);
    if (!shape.dim) return false;
    ct__shape_add_axis(&shape, x, 0);
    ct__shape_add_axis(&shape, w, 0);
    for (int i = 0; i < n; i++) {
        ct_window v = conv_window_at(&attrs->stride, &attrs->padding, &attrs->dilation, w, i);
        if (!attrs->output.n && !ct__window_fits(call, &v, 0, 2 + i)) return false;
        int64_t count = ct__window_count(&v, ct__size_of(x, 2 + i));
        if (attrs->output.n) {
            int64_t wanted = ct__unmarked(attrs->output.v[i]);
            if (!conv_count_is_valid(&v, x->dim[2 + i], wanted))
                return ct__call_err(call, CT_E_ARGUMENT,
                                    "output of axis %d is %lld, there are %lld windows", 2 + i,
                                    (long long)wanted, (long long)ct__unmarked(count));
            count = attrs->output.v[i];
        }
        ct__shape_add(&shape, count);
    }
    if (attrs->groups == 1) (void)ct__same_size(x, 1, w, 1);
    return ct__set_out(call, &shape, (ct_dtype)x->dtype, false);
}
static bool conv_body(ct_rule *r) {
    const conv_attrs *attrs = r->attrs;
    const ct_type *w = ct__type_of(r->in[1]);
    geometry g = {w->rank - 2, attrs->stride, attrs->padding, attrs->dilation, attrs->groups};
    int64_t counts[MAX_SPATIAL];
    conv_spatial_sizes(r->node->out, 2, g.n, counts);
    ct_tensor windows = conv_window_view(r->in[0], &g, w->dim + 2, counts, false);
    ct_tensor y = conv_correlate(windows, conv_group_weights(r->in[1], g.groups, false), &g);
    return ct__set_body(r, attrs->present ? conv_add_bias(y, r->in[2], g.n) : y);
}
static bool conv_vjp(ct_rule *r) {
    const conv_attrs *attrs = r->attrs;
    const ct_type *x = ct__type_of(r->in[0]), *w = ct__type_of(r->in[1]);
    ct_tensor c = r->c_out[0];
    int n = x->rank - 2;
    int64_t sizes[MAX_SPATIAL];
    if (ct__is_none(c)) return true;
    conv_spatial_sizes(x, 2, n, sizes);
    if (attrs->present) r->c_in[2] = conv_bias_grad(c, n);
    for (int i = 0; i < n; i++) { // windows of padding only
        if (x->dim[2 + i] || ct__is_dyn(x, 2 + i)) continue;
        r->c_in[0] = ct__zeros_like(r->in[0]);
        r->c_in[1] = ct__zeros_like(r->in[1]);
        return true;
    }
    r->c_in[0] = ct_conv_transpose(c, r->in[1], .stride = attrs->stride, .padding = attrs->padding,
                                   .dilation = attrs->dilation, .groups = attrs->groups,
                                   .output = conv_list(sizes, n));
    r->c_in[1] = ct_conv_weight_grad(r->in[0], c, .size = conv_list(w->dim + 2, n),
                                     .stride = attrs->stride, .padding = attrs->padding,
                                     .dilation = attrs->dilation, .groups = attrs->groups);
    return true;
}
#define CONVOLUTION(ID, op, ins)                                                                   \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_composition, .n_in = ins, .n_out = 1,         \
    CT_FIELDS(op), .accepts = CT_FLOATS, .infer = op##_infer, .body = op##_body, .vjp = op##_vjp,  \
    .widens = true, .samples = {.ulp = 32}
const ct_opdef ct__op_conv = {
    CONVOLUTION(CONV, conv, -1),
    .doc = "x (N, C, ...) with 1 to 3 spatial axes, convolved with weight (O, C / groups, ...), "
           "whose spatial sizes are static: (N, O, ...), plus bias (O,). stride, dilation (default "
           "1) and padding with zeros (before and after; or all before and then all after) have "
           "one number an axis, or one for all; same: such padding that stride alone divides the "
           "sizes, rounded up. output: as many windows, where ct_conv_transpose makes x of them. "
           "All operands have one dtype, of floats: others are cast first, with ct_cast.",
    .batch = conv_batch,
    .onnx = "Conv",
    .stablehlo = "convolution",
    .autocast = CT_CAST_LOW,
};

// ---------------------------------------------------------------------------------------- transpose

static bool conv_transpose_sizes(ct_call *call, const conv_transpose_attrs *attrs,
                                 ct_shape *shape) {
    const ct_type *x = call->in[0], *w = call->in[1];
    for (int i = 0; i < x->rank - 2; i++) {
        ct_window v = conv_window_at(&attrs->stride, &attrs->padding, &attrs->dilation, w, i);
        int64_t max_extra = conv_max_remainder(&v);
        int64_t extra = attrs->output_padding.v[i];
        if (extra > max_extra)
            return ct__call_err(call, CT_E_ARGUMENT,
                                "output_padding %lld must be smaller than the stride %lld or the "
                                "dilation %lld of axis %d",
                                (long long)extra, (long long)v.stride, (long long)v.dilation,
                                2 + i);
        int64_t size = ct__size_sub(ct__size_of(x, 2 + i), 1);
        size = ct__size_add(ct__size_mul(size, v.stride), ct__window_span(&v) - v.low - v.high);
        int64_t least = ct__unmarked(size);
        if (attrs->output.n) {
            int64_t wanted = ct__unmarked(attrs->output.v[i]);
            // The target size of a gradient may be 0.
            const bool is_nonempty = wanted > 0 || ct__marked(attrs->output.v[i]);
            if (!is_nonempty || wanted < least || wanted > least + max_extra)
                return ct__call_err(call, CT_E_ARGUMENT,
                                    "output of axis %d is %lld, it can be %lld to %lld", 2 + i,
                                    (long long)wanted, (long long)(least < 1 ? 1 : least),
                                    (long long)(least + max_extra));
            size = attrs->output.v[i];
        } else {
            size = ct__size_add(size, extra);
            if (x->dim[2 + i] < 1 || least + extra < 1)
                return ct__call_err(call, CT_E_SHAPE,
                                    "nothing is left of axis %d: x is %s, weight is %s, the "
                                    "padding is %lld and %lld",
                                    2 + i, ct__type_text(x).s, ct__type_text(w).s, (long long)v.low,
                                    (long long)v.high);
        }
        ct__shape_add(shape, size);
    }
    return true;
}
static bool conv_transpose_infer(ct_call *call) {
    conv_transpose_attrs *attrs = call->attrs;
    const ct_type *x = call->in[0], *w = call->in[1];
    int n = x->rank - 2;
    if (!conv_check_operands(call, "weight",
                             "(C, out / groups, ...) with a size for each of its other axes") ||
        !conv_check_kernel(call, n) || !conv_check_groups(call, &attrs->groups, 0, 1, "x") ||
        !conv_check_channels(call, x->dim[1], 0, attrs->groups) ||
        !conv_check_bias(call, w->dim[1] * attrs->groups) ||
        !ct__window_list(call, "stride", &attrs->stride, n, 1, 1) ||
        !ct__window_list(call, "dilation", &attrs->dilation, n, 1, 1) ||
        !ct__window_list(call, "output_padding", &attrs->output_padding, n, 0, 0) ||
        !ct__window_padding(call, &attrs->padding, n) ||
        !conv_check_output(call, &attrs->output, n))
        return false;
    ct_shape shape = ct__call_shape(call, x->rank);
    if (!shape.dim) return false;
    ct__shape_add_axis(&shape, x, 0);
    ct__shape_add(&shape, ct__size_mul(attrs->groups, ct__size_of(w, 1)));
    if (!conv_transpose_sizes(call, attrs, &shape)) return false;
    if (attrs->groups == 1) (void)ct__same_size(x, 1, w, 0);
    return ct__set_out(call, &shape, (ct_dtype)x->dtype, false);
}
// --------------------------------------------------------------------------- transposed, with strides

// The positions of a result, `counts` of them, are q * stride + r, where q runs along the elements of x.
// beyond: there are at most n * stride + beyond positions for n elements.
typedef struct positions {
    const int64_t *counts, *beyond;
} positions;

// Returns the number of q for positions first to first + count - 1 along an axis. If the count is dynamic it
// is expressed by the size of x, since a quotient would be a different symbolic size.
static int64_t conv_phase_steps(ct_tensor x, const geometry *g, const positions *all, int i,
                                int64_t first) {
    const int64_t count = all->counts[i], stride = g->stride.v[i], before = first / stride;
    if (!ct__marked(count)) return (count - 1 + first) / stride - before + 1;
    const int64_t last = all->beyond[i] - 1 + first;
    const int64_t after = last >= 0 ? last / stride : -((stride - 1 - last) / stride);
    return ct__size_add(ct__size_like(x, 2 + i), after - before + 1);
}

// Interleaves y (N, C, r..., q...), with q * stride + r as one axis: (N, C, q r...).
static ct_tensor conv_interleave(ct_tensor y, int n) {
    ct_dims_buffer dims;
    int64_t order[MAX_AXES] = {0, 1};
    ct__dims_of(y, &dims);
    for (int i = 0; i < n; i++) {
        order[2 + 2 * i] = 2 + n + i;
        order[3 + 2 * i] = 2 + i;
        dims.v[2 + i] = ct__size_mul(dims.v[2 + n + i], dims.v[2 + i]);
    }
    return ct_reshape(ct_permute(y, conv_list(order, 2 + 2 * n)), conv_list(dims.v, 2 + n));
}
// Slices positions first to first + count - 1 of axis `axis`.
static ct_tensor conv_slice(ct_tensor y, int axis, int64_t first, int64_t count) {
    if (first == 0 && ct__size_like(y, axis) == count) return y;
    return ct_slice(y, .axes = CT_AXES(axis), .start = CT_INTS(first),
                    .stop = CT_INTS(ct__size_add(count, first)));
}

enum { MAX_PHASES = 64 };

// For the positions q * stride + phase, only every step-th tap has a window: these are again windows of x,
// with stride 1.
typedef struct phase {
    int64_t first, step, count; // the taps
    int64_t low, dilation;      // of the windows, as a transposed convolution of stride 1 has them
} phase;
static phase conv_phase_at(const geometry *g, int i, int64_t size, int64_t at) {
    const int64_t stride = g->stride.v[i], dilation = g->dilation.v[i];
    phase p = {.first = 0, .step = stride / ct__gcd(stride, dilation)};
    while (p.first < p.step && (at + g->padding.v[i] - p.first * dilation) % stride) p.first++;
    if (p.first < p.step && p.first < size) p.count = (size - p.first + p.step - 1) / p.step;
    p.low = (at + g->padding.v[i] - p.first * dilation) / stride;
    p.dilation = p.step * dilation / stride;
    return p;
}

static ct_tensor conv_transpose_whole(ct_tensor x, ct_tensor w, const geometry *g,
                                      const int64_t *counts) {
    ct_tensor windows = conv_window_view(x, g, ct__type_of(w)->dim + 2, counts, true);
    return conv_correlate(windows, conv_group_weights(w, g->groups, true), g);
}

// Computes one phase along each axis, for `counts` positions.
static ct_tensor conv_transpose_phase(ct_tensor x, ct_tensor w, const geometry *g,
                                      const int64_t *counts, const int64_t *at) {
    int64_t stride[MAX_SPATIAL], padding[MAX_SPATIAL], dilation[MAX_SPATIAL];
    for (int i = 0; i < g->n; i++) {
        const phase p = conv_phase_at(g, i, ct__type_of(w)->dim[2 + i], at[i]);
        stride[i] = 1;
        padding[i] = p.low;
        dilation[i] = p.dilation;
        if (!p.count) {
            int64_t dims[MAX_AXES] = {ct__size_like(x, 0), ct__type_of(w)->dim[1] * g->groups};
            for (int a = 0; a < g->n; a++) dims[2 + a] = counts[a];
            return ct_zeros((ct_dtype)ct__type_of(x)->dtype, conv_list(dims, 2 + g->n));
        }
        if (p.step > 1)
            w = ct_slice(w, .axes = CT_AXES(2 + i), .start = CT_INTS(p.first),
                         .step = CT_INTS(p.step));
    }
    geometry part = {g->n, conv_list(stride, g->n), conv_list(padding, g->n),
                     conv_list(dilation, g->n), g->groups};
    return conv_transpose_whole(x, w, &part, counts);
}

// By phases: each remainder r is a transposed convolution of its own, with the taps that have a window.
static ct_tensor conv_transpose_by_phases(ct_tensor x, ct_tensor w, const geometry *g,
                                          const positions *all, int n_phases) {
    int64_t steps[MAX_SPATIAL], at[MAX_SPATIAL], dims[MAX_AXES];
    ct_tensor part[MAX_PHASES];
    for (int i = 0; i < g->n; i++) steps[i] = conv_phase_steps(x, g, all, i, 0);
    for (int p = 0; p < n_phases; p++) {
        int64_t rest = p;
        for (int i = g->n - 1; i >= 0; i--) {
            at[i] = rest % g->stride.v[i];
            rest /= g->stride.v[i];
        }
        part[p] = conv_insert_ones(conv_transpose_phase(x, w, g, steps, at), 2, 1);
    }
    ct_tensor y = ct_concat(part, n_phases, 2); // (N, G B, phases, q...)
    for (int a = 0; a < 2; a++) dims[a] = ct__size_like(y, a);
    for (int i = 0; i < g->n; i++) {
        dims[2 + i] = g->stride.v[i];
        dims[2 + g->n + i] = steps[i];
    }
    y = conv_interleave(ct_reshape(y, conv_list(dims, 2 + 2 * g->n)), g->n);
    for (int i = 0; i < g->n; i++) y = conv_slice(y, 2 + i, 0, all->counts[i]);
    return y;
}

// Pads t with `more` zeros at the end of axis `axis`.
static ct_tensor conv_pad_after(ct_tensor t, int axis, int64_t more) {
    int64_t high[MAX_AXES] = {0};
    high[axis] = more;
    if (more == 0) return t;
    return ct_pad(t, ct__number_like(0, t), .high = conv_list(high, ct__type_of(t)->rank));
}

// By channels, for dense taps: position q * stride + r - low is a sum over taps j * stride + r at x[q - j], a
// transposed convolution of stride 1 with r as a channel. Taps are padded with 0 to whole strides; if there
// are fewer than a stride, no tap sees the other r.
static ct_tensor conv_transpose_by_channels(ct_tensor x, ct_tensor w, const geometry *g,
                                            const positions *all) {
    const int n = g->n;
    int64_t dims[MAX_AXES], order[MAX_AXES], one[MAX_SPATIAL], low[MAX_SPATIAL], steps[MAX_SPATIAL];
    conv_list_from(order, 0, 2);
    dims[0] = ct__size_like(w, 0);
    int64_t channels = dims[1] = ct__size_like(w, 1);
    for (int i = 0; i < n; i++) {
        const int64_t stride = g->stride.v[i], size = ct__type_of(w)->dim[2 + i];
        const int64_t r = size < stride ? size : stride, taps = (size + r - 1) / r;
        w = conv_pad_after(w, 2 + i, taps * r - size);
        dims[2 + 2 * i] = taps;
        dims[3 + 2 * i] = r;
        order[2 + i] = 3 + 2 * i;
        order[2 + n + i] = 2 + 2 * i;
        channels = ct__size_mul(channels, r);
        one[i] = 1;
        low[i] = g->padding.v[i] / stride;
        steps[i] = conv_phase_steps(x, g, all, i, g->padding.v[i]);
    }
    const ct_ints all_axes = conv_list(order, 2 + 2 * n);
    w = ct_permute(ct_reshape(w, conv_list(dims, 2 + 2 * n)), all_axes); // (G A, B, r..., j...)
    int64_t of_w[MAX_AXES] = {ct__size_like(w, 0), channels};
    for (int i = 0; i < n; i++) of_w[2 + i] = dims[2 + 2 * i];
    const geometry part = {n, conv_list(one, n), conv_list(low, n), conv_list(one, n), g->groups};
    ct_tensor y = conv_transpose_whole(x, ct_reshape(w, conv_list(of_w, 2 + n)), &part, steps);
    int64_t of_y[MAX_AXES] = {ct__size_like(y, 0), ct__size_mul(g->groups, dims[1])};
    for (int i = 0; i < n; i++) {
        of_y[2 + i] = dims[3 + 2 * i];
        of_y[2 + n + i] = steps[i];
    }
    y = ct_reshape(y, conv_list(of_y, 2 + 2 * n)); // (N, G B, r..., q...)
    for (int i = 0; i < n; i++) y = conv_pad_after(y, 2 + i, g->stride.v[i] - of_y[2 + i]);
    y = conv_interleave(y, n);
    for (int i = 0; i < n; i++)
        y = conv_slice(y, 2 + i, g->padding.v[i] % g->stride.v[i], all->counts[i]);
    return y;
}

// x (N, G A, o...) and w (G A, B, k...) -> (N, G B, i...). With strides most taps of a position see nothing,
// so they are skipped, unless there would be too many phases and taps are not dense.
static ct_tensor conv_transpose_any(ct_tensor x, ct_tensor w, const geometry *g,
                                    const positions *all) {
    int64_t n_phases = 1;
    bool dense = true;
    for (int i = 0; i < g->n; i++) {
        dense = dense && g->dilation.v[i] == 1;
        n_phases = n_phases > MAX_PHASES ? n_phases : n_phases * g->stride.v[i];
    }
    if (n_phases > 1 && n_phases <= MAX_PHASES)
        return conv_transpose_by_phases(x, w, g, all, (int)n_phases);
    return n_phases > 1 && dense ? conv_transpose_by_channels(x, w, g, all)
                                 : conv_transpose_whole(x, w, g, all->counts);
}

static bool conv_transpose_body(ct_rule *r) {
    const conv_transpose_attrs *attrs = r->attrs;
    const ct_type *w = ct__type_of(r->in[1]);
    geometry g = {w->rank - 2, attrs->stride, attrs->padding, attrs->dilation, attrs->groups};
    int64_t counts[MAX_SPATIAL], beyond[MAX_SPATIAL];
    conv_spatial_sizes(r->node->out, 2, g.n, counts);
    for (int i = 0; i < g.n; i++) {
        const ct_window v = conv_window_at(&attrs->stride, &attrs->padding, &attrs->dilation, w, i);
        beyond[i] = ct__window_span(&v) - v.low - v.high - v.stride;
        beyond[i] += attrs->output.n ? conv_max_remainder(&v) : attrs->output_padding.v[i];
    }
    ct_tensor y = conv_transpose_any(r->in[0], r->in[1], &g, &(positions){counts, beyond});
    return ct__set_body(r, attrs->present ? conv_add_bias(y, r->in[2], g.n) : y);
}
static bool conv_transpose_vjp(ct_rule *r) {
    const conv_transpose_attrs *attrs = r->attrs;
    const ct_type *x = ct__type_of(r->in[0]), *w = ct__type_of(r->in[1]);
    ct_tensor c = r->c_out[0];
    int n = x->rank - 2;
    int64_t sizes[MAX_SPATIAL];
    if (ct__is_none(c)) return true;
    conv_spatial_sizes(x, 2, n, sizes);
    r->c_in[0] = ct_conv(c, r->in[1], .stride = attrs->stride, .padding = attrs->padding,
                         .dilation = attrs->dilation, .groups = attrs->groups,
                         .output = conv_list(sizes, n));
    r->c_in[1] = ct_conv_weight_grad(c, r->in[0], .size = conv_list(w->dim + 2, n),
                                     .stride = attrs->stride, .padding = attrs->padding,
                                     .dilation = attrs->dilation, .groups = attrs->groups);
    if (attrs->present) r->c_in[2] = conv_bias_grad(c, n);
    return true;
}
const ct_opdef ct__op_conv_transpose = {
    CONVOLUTION(CONV_TRANSPOSE, conv_transpose, -1),
    .doc =
        "The transpose of ct_conv, its gradient with respect to x: x (N, C, ...) and weight (C, O "
        "/ "
        "groups, ...), whose spatial sizes are static, give (N, O, ...), plus bias (O,). Stride, "
        "padding and dilation are those of the convolution; an axis of n elements gets (n - 1) * "
        "stride + (size - 1) * dilation + 1, less the padding, plus output_padding; or just "
        "output, where that is one of the sizes from which the convolution makes n.",
    .batch = conv_batch,
    .onnx = "ConvTranspose",
    .autocast = CT_CAST_LOW,
};

// ---------------------------------------------------------------------------------- weights' gradient

static bool conv_weight_grad_infer(ct_call *call) {
    conv_weight_grad_attrs *attrs = call->attrs;
    const ct_type *x = call->in[0], *y = call->in[1];
    int n = x->rank - 2;
    if (!conv_check_operands(call, "y", "(N, out, ...), what ct_conv makes of it") ||
        !conv_check_groups(call, &attrs->groups, 0, 1, "x") ||
        !conv_check_groups(call, &attrs->groups, 1, 1, "y"))
        return false;
    if (!attrs->size.n)
        return ct__call_err(call, CT_E_ARGUMENT, "size is not given") ||
               ct__call_hint(call, "it is the size of the weight along %d spatial %s", n,
                             n == 1 ? "axis" : "axes");
    if (!ct__window_list(call, "size", &attrs->size, n, 1, 1) ||
        !ct__window_list(call, "stride", &attrs->stride, n, 1, 1) ||
        !ct__window_list(call, "dilation", &attrs->dilation, n, 1, 1) ||
        !ct__window_padding(call, &attrs->padding, n))
        return false;
    if (x->dim[0] != y->dim[0])
        return ct__call_err(call, CT_E_SHAPE, "x is %s, y is %s: they must have as many images",
                            ct__type_text(x).s, ct__type_text(y).s);
    ct_shape shape = ct__call_shape(call, x->rank);
    if (!shape.dim) return false;
    ct__shape_add_axis(&shape, y, 1);
    if (attrs->groups == 1)
        ct__shape_add_axis(&shape, x, 1);
    else
        ct__shape_add(&shape, x->dim[1] / attrs->groups);
    for (int i = 0; i < n; i++) {
        ct_window v = {attrs->size.v[i], attrs->stride.v[i], attrs->dilation.v[i],
                       attrs->padding.v[i], attrs->padding.v[n + i]};
        int64_t count = ct__unmarked(ct__window_count(&v, ct__size_of(x, 2 + i)));
        if (!conv_count_is_valid(&v, x->dim[2 + i], y->dim[2 + i]))
            return ct__call_err(
                call, CT_E_SHAPE, "axis %d of y %s has %lld elements, x %s has %lld windows", 2 + i,
                ct__type_text(y).s, (long long)y->dim[2 + i], ct__type_text(x).s, (long long)count);
        ct__shape_add(&shape, v.size);
    }
    (void)ct__same_size(x, 0, y, 0);
    return ct__set_out(call, &shape, (ct_dtype)x->dtype, false);
}
static bool conv_weight_grad_body(ct_rule *r) {
    const conv_weight_grad_attrs *attrs = r->attrs;
    const ct_type *y = ct__type_of(r->in[1]);
    geometry g = {y->rank - 2, attrs->stride, attrs->padding, attrs->dilation, attrs->groups};
    int64_t counts[MAX_SPATIAL];
    conv_spatial_sizes(y, 2, g.n, counts);
    ct_tensor windows = conv_window_view(r->in[0], &g, attrs->size.v, counts, false);
    return ct__set_body(r, conv_correlate_weights(windows, r->in[1], &g));
}
static bool conv_weight_grad_vjp(ct_rule *r) {
    const conv_weight_grad_attrs *attrs = r->attrs;
    const ct_type *x = ct__type_of(r->in[0]), *y = ct__type_of(r->in[1]);
    ct_tensor c = r->c_out[0];
    int n = x->rank - 2;
    int64_t of_x[MAX_SPATIAL], of_y[MAX_SPATIAL];
    if (ct__is_none(c)) return true;
    conv_spatial_sizes(x, 2, n, of_x);
    conv_spatial_sizes(y, 2, n, of_y);
    r->c_in[0] = ct_conv_transpose(r->in[1], c, .stride = attrs->stride, .padding = attrs->padding,
                                   .dilation = attrs->dilation, .groups = attrs->groups,
                                   .output = conv_list(of_x, n));
    r->c_in[1] =
        ct_conv(r->in[0], c, .stride = attrs->stride, .padding = attrs->padding,
                .dilation = attrs->dilation, .groups = attrs->groups, .output = conv_list(of_y, n));
    return true;
}
const ct_opdef ct__op_conv_weight_grad = {
    CONVOLUTION(CONV_WEIGHT_GRAD, conv_weight_grad, 2),
    .doc =
        "The gradient of ct_conv with respect to its weight, whose spatial axes have `size`: of x "
        "(N, C, ...) and y (N, O, ...), what the result gets, (O, C / groups, ...). The other "
        "options are those of the convolution.",
    .autocast = CT_CAST_LOW,
};
