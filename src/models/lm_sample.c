// Samples text from a model: feeds the prompt to the key-value cache, then samples one token per step.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fp_env.h"
#include "graph/graph.h"
#include "io/utf8.h"
#include "models/lm.h"
#include "models/lm_sampling.h"
#include "train/checkpoint.h"

// Prompts are fed in chunks of at most this size with a dynamic length: the kernels of the first one serve
// all. A single token, as each sampled one is, has kernels of its own.
enum { SAMPLE_CHUNK = 128 };

typedef struct sample_candidate {
    double weight;
    int32_t token;
} sample_candidate;

typedef struct sampler {
    const ct_lm *lm;
    ct_lm_cache *cache;
    const ct_vocab *vocab;
    const ct_tokenizer_bundle *bundle;
    const ct_lm_draw *args;
    ct_err *err;
    ct_byte_decoder decoder;
    ct_decoder *detokenizer; // detokenizer of a tokenizer
    int32_t *text;           // (context) the tokens in the cache, and those still to be fed
    int64_t n, n_fed, context, max_length;
    float *logits; // (vocab)
    sample_candidate *candidates;
    uint64_t n_sampled;
} sampler;

// --------------------------------------------------------------------------------------------- cache

int64_t ct__lm_max_context(const ct_lm *lm) {
    enum { UNLIMITED_CONTEXT = 4096 };
    return lm->spec.context ? lm->spec.context : UNLIMITED_CONTEXT;
}

ct_lm_cache *ct__lm_sample_cache_new(const ct_lm *lm, int64_t max_length) {
    // a multiple, so that sequences of similar lengths share kernels
    enum { CAPACITY_STEP = 256 };
    int64_t capacity = ct__lm_max_context(lm);
    if (max_length <= capacity - CAPACITY_STEP)
        capacity = (max_length + CAPACITY_STEP - 1) / CAPACITY_STEP * CAPACITY_STEP;
    return ct__lm_decode_cache(lm, 1, capacity, CT_NOWHERE);
}

// Returns the maximum number of tokens in the cache.
static int64_t sample_capacity(const ct_lm *lm, const ct_lm_cache *cache) {
    const int64_t slots = cache->pages * CT_LM_PAGE, context = ct__lm_max_context(lm);
    return slots < context ? slots : context;
}

// Feeds the next n tokens, the first of which is at `position`, and returns the logits (1, vocab) after the
// last of them. `max_length` is the maximum length of the sequence.
static ct_tensor sample_read(const ct_lm *lm, ct_lm_cache *cache, const int32_t *tokens, int64_t n,
                             int64_t position, int64_t max_length) {
    ct_tensor x = ct_from(tokens, CT_I32, CT_DIMS(1, n > 1 ? CT_DYN(n) : 1)); // (1, n)
    return ct__lm_decode(lm, cache, x, ct_i(position), max_length, CT_NOWHERE);
}

// ------------------------------------------------------------------------------------------- prefill

static int64_t sample_chunk_size(int64_t left) { return left < SAMPLE_CHUNK ? left : SAMPLE_CHUNK; }

static bool sample_dry_run_feed(const ct_lm *lm, ct_lm_cache *cache, int64_t n,
                                int64_t max_length) {
    static const int32_t text[SAMPLE_CHUNK];
    for (int64_t fed = 0; fed < n;) {
        CT_SCOPE;
        ct_tensor logits =
            sample_read(lm, cache, text, sample_chunk_size(n - fed), fed, max_length);
        if (!ct_eval(&logits, 1)) return false;
        fed += sample_chunk_size(n - fed);
    }
    return true;
}

// Returns the maximum number of tokens of the sequence.
static int64_t sample_max_length(int64_t context, size_t prompt, int64_t length) {
    return (int64_t)prompt < context && length < context - (int64_t)prompt
               ? (int64_t)prompt + length
               : context;
}

