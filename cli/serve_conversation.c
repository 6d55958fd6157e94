// Conversations and tools in the format of OpenAI's requests: parsing, and the prompt that the model's
// template makes.
#include <stdlib.h>
#include <string.h>

#include "serve.h"

// Parses text, or a list of text parts, to one string. NULL: an error was replied.
static json_t *conversation_parse_content(exchange *x, json_t *content, const char *where) {
    buffer all = {0};
    json_t *part;
    size_t i;
    if (json_is_string(content)) return json_incref(content);
    if (!json_is_array(content)) {
        fail_request(x, 400, where, "%s must be a string or a list of parts, not %s", where,
                     content ? json_excerpt(content) : "missing");
        return NULL;
    }
    json_array_foreach(content, i, part) {
        const char *type = json_string_value(json_object_get(part, "type"));
        const bool refuses = type && strcmp(type, "refusal") == 0;
        const bool known =
            refuses || (type && (strcmp(type, "text") == 0 || strcmp(type, "input_text") == 0 ||
                                 strcmp(type, "output_text") == 0));
        const json_t *text = json_object_get(part, refuses ? "refusal" : "text");
        if (!known || !json_is_string(text)) {
            fail_request(x, 400, where, "%s[%zu] must be a part of type text with a text, not %s",
                         where, i, json_excerpt(part));
            free(all.v);
            return NULL;
        }
        buffer_put(&all, json_string_value(text), json_string_length(text));
    }
    json_t *joined = json_utf8(all.v, all.n);
    free(all.v);
    return joined;
}

// Parses the arguments of tool calls: clients send them as text, but templates print them as JSON
// themselves and need the object.
static json_t *conversation_parse_tool_calls(exchange *x, json_t *calls, const char *where) {
    json_t *made = json_array(), *one;
    size_t i;
    json_array_foreach(calls, i, one) {
        json_t *function = json_object_get(one, "function");
        json_t *arguments = json_object_get(function, "arguments");
        if (!json_is_string(json_object_get(function, "name"))) {
            fail_request(x, 400, where, "%s[%zu] must have a function with a name, not %s", where,
                         i, json_excerpt(one));
            json_decref(made);
            return NULL;
        }
        json_t *copy = json_deep_copy(one);
        json_t *read = json_is_string(arguments)
                           ? json_loadb(json_string_value(arguments), json_string_length(arguments),
                                        JSON_ALLOW_NUL, NULL)
                           : NULL;
        if (json_is_object(read))
            json_object_set(json_object_get(copy, "function"), "arguments", read);
        json_decref(read);
        json_array_append_new(made, copy);
    }
    return made;
}

static bool conversation_parse_role(exchange *x, const json_t *message, size_t i, json_t *made) {
    static const char *const roles[] = {"system",    "developer", "user",
                                        "assistant", "tool",      "function"};
    json_t *role = json_object_get(message, "role");
    const char *name = json_string_value(role);
    for (size_t r = 0; name && r < sizeof roles / sizeof *roles; r++)
        if (strcmp(name, roles[r]) == 0)
            return json_object_set_new(
                       made, "role",
                       json_string(strcmp(name, "developer") == 0 ? "system" : name)) == 0;
    return fail_request(
        x, 400, "messages",
        "messages[%zu].role must be system, developer, user, assistant or tool, not %s", i,
        role ? json_excerpt(role) : "missing");
}

static bool conversation_parse_message(exchange *x, json_t *message, size_t i, conversation *c) {
    char where[64];
    if (!json_is_object(message))
        return fail_request(x, 400, "messages", "messages[%zu] must be an object, not %s", i,
                            json_excerpt(message));
    json_t *made = json_copy(message);
    json_array_append_new(c->messages, made);
    if (!conversation_parse_role(x, message, i, made)) return false;
    json_t *calls = json_object_get(message, "tool_calls");
    json_t *content = json_object_get(message, "content");
    if (calls && !json_is_null(calls)) {
        snprintf(where, sizeof where, "messages[%zu].tool_calls", i);
        if (!json_is_array(calls))
            return fail_request(x, 400, where, "%s must be a list, not %s", where,
                                json_excerpt(calls));
        if (!(calls = conversation_parse_tool_calls(x, calls, where))) return false;
        json_object_set_new(made, "tool_calls", calls);
        if (!content || json_is_null(content)) {
            json_object_del(made, "content");
            return true;
        }
    }
    // Without content, the text of the assistant's refusal is used.
    json_t *refused = json_object_get(message, "refusal");
    if ((!content || json_is_null(content)) && json_is_string(refused)) content = refused;
    snprintf(where, sizeof where, "messages[%zu].content", i);
    content = conversation_parse_content(x, content, where);
    return content && json_object_set_new(made, "content", content) == 0;
}

bool parse_messages(exchange *x, json_t *list, conversation *c) {
    json_t *message;
    size_t i;
    c->messages = json_array();
    if (!json_array_size(list))
        return fail_request(x, 400, "messages", "messages must be a list of at least one, not %s",
                            list ? json_excerpt(list) : "missing");
    json_array_foreach(list, i, message) {
        if (!conversation_parse_message(x, message, i, c)) return false;
    }
    return true;
}

// ------------------------------------------------------------------------------------------- tools

