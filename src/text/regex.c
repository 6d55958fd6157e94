// Regular expressions by PCRE2, with the dialect of Oniguruma that tokenizer files are written in.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

#include "base/os.h"
#include "base/text.h"
#include "text/text.h"

// Starts that one call tries, so that a pattern that fails slowly everywhere is noticed in time.
enum { STARTS = 256, STACK = 1 << 20 };

struct ct_regex {
    pcre2_code *code;
    char *place;
    bool classes; // asks for categories of characters: new ones have stand-ins
};

// --------------------------------------------------------------------------------------- compiling

static void *take(size_t n, void *user) {
    (void)user;
    return ct__malloc(n);
}
static void give(void *p, void *user) {
    (void)user;
    ct__free(p);
}

static ct_regex *compile(const char *place, const char *pattern, size_t n, uint32_t flags,
                         ct_err *err) {
    int code;
    PCRE2_SIZE at;
    ct_regex *regex = ct__calloc(1, sizeof *regex);
    pcre2_general_context *general = pcre2_general_context_create(take, give, NULL);
    pcre2_compile_context *context = general ? pcre2_compile_context_create(general) : NULL;
    if (regex) regex->place = ct__strdup(place);
    if (context && regex && regex->place) {
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        regex->code =
            pcre2_compile((PCRE2_SPTR)pattern, n, flags | PCRE2_UTF | PCRE2_USE_OFFSET_LIMIT, &code,
                          &at, context);
        if (!regex->code && code != PCRE2_ERROR_HEAP_FAILED) {
            char why[128];
            pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
            ct__err(err, CT_E_FORMAT, CT_NOWHERE, place,
                    "the pattern is not understood: byte %zu: %s", (size_t)at, why);
        }
    }
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    if (regex && regex->code) {
        (void)pcre2_jit_compile(regex->code,
                                PCRE2_JIT_COMPLETE); // where there is none it interprets
        return regex;
    }
    if (!err->code) ct__err_memory(err, CT_NOWHERE, place, n);
    ct__regex_free(regex);
    return NULL;
}

ct_regex *ct__regex_new(const char *place, const char *pattern, size_t n, ct_dialect dialect,
                        ct_err *err) {
    ct_text text = {0};
    ct_regex *regex = NULL;
    if (dialect == CT_LITERAL) return compile(place, pattern, n, PCRE2_LITERAL, err);
    const bool ok = ct__oniguruma(place, pattern, n, dialect == CT_ONIGURUMA, &text, err);
    if (ok && !text.failed)
        regex = compile(place, text.s ? text.s : "", text.n,
                        PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, err);
    else if (text.failed && !err->code)
        ct__err_memory(err, CT_NOWHERE, place, n);
    ct__text_free(&text);
    if (regex) regex->classes = true;
    return regex;
}

void ct__regex_free(ct_regex *regex) {
    if (!regex) return;
    pcre2_code_free(regex->code);
    ct__free(regex->place);
    ct__free(regex);
}

// ---------------------------------------------------------------------------------------- matching

typedef struct search {
    const ct_matcher *m;
    const ct_regex *regex;
    const char *s;
    uint32_t n;
    double ends; // when patience does; 0: not begun
} search;

// From byte `from` on: 1 and the match, 0: there is none, < 0: PCRE2's code.
static int next_match(search *x, uint32_t from, uint32_t *begin, uint32_t *end) {
    for (uint32_t window = from;;) {
        uint32_t last = window + STARTS < x->n ? window + STARTS : x->n;
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
        // Only patterns that match rarely come here, so that the clock costs others nothing.
        double now = ct__now();
        if (x->ends == 0) x->ends = now + 1 + 2e-6 * x->n;
        if (now > x->ends) return PCRE2_ERROR_MATCHLIMIT;
        for (window = last; window > from && !ct__char_begins(x->s[window]); window--) continue;
    }
}

static bool add(ct_hits *out, uint32_t begin, uint32_t end, bool matched) {
    if (!CT_GROW(out->v, out->cap, out->n + 1)) return false;
    out->v[out->n++] = (ct_hit){begin, end, matched};
    return true;
}

static bool find_all(search *x, ct_hits *out, ct_err *err) {
    uint32_t at = 0, last = 0, begin, end;
    bool any = false, ok = true;
    int found = 0;
    while (ok && at <= x->n && (found = next_match(x, at, &begin, &end)) == 1) {
        if (begin == end && any && end == last) { // an empty match where one has just ended
            if (at >= x->n) break;
            do at++;
            while (at < x->n && !ct__char_begins(x->s[at]));
            continue;
        }
        if (begin > last) ok = add(out, last, begin, false);
        ok = ok && add(out, begin, end, true);
        at = last = end;
        any = true;
    }
    if (ok && found >= 0 && last < x->n) ok = add(out, last, x->n, false);
    if (!ok || found == PCRE2_ERROR_HEAPLIMIT || found == PCRE2_ERROR_NOMEMORY)
        return ct__err_memory(err, CT_NOWHERE, x->regex->place, x->n);
    if (found < 0)
        return ct__err(err, CT_E_DATA, CT_NOWHERE, x->regex->place,
                       "the pattern takes too long on this text, of %u bytes (at byte %u)", x->n,
                       at);
    return true;
}

