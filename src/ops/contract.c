// Tensor contraction: products of two operands, summed over any pairs of axes. Matrix products, their
// gradients and ct_einsum are special cases. The order of additions is that of matrix products
// (docs/design/bits.md).
#include "kinds/batch.h"
#include "kinds/contraction.h"
#include "ops/rules.h"

#define CONTRACT_ATTRS(F, op)                                                                      \
    F(op, ints, a_axes) F(op, ints, b_axes) F(op, ints, a_batch) F(op, ints, b_batch)
CT_ATTRS(contract, CONTRACT_ATTRS);

enum { A, B, OUT };

// Normalises a list of axes of an operand; none of them may be in `seen`, to which they are added.
static bool contract_normalise_axes(ct_call *call, int operand, ct_ints *axes, uint32_t *seen) {
    const ct_type *type = call->in[operand];
    int64_t *v = ct__call_dims(call, (int)axes->n);
    if (!v) return false;
    for (int64_t i = 0; i < axes->n; i++) {
        const int axis = ct__axis(axes->v[i], type->rank);
        if (axis < 0 || *seen >> axis & 1)
            return ct__call_err(call, CT_E_ARGUMENT, "axis %lld of %c, which is %s, is %s",
                                (long long)axes->v[i], "ab"[operand], ct__type_text(type).s,
                                axis < 0 ? "out of range" : "named twice") ||
                   ct__call_hint(call, "an axis is summed over, or of the batch, or neither");
        *seen |= 1u << axis;
        v[i] = axis;
    }
    axes->v = v;
    return true;
}

// Checks that the axes of two lists are pairs of equal sizes.
static bool contract_check_pairs(ct_call *call, ct_ints *a_axes, ct_ints *b_axes, const char *what,
                                 uint32_t seen[2]) {
    const ct_type *a = call->in[A], *b = call->in[B];
    if (a_axes->n != b_axes->n)
        return ct__call_err(call, CT_E_ARGUMENT,
                            "axes go in pairs: .a_%s has %lld of them, .b_%s has %lld", what,
                            (long long)a_axes->n, what, (long long)b_axes->n);
    if (!contract_normalise_axes(call, A, a_axes, &seen[A]) ||
        !contract_normalise_axes(call, B, b_axes, &seen[B]))
        return false;
    for (int64_t i = 0; i < a_axes->n; i++) {
        const int x = (int)a_axes->v[i], y = (int)b_axes->v[i];
        if (a->dim[x] != b->dim[y])
            return ct__call_err(call, CT_E_SHAPE,
                                "sizes of a pair differ: a is %s, b is %s (axis %d of a, axis %d "
                                "of b)",
                                ct__type_text(a).s, ct__type_text(b).s, x, y) ||
                   ct__call_hint(call, "pair %lld of .a_%s and .b_%s: name axes of one size",
                                 (long long)i + 1, what, what);
        (void)ct__same_size(a, x, b, y);
    }
    return true;
}

static bool contract_infer(ct_call *call) {
    contract_attrs *attrs = call->attrs;
    const ct_type *a = call->in[A], *b = call->in[B];
    if (!ct__check_accepts(call, A) || !ct__check_accepts(call, B)) return false;
    const ct_dtype dtype = ct__promote(a->dtype, a->weak, b->dtype, b->weak);
    if (dtype == CT_DEFAULT) return ct__no_promotion(call, (ct_dtype)a->dtype, (ct_dtype)b->dtype);
    uint32_t batch[2] = {0}, seen[2] = {0};
    if (!contract_check_pairs(call, &attrs->a_batch, &attrs->b_batch, "batch", batch)) return false;
    seen[A] = batch[A], seen[B] = batch[B];
    if (!contract_check_pairs(call, &attrs->a_axes, &attrs->b_axes, "axes", seen)) return false;
    // batch axes count once
    const int rank = (int)(a->rank + b->rank - 2 * attrs->a_axes.n - attrs->a_batch.n);
    if (rank > CT_MAX_RANK)
        return ct__call_err(call, CT_E_SHAPE, "the result has %d axes, %d are possible", rank,
                            CT_MAX_RANK) ||
               ct__call_hint(call, "join axes with ct_reshape, or sum over some of them");
    if (!ct__call_fits(call, A, dtype) || !ct__call_fits(call, B, dtype)) return false;
    ct_shape shape = ct__call_shape(call, rank);
    if (!shape.dim) return false;
    for (int64_t i = 0; i < attrs->a_batch.n; i++)
        ct__shape_add(&shape,
                      ct__same_size(a, (int)attrs->a_batch.v[i], b, (int)attrs->b_batch.v[i]));
    for (int i = 0; i < a->rank; i++)
        if (!(seen[A] >> i & 1)) ct__shape_add_axis(&shape, a, i);
    for (int i = 0; i < b->rank; i++)
        if (!(seen[B] >> i & 1)) ct__shape_add_axis(&shape, b, i);
    return ct__set_out(call, &shape, dtype, false);
}

static void contract_axes(const ct_node *node, ct_contraction *to) {
    const contract_attrs *attrs = node->attrs;
    int out = (int)attrs->a_batch.n;
    for (int i = 0; i < out; i++)
        ct__role_add(&to->batch, (int)attrs->a_batch.v[i], (int)attrs->b_batch.v[i], i);
    for (int i = 0; i < ct__type(node->in[A])->rank; i++)
        if (!ct__has_axis(&attrs->a_axes, i) && !ct__has_axis(&attrs->a_batch, i))
            ct__role_add(&to->rows, i, -1, out++);
    for (int i = 0; i < ct__type(node->in[B])->rank; i++)
        if (!ct__has_axis(&attrs->b_axes, i) && !ct__has_axis(&attrs->b_batch, i))
            ct__role_add(&to->columns, -1, i, out++);
    for (int64_t i = 0; i < attrs->a_axes.n; i++)
        ct__role_add(&to->inner, (int)attrs->a_axes.v[i], (int)attrs->b_axes.v[i], -1);
}

