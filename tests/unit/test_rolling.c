// Rolling scopes: what is named lives, the rest is given back; histories last until they are used.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "cotan/binding.h"
#include "support/record.h"

static ct_tensor name(ct_tensor t) { return ct_pin(t); } // as a binding names a result

// The name goes from one value to the next.
static void rename_to(ct_tensor *t, ct_tensor next) {
    ct_tensor before = *t;
    *t = name(next);
    ct_unpin(before);
}

static void begin(void) {
    ct_ctx_use(ct_ctx_new());
    assert_true(ct_rolling_begin());
}
static void end(void) {
    assert_ok();
    ct_ctx *ctx = ct_ctx_use(NULL);
    ct_ctx_free(ctx);
}

static ct_tensor ramp(int64_t n) { // (n,) 0, 1, ...
    return ct_cast(ct_iota(CT_I32, CT_DIMS(n), 0), CT_F32);
}

static void test_named_values_stay(void **state) {
    (void)state;
    begin();
    ct_tensor x = name(ramp(4)), y = name(ct_mul(x, ct_f(2))), z = name(ct_add(y, ct_f(1)));
    assert_true(ct_item(name(ct_sum(z))) == 16);
    ct_unpin(x);
    assert_true(((const float *)ct_data(y))[3] == 6);
    assert_true(((const float *)ct_data(z))[3] == 7);
    assert_false(ct_ok(x));
    assert_int_equal(ct_rolling_pending(), 0);
    end();
}

// What nobody names is not stored: only the result comes to memory.
static void test_unnamed_values_are_fused_away(void **state) {
    (void)state;
    begin();
    enum { N = 1 << 16 };
    ct_tensor x = name(ramp(N));
    assert_true(ct_eval(NULL, 0));
    const uint64_t before = ct_get_stats().live_bytes;
    for (int i = 0; i < 10; i++) rename_to(&x, ct_add(ct_mul(x, ct_f(0.5)), ct_f(1)));
    assert_true(ct_eval(NULL, 0));
    assert_int_equal(ct_get_stats().live_bytes, before);
    end();
}

static void test_state_that_is_carried_holds_memory_level(void **state) {
    (void)state;
    begin();
    ct_tensor x = name(ramp(64));
    uint64_t after_warm_up = 0, plans = 0;
    for (int i = 0; i < 20000; i++) {
        rename_to(&x, ct_add(ct_mul(x, ct_f(0.5)), ct_f(1)));
        if (i % 3 == 0) {
            ct_tensor sum = name(ct_sum(x));
            assert_true(ct_item(sum) >= 0);
            ct_unpin(sum);
        }
        if (i == 1000) after_warm_up = ct_get_stats().memory, plans = ct_get_stats().plans_made;
    }
    assert_int_equal(ct_get_stats().memory, after_warm_up);
    assert_int_equal(ct_get_stats().plans_made, plans);
    assert_true(((const float *)ct_data(x))[5] == 2);
    end();
}

// Nothing recurses over what is given back.
static void test_a_long_chain_is_given_back(void **state) {
    (void)state;
    begin();
    ct_tensor x = name(ramp(4));
    for (int i = 0; i < 300000; i++) rename_to(&x, ct_neg(x));
    ct_unpin(x);
    assert_true(ct_eval(NULL, 0));
    end();
}