void ct__matcher_free(ct_matcher *m) {
    pcre2_jit_stack_free(m->stack);
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    pcre2_general_context_free(m->general);
    ct__free(m->old);
    *m = (ct_matcher){0};
}

static bool prepare(ct_matcher *m) {
    if (m->context) return true;
    m->general = pcre2_general_context_create(take, give, NULL);
    if (m->general) {
        m->data = pcre2_match_data_create(1, m->general);
        m->stack = pcre2_jit_stack_create(32 << 10, STACK, m->general);
    }
    if (m->data && m->stack) m->context = pcre2_match_context_create(m->general);
    if (!m->context) {
        ct__matcher_free(m);
        return false;
    }
    pcre2_jit_stack_assign(m->context, NULL, m->stack);
    return true;
}

// Can this byte begin a new character? All but a few begin none, and nor do those of two bytes.
static bool may_begin_new(unsigned char c) {
    return (c >= 0xe0 && c < 0xe4) || c == 0xea || c == 0xf0;
}

// The first character from byte i on whose page has new ones, or n.
static uint32_t next_page(const char *text, uint32_t i, uint32_t n) {
    const unsigned char *s = (const unsigned char *)text;
    while (i < n) {
        uint64_t word;
        if (n - i >= 8) { // eight bytes of which none is above 0xe0
            memcpy(&word, s + i, 8);
            if (!(word & word << 1 & word << 2 & 0x8080808080808080)) {
                i += 8;
                continue;
            }
        }
        for (const uint32_t end = n - i < 8 ? n : i + 8; i < end; i++) {
            if (!may_begin_new(s[i])) continue;
            const uint32_t page = s[i] < 0xf0 ? (s[i] & 15u) << 4 | (s[i + 1] >> 2 & 15u)
                                              : (s[i + 1] & 63u) << 4 | (s[i + 2] >> 2 & 15u);
            if (ct__has_new(page)) return i;
        }
    }
    return n;
}

// The text, or a copy whose new characters have stand-ins, of as many bytes. NULL: no memory.
static const char *with_stand_ins(ct_matcher *m, const char *s, uint32_t n) {
    const char *text = s;
    for (uint32_t i = next_page(s, 0, n), used; i < n; i = next_page(s, i + used, n)) {
        const uint32_t cp = ct__char(s + i, n - i, &used), old = ct__stand_in(cp);
        if (cp == old) continue;
        if (text == s) {
            if (!CT_GROW(m->old, m->old_cap, n)) return NULL;
            text = memcpy(m->old, s, n);
        }
        ct__utf8_put(old, m->old + i);
    }
    return text;
}

bool ct__regex_find(ct_matcher *m, const ct_regex *regex, const char *s, uint32_t n, ct_hits *out,
                    ct_err *err) {
    out->n = 0;
    if (!prepare(m) || !CT_GROW(out->v, out->cap, 1))
        return ct__err_memory(err, CT_NOWHERE, regex->place, STACK);
    if (n == 0) return add(out, 0, 0, false);
    // Of backtracking: a pattern that needs a few steps a byte has enough.
    pcre2_set_match_limit(m->context, 1000000 + 4 * n);
    pcre2_set_heap_limit(m->context, (64 << 10) + n / 4);
    search x = {.m = m, .regex = regex, .s = regex->classes ? with_stand_ins(m, s, n) : s, .n = n};
    if (!x.s) return ct__err_memory(err, CT_NOWHERE, regex->place, n);
    return find_all(&x, out, err);
}

// ----------------------------------------------------------------------------------------- scripts

static const char scripts[] =
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
    ct_text text = {0};
    // A space belongs to whatever it follows; kana and their prolonged sound mark are Han's.
    ct__text_add(&text, "(?:[\\p{sc:Han}\\p{sc:Hiragana}\\p{sc:Katakana}\\x{30fc}] *+)++");
    for (const char *name = scripts; *name;) {
        size_t n = strcspn(name, " ");
        ct__textf(&text, "|(?:(?![ \\x{30fc}])\\p{sc:%.*s} *+)++", (int)n, name);
        name += n + (name[n] == ' ');
    }
    ct_regex *regex = NULL;
    if (text.failed)
        ct__err_memory(err, CT_NOWHERE, "UnicodeScripts", text.cap);
    else
        regex = compile("UnicodeScripts", text.s, text.n, PCRE2_UCP, err);
    ct__text_free(&text);
    return regex;
}
