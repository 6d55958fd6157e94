// The likeliest text: several are gone on with at once, and share the pages of what they have in common. Also one alone,
// of a model that reads another text.
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/plain.h"
#include "models/engine.h"
#include "models/lm_sampling.h"

enum { MOST_BEAMS = 64, PIECE = 128 };

typedef struct beam {
    ct_writing text;
    double *log_probability; // of each token that was written
    double score;            // their sum, as options bend it
} beam;

typedef struct candidate {
    double score;
    int32_t token;
    int64_t from; // beam
} candidate;

typedef struct search {
    const ct_lm_generate_args *args;
    ct_engine *e;
    int64_t beams, n, most,
        prompt; // of beams, those that there are; tokens to write; tokens before them
    double penalty;
    beam *running, *next, *finished; // (beams); of the finished n_finished, the best first
    int64_t n_finished;
    candidate *candidate; // (most_candidates)
    int64_t most_candidates;
} search;

static bool is_end(const ct_lm_generate_args *a, int32_t token) {
    for (size_t i = 0; i < a->n_ends; i++)
        if (a->ends[i] == token) return true;
    return false;
}

// ------------------------------------------------------------------------------------------- reading

// Reads what is left of the running texts; scores (n, vocab), valid within the scope.
static const float *read_all(search *s) {
    ct_writing *text[MOST_BEAMS];
    const ct_loc here = s->args->here;
    for (int64_t i = 0; i < s->n; i++) text[i] = &s->running[i].text;
    ct_writing *first = text[0];
    for (;;) {
        const int64_t left = first->n - first->read, time = left < PIECE ? left : PIECE;
        const ct_engine_group group[2] = {{text, s->n, time, false}};
        for (int64_t i = 0; i < s->n; i++)
            if (!ct__engine_room(s->e, text[i], time, here)) return NULL; // there are pages for all
        const float *scores = ct__engine_pass(s->e, group, here);
        for (int64_t i = 0; i < s->n; i++) text[i]->read += time;
        if (!scores || time == left) return scores;
    }
}

// ----------------------------------------------------------------------------------------- candidates

static bool better(const candidate *a, const candidate *b) { return a->score > b->score; }

static void offer(search *s, int64_t *have, candidate c) {
    candidate *of = s->candidate;
    if (*have == s->most_candidates && !better(&c, &of[*have - 1])) return;
    int64_t at = *have < s->most_candidates ? (*have)++ : *have - 1;
    for (; at && better(&c, &of[at - 1]); at--) of[at] = of[at - 1];
    of[at] = c;
}

// What all beams may become, the likeliest first.
static int64_t find_candidates(search *s, const float *scores) {
    CT_PLAIN;
    const int64_t vocab = s->e->lm->spec.vocab;
    ct_lm_sampling bends = s->args->sampling;
    int64_t have = 0;
    bends.temperature = CT_F(1);
    bends.top_k = 0;
    bends.top_p = bends.typical_p = CT_F(1);
    bends.min_p = 0;
    for (int64_t i = 0; i < s->n; i++, scores += vocab) {
        const beam *b = &s->running[i];
        const double shift = ct__lm_log_probability(scores, vocab, 0) - (double)scores[0];
        for (int64_t t = 0; t < vocab; t++) s->e->bent[t] = (float)((double)scores[t] + shift);
        if (!ct__lm_bend(s->e->bent, vocab, b->text.tokens, (size_t)b->text.n, (size_t)s->prompt,
                         &bends, s->args->ends, s->args->n_ends))
            return -1;
        for (int64_t t = 0; t < vocab; t++)
            if (s->e->bent[t] > -INFINITY)
                offer(s, &have, (candidate){b->score + (double)s->e->bent[t], (int32_t)t, i});
    }
    return have;
}

// -------------------------------------------------------------------------------------------- beams

static void give_back(search *s, beam *b) { ct__engine_give_back(s->e, &b->text, s->args->here); }

