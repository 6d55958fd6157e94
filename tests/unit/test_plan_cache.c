// Plans that are kept, by what they weigh: a process that meets ever new shapes stays small, and a plan that
// had to go comes back with the same numbers.
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backend/cpu/queue.h"
#include "cotan/cotan.h"

enum { ROWS = 3, MOST = 4096 };

// The last axis of floats is static, so that each length of it is a plan with kernels of its own.
static ct_tensor of_length(int64_t n) {
    static float x[ROWS * MOST];
    for (int64_t i = 0; i < ROWS * n; i++) x[i] = (float)((i * 37 + n) % 101) / 50.0f - 1.0f;
    ct_tensor t = ct_from(x, CT_F32, CT_DIMS(ROWS, n));             // (ROWS, n)
    ct_tensor product = ct_matmul(t, ct_permute(t, CT_AXES(1, 0))); // (ROWS, ROWS)
    return ct_matmul(ct_softmax(product, CT_AXES(1)), t);           // (ROWS, n)
}

// Bytes of the C library's heap in use; 0 where a sanitizer has replaced it.
static size_t heap(void) { return mallinfo2().uordblks; }

static ct_ctx *begin(const char *device) {
    ct_ctx *ctx = ct_ctx_new(), *outer = ct_ctx_use(ctx);
    assert_true(ct_set_device(device));
    return outer;
}
static void end(ct_ctx *outer) {
    if (ct_failed()) fail_msg("%s", ct_error_text());
    ct_ctx_free(ct_ctx_use(outer));
    ct_set_plan_cache(0);
}

static void plan_of_length(int64_t n) {
    CT_SCOPE;
    ct_tensor t = of_length(n);
    if (!ct_eval(&t, 1)) fail_msg("%s", ct_error_text());
}

// Makes n plans of different shapes; returns the bytes of the plans and the growth of the heap.
static void many_shapes(int n, uint64_t limit, uint64_t *plans, size_t *grown) {
    const ct_stats before = ct_get_stats();
    size_t early = 0;
    ct_ctx *outer = begin("dry:cpu");
    ct_set_plan_cache(limit);
    for (int i = 0; i < n; i++) {
        plan_of_length(2 + i);
        const uint64_t kept = ct_get_stats().plan_bytes - before.plan_bytes;
        if (limit) assert_true(kept <= limit);
        if (i == n * 3 / 10) early = heap();
        *plans = kept;
    }
    *grown = heap() > early ? heap() - early : 0;
    assert_int_equal(ct_get_stats().plans_made - before.plans_made, n);
    end(outer);
    assert_int_equal(ct_get_stats().plan_bytes, before.plan_bytes);
}

static void many_shapes_are_bounded(void **state) {
    (void)state;
    const int n = getenv("COTAN_TEST_ALL") ? 1000 : 300;
    enum { LIMIT = 1200000 };
    uint64_t all, bounded;
    size_t grown;
    many_shapes(n, 0, &all, &grown);
    print_message("%d plans: %.1f MB, the heap grew by %.1f MB after the first 3 of 10\n", n,
                  (double)all * 1e-6, (double)grown * 1e-6);
    assert_true(all > 4 * LIMIT);
    // What is counted is what they take: seven of ten grew the heap by about as much.
    if (heap()) assert_true((double)grown > 0.5 * (double)all && grown < all);
    many_shapes(n, LIMIT, &bounded, &grown);
    print_message("bounded: %.1f MB, the heap grew by %.3f MB\n", (double)bounded * 1e-6,
                  (double)grown * 1e-6);
    assert_true(bounded > LIMIT / 2);
    assert_true(grown < LIMIT / 4);
}

static void numbers(int64_t n, float *out) {
    CT_SCOPE;
    const float *data = ct_data(of_length(n));
    if (!data) fail_msg("%s", ct_error_text());
    memcpy(out, data, (size_t)(ROWS * n) * sizeof *out);
}

static void what_went_comes_back_the_same(void **state) {
    enum { SHAPES = 6, TURNS = 3 };
    static float first[SHAPES][ROWS * MOST], again[ROWS * MOST];
    ct_ctx *outer = begin(*state);
    const uint64_t made = ct_get_stats().plans_made;
    for (int i = 0; i < SHAPES; i++) numbers(3 + 7 * i, first[i]);
    assert_int_equal(ct_get_stats().plans_made, made + SHAPES);
    for (int turn = 0; turn < TURNS; turn++) {
        if (turn == 1) { // the newest alone stays, from the next one on
            ct_set_plan_cache(1);
            numbers(1000, again);
        }
        for (int i = 0; i < SHAPES; i++) {
            numbers(3 + 7 * i, again);
            assert_memory_equal(again, first[i], (size_t)(ROWS * (3 + 7 * i)) * sizeof *again);
        }
        assert_int_equal(ct_get_stats().plans_made, made + SHAPES * (turn + 1u) + (turn > 0));
    }
    end(outer);
}

