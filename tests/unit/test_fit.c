// The fit loop with a model of one number: when it evaluates, saves and reports, and what stops it.
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "cotan/train.h"
#include "io/metrics.h"

static const ct_loc caller = {"main.c", 9};

typedef struct world {
    ct_params *params;
    ct_tensor w;
    ct_optim *optim;
    int64_t evaluated[16], saved[16];
    size_t n_evaluated, n_saved, reports;
    int64_t stop_behind;                      // a step; < 0: never
    size_t stop_in_evaluation, stop_in_batch; // the how manieth; 0: never
    int64_t nan_at;                           // likewise
    bool save_fails;
    int64_t batches;      // in a step; 0: the loss counts none
    const double *script; // of validation losses, by steps done; NULL: w
    char heard[256];      // of a fit, by the second callback
    int64_t acts_at;      // a step at which it does `act`
    ct_fit_action (*act)(struct world *s, const ct_fit_state *point);
    ct_fit_state last;
    ct_fit_callback told[2];
    char metrics[64], plot[64];
} world;

static ct_tensor loss(int64_t step, void *user) { // (w - 3)^2
    world *s = user;
    if (s->batches) { // (w - 2)^2 and (w - 4)^2 in turn: the same gradient, on the mean
        assert_int_equal(step, s->batches++ - 1);
        return ct_square(ct_sub(s->w, ct_f(step % 2 ? 4 : 2)));
    }
    ct_tensor far = ct_sub(s->w, ct_f(3));
    return ct_mul(ct_mul(far, far), ct_f(step == s->nan_at ? NAN : 1));
}
static bool evaluate(double *val_loss, void *user) {
    world *s = user;
    CT_SCOPE;
    *val_loss = ct_item(ct_add(s->w, ct_f(0)));
    if (s->script) *val_loss = s->script[ct_optim_step_count(s->optim)];
    s->evaluated[s->n_evaluated++] = (int64_t)s->reports;
    return true;
}
static bool save(int64_t done, void *user) {
    world *s = user;
    assert_false(ct_failed());
    s->saved[s->n_saved++] = done;
    return !s->save_fails;
}
static ct_fit_action report(const ct_fit_state *point, void *user) {
    world *s = user;
    s->last = *point;
    s->reports++;
    return CT_FIT_CONTINUE;
}
static void end(const ct_fit_state *point, void *user) { ((world *)user)->last = *point; }
static bool stop(void *user) {
    world *s = user;
    if (s->stop_in_evaluation && s->n_evaluated >= s->stop_in_evaluation) return true;
    if (s->stop_in_batch && s->batches - 1 >= (int64_t)s->stop_in_batch) return true;
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
    s->told[0] = (ct_fit_callback){.on_step = report, .user = s};
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
                            .should_stop = stop,
                            .user = s,
                            .callbacks = s->told,
                            .n_callbacks = 1,
                            .metrics_path = s->metrics,
                            .plot_path = s->plot};
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
    ct_series series[4] = {0};
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
    assert_false(ct_fit_at(&o, caller));
    assert_int_equal(ct_error_code(), CT_E_INTERRUPTED);
    assert_string_equal(ct_error_text(), "main.c:9: train: stopped after 5 of 8 steps");
    assert_list(s->saved, s->n_saved, 4, 5);
}

static void a_loss_that_is_no_number_ends_it(void **state) {
    world *s = *state;
    ct_fit_options o = options(s);
    s->nan_at = 5;
    assert_false(ct_fit_at(&o, caller));
    assert_int_equal(ct_error_code(), CT_E_DATA);
    assert_string_equal(ct_error_text(),
                        "main.c:9: train: the loss is not a number at step 5\n"
                        "  hint: a smaller learning rate, a longer warm-up or clipping may help");
    assert_list(s->saved, s->n_saved, 4); // what was good stays
}

static void saving_fails(void **state) {
    world *s = *state;
    ct_fit_options o = options(s);
    s->save_fails = true;
    assert_false(ct_fit_at(&o, caller));
    assert_string_equal(ct_error_text(), "main.c:9: fit: save returned false, and left no error");
    assert_list(s->saved, s->n_saved, 4);
}

