// A scan of a small body, tanh(c + x), beside itself with other lengths; bench/compare_scan has JAX's.
//   build/bench/scan [LENGTH] [WIDTH] [ROUNDS]
// Prints medians: forwards, the results stacked, and the value with both gradients, in milliseconds.
#include <cotan/cotan.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/os.h"

static void body(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = out[1] = ct_tanh(ct_add(in[0], in[1])); // (WIDTH,)
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Seconds of a run; negative: it failed.
static double run(ct_tensor c, ct_tensor xs, bool gradient) {
    CT_SCOPE;
    double begin = ct__now();
    ct_tensor last, ys, wrt[2] = {c, xs}, all[3];
    ct_scan(&last, &ys, .body = body, .carry = &c, .n_carry = 1, .xs = &xs, .n_xs = 1, .n_ys = 1);
    all[0] = gradient ? ct_sum(ys) : ys; // (LENGTH, WIDTH), or its sum
    if (gradient) ct_grad(all[0], wrt, 2, &all[1]);
    bool ok = ct_eval(all, gradient ? 3 : 1);
    return ok ? ct__now() - begin : -1;
}

static double median(ct_tensor c, ct_tensor xs, bool gradient, int rounds) {
    double *s = malloc((size_t)rounds * sizeof *s), m = -1;
    for (int i = -3; s && i < rounds; i++) { // the first ones plan and compile
        double t = run(c, xs, gradient);
        if (t < 0) rounds = 0;
        if (i >= 0) s[i] = t;
    }
    if (s && rounds) {
        qsort(s, (size_t)rounds, sizeof *s, by_size);
        m = s[rounds / 2];
    }
    free(s);
    return m;
}

int main(int argc, char **argv) {
    int64_t length = argc > 1 ? atoi(argv[1]) : 10000, width = argc > 2 ? atoi(argv[2]) : 64;
    int rounds = argc > 3 ? atoi(argv[3]) : 51;
    float *x = malloc((size_t)(length * width) * sizeof *x);
    if (!x) return 1;
    for (int64_t i = 0; i < length * width; i++) x[i] = sinf((float)i);
    CT_SCOPE;
    ct_tensor xs = ct_from(x, CT_F32, CT_DIMS(length, width)), c = ct_zeros(CT_F32, CT_DIMS(width));
    free(x);
    double forward = median(c, xs, false, rounds), both = median(c, xs, true, rounds);
    if (forward < 0 || both < 0) return fprintf(stderr, "%s\n", ct_error_text()), 1;
    printf("forward %.3f ms, gradient %.3f ms\n", forward * 1e3, both * 1e3);
    return 0;
}
