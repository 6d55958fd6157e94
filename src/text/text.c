#include "text/text.h"

#include <string.h>

#include <utf8proc.h>

void ct__aligned_append(ct_aligned *a, const char *s, size_t n, ct_token_span at) {
    if (!n || !ct__aligned_reserve(a, n)) return;
    memcpy(a->s + a->n, s, n);
    if (a->tracked)
        for (size_t i = 0; i < n; i++) a->at[a->n + i] = at;
    a->n += n;
}

void ct__aligned_free(ct_aligned *a) {
    ct__free(a->s);
    ct__free(a->at);
    *a = (ct_aligned){0};
}

static void rewrite_skip_char(ct_rewrite *r) {
    if (r->next == r->end) return;
    do r->next++;
    while (r->next < r->end && !ct__is_char_start(r->from.s[r->next]));
}

void ct__rewrite_skip(ct_rewrite *r, size_t chars) {
    for (; chars; chars--) rewrite_skip_char(r);
}

void ct__rewrite(ct_rewrite *r, uint32_t cp, int change) {
    char bytes[4];
    ct_token_span at = {0, 0};
    if (r->to->tracked && r->begin < r->end) {
        // Inserted text has the offsets of the character before it.
        uint32_t i = change > 0 && r->next > r->begin ? r->next - 1 : r->next;
        at = r->from.at[i < r->end ? i : r->end - 1];
    }
    ct__aligned_append(r->to, bytes, ct__utf8_put(cp, bytes), at);
    if (change > 0) return;
    for (; change <= 0; change++) rewrite_skip_char(r);
}

// ----------------------------------------------------------------------------------------- classes

bool ct__is_white(uint32_t cp) {
    if (cp < 0x80) return cp == ' ' || (cp >= 9 && cp <= 13);
    if (cp < 0x1680) return cp == 0x85 || cp == 0xa0;
    return cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

// ---------------------------------------------------- characters newer than the libraries' Unicode

#include "text/new_characters.inc"

bool ct__page_has_new_chars(uint32_t page) {
    return page / 8 < sizeof new_pages && (new_pages[page / 8] >> page % 8 & 1);
}

// For a character newer than Unicode 8: 9, 10 (up to Unicode 14), or the substitute of a newer one.
// 0: not newer.
static uint32_t text_newness(uint32_t cp) {
    size_t low = 0, high = sizeof new_runs / sizeof *new_runs;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (new_runs[middle][1] < cp)
            low = middle + 1;
        else
            high = middle;
    }
    bool in = low < sizeof new_runs / sizeof *new_runs && new_runs[low][0] <= cp;
    return in ? new_runs[low][2] : 0;
}

bool ct__is_newer(uint32_t cp, int version) { return text_newness(cp) > (uint32_t)version; }

uint32_t ct__stand_in(uint32_t cp) {
    if (!ct__page_has_new_chars(cp >> 8)) return cp;
    const uint32_t found = text_newness(cp);
    return found > 15 ? found : cp;
}

uint32_t ct__lower(uint32_t cp) {
    size_t low = 0, high = sizeof new_capitals / sizeof *new_capitals;
    const uint32_t lower = (uint32_t)utf8proc_tolower((int32_t)cp);
    if (lower != cp || cp < new_capitals[0][0]) return lower;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (new_capitals[middle][0] <= cp)
            low = middle;
        else
            high = middle;
    }
    return new_capitals[low][0] == cp ? new_capitals[low][1] : cp;
}

static utf8proc_category_t text_category(uint32_t cp) { return utf8proc_category((int32_t)cp); }

bool ct__is_numeric(uint32_t cp) {
    if (cp < 0x80) return cp >= '0' && cp <= '9';
    utf8proc_category_t c = text_category(ct__stand_in(cp));
    return c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO;
}

bool ct__is_punctuation(uint32_t cp) {
    if (cp < 0x80)
        return (cp >= '!' && cp <= '/') || (cp >= ':' && cp <= '@') || (cp >= '[' && cp <= '`') ||
               (cp >= '{' && cp <= '~');
    utf8proc_category_t c = text_category(cp);
    return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO && !ct__is_newer(cp, 8);
}

bool ct__is_any_mark(uint32_t cp) {
    if (cp < 0x300) return false;
    utf8proc_category_t c = text_category(cp);
    return c >= UTF8PROC_CATEGORY_MN && c <= UTF8PROC_CATEGORY_ME && !ct__is_newer(cp, 9);
}

bool ct__is_mark_nonspacing(uint32_t cp) {
    return cp >= 0x300 && text_category(cp) == UTF8PROC_CATEGORY_MN && !ct__is_newer(cp, 8);
}

bool ct__is_control(uint32_t cp) {
    if (cp < 0x80) return (cp < 0x20 && cp != '\t' && cp != '\n' && cp != '\r') || cp == 0x7f;
    utf8proc_category_t c = text_category(cp);
    const bool control =
        c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF || c == UTF8PROC_CATEGORY_CO;
    return control && !ct__is_newer(cp, 8);
}

bool ct__is_cjk(uint32_t cp) {
    return (cp >= 0x4e00 && cp <= 0x9fff) || (cp >= 0x3400 && cp <= 0x4dbf) ||
           (cp >= 0x20000 && cp <= 0x2a6df) || (cp >= 0x2a700 && cp <= 0x2b81f) ||
           (cp >= 0x2b920 && cp <= 0x2ceaf) || (cp >= 0xf900 && cp <= 0xfaff) ||
           (cp >= 0x2f800 && cp <= 0x2fa1f);
}
