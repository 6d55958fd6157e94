// Optimizers against their formulas written out in double, schedules, state, failures.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cotan/cotan.h"
#include "cotan/optim.h"

enum { ROWS = 3, COLS = 5, N = ROWS * COLS, STEPS = 6 };

// Two parameters, a matrix and a vector; the loss sum(w * a * w) / 2 + sum(b^3) has the gradients
// a * w and 3 b^2.
typedef struct {
    ct_params *params;
    ct_tensor w, b;
    float a[N];
    double w0[N], b0[COLS];
} problem;

static problem make_problem(void) {
    problem p = {.params = ct_params_new()};
    float w[N], b[COLS];
    for (int i = 0; i < N; i++) {
        w[i] = (float)(0.3 * i - 2);
        p.a[i] = (float)(1 + i % 4);
        p.w0[i] = w[i];
    }
    for (int i = 0; i < COLS; i++) p.b0[i] = b[i] = (float)(0.5 + 0.25 * i);
    p.w = ct_param(p.params, "w", CT_F32, CT_DIMS(ROWS, COLS));
    p.b = ct_param(p.params, "b", CT_F32, CT_DIMS(COLS));
    CT_SCOPE;
    ct_assign(p.w, ct_from(w, CT_F32, CT_DIMS(ROWS, COLS)));
    ct_assign(p.b, ct_from(b, CT_F32, CT_DIMS(COLS)));
    return p;
}

static ct_tensor loss_of(const problem *p) {
    ct_tensor a = ct_from(p->a, CT_F32, CT_DIMS(ROWS, COLS));
    ct_tensor square = ct_mul(ct_mul(p->w, a), p->w), cube = ct_mul(ct_mul(p->b, p->b), p->b);
    return ct_add(ct_mul(ct_sum(square), ct_f(0.5)), ct_sum(cube));
}

static void step(ct_optim *optim, const problem *p) {
    CT_SCOPE;
    ct_optim_step(optim, loss_of(p));
}

static void compare(ct_tensor t, const double *want, int n) {
    CT_SCOPE;
    const float *got = ct_data(t);
    assert_non_null(got);
    for (int i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= 4e-6 * (1 + fabs(want[i]))))
            fail_msg("element %d: %.9g, expected %.9g", i, (double)got[i], want[i]);
}

// What each optimizer does to one number.
typedef struct {
    double lr, beta1, beta2, eps, decay, clip, momentum;
    bool adam, decoupled, nesterov;
} rule;
typedef struct {
    double m, v;
} moments;

static double updated(const rule *r, double p, double g, bool decays, moments *s, int t) {
    double decay = decays ? r->decay : 0;
    if (!r->decoupled) g += decay * p;
    if (!r->adam) {
        if (r->momentum == 0) return p - r->lr * g;
        s->m = r->momentum * s->m + g;
        return p - r->lr * (r->nesterov ? g + r->momentum * s->m : s->m);
    }
    if (r->decoupled) p -= r->lr * decay * p;
    s->m = r->beta1 * s->m + (1 - r->beta1) * g;
    s->v = r->beta2 * s->v + (1 - r->beta2) * g * g;
    double c1 = 1 - pow(r->beta1, t), c2 = 1 - pow(r->beta2, t);
    return p - r->lr / c1 * s->m / (sqrt(s->v) / sqrt(c2) + r->eps);
}

static void check(ct_optim *optim, problem *p, rule r) {
    moments mw[N] = {0}, mb[COLS] = {0};
    double w[N], b[COLS];
    memcpy(w, p->w0, sizeof w);
    memcpy(b, p->b0, sizeof b);
    assert_non_null(optim);
    for (int t = 1; t <= STEPS; t++) {
        double gw[N], gb[COLS], sum = 0;
        for (int i = 0; i < N; i++) gw[i] = (double)p->a[i] * w[i], sum += gw[i] * gw[i];
        for (int i = 0; i < COLS; i++) gb[i] = 3 * b[i] * b[i], sum += gb[i] * gb[i];
        double factor = r.clip > 0 ? fmin(1, r.clip / (sqrt(sum) + 1e-6)) : 1;
        for (int i = 0; i < N; i++) w[i] = updated(&r, w[i], gw[i] * factor, true, &mw[i], t);
        for (int i = 0; i < COLS; i++) b[i] = updated(&r, b[i], gb[i] * factor, false, &mb[i], t);
        step(optim, p);
        assert_string_equal(ct_error_text(), "");
        assert_true(fabs(ct_metric_value("grad_norm") / sqrt(sum) - 1) < 1e-5);
        assert_int_equal(ct_optim_step_count(optim), t);
        compare(p->w, w, N);
        compare(p->b, b, COLS);
    }
    ct_optim_free(optim);
    ct_params_free(p->params);
}