static void checked_ones_too(void **state) {
    setenv("COTAN_CHECK", "ref", 1);
    what_went_comes_back_the_same(state);
    unsetenv("COTAN_CHECK");
}

// Two plans have the kernel of exp; that it goes with the first would be felt by the second.
static void a_kernel_stays_while_a_plan_has_it(void **state) {
    (void)state;
    ct_ctx *outer = begin("cpu");
    const float x[4] = {0, 1, 2, 3};
    const uint64_t empty = ct_get_stats().plan_bytes;
    for (int turn = 0; turn < 4; turn++) {
        CT_SCOPE;
        ct_tensor t = ct_from(x, CT_F32, CT_DIMS(4)), e = ct_exp(t); // (4)
        if (turn % 2) (void)ct_keep(ct_sum(t));
        const float *data = ct_data(e);
        assert_true(data && data[0] == 1 && data[1] > 2.718f && data[1] < 2.719f);
        if (turn == 0) ct_set_plan_cache(ct_get_stats().plan_bytes - empty + 1);
    }
    end(outer);
}

static uint64_t built(void) {
    return ct_get_stats().kernels_compiled + ct_get_stats().kernels_loaded;
}

// Kernels that no other test has: a number stands in their text.
static void scaled(int64_t n) {
    static const float x[ROWS * MOST], scale = 7.5f;
    CT_SCOPE;
    ct_tensor t = ct_from(x, CT_F32, CT_DIMS(ROWS, n));          // (ROWS, n)
    ct_tensor rows = ct_matmul(t, ct_permute(t, CT_AXES(1, 0))); // (ROWS, ROWS)
    rows = ct_softmax(ct_mul(rows, ct_const(&scale, CT_F32, CT_DIMS(1))), CT_AXES(1));
    if (!ct_eval(&rows, 1)) fail_msg("%s", ct_error_text());
}

// Plans made and kernels compiled are counted apart, and a plan tells how many of its kernels are new.
static void new_kernels_are_those_compiled(void **state) {
    (void)state;
    ct__queue_wait_idle(); // so that nothing of earlier tests is compiled meanwhile
    setenv("COTAN_COMPILE", "wait", 1);
    ct_ctx *outer = begin("cpu");
    const uint64_t before = built(), made = ct_get_stats().plans_made;
    size_t fresh = 0, all = 0;
    for (int n = 501; n < 505; n++) {
        scaled(n);
        fresh += ct_latest_plan()->new_kernels;
        all += ct_latest_plan()->n_kernels;
        assert_int_equal(built() - before, fresh);
    }
    assert_true(fresh >= 4 && fresh < all); // the softmax is of (ROWS, ROWS) each time
    ct_set_plan_cache(1);
    scaled(505);
    fresh = built() - before;
    scaled(501);
    assert_int_equal(ct_get_stats().plans_made - made, 6);
    assert_true(ct_latest_plan()->new_kernels > 0); // to the context, which had dropped them
    assert_int_equal(built() - before, fresh);      // the process has kept their code
    end(outer);
    unsetenv("COTAN_COMPILE");
}

static void a_size_that_is_none_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"64MB", "COTAN_PLAN_CACHE: it is \"64MB\", not a whole number of MB from 1 to 1000000"},
        {"0", "COTAN_PLAN_CACHE: it is \"0\", not a whole number of MB from 1 to 1000000"},
        {"1000001",
         "COTAN_PLAN_CACHE: it is \"1000001\", not a whole number of MB from 1 to 1000000"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv("COTAN_PLAN_CACHE", cases[i].text, 1);
        assert_false(ct_set_device("cpu"));
        assert_string_equal(ct_error_text(), cases[i].error);
        assert_int_equal(ct_error_code(), CT_E_USAGE);
        ct_error_clear();
    }
    setenv("COTAN_PLAN_CACHE", "1", 1);
    ct_ctx *outer = begin("dry:cpu");
    const uint64_t before = ct_get_stats().plan_bytes;
    for (int i = 0; i < 200; i++) {
        plan_of_length(2 + i);
        assert_true(ct_get_stats().plan_bytes - before <= 1000000);
    }
    end(outer);
    unsetenv("COTAN_PLAN_CACHE");
}

int main(void) {
    static char cpu[] = "cpu", ref[] = "ref", async[] = "async:cpu";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_shapes_are_bounded),
        cmocka_unit_test_prestate(what_went_comes_back_the_same, cpu),
        cmocka_unit_test_prestate(what_went_comes_back_the_same, ref),
        cmocka_unit_test_prestate(what_went_comes_back_the_same, async),
        cmocka_unit_test_prestate(checked_ones_too, cpu),
        cmocka_unit_test(a_kernel_stays_while_a_plan_has_it),
        cmocka_unit_test(new_kernels_are_those_compiled),
        cmocka_unit_test(a_size_that_is_none_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
