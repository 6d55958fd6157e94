// The library as a guest: the host's floating-point mode changes no bit and is left as found.
#include <fenv.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <xmmintrin.h>
#endif

#include <cmocka.h>

#include "cotan/cotan.h"

enum { N = 1000 };

// Sums and products whose rounding shows the mode; some results are subnormal.
static float data[N]; // made before the mode changes
static void compute(float *out) {
    CT_SCOPE;
    ct_tensor x = ct_from(data, CT_F32, CT_DIMS(N));
    ct_tensor tiny = ct_mul(ct_mul(x, ct_f(0x1p-100)), ct_f(0x1p-30));
    ct_tensor y = ct_concat(
        ((ct_tensor[]){ct_exp(ct_div(x, ct_f(3))), tiny, ct_reshape(ct_sum(x), CT_DIMS(1))}), 3, 0);
    const float *values = ct_data(y);
    assert_non_null(values);
    memcpy(out, values, (2 * N + 1) * sizeof *out);
}

static void host_modes_change_nothing(void **state) {
    (void)state;
    static float plain[2 * N + 1], other[2 * N + 1];
    for (int i = 0; i < N; i++) data[i] = 1.0f / (float)(3 + i * 7);
    compute(plain);
    assert_true(plain[N] > 0 && plain[2 * N - 1] > 0); // subnormals survive
    int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    for (int i = 0; i < 3; i++) {
        fesetround(modes[i]);
        compute(other);
        assert_int_equal(fegetround(), modes[i]);
        fesetround(FE_TONEAREST);
        assert_memory_equal(plain, other, sizeof plain);
    }
#ifdef __x86_64__
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040); // flush to zero, denormals are zero
    compute(other);
    unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    assert_int_equal(after & 0x8040, 0x8040);
    assert_memory_equal(plain, other, sizeof plain);
#endif
}

// What is folded when a plan is made, and what the reference computes, in a context of its own.
static void products(const char *device, float out[2]) {
    ct_ctx *before = ct_ctx_use(ct_ctx_new());
    assert_true(ct_set_device(device));
    {
        CT_SCOPE;
        const float a = 0.1f, b = 0.3f;
        ct_tensor folded = ct_mul(ct_const(&a, CT_F32, CT_SCALAR), ct_const(&b, CT_F32, CT_SCALAR));
        ct_tensor run = ct_mul(ct_from(&a, CT_F32, CT_SCALAR), ct_from(&b, CT_F32, CT_SCALAR));
        const float *x = ct_data(folded), *y = ct_data(run);
        assert_true(x && y);
        out[0] = *x;
        out[1] = *y;
    }
    ct_ctx_free(ct_ctx_use(before));
}

static void plans_made_in_any_mode_are_equal(void **state) {
    (void)state;
    const char *devices[] = {"ref", "async:ref", "cpu"};
    for (int i = 0; i < 3; i++) {
        float plain[2], upward[2];
        products(devices[i], plain);
        fesetround(FE_UPWARD);
        products(devices[i], upward);
        int after = fegetround();
        fesetround(FE_TONEAREST);
        assert_int_equal(after, FE_UPWARD);
        assert_memory_equal(plain, upward, sizeof plain);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(host_modes_change_nothing),
                                       cmocka_unit_test(plans_made_in_any_mode_are_equal)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
