#include "ops/rules.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

bool ct__always_unchanged(const ct_node *node) { return (void)node, true; }

bool ct__no_grad(ct_rule *rule) {
    for (int i = 0; i < rule->n_out; i++) rule->t_out[i] = CT_NONE;
    return true;
}

typedef struct dtype_list {
    char s[12 * CT_DTYPE_COUNT];
} dtype_list;
// Lists the accepted dtypes: "bool, integers and floats"; a class is named if all its dtypes are accepted.
static dtype_list rules_accepted_dtypes(const ct_call *call) {
    static const struct {
        ct_dtypes of;
        const char *name;
    } classes[] = {
        {CT_INTEGERS, "integers"}, {CT_FLOATS, "floats"}, {CT_COMPLEX, "complex numbers"}};
    const char *name[CT_DTYPE_COUNT];
    dtype_list list = {""};
    size_t n = 0;
    ct_dtypes listed = 0;
    for (int d = CT_BOOL; d < CT_DTYPE_COUNT; d++) {
        if (!(call->op->accepts & ~listed & CT_MASK(d))) continue;
        name[n] = ct_dtype_name((ct_dtype)d);
        listed |= CT_MASK(d);
        for (size_t c = 0; c < sizeof classes / sizeof *classes; c++) {
            if (!(classes[c].of & CT_MASK(d)) || classes[c].of & ~call->op->accepts) continue;
            name[n] = classes[c].name;
            listed |= classes[c].of;
        }
        n++;
    }
    for (size_t i = 0; i < n; i++) {
        strcat(list.s, i == 0 ? "" : i + 1 < n ? ", " : " and ");
        strcat(list.s, name[i]);
    }
    return list;
}

bool ct__check_accepts(ct_call *call, int operand) {
    if (call->op->accepts & CT_MASK(call->in[operand]->dtype)) return true;
    ct__call_err(call, CT_E_DTYPE, "operand %d is %s, accepted are %s", operand + 1,
                 ct__type_text(call->in[operand]).s, rules_accepted_dtypes(call).s);
    if (ct__is_complex((ct_dtype)call->in[operand]->dtype))
        return ct__call_hint(call, "ct_real, ct_imag and ct_abs make floats of complex numbers");
    static const struct {
        ct_dtype dtype;
        const char *name;
    } usual[] = {{CT_I32, "I32"}, {CT_F32, "F32"}, {CT_BOOL, "BOOL"}, {CT_I32, "I32"}};
    // A sum of bools is a count, which is exact in integers only: I32 is suggested first for bools.
    for (size_t i = call->in[operand]->dtype != CT_BOOL; i < sizeof usual / sizeof *usual; i++)
        if (call->op->accepts & CT_MASK(usual[i].dtype)) {
            ct__err_hint(call->err, "cast it: ct_cast(x, CT_%s)", usual[i].name);
            break;
        }
    return false;
}

bool ct__check_integers(ct_call *call, int operand, const char *what) {
    if (CT_INTEGERS & CT_MASK(call->in[operand]->dtype)) return true;
    ct__call_err(call, CT_E_DTYPE, "%s are %s, they must be integers", what,
                 ct__type_text(call->in[operand]).s);
    return ct__err_hint(call->err, "cast them: ct_cast(x, CT_I32)");
}

// Reports operands whose promoted dtype is not accepted: names the operand that caused it, if there is
// one. A bare number takes the dtype of the others.
static bool rules_report_promotion(ct_call *call, int first, ct_dtype dtype) {
    int culprit = -1;
    for (int i = first; i < call->n_in; i++) {
        if (call->op->accepts & CT_MASK(call->in[i]->dtype)) continue;
        if (culprit < 0 || (call->in[culprit]->weak && !call->in[i]->weak)) culprit = i;
    }
    if (culprit >= 0) return ct__check_accepts(call, culprit);
    ct__call_err(call, CT_E_DTYPE, "%s and %s become %s, accepted are %s",
                 ct__type_text(call->in[first]).s, ct__type_text(call->in[call->n_in - 1]).s,
                 ct_dtype_name(dtype), rules_accepted_dtypes(call).s);
    return ct__err_hint(call->err, "cast one to the dtype of the other");
}

bool ct__normal_eps(ct_call *call, ct_num *eps) {
    if (!ct__num_given(*eps)) *eps = (ct_num){1e-5, true};
    return eps->value >= 0 ||
           ct__call_err(call, CT_E_ARGUMENT, "eps is %g, it must be at least 0", eps->value);
}

