// Linear algebra that is composed of factorisations (lapack_ops.c) and products.
#include <math.h>
#include <stdlib.h>

#include "kinds/batch.h"
#include "ops/matrices.h"

#define LINALG_OP(ID, op, ins, outs)                                                               \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_composition, .n_in = ins, .n_out = outs,      \
    .accepts = CT_LINALG, .infer = op##_infer, .body = op##_body

static ct_dtype linalg_out_dtype(const ct_rule *r, int i) {
    return (ct_dtype)r->node->out[i].dtype;
}
// Sets the type of a result with a number for each matrix: operand 0 without its last two axes.
static bool linalg_batch_type(ct_call *call, int out, ct_dtype dtype) {
    return ct__factor_out(call, out, dtype, 0, 0, 0);
}

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
    const ct_dtype dtype = linalg_out_dtype(r, 0);
    ct_lu_out lu = ct_lu(ct__to(
        r->in[0],
        dtype)); // a matrix that is solved with twice is factorised once (common subexpressions)
    return ct__set_body(r, ct__lu_solve(lu.factors, lu.pivots, ct__to(r->in[1], dtype),
                                        ((const solve_attrs *)r->attrs)->transpose));
}
// a x = b gives a x' = b' - a' x, where a and a' are transposed if the attribute says so.
static bool solve_jvp(ct_rule *r) {
    const int64_t transpose = ((const solve_attrs *)r->attrs)->transpose;
    ct_tensor b = r->t_in[1];
    if (!ct__is_none(r->t_in[0]))
        b = ct__add_zero(b,
                         ct_neg(ct_matmul(ct__apply_transpose(r->t_in[0], transpose), r->out[0])));
    return ct__set_tangent(r, ct_solve(r->in[0], b, .transpose = transpose));
}
// x = inv(a) b, so the cotangent of b is inv(a)^T c.
static bool solve_transpose(ct_rule *r) {
    const int64_t transpose = ((const solve_attrs *)r->attrs)->transpose;
    ct_tensor c = transpose == 2 ? ct__conj_of(r->c_out[0]) : r->c_out[0];
    c = ct_solve(r->in[0], c, .transpose = transpose == 0);
    r->c_in[1] = transpose == 2 ? ct__conj_of(c) : c;
    return true;
}
const ct_opdef ct__op_solve = {
    LINALG_OP(SOLVE, solve, 2, 1),
    CT_FIELDS(solve),
    .core = {2, 2},
    .batch = ct__batch_cores,
    .jvp = solve_jvp,
    .transpose = solve_transpose,
    .doc = "The x of a x = b, for square matrices a (..., N, N) and right sides b (..., N, K); "
           "axes in "
           "front broadcast. `transpose` 1 means the transpose of a, 2 its conjugate transpose. A "
           "singular a is an error of the plan.",
    .autocast = CT_CAST_F32,
};

static bool inv_infer(ct_call *call) {
    if (!ct__check_matrices(call, 0, true)) return false;
    *call->out = *call->in[0];
    return true;
}
static bool inv_body(ct_rule *r) {
    return ct__set_body(r, ct_solve(r->in[0], ct__identity(r->in[0])));
}
static bool inv_jvp(ct_rule *r) { // -inv(x) x' inv(x)
    return ct__set_tangent(r, ct_neg(ct_matmul(ct_matmul(r->out[0], r->t_in[0]), r->out[0])));
}
const ct_opdef ct__op_inv = {
    LINALG_OP(INV, inv, 1, 1),
    .core = {2},
    .batch = ct__batch_cores,
    .jvp = inv_jvp,
    .doc = "The inverse of square matrices (..., N, N). A singular one is an error of the plan.",
    .autocast = CT_CAST_F32,
};

// ---------------------------------------------------------------------------------------- determinants

static ct_tensor linalg_prod_last(ct_tensor x) { // over the last axis
    const int64_t last = ct__type_of(x)->rank - 1;
    return ct_prod(x, .axes = {1, &last});
}
static ct_tensor linalg_sum_last(ct_tensor x) {
    const int64_t last = ct__type_of(x)->rank - 1;
    return ct_sum(x, .axes = {1, &last});
}
// Returns 1 or -1, (...), by the parity of the number of row exchanges.
static ct_tensor linalg_parity(ct_tensor pivots, ct_tensor like) {
    const int64_t n = ct__size_like(pivots, ct__type_of(pivots)->rank - 1);
    ct_tensor is_fixed = ct_equal(pivots, ct_iota(CT_I32, CT_DIMS(n), 0));
    return linalg_prod_last(
        ct_select(is_fixed, ct__number_like(1, like), ct__number_like(-1, like)));
}
static ct_tensor linalg_trace(ct_tensor x) { return linalg_sum_last(ct__diagonal_of(x)); }

