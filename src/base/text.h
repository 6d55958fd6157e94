// Growing text, for messages, generated source and files.
#ifndef COTAN_BASE_TEXT_H
#define COTAN_BASE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ct_text {
    char *s;     // NUL-terminated once something was added; NULL before
    size_t n;    // length without the '\0'
    size_t cap;  // bytes allocated
    bool failed; // an allocation failed: the text is incomplete
} ct_text;

void ct__text_add(ct_text *text, const char *s);
void ct__text_bytes(ct_text *text, const void *bytes, size_t n);
void ct__textf(ct_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ct__textf_v(ct_text *text, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));
void ct__text_free(ct_text *text);
// A text that is freed at the end of its scope: CT_TEXT text = {0};
#define CT_TEXT __attribute__((cleanup(ct__text_free))) ct_text

// Formats a number of bytes for people: "512 bytes", "3.2 kB", "50 MB", "1.25 GB" (powers of 1000,
// three digits).
typedef struct ct_bytes_text {
    char s[24];
} ct_bytes_text;
ct_bytes_text ct__bytes_text(uint64_t bytes);

bool ct__ends_with(const char *text, const char *end);

// Returns the one of `names` (NULL-terminated) with the least edit distance to `word`, for "did you
// mean"; NULL if more than a third of the letters is wrong in all of them, and none begins with the
// word or the other way round.
const char *ct__nearest(const char *word, const char *const *names);

// 128-bit hash of bytes (not cryptographic; where equality matters the canonical record is compared
// as well).
typedef struct ct_hash {
    uint64_t lo, hi;
} ct_hash;
ct_hash ct__hash_bytes(const void *bytes, size_t n, ct_hash seed);
static inline bool ct__hash_equal(ct_hash a, ct_hash b) { return a.lo == b.lo && a.hi == b.hi; }
void ct__hash_hex(ct_hash hash, char hex[33]);

#endif
