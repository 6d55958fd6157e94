// "What runs, and when" in docs/design: roots, scopes, cuts. A test for each sentence.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/record.h"

#define TEST(name) cmocka_unit_test_setup_teardown(name, record_begin, record_end)

// ---------------------------------------------------------------------------------------- roots

static void an_assignment_is_a_root(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = ct_param(set, "w", CT_F32, CT_DIMS(2));
    uint64_t run = plans_run();
    {
        CT_SCOPE;
        ct_assign(w, ct_mul(line_of(2), ct_f(3)));
        assert_int_equal(plans_run(), run);
    }
    assert_int_equal(plans_run(), run + 1);
    assert_true(at(w, 0) == 3 && at(w, 1) == 6);
    assert_int_equal(plans_run(), run + 1); // the value is there
    ct_params_free(set);
}

static void a_kept_tensor_is_a_root(void **state) {
    (void)state;
    ct_tensor kept;
    uint64_t run = plans_run();
    {
        CT_SCOPE;
        kept = ct_keep(ct_add(line_of(2), ct_f(1)));
    }
    assert_int_equal(plans_run(), run + 1);
    assert_true(at(kept, 0) == 2 && at(kept, 1) == 3);
    assert_int_equal(plans_run(), run + 1);
}

static void a_metric_is_a_root_whether_or_not_it_is_fetched(void **state) {
    (void)state;
    uint64_t run = plans_run(), made = plans_made();
    for (int step = 0; step < 3; step++) {
        CT_SCOPE;
        ct_metric("loss", ct_sum(ct_mul(line_of(3), ct_f(step))));
    }
    assert_int_equal(plans_run(), run + 3);
    assert_int_equal(plans_made(), made + 1);
    assert_true(ct_metric_value("loss") == 12);
    assert_true(isnan(ct_metric_value("other")));
    assert_true(isnan(ct_metric_value(NULL)));
    assert_ok();
}

// Inside its scope, too, a metric has the value that was reported last: asking for it is a read.
static void a_metric_that_is_pending_is_read(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 1), old;
    for (int step = 0; step < 3; step++) {
        CT_SCOPE;
        ct_metric("loss", ct_sum(w));
        ct_assign(w, ct_add(w, ct_f(1)));
        uint64_t run = plans_run();
        assert_true(ct_metric_value("loss") == 2 * (step + 1));
        assert_int_equal(plans_run(), run + 1);
        assert_true(ct_metric_value("loss") == 2 * (step + 1)); // it is there
        old = ct_mul(w, ct_f(1));
        ct_metric("another", ct_sum(old));
        assert_true(ct_metric_value("loss") == 2 * (step + 1)); // none of this name is pending
        assert_int_equal(plans_run(), run + 1);
        ct_metric("loss", ct_sum(old));
        ct_metric("loss", ct_sum(ct_mul(old, old))); // the last one counts
        assert_true(ct_metric_value("loss") == 2 * (step + 2) * (step + 2));
    }
    assert_true(ct_metric_value("another") == 8 && ct_metric_value("loss") == 32);
    ct_params_free(set);
}

static void asks_for_a_metric(const ct_tensor *in, ct_tensor *out, void *user) {
    *(double *)user = ct_metric_value("loss");
    out[0] = in[0];
}
static void a_metric_that_cannot_run_is_nan(void **state) {
    (void)state;
    double value = 0;
    CT_SCOPE;
    ct_tensor x = line_of(2), y;
    const int line = __LINE__ + 1;
    ct_metric("loss", ct_sum(x));
    ct_call(asks_for_a_metric, &value, &x, 1, &y, 1);
    char want[256];
    snprintf(
        want, sizeof want,
        "tests/unit/test_semantics_roots.c:%d: metric: a value is read inside a traced function\n"
        "  hint: return it as a result of the function, and read it outside",
        line);
    assert_true(isnan(value));
    assert_error(CT_E_TRACE, want);
    ct_metric("loss", ct_sum(line_of(2)));
    ct_add(line_of(2), line_of(3));
    assert_true(isnan(ct_metric_value("loss")));
    assert_int_equal(ct_error_code(), CT_E_SHAPE);
    ct_error_clear();
}

static void what_is_read_is_a_root(void **state) {
    (void)state;
    CT_SCOPE;
    uint64_t run = plans_run();
    ct_tensor sum = ct_sum(line_of(4));
    assert_int_equal(plans_run(), run);
    assert_true(ct_item(sum) == 10);
    assert_int_equal(plans_run(), run + 1);
    assert_true(ct_item(sum) == 10);
    assert_int_equal(plans_run(), run + 1);
}

