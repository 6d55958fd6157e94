// Prefixes by a traced function: values, what they depend on, how many launches, and bad input.
// Derivatives and batches stand beside JAX's in tests/ops/test_loop_transforms.py.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/record.h"

static const char *const devices[] = {"ref", "cpu", "async:cpu"};

// c -> a c + b, one behind the other.
static void affine(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_mul(in[0], in[2]);
    out[1] = ct_add(ct_mul(in[1], in[2]), in[3]);
}
static double a_of(int64_t i) { return 0.9 + 0.05 * cos((double)i); }
static double b_of(int64_t i) { return sin(0.7 * (double)i); }

static void record_affine(int64_t n, ct_dtype dtype, bool dynamic, bool reverse, ct_tensor out[2]) {
    double *a = malloc((size_t)(n + 1) * sizeof *a), *b = malloc((size_t)(n + 1) * sizeof *b);
    assert_true(a && b);
    for (int64_t i = 0; i < n; i++) a[i] = a_of(i), b[i] = b_of(i);
    const ct_ints dims = CT_DIMS(dynamic ? CT_DYN(n) : n);
    ct_tensor xs[2] = {ct_from(a, CT_F64, dims), ct_from(b, CT_F64, dims)};
    for (int i = 0; i < 2; i++) xs[i] = ct_cast(xs[i], dtype);
    ct_associative_scan(out, .f = affine, .xs = xs, .n_xs = 2, .reverse = reverse);
    free(a);
    free(b);
}

static void prefixes_of_any_length(void **state) {
    (void)state;
    for (int d = 0; d < 3; d++) {
        if (!ct_set_device(devices[d])) fail_msg("%s", ct_error_text());
        const int64_t lengths[] = {0, 1, 2, 3, 4, 5, 7, 8, 13, 100, 1023};
        for (int k = 0; k < 11; k++)
            for (int reverse = 0; reverse < 2; reverse++) {
                CT_SCOPE;
                int64_t n = lengths[k];
                ct_tensor out[2];
                record_affine(n, CT_F64, k % 2, reverse, out);
                if (!ct_eval(out, 2)) fail_msg("%s", ct_error_text());
                const double *got = ct_data(out[1]);
                double c = 0;
                for (int64_t i = 0; i < n; i++) {
                    int64_t at = reverse ? n - 1 - i : i;
                    c = a_of(at) * c + b_of(at);
                    if (!(fabs(got[at] - c) < 1e-12 * (1 + fabs(c))))
                        fail_msg("%s, length %d, element %d: %.17g is not %.17g", devices[d],
                                 (int)n, (int)at, got[at], c);
                }
                assert_ok();
            }
    }
}

// An element's bits follow from those up to it, not from how many come behind.
static void what_follows_changes_no_bit(void **state) {
    (void)state;
    if (!ct_set_device("cpu")) fail_msg("%s", ct_error_text());
    static float whole[300];
    for (int k = 0; k < 4; k++) {
        CT_SCOPE;
        int64_t n = (int64_t[]){300, 299, 128, 31}[k];
        ct_tensor out[2];
        record_affine(n, CT_F32, false, false, out);
        const float *got = ct_data(out[1]);
        assert_ok();
        if (k == 0) memcpy(whole, got, sizeof whole);
        assert_memory_equal(got, whole, (size_t)n * sizeof *got);
    }
}

// In rounds: 14 of them for 10,000 elements, each two times what f does and what joins its results.
static void launches_are_as_many_as_the_rounds(void **state) {
    (void)state;
    if (!ct_set_device("dry:cpu")) fail_msg("%s", ct_error_text());
    size_t n[2];
    for (int k = 0; k < 2; k++) {
        CT_SCOPE;
        ct_tensor out[2];
        record_affine(k ? 10000 : 5000, CT_F32, false, false, out);
        if (!ct_eval(out, 2)) fail_msg("%s", ct_error_text());
        n[k] = ct_latest_plan()->n_launches;
    }
    assert_true(n[1] <= 14 * 8);
    assert_true(n[1] > n[0] && n[1] - n[0] <= 8);
}

static void itself(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = in[0];
}
static void nothing(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)in, (void)out, (void)user;
}
static void casts(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_cast(in[0], CT_F64);
}
static void stacks(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_concat(in, 2, 0);
}

#define SAYS(code, text)                                                                           \
    do {                                                                                           \
        const char *said_ = strstr(ct_error_text(), "associative_scan: ");                         \
        assert_non_null(said_);                                                                    \
        assert_string_equal(said_, "associative_scan: " text);                                     \
        assert_int_equal(ct_error_code(), code);                                                   \
        ct_error_clear();                                                                          \
    } while (0)

static void bad_input(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = ct_zeros(CT_F32, CT_DIMS(4, 3)), y = ct_zeros(CT_F32, CT_DIMS(5, 3)), out[2],
              both[2] = {x, y}, ranks[2] = {x, ct_zeros(CT_F32, CT_DIMS(3))};
    ct_associative_scan(out, .f = itself, .xs = &x, .n_xs = 1, .axis = 2);
    SAYS(CT_E_SHAPE, "operand 1 is (4, 3) f32, it has no axis 2\n"
                     "  hint: its axes are 0 to 1, or -2 to -1 from the last one");
    ct_associative_scan(out, .f = itself, .xs = &x, .n_xs = 1, .axis = -3);
    SAYS(CT_E_SHAPE, "operand 1 is (4, 3) f32, it has no axis -3\n"
                     "  hint: its axes are 0 to 1, or -2 to -1 from the last one");
    ct_associative_scan(out, .f = itself, .xs = both, .n_xs = 2);
    SAYS(CT_E_SHAPE, "axis 0 of operand 2 has size 5, of the first 4");
    ct_associative_scan(out, .f = itself, .xs = ranks, .n_xs = 2, .axis = -1);
    SAYS(CT_E_SHAPE, "axis -1 of operand 2 is its axis 0, of the first 1");
    ct_associative_scan(out, .f = nothing, .xs = &x, .n_xs = 1);
    SAYS(CT_E_ARGUMENT, "f did not set output 1");
    ct_associative_scan(out, .f = casts, .xs = &x, .n_xs = 1);
    SAYS(CT_E_SHAPE, "an element of operand 1 is (3,) f32, f makes (3,) f64 of two");
    ct_associative_scan(out, .f = stacks, .xs = &x, .n_xs = 1);
    SAYS(CT_E_SHAPE, "an element of operand 1 is (3,) f32, f makes (6,) f32 of two");
    ct_associative_scan(out, .xs = &x, .n_xs = 1);
    SAYS(CT_E_ARGUMENT, "f must not be NULL");
    ct_associative_scan(out, .f = itself, .n_xs = 1);
    SAYS(CT_E_ARGUMENT, "xs must not be NULL");
    assert_true(isnan(ct_item(out[0]))); // poisoned
    ct_error_clear();
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, record_begin, record_end)
        T(prefixes_of_any_length),
        T(what_follows_changes_no_bit),
        T(launches_are_as_many_as_the_rounds),
        T(bad_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
