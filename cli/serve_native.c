// llama-server's own API: POST /completion and /apply-template, GET /props and /slots.
#include <stdlib.h>
#include <string.h>

#include "serve.h"

enum { MAX_PROMPTS = 128 };

typedef struct native_request {
    generation *gen;
    model *m;
    bool stream, is_list, return_tokens, is_done;
    generation_params is;
    id_list encodings[MAX_PROMPTS];
    prompt_input prompts[MAX_PROMPTS];
    json_t *prompts_json[MAX_PROMPTS]; // the prompts as they were received
    size_t n_prompts;
    buffer *out;
} native_request;

static void native_free(void *state) {
    native_request *t = state;
    if (!t) return;
    generation_free(t->gen);
    generation_params_free(&t->is);
    for (size_t i = 0; i < MAX_PROMPTS; i++) {
        id_list_free(&t->encodings[i]);
        json_decref(t->prompts_json[i]);
    }
    free(t);
}

// ----------------------------------------------------------------------------------------- replies

static json_t *native_timings(const choice *c) {
    const double read = c->first * 1e3, wrote = (c->all - c->first) * 1e3;
    const double fresh = (double)(c->prompt - c->cached), written = (double)c->written;
    return json_pack("{s:I, s:I, s:f, s:f, s:I, s:f, s:f}", "cache_n", (json_int_t)c->cached,
                     "prompt_n", (json_int_t)fresh, "prompt_ms", read, "prompt_per_second",
                     read > 0 ? fresh / read * 1e3 : 0.0, "predicted_n", (json_int_t)c->written,
                     "predicted_ms", wrote, "predicted_per_second",
                     wrote > 0 ? written / wrote * 1e3 : 0.0);
}

static const char *native_stop_type(const choice *c) {
    if (c->end == CT_ENGINE_LENGTH) return "limit";
    return c->by_stop_string ? "word" : "eos";
}

static json_t *native_settings(const native_request *t) {
    const ct_lm_sampling *s = &t->is.sampling;
    return json_pack("{s:I, s:f, s:I, s:f, s:f, s:I, s:b, s:b}", "seed", (json_int_t)s->seed,
                     "temperature", s->temperature.given ? s->temperature.value : 1.0, "top_k",
                     (json_int_t)s->top_k, "top_p", s->top_p.given ? s->top_p.value : 1.0, "min_p",
                     s->min_p, "n_predict", (json_int_t)(t->is.most.given ? t->is.most.value : -1),
                     "ignore_eos", t->is.ignore_eos, "stream", t->stream);
}

// The whole result of a choice, or the last chunk of a stream, whose content was sent before.
static json_t *native_result(const native_request *t, choice *c) {
    json_t *made = json_pack(
        "{s:I, s:o, s:o, s:b, s:s, s:I, s:I, s:O, s:o, s:b, s:s, s:s, s:I, s:o}", "index",
        (json_int_t)c->index, "content",
        t->stream ? json_string("") : json_utf8(c->content.v, c->content.n), "tokens",
        t->return_tokens && !t->stream && c->token_ids ? json_incref(c->token_ids) : json_array(),
        "stop", 1, "model", t->m->name, "tokens_predicted", (json_int_t)c->written,
        "tokens_evaluated", (json_int_t)c->prompt, "prompt", t->prompts_json[c->index],
        "generation_settings", native_settings(t), "truncated", 0, "stop_type", native_stop_type(c),
        "stopping_word", c->by_stop_string ? c->why : "", "tokens_cached",
        (json_int_t)(c->prompt + c->written), "timings", native_timings(c));
    if (t->is.log_probabilities)
        json_object_set_new(made, "completion_probabilities", choice_take_logprobs(c));
    return made;
}

static bool native_reply(exchange *x, native_request *t) {
    const char *what;
    int code;
    while (generation_wait(t->gen)) continue;
    if (generation_has_failed(t->gen, &code, &what)) return fail_request(x, code, NULL, "%s", what);
    if (!t->is_list) return reply_json(x, native_result(t, t->gen->choices));
    json_t *list = json_array();
    for (size_t i = 0; i < t->gen->n; i++)
        json_array_append_new(list, native_result(t, &t->gen->choices[i]));
    return reply_json(x, list);
}