static void sgd_follows_its_formula(void **state) {
    (void)state;
    problem p = make_problem();
    check(ct_sgd(p.params, .lr = 0.01), &p, (rule){.lr = 0.01});
    p = make_problem();
    check(ct_sgd(p.params, .lr = 0.01, .momentum = 0.9, .weight_decay = CT_F(0.1)), &p,
          (rule){.lr = 0.01, .momentum = 0.9, .decay = 0.1});
    p = make_problem();
    check(ct_sgd(p.params, .lr = 0.01, .momentum = 0.9, .nesterov = true, .clip = 2.0), &p,
          (rule){.lr = 0.01, .momentum = 0.9, .nesterov = true, .clip = 2});
}

static void adam_follows_its_formula(void **state) {
    (void)state;
    rule adam = {.lr = 0.05, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .adam = true};
    problem p = make_problem();
    check(ct_adam(p.params, .lr = 0.05), &p, adam);
    adam.decay = 0.1;
    p = make_problem();
    check(ct_adam(p.params, .lr = 0.05, .weight_decay = CT_F(0.1)), &p, adam);
    adam.decoupled = true;
    adam.clip = 1;
    adam.beta2 = 0.99;
    p = make_problem();
    check(
        ct_adamw(p.params, .lr = 0.05, .weight_decay = CT_F(0.1), .beta2 = CT_F(0.99), .clip = 1.0),
        &p, adam);
    adam.decay = 0.01; // the default
    adam.beta1 = 0;
    p = make_problem();
    check(ct_adamw(p.params, .lr = 0.05, .beta1 = CT_F(0), .beta2 = CT_F(0.99), .clip = 1.0), &p,
          adam);
}

// A matrix and a vector, and gradients of a size that change from step to step and have nothing to
// do with the parameters: so that eps counts where they are small, and decay where they are not.
enum { FEW = 4 };
static const double given_gradient[FEW] = {1, -2, 3, 0.5}, given_factor[] = {1, -0.5, 2};

static void check_given(ct_optim *(*make)(ct_params *params, ct_optim_options options),
                        ct_optim_options options, rule r, double size) {
    const float first[FEW] = {0.5f, -1, 0.25f, 2};
    double p[2][FEW];
    moments s[2][FEW] = {{{0}}};
    problem q = {.params = ct_params_new()};
    q.w = ct_param(q.params, "w", CT_F32, CT_DIMS(2, 2));
    q.b = ct_param(q.params, "b", CT_F32, CT_DIMS(FEW));
    {
        CT_SCOPE;
        ct_assign(q.w, ct_from(first, CT_F32, CT_DIMS(2, 2)));
        ct_assign(q.b, ct_from(first, CT_F32, CT_DIMS(FEW)));
    }
    for (int i = 0; i < FEW; i++) p[0][i] = p[1][i] = (double)first[i];
    ct_optim *optim = make(q.params, options);
    assert_non_null(optim);
    for (int t = 0; t < 3; t++) {
        float g[FEW];
        double sum = 0;
        for (int i = 0; i < FEW; i++) {
            g[i] = (float)(given_gradient[i] * given_factor[t] * size);
            sum += 2 * (double)g[i] * (double)g[i];
        }
        double factor = r.clip > 0 ? fmin(1, r.clip / (sqrt(sum) + 1e-6)) : 1;
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < FEW; i++)
                p[k][i] = updated(&r, p[k][i], (double)g[i] * factor, k == 0, &s[k][i], t + 1);
        {
            CT_SCOPE;
            ct_tensor c = ct_from(g, CT_F32, CT_DIMS(FEW)); // (FEW,)
            ct_tensor rows = ct_mul(q.w, ct_reshape(c, CT_DIMS(2, 2)));
            ct_optim_step(optim, ct_add(ct_sum(rows), ct_sum(ct_mul(q.b, c))));
        }
        compare(q.w, p[0], FEW);
        compare(q.b, p[1], FEW);
    }
    ct_optim_free(optim);
    ct_params_free(q.params);
}

