// POST /v1/responses: what is said is a list of items, and a stream tells of each one's beginning, pieces and end.
// Nothing is stored: a conversation goes on where its items are sent again.
#include <stdlib.h>
#include <string.h>

#include "serve.h"

typedef enum { ITEM_NONE, ITEM_REASONING, ITEM_MESSAGE, ITEM_CALL } item_kind;

typedef struct response {
    writing *w;
    model *m;
    char id[ID_BYTES], item[ID_BYTES];
    int64_t created;
    bool stream, over;
    wanted is;
    conversation c;
    json_t *asked, *output; // output: the items that are whole
    item_kind open;
    size_t begin; // of the open item's text in the choice's
    size_t call, number;
    buffer *out; // of a stream; else NULL
} response;

static void free_response(void *state) {
    response *r = state;
    if (!r) return;
    free_writing(r->w);
    free_wanted(&r->is);
    free_conversation(&r->c);
    json_decref(r->output);
    json_decref(r->asked);
    free(r);
}

// ----------------------------------------------------------------------------------------- the reply

static json_t *given(const response *r, const char *name, json_t *otherwise) {
    json_t *value = json_object_get(r->asked, name);
    if (!value || json_is_null(value)) return otherwise;
    json_decref(otherwise);
    return json_incref(value);
}

static json_t *usage_object(const writing *w) {
    const token_counts u = count_tokens(w);
    return json_pack("{s:I, s:{s:I}, s:I, s:{s:I}, s:I}", "input_tokens", (json_int_t)u.prompt,
                     "input_tokens_details", "cached_tokens", (json_int_t)u.cached, "output_tokens",
                     (json_int_t)u.written, "output_tokens_details", "reasoning_tokens",
                     (json_int_t)u.reasoned, "total_tokens", (json_int_t)(u.prompt + u.written));
}

// The response as it is by now.
static json_t *response_object(const response *r, const char *status) {
    const choice *c = r->w->choices;
    const bool whole = strcmp(status, "in_progress") != 0;
    json_t *made =
        json_pack("{s:s, s:s, s:I, s:s, s:s, s:n, s:n, s:n, s:O, s:b, s:n, s:b}", "id", r->id,
                  "object", "response", "created_at", (json_int_t)r->created, "status", status,
                  "model", r->m->name, "error", "incomplete_details", "previous_response_id",
                  "output", r->output, "background", 0, "user", "store", 0);
    json_object_set_new(made, "instructions", given(r, "instructions", json_null()));
    json_object_set_new(made, "max_output_tokens", given(r, "max_output_tokens", json_null()));
    json_object_set_new(made, "metadata", given(r, "metadata", json_object()));
    json_object_set_new(made, "parallel_tool_calls", given(r, "parallel_tool_calls", json_true()));
    json_object_set_new(made, "reasoning", json_pack("{s:n, s:n}", "effort", "summary"));
    json_object_set_new(made, "temperature", given(r, "temperature", json_null()));
    json_object_set_new(made, "top_p", given(r, "top_p", json_null()));
    json_object_set_new(made, "text", json_pack("{s:{s:s}}", "format", "type", "text"));
    json_object_set_new(made, "tools", given(r, "tools", json_array()));
    json_object_set_new(made, "tool_choice", given(r, "tool_choice", json_string("auto")));
    json_object_set_new(made, "truncation", json_string("disabled"));
    json_object_set_new(made, "usage", whole ? usage_object(r->w) : json_null());
    if (whole && c->end == CT_ENGINE_LENGTH)
        json_object_set_new(made, "incomplete_details",
                            json_pack("{s:s}", "reason", "max_output_tokens"));
    return made;
}

static json_t *text_part(item_kind kind, const char *text, size_t n) {
    if (kind == ITEM_REASONING)
        return json_pack("{s:s, s:o}", "type", "reasoning_text", "text", json_text(text, n));
    return json_pack("{s:s, s:o, s:[], s:[]}", "type", "output_text", "text", json_text(text, n),
                     "annotations", "logprobs");
}