static bool det_infer(ct_call *call) {
    return ct__check_matrices(call, 0, true) &&
           linalg_batch_type(call, 0, (ct_dtype)call->in[0]->dtype);
}
static bool det_body(ct_rule *r) {
    ct_lu_out lu = ct_lu(r->in[0]);
    ct_tensor diagonal = ct__diagonal_of(lu.factors);
    return ct__set_body(r, ct_mul(linalg_prod_last(diagonal), linalg_parity(lu.pivots, diagonal)));
}
// The factors of x, with a small number in place of each pivot that is 0, so that they have inverses.
typedef struct {
    ct_tensor zero;         // (..., N) bool: pivots that are 0
    ct_tensor diagonal;     // (..., N)
    ct_tensor parity, step; // (...) 1 or -1; (..., N, N) inv(x) x'
} det_parts;
static det_parts det_regularise(const ct_rule *r) {
    const int64_t batch = ct__type_of(r->in[0])->rank - 2, both[2] = {batch, batch + 1};
    const ct_tensor t = r->t_in[0];
    ct_lu_out lu = ct_lu(r->in[0]);
    ct_tensor diagonal = ct__diagonal_of(lu.factors);
    ct_tensor size = ct_abs(ct__upper_part(lu.factors, 0));
    ct_tensor largest = ct_max(ct_stop_gradient(size), .axes = {2, both}); // (...)
    ct_tensor none = ct_equal(largest, ct__number_like(0, largest));
    ct_tensor smallest = ct_mul(ct_select(none, ct__number_like(1, largest), largest),
                                ct__number_like(0x1p-50, largest));
    ct_tensor zero = ct_equal(diagonal, ct__number_like(0, diagonal));
    ct_tensor more = ct_select(zero, ct__to(ct__add_last(smallest), linalg_out_dtype(r, 0)),
                               ct__number_like(0, diagonal)); // (..., N)
    ct_tensor factors = ct_add(lu.factors, ct__scale_columns(ct__identity(lu.factors), more));
    ct_tensor rows = ct_gather(t, lu.order, .axis = -2, .batch_dims = batch);
    ct_tensor step = ct_triangular_solve(factors, rows, .unit = true);
    return (det_parts){.zero = zero,
                       .diagonal = ct_add(diagonal, more),
                       .parity = linalg_parity(lu.pivots, diagonal),
                       .step = ct_triangular_solve(factors, step, .upper = true)};
}
// Returns the cofactors times x', for matrices of any rank: for x = u diag(s) vh the cofactor of each
// singular value is the product of the others, times det(u) det(vh). A singular matrix may have several
// pivots that are 0, whatever its rank.
static ct_tensor det_cofactors_times(const ct_rule *r) {
    ct_svd_out f = ct_svd(ct_stop_gradient(r->in[0]));
    const ct_dtype dtype = linalg_out_dtype(r, 0);
    ct_tensor others =
        ct_cast(ct__product_of_others(f.s, ct__type_of(f.s)->rank - 1), dtype); // (..., N)
    ct_tensor own = ct_matmul(ct_matmul(ct__adjoint(f.u), r->t_in[0]), ct__adjoint(f.vh));
    ct_tensor phase = ct_mul(ct_det(f.u), ct_det(f.vh)); // (...)
    return ct_mul(phase, linalg_sum_last(ct_mul(ct__diagonal_of(own), others)));
}
static bool det_jvp(ct_rule *r) { // det(x) trace(inv(x) x')
    det_parts d = det_regularise(r);
    const int64_t last = ct__type_of(d.zero)->rank - 1;
    ct_tensor singular = ct_any(d.zero, .axes = {1, &last}); // (...)
    ct_tensor slope = ct_mul(ct_mul(linalg_prod_last(d.diagonal), d.parity), linalg_trace(d.step));
    return ct__set_tangent(r, ct_select(singular, det_cofactors_times(r), slope));
}
const ct_opdef ct__op_det = {
    LINALG_OP(DET, det, 1, 1),
    .core = {2},
    .batch = ct__batch_cores,
    .jvp = det_jvp,
    .doc = "The determinant of square matrices (..., N, N); of a singular one 0. Its gradient are "
           "the cofactors, of a singular matrix too; the gradient of that one needs the inverse: "
           "there a singular matrix is an error of the plan.",
};

static bool slogdet_infer(ct_call *call) {
    const ct_dtype dtype = (ct_dtype)call->in[0]->dtype;
    return ct__check_matrices(call, 0, true) && linalg_batch_type(call, 0, dtype) &&
           linalg_batch_type(call, 1, ct__part_or_own(dtype));
}
static bool slogdet_body(ct_rule *r) {
    ct_lu_out lu = ct_lu(r->in[0]);
    ct_tensor diagonal = ct__diagonal_of(lu.factors), size = ct_abs(diagonal), sign;
    if (ct__is_complex(linalg_out_dtype(r, 0))) {
        ct_tensor zero = ct_equal(size, ct__number_like(0, size));
        sign = ct_select(zero, ct__number_like(0, diagonal),
                         ct_div(diagonal, ct_select(zero, ct__number_like(1, size), size)));
    } else {
        sign = ct_sign(diagonal);
    }
    r->body_out[0] = ct_mul(linalg_prod_last(sign), linalg_parity(lu.pivots, sign));
    r->body_out[1] = linalg_sum_last(ct_log(size));
    return true;
}
static bool slogdet_jvp(ct_rule *r) {
    det_parts d = det_regularise(r);
    const int64_t last = ct__type_of(d.zero)->rank - 1;
    ct_tensor singular = ct_any(d.zero, .axes = {1, &last}), one = ct__number_like(1, d.diagonal);
    ct_tensor t =
        ct_mul(linalg_trace(d.step), ct_select(singular, ct__number_like(INFINITY, one), one));
    r->t_out[0] = CT_NONE;
    r->t_out[1] = ct__real_of(t);
    if (ct__is_complex(linalg_out_dtype(r, 0))) { // the sign changes by the imaginary part
        ct_tensor phase = ct_complex(ct__zeros_like(r->t_out[1]), ct_imag(t));
        r->t_out[0] = ct_mul(r->out[0], phase);
    }
    return true;
}
const ct_opdef ct__op_slogdet = {
    LINALG_OP(SLOGDET, slogdet, 1, 2),
    .core = {2},
    .batch = ct__batch_cores,
    .jvp = slogdet_jvp,
    .doc = "The determinant of square matrices (..., N, N) as its `sign` (of size 1, a complex "
           "number of "
           "complex matrices) and the logarithm of its size; of a singular one 0 and -infinity. "
           "Its gradient there is infinite or NaN, that of other matrices of the batch is not.",
};

