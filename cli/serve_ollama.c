// Ollama's API: the same texts, told in its words, and a line of JSON a piece.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "serve.h"

typedef struct talk {
    writing *w;
    model *m;
    bool chat, stream, likely, over;
    wanted is;
    conversation c;
    buffer *out;
} talk;

static void free_talk(void *state) {
    talk *t = state;
    if (!t) return;
    free_writing(t->w);
    free_wanted(&t->is);
    free_conversation(&t->c);
    free(t);
}

static json_t *date(time_t seconds, long nanoseconds) {
    struct tm parts;
    char text[64], all[128];
    gmtime_r(&seconds, &parts);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(all, sizeof all, "%s.%06ldZ", text, nanoseconds / 1000);
    return json_string(all);
}

static json_t *date_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return date(t.tv_sec, t.tv_nsec);
}

// ----------------------------------------------------------------------------------------- replies

static json_t *calls_list(const choice *c) {
    json_t *list = json_array();
    for (size_t i = 0; i < c->n_calls; i++) {
        const tool_call *k = &c->calls[i];
        json_t *arguments =
            json_loadb(k->arguments.v ? k->arguments.v : "", k->arguments.n, 0, NULL);
        json_array_append_new(list, json_pack("{s:{s:o, s:o}}", "function", "name",
                                              json_text(k->name.v, k->name.n), "arguments",
                                              arguments ? arguments : json_object()));
    }
    return list;
}

// A piece of the answer, or all of it; texts may be NULL.
static json_t *piece(const talk *t, const buffer *content, const buffer *thinking, bool calls) {
    choice *c = t->w->choices;
    json_t *made =
        json_pack("{s:s, s:o, s:b}", "model", t->m->name, "created_at", date_now(), "done", 0);
    json_t *text = content ? json_text(content->v, content->n) : json_string("");
    json_t *to = made;
    if (t->chat) {
        to = json_pack("{s:s, s:o}", "role", "assistant", "content", text);
        json_object_set_new(made, "message", to);
    } else {
        json_object_set_new(made, "response", text);
    }
    if (thinking && thinking->n)
        json_object_set_new(to, "thinking", json_text(thinking->v, thinking->n));
    if (calls && c->n_calls) json_object_set_new(to, "tool_calls", calls_list(c));
    if (t->likely) json_object_set_new(made, "logprobs", take_likely(c));
    return made;
}

static void add_end(const talk *t, json_t *made) {
    const choice *c = t->w->choices;
    json_object_set_new(made, "done", json_true());
    json_object_set_new(made, "done_reason",
                        json_string(c->end == CT_ENGINE_LENGTH ? "length" : "stop"));
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"total_duration", (seconds_now() - t->w->began) * 1e9},
                   {"load_duration", 0},
                   {"prompt_eval_count", (double)c->prompt},
                   {"prompt_eval_duration", c->first * 1e9},
                   {"eval_count", (double)c->written},
                   {"eval_duration", (c->all - c->first) * 1e9}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        json_object_set_new(made, numbers[i].name, json_integer((json_int_t)numbers[i].value));
}

static void put_line(buffer *out, json_t *value) {
    put_json(out, value);
    put(out, "\n", 1);
}

static void hear_part(void *user, choice *c, part_kind kind, size_t number, const char *text,
                      size_t n) {
    talk *t = user;
    buffer said = {0};
    (void)number;
    put(&said, text ? text : "", n);
    if (kind == PART_CONTENT) put_line(t->out, piece(t, &said, NULL, false));
    if (kind == PART_REASONING) put_line(t->out, piece(t, NULL, &said, false));
    if (kind == PART_END && c->n_calls) put_line(t->out, piece(t, NULL, NULL, true));
    free(said.v);
}

static bool next_line(void *state, buffer *out) {
    talk *t = state;
    const char *what;
    int code;
    if (t->over) return false;
    t->out = out;
    t->w->part = hear_part;
    t->w->user = t;
    if (go_on(t->w)) return true;
    t->over = true;
    if (is_broken(t->w, &code, &what)) {
        put_line(out, error_object(STYLE_OLLAMA, code, NULL, what));
        return true;
    }
    json_t *made = piece(t, NULL, NULL, false);
    add_end(t, made);
    put_line(out, made);
    return true;
}