static void a_pin_is_a_root_and_outlives_all_scopes(void **state) {
    (void)state;
    ct_tensor pinned;
    uint64_t run = plans_run();
    {
        CT_SCOPE;
        {
            CT_SCOPE;
            pinned = ct_pin(ct_add(line_of(2), ct_f(5)));
        }
        assert_int_equal(plans_run(), run + 1);
        assert_true(at(pinned, 1) == 7);
    }
    assert_true(ct_ok(pinned));
    assert_true(at(pinned, 0) == 6);
    ct_unpin(pinned);
    assert_false(ct_ok(pinned));
}

static void what_no_root_needs_does_not_run(void **state) {
    (void)state;
    uint64_t run = plans_run();
    {
        CT_SCOPE;
        ct_add(line_of(2), ct_f(1));
    }
    assert_int_equal(plans_run(), run);
}

static void the_end_of_a_scope_runs_all_roots_of_all_scopes_as_one_plan(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor v = ct_param(set, "v", CT_F32, CT_DIMS(2));
    ct_tensor outer, inner;
    uint64_t run = plans_run();
    {
        CT_SCOPE;
        outer = ct_keep(ct_add(line_of(2), ct_f(1)));
        ct_metric("m", ct_sum(outer));
        {
            CT_SCOPE;
            inner = ct_keep(ct_mul(outer, ct_f(2)));
            ct_assign(v, inner);
            assert_int_equal(plans_run(), run);
        }
        assert_int_equal(plans_run(), run + 1);
        assert_true(at(inner, 1) == 6 && at(outer, 1) == 3 && at(v, 1) == 6);
        assert_true(ct_metric_value("m") == 5);
        assert_int_equal(plans_run(), run + 1);
        inner = ct_keep(inner);
    }
    assert_int_equal(plans_run(), run + 1); // nothing was pending
    assert_true(at(inner, 0) == 4 && at(outer, 0) == 2);
    ct_params_free(set);
}

static void a_read_runs_all_pending_roots_as_one_plan(void **state) {
    (void)state;
    CT_SCOPE;
    ct_params *set = ct_params_new();
    ct_tensor v = ct_param(set, "v", CT_F32, CT_DIMS(2));
    ct_tensor kept = ct_keep(ct_add(line_of(2), ct_f(1)));
    ct_assign(v, ct_neg(kept));
    ct_metric("m", ct_sum(kept));
    uint64_t run = plans_run();
    assert_true(ct_item(ct_sum(ct_mul(kept, kept))) == 13);
    assert_int_equal(plans_run(), run + 1);
    assert_true(ct_metric_value("m") == 5 && at(v, 0) == -2 && at(kept, 1) == 3);
    assert_int_equal(plans_run(), run + 1);
    ct_params_free(set);
}

static void reading_a_value_that_is_there_runs_what_is_pending(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = line_of(2);
    ct_metric("m", ct_sum(x));
    assert_true(at(x, 0) == 1);
    assert_true(ct_metric_value("m") == 3);
}

static ct_tensor only_records(ct_tensor x) { return ct_mul(ct_add(x, ct_f(1)), ct_f(2)); }

static void a_function_that_only_records_needs_no_scope(void **state) {
    (void)state;
    uint64_t run = plans_run();
    ct_tensor y;
    {
        CT_SCOPE;
        y = ct_keep(only_records(only_records(line_of(2))));
        assert_int_equal(plans_run(), run);
    }
    assert_int_equal(plans_run(), run + 1);
    assert_true(at(y, 0) == 10);
}

static void one_plan_for_several_reads(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor two[] = {ct_sum(line_of(3)), ct_max(line_of(3))};
    uint64_t run = plans_run();
    assert_true(ct_eval(two, 2));
    assert_int_equal(plans_run(), run + 1);
    assert_true(ct_item(two[0]) == 6 && ct_item(two[1]) == 3);
    assert_int_equal(plans_run(), run + 1);
}

// ----------------------------------------------------------------------------------------- keeping

static void a_kept_tensor_goes_one_scope_out_each_time(void **state) {
    (void)state;
    ct_tensor t;
    {
        CT_SCOPE;
        {
            CT_SCOPE;
            {
                CT_SCOPE;
                t = ct_keep(ct_add(line_of(2), ct_f(1)));
            }
            assert_true(at(t, 0) == 2);
            assert_int_equal(ct_keep(t).bits, t.bits); // the same handle
        }
        assert_true(at(t, 1) == 3);
    }
    assert_false(ct_ok(t)); // not kept a third time
}

static void all_outputs_of_a_kept_node_stay(void **state) {
    (void)state;
    ct_topk_out top;
    {
        CT_SCOPE;
        top = ct_topk(line_of(4), 2);
        ct_keep(top.values);
    }
    assert_true(at(top.values, 0) == 4 && at(top.values, 1) == 3);
    assert_int_equal(((const int32_t *)ct_data(top.indices))[0], 3);
}

