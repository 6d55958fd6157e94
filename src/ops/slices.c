// Movement ops that slice, pad, flip and concatenate.
#include <string.h>

#include "kinds/batch.h"
#include "ops/rules.h"

// Checks that a list is empty or has one number per axis of operand 0.
static bool slices_check_list(ct_call *call, const char *name, const ct_ints *list) {
    if (list->n == 0 || list->n == call->in[0]->rank) return true;
    return ct__call_err(call, CT_E_ARGUMENT, "%s has %lld numbers for %s", name, (long long)list->n,
                        ct__type_text(call->in[0]).s) ||
           ct__call_hint(call, "give one number an axis: %d", call->in[0]->rank);
}

// ------------------------------------------------------------------------------------------- slice

#define SLICE_ATTRS(F, op)                                                                         \
    F(op, axes, axes) F(op, offsets, start) F(op, limits, stop) F(op, strides, step)
CT_ATTRS(slice, SLICE_ATTRS);

// True if a position counts from the end of the axis: it is CT_END or negative. Along a dynamic axis it
// remains so in the attributes, since what follows from the size of the axis needs no kernel argument of
// its own.
static bool slice_is_from_end(int64_t position) { return position == CT_END || position < 0; }
static int64_t slice_position(const ct_type *in, int axis, int64_t position) {
    if (!slice_is_from_end(position)) return ct__unmarked(position);
    return in->dim[axis] + (position == CT_END ? 0 : position);
}
// Returns the position, counted from the start, in the encoding of attributes.
static int64_t slice_size_before(const ct_type *in, int axis, int64_t position) {
    if (!slice_is_from_end(position)) return position;
    return ct__size_add(ct__size_of(in, axis), position == CT_END ? 0 : position);
}
static int64_t slice_normal_position(const ct_type *in, int axis, int64_t given) {
    int64_t position = slice_position(in, axis, given);
    // A position before the start of the axis is unchanged: normalised, it would look like another one
    // from the end.
    return slice_is_from_end(given) && !ct__is_dyn(in, axis) && position >= 0 ? position : given;
}
// Expands the lists to all axes: `own` has capacity for start, stop and step of each.
static bool slice_expand_lists(ct_call *call, const slice_attrs *attrs, int64_t *own) {
    const ct_type *in = call->in[0];
    int rank = in->rank;
    const ct_ints *lists[3] = {&attrs->start, &attrs->stop, &attrs->step};
    static const char *const names[3] = {"start", "stop", "step"};
    for (int a = 0; a < rank; a++) {
        own[a] = 0;
        own[rank + a] = slice_normal_position(in, a, CT_END);
        own[2 * rank + a] = 1;
    }
    int64_t named = attrs->axes.n;
    uint32_t seen = 0;
    for (int which = 0; which < 3; which++) {
        int64_t n = lists[which]->n;
        if (n == 0) continue;
        if (named ? n != named : n > rank)
            return ct__call_err(call, CT_E_ARGUMENT, "%s has %lld numbers for %lld axes of %s",
                                names[which], (long long)n, (long long)(named ? named : rank),
                                ct__type_text(in).s) ||
                   ct__call_hint(call, named ? "give one number for each of .axes"
                                             : "without .axes the numbers are of axis 0, 1, ...");
        for (int64_t i = 0; i < n; i++) {
            int a = named ? ct__axis(attrs->axes.v[i], rank) : (int)i;
            if (a < 0)
                return ct__call_err(call, CT_E_ARGUMENT, "axis %lld is out of range for %s",
                                    (long long)attrs->axes.v[i], ct__type_text(in).s) ||
                       ct__hint_axes(call, rank);
            own[which * rank + a] =
                which == 2 ? lists[which]->v[i] : slice_normal_position(in, a, lists[which]->v[i]);
        }
    }
    for (int64_t i = 0; i < named; i++) {
        if (ct__list_axis(call, &attrs->axes, i, &seen) < 0) return false;
    }
    return true;
}

// For error messages: returns a position as the caller gave it, if it counted from the end.
static int64_t slice_given_position(const ct_type *in, const slice_attrs *attrs,
                                    const ct_ints *list, int axis, int64_t position) {
    for (int64_t i = 0; i < list->n; i++)
        if ((attrs->axes.n ? ct__axis(attrs->axes.v[i], in->rank) : (int)i) == axis &&
            slice_is_from_end(list->v[i]) && list->v[i] != CT_END)
            return list->v[i];
    return position;
}

