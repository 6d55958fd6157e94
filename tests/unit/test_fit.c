// The fit loop with a model of one number: when it evaluates, saves and reports, and what stops it.
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cotan/train.h"
#include "io/metrics.h"

typedef struct world {
    ct_params *params;
    ct_tensor w;
    ct_optim *optim;
    int64_t evaluated[16], saved[16];
    size_t n_evaluated, n_saved, reports;
    int64_t stop_behind; // a step; < 0: never
    int64_t nan_at;      // likewise
    size_t fails_behind; // reports; 0: never
    ct_fit_point last;
    char metrics[64], plot[64];
} world;

static ct_tensor loss(int64_t step, void *user) { // (w - 3)^2
    world *s = user;
    ct_tensor far = ct_sub(s->w, ct_f(3));
    return ct_mul(ct_mul(far, far), ct_f(step == s->nan_at ? NAN : 1));
}
static bool evaluate(double *val_loss, void *user) {
    world *s = user;
    CT_SCOPE;
    *val_loss = ct_item(ct_add(s->w, ct_f(0)));
    s->evaluated[s->n_evaluated++] = (int64_t)s->reports;
    return true;
}
static bool save(int64_t done, void *user) {
    world *s = user;
    s->saved[s->n_saved++] = done;
    return true;
}
static bool report(const ct_fit_point *point, void *user) {
    world *s = user;
    s->last = *point;
    return ++s->reports != s->fails_behind;
}
static bool stop(void *user) {
    world *s = user;
    return s->stop_behind >= 0 && (int64_t)s->reports > s->stop_behind;
}

static int setup(void **state) {
    world *s = calloc(1, sizeof *s);
    *state = s;
    assert_true(ct_set_device("ref"));
    s->stop_behind = s->nan_at = -1;
    s->params = ct_params_new();
    s->w = ct_param(s->params, "w", CT_F32, CT_SCALAR);
    {
        CT_SCOPE;
        ct_assign(s->w, ct_f(1));
    }
    s->optim = ct_sgd(s->params, .lr = 0.25);
    snprintf(s->metrics, sizeof s->metrics, "/tmp/cotan-fit-%d.jsonl", (int)getpid());
    snprintf(s->plot, sizeof s->plot, "/tmp/cotan-fit-%d.svg", (int)getpid());
    assert_false(ct_failed());
    return 0;
}
static int teardown(void **state) {
    world *s = *state;
    ct_error_clear();
    ct_optim_free(s->optim);
    ct_params_free(s->params);
    unlink(s->metrics);
    unlink(s->plot);
    free(s);
    return 0;
}

static ct_fit_options options(world *s) {
    return (ct_fit_options){.steps = 8,
                            .eval_every = 3,
                            .save_every = 4,
                            .tokens_per_step = 10,
                            .optim = s->optim,
                            .loss = loss,
                            .evaluate = evaluate,
                            .save = save,
                            .report = report,
                            .stop = stop,
                            .user = s,
                            .metrics = s->metrics,
                            .plot = s->plot};
}

#define assert_list(list, n, ...)                                                                  \
    do {                                                                                           \
        const int64_t wanted[] = {__VA_ARGS__};                                                    \
        assert_int_equal(n, sizeof wanted / sizeof *wanted);                                       \
        assert_memory_equal(list, wanted, sizeof wanted);                                          \
    } while (0)

static void runs_to_its_end(void **state) {
    world *s = *state;
    ct_fit_options o = options(s);
    assert_true(ct_fit(&o));
    assert_list(s->evaluated, s->n_evaluated, 0, 3, 6, 7); // reports made before each
    assert_list(s->saved, s->n_saved, 4, 8);
    assert_int_equal(s->reports, 8);
    // w halves its way to 3 in each step: 3 - 2^(1 - steps).
    static const char *const names[] = {"loss", "val_loss", "plans_compiled", "lr"};
    ct_series series[4];
    ct_err err = {0};
    assert_true(ct__metrics_read(s->metrics, names, 4, series, &err));
    assert_int_equal(series[0].n, 8);
    assert_int_equal(series[1].n, 4);
    for (int i = 0; i < 8; i++) {
        assert_true(series[0].y[i] == exp2(2 - 2 * i)); // before the step's update
        assert_true(series[3].y[i] == 0.25);
        if (i >= 2) assert_true(series[2].y[i] == 0);
    }
    const double w[] = {1, 3 - 0.25, 3 - 0.03125, 3 - 0.0078125};
    for (int i = 0; i < 4; i++) assert_true(series[1].y[i] == w[i]); // the last one behind the end
    assert_true(s->last.seconds_left == 0 && s->last.grad_norm > 0 && s->last.memory > 0);
    for (int i = 0; i < 4; i++) ct__series_free(&series[i]);
    assert_int_equal(access(s->plot, R_OK), 0);
}

