// A loop whose turns have no scope of their own is hinted at, once, with its line; no other is.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <cmocka.h>

#include "support/record.h"

#define TEST(name) cmocka_unit_test_setup_teardown(name, record_begin, record_end)
#define FILE_NAME "tests/unit/test_hints.c"

static void reads_in_one_scope(void **state) {
    (void)state;
    int made = 0, read = 0;
    char want[400];
    CT_SCOPE;
    ct_tensor x = line_of(2);
    for (int turn = 1; turn <= 600; turn++) {
        made = __LINE__ + 1;
        ct_tensor y = ct_sum(ct_mul(x, ct_f(turn)));
        read = __LINE__ + 1;
        assert_true(ct_item(y) == 3 * turn);
        if (turn == 255) assert_string_equal(record_log, "");
    }
    snprintf(want, sizeof want,
             FILE_NAME
             ":%d: nodes recorded at " FILE_NAME
             ":%d pile up, 256 reads ran something in one scope\n"
             "  hint: put CT_SCOPE; into the loop: what an iteration records is freed at its end\n",
             read, made);
    assert_string_equal(record_log, want);
    {
        CT_SCOPE; // another loop of this context
        for (int turn = 0; turn < 300; turn++) assert_true(ct_item(ct_sum(x)) == 3);
    }
    assert_string_equal(record_log, want);
}

// Steps of one variable in one scope, of which every `read_each`th is read (0: none).
static void steps_without_scopes(int read_each, int hinted_at) {
    int line = 0;
    char want[400];
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 1);
    assert_true(ct_eval(NULL, 0));
    record_forget();
    for (int turn = 1; turn <= 600; turn++) {
        line = __LINE__ + 1;
        ct_assign(w, ct_add(w, ct_f(1)));
        if (turn == hinted_at - 1) assert_string_equal(record_log, "");
        if (turn == hinted_at) assert_string_not_equal(record_log, "");
        if (read_each && turn % read_each == 0) assert_true(ct_item(ct_sum(w)) > turn);
    }
    snprintf(want, sizeof want,
             FILE_NAME
             ":%d: nodes recorded at " FILE_NAME ":%d pile up, 256 assignments of variable \"w\" "
             "in one scope were replaced before they ran\n"
             "  hint: put CT_SCOPE; into the loop: what an iteration records is freed at its end\n",
             line, line);
    assert_string_equal(record_log, want);
    ct_params_free(set);
}
static void assignments_that_never_run(void **state) {
    (void)state;
    steps_without_scopes(0, 257);
}
static void assignments_that_run_now_and_then(void **state) {
    (void)state;
    steps_without_scopes(100, 259); // the first one behind a read replaces none
}

static void loops_with_scopes_are_let_alone(void **state) {
    (void)state;
    ct_params *set = ct_params_new();
    ct_tensor w = set_var(set, "w", 1);
    ct_tensor kept = line_of(2);
    for (int turn = 0; turn < 600; turn++) {
        ct_tensor old = kept;
        {
            CT_SCOPE;
            ct_assign(w, ct_add(w, ct_f(1)));
            ct_assign(w, ct_add(w, ct_f(1)));
            kept = ct_keep(ct_add(kept, w));
            assert_true(ct_item(ct_sum(w)) > 0);
        }
        ct_drop(old);
        assert_non_null(ct_data(kept)); // has a value: nothing runs
    }
    assert_string_equal(record_log, "");
    ct_tensor rate = set_var(set, "rate", 1); // set outside of the turn's scope, which runs it
    for (int turn = 0; turn < 600; turn++) {
        ct_assign(rate, ct_full(ct_f(turn), CT_DIMS(1)));
        CT_SCOPE;
        ct_assign(w, ct_mul(w, rate));
    }
    assert_string_equal(record_log, "");
    ct_params_free(set);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(reads_in_one_scope),
        TEST(assignments_that_never_run),
        TEST(assignments_that_run_now_and_then),
        TEST(loops_with_scopes_are_let_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
