// Normalizers, with the alignments of the reference library.
#include <string.h>

#include <utf8proc.h>

#include "text/tokenizer.h"

// ---------------------------------------------------------------------------- Unicode normal forms

// The characters of a text under normalization, and the `change` of each for ct__rewrite.
typedef struct normal_form_text {
    uint32_t *chars;
    int32_t *changes;
    size_t n, pending; // the characters from `pending` on are not in canonical order yet
    bool failed;
} normal_form_text;

static unsigned normal_form_class(uint32_t cp) {
    if (cp < 0x300) return 0;
    const unsigned class = (unsigned)utf8proc_get_property((int32_t)cp)->combining_class;
    return class && ct__is_newer(cp, 9) ? 0 : class;
}

// Orders a run of marks by combining class; stable.
static void normal_form_order_marks(normal_form_text *f, ct_work *w) {
    size_t n = f->n - f->pending;
    uint32_t *c = f->chars + f->pending;
    int32_t *d = f->changes + f->pending;
    if (n > 1 && n <= 32) {
        for (size_t i = 1; i < n; i++)
            for (size_t k = i; k && normal_form_class(c[k - 1]) > normal_form_class(c[k]); k--) {
                uint32_t cp = c[k];
                int32_t change = d[k];
                c[k] = c[k - 1], c[k - 1] = cp;
                d[k] = d[k - 1], d[k - 1] = change;
            }
    } else if (n > 1) { // counting sort, so that long runs are linear
        size_t count[257] = {0};
        uint32_t *sorted = ct__malloc(n * 8);
        if (!sorted) {
            f->failed = true;
            return;
        }
        int32_t *sorted_changes = (int32_t *)(sorted + n);
        for (size_t i = 0; i < n; i++) count[normal_form_class(c[i]) + 1]++;
        for (size_t i = 0; i < 256; i++) count[i + 1] += count[i];
        for (size_t i = 0; i < n; i++) {
            size_t to = count[normal_form_class(c[i])]++;
            sorted[to] = c[i], sorted_changes[to] = d[i];
        }
        memcpy(c, sorted, n * 4);
        memcpy(d, sorted_changes, n * 4);
        ct__free(sorted);
    }
    (void)w;
    f->pending = f->n;
}

static void normal_form_push(ct_work *w, normal_form_text *f, uint32_t cp, int32_t change) {
    if (!CT_GROW(w->chars, w->chars_cap, f->n + 1) ||
        !CT_GROW(w->changes, w->changes_cap, f->n + 1)) {
        f->failed = true;
        return;
    }
    f->chars = w->chars, f->changes = w->changes;
    if (normal_form_class(cp) == 0) normal_form_order_marks(f, w);
    f->chars[f->n] = cp;
    f->changes[f->n++] = change;
}

static void normal_form_decompose(ct_work *w, normal_form_text *f, uint32_t cp, bool compatible) {
    int32_t parts[32];
    int boundary = 0;
    if (cp < 0xa0) {
        normal_form_push(w, f, cp, 0);
        return;
    }
    utf8proc_option_t how = UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
    utf8proc_ssize_t n = utf8proc_decompose_char((int32_t)cp, parts, 32, how, &boundary);
    if (n < 1 || n > 32 || (parts[0] != (int32_t)cp && ct__is_newer(cp, 9))) {
        normal_form_push(w, f, cp, 0);
        return;
    }
    for (utf8proc_ssize_t i = 0; i < n; i++) normal_form_push(w, f, (uint32_t)parts[i], i > 0);
}

// Returns the composition of two characters; 0: none.
static uint32_t normal_form_compose_pair(uint32_t a, uint32_t b) {
    bool jamo = (b >= 0x1161 && b <= 0x1175) || (b >= 0x11a8 && b <= 0x11c2);
    if (b < 0x300 || (!jamo && utf8proc_get_property((int32_t)b)->comb_index == UINT16_MAX))
        return 0;
    int32_t pair[2] = {(int32_t)a, (int32_t)b};
    const bool one = utf8proc_normalize_utf32(pair, 2, UTF8PROC_COMPOSE | UTF8PROC_STABLE) == 1;
    return one && !ct__is_newer((uint32_t)pair[0], 9) ? (uint32_t)pair[0] : 0;
}

