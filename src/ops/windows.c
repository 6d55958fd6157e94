// Moving windows as a view: the elements in each window, without a copy of them.
//
// The op is its own transpose. Tap t of window o reads position o * stride + t * dilation - low, in units
// of 1 / base of the operand's elements. Conversely, position p is read by tap t of window (p * base - t *
// dilation + low) / stride: windows again, with stride and base exchanged and the signs of dilation and
// low inverted.
#include "ops/windows.h"

#include <math.h>

#include "kinds/batch.h"

bool ct__window_list(ct_call *call, const char *name, ct_ints *list, int n, int64_t least,
                     int64_t normal) {
    if (list->n > 1 && list->n != n)
        return ct__call_err(call, CT_E_ARGUMENT, "%s has %lld numbers for %d %s", name,
                            (long long)list->n, n, n == 1 ? "axis" : "axes") ||
               ct__call_hint(call, CT_LIST_HINT);
    int64_t *own = ct__call_dims(call, n);
    if (!own) return false;
    for (int i = 0; i < n; i++) {
        own[i] = list->n == 0 ? normal : list->v[list->n == 1 ? 0 : i];
        if (ct__marked(own[i]))
            return ct__call_err(call, CT_E_ARGUMENT, "%s is dynamic, it must be static", name);
        if (own[i] < least || own[i] > CT_MOST_STEP)
            return ct__call_err(call, CT_E_ARGUMENT, "%s is %lld, it must be at %s %lld", name,
                                (long long)own[i], own[i] < least ? "least" : "most",
                                (long long)(own[i] < least ? least : CT_MOST_STEP));
    }
    *list = (ct_ints){n, own};
    return true;
}

bool ct__window_padding(ct_call *call, ct_ints *padding, int n) {
    bool both = padding->n == 2 * (int64_t)n;
    int64_t *own = ct__call_dims(call, 2 * n);
    ct_ints low = *padding, high = *padding;
    if (!own) return false;
    if (both) low = (ct_ints){n, padding->v}, high = (ct_ints){n, padding->v + n};
    if (!both && padding->n > 1 && padding->n != n)
        return ct__call_err(call, CT_E_ARGUMENT, "padding has %lld numbers for %d %s",
                            (long long)padding->n, n, n == 1 ? "axis" : "axes") ||
               ct__call_hint(call, CT_PADDING_HINT);
    if (!ct__window_list(call, "padding", &low, n, 0, 0) ||
        !ct__window_list(call, "padding", &high, n, 0, 0))
        return false;
    for (int i = 0; i < n; i++) own[i] = low.v[i], own[n + i] = high.v[i];
    *padding = (ct_ints){2 * (int64_t)n, own};
    return true;
}

bool ct__window_fits(ct_call *call, const ct_window *w, int operand, int axis) {
    const ct_type *in = call->in[operand];
    if (in->dim[axis] + w->low + w->high >= ct__window_span(w)) return true;
    return ct__call_err(call, CT_E_SHAPE,
                        "no window fits axis %d of %s: it spans %lld (size %lld, dilation %lld), "
                        "with padding there %s %lld",
                        axis, ct__type_text(in).s, (long long)ct__window_span(w),
                        (long long)w->size, (long long)w->dilation,
                        in->dim[axis] + w->low + w->high == 1 ? "is" : "are",
                        (long long)(in->dim[axis] + w->low + w->high));
}

// ----------------------------------------------------------------------------------------- windows

#define WINDOWS_ATTRS(F, op)                                                                       \
    F(op, axes, axes)                                                                              \
    F(op, extents, counts)                                                                         \
    F(op, ints, size)                                                                              \
    F(op, ints, stride)                                                                            \
    F(op, ints, dilation)                                                                          \
    F(op, ints, low) F(op, ints, high) F(op, ints, base) F(op, num, fill) F(op, bool, taps)
CT_ATTRS(windows, WINDOWS_ATTRS);

static bool windows_check_dilation(ct_call *call, windows_attrs *attrs, int n) {
    const ct_ints *given = &attrs->dilation;
    const bool counted = attrs->counts.n > 0, negative = given->n > 0 && given->v[0] < 0;
    return ct__window_list(call, "dilation", &attrs->dilation, n, counted ? -CT_MOST_STEP : 1, 1) ||
           (negative && !counted &&
            ct__call_hint(call, "it may be negative with .counts, the number of windows"));
}

