// The parser of models' output, shared by chat_parser.c (text, reasoning) and chat_calls.c (tool
// calls): a state machine whose states are functions, each of which consumes as much of the input
// as it can.
#ifndef COTAN_TEXT_CHAT_PARSER_H
#define COTAN_TEXT_CHAT_PARSER_H

#include "base/text.h"
#include "cotan/chat.h"
#include "text/chat_forms.h"
#include "text/chat_value.h"

typedef enum ct_flow {
    CT_FLOW_NEXT, // call the state again, which may have changed
    CT_FLOW_MORE, // more input is needed
    CT_FLOW_FAIL, // not a call: the pending input is text
    CT_FLOW_STOP, // the callback asked to stop
} ct_flow;
typedef ct_flow ct_chat_state(ct_chat_parser *p);

typedef struct ct_chat_mark {
    const char *text;
    ct_chat_state *then; // with `at` after the mark
} ct_chat_mark;
enum { CT_MAX_MARKS = 16, CT_MAX_NAME = 256 };
typedef struct ct_chat_marks {
    ct_chat_mark of[CT_MAX_MARKS];
    size_t n;
    bool first[256]; // first bytes of the marks
} ct_chat_marks;

typedef enum ct_call_field {
    CT_FIELD_NAME,
    CT_FIELD_ARGUMENTS_STRING,
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
    // The input from `tail` on has not been reported yet; `at` is the next byte to read, `from` the
    // start of the current token.
    char *input;
    size_t n, cap, tail, at, from;
    bool start; // the answer has only whitespace so far
    bool stopped;

    // The call being parsed.
    size_t calls; // calls reported so far
    bool reported, complete,
        closed; // its name was reported; its arguments are complete; a mark has
                // ended it
    bool json, list, bare, given, string;
    ct_call_field field;
    const char *mark;         // the mark that ended the last token
    ct_text name, token, out; // out: arguments not reported yet
    size_t parameters;        // reported
    ct_value_reader value;

    ct_chat_part_fn part;
    void *user;
};

// chat_parser.c
ct_flow ct__chat_report(ct_chat_parser *p, ct_chat_part_kind kind, const char *s, size_t n);
ct_flow ct__chat_text(ct_chat_parser *p);
ct_flow ct__chat_after_mark(ct_chat_parser *p); // after a mark that ended something
bool ct__chat_skip_space(ct_chat_parser *p);    // skips whitespace; false: no other input yet
// Matches the marks at p->at: 1 yes, 0 no, -1 needs more input. Sets p->mark.
int ct__chat_match_marks(ct_chat_parser *p, const char *const *marks);
// Scans from p->from to one of the marks.
ct_flow ct__chat_scan_to_mark(ct_chat_parser *p, const char *const *marks);

// chat_calls.c: states after a mark that begins several calls, or one
ct_flow ct__chat_calls_begin(ct_chat_parser *p);
ct_flow ct__chat_call_begin(ct_chat_parser *p);
ct_flow ct__chat_bare_begin(ct_chat_parser *p); // at the byte that begins it
// Begins a call of this name, whose arguments come next, as a JSON object.
ct_flow ct__chat_call_named(ct_chat_parser *p, const char *name, size_t n);
ct_flow ct__chat_flush_arguments(ct_chat_parser *p, bool all); // reports the arguments in `out`

#endif
