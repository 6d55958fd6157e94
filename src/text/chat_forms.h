// The formats in which families of models write reasoning and tool calls: a table row each.
#ifndef COTAN_TEXT_CHAT_FORMS_H
#define COTAN_TEXT_CHAT_FORMS_H

#include <stdbool.h>

#include "base/error.h"
#include "text/chat_value.h"

typedef enum ct_call_kind {
    CT_CALL_NONE,
    CT_CALL_JSON,       // {"name": f, "arguments": {...}}, or a list of these
    CT_CALL_NAMED,      // f, a separator, {...}
    CT_CALL_PARAMETERS, // f, then parameters one by one, as text between marks
    CT_CALL_PYTHON,     // [f(a=1)]
} ct_call_kind;

enum { CT_FORM_MARKS = 6 };
typedef const char *ct_form_marks[CT_FORM_MARKS]; // ended by NULL

typedef struct ct_chat_form {
    const char *name;
    const char *contains[3]; // all of these occur in the template's text; none: any template
    const char *excludes;    // this one does not occur in it
    ct_call_kind kind;
    ct_form_marks calls_begin;   // begin a call, or several calls
    const char *call_begin;      // begins each call after `calls_begin`, and one in plain text
    const char *before_name;     // NAMED: ends the ignored text before the name
    ct_form_marks name_end;      // end the name; those with another meaning are read again
    const char *arguments_begin; // NAMED: the arguments come after this
    ct_value_style style;        // NAMED: syntax of the arguments
    ct_form_marks key_begin;     // PARAMETERS: begin a parameter
    ct_form_marks key_end;   // end its name; the second one, `="true"`, declares the value a string
    const char *value_begin; // begins the value; NULL: `key_end` does
    ct_form_marks value_end; // end the value
    ct_form_marks call_end;  // end a call, or several calls
    ct_form_marks ignored;   // dropped from text
    const char *text_name;   // a name that is no tool: text follows it
    char bare;      // the byte that begins a call at the start of an answer, without a mark
    bool keyed;     // JSON: {"f": {...}}
    bool ids;       // names are written functions.f:0
    bool own_lines; // values are on lines of their own
    bool channels;  // each part of an answer names its channel (harmony)
} ct_chat_form;

typedef struct ct_chat_thinking {
    const char *contains; // occurs in the template's text
    const char *open, *close;
} ct_chat_thinking;

struct ct_chat_template;
const ct_chat_form *ct__chat_form(const struct ct_chat_template *chat);
const ct_chat_thinking *ct__chat_thinking(const struct ct_chat_template *chat); // NULL: none
// True if the text of one of the templates contains the mark.
bool ct__chat_contains(const struct ct_chat_template *chat, const char *mark);
// Parses a JSON list or object. NULL: see err, whose message begins with `what`.
struct json_t *ct__chat_parse_json(const char *text, const char *what, bool list, ct_err *err);

#endif