// One step of descent on mean((w x - y)^2), with a read in the middle or not.
typedef struct descent {
    ct_params *set;
    ct_tensor w;
} descent;
static descent start(void) {
    descent d = {.set = ct_params_new()};
    d.w = ct_param(d.set, "w", CT_F32, CT_DIMS(8));
    ct_track_variable(d.w, true);
    ct_assign(d.w, ct_zeros(CT_F32, CT_DIMS(8)));
    return d;
}
static ct_tensor loss_of(const descent *d) {
    ct_tensor x = name(ramp(8)), product = name(ct_mul(d->w, x));
    ct_tensor off = name(ct_sub(product, ct_f(3)));
    ct_unpin(product);
    ct_tensor loss = name(ct_mean(ct_mul(off, off)));
    ct_unpin(off);
    ct_unpin(x);
    return loss;
}
static void step(const descent *d, bool read) {
    ct_tensor loss = loss_of(d), leaf, grad;
    if (read) assert_true(ct_item(loss) >= 0);
    assert_int_equal(ct_tracked_leaves(loss, &leaf, 1), 1);
    assert_int_equal(leaf.bits, d->w.bits);
    ct_backward(loss, &leaf, 1, &grad, false, false);
    grad = name(grad);
    ct_assign(d->w, ct_sub(ct_stop_gradient(d->w), ct_mul(grad, ct_f(0.01))));
    ct_unpin(grad);
    assert_true(ct_eval(NULL, 0));
    ct_unpin(loss);
}

static void test_descent(void **state) {
    (void)state;
    float w[2][8];
    for (int read = 0; read < 2; read++) {
        begin();
        descent d = start();
        uint64_t plans = 0, memory = 0;
        for (int i = 0; i < 300; i++) {
            step(&d, read);
            if (i == 5) plans = ct_get_stats().plans_made, memory = ct_get_stats().memory;
        }
        assert_int_equal(ct_get_stats().plans_made, plans);
        assert_int_equal(ct_get_stats().memory, memory);
        memcpy(w[read], ct_data(d.w), sizeof w[read]);
        ct_params_free(d.set);
        end();
    }
    assert_memory_equal(w[0], w[1], sizeof w[0]); // a read changes no bit
    assert_true(w[0][0] == 0 && w[0][7] > 0.4f && w[0][7] < 0.43f);
}

// Losses that nobody differentiates keep their histories no longer than their names.
static void test_histories_go_with_their_values(void **state) {
    (void)state;
    begin();
    descent d = start();
    ct_tensor loss = CT_NONE;
    uint64_t memory = 0;
    for (int i = 0; i < 5000; i++) {
        rename_to(&loss, loss_of(&d));
        assert_true(ct_item(loss) == 9);
        assert_true(ct_is_tracked(loss));
        if (i == 100) memory = ct_get_stats().memory;
    }
    assert_int_equal(ct_get_stats().memory, memory);
    ct_unpin(loss);
    ct_params_free(d.set);
    end();
}

static void test_a_history_is_used_once(void **state) {
    (void)state;
    begin();
    descent d = start();
    ct_tensor loss = loss_of(&d), leaf, grad[3];
    assert_int_equal(ct_tracked_leaves(loss, &leaf, 1), 1);
    ct_backward(loss, &leaf, 1, &grad[0], true, false);
    grad[0] = name(grad[0]);
    assert_true(ct_eval(NULL, 0));
    assert_int_equal(ct_tracked_leaves(loss, &leaf, 1), 1);
    ct_backward_at(loss, &leaf, 1, &grad[1], false, false, (ct_loc){"train.py", 7});
    grad[1] = name(grad[1]);
    assert_memory_equal(ct_data(grad[0]), ct_data(grad[1]), 8 * sizeof(float));
    ct_tensor more = name(ct_mul_at(loss, d.w, (ct_loc){"train.py", 8}));
    more = name(ct_sum(more));
    assert_int_equal(ct_tracked_leaves_at(more, &leaf, 1, (ct_loc){"train.py", 9}), 0);
    assert_non_null(strstr(ct_error_text(),
                           "was used by an earlier backward, the latest one at train.py:7\n  hint: "
                           "backward(retain_graph=True) keeps it"));
    ct_error_clear();
    ct_tensor detached = name(ct_stop_gradient(loss)), sum = name(ct_sum(ct_mul(detached, d.w)));
    assert_int_equal(ct_tracked_leaves(sum, &leaf, 1), 1);
    ct_params_free(d.set);
    end();
}