// Brings axes and lists to their normal form.
static bool windows_normalise(ct_call *call, windows_attrs *attrs) {
    const ct_type *in = call->in[0];
    int64_t n = attrs->size.n;
    if (n == 0 || n > in->rank)
        return ct__call_err(call, CT_E_ARGUMENT, "size has %lld numbers for %s", (long long)n,
                            ct__type_text(in).s) ||
               ct__call_hint(call, "it is the size of windows along each of .axes, or along the "
                                   "last axes: .size = CT_DIMS(3, 3)");
    int own = in->rank - (attrs->taps ? (int)n : 0);
    int64_t *axes = ct__call_dims(call, (int)n);
    if (!axes) return false;
    if (attrs->axes.n && attrs->axes.n != n)
        return ct__call_err(call, CT_E_ARGUMENT, "size has %lld numbers, axes has %lld",
                            (long long)n, (long long)attrs->axes.n);
    uint32_t seen = 0;
    for (int i = 0; i < n; i++) {
        axes[i] = attrs->axes.n ? ct__list_axis(call, &attrs->axes, i, &seen) : own - n + i;
        if (attrs->axes.n && axes[i] < 0) return false;
        if (axes[i] < 0 || axes[i] >= own)
            return ct__call_err(call, CT_E_ARGUMENT,
                                "x is %s: its last %lld axes are taps, windows need %lld others",
                                ct__type_text(in).s, (long long)n, (long long)n);
    }
    attrs->axes = (ct_ints){n, axes};
    if (attrs->counts.n && attrs->counts.n != n)
        return ct__call_err(call, CT_E_ARGUMENT, "counts has %lld numbers, size has %lld",
                            (long long)attrs->counts.n, (long long)n);
    int k = (int)n;
    return ct__window_list(call, "size", &attrs->size, k, 1, 1) &&
           ct__window_list(call, "stride", &attrs->stride, k, 1, 1) &&
           windows_check_dilation(call, attrs, k) &&
           ct__window_list(call, "low", &attrs->low, k, -CT_MOST_STEP, 0) &&
           ct__window_list(call, "high", &attrs->high, k, -CT_MOST_STEP, 0) &&
           ct__window_list(call, "base", &attrs->base, k, 1, 1);
}

static ct_window windows_axis(const windows_attrs *attrs, int i) {
    return (ct_window){attrs->size.v[i], attrs->stride.v[i], attrs->dilation.v[i], attrs->low.v[i],
                       attrs->high.v[i]};
}
// Returns the size of an axis with base - 1 gaps between neighbouring elements.
static int64_t windows_spread_size(const ct_type *in, int64_t axis, int64_t base) {
    int64_t size = ct__size_of(in, (int)axis);
    return base == 1 ? size : ct__size_add(size, ct__size_mul(ct__gaps(size), base - 1));
}

static bool windows_check_fill(ct_call *call, const windows_attrs *attrs) {
    ct_dtype dtype = (ct_dtype)call->in[0]->dtype;
    double fill = attrs->fill.value;
    if (ct__has_parts(dtype) ? fill == 0 : ct__is_float(dtype)) return true;
    if (!ct__has_parts(dtype) && fill == floor(fill) && fill >= -0x1p63 && fill < 0x1p63) {
        char bytes[CT_MAX_ELEMENT_BYTES] = {0};
        ct__store_i64(dtype, bytes, 0, (int64_t)fill);
        if (ct__load_i64(dtype, bytes, 0) == (int64_t)fill) return true;
    }
    return ct__call_err(call, CT_E_ARGUMENT, "fill is %g, which is no number of %s", fill,
                        ct_dtype_name(dtype));
}

