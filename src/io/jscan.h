// A strict JSON scanner over memory, for headers that strangers wrote. It differs from the JSON
// library used elsewhere in what a header reader must get exactly right: 64-bit unsigned integers,
// NUL in keys, a nesting limit, no dependence on the locale, and the place of a fault.
#ifndef COTAN_IO_JSCAN_H
#define COTAN_IO_JSCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"

enum { CT_JS_DEPTH = 127 }; // containers within containers, the outermost counted

typedef struct ct_jscan {
    const char *start, *at, *end; // text that is UTF-8 already
    ct_arena *arena;              // decoded strings
    const char *wrong;            // NULL, or what is wrong at `at`
    bool memory;                  // an allocation failed
} ct_jscan;

typedef struct ct_jstr {
    const char *s; // '\0'-terminated, and may hold '\0' before its end
    size_t n;
} ct_jstr;

// The kind of the value that begins at `at`, white space skipped: '{' '[' '"' '0' 't' 'n', or 0.
char ct__js_kind(ct_jscan *js);
const char *ct__js_kind_name(char kind); // "an object" ...
bool ct__js_take(ct_jscan *js, char c);  // takes c if it is next, white space skipped
bool ct__js_string(ct_jscan *js, ct_jstr *out);
// One number. *is_u64 tells whether it is written as an integer from 0 to 2^64 - 1.
bool ct__js_number(ct_jscan *js, uint64_t *value, bool *is_u64);
bool ct__js_skip(ct_jscan *js, int depth); // any one value, `depth` containers around it
// After `open` was taken: steps over "," and tells whether a member follows (true), or takes
// `close` (false). *first starts as true. False with js->wrong set on a fault.
bool ct__js_member(ct_jscan *js, char close, bool *first);
bool ct__js_fail(ct_jscan *js, const char *wrong); // false

#endif
