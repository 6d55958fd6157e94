// Rolling scopes of several contexts, as of a binding's threads: values and variables go from one to the other.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "cotan/binding.h"
#include "support/record.h"

#define FILE_NAME "tests/unit/test_rolling_contexts.c"

static ct_ctx *one, *other;

static int begin(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        ct_ctx *ctx = ct_ctx_new();
        ct_ctx_use(ctx);
        assert_true(ct_rolling_begin());
        *(i ? &one : &other) = ctx;
    }
    return 0;
}
static int end(void **state) {
    (void)state;
    assert_ok();
    ct_ctx_use(NULL);
    ct_ctx_free(one);
    ct_ctx_free(other);
    return 0;
}

static ct_tensor ramp(int64_t n) { // (n,) 0, 1, ...
    return ct_cast(ct_iota(CT_I32, CT_DIMS(n), 0), CT_F32);
}
static float element(ct_tensor t, int i) { return ((const float *)ct_data(t))[i]; }
static float of_new(ct_tensor t) {
    t = ct_pin(t);
    const float value = element(t, 0);
    ct_unpin(t);
    return value;
}
static float *address(ct_tensor t) {
    ct_loan *loan;
    const void *data = ct_borrow(t, &loan);
    ct_loan_end(loan);
    return (float *)(uintptr_t)data;
}

static void test_a_value_goes_to_another_context_without_a_copy(void **state) {
    (void)state;
    ct_tensor x = ct_pin(ct_add(ramp(8), ct_f(1)));
    assert_false(ct_is_evaluated(x));
    ct_ctx_use(other);
    int line = __LINE__ + 1;
    ct_pin(x);
    char want[200];
    snprintf(want, sizeof want,
             FILE_NAME ":%d: pin: operand 1 was recorded at " FILE_NAME
                       ":%d in another context and is not evaluated there yet",
             line, line - 4);
    assert_error(CT_E_CONTEXT, want);
    ct_ctx_use(one);
    assert_true(ct_eval(&x, 1));
    assert_true(ct_is_evaluated(x));
    const float *lies = address(x);
    ct_ctx_use(other);
    ct_tensor y = ct_pin(x);
    assert_true(y.bits != x.bits);
    assert_ptr_equal(address(y), lies);
    ct_ctx_use(one);
    ct_unpin(x);
    assert_true(ct_eval(NULL, 0));
    ct_ctx_use(other);
    assert_true(of_new(ct_sum(y)) == 36);
    ct_unpin(y);
}

// The context's own thread may be between two calls, with something that it has not named yet.
static void test_a_visit_gives_nothing_back(void **state) {
    (void)state;
    ct_tensor x = ct_pin(ramp(4)), unnamed = ct_mul(x, ct_f(3));
    assert_true(ct_rolling_visit(&x, 1));
    assert_true(ct_is_evaluated(x));
    ct_tensor y = ct_pin(ct_add(unnamed, ct_f(1)));
    assert_true(ct_rolling_visit(&y, 1));
    assert_true(element(y, 3) == 10);
    ct_rolling_turn();
    assert_false(ct_ok(unnamed));
    unnamed = ct_mul(x, ct_f(5));
    ct_rolling_turn(); // nothing has run since the last one
    assert_true(ct_ok(unnamed));
    ct_tensor z = ct_pin(ct_neg(x));
    assert_true(ct_rolling_visit(&z, 1));
    ct_rolling_turn();
    assert_false(ct_ok(unnamed));
    assert_int_equal(ct_rolling_pending(), 0);
    assert_true(element(z, 2) == -2);
    ct_unpin(x), ct_unpin(y), ct_unpin(z);
}

static ct_tensor variable(ct_params *set, double value) { // (4,)
    ct_tensor v = ct_param(set, "v", CT_F32, CT_DIMS(4));
    ct_assign(v, ct_full(ct_scalar(value, CT_F32), CT_DIMS(4)));
    assert_true(ct_eval(NULL, 0));
    return v;
}

static void step(ct_tensor v) {
    ct_assign(v, ct_add(v, ct_f(1)));
    assert_true(ct_eval(NULL, 0));
}

static void test_what_another_context_reads_of_a_variable_stays(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor v = variable(set, 1);
    step(v);
    const uint64_t before = ct_get_stats().live_bytes;
    ct_ctx_use(other);
    ct_tensor old = ct_pin(ct_mul(v, ct_f(10)));
    ct_ctx_use(one);
    step(v), step(v);
    ct_ctx_use(other);
    ct_tensor both = ct_pin(ct_add(ct_mul(v, ct_f(100)), old)); // two versions in one plan
    assert_true(element(both, 3) == 420);
    assert_true(element(old, 0) == 20);
    ct_unpin(old), ct_unpin(both);
    assert_true(of_new(ct_mul(v, ct_f(1))) == 4);
    ct_ctx_use(one);
    step(v);
    ct_ctx_use(other);
    assert_true(of_new(ct_mul(v, ct_f(1))) == 5);
    assert_true(ct_eval(NULL, 0));
    assert_int_equal(ct_get_stats().live_bytes, before);
    // It is the assigner whose steps cost no copy, whoever made the variable.
    ct_tensor mine = ct_pin(ct_mul(v, ct_f(2)));
    step(v), step(v);
    ct_ctx_use(one);
    ct_tensor ours = ct_pin(ct_mul(v, ct_f(3)));
    ct_ctx_use(other);
    step(v);
    assert_true(element(mine, 1) == 10);
    ct_unpin(mine);
    ct_ctx_use(one);
    assert_true(element(ours, 1) == 21);
    ct_unpin(ours);
    assert_true(element(v, 2) == 8);
    ct_params_free(set);
}

static void test_gradients_flow_to_the_version_that_was_read(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor v = variable(set, 3), leaf, slope;
    ct_track_variable(v, true);
    ct_ctx_use(other);
    ct_tensor loss = ct_pin(ct_sum(ct_mul(v, v)));
    assert_true(ct_item(loss) == 36);
    ct_ctx_use(one);
    step(v);
    ct_ctx_use(other);
    assert_int_equal(ct_tracked_leaves(loss, &leaf, 1), 1);
    assert_true(leaf.bits == v.bits);
    ct_backward(loss, &v, 1, &slope, false, false);
    slope = ct_pin(slope);
    assert_true(element(slope, 2) == 6);
    ct_unpin(slope), ct_unpin(loss);
    ct_params_free(set);
}

static void test_who_has_an_assignment_pending(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor v = variable(set, 1), x = ct_pin(ramp(4));
    assert_null(ct_assigning(v));
    assert_null(ct_assigning(x));
    ct_assign(v, x);
    ct_ctx_use(other);
    assert_ptr_equal(ct_assigning(v), one);
    ct_ctx_use(one);
    assert_true(ct_rolling_visit(NULL, 0));
    assert_null(ct_assigning(v));
    assert_true(element(v, 3) == 3);
    ct_unpin(x);
    ct_params_free(set);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_a_value_goes_to_another_context_without_a_copy),
        TEST(test_a_visit_gives_nothing_back),
        TEST(test_what_another_context_reads_of_a_variable_stays),
        TEST(test_gradients_flow_to_the_version_that_was_read),
        TEST(test_who_has_an_assignment_pending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
