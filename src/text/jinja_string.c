// Strings of characters, and those methods of str, list, tuple and dict that change nothing in
// place.
#define _GNU_SOURCE // memmem
#include <string.h>

#include "io/utf8.h"
#include "text/jinja_value.h"

// -------------------------------------------------------------------------------------- characters

int64_t ct__jv_count_chars(ct_jinja_machine *m, const ct_jv_string *s) {
    if (s->chars >= 0) return s->chars;
    int64_t n = 0;
    ct__jinja_count_steps(m, s->n);
    for (size_t i = 0; i < s->n; i++) n += ((unsigned char)s->s[i] & 0xc0) != 0x80;
    ((ct_jv_string *)(uintptr_t)s)->chars = n;
    return n;
}

uint32_t ct__jv_next_char(const ct_jv_string *s, size_t *at) {
    uint32_t cp = 0xfffd;
    size_t used = 1;
    unsigned char first = (unsigned char)s->s[*at];
    if (first < 0x80)
        cp = first;
    else if (ct__utf8_next(s->s + *at, s->n - *at, &cp, &used) != CT_UTF8_OK)
        cp = 0xfffd;
    *at += used;
    return cp;
}

// The byte offset of a character.
static size_t string_byte_offset(ct_jinja_machine *m, const ct_jv_string *s, int64_t chars) {
    if (ct__jv_count_chars(m, s) == (int64_t)s->n) return (size_t)chars;
    size_t at = 0;
    while (at < s->n && chars > 0) {
        at++;
        while (at < s->n && ((unsigned char)s->s[at] & 0xc0) == 0x80) at++;
        chars--;
    }
    ct__jinja_count_steps(m, at);
    return at;
}

static int64_t string_chars_before(ct_jinja_machine *m, const ct_jv_string *s, size_t offset) {
    return ct__jv_count_chars(m, &(ct_jv_string){.s = s->s, .n = offset, .chars = -1});
}

ct_jv ct__jv_substring(ct_jinja_machine *m, ct_jv text, int64_t from, int64_t to) {
    int64_t n = ct__jv_count_chars(m, text.s);
    if (from < 0) from = 0;
    if (to > n) to = n;
    if (from >= to) return ct__jv_cstring(m, "");
    size_t start = string_byte_offset(m, text.s, from),
           end = to == n ? text.s->n : string_byte_offset(m, text.s, to);
    return ct__jv_borrow_string(m, text.s->s + start, end - start);
}

size_t ct__jv_search(ct_jinja_machine *m, const ct_jv_string *in, size_t from,
                     const ct_jv_string *what) {
    if (from > in->n || what->n > in->n - from) return in->n + 1;
    if (!what->n) return from;
    const char *found = memmem(in->s + from, in->n - from, what->s, what->n);
    size_t at = found ? (size_t)(found - in->s) : in->n + 1;
    ct__jinja_count_steps(m, (found ? at : in->n) - from);
    return at;
}

static bool string_is_one_of(ct_jinja_machine *m, uint32_t cp, ct_jv chars) {
    if (chars.kind == JV_MISSING || chars.kind == JV_NONE) return ct__uc_class(cp) & CT_UC_SPACE;
    ct__jinja_count_steps(m, chars.s->n);
    for (size_t at = 0; at < chars.s->n;)
        if (ct__jv_next_char(chars.s, &at) == cp) return true;
    return false;
}

ct_jv ct__jv_strip(ct_jinja_machine *m, ct_jv text, ct_jv chars, bool left, bool right) {
    const ct_jv_string *s = text.s;
    size_t from = 0, to = s->n;
    if (chars.kind != JV_MISSING && chars.kind != JV_NONE)
        ct__jv_require_string(m, chars, "what is stripped");
    while (left && from < to) {
        size_t next = from;
        if (!string_is_one_of(m, ct__jv_next_char(s, &next), chars)) break;
        from = next;
    }
    while (right && to > from) {
        size_t last = to - 1;
        while (last > from && ((unsigned char)s->s[last] & 0xc0) == 0x80) last--;
        size_t at = last;
        if (!string_is_one_of(m, ct__jv_next_char(s, &at), chars)) break;
        to = last;
    }
    ct__jinja_count_steps(m, s->n - (to - from));
    return from == 0 && to == s->n ? text : ct__jv_borrow_string(m, s->s + from, to - from);
}

// -------------------------------------------------------------------------------------------- case