static void test_nothing_requires_gradients(void **state) {
    (void)state;
    begin();
    ct_tensor x = name(ct_sum(ramp(3))), leaf;
    assert_int_equal(ct_tracked_leaves_at(x, &leaf, 1, (ct_loc){"a.py", 3}), 0);
    assert_string_equal(ct_error_text(),
                        "a.py:3: backward: nothing that the value depends on requires gradients\n"
                        "  hint: set requires_grad=True before the value is computed");
    ct_error_clear();
    end();
}

// A variable that is assigned between a value and its gradient: both lines.
static void test_an_overwritten_variable_is_an_error(void **state) {
    (void)state;
    begin();
    descent d = start();
    ct_tensor loss = name(ct_sum(ct_mul_at(d.w, d.w, (ct_loc){"a.py", 1}))), leaf, grad;
    assert_true(ct_eval(NULL, 0));
    ct_assign_at(d.w, ct_ones(CT_F32, CT_DIMS(8)), (ct_loc){"a.py", 2});
    assert_true(ct_eval(NULL, 0));
    assert_int_equal(ct_tracked_leaves(loss, &leaf, 1), 1);
    ct_backward_at(loss, &leaf, 1, &grad, false, false, (ct_loc){"a.py", 3});
    grad = name(grad);
    assert_null(ct_data(grad));
    assert_non_null(strstr(ct_error_text(),
                           "a.py:3: grad: the value needs variable \"w\" as it was "
                           "read at a.py:1, but it was assigned at a.py:2"));
    ct_error_clear();
    ct_tensor one = name(ct_sum(d.w)); // the context goes on
    assert_true(ct_item(one) == 8);
    ct_params_free(d.set);
    end();
}

// A loss that reads a variable before a run and behind it reads one version, whether or not the run assigns it.
static void test_a_variable_read_on_both_sides_of_a_run(void **state) {
    (void)state;
    begin();
    descent d = start();
    uint64_t plans = 0, memory = 0;
    for (int i = 0; i < 300; i++) {
        ct_assign(d.w, ct_ones(CT_F32, CT_DIMS(8)));
        if (i % 2) assert_true(ct_eval(NULL, 0));
        ct_tensor half = name(ct_mul(d.w, ct_f(2))), sum = name(ct_sum(half)), leaf, grad;
        assert_true(ct_item(sum) == 16);
        ct_tensor loss = name(ct_sum(ct_mul(half, d.w))); // 2 w w
        assert_int_equal(ct_tracked_leaves(loss, &leaf, 1), 1);
        ct_backward(loss, &leaf, 1, &grad, false, false);
        grad = name(grad);
        assert_true(((const float *)ct_data(grad))[5] == 4);
        ct_unpin(half), ct_unpin(sum), ct_unpin(loss), ct_unpin(grad);
        if (i == 9) plans = ct_get_stats().plans_made, memory = ct_get_stats().memory;
    }
    assert_int_equal(ct_get_stats().plans_made, plans);
    assert_int_equal(ct_get_stats().memory, memory);
    ct_params_free(d.set);
    end();
}

static void test_gradients_of_gradients(void **state) {
    (void)state;
    begin();
    ct_tensor x = name(ct_track(ct_f(2))), y = name(ct_mul(ct_mul(x, x), x)), grad, second, leaf;
    ct_backward(y, &x, 1, &grad, false, true);
    grad = name(grad);
    assert_true(ct_item(grad) == 12);
    assert_int_equal(ct_tracked_leaves(grad, &leaf, 1), 1);
    ct_backward(grad, &x, 1, &second, false, false);
    second = name(second);
    assert_true(ct_item(second) == 12);
    end();
}

