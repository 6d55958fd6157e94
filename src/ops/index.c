// Ops that read and write at positions that are data: dynamic_slice, dynamic_update, gather.
#include <math.h>
#include <string.h>

#include "kinds/batch.h"
#include "kinds/scatter.h"
#include "ops/rules.h"

static size_t index_element_size(const ct_type *type) { return ct_dtype_size(type->dtype); }

// ------------------------------------ dynamic slice and update: a window whose start is an operand

#define DYNAMIC_SLICE_ATTRS(F, op) F(op, axes, axes) F(op, extents, sizes)
#define DYNAMIC_UPDATE_ATTRS(F, op) F(op, axes, axes)
CT_ATTRS(dynamic_slice, DYNAMIC_SLICE_ATTRS);
CT_ATTRS(dynamic_update, DYNAMIC_UPDATE_ATTRS);

// Normalises the axes of a window, in the order given, and checks that there is a start for each.
static bool dynamic_window_axes(ct_call *call, ct_ints *axes, int starts) {
    const ct_type *in = call->in[0], *at = call->in[starts];
    if (!ct__check_integers(call, starts, "the start positions")) return false;
    int64_t n = axes->n ? axes->n : in->rank;
    int64_t *own = ct__call_dims(call, (int)n);
    if (!own) return false;
    uint32_t seen = 0;
    for (int64_t i = 0; i < n; i++) {
        own[i] = axes->n ? ct__list_axis(call, axes, i, &seen) : i;
        if (own[i] < 0) return false;
    }
    *axes = (ct_ints){n, own};
    if ((at->rank == 0 && n == 1) || (at->rank == 1 && at->dim[0] == n)) return true;
    return ct__call_err(call, CT_E_SHAPE, "the start positions are %s, they must be (%lld,)",
                        ct__type_text(at).s, (long long)n) ||
           ct__call_hint(call, "give one position for each of .axes (without: for all axes)");
}

// Computes the first element of the window, with each start clamped so that the window is inside.
static void dynamic_ref_start(const ct_ref *ref, const ct_ints *axes, int starts,
                              const ct_type *window, int64_t *start) {
    memset(start, 0, CT_MAX_RANK * sizeof *start);
    for (int64_t i = 0; i < axes->n; i++) {
        int64_t a = axes->v[i], max_start = ref->in_type[0].dim[a] - window->dim[a];
        int64_t at = ct__load_i64(ref->in_type[starts].dtype, ref->in[starts], i);
        start[a] = at < 0 ? 0 : at > max_start ? max_start : at;
    }
}

// Returns the index in x of element i of the window.
static int64_t dynamic_ref_index(const ct_type *x, const ct_type *window, const int64_t *start,
                                 int64_t i) {
    int64_t index = 0, stride = 1;
    for (int a = x->rank - 1; a >= 0; a--) {
        index += (start[a] + i % window->dim[a]) * stride;
        i /= window->dim[a];
        stride *= x->dim[a];
    }
    return index;
}

// The same as an expression: the start of the window along axis a of x.
static ct_ix dynamic_map_start(ct_map *map, const ct_ints *axes, int starts, ct_ix size, int a) {
    ct_ix_pool *p = map->pool;
    for (int64_t i = 0; i < axes->n; i++) {
        if (axes->v[i] != a) continue;
        ct_ix index = ct__ix_int(p, i);
        bool one = ct__type(map->node->in[starts])->rank == 0;
        ct_ix max_start = ct__ix_sub(p, ct__map_in_size(map, 0, a), size);
        ct_ix at = ct__ix_min(p, ct__map_load(map, starts, one ? NULL : &index), max_start);
        return ct__ix_max(p, at, ct__ix_int(p, 0));
    }
    return ct__ix_int(p, 0);
}

