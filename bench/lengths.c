// Prompts of ever new lengths: what planning one costs, and what memory they leave behind.
//   build/bench/lengths [PROMPTS [WIDTH]]
// Feeds prompts of random lengths to a GPT-2 of 12 layers and context 1,024, once into a key-value cache
// and once without. The first prompt of each way is planned and compiled; from then on a prompt finds its
// plan by everything but its length. Times are of recording, ordering, finding and binding: the device's
// submit does nothing then. The goals are 0.2 ms for a new length, no plan, no kernel, and an arena of
// 1.1 times what the longest prompt needs.
#include <cotan/models.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/os.h"
#include "compile/plan.h"

enum { CONTEXT = 1024, MOST_PROMPTS = 100000 };

static bool submit_nothing(ct_device *device, const ct_command *commands, size_t n, ct_err *err) {
    (void)device, (void)commands, (void)n, (void)err;
    return true;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct {
    double recorded, run; // seconds
} cost;

// One prompt of n tokens; the sizes are marked where `marked`, else they are found out.
static cost prompt(const ct_gpt2 *model, ct_gpt2_cache *cache, int64_t n, bool marked) {
    static const int32_t ids[CONTEXT];
    double begin = ct__now();
    CT_SCOPE;
    ct_tensor tokens = ct_from(ids, CT_I32, CT_DIMS(1, marked ? CT_DYN(n) : n)); // (1, T)
    ct_tensor logits = cache ? ct_gpt2_decode(model, cache, tokens, ct_i(0))
                             : ct_gpt2_next_logits(model, tokens); // (1, vocab)
    double recorded = ct__now();
    if (!ct_eval(&logits, 1)) {
        fprintf(stderr, "lengths: %s\n", ct_error_text());
        exit(1);
    }
    return (cost){recorded - begin, ct__now() - recorded};
}

static void measure(const ct_gpt2 *model, ct_gpt2_cache *cache, int prompts, bool marked) {
    static double run[MOST_PROMPTS], recorded[MOST_PROMPTS];
    uint32_t state = 2026;
    prompt(model, cache, CONTEXT, marked);                  // the longest
    if (!marked) prompt(model, cache, CONTEXT - 1, marked); // and a second length
    const ct_stats first = ct_get_stats();
    for (int i = 0; i < prompts; i++) {
        state = state * 1664525u + 1013904223u;
        cost c = prompt(model, cache, 2 + (int64_t)(state >> 8) % (CONTEXT - 2), marked);
        run[i] = c.run;
        recorded[i] = c.recorded;
    }
    const ct_stats last = ct_get_stats();
    qsort(run, (size_t)prompts, sizeof *run, ascending);
    qsort(recorded, (size_t)prompts, sizeof *recorded, ascending);
    printf("%-9s %-7s record %.3f ms, find and bind %.3f ms (median), %.3f at most; plans %llu, "
           "kernels %llu, arenas %.3f of the longest's %.2f MB\n",
           cache ? "cache" : "no cache", marked ? "marked" : "plain", recorded[prompts / 2] * 1e3,
           run[prompts / 2] * 1e3, run[prompts - 1] * 1e3,
           (unsigned long long)(last.plans_made - first.plans_made),
           (unsigned long long)(last.kernels_compiled + last.kernels_loaded -
                                first.kernels_compiled - first.kernels_loaded),
           (double)last.arena_bytes / (double)first.arena_bytes, (double)first.arena_bytes * 1e-6);
}

int main(int argc, char **argv) {
    int prompts = argc > 1 ? atoi(argv[1]) : 1000;
    int64_t width = argc > 2 ? atoi(argv[2]) : 48;
    if (prompts < 1 || prompts > MOST_PROMPTS || width < 12 || width % 12) {
        fprintf(stderr, "lengths: 1 to %d prompts, a width that 12 divides\n", MOST_PROMPTS);
        return 2;
    }
    ct_gpt2_config config = ct_gpt2_124m();
    config.width = width;
    config.vocab = 512;
    ct_gpt2 *model = ct_gpt2_new(&config, 1);
    ct_gpt2_cache *cache = model ? ct_gpt2_cache_new(model, 1, CONTEXT) : NULL;
    if (!cache || !ct_eval(NULL, 0)) {
        fprintf(stderr, "lengths: %s\n", ct_error_text());
        return 1;
    }
    prompt(model, cache, 8, true); // the device is open from here on
    ct_engine *engine = ct__ctx()->device;
    ct_backend idle = *engine->device->backend;
    idle.submit = submit_nothing;
    engine->device->backend = &idle;
    for (int marked = 1; marked >= 0; marked--) {
        measure(model, cache, prompts, marked);
        measure(model, NULL, prompts, marked);
    }
    ct_gpt2_cache_free(cache);
    ct_gpt2_free(model);
    ct_ctx_free(NULL);
    return 0;
}