// ------------------------------------------------------------------------------------- least squares

#define PINV_ATTRS(F, op) F(op, num, rtol)
CT_ATTRS(pinv, PINV_ATTRS);
CT_ATTRS(lstsq, PINV_ATTRS);
CT_ATTRS(matrix_rank, PINV_ATTRS);

// Returns which singular values s of x are not negligible, as bool: those above `rtol` times the largest,
// by default above the rounding errors of a matrix of that size.
static ct_tensor linalg_significant(ct_tensor s, ct_tensor x, ct_num rtol) {
    const ct_type *type = ct__type_of(x);
    const int64_t m = type->dim[type->rank - 2], n = type->dim[type->rank - 1];
    const int64_t last = ct__type_of(s)->rank - 1;
    const double eps = ldexp(1, -ct__dtype((ct_dtype)ct__type_of(s)->dtype)->mantissa);
    const double part = ct__num_or(rtol, (double)(m > n ? m : n) * eps);
    if (!m || !n) return ct_less(s, s);
    ct_tensor largest = ct_max(s, .axes = {1, &last}, .keepdims = true);
    return ct_less(ct_mul(largest, ct__number_like(part, s)), s);
}
static bool pinv_infer(ct_call *call) {
    if (!ct__check_matrices(call, 0, false)) return false;
    const ct_type *x = call->in[0];
    return ct__factor_out(call, 0, (ct_dtype)x->dtype, 2, ct__size_of(x, x->rank - 1),
                          ct__size_of(x, x->rank - 2));
}
static bool pinv_body(ct_rule *r) {
    ct_svd_out f = ct_svd(r->in[0]);
    ct_tensor keep = linalg_significant(f.s, r->in[0], ((const pinv_attrs *)r->attrs)->rtol);
    ct_tensor by = ct_div(ct__number_like(1, f.s), ct_select(keep, f.s, ct__number_like(1, f.s)));
    by = ct_select(keep, by, ct__number_like(0, f.s));
    return ct__set_body(r, ct_matmul(ct__scale_columns(ct__adjoint(f.vh), by), ct__adjoint(f.u)));
}
// Golub and Pereyra's derivative: -P x' P + P P^H x'^H (I - x P) + (I - P x) x'^H P^H P.
static bool pinv_jvp(ct_rule *r) {
    ct_tensor p = r->out[0], x = r->in[0], t = r->t_in[0];
    ct_tensor ph = ct__adjoint(p), th = ct__adjoint(t);
    ct_tensor left = ct_matmul(ct_matmul(p, ph), th), right = ct_matmul(ct_matmul(th, ph), p);
    left = ct_sub(left, ct_matmul(ct_matmul(left, x), p));
    right = ct_sub(right, ct_matmul(p, ct_matmul(x, right)));
    return ct__set_tangent(r, ct_sub(ct_add(left, right), ct_matmul(ct_matmul(p, t), p)));
}
const ct_opdef ct__op_pinv = {
    LINALG_OP(PINV, pinv, 1, 1),
    CT_FIELDS(pinv),
    .core = {2},
    .batch = ct__batch_cores,
    .jvp = pinv_jvp,
    .doc =
        "The pseudo-inverse (..., N, M) of matrices (..., M, N). Singular values count where they "
        "are "
        "above `rtol` times the largest (default: the larger of M and N times the dtype's step).",
    .autocast = CT_CAST_F32,
};

static bool lstsq_infer(ct_call *call) {
    const ct_type *x = call->in[0], *y = call->in[1];
    ct_type batch;
    if (!ct__check_matrices(call, 0, false) || !ct__check_matrices(call, 1, false)) return false;
    if (x->dim[x->rank - 2] != y->dim[y->rank - 2])
        return ct__call_err(call, CT_E_SHAPE, "rows differ: a is %s, b is %s", ct__type_text(x).s,
                            ct__type_text(y).s) ||
               ct__call_hint(call, "they are (..., M, N) and (..., M, K)");
    (void)ct__same_size(x, x->rank - 2, y, y->rank - 2);
    const ct_dtype dtype = ct__promote(x->dtype, x->weak, y->dtype, y->weak);
    const int64_t sizes[2] = {ct__size_of(x, x->rank - 1), ct__size_of(y, y->rank - 1)};
    return ct__batch_of(call, (int[]){2, 2}, &batch) &&
           ct__matrix_out(call, 0, dtype, &batch, 2, sizes);
}
static bool lstsq_body(ct_rule *r) {
    ct_num rtol = ((const lstsq_attrs *)r->attrs)->rtol;
    ct_tensor p = ct_pinv(r->in[0], .rtol = rtol);
    return ct__set_body(
        r, ct_matmul(ct__to(p, linalg_out_dtype(r, 0)), ct__to(r->in[1], linalg_out_dtype(r, 0))));
}
const ct_opdef ct__op_lstsq = {
    LINALG_OP(LSTSQ, lstsq, 2, 1),
    CT_FIELDS(lstsq),
    .core = {2, 2},
    .batch = ct__batch_cores,
    .doc = "The x (..., N, K) for which a x is nearest to b, the shortest of several, for matrices "
           "a (..., "
           "M, N) and b (..., M, K); axes in front broadcast. `rtol` is as in pinv.",
    .autocast = CT_CAST_F32,
};

