// Chat templates: a conversation as the text that a model was trained on, by the template that its
// folder brings, a program in Jinja's language.
//
// Templates are taken as hostile. They compute text from JSON and reach nothing else; what they may
// take of time, memory and depth is bounded, and an error names the template's line. What they mean
// is what transformers makes of them (apply_chat_template).
#ifndef COTAN_CHAT_H
#define COTAN_CHAT_H

#include "cotan/cotan.h"

#ifdef __cplusplus
extern "C" {
#endif

// One template, or several by name; belongs to no context, and is used by one thread at a time.
typedef struct ct_chat_template ct_chat_template;

// From the text of a template, UTF-8. NULL: see ct_error_text; so is what follows.
CT_API ct_chat_template *ct_chat_template_new_at(const char *text, ct_loc here);
#define ct_chat_template_new(text) ct_chat_template_new_at((text), CT_HERE)
// From a model's folder: chat_template.jinja, and additional_chat_templates/NAME.jinja; else what
// tokenizer_config.json or chat_template.json has as chat_template, one or a list of named ones.
// The tokens that tokenizer_config.json or special_tokens_map.json names (bos_token, eos_token ...)
// become variables of the template. So do those of a GGUF file, with tokenizer.chat_template and the
// named ones, and of a folder that has nothing else. Another file is a template alone; ORG/NAME, where no
// such folder is, a model in the Hub's cache (cotan/hub.h).
CT_API ct_chat_template *ct_chat_template_load_at(const char *path, ct_loc here);
#define ct_chat_template_load(path) ct_chat_template_load_at((path), CT_HERE)
CT_API void ct_chat_template_free(ct_chat_template *chat); // NULL: nothing
// The text of the template that renders conversations; belongs to it. Of NULL: NULL.
CT_API const char *ct_chat_template_text(const ct_chat_template *chat);

typedef struct ct_chat_options {
    const char *tools;     // a JSON list of the tools' descriptions; NULL: none
    const char *variables; // a JSON object: add_generation_prompt (default false), enable_thinking,
                           // documents, bos_token and others; NULL: none
    const char *name;      // of several templates; default: tool_use, if there is one and there
                           // are tools, else default
    ct_num now;            // seconds since 1970, for strftime_now; default: the clock's
    size_t *length;        // takes the number of bytes: a text may hold zero bytes; NULL: not
    ct_loc here;
} ct_chat_options;
// The conversation, a JSON list of messages such as {"role": "user", "content": "Hello"}, as text.
// Members of a message that are null are left out. What is returned belongs to the template, until
// the next rendering. NULL: see ct_error_text; what the template itself refuses
// (raise_exception) is CT_E_DATA.
//     const char *text = ct_chat_render(chat, messages, .variables = "{\"add_generation_prompt\": true}");
CT_API const char *ct_chat_render_with(ct_chat_template *chat, const char *messages,
                                       ct_chat_options options);
#define ct_chat_render(chat, ...) CT__CHAT_RENDER(chat, __VA_ARGS__, .here = CT_HERE)
#define CT__CHAT_RENDER(chat, messages, ...)                                                       \
    ct_chat_render_with((chat), (messages), (ct_chat_options){__VA_ARGS__})

// -------------------------------------------------------------------------- what the model answers

// What a model writes, taken apart as it comes: text for the user, reasoning, and calls of tools,
// each in the form that the model's family writes (<think>, <tool_call>{...}, [TOOL_CALLS],
// <|python_tag|>, <|channel|> ...). Used by one thread at a time.
//
// Many marks are special tokens: their text must be in what is fed (ct_decoder_new(tokenizer,
// false), ct_engine_request.keep_special), without the tokens that end the answer.
typedef struct ct_chat_parser ct_chat_parser;

typedef enum ct_chat_part_kind {
    CT_CHAT_TEXT,      // text: more of the answer
    CT_CHAT_REASONING, // text: more of what it thinks before
    CT_CHAT_CALL,      // text: the name of a tool; `call` is its number, from 0 on
    CT_CHAT_ARGUMENTS, // text: more of the call's arguments, a JSON object, of call number `call`
} ct_chat_part_kind;
typedef struct ct_chat_part {
    ct_chat_part_kind kind;
    size_t call;
    const char *text; // UTF-8, whole characters, valid during the call; no zero byte ends it
    size_t n;
} ct_chat_part;
// Hears of a part; false: no more.
typedef bool (*ct_chat_part_fn)(const ct_chat_part *part, void *user);

typedef struct ct_chat_parser_options {
    bool tools;          // calls are looked for; without it they are text
    bool keep_reasoning; // reasoning is text, with its marks
    // The end of the prompt, or all of it, so that a template that opens <think> itself is known.
    // NULL: nothing.
    const char *prompt;
    // The tools, a JSON list as ct_chat_options.tools: which arguments are strings, where a family
    // writes them without quotes, and which names are tools, where calls have no mark. NULL: an
    // argument that reads as a number, a list ... is one, and any name is a tool.
    const char *descriptions;
    ct_loc here;
} ct_chat_parser_options;
// The form is chosen by what the template itself writes. The template may be freed before the
// parser. NULL: see ct_error_text.
//     ct_chat_parser *parser = ct_chat_parser_new(chat, .tools = true, .prompt = prompt);
CT_API ct_chat_parser *ct_chat_parser_new_with(const ct_chat_template *chat,
                                               ct_chat_parser_options options);
#define ct_chat_parser_new(...) CT__CHAT_PARSER_NEW(__VA_ARGS__, .here = CT_HERE)
#define CT__CHAT_PARSER_NEW(chat, ...)                                                             \
    ct_chat_parser_new_with((chat), (ct_chat_parser_options){__VA_ARGS__})
CT_API void ct_chat_parser_free(ct_chat_parser *parser); // NULL: nothing
// Takes more of what the model writes, UTF-8 cut anywhere, and tells the parts that are sure by
// now; joined, they do not depend on the cuts. White space beside a mark belongs to the mark. False:
// `part` said so, or there is no memory (ct_failed).
CT_API CT_MUST_USE bool ct_chat_parser_feed(ct_chat_parser *parser, const char *text, size_t n,
                                            ct_chat_part_fn part, void *user);
// Tells what was held back; the parser begins anew. A malformed or unfinished call is text, as it
// was written; where it has been told of already, the rest of it is.
CT_API CT_MUST_USE bool ct_chat_parser_end(ct_chat_parser *parser, ct_chat_part_fn part,
                                           void *user);
// The family whose calls it looks for: "hermes", "mistral" ...; "text": none is known.
CT_API const char *ct_chat_parser_form(const ct_chat_parser *parser);

#ifdef __cplusplus
}
#endif

#endif
