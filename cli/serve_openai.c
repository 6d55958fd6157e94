// POST /v1/chat/completions and /v1/completions, GET /v1/models.
#include <stdlib.h>
#include <string.h>

#include "serve.h"

enum { MAX_PROMPTS = 128 };

// A request that is being handled.
typedef struct openai_request {
    generation *gen;
    model *m;
    char id[ID_BYTES];
    int64_t created;
    bool chat, likely, stream, include_usage, echo;
    generation_params is;
    conversation c;
    id_list encodings[MAX_PROMPTS];
    prompt_input prompts[MAX_PROMPTS];
    size_t n_prompts;
    buffer echoes[MAX_PROMPTS];
    json_t *prompt_logprobs[MAX_PROMPTS]; // vLLM's; NULL: not requested
    buffer *out;
    bool is_done;
} openai_request;

static void openai_request_free(void *state) {
    openai_request *t = state;
    if (!t) return;
    generation_free(t->gen);
    generation_params_free(&t->is);
    conversation_free(&t->c);
    for (size_t i = 0; i < MAX_PROMPTS; i++) {
        id_list_free(&t->encodings[i]);
        free(t->echoes[i].v);
        json_decref(t->prompt_logprobs[i]);
    }
    free(t);
}

// ----------------------------------------------------------------------------------------- replies

static json_t *openai_usage_json(const openai_request *t) {
    const token_counts u = generation_count_tokens(t->gen);
    json_t *made = json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)u.prompt,
                             "completion_tokens", (json_int_t)u.written, "total_tokens",
                             (json_int_t)(u.prompt + u.written), "prompt_tokens_details",
                             "cached_tokens", (json_int_t)u.cached);
    if (t->chat) // completions are not parsed for reasoning
        json_object_set_new(made, "completion_tokens_details",
                            json_pack("{s:I}", "reasoning_tokens", (json_int_t)u.reasoning_tokens));
    return made;
}

static json_t *openai_reply_json(const openai_request *t, const char *object, json_t *choices) {
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", t->id, "object", object, "created",
                     (json_int_t)t->created, "model", t->m->name, "choices", choices);
}

static size_t openai_count_characters(const char *text, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

// Converts logprobs to the format of /v1/completions. Consumes the list.
static json_t *openai_completion_logprobs_json(choice *c, json_t *list) {
    json_t *tokens = json_array(), *numbers = json_array(), *tops = json_array(),
           *offsets = json_array(), *one, *other;
    size_t i, k;
    json_array_foreach(list, i, one) {
        json_t *text = json_object_get(one, "token"), *top = json_object();
        json_array_append(tokens, text);
        json_array_append(numbers, json_object_get(one, "logprob"));
        json_array_foreach(json_object_get(one, "top_logprobs"), k, other) {
            json_object_set(top, json_string_value(json_object_get(other, "token")),
                            json_object_get(other, "logprob"));
        }
        if (json_is_null(json_object_get(one, "top_logprobs"))) {
            json_decref(top);
            top = json_null();
        }
        json_array_append_new(tops, top);
        json_array_append_new(offsets, json_integer((json_int_t)c->text_offset));
        c->text_offset +=
            openai_count_characters(json_string_value(text), json_string_length(text));
    }
    json_decref(list);
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", numbers,
                     "top_logprobs", tops, "text_offset", offsets);
}

static json_t *openai_logprobs_json(const openai_request *t, choice *c) {
    if (!t->likely) return json_null();
    json_t *list = choice_take_logprobs(c);
    if (!t->chat) return openai_completion_logprobs_json(c, list);
    return json_pack("{s:o, s:n}", "content", list, "refusal");
}

static json_t *openai_tool_calls_json(const choice *c) {
    json_t *list = json_array();
    for (size_t i = 0; i < c->n_calls; i++) {
        const tool_call *k = &c->calls[i];
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:{s:o, s:o}}", "id", k->id, "type", "function",
                                        "function", "name", json_utf8(k->name.v, k->name.n),
                                        "arguments", json_utf8(k->arguments.v, k->arguments.n)));
    }
    return list;
}

