#include "io/utf8.h"

#include <stdio.h>
#include <string.h>

ct_utf8 ct__utf8_next(const void *s, size_t n, uint32_t *cp, size_t *used) {
    const unsigned char *p = s;
    unsigned first = p[0], low = 0x80, high = 0xbf;
    *used = 1;
    *cp = first;
    if (first < 0x80) return CT_UTF8_OK;
    size_t need;
    if (first >= 0xc2 && first <= 0xdf)
        need = 1, *cp = first & 0x1f;
    else if (first >= 0xe0 && first <= 0xef)
        need = 2, *cp = first & 0x0f;
    else if (first >= 0xf0 && first <= 0xf4)
        need = 3, *cp = first & 0x07;
    else
        return CT_UTF8_BAD;
    // The range of the second byte excludes overlong forms, surrogates and code points above
    // U+10FFFF.
    if (first == 0xe0) low = 0xa0;
    if (first == 0xed) high = 0x9f;
    if (first == 0xf0) low = 0x90;
    if (first == 0xf4) high = 0x8f;
    for (; need; need--) {
        if (*used == n) return CT_UTF8_CUT;
        if (p[*used] < low || p[*used] > high) return CT_UTF8_BAD;
        *cp = *cp << 6 | (p[*used] & 0x3f);
        ++*used;
        low = 0x80, high = 0xbf;
    }
    return CT_UTF8_OK;
}

size_t ct__utf8_bad(const void *s, size_t n) {
    const char *p = s;
    for (size_t i = 0; i < n;) {
        uint64_t word;
        if (n - i >= sizeof word) { // eight ASCII bytes at a time
            memcpy(&word, p + i, sizeof word);
            if (!(word & 0x8080808080808080u)) {
                i += sizeof word;
                continue;
            }
        }
        uint32_t cp;
        size_t used;
        if (ct__utf8_next(p + i, n - i, &cp, &used) != CT_UTF8_OK) return i;
        i += used;
    }
    return n;
}

size_t ct__utf8_put(uint32_t cp, char out[4]) {
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    size_t n = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    static const unsigned char lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n - 1; i > 0; i--, cp >>= 6) out[i] = (char)(0x80 | (cp & 0x3f));
    out[0] = (char)(lead[n] | cp);
    return n;
}

// True for characters that control a terminal or a text layout and are not shown.
static bool utf8_is_control(uint32_t cp) {
    return cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == 0xad || cp == 0x61c ||
           (cp >= 0x200b && cp <= 0x200f) || (cp >= 0x2028 && cp <= 0x202e) ||
           (cp >= 0x2060 && cp <= 0x206f) || cp == 0xfeff || (cp >= 0xfff9 && cp <= 0xfffb) ||
           (cp >= 0xe0000 && cp <= 0xe007f);
}

// Writes the escaped form of the character at p + i, '\0'-terminated.
static void utf8_escape(const char *p, size_t i, size_t used, ct_utf8 state, uint32_t cp,
                        char out[16]) {
    if (state != CT_UTF8_OK)
        snprintf(out, 16, "\\x%02x", (unsigned)(unsigned char)p[i]);
    else if (cp == '\n')
        strcpy(out, "\\n");
    else if (cp == '\r')
        strcpy(out, "\\r");
    else if (cp == '\t')
        strcpy(out, "\\t");
    else if (cp == '"' || cp == '\\')
        snprintf(out, 16, "\\%c", (char)cp);
    else if (cp == '/' && (i == 0 || p[i - 1] == '*' || (i > 1 && !memcmp(p + i - 2, "..", 2))))
        strcpy(out, "\\/");
    else if (utf8_is_control(cp) && cp > 0xffff) // JSON has only surrogate pairs for it
        snprintf(out, 16, "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10),
                 0xdc00 + ((cp - 0x10000) & 0x3ff));
    else if (utf8_is_control(cp))
        snprintf(out, 16, "\\u%04x", cp);
    else
        memcpy(out, p + i, used), out[used] = '\0';
}

const char *ct__printable(const void *s, size_t n, char *out, size_t cap) {
    const char *p = s;
    size_t o = 0, fits = 0; // fits: the longest prefix with space for "..."
    if (cap < 8) return "";
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        size_t used = 1;
        char piece[16];
        ct_utf8 state = ct__utf8_next(p + i, n - i, &cp, &used);
        if (state != CT_UTF8_OK) used = 1;
        utf8_escape(p, i, used, state, cp, piece);
        size_t m = strlen(piece);
        if (o + m >= cap) {
            strcpy(out + fits, "...");
            return out;
        }
        memcpy(out + o, piece, m);
        o += m;
        if (o + 4 <= cap) fits = o;
        i += used;
    }
    out[o] = '\0';
    return out;
}

const char *ct__printable_bytes(const void *s, size_t n, char *out, size_t cap) {
    const unsigned char *p = s;
    size_t o = 0;
    out[0] = '\0';
    for (size_t i = 0; i < n && o + 5 <= cap; i++) {
        bool plain = p[i] >= 0x20 && p[i] < 0x7f && p[i] != '"' && p[i] != '\\';
        o += (size_t)snprintf(out + o, cap - o, plain ? "%c" : "\\x%02x", p[i]);
    }
    return out;
}
