// Convolutions beside the products of matrices that they are: ours alone, GFLOP/s.
//   conv [ROUNDS]
#include <cotan/cotan.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
typedef struct shape {
    const char *name;
    int64_t n, c, size, out, k, stride, pad;
} shape;
static const shape shapes[] = {
    {"issue", 32, 16, 32, 32, 3, 1, 1},    {"cifar1", 64, 64, 32, 64, 3, 1, 1},
    {"cifar2", 64, 128, 16, 128, 3, 1, 1}, {"cifar3", 64, 256, 8, 256, 3, 1, 1},
    {"cifar4", 64, 512, 4, 512, 3, 1, 1},  {"cifar2s", 64, 64, 32, 128, 3, 2, 1},
    {"stem224", 1, 3, 224, 64, 7, 2, 3},   {"r50a", 1, 64, 56, 64, 3, 1, 1},
    {"r50b", 1, 256, 14, 256, 3, 1, 1},    {"r50c", 1, 512, 7, 512, 3, 1, 1},
    {"r50p", 1, 1024, 14, 256, 1, 1, 0},
};

enum { FORWARD, INPUT, WEIGHT, PARTS };
static ct_tensor part(int which, ct_tensor x, ct_tensor w, const shape *s) {
    ct_tensor y = ct_conv(x, w, .stride = CT_INTS(s->stride), .padding = CT_INTS(s->pad));
    if (which == FORWARD) return y;
    ct_tensor loss = ct_sum(ct_mul(y, y)), of = which == INPUT ? x : w, d;
    ct_grad(loss, &of, 1, &d);
    return d;
}

static double one(int which, const shape *s, int rounds) {
    double best = 1e9;
    ct_tensor x, w;
    CT_SCOPE;
    ct_tensor key = ct_random_key(1);
    x = ct_random_normal(key, CT_DIMS(s->n, s->c, s->size, s->size));
    w = ct_random_normal(key, CT_DIMS(s->out, s->c, s->k, s->k));
    x = ct_keep(x), w = ct_keep(w);
    if (!ct_eval(&x, 1) || !ct_eval(&w, 1)) return 0;
    for (int i = 0; i < rounds; i++) {
        CT_SCOPE;
        ct_tensor y = ct_keep(part(which, x, w, s));
        double begin = now();
        if (!ct_eval(&y, 1)) return 0;
        double took = now() - begin;
        if (took < best) best = took;
        ct_drop(y);
    }
    return best;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 5;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const shape *s = &shapes[i];
        int64_t out = (s->size + 2 * s->pad - s->k) / s->stride + 1;
        double flops = 2.0 * (double)(s->n * out * out * s->out * s->c * s->k * s->k), t[PARTS];
        for (int p = 0; p < PARTS; p++) t[p] = one(p, s, rounds);
        printf("%-8s %8.2f GFLOP  forward %7.2f ms %6.1f GFLOP/s   with dx %7.2f ms   with dw "
               "%7.2f ms\n",
               s->name, flops * 1e-9, t[0] * 1e3, flops / t[0] * 1e-9, t[1] * 1e3, t[2] * 1e3);
        if (ct_failed()) {
            fprintf(stderr, "%s\n", ct_error_text());
            return 1;
        }
    }
}
