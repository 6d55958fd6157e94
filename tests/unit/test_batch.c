// Launches that do not need each other as one launch.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>
#include <cotan/cotan.h>
#include <cotan/optim.h>

enum { MANY = 500, SHAPES = 5, WIDTH = 7 };

static int64_t rows_of(int i) { return 1 + i % SHAPES; }

static ct_params *make(int n, ct_tensor *w) {
    ct_params *params = ct_params_new();
    char name[16];
    assert_non_null(params);
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "w%d", i);
        w[i] = ct_param(params, name, CT_F32, CT_DIMS(rows_of(i), WIDTH));
    }
    CT_SCOPE;
    for (int i = 0; i < n; i++) ct_assign(w[i], ct_full(ct_f(i), CT_DIMS(rows_of(i), WIDTH)));
    return params;
}

static size_t launches(void) {
    const ct_plan_cost *cost = ct_latest_plan();
    assert_non_null(cost);
    return cost->n_launches;
}

static void expect(ct_tensor w, int i, float want) {
    const float *got = ct_data(w);
    assert_non_null(got);
    for (int k = 0; k < rows_of(i) * WIDTH; k++) assert_float_equal(got[k], want, 0);
}

static void test_updates(void **state) {
    (void)state;
    ct_tensor w[MANY];
    ct_params *params = make(MANY, w);
    assert_int_equal(launches(), 1);
    const uint64_t before = ct_get_stats().launches;
    {
        CT_SCOPE;
        for (int i = 0; i < MANY; i++) ct_assign(w[i], ct_add(ct_mul(w[i], ct_f(2)), ct_f(i % 3)));
    }
    assert_int_equal(launches(), 1);
    assert_int_equal(ct_get_stats().launches - before, 1);
    CT_SCOPE;
    for (int i = 0; i < MANY; i++) expect(w[i], i, (float)(2 * i + i % 3));
    ct_params_free(params);
}

// What swaps values goes through copies, which are no launches of their own either.
static void test_order_stays(void **state) {
    (void)state;
    enum { N = 40 };
    ct_tensor w[N];
    float want[N];
    ct_params *params = make(N, w);
    for (int i = 0; i < N; i++) want[i] = (float)i;
    for (int turn = 1; turn <= 3; turn++) {
        CT_SCOPE;
        ct_tensor sum = ct_sum(w[0]); // of the values before
        for (int i = 0; i < N; i++) {
            ct_tensor other = w[(i + SHAPES) % N];
            ct_assign(w[i], ct_add(other, ct_mul(sum, ct_f(0))));
            want[i] = want[(i + SHAPES) % N]; // the last ones see new values of the first
        }
    }
    CT_SCOPE;
    for (int i = 0; i < N; i++) expect(w[i], i, want[i]);
    ct_params_free(params);
}

// Large ones and small ones share a launch, whose pieces any thread takes.
static void test_mixed_sizes(void **state) {
    (void)state;
    enum { LARGE = 1 << 20, SMALL = 20 };
    ct_params *params = ct_params_new();
    ct_tensor large = ct_param(params, "large", CT_F32, CT_DIMS(LARGE)), small[SMALL];
    char name[16];
    for (int i = 0; i < SMALL; i++) {
        snprintf(name, sizeof name, "s%d", i);
        small[i] = ct_param(params, name, CT_F32, CT_DIMS(i + 2));
    }
    for (int turn = 0; turn < 2; turn++) {
        CT_SCOPE;
        ct_tensor at = ct_cast(ct_iota(CT_I32, CT_DIMS(LARGE), 0), CT_F32);
        ct_assign(large, turn ? ct_add(large, at) : at);
        for (int i = 0; i < SMALL; i++)
            ct_assign(small[i],
                      turn ? ct_add(small[i], ct_f(1)) : ct_full(ct_f(i), CT_DIMS(i + 2)));
    }
    assert_int_equal(launches(), 1);
    CT_SCOPE;
    const float *got = ct_data(large);
    assert_non_null(got);
    for (int i = 0; i < LARGE; i++) assert_float_equal(got[i], (float)(2 * i), 0);
    for (int i = 0; i < SMALL; i++) {
        got = ct_data(small[i]);
        assert_non_null(got);
        for (int k = 0; k <= i + 1; k++) assert_float_equal(got[k], (float)(i + 1), 0);
    }
    ct_params_free(params);
}

