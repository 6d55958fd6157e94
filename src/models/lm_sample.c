// Text out of a model: a prompt is fed to the key-value cache, then one token a step is drawn.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/plain.h"
#include "graph/graph.h"
#include "io/utf8.h"
#include "models/lm.h"
#include "models/lm_sampling.h"
#include "train/checkpoint.h"

// Prompts are fed in pieces of at most this size, of a dynamic length: the kernels of the first one
// serve all. A single token, as each that is drawn, has kernels of its own.
enum { PIECE = 128 };

typedef struct choice {
    double weight;
    int32_t token;
} choice;

typedef struct writer {
    const ct_learner *model;
    ct_learner_cache *cache;
    const ct_vocab *vocab;
    const ct_lexis *lexis;
    const ct_lm_draw *draw;
    ct_err *err;
    ct_byte_decoder decoder;
    ct_decoder *speaker; // of a tokenizer
    int32_t *text;       // (context) tokens, the ones in the cache and those still to be fed
    int64_t n, fed, context, longest;
    float *logits; // (vocab)
    choice *choices;
    uint64_t drawn;
} writer;

// ----------------------------------------------------------------------------------------- feeding

static int64_t piece_of(int64_t left) { return left < PIECE ? left : PIECE; }

static bool rehearse_feed(const ct_learner *model, ct_learner_cache *cache, int64_t n,
                          int64_t longest) {
    static const int32_t text[PIECE];
    for (int64_t fed = 0; fed < n;) {
        CT_SCOPE;
        ct_tensor logits = ct__learner_read(model, cache, text, piece_of(n - fed), fed, longest);
        if (!ct_eval(&logits, 1)) return false;
        fed += piece_of(n - fed);
    }
    return true;
}

// Tokens that a text may come to have.
static int64_t longest_of(int64_t context, size_t prompt, int64_t length) {
    return (int64_t)prompt < context && length < context - (int64_t)prompt
               ? (int64_t)prompt + length
               : context;
}

bool ct__lm_rehearse_write(const ct_learner *model, ct_learner_cache *cache, size_t prompt,
                           int64_t length) {
    const int64_t context = cache->most, half = context / 2,
                  longest = longest_of(context, prompt, length);
    int64_t n = 0;
    for (size_t i = 0; i < prompt; i++) n = (n == context ? half : n) + 1; // as add_token does
    if (!rehearse_feed(model, cache, n, longest)) return false;
    bool fills = length > context - n + 1; // what is drawn last is not fed
    return (!fills || rehearse_feed(model, cache, half + 1, longest)) &&
           rehearse_feed(model, cache, 1, longest);
}

// Feeds text[fed .. fed + n) and fetches the logits behind it.
static bool feed_some(writer *w, int64_t n) {
    CT_SCOPE;
    ct_tensor logits =
        ct__learner_read(w->model, w->cache, w->text + w->fed, n, w->fed, w->longest);
    const float *values = ct_data(logits); // (1, vocab)
    if (!values) return false;
    memcpy(w->logits, values, (size_t)ct__learner_vocab(w->model) * sizeof *values);
    w->fed += n;
    return true;
}

static bool feed(writer *w) {
    while (w->fed < w->n) {
        if (w->draw->stop && w->draw->stop(w->draw->user)) return true;
        if (!feed_some(w, piece_of(w->n - w->fed))) return false;
    }
    return true;
}

// A full context keeps its newest half, which is fed again from place 0 on.
static void add_token(writer *w, int32_t token) {
    if (w->n == w->context) {
        int64_t half = w->context / 2;
        memmove(w->text, w->text + w->n - half, (size_t)half * sizeof *w->text);
        w->n = half;
        w->fed = 0;
    }
    w->text[w->n++] = token;
}

// ----------------------------------------------------------------------------------------- drawing

static int likeliest_first(const void *a, const void *b) {
    const choice *x = a, *y = b;
    if (x->weight != y->weight) return x->weight < y->weight ? 1 : -1;
    return x->token < y->token ? -1 : x->token > y->token;
}

