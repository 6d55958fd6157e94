// Ollama's API: the same generations in its format, with one JSON line per chunk.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "serve.h"

typedef struct ollama_request {
    generation *gen;
    model *m;
    bool chat, stream, likely, is_done;
    generation_params is;
    conversation c;
    buffer *out;
} ollama_request;

static void ollama_request_free(void *state) {
    ollama_request *t = state;
    if (!t) return;
    generation_free(t->gen);
    generation_params_free(&t->is);
    conversation_free(&t->c);
    free(t);
}

static json_t *ollama_date_json(time_t seconds, long nanoseconds) {
    struct tm parts;
    char text[64], all[128];
    gmtime_r(&seconds, &parts);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(all, sizeof all, "%s.%06ldZ", text, nanoseconds / 1000);
    return json_string(all);
}

static json_t *ollama_now_json(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return ollama_date_json(t.tv_sec, t.tv_nsec);
}

// ----------------------------------------------------------------------------------------- replies

static json_t *ollama_tool_calls_json(const choice *c) {
    json_t *list = json_array();
    for (size_t i = 0; i < c->n_calls; i++) {
        const tool_call *k = &c->calls[i];
        json_t *arguments =
            json_loadb(k->arguments.v ? k->arguments.v : "", k->arguments.n, 0, NULL);
        json_array_append_new(list, json_pack("{s:{s:o, s:o}}", "function", "name",
                                              json_utf8(k->name.v, k->name.n), "arguments",
                                              arguments ? arguments : json_object()));
    }
    return list;
}

// A chunk of the answer, or all of it; texts may be NULL.
static json_t *ollama_chunk_json(const ollama_request *t, const buffer *content,
                                 const buffer *thinking, bool calls) {
    choice *c = t->gen->choices;
    json_t *made = json_pack("{s:s, s:o, s:b}", "model", t->m->name, "created_at",
                             ollama_now_json(), "done", 0);
    json_t *text = content ? json_utf8(content->v, content->n) : json_string("");
    json_t *to = made;
    if (t->chat) {
        to = json_pack("{s:s, s:o}", "role", "assistant", "content", text);
        json_object_set_new(made, "message", to);
    } else {
        json_object_set_new(made, "response", text);
    }
    if (thinking && thinking->n)
        json_object_set_new(to, "thinking", json_utf8(thinking->v, thinking->n));
    if (calls && c->n_calls) json_object_set_new(to, "tool_calls", ollama_tool_calls_json(c));
    if (t->likely) json_object_set_new(made, "logprobs", choice_take_logprobs(c));
    return made;
}

static void ollama_add_end(const ollama_request *t, json_t *made) {
    const choice *c = t->gen->choices;
    json_object_set_new(made, "done", json_true());
    json_object_set_new(made, "done_reason",
                        json_string(c->end == CT_ENGINE_LENGTH ? "length" : "stop"));
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"total_duration", (seconds_now() - t->gen->start_time) * 1e9},
                   {"load_duration", 0},
                   {"prompt_eval_count", (double)c->prompt},
                   {"prompt_eval_duration", c->first * 1e9},
                   {"eval_count", (double)c->written},
                   {"eval_duration", (c->all - c->first) * 1e9}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        json_object_set_new(made, numbers[i].name, json_integer((json_int_t)numbers[i].value));
}

static void ollama_put_line(buffer *out, json_t *value) {
    buffer_put_json(out, value);
    buffer_put(out, "\n", 1);
}

static void ollama_on_part(void *user, choice *c, part_kind kind, size_t number, const char *text,
                           size_t n) {
    ollama_request *t = user;
    buffer said = {0};
    (void)number;
    buffer_put(&said, text ? text : "", n);
    if (kind == PART_CONTENT) ollama_put_line(t->out, ollama_chunk_json(t, &said, NULL, false));
    if (kind == PART_REASONING) ollama_put_line(t->out, ollama_chunk_json(t, NULL, &said, false));
    if (kind == PART_END && c->n_calls)
        ollama_put_line(t->out, ollama_chunk_json(t, NULL, NULL, true));
    free(said.v);
}

static bool ollama_next_line(void *state, buffer *out) {
    ollama_request *t = state;
    const char *what;
    int code;
    if (t->is_done) return false;
    t->out = out;
    t->gen->on_part = ollama_on_part;
    t->gen->user = t;
    if (generation_wait(t->gen)) return true;
    t->is_done = true;
    if (generation_has_failed(t->gen, &code, &what)) {
        ollama_put_line(out, error_object(STYLE_OLLAMA, code, NULL, what));
        return true;
    }
    json_t *made = ollama_chunk_json(t, NULL, NULL, false);
    ollama_add_end(t, made);
    ollama_put_line(out, made);
    return true;
}