// Vectors and matrices, one of six large enough that its sum of squares is cut into tasks.
static ct_ints mixed_dims(int i, int64_t dim[2]) {
    static const int64_t of[][2] = {{40, 0}, {3, 0}, {64, 64}, {5, 9}, {11, 13}, {96, 128}};
    dim[0] = of[i % 6][0];
    dim[1] = of[i % 6][1];
    return (ct_ints){dim[1] ? 2 : 1, dim};
}

static ct_optim *optimizer(int which, ct_params *params, double clip) {
    const ct_schedule lr = {.lr = 0.1};
    switch (which) {
    case 0: return ct_sgd(params, .lr = 0.1, .clip = clip);
    case 1: return ct_sgd(params, .lr = 0.1, .momentum = 0.9, .clip = clip);
    case 2:
        return ct_sgd(params, .lr = 0.1, .momentum = 0.9, .nesterov = true, .clip = clip,
                      .weight_decay = CT_F(0.1));
    case 3: return ct_adam(params, .lr = 1e-3, .clip = clip, .weight_decay = CT_F(0.1));
    case 4: return ct_adamw(params, .lr = 1e-3, .clip = clip);
    default:
        if (clip > 0)
            return ct_chain(params, lr, ct_clip_by_global_norm(clip), ct_trace(0.9, false),
                            ct_scale(0.5), ct_scale_by_learning_rate());
        return ct_chain(params, lr, ct_trace(0.9, false), ct_scale(0.5),
                        ct_scale_by_learning_rate());
    }
}
enum { OPTIMIZERS = 6 };

// The launches of a step, and the norm of the gradients, 2 w, of what all elements are 1.
static size_t launches_of_step(int n, int which, double clip) {
    char name[16];
    int64_t dim[2], elements = 0;
    ct_tensor *w = calloc((size_t)n, sizeof *w);
    ct_params *params = ct_params_new();
    assert_non_null(w);
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "w%d", i);
        w[i] = ct_param(params, name, CT_F32, mixed_dims(i, dim));
        elements += ct_size(w[i]);
    }
    {
        CT_SCOPE;
        for (int i = 0; i < n; i++) ct_assign(w[i], ct_full(ct_f(1), mixed_dims(i, dim)));
    }
    ct_optim *optim = optimizer(which, params, clip);
    assert_non_null(optim);
    {
        CT_SCOPE;
        ct_tensor loss = ct_f(0);
        for (int i = 0; i < n; i++) loss = ct_add(loss, ct_sum(ct_square(w[i])));
        ct_optim_step(optim, loss);
    }
    assert_false(ct_failed());
    const double norm = 2 * sqrt((double)elements);
    assert_true(fabs(ct_metric_value("grad_norm") - norm) <= 1e-5 * norm);
    const size_t count = launches();
    ct_optim_free(optim);
    ct_params_free(params);
    free(w);
    return count;
}

// The sums of squares are two launches, since large ones are put together from blocks, their sum is one,
// and so are the updates; without clipping these wait for nothing.
static void test_optimizers(void **state) {
    (void)state;
    const bool all = getenv("COTAN_TEST_ALL");
    setenv("COTAN_CC", "none", 1);
    ct_ctx *ctx = ct_ctx_new(), *before = ct_ctx_use(ctx);
    for (int which = 0; which < OPTIMIZERS; which++)
        for (int clip = 0; clip < 2; clip++) {
            const size_t few = launches_of_step(10, which, clip);
            assert_true(few <= 4);
            assert_int_equal(launches_of_step(100, which, clip), few);
            if (all || (which == 4 && clip))
                assert_int_equal(launches_of_step(600, which, clip), few);
        }
    ct_ctx_use(before);
    ct_ctx_free(ctx);
    unsetenv("COTAN_CC");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_updates),
        cmocka_unit_test(test_order_stays),
        cmocka_unit_test(test_mixed_sizes),
        cmocka_unit_test(test_optimizers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