static json_t *openai_message_json(const choice *c) {
    const bool silent = c->n_calls && !c->content.n;
    json_t *message =
        json_pack("{s:s, s:o, s:n}", "role", "assistant", "content",
                  silent ? json_null() : json_utf8(c->content.v, c->content.n), "refusal");
    if (c->reasoning.n)
        json_object_set_new(message, "reasoning_content",
                            json_utf8(c->reasoning.v, c->reasoning.n));
    if (c->n_calls) json_object_set_new(message, "tool_calls", openai_tool_calls_json(c));
    return message;
}

static json_t *openai_choice_json(const openai_request *t, choice *c) {
    json_t *made = json_pack("{s:I, s:s, s:o}", "index", (json_int_t)c->index, "finish_reason",
                             finish_reason(c), "logprobs", openai_logprobs_json(t, c));
    if (t->chat) {
        json_object_set_new(made, "message", openai_message_json(c));
        return made;
    }
    buffer all = {0};
    if (t->echo)
        buffer_put(&all, t->echoes[c->index / t->gen->choices_per_prompt].v,
                   t->echoes[c->index / t->gen->choices_per_prompt].n);
    buffer_put(&all, c->content.v ? c->content.v : "", c->content.n);
    json_object_set_new(made, "text", json_utf8(all.v, all.n));
    free(all.v);
    if (t->is.prompt_top_logprobs.given)
        json_object_set(made, "prompt_logprobs",
                        t->prompt_logprobs[c->index / t->gen->choices_per_prompt]);
    return made;
}

static bool openai_reply_whole(exchange *x, openai_request *t) {
    const char *what;
    int code;
    while (generation_wait(t->gen)) continue;
    if (generation_has_failed(t->gen, &code, &what)) return fail_request(x, code, NULL, "%s", what);
    json_t *choices = json_array();
    for (size_t i = 0; i < t->gen->n; i++)
        json_array_append_new(choices, openai_choice_json(t, &t->gen->choices[i]));
    json_t *made = openai_reply_json(t, t->chat ? "chat.completion" : "text_completion", choices);
    json_object_set_new(made, "usage", openai_usage_json(t));
    if (t->chat && t->is.prompt_top_logprobs.given)
        json_object_set(made, "prompt_logprobs", t->prompt_logprobs[0]);
    return reply_json(x, made);
}

// ----------------------------------------------------------------------------------------- streams

// Sends a chunk of one choice: `delta` is the new part, or a text.
static void openai_put_chunk(openai_request *t, choice *c, json_t *delta, const char *finish) {
    json_t *made = json_pack("{s:I, s:o, s:o, s:s?}", "index", (json_int_t)c->index,
                             t->chat ? "delta" : "text", delta, "logprobs",
                             openai_logprobs_json(t, c), "finish_reason", finish);
    json_t *chunk = openai_reply_json(t, t->chat ? "chat.completion.chunk" : "text_completion",
                                      json_pack("[o]", made));
    if (t->include_usage) json_object_set_new(chunk, "usage", json_null());
    buffer_put_event(t->out, NULL, chunk);
}

static json_t *openai_tool_call_delta_json(size_t number, const tool_call *begun, const char *text,
                                           size_t n) {
    json_t *function = json_pack("{s:o}", begun ? "name" : "arguments", json_utf8(text, n));
    json_t *made = json_pack("{s:I, s:o}", "index", (json_int_t)number, "function", function);
    if (begun) {
        json_object_set_new(made, "id", json_string(begun->id));
        json_object_set_new(made, "type", json_string("function"));
        json_object_set_new(function, "arguments", json_string(""));
    }
    return json_pack("{s:[o]}", "tool_calls", made);
}

static void openai_on_part(void *user, choice *c, part_kind kind, size_t number, const char *text,
                           size_t n) {
    openai_request *t = user;
    switch (kind) {
    case PART_CONTENT:
        openai_put_chunk(
            t, c, t->chat ? json_pack("{s:o}", "content", json_utf8(text, n)) : json_utf8(text, n),
            NULL);
        break;
    case PART_REASONING:
        openai_put_chunk(t, c, json_pack("{s:o}", "reasoning_content", json_utf8(text, n)), NULL);
        break;
    case PART_TOOL_CALL:
        openai_put_chunk(t, c, openai_tool_call_delta_json(number, &c->calls[number], text, n),
                         NULL);
        break;
    case PART_TOOL_ARGUMENTS:
        openai_put_chunk(t, c, openai_tool_call_delta_json(number, NULL, text, n), NULL);
        break;
    case PART_END:
        if (c->end == CT_ENGINE_STOPPED || c->end == CT_ENGINE_LENGTH)
            openai_put_chunk(t, c, t->chat ? json_object() : json_string(""), finish_reason(c));
        break;
    }
}

