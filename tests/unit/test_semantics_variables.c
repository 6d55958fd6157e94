// "What runs, and when": variables, versions, assignments, spent nodes, gradients of versions.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "graph/graph.h"
#include "support/record.h"

#define TEST(name) cmocka_unit_test_setup_teardown(name, record_begin, record_end)
#define FILE_NAME "tests/unit/test_semantics_variables.c"

// A record that is used again is as a new one: an axis that was dynamic from the first plan on is not.
static void a_record_is_used_again(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_var *var = ct__var_of(ct_param(set, "pool", CT_F32, CT_DIMS(4, 2)));
    var->open = true;
    ct_params_free(set);
    set = ct_params_new();
    assert_ptr_equal(ct__var_of(ct_param(set, "w", CT_F32, CT_DIMS(4, 2))), var);
    assert_false(var->open);
    ct_params_free(set);
}

static void each_of_many_names_is_found(void **state) {
    (void)state;
    enum { N = 3000 };
    ct_params *set = ct_params_new();
    char name[32];
    assert_false(ct_params_find(set, "h.0").bits);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "h.%d", i);
        assert_true(ct_ok(ct_param(set, name, CT_F32, CT_SCALAR)));
        snprintf(name, sizeof name, "h.%d", i + 1);
        assert_false(ct_params_find(set, name).bits);
    }
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "h.%d", i);
        assert_true(ct_params_find(set, name).bits == ct_params_get(set, (size_t)i).bits);
        assert_false(ct_ok(ct_param_at(set, name, CT_F32, CT_SCALAR, (ct_loc){"main.c", 9})));
        char want[160];
        snprintf(want, sizeof want,
                 "main.c:9: param: the name \"%s\" is taken in this set"
                 "\n  hint: ct_nn_builder_child gives each layer a place of its own",
                 name);
        assert_string_equal(ct_error_text(), want);
        ct_error_clear();
    }
    for (int missing = 0; missing < 2; missing++) {
        ct_tensor none = ct_param_at(missing ? set : NULL, missing ? NULL : "w", CT_F32, CT_SCALAR,
                                     (ct_loc){"main.c", 9});
        assert_false(ct_ok(none));
        assert_string_equal(ct_error_text(), missing ? "main.c:9: param: it has no name"
                                                     : "main.c:9: param: it has no parameter set");
        ct_error_clear();
    }
    assert_int_equal(ct_params_count(set), N);
    assert_false(ct_params_find(set, "").bits);
    ct_params_free(set);
}

static void a_parameter_is_a_leaf_that_a_step_assigns(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 0);
    for (int step = 0; step < 5; step++) {
        CT_SCOPE;
        ct_assign(w, ct_add(w, ct_f(step)));
    }
    assert_true(at(w, 0) == 10);
    ct_params_free(set);
}

static void the_plan_updates_in_place(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 0);
    assert_true(at(w, 0) == 0);
    uint64_t live = 0;
    for (int step = 0; step < 4; step++) {
        {
            CT_SCOPE;
            ct_assign(w, ct_add(w, ct_f(1)));
        }
        if (step == 1) live = ct_get_stats().live_bytes;
        if (step > 1) assert_int_equal(ct_get_stats().live_bytes, live);
    }
    ct_params_free(set);
}

static void a_read_binds_the_version_current_when_it_is_recorded(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 1), old, new;
    {
        CT_SCOPE;
        ct_tensor before = ct_mul(w, ct_f(10));
        ct_assign(w, ct_add(w, ct_f(1)));
        ct_tensor after = ct_mul(w, ct_f(10));
        ct_assign(w, ct_add(w, ct_f(1)));
        old = ct_keep(ct_add(before, after));
        new = ct_keep(ct_mul(w, ct_f(10)));
    }
    assert_true(at(old, 0) == 30 && at(new, 0) == 30 && at(w, 0) == 3);
    ct_params_free(set);
}

static void assignments_follow_all_reads_of_older_versions(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor a = set_var(set, "a", 1), b = set_var(set, "b", 2), c = set_var(set, "c", 3), late;
    {
        CT_SCOPE;
        ct_tensor was = ct_add(a, b);
        ct_tensor x = ct_mul(a, ct_f(1)); // nothing but a itself, after simplification
        ct_assign(a, b);                  // a rotation, and a swap inside it
        ct_assign(b, c);
        ct_assign(c, x);
        late = ct_keep(ct_mul(was, ct_f(100)));
    }
    assert_true(at(a, 0) == 2 && at(b, 1) == 3 && at(c, 0) == 1 && at(late, 1) == 300);
    ct_params_free(set);
}

