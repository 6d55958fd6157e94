// ct_format and ct_print: values as NumPy lays them out.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "support/record.h"

static char text[4096];
static void shows(ct_tensor t, const char *want) {
    size_t n = ct_format(t, text, sizeof text);
    assert_ok();
    assert_string_equal(text, want);
    assert_int_equal(n, strlen(want));
}

static void values(void **state) {
    (void)state;
    CT_SCOPE;
    shows(ct_from(((float[]){1, 2.5f, -3, 1e-7f, 123456, 0.1f}), CT_F32, CT_DIMS(2, 3)),
          "(2, 3) f32\n"
          "[[         1        2.5         -3]\n"
          " [     1e-07 1.2346e+05        0.1]]");
    shows(ct_from(((double[]){NAN, -INFINITY, -0.0}), CT_F64, CT_DIMS(3)),
          "(3,) f64\n[ nan -inf   -0]");
    shows(ct_i(7), "() i32 = 7");
    shows(ct_f(0.25), "() f32 = 0.25");
    shows(ct_from(((int64_t[]){INT64_MIN, 1}), CT_I64, CT_DIMS(2, 1)),
          "(2, 1) i64\n[[-9223372036854775808]\n [                   1]]");
    shows(ct_greater(line_of(3), ct_f(2)), "(3,) bool\n[false false  true]");
    shows(ct_zeros(CT_F32, CT_DIMS(2, 0)), "(2, 0) f32");
    shows(ct_cast(line_of(2), CT_BF16), "(2,) bf16\n[1 2]");
    shows(ct_from(((uint64_t[]){UINT64_MAX, 1}), CT_U64, CT_DIMS(2)),
          "(2,) u64\n[18446744073709551615                    1]");
    shows(ct_from(((int8_t[]){-128, 127}), CT_I8, CT_DIMS(2)), "(2,) i8\n[-128  127]");
    shows(ct_iota(CT_I32, CT_DIMS(2, 2, 2), 2),
          "(2, 2, 2) i32\n[[[0 1]\n  [0 1]]\n\n [[0 1]\n  [0 1]]]");
}

static void edges_of_large_ones(void **state) {
    (void)state;
    CT_SCOPE;
    shows(ct_iota(CT_I32, CT_DIMS(1001), 0), "(1001,) i32\n[   0    1    2 ...  998  999 1000]");
    shows(ct_add(ct_mul(ct_iota(CT_I32, CT_DIMS(200, 7), 0), ct_i(10)),
                 ct_iota(CT_I32, CT_DIMS(200, 7), 1)),
          "(200, 7) i32\n"
          "[[   0    1    2 ...    4    5    6]\n"
          " [  10   11   12 ...   14   15   16]\n"
          " [  20   21   22 ...   24   25   26]\n"
          " ...\n"
          " [1970 1971 1972 ... 1974 1975 1976]\n"
          " [1980 1981 1982 ... 1984 1985 1986]\n"
          " [1990 1991 1992 ... 1994 1995 1996]]");
    shows(ct_iota(CT_I32, CT_DIMS(300, 4), 1),
          "(300, 4) i32\n[[0 1 2 3]\n [0 1 2 3]\n [0 1 2 3]\n ...\n [0 1 2 3]\n [0 1 2 3]\n"
          " [0 1 2 3]]");
}

static void lengths(void **state) {
    (void)state;
    CT_SCOPE;
    char few[6] = "?????";
    assert_int_equal(ct_format(ct_i(7), few, sizeof few), 10);
    assert_string_equal(few, "() i3");
    assert_int_equal(ct_format(ct_i(7), NULL, 0), 10);
}

static void prints_to_the_log(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor h = ct_mul(line_of(2), ct_f(2));
    assert_true(ct_print(h));
    const char *line = strstr(record_log, "test_format.c:");
    assert_non_null(line);
    assert_string_equal(strchr(line, ' '), " h: (2,) f32\n[2 4]\n");
    record_forget();
    assert_true(ct_print_at(h, "hidden", (ct_loc){"p.c", 3}));
    assert_string_equal(record_log, "p.c:3: hidden: (2,) f32\n[2 4]\n");
    // What is pending runs, as by any read.
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 3);
    record_forget();
    assert_true(ct_print_at(w, NULL, CT_NOWHERE));
    assert_string_equal(record_log, "(2,) f32\n[3 3]\n");
    ct_params_free(set);
}

static void inside(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    assert_false(ct_print_at(in[0], "x", (ct_loc){"p.c", 9}));
    out[0] = in[0];
}
static void errors(void **state) {
    (void)state;
    ct_tensor old, y;
    {
        CT_SCOPE;
        ct_tensor x = line_of(2);
        ct_call(inside, NULL, &x, 1, &y, 1);
        assert_error(CT_E_TRACE, "p.c:9: print: a value is read inside a traced function\n"
                                 "  hint: return it as a result of the function, and read it "
                                 "outside");
        assert_string_equal(record_log, "");
        old = x;
    }
    assert_int_equal(ct_format_at(old, text, sizeof text, (ct_loc){"p.c", 11}), 0);
    assert_string_equal(text, "");
    assert_int_equal(ct_error_code(), CT_E_STALE);
    ct_error_clear();
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, record_begin, record_end)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(values), TEST(edges_of_large_ones), TEST(lengths), TEST(prints_to_the_log),
        TEST(errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
