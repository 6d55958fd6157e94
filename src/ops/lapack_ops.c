// Ops that LAPACK computes: factorisations of matrices, and the systems that they solve. Their derivatives
// are composed of these ops.
#include <string.h>

#include "ops/matrices.h"

#define LAPACK_OP(ID, op, ins, outs)                                                               \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_call, .n_in = ins, .n_out = outs,             \
    .accepts = CT_LINALG, .infer = op##_infer, .eval = op##_eval, .jvp = op##_jvp

#define LAPACK_EVAL(op, say)                                                                       \
    static bool op##_eval(const ct_ref *ref) { return ct__each_matrix(ref, op##_compute, say); }

static int lapack_max(int a, int b) { return a > b ? a : b; }
static int lapack_min(int a, int b) { return a < b ? a : b; }

static int64_t lapack_rows(const ct_call *call) {
    return ct__size_of(call->in[0], call->in[0]->rank - 2);
}
static int64_t lapack_columns(const ct_call *call) {
    return ct__size_of(call->in[0], call->in[0]->rank - 1);
}
static int64_t lapack_smaller_size(const ct_call *call) {
    const ct_type *x = call->in[0];
    return x->dim[x->rank - 2] < x->dim[x->rank - 1] ? lapack_rows(call) : lapack_columns(call);
}

static void lapack_say_refused(const ct_ref *ref, int info, ct_text *text) {
    (void)ref;
    ct__textf(text, "was refused by LAPACK (%d)", info);
}

// ------------------------------------------------------------------------------------------- cholesky

#define CHOLESKY_ATTRS(F, op) F(op, bool, upper)
CT_ATTRS(cholesky, CHOLESKY_ATTRS);

static bool cholesky_infer(ct_call *call) {
    if (!ct__check_matrices(call, 0, true)) return false;
    *call->out = *call->in[0];
    return true;
}
static int cholesky_compute(const ct_matrix *m) {
    const bool upper = ((const cholesky_attrs *)m->ref->attrs)->upper;
    const int64_t n = m->rows;
    const int lda = lapack_max(m->rows, 1);
    int info = 0;
    ct_scratch scratch;
    if (!ct__all_finite(m->dtype, m->of[0], n * n)) {
        ct__fill_nan(m->dtype, m->of[1], n * n);
        return 0;
    }
    if (!ct__scratch_make(&scratch, ct__scratch_bytes(m->dtype, n * n))) return CT_MATRIX_NO_MEMORY;
    char *a = ct__scratch_take(&scratch, m->dtype, n * n);
    ct__to_column_major(m->dtype, n, n, m->of[0], a);
    m->lapack->potrf(upper ? "U" : "L", &m->rows, a, &lda, &info, 1);
    const size_t each = ct_dtype_size(m->dtype);
    for (int64_t j = 0; j < n; j++) // column j
        memset(a + (size_t)(j * n + (upper ? j + 1 : 0)) * each, 0,
               (size_t)(upper ? n - 1 - j : j) * each);
    ct__to_column_major(m->dtype, n, n, a, m->of[1]);
    ct__free(scratch.memory);
    return info;
}
static void cholesky_say_not_positive(const ct_ref *ref, int info, ct_text *text) {
    (void)ref;
    ct__textf(text, "is not positive definite: its first %d rows and columns are not", info);
}
LAPACK_EVAL(cholesky, cholesky_say_not_positive)
// L' = L P(inv(L) a' inv(L)^H), where P takes the lower triangle and half of the diagonal. a' is made
// symmetric, since the op treats its operand as symmetric.
static bool cholesky_jvp(ct_rule *r) {
    const bool upper = ((const cholesky_attrs *)r->attrs)->upper;
    ct_tensor l = upper ? ct__adjoint(r->out[0]) : r->out[0], half = ct__number_like(0.5, l);
    ct_tensor a = ct_mul(ct_add(r->t_in[0], ct__adjoint(r->t_in[0])), half);
    ct_tensor left = ct_triangular_solve(l, a);
    ct_tensor both = ct_triangular_solve(l, ct__adjoint(left)); // symmetric
    ct_tensor lower = ct_add(ct__lower_part(both, 1), ct__lower_part(both, 0));
    ct_tensor t = ct_matmul(l, ct_mul(lower, half));
    return ct__set_tangent(r, upper ? ct__adjoint(t) : t);
}
const ct_opdef ct__op_cholesky = {
    LAPACK_OP(CHOLESKY, cholesky, 1, 1),
    CT_FIELDS(cholesky),
    .core = {2},
    .doc = "The lower triangular L with L L^H = x, of positive definite matrices (..., N, N), of "
           "which only the lower triangle is read; `upper`: U with U^H U = x, of the upper one. A "
           "matrix that is not positive definite is an error of the plan; one that holds NaN or "
           "infinity gives NaN.",
    .autocast = CT_CAST_F32,
};

// ---------------------------------------------------------------------------------- triangular_solve

#define TRIANGULAR_SOLVE_ATTRS(F, op) F(op, bool, upper) F(op, i64, transpose) F(op, bool, unit)
CT_ATTRS(triangular_solve, TRIANGULAR_SOLVE_ATTRS);

// Checks that operand 0 is square and that operand `b` has as many rows and the same dtype.
static bool lapack_solve_infer(ct_call *call, int b, const int *core) {
    const ct_type *x = call->in[0], *y = call->in[b];
    ct_type batch;
    if (!ct__check_matrices(call, 0, true) || !ct__check_matrices(call, b, false)) return false;
    if (x->dtype != y->dtype)
        return ct__call_err(call, CT_E_DTYPE, "operand 1 is %s, operand %d is %s",
                            ct__type_text(x).s, b + 1, ct__type_text(y).s) ||
               ct__call_hint(call, "cast one of them to the dtype of the other");
    if (x->dim[x->rank - 1] != y->dim[y->rank - 2])
        return ct__call_err(call, CT_E_SHAPE, "sizes differ: operand 1 is %s, operand %d is %s",
                            ct__type_text(x).s, b + 1, ct__type_text(y).s) ||
               ct__call_hint(call, "they are (..., N, N) and (..., N, K)");
    const int64_t sizes[2] = {ct__same_size(x, x->rank - 1, y, y->rank - 2),
                              ct__size_of(y, y->rank - 1)};
    return ct__batch_of(call, core, &batch) &&
           ct__matrix_out(call, 0, (ct_dtype)x->dtype, &batch, 2, sizes);
}
static const char *const transpose_codes[3] = {"N", "T", "C"};