static bool dynamic_slice_infer(ct_call *call) {
    dynamic_slice_attrs *attrs = call->attrs;
    const ct_type *in = call->in[0];
    if (!dynamic_window_axes(call, &attrs->axes, 1)) return false;
    if (attrs->sizes.n != attrs->axes.n)
        return ct__call_err(call, CT_E_ARGUMENT, "%lld sizes are given for %lld axes of %s",
                            (long long)attrs->sizes.n, (long long)attrs->axes.n,
                            ct__type_text(in).s) ||
               ct__call_hint(call, "give one size for each of .axes (without: for all axes)");
    ct_shape shape = ct__call_shape(call, in->rank);
    if (!shape.dim) return false;
    for (int a = 0; a < in->rank; a++) ct__shape_add_axis(&shape, in, a);
    for (int64_t i = 0; i < attrs->axes.n; i++) {
        int64_t a = attrs->axes.v[i], size = ct__unmarked(attrs->sizes.v[i]);
        if (size < 0 || size > in->dim[a])
            return ct__call_err(call, CT_E_SHAPE, "a window of %lld does not fit axis %lld of %s",
                                (long long)size, (long long)a, ct__type_text(in).s) ||
                   ct__call_hint(call, "sizes along it are 0 to %lld", (long long)in->dim[a]);
        ct__shape_set(&shape, (int)a, attrs->sizes.v[i]);
    }
    return ct__set_out(call, &shape, in->dtype, in->weak);
}
static bool dynamic_slice_eval(const ct_ref *ref) {
    const dynamic_slice_attrs *attrs = ref->attrs;
    int64_t start[CT_MAX_RANK], n = ct__count(ref->out_type);
    size_t size = index_element_size(ref->out_type);
    dynamic_ref_start(ref, &attrs->axes, 1, ref->out_type, start);
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)ref->out[0] + (size_t)i * size,
               (const char *)ref->in[0] +
                   (size_t)dynamic_ref_index(ref->in_type, ref->out_type, start, i) * size,
               size);
    return true;
}
static bool dynamic_slice_map(ct_map *map) {
    const dynamic_slice_attrs *attrs = map->node->attrs;
    ct_map_piece *piece = ct__map_piece(map, 0);
    for (int a = 0; a < map->node->out->rank; a++)
        piece->from[a] =
            ct__ix_add(map->pool, map->at[a],
                       dynamic_map_start(map, &attrs->axes, 1, ct__map_out_size(map, a), a));
    return true;
}
static bool dynamic_slice_jvp(ct_rule *r) {
    const ct_tensor in[2] = {r->t_in[0], r->in[1]};
    return ct__set_tangent(
        r, ct__is_none(in[0]) ? CT_NONE : ct__record(r->node->op, r->attrs, in, 2, r->node->here));
}
static bool dynamic_slice_transpose(ct_rule *r) {
    const dynamic_slice_attrs *attrs = r->attrs;
    return ct__set_cotangent(
        r, ct_dynamic_update(ct__zeros_like(r->in[0]), r->c_out[0], r->in[1], .axes = attrs->axes));
}
// ------------------------------------------- batching rules for windows with a start per element

// Returns start i of each element of the batch, (B, 1), clamped so that a window of `size` is inside `of`.
static ct_tensor dynamic_batch_start(ct_tensor starts, int64_t i, int64_t of, int64_t size) {
    const int64_t batch = ct__size_like(starts, 0);
    ct_tensor at = ct_rank(starts) == 1 ? starts : ct__slice_axis(starts, 1, i, i + 1);
    at = ct_reshape(ct_cast(at, CT_I64), CT_DIMS(batch, 1));
    ct_tensor max_start = ct_sub(ct__size_number(of, CT_I64), ct__size_number(size, CT_I64));
    return ct_maximum(ct_minimum(at, max_start), ct_i(0));
}

static bool dynamic_slice_batch(ct_batching *b) {
    const dynamic_slice_attrs *attrs = b->attrs;
    const ct_type *in = ct__type(b->node->in[0]);
    ct_tensor x = ct__batch_operand(b, 0);
    if (!b->batched[1]) {
        const void *own = ct__batch_attrs(b, false);
        return own && ct__batch_record(b, own, (const ct_tensor[]){x, b->in[1]});
    }
    for (int64_t i = 0; i < attrs->axes.n; i++) {
        int64_t a = attrs->axes.v[i], size = attrs->sizes.v[i];
        ct_tensor start = dynamic_batch_start(b->in[1], i, ct__size_of(in, (int)a), size);
        ct_tensor positions = ct_add(ct_iota(CT_I64, ((ct_ints){1, &size}), 0), start); // (B, size)
        x = ct_gather(x, positions, .axis = a + 1, .batch_dims = 1, .zero_outside = true);
    }
    b->out[0] = x;
    return true;
}