static void a_variable_assigned_from_itself_moved_about(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor m = ct_param(set, "m", CT_F32, CT_DIMS(3, 3));
    ct_assign(m, ct_reshape(line_of(9), CT_DIMS(3, 3)));
    for (int step = 0; step < 3; step++) {
        CT_SCOPE;
        ct_assign(m, ct_permute(m, CT_AXES(1, 0)));
        ct_metric("corner", ct_sum(ct_slice(m, .start = CT_INTS(0, 2), .stop = CT_INTS(1, 3))));
    }
    assert_ok();
    assert_true(at(m, 0) == 1 && at(m, 1) == 4 && at(m, 2) == 7 && at(m, 3) == 2);
    assert_true(ct_metric_value("corner") == 7);
    {
        CT_SCOPE;
        ct_assign(m, m);
    }
    assert_true(at(m, 1) == 4);
    ct_params_free(set);
}

static void an_initial_value_is_the_first_assignment(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = ct_param(set, "w", CT_F32, CT_DIMS(2));
    char want[256];
    snprintf(want, sizeof want,
             FILE_NAME ":%d: sum: variable \"w\" is read before its first assignment\n  hint: "
                       "ct_assign gives it a value, ct_params_load those of a whole set",
             __LINE__ + 1);
    assert_true(isnan(ct_item(ct_sum(w))));
    assert_error(CT_E_UNSET, want);
    ct_assign(w, line_of(2));
    assert_true(ct_item(ct_sum(w)) == 3);
    ct_params_free(set);
}

static void an_assignment_casts_and_a_bare_number_becomes_as_strong_as_the_variable(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor s = ct_param(set, "s", CT_F32, CT_SCALAR), k = ct_param(set, "k", CT_I32, CT_SCALAR);
    ct_assign(s, ct_f(2));
    ct_assign(k, ct_f(3.9));
    ct_tensor half = ct_cast(line_of(2), CT_BF16);
    assert_int_equal(ct_dtype_of(ct_add(s, half)), CT_F32); // before it ran, and after
    assert_true(ct_item(s) == 2 && ct_item(k) == 3);
    assert_int_equal(ct_dtype_of(ct_add(s, half)), CT_F32);
    ct_params_free(set);
}

static void shapes_of_assignments_must_fit(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 1), x = line_of(3);
    ct_assign(w, x);
    char want[256];
    snprintf(want, sizeof want,
             FILE_NAME ":%d: assign: variable \"w\" is (2,) f32, the value is (3,) f32",
             __LINE__ - 4);
    assert_error(CT_E_SHAPE, want);
    ct_assign(x, w);
    snprintf(want, sizeof want, FILE_NAME ":%d: assign: the first operand is no variable",
             __LINE__ - 2);
    assert_error(CT_E_ARGUMENT, want);
    ct_params_free(set);
}

// ------------------------------------------------------------------------------------------ spent

static void a_pending_node_whose_version_is_gone_is_spent(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 1);
    assert_true(at(w, 0) == 1);
    CT_SCOPE;
    ct_tensor y = ct_mul(w, ct_f(5));
    ct_assign(w, ct_add(w, ct_f(1)));
    assert_true(at(w, 0) == 2);
    for (int again = 0; again < 2; again++) { // never a new value
        assert_true(isnan(ct_item(ct_sum(y))));
        assert_int_equal(ct_error_code(), CT_E_OVERWRITTEN);
        ct_error_clear();
    }
    assert_true(at(w, 0) == 2); // the variable is as it was
    ct_params_free(set);
}

