// Beam search: several hypotheses continue at once, and share the pages of their common prefix. Also single
// sequences of encoder-decoder models.
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/fp_env.h"
#include "models/engine.h"
#include "models/lm_sampling.h"

enum { MAX_BEAMS = 64, PREFILL_CHUNK = 128 };

typedef struct beam {
    ct_sequence seq;
    double *logprobs; // (generated tokens) of each of them
    double score;     // sum of log probabilities after the logits processors
} beam;

typedef struct candidate {
    double score;
    int32_t token;
    int64_t from; // index of the beam that it extends
} candidate;

typedef struct beam_search {
    const ct_lm_generate_args *args;
    ct_engine *e;
    int64_t beams, n, most,
        prompt; // n: beams that are running; most: tokens to generate; prompt: tokens before them
    double penalty;
    beam *running, *next, *finished; // (beams); `finished` has n_finished beams, the best first
    int64_t n_finished;
    candidate *candidate; // (max_candidates)
    int64_t max_candidates;
} beam_search;

static bool beam_is_eos(const ct_lm_generate_args *a, int32_t token) {
    for (size_t i = 0; i < a->n_eos_ids; i++)
        if (a->eos_ids[i] == token) return true;
    return false;
}

// ------------------------------------------------------------------------------------ forward passes

// Computes the remaining tokens of all running beams and returns the logits (n, vocab), valid within the
// scope.
static const float *beam_forward(beam_search *s) {
    ct_sequence *sequences[MAX_BEAMS];
    const ct_loc here = s->args->here;
    for (int64_t i = 0; i < s->n; i++) sequences[i] = &s->running[i].seq;
    ct_sequence *first = sequences[0];
    for (;;) {
        const int64_t left = first->n - first->n_computed,
                      n_tokens = left < PREFILL_CHUNK ? left : PREFILL_CHUNK;
        const ct_engine_group group[2] = {{sequences, s->n, n_tokens, false}};
        for (int64_t i = 0; i < s->n; i++)
            // the engine has pages for all beams
            if (!ct__engine_room(s->e, sequences[i], n_tokens, here)) return NULL;
        const float *scores = ct__engine_pass(s->e, group, here);
        for (int64_t i = 0; i < s->n; i++) sequences[i]->n_computed += n_tokens;
        if (!scores || n_tokens == left) return scores;
    }
}

// ---------------------------------------------------------------------------------------- candidates

static bool beam_is_better(const candidate *a, const candidate *b) { return a->score > b->score; }

static void beam_insert_candidate(beam_search *s, int64_t *n_found, candidate c) {
    candidate *candidates = s->candidate;
    if (*n_found == s->max_candidates && !beam_is_better(&c, &candidates[*n_found - 1])) return;
    int64_t at = *n_found < s->max_candidates ? (*n_found)++ : *n_found - 1;
    for (; at && beam_is_better(&c, &candidates[at - 1]); at--) candidates[at] = candidates[at - 1];
    candidates[at] = c;
}

// Finds the best extensions of all beams, the best first. Returns their number, or -1 if out of memory.
static int64_t beam_find_candidates(beam_search *s, const float *scores) {
    CT_DEFAULT_ENV;
    const int64_t vocab = s->e->lm->spec.vocab;
    ct_lm_sampling sampling = s->args->sampling;
    int64_t n_found = 0;
    sampling.temperature = CT_F(1);
    sampling.top_k = 0;
    sampling.top_p = sampling.typical_p = CT_F(1);
    sampling.min_p = 0;
    for (int64_t i = 0; i < s->n; i++, scores += vocab) {
        const beam *b = &s->running[i];
        const double log_norm = ct__lm_log_probability(scores, vocab, 0) - (double)scores[0];
        for (int64_t t = 0; t < vocab; t++)
            s->e->processed_logits[t] = (float)((double)scores[t] + log_norm);
        if (!ct__lm_bend(s->e->processed_logits, vocab, b->seq.tokens, (size_t)b->seq.n,
                         (size_t)s->prompt, &sampling, s->args->eos_ids, s->args->n_eos_ids))
            return -1;
        for (int64_t t = 0; t < vocab; t++)
            if (s->e->processed_logits[t] > -INFINITY)
                beam_insert_candidate(
                    s, &n_found,
                    (candidate){b->score + (double)s->e->processed_logits[t], (int32_t)t, i});
    }
    return n_found;
}

