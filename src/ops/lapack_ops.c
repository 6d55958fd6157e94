// Ops that LAPACK computes: factors of matrices, and what is solved with them. Their derivatives are
// compositions over themselves.
#include <string.h>

#include "ops/matrices.h"

#define CALL(ID, op)                                                                               \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_call, .accepts = CT_LINALG,                   \
    .infer = op##_infer, .eval = op##_eval, .jvp = op##_jvp

static int most(int a, int b) { return a > b ? a : b; }
static int least(int a, int b) { return a < b ? a : b; }

// The type of what a factorisation of one operand gives: matrices (rows, columns) or lists.
static bool factor_out(ct_call *call, int out, ct_dtype dtype, int n, int64_t rows,
                       int64_t columns) {
    ct_type batch = *call->in[0];
    batch.rank = (uint8_t)(batch.rank - 2);
    return ct__matrix_out(call, out, dtype, &batch, n, (int64_t[]){rows, columns});
}
static int64_t rows_of(const ct_call *call) {
    return ct__size_of(call->in[0], call->in[0]->rank - 2);
}
static int64_t columns_of(const ct_call *call) {
    return ct__size_of(call->in[0], call->in[0]->rank - 1);
}
static int64_t smaller_of(const ct_call *call) {
    const ct_type *x = call->in[0];
    return x->dim[x->rank - 2] < x->dim[x->rank - 1] ? rows_of(call) : columns_of(call);
}

