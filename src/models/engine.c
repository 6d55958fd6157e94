// Schedules the engine's sequences: admission, the batch of each step, sampling, and the reports to
// callers.
#include "models/engine.h"

#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "models/lm_sampling.h"

enum { ENGINE_MAX_DRAFT = 15, ENGINE_NGRAM = 3 };

// -------------------------------------------------------------------------- creation and destruction

static bool engine_options_check(const ct_lm *lm, ct_engine_options *o, ct_ctx *ctx,
                                 const char *op) {
    const ct_spec *s = &lm->spec;
    const int64_t max = s->context ? s->context : INT32_MAX;
    if (!o->max_sequences) o->max_sequences = 32;
    if (!o->max_queued) o->max_queued = 1024;
    if (!o->context) o->context = ct_lm_info(lm).default_context;
    if (!o->prefill_chunk) o->prefill_chunk = 256;
    if (!o->cache_dtype) o->cache_dtype = CT_F32;
    const struct {
        const char *name;
        int64_t value, min, max;
    } ranges[] = {{"max_sequences", o->max_sequences, 1, 1024},
                  {"max_queued", o->max_queued, 1, 1000000},
                  {"context", o->context, 2, max},
                  {"prefill_chunk", o->prefill_chunk, 16, 4096},
                  {"max_draft_tokens", o->max_draft_tokens, 0, ENGINE_MAX_DRAFT}};
    if (o->cache_dtype != CT_F32 && o->cache_dtype != CT_F16 && o->cache_dtype != CT_BF16 &&
        o->cache_dtype != CT_I8)
        return ct__refuse(ctx, CT_E_ARGUMENT, o->here, op,
                          "keys and values of %s: they are f32, f16, bf16 or i8",
                          ct_dtype_name(o->cache_dtype));
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (ranges[i].value < ranges[i].min || ranges[i].value > ranges[i].max)
            return ct__refuse(ctx, CT_E_ARGUMENT, o->here, op,
                              "%s is %lld, it must be %lld to %lld", ranges[i].name,
                              (long long)ranges[i].value, (long long)ranges[i].min,
                              (long long)ranges[i].max);
    return true;
}

// Chooses the number of pages: at least those of one sequence.
static bool engine_choose_page_count(ct_engine *e, ct_ctx *ctx, int64_t *pages) {
    const ct_engine_options *o = &e->options;
    const uint64_t page_bytes = ct__lm_cache_page_bytes(e->lm, o->cache_dtype);
    const int64_t min_pages = e->max_pages;
    if (!e->is_paged) {
        *pages = 0;
        return true;
    }
    if (o->cache_memory) {
        *pages = (int64_t)(o->cache_memory / page_bytes < INT32_MAX / CT_LM_PAGE
                               ? o->cache_memory / page_bytes
                               : INT32_MAX / CT_LM_PAGE);
        if (*pages >= min_pages) return true;
        ct__fail(ctx, CT_E_ARGUMENT, o->here, "engine_new",
                 "the KV cache of a sequence of %lld tokens takes %s, memory is %s",
                 (long long)o->context, ct__bytes_text(page_bytes * (uint64_t)min_pages).s,
                 ct__bytes_text(o->cache_memory).s);
        return ct__err_hint(&ctx->err, "a smaller context takes less");
    }
    const int64_t wanted = o->max_sequences * (o->context < 1024 ? min_pages : 1024 / CT_LM_PAGE);
    const size_t available = ct__available_bytes();
    *pages = available && (uint64_t)wanted * page_bytes > available / 4
                 ? (int64_t)(available / 4 / page_bytes)
                 : wanted;
    if (*pages < min_pages) *pages = min_pages;
    return true;
}

static bool engine_init(ct_engine *e, ct_ctx *ctx) {
    const ct_engine_options *o = &e->options;
    int64_t pages;
    e->is_paged = e->lm->spec.family < CT_FAMILY_MAMBA;
    e->max_pages = e->is_paged ? (o->context + CT_LM_PAGE - 1) / CT_LM_PAGE : 0;
    if (!engine_choose_page_count(e, ctx, &pages)) return false;
    e->running = ct__calloc((size_t)o->max_sequences, sizeof(ct_sequence *));
    e->state_slot_used = ct__calloc((size_t)o->max_sequences, sizeof *e->state_slot_used);
    e->processed_logits = ct__malloc((size_t)e->lm->spec.vocab * sizeof *e->processed_logits);
    if (!e->running || !e->state_slot_used || !e->processed_logits ||
        (e->is_paged && !ct__pages_init(&e->pages, pages)))
        return ct__err_memory(&ctx->err, o->here, "engine_new", (size_t)pages * sizeof(ct_page));
    e->stats.pages = pages;
    e->stats.page_size = e->is_paged ? CT_LM_PAGE : 0;
    e->cache = ct__lm_cache_new(e->lm, pages, o->max_sequences, o->cache_dtype, o->here);
    return e->cache != NULL;
}