static bool windows_infer(ct_call *call) {
    windows_attrs *attrs = call->attrs;
    const ct_type *in = call->in[0];
    if (!ct__check_accepts(call, 0) || !windows_normalise(call, attrs) ||
        !windows_check_fill(call, attrs))
        return false;
    int n = (int)attrs->size.n, own = in->rank - (attrs->taps ? n : 0);
    ct_shape shape = ct__call_shape(call, own + n);
    if (!shape.dim) return false;
    for (int a = 0; a < own; a++) ct__shape_add_axis(&shape, in, a);
    for (int i = 0; i < n; i++) {
        int axis = (int)attrs->axes.v[i];
        ct_window w = windows_axis(attrs, i);
        if (attrs->counts.n) {
            ct__shape_set(&shape, axis, attrs->counts.v[i]);
            if (shape.dim[axis] < 0)
                return ct__call_err(call, CT_E_ARGUMENT, "counts of axis %d is %lld", axis,
                                    (long long)shape.dim[axis]);
        } else {
            int64_t spread = windows_spread_size(in, axis, attrs->base.v[i]),
                    size = ct__unmarked(spread);
            ct_window in_spread = w;
            in_spread.low += size - in->dim[axis]; // the gaps between elements
            if (!ct__window_fits(call, &in_spread, 0, axis)) return false;
            ct__shape_set(&shape, axis, ct__window_count(&w, spread));
        }
        if (attrs->taps && (in->dim[own + i] != w.size || ct__is_dyn(in, own + i)))
            return ct__call_err(call, CT_E_SHAPE, "axis %d of %s must be the %lld taps of axis %d",
                                own + i, ct__type_text(in).s, (long long)w.size, axis);
        ct__shape_add(&shape, w.size);
    }
    return ct__set_out(call, &shape, in->dtype, in->weak);
}

static bool windows_eval(const ct_ref *ref) {
    const windows_attrs *attrs = ref->attrs;
    const ct_type *in = ref->in_type, *out = ref->out_type;
    int64_t stride[CT_MAX_RANK], at[CT_MAX_RANK], n = ct__count(out);
    int taps = (int)attrs->size.n, own = out->rank - taps;
    ct_dtype d = (ct_dtype)out->dtype;
    ct__strides(in, stride);
    for (int64_t e = 0; e < n; e++) {
        bool inside = true;
        int64_t from = 0;
        ct__index_of(out, e, at);
        for (int i = 0; i < taps; i++) {
            ct_window w = windows_axis(attrs, i);
            int64_t axis = attrs->axes.v[i], base = attrs->base.v[i];
            int64_t position = at[axis] * w.stride + at[own + i] * w.dilation - w.low;
            inside =
                inside && position >= 0 && position % base == 0 && position / base < in->dim[axis];
            at[axis] = position / base;
        }
        for (int a = 0; a < in->rank; a++) from += at[a] * stride[a];
        if (inside)
            ct__ref_move(ref, 0, e, from);
        else if (ct__is_float(d) || ct__is_complex(d))
            ct__store_f64(d, ref->out[0], e, attrs->fill.value);
        else
            ct__store_i64(d, ref->out[0], e, (int64_t)attrs->fill.value);
    }
    return true;
}

// Along one axis, returns the index that tap `tap` of window `at` reads, and adds the condition that it is
// inside.
static ct_ix windows_map_axis(ct_map *map, ct_map_piece *piece, int i, ct_ix at, ct_ix tap) {
    const windows_attrs *attrs = map->node->attrs;
    const ct_type *in = ct__type(map->node->in[0]), *out = map->node->out;
    ct_window w = windows_axis(attrs, i);
    ct_ix_pool *p = map->pool;
    ct_ix zero = ct__ix_int(p, 0);
    int axis = (int)attrs->axes.v[i];
    int64_t base = attrs->base.v[i], reach = (w.size - 1) * w.dilation;
    ct_ix position = ct__ix_add(p, ct__ix_mul(p, at, ct__ix_int(p, w.stride)),
                                ct__ix_mul(p, tap, ct__ix_int(p, w.dilation)));
    position = ct__ix_sub(p, position, ct__ix_int(p, w.low));
    bool dynamic = ct__is_dyn(in, axis) || ct__is_dyn(out, axis);
    int64_t last = (out->dim[axis] - 1) * w.stride + (reach > 0 ? reach : 0) - w.low;
    if ((reach < 0 ? reach : 0) < w.low)
        piece->valid = ct__ix_and(p, piece->valid, ct__ix_le(p, zero, position));
    if (base > 1) { // adds multiples of base, since positions before the first one are divided too
        const int64_t before = w.low - (reach < 0 ? reach : 0);
        ct_ix pitch = ct__ix_int(p, base),
              offset = ct__ix_int(p, before > 0 ? (before + base - 1) / base : 0);
        ct_ix forward = ct__ix_add(p, position, ct__ix_mul(p, offset, pitch));
        piece->valid =
            ct__ix_and(p, piece->valid, ct__ix_eq(p, ct__ix_mod(p, forward, pitch), zero));
        position = ct__ix_sub(p, ct__ix_div(p, forward, pitch), offset);
    }
    if (dynamic ? attrs->counts.n > 0 || w.high > 0 : last / base >= in->dim[axis])
        piece->valid =
            ct__ix_and(p, piece->valid, ct__ix_lt(p, position, ct__map_in_size(map, 0, axis)));
    return position;
}
static bool windows_map(ct_map *map) {
    const windows_attrs *attrs = map->node->attrs;
    int in_rank = ct__type(map->node->in[0])->rank, n = (int)attrs->size.n;
    int own = map->node->out->rank - n;
    ct_map_piece *piece = ct__map_piece(map, 0);
    for (int a = 0; a < in_rank; a++) piece->from[a] = map->at[a];
    for (int i = 0; i < n; i++) {
        int64_t axis = attrs->axes.v[i];
        piece->from[axis] = windows_map_axis(map, piece, i, map->at[axis], map->at[own + i]);
    }
    if (piece->valid != CT_IX_NONE) {
        ct_map_piece *outside = ct__map_piece(map, -1);
        outside->fill = attrs->fill.value;
    }
    return true;
}

