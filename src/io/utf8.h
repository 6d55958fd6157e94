// UTF-8: strict decoding (no surrogates, no overlong forms), encoding, and escaping of text for
// messages.
#ifndef COTAN_IO_UTF8_H
#define COTAN_IO_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ct_utf8 {
    CT_UTF8_OK,  // a code point of *used bytes
    CT_UTF8_BAD, // *used bytes (at least 1) that no following byte can make valid
    CT_UTF8_CUT, // all n bytes are the start of a code point; more bytes may complete it
} ct_utf8;

// Decodes the code point at s; n > 0. A BAD sequence is the longest one that the Unicode Standard
// recommends to replace by one U+FFFD ("maximal subpart").
ct_utf8 ct__utf8_next(const void *s, size_t n, uint32_t *cp, size_t *used);
size_t ct__utf8_bad(const void *s,
                    size_t n); // offset of the first invalid byte; n if there is none
size_t ct__utf8_put(uint32_t cp, char out[4]); // returns the number of bytes written

// Escapes untrusted text for messages: control and direction characters, quotes, backslashes and
// bytes that are not UTF-8 are escaped as in JSON (`\n`, `\u001b`, `\xff`), `*/`, `../` and a
// leading `/` are broken up (`*\/`), and text that does not fit `cap` ends in "...". Returns out.
enum { CT_PRINTABLE = 96 };
const char *ct__printable(const void *s, size_t n, char *out, size_t cap);
// Escapes bytes that are not text, such as a file's magic number: each byte except ASCII's letters,
// digits and most signs becomes `\xff`. What does not fit is left out. Returns out.
const char *ct__printable_bytes(const void *s, size_t n, char *out, size_t cap);

#endif