bool ct__lm_dry_run_generate(const ct_lm *lm, ct_lm_cache *cache, size_t prompt, int64_t length) {
    const int64_t context = sample_capacity(lm, cache), half = context / 2,
                  max_length = sample_max_length(context, prompt, length);
    int64_t n = 0;
    // as sample_append_token does
    for (size_t i = 0; i < prompt; i++) n = (n == context ? half : n) + 1;
    if (!sample_dry_run_feed(lm, cache, n, max_length)) return false;
    bool overflows = length > context - n + 1; // the last sampled token is not fed
    return (!overflows || sample_dry_run_feed(lm, cache, half + 1, max_length)) &&
           sample_dry_run_feed(lm, cache, 1, max_length);
}

// Feeds text[fed .. fed + n) and fetches the logits after it.
static bool sample_feed_chunk(sampler *s, int64_t n) {
    CT_SCOPE;
    ct_tensor logits = sample_read(s->lm, s->cache, s->text + s->n_fed, n, s->n_fed, s->max_length);
    const float *values = ct_data(logits); // (1, vocab)
    if (!values) return false;
    memcpy(s->logits, values, (size_t)s->lm->spec.vocab * sizeof *values);
    s->n_fed += n;
    return true;
}

static bool sample_feed(sampler *s) {
    while (s->n_fed < s->n) {
        if (s->args->stop && s->args->stop(s->args->user)) return true;
        if (!sample_feed_chunk(s, sample_chunk_size(s->n - s->n_fed))) return false;
    }
    return true;
}

// Appends a token. A full context keeps its newest half, which is fed again from position 0.
static void sample_append_token(sampler *s, int32_t token) {
    if (s->n == s->context) {
        int64_t half = s->context / 2;
        memmove(s->text, s->text + s->n - half, (size_t)half * sizeof *s->text);
        s->n = half;
        s->n_fed = 0;
    }
    s->text[s->n++] = token;
}

// ------------------------------------------------------------------------------------------ sampling

static int sample_compare(const void *a, const void *b) {
    const sample_candidate *x = a, *y = b;
    if (x->weight != y->weight) return x->weight < y->weight ? 1 : -1;
    return x->token < y->token ? -1 : x->token > y->token;
}

static bool sample_pick_token(sampler *s, int32_t *token) {
    CT_DEFAULT_ENV;
    int32_t n = (int32_t)s->lm->spec.vocab;
    int64_t k = s->args->top_k < n ? s->args->top_k : n;
    for (int32_t i = 0; i < n; i++) {
        if (!isfinite(s->logits[i]))
            return ct__err(s->err, CT_E_DATA, CT_NOWHERE, "sample",
                           "the model gives no finite scores: its weights are not usable");
        s->candidates[i] = (sample_candidate){s->logits[i], i};
    }
    qsort(s->candidates, (size_t)n, sizeof *s->candidates, sample_compare);
    *token = s->candidates[0].token;
    if (s->args->temperature == 0) return true;
    double max_logit = s->candidates[0].weight, total = 0;
    for (int64_t i = 0; i < k; i++)
        total += s->candidates[i].weight =
            exp((s->candidates[i].weight - max_logit) / s->args->temperature);
    double target = ct__lm_uniform(s->args->seed, s->n_sampled++) * total;
    for (int64_t i = 0; i < k && target >= 0; i++) {
        *token = s->candidates[i].token;
        target -= s->candidates[i].weight;
    }
    return true;
}

// -------------------------------------------------------------------------------------------- output

static bool sample_write(sampler *s, const char *text, size_t n) {
    if (n == 0 || s->args->write(text, n, s->args->user)) return true;
    return ct__err(s->err, CT_E_FILE, CT_NOWHERE, "sample", "the text could not be written");
}

// Writes the text that one more token adds.
static bool sample_write_token(sampler *s, int32_t token) {
    char out[CT_DECODE_ROOM];
    size_t n;
    if (!s->detokenizer) return sample_write(s, out, ct__decode(s->vocab, &s->decoder, token, out));
    const char *text = ct_decoder_next(s->detokenizer, token, &n);
    return text && sample_write(s, text, n);
}