static bool windows_jvp(ct_rule *r) {
    windows_attrs attrs = *(const windows_attrs *)r->attrs;
    attrs.fill = (ct_num){0};
    return ct__set_tangent(r, ct__record(r->node->op, &attrs, r->t_in, 1, r->node->here));
}

// If `base` has strides, each position tests for each tap, by a remainder, whether it has a window.
// Kernels whose taps are unrolled (reduce.c) with static sizes resolve that at compile time (cuts.c). For
// others the positions are split by remainders here, if taps and windows are arranged as in pooling. Sums
// of overlapping windows then have another order, so for them sizes that may become dynamic do not decide.
enum { MAX_UNROLLED_TAPS = 32, MAX_OVERLAPPING_TAPS = 49, MAX_STRIDE = 8, MAX_CELL = 64 };
static bool windows_splits_remainders(const windows_attrs *attrs, const ct_type *in) {
    int64_t taps = 1, cell = 1, rank = in->rank + 2 * attrs->size.n;
    bool steps = false, unknown = false, overlap = false, long_stride = false;
    for (int i = 0; i < attrs->size.n; i++) {
        const ct_window w = windows_axis(attrs, i);
        const bool dynamic = ct__is_dyn(in, (int)attrs->axes.v[i]);
        if (w.dilation != 1 || w.low < 0 || attrs->base.v[i] != 1) return false;
        if (dynamic && attrs->counts.n) return false;
        steps |= w.stride > 1;
        unknown |= dynamic && w.stride > 1;
        overlap |= w.size > w.stride;
        long_stride |= w.stride > MAX_STRIDE;
        taps = taps > MAX_OVERLAPPING_TAPS ? taps : taps * w.size;
        cell = cell > MAX_CELL ? cell : cell * w.stride;
    }
    const bool many = taps > (overlap ? MAX_OVERLAPPING_TAPS : MAX_UNROLLED_TAPS);
    return !attrs->taps && steps && rank <= CT_MAX_RANK &&
           ((unknown && !overlap) || long_stride || many || cell > MAX_CELL);
}

