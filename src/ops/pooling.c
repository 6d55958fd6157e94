// Pooling: each window of the last axes becomes one element. All poolings are reductions over the window
// axes of a view (windows.c), so neither windows nor their gradients are stored.
#include <math.h>

#include "kinds/batch.h"
#include "ops/windows.h"

enum { MAX_SPATIAL = 3 };

#define MAX_POOL_ATTRS(F, op)                                                                      \
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
CT_ATTRS(max_pool_indices, MAX_POOL_ATTRS);
CT_ATTRS(avg_pool, AVG_POOL_ATTRS);
CT_ATTRS(lp_pool, LP_POOL_ATTRS);

// -------------------------------------------------------------------------------------------- shapes

static ct_window pool_window(const max_pool_attrs *a, int i) {
    return (ct_window){a->kernel.v[i], a->stride.v[i], a->dilation.v[i], a->padding.v[i],
                       a->padding.v[a->kernel.n + i]};
}
// Returns the number of windows along an axis with n elements. In ceil mode a last window that is only
// partly inside counts, if it begins before the padding at the end.
static int64_t pool_count(const max_pool_attrs *a, int i, int64_t n) {
    ct_window w = pool_window(a, i);
    if (!a->ceil_mode || w.stride == 1) return ct__window_count(&w, n);
    ct__specialise_size(n);
    n = ct__unmarked(n);
    int64_t rest = n + w.low + w.high - ct__window_span(&w);
    int64_t count = rest / w.stride + (rest % w.stride > 0) + 1;
    return (count - 1) * w.stride >= n + w.low ? count - 1 : count;
}

// Checks the axes, kernel, stride, padding and dilation, and brings these to their normal form.
static bool pool_normalise(ct_call *call, max_pool_attrs *a) {
    const ct_type *x = call->in[0];
    int n = (int)a->kernel.n;
    if (a->kernel.n < 1 || a->kernel.n > MAX_SPATIAL)
        return ct__call_err(call, CT_E_ARGUMENT, "kernel has %lld numbers",
                            (long long)a->kernel.n) ||
               ct__call_hint(call, "give the size of a window along each of 1 to %d last axes",
                             MAX_SPATIAL);
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
        ct_window w = pool_window(a, i);
        int64_t larger = w.low > w.high ? w.low : w.high;
        if (larger > ct__window_span(&w) / 2)
            return ct__call_err(call, CT_E_ARGUMENT,
                                "padding %lld is more than half of a window of %lld elements",
                                (long long)larger, (long long)ct__window_span(&w)) ||
                   ct__call_hint(call, "a window must not be entirely outside of x");
        const int axis = x->rank - n + i;
        const int64_t missing = ct__window_span(&w) - x->dim[axis] - w.low - w.high;
        if (a->ceil_mode && missing < w.stride && x->dim[axis] > 0)
            continue; // the last window is the only one
        if (!ct__window_fits(call, &w, 0, axis)) return false;
    }
    return true;
}
static bool pool_type(ct_call *call, const max_pool_attrs *a) {
    const ct_type *x = call->in[0];
    int n = (int)a->kernel.n;
    ct_shape shape = ct__call_shape(call, x->rank);
    if (!shape.dim) return false;
    for (int d = 0; d < x->rank - n; d++) ct__shape_add_axis(&shape, x, d);
    for (int i = 0; i < n; i++)
        ct__shape_add(&shape, pool_count(a, i, ct__size_of(x, x->rank - n + i)));
    return ct__set_out(call, &shape, (ct_dtype)x->dtype, x->weak);
}

static int64_t pool_taps(const ct_ints *kernel) {
    int64_t n = 1;
    for (int64_t i = 0; i < kernel->n; i++) n *= kernel->v[i];
    return n;
}