const ct_opdef ct__op_dynamic_slice = {
    CT_OP(DYNAMIC_SLICE, dynamic_slice, movement, 2, 1),
    .doc = "A window of x of the given sizes along axes (default: all), whose start positions are "
           "an operand, one an axis; a window that would stick out is moved inside.",
    CT_FIELDS(dynamic_slice),
    .accepts = CT_ANY,
    .split = ct__split_each,
    .data = 1,
    .infer = dynamic_slice_infer,
    .batch = dynamic_slice_batch,
    .eval = dynamic_slice_eval,
    .map = dynamic_slice_map,
    .jvp = dynamic_slice_jvp,
    .transpose = dynamic_slice_transpose,
    .stablehlo = "dynamic_slice",
};

static bool dynamic_update_infer(ct_call *call) {
    dynamic_update_attrs *attrs = call->attrs;
    const ct_type *in = call->in[0], *update = call->in[1];
    if (!dynamic_window_axes(call, &attrs->axes, 2)) return false;
    if (ct__promote(in->dtype, in->weak, update->dtype, update->weak) != in->dtype)
        return ct__call_err(call, CT_E_DTYPE, "the update is %s, x is %s", ct__type_text(update).s,
                            ct__type_text(in).s) ||
               ct__hint_cast(call, "update", (ct_dtype)in->dtype);
    if (!ct__call_fits(call, 1, in->dtype)) return false;
    bool fits = update->rank == in->rank;
    for (int a = 0; fits && a < in->rank; a++)
        fits = ct__has_axis(&attrs->axes, a) ? update->dim[a] <= in->dim[a]
                                             : update->dim[a] == in->dim[a];
    if (!fits)
        return ct__call_err(call, CT_E_SHAPE, "an update %s does not fit %s",
                            ct__type_text(update).s, ct__type_text(in).s) ||
               ct__call_hint(call, "it has x's axes, and sizes as large at most (axes that .axes "
                                   "leaves out: as large)");
    *call->out = *in;
    return true;
}
static bool dynamic_update_eval(const ct_ref *ref) {
    const dynamic_update_attrs *attrs = ref->attrs;
    const ct_type *x = &ref->in_type[0], *update = &ref->in_type[1];
    int64_t start[CT_MAX_RANK], n = ct__count(update);
    dynamic_ref_start(ref, &attrs->axes, 2, update, start);
    if (ct__type_bytes(x)) memcpy(ref->out[0], ref->in[0], ct__type_bytes(x));
    for (int64_t i = 0; i < n; i++) {
        int64_t to = dynamic_ref_index(x, update, start, i);
        if (ct__is_float(x->dtype))
            ct__store_f64(x->dtype, ref->out[0], to, ct__load_f64(update->dtype, ref->in[1], i));
        else
            ct__store_i64(x->dtype, ref->out[0], to, ct__load_i64(update->dtype, ref->in[1], i));
    }
    return true;
}
static bool dynamic_update_map(ct_map *map) {
    const dynamic_update_attrs *attrs = map->node->attrs;
    ct_ix_pool *p = map->pool;
    ct_map_piece *inside = ct__map_piece(map, 1), *rest = ct__map_piece(map, 0);
    for (int a = 0; a < map->node->out->rank; a++) {
        rest->from[a] = inside->from[a] = map->at[a];
        if (!ct__has_axis(&attrs->axes, a)) continue;
        ct_ix size = ct__map_in_size(map, 1, a);
        ct_ix at = ct__ix_sub(p, map->at[a], dynamic_map_start(map, &attrs->axes, 2, size, a));
        inside->valid = ct__ix_and(p, inside->valid, ct__ix_le(p, ct__ix_int(p, 0), at));
        inside->valid = ct__ix_and(p, inside->valid, ct__ix_lt(p, at, size));
        inside->from[a] = at;
    }
    return true;
}
static bool dynamic_update_jvp(ct_rule *r) {
    const ct_tensor in[3] = {ct__or_zeros(r->t_in[0], r->in[0]), ct__or_zeros(r->t_in[1], r->in[1]),
                             r->in[2]};
    return ct__set_tangent(r, ct__record(r->node->op, r->attrs, in, 3, r->node->here));
}
static bool dynamic_update_transpose(ct_rule *r) {
    const dynamic_update_attrs *attrs = r->attrs;
    if (r->linear[0])
        r->c_in[0] =
            ct_dynamic_update(r->c_out[0], ct__zeros_like(r->in[1]), r->in[2], .axes = attrs->axes);
    if (r->linear[1]) {
        ct_dims_buffer dims;
        int64_t sizes[CT_MAX_RANK];
        ct__dims_of(r->in[1], &dims);
        for (int64_t i = 0; i < attrs->axes.n; i++) sizes[i] = dims.v[attrs->axes.v[i]];
        r->c_in[1] = ct_dynamic_slice(r->c_out[0], r->in[2], .axes = attrs->axes,
                                      .sizes = {attrs->axes.n, sizes});
    }
    return true;
}
// The update is expanded to x, and a mask marks the window.
static bool dynamic_update_batch(ct_batching *b) {
    const dynamic_update_attrs *attrs = b->attrs;
    const ct_type *in = ct__type(b->node->in[0]), *window = ct__type(b->node->in[1]);
    ct_tensor x = ct__batch_operand(b, 0), update = ct__batch_operand(b, 1), mask = CT_NONE;
    if (!b->batched[2]) {
        const void *own = ct__batch_attrs(b, false);
        return own && ct__batch_record(b, own, (const ct_tensor[]){x, update, b->in[2]});
    }
    for (int64_t i = 0; i < attrs->axes.n; i++) {
        int a = (int)attrs->axes.v[i];
        int64_t of = ct__size_of(in, a), size = ct__size_of(window, a);
        ct_tensor start = dynamic_batch_start(b->in[2], i, of, size);
        ct_tensor positions = ct_sub(ct_iota(CT_I64, ((ct_ints){1, &of}), 0), start); // (B, of)
        ct_tensor inside = ct_and(ct_greater_equal(positions, ct_i(0)),
                                  ct_less(positions, ct__size_number(size, CT_I64)));
        update = ct_gather(update, positions, .axis = a + 1, .batch_dims = 1, .zero_outside = true);
        int64_t dims[CT_MAX_RANK + 1] = {b->size};
        for (int k = 0; k < in->rank; k++) dims[k + 1] = k == a ? of : 1;
        inside = ct_reshape(inside, ((ct_ints){in->rank + 1, dims}));
        mask = ct__is_none(mask) ? inside : ct_and(mask, inside);
    }
    b->out[0] = ct__is_none(mask) ? update : ct_select(mask, update, x);
    if (ct__type_of(b->out[0])->dtype != in->dtype)
        b->out[0] = ct_cast(b->out[0], (ct_dtype)in->dtype);
    return true;
}

