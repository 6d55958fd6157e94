// Matrix products. The dot product's order of additions is fixed (docs/design/bits.md).
#include "ops/rules.h"

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
               ct__call_hint(call,
                             "axes before the last two, counted from these, must be equal or 1");
    (void)ct__same_size(a, a->rank - 1, b, b->rank - 2);
    ct_shape shape = ct__call_shape(call, batch.rank + 2);
    if (!shape.dim) return false;
    for (int i = 0; i < batch.rank; i++) ct__shape_add_axis(&shape, &batch, i);
    ct__shape_add_axis(&shape, a, a->rank - 2);
    ct__shape_add_axis(&shape, b, b->rank - 1);
    *call->out = ct__shaped(&shape, dtype, false);
    return true;
}

// The place of matrix `m` of the result in an operand that may broadcast.
static int64_t matrix_base(const ct_type *out, const ct_type *in, int64_t m) {
    int64_t base = 0, stride = in->dim[in->rank - 1] * in->dim[in->rank - 2];
    for (int i = out->rank - 3; i >= 0; i--) {
        int64_t at = m % out->dim[i];
        m /= out->dim[i];
        int own = i - (out->rank - in->rank);
        if (own < 0) continue;
        if (in->dim[own] != 1) base += at * stride;
        stride *= in->dim[own];
    }
    return base;
}

static bool matmul_eval(const ct_ref *ref) {
    const ct_type *a = &ref->in_type[0], *b = &ref->in_type[1], *out = ref->out_type;
    int64_t rows = out->dim[out->rank - 2], cols = out->dim[out->rank - 1],
            inner = a->dim[a->rank - 1], matrices = 1;
    for (int i = 0; i < out->rank - 2; i++) matrices *= out->dim[i];
    for (int64_t m = 0; m < matrices; m++) {
        int64_t at_a = matrix_base(out, a, m), at_b = matrix_base(out, b, m);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++) {
                double sum = 0;
                for (int64_t k = 0; k < inner; k++)
                    sum += ct__load_f64(a->dtype, ref->in[0], at_a + i * inner + k) *
                           ct__load_f64(b->dtype, ref->in[1], at_b + k * cols + j);
                ct__store_f64(out->dtype, ref->out[0], (m * rows + i) * cols + j, sum);
            }
    }
    return true;
}

static bool matmul_jvp(ct_rule *r) {
    ct_tensor a = ct__is_none(r->t_in[0]) ? CT_NONE : ct_matmul(r->t_in[0], r->in[1]);
    ct_tensor b = ct__is_none(r->t_in[1]) ? CT_NONE : ct_matmul(r->in[0], r->t_in[1]);
    r->t_out[0] = ct__add_zero(a, b);
    return true;
}

// (..., M, N) as (rows, N).
static ct_tensor flat(ct_tensor t) {
    const ct_type *type = ct__type_of(t);
    int64_t rows = 1, last = type->rank - 1;
    for (int a = 0; a < last; a++) rows = ct__size_mul(rows, ct__size_of(type, a));
    return ct_reshape(t, CT_DIMS(rows, ct__size_of(type, (int)last)));
}

static bool matmul_transpose(ct_rule *r) {
    if (r->linear[0]) { // (..., M, K) from (..., M, N) and (..., K, N)
        r->c_in[0] = ct_matmul(r->c_out[0], ct__swap_last(r->in[1]));
        return true;
    }
    // One matrix for all batches: a single product over all rows instead of one a batch and their
    // sum.
    bool shared = ct_rank(r->in[1]) == 2 && ct_rank(r->in[0]) > 2;
    ct_tensor a = shared ? flat(r->in[0]) : r->in[0], c = shared ? flat(r->c_out[0]) : r->c_out[0];
    r->c_in[1] = ct_matmul(ct__swap_last(a), c);
    return true;
}

const ct_opdef ct__op_matmul = {
    .id = CT_OP_MATMUL,
    .name = "matmul",
    .doc =
        "Matrix product of the last two axes, (..., M, K) and (..., K, N); the others broadcast. A "
        "vector is made a matrix of one row or one column first (ct_reshape).",
    .kind = &ct__kind_contraction,
    .n_in = 2,
    .n_out = 1,
    .accepts = CT_FLOATS | CT_COMPLEX,
    .split = ct__split_matmul,
    .infer = matmul_infer,
    .eval = matmul_eval,
    .jvp = matmul_jvp,
    .transpose = matmul_transpose,
    .onnx = "MatMul",
    .stablehlo = "dot_general",
};