static void both_lines_of_a_spent_node(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 1);
    assert_true(ct_eval(NULL, 0));
    CT_SCOPE;
    ct_tensor y = ct_mul(w, ct_f(5));
    int read_line = __LINE__ - 1;
    ct_assign(w, ct_add(w, ct_f(1)));
    assert_true(ct_eval(NULL, 0));
    assert_false(ct_eval(&y, 1));
    char want[512];
    snprintf(want, sizeof want,
             FILE_NAME ":%d: read: the value needs variable \"w\" as it was read at " FILE_NAME
                       ":%d, but it was assigned at " FILE_NAME ":%d and is gone\n"
                       "  hint: read the value, or ct_keep it, before the variable is assigned",
             __LINE__ - 6, read_line, read_line + 2);
    assert_error(CT_E_OVERWRITTEN, want);
    ct_params_free(set);
}

static void a_freed_set_leaves_pending_reads_spent(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 1);
    assert_true(ct_eval(NULL, 0));
    CT_SCOPE;
    ct_tensor y = ct_mul(w, ct_f(5));
    ct_assign(w, y);
    ct_params_free(set);
    assert_false(ct_ok(w));
    assert_false(ct_eval(&y, 1));
    assert_int_equal(ct_error_code(), CT_E_OVERWRITTEN);
    assert_non_null(strstr(ct_error_text(), "but it was freed after its assignment at "));
    assert_non_null(strstr(ct_error_text(),
                           " and is gone\n"
                           "  hint: recorded work runs when its scope ends: free it after that; "
                           "use CT_SCOPE; in a loop, so that each iteration runs by itself"));
    ct_error_clear();
}

// ----------------------------------------------------------------------------------------
// gradients

static void a_gradient_is_of_the_version_that_the_loss_reads(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 3), g;
    assert_true(ct_eval(NULL, 0));
    {
        CT_SCOPE;
        ct_tensor loss = ct_sum(ct_mul(w, w));
        ct_assign(w, ct_mul(w, ct_f(10)));
        ct_grad(loss, &w, 1, &g); // w is 30 by now; the loss read 3
        g = ct_keep(g);
    }
    assert_ok();
    assert_true(at(g, 0) == 6 && at(w, 0) == 30);
    {
        CT_SCOPE;
        ct_assign(w, ct_mul(w, ct_f(0.1)));
        ct_tensor loss = ct_sum(ct_mul(w, w)); // reads the pending version
        ct_grad(loss, &w, 1, &g);
        g = ct_keep(g);
    }
    assert_ok();
    assert_true(fabs(at(g, 0) - 6) < 1e-5);
    ct_params_free(set);
}

static void two_versions_under_a_gradient_are_an_error(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 3), g;
    assert_true(ct_eval(NULL, 0));
    CT_SCOPE;
    ct_tensor old = ct_mul(w, w);
    int old_line = __LINE__ - 1;
    ct_assign(w, ct_add(w, ct_f(1)));
    ct_tensor loss = ct_sum(ct_add(old, w));
    ct_grad(loss, &w, 1, &g);
    char want[512];
    snprintf(want, sizeof want,
             FILE_NAME ":%d: grad: the loss reads two versions of variable \"w\": of " FILE_NAME
                       ":%d and of " FILE_NAME ":%d",
             __LINE__ - 5, old_line, old_line + 3);
    assert_error(CT_E_GRAD, want);
    assert_false(ct_ok(g));
    ct_params_free(set);
}

// The same, after the assignment ran and the older part was read in time.
static void two_versions_are_found_behind_values_that_were_read(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 3), g;
    assert_true(ct_eval(NULL, 0));
    CT_SCOPE;
    ct_tensor old = ct_mul(w, w);
    assert_true(at(old, 0) == 9);
    ct_assign(w, ct_add(w, ct_f(1)));
    assert_true(at(w, 0) == 4);
    ct_tensor loss = ct_sum(ct_add(old, w));
    ct_grad(loss, &w, 1, &g);
    assert_int_equal(ct_error_code(), CT_E_GRAD);
    assert_non_null(strstr(ct_error_text(), "the loss reads two versions of variable \"w\""));
    ct_error_clear();
    ct_params_free(set);
}

// The sum of a^2 + 5 b^2.
static ct_tensor of_both(ct_tensor a, ct_tensor b) {
    return ct_sum(ct_add(ct_mul(a, a), ct_mul(ct_f(5), ct_mul(b, b))));
}
static double slope(ct_tensor loss, ct_tensor wrt) {
    ct_tensor g;
    ct_grad(loss, &wrt, 1, &g);
    return at(g, 0);
}

