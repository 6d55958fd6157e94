#include <jansson.h>

#include "cotan/chat.h"
#include "fuzz/harness/harness.h"
#include "io/json.h"
#include "io/utf8.h"

// The first byte names a family, the second how what follows is cut. Whatever a model writes, the
// parts are the same however it comes, each is whole characters, and arguments whose brackets are
// closed are an object.
enum { FAMILIES = 26, MOST_CALLS = 64 };
static const char *const families[FAMILIES] = {
    "<tool_call></tool_call></think>",
    "<tool_call><function=><parameter=></think>",
    "<tool_call><arg_key><arg_value></think>",
    "<｜tool▁calls▁begin｜>```json</think>",
    "<｜tool▁calls▁begin｜></think>",
    "<|tool_call_begin|><|tool_call_argument_begin|></think>",
    "<|channel|><|message|>",
    "｜DSML｜ function_calls></think>",
    "[TOOL_CALLS][THINK]",
    "<minimax:tool_call></think>",
    "<seed:tool_call></seed:think>",
    "<function name=\"<param name=\"",
    "<function=example></function>",
    ">>>all\n",
    "<|START_ACTION|><|END_ACTION|><|START_THINKING|>",
    "Action:\n```json tool_name",
    "<|tool|><|/tool|>",
    "<|tool_call|></think>",
    "<TOOLCALL></think>",
    "<|tools_prefix|><|inner_prefix|>",
    "<|python_tag|>",
    "func_name1(params_name1=params_value1",
    "List of tools: [</think>",
    "<|tool_call:begin|><|tool_call:args|>assistant<|think|>",
    "<|tool_call>call:<|\"|><|channel>thought",
    "xtml_type 'argument'",
};

typedef struct heard {
    char *s; // kinds and texts, joined where they are alike
    size_t n;
    ct_chat_part_kind kind;
    size_t call, calls, begin[MOST_CALLS], end[MOST_CALLS]; // of arguments
} heard;

static bool hear(const ct_chat_part *part, void *user) {
    heard *h = user;
    const bool arguments = part->kind == CT_CHAT_ARGUMENTS;
    EXPECT(part->n > 0 && ct__utf8_bad(part->text, part->n) == part->n);
    EXPECT(part->kind != CT_CHAT_CALL || part->call == h->calls);
    EXPECT(!arguments || part->call + 1 == h->calls);
    if (!h->n || part->kind != h->kind || part->kind == CT_CHAT_CALL) {
        h->s[h->n++] = (char)('0' + part->kind);
        if (arguments && part->call < MOST_CALLS) h->begin[part->call] = h->n;
    }
    memcpy(h->s + h->n, part->text, part->n);
    h->n += part->n;
    if (arguments && part->call < MOST_CALLS) h->end[part->call] = h->n;
    h->calls += part->kind == CT_CHAT_CALL;
    h->kind = part->kind;
    return true;
}

static void take_apart(ct_chat_parser *p, const char *s, size_t n, size_t piece, heard *h) {
    *h = (heard){.s = malloc(16 * n + 64)}; // an escape of six bytes for one, names and keys
    EXPECT(h->s);
    for (size_t at = 0; at < n; at += piece)
        EXPECT(ct_chat_parser_feed(p, s + at, n - at < piece ? n - at : piece, hear, h));
    EXPECT(ct_chat_parser_end(p, hear, h));
}

static bool is_closed(const char *s, size_t n) { // each bracket, and nothing behind
    size_t depth = 0;
    bool string = false;
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '"') string = !string;
        if (string && s[i] == '\\') i++;
        if (string) continue;
        if (s[i] == '{' || s[i] == '[') depth++;
        if ((s[i] == '}' || s[i] == ']') && --depth == 0) return i + 1 == n;
    }
    return false;
}

static void check_arguments(const heard *h) {
    for (size_t i = 0; i < h->calls && i < MOST_CALLS; i++) {
        const char *s = h->s + h->begin[i];
        const size_t n = h->end[i] - h->begin[i];
        if (!h->end[i] || !is_closed(s, n)) continue; // malformed, or unfinished
        json_error_t fault;
        json_t *json = ct__json_read(s, n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &fault);
        EXPECT(json_is_object(json));
        json_decref(json);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static ct_chat_parser *parsers[FAMILIES][2];
    if (n < 2 || ct__utf8_bad(bytes + 2, n - 2) != n - 2) return 0;
    const size_t family = *bytes % FAMILIES, thinks = *bytes / FAMILIES % 2;
    ct_chat_parser **p = &parsers[family][thinks];
    if (!*p) {
        ct_chat_template *chat = ct_chat_template_new(families[family]);
        *p = ct_chat_parser_new(chat, .parse_tool_calls = true, .prompt = thinks ? "<think>" : NULL,
                                .tool_definitions =
                                    thinks ? "[{\"name\": \"f\", \"parameters\": {\"properties\": "
                                             "{\"a\": {\"type\": \"string\"}}}}]"
                                           : NULL);
        ct_chat_template_free(chat);
    }
    heard whole, cut;
    take_apart(*p, (const char *)bytes + 2, n - 2, n, &whole);
    take_apart(*p, (const char *)bytes + 2, n - 2, 1u + bytes[1] % 8u, &cut);
    EXPECT(whole.n == cut.n && memcmp(whole.s, cut.s, whole.n) == 0);
    check_arguments(&whole);
    free(whole.s);
    free(cut.s);
    return 0;
}
