// POST /v1/responses: the output is a list of items, and a stream has events for the beginning, deltas
// and end of each item. Nothing is stored: a conversation is continued by sending its items again.
#include <stdlib.h>
#include <string.h>

#include "serve.h"

typedef enum { ITEM_NONE, ITEM_REASONING, ITEM_MESSAGE, ITEM_TOOL_CALL } item_kind;

typedef struct response {
    generation *gen;
    model *m;
    char id[ID_BYTES], item[ID_BYTES];
    int64_t created;
    bool stream, is_done;
    generation_params is;
    conversation c;
    json_t *request, *output; // output: the completed items
    item_kind open_kind;
    size_t text_begin; // offset of the open item's text in that of the choice
    size_t call, sequence_number;
    buffer *out; // of a stream; else NULL
} response;

static void responses_free(void *state) {
    response *r = state;
    if (!r) return;
    generation_free(r->gen);
    generation_params_free(&r->is);
    conversation_free(&r->c);
    json_decref(r->output);
    json_decref(r->request);
    free(r);
}

// ----------------------------------------------------------------------------------------- the reply

static json_t *responses_requested_value(const response *r, const char *name, json_t *otherwise) {
    json_t *value = json_object_get(r->request, name);
    if (!value || json_is_null(value)) return otherwise;
    json_decref(otherwise);
    return json_incref(value);
}

static json_t *responses_usage_json(const generation *w) {
    const token_counts u = generation_count_tokens(w);
    return json_pack("{s:I, s:{s:I}, s:I, s:{s:I}, s:I}", "input_tokens", (json_int_t)u.prompt,
                     "input_tokens_details", "cached_tokens", (json_int_t)u.cached, "output_tokens",
                     (json_int_t)u.written, "output_tokens_details", "reasoning_tokens",
                     (json_int_t)u.reasoning_tokens, "total_tokens",
                     (json_int_t)(u.prompt + u.written));
}

// The response in its current state.
static json_t *responses_json(const response *r, const char *status) {
    const choice *c = r->gen->choices;
    const bool whole = strcmp(status, "in_progress") != 0;
    json_t *made =
        json_pack("{s:s, s:s, s:I, s:s, s:s, s:n, s:n, s:n, s:O, s:b, s:n, s:b}", "id", r->id,
                  "object", "response", "created_at", (json_int_t)r->created, "status", status,
                  "model", r->m->name, "error", "incomplete_details", "previous_response_id",
                  "output", r->output, "background", 0, "user", "store", 0);
    json_object_set_new(made, "instructions",
                        responses_requested_value(r, "instructions", json_null()));
    json_object_set_new(made, "max_output_tokens",
                        responses_requested_value(r, "max_output_tokens", json_null()));
    json_object_set_new(made, "metadata", responses_requested_value(r, "metadata", json_object()));
    json_object_set_new(made, "parallel_tool_calls",
                        responses_requested_value(r, "parallel_tool_calls", json_true()));
    json_object_set_new(made, "reasoning", json_pack("{s:n, s:n}", "effort", "summary"));
    json_object_set_new(made, "temperature",
                        responses_requested_value(r, "temperature", json_null()));
    json_object_set_new(made, "top_p", responses_requested_value(r, "top_p", json_null()));
    json_object_set_new(made, "text", json_pack("{s:{s:s}}", "format", "type", "text"));
    json_object_set_new(made, "tools", responses_requested_value(r, "tools", json_array()));
    json_object_set_new(made, "tool_choice",
                        responses_requested_value(r, "tool_choice", json_string("auto")));
    json_object_set_new(made, "truncation", json_string("disabled"));
    json_object_set_new(made, "usage", whole ? responses_usage_json(r->gen) : json_null());
    if (whole && c->end == CT_ENGINE_LENGTH)
        json_object_set_new(made, "incomplete_details",
                            json_pack("{s:s}", "reason", "max_output_tokens"));
    return made;
}

static json_t *responses_text_part_json(item_kind kind, const char *text, size_t n) {
    if (kind == ITEM_REASONING)
        return json_pack("{s:s, s:o}", "type", "reasoning_text", "text", json_utf8(text, n));
    return json_pack("{s:s, s:o, s:[], s:[]}", "type", "output_text", "text", json_utf8(text, n),
                     "annotations", "logprobs");
}