// Two variables that are assigned one tensor are two, and the tensor is a third, before the
// assignments have run as after that.
static void variables_of_one_value_have_gradients_of_their_own(void **state) {
    (void)state;
    for (int read = 0; read < 3; read++) {
        CT_SCOPE;
        ct_params *set = ct_params_new();
        ct_tensor a = set_var(set, "a", 0), b = set_var(set, "b", 0), wrt[] = {a, b}, g[2];
        ct_tensor three = ct_full(ct_scalar(3, CT_F32), CT_DIMS(2));
        ct_assign(a, three);
        ct_assign(b, three);
        if (read == 1) assert_true(at(b, 0) == 3);
        ct_tensor loss = ct_add(of_both(a, b), ct_sum(three));
        if (read == 2) assert_true(ct_item(loss) == 114);
        assert_true(slope(loss, a) == 6 && slope(loss, b) == 30);
        ct_grad(loss, wrt, 2, g);
        assert_true(at(g[0], 0) == 6 && at(g[1], 0) == 30);
        assert_true(slope(loss, three) == 37); // what was assigned is behind both
        assert_ok();
        ct_params_free(set);
    }
}

// A variable that is assigned another one holds a copy, which has nothing to do with it.
static void a_variable_assigned_another_is_a_copy(void **state) {
    (void)state;
    for (int read = 0; read < 3; read++) {
        CT_SCOPE;
        ct_params *set = ct_params_new();
        ct_tensor a = set_var(set, "a", 3), b = set_var(set, "b", 0), wrt[] = {a, b}, g[2];
        if (read) assert_true(at(a, 0) == 3);
        ct_assign(b, a);
        if (read == 2) assert_true(at(b, 0) == 3);
        ct_tensor loss = of_both(a, b);
        assert_true(slope(loss, a) == 6 && slope(loss, b) == 30);
        ct_grad(loss, wrt, 2, g);
        assert_true(at(g[0], 0) == 6 && at(g[1], 0) == 30);
        assert_ok();
        for (int i = 0; i < 2; i++) {
            ct_grad(ct_sum(ct_mul(wrt[!i], wrt[!i])), &wrt[i], 1, g);
            int line = __LINE__ - 1;
            assert_false(ct_eval(g, 1));
            char want[256];
            snprintf(want, sizeof want,
                     FILE_NAME ":%d: grad: the loss does not depend on variable \"%s\", operand 1, "
                               "(2,) f32\n  hint: use it in the loss, or leave it out: of the list "
                               "of ct_grad, of the parameter set of an optimizer",
                     line, i ? "b" : "a");
            assert_error(CT_E_GRAD, want);
        }
        ct_params_free(set);
    }
}

// Whichever is read first, and whatever a was assigned by the time at which b's value is looked at.
static void a_variable_is_read_that_was_assigned_another(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        CT_SCOPE;
        ct_params *set = ct_params_new();
        ct_tensor a = set_var(set, "a", 3), b = set_var(set, "b", 0);
        assert_true(at(a, 0) == 3);
        ct_assign(b, a);
        ct_assign(a, i & 1 ? ct_mul(b, ct_f(5)) : ct_full(ct_f(7), CT_DIMS(2)));
        if (i & 2) assert_true(at(a, 1) == (i & 1 ? 15 : 7));
        assert_true(at(b, 1) == 3 && at(a, 1) == (i & 1 ? 15 : 7) && at(b, 0) == 3);
        assert_ok();
        ct_params_free(set);
    }
}

// A version that was replaced before it ran is still the one that a loss reads.
static void a_gradient_of_a_version_that_was_replaced(void **state) {
    (void)state;
    CT_SCOPE;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 3), g;
    int line = __LINE__ + 1;
    ct_assign(w, ct_add(w, ct_f(1)));
    ct_tensor first = ct_sum(ct_mul(w, w));
    ct_assign(w, ct_add(w, ct_f(1)));
    ct_tensor second = ct_sum(ct_mul(w, w));
    ct_grad(ct_add(first, second), &w, 1, &g);
    char want[512];
    snprintf(want, sizeof want,
             FILE_NAME ":%d: grad: the loss reads two versions of variable \"w\": of " FILE_NAME
                       ":%d and of " FILE_NAME ":%d",
             line + 4, line + 1, line + 3);
    assert_error(CT_E_GRAD, want);
    assert_true(slope(first, w) == 8 && slope(second, w) == 10);
    assert_ok();
    ct_params_free(set);
}