static bool slice_infer(ct_call *call) {
    slice_attrs *attrs = call->attrs;
    const ct_type *in = call->in[0];
    int rank = in->rank;
    ct_shape shape = ct__call_shape(call, rank);
    int64_t *own = ct__arena(call->arena, 3 * (size_t)rank * sizeof *own);
    if (!own) ct__err_memory(call->err, call->here, "slice", 3 * (size_t)rank * sizeof *own);
    if (!shape.dim || !own || !slice_expand_lists(call, attrs, own)) return false;
    for (int a = 0; a < rank; a++) {
        int64_t start = slice_position(in, a, own[a]), stop = slice_position(in, a, own[rank + a]),
                step = own[2 * rank + a];
        if (step < 1)
            return ct__call_err(call, CT_E_ARGUMENT, "the step along axis %d is %lld", a,
                                (long long)step) ||
                   ct__call_hint(call, step ? "steps are 1 or more; ct_flip reverses an axis"
                                            : "steps are 1 or more");
        if (start < 0 || start > stop || stop > in->dim[a])
            return ct__call_err(call, CT_E_ARGUMENT,
                                "%lld to %lld is out of bounds of axis %d of %s",
                                (long long)slice_given_position(in, attrs, &attrs->start, a, start),
                                (long long)slice_given_position(in, attrs, &attrs->stop, a, stop),
                                a, ct__type_text(in).s) ||
                   ct__call_hint(call,
                                 start > stop && start >= 0 && stop <= in->dim[a]
                                     ? "start must not be after stop"
                                     : "positions are 0 to %lld, negative ones count from the "
                                       "end, and CT_END is the end",
                                 (long long)in->dim[a]);
        // Steps larger than the longest such axis are equivalent: they are limited, so that position times
        // step does not overflow.
        int64_t longest = ct__is_dyn(in, a) ? CT_DYN_END : in->dim[a] > 1 ? in->dim[a] : 1;
        if (step > longest) own[2 * rank + a] = longest;
        bool both_from_end = slice_is_from_end(own[a]) && slice_is_from_end(own[rank + a]);
        ct__shape_add(&shape,
                      both_from_end
                          ? (stop - start) / step + ((stop - start) % step != 0)
                          : ct__size_div_up(ct__size_sub(slice_size_before(in, a, own[rank + a]),
                                                         slice_size_before(in, a, own[a])),
                                            step));
    }
    *attrs = (slice_attrs){
        .start = {rank, own}, .stop = {rank, own + rank}, .step = {rank, own + 2 * rank}};
    return ct__set_out(call, &shape, in->dtype, in->weak);
}

static bool slice_eval(const ct_ref *ref) {
    const slice_attrs *attrs = ref->attrs;
    int64_t stride[CT_MAX_RANK], at[CT_MAX_RANK], n = ct__count(ref->out_type);
    ct__strides(ref->in_type, stride);
    for (int64_t i = 0; i < n; i++) {
        int64_t from = 0;
        ct__index_of(ref->out_type, i, at);
        for (int a = 0; a < ref->out_type->rank; a++) {
            int64_t start = slice_position(ref->in_type, a, attrs->start.v[a]);
            from += (start + at[a] * attrs->step.v[a]) * stride[a];
        }
        ct__ref_move(ref, 0, i, from);
    }
    return true;
}

