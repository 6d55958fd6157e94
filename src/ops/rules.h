// What the definitions of ops share: shape rules of a kind, helpers for differentiation rules.
#ifndef COTAN_OPS_RULES_H
#define COTAN_OPS_RULES_H

#include "ops/opcode.h"

// Elementwise: operands promote to one dtype and broadcast to one shape, which the result has.
// `_bool`: the result is bool. `_choice`: operand 0 is a condition and does not promote.
bool ct__infer_elementwise(ct_call *call);
bool ct__infer_elementwise_bool(ct_call *call);
bool ct__infer_choice(ct_call *call);
// The dtype in which an elementwise node computes: its operands' promoted one (without a leading
// condition).
ct_dtype ct__compute_dtype(const ct_node *node);

// Is operand i's dtype accepted? Reports which are.
bool ct__check_accepts(ct_call *call, ct_dtype dtype, int operand);

// Reads a list of axes as given (negative from the end; empty: all) into its normal form: counted
// from the front, sorted, distinct. Reports bad ones.
bool ct__normal_axes(ct_call *call, ct_ints *axes, int rank);
static inline bool ct__has_axis(const ct_ints *axes, int axis) {
    for (int64_t i = 0; i < axes->n; i++)
        if (axes->v[i] == axis) return true;
    return false;
}

// Sums of tangents or cotangents, where CT_NONE is zero.
ct_tensor ct__add_zero(ct_tensor a, ct_tensor b);
static inline bool ct__is_none(ct_tensor t) { return t.bits == 0; }
// The shape of t as a list for ct_reshape and ct_expand (dynamic sizes stay dynamic), valid while
// t's node lives.
typedef struct ct_dims_buffer {
    int64_t v[CT_MAX_RANK];
    ct_ints list;
} ct_dims_buffer;
ct_ints ct__dims_of(ct_tensor t, ct_dims_buffer *buffer);
// The type behind a handle that is known to be good (inside rules).
const ct_type *ct__type_of(ct_tensor t);
ct_tensor ct__zeros_like(ct_tensor t);
ct_tensor ct__number_like(double value, ct_tensor t); // a foldable scalar constant of t's dtype

#endif
