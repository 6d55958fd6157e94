// f16 and bf16: every op rounds once, fused or not; functions made of others too; gradients.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/rules.h"

static const ct_dtype halves[] = {CT_F16, CT_BF16};
static uint64_t seed;
static double uniform(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 33) * 0x1p-30 - 1;
}

static ct_tensor numbers(ct_dtype d, ct_ints dims) {
    int64_t n = 1;
    for (int64_t i = 0; i < dims.n; i++) n *= dims.v[i];
    float *v = malloc((size_t)n * sizeof *v);
    assert_non_null(v);
    for (int64_t i = 0; i < n; i++) v[i] = (float)uniform();
    ct_tensor t = ct_cast(ct_from(v, CT_F32, dims), d);
    free(v);
    assert_true(ct_eval(&t, 1));
    return t;
}

static void same_bits(const char *what, ct_dtype d, ct_tensor got, ct_tensor want) {
    ct_tensor both[2] = {got, want};
    if (!ct_eval(both, 2)) fail_msg("%s %s: %s", what, ct_dtype_name(d), ct_error_text());
    assert_int_equal(ct_dtype_of(got), ct_dtype_of(want));
    const uint16_t *a = ct_data(got), *b = ct_data(want);
    for (int64_t i = 0; i < ct_size(got); i++)
        if (a[i] != b[i])
            fail_msg("%s %s: element %lld is %04x, not %04x", what, ct_dtype_name(d), (long long)i,
                     a[i], b[i]);
}

// ------------------------------------------------------------------------------------------------
// one rounding

// What a function of 16-bit floats is: that of f32, rounded.
typedef ct_tensor (*function)(ct_tensor x, ct_tensor y);
static ct_tensor all(ct_tensor x, ct_tensor y) { return (void)y, ct_sum(x); }
static ct_tensor outer(ct_tensor x, ct_tensor y) {
    return ct_add(ct_sum(x, .axes = CT_AXES(0)), ct_sum(y, .axes = CT_AXES(1)));
}
static ct_tensor apart(ct_tensor x, ct_tensor y) {
    (void)y;
    return ct_sum(ct_reshape(x, CT_DIMS(30, 6, 100)), .axes = CT_AXES(0, 2));
}
static ct_tensor product(ct_tensor x, ct_tensor y) {
    return (void)y,
           ct_prod(ct_slice(x, .start = CT_INTS(0), .stop = CT_INTS(3)), .axes = CT_AXES(0));
}
static ct_tensor matrix(ct_tensor x, ct_tensor y) { return ct_matmul(x, y); }
static ct_tensor running(ct_tensor x, ct_tensor y) { return (void)y, ct_cumsum(x, .axis = 1); }
static ct_tensor mean(ct_tensor x, ct_tensor y) { return (void)y, ct_mean(x, .axes = CT_AXES(1)); }
static ct_tensor variance(ct_tensor x, ct_tensor y) { return (void)y, ct_var(x); }
static ct_tensor softmax(ct_tensor x, ct_tensor y) { return (void)y, ct_softmax(x); }
static ct_tensor norm(ct_tensor x, ct_tensor y) { return (void)y, ct_layer_norm(x); }
static ct_tensor gelu(ct_tensor x, ct_tensor y) { return (void)y, ct_gelu(x); }
static ct_tensor power(ct_tensor x, ct_tensor y) { return (void)y, ct_pow(ct_abs(x), ct_f(1.7)); }
static ct_tensor attend(ct_tensor x, ct_tensor y) {
    (void)y;
    return ct_attention(x, x, x, .causal = true);
}

