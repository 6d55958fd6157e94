// Linear algebra said in factors of matrices (lapack_ops.c) and products.
#include "kinds/batch.h"
#include "ops/matrices.h"

#define SAID(ID, op)                                                                               \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_composition, .accepts = CT_LINALG,            \
    .infer = op##_infer, .body = op##_body

static ct_tensor number(double value, ct_tensor like) { return ct__number_like(value, like); }
static ct_dtype out_dtype(const ct_rule *r, int i) { return (ct_dtype)r->node->out[i].dtype; }
// The types of operand 0 without its last two axes.
static bool numbers_out(ct_call *call, int out, ct_dtype dtype) {
    ct_type batch = *call->in[0];
    batch.rank = (uint8_t)(batch.rank - 2);
    return ct__matrix_out(call, out, dtype, &batch, 0, NULL);
}
static ct_dtype part_of(ct_dtype dtype) { return ct__is_complex(dtype) ? ct__part(dtype) : dtype; }

// ---------------------------------------------------------------------------------------------- solve

#define SOLVE_ATTRS(F, op) F(op, i64, transpose)
CT_ATTRS(solve, SOLVE_ATTRS);

static bool solve_infer(ct_call *call) {
    const ct_type *x = call->in[0], *y = call->in[1];
    ct_type batch;
    if (!ct__check_transpose(call, ((const solve_attrs *)call->attrs)->transpose) ||
        !ct__check_matrices(call, 0, true) || !ct__check_accepts(call, 1))
        return false;
    if (y->rank < 2)
        return ct__call_err(call, CT_E_SHAPE, "b is %s, and no matrix", ct__type_text(y).s) ||
               ct__call_hint(call,
                             "of one right side make a column: ct_reshape(b, CT_DIMS(-1, 1))");
    if (x->dim[x->rank - 1] != y->dim[y->rank - 2])
        return ct__call_err(call, CT_E_SHAPE, "sizes differ: a is %s, b is %s", ct__type_text(x).s,
                            ct__type_text(y).s) ||
               ct__call_hint(call, "they are (..., N, N) and (..., N, K)");
    const ct_dtype dtype = ct__promote(x->dtype, x->weak, y->dtype, y->weak);
    const int64_t sizes[2] = {ct__same_size(x, x->rank - 1, y, y->rank - 2),
                              ct__size_of(y, y->rank - 1)};
    return ct__batch_of(call, (int[]){2, 2}, &batch) &&
           ct__matrix_out(call, 0, dtype, &batch, 2, sizes);
}
static bool solve_body(ct_rule *r) {
    const ct_dtype dtype = out_dtype(r, 0);
    ct_lu_out lu =
        ct_lu(ct__to(r->in[0], dtype)); // of a matrix solved with twice there will be one
    r->body_out[0] = ct__lu_solve(lu.factors, lu.pivots, ct__to(r->in[1], dtype),
                                  ((const solve_attrs *)r->attrs)->transpose);
    return true;
}
// a x = b gives a x' = b' - a' x, with a and a' as they are meant.
static bool solve_jvp(ct_rule *r) {
    const int64_t transpose = ((const solve_attrs *)r->attrs)->transpose;
    ct_tensor b = r->t_in[1];
    if (!ct__is_none(r->t_in[0]))
        b = ct__add_zero(b, ct_neg(ct_matmul(ct__meant(r->t_in[0], transpose), r->out[0])));
    r->t_out[0] = ct_solve(r->in[0], b, .transpose = transpose);
    return true;
}
// Of x = inv(a) b the cotangent of b is inv(a)^T c.
static bool solve_transpose(ct_rule *r) {
    const int64_t transpose = ((const solve_attrs *)r->attrs)->transpose;
    ct_tensor c = transpose == 2 ? ct__conj_of(r->c_out[0]) : r->c_out[0];
    c = ct_solve(r->in[0], c, .transpose = transpose == 0);
    r->c_in[1] = transpose == 2 ? ct__conj_of(c) : c;
    return true;
}
const ct_opdef ct__op_solve = {
    SAID(SOLVE, solve),
    CT_FIELDS(solve),
    .core = {2, 2},
    .batch = ct__batch_cores,
    .n_in = 2,
    .n_out = 1,
    .jvp = solve_jvp,
    .transpose = solve_transpose,
    .doc = "The x of a x = b, for square matrices a (..., N, N) and right sides b (..., N, K); "
           "axes in "
           "front broadcast. `transpose` 1 means the transpose of a, 2 its conjugate transpose. A "
           "singular a is an error of the plan.",
};