const ct_opdef ct__op_dynamic_update = {
    CT_OP(DYNAMIC_UPDATE, dynamic_update, movement, 3, 1),
    .doc =
        "x with a window replaced by `update`, at start positions (an operand, one a named axis; "
        "default: all axes); a window that would stick out is moved inside.",
    CT_FIELDS(dynamic_update),
    .accepts = CT_ANY,
    .split = ct__split_each,
    .data = 3,
    .infer = dynamic_update_infer,
    .batch = dynamic_update_batch,
    .eval = dynamic_update_eval,
    .map = dynamic_update_map,
    .jvp = dynamic_update_jvp,
    .transpose = dynamic_update_transpose,
    .stablehlo = "dynamic_update_slice",
    .autocast = CT_CAST_WIDEST,
};

// ------------------------------------------------------------------------------------------ gather

#define GATHER_ATTRS(F, op) F(op, axis, axis) F(op, leading, batch_dims) F(op, bool, zero_outside)
CT_ATTRS(gather, GATHER_ATTRS);

bool ct__picked_shape(ct_call *call, int64_t *axis, int64_t batch, ct_shape *shape) {
    const ct_type *x = call->in[0], *at = call->in[1];
    if (!ct__check_accepts(call, 0) || !ct__check_integers(call, 1, "the indices") ||
        !ct__normal_axis(call, axis))
        return false;
    if (batch < 0 || batch > *axis || batch > at->rank)
        return ct__call_err(
            call, CT_E_ARGUMENT, "batch_dims is %lld: x is %s, indices are %s, the axis is %lld",
            (long long)batch, ct__type_text(x).s, ct__type_text(at).s, (long long)*axis);
    *shape = ct__call_shape(call, x->rank - 1 + at->rank - (int)batch);
    if (!shape->dim) return false;
    for (int a = 0; a < *axis; a++) {
        if (a < batch && x->dim[a] != at->dim[a])
            return ct__call_err(call, CT_E_SHAPE, "batch axis %d differs: x is %s, indices are %s",
                                a, ct__type_text(x).s, ct__type_text(at).s);
        if (a < batch)
            ct__shape_add(shape, ct__same_size(x, a, at, a));
        else
            ct__shape_add_axis(shape, x, a);
    }
    for (int a = (int)batch; a < at->rank; a++) ct__shape_add_axis(shape, at, a);
    for (int a = (int)*axis + 1; a < x->rank; a++) ct__shape_add_axis(shape, x, a);
    return true;
}