static void add_token(search *s, beam *to, const beam *from, int32_t token,
                      double log_probability) {
    const int64_t n = from->text.n;
    memcpy(to->text.tokens, from->text.tokens, (size_t)n * sizeof *to->text.tokens);
    memcpy(to->log_probability, from->log_probability,
           (size_t)(n - s->prompt) * sizeof *to->log_probability);
    to->text.tokens[n] = token;
    to->log_probability[n - s->prompt] = log_probability;
    to->text.n = n + 1;
}

// The text of another beam, with its pages: whole ones are shared, and one that is begun copied, unless this is the
// first that goes on from there. False: there is no page, which cannot be.
static bool take_pages(search *s, beam *to, const beam *from, bool first) {
    ct_writing *w = &to->text;
    const ct_writing *was = &from->text;
    const int64_t whole = was->read / CT_LM_PAGE;
    w->read = was->read;
    w->n_pages = 0;
    for (int64_t i = 0; i < was->n_pages; i++) {
        int32_t page = was->page[i];
        if (i < whole || first) {
            ct__pages_hold(&s->e->pages, page);
        } else {
            page = ct__pages_take(&s->e->pages);
            if (page < 0) return false;
            ct__lm_cache_copy(s->e->cache, was->page[i], page, s->args->here);
        }
        w->page[w->n_pages++] = page;
    }
    return true;
}

// Beams go on as candidates have it that have not ended.
static bool go_on(search *s, const float *scores, int64_t have, bool last) {
    const int64_t vocab = s->e->lm->spec.vocab;
    int32_t from[MOST_BEAMS] = {0};
    bool taken[MOST_BEAMS] = {false};
    int64_t n = 0;
    for (int64_t i = 0; i < have && n < s->beams; i++) {
        const candidate *c = &s->candidate[i];
        if (last || is_end(s->args, c->token)) continue;
        beam *b = &s->next[n];
        add_token(s, b, &s->running[c->from], c->token,
                  ct__lm_log_probability(scores + c->from * vocab, vocab, c->token));
        b->score = c->score;
        if (!take_pages(s, b, &s->running[c->from], !taken[c->from])) return false;
        taken[c->from] = true;
        from[n++] = (int32_t)c->from;
    }
    for (int64_t i = 0; i < s->n; i++) give_back(s, &s->running[i]);
    beam *was = s->running;
    s->running = s->next;
    s->next = was;
    s->n = n;
    for (int64_t i = 0; i < n; i++) s->running[i].text.state = (int32_t)i;
    if (!s->e->paged && n) ct__lm_cache_pick(s->e->cache, from, s->beams, s->args->here);
    return true;
}

// Those of the best candidates that have ended stand among the finished, if they are good enough.
static void finish(search *s, const float *scores, int64_t have, bool last) {
    const int64_t vocab = s->e->lm->spec.vocab;
    for (int64_t i = 0; i < have && i < s->beams; i++) {
        const candidate *c = &s->candidate[i];
        const beam *from = &s->running[c->from];
        const bool ends = is_end(s->args, c->token);
        if (!ends && !last) continue;
        const double score = c->score / pow((double)(from->text.n + 1 - s->prompt), s->penalty);
        if (s->n_finished == s->beams && !(score > s->finished[s->beams - 1].score)) continue;
        int64_t at = s->n_finished < s->beams ? s->n_finished++ : s->beams - 1;
        const beam room = s->finished[at];
        for (; at && score > s->finished[at - 1].score; at--) s->finished[at] = s->finished[at - 1];
        s->finished[at] = room;
        add_token(s, &s->finished[at], from, c->token,
                  ct__lm_log_probability(scores + c->from * vocab, vocab, c->token));
        s->finished[at].text.n -= ends; // the end itself is not told
        s->finished[at].score = score;
    }
}

static bool stopped(const search *s) { return s->args->stop && s->args->stop(s->args->user); }

