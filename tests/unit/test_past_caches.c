// Stores past the caches: which results get them, and that every element arrives whatever the lengths
// of rows are.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cotan/cotan.h"

static int kernels, past; // of the last program: all, and those that store past the caches

static void count(ct_log_kind kind, const char *text, void *user) {
    (void)user;
    if (kind != CT_LOG_DUMP) fail_msg("%s", text);
    for (const char *at = text; (at = strstr(at, "void k_")); at++) {
        const char *end = strstr(at, "\n}\n"), *store = strstr(at, "stp_");
        kernels++;
        past += store && store < end;
    }
}

static void made(const ct_tensor *out, size_t n) {
    ct_set_log(count, NULL);
    kernels = past = 0;
    setenv("COTAN_DUMP", "kernels", 1);
    if (!ct_eval(out, n)) fail_msg("%s", ct_error_text());
    unsetenv("COTAN_DUMP");
}

// Else a program met a second time, with other sizes, has a plan for all sizes.
static void forget_plans(const char *device) {
    assert_true(ct_shutdown());
    assert_true(ct_set_device(device));
}

static ct_tensor numbers(ct_ints dims) { // 0 1 2 .. along the one axis that is not 1
    int64_t n = 1;
    for (int64_t i = 0; i < dims.n; i++) n *= dims.v[i];
    float *v = malloc((size_t)n * sizeof *v);
    for (int64_t i = 0; i < n; i++) v[i] = (float)i;
    ct_tensor t = ct_from(v, CT_F32, dims);
    free(v);
    return t;
}
static ct_tensor table(int64_t rows, int64_t columns) { // of i + 2 j
    return ct_add(numbers(CT_DIMS(rows, 1)), ct_mul(numbers(CT_DIMS(columns)), ct_f(2)));
}

// ---------------------------------------------------------------------------------------- the rule

enum { WHOLE = 4096 }; // rows of 4 KiB that are 16 MiB

static void large_results(void **state) {
    (void)state;
    static const struct {
        int64_t rows;
        int past;
    } cases[] = {{WHOLE, 1}, {WHOLE - 1, 0}};
    for (int i = 0; i < 2; i++) {
        forget_plans("dry:cpu");
        CT_SCOPE;
        ct_tensor x = table(cases[i].rows, 1024);
        made(&x, 1);
        assert_int_equal(kernels, 1);
        assert_int_equal(past, cases[i].past);
        ct_tensor rows = ct_softmax(table(cases[i].rows, 1024)); // a loop with a reduction, and one
        made(&rows, 1);                                          // that stores
        assert_int_equal(past, cases[i].past);
    }
}

static void not_of_dynamic_size(void **state) {
    (void)state;
    CT_SCOPE;
    assert_true(ct_set_device("dry:cpu"));
    float *zeros = calloc(2 * WHOLE, sizeof *zeros);
    ct_tensor x = ct_from(zeros, CT_F32, CT_DIMS(CT_DYN(2 * WHOLE), 1));
    ct_tensor y = ct_add(x, numbers(CT_DIMS(1024)));
    made(&y, 1);
    assert_int_equal(kernels, 1);
    assert_int_equal(past, 0);
    free(zeros);
}

// What dies is overwritten: its lines are in the cache when they are written.
static void not_in_place(void **state) {
    (void)state;
    CT_SCOPE;
    assert_true(ct_set_device("dry:cpu"));
    setenv("COTAN_FUSE", "0", 1);
    ct_tensor y = ct_abs(ct_neg(ct_exp(ct_expand(numbers(CT_DIMS(1024)), CT_DIMS(WHOLE, 1024)))));
    made(&y, 1);
    unsetenv("COTAN_FUSE");
    assert_int_equal(kernels, 4); // broadcast; exp and neg in its place; abs, the result
    assert_int_equal(past, 2);
}