static bool sample_flush(sampler *s) {
    char out[CT_DECODE_ROOM];
    size_t n;
    if (!s->detokenizer) return sample_write(s, out, ct__decode_end(&s->decoder, out));
    const char *text = ct_decoder_end(s->detokenizer, &n);
    return text && sample_write(s, text, n);
}

static bool sample_generate(sampler *s) {
    int32_t token = 0;
    for (int64_t i = 0; i < s->args->max_tokens; i++) {
        if (!sample_feed(s)) return false;
        if (s->args->stop && s->args->stop(s->args->user)) break;
        if (!sample_pick_token(s, &token)) return false;
        if (s->detokenizer && token == s->bundle->end) break;
        if (!sample_write_token(s, token)) return false;
        sample_append_token(s, token);
    }
    return sample_flush(s);
}

size_t ct__lm_first(const ct_vocab *vocab, char out[4]) {
    uint32_t first = '\n';
    bool has = vocab->kind != CT_TOKENS_CHARS;
    for (int32_t i = 0; !has && i < vocab->n; i++) has = vocab->chars[i] == '\n';
    if (!has) first = vocab->chars[0];
    return ct__utf8_put(first, out);
}

// Encodes the prompt; the tokens are freed with ct__free.
static bool sample_encode_prompt(const sampler *s, int32_t **tokens, size_t *n) {
    const ct_lm_draw *d = s->args;
    const ct_tokenizer_bundle *bundle = s->bundle;
    ct_encoding e = {0};
    if (!s->detokenizer)
        return ct__encode(s->vocab, "prompt", d->prompt, d->prompt_n, tokens, n, s->err);
    bool ok = ct_tokenizer_encode_with(bundle->tokenizer, d->prompt, d->prompt_n, &e,
                                       (ct_encode_options){.here = CT_NOWHERE});
    int32_t *ids = ok ? ct__malloc((e.n + 1) * sizeof *ids) : NULL;
    if (ok && !ids) ok = ct__err_memory(s->err, CT_NOWHERE, "sample", e.n * sizeof *ids);
    if (ok) {
        // The sequence must have a first token.
        const int64_t first = bundle->begin >= 0 ? bundle->begin : e.n ? -1 : bundle->end;
        size_t n_front = first >= 0 || !e.n;
        if (n_front) ids[0] = first >= 0 ? (int32_t)first : 0;
        if (e.n) memcpy(ids + n_front, e.ids, e.n * sizeof *ids);
        *tokens = ids;
        *n = e.n + n_front;
    }
    ct_encoding_free(&e);
    return ok;
}

bool ct__lm_write(const ct_lm *lm, ct_lm_cache *cache, const ct_vocab *vocab,
                  const ct_tokenizer_bundle *bundle, const ct_lm_draw *draw, ct_err *err) {
    sampler s = {
        .lm = lm, .cache = cache, .vocab = vocab, .bundle = bundle, .args = draw, .err = err};
    int32_t *prompt = NULL;
    size_t n = 0, vocab_n = (size_t)lm->spec.vocab;
    bool ok = true;
    if (bundle->tokenizer) ok = (s.detokenizer = ct_decoder_new(bundle->tokenizer, true)) != NULL;
    ok = ok && sample_encode_prompt(&s, &prompt, &n);
    s.context = sample_capacity(lm, cache);
    s.max_length = sample_max_length(s.context, n, draw->max_tokens);
    s.text = ct__malloc((size_t)s.context * sizeof *s.text);
    s.logits = ct__malloc(vocab_n * sizeof *s.logits);
    s.candidates = ct__malloc(vocab_n * sizeof *s.candidates);
    ok = ok && ((s.text && s.logits && s.candidates) ||
                ct__err_memory(err, CT_NOWHERE, "sample", vocab_n * sizeof *s.candidates));
    for (size_t i = 0; ok && i < n; i++) sample_append_token(&s, prompt[i]);
    ok = ok && (!draw->echo || sample_write(&s, draw->prompt, draw->prompt_n)) &&
         sample_generate(&s);
    ct_decoder_free(s.detokenizer);
    ct__free(s.text);
    ct__free(s.logits);
    ct__free(s.candidates);
    ct__free(prompt);
    return ok && !err->code;
}