// The open item, as far as it is written.
static json_t *item_object(const response *r, bool whole) {
    const choice *c = r->w->choices;
    const buffer *b = r->open == ITEM_REASONING ? &c->reasoning : &c->content;
    const char *status = whole ? "completed" : "in_progress";
    if (r->open == ITEM_CALL) {
        const tool_call *k = &c->calls[r->call];
        return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o}", "type", "function_call", "id", r->item,
                         "status", status, "call_id", k->id, "name",
                         json_text(k->name.v, k->name.n), "arguments",
                         json_text(k->arguments.v, whole ? k->arguments.n : 0));
    }
    json_t *parts = json_array();
    if (whole) json_array_append_new(parts, text_part(r->open, b->v + r->begin, b->n - r->begin));
    if (r->open == ITEM_REASONING)
        return json_pack("{s:s, s:s, s:s, s:[], s:o}", "type", "reasoning", "id", r->item, "status",
                         status, "summary", "content", parts);
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "type", "message", "id", r->item, "status",
                     status, "role", "assistant", "content", parts);
}

// ------------------------------------------------------------------------------------------- events

// Takes the rest of the event, to which its name and number are added.
static void tell_event(response *r, const char *name, json_t *event) {
    if (!r->out) {
        json_decref(event);
        return;
    }
    json_object_set_new(event, "type", json_string(name));
    json_object_set_new(event, "sequence_number", json_integer((json_int_t)r->number++));
    put_event(r->out, name, event);
}

static json_t *in_item(const response *r, bool part) {
    json_t *event = json_pack("{s:s, s:I}", "item_id", r->item, "output_index",
                              (json_int_t)json_array_size(r->output));
    if (part) json_object_set_new(event, "content_index", json_integer(0));
    return event;
}

static json_t *with(json_t *event, const char *key, json_t *value) {
    json_object_set_new(event, key, value);
    return event;
}

static void open_item(response *r, item_kind kind, size_t number) {
    const choice *c = r->w->choices;
    static const char *const prefixes[] = {"", "rs_", "msg_", "fc_"};
    make_id(prefixes[kind], r->item);
    r->open = kind;
    r->call = number;
    const buffer *b = kind == ITEM_REASONING ? &c->reasoning : &c->content;
    r->begin = b->n;
    json_t *event = json_pack("{s:I, s:o}", "output_index", (json_int_t)json_array_size(r->output),
                              "item", item_object(r, false));
    tell_event(r, "response.output_item.added", event);
    if (kind != ITEM_CALL)
        tell_event(r, "response.content_part.added",
                   with(in_item(r, true), "part", text_part(kind, "", 0)));
}

static void close_item(response *r) {
    const choice *c = r->w->choices;
    if (r->open == ITEM_NONE) return;
    json_t *item = item_object(r, true);
    if (r->open == ITEM_CALL) {
        const tool_call *k = &c->calls[r->call];
        json_t *event = with(in_item(r, false), "name", json_text(k->name.v, k->name.n));
        tell_event(r, "response.function_call_arguments.done",
                   with(event, "arguments", json_text(k->arguments.v, k->arguments.n)));
    } else {
        const buffer *b = r->open == ITEM_REASONING ? &c->reasoning : &c->content;
        json_t *event = with(in_item(r, true), "text", json_text(b->v + r->begin, b->n - r->begin));
        if (r->open == ITEM_MESSAGE) json_object_set_new(event, "logprobs", json_array());
        tell_event(r,
                   r->open == ITEM_MESSAGE ? "response.output_text.done"
                                           : "response.reasoning_text.done",
                   event);
        tell_event(
            r, "response.content_part.done",
            with(in_item(r, true), "part", text_part(r->open, b->v + r->begin, b->n - r->begin)));
    }
    tell_event(r, "response.output_item.done",
               json_pack("{s:I, s:O}", "output_index", (json_int_t)json_array_size(r->output),
                         "item", item));
    json_array_append_new(r->output, item);
    r->open = ITEM_NONE;
}

static void hear_part(void *user, choice *c, part_kind kind, size_t number, const char *text,
                      size_t n) {
    response *r = user;
    (void)c;
    static const item_kind kinds[] = {ITEM_MESSAGE, ITEM_REASONING, ITEM_CALL, ITEM_CALL,
                                      ITEM_NONE};
    const item_kind wants = kinds[kind];
    if (r->open != wants || (kind == PART_CALL && r->open == ITEM_CALL)) {
        close_item(r);
        if (wants == ITEM_NONE) return;
        open_item(r, wants, number);
        // The choice has this piece by now, and the item begins with it.
        if (wants != ITEM_CALL) r->begin -= n;
    }
    if (kind == PART_CALL || kind == PART_END) return;
    json_t *event = with(in_item(r, kind != PART_ARGUMENTS), "delta", json_text(text, n));
    if (kind == PART_CONTENT) json_object_set_new(event, "logprobs", json_array());
    tell_event(r,
               kind == PART_CONTENT     ? "response.output_text.delta"
               : kind == PART_REASONING ? "response.reasoning_text.delta"
                                        : "response.function_call_arguments.delta",
               event);
}