ct_engine *ct__engine_new(const ct_lm *lm, ct_engine_options options, const char *op) {
    ct_ctx *ctx = ct__ctx();
    if (lm->spec.bidirectional || lm->has_no_output) {
        ct__fail(ctx, CT_E_ARGUMENT, options.here, op, "%s does not generate text%s", lm->spec.type,
                 lm->has_no_output ? ": its file has no output layer" : "");
        return NULL;
    }
    if (!engine_options_check(lm, &options, ctx, op)) return NULL;
    ct_engine *e = ct__calloc(1, sizeof *e);
    if (!e) return ct__null_memory(&ctx->err, options.here, "engine_new", sizeof *e);
    e->lm = lm;
    e->options = options;
    pthread_mutex_init(&e->lock, NULL);
    if (engine_init(e, ctx)) return e;
    ct_engine_free(e);
    return NULL;
}

ct_engine *ct_engine_new_with(const ct_lm *lm, ct_engine_options options) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, lm, options.here, "engine_new", "the model") || ctx->err.code)
        return NULL;
    if (lm->reader) { // the encoder would run once for all requests
        ct__fail(ctx, CT_E_ARGUMENT, options.here, "engine_new", "%s is an encoder-decoder model",
                 lm->spec.type);
        ct__err_hint(&ctx->err, "ct_lm_generate does both");
        return NULL;
    }
    return ct__engine_new(lm, options, "engine_new");
}

// Removes the sequence from the running ones.
static void engine_remove_running(ct_engine *e, const ct_sequence *seq) {
    int64_t at = 0;
    while (at < e->n_running && e->running[at] != seq) at++;
    if (at == e->n_running) return;
    e->n_running--;
    memmove(e->running + at, e->running + at + 1, (size_t)(e->n_running - at) * sizeof *e->running);
}

static void engine_update_page_stats(ct_engine *e) {
    int64_t shared = 0;
    for (int64_t i = 0; i < e->pages.n; i++) shared += e->pages.page[i].ref_count > 1;
    pthread_mutex_lock(&e->lock);
    e->stats.pages_used = e->pages.n - e->pages.n_free;
    e->stats.pages_shared = shared;
    pthread_mutex_unlock(&e->lock);
}

// Reports how the sequence ended, and frees it. It must be in no list but that of the running sequences.
static void engine_finish(ct_engine *e, ct_sequence *seq, ct_engine_finish_reason reason,
                          const char *error) {
    ct_text text = {0};
    bool stopped;
    if (reason != CT_ENGINE_FAILED && !ct__engine_text_end(seq, &text, &stopped)) {
        reason = CT_ENGINE_FAILED;
        error = "there is no memory for its text";
    } else if (reason == CT_ENGINE_LENGTH && stopped) {
        reason = CT_ENGINE_STOPPED;
    }
    const double now = ct__now();
    const ct_engine_result result = {.request = seq->id,
                                     .finish_reason = reason,
                                     .error = error,
                                     .stop_string = seq->matched_stop,
                                     .text = text.n ? text.s : "",
                                     .text_n = text.n,
                                     .prompt_tokens = seq->ask.n_prompt,
                                     .cached_tokens = (size_t)seq->cached,
                                     .generated_tokens = (size_t)seq->n - seq->ask.n_prompt,
                                     .ttft_seconds =
                                         seq->first > 0 ? seq->first - seq->added_at : 0,
                                     .total_seconds = now - seq->added_at};
    pthread_mutex_lock(&e->lock);
    engine_remove_running(e, seq);
    ct__requests_forget(&e->queue, seq);
    e->stats.finished += reason == CT_ENGINE_STOPPED || reason == CT_ENGINE_LENGTH;
    e->stats.cancelled += reason == CT_ENGINE_CANCELLED;
    e->stats.failed += reason == CT_ENGINE_FAILED;
    pthread_mutex_unlock(&e->lock);
    ct__engine_give_back(e, seq, seq->ask.here);
    engine_update_page_stats(e);
    if (seq->ask.on_finish) seq->ask.on_finish(&result, seq->ask.user);
    ct__text_free(&text);
    ct__sequence_free(seq);
}

