// Reductions over a few elements have no loop: each element is written out. Their bits are those of the
// rule in kir.h, stated here once more, with infinities, NaN and zeros of both signs among the elements.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cotan/cotan.h"

enum { LONGEST = 36, COLUMNS = 300 };

static uint64_t seed = 7;
static float element(void) {
    static const float rare[] = {0, -0.0f, INFINITY, -INFINITY, NAN, 1, -1};
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    if (seed >> 58 < 8) return -0.0f;
    if (seed >> 58 < 12) return rare[(seed >> 33) % (sizeof rare / sizeof *rare)];
    return (float)((double)(seed >> 11) * 0x1p-53 * 2 - 1);
}

typedef enum { SUM, PRODUCT, MOST, LEAST, PLACE } what;

static float joined(what op, float a, float b) {
    if (op == SUM) return a + b;
    if (op == PRODUCT) return a * b;
    if (isnan(a) || isnan(b)) return NAN;
    if (a == b) return (op == MOST) == !signbit(a) ? a : b;
    return (op == MOST) == (a > b) ? a : b;
}
static float by_rule(what op, const float *x, int n, int step) {
    static const float starts[] = {0, 1, -INFINITY, INFINITY};
    float lane[16];
    for (int j = 0; j < 16; j++) lane[j] = starts[op];
    for (int i = 0; i < n; i++) lane[i % 16] = joined(op, lane[i % 16], x[i * step]);
    for (int h = 8; h; h /= 2)
        for (int j = 0; j < h; j++) lane[j] = joined(op, lane[j], lane[j + h]);
    return lane[0];
}
static int place_of(const float *x, int n,
                    int step) { // the first NaN, else the first of the largest
    float best = -INFINITY;
    int at = 0;
    for (int i = 0; i < n && !isnan(best); i++)
        if (x[i * step] > best || isnan(x[i * step])) best = x[i * step], at = i;
    return at;
}

// x (n, COLUMNS) over its rows, or (COLUMNS, n) over its columns.
static void check(what op, int n, bool rows) {
    static float x[LONGEST * COLUMNS];
    for (int i = 0; i < n * COLUMNS; i++) x[i] = element();
    const int apart = rows ? COLUMNS : 1, next = rows ? 1 : n;
    ct_tensor t = ct_from(x, CT_F32, rows ? CT_DIMS(n, COLUMNS) : CT_DIMS(COLUMNS, n));
    const ct_ints axes = rows ? CT_AXES(0) : CT_AXES(1);
    if (op == PLACE) {
        const int32_t *at = ct_data(ct_argmax(t, .axis = rows ? 0 : 1));
        assert_non_null(at);
        for (int c = 0; c < COLUMNS; c++) assert_int_equal(at[c], place_of(x + c * next, n, apart));
        return;
    }
    ct_tensor y = op == SUM       ? ct_sum(t, .axes = axes)
                  : op == PRODUCT ? ct_prod(t, .axes = axes)
                  : op == MOST    ? ct_max(t, .axes = axes)
                                  : ct_min(t, .axes = axes);
    const float *got = ct_data(y);
    assert_non_null(got);
    for (int c = 0; c < COLUMNS; c++) {
        const float want = by_rule(op, x + c * next, n, apart);
        if (isnan(want))
            assert_true(isnan(got[c]));
        else
            assert_memory_equal(&got[c], &want, sizeof want);
    }
}

static void few_elements_go_by_the_rule(void **state) {
    static const int lengths[] = {1, 2, 3, 4, 7, 9, 15, 16, 17, 25, 32, 33, LONGEST};
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (what op = SUM; op <= PLACE; op++)
            for (int rows = 0; rows < 2; rows++) {
                CT_SCOPE;
                check(op, lengths[i], rows);
            }
}

static void whole_numbers_have_places_too(void **state) {
    (void)state;
    CT_SCOPE;
    static int32_t x[9 * COLUMNS];
    for (int i = 0; i < 9 * COLUMNS; i++) x[i] = i * 7919 % 5;
    ct_tensor t = ct_from(x, CT_I32, CT_DIMS(9, COLUMNS));
    const int32_t *at = ct_data(ct_argmin(t, .axis = 0));
    assert_non_null(at);
    for (int c = 0; c < COLUMNS; c++) {
        int best = 0;
        for (int i = 1; i < 9; i++)
            if (x[i * COLUMNS + c] < x[best * COLUMNS + c]) best = i;
        assert_int_equal(at[c], best);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_elements_go_by_the_rule),
        cmocka_unit_test(whole_numbers_have_places_too),
    };
    return cmocka_run_group_tests_name("short reductions", tests, NULL, NULL);
}
