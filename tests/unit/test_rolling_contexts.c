// Rolling scopes of several contexts, as of a binding's threads: values and variables go from one to the other.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include <pthread.h>

#include "cotan/binding.h"
#include "graph/graph.h"
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
    ct_borrowed *loan;
    const void *data = ct_borrow(t, &loan);
    ct_borrow_end(loan);
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
    assert_true(ct_rolling_eval(&x, 1));
    assert_true(ct_is_evaluated(x));
    ct_tensor y = ct_pin(ct_add(unnamed, ct_f(1)));
    assert_true(ct_rolling_eval(&y, 1));
    assert_true(element(y, 3) == 10);
    ct_rolling_free_deferred();
    assert_false(ct_ok(unnamed));
    unnamed = ct_mul(x, ct_f(5));
    ct_rolling_free_deferred(); // nothing has run since the last one
    assert_true(ct_ok(unnamed));
    ct_tensor z = ct_pin(ct_neg(x));
    assert_true(ct_rolling_eval(&z, 1));
    ct_rolling_free_deferred();
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
    const ct_var *var = ct__var_of(v);
    const ct_storage *place = var->storage;
    step(v);
    assert_ptr_equal(var->storage, place); // its own reads hold it as well
    ct_assign(v, ct_sub(v, ct_f(1)));
    assert_true(ct_eval(NULL, 0));
    const uint64_t before = ct_get_stats().live_bytes;
    ct_ctx_use(other);
    ct_tensor old = ct_pin(ct_mul(v, ct_f(10)));
    ct_ctx_use(one);
    step(v), step(v);
    assert_ptr_not_equal(var->storage, place);
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

// What one recorded before the other assigned is of the version that it read, whoever assigned that one; an
// assignment of it then is of that version, too.
static void test_contexts_take_turns_at_assigning(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor v = variable(set, 1);
    const uint64_t before = ct_get_stats().live_bytes;
    for (int turn = 0; turn < 3; turn++) {
        ct_tensor was = ct_pin(ct_mul(v, ct_f(2))); // 1, 4, 10
        const int value = turn == 0 ? 1 : turn == 1 ? 5 : 21;
        ct_ctx_use(other);
        step(v), step(v);
        ct_tensor theirs = ct_pin(ct_mul(v, ct_f(1)));
        ct_ctx_use(one);
        assert_true(element(was, 3) == 2 * (float)value);
        assert_true(of_new(ct_mul(v, ct_f(1))) == (float)value + 2);
        ct_tensor next = ct_pin(ct_mul(v, ct_f(3)));
        ct_ctx_use(other);
        step(v);
        ct_ctx_use(one);
        ct_assign(v, ct_sub(next, ct_f(turn == 0 ? 4 : 0)));
        assert_true(ct_eval(NULL, 0));
        assert_true(element(v, 0) == (float)(value + 2) * 3 - (turn == 0 ? 4 : 0));
        ct_unpin(was), ct_unpin(next);
        ct_ctx_use(other);
        assert_true(element(theirs, 1) == (float)value + 2);
        ct_unpin(theirs);
        assert_true(ct_eval(NULL, 0));
        ct_ctx_use(one);
    }
    // A part is put into the version that was read.
    ct_tensor part = ct_pin(ct_dynamic_update(v, ct_zeros(CT_F32, CT_DIMS(2)), ct_i(1)));
    ct_ctx_use(other);
    step(v);
    ct_ctx_use(one);
    ct_assign(v, part);
    assert_true(ct_eval(NULL, 0));
    assert_true(element(v, 0) == 69 && element(v, 1) == 0 && element(v, 3) == 69);
    assert_true(element(part, 2) == 0 && element(part, 3) == 69);
    ct_unpin(part);
    step(v);
    ct_ctx_use(other);
    step(v);
    ct_ctx_use(one);
    step(v);
    assert_int_equal(ct_get_stats().live_bytes, before);
    ct_params_free(set);
}

static void test_a_version_that_was_read_while_it_was_pending_stays(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor v = variable(set, 1), loss, slope;
    ct_track_variable(v, true);
    ct_assign(v, ct_stop_gradient(ct_add(v, ct_f(2))));
    loss = ct_pin(ct_sum(ct_mul(v, v)));
    ct_tensor late = ct_pin(ct_mul(v, ct_f(5)));
    assert_true(ct_rolling_eval(&loss, 1));
    ct_tensor later = ct_pin(ct_mul(v, ct_f(7)));
    ct_ctx_use(other);
    step(v), step(v);
    ct_ctx_use(one);
    ct_backward(loss, &v, 1, &slope, false, false);
    slope = ct_pin(slope);
    assert_true(element(slope, 1) == 6);
    assert_true(element(late, 0) == 15 && element(later, 0) == 21 && element(v, 0) == 5);
    ct_unpin(slope), ct_unpin(loss), ct_unpin(late), ct_unpin(later);
    ct_params_free(set);
}

enum { READERS = 3, N = 4096 };
typedef struct reader {
    ct_tensor v;
    atomic_bool *stop;
    int turns, torn;
    char error[1024];
} reader;

static void *reads(void *arg) {
    reader *r = arg;
    ct_ctx *ctx = ct_ctx_new();
    ct_ctx_use(ctx);
    bool ok = ct_rolling_begin();
    for (bool done = false; ok && !done; r->turns++) { // once more when the writer is done
        done = atomic_load(r->stop);
        ct_tensor t = ct_pin(ct_mul(r->v, ct_f(1)));
        const float *data = ct_data(t);
        for (int i = 0; data && i < N; i += 7) r->torn += data[i] != data[0];
        ok = data;
        ct_unpin(t);
    }
    snprintf(r->error, sizeof r->error, "%s", ct_error_text());
    ct_error_clear();
    ct_ctx_use(NULL);
    ct_ctx_free(ctx);
    return NULL;
}

static void test_nothing_is_spent_while_one_assigns_and_others_read(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor v = ct_param(set, "v", CT_F32, CT_DIMS(N));
    ct_assign(v, ct_zeros(CT_F32, CT_DIMS(N)));
    assert_true(ct_eval(NULL, 0));
    atomic_bool stop = false;
    reader r[READERS] = {{.v = v, .stop = &stop}, {.v = v, .stop = &stop}, {.v = v, .stop = &stop}};
    pthread_t by[READERS];
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&by[i], NULL, reads, &r[i]), 0);
    for (int i = 0; i < 1500; i++) step(v);
    atomic_store(&stop, true);
    for (int i = 0; i < READERS; i++) {
        pthread_join(by[i], NULL);
        assert_string_equal(r[i].error, "");
        assert_true(r[i].turns > 0 && r[i].torn == 0);
    }
    assert_true(element(v, N - 1) == 1500);
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
    assert_null(ct_assigning_ctx(v));
    assert_null(ct_assigning_ctx(x));
    ct_assign(v, x);
    ct_ctx_use(other);
    assert_ptr_equal(ct_assigning_ctx(v), one);
    ct_ctx_use(one);
    assert_true(ct_rolling_eval(NULL, 0));
    assert_null(ct_assigning_ctx(v));
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
        TEST(test_contexts_take_turns_at_assigning),
        TEST(test_a_version_that_was_read_while_it_was_pending_stays),
        TEST(test_nothing_is_spent_while_one_assigns_and_others_read),
        TEST(test_gradients_flow_to_the_version_that_was_read),
        TEST(test_who_has_an_assignment_pending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
