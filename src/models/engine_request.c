// Checks a request against the model, and copies what it points to.
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "models/engine.h"
#include "models/lm_sampling.h"

bool ct__lm_tokens_fit(const ct_lm *lm, const int32_t *tokens, size_t n, int64_t context,
                       const char *op, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (n < 1 || (int64_t)n >= context) {
        ct__fail(ctx, CT_E_ARGUMENT, here, op,
                 "the prompt has %zu tokens; it must have 1 to %lld, one less than the context", n,
                 (long long)context - 1);
        const int64_t before = lm->spec.ropes[0].original_context;
        if (before && context == before && context < lm->spec.context)
            ct__err_hint(&ctx->err,
                         "the model scales its positions beyond %lld tokens; a larger context than "
                         "that must be requested",
                         (long long)before);
        return false;
    }
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= lm->spec.vocab)
            return ct__refuse(ctx, CT_E_ARGUMENT, here, op,
                              "token %zu of the prompt is %d, it must be 0 to %lld", i,
                              (int)tokens[i], (long long)lm->spec.vocab - 1);
    return true;
}

bool ct__lm_sampling_fits(const ct_lm_sampling *s, ct_ctx *ctx, const char *op, ct_loc here) {
    const struct {
        const char *name;
        double value, min, max;
    } ranges[] = {{"temperature", s->temperature.value, 0, 1e6},
                  {"repetition_penalty", s->repetition_penalty.value, 0, 1e6},
                  {"frequency_penalty", s->frequency_penalty, -1e6, 1e6},
                  {"presence_penalty", s->presence_penalty, -1e6, 1e6},
                  {"no_repeat_ngram_size", (double)s->no_repeat_ngram_size, 0, INT32_MAX},
                  {"min_new_tokens", (double)s->min_new_tokens, 0, INT32_MAX},
                  {"min_length", (double)s->min_length, 0, INT32_MAX},
                  {"top_k", (double)s->top_k, 0, INT32_MAX},
                  {"top_p", s->top_p.value, 0, 1},
                  {"min_p", s->min_p, 0, 1},
                  {"typical_p", s->typical_p.value, 0, 1}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (!(ranges[i].value >= ranges[i].min && ranges[i].value <= ranges[i].max))
            return ct__refuse(ctx, CT_E_ARGUMENT, here, op, "%s is %g, it must be %g to %g",
                              ranges[i].name, ranges[i].value, ranges[i].min, ranges[i].max);
    return true;
}

static bool engine_request_check(const ct_engine *e, const ct_engine_request *a, ct_ctx *ctx,
                                 const char *op) {
    if (a->n_stops && !e->options.tokenizer)
        return ct__refuse(ctx, CT_E_ARGUMENT, a->here, op,
                          "stop strings need the engine's tokenizer");
    for (size_t i = 0; i < a->n_stops; i++)
        if (!a->stops[i] || !*a->stops[i])
            return ct__refuse(ctx, CT_E_ARGUMENT, a->here, op, "stop string %zu is empty", i);
    if (a->top_logprobs >= 0 && a->top_logprobs <= 128 && a->max_tokens >= 0) return true;
    const bool likely = a->max_tokens >= 0;
    return ct__refuse(
        ctx, CT_E_ARGUMENT, a->here, op, "%s is %lld, it must be %s", likely ? "likely" : "most",
        (long long)(likely ? a->top_logprobs : a->max_tokens), likely ? "0 to 128" : "0 or more");
}

static void *engine_request_copy(ct_arena *arena, const void *from, size_t n, bool *ok) {
    void *to = n ? ct__arena(arena, n) : NULL;
    if (to) memcpy(to, from, n);
    *ok = *ok && (to || !n);
    return to;
}

static bool engine_request_copy_all(ct_sequence *seq, const ct_engine_request *a) {
    bool ok = true;
    ct_lm_sampling *s = &seq->ask.sampling;
    seq->ask = *a;
    seq->ask.prompt = NULL; // the prompt is in seq->tokens
    seq->ask.eos_ids =
        engine_request_copy(&seq->arena, a->eos_ids, a->n_eos_ids * sizeof *a->eos_ids, &ok);
    s->logit_bias = engine_request_copy(&seq->arena, s->logit_bias,
                                        s->n_logit_bias * sizeof *s->logit_bias, &ok);
    ct_lm_tokens *banned =
        engine_request_copy(&seq->arena, s->banned, s->n_banned * sizeof *s->banned, &ok);
    for (size_t i = 0; ok && i < s->n_banned; i++)
        banned[i].v =
            engine_request_copy(&seq->arena, banned[i].v, banned[i].n * sizeof *banned[i].v, &ok);
    s->banned = banned;
    const char **stops =
        engine_request_copy(&seq->arena, a->stops, a->n_stops * sizeof *a->stops, &ok);
    for (size_t i = 0; ok && i < a->n_stops; i++) {
        stops[i] = ct__arena_str(&seq->arena, stops[i]);
        ok = stops[i] != NULL;
    }
    seq->ask.stops = stops;
    return ok;
}

ct_sequence *ct__sequence_new(const ct_engine *e, const ct_engine_request *a, const char *op) {
    ct_ctx *ctx = ct__ctx();
    if (!ct__given(ctx, a->prompt, a->here, op, "the prompt") ||
        !ct__lm_tokens_fit(e->lm, a->prompt, a->n_prompt, e->options.context, op, a->here) ||
        !ct__lm_sampling_fits(&a->sampling, ctx, op, a->here) ||
        !engine_request_check(e, a, ctx, op))
        return NULL;
    const int64_t capacity = e->options.context - (int64_t)a->n_prompt;
    ct_sequence *seq = ct__calloc(1, sizeof *seq);
    bool ok = seq && engine_request_copy_all(seq, a);
    if (seq) {
        seq->ask.max_tokens = a->max_tokens && a->max_tokens < capacity ? a->max_tokens : capacity;
        seq->n = (int64_t)a->n_prompt;
        seq->cap = seq->n + seq->ask.max_tokens;
        seq->tokens = ct__malloc((size_t)seq->cap * sizeof *seq->tokens);
        seq->page = ct__malloc((size_t)(seq->cap / CT_LM_PAGE + 1) * sizeof *seq->page);
        seq->state = -1;
        seq->added_at = ct__now();
        ok = ok && seq->tokens && seq->page;
    }
    if (!ok) {
        ct__err_memory(&ctx->err, a->here, op, a->n_prompt * sizeof *a->prompt);
    } else {
        memcpy(seq->tokens, a->prompt, a->n_prompt * sizeof *seq->tokens);
        if (e->options.tokenizer)
            seq->detokenizer =
                ct_decoder_new_at(e->options.tokenizer, !a->include_special, a->here);
        if (seq->detokenizer || !e->options.tokenizer) return seq;
    }
    ct__sequence_free(seq);
    return NULL;
}

void ct__sequence_free(ct_sequence *seq) {
    if (!seq) return;
    ct_decoder_free(seq->detokenizer);
    ct__text_free(&seq->pending_text);
    ct__arena_free(&seq->arena);
    ct__free(seq->tokens);
    ct__free(seq->page);
    ct__free(seq);
}