static bool triangular_solve_infer(ct_call *call) {
    const triangular_solve_attrs *attrs = call->attrs;
    return ct__check_transpose(call, attrs->transpose) &&
           lapack_solve_infer(call, 1, (int[]){2, 2});
}
// Returns the index of the first 0 on the diagonal of a (N, N), counted from 1, or 0 if there is none.
static int lapack_find_zero_on_diagonal(const ct_matrix *m) {
    const size_t each = ct_dtype_size(m->dtype);
    const char *a = m->of[0];
    const ct_dtype part = ct__is_complex(m->dtype) ? ct__part(m->dtype) : m->dtype;
    for (int i = 0; i < m->rows; i++) {
        const char *at = a + ((size_t)i * (size_t)m->rows + (size_t)i) * each;
        bool zero = ct__load_f64(part, at, 0) == 0;
        if (part != m->dtype) zero = zero && ct__load_f64(part, at, 1) == 0;
        if (zero) return i + 1;
    }
    return 0;
}
static int64_t lapack_right_sides(const ct_matrix *m, int b) {
    const ct_type *type = &m->ref->in_type[b];
    return type->dim[type->rank - 1];
}
static int triangular_solve_compute(const ct_matrix *m) {
    const triangular_solve_attrs *attrs = m->ref->attrs;
    static const float one_f32[2] = {1, 0};
    static const double one_f64[2] = {1, 0};
    const int64_t n = m->rows, k = lapack_right_sides(m, 1);
    const int columns = (int)k, lda = lapack_max(m->rows, 1);
    const bool wide = m->dtype == CT_F64 || m->dtype == CT_C128;
    const int zero = attrs->unit ? 0 : lapack_find_zero_on_diagonal(m);
    ct_scratch scratch;
    if (zero) return zero;
    if (!ct__scratch_make(&scratch,
                          ct__scratch_bytes(m->dtype, n * n) + ct__scratch_bytes(m->dtype, n * k)))
        return CT_MATRIX_NO_MEMORY;
    void *a = ct__scratch_take(&scratch, m->dtype, n * n),
         *b = ct__scratch_take(&scratch, m->dtype, n * k);
    ct__to_column_major(m->dtype, n, n, m->of[0], a);
    ct__to_column_major(m->dtype, n, k, m->of[1], b);
    m->lapack->trsm("L", attrs->upper ? "U" : "L", transpose_codes[attrs->transpose],
                    attrs->unit ? "U" : "N", &m->rows, &columns,
                    wide ? (const void *)one_f64 : one_f32, a, &lda, b, &lda, 1, 1, 1, 1);
    ct__to_column_major(m->dtype, k, n, b, m->of[2]);
    ct__free(scratch.memory);
    return 0;
}
static void triangular_solve_say_singular(const ct_ref *ref, int info, ct_text *text) {
    const ct_type *x = &ref->in_type[0];
    ct__textf(text, "is singular: number %d of the %lld on its diagonal is 0", info,
              (long long)x->dim[x->rank - 1]);
}
LAPACK_EVAL(triangular_solve, triangular_solve_say_singular)
static ct_tensor triangular_solve_with(const triangular_solve_attrs *attrs, ct_tensor a,
                                       ct_tensor b) {
    return ct_triangular_solve(a, b, .upper = attrs->upper, .transpose = attrs->transpose,
                               .unit = attrs->unit);
}
// a x = b gives a x' = b' - a' x, where a and a' are the triangles, transposed if the attribute says so.
static bool triangular_solve_jvp(ct_rule *r) {
    const triangular_solve_attrs *attrs = r->attrs;
    ct_tensor b = r->t_in[1];
    if (!ct__is_none(r->t_in[0])) {
        ct_tensor a = attrs->upper ? ct__upper_part(r->t_in[0], attrs->unit)
                                   : ct__lower_part(r->t_in[0], attrs->unit);
        a = ct__apply_transpose(a, attrs->transpose);
        b = ct__add_zero(b, ct_neg(ct_matmul(a, r->out[0])));
    }
    return ct__set_tangent(r, triangular_solve_with(attrs, r->in[0], b));
}
// x = inv(a) b, so the cotangent of b is inv(a)^T c.
static bool triangular_solve_transpose(ct_rule *r) {
    triangular_solve_attrs attrs = *(const triangular_solve_attrs *)r->attrs;
    const bool conjugated = attrs.transpose == 2;
    ct_tensor c = conjugated ? ct__conj_of(r->c_out[0]) : r->c_out[0];
    attrs.transpose = attrs.transpose == 0;
    c = triangular_solve_with(&attrs, r->in[0], c);
    r->c_in[1] = conjugated ? ct__conj_of(c) : c;
    return true;
}
const ct_opdef ct__op_triangular_solve = {
    LAPACK_OP(TRIANGULAR_SOLVE, triangular_solve, 2, 1),
    CT_FIELDS(triangular_solve),
    .core = {2, 2},
    .transpose = triangular_solve_transpose,
    .doc =
        "The x of a x = b for triangular matrices a (..., N, N) and b (..., N, K); axes in front "
        "broadcast. Of a only the lower triangle is read, or the `upper` one; `transpose` 1 "
        "means the transpose of a, 2 its conjugate transpose, `unit` that its diagonal counts "
        "as 1. A 0 on the diagonal is an error of the plan.",
    .autocast = CT_CAST_F32,
};

// ------------------------------------------------------------------------------------------------ lu

