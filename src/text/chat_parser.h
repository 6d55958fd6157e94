// The parser of what models write, as chat_parser.c (text, reasoning) and chat_calls.c (calls) share
// it: states, each a function that goes on as far as what has come allows.
#ifndef COTAN_TEXT_CHAT_PARSER_H
#define COTAN_TEXT_CHAT_PARSER_H

#include "base/text.h"
#include "cotan/chat.h"
#include "text/chat_forms.h"
#include "text/chat_value.h"

typedef enum ct_flow {
    CT_FLOW_ON,   // call the state again, which may be another
    CT_FLOW_MORE, // needs more than has come
    CT_FLOW_FAIL, // no call: what is held is text
    CT_FLOW_STOP, // the listener said so
} ct_flow;
typedef ct_flow ct_chat_state(ct_chat_parser *p);

typedef struct ct_chat_mark {
    const char *text;
    ct_chat_state *then; // with `at` behind the mark
} ct_chat_mark;
enum { CT_MOST_MARKS = 16, CT_MOST_NAME = 256 };
typedef struct ct_chat_marks {
    ct_chat_mark of[CT_MOST_MARKS];
    size_t n;
    bool first[256]; // bytes that begin one
} ct_chat_marks;

typedef enum ct_call_field {
    CT_FIELD_NAME,
    CT_FIELD_TEXT,
    CT_FIELD_ARGUMENTS,
    CT_FIELD_OTHER
} ct_call_field;

struct ct_chat_parser {
    const ct_chat_form *form;
    const ct_chat_thinking *thinking; // NULL: none
    struct json_t *descriptions;      // NULL: none
    bool tools, keep_reasoning;
    ct_chat_marks in_text, in_reasoning;
    ct_chat_state *first, *state;
    // What has come and is not accounted for lies from `tail` on; `at` is the next byte to be
    // looked at, `from` where a token began.
    char *in;
    size_t n, cap, tail, at, from;
    bool start; // of the answer: nothing but white space so far
    bool stopped;

    // The call that is being read.
    size_t calls;                // that have been told
    bool told, complete, closed; // its name; its arguments whole; a mark has ended it
    bool json, list, bare, given, string;
    ct_call_field field;
    const char *mark;         // that ended the last token
    ct_text name, token, out; // out: of the arguments, what has not been told
    size_t parameters;        // told
    ct_value_reader value;

    ct_chat_part_fn part;
    void *user;
};

// chat_parser.c
ct_flow ct__chat_tell(ct_chat_parser *p, ct_chat_part_kind kind, const char *s, size_t n);
ct_flow ct__chat_text(ct_chat_parser *p);
ct_flow ct__chat_between(ct_chat_parser *p); // behind a mark that has ended something
bool ct__chat_space(ct_chat_parser *p);      // skips white space; false: nothing else has come
// Is one of the marks here, surely (1), not (0), or perhaps (-1)? p->mark is the one.
int ct__chat_at(ct_chat_parser *p, const char *const *marks);
// Goes on to one of the marks, from p->from.
ct_flow ct__chat_until(ct_chat_parser *p, const char *const *marks);

// chat_calls.c: states behind a mark that begins several calls, and one
ct_flow ct__chat_calls_begin(ct_chat_parser *p);
ct_flow ct__chat_call_begin(ct_chat_parser *p);
ct_flow ct__chat_bare_begin(ct_chat_parser *p); // on the byte that begins it
// A call of this name, whose arguments come next, a JSON object.
ct_flow ct__chat_call_named(ct_chat_parser *p, const char *name, size_t n);
ct_flow ct__chat_flush(ct_chat_parser *p, bool all); // tells of what is in `out`

#endif
