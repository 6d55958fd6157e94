// Renders chat templates, a line of JSON each: {"template": text, or "path": file or folder,
// "messages": [...], "tools": [...] or null, "variables": {...}, "now": seconds}. Answers each by a
// line, {"text": ...} or {"error": ...}: what the tests of tests/unit/test_chat.py and
// tests/parity/test_chat.py run.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cotan/chat.h>

// A string is taken as JSON that is written already.
static char *dump(const json_t *value) {
    if (json_is_string(value)) return strdup(json_string_value(value));
    return value && !json_is_null(value) ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
}

// Parts as {"kind", "call", "text"}, neighbours of one kind joined.
static bool hear(const ct_chat_part *part, void *user) {
    json_t *parts = user, *last = json_array_get(parts, json_array_size(parts) - 1);
    const bool joins = last && part->kind != CT_CHAT_CALL &&
                       json_integer_value(json_object_get(last, "kind")) == (int)part->kind &&
                       json_integer_value(json_object_get(last, "call")) == (int)part->call;
    if (joins) {
        json_t *text = json_object_get(last, "text");
        json_t *more = json_sprintf("%s%.*s", json_string_value(text), (int)part->n, part->text);
        return json_object_set_new(last, "text", more) == 0;
    }
    return json_array_append_new(parts,
                                 json_pack("{s:i, s:i, s:s%}", "kind", (int)part->kind, "call",
                                           (int)part->call, "text", part->text, part->n)) == 0;
}

static json_t *take_apart(ct_chat_template *chat, const json_t *line) {
    const char *answer = json_string_value(json_object_get(line, "answer"));
    const char *prompt = json_string_value(json_object_get(line, "prompt"));
    char *tools = dump(json_object_get(line, "tools"));
    json_t *parts = json_array(), *out;
    ct_chat_parser *parser = ct_chat_parser_new(chat, .parse_tool_calls = true, .prompt = prompt,
                                                .tool_definitions = tools);
    if (ct_chat_parser_feed(parser, answer, strlen(answer), hear, parts) &&
        ct_chat_parser_end(parser, hear, parts))
        out = json_pack("{s:s, s:O}", "form", ct_chat_parser_format(parser), "parts", parts);
    else
        out = json_pack("{s:s}", "error", ct_error_text());
    ct_error_clear();
    ct_chat_parser_free(parser);
    json_decref(parts);
    free(tools);
    return out;
}

static json_t *answer(const json_t *line) {
    const char *text = json_string_value(json_object_get(line, "template"));
    const char *path = json_string_value(json_object_get(line, "path"));
    ct_chat_template *chat = path ? ct_chat_template_load(path) : ct_chat_template_new(text);
    if (json_object_get(line, "answer")) {
        json_t *parts = take_apart(chat, line);
        ct_chat_template_free(chat);
        return parts;
    }
    char *messages = dump(json_object_get(line, "messages"));
    char *tools = dump(json_object_get(line, "tools"));
    char *variables = dump(json_object_get(line, "variables"));
    size_t n = 0;
    const char *made =
        ct_chat_render(chat, messages, .tools = tools, .variables = variables, .length = &n,
                       .now = CT_F(json_number_value(json_object_get(line, "now"))));
    json_t *out =
        made ? json_pack("{s:s%}", "text", made, n) : json_pack("{s:s}", "error", ct_error_text());
    ct_error_clear();
    ct_chat_template_free(chat);
    free(messages);
    free(tools);
    free(variables);
    return out;
}

int main(void) {
    static char line[1 << 22];
    while (fgets(line, sizeof line, stdin)) {
        json_error_t fault;
        json_t *request = json_loads(line, JSON_ALLOW_NUL, &fault);
        if (!request) {
            fprintf(stderr, "%s\n", fault.text);
            return 1;
        }
        json_t *out = answer(request);
        char *text = json_dumps(out, JSON_ENCODE_ANY);
        puts(text ? text : "{\"error\": \"no answer\"}");
        fflush(stdout);
        free(text);
        json_decref(out);
        json_decref(request);
    }
    return 0;
}
