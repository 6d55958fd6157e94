// A line through points: gradient descent on two variables, checked against the closed form.
#include <cotan/cotan.h>
#include <math.h>
#include <stdio.h>

// Heights (in) and weights (lb) of American women, from The World Almanac and Book of Facts, 1975.
enum { N = 15 };
static const float heights[N] = {58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72};
static const float weights[N] = {115, 117, 120, 123, 126, 129, 132, 135,
                                 139, 142, 146, 150, 154, 159, 164};

int main(void) {
    CT_SCOPE;
    ct_tensor x = ct_from(heights, CT_F32, CT_DIMS(N)); // (N,)
    ct_tensor y = ct_from(weights, CT_F32, CT_DIMS(N)); // (N,)
    // Around the mean, so that slope and level do not disturb each other.
    ct_tensor mean_x = ct_mean(x), mean_y = ct_mean(y); // ()
    ct_tensor dx = ct_keep(ct_sub(x, mean_x));          // (N,)

    ct_params *params = ct_params_new();
    ct_tensor line[] = {ct_param(params, "slope", CT_F32, CT_SCALAR),
                        ct_param(params, "level", CT_F32, CT_SCALAR)};
    for (int i = 0; i < 2; i++) ct_assign(line[i], ct_f(0));
    for (int step = 0; step < 500 && !ct_failed(); step++) {
        CT_SCOPE; // at its end, what was recorded runs: one plan, compiled in the first step
        ct_tensor guess = ct_add(ct_mul(line[0], dx), line[1]); // (N,)
        ct_tensor loss = ct_mean(ct_square(ct_sub(guess, y)));  // ()
        ct_tensor slopes[2];
        ct_grad(loss, line, 2, slopes);
        for (int i = 0; i < 2; i++)
            ct_assign(line[i], ct_sub(line[i], ct_mul(ct_f(0.02), slopes[i])));
        ct_metric("loss", loss);
    }

    // The least squares: covariance / variance, and the mean.
    ct_tensor best = ct_div(ct_sum(ct_mul(dx, ct_sub(y, mean_y))), ct_sum(ct_square(dx)));
    double slope = ct_item(line[0]), level = ct_item(line[1]);
    double want[] = {ct_item(best), ct_item(mean_y)};
    printf("loss         %.4f\n", ct_metric_value("loss"));
    printf("descended    weight = %.3f * (height - %.1f) + %.3f\n", slope, ct_item(mean_x), level);
    printf("closed form  weight = %.3f * (height - %.1f) + %.3f\n", want[0], ct_item(mean_x),
           want[1]);
    ct_params_free(params);
    if (ct_failed()) return fprintf(stderr, "%s\n", ct_error_text()), 1;
    return fabs(slope - want[0]) < 1e-4 && fabs(level - want[1]) < 1e-3 ? 0 : 1;
}
