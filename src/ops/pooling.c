// Pooling: each window of the last axes becomes one element. All are reductions over the axes of taps
// of a view (windows.c), so that no window is ever stored, and neither is a gradient's.
#include <math.h>

#include "kinds/batch.h"
#include "ops/windows.h"

enum { MOST_SPATIAL = 3 };

#define MAX_POOL_ATTRS(F, op)                                                                      \
    F(op, ints, kernel)                                                                            \
    F(op, ints, stride) F(op, ints, padding) F(op, ints, dilation) F(op, bool, ceil_mode)
#define MAX_POOL_INDICES_ATTRS(F, op)                                                              \
    F(op, ints, kernel)                                                                            \
    F(op, ints, stride) F(op, ints, padding) F(op, ints, dilation) F(op, bool, ceil_mode)
#define AVG_POOL_ATTRS(F, op)                                                                      \
    F(op, ints, kernel)                                                                            \
    F(op, ints, stride)                                                                            \
    F(op, ints, padding)                                                                           \
    F(op, ints, dilation) F(op, bool, ceil_mode) F(op, bool, exclude_padding) F(op, num, divisor)
#define LP_POOL_ATTRS(F, op)                                                                       \
    F(op, ints, kernel) F(op, ints, stride) F(op, bool, ceil_mode) F(op, num, power)
CT_ATTRS(max_pool, MAX_POOL_ATTRS);
CT_ATTRS(max_pool_indices, MAX_POOL_INDICES_ATTRS);
CT_ATTRS(avg_pool, AVG_POOL_ATTRS);
CT_ATTRS(lp_pool, LP_POOL_ATTRS);

// -------------------------------------------------------------------------------------------- shapes

static ct_window window_at(const max_pool_attrs *a, int i) {
    return (ct_window){a->kernel.v[i], a->stride.v[i], a->dilation.v[i], a->padding.v[i],
                       a->padding.v[a->kernel.n + i]};
}
// How many windows lie along an axis with n elements. In ceil mode a last one that only partly lies
// inside counts, if it begins before the padding behind.
static int64_t count_at(const max_pool_attrs *a, int i, int64_t n) {
    ct_window w = window_at(a, i);
    if (!a->ceil_mode || w.stride == 1) return ct__window_count(&w, n);
    ct__this_size_alone(n);
    n = ct__unmarked(n);
    int64_t rest = n + w.low + w.high - ct__window_span(&w);
    int64_t count = rest / w.stride + (rest % w.stride > 0) + 1;
    return (count - 1) * w.stride >= n + w.low ? count - 1 : count;
}

// Does an axis lack, or kernel, stride, padding or dilation? Brings these to their normal form.
static bool normal_pool(ct_call *call, max_pool_attrs *a) {
    const ct_type *x = call->in[0];
    int n = (int)a->kernel.n;
    if (a->kernel.n < 1 || a->kernel.n > MOST_SPATIAL)
        return ct__call_err(call, CT_E_ARGUMENT, "kernel has %lld numbers",
                            (long long)a->kernel.n) ||
               ct__call_hint(call, "give the size of a window along each of 1 to %d last axes",
                             MOST_SPATIAL);
    if (x->rank < n)
        return ct__call_err(call, CT_E_SHAPE, "kernel has %d numbers for x %s", n,
                            ct__type_text(x).s);
    if (!ct__window_list(call, "kernel", &a->kernel, n, 1, 1)) return false;
    if (a->stride.n == 0) a->stride = a->kernel;
    if (!ct__window_list(call, "stride", &a->stride, n, 1, 1) ||
        !ct__window_list(call, "dilation", &a->dilation, n, 1, 1) ||
        !ct__window_padding(call, &a->padding, n))
        return false;
    for (int i = 0; i < n; i++) {
        ct_window w = window_at(a, i);
        int64_t most = w.low > w.high ? w.low : w.high;
        if (most > ct__window_span(&w) / 2)
            return ct__call_err(call, CT_E_ARGUMENT,
                                "padding %lld is more than half of a window of %lld elements",
                                (long long)most, (long long)ct__window_span(&w)) ||
                   ct__call_hint(call, "a window must not lie outside of x altogether");
        const int axis = x->rank - n + i;
        const int64_t lacks = ct__window_span(&w) - x->dim[axis] - w.low - w.high;
        if (a->ceil_mode && lacks < w.stride && x->dim[axis] > 0)
            continue; // the last is the only one
        if (!ct__window_fits(call, &w, 0, axis)) return false;
    }
    return true;
}
static bool pooled_type(ct_call *call, const max_pool_attrs *a) {
    const ct_type *x = call->in[0];
    int n = (int)a->kernel.n;
    ct_shape shape = ct__call_shape(call, x->rank);
    if (!shape.dim) return false;
    for (int d = 0; d < x->rank - n; d++) ct__shape_add_axis(&shape, x, d);
    for (int i = 0; i < n; i++)
        ct__shape_add(&shape, count_at(a, i, ct__size_of(x, x->rank - n + i)));
    *call->out = ct__shaped(&shape, (ct_dtype)x->dtype, x->weak);
    return true;
}

