// What models of each family write, and the parts that it is taken apart into, however it is cut.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "cotan/chat.h"
#include "io/utf8.h"

// Parts as a line: "text Hello | call 0 f | arguments 0 {}"; neighbours of one kind are joined.
typedef struct heard {
    ct_text line;
    ct_chat_part_kind kind;
    size_t call, parts, most; // parts that were heard, and that may be
    bool whole;               // each part is whole characters
} heard;

static bool hear(const ct_chat_part *part, void *user) {
    static const char *const names[] = {"text", "reasoning", "call", "arguments"};
    heard *h = user;
    const bool call = part->kind == CT_CHAT_CALL || part->kind == CT_CHAT_ARGUMENTS;
    const bool more =
        h->parts && part->kind == h->kind && part->call == h->call && part->kind != CT_CHAT_CALL;
    if (!more) ct__textf(&h->line, "%s%s ", h->parts ? " | " : "", names[part->kind]);
    if (!more && call) ct__textf(&h->line, "%zu ", part->call);
    ct__text_bytes(&h->line, part->text, part->n);
    h->whole &= ct__utf8_bad(part->text, part->n) == part->n;
    h->kind = part->kind;
    h->call = part->call;
    return ++h->parts != h->most;
}

typedef struct sample {
    const char *template, *prompt, *tools, *text, *parts;
} sample;

#define TOOLS                                                                                      \
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"properties\": {" \
    "\"s\": {\"type\": \"string\"}, \"i\": {\"type\": \"integer\"}}}}}]"

// Parameters whose schemas say more than one word.
#define UNIONS                                                                                     \
    "[{\"name\": \"f\", \"parameters\": {\"properties\": {"                                        \
    "\"a\": {\"type\": [\"string\", \"null\"]}, \"b\": {\"anyOf\": [{\"type\": \"string\"}, "      \
    "{\"type\": \"null\"}]}, \"c\": {\"anyOf\": [{\"type\": \"string\"}, {\"type\": "              \
    "\"integer\"}]}, "                                                                             \
    "\"d\": {\"enum\": [\"1\", \"2\"]}, \"e\": {\"type\": [\"integer\", \"null\"]}, \"g\": "       \
    "{\"anyOf\": 1}}}}]"

static const char hermes[] = "<tool_call></tool_call><think></think>";
static const char coder[] = "<tool_call><function=><parameter=>";
static const char glm[] = "<tool_call><arg_key><arg_value></think>";
static const char v3[] = "<｜tool▁calls▁begin｜>```json</think>";
static const char kimi[] = "<|tool_call_begin|><|tool_call_argument_begin|></think>";
static const char harmony[] = "<|channel|><|message|>";
static const char dsml[] = "｜DSML｜ function_calls></think>";

