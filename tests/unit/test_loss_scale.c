// Scaling of the loss: the sequence of scales over steps whose gradients are not finite, which change
// nothing; the bits of a step without it; parts of a step; a fit that goes on; numbers that are refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "cotan/cotan.h"
#include "cotan/optim.h"
#include "cotan/train.h"

enum { N = 37, STEPS = 16 };

typedef struct {
    ct_params *params;
    ct_tensor w;
    int64_t broken[4]; // steps whose loss is infinite; -1: none
} problem;

static void begin(problem *p) {
    float w[N];
    for (int i = 0; i < N; i++) w[i] = (float)(0.3 * i - 2);
    p->params = ct_params_new();
    p->w = ct_param(p->params, "w", CT_F32, CT_DIMS(N));
    CT_SCOPE;
    ct_assign(p->w, ct_from(w, CT_F32, CT_DIMS(N)));
}

static bool is_broken(const problem *p, int64_t step) {
    for (int i = 0; i < 4; i++)
        if (p->broken[i] == step) return true;
    return false;
}

static ct_tensor loss_of(int64_t step, void *user) {
    const problem *p = user;
    ct_tensor cube = ct_mul(ct_mul(p->w, p->w), p->w);
    return ct_mul(ct_sum(cube), ct_f(is_broken(p, step) ? INFINITY : 0.25 + 0.01 * (double)step));
}

static void step(ct_optim *optim, problem *p, int64_t k) {
    CT_SCOPE;
    ct_optim_step(optim, loss_of(k, p));
}

static void same_bits(ct_tensor a, ct_tensor b) {
    CT_SCOPE;
    const float *x = ct_data(a), *y = ct_data(b);
    assert_non_null(x);
    assert_non_null(y);
    assert_memory_equal(x, y, N * sizeof *x);
}

static double state_of(ct_optim *optim, const char *name) {
    CT_SCOPE;
    return ct_item(ct_params_find(ct_optim_state(optim), name));
}

// A power of two changes no bit, and a step that is left out is as good as none: the parameters are those
// of an optimizer that never saw it. The scales are those of PyTorch's rule (torch.amp.GradScaler).
static void test_the_sequence(void **state) {
    (void)state;
    problem p = {.broken = {2, 7, 8, -1}}, q = {.broken = {-1, -1, -1, -1}};
    begin(&p);
    begin(&q);
    ct_optim *scaled =
        ct_adamw(p.params, .lr = 0.01, .clip = 3, .loss_scale = {.initial = 1024, .interval = 3});
    ct_optim *plain = ct_adamw(q.params, .lr = 0.01, .clip = 3);
    double scale = 1024;
    int good = 0, skipped = 0;
    for (int64_t k = 0; k < STEPS; k++) {
        step(scaled, &p, k);
        assert_string_equal(ct_error_text(), "");
        if (is_broken(&p, k)) {
            scale *= 0.5;
            good = 0;
            skipped++;
            assert_false(isfinite(ct_metric_value("grad_norm")));
        } else {
            step(plain, &q, k);
            if (++good == 3) scale *= 2, good = 0;
        }
        assert_true(ct_metric_value("loss_scale") == scale);
        assert_true(state_of(scaled, "loss_scale") == scale);
        assert_true(state_of(scaled, "good_steps") == good);
        assert_true(state_of(scaled, "skipped") == skipped);
        assert_true(state_of(scaled, "step") == (double)k + 1);
        same_bits(p.w, q.w);
        same_bits(ct_params_find(ct_optim_state(scaled), "exp_avg_sq.w"),
                  ct_params_find(ct_optim_state(plain), "exp_avg_sq.w"));
    }
    ct_optim_free(scaled);
    ct_optim_free(plain);
    ct_params_free(p.params);
    ct_params_free(q.params);
}

// One part that overflows leaves the whole step out.
static void test_parts(void **state) {
    (void)state;
    problem p = {.broken = {1, -1, -1, -1}}, q = {.broken = {-1, -1, -1, -1}};
    begin(&p);
    begin(&q);
    ct_optim *optim = ct_sgd(p.params, .lr = 0.01, .loss_scale.initial = 256);
    for (int64_t k = 0; k < 4; k++) {
        CT_SCOPE;
        if (k % 2)
            ct_optim_step(optim, loss_of(k, &p));
        else
            ct_optim_accumulate(optim, loss_of(k == 0 ? 1 : k, &p));
    }
    ct_optim *plain = ct_sgd(q.params, .lr = 0.01);
    {
        CT_SCOPE;
        ct_optim_accumulate(plain, loss_of(2, &q));
    }
    step(plain, &q, 3);
    same_bits(p.w, q.w);
    assert_true(state_of(optim, "loss_scale") == 128);
    ct_optim_free(optim);
    ct_optim_free(plain);
    ct_params_free(p.params);
    ct_params_free(q.params);
}

