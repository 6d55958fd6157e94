// Chat templates: a conversation becomes the text format on which a model was trained. The template
// is a program in the Jinja language that the model's directory contains.
//
// Templates are untrusted. They compute text from JSON and have no access to anything else; their
// time, memory and recursion depth are limited, and an error names the line of the template. The
// results are those of transformers (apply_chat_template).
#ifndef COTAN_CHAT_H
#define COTAN_CHAT_H

#include "cotan/cotan.h"

#ifdef __cplusplus
extern "C" {
#endif

// One template, or several named ones. It belongs to no context and may be used by one thread at a
// time.
typedef struct ct_chat_template ct_chat_template;

// Makes it from the text of a template, UTF-8. NULL: see ct_error_text; the same holds for the
// functions below.
CT_API ct_chat_template *ct_chat_template_new_at(const char *text, ct_loc here);
#define ct_chat_template_new(text) ct_chat_template_new_at((text), CT_HERE)
// Loads it from a model's directory: chat_template.jinja and additional_chat_templates/NAME.jinja,
// or else chat_template in tokenizer_config.json or chat_template.json, one template or a list of
// named ones. The tokens that tokenizer_config.json or special_tokens_map.json names (bos_token,
// eos_token ...) become variables of the template. A GGUF file, or a directory that has nothing
// else, gives the same from tokenizer.chat_template and the named templates. Any other file is a
// template alone. ORG/NAME, if there is no such directory, is a model in the Hub's cache
// (cotan/hub.h).
CT_API ct_chat_template *ct_chat_template_load_at(const char *path, ct_loc here);
#define ct_chat_template_load(path) ct_chat_template_load_at((path), CT_HERE)
CT_API void ct_chat_template_free(ct_chat_template *chat); // NULL is ignored
// Returns the text of the template that renders conversations, which belongs to `chat`. NULL for
// NULL.
CT_API const char *ct_chat_template_text(const ct_chat_template *chat);

typedef struct ct_chat_options {
    const char *tools; // a JSON list of tool descriptions; NULL: none
    // A JSON object: add_generation_prompt (default false), enable_thinking, documents, bos_token
    // and others; NULL: none.
    const char *variables;
    // The one of several templates; default: tool_use if there is one and tools are given, else
    // default.
    const char *name;
    ct_num now; // seconds since 1970, for strftime_now; default: the clock
    // Receives the number of bytes, since a text may contain zero bytes; may be NULL.
    size_t *length;
    ct_loc here;
} ct_chat_options;
// Renders the conversation, a JSON list of messages such as {"role": "user", "content": "Hello"},
// as text. Members of a message that are null are left out. The result belongs to the template and
// is valid until the next call. NULL: see ct_error_text; an error that the template itself raises
// (raise_exception) is CT_E_DATA.
//     const char *text = ct_chat_render(chat, messages, .variables = "{\"add_generation_prompt\": true}");
CT_API const char *ct_chat_render_with(ct_chat_template *chat, const char *messages,
                                       ct_chat_options options);
#define ct_chat_render(chat, ...) CT__CHAT_RENDER(chat, __VA_ARGS__, .here = CT_HERE)
#define CT__CHAT_RENDER(chat, messages, ...)                                                       \
    ct_chat_render_with((chat), (messages), (ct_chat_options){__VA_ARGS__})

// ----------------------------------------------------------------------------------- output parser

// Parses the output of a model as it is generated: text for the user, reasoning, and tool calls,
// each in the format of the model's family (<think>, <tool_call>{...}, [TOOL_CALLS],
// <|python_tag|>, <|channel|> ...). It may be used by one thread at a time.
//
// Many of these markers are special tokens: the text that is fed must contain them
// (ct_decoder_new(tokenizer, false), ct_engine_request.include_special), but not the EOS tokens.
typedef struct ct_chat_parser ct_chat_parser;

typedef enum ct_chat_part_kind {
    CT_CHAT_TEXT,      // text: a delta of the answer
    CT_CHAT_REASONING, // text: a delta of the reasoning before the answer
    CT_CHAT_CALL,      // text: the name of a tool; `call` is the index of the call, from 0
    CT_CHAT_ARGUMENTS, // text: a delta of the arguments of call `call`, a JSON object
} ct_chat_part_kind;
typedef struct ct_chat_part {
    ct_chat_part_kind kind;
    size_t call;
    // UTF-8, whole characters, valid during the call; not terminated by a zero byte.
    const char *text;
    size_t n;
} ct_chat_part;
// Receives a part; returns false to stop.
typedef bool (*ct_chat_part_fn)(const ct_chat_part *part, void *user);

typedef struct ct_chat_parser_options {
    bool parse_tool_calls; // parse tool calls; otherwise they are text
    bool keep_reasoning;   // reasoning is text, with its markers
    // The end of the prompt, or all of it, so that a template that itself opens <think> is
    // recognised. NULL: none.
    const char *prompt;
    // The tools, a JSON list as in ct_chat_options.tools. It decides which arguments are strings,
    // for families that write them without quotes, and which names are tools, for families whose
    // calls have no marker. NULL: an argument that parses as a number, a list ... is one, and any
    // name is a tool.
    const char *tool_definitions;
    ct_loc here;
} ct_chat_parser_options;
// Makes a parser for the format that the template itself writes. The template may be freed before
// the parser. NULL: see ct_error_text.
//     ct_chat_parser *parser = ct_chat_parser_new(chat, .parse_tool_calls = true, .prompt = prompt);
CT_API ct_chat_parser *ct_chat_parser_new_with(const ct_chat_template *chat,
                                               ct_chat_parser_options options);
#define ct_chat_parser_new(...) CT__CHAT_PARSER_NEW(__VA_ARGS__, .here = CT_HERE)
#define CT__CHAT_PARSER_NEW(chat, ...)                                                             \
    ct_chat_parser_new_with((chat), (ct_chat_parser_options){__VA_ARGS__})
CT_API void ct_chat_parser_free(ct_chat_parser *parser); // NULL is ignored
// Feeds more of the output, UTF-8 that may be cut anywhere, and calls `part` for each part that is
// certain by now. The concatenated parts do not depend on the cuts. White space beside a marker
// belongs to the marker. False: `part` returned false, or out of memory (ct_failed).
CT_API CT_MUST_USE bool ct_chat_parser_feed(ct_chat_parser *parser, const char *text, size_t n,
                                            ct_chat_part_fn part, void *user);
// Flushes what was held back and resets the parser. A malformed or unfinished call is reported as
// text, as it was written; if a part of it was reported already, the rest is.
CT_API CT_MUST_USE bool ct_chat_parser_end(ct_chat_parser *parser, ct_chat_part_fn part,
                                           void *user);
// Returns the format of tool calls that it parses: "hermes", "mistral" ...; "text": none is known.
CT_API const char *ct_chat_parser_format(const ct_chat_parser *parser);

#ifdef __cplusplus
}
#endif

#endif