static const sample samples[] = {
    {hermes, NULL, NULL, "Hello, world.\n", "text Hello, world.\n"},
    {hermes, NULL, NULL, "a < b, <tool, é\n\n<b>", "text a < b, <tool, é\n\n<b>"},
    {hermes, NULL, NULL,
     "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"é\\n\"]}}\n</tool_call>",
     "call 0 f | arguments 0 {\"a\": [1, \"é\\n\"]}"},
    {hermes, NULL, NULL,
     "<think>\nLet me "
     "<see>.\n</think>\n\nYes.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n"
     "<tool_call>\n{\"arguments\": {\"x\": 1.5e3}, \"name\": \"g\"}\n</tool_call>\nDone. ",
     "reasoning Let me <see>. | text Yes. | call 0 f | arguments 0 {} | call 1 g | "
     "arguments 1 {\"x\": 1.5e3} | text Done. "},
    {hermes, "<|im_start|>assistant\n<think>\n", NULL, "Hm.\n</think>\nYes. </think>",
     "reasoning Hm. | text Yes. </think>"},
    {hermes, "<think>\n\n</think>\n\n", NULL, "Yes. <think>", "text Yes. <think>"},
    {hermes, NULL, NULL, "<think>unfinished\n", "reasoning unfinished\n"},
    {hermes, NULL, NULL, "<tool_call>{\"name\": \"f\"}</tool_call>", "call 0 f | arguments 0 {}"},
    {hermes, NULL, NULL,
     "<tool_call>{\"id\": [{}], \"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
     "call 0 f | arguments 0 {\"a\": 1}"},
    {hermes, NULL, NULL,
     "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x\ny\\ud83d\\ude00\\ud83d!\"}}",
     "call 0 f | arguments 0 {\"a\": \"x\\ny\\ud83d\\ude00\\ufffd!\"}"},
    {hermes, NULL, NULL, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}\n</tool_call> ok",
     "call 0 f | arguments 0 {\"a\": 1} | text ok"},
    // Malformed and unfinished calls are text.
    {hermes, NULL, NULL, " <tool_call>\nf(1)</tool_call>", "text  <tool_call>\nf(1)</tool_call>"},
    {hermes, NULL, NULL, "a <tool_call> {\"name\": \"f\"", "text a <tool_call> {\"name\": \"f\""},
    {hermes, NULL, NULL, "<tool_call>{\"name\": 1, \"arguments\": {}}",
     "text <tool_call>{\"name\": 1, \"arguments\": {}}"},
    {hermes, NULL, NULL, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": tru, \"b\": 1}} x",
     "call 0 f | arguments 0 {\"a\":  | text tru, \"b\": 1}} x"},
    {hermes, NULL, NULL, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"b\\u00",
     "call 0 f | arguments 0 {\"a\": \"b | text \\u00"},
    {hermes, NULL, NULL, "<tool_call>{\"name\": \"f\", \"arguments\": \"{\"}",
     "text <tool_call>{\"name\": \"f\", \"arguments\": \"{\"}"},
    {hermes, NULL, NULL, "<tool_call>{\"name\": \"f\", \"arguments\": {\"\\u0000\": \"\\u0000\"}}",
     "call 0 f | arguments 0 {\" | text \\u0000\": \"\\u0000\"}}"},
    {hermes, NULL, NULL, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1 x]}}",
     "call 0 f | arguments 0 {\"a\": [1  | text x]}}"},
    {hermes, NULL, NULL, "<tool_call>oh<tool_call>{\"name\": \"f\"}",
     "text <tool_call>oh | call 0 f | arguments 0 {}"},
    {hermes, "<tool_call>\n", NULL, "{\"name\": \"f\"}</tool_call>", "call 0 f | arguments 0 {}"},
    // Parameters as text, with and without what the tools say of them.
    {coder, NULL, NULL,
     "I look.\n\n<tool_call>\n<function=f>\n<parameter=s>\nx < "
     "\"y\"\n\nz\n</parameter>\n<parameter=i>\n-5\n"
     "</parameter>\n<parameter=l>\n[1, 'a', None,]\n</parameter>\n</function>\n</tool_call>",
     "text I look. | call 0 f | arguments 0 {\"s\": \"x < \\\"y\\\"\\n\\nz\", \"i\": -5, \"l\": "
     "[1, \"a\", null]}"},
    {coder, NULL, TOOLS,
     "<tool_call>\n<function=f>\n<parameter=s>\n5\n</parameter>\n<parameter=i>\n5\n</parameter>\n</"
     "function>\n</tool_call>",
     "call 0 f | arguments 0 {\"s\": \"5\", \"i\": 5}"},
    {coder, NULL, TOOLS, "<tool_call>\n<function=f>\n<parameter=s>\né\n</param",
     "call 0 f | arguments 0 {\"s\": \"é | text \n</param"},
    {coder, NULL, NULL,
     "<function=f>\n</function>\n<function=g><parameter=a>True</parameter></function></"
     "tool_call>\nBye",
     "call 0 f | arguments 0 {} | call 1 g | arguments 1 {\"a\": true} | text Bye"},
    {coder, NULL, NULL, "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\nWell",
     "call 0 f | arguments 0 {\"a\": 1 | text \nWell"},
    {"<seed:tool_call><seed:think></seed:think>", NULL, NULL,
     "<seed:think>Hm</seed:think><seed:tool_call>\n<function=f>\n<parameter=a>v "
     "1</parameter>\n</function>\n</seed:tool_call>",
     "reasoning Hm | call 0 f | arguments 0 {\"a\": \"v 1\"}"},
    {"<minimax:tool_call></think>", "]~b]ai\n<think>\n", NULL,
     "Hm\n</think>\n\n<minimax:tool_call>\n<invoke name=\"f\">\n<parameter "
     "name=\"a\">1</parameter>\n<parameter name=\"b\">x</parameter>\n</invoke>\n"
     "<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>",
     "reasoning Hm | call 0 f | arguments 0 {\"a\": 1, \"b\": \"x\"} | call 1 g | arguments 1 {}"},
    {dsml, NULL, NULL,
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" "
     "string=\"true\">12</｜DSML｜parameter>\n"
     "<｜DSML｜parameter name=\"b\" "
     "string=\"false\">\"q\"</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
     "call 0 f | arguments 0 {\"a\": \"12\", \"b\": \"q\"}"},
    {glm, NULL, NULL,
     "\n<think>Hm</think>\n<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>two\nlines</"
     "arg_value>\n<arg_key>b</arg_key>\n<arg_value>{\"c\": 1}</arg_value>\n</tool_call>\n"
     "<tool_call>g</tool_call><tool_call>h<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>",
     "reasoning Hm | call 0 f | arguments 0 {\"a\": \"two\\nlines\", \"b\": {\"c\": 1}} | call 1 g "
     "| arguments 1 {} | call 2 h | arguments 2 {\"a\": 1}"},
    {"<function name=\"<param name=\"", NULL, NULL,
     "<function name=\"f\"><param name=\"a\">1</param></function>",
     "call 0 f | arguments 0 {\"a\": 1}"},
    {coder, NULL, UNIONS,
     "<function=f><parameter=a>1</parameter><parameter=b>1</parameter><parameter=c>1</parameter>"
     "<parameter=d>1</parameter><parameter=e>\"1\"</parameter><parameter=g>1</parameter></"
     "function>",
     "call 0 f | arguments 0 {\"a\": \"1\", \"b\": \"1\", \"c\": 1, \"d\": \"1\", \"e\": \"1\", "
     "\"g\": 1}"},
    // A name, then JSON.
    {v3, NULL, NULL,
     "Ok<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": "
     "1}\n```<｜tool▁call▁end｜>\n"
     "<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜><"
     "｜tool▁calls▁end｜>",
     "text Ok | call 0 f | arguments 0 {\"a\": 1} | call 1 g | arguments 1 {}"},
    {"<｜tool▁calls▁begin｜></think>", "<think>", NULL,
     "Hm</think>Ok<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": "
     "1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "reasoning Hm | text Ok | call 0 f | arguments 0 {\"a\": 1}"},
    {kimi, NULL, NULL,
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"
     "\"a\": 1}<|tool_call_end|>"
     "<|tool_call_begin|>functions.g.h:12<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_"
     "calls_section_end|>",
     "call 0 f | arguments 0 {\"a\": 1} | call 1 g.h | arguments 1 {}"},
    {kimi, NULL, NULL,
     "<|tool_calls_section_begin|> no <|tool_call_begin|>two words<|tool_call_argument_begin|>{}",
     "text <|tool_calls_section_begin|> no <|tool_call_begin|>two "
     "words<|tool_call_argument_begin|>{}"},
    {"<|tool_call:begin|><|tool_call:args|>assistant<|think|>", NULL, NULL,
     "<|think|>Hm<|end|><|begin|>assistant<|content|>Ok<|end|><|begin|>assistant<|tool_calls|><|"
     "tool_call:begin|>id1<|tool_call:name|>f<|tool_call:args|>{\"a\": 1}<|tool_call:end|>",
     "reasoning Hm | text Ok | call 0 f | arguments 0 {\"a\": 1}"},
    {"[TOOL_CALLS][THINK]", NULL, NULL,
     "[THINK]Hm[/THINK]Ok[TOOL_CALLS]f[ARGS]{\"a\": "
     "1}[TOOL_CALLS]g[CALL_ID]abc123[ARGS]{}[TOOL_CALLS]h{\"b\": 2}",
     "reasoning Hm | text Ok | call 0 f | arguments 0 {\"a\": 1} | call 1 g | arguments 1 {} | "
     "call 2 h | arguments 2 {\"b\": 2}"},
    {"[TOOL_CALLS]", NULL, NULL,
     "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": "
     "{}, \"id\": \"abc\"}]",
     "call 0 f | arguments 0 {\"a\": 1} | call 1 g | arguments 1 {}"},
    {"[TOOL_CALLS]", NULL, NULL, "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}, oh]",
     "call 0 f | arguments 0 {} | text , oh]"},
    {"<function=example></function>", NULL, NULL, "<function=f>{\"a\": 1}</function>",
     "call 0 f | arguments 0 {\"a\": 1}"},
    {">>>all\n", "assistant\n\n>>>", NULL, "all\nHi >> you\n>>>f\n{\"a\": 1}>>>g\n{}",
     "text Hi >> you | call 0 f | arguments 0 {\"a\": 1} | call 1 g | arguments 1 {}"},
    {harmony, "<|end|><|start|>assistant", NULL,
     "<|channel|>analysis<|message|>We "
     "think.<|end|><|start|>assistant<|channel|>commentary<|message|>Wait.<|end|>"
     "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": "
     "\"b\"}<|call|>",
     "reasoning We think. | text Wait. | call 0 f | arguments 0 {\"a\": \"b\"}"},
    {harmony, "<|start|>assistant", NULL, " to=functions.f<|channel|>commentary json<|message|>{}",
     "call 0 f | arguments 0 {}"},
    {harmony, NULL, NULL, "<|channel|>final<|message|>Yes.<|return|>", "text Yes."},
    {harmony, NULL, NULL, "<|channel|>commentary to=functions.f<|message|>print(1)",
     "text <|channel|>commentary to=functions.f<|message|>print(1)"},
    // Lists of JSON.
    {"<|START_ACTION|><|END_ACTION|><|START_THINKING|>", NULL, NULL,
     "<|START_THINKING|>Hm.<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", "
     "\"tool_name\": \"f\", \"parameters\": {\"a\": 1}}\n]<|END_ACTION|>",
     "reasoning Hm. | call 0 f | arguments 0 {\"a\": 1}"},
    {"<|START_ACTION|><|END_ACTION|><|START_THINKING|>", NULL, NULL,
     "<|START_RESPONSE|>Hi <b>.<|END_RESPONSE|>", "text Hi <b>."},
    {"Action:\n```json tool_name", NULL, NULL,
     "Plan: x\nAction: ```json\n[\n    {\n        \"tool_name\": \"f\",\n        \"parameters\": "
     "{}\n    }\n]\n```",
     "text Plan: x | call 0 f | arguments 0 {}"},
    {"<|tool|><|/tool|>", NULL, NULL,
     "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]<|/tool_call|>",
     "call 0 f | arguments 0 {}"},
    {"<|tool|><|/tool|>", NULL, NULL, " functools[{\"name\": \"f\", \"arguments\": {}}]",
     "call 0 f | arguments 0 {}"},
    {"functools[", NULL, NULL,
     "I use functools a lot. functools[{\"name\": \"f\", \"arguments\": {}}]",
     "text I use functools a lot. | call 0 f | arguments 0 {}"},
    {"<|tool_call|></think>", NULL, NULL, "<think>Hm</think><response>Hi</response>",
     "reasoning Hm | text Hi"},
    {"<|tool_call|>", NULL, NULL, "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]",
     "call 0 f | arguments 0 {\"a\": 1}"},
    {"<TOOLCALL></think>", NULL, NULL,
     "<think>\nHm\n</think>\n\n<TOOLCALL>[{\"name\": \"f\", \"arguments\": {}}]</TOOLCALL>",
     "reasoning Hm | call 0 f | arguments 0 {}"},
    {"<|tools_prefix|>", NULL, NULL,
     "Hi<|tools_prefix|>[{\"f\": {\"a\": 1}}, {\"g\": {}}]<|tools_suffix|>",
     "text Hi | call 0 f | arguments 0 {\"a\": 1} | call 1 g | arguments 1 {}"},
    {"<tool_calls></tool_calls>\"arguments\"", NULL, NULL,
     "<tool_calls>\n{\"name\": \"f\", \"arguments\": {}}\n{\"name\": \"g\", \"arguments\": "
     "{}}\n</tool_calls>",
     "call 0 f | arguments 0 {} | call 1 g | arguments 1 {}"},
    {"<|function_call|>", NULL, NULL, "<|function_call|>{\"name\": \"f\", \"arguments\": {}}",
     "call 0 f | arguments 0 {}"},
    // Calls without a mark.
    {"<|python_tag|>", NULL, NULL,
     "{\"name\": \"f\", \"parameters\": {\"a\": 1}}; {\"name\": \"g\", \"parameters\": {}}",
     "call 0 f | arguments 0 {\"a\": 1} | call 1 g | arguments 1 {}"},
    {"<|python_tag|>", NULL, NULL, "{\"name\": \"f\", \"age\": 3}",
     "text {\"name\": \"f\", \"age\": 3}"},
    {"<|python_tag|>", NULL, TOOLS, "{\"name\": \"g\", \"parameters\": {}}",
     "text {\"name\": \"g\", \"parameters\": {}}"},
    {"<|python_tag|>", NULL, TOOLS, "So: {\"name\": \"f\", \"parameters\": {}}",
     "text So: {\"name\": \"f\", \"parameters\": {}}"},
    {"<|python_tag|>", NULL, NULL,
     "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}",
     "call 0 f | arguments 0 {}"},
    {"dictionary of argument name and its value", NULL, NULL,
     "{\"name\": \"f\", \"parameters\": {}}; ok", "call 0 f | arguments 0 {} | text ; ok"},
    {"func_name1(params_name1=params_value1", NULL, NULL,
     "[f(a=1, b='it\\'s \"x\"', c=[True, None, {'k': 2.5,}]), g()]",
     "call 0 f | arguments 0 {\"a\": 1, \"b\": \"it's \\\"x\\\"\", \"c\": [true, null, {\"k\": "
     "2.5}]} | call 1 g | arguments 1 {}"},
    {"func_name1(params_name1=params_value1", NULL, NULL, "[see(1)]", "text [see(1)]"},
    {"func_name1(params_name1=params_value1", NULL, NULL,
     "<|python_start|>[f(a=\"\\x41\\d\")]<|python_end|>",
     "call 0 f | arguments 0 {\"a\": \"\\u0041\\\\d\"}"},
    {"List of tools: [</think>", NULL, NULL,
     "<|tool_call_start|>[f(a=\"b\", n=2)]<|tool_call_end|>Looking.",
     "call 0 f | arguments 0 {\"a\": \"b\", \"n\": 2} | text Looking."},
    {"func_name1(params_name1=params_value1", NULL, NULL, "[fé(a=1)]", "text [fé(a=1)]"},
    {"<|tool_call>call:<|\"|><|channel>thought", NULL, NULL,
     "<|channel>thought\nHm\n<channel|>Ok<|tool_call>call:f{a:<|\"|>x "
     "<\"y\"\\<|\"|>,b:[1,{c:null}],<|\"|>d<|\"|>:true}<tool_call|><|tool_call>call:g{}<tool_call|"
     ">",
     "reasoning Hm | text Ok | call 0 f | arguments 0 {\"a\": \"x <\\\"y\\\"\\\\\", \"b\": [1, "
     "{\"c\": null}], \"d\": true} | call 1 g | arguments 1 {}"},
    {"xtml_type 'argument'", "<|open|>think<|sep|>", NULL,
     "Hm<|close|>think<|sep|><|open|>response<|sep|>Ok<|close|>response<|sep|><|open|>tools<|sep|><"
     "|open|>call tool=\"f\" index=\"1\"<|sep|>"
     "<|open|>argument key=\"a\" type=\"string\"<|sep|>1<|close|>argument<|sep|><|open|>argument "
     "key=\"b\" type=\"number\"<|sep|>1<|close|>argument<|sep|>"
     "<|close|>call<|sep|><|close|>tools<|sep|>",
     "reasoning Hm | text Ok | call 0 f | arguments 0 {\"a\": \"1\", \"b\": 1}"},
    {"<think{}><tool_calls{}><arg_key{}>':opensource'", NULL, NULL,
     "<think:opensource>Hm</"
     "think:opensource><tool_calls:opensource>\n<tool_call:opensource>f<tool_sep:opensource>\n<arg_"
     "key:opensource>a</arg_key:opensource>\n"
     "<arg_value:opensource>1</arg_value:opensource>\n</tool_call:opensource>\n</"
     "tool_calls:opensource>",
     "reasoning Hm | call 0 f | arguments 0 {\"a\": 1}"},
    {"nothing", NULL, NULL, "<tool_call>{\"name\": \"f\"}</tool_call> \n",
     "text <tool_call>{\"name\": \"f\"}</tool_call> \n"},
};
enum { SAMPLES = sizeof samples / sizeof *samples };

