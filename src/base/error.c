#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/fp_env.h"

bool ct__err_v(ct_err *err, ct_code code, ct_loc here, const char *op, const char *format,
               va_list args) {
    if (!err) return false;
    err->hint_final = err->code != CT_OK;
    if (err->hint_final) return false;
    CT_DEFAULT_ENV;
    err->code = code;
    err->has_location = here.file != NULL;
    size_t n = 0;
    if (here.file) {
        int w = snprintf(err->text, sizeof err->text, "%s:%u: ", here.file, here.line);
        n = w < 0 ? 0 : (size_t)w;
    }
    if (op && n < sizeof err->text) {
        int w = snprintf(err->text + n, sizeof err->text - n, "%s: ", op);
        n += w < 0 ? 0 : (size_t)w;
    }
    if (n < sizeof err->text) vsnprintf(err->text + n, sizeof err->text - n, format, args);
    return false;
}

bool ct__err(ct_err *err, ct_code code, ct_loc here, const char *op, const char *format, ...) {
    va_list args;
    va_start(args, format);
    ct__err_v(err, code, here, op, format, args);
    va_end(args);
    return false;
}

bool ct__err_hint(ct_err *err, const char *format, ...) {
    if (!err || err->code == CT_OK || err->hint_final) return false;
    err->hint_final = true;
    size_t n = strlen(err->text);
    int w = snprintf(err->text + n, sizeof err->text - n, "\n  hint: ");
    if (w < 0 || (n += (size_t)w) >= sizeof err->text) return false;
    CT_DEFAULT_ENV;
    va_list args;
    va_start(args, format);
    vsnprintf(err->text + n, sizeof err->text - n, format, args);
    va_end(args);
    return false;
}

bool ct__err_locate(ct_err *err, ct_loc here, const char *op) {
    if (!err || err->code == CT_OK || err->has_location || !here.file) return false;
    CT_DEFAULT_ENV;
    char text[CT_ERROR_TEXT];
    memcpy(text, err->text, sizeof text);
    int n = snprintf(err->text, sizeof err->text, "%s:%u: %s: ", here.file, here.line, op);
    if (n > 0 && (size_t)n < sizeof err->text) { // the rest is cut off
        size_t rest = strnlen(text, sizeof err->text - (size_t)n - 1);
        memcpy(err->text + n, text, rest);
        err->text[(size_t)n + rest] = '\0';
    }
    err->has_location = true;
    return false;
}

bool ct__err_memory(ct_err *err, ct_loc here, const char *op, size_t bytes) {
    return ct__err(err, CT_E_MEMORY, here, op, "out of memory: %zu bytes were asked for", bytes);
}

void *ct__null_memory(ct_err *err, ct_loc here, const char *op, size_t bytes) {
    ct__err_memory(err, here, op, bytes);
    return NULL;
}

bool ct__err_system(ct_err *err, const char *path, const char *what) {
    return ct__err(err, CT_E_FILE, CT_NOWHERE, path, "cannot %s: %s", what, strerror(errno));
}

bool ct__err_part(ct_err *err, const char *path, const char *part, const char *format, ...) {
    char text[CT_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ct__err(err, CT_E_FORMAT, CT_NOWHERE, path, "%s: %s", part, text);
}

const char *ct_code_title(ct_code code) {
    switch (code) {
    case CT_OK: return "no error";
#define CT_CODE(number, name, title, hint)                                                         \
    case CT_E_##name:                                                                              \
        return title;
#include "cotan/errors.inc"
#undef CT_CODE
    }
    return "unknown error code";
}

const char *ct_code_hint(ct_code code) {
    switch (code) {
    case CT_OK: return "";
#define CT_CODE(number, name, title, hint)                                                         \
    case CT_E_##name:                                                                              \
        return hint;
#include "cotan/errors.inc"
#undef CT_CODE
    }
    return "";
}