static void functions_round_once(void **state) {
    (void)state;
    static const struct {
        const char *name;
        function f;
    } functions[] = {
        {"sum", all},         {"sum apart", apart}, {"prod", product}, {"matmul", matrix},
        {"cumsum", running},  {"mean", mean},       {"var", variance}, {"softmax", softmax},
        {"layer_norm", norm}, {"gelu", gelu},       {"pow", power},    {"attention", attend},
    };
    for (int h = 0; h < 2; h++) {
        CT_SCOPE;
        ct_dtype d = halves[h];
        seed = 5;
        ct_tensor x = numbers(d, CT_DIMS(30, 600)), y = numbers(d, CT_DIMS(600, 30));
        ct_tensor wide_x = ct_cast(x, CT_F32), wide_y = ct_cast(y, CT_F32);
        for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
            ct_tensor got = functions[i].f(x, y);
            same_bits(functions[i].name, d, got, ct_cast(functions[i].f(wide_x, wide_y), d));
        }
        // Two roundings, of which a kernel that does both may forget none.
        ct_tensor sums = ct_add(ct_cast(ct_sum(wide_x, .axes = CT_AXES(0)), d),
                                ct_cast(ct_sum(wide_y, .axes = CT_AXES(1)), d));
        same_bits("a sum of sums", d, outer(x, y), sums);
        ct_tensor ones = ct_ones(d, CT_DIMS(70000));
        assert_true(ct_item(ct_mean(ones)) == 1);
    }
    assert_false(ct_failed());
}

// Weights of few rows are read two neighbours at a time, where they lie so; f32 that lies in memory is not.
static void products_of_few_rows(void **state) {
    (void)state;
    static const int64_t inner[] = {32, 544, 1024, 304, 33}, columns[] = {16, 70, 129};
    for (int i = 0; i < 60; i += getenv("COTAN_TEST_ALL") ? 1 : 7) { // each is four kernels
        CT_SCOPE;
        const ct_dtype d = halves[i % 2];
        const int64_t rows = 1 + i % 4, k = inner[i / 2 % 5], n = columns[i / 20], odd = i / 10 % 2;
        seed = (uint32_t)i + 1;
        ct_tensor x = numbers(d, CT_DIMS(rows, k)), w = numbers(d, CT_DIMS(n + odd, k));
        ct_tensor v = numbers(d, CT_DIMS(k + odd, n)), f = ct_cast(x, CT_F32);
        w = ct_slice(w, .start = CT_INTS(odd), .stop = CT_INTS(CT_END));
        v = ct_slice(v, .start = CT_INTS(odd), .stop = CT_INTS(CT_END));
        ct_tensor wide[3] = {f, ct_cast(w, CT_F32),
                             ct_cast(v, CT_F32)}; // (n, k), (k, n), in memory
        assert_true(ct_eval(wide, 3));
        same_bits("(N, K)", d, ct_matmul(x, ct_permute(w, CT_AXES(1, 0))),
                  ct_cast(ct_matmul(f, ct_permute(wide[1], CT_AXES(1, 0))), d));
        same_bits("(K, N)", d, ct_matmul(x, v), ct_cast(ct_matmul(f, wide[2]), d));
    }
    assert_false(ct_failed());
}

static uint16_t narrow(ct_dtype d, float x) { return (uint16_t)ct__encode_float(d, (double)x); }
static float widen(ct_dtype d, uint16_t x) { return (float)ct__decode_float(d, x); }

// A chain in one kernel: each value that is passed on is one that memory could hold.
static void chains_round_at_every_op(void **state) {
    (void)state;
    enum { N = 4001 };
    for (int h = 0; h < 2; h++) {
        CT_SCOPE;
        ct_dtype d = halves[h];
        seed = 9;
        ct_tensor x = numbers(d, CT_DIMS(N)), y = numbers(d, CT_DIMS(N));
        ct_tensor z = ct_sqrt(ct_abs(ct_sub(ct_div(ct_add(ct_mul(x, y), ct_f(0.3)), y), x)));
        const uint16_t *a = ct_data(x), *b = ct_data(y), *c = ct_data(z);
        assert_non_null(c);
        float third = widen(d, narrow(d, 0.3f));
        for (int i = 0; i < N; i++) {
            float u = widen(d, a[i]), v = widen(d, b[i]), t = widen(d, narrow(d, u * v));
            t = widen(d, narrow(d, t + third));
            t = widen(d, narrow(d, t / v));
            t = widen(d, narrow(d, t - u));
            assert_int_equal(c[i], narrow(d, sqrtf(fabsf(t))));
        }
    }
}

// ------------------------------------------------------------------------------------------------
// gradients

static double largest_difference(ct_tensor a, ct_tensor b) {
    a = ct_cast(a, CT_F64), b = ct_cast(b, CT_F64);
    return ct_item(ct_div(ct_max(ct_abs(ct_sub(a, b))), ct_max(ct_abs(b))));
}

