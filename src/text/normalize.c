// Normalizers, with the alignments that the reference library gives.
#include <string.h>

#include <utf8proc.h>

#include "text/tokenizer.h"

// ----------------------------------------------------------------------------- Unicode's own forms

// A character of a text that is being composed: its class, and how it changes what is there.
typedef struct form {
    uint32_t *chars;
    int32_t *changes;
    size_t n, pending; // from `pending` on characters wait for their order
    bool failed;
} form;

static unsigned class_of(uint32_t cp) {
    if (cp < 0x300) return 0;
    const unsigned class = (unsigned)utf8proc_get_property((int32_t)cp)->combining_class;
    return class && ct__is_newer(cp, 9) ? 0 : class;
}

// Marks in a row stand in the order of their classes, those of a class as they came.
static void order_marks(form *f, ct_work *w) {
    size_t n = f->n - f->pending;
    uint32_t *c = f->chars + f->pending;
    int32_t *d = f->changes + f->pending;
    if (n > 1 && n <= 32) {
        for (size_t i = 1; i < n; i++)
            for (size_t k = i; k && class_of(c[k - 1]) > class_of(c[k]); k--) {
                uint32_t cp = c[k];
                int32_t change = d[k];
                c[k] = c[k - 1], c[k - 1] = cp;
                d[k] = d[k - 1], d[k - 1] = change;
            }
    } else if (n > 1) { // by counting, so that no text is slow
        size_t count[257] = {0};
        uint32_t *sorted = ct__malloc(n * 8);
        if (!sorted) {
            f->failed = true;
            return;
        }
        int32_t *sorted_changes = (int32_t *)(sorted + n);
        for (size_t i = 0; i < n; i++) count[class_of(c[i]) + 1]++;
        for (size_t i = 0; i < 256; i++) count[i + 1] += count[i];
        for (size_t i = 0; i < n; i++) {
            size_t to = count[class_of(c[i])]++;
            sorted[to] = c[i], sorted_changes[to] = d[i];
        }
        memcpy(c, sorted, n * 4);
        memcpy(d, sorted_changes, n * 4);
        ct__free(sorted);
    }
    (void)w;
    f->pending = f->n;
}

static void push(ct_work *w, form *f, uint32_t cp, int32_t change) {
    if (!CT_GROW(w->chars, w->chars_cap, f->n + 1) ||
        !CT_GROW(w->changes, w->changes_cap, f->n + 1)) {
        f->failed = true;
        return;
    }
    f->chars = w->chars, f->changes = w->changes;
    if (class_of(cp) == 0) order_marks(f, w);
    f->chars[f->n] = cp;
    f->changes[f->n++] = change;
}

static void decompose(ct_work *w, form *f, uint32_t cp, bool compatible) {
    int32_t parts[32];
    int boundary = 0;
    if (cp < 0xa0) {
        push(w, f, cp, 0);
        return;
    }
    utf8proc_option_t how = UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
    utf8proc_ssize_t n = utf8proc_decompose_char((int32_t)cp, parts, 32, how, &boundary);
    if (n < 1 || n > 32 || (parts[0] != (int32_t)cp && ct__is_newer(cp, 9))) {
        push(w, f, cp, 0);
        return;
    }
    for (utf8proc_ssize_t i = 0; i < n; i++) push(w, f, (uint32_t)parts[i], i > 0);
}

// The character that two make; 0: none.
static uint32_t composed(uint32_t a, uint32_t b) {
    bool jamo = (b >= 0x1161 && b <= 0x1175) || (b >= 0x11a8 && b <= 0x11c2);
    if (b < 0x300 || (!jamo && utf8proc_get_property((int32_t)b)->comb_index == UINT16_MAX))
        return 0;
    int32_t pair[2] = {(int32_t)a, (int32_t)b};
    const bool one = utf8proc_normalize_utf32(pair, 2, UTF8PROC_COMPOSE | UTF8PROC_STABLE) == 1;
    return one && !ct__is_newer((uint32_t)pair[0], 9) ? (uint32_t)pair[0] : 0;
}