void ct_engine_free(ct_engine *e) {
    if (!e) return;
    e->options.poison = false;
    while (e->n_running) engine_finish(e, e->running[0], CT_ENGINE_CANCELLED, NULL);
    for (ct_sequence *seq; (seq = e->queue.first);) {
        ct__requests_remove(&e->queue, seq);
        engine_finish(e, seq, CT_ENGINE_CANCELLED, NULL);
    }
    ct__requests_free(&e->queue);
    ct__lm_cache_free(e->cache);
    ct__pages_free(&e->pages);
    pthread_mutex_destroy(&e->lock);
    ct__free(e->running);
    ct__free(e->state_slot_used);
    ct__free(e->processed_logits);
    ct__free(e->step_ints);
    ct__free(e);
}

// ----------------------------------------------------------------------------- calls from any thread

int64_t ct__engine_add(ct_engine *e, const ct_engine_request *request, const char *op) {
    ct_sequence *seq = ct__sequence_new(e, request, op);
    if (!seq) return 0;
    pthread_mutex_lock(&e->lock);
    const bool full = e->queue.n >= e->options.max_queued;
    seq->id = full ? 0 : ++e->last_id;
    const int64_t id = seq->id; // the sequence may have ended when the lock is released
    const bool entered = !full && ct__requests_enter(&e->queue, seq);
    if (entered) ct__requests_append(&e->queue, seq);
    pthread_mutex_unlock(&e->lock);
    if (entered) return id;
    ct__sequence_free(seq);
    if (!full) {
        ct__err_memory(&ct__ctx()->err, request->here, op, sizeof(ct_sequence *));
        return 0;
    }
    ct__fail(ct__ctx(), CT_E_LIMIT, request->here, op,
             "the queue is full: %lld requests are queued", (long long)e->options.max_queued);
    return 0;
}

int64_t ct_engine_add_with(ct_engine *e, ct_engine_request request) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, e, request.here, "engine_add", "the engine") || ctx->err.code)
        return 0;
    return ct__engine_add(e, &request, "engine_add");
}

void ct_engine_cancel(ct_engine *e, int64_t request) {
    if (!e) return;
    pthread_mutex_lock(&e->lock);
    ct__requests_cancel(&e->queue, request);
    pthread_mutex_unlock(&e->lock);
}

ct_engine_metrics ct_engine_stats(const ct_engine *engine) {
    ct_engine *e = (ct_engine *)engine; // only the lock is changed
    if (!e) return (ct_engine_metrics){0};
    pthread_mutex_lock(&e->lock);
    ct_engine_metrics stats = e->stats;
    stats.running = e->n_running;
    stats.queued = e->queue.n;
    pthread_mutex_unlock(&e->lock);
    return stats;
}

// --------------------------------------------------------------------------------------------- steps

static ct_sequence *engine_pop_cancelled(ct_engine *e) {
    pthread_mutex_lock(&e->lock);
    ct_sequence *found = ct__requests_take_cancelled(&e->queue);
    pthread_mutex_unlock(&e->lock);
    return found;
}

static void engine_reuse_prefix(ct_engine *e, ct_sequence *seq, ct_loc here) {
    const int64_t read = seq->n_computed;
    ct__engine_share(e, seq, here);
    pthread_mutex_lock(&e->lock);
    e->stats.cached_tokens += seq->n_computed - read;
    pthread_mutex_unlock(&e->lock);
}

// Admits the first queued sequence if its pages are free, and one page more for each running sequence.
static bool engine_admit(ct_engine *e, ct_loc here) {
    pthread_mutex_lock(&e->lock);
    ct_sequence *seq = e->queue.first;
    bool fits = seq && e->n_running < e->options.max_sequences;
    if (fits && e->is_paged && e->n_running) {
        const int64_t needed = (seq->n + CT_LM_PAGE - 1) / CT_LM_PAGE;
        fits = e->pages.n_free >= needed + e->n_running;
    }
    if (fits) {
        ct__requests_remove(&e->queue, seq);
        e->running[e->n_running++] = seq;
    }
    pthread_mutex_unlock(&e->lock);
    if (!fits) return false;
    int32_t slot = 0;
    while (e->state_slot_used[slot]) slot++;
    e->state_slot_used[slot] = true;
    seq->state = slot;
    engine_reuse_prefix(e, seq, here);
    return ct__engine_room(e, seq, seq->n - seq->n_computed, here);
}

