// A value of JSON, or a literal of Python, read as it comes and written as JSON.
#ifndef COTAN_TEXT_CHAT_VALUE_H
#define COTAN_TEXT_CHAT_VALUE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"

enum {
    CT_VALUE_DEPTH = 128, // lists and objects inside each other; deeper ones are malformed
    CT_VALUE_SCALAR = 320 // bytes of a number
};

typedef enum ct_value_state {
    CT_VALUE_BEGINS, // a value is next
    CT_VALUE_FIRST,  // behind [ : a value or ]
    CT_VALUE_KEYS,   // behind { : a key or }
    CT_VALUE_KEY,    // behind , in an object
    CT_VALUE_COLON,
    CT_VALUE_AFTER, // behind a value: a comma or a bracket
    CT_VALUE_STRING,
    CT_VALUE_ESCAPE,
    CT_VALUE_WORD, // a number, true ...
    CT_VALUE_DONE,
    CT_VALUE_FAILED,
} ct_value_state;

typedef struct ct_value_reader {
    bool python; // True, None, 'quotes', commas behind the last
    ct_value_state state;
    char open[CT_VALUE_DEPTH]; // brackets
    size_t depth;
    bool key;     // the string is one
    size_t comma; // bytes from a comma of Python's on that has been read and not written
    char quote;
    char token[CT_VALUE_SCALAR]; // an escape or a word as far as it has come
    size_t n;
} ct_value_reader;

void ct__value_begin(ct_value_reader *r, bool python);
// Takes bytes of the value and adds what is sure to `out`. Returns how many were taken: all, unless
// the value ended before (DONE) or cannot go on with the next one (FAILED).
size_t ct__value_read(ct_value_reader *r, const char *s, size_t n, ct_text *out);
// Bytes, taken last, of which nothing is in `out` yet.
size_t ct__value_pending(const ct_value_reader *r);

#endif
