// What linear algebra refuses, and what a plan finds that has no result: whole sentences, which name the
// matrix of the batch; variables stay as they were.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "support/record.h"

#define TEST(name) cmocka_unit_test_setup_teardown(name, record_begin, record_end)
static const ct_loc here = {"user.c", 7};
#define SAYS(code, text) assert_error(code, "user.c:7: " text)
static ct_tensor f32(ct_ints dims) { return ct_ones(CT_F32, dims); }

static const double singular[4] = {1, 2, 2, 4}, indefinite[4] = {1, 2, 2, 1};
static const double plain[4] = {2, 0, 1, 3};

static ct_tensor batch_of(const double *second) { // (2, 2, 2)
    double both[8];
    memcpy(both, plain, sizeof plain);
    memcpy(both + 4, second, sizeof plain);
    return ct_from(both, CT_F64, CT_DIMS(2, 2, 2));
}
static ct_tensor matrix(const double *x) { return ct_from(x, CT_F64, CT_DIMS(2, 2)); }
static ct_tensor chol(ct_tensor x) {
    return ct_cholesky_with((ct_cholesky_args){.x = x, .here = here});
}
static ct_tensor solve(ct_tensor a, ct_tensor b) {
    return ct_solve_with((ct_solve_args){.a = a, .b = b, .here = here});
}
static ct_tensor triangular(ct_tensor a, ct_tensor b) {
    return ct_triangular_solve_with((ct_triangular_solve_args){.a = a, .b = b, .here = here});
}

static void operands_that_do_not_fit(void **state) {
    (void)state;
    CT_SCOPE;
    chol(f32(CT_DIMS(3)));
    SAYS(CT_E_SHAPE, "cholesky: operand 1 is (3,) f32, and no matrix\n"
                     "  hint: matrices are the last two axes, (..., M, N)");
    chol(f32(CT_DIMS(4, 2, 3)));
    SAYS(CT_E_SHAPE, "cholesky: operand 1 is (4, 2, 3) f32, and no square matrix");
    chol(ct_ones(CT_I32, CT_DIMS(2, 2)));
    SAYS(CT_E_DTYPE,
         "cholesky: operand 1 is (2, 2) i32, accepted are f32, f64 and complex numbers\n"
         "  hint: cast it: ct_cast(x, CT_F32)");
    solve(f32(CT_DIMS(3, 3)), f32(CT_DIMS(3)));
    SAYS(CT_E_SHAPE, "solve: b is (3,) f32, and no matrix\n"
                     "  hint: of one right side make a column: ct_reshape(b, CT_DIMS(-1, 1))");
    solve(f32(CT_DIMS(3, 3)), f32(CT_DIMS(4, 2)));
    SAYS(CT_E_SHAPE, "solve: sizes differ: a is (3, 3) f32, b is (4, 2) f32\n"
                     "  hint: they are (..., N, N) and (..., N, K)");
    solve(f32(CT_DIMS(2, 3, 3)), f32(CT_DIMS(4, 3, 2)));
    SAYS(CT_E_SHAPE, "solve: batch axes do not broadcast: operand 1 is (2, 3, 3) f32, operand 2 is "
                     "(4, 3, 2) f32");
    triangular(f32(CT_DIMS(3, 3)), f32(CT_DIMS(4, 2)));
    SAYS(CT_E_SHAPE,
         "triangular_solve: sizes differ: operand 1 is (3, 3) f32, operand 2 is (4, 2) f32\n"
         "  hint: they are (..., N, N) and (..., N, K)");
    triangular(f32(CT_DIMS(3, 3)), ct_ones(CT_F64, CT_DIMS(3, 2)));
    SAYS(CT_E_DTYPE, "triangular_solve: operand 1 is (3, 3) f32, operand 2 is (3, 2) f64\n"
                     "  hint: cast one of them to the dtype of the other");
    ct_multi_dot_at((ct_tensor[]){f32(CT_DIMS(2, 3)), f32(CT_DIMS(4, 3))}, 2, here);
    SAYS(CT_E_SHAPE,
         "multi_dot: inner sizes differ: operand 1 is (2, 3) f32, operand 2 is (4, 3) f32");
    ct_multi_dot_at((ct_tensor[]){f32(CT_DIMS(3))}, 1, here);
    SAYS(CT_E_SHAPE, "multi_dot: operand 1 is (3,) f32, and no matrix");
    ct_matrix_norm_with(
        (ct_matrix_norm_args){.x = f32(CT_DIMS(3, 3)), .ord = CT_F(3), .here = here});
    SAYS(CT_E_ARGUMENT,
         "matrix_norm: ord is 3: norms of matrices are of 1, -1, 2, -2, infinity and "
         "-infinity");
    ct_cross_at(f32(CT_DIMS(2)), f32(CT_DIMS(3)), here);
    SAYS(CT_E_SHAPE, "cross: last axes have 3 elements: a is (2,) f32, b is (3,) f32");
    ct_vecdot_at(f32(CT_DIMS(2)), f32(CT_DIMS(3)), here);
    SAYS(CT_E_SHAPE, "vecdot: last axes differ: a is (2,) f32, b is (3,) f32");
    ct_outer_at(f32(CT_SCALAR), f32(CT_DIMS(3)), here);
    SAYS(CT_E_SHAPE, "outer: both operands need an axis: a is () f32, b is (3,) f32");
    ct_lstsq_with((ct_lstsq_args){.a = f32(CT_DIMS(3, 2)), .b = f32(CT_DIMS(2, 2)), .here = here});
    SAYS(CT_E_SHAPE, "lstsq: rows differ: a is (3, 2) f32, b is (2, 2) f32\n"
                     "  hint: they are (..., M, N) and (..., M, K)");
    ct_solve_with((ct_solve_args){
        .a = f32(CT_DIMS(3, 3)), .b = f32(CT_DIMS(3, 2)), .transpose = 3, .here = here});
    SAYS(CT_E_ARGUMENT,
         "solve: transpose is 3: 0 takes the matrix as it is, 1 its transpose, 2 its "
         "conjugate transpose");
}