static void a_kept_variable_is_a_copy(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 1), before;
    {
        CT_SCOPE;
        before = ct_keep(w);
        ct_assign(w, ct_add(w, ct_f(1)));
    }
    assert_true(at(before, 0) == 1 && at(w, 0) == 2);
    {
        CT_SCOPE;
        ct_tensor again = ct_keep(w);
        assert_true(ct_eval(&again, 1));
        ct_assign(w, ct_add(w, ct_f(1)));
        ct_metric("w", ct_sum(w));
        assert_true(at(w, 0) == 3);
        assert_true(ct_item(ct_sum(ct_add(again, before))) == 6); // still usable, not spent
    }
    assert_ok();
    ct_params_free(set);
}

static void a_kept_scalar_stays_a_number(void **state) {
    (void)state;
    ct_tensor s;
    {
        CT_SCOPE;
        s = ct_keep(ct_f(2.5));
    }
    assert_true(ct_item(s) == 2.5);
}

// A bare number that was computed and kept stays as weak as it was said to be when recorded.
static void a_kept_bare_number_keeps_its_weakness(void **state) {
    (void)state;
    ct_tensor two;
    {
        CT_SCOPE;
        two = ct_keep(ct_mul(ct_i(1), ct_i(2)));
    }
    CT_SCOPE;
    uint8_t bytes[3] = {1, 2, 3};
    ct_tensor sum = ct_add(ct_from(bytes, CT_U8, CT_DIMS(3)), two);
    assert_int_equal(ct_dtype_of(sum), CT_U8);
    const uint8_t *got = ct_data(sum);
    assert_ok();
    assert_true(got[0] == 3 && got[1] == 4 && got[2] == 5);
}

static void dropping_a_pending_value_drops_the_handle_alone(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = ct_param(set, "w", CT_F32, CT_DIMS(2));
    {
        CT_SCOPE;
        ct_tensor x = line_of(2), y = line_of(2);
        ct_assign(w, x);
        ct_metric("m", ct_sum(y));
        ct_drop(x); // a root holds it
        ct_drop(y); // a recorded node holds it
        assert_false(ct_ok(x));
        ct_tensor other = vec(2, (double[]){7, 8}); // must not take the place of x
        assert_true(at(other, 0) == 7);
    }
    assert_true(at(w, 0) == 1 && at(w, 1) == 2);
    assert_true(ct_metric_value("m") == 3);
    ct_params_free(set);
}

// -------------------------------------------------------------------------------------------- cuts

static double with_cut(int *made_at) {
    CT_SCOPE;
    *made_at = __LINE__ + 1;
    ct_tensor h = ct_exp(line_of(4));
    double first = ct_item(ct_sum(h));
    ct_tensor twice = ct_mul(h, ct_f(2));
    return first + ct_item(ct_max(twice));
}

// A root that is itself what an earlier read computed is named by what it is.
static void roots_that_are_computed_again_are_explained(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = ct_param(set, "w", CT_F32, CT_DIMS(4));
    setenv("COTAN_EXPLAIN", "1", 1);
    for (int root = 0; root < 2; root++) {
        int made, line;
        {
            CT_SCOPE;
            made = __LINE__ + 1;
            ct_tensor h = root ? ct_exp(line_of(4)) : ct_sum(line_of(4));
            assert_true(ct_item(root ? ct_sum(h) : ct_exp(h)) > 0);
            record_forget();
            line = __LINE__ + 1;
            root ? ct_assign(w, h) : ct_metric("h", h);
        }
        char want[256];
        snprintf(want, sizeof want,
                 "tests/unit/test_semantics_roots.c:%d: %s recomputes %s of "
                 "tests/unit/test_semantics_roots.c:%d, which an earlier read",
                 line, root ? "assign" : "metric", root ? "exp" : "sum", made);
        if (!strstr(record_log, want)) fail_msg("want %s, got %s", want, record_log);
    }
    unsetenv("COTAN_EXPLAIN");
    ct_params_free(set);
}

static void a_cut_recomputes_and_is_explained_and_kept_from_then_on(void **state) {
    (void)state;
    int made_at;
    setenv("COTAN_EXPLAIN", "1", 1);
    uint64_t launches = ct_get_stats().launches;
    double first = with_cut(&made_at);
    uint64_t before = ct_get_stats().launches - launches;
    char want[256];
    snprintf(want, sizeof want,
             "tests/unit/test_semantics_roots.c:%d: mul recomputes exp of "
             "tests/unit/test_semantics_roots.c:%d, which an earlier read had computed and "
             "not stored; it is stored from now on\n",
             made_at + 2, made_at);
    if (!strstr(record_log, want)) fail_msg("want %sgot %s", want, record_log);
    record_forget();
    uint64_t made = plans_made();
    assert_true(with_cut(&made_at) == first); // two plans more: exp is a root, then a leaf
    assert_int_equal(plans_made(), made + 2);
    assert_null(strstr(record_log, "recomputes"));
    launches = ct_get_stats().launches;
    assert_true(with_cut(&made_at) == first);
    assert_int_equal(plans_made(), made + 2);
    assert_true(ct_get_stats().launches - launches <= before);
}