static ct_chat_parser *parser_of(const sample *s) {
    ct_chat_template *chat = ct_chat_template_new(s->template);
    ct_chat_parser *p = ct_chat_parser_new(chat, .parse_tool_calls = true, .prompt = s->prompt,
                                           .tool_definitions = s->tools);
    ct_chat_template_free(chat);
    if (!p) fail_msg("%s", ct_error_text());
    return p;
}

static void feed(ct_chat_parser *p, const char *text, size_t n, heard *h) {
    char *exact = malloc(n ? n : 1); // a sanitizer sees reads beyond
    memcpy(exact, text, n);
    assert_true(ct_chat_parser_feed(p, exact, n, hear, h));
    free(exact);
}

static void check(heard *h, const char *want) {
    if (!h->line.s || strcmp(h->line.s, want) != 0)
        fail_msg("\nwant: %s\ngot:  %s", want, h->line.s ? h->line.s : "");
    assert_true(h->whole);
    ct__text_free(&h->line);
    *h = (heard){.whole = true};
}

static void every_family_at_every_cut(void **state) {
    (void)state;
    for (int i = 0; i < SAMPLES; i++) {
        const sample *s = &samples[i];
        const size_t n = strlen(s->text);
        ct_chat_parser *p = parser_of(s);
        heard h = {.whole = true};
        for (size_t cut = 0; cut <= n; cut++) { // of two pieces; all at once is the first
            feed(p, s->text, cut, &h);
            feed(p, s->text + cut, n - cut, &h);
            assert_true(ct_chat_parser_end(p, hear, &h));
            check(&h, s->parts);
        }
        for (size_t piece = 1; piece <= 3; piece++) {
            for (size_t at = 0; at < n; at += piece)
                feed(p, s->text + at, n - at < piece ? n - at : piece, &h);
            assert_true(ct_chat_parser_end(p, hear, &h));
            check(&h, s->parts);
        }
        ct_chat_parser_free(p);
    }
}

