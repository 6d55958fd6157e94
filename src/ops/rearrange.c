// Shapes and positions, composed of movement ops: triangles, rolls, repetitions, differences, counts.
#include "ops/functions.h"

#define REARRANGE(ID, op)                                                                          \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_composition, .n_in = 1, .n_out = 1,           \
    CT_FIELDS(op), .infer = op##_infer, .body = op##_body, .batch = ct__batch_shifted

// --------------------------------------------------------------------------------------- triangles

#define TRIL_ATTRS(F, op) F(op, i64, diagonal)
CT_ATTRS(tril, TRIL_ATTRS);
CT_ATTRS(triu, TRIL_ATTRS);
static bool tril_infer(ct_call *call) {
    const ct_type *in = call->in[0];
    if (!ct__check_accepts(call, 0)) return false;
    if (in->rank < 2)
        return ct__call_err(call, CT_E_SHAPE, "x is %s, it needs two axes", ct__type_text(in).s);
    *call->out = *in;
    return true;
}
static bool triu_infer(ct_call *call) { return tril_infer(call); }
// Returns how far each element is to the right of the main diagonal: (R, C).
static ct_tensor tri_offsets(ct_tensor x) {
    const ct_type *type = ct__type_of(x);
    const int64_t rows = ct__size_of(type, type->rank - 2),
                  columns = ct__size_of(type, type->rank - 1);
    ct_tensor row = ct_iota(CT_I64, ((ct_ints){1, &rows}), 0);
    ct_tensor column = ct_iota(CT_I64, ((ct_ints){1, &columns}), 0);
    return ct_sub(column, ct__add_last(row));
}
static bool tri_body(ct_rule *r, bool lower) {
    const int64_t diagonal = ((const tril_attrs *)r->attrs)->diagonal;
    ct_tensor off = tri_offsets(r->in[0]), limit = ct_const(&diagonal, CT_I64, CT_SCALAR);
    ct_tensor kept = lower ? ct_less_equal(off, limit) : ct_greater_equal(off, limit);
    return ct__set_body(r, ct_select(kept, r->in[0], rule_constant(0, r)));
}
static bool tril_body(ct_rule *r) { return tri_body(r, true); }
static bool triu_body(ct_rule *r) { return tri_body(r, false); }
const ct_opdef ct__op_tril = {
    REARRANGE(TRIL, tril),
    .doc =
        "Matrices (the last two axes) with 0 above a diagonal: the main one, or `diagonal` to the "
        "right of it.",
    .accepts = CT_NUMBERS | CT_MASK(CT_BOOL) | CT_COMPLEX,
    .widens = true,
};
const ct_opdef ct__op_triu = {
    REARRANGE(TRIU, triu),
    .doc =
        "Matrices (the last two axes) with 0 below a diagonal: the main one, or `diagonal` to the "
        "right of it.",
    .accepts = CT_NUMBERS | CT_MASK(CT_BOOL) | CT_COMPLEX,
    .widens = true,
};

// -------------------------------------------------------------------------------- rolls, differences

static bool rearrange_check_list(ct_call *call, const char *name, const ct_ints *list) {
    return list->n == call->in[0]->rank ||
           ct__call_err(call, CT_E_ARGUMENT, "%s has %lld numbers for %s", name, (long long)list->n,
                        ct__type_text(call->in[0]).s) ||
           ct__call_hint(call, "give one number an axis: %d", call->in[0]->rank);
}

