// Matrix products. The dot product's order of additions is fixed (docs/design/bits.md).
#include "kinds/contraction.h"
#include "ops/attention.h"
#include "ops/quantise.h"
#include "ops/rules.h"

// Gives the reason why batch axes do not broadcast, as a hint.
static bool matmul_hint_batch(ct_call *call, const ct_type *a, const ct_type *b) {
    for (int i = a->rank - 1, k = b->rank - 1; i >= 0 && k >= 0; i--, k--)
        if (a->dim[i] != b->dim[k] && (ct__dynamic_one(a, i) || ct__dynamic_one(b, k)))
            return ct__call_hint(call, CT_DYNAMIC_ONE_HINT);
    return ct__call_hint(call, "axes before the last two, counted from these, must be equal or 1");
}

static bool matmul_infer(ct_call *call) {
    const ct_type *a = call->in[0], *b = call->in[1];
    ct_dtype dtype = ct__promote(a->dtype, a->weak, b->dtype, b->weak);
    if (!ct__check_accepts(call, 0) || !ct__check_accepts(call, 1)) return false;
    if (dtype == CT_DEFAULT) return ct__no_promotion(call, (ct_dtype)a->dtype, (ct_dtype)b->dtype);
    if (a->rank < 2 || b->rank < 2) {
        ct__call_err(call, CT_E_SHAPE, "both operands need two axes: a is %s, b is %s",
                     ct__type_text(a).s, ct__type_text(b).s);
        if (a->rank == 1 && b->rank == 1)
            ct__err_hint(call->err, "of two lists of numbers: ct_sum(ct_mul(a, b))");
        else if (a->rank == 1 && b->rank > 1)
            ct__err_hint(call->err, "make a one row: ct_reshape(a, CT_DIMS(1, -1))");
        else if (b->rank == 1 && a->rank > 1)
            ct__err_hint(call->err, "make b one column: ct_reshape(b, CT_DIMS(-1, 1))");
        return false;
    }
    if (a->dim[a->rank - 1] != b->dim[b->rank - 2]) {
        ct__call_err(call, CT_E_SHAPE,
                     "inner sizes differ: a is %s, b is %s (axis %d of a, axis %d of b)",
                     ct__type_text(a).s, ct__type_text(b).s, a->rank - 1, b->rank - 2);
        if (a->dim[a->rank - 1] == b->dim[b->rank - 1])
            ct__call_hint(call, "permute b: its last axis has the size");
        else if (a->dim[a->rank - 2] == b->dim[b->rank - 2])
            ct__call_hint(call, "permute a: its axis before the last has the size");
        else
            ct__call_hint(call, "(..., M, K) times (..., K, N) gives (..., M, N)");
        return false;
    }
    ct_type a_batch = *a, b_batch = *b, batch = {.dtype = (uint8_t)dtype};
    a_batch.rank = (uint8_t)(a->rank - 2);
    b_batch.rank = (uint8_t)(b->rank - 2);
    a_batch.dyn &= (1u << a_batch.rank) - 1;
    b_batch.dyn &= (1u << b_batch.rank) - 1;
    if (!ct__broadcast(call->arena, (const ct_type *const[]){&a_batch, &b_batch}, 2, &batch))
        return ct__call_err(call, CT_E_SHAPE, "batch axes do not broadcast: a is %s, b is %s",
                            ct__type_text(a).s, ct__type_text(b).s) ||
               matmul_hint_batch(call, &a_batch, &b_batch);
    (void)ct__same_size(a, a->rank - 1, b, b->rank - 2);
    ct_shape shape = ct__call_shape(call, batch.rank + 2);
    if (!shape.dim) return false;
    for (int i = 0; i < batch.rank; i++) ct__shape_add_axis(&shape, &batch, i);
    ct__shape_add_axis(&shape, a, a->rank - 2);
    ct__shape_add_axis(&shape, b, b->rank - 1);
    return ct__set_out(call, &shape, dtype, false);
}

static void matmul_axes(const ct_node *node, ct_contraction *to) {
    const int a = ct__type(node->in[0])->rank, b = ct__type(node->in[1])->rank;
    const int out = node->out->rank;
    for (int i = 0; i < out - 2; i++) ct__role_add(&to->batch, i - (out - a), i - (out - b), i);
    ct__role_add(&to->rows, a - 2, -1, out - 2);
    ct__role_add(&to->columns, -1, b - 1, out - 1);
    ct__role_add(&to->inner, a - 1, b - 2, -1);
}

static bool matmul_jvp(ct_rule *r) {
    ct_tensor a = ct__is_none(r->t_in[0]) ? CT_NONE : ct_matmul(r->t_in[0], r->in[1]);
    ct_tensor b = ct__is_none(r->t_in[1]) ? CT_NONE : ct_matmul(r->in[0], r->t_in[1]);
    return ct__set_tangent(r, ct__add_zero(a, b));
}

// Reshapes (..., M, N) to (rows, N).
static ct_tensor matmul_flatten(ct_tensor t) {
    const ct_type *type = ct__type_of(t);
    int64_t rows = 1, last = type->rank - 1;
    for (int a = 0; a < last; a++) rows = ct__size_mul(rows, ct__size_of(type, a));
    return ct_reshape(t, CT_DIMS(rows, ct__size_of(type, (int)last)));
}

// Returns the cotangent of an operand, a product. If the operand is a transpose, the cotangent is recorded
// as the transpose of the transposed product, so that the tensor before the transpose gets a product in
// the order of its memory, with the same bits.
static ct_tensor matmul_cotangent(ct_tensor operand, ct_tensor a, ct_tensor b) {
    return ct__is_swapped(operand) ? ct__swap_last(ct_matmul(ct__swap_last(b), ct__swap_last(a)))
                                   : ct_matmul(a, b);
}

static bool matmul_transpose(ct_rule *r) {
    if (r->linear[0]) { // (..., M, K) from (..., M, N) and (..., K, N)
        r->c_in[0] = matmul_cotangent(r->in[0], r->c_out[0], ct__swap_last(r->in[1]));
        return true;
    }
    // One matrix for all batches: a single product over all rows instead of a sum of one product per
    // batch.
    bool shared = ct_rank(r->in[1]) == 2 && ct_rank(r->in[0]) > 2;
    ct_tensor a = shared ? matmul_flatten(r->in[0]) : r->in[0],
              c = shared ? matmul_flatten(r->c_out[0]) : r->c_out[0];
    r->c_in[1] = matmul_cotangent(r->in[1], ct__swap_last(a), c);
    return true;
}

static ct_tensor matmul_larger(const ct_match *match) {
    ct_tensor all = ct__match_attention(match);
    return ct__is_none(all) ? ct__match_dequantised_product(match) : all;
}

const ct_opdef ct__op_matmul = {
    CT_OP(MATMUL, matmul, contraction, 2, 1),
    .doc =
        "Matrix product of the last two axes, (..., M, K) and (..., K, N); the others broadcast. A "
        "vector is made a matrix of one row or one column first (ct_reshape). "
        "Integers keep their promoted dtype and wrap.",
    .accepts = CT_NUMBERS | CT_COMPLEX,
    .split = ct__split_contraction,
    .infer = matmul_infer,
    .contraction = matmul_axes,
    .jvp = matmul_jvp,
    .transpose = matmul_transpose,
    .larger = matmul_larger,
    .onnx = "MatMul",
    .stablehlo = "dot_general",
    .autocast = CT_CAST_LOW,
};