static bool search_beams(search *s, ct_ctx *ctx) {
    for (int64_t k = 1; k <= s->most && s->n && !stopped(s); k++) {
        CT_SCOPE;
        const float *scores = read_all(s);
        if (!scores) return false;
        const int64_t have = find_candidates(s, scores);
        if (have < 1) {
            ct__fail(ctx, CT_E_DATA, s->args->here, "lm_generate",
                     "no token can follow: the model's scores are not finite, or all of them are "
                     "banned");
            return false;
        }
        finish(s, scores, have, k == s->most);
        if (!go_on(s, scores, have, k == s->most)) return false;
        // Could the best that runs be better, at this length, than the worst that has ended?
        if (s->n_finished == s->beams && s->n &&
            !(s->running[0].score / pow((double)k, s->penalty) > s->finished[s->beams - 1].score))
            break;
    }
    const beam *best = s->n_finished ? &s->finished[0] : &s->running[0];
    if (!s->n_finished && !s->n) return true;
    for (int64_t i = s->prompt; i < best->text.n && s->args->token; i++)
        if (!s->args->token(best->text.tokens[i], best->log_probability[i - s->prompt],
                            s->args->user))
            break;
    return true;
}

// One text, told as it is written.
static bool write_one(search *s, ct_ctx *ctx) {
    const ct_lm_generate_args *a = s->args;
    const int64_t vocab = s->e->lm->spec.vocab;
    ct_writing *w = &s->running[0].text;
    for (int64_t k = 0; k < s->most && !stopped(s); k++) {
        CT_SCOPE;
        const float *scores = read_all(s);
        if (!scores) return false;
        memcpy(s->e->bent, scores, (size_t)vocab * sizeof *s->e->bent);
        const bool bent = ct__lm_bend(s->e->bent, vocab, w->tokens, (size_t)w->n, (size_t)s->prompt,
                                      &a->sampling, a->ends, a->n_ends);
        const int32_t token =
            bent ? ct__lm_draw_token(s->e->bent, vocab, &a->sampling, (uint64_t)k) : -1;
        if (token < 0) {
            ct__fail(ctx, CT_E_DATA, a->here, "lm_generate",
                     "no token can follow: the model's scores are not finite, or all of them are "
                     "banned");
            return false;
        }
        if (is_end(a, token)) return true;
        w->tokens[w->n++] = token;
        if (a->token && !a->token(token, ct__lm_log_probability(scores, vocab, token), a->user))
            return true;
    }
    return true;
}

// ------------------------------------------------------------------------------------ made and freed

static beam *beams_new(int64_t n, int64_t tokens, int64_t written) {
    beam *of = ct__calloc((size_t)n, sizeof *of);
    bool ok = of != NULL;
    for (int64_t i = 0; ok && i < n; i++) {
        of[i].text.tokens = ct__malloc((size_t)tokens * sizeof *of->text.tokens);
        of[i].text.page = ct__malloc((size_t)(tokens / CT_LM_PAGE + 1) * sizeof *of->text.page);
        of[i].log_probability = ct__malloc((size_t)written * sizeof *of->log_probability);
        of[i].text.state = -1;
        ok = of[i].text.tokens && of[i].text.page && of[i].log_probability;
    }
    return of; // where something is missing, beams_whole says so
}
static bool beams_whole(const beam *of, int64_t n) {
    for (int64_t i = 0; of && i < n; i++)
        if (!of[i].text.tokens || !of[i].text.page || !of[i].log_probability) return false;
    return of != NULL;
}
static void beams_free(beam *of, int64_t n) {
    for (int64_t i = 0; of && i < n; i++) {
        ct__free(of[i].text.tokens);
        ct__free(of[i].text.page);
        ct__free(of[i].log_probability);
    }
    ct__free(of);
}