// The scale finds its way from far too large; a model that gives no finite loss at all ends the fit.
static void test_a_fit_recovers(void **state) {
    (void)state;
    problem p = {.broken = {0, 1, 5, -1}};
    begin(&p);
    ct_optim *optim = ct_sgd(p.params, .lr = 1e-3, .loss_scale.initial = 16);
    ct_fit_options o = {.steps = STEPS, .optim = optim, .loss = loss_of, .user = &p};
    assert_true(ct_fit(&o));
    assert_true(state_of(optim, "skipped") == 3);
    assert_true(state_of(optim, "loss_scale") == 2);
    memcpy(p.broken, ((int64_t[]){0, 1, 2, 3}), sizeof p.broken);
    assert_false(ct_fit_at(&o, (ct_loc){"main.c", 9}));
    assert_string_equal(ct_error_text(),
                        "main.c:9: train: the loss is infinite at step 1\n"
                        "  hint: a smaller learning rate, a longer warm-up or clipping may help");
    ct_error_clear();
    ct_optim_free(optim);
    ct_params_free(p.params);
}

// The root's slope at 0 is infinite, and times 0 not a number: the loss is 0, and nothing can be learned.
static ct_tensor loss_without_gradients(int64_t batch, void *user) {
    const problem *p = user;
    (void)batch;
    return ct_sum(ct_sqrt(ct_mul(p->w, ct_f(0))));
}
static void test_gradients_that_are_never_finite_end_a_fit(void **state) {
    (void)state;
    problem p = {0};
    begin(&p);
    ct_optim *optim = ct_sgd(p.params, .lr = 1e-3, .loss_scale.initial = 16);
    ct_fit_options o = {.steps = 60, .optim = optim, .loss = loss_without_gradients, .user = &p};
    assert_false(ct_fit_at(&o, (ct_loc){"main.c", 9}));
    assert_string_equal(ct_error_text(),
                        "main.c:9: train: the gradients are not finite at step 44, whatever the "
                        "scale of the loss, which has fallen to 4.5e-13");
    ct_error_clear();
    ct_optim_free(optim);
    ct_params_free(p.params);
}

static void test_numbers_that_are_refused(void **state) {
    (void)state;
    const struct {
        ct_loss_scale scale;
        const char *text;
    } cases[] = {
        {{.initial = -1}, "the loss scale begins at -1, it must be above 0 and an f32"},
        {{.initial = 1e39}, "the loss scale begins at 1e+39, it must be above 0 and an f32"},
        {{.initial = 1e-60}, "the loss scale begins at 1e-60, it must be above 0 and an f32"},
        {{.initial = 2, .growth = 1e300},
         "the loss scale grows by 1e+300 and backs off by 0.5, they must be 1 or more, and above 0 "
         "and "
         "below 1"},
        {{.initial = 2, .growth = 0.5},
         "the loss scale grows by 0.5 and backs off by 0.5, they must be 1 or more, and above 0 "
         "and "
         "below 1"},
        {{.initial = 2, .backoff = 1},
         "the loss scale grows by 2 and backs off by 1, they must be 1 or more, and above 0 and "
         "below "
         "1"},
        {{.initial = 2, .interval = -3},
         "the loss scale grows after -3 steps, it must be 1 or more"}};
    problem p = {0};
    begin(&p);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256] = "main.c:7: optim: ";
        ct_optim_options o = {.lr = 1, .loss_scale = cases[i].scale, .here = {"main.c", 7}};
        assert_null(ct_sgd_with(p.params, o));
        strcat(text, cases[i].text);
        assert_string_equal(ct_error_text(), text);
        ct_error_clear();
    }
    ct_params_free(p.params);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_sequence),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_a_fit_recovers),
        cmocka_unit_test(test_gradients_that_are_never_finite_end_a_fit),
        cmocka_unit_test(test_numbers_that_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