static void never_said(const ct_ref *ref, int info, ct_text *text) {
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
static int cholesky_one(const ct_matrix *m) {
    const bool upper = ((const cholesky_attrs *)m->ref->attrs)->upper;
    const int64_t n = m->rows;
    const int lda = most(m->rows, 1);
    int info = 0;
    ct_room room;
    if (!ct__all_finite(m->dtype, m->of[0], n * n)) {
        ct__fill_nan(m->dtype, m->of[1], n * n);
        return 0;
    }
    if (!ct__room_make(&room, ct__room_for(m->dtype, n * n))) return CT_MATRIX_NO_MEMORY;
    char *a = ct__room_take(&room, m->dtype, n * n);
    ct__by_columns(m->dtype, n, n, m->of[0], a);
    m->lapack->potrf(upper ? "U" : "L", &m->rows, a, &lda, &info, 1);
    const size_t each = ct_dtype_size(m->dtype);
    for (int64_t j = 0; j < n; j++) // column j
        memset(a + (size_t)(j * n + (upper ? j + 1 : 0)) * each, 0,
               (size_t)(upper ? n - 1 - j : j) * each);
    ct__by_columns(m->dtype, n, n, a, m->of[1]);
    ct__free(room.memory);
    return info;
}
static void not_positive(const ct_ref *ref, int info, ct_text *text) {
    (void)ref;
    ct__textf(text, "is not positive definite: its first %d rows and columns are not", info);
}
static bool cholesky_eval(const ct_ref *ref) {
    return ct__each_matrix(ref, cholesky_one, not_positive);
}
// L' = L P(inv(L) a' inv(L)^H), where P takes the lower triangle and half of the diagonal. The matrix
// counts as what it is taken for: symmetric.
static bool cholesky_jvp(ct_rule *r) {
    const bool upper = ((const cholesky_attrs *)r->attrs)->upper;
    ct_tensor l = upper ? ct__adjoint(r->out[0]) : r->out[0], half = ct__number_like(0.5, l);
    ct_tensor a = ct_mul(ct_add(r->t_in[0], ct__adjoint(r->t_in[0])), half);
    ct_tensor left = ct_triangular_solve(l, a);
    ct_tensor both = ct_triangular_solve(l, ct__adjoint(left)); // symmetric
    ct_tensor lower = ct_add(ct__lower_part(both, 1), ct__lower_part(both, 0));
    ct_tensor t = ct_matmul(l, ct_mul(lower, half));
    r->t_out[0] = upper ? ct__adjoint(t) : t;
    return true;
}
const ct_opdef ct__op_cholesky = {
    CALL(CHOLESKY, cholesky),
    CT_FIELDS(cholesky),
    .n_in = 1,
    .n_out = 1,
    .core = {2},
    .doc = "The lower triangular L with L L^H = x, of positive definite matrices (..., N, N), of "
           "which only the lower triangle is read; `upper`: U with U^H U = x, of the upper one. A "
           "matrix that is not positive definite is an error of the plan; one that holds NaN or "
           "infinity gives NaN.",
};

// ---------------------------------------------------------------------------------- triangular_solve

#define TRIANGULAR_SOLVE_ATTRS(F, op) F(op, bool, upper) F(op, i64, transpose) F(op, bool, unit)
CT_ATTRS(triangular_solve, TRIANGULAR_SOLVE_ATTRS);

// Operand 0 square, operand 1 with as many rows, both of one dtype, at `b` among the operands.
static bool solve_infer(ct_call *call, int b, const int *core) {
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
static const char *const ways[3] = {"N", "T", "C"};

static bool triangular_solve_infer(ct_call *call) {
    const triangular_solve_attrs *attrs = call->attrs;
    return ct__check_transpose(call, attrs->transpose) && solve_infer(call, 1, (int[]){2, 2});
}
// The place of the first 0 on the diagonal of a (N, N), from 1 on; 0: there is none.
static int zero_on_diagonal(const ct_matrix *m) {
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
static int64_t right_sides(const ct_matrix *m, int b) {
    const ct_type *type = &m->ref->in_type[b];
    return type->dim[type->rank - 1];
}
static int triangular_solve_one(const ct_matrix *m) {
    const triangular_solve_attrs *attrs = m->ref->attrs;
    static const float one_f32[2] = {1, 0};
    static const double one_f64[2] = {1, 0};
    const int64_t n = m->rows, k = right_sides(m, 1);
    const int columns = (int)k, lda = most(m->rows, 1);
    const bool wide = m->dtype == CT_F64 || m->dtype == CT_C128;
    const int zero = attrs->unit ? 0 : zero_on_diagonal(m);
    ct_room room;
    if (zero) return zero;
    if (!ct__room_make(&room, ct__room_for(m->dtype, n * n) + ct__room_for(m->dtype, n * k)))
        return CT_MATRIX_NO_MEMORY;
    void *a = ct__room_take(&room, m->dtype, n * n), *b = ct__room_take(&room, m->dtype, n * k);
    ct__by_columns(m->dtype, n, n, m->of[0], a);
    ct__by_columns(m->dtype, n, k, m->of[1], b);
    m->lapack->trsm("L", attrs->upper ? "U" : "L", ways[attrs->transpose], attrs->unit ? "U" : "N",
                    &m->rows, &columns, wide ? (const void *)one_f64 : one_f32, a, &lda, b, &lda, 1,
                    1, 1, 1);
    ct__by_columns(m->dtype, k, n, b, m->of[2]);
    ct__free(room.memory);
    return 0;
}
static void zero_diagonal(const ct_ref *ref, int info, ct_text *text) {
    const ct_type *x = &ref->in_type[0];
    ct__textf(text, "is singular: number %d of the %lld on its diagonal is 0", info,
              (long long)x->dim[x->rank - 1]);
}
static bool triangular_solve_eval(const ct_ref *ref) {
    return ct__each_matrix(ref, triangular_solve_one, zero_diagonal);
}
static ct_tensor solved_as(const triangular_solve_attrs *attrs, ct_tensor a, ct_tensor b) {
    return ct_triangular_solve(a, b, .upper = attrs->upper, .transpose = attrs->transpose,
                               .unit = attrs->unit);
}
// a x = b gives a x' = b' - a' x, with a and a' as they are meant.
static bool triangular_solve_jvp(ct_rule *r) {
    const triangular_solve_attrs *attrs = r->attrs;
    ct_tensor b = r->t_in[1];
    if (!ct__is_none(r->t_in[0])) {
        ct_tensor a = attrs->upper ? ct__upper_part(r->t_in[0], attrs->unit)
                                   : ct__lower_part(r->t_in[0], attrs->unit);
        a = ct__meant(a, attrs->transpose);
        b = ct__add_zero(b, ct_neg(ct_matmul(a, r->out[0])));
    }
    r->t_out[0] = solved_as(attrs, r->in[0], b);
    return true;
}
// Of x = inv(a) b the cotangent of b is inv(a)^T c.
static bool triangular_solve_transpose(ct_rule *r) {
    triangular_solve_attrs attrs = *(const triangular_solve_attrs *)r->attrs;
    const bool conjugated = attrs.transpose == 2;
    ct_tensor c = conjugated ? ct__conj_of(r->c_out[0]) : r->c_out[0];
    attrs.transpose = attrs.transpose == 0;
    c = solved_as(&attrs, r->in[0], c);
    r->c_in[1] = conjugated ? ct__conj_of(c) : c;
    return true;
}
const ct_opdef ct__op_triangular_solve = {
    CALL(TRIANGULAR_SOLVE, triangular_solve),
    CT_FIELDS(triangular_solve),
    .n_in = 2,
    .n_out = 1,
    .core = {2, 2},
    .transpose = triangular_solve_transpose,
    .doc =
        "The x of a x = b for triangular matrices a (..., N, N) and b (..., N, K); axes in front "
        "broadcast. Of a only the lower triangle is read, or the `upper` one; `transpose` 1 "
        "means the transpose of a, 2 its conjugate transpose, `unit` that its diagonal counts "
        "as 1. A 0 on the diagonal is an error of the plan.",
};

// ------------------------------------------------------------------------------------------------ lu

static bool lu_infer(ct_call *call) {
    if (!ct__check_matrices(call, 0, false)) return false;
    *call->out = *call->in[0];
    return factor_out(call, 1, CT_I32, 1, smaller_of(call), 0) &&
           factor_out(call, 2, CT_I32, 1, rows_of(call), 0);
}
static int lu_one(const ct_matrix *m) {
    const int64_t n = (int64_t)m->rows * m->columns;
    const int lda = most(m->rows, 1), few = least(m->rows, m->columns);
    int32_t *pivots = m->of[2], *order = m->of[3];
    int info = 0;
    ct_room room;
    for (int i = 0; i < m->rows; i++) order[i] = i;
    if (!ct__all_finite(m->dtype, m->of[0], n)) {
        ct__fill_nan(m->dtype, m->of[1], n);
        for (int i = 0; i < few; i++) pivots[i] = i;
        return 0;
    }
    if (!ct__room_make(&room, ct__room_for(m->dtype, n))) return CT_MATRIX_NO_MEMORY;
    void *a = ct__room_take(&room, m->dtype, n);
    ct__by_columns(m->dtype, m->rows, m->columns, m->of[0], a);
    m->lapack->getrf(&m->rows, &m->columns, a, &lda, pivots, &info);
    ct__by_columns(m->dtype, m->columns, m->rows, a, m->of[1]);
    ct__free(room.memory);
    for (int i = 0; i < few; i++) {
        const int32_t from = order[i];
        pivots[i]--; // LAPACK counts from 1
        order[i] = order[pivots[i]];
        order[pivots[i]] = from;
    }
    return 0; // a factor with a 0 on its diagonal is one, too
}
static bool lu_eval(const ct_ref *ref) { return ct__each_matrix(ref, lu_one, never_said); }
// With W = inv(L) P a' inv(U): L' = L W below the diagonal, U' = W on and above it, U.
static bool lu_jvp(ct_rule *r) {
    const ct_type *type = ct__type_of(r->in[0]);
    ct_ctx *ctx = ct__ctx();
    r->t_out[1] = r->t_out[2] = CT_NONE;
    if (type->dim[type->rank - 1] != type->dim[type->rank - 2]) {
        ct__fail(ctx, CT_E_GRAD, r->node->here, "lu",
                 "%s is no square matrix, and has no derivative here", ct__type_text(type).s);
        return false;
    }
    ct_tensor lu = r->out[0], order = r->out[2];
    ct_tensor l = ct_add(ct__lower_part(lu, 1), ct__identity(lu)), u = ct__upper_part(lu, 0);
    ct_tensor a = ct_gather(r->t_in[0], order, .axis = -2, .batch_dims = type->rank - 2);
    ct_tensor w = ct_triangular_solve(l, a, .unit = true);
    w = ct__swap_last(ct_triangular_solve(u, ct__swap_last(w), .upper = true, .transpose = 1));
    r->t_out[0] = ct_add(ct_matmul(l, ct__lower_part(w, 1)), ct_matmul(ct__upper_part(w, 0), u));
    return true;
}
const ct_opdef ct__op_lu = {
    CALL(LU, lu),
    .n_in = 1,
    .n_out = 3,
    .core = {2},
    .doc =
        "Factors of matrices (..., M, N) with rows exchanged: L (ones on its diagonal, which are "
        "left out) below the diagonal of `factors`, U on and above it; row i was exchanged with "
        "row "
        "`pivots`[i], one after the other, so that x[order] = L U. A singular matrix has "
        "factors, too; one that holds NaN or infinity gives NaN.",
};

// ------------------------------------------------------------------------------------------ lu_solve

#define LU_SOLVE_ATTRS(F, op) F(op, i64, transpose)
CT_ATTRS(lu_solve, LU_SOLVE_ATTRS);

static bool lu_solve_infer(ct_call *call) { return solve_infer(call, 2, (int[]){2, 1, 2}); }
static int lu_solve_one(const ct_matrix *m) {
    const int64_t transpose = ((const lu_solve_attrs *)m->ref->attrs)->transpose;
    const int64_t n = m->rows, k = right_sides(m, 2);
    const int columns = (int)k, lda = most(m->rows, 1), zero = zero_on_diagonal(m);
    const int32_t *from_0 = m->of[1];
    int info = 0;
    ct_room room;
    if (zero) return zero;
    if (!ct__room_make(&room, ct__room_for(m->dtype, n * n) + ct__room_for(m->dtype, n * k) +
                                  ct__room_for(CT_I32, n)))
        return CT_MATRIX_NO_MEMORY;
    void *a = ct__room_take(&room, m->dtype, n * n), *b = ct__room_take(&room, m->dtype, n * k);
    int *pivots = ct__room_take(&room, CT_I32, n);
    for (int64_t i = 0; i < n; i++) pivots[i] = from_0[i] + 1;
    ct__by_columns(m->dtype, n, n, m->of[0], a);
    ct__by_columns(m->dtype, n, k, m->of[2], b);
    m->lapack->getrs(ways[transpose], &m->rows, &columns, a, &lda, pivots, b, &lda, &info, 1);
    ct__by_columns(m->dtype, k, n, b, m->of[3]);
    ct__free(room.memory);
    return info;
}
static void is_singular(const ct_ref *ref, int info, ct_text *text) {
    const ct_type *x = &ref->in_type[0];
    ct__textf(text, "is singular: pivot %d of %lld is 0", info, (long long)x->dim[x->rank - 1]);
}
static bool lu_solve_eval(const ct_ref *ref) {
    return ct__each_matrix(ref, lu_solve_one, is_singular);
}
ct_tensor ct__lu_solve(ct_tensor lu, ct_tensor pivots, ct_tensor b, int64_t transpose) {
    return ct__record(&ct__op_lu_solve, &(lu_solve_attrs){transpose}, (ct_tensor[]){lu, pivots, b},
                      3, CT_NOWHERE);
}
static bool lu_solve_jvp(ct_rule *r) { // ct_solve, whose factors these are, has a rule of its own
    if (!ct__is_none(r->t_in[0])) {
        ct__fail(ct__ctx(), CT_E_INTERNAL, r->node->here, "lu_solve", "its factors have a tangent");
        return false;
    }
    r->t_out[0] =
        ct__lu_solve(r->in[0], r->in[1], r->t_in[2], ((const lu_solve_attrs *)r->attrs)->transpose);
    return true;
}
static bool lu_solve_transpose(ct_rule *r) {
    const int64_t transpose = ((const lu_solve_attrs *)r->attrs)->transpose;
    ct_tensor c = transpose == 2 ? ct__conj_of(r->c_out[0]) : r->c_out[0];
    c = ct__lu_solve(r->in[0], r->in[1], c, transpose == 0);
    r->c_in[2] = transpose == 2 ? ct__conj_of(c) : c;
    return true;
}
const ct_opdef ct__op_lu_solve = {
    CALL(LU_SOLVE, lu_solve),
    CT_FIELDS(lu_solve),
    .n_in = 3,
    .n_out = 1,
    .core = {2, 1, 2},
    .transpose = lu_solve_transpose,
    .doc = "The x of a x = b (`transpose` as in solve), given the factors and pivots of a.",
};