static bool inv_infer(ct_call *call) {
    if (!ct__check_matrices(call, 0, true)) return false;
    *call->out = *call->in[0];
    return true;
}
static bool inv_body(ct_rule *r) {
    r->body_out[0] = ct_solve(r->in[0], ct__identity(r->in[0]));
    return true;
}
static bool inv_jvp(ct_rule *r) { // -inv(x) x' inv(x)
    r->t_out[0] = ct_neg(ct_matmul(ct_matmul(r->out[0], r->t_in[0]), r->out[0]));
    return true;
}
const ct_opdef ct__op_inv = {
    SAID(INV, inv),
    .n_in = 1,
    .n_out = 1,
    .jvp = inv_jvp,
    .doc = "The inverse of square matrices (..., N, N). A singular one is an error of the plan.",
};

// ---------------------------------------------------------------------------------------- determinants

static ct_tensor product(ct_tensor x) { // over the last axis
    const int64_t last = ct__type_of(x)->rank - 1;
    return ct_prod(x, .axes = {1, &last});
}
static ct_tensor sum_last(ct_tensor x) {
    const int64_t last = ct__type_of(x)->rank - 1;
    return ct_sum(x, .axes = {1, &last});
}
// 1 or -1, by how many rows were exchanged; (...).
static ct_tensor parity(ct_tensor pivots, ct_tensor like) {
    const int64_t n = ct__size_like(pivots, ct__type_of(pivots)->rank - 1);
    ct_tensor stays = ct_equal(pivots, ct_iota(CT_I32, CT_DIMS(n), 0));
    return product(ct_select(stays, number(1, like), number(-1, like)));
}
static ct_tensor trace_of(ct_tensor x) { return sum_last(ct__diagonal_of(x)); }

static bool det_infer(ct_call *call) {
    return ct__check_matrices(call, 0, true) && numbers_out(call, 0, (ct_dtype)call->in[0]->dtype);
}
static bool det_body(ct_rule *r) {
    ct_lu_out lu = ct_lu(r->in[0]);
    ct_tensor diagonal = ct__diagonal_of(lu.factors);
    r->body_out[0] = ct_mul(product(diagonal), parity(lu.pivots, diagonal));
    return true;
}
static bool det_jvp(ct_rule *r) { // det(x) trace(inv(x) x')
    r->t_out[0] = ct_mul(r->out[0], trace_of(ct_solve(r->in[0], r->t_in[0])));
    return true;
}
const ct_opdef ct__op_det = {
    SAID(DET, det),
    .n_in = 1,
    .n_out = 1,
    .jvp = det_jvp,
    .doc =
        "The determinant of square matrices (..., N, N); of a singular one 0. Its derivative wants "
        "the inverse: there a singular matrix is an error of the plan.",
};

static bool slogdet_infer(ct_call *call) {
    const ct_dtype dtype = (ct_dtype)call->in[0]->dtype;
    return ct__check_matrices(call, 0, true) && numbers_out(call, 0, dtype) &&
           numbers_out(call, 1, part_of(dtype));
}
static bool slogdet_body(ct_rule *r) {
    ct_lu_out lu = ct_lu(r->in[0]);
    ct_tensor diagonal = ct__diagonal_of(lu.factors), size = ct_abs(diagonal), sign;
    if (ct__is_complex(out_dtype(r, 0))) {
        ct_tensor zero = ct_equal(size, number(0, size));
        sign = ct_select(zero, number(0, diagonal),
                         ct_div(diagonal, ct_select(zero, number(1, size), size)));
    } else {
        sign = ct_sign(diagonal);
    }
    r->body_out[0] = ct_mul(product(sign), parity(lu.pivots, sign));
    r->body_out[1] = sum_last(ct_log(size));
    return true;
}
static bool slogdet_jvp(ct_rule *r) {
    ct_tensor t = trace_of(ct_solve(r->in[0], r->t_in[0]));
    r->t_out[0] = CT_NONE;
    r->t_out[1] = ct__real_of(t);
    if (ct__is_complex(out_dtype(r, 0))) { // it turns by the imaginary part
        ct_tensor turn = ct_complex(ct__zeros_like(r->t_out[1]), ct_imag(t));
        r->t_out[0] = ct_mul(r->out[0], turn);
    }
    return true;
}
const ct_opdef ct__op_slogdet = {
    SAID(SLOGDET, slogdet),
    .n_in = 1,
    .n_out = 2,
    .jvp = slogdet_jvp,
    .doc = "The determinant of square matrices (..., N, N) as its `sign` (of size 1, a complex "
           "number of "
           "complex matrices) and the logarithm of its size; of a singular one 0 and -infinity. "
           "Its derivative wants the inverse, as that of det.",
};
