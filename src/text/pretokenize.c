// Pre-tokenizers: split text into words.
#include <string.h>

#include "text/tokenizer.h"

// GPT-2's characters for bytes: printable bytes are themselves, the others are 256 and up.
const uint16_t ct__byte_chars[256] = {
    256, 257, 258, 259, 260, 261, 262, 263, 264, 265, 266, 267, 268, 269, 270, 271, 272, 273, 274,
    275, 276, 277, 278, 279, 280, 281, 282, 283, 284, 285, 286, 287, 288, 33,  34,  35,  36,  37,
    38,  39,  40,  41,  42,  43,  44,  45,  46,  47,  48,  49,  50,  51,  52,  53,  54,  55,  56,
    57,  58,  59,  60,  61,  62,  63,  64,  65,  66,  67,  68,  69,  70,  71,  72,  73,  74,  75,
    76,  77,  78,  79,  80,  81,  82,  83,  84,  85,  86,  87,  88,  89,  90,  91,  92,  93,  94,
    95,  96,  97,  98,  99,  100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113,
    114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 289, 290, 291, 292, 293, 294,
    295, 296, 297, 298, 299, 300, 301, 302, 303, 304, 305, 306, 307, 308, 309, 310, 311, 312, 313,
    314, 315, 316, 317, 318, 319, 320, 321, 322, 161, 162, 163, 164, 165, 166, 167, 168, 169, 170,
    171, 172, 323, 174, 175, 176, 177, 178, 179, 180, 181, 182, 183, 184, 185, 186, 187, 188, 189,
    190, 191, 192, 193, 194, 195, 196, 197, 198, 199, 200, 201, 202, 203, 204, 205, 206, 207, 208,
    209, 210, 211, 212, 213, 214, 215, 216, 217, 218, 219, 220, 221, 222, 223, 224, 225, 226, 227,
    228, 229, 230, 231, 232, 233, 234, 235, 236, 237, 238, 239, 240, 241, 242, 243, 244, 245, 246,
    247, 248, 249, 250, 251, 252, 253, 254, 255,
};

int ct__byte_of_char(uint32_t cp) {
    // the three ranges of bytes that are not printable
    if (cp < 256) return ct__byte_chars[cp] == cp ? (int)cp : -1;
    if (cp < 289) return (int)cp - 256;
    if (cp < 323) return (int)cp - 289 + 127;
    return cp == 323 ? 173 : -1;
}

// ------------------------------------------------------------------------------------------ splits

static bool pretokenize_add_split(ct_work *w, uint32_t base, uint32_t begin, uint32_t end) {
    return begin == end || ct__work_add_split(w, base + begin, base + end, -1);
}

// Turns the current matches into splits; `invert` swaps the matches and the text between them.
static bool pretokenize_add_matches(ct_work *w, uint32_t base, ct_split_behavior behavior,
                                    bool invert) {
    const ct_regex_match *m = w->matches.v;
    size_t n = w->matches.n;
    bool ok = true;
    for (size_t i = 0; i < n && ok;) {
        bool matched = m[i].matched != invert;
        uint32_t begin = m[i].begin, end = m[i].end;
        i++;
        switch (behavior) {
        case CT_REMOVED:
            if (matched) continue;
            break;
        case CT_ISOLATED: break;
        case CT_CONTIGUOUS:
            while (i < n && (m[i].matched != invert) == matched) end = m[i++].end;
            break;
        case CT_MERGED_WITH_PREVIOUS: // a match joins the text between matches directly before it
            if (!matched && i < n && m[i].matched != invert) end = m[i++].end;
            break;
        case CT_MERGED_WITH_NEXT:
            if (matched && i < n && (m[i].matched != invert) == false) end = m[i++].end;
            break;
        }
        ok = pretokenize_add_split(w, base, begin, end);
    }
    return ok;
}

typedef bool (*char_class_fn)(uint32_t cp);

static bool pretokenize_match_class(ct_work *w, const char *s, uint32_t n, char_class_fn in) {
    ct_regex_matches *out = &w->matches;
    uint32_t last = 0;
    out->n = 0;
    for (uint32_t i = 0, used; i < n; i += used) {
        if (!in(ct__char(s + i, n - i, &used))) continue;
        if (!CT_GROW(out->v, out->cap, out->n + 3)) return ct__tokenizer_memory_error(w->t, w->err);
        if (i > last) out->v[out->n++] = (ct_regex_match){last, i, false};
        out->v[out->n++] = (ct_regex_match){i, i + used, true};
        last = i + used;
    }
    if (!CT_GROW(out->v, out->cap, out->n + 1)) return ct__tokenizer_memory_error(w->t, w->err);
    if (last < n) out->v[out->n++] = (ct_regex_match){last, n, false};
    return true;
}

static bool is_white_or_punctuation(uint32_t cp) {
    return ct__is_white(cp) || ct__is_punctuation(cp);
}

// Drops whitespace and isolates punctuation, in one pass.
static bool pretokenize_bert(ct_work *w, const char *s, uint32_t base, uint32_t n) {
    if (!pretokenize_match_class(w, s, n, is_white_or_punctuation)) return false;
    for (size_t i = 0; i < w->matches.n; i++) {
        ct_regex_match m = w->matches.v[i];
        uint32_t used;
        if (m.matched && ct__is_white(ct__char(s + m.begin, m.end - m.begin, &used))) continue;
        if (!pretokenize_add_split(w, base, m.begin, m.end)) return false;
    }
    return true;
}

static bool pretokenize_fixed_length(ct_work *w, const char *s, uint32_t base, uint32_t n,
                                     uint32_t length) {
    uint32_t begin = 0, chars = 0;
    for (uint32_t i = 0, used; i < n; i += used) {
        ct__char(s + i, n - i, &used);
        if (++chars < length && i + used < n) continue;
        if (!pretokenize_add_split(w, base, begin, i + used)) return false;
        begin = i + used;
        chars = 0;
    }
    return true;
}