// Hints how two shapes that do not broadcast can be made to. `small` has at most as many axes as `large`.
static bool rules_hint_shapes(ct_call *call, const ct_type *small, const ct_type *large, int axis) {
    const int n_more = large->rank - small->rank;
    const int64_t a = small->dim[axis], b = large->dim[n_more + axis];
    if (ct__dynamic_one(small, axis) || ct__dynamic_one(large, n_more + axis))
        return ct__call_hint(call, CT_DYNAMIC_ONE_HINT);
    if (small->rank == 1 && n_more > 0 && a == large->dim[0])
        return ct__call_hint(
            call,
            "to go along axis 0 of the other, make (%lld,) a column: ct_reshape(x, CT_DIMS(-1%s))",
            (long long)a,
            n_more == 1   ? ", 1"
            : n_more == 2 ? ", 1, 1"
                          : ", 1, ...");
    if (small->rank == 2 && n_more == 0 && small->dim[0] == large->dim[1] &&
        small->dim[1] == large->dim[0])
        return ct__call_hint(
            call, "one is the transpose of the other's shape: ct_permute(x, CT_AXES(1, 0))");
    return ct__call_hint(
        call, "counted from the last axis, sizes must be equal or 1: here they are %lld and %lld",
        (long long)a, (long long)b);
}

// Gives a hint for the last axis along which two operands do not broadcast.
static bool rules_hint_broadcast(ct_call *call) {
    for (int i = 0; i < call->n_in; i++)
        for (int k = i + 1; k < call->n_in; k++) {
            const bool less = call->in[i]->rank <= call->in[k]->rank;
            const ct_type *small = call->in[less ? i : k], *large = call->in[less ? k : i];
            for (int a = small->rank - 1; a >= 0; a--) {
                const int b = a + large->rank - small->rank;
                const bool one = (small->dim[a] == 1 && !ct__is_dyn(small, a)) ||
                                 (large->dim[b] == 1 && !ct__is_dyn(large, b));
                if (small->dim[a] != large->dim[b] && !one)
                    return rules_hint_shapes(call, small, large, a);
            }
        }
    return false;
}

bool ct__hint_axes(ct_call *call, int rank) {
    if (rank == 0) return ct__call_hint(call, "a scalar has no axes");
    if (rank == 1) return ct__call_hint(call, "its only axis is 0, from the end -1");
    return ct__call_hint(call, "its axes are 0 to %d, or -%d to -1 from the last one", rank - 1,
                         rank);
}

bool ct__hint_cast(ct_call *call, const char *name, ct_dtype to) {
    char upper[16] = {0};
    const char *lower = ct_dtype_name(to);
    for (size_t i = 0; lower[i] && i + 1 < sizeof upper; i++)
        upper[i] = (char)(lower[i] >= 'a' && lower[i] <= 'z' ? lower[i] - 'a' + 'A' : lower[i]);
    return ct__call_hint(call, "cast it: ct_cast(%s, CT_%s)", name, upper);
}

// Computes the common dtype of operands from `first` on. The result is weak if all are bare numbers.
static bool rules_promote(ct_call *call, int first, ct_dtype *dtype) {
    const ct_dtype one = (ct_dtype)call->in[first]->dtype;
    bool same = true, weak = true;
    for (int i = first; i < call->n_in; i++) {
        same &= call->in[i]->dtype == one;
        weak &= call->in[i]->weak;
    }
    call->out->weak = weak;
    *dtype = one;
    if (same && !weak) return true; // the usual case does not need the lattice
    ct_promotion met = CT_PROMOTION_START;
    *dtype = CT_DEFAULT;
    for (int i = first; i < call->n_in; i++) {
        const ct_type *in = call->in[i];
        const ct_dtype so_far = *dtype;
        met = ct__promotion_add(met, (ct_dtype)in->dtype, in->weak);
        *dtype = ct__promotion_result(met);
        if (*dtype == CT_DEFAULT) return ct__no_promotion(call, so_far, (ct_dtype)in->dtype);
    }
    return true;
}

bool ct__no_promotion(ct_call *call, ct_dtype a, ct_dtype b) {
    const ct_dtype wider = ct__dtype(a)->bits > ct__dtype(b)->bits ? a : b;
    ct__call_err(call, CT_E_DTYPE, "%s and %s do not promote to one dtype", ct_dtype_name(a),
                 ct_dtype_name(b));
    return ct__hint_cast(call, "x", ct__dtype(wider)->bits > 8 ? wider : CT_F32);
}

static bool rules_infer_broadcast(ct_call *call, int first) {
    if (call->n_in == 0) return ct__call_err(call, CT_E_ARGUMENT, "it has no operands");
    ct_dtype dtype;
    if (!rules_promote(call, first, &dtype)) return false;
    if (!(call->op->accepts & CT_MASK(dtype))) return rules_report_promotion(call, first, dtype);
    for (int i = first; call->whole && i < call->n_in; i++)
        if (!ct__call_fits(call, i, dtype)) return false;
    call->out->dtype = (uint8_t)dtype;
    if (ct__broadcast(call->arena, call->in, call->n_in, call->out)) return true;
    if (call->n_in == 2)
        ct__call_err(call, CT_E_SHAPE, "shapes do not broadcast: %s and %s",
                     ct__type_text(call->in[0]).s, ct__type_text(call->in[1]).s);
    else
        ct__call_err(call, CT_E_SHAPE, "shapes do not broadcast: %s, %s and %s",
                     ct__type_text(call->in[0]).s, ct__type_text(call->in[1]).s,
                     ct__type_text(call->in[2]).s);
    return rules_hint_broadcast(call);
}