// -------------------------------------------------------------------------------------- saved models

static bool sample_file_exists(const char *dir, const char *subfolder, const char *name) {
    char path[CT_RUN_PATH];
    return snprintf(path, sizeof path, "%s%s/%s", dir, subfolder, name) < CT_RUN_PATH &&
           access(path, F_OK) == 0;
}

// Loads the tokenizer in the folder or, for a checkpoint in a run's folder, two folders above.
static bool sample_load_tokenizer(const char *dir, ct_tokenizer_bundle *bundle, ct_err *err) {
    char run_dir[CT_RUN_PATH];
    const bool save = !sample_file_exists(dir, "", "tokenizer.json") &&
                      sample_file_exists(dir, "", "state.safetensors") &&
                      sample_file_exists(dir, "/../..", "tokenizer.json");
    if (save && snprintf(run_dir, sizeof run_dir, "%s/../..", dir) < CT_RUN_PATH) dir = run_dir;
    return ct__bundle_load(bundle, dir, err);
}

static bool sample_load_vocab(const char *dir, const ct_lm *lm, ct_vocab *vocab, ct_err *err) {
    static const char *const kinds[] = {"bytes", "chars", NULL};
    const char *characters = NULL;
    size_t n_characters = 0;
    int kind;
    if (!ct__config_has(&lm->config, "tokenizer"))
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, dir,
                       "config.json has no vocabulary for the tokens");
    if (!ct__config_choice(&lm->config, "tokenizer", kinds, &kind, err) ||
        (kind && !ct__config_string(&lm->config, "vocabulary", &characters, &n_characters, err)) ||
        !ct__vocab_parse(dir, kind ? CT_TOKENS_CHARS : CT_TOKENS_BYTES, characters, n_characters,
                         vocab, err))
        return false;
    if (vocab->n == lm->spec.vocab) return true;
    int32_t n = vocab->n;
    ct__vocab_free(vocab);
    return ct__err(err, CT_E_FORMAT, CT_NOWHERE, dir,
                   "the model has %" PRId64 " tokens, but the vocabulary in config.json %" PRId32,
                   lm->spec.vocab, n);
}

// Loads the model's vocabulary from config.json, or its tokenizer.
static bool sample_load_vocab_or_tokenizer(const char *dir, const ct_lm *lm, ct_vocab *vocab,
                                           ct_tokenizer_bundle *bundle, ct_err *err) {
    const bool has_tokenizer = sample_file_exists(dir, "", "tokenizer.json") ||
                               sample_file_exists(dir, "", "tokenizer.model") ||
                               sample_file_exists(dir, "/../..", "tokenizer.json");
    if (ct__config_has(&lm->config, "tokenizer") || !has_tokenizer)
        return sample_load_vocab(dir, lm, vocab, err);
    vocab->kind = CT_TOKENS_DEFERRED;
    if (!sample_load_tokenizer(dir, bundle, err)) return false;
    const int64_t n = ct_tokenizer_size(bundle->tokenizer), max_vocab = lm->spec.vocab;
    return n <= max_vocab ||
           ct__err(err, CT_E_FORMAT, CT_NOWHERE, dir,
                   "the tokenizer has %" PRId64 " tokens, the model has %" PRId64, n, max_vocab);
}

static int64_t sample_max_tokens(const ct_lm_sample_options *o) {
    return o->max_tokens ? o->max_tokens : 500;
}