// The open item, with its text if it is complete.
static json_t *responses_item_json(const response *r, bool whole) {
    const choice *c = r->gen->choices;
    const buffer *b = r->open_kind == ITEM_REASONING ? &c->reasoning : &c->content;
    const char *status = whole ? "completed" : "in_progress";
    if (r->open_kind == ITEM_TOOL_CALL) {
        const tool_call *k = &c->calls[r->call];
        return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o}", "type", "function_call", "id", r->item,
                         "status", status, "call_id", k->id, "name",
                         json_utf8(k->name.v, k->name.n), "arguments",
                         json_utf8(k->arguments.v, whole ? k->arguments.n : 0));
    }
    json_t *parts = json_array();
    if (whole)
        json_array_append_new(parts, responses_text_part_json(r->open_kind, b->v + r->text_begin,
                                                              b->n - r->text_begin));
    if (r->open_kind == ITEM_REASONING)
        return json_pack("{s:s, s:s, s:s, s:[], s:o}", "type", "reasoning", "id", r->item, "status",
                         status, "summary", "content", parts);
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "type", "message", "id", r->item, "status",
                     status, "role", "assistant", "content", parts);
}

// ------------------------------------------------------------------------------------------- events

// Sends an event, to which type and sequence number are added. Consumes it.
static void responses_put_event(response *r, const char *name, json_t *event) {
    if (!r->out) {
        json_decref(event);
        return;
    }
    json_object_set_new(event, "type", json_string(name));
    json_object_set_new(event, "sequence_number", json_integer((json_int_t)r->sequence_number++));
    buffer_put_event(r->out, name, event);
}

static json_t *responses_item_event(const response *r, bool part) {
    json_t *event = json_pack("{s:s, s:I}", "item_id", r->item, "output_index",
                              (json_int_t)json_array_size(r->output));
    if (part) json_object_set_new(event, "content_index", json_integer(0));
    return event;
}

static json_t *with(json_t *event, const char *key, json_t *value) {
    json_object_set_new(event, key, value);
    return event;
}

static void responses_open_item(response *r, item_kind kind, size_t number) {
    const choice *c = r->gen->choices;
    static const char *const prefixes[] = {"", "rs_", "msg_", "fc_"};
    make_id(prefixes[kind], r->item);
    r->open_kind = kind;
    r->call = number;
    const buffer *b = kind == ITEM_REASONING ? &c->reasoning : &c->content;
    r->text_begin = b->n;
    json_t *event = json_pack("{s:I, s:o}", "output_index", (json_int_t)json_array_size(r->output),
                              "item", responses_item_json(r, false));
    responses_put_event(r, "response.output_item.added", event);
    if (kind != ITEM_TOOL_CALL)
        responses_put_event(
            r, "response.content_part.added",
            with(responses_item_event(r, true), "part", responses_text_part_json(kind, "", 0)));
}

static void responses_close_item(response *r) {
    const choice *c = r->gen->choices;
    if (r->open_kind == ITEM_NONE) return;
    json_t *item = responses_item_json(r, true);
    if (r->open_kind == ITEM_TOOL_CALL) {
        const tool_call *k = &c->calls[r->call];
        json_t *event =
            with(responses_item_event(r, false), "name", json_utf8(k->name.v, k->name.n));
        responses_put_event(r, "response.function_call_arguments.done",
                            with(event, "arguments", json_utf8(k->arguments.v, k->arguments.n)));
    } else {
        const buffer *b = r->open_kind == ITEM_REASONING ? &c->reasoning : &c->content;
        json_t *event = with(responses_item_event(r, true), "text",
                             json_utf8(b->v + r->text_begin, b->n - r->text_begin));
        if (r->open_kind == ITEM_MESSAGE) json_object_set_new(event, "logprobs", json_array());
        responses_put_event(r,
                            r->open_kind == ITEM_MESSAGE ? "response.output_text.done"
                                                         : "response.reasoning_text.done",
                            event);
        responses_put_event(r, "response.content_part.done",
                            with(responses_item_event(r, true), "part",
                                 responses_text_part_json(r->open_kind, b->v + r->text_begin,
                                                          b->n - r->text_begin)));
    }
    responses_put_event(r, "response.output_item.done",
                        json_pack("{s:I, s:O}", "output_index",
                                  (json_int_t)json_array_size(r->output), "item", item));
    json_array_append_new(r->output, item);
    r->open_kind = ITEM_NONE;
}

