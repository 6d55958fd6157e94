// The generations of a request. The model's thread puts events into a queue; the connection's thread
// takes them, parses the text and reports its parts.
#include <stdlib.h>
#include <string.h>

#include "serve.h"

// A token, or the end, of a choice. Its text and logprobs are stored after it.
typedef struct event {
    struct event *next;
    choice *owner;
    bool is_end;
    int32_t token;
    double log_probability;
    size_t n_top, n;
    const ct_engine_logprob *top;
    const char *text;
    ct_engine_result result; // for an end
    char why[512];
} event;

// ---------------------------------------------------------------------------------- the model's thread

static bool generation_push_event(choice *c, event e, const ct_engine_logprob *top,
                                  const char *text) {
    generation *w = c->owner;
    const size_t top_bytes = e.n_top * sizeof *top;
    event *made = malloc(sizeof *made + top_bytes + e.n);
    if (made) {
        *made = e;
        made->owner = c;
        made->next = NULL;
        made->top = memcpy(made + 1, e.n_top ? top : (const void *)"", top_bytes);
        made->text = memcpy((char *)(made + 1) + top_bytes, e.n ? text : "", e.n);
    }
    pthread_mutex_lock(&w->lock);
    if (made && w->last_event)
        w->last_event->next = made;
    else if (made)
        w->first_event = made;
    if (made) w->last_event = made;
    w->failed |= !made;
    w->running -= e.is_end;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return made != NULL;
}

static bool generation_on_token(const ct_engine_token *t, void *user) {
    choice *c = user;
    return !model_is_truncated(c->owner->model) &&
           generation_push_event(user,
                                 (event){.token = t->token,
                                         .log_probability = t->logprob,
                                         .n_top = t->n_top_logprobs,
                                         .n = t->text_n},
                                 t->top_logprobs, t->text);
}

static void generation_on_finish(const ct_engine_result *r, void *user) {
    choice *c = user;
    event e = {.is_end = true, .result = *r, .n = r->text_n};
    if (model_is_truncated(c->owner->model)) {
        e.result.finish_reason = CT_ENGINE_FAILED;
        e.n = 0;
        snprintf(e.why, sizeof e.why, "%s", truncated_message);
        generation_push_event(user, e, NULL, "");
        return;
    }
    snprintf(e.why, sizeof e.why, "%s", r->error ? r->error : r->stop_string ? r->stop_string : "");
    generation_push_event(user, e, NULL, r->text);
}

// ------------------------------------------------------------------------------------------- begin

static bool generation_make_choices(generation *w, const generation_params *is, size_t prompts) {
    w->choices_per_prompt = (size_t)is->n;
    w->choices = calloc(w->choices_per_prompt * prompts, sizeof *w->choices);
    const bool shows_tokens = is->log_probabilities || is->prompt_top_logprobs.given;
    w->decoder =
        shows_tokens ? ct_decoder_new_at(w->model->is->tokenizer, false, (ct_loc){0}) : NULL;
    if (!w->choices || (shows_tokens && !w->decoder)) return false;
    w->n = w->choices_per_prompt * prompts;
    for (size_t i = 0; i < w->n; i++) {
        w->choices[i].owner = w;
        w->choices[i].index = i;
        w->choices[i].likely = is->log_probabilities ? json_array() : NULL;
    }
    return true;
}

static bool choice_make_parser(choice *c, const generation_params *is, const prompt_input *p) {
    const ct_chat_template *chat = c->owner->model->is->chat;
    if (!is->parse_chat || !chat) return true;
    c->parser = ct_chat_parser_new_with(
        chat, (ct_chat_parser_options){.parse_tool_calls = is->tools != NULL,
                                       .tool_definitions = is->tools,
                                       .prompt = p->text});
    return c->parser != NULL;
}

