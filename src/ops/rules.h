// Shared by the definitions of ops: shape rules of a kind, helpers for differentiation rules.
#ifndef COTAN_OPS_RULES_H
#define COTAN_OPS_RULES_H

#include "graph/symbols.h"
#include "kinds/monoid.h"
#include "ops/opcode.h"

// Elementwise: operands promote to one dtype and broadcast to one shape, which are those of the result.
// `_bool`: the result is bool. If the record has `condition`, operand 0 does not promote.
bool ct__infer_elementwise(ct_call *call);
bool ct__infer_elementwise_bool(ct_call *call);
// One element in kernel IR: the `instruction` of the record, or the function, of the operands.
static inline ct_kval ct__elem_un(const ct_elem *e) {
    return ct__kir_un(e->k, (ct_kop)e->node->op->instruction, e->x[0]);
}
static inline ct_kval ct__elem_bin(const ct_elem *e) {
    return ct__kir_bin(e->k, (ct_kop)e->node->op->instruction, e->x[0], e->x[1]);
}
static inline ct_kval ct__elem_math(const ct_elem *e) {
    return ct__kir_math(e->k, (ct_kmath)e->node->op->instruction, e->x[0]);
}

// Hints for a reported error: the valid axes of operand 0, and the dtype to which an operand can be cast.
// They return false, for `return`.
bool ct__hint_axes(ct_call *call, int rank);
bool ct__hint_cast(ct_call *call, const char *name, ct_dtype to);
// Reports that two dtypes do not promote to one. Always returns false.
bool ct__no_promotion(ct_call *call, ct_dtype a, ct_dtype b);

// True if a size is dynamic and 1, so that it does not broadcast; and the hint that says so.
static inline bool ct__dynamic_one(const ct_type *type, int axis) {
    return type->dim[axis] == 1 && ct__is_dyn(type, axis);
}
#define CT_DYNAMIC_ONE_HINT "a dynamic size never broadcasts, even where it is 1"

// Checks that operand i's dtype is accepted. Reports the accepted ones if not.
bool ct__check_accepts(ct_call *call, int operand);
// Checks that operand i, called `what` (in the plural) in messages, is of integers.
bool ct__check_integers(ct_call *call, int operand, const char *what);

// Normalises a list of axes as given (negative from the end; empty: all): counted from the front, sorted,
// distinct. Reports invalid ones.
bool ct__normal_axes(ct_call *call, ct_ints *axes, int rank);
// Returns axis i of a list, counted from the front. Returns -1 and reports an error if operand 0 has no such
// axis, or it is in the mask `seen`, to which it is added.
int ct__list_axis(ct_call *call, const ct_ints *axes, int64_t i, uint32_t *seen);
static inline bool ct__has_axis(const ct_ints *axes, int axis) {
    for (int64_t i = 0; i < axes->n; i++)
        if (axes->v[i] == axis) return true;
    return false;
}

// Normalises the epsilon that is added to a variance: 1e-5 if none is given. Reports a negative one.
bool ct__normal_eps(ct_call *call, ct_num *eps);

// Copies element `from` of an operand to element `to` of the result.
void ct__ref_move(const ct_ref *ref, int operand, int64_t to, int64_t from);

// Shape rule of a reduction: attributes begin with `ints axes` (default: all), `bool keepdims`.
bool ct__infer_reduce(ct_call *call);
// Computes the type of operand 0 without the axes (or with size 1 in their place).
bool ct__reduced_type(ct_call *call, const ct_ints *axes, bool keepdims, ct_type *out);
// Restores the reduced axes of a result with size 1, so that it broadcasts to the operand.
ct_tensor ct__with_axes(ct_tensor reduced, ct_tensor like, const ct_ints *axes, bool keepdims);
// Normalises one axis of operand 0 to 0..rank - 1. Reports an invalid one.
bool ct__normal_axis(ct_call *call, int64_t *axis);

// Returns an entry of a list of positions in a map: a number, or an argument of the kernel.
static inline ct_ix ct__map_attr(ct_map *map, const int64_t *where) {
    return ct__marked(*where) ? map->attr(map, where) : ct__ix_int(map->pool, *where);
}