static bool reply_whole(exchange *x, talk *t) {
    const char *what;
    int code;
    while (go_on(t->w)) continue;
    if (is_broken(t->w, &code, &what)) return refuse_request(x, code, NULL, "%s", what);
    const choice *c = t->w->choices;
    json_t *made = piece(t, &c->content, &c->reasoning, true);
    add_end(t, made);
    return reply_json(x, made);
}

// ---------------------------------------------------------------------------------------- requests

static bool read_options(exchange *x, talk *t) {
    wanted *w = &t->is;
    ct_lm_sampling *s = &w->sampling;
    json_t *options = NULL;
    *s = t->m->is->sampling;
    loose_numbers given = loosen(s);
    ct_num most = {0}, context = {0};
    const field fields[] = {
        {"num_predict", FIELD_WHOLE, -2, 1e9, &most},
        {"temperature", FIELD_NUMBER, 0, 100, &s->temperature},
        {"top_k", FIELD_WHOLE, 0, 1e9, &given.top_k},
        {"top_p", FIELD_NUMBER, 0, 1, &s->top_p},
        {"min_p", FIELD_NUMBER, 0, 1, &given.min_p},
        {"typical_p", FIELD_NUMBER, 0.001, 1, &s->typical_p},
        {"seed", FIELD_SEED, .out = &given.seed},
        {"repeat_penalty", FIELD_NUMBER, 0.01, 100, &s->repetition_penalty},
        {"presence_penalty", FIELD_NUMBER, -2, 2, &given.presence},
        {"frequency_penalty", FIELD_NUMBER, -2, 2, &given.frequency},
        {"num_ctx", FIELD_WHOLE, 1, 1e9, &context},
        {"repeat_last_n", FIELD_WHOLE, -1, 1e9, &given.window},
    };
    const field own[] = {{"options", FIELD_OBJECT, .out = &options}};
    if (!read_fields(x, x->asked, "", own, 1) ||
        (options && !refuse_known(x, NAMES_OPTIONS, options, "options.")) ||
        (options && !read_fields(x, options, "options.", fields, sizeof fields / sizeof *fields)) ||
        !read_stops(x, json_object_get(options, "stop"), "options.", w))
        return false;
    if (context.given && t->m->context && context.value > (double)t->m->context)
        return refuse_request(
            x, 400, "options.num_ctx",
            "options.num_ctx: the context of %s is %lld, not %.0f: it is chosen where "
            "the server starts",
            t->m->name, (long long)t->m->context, context.value);
    if (most.value > 0) w->most = most;
    w->n = 1;
    return settle(x, "options.", s, &given) && read_ends(x, t->m, NULL, w);
}

// "think": whether to, or how much.
static bool read_think(exchange *x, talk *t) {
    const json_t *think = json_object_get(x->asked, "think");
    t->c.variables = json_object();
    if (!think || json_is_null(think)) return true;
    if (json_is_string(think))
        json_object_set_new(t->c.variables, "reasoning_effort",
                            json_string(json_string_value(think)));
    else if (json_is_boolean(think))
        json_object_set_new(t->c.variables, "enable_thinking", json_boolean(json_is_true(think)));
    else
        return refuse_request(x, 400, "think",
                              "think must be true, false, low, medium or high, not %s",
                              shown(think));
    return true;
}

static bool read_shared(exchange *x, talk *t) {
    ct_num top = {0};
    const field fields[] = {{"stream", FIELD_FLAG, .out = &t->stream},
                            {"logprobs", FIELD_FLAG, .out = &t->likely},
                            {"top_logprobs", FIELD_WHOLE, 0, MOST_LIKELY, &top}};
    t->stream = true;
    if (!read_fields(x, x->asked, "", fields, 3) || !read_options(x, t) || !read_think(x, t))
        return false;
    t->is.log_probabilities = t->likely;
    t->is.likely = t->likely ? (int64_t)top.value : 0;
    return true;
}

static talk *new_talk(exchange *x, bool chat) {
    model *m = named_model(x, true);
    talk *t = m ? calloc(1, sizeof *t) : NULL;
    if (!t) {
        if (m) refuse_request(x, 500, NULL, "there is no memory for the request");
        return NULL;
    }
    t->m = m;
    t->chat = chat;
    return t;
}

