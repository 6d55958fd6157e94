// Text on its way to tokens: bytes with their offsets in the original, and splits of them.
#ifndef COTAN_TEXT_TEXT_H
#define COTAN_TEXT_TEXT_H

#include "base/error.h"
#include "base/mem.h"
#include "base/text.h"
#include "cotan/tokenizer.h"
#include "io/utf8.h"

// Bytes, and the range of the original that each comes from (a whole character of it).
typedef struct ct_aligned {
    char *s;
    ct_token_span *at; // unused unless tracked
    size_t n, cap, at_cap;
    bool tracked, failed; // failed: no memory
} ct_aligned;

static inline bool ct__aligned_reserve(ct_aligned *a, size_t more) {
    if (a->n + more <= a->cap && (!a->tracked || a->n + more <= a->at_cap)) return true;
    if (CT_GROW(a->s, a->cap, a->n + more) &&
        (!a->tracked || CT_GROW(a->at, a->at_cap, a->n + more)))
        return true;
    a->failed = true;
    return false;
}
void ct__aligned_append(ct_aligned *a, const char *s, size_t n, ct_token_span at);
void ct__aligned_free(ct_aligned *a);

// A range of the text. One with a token is that added token, and is not processed further.
typedef struct ct_split {
    uint32_t begin, end;
    int32_t token; // -1: none
} ct_split;
typedef struct ct_splits {
    ct_split *v;
    size_t n, cap;
} ct_splits;

typedef struct ct_view { // bytes to read; at NULL: they are the original
    const char *s;
    const ct_token_span *at;
} ct_view;

// Rewrites a range of `from`, one character at a time, in the terms of the reference library:
// `change` 0 replaces the next character, > 0 inserts one after it, < 0 replaces it and drops that
// many more.
typedef struct ct_rewrite {
    ct_view from;
    uint32_t begin, end, next; // the range, and the first byte that was not replaced yet
    ct_aligned *to;
} ct_rewrite;
void ct__rewrite(ct_rewrite *r, uint32_t cp, int change);
void ct__rewrite_skip(ct_rewrite *r, size_t chars); // drops the first characters

// Decodes a character of valid UTF-8.
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
static inline bool ct__is_char_start(char c) { return ((unsigned char)c & 0xc0) != 0x80; }

// --------------------------------------------------------------------------- classes of characters

// The libraries that define tokenizers use other versions of Unicode than utf8proc and PCRE2:
// categories are those of Unicode 8, normal forms and marks those of Unicode 9, and patterns and
// numbers are of a newer version than any system has.
// True if one of the 256 characters of the page is newer than Unicode 14.
bool ct__page_has_new_chars(uint32_t page);
bool ct__is_newer(uint32_t cp, int version); // than Unicode `version`: 8 or 9
// The substitute of a character newer than Unicode 14: an old one of the same category and length.
// Returns older characters as they are.
uint32_t ct__stand_in(uint32_t cp);
uint32_t ct__lower(uint32_t cp); // maps one character to one
bool ct__is_white(uint32_t cp);  // the property White_Space
bool ct__is_numeric(uint32_t cp);
bool ct__is_punctuation(uint32_t cp); // by Unicode's categories, or ASCII
bool ct__is_any_mark(uint32_t cp);
bool ct__is_mark_nonspacing(uint32_t cp);
bool ct__is_control(uint32_t cp); // controls, formats and private use, except tab and line ends
bool ct__is_cjk(uint32_t cp);

// ---------------------------------------------------------------------------------------- patterns

// A regular expression in the dialect of a file format, compiled by PCRE2.
typedef struct ct_regex ct_regex;
typedef enum ct_dialect {
    CT_LITERAL,   // a literal string
    CT_ONIGURUMA, // the dialect of tokenizer.json
    CT_TIKTOKEN,  // PCRE2's with Oniguruma's classes: {1,3}+ is possessive
} ct_dialect;
// NULL: the error is "LABEL: the pattern ...".
ct_regex *ct__regex_new(const char *label, const char *pattern, size_t n, ct_dialect dialect,
                        ct_err *err);
// Translates a pattern to PCRE2's syntax (oniguruma.c). is_oniguruma: all of it is in Oniguruma's
// dialect, else only its classes.
bool ct__oniguruma_to_pcre2(const char *label, const char *p, size_t n, bool is_oniguruma,
                            ct_text *out, ct_err *err);
void ct__regex_free(ct_regex *regex);

typedef struct ct_regex_match {
    uint32_t begin, end;
    bool matched; // false: the text between two matches
} ct_regex_match;
typedef struct ct_regex_matches {
    ct_regex_match *v;
    size_t n, cap;
} ct_regex_matches;
// Buffers for matching any pattern; zeroed at first, used by one thread at a time.
typedef struct ct_matcher {
    void *general, *data, *context, *stack;
    char *substituted; // the text with new characters substituted
    size_t substituted_cap;
} ct_matcher;
void ct__matcher_free(ct_matcher *m);
// Splits s (valid UTF-8) into matches and the text between them. False: an error (no memory; the
// pattern takes too long).
bool ct__regex_find_all(ct_matcher *m, const ct_regex *regex, const char *s, uint32_t n,
                        ct_regex_matches *out, ct_err *err);
// Matches runs of one Unicode script, as the pre-tokenizer UnicodeScripts splits them.
ct_regex *ct__regex_scripts(ct_err *err);

#endif