static bool pretokenize_split(ct_work *w, const ct_step *step, ct_split c) {
    const char *s = w->view.s + c.begin;
    uint32_t n = c.end - c.begin;
    switch (step->kind) {
    case CT_STEP_WHITESPACE_SPLIT:
        return pretokenize_match_class(w, s, n, ct__is_white) &&
               pretokenize_add_matches(w, c.begin, CT_REMOVED, false);
    case CT_STEP_PUNCTUATION:
        return pretokenize_match_class(w, s, n, ct__is_punctuation) &&
               pretokenize_add_matches(w, c.begin, step->behavior, false);
    case CT_STEP_DIGITS:
        return pretokenize_match_class(w, s, n, ct__is_numeric) &&
               pretokenize_add_matches(w, c.begin, step->behavior, false);
    case CT_STEP_BERT_SPLIT: return pretokenize_bert(w, s, c.begin, n);
    case CT_STEP_FIXED_LENGTH: return pretokenize_fixed_length(w, s, c.begin, n, step->count);
    default:
        return ct__regex_find_all(&w->matcher, step->pattern, s, n, &w->matches, w->err) &&
               pretokenize_add_matches(w, c.begin, step->behavior, step->invert);
    }
}

static bool pretokenize_all_splits(ct_work *w, const ct_step *step) {
    w->next.n = 0;
    for (size_t i = 0; i < w->splits.n; i++) {
        ct_split c = w->splits.v[i];
        if (c.token >= 0 ? !ct__work_add_split(w, c.begin, c.end, c.token)
                         : !pretokenize_split(w, step, c))
            return false;
    }
    ct__work_use_next(w);
    return true;
}

// --------------------------------------------------------------------- steps that rewrite the text

static void pretokenize_copy(ct_rewrite *r, uint32_t begin, uint32_t end) {
    for (uint32_t i = begin, used; i < end; i += used) {
        uint32_t cp = ct__char(r->from.s + i, end - i, &used);
        ct__rewrite(r, cp, 0);
    }
}

static void pretokenize_prepend(ct_rewrite *r, const char *text, size_t n) {
    ct_token_span at = r->to->tracked ? r->from.at[r->begin] : (ct_token_span){0, 0};
    ct__aligned_append(r->to, text, n, at);
}

static bool pretokenize_metaspace(ct_work *w, const ct_step *step, ct_rewrite *r) {
    const char *s = r->from.s;
    size_t n = step->text_n;
    uint32_t begin = (uint32_t)r->to->n, first = begin;
    bool begins =
        (r->end - r->begin >= n && memcmp(s + r->begin, step->text, n) == 0) || s[r->begin] == ' ';
    bool origin = r->to->tracked ? r->from.at[r->begin].begin == 0 : false;
    if (!begins &&
        (step->scheme == CT_PREPEND_ALWAYS || (step->scheme == CT_PREPEND_FIRST && origin)))
        pretokenize_prepend(r, step->text, n);
    for (uint32_t i = r->begin, used; i < r->end; i += used) {
        bool mark = s[i] == ' ';
        ct_token_span at = r->to->tracked ? r->from.at[i] : (ct_token_span){0, 0};
        ct__char(s + i, r->end - i, &used);
        if (step->split && (mark || (used == n && memcmp(s + i, step->text, n) == 0)) &&
            r->to->n > first) {
            if (!ct__work_add_split(w, first, (uint32_t)r->to->n, -1)) return false;
            first = (uint32_t)r->to->n;
        }
        ct__aligned_append(r->to, mark ? step->text : s + i, mark ? n : used, at);
    }
    return r->to->failed || r->to->n == first ||
           ct__work_add_split(w, first, (uint32_t)r->to->n, -1);
}

static bool pretokenize_rewrite_split(ct_work *w, const ct_step *step, ct_rewrite *r) {
    uint32_t begin = (uint32_t)r->to->n;
    if (step->kind == CT_STEP_METASPACE) return pretokenize_metaspace(w, step, r);
    if (step->kind == CT_STEP_BYTES) {
        for (uint32_t i = r->begin; i < r->end; i++)
            ct__rewrite(r, ct__byte_chars[(unsigned char)r->from.s[i]],
                        !ct__is_char_start(r->from.s[i]));
    } else {
        if (r->from.s[r->begin] != ' ') pretokenize_prepend(r, " ", 1);
        pretokenize_copy(r, r->begin, r->end);
    }
    return ct__work_add_split(w, begin, (uint32_t)r->to->n, -1);
}

static bool pretokenize_rewrite_all(ct_work *w, const ct_step *step) {
    ct_aligned *to = ct__work_begin_rewrite(w);
    if (!to) return false;
    for (size_t i = 0; i < w->splits.n; i++) {
        ct_split c = w->splits.v[i];
        uint32_t begin = (uint32_t)to->n;
        ct_rewrite r = {w->view, c.begin, c.end, c.begin, to};
        if (c.token >= 0) {
            pretokenize_copy(&r, c.begin, c.end);
            if (!ct__work_add_split(w, begin, (uint32_t)to->n, c.token)) return false;
        } else if (!pretokenize_rewrite_split(w, step, &r)) {
            return false;
        }
    }
    return ct__work_end_rewrite(w, "cutting into words");
}

bool ct__pretokenize(ct_work *w, const ct_step *step) {
    bool writes = step->kind == CT_STEP_METASPACE || step->kind == CT_STEP_BYTES ||
                  step->kind == CT_STEP_PREFIX_SPACE;
    return writes ? pretokenize_rewrite_all(w, step) : pretokenize_all_splits(w, step);
}