static void stops_and_saves(void **state) {
    world *s = *state;
    ct_fit_options o = options(s);
    s->stop_behind = 4;
    assert_false(ct_fit(&o));
    assert_int_equal(ct_error_code(), CT_E_INTERRUPTED);
    assert_string_equal(ct_error_text(), "train: stopped after 5 of 8 steps");
    assert_list(s->saved, s->n_saved, 4, 5);
}

static void a_loss_that_is_no_number_ends_it(void **state) {
    world *s = *state;
    ct_fit_options o = options(s);
    s->nan_at = 5;
    assert_false(ct_fit(&o));
    assert_int_equal(ct_error_code(), CT_E_DATA);
    assert_string_equal(ct_error_text(),
                        "train: the loss is not a number at step 5\n"
                        "  hint: a smaller learning rate, a longer warm-up or clipping may help");
    assert_list(s->saved, s->n_saved, 4); // what was good stays
}

static void a_callback_fails(void **state) {
    world *s = *state;
    ct_fit_options o = options(s);
    s->fails_behind = 2;
    assert_false(ct_fit(&o));
    assert_string_equal(ct_error_text(), "fit: a callback failed");
    assert_int_equal(s->n_saved, 0);
}

static void needs_something_to_do(void **state) {
    world *s = *state;
    ct_fit_options o = options(s);
    o.steps = 0;
    assert_false(ct_fit(&o));
    assert_string_equal(ct_error_text(),
                        "fit: an optimizer, a loss and at least one step are needed");
}

static void all_but_the_loss_is_optional(void **state) {
    world *s = *state;
    ct_fit_options o = {.steps = 2, .optim = s->optim, .loss = loss, .user = s};
    assert_true(ct_fit(&o));
    assert_true(ct_metric_value("loss") == 1);
}

// From step 5 on: what was written of steps before stays, and what they did not do is not done.
static void a_fit_may_begin_later(void **state) {
    world *s = *state;
    ct_fit_options o = options(s);
    assert_true(ct_fit(&o));
    s->n_evaluated = s->n_saved = s->reports = 0;
    o.first_step = 5;
    assert_true(ct_fit(&o));
    assert_int_equal(s->reports, 3);
    assert_int_equal(s->n_evaluated, 2); // steps 6 and 7
    assert_int_equal(s->n_saved, 1);
    assert_int_equal(s->saved[0], 8);
    static const char *const names[] = {"loss"};
    ct_series series[1];
    ct_err err = {0};
    assert_true(ct__metrics_read(s->metrics, names, 1, series, &err));
    assert_int_equal(series[0].n, 8);
    for (size_t i = 0; i < 8; i++) assert_true(series[0].x[i] == (double)i);
    assert_true(series[0].y[5] < series[0].y[4]);
    ct__series_free(&series[0]);
    s->reports = 0;
    o.first_step = 8; // nothing is left to do but to save
    assert_true(ct_fit(&o));
    assert_int_equal(s->reports, 0);
    assert_int_equal(s->n_saved, 2);
    o.first_step = 9;
    assert_false(ct_fit(&o));
    assert_string_equal(ct_error_text(), "fit: first_step is 9 of 8 steps");
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(runs_to_its_end),
        TEST(stops_and_saves),
        TEST(a_loss_that_is_no_number_ends_it),
        TEST(a_callback_fails),
        TEST(needs_something_to_do),
        TEST(all_but_the_loss_is_optional),
        TEST(a_fit_may_begin_later),
    };
    return cmocka_run_group_tests_name("fit", tests, NULL, NULL);
}