static bool matrix_rank_infer(ct_call *call) {
    return ct__check_matrices(call, 0, false) && linalg_batch_type(call, 0, CT_I64);
}
static bool matrix_rank_body(ct_rule *r) {
    ct_tensor s = ct_svdvals(r->in[0]);
    ct_tensor keep = linalg_significant(s, r->in[0], ((const matrix_rank_attrs *)r->attrs)->rtol);
    return ct__set_body(r, linalg_sum_last(ct_cast(keep, CT_I64)));
}
const ct_opdef ct__op_matrix_rank = {
    LINALG_OP(MATRIX_RANK, matrix_rank, 1, 1),
    CT_FIELDS(matrix_rank),
    .core = {2},
    .batch = ct__batch_cores,
    .jvp = CT_NO_GRAD,
    .doc = "How many singular values of matrices (..., M, N) count, by `rtol` as in pinv; i64.",
    .autocast = CT_CAST_F32,
};

#define MATRIX_POWER_ATTRS(F, op) F(op, i64, n)
CT_ATTRS(matrix_power, MATRIX_POWER_ATTRS);
static bool matrix_power_infer(ct_call *call) { return inv_infer(call); }
static bool matrix_power_body(ct_rule *r) {
    const int64_t n = ((const matrix_power_attrs *)r->attrs)->n;
    uint64_t left = n < 0 ? (uint64_t)0 - (uint64_t)n : (uint64_t)n;
    ct_tensor power = n < 0 ? ct_inv(r->in[0]) : r->in[0], all = CT_NONE;
    for (; left; left >>= 1) {
        if (left & 1) all = ct__is_none(all) ? power : ct_matmul(all, power);
        if (left > 1) power = ct_matmul(power, power);
    }
    if (ct__is_none(all)) {
        ct_dims_buffer dims;
        all = ct_expand(ct__identity(power), ct__dims_of(power, &dims));
    }
    return ct__set_body(r, all);
}
const ct_opdef ct__op_matrix_power = {
    LINALG_OP(MATRIX_POWER, matrix_power, 1, 1),
    CT_FIELDS(matrix_power),
    .core = {2},
    .batch = ct__batch_cores,
    .doc = "The product of n times the square matrix x, (..., N, N); of n below 0 of its inverse.",
};

// ----------------------------------------------------------------------------------------------- norms

// Returns |x| times a scale, or with `square` its square, for which complex numbers need no root.
static ct_tensor norm_abs(ct_tensor x, ct_tensor scale, bool square) {
    if (!square) return ct_mul(ct_abs(x), scale);
    const bool complex = ct__is_complex((ct_dtype)ct__type_of(x)->dtype);
    ct_tensor re = ct_mul(complex ? ct_real(x) : x, scale);
    if (!complex) return ct_mul(re, re);
    ct_tensor im = ct_mul(ct_imag(x), scale);
    return ct_add(ct_mul(re, re), ct_mul(im, im));
}

// Returns a power of 2, (..., 1), by which absolute values are multiplied so that their powers to p
// neither overflow nor underflow. It is 1 except where the largest value is very large or very small.
static ct_tensor norm_scale(ct_tensor x, const ct_ints *axes, double p) {
    ct_tensor largest = ct_abs(ct_stop_gradient(x));
    const bool wide = ct__type_of(largest)->dtype == CT_F64;
    const double limit = wide ? 1022 : 126, edge = (wide ? 800 : 100) / fabs(p);
    if (axes->n) largest = ct_max(largest, .axes = *axes, .keepdims = true);
    ct_tensor exponent = ct_neg(ct_floor(ct_log2(largest)));
    exponent = ct_maximum(ct_minimum(exponent, ct__number_like(limit, largest)),
                          ct__number_like(-limit, largest));
    ct_tensor beyond = ct_greater(largest, ct__number_like(exp2(fmin(edge, limit)), largest));
    ct_tensor below = ct_less(largest, ct__number_like(exp2(fmax(-edge, -limit)), largest));
    beyond = ct_and(beyond,
                    ct_less(largest, ct__number_like(INFINITY, largest))); // infinity is not scaled
    ct_tensor one = ct__number_like(1, largest), scale = ct_exp2(exponent);
    scale = ct_select(ct_or(beyond, below), scale, one);
    return ct_select(ct_greater(largest, ct__number_like(0, largest)), scale, one);
}