static bool pick(writer *w, int32_t *token) {
    CT_PLAIN;
    int32_t n = (int32_t)ct__learner_vocab(w->model);
    int64_t k = w->draw->top_k < n ? w->draw->top_k : n;
    for (int32_t i = 0; i < n; i++) {
        if (!isfinite(w->logits[i]))
            return ct__err(w->err, CT_E_DATA, CT_NOWHERE, "sample",
                           "the model gives no finite scores: its weights are not usable");
        w->choices[i] = (choice){w->logits[i], i};
    }
    qsort(w->choices, (size_t)n, sizeof *w->choices, likeliest_first);
    *token = w->choices[0].token;
    if (w->draw->temperature == 0) return true;
    double top = w->choices[0].weight, total = 0;
    for (int64_t i = 0; i < k; i++)
        total += w->choices[i].weight = exp((w->choices[i].weight - top) / w->draw->temperature);
    double left = ct__lm_uniform(w->draw->seed, w->drawn++) * total;
    for (int64_t i = 0; i < k && left >= 0; i++) {
        *token = w->choices[i].token;
        left -= w->choices[i].weight;
    }
    return true;
}

// ----------------------------------------------------------------------------------------- writing

static bool put(writer *w, const char *text, size_t n) {
    if (n == 0 || w->draw->write(text, n, w->draw->user)) return true;
    return ct__err(w->err, CT_E_FILE, CT_NOWHERE, "sample", "the text could not be written");
}

// What one more token adds to the text.
static bool put_token(writer *w, int32_t token) {
    char out[CT_DECODE_ROOM];
    size_t n;
    if (!w->speaker) return put(w, out, ct__decode(w->vocab, &w->decoder, token, out));
    const char *text = ct_decoder_next(w->speaker, token, &n);
    return text && put(w, text, n);
}

static bool put_end(writer *w) {
    char out[CT_DECODE_ROOM];
    size_t n;
    if (!w->speaker) return put(w, out, ct__decode_end(&w->decoder, out));
    const char *text = ct_decoder_end(w->speaker, &n);
    return text && put(w, text, n);
}

static bool write_text(writer *w) {
    int32_t token = 0;
    for (int64_t i = 0; i < w->draw->length; i++) {
        if (!feed(w)) return false;
        if (w->draw->stop && w->draw->stop(w->draw->user)) break;
        if (!pick(w, &token)) return false;
        if (w->speaker && token == w->lexis->end) break;
        if (!put_token(w, token)) return false;
        add_token(w, token);
    }
    return put_end(w);
}

size_t ct__lm_first(const ct_vocab *vocab, char out[4]) {
    uint32_t first = '\n';
    bool has = vocab->kind != CT_TOKENS_CHARS;
    for (int32_t i = 0; !has && i < vocab->n; i++) has = vocab->chars[i] == '\n';
    if (!has) first = vocab->chars[0];
    return ct__utf8_put(first, out);
}

// The prompt's tokens; freed with ct__free.
static bool encode(const writer *w, int32_t **tokens, size_t *n) {
    const ct_lm_draw *d = w->draw;
    const ct_lexis *lexis = w->lexis;
    ct_encoding e = {0};
    if (!w->speaker)
        return ct__encode(w->vocab, "prompt", d->prompt, d->prompt_n, tokens, n, w->err);
    bool ok = ct_tokenizer_encode_with(lexis->tokenizer, d->prompt, d->prompt_n, &e,
                                       (ct_encode_options){.here = CT_NOWHERE});
    int32_t *all = ok ? ct__malloc((e.n + 1) * sizeof *all) : NULL;
    if (ok && !all) ok = ct__err_memory(w->err, CT_NOWHERE, "sample", e.n * sizeof *all);
    if (ok) {
        // Something to go on with there must be.
        const int64_t first = lexis->begin >= 0 ? lexis->begin : e.n ? -1 : lexis->end;
        size_t front = first >= 0 || !e.n;
        if (front) all[0] = first >= 0 ? (int32_t)first : 0;
        if (e.n) memcpy(all + front, e.ids, e.n * sizeof *all);
        *tokens = all;
        *n = e.n + front;
    }
    ct_encoding_free(&e);
    return ok;
}

