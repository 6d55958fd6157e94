// Measures prefill and generation speed of a published model.
//   build/bench/language_model MODEL [SEQUENCES [PROMPT [GENERATED [f32|f16|bf16|i8]]]]
// Loads it, warms up an engine, and runs SEQUENCES (1) requests at once; each has PROMPT (512)
// pseudo-random tokens and generates GENERATED (64). Prints seconds and tokens per second of
// prefill and of generation, and resident memory after loading and at the end.
#include <cotan/engine.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"

typedef struct sequence {
    double first, last;
    int64_t n_tokens;
} sequence;

static double start_time;

static bool language_model_on_token(const ct_engine_token *t, void *user) {
    sequence *s = user;
    (void)t;
    s->last = ct__now() - start_time;
    if (!s->n_tokens++) s->first = s->last;
    return true;
}

static int language_model_fail(void) {
    fprintf(stderr, "language_model: %s\n", ct_error_text());
    return 1;
}

static int64_t language_model_argument(int argc, char **argv, int i, int64_t default_value) {
    return argc > i ? strtoll(argv[i], NULL, 10) : default_value;
}

int main(int argc, char **argv) {
    const int64_t n_sequences = language_model_argument(argc, argv, 2, 1),
                  prompt = language_model_argument(argc, argv, 3, 512),
                  n_generated = language_model_argument(argc, argv, 4, 64);
    const char *dtype_name = argc > 5 ? argv[5] : "f32";
    const ct_dtype dtype = !strcmp(dtype_name, "f16")    ? CT_F16
                           : !strcmp(dtype_name, "bf16") ? CT_BF16
                           : !strcmp(dtype_name, "i8")   ? CT_I8
                                                         : CT_F32;
    if (argc < 2 || n_sequences < 1 || prompt < 1 || n_generated < 1) return 2;
    const double start = ct__now();
    ct_lm *lm = ct_lm_load(argv[1], .trainable = false);
    if (!lm) return language_model_fail();
    const double loaded = ct__now();
    printf("loaded in %.2f s, %.0f MB resident\n", loaded - start,
           (double)ct__resident_bytes() / 1e6);
    ct_engine *e = ct_engine_new(lm, .max_sequences = n_sequences, .context = prompt + n_generated,
                                 .cache_dtype = dtype);
    if (!e || !ct_engine_warm_up(e)) return language_model_fail();
    printf("warm in %.2f s\n", ct__now() - loaded);
    int32_t *ids = malloc((size_t)prompt * sizeof *ids);
    sequence *sequences = calloc((size_t)n_sequences, sizeof *sequences);
    if (!ids || !sequences) return 1;
    start_time = ct__now();
    for (int64_t k = 0; k < n_sequences; k++) {
        for (int64_t i = 0; i < prompt; i++)
            ids[i] = (int32_t)((uint64_t)(i * 7919 + k * 104729 + 17) % 20000);
        if (!ct_engine_add(e, .prompt = ids, .n_prompt = (size_t)prompt, .max_tokens = n_generated,
                           .on_token = language_model_on_token, .user = &sequences[k]))
            return language_model_fail();
    }
    while (ct_engine_step(e)) continue;
    if (ct_failed()) return language_model_fail();
    double first = sequences[0].first, last = 0, latest_first = 0;
    int64_t n_tokens = 0;
    for (int64_t k = 0; k < n_sequences; k++) {
        n_tokens += sequences[k].n_tokens;
        if (sequences[k].last > last) last = sequences[k].last;
        if (sequences[k].first > latest_first) latest_first = sequences[k].first;
    }
    printf("first token after %.3f s", first);
    if (n_sequences == 1)
        printf(": %.1f tokens/s read; %.2f tokens/s written", (double)prompt / first,
               (double)(n_tokens - 1) / (last - first));
    else
        printf(", the last text's after %.3f s; %.2f tokens/s written in all", latest_first,
               (double)n_tokens / last);
    printf("; %.0f MB resident\n", (double)ct__resident_bytes() / 1e6);
    ct_engine_free(e);
    ct_lm_free(lm);
    return 0;
}