static bool generation_add_choice(generation *w, choice *c, const generation_params *is,
                                  const prompt_input *p) {
    ct_engine_request r = {.prompt = p->ids,
                           .n_prompt = p->n,
                           .max_tokens = (int64_t)is->most.value,
                           .eos_ids = is->ends,
                           .n_eos_ids = is->n_ends,
                           .stops = is->stops,
                           .n_stops = is->n_stops,
                           .sampling = is->sampling,
                           .top_logprobs = is->likely,
                           .logprobs = is->log_probabilities,
                           // Markers of tool calls and reasoning are special tokens.
                           .include_special = c->parser != NULL || is->include_special,
                           .on_token = generation_on_token,
                           .on_finish = generation_on_finish,
                           .user = c};
    r.sampling.seed += c->index % w->choices_per_prompt;
    pthread_mutex_lock(&w->lock);
    w->running++;
    pthread_mutex_unlock(&w->lock);
    if (is->most.given && !r.max_tokens) { // no tokens are requested
        generation_on_finish(
            &(ct_engine_result){.finish_reason = CT_ENGINE_LENGTH, .prompt_tokens = p->n}, c);
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

generation *generation_start(exchange *x, model *m, const generation_params *is,
                             const prompt_input *prompts, size_t n) {
    const int64_t most = m->server->is.max_queued, all = (int64_t)n * (int64_t)is->n;
    if (all > most) {
        fail_request(x, 400, "n",
                     "%lld sequences are requested at once, at most %lld can be queued",
                     (long long)all, (long long)most);
        return NULL;
    }
    generation *w = calloc(1, sizeof *w);
    if (!w) {
        fail_request(x, 500, NULL, "there is no memory for the request");
        return NULL;
    }
    w->model = m;
    w->single_tool_call = is->single_tool_call;
    w->return_token_ids = is->return_token_ids;
    w->start_time = seconds_now();
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    bool ok = generation_make_choices(w, is, n);
    for (size_t i = 0; ok && i < w->n; i++)
        ok = choice_make_parser(&w->choices[i], is, &prompts[i / w->choices_per_prompt]);
    for (size_t i = 0; ok && i < w->n; i++)
        ok = generation_add_choice(w, &w->choices[i], is, &prompts[i / w->choices_per_prompt]);
    if (ok) {
        w->conn = x->conn;
        conn_set_generation(w->conn, w);
        model_wake(m);
        return w;
    }
    const bool full = ct_error_code() == CT_E_LIMIT, wrong = ct_error_code() == CT_E_ARGUMENT;
    if (full) {
        x->retry_after = 1;
        fail_request(x, 429, NULL, "the queue is full with %lld requests: try again later",
                     (long long)most);
    } else {
        fail_request_from_error(x, wrong ? 400 : 500, NULL);
    }
    generation_free(w);
    return NULL;
}

// --------------------------------------------------------------------------------------------- end

void generation_cancel(generation *w) {
    for (size_t i = 0; i < w->n; i++) {
        pthread_mutex_lock(&w->lock);
        const int64_t request = w->choices[i].request;
        pthread_mutex_unlock(&w->lock);
        if (request) ct_engine_cancel(w->model->engine, request);
    }
    model_wake(w->model);
}

static void choice_free(choice *c) {
    ct_chat_parser_free(c->parser);
    for (size_t i = 0; i < c->n_calls; i++) {
        free(c->calls[i].name.v);
        free(c->calls[i].arguments.v);
    }
    free(c->calls);
    free(c->content.v);
    free(c->reasoning.v);
    json_decref(c->likely);
    json_decref(c->token_ids);
}

void generation_free(generation *w) {
    if (!w) return;
    if (w->conn) conn_set_generation(w->conn, NULL);
    pthread_mutex_lock(&w->lock);
    const bool running = w->running > 0;
    pthread_mutex_unlock(&w->lock);
    if (running) generation_cancel(w);
    pthread_mutex_lock(&w->lock);
    while (w->running) pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
    for (event *e = w->first_event, *next; e; e = next) {
        next = e->next;
        free(e);
    }
    for (size_t i = 0; i < w->n; i++) choice_free(&w->choices[i]);
    ct_decoder_free(w->decoder);
    free(w->choices);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

// ------------------------------------------------------------------------------------------- parts

static void choice_report_part(choice *c, part_kind kind, size_t call, const char *text, size_t n) {
    generation *w = c->owner;
    if (w->on_part) w->on_part(w->user, c, kind, call, text, n);
}

static bool choice_begin_tool_call(choice *c, const char *name, size_t n) {
    tool_call *calls = realloc(c->calls, (c->n_calls + 1) * sizeof *calls);
    if (!calls) return false;
    c->calls = calls;
    tool_call *made = &calls[c->n_calls++];
    *made = (tool_call){0};
    make_id("call_", made->id);
    buffer_put(&made->name, name, n);
    return true;
}

// The parser numbers calls from 0, in order.
static bool choice_on_chat_part(const ct_chat_part *p, void *user) {
    static const part_kind kinds[] = {PART_CONTENT, PART_REASONING, PART_TOOL_CALL,
                                      PART_TOOL_ARGUMENTS};
    choice *c = user;
    const bool of_call = p->kind == CT_CHAT_CALL || p->kind == CT_CHAT_ARGUMENTS;
    if (of_call && c->owner->single_tool_call && p->call > 0) return true;
    if (p->kind == CT_CHAT_TEXT) buffer_put(&c->content, p->text, p->n);
    if (p->kind == CT_CHAT_REASONING) buffer_put(&c->reasoning, p->text, p->n);
    if (p->kind == CT_CHAT_CALL && !choice_begin_tool_call(c, p->text, p->n)) return false;
    if (p->kind == CT_CHAT_ARGUMENTS) buffer_put(&c->calls[p->call].arguments, p->text, p->n);
    choice_report_part(c, kinds[p->kind], p->call, p->text, p->n);
    return true;
}

static void choice_feed_text(choice *c, const char *text, size_t n, bool is_end) {
    const ct_chat_part all = {.kind = CT_CHAT_TEXT, .text = text, .n = n};
    bool ok = true;
    if (!c->parser)
        ok = !n || choice_on_chat_part(&all, c);
    else if (n)
        ok = ct_chat_parser_feed(c->parser, text, n, choice_on_chat_part, c);
    if (ok && c->parser && is_end) ok = ct_chat_parser_end(c->parser, choice_on_chat_part, c);
    if (ok) return;
    c->failed = true;
    ct_error_clear();
}

typedef const char *(*decode_fn)(ct_decoder *d, const int32_t *ids, size_t count, size_t *n);

// Decodes the text that a token adds after another token: alone, it might lose its leading space, which
// decoders strip at the beginning of a text. Valid until the decoder's next call.
static const char *generation_token_delta(const generation *w, decode_fn decode, int32_t token,
                                          int32_t before, size_t *n) {
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

// The bytes of all tokens join to those of the text, also if a token has a part of a character.
static json_t *generation_token_json(const generation *w, int32_t token, int32_t before,
                                     json_t **bytes) {
    size_t n;
    const char *part = generation_token_delta(w, ct_decoder_bytes, token, before, &n);
    *bytes = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(*bytes, json_integer((unsigned char)part[i]));
    part = generation_token_delta(w, ct_decoder_all, token, before, &n);
    return json_utf8(part, n);
}

static json_t *generation_logprob_json(const generation *w, int32_t token, double log_probability,
                                       int32_t before) {
    json_t *bytes, *text = generation_token_json(w, token, before, &bytes);
    // JSON has no infinity.
    const double shown_as = log_probability > -9999 ? log_probability : -9999;
    json_t *made = json_pack("{s:o, s:f, s:o}", "token", text, "logprob", shown_as, "bytes", bytes);
    if (w->return_token_ids) json_object_set_new(made, "id", json_integer(token));
    return made;
}

static void choice_add_logprobs(choice *c, const event *e) {
    const generation *w = c->owner;
    const int32_t before = w->model->anchor_token;
    json_t *one = generation_logprob_json(w, e->token, e->log_probability, before),
           *top = json_array();
    for (size_t i = 0; i < e->n_top; i++)
        json_array_append_new(
            top, generation_logprob_json(w, e->top[i].token, e->top[i].logprob, before));
    json_object_set_new(one, "top_logprobs", top);
    json_array_append_new(c->likely, one);
}

// Log-probabilities of a prompt (n tokens), the rank of each token, and the n_best most likely ones.
typedef struct prompt_logprobs {
    double *own;
    int64_t *rank;
    ct_engine_logprob *best;
} prompt_logprobs;

static bool prompt_logprobs_compute(model *m, const prompt_input *p, size_t n_best,
                                    prompt_logprobs *to, char why[512]) {
    to->own = calloc(p->n, sizeof *to->own);
    to->rank = calloc(p->n, sizeof *to->rank);
    to->best = calloc(p->n * n_best + 1, sizeof *to->best);
    snprintf(why, 512, "there is no memory for the logprobs of the prompt");
    return to->own && to->rank && to->best &&
           model_prompt_logprobs(m, p->ids, p->n, to->own, to->rank, to->best, n_best, why);
}

static void prompt_logprobs_free(prompt_logprobs *of) {
    free(of->own);
    free(of->rank);
    free(of->best);
}

bool choice_add_prompt_logprobs(choice *c, const prompt_input *p, size_t n_best, char why[512]) {
    prompt_logprobs read = {0};
    const bool ok = prompt_logprobs_compute(c->owner->model, p, n_best, &read, why);
    for (size_t i = 0; ok && i < p->n; i++) {
        const event e = {.token = p->ids[i],
                         .log_probability = read.own[i],
                         .n_top = n_best,
                         .top = read.best + i * n_best};
        choice_add_logprobs(c, &e);
        if (i) continue;
        json_t *first = json_array_get(c->likely, json_array_size(c->likely) - 1);
        json_object_set_new(first, "logprob", json_null()); // no token precedes it
        json_object_set_new(first, "top_logprobs", json_null());
    }
    prompt_logprobs_free(&read);
    return ok;
}

static void generation_add_ranked_logprob(const generation *w, json_t *to, int32_t token,
                                          double log_probability, int64_t rank) {
    char key[16];
    json_t *bytes, *text = generation_token_json(w, token, w->model->anchor_token, &bytes);
    json_decref(bytes);
    snprintf(key, sizeof key, "%d", (int)token);
    json_object_set_new(to, key,
                        json_pack("{s:f, s:I, s:o}", "logprob",
                                  log_probability > -9999 ? log_probability : -9999, "rank",
                                  (json_int_t)rank, "decoded_token", text));
}

json_t *make_prompt_logprobs(generation *w, const prompt_input *p, size_t n_best, char why[512]) {
    prompt_logprobs read = {0};
    json_t *list = NULL;
    if (prompt_logprobs_compute(w->model, p, n_best, &read, why)) list = json_pack("[n]");
    for (size_t i = 1; list && i < p->n; i++) {
        json_t *one = json_object();
        generation_add_ranked_logprob(w, one, p->ids[i], read.own[i], read.rank[i]);
        for (size_t k = 0; k < n_best; k++) {
            const ct_engine_logprob *best = &read.best[i * n_best + k];
            if (best->token != p->ids[i])
                generation_add_ranked_logprob(w, one, best->token, best->logprob, (int64_t)k + 1);
        }
        json_array_append_new(list, one);
    }
    prompt_logprobs_free(&read);
    return list;
}

static void choice_finish(choice *c, const event *e) {
    const ct_engine_result *r = &e->result;
    c->is_done = true;
    c->end = r->finish_reason;
    c->by_stop_string = r->stop_string != NULL;
    c->prompt = r->prompt_tokens;
    c->cached = r->cached_tokens;
    c->written = r->generated_tokens;
    c->first = r->ttft_seconds;
    c->all = r->total_seconds;
    snprintf(c->why, sizeof c->why, "%s", e->why);
    metrics_count_choice(c->owner->model->server->metrics, c);
    choice_report_part(c, PART_END, 0, NULL, 0);
}

// Attributes tokens to reasoning: a token whose text is held back is counted with the text that follows.
static void choice_count_reasoning(choice *c, size_t reasoning, size_t content, size_t calls) {
    if (c->reasoning.n > reasoning)
        c->reasoning_tokens += c->unattributed_tokens;
    else if (c->content.n == content && c->n_calls == calls)
        return;
    c->unattributed_tokens = 0;
}

bool generation_wait(generation *w) {
    pthread_mutex_lock(&w->lock);
    while (!w->first_event && w->running) pthread_cond_wait(&w->changed, &w->lock);
    event *e = w->first_event;
    if (e) w->first_event = e->next;
    if (!w->first_event) w->last_event = NULL;
    pthread_mutex_unlock(&w->lock);
    if (!e) return false;
    choice *c = e->owner;
    if (!e->is_end && c->likely) choice_add_logprobs(c, e);
    if (!e->is_end && w->return_token_ids) {
        if (!c->token_ids) c->token_ids = json_array();
        json_array_append_new(c->token_ids, json_integer(e->token));
    }
    const size_t reasoning = c->reasoning.n, content = c->content.n, calls = c->n_calls;
    c->unattributed_tokens += !e->is_end;
    choice_feed_text(c, e->text, e->n, e->is_end);
    choice_count_reasoning(c, reasoning, content, calls);
    if (e->is_end) choice_finish(c, e);
    free(e);
    return true;
}

const char *finish_reason(const choice *c) {
    if (c->end == CT_ENGINE_LENGTH) return "length";
    return c->n_calls ? "tool_calls" : "stop";
}

json_t *choice_take_logprobs(choice *c) {
    json_t *list = c->likely;
    c->likely = list ? json_array() : NULL;
    return list ? list : json_array();
}

token_counts generation_count_tokens(const generation *w) {
    token_counts u = {0};
    for (size_t i = 0; i < w->n; i++) {
        const choice *c = &w->choices[i];
        if (i % w->choices_per_prompt == 0) u.prompt += c->prompt, u.cached += c->cached;
        u.written += c->written;
        u.reasoning_tokens += c->reasoning_tokens;
    }
    return u;
}

bool generation_has_failed(const generation *w, int *code, const char **what) {
    const bool stopping = atomic_load(&w->model->server->stopping);
    for (size_t i = 0; i < w->n; i++) {
        const choice *c = &w->choices[i];
        const bool cancelled = c->is_done && c->end == CT_ENGINE_CANCELLED;
        const bool lost = !c->is_done || c->failed; // out of memory
        if (!lost && c->end != CT_ENGINE_FAILED && !cancelled) continue;
        *code = !cancelled ? 500
                : stopping ? 503
                           : 499; // nginx's status for a client that disconnected
        *what = !c->is_done  ? "there is no memory"
                : !cancelled ? c->why
                : stopping   ? "the server is stopping"
                             : "the client went away";
        return true;
    }
    return false;
}