#define ROLL_ATTRS(F, op) F(op, offsets, shifts)
CT_ATTRS(roll, ROLL_ATTRS);
static bool roll_infer(ct_call *call) {
    roll_attrs *attrs = call->attrs;
    const ct_type *in = call->in[0];
    if (!ct__check_accepts(call, 0) || !rearrange_check_list(call, "shifts", &attrs->shifts))
        return false;
    int64_t *own = ct__call_dims(call, in->rank);
    if (!own) return false;
    for (int a = 0; a < in->rank; a++) {
        const int64_t shift = attrs->shifts.v[a], n = in->dim[a];
        if (shift && ct__is_dyn(in, a))
            return ct__call_err(call, CT_E_SHAPE, "axis %d of %s is dynamic, it cannot be rolled",
                                a, ct__type_text(in).s);
        own[a] = shift && n ? (shift % n + n) % n : 0;
    }
    attrs->shifts = (ct_ints){in->rank, own};
    *call->out = *in;
    return true;
}
static bool roll_body(ct_rule *r) {
    const roll_attrs *attrs = r->attrs;
    ct_tensor x = r->in[0];
    for (int64_t a = 0; a < attrs->shifts.n; a++) {
        const int64_t at = ct__type_of(x)->dim[a] - attrs->shifts.v[a];
        if (!attrs->shifts.v[a]) continue;
        x = ct_concat(
            ((ct_tensor[]){ct__slice_axis(x, a, at, CT_END), ct__slice_axis(x, a, 0, at)}), 2, a);
    }
    return ct__set_body(r, x);
}
const ct_opdef ct__op_roll = {
    REARRANGE(ROLL, roll),
    .doc = "x with each axis rotated by one of `shifts`, a number per axis: elements that leave at "
           "the end come in at the beginning.",
    .accepts = CT_ANY,
};

#define DIFF_ATTRS(F, op) F(op, axis, axis) F(op, i64, n)
CT_ATTRS(diff, DIFF_ATTRS);
static bool diff_infer(ct_call *call) {
    diff_attrs *attrs = call->attrs;
    const ct_type *in = call->in[0];
    if (!ct__check_accepts(call, 0) || !ct__normal_axis(call, &attrs->axis)) return false;
    if (attrs->n == 0) attrs->n = 1;
    const int axis = (int)attrs->axis;
    const bool dynamic = ct__is_dyn(in, axis);
    if (attrs->n < 1 || (dynamic && attrs->n > in->dim[axis]))
        return ct__call_err(call, CT_E_ARGUMENT,
                            "n is %lld, differences along axis %d of %s can be taken once or more, "
                            "of a dynamic one %lld times at most",
                            (long long)attrs->n, axis, ct__type_text(in).s,
                            (long long)in->dim[axis]);
    if (!dynamic && attrs->n > in->dim[axis]) attrs->n = in->dim[axis]; // nothing remains
    return ct__resized_type(call, in, axis, ct__size_sub(ct__size_of(in, axis), attrs->n),
                            (ct_dtype)in->dtype, false, call->out);
}
static bool diff_body(ct_rule *r) {
    const diff_attrs *attrs = r->attrs;
    ct_tensor x = r->in[0];
    for (int64_t i = 0; i < attrs->n; i++)
        x = ct_sub(ct__slice_axis(x, attrs->axis, 1, CT_END),
                   ct__slice_axis(x, attrs->axis, 0, -1));
    return ct__set_body(r, x);
}
const ct_opdef ct__op_diff = {
    REARRANGE(DIFF, diff),
    .doc = "Each element along an axis less the one before it, n times over (default: once).",
    .accepts = CT_NUMBERS | CT_COMPLEX,
    .widens = true,
};

// ------------------------------------------------------------------------------------- repetitions

// Repeats an axis of x n times: each element, or with `whole` the axis as a whole.
static ct_tensor repeat_axis(ct_tensor x, int axis, int64_t n, bool whole) {
    const ct_type *type = ct__type_of(x);
    int64_t one[CT_MAX_RANK + 1], many[CT_MAX_RANK + 1], flat[CT_MAX_RANK];
    const int rank = type->rank, new_axis = whole ? axis : axis + 1;
    for (int a = 0, to = 0; to <= rank; to++) {
        one[to] = to == new_axis ? 1 : ct__size_of(type, a);
        many[to] = to == new_axis ? n : ct__size_of(type, a);
        a += to != new_axis;
    }
    for (int a = 0; a < rank; a++)
        flat[a] = a == axis ? ct__size_mul(ct__size_of(type, a), n) : ct__size_of(type, a);
    x = ct_expand(ct_reshape(x, ((ct_ints){rank + 1, one})), ((ct_ints){rank + 1, many}));
    return ct_reshape(x, ((ct_ints){rank, flat}));
}
static bool repeat_check_count(ct_call *call, int64_t n) {
    return n >= 0 || ct__call_err(call, CT_E_ARGUMENT, "there are %lld repetitions", (long long)n);
}

