// Compares the max pool of a ResNet, 3 x 3 with stride 2, and its gradient with plain C: a loop
// nest that stores the index of the largest tap, and one that scatters the gradient by it.
//   build/bench/pooling [ROUNDS] [IMAGES]
// Both run alternately on one thread; prints the medians and their ratio.
#include <cotan/cotan.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"

enum { CHANNELS = 64, SIDE = 112, OUT = SIDE / 2, KERNEL = 3, MAX_ROUNDS = 200 };

static int images = 16;

// Pools x (n, SIDE, SIDE) to y and taps (n, OUT, OUT).
static void pooling_plain_forward(const float *restrict x, float *restrict y,
                                  unsigned char *restrict tap, int n) {
    for (int c = 0; c < n; c++)
        for (int i = 0; i < OUT; i++)
            for (int j = 0; j < OUT; j++) {
                float best = -INFINITY;
                int at = 0;
                for (int t = 0; t < KERNEL * KERNEL; t++) {
                    const int row = 2 * i - 1 + t / KERNEL, column = 2 * j - 1 + t % KERNEL;
                    if (row < 0 || row >= SIDE || column < 0 || column >= SIDE) continue;
                    const float v = x[((size_t)c * SIDE + (size_t)row) * SIDE + (size_t)column];
                    if (v > best || (v != v && best == best)) best = v, at = t;
                }
                y[((size_t)c * OUT + (size_t)i) * OUT + (size_t)j] = best;
                tap[((size_t)c * OUT + (size_t)i) * OUT + (size_t)j] = (unsigned char)at;
            }
}
static void pooling_plain_gradient(const float *restrict dy, const unsigned char *restrict tap,
                                   float *restrict dx, int n) {
    memset(dx, 0, (size_t)n * SIDE * SIDE * sizeof *dx);
    for (int c = 0; c < n; c++)
        for (int i = 0; i < OUT; i++)
            for (int j = 0; j < OUT; j++) {
                const size_t from = ((size_t)c * OUT + (size_t)i) * OUT + (size_t)j;
                const int row = 2 * i - 1 + tap[from] / KERNEL,
                          column = 2 * j - 1 + tap[from] % KERNEL;
                dx[((size_t)c * SIDE + (size_t)row) * SIDE + (size_t)column] += dy[from];
            }
}

static ct_tensor pooling_max_pool(ct_tensor x) {
    return ct_max_pool(x, .kernel = CT_DIMS(KERNEL, KERNEL), .stride = CT_DIMS(2),
                       .padding = CT_DIMS(1));
}

static int pooling_compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}
static double pooling_median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, pooling_compare_doubles);
    return v[n / 2];
}

int main(int argc, char **argv) {
    const int rounds = argc > 1 ? atoi(argv[1]) : 21;
    if (argc > 2) images = atoi(argv[2]);
    if (rounds < 1 || rounds > MAX_ROUNDS || images < 1)
        return fprintf(stderr, "1 to %d rounds\n", MAX_ROUNDS), 2;
    setenv("COTAN_COMPILE", "wait", 1);
    ct_set_threads(1);
    static double ours[2][MAX_ROUNDS], plain[2][MAX_ROUNDS];
    const int n = images * CHANNELS;
    ct_tensor x = ct_random_normal(ct_random_key(1), CT_DIMS(images, CHANNELS, SIDE, SIDE));
    ct_tensor dy = ct_random_normal(ct_random_key(2), CT_DIMS(images, CHANNELS, OUT, OUT));
    ct_tensor both[2] = {x, dy};
    const float *of_x = ct_eval(both, 2) ? ct_data(x) : NULL, *of_dy = of_x ? ct_data(dy) : NULL;
    float *y = malloc((size_t)n * OUT * OUT * sizeof *y),
          *dx = malloc((size_t)n * SIDE * SIDE * sizeof *dx);
    unsigned char *tap = malloc((size_t)n * OUT * OUT);
    if (!of_dy || !y || !dx || !tap) return fprintf(stderr, "%s\n", ct_error_text()), 1;
    bool same = true;
    for (int i = -2; i < rounds; i++) { // the first two are warm-up
        double at[5];
        CT_SCOPE;
        at[0] = ct__now();
        ct_tensor own_y = pooling_max_pool(x), own_dx;
        if (!ct_eval(&own_y, 1)) break;
        at[1] = ct__now();
        pooling_plain_forward(of_x, y, tap, n);
        at[2] = ct__now();
        ct_grad(ct_sum(ct_mul(pooling_max_pool(x), dy)), &x, 1, &own_dx);
        if (!ct_eval(&own_dx, 1)) break;
        at[3] = ct__now();
        pooling_plain_forward(of_x, y, tap, n);
        pooling_plain_gradient(of_dy, tap, dx, n);
        at[4] = ct__now();
        for (int k = 0; k < 2 && i >= 0; k++) {
            ours[k][i] = at[2 * k + 1] - at[2 * k];
            plain[k][i] = at[2 * k + 2] - at[2 * k + 1];
        }
        same = same && memcmp(ct_data(own_y), y, (size_t)n * OUT * OUT * sizeof *y) == 0;
        const float *g = ct_data(own_dx);
        for (size_t e = 0; e < (size_t)n * SIDE * SIDE && same; e++)
            same = fabsf(g[e] - dx[e]) < 1e-5f;
    }
    if (ct_failed()) return fprintf(stderr, "%s\n", ct_error_text()), 1;
    printf("%-24s %8s %8s %7s\n", "one thread", "ours ms", "plain", "ratio");
    for (int k = 0; k < 2; k++) {
        const double a = pooling_median(ours[k], rounds), b = pooling_median(plain[k], rounds);
        printf("%-24s %8.2f %8.2f %7.2f\n", k ? "forward and gradient" : "forward", a * 1e3,
               b * 1e3, a / b);
    }
    if (!same) printf("the results differ\n");
    return !same;
}
