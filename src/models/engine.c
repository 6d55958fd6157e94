// The engine's requests: who runs, who waits, and what they are told.
#include "models/engine.h"

#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "compile/plan.h"
#include "models/lm_sampling.h"

enum { MOST_GUESSES = 15, SAME = 3 };

// ------------------------------------------------------------------------------------- made and freed

static bool options_fit(const ct_lm *lm, ct_engine_options *o, ct_ctx *ctx, const char *op) {
    const ct_spec *s = &lm->spec;
    const int64_t most = s->context ? s->context : INT32_MAX;
    if (!o->texts) o->texts = 32;
    if (!o->waiting) o->waiting = 1024;
    if (!o->context) o->context = ct_lm_look(lm).usual_context;
    if (!o->piece) o->piece = 256;
    if (!o->dtype) o->dtype = CT_F32;
    const struct {
        const char *name;
        int64_t value, least, most;
    } ranges[] = {{"texts", o->texts, 1, 1024},
                  {"waiting", o->waiting, 1, 1000000},
                  {"context", o->context, 2, most},
                  {"piece", o->piece, 16, 4096},
                  {"guesses", o->guesses, 0, MOST_GUESSES}};
    if (o->dtype != CT_F32 && o->dtype != CT_F16 && o->dtype != CT_BF16 && o->dtype != CT_I8) {
        ct__fail(ctx, CT_E_ARGUMENT, o->here, op,
                 "keys and values of %s: they are f32, f16, bf16 or i8", ct_dtype_name(o->dtype));
        return false;
    }
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (ranges[i].value < ranges[i].least || ranges[i].value > ranges[i].most) {
            ct__fail(ctx, CT_E_ARGUMENT, o->here, op, "%s is %lld, it must be %lld to %lld",
                     ranges[i].name, (long long)ranges[i].value, (long long)ranges[i].least,
                     (long long)ranges[i].most);
            return false;
        }
    return true;
}

// How many pages there are: at least those of one text.
static bool size_pages(ct_engine *e, ct_ctx *ctx, int64_t *pages) {
    const ct_engine_options *o = &e->options;
    const uint64_t one = ct__lm_cache_page_bytes(e->lm, o->dtype);
    const int64_t least = e->most_pages;
    if (!e->paged) {
        *pages = 0;
        return true;
    }
    if (o->memory) {
        *pages = (int64_t)(o->memory / one < INT32_MAX / CT_LM_PAGE ? o->memory / one
                                                                    : INT32_MAX / CT_LM_PAGE);
        if (*pages >= least) return true;
        ct__fail(ctx, CT_E_ARGUMENT, o->here, "engine_new",
                 "keys and values of a text of %lld tokens take %s, memory is %s",
                 (long long)o->context, ct__bytes_text(one * (uint64_t)least).s,
                 ct__bytes_text(o->memory).s);
        ct__err_hint(&ctx->err, "a smaller context takes less");
        return false;
    }
    const int64_t usual = o->texts * (o->context < 1024 ? least : 1024 / CT_LM_PAGE);
    const size_t left = ct__available_bytes();
    *pages = left && (uint64_t)usual * one > left / 4 ? (int64_t)(left / 4 / one) : usual;
    if (*pages < least) *pages = least;
    return true;
}

static bool start(ct_engine *e, ct_ctx *ctx) {
    const ct_engine_options *o = &e->options;
    int64_t pages;
    e->paged = e->lm->spec.family < CT_FAMILY_MAMBA;
    e->most_pages = e->paged ? (o->context + CT_LM_PAGE - 1) / CT_LM_PAGE : 0;
    if (!size_pages(e, ctx, &pages)) return false;
    e->running = ct__calloc((size_t)o->texts, sizeof(ct_writing *));
    e->place_taken = ct__calloc((size_t)o->texts, sizeof *e->place_taken);
    e->bent = ct__malloc((size_t)e->lm->spec.vocab * sizeof *e->bent);
    if (!e->running || !e->place_taken || !e->bent ||
        (e->paged && !ct__pages_init(&e->pages, pages)))
        return ct__err_memory(&ctx->err, o->here, "engine_new", (size_t)pages * sizeof(ct_page));
    e->count.pages = pages;
    e->count.page = e->paged ? CT_LM_PAGE : 0;
    e->cache = ct__lm_cache_new(e->lm, pages, o->texts, o->dtype, o->here);
    return e->cache != NULL;
}

