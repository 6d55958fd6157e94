// Windows are views: what plans of pools and convolutions store is their operands and results, forward and
// backward, and never the windows themselves.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "cotan/nn.h"

enum { N = 4, C = 16, O = 24, SIZE = 32 };

static ct_tensor normal(int64_t seed, ct_ints dims) {
    ct_tensor t = ct_random_normal(ct_random_key(seed), dims);
    assert_true(ct_eval(&t, 1));
    return t;
}

// The newest plan: no more launches than so many, none of them a scatter, and of temporaries no more
// than so many bytes.
static void stores(size_t launches, uint64_t bytes) {
    const ct_plan_cost *plan = ct_newest_plan();
    assert_non_null(plan);
    assert_true(plan->n_launches > 0);
    assert_in_range(plan->n_launches, 1, launches);
    assert_in_range(plan->arena_bytes, 0, bytes);
    for (size_t i = 0; i < plan->n_launches; i++)
        assert_null(strstr(plan->launches[i].op, "scatter"));
}
// The gradients of sum(y y) with respect to n tensors.
static void differentiate(ct_tensor y, const ct_tensor *wrt, size_t n) {
    ct_tensor g[2];
    ct_grad(ct_sum(ct_mul(y, y)), wrt, n, g);
    assert_true(ct_eval(g, n));
}

static void convolutions_store_no_columns(void **state) {
    (void)state;
    const uint64_t result = N * O * SIZE * SIZE * sizeof(float);
    for (int stride = 1; stride <= 2; stride++) {
        CT_SCOPE;
        ct_tensor in[2] = {normal(1, CT_DIMS(N, C, SIZE, SIZE)), normal(2, CT_DIMS(O, C, 3, 3))};
        ct_tensor y =
            ct_conv(in[0], in[1], CT_NONE, .padding = CT_DIMS(1), .stride = CT_DIMS(stride));
        assert_true(ct_eval(&y, 1));
        stores(1, 0);
        y = ct_conv(in[0], in[1], CT_NONE, .padding = CT_DIMS(1), .stride = CT_DIMS(stride));
        differentiate(y, in, 2); // the result, whose slope is the result twice, and two products
        if (stride == 1)
            stores(3, result);
        else // of x by phases: four products, which are put together
            stores(7, result / 4 + (uint64_t)N * C * SIZE * SIZE * sizeof(float));
    }
}

static void depthwise_convolutions_are_sums_of_taps(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor in[2] = {normal(1, CT_DIMS(N, C, SIZE, SIZE)), normal(2, CT_DIMS(C, 1, 3, 3))};
    ct_tensor y = ct_conv(in[0], in[1], CT_NONE, .padding = CT_DIMS(1), .groups = C);
    assert_true(ct_eval(&y, 1));
    stores(1, 0);
    assert_string_equal(ct_newest_plan()->launches[0].op, "sum");
}

static void pools_store_their_results(void **state) {
    (void)state;
    CT_SCOPE;
    const uint64_t result = N * C * (SIZE / 2) * (SIZE / 2) * sizeof(float);
    ct_tensor x = normal(1, CT_DIMS(N, C, SIZE, SIZE));
    ct_tensor y =
        ct_max_pool(x, .kernel = CT_DIMS(3, 3), .stride = CT_DIMS(2), .padding = CT_DIMS(1));
    assert_true(ct_eval(&y, 1));
    stores(1, 0);
    differentiate(
        ct_max_pool(x, .kernel = CT_DIMS(3, 3), .stride = CT_DIMS(2), .padding = CT_DIMS(1)), &x,
        1);
    stores(2, 2 * result); // with the number of the tap that was the largest, a byte each
    y = ct_avg_pool(x, .kernel = CT_DIMS(2, 2));
    assert_true(ct_eval(&y, 1));
    stores(1, 0);
}

// Bytes that the newest plan's launches read and write, in tensors of (N, C, SIZE, SIZE).
static double tensors_moved(void) {
    const ct_plan_cost *plan = ct_newest_plan();
    double bytes = 0;
    assert_non_null(plan);
    for (size_t i = 0; i < plan->n_launches; i++) bytes += (double)plan->launches[i].bytes;
    return bytes / (N * C * SIZE * SIZE * sizeof(float));
}

static ct_tensor of_batch(ct_tensor x, ct_tensor w, ct_tensor b) {
    return ct_batch_norm_train(x, ct_zeros(CT_F32, CT_DIMS(C)), ct_ones(CT_F32, CT_DIMS(C)), w, b)
        .y;
}
static ct_tensor of_groups(ct_tensor x, ct_tensor w, ct_tensor b) {
    return ct_group_norm(x, w, b, .groups = C / 2);
}
static ct_tensor of_images(ct_tensor x, ct_tensor w, ct_tensor b) {
    return ct_instance_norm(x, w, b);
}

// x is read and y written, and of the gradient x, y's cotangent and what x gets; groups of several
// channels read operands once for sums by channel, and once more behind them.
static void norms_move_little(void **state) {
    static const struct {
        ct_tensor (*norm)(ct_tensor x, ct_tensor w, ct_tensor b);
        double forward, backward;
    } all[] = {{of_batch, 2, 3}, {of_images, 2, 3}, {of_groups, 2, 7}};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        CT_SCOPE;
        ct_tensor in[3] = {normal(1, CT_DIMS(N, C, SIZE, SIZE)), normal(2, CT_DIMS(C)),
                           normal(3, CT_DIMS(C))};
        ct_tensor c = normal(4, CT_DIMS(N, C, SIZE, SIZE)), g[3];
        ct_tensor y = all[i].norm(in[0], in[1], in[2]);
        assert_true(ct_eval(&y, 1));
        assert_true(tensors_moved() < all[i].forward * 1.05);
        ct_grad(ct_sum(ct_mul(all[i].norm(in[0], in[1], in[2]), c)), in, 3, g);
        assert_true(ct_eval(g, 3));
        assert_true(tensors_moved() < all[i].backward * 1.05);
    }
}

// A view that fills is none of a constant alone.
static void what_fills_is_no_constant(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor one = ct_const((float[]){1}, CT_F32, CT_DIMS(1));
    ct_tensor mask = ct_windows(one, .size = CT_DIMS(3), .low = CT_DIMS(1), .high = CT_DIMS(1));
    ct_tensor x = ct_from(((float[]){2, 3, 4}), CT_F32, CT_DIMS(1, 3));
    const float *y = ct_data(ct_mul(x, mask));
    assert_non_null(y);
    assert_true(y[0] == 0 && y[1] == 3 && y[2] == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_store_no_columns),
        cmocka_unit_test(depthwise_convolutions_are_sums_of_taps),
        cmocka_unit_test(pools_store_their_results),
        cmocka_unit_test(norms_move_little),
        cmocka_unit_test(what_fills_is_no_constant),
    };
    return cmocka_run_group_tests_name("windows", tests, NULL, NULL);
}