static bool slice_map(ct_map *map) {
    const slice_attrs *attrs = map->node->attrs;
    ct_map_piece *piece = ct__map_piece(map, 0);
    ct_ix_pool *p = map->pool;
    for (int a = 0; a < map->node->out->rank; a++) {
        const int64_t *where = &attrs->start.v[a];
        ct_ix start =
            slice_is_from_end(*where) ? ct__map_in_size(map, 0, a) : ct__map_attr(map, where);
        if (*where < 0) start = ct__ix_add(p, start, ct__ix_int(p, *where));
        piece->from[a] =
            ct__ix_add(p, start, ct__ix_mul(p, map->at[a], ct__ix_int(p, attrs->step.v[a])));
        if (attrs->stop.v[a] != CT_END) piece->cut |= 1u << a;
    }
    return true;
}
static bool slice_transpose(ct_rule *r) { // pads the cotangents with zeros, also between them
    const slice_attrs *attrs = r->attrs;
    const ct_type *in = ct__type_of(r->in[0]), *out = ct__type_of(r->c_out[0]);
    int64_t low[CT_MAX_RANK], high[CT_MAX_RANK], interior[CT_MAX_RANK];
    for (int a = 0; a < in->rank; a++) {
        int64_t from = attrs->start.v[a], to = attrs->stop.v[a], step = attrs->step.v[a];
        int64_t start = slice_size_before(in, a, from), n = ct__size_of(out, a);
        int64_t last = ct__size_add(ct__size_add(start, n), ct__size_mul(ct__gaps(n), step - 1));
        low[a] = start;
        high[a] = step == 1 && slice_is_from_end(to) ? (to == CT_END ? 0 : -to)
                                                     : ct__size_sub(ct__size_of(in, a), last);
        interior[a] = step - 1;
    }
    ct_tensor padded = ct_pad(r->c_out[0], ct__number_like(0, r->c_out[0]), .low = {in->rank, low},
                              .high = {in->rank, high}, .interior = {in->rank, interior});
    return ct__set_cotangent(r, ct__shaped_like(padded, r->in[0]));
}

const ct_opdef ct__op_slice = {
    CT_OP(SLICE, slice, movement, 1, 1),
    .doc = "Elements start to stop (exclusive) by step along each axis; negative positions count "
           "from the end, CT_END is the end. The lists are for the axes named, or else for the "
           "leading ones; an empty list means 0, the end, 1.",
    CT_FIELDS(slice),
    .accepts = CT_ANY,
    .split = ct__split_each,
    .data = 1,
    .infer = slice_infer,
    .eval = slice_eval,
    .map = slice_map,
    .jvp = ct__jvp_same,
    .transpose = slice_transpose,
    .onnx = "Slice",
    .stablehlo = "slice",
    .varies = "a position that varies can be an operand: ct_dynamic_slice",
};

// --------------------------------------------------------------------------------------------- pad

#define PAD_ATTRS(F, op) F(op, offsets, low) F(op, offsets, high) F(op, gaps, interior)
CT_ATTRS(pad, PAD_ATTRS);

// With so many elements in between, two elements exceed the size of any tensor.
static const int64_t MAX_INTERIOR = (int64_t)1 << 60;