static int64_t taps_of(const ct_ints *kernel) {
    int64_t n = 1;
    for (int64_t i = 0; i < kernel->n; i++) n *= kernel->v[i];
    return n;
}

// x with static sizes along the axes whose number of windows is static (count_at, in ceil mode).
static ct_tensor with_static_sizes(ct_tensor x, const max_pool_attrs *a) {
    const ct_type *type = ct__type_of(x);
    const int n = (int)a->kernel.n;
    bool any = false;
    ct_dims_buffer dims;
    ct__dims_of(x, &dims);
    for (int i = 0; i < n; i++) {
        const int axis = type->rank - n + i;
        if (!a->ceil_mode || a->stride.v[i] == 1 || !ct__is_dyn(type, axis)) continue;
        dims.v[axis] = type->dim[axis];
        any = true;
    }
    return any ? ct_reshape(x, dims.list) : x;
}

// The windows of x (..., n): (..., o, k). padded: x has its padding around it already.
static ct_tensor view(ct_tensor x, const max_pool_attrs *a, double fill, bool padded) {
    x = with_static_sizes(x, a);
    const ct_type *type = ct__type_of(x);
    int64_t low[MOST_SPATIAL], high[MOST_SPATIAL];
    int n = (int)a->kernel.n;
    for (int i = 0; i < n; i++) {
        ct_window w = window_at(a, i);
        int64_t size = ct__size_of(type, type->rank - n + i);
        if (padded) size = ct__size_sub(size, w.low + w.high);
        low[i] = padded ? 0 : w.low;
        high[i] = padded ? 0 : w.high;
        if (!a->ceil_mode || w.stride == 1) continue;
        int64_t count = count_at(a, i, size); // in ceil mode: to where the last one ends
        int64_t end = (count - 1) * w.stride + ct__window_span(&w) - w.low;
        high[i] = end - ct__unmarked(size) - (padded ? w.high : 0);
    }
    return ct_windows(x, .size = a->kernel, .stride = a->stride, .dilation = a->dilation,
                      .low = {n, low}, .high = {n, high}, .fill = CT_F(fill));
}
// (..., k) with the last n axes as one.
static ct_tensor join_last(ct_tensor t, int n) {
    ct_dims_buffer dims;
    ct__dims_of(t, &dims);
    int64_t first = dims.list.n - n;
    for (int64_t i = first + 1; i < dims.list.n; i++)
        dims.v[first] = ct__size_mul(dims.v[first], dims.v[i]);
    dims.list.n = first + 1;
    return ct_reshape(t, dims.list);
}
static ct_tensor last_sum(ct_tensor t, int n) {
    int64_t axes[MOST_SPATIAL];
    for (int i = 0; i < n; i++) axes[i] = i - n;
    return ct_sum(t, .axes = {n, axes});
}
// The numbers 0 to n - 1.
static ct_tensor places(int64_t n, ct_dtype dtype) { return ct_iota(dtype, ((ct_ints){1, &n}), 0); }