// An upper bound of tokens: a token has at least one byte, except those before the text.
static int64_t sample_length_bound(const ct_lm_sample_options *o) {
    const int64_t prompt = o->prompt ? (int64_t)strlen(o->prompt) : 1;
    return sample_max_tokens(o) < INT32_MAX ? prompt + CT_LM_PROMPT + sample_max_tokens(o)
                                            : INT64_MAX;
}

static bool sample_options_check(const ct_lm_sample_options *o, ct_err *err) {
    if (!o->dir || !o->on_text)
        return ct__err(err, CT_E_USAGE, CT_NOWHERE, "sample",
                       "a folder and a function that takes the text are needed");
    if (o->max_tokens < 0 || o->top_k < 0 ||
        (ct__num_given(o->temperature) && !(o->temperature.value >= 0)))
        return ct__err(err, CT_E_USAGE, CT_NOWHERE, "sample",
                       "length, top_k and temperature cannot be negative");
    return true;
}

// Loads and samples as the run will, on a device that does neither.
static bool sample_dry_run(const ct_lm_sample_options *o, ct_ctx *ctx) {
    ct_lm_dry_run h = {0};
    ct_lm_cost cost = {0};
    bool ok = ct__dry_run_begin(&h, ctx, 0, &ctx->err);
    ct_lm *lm = NULL;
    ct_lm_cache *cache = NULL;
    if (ok && !(lm = ct__lm_load_run(o->dir, false))) {
        ct__lm_offer_save(o->dir, &h.ctx->err);
        ok = false;
    }
    ok = ok && (cache = ct__lm_sample_cache_new(lm, sample_length_bound(o))) &&
         ct__lm_dry_run_generate(lm, cache, o->prompt ? strlen(o->prompt) : 1,
                                 sample_max_tokens(o)) &&
         ct__dry_run_report(&h, "token");
    ct__lm_cache_free(cache);
    ct_lm_free(lm);
    ct__dry_run_end(&h, &cost, &ctx->err);
    ok = ok && ct__lm_fits(&cost, "sample", &h.largest, "a smaller model needs less", &ctx->err);
    ct__text_free(&h.largest);
    return ok;
}

bool ct_lm_sample(const ct_lm_sample_options *o) {
    ct_ctx *ctx = ct__ctx();
    char first[4];
    if (!ctx || !ct__given(ctx, o, CT_NOWHERE, "sample", "the options")) return false;
    if (ctx->err.code || !sample_options_check(o, &ctx->err) || !sample_dry_run(o, ctx))
        return false;
    ct_lm *lm = NULL;
    ct_lm_cache *cache = NULL;
    ct_vocab vocab = {0};
    ct_tokenizer_bundle bundle = {0};
    bool ok = (lm = ct__lm_load_run(o->dir, false)) &&
              sample_load_vocab_or_tokenizer(o->dir, lm, &vocab, &bundle, &ctx->err) &&
              (cache = ct__lm_sample_cache_new(lm, sample_length_bound(o)));
    if (ok) {
        ct_lm_draw draw = {.prompt = o->prompt,
                           .prompt_n = o->prompt ? strlen(o->prompt) : 0,
                           .max_tokens = sample_max_tokens(o),
                           .top_k = o->top_k ? o->top_k : 40,
                           .temperature = ct__num_or(o->temperature, 0.8),
                           .seed = o->seed,
                           .write = o->on_text,
                           .stop = o->should_stop,
                           .user = o->user};
        draw.echo = draw.prompt_n > 0;
        if (!draw.echo) {
            draw.prompt = first;
            draw.prompt_n = ct__lm_first(&vocab, first);
        }
        ok = ct__lm_write(lm, cache, &vocab, &bundle, &draw, &ctx->err);
    }
    ct__lm_cache_free(cache);
    ct__bundle_free(&bundle);
    ct__vocab_free(&vocab);
    ct_lm_free(lm);
    return ok;
}