// A variable may be read before its assignment has run, and what it was assigned as well: there is
// one value, computed once.
static void reading_what_is_pending_makes_no_second_value(void **state) {
    (void)state;
    uint64_t launches[2];
    for (int through = 0; through < 2; through++) {
        ct_params *set = ct_params_new();
        ct_tensor w = set_var(set, "w", 3);
        assert_true(ct_eval(NULL, 0));
        CT_SCOPE;
        uint64_t before = ct_get_stats().launches;
        ct_tensor value = ct_exp(w);
        ct_assign(w, value);
        ct_tensor sum = ct_sum(through ? w : value);
        assert_true(ct_item(sum) > 40);
        launches[through] = ct_get_stats().launches - before;
        ct_assign(w, ct_add(w, ct_f(1)));
        value = ct_mul(w, w);
        ct_assign(w, value);
        assert_true(at(through ? w : value, 0) > 400);
        assert_ok();
        ct_params_free(set);
    }
    assert_int_equal(launches[0], launches[1]);
}

static void a_gradient_of_what_the_loss_does_not_read_is_an_error(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor v[2] = {set_var(set, "w", 3), set_var(set, "u", 1)}, g[2];
    CT_SCOPE;
    ct_tensor loss = ct_sum(ct_mul(v[0], v[0]));
    ct_grad(loss, v, 2, g);
    assert_false(ct_eval(g, 2));
    char want[512];
    snprintf(want, sizeof want,
             FILE_NAME
             ":%d: grad: the loss does not depend on variable \"u\", operand 2, (2,) f32\n  hint: "
             "use it "
             "in the loss, or leave it out: of the list of ct_grad, of the parameter set of an "
             "optimizer",
             __LINE__ - 9);
    assert_error(CT_E_GRAD, want);
    ct_params_free(set);
}

// The hint of the first gradient that meets such a leaf, and of no other.
static void assert_hint(int grad_line, int value_line) {
    char want[512];
    snprintf(
        want, sizeof want,
        FILE_NAME
        ":%d: grad: the value of " FILE_NAME
        ":%d is a constant here: it was computed from a variable in a scope that has ended, or "
        "in another context\n  hint: use ct_stop_gradient if this is intended; if not, take "
        "the gradient where the value is computed\n",
        grad_line, value_line);
    assert_string_equal(record_log, value_line ? want : "");
    record_forget();
}
static const int kept_line = __LINE__ + 3;
static ct_tensor kept_square(ct_tensor x) {
    CT_SCOPE;
    return ct_keep(ct_mul(x, x));
}

static void what_left_its_scope_is_a_leaf(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 3), x = line_of(2), k = kept_square(w), g;
    assert_true(slope(ct_sum(k), k) == 1); // with respect to the leaf
    assert_true(slope(ct_sum(ct_add(ct_stop_gradient(k), w)), w) == 1);
    assert_true(slope(ct_sum(ct_add(ct_floor(k), w)), w) == 1);
    assert_true(slope(ct_sum(ct_mul(kept_square(x), w)), w) == 1); // from no variable
    assert_true(slope(ct_sum(ct_mul(kept_square(ct_stop_gradient(w)), w)), w) == 9);
    ct_tensor loss = ct_sum(ct_mul(kept_square(k), w));
    assert_hint(0, 0);
    ct_grad(loss, &w, 1, &g);
    assert_hint(__LINE__ - 1, kept_line);
    assert_true(at(g, 0) == 81 && slope(loss, w) == 81);
    assert_hint(0, 0);
    ct_grad(ct_sum(k), &w, 1, &g);
    assert_false(ct_eval(&g, 1));
    char want[512];
    snprintf(want, sizeof want,
             FILE_NAME
             ":%d: grad: the loss does not depend on variable \"w\", operand 1, (2,) f32\n"
             "  hint: use it in the loss, or leave it out: of the list of ct_grad, of the "
             "parameter set of an optimizer",
             __LINE__ - 8);
    assert_error(CT_E_GRAD, want);
    ct_params_free(set);
}