ct_engine *ct__engine_new(const ct_lm *lm, ct_engine_options options, const char *op) {
    ct_ctx *ctx = ct__ctx();
    if (lm->spec.bidirectional || lm->headless) {
        ct__fail(ctx, CT_E_ARGUMENT, options.here, op, "%s does not go on with a text%s",
                 lm->spec.type, lm->headless ? ": its file has no output layer" : "");
        return NULL;
    }
    if (!options_fit(lm, &options, ctx, op)) return NULL;
    ct_engine *e = ct__calloc(1, sizeof *e);
    if (!e) {
        ct__err_memory(&ctx->err, options.here, "engine_new", sizeof *e);
        return NULL;
    }
    e->lm = lm;
    e->options = options;
    pthread_mutex_init(&e->lock, NULL);
    if (start(e, ctx)) return e;
    ct_engine_free(e);
    return NULL;
}

ct_engine *ct_engine_new_with(const ct_lm *lm, ct_engine_options options) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, lm, options.here, "engine_new", "the model") || ctx->err.code)
        return NULL;
    if (lm->reader) { // what it reads would be another request's
        ct__fail(ctx, CT_E_ARGUMENT, options.here, "engine_new",
                 "%s reads one text and writes another", lm->spec.type);
        ct__err_hint(&ctx->err, "ct_lm_generate does both");
        return NULL;
    }
    return ct__engine_new(lm, options, "engine_new");
}

// Out of those that run.
static void leave(ct_engine *e, const ct_writing *w) {
    int64_t at = 0;
    while (at < e->n_running && e->running[at] != w) at++;
    if (at == e->n_running) return;
    e->n_running--;
    memmove(e->running + at, e->running + at + 1, (size_t)(e->n_running - at) * sizeof *e->running);
}

static void count_pages(ct_engine *e) {
    int64_t shared = 0;
    for (int64_t i = 0; i < e->pages.n; i++) shared += e->pages.page[i].holders > 1;
    pthread_mutex_lock(&e->lock);
    e->count.pages_used = e->pages.n - e->pages.left;
    e->count.pages_shared = shared;
    pthread_mutex_unlock(&e->lock);
}

// Tells how it ended, and frees it. It stands in no list any more but that of those that run.
static void finish(ct_engine *e, ct_writing *w, ct_engine_end end, const char *why) {
    ct_text told = {0};
    bool stopped;
    if (end != CT_ENGINE_FAILED && !ct__engine_text_end(w, &told, &stopped)) {
        end = CT_ENGINE_FAILED;
        why = "there is no memory for its text";
    } else if (end == CT_ENGINE_LENGTH && stopped) {
        end = CT_ENGINE_STOPPED;
    }
    const double now = ct__now();
    const ct_engine_result result = {.request = w->id,
                                     .end = end,
                                     .why = why,
                                     .stop = w->found,
                                     .text = told.n ? told.s : "",
                                     .text_n = told.n,
                                     .prompt = w->ask.n_prompt,
                                     .cached = (size_t)w->cached,
                                     .written = (size_t)w->n - w->ask.n_prompt,
                                     .first = w->first > 0 ? w->first - w->added : 0,
                                     .all = now - w->added};
    pthread_mutex_lock(&e->lock);
    leave(e, w);
    ct__requests_forget(&e->queue, w);
    e->count.finished += end == CT_ENGINE_STOPPED || end == CT_ENGINE_LENGTH;
    e->count.cancelled += end == CT_ENGINE_CANCELLED;
    e->count.failed += end == CT_ENGINE_FAILED;
    pthread_mutex_unlock(&e->lock);
    ct__engine_give_back(e, w, w->ask.here);
    count_pages(e);
    if (w->ask.done) w->ask.done(&result, w->ask.user);
    ct__text_free(&told);
    ct__writing_free(w);
}

void ct_engine_free(ct_engine *e) {
    if (!e) return;
    e->options.poison = false;
    while (e->n_running) finish(e, e->running[0], CT_ENGINE_CANCELLED, NULL);
    for (ct_writing *w; (w = e->queue.first);) {
        ct__requests_remove(&e->queue, w);
        finish(e, w, CT_ENGINE_CANCELLED, NULL);
    }
    ct__requests_free(&e->queue);
    ct__lm_cache_free(e->cache);
    ct__pages_free(&e->pages);
    pthread_mutex_destroy(&e->lock);
    ct__free(e->running);
    ct__free(e->place_taken);
    ct__free(e->bent);
    ct__free(e->ints);
    ct__free(e);
}

// ------------------------------------------------------------------------------------- from any thread