static bool ollama_reply_whole(exchange *x, ollama_request *t) {
    const char *what;
    int code;
    while (generation_wait(t->gen)) continue;
    if (generation_has_failed(t->gen, &code, &what)) return fail_request(x, code, NULL, "%s", what);
    const choice *c = t->gen->choices;
    json_t *made = ollama_chunk_json(t, &c->content, &c->reasoning, true);
    ollama_add_end(t, made);
    return reply_json(x, made);
}

// ---------------------------------------------------------------------------------------- requests

static bool ollama_parse_options(exchange *x, ollama_request *t) {
    generation_params *w = &t->is;
    ct_lm_sampling *s = &w->sampling;
    json_t *options = NULL;
    *s = t->m->is->sampling;
    sampling_fields given = sampling_fields_init(s);
    ct_num most = {0}, context = {0};
    const field fields[] = {
        {"num_predict", FIELD_INT, -2, 1e9, &most},
        {"temperature", FIELD_NUMBER, 0, 100, &s->temperature},
        {"top_k", FIELD_INT, 0, 1e9, &given.top_k},
        {"top_p", FIELD_NUMBER, 0, 1, &s->top_p},
        {"min_p", FIELD_NUMBER, 0, 1, &given.min_p},
        {"typical_p", FIELD_NUMBER, 0.001, 1, &s->typical_p},
        {"seed", FIELD_SEED, .out = &given.seed},
        {"repeat_penalty", FIELD_NUMBER, 0.01, 100, &s->repetition_penalty},
        {"presence_penalty", FIELD_NUMBER, -2, 2, &given.presence},
        {"frequency_penalty", FIELD_NUMBER, -2, 2, &given.frequency},
        {"num_ctx", FIELD_INT, 1, 1e9, &context},
        {"repeat_last_n", FIELD_INT, -1, 1e9, &given.penalty_window},
    };
    const field own[] = {{"options", FIELD_OBJECT, .out = &options}};
    if (!parse_fields(x, x->request, "", own, 1) ||
        (options && !reject_unsupported_fields(x, FIELDS_OLLAMA_OPTIONS, options, "options.")) ||
        (options &&
         !parse_fields(x, options, "options.", fields, sizeof fields / sizeof *fields)) ||
        !parse_stop_strings(x, json_object_get(options, "stop"), "options.", w))
        return false;
    if (context.given && t->m->context && context.value > (double)t->m->context)
        return fail_request(
            x, 400, "options.num_ctx",
            "options.num_ctx: the context of %s is %lld, not %.0f: it is chosen where "
            "the server starts",
            t->m->name, (long long)t->m->context, context.value);
    if (most.value > 0) w->most = most;
    w->n = 1;
    return sampling_apply_fields(x, "options.", s, &given) && parse_eos_ids(x, t->m, NULL, w);
}

// Parses "think": whether the model reasons, or how much.
static bool ollama_parse_think(exchange *x, ollama_request *t) {
    const json_t *think = json_object_get(x->request, "think");
    t->c.variables = json_object();
    if (!think || json_is_null(think)) return true;
    if (json_is_string(think))
        json_object_set_new(t->c.variables, "reasoning_effort",
                            json_string(json_string_value(think)));
    else if (json_is_boolean(think))
        json_object_set_new(t->c.variables, "enable_thinking", json_boolean(json_is_true(think)));
    else
        return fail_request(x, 400, "think",
                            "think must be true, false, low, medium or high, not %s",
                            json_excerpt(think));
    return true;
}

static bool ollama_parse_common(exchange *x, ollama_request *t) {
    ct_num top = {0};
    const field fields[] = {{"stream", FIELD_BOOL, .out = &t->stream},
                            {"logprobs", FIELD_BOOL, .out = &t->likely},
                            {"top_logprobs", FIELD_INT, 0, MAX_TOP_LOGPROBS, &top}};
    t->stream = true;
    if (!parse_fields(x, x->request, "", fields, 3) || !ollama_parse_options(x, t) ||
        !ollama_parse_think(x, t))
        return false;
    t->is.log_probabilities = t->likely;
    t->is.likely = t->likely ? (int64_t)top.value : 0;
    return true;
}

static ollama_request *ollama_request_new(exchange *x, bool chat) {
    model *m = find_requested_model(x, true);
    ollama_request *t = m ? calloc(1, sizeof *t) : NULL;
    if (!t) {
        if (m) fail_request(x, 500, NULL, "there is no memory for the request");
        return NULL;
    }
    t->m = m;
    t->chat = chat;
    return t;
}

