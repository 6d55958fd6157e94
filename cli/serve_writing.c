// The texts that are written for a request. The model's thread puts what comes into a queue; the connection's thread
// takes it, takes it apart and tells it on.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve.h"

// A token, or the end, of one of the texts. What it names lies behind it.
typedef struct event {
    struct event *next;
    choice *of;
    bool is_end;
    int32_t token;
    double log_probability;
    size_t n_top, n;
    const ct_engine_choice *top;
    const char *text;
    ct_engine_result result; // of an end
    char why[512];
} event;

// ---------------------------------------------------------------------------------- the model's thread

static bool push(choice *c, event e, const ct_engine_choice *top, const char *text) {
    writing *w = c->of;
    const size_t top_bytes = e.n_top * sizeof *top;
    event *made = malloc(sizeof *made + top_bytes + e.n);
    if (made) {
        *made = e;
        made->of = c;
        made->next = NULL;
        made->top = memcpy(made + 1, e.n_top ? top : (const void *)"", top_bytes);
        made->text = memcpy((char *)(made + 1) + top_bytes, e.n ? text : "", e.n);
    }
    pthread_mutex_lock(&w->lock);
    if (made && w->last)
        w->last->next = made;
    else if (made)
        w->first = made;
    if (made) w->last = made;
    w->failed |= !made;
    w->running -= e.is_end;
    pthread_cond_signal(&w->come);
    pthread_mutex_unlock(&w->lock);
    return made != NULL;
}

static bool hear_token(const ct_engine_token *t, void *user) {
    choice *c = user;
    return !is_cut_short(c->of->model) && push(user,
                                               (event){.token = t->token,
                                                       .log_probability = t->log_probability,
                                                       .n_top = t->n_top,
                                                       .n = t->text_n},
                                               t->top, t->text);
}

static void hear_end(const ct_engine_result *r, void *user) {
    choice *c = user;
    event e = {.is_end = true, .result = *r, .n = r->text_n};
    if (is_cut_short(c->of->model)) {
        e.result.end = CT_ENGINE_FAILED;
        e.n = 0;
        snprintf(e.why, sizeof e.why, "%s", cut_short);
        push(user, e, NULL, "");
        return;
    }
    snprintf(e.why, sizeof e.why, "%s", r->why ? r->why : r->stop ? r->stop : "");
    push(user, e, NULL, r->text);
}

// ------------------------------------------------------------------------------------------- begin

static bool make_choices(writing *w, const wanted *is, size_t prompts) {
    w->each = (size_t)is->n;
    w->choices = calloc(w->each * prompts, sizeof *w->choices);
    const bool shows_tokens = is->log_probabilities || is->prompt_likely.given;
    w->decoder =
        shows_tokens ? ct_decoder_new_at(w->model->is->tokenizer, false, (ct_loc){0}) : NULL;
    if (!w->choices || (shows_tokens && !w->decoder)) return false;
    w->n = w->each * prompts;
    for (size_t i = 0; i < w->n; i++) {
        w->choices[i].of = w;
        w->choices[i].index = i;
        w->choices[i].likely = is->log_probabilities ? json_array() : NULL;
    }
    return true;
}

static bool make_parser(choice *c, const wanted *is, const given_prompt *p) {
    const ct_chat_template *chat = c->of->model->is->chat;
    if (!is->split || !chat) return true;
    c->parser = ct_chat_parser_new_with(chat, (ct_chat_parser_options){.tools = is->tools != NULL,
                                                                       .descriptions = is->tools,
                                                                       .prompt = p->text});
    return c->parser != NULL;
}

static bool add_choice(writing *w, choice *c, const wanted *is, const given_prompt *p) {
    ct_engine_request r = {.prompt = p->ids,
                           .n_prompt = p->n,
                           .most = (int64_t)is->most.value,
                           .ends = is->ends,
                           .n_ends = is->n_ends,
                           .stops = is->stops,
                           .n_stops = is->n_stops,
                           .sampling = is->sampling,
                           .likely = is->likely,
                           .log_probabilities = is->log_probabilities,
                           // Marks of calls and reasoning are special tokens.
                           .keep_special = c->parser != NULL || is->shows_special,
                           .token = hear_token,
                           .done = hear_end,
                           .user = c};
    r.sampling.seed += c->index % w->each;
    pthread_mutex_lock(&w->lock);
    w->running++;
    pthread_mutex_unlock(&w->lock);
    if (is->most.given && !r.most) { // it ends before it begins
        hear_end(&(ct_engine_result){.end = CT_ENGINE_LENGTH, .prompt = p->n}, c);
        return true;
    }
    const int64_t number = ct_engine_add_with(w->model->engine, r);
    pthread_mutex_lock(&w->lock);
    if (number)
        c->request = number;
    else
        w->running--;
    pthread_mutex_unlock(&w->lock);
    return number != 0;
}

