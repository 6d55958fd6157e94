// Requests that run together are answered as each is alone, in every bit: schedules drawn at random, with too few
// pages, shared beginnings, cancelled neighbours and NaN in pages that nobody holds. By hand:
//     test_engine DIR SEED [f32|f16|bf16|i8]
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cotan/engine.h"

enum { REQUESTS = 24, LONGEST = 60, MOST = 40, COMMON = 40, CONTEXT = 112 };

typedef struct asked {
    int32_t prompt[LONGEST];
    size_t n;
    int64_t most, id;
    uint64_t seed;
    double temperature;
    bool leaves; // is cancelled after `after` tokens
    int64_t after;
    ct_engine *engine;
    // what it was told
    int32_t token[MOST];
    double log_probability[MOST];
    int64_t told, cached;
    ct_engine_finish_reason end;
    bool done;
} asked;

static uint64_t state;
static int64_t draw(int64_t n) { // below n
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)n);
}

static bool hear(const ct_engine_token *t, void *user) {
    asked *a = user;
    a->token[a->told] = t->token;
    a->log_probability[a->told++] = t->logprob;
    if (a->leaves && a->told == a->after) ct_engine_cancel(a->engine, a->id);
    return true;
}

static void end(const ct_engine_result *r, void *user) {
    asked *a = user;
    a->end = r->finish_reason;
    a->done = true;
    a->cached = (int64_t)r->cached_tokens;
    if (r->error) fprintf(stderr, "%s\n", r->error);
}

static bool add(ct_engine *e, asked *a) {
    a->engine = e;
    a->told = 0;
    a->done = false;
    const ct_lm_sampling sampling = {.temperature = CT_F(a->temperature), .seed = a->seed};
    a->id = ct_engine_add(e, .prompt = a->prompt, .n_prompt = a->n, .max_tokens = a->most,
                          .sampling = sampling, .logprobs = true, .on_token = hear,
                          .on_finish = end, .user = a);
    return a->id > 0;
}

static void draw_requests(asked *of, int64_t vocab) {
    int32_t common[COMMON];
    for (int i = 0; i < COMMON; i++) common[i] = (int32_t)draw(vocab);
    for (int k = 0; k < REQUESTS; k++) {
        asked *a = &of[k];
        const size_t shared = draw(2) ? (size_t)draw(COMMON + 1) : 0;
        *a = (asked){.n = shared + 1 + (size_t)draw(LONGEST - COMMON - 1),
                     .most = 1 + draw(MOST),
                     .seed = (uint64_t)draw(1000),
                     .temperature = draw(2) ? 1 : 0,
                     .leaves = draw(6) == 0};
        for (size_t i = 0; i < a->n; i++)
            a->prompt[i] = i < shared ? common[i] : (int32_t)draw(vocab);
        a->after = 1 + draw(a->most);
        if (draw(4) == 0) // says the same again and again, which can be guessed
            for (size_t i = 4; i < a->n; i++) a->prompt[i] = a->prompt[i - 4];
        if (k && draw(4) == 0) { // asks what another one asked
            const asked *other = &of[draw(k)];
            memcpy(a->prompt, other->prompt, sizeof a->prompt);
            a->n = other->n;
        }
    }
}

static bool compare(const asked *alone, const asked *beside, int k) {
    const int64_t n = beside->told < alone->told ? beside->told : alone->told;
    const bool whole = beside->leaves || (beside->told == alone->told && beside->end == alone->end);
    if (whole && memcmp(alone->token, beside->token, (size_t)n * sizeof *alone->token) == 0 &&
        memcmp(alone->log_probability, beside->log_probability, (size_t)n * sizeof(double)) == 0)
        return true;
    fprintf(stderr, "request %d of %zu tokens: %lld of %lld told\n", k, beside->n,
            (long long)beside->told, (long long)alone->told);
    for (int64_t i = 0; i < n; i++)
        fprintf(stderr, "  %d %.17g, alone %d %.17g\n", beside->token[i],
                beside->log_probability[i], alone->token[i], alone->log_probability[i]);
    return false;
}

static bool run_alone(const ct_lm *lm, ct_dtype dtype, asked *of, int64_t guesses, int64_t *steps,
                      int64_t *guessed_well) {
    for (int k = 0; k < REQUESTS; k++) {
        ct_engine *e = ct_engine_new(lm, .max_sequences = 1, .context = CONTEXT,
                                     .cache_dtype = dtype, .max_draft_tokens = guesses);
        bool ok = e && add(e, &of[k]);
        while (ok && ct_engine_step(e)) continue;
        if (!of[k]
                 .leaves) { // a cancelled request is removed after its step, so guesses in that step save none
            *steps += (int64_t)ct_engine_stats(e).steps;
            *guessed_well += ct_engine_stats(e).accepted_tokens;
        }
        ct_engine_free(e);
        if (!ok || ct_failed()) return false;
    }
    return true;
}