// --------------------------------------------------------------------------------------------- beams

static void beam_release(beam_search *s, beam *b) {
    ct__engine_give_back(s->e, &b->seq, s->args->here);
}

static void beam_append(beam_search *s, beam *to, const beam *from, int32_t token,
                        double log_probability) {
    const int64_t n = from->seq.n;
    memcpy(to->seq.tokens, from->seq.tokens, (size_t)n * sizeof *to->seq.tokens);
    memcpy(to->logprobs, from->logprobs, (size_t)(n - s->prompt) * sizeof *to->logprobs);
    to->seq.tokens[n] = token;
    to->logprobs[n - s->prompt] = log_probability;
    to->seq.n = n + 1;
}

// Copies the page table of another beam: full pages are shared; a partly filled one is copied, unless this
// is the first beam that extends it. Returns false if no page is free, which cannot happen.
static bool beam_copy_pages(beam_search *s, beam *to, const beam *from, bool first) {
    ct_sequence *seq = &to->seq;
    const ct_sequence *source = &from->seq;
    const int64_t n_full = source->n_computed / CT_LM_PAGE;
    seq->n_computed = source->n_computed;
    seq->n_pages = 0;
    for (int64_t i = 0; i < source->n_pages; i++) {
        int32_t page = source->page[i];
        if (i < n_full || first) {
            ct__pages_hold(&s->e->pages, page);
        } else {
            page = ct__pages_take(&s->e->pages);
            if (page < 0) return false;
            ct__lm_cache_copy(s->e->cache, source->page[i], page, s->args->here);
        }
        seq->page[seq->n_pages++] = page;
    }
    return true;
}

// Replaces the running beams by the best candidates that have not ended.
static bool beam_advance(beam_search *s, const float *scores, int64_t n_candidates, bool last) {
    const int64_t vocab = s->e->lm->spec.vocab;
    int32_t from[MAX_BEAMS] = {0};
    bool taken[MAX_BEAMS] = {false};
    int64_t n = 0;
    for (int64_t i = 0; i < n_candidates && n < s->beams; i++) {
        const candidate *c = &s->candidate[i];
        if (last || beam_is_eos(s->args, c->token)) continue;
        beam *b = &s->next[n];
        beam_append(s, b, &s->running[c->from], c->token,
                    ct__lm_log_probability(scores + c->from * vocab, vocab, c->token));
        b->score = c->score;
        if (!beam_copy_pages(s, b, &s->running[c->from], !taken[c->from])) return false;
        taken[c->from] = true;
        from[n++] = (int32_t)c->from;
    }
    for (int64_t i = 0; i < s->n; i++) beam_release(s, &s->running[i]);
    beam *old = s->running;
    s->running = s->next;
    s->next = old;
    s->n = n;
    for (int64_t i = 0; i < n; i++) s->running[i].seq.state = (int32_t)i;
    if (!s->e->is_paged && n) ct__lm_cache_pick(s->e->cache, from, s->beams, s->args->here);
    return true;
}

// Adds those of the best candidates that have ended to the finished beams, if they are good enough.
static void beam_collect_finished(beam_search *s, const float *scores, int64_t n_candidates,
                                  bool last) {
    const int64_t vocab = s->e->lm->spec.vocab;
    for (int64_t i = 0; i < n_candidates && i < s->beams; i++) {
        const candidate *c = &s->candidate[i];
        const beam *from = &s->running[c->from];
        const bool is_eos = beam_is_eos(s->args, c->token);
        if (!is_eos && !last) continue;
        const double score = c->score / pow((double)(from->seq.n + 1 - s->prompt), s->penalty);
        if (s->n_finished == s->beams && !(score > s->finished[s->beams - 1].score)) continue;
        int64_t at = s->n_finished < s->beams ? s->n_finished++ : s->beams - 1;
        const beam spare = s->finished[at];
        for (; at && score > s->finished[at - 1].score; at--) s->finished[at] = s->finished[at - 1];
        s->finished[at] = spare;
        beam_append(s, &s->finished[at], from, c->token,
                    ct__lm_log_probability(scores + c->from * vocab, vocab, c->token));
        s->finished[at].seq.n -= is_eos; // the eos token is not reported
        s->finished[at].score = score;
    }
}