static bool pad_infer(ct_call *call) {
    pad_attrs *attrs = call->attrs;
    const ct_type *in = call->in[0], *fill = call->in[1];
    int rank = in->rank;
    if (fill->rank != 0)
        return ct__call_err(call, CT_E_SHAPE, "the fill value is %s, it must be a scalar",
                            ct__type_text(fill).s) ||
               ct__call_hint(call, "a number is ct_f(0); of a tensor of one element: "
                                   "ct_reshape(value, CT_SCALAR)");
    if (ct__promote(in->dtype, in->weak, fill->dtype, fill->weak) != in->dtype)
        return ct__call_err(call, CT_E_DTYPE, "the fill value is %s, x is %s",
                            ct__type_text(fill).s, ct__type_text(in).s) ||
               ct__hint_cast(call, "value", (ct_dtype)in->dtype);
    if (!ct__call_fits(call, 1, in->dtype)) return false;
    ct_shape shape = ct__call_shape(call, rank);
    int64_t *own = ct__arena(call->arena, 3 * (size_t)rank * sizeof *own);
    if (!own) ct__err_memory(call->err, call->here, "pad", 3 * (size_t)rank * sizeof *own);
    ct_ints *lists[3] = {&attrs->low, &attrs->high, &attrs->interior};
    static const char *const names[3] = {"low", "high", "interior"};
    if (!shape.dim || !own) return false;
    for (int which = 0; which < 3; which++) {
        if (!slices_check_list(call, names[which], lists[which])) return false;
        for (int a = 0; a < rank; a++) {
            int64_t given = lists[which]->n ? lists[which]->v[a] : 0;
            if (ct__unmarked(given) < 0)
                return ct__call_err(call, CT_E_ARGUMENT, "%s of axis %d is %lld", names[which], a,
                                    (long long)ct__unmarked(given)) ||
                       ct__call_hint(call, "it is 0 or more; ct_slice takes elements away");
            own[which * rank + a] = given;
        }
        *lists[which] = (ct_ints){rank, own + which * rank};
    }
    for (int a = 0; a < rank; a++) {
        int64_t n = in->dim[a], size = n > 1 ? n - 1 : 0;
        if (__builtin_mul_overflow(size, attrs->interior.v[a], &size) ||
            __builtin_add_overflow(size, n, &size) ||
            __builtin_add_overflow(size, ct__unmarked(attrs->low.v[a]), &size) ||
            __builtin_add_overflow(size, ct__unmarked(attrs->high.v[a]), &size))
            return ct__call_err(call, CT_E_SHAPE,
                                "axis %d of %s would have more than 2^63 elements", a,
                                ct__type_text(in).s);
        // With fewer than two elements there is nothing in between, so any number is equivalent.
        int64_t max = n > 1 || ct__is_dyn(in, a) ? MAX_INTERIOR : 0;
        if (attrs->interior.v[a] > max) own[2 * rank + a] = max;
        bool dynamic =
            ct__is_dyn(in, a) || ct__marked(attrs->low.v[a]) || ct__marked(attrs->high.v[a]);
        int64_t spread_size = ct__size_of(in, a);
        if (own[2 * rank + a])
            spread_size =
                ct__size_add(spread_size, ct__size_mul(ct__gaps(spread_size), own[2 * rank + a]));
        ct__shape_add(&shape, dynamic
                                  ? ct__size_add(ct__size_add(spread_size, own[a]), own[rank + a])
                                  : size);
    }
    return ct__set_out(call, &shape, in->dtype, in->weak);
}

static bool pad_eval(const ct_ref *ref) {
    const pad_attrs *attrs = ref->attrs;
    ct_dtype d = ref->out_type->dtype;
    int64_t stride[CT_MAX_RANK], at[CT_MAX_RANK], n = ct__count(ref->out_type);
    ct__strides(ref->in_type, stride);
    for (int64_t i = 0; i < n; i++) {
        int64_t from = 0;
        bool inside = true;
        ct__index_of(ref->out_type, i, at);
        for (int a = 0; a < ref->out_type->rank; a++) {
            int64_t x = at[a] - ct__unmarked(attrs->low.v[a]), pitch = attrs->interior.v[a] + 1;
            inside = inside && x >= 0 && x % pitch == 0 && x / pitch < ref->in_type->dim[a];
            from += x / pitch * stride[a];
        }
        if (inside)
            ct__ref_move(ref, 0, i, from);
        else if (ct__is_float(d))
            ct__store_f64(d, ref->out[0], i, ct__load_f64(ref->in_type[1].dtype, ref->in[1], 0));
        else
            ct__store_i64(d, ref->out[0], i, ct__load_i64(ref->in_type[1].dtype, ref->in[1], 0));
    }
    return true;
}

static bool pad_map(ct_map *map) {
    const pad_attrs *attrs = map->node->attrs;
    const ct_type *in = ct__type(map->node->in[0]);
    ct_ix_pool *p = map->pool;
    ct_map_piece *inside = ct__map_piece(map, 0);
    for (int a = 0; a < in->rank; a++) {
        ct_ix at = ct__ix_sub(p, map->at[a], ct__map_attr(map, &attrs->low.v[a]));
        if (attrs->low.v[a])
            inside->valid = ct__ix_and(p, inside->valid, ct__ix_le(p, ct__ix_int(p, 0), at));
        ct_ix pitch = ct__ix_int(p, attrs->interior.v[a] + 1);
        if (attrs->interior.v[a]) { // the quotient is also computed where the condition is false
            const int64_t low = attrs->low.v[a], one = attrs->interior.v[a] + 1;
            ct_ix offset = ct__ix_int(p, 0), forward = ct__ix_max(p, at, offset);
            // adds multiples of the pitch, so that it is not negative
            if (!ct__marked(low) && low < INT64_MAX - one) {
                offset = ct__ix_int(p, low > 0 ? (low + one - 1) / one : 0);
                forward = ct__ix_add(p, at, ct__ix_mul(p, offset, pitch));
            }
            ct_ix rest = ct__ix_mod(p, forward, pitch);
            inside->valid = ct__ix_and(p, inside->valid, ct__ix_eq(p, rest, ct__ix_int(p, 0)));
            at = ct__ix_sub(p, ct__ix_div(p, forward, pitch), offset);
        }
        if (attrs->high.v[a])
            inside->valid =
                ct__ix_and(p, inside->valid, ct__ix_lt(p, at, ct__map_in_size(map, 0, a)));
        inside->from[a] = at;
    }
    ct__map_piece(map, 1); // the fill value
    return true;
}
static bool pad_jvp(ct_rule *r) {
    const ct_tensor in[2] = {ct__or_zeros(r->t_in[0], r->in[0]),
                             ct__or_zeros(r->t_in[1], r->in[1])};
    return ct__set_tangent(r, ct__record(r->node->op, r->attrs, in, 2, r->node->here));
}

