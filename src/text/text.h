// Text on its way to tokens: bytes that know where they come from, and cuts of them.
#ifndef COTAN_TEXT_TEXT_H
#define COTAN_TEXT_TEXT_H

#include "base/error.h"
#include "base/mem.h"
#include "base/text.h"
#include "cotan/tokenizer.h"
#include "io/utf8.h"

// Bytes, and where in the original each comes from (a whole character of it).
typedef struct ct_aligned {
    char *s;
    ct_token_span *at; // unused unless tracked
    size_t n, cap, at_cap;
    bool tracked, failed; // failed: no memory
} ct_aligned;

static inline bool ct__aligned_room(ct_aligned *a, size_t more) {
    if (a->n + more <= a->cap && (!a->tracked || a->n + more <= a->at_cap)) return true;
    if (CT_GROW(a->s, a->cap, a->n + more) &&
        (!a->tracked || CT_GROW(a->at, a->at_cap, a->n + more)))
        return true;
    a->failed = true;
    return false;
}
void ct__aligned_put(ct_aligned *a, const char *s, size_t n, ct_token_span at);
void ct__aligned_free(ct_aligned *a);

// A part of the text; one with a token is that added token, and is not looked into.
typedef struct ct_cut {
    uint32_t begin, end;
    int32_t token; // -1: none
} ct_cut;
typedef struct ct_cuts {
    ct_cut *v;
    size_t n, cap;
} ct_cuts;

typedef struct ct_view { // bytes that are read, at NULL: they are the original
    const char *s;
    const ct_token_span *at;
} ct_view;

// Writes a part of `from` anew, a character at a time, in the reference library's terms: `change`
// 0 replaces the next character, > 0 adds one behind it, < 0 replaces it and drops as many more.
typedef struct ct_rewrite {
    ct_view from;
    uint32_t begin, end, next; // the part, and the first byte that nothing has replaced
    ct_aligned *to;
} ct_rewrite;
void ct__rewrite(ct_rewrite *r, uint32_t cp, int change);
void ct__rewrite_skip(ct_rewrite *r, size_t chars); // drops characters in front of all

// The characters of valid UTF-8.
static inline uint32_t ct__char(const char *s, uint32_t n, uint32_t *used) {
    const unsigned char *p = (const unsigned char *)s;
    if (p[0] < 0x80) {
        *used = 1;
        return p[0];
    }
    uint32_t cp;
    size_t bytes;
    ct__utf8_next(s, n, &cp, &bytes);
    *used = (uint32_t)bytes;
    return cp;
}
static inline bool ct__char_begins(char c) { return ((unsigned char)c & 0xc0) != 0x80; }

// ----------------------------------------------------------------------------------------- classes

// What the libraries that define tokenizers know of Unicode is of other ages than what utf8proc and
// PCRE2 know: categories are Unicode 8's, normal forms and marks Unicode 9's, and patterns and numbers
// are newer than any system's.
bool ct__has_new(uint32_t page);             // of 256 characters, one newer than 14
bool ct__is_newer(uint32_t cp, int version); // than 8, or 9
uint32_t
ct__stand_in(uint32_t cp); // for one newer than Unicode 14, an old one of its category and bytes
uint32_t ct__lower(uint32_t cp); // one character for one
bool ct__is_white(uint32_t cp);  // White_Space
bool ct__is_numeric(uint32_t cp);
bool ct__is_punctuation(uint32_t cp); // of Unicode, or of ASCII
bool ct__is_any_mark(uint32_t cp);
bool ct__is_mark_nonspacing(uint32_t cp);
bool ct__is_control(uint32_t cp); // controls, formats and private characters but tab and line ends
bool ct__is_cjk(uint32_t cp);

// ---------------------------------------------------------------------------------------- patterns

// A regular expression as the formats write them, compiled by PCRE2.
typedef struct ct_regex ct_regex;
typedef enum ct_dialect {
    CT_LITERAL,   // the text itself
    CT_ONIGURUMA, // that of tokenizer.json
    CT_TIKTOKEN,  // PCRE2's, with Oniguruma's classes: {1,3}+ is possessive
} ct_dialect;
// NULL: the error is "PLACE: the pattern ...".
ct_regex *ct__regex_new(const char *place, const char *pattern, size_t n, ct_dialect dialect,
                        ct_err *err);
// The pattern as PCRE2 writes it (oniguruma.c). own: all of it is Oniguruma's, else its classes alone.
bool ct__oniguruma(const char *place, const char *p, size_t n, bool own, ct_text *out, ct_err *err);
void ct__regex_free(ct_regex *regex);

typedef struct ct_hit {
    uint32_t begin, end;
    bool matched; // false: what stands between two matches
} ct_hit;
typedef struct ct_hits {
    ct_hit *v;
    size_t n, cap;
} ct_hits;
// What matching needs, whatever the pattern; zeroed at first, used by one thread.
typedef struct ct_matcher {
    void *general, *data, *context, *stack;
    char *old; // text whose new characters have stand-ins
    size_t old_cap;
} ct_matcher;
void ct__matcher_free(ct_matcher *m);
// Cuts s (valid UTF-8) into matches and what stands between them. False: an error (no memory; the
// pattern takes too long).
bool ct__regex_find(ct_matcher *m, const ct_regex *regex, const char *s, uint32_t n, ct_hits *out,
                    ct_err *err);
// All scripts of Unicode, as the pre-tokenizer UnicodeScripts cuts them.
ct_regex *ct__regex_scripts(ct_err *err);

#endif