#define VECTOR_NORM_ATTRS(F, op) F(op, axes, axes) F(op, bool, keepdims) F(op, num, ord)
CT_ATTRS(vector_norm, VECTOR_NORM_ATTRS);
static bool vector_norm_infer(ct_call *call) {
    if (!ct__check_accepts(call, 0) || !ct__infer_reduce(call)) return false;
    call->out->dtype = (uint8_t)ct__part_or_own((ct_dtype)call->out->dtype);
    return true;
}
// Returns x^p of absolute values. Where the derivative at 0 would be infinite and the gradient NaN, it is
// 0.
static ct_tensor norm_power(ct_tensor x, double p) {
    if (p > 1) return ct_pow(x, ct__number_like(p, x));
    ct_tensor none = ct_equal(x, ct__number_like(0, x));
    ct_tensor power = ct_pow(ct_select(none, ct__number_like(1, x), x), ct__number_like(p, x));
    return ct_select(none, ct__number_like(p > 0 ? 0 : INFINITY, x), power);
}
static bool vector_norm_body(ct_rule *r) {
    const vector_norm_attrs *a = r->attrs;
    const double p = ct__num_or(a->ord, 2);
    const ct_tensor x = r->in[0];
    if (isinf(p)) {
        ct_tensor size = ct_abs(x), all = size;
        if (a->axes.n)
            all = p > 0 ? ct_max(size, .axes = a->axes, .keepdims = a->keepdims)
                        : ct_min(size, .axes = a->axes, .keepdims = a->keepdims);
        r->body_out[0] = all;
        return true;
    }
    if (p == 0 || p == 1) {
        ct_tensor size =
            p == 1 ? ct_abs(x)
                   : ct_cast(ct_not_equal(x, ct__number_like(0, x)), linalg_out_dtype(r, 0));
        r->body_out[0] = a->axes.n ? ct_sum(size, .axes = a->axes, .keepdims = a->keepdims) : size;
        return true;
    }
    ct_tensor scale = norm_scale(x, &a->axes, p), power = norm_abs(x, scale, p == 2);
    if (p != 2) power = norm_power(power, p);
    if (a->axes.n) power = ct_sum(power, .axes = a->axes, .keepdims = true);
    return ct__set_body(r, ct__of_type(ct_div(ct__root_or_zero(power, p), scale), r->node->out));
}
const ct_opdef ct__op_vector_norm = {
    LINALG_OP(VECTOR_NORM, vector_norm, 1, 1),
    CT_FIELDS(vector_norm),
    .batch = ct__batch_shifted,
    .doc = "The norm over axes (default: all) of order `ord` (default 2): the root of the sum of "
           "sizes to "
           "that power; of infinity the largest size, of -infinity the smallest, of 0 how many are "
           "not 0. Its gradient where it is 0 is 0.",
    .autocast = CT_CAST_F32,
};

#define MATRIX_NORM_ATTRS(F, op) F(op, bool, keepdims) F(op, num, ord) F(op, bool, nuclear)
CT_ATTRS(matrix_norm, MATRIX_NORM_ATTRS);
// Checks that `ord` is none, 1, -1, 2, -2, infinity or -infinity.
static bool norm_check_order(ct_call *call, ct_num ord) {
    const double p = fabs(ct__num_or(ord, 2));
    return p == 1 || p == 2 || isinf(p) ||
           ct__call_err(call, CT_E_ARGUMENT,
                        "ord is %g: norms of matrices are of 1, -1, 2, -2, infinity and -infinity",
                        ct__num_or(ord, 2));
}
static bool matrix_norm_infer(ct_call *call) {
    const matrix_norm_attrs *attrs = call->attrs;
    const ct_dtype dtype = ct__part_or_own((ct_dtype)call->in[0]->dtype);
    return ct__check_matrices(call, 0, false) && norm_check_order(call, attrs->ord) &&
           ct__factor_out(call, 0, dtype, attrs->keepdims ? 2 : 0, 1, 1);
}
static ct_tensor matrix_norm(ct_tensor x, ct_num ord, bool nuclear) { // (...)
    const double p = ct__num_or(ord, 2);
    const int64_t rows = ct__type_of(x)->rank - 2, both[2] = {rows, rows + 1};
    const int64_t summed_axis =
        isinf(p) ? rows + 1
                 : rows; // sums along this axis, then takes the largest sum along the other
    if (nuclear) return linalg_sum_last(ct_svdvals(x));
    if (!ct__num_given(ord)) return ct_vector_norm(x, .axes = {2, both});
    ct_tensor of = fabs(p) == 2 ? ct_svdvals(x) : ct_sum(ct_abs(x), .axes = {1, &summed_axis});
    return p > 0 ? ct_max(of, .axes = {1, &rows}) : ct_min(of, .axes = {1, &rows});
}
static bool matrix_norm_body(ct_rule *r) {
    const matrix_norm_attrs *a = r->attrs;
    return ct__set_body(r, ct__of_type(matrix_norm(r->in[0], a->ord, a->nuclear), r->node->out));
}
const ct_opdef ct__op_matrix_norm = {
    LINALG_OP(MATRIX_NORM, matrix_norm, 1, 1),
    CT_FIELDS(matrix_norm),
    .core = {2},
    .batch = ct__batch_cores,
    .doc = "The norm of matrices (..., M, N), as axes of 1 with `keepdims`: the root of the sum of "
           "squares "
           "(Frobenius); of `ord` 1 the largest sum of a column's sizes, of infinity of a row's, "
           "of 2 the "
           "largest singular value; of -1, -infinity and -2 the smallest; `nuclear`: the sum of "
           "singular "
           "values.",
    .autocast = CT_CAST_F32,
};

