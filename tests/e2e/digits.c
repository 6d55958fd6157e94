// A network trained on digits in the current folder (images, labels: raw bytes, 64 a step), by the
// library, which writes its first weights (first) and the last ones; or, with WRITTEN, from those
// first ones by the step that examples/08_compile.c wrote, without the library. For
// test_compile.py.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 64, PIXELS = 28 * 28, HIDDEN = 512, WEIGHTS = PIXELS * HIDDEN + HIDDEN * 11 + 10 };
static unsigned char images[BATCH * PIXELS], labels[BATCH];

#ifdef WRITTEN
#include <mnist_step.h>

static unsigned char arena[MNIST_STEP_ARENA_BYTES] __attribute__((aligned(64)));
static float weights[WEIGHTS], moments[2][WEIGHTS], loss, grad_norm;
static int32_t step;

static struct mnist_step all_members(void) {
    enum { BIAS = PIXELS * HIDDEN, OUT = BIAS + HIDDEN, OUT_BIAS = OUT + HIDDEN * 10 };
    struct mnist_step s;
    mnist_step_init(&s);
    s.arena = arena;
    s.in_weight = weights, s.in_bias = weights + BIAS;
    s.out_weight = weights + OUT, s.out_bias = weights + OUT_BIAS;
    s.exp_avg_in_weight = moments[0], s.exp_avg_in_bias = moments[0] + BIAS;
    s.exp_avg_out_weight = moments[0] + OUT, s.exp_avg_out_bias = moments[0] + OUT_BIAS;
    s.exp_avg_sq_in_weight = moments[1], s.exp_avg_sq_in_bias = moments[1] + BIAS;
    s.exp_avg_sq_out_weight = moments[1] + OUT, s.exp_avg_sq_out_bias = moments[1] + OUT_BIAS;
    s.step = &step;
    s.images = images, s.labels = labels;
    s.loss = &loss, s.grad_norm = &grad_norm;
    return s;
}

int main(void) {
    FILE *x = fopen("images", "rb"), *y = fopen("labels", "rb"), *w = fopen("first", "rb");
    struct mnist_step s = all_members();
    if (!x || !y || !w || fread(weights, sizeof weights, 1, w) != 1) return 1;
    for (int i = 0; fread(images, sizeof images, 1, x) && fread(labels, BATCH, 1, y); i++) {
        s.learning_rate = i % 2 ? 1e-3f : 5e-4f;
        if (mnist_step(&s) != 0) return 1;
        printf("%a %a\n", (double)loss, (double)grad_norm);
    }
    FILE *out = fopen("last-written", "wb");
    return !(out && fwrite(weights, sizeof weights, 1, out) == 1 && fclose(out) == 0);
}

#else
#include <cotan/nn.h>
#include <cotan/optim.h>

static double rate(int64_t step, void *user) { return (void)user, step % 2 ? 1e-3f : 5e-4f; }

static int save(const ct_params *params, const char *path) {
    FILE *out = fopen(path, "wb");
    CT_SCOPE;
    for (size_t i = 0; out && i < ct_params_count(params); i++) {
        ct_tensor w = ct_params_get(params, i);
        const void *data = ct_data(w);
        if (!data || fwrite(data, 4, (size_t)ct_size(w), out) != (size_t)ct_size(w)) return 1;
    }
    return !(out && fclose(out) == 0);
}

int main(void) {
    FILE *x = fopen("images", "rb"), *y = fopen("labels", "rb");
    ct_params *params = ct_params_new();
    ct_nn_builder place = ct_nn_builder_for(params, 1);
    ct_nn_linear in = ct_nn_linear_new(ct_nn_builder_child(place, "in"), .in = PIXELS,
                                       .out = HIDDEN),
                 out = ct_nn_linear_new(ct_nn_builder_child(place, "out"), .in = HIDDEN, .out = 10);
    ct_optim *adamw = ct_adamw(params, .schedule = {.custom = rate});
    if (!x || !y || save(params, "first")) return 1;
    while (fread(images, sizeof images, 1, x) && fread(labels, BATCH, 1, y) && !ct_failed()) {
        {
            CT_SCOPE;
            ct_tensor batch = ct_from(images, CT_U8, CT_DIMS(BATCH, PIXELS));
            ct_tensor h = ct_div(ct_cast(batch, CT_F32), ct_f(255));
            h = ct_relu(ct_nn_linear_apply(&in, h));
            ct_tensor loss = ct_cross_entropy(ct_nn_linear_apply(&out, h),
                                              ct_from(labels, CT_U8, CT_DIMS(BATCH)));
            ct_metric("loss", loss);
            ct_optim_step(adamw, loss);
        }
        printf("%a %a\n", ct_metric_value("loss"), ct_metric_value("grad_norm"));
    }
    if (ct_failed()) fprintf(stderr, "%s\n", ct_error_text());
    int status = ct_failed() || save(params, "last");
    ct_optim_free(adamw);
    ct_params_free(params);
    fclose(x);
    fclose(y);
    return status;
}
#endif
