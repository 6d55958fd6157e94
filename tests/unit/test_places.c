// Tensors on several devices of one context.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "support/record.h"

#define TEST(name) cmocka_unit_test_setup_teardown(name, record_begin, record_end)

static const char *const others[] = {"ref", "async:ref", "async:cpu"};

// Half of it on another device; the gradients of both halves.
static void half_elsewhere(const char *device, float *out) {
    assert_true(ct_set_device("cpu"));
    CT_SCOPE;
    float xs[6] = {1, -2, 3, 0.5f, 2, -1}, ws[6] = {0.25f, 1, -1, 2, 0.5f, 3};
    ct_tensor x = ct_from(xs, CT_F32, CT_DIMS(2, 3)), w = ct_from(ws, CT_F32, CT_DIMS(3, 2));
    ct_tensor h = ct_matmul(x, w), there = device ? ct_to(h, device) : h;
    ct_tensor y = ct_mul(ct_add(there, ct_f(1)), there);
    ct_tensor wrt[2] = {x, w}, g[2], back = device ? ct_to(y, "cpu") : y;
    ct_grad(ct_sum(back), wrt, 2, g);
    ct_tensor all[3] = {back, g[0], g[1]};
    assert_true(ct_eval(all, 3));
    for (int i = 0, at = 0; i < 3; i++) {
        const float *v = ct_data(all[i]);
        assert_non_null(v);
        for (int64_t k = 0; k < ct_size(all[i]); k++) out[at++] = v[k];
    }
}

static void a_half_on_another_device_has_equal_bits(void **state) {
    (void)state;
    float here[16] = {0}, there[16];
    half_elsewhere(NULL, here);
    for (size_t d = 0; d < sizeof others / sizeof *others; d++) {
        memset(there, 0, sizeof there);
        half_elsewhere(others[d], there);
        assert_memory_equal(here, there, sizeof here);
    }
}

static void results_lie_where_operands_lie(void **state) {
    (void)state;
    assert_true(ct_set_device("cpu"));
    CT_SCOPE;
    ct_tensor x = ct_zeros(CT_F32, CT_DIMS(3)), y = ct_to(x, "async:ref");
    assert_string_equal(ct_device_of(x), "cpu");
    assert_string_equal(ct_device_of(ct_exp(ct_mul(y, ct_f(2)))), "async:ref");
    assert_string_equal(ct_device_of(ct_to(y, "cpu")), "cpu");
}

static void tensors_of_two_devices_do_not_mix(void **state) {
    (void)state;
    assert_true(ct_set_device("cpu"));
    CT_SCOPE;
    float v[2] = {1, 2};
    ct_tensor x = ct_from(v, CT_F32, CT_DIMS(2));
    const int made = __LINE__ - 1;
    ct_tensor y = ct_to(x, "ref");
    assert_true(ct_ok(ct_add(y, ct_const(v, CT_F32, CT_DIMS(2)))));
    assert_true(ct_ok(ct_add(y, ct_sum(x))));
    assert_false(ct_ok(ct_add(x, y)));
    char text[600];
    snprintf(
        text, sizeof text,
        "tests/unit/test_places.c:%d: add: operands lie on two devices: operand 1 is (2,) f32 on "
        "cpu (tests/unit/test_places.c:%d), operand 2 is (2,) f32 on ref "
        "(tests/unit/test_places.c:%d)\n  hint: ct_to brings a tensor to another device",
        made + 5, made, made + 2);
    assert_string_equal(ct_error_text(), text);
    ct_error_clear();
    assert_false(ct_ok(ct_to(x, "abacus")));
    assert_non_null(strstr(ct_error_text(), "there is no device \"abacus\""));
    ct_error_clear();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_half_on_another_device_has_equal_bits),
        TEST(results_lie_where_operands_lie),
        TEST(tensors_of_two_devices_do_not_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
