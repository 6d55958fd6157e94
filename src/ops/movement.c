// Movement: each element of the result is one element of the operand (or a fill value). These ops are
// lowered to index arithmetic.
#include <string.h>

#include "kinds/batch.h"
#include "ops/rules.h"

#define MOVEMENT(ID, op)                                                                           \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_movement, .n_in = 1, .n_out = 1,              \
    CT_FIELDS(op), .accepts = CT_ANY, .infer = op##_infer, .eval = op##_eval, .jvp = ct__jvp_same, \
    .transpose = op##_transpose, .map = op##_map, .split = ct__split_each, .data = 1

// ----------------------------------------------------------------------------------------- reshape

#define RESHAPE_ATTRS(F, op) F(op, sizes, dims)
CT_ATTRS(reshape, RESHAPE_ATTRS);

static int64_t reshape_count_except(const ct_type *type, int axis) {
    int64_t count = 1;
    for (int a = 0; a < type->rank; a++)
        if (a != axis) count = ct__size_mul(count, ct__size_of(type, a));
    return count;
}

// Returns the size given as -1: dynamic if fewer of the other sizes are dynamic than of the operand's.
static int64_t reshape_infer_size(const ct_type *in, const ct_shape *shape, int inferred,
                                  int64_t size) {
    if (__builtin_popcount(in->dyn) <= __builtin_popcount(shape->dyn)) return size;
    if (!shape->mark) return CT_DYN(size);
    const ct_type others = {
        .rank = (uint8_t)shape->rank, .dyn = shape->dyn, .dim = shape->dim, .mark = shape->mark};
    return ct__size_div_up(reshape_count_except(in, -1), reshape_count_except(&others, inferred));
}

// A reshape keeps the number of elements for all lengths. If that leaves several sizes undetermined, those
// with the same value are assumed to be equal, in order; a run in which they are not needs another plan
// (ct__symbols_bind).
static void reshape_bind_count(const ct_type *in, const ct_type *out) {
    int n_dynamic = 0;
    for (int a = 0; a < out->rank; a++) n_dynamic += ct__is_dyn(out, a);
    for (int a = 0, b = 0; n_dynamic > 1 && a < out->rank; a++) {
        if (!ct__is_dyn(out, a)) continue;
        int at = b;
        while (at < in->rank && !(ct__is_dyn(in, at) && in->dim[at] == out->dim[a])) at++;
        if (at == in->rank) continue;
        ct__size_equal(ct__size_of(in, at), ct__size_of(out, a));
        b = at + 1;
    }
    ct__size_equal(reshape_count_except(in, -1), reshape_count_except(out, -1));
}