static void openai_put_first_chunks(openai_request *t) {
    for (size_t i = 0; i < t->gen->n; i++) {
        choice *c = &t->gen->choices[i];
        const buffer *echo = &t->echoes[i / t->gen->choices_per_prompt];
        if (t->chat)
            openai_put_chunk(t, c, json_pack("{s:s, s:s}", "role", "assistant", "content", ""),
                             NULL);
        else if (t->echo)
            openai_put_chunk(t, c, json_utf8(echo->v, echo->n), NULL);
    }
}

static bool openai_next_chunk(void *state, buffer *out) {
    openai_request *t = state;
    const char *what;
    int code;
    if (t->is_done) return false;
    t->out = out;
    if (!t->gen->on_part) {
        t->gen->on_part = openai_on_part;
        t->gen->user = t;
        openai_put_first_chunks(t);
        return true;
    }
    if (generation_wait(t->gen)) return true;
    t->is_done = true;
    if (generation_has_failed(t->gen, &code, &what)) {
        buffer_put_event(out, NULL, error_object(STYLE_OPENAI, code, NULL, what));
        return true;
    }
    if (t->include_usage) {
        json_t *chunk = openai_reply_json(t, t->chat ? "chat.completion.chunk" : "text_completion",
                                          json_array());
        json_object_set_new(chunk, "usage", openai_usage_json(t));
        buffer_put_event(out, NULL, chunk);
    }
    buffer_putf(out, "data: [DONE]\n\n");
    return true;
}

// ---------------------------------------------------------------------------------------- requests

static openai_request *openai_request_new(exchange *x, bool chat) {
    model *m = find_requested_model(x, true);
    openai_request *t = m ? calloc(1, sizeof *t) : NULL;
    if (!t) {
        if (m) fail_request(x, 500, NULL, "there is no memory for the request");
        return NULL;
    }
    t->m = m;
    t->chat = chat;
    t->created = (int64_t)time(NULL);
    make_id(chat ? "chatcmpl-" : "cmpl-", t->id);
    return t;
}

// An echoed prompt has logprobs like generated text; the choices of a prompt share them.
static bool openai_add_echo_logprobs(exchange *x, openai_request *t) {
    char why[512];
    for (size_t i = 0; t->echo && t->likely && i < t->gen->n; i++) {
        choice *own = &t->gen->choices[i], *first = own - i % t->gen->choices_per_prompt;
        if (own == first &&
            !choice_add_prompt_logprobs(own, &t->prompts[i / t->gen->choices_per_prompt],
                                        (size_t)t->is.likely, why))
            return fail_request(x, 400, "echo", "%s", why);
        if (own != first) json_array_extend(own->likely, first->likely);
    }
    return true;
}

static bool openai_add_prompt_logprobs(exchange *x, openai_request *t) {
    char why[512];
    for (size_t i = 0; t->is.prompt_top_logprobs.given && i < t->n_prompts; i++) {
        t->prompt_logprobs[i] = make_prompt_logprobs(t->gen, &t->prompts[i],
                                                     (size_t)t->is.prompt_top_logprobs.value, why);
        if (!t->prompt_logprobs[i]) return fail_request(x, 400, "prompt_logprobs", "%s", why);
    }
    return true;
}

static bool openai_answer(exchange *x, openai_request *t) {
    t->gen = generation_start(x, t->m, &t->is, t->prompts, t->n_prompts);
    const bool begun = t->gen && openai_add_echo_logprobs(x, t) && openai_add_prompt_logprobs(x, t);
    if (begun && t->stream)
        return reply_stream(x, "text/event-stream", openai_next_chunk, openai_request_free, t);
    const bool ok = begun && openai_reply_whole(x, t);
    openai_request_free(t);
    return ok;
}