// ------------------------------------------------------------------------------------------ options

static void tell(ct_chat_parser *p, const char *text, const char *want) {
    heard h = {.whole = true};
    assert_non_null(p);
    feed(p, text, strlen(text), &h);
    assert_true(ct_chat_parser_end(p, hear, &h));
    check(&h, want);
    ct_chat_parser_free(p);
}

static void calls_and_reasoning_may_be_text(void **state) {
    (void)state;
    static const char text[] = " <think> a </think>\n<tool_call>{\"name\": \"f\"}</tool_call> ";
    ct_chat_template *chat = ct_chat_template_new(hermes), *oss = ct_chat_template_new(harmony);
    tell(ct_chat_parser_new(chat), text,
         "reasoning a | text <tool_call>{\"name\": \"f\"}</tool_call> ");
    tell(ct_chat_parser_new(chat, .keep_reasoning = true), text,
         "text  <think> a </think>\n<tool_call>{\"name\": \"f\"}</tool_call> ");
    tell(ct_chat_parser_new(chat, .keep_reasoning = true, .parse_tool_calls = true),
         "<think><tool_call>{\"name\": \"f\"}</think><tool_call>{\"name\": \"g\"}",
         "text <think><tool_call>{\"name\": \"f\"}</think> | call 0 g | arguments 0 {}");
    tell(ct_chat_parser_new(oss, .keep_reasoning = true),
         "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b",
         "text <|channel|>analysis<|message|>a<|end|>b");
    ct_chat_template_free(chat);
    ct_chat_template_free(oss);
}