static void not_over_a_variable_that_is_read(void **state) {
    (void)state;
    for (int reads = 0; reads < 2; reads++) {
        assert_true(ct_set_device("dry:cpu"));
        ct_params *set = ct_params_new();
        ct_tensor v = ct_param(set, "v", CT_F32, CT_DIMS(WHOLE, 1024));
        CT_SCOPE;
        ct_assign(v, ct_zeros(CT_F32, CT_DIMS(WHOLE, 1024)));
        assert_true(ct_eval(&v, 1));
        ct_assign(v, reads ? ct_add(v, numbers(CT_DIMS(1024))) : table(WHOLE, 1024));
        made(&v, 1);
        assert_int_equal(kernels, 1);
        assert_int_equal(past, reads ? 0 : 1);
        ct_params_free(set);
    }
}

// ------------------------------------------------------------------------------------- the elements

static int64_t number_at(const void *data, ct_dtype dtype, int64_t at) {
    switch (dtype) {
    case CT_F32: return (int64_t)((const float *)data)[at];
    case CT_F64: return (int64_t)((const double *)data)[at];
    case CT_I64: return ((const int64_t *)data)[at];
    case CT_I32: return ((const int32_t *)data)[at];
    case CT_U8: return ((const uint8_t *)data)[at];
    default: break;
    }
    const uint32_t bits = (uint32_t)((const uint16_t *)data)[at] << 16; // bf16
    float value;
    memcpy(&value, &bits, sizeof value);
    return (int64_t)value;
}

// Rows that begin anywhere in a line, of elements of 1 to 8 bytes. A reduction gives each a loop of its
// own: i + 2 j and its least of the row, i.
static void every_element_arrives(void **state) {
    (void)state;
    static const struct {
        ct_dtype dtype;
        int64_t rows, columns;
    } cases[] = {{CT_F32, 4099, 1025},  {CT_F32, 4096, 1040}, {CT_F64, 2063, 1031},
                 {CT_BF16, 8200, 1027}, {CT_I64, 2048, 1032}, {CT_I32, 4097, 1024},
                 {CT_U8, 16400, 1029}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        forget_plans("cpu");
        CT_SCOPE;
        const int64_t rows = cases[c].rows, columns = cases[c].columns;
        ct_tensor x = table(rows, columns);
        x = ct_add(x, ct_min(x, .axes = CT_AXES(1), .keepdims = true));
        x = ct_cast(ct_and(ct_cast(x, CT_I32), ct_i(255)), cases[c].dtype);
        made(&x, 1);
        assert_int_equal(past, 1);
        const void *data = ct_data(x);
        if (!data) fail_msg("%s", ct_error_text());
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++)
                if (number_at(data, cases[c].dtype, i * columns + j) != (2 * i + 2 * j) % 256)
                    fail_msg("case %zu, row %lld, column %lld: %lld", c, (long long)i, (long long)j,
                             (long long)number_at(data, cases[c].dtype, i * columns + j));
    }
}

// Blocks that are turned in registers: rows of the result lie in whole lines, or they do not.
static void turned_blocks_arrive(void **state) {
    (void)state;
    static const int64_t columns[] = {2048, 2050};
    for (int c = 0; c < 2; c++) {
        forget_plans("cpu");
        CT_SCOPE;
        ct_tensor x = table(columns[c], 2064);
        assert_true(ct_eval(&x, 1));
        ct_tensor one = ct_from(&(float){1}, CT_F32, CT_DIMS(1)); // of all blocks
        ct_tensor y = ct_add(ct_permute(x, CT_AXES(1, 0)), one);  // (2064, columns)
        made(&y, 1);
        assert_int_equal(past, 1);
        const float *data = ct_data(y);
        if (!data) fail_msg("%s", ct_error_text());
        for (int64_t i = 0; i < 2064; i++)
            for (int64_t j = 0; j < columns[c]; j++)
                assert_true(data[i * columns[c] + j] == (float)(j + 2 * i + 1));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_results),         cmocka_unit_test(not_of_dynamic_size),
        cmocka_unit_test(not_in_place),          cmocka_unit_test(not_over_a_variable_that_is_read),
        cmocka_unit_test(every_element_arrives), cmocka_unit_test(turned_blocks_arrive),
    };
    setenv("COTAN_COMPILE", "wait", 1);
    unsetenv("COTAN_FUSE");
    return cmocka_run_group_tests_name("past_caches", tests, NULL, NULL);
}
