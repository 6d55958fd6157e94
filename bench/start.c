// How soon a program that was never met answers: from recording to its value, with no kernel compiled.
//   build/bench/start [PROGRAMS]
// Two small layers and a softmax over rows of ever new widths, the forward pass and with its gradient. The
// cache of kernels is an empty folder. The goal is 5 ms a first call; a second call is shown beside it.
#define _GNU_SOURCE
#include <cotan/cotan.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/os.h"

enum { ROWS = 8, HIDDEN = 16, CLASSES = 4, NARROWEST = 5, MOST = 1000 };

static float numbers[ROWS * (NARROWEST + MOST) * 8];

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Seconds from recording to the value.
static double call(int64_t width, bool gradient) {
    double begin = ct__now();
    CT_SCOPE;
    ct_tensor x = ct_from(numbers, CT_F32, CT_DIMS(ROWS, width));          // (ROWS, width)
    ct_tensor w1 = ct_from(numbers + 1, CT_F32, CT_DIMS(width, HIDDEN));   // (width, HIDDEN)
    ct_tensor w2 = ct_from(numbers + 2, CT_F32, CT_DIMS(HIDDEN, CLASSES)); // (HIDDEN, CLASSES)
    ct_tensor y = ct_matmul(ct_tanh(ct_matmul(x, w1)), w2);                // (ROWS, CLASSES)
    ct_tensor result = ct_mean(ct_square(ct_softmax(y, CT_AXES(1))));      // ()
    if (gradient) ct_grad(result, &w1, 1, &result);                        // (width, HIDDEN)
    if (!ct_data(result)) {
        fprintf(stderr, "start: %s\n", ct_error_text());
        exit(1);
    }
    return ct__now() - begin;
}

static void measure(int programs, bool gradient) {
    static double first[MOST], second[MOST];
    for (int i = 0; i < programs; i++) {
        first[i] = call(NARROWEST + i, gradient);
        second[i] = call(NARROWEST + i, gradient);
    }
    qsort(first, (size_t)programs, sizeof *first, ascending);
    qsort(second, (size_t)programs, sizeof *second, ascending);
    printf("%-12s first call %.2f ms (median), %.2f at most; second call %.2f ms (median)\n",
           gradient ? "gradient" : "forward", first[programs / 2] * 1e3, first[programs - 1] * 1e3,
           second[programs / 2] * 1e3);
}

int main(int argc, char **argv) {
    const int programs = argc > 1 ? atoi(argv[1]) : 50;
    char folder[] = "/tmp/cotan-bench-start-XXXXXX", command[64];
    if (programs < 1 || programs > MOST || !mkdtemp(folder)) {
        fprintf(stderr, "start: 1 to %d programs\n", MOST);
        return 2;
    }
    setenv("COTAN_CACHE_DIR", folder, 1);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        numbers[i] = (float)(i * 37 % 101) / 101 - 0.5f;
    if (!ct_set_device("cpu")) return 1;
    ct_set_log(NULL, NULL);
    measure(programs, false);
    measure(programs, true);
    ct_ctx_free(NULL);
    (void)!ct_shutdown();
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0;
}