#define MATRIX_COND_ATTRS(F, op) F(op, num, ord)
CT_ATTRS(matrix_cond, MATRIX_COND_ATTRS);
static bool matrix_cond_infer(ct_call *call) {
    const ct_num ord = ((const matrix_cond_attrs *)call->attrs)->ord;
    const bool square = fabs(ct__num_or(ord, 2)) != 2;
    return ct__check_matrices(call, 0, square) && norm_check_order(call, ord) &&
           linalg_batch_type(call, 0, ct__part_or_own((ct_dtype)call->in[0]->dtype));
}
static bool matrix_cond_body(ct_rule *r) {
    const ct_num ord = ((const matrix_cond_attrs *)r->attrs)->ord;
    const double p = ct__num_or(ord, 2);
    const int64_t last = ct__type_of(r->in[0])->rank - 2;
    if (fabs(p) != 2) {
        ct_tensor of_inverse = matrix_norm(ct_inv(r->in[0]), ord, false);
        r->body_out[0] = ct_mul(matrix_norm(r->in[0], ord, false), of_inverse);
        return true;
    }
    ct_tensor s = ct_svdvals(r->in[0]);
    ct_tensor largest = ct_max(s, .axes = {1, &last}), smallest = ct_min(s, .axes = {1, &last});
    return ct__set_body(r, p > 0 ? ct_div(largest, smallest) : ct_div(smallest, largest));
}
const ct_opdef ct__op_matrix_cond = {
    LINALG_OP(MATRIX_COND, matrix_cond, 1, 1),
    CT_FIELDS(matrix_cond),
    .core = {2},
    .batch = ct__batch_cores,
    .doc =
        "The condition number of matrices (..., M, N): the norm of order `ord` (default 2) of x "
        "times "
        "that of its inverse; of 2 and -2, the ratio of its singular values, x need not be square.",
    .autocast = CT_CAST_F32,
};

// ------------------------------------------------------------------------- products and parts of matrices

#define MATRIX_OP(ID, op, ins, outs)                                                               \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_composition, .n_in = ins, .n_out = outs,      \
    .infer = op##_infer, .body = op##_body, .batch = ct__batch_cores

// Checks two operands and computes their common dtype, and the batch before their last `core` axes.
static bool linalg_pair_infer(ct_call *call, int core, ct_dtype *dtype, ct_type *batch) {
    const ct_type *a = call->in[0], *b = call->in[1];
    *dtype = ct__promote(a->dtype, a->weak, b->dtype, b->weak);
    if (!ct__check_accepts(call, 0) || !ct__check_accepts(call, 1)) return false;
    if (*dtype == CT_DEFAULT) return ct__no_promotion(call, (ct_dtype)a->dtype, (ct_dtype)b->dtype);
    if (a->rank < core || b->rank < core)
        return ct__call_err(call, CT_E_SHAPE, "both operands need %s: a is %s, b is %s",
                            core == 2 ? "two axes" : "an axis", ct__type_text(a).s,
                            ct__type_text(b).s);
    return ct__batch_of(call, (int[]){core, core}, batch);
}
static bool linalg_check_lengths(ct_call *call,
                                 int64_t length) { // of the last axes; length -1: any
    const ct_type *a = call->in[0], *b = call->in[1];
    const int64_t n = a->dim[a->rank - 1], k = b->dim[b->rank - 1];
    if (length >= 0 && (n != length || k != length))
        return ct__call_err(call, CT_E_SHAPE, "last axes have %lld elements: a is %s, b is %s",
                            (long long)length, ct__type_text(a).s, ct__type_text(b).s);
    if (n != k)
        return ct__call_err(call, CT_E_SHAPE, "last axes differ: a is %s, b is %s",
                            ct__type_text(a).s, ct__type_text(b).s);
    (void)ct__same_size(a, a->rank - 1, b, b->rank - 1);
    return true;
}

static bool vecdot_infer(ct_call *call) {
    ct_type batch;
    ct_dtype dtype;
    return linalg_pair_infer(call, 1, &dtype, &batch) && linalg_check_lengths(call, -1) &&
           ct__matrix_out(call, 0, dtype, &batch, 0, NULL);
}
static bool vecdot_body(ct_rule *r) {
    ct_tensor a = ct__to(r->in[0], linalg_out_dtype(r, 0)),
              b = ct__to(r->in[1], linalg_out_dtype(r, 0));
    return ct__set_body(r, linalg_sum_last(ct_mul(ct__conj_of(a), b)));
}
const ct_opdef ct__op_vecdot = {
    MATRIX_OP(VECDOT, vecdot, 2, 1),
    .core = {1, 1},
    .accepts = CT_NUMBERS | CT_COMPLEX,
    .widens = true,
    .doc = "Sums of products along the last axes, a conjugated; axes in front broadcast.",
    .autocast = CT_CAST_LOW,
};

static bool outer_infer(ct_call *call) {
    ct_type batch;
    ct_dtype dtype;
    if (!linalg_pair_infer(call, 1, &dtype, &batch)) return false;
    const int64_t sizes[2] = {ct__size_of(call->in[0], call->in[0]->rank - 1),
                              ct__size_of(call->in[1], call->in[1]->rank - 1)};
    return ct__matrix_out(call, 0, dtype, &batch, 2, sizes);
}
static bool outer_body(ct_rule *r) {
    return ct__set_body(r, ct_mul(ct__add_last(r->in[0]), ct__swap_last(ct__add_last(r->in[1]))));
}
const ct_opdef ct__op_outer = {
    MATRIX_OP(OUTER, outer, 2, 1),
    .core = {1, 1},
    .accepts = CT_NUMBERS | CT_COMPLEX,
    .widens = true,
    .doc = "All products of an element of a, (..., M), and one of b, (..., N): (..., M, N).",
};