// Windows are of the last axes, so one more axis in front changes nothing.
static bool pool_batch(ct_batching *b) { return ct__batch_record(b, b->attrs, b->in); }

#define POOL(ID, op, outs)                                                                         \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_composition, .n_in = 1, .n_out = outs,        \
    CT_FIELDS(op), .infer = op##_infer, .body = op##_body, .batch = pool_batch, .widens = true

// --------------------------------------------------------------------------------------------- max

// Of the smallest dtype that has a number for each tap.
static ct_dtype tap_dtype(const ct_ints *kernel) { return taps_of(kernel) <= 256 ? CT_U8 : CT_I32; }

static bool max_pool_infer(ct_call *call) {
    max_pool_attrs *attrs = call->attrs;
    if (!ct__check_accepts(call, 0) || !normal_pool(call, attrs) || !pooled_type(call, attrs))
        return false;
    if (taps_of(&attrs->kernel) > INT32_MAX)
        return ct__call_err(call, CT_E_ARGUMENT, "a window has more than 2^31 elements");
    call->out[1] = call->out[0]; // which tap it was: what the gradient needs
    call->out[1].dtype = (uint8_t)tap_dtype(&attrs->kernel);
    call->out[1].weak = false;
    return true;
}
static ct_tensor largest_view(ct_tensor x, const max_pool_attrs *attrs) { // (..., o, taps)
    ct_dtype dtype = (ct_dtype)ct__type_of(x)->dtype;
    double least = ct__is_float(dtype) ? -INFINITY : (double)ct__int_min(dtype);
    return join_last(view(x, attrs, least, false), (int)attrs->kernel.n);
}
static bool max_pool_body(ct_rule *r) {
    const max_pool_attrs *attrs = r->attrs;
    ct_tensor w = largest_view(r->in[0], attrs);
    r->body_out[0] = ct_max(w, .axes = CT_AXES(-1));
    r->body_out[1] = ct_cast(ct_argmax(w, .axis = -1), tap_dtype(&attrs->kernel));
    return true;
}
// The tangent of the element that was chosen. Turned round: each element gets what the windows have
// for it that chose it, so nothing is scattered.
static bool max_pool_jvp(ct_rule *r) {
    const max_pool_attrs *attrs = r->attrs;
    int n = (int)attrs->kernel.n;
    ct_tensor t = join_last(view(r->t_in[0], attrs, 0, false), n); // (..., o, taps)
    ct_tensor tap = places(taps_of(&attrs->kernel), tap_dtype(&attrs->kernel));
    ct_tensor chosen = ct_equal(tap, ct__add_last(r->out[1]));
    r->t_out[0] = last_sum(ct_select(chosen, t, ct__number_like(0, t)), 1);
    return true;
}
const ct_opdef ct__op_max_pool = {
    POOL(MAX_POOL, max_pool, 2),
    .doc =
        "The largest element of each window of the last axes, as many as kernel has numbers (1 to "
        "3); NaN if there is one. stride (default: kernel), padding (before and behind, or all "
        "that lie before and then all behind) and dilation have one number an axis, or one for "
        "all. ceil_mode: a last window, or the only one, may lie inside in part. Its gradient goes "
        "to the first of "
        "equals.",
    .accepts = CT_NUMBERS,
    .jvp = max_pool_jvp,
    .onnx = "MaxPool",
    .samples = {.kinks = true},
};