static void a_form_has_a_name(void **state) {
    (void)state;
    ct_chat_template *chat = ct_chat_template_new(hermes);
    ct_chat_parser *p = ct_chat_parser_new(chat);
    assert_string_equal(ct_chat_parser_format(p), "hermes");
    ct_chat_parser_free(p);
    ct_chat_template_free(chat);
}

static void errors_are_sentences(void **state) {
    (void)state;
    ct_chat_template *chat = ct_chat_template_new(hermes);
    heard h = {0};
    const int line = __LINE__ + 1;
    assert_null(ct_chat_parser_new(NULL));
    char want[160];
    snprintf(want, sizeof want, "%s:%d: chat_parser_new: the template must not be NULL", __FILE__,
             line);
    assert_string_equal(ct_error_text(), want);
    ct_error_clear();
    const int second = __LINE__ + 1;
    assert_null(ct_chat_parser_new(chat, .tool_definitions = "{}"));
    snprintf(want, sizeof want, "%s:%d: chat_parser_new: descriptions: a JSON list is expected",
             __FILE__, second);
    assert_string_equal(ct_error_text(), want);
    ct_error_clear();
    ct_chat_parser *p = ct_chat_parser_new(chat);
    assert_false(ct_chat_parser_feed(NULL, "a", 1, hear, &h));
    assert_string_equal(ct_error_text(), "chat_parser_feed: the parser must not be NULL");
    ct_error_clear();
    assert_false(ct_chat_parser_feed(p, NULL, 1, hear, &h));
    assert_string_equal(ct_error_text(), "chat_parser_feed: the text must not be NULL");
    ct_error_clear();
    assert_false(ct_chat_parser_feed(p, "a", 1, NULL, &h));
    assert_string_equal(ct_error_text(),
                        "chat_parser_feed: the callback for parts must not be NULL");
    ct_error_clear();
    assert_false(ct_chat_parser_end(p, NULL, &h));
    assert_string_equal(ct_error_text(),
                        "chat_parser_end: the callback for parts must not be NULL");
    ct_error_clear();
    assert_null(ct_chat_parser_format(NULL));
    assert_string_equal(ct_error_text(), "chat_parser_format: the parser must not be NULL");
    ct_error_clear();
    ct_chat_parser_free(p);
    ct_chat_template_free(chat);
}

