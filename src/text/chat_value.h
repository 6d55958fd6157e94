// An incremental reader of a value (JSON, a literal of Python, or Gemma's syntax) that writes it as
// JSON.
#ifndef COTAN_TEXT_CHAT_VALUE_H
#define COTAN_TEXT_CHAT_VALUE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"

enum {
    CT_VALUE_DEPTH = 128, // maximum nesting of lists and objects; deeper ones are malformed
    CT_VALUE_SCALAR = 320 // maximum bytes of a number
};

typedef enum ct_value_style {
    CT_VALUE_JSON,
    CT_VALUE_PYTHON, // True, None, 'quotes', trailing commas
    CT_VALUE_GEMMA,  // {key:<|"|>text<|"|>}
} ct_value_style;

typedef enum ct_value_state {
    CT_VALUE_BEGINS, // a value is next
    CT_VALUE_FIRST,  // after [ : a value or ]
    CT_VALUE_KEYS,   // after { : a key or }
    CT_VALUE_KEY,    // after , in an object
    CT_VALUE_COLON,
    CT_VALUE_AFTER, // after a value: a comma or a bracket
    CT_VALUE_STRING,
    CT_VALUE_ESCAPE,
    CT_VALUE_WORD,  // a number, true ...
    CT_VALUE_QUOTE, // Gemma's quote, which begins or ends a string
    CT_VALUE_BARE,  // an unquoted key
    CT_VALUE_DONE,
    CT_VALUE_FAILED,
} ct_value_state;

typedef struct ct_value_reader {
    ct_value_style style;
    ct_value_state state;
    char open[CT_VALUE_DEPTH]; // open brackets
    size_t depth;
    bool key, inside; // the string is a key; its opening quote was read
    size_t comma;     // bytes since a comma that may be the trailing one, and is not written yet
    char quote;
    char token[CT_VALUE_SCALAR]; // an incomplete escape or word
    size_t n;
} ct_value_reader;

void ct__value_begin(ct_value_reader *r, ct_value_style style);
// Reads bytes of the value and appends what is certain to `out`. Returns the number of bytes
// consumed: all, unless the value ended before (DONE) or is malformed at the next one (FAILED).
size_t ct__value_read(ct_value_reader *r, const char *s, size_t n, ct_text *out);
// The number of consumed bytes of which nothing is in `out` yet.
size_t ct__value_pending(const ct_value_reader *r);

#endif