static void responses_on_part(void *user, choice *c, part_kind kind, size_t number,
                              const char *text, size_t n) {
    response *r = user;
    (void)c;
    static const item_kind kinds[] = {ITEM_MESSAGE, ITEM_REASONING, ITEM_TOOL_CALL, ITEM_TOOL_CALL,
                                      ITEM_NONE};
    const item_kind wants = kinds[kind];
    if (r->open_kind != wants || (kind == PART_TOOL_CALL && r->open_kind == ITEM_TOOL_CALL)) {
        responses_close_item(r);
        if (wants == ITEM_NONE) return;
        responses_open_item(r, wants, number);
        // The choice has this part already; the item begins with it.
        if (wants != ITEM_TOOL_CALL) r->text_begin -= n;
    }
    if (kind == PART_TOOL_CALL || kind == PART_END) return;
    json_t *event =
        with(responses_item_event(r, kind != PART_TOOL_ARGUMENTS), "delta", json_utf8(text, n));
    if (kind == PART_CONTENT) json_object_set_new(event, "logprobs", json_array());
    responses_put_event(r,
                        kind == PART_CONTENT     ? "response.output_text.delta"
                        : kind == PART_REASONING ? "response.reasoning_text.delta"
                                                 : "response.function_call_arguments.delta",
                        event);
}

static const char *responses_end_status(const response *r) {
    return r->gen->choices->end == CT_ENGINE_LENGTH ? "incomplete" : "completed";
}

static bool responses_next_events(void *state, buffer *out) {
    response *r = state;
    const char *what;
    int code;
    if (r->is_done) return false;
    r->out = out;
    if (!r->gen->on_part) {
        r->gen->on_part = responses_on_part;
        r->gen->user = r;
        responses_put_event(r, "response.created",
                            json_pack("{s:o}", "response", responses_json(r, "in_progress")));
        responses_put_event(r, "response.in_progress",
                            json_pack("{s:o}", "response", responses_json(r, "in_progress")));
        return true;
    }
    if (generation_wait(r->gen)) return true;
    r->is_done = true;
    if (generation_has_failed(r->gen, &code, &what)) {
        json_t *made = responses_json(r, "failed");
        json_object_set_new(made, "error",
                            json_pack("{s:s, s:s}", "code", "server_error", "message", what));
        responses_put_event(r, "response.failed", json_pack("{s:o}", "response", made));
        return true;
    }
    responses_put_event(
        r, r->gen->choices->end == CT_ENGINE_LENGTH ? "response.incomplete" : "response.completed",
        json_pack("{s:o}", "response", responses_json(r, responses_end_status(r))));
    return true;
}

static bool responses_reply_whole(exchange *x, response *r) {
    const char *what;
    int code;
    r->gen->on_part = responses_on_part;
    r->gen->user = r;
    while (generation_wait(r->gen)) continue;
    if (generation_has_failed(r->gen, &code, &what)) return fail_request(x, code, NULL, "%s", what);
    return reply_json(x, responses_json(r, responses_end_status(r)));
}

// ---------------------------------------------------------------------------------------- requests

static bool responses_reject_item(exchange *x, size_t i, const json_t *item) {
    return fail_request(x, 400, "input",
                        "input[%zu] must be a message, function_call, function_call_output or "
                        "reasoning, not %s",
                        i, json_excerpt(item));
}

static json_t *responses_tool_call_message(const json_t *item) {
    return json_pack("{s:s, s:n, s:[{s:O?, s:s, s:{s:O, s:O}}]}", "role", "assistant", "content",
                     "tool_calls", "id", json_object_get(item, "call_id"), "type", "function",
                     "function", "name", json_object_get(item, "name"), "arguments",
                     json_object_get(item, "arguments"));
}

// Adds an item as a message in the format of chat templates.
static bool responses_add_item(exchange *x, json_t *messages, size_t i, json_t *item) {
    const char *type = json_string_value(json_object_get(item, "type"));
    json_t *message = NULL;
    if (!json_is_object(item)) return responses_reject_item(x, i, item);
    // Earlier reasoning is not shown to the model again.
    if (type && strcmp(type, "reasoning") == 0) return true;
    if (!type || strcmp(type, "message") == 0)
        message = json_pack("{s:O?, s:O?}", "role", json_object_get(item, "role"), "content",
                            json_object_get(item, "content"));
    else if (strcmp(type, "function_call") == 0)
        message = responses_tool_call_message(item);
    else if (strcmp(type, "function_call_output") == 0)
        message =
            json_pack("{s:s, s:O?, s:O}", "role", "tool", "tool_call_id",
                      json_object_get(item, "call_id"), "content", json_object_get(item, "output"));
    if (!message) return responses_reject_item(x, i, item);
    return json_array_append_new(messages, message) == 0;
}

static bool responses_parse_input(exchange *x, response *r, const char *instructions) {
    json_t *input = json_object_get(x->request, "input"), *item, *messages = json_array();
    size_t i;
    bool ok = true;
    if (instructions)
        json_array_append_new(messages,
                              json_pack("{s:s, s:s}", "role", "system", "content", instructions));
    if (json_is_string(input)) {
        json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "user", "content", input));
    } else if (json_array_size(input)) {
        json_array_foreach(input, i, item) {
            if (ok) ok = responses_add_item(x, messages, i, item);
        }
    } else {
        ok = fail_request(x, 400, "input", "input must be a string or a list of items, not %s",
                          input ? json_excerpt(input) : "missing");
    }
    ok = ok && parse_messages(x, messages, &r->c);
    json_decref(messages);
    return ok;
}