static bool pad_transpose(ct_rule *r) {
    const pad_attrs *attrs = r->attrs;
    const ct_type *in = ct__type_of(r->in[0]), *out = ct__type_of(r->c_out[0]);
    if (r->linear[0]) { // slices the elements at the positions of x
        int64_t stop[CT_MAX_RANK], step[CT_MAX_RANK];
        for (int a = 0; a < in->rank; a++) {
            int64_t high = attrs->high.v[a];
            stop[a] = ct__marked(high) ? ct__size_sub(ct__size_of(out, a), high)
                      : high           ? -high
                                       : CT_END;
            step[a] = attrs->interior.v[a] + 1;
        }
        ct_tensor cut = ct_slice(r->c_out[0], .start = attrs->low, .stop = {in->rank, stop},
                                 .step = {in->rank, step});
        r->c_in[0] = ct__shaped_like(cut, r->in[0]);
    }
    if (r->linear[1]) { // sums all other elements
        ct_dims_buffer dims;
        const bool no = false, yes = true;
        ct_tensor inside =
            ct_expand(ct_const(&no, CT_BOOL, CT_SCALAR), ct__dims_of(r->in[0], &dims));
        ct_tensor outside = ct_pad(inside, ct_const(&yes, CT_BOOL, CT_SCALAR), .low = attrs->low,
                                   .high = attrs->high, .interior = attrs->interior);
        r->c_in[1] = ct_sum(ct_select(outside, r->c_out[0], ct__number_like(0, r->c_out[0])));
    }
    return true;
}

// If fill values are batched, a mask, padded alike, separates padding from the elements of x.
static bool pad_batch(ct_batching *b) {
    const pad_attrs *attrs = b->attrs;
    const ct_type *in = ct__type(b->node->in[0]);
    ct_tensor x = ct__batch_operand(b, 0), fill = b->in[1];
    if (b->batched[1]) fill = ct__number_like(0, fill);
    const void *own = ct__batch_attrs(b, false);
    if (!own || !ct__batch_record(b, own, (const ct_tensor[]){x, fill})) return false;
    if (!b->batched[1]) return true;
    const bool no = false, yes = true;
    ct_dims_buffer dims;
    ct_tensor inside = ct_expand(ct_const(&no, CT_BOOL, CT_SCALAR), ct__type_dims(in, &dims));
    ct_tensor outside = ct_pad(inside, ct_const(&yes, CT_BOOL, CT_SCALAR), .low = attrs->low,
                               .high = attrs->high, .interior = attrs->interior);
    fill = ct_cast(b->in[1], (ct_dtype)in->dtype);
    for (int a = 0; a < in->rank; a++) fill = ct__add_last(fill);
    b->out[0] = ct_select(outside, fill, b->out[0]);
    return true;
}

const ct_opdef ct__op_pad = {
    CT_OP(PAD, pad, movement, 2, 1),
    .doc = "x with `low` elements before, `high` after and `interior` between each two along each "
           "axis, all of the scalar value; an empty list means none.",
    CT_FIELDS(pad),
    .accepts = CT_ANY,
    .split = ct__split_each,
    .data = 3,
    .infer = pad_infer,
    .batch = pad_batch,
    .eval = pad_eval,
    .map = pad_map,
    .jvp = pad_jvp,
    .transpose = pad_transpose,
    .onnx = "Pad",
    .stablehlo = "pad",
};

