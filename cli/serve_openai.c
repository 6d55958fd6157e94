// POST /v1/chat/completions and /v1/completions, GET /v1/models.
#include <stdlib.h>
#include <string.h>

#include "serve.h"

enum { MOST_PROMPTS = 128 };

// A request while it is answered.
typedef struct talk {
    writing *w;
    model *m;
    char id[ID_BYTES];
    int64_t created;
    bool chat, likely, stream, usage, echo;
    wanted is;
    conversation c;
    id_list encodings[MOST_PROMPTS];
    given_prompt prompts[MOST_PROMPTS];
    size_t n_prompts;
    buffer echoes[MOST_PROMPTS];
    json_t *prompt_logprobs[MOST_PROMPTS]; // vLLM's; NULL: not asked for
    buffer *out;
    bool over;
} talk;

static void free_talk(void *state) {
    talk *t = state;
    if (!t) return;
    free_writing(t->w);
    free_wanted(&t->is);
    free_conversation(&t->c);
    for (size_t i = 0; i < MOST_PROMPTS; i++) {
        free_ids(&t->encodings[i]);
        free(t->echoes[i].v);
        json_decref(t->prompt_logprobs[i]);
    }
    free(t);
}

// ----------------------------------------------------------------------------------------- replies

static json_t *usage_object(const talk *t) {
    const token_counts u = count_tokens(t->w);
    json_t *made = json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)u.prompt,
                             "completion_tokens", (json_int_t)u.written, "total_tokens",
                             (json_int_t)(u.prompt + u.written), "prompt_tokens_details",
                             "cached_tokens", (json_int_t)u.cached);
    if (t->chat) // of other texts nobody looks for reasoning
        json_object_set_new(made, "completion_tokens_details",
                            json_pack("{s:I}", "reasoning_tokens", (json_int_t)u.reasoned));
    return made;
}

static json_t *head(const talk *t, const char *object, json_t *choices) {
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", t->id, "object", object, "created",
                     (json_int_t)t->created, "model", t->m->name, "choices", choices);
}

static size_t characters(const char *text, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

// The likeliest tokens as /v1/completions has them. Takes the list.
static json_t *old_likely(choice *c, json_t *list) {
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
        json_array_append_new(offsets, json_integer((json_int_t)c->offset));
        c->offset += characters(json_string_value(text), json_string_length(text));
    }
    json_decref(list);
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", numbers,
                     "top_logprobs", tops, "text_offset", offsets);
}

static json_t *likely_object(const talk *t, choice *c) {
    if (!t->likely) return json_null();
    json_t *list = take_likely(c);
    if (!t->chat) return old_likely(c, list);
    return json_pack("{s:o, s:n}", "content", list, "refusal");
}

static json_t *calls_list(const choice *c) {
    json_t *list = json_array();
    for (size_t i = 0; i < c->n_calls; i++) {
        const tool_call *k = &c->calls[i];
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:{s:o, s:o}}", "id", k->id, "type", "function",
                                        "function", "name", json_text(k->name.v, k->name.n),
                                        "arguments", json_text(k->arguments.v, k->arguments.n)));
    }
    return list;
}

static json_t *message_object(const choice *c) {
    const bool silent = c->n_calls && !c->content.n;
    json_t *message =
        json_pack("{s:s, s:o, s:n}", "role", "assistant", "content",
                  silent ? json_null() : json_text(c->content.v, c->content.n), "refusal");
    if (c->reasoning.n)
        json_object_set_new(message, "reasoning_content",
                            json_text(c->reasoning.v, c->reasoning.n));
    if (c->n_calls) json_object_set_new(message, "tool_calls", calls_list(c));
    return message;
}

