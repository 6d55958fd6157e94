// A scatter that is assigned to the variable it changes writes what is picked alone; whoever still needs the old version
// has it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "cotan/nn.h"

enum { ROWS = 6, WIDE = 3, PICKS = 4 };

static const int32_t at[PICKS] = {4, 1, 4, 0}; // 4 twice: the later one stays, or both are added
static const float rows[PICKS][WIDE] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}, {-1, -2, -3}};

static ct_params *set;
static ct_tensor variable(void) {
    float first[ROWS][WIDE];
    for (int i = 0; i < ROWS * WIDE; i++) (&first[0][0])[i] = (float)(10 + i);
    set = ct_params_new();
    ct_tensor v = ct_param(set, "v", CT_F32, CT_DIMS(ROWS, WIDE));
    CT_SCOPE;
    ct_assign(v, ct_from(first, CT_F32, CT_DIMS(ROWS, WIDE)));
    return v;
}

static ct_tensor positions(void) { return ct_from(at, CT_I32, CT_DIMS(PICKS)); }
static ct_tensor updates(void) { return ct_from(rows, CT_F32, CT_DIMS(PICKS, WIDE)); }

static void what_is(float now[ROWS][WIDE], bool adds) {
    for (int i = 0; i < ROWS * WIDE; i++) (&now[0][0])[i] = (float)(10 + i);
    for (int k = 0; k < PICKS; k++)
        for (int c = 0; c < WIDE; c++)
            now[at[k]][c] = adds ? now[at[k]][c] + rows[k][c] : rows[k][c];
}

static void check(ct_tensor v, const float want[ROWS][WIDE]) {
    const float *got = ct_data(v);
    assert_non_null(got);
    assert_memory_equal(got, want, sizeof(float[ROWS][WIDE]));
    ct_params_free(set);
    assert_false(ct_failed());
}

static void picks_are_written(void **state) {
    (void)state;
    for (int adds = 0; adds < 2; adds++) {
        CT_SCOPE;
        ct_tensor v = variable();
        float want[ROWS][WIDE];
        what_is(want, adds);
        {
            CT_SCOPE;
            ct_assign(v, adds ? ct_scatter_add(.x = v, .indices = positions(), .updates = updates())
                              : ct_scatter(.x = v, .indices = positions(), .updates = updates()));
        }
        check(v, (const float(*)[WIDE])want);
    }
}

// What is written comes of the version that is overwritten.
static void updates_may_read_it(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor v = variable();
    float want[ROWS][WIDE];
    what_is(want, false);
    for (int k = 0; k < PICKS; k++)
        for (int c = 0; c < WIDE; c++) want[at[k]][c] = 2 * (float)(10 + (ROWS - 1 - k) * WIDE + c);
    {
        CT_SCOPE;
        ct_tensor last = ct_slice(v, .axes = CT_AXES(0), .start = CT_INTS(ROWS - PICKS)); // (4, 3)
        ct_tensor twice = ct_mul(ct_flip(last, CT_AXES(0)), ct_f(2));
        ct_assign(v, ct_scatter(.x = v, .indices = positions(), .updates = twice));
    }
    check(v, (const float(*)[WIDE])want);
}

static void updates_may_be_it(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor v = variable();
    float want[ROWS][WIDE];
    what_is(want, false);
    for (int k = 0; k < PICKS; k++)
        for (int c = 0; c < WIDE; c++) want[at[k]][c] = (float)(10 + (ROWS - PICKS + k) * WIDE + c);
    {
        CT_SCOPE;
        ct_tensor last = ct_slice(v, .axes = CT_AXES(0), .start = CT_INTS(ROWS - PICKS)); // (4, 3)
        ct_assign(v, ct_scatter(.x = v, .indices = positions(), .updates = last));
    }
    check(v, (const float(*)[WIDE])want);
}

// Rows that are put elsewhere in their variable are stored in between; all of it is not.
static void rows_move_within_it(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor v = variable();
    static const int32_t from[PICKS] = {5, 4, 3, 1};
    float want[ROWS][WIDE];
    what_is(want, false);
    for (int k = 0; k < PICKS; k++)
        for (int c = 0; c < WIDE; c++) want[at[k]][c] = (float)(10 + from[k] * WIDE + c);
    {
        CT_SCOPE;
        ct_tensor moved = ct_gather(.x = v, .indices = ct_from(from, CT_I32, CT_DIMS(PICKS)));
        ct_assign(v, ct_scatter(.x = v, .indices = positions(), .updates = moved));
    }
    const ct_plan_cost *plan = ct_latest_plan();
    assert_non_null(plan);
    assert_int_equal(plan->n_launches, 2);
    for (size_t i = 0; i < plan->n_launches; i++)
        assert_string_not_equal(plan->launches[i].kernel, "copy");
    check(v, (const float(*)[WIDE])want);
}

static void the_old_version_is_read_before(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor v = variable();
    float want[ROWS][WIDE];
    what_is(want, false);
    ct_tensor sums[2] = {ct_sum(v, .axes = CT_AXES(0, 1))}; // of the old version and the new one
    ct_assign(v, ct_scatter(.x = v, .indices = positions(), .updates = updates()));
    sums[1] = ct_sum(v, .axes = CT_AXES(0, 1));
    assert_true(ct_eval(sums, 2));
    double sum = 0;
    for (int i = 0; i < ROWS * WIDE; i++) sum += (double)(&want[0][0])[i];
    assert_true(ct_item(sums[1]) == sum);
    assert_true(ct_item(sums[0]) == ROWS * WIDE * (10 + (ROWS * WIDE - 1) / 2.0));
    check(v, (const float(*)[WIDE])want);
}

// A pointer to its elements is valid until the scope ends, whatever is assigned meanwhile.
static void who_holds_the_old_version_keeps_it(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor v = variable();
    float want[ROWS][WIDE];
    what_is(want, false);
    const float *old = ct_data(v);
    assert_non_null(old);
    {
        CT_SCOPE;
        ct_assign(v, ct_scatter(.x = v, .indices = positions(), .updates = updates()));
    }
    for (int i = 0; i < ROWS * WIDE; i++) assert_true(old[i] == (float)(10 + i));
    check(v, (const float(*)[WIDE])want);
}

static void count_and_add(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_scatter_add(.x = in[0], .indices = positions(), .updates = updates());
}

static void a_loop_carries_it(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor v = variable(), last;
    float want[ROWS][WIDE];
    what_is(want, true);
    for (int i = 0; i < ROWS * WIDE; i++)
        (&want[0][0])[i] += 2 * ((&want[0][0])[i] - (float)(10 + i));
    {
        CT_SCOPE;
        ct_scan(&last, NULL, .body = count_and_add, .carry = &v, .n_carry = 1, .length = 3);
        ct_assign(v, last);
    }
    check(v, (const float(*)[WIDE])want);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(picks_are_written),
        cmocka_unit_test(updates_may_read_it),
        cmocka_unit_test(updates_may_be_it),
        cmocka_unit_test(rows_move_within_it),
        cmocka_unit_test(the_old_version_is_read_before),
        cmocka_unit_test(who_holds_the_old_version_keeps_it),
        cmocka_unit_test(a_loop_carries_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