static bool start(search *s, ct_ctx *ctx) {
    const ct_lm_generate_args *a = s->args;
    const ct_lm *lm = a->lm;
    const int64_t model = lm->spec.context ? lm->spec.context : INT32_MAX;
    const int64_t asked = a->most ? a->most : 256;
    s->prompt = lm->reader ? 1 : (int64_t)a->n_prompt;
    s->most = asked < model - s->prompt ? asked : model - s->prompt;
    const int64_t all = s->prompt + s->most, pages = all / CT_LM_PAGE + 1;
    s->e = ct__engine_new(lm,
                          (ct_engine_options){.texts = s->beams,
                                              .context = all < 2 ? 2 : all,
                                              .memory = ct__lm_cache_page_bytes(lm, CT_F32) *
                                                        (uint64_t)(2 * s->beams * pages + 1),
                                              .here = a->here},
                          "lm_generate");
    if (!s->e) return false;
    s->most_candidates = (a->n_ends > 1 ? 1 + (int64_t)a->n_ends : 2) * s->beams;
    s->candidate = ct__malloc((size_t)s->most_candidates * sizeof *s->candidate);
    s->running = beams_new(s->beams, all, s->most);
    s->next = beams_new(s->beams, all, s->most);
    s->finished = beams_new(s->beams, all, s->most);
    if (!s->candidate || !beams_whole(s->running, s->beams) || !beams_whole(s->next, s->beams) ||
        !beams_whole(s->finished, s->beams))
        return ct__err_memory(&ctx->err, a->here, "lm_generate", (size_t)(s->beams * all) * 16);
    ct_writing *w = &s->running[0].text;
    s->n = 1;
    w->n = s->prompt;
    w->state = 0;
    if (lm->reader)
        w->tokens[0] = (int32_t)lm->spec.begin;
    else
        memcpy(w->tokens, a->prompt, a->n_prompt * sizeof *w->tokens);
    return true;
}

// What the encoder makes of the prompt: (1, S, width), until the scope ends.
static bool read_other(search *s) {
    const ct_lm_generate_args *a = s->args;
    if (!a->lm->reader) return true;
    const int64_t n = (int64_t)a->n_prompt;
    ct_tensor tokens =
        ct_from_at(a->prompt, CT_I32, CT_DIMS(1, n > 1 ? CT_DYN(n) : n), a->here); // (1, S)
    s->e->memory = ct_lm_hidden_at(a->lm->reader, tokens, NULL, a->here);
    return ct_eval_at(&s->e->memory, 1, a->here);
}

bool ct__lm_search(const ct_lm_generate_args *args) {
    ct_ctx *ctx = ct__ctx();
    search s = {.args = args, .beams = args->beams ? args->beams : 1};
    s.penalty = args->length_penalty.given ? args->length_penalty.value : 1;
    if (s.beams < 1 || s.beams > MOST_BEAMS) {
        ct__fail(ctx, CT_E_ARGUMENT, args->here, "lm_generate", "beams is %lld, it must be 1 to %d",
                 (long long)s.beams, MOST_BEAMS);
        return false;
    }
    const ct_spec *read = args->lm->reader ? &args->lm->reader->spec : &args->lm->spec;
    CT_SCOPE;
    bool ok =
        ct__lm_tokens_fit(args->lm, args->prompt, args->n_prompt,
                          read->context ? read->context + (args->lm->reader != NULL) : INT32_MAX,
                          "lm_generate", args->here) &&
        ct__lm_sampling_fits(&args->sampling, ctx, "lm_generate", args->here) && start(&s, ctx) &&
        read_other(&s);
    ok = ok && (s.beams > 1 ? search_beams(&s, ctx) : write_one(&s, ctx));
    ct_engine_free(s.e);
    ct__free(s.candidate);
    beams_free(s.running, s.beams);
    beams_free(s.next, s.beams);
    beams_free(s.finished, s.beams);
    return ok && !ctx->err.code;
}