// As include/cotan/optim.h has them.
static void defaults_are_those_of_the_manual(void **state) {
    (void)state;
    rule adam = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .adam = true};
    rule adamw = adam;
    adamw.decay = 0.01;
    adamw.decoupled = true;
    ct_optim_options lr = {.lr = 0.1};
    check_given(ct_sgd_with, lr, (rule){.lr = 0.1}, 1);
    for (double size = 1; size > 1e-9; size /= 100) { // 1e-8: as large as eps
        check_given(ct_adam_with, lr, adam, size);
        check_given(ct_adamw_with, lr, adamw, size);
    }
}

// Where the norm is as small as what is added to it.
static void clipping_has_the_epsilon_of_the_manual(void **state) {
    (void)state;
    ct_optim_options o = {.lr = 1e5, .clip = 1e-6};
    check_given(ct_sgd_with, o, (rule){.lr = 1e5, .clip = 1e-6}, 1e-6);
    check_given(ct_sgd_with, o, (rule){.lr = 1e5, .clip = 1e-6}, 1e-7); // below: as it is
}

static void a_chain_is_what_it_is_made_of(void **state) {
    (void)state;
    problem p = make_problem();
    ct_schedule lr = {.lr = 0.02};
    check(ct_chain(p.params, lr, ct_clip_by_global_norm(3), ct_trace(0.5, false),
                   ct_scale_by_learning_rate()),
          &p, (rule){.lr = 0.02, .momentum = 0.5, .clip = 3});
    p = make_problem();
    check(ct_chain(p.params, lr, ct_scale(-0.25)), &p, (rule){.lr = 0.25});
}

static double custom_rate(int64_t at, void *user) { return (double)at * *(double *)user; }

static void schedules_follow_their_formulas(void **state) {
    (void)state;
    ct_schedule s = {.lr = 2};
    assert_true(fabs(ct_schedule_lr(&s, 0) - (2)) <= 0);
    assert_true(fabs(ct_schedule_lr(&s, 1000000) - (2)) <= 0);
    s = (ct_schedule){.shape = CT_LR_LINEAR, .lr = 1, .min_lr = 0.1, .warmup = 3, .steps = 12};
    assert_true(fabs(ct_schedule_lr(&s, 0) - (0.25)) <= 1e-12);
    assert_true(fabs(ct_schedule_lr(&s, 2) - (0.75)) <= 1e-12);
    assert_true(fabs(ct_schedule_lr(&s, 3) - (1)) <= 1e-12);
    assert_true(fabs(ct_schedule_lr(&s, 6) - (0.7)) <= 1e-12);
    assert_true(fabs(ct_schedule_lr(&s, 12) - (0.1)) <= 0);
    assert_true(fabs(ct_schedule_lr(&s, 500) - (0.1)) <= 0);
    s.shape = CT_LR_COSINE;
    assert_true(fabs(ct_schedule_lr(&s, 3) - (1)) <= 1e-12);
    assert_true(fabs(ct_schedule_lr(&s, 6) - (0.1 + 0.9 * 0.75)) <= 1e-12); // cos(pi / 3) = 1/2
    assert_true(fabs(ct_schedule_lr(&s, 12) - (0.1)) <= 0);
    s.warmup = 0;
    s.steps = 0; // nothing to fall over
    assert_true(fabs(ct_schedule_lr(&s, 0) - (0.1)) <= 0);
    double factor = 3;
    s = (ct_schedule){.custom = custom_rate, .user = &factor};
    assert_true(fabs(ct_schedule_lr(&s, 4) - (12)) <= 0);
}

static void a_changing_rate_makes_no_plan(void **state) {
    (void)state;
    problem p = make_problem();
    ct_optim *optim = ct_adamw(
        p.params,
        .schedule = {.shape = CT_LR_COSINE, .lr = 0.1, .min_lr = 0.01, .warmup = 2, .steps = 8});
    step(optim, &p);
    ct_stats before = ct_get_stats();
    double last = ct_optim_lr(optim);
    for (int i = 0; i < 6; i++) {
        step(optim, &p);
        assert_true(ct_optim_lr(optim) != last);
        last = ct_optim_lr(optim);
    }
    assert_string_equal(ct_error_text(), "");
    assert_int_equal(ct_get_stats().plans_made, before.plans_made);
    assert_int_equal(ct_get_stats().plans_run, before.plans_run + 6);
    ct_optim_free(optim);
    ct_params_free(p.params);
}