static void native_on_part(void *user, choice *c, part_kind kind, size_t call, const char *text,
                           size_t n) {
    native_request *t = user;
    (void)call;
    if (kind == PART_END) {
        if (c->end == CT_ENGINE_STOPPED || c->end == CT_ENGINE_LENGTH)
            buffer_put_event(t->out, NULL, native_result(t, c));
        return;
    }
    json_t *ids = t->return_tokens && c->token_ids ? c->token_ids : json_array();
    if (t->return_tokens) c->token_ids = NULL; // those since the previous chunk
    json_t *made = json_pack("{s:I, s:o, s:o, s:b}", "index", (json_int_t)c->index, "content",
                             json_utf8(text, n), "tokens", ids, "stop", 0);
    if (t->is.log_probabilities)
        json_object_set_new(made, "completion_probabilities", choice_take_logprobs(c));
    buffer_put_event(t->out, NULL, made);
}

static bool native_next_chunk(void *state, buffer *out) {
    native_request *t = state;
    const char *what;
    int code;
    if (t->is_done) return false;
    t->out = out;
    t->gen->on_part = native_on_part;
    t->gen->user = t;
    if (generation_wait(t->gen)) return true;
    t->is_done = true;
    if (generation_has_failed(t->gen, &code, &what))
        buffer_put_event(out, NULL, error_object(STYLE_OPENAI, code, NULL, what));
    return true;
}

// ---------------------------------------------------------------------------------------- requests

static bool native_reject_prompt(exchange *x, const json_t *value) {
    return fail_request(x, 400, "prompt",
                        "prompt must be a string, a list of strings and tokens, or a list of "
                        "these, not %s",
                        value ? json_excerpt(value) : "missing");
}

// Parses a list of strings and tokens; special tokens are added only to a string at its beginning.
static bool native_parse_mixed_prompt(exchange *x, const model *m, json_t *list, id_list *to) {
    json_t *one;
    size_t i;
    json_array_foreach(list, i, one) {
        id_list part = {0};
        bool ok;
        if (json_is_string(one)) {
            ok = model_encode((model *)m, json_string_value(one), json_string_length(one), i == 0,
                              &part) ||
                 fail_request_from_error(x, 400, "prompt");
        } else {
            json_t *alone = json_pack("[O]", one);
            ok = parse_ids(x, m, alone, "prompt", &part);
            json_decref(alone);
        }
        int32_t *all = ok ? realloc(to->ids, (to->n + part.n + 1) * sizeof *all) : NULL;
        if (all) {
            to->ids = all;
            if (part.n) memcpy(all + to->n, part.ids, part.n * sizeof *all);
            to->n += part.n;
        }
        id_list_free(&part);
        if (!all) return ok && fail_request(x, 500, NULL, "there is no memory for the request");
    }
    return true;
}

static bool native_add_prompt(exchange *x, native_request *t, json_t *value) {
    if (t->n_prompts == MAX_PROMPTS)
        return fail_request(x, 400, "prompt", "prompt: there are more than %d", MAX_PROMPTS);
    if (!json_is_string(value) && !json_is_array(value)) return native_reject_prompt(x, value);
    id_list *e = &t->encodings[t->n_prompts];
    json_t *list = json_is_array(value) ? json_incref(value) : json_pack("[O]", value);
    const bool ok = native_parse_mixed_prompt(x, t->m, list, e);
    json_decref(list);
    if (!ok) return false;
    t->prompts_json[t->n_prompts] = json_incref(value);
    t->prompts[t->n_prompts++] = (prompt_input){e->ids, e->n, NULL};
    return check_prompt_length(x, t->m, e->n, "prompt");
}