// Composes in place: a starter absorbs the marks after it that no other mark blocks.
static void normal_form_compose(normal_form_text *f) {
    size_t out = 0, starter = SIZE_MAX;
    int last = -1; // the class of the last mark that was not absorbed; -1: none
    for (size_t i = 0; i < f->n; i++) {
        uint32_t cp = f->chars[i];
        int class = (int)normal_form_class(cp);
        uint32_t both = starter != SIZE_MAX && (last < 0 || last < class)
                            ? normal_form_compose_pair(f->chars[starter], cp)
                            : 0;
        if (both) {
            f->chars[starter] = both;
            f->changes[starter] += f->changes[i] - 1;
            continue;
        }
        if (class == 0)
            starter = out, last = -1;
        else if (starter != SIZE_MAX)
            last = class;
        f->chars[out] = cp;
        f->changes[out++] = f->changes[i];
    }
    f->n = out;
}

static bool normalize_form(ct_work *w, ct_rewrite *r, bool compatible, bool composes) {
    normal_form_text f = {0};
    for (uint32_t i = r->begin, used; i < r->end; i += used)
        normal_form_decompose(w, &f, ct__char(r->from.s + i, r->end - i, &used), compatible);
    if (!f.failed) normal_form_order_marks(&f, w);
    if (f.failed) return false;
    if (composes) normal_form_compose(&f);
    for (size_t i = 0; i < f.n; i++) ct__rewrite(r, f.chars[i], f.changes[i]);
    return true;
}

// True if all characters are below the limit, below which text is already in the composed form.
static bool normalize_is_below(const char *s, uint32_t n, uint32_t limit) {
    for (uint32_t i = 0, used; i < n; i += used)
        if (ct__char(s + i, n - i, &used) >= limit) return false;
    return true;
}

// ----------------------------------------------------------------------------------- per character

// Drops the characters for which `drop` is true; their range belongs to the character before.
static void normalize_filter(ct_rewrite *r, bool (*drop)(uint32_t), uint32_t (*map)(uint32_t)) {
    uint32_t last = 0, used;
    bool any = false;
    int removed = 0;
    for (uint32_t i = r->begin; i < r->end; i += used) {
        uint32_t cp = ct__char(r->from.s + i, r->end - i, &used);
        if (drop(cp)) {
            removed++;
            continue;
        }
        if (any)
            ct__rewrite(r, map ? map(last) : last, -removed);
        else
            ct__rewrite_skip(r, (size_t)removed);
        last = cp, any = true, removed = 0;
    }
    if (any) ct__rewrite(r, map ? map(last) : last, -removed);
}

static bool bert_drops(uint32_t cp) { return cp == 0 || cp == 0xfffd || ct__is_control(cp); }
static uint32_t bert_map(uint32_t cp) { return ct__is_white(cp) ? ' ' : cp; }
static bool nmt_drops(uint32_t cp) {
    return (cp >= 1 && cp <= 8) || cp == 0xb || (cp >= 0xe && cp <= 0x1f) || cp == 0x7f ||
           cp == 0x8f || cp == 0x9f;
}
static uint32_t nmt_map(uint32_t cp) {
    bool space = cp == 9 || cp == 0xa || cp == 0xc || cp == 0xd || cp == 0x1680 ||
                 (cp >= 0x200b && cp <= 0x200f) || cp == 0x2028 || cp == 0x2029 || cp == 0x2581 ||
                 cp == 0xfeff || cp == 0xfffd;
    return space ? ' ' : cp;
}