#define REPEAT_ATTRS(F, op) F(op, i64, n) F(op, axis, axis)
CT_ATTRS(repeat, REPEAT_ATTRS);
static bool repeat_infer(ct_call *call) {
    repeat_attrs *attrs = call->attrs;
    const ct_type *in = call->in[0];
    if (!ct__check_accepts(call, 0) || !ct__normal_axis(call, &attrs->axis) ||
        !repeat_check_count(call, attrs->n))
        return false;
    const int axis = (int)attrs->axis;
    return ct__resized_type(call, in, axis, ct__size_mul(ct__size_of(in, axis), attrs->n),
                            (ct_dtype)in->dtype, false, call->out);
}
static bool repeat_body(ct_rule *r) {
    const repeat_attrs *attrs = r->attrs;
    return ct__set_body(r, repeat_axis(r->in[0], (int)attrs->axis, attrs->n, false));
}
const ct_opdef ct__op_repeat = {
    REARRANGE(REPEAT, repeat),
    .doc = "x with each element along an axis n times, one after the other.",
    .accepts = CT_ANY,
};

#define TILE_ATTRS(F, op) F(op, strides, times)
CT_ATTRS(tile, TILE_ATTRS);
static bool tile_infer(ct_call *call) {
    const tile_attrs *attrs = call->attrs;
    const ct_type *in = call->in[0];
    if (!ct__check_accepts(call, 0) || !rearrange_check_list(call, "times", &attrs->times))
        return false;
    ct_shape shape = ct__call_shape(call, in->rank);
    if (!shape.dim) return false;
    for (int a = 0; a < in->rank; a++) {
        if (!repeat_check_count(call, attrs->times.v[a])) return false;
        ct__shape_add(&shape, ct__size_mul(ct__size_of(in, a), attrs->times.v[a]));
    }
    return ct__set_out(call, &shape, (ct_dtype)in->dtype, false);
}
static bool tile_body(ct_rule *r) {
    const tile_attrs *attrs = r->attrs;
    ct_tensor x = r->in[0];
    for (int64_t a = 0; a < attrs->times.n; a++)
        if (attrs->times.v[a] != 1) x = repeat_axis(x, (int)a, attrs->times.v[a], true);
    return ct__set_body(r, x);
}
const ct_opdef ct__op_tile = {
    REARRANGE(TILE, tile),
    .doc = "x several times beside itself along each axis: `times` has a number an axis.",
    .accepts = CT_ANY,
    .onnx = "Tile",
};

// ------------------------------------------------------------------------------------------- counts

#define BINCOUNT_ATTRS(F, op) F(op, i64, n)
CT_ATTRS(bincount, BINCOUNT_ATTRS);
static bool bincount_infer(ct_call *call) {
    const bincount_attrs *attrs = call->attrs;
    if (!ct__check_accepts(call, 0)) return false;
    if (ct__unmarked(attrs->n) < 0)
        return ct__call_err(call, CT_E_ARGUMENT, "the counts have size %lld",
                            (long long)ct__unmarked(attrs->n));
    ct_shape shape = ct__call_shape(call, 1);
    if (!shape.dim) return false;
    ct__shape_add(&shape, attrs->n);
    return ct__set_out(call, &shape, CT_I32, false);
}
static bool bincount_body(ct_rule *r) {
    const int64_t n = ((const bincount_attrs *)r->attrs)->n, all = -1;
    const int32_t zero = 0, one = 1;
    ct_tensor x = ct_reshape(r->in[0], ((ct_ints){1, &all}));
    ct_dims_buffer dims;
    ct_tensor ones = ct_expand(ct_const(&one, CT_I32, CT_SCALAR), ct__dims_of(x, &dims));
    ct_tensor zeros = ct_expand(ct_const(&zero, CT_I32, CT_SCALAR), ((ct_ints){1, &n}));
    ct_tensor negative = ct_less(x, ct_i(0)); // negative numbers would count from the end
    return ct__set_body(r, ct_scatter_add(zeros, x, ct_select(negative, ct_i(0), ones)));
}
const ct_opdef ct__op_bincount = {
    CT_COMPOSED(BINCOUNT, bincount, 1, 1),
    .doc = "The number of occurrences of each of 0 to n - 1 in x, as i32; other numbers are not "
           "counted.",
    CT_FIELDS(bincount),
    .accepts = CT_INTEGERS,
    .jvp = CT_NO_GRAD,
    .samples = {.lo = 0, .hi = 6, .integers = true},
};