static bool native_parse_prompts(exchange *x, native_request *t) {
    json_t *prompt = json_object_get(x->request, "prompt"), *one;
    bool several = json_array_size(prompt) > 0;
    size_t i;
    json_array_foreach(prompt, i, one) several &= !json_is_number(one);
    if (!several) return native_add_prompt(x, t, prompt);
    t->is_list = true;
    json_array_foreach(prompt, i, one) {
        if (!native_add_prompt(x, t, one)) return false;
    }
    return true;
}

static bool native_parse(exchange *x, native_request *t) {
    ct_num likely = {0};
    const field fields[] = {{"n_probs", FIELD_INT, 0, MAX_TOP_LOGPROBS, &likely},
                            {"stream", FIELD_BOOL, .out = &t->stream},
                            {"return_tokens", FIELD_BOOL, .out = &t->return_tokens}};
    t->is.allows_zero_tokens = true;
    if (!parse_fields(x, x->request, "", fields, sizeof fields / sizeof *fields) ||
        !parse_generation_params(x, t->m, &t->is, "n_predict"))
        return false;
    t->is.n = 1;
    t->is.log_probabilities = likely.value > 0;
    t->is.likely = (int64_t)likely.value;
    t->is.return_token_ids = true;
    return native_parse_prompts(x, t);
}

bool handle_native(exchange *x) {
    model *m = find_requested_model(x, true);
    native_request *t = m ? calloc(1, sizeof *t) : NULL;
    if (!t) return m ? fail_request(x, 500, NULL, "there is no memory for the request") : false;
    t->m = m;
    if (native_parse(x, t)) t->gen = generation_start(x, m, &t->is, t->prompts, t->n_prompts);
    if (t->gen && t->stream)
        return reply_stream(x, "text/event-stream", native_next_chunk, native_free, t);
    const bool ok = t->gen && native_reply(x, t);
    native_free(t);
    return ok;
}

// ------------------------------------------------------------------------------- what the server is

bool handle_apply_template(exchange *x) {
    json_t *messages = NULL, *tools = NULL, *variables = NULL;
    const field fields[] = {{"messages", FIELD_LIST, .out = &messages},
                            {"tools", FIELD_LIST, .out = &tools},
                            {"chat_template_kwargs", FIELD_OBJECT, .out = &variables}};
    model *m = find_requested_model(x, true);
    conversation c = {0};
    if (!m || !parse_fields(x, x->request, "", fields, sizeof fields / sizeof *fields))
        return false;
    c.variables = variables ? json_copy(variables) : json_object();
    bool ok = parse_messages(x, messages, &c) &&
              parse_tools(x, tools, json_object_get(x->request, "tool_choice"), &c) &&
              conversation_make_prompt(x, m, &c);
    if (ok) ok = reply_json(x, json_pack("{s:o}", "prompt", json_utf8(c.text, strlen(c.text))));
    conversation_free(&c);
    return ok;
}

bool handle_props(exchange *x) {
    const model *m = &x->server->models[0];
    return reply_json(
        x, json_pack("{s:{s:I}, s:I, s:s, s:s, s:s, s:{s:b, s:b}, s:s}",
                     "default_generation_settings", "n_ctx", (json_int_t)m->context, "total_slots",
                     (json_int_t)(x->server->is.max_sequences ? x->server->is.max_sequences : 32),
                     "model_alias", m->name, "model_path", m->path, "chat_template",
                     ct_chat_template_text(m->is->chat), "modalities", "vision", 0, "audio", 0,
                     "build_info", "cotan " CT_VERSION));
}

// There are no fixed slots; one is reported as busy for each running sequence.
bool handle_slots(exchange *x) {
    const model *m = &x->server->models[0];
    const int64_t all = x->server->is.max_sequences ? x->server->is.max_sequences : 32;
    const int64_t busy = m->engine ? ct_engine_stats(m->engine).running : 0;
    json_t *list = json_array();
    for (int64_t i = 0; i < all; i++)
        json_array_append_new(list, json_pack("{s:I, s:I, s:b}", "id", (json_int_t)i, "n_ctx",
                                              (json_int_t)m->context, "is_processing", i < busy));
    return reply_json(x, list);
}