static bool reshape_infer(ct_call *call) {
    reshape_attrs *attrs = call->attrs;
    const ct_type *in = call->in[0];
    int rank = (int)attrs->dims.n, inferred = -1;
    int64_t known = 1, count = ct__count(in);
    ct_shape shape = ct__call_shape(call, rank);
    if (!shape.dim) return false;
    for (int i = 0; i < rank; i++) {
        ct__shape_add(&shape, attrs->dims.v[i]);
        const int64_t size = shape.dim[i];
        if (size == -1 && inferred < 0)
            inferred = i;
        else if (size < 0)
            return ct__call_err(call, CT_E_ARGUMENT, "axis %d has size %lld", i, (long long)size) ||
                   ct__call_hint(call, "one size may be -1: it is computed from the others");
        else if (__builtin_mul_overflow(known, size, &known))
            return ct__call_err(call, CT_E_SHAPE,
                                "%s does not become a shape whose first %d sizes multiply to 2^63 "
                                "or more",
                                ct__type_text(in).s, i + 1);
    }
    if (inferred >= 0) {
        if (known == 0 || count % known)
            return ct__call_err(call, CT_E_SHAPE, "%s does not divide into %lld parts for axis %d",
                                ct__type_text(in).s, (long long)known, inferred) ||
                   ct__call_hint(call, "it has %lld elements, which the other sizes must divide",
                                 (long long)count);
        const int64_t size = reshape_infer_size(in, &shape, inferred, count / known);
        ct__shape_set(&shape, inferred, size);
        if (!shape.mark && __builtin_popcount(in->dyn) > __builtin_popcount(shape.dyn))
            shape.dyn |= 1u << inferred; // it may be too large for a mark, which is reported below
        shape.dim[inferred] = count / known;
    }
    *call->out = ct__shaped(&shape, in->dtype, in->weak);
    if (ct__count(call->out) != count)
        return ct__call_err(call, CT_E_SHAPE, "%s has %lld elements, the new shape %s has %lld",
                            ct__type_text(in).s, (long long)count, ct__type_text(call->out).s,
                            (long long)ct__count(call->out)) ||
               ct__call_hint(call, "one size may be -1: it is computed from the others");
    int64_t *own = ct__call_dims(call, rank); // normal form: no -1, dynamic sizes marked
    if (!own) return false;
    for (int i = 0; i < rank; i++) own[i] = ct__size_of(call->out, i);
    attrs->dims = (ct_ints){rank, own};
    if (in->mark || call->out->mark) reshape_bind_count(in, call->out);
    return true;
}
static bool reshape_eval(const ct_ref *ref) {
    size_t bytes = ct__type_bytes(ref->out_type);
    if (bytes) memcpy(ref->out[0], ref->in[0], bytes);
    return true;
}
static bool reshape_map(ct_map *map) {
    ct_map_piece *piece = ct__map_piece(map, 0);
    map->in_order = true;
    const ct_type *in = ct__type(map->node->in[0]), *out = map->node->out;
    ct_ix_pool *p = map->pool;
    ct_ix linear = ct__ix_int(p, 0);
    for (int a = 0; a < out->rank; a++)
        linear = ct__ix_add(p, ct__ix_mul(p, linear, ct__map_out_size(map, a)), map->at[a]);
    for (int a = in->rank - 1; a > 0; a--) {
        ct_ix size = ct__map_in_size(map, 0, a);
        piece->from[a] = ct__ix_mod(p, linear, size);
        linear = ct__ix_div(p, linear, size);
    }
    if (in->rank) piece->from[0] = linear;
    return true;
}
static bool reshape_transpose(ct_rule *r) {
    ct_dims_buffer dims;
    return ct__set_cotangent(r, ct_reshape(r->c_out[0], ct__dims_of(r->in[0], &dims)));
}
const ct_opdef ct__op_reshape = {
    MOVEMENT(RESHAPE, reshape),
    .doc =
        "The same elements in row-major order with other sizes; one size may be -1: what is left.",
    .onnx = "Reshape",
    .stablehlo = "reshape",
    .unchanged = ct__always_unchanged,
    .outermost = true,
};

// ------------------------------------------------------------------------------------------- after

// What is computed from `after` runs after the other operands, and differs for common subexpressions from
// what is computed from the operand itself. ct_remat uses that to force recomputation. In kernels it is
// the operand.

static bool control_dependency_infer(ct_call *call) {
    call->out[0] = *call->in[0];
    return true;
}
static bool control_dependency_eval(const ct_ref *ref) {
    memcpy(ref->out[0], ref->in[0], ct__type_bytes(&ref->out_type[0]));
    return true;
}
static bool control_dependency_map(ct_map *map) {
    ct_map_piece *piece = ct__map_piece(map, 0);
    for (int a = 0; a < map->node->out->rank; a++) piece->from[a] = map->at[a];
    map->in_order = true;
    return true;
}
// Tangents and cotangents are not ordered.
static bool control_dependency_jvp(ct_rule *r) { return ct__set_tangent(r, r->t_in[0]); }
static bool after_transpose(ct_rule *r) { return ct__set_cotangent(r, r->c_out[0]); }
static bool control_dependency_batch(ct_batching *b) {
    b->out_batched[0] = b->batched[0];
    return ct__batch_record(b, b->attrs, b->in);
}

