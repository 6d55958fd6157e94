// The forms in which families of models write reasoning and calls of tools: a row each.
#ifndef COTAN_TEXT_CHAT_FORMS_H
#define COTAN_TEXT_CHAT_FORMS_H

#include <stdbool.h>

#include "base/error.h"
#include "text/chat_value.h"

typedef enum ct_call_kind {
    CT_CALL_NONE,
    CT_CALL_JSON,       // {"name": f, "arguments": {...}}, or a list of these
    CT_CALL_NAMED,      // f, a mark, {...}
    CT_CALL_PARAMETERS, // f, then a parameter at a time, as text between marks
    CT_CALL_PYTHON,     // [f(a=1)]
} ct_call_kind;

enum { CT_FORM_MARKS = 6 };
typedef const char *ct_form_marks[CT_FORM_MARKS]; // up to the first NULL

typedef struct ct_chat_form {
    const char *name;
    const char *in[3];   // all occur in the template's text; none: any template
    const char *without; // and this does not
    ct_call_kind kind;
    ct_form_marks open;  // begin a call, or several
    const char *each;    // stands before each call then, and begins one in text as well
    const char *before;  // NAMED: ends what stands before the name and tells nothing
    ct_form_marks named; // end the name; those that mean more (a parameter, the end) are read again
    const char *args;    // NAMED: the arguments are behind this
    ct_value_style style; // NAMED: of the arguments
    ct_form_marks key;    // PARAMETERS: begin a parameter
    ct_form_marks middle; // end its name; the one behind `="true"` says that the value is a string
    const char *value;    // begins the value; NULL: `middle` did
    ct_form_marks end;    // end the value
    ct_form_marks close;  // end a call, or several
    ct_form_marks drop;   // say nothing in text
    const char *text;     // a name that is no tool: text follows
    char bare;            // what begins a call where the answer begins, without any mark
    bool keyed;           // JSON: {"f": {...}}
    bool ids;             // names are written functions.f:0
    bool lines;           // values stand on lines of their own
    bool channels;        // each part of an answer names its channel (harmony)
} ct_chat_form;

typedef struct ct_chat_thinking {
    const char *in; // the template's text
    const char *open, *close;
} ct_chat_thinking;

struct ct_chat_template;
const ct_chat_form *ct__chat_form(const struct ct_chat_template *chat);
const ct_chat_thinking *ct__chat_thinking(const struct ct_chat_template *chat); // NULL: none
// Does the text of one of its templates hold this?
bool ct__chat_says(const struct ct_chat_template *chat, const char *mark);
// A list or an object of JSON; NULL: see err, which begins with `what`.
struct json_t *ct__chat_json(const char *text, const char *what, bool list, ct_err *err);

#endif