// In place: a starter takes in the marks behind it that it can, as far as none blocks them.
static void compose(form *f) {
    size_t out = 0, starter = SIZE_MAX;
    int last = -1; // the class of the last mark that stayed behind the starter; -1: none
    for (size_t i = 0; i < f->n; i++) {
        uint32_t cp = f->chars[i];
        int class = (int)class_of(cp);
        uint32_t both =
            starter != SIZE_MAX && (last < 0 || last < class) ? composed(f->chars[starter], cp) : 0;
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

static bool normal_form(ct_work *w, ct_rewrite *r, bool compatible, bool composes) {
    form f = {0};
    for (uint32_t i = r->begin, used; i < r->end; i += used)
        decompose(w, &f, ct__char(r->from.s + i, r->end - i, &used), compatible);
    if (!f.failed) order_marks(&f, w);
    if (f.failed) return false;
    if (composes) compose(&f);
    for (size_t i = 0; i < f.n; i++) ct__rewrite(r, f.chars[i], f.changes[i]);
    return true;
}

// Text of small characters is in all composed forms as it is.
static bool is_formed(const char *s, uint32_t n, uint32_t limit) {
    for (uint32_t i = 0, used; i < n; i += used)
        if (ct__char(s + i, n - i, &used) >= limit) return false;
    return true;
}

// -------------------------------------------------------------------------- character by character

// Keeps the characters that `keep` takes; what goes belongs to what stands before it.
static void filter(ct_rewrite *r, bool (*drop)(uint32_t), uint32_t (*map)(uint32_t)) {
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

static bool is_unwanted(uint32_t cp) { return cp == 0 || cp == 0xfffd || ct__is_control(cp); }
static uint32_t white_as_space(uint32_t cp) { return ct__is_white(cp) ? ' ' : cp; }
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

static void lowercase(ct_rewrite *r) {
    for (uint32_t i = r->begin, used; i < r->end; i += used) {
        uint32_t cp = ct__char(r->from.s + i, r->end - i, &used);
        if (cp == 0x130) { // the one that becomes two
            ct__rewrite(r, 'i', 0);
            ct__rewrite(r, 0x307, 1);
        } else {
            ct__rewrite(r, cp < 0x80 ? (cp >= 'A' && cp <= 'Z' ? cp + 32 : cp) : ct__lower(cp), 0);
        }
    }
}

static void spaces_around_cjk(ct_rewrite *r) {
    for (uint32_t i = r->begin, used; i < r->end; i += used) {
        uint32_t cp = ct__char(r->from.s + i, r->end - i, &used);
        bool cjk = ct__is_cjk(cp);
        if (cjk) ct__rewrite(r, ' ', 0);
        ct__rewrite(r, cp, cjk);
        if (cjk) ct__rewrite(r, ' ', 1);
    }
}

static void strip(ct_rewrite *r, bool left, bool right) {
    const char *s = r->from.s;
    uint32_t begin = r->begin, end = r->end, used;
    size_t skipped = 0;
    while (left && begin < end && ct__is_white(ct__char(s + begin, end - begin, &used)))
        begin += used, skipped++;
    while (right && end > begin) {
        uint32_t last = end - 1;
        while (last > begin && !ct__char_begins(s[last])) last--;
        if (!ct__is_white(ct__char(s + last, end - last, &used))) break;
        end = last;
    }
    ct__rewrite_skip(r, skipped);
    for (uint32_t i = begin; i < end; i += used) ct__rewrite(r, ct__char(s + i, end - i, &used), 0);
}

static void each_char(const char *s, size_t n, ct_rewrite *r, int first, int others) {
    uint32_t used;
    for (size_t i = 0; i < n; i += used)
        ct__rewrite(r, ct__char(s + i, (uint32_t)(n - i), &used), i ? others : first);
}

static void bytes_as_chars(ct_rewrite *r) {
    for (uint32_t i = r->begin; i < r->end; i++)
        ct__rewrite(r, ct__byte_chars[(unsigned char)r->from.s[i]], !ct__char_begins(r->from.s[i]));
}

static bool replace(ct_work *w, const ct_step *step, ct_rewrite *r) {
    const char *s = r->from.s + r->begin;
    if (!ct__regex_find(&w->matcher, step->pattern, s, r->end - r->begin, &w->matches, w->err))
        return false;
    for (size_t i = 0; i < w->matches.n; i++) {
        ct_hit m = w->matches.v[i];
        if (m.matched) { // goes, and what comes in belongs to its last character
            r->next = r->begin + m.end;
            each_char(step->text, step->text_n, r, 1, 1);
        } else {
            each_char(s + m.begin, m.end - m.begin, r, 0, 0);
        }
    }
    return true;
}

// --------------------------------------------------------------------------------------- charsmaps

bool ct__charsmap_read(const char *place, const void *bytes, size_t n, ct_arena *arena,
                       ct_charsmap *map, ct_err *err) {
    uint32_t size = 0;
    if (n >= 4) memcpy(&size, bytes, 4); // little-endian, as all machines that are supported
    if (n < 4 || size > n - 4 || size % 4 || size == 0)
        return ct__err(
            err, CT_E_FORMAT, CT_NOWHERE, place,
            "the table of replacements says it has %u bytes of states; it has %zu bytes in all",
            size, n);
    char *copy = ct__arena(arena, n);
    if (!copy) return ct__err_memory(err, CT_NOWHERE, place, n);
    memcpy(copy, (const char *)bytes + 4, n - 4);
    copy[n - 4] = '\0';
    *map = (ct_charsmap){(const uint32_t *)(const void *)copy, size / 4, copy + size, n - 4 - size};
    return true;
}

// The replacement of a prefix of s: the longest one that has any, or the shortest. NULL: none.
static const char *find_replacement(const ct_charsmap *map, const char *s, size_t n, bool longest,
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

static size_t count_chars(const char *s, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += ct__char_begins(s[i]);
    return count;
}

// A character that is written when it is known whether more goes with it.
typedef struct held {
    uint32_t cp;
    int change;
    bool any;
} held;
static void hold(ct_rewrite *r, held *h, uint32_t cp, int change) {
    if (h->any) ct__rewrite(r, h->cp, h->change);
    *h = (held){cp, change, true};
}

// As the reference does: the new characters replace `old` ones one by one, and the last takes what
// is left over; where none comes in, the character before takes it.
static void put_replacement(ct_rewrite *r, held *h, size_t old, const char *text) {
    size_t n = strlen(text), new = 0;
    if (ct__utf8_bad(text, n) != n) return;
    for (uint32_t at = 0, used; at < n; at += used, new ++) {
        uint32_t cp = ct__char(text + at, (uint32_t)(n - at), &used);
        hold(r, h, cp, new >= old);
    }
    if (new < old && h->any) h->change -= (int)(old - new);
}

static void precompiled(const ct_step *step, ct_rewrite *r) {
    const char *s = r->from.s;
    held h = {0};
    for (uint32_t i = r->begin; i < r->end;) {
        uint32_t used, end, next;
        uint32_t cp = ct__char(s + i, r->end - i, &used);
        int32_t state = 0;
        end = i + used;
        while (end < r->end) { // the grapheme
            next = ct__char(s + end, r->end - end, &used);
            if (utf8proc_grapheme_break_stateful((int32_t)cp, (int32_t)next, &state)) break;
            end += used;
            cp = next;
        }
        size_t length;
        const char *text =
            end - i < 6 ? find_replacement(&step->map, s + i, end - i, false, &length) : NULL;
        if (text) {
            put_replacement(r, &h, count_chars(s + i, end - i), text);
            i = end;
        }
        for (; i < end; i += used) {
            cp = ct__char(s + i, end - i, &used);
            text = find_replacement(&step->map, s + i, used, false, &length);
            if (text)
                put_replacement(r, &h, 1, text);
            else
                hold(r, &h, cp, 0);
        }
    }
    if (h.any) ct__rewrite(r, h.cp, h.change);
}

// --------------------------------------------------------------------------------- SentencePiece's

static const char lower_block[] = "\xe2\x96\x81"; // U+2581, a space that is written

// What the next characters of the text become, and how many bytes they are.
static size_t next_piece(const ct_step *step, const char *s, uint32_t n, const char **text,
                         size_t *text_n) {
    int32_t ignored;
    size_t kept =
               step->kept && step->kept->n_nodes ? ct__trie_longest(step->kept, s, n, &ignored) : 0,
           length = 0;
    if (kept) {
        *text = s, *text_n = kept;
        return kept;
    }
    *text = find_replacement(&step->map, s, n, true, &length);
    if (*text && ct__utf8_bad(*text, strlen(*text)) == strlen(*text)) {
        *text_n = strlen(*text);
        return length;
    }
    uint32_t used;
    ct__char(s, n, &used);
    *text = s, *text_n = used;
    return used;
}

static void put_text(ct_rewrite *r, const ct_step *step, const char *text, size_t n,
                     uint32_t from) {
    ct_token_span at = {from, from};
    for (size_t i = 0; i < n; i++) {
        bool space = step->escape && text[i] == ' ';
        ct__aligned_put(r->to, space ? lower_block : text + i, space ? 3 : 1, at);
    }
}

static bool ends_with(const ct_aligned *a, size_t begin, const char *end, size_t n) {
    return a->n >= begin + n && memcmp(a->s + a->n - n, end, n) == 0;
}

static void sentencepiece(const ct_step *step, ct_rewrite *r) {
    const char *s = r->from.s + r->begin, *text;
    uint32_t n = r->end - r->begin, i = 0;
    size_t used, text_n, begin = r->to->n;
    const char *space = step->escape ? lower_block : " ";
    size_t space_n = strlen(space);
    while (step->extra_spaces && i < n) {
        used = next_piece(step, s + i, n - i, &text, &text_n);
        if (text_n != 1 || *text != ' ') break;
        i += (uint32_t)used;
    }
    if (i >= n) return;
    if (step->dummy_prefix && !step->suffix) put_text(r, step, " ", 1, i);
    bool after_space = step->extra_spaces;
    for (; i < n; i += (uint32_t)used) {
        used = next_piece(step, s + i, n - i, &text, &text_n);
        while (after_space && text_n && *text == ' ') text++, text_n--;
        put_text(r, step, text, text_n, i);
        if (text_n) after_space = text[text_n - 1] == ' ';
        if (!step->extra_spaces) after_space = false;
    }
    uint32_t end = n;
    while (step->extra_spaces && ends_with(r->to, begin, space, space_n)) {
        r->to->n -= space_n;
        if (r->to->tracked) end = r->to->at[r->to->n].begin;
    }
    if (step->dummy_prefix && step->suffix) put_text(r, step, " ", 1, end);
    if (!r->to->tracked) return;
    // A byte's text ends where that of the next one begins; the prefix has none.
    for (size_t k = r->to->n; k-- > begin;) {
        ct_token_span *at = &r->to->at[k];
        bool prefix = step->dummy_prefix && !step->suffix && k < begin + space_n;
        uint32_t from = at->begin, to = prefix ? from : end;
        if (k > begin && at[-1].begin != from) end = from;
        at->begin = from < n ? r->from.at[r->begin + from].begin : r->from.at[r->end - 1].end;
        at->end = to > from ? r->from.at[r->begin + to - 1].end : at->begin;
    }
}

// ------------------------------------------------------------------------------------- all of them

static bool bert(ct_work *w, const ct_step *step, ct_rewrite *r, int part) {
    switch (part) {
    case 0: filter(r, is_unwanted, white_as_space); return true;
    case 1: spaces_around_cjk(r); return true;
    case 2: return normal_form(w, r, false, false);
    case 3: filter(r, ct__is_mark_nonspacing, NULL); return true;
    default: lowercase(r); return true;
    }
    (void)step;
}

// part: of a normalizer that is several.
static bool rewrite_cut(ct_work *w, const ct_step *step, ct_rewrite *r, int part) {
    if (r->begin == r->end) return true;
    switch (step->kind) {
    case CT_STEP_NFC: return normal_form(w, r, false, true);
    case CT_STEP_NFD: return normal_form(w, r, false, false);
    case CT_STEP_NFKC: return normal_form(w, r, true, true);
    case CT_STEP_NFKD: return normal_form(w, r, true, false);
    case CT_STEP_LOWERCASE: lowercase(r); return true;
    case CT_STEP_STRIP: strip(r, step->left, step->right); return true;
    case CT_STEP_STRIP_ACCENTS: filter(r, ct__is_any_mark, NULL); return true;
    case CT_STEP_NMT: filter(r, nmt_drops, nmt_map); return true;
    case CT_STEP_PREPEND: {
        each_char(step->text, step->text_n, r, 0, 1);
        if (!step->text_n) each_char(r->from.s + r->begin, r->end - r->begin, r, 0, 0);
        if (!step->text_n) return true;
        // The first character is one that was added, and the others are themselves.
        uint32_t used, cp = ct__char(r->from.s + r->begin, r->end - r->begin, &used);
        ct__rewrite(r, cp, 1);
        r->next = r->begin + used;
        each_char(r->from.s + r->next, r->end - r->next, r, 0, 0);
        return true;
    }
    case CT_STEP_REPLACE: return replace(w, step, r);
    case CT_STEP_PRECOMPILED: precompiled(step, r); return true;
    case CT_STEP_BYTES: bytes_as_chars(r); return true;
    case CT_STEP_SENTENCEPIECE: sentencepiece(step, r); return true;
    default: return bert(w, step, r, part);
    }
}

static bool is_ascii(const char *s, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if ((unsigned char)s[i] >= 0x80) return false;
    return true;
}

// Would the step leave the text as it is?
static bool changes_nothing(const ct_work *w, const ct_step *step, int part) {
    switch (step->kind) {
    case CT_STEP_NFC: return is_formed(w->view.s, w->n, 0x300);
    case CT_STEP_NFKC: return is_formed(w->view.s, w->n, 0xa0);
    case CT_STEP_NFD:
    case CT_STEP_NFKD:
    case CT_STEP_STRIP_ACCENTS: return is_ascii(w->view.s, w->n);
    case CT_STEP_BERT: return part >= 1 && part <= 3 && is_ascii(w->view.s, w->n);
    default: return false;
    }
}

static bool all_cuts(ct_work *w, const ct_step *step, int part) {
    if (changes_nothing(w, step, part)) return true;
    ct_aligned *to = ct__work_begin(w);
    if (!to) return false;
    for (size_t i = 0; i < w->cuts.n; i++) {
        ct_cut cut = w->cuts.v[i];
        uint32_t begin = (uint32_t)to->n;
        ct_rewrite r = {w->view, cut.begin, cut.end, cut.begin, to};
        if (cut.token >= 0)
            each_char(w->view.s + cut.begin, cut.end - cut.begin, &r, 0, 0);
        else if (!rewrite_cut(w, step, &r, part))
            return w->err->code ? false : ct__tokenizer_memory(w->t, w->err);
        if (to->n > begin && !ct__work_cut(w, begin, (uint32_t)to->n, cut.token)) return false;
    }
    return ct__work_end(w, "normalizing");
}

bool ct__normalize(ct_work *w, const ct_step *step) {
    if (step->kind != CT_STEP_BERT) return all_cuts(w, step, 0);
    return (!step->clean || all_cuts(w, step, 0)) && (!step->chinese || all_cuts(w, step, 1)) &&
           (!step->accents || (all_cuts(w, step, 2) && all_cuts(w, step, 3))) &&
           (!step->lower || all_cuts(w, step, 4));
}