// Releases the sequence's pages and puts it at the front of the queue.
static void engine_preempt(ct_engine *e, ct_sequence *seq, ct_loc here) {
    pthread_mutex_lock(&e->lock);
    engine_remove_running(e, seq);
    ct__requests_prepend(&e->queue, seq);
    e->stats.preempted++;
    pthread_mutex_unlock(&e->lock);
    ct__engine_give_back(e, seq, here);
}

// Selects the sequences that decode one token, in the order in which they began, as many as there are pages
// for.
static int64_t engine_select_decodes(ct_engine *e, ct_sequence **sequences, ct_loc here) {
    int64_t n = 0;
    for (int64_t i = 0; i < e->n_running; i++) {
        ct_sequence *seq = e->running[i];
        if (seq->n - seq->n_computed != 1) continue;
        while (!ct__engine_room(e, seq, 1, here) && e->running[e->n_running - 1] != seq)
            engine_preempt(e, e->running[e->n_running - 1], here);
        if (seq->n_pages * CT_LM_PAGE > seq->n_computed || !e->is_paged)
            sequences[n++] = seq;
        else // it is the last one
            engine_preempt(e, seq, here);
    }
    return n;
}

// True if another sequence of the step computes the same prefix: `seq` then waits, and reuses its pages.
static bool engine_shares_prefill(const ct_engine *e, ct_sequence *const *sequences, int64_t n,
                                  const ct_sequence *seq) {
    for (int64_t i = 0; i < n && e->is_paged; i++) {
        const ct_sequence *other = sequences[i];
        if (other->n_computed != seq->n_computed || other->prefix_id != seq->prefix_id) continue;
        const int64_t end = seq->n < other->n ? seq->n : other->n;
        int64_t at = seq->n_computed;
        while (at < end && at < seq->n_computed + CT_LM_PAGE &&
               seq->tokens[at] == other->tokens[at])
            at++;
        if (at >= seq->n_computed + CT_LM_PAGE / 2) return true;
    }
    return false;
}

// Selects the sequences that prefill, with a chunk of the same length each: the first one, and others as
// long as that makes the total larger.
static int64_t engine_select_prefills(ct_engine *e, ct_sequence **sequences, int64_t *n_tokens) {
    int64_t n = 0;
    for (int64_t i = 0; i < e->n_running; i++) {
        ct_sequence *seq = e->running[i];
        const int64_t left = seq->n - seq->n_computed,
                      chunk = left < e->options.prefill_chunk ? left : e->options.prefill_chunk;
        if (left < 2) continue;
        const int64_t common = n && *n_tokens < chunk ? *n_tokens : chunk;
        if (n && ((n + 1) * common > e->options.prefill_chunk ||
                  (n + 1) * common <= n * *n_tokens || engine_shares_prefill(e, sequences, n, seq)))
            continue;
        *n_tokens = common;
        sequences[n++] = seq;
    }
    return n;
}

static bool engine_is_eos(const ct_sequence *seq, int32_t token) {
    for (size_t i = 0; i < seq->ask.n_eos_ids; i++)
        if (seq->ask.eos_ids[i] == token) return true;
    return false;
}

// Reports a token. Returns false if the sequence has ended.
static bool engine_report_token(ct_engine *e, ct_sequence *seq, int32_t token,
                                const float *scores) {
    const int64_t vocab = e->lm->spec.vocab;
    ct_engine_token t = {.request = seq->id, .token = token, .top_logprobs = e->likely, .text = ""};
    ct_text text = {0};
    bool stopped;
    if (seq->ask.top_logprobs || seq->ask.logprobs)
        t.logprob = ct__lm_log_probability(scores, vocab, token);
    if (seq->ask.top_logprobs)
        t.n_top_logprobs =
            ct__engine_likeliest(scores, vocab, e->likely, (size_t)seq->ask.top_logprobs);
    if (!ct__engine_text(seq, token, &text, &stopped)) {
        engine_finish(e, seq, CT_ENGINE_FAILED, "its text could not be made");
        ct_error_clear();
        return false;
    }
    if (text.n) t.text = text.s;
    t.text_n = text.n;
    const bool more = !seq->ask.on_token || seq->ask.on_token(&t, seq->ask.user);
    ct__text_free(&text);
    if (!stopped && more) return true;
    engine_finish(e, seq, CT_ENGINE_STOPPED, NULL);
    return false;
}