static const char *end_status(const response *r) {
    return r->w->choices->end == CT_ENGINE_LENGTH ? "incomplete" : "completed";
}

static bool next_events(void *state, buffer *out) {
    response *r = state;
    const char *what;
    int code;
    if (r->over) return false;
    r->out = out;
    if (!r->w->part) {
        r->w->part = hear_part;
        r->w->user = r;
        tell_event(r, "response.created",
                   json_pack("{s:o}", "response", response_object(r, "in_progress")));
        tell_event(r, "response.in_progress",
                   json_pack("{s:o}", "response", response_object(r, "in_progress")));
        return true;
    }
    if (go_on(r->w)) return true;
    r->over = true;
    if (is_broken(r->w, &code, &what)) {
        json_t *made = response_object(r, "failed");
        json_object_set_new(made, "error",
                            json_pack("{s:s, s:s}", "code", "server_error", "message", what));
        tell_event(r, "response.failed", json_pack("{s:o}", "response", made));
        return true;
    }
    tell_event(
        r, r->w->choices->end == CT_ENGINE_LENGTH ? "response.incomplete" : "response.completed",
        json_pack("{s:o}", "response", response_object(r, end_status(r))));
    return true;
}

static bool reply_whole(exchange *x, response *r) {
    const char *what;
    int code;
    r->w->part = hear_part;
    r->w->user = r;
    while (go_on(r->w)) continue;
    if (is_broken(r->w, &code, &what)) return refuse_request(x, code, NULL, "%s", what);
    return reply_json(x, response_object(r, end_status(r)));
}

// ---------------------------------------------------------------------------------------- requests

static bool refuse_item(exchange *x, size_t i, const json_t *item) {
    return refuse_request(x, 400, "input",
                          "input[%zu] must be a message, function_call, function_call_output or "
                          "reasoning, not %s",
                          i, shown(item));
}

static json_t *call_message(const json_t *item) {
    return json_pack("{s:s, s:n, s:[{s:O?, s:s, s:{s:O, s:O}}]}", "role", "assistant", "content",
                     "tool_calls", "id", json_object_get(item, "call_id"), "type", "function",
                     "function", "name", json_object_get(item, "name"), "arguments",
                     json_object_get(item, "arguments"));
}

// Items as the messages that a template knows.
static bool add_item(exchange *x, json_t *messages, size_t i, json_t *item) {
    const char *type = json_string_value(json_object_get(item, "type"));
    json_t *message = NULL;
    if (!json_is_object(item)) return refuse_item(x, i, item);
    if (type && strcmp(type, "reasoning") == 0) return true; // it is not shown to the model again
    if (!type || strcmp(type, "message") == 0)
        message = json_pack("{s:O?, s:O?}", "role", json_object_get(item, "role"), "content",
                            json_object_get(item, "content"));
    else if (strcmp(type, "function_call") == 0)
        message = call_message(item);
    else if (strcmp(type, "function_call_output") == 0)
        message =
            json_pack("{s:s, s:O?, s:O}", "role", "tool", "tool_call_id",
                      json_object_get(item, "call_id"), "content", json_object_get(item, "output"));
    if (!message) return refuse_item(x, i, item);
    return json_array_append_new(messages, message) == 0;
}

static bool read_input(exchange *x, response *r, const char *instructions) {
    json_t *input = json_object_get(x->asked, "input"), *item, *messages = json_array();
    size_t i;
    bool ok = true;
    if (instructions)
        json_array_append_new(messages,
                              json_pack("{s:s, s:s}", "role", "system", "content", instructions));
    if (json_is_string(input)) {
        json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "user", "content", input));
    } else if (json_array_size(input)) {
        json_array_foreach(input, i, item) {
            if (ok) ok = add_item(x, messages, i, item);
        }
    } else {
        ok = refuse_request(x, 400, "input", "input must be a string or a list of items, not %s",
                            input ? shown(input) : "missing");
    }
    ok = ok && read_messages(x, messages, &r->c);
    json_decref(messages);
    return ok;
}