static void a_value_of_another_context_is_a_leaf(void **state) {
    ct_ctx *mine = *state, *other = ct_ctx_new();
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 3), g;
    assert_true(ct_eval(NULL, 0));
    ct_ctx_use(other);
    assert_true(ct_set_device("ref"));
    const int line = __LINE__ + 1;
    ct_tensor y = ct_mul(w, w);
    assert_true(ct_eval(&y, 1));
    ct_ctx_use(mine);
    ct_grad(ct_sum(ct_mul(y, w)), &w, 1, &g);
    assert_hint(__LINE__ - 1, line);
    assert_true(at(g, 0) == 9);
    ct_ctx_free(other);
    ct_params_free(set);
}

// Inside its scope a value has its history, kept or not.
static void a_kept_value_is_no_leaf_in_its_scope(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 3);
    CT_SCOPE;
    ct_tensor square = ct_keep(ct_mul(w, w)), copy = ct_keep(w); // a kept variable is a value
    for (int run = 0; run < 2; run++) {
        assert_true(slope(ct_sum(ct_mul(square, copy)), w) == 27);
        assert_true(slope(ct_sum(ct_mul(square, copy)), copy) == 9);
        assert_true(ct_eval(NULL, 0));
    }
    assert_hint(0, 0);
    ct_params_free(set);
}

// A loss that was read before it is differentiated gives the same gradient.
static void reading_the_loss_first_changes_no_gradient(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 3), g[2];
    for (int read = 0; read < 2; read++) {
        CT_SCOPE;
        ct_tensor h = ct_exp(ct_mul(w, ct_f(0.25)));
        if (read) assert_true(at(h, 0) > 2);
        ct_tensor loss = ct_sum(ct_mul(h, h));
        if (read) assert_true(ct_item(loss) > 0);
        ct_grad(loss, &w, 1, &g[read]);
        g[read] = ct_keep(g[read]);
    }
    assert_ok();
    assert_true(at(g[0], 0) == at(g[1], 0) && at(g[0], 0) > 0);
    ct_params_free(set);
}

// So does one that is read on a way without a slope: the gradient is zero, not an error.
static void reading_a_value_without_a_slope_changes_no_gradient(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 3);
    for (int read = 0; read < 2; read++) {
        CT_SCOPE;
        ct_tensor x = line_of(2), f = ct_floor(ct_mul(x, ct_f(1.5)));
        if (read) assert_true(at(f, 1) == 3);
        assert_true(slope(ct_sum(ct_mul(f, w)), x) == 0);
        assert_true(slope(ct_sum(ct_mul(f, w)), w) == 1);
    }
    assert_ok();
    ct_params_free(set);
}

// --------------------------------------------------------------------------------- failure and
// writes

static void an_assignment_of_a_poisoned_value_is_not_recorded(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 3);
    assert_true(ct_eval(NULL, 0));
    {
        CT_SCOPE;
        ct_assign(w, ct_add(w, line_of(3)));
    }
    assert_true(ct_failed());
    ct_error_clear();
    assert_true(at(w, 0) == 3);
    ct_params_free(set);
}

static void after_an_error_variables_keep_their_values(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 3);
    assert_true(ct_eval(NULL, 0));
    {
        CT_SCOPE;
        ct_assign(w, ct_add(w, ct_f(1)));
        ct_add(w, line_of(3)); // an error elsewhere
    }
    assert_true(ct_failed());
    ct_error_clear();
    assert_true(at(w, 0) == 3);
    ct_params_free(set);
}

static void one_context_at_a_time_assigns(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 3);
    assert_true(ct_eval(NULL, 0));
    ct_assign(w, ct_mul(w, ct_f(2)));
    ct_ctx *other = ct_ctx_new(), *mine = ct_ctx_use(other);
    assert_true(ct_set_device("ref"));
    assert_true(at(w, 0) == 3); // the version that ran
    ct_assign(w, line_of(2));
    char want[256];
    snprintf(want, sizeof want,
             FILE_NAME ":%d: assign: variable \"w\" has a pending assignment in another context",
             __LINE__ - 4);
    assert_error(CT_E_CONTEXT, want);
    ct_ctx_use(mine);
    ct_ctx_free(other);
    assert_true(at(w, 0) == 6);
    ct_params_free(set);
}