static const char *conversation_tool_name(const json_t *tool) {
    return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

static bool conversation_has_tool(const conversation *c, const char *name) {
    for (size_t i = 0; i < json_array_size(c->tools); i++)
        if (strcmp(conversation_tool_name(json_array_get(c->tools, i)), name) == 0) return true;
    return false;
}

// Nothing forces a model to call a tool: a required call is an error.
static bool conversation_parse_tool_choice(exchange *x, json_t *tool_choice, conversation *c) {
    static const char unforced[] = "a call cannot be forced; auto leaves it to the model";
    const char *word = json_string_value(tool_choice), *name = conversation_tool_name(tool_choice);
    if (!tool_choice || json_is_null(tool_choice) || (word && strcmp(word, "auto") == 0))
        return true;
    if (word && strcmp(word, "none") == 0) {
        json_decref(c->tools);
        c->tools = NULL;
        return true;
    }
    if (word && strcmp(word, "required") == 0)
        return fail_request(x, 400, "tool_choice", "tool_choice: required: %s", unforced);
    if (name && !conversation_has_tool(c, name))
        return fail_request(x, 400, "tool_choice",
                            "tool_choice names %s, which is none of the tools", printable(name));
    if (name)
        return fail_request(x, 400, "tool_choice", "tool_choice: %s: %s", printable(name),
                            unforced);
    return fail_request(
        x, 400, "tool_choice",
        "tool_choice must be none, auto, required or the name of a function, not %s",
        json_excerpt(tool_choice));
}

bool parse_tools(exchange *x, json_t *tools, json_t *tool_choice, conversation *c) {
    json_t *tool;
    size_t i;
    json_array_foreach(tools, i, tool) {
        if (!conversation_tool_name(tool))
            return fail_request(
                x, 400, "tools",
                "tools[%zu] must be of type function with a function's name, not %s", i,
                json_excerpt(tool));
    }
    if (json_array_size(tools)) c->tools = json_incref(tools);
    return conversation_parse_tool_choice(x, tool_choice, c);
}

// ------------------------------------------------------------------------------------------ prompts

bool check_prompt_length(exchange *x, const model *m, size_t n, const char *param) {
    if (!n) return fail_request(x, 400, param, "%s: the prompt is empty", param);
    if (!m->context || (int64_t)n < m->context + !m->engine) return true;
    return fail_request(x, 400, param, "%s: %zu tokens do not fit into the context of %s: %lld",
                        param, n, m->name, (long long)m->context);
}

// Removes the text after the last message, so that the message is continued (transformers'
// continue_final_message).
static bool conversation_cut_after_last(exchange *x, conversation *c, size_t *n) {
    json_t *last = json_array_get(c->messages, json_array_size(c->messages) - 1);
    const char *content = json_string_value(json_object_get(last, "content")), *found = NULL;
    if (!content) content = "";
    const size_t blanks = strspn(content, " \t\r\n\f\v"), all = strlen(content);
    size_t bare = all;
    while (bare > blanks && strchr(" \t\r\n\f\v", content[bare - 1])) bare--;
    char *needle = strndup(content + blanks, bare - blanks);
    for (const char *at = c->text; needle && *needle && (at = strstr(at, needle)); at++) found = at;
    free(needle);
    if (!found)
        return fail_request(x, 400, "continue_final_message",
                            "continue_final_message: the chat template does not show the last "
                            "message, or it is empty");
    // A template may strip the content.
    const bool whole = strncmp(found, content + blanks, all - blanks) == 0;
    *n = (size_t)(found - c->text) + (whole ? all : bare) - blanks;
    c->text[*n] = '\0';
    return true;
}

static bool conversation_render(exchange *x, model *m, conversation *c, size_t *n) {
    char *messages = json_dumps(c->messages, 0), *variables = json_dumps(c->variables, 0);
    c->tools_text = c->tools ? json_dumps(c->tools, 0) : NULL;
    bool ok = messages && variables && (c->tools_text || !c->tools);
    if (ok) {
        pthread_mutex_lock(&m->template_lock);
        const char *text = ct_chat_render_with(
            m->is->chat, messages,
            (ct_chat_options){.tools = c->tools_text, .variables = variables, .length = n});
        c->text = text ? malloc(*n + 1) : NULL;
        if (c->text) memcpy(c->text, text, *n + 1);
        pthread_mutex_unlock(&m->template_lock);
        ok = c->text != NULL;
    }
    free(messages);
    free(variables);
    return ok || fail_request_from_error(x, 400, "messages");
}

bool conversation_make_prompt(exchange *x, model *m, conversation *c) {
    size_t n;
    if (!m->is->chat)
        return fail_request(x, 400, "model", "%s has no chat template: use /v1/completions",
                            m->name);
    if (c->tools && !m->supports_tools)
        return fail_request(x, 400, "tools",
                            "%s does not support tools: its chat template does not show them",
                            m->name);
    if (!c->variables) c->variables = json_object();
    json_object_set_new(c->variables, "add_generation_prompt",
                        json_boolean(!c->no_generation_prompt && !c->continue_final));
    if (!conversation_render(x, m, c, &n) ||
        (c->continue_final && !conversation_cut_after_last(x, c, &n)))
        return false;
    if (!model_encode(m, c->text, n, c->add_special, &c->ids))
        return fail_request_from_error(x, 400, "messages");
    return check_prompt_length(x, m, c->ids.n, "messages");
}

void conversation_free(conversation *c) {
    json_decref(c->messages);
    json_decref(c->tools);
    json_decref(c->variables);
    id_list_free(&c->ids);
    free(c->text);
    free(c->tools_text);
}
