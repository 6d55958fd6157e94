// Trains a linear model: the C program that the others here repeat.
#include <cotan/optim.h>
#include <stdio.h>

enum { N = 64 };

int main(void) {
    float xs[N][2], ys[N];
    for (int i = 0; i < N; i++) { // y = 2 a - 3 b + 1
        xs[i][0] = (float)(i % 8) / 8;
        xs[i][1] = (float)(i / 8) / 8;
        ys[i] = 2 * xs[i][0] - 3 * xs[i][1] + 1;
    }
    ct_params *params = ct_params_new();
    ct_tensor w = ct_param(params, "w", CT_F32, CT_DIMS(2, 1));
    ct_tensor b = ct_param(params, "b", CT_F32, CT_DIMS(1));
    ct_assign(w, ct_zeros(CT_F32, CT_DIMS(2, 1)));
    ct_assign(b, ct_zeros(CT_F32, CT_DIMS(1)));
    ct_optim *adam = ct_adam(params, .lr = 0.05);
    for (int step = 0; step < 400 && !ct_failed(); step++) {
        CT_SCOPE;
        ct_tensor x = ct_from(xs, CT_F32, CT_DIMS(N, 2)); // (64, 2)
        ct_tensor y = ct_from(ys, CT_F32, CT_DIMS(N, 1)); // (64, 1)
        ct_tensor loss = ct_mean(ct_square(ct_sub(ct_add(ct_matmul(x, w), b), y)));
        ct_optim_step(adam, loss);
        ct_metric("loss", loss);
    }
    {
        CT_SCOPE;
        const float *weights = ct_data(w), *bias = ct_data(b);
        if (weights && bias)
            printf("y = %.5f a + %.5f b + %.5f, loss %.2e\n", weights[0], weights[1], bias[0],
                   ct_metric_value("loss"));
    }
    bool failed = ct_failed();
    if (failed) fprintf(stderr, "%s\n", ct_error_text());
    ct_optim_free(adam);
    ct_params_free(params);
    return failed;
}
