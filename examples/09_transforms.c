// Functions of functions: the gradient of every sample at once, and Newton's method by a Hessian.
#include <cotan/cotan.h>
#include <math.h>
#include <stdio.h>

// Hours of study, and whether the exam was passed.
enum { N = 10 };
static const float hours[N] = {0.5f, 1, 1.5f, 2, 2.5f, 3, 3.5f, 4, 4.5f, 5};
static const float passed[N] = {0, 0, 0, 1, 0, 0, 1, 1, 1, 1};

// in: weights (2,), hours (), passed () -> the loss of the sample, ()
static void sample_loss(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    ct_tensor slope = ct_slice(in[0], .stop = CT_INTS(1)); // (1,)
    ct_tensor level = ct_slice(in[0], .start = CT_INTS(1));
    ct_tensor score = ct_sum(ct_add(ct_mul(slope, in[1]), level)); // ()
    out[0] = ct_sub(ct_softplus(score), ct_mul(score, in[2]));
}

// The same of all samples: the weights are one for all, the others have axis 0 for the samples.
static void mean_loss(const ct_tensor *in, ct_tensor *out, void *user) {
    ct_tensor losses; // (N,)
    ct_vmap(sample_loss, user, in, 3, &losses, 1, .in_axes = CT_AXES(CT_NO_AXIS, 0, 0));
    out[0] = ct_mean(losses);
}

static void sample_gradient(const ct_tensor *in, ct_tensor *out, void *user) {
    ct_tensor loss, grads[3];
    ct_value_and_grad(sample_loss, user, in, 3, &loss, 1, grads);
    out[0] = grads[0]; // (2,); the others are not computed
}

int main(void) {
    CT_SCOPE;
    ct_tensor w = ct_zeros(CT_F32, CT_DIMS(2)), each;
    const ct_tensor x = ct_from(hours, CT_F32, CT_DIMS(N)), y = ct_from(passed, CT_F32, CT_DIMS(N));
    for (int step = 0; step < 8 && !ct_failed(); step++) {
        ct_tensor in[] = {w, x, y}, loss, grads[3], hessians[9];
        ct_value_and_grad(mean_loss, NULL, in, 3, &loss, 1, grads);
        ct_hessian(mean_loss, NULL, in, 3, &loss, 1, hessians); // the first: (2, 2), of w and w
        const float *g = ct_data(grads[0]), *h = ct_data(hessians[0]), *at = ct_data(w);
        if (!g || !h || !at) break;
        float det = h[0] * h[3] - h[1] * h[2];
        const float next[2] = {at[0] - (h[3] * g[0] - h[1] * g[1]) / det,
                               at[1] - (h[0] * g[1] - h[2] * g[0]) / det};
        printf("step %d  loss %.5f\n", step, ct_item(loss));
        w = ct_from(next, CT_F32, CT_DIMS(2));
    }
    ct_tensor in[] = {w, x, y};
    ct_vmap(sample_gradient, NULL, in, 3, &each, 1, .in_axes = CT_AXES(CT_NO_AXIS, 0, 0)); // (N, 2)
    const float *g = ct_data(each);
    if (!g) return fprintf(stderr, "%s\n", ct_error_text()), 1;
    float sum[2] = {0, 0};
    for (int i = 0; i < N; i++) {
        printf("%.1f h, %s: pulls by %+.3f\n", (double)hours[i],
               passed[i] > 0 ? "passed" : "failed", (double)-g[2 * i + 1]);
        for (int k = 0; k < 2; k++) sum[k] += g[2 * i + k];
    }
    return fabsf(sum[0]) < 1e-4f && fabsf(sum[1]) < 1e-4f ? 0
                                                          : 1; // at the best weights they cancel
}
