// Measures prompts of varying lengths: the cost of planning a new length, and the memory that the
// plans keep.
//   build/bench/lengths [PROMPTS [WIDTH]]
// Feeds prompts of random lengths to a GPT-2 of 12 layers and context 1,024, with and without a
// key-value cache, each in its own context. The first two are planned and compiled; later prompts
// find a plan that fits any length. Times are of recording, ordering, lookup and binding: the
// device's submit does nothing then. The goals are 0.2 ms for a new length, no new plan or kernel,
// and an arena of at most 1.1 times that of the longest prompt alone.
#include <cotan/lm.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/os.h"
#include "compile/plan.h"
#include "models/stack.h"

enum { CONTEXT = 1024, MAX_PROMPTS = 100000 };

static bool lengths_submit_nothing(ct_device *device, const ct_command *commands, size_t n,
                                   ct_err *err) {
    (void)device, (void)commands, (void)n, (void)err;
    return true;
}

static int lengths_compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct {
    double recorded, run; // seconds
} cost;

// Runs a prompt of n tokens; with `dynamic` its length is marked by CT_DYN, else it is detected.
static cost lengths_run_prompt(const ct_lm *model, ct_lm_cache *cache, int64_t n, bool dynamic) {
    static const int32_t ids[CONTEXT];
    double begin = ct__now();
    CT_SCOPE;
    ct_tensor tokens = ct_from(ids, CT_I32, CT_DIMS(1, dynamic ? CT_DYN(n) : n)); // (1, T)
    ct_tensor logits =
        cache ? ct__lm_decode(model, cache, tokens, ct_i(0), CONTEXT, CT_HERE) // (1, vocab)
              : ct_lm_logits(model, tokens, NULL);                             // (1, T, vocab)
    double recorded = ct__now();
    if (!ct_eval(&logits, 1)) {
        fprintf(stderr, "lengths: %s\n", ct_error_text());
        exit(1);
    }
    return (cost){recorded - begin, ct__now() - recorded};
}

typedef struct {
    ct_ctx *ctx;
    ct_lm *model;
    ct_lm_cache *cache;
    ct_backend idle; // the device's backend, except for submit
} bench_model;

static bench_model *lengths_start(int64_t width, bool cached) {
    bench_model *m = calloc(1, sizeof *m);
    if (m) ct_ctx_use(m->ctx = ct_ctx_new());
    ct_lm_config config = {
        .vocab = 50257, .context = 1024, .layers = 12, .heads = 12, .width = 768};
    config.width = width;
    config.vocab = 512;
    if (m) m->model = ct_lm_new(&config, 1);
    if (m && m->model && cached) m->cache = ct__lm_decode_cache(m->model, 1, CONTEXT, CT_HERE);
    if (!m || !m->model || (cached && !m->cache) || !ct_eval(NULL, 0)) {
        fprintf(stderr, "lengths: %s\n", ct_error_text());
        exit(1);
    }
    lengths_run_prompt(m->model, m->cache, 8, true); // opens the device
    ct_device *device = ((ct_executor *)ct__ctx()->device)->device;
    m->idle = *device->backend;
    m->idle.submit = lengths_submit_nothing;
    device->backend = &m->idle;
    return m;
}
static void lengths_stop(bench_model *m) {
    ct__lm_cache_free(m->cache);
    ct_lm_free(m->model);
    ct_ctx_use(NULL);
    ct_ctx_free(m->ctx);
    free(m);
}

static void lengths_measure(int64_t width, bool cached, int prompts, bool dynamic) {
    static double run[MAX_PROMPTS], recorded[MAX_PROMPTS];
    uint32_t state = 2026;
    bench_model *m = lengths_start(width, cached);
    lengths_run_prompt(m->model, m->cache, CONTEXT, false);
    const double longest_bytes = (double)ct_get_stats().arena_bytes;
    lengths_stop(m);
    m = lengths_start(width, cached);
    lengths_run_prompt(m->model, m->cache, 10, dynamic);
    if (!dynamic) lengths_run_prompt(m->model, m->cache, 12,
                                     dynamic); // makes the general plan
    const ct_stats first = ct_get_stats();
    for (int i = 0; i < prompts; i++) {
        state = state * 1664525u + 1013904223u;
        cost c = lengths_run_prompt(m->model, m->cache, 2 + (int64_t)(state >> 8) % (CONTEXT - 1),
                                    dynamic);
        run[i] = c.run;
        recorded[i] = c.recorded;
    }
    lengths_run_prompt(m->model, m->cache, CONTEXT, dynamic);
    const ct_stats last = ct_get_stats();
    lengths_stop(m);
    qsort(run, (size_t)prompts, sizeof *run, lengths_compare_doubles);
    qsort(recorded, (size_t)prompts, sizeof *recorded, lengths_compare_doubles);
    printf("%-9s %-7s record %.3f ms, find and bind %.3f ms (median), %.3f at most; plans %llu, "
           "kernels %llu, arena %.3f of the longest's %.2f MB\n",
           cached ? "cache" : "no cache", dynamic ? "marked" : "plain", recorded[prompts / 2] * 1e3,
           run[prompts / 2] * 1e3, run[prompts - 1] * 1e3,
           (unsigned long long)(last.plans_made - first.plans_made),
           (unsigned long long)(last.kernels_compiled + last.kernels_loaded -
                                first.kernels_compiled - first.kernels_loaded),
           (double)last.arena_bytes / longest_bytes, longest_bytes * 1e-6);
}

int main(int argc, char **argv) {
    int prompts = argc > 1 ? atoi(argv[1]) : 1000;
    int64_t width = argc > 2 ? atoi(argv[2]) : 48;
    if (prompts < 1 || prompts > MAX_PROMPTS || width < 12 || width % 12) {
        fprintf(stderr, "lengths: 1 to %d prompts, a width that 12 divides\n", MAX_PROMPTS);
        return 2;
    }
    setenv("COTAN_COMPILE", "wait", 1); // kernels count when they are planned
    for (int dynamic = 1; dynamic >= 0; dynamic--)
        for (int cached = 1; cached >= 0; cached--)
            lengths_measure(width, cached, prompts, dynamic);
    return 0;
}