// Returns the number of gaps between n elements: n - 1, but 0 for n = 0. This holds for every n if it is
// dynamic.
static inline int64_t ct__gaps(int64_t n) {
    return ct__size_sub(n, ct__size_div_up(n, CT_DYN_END)); // rounded up: 1 if n > 0
}
// For a size whose value determines something that no symbol expresses: the plan that is being made is valid
// for this size only.
static inline void ct__specialise_size(int64_t size) {
    if (ct__marked(size)) ct__symbols_incomplete(ct__symbols_now());
}

// Builder of a shape, axis by axis, from sizes in the encoding of attributes. `dim` is NULL if out of memory,
// with the error recorded.
typedef struct ct_shape {
    int64_t *dim, *mark; // (capacity for the requested axes); mark: NULL outside of plans
    int rank;
    uint32_t dyn;
} ct_shape;
ct_shape ct__call_shape(ct_call *call, int rank);
static inline void ct__shape_set(ct_shape *shape, int axis, int64_t size) {
    if (shape->mark) shape->mark[axis] = size;
    shape->dyn &= ~(1u << axis);
    shape->dyn |= (uint32_t)ct__marked(size) << axis;
    shape->dim[axis] = ct__unmarked(size);
}
static inline void ct__shape_add(ct_shape *shape, int64_t size) {
    ct__shape_set(shape, shape->rank++, size);
}
static inline void ct__shape_add_axis(ct_shape *shape, const ct_type *type, int axis) {
    if (shape->mark) shape->mark[shape->rank] = ct__size_of(type, axis);
    shape->dyn |= (uint32_t)ct__is_dyn(type, axis) << shape->rank;
    shape->dim[shape->rank++] = type->dim[axis];
}
static inline ct_type ct__shaped(const ct_shape *shape, ct_dtype dtype, bool weak) {
    return (ct_type){.dtype = (uint8_t)dtype,
                     .rank = (uint8_t)shape->rank,
                     .weak = weak,
                     .dyn = shape->dyn,
                     .dim = shape->dim,
                     .mark = shape->dyn ? shape->mark : NULL};
}
// The end of a shape rule with one result: sets its type, and returns true.
static inline bool ct__set_out(ct_call *call, const ct_shape *shape, ct_dtype dtype, bool weak) {
    *call->out = ct__shaped(shape, dtype, weak);
    return true;
}
// Computes the type like t, in this dtype, but of this size along an axis.
bool ct__resized_type(ct_call *call, const ct_type *t, int axis, int64_t size, ct_dtype dtype,
                      bool weak, ct_type *out);
// Returns the size of two axes that a shape rule found equal, or, if only one is dynamic, compatible; records
// that they are equal.
static inline int64_t ct__same_size(const ct_type *a, int i, const ct_type *b, int k) {
    if (a->mark || b->mark) ct__size_equal(ct__size_of(a, i), ct__size_of(b, k));
    return ct__size_of(ct__is_dyn(a, i) ? a : b, ct__is_dyn(a, i) ? i : k);
}

// Dtypes that have parts (base/dtype.h), in rules for `split`: returns part number `part` of a tensor, and
// the tensor of given parts.
ct_tensor ct__part_of(ct_tensor t, int part);
ct_tensor ct__of_parts(ct_dtype dtype, const ct_tensor *parts);
// The same for ops that change dtypes.
bool ct__split_cast(ct_rule *rule);
bool ct__split_bitcast(ct_rule *rule);
// The same for ops of complex numbers (ops/complex.c).
bool ct__split_equal(ct_rule *rule);
bool ct__split_not_equal(ct_rule *rule);
bool ct__split_mul(ct_rule *rule);
bool ct__split_contraction(ct_rule *rule);
bool ct__split_div(ct_rule *rule);
bool ct__split_abs(ct_rule *rule);
bool ct__split_exp(ct_rule *rule);
bool ct__split_log(ct_rule *rule);
bool ct__split_sqrt(ct_rule *rule);
bool ct__split_sin(ct_rule *rule);
bool ct__split_cos(ct_rule *rule);
bool ct__split_tanh(ct_rule *rule);
bool ct__split_expm1(ct_rule *rule);
bool ct__split_log1p(ct_rule *rule);
bool ct__split_log2(ct_rule *rule);
bool ct__split_log10(ct_rule *rule);
bool ct__split_tan(ct_rule *rule);
bool ct__split_sinh(ct_rule *rule);
bool ct__split_cosh(ct_rule *rule);
bool ct__split_asin(ct_rule *rule);
bool ct__split_acos(ct_rule *rule);
bool ct__split_atan(ct_rule *rule);
bool ct__split_asinh(ct_rule *rule);
bool ct__split_acosh(ct_rule *rule);
bool ct__split_atanh(ct_rule *rule);
bool ct__split_sign(ct_rule *rule);
bool ct__split_is_inf(ct_rule *rule);
bool ct__split_is_finite(ct_rule *rule);
bool ct__split_prod(ct_rule *rule);
bool ct__split_to_complex(ct_rule *rule);
// A `split` rule: applies the op itself to each part of the operands in op.data. The result's dtype has the
// parts of the first operand in `data`.
bool ct__split_each(ct_rule *rule);