static ct_tensor item64(double value) { return ct_from(&value, CT_F64, CT_SCALAR); }
static ct_tensor variable64(ct_params *set, const char *name, double value) {
    ct_tensor w = ct_param(set, name, CT_F64, CT_SCALAR);
    CT_SCOPE;
    ct_assign(w, item64(value));
    return w;
}
static double slope_at_9(ct_tensor loss, ct_tensor of) {
    ct_tensor g;
    ct_grad_at(loss, &of, 1, &g, (ct_loc){"user.c", 9});
    return ct_item(g);
}

// A value that was read is a leaf, unless the gradient is with respect to something behind it: then
// it is computed again, which needs the versions that it was computed from.
static void a_gradient_behind_a_version_that_is_gone(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    for (int reads_loss = 0; reads_loss < 2; reads_loss++) {
        CT_SCOPE;
        ct_tensor w = reads_loss ? ct_params_find(set, "w") : variable64(set, "w", 2);
        if (reads_loss) ct_assign(w, item64(2));
        assert_true(ct_item_at(w, (ct_loc){"user.c", 3}) == 2);
        ct_tensor x = item64(5), y = ct_mul(ct_mul(w, w), x);
        assert_true(ct_item(y) == 20);
        ct_tensor l = ct_mul(y, y);
        if (reads_loss) assert_true(ct_item(l) == 400);
        ct_assign_at(w, item64(7), (ct_loc){"user.c", 7});
        assert_true(ct_item(w) == 7);
        l = ct_add(l, ct_add(ct_mul(y, item64(3)), x));
        assert_true(slope_at_9(l, y) == 43 && slope_at_9(ct_mul(ct_stop_gradient(y), x), x) == 20);
        for (int of_variable = 0; of_variable < 2; of_variable++) {
            assert_true(isnan(slope_at_9(l, of_variable ? w : x)));
            const char *want = "user.c:9: grad: the value needs variable \"w\" as it was read at "
                               "user.c:3, but it was assigned at user.c:7 and is gone\n"
                               "  hint: take the gradient before the assignment runs, or mark the "
                               "value as a constant by ct_stop_gradient";
            assert_error(CT_E_OVERWRITTEN, want);
        }
        ct_tensor wrt[] = {y, x}, g[2]; // behind y nothing is asked for
        ct_grad(l, wrt, 2, g);
        assert_true(ct_item(g[0]) == 43 && ct_item(g[1]) == 1);
    }
    ct_params_free(set);
}

// What needs a version that is gone, but was kept, may be assigned; it is nobody else's version.
static void a_kept_version_is_assigned(void **state) {
    (void)state;
    for (int own = 0; own < 2; own++) {
        ct_params *set = ct_params_new();
        CT_SCOPE;
        ct_tensor a = variable64(set, "a", 2), b = variable64(set, "b", 3), c = own ? a : b;
        assert_true(ct_item(b) == 3);
        ct_assign(a, ct_mul(b, item64(2)));
        ct_tensor kept = ct_keep(a);
        assert_true(ct_eval(NULL, 0));
        ct_assign(b, item64(10));
        assert_true(ct_item(b) == 10);
        ct_assign(c, kept);
        assert_true(slope_at_9(ct_mul(c, c), c) == 12);
        assert_true(ct_item(a) == 6 && ct_item(b) == (own ? 10 : 6) && ct_item(kept) == 6);
        ct_params_free(set);
    }
}

// A value that a plan keeps because an earlier one was asked for it again is as good as another
// once it is asked for.
static void a_value_that_was_read_stays(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = variable64(set, "w", 2);
    for (int i = 0; i < 3; i++) {
        CT_SCOPE;
        ct_assign(w, item64(2));
        assert_true(ct_item(w) == 2);
        ct_tensor kept, t = ct_mul(w, item64(5));
        ct_metric("loss", ct_mul(t, t));
        assert_true(ct_eval(NULL, 0)); // computes t, and from the second time on keeps it
        if (i == 1) assert_true(ct_item(t) == 10);
        kept = i == 2 ? ct_keep(t) : t;
        assert_true(ct_item(ct_add(t, item64(1))) == 11);
        ct_assign(w, item64(3));
        assert_true(ct_item(w) == 3 && (!i || ct_item(kept) == 10));
    }
    ct_params_free(set);
}