static void a_listener_may_stop(void **state) {
    (void)state;
    static const char text[] =
        "a <tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call> b";
    ct_chat_template *chat = ct_chat_template_new(hermes);
    ct_chat_parser *p = ct_chat_parser_new(chat, .parse_tool_calls = true);
    for (size_t most = 1; most <= 3; most++) {
        heard h = {.whole = true, .most = most};
        assert_false(ct_chat_parser_feed(p, text, strlen(text), hear, &h));
        assert_false(ct_chat_parser_feed(p, text, strlen(text), hear, &h));
        assert_int_equal(h.parts, most);
        assert_false(ct_chat_parser_end(p, hear, &h));
        assert_false(ct_failed());
        ct__text_free(&h.line);
        h = (heard){.whole = true};
        feed(p, "new", 3, &h); // it has begun anew
        assert_true(ct_chat_parser_end(p, hear, &h));
        check(&h, "text new");
    }
    ct_chat_parser_free(p);
    ct_chat_template_free(chat);
}

// -------------------------------------------------------------------------------- when, and how much

// What is sure is told with the byte that makes it so.
static void parts_are_told_when_they_are_sure(void **state) {
    (void)state;
    static const struct {
        const char *template, *feeds[6], *lines[6];
    } steps[] = {
        {hermes,
         {"Hel", "lo <", "tool", "s>"},
         {"text Hel", "text Hello", "text Hello", "text Hello <tools>"}},
        {hermes,
         {"<tool_call>{\"name\": \"f\", \"arguments\": ", "{\"a\": \"b", "c\\", "n\", \"n\": 1",
          "2}"},
         {"", "call 0 f | arguments 0 {\"a\": \"b", "call 0 f | arguments 0 {\"a\": \"bc",
          "call 0 f | arguments 0 {\"a\": \"bc\\n\", \"n\": ",
          "call 0 f | arguments 0 {\"a\": \"bc\\n\", \"n\": 12}"}},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        const sample s = {.template = steps[i].template};
        ct_chat_parser *p = parser_of(&s);
        heard h = {.whole = true};
        for (int k = 0; k < 6 && steps[i].feeds[k]; k++) {
            feed(p, steps[i].feeds[k], strlen(steps[i].feeds[k]), &h);
            assert_string_equal(h.line.s ? h.line.s : "", steps[i].lines[k]);
        }
        ct__text_free(&h.line);
        ct_chat_parser_free(p);
    }
}

