// Conversations and tools, as OpenAI's requests have them, as the prompt that the model's template makes of them.
#include <stdlib.h>
#include <string.h>

#include "serve.h"

// Text, or a list of parts that are text, as one string. NULL: it has been refused.
static json_t *read_content(exchange *x, json_t *content, const char *where) {
    buffer all = {0};
    json_t *part;
    size_t i;
    if (json_is_string(content)) return json_incref(content);
    if (!json_is_array(content)) {
        refuse_request(x, 400, where, "%s must be a string or a list of parts, not %s", where,
                       content ? shown(content) : "missing");
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
            refuse_request(x, 400, where, "%s[%zu] must be a part of type text with a text, not %s",
                           where, i, shown(part));
            free(all.v);
            return NULL;
        }
        put(&all, json_string_value(text), json_string_length(text));
    }
    json_t *joined = json_text(all.v, all.n);
    free(all.v);
    return joined;
}

// Templates write a call's arguments as JSON themselves, so they get the object; clients send it as text.
static json_t *read_calls(exchange *x, json_t *calls, const char *where) {
    json_t *made = json_array(), *one;
    size_t i;
    json_array_foreach(calls, i, one) {
        json_t *function = json_object_get(one, "function");
        json_t *arguments = json_object_get(function, "arguments");
        if (!json_is_string(json_object_get(function, "name"))) {
            refuse_request(x, 400, where, "%s[%zu] must have a function with a name, not %s", where,
                           i, shown(one));
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

static bool read_role(exchange *x, const json_t *message, size_t i, json_t *made) {
    static const char *const roles[] = {"system",    "developer", "user",
                                        "assistant", "tool",      "function"};
    json_t *role = json_object_get(message, "role");
    const char *name = json_string_value(role);
    for (size_t r = 0; name && r < sizeof roles / sizeof *roles; r++)
        if (strcmp(name, roles[r]) == 0)
            return json_object_set_new(
                       made, "role",
                       json_string(strcmp(name, "developer") == 0 ? "system" : name)) == 0;
    return refuse_request(
        x, 400, "messages",
        "messages[%zu].role must be system, developer, user, assistant or tool, not %s", i,
        role ? shown(role) : "missing");
}

static bool read_message(exchange *x, json_t *message, size_t i, conversation *c) {
    char where[64];
    if (!json_is_object(message))
        return refuse_request(x, 400, "messages", "messages[%zu] must be an object, not %s", i,
                              shown(message));
    json_t *made = json_copy(message);
    json_array_append_new(c->messages, made);
    if (!read_role(x, message, i, made)) return false;
    json_t *calls = json_object_get(message, "tool_calls");
    json_t *content = json_object_get(message, "content");
    if (calls && !json_is_null(calls)) {
        snprintf(where, sizeof where, "messages[%zu].tool_calls", i);
        if (!json_is_array(calls))
            return refuse_request(x, 400, where, "%s must be a list, not %s", where, shown(calls));
        if (!(calls = read_calls(x, calls, where))) return false;
        json_object_set_new(made, "tool_calls", calls);
        if (!content || json_is_null(content)) {
            json_object_del(made, "content");
            return true;
        }
    }
    // What an assistant refused to say is said in place of a content.
    json_t *refused = json_object_get(message, "refusal");
    if ((!content || json_is_null(content)) && json_is_string(refused)) content = refused;
    snprintf(where, sizeof where, "messages[%zu].content", i);
    content = read_content(x, content, where);
    return content && json_object_set_new(made, "content", content) == 0;
}

bool read_messages(exchange *x, json_t *list, conversation *c) {
    json_t *message;
    size_t i;
    c->messages = json_array();
    if (!json_array_size(list))
        return refuse_request(x, 400, "messages", "messages must be a list of at least one, not %s",
                              list ? shown(list) : "missing");
    json_array_foreach(list, i, message) {
        if (!read_message(x, message, i, c)) return false;
    }
    return true;
}

// ------------------------------------------------------------------------------------------- tools

static const char *tool_name(const json_t *tool) {
    return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

static bool has_tool(const conversation *c, const char *name) {
    for (size_t i = 0; i < json_array_size(c->tools); i++)
        if (strcmp(tool_name(json_array_get(c->tools, i)), name) == 0) return true;
    return false;
}

// A model is asked to call, and nothing forces it to: what has to be forced is refused.
static bool read_choice(exchange *x, json_t *wish, conversation *c) {
    static const char unforced[] = "a call cannot be forced; auto leaves it to the model";
    const char *word = json_string_value(wish), *name = tool_name(wish);
    if (!wish || json_is_null(wish) || (word && strcmp(word, "auto") == 0)) return true;
    if (word && strcmp(word, "none") == 0) {
        json_decref(c->tools);
        c->tools = NULL;
        return true;
    }
    if (word && strcmp(word, "required") == 0)
        return refuse_request(x, 400, "tool_choice", "tool_choice: required: %s", unforced);
    if (name && !has_tool(c, name))
        return refuse_request(x, 400, "tool_choice",
                              "tool_choice names %s, which is none of the tools", plain(name));
    if (name)
        return refuse_request(x, 400, "tool_choice", "tool_choice: %s: %s", plain(name), unforced);
    return refuse_request(
        x, 400, "tool_choice",
        "tool_choice must be none, auto, required or the name of a function, not %s", shown(wish));
}

bool read_tools(exchange *x, json_t *tools, json_t *wish, conversation *c) {
    json_t *tool;
    size_t i;
    json_array_foreach(tools, i, tool) {
        if (!tool_name(tool))
            return refuse_request(
                x, 400, "tools",
                "tools[%zu] must be of type function with a function's name, not %s", i,
                shown(tool));
    }
    if (json_array_size(tools)) c->tools = json_incref(tools);
    return read_choice(x, wish, c);
}

// ------------------------------------------------------------------------------------------ prompts

bool prompt_fits(exchange *x, const model *m, size_t n, const char *param) {
    if (!n) return refuse_request(x, 400, param, "%s: there is no token to go on behind", param);
    if (!m->context || (int64_t)n < m->context + !m->engine) return true;
    return refuse_request(x, 400, param, "%s: %zu tokens do not fit into the context of %s: %lld",
                          param, n, m->name, (long long)m->context);
}

// Removes the text after the last message, so that it is continued (transformers' continue_final_message).
static bool cut_behind_last(exchange *x, conversation *c, size_t *n) {
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
        return refuse_request(x, 400, "continue_final_message",
                              "continue_final_message: the chat template does not show the last "
                              "message, or it is empty");
    // A template may strip what it shows.
    const bool whole = strncmp(found, content + blanks, all - blanks) == 0;
    *n = (size_t)(found - c->text) + (whole ? all : bare) - blanks;
    c->text[*n] = '\0';
    return true;
}

static bool render(exchange *x, model *m, conversation *c, size_t *n) {
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
    return ok || refuse_failed(x, 400, "messages");
}

bool make_prompt(exchange *x, model *m, conversation *c) {
    size_t n;
    if (!m->is->chat)
        return refuse_request(x, 400, "model",
                              "%s has no chat template: it goes on with texts (/v1/completions)",
                              m->name);
    if (c->tools && !m->takes_tools)
        return refuse_request(x, 400, "tools",
                              "%s does not support tools: its chat template does not show them",
                              m->name);
    if (!c->variables) c->variables = json_object();
    json_object_set_new(c->variables, "add_generation_prompt",
                        json_boolean(!c->ends_open && !c->continues));
    if (!render(x, m, c, &n) || (c->continues && !cut_behind_last(x, c, &n))) return false;
    if (!encode(m, c->text, n, c->adds_special, &c->ids)) return refuse_failed(x, 400, "messages");
    return prompt_fits(x, m, c->ids.n, "messages");
}

void free_conversation(conversation *c) {
    json_decref(c->messages);
    json_decref(c->tools);
    json_decref(c->variables);
    free_ids(&c->ids);
    free(c->text);
    free(c->tools_text);
}