static json_t *choice_object(const talk *t, choice *c) {
    json_t *made = json_pack("{s:I, s:s, s:o}", "index", (json_int_t)c->index, "finish_reason",
                             finish_reason(c), "logprobs", likely_object(t, c));
    if (t->chat) {
        json_object_set_new(made, "message", message_object(c));
        return made;
    }
    buffer all = {0};
    if (t->echo) put(&all, t->echoes[c->index / t->w->each].v, t->echoes[c->index / t->w->each].n);
    put(&all, c->content.v ? c->content.v : "", c->content.n);
    json_object_set_new(made, "text", json_text(all.v, all.n));
    free(all.v);
    if (t->is.prompt_likely.given)
        json_object_set(made, "prompt_logprobs", t->prompt_logprobs[c->index / t->w->each]);
    return made;
}

static bool reply_whole(exchange *x, talk *t) {
    const char *what;
    int code;
    while (go_on(t->w)) continue;
    if (is_broken(t->w, &code, &what)) return refuse_request(x, code, NULL, "%s", what);
    json_t *choices = json_array();
    for (size_t i = 0; i < t->w->n; i++)
        json_array_append_new(choices, choice_object(t, &t->w->choices[i]));
    json_t *made = head(t, t->chat ? "chat.completion" : "text_completion", choices);
    json_object_set_new(made, "usage", usage_object(t));
    if (t->chat && t->is.prompt_likely.given)
        json_object_set(made, "prompt_logprobs", t->prompt_logprobs[0]);
    return reply_json(x, made);
}

// ----------------------------------------------------------------------------------------- streams

// A piece of one text: what is new stands in `delta`, or is text.
static void put_chunk(talk *t, choice *c, json_t *delta, const char *finish) {
    json_t *made = json_pack("{s:I, s:o, s:o, s:s?}", "index", (json_int_t)c->index,
                             t->chat ? "delta" : "text", delta, "logprobs", likely_object(t, c),
                             "finish_reason", finish);
    json_t *chunk =
        head(t, t->chat ? "chat.completion.chunk" : "text_completion", json_pack("[o]", made));
    if (t->usage) json_object_set_new(chunk, "usage", json_null());
    put_event(t->out, NULL, chunk);
}

static json_t *call_delta(size_t number, const tool_call *begun, const char *text, size_t n) {
    json_t *function = json_pack("{s:o}", begun ? "name" : "arguments", json_text(text, n));
    json_t *made = json_pack("{s:I, s:o}", "index", (json_int_t)number, "function", function);
    if (begun) {
        json_object_set_new(made, "id", json_string(begun->id));
        json_object_set_new(made, "type", json_string("function"));
        json_object_set_new(function, "arguments", json_string(""));
    }
    return json_pack("{s:[o]}", "tool_calls", made);
}

static void hear_part(void *user, choice *c, part_kind kind, size_t number, const char *text,
                      size_t n) {
    talk *t = user;
    switch (kind) {
    case PART_CONTENT:
        put_chunk(t, c,
                  t->chat ? json_pack("{s:o}", "content", json_text(text, n)) : json_text(text, n),
                  NULL);
        break;
    case PART_REASONING:
        put_chunk(t, c, json_pack("{s:o}", "reasoning_content", json_text(text, n)), NULL);
        break;
    case PART_CALL: put_chunk(t, c, call_delta(number, &c->calls[number], text, n), NULL); break;
    case PART_ARGUMENTS: put_chunk(t, c, call_delta(number, NULL, text, n), NULL); break;
    case PART_END:
        if (c->end == CT_ENGINE_STOPPED || c->end == CT_ENGINE_LENGTH)
            put_chunk(t, c, t->chat ? json_object() : json_string(""), finish_reason(c));
        break;
    }
}

static void put_begin(talk *t) {
    for (size_t i = 0; i < t->w->n; i++) {
        choice *c = &t->w->choices[i];
        const buffer *echo = &t->echoes[i / t->w->each];
        if (t->chat)
            put_chunk(t, c, json_pack("{s:s, s:s}", "role", "assistant", "content", ""), NULL);
        else if (t->echo)
            put_chunk(t, c, json_text(echo->v, echo->n), NULL);
    }
}