bool ct__infer_elementwise(ct_call *call) {
    bool condition = call->op->condition;
    if (condition && call->in[0]->dtype != CT_BOOL)
        return ct__call_err(call, CT_E_DTYPE, "the condition is %s, it must be bool",
                            ct__type_text(call->in[0]).s) ||
               ct__call_hint(call, "compare it: ct_not_equal(condition, ct_f(0))");
    return rules_infer_broadcast(call, condition);
}

bool ct__infer_elementwise_bool(ct_call *call) {
    call->compares = true;
    if (!ct__infer_elementwise(call)) return false;
    call->out->dtype = CT_BOOL;
    call->out->weak = false;
    return true;
}

ct_shape ct__call_shape(ct_call *call, int rank) {
    ct_shape shape = {.dim = ct__call_dims(call, rank)};
    if (shape.dim && call->marks && !(shape.mark = ct__call_dims(call, rank))) shape.dim = NULL;
    return shape;
}

bool ct__resized_type(ct_call *call, const ct_type *t, int axis, int64_t size, ct_dtype dtype,
                      bool weak, ct_type *out) {
    ct_shape shape = ct__call_shape(call, t->rank);
    if (!shape.dim) return false;
    for (int a = 0; a < t->rank; a++) ct__shape_add_axis(&shape, t, a);
    ct__shape_set(&shape, axis, size);
    *out = ct__shaped(&shape, dtype, weak);
    return true;
}

int ct__list_axis(ct_call *call, const ct_ints *axes, int64_t i, uint32_t *seen) {
    const ct_type *in = call->in[0];
    int a = ct__axis(axes->v[i], in->rank);
    if (a < 0 || *seen >> a & 1) {
        ct__call_err(call, CT_E_ARGUMENT, "axis %lld is %s for %s", (long long)axes->v[i],
                     a < 0 ? "out of range" : "named twice", ct__type_text(in).s);
        if (a < 0)
            ct__hint_axes(call, in->rank);
        else
            ct__call_hint(call, "name each axis once; %d and %d are the same", a, a - in->rank);
        return -1;
    }
    *seen |= 1u << a;
    return a;
}

bool ct__normal_axes(ct_call *call, ct_ints *axes, int rank) {
    uint32_t has = 0;
    for (int64_t i = 0; i < axes->n; i++)
        if (ct__list_axis(call, axes, i, &has) < 0) return false;
    int n = axes->n ? (int)axes->n : rank;
    int64_t *v = ct__call_dims(call, n);
    if (!v) return false;
    int k = 0;
    for (int a = 0; a < rank; a++)
        if (has >> a & 1 || axes->n == 0) v[k++] = a;
    *axes = (ct_ints){k, v};
    return true;
}

bool ct__normal_axis(ct_call *call, int64_t *axis) {
    int a = ct__axis(*axis, call->in[0]->rank);
    if (a < 0)
        return ct__call_err(call, CT_E_ARGUMENT, "axis %lld is out of range for %s",
                            (long long)*axis, ct__type_text(call->in[0]).s) ||
               ct__hint_axes(call, call->in[0]->rank);
    *axis = a;
    return true;
}

bool ct__jvp_same(ct_rule *r) {
    return ct__set_tangent(r, ct__record(r->node->op, r->attrs, r->t_in, 1, r->node->here));
}

ct_tensor ct__cotangent_like(ct_tensor c, ct_dtype dtype) {
    if (ct__is_complex((ct_dtype)ct__type_of(c)->dtype) && !ct__is_complex(dtype)) c = ct_real(c);
    return (ct_dtype)ct__type_of(c)->dtype == dtype ? c : ct_cast(c, dtype);
}

ct_tensor ct__add_zero(ct_tensor a, ct_tensor b) {
    if (ct__is_none(a)) return b;
    if (ct__is_none(b)) return a;
    return ct_add(a, b);
}

int64_t ct__size_like(ct_tensor t, int axis) {
    const ct_type *type = ct__type_of(t);
    return axis >= 0 && axis < type->rank ? ct__size_of(type, axis) : 0;
}

ct_ints ct__dims_of(ct_tensor t, ct_dims_buffer *buffer) {
    return ct__type_dims(ct__type_of(t), buffer);
}
ct_ints ct__type_dims(const ct_type *type, ct_dims_buffer *buffer) {
    for (int i = 0; i < type->rank; i++) buffer->v[i] = ct__size_of(type, i);
    buffer->list = (ct_ints){type->rank, buffer->v};
    return buffer->list;
}