static bool max_pool_indices_infer(ct_call *call) {
    max_pool_attrs *attrs = call->attrs; // it has the same
    if (!ct__check_accepts(call, 0) || !normal_pool(call, attrs) || !pooled_type(call, attrs))
        return false;
    call->out->dtype = CT_I64;
    call->out->weak = false;
    return true;
}
static bool max_pool_indices_body(ct_rule *r) {
    const max_pool_attrs *attrs = r->attrs;
    ct_tensor x = r->in[0], whole = CT_NONE;
    ct_tensor tap = ct_cast(ct_argmax(largest_view(x, attrs), .axis = -1), CT_I64); // (..., o)
    const ct_type *type = ct__type_of(x), *out = ct__type_of(tap);
    int n = (int)attrs->kernel.n;
    ct_dims_buffer dims;
    for (int i = 0; i < n; i++) {
        ct_window w = window_at(attrs, i);
        int64_t behind = 1, axis = out->rank - n + i;
        for (int k = i + 1; k < n; k++) behind *= attrs->kernel.v[k];
        ct_tensor own = ct_mod(ct_div(tap, ct_i(behind)), ct_i(w.size));
        ct_tensor at = ct_iota(CT_I64, ct__dims_of(tap, &dims), axis);
        at = ct_add(ct_mul(at, ct_i(w.stride)), ct_mul(own, ct_i(w.dilation)));
        // Of a window with nothing above -infinity the first tap may lie before x.
        ct_tensor size = ct__size_number(ct__size_of(type, (int)axis), CT_I64);
        at = ct_clamp(ct_sub(at, ct_i(w.low)), ct_i(0), ct_sub(size, ct_i(1)));
        whole = ct__is_none(whole) ? at : ct_add(ct_mul(whole, size), at);
    }
    r->body_out[0] = whole;
    return true;
}
const ct_opdef ct__op_max_pool_indices = {
    POOL(MAX_POOL_INDICES, max_pool_indices, 1),
    .doc =
        "Where in x the elements of ct_max_pool stand, counted over the last axes together (i64).",
    .accepts = CT_NUMBERS,
    .jvp = CT_NO_GRAD,
};

// --------------------------------------------------------------------------------------------- mean

static bool avg_pool_infer(ct_call *call) {
    avg_pool_attrs *attrs = call->attrs;
    if (ct__num_given(attrs->divisor) && attrs->divisor.value == 0)
        return ct__call_err(call, CT_E_ARGUMENT, "divisor is 0");
    max_pool_attrs pool = {attrs->kernel, attrs->stride, attrs->padding, attrs->dilation,
                           attrs->ceil_mode};
    if (!ct__check_accepts(call, 0) || !normal_pool(call, &pool) || !pooled_type(call, &pool))
        return false;
    attrs->kernel = pool.kernel;
    attrs->stride = pool.stride;
    attrs->padding = pool.padding;
    attrs->dilation = pool.dilation;
    return true;
}
static bool any_padding(const ct_ints *padding) {
    for (int64_t i = 0; i < padding->n; i++)
        if (padding->v[i]) return true;
    return false;
}
// How many elements each window has, (o...): those of x, or with `padded` of its padding too, but none
// of what lies behind that in ceil mode.
static ct_tensor counts_of(ct_tensor x, const max_pool_attrs *pool, bool padded) {
    const ct_type *type = ct__type_of(x);
    int n = (int)pool->kernel.n;
    int64_t dims[MOST_SPATIAL], low[MOST_SPATIAL], high[MOST_SPATIAL];
    for (int i = 0; i < n; i++) {
        dims[i] = ct__size_of(type, type->rank - n + i);
        low[i] = pool->padding.v[i];
        high[i] = pool->padding.v[n + i];
    }
    ct_tensor ones = ct_expand(ct__number_like(1, x), ((ct_ints){n, dims}));
    if (padded) ones = ct_pad(ones, ct__number_like(1, x), .low = {n, low}, .high = {n, high});
    return last_sum(view(ones, pool, 0, padded), n);
}
static bool avg_pool_body(ct_rule *r) {
    const avg_pool_attrs *attrs = r->attrs;
    const max_pool_attrs pool = {attrs->kernel, attrs->stride, attrs->padding, attrs->dilation,
                                 attrs->ceil_mode};
    ct_tensor x = r->in[0], sum = last_sum(view(x, &pool, 0, false), (int)pool.kernel.n);
    ct_tensor divisor = ct__number_like((double)taps_of(&pool.kernel), x);
    if (ct__num_given(attrs->divisor))
        divisor = ct__number_like(attrs->divisor.value, x);
    else if (attrs->ceil_mode || (attrs->exclude_padding && any_padding(&attrs->padding)))
        divisor = counts_of(x, &pool, !attrs->exclude_padding);
    r->body_out[0] = ct_div(sum, divisor);
    return true;
}
const ct_opdef ct__op_avg_pool = {
    POOL(AVG_POOL, avg_pool, 1),
    .doc =
        "The mean of each window of the last axes, with the options of ct_max_pool; padding counts "
        "as zeros, or with exclude_padding not at all. divisor: sums are divided by it instead "
        "(1: the sums), with exclude_padding too. Integers are cast first, with ct_cast.",
    .accepts = CT_FLOATS,
    .onnx = "AveragePool",
    .samples = {.ulp = 8},
};