static bool lu_infer(ct_call *call) {
    if (!ct__check_matrices(call, 0, false)) return false;
    *call->out = *call->in[0];
    return ct__factor_out(call, 1, CT_I32, 1, lapack_smaller_size(call), 0) &&
           ct__factor_out(call, 2, CT_I32, 1, lapack_rows(call), 0);
}
static int lu_compute(const ct_matrix *m) {
    const int64_t n = (int64_t)m->rows * m->columns;
    const int lda = lapack_max(m->rows, 1), n_pivots = lapack_min(m->rows, m->columns);
    int32_t *pivots = m->of[2], *order = m->of[3];
    int info = 0;
    ct_scratch scratch;
    for (int i = 0; i < m->rows; i++) order[i] = i;
    if (!ct__all_finite(m->dtype, m->of[0], n)) {
        ct__fill_nan(m->dtype, m->of[1], n);
        for (int i = 0; i < n_pivots; i++) pivots[i] = i;
        return 0;
    }
    if (!ct__scratch_make(&scratch, ct__scratch_bytes(m->dtype, n))) return CT_MATRIX_NO_MEMORY;
    void *a = ct__scratch_take(&scratch, m->dtype, n);
    ct__to_column_major(m->dtype, m->rows, m->columns, m->of[0], a);
    m->lapack->getrf(&m->rows, &m->columns, a, &lda, pivots, &info);
    ct__to_column_major(m->dtype, m->columns, m->rows, a, m->of[1]);
    ct__free(scratch.memory);
    for (int i = 0; i < n_pivots; i++) {
        const int32_t from = order[i];
        pivots[i]--; // LAPACK counts from 1
        order[i] = order[pivots[i]];
        order[pivots[i]] = from;
    }
    return 0; // info is ignored: factors with a 0 on the diagonal are valid
}
LAPACK_EVAL(lu, lapack_say_refused)
// With W = inv(L) P a' inv(U): L' = L (W below the diagonal), U' = (W on and above the diagonal) U.
static bool lu_jvp(ct_rule *r) {
    const ct_type *type = ct__type_of(r->in[0]);
    ct_ctx *ctx = ct__ctx();
    r->t_out[1] = r->t_out[2] = CT_NONE;
    if (type->dim[type->rank - 1] != type->dim[type->rank - 2])
        return ct__refuse(ctx, CT_E_GRAD, r->node->here, "lu",
                          "%s is no square matrix, and has no derivative here",
                          ct__type_text(type).s);
    ct_tensor lu = r->out[0], order = r->out[2];
    ct_tensor l = ct_add(ct__lower_part(lu, 1), ct__identity(lu)), u = ct__upper_part(lu, 0);
    ct_tensor a = ct_gather(r->t_in[0], order, .axis = -2, .batch_dims = type->rank - 2);
    ct_tensor w = ct_triangular_solve(l, a, .unit = true);
    w = ct__swap_last(ct_triangular_solve(u, ct__swap_last(w), .upper = true, .transpose = 1));
    return ct__set_tangent(
        r, ct_add(ct_matmul(l, ct__lower_part(w, 1)), ct_matmul(ct__upper_part(w, 0), u)));
}
const ct_opdef ct__op_lu = {
    LAPACK_OP(LU, lu, 1, 3),
    .core = {2},
    .doc =
        "Factors of matrices (..., M, N) with rows exchanged: L (ones on its diagonal, which are "
        "left out) below the diagonal of `factors`, U on and above it; row i was exchanged with "
        "row "
        "`pivots`[i], one after the other, so that x[order] = L U. A singular matrix has "
        "factors, too; one that holds NaN or infinity gives NaN.",
    .autocast = CT_CAST_F32,
};

// ------------------------------------------------------------------------------------------ lu_solve

#define LU_SOLVE_ATTRS(F, op) F(op, i64, transpose)
CT_ATTRS(lu_solve, LU_SOLVE_ATTRS);

static bool lu_solve_infer(ct_call *call) { return lapack_solve_infer(call, 2, (int[]){2, 1, 2}); }
static int lu_solve_compute(const ct_matrix *m) {
    const int64_t transpose = ((const lu_solve_attrs *)m->ref->attrs)->transpose;
    const int64_t n = m->rows, k = lapack_right_sides(m, 2);
    const int columns = (int)k, lda = lapack_max(m->rows, 1),
              zero = lapack_find_zero_on_diagonal(m);
    const int32_t *from_0 = m->of[1];
    int info = 0;
    ct_scratch scratch;
    if (zero) return zero;
    if (!ct__scratch_make(&scratch, ct__scratch_bytes(m->dtype, n * n) +
                                        ct__scratch_bytes(m->dtype, n * k) +
                                        ct__scratch_bytes(CT_I32, n)))
        return CT_MATRIX_NO_MEMORY;
    void *a = ct__scratch_take(&scratch, m->dtype, n * n),
         *b = ct__scratch_take(&scratch, m->dtype, n * k);
    int *pivots = ct__scratch_take(&scratch, CT_I32, n);
    for (int64_t i = 0; i < n; i++) pivots[i] = from_0[i] + 1;
    ct__to_column_major(m->dtype, n, n, m->of[0], a);
    ct__to_column_major(m->dtype, n, k, m->of[2], b);
    m->lapack->getrs(transpose_codes[transpose], &m->rows, &columns, a, &lda, pivots, b, &lda,
                     &info, 1);
    ct__to_column_major(m->dtype, k, n, b, m->of[3]);
    ct__free(scratch.memory);
    return info;
}
static void lu_solve_say_singular(const ct_ref *ref, int info, ct_text *text) {
    const ct_type *x = &ref->in_type[0];
    ct__textf(text, "is singular: pivot %d of %lld is 0", info, (long long)x->dim[x->rank - 1]);
}
LAPACK_EVAL(lu_solve, lu_solve_say_singular)
ct_tensor ct__lu_solve(ct_tensor lu, ct_tensor pivots, ct_tensor b, int64_t transpose) {
    return ct__record(&ct__op_lu_solve, &(lu_solve_attrs){transpose}, (ct_tensor[]){lu, pivots, b},
                      3, CT_NOWHERE);
}
static bool lu_solve_jvp(ct_rule *r) { // ct_solve, which makes these factors, has a rule of its own
    if (!ct__is_none(r->t_in[0]))
        return ct__refuse(ct__ctx(), CT_E_INTERNAL, r->node->here, "lu_solve",
                          "its factors have a tangent");
    return ct__set_tangent(r, ct__lu_solve(r->in[0], r->in[1], r->t_in[2],
                                           ((const lu_solve_attrs *)r->attrs)->transpose));
}
static bool lu_solve_transpose(ct_rule *r) {
    const int64_t transpose = ((const lu_solve_attrs *)r->attrs)->transpose;
    ct_tensor c = transpose == 2 ? ct__conj_of(r->c_out[0]) : r->c_out[0];
    c = ct__lu_solve(r->in[0], r->in[1], c, transpose == 0);
    r->c_in[2] = transpose == 2 ? ct__conj_of(c) : c;
    return true;
}
const ct_opdef ct__op_lu_solve = {
    LAPACK_OP(LU_SOLVE, lu_solve, 3, 1),
    CT_FIELDS(lu_solve),
    .core = {2, 1, 2},
    .transpose = lu_solve_transpose,
    .doc = "The x of a x = b (`transpose` as in solve), given the factors and pivots of a.",
};