// Copies the value of every variable of `from` into the one of the same name in `to`.
static void copy_params(ct_params *to, const ct_params *from) {
    CT_SCOPE;
    assert_int_equal(ct_params_count(to), ct_params_count(from));
    for (size_t i = 0; i < ct_params_count(from); i++)
        ct_assign(ct_params_find(to, ct_params_name(from, i)), ct_params_get(from, i));
}

static void state_has_names_and_can_be_resumed(void **state) {
    (void)state;
    problem p = make_problem(), q = make_problem();
    ct_optim *a = ct_adamw(p.params, .schedule = {.lr = 0.1, .warmup = 5});
    for (int i = 0; i < 3; i++) step(a, &p);
    ct_params *s = ct_optim_state(a);
    const char *names[] = {"step", "exp_avg.w", "exp_avg.b", "exp_avg_sq.w", "exp_avg_sq.b"};
    assert_int_equal(ct_params_count(s), 5);
    for (int i = 0; i < 5; i++) assert_true(ct_params_find(s, names[i]).bits != 0);
    ct_optim *b = ct_adamw(q.params, .schedule = {.lr = 0.1, .warmup = 5});
    copy_params(q.params, p.params);
    copy_params(ct_optim_state(b), s);
    assert_true(ct_optim_resume(b));
    assert_false(ct_optim_resume_at(NULL, (ct_loc){"main.c", 9}));
    assert_string_equal(ct_error_text(), "main.c:9: optim_resume: the optimizer must not be NULL");
    ct_error_clear();
    assert_int_equal(ct_optim_step_count(b), 3);
    for (int i = 0; i < 3; i++) step(a, &p), step(b, &q);
    CT_SCOPE;
    const float *x = ct_data(p.w), *y = ct_data(q.w);
    assert_non_null(x);
    assert_non_null(y);
    assert_memory_equal(x, y, N * sizeof *x);
    ct_optim_free(a);
    ct_optim_free(b);
    ct_params_free(p.params);
    ct_params_free(q.params);
}

static void a_failed_loss_changes_nothing(void **state) {
    (void)state;
    problem p = make_problem();
    ct_optim *optim = ct_adamw(p.params, .lr = 0.1);
    {
        CT_SCOPE;
        ct_tensor wrong = ct_add(loss_of(&p), ct_add(p.w, ct_zeros(CT_F32, CT_DIMS(4))));
        ct_optim_step(optim, wrong);
    }
    assert_true(ct_failed());
    ct_error_clear();
    assert_int_equal(ct_optim_step_count(optim), 0);
    compare(p.w, p.w0, N);
    CT_SCOPE;
    assert_true(ct_item(ct_params_find(ct_optim_state(optim), "step")) == 0);
    ct_optim_free(optim);
    ct_params_free(p.params);
}

// A transform of the user that does nothing: with it a chain is recorded op by op.
static void nothing(const ct_transform *self, ct_update *u) { (void)self, (void)u; }

static ct_optim *adamw_chain(ct_params *params, bool with_user) {
    const ct_transform chain[] = {ct_clip_by_global_norm(1),
                                  ct_scale_by_adam(0.9, 0.99, 1e-8),
                                  ct_add_decayed_weights(0.1, NULL, NULL),
                                  ct_scale_by_learning_rate(),
                                  {.apply = nothing}};
    ct_schedule lr = {.lr = 0.05, .warmup = 3};
    return ct_chain_of(params, lr, chain, with_user ? 5 : 4, CT_HERE);
}