static ct_tensor contract_record_same(const ct_rule *r, ct_tensor a, ct_tensor b) {
    return ct__record(r->node->op, r->attrs, (const ct_tensor[]){a, b}, 2, r->node->here);
}
static bool contract_jvp(ct_rule *r) {
    const ct_tensor a = r->t_in[A], b = r->t_in[B];
    return ct__set_tangent(
        r, ct__add_zero(ct__is_none(a) ? CT_NONE : contract_record_same(r, a, r->in[B]),
                        ct__is_none(b) ? CT_NONE : contract_record_same(r, r->in[A], b)));
}

// Permutes t so that axis i of the result is axis position[i] of t.
static ct_tensor contract_permute(ct_tensor t, const int64_t *position, int rank) {
    int moved = 0;
    for (int i = 0; i < rank; i++) moved += position[i] != i;
    const ct_ints axes = {rank, position};
    return moved ? ct_permute(t, axes) : t;
}

// The cotangent of an operand is that of the result times the other operand, summed over the axes that only
// the other operand has. For a it is (batch, rows, k), for b (batch, k, columns), with the axes of k in the
// other operand's order; then they are permuted to their positions.
static bool contract_transpose(ct_rule *r) {
    const int of = r->linear[A] ? A : B, other = 1 - of;
    ct_contraction is = {0};
    contract_axes(r->node, &is);
    const ct_role *own = of == A ? &is.rows : &is.columns,
                  *summed = of == A ? &is.columns : &is.rows;
    int64_t c_axes[CT_MAX_RANK], o_axes[CT_MAX_RANK], c_batch[CT_MAX_RANK], o_batch[CT_MAX_RANK];
    int64_t position[CT_MAX_RANK];
    const int n = is.batch.n, first = of == A ? n + own->n : n;
    for (int i = 0; i < summed->n; i++)
        c_axes[i] = summed->of[OUT][i], o_axes[i] = summed->of[other][i];
    for (int i = 0; i < n; i++) c_batch[i] = i, o_batch[i] = is.batch.of[other][i];
    for (int i = 0; i < n; i++) position[is.batch.of[of][i]] = i;
    for (int i = 0; i < own->n; i++) position[own->of[of][i]] = (of == A ? n : n + is.inner.n) + i;
    for (int i = 0; i < is.inner.n; i++) {
        int before = 0; // axes of k that precede this one in the other operand
        for (int k = 0; k < is.inner.n; k++)
            before += is.inner.of[other][k] < is.inner.of[other][i];
        position[is.inner.of[of][i]] = first + before;
    }
    const ct_ints of_c = {summed->n, c_axes}, of_o = {summed->n, o_axes};
    const ct_ints batch_c = {n, c_batch}, batch_o = {n, o_batch};
    const ct_tensor c = r->c_out[0], x = r->in[other];
    const ct_tensor t = of == A ? ct_contract(c, x, .a_axes = of_c, .b_axes = of_o,
                                              .a_batch = batch_c, .b_batch = batch_o)
                                : ct_contract(x, c, .a_axes = of_o, .b_axes = of_c,
                                              .a_batch = batch_o, .b_batch = batch_c);
    r->c_in[of] = contract_permute(t, position, ct__type(r->node->in[of])->rank);
    return true;
}

// If both have the batch, it is one more shared axis; if only one has it, it is an axis of that operand's
// own.
static bool contract_batch(ct_batching *b) {
    const contract_attrs *attrs = b->attrs;
    const bool both = b->batched[A] && b->batched[B];
    const ct_ints *from[4] = {&attrs->a_axes, &attrs->b_axes, &attrs->a_batch, &attrs->b_batch};
    int64_t v[4][CT_MAX_RANK + 1];
    ct_ints to[4];
    for (int l = 0; l < 4; l++) {
        const int extra = both && l >= 2, shift = b->batched[l % 2];
        v[l][0] = 0;
        for (int64_t i = 0; i < from[l]->n; i++) v[l][i + extra] = from[l]->v[i] + shift;
        to[l] = (ct_ints){from[l]->n + extra, v[l]};
    }
    const contract_attrs shifted = {to[0], to[1], to[2], to[3]};
    if (!ct__batch_record(b, &shifted, b->in)) return false;
    const int rank = b->node->out->rank, shared = (int)attrs->a_batch.n;
    const int rows = ct__type(b->node->in[A])->rank - (int)attrs->a_axes.n - shared;
    const int at = both ? 0 : b->batched[A] ? shared : shared + rows;
    b->out[0] = ct__batch_move(b, b->out[0], rank + 1, at, 0);
    return true;
}

const ct_opdef ct__op_contract = {
    CT_OP(CONTRACT, contract, contraction, 2, 1),
    CT_FIELDS(contract),
    .doc = "Products of a and b, summed over pairs of axes: .a_axes of a with .b_axes of b, in "
           "this order. .a_batch and .b_batch pair axes that stay side by side. The result's axes "
           "are the batch, then the others of a, then those of b; without .a_axes it is all "
           "products of an element of a and one of b. ct_einsum is the same in Einstein notation. "
           "Integers keep their promoted dtype and wrap.",
    .accepts = CT_NUMBERS | CT_COMPLEX,
    .split = ct__split_contraction,
    .infer = contract_infer,
    .contraction = contract_axes,
    .jvp = contract_jvp,
    .transpose = contract_transpose,
    .batch = contract_batch,
    .stablehlo = "dot_general",
    .autocast = CT_CAST_LOW,
};
