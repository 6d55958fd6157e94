// Regular expressions, compiled and matched by PCRE2.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#include "base/os.h"
#include "base/text.h"
#include "text/text.h"

// Start offsets that one call of PCRE2 tries, so that a pattern that fails slowly everywhere is
// stopped in time.
enum { MAX_STARTS = 256, JIT_STACK_BYTES = 1 << 20 };

struct ct_regex {
    pcre2_code *code;
    char *label;
    bool classes; // uses classes of characters: new characters are substituted
};

// --------------------------------------------------------------------------------------- compiling

static void *regex_malloc(size_t n, void *user) {
    (void)user;
    return ct__malloc(n);
}
static void regex_free(void *p, void *user) {
    (void)user;
    ct__free(p);
}

static ct_regex *regex_compile(const char *label, const char *pattern, size_t n, uint32_t flags,
                               ct_err *err) {
    int code;
    PCRE2_SIZE at;
    ct_regex *regex = ct__calloc(1, sizeof *regex);
    pcre2_general_context *general = pcre2_general_context_create(regex_malloc, regex_free, NULL);
    pcre2_compile_context *context = general ? pcre2_compile_context_create(general) : NULL;
    if (regex) regex->label = ct__strdup(label);
    if (context && regex && regex->label) {
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        regex->code =
            pcre2_compile((PCRE2_SPTR)pattern, n, flags | PCRE2_UTF | PCRE2_USE_OFFSET_LIMIT, &code,
                          &at, context);
        if (!regex->code && code != PCRE2_ERROR_HEAP_FAILED) {
            char why[128];
            pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
            ct__err(err, CT_E_FORMAT, CT_NOWHERE, label,
                    "the pattern is not understood: byte %zu: %s", (size_t)at, why);
        }
    }
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    if (regex && regex->code) {
        // Without a JIT the pattern is interpreted.
        (void)pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE);
        return regex;
    }
    if (!err->code) ct__err_memory(err, CT_NOWHERE, label, n);
    ct__regex_free(regex);
    return NULL;
}

ct_regex *ct__regex_new(const char *label, const char *pattern, size_t n, ct_dialect dialect,
                        ct_err *err) {
    ct_text text = {0};
    ct_regex *regex = NULL;
    if (dialect == CT_LITERAL) return regex_compile(label, pattern, n, PCRE2_LITERAL, err);
    const bool ok = ct__oniguruma_to_pcre2(label, pattern, n, dialect == CT_ONIGURUMA, &text, err);
    if (ok && !text.failed)
        regex = regex_compile(label, text.s ? text.s : "", text.n,
                              PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, err);
    else if (text.failed && !err->code)
        ct__err_memory(err, CT_NOWHERE, label, n);
    ct__text_free(&text);
    if (regex) regex->classes = true;
    return regex;
}

void ct__regex_free(ct_regex *regex) {
    if (!regex) return;
    pcre2_code_free(regex->code);
    ct__free(regex->label);
    ct__free(regex);
}

// ---------------------------------------------------------------------------------------- matching

typedef struct regex_search {
    const ct_matcher *m;
    const ct_regex *regex;
    const char *s;
    uint32_t n;
    double deadline; // time at which the search is stopped; 0: not measured yet
} regex_search;

// Finds the next match from byte `from` on: 1 and the match, 0: none, < 0: PCRE2's error.
static int regex_next_match(regex_search *x, uint32_t from, uint32_t *begin, uint32_t *end) {
    for (uint32_t window = from;;) {
        uint32_t last = window + MAX_STARTS < x->n ? window + MAX_STARTS : x->n;
        pcre2_set_offset_limit(x->m->context, last);
        int found = pcre2_match(x->regex->code, (PCRE2_SPTR)x->s, x->n, window, PCRE2_NO_UTF_CHECK,
                                x->m->data, x->m->context);
        if (found >= 0) {
            PCRE2_SIZE *at = pcre2_get_ovector_pointer(x->m->data);
            *begin = (uint32_t)at[0], *end = (uint32_t)at[1];
            return *end >= *begin && *begin >= from ? 1 : PCRE2_ERROR_INTERNAL;
        }
        if (found != PCRE2_ERROR_NOMATCH) return found;
        if (last == x->n) return 0;
        // Only patterns that rarely match get here, so the clock costs the others nothing.
        double now = ct__now();
        if (x->deadline == 0) x->deadline = now + 1 + 2e-6 * x->n;
        if (now > x->deadline) return PCRE2_ERROR_MATCHLIMIT;
        for (window = last; window > from && !ct__is_char_start(x->s[window]); window--) continue;
    }
}