const ct_opdef ct__op_control_dependency = {
    CT_OP(CONTROL_DEPENDENCY, control_dependency, movement, -1, 1),
    .doc = "The first operand, once the others have been computed.",
    .accepts = CT_ANY,
    .infer = control_dependency_infer,
    .eval = control_dependency_eval,
    .map = control_dependency_map,
    .waits = true,
    .jvp = control_dependency_jvp,
    .transpose = after_transpose,
    .batch = control_dependency_batch,
    .split = ct__split_each,
    .data = 1,
};

ct_tensor ct__control_dependency(const ct_tensor *in, int n, ct_loc here) {
    return ct__record(&ct__op_control_dependency, NULL, in, n, here);
}

// ----------------------------------------------------------------------------------------- permute

#define PERMUTE_ATTRS(F, op) F(op, permutation, axes)
CT_ATTRS(permute, PERMUTE_ATTRS);

static bool permute_infer(ct_call *call) {
    permute_attrs *attrs = call->attrs;
    const ct_type *in = call->in[0];
    int rank = in->rank;
    ct_shape shape = ct__call_shape(call, rank);
    int64_t *own = ct__call_dims(call, rank);
    if (!shape.dim || !own) return false;
    if (attrs->axes.n != 0 && attrs->axes.n != rank)
        return ct__call_err(call, CT_E_ARGUMENT, "%lld axes are named for %s",
                            (long long)attrs->axes.n, ct__type_text(in).s) ||
               ct__call_hint(call, "name all %d axes, each once, in their new order", rank);
    uint32_t seen = 0;
    for (int i = 0; i < rank; i++) {
        int a = attrs->axes.n ? ct__list_axis(call, &attrs->axes, i, &seen) : rank - 1 - i;
        if (a < 0) return false;
        own[i] = a;
        ct__shape_add_axis(&shape, in, a);
    }
    attrs->axes = (ct_ints){rank, own};
    return ct__set_out(call, &shape, in->dtype, in->weak);
}
static bool permute_eval(const ct_ref *ref) {
    const permute_attrs *attrs = ref->attrs;
    int64_t stride[CT_MAX_RANK], at[CT_MAX_RANK], n = ct__count(ref->out_type);
    ct__strides(ref->in_type, stride);
    for (int64_t i = 0; i < n; i++) {
        int64_t from = 0;
        ct__index_of(ref->out_type, i, at);
        for (int a = 0; a < ref->out_type->rank; a++) from += at[a] * stride[attrs->axes.v[a]];
        ct__ref_move(ref, 0, i, from);
    }
    return true;
}
static bool permute_map(ct_map *map) {
    const permute_attrs *attrs = map->node->attrs;
    ct_map_piece *piece = ct__map_piece(map, 0);
    for (int64_t i = 0; i < attrs->axes.n; i++) piece->from[attrs->axes.v[i]] = map->at[i];
    return true;
}
static bool permute_transpose(ct_rule *r) {
    const permute_attrs *attrs = r->attrs;
    int64_t back[CT_MAX_RANK];
    for (int64_t i = 0; i < attrs->axes.n; i++) back[attrs->axes.v[i]] = i;
    return ct__set_cotangent(
        r, attrs->axes.n ? ct_permute(r->c_out[0], ((ct_ints){attrs->axes.n, back})) : r->c_out[0]);
}
static bool permute_unchanged(const ct_node *node) {
    const permute_attrs *attrs = node->attrs;
    for (int64_t i = 0; i < attrs->axes.n; i++)
        if (attrs->axes.v[i] != i) return false;
    return true;
}
bool ct__is_swapped(ct_tensor t) {
    uint32_t out;
    const ct_node *node = ct__peek(t, &out);
    return node && ct__is_swap_of_last(node);
}
bool ct__is_swap_of_last(const ct_node *node) {
    const int last = node->out->rank - 1;
    if (node->op != &ct__op_permute || last < 1) return false;
    const permute_attrs *attrs = node->attrs;
    for (int i = 0; i <= last; i++)
        if (attrs->axes.v[i] != (i < last - 1 ? i : 2 * last - 1 - i)) return false;
    return true;
}
const ct_opdef ct__op_permute = {
    MOVEMENT(PERMUTE, permute),
    .doc = "Axis i of the result is axis axes[i] of x; no axes: all reversed (the transpose).",
    .onnx = "Transpose",
    .stablehlo = "transpose",
    .unchanged = permute_unchanged,
};

