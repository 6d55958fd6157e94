// A value of JSON, a literal of Python or one as Gemma writes it, read as it comes and written as JSON.
#ifndef COTAN_TEXT_CHAT_VALUE_H
#define COTAN_TEXT_CHAT_VALUE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"

enum {
    CT_VALUE_DEPTH = 128, // lists and objects inside each other; deeper ones are malformed
    CT_VALUE_SCALAR = 320 // bytes of a number
};

typedef enum ct_value_style {
    CT_VALUE_JSON,
    CT_VALUE_PYTHON, // True, None, 'quotes', commas behind the last
    CT_VALUE_GEMMA,  // {key:<|"|>text<|"|>}
} ct_value_style;

typedef enum ct_value_state {
    CT_VALUE_BEGINS, // a value is next
    CT_VALUE_FIRST,  // behind [ : a value or ]
    CT_VALUE_KEYS,   // behind { : a key or }
    CT_VALUE_KEY,    // behind , in an object
    CT_VALUE_COLON,
    CT_VALUE_AFTER, // behind a value: a comma or a bracket
    CT_VALUE_STRING,
    CT_VALUE_ESCAPE,
    CT_VALUE_WORD,  // a number, true ...
    CT_VALUE_QUOTE, // Gemma's, which may begin or end a string
    CT_VALUE_BARE,  // a key without quotes
    CT_VALUE_DONE,
    CT_VALUE_FAILED,
} ct_value_state;

typedef struct ct_value_reader {
    ct_value_style style;
    ct_value_state state;
    char open[CT_VALUE_DEPTH]; // brackets
    size_t depth;
    bool key, inside; // the string is a key; its first quote has been read
    size_t comma;     // bytes from a comma on that may be the last one, and is not written yet
    char quote;
    char token[CT_VALUE_SCALAR]; // an escape or a word as far as it has come
    size_t n;
} ct_value_reader;

void ct__value_begin(ct_value_reader *r, ct_value_style style);
// Takes bytes of the value and adds what is sure to `out`. Returns how many were taken: all, unless
// the value ended before (DONE) or cannot go on with the next one (FAILED).
size_t ct__value_read(ct_value_reader *r, const char *s, size_t n, ct_text *out);
// Bytes, taken last, of which nothing is in `out` yet.
size_t ct__value_pending(const ct_value_reader *r);

#endif