int64_t ct__engine_add(ct_engine *e, const ct_engine_request *request, const char *op) {
    ct_writing *w = ct__writing_new(e, request, op);
    if (!w) return 0;
    pthread_mutex_lock(&e->lock);
    const bool full = e->queue.n >= e->options.waiting;
    w->id = full ? 0 : ++e->ids;
    const int64_t id = w->id; // it may have ended when the lock is given back
    const bool entered = !full && ct__requests_enter(&e->queue, w);
    if (entered) ct__requests_append(&e->queue, w);
    pthread_mutex_unlock(&e->lock);
    if (entered) return id;
    ct__writing_free(w);
    if (!full) {
        ct__err_memory(&ct__ctx()->err, request->here, op, sizeof(ct_writing *));
        return 0;
    }
    ct__fail(ct__ctx(), CT_E_LIMIT, request->here, op, "%lld requests wait, no more may",
             (long long)e->options.waiting);
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

ct_engine_state ct_engine_look(const ct_engine *engine) {
    ct_engine *e = (ct_engine *)engine; // the lock alone is changed
    if (!e) return (ct_engine_state){0};
    pthread_mutex_lock(&e->lock);
    ct_engine_state now = e->count;
    now.running = e->n_running;
    now.waiting = e->queue.n;
    pthread_mutex_unlock(&e->lock);
    return now;
}

// ---------------------------------------------------------------------------------------------- steps

static ct_writing *next_cancelled(ct_engine *e) {
    pthread_mutex_lock(&e->lock);
    ct_writing *found = ct__requests_take_cancelled(&e->queue);
    pthread_mutex_unlock(&e->lock);
    return found;
}

static void share(ct_engine *e, ct_writing *w, ct_loc here) {
    const int64_t read = w->read;
    ct__engine_share(e, w, here);
    pthread_mutex_lock(&e->lock);
    e->count.cached += w->read - read;
    pthread_mutex_unlock(&e->lock);
}

// The first that waits begins, if there is room for what it has; of pages a fresh one beside those that run.
static bool admit(ct_engine *e, ct_loc here) {
    pthread_mutex_lock(&e->lock);
    ct_writing *w = e->queue.first;
    bool fits = w && e->n_running < e->options.texts;
    if (fits && e->paged && e->n_running) {
        const int64_t need = (w->n + CT_LM_PAGE - 1) / CT_LM_PAGE;
        fits = e->pages.left >= need + e->n_running;
    }
    if (fits) {
        ct__requests_remove(&e->queue, w);
        e->running[e->n_running++] = w;
    }
    pthread_mutex_unlock(&e->lock);
    if (!fits) return false;
    int32_t place = 0;
    while (e->place_taken[place]) place++;
    e->place_taken[place] = true;
    w->state = place;
    share(e, w, here);
    return ct__engine_room(e, w, w->n - w->read, here);
}

// Gives its pages back, and waits as the first to go on.
static void preempt(ct_engine *e, ct_writing *w, ct_loc here) {
    pthread_mutex_lock(&e->lock);
    leave(e, w);
    ct__requests_prepend(&e->queue, w);
    e->count.preempted++;
    pthread_mutex_unlock(&e->lock);
    ct__engine_give_back(e, w, here);
}

// Texts that have one token to read: of those that began first, as many as there is room for.
static int64_t choose_writers(ct_engine *e, ct_writing **text, ct_loc here) {
    int64_t n = 0;
    for (int64_t i = 0; i < e->n_running; i++) {
        ct_writing *w = e->running[i];
        if (w->n - w->read != 1) continue;
        while (!ct__engine_room(e, w, 1, here) && e->running[e->n_running - 1] != w)
            preempt(e, e->running[e->n_running - 1], here);
        if (w->n_pages * CT_LM_PAGE > w->read || !e->paged)
            text[n++] = w;
        else // it is the last one
            preempt(e, w, here);
    }
    return n;
}

// Would it read what another one of the step reads as well? Then it waits, and shares.
static bool reads_the_same(const ct_engine *e, ct_writing *const *text, int64_t n,
                           const ct_writing *w) {
    for (int64_t i = 0; i < n && e->paged; i++) {
        const ct_writing *other = text[i];
        if (other->read != w->read || other->content != w->content) continue;
        const int64_t end = w->n < other->n ? w->n : other->n;
        int64_t at = w->read;
        while (at < end && at < w->read + CT_LM_PAGE && w->tokens[at] == other->tokens[at]) at++;
        if (at >= w->read + CT_LM_PAGE / 2) return true;
    }
    return false;
}

// Texts of which more is to be read, a piece of one length of each: the first one, and others as long as more is
// read in all.
static int64_t choose_readers(ct_engine *e, ct_writing **text, int64_t *time) {
    int64_t n = 0;
    for (int64_t i = 0; i < e->n_running; i++) {
        ct_writing *w = e->running[i];
        const int64_t left = w->n - w->read,
                      own = left < e->options.piece ? left : e->options.piece;
        if (left < 2) continue;
        const int64_t both = n && *time < own ? *time : own;
        if (n && ((n + 1) * both > e->options.piece || (n + 1) * both <= n * *time ||
                  reads_the_same(e, text, n, w)))
            continue;
        *time = both;
        text[n++] = w;
    }
    return n;
}

static bool is_end(const ct_writing *w, int32_t token) {
    for (size_t i = 0; i < w->ask.n_ends; i++)
        if (w->ask.ends[i] == token) return true;
    return false;
}

// Tells of a token. False: the request has ended.
static bool tell(ct_engine *e, ct_writing *w, int32_t token, const float *scores) {
    const int64_t vocab = e->lm->spec.vocab;
    ct_engine_token t = {.request = w->id, .token = token, .top = e->likely, .text = ""};
    ct_text told = {0};
    bool stopped;
    if (w->ask.likely || w->ask.log_probabilities)
        t.log_probability = ct__lm_log_probability(scores, vocab, token);
    if (w->ask.likely)
        t.n_top = ct__engine_likeliest(scores, vocab, e->likely, (size_t)w->ask.likely);
    if (!ct__engine_text(w, token, &told, &stopped)) {
        finish(e, w, CT_ENGINE_FAILED, "its text could not be made");
        ct_error_clear();
        return false;
    }
    if (told.n) t.text = told.s;
    t.text_n = told.n;
    const bool more = !w->ask.token || w->ask.token(&t, w->ask.user);
    ct__text_free(&told);
    if (!stopped && more) return true;
    finish(e, w, CT_ENGINE_STOPPED, NULL);
    return false;
}

// What follows a text that was read to its end. False: the request has ended.
static bool draw(ct_engine *e, ct_writing *w, const float *scores) {
    const int64_t vocab = e->lm->spec.vocab, prompt = (int64_t)w->ask.n_prompt;
    memcpy(e->bent, scores, (size_t)vocab * sizeof *e->bent);
    if (!ct__lm_bend(e->bent, vocab, w->tokens, (size_t)w->n, (size_t)prompt, &w->ask.sampling,
                     w->ask.ends, w->ask.n_ends)) {
        finish(e, w, CT_ENGINE_FAILED, "there is no memory to choose a token");
        return false;
    }
    const int32_t token =
        ct__lm_draw_token(e->bent, vocab, &w->ask.sampling, (uint64_t)(w->n - prompt));
    if (token < 0) {
        finish(e, w, CT_ENGINE_FAILED,
               "no token can follow: the model's scores are not finite, or all of them are banned");
        return false;
    }
    if (!(w->first > 0)) w->first = ct__now();
    if (is_end(w, token)) {
        finish(e, w, CT_ENGINE_STOPPED, NULL);
        return false;
    }
    w->tokens[w->n++] = token;
    pthread_mutex_lock(&e->lock);
    e->count.written++;
    pthread_mutex_unlock(&e->lock);
    if (!tell(e, w, token, scores)) return false;
    if (w->n - prompt < w->ask.most) return true;
    finish(e, w, CT_ENGINE_LENGTH, NULL);
    return false;
}

static void fail_all(ct_engine *e) {
    char *why = ct__strdup(ct_error_text());
    while (e->n_running)
        finish(e, e->running[0], CT_ENGINE_FAILED, why ? why : "there is no memory");
    ct__free(why);
}

// Behind the last tokens of the text, what followed where it had them last: into its tokens, their number.
static int64_t guess(const ct_engine *e, ct_writing *w) {
    const int64_t left = w->cap - w->n - 1; // one is drawn in any case
    const int64_t most = e->options.guesses < left ? e->options.guesses : left;
    const int32_t *end = w->tokens + w->n - SAME;
    if (!e->paged || w->n < SAME + 1) return 0;
    for (const int32_t *at = end - 1; at >= w->tokens; at--) {
        if (memcmp(at, end, SAME * sizeof *at) != 0) continue;
        int64_t n = 0;
        for (; n < most && at + SAME + n < w->tokens + w->n; n++)
            w->tokens[w->n + n] = at[SAME + n];
        return n;
    }
    return 0;
}

// A text that runs alone reads its token and what may come next; what would not have come is forgotten again.
static bool step_with_guesses(ct_engine *e, ct_writing *w, int64_t n, ct_loc here) {
    int32_t guessed[MOST_GUESSES];
    const ct_engine_group group[2] = {{&w, 1, n + 1, true}};
    memcpy(guessed, w->tokens + w->n, (size_t)n * sizeof *guessed);
    const float *scores = ct__engine_pass(e, group, here);
    if (!scores) {
        fail_all(e);
        return false;
    }
    int64_t well = 0;
    for (int64_t i = 0; i <= n; i++, scores += e->lm->spec.vocab) {
        w->read++;
        ct__engine_learn(e, w);
        if (!draw(e, w, scores) || i == n || w->tokens[w->n - 1] != guessed[i]) break;
        well++;
    }
    pthread_mutex_lock(&e->lock);
    e->count.steps++;
    e->count.guessed += n;
    e->count.guessed_well += well;
    pthread_mutex_unlock(&e->lock);
    return true;
}

static void take(ct_engine *e, const ct_engine_group group[2], const float *scores) {
    for (int g = 0; g < 2; g++)
        for (int64_t i = 0; i < group[g].n; i++, scores += e->lm->spec.vocab) {
            ct_writing *w = group[g].text[i];
            w->read += group[g].time;
            ct__engine_learn(e, w);
            if (w->read == w->n) draw(e, w, scores);
        }
}

static void count(ct_engine *e, const ct_engine_group group[2]) {
    pthread_mutex_lock(&e->lock);
    e->count.steps++;
    e->count.read += group[0].n * group[0].time;
    pthread_mutex_unlock(&e->lock);
    count_pages(e);
}

// Each kind of step: no, one or several texts that are read, and that write.
static bool warm_steps(ct_engine *e, int32_t page, ct_loc here) {
    int32_t tokens[2] = {0}, pages[1] = {page};
    ct_writing fake = {.tokens = tokens, .n = 2, .page = pages, .n_pages = e->paged};
    ct_writing *text[2] = {&fake, &fake};
    const int guesses = e->options.guesses && e->paged;
    for (int kind = 1; kind < 9 + guesses; kind++) {
        CT_SCOPE;
        const bool every = kind == 9;
        const ct_engine_group group[2] = {{text, every ? 1 : kind / 3, 2, every},
                                          {text, every ? 0 : kind % 3, 1, false}};
        if (!ct__engine_pass(e, group, here)) return false;
    }
    if (e->paged) ct__lm_cache_copy(e->cache, page, page, here);
    if (e->paged && e->options.poison) ct__lm_cache_copy(e->cache, -1, page, here);
    return !ct_failed();
}

bool ct_engine_warm_at(ct_engine *e, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, e, here, "engine_warm", "the engine") || ctx->err.code)
        return false;
    if (e->n_running) {
        ct__fail(ctx, CT_E_ARGUMENT, here, "engine_warm", "requests are running");
        return false;
    }
    ct__ctx_waits(ctx); // nothing is interpreted, so that nothing is left to compile
    const int32_t page = e->paged ? ct__pages_take(&e->pages) : 0;
    const bool ok = warm_steps(e, page, here);
    if (e->paged) ct__pages_drop(&e->pages, page);
    return ok;
}

bool ct_engine_step_at(ct_engine *e, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, e, here, "engine_step", "the engine") || ctx->err.code)
        return false;
    for (ct_writing *w; (w = next_cancelled(e));) finish(e, w, CT_ENGINE_CANCELLED, NULL);
    ct_writing *text[2][1024];
    ct_engine_group group[2] = {{text[0], 0, 1, false}, {text[1], 0, 1, false}};
    CT_SCOPE;
    while (admit(e, here)) continue;
    if (!e->n_running) return false;
    for (int64_t i = 0; i < e->n_running; i++) // what another one has read by now
        if (e->running[i]->n - e->running[i]->read > 1) share(e, e->running[i], here);
    group[1].n = choose_writers(e, text[1], here);
    group[0].n = choose_readers(e, text[0], &group[0].time);
    if (e->options.guesses && e->n_running == 1 && group[1].n) {
        const int64_t n = guess(e, text[1][0]);
        if (n && ct__engine_room(e, text[1][0], n + 1, here))
            return step_with_guesses(e, text[1][0], n, here);
    }
    const float *scores = ct__engine_pass(e, group, here);
    if (!scores) {
        fail_all(e);
        return false;
    }
    count(e, group);
    take(e, group, scores);
    return true;
}
