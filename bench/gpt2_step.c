// Time of one training step of GPT-2 (AdamW, clip 1.0) on random tokens.
//   build/bench/gpt2_step [small|124m] [BATCH] [TOKENS] [STEPS]
// Prints a line a step and the median of the steps behind the first three. bench/torch_gpt2_step.py
// does the same with PyTorch; bench/compare_step runs the two in turn.
#include <cotan/cotan.h>
#include <cotan/models.h>
#include <cotan/optim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static uint32_t draw(uint32_t *state) { // xorshift: the tokens only have to vary
    *state ^= *state << 13;
    *state ^= *state >> 17;
    return *state ^= *state << 5;
}

int main(int argc, char **argv) {
    bool small = argc > 1 && strcmp(argv[1], "small") == 0;
    int64_t batch = argc > 2 ? atoi(argv[2])
                    : small  ? 12
                             : 4,
            tokens = argc > 3 ? atoi(argv[3]) : 64;
    int steps = argc > 4 ? atoi(argv[4]) : small ? 200 : 12;
    ct_gpt2_config config = ct_gpt2_124m();
    if (small)
        config = (ct_gpt2_config){
            .vocab = 65, .context = tokens, .layers = 4, .heads = 4, .width = 128, .no_bias = true};
    ct_gpt2 *model = ct_gpt2_new(&config, 1337);
    ct_optim *optim =
        model ? ct_adamw(ct_gpt2_params(model), .lr = 1e-3, .clip = 1.0, .weight_decay = CT_F(0.1))
              : NULL;
    double *ms = calloc((size_t)steps, sizeof *ms);
    int32_t *x = calloc((size_t)(batch * tokens), sizeof *x),
            *y = calloc((size_t)(batch * tokens), sizeof *y);
    uint32_t state = 12345;
    int done = 0;
    if (!optim || !ms || !x || !y) return fprintf(stderr, "%s\n", ct_error_text()), 1;
    for (; done < steps && !ct_failed(); done++) {
        for (int64_t i = 0; i < batch * tokens; i++) {
            x[i] = (int32_t)(draw(&state) % (uint32_t)config.vocab);
            y[i] = (int32_t)(draw(&state) % (uint32_t)config.vocab);
        }
        double begin = now();
        {
            CT_SCOPE;
            ct_tensor in = ct_from(x, CT_I32, CT_DIMS(batch, tokens)); // (B, T)
            ct_tensor to = ct_from(y, CT_I32, CT_DIMS(batch, tokens)); // (B, T)
            ct_nn_mode mode = {.training = true};
            ct_tensor loss = ct_gpt2_loss(model, in, to, &mode); // ()
            ct_optim_step(optim, loss);
            ct_metric("loss", loss);
        }
        ms[done] = now() - begin;
        if (!small || done % 50 == 0)
            printf("step %d: loss %.4f, %.1f ms\n", done, ct_metric_value("loss"), ms[done]),
                fflush(stdout);
    }
    if (ct_failed()) return fprintf(stderr, "%s\n", ct_error_text()), 1;
    int skip = steps > 6 ? 3 : 0;
    qsort(ms + skip, (size_t)(steps - skip), sizeof *ms, ascending);
    ct_stats stats = ct_get_stats();
    printf("median %.2f ms, %.0f tokens/s, arena %.1f MB, values %.1f MB, %.0f launches a step, "
           "%llu plans, %llu kernels compiled\n",
           ms[skip + (steps - skip) / 2],
           (double)(batch * tokens) * 1e3 / ms[skip + (steps - skip) / 2],
           (double)stats.arena_bytes * 1e-6, (double)stats.live_bytes * 1e-6,
           (double)stats.launches / (double)stats.plans_run, (unsigned long long)stats.plans_made,
           (unsigned long long)stats.kernels_compiled);
    ct_optim_free(optim);
    ct_gpt2_free(model);
    free(ms);
    free(x);
    free(y);
    return 0;
}