static void a_parameter_is_one_node(void **state) {
    (void)state;
    problem p = make_problem(), q = make_problem();
    ct_optim *composed = adamw_chain(p.params, false), *plain = adamw_chain(q.params, true);
    assert_non_null(composed);
    assert_non_null(plain);
    uint64_t launches[2], nodes[2];
    for (int i = 0; i < STEPS; i++) {
        ct_stats start = ct_get_stats();
        {
            CT_SCOPE;
            ct_tensor loss = loss_of(&p);
            uint64_t before = ct_get_stats().nodes;
            ct_optim_step(composed, loss);
            nodes[0] = ct_get_stats().nodes - before;
        }
        ct_stats middle = ct_get_stats();
        {
            CT_SCOPE;
            ct_tensor loss = loss_of(&q);
            uint64_t before = ct_get_stats().nodes;
            ct_optim_step(plain, loss);
            nodes[1] = ct_get_stats().nodes - before;
        }
        launches[0] = middle.launches - start.launches;
        launches[1] = ct_get_stats().launches - middle.launches;
    }
    assert_string_equal(ct_error_text(), "");
    assert_int_equal(launches[0], launches[1]);
    // grad, norm, the step's number and its cast, 13 of numbers; and a parameter each
    assert_int_equal(nodes[0], 17 + 2);
    assert_int_equal(nodes[1], 17 + 15 + 15 + 2); // one of two decays
    CT_SCOPE;
    const char *names[] = {"exp_avg.w", "exp_avg_sq.w"};
    assert_memory_equal(ct_data(p.w), ct_data(q.w), N * sizeof(float));
    assert_memory_equal(ct_data(p.b), ct_data(q.b), COLS * sizeof(float));
    for (int k = 0; k < 2; k++)
        assert_memory_equal(ct_data(ct_params_find(ct_optim_state(composed), names[k])),
                            ct_data(ct_params_find(ct_optim_state(plain), names[k])),
                            N * sizeof(float));
    ct_optim_free(composed);
    ct_optim_free(plain);
    ct_params_free(p.params);
    ct_params_free(q.params);
}

// sum(x w) has the gradient x, so w becomes w - lr (x + decay w): what is computed from the new w
// depends on x, and reading it in the same scope gives the new one.
static void a_gradient_goes_through_an_update(void **state) {
    (void)state;
    problem p = make_problem();
    ct_optim *optim = ct_sgd(p.params, .lr = 0.5, .weight_decay = CT_F(0.1));
    double w1[N];
    {
        CT_SCOPE;
        ct_tensor x = ct_from(p.a, CT_F32, CT_DIMS(ROWS, COLS)), of_x;
        ct_optim_step(optim, ct_add(ct_sum(ct_mul(x, p.w)), ct_sum(p.b)));
        ct_grad(ct_sum(ct_mul(p.w, p.w)), &x, 1, &of_x);
        const float *got = ct_data(of_x), *now = ct_data(p.w);
        assert_string_equal(ct_error_text(), "");
        for (int i = 0; i < N; i++) {
            w1[i] = p.w0[i] - 0.5 * ((double)p.a[i] + 0.1 * p.w0[i]);
            assert_true(fabs((double)now[i] - w1[i]) < 1e-6);
            assert_true(fabs((double)got[i] + w1[i]) < 1e-5); // 2 w1 times -0.5
        }
    }
    compare(p.w, w1, N);
    ct_optim_free(optim);
    ct_params_free(p.params);
}

// f16 and bf16 variables are updated in f32 and rounded once.
static void halves_are_updated_in_f32(void **state) {
    (void)state;
    const ct_dtype dtypes[] = {CT_F16, CT_BF16};
    for (int d = 0; d < 2; d++) {
        ct_params *params = ct_params_new();
        ct_tensor w = ct_param(params, "w", dtypes[d], CT_DIMS(2));
        float start[2] = {1, -0.5f};
        {
            CT_SCOPE;
            ct_assign(w, ct_from(start, CT_F32, CT_DIMS(2)));
        }
        ct_optim *optim = ct_sgd(params, .lr = 0.25, .momentum = 0.5, .weight_decay = CT_F(1.0),
                                 .decay_mask = ct_mask_all);
        for (int i = 0; i < 2; i++) {
            CT_SCOPE;
            ct_optim_step(optim, ct_sum(ct_mul(ct_cast(w, CT_F32), ct_f(2))));
        }
        CT_SCOPE;
        const float *got = ct_data(ct_cast(w, CT_F32));
        assert_string_equal(ct_error_text(), "");
        for (int i = 0; i < 2; i++) {
            double x = (double)start[i], b = 2 + x;
            x -= 0.25 * b;
            b = 0.5 * b + 2 + x;
            assert_true(fabs((double)got[i] - (x - 0.25 * b)) < 4e-3);
        }
        ct_optim_free(optim);
        ct_params_free(params);
    }
}