static bool cross_infer(ct_call *call) {
    ct_type batch;
    ct_dtype dtype;
    return linalg_pair_infer(call, 1, &dtype, &batch) && linalg_check_lengths(call, 3) &&
           ct__matrix_out(call, 0, dtype, &batch, 1, (int64_t[]){3});
}
// Rotates the last axis: element i of the result is element i + by of x.
static ct_tensor cross_rotate(ct_tensor x, int64_t by) {
    const int64_t axis = ct__type_of(x)->rank - 1;
    ct_tensor front = ct__slice_axis(x, axis, by, CT_END), back = ct__slice_axis(x, axis, 0, by);
    return ct_concat(((ct_tensor[]){front, back}), 2, axis);
}
static bool cross_body(ct_rule *r) {
    ct_tensor a = r->in[0], b = r->in[1];
    return ct__set_body(r, ct_sub(ct_mul(cross_rotate(a, 1), cross_rotate(b, 2)),
                                  ct_mul(cross_rotate(a, 2), cross_rotate(b, 1))));
}
const ct_opdef ct__op_cross = {
    MATRIX_OP(CROSS, cross, 2, 1),
    .core = {1, 1},
    .accepts = CT_NUMBERS | CT_COMPLEX,
    .widens = true,
    .doc =
        "The cross product of vectors of three elements, the last axes; axes in front broadcast.",
    .autocast = CT_CAST_WIDEST,
};

static bool kron_infer(ct_call *call) {
    const ct_type *a = call->in[0], *b = call->in[1];
    ct_type batch;
    ct_dtype dtype;
    if (!linalg_pair_infer(call, 2, &dtype, &batch)) return false;
    const int64_t sizes[2] = {
        ct__size_mul(ct__size_of(a, a->rank - 2), ct__size_of(b, b->rank - 2)),
        ct__size_mul(ct__size_of(a, a->rank - 1), ct__size_of(b, b->rank - 1))};
    return ct__matrix_out(call, 0, dtype, &batch, 2, sizes);
}
// Reshapes (..., M, N) to (..., M, 1, N, 1), or with `second` to (..., 1, M, 1, N).
static ct_tensor kron_reshape(ct_tensor x, int second) {
    ct_dims_buffer dims;
    const int n = (int)ct__dims_of(x, &dims).n;
    if (n < 2) return x; // poisoned
    const int64_t rows = dims.v[n - 2], columns = dims.v[n - 1];
    for (int i = 0; i < 4; i++) dims.v[n - 2 + i] = i % 2 != second ? 1 : i < 2 ? rows : columns;
    return ct_reshape(x, ((ct_ints){n + 2, dims.v}));
}
static bool kron_body(ct_rule *r) {
    ct_tensor all = ct_mul(kron_reshape(r->in[0], 0), kron_reshape(r->in[1], 1));
    return ct__set_body(r, ct__of_type(all, r->node->out));
}
const ct_opdef ct__op_kron = {
    MATRIX_OP(KRON, kron, 2, 1),
    .core = {2, 2},
    .accepts = CT_NUMBERS | CT_COMPLEX,
    .widens = true,
    .doc = "Kronecker products of matrices (..., M, N) and (..., P, Q): each element of a times b, "
           "(..., M "
           "P, N Q).",
};

#define DIAGONAL_ATTRS(F, op) F(op, i64, offset)
CT_ATTRS(diagonal, DIAGONAL_ATTRS);
CT_ATTRS(matrix_trace, DIAGONAL_ATTRS);
static bool diagonal_infer(ct_call *call) {
    const int64_t offset = ((const diagonal_attrs *)call->attrs)->offset;
    if (!ct__check_matrices(call, 0, false)) return false;
    const ct_type *x = call->in[0];
    const int64_t m = x->dim[x->rank - 2], n = x->dim[x->rank - 1];
    const int64_t rows = m + (offset < 0 ? offset : 0), columns = n - (offset > 0 ? offset : 0);
    int64_t size = rows < columns ? rows : columns;
    if (size < 0) size = 0;
    if (offset == 0) size = ct__diagonal_size(x);
    for (int a = x->rank - 2; offset && a < x->rank; a++) ct__specialise_size(ct__size_of(x, a));
    return ct__factor_out(call, 0, (ct_dtype)x->dtype, 1, size, 0);
}
static ct_tensor linalg_diagonal(ct_tensor x, int64_t offset) {
    const int64_t axis = ct__type_of(x)->rank - (offset > 0 ? 1 : 2);
    const int64_t size = ct__unmarked(ct__size_like(x, (int)axis)), by = llabs(offset);
    const int64_t from = by < size ? by : size;
    if (offset) x = ct_slice(x, .axes = {1, &axis}, .start = {1, &from});
    return ct__diagonal_of(x);
}
static bool diagonal_body(ct_rule *r) {
    return ct__set_body(r, linalg_diagonal(r->in[0], ((const diagonal_attrs *)r->attrs)->offset));
}
const ct_opdef ct__op_diagonal = {
    MATRIX_OP(DIAGONAL, diagonal, 1, 1),
    CT_FIELDS(diagonal),
    .core = {2},
    .accepts = CT_NUMBERS | CT_COMPLEX,
    .widens = true,
    .doc = "The diagonals of matrices (..., M, N), `offset` places to the right of the main one.",
};
static bool matrix_trace_infer(ct_call *call) {
    return ct__check_matrices(call, 0, false) &&
           linalg_batch_type(call, 0, (ct_dtype)call->in[0]->dtype);
}
static bool matrix_trace_body(ct_rule *r) {
    return ct__set_body(r, linalg_sum_last(linalg_diagonal(
                               r->in[0], ((const matrix_trace_attrs *)r->attrs)->offset)));
}
const ct_opdef ct__op_matrix_trace = {
    MATRIX_OP(MATRIX_TRACE, matrix_trace, 1, 1),
    CT_FIELDS(matrix_trace),
    .core = {2},
    .accepts = CT_NUMBERS | CT_COMPLEX,
    .widens = true,
    .doc = "The sums of the diagonals of matrices (..., M, N), `offset` places to the right of the "
           "main one.",
    .autocast = CT_CAST_F32,
};