// Samples the token after a sequence whose tokens are all computed. Returns false if the sequence has
// ended.
static bool engine_sample(ct_engine *e, ct_sequence *seq, const float *scores) {
    const int64_t vocab = e->lm->spec.vocab, prompt = (int64_t)seq->ask.n_prompt;
    memcpy(e->processed_logits, scores, (size_t)vocab * sizeof *e->processed_logits);
    if (!ct__lm_bend(e->processed_logits, vocab, seq->tokens, (size_t)seq->n, (size_t)prompt,
                     &seq->ask.sampling, seq->ask.eos_ids, seq->ask.n_eos_ids)) {
        engine_finish(e, seq, CT_ENGINE_FAILED, "there is no memory to choose a token");
        return false;
    }
    const int32_t token = ct__lm_draw_token(e->processed_logits, vocab, &seq->ask.sampling,
                                            (uint64_t)(seq->n - prompt));
    if (token < 0) {
        engine_finish(
            e, seq, CT_ENGINE_FAILED,
            "no token can follow: the model's scores are not finite, or all of them are banned");
        return false;
    }
    if (!(seq->first > 0)) seq->first = ct__now();
    if (engine_is_eos(seq, token)) {
        engine_finish(e, seq, CT_ENGINE_STOPPED, NULL);
        return false;
    }
    seq->tokens[seq->n++] = token;
    pthread_mutex_lock(&e->lock);
    e->stats.generated_tokens++;
    pthread_mutex_unlock(&e->lock);
    if (!engine_report_token(e, seq, token, scores)) return false;
    if (seq->n - prompt < seq->ask.max_tokens) return true;
    engine_finish(e, seq, CT_ENGINE_LENGTH, NULL);
    return false;
}

static void engine_fail_running(ct_engine *e) {
    char *error = ct__strdup(ct_error_text());
    while (e->n_running)
        engine_finish(e, e->running[0], CT_ENGINE_FAILED, error ? error : "there is no memory");
    ct__free(error);
}

// Drafts by n-gram lookup: writes the tokens that followed the last occurrence of the newest ENGINE_NGRAM
// tokens after the end of the sequence's tokens, and returns their number.
static int64_t engine_draft_tokens(const ct_engine *e, ct_sequence *seq) {
    const int64_t left = seq->cap - seq->n - 1; // one token is sampled in any case
    const int64_t max_draft =
        e->options.max_draft_tokens < left ? e->options.max_draft_tokens : left;
    const int32_t *end = seq->tokens + seq->n - ENGINE_NGRAM;
    if (!e->is_paged || seq->n < ENGINE_NGRAM + 1) return 0;
    for (const int32_t *at = end - 1; at >= seq->tokens; at--) {
        if (memcmp(at, end, ENGINE_NGRAM * sizeof *at) != 0) continue;
        int64_t n = 0;
        for (; n < max_draft && at + ENGINE_NGRAM + n < seq->tokens + seq->n; n++)
            seq->tokens[seq->n + n] = at[ENGINE_NGRAM + n];
        return n;
    }
    return 0;
}

// Verifies n draft tokens of a sequence that runs alone in one pass; tokens after the first rejected one
// are dropped.
static bool engine_speculative_step(ct_engine *e, ct_sequence *seq, int64_t n, ct_loc here) {
    int32_t draft[ENGINE_MAX_DRAFT];
    const ct_engine_group group[2] = {{&seq, 1, n + 1, true}};
    memcpy(draft, seq->tokens + seq->n, (size_t)n * sizeof *draft);
    const float *scores = ct__engine_pass(e, group, here);
    if (!scores) {
        engine_fail_running(e);
        return false;
    }
    int64_t n_accepted = 0;
    for (int64_t i = 0; i <= n; i++, scores += e->lm->spec.vocab) {
        seq->n_computed++;
        ct__engine_learn(e, seq);
        if (!engine_sample(e, seq, scores) || i == n || seq->tokens[seq->n - 1] != draft[i]) break;
        n_accepted++;
    }
    pthread_mutex_lock(&e->lock);
    e->stats.steps++;
    e->stats.drafted_tokens += n;
    e->stats.accepted_tokens += n_accepted;
    pthread_mutex_unlock(&e->lock);
    return true;
}