// -------------------------------------------------------------------------------------------- flip

#define FLIP_ATTRS(F, op) F(op, axes, axes)
CT_ATTRS(flip, FLIP_ATTRS);

static bool flip_infer(ct_call *call) {
    flip_attrs *attrs = call->attrs;
    *call->out = *call->in[0];
    return ct__normal_axes(call, &attrs->axes, call->in[0]->rank);
}
static bool flip_eval(const ct_ref *ref) {
    const flip_attrs *attrs = ref->attrs;
    int64_t stride[CT_MAX_RANK], at[CT_MAX_RANK], n = ct__count(ref->out_type);
    ct__strides(ref->in_type, stride);
    for (int64_t i = 0; i < n; i++) {
        int64_t from = 0;
        ct__index_of(ref->out_type, i, at);
        for (int a = 0; a < ref->out_type->rank; a++)
            from += (ct__has_axis(&attrs->axes, a) ? ref->out_type->dim[a] - 1 - at[a] : at[a]) *
                    stride[a];
        ct__ref_move(ref, 0, i, from);
    }
    return true;
}
static bool flip_map(ct_map *map) {
    const flip_attrs *attrs = map->node->attrs;
    ct_map_piece *piece = ct__map_piece(map, 0);
    ct_ix_pool *p = map->pool;
    for (int a = 0; a < map->node->out->rank; a++) {
        ct_ix last = ct__ix_sub(p, ct__map_in_size(map, 0, a), ct__ix_int(p, 1));
        piece->from[a] =
            ct__has_axis(&attrs->axes, a) ? ct__ix_sub(p, last, map->at[a]) : map->at[a];
    }
    return true;
}
static bool flip_transpose(ct_rule *r) {
    return ct__set_cotangent(r, ct_flip(r->c_out[0], ((const flip_attrs *)r->attrs)->axes));
}
const ct_opdef ct__op_flip = {
    CT_OP(FLIP, flip, movement, 1, 1),
    .doc = "x with the elements along axes (default: all) in the opposite order.",
    CT_FIELDS(flip),
    .accepts = CT_ANY,
    .split = ct__split_each,
    .data = 1,
    .infer = flip_infer,
    .eval = flip_eval,
    .map = flip_map,
    .jvp = ct__jvp_same,
    .transpose = flip_transpose,
    .stablehlo = "reverse",
};

// ------------------------------------------------------------------------------------------ concat

#define CONCAT_ATTRS(F, op) F(op, axis, axis)
CT_ATTRS(concat, CONCAT_ATTRS);

