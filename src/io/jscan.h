// A strict JSON scanner over memory, for headers from untrusted files. It differs from the JSON
// library used elsewhere in what a header reader needs: 64-bit unsigned integers, NUL in keys, a
// nesting limit, no dependence on the locale, and the offset of an error.
#ifndef COTAN_IO_JSCAN_H
#define COTAN_IO_JSCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"

enum { CT_JS_DEPTH = 127 }; // maximum nesting depth, including the outermost container

typedef struct ct_jscan {
    const char *start, *at, *end; // the text, which must be valid UTF-8
    ct_arena *arena;              // memory for decoded strings
    const char *error;            // NULL, or the error at `at`
    bool is_out_of_memory;        // an allocation failed
} ct_jscan;

typedef struct ct_jstr {
    const char *s; // '\0'-terminated; may also contain '\0'
    size_t n;
} ct_jstr;

// Skips white space and returns the kind of the value that begins at `at`: '{' '[' '"' '0' 't' 'n',
// or 0.
char ct__js_kind(ct_jscan *js);
const char *ct__js_kind_name(char kind); // "an object" ...
bool ct__js_take(ct_jscan *js, char c);  // skips white space and consumes c if it is next
bool ct__js_string(ct_jscan *js, ct_jstr *out);
// Reads one number. *is_u64 is true if it is written as an integer from 0 to 2^64 - 1.
bool ct__js_number(ct_jscan *js, uint64_t *value, bool *is_u64);
bool ct__js_skip(ct_jscan *js,
                 int depth); // skips one value of any kind that is inside `depth` containers
// Called after the opening bracket was consumed: consumes "," and returns true if a member follows,
// or consumes `close` and returns false. *first is true at the start. Returns false with js->error
// set on an error.
bool ct__js_member(ct_jscan *js, char close, bool *first);
bool ct__js_fail(ct_jscan *js, const char *error); // sets the first error; returns false

#endif
