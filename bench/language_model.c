// How fast a published model reads and writes.
//   build/bench/language_model MODEL [TEXTS [PROMPT [WRITTEN [f32|f16|bf16|i8]]]]
// Loads it, warms an engine, and lets TEXTS (1) requests of PROMPT (512) drawn tokens each write WRITTEN (64) more, all
// at once. Prints seconds and tokens a second of reading and of writing, and resident memory after loading and at the end.
#include <cotan/engine.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"

typedef struct text {
    double first, last;
    int64_t told;
} text;

static double begun;

static bool hear(const ct_engine_token *t, void *user) {
    text *one = user;
    (void)t;
    one->last = ct__now() - begun;
    if (!one->told++) one->first = one->last;
    return true;
}

static int fail(void) {
    fprintf(stderr, "language_model: %s\n", ct_error_text());
    return 1;
}

static int64_t argument(int argc, char **argv, int i, int64_t otherwise) {
    return argc > i ? strtoll(argv[i], NULL, 10) : otherwise;
}

int main(int argc, char **argv) {
    const int64_t texts = argument(argc, argv, 2, 1), prompt = argument(argc, argv, 3, 512),
                  written = argument(argc, argv, 4, 64);
    const char *type = argc > 5 ? argv[5] : "f32";
    const ct_dtype dtype = !strcmp(type, "f16")    ? CT_F16
                           : !strcmp(type, "bf16") ? CT_BF16
                           : !strcmp(type, "i8")   ? CT_I8
                                                   : CT_F32;
    if (argc < 2 || texts < 1 || prompt < 1 || written < 1) return 2;
    const double start = ct__now();
    ct_lm *lm = ct_lm_load(argv[1], .trainable = false);
    if (!lm) return fail();
    const double loaded = ct__now();
    printf("loaded in %.2f s, %.0f MB resident\n", loaded - start,
           (double)ct__resident_bytes() / 1e6);
    ct_engine *e = ct_engine_new(lm, .texts = texts, .context = prompt + written, .dtype = dtype);
    if (!e || !ct_engine_warm(e)) return fail();
    printf("warm in %.2f s\n", ct__now() - loaded);
    int32_t *ids = malloc((size_t)prompt * sizeof *ids);
    text *of = calloc((size_t)texts, sizeof *of);
    if (!ids || !of) return 1;
    begun = ct__now();
    for (int64_t k = 0; k < texts; k++) {
        for (int64_t i = 0; i < prompt; i++)
            ids[i] = (int32_t)((uint64_t)(i * 7919 + k * 104729 + 17) % 20000);
        if (!ct_engine_add(e, .prompt = ids, .n_prompt = (size_t)prompt, .most = written,
                           .token = hear, .user = &of[k]))
            return fail();
    }
    while (ct_engine_step(e)) continue;
    if (ct_failed()) return fail();
    double first = of[0].first, last = 0, latest_first = 0;
    int64_t told = 0;
    for (int64_t k = 0; k < texts; k++) {
        told += of[k].told;
        if (of[k].last > last) last = of[k].last;
        if (of[k].first > latest_first) latest_first = of[k].first;
    }
    printf("first token after %.3f s", first);
    if (texts == 1)
        printf(": %.1f tokens/s read; %.2f tokens/s written", (double)prompt / first,
               (double)(told - 1) / (last - first));
    else
        printf(", the last text's after %.3f s; %.2f tokens/s written in all", latest_first,
               (double)told / last);
    printf("; %.0f MB resident\n", (double)ct__resident_bytes() / 1e6);
    ct_engine_free(e);
    ct_lm_free(lm);
    return 0;
}