// ------------------------------------------------------------------------------------------------ qr

// Returns the size of the workspace that LAPACK requests: the first number that it wrote into `work`.
static int lapack_work_size(ct_dtype dtype, const void *work) {
    const double n = ct__load_f64(ct__part_or_own(dtype), work, 0);
    return n < 1 ? 1 : n > INT32_MAX ? INT32_MAX : (int)n;
}

#define QR_ATTRS(F, op) F(op, bool, complete)
CT_ATTRS(qr, QR_ATTRS);

static bool qr_infer(ct_call *call) {
    if (!ct__check_matrices(call, 0, false)) return false;
    const ct_dtype dtype = (ct_dtype)call->in[0]->dtype;
    const bool complete = ((const qr_attrs *)call->attrs)->complete;
    const int64_t k = complete ? lapack_rows(call) : lapack_smaller_size(call);
    return ct__factor_out(call, 0, dtype, 2, lapack_rows(call), k) &&
           ct__factor_out(call, 1, dtype, 2, k, lapack_columns(call));
}
static int qr_compute(const ct_matrix *m) {
    const bool complete = ((const qr_attrs *)m->ref->attrs)->complete;
    const int k = lapack_min(m->rows, m->columns), own = complete ? m->rows : k,
              lda = lapack_max(m->rows, 1);
    const int64_t n = (int64_t)m->rows * m->columns, q_n = (int64_t)m->rows * own;
    const int64_t all = (int64_t)m->rows * lapack_max(m->columns, own);
    int info = 0, ask = -1, lwork;
    char query[2][CT_MAX_ELEMENT_BYTES] = {{0}};
    ct_scratch scratch;
    if (!ct__all_finite(m->dtype, m->of[0], n)) {
        ct__fill_nan(m->dtype, m->of[1], q_n);
        ct__fill_nan(m->dtype, m->of[2], (int64_t)own * m->columns);
        return 0;
    }
    m->lapack->geqrf(&m->rows, &m->columns, NULL, &lda, NULL, query[0], &ask, &info);
    m->lapack->orgqr(&m->rows, &own, &k, NULL, &lda, NULL, query[1], &ask, &info);
    lwork = lapack_max(lapack_work_size(m->dtype, query[0]), lapack_work_size(m->dtype, query[1]));
    if (!ct__scratch_make(&scratch,
                          ct__scratch_bytes(m->dtype, all) + 2 * ct__scratch_bytes(m->dtype, n) +
                              ct__scratch_bytes(m->dtype, k) + ct__scratch_bytes(m->dtype, lwork)))
        return CT_MATRIX_NO_MEMORY;
    char *a = ct__scratch_take(&scratch, m->dtype, all),
         *r = ct__scratch_take(&scratch, m->dtype, 2 * n);
    void *tau = ct__scratch_take(&scratch, m->dtype, k),
         *work = ct__scratch_take(&scratch, m->dtype, lwork);
    const size_t each = ct_dtype_size(m->dtype);
    ct__to_column_major(m->dtype, m->rows, m->columns, m->of[0], a);
    m->lapack->geqrf(&m->rows, &m->columns, a, &lda, tau, work, &lwork, &info);
    for (int64_t j = 0; j < m->columns; j++) { // column j of R, with zeros below the diagonal
        const int64_t used = j + 1 < own ? j + 1 : own;
        char *to = r + (size_t)(j * own) * each;
        memcpy(to, a + (size_t)(j * m->rows) * each, (size_t)used * each);
        memset(to + (size_t)used * each, 0, (size_t)(own - used) * each);
    }
    ct__to_column_major(m->dtype, m->columns, own, r, m->of[2]);
    m->lapack->orgqr(&m->rows, &own, &k, a, &lda, tau, work, &lwork, &info);
    ct__to_column_major(m->dtype, own, m->rows, a, m->of[1]);
    ct__free(scratch.memory);
    return info;
}
LAPACK_EVAL(qr, lapack_say_refused)
// For the first columns, as many as there are rows: with W = Q^H x' inv(R), Q' = Q (S - W) + x' inv(R) and
// R' = (W - S) R. S is the part of W below the diagonal, minus its adjoint; for complex matrices it also
// has the imaginary part of the diagonal. The columns of R after these are Q^H x.
static bool qr_jvp(ct_rule *r) {
    ct_tensor q = r->out[0], all = r->out[1], x = r->t_in[0];
    const ct_type *type = ct__type_of(r->in[0]);
    const int rank = type->rank;
    const int64_t m = type->dim[rank - 2], n = type->dim[rank - 1], axis = rank - 1;
    if (((const qr_attrs *)r->attrs)->complete && m > n)
        return ct__refuse(ct__ctx(), CT_E_GRAD, r->node->here, "qr",
                          "the complete Q of %s is not determined, and has no derivative",
                          ct__type_text(type).s);
    ct_tensor first = m < n ? ct__slice_axis(all, axis, 0, m) : all;
    ct_tensor dx = m < n ? ct__slice_axis(x, axis, 0, m) : x;
    ct_tensor by = ct__swap_last(
        ct_triangular_solve(first, ct__swap_last(dx), .upper = true, .transpose = 1)); // x' inv(R)
    ct_tensor w = ct_matmul(ct__adjoint(q), by), low = ct__lower_part(w, 1);
    ct_tensor s = ct_sub(low, ct__adjoint(low));
    if (ct__is_complex((ct_dtype)type->dtype)) {
        ct_tensor half = ct_mul(ct_sub(w, ct__adjoint(w)), ct__number_like(0.5, w));
        s = ct_add(s, ct__upper_part(ct__lower_part(half, 0), 0));
    }
    ct_tensor change = ct_sub(s, w);
    r->t_out[0] = ct_add(ct_matmul(q, change), by);
    r->t_out[1] = ct_neg(ct_matmul(change, first));
    if (m < n) {
        ct_tensor rest = ct__slice_axis(r->in[0], axis, m, CT_END);
        ct_tensor moved = ct__slice_axis(x, axis, m, CT_END);
        moved = ct_add(ct_matmul(ct__adjoint(q), moved), ct_matmul(ct__adjoint(r->t_out[0]), rest));
        r->t_out[1] = ct_concat(((ct_tensor[]){r->t_out[1], moved}), 2, axis);
    }
    return true;
}
const ct_opdef ct__op_qr = {
    LAPACK_OP(QR, qr, 1, 2),
    CT_FIELDS(qr),
    .core = {2},
    .doc =
        "Q with orthonormal columns and upper triangular R whose product is x, (..., M, N): (..., "
        "M, "
        "K) and (..., K, N) with the smaller of M and N as K, or (`complete`) M. The complete Q of "
        "more rows than columns has no derivative. A matrix that holds NaN or infinity gives NaN.",
    .autocast = CT_CAST_F32,
};