// A function that is traced in two halves, and then stands for itself under vmap.
static void test_traced_in_two_halves(void **state) {
    (void)state;
    begin();
    ct_tensor outer = name(ramp(3)), param, results[2],
              batch = name(ct_reshape(ramp(6), CT_DIMS(2, 3)));
    ct_function *f =
        ct_function_begin_at(&(ct_dtype){CT_F32}, &CT_DIMS(3), 1, &param, (ct_loc){"f.py", 1});
    assert_non_null(f);
    ct_tensor product = name(ct_mul(param, outer)), both[2] = {ct_sum(product), product};
    assert_null(ct_data_at(product, (ct_loc){"f.py", 2}));
    assert_error(CT_E_TRACE,
                 "f.py:2: data: a value is read inside a traced function\n  hint: return it "
                 "as a result of the function, and read it outside");
    assert_true(ct_function_end_at(f, both, 2, CT_HERE));
    ct_vmap(.f = ct_function_call, .user = f, .in = &batch, .n_in = 1, .out = results, .n_out = 2);
    ct_tensor sums = name(results[0]), products = name(results[1]);
    assert_true(((const float *)ct_data(sums))[1] == 14);
    assert_true(((const float *)ct_data(products))[5] == 10);
    end();
}

// The derivative brings numbers along that the traced function does not have.
static void test_a_function_with_a_gradient_inside(void **state) {
    (void)state;
    begin();
    ct_tensor batch = name(ct_reshape(ramp(6), CT_DIMS(2, 3))), param, slope, result;
    ct_function *f = ct_function_begin_at(&(ct_dtype){CT_F32}, &CT_DIMS(3), 1, &param, CT_HERE);
    ct_grad(ct_sum(ct_tanh(param)), &param, 1, &slope);
    assert_true(ct_function_end_at(f, &slope, 1, CT_HERE));
    ct_vmap(.f = ct_function_call, .user = f, .in = &batch, .n_in = 1, .out = &result, .n_out = 1);
    result = name(result);
    const float *got = ct_data(result);
    assert_non_null(got);
    for (int i = 0; i < 6; i++)
        assert_float_equal(got[i], 1 - tanhf((float)i) * tanhf((float)i), 1e-6f);
    end();
}

static void test_a_function_that_raises(void **state) {
    (void)state;
    begin();
    ct_tensor param;
    ct_function *f = ct_function_begin_at(&(ct_dtype){CT_F32}, &CT_DIMS(3), 1, &param, CT_HERE);
    ct_tensor inside = name(ct_neg(param));
    assert_true(ct_function_end_at(f, NULL, 0, CT_HERE));
    assert_false(ct_ok(inside));
    assert_false(ct_function_end_at(f, NULL, 0, (ct_loc){"f.py", 4}));
    assert_error(CT_E_ARGUMENT, "f.py:4: function: the function has ended");
    ct_tensor after = name(ct_sum(ramp(3)));
    assert_true(ct_item(after) == 3);
    end();
}

// A run inside does not lose what is named: a variable may be assigned behind it.
static void test_what_waits_is_computed_with_the_next_run(void **state) {
    (void)state;
    begin();
    descent d = start();
    assert_true(ct_eval(NULL, 0));
    ct_tensor y = name(ct_add(d.w, ct_f(1)));
    {
        CT_SCOPE;
        ct_metric("inner", ct_sum(ramp(3)));
    }
    ct_assign(d.w, ct_ones(CT_F32, CT_DIMS(8)));
    assert_true(ct_eval(NULL, 0));
    assert_true(((const float *)ct_data(y))[7] == 1);
    ct_params_free(d.set);
    end();
}

static void test_what_was_interrupted_can_run_again(void **state) {
    (void)state;
    begin();
    ct_tensor x = name(ct_add(ramp(4), ct_f(1)));
    ct_cancel(ct_ctx_current());
    assert_false(ct_eval(NULL, 0));
    assert_int_equal(ct_error_code(), CT_E_INTERRUPTED);
    ct_error_clear();
    ct_tensor other = name(ct_mul(x, x));
    assert_true(ct_eval(NULL, 0));
    assert_true(((const float *)ct_data(x))[3] == 4);
    assert_true(((const float *)ct_data(other))[3] == 16);
    end();
}

// A matrix without an inverse, as something that fails when it runs.
static ct_tensor singular(void) { return name(ct_inv(ct_zeros(CT_F32, CT_DIMS(2, 2)))); }