static void normalize_lowercase(ct_rewrite *r) {
    for (uint32_t i = r->begin, used; i < r->end; i += used) {
        uint32_t cp = ct__char(r->from.s + i, r->end - i, &used);
        if (cp == 0x130) { // the only character whose lowercase is two characters
            ct__rewrite(r, 'i', 0);
            ct__rewrite(r, 0x307, 1);
        } else {
            ct__rewrite(r, cp < 0x80 ? (cp >= 'A' && cp <= 'Z' ? cp + 32 : cp) : ct__lower(cp), 0);
        }
    }
}

static void normalize_pad_cjk(ct_rewrite *r) {
    for (uint32_t i = r->begin, used; i < r->end; i += used) {
        uint32_t cp = ct__char(r->from.s + i, r->end - i, &used);
        bool cjk = ct__is_cjk(cp);
        if (cjk) ct__rewrite(r, ' ', 0);
        ct__rewrite(r, cp, cjk);
        if (cjk) ct__rewrite(r, ' ', 1);
    }
}

static void normalize_strip(ct_rewrite *r, bool left, bool right) {
    const char *s = r->from.s;
    uint32_t begin = r->begin, end = r->end, used;
    size_t skipped = 0;
    while (left && begin < end && ct__is_white(ct__char(s + begin, end - begin, &used)))
        begin += used, skipped++;
    while (right && end > begin) {
        uint32_t last = end - 1;
        while (last > begin && !ct__is_char_start(s[last])) last--;
        if (!ct__is_white(ct__char(s + last, end - last, &used))) break;
        end = last;
    }
    ct__rewrite_skip(r, skipped);
    for (uint32_t i = begin; i < end; i += used) ct__rewrite(r, ct__char(s + i, end - i, &used), 0);
}

static void normalize_write_chars(const char *s, size_t n, ct_rewrite *r, int first, int others) {
    uint32_t used;
    for (size_t i = 0; i < n; i += used)
        ct__rewrite(r, ct__char(s + i, (uint32_t)(n - i), &used), i ? others : first);
}

static void normalize_byte_chars(ct_rewrite *r) {
    for (uint32_t i = r->begin; i < r->end; i++)
        ct__rewrite(r, ct__byte_chars[(unsigned char)r->from.s[i]],
                    !ct__is_char_start(r->from.s[i]));
}

static bool normalize_replace(ct_work *w, const ct_step *step, ct_rewrite *r) {
    const char *s = r->from.s + r->begin;
    if (!ct__regex_find_all(&w->matcher, step->pattern, s, r->end - r->begin, &w->matches, w->err))
        return false;
    for (size_t i = 0; i < w->matches.n; i++) {
        ct_regex_match m = w->matches.v[i];
        if (m.matched) { // a replacement has the offsets of the match's last character
            r->next = r->begin + m.end;
            normalize_write_chars(step->text, step->text_n, r, 1, 1);
        } else {
            normalize_write_chars(s + m.begin, m.end - m.begin, r, 0, 0);
        }
    }
    return true;
}

// --------------------------------------------------------------------------------------- charsmaps

bool ct__charsmap_read(const char *label, const void *bytes, size_t n, ct_arena *arena,
                       ct_charsmap *map, ct_err *err) {
    uint32_t size = 0;
    if (n >= 4) memcpy(&size, bytes, 4); // little-endian, as all supported machines
    if (n < 4 || size > n - 4 || size % 4 || size == 0)
        return ct__err(
            err, CT_E_FORMAT, CT_NOWHERE, label,
            "the table of replacements declares %u bytes of states; it has %zu bytes in all", size,
            n);
    char *copy = ct__arena(arena, n);
    if (!copy) return ct__err_memory(err, CT_NOWHERE, label, n);
    memcpy(copy, (const char *)bytes + 4, n - 4);
    copy[n - 4] = '\0';
    *map = (ct_charsmap){(const uint32_t *)(const void *)copy, size / 4, copy + size, n - 4 - size};
    return true;
}