static bool answer_talk(exchange *x, talk *t) {
    const given_prompt p = {t->c.ids.ids, t->c.ids.n, t->c.text};
    t->w = start_writing(x, t->m, &t->is, &p, 1);
    if (t->w && t->stream) return reply_stream(x, "application/x-ndjson", next_line, free_talk, t);
    const bool ok = t->w && reply_whole(x, t);
    free_talk(t);
    return ok;
}

// A request without a text only has a model loaded, which it is.
static bool reply_loaded(exchange *x, talk *t) {
    json_t *made = json_pack("{s:s, s:o, s:b, s:s}", "model", t->m->name, "created_at", date_now(),
                             "done", 1, "done_reason", "load");
    if (t->chat)
        json_object_set_new(made, "message",
                            json_pack("{s:s, s:s}", "role", "assistant", "content", ""));
    else
        json_object_set_new(made, "response", json_string(""));
    free_talk(t);
    return reply_json(x, made);
}

static bool refuse_images(exchange *x, const json_t *messages) {
    const json_t *message;
    size_t i;
    json_array_foreach(messages, i, message) {
        const json_t *images = json_object_get(message, "images");
        if (images && !json_is_null(images) && !(json_is_array(images) && !json_array_size(images)))
            return refuse_request(x, 400, "messages",
                                  "messages[%zu].images: the model reads texts alone", i);
    }
    return true;
}

bool answer_ollama_chat(exchange *x) {
    json_t *messages = NULL, *tools = NULL;
    const field fields[] = {{"messages", FIELD_LIST, .out = &messages},
                            {"tools", FIELD_LIST, .out = &tools}};
    talk *t = new_talk(x, true);
    if (!t) return false;
    bool ok = read_shared(x, t) && read_fields(x, x->asked, "", fields, 2);
    if (ok && !json_array_size(messages)) return reply_loaded(x, t);
    t->is.split = true;
    ok = ok && refuse_images(x, messages) && read_messages(x, messages, &t->c) &&
         read_tools(x, tools, NULL, &t->c) && make_prompt(x, t->m, &t->c);
    t->is.tools = t->c.tools_text;
    if (ok) return answer_talk(x, t);
    free_talk(t);
    return false;
}

static bool make_generate_prompt(exchange *x, talk *t, const char *text, const char *system,
                                 bool raw) {
    if (raw || !t->m->is->chat)
        return (encode(t->m, text, strlen(text), true, &t->c.ids) ||
                refuse_failed(x, 400, "prompt")) &&
               prompt_fits(x, t->m, t->c.ids.n, "prompt");
    json_t *messages = json_array();
    if (system)
        json_array_append_new(messages,
                              json_pack("{s:s, s:s}", "role", "system", "content", system));
    json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "user", "content", text));
    t->c.messages = messages;
    t->is.split = true;
    return make_prompt(x, t->m, &t->c);
}

bool answer_ollama_generate(exchange *x) {
    const char *text = "", *system = NULL;
    bool raw = false;
    const field fields[] = {{"prompt", FIELD_TEXT, .out = &text},
                            {"system", FIELD_TEXT, .out = &system},
                            {"raw", FIELD_FLAG, .out = &raw}};
    talk *t = new_talk(x, false);
    if (!t) return false;
    const bool ok = read_shared(x, t) && read_fields(x, x->asked, "", fields, 3);
    if (ok && !*text) return reply_loaded(x, t);
    if (ok && make_generate_prompt(x, t, text, system, raw)) return answer_talk(x, t);
    free_talk(t);
    return false;
}

// ------------------------------------------------------------------------------------------ models