// Computes the shape of the elements of operand 0 that are picked along an axis by indices, operand 1: the
// sizes of x before the axis, of the indices without their first `batch` axes, and of x after the axis.
bool ct__picked_shape(ct_call *call, int64_t *axis, int64_t batch, ct_shape *shape);

// Casts a cotangent to the dtype of its value: for floats that became complex numbers, its real part.
ct_tensor ct__cotangent_like(ct_tensor c, ct_dtype dtype);
// Returns, for each element, the product of all other elements along the axis. There is no division, so zeros
// are allowed.
ct_tensor ct__product_of_others(ct_tensor x, int64_t axis);
// jvp of an op that is linear in its only operand: the op itself, on the tangent.
bool ct__jvp_same(ct_rule *rule);
// Sums of tangents or cotangents, where CT_NONE is zero.
ct_tensor ct__add_zero(ct_tensor a, ct_tensor b);
static inline bool ct__is_none(ct_tensor t) { return t.bits == 0; }
// True if it is of a dtype that has derivatives.
static inline bool ct__has_slope(ct_tensor t) {
    return ct__is_differentiable(ct__type_of(t)->dtype);
}
// The shape of t as a list for ct_reshape and ct_expand (dynamic sizes stay dynamic), valid while t's node
// lives.
typedef struct ct_dims_buffer {
    int64_t v[CT_MAX_RANK];
    ct_ints list;
} ct_dims_buffer;
ct_ints ct__dims_of(ct_tensor t, ct_dims_buffer *buffer);
// Returns the axis' size in the encoding of dims: marked if it is dynamic.
int64_t ct__size_like(ct_tensor t, int axis);
ct_tensor ct__zeros_like(ct_tensor t);
static inline ct_tensor ct__or_zeros(ct_tensor t, ct_tensor like) {
    return ct__is_none(t) ? ct__zeros_like(like) : t;
}
// Returns a size as a scalar: a constant, unless CT_DYN marks it.
ct_tensor ct__size_number(int64_t size, ct_dtype dtype);
// Returns the number of elements of t that are reduced to one along axes (n_axes -1: all of t), as a scalar
// of t's dtype: a constant, unless a size is dynamic.
ct_tensor ct__count_along(ct_tensor t, const int64_t *axes, int n_axes);
ct_ints ct__type_dims(const ct_type *type, ct_dims_buffer *buffer);
ct_tensor ct__of_type(ct_tensor t, const ct_type *type); // t reshaped to a type's sizes
ct_tensor ct__add_last(ct_tensor t);                     // (...) as (..., 1)
// Slices elements `start` to `stop` of one axis.
ct_tensor ct__slice_axis(ct_tensor t, int64_t axis, int64_t start, int64_t stop);
ct_tensor ct__swap_last(ct_tensor t); // the last two axes exchanged
bool ct__is_swap_of_last(const ct_node *node);
// true if t is a permutation that exchanges the last two axes only
bool ct__is_swapped(ct_tensor t);
// Marks sizes of t as dynamic where those of `like` are.
ct_tensor ct__shaped_like(ct_tensor t, ct_tensor like);
ct_tensor ct__control_dependency(const ct_tensor *in, int n,
                                 ct_loc here); // in[0], ordered after the others
// x^(1 / p), with the derivative 0 where that is 0
ct_tensor ct__root_or_zero(ct_tensor x, double p);
ct_tensor ct__number_like(double value, ct_tensor t); // a foldable scalar constant of t's dtype

#endif
