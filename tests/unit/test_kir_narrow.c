// Index arithmetic on numbers that were widened to i64: comparisons and places are computed in the
// bits that the numbers came in, and are the same, at the edges of i32 too.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "compile/render/render_c.h"
#include "graph/type.h"
#include "kir/kir.h"
#include "support/kir_run.h"

static const int64_t edges[] = {INT64_MIN,
                                -((int64_t)1 << 32) - 1,
                                (int64_t)INT32_MIN - 1,
                                INT32_MIN,
                                INT32_MIN + 1,
                                -129,
                                -1,
                                0,
                                1,
                                100,
                                127,
                                255,
                                256,
                                65535,
                                INT32_MAX - 1,
                                INT32_MAX,
                                (int64_t)INT32_MAX + 1,
                                UINT32_MAX,
                                (int64_t)UINT32_MAX + 1,
                                INT64_MAX};
enum { EDGES = sizeof edges / sizeof *edges, TRUTHS = EDGES * EDGES * 8 };

// Whatever of the edges a dtype has, as it lies in memory, and as a number.
static int those_of(ct_dtype dtype, char *bytes, int64_t *number) {
    int n = 0;
    for (int i = 0; i < EDGES; i++) {
        if (edges[i] < ct__int_min(dtype) || edges[i] > ct__int_max(dtype)) continue;
        memcpy(bytes + (size_t)n * ct_dtype_size(dtype), &edges[i], ct_dtype_size(dtype));
        number[n++] = edges[i];
    }
    return n;
}

static bool compared(ct_kop op, int64_t a, int64_t b) {
    return op == CT_K_LT ? a < b : op == CT_K_LE ? a <= b : op == CT_K_EQ ? a == b : a != b;
}

static bool compares_i64(const ct_kir *k) {
    for (size_t i = 0; i < k->n; i++)
        if (k->ins[i].op >= CT_K_LT && k->ins[i].op <= CT_K_NE &&
            k->ins[k->ins[i].a].dtype == CT_I64)
            return true;
    return false;
}

// Each edge of the dtype with each number, on either side, and with each other edge of the dtype.
static void comparisons_of(ct_dtype dtype) {
    char x[EDGES * 8];
    int64_t number[EDGES];
    uint8_t *truth = malloc(TRUTHS), *want = malloc(TRUTHS);
    const int n = those_of(dtype, x, number);
    int at = 0;
    ct_kir k;
    ct__kir_init(&k);
    const int in = ct__kir_buffer(&k, dtype, CT_KIR_READ);
    const int out = ct__kir_buffer(&k, CT_BOOL, CT_KIR_WRITE);
    const ct_kval i = ct__kir_loop_n(&k, CT_BIND_LANES, n, "element");
    const ct_kval wide = ct__kir_cast(&k, ct__kir_load(&k, in, i), CT_I64);
    const ct_kval last = ct__kir_sub(&k, ct__kir_int(&k, n - 1), i);
    const ct_kval other = ct__kir_cast(&k, ct__kir_load(&k, in, last), CT_I64);
    for (ct_kop op = CT_K_LT; op <= CT_K_NE; op++)
        for (int c = 0; c <= EDGES; c++)
            for (int left = 0; left < 2; left++, at += n) {
                const ct_kval y = c < EDGES ? ct__kir_int(&k, edges[c]) : other;
                ct__kir_store(&k, out, ct__kir_addi(&k, i, at),
                              ct__kir_bin(&k, op, left ? y : wide, left ? wide : y));
                for (int e = 0; e < n; e++) {
                    const int64_t b = c < EDGES ? edges[c] : number[n - 1 - e];
                    want[at + e] = compared(op, left ? b : number[e], left ? number[e] : b);
                }
            }
    ct__kir_end(&k);
    assert_false(compares_i64(&k));
    kir_run(&k, (void *[]){x, truth}, NULL, 1);
    for (int e = 0; e < at; e++)
        if (truth[e] != want[e])
            fail_msg("%s: comparison %d of %lld gives %d", ct_dtype_name(dtype), e / n,
                     (long long)number[e % n], truth[e]);
    free(truth);
    free(want);
}

static void comparisons_take_the_bits_there_are(void **state) {
    (void)state;
    comparisons_of(CT_I32);
    comparisons_of(CT_U32);
    comparisons_of(CT_U8);
    comparisons_of(CT_I16);
}