// A step whose plan does not run leaves the count, and so the learning rate, where they were.
static void a_step_counts_when_it_ran(void **state) {
    (void)state;
    problem p = make_problem(), q = make_problem();
    ct_optim *a = ct_adamw(p.params, .schedule = {.lr = 0.1, .warmup = 5});
    ct_optim *b = ct_adamw(q.params, .schedule = {.lr = 0.1, .warmup = 5});
    step(a, &p), step(b, &q);
    double rate = ct_optim_lr(a);
    {
        CT_SCOPE;
        ct_optim_step(a, loss_of(&p));
        assert_int_equal(ct_optim_step_count(a), 2); // recorded
        assert_true(ct_optim_lr(a) > rate);
        (void)ct_add(p.w, ct_zeros(CT_F32, CT_DIMS(4))); // an error: the scope's plan is given up
    }
    assert_true(ct_failed());
    ct_error_clear();
    assert_int_equal(ct_optim_step_count(a), 1);
    assert_true(fabs(ct_optim_lr(a) - rate) <= 0);
    for (int i = 0; i < 3; i++) { // two steps in one scope are two steps
        CT_SCOPE;
        ct_optim_step(a, loss_of(&p)), ct_optim_step(b, loss_of(&q));
        ct_optim_step(a, loss_of(&p)), ct_optim_step(b, loss_of(&q));
        assert_int_equal(ct_optim_step_count(a), 3 + 2 * i);
    }
    assert_string_equal(ct_error_text(), "");
    assert_int_equal(ct_optim_step_count(a), 7);
    CT_SCOPE;
    assert_true(ct_item(ct_params_find(ct_optim_state(a), "step")) == 7);
    assert_memory_equal(ct_data(p.w), ct_data(q.w), N * sizeof(float));
    ct_optim_free(a);
    ct_optim_free(b);
    ct_params_free(p.params);
    ct_params_free(q.params);
}

static void refuses_what_it_cannot_optimize(void **state) {
    (void)state;
    ct_params *params = ct_params_new();
    assert_null(ct_sgd(params, .lr = 0.1));
    assert_non_null(strstr(ct_error_text(), "optim: there are no variables to optimize"));
    ct_error_clear();
    ct_param(params, "counts", CT_I32, CT_DIMS(3));
    assert_null(ct_sgd(params, .lr = 0.1));
    assert_non_null(
        strstr(ct_error_text(), "optim: variable \"counts\" is i32, it must be of floats"));
    ct_error_clear();
    ct_params_free(params);
    problem p = make_problem();
    assert_null(ct_chain(p.params, (ct_schedule){.lr = 1}, ct_trace(0.1, false),
                         ct_trace(0.2, false))); // both would own momentum_buffer
    assert_non_null(strstr(ct_error_text(), "\"momentum_buffer.w\" is taken"));
    ct_error_clear();
    ct_params_free(p.params);
}