// {"type": "function", "name": ...} as chat completions have it: one level deeper.
static json_t *nested_tool(json_t *tool) {
    json_t *function = json_copy(tool);
    json_object_del(function, "type");
    return json_pack("{s:O?, s:o}", "type", json_object_get(tool, "type"), "function", function);
}

static bool read_response_tools(exchange *x, response *r, json_t *tools) {
    json_t *list = json_array(), *tool, *wish = json_object_get(x->asked, "tool_choice");
    size_t i;
    bool ok = true;
    json_array_foreach(tools, i, tool) {
        const char *type = json_string_value(json_object_get(tool, "type"));
        if (!ok) break;
        if (type && strcmp(type, "function") == 0)
            json_array_append_new(list, nested_tool(tool));
        else
            ok = refuse_request(x, 400, "tools", "tools[%zu] must be of type function, not %s", i,
                                shown(tool));
    }
    json_t *nested = json_is_object(wish) ? nested_tool(wish) : json_incref(wish);
    ok = ok && read_tools(x, list, nested, &r->c);
    json_decref(nested);
    json_decref(list);
    return ok;
}

static bool read_response(exchange *x, response *r) {
    const char *instructions = NULL, *type = "text", *effort = NULL;
    json_t *tools = NULL, *text = NULL, *format = NULL, *variables = NULL, *reasoning = NULL;
    bool parallel = true;
    const field fields[] = {{"instructions", FIELD_TEXT, .out = &instructions},
                            {"stream", FIELD_FLAG, .out = &r->stream},
                            {"tools", FIELD_LIST, .out = &tools},
                            {"text", FIELD_OBJECT, .out = &text},
                            {"reasoning", FIELD_OBJECT, .out = &reasoning},
                            {"parallel_tool_calls", FIELD_FLAG, .out = &parallel},
                            {"chat_template_kwargs", FIELD_OBJECT, .out = &variables}};
    const field texts[] = {{"format", FIELD_OBJECT, .out = &format}};
    const field formats[] = {{"type", FIELD_TEXT, .out = &type}};
    const field efforts[] = {{"effort", FIELD_TEXT, .out = &effort}};
    if (!read_fields(x, x->asked, "", fields, sizeof fields / sizeof *fields) ||
        (text && (!refuse_known(x, NAMES_RESPONSES, text, "text.") ||
                  !read_fields(x, text, "text.", texts, 1))) ||
        (format && !read_fields(x, format, "text.format.", formats, 1)) ||
        (reasoning && !read_fields(x, reasoning, "reasoning.", efforts, 1)) ||
        !read_wanted(x, r->m, &r->is, "max_output_tokens"))
        return false;
    if (strcmp(type, "text") != 0)
        return refuse_request(
            x, 400, "text.format",
            "text.format: %s cannot be promised: what is written is not held to a "
            "grammar; only text can",
            plain(type));
    r->is.n = 1;
    r->is.one_call = !parallel;
    r->is.split = true;
    r->c.variables = variables ? json_copy(variables) : json_object();
    if (effort) json_object_set_new(r->c.variables, "reasoning_effort", json_string(effort));
    if (!read_input(x, r, instructions) || !read_response_tools(x, r, tools) ||
        !make_prompt(x, r->m, &r->c))
        return false;
    r->is.tools = r->c.tools_text;
    return true;
}

bool answer_responses(exchange *x) {
    model *m = named_model(x, true);
    response *r = m ? calloc(1, sizeof *r) : NULL;
    if (!r) return m ? refuse_request(x, 500, NULL, "there is no memory for the request") : false;
    r->m = m;
    r->created = (int64_t)time(NULL);
    r->asked = json_incref(x->asked);
    r->output = json_array();
    make_id("resp_", r->id);
    bool ok = read_response(x, r);
    if (ok) {
        const given_prompt p = {r->c.ids.ids, r->c.ids.n, r->c.text};
        r->w = start_writing(x, m, &r->is, &p, 1);
        ok = r->w != NULL;
    }
    if (ok && r->stream) return reply_stream(x, "text/event-stream", next_events, free_response, r);
    ok = ok && reply_whole(x, r);
    free_response(r);
    return ok;
}
