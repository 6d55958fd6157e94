#include "base/text.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/fp_env.h"
#include "cotan/cotan.h"

static bool text_reserve(ct_text *text, size_t more) {
    if (text->failed || more > SIZE_MAX - text->n - 1) return false;
    if (CT_GROW(text->s, text->cap, text->n + more + 1)) return true;
    text->failed = true;
    return false;
}

void ct__text_bytes(ct_text *text, const void *bytes, size_t n) {
    if (!text_reserve(text, n)) return;
    if (n) memcpy(text->s + text->n, bytes, n);
    text->n += n;
    text->s[text->n] = '\0';
}

void ct__text_add(ct_text *text, const char *s) { ct__text_bytes(text, s, strlen(s)); }

void ct__textf_v(ct_text *text, const char *format, va_list args) {
    CT_DEFAULT_ENV;
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    if (n >= 0 && text_reserve(text, (size_t)n)) {
        vsnprintf(text->s + text->n, (size_t)n + 1, format, again);
        text->n += (size_t)n;
    }
    va_end(again);
}

void ct__textf(ct_text *text, const char *format, ...) {
    va_list args;
    va_start(args, format);
    ct__textf_v(text, format, args);
    va_end(args);
}

void ct__text_free(ct_text *text) {
    ct__free(text->s);
    *text = (ct_text){0};
}

// Counts insertions, deletions, substitutions and swaps of neighbours; uses the words' first 31
// characters.
static size_t text_edit_distance(const char *a, const char *b) {
    size_t rows[3][32], *row = rows[0], *above = rows[1], *second = rows[2];
    const size_t n = strlen(b) < 31 ? strlen(b) : 31;
    for (size_t j = 0; j <= n; j++) row[j] = j;
    for (size_t i = 0; a[i] && i < 31; i++) {
        size_t *next = second;
        second = above, above = row, row = next;
        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            size_t best = above[j] + (a[i] != b[j]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (above[j + 1] + 1 < best) best = above[j + 1] + 1;
            if (i && j && a[i] == b[j - 1] && a[i - 1] == b[j] && second[j - 1] + 1 < best)
                best = second[j - 1] + 1;
            row[j + 1] = best;
        }
    }
    return row[n];
}

// True if one word begins with the other, of 3 letters at least, such as evaluate and eval.
static bool text_is_prefix_of_other(const char *a, const char *b) {
    const size_t n = strlen(a), m = strlen(b), least = n < m ? n : m;
    return least >= 3 && strncmp(a, b, least) == 0;
}

ct_bytes_text ct__bytes_text(uint64_t bytes) {
    static const char *const units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
    CT_DEFAULT_ENV;
    ct_bytes_text text;
    double value = (double)bytes;
    int unit = -1;
    // 999.5 kB would be shown as 1e+03 kB.
    while (value >= 999.5) value /= 1000, unit++;
    if (unit < 0)
        snprintf(text.s, sizeof text.s, "%.0f byte%s", value, bytes == 1 ? "" : "s");
    else
        snprintf(text.s, sizeof text.s, "%.3g %s", value, units[unit]);
    return text;
}

// A third of the letters may be wrong; more would match quantize with tokenize, which share only
// their ending.
const char *ct__nearest(const char *word, const char *const *names) {
    const char *best = NULL;
    const size_t limit = strlen(word) / 3;
    size_t least = limit + 1;
    for (; *names; names++) {
        const size_t d =
            text_is_prefix_of_other(word, *names) ? 1 : text_edit_distance(word, *names);
        if (d < least) least = d, best = *names;
    }
    return best;
}
const char *ct_nearest(const char *word, const char *const *names) {
    return word && names ? ct__nearest(word, names) : NULL;
}

// Hashes 16 bytes at a time in two lanes by multiply and fold.
static uint64_t hash_fold(uint64_t a, uint64_t b) {
    __extension__ typedef unsigned __int128 u128;
    u128 p = (u128)a * b;
    return (uint64_t)p ^ (uint64_t)(p >> 64);
}

static inline void hash_absorb(ct_hash *h, uint64_t x, uint64_t y) {
    uint64_t a = hash_fold(x ^ h->lo, y ^ 0xe7037ed1a0b428dbu);
    h->hi = hash_fold(y ^ h->hi, x ^ 0x8ebc6af09c88c6e3u) + h->lo;
    h->lo = a + (h->hi << 29 | h->hi >> 35);
}
static inline void hash_absorb_bytes(ct_hash *h, const unsigned char *p, size_t n) { // at most 16
    uint64_t w[2] = {0, 0};
    memcpy(w, p, n);
    hash_absorb(h, w[0], w[1]);
}

// Long inputs go through four independent pairs of lanes.
ct_hash ct__hash_bytes(const void *bytes, size_t n, ct_hash seed) {
    const unsigned char *p = bytes, *end = p + n;
    ct_hash h = {seed.lo ^ 0x9e3779b97f4a7c15u, seed.hi ^ 0xd1b54a32d192ed03u};
    if (n >= 64) {
        ct_hash a = {h.lo + 1, h.hi}, b = {h.lo + 2, h.hi}, c = {h.lo + 3, h.hi};
        for (; end - p >= 64; p += 64) {
            hash_absorb_bytes(&h, p, 16);
            hash_absorb_bytes(&a, p + 16, 16);
            hash_absorb_bytes(&b, p + 32, 16);
            hash_absorb_bytes(&c, p + 48, 16);
        }
        hash_absorb(&h, a.lo, a.hi);
        hash_absorb(&h, b.lo, b.hi);
        hash_absorb(&h, c.lo, c.hi);
    }
    for (; end - p >= 16; p += 16) hash_absorb_bytes(&h, p, 16);
    if (p < end) hash_absorb_bytes(&h, p, (size_t)(end - p));
    uint64_t lo = hash_fold(h.lo ^ n, 0xa0761d6478bd642fu ^ h.hi);
    return (ct_hash){lo, hash_fold(h.hi ^ lo, 0x589965cc75374cc3u ^ n)};
}

void ct__hash_hex(ct_hash hash, char hex[33]) {
    snprintf(hex, 33, "%016llx%016llx", (unsigned long long)hash.hi, (unsigned long long)hash.lo);
}

bool ct__ends_with(const char *text, const char *end) {
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}