// Pages for a few of them only; some come later, when others run.
static bool run_together(const ct_lm *lm, ct_dtype dtype, asked *of, ct_engine_metrics *told,
                         uint64_t *compiled) {
    ct_engine *one =
        ct_engine_new(lm, .max_sequences = 1, .context = CONTEXT, .cache_dtype = dtype);
    if (!one) return false;
    const int64_t least = ct_engine_stats(one).pages;
    ct_engine_free(one);
    uint64_t page = 0;
    for (uint64_t bytes = 1; least && !page; bytes *= 2) { // what a page takes, found by asking
        ct_engine *e = ct_engine_new(lm, .max_sequences = 1, .context = CONTEXT,
                                     .cache_memory = bytes << 10, .cache_dtype = dtype);
        if (e) page = (bytes << 10) / (uint64_t)ct_engine_stats(e).pages;
        ct_error_clear();
        ct_engine_free(e);
    }
    ct_engine *e =
        ct_engine_new(lm, .max_sequences = 8, .context = CONTEXT, .prefill_chunk = 16 + draw(40),
                      .cache_memory = page * (uint64_t)(least + draw(2 * least + 1)),
                      .cache_dtype = dtype, .poison = true, .max_draft_tokens = draw(2) * 5);
    if (!e || !ct_engine_warm_up(e)) return false;
    const ct_stats before = ct_get_stats();
    int next = 0;
    bool ok = true;
    for (bool more = true; ok && (more || next < REQUESTS);) {
        for (int64_t n = draw(4); ok && n && next < REQUESTS; n--) ok = add(e, &of[next++]);
        more = ct_engine_step(e);
    }
    const ct_stats after = ct_get_stats();
    *compiled = after.kernels_compiled + after.kernels_loaded - before.kernels_compiled -
                before.kernels_loaded + after.plans_made - before.plans_made;
    *told = ct_engine_stats(e);
    ok = ok && !told->pages_used && !told->running && !told->queued; // nobody holds any
    ct_engine_free(e);
    return ok && !ct_failed();
}

static int run(const char *dir, uint64_t seed, const char *type) {
    static asked alone[REQUESTS], guessing[REQUESTS], beside[REQUESTS];
    const ct_dtype dtype = strcmp(type, "f16") == 0    ? CT_F16
                           : strcmp(type, "bf16") == 0 ? CT_BF16
                           : strcmp(type, "i8") == 0   ? CT_I8
                                                       : CT_F32;
    ct_engine_metrics told;
    uint64_t compiled = 0;
    int64_t well = 0, steps = 0, fewer = 0;
    state = seed;
    ct_lm *lm = ct_lm_load(dir, .trainable = false);
    if (lm) draw_requests(alone, 96);
    memcpy(beside, alone, sizeof beside);
    memcpy(guessing, alone, sizeof guessing);
    bool ok = lm && run_alone(lm, dtype, alone, 0, &steps, &well) &&
              run_alone(lm, dtype, guessing, 1 + draw(7), &fewer, &well) &&
              run_together(lm, dtype, beside, &told, &compiled);
    if (!ok) fprintf(stderr, "%s\n", ct_error_text());
    for (int k = 0; ok && k < REQUESTS; k++)
        ok = compare(&alone[k], &beside[k], k) && compare(&alone[k], &guessing[k], k) &&
             beside[k].done;
    if (ok && steps - fewer != well) { // a good guess is a step that is not needed
        fprintf(stderr, "%lld steps, %lld with guesses of which %lld were good\n", (long long)steps,
                (long long)fewer, (long long)well);
        ok = false;
    }
    if (ok)
        printf("{\"pages\": %lld, \"steps\": %lld, \"read\": %lld, \"cached\": %lld, \"written\": "
               "%lld, \"preempted\": %lld, \"finished\": %lld, \"cancelled\": %lld, \"made\": "
               "%llu, \"guessed_well\": %lld}\n",
               (long long)told.pages, (long long)told.steps, (long long)told.prefilled_tokens,
               (long long)told.cached_tokens, (long long)told.generated_tokens,
               (long long)told.preempted, (long long)told.finished, (long long)told.cancelled,
               (unsigned long long)compiled, (long long)well);
    ct_lm_free(lm);
    return ok ? 0 : 1;
}

static void no_engine_is_no_crash(void **unused) {
    (void)unused;
    ct_engine_free(NULL);
    ct_engine_cancel(NULL, 1);
    assert_int_equal(ct_engine_stats(NULL).pages, 0);
}

int main(int argc, char **argv) {
    if (argc >= 3) return run(argv[1], strtoull(argv[2], NULL, 10), argc > 3 ? argv[3] : "f32");
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_engine_is_no_crash)};
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
