// Steps in parts: the bits are those of the mean of the parts' gradients, added up in order.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "cotan/cotan.h"
#include "cotan/optim.h"

enum { ROWS = 12, IN = 5, PARTS = 3, STEPS = 4, PART_ROWS = ROWS / PARTS };

typedef struct {
    ct_params *params;
    ct_tensor w, b; // (IN,), ()
    ct_optim *optim;
} model;

static float data[ROWS][IN], wanted[ROWS];

static model make(double clip) {
    model m = {.params = ct_params_new()};
    float first[IN];
    for (int i = 0; i < IN; i++) first[i] = 0.25f * (float)i - 0.4f;
    for (int r = 0; r < ROWS; r++) {
        wanted[r] = (float)(r * r % 7) - 3;
        for (int i = 0; i < IN; i++) data[r][i] = (float)((r * 13 + i * 7) % 11) / 3 - 1.5f;
    }
    m.w = ct_param(m.params, "w", CT_F32, CT_DIMS(IN));
    m.b = ct_param(m.params, "b", CT_F32, CT_SCALAR);
    {
        CT_SCOPE;
        ct_assign(m.w, ct_from(first, CT_F32, CT_DIMS(IN)));
        ct_assign(m.b, ct_f(0.1));
    }
    m.optim = ct_adamw(m.params, .lr = 0.05, .clip = clip);
    assert_string_equal(ct_error_text(), "");
    return m;
}
static void forget(model *m) {
    ct_optim_free(m->optim);
    ct_params_free(m->params);
}

// The mean square over n rows from `row` on.
static ct_tensor loss_of(const model *m, int row, int n) {
    ct_tensor x = ct_from(data[row], CT_F32, CT_DIMS(n, IN));             // (n, IN)
    ct_tensor y = ct_from(&wanted[row], CT_F32, CT_DIMS(n));              // (n,)
    ct_tensor products = ct_mul(x, m->w);                                 // (n, IN)
    ct_tensor guess = ct_add(ct_sum(products, .axes = CT_AXES(1)), m->b); // (n,)
    return ct_mean(ct_square(ct_sub(guess, y)));                          // ()
}

static void step_in_parts(const model *m) {
    for (int k = 0; k < PARTS; k++) {
        CT_SCOPE;
        ct_tensor loss = loss_of(m, k * PART_ROWS, PART_ROWS);
        if (k + 1 < PARTS)
            ct_optim_accumulate(m->optim, loss);
        else
            ct_optim_step(m->optim, loss);
    }
}

// ((g1 + g2) + g3) / 3 of the parts, in f32.
static void mean_gradient(const model *m, float w[IN], float *b) {
    float sum[IN + 1] = {0};
    for (int k = 0; k < PARTS; k++) {
        CT_SCOPE;
        const ct_tensor wrt[] = {m->w, m->b};
        ct_tensor g[2];
        ct_grad(loss_of(m, k * PART_ROWS, PART_ROWS), wrt, 2, g);
        const float *gw = ct_data(g[0]), *gb = ct_data(g[1]);
        assert_true(gw && gb);
        for (int i = 0; i < IN; i++) sum[i] += gw[i];
        sum[IN] += *gb;
    }
    for (int i = 0; i < IN; i++) w[i] = sum[i] / PARTS;
    *b = sum[IN] / PARTS;
}

// A loss with just this gradient.
static void step_with(const model *m, const float w[IN], float b) {
    CT_SCOPE;
    ct_tensor slope = ct_from(w, CT_F32, CT_DIMS(IN));
    ct_optim_step(m->optim, ct_add(ct_sum(ct_mul(m->w, slope)), ct_mul(m->b, ct_f(b))));
}

static void equal(const model *m, const model *n, double tolerance) {
    CT_SCOPE;
    const float *a = ct_data(m->w), *b = ct_data(n->w);
    assert_true(a && b);
    for (int i = 0; i < IN; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= tolerance))
            fail_msg("w[%d]: %.9g and %.9g", i, (double)a[i], (double)b[i]);
    assert_true(fabs(ct_item(m->b) - ct_item(n->b)) <= tolerance);
}