// --------------------------------------------------------------------------------------------- norm

static bool lp_pool_infer(ct_call *call) {
    lp_pool_attrs *attrs = call->attrs;
    max_pool_attrs pool = {.kernel = attrs->kernel, attrs->stride, .ceil_mode = attrs->ceil_mode};
    if (!ct__num_given(attrs->power)) attrs->power = (ct_num){2, true};
    if (!(attrs->power.value > 0))
        return ct__call_err(call, CT_E_ARGUMENT, "power is %g, it must be above 0",
                            attrs->power.value);
    if (!ct__check_accepts(call, 0) || !normal_pool(call, &pool) || !pooled_type(call, &pool))
        return false;
    attrs->kernel = pool.kernel;
    attrs->stride = pool.stride;
    return true;
}
static bool lp_pool_body(ct_rule *r) {
    const lp_pool_attrs *attrs = r->attrs;
    double power = attrs->power.value;
    ct_tensor x = r->in[0], to = ct__number_like(power, x);
    ct_tensor mean = ct_avg_pool(power == 2   ? ct_mul(x, x)
                                 : power == 1 ? x
                                              : ct_pow(x, to),
                                 .kernel = attrs->kernel, .stride = attrs->stride,
                                 .ceil_mode = attrs->ceil_mode);
    ct_tensor sum = ct_mul(mean, ct__number_like((double)taps_of(&attrs->kernel), x));
    r->body_out[0] = power == 1 ? sum : ct__root_or_zero(sum, power);
    return true;
}
const ct_opdef ct__op_lp_pool = {
    POOL(LP_POOL, lp_pool, 1),
    .doc = "Of each window of the last axes the sum of x to a power (default 2), to 1 / power. A "
           "window that lies inside in part (ceil_mode) counts as if it were whole, with its mean "
           "outside. Its gradient where it is 0 is 0.",
    .accepts = CT_FLOATS,
    .samples = {.lo = 0.5, .hi = 2, .ulp = 16},
};

// ----------------------------------------------------------------------------------------- adaptive

#define ADAPTIVE_MAX_POOL_ATTRS(F, op) F(op, ints, output)
#define ADAPTIVE_AVG_POOL_ATTRS(F, op) F(op, ints, output)
CT_ATTRS(adaptive_max_pool, ADAPTIVE_MAX_POOL_ATTRS);
CT_ATTRS(adaptive_avg_pool, ADAPTIVE_AVG_POOL_ATTRS);

static bool adaptive_infer(ct_call *call) {
    adaptive_max_pool_attrs *attrs = call->attrs; // both have the same
    const ct_type *x = call->in[0];
    int n = (int)attrs->output.n;
    if (!ct__check_accepts(call, 0)) return false;
    if (attrs->output.n < 1 || attrs->output.n > MOST_SPATIAL || x->rank < n)
        return ct__call_err(call, CT_E_ARGUMENT, "output has %lld numbers for x %s",
                            (long long)attrs->output.n, ct__type_text(x).s) ||
               ct__call_hint(call, "give the number of windows along each of 1 to %d last axes",
                             MOST_SPATIAL);
    if (!ct__window_list(call, "output", &attrs->output, n, 1, 1)) return false;
    ct_shape shape = ct__call_shape(call, x->rank);
    if (!shape.dim) return false;
    for (int a = 0; a < x->rank; a++) {
        if (a < x->rank - n) {
            ct__shape_add_axis(&shape, x, a);
            continue;
        }
        if (x->dim[a] == 0)
            return ct__call_err(call, CT_E_SHAPE, "axis %d of %s has no elements", a,
                                ct__type_text(x).s);
        ct__shape_add(&shape, attrs->output.v[a - x->rank + n]);
    }
    *call->out = ct__shaped(&shape, (ct_dtype)x->dtype, x->weak);
    return true;
}