// Position q * stride + r of the padded axis is read by tap r + j * stride of window q - j: taps as (j, r)
// are windows of stride 1 for every r.
static ct_tensor windows_transpose_by_remainders(ct_tensor c, const windows_attrs *attrs,
                                                 const ct_type *in) {
    const ct_type *type = ct__type_of(c); // (..., o, ..., k)
    const int n = (int)attrs->size.n, own = type->rank - n;
    int64_t high[CT_MAX_RANK] = {0}, dims[CT_MAX_RANK], order[CT_MAX_RANK], merged[CT_MAX_RANK];
    int64_t steps[CT_MAX_RANK], counts[CT_MAX_RANK], back[CT_MAX_RANK], last[CT_MAX_RANK];
    int64_t start[CT_MAX_RANK], stop[CT_MAX_RANK];
    for (int a = 0; a < own; a++) dims[a] = merged[a] = ct__size_of(type, a), order[a] = a;
    for (int i = 0; i < n; i++) {
        const ct_window w = windows_axis(attrs, i);
        const int axis = (int)attrs->axes.v[i];
        const int64_t size = ct__size_of(in, axis), reach = w.size - 1 - w.high;
        steps[i] = (w.size + w.stride - 1) / w.stride;
        high[own + i] = steps[i] * w.stride - w.size;
        dims[own + 2 * i] = steps[i];
        dims[own + 2 * i + 1] = w.stride;
        order[own + i] = own + 2 * i + 1;
        order[own + n + i] = own + 2 * i;
        last[i] = own + n + i;
        // For a dynamic number of windows: these, and enough further ones that all positions have one.
        counts[i] = ct__marked(size)
                        ? ct__size_add(ct__size_of(type, axis),
                                       reach > 0 ? (reach + w.stride - 1) / w.stride : 0)
                        : (w.low + size + w.stride - 1) / w.stride;
        merged[axis] = ct__size_mul(counts[i], w.stride);
        start[i] = w.low;
        stop[i] = ct__size_add(size, w.low);
    }
    c = ct_pad(c, ct__number_like(0, c), .high = {own + n, high});
    c = ct_reshape(c, ((ct_ints){own + 2 * n, dims}));
    c = ct_permute(c, ((ct_ints){own + 2 * n, order})); // (..., o, ..., r, j)
    c = ct_windows(c, .axes = attrs->axes, .counts = {n, counts}, .size = {n, steps},
                   .dilation = CT_INTS(-1), .taps = true);
    c = ct_sum(c, .axes = {n, last}); // (..., q, ..., r)
    for (int a = 0, to = 0; a < own; a++) {
        back[to++] = a;
        for (int i = 0; i < n; i++)
            if (attrs->axes.v[i] == a) back[to++] = own + i;
    }
    c = ct_reshape(ct_permute(c, ((ct_ints){own + n, back})), ((ct_ints){own, merged}));
    return ct_slice(c, .axes = attrs->axes, .start = {n, start}, .stop = {n, stop});
}

static bool windows_transpose(ct_rule *r) {
    const windows_attrs *attrs = r->attrs;
    const ct_type *in = ct__type_of(r->in[0]), *out = ct__type_of(r->c_out[0]);
    int n = (int)attrs->size.n;
    if (windows_splits_remainders(attrs, in)) {
        r->c_in[0] =
            ct__shaped_like(windows_transpose_by_remainders(r->c_out[0], attrs, in), r->in[0]);
        return true;
    }
    int64_t counts[CT_MAX_RANK], dilation[CT_MAX_RANK], low[CT_MAX_RANK], taps[CT_MAX_RANK];
    for (int i = 0; i < n; i++) {
        counts[i] = ct__size_of(in, (int)attrs->axes.v[i]);
        dilation[i] = -attrs->dilation.v[i];
        low[i] = -attrs->low.v[i];
        taps[i] = out->rank - n + i;
    }
    windows_attrs back = {.axes = attrs->axes,
                          .counts = {n, counts},
                          .size = attrs->size,
                          .stride = attrs->base,
                          .dilation = {n, dilation},
                          .low = {n, low},
                          .base = attrs->stride,
                          .taps = true};
    ct_tensor c = ct__record(r->node->op, &back, r->c_out, 1, r->node->here);
    return ct__set_cotangent(r, attrs->taps ? c : ct_sum(c, .axes = {n, taps}));
}

const ct_opdef ct__op_windows = {
    CT_OP(WINDOWS, windows, movement, 1, 1),
    .doc = "The elements of moving windows of x, a view: along each of the axes (default: the last "
           "ones) the number of windows, and after all axes one of taps for each, of `size`. Tap t "
           "of window o is x at o * stride + t * dilation - low, divided by `base` "
           "(base - 1 gaps are between each two elements), or `fill` where x has none. As "
           "many windows as fit x with low and high elements around it, or `counts`, with which "
           "dilation may be negative. taps: x has the axes of taps already, and each tap sees its "
           "own x; so the gradient of windows is windows.",
    CT_FIELDS(windows),
    .accepts = CT_ANY,
    .split = ct__split_each,
    .data = 1,
    .fills = true,
    .infer = windows_infer,
    .eval = windows_eval,
    .map = windows_map,
    .jvp = windows_jvp,
    .transpose = windows_transpose,
    .batch = ct__batch_shifted,
};