bool ct__lm_write(const ct_learner *model, ct_learner_cache *cache, const ct_vocab *vocab,
                  const ct_lexis *lexis, const ct_lm_draw *draw, ct_err *err) {
    writer w = {
        .model = model, .cache = cache, .vocab = vocab, .lexis = lexis, .draw = draw, .err = err};
    int32_t *prompt = NULL;
    size_t n = 0, vocab_n = (size_t)ct__learner_vocab(model);
    bool ok = true;
    if (lexis->tokenizer) ok = (w.speaker = ct_decoder_new(lexis->tokenizer, true)) != NULL;
    ok = ok && encode(&w, &prompt, &n);
    w.context = cache->most;
    w.longest = longest_of(w.context, n, draw->length);
    w.text = ct__malloc((size_t)w.context * sizeof *w.text);
    w.logits = ct__malloc(vocab_n * sizeof *w.logits);
    w.choices = ct__malloc(vocab_n * sizeof *w.choices);
    ok = ok && ((w.text && w.logits && w.choices) ||
                ct__err_memory(err, CT_NOWHERE, "sample", vocab_n * sizeof *w.choices));
    for (size_t i = 0; ok && i < n; i++) add_token(&w, prompt[i]);
    ok = ok && (!draw->echo || put(&w, draw->prompt, draw->prompt_n)) && write_text(&w);
    ct_decoder_free(w.speaker);
    ct__free(w.text);
    ct__free(w.logits);
    ct__free(w.choices);
    ct__free(prompt);
    return ok && !err->code;
}

// ----------------------------------------------------------------------------------- a saved model

static bool is_there(const char *dir, const char *below, const char *name) {
    char path[CT_RUN_PATH];
    return snprintf(path, sizeof path, "%s%s/%s", dir, below, name) < CT_RUN_PATH &&
           access(path, F_OK) == 0;
}

// The tokenizer in the folder or, of a save in a run's, two above.
static bool load_lexis(const char *dir, ct_lexis *lexis, ct_err *err) {
    char above[CT_RUN_PATH];
    const bool save = !is_there(dir, "", "tokenizer.json") &&
                      is_there(dir, "", "state.safetensors") &&
                      is_there(dir, "/../..", "tokenizer.json");
    if (save && snprintf(above, sizeof above, "%s/../..", dir) < CT_RUN_PATH) dir = above;
    return ct__lexis_load(lexis, dir, err);
}

static bool vocab_of(const char *dir, const ct_gpt2_config *config, ct_vocab *vocab, ct_err *err) {
    bool bytes = config->tokens && strcmp(config->tokens, "bytes") == 0;
    bool chars = config->tokens && strcmp(config->tokens, "chars") == 0;
    if (!bytes && !chars)
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, dir,
                       "config.json does not say which text the tokens stand for");
    if (!ct__vocab_parse(dir, bytes ? CT_TOKENS_BYTES : CT_TOKENS_CHARS, config->characters,
                         config->characters_n, vocab, err))
        return false;
    if (vocab->n == config->vocab) return true;
    int32_t n = vocab->n;
    ct__vocab_free(vocab);
    return ct__err(err, CT_E_FORMAT, CT_NOWHERE, dir,
                   "the model has %" PRId64 " tokens, but the vocabulary in config.json %" PRId32,
                   config->vocab, n);
}

// What the model's tokens stand for: a vocabulary in config.json, or a tokenizer's.
static bool meanings_of(const char *dir, const ct_learner *model, ct_vocab *vocab, ct_lexis *lexis,
                        ct_err *err) {
    const ct_gpt2_config *config = model->gpt2 ? ct_gpt2_config_of(model->gpt2) : NULL;
    const bool beside = is_there(dir, "", "tokenizer.json") ||
                        is_there(dir, "", "tokenizer.model") ||
                        is_there(dir, "/../..", "tokenizer.json");
    if (config && (config->tokens || !beside)) return vocab_of(dir, config, vocab, err);
    vocab->kind = CT_TOKENS_LATER;
    if (!load_lexis(dir, lexis, err)) return false;
    const int64_t n = ct_tokenizer_size(lexis->tokenizer), most = ct__learner_vocab(model);
    return n <= most ||
           ct__err(err, CT_E_FORMAT, CT_NOWHERE, dir,
                   "the tokenizer has %" PRId64 " tokens, the model knows %" PRId64, n, most);
}