static void string_write_mapped(ct_jinja_writer *w, uint32_t cp,
                                size_t map(uint32_t cp, uint32_t out[3])) {
    uint32_t out[3];
    size_t n = map(cp, out);
    for (size_t i = 0; i < n; i++) ct__jinja_write_char(w, out[i]);
}

// A sigma at the end of a word has a form of its own.
static void string_write_lower(ct_jinja_writer *w, const ct_jv_string *s, size_t from, size_t at,
                               uint32_t cp) {
    if (cp != 0x3a3) {
        string_write_mapped(w, cp, ct__uc_lower);
        return;
    }
    bool before = false, after = false;
    for (size_t i = from; i > 0;) {
        do i--;
        while (i > 0 && ((unsigned char)s->s[i] & 0xc0) == 0x80);
        size_t next = i;
        unsigned class = ct__uc_class(ct__jv_next_char(s, &next));
        if (class & CT_UC_IGNORED) continue;
        before = class & CT_UC_CASED;
        break;
    }
    while (at < s->n) {
        unsigned class = ct__uc_class(ct__jv_next_char(s, &at));
        if (class & CT_UC_IGNORED) continue;
        after = class & CT_UC_CASED;
        break;
    }
    ct__jinja_count_steps(w->m, s->n);
    ct__jinja_write_char(w, before && !after ? 0x3c2 : 0x3c3);
}

ct_jv ct__jv_upper(ct_jinja_machine *m, ct_jv text) {
    ct_jinja_writer w = {.m = m};
    for (size_t at = 0; at < text.s->n;)
        string_write_mapped(&w, ct__jv_next_char(text.s, &at), ct__uc_upper);
    return ct__jinja_writer_string(&w);
}

// Lowercase, but title case for the first character of each word (`title`) or of the string
// (`first`).
static ct_jv string_to_lower(ct_jinja_machine *m, ct_jv text, bool first, bool title) {
    ct_jinja_writer w = {.m = m};
    bool begins = first || title;
    for (size_t at = 0; at < text.s->n;) {
        size_t from = at;
        uint32_t cp = ct__jv_next_char(text.s, &at);
        if (begins)
            string_write_mapped(&w, cp, ct__uc_title);
        else
            string_write_lower(&w, text.s, from, at, cp);
        begins = title && !(ct__uc_class(cp) & CT_UC_CASED);
    }
    return ct__jinja_writer_string(&w);
}

ct_jv ct__jv_lower(ct_jinja_machine *m, ct_jv text) {
    return string_to_lower(m, text, false, false);
}
ct_jv ct__jv_capitalize(ct_jinja_machine *m, ct_jv text) {
    return string_to_lower(m, text, true, false);
}

// ----------------------------------------------------------------------------------- whole strings

ct_jv ct__jv_replace(ct_jinja_machine *m, ct_jv text, ct_jv old, ct_jv replacement, int64_t count) {
    const ct_jv_string *s = text.s;
    ct_jinja_writer w = {.m = m};
    size_t at = 0, found;
    if (!old.s->n) { // before each character, and at the end
        for (; count != 0; count--) {
            ct__jinja_write(&w, replacement.s->s, replacement.s->n);
            if (at == s->n) break;
            size_t from = at;
            ct__jv_next_char(s, &at);
            ct__jinja_write(&w, s->s + from, at - from);
        }
    } else {
        for (; count != 0 && (found = ct__jv_search(m, s, at, old.s)) <= s->n; count--) {
            ct__jinja_write(&w, s->s + at, found - at);
            ct__jinja_write(&w, replacement.s->s, replacement.s->n);
            at = found + old.s->n;
        }
    }
    ct__jinja_write(&w, s->s + at, s->n - at);
    return ct__jinja_writer_string(&w);
}

ct_jv ct__jv_join(ct_jinja_machine *m, ct_jv between, const ct_jv_list *parts) {
    ct_jinja_writer w = {.m = m};
    for (size_t i = 0; i < parts->n; i++) {
        if (i) ct__jinja_write(&w, between.s->s, between.s->n);
        ct_jv part = ct__jv_require_string(m, parts->v[i], "what is joined");
        ct__jinja_write(&w, part.s->s, part.s->n);
    }
    return ct__jinja_writer_string(&w);
}