// Makes sizes of x static along the axes whose number of windows is static (pool_count, in ceil mode).
static ct_tensor pool_static_sizes(ct_tensor x, const max_pool_attrs *a) {
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

// Returns the windows of x (..., n): (..., o, k). padded: x is already padded.
static ct_tensor pool_windows(ct_tensor x, const max_pool_attrs *a, double fill, bool padded) {
    x = pool_static_sizes(x, a);
    const ct_type *type = ct__type_of(x);
    int64_t low[MAX_SPATIAL], high[MAX_SPATIAL];
    int n = (int)a->kernel.n;
    for (int i = 0; i < n; i++) {
        ct_window w = pool_window(a, i);
        int64_t size = ct__size_of(type, type->rank - n + i);
        if (padded) size = ct__size_sub(size, w.low + w.high);
        low[i] = padded ? 0 : w.low;
        high[i] = padded ? 0 : w.high;
        if (!a->ceil_mode || w.stride == 1) continue;
        int64_t count = pool_count(a, i, size); // in ceil mode: up to the end of the last window
        int64_t end = (count - 1) * w.stride + ct__window_span(&w) - w.low;
        high[i] = end - ct__unmarked(size) - (padded ? w.high : 0);
    }
    return ct_windows(x, .size = a->kernel, .stride = a->stride, .dilation = a->dilation,
                      .low = {n, low}, .high = {n, high}, .fill = CT_F(fill));
}
// Merges the last n axes to one.
static ct_tensor pool_merge_last(ct_tensor t, int n) {
    ct_dims_buffer dims;
    ct__dims_of(t, &dims);
    int64_t first = dims.list.n - n;
    for (int64_t i = first + 1; i < dims.list.n; i++)
        dims.v[first] = ct__size_mul(dims.v[first], dims.v[i]);
    dims.list.n = first + 1;
    return ct_reshape(t, dims.list);
}
static ct_tensor pool_sum_last(ct_tensor t, int n) {
    int64_t axes[MAX_SPATIAL];
    for (int i = 0; i < n; i++) axes[i] = i - n;
    return ct_sum(t, .axes = {n, axes});
}
// The numbers 0 to n - 1, (n,).
static ct_tensor pool_iota(int64_t n, ct_dtype dtype) {
    return ct_iota(dtype, ((ct_ints){1, &n}), 0);
}

// Windows are along the last axes, so one more leading axis changes nothing.
static bool pool_batch(ct_batching *b) { return ct__batch_record(b, b->attrs, b->in); }

#define POOL(ID, op, outs)                                                                         \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_composition, .n_in = 1, .n_out = outs,        \
    CT_FIELDS(op), .infer = op##_infer, .body = op##_body, .batch = pool_batch, .widens = true

// --------------------------------------------------------------------------------------------- max

// The smallest dtype that can number the taps.
static ct_dtype max_pool_tap_dtype(const ct_ints *kernel) {
    return pool_taps(kernel) <= 256 ? CT_U8 : CT_I32;
}

static bool max_pool_infer(ct_call *call) {
    max_pool_attrs *attrs = call->attrs;
    if (!ct__check_accepts(call, 0) || !pool_normalise(call, attrs) || !pool_type(call, attrs))
        return false;
    if (pool_taps(&attrs->kernel) > INT32_MAX)
        return ct__call_err(call, CT_E_ARGUMENT, "a window has more than 2^31 elements");
    call->out[1] = call->out[0]; // the index of the tap, which the gradient needs
    call->out[1].dtype = (uint8_t)max_pool_tap_dtype(&attrs->kernel);
    call->out[1].weak = false;
    return true;
}
static ct_tensor max_pool_windows(ct_tensor x, const max_pool_attrs *attrs) { // (..., o, taps)
    ct_dtype dtype = (ct_dtype)ct__type_of(x)->dtype;
    double least = ct__is_float(dtype) ? -INFINITY : (double)ct__int_min(dtype);
    return pool_merge_last(pool_windows(x, attrs, least, false), (int)attrs->kernel.n);
}
static bool max_pool_body(ct_rule *r) {
    const max_pool_attrs *attrs = r->attrs;
    ct_tensor w = max_pool_windows(r->in[0], attrs);
    r->body_out[0] = ct_max(w, .axes = CT_AXES(-1));
    r->body_out[1] = ct_cast(ct_argmax(w, .axis = -1), max_pool_tap_dtype(&attrs->kernel));
    return true;
}
// The tangent of the chosen element. In the transpose, each element sums the cotangents of the windows
// that chose it, so nothing is scattered.
static bool max_pool_jvp(ct_rule *r) {
    const max_pool_attrs *attrs = r->attrs;
    int n = (int)attrs->kernel.n;
    ct_tensor t = pool_merge_last(pool_windows(r->t_in[0], attrs, 0, false), n); // (..., o, taps)
    ct_tensor tap = pool_iota(pool_taps(&attrs->kernel), max_pool_tap_dtype(&attrs->kernel));
    ct_tensor chosen = ct_equal(tap, ct__add_last(r->out[1]));
    return ct__set_tangent(r, pool_sum_last(ct_select(chosen, t, ct__number_like(0, t)), 1));
}
const ct_opdef ct__op_max_pool = {
    POOL(MAX_POOL, max_pool, 2),
    .doc = "The largest element of each window of the last axes, as many as kernel has numbers (1 "
           "to 3); NaN if there is one. stride (default: kernel), padding (before and after, or "
           "all before and then all after) and dilation have one number an axis, or one for all. "
           "ceil_mode: a last window, or the only one, may be partly outside. Its gradient goes to "
           "the first of equals.",
    .accepts = CT_NUMBERS,
    .jvp = max_pool_jvp,
    .onnx = "MaxPool",
    .samples = {.kinks = true},
};

static bool max_pool_indices_infer(ct_call *call) {
    max_pool_attrs *attrs = call->attrs; // it has the same layout
    if (!ct__check_accepts(call, 0) || !pool_normalise(call, attrs) || !pool_type(call, attrs))
        return false;
    call->out->dtype = CT_I64;
    call->out->weak = false;
    return true;
}
static bool max_pool_indices_body(ct_rule *r) {
    const max_pool_attrs *attrs = r->attrs;
    ct_tensor x = r->in[0], index = CT_NONE;
    ct_tensor tap = ct_cast(ct_argmax(max_pool_windows(x, attrs), .axis = -1), CT_I64); // (..., o)
    const ct_type *type = ct__type_of(x), *out = ct__type_of(tap);
    int n = (int)attrs->kernel.n;
    ct_dims_buffer dims;
    for (int i = 0; i < n; i++) {
        ct_window w = pool_window(attrs, i);
        int64_t inner = 1, axis = out->rank - n + i;
        for (int k = i + 1; k < n; k++) inner *= attrs->kernel.v[k];
        ct_tensor own = ct_mod(ct_div(tap, ct_i(inner)), ct_i(w.size));
        ct_tensor at = ct_iota(CT_I64, ct__dims_of(tap, &dims), axis);
        at = ct_add(ct_mul(at, ct_i(w.stride)), ct_mul(own, ct_i(w.dilation)));
        // In a window with nothing above -infinity the first tap may be before the first element of x.
        ct_tensor size = ct__size_number(ct__size_of(type, (int)axis), CT_I64);
        at = ct_clamp(ct_sub(at, ct_i(w.low)), ct_i(0), ct_sub(size, ct_i(1)));
        index = ct__is_none(index) ? at : ct_add(ct_mul(index, size), at);
    }
    return ct__set_body(r, index);
}
const ct_opdef ct__op_max_pool_indices = {
    POOL(MAX_POOL_INDICES, max_pool_indices, 1),
    .doc = "The indices in x of the elements of ct_max_pool, counted over the last axes together "
           "(i64).",
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
    if (!ct__check_accepts(call, 0) || !pool_normalise(call, &pool) || !pool_type(call, &pool))
        return false;
    attrs->kernel = pool.kernel;
    attrs->stride = pool.stride;
    attrs->padding = pool.padding;
    attrs->dilation = pool.dilation;
    return true;
}
static bool avg_pool_any_padding(const ct_ints *padding) {
    for (int64_t i = 0; i < padding->n; i++)
        if (padding->v[i]) return true;
    return false;
}
// Returns the number of elements in each window, (o...): those of x, or with `padded` also of its padding,
// but not those after the padding in ceil mode.
static ct_tensor avg_pool_counts(ct_tensor x, const max_pool_attrs *pool, bool padded) {
    const ct_type *type = ct__type_of(x);
    int n = (int)pool->kernel.n;
    int64_t dims[MAX_SPATIAL], low[MAX_SPATIAL], high[MAX_SPATIAL];
    for (int i = 0; i < n; i++) {
        dims[i] = ct__size_of(type, type->rank - n + i);
        low[i] = pool->padding.v[i];
        high[i] = pool->padding.v[n + i];
    }
    ct_tensor ones = ct_expand(ct__number_like(1, x), ((ct_ints){n, dims}));
    if (padded) ones = ct_pad(ones, ct__number_like(1, x), .low = {n, low}, .high = {n, high});
    return pool_sum_last(pool_windows(ones, pool, 0, padded), n);
}
static bool avg_pool_body(ct_rule *r) {
    const avg_pool_attrs *attrs = r->attrs;
    const max_pool_attrs pool = {attrs->kernel, attrs->stride, attrs->padding, attrs->dilation,
                                 attrs->ceil_mode};
    ct_tensor x = r->in[0],
              sum = pool_sum_last(pool_windows(x, &pool, 0, false), (int)pool.kernel.n);
    ct_tensor divisor = ct__number_like((double)pool_taps(&pool.kernel), x);
    if (ct__num_given(attrs->divisor))
        divisor = ct__number_like(attrs->divisor.value, x);
    else if (attrs->ceil_mode || (attrs->exclude_padding && avg_pool_any_padding(&attrs->padding)))
        divisor = avg_pool_counts(x, &pool, !attrs->exclude_padding);
    return ct__set_body(r, ct_div(sum, divisor));
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
    if (!ct__check_accepts(call, 0) || !pool_normalise(call, &pool) || !pool_type(call, &pool))
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
    ct_tensor sum = ct_mul(mean, ct__number_like((double)pool_taps(&attrs->kernel), x));
    return ct__set_body(r, power == 1 ? sum : ct__root_or_zero(sum, power));
}
const ct_opdef ct__op_lp_pool = {
    POOL(LP_POOL, lp_pool, 1),
    .doc = "Of each window of the last axes the sum of x to a power (default 2), to 1 / power. A "
           "window that is partly outside (ceil_mode) counts as if it were whole, with its mean "
           "outside. Its gradient where it is 0 is 0.",
    .accepts = CT_FLOATS,
    .samples = {.lo = 0.5, .hi = 2, .ulp = 16},
};

// ----------------------------------------------------------------------------------------- adaptive

#define ADAPTIVE_MAX_POOL_ATTRS(F, op) F(op, ints, output)
CT_ATTRS(adaptive_max_pool, ADAPTIVE_MAX_POOL_ATTRS);
CT_ATTRS(adaptive_avg_pool, ADAPTIVE_MAX_POOL_ATTRS);

static bool adaptive_pool_infer(ct_call *call) {
    adaptive_max_pool_attrs *attrs = call->attrs; // both ops have the same layout
    const ct_type *x = call->in[0];
    int n = (int)attrs->output.n;
    if (!ct__check_accepts(call, 0)) return false;
    if (attrs->output.n < 1 || attrs->output.n > MAX_SPATIAL || x->rank < n)
        return ct__call_err(call, CT_E_ARGUMENT, "output has %lld numbers for x %s",
                            (long long)attrs->output.n, ct__type_text(x).s) ||
               ct__call_hint(call, "give the number of windows along each of 1 to %d last axes",
                             MAX_SPATIAL);
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
    return ct__set_out(call, &shape, (ct_dtype)x->dtype, x->weak);
}

// Returns the largest element of the last axis, the first of equals, as a sum with one nonzero term, so
// that the gradient goes to that element.
static ct_tensor adaptive_pool_first_max(ct_tensor x) { // (..., n) -> (...)
    const ct_type *type = ct__type_of(x);
    int64_t n = ct__size_of(type, type->rank - 1);
    ct_tensor chosen = ct_equal(pool_iota(n, CT_I32), ct__add_last(ct_argmax(x, .axis = -1)));
    return pool_sum_last(ct_select(chosen, x, ct__number_like(0, x)), 1);
}
// Pools one axis. Window i of `count` has the elements from floor(i n / count) up to, but excluding,
// ceil((i + 1) n / count).
static ct_tensor adaptive_pool_axis(ct_tensor x, int axis, int64_t count, bool largest) {
    const ct_type *type = ct__type_of(x);
    int rank = type->rank;
    int64_t n = ct__size_of(type, axis), move[CT_MAX_RANK], back[CT_MAX_RANK];
    int64_t one = 1, column_dims[2] = {count, 1}, row_dims[CT_MAX_RANK + 1];
    for (int a = 0; a < rank; a++) move[a] = a < axis ? a : a == rank - 1 ? axis : a + 1;
    for (int a = 0; a < rank; a++) back[move[a]] = a;
    ct_tensor last = ct_permute(x, ((ct_ints){rank, move})); // (..., n)
    ct_dims_buffer dims;
    ct__dims_of(last, &dims);
    for (int a = 0; a < rank - 1; a++) row_dims[a] = dims.v[a];
    row_dims[rank - 1] = one;
    row_dims[rank] = n;
    ct_tensor row = ct_reshape(last, ((ct_ints){rank + 1, row_dims})); // (..., 1, n)
    ct_tensor i = ct_iota(CT_I64, ((ct_ints){2, column_dims}), 0);     // (count, 1)
    ct_tensor size = ct__size_number(n, CT_I64), n_windows = ct_i(count);
    ct_tensor start = ct_div(ct_mul(i, size), n_windows);
    ct_tensor end = ct_add(ct_mul(ct_add(i, ct_i(1)), size), ct_i(count - 1));
    end = ct_div(end, n_windows);
    ct_tensor position = pool_iota(n, CT_I64);
    ct_tensor inside =
        ct_and(ct_greater_equal(position, start), ct_less(position, end)); // (count, n)
    ct_tensor outside = ct__number_like(largest ? -INFINITY : 0, x);
    ct_tensor windowed = ct_select(inside, row, outside); // (..., count, n)
    ct_tensor y;
    if (largest) {
        y = adaptive_pool_first_max(windowed);
    } else {
        ct_tensor sizes = ct_cast(ct_sub(end, start), (ct_dtype)type->dtype);
        y = ct_div(pool_sum_last(windowed, 1), ct_reshape(sizes, ((ct_ints){1, &count})));
    }
    return ct_permute(y, ((ct_ints){rank, back}));
}

static bool adaptive_pool_body(ct_rule *r, bool largest) {
    const ct_ints *output = &((const adaptive_max_pool_attrs *)r->attrs)->output;
    ct_tensor x = r->in[0];
    const ct_type *type = ct__type_of(x);
    int n = (int)output->n, first = type->rank - n;
    bool whole = true, equal = true;
    int64_t kernel[MAX_SPATIAL], axes[MAX_SPATIAL];
    for (int i = 0; i < n; i++) {
        int64_t size = type->dim[first + i];
        whole = whole && output->v[i] == 1;
        equal = equal && !ct__is_dyn(type, first + i) && size % output->v[i] == 0;
        kernel[i] = size / output->v[i];
        axes[i] = first + i;
    }
    ct_ints windows = {n, kernel};
    if (whole && largest)
        x = ct__of_type(adaptive_pool_first_max(pool_merge_last(x, n)), r->node->out);
    else if (whole)
        x = ct_mean(x, .axes = {n, axes}, .keepdims = true);
    else if (equal)
        x = largest ? ct_max_pool(x, .kernel = windows) : ct_avg_pool(x, .kernel = windows);
    else
        for (int i = n - 1; i >= 0; i--)
            x = adaptive_pool_axis(x, first + i, output->v[i], largest);
    return ct__set_body(r, x);
}
static bool adaptive_max_pool_infer(ct_call *call) { return adaptive_pool_infer(call); }
static bool adaptive_max_pool_body(ct_rule *r) { return adaptive_pool_body(r, true); }
const ct_opdef ct__op_adaptive_max_pool = {
    POOL(ADAPTIVE_MAX_POOL, adaptive_max_pool, 1),
    .doc = "The largest element of each window of the last axes, of which there are as many as "
           "output gives: window i of m along n elements goes from i n / m, rounded down, to (i + "
           "1) n / m, rounded up.",
    .accepts = CT_FLOATS,
    .samples = {.kinks = true},
};
static bool adaptive_avg_pool_infer(ct_call *call) { return adaptive_pool_infer(call); }
static bool adaptive_avg_pool_body(ct_rule *r) { return adaptive_pool_body(r, false); }
const ct_opdef ct__op_adaptive_avg_pool = {
    POOL(ADAPTIVE_AVG_POOL, adaptive_avg_pool, 1),
    .doc = "The mean of each of the windows of ct_adaptive_max_pool.",
    .accepts = CT_FLOATS,
    .samples = {.ulp = 8},
};

// x (N, C, ...): all axes but the first two.
static bool global_pool_infer(ct_call *call) {
    const ct_type *x = call->in[0];
    if (!ct__check_accepts(call, 0)) return false;
    if (x->rank < 3 || x->rank > 2 + MAX_SPATIAL)
        return ct__call_err(call, CT_E_SHAPE,
                            "x is %s, it must be (N, C, ...) with 1 to %d more axes",
                            ct__type_text(x).s, MAX_SPATIAL);
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
    return ct__set_out(call, &shape, (ct_dtype)x->dtype, x->weak);
}
static ct_ints global_pool_ones(const ct_type *x) {
    static const int64_t each[MAX_SPATIAL] = {1, 1, 1};
    return (ct_ints){x->rank - 2, each};
}
static bool global_max_pool_body(ct_rule *r) {
    return ct__set_body(
        r, ct_adaptive_max_pool(r->in[0], .output = global_pool_ones(ct__type_of(r->in[0]))));
}
static bool global_avg_pool_body(ct_rule *r) {
    return ct__set_body(
        r, ct_adaptive_avg_pool(r->in[0], .output = global_pool_ones(ct__type_of(r->in[0]))));
}
#define GLOBAL(ID, op)                                                                             \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_composition, .n_in = 1, .n_out = 1,           \
    .accepts = CT_FLOATS, .infer = global_pool_infer, .body = op##_body, .widens = true
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
