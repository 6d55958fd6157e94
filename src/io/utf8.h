// UTF-8: strict decoding (no surrogates, no overlong forms), encoding, and text made safe to print.
#ifndef COTAN_IO_UTF8_H
#define COTAN_IO_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ct_utf8 {
    CT_UTF8_OK,  // a code point of *used bytes
    CT_UTF8_BAD, // *used bytes (at least 1) that no continuation can make valid
    CT_UTF8_CUT, // all n bytes are the beginning of a code point; more may complete it
} ct_utf8;

// Decodes the code point at s; n > 0. A BAD run is the longest one that one U+FFFD stands for by
// the Unicode Standard's recommendation ("maximal subpart").
ct_utf8 ct__utf8_next(const void *s, size_t n, uint32_t *cp, size_t *used);
size_t ct__utf8_bad(const void *s, size_t n); // offset of the first byte that is not UTF-8; n: none
size_t ct__utf8_put(uint32_t cp, char out[4]); // bytes written

// Text of unknown origin, for messages: control and direction characters, quotes, backslashes and
// bytes that are not UTF-8 are escaped as in JSON (`\n`, `\u001b`, `\xff`), `*/`, `../` and a
// leading `/` lose their meaning (`*\/`), and what does not fit `cap` ends in "...". Returns out.
enum { CT_PRINTABLE = 96 };
const char *ct__printable(const void *s, size_t n, char *out, size_t cap);
// Bytes that are no text, such as those by which a file is known: each but ASCII's letters, digits
// and most signs as `\xff`. What does not fit is left out. Returns out.
const char *ct__printable_bytes(const void *s, size_t n, char *out, size_t cap);

#endif