// A first value that another one was to replace is not lost with that.
static void test_a_first_value_stays_where_the_next_fails(void **state) {
    (void)state;
    for (int stopped = 0; stopped < 2; stopped++) {
        begin();
        descent d = start();
        ct_tensor bad = singular();
        ct_assign(d.w, ct_add(ct_stop_gradient(d.w), ct_f(1)));
        ct_assign(d.w, ct_add(ct_stop_gradient(d.w), ct_sum(bad)));
        if (stopped) ct_cancel(ct_ctx_current());
        assert_false(ct_eval(NULL, 0));
        assert_int_equal(ct_error_code(), stopped ? CT_E_INTERRUPTED : CT_E_LINALG);
        ct_error_clear();
        if (stopped) ct_rolling_discard_pending();
        for (int i = 0; i < 3; i++) { // and it goes on
            assert_true(((const float *)ct_data(d.w))[7] == (float)i);
            ct_assign(d.w, ct_add(ct_stop_gradient(d.w), ct_f(1)));
        }
        assert_true(ct_eval(NULL, 0));
        ct_params_free(d.set);
        end();
    }
}

// An error takes nothing along that does not hang on what failed: neither values nor assignments.
static void test_an_error_leaves_the_rest(void **state) {
    (void)state;
    begin();
    descent d = start(); // its first assignment is pending
    ct_tensor x = name(ct_add(ramp(3), ct_f(1)));
    assert_false(ct_ok(ct_add(ramp(3), ramp(4)))); // recording fails
    ct_error_clear();
    ct_tensor bad = singular();
    for (int i = 0; i < 2; i++) { // each time that it is asked for
        assert_null(ct_data(bad));
        assert_int_equal(ct_error_code(), CT_E_LINALG);
        ct_error_clear();
    }
    assert_true(((const float *)ct_data(d.w))[3] == 0);
    assert_true(((const float *)ct_data(x))[2] == 3);
    ct_assign(d.w, ct_add(ct_stop_gradient(d.w), ct_f(5)));
    ct_tensor worse = singular();
    assert_null(ct_data(worse));
    ct_error_clear();
    assert_true(((const float *)ct_data(d.w))[3] == 5);
    ct_assign(d.w,
              ct_add(ct_stop_gradient(d.w), ct_sum(worse))); // hangs on what fails: is not made
    assert_false(ct_eval(NULL, 0));
    ct_error_clear();
    assert_true(((const float *)ct_data(d.w))[3] == 5);
    ct_params_free(d.set);
    end();
}

// As if the run had never begun: a binding decides whether it begins once more.
static void test_assignments_outlive_an_interruption(void **state) {
    (void)state;
    begin();
    descent d = start(), e = start();
    assert_true(ct_eval(NULL, 0));
    for (int give_up = 0; give_up < 2; give_up++) {
        ct_assign(d.w, ct_add(ct_stop_gradient(d.w), ct_f(1)));
        ct_assign(e.w, ct_add(ct_stop_gradient(e.w), ct_f(1)));
        ct_assign(e.w, ct_mul(ct_stop_gradient(e.w), ct_f(3)));
        ct_cancel(ct_ctx_current());
        assert_false(ct_eval(NULL, 0));
        assert_int_equal(ct_error_code(), CT_E_INTERRUPTED);
        ct_error_clear();
        if (give_up) ct_rolling_discard_pending();
        assert_true(ct_eval(NULL, 0));
        assert_true(((const float *)ct_data(d.w))[7] == 1); // and not 2
        assert_true(((const float *)ct_data(e.w))[7] == 3);
    }
    ct_params_free(d.set);
    ct_params_free(e.set);
    end();
}

static void test_a_first_assignment_outlives_an_interruption(void **state) {
    (void)state;
    begin();
    descent d = start();
    ct_tensor sum = name(ct_sum(d.w));
    ct_cancel(ct_ctx_current());
    assert_false(ct_eval(NULL, 0));
    ct_error_clear();
    ct_rolling_discard_pending();
    ct_tensor other = name(ct_add(d.w, ct_f(2)));
    assert_true(((const float *)ct_data(other))[7] == 2);
    assert_true(ct_item(sum) == 0);
    ct_params_free(d.set);
    end();
}