static bool beam_should_stop(const beam_search *s) {
    return s->args->should_stop && s->args->should_stop(s->args->user);
}

static bool beam_run_search(beam_search *s, ct_ctx *ctx) {
    for (int64_t k = 1; k <= s->most && s->n && !beam_should_stop(s); k++) {
        CT_SCOPE;
        const float *scores = beam_forward(s);
        if (!scores) return false;
        const int64_t n_candidates = beam_find_candidates(s, scores);
        if (n_candidates < 1)
            return ct__refuse(
                ctx, CT_E_DATA, s->args->here, "lm_generate",
                "no token can follow: the model's scores are not finite, or all of them are "
                "banned");
        beam_collect_finished(s, scores, n_candidates, k == s->most);
        if (!beam_advance(s, scores, n_candidates, k == s->most)) return false;
        // Stops if the best running beam, at this length, is not better than the worst finished one.
        if (s->n_finished == s->beams && s->n &&
            !(s->running[0].score / pow((double)k, s->penalty) > s->finished[s->beams - 1].score))
            break;
    }
    const beam *best = s->n_finished ? &s->finished[0] : &s->running[0];
    if (!s->n_finished && !s->n) return true;
    for (int64_t i = s->prompt; i < best->seq.n && s->args->on_token; i++)
        if (!s->args->on_token(best->seq.tokens[i], best->logprobs[i - s->prompt], s->args->user))
            break;
    return true;
}

// Generates a single sequence and reports each token.
static bool beam_generate_single(beam_search *s, ct_ctx *ctx) {
    const ct_lm_generate_args *a = s->args;
    const int64_t vocab = s->e->lm->spec.vocab;
    ct_sequence *seq = &s->running[0].seq;
    for (int64_t k = 0; k < s->most && !beam_should_stop(s); k++) {
        CT_SCOPE;
        const float *scores = beam_forward(s);
        if (!scores) return false;
        memcpy(s->e->processed_logits, scores, (size_t)vocab * sizeof *s->e->processed_logits);
        const bool ok = ct__lm_bend(s->e->processed_logits, vocab, seq->tokens, (size_t)seq->n,
                                    (size_t)s->prompt, &a->sampling, a->eos_ids, a->n_eos_ids);
        const int32_t token =
            ok ? ct__lm_draw_token(s->e->processed_logits, vocab, &a->sampling, (uint64_t)k) : -1;
        if (token < 0)
            return ct__refuse(
                ctx, CT_E_DATA, a->here, "lm_generate",
                "no token can follow: the model's scores are not finite, or all of them are "
                "banned");
        if (beam_is_eos(a, token)) return true;
        seq->tokens[seq->n++] = token;
        if (a->on_token &&
            !a->on_token(token, ct__lm_log_probability(scores, vocab, token), a->user))
            return true;
    }
    return true;
}

// -------------------------------------------------------------------------- creation and destruction

static beam *beams_new(int64_t n, int64_t tokens, int64_t written) {
    beam *beams = ct__calloc((size_t)n, sizeof *beams);
    bool ok = beams != NULL;
    for (int64_t i = 0; ok && i < n; i++) {
        beams[i].seq.tokens = ct__malloc((size_t)tokens * sizeof *beams->seq.tokens);
        beams[i].seq.page = ct__malloc((size_t)(tokens / CT_LM_PAGE + 1) * sizeof *beams->seq.page);
        beams[i].logprobs = ct__malloc((size_t)written * sizeof *beams->logprobs);
        beams[i].seq.state = -1;
        ok = beams[i].seq.tokens && beams[i].seq.page && beams[i].logprobs;
    }
    return beams; // beams_are_complete reports a failed allocation
}
static bool beams_are_complete(const beam *beams, int64_t n) {
    for (int64_t i = 0; beams && i < n; i++)
        if (!beams[i].seq.tokens || !beams[i].seq.page || !beams[i].logprobs) return false;
    return beams != NULL;
}
static void beams_free(beam *beams, int64_t n) {
    for (int64_t i = 0; beams && i < n; i++) {
        ct__free(beams[i].seq.tokens);
        ct__free(beams[i].seq.page);
        ct__free(beams[i].logprobs);
    }
    ct__free(beams);
}

