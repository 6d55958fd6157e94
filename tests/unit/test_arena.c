// How much memory temporaries take: results over operands that die, an order that frees early.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>
#include <cotan/cotan.h>

enum { N = 256, MATRIX = N * N * 4 };

static float numbers[N * N];

static ct_tensor matrix(void) { return ct_from(numbers, CT_F32, CT_DIMS(N, N)); }

static uint64_t arena(void) {
    const ct_plan_cost *cost = ct_latest_plan();
    assert_non_null(cost);
    return cost->arena_bytes;
}

// Of a chain two are alive at a time.
static void test_chain_of_products(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = matrix(), w = matrix();
    for (int i = 0; i < 6; i++) x = ct_matmul(x, w);
    assert_non_null(ct_data(x));
    assert_int_equal(arena(), 2 * MATRIX);
}

// exp(x - max(x)) is written over x, of which each element is read where the result is written.
static void test_over_a_dying_operand(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = ct_matmul(matrix(), matrix());
    ct_tensor y = ct_exp(ct_sub(x, ct_max(x)));
    ct_tensor z = ct_matmul(y, matrix()); // wants y in memory
    const float *got = ct_data(z);
    assert_non_null(got);
    assert_true(arena() < MATRIX + MATRIX / 8);
    double *p = malloc(sizeof(double) * N * N), most = -INFINITY;
    assert_non_null(p);
    for (int i = 0; i < N * N; i++) {
        p[i] = 0;
        for (int k = 0; k < N; k++)
            p[i] += (double)numbers[i / N * N + k] * (double)numbers[k * N + i % N];
        if (p[i] > most) most = p[i];
    }
    for (int i = 0; i < N * N; i++) p[i] = exp(p[i] - most);
    for (int i = 0; i < N; i++) {
        double sum = 0;
        for (int k = 0; k < N; k++) sum += p[i * N + k] * (double)numbers[k * N + i];
        assert_true(fabs((double)got[i * N + i] - sum) < 1e-4 * (fabs(sum) + 1));
    }
    free(p);
}

// A result that reads its operand elsewhere than it writes it has a place of its own.
static void test_not_over_what_is_read_elsewhere(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = ct_matmul(matrix(), matrix());
    ct_tensor y = ct_sub(x, ct_permute(x, CT_DIMS(1, 0)));
    const float *got = ct_data(ct_matmul(y, y));
    assert_non_null(got);
    assert_int_equal(arena(), 2 * MATRIX);
}

// What a softmax over rows makes takes the place of the scores: they are read up to three times, but
// all by the row that is then overwritten.
static void test_rows_over_rows(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor p = ct_softmax(ct_matmul(matrix(), matrix()));
    assert_non_null(ct_data(ct_matmul(p, matrix())));
    assert_true(arena() < MATRIX + MATRIX / 8);
}

// The sum of t is recorded last and runs first, so that t goes before the chain that follows.
static void test_order_frees_early(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor w = matrix(), t = ct_matmul(matrix(), w), y = t;
    for (int i = 0; i < 4; i++) y = ct_matmul(y, w);
    ct_tensor end = ct_keep(ct_sum(y)), early = ct_keep(ct_sum(ct_mul(t, t)));
    assert_non_null(ct_data(end));
    assert_non_null(ct_data(early));
    assert_true(arena() < 2 * MATRIX + MATRIX / 8);
}

static int setup(void **state) {
    (void)state;
    for (int i = 0; i < N * N; i++) numbers[i] = (float)(i * 7 % 101 - 50) / 500;
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain_of_products),
        cmocka_unit_test(test_over_a_dying_operand),
        cmocka_unit_test(test_not_over_what_is_read_elsewhere),
        cmocka_unit_test(test_rows_over_rows),
        cmocka_unit_test(test_order_frees_early),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