// ------------------------------------------------------------------------------------------ expand

CT_ATTRS(expand, RESHAPE_ATTRS);

static bool expand_infer(ct_call *call) {
    expand_attrs *attrs = call->attrs;
    const ct_type *in = call->in[0];
    int rank = (int)attrs->dims.n, n_new = rank - in->rank;
    ct_shape shape = ct__call_shape(call, rank);
    if (!shape.dim) return false;
    for (int i = 0; i < rank; i++) {
        ct__shape_add(&shape, attrs->dims.v[i]);
        if (shape.dim[i] < 0)
            return ct__call_err(call, CT_E_ARGUMENT, "axis %d has size %lld", i,
                                (long long)shape.dim[i]);
    }
    *call->out = ct__shaped(&shape, in->dtype, in->weak);
    for (int i = 0; i < in->rank; i++) {
        bool same = n_new >= 0 && shape.dim[n_new + i] == in->dim[i];
        if (n_new < 0 || (!same && (in->dim[i] != 1 || ct__is_dyn(in, i))))
            return ct__call_err(call, CT_E_SHAPE, "%s does not expand to %s", ct__type_text(in).s,
                                ct__type_text(call->out).s) ||
                   ct__call_hint(call, "axes of static size 1 expand, and new axes are in front");
        if (!same || !ct__is_dyn(in, i)) continue;
        ct__size_equal(ct__size_of(in, i), attrs->dims.v[n_new + i]);
        ct__shape_set(&shape, n_new + i, ct__size_of(in, i));
    }
    return ct__set_out(call, &shape, in->dtype, in->weak);
}
static bool expand_eval(const ct_ref *ref) {
    int64_t n = ct__count(ref->out_type);
    for (int64_t i = 0; i < n; i++)
        ct__ref_move(ref, 0, i, ct__broadcast_index(ref->out_type, ref->in_type, i));
    return true;
}
static bool expand_map(ct_map *map) {
    ct_map_piece *piece = ct__map_piece(map, 0);
    const ct_type *in = ct__type(map->node->in[0]);
    int n_new = map->node->out->rank - in->rank;
    for (int i = 0; i < in->rank; i++)
        piece->from[i] =
            in->dim[i] == 1 && !ct__is_dyn(in, i) ? ct__ix_int(map->pool, 0) : map->at[n_new + i];
    return true;
}
static bool expand_transpose(ct_rule *r) {
    const ct_type *in = ct__type_of(r->in[0]), *out = ct__type_of(r->c_out[0]);
    int n_new = out->rank - in->rank, n = 0;
    int64_t axes[CT_MAX_RANK];
    for (int a = 0; a < out->rank; a++)
        if (a < n_new || (in->dim[a - n_new] == 1 && !ct__is_dyn(in, a - n_new) &&
                          (out->dim[a] != 1 || ct__is_dyn(out, a))))
            axes[n++] = a;
    ct_dims_buffer dims;
    ct_tensor c = n ? ct_sum(r->c_out[0], .axes = {n, axes}) : r->c_out[0];
    return ct__set_cotangent(r, ct_reshape(c, ct__dims_of(r->in[0], &dims)));
}
const ct_opdef ct__op_expand = {
    MOVEMENT(EXPAND, expand),
    .doc = "x broadcast to the given sizes (NumPy's rule).",
    .onnx = "Expand",
    .stablehlo = "broadcast_in_dim",
    .unchanged = ct__always_unchanged,
};