static bool ollama_answer(exchange *x, ollama_request *t) {
    const prompt_input p = {t->c.ids.ids, t->c.ids.n, t->c.text};
    t->gen = generation_start(x, t->m, &t->is, &p, 1);
    if (t->gen && t->stream)
        return reply_stream(x, "application/x-ndjson", ollama_next_line, ollama_request_free, t);
    const bool ok = t->gen && ollama_reply_whole(x, t);
    ollama_request_free(t);
    return ok;
}

// Replies to a request without a prompt, which only asks to load the model.
static bool ollama_reply_loaded(exchange *x, ollama_request *t) {
    json_t *made = json_pack("{s:s, s:o, s:b, s:s}", "model", t->m->name, "created_at",
                             ollama_now_json(), "done", 1, "done_reason", "load");
    if (t->chat)
        json_object_set_new(made, "message",
                            json_pack("{s:s, s:s}", "role", "assistant", "content", ""));
    else
        json_object_set_new(made, "response", json_string(""));
    ollama_request_free(t);
    return reply_json(x, made);
}

static bool ollama_reject_images(exchange *x, const json_t *messages) {
    const json_t *message;
    size_t i;
    json_array_foreach(messages, i, message) {
        const json_t *images = json_object_get(message, "images");
        if (images && !json_is_null(images) && !(json_is_array(images) && !json_array_size(images)))
            return fail_request(x, 400, "messages",
                                "messages[%zu].images: the model accepts text only", i);
    }
    return true;
}

bool handle_ollama_chat(exchange *x) {
    json_t *messages = NULL, *tools = NULL;
    const field fields[] = {{"messages", FIELD_LIST, .out = &messages},
                            {"tools", FIELD_LIST, .out = &tools}};
    ollama_request *t = ollama_request_new(x, true);
    if (!t) return false;
    bool ok = ollama_parse_common(x, t) && parse_fields(x, x->request, "", fields, 2);
    if (ok && !json_array_size(messages)) return ollama_reply_loaded(x, t);
    t->is.parse_chat = true;
    ok = ok && ollama_reject_images(x, messages) && parse_messages(x, messages, &t->c) &&
         parse_tools(x, tools, NULL, &t->c) && conversation_make_prompt(x, t->m, &t->c);
    t->is.tools = t->c.tools_text;
    if (ok) return ollama_answer(x, t);
    ollama_request_free(t);
    return false;
}

static bool ollama_make_generate_prompt(exchange *x, ollama_request *t, const char *text,
                                        const char *system, bool raw) {
    if (raw || !t->m->is->chat)
        return (model_encode(t->m, text, strlen(text), true, &t->c.ids) ||
                fail_request_from_error(x, 400, "prompt")) &&
               check_prompt_length(x, t->m, t->c.ids.n, "prompt");
    json_t *messages = json_array();
    if (system)
        json_array_append_new(messages,
                              json_pack("{s:s, s:s}", "role", "system", "content", system));
    json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "user", "content", text));
    t->c.messages = messages;
    t->is.parse_chat = true;
    return conversation_make_prompt(x, t->m, &t->c);
}

bool handle_ollama_generate(exchange *x) {
    const char *text = "", *system = NULL;
    bool raw = false;
    const field fields[] = {{"prompt", FIELD_STRING, .out = &text},
                            {"system", FIELD_STRING, .out = &system},
                            {"raw", FIELD_BOOL, .out = &raw}};
    ollama_request *t = ollama_request_new(x, false);
    if (!t) return false;
    const bool ok = ollama_parse_common(x, t) && parse_fields(x, x->request, "", fields, 3);
    if (ok && !*text) return ollama_reply_loaded(x, t);
    if (ok && ollama_make_generate_prompt(x, t, text, system, raw)) return ollama_answer(x, t);
    ollama_request_free(t);
    return false;
}

// ------------------------------------------------------------------------------------------ models

// Formats a number of parameters as in Ollama's lists: "7B", "134.5M".
static json_t *ollama_parameter_size_json(int64_t n) {
    char text[32] = "";
    const double v = (double)n;
    if (n >= 1000000000)
        snprintf(text, sizeof text, "%.1fB", v / 1e9);
    else if (n >= 1000000)
        snprintf(text, sizeof text, "%.2fM", v / 1e6);
    else if (n)
        snprintf(text, sizeof text, "%.2fK", v / 1e3);
    return json_string(text);
}

static json_t *ollama_details_json(const model *m) {
    const size_t n = strlen(m->is->path);
    const bool gguf = n > 5 && strcmp(m->is->path + n - 5, ".gguf") == 0;
    const ct_lm_properties about = ct_lm_info(m->is->lm);
    return json_pack("{s:s, s:s, s:s, s:[s], s:o, s:s}", "parent_model", "", "format",
                     gguf ? "gguf" : "safetensors", "family", m->is->type, "families", m->is->type,
                     "parameter_size", ollama_parameter_size_json(about.parameters),
                     "quantization_level", about.weight_format);
}