static void needs_something_to_do(void **state) {
    world *s = *state;
    ct_fit_options o = options(s);
    o.steps = 0;
    assert_false(ct_fit_at(&o, caller));
    assert_string_equal(ct_error_text(), "main.c:9: fit: steps is 0, it must be 1 or more");
    ct_error_clear();
    o.loss = NULL;
    assert_false(ct_fit_at(&o, caller));
    assert_string_equal(ct_error_text(),
                        "main.c:9: fit: the function of the loss must not be NULL");
    ct_error_clear();
    o.optim = NULL;
    assert_false(ct_fit_at(&o, caller));
    assert_string_equal(ct_error_text(), "main.c:9: fit: the optimizer must not be NULL");
    ct_error_clear();
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
    ct_series series[1] = {0};
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
    assert_false(ct_fit_at(&o, caller));
    assert_string_equal(ct_error_text(), "main.c:9: fit: first_step is 9 of 8 steps");
}

// What is in the file, as one word a line: its step, and how it ended the fit.
static void expect_ends(const char *path, size_t lines, const char *end) {
    char line[512], field[64];
    FILE *f = fopen(path, "r");
    size_t n = 0;
    assert_non_null(f);
    snprintf(field, sizeof field, "\"ended\": \"%s\"}\n", end ? end : "");
    while (fgets(line, sizeof line, f)) {
        n++;
        const char *ended = strstr(line, "\"ended\"");
        if (n == lines && end)
            assert_string_equal(ended, field);
        else
            assert_null(ended);
    }
    fclose(f);
    assert_int_equal(n, lines);
}

static void a_step_may_have_parts(void **state) {
    world *s = *state;
    ct_fit_options o = options(s);
    s->batches = 1; // the next is batch 0
    o.accumulate = 2;
    assert_true(ct_fit(&o));
    assert_int_equal(s->batches, 1 + 16);
    assert_list(s->evaluated, s->n_evaluated, 0, 3, 6, 7);
    static const char *const names[] = {"loss", "val_loss", "plans_compiled"};
    ct_series series[3] = {0};
    ct_err err = {0};
    assert_true(ct__metrics_read(s->metrics, names, 3, series, &err));
    assert_int_equal(series[0].n, 8);
    const double w[] = {1, 3 - 0.25, 3 - 0.03125, 3 - 0.0078125};
    for (int i = 0; i < 8; i++) {
        assert_true(series[0].y[i] == exp2(2 - 2 * i) + 1); // the mean of both
        if (i >= 2) assert_true(series[2].y[i] == 0);
    }
    for (int i = 0; i < 4; i++) assert_true(series[1].y[i] == w[i]);
    for (int i = 0; i < 3; i++) ct__series_free(&series[i]);
}

// A fit that died in the middle of a step leaves nothing to the next one.
static void a_step_begins_with_empty_sums(void **state) {
    world *s = *state;
    ct_fit_options o = options(s);
    o.metrics_path = o.plot_path = NULL;
    o.steps = 1;
    o.accumulate = 4;
    s->nan_at = 2; // a batch
    assert_false(ct_fit(&o));
    assert_int_equal(ct_error_code(), CT_E_DATA);
    ct_error_clear();
    s->nan_at = -1;
    for (int accumulate = 4; accumulate > 0; accumulate -= 3) {
        o.accumulate = accumulate;
        assert_true(ct_fit(&o));
    }
    CT_SCOPE;
    assert_true(ct_item(s->w) == 2.5); // 1, 2, 2.5
}

// The step at hand is not done then, and the parts that it had are no other step's.
static void stops_between_the_parts_of_a_step(void **state) {
    world *s = *state;
    ct_fit_options o = options(s);
    o.accumulate = 4;
    o.steps = 3;
    s->batches = 1;
    s->stop_in_batch = 6;
    assert_false(ct_fit_at(&o, caller));
    assert_string_equal(ct_error_text(), "main.c:9: train: stopped after 1 of 3 steps");
    ct_error_clear();
    assert_int_equal(s->batches, 1 + 6);
    assert_list(s->saved, s->n_saved, 1);
    s->stop_in_batch = 0;
    s->batches = 1 + 4;
    o.first_step = 1;
    assert_true(ct_fit(&o));
    assert_list(s->saved, s->n_saved, 1, 3);
    CT_SCOPE;
    assert_true(ct_item(s->w) == 3 - 0.25);
}