// On each device; behind a queue the error is heard of where a value is read.
static void matrices_without_a_result(void **state) {
    static const char *const devices[] = {"ref", "cpu", "async:ref", "async:cpu"};
    (void)state;
    for (size_t d = 0; d < 4; d++) {
        CT_SCOPE;
        assert_true(ct_set_device(devices[d]));
        assert_null(ct_data(chol(matrix(indefinite))));
        SAYS(CT_E_LINALG,
             "cholesky: the matrix is not positive definite: its first 2 rows and columns "
             "are not");
        assert_null(ct_data(chol(batch_of(indefinite))));
        SAYS(CT_E_LINALG,
             "cholesky: matrix (1,) of the batch is not positive definite: its first 2 rows "
             "and columns are not");
        assert_null(ct_data(solve(batch_of(singular), matrix(plain))));
        SAYS(CT_E_LINALG, "lu_solve: matrix (1,) of the batch is singular: pivot 2 of 2 is 0");
        assert_null(ct_data(ct_inv_at(matrix(singular), here)));
        SAYS(CT_E_LINALG, "lu_solve: the matrix is singular: pivot 2 of 2 is 0");
        double zero[4] = {2, 0, 1, 0};
        assert_null(ct_data(triangular(batch_of(zero), matrix(plain))));
        SAYS(CT_E_LINALG,
             "triangular_solve: matrix (1,) of the batch is singular: number 2 of the 2 on "
             "its diagonal is 0");
        const double *det = ct_data(ct_det(batch_of(singular)));
        assert_ok();
        assert_true(det[0] == 6 && det[1] == 0);
        ct_slogdet_out log = ct_slogdet(batch_of(singular));
        const double *sign = ct_data(log.sign), *size = ct_data(log.logabsdet);
        assert_true(sign[0] == 1 && sign[1] == 0 && fabs(size[0] - log1p(5)) < 1e-12);
        assert_true(isinf(size[1]) && size[1] < 0);
    }
}

// What ends a plan comes before what it changes.
static void variables_stay(void **state) {
    static const char *const devices[] = {"ref", "cpu"};
    (void)state;
    for (size_t d = 0; d < 2; d++) {
        CT_SCOPE;
        assert_true(ct_set_device(devices[d]));
        ct_params *set = ct_params_new();
        ct_tensor w = ct_param(set, "w", CT_F64, CT_DIMS(2, 2));
        ct_tensor x = ct_param(set, "x", CT_F64, CT_DIMS(2, 2));
        {
            CT_SCOPE;
            ct_assign(w, matrix(plain));
            ct_assign(x, matrix(singular));
        }
        assert_ok();
        {
            CT_SCOPE;
            ct_assign(w, ct_mul(w, ct_f(2)));
            ct_assign(x, solve(x, w));
        }
        SAYS(CT_E_LINALG, "lu_solve: the matrix is singular: pivot 2 of 2 is 0");
        {
            CT_SCOPE;
            const double *now = ct_data(w);
            assert_memory_equal(now, plain, sizeof plain);
            now = ct_data(x);
            assert_memory_equal(now, singular, sizeof singular);
        }
        assert_ok();
        ct_params_free(set);
    }
}