// Ollama's names have a tag.
static json_t *ollama_tagged_name_json(const model *m) {
    return strchr(m->name, ':') ? json_string(m->name) : json_sprintf("%s:latest", m->name);
}

static json_t *ollama_model_json(const model *m) {
    json_t *name = ollama_tagged_name_json(m);
    return json_pack("{s:O, s:o, s:I, s:s, s:o}", "name", name, "model", name, "size",
                     (json_int_t)m->size, "digest", m->digest, "details", ollama_details_json(m));
}

bool handle_ollama_tags(exchange *x) {
    json_t *list = json_array();
    for (size_t i = 0; i < x->server->n_models; i++) {
        const model *m = &x->server->models[i];
        json_t *one = ollama_model_json(m);
        json_object_set_new(one, "modified_at", ollama_date_json(m->modified, 0));
        json_array_append_new(list, one);
    }
    return reply_json(x, json_pack("{s:o}", "models", list));
}

bool handle_ollama_ps(exchange *x) {
    json_t *list = json_array();
    for (size_t i = 0; i < x->server->n_models; i++) {
        const model *m = &x->server->models[i];
        json_t *one = ollama_model_json(m);
        // It stays loaded as long as the server runs.
        json_object_set_new(one, "expires_at", json_string("9999-12-31T23:59:59Z"));
        json_object_set_new(one, "size_vram", json_integer(0));
        json_object_set_new(one, "context_length", json_integer((json_int_t)m->context));
        json_array_append_new(list, one);
    }
    return reply_json(x, json_pack("{s:o}", "models", list));
}

static void ollama_add_info(json_t *info, const char *family, const char *name, int64_t value) {
    char key[160];
    snprintf(key, sizeof key, "%.100s.%s", family, name);
    json_object_set_new(info, key, json_integer((json_int_t)value));
}

static json_t *ollama_model_info_json(const model *m) {
    const ct_lm_properties about = ct_lm_info(m->is->lm);
    json_t *info = json_pack("{s:s, s:I}", "general.architecture", m->is->type,
                             "general.parameter_count", (json_int_t)about.parameters);
    ollama_add_info(info, m->is->type, "context_length", m->context);
    ollama_add_info(info, m->is->type, "embedding_length", about.width);
    ollama_add_info(info, m->is->type, "block_count", about.layers);
    ollama_add_info(info, m->is->type, "vocab_size", about.vocab);
    return info;
}

// The settings of generation_config.json as the PARAMETER lines of a Modelfile.
static json_t *ollama_parameters_json(const model *m) {
    const ct_lm_sampling *s = &m->is->sampling;
    buffer text = {0};
    if (s->temperature.given) buffer_putf(&text, "temperature %g\n", s->temperature.value);
    if (s->top_k > 0) buffer_putf(&text, "top_k %lld\n", (long long)s->top_k);
    if (s->top_p.given) buffer_putf(&text, "top_p %g\n", s->top_p.value);
    if (s->min_p > 0) buffer_putf(&text, "min_p %g\n", s->min_p);
    if (s->repetition_penalty.given)
        buffer_putf(&text, "repeat_penalty %g\n", s->repetition_penalty.value);
    json_t *made = json_utf8(text.v, text.n);
    free(text.v);
    return made;
}

bool handle_ollama_show(exchange *x) {
    const json_t *name = json_object_get(x->request, "name"); // older clients
    if (name && !json_object_get(x->request, "model"))
        json_object_set(x->request, "model", json_object_get(x->request, "name"));
    const model *m = find_requested_model(x, false);
    if (!m) return false;
    json_t *can = json_array(), *modelfile = json_sprintf("FROM %s\n", m->is->path);
    if (m->engine) json_array_append_new(can, json_string("completion"));
    if (m->engine && m->supports_tools) json_array_append_new(can, json_string("tools"));
    if (!m->engine) json_array_append_new(can, json_string("embedding"));
    return reply_json(
        x, json_pack("{s:o, s:o, s:s, s:o, s:o, s:o, s:o}", "modelfile", modelfile, "parameters",
                     ollama_parameters_json(m), "template", ct_chat_template_text(m->is->chat),
                     "details", ollama_details_json(m), "model_info", ollama_model_info_json(m),
                     "capabilities", can, "modified_at", ollama_date_json(m->modified, 0)));
}

bool handle_ollama_version(exchange *x) {
    return reply_json(x, json_pack("{s:s}", "version", CT_VERSION));
}

bool handle_ollama_unsupported(exchange *x) {
    return fail_request(x, 501, NULL,
                        "%s: models are served as their files are; cotan pull brings others, and "
                        "cotan serve names those that are served",
                        x->route->path);
}