// Stopped in the evaluation behind all steps, the next fit makes it, as if it had been made then.
static void the_last_evaluation_is_made_up_for(void **state) {
    world *s = *state;
    static const char *const names[] = {"step", "val_loss"};
    for (int known = 0; known < 2; known++) { // is what was best?
        ct_fit_options o = options(s);
        o.first_step = known ? 8 : 0;
        s->n_saved = s->n_evaluated = 0;
        if (!known) {
            s->stop_in_evaluation = 4;
            assert_false(ct_fit_at(&o, caller));
            assert_string_equal(ct_error_text(), "main.c:9: train: stopped after 8 of 8 steps");
            ct_error_clear();
            assert_list(s->saved, s->n_saved, 4, 8);
            assert_false(s->last.evaluated);
            s->stop_in_evaluation = 0;
            o.first_step = 8;
        } else {
            o.best = s->last.best;
            o.best.last_evaluated_step = 6;
        }
        s->n_saved = s->n_evaluated = s->reports = 0;
        assert_true(ct_fit(&o));
        assert_int_equal(s->reports, 0); // of steps
        assert_int_equal(s->n_evaluated, 1);
        assert_list(s->saved, s->n_saved, 8);
        ct_series series[2] = {0};
        ct_err err = {0};
        assert_true(ct__metrics_read(s->metrics, names, 2, series, &err));
        assert_int_equal(series[0].n, 8);
        assert_int_equal(series[1].n, 4);
        assert_true(series[1].x[3] == 7 && series[1].y[3] == 3 - 0.0078125);
        for (int i = 0; i < 2; i++) ct__series_free(&series[i]);
        assert_true(ct_fit(&o) == true); // once more: where nothing is known of it, the line tells
        assert_int_equal(s->n_evaluated, known ? 2 : 1);
    }
}

// What tells of the steps cannot be written: what was trained is saved, then that is told.
static void metrics_that_cannot_be_written(void **state) {
    world *s = *state;
    ct_fit_options o = options(s);
    o.metrics_path = "/dev/full";
    assert_false(ct_fit_at(&o, caller));
    assert_string_equal(ct_error_text(),
                        "main.c:9: fit: /dev/full: cannot write: No space left on device");
    ct_error_clear();
    assert_list(s->saved, s->n_saved, 1);
    assert_int_equal(s->reports, 1);
}