// --------------------------------------------------------------------------- eigenvalues of symmetric

CT_ATTRS(eigh, CHOLESKY_ATTRS);
CT_ATTRS(eigvalsh, CHOLESKY_ATTRS);

static bool eigvalsh_infer(ct_call *call) {
    return ct__check_matrices(call, 0, true) &&
           ct__factor_out(call, 0, ct__part_or_own((ct_dtype)call->in[0]->dtype), 1,
                          lapack_rows(call), 0);
}
static bool eigh_infer(ct_call *call) {
    if (!eigvalsh_infer(call)) return false;
    call->out[1] = *call->in[0];
    return true;
}
static void lapack_call_syevd(const ct_matrix *m, bool vectors, bool upper, void *a, void *w,
                              void *work, int lwork, void *rwork, int lrwork, int *iwork,
                              int liwork, int *info) {
    const int lda = lapack_max(m->rows, 1);
    const char *job = vectors ? "V" : "N", *part = upper ? "U" : "L";
    if (ct__is_complex(m->dtype))
        m->lapack->heevd(job, part, &m->rows, a, &lda, w, work, &lwork, rwork, &lrwork, iwork,
                         &liwork, info, 1, 1);
    else
        m->lapack->syevd(job, part, &m->rows, a, &lda, w, work, &lwork, iwork, &liwork, info, 1, 1);
}
static int eigh_values(const ct_matrix *m, bool vectors, bool upper) {
    const int64_t n = m->rows, all = n * n;
    const ct_dtype part = ct__part_or_own(m->dtype);
    char work_n[CT_MAX_ELEMENT_BYTES] = {0}, rwork_n[CT_MAX_ELEMENT_BYTES] = {0};
    int info = 0, iwork_n = 1;
    ct_scratch scratch;
    if (!ct__all_finite(m->dtype, m->of[0], all)) {
        ct__fill_nan(part, m->of[1], n);
        if (vectors) ct__fill_nan(m->dtype, m->of[2], all);
        return 0;
    }
    if (!n) return 0;
    lapack_call_syevd(m, vectors, upper, NULL, NULL, work_n, -1, rwork_n, -1, &iwork_n, -1, &info);
    const int lwork = lapack_work_size(m->dtype, work_n), lrwork = lapack_work_size(part, rwork_n);
    if (!ct__scratch_make(&scratch, ct__scratch_bytes(m->dtype, all) + ct__scratch_bytes(part, n) +
                                        ct__scratch_bytes(m->dtype, lwork) +
                                        ct__scratch_bytes(part, lrwork) +
                                        ct__scratch_bytes(CT_I32, iwork_n)))
        return CT_MATRIX_NO_MEMORY;
    void *a = ct__scratch_take(&scratch, m->dtype, all), *w = ct__scratch_take(&scratch, part, n);
    void *work = ct__scratch_take(&scratch, m->dtype, lwork);
    void *rwork = ct__scratch_take(&scratch, part, lrwork);
    int *iwork = ct__scratch_take(&scratch, CT_I32, iwork_n);
    ct__to_column_major(m->dtype, n, n, m->of[0], a);
    lapack_call_syevd(m, vectors, upper, a, w, work, lwork, rwork, lrwork, iwork, iwork_n, &info);
    memcpy(m->of[1], w, ct__dtype_bytes(part, n));
    if (vectors) ct__to_column_major(m->dtype, n, n, a, m->of[2]);
    ct__free(scratch.memory);
    return info;
}
static void eig_say_not_converged(const ct_ref *ref, int info, ct_text *text) {
    (void)ref, (void)info;
    ct__text_add(text, "has values to which LAPACK did not converge");
}
static int eigh_compute(const ct_matrix *m) {
    return eigh_values(m, true, ((const eigh_attrs *)m->ref->attrs)->upper);
}
static int eigvalsh_compute(const ct_matrix *m) {
    return eigh_values(m, false, ((const eigvalsh_attrs *)m->ref->attrs)->upper);
}
LAPACK_EVAL(eigh, eig_say_not_converged)
LAPACK_EVAL(eigvalsh, eig_say_not_converged)