static void count(void *user) { ++*(int *)user; }

static void test_memory_is_lent(void **state) {
    (void)state;
    begin();
    ct_tensor x = name(ramp(1000)), one = name(ct_f(2.5));
    ct_borrowed *loan, *number;
    const float *v = ct_borrow(x, &loan), *scalar = ct_borrow(one, &number);
    assert_ptr_equal(v, ct_data(x));
    ct_unpin(x);
    for (int i = 0; i < 20; i++) { // what would take its place, if it could
        ct_tensor other = name(ct_add(ramp(1000), ct_f(i)));
        assert_true(ct_eval(NULL, 0));
        ct_unpin(other);
    }
    assert_true(v[999] == 999 && *scalar == 2.5f);
    ct_borrow_end(loan);
    ct_borrow_end(number);
    ct_borrow_end(NULL);
    end();
}

static void test_memory_is_adopted(void **state) {
    (void)state;
    begin();
    _Alignas(64) static float mine[8] = {1, 2, 3, 4};
    int released = 0;
    ct_tensor x = name(ct_adopt(mine, CT_F32, CT_DIMS(4), count, &released));
    ct_tensor sum = name(ct_sum(x));
    mine[0] = 5;
    assert_true(ct_item(sum) == 14);
    assert_ptr_equal(ct_data(x), mine);
    assert_int_equal(released, 0);
    ct_unpin(x);
    assert_int_equal(released, 1);
    ct_tensor odd = name(ct_adopt((char *)mine + 1, CT_F32, CT_DIMS(4), count, &released));
    assert_int_equal(released, 2); // copied
    ct_unpin(odd);
    assert_false(
        ct_ok(ct_adopt_at(mine, CT_F32, CT_DIMS(-1), count, &released, (ct_loc){"a.py", 1})));
    assert_int_equal(released, 3);
    assert_error(CT_E_SHAPE, "a.py:1: from: axis 0 has size -1");
    end();
}

// loss = sum(m x) for m = mark(exp(h)), h = w x: the mark comes first, then what lies behind it.
static void test_a_history_is_cut_at_marks(void **state) {
    (void)state;
    begin();
    descent d = start();
    int owner;
    void *owners[2];
    ct_tensor x = name(ramp(8)), h = name(ct_mul(d.w, x)), raw = ct_stop_gradient(ct_exp(h)), m;
    ct_record_hook(&raw, 1, &h, 1, &owner, &m);
    m = name(m);
    ct_tensor loss = name(ct_sum(ct_mul(m, x)));
    assert_true(ct_is_tracked(m));
    assert_int_equal(ct_hook_count(), 1);
    ct_history_cut cut;
    assert_true(ct_history_cut_at(&loss, 1, NULL, 0, &cut, CT_HERE));
    assert_ptr_equal(cut.owner, &owner);
    assert_int_equal(cut.n_inside_roots, 1);
    assert_int_equal(cut.n_leaves, 0);
    assert_int_equal(cut.n_frontier, 1);
    assert_int_equal(cut.frontier[0].bits, m.bits);
    assert_int_equal(cut.n_boundary, 1);
    assert_int_equal(cut.boundary[0].bits, m.bits);
    assert_int_equal(cut.n_operands, 2);
    assert_int_equal(cut.operands[1].bits, h.bits);
    ct_history_cut_free(&cut);
    assert_true(ct_history_cut_at(&h, 1, NULL, 0, &cut, CT_HERE)); // nothing in front of its leaf
    assert_null(cut.owner);
    assert_int_equal(cut.n_frontier, 0);
    assert_int_equal(cut.n_leaves, 1);
    assert_int_equal(cut.leaves[0].bits, d.w.bits);
    ct_history_cut_free(&cut);
    assert_int_equal(ct_ended_hooks(owners, 2), 0);
    ct_unpin(loss);
    ct_unpin(m);
    assert_int_equal(ct_hook_count(), 0);
    assert_int_equal(ct_ended_hooks(owners, 2), 1);
    assert_ptr_equal(owners[0], &owner);
    ct_unpin(h);
    ct_unpin(x);
    ct_params_free(d.set);
    end();
}