static bool regex_add_match(ct_regex_matches *out, uint32_t begin, uint32_t end, bool matched) {
    if (!CT_GROW(out->v, out->cap, out->n + 1)) return false;
    out->v[out->n++] = (ct_regex_match){begin, end, matched};
    return true;
}

static bool regex_find_all(regex_search *x, ct_regex_matches *out, ct_err *err) {
    uint32_t at = 0, last = 0, begin, end;
    bool any = false, ok = true;
    int found = 0;
    while (ok && at <= x->n && (found = regex_next_match(x, at, &begin, &end)) == 1) {
        if (begin == end && any && end == last) { // an empty match at the end of the previous match
            if (at >= x->n) break;
            do at++;
            while (at < x->n && !ct__is_char_start(x->s[at]));
            continue;
        }
        if (begin > last) ok = regex_add_match(out, last, begin, false);
        ok = ok && regex_add_match(out, begin, end, true);
        at = last = end;
        any = true;
    }
    if (ok && found >= 0 && last < x->n) ok = regex_add_match(out, last, x->n, false);
    if (!ok || found == PCRE2_ERROR_HEAPLIMIT || found == PCRE2_ERROR_NOMEMORY)
        return ct__err_memory(err, CT_NOWHERE, x->regex->label, x->n);
    if (found < 0)
        return ct__err(err, CT_E_DATA, CT_NOWHERE, x->regex->label,
                       "the pattern takes too long on this text, of %u bytes (at byte %u)", x->n,
                       at);
    return true;
}

void ct__matcher_free(ct_matcher *m) {
    pcre2_jit_stack_free(m->stack);
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    pcre2_general_context_free(m->general);
    ct__free(m->substituted);
    *m = (ct_matcher){0};
}

static bool regex_prepare_matcher(ct_matcher *m) {
    if (m->context) return true;
    m->general = pcre2_general_context_create(regex_malloc, regex_free, NULL);
    if (m->general) {
        m->data = pcre2_match_data_create(1, m->general);
        m->stack = pcre2_jit_stack_create(32 << 10, JIT_STACK_BYTES, m->general);
    }
    if (m->data && m->stack) m->context = pcre2_match_context_create(m->general);
    if (!m->context) {
        ct__matcher_free(m);
        return false;
    }
    pcre2_jit_stack_assign(m->context, NULL, m->stack);
    return true;
}

// True if the byte can begin a character newer than Unicode 14: few lead bytes can, and none of
// two-byte characters.
static bool regex_may_begin_new_char(unsigned char c) {
    return (c >= 0xe0 && c < 0xe4) || c == 0xea || c == 0xf0;
}

// Returns the offset from i on of the first character on a page with new characters, or n.
static uint32_t regex_next_new_page(const char *text, uint32_t i, uint32_t n) {
    const unsigned char *s = (const unsigned char *)text;
    while (i < n) {
        uint64_t word;
        if (n - i >= 8) { // skips eight bytes of which none is 0xe0 or above
            memcpy(&word, s + i, 8);
            if (!(word & word << 1 & word << 2 & 0x8080808080808080)) {
                i += 8;
                continue;
            }
        }
        for (const uint32_t end = n - i < 8 ? n : i + 8; i < end; i++) {
            if (!regex_may_begin_new_char(s[i])) continue;
            const uint32_t page = s[i] < 0xf0 ? (s[i] & 15u) << 4 | (s[i + 1] >> 2 & 15u)
                                              : (s[i + 1] & 63u) << 4 | (s[i + 2] >> 2 & 15u);
            if (ct__page_has_new_chars(page)) return i;
        }
    }
    return n;
}

