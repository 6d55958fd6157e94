// Compares AdamW with a loop in C over the same streams: for each parameter, w, its gradient, m and
// v are read and w, m and v are written, 28 bytes an element. The two run alternately.
//   adamw [--rounds N] [--threads T]
// Prints GB/s of both, the median of the pairs' time ratios, and whether the results agree.
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cotan/cotan.h"
#include "cotan/optim.h"

enum { MAX_ROUNDS = 101, STREAMS = 4, TENSORS = 5, MAX_THREADS = 64 };
// Shapes of the largest parameters of GPT-2 124M, 67 million elements: more than any cache holds.
static const int64_t shapes[TENSORS][2] = {
    {50257, 768}, {12 * 768, 768}, {4 * 768, 2304}, {4 * 768, 3072}, {4 * 768, 1000}};
static const double LR = 1e-3, BETA1 = 0.9, BETA2 = 0.999, EPS = 1e-8, DECAY = 0.1;

static double adamw_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static int adamw_compare_doubles(const void *a, const void *b) {
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}
static double adamw_median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, adamw_compare_doubles);
    return v[n / 2];
}

// ---------------------------------------------------------------------------------- the loop in C

typedef struct part {
    float *w, *m, *v;
    const float *g;
    int64_t n;
    float correction1, correction2; // bias corrections of the moments at this step
} part;

// Vectorised for this machine; limited by memory bandwidth.
#if defined __x86_64__ && !defined __clang__
__attribute__((optimize("O3"), target_clones("avx512f", "avx2", "default")))
#endif
static void *
adamw_update_part(void *arg) {
    const part *p = arg;
    const float lr = (float)LR, b1 = (float)BETA1, b2 = (float)BETA2, eps = (float)EPS,
                decay = (float)DECAY;
    float *restrict w = p->w, *restrict m = p->m, *restrict v = p->v;
    const float *restrict g = p->g;
    for (int64_t i = 0; i < p->n; i++) {
        const float mi = b1 * m[i] + (1 - b1) * g[i], vi = b2 * v[i] + (1 - b2) * g[i] * g[i];
        m[i] = mi;
        v[i] = vi;
        w[i] -= lr * (mi * p->correction1 / (sqrtf(vi * p->correction2) + eps) + decay * w[i]);
    }
    return NULL;
}

static void adamw_step_loop(float *const streams[STREAMS][TENSORS], int step, int threads) {
    for (int t = 0; t < TENSORS; t++) {
        const int64_t n = shapes[t][0] * shapes[t][1];
        pthread_t thread[MAX_THREADS];
        part parts[MAX_THREADS];
        for (int i = 0; i < threads; i++) {
            const int64_t from = n * i / threads, to = n * (i + 1) / threads;
            parts[i] = (part){streams[0][t] + from,
                              streams[1][t] + from,
                              streams[2][t] + from,
                              streams[3][t] + from,
                              to - from,
                              (float)(1 / (1 - pow(BETA1, step))),
                              (float)(1 / (1 - pow(BETA2, step)))};
            if (i) pthread_create(&thread[i], NULL, adamw_update_part, &parts[i]);
        }
        adamw_update_part(&parts[0]);
        for (int i = 1; i < threads; i++) pthread_join(thread[i], NULL);
    }
}

// ------------------------------------------------------------------------------------------ Cotan

static void adamw_step_plan(ct_optim *adamw, const ct_tensor *params, const ct_tensor *gradients) {
    CT_SCOPE;
    ct_tensor loss = ct_f(0); // its gradients are `gradients`
    for (int t = 0; t < TENSORS; t++) loss = ct_add(loss, ct_sum(ct_mul(params[t], gradients[t])));
    ct_optim_step(adamw, loss);
}

static float adamw_random(int64_t i, uint32_t seed) {
    uint32_t x = (uint32_t)i * 2654435761u + seed * 40503u;
    x ^= x >> 15;
    return (float)(x * 2246822519u >> 8) / (1 << 24) - 0.5f;
}

static bool adamw_measure(int rounds, int threads) {
    float *streams[STREAMS][TENSORS];
    ct_params *set = ct_params_new();
    ct_tensor params[TENSORS], gradients[TENSORS];
    double elements = 0;
    CT_SCOPE;
    for (int t = 0; t < TENSORS; t++) {
        const int64_t n = shapes[t][0] * shapes[t][1];
        char name[16];
        for (int s = 0; s < STREAMS; s++) {
            streams[s][t] = aligned_alloc(64, (size_t)(n + 16) / 16 * 64);
            if (!streams[s][t]) return false;
            for (int64_t i = 0; i < n; i++)
                streams[s][t][i] = s % 3 ? 0 : adamw_random(i, (uint32_t)s + 1);
        }
        snprintf(name, sizeof name, "w%d", t);
        params[t] = ct_param(set, name, CT_F32, CT_DIMS(shapes[t][0], shapes[t][1]));
        ct_assign(params[t], ct_from(streams[0][t], CT_F32, CT_DIMS(shapes[t][0], shapes[t][1])));
        gradients[t] = ct_from(streams[3][t], CT_F32, CT_DIMS(shapes[t][0], shapes[t][1]));
        if (!ct_eval(&params[t], 1)) return false;
        elements += (double)n;
    }
    ct_optim *adamw = ct_adamw(set, .lr = LR, .weight_decay = CT_F(DECAY));
    double loop[MAX_ROUNDS], plan[MAX_ROUNDS], ratio[MAX_ROUNDS];
    for (int r = -2; r < rounds; r++) { // the first two touch memory and compile
        double begin = adamw_now();
        adamw_step_plan(adamw, params, gradients);
        double middle = adamw_now();
        adamw_step_loop(streams, r + 3, threads);
        double end = adamw_now();
        if (r < 0) continue;
        plan[r] = middle - begin;
        loop[r] = end - middle;
        ratio[r] = loop[r] / plan[r];
    }
    const float *w = ct_data(params[1]);
    double worst = 0;
    for (int64_t i = 0; w && i < shapes[1][0] * shapes[1][1]; i++)
        worst = fmax(worst, fabs((double)w[i] - (double)streams[0][1][i]));
    const double bytes = elements * 28;
    printf("AdamW of %.1f million numbers, %d threads, %d pairs: %.1f GB/s by plan, %.1f by hand, "
           "bandwidth ratio %.3f; largest difference of a weight %.2g\n",
           elements / 1e6, threads, rounds, bytes / adamw_median(plan, rounds) / 1e9,
           bytes / adamw_median(loop, rounds) / 1e9, adamw_median(ratio, rounds), worst);
    ct_optim_free(adamw);
    ct_params_free(set);
    for (int s = 0; s < STREAMS; s++)
        for (int t = 0; t < TENSORS; t++) free(streams[s][t]);
    return w && worst < 1e-5;
}

int main(int argc, char **argv) {
    int rounds = 11, threads = 2;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--rounds")) rounds = atoi(argv[i + 1]);
        if (!strcmp(argv[i], "--threads")) threads = atoi(argv[i + 1]);
    }
    if (rounds < 1 || rounds > MAX_ROUNDS || threads < 1 || threads > MAX_THREADS) {
        fprintf(stderr, "adamw: rounds are 1 to %d, threads 1 to %d\n", MAX_ROUNDS, MAX_THREADS);
        return 1;
    }
    ct_set_threads(threads);
    const bool ok = adamw_measure(rounds, threads);
    if (ct_failed()) fprintf(stderr, "adamw: %s\n", ct_error_text());
    return ok && !ct_failed() ? 0 : 1;
}