// The element of the last axis that is the largest, the first of equals, as a sum of which one term is
// not 0: its gradient goes to that element.
static ct_tensor first_largest(ct_tensor x) { // (..., n) -> (...)
    const ct_type *type = ct__type_of(x);
    int64_t n = ct__size_of(type, type->rank - 1);
    ct_tensor chosen = ct_equal(places(n, CT_I32), ct__add_last(ct_argmax(x, .axis = -1)));
    return last_sum(ct_select(chosen, x, ct__number_like(0, x)), 1);
}
// Along one axis, window i of `count` is the elements from floor(i n / count) to before
// ceil((i + 1) n / count).
static ct_tensor along(ct_tensor x, int axis, int64_t count, bool largest) {
    const ct_type *type = ct__type_of(x);
    int rank = type->rank;
    int64_t n = ct__size_of(type, axis), move[CT_MAX_RANK], back[CT_MAX_RANK];
    int64_t one = 1, of_window[2] = {count, 1}, before[CT_MAX_RANK + 1];
    for (int a = 0; a < rank; a++) move[a] = a < axis ? a : a == rank - 1 ? axis : a + 1;
    for (int a = 0; a < rank; a++) back[move[a]] = a;
    ct_tensor last = ct_permute(x, ((ct_ints){rank, move})); // (..., n)
    ct_dims_buffer dims;
    ct__dims_of(last, &dims);
    for (int a = 0; a < rank - 1; a++) before[a] = dims.v[a];
    before[rank - 1] = one;
    before[rank] = n;
    ct_tensor whole = ct_reshape(last, ((ct_ints){rank + 1, before})); // (..., 1, n)
    ct_tensor i = ct_iota(CT_I64, ((ct_ints){2, of_window}), 0);       // (count, 1)
    ct_tensor size = ct__size_number(n, CT_I64), windows = ct_i(count);
    ct_tensor start = ct_div(ct_mul(i, size), windows);
    ct_tensor end = ct_add(ct_mul(ct_add(i, ct_i(1)), size), ct_i(count - 1));
    end = ct_div(end, windows);
    ct_tensor place = places(n, CT_I64);
    ct_tensor inside = ct_and(ct_greater_equal(place, start), ct_less(place, end)); // (count, n)
    ct_tensor outside = ct__number_like(largest ? -INFINITY : 0, x);
    ct_tensor seen = ct_select(inside, whole, outside); // (..., count, n)
    ct_tensor y;
    if (largest) {
        y = first_largest(seen);
    } else {
        ct_tensor many = ct_cast(ct_sub(end, start), (ct_dtype)type->dtype);
        y = ct_div(last_sum(seen, 1), ct_reshape(many, ((ct_ints){1, &count})));
    }
    return ct_permute(y, ((ct_ints){rank, back}));
}