// Returns the text, or a copy of the same length with new characters substituted. NULL: no memory.
static const char *regex_substitute_new(ct_matcher *m, const char *s, uint32_t n) {
    const char *text = s;
    for (uint32_t i = regex_next_new_page(s, 0, n), used; i < n;
         i = regex_next_new_page(s, i + used, n)) {
        const uint32_t cp = ct__char(s + i, n - i, &used), substitute = ct__stand_in(cp);
        if (cp == substitute) continue;
        if (text == s) {
            if (!CT_GROW(m->substituted, m->substituted_cap, n)) return NULL;
            text = memcpy(m->substituted, s, n);
        }
        ct__utf8_put(substitute, m->substituted + i);
    }
    return text;
}

bool ct__regex_find_all(ct_matcher *m, const ct_regex *regex, const char *s, uint32_t n,
                        ct_regex_matches *out, ct_err *err) {
    out->n = 0;
    if (!regex_prepare_matcher(m) || !CT_GROW(out->v, out->cap, 1))
        return ct__err_memory(err, CT_NOWHERE, regex->label, JIT_STACK_BYTES);
    if (n == 0) return regex_add_match(out, 0, 0, false);
    // Limits backtracking: enough for a pattern that needs a few steps per byte.
    pcre2_set_match_limit(m->context, 1000000 + 4 * n);
    pcre2_set_heap_limit(m->context, (64 << 10) + n / 4);
    regex_search x = {
        .m = m, .regex = regex, .s = regex->classes ? regex_substitute_new(m, s, n) : s, .n = n};
    if (!x.s) return ct__err_memory(err, CT_NOWHERE, regex->label, n);
    return regex_find_all(&x, out, err);
}

// ----------------------------------------------------------------------------------------- scripts

static const char regex_script_names[] =
    "Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak "
    "Bengali Bhaiksuki "
    "Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian Chakma "
    "Cham Cherokee "
    "Common Coptic Cuneiform Cypriot Cyrillic Deseret Devanagari Duployan Egyptian_Hieroglyphs "
    "Elbasan Ethiopic "
    "Georgian Glagolitic Gothic Grantha Greek Gujarati Gurmukhi Hangul Hanunoo Hatran Hebrew "
    "Imperial_Aramaic "
    "Inherited Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Kayah_Li "
    "Kharoshthi Khmer "
    "Khojki Khudawadi Lao Latin Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian Mahajani "
    "Malayalam Mandaic "
    "Manichaean Marchen Meetei_Mayek Mende_Kikakui Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi "
    "Mongolian Mro "
    "Multani Myanmar Nabataean New_Tai_Lue Newa Nko Ogham Ol_Chiki Old_Hungarian Old_Italic "
    "Old_North_Arabian "
    "Old_Permic Old_Persian Old_South_Arabian Old_Turkic Oriya Osage Osmanya Pahawh_Hmong "
    "Palmyrene Pau_Cin_Hau "
    "Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic Samaritan Saurashtra Sharada Shavian Siddham "
    "SignWriting "
    "Sinhala Sora_Sompeng Sundanese Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet "
    "Takri Tamil "
    "Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Ugaritic Vai Warang_Citi Yi";

ct_regex *ct__regex_scripts(ct_err *err) {
    CT_TEXT text = {0};
    // A space belongs to the script after it; kana and the prolonged sound mark count as Han.
    ct__text_add(&text, "(?:[\\p{sc:Han}\\p{sc:Hiragana}\\p{sc:Katakana}\\x{30fc}] *+)++");
    for (const char *name = regex_script_names; *name;) {
        size_t n = strcspn(name, " ");
        ct__textf(&text, "|(?:(?![ \\x{30fc}])\\p{sc:%.*s} *+)++", (int)n, name);
        name += n + (name[n] == ' ');
    }
    ct_regex *regex = NULL;
    if (text.failed)
        ct__err_memory(err, CT_NOWHERE, "UnicodeScripts", text.cap);
    else
        regex = regex_compile("UnicodeScripts", text.s, text.n, PCRE2_UCP, err);
    return regex;
}