// As Ollama's own lists write it: "7B", "134.5M".
static json_t *parameter_size(int64_t n) {
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

static json_t *details(const model *m) {
    const size_t n = strlen(m->is->path);
    const bool gguf = n > 5 && strcmp(m->is->path + n - 5, ".gguf") == 0;
    const ct_lm_about about = ct_lm_look(m->is->lm);
    return json_pack("{s:s, s:s, s:s, s:[s], s:o, s:s}", "parent_model", "", "format",
                     gguf ? "gguf" : "safetensors", "family", m->is->type, "families", m->is->type,
                     "parameter_size", parameter_size(about.parameters), "quantization_level",
                     about.storage);
}

// Ollama's names have a tag.
static json_t *tagged_name(const model *m) {
    return strchr(m->name, ':') ? json_string(m->name) : json_sprintf("%s:latest", m->name);
}

static json_t *listed(const model *m) {
    json_t *name = tagged_name(m);
    return json_pack("{s:O, s:o, s:I, s:s, s:o}", "name", name, "model", name, "size",
                     (json_int_t)m->size, "digest", m->digest, "details", details(m));
}

bool answer_ollama_tags(exchange *x) {
    json_t *list = json_array();
    for (size_t i = 0; i < x->server->n_models; i++) {
        const model *m = &x->server->models[i];
        json_t *one = listed(m);
        json_object_set_new(one, "modified_at", date(m->changed, 0));
        json_array_append_new(list, one);
    }
    return reply_json(x, json_pack("{s:o}", "models", list));
}

bool answer_ollama_ps(exchange *x) {
    json_t *list = json_array();
    for (size_t i = 0; i < x->server->n_models; i++) {
        const model *m = &x->server->models[i];
        json_t *one = listed(m);
        // It stays for as long as the server does.
        json_object_set_new(one, "expires_at", json_string("9999-12-31T23:59:59Z"));
        json_object_set_new(one, "size_vram", json_integer(0));
        json_object_set_new(one, "context_length", json_integer((json_int_t)m->context));
        json_array_append_new(list, one);
    }
    return reply_json(x, json_pack("{s:o}", "models", list));
}

static void add_info(json_t *info, const char *family, const char *name, int64_t value) {
    char key[160];
    snprintf(key, sizeof key, "%.100s.%s", family, name);
    json_object_set_new(info, key, json_integer((json_int_t)value));
}

static json_t *model_info(const model *m) {
    const ct_lm_about about = ct_lm_look(m->is->lm);
    json_t *info = json_pack("{s:s, s:I}", "general.architecture", m->is->type,
                             "general.parameter_count", (json_int_t)about.parameters);
    add_info(info, m->is->type, "context_length", m->context);
    add_info(info, m->is->type, "embedding_length", about.width);
    add_info(info, m->is->type, "block_count", about.layers);
    add_info(info, m->is->type, "vocab_size", about.vocab);
    return info;
}

// What generation_config.json has, as the PARAMETER lines of a Modelfile.
static json_t *parameter_lines(const model *m) {
    const ct_lm_sampling *s = &m->is->sampling;
    buffer text = {0};
    if (s->temperature.given) putf(&text, "temperature %g\n", s->temperature.value);
    if (s->top_k > 0) putf(&text, "top_k %lld\n", (long long)s->top_k);
    if (s->top_p.given) putf(&text, "top_p %g\n", s->top_p.value);
    if (s->min_p > 0) putf(&text, "min_p %g\n", s->min_p);
    if (s->repetition_penalty.given)
        putf(&text, "repeat_penalty %g\n", s->repetition_penalty.value);
    json_t *made = json_text(text.v, text.n);
    free(text.v);
    return made;
}

bool answer_ollama_show(exchange *x) {
    const json_t *name = json_object_get(x->asked, "name"); // of older clients
    if (name && !json_object_get(x->asked, "model"))
        json_object_set(x->asked, "model", json_object_get(x->asked, "name"));
    const model *m = named_model(x, false);
    if (!m) return false;
    json_t *can = json_array(), *modelfile = json_sprintf("FROM %s\n", m->is->path);
    if (m->engine) json_array_append_new(can, json_string("completion"));
    if (m->engine && m->takes_tools) json_array_append_new(can, json_string("tools"));
    if (!m->engine) json_array_append_new(can, json_string("embedding"));
    return reply_json(x, json_pack("{s:o, s:o, s:s, s:o, s:o, s:o, s:o}", "modelfile", modelfile,
                                   "parameters", parameter_lines(m), "template",
                                   ct_chat_template_text(m->is->chat), "details", details(m),
                                   "model_info", model_info(m), "capabilities", can, "modified_at",
                                   date(m->changed, 0)));
}

bool answer_ollama_version(exchange *x) {
    return reply_json(x, json_pack("{s:s}", "version", CT_VERSION));
}

bool answer_ollama_cannot(exchange *x) {
    return refuse_request(x, 501, NULL,
                          "%s: models are served as their files are; cotan pull brings others, and "
                          "cotan serve names those that are served",
                          x->route->path);
}