ct_tensor ct__root_or_zero(ct_tensor x, double p) {
    ct_tensor one = ct__number_like(1, x);
    ct_tensor none = ct_equal(x, ct__number_like(p > 0 ? 0 : (double)INFINITY, x));
    ct_tensor safe = ct_select(none, one, x);
    ct_tensor root = p == 2 ? ct_sqrt(safe) : ct_pow(safe, ct__number_like(1 / p, x));
    return ct_select(none, ct__number_like(0, x), root);
}

ct_tensor ct__number_like(double value, ct_tensor t) {
    ct_dtype dtype = ct__type_of(t)->dtype;
    char bytes[CT_MAX_ELEMENT_BYTES] = {0};
    ct__store_f64(dtype, bytes, 0, value);
    return ct_const(bytes, dtype, CT_SCALAR);
}

ct_tensor ct__zeros_like(ct_tensor t) {
    ct_dims_buffer dims;
    return ct_expand(ct__number_like(0, t), ct__dims_of(t, &dims));
}

ct_map_piece *ct__map_piece(ct_map *map, int operand) {
    if (map->n_pieces == CT_MAP_PIECES) return NULL;
    ct_map_piece *piece = &map->piece[map->n_pieces++];
    piece->operand = operand;
    piece->fill = 0;
    piece->valid = CT_IX_NONE;
    piece->cut = 0;
    return piece;
}

// A dynamic size is not available in kernels as a value: the last index of an iota with one more element
// is that size.
ct_tensor ct__size_number(int64_t size, ct_dtype dtype) {
    if (!ct__marked(size)) return ct_cast(ct_const(&size, CT_I64, CT_SCALAR), dtype);
    int64_t more = ct__size_add(size, 1), start = 0, stop = 1;
    ct_tensor down = ct_flip(ct_iota(CT_I64, ((ct_ints){1, &more}), 0), CT_SCALAR);
    ct_tensor first = ct_slice(down, .start = {1, &start}, .stop = {1, &stop});
    return ct_cast(ct_reshape(first, CT_SCALAR), dtype);
}

ct_tensor ct__count_along(ct_tensor t, const int64_t *axes, int n_axes) {
    const ct_type *type = ct__type_of(t);
    int64_t known = 1;
    ct_tensor count = CT_NONE;
    for (int i = 0; i < (n_axes < 0 ? type->rank : n_axes); i++) {
        int64_t a = n_axes < 0 ? i : axes[i];
        if (!ct__is_dyn(type, (int)a)) {
            known *= type->dim[a];
            continue;
        }
        ct_tensor size = ct__size_number(ct__size_of(type, (int)a), (ct_dtype)type->dtype);
        count = ct__is_none(count) ? size : ct_mul(count, size);
    }
    if (ct__is_none(count)) return ct__number_like((double)known, t);
    return known == 1 ? count : ct_mul(count, ct__number_like((double)known, t));
}

ct_tensor ct__of_type(ct_tensor t, const ct_type *type) {
    ct_dims_buffer dims;
    if (ct__same_shape(ct__type_of(t), type)) return t;
    return ct_reshape(t, ct__type_dims(type, &dims));
}

ct_tensor ct__add_last(ct_tensor t) {
    ct_dims_buffer dims;
    ct__dims_of(t, &dims);
    dims.v[dims.list.n++] = 1;
    return ct_reshape(t, dims.list);
}

ct_tensor ct__slice_axis(ct_tensor t, int64_t axis, int64_t start, int64_t stop) {
    return ct_slice(t, .axes = {1, &axis}, .start = {1, &start}, .stop = {1, &stop});
}

ct_tensor ct__swap_last(ct_tensor t) {
    int rank = ct__type_of(t)->rank;
    int64_t axes[CT_MAX_RANK];
    if (rank < 2) return t; // poisoned
    for (int i = 0; i < rank; i++) axes[i] = i;
    axes[rank - 2] = rank - 1;
    axes[rank - 1] = rank - 2;
    return ct_permute(t, ((ct_ints){rank, axes}));
}

ct_tensor ct__shaped_like(ct_tensor t, ct_tensor like) {
    ct_dims_buffer dims;
    if (ct__same_shape(ct__type_of(t), ct__type_of(like))) return t;
    return ct_reshape(t, ct__dims_of(like, &dims));
}

void ct__ref_move(const ct_ref *ref, int operand, int64_t to, int64_t from) {
    size_t size = ct_dtype_size(ref->out_type->dtype);
    memcpy((char *)ref->out[0] + (size_t)to * size,
           (const char *)ref->in[operand] + (size_t)from * size, size);
}
