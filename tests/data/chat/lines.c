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

static json_t *answer(const json_t *line) {
    const char *text = json_string_value(json_object_get(line, "template"));
    const char *path = json_string_value(json_object_get(line, "path"));
    char *messages = dump(json_object_get(line, "messages"));
    char *tools = dump(json_object_get(line, "tools"));
    char *variables = dump(json_object_get(line, "variables"));
    size_t n = 0;
    ct_chat_template *chat = path ? ct_chat_template_load(path) : ct_chat_template_new(text);
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
