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

#ifdef __cplusplus
}
#endif

#endif