static bool openai_parse_stream(exchange *x, openai_request *t) {
    json_t *options = NULL;
    const field fields[] = {{"stream", FIELD_BOOL, .out = &t->stream},
                            {"stream_options", FIELD_OBJECT, .out = &options}};
    const field usage[] = {{"include_usage", FIELD_BOOL, .out = &t->include_usage}};
    const field scores[] = {
        {"prompt_logprobs", FIELD_INT, 0, MAX_TOP_LOGPROBS, &t->is.prompt_top_logprobs}};
    if (!parse_fields(x, x->request, "", fields, 2) ||
        !parse_fields(x, x->request, "", scores, 1) ||
        (options && !parse_fields(x, options, "stream_options.", usage, 1)))
        return false;
    return !t->stream || !t->is.prompt_top_logprobs.given ||
           fail_request(x, 400, "prompt_logprobs",
                        "prompt_logprobs come with a whole answer, not with a stream");
}

// Rejects response formats that are not supported, since ignoring them would change the meaning of the
// answer.
static bool openai_check_response_format(exchange *x) {
    json_t *format = NULL;
    const char *type = "text";
    const field fields[] = {{"response_format", FIELD_OBJECT, .out = &format}};
    const field types[] = {{"type", FIELD_STRING, .out = &type}};
    if (!parse_fields(x, x->request, "", fields, 1) ||
        (format && !parse_fields(x, format, "response_format.", types, 1)))
        return false;
    if (strcmp(type, "text") != 0)
        return fail_request(
            x, 400, "response_format",
            "response_format: %s is not supported: output cannot be constrained; use text",
            printable(type));
    return true;
}

static bool openai_parse_chat(exchange *x, openai_request *t) {
    ct_num top = {0};
    json_t *messages = NULL, *tools = NULL, *variables = NULL;
    const char *effort = NULL;
    bool parallel = true, answers = true;
    const field fields[] = {{"messages", FIELD_LIST, .out = &messages},
                            {"tools", FIELD_LIST, .out = &tools},
                            {"logprobs", FIELD_BOOL, .out = &t->likely},
                            {"top_logprobs", FIELD_INT, 0, MAX_TOP_LOGPROBS, &top},
                            {"reasoning_effort", FIELD_STRING, .out = &effort},
                            {"chat_template_kwargs", FIELD_OBJECT, .out = &variables},
                            {"parallel_tool_calls", FIELD_BOOL, .out = &parallel},
                            {"add_generation_prompt", FIELD_BOOL, .out = &answers},
                            {"continue_final_message", FIELD_BOOL, .out = &t->c.continue_final},
                            {"add_special_tokens", FIELD_BOOL, .out = &t->c.add_special}};
    if (!parse_fields(x, x->request, "", fields, sizeof fields / sizeof *fields) ||
        !openai_parse_stream(x, t) || !openai_check_response_format(x) ||
        !parse_generation_params(x, t->m, &t->is, "max_tokens"))
        return false;
    if (top.value > 0 && !t->likely)
        return fail_request(x, 400, "top_logprobs", "top_logprobs needs logprobs to be true");
    if (t->c.continue_final && json_is_true(json_object_get(x->request, "add_generation_prompt")))
        return fail_request(x, 400, "continue_final_message",
                            "continue_final_message and add_generation_prompt exclude each other");
    t->c.no_generation_prompt = !answers;
    t->is.single_tool_call = !parallel;
    t->is.log_probabilities = t->likely;
    t->is.likely = (int64_t)top.value;
    t->is.parse_chat = true;
    t->c.variables = variables ? json_copy(variables) : json_object();
    if (effort) json_object_set_new(t->c.variables, "reasoning_effort", json_string(effort));
    if (!parse_messages(x, messages, &t->c) ||
        !parse_tools(x, tools, json_object_get(x->request, "tool_choice"), &t->c) ||
        !conversation_make_prompt(x, t->m, &t->c))
        return false;
    t->is.tools = t->c.tools_text;
    t->prompts[0] = (prompt_input){t->c.ids.ids, t->c.ids.n, t->c.text};
    t->n_prompts = 1;
    return true;
}

bool handle_chat(exchange *x) {
    openai_request *t = openai_request_new(x, true);
    if (!t) return false;
    if (openai_parse_chat(x, t)) return openai_answer(x, t);
    openai_request_free(t);
    return false;
}

// ------------------------------------------------------------------------------------- completions