// A cotangent that is made of what is differentiated stands still: d (x . x) / dx = x, not 2 x.
static void test_a_cotangent_stands_still(void **state) {
    (void)state;
    begin();
    ct_tensor x = name(ct_track(ramp(4))), loss = name(ct_surrogate_loss(x, x)), grad;
    ct_backward(loss, &x, 1, &grad, false, false);
    grad = name(grad);
    assert_true(((const float *)ct_data(grad))[3] == 3);
    end();
}

// What was read before a run and behind it is one version.
static void test_a_variable_is_read_before_and_behind_a_run(void **state) {
    (void)state;
    begin();
    descent d = start();
    ct_tensor x = name(ramp(8)), h = name(ct_add(ct_mul(d.w, x), x)), grad;
    assert_true(ct_item(name(ct_sum(h))) == 28);
    ct_tensor loss = name(ct_sum(ct_mul(h, ct_add(d.w, x)))); // (w x + x) (w + x)
    ct_backward(loss, &d.w, 1, &grad, false, false);
    grad = name(grad);
    assert_true(((const float *)ct_data(grad))[3] == 3 * 3 + 3);
    ct_params_free(d.set);
    end();
}

// Behind a gradient there is what its own gradient does not depend on: y = x w + b, g = dy/dx = w.
static void test_gradients_of_gradients_may_be_zero(void **state) {
    (void)state;
    begin();
    ct_tensor x = name(ct_track(ramp(4))), w = name(ct_track(ramp(4))), b = name(ct_track(ramp(4)));
    ct_tensor loss = name(ct_sum(ct_add(ct_mul(x, w), b))), g, leaves[3], grads[3];
    ct_backward(loss, &x, 1, &g, false, true);
    g = name(ct_sum(name(g)));
    assert_int_equal(ct_tracked_leaves(g, leaves, 3), 3);
    ct_backward(g, leaves, 3, grads, false, false);
    for (int i = 0; i < 3; i++) grads[i] = name(grads[i]);
    for (int i = 0; i < 3; i++)
        assert_true(((const float *)ct_data(grads[i]))[2] == (leaves[i].bits == w.bits));
    end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_named_values_stay),
        cmocka_unit_test(test_unnamed_values_are_fused_away),
        cmocka_unit_test(test_state_that_is_carried_holds_memory_level),
        cmocka_unit_test(test_a_long_chain_is_given_back),
        cmocka_unit_test(test_descent),
        cmocka_unit_test(test_histories_go_with_their_values),
        cmocka_unit_test(test_a_history_is_used_once),
        cmocka_unit_test(test_nothing_requires_gradients),
        cmocka_unit_test(test_an_overwritten_variable_is_an_error),
        cmocka_unit_test(test_a_variable_read_on_both_sides_of_a_run),
        cmocka_unit_test(test_gradients_of_gradients),
        cmocka_unit_test(test_traced_in_two_halves),
        cmocka_unit_test(test_a_function_with_a_gradient_inside),
        cmocka_unit_test(test_a_function_that_raises),
        cmocka_unit_test(test_what_waits_is_computed_with_the_next_run),
        cmocka_unit_test(test_what_was_interrupted_can_run_again),
        cmocka_unit_test(test_a_first_value_stays_where_the_next_fails),
        cmocka_unit_test(test_an_error_leaves_the_rest),
        cmocka_unit_test(test_assignments_outlive_an_interruption),
        cmocka_unit_test(test_a_first_assignment_outlives_an_interruption),
        cmocka_unit_test(test_memory_is_lent),
        cmocka_unit_test(test_memory_is_adopted),
        cmocka_unit_test(test_a_history_is_cut_at_marks),
        cmocka_unit_test(test_a_cotangent_stands_still),
        cmocka_unit_test(test_a_variable_is_read_before_and_behind_a_run),
        cmocka_unit_test(test_gradients_of_gradients_may_be_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
