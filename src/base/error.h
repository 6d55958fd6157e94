// Errors as values: a code, one line of text and an optional hint. No function of the library
// prints or aborts.
//
// Functions below the graph take a `ct_err *` and return false when they failed; the first error
// wins, so a caller may pass the same record through several calls and look once.
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
    char text[CT_ERROR_TEXT]; // "file:line: op: what is wrong: values", then maybe "\n  hint: ..."
    bool settled;             // has its hint, or others failed behind it: their hints are not its
    bool placed;              // begins with a line of the user's
} ct_err;

// Records an error unless one is recorded already. `op` names the operation or the file format;
// `here` may be CT_NOWHERE, then the text starts with the op. Always returns false, so that `return
// ct__err(...)` reads well.
bool ct__err(ct_err *err, ct_code code, ct_loc here, const char *op, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
bool ct__err_v(ct_err *err, ct_code code, ct_loc here, const char *op, const char *format,
               va_list args) __attribute__((format(printf, 5, 0)));

// CT_E_FILE, of what the system just refused (errno): "PATH: cannot open: No such file ...".
bool ct__err_system(ct_err *err, const char *path, const char *what);
// CT_E_FORMAT, of a part of a file: "PATH: PART: what is wrong".
bool ct__err_part(ct_err *err, const char *path, const char *part, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

// Appends "\n  hint: ..." to the error that was recorded just now; no effect where there is none,
// or it is an earlier one, or has a hint.
void ct__err_hint(ct_err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Puts the user's line and the function called there in front of an error that knows no line, such
// as one of a file's. Always returns false.
bool ct__err_place(ct_err *err, ct_loc here, const char *op);

// The record for a failed allocation of `bytes`; needs no memory itself.
bool ct__err_memory(ct_err *err, ct_loc here, const char *op, size_t bytes);

#endif