// Converts {"type": "function", "name": ...} to the format of chat completions, which is one level
// deeper.
static json_t *responses_nest_tool(json_t *tool) {
    json_t *function = json_copy(tool);
    json_object_del(function, "type");
    return json_pack("{s:O?, s:o}", "type", json_object_get(tool, "type"), "function", function);
}

static bool responses_parse_tools(exchange *x, response *r, json_t *tools) {
    json_t *list = json_array(), *tool, *tool_choice = json_object_get(x->request, "tool_choice");
    size_t i;
    bool ok = true;
    json_array_foreach(tools, i, tool) {
        const char *type = json_string_value(json_object_get(tool, "type"));
        if (!ok) break;
        if (type && strcmp(type, "function") == 0)
            json_array_append_new(list, responses_nest_tool(tool));
        else
            ok = fail_request(x, 400, "tools", "tools[%zu] must be of type function, not %s", i,
                              json_excerpt(tool));
    }
    json_t *nested =
        json_is_object(tool_choice) ? responses_nest_tool(tool_choice) : json_incref(tool_choice);
    ok = ok && parse_tools(x, list, nested, &r->c);
    json_decref(nested);
    json_decref(list);
    return ok;
}

static bool responses_parse(exchange *x, response *r) {
    const char *instructions = NULL, *type = "text", *effort = NULL;
    json_t *tools = NULL, *text = NULL, *format = NULL, *variables = NULL, *reasoning = NULL;
    bool parallel = true;
    const field fields[] = {{"instructions", FIELD_STRING, .out = &instructions},
                            {"stream", FIELD_BOOL, .out = &r->stream},
                            {"tools", FIELD_LIST, .out = &tools},
                            {"text", FIELD_OBJECT, .out = &text},
                            {"reasoning", FIELD_OBJECT, .out = &reasoning},
                            {"parallel_tool_calls", FIELD_BOOL, .out = &parallel},
                            {"chat_template_kwargs", FIELD_OBJECT, .out = &variables}};
    const field texts[] = {{"format", FIELD_OBJECT, .out = &format}};
    const field formats[] = {{"type", FIELD_STRING, .out = &type}};
    const field efforts[] = {{"effort", FIELD_STRING, .out = &effort}};
    if (!parse_fields(x, x->request, "", fields, sizeof fields / sizeof *fields) ||
        (text && (!reject_unsupported_fields(x, FIELDS_RESPONSES, text, "text.") ||
                  !parse_fields(x, text, "text.", texts, 1))) ||
        (format && !parse_fields(x, format, "text.format.", formats, 1)) ||
        (reasoning && !parse_fields(x, reasoning, "reasoning.", efforts, 1)) ||
        !parse_generation_params(x, r->m, &r->is, "max_output_tokens"))
        return false;
    if (strcmp(type, "text") != 0)
        return fail_request(
            x, 400, "text.format",
            "text.format: %s is not supported: output cannot be constrained; use text",
            printable(type));
    r->is.n = 1;
    r->is.single_tool_call = !parallel;
    r->is.parse_chat = true;
    r->c.variables = variables ? json_copy(variables) : json_object();
    if (effort) json_object_set_new(r->c.variables, "reasoning_effort", json_string(effort));
    if (!responses_parse_input(x, r, instructions) || !responses_parse_tools(x, r, tools) ||
        !conversation_make_prompt(x, r->m, &r->c))
        return false;
    r->is.tools = r->c.tools_text;
    return true;
}

bool handle_responses(exchange *x) {
    model *m = find_requested_model(x, true);
    response *r = m ? calloc(1, sizeof *r) : NULL;
    if (!r) return m ? fail_request(x, 500, NULL, "there is no memory for the request") : false;
    r->m = m;
    r->created = (int64_t)time(NULL);
    r->request = json_incref(x->request);
    r->output = json_array();
    make_id("resp_", r->id);
    bool ok = responses_parse(x, r);
    if (ok) {
        const prompt_input p = {r->c.ids.ids, r->c.ids.n, r->c.text};
        r->gen = generation_start(x, m, &r->is, &p, 1);
        ok = r->gen != NULL;
    }
    if (ok && r->stream)
        return reply_stream(x, "text/event-stream", responses_next_events, responses_free, r);
    ok = ok && responses_reply_whole(x, r);
    responses_free(r);
    return ok;
}