// clip 0.5 is less than any norm here: it applies to the mean, or the bits were others.
static void the_step_is_that_of_the_mean_gradient(void **state) {
    (void)state;
    for (int clips = 0; clips < 2; clips++) {
        model m = make(clips ? 0.5 : 0), n = make(clips ? 0.5 : 0), whole = make(clips ? 0.5 : 0);
        for (int s = 0; s < STEPS; s++) {
            float w[IN], b;
            mean_gradient(&m, w, &b);
            step_in_parts(&m);
            double norm = ct_metric_value("grad_norm");
            step_with(&n, w, b);
            assert_true(ct_metric_value("grad_norm") == norm);
            equal(&m, &n, 0);
            {
                CT_SCOPE;
                ct_optim_step(whole.optim, loss_of(&whole, 0, ROWS));
            }
            equal(&m, &whole, 2e-6); // the mean over all rows, but for rounding
            assert_int_equal(ct_optim_step_count(m.optim), s + 1);
        }
        assert_string_equal(ct_error_text(), "");
        forget(&m), forget(&n), forget(&whole);
    }
}

static void all_parts_are_one_plan(void **state) {
    (void)state;
    model m = make(1);
    uint64_t made = ct_get_stats().plans_made;
    step_in_parts(&m);
    assert_int_equal(ct_get_stats().plans_made - made, 3); // the first part, a part, the step
    for (int s = 0; s < STEPS; s++) step_in_parts(&m);
    assert_int_equal(ct_get_stats().plans_made - made, 3);
    assert_string_equal(ct_error_text(), "");
    forget(&m);
}

static void a_part_that_failed_is_none(void **state) {
    (void)state;
    model m = make(1), n = make(1);
    for (int s = 0; s < 2; s++) {
        for (int k = 0; k < PARTS; k++) {
            if (k == 1) {
                CT_SCOPE;
                ct_optim_accumulate(m.optim, loss_of(&m, 0, PART_ROWS));
                (void)ct_add(m.w, ct_zeros(CT_F32, CT_DIMS(4))); // the plan is given up
            }
            assert_true(ct_failed() == (k == 1));
            ct_error_clear();
            CT_SCOPE;
            ct_tensor loss = loss_of(&m, k * PART_ROWS, PART_ROWS);
            if (k + 1 < PARTS)
                ct_optim_accumulate(m.optim, loss);
            else
                ct_optim_step(m.optim, loss);
        }
        step_in_parts(&n);
    }
    assert_string_equal(ct_error_text(), "");
    equal(&m, &n, 0);
    forget(&m), forget(&n);
}

// The first call of all, which makes the sums, stands in the middle of what its caller records: a
// running mean of what the loss reads is assigned before it.
static void the_first_part_runs_nothing_early(void **state) {
    (void)state;
    model m = make(1), n = make(1);
    ct_params *others = ct_params_new();
    ct_tensor mean = ct_param(others, "mean", CT_F32, CT_SCALAR);
    {
        CT_SCOPE;
        ct_assign(mean, ct_f(1));
    }
    for (int s = 0; s < 2; s++) {
        for (int k = 0; k < PARTS; k++) {
            CT_SCOPE;
            ct_tensor loss = ct_mul(loss_of(&m, k * PART_ROWS, PART_ROWS), mean);
            ct_assign(mean, ct_add(ct_mul(mean, ct_f(0.5)), ct_f(0.5)));
            uint64_t runs = ct_get_stats().plans_run;
            if (k + 1 < PARTS)
                ct_optim_accumulate(m.optim, loss);
            else
                ct_optim_step(m.optim, loss);
            assert_int_equal(ct_get_stats().plans_run, runs);
        }
        assert_string_equal(ct_error_text(), "");
        step_in_parts(&n);
    }
    equal(&m, &n, 0);
    forget(&m), forget(&n);
    ct_params_free(others);
}

// Where the plan with the sums' first zeros is given up, the next part or step needs none of it.
static void sums_that_were_given_up_are_made_again(void **state) {
    (void)state;
    for (int next_is_step = 0; next_is_step < 2; next_is_step++) {
        model m = make(1), n = make(1);
        {
            CT_SCOPE;
            ct_optim_accumulate(m.optim, loss_of(&m, 0, PART_ROWS));
            (void)ct_add(m.w, ct_zeros(CT_F32, CT_DIMS(4)));
        }
        assert_true(ct_failed());
        ct_error_clear();
        if (next_is_step) {
            CT_SCOPE;
            ct_optim_step(m.optim, loss_of(&m, 0, ROWS));
            ct_optim_step(n.optim, loss_of(&n, 0, ROWS));
        } else {
            step_in_parts(&m), step_in_parts(&n);
        }
        assert_string_equal(ct_error_text(), "");
        equal(&m, &n, 0);
        forget(&m), forget(&n);
    }
}

