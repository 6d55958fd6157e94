// Complex numbers: how they lie in memory, bare ones, what is printed, gradients of variables, what is refused. Values
// and derivatives of all ops are compared with JAX's by tests/ops/test_complex.py.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <complex.h>
#undef complex
#include <math.h>
#include <string.h>

#include "cotan/cotan.h"

static const float _Complex some[3] = {1 + 2 * I, -0.5f, 3 * I};

static int begin(void **state) {
    (void)state;
    ct_error_clear();
    return 0;
}

static void test_they_are_those_of_c(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor z = ct_from(some, CT_C64, CT_DIMS(3));
    const float _Complex *square = ct_data(ct_mul(z, z));
    assert_non_null(square);
    for (int i = 0; i < 3; i++) assert_true(square[i] == some[i] * some[i]);
    const float *im = ct_data(ct_imag(z));
    assert_true(im && im[0] == 2 && im[1] == 0 && im[2] == 3);
    assert_true(ct_item(ct_abs(ct_c(3, -4))) == 5);
    assert_int_equal(ct_dtype_size(CT_C64), 8);
    assert_int_equal(ct_dtype_size(CT_C128), 16);
}

static void test_bare_numbers_keep_their_digits(void **state) {
    (void)state;
    CT_SCOPE;
    const double one = 1;
    ct_tensor x = ct_from(&one, CT_F64, CT_SCALAR), z = ct_mul(x, ct_c(0.1, 0.3));
    assert_int_equal(ct_dtype_of(z), CT_C128);
    assert_true(ct_item(ct_real(z)) == 0.1 && ct_item(ct_imag(z)) == 0.3);
    ct_tensor narrow = ct_mul(ct_from(some, CT_C64, CT_DIMS(3)), ct_c(0.1, 0));
    assert_int_equal(ct_dtype_of(narrow), CT_C64);
    assert_int_equal(ct_dtype_of(ct_mul(ct_i(2), ct_c(1, 1))), CT_C64);
    assert_true(ct_item(ct_real(ct_scalar(2.5, CT_C128))) == 2.5);
}

// Other lengths at the same line: their axes become dynamic.
static void test_any_length(void **state) {
    (void)state;
    for (int n = 2; n < 9; n++) {
        CT_SCOPE;
        double _Complex x[8], product = 1, sum = 0;
        for (int i = 0; i < n; i++) {
            x[i] = 0.5 + 0.1 * i + (0.3 - 0.2 * i) * I;
            product *= x[i];
            sum += x[i] * x[i];
        }
        ct_tensor z = ct_from(x, CT_C128, CT_DIMS(n));
        ct_tensor got[2] = {ct_prod(z),
                            ct_sum(ct_mul(z, ct_flip(ct_flip(z, CT_AXES(0)), CT_AXES(0))))};
        assert_true(ct_eval(got, 2));
        assert_true(cabs(*(const double _Complex *)ct_data(got[0]) - product) < 1e-14);
        assert_true(cabs(*(const double _Complex *)ct_data(got[1]) - sum) < 1e-14);
    }
}

static void test_printing(void **state) {
    (void)state;
    CT_SCOPE;
    char text[200];
    ct_format(ct_from(some, CT_C64, CT_DIMS(3)), text, sizeof text);
    assert_string_equal(text, "(3,) c64\n[   1+2j -0.5+0j    0+3j]");
}

static void test_a_step_of_descent(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = ct_param(set, "w", CT_C64, CT_DIMS(3));
    ct_assign(w, ct_from(some, CT_C64, CT_DIMS(3)));
    for (int step = 0; step < 60; step++) { // towards 1 + i
        CT_SCOPE;
        ct_tensor off = ct_abs(ct_sub(w, ct_c(1, 1))), slope;
        ct_grad(ct_sum(ct_mul(off, off)), &w, 1, &slope);
        ct_assign(w, ct_sub(w, ct_mul(ct_conj(slope), ct_f(0.2))));
    }
    assert_false(ct_failed());
    const float _Complex *at = ct_data(w);
    for (int i = 0; i < 3; i++) assert_true(cabsf(at[i] - (1 + 1 * I)) < 1e-6f);
    ct_params_free(set);
}

#define REFUSES(call, ...)                                                                         \
    do {                                                                                           \
        (void)(call);                                                                              \
        assert_string_equal(ct_error_text(), __VA_ARGS__);                                         \
        ct_error_clear();                                                                          \
    } while (0)
#define HERE ((ct_loc){"c.c", 7})
#define HINT "\n  hint: ct_real, ct_imag and ct_abs make floats of complex numbers"

static void test_what_is_refused(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor z = ct_from(some, CT_C64, CT_DIMS(3)), slope;
    REFUSES(ct_less_at(z, z, HERE),
            "c.c:7: less: operand 1 is (3,) c64, accepted are bool, integers and floats" HINT);
    REFUSES(ct_cast_at(z, CT_F32, HERE),
            "c.c:7: cast: x is (3,) c64, and there is no place for complex numbers in f32" HINT);
    REFUSES(ct_bitcast_at(z, CT_U64, HERE),
            "c.c:7: bitcast: c64 to u64: complex numbers have the bits of two floats\n"
            "  hint: bitcast their ct_real and ct_imag");
    REFUSES(ct_real_at(ct_zeros(CT_F32, CT_DIMS(2)), HERE),
            "c.c:7: real: operand 1 is (2,) f32, accepted are complex numbers");
    REFUSES(ct_complex_at(ct_zeros(CT_F16, CT_DIMS(2)), ct_f(0), HERE),
            "c.c:7: complex: operand 1 is (2,) f16, accepted are f32 and f64\n"
            "  hint: cast it: ct_cast(x, CT_F32)");
    REFUSES(ct_add_at(z, ct_zeros(CT_F8E4M3, CT_DIMS(3)), HERE),
            "c.c:7: add: c64 and f8e4m3 do not promote to one dtype\n"
            "  hint: cast it: ct_cast(x, CT_C64)");
    REFUSES((bool)isnan(ct_item_at(ct_sum(z), HERE)),
            "c.c:7: item: the tensor is () c64, a complex number\n"
            "  hint: ct_item of its ct_real and ct_imag, or ct_data");
    REFUSES((ct_grad_at(ct_sum(z), &z, 1, &slope, HERE), 0),
            "c.c:7: grad: the loss must be one float, it is () c64\n"
            "  hint: ct_real or ct_abs makes a float of it");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_they_are_those_of_c, begin),
        cmocka_unit_test_setup(test_bare_numbers_keep_their_digits, begin),
        cmocka_unit_test_setup(test_any_length, begin),
        cmocka_unit_test_setup(test_printing, begin),
        cmocka_unit_test_setup(test_a_step_of_descent, begin),
        cmocka_unit_test_setup(test_what_is_refused, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