writing *start_writing(exchange *x, model *m, const wanted *is, const given_prompt *prompts,
                       size_t n) {
    const int64_t most = m->server->is.queue, all = (int64_t)n * (int64_t)is->n;
    if (all > most) {
        refuse_request(x, 400, "n", "%lld texts are asked for at once, at most %lld may wait",
                       (long long)all, (long long)most);
        return NULL;
    }
    writing *w = calloc(1, sizeof *w);
    if (!w) {
        refuse_request(x, 500, NULL, "there is no memory for the request");
        return NULL;
    }
    w->model = m;
    w->one_call = is->one_call;
    w->tells_ids = is->tells_ids;
    w->began = seconds_now();
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->come, NULL);
    bool ok = make_choices(w, is, n);
    for (size_t i = 0; ok && i < w->n; i++)
        ok = make_parser(&w->choices[i], is, &prompts[i / w->each]);
    for (size_t i = 0; ok && i < w->n; i++)
        ok = add_choice(w, &w->choices[i], is, &prompts[i / w->each]);
    if (ok) {
        w->watch = x->watch;
        watch_writing(w->watch, w);
        wake_model(m);
        return w;
    }
    const bool full = ct_error_code() == CT_E_LIMIT, wrong = ct_error_code() == CT_E_ARGUMENT;
    if (full) {
        x->retry_after = 1;
        refuse_request(x, 429, NULL, "%lld texts wait, no more may: try again later",
                       (long long)most);
    } else {
        refuse_failed(x, wrong ? 400 : 500, NULL);
    }
    free_writing(w);
    return NULL;
}

// --------------------------------------------------------------------------------------------- end

void cancel_writing(writing *w) {
    for (size_t i = 0; i < w->n; i++) {
        pthread_mutex_lock(&w->lock);
        const int64_t request = w->choices[i].request;
        pthread_mutex_unlock(&w->lock);
        if (request) ct_engine_cancel(w->model->engine, request);
    }
    wake_model(w->model);
}

static void free_choice(choice *c) {
    ct_chat_parser_free(c->parser);
    for (size_t i = 0; i < c->n_calls; i++) {
        free(c->calls[i].name.v);
        free(c->calls[i].arguments.v);
    }
    free(c->calls);
    free(c->content.v);
    free(c->reasoning.v);
    json_decref(c->likely);
    json_decref(c->ids);
}