static bool next_piece(void *state, buffer *out) {
    talk *t = state;
    const char *what;
    int code;
    if (t->over) return false;
    t->out = out;
    if (!t->w->part) {
        t->w->part = hear_part;
        t->w->user = t;
        put_begin(t);
        return true;
    }
    if (go_on(t->w)) return true;
    t->over = true;
    if (is_broken(t->w, &code, &what)) {
        put_event(out, NULL, error_object(STYLE_OPENAI, code, NULL, what));
        return true;
    }
    if (t->usage) {
        json_t *chunk =
            head(t, t->chat ? "chat.completion.chunk" : "text_completion", json_array());
        json_object_set_new(chunk, "usage", usage_object(t));
        put_event(out, NULL, chunk);
    }
    putf(out, "data: [DONE]\n\n");
    return true;
}

// ---------------------------------------------------------------------------------------- requests

static talk *new_talk(exchange *x, bool chat) {
    model *m = named_model(x, true);
    talk *t = m ? calloc(1, sizeof *t) : NULL;
    if (!t) {
        if (m) refuse_request(x, 500, NULL, "there is no memory for the request");
        return NULL;
    }
    t->m = m;
    t->chat = chat;
    t->created = (int64_t)time(NULL);
    make_id(chat ? "chatcmpl-" : "cmpl-", t->id);
    return t;
}

// What is echoed has log-probabilities as what is written has; the choices of a prompt share them.
static bool echo_likely(exchange *x, talk *t) {
    char why[512];
    for (size_t i = 0; t->echo && t->likely && i < t->w->n; i++) {
        choice *own = &t->w->choices[i], *first = own - i % t->w->each;
        if (own == first &&
            !add_prompt_likely(own, &t->prompts[i / t->w->each], (size_t)t->is.likely, why))
            return refuse_request(x, 400, "echo", "%s", why);
        if (own != first) json_array_extend(own->likely, first->likely);
    }
    return true;
}

static bool add_prompt_logprobs(exchange *x, talk *t) {
    char why[512];
    for (size_t i = 0; t->is.prompt_likely.given && i < t->n_prompts; i++) {
        t->prompt_logprobs[i] =
            make_prompt_logprobs(t->w, &t->prompts[i], (size_t)t->is.prompt_likely.value, why);
        if (!t->prompt_logprobs[i]) return refuse_request(x, 400, "prompt_logprobs", "%s", why);
    }
    return true;
}

static bool answer_talk(exchange *x, talk *t) {
    t->w = start_writing(x, t->m, &t->is, t->prompts, t->n_prompts);
    const bool begun = t->w && echo_likely(x, t) && add_prompt_logprobs(x, t);
    if (begun && t->stream) return reply_stream(x, "text/event-stream", next_piece, free_talk, t);
    const bool ok = begun && reply_whole(x, t);
    free_talk(t);
    return ok;
}

static bool read_stream(exchange *x, talk *t) {
    json_t *options = NULL;
    const field fields[] = {{"stream", FIELD_FLAG, .out = &t->stream},
                            {"stream_options", FIELD_OBJECT, .out = &options}};
    const field usage[] = {{"include_usage", FIELD_FLAG, .out = &t->usage}};
    const field scores[] = {{"prompt_logprobs", FIELD_WHOLE, 0, MOST_LIKELY, &t->is.prompt_likely}};
    if (!read_fields(x, x->asked, "", fields, 2) || !read_fields(x, x->asked, "", scores, 1) ||
        (options && !read_fields(x, options, "stream_options.", usage, 1)))
        return false;
    return !t->stream || !t->is.prompt_likely.given ||
           refuse_request(x, 400, "prompt_logprobs",
                          "prompt_logprobs come with a whole answer, not with a stream");
}

