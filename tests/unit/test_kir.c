// Kernel IR from end to end: written by hand, rendered, compiled, run, and compared with double.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/build.h"
#include "compile/kir.h"
#include "compile/render_c.h"
#include "support/kir_run.h"

static uint64_t seed = 0x1234567; // fixed: every run sees the same numbers
static double uniform(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) * 0x1p-53 * 2 - 1;
}

// ------------------------------------------------------------------------------------- the worked
// example softmax of each row of a (rows, columns) matrix:
//     m = max_j x[r, j];  e[j] = exp(x[r, j] - m);  y[r, j] = e[j] / sum_j e[j]
// in three passes over the row. The CORE loop makes the rows parallel; the VECTOR loops are written
// like scalar loops, and REDUCE gives what they add up to.
static void softmax_kernel(ct_kir *k) {
    ct__kir_init(k);
    int x = ct__kir_buffer(k, CT_F32, CT_KIR_READ);
    int y = ct__kir_buffer(k, CT_F32, CT_KIR_READ | CT_KIR_WRITE);
    ct_kval rows = ct__kir_arg(k), columns = ct__kir_arg(k);

    ct_kval r = ct__kir_loop(k, CT_BIND_CORE, rows, "row");
    ct_kval start = ct__kir_mul(k, r, columns);

    ct_kval j = ct__kir_loop(k, CT_BIND_VECTOR, columns, "column: largest");
    assert_int_equal(j, -1); // a name holds no odd characters
    ct__kir_free(k);

    ct__kir_init(k);
    x = ct__kir_buffer(k, CT_F32, CT_KIR_READ);
    y = ct__kir_buffer(k, CT_F32, CT_KIR_READ | CT_KIR_WRITE);
    rows = ct__kir_arg(k), columns = ct__kir_arg(k);
    r = ct__kir_loop(k, CT_BIND_CORE, rows, "row");
    start = ct__kir_mul(k, r, columns);

    j = ct__kir_loop(k, CT_BIND_VECTOR, columns, "column");
    ct_kval value = ct__kir_load(k, x, ct__kir_add(k, start, j));
    ct_kval largest = ct__kir_reduce(k, CT_RED_MAX, value);
    ct__kir_end(k);

    j = ct__kir_loop(k, CT_BIND_VECTOR, columns, "column");
    value = ct__kir_load(k, x, ct__kir_add(k, start, j));
    ct_kval e = ct__kir_math(k, CT_MATH_EXP, ct__kir_sub(k, value, largest));
    ct__kir_store(k, y, ct__kir_add(k, start, j), e);
    ct_kval sum = ct__kir_reduce(k, CT_RED_ADD, e);
    ct__kir_end(k);

    j = ct__kir_loop(k, CT_BIND_VECTOR, columns, "column");
    e = ct__kir_load(k, y, ct__kir_add(k, start, j));
    ct__kir_store(k, y, ct__kir_add(k, start, j), ct__kir_div(k, e, sum));
    ct__kir_end(k);

    ct__kir_end(k);
}

static void softmax_agrees_with_double(void **state) {
    (void)state;
    static const int64_t sizes[][2] = {{1, 1},    {3, 16},   {5, 17},   {4, 1000},
                                       {2, 1024}, {3, 1030}, {2, 5000}, {7, 100}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int64_t rows = sizes[s][0], columns = sizes[s][1];
        size_t n = (size_t)(rows * columns);
        float *x = malloc(n * sizeof *x), *y = calloc(n + 1, sizeof *y);
        for (size_t i = 0; i < n; i++) x[i] = (float)(uniform() * 8);
        y[n] = 42; // stands guard behind the output
        ct_kir k;
        softmax_kernel(&k);
        kir_run(&k, (void *[]){x, y}, sizes[s], 2);
        for (int64_t r = 0; r < rows; r++) {
            double m = -INFINITY, sum = 0;
            for (int64_t j = 0; j < columns; j++) m = fmax(m, (double)x[r * columns + j]);
            for (int64_t j = 0; j < columns; j++) sum += exp((double)x[r * columns + j] - m);
            for (int64_t j = 0; j < columns; j++) {
                double want = exp((double)x[r * columns + j] - m) / sum;
                assert_true(fabs((double)y[r * columns + j] - want) <= 1e-6 * want);
            }
        }
        assert_true(y[n] == 42);
        free(x);
        free(y);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_agrees_with_double),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
