// Gradients in 20 lines: f = x * exp(x) has f' = (1 + x) * exp(x) and f'' = (2 + x) * exp(x).
#include <cotan/cotan.h>
#include <stdio.h>

int main(void) {
    CT_SCOPE;
    float data[] = {0.0f, 0.5f, 1.0f};
    ct_tensor x = ct_from(data, CT_F32, CT_DIMS(3)); // (3,)
    ct_tensor loss = ct_sum(ct_mul(x, ct_exp(x)));   // ()
    ct_tensor slope, bend;                           // (3,)
    ct_grad(loss, &x, 1, &slope);                    // recorded, like any op
    ct_grad(ct_sum(slope), &x, 1, &bend);            // a gradient of a gradient
    const float *first = ct_data(slope), *second = ct_data(bend);
    if (ct_failed()) return fprintf(stderr, "%s\n", ct_error_text()), 1;
    for (int i = 0; i < 3; i++) {
        printf("x = %.1f  f' = %.4f  f'' = %.4f\n", data[i], first[i], second[i]);
    }
    return 0;
}
