// Compares the planned with the measured memory of training GPT-2 (AdamW, clip 1.0).
//   build/bench/memory [small|124m] [BATCH] [TOKENS] [STEPS]
// Without arguments it runs both, with batches of 12 and 4 sequences of 64 tokens. Exits with 1
// unless planned >= measured >= 0.9 planned, or if the process grew by more than 1.1 times the
// plan.
#include <cotan/cotan.h>
#include <cotan/lm.h>
#include <cotan/optim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct sizes {
    const char *name;
    ct_lm_config config;
    int64_t batch, tokens;
    int steps;
} sizes;

// Does the tensor computations of a training run in the current context, which may have a dry
// device.
static bool memory_train(const sizes *s, const int32_t *tokens) {
    ct_lm *model = ct_lm_new(&s->config, 1337);
    ct_optim *optim =
        model ? ct_adamw(ct_lm_params(model), .lr = 1e-3, .clip = 1.0, .weight_decay = CT_F(0.1))
              : NULL;
    for (int step = 0; optim && step < s->steps && !ct_failed(); step++) {
        CT_SCOPE;
        ct_tensor x = ct_from(tokens, CT_I32, CT_DIMS(s->batch, s->tokens)); // (B, T)
        ct_tensor y = ct_from(tokens + step + 1, CT_I32, CT_DIMS(s->batch, s->tokens));
        ct_nn_mode mode = {.training = true};
        ct_tensor loss = ct_lm_loss(model, x, y, &mode); // ()
        ct_optim_step(optim, loss);
        ct_metric("loss", loss);
    }
    ct_optim_free(optim);
    ct_lm_free(model);
    return !ct_failed();
}

static double memory_read_status_mb(const char *key) { // in /proc/self/status
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    double kb = 0;
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0) kb = atof(line + strlen(key));
    if (f) fclose(f);
    return kb * 1024e-6;
}

static int memory_check(const sizes *s) {
    int32_t *tokens = calloc((size_t)(s->batch * s->tokens + s->steps + 1), sizeof *tokens);
    if (!tokens) return 1;
    for (int64_t i = 0; i < s->batch * s->tokens + s->steps + 1; i++)
        tokens[i] = (int32_t)((uint64_t)i * 2654435761u % (uint64_t)s->config.vocab);
    double before = memory_read_status_mb("VmRSS:");
    ct_ctx *dry = ct_ctx_new();
    ct_ctx_use(dry);
    bool ok = ct_set_device("dry:cpu") && memory_train(s, tokens);
    double planned = (double)ct_peak_memory() * 1e-6;
    double process =
        planned + memory_read_status_mb("VmRSS:") - before; // planning takes memory as well
    if (!ok) fprintf(stderr, "%s\n", ct_error_text());
    ct_ctx_free(dry);
    ct_ctx *real = ct_ctx_new();
    ct_ctx_use(real);
    ok = ok && memory_train(s, tokens);
    double measured = (double)ct_get_stats().peak_memory * 1e-6;
    double grown = memory_read_status_mb("VmHWM:") - before;
    if (ct_failed()) fprintf(stderr, "%s\n", ct_error_text());
    bool holds = ok && planned >= measured && measured >= 0.9 * planned && grown <= 1.1 * process;
    printf("%s: planned %.2f MB, measured %.2f MB (%.3f of it), the process grew by %.2f MB "
           "(%.3f of what was planned for it)%s\n",
           s->name, planned, measured, measured / planned, grown, grown / process,
           holds ? "" : ": OUT OF BOUNDS");
    ct_ctx_free(real); // its plans keep memory
    free(tokens);
    return holds ? 0 : 1;
}

int main(int argc, char **argv) {
    sizes small = {
        "small",
        {.vocab = 65, .context = 64, .layers = 4, .heads = 4, .width = 128, .no_bias = true},
        12,
        64,
        4};
    sizes large = {"124m",
                   {.vocab = 50257, .context = 1024, .layers = 12, .heads = 12, .width = 768},
                   4,
                   64,
                   3};
    if (argc > 1 && strcmp(argv[1], "small") != 0 && strcmp(argv[1], "124m") != 0)
        return fprintf(stderr, "usage: memory [small|124m] [BATCH] [TOKENS] [STEPS]\n"), 2;
    sizes *chosen = argc > 1 && strcmp(argv[1], "124m") == 0 ? &large : &small;
    if (argc > 2) chosen->batch = atoi(argv[2]);
    if (argc > 3) chosen->tokens = chosen->config.context = atoi(argv[3]);
    if (argc > 4) chosen->steps = atoi(argv[4]);
    int status = memory_check(chosen);
    // The smaller model's peak is below that of the larger one.
    if (argc < 2) status |= memory_check(&large);
    return status;
}
