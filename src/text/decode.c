// Decoders: combine the texts of tokens.
#define _GNU_SOURCE
#include <string.h>

#include "base/text.h"
#include "text/tokenizer.h"

static bool decode_append(ct_token_texts *out, const char *s, size_t n) {
    if (!CT_GROW(out->v, out->cap, out->n + 1)) return false;
    out->v[out->n++] = (ct_token_text){s, n};
    return true;
}

static char *decode_copy(ct_token_texts *words, const char *s, size_t n) {
    char *copy = ct__arena(&words->arena, n + 1);
    if (!copy) return NULL;
    memcpy(copy, s, n);
    copy[n] = '\0';
    return copy;
}

static bool decode_replace(ct_token_texts *words, ct_token_text *x, const char *from, size_t from_n,
                           const char *to, size_t to_n) {
    const char *s = x->s, *end = x->s + x->n, *found;
    CT_TEXT out = {0};
    bool any = false;
    while (from_n && (found = memmem(s, (size_t)(end - s), from, from_n))) {
        ct__text_bytes(&out, s, (size_t)(found - s));
        ct__text_bytes(&out, to, to_n);
        s = found + from_n;
        any = true;
    }
    if (any) ct__text_bytes(&out, s, (size_t)(end - s));
    bool ok = !out.failed;
    if (ok && any)
        ok = (x->s = decode_copy(words, out.s ? out.s : "", out.n)) != NULL, x->n = out.n;
    return ok;
}

// Removes the spaces that a word-level tokenizer leaves in English text.
static bool decode_clean_up(ct_token_texts *words, ct_token_text *x) {
    static const char *const pairs[][2] = {{" .", "."},     {" ?", "?"},           {" !", "!"},
                                           {" ,", ","},     {" ' ", "'"},          {" n't", "n't"},
                                           {" 'm", "'m"},   {" do not", " don't"}, {" 's", "'s"},
                                           {" 've", "'ve"}, {" 're", "'re"}};
    bool ok = true;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs && ok; i++)
        ok = decode_replace(words, x, pairs[i][0], strlen(pairs[i][0]), pairs[i][1],
                            strlen(pairs[i][1]));
    return ok;
}

static bool decode_fuse(ct_token_texts *words, const char *between) {
    size_t n = 0, gap = strlen(between);
    for (size_t i = 0; i < words->n; i++) n += words->v[i].n + gap;
    char *all = ct__arena(&words->arena, n + 1), *to = all;
    if (!all) return false;
    for (size_t i = 0; i < words->n; i++) {
        if (i) memcpy(to, between, gap), to += gap;
        if (words->v[i].n) memcpy(to, words->v[i].s, words->v[i].n);
        to += words->v[i].n;
    }
    *to = '\0';
    words->n = 0;
    return decode_append(words, all, (size_t)(to - all));
}

// Appends bytes that may be invalid UTF-8, with U+FFFD for the invalid ones, unless the output is
// raw.
static bool decode_append_utf8(ct_token_texts *words, const char *s, size_t n) {
    if (words->raw) {
        const char *same = decode_copy(words, s, n);
        return same && decode_append(words, same, n);
    }
    char *out = ct__arena(&words->arena, 3 * n + 1), *to = out;
    if (!out) return false;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t used;
        bool is_valid = ct__utf8_next(s + i, n - i, &cp, &used) == CT_UTF8_OK;
        memcpy(to, is_valid ? s + i : "\xef\xbf\xbd", is_valid ? used : 3);
        to += is_valid ? used : 3;
        i += used;
    }
    return decode_append(words, out, (size_t)(to - out));
}

static bool decode_byte_level(ct_token_texts *words) {
    size_t all = 0, n = 0;
    for (size_t i = 0; i < words->n; i++) all += words->v[i].n;
    char *bytes = ct__arena(&words->arena, all + 1);
    if (!bytes) return false;
    for (size_t i = 0; i < words->n; i++) {
        ct_token_text x = words->v[i];
        size_t begin = n;
        for (size_t k = 0; k < x.n;) {
            uint32_t used, cp = ct__char(x.s + k, (uint32_t)(x.n - k), &used);
            int byte = ct__byte_of_char(cp);
            if (byte < 0) { // not a byte-level token: plain text
                n = begin;
                memcpy(bytes + n, x.s, x.n);
                n += x.n;
                break;
            }
            bytes[n++] = (char)byte;
            k += used;
        }
    }
    words->n = 0;
    return decode_append_utf8(words, bytes, n);
}