// From x (..., N) makes (..., N, N) with x[j] - x[i], or with `sums` x[j] + x[i], at (i, j).
static ct_tensor eig_pairs(ct_tensor x, bool sums) {
    ct_tensor column = ct__add_last(x), row = ct__swap_last(column);
    return sums ? ct_add(row, column) : ct_sub(row, column);
}
// Returns 1 / x, but 0 on the diagonal, where x is 0.
static ct_tensor eig_off_diagonal_inverse(ct_tensor x) {
    ct_tensor one = ct__identity(x);
    return ct_sub(ct_div(ct__number_like(1, x), ct_add(x, one)), one);
}
static ct_tensor eigh_symmetric_tangent(ct_tensor t) {
    return ct_mul(ct_add(t, ct__adjoint(t)), ct__number_like(0.5, t));
}
// In the basis of the eigenvectors, V^H x' V, the diagonal is the tangent of the eigenvalues; the other
// elements determine that of the eigenvectors.
static bool eigh_jvp(ct_rule *r) {
    ct_tensor v = r->out[1];
    ct_tensor inside = ct_matmul(ct_matmul(ct__adjoint(v), eigh_symmetric_tangent(r->t_in[0])), v);
    r->t_out[0] = ct__real_of(ct__diagonal_of(inside));
    r->t_out[1] =
        ct_matmul(v, ct_mul(eig_off_diagonal_inverse(eig_pairs(r->out[0], false)), inside));
    return true;
}
static bool eigvalsh_jvp(ct_rule *r) {
    ct_tensor v = ct_eigh(r->in[0], .upper = ((const eigvalsh_attrs *)r->attrs)->upper).vectors;
    ct_tensor inside = ct_matmul(ct_matmul(ct__adjoint(v), eigh_symmetric_tangent(r->t_in[0])), v);
    return ct__set_tangent(r, ct__real_of(ct__diagonal_of(inside)));
}
const ct_opdef ct__op_eigh = {
    LAPACK_OP(EIGH, eigh, 1, 2),
    CT_FIELDS(eigh),
    .core = {2},
    .doc =
        "Eigenvalues (..., N), rising, and eigenvectors, the columns of (..., N, N), of symmetric "
        "(Hermitian) matrices, of which only the lower triangle is read, or the `upper` one. The "
        "vectors' derivative is infinite where two values are equal. A matrix that holds NaN or "
        "infinity gives NaN.",
    .autocast = CT_CAST_F32,
};
const ct_opdef ct__op_eigvalsh = {
    LAPACK_OP(EIGVALSH, eigvalsh, 1, 1),
    CT_FIELDS(eigvalsh),
    .core = {2},
    .doc = "Eigenvalues (..., N), rising, of symmetric (Hermitian) matrices (..., N, N), of which "
           "only "
           "the lower triangle is read, or the `upper` one.",
    .autocast = CT_CAST_F32,
};

// ------------------------------------------------------------------------------------ singular values

#define SVD_ATTRS(F, op) F(op, bool, full)
CT_ATTRS(svd, SVD_ATTRS);