static void long_strings_are_told_as_they_come(void **state) {
    (void)state;
    const sample s = {.template = coder, .tools = TOOLS};
    ct_chat_parser *p = parser_of(&s);
    heard h = {.whole = true};
    static const char begin[] = "<tool_call>\n<function=f>\n<parameter=s>\n#include";
    feed(p, begin, strlen(begin), &h);
    assert_string_equal(h.line.s, "call 0 f | arguments 0 {\"s\": \"#include");
    ct__text_free(&h.line);
    ct_chat_parser_free(p);
}

static void depth_is_bounded(void **state) {
    (void)state;
    for (int depth = 126; depth <= 128; depth++) { // of lists in the object
        char text[700] = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": ",
             *at = text + strlen(text);
        memset(at, '[', (size_t)depth);
        memset(at + depth, ']', (size_t)depth);
        strcpy(at + 2 * depth, "}}</tool_call>");
        const sample s = {.template = hermes};
        ct_chat_parser *p = parser_of(&s);
        heard h = {.whole = true};
        feed(p, text, strlen(text), &h);
        assert_true(ct_chat_parser_end(p, hear, &h));
        assert_int_equal(strstr(h.line.s, "text ") != NULL, depth > 127);
        ct__text_free(&h.line);
        ct_chat_parser_free(p);
    }
}

