// A GPT-2 of 12 layers, narrow: prompts of any length are one plan and one arena, and its blocks share
// their kernels. What a new length costs in time measures bench/lengths.c.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cotan/lm.h"
#include "cotan/optim.h"
#include "models/stack.h"

enum { LAYERS = 12, WIDTH = 24, CONTEXT = 128, VOCAB = 50, PROMPTS = 1000 };

static const int32_t ids[CONTEXT];

typedef struct {
    ct_ctx *ctx, *outer;
    ct_lm *model;
    ct_lm_cache *cache;
} machine;

static machine start(const char *device, int layers, bool cached) {
    machine m = {.ctx = ct_ctx_new()};
    m.outer = ct_ctx_use(m.ctx);
    assert_true(ct_set_device(device));
    ct_lm_config config = {
        .vocab = 50257, .context = 1024, .layers = 12, .heads = 12, .width = 768};
    config.layers = layers;
    config.heads = 2;
    config.width = WIDTH;
    config.context = CONTEXT;
    config.vocab = VOCAB;
    m.model = ct_lm_new(&config, 7);
    m.cache = m.model && cached ? ct__lm_decode_cache(m.model, 1, CONTEXT, CT_HERE) : NULL;
    if (!m.model || (cached && !m.cache) || !ct_eval(NULL, 0)) fail_msg("%s", ct_error_text());
    return m;
}
static void stop(machine *m) {
    if (ct_failed()) fail_msg("%s", ct_error_text());
    ct__lm_cache_free(m->cache);
    ct_lm_free(m->model);
    ct_ctx_free(ct_ctx_use(m->outer));
}

static void prompt(const machine *m, int64_t n) {
    CT_SCOPE;
    ct_tensor tokens = ct_from(ids, CT_I32, CT_DIMS(1, n)); // (1, T)
    ct_tensor logits = m->cache
                           ? ct__lm_decode(m->model, m->cache, tokens, ct_i(0), CONTEXT, CT_HERE)
                           : ct_lm_logits(m->model, tokens, NULL); // (1, vocab), (1, T, vocab)
    if (!ct_eval(&logits, 1)) fail_msg("%s", ct_error_text());
}

// Bytes for temporaries that the longest prompt alone takes.
static uint64_t longest_alone(bool cached) {
    const uint64_t before = ct_get_stats().arena_bytes;
    machine m = start("cpu", LAYERS, cached);
    prompt(&m, CONTEXT);
    const uint64_t bytes = ct_get_stats().arena_bytes - before;
    stop(&m);
    return bytes;
}

static void a_thousand_lengths(bool cached) {
    const uint64_t longest = longest_alone(cached), before = ct_get_stats().arena_bytes;
    uint32_t seed = 2026;
    machine m = start("cpu", LAYERS, cached);
    prompt(&m, 10);
    prompt(&m, 12); // the second length makes the plan of all
    const ct_stats first = ct_get_stats();
    for (int i = 0; i < PROMPTS; i++) {
        seed = seed * 1664525u + 1013904223u;
        prompt(&m, 2 + (seed >> 8) % (CONTEXT - 1)); // 2 to CONTEXT
    }
    prompt(&m, CONTEXT);
    const ct_stats last = ct_get_stats();
    assert_int_equal(last.plans_made, first.plans_made); // so that no kernel is asked for, either
    assert_int_equal(last.plans_run - first.plans_run, PROMPTS + 1);
    assert_int_equal(last.plan_bytes, first.plan_bytes);
    const uint64_t holds = last.arena_bytes - before;
    print_message("%s cache: %.0f kB for the longest alone, %.0f kB after %d lengths\n",
                  cached ? "with" : "without", (double)longest * 1e-3, (double)holds * 1e-3,
                  PROMPTS);
    assert_true(longest > 10000 && holds > 0);
    assert_true(10 * holds <= 11 * longest);
    stop(&m);
}
static void a_thousand_lengths_with_a_cache(void **state) {
    (void)state;
    a_thousand_lengths(true);
}
static void a_thousand_lengths_without(void **state) {
    (void)state;
    a_thousand_lengths(false);
}

// Kernels of a training step, and of a prompt.
static void kernels_of(int layers, size_t *step, size_t *pass) {
    machine m = start("dry:cpu", layers, false);
    prompt(&m, 32);
    *pass = ct_latest_plan()->n_kernels;
    ct_optim *optim = ct_adamw(ct_lm_params(m.model), .lr = 1e-3, .clip = 1.0);
    assert_non_null(optim);
    for (int i = 0; i < 2; i++) {
        CT_SCOPE;
        ct_tensor in = ct_from(ids, CT_I32, CT_DIMS(2, 16)); // (B, T)
        ct_nn_mode mode = {.training = true};
        ct_optim_step(optim, ct_lm_loss(m.model, in, in, &mode));
    }
    *step = ct_latest_plan()->n_kernels;
    ct_optim_free(optim);
    stop(&m);
}
static void blocks_share_kernels(void **state) {
    (void)state;
    size_t step[2], pass[2];
    kernels_of(2, &step[0], &pass[0]);
    kernels_of(LAYERS, &step[1], &pass[1]);
    print_message("2 layers: %zu kernels a step, %zu a prompt; %d layers: %zu and %zu\n", step[0],
                  pass[0], LAYERS, step[1], pass[1]);
    assert_true(step[1] <= step[0] + 4); // sums over all parameters have other numbers of terms
    assert_int_equal(pass[1], pass[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thousand_lengths_with_a_cache),
        cmocka_unit_test(a_thousand_lengths_without),
        cmocka_unit_test(blocks_share_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