static bool svdvals_infer(ct_call *call) {
    return ct__check_matrices(call, 0, false) &&
           ct__factor_out(call, 0, ct__part_or_own((ct_dtype)call->in[0]->dtype), 1,
                          lapack_smaller_size(call), 0);
}
static bool svd_infer(ct_call *call) {
    if (!ct__check_matrices(call, 0, false)) return false;
    const ct_dtype dtype = (ct_dtype)call->in[0]->dtype;
    const bool full = ((const svd_attrs *)call->attrs)->full;
    const int64_t k = lapack_smaller_size(call);
    return ct__factor_out(call, 0, dtype, 2, lapack_rows(call), full ? lapack_rows(call) : k) &&
           ct__factor_out(call, 1, ct__part_or_own(dtype), 1, k, 0) &&
           ct__factor_out(call, 2, dtype, 2, full ? lapack_columns(call) : k, lapack_columns(call));
}
// The arguments of gesdd. `rwork` is for complex matrices only.
typedef struct gesdd {
    const char *job;
    int lda, ldu, ldvh, lwork;
    void *a, *s, *u, *vh, *work, *rwork;
    int *iwork;
} gesdd;
static int lapack_call_gesdd(const ct_matrix *m, const gesdd *x) {
    int info = 0;
    if (ct__is_complex(m->dtype))
        m->lapack->gesdd_complex(x->job, &m->rows, &m->columns, x->a, &x->lda, x->s, x->u, &x->ldu,
                                 x->vh, &x->ldvh, x->work, &x->lwork, x->rwork, x->iwork, &info, 1);
    else
        m->lapack->gesdd(x->job, &m->rows, &m->columns, x->a, &x->lda, x->s, x->u, &x->ldu, x->vh,
                         &x->ldvh, x->work, &x->lwork, x->iwork, &info, 1);
    return info;
}
// Results are u, s and vh; without `vectors` only s.
static int svd_values(const ct_matrix *m, bool vectors, bool full, void *u, void *s, void *vh) {
    const int64_t rows = m->rows, columns = m->columns, k = lapack_min(m->rows, m->columns);
    const int64_t us = full ? rows : k, vs = full ? columns : k,
                  wide = lapack_max(m->rows, m->columns);
    const ct_dtype dtype = m->dtype, part = ct__part_or_own(dtype);
    // For real matrices `rwork` is not read; for complex ones this is the size in LAPACK's documentation.
    const int64_t rwork = k * (5 * k + 7) + k * (2 * wide + 2 * k + 1) + 1;
    char query[CT_MAX_ELEMENT_BYTES] = {0};
    ct_scratch scratch;
    if (!ct__all_finite(dtype, m->of[0], rows * columns)) {
        ct__fill_nan(part, s, k);
        if (vectors) ct__fill_nan(dtype, u, rows * us);
        if (vectors) ct__fill_nan(dtype, vh, vs * columns);
        return 0;
    }
    if (!k) {
        if (vectors) ct__fill_identity(dtype, u, us);
        if (vectors) ct__fill_identity(dtype, vh, vs);
        return 0;
    }
    gesdd x = {.job = !vectors ? "N"
                      : full   ? "A"
                               : "S",
               .lda = m->rows,
               .ldu = m->rows,
               .ldvh = (int)vs,
               .lwork = -1,
               .work = query};
    lapack_call_gesdd(m, &x);
    x.lwork = lapack_work_size(dtype, query);
    if (!ct__scratch_make(&scratch,
                          ct__scratch_bytes(dtype, rows * columns) + ct__scratch_bytes(part, k) +
                              ct__scratch_bytes(dtype, rows * us) +
                              ct__scratch_bytes(dtype, vs * columns) +
                              ct__scratch_bytes(dtype, x.lwork) + ct__scratch_bytes(part, rwork) +
                              ct__scratch_bytes(CT_I32, 8 * k)))
        return CT_MATRIX_NO_MEMORY;
    x.a = ct__scratch_take(&scratch, dtype, rows * columns);
    x.s = ct__scratch_take(&scratch, part, k);
    x.u = ct__scratch_take(&scratch, dtype, rows * us);
    x.vh = ct__scratch_take(&scratch, dtype, vs * columns);
    x.work = ct__scratch_take(&scratch, dtype, x.lwork);
    x.rwork = ct__scratch_take(&scratch, part, rwork);
    x.iwork = ct__scratch_take(&scratch, CT_I32, 8 * k);
    ct__to_column_major(dtype, rows, columns, m->of[0], x.a);
    const int info = lapack_call_gesdd(m, &x);
    memcpy(s, x.s, ct__dtype_bytes(part, k));
    if (vectors) ct__to_column_major(dtype, us, rows, x.u, u);
    if (vectors) ct__to_column_major(dtype, columns, vs, x.vh, vh);
    ct__free(scratch.memory);
    return info;
}
static int svd_compute(const ct_matrix *m) {
    return svd_values(m, true, ((const svd_attrs *)m->ref->attrs)->full, m->of[1], m->of[2],
                      m->of[3]);
}
static int svdvals_compute(const ct_matrix *m) {
    return svd_values(m, false, false, NULL, m->of[1], NULL);
}
LAPACK_EVAL(svd, eig_say_not_converged)
LAPACK_EVAL(svdvals, eig_say_not_converged)
// Returns the part of the vectors' tangent that is outside of the span of u: (x' v - u u^H x' v) / s.
static ct_tensor svd_outside_span(ct_tensor moved, ct_tensor u, ct_tensor s) {
    ct_tensor rest = ct_sub(moved, ct_matmul(u, ct_matmul(ct__adjoint(u), moved)));
    return ct__scale_columns(rest, ct_div(ct__number_like(1, s), s));
}
// With D = U^H x' V: s' is its diagonal. The elements off the diagonal rotate the columns of U and V.
static bool svd_jvp(ct_rule *r) {
    ct_tensor u = r->out[0], s = r->out[1], v = ct__adjoint(r->out[2]), x = r->t_in[0];
    const ct_type *type = ct__type_of(r->in[0]);
    const int64_t m = type->dim[type->rank - 2], n = type->dim[type->rank - 1];
    if (((const svd_attrs *)r->attrs)->full && m != n)
        return ct__refuse(ct__ctx(), CT_E_GRAD, r->node->here, "svd",
                          "the full U and V of %s are not determined, and have no derivative",
                          ct__type_text(type).s);
    ct_tensor d = ct_matmul(ct_matmul(ct__adjoint(u), x), v);
    ct_tensor apart = eig_off_diagonal_inverse(ct_mul(eig_pairs(s, true), eig_pairs(s, false)));
    ct_tensor ds = ct__scale_columns(d, s), sd = ct_mul(d, ct__add_last(s));
    ct_tensor zero = ct_equal(s, ct__number_like(0, s));
    ct_tensor inverse = ct_div(ct__number_like(1, s), ct_select(zero, ct__number_like(1, s), s));
    inverse = ct_select(zero, ct__number_like(0, s), inverse);
    ct_tensor du = ct_mul(apart, ct_add(ds, ct__adjoint(ds)));
    if (ct__is_complex((ct_dtype)type->dtype)) { // the phase, whose tangent is added to that of U
        ct_tensor half = ct_mul(ct_sub(d, ct__adjoint(d)), ct__number_like(0.5, d));
        half = ct__upper_part(ct__lower_part(half, 0), 0);
        du = ct_add(du, ct__scale_columns(half, inverse));
    }
    ct_tensor dv = ct_matmul(v, ct_mul(apart, ct_add(sd, ct__adjoint(sd))));
    du = ct_matmul(u, du);
    if (m > n) du = ct_add(du, svd_outside_span(ct_matmul(x, v), u, s));
    if (n > m) dv = ct_add(dv, svd_outside_span(ct_matmul(ct__adjoint(x), u), v, s));
    r->t_out[0] = du;
    r->t_out[1] = ct__real_of(ct__diagonal_of(d));
    r->t_out[2] = ct__adjoint(dv);
    return true;
}
static bool svdvals_jvp(ct_rule *r) {
    ct_svd_out f = ct_svd(r->in[0]);
    ct_tensor d = ct_matmul(ct_matmul(ct__adjoint(f.u), r->t_in[0]), ct__adjoint(f.vh));
    return ct__set_tangent(r, ct__real_of(ct__diagonal_of(d)));
}
const ct_opdef ct__op_svd = {
    LAPACK_OP(SVD, svd, 1, 3),
    CT_FIELDS(svd),
    .core = {2},
    .doc =
        "U, s and V^H of x, (..., M, N), with x = U diag(s) V^H: orthonormal columns of U and rows "
        "of "
        "V^H, as many as singular values s (..., K), which fall; `full`: U and V^H are square. The "
        "derivatives of U and V^H are infinite where two values are equal, and there are none of "
        "full ones of a matrix that is not square. A matrix that holds NaN or infinity gives NaN.",
    .autocast = CT_CAST_F32,
};
const ct_opdef ct__op_svdvals = {
    LAPACK_OP(SVDVALS, svdvals, 1, 1),
    .core = {2},
    .doc = "Singular values (..., K), falling, of matrices (..., M, N), with the smaller of M and "
           "N as K.",
    .autocast = CT_CAST_F32,
};

// ----------------------------------------------------------------------- eigenvalues of general matrices