static void without_the_variable_nothing_is_said_of_a_cut(void **state) {
    (void)state;
    int made_at;
    double first = with_cut(&made_at);
    assert_true(with_cut(&made_at) == first);
    assert_string_equal(record_log, "");
}

// A second intermediate that is wanted again only later joins the first.
static void cuts_of_one_plan_add_up(void **state) {
    (void)state;
    double exps = 0, sines = 0;
    for (int i = 1; i <= 4; i++) exps += exp(i), sines += sin(exp(i));
    for (int step = 0; step < 6; step++) {
        CT_SCOPE;
        ct_tensor a = ct_exp(line_of(4)), b = ct_sin(a);
        assert_true(fabs(ct_item(ct_sum(b)) - sines) < 1e-4);
        double again = ct_item(ct_sum(ct_add(step < 2 ? a : b, ct_f(1))));
        assert_true(fabs(again - 4 - (step < 2 ? exps : sines)) < 1e-4);
    }
    uint64_t made = plans_made();
    record_forget();
    setenv("COTAN_EXPLAIN", "1", 1);
    CT_SCOPE;
    ct_tensor a = ct_exp(line_of(4)), b = ct_sin(a);
    assert_true(fabs(ct_item(ct_sum(b)) - sines) < 1e-4);
    uint64_t launches = ct_get_stats().launches;
    assert_true(fabs(ct_item(ct_sum(ct_add(b, ct_f(1)))) - 4 - sines) < 1e-4);
    assert_int_equal(plans_made(), made);
    assert_true(ct_get_stats().launches - launches <= 3); // add, sum, a copy: no sin
}

// Keeping more never makes an error go away.
static void a_cut_never_changes_what_is_spent(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 1);
    for (int step = 0; step < 4; step++) {
        CT_SCOPE;
        ct_tensor h = ct_exp(ct_mul(w, ct_f(2))); // not read itself
        assert_true(ct_item(ct_sum(h)) > 0);
        if (step < 3) {
            assert_true(ct_item(ct_max(h)) > 0); // from step 1 on, h is an extra root
        } else {
            ct_assign(w, ct_add(w, ct_f(1)));
            assert_true(at(w, 0) == 2); // runs the assignment
            assert_true(isnan(ct_item(ct_min(h))));
            assert_int_equal(ct_error_code(), CT_E_OVERWRITTEN);
            ct_error_clear();
        }
    }
    ct_params_free(set);
}

static void a_read_value_stays_though_its_version_is_gone(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 1);
    CT_SCOPE;
    ct_tensor h = ct_mul(w, ct_f(4));
    assert_true(at(h, 0) == 4);
    ct_assign(w, ct_add(w, ct_f(1)));
    assert_true(at(w, 0) == 2);
    assert_true(ct_item(ct_sum(h)) == 8); // h was read: it has its value
    ct_params_free(set);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(an_assignment_is_a_root),
        TEST(a_kept_tensor_is_a_root),
        TEST(a_metric_is_a_root_whether_or_not_it_is_fetched),
        TEST(a_metric_that_is_pending_is_read),
        TEST(a_metric_that_cannot_run_is_nan),
        TEST(what_is_read_is_a_root),
        TEST(a_pin_is_a_root_and_outlives_all_scopes),
        TEST(what_no_root_needs_does_not_run),
        TEST(the_end_of_a_scope_runs_all_roots_of_all_scopes_as_one_plan),
        TEST(a_read_runs_all_pending_roots_as_one_plan),
        TEST(reading_a_value_that_is_there_runs_what_is_pending),
        TEST(a_function_that_only_records_needs_no_scope),
        TEST(one_plan_for_several_reads),
        TEST(a_kept_tensor_goes_one_scope_out_each_time),
        TEST(all_outputs_of_a_kept_node_stay),
        TEST(a_kept_variable_is_a_copy),
        TEST(a_kept_scalar_stays_a_number),
        TEST(a_kept_bare_number_keeps_its_weakness),
        TEST(dropping_a_pending_value_drops_the_handle_alone),
        TEST(roots_that_are_computed_again_are_explained),
        TEST(a_cut_recomputes_and_is_explained_and_kept_from_then_on),
        TEST(without_the_variable_nothing_is_said_of_a_cut),
        TEST(cuts_of_one_plan_add_up),
        TEST(a_cut_never_changes_what_is_spent),
        TEST(a_read_value_stays_though_its_version_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