// -------------------------------------------------------------------------------- products of several

enum { MAX_FACTORS = 64, UNKNOWN = 1024 }; // UNKNOWN: the size that is assumed for a dynamic one

static bool multi_dot_infer(ct_call *call) {
    ct_promotion met = CT_PROMOTION_START;
    if (call->n_in < 1 || call->n_in > MAX_FACTORS)
        return ct__call_err(call, CT_E_ARGUMENT, "%d matrices: 1 to %d can be multiplied",
                            call->n_in, MAX_FACTORS);
    for (int i = 0; i < call->n_in; i++) {
        const ct_type *x = call->in[i], *before = i ? call->in[i - 1] : NULL;
        if (!ct__check_accepts(call, i)) return false;
        if (x->rank != 2)
            return ct__call_err(call, CT_E_SHAPE, "operand %d is %s, and no matrix", i + 1,
                                ct__type_text(x).s);
        if (before && before->dim[1] != x->dim[0])
            return ct__call_err(call, CT_E_SHAPE,
                                "inner sizes differ: operand %d is %s, operand %d is %s", i,
                                ct__type_text(before).s, i + 1, ct__type_text(x).s);
        if (before) (void)ct__same_size(before, 1, x, 0);
        met = ct__promotion_add(met, (ct_dtype)x->dtype, x->weak);
    }
    const ct_type none = {.rank = 0};
    const int64_t sizes[2] = {ct__size_of(call->in[0], 0),
                              ct__size_of(call->in[call->n_in - 1], 1)};
    return ct__matrix_out(call, 0, ct__promotion_result(met), &none, 2, sizes);
}
// The cheapest split points: the product of matrices i to j is that of i to at[i][j] times the rest.
typedef struct chain {
    double cost[MAX_FACTORS][MAX_FACTORS];
    int split[MAX_FACTORS][MAX_FACTORS];
} chain;
static void multi_dot_find_splits(chain *c, const double *size,
                                  int n) { // matrix i is (size[i], size[i + 1])
    for (int i = 0; i < n; i++) c->cost[i][i] = 0;
    for (int length = 2; length <= n; length++)
        for (int i = 0; i + length <= n; i++) {
            const int j = i + length - 1;
            c->cost[i][j] = INFINITY;
            for (int k = i; k < j; k++) {
                const double cost =
                    c->cost[i][k] + c->cost[k + 1][j] + size[i] * size[k + 1] * size[j + 1];
                if (cost < c->cost[i][j]) c->cost[i][j] = cost, c->split[i][j] = k;
            }
        }
}
static ct_tensor multi_dot_product(const chain *c, const ct_tensor *x, int i, int j) {
    if (i == j) return x[i];
    const int k = c->split[i][j];
    return ct_matmul(multi_dot_product(c, x, i, k), multi_dot_product(c, x, k + 1, j));
}
static bool multi_dot_body(ct_rule *r) {
    double size[MAX_FACTORS + 1];
    chain *c = ct__malloc(sizeof *c);
    if (!c) return ct__err_memory(&ct__ctx()->err, r->node->here, "multi_dot", sizeof *c);
    for (int i = 0; i <= r->n_in; i++) {
        const ct_type *x = ct__type_of(r->in[i < r->n_in ? i : i - 1]);
        const int axis = i == r->n_in;
        size[i] = ct__is_dyn(x, axis) ? UNKNOWN : (double)x->dim[axis];
    }
    multi_dot_find_splits(c, size, r->n_in);
    r->body_out[0] = ct__to(multi_dot_product(c, r->in, 0, r->n_in - 1), linalg_out_dtype(r, 0));
    ct__free(c);
    return true;
}
const ct_opdef ct__op_multi_dot = {
    CT_COMPOSED(MULTI_DOT, multi_dot, -1, 1),
    .accepts = CT_LINALG | CT_MASK(CT_F16) | CT_MASK(CT_BF16),
    .widens = true,
    .doc = "The product of matrices, of which neighbours' inner sizes are equal, in the order that "
           "takes the "
           "fewest multiplications.",
    .autocast = CT_CAST_LOW,
};