static bool adaptive_body(ct_rule *r, bool largest) {
    const ct_ints *output = &((const adaptive_max_pool_attrs *)r->attrs)->output;
    ct_tensor x = r->in[0];
    const ct_type *type = ct__type_of(x);
    int n = (int)output->n, first = type->rank - n;
    bool whole = true, equal = true;
    int64_t kernel[MOST_SPATIAL], axes[MOST_SPATIAL];
    for (int i = 0; i < n; i++) {
        int64_t size = type->dim[first + i];
        whole = whole && output->v[i] == 1;
        equal = equal && !ct__is_dyn(type, first + i) && size % output->v[i] == 0;
        kernel[i] = size / output->v[i];
        axes[i] = first + i;
    }
    ct_ints windows = {n, kernel};
    if (whole && largest)
        x = ct__of_type(first_largest(join_last(x, n)), r->node->out);
    else if (whole)
        x = ct_mean(x, .axes = {n, axes}, .keepdims = true);
    else if (equal)
        x = largest ? ct_max_pool(x, .kernel = windows) : ct_avg_pool(x, .kernel = windows);
    else
        for (int i = n - 1; i >= 0; i--) x = along(x, first + i, output->v[i], largest);
    r->body_out[0] = x;
    return true;
}
static bool adaptive_max_pool_infer(ct_call *call) { return adaptive_infer(call); }
static bool adaptive_max_pool_body(ct_rule *r) { return adaptive_body(r, true); }
const ct_opdef ct__op_adaptive_max_pool = {
    POOL(ADAPTIVE_MAX_POOL, adaptive_max_pool, 1),
    .doc =
        "The largest element of each window of the last axes, of which there are as many as output "
        "says: window i of m along n elements goes from i n / m, rounded down, to (i + 1) n / m, "
        "rounded up.",
    .accepts = CT_FLOATS,
    .samples = {.kinks = true},
};
static bool adaptive_avg_pool_infer(ct_call *call) { return adaptive_infer(call); }
static bool adaptive_avg_pool_body(ct_rule *r) { return adaptive_body(r, false); }
const ct_opdef ct__op_adaptive_avg_pool = {
    POOL(ADAPTIVE_AVG_POOL, adaptive_avg_pool, 1),
    .doc = "The mean of each of the windows of ct_adaptive_max_pool.",
    .accepts = CT_FLOATS,
    .samples = {.ulp = 8},
};

// x (N, C, ...): all axes but the first two.
static bool global_infer(ct_call *call) {
    const ct_type *x = call->in[0];
    if (!ct__check_accepts(call, 0)) return false;
    if (x->rank < 3 || x->rank > 2 + MOST_SPATIAL)
        return ct__call_err(call, CT_E_SHAPE,
                            "x is %s, it must be (N, C, ...) with 1 to %d more axes",
                            ct__type_text(x).s, MOST_SPATIAL);
    ct_shape shape = ct__call_shape(call, x->rank);
    if (!shape.dim) return false;
    for (int a = 0; a < x->rank; a++) {
        if (a >= 2 && x->dim[a] == 0)
            return ct__call_err(call, CT_E_SHAPE, "axis %d of %s has no elements", a,
                                ct__type_text(x).s);
        if (a < 2)
            ct__shape_add_axis(&shape, x, a);
        else
            ct__shape_add(&shape, 1);
    }
    *call->out = ct__shaped(&shape, (ct_dtype)x->dtype, x->weak);
    return true;
}
static ct_ints ones(const ct_type *x) {
    static const int64_t each[MOST_SPATIAL] = {1, 1, 1};
    return (ct_ints){x->rank - 2, each};
}
static bool global_max_pool_body(ct_rule *r) {
    r->body_out[0] = ct_adaptive_max_pool(r->in[0], .output = ones(ct__type_of(r->in[0])));
    return true;
}
static bool global_avg_pool_body(ct_rule *r) {
    r->body_out[0] = ct_adaptive_avg_pool(r->in[0], .output = ones(ct__type_of(r->in[0])));
    return true;
}
#define GLOBAL(ID, op)                                                                             \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_composition, .n_in = 1, .n_out = 1,           \
    .accepts = CT_FLOATS, .infer = global_infer, .body = op##_body, .widens = true
const ct_opdef ct__op_global_max_pool = {
    GLOBAL(GLOBAL_MAX_POOL, global_max_pool),
    .doc = "The largest element of each channel of x (N, C, ...), as (N, C, 1, ...).",
    .onnx = "GlobalMaxPool",
    .samples = {.kinks = true},
};
const ct_opdef ct__op_global_avg_pool = {
    GLOBAL(GLOBAL_AVG_POOL, global_avg_pool),
    .doc = "The mean of each channel of x (N, C, ...), as (N, C, 1, ...).",
    .onnx = "GlobalAveragePool",
    .samples = {.ulp = 8},
};