void free_writing(writing *w) {
    if (!w) return;
    if (w->watch) watch_writing(w->watch, NULL);
    pthread_mutex_lock(&w->lock);
    const bool running = w->running > 0;
    pthread_mutex_unlock(&w->lock);
    if (running) cancel_writing(w);
    pthread_mutex_lock(&w->lock);
    while (w->running) pthread_cond_wait(&w->come, &w->lock);
    pthread_mutex_unlock(&w->lock);
    for (event *e = w->first, *next; e; e = next) {
        next = e->next;
        free(e);
    }
    for (size_t i = 0; i < w->n; i++) free_choice(&w->choices[i]);
    ct_decoder_free(w->decoder);
    free(w->choices);
    pthread_cond_destroy(&w->come);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

// ------------------------------------------------------------------------------------------- parts

static void tell(choice *c, part_kind kind, size_t call, const char *text, size_t n) {
    writing *w = c->of;
    if (w->part) w->part(w->user, c, kind, call, text, n);
}

static bool begin_call(choice *c, const char *name, size_t n) {
    tool_call *calls = realloc(c->calls, (c->n_calls + 1) * sizeof *calls);
    if (!calls) return false;
    c->calls = calls;
    tool_call *made = &calls[c->n_calls++];
    *made = (tool_call){0};
    make_id("call_", made->id);
    put(&made->name, name, n);
    return true;
}

// The parser numbers calls from 0 on, in their order.
static bool hear_part(const ct_chat_part *p, void *user) {
    static const part_kind kinds[] = {PART_CONTENT, PART_REASONING, PART_CALL, PART_ARGUMENTS};
    choice *c = user;
    const bool of_call = p->kind == CT_CHAT_CALL || p->kind == CT_CHAT_ARGUMENTS;
    if (of_call && c->of->one_call && p->call > 0) return true;
    if (p->kind == CT_CHAT_TEXT) put(&c->content, p->text, p->n);
    if (p->kind == CT_CHAT_REASONING) put(&c->reasoning, p->text, p->n);
    if (p->kind == CT_CHAT_CALL && !begin_call(c, p->text, p->n)) return false;
    if (p->kind == CT_CHAT_ARGUMENTS) put(&c->calls[p->call].arguments, p->text, p->n);
    tell(c, kinds[p->kind], p->call, p->text, p->n);
    return true;
}

static void take_text(choice *c, const char *text, size_t n, bool is_end) {
    const ct_chat_part all = {.kind = CT_CHAT_TEXT, .text = text, .n = n};
    bool ok = true;
    if (!c->parser)
        ok = !n || hear_part(&all, c);
    else if (n)
        ok = ct_chat_parser_feed(c->parser, text, n, hear_part, c);
    if (ok && c->parser && is_end) ok = ct_chat_parser_end(c->parser, hear_part, c);
    if (ok) return;
    c->failed = true;
    ct_error_clear();
}

typedef const char *(*decode_fn)(ct_decoder *d, const int32_t *ids, size_t count, size_t *n);

// What a token adds to the one before it: alone it may have lost its blank, which decoders take from the beginning of
// a text. Valid until the decoder's next call.
static const char *token_part(const writing *w, decode_fn decode, int32_t token, int32_t before,
                              size_t *n) {
    size_t skip;
    if (!decode(w->decoder, &before, 1, &skip)) skip = 0;
    const char *text = decode(w->decoder, (int32_t[]){before, token}, 2, n);
    if (text && *n >= skip) {
        *n -= skip;
        return text + skip;
    }
    text = decode(w->decoder, &token, 1, n);
    if (text) return text;
    ct_error_clear();
    *n = 0;
    return "";
}

// Bytes of all tokens join to the text's own, also where a token has a part of a character.
static json_t *token_text(const writing *w, int32_t token, int32_t before, json_t **bytes) {
    size_t n;
    const char *part = token_part(w, ct_decoder_bytes, token, before, &n);
    *bytes = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(*bytes, json_integer((unsigned char)part[i]));
    part = token_part(w, ct_decoder_all, token, before, &n);
    return json_text(part, n);
}

static json_t *likely_one(const writing *w, int32_t token, double log_probability, int32_t before) {
    json_t *bytes, *text = token_text(w, token, before, &bytes);
    // JSON has no infinity.
    const double shown_as = log_probability > -9999 ? log_probability : -9999;
    json_t *made = json_pack("{s:o, s:f, s:o}", "token", text, "logprob", shown_as, "bytes", bytes);
    if (w->tells_ids) json_object_set_new(made, "id", json_integer(token));
    return made;
}

static void add_likely(choice *c, const event *e) {
    const writing *w = c->of;
    const int32_t before = w->model->anchor;
    json_t *one = likely_one(w, e->token, e->log_probability, before), *top = json_array();
    for (size_t i = 0; i < e->n_top; i++)
        json_array_append_new(top,
                              likely_one(w, e->top[i].token, e->top[i].log_probability, before));
    json_object_set_new(one, "top_logprobs", top);
    json_array_append_new(c->likely, one);
}

// Log-probabilities of a prompt (n tokens), the rank of each token and its n_best rivals.
typedef struct prompt_likely {
    double *own;
    int64_t *rank;
    ct_engine_choice *best;
} prompt_likely;

static bool read_prompt_likely(model *m, const given_prompt *p, size_t n_best, prompt_likely *to,
                               char why[512]) {
    to->own = calloc(p->n, sizeof *to->own);
    to->rank = calloc(p->n, sizeof *to->rank);
    to->best = calloc(p->n * n_best + 1, sizeof *to->best);
    snprintf(why, 512, "there is no memory for the logprobs of the prompt");
    return to->own && to->rank && to->best &&
           read_likely(m, p->ids, p->n, to->own, to->rank, to->best, n_best, why);
}

static void free_prompt_likely(prompt_likely *of) {
    free(of->own);
    free(of->rank);
    free(of->best);
}

bool add_prompt_likely(choice *c, const given_prompt *p, size_t n_best, char why[512]) {
    prompt_likely read = {0};
    const bool ok = read_prompt_likely(c->of->model, p, n_best, &read, why);
    for (size_t i = 0; ok && i < p->n; i++) {
        const event e = {.token = p->ids[i],
                         .log_probability = read.own[i],
                         .n_top = n_best,
                         .top = read.best + i * n_best};
        add_likely(c, &e);
        if (i) continue;
        json_t *first = json_array_get(c->likely, json_array_size(c->likely) - 1);
        json_object_set_new(first, "logprob", json_null()); // nothing stands before it
        json_object_set_new(first, "top_logprobs", json_null());
    }
    free_prompt_likely(&read);
    return ok;
}

static void add_ranked(const writing *w, json_t *to, int32_t token, double log_probability,
                       int64_t rank) {
    char key[16];
    json_t *bytes, *text = token_text(w, token, w->model->anchor, &bytes);
    json_decref(bytes);
    snprintf(key, sizeof key, "%d", (int)token);
    json_object_set_new(to, key,
                        json_pack("{s:f, s:I, s:o}", "logprob",
                                  log_probability > -9999 ? log_probability : -9999, "rank",
                                  (json_int_t)rank, "decoded_token", text));
}

json_t *make_prompt_logprobs(writing *w, const given_prompt *p, size_t n_best, char why[512]) {
    prompt_likely read = {0};
    json_t *list = NULL;
    if (read_prompt_likely(w->model, p, n_best, &read, why)) list = json_pack("[n]");
    for (size_t i = 1; list && i < p->n; i++) {
        json_t *one = json_object();
        add_ranked(w, one, p->ids[i], read.own[i], read.rank[i]);
        for (size_t k = 0; k < n_best; k++) {
            const ct_engine_choice *best = &read.best[i * n_best + k];
            if (best->token != p->ids[i])
                add_ranked(w, one, best->token, best->log_probability, (int64_t)k + 1);
        }
        json_array_append_new(list, one);
    }
    free_prompt_likely(&read);
    return list;
}

static void end_choice(choice *c, const event *e) {
    const ct_engine_result *r = &e->result;
    c->over = true;
    c->end = r->end;
    c->by_word = r->stop != NULL;
    c->prompt = r->prompt;
    c->cached = r->cached;
    c->written = r->written;
    c->first = r->first;
    c->all = r->all;
    snprintf(c->why, sizeof c->why, "%s", e->why);
    count_text(c->of->model->server->metrics, c);
    tell(c, PART_END, 0, NULL, 0);
}

// A token whose text is held back belongs to what comes of it.
static void count_reasoning(choice *c, size_t reasoning, size_t content, size_t calls) {
    if (c->reasoning.n > reasoning)
        c->reasoned += c->since;
    else if (c->content.n == content && c->n_calls == calls)
        return;
    c->since = 0;
}

bool go_on(writing *w) {
    pthread_mutex_lock(&w->lock);
    while (!w->first && w->running) pthread_cond_wait(&w->come, &w->lock);
    event *e = w->first;
    if (e) w->first = e->next;
    if (!w->first) w->last = NULL;
    pthread_mutex_unlock(&w->lock);
    if (!e) return false;
    choice *c = e->of;
    if (!e->is_end && c->likely) add_likely(c, e);
    if (!e->is_end && w->tells_ids) {
        if (!c->ids) c->ids = json_array();
        json_array_append_new(c->ids, json_integer(e->token));
    }
    const size_t reasoning = c->reasoning.n, content = c->content.n, calls = c->n_calls;
    c->since += !e->is_end;
    take_text(c, e->text, e->n, e->is_end);
    count_reasoning(c, reasoning, content, calls);
    if (e->is_end) end_choice(c, e);
    free(e);
    return true;
}

const char *finish_reason(const choice *c) {
    if (c->end == CT_ENGINE_LENGTH) return "length";
    return c->n_calls ? "tool_calls" : "stop";
}

json_t *take_likely(choice *c) {
    json_t *list = c->likely;
    c->likely = list ? json_array() : NULL;
    return list ? list : json_array();
}

token_counts count_tokens(const writing *w) {
    token_counts u = {0};
    for (size_t i = 0; i < w->n; i++) {
        const choice *c = &w->choices[i];
        if (i % w->each == 0) u.prompt += c->prompt, u.cached += c->cached;
        u.written += c->written;
        u.reasoned += c->reasoned;
    }
    return u;
}

bool is_broken(const writing *w, int *code, const char **what) {
    const bool stopping = atomic_load(&w->model->server->stopping);
    for (size_t i = 0; i < w->n; i++) {
        const choice *c = &w->choices[i];
        const bool cancelled = c->over && c->end == CT_ENGINE_CANCELLED;
        const bool lost = !c->over || c->failed; // for want of memory
        if (!lost && c->end != CT_ENGINE_FAILED && !cancelled) continue;
        *code = !cancelled ? 500
                : stopping ? 503
                           : 499; // nginx's number for a client that went away
        *what = !c->over     ? "there is no memory"
                : !cancelled ? c->why
                : stopping   ? "the server is stopping"
                             : "the client went away";
        return true;
    }
    return false;
}