static void refuses_numbers_that_learn_nothing(void **state) {
    (void)state;
    problem p = make_problem();
    const ct_loc here = {"main.c", 7};
    const struct {
        ct_optim_options o;
        const char *text;
    } cases[] = {
        {{.here = here},
         "main.c:7: optim: the learning rate is 0, it must be above 0\n  hint: set .lr, or "
         ".schedule"},
        {{.lr = -1, .here = here},
         "main.c:7: optim: the learning rate is -1, it must be above 0\n  hint: set .lr, or "
         ".schedule"},
        {{.lr = 1, .beta1 = CT_F(1.5), .here = here},
         "main.c:7: optim: beta1 is 1.5, it must be 0 or more and below 1"},
        {{.lr = 1, .weight_decay = {-0.1, false}, .here = here},
         "main.c:7: optim: weight_decay is -0.1, it must be 0 or more and finite"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_null(ct_adamw_with(p.params, cases[i].o));
        assert_string_equal(ct_error_text(), cases[i].text);
        ct_error_clear();
    }
    assert_null(ct_sgd(p.params));
    assert_int_equal(ct_error_code(), CT_E_ARGUMENT);
    ct_error_clear();
    assert_null(ct_sgd_with(p.params, (ct_optim_options){.lr = 1, .nesterov = true, .here = here}));
    assert_string_equal(ct_error_text(), "main.c:7: optim: nesterov needs a momentum above 0");
    ct_error_clear();
    ct_params_free(p.params);
}

static double no_rate(int64_t step, void *user) {
    (void)step, (void)user;
    return 0;
}

static void refuses_schedules_that_learn_nothing(void **state) {
    (void)state;
    problem p = make_problem();
    const ct_loc here = {"main.c", 8};
    const struct {
        ct_schedule schedule;
        const char *text; // NULL: taken
    } cases[] = {
        {{.shape = CT_LR_COSINE, .lr = 0.1},
         "the schedule's steps are 0, they must be more than its warmup, 0"},
        {{.shape = CT_LR_LINEAR, .lr = 0.1, .warmup = 2, .steps = 2},
         "the schedule's steps are 2, they must be more than its warmup, 2"},
        {{.shape = CT_LR_COSINE, .lr = 0.1, .min_lr = (double)NAN, .steps = 9},
         "the schedule's min_lr is nan, it must be 0 or more and finite"},
        {{.shape = CT_LR_LINEAR, .lr = 0.1, .min_lr = -1, .steps = 9},
         "the schedule's min_lr is -1, it must be 0 or more and finite"},
        {{.lr = 0.1, .warmup = -1}, "the schedule's warmup is -1, it must be 0 or more"},
        {{.shape = CT_LR_LINEAR, .lr = 0.1, .warmup = 2, .steps = 3}, NULL},
        {{.shape = CT_LR_CONSTANT, .lr = 0.1, .min_lr = -1, .warmup = 2}, NULL},
        {{.shape = CT_LR_COSINE, .custom = no_rate}, NULL},
    };
    ct_optim *other = ct_sgd(p.params, .lr = 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[128];
        snprintf(text, sizeof text, "main.c:8: optim: %s", cases[i].text ? cases[i].text : "");
        ct_optim *made =
            ct_sgd_with(p.params, (ct_optim_options){.schedule = cases[i].schedule, .here = here});
        assert_true(!made == !!cases[i].text);
        assert_string_equal(ct_error_text(), cases[i].text ? text : "");
        ct_error_clear();
        assert_true(ct_optim_set_schedule_at(other, cases[i].schedule, here) == !cases[i].text);
        assert_string_equal(ct_error_text(), cases[i].text ? text : "");
        ct_error_clear();
        ct_optim_free(made);
    }
    ct_optim_free(other);
    ct_params_free(p.params);
}

// A number may stand without CT_F, but for 0.
static void numbers_without_a_wrapper_count(void **state) {
    (void)state;
    CT_SCOPE;
    const float minus[] = {-1};
    ct_tensor x = ct_from(minus, CT_F32, CT_DIMS(1));
    assert_true(ct_item(ct_leaky_relu_with((ct_leaky_relu_args){x, .slope = {0.5, false}})) ==
                -0.5);
    assert_true(ct_item(ct_leaky_relu(x, .slope = CT_F(0))) == 0);
    assert_true(fabs(ct_item(ct_leaky_relu(x)) + 0.01) < 1e-8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd_follows_its_formula),
        cmocka_unit_test(adam_follows_its_formula),
        cmocka_unit_test(defaults_are_those_of_the_manual),
        cmocka_unit_test(clipping_has_the_epsilon_of_the_manual),
        cmocka_unit_test(a_chain_is_what_it_is_made_of),
        cmocka_unit_test(schedules_follow_their_formulas),
        cmocka_unit_test(a_changing_rate_makes_no_plan),
        cmocka_unit_test(state_has_names_and_can_be_resumed),
        cmocka_unit_test(a_failed_loss_changes_nothing),
        cmocka_unit_test(a_parameter_is_one_node),
        cmocka_unit_test(a_gradient_goes_through_an_update),
        cmocka_unit_test(halves_are_updated_in_f32),
        cmocka_unit_test(a_step_counts_when_it_ran),
        cmocka_unit_test(refuses_what_it_cannot_optimize),
        cmocka_unit_test(refuses_numbers_that_learn_nothing),
        cmocka_unit_test(refuses_schedules_that_learn_nothing),
        cmocka_unit_test(numbers_without_a_wrapper_count),
    };
    const char *const devices[] = {"ref", "cpu"};
    int failed = 0;
    for (int i = 0; i < 2; i++) {
        print_message("on %s\n", devices[i]);
        failed += ct_set_device(devices[i]) ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
    }
    return failed;
}