// Of another dtype, too, what another variable holds is copied.
static void a_copy_of_another_dtype(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor a = ct_param(set, "a", CT_F32, CT_SCALAR), b = ct_param(set, "b", CT_F64, CT_SCALAR);
    {
        CT_SCOPE;
        ct_assign(a, ct_f(0.5));
    }
    for (int runs = 0; runs < 2; runs++) {
        CT_SCOPE;
        ct_assign(b, a);
        if (runs) assert_true(ct_item(b) == 0.5);
        ct_tensor l = ct_add(ct_square(b), ct_cast(ct_square(a), CT_F64));
        assert_true(slope_at_9(l, a) == 1 && slope_at_9(l, b) == 1 && ct_item(l) == 0.5);
    }
    ct_params_free(set);
}

static void a_pending_version_is_kept_twice(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    CT_SCOPE;
    ct_tensor w = variable64(set, "w", 1), kept[2], pinned[2];
    {
        CT_SCOPE;
        ct_assign(w, item64(4));
        for (int i = 0; i < 2; i++) kept[i] = ct_keep(w);
    }
    {
        CT_SCOPE;
        ct_assign(w, item64(5));
        for (int i = 0; i < 2; i++) pinned[i] = ct_pin(w);
    }
    ct_assign(w, item64(100));
    for (int i = 0; i < 2; i++) assert_true(ct_item(kept[i]) == 4 && ct_item(pinned[i]) == 5);
    ct_unpin(pinned[0]);
    assert_true(ct_item(w) == 100);
    ct_params_free(set);
}

// A bare number that is kept has all its digits.
static void a_bare_number_is_kept(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor kept, pinned;
    {
        CT_SCOPE;
        kept = ct_keep(ct_f(0.1));
        pinned = ct_pin(ct_f(0.2));
    }
    assert_true(ct_item(ct_add(item64(3), kept)) == 3 + 0.1);
    assert_true(ct_item(ct_mul(item64(3), pinned)) == 3 * 0.2);
    assert_true(ct_item(kept) == 0.1f);
    ct_unpin(pinned);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_gradient_behind_a_version_that_is_gone),
        TEST(a_kept_version_is_assigned),
        TEST(a_value_that_was_read_stays),
        TEST(a_copy_of_another_dtype),
        TEST(a_pending_version_is_kept_twice),
        TEST(a_bare_number_is_kept),
        TEST(a_record_is_used_again),
        TEST(each_of_many_names_is_found),
        TEST(a_parameter_is_a_leaf_that_a_step_assigns),
        TEST(the_plan_updates_in_place),
        TEST(a_read_binds_the_version_current_when_it_is_recorded),
        TEST(assignments_follow_all_reads_of_older_versions),
        TEST(a_variable_assigned_from_itself_moved_about),
        TEST(an_initial_value_is_the_first_assignment),
        TEST(an_assignment_casts_and_a_bare_number_becomes_as_strong_as_the_variable),
        TEST(shapes_of_assignments_must_fit),
        TEST(a_pending_node_whose_version_is_gone_is_spent),
        TEST(both_lines_of_a_spent_node),
        TEST(a_freed_set_leaves_pending_reads_spent),
        TEST(a_gradient_is_of_the_version_that_the_loss_reads),
        TEST(two_versions_under_a_gradient_are_an_error),
        TEST(two_versions_are_found_behind_values_that_were_read),
        TEST(variables_of_one_value_have_gradients_of_their_own),
        TEST(a_variable_assigned_another_is_a_copy),
        TEST(a_variable_is_read_that_was_assigned_another),
        TEST(a_gradient_of_a_version_that_was_replaced),
        TEST(reading_what_is_pending_makes_no_second_value),
        TEST(a_gradient_of_what_the_loss_does_not_read_is_an_error),
        TEST(what_left_its_scope_is_a_leaf),
        TEST(a_value_of_another_context_is_a_leaf),
        TEST(a_kept_value_is_no_leaf_in_its_scope),
        TEST(reading_the_loss_first_changes_no_gradient),
        TEST(reading_a_value_without_a_slope_changes_no_gradient),
        TEST(an_assignment_of_a_poisoned_value_is_not_recorded),
        TEST(after_an_error_variables_keep_their_values),
        TEST(one_context_at_a_time_assigns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