static bool count(const ct_chat_part *part, void *user) {
    *(size_t *)user += part->n;
    return true;
}

// Two million bytes of what is held back, a byte at a time: a step that looked at all of it again
// would take minutes.
static void time_is_linear(void **state) {
    (void)state;
    static const struct {
        const char *template, *begin, *again;
    } all[] = {
        {hermes, "<tool_call>{\"arguments\": {\"a\": \"", "x"},
        {hermes, "<tool_call>{\"arguments\": \"", "x"},
        {hermes, "", " "},
        {hermes, "", "<tool_call>"},
        {hermes, "", "<tool_call>{\"x\": \""},
        {coder, "<tool_call><function=f><parameter=a>", "\n"},
        {coder, "", "<function=f><parameter=a>"},
        {harmony, "<|channel|>", "<|start|>"},
        {"<|python_tag|>", "", "{"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const sample s = {.template = all[i].template};
        ct_chat_parser *p = parser_of(&s);
        const char *again = all[i].again;
        size_t heard_of = 0;
        assert_true(ct_chat_parser_feed(p, all[i].begin, strlen(all[i].begin), count, &heard_of));
        for (size_t k = 0, m = strlen(again); k < 200000; k++)
            assert_true(ct_chat_parser_feed(p, again + k % m, 1, count, &heard_of));
        assert_true(ct_chat_parser_end(p, count, &heard_of));
        assert_true(heard_of >= 190000);
        ct_chat_parser_free(p);
    }
}

static void allocations_may_fail(void **state) {
    (void)state;
    for (int i = 0; i < SAMPLES; i++) {
        bool done = false;
        for (int failures = 0; !done; failures++) {
            size_t n = 0;
            ct__fail_alloc_after(failures);
            ct_chat_template *chat = ct_chat_template_new(samples[i].template);
            ct_chat_parser *p = ct_chat_parser_new(chat, .parse_tool_calls = true,
                                                   .tool_definitions = samples[i].tools);
            done = ct_chat_parser_feed(p, samples[i].text, strlen(samples[i].text), count, &n) &&
                   ct_chat_parser_end(p, count, &n);
            ct__fail_alloc_after(-1);
            assert_int_equal(done, !ct_failed());
            ct_error_clear();
            ct_chat_parser_free(p);
            ct_chat_template_free(chat);
            assert_true(failures < 1000);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_at_every_cut),
        cmocka_unit_test(calls_and_reasoning_may_be_text),
        cmocka_unit_test(a_form_has_a_name),
        cmocka_unit_test(errors_are_sentences),
        cmocka_unit_test(a_listener_may_stop),
        cmocka_unit_test(parts_are_told_when_they_are_sure),
        cmocka_unit_test(long_strings_are_told_as_they_come),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(time_is_linear),
        cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
