// Errors as values: a code, one line of text and an optional hint. No function of the library
// prints or aborts.
//
// Functions below the graph take a `ct_err *` and return false on failure. The first error wins, so
// a caller may pass the same record through several calls and check it once.
#ifndef COTAN_BASE_ERROR_H
#define COTAN_BASE_ERROR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cotan/cotan.h"

enum { CT_ERROR_TEXT = 1024 };

typedef struct ct_err {
    ct_code code;             // CT_OK: no error
    char text[CT_ERROR_TEXT]; // "file:line: op: what is wrong: values", perhaps "\n  hint: ..."
    bool hint_final;          // it has its hint, or later errors followed, whose hints are ignored
    bool has_location;        // begins with a line of the user's
} ct_err;

// Records an error unless one is recorded already. `op` names the operation or the file format; if
// `here` is CT_NOWHERE, the text starts with the op. Always returns false, for `return
// ct__err(...)`.
bool ct__err(ct_err *err, ct_code code, ct_loc here, const char *op, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
bool ct__err_v(ct_err *err, ct_code code, ct_loc here, const char *op, const char *format,
               va_list args) __attribute__((format(printf, 5, 0)));

// Records CT_E_FILE from errno: "PATH: cannot open: No such file ...".
bool ct__err_system(ct_err *err, const char *path, const char *what);
// Records CT_E_FORMAT for a part of a file: "PATH: PART: what is wrong".
bool ct__err_part(ct_err *err, const char *path, const char *part, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

// Appends "\n  hint: ..." to the error recorded just now. Does nothing if there is none, it is an
// earlier one, or it has a hint. Always returns false.
bool ct__err_hint(ct_err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Prefixes an error that has no source line, such as a file's, with the user's line and the
// function called there. Always returns false.
bool ct__err_locate(ct_err *err, ct_loc here, const char *op);

// Records a failed allocation of `bytes`; allocates nothing itself.
bool ct__err_memory(ct_err *err, ct_loc here, const char *op, size_t bytes);
// Does the same, but returns NULL.
void *ct__null_memory(ct_err *err, ct_loc here, const char *op, size_t bytes);

#endif