// 0 <= x < n of n that is known, and of n that is an argument.
static void insides_of(ct_dtype dtype) {
    static const int64_t sizes[] = {
        0,          1,        100, INT32_MAX, (int64_t)INT32_MAX + 1, (int64_t)INT32_MAX + 2,
        UINT32_MAX, INT64_MAX};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    char x[EDGES * 8];
    uint8_t truth[EDGES * SIZES * 2];
    int64_t number[EDGES];
    const int n = those_of(dtype, x, number);
    ct_kir k;
    ct__kir_init(&k);
    const int in = ct__kir_buffer(&k, dtype, CT_KIR_READ);
    const int out = ct__kir_buffer(&k, CT_BOOL, CT_KIR_WRITE);
    ct_kval arg[SIZES];
    for (int s = 0; s < SIZES; s++) arg[s] = ct__kir_arg(&k);
    const ct_kval i = ct__kir_loop_n(&k, CT_BIND_LANES, n, "element");
    const ct_kval wide = ct__kir_cast(&k, ct__kir_load(&k, in, i), CT_I64);
    for (int s = 0; s < SIZES * 2; s++) {
        const ct_kval size = s < SIZES ? ct__kir_int(&k, sizes[s]) : arg[s - SIZES];
        ct__kir_store(&k, out, ct__kir_addi(&k, i, s * n), ct__kir_is_in_range(&k, wide, size));
    }
    ct__kir_end(&k);
    assert_true(dtype != CT_I32 || !compares_i64(&k));
    kir_run(&k, (void *[]){x, truth}, sizes, 1);
    for (int e = 0; e < n * SIZES * 2; e++) {
        const int64_t v = number[e % n], size = sizes[e / n % SIZES];
        if (truth[e] != (v >= 0 && v < size))
            fail_msg("%s: %lld inside of %lld gives %d", ct_dtype_name(dtype), (long long)v,
                     (long long)size, truth[e]);
    }
}

static void a_place_is_inside(void **state) {
    (void)state;
    insides_of(CT_I32);
    insides_of(CT_U32);
    insides_of(CT_I64);
}

// ------------------------------------------------------------------------------------------ places

static const int32_t starts[] = {INT32_MIN, INT32_MIN + 7, -200,     -20, -1, 0, 10, 45, 49, 50,
                                 120,       INT32_MAX - 7, INT32_MAX};
enum { ROWS = sizeof starts / sizeof *starts, COLUMNS = 40, FROM = 50 };

// y[r, j] = x[start[r] + step j], 7 where that is not inside of x, whose size is a number or an
// argument.
static void places_with(ct_dtype dtype, int32_t step, bool number, bool row) {
    const size_t size = ct_dtype_size(dtype);
    char x[(FROM + 1) * 8], y[ROWS * COLUMNS * 8], seven[8];
    ct_kir k;
    ct__kir_init(&k);
    const int in = ct__kir_buffer(&k, dtype, CT_KIR_READ);
    const int begin = ct__kir_buffer(&k, CT_I32, CT_KIR_READ);
    const int out = ct__kir_buffer(&k, dtype, CT_KIR_WRITE);
    const ct_kval n = number ? ct__kir_int(&k, FROM) : ct__kir_arg(&k);
    const ct_kval r = ct__kir_loop_n(&k, CT_BIND_ROWS, ROWS, "row");
    const ct_kval j = ct__kir_loop_n(&k, CT_BIND_LANES, COLUMNS, "column");
    const ct_kval moved =
        ct__kir_mul(&k, ct__kir_cast(&k, j, CT_I32), ct__kir_const_int(&k, CT_I32, step));
    const ct_kval at = ct__kir_add(&k, ct__kir_load(&k, begin, r), moved);
    const ct_kval place = ct__kir_cast(&k, at, CT_I64);
    const ct_kval inside = ct__kir_is_in_range(&k, place, n);
    const ct_kval behind = ct__kir_addi(&k, place, 1); // one element stands in front of x
    const ct_kval value = ct__kir_load_if(&k, in, behind, inside);
    ct__kir_store(&k, out, ct__kir_add(&k, ct__kir_muli(&k, r, COLUMNS), j),
                  ct__kir_select(&k, inside, value, ct__kir_const(&k, dtype, 7)));
    ct__kir_end(&k);
    ct__kir_end(&k);
    ct_text text = {0};
    ct_err err = {0};
    char name[40];
    assert_true(ct__render_c(&k, &text, name, &err));
    if (!strstr(text.s, row ? "ldm_" : "ldi_") || strstr(text.s, "i64_of_i32") ||
        !strstr(text.s, "ramp_below("))
        fail_msg("%s", text.s);
    ct__text_free(&text);
    for (int i = 0; i <= FROM; i++)
        if (ct__is_float(dtype))
            ct__store_f64(dtype, x, i, i + 100);
        else
            ct__store_i64(dtype, x, i, i + 100);
    if (ct__is_float(dtype))
        ct__store_f64(dtype, seven, 0, 7);
    else
        ct__store_i64(dtype, seven, 0, 7);
    int32_t starts_copy[ROWS];
    memcpy(starts_copy, starts, sizeof starts);
    kir_run(&k, (void *[]){x, starts_copy, y}, (int64_t[]){FROM}, 1);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        const int32_t want =
            (int32_t)((uint32_t)starts[i / COLUMNS] + (uint32_t)(i % COLUMNS) * (uint32_t)step);
        const bool is = want >= 0 && want < FROM;
        if (memcmp(y + (size_t)i * size, is ? x + (size_t)(want + 1) * size : seven, size) != 0)
            fail_msg("%s, step %d: element %d from %d differs", ct_dtype_name(dtype), step,
                     i % COLUMNS, starts[i / COLUMNS]);
    }
}

static void places_go_up_evenly(void **state) {
    (void)state;
    places_with(CT_F32, 1, true, true);
    places_with(CT_F64, 1, false, true);
    places_with(CT_F32, -1, true, false);
    places_with(CT_U8, 3, false, false);
    places_with(CT_I64, -5, true, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comparisons_take_the_bits_there_are),
        cmocka_unit_test(a_place_is_inside),
        cmocka_unit_test(places_go_up_evenly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