static bool beam_search_init(beam_search *s, ct_ctx *ctx) {
    const ct_lm_generate_args *a = s->args;
    const ct_lm *lm = a->lm;
    const int64_t max_context = lm->spec.context ? lm->spec.context : INT32_MAX;
    const int64_t max_tokens = a->max_tokens ? a->max_tokens : 256;
    s->prompt = lm->reader ? 1 : (int64_t)a->n_prompt;
    s->most = max_tokens < max_context - s->prompt ? max_tokens : max_context - s->prompt;
    const int64_t total = s->prompt + s->most, pages = total / CT_LM_PAGE + 1;
    s->e = ct__engine_new(lm,
                          (ct_engine_options){.max_sequences = s->beams,
                                              .context = total < 2 ? 2 : total,
                                              .cache_memory = ct__lm_cache_page_bytes(lm, CT_F32) *
                                                              (uint64_t)(2 * s->beams * pages + 1),
                                              .here = a->here},
                          "lm_generate");
    if (!s->e) return false;
    s->max_candidates = (a->n_eos_ids > 1 ? 1 + (int64_t)a->n_eos_ids : 2) * s->beams;
    s->candidate = ct__malloc((size_t)s->max_candidates * sizeof *s->candidate);
    s->running = beams_new(s->beams, total, s->most);
    s->next = beams_new(s->beams, total, s->most);
    s->finished = beams_new(s->beams, total, s->most);
    if (!s->candidate || !beams_are_complete(s->running, s->beams) ||
        !beams_are_complete(s->next, s->beams) || !beams_are_complete(s->finished, s->beams))
        return ct__err_memory(&ctx->err, a->here, "lm_generate", (size_t)(s->beams * total) * 16);
    ct_sequence *seq = &s->running[0].seq;
    s->n = 1;
    seq->n = s->prompt;
    seq->state = 0;
    if (lm->reader)
        seq->tokens[0] = (int32_t)lm->spec.decoder_start;
    else
        memcpy(seq->tokens, a->prompt, a->n_prompt * sizeof *seq->tokens);
    return true;
}

// Computes the encoder's output of the prompt: (1, S, width), valid until the scope ends.
static bool beam_run_encoder(beam_search *s) {
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
    beam_search s = {.args = args, .beams = args->beams ? args->beams : 1};
    s.penalty = args->length_penalty.given ? args->length_penalty.value : 1;
    if (s.beams < 1 || s.beams > MAX_BEAMS)
        return ct__refuse(ctx, CT_E_ARGUMENT, args->here, "lm_generate",
                          "beams is %lld, it must be 1 to %d", (long long)s.beams, MAX_BEAMS);
    const ct_spec *input_spec = args->lm->reader ? &args->lm->reader->spec : &args->lm->spec;
    CT_SCOPE;
    bool ok =
        ct__lm_tokens_fit(args->lm, args->prompt, args->n_prompt,
                          input_spec->context ? input_spec->context + (args->lm->reader != NULL)
                                              : INT32_MAX,
                          "lm_generate", args->here) &&
        ct__lm_sampling_fits(&args->sampling, ctx, "lm_generate", args->here) &&
        beam_search_init(&s, ctx) && beam_run_encoder(&s);
    ok = ok && (s.beams > 1 ? beam_run_search(&s, ctx) : beam_generate_single(&s, ctx));
    ct_engine_free(s.e);
    ct__free(s.candidate);
    beams_free(s.running, s.beams);
    beams_free(s.next, s.beams);
    beams_free(s.finished, s.beams);
    return ok && !ctx->err.code;
}