static void engine_process_logits(ct_engine *e, const ct_engine_group group[2],
                                  const float *scores) {
    for (int g = 0; g < 2; g++)
        for (int64_t i = 0; i < group[g].n; i++, scores += e->lm->spec.vocab) {
            ct_sequence *seq = group[g].sequences[i];
            seq->n_computed += group[g].n_tokens;
            ct__engine_learn(e, seq);
            if (seq->n_computed == seq->n) engine_sample(e, seq, scores);
        }
}

static void engine_update_stats(ct_engine *e, const ct_engine_group group[2]) {
    pthread_mutex_lock(&e->lock);
    e->stats.steps++;
    e->stats.prefilled_tokens += group[0].n * group[0].n_tokens;
    pthread_mutex_unlock(&e->lock);
    engine_update_page_stats(e);
}

// Runs each kind of step: none, one or several sequences that prefill, and that decode.
static bool engine_warm_up_steps(ct_engine *e, int32_t page, ct_loc here) {
    int32_t tokens[2] = {0}, pages[1] = {page};
    ct_sequence dummy = {.tokens = tokens, .n = 2, .page = pages, .n_pages = e->is_paged};
    ct_sequence *sequences[2] = {&dummy, &dummy};
    const int speculates = e->options.max_draft_tokens && e->is_paged;
    for (int kind = 1; kind < 9 + speculates; kind++) {
        CT_SCOPE;
        const bool all_logits = kind == 9;
        const ct_engine_group group[2] = {{sequences, all_logits ? 1 : kind / 3, 2, all_logits},
                                          {sequences, all_logits ? 0 : kind % 3, 1, false}};
        if (!ct__engine_pass(e, group, here)) return false;
    }
    if (e->is_paged) ct__lm_cache_copy(e->cache, page, page, here);
    if (e->is_paged && e->options.poison) ct__lm_cache_copy(e->cache, -1, page, here);
    return !ct_failed();
}

bool ct_engine_warm_up_at(ct_engine *e, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, e, here, "engine_warm_up", "the engine") || ctx->err.code)
        return false;
    if (e->n_running)
        return ct__refuse(ctx, CT_E_ARGUMENT, here, "engine_warm_up", "requests are running");
    // kernels are compiled before they run, so that none is interpreted and left to compile
    ct_set_synchronous_compilation();
    const int32_t page = e->is_paged ? ct__pages_take(&e->pages) : 0;
    const bool ok = engine_warm_up_steps(e, page, here);
    if (e->is_paged) ct__pages_drop(&e->pages, page);
    return ok;
}

bool ct_engine_step_at(ct_engine *e, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, e, here, "engine_step", "the engine") || ctx->err.code)
        return false;
    for (ct_sequence *seq; (seq = engine_pop_cancelled(e));)
        engine_finish(e, seq, CT_ENGINE_CANCELLED, NULL);
    ct_sequence *sequences[2][1024];
    ct_engine_group group[2] = {{sequences[0], 0, 1, false}, {sequences[1], 0, 1, false}};
    CT_SCOPE;
    while (engine_admit(e, here)) continue;
    if (!e->n_running) return false;
    for (int64_t i = 0; i < e->n_running; i++) // reuses what another sequence has computed since
        if (e->running[i]->n - e->running[i]->n_computed > 1)
            engine_reuse_prefix(e, e->running[i], here);
    group[1].n = engine_select_decodes(e, sequences[1], here);
    group[0].n = engine_select_prefills(e, sequences[0], &group[0].n_tokens);
    if (e->options.max_draft_tokens && e->n_running == 1 && group[1].n) {
        const int64_t n = engine_draft_tokens(e, sequences[1][0]);
        if (n && ct__engine_room(e, sequences[1][0], n + 1, here))
            return engine_speculative_step(e, sequences[1][0], n, here);
    }
    const float *scores = ct__engine_pass(e, group, here);
    if (!scores) {
        engine_fail_running(e);
        return false;
    }
    engine_update_stats(e, group);
    engine_process_logits(e, group, scores);
    return true;
}