static void nan_gives_nan(void **state) {
    (void)state;
    CT_SCOPE;
    double bad[4] = {1, NAN, 2, INFINITY};
    const double *of[] = {ct_data(chol(batch_of(bad))), ct_data(ct_inv(batch_of(bad))),
                          ct_data(ct_det(batch_of(bad)))};
    assert_non_null(of[1]); // the first matrix is not symmetric, of which cholesky reads a triangle
    assert_true(of[0] && isnan(of[0][4]) && isnan(of[0][7]));
    assert_true(isnan(of[1][4]) && fabs(of[1][0] - 0.5) < 1e-12);
    assert_true(isnan(of[2][1]) && of[2][0] == 6);
    assert_ok();
}

static void planned_and_not_run(void **state) {
    (void)state;
    CT_SCOPE;
    assert_true(ct_set_device("dry:cpu"));
    ct_tensor x = chol(matrix(indefinite));
    assert_null(ct_data(x));
    assert_error(CT_E_DEVICE,
                 "dry: this device plans and runs nothing: there are no values to read");
}

static void ahead_of_time(void **state) {
    (void)state;
    assert_true(ct_set_device("dry:cpu"));
    CT_SCOPE;
    ct_keep(chol(matrix(plain)));
    assert_false(
        ct_compile_with((ct_compile_args){.path = "/tmp/cotan_linalg", .here = {"user.c", 9}}));
    assert_error(CT_E_UNSUPPORTED,
                 "user.c:9: compile: cholesky of user.c:7 calls a library, which the C "
                 "that is written cannot do");
}

// Another size is another plan; the numerics say what was loaded.
static void sizes_vary(void **state) {
    (void)state;
    assert_true(ct_set_device("cpu"));
    for (int n = 2; n < 6; n++) {
        CT_SCOPE;
        ct_tensor x = ct_add(ct_iota(CT_F64, CT_DIMS(n, 1), 0), ct_iota(CT_F64, CT_DIMS(1, n), 1));
        double one = 1;
        ct_tensor y = ct_from(&one, CT_F64, CT_SCALAR);
        x = ct_add(ct_mul(x, y), ct_mul(ct_cast(ct_equal(ct_iota(CT_I32, CT_DIMS(n, n), 0),
                                                         ct_iota(CT_I32, CT_DIMS(n, n), 1)),
                                                CT_F64),
                                        ct_f(100)));
        double trace = 0;
        const double *whole = ct_data(ct_matmul(ct_inv(x), x));
        for (int i = 0; i < n && whole; i++) trace += whole[i * n + i];
        assert_ok();
        assert_true(fabs(trace - n) < 1e-9);
    }
    assert_true(strstr(ct_numerics(), " openblas ") || strstr(ct_numerics(), " lapack "));
}

// Every allocation fails once: the error says so, and nothing else happens.
static void without_memory(void **state) {
    (void)state;
    for (int which = 0; which < 2; which++) {
        bool done = false;
        for (int n = 0; !done; n++) {
            CT_SCOPE;
            double values[6] = {1, 2, 3, 4, 5, 7};
            ct_tensor x = ct_from(values, CT_F64, CT_DIMS(3, 2)), y, g;
            ct__fail_alloc_after(n);
            y = which ? ct_qr(x).q : ct_lstsq(ct_kron(x, x), ct_kron(x, x), .rtol = CT_F(1e-9));
            if (!which) y = ct_add(ct_sum(y), ct_det(ct_matmul(ct_permute(x, CT_AXES(1, 0)), x)));
            ct_grad(ct_sum(y), &x, 1, &g);
            done = ct_data(g) != NULL;
            ct__fail_alloc_after(-1);
            if (!done) assert_int_equal(ct_error_code(), CT_E_MEMORY);
            ct_error_clear();
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(operands_that_do_not_fit),
        TEST(matrices_without_a_result),
        TEST(variables_stay),
        TEST(nan_gives_nan),
        TEST(planned_and_not_run),
        TEST(ahead_of_time),
        TEST(sizes_vary),
        TEST(without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