static void parts_are_forgotten_when_asked(void **state) {
    (void)state;
    model m = make(1), n = make(1);
    assert_true(ct_optim_clear_accumulated(m.optim)); // of an optimizer that had none
    {
        CT_SCOPE;
        ct_optim_accumulate(m.optim, ct_mul(loss_of(&m, 0, 2), ct_f(NAN)));
    }
    assert_true(ct_optim_clear_accumulated(m.optim));
    step_in_parts(&m), step_in_parts(&n);
    assert_string_equal(ct_error_text(), "");
    equal(&m, &n, 0);
    assert_false(ct_optim_clear_accumulated_at(NULL, (ct_loc){"main.c", 3}));
    assert_string_equal(ct_error_text(),
                        "main.c:3: optim_clear_accumulated: the optimizer must not be NULL");
    ct_error_clear();
    forget(&m), forget(&n);
}

// What was added up for a step that never came is not another one's; a step without parts is one.
static void resuming_forgets_parts(void **state) {
    (void)state;
    model m = make(1), n = make(1);
    step_in_parts(&m), step_in_parts(&n);
    {
        CT_SCOPE;
        ct_metric("loss", loss_of(&m, 0, 2));
        ct_optim_accumulate(m.optim, loss_of(&m, 0, 2));
    }
    assert_true(ct_optim_resume(m.optim));
    for (int s = 0; s < 2; s++) {
        CT_SCOPE;
        ct_optim_step(m.optim, loss_of(&m, 2, 5));
        ct_optim_step(n.optim, loss_of(&n, 2, 5));
    }
    assert_string_equal(ct_error_text(), "");
    equal(&m, &n, 0);
    assert_int_equal(ct_params_count(ct_optim_state(m.optim)), 5); // the sums are no state
    forget(&m), forget(&n);
}

// 256 + 1 + 1 is 256 in bf16.
static void sums_of_halves_are_f32(void **state) {
    (void)state;
    static const float slopes[PARTS] = {256, 1, 1};
    ct_params *params = ct_params_new();
    ct_tensor w = ct_param(params, "w", CT_BF16, CT_SCALAR);
    {
        CT_SCOPE;
        ct_assign(w, ct_f(0));
    }
    ct_optim *sgd = ct_sgd(params, .lr = 1);
    for (int k = 0; k < PARTS; k++) {
        CT_SCOPE;
        ct_tensor loss = ct_mul(ct_cast(w, CT_F32), ct_f(slopes[k]));
        if (k + 1 < PARTS)
            ct_optim_accumulate(sgd, loss);
        else
            ct_optim_step(sgd, loss);
    }
    CT_SCOPE;
    assert_true(ct_item(w) == -86);
    assert_string_equal(ct_error_text(), "");
    ct_optim_free(sgd);
    ct_params_free(params);
}

static void another_schedule(void **state) {
    (void)state;
    model m = make(1);
    const ct_loc here = {"main.c", 9};
    step_in_parts(&m);
    uint64_t made = ct_get_stats().plans_made;
    assert_true(ct_optim_set_schedule(m.optim, .lr = ct_optim_lr(m.optim) / 2));
    assert_true(ct_optim_lr(m.optim) == 0.025);
    step_in_parts(&m);
    assert_int_equal(ct_get_stats().plans_made, made);
    assert_false(ct_optim_set_schedule_at(m.optim, (ct_schedule){.lr = 0}, here));
    assert_string_equal(ct_error_text(),
                        "main.c:9: optim: the learning rate is 0, it must be above 0");
    ct_error_clear();
    assert_true(ct_optim_lr(m.optim) == 0.025);
    forget(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_parts_are_one_plan), // first: the process knows no plans yet
        cmocka_unit_test(the_step_is_that_of_the_mean_gradient),
        cmocka_unit_test(a_part_that_failed_is_none),
        cmocka_unit_test(the_first_part_runs_nothing_early),
        cmocka_unit_test(sums_that_were_given_up_are_made_again),
        cmocka_unit_test(parts_are_forgotten_when_asked),
        cmocka_unit_test(resuming_forgets_parts),
        cmocka_unit_test(sums_of_halves_are_f32),
        cmocka_unit_test(another_schedule),
    };
    return cmocka_run_group_tests_name("accumulate", tests, NULL, NULL);
}