static void events_that_cannot_be_written(void **state) {
    world *s = *state;
    struct rlimit before, limit;
    char folder[] = "/tmp/cotan-fit-events-XXXXXX", command[64], wanted[96];
    ct_fit_options o = options(s);
    assert_non_null(mkdtemp(folder));
    o.tensorboard_dir = folder;
    o.metrics_path = o.plot_path = NULL;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 600;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    bool ok = ct_fit_at(&o, caller);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_false(ok);
    snprintf(wanted, sizeof wanted, "main.c:9: fit: %s/events.out.tfevents.", folder);
    assert_int_equal(strncmp(ct_error_text(), wanted, strlen(wanted)), 0);
    assert_non_null(strstr(ct_error_text(), ": cannot write: File too large"));
    ct_error_clear();
    assert_int_equal(s->saved[s->n_saved - 1], (int64_t)s->reports);
    assert_true(s->reports > 1 && s->reports < 8);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

// ------------------------------------------------------------------------------- early stopping

static const double script[] = {5, 4, 4.5, 3.95, 3.8, 4, 3.75, 4, 1, 1}; // by steps done

static ct_fit_options patient(world *s) {
    ct_fit_options o = options(s);
    s->script = script;
    o.eval_every = 1;
    o.patience = 3;
    o.min_delta = 0.1;
    return o;
}

static void ends_when_nothing_improves(void **state) {
    world *s = *state;
    ct_fit_options o = patient(s);
    o.steps = 12;
    assert_true(ct_fit(&o));
    assert_int_equal(s->last.step, 7);
    assert_int_equal(s->last.end_reason, CT_FIT_PATIENCE);
    assert_true(s->last.evaluated && !s->last.improved && s->last.val_loss == 4);
    const ct_fit_best want = {3.75, 6, 3, 8, 7, 3.8}; // 3.75 is lower than 3.8, but not enough
    assert_memory_equal(&s->last.best, &want, sizeof want);
    assert_list(s->saved, s->n_saved, 4, 8);
    expect_ends(s->metrics, 8, "patience");
    // Resumed with what it knew, it is done; more patience lets it go on.
    o.first_step = 8;
    o.best = s->last.best;
    s->reports = 0;
    assert_true(ct_fit(&o));
    assert_int_equal(s->reports, 0);
    assert_list(s->saved, s->n_saved, 4, 8, 8);
    expect_ends(s->metrics, 8, "patience");
    o.patience = 4;
    o.steps = 9;
    assert_true(ct_fit(&o));
    assert_int_equal(s->reports, 1);
    assert_false(ct_failed());
    expect_ends(s->metrics, 9, NULL); // it went on
}

// Stopped behind 6 steps and resumed, it counts on: the same end.
static void patience_survives_a_resume(void **state) {
    world *s = *state;
    ct_fit_options o = patient(s);
    o.steps = 12;
    s->stop_behind = 5;
    assert_false(ct_fit(&o));
    ct_error_clear();
    assert_int_equal(s->last.best.stale_evaluations, 1);
    s->stop_behind = -1;
    o.first_step = s->last.done;
    o.best = s->last.best;
    assert_int_equal(o.first_step, 6);
    assert_true(ct_fit(&o));
    assert_int_equal(s->last.step, 7);
    assert_int_equal(s->last.end_reason, CT_FIT_PATIENCE);
    expect_ends(s->metrics, 8, "patience");
}

// The last weights of a run are evaluated again where it is made longer.
static void the_same_weights_count_once(void **state) {
    world *s = *state;
    ct_fit_options o = patient(s);
    o.steps = 3;
    assert_true(ct_fit(&o));
    ct_fit_best before = s->last.best;
    assert_int_equal(before.last_evaluated_step, 3);
    o.steps = 5;
    o.eval_every = 3;
    o.first_step = 3;
    o.best = before;
    o.save_every = 0;
    assert_true(ct_fit(&o));
    assert_int_equal(s->n_evaluated, 5); // the fourth of weights that were known
    assert_int_equal(s->last.best.evaluations, before.evaluations + 1);
    assert_int_equal(s->last.best.last_evaluated_step, 5);
}

// ------------------------------------------------------------------------------------ callbacks

static ct_fit_action hear(world *s, const ct_fit_state *point, const char *what) {
    size_t n = strlen(s->heard);
    snprintf(s->heard + n, sizeof s->heard - n, "%s%s%d", n ? " " : "", what, (int)point->done);
    return s->act && point->step == s->acts_at ? s->act(s, point) : CT_FIT_CONTINUE;
}
static ct_fit_action hear_step(const ct_fit_state *point, void *user) {
    return hear(user, point, "step");
}
static ct_fit_action hear_begin(const ct_fit_state *point, void *user) {
    return hear(user, point, "begin");
}
static ct_fit_action hear_evaluation(const ct_fit_state *point, void *user) {
    assert_true(point->evaluated);
    assert_int_equal(!!isnan(point->loss), point->done == 0); // no step is done, none has a loss
    return hear(user, point, point->improved ? "best" : "eval");
}
static ct_fit_action hear_save(const ct_fit_state *point, void *user) {
    return hear(user, point, "save");
}
static void hear_end(const ct_fit_state *point, void *user) {
    static const char *const ends[] = {"?", "done", "patience", "stopped", "interrupted", "failed"};
    world *s = user;
    s->act = NULL;
    hear(s, point, ends[point->end_reason]);
}

static ct_fit_options heard(world *s) {
    ct_fit_options o = options(s);
    s->told[1] = (ct_fit_callback){.on_begin = hear_begin,
                                   .on_evaluate = hear_evaluation,
                                   .on_step = hear_step,
                                   .on_save = hear_save,
                                   .on_end = hear_end,
                                   .user = s};
    o.n_callbacks = 2;
    o.steps = 4;
    o.save_every = 2;
    o.eval_every = 2;
    return o;
}

static void callbacks_hear_of_all_in_turn(void **state) {
    world *s = *state;
    ct_fit_options o = heard(s); // w grows, so the first validation loss is the best
    assert_true(ct_fit(&o));
    assert_string_equal(s->heard,
                        "begin0 best0 step1 step2 save2 eval2 step3 eval4 step4 save4 done4");
}

static ct_fit_action stops(world *s, const ct_fit_state *point) {
    (void)s, (void)point;
    return CT_FIT_STOP;
}

static void a_callback_stops_the_fit(void **state) {
    world *s = *state;
    ct_fit_options o = heard(s);
    s->act = stops;
    s->acts_at = 2; // at its evaluation: the step is done all the same
    assert_true(ct_fit(&o));
    assert_string_equal(s->heard, "begin0 best0 step1 step2 save2 eval2 step3 save3 stopped3");
    assert_list(s->saved, s->n_saved, 2, 3);
    expect_ends(s->metrics, 3, "callback");
    o.first_step = 3; // and goes on
    assert_true(ct_fit(&o));
    expect_ends(s->metrics, 4, NULL);
}

static ct_fit_action stops_at_once(const ct_fit_state *point, void *user) {
    (void)point, (void)user;
    return CT_FIT_STOP;
}

static void a_save_stops_the_fit(void **state) {
    world *s = *state;
    ct_fit_options o = heard(s);
    s->told[1].on_save = stops_at_once;
    assert_true(ct_fit(&o));
    assert_string_equal(s->heard, "begin0 best0 step1 step2 stopped2");
    assert_list(s->saved, s->n_saved, 2);
    expect_ends(s->metrics, 2, "callback"); // its line was written before
}

static ct_fit_action fails(world *s, const ct_fit_state *point);

// Nothing is cut off the metrics before the callback has agreed, or where they cannot be read.
static void a_fit_that_cannot_begin_changes_nothing(void **state) {
    world *s = *state;
    ct_fit_options o = heard(s);
    assert_true(ct_fit(&o));
    s->n_saved = s->heard[0] = 0;
    o.first_step = 2;
    s->act = fails;
    s->acts_at = 1; // done last
    assert_false(ct_fit_at(&o, caller));
    assert_string_equal(s->heard, "begin2 failed2");
    assert_string_equal(ct_error_text(),
                        "main.c:5: matmul: both operands need two axes: a is () f32, b is () f32");
    ct_error_clear();
    assert_int_equal(s->n_saved, 0);
    expect_ends(s->metrics, 4, NULL);
    s->heard[0] = 0;
    FILE *f = fopen(s->metrics, "w");
    assert_non_null(f);
    fputs("{\"step\": 0, \"loss\": 1}\n{\"step\": 1, \"loss\": \"low\"}\n{\"step\": 2}\n", f);
    fclose(f);
    char wanted[128];
    snprintf(wanted, sizeof wanted, "main.c:9: fit: %s: line 2: \"loss\" is no number", s->metrics);
    assert_false(ct_fit_at(&o, caller));
    assert_string_equal(ct_error_text(), wanted);
    ct_error_clear();
    assert_string_equal(s->heard, "failed2");
    expect_ends(s->metrics, 3, NULL);
}

static ct_fit_action fails(world *s, const ct_fit_state *point) {
    (void)point;
    CT_SCOPE;
    const ct_loc here = {"main.c", 5};
    (void)ct_matmul_at(s->w, s->w, here);
    return CT_FIT_CONTINUE;
}

// An error in a callback ends the fit; what was trained is saved without it, and then it is told.
static void an_error_in_a_callback_is_told_behind_the_save(void **state) {
    world *s = *state;
    ct_fit_options o = heard(s);
    s->act = fails;
    s->acts_at = 1;
    assert_false(ct_fit(&o));
    assert_string_equal(s->heard, "begin0 best0 step1 step2 failed2");
    assert_list(s->saved, s->n_saved, 2);
    assert_string_equal(ct_error_text(),
                        "main.c:5: matmul: both operands need two axes: a is () f32, b is () f32");
    expect_ends(s->metrics, 2, NULL);
    ct_error_clear();
    assert_int_equal(ct_optim_step_count(s->optim), 2);
}

static ct_fit_action halves(world *s, const ct_fit_state *point) {
    assert_true(ct_optim_set_schedule(s->optim, .lr = point->lr / 2));
    return CT_FIT_CONTINUE;
}

static void a_callback_changes_the_rate(void **state) {
    world *s = *state;
    ct_fit_options o = heard(s);
    s->act = halves;
    s->acts_at = 1;
    o.eval_every = o.save_every = 0;
    assert_true(ct_fit(&o));
    static const char *const names[] = {"lr"};
    ct_series series[1] = {0};
    ct_err err = {0};
    assert_true(ct__metrics_read(s->metrics, names, 1, series, &err));
    const double lr[] = {0.25, 0.25, 0.125, 0.125};
    for (int i = 0; i < 4; i++) assert_true(series[0].y[i] == lr[i]);
    ct__series_free(&series[0]);
}

static ct_tensor loss_of_three(int64_t step, void *user) {
    static const float three[3] = {1, 2, 3};
    (void)step;
    return ct_mul(((world *)user)->w, ct_from(three, CT_F32, CT_DIMS(3)));
}
static ct_tensor loss_of_no_tensor(int64_t step, void *user) {
    (void)step, (void)user;
    return CT_NONE;
}
static ct_tensor loss_of_a_scope(int64_t step, void *user) {
    (void)step;
    ct_scope scope = ct_scope_begin((ct_loc){"user.c", 4});
    ct_tensor t = ct_square_at(((world *)user)->w, (ct_loc){"user.c", 5});
    ct_scope_end(scope, (ct_loc){"user.c", 6});
    return t;
}
static ct_tensor whole_loss(int64_t step, void *user) { return ct_cast(loss(step, user), CT_I32); }

// What a fit does with a loss is done at the line of the fit.
static void a_loss_that_does_not_fit_names_the_line_of_the_call(void **state) {
    world *s = *state;
    static const struct {
        ct_tensor (*loss)(int64_t, void *);
        const char *text;
    } cases[] = {
        {loss_of_three, "main.c:9: fit: the loss must be one float, it is (3,) f32\n"
                        "  hint: ct_mean or ct_sum makes it one number"},
        {loss_of_no_tensor, "main.c:9: fit: the function of the loss returned no tensor"},
        {whole_loss,
         "main.c:9: grad: the loss must be one float, it is () i32\n  hint: only what is "
         "computed in floats has gradients"},
    };
    for (int i = 0; i < 6; i++) {
        ct_fit_options o = options(s);
        o.loss = cases[i / 2].loss;
        o.accumulate = i % 2 ? 2 : 0;
        assert_false(ct_fit_at(&o, caller));
        assert_string_equal(ct_error_text(), cases[i / 2].text);
        ct_error_clear();
    }
    ct_fit_options o = options(s);
    o.loss = loss_of_a_scope;
    assert_false(ct_fit_at(&o, caller));
    assert_string_equal(ct_error_text(),
                        "main.c:9: fit: the function of the loss returned a tensor whose scope had "
                        "ended: made at user.c:5\n  hint: it needs no CT_SCOPE: each step has one");
}

static ct_tensor a_loss_that_fails(int64_t step, void *user) {
    return step == 2 ? CT_NONE : loss(step, user);
}

// What is told at the end is of the step done last, as the weights are then.
static void an_end_tells_of_the_last_step(void **state) {
    world *s = *state;
    static const struct {
        ct_tensor (*loss)(int64_t, void *);
        int64_t nan_at, done;
        double last;
    } cases[] = {{a_loss_that_fails, -1, 2, 1}, {loss, 2, 3, NAN}};
    for (int i = 0; i < 2; i++) {
        ct_fit_options o = options(s);
        {
            CT_SCOPE;
            ct_assign(s->w, ct_f(1));
        }
        s->told[0] = (ct_fit_callback){.on_end = end, .user = s};
        o.metrics_path = o.plot_path = NULL;
        o.loss = cases[i].loss;
        s->nan_at = cases[i].nan_at;
        int64_t before = ct_optim_step_count(s->optim);
        assert_false(ct_fit(&o));
        ct_error_clear();
        assert_int_equal(s->last.end_reason, CT_FIT_FAILED);
        assert_int_equal(s->last.step, 2);
        assert_int_equal(s->last.done, cases[i].done);
        assert_int_equal(ct_optim_step_count(s->optim) - before, cases[i].done);
        assert_true(s->last.loss == cases[i].last || (i == 1 && isnan(s->last.loss)));
    }
}

// A folder that events are to lie in is made; where that is refused, it is named.
static void the_folder_of_events_is_made(void **state) {
    world *s = *state;
    char top[] = "/tmp/cotan-fit-made-XXXXXX", folder[64], command[200];
    ct_fit_options o = options(s);
    assert_non_null(mkdtemp(top));
    snprintf(folder, sizeof folder, "%s/a/b", top);
    o.tensorboard_dir = folder;
    o.metrics_path = o.plot_path = NULL;
    assert_true(ct_fit(&o));
    snprintf(command, sizeof command, "ls %s/events.out.tfevents.* >/dev/null && rm -r %s", folder,
             top);
    assert_int_equal(system(command), 0);
}

static void refuses_options_without_sense(void **state) {
    world *s = *state;
    static const char *const texts[] = {
        "main.c:9: fit: accumulate is -1, it must be 0 or more",
        "main.c:9: fit: patience is -2, it must be 0 or more",
        "main.c:9: fit: min_delta is nan, it must be 0 or more",
        "main.c:9: fit: patience is 2, but there is no function that evaluates",
        "main.c:9: fit: the callbacks must not be NULL",
    };
    for (int i = 0; i < 5; i++) {
        ct_fit_options o = options(s);
        if (i == 0) o.accumulate = -1;
        if (i == 1) o.patience = -2;
        if (i == 2) o.min_delta = (double)NAN;
        if (i == 3) o.patience = 2, o.evaluate = NULL;
        if (i == 4) o.callbacks = NULL;
        assert_false(ct_fit_at(&o, caller));
        assert_string_equal(ct_error_text(), texts[i]);
        ct_error_clear();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(runs_to_its_end),
        TEST(stops_and_saves),
        TEST(a_loss_that_is_no_number_ends_it),
        TEST(saving_fails),
        TEST(needs_something_to_do),
        TEST(all_but_the_loss_is_optional),
        TEST(a_fit_may_begin_later),
        TEST(a_step_may_have_parts),
        TEST(a_step_begins_with_empty_sums),
        TEST(stops_between_the_parts_of_a_step),
        TEST(the_last_evaluation_is_made_up_for),
        TEST(metrics_that_cannot_be_written),
        TEST(events_that_cannot_be_written),
        TEST(ends_when_nothing_improves),
        TEST(patience_survives_a_resume),
        TEST(the_same_weights_count_once),
        TEST(callbacks_hear_of_all_in_turn),
        TEST(a_callback_stops_the_fit),
        TEST(a_save_stops_the_fit),
        TEST(a_fit_that_cannot_begin_changes_nothing),
        TEST(an_error_in_a_callback_is_told_behind_the_save),
        TEST(a_callback_changes_the_rate),
        TEST(a_loss_that_does_not_fit_names_the_line_of_the_call),
        TEST(an_end_tells_of_the_last_step),
        TEST(the_folder_of_events_is_made),
        TEST(refuses_options_without_sense),
    };
    return cmocka_run_group_tests_name("fit", tests, NULL, NULL);
}