static int64_t length_of(const ct_lm_sample_options *o) { return o->length ? o->length : 500; }

// A token is a byte at the least, but for those that stand in front of a text.
static int64_t longest_text(const ct_lm_sample_options *o) {
    const int64_t prompt = o->prompt ? (int64_t)strlen(o->prompt) : 1;
    return length_of(o) < INT32_MAX ? prompt + CT_LM_PROMPT + length_of(o) : INT64_MAX;
}

static bool usable(const ct_lm_sample_options *o, ct_err *err) {
    if (!o->dir || !o->write)
        return ct__err(err, CT_E_USAGE, CT_NOWHERE, "sample",
                       "a folder and a function that takes the text are needed");
    if (o->length < 0 || o->top_k < 0 ||
        (ct__num_given(o->temperature) && !(o->temperature.value >= 0)))
        return ct__err(err, CT_E_USAGE, CT_NOWHERE, "sample",
                       "length, top_k and temperature cannot be negative");
    return true;
}

// Loads and writes as the run will, on a device that does neither.
static bool rehearse(const ct_lm_sample_options *o, ct_ctx *ctx) {
    ct_lm_rehearsal h = {0};
    ct_lm_cost cost = {0};
    bool ok = ct__rehearsal_begin(&h, ctx, 0, &ctx->err);
    ct_learner model = {0};
    ct_learner_cache cache = {0};
    if (ok && !ct__learner_load(o->dir, false, &model)) {
        ct__lm_offer_save(o->dir, &h.ctx->err);
        ok = false;
    }
    ok = ok && ct__learner_cache_new(&model, longest_text(o), &cache) &&
         ct__lm_rehearse_write(&model, &cache, o->prompt ? strlen(o->prompt) : 1, length_of(o)) &&
         ct__rehearsal_part(&h, "token");
    ct__learner_cache_free(&cache);
    ct__learner_free(&model);
    ct__rehearsal_end(&h, &cost, &ctx->err);
    ok = ok && ct__lm_fits(&cost, "sample", &h.largest, "a smaller model needs less", &ctx->err);
    ct__text_free(&h.largest);
    return ok;
}

bool ct_lm_sample(const ct_lm_sample_options *o) {
    ct_ctx *ctx = ct__ctx();
    char first[4];
    if (!ctx || !ct__given(ctx, o, CT_NOWHERE, "sample", "the options")) return false;
    if (ctx->err.code || !usable(o, &ctx->err) || !rehearse(o, ctx)) return false;
    ct_learner model = {0};
    ct_learner_cache cache = {0};
    ct_vocab vocab = {0};
    ct_lexis lexis = {0};
    bool ok = ct__learner_load(o->dir, false, &model) &&
              meanings_of(o->dir, &model, &vocab, &lexis, &ctx->err) &&
              ct__learner_cache_new(&model, longest_text(o), &cache);
    if (ok) {
        ct_lm_draw draw = {.prompt = o->prompt,
                           .prompt_n = o->prompt ? strlen(o->prompt) : 0,
                           .length = length_of(o),
                           .top_k = o->top_k ? o->top_k : 40,
                           .temperature = ct__num_or(o->temperature, 0.8),
                           .seed = o->seed,
                           .write = o->write,
                           .stop = o->stop,
                           .user = o->user};
        draw.echo = draw.prompt_n > 0;
        if (!draw.echo) {
            draw.prompt = first;
            draw.prompt_n = ct__lm_first(&vocab, first);
        }
        ok = ct__lm_write(&model, &cache, &vocab, &lexis, &draw, &ctx->err);
    }
    ct__learner_cache_free(&cache);
    ct__lexis_free(&lexis);
    ct__vocab_free(&vocab);
    ct__learner_free(&model);
    return ok;
}