static ct_tensor network(ct_tensor x, ct_tensor w) {
    ct_tensor h = ct_gelu(ct_matmul(ct_layer_norm(x), w)); // (8, 12)
    return ct_sum(ct_mul(ct_softmax(h), h));
}

static void gradients_are_those_of_f32(void **state) {
    (void)state;
    for (int h = 0; h < 2; h++) {
        CT_SCOPE;
        ct_dtype d = halves[h];
        double unit = d == CT_F16 ? 0x1p-10 : 0x1p-7;
        seed = 3;
        ct_tensor x = numbers(d, CT_DIMS(8, 20)), w = numbers(d, CT_DIMS(20, 12));
        ct_tensor got[2], want[2], own[2] = {x, w};
        ct_tensor wide[2] = {ct_cast(x, CT_F32), ct_cast(w, CT_F32)};
        ct_grad(network(x, w), own, 2, got);
        ct_grad(network(wide[0], wide[1]), wide, 2, want);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(ct_dtype_of(got[i]), d);
            assert_true(largest_difference(got[i], want[i]) < 4 * unit);
        }
    }
    assert_false(ct_failed());
}

// A bare number in a traced function takes the dtype of what it meets, in the plan's copy of the
// function and in that of its gradient as well.
static void halved(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    ct_tensor h = ct_mul(in[0], in[1]);
    out[0] = ct_div(h, ct_f(2));
    out[1] = h;
}
static void bare_numbers_stay_bare_in_loops(void **state) {
    (void)state;
    for (int h = 0; h < 2; h++) {
        CT_SCOPE;
        ct_dtype d = halves[h];
        ct_tensor carry = ct_full(ct_scalar(8, d), CT_SCALAR),
                  xs = ct_full(ct_scalar(2, d), CT_DIMS(3));
        ct_tensor last, ys, gradient;
        xs = ct_add(xs, ct_f(0)); // computed, so that it is no constant
        ct_scan_with((ct_scan_args){.body = halved,
                                    .carry = &carry,
                                    .n_carry = 1,
                                    .xs = &xs,
                                    .n_xs = 1,
                                    .n_ys = 1,
                                    .here = CT_HERE},
                     &last, &ys);
        ct_grad(ct_add(last, ct_sum(ys)), &xs, 1, &gradient); // 8 + 16 + 16 + 16
        assert_int_equal(ct_dtype_of(gradient), d);
        const uint16_t *g = ct_data(gradient);
        assert_non_null(g);
        for (int i = 0; i < 3; i++) // d/dx_i: last gives 4, y_i 8, each later y 8
            assert_true(widen(d, g[i]) == (float)(4 + 8 * (3 - i)));
    }
}

static ct_ctx *context;
static int on_cpu(void **state) {
    (void)state;
    context = ct_ctx_new();
    ct_ctx_use(context);
    return ct_set_device("cpu") ? 0 : -1;
}
static int on_ref(void **state) {
    (void)state;
    context = ct_ctx_new();
    ct_ctx_use(context);
    return ct_set_device("ref") ? 0 : -1;
}
static int checked(void **state) { // every op beside the reference
    setenv("COTAN_CHECK", "ref", 1);
    return on_cpu(state);
}
static int end(void **state) {
    (void)state;
    unsetenv("COTAN_CHECK");
    ct_ctx_use(NULL);
    ct_ctx_free(context);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(functions_round_once, on_cpu, end),
        cmocka_unit_test_setup_teardown(functions_round_once, checked, end),
        cmocka_unit_test_setup_teardown(products_of_few_rows, on_cpu, end),
        cmocka_unit_test_setup_teardown(chains_round_at_every_op, on_cpu, end),
        cmocka_unit_test_setup_teardown(chains_round_at_every_op, on_ref, end),
        cmocka_unit_test_setup_teardown(gradients_are_those_of_f32, on_cpu, end),
        cmocka_unit_test_setup_teardown(gradients_are_those_of_f32, on_ref, end),
        cmocka_unit_test_setup_teardown(gradients_are_those_of_f32, checked, end),
        cmocka_unit_test_setup_teardown(bare_numbers_stay_bare_in_loops, on_cpu, end),
        cmocka_unit_test_setup_teardown(bare_numbers_stay_bare_in_loops, on_ref, end),
    };
    return cmocka_run_group_tests_name("halves", tests, NULL, NULL);
}