// Returns the replacement of a prefix of s: of the longest prefix that has one, or of the shortest.
// NULL: none.
static const char *charsmap_find(const ct_charsmap *map, const char *s, size_t n, bool longest,
                                 size_t *length) {
    const char *found = NULL;
    size_t node = 0;
    if (!map->n_units) return NULL;
    uint32_t unit = map->units[0];
    node ^= (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
    for (size_t i = 0; i < n && s[i]; i++) {
        unsigned char byte = (unsigned char)s[i];
        node ^= byte;
        if (node >= map->n_units) break;
        unit = map->units[node];
        if ((unit & (1u << 31 | 0xff)) != byte) break;
        node ^= (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
        if (node >= map->n_units) break;
        if (unit >> 8 & 1) {
            size_t at = map->units[node] & 0x7fffffff;
            if (at < map->n_texts) found = map->texts + at, *length = i + 1;
            if (!longest) break;
        }
    }
    return found;
}

static size_t charsmap_count_chars(const char *s, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += ct__is_char_start(s[i]);
    return count;
}

// A character that is written once its `change` is final.
typedef struct held_char {
    uint32_t cp;
    int change;
    bool any;
} held_char;
static void charsmap_hold_char(ct_rewrite *r, held_char *h, uint32_t cp, int change) {
    if (h->any) ct__rewrite(r, h->cp, h->change);
    *h = (held_char){cp, change, true};
}

// As in the reference: the new characters replace `old` ones one by one, and the last one takes the
// rest; if there is none, the character before takes it.
static void charsmap_write_replacement(ct_rewrite *r, held_char *h, size_t old, const char *text) {
    size_t n = strlen(text), new = 0;
    if (ct__utf8_bad(text, n) != n) return;
    for (uint32_t at = 0, used; at < n; at += used, new ++) {
        uint32_t cp = ct__char(text + at, (uint32_t)(n - at), &used);
        charsmap_hold_char(r, h, cp, new >= old);
    }
    if (new < old && h->any) h->change -= (int)(old - new);
}

static void normalize_precompiled(const ct_step *step, ct_rewrite *r) {
    const char *s = r->from.s;
    held_char h = {0};
    for (uint32_t i = r->begin; i < r->end;) {
        uint32_t used, end, next;
        uint32_t cp = ct__char(s + i, r->end - i, &used);
        int32_t state = 0;
        end = i + used;
        while (end < r->end) { // the grapheme cluster
            next = ct__char(s + end, r->end - end, &used);
            if (utf8proc_grapheme_break_stateful((int32_t)cp, (int32_t)next, &state)) break;
            end += used;
            cp = next;
        }
        size_t length;
        const char *text =
            end - i < 6 ? charsmap_find(&step->map, s + i, end - i, false, &length) : NULL;
        if (text) {
            charsmap_write_replacement(r, &h, charsmap_count_chars(s + i, end - i), text);
            i = end;
        }
        for (; i < end; i += used) {
            cp = ct__char(s + i, end - i, &used);
            text = charsmap_find(&step->map, s + i, used, false, &length);
            if (text)
                charsmap_write_replacement(r, &h, 1, text);
            else
                charsmap_hold_char(r, &h, cp, 0);
        }
    }
    if (h.any) ct__rewrite(r, h.cp, h.change);
}

// --------------------------------------------------------------------------------- SentencePiece's

static const char lower_block[] = "\xe2\x96\x81"; // U+2581, a visible space

// Returns the number of bytes of the next characters, and their replacement.
static size_t sentencepiece_next(const ct_step *step, const char *s, uint32_t n, const char **text,
                                 size_t *text_n) {
    int32_t ignored;
    size_t unchanged_n = step->unchanged && step->unchanged->n_nodes
                             ? ct__trie_longest(step->unchanged, s, n, &ignored)
                             : 0,
           length = 0;
    if (unchanged_n) {
        *text = s, *text_n = unchanged_n;
        return unchanged_n;
    }
    *text = charsmap_find(&step->map, s, n, true, &length);
    if (*text && ct__utf8_bad(*text, strlen(*text)) == strlen(*text)) {
        *text_n = strlen(*text);
        return length;
    }
    uint32_t used;
    ct__char(s, n, &used);
    *text = s, *text_n = used;
    return used;
}

static void sentencepiece_write(ct_rewrite *r, const ct_step *step, const char *text, size_t n,
                                uint32_t from) {
    ct_token_span at = {from, from};
    for (size_t i = 0; i < n; i++) {
        bool space = step->escape && text[i] == ' ';
        ct__aligned_append(r->to, space ? lower_block : text + i, space ? 3 : 1, at);
    }
}

static bool sentencepiece_ends_with(const ct_aligned *a, size_t begin, const char *end, size_t n) {
    return a->n >= begin + n && memcmp(a->s + a->n - n, end, n) == 0;
}

static void normalize_sentencepiece(const ct_step *step, ct_rewrite *r) {
    const char *s = r->from.s + r->begin, *text;
    uint32_t n = r->end - r->begin, i = 0;
    size_t used, text_n, begin = r->to->n;
    const char *space = step->escape ? lower_block : " ";
    size_t space_n = strlen(space);
    while (step->remove_extra_spaces && i < n) {
        used = sentencepiece_next(step, s + i, n - i, &text, &text_n);
        if (text_n != 1 || *text != ' ') break;
        i += (uint32_t)used;
    }
    if (i >= n) return;
    if (step->dummy_prefix && !step->suffix) sentencepiece_write(r, step, " ", 1, i);
    bool after_space = step->remove_extra_spaces;
    for (; i < n; i += (uint32_t)used) {
        used = sentencepiece_next(step, s + i, n - i, &text, &text_n);
        while (after_space && text_n && *text == ' ') text++, text_n--;
        sentencepiece_write(r, step, text, text_n, i);
        if (text_n) after_space = text[text_n - 1] == ' ';
        if (!step->remove_extra_spaces) after_space = false;
    }
    uint32_t end = n;
    while (step->remove_extra_spaces && sentencepiece_ends_with(r->to, begin, space, space_n)) {
        r->to->n -= space_n;
        if (r->to->tracked) end = r->to->at[r->to->n].begin;
    }
    if (step->dummy_prefix && step->suffix) sentencepiece_write(r, step, " ", 1, end);
    if (!r->to->tracked) return;
    // A byte's range ends where that of the next byte begins; the prefix has an empty range.
    for (size_t k = r->to->n; k-- > begin;) {
        ct_token_span *at = &r->to->at[k];
        bool prefix = step->dummy_prefix && !step->suffix && k < begin + space_n;
        uint32_t from = at->begin, to = prefix ? from : end;
        if (k > begin && at[-1].begin != from) end = from;
        at->begin = from < n ? r->from.at[r->begin + from].begin : r->from.at[r->end - 1].end;
        at->end = to > from ? r->from.at[r->begin + to - 1].end : at->begin;
    }
}

// ---------------------------------------------------------------------------------------- dispatch

static bool normalize_bert(ct_work *w, const ct_step *step, ct_rewrite *r, int part) {
    switch (part) {
    case 0: normalize_filter(r, bert_drops, bert_map); return true;
    case 1: normalize_pad_cjk(r); return true;
    case 2: return normalize_form(w, r, false, false);
    case 3: normalize_filter(r, ct__is_mark_nonspacing, NULL); return true;
    default: normalize_lowercase(r); return true;
    }
    (void)step;
}

// part: of a normalizer with several passes.
static bool normalize_split(ct_work *w, const ct_step *step, ct_rewrite *r, int part) {
    if (r->begin == r->end) return true;
    switch (step->kind) {
    case CT_STEP_NFC: return normalize_form(w, r, false, true);
    case CT_STEP_NFD: return normalize_form(w, r, false, false);
    case CT_STEP_NFKC: return normalize_form(w, r, true, true);
    case CT_STEP_NFKD: return normalize_form(w, r, true, false);
    case CT_STEP_LOWERCASE: normalize_lowercase(r); return true;
    case CT_STEP_STRIP: normalize_strip(r, step->left, step->right); return true;
    case CT_STEP_STRIP_ACCENTS: normalize_filter(r, ct__is_any_mark, NULL); return true;
    case CT_STEP_NMT: normalize_filter(r, nmt_drops, nmt_map); return true;
    case CT_STEP_PREPEND: {
        normalize_write_chars(step->text, step->text_n, r, 0, 1);
        if (!step->text_n) normalize_write_chars(r->from.s + r->begin, r->end - r->begin, r, 0, 0);
        if (!step->text_n) return true;
        // The first character counts as inserted, the others as themselves.
        uint32_t used, cp = ct__char(r->from.s + r->begin, r->end - r->begin, &used);
        ct__rewrite(r, cp, 1);
        r->next = r->begin + used;
        normalize_write_chars(r->from.s + r->next, r->end - r->next, r, 0, 0);
        return true;
    }
    case CT_STEP_REPLACE: return normalize_replace(w, step, r);
    case CT_STEP_PRECOMPILED: normalize_precompiled(step, r); return true;
    case CT_STEP_BYTES: normalize_byte_chars(r); return true;
    case CT_STEP_SENTENCEPIECE: normalize_sentencepiece(step, r); return true;
    default: return normalize_bert(w, step, r, part);
    }
}

static bool normalize_is_ascii(const char *s, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if ((unsigned char)s[i] >= 0x80) return false;
    return true;
}

// True if the step would leave the text unchanged.
static bool normalize_is_noop(const ct_work *w, const ct_step *step, int part) {
    switch (step->kind) {
    case CT_STEP_NFC: return normalize_is_below(w->view.s, w->n, 0x300);
    case CT_STEP_NFKC: return normalize_is_below(w->view.s, w->n, 0xa0);
    case CT_STEP_NFD:
    case CT_STEP_NFKD:
    case CT_STEP_STRIP_ACCENTS: return normalize_is_ascii(w->view.s, w->n);
    case CT_STEP_BERT: return part >= 1 && part <= 3 && normalize_is_ascii(w->view.s, w->n);
    default: return false;
    }
}

static bool normalize_all_splits(ct_work *w, const ct_step *step, int part) {
    if (normalize_is_noop(w, step, part)) return true;
    ct_aligned *to = ct__work_begin_rewrite(w);
    if (!to) return false;
    for (size_t i = 0; i < w->splits.n; i++) {
        ct_split split = w->splits.v[i];
        uint32_t begin = (uint32_t)to->n;
        ct_rewrite r = {w->view, split.begin, split.end, split.begin, to};
        if (split.token >= 0)
            normalize_write_chars(w->view.s + split.begin, split.end - split.begin, &r, 0, 0);
        else if (!normalize_split(w, step, &r, part))
            return w->err->code ? false : ct__tokenizer_memory_error(w->t, w->err);
        if (to->n > begin && !ct__work_add_split(w, begin, (uint32_t)to->n, split.token))
            return false;
    }
    return ct__work_end_rewrite(w, "normalizing");
}

bool ct__normalize(ct_work *w, const ct_step *step) {
    if (step->kind != CT_STEP_BERT) return normalize_all_splits(w, step, 0);
    return (!step->clean || normalize_all_splits(w, step, 0)) &&
           (!step->chinese || normalize_all_splits(w, step, 1)) &&
           (!step->accents ||
            (normalize_all_splits(w, step, 2) && normalize_all_splits(w, step, 3))) &&
           (!step->lower || normalize_all_splits(w, step, 4));
}