static bool gather_infer(ct_call *call) {
    gather_attrs *attrs = call->attrs;
    ct_shape shape = {0};
    if (!ct__picked_shape(call, &attrs->axis, attrs->batch_dims, &shape)) return false;
    return ct__set_out(call, &shape, call->in[0]->dtype, call->in[0]->weak);
}
static bool gather_eval(const ct_ref *ref) {
    const gather_attrs *attrs = ref->attrs;
    ct_dtype d = ref->out_type->dtype;
    const ct_picked p = ct__picked_sizes(&ref->in_type[0], &ref->in_type[1], (int)attrs->axis,
                                         (int)attrs->batch_dims);
    size_t size = index_element_size(ref->out_type), row = (size_t)p.tail * size;
    double outside = attrs->zero_outside || !ct__is_float(d) ? 0 : NAN;
    for (int64_t o = 0; o < p.batch * p.middle * p.picks; o++) {
        int64_t lead = o / p.picks, b = lead / p.middle;
        int64_t at = ct__load_i64(ref->in_type[1].dtype, ref->in[1], b * p.picks + o % p.picks);
        char *to = (char *)ref->out[0] + (size_t)o * row;
        if (at >= 0 && at < p.n) {
            if (row) memcpy(to, (const char *)ref->in[0] + (size_t)(lead * p.n + at) * row, row);
        } else {
            for (int64_t i = 0; i < p.tail; i++) ct__store_f64(d, to, i, outside);
        }
    }
    return true;
}
static bool gather_map(ct_map *map) {
    const gather_attrs *attrs = map->node->attrs;
    const ct_type *x = ct__type(map->node->in[0]), *at = ct__type(map->node->in[1]);
    ct_ix_pool *p = map->pool;
    int axis = (int)attrs->axis, batch = (int)attrs->batch_dims, picks = at->rank - batch;
    ct_ix index[CT_MAX_RANK];
    for (int a = 0; a < batch; a++) index[a] = map->at[a];
    for (int a = 0; a < picks; a++) index[batch + a] = map->at[axis + a];
    ct_ix position = ct__map_load(map, 1, at->rank ? index : NULL);
    ct_map_piece *inside = ct__map_piece(map, 0), *outside = ct__map_piece(map, -1);
    ct_ix below = ct__ix_lt(p, position, ct__map_in_size(map, 0, axis));
    inside->valid = ct__ix_and(p, ct__ix_le(p, ct__ix_int(p, 0), position), below);
    for (int a = 0; a < x->rank; a++)
        inside->from[a] = a == axis ? position : map->at[a < axis ? a : a - 1 + picks];
    if (!attrs->zero_outside && ct__is_float(x->dtype)) outside->fill = NAN;
    return true;
}
static bool gather_jvp(ct_rule *r) {
    const gather_attrs *attrs = r->attrs;
    if (!ct__is_none(r->t_in[0]))
        r->t_out[0] = ct_gather(r->t_in[0], r->in[1], .axis = attrs->axis,
                                .batch_dims = attrs->batch_dims, .zero_outside = true);
    return true;
}
static bool gather_transpose(ct_rule *r) {
    const gather_attrs *attrs = r->attrs;
    return ct__set_cotangent(r,
                             ct_scatter_add(ct__zeros_like(r->in[0]), r->in[1], r->c_out[0],
                                            .axis = attrs->axis, .batch_dims = attrs->batch_dims));
}
const ct_opdef ct__op_gather = {
    CT_OP(GATHER, gather, gather, 2, 1),
    .doc = "The elements of x at `indices` along an axis: sizes are those of x before the axis, of "
           "the indices without their first batch_dims axes (which go along with those of x), of x "
           "after the axis. An index out of bounds, a negative one too, gives NaN, or 0 for "
           "integers and with zero_outside.",
    CT_FIELDS(gather),
    .accepts = CT_ANY,
    .split = ct__split_each,
    .data = 1,
    .infer = gather_infer,
    .eval = gather_eval,
    .map = gather_map,
    .jvp = gather_jvp,
    .transpose = gather_transpose,
    .onnx = "Gather",
    .stablehlo = "gather",
};