static int decode_hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// The value of a token such as <0x41>; -1: another token.
static int decode_byte_token(ct_token_text x) {
    if (x.n != 6 || memcmp(x.s, "<0x", 3) || x.s[5] != '>') return -1;
    int high = decode_hex_digit(x.s[3]), low = decode_hex_digit(x.s[4]);
    if (high < 0 && x.s[3] == '+') return low; // as the reference parses numbers
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

// Decodes runs of <0x..> tokens: a run that is invalid UTF-8 becomes a U+FFFD per byte, or, with
// each_alone, per invalid sequence.
static bool decode_byte_fallback(ct_token_texts *words, bool each_alone) {
    ct_token_texts out = {.arena = words->arena, .raw = words->raw};
    bool ok = true;
    for (size_t i = 0; i < words->n && ok;) {
        size_t n = 0;
        while (i + n < words->n && decode_byte_token(words->v[i + n]) >= 0) n++;
        if (!n) {
            ok = decode_append(&out, words->v[i].s, words->v[i].n);
            i++;
            continue;
        }
        char *bytes = ct__arena(&out.arena, n + 1);
        ok = bytes != NULL;
        for (size_t k = 0; k < n && ok; k++) bytes[k] = (char)decode_byte_token(words->v[i + k]);
        if (ok && (each_alone || words->raw || ct__utf8_bad(bytes, n) == n))
            ok = decode_append_utf8(&out, bytes, n);
        else
            for (size_t k = 0; k < n && ok; k++) ok = decode_append(&out, "\xef\xbf\xbd", 3);
        i += n;
    }
    ct__free(words->v);
    *words = out;
    return ok;
}

static bool decode_metaspace(const ct_step *step, ct_token_texts *words) {
    for (size_t i = 0; i < words->n; i++) {
        ct_token_text *x = &words->v[i];
        bool drop = i == 0 && step->scheme != CT_PREPEND_NEVER;
        if (!decode_replace(words, x, step->text, step->text_n, drop ? "" : " ", !drop))
            return false;
    }
    return true;
}

static bool decode_wordpiece(const ct_step *step, ct_token_texts *words) {
    for (size_t i = 0; i < words->n; i++) {
        ct_token_text *x = &words->v[i];
        if (i && x->n >= step->text_n && memcmp(x->s, step->text, step->text_n) == 0) {
            x->s += step->text_n, x->n -= step->text_n;
        } else if (i) {
            char *spaced = ct__arena(&words->arena, x->n + 1);
            if (!spaced) return false;
            spaced[0] = ' ';
            memcpy(spaced + 1, x->s, x->n);
            *x = (ct_token_text){spaced, x->n + 1};
        }
        if (step->cleanup && !decode_clean_up(words, x)) return false;
    }
    return true;
}

static bool decode_ctc(const ct_step *step, ct_token_texts *words) {
    size_t n = 0;
    ct_token_text last = {NULL, 0};
    for (size_t i = 0; i < words->n; i++) {
        ct_token_text x = words->v[i];
        if (last.s && last.n == x.n && memcmp(last.s, x.s, x.n) == 0) continue;
        last = x;
        if (!decode_replace(words, &x, step->text, step->text_n, "", 0)) return false;
        if (step->cleanup &&
            (!decode_clean_up(words, &x) ||
             !decode_replace(words, &x, step->delimiter, step->delimiter_n, " ", 1)))
            return false;
        if (x.n) words->v[n++] = x;
    }
    words->n = n;
    return true;
}

static void decode_strip(const ct_step *step, ct_token_text *x) {
    size_t n = step->text_n;
    for (uint32_t i = 0; i < step->count && x->n >= n && !memcmp(x->s, step->text, n); i++)
        x->s += n, x->n -= n;
    for (uint32_t i = 0; i < step->stop && x->n >= n && !memcmp(x->s + x->n - n, step->text, n);
         i++)
        x->n -= n;
}

static bool decode_replace_pattern(const ct_step *step, ct_token_texts *words, ct_matcher *m,
                                   ct_regex_matches *matches, ct_err *err) {
    for (size_t i = 0; i < words->n; i++) {
        ct_token_text *x = &words->v[i];
        ct_text out = {0};
        if (!ct__regex_find_all(m, step->pattern, x->s, (uint32_t)x->n, matches, err)) return false;
        for (size_t k = 0; k < matches->n; k++) {
            ct_regex_match at = matches->v[k];
            if (at.matched)
                ct__text_bytes(&out, step->text, step->text_n);
            else
                ct__text_bytes(&out, x->s + at.begin, at.end - at.begin);
        }
        char *copy = out.failed ? NULL : decode_copy(words, out.s ? out.s : "", out.n);
        *x = (ct_token_text){copy, out.n};
        ct__text_free(&out);
        if (!copy) return false;
    }
    return true;
}

// Joins the pieces, replaces U+2581 by spaces and drops the prefix.
static bool decode_sentencepiece(const ct_step *step, ct_token_texts *words) {
    if (!decode_byte_fallback(words, true) || !decode_fuse(words, "")) return false;
    ct_token_text *x = &words->v[0];
    if (step->escape && !decode_replace(words, x, "\xe2\x96\x81", 3, " ", 1)) return false;
    if (step->dummy_prefix && step->suffix && x->n && x->s[x->n - 1] == ' ') x->n--;
    if (step->dummy_prefix && !step->suffix && x->n && x->s[0] == ' ') x->s++, x->n--;
    return true;
}

// A token "▁word" begins a word, others continue it.
static bool decode_ggml_words(ct_token_texts *words) {
    if (!decode_fuse(words, "")) return false;
    ct_token_text *x = &words->v[0];
    if (!decode_replace(words, x, "\xe2\x96\x81", 3, " ", 1)) return false;
    if (x->n && x->s[0] == ' ') x->s++, x->n--;
    return decode_clean_up(words, x);
}

bool ct__decode_step(const ct_step *step, ct_token_texts *words, ct_matcher *m,
                     ct_regex_matches *matches, ct_err *err) {
    bool ok = true;
    switch (step->kind) {
    case CT_STEP_BYTES: ok = decode_byte_level(words); break;
    case CT_STEP_RAW:
        ok = decode_fuse(words, "");
        if (ok) words->n = 0, ok = decode_append_utf8(words, words->v[0].s, words->v[0].n);
        break;
    case CT_STEP_METASPACE: ok = decode_metaspace(step, words); break;
    case CT_STEP_WORDPIECE: ok = decode_wordpiece(step, words); break;
    case CT_STEP_CTC: ok = decode_ctc(step, words); break;
    case CT_STEP_BYTE_FALLBACK: ok = decode_byte_fallback(words, false); break;
    case CT_STEP_FUSE: ok = decode_fuse(words, ""); break;
    case CT_STEP_JOIN: ok = decode_fuse(words, " "); break;
    case CT_STEP_REPLACE: ok = decode_replace_pattern(step, words, m, matches, err); break;
    case CT_STEP_SENTENCEPIECE_TEXT: ok = decode_sentencepiece(step, words); break;
    case CT_STEP_GGML_WORDS: ok = decode_ggml_words(words); break;
    case CT_STEP_SUFFIX:
        for (size_t i = 0; i < words->n && ok; i++)
            ok = decode_replace(words, &words->v[i], step->text, step->text_n, " ",
                                i + 1 < words->n);
        break;
    default: // CT_STEP_STRIP_CHAR
        for (size_t i = 0; i < words->n; i++) decode_strip(step, &words->v[i]);
    }
    return ok || (err->code ? false : ct__err_memory(err, CT_NOWHERE, "decode", words->n));
}
