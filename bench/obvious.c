// Compares a straightforward program with the same one using ct_keep: an MLP on digits that are
// cast and normalised once, outside the loop, with a loss that is read occasionally.
//   build/bench/obvious [STEPS]
// Both must take the same time: values of outer scopes that a step uses are computed once.
#include <cotan/nn.h>
#include <cotan/optim.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/os.h"

enum { N = 4096, SIZE = 784, HIDDEN = 256, CLASSES = 10, BATCH = 128 };

static uint8_t pixels[N][SIZE];
static int32_t labels[N];

static void obvious_make_data(void) {
    uint32_t x = 1;
    for (int i = 0; i < N; i++) {
        labels[i] = i % CLASSES;
        for (int k = 0; k < SIZE; k++) {
            x = x * 1664525u + 1013904223u;
            pixels[i][k] = (uint8_t)((x >> 24) / 2 + (k % CLASSES == labels[i] ? 100u : 0u));
        }
    }
}

// Returns the seconds of `steps` steps after the first three, which make the plans; negative if it
// failed.
static double obvious_train(bool keeps, int steps) {
    CT_SCOPE;
    ct_params *params = ct_params_new();
    ct_nn_builder place = ct_nn_builder_for(params, 1);
    ct_nn_linear in = ct_nn_linear_new(ct_nn_builder_child(place, "in"), .in = SIZE, .out = HIDDEN);
    ct_nn_linear out =
        ct_nn_linear_new(ct_nn_builder_child(place, "out"), .in = HIDDEN, .out = CLASSES);
    ct_optim *adamw = ct_adamw(params, .lr = 1e-3);
    ct_tensor raw = ct_cast(ct_from(pixels, CT_U8, CT_DIMS(N, SIZE)), CT_F32); // (N, SIZE)
    ct_tensor mean = ct_mean(raw, .axes = CT_AXES(0)), off = ct_sub(raw, mean);
    ct_tensor x = ct_div(off, ct_sqrt(ct_add(ct_mean(ct_square(off)), ct_f(1e-5))));
    ct_tensor y = ct_from(labels, CT_I32, CT_DIMS(N));
    if (keeps) {
        x = ct_keep(x);
        if (!ct_eval(&x, 1)) return -1;
    }
    double begin = 0, last = 0;
    for (int step = 0; step < steps + 3 && !ct_failed(); step++) {
        CT_SCOPE;
        if (step == 3) begin = ct__now();
        ct_tensor at = ct_i(step * BATCH % N);
        ct_tensor rows = ct_add(ct_iota(CT_I32, CT_DIMS(BATCH), 0), at); // (BATCH,)
        ct_tensor bx = ct_gather(x, rows), by = ct_gather(y, rows);
        ct_tensor h = ct_relu(ct_nn_linear_apply(&in, bx)); // (BATCH, HIDDEN)
        ct_tensor loss = ct_cross_entropy(ct_nn_linear_apply(&out, h), by);
        ct_optim_step(adamw, loss);
        if (step % 50 == 49) last = ct_item(loss);
    }
    double seconds = ct__now() - begin;
    printf("%-8s %.3f s, loss %.4f, %d plans\n", keeps ? "ct_keep" : "obvious", seconds, last,
           (int)ct_get_stats().plans_made);
    ct_optim_free(adamw);
    ct_params_free(params);
    return ct_failed() ? -1 : seconds;
}

int main(int argc, char **argv) {
    int steps = argc > 1 ? atoi(argv[1]) : 300;
    obvious_make_data();
    double least[2] = {1e9, 1e9};
    for (int i = 0; i < 6; i++) {
        double s = obvious_train(i % 2, steps);
        if (s < 0) return fprintf(stderr, "%s\n", ct_error_text()), 1;
        if (s < least[i % 2]) least[i % 2] = s;
    }
    printf("obvious / ct_keep %.3f\n", least[0] / least[1]);
    return 0;
}