static ct_dtype eig_complex_dtype(ct_dtype dtype) {
    return ct__part_or_own(dtype) == CT_F32 ? CT_C64 : CT_C128;
}
static bool eigvals_infer(ct_call *call) {
    return ct__check_matrices(call, 0, true) &&
           ct__factor_out(call, 0, eig_complex_dtype((ct_dtype)call->in[0]->dtype), 1,
                          lapack_rows(call), 0);
}
static bool eig_infer(ct_call *call) {
    return eigvals_infer(call) &&
           ct__factor_out(call, 1, eig_complex_dtype((ct_dtype)call->in[0]->dtype), 2,
                          lapack_rows(call), lapack_rows(call));
}
// The arguments of geev. For complex matrices `re` is the eigenvalues and `im` is the workspace rwork.
typedef struct geev {
    const char *job;
    int lda, lwork;
    void *a, *re, *im, *v, *work;
} geev;
static int lapack_call_geev(const ct_matrix *m, const geev *x) {
    const int one = 1;
    int info = 0;
    if (ct__is_complex(m->dtype))
        m->lapack->geev_complex("N", x->job, &m->rows, x->a, &x->lda, x->re, NULL, &one, x->v,
                                &x->lda, x->work, &x->lwork, x->im, &info, 1, 1);
    else
        m->lapack->geev("N", x->job, &m->rows, x->a, &x->lda, x->re, x->im, NULL, &one, x->v,
                        &x->lda, x->work, &x->lwork, &info, 1, 1);
    return info;
}
// Converts eigenvectors of real matrices to complex numbers by rows. LAPACK gives a conjugate pair as one
// column with the real part of a vector and one with the imaginary part.
static void eig_unpack_pairs(ct_dtype part, int64_t n, const void *im, const void *columns,
                             void *to) {
    for (int64_t j = 0; j < n; j++) {
        const bool pair = ct__load_f64(part, im, j) != 0;
        for (int64_t i = 0; i < n; i++) {
            const double re = ct__load_f64(part, columns, j * n + i);
            const double other = pair ? ct__load_f64(part, columns, (j + 1) * n + i) : 0;
            for (int k = 0; k <= pair; k++) {
                const int64_t at = 2 * (i * n + j + k);
                ct__store_f64(part, to, at, re);
                ct__store_f64(part, to, at + 1, k ? -other : other);
            }
        }
        j += pair;
    }
}
static int eig_values(const ct_matrix *m, void *values, void *vectors) {
    const int64_t n = m->rows, all = n * n;
    const ct_dtype dtype = m->dtype, part = ct__part_or_own(dtype), out = eig_complex_dtype(dtype);
    char query[CT_MAX_ELEMENT_BYTES] = {0}, more[CT_MAX_ELEMENT_BYTES] = {0};
    ct_scratch scratch;
    if (!ct__all_finite(dtype, m->of[0], all)) {
        ct__fill_nan(out, values, n);
        if (vectors) ct__fill_nan(out, vectors, all);
        return 0;
    }
    if (!n) return 0;
    geev x = {.job = vectors ? "V" : "N", .lda = m->rows, .lwork = -1, .im = more, .work = query};
    lapack_call_geev(m, &x);
    x.lwork = lapack_work_size(dtype, query);
    if (!ct__scratch_make(&scratch,
                          2 * ct__scratch_bytes(dtype, all) + ct__scratch_bytes(dtype, n) +
                              ct__scratch_bytes(dtype, 2 * n) + ct__scratch_bytes(dtype, x.lwork)))
        return CT_MATRIX_NO_MEMORY;
    x.a = ct__scratch_take(&scratch, dtype, all);
    x.v = ct__scratch_take(&scratch, dtype, all);
    x.re = ct__scratch_take(&scratch, dtype, n);
    x.im = ct__scratch_take(&scratch, dtype, 2 * n);
    x.work = ct__scratch_take(&scratch, dtype, x.lwork);
    ct__to_column_major(dtype, n, n, m->of[0], x.a);
    const int info = lapack_call_geev(m, &x);
    if (dtype == out) {
        memcpy(values, x.re, ct__dtype_bytes(out, n));
        if (vectors) ct__to_column_major(dtype, n, n, x.v, vectors);
    } else {
        for (int64_t i = 0; i < n; i++) {
            ct__store_f64(part, values, 2 * i, ct__load_f64(part, x.re, i));
            ct__store_f64(part, values, 2 * i + 1, ct__load_f64(part, x.im, i));
        }
        if (vectors && !info) eig_unpack_pairs(part, n, x.im, x.v, vectors);
    }
    ct__free(scratch.memory);
    return info;
}
static int eig_compute(const ct_matrix *m) { return eig_values(m, m->of[1], m->of[2]); }
static int eigvals_compute(const ct_matrix *m) { return eig_values(m, m->of[1], NULL); }
LAPACK_EVAL(eig, eig_say_not_converged)
LAPACK_EVAL(eigvals, eig_say_not_converged)
// Returns inv(V) x' V, the tangent in the basis of the eigenvectors.
static ct_tensor eig_in_basis(ct_tensor v, ct_tensor t) {
    return ct_solve(v, ct_matmul(ct__to(t, (ct_dtype)ct__type_of(v)->dtype), v));
}
// The vectors keep length 1. Their phase is LAPACK's choice and no result should depend on it: its tangent
// is 0 here.
static bool eig_jvp(ct_rule *r) {
    ct_tensor v = r->out[1], inside = eig_in_basis(v, r->t_in[0]);
    ct_tensor t =
        ct_matmul(v, ct_mul(eig_off_diagonal_inverse(eig_pairs(r->out[0], false)), inside));
    ct_tensor length_change = ct__diagonal_of(ct_real(ct_matmul(ct__adjoint(v), t)));
    r->t_out[0] = ct__diagonal_of(inside);
    r->t_out[1] = ct_sub(t, ct__scale_columns(v, length_change));
    return true;
}
static bool eigvals_jvp(ct_rule *r) {
    return ct__set_tangent(r, ct__diagonal_of(eig_in_basis(ct_eig(r->in[0]).vectors, r->t_in[0])));
}
const ct_opdef ct__op_eig = {
    LAPACK_OP(EIG, eig, 1, 2),
    .core = {2},
    .doc =
        "Eigenvalues (..., N) and eigenvectors of length 1, the columns of (..., N, N), of square "
        "matrices: complex numbers, of real matrices too. Derivatives are of what does not hang on "
        "the "
        "vectors' phases, and infinite where two values are equal. A matrix that holds NaN or "
        "infinity gives NaN.",
    .autocast = CT_CAST_F32,
};
const ct_opdef ct__op_eigvals = {
    LAPACK_OP(EIGVALS, eigvals, 1, 1),
    .core = {2},
    .doc =
        "Eigenvalues (..., N), complex numbers, of square matrices (..., N, N), in LAPACK's order.",
    .autocast = CT_CAST_F32,
};