// What cannot be had is refused, where leaving it out would change what the answer means.
static bool read_form(exchange *x) {
    json_t *format = NULL;
    const char *type = "text";
    const field fields[] = {{"response_format", FIELD_OBJECT, .out = &format}};
    const field types[] = {{"type", FIELD_TEXT, .out = &type}};
    if (!read_fields(x, x->asked, "", fields, 1) ||
        (format && !read_fields(x, format, "response_format.", types, 1)))
        return false;
    if (strcmp(type, "text") != 0)
        return refuse_request(
            x, 400, "response_format",
            "response_format: %s cannot be promised: what is written is not held to "
            "a grammar; only text can",
            plain(type));
    return true;
}

static bool read_chat(exchange *x, talk *t) {
    ct_num top = {0};
    json_t *messages = NULL, *tools = NULL, *variables = NULL;
    const char *effort = NULL;
    bool parallel = true, answers = true;
    const field fields[] = {{"messages", FIELD_LIST, .out = &messages},
                            {"tools", FIELD_LIST, .out = &tools},
                            {"logprobs", FIELD_FLAG, .out = &t->likely},
                            {"top_logprobs", FIELD_WHOLE, 0, MOST_LIKELY, &top},
                            {"reasoning_effort", FIELD_TEXT, .out = &effort},
                            {"chat_template_kwargs", FIELD_OBJECT, .out = &variables},
                            {"parallel_tool_calls", FIELD_FLAG, .out = &parallel},
                            {"add_generation_prompt", FIELD_FLAG, .out = &answers},
                            {"continue_final_message", FIELD_FLAG, .out = &t->c.continues},
                            {"add_special_tokens", FIELD_FLAG, .out = &t->c.adds_special}};
    if (!read_fields(x, x->asked, "", fields, sizeof fields / sizeof *fields) ||
        !read_stream(x, t) || !read_form(x) || !read_wanted(x, t->m, &t->is, "max_tokens"))
        return false;
    if (top.value > 0 && !t->likely)
        return refuse_request(x, 400, "top_logprobs", "top_logprobs needs logprobs to be true");
    if (t->c.continues && json_is_true(json_object_get(x->asked, "add_generation_prompt")))
        return refuse_request(
            x, 400, "continue_final_message",
            "continue_final_message and add_generation_prompt exclude each other");
    t->c.ends_open = !answers;
    t->is.one_call = !parallel;
    t->is.log_probabilities = t->likely;
    t->is.likely = (int64_t)top.value;
    t->is.split = true;
    t->c.variables = variables ? json_copy(variables) : json_object();
    if (effort) json_object_set_new(t->c.variables, "reasoning_effort", json_string(effort));
    if (!read_messages(x, messages, &t->c) ||
        !read_tools(x, tools, json_object_get(x->asked, "tool_choice"), &t->c) ||
        !make_prompt(x, t->m, &t->c))
        return false;
    t->is.tools = t->c.tools_text;
    t->prompts[0] = (given_prompt){t->c.ids.ids, t->c.ids.n, t->c.text};
    t->n_prompts = 1;
    return true;
}

bool answer_chat(exchange *x) {
    talk *t = new_talk(x, true);
    if (!t) return false;
    if (read_chat(x, t)) return answer_talk(x, t);
    free_talk(t);
    return false;
}

// ------------------------------------------------------------------------------------- completions

