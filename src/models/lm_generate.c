// A text that a model writes behind a prompt.
#include <stdio.h>
#include <string.h>

#include "cotan/lm.h"
#include "models/lm_sampling.h"
#include "models/stack.h"
#include "ops/rules.h"

// Prompts are read in pieces of at most this size, of a dynamic length: the kernels of the first one serve all. A
// single token, as each that is drawn, has kernels of its own.
enum { READ = 128 };

typedef struct writing {
    const ct_lm_generate_args *args;
    ct_lm_cache *cache;
    int32_t *text, *pages;
    int64_t n, read, all, n_pages;
    float *scores, *bent; // (vocab)
} writing;

// Reads text[read .. read + n) and fetches what may follow.
static bool read_some(writing *w, int64_t n) {
    const ct_loc here = w->args->here;
    CT_SCOPE;
    const int32_t at = (int32_t)w->read, state = 0;
    const ct_lm_part part = {
        .tokens = ct_from_at(w->text + w->read, CT_I32, CT_DIMS(1, n > 1 ? CT_DYN(n) : 1), here),
        .position = ct_from_at(&at, CT_I32, CT_DIMS(1, 1), here),
        .table = ct_from_at(w->pages, CT_I32, CT_DIMS(1, CT_DYN(w->n_pages)), here),
        .state = ct_from_at(&state, CT_I32, CT_DIMS(1), here)};
    ct_tensor logits = ct__lm_step(w->args->lm, w->cache, &part, 1, w->all, here); // (1, vocab)
    const float *values = ct_data_at(logits, here);
    if (!values) return false;
    memcpy(w->scores, values, (size_t)w->args->lm->spec.vocab * sizeof *values);
    w->read += n;
    return true;
}

static bool stopped(const writing *w) { return w->args->stop && w->args->stop(w->args->user); }

static bool is_end(const ct_lm_generate_args *a, int32_t token) {
    for (size_t i = 0; i < a->n_ends; i++)
        if (a->ends[i] == token) return true;
    return false;
}

static bool write_all(writing *w) {
    const ct_lm_generate_args *a = w->args;
    const int64_t vocab = a->lm->spec.vocab;
    ct_ctx *ctx = ct__ctx();
    for (int64_t k = 0; w->n < w->all; k++) {
        while (w->read < w->n) {
            if (stopped(w)) return true;
            const int64_t left = w->n - w->read;
            if (!read_some(w, left < READ ? left : READ)) return false;
        }
        memcpy(w->bent, w->scores, (size_t)vocab * sizeof *w->bent);
        if (!ct_lm_process(w->bent, vocab, w->text, (size_t)w->n, a->n_prompt, &a->sampling))
            return ct__err_memory(&ctx->err, a->here, "lm_generate", (size_t)vocab * 8);
        const int32_t token = ct__lm_draw_token(w->bent, vocab, &a->sampling, (uint64_t)k);
        if (token < 0) {
            ct__fail(ctx, CT_E_DATA, a->here, "lm_generate",
                     "no token can follow: the model's scores are not finite, or all of them are "
                     "banned");
            return false;
        }
        if (is_end(a, token)) return true;
        w->text[w->n++] = token;
        if (a->token && !a->token(token, ct__lm_log_probability(w->scores, vocab, token), a->user))
            return true;
    }
    return true;
}

static bool sampling_fits(const ct_lm_generate_args *a, ct_ctx *ctx) {
    const ct_lm_sampling *s = &a->sampling;
    const struct {
        const char *name;
        double value, least, most;
    } ranges[] = {{"temperature", s->temperature.value, 0, 1e6},
                  {"repetition_penalty", s->repetition_penalty.value, 0, 1e6},
                  {"frequency_penalty", s->frequency_penalty, -1e6, 1e6},
                  {"presence_penalty", s->presence_penalty, -1e6, 1e6},
                  {"top_k", (double)s->top_k, 0, INT32_MAX},
                  {"top_p", s->top_p.value, 0, 1},
                  {"min_p", s->min_p, 0, 1},
                  {"typical_p", s->typical_p.value, 0, 1}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (!(ranges[i].value >= ranges[i].least && ranges[i].value <= ranges[i].most)) {
            ct__fail(ctx, CT_E_ARGUMENT, a->here, "lm_generate", "%s is %g, it must be %g to %g",
                     ranges[i].name, ranges[i].value, ranges[i].least, ranges[i].most);
            return false;
        }
    return true;
}

static bool fits(const ct_lm_generate_args *a, ct_ctx *ctx) {
    const ct_spec *s = &a->lm->spec;
    const int64_t most = s->context ? s->context : INT32_MAX;
    if (a->lm->reader || s->bidirectional) {
        ct__fail(ctx, CT_E_ARGUMENT, a->here, "lm_generate", "%s does not go on with a text",
                 s->type);
    } else if (a->n_prompt < 1 || (int64_t)a->n_prompt >= most) {
        ct__fail(ctx, CT_E_ARGUMENT, a->here, "lm_generate",
                 "the prompt has %zu tokens; it must have 1 to %lld, one less than the context",
                 a->n_prompt, (long long)most - 1);
    } else {
        for (size_t i = 0; i < a->n_prompt; i++)
            if (a->prompt[i] < 0 || a->prompt[i] >= s->vocab) {
                ct__fail(ctx, CT_E_ARGUMENT, a->here, "lm_generate",
                         "token %zu of the prompt is %d, the model knows 0 to %lld", i,
                         (int)a->prompt[i], (long long)s->vocab - 1);
                return false;
            }
        return true;
    }
    return false;
}

static bool generate(writing *w, ct_ctx *ctx) {
    const ct_lm_generate_args *a = w->args;
    const ct_spec *s = &a->lm->spec;
    const int64_t most = a->most ? a->most : 256,
                  left = (s->context ? s->context : INT32_MAX) - (int64_t)a->n_prompt;
    w->all = (int64_t)a->n_prompt + (most < left ? most : left);
    w->n = (int64_t)a->n_prompt;
    w->n_pages = (w->all + CT_LM_PAGE - 1) / CT_LM_PAGE;
    w->text = ct__malloc((size_t)w->all * sizeof *w->text);
    w->pages = ct__malloc((size_t)w->n_pages * sizeof *w->pages);
    w->scores = ct__malloc((size_t)s->vocab * sizeof *w->scores);
    w->bent = ct__malloc((size_t)s->vocab * sizeof *w->bent);
    if (!w->text || !w->pages || !w->scores || !w->bent)
        return ct__err_memory(&ctx->err, a->here, "lm_generate", (size_t)(w->all + s->vocab) * 4);
    memcpy(w->text, a->prompt, a->n_prompt * sizeof *w->text);
    for (int64_t i = 0; i < w->n_pages; i++) w->pages[i] = (int32_t)i;
    w->cache = ct__lm_cache_new(a->lm, w->n_pages, 1, CT_F32, a->here);
    return w->cache && write_all(w);
}

bool ct_lm_generate_with(ct_lm_generate_args args) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, args.lm, args.here, "lm_generate", "the model") ||
        !ct__given(ctx, args.prompt, args.here, "lm_generate", "the prompt") || ctx->err.code ||
        !fits(&args, ctx) || !sampling_fits(&args, ctx))
        return false;
    writing w = {.args = &args};
    const bool ok = generate(&w, ctx);
    ct__lm_cache_free(w.cache);
    ct__free(w.text);
    ct__free(w.pages);
    ct__free(w.scores);
    ct__free(w.bent);
    return ok;
}