static bool openai_parse_prompt(exchange *x, openai_request *t, json_t *value, bool add_special) {
    if (t->n_prompts == MAX_PROMPTS)
        return fail_request(x, 400, "prompt", "prompt: there are more than %d", MAX_PROMPTS);
    id_list *e = &t->encodings[t->n_prompts];
    buffer *echo = &t->echoes[t->n_prompts];
    if (json_is_string(value)) {
        const char *text = json_string_value(value);
        const size_t n = json_string_length(value);
        if (!model_encode(t->m, text, n, add_special, e))
            return fail_request_from_error(x, 400, "prompt");
        if (t->echo) buffer_put(echo, text, n);
    } else if (json_is_array(value)) {
        if (!parse_ids(x, t->m, value, "prompt", e)) return false;
        ct_decoder *d = t->echo ? ct_decoder_new_at(t->m->is->tokenizer, true, (ct_loc){0}) : NULL;
        size_t n = 0;
        const char *text = d ? ct_decoder_all(d, e->ids, e->n, &n) : NULL;
        if (text) buffer_put(echo, text, n);
        ct_decoder_free(d);
        if (t->echo && !text) return fail_request_from_error(x, 400, "prompt");
    } else {
        return fail_request(x, 400, "prompt",
                            "prompt must be a string, a list of tokens, or a list of these, not %s",
                            value ? json_excerpt(value) : "missing");
    }
    t->prompts[t->n_prompts++] = (prompt_input){e->ids, e->n, NULL};
    return check_prompt_length(x, t->m, e->n, "prompt");
}

static bool openai_parse_completion(exchange *x, openai_request *t) {
    ct_num likely = {0}, best = {0};
    bool add_special = true;
    json_t *prompt = json_object_get(x->request, "prompt"), *one;
    size_t i;
    const field fields[] = {{"logprobs", FIELD_INT, 0, MAX_TOP_LOGPROBS, &likely},
                            {"echo", FIELD_BOOL, .out = &t->echo},
                            {"best_of", FIELD_INT, 1, 64, &best},
                            {"add_special_tokens", FIELD_BOOL, .out = &add_special}};
    t->is.most = CT_F(16); // OpenAI's default
    if (!parse_fields(x, x->request, "", fields, sizeof fields / sizeof *fields)) return false;
    t->is.allows_zero_tokens = t->echo; // to get only the logprobs of the prompt
    if (!openai_parse_stream(x, t) || !openai_check_response_format(x) ||
        !parse_generation_params(x, t->m, &t->is, "max_tokens"))
        return false;
    if (best.given && (int64_t)best.value != t->is.n)
        return fail_request(x, 400, "best_of",
                            "best_of: all n choices are returned; it must be n, %lld, or left out",
                            (long long)t->is.n);
    t->likely = t->is.log_probabilities = likely.given;
    t->is.likely = (int64_t)likely.value;
    const json_t *first = json_array_get(prompt, 0);
    if (!json_is_array(prompt) || json_is_integer(first))
        return openai_parse_prompt(x, t, prompt, add_special);
    if (!first) return fail_request(x, 400, "prompt", "prompt: the list is empty");
    json_array_foreach(prompt, i, one) {
        if (!openai_parse_prompt(x, t, one, add_special)) return false;
    }
    return true;
}

bool handle_completions(exchange *x) {
    openai_request *t = openai_request_new(x, false);
    if (!t) return false;
    if (openai_parse_completion(x, t)) return openai_answer(x, t);
    openai_request_free(t);
    return false;
}

// ------------------------------------------------------------------------------------------ models

static json_t *openai_model_json(const model *m) {
    json_t *can = json_array();
    if (m->engine) json_array_append_new(can, json_string("completion"));
    if (m->engine && m->is->chat) json_array_append_new(can, json_string("chat"));
    json_array_append_new(can, json_string("embedding"));
    return json_pack("{s:s, s:s, s:I, s:s, s:I, s:o}", "id", m->name, "object", "model", "created",
                     (json_int_t)m->modified, "owned_by", "cotan", "max_model_len",
                     (json_int_t)m->context, "capabilities", can);
}

bool handle_models(exchange *x) {
    json_t *list = json_array();
    for (size_t i = 0; i < x->server->n_models; i++)
        json_array_append_new(list, openai_model_json(&x->server->models[i]));
    return reply_json(x, json_pack("{s:s, s:o}", "object", "list", "data", list));
}

bool handle_model(exchange *x) {
    const model *m = model_find(x->server, x->path_suffix);
    if (!m)
        return fail_request(x, 404, "model", "there is no model \"%s\" here",
                            printable(x->path_suffix));
    return reply_json(x, openai_model_json(m));
}