static bool read_prompt(exchange *x, talk *t, json_t *value, bool add_special) {
    if (t->n_prompts == MOST_PROMPTS)
        return refuse_request(x, 400, "prompt", "prompt: there are more than %d", MOST_PROMPTS);
    id_list *e = &t->encodings[t->n_prompts];
    buffer *echo = &t->echoes[t->n_prompts];
    if (json_is_string(value)) {
        const char *text = json_string_value(value);
        const size_t n = json_string_length(value);
        if (!encode(t->m, text, n, add_special, e)) return refuse_failed(x, 400, "prompt");
        if (t->echo) put(echo, text, n);
    } else if (json_is_array(value)) {
        if (!read_ids(x, t->m, value, "prompt", e)) return false;
        ct_decoder *d = t->echo ? ct_decoder_new_at(t->m->is->tokenizer, true, (ct_loc){0}) : NULL;
        size_t n = 0;
        const char *text = d ? ct_decoder_all(d, e->ids, e->n, &n) : NULL;
        if (text) put(echo, text, n);
        ct_decoder_free(d);
        if (t->echo && !text) return refuse_failed(x, 400, "prompt");
    } else {
        return refuse_request(
            x, 400, "prompt",
            "prompt must be a string, a list of tokens, or a list of these, not %s",
            value ? shown(value) : "missing");
    }
    t->prompts[t->n_prompts++] = (given_prompt){e->ids, e->n, NULL};
    return prompt_fits(x, t->m, e->n, "prompt");
}

static bool read_completion(exchange *x, talk *t) {
    ct_num likely = {0}, best = {0};
    bool add_special = true;
    json_t *prompt = json_object_get(x->asked, "prompt"), *one;
    size_t i;
    const field fields[] = {{"logprobs", FIELD_WHOLE, 0, MOST_LIKELY, &likely},
                            {"echo", FIELD_FLAG, .out = &t->echo},
                            {"best_of", FIELD_WHOLE, 1, 64, &best},
                            {"add_special_tokens", FIELD_FLAG, .out = &add_special}};
    t->is.most = CT_F(16); // OpenAI's
    if (!read_fields(x, x->asked, "", fields, sizeof fields / sizeof *fields)) return false;
    t->is.may_be_none = t->echo; // the prompt's log-probabilities alone
    if (!read_stream(x, t) || !read_form(x) || !read_wanted(x, t->m, &t->is, "max_tokens"))
        return false;
    if (best.given && (int64_t)best.value != t->is.n)
        return refuse_request(x, 400, "best_of",
                              "best_of: all n texts are told; it must be n, %lld, or "
                              "left out",
                              (long long)t->is.n);
    t->likely = t->is.log_probabilities = likely.given;
    t->is.likely = (int64_t)likely.value;
    const json_t *first = json_array_get(prompt, 0);
    if (!json_is_array(prompt) || json_is_integer(first))
        return read_prompt(x, t, prompt, add_special);
    if (!first) return refuse_request(x, 400, "prompt", "prompt: the list is empty");
    json_array_foreach(prompt, i, one) {
        if (!read_prompt(x, t, one, add_special)) return false;
    }
    return true;
}

bool answer_completions(exchange *x) {
    talk *t = new_talk(x, false);
    if (!t) return false;
    if (read_completion(x, t)) return answer_talk(x, t);
    free_talk(t);
    return false;
}

// ------------------------------------------------------------------------------------------ models

static json_t *model_object(const model *m) {
    json_t *can = json_array();
    if (m->engine) json_array_append_new(can, json_string("completion"));
    if (m->engine && m->is->chat) json_array_append_new(can, json_string("chat"));
    json_array_append_new(can, json_string("embedding"));
    return json_pack("{s:s, s:s, s:I, s:s, s:I, s:o}", "id", m->name, "object", "model", "created",
                     (json_int_t)m->changed, "owned_by", "cotan", "max_model_len",
                     (json_int_t)m->context, "capabilities", can);
}

bool answer_models(exchange *x) {
    json_t *list = json_array();
    for (size_t i = 0; i < x->server->n_models; i++)
        json_array_append_new(list, model_object(&x->server->models[i]));
    return reply_json(x, json_pack("{s:s, s:o}", "object", "list", "data", list));
}

bool answer_model(exchange *x) {
    const model *m = find_model(x->server, x->rest);
    if (!m) return refuse_request(x, 404, "model", "there is no model \"%s\" here", plain(x->rest));
    return reply_json(x, model_object(m));
}