static bool concat_infer(ct_call *call) {
    concat_attrs *attrs = call->attrs;
    if (call->n_in < 1) return ct__call_err(call, CT_E_ARGUMENT, "it has no operands");
    if (call->n_in > CT_MAP_PIECES)
        return ct__call_err(call, CT_E_ARGUMENT, "%d operands, at most %d are possible", call->n_in,
                            CT_MAP_PIECES);
    const ct_type *first = call->in[0];
    if (!ct__normal_axis(call, &attrs->axis)) return false;
    int axis = (int)attrs->axis, rank = first->rank;
    ct_shape shape = ct__call_shape(call, rank);
    if (!shape.dim) return false;
    bool weak = true;
    int64_t total = 0;
    for (int a = 0; a < rank; a++) ct__shape_add_axis(&shape, first, a);
    for (int i = 0; i < call->n_in; i++) {
        const ct_type *in = call->in[i];
        weak = weak && in->weak;
        if (in->dtype != first->dtype)
            return ct__call_err(call, CT_E_DTYPE, "operand %d is %s, operand 1 is %s", i + 1,
                                ct__type_text(in).s, ct__type_text(first).s) ||
                   ct__hint_cast(call, "x", (ct_dtype)first->dtype);
        bool same = in->rank == rank;
        for (int a = 0; same && a < rank; a++) {
            same = a == axis || in->dim[a] == first->dim[a];
            if (same && a != axis) ct__shape_set(&shape, a, ct__same_size(first, a, in, a));
        }
        if (!same)
            return ct__call_err(call, CT_E_SHAPE, "operand %d is %s, operand 1 is %s (axis %d)",
                                i + 1, ct__type_text(in).s, ct__type_text(first).s, axis) ||
                   ct__call_hint(call,
                                 in->rank == rank ? "only axis %d may differ"
                                                  : "their axes must be as many; axis %d is "
                                                    "the one that grows",
                                 axis);
        int64_t all;
        if (__builtin_add_overflow(ct__unmarked(total), in->dim[axis], &all))
            return ct__call_err(call, CT_E_SHAPE,
                                "operands 1 to %d have more than 2^63 elements along axis %d",
                                i + 1, axis);
        total = ct__size_add(total, ct__size_of(in, axis));
    }
    ct__shape_set(&shape, axis, total);
    return ct__set_out(call, &shape, first->dtype, weak);
}
static bool concat_eval(const ct_ref *ref) {
    const concat_attrs *attrs = ref->attrs;
    int axis = (int)attrs->axis;
    size_t inner = ct_dtype_size(ref->out_type->dtype);
    for (int a = axis + 1; a < ref->out_type->rank; a++) inner *= (size_t)ref->out_type->dim[a];
    int64_t outer = 1;
    for (int a = 0; a < axis; a++) outer *= ref->out_type->dim[a];
    char *to = ref->out[0];
    for (int64_t o = 0; o < outer; o++)
        for (int i = 0; i < ref->n_in; i++) {
            size_t bytes = (size_t)ref->in_type[i].dim[axis] * inner;
            if (bytes) memcpy(to, (const char *)ref->in[i] + (size_t)o * bytes, bytes);
            to += bytes;
        }
    return true;
}
static bool concat_map(ct_map *map) {
    int64_t axis = ((const concat_attrs *)map->node->attrs)->axis;
    ct_ix_pool *p = map->pool;
    ct_ix start = ct__ix_int(p, 0);
    for (int i = 0; i < map->node->n_in; i++) {
        ct_map_piece *piece = ct__map_piece(map, i);
        if (!piece) return false;
        ct_ix end = ct__ix_add(p, start, ct__map_in_size(map, i, (int)axis));
        for (int a = 0; a < map->node->out->rank; a++) piece->from[a] = map->at[a];
        piece->from[axis] = ct__ix_sub(p, map->at[axis], start);
        if (i < map->node->n_in - 1) piece->valid = ct__ix_lt(p, map->at[axis], end);
        start = end;
    }
    return true;
}
static bool concat_jvp(ct_rule *r) {
    ct_tensor *t = ct__malloc((size_t)r->n_in * sizeof *t);
    if (!t)
        return ct__err_memory(&ct__ctx()->err, r->node->here, "concat",
                              (size_t)r->n_in * sizeof *t);
    for (int i = 0; i < r->n_in; i++) t[i] = ct__or_zeros(r->t_in[i], r->in[i]);
    r->t_out[0] = ct__record(r->node->op, r->attrs, t, r->n_in, r->node->here);
    ct__free(t);
    return true;
}
static bool concat_transpose(ct_rule *r) {
    int64_t axis = ((const concat_attrs *)r->attrs)->axis, start = 0;
    for (int i = 0; i < r->n_in; i++) {
        const ct_type *in = ct__type_of(r->in[i]);
        int64_t stop = ct__size_add(start, ct__size_of(in, (int)axis));
        if (r->linear[i]) {
            ct_tensor cut =
                ct_slice(r->c_out[0], .axes = {1, &axis}, .start = {1, &start}, .stop = {1, &stop});
            r->c_in[i] = ct__shaped_like(cut, r->in[i]);
        }
        start = stop;
    }
    return true;
}
const ct_opdef ct__op_concat = {
    CT_OP(CONCAT, concat, movement, -1, 1),
    .doc = "The operands, one after the other along an axis; their other sizes and dtypes agree.",
    CT_FIELDS(concat),
    .accepts = CT_ANY,
    .split = ct__split_each,
    .data = ~0u,
    .infer = concat_infer,
    .eval = concat_eval,
    .map = concat_map,
    .jvp = concat_jvp,
    .transpose = concat_transpose,
    .onnx = "Concat",
    .stablehlo = "concatenate",
    .autocast = CT_CAST_WIDEST,
};
