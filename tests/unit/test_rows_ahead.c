// Rows that are read in several loops: which kernels ask memory for later rows while they compute.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cotan/cotan.h"

static int asked; // lines by the kernels of the last program

static void count(ct_log_kind kind, const char *text, void *user) {
    (void)user;
    if (kind != CT_LOG_DUMP) fail_msg("%s", text);
    for (const char *at = text; (at = strstr(at, "__builtin_prefetch")); at++) asked++;
}

static int asked_by(ct_tensor y) {
    ct_set_log(count, NULL);
    asked = 0;
    setenv("COTAN_DUMP", "kernels", 1);
    if (!ct_eval(&y, 1)) fail_msg("%s", ct_error_text());
    unsetenv("COTAN_DUMP");
    return asked;
}

// Else a program met a second time, with other sizes, has a plan for all sizes.
static void forget_plans(const char *device) {
    assert_true(ct_shutdown());
    assert_true(ct_set_device(device));
}

static ct_tensor numbers(int64_t rows, int64_t columns, int factor) {
    float *v = malloc((size_t)(rows * columns) * sizeof *v);
    for (int64_t i = 0; i < rows * columns; i++) v[i] = (float)(i * factor % 17 - 8);
    ct_tensor t = ct_from(v, CT_F32, CT_DIMS(rows, columns));
    free(v);
    return t;
}
static ct_tensor weighed(ct_tensor x, ct_tensor y) { // x times the sum of x y in its row
    return ct_mul(x, ct_sum(ct_mul(x, y), .axes = CT_AXES(1), .keepdims = true));
}

static void two_operands_of_short_rows(void **state) {
    (void)state;
    static const struct {
        int64_t rows, columns;
        int asked;
    } cases[] = {{1024, 1024, 2}, {1024, 8, 0}, {64, 1024, 0}, {64, 8192, 2}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        forget_plans("dry:cpu");
        CT_SCOPE;
        const int64_t rows = cases[c].rows, columns = cases[c].columns;
        ct_tensor y = weighed(numbers(rows, columns, 3), numbers(rows, columns, 5));
        assert_int_equal(asked_by(y), cases[c].asked);
    }
}

static void one_operand_of_long_rows(void **state) {
    (void)state;
    static const struct {
        int64_t rows, columns;
        int asked;
    } cases[] = {{64, 8192, 0}, {64, 16384, 1}, {16, 65536, 1}, {16, 65552, 0}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        forget_plans("dry:cpu");
        CT_SCOPE;
        ct_tensor x = numbers(cases[c].rows, cases[c].columns, 3);
        assert_int_equal(asked_by(weighed(x, x)), cases[c].asked);
    }
}

// Behind the last rows nothing is read: the values are those of the rows themselves.
static void the_values_are_the_same(void **state) {
    (void)state;
    enum { ROWS = 300, COLUMNS = 1008 };
    forget_plans("cpu");
    CT_SCOPE;
    ct_tensor x = numbers(ROWS, COLUMNS, 3), y = numbers(ROWS, COLUMNS, 5);
    ct_tensor z = weighed(x, y);
    setenv("COTAN_COMPILE", "wait", 1);
    assert_int_equal(asked_by(z), 2);
    unsetenv("COTAN_COMPILE");
    const float *a = ct_data(x), *b = ct_data(y), *c = ct_data(z);
    for (int i = 0; i < ROWS; i++) {
        float sum = 0; // of whole numbers
        for (int k = 0; k < COLUMNS; k++) sum += a[i * COLUMNS + k] * b[i * COLUMNS + k];
        for (int k = 0; k < COLUMNS; k++)
            assert_true(c[i * COLUMNS + k] == a[i * COLUMNS + k] * sum);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_operands_of_short_rows),
        cmocka_unit_test(one_operand_of_long_rows),
        cmocka_unit_test(the_values_are_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