ct_jv_list *ct__jv_split_lines(ct_jinja_machine *m, ct_jv text, bool keep_ends) {
    const ct_jv_string *s = text.s;
    ct_jv_list *lines = ct__jv_new_list(m, JV_LIST, 0).list;
    for (size_t at = 0, from = 0; at < s->n;) {
        size_t end = at;
        uint32_t cp = ct__jv_next_char(s, &at);
        bool ends = (cp >= 0x0a && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 ||
                    cp == 0x2028 || cp == 0x2029;
        if (ends && cp == '\r' && at < s->n && s->s[at] == '\n') at++;
        if (!ends && at < s->n) continue;
        if (!ends || keep_ends) end = at;
        ct__jv_push(m, lines, ct__jv_borrow_string(m, s->s + from, end - from));
        from = at;
    }
    return lines;
}

// ----------------------------------------------------------------------------------------- methods

#define METHOD(name)                                                                               \
    static ct_jv name(ct_jinja_machine *m, ct_jv self, const ct_jv *arg, const ct_jv_args *all)
#define UNUSED (void)m, (void)self, (void)arg, (void)all

METHOD(str_upper) { return UNUSED, ct__jv_upper(m, self); }
METHOD(str_lower) { return UNUSED, ct__jv_lower(m, self); }
METHOD(str_capitalize) { return UNUSED, ct__jv_capitalize(m, self); }
METHOD(str_title) { return UNUSED, string_to_lower(m, self, false, true); }
METHOD(str_strip) { return UNUSED, ct__jv_strip(m, self, arg[0], true, true); }
METHOD(str_lstrip) { return UNUSED, ct__jv_strip(m, self, arg[0], true, false); }
METHOD(str_rstrip) { return UNUSED, ct__jv_strip(m, self, arg[0], false, true); }

METHOD(str_swapcase) {
    UNUSED;
    ct_jinja_writer w = {.m = m};
    for (size_t at = 0; at < self.s->n;) {
        size_t from = at;
        uint32_t cp = ct__jv_next_char(self.s, &at);
        if (ct__uc_class(cp) & CT_UC_UPPER)
            string_write_lower(&w, self.s, from, at, cp);
        else if (ct__uc_class(cp) & CT_UC_LOWER)
            string_write_mapped(&w, cp, ct__uc_upper);
        else
            ct__jinja_write_char(&w, cp);
    }
    return ct__jinja_writer_string(&w);
}

METHOD(str_replace) {
    UNUSED;
    ct_jv old = ct__jv_require_string(m, arg[0], "what is replaced");
    ct_jv replacement = ct__jv_require_string(m, arg[1], "what replaces it");
    bool counted = arg[2].kind != JV_MISSING;
    return ct__jv_replace(m, self, old, replacement,
                          counted ? ct__jv_require_int(m, arg[2], "count") : -1);
}

METHOD(str_join) {
    UNUSED;
    return ct__jv_join(m, self, ct__jv_items(m, arg[0]));
}

METHOD(str_splitlines) {
    UNUSED;
    bool keep_ends = arg[0].kind != JV_MISSING && ct__jv_truth(m, arg[0]);
    return (ct_jv){.kind = JV_LIST, .list = ct__jv_split_lines(m, self, keep_ends)};
}

static void string_push_range(ct_jinja_machine *m, ct_jv_list *list, ct_jv of, size_t from,
                              size_t to) {
    ct__jv_push(m, list, ct__jv_borrow_string(m, of.s->s + from, to - from));
}

// Splits at whitespace from the left; after `max_splits` splits the rest is the last word.
static void string_split_words(ct_jinja_machine *m, ct_jv text, int64_t max_splits,
                               ct_jv_list *out) {
    const ct_jv_string *s = text.s;
    for (size_t at = 0; at < s->n;) {
        size_t from = at, end = at;
        uint32_t cp = ct__jv_next_char(s, &at);
        if (ct__uc_class(cp) & CT_UC_SPACE) continue;
        if (max_splits-- == 0) {
            string_push_range(m, out, text, from, s->n);
            return;
        }
        for (end = at; at < s->n; end = at)
            if (ct__uc_class(ct__jv_next_char(s, &at)) & CT_UC_SPACE) break;
        string_push_range(m, out, text, from, end);
    }
}

METHOD(str_split) {
    UNUSED;
    ct_jv list = ct__jv_new_list(m, JV_LIST, 0);
    int64_t max_splits = arg[1].kind == JV_MISSING ? -1 : ct__jv_require_int(m, arg[1], "maxsplit");
    if (arg[0].kind == JV_MISSING || arg[0].kind == JV_NONE) {
        string_split_words(m, self, max_splits, list.list);
        return list;
    }
    ct_jv by = ct__jv_require_string(m, arg[0], "sep");
    if (!by.s->n) ct__jinja_fail(m, "split: the separator is empty");
    size_t at = 0, found;
    while (max_splits-- != 0 && (found = ct__jv_search(m, self.s, at, by.s)) <= self.s->n) {
        string_push_range(m, list.list, self, at, found);
        at = found + by.s->n;
    }
    string_push_range(m, list.list, self, at, self.s->n);
    return list;
}

// The last occurrence of `what` before `end`; n + 1: none.
static size_t string_search_back(ct_jinja_machine *m, const ct_jv_string *in, size_t from,
                                 size_t end, const ct_jv_string *what) {
    for (size_t at = end - from >= what->n ? end - what->n + 1 : from; at-- > from;) {
        ct__jinja_count_steps(m, 0);
        if (memcmp(in->s + at, what->s, what->n) == 0) return at;
    }
    return in->n + 1;
}

void ct__jv_reverse(ct_jv_list *list) {
    for (size_t i = 0; i < list->n / 2; i++) {
        ct_jv v = list->v[i];
        list->v[i] = list->v[list->n - 1 - i];
        list->v[list->n - 1 - i] = v;
    }
}

static void string_rsplit_words(ct_jinja_machine *m, ct_jv text, int64_t max_splits,
                                ct_jv_list *out) {
    ct_jv_list *words = ct__jv_new_list(m, JV_LIST, 0).list;
    string_split_words(m, text, -1, words);
    if (max_splits < 0 || (int64_t)words->n <= max_splits) {
        *out = *words;
        return;
    }
    size_t cut = words->n - (size_t)max_splits; // words in the first part
    const ct_jv_string *last = words->v[cut - 1].s;
    string_push_range(m, out, text, 0, (size_t)(last->s + last->n - text.s->s));
    for (size_t i = cut; i < words->n; i++) ct__jv_push(m, out, words->v[i]);
}

METHOD(str_rsplit) {
    UNUSED;
    ct_jv list = ct__jv_new_list(m, JV_LIST, 0);
    int64_t max_splits = arg[1].kind == JV_MISSING ? -1 : ct__jv_require_int(m, arg[1], "maxsplit");
    if (arg[0].kind == JV_MISSING || arg[0].kind == JV_NONE) {
        string_rsplit_words(m, self, max_splits, list.list);
        return list;
    }
    ct_jv by = ct__jv_require_string(m, arg[0], "sep");
    if (!by.s->n) ct__jinja_fail(m, "rsplit: the separator is empty");
    size_t end = self.s->n, found;
    while (max_splits-- != 0 &&
           (found = string_search_back(m, self.s, 0, end, by.s)) <= self.s->n) {
        string_push_range(m, list.list, self, found + by.s->n, end);
        end = found;
    }
    string_push_range(m, list.list, self, 0, end);
    ct__jv_reverse(list.list);
    return list;
}

static ct_jv string_partition_tuple(ct_jinja_machine *m, ct_jv of, size_t at, size_t after,
                                    bool found, bool last) {
    ct_jv parts = ct__jv_new_list(m, JV_TUPLE, 0);
    size_t n = of.s->n;
    if (!found && last) {
        string_push_range(m, parts.list, of, 0, 0);
        string_push_range(m, parts.list, of, 0, 0);
    }
    string_push_range(m, parts.list, of, 0, found ? at : n);
    if (found) {
        string_push_range(m, parts.list, of, at, after);
        string_push_range(m, parts.list, of, after, n);
    } else if (!last) {
        string_push_range(m, parts.list, of, n, n);
        string_push_range(m, parts.list, of, n, n);
    }
    return parts;
}

static ct_jv string_partition_separator(ct_jinja_machine *m, ct_jv v) {
    ct_jv by = ct__jv_require_string(m, v, "sep");
    if (!by.s->n) ct__jinja_fail(m, "partition: the separator is empty");
    return by;
}

METHOD(str_partition) {
    UNUSED;
    ct_jv by = string_partition_separator(m, arg[0]);
    size_t at = ct__jv_search(m, self.s, 0, by.s);
    return string_partition_tuple(m, self, at, at + by.s->n, at <= self.s->n, false);
}

METHOD(str_rpartition) {
    UNUSED;
    ct_jv by = string_partition_separator(m, arg[0]);
    size_t at = string_search_back(m, self.s, 0, self.s->n, by.s);
    return string_partition_tuple(m, self, at, at + by.s->n, at <= self.s->n, true);
}

// The byte range of the character range start to end. False: start is after end.
static bool string_byte_range(ct_jinja_machine *m, ct_jv self, ct_jv start, ct_jv end, size_t *from,
                              size_t *to) {
    int64_t n = ct__jv_count_chars(m, self.s), i = 0, j = n;
    if (start.kind != JV_MISSING && start.kind != JV_NONE)
        i = ct__jv_require_int(m, start, "start");
    if (end.kind != JV_MISSING && end.kind != JV_NONE) j = ct__jv_require_int(m, end, "end");
    if (i < 0) i = i < -n ? 0 : i + n;
    if (j < 0) j = j < -n ? 0 : j + n;
    if (j > n) j = n;
    if (i > j) return false;
    *from = string_byte_offset(m, self.s, i);
    *to = string_byte_offset(m, self.s, j);
    return true;
}

static int64_t string_find(ct_jinja_machine *m, ct_jv self, const ct_jv *arg, bool last) {
    size_t from, to, at;
    ct_jv what = ct__jv_require_string(m, arg[0], "what is looked for");
    if (!string_byte_range(m, self, arg[1], arg[2], &from, &to)) return -1;
    ct_jv_string part = {.s = self.s->s, .n = to, .chars = -1};
    at = last ? string_search_back(m, &part, from, to, what.s)
              : ct__jv_search(m, &part, from, what.s);
    return at > to ? -1 : string_chars_before(m, self.s, at);
}

static ct_jv string_require_found(ct_jinja_machine *m, int64_t at) {
    if (at < 0) ct__jinja_fail(m, "index: it is not in the str");
    return ct__jv_int(at);
}

METHOD(str_find_first) { return UNUSED, ct__jv_int(string_find(m, self, arg, false)); }
METHOD(str_find_last) { return UNUSED, ct__jv_int(string_find(m, self, arg, true)); }
METHOD(str_index_first) {
    return UNUSED, string_require_found(m, string_find(m, self, arg, false));
}
METHOD(str_index_last) { return UNUSED, string_require_found(m, string_find(m, self, arg, true)); }

METHOD(str_count) {
    UNUSED;
    size_t from, to;
    int64_t n = 0;
    ct_jv what = ct__jv_require_string(m, arg[0], "what is counted");
    if (!string_byte_range(m, self, arg[1], arg[2], &from, &to)) return ct__jv_int(0);
    ct_jv_string part = {.s = self.s->s + from, .n = to - from, .chars = -1};
    if (!what.s->n) return ct__jv_int(ct__jv_count_chars(m, &part) + 1);
    for (size_t at = 0; (at = ct__jv_search(m, &part, at, what.s)) <= part.n; at += what.s->n) n++;
    return ct__jv_int(n);
}

// A prefix or suffix, or any of a tuple of them.
static bool string_has_affix(ct_jinja_machine *m, ct_jv self, const ct_jv *arg, bool end) {
    size_t from, to;
    const ct_jv *words = arg;
    size_t n = 1;
    if (arg[0].kind == JV_TUPLE) words = arg[0].list->v, n = arg[0].list->n;
    bool inside = string_byte_range(m, self, arg[1], arg[2], &from, &to);
    for (size_t i = 0; i < n; i++) {
        const ct_jv_string *word =
            ct__jv_require_string(m, words[i], "what it begins or ends with").s;
        if (!inside || word->n > to - from) continue;
        ct__jinja_count_steps(m, word->n);
        if (memcmp(self.s->s + (end ? to - word->n : from), word->s, word->n) == 0) return true;
    }
    return false;
}

METHOD(str_startswith) { return UNUSED, ct__jv_bool(string_has_affix(m, self, arg, false)); }
METHOD(str_endswith) { return UNUSED, ct__jv_bool(string_has_affix(m, self, arg, true)); }

METHOD(str_removeprefix) {
    UNUSED;
    ct_jv word = ct__jv_require_string(m, arg[0], "a prefix");
    ct_jv only[3] = {word};
    if (!string_has_affix(m, self, only, false)) return self;
    return ct__jv_borrow_string(m, self.s->s + word.s->n, self.s->n - word.s->n);
}

METHOD(str_removesuffix) {
    UNUSED;
    ct_jv word = ct__jv_require_string(m, arg[0], "a suffix");
    ct_jv only[3] = {word};
    if (!string_has_affix(m, self, only, true)) return self;
    return ct__jv_borrow_string(m, self.s->s, self.s->n - word.s->n);
}

static ct_jv string_pad(ct_jinja_machine *m, ct_jv self, const ct_jv *arg, char side) {
    ct_jinja_writer w = {.m = m};
    ct_jv fill = arg[1].kind == JV_MISSING ? ct__jv_cstring(m, " ")
                                           : ct__jv_require_string(m, arg[1], "fill");
    if (ct__jv_count_chars(m, fill.s) != 1) ct__jinja_fail(m, "the fill must be one character");
    int64_t n = ct__jv_count_chars(m, self.s), width = ct__jv_require_int(m, arg[0], "a width");
    int64_t gap = width > n ? width - n : 0;
    int64_t left = side == '<' ? 0 : side == '>' ? gap : gap / 2 + (gap & width & 1);
    ct__jinja_fill(&w, fill.s->s, fill.s->n, left);
    ct__jinja_write(&w, self.s->s, self.s->n);
    ct__jinja_fill(&w, fill.s->s, fill.s->n, gap - left);
    return ct__jinja_writer_string(&w);
}

METHOD(str_center) { return UNUSED, string_pad(m, self, arg, '^'); }
METHOD(str_ljust) { return UNUSED, string_pad(m, self, arg, '<'); }
METHOD(str_rjust) { return UNUSED, string_pad(m, self, arg, '>'); }

METHOD(str_zfill) {
    UNUSED;
    size_t sign = self.s->n && (*self.s->s == '+' || *self.s->s == '-') ? 1 : 0;
    ct_jv head = ct__jv_borrow_string(m, self.s->s, sign);
    ct_jv rest = ct__jv_borrow_string(m, self.s->s + sign, self.s->n - sign);
    int64_t width = ct__jv_require_int(m, arg[0], "a width");
    ct_jv with[2] = {ct__jv_int(width > (int64_t)sign ? width - (int64_t)sign : 0),
                     ct__jv_cstring(m, "0")};
    return ct__jv_concat(m, head, string_pad(m, rest, with, '>'));
}

METHOD(str_expandtabs) {
    UNUSED;
    ct_jinja_writer w = {.m = m};
    int64_t by = arg[0].kind == JV_MISSING ? 8 : ct__jv_require_int(m, arg[0], "tabsize"),
            column = 0;
    for (size_t at = 0; at < self.s->n;) {
        size_t from = at;
        uint32_t cp = ct__jv_next_char(self.s, &at);
        if (cp != '\t') {
            ct__jinja_write(&w, self.s->s + from, at - from);
            column = cp == '\n' || cp == '\r' ? 0 : column + 1;
            continue;
        }
        const int64_t gap = by > 0 ? by - column % by : 0;
        ct__jinja_fill(&w, " ", 1, gap);
        column += gap;
    }
    return ct__jinja_writer_string(&w);
}

METHOD(str_format) { return UNUSED, ct__jv_format(m, self, all); }

METHOD(str_format_map) {
    UNUSED;
    if (arg[0].kind != JV_DICT) ct__jinja_fail(m, "format_map: it needs a dict");
    const ct_jv_dict *d = arg[0].dict;
    return ct__jv_format(m, self,
                         &(ct_jv_args){.names = d->keys, .named = d->values, .named_n = d->n});
}

// True if the string is not empty and all its characters are of the class.
static ct_jv string_all_of_class(const ct_jv_string *s, unsigned class) {
    bool all = s->n > 0;
    for (size_t at = 0; all && at < s->n;) all = ct__uc_class(ct__jv_next_char(s, &at)) & class;
    return ct__jv_bool(all);
}

METHOD(str_is_alpha) { return UNUSED, string_all_of_class(self.s, CT_UC_ALPHA); }
METHOD(str_is_alnum) { return UNUSED, string_all_of_class(self.s, CT_UC_WORD); }
METHOD(str_is_decimal) { return UNUSED, string_all_of_class(self.s, CT_UC_DECIMAL); }
METHOD(str_is_digit) { return UNUSED, string_all_of_class(self.s, CT_UC_DIGIT | CT_UC_DECIMAL); }
METHOD(str_is_numeric) { return UNUSED, string_all_of_class(self.s, CT_UC_NUMERIC); }
METHOD(str_is_space) { return UNUSED, string_all_of_class(self.s, CT_UC_SPACE); }
METHOD(str_is_printable) {
    UNUSED;
    return self.s->n ? string_all_of_class(self.s, CT_UC_PRINTABLE) : ct__jv_bool(true);
}
METHOD(str_is_ascii) {
    UNUSED;
    bool ascii = true;
    for (size_t i = 0; i < self.s->n; i++) ascii &= (unsigned char)self.s->s[i] < 128;
    return ct__jv_bool(ascii);
}

// True if a letter has the wanted case and none has the other.
static ct_jv string_is_one_case(const ct_jv_string *s, unsigned wanted, unsigned other) {
    bool some = false;
    for (size_t at = 0; at < s->n;) {
        unsigned class = ct__uc_class(ct__jv_next_char(s, &at));
        if (class & (other | CT_UC_TITLE)) return ct__jv_bool(false);
        some |= (class & wanted) != 0;
    }
    return ct__jv_bool(some);
}

METHOD(str_is_upper) { return UNUSED, string_is_one_case(self.s, CT_UC_UPPER, CT_UC_LOWER); }
METHOD(str_is_lower) { return UNUSED, string_is_one_case(self.s, CT_UC_LOWER, CT_UC_UPPER); }

METHOD(str_is_title) {
    UNUSED;
    bool some = false, inside = false;
    for (size_t at = 0; at < self.s->n;) {
        unsigned class = ct__uc_class(ct__jv_next_char(self.s, &at));
        if ((class & (CT_UC_UPPER | CT_UC_TITLE) && inside) || (class & CT_UC_LOWER && !inside))
            return ct__jv_bool(false);
        inside = class & (CT_UC_UPPER | CT_UC_TITLE | CT_UC_LOWER);
        some |= inside;
    }
    return ct__jv_bool(some);
}

const ct_jv_function ct__jv_string_methods[] = {
    {"capitalize", "", 0, str_capitalize},
    {"casefold", "", 0, str_lower},
    {"center", "width fillchar", 1, str_center},
    {"count", "sub start end", 1, str_count},
    {"endswith", "suffix start end", 1, str_endswith},
    {"expandtabs", "tabsize", 0, str_expandtabs},
    {"find", "sub start end", 1, str_find_first},
    {"format", NULL, 0, str_format},
    {"format_map", "mapping", 1, str_format_map},
    {"index", "sub start end", 1, str_index_first},
    {"isalnum", "", 0, str_is_alnum},
    {"isalpha", "", 0, str_is_alpha},
    {"isascii", "", 0, str_is_ascii},
    {"isdecimal", "", 0, str_is_decimal},
    {"isdigit", "", 0, str_is_digit},
    {"islower", "", 0, str_is_lower},
    {"isnumeric", "", 0, str_is_numeric},
    {"isprintable", "", 0, str_is_printable},
    {"isspace", "", 0, str_is_space},
    {"istitle", "", 0, str_is_title},
    {"isupper", "", 0, str_is_upper},
    {"join", "iterable", 1, str_join},
    {"ljust", "width fillchar", 1, str_ljust},
    {"lower", "", 0, str_lower},
    {"lstrip", "chars", 0, str_lstrip},
    {"partition", "sep", 1, str_partition},
    {"removeprefix", "prefix", 1, str_removeprefix},
    {"removesuffix", "suffix", 1, str_removesuffix},
    {"replace", "old new count", 2, str_replace},
    {"rfind", "sub start end", 1, str_find_last},
    {"rindex", "sub start end", 1, str_index_last},
    {"rjust", "width fillchar", 1, str_rjust},
    {"rpartition", "sep", 1, str_rpartition},
    {"rsplit", "sep maxsplit", 0, str_rsplit},
    {"rstrip", "chars", 0, str_rstrip},
    {"split", "sep maxsplit", 0, str_split},
    {"splitlines", "keepends", 0, str_splitlines},
    {"startswith", "prefix start end", 1, str_startswith},
    {"strip", "chars", 0, str_strip},
    {"swapcase", "", 0, str_swapcase},
    {"title", "", 0, str_title},
    {"upper", "", 0, str_upper},
    {"zfill", "width", 1, str_zfill},
    {0},
};

// ---------------------------------------------------------------------------- lists, dicts, others

METHOD(list_count) {
    UNUSED;
    int64_t n = 0;
    for (size_t i = 0; i < self.list->n; i++) n += ct__jv_equal(m, self.list->v[i], arg[0]);
    return ct__jv_int(n);
}

METHOD(list_index) {
    UNUSED;
    for (size_t i = 0; i < self.list->n; i++)
        if (ct__jv_equal(m, self.list->v[i], arg[0])) return ct__jv_int((int64_t)i);
    ct__jinja_fail(m, "index: %s is not in the list", ct__jinja_printable(m, arg[0]));
}

METHOD(value_copy) { return UNUSED, self; } // no method changes the value in place

METHOD(dict_get) {
    UNUSED;
    const ct_jv *found = ct__jv_dict_find(m, self.dict, arg[0]);
    return found ? *found : arg[1].kind == JV_MISSING ? ct__jv_none() : arg[1];
}

static ct_jv dict_new_view(ct_jinja_machine *m, const char *name, size_t n) {
    ct_jv v = ct__jv_new_list(m, JV_VIEW, n);
    ct__jinja_count_steps(m, 16 * n);
    v.list->view = name;
    return v;
}

METHOD(dict_keys) {
    UNUSED;
    ct_jv v = dict_new_view(m, "keys", self.dict->n);
    for (size_t i = 0; i < self.dict->n; i++) v.list->v[i] = self.dict->keys[i];
    return v;
}

METHOD(dict_values) {
    UNUSED;
    ct_jv v = dict_new_view(m, "values", self.dict->n);
    for (size_t i = 0; i < self.dict->n; i++) v.list->v[i] = self.dict->values[i];
    return v;
}

METHOD(dict_items) {
    UNUSED;
    ct_jv v = dict_new_view(m, "items", self.dict->n);
    for (size_t i = 0; i < self.dict->n; i++)
        v.list->v[i] = ct__jv_pair(m, self.dict->keys[i], self.dict->values[i]);
    return v;
}

METHOD(loop_cycle) {
    UNUSED;
    if (!all->n) ct__jinja_fail(m, "loop.cycle: there is nothing to cycle through");
    return all->v[self.loop->at % all->n];
}

METHOD(loop_changed) {
    UNUSED;
    ct_jv now = ct__jv_new_list(m, JV_TUPLE, all->n);
    for (size_t i = 0; i < all->n; i++) now.list->v[i] = all->v[i];
    bool same = self.loop->changed.kind == JV_TUPLE && ct__jv_equal(m, self.loop->changed, now);
    self.loop->changed = now;
    return ct__jv_bool(!same);
}

METHOD(cycler_next) {
    UNUSED;
    ct_jv now = self.cycler->items->v[self.cycler->at];
    self.cycler->at = (self.cycler->at + 1) % self.cycler->items->n;
    return now;
}

METHOD(cycler_reset) {
    UNUSED;
    self.cycler->at = 0;
    return ct__jv_none();
}

static const ct_jv_function jinja_tuple_methods[] = {
    {"count", "value", 1, list_count}, {"index", "value", 1, list_index}, {0}};
static const ct_jv_function jinja_list_methods[] = {
    {"count", "value", 1, list_count}, {"index", "value", 1, list_index},
    {"copy", "", 0, value_copy},       {"append", NULL, 0, NULL},
    {"clear", NULL, 0, NULL},          {"extend", NULL, 0, NULL},
    {"insert", NULL, 0, NULL},         {"pop", NULL, 0, NULL},
    {"remove", NULL, 0, NULL},         {"reverse", NULL, 0, NULL},
    {"sort", NULL, 0, NULL},           {0}};
static const ct_jv_function jinja_dict_methods[] = {{"get", "key default", 1, dict_get},
                                                    {"items", "", 0, dict_items},
                                                    {"keys", "", 0, dict_keys},
                                                    {"values", "", 0, dict_values},
                                                    {"copy", "", 0, value_copy},
                                                    {"clear", NULL, 0, NULL},
                                                    {"pop", NULL, 0, NULL},
                                                    {"popitem", NULL, 0, NULL},
                                                    {"setdefault", NULL, 0, NULL},
                                                    {"update", NULL, 0, NULL},
                                                    {0}};
static const ct_jv_function jinja_loop_methods[] = {
    {"cycle", NULL, 0, loop_cycle}, {"changed", NULL, 0, loop_changed}, {0}};
static const ct_jv_function jinja_cycler_methods[] = {
    {"next", "", 0, cycler_next}, {"reset", "", 0, cycler_reset}, {0}};

const ct_jv_function *ct__jv_find_method(ct_jv of, ct_jv name) {
    switch (of.kind) {
    case JV_STRING: return ct__jv_find_function(ct__jv_string_methods, name);
    case JV_LIST: return ct__jv_find_function(jinja_list_methods, name);
    case JV_TUPLE:
    case JV_RANGE: return ct__jv_find_function(jinja_tuple_methods, name);
    case JV_DICT: return ct__jv_find_function(jinja_dict_methods, name);
    case JV_LOOP: return ct__jv_find_function(jinja_loop_methods, name);
    case JV_CYCLER: return ct__jv_find_function(jinja_cycler_methods, name);
    default: return NULL;
    }
}
