// The filters of templates, those of jinja2 that compute something from their operands alone.
#define _GNU_SOURCE // memrchr
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja_value.h"

#define FILTER(name)                                                                               \
    static ct_jv name(ct_jinja_machine *m, ct_jv self, const ct_jv *arg, const ct_jv_args *all)
#define UNUSED (void)m, (void)self, (void)arg, (void)all

static bool given(ct_jv v) { return v.kind != JV_MISSING; }
static bool yes(ct_jinja_machine *m, ct_jv v) { return given(v) && ct__jv_truth(m, v); }

// ------------------------------------------------------------------------------------- attributes

// An attribute "a.0.b" is looked up part by part; NONE and MISSING stand for the value itself.
static ct_jv look_up(ct_jinja_machine *m, ct_jv of, ct_jv path, ct_jv missing) {
    if (path.kind == JV_MISSING || path.kind == JV_NONE) return of;
    if (path.kind != JV_STRING) return ct__jv_item(m, of, path);
    for (size_t at = 0; at <= path.s->n;) {
        size_t end = at, digits = at;
        while (end < path.s->n && path.s->s[end] != '.') end++;
        while (digits < end && path.s->s[digits] >= '0' && path.s->s[digits] <= '9') digits++;
        ct_jv part = ct__jv_bytes(m, path.s->s + at, end - at);
        if (digits == end && end > at) part = ct__jv_parse_int(m, part, 10);
        of = ct__jv_item(m, of, part);
        if (of.kind == JV_UNDEFINED && given(missing) && missing.kind != JV_NONE) of = missing;
        at = end + 1;
    }
    return of;
}

static ct_jv without_case(ct_jinja_machine *m, ct_jv v) {
    return v.kind == JV_STRING ? ct__jv_lower(m, v) : v;
}

static ct_jv key_of(ct_jinja_machine *m, ct_jv of, ct_jv path, ct_jv case_sensitive) {
    ct_jv key = look_up(m, of, path, (ct_jv){0});
    return yes(m, case_sensitive) ? key : without_case(m, key);
}

// The items in a list of their own.
static ct_jv own_list(ct_jinja_machine *m, ct_jv v, ct_jv_kind kind) {
    const ct_jv_list *items = ct__jv_items(m, v);
    ct_jv list = ct__jv_new_list(m, kind, items->n);
    ct__jinja_step(m, 16 * items->n);
    if (items->n) memcpy(list.list->v, items->v, items->n * sizeof(ct_jv));
    return list;
}

// ------------------------------------------------------------------------------------------- text

FILTER(upper) { return UNUSED, ct__jv_upper(m, ct__jv_text(m, self)); }
FILTER(lower) { return UNUSED, ct__jv_lower(m, ct__jv_text(m, self)); }
FILTER(capitalize) { return UNUSED, ct__jv_capitalize(m, ct__jv_text(m, self)); }
FILTER(trim) { return UNUSED, ct__jv_strip(m, ct__jv_text(m, self), arg[0], true, true); }
FILTER(string) { return UNUSED, ct__jv_text(m, self); }
FILTER(escape) { return UNUSED, ct__jv_escape(m, self, false); }
FILTER(forceescape) { return UNUSED, ct__jv_escape(m, self, true); }

FILTER(safe) {
    UNUSED;
    ct_jv text = ct__jv_text(m, self);
    text = ct__jv_bytes(m, text.s->s, text.s->n);
    text.s->markup = true;
    return text;
}

FILTER(title) { // words begin behind blanks, dashes and opening brackets
    UNUSED;
    ct_jv text = ct__jv_text(m, self), out = ct__jv_word(m, "");
    for (size_t at = 0, from = 0; at < text.s->n;) {
        size_t before = at;
        uint32_t cp = ct__jv_next_char(text.s, &at);
        bool gap = (ct__uc_class(cp) & CT_UC_SPACE) || (cp < 128 && strchr("-({[<", (int)cp));
        if (!gap && at < text.s->n) continue;
        size_t end = gap ? before : at;
        ct_jv word = ct__jv_bytes(m, text.s->s + from, end - from);
        size_t first = 0;
        if (word.s->n) ct__jv_next_char(word.s, &first);
        out = ct__jv_concat(m, out, ct__jv_upper(m, ct__jv_bytes(m, word.s->s, first)));
        ct_jv rest = ct__jv_bytes(m, word.s->s + first, word.s->n - first);
        out = ct__jv_concat(m, out, ct__jv_lower(m, rest));
        out = ct__jv_concat(m, out, ct__jv_bytes(m, text.s->s + end, at - end));
        from = at;
    }
    return out;
}

FILTER(replace) {
    UNUSED;
    bool counted = given(arg[2]) && arg[2].kind != JV_NONE;
    return ct__jv_replace(m, ct__jv_text(m, self), ct__jv_text(m, arg[0]), ct__jv_text(m, arg[1]),
                          counted ? ct__jv_whole(m, arg[2], "count") : -1);
}

FILTER(join) {
    UNUSED;
    const ct_jv_list *items = ct__jv_items(m, self);
    ct_jv between = given(arg[0]) ? ct__jv_text(m, arg[0]) : ct__jv_word(m, "");
    ct_jinja_writer w = {.m = m};
    for (size_t i = 0; i < items->n; i++) {
        if (i) ct__jinja_write(&w, between.s->s, between.s->n);
        ct__jv_write(&w, look_up(m, items->v[i], arg[1], (ct_jv){0}));
    }
    return ct__jinja_written(&w);
}

FILTER(center) {
    UNUSED;
    ct_jv width = given(arg[0]) ? arg[0] : ct__jv_int(80);
    const ct_jv_function *method = ct__jv_find_in(ct__jv_string_methods, ct__jv_word(m, "center"));
    return ct__jv_invoke(m, method, ct__jv_text(m, self), &(ct_jv_args){.v = &width, .n = 1});
}

FILTER(indent) {
    UNUSED;
    ct_jv by = arg[0];
    ct_jinja_writer blanks = {.m = m}, w = {.m = m};
    int64_t n = given(by) && by.kind != JV_STRING ? ct__jv_whole(m, by, "width") : 4;
    ct__jinja_fill(&blanks, " ", 1, n);
    if (by.kind != JV_STRING) by = ct__jinja_written(&blanks);
    ct_jv text = ct__jv_concat(m, ct__jv_string(m, self, "what is indented"), ct__jv_word(m, "\n"));
    const ct_jv_list *lines = ct__jv_lines(m, text, false);
    for (size_t i = 0; i < lines->n; i++) {
        const ct_jv_string *line = lines->v[i].s;
        if (i) ct__jinja_word(&w, "\n");
        if (i ? line->n || yes(m, arg[2]) : yes(m, arg[1])) ct__jinja_write(&w, by.s->s, by.s->n);
        ct__jinja_write(&w, line->s, line->n);
    }
    return ct__jinja_written(&w);
}

FILTER(truncate) {
    UNUSED;
    int64_t length = given(arg[0]) ? ct__jv_whole(m, arg[0], "length") : 255;
    ct_jv end = given(arg[2]) ? ct__jv_string(m, arg[2], "end") : ct__jv_word(m, "...");
    bool own = given(arg[3]) && arg[3].kind != JV_NONE;
    int64_t leeway = own ? ct__jv_whole(m, arg[3], "leeway") : 5, tail = ct__jv_chars(m, end.s);
    if (length < tail || leeway < 0)
        ct__jinja_fail(m, "truncate: length must be at least that of end, and leeway 0 or more");
    if (ct__jv_length(m, self) - leeway <= length) return self; // neither is below 0
    ct_jv text = ct__jv_sub(m, ct__jv_string(m, self, "what is truncated"), 0, length - tail);
    const char *blank = yes(m, arg[1]) ? NULL : memrchr(text.s->s, ' ', text.s->n);
    if (blank) text = ct__jv_bytes(m, text.s->s, (size_t)(blank - text.s->s));
    return ct__jv_concat(m, text, end);
}

FILTER(wordcount) {
    UNUSED;
    ct_jv text = ct__jv_text(m, self);
    int64_t n = 0;
    bool inside = false;
    for (size_t at = 0; at < text.s->n;) {
        uint32_t cp = ct__jv_next_char(text.s, &at);
        bool letter = cp == '_' || (ct__uc_class(cp) & CT_UC_WORD);
        n += letter && !inside;
        inside = letter;
    }
    ct__jinja_step(m, text.s->n);
    return ct__jv_int(n);
}

FILTER(format) {
    UNUSED;
    if (all->n && all->named_n) ct__jinja_fail(m, "format: values come with names or without");
    ct_jv values = ct__jv_new_list(m, JV_TUPLE, 0);
    for (size_t i = 0; i < all->n; i++) ct__jv_push(m, values.list, all->v[i]);
    if (all->named_n) values = ct__jv_new_dict(m);
    for (size_t i = 0; i < all->named_n; i++)
        ct__jv_set(m, values.dict, all->names[i], all->named[i]);
    return ct__jv_percent(m, ct__jv_text(m, self), values);
}

FILTER(filesizeformat) {
    UNUSED;
    static const char letters[] = "kMGTPEZY";
    double bytes, base = yes(m, arg[0]) ? 1024 : 1000, unit = base;
    ct_jv number = self.kind == JV_STRING ? ct__jv_parse_float(m, self) : self;
    if (!ct__jv_number(number, &bytes)) ct__jinja_fail(m, "filesizeformat: it needs a number");
    char text[400];
    if (bytes < base) {
        snprintf(text, sizeof text, bytes == 1 ? "1 Byte" : "%.0f Bytes", trunc(bytes));
    } else {
        size_t i = 0;
        while (i < 7 && bytes >= unit * base) unit *= base, i++;
        char letter = base == 1024 && i == 0 ? 'K' : letters[i];
        snprintf(text, sizeof text, "%.1f %c%sB", bytes / unit, letter, base == 1024 ? "i" : "");
    }
    return ct__jv_copy(m, text, strlen(text));
}

FILTER(urlencode) {
    UNUSED;
    static const char safe_signs[] = "_.-~/";
    ct_jv text = ct__jv_text(m, self);
    if (self.kind == JV_DICT || self.kind == JV_LIST || self.kind == JV_TUPLE)
        ct__jinja_fail(m, "urlencode: it needs a str, not a %s", ct__jv_type(self));
    ct_jinja_writer w = {.m = m};
    for (size_t i = 0; i < text.s->n; i++) {
        unsigned char c = (unsigned char)text.s->s[i];
        bool letter = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (letter || (c && strchr(safe_signs, c)))
            ct__jinja_write(&w, text.s->s + i, 1);
        else
            ct__jinja_writef(&w, "%%%02X", c);
    }
    return ct__jinja_written(&w);
}

FILTER(tojson) {
    UNUSED;
    ct_jv_json_style style = {.item = ", ", .item_n = 2, .key = ": ", .key_n = 2};
    ct_jv indent = arg[1];
    style.ascii = yes(m, arg[0]);
    style.sorted = yes(m, arg[3]);
    if (given(indent) && indent.kind != JV_NONE) {
        ct_jinja_writer blanks = {.m = m};
        int64_t n = indent.kind == JV_STRING ? 0 : ct__jv_whole(m, indent, "indent");
        ct__jinja_fill(&blanks, " ", 1, n);
        if (indent.kind != JV_STRING) indent = ct__jinja_written(&blanks);
        style.indent = indent.s->s;
        style.indent_n = indent.s->n;
        style.item_n = 1;
    }
    if (given(arg[2]) && arg[2].kind != JV_NONE) {
        const ct_jv_list *two = ct__jv_items(m, arg[2]);
        if (two->n != 2) ct__jinja_fail(m, "tojson: separators are two");
        ct_jv item = ct__jv_string(m, two->v[0], "a separator");
        ct_jv key = ct__jv_string(m, two->v[1], "a separator");
        style = (ct_jv_json_style){item.s->s,    key.s->s,       item.s->n,   key.s->n,
                                   style.indent, style.indent_n, style.ascii, style.sorted};
    }
    ct_jinja_writer w = {.m = m};
    ct__jv_json(&w, self, &style, 0);
    return ct__jinja_written(&w);
}

// ----------------------------------------------------------------------------------------- numbers

FILTER(abs_value) {
    UNUSED;
    double f;
    if (!ct__jv_number(self, &f)) ct__jinja_fail(m, "abs: a %s is no number", ct__jv_type(self));
    return signbit(f) ? ct__jv_negate(m, self) : self.kind == JV_BOOL ? ct__jv_int(self.b) : self;
}

static ct_jv whole_part(ct_jinja_machine *m, double f) {
    if (fabs(f) >= 0x1p63) ct__jinja_fail(m, "an integer needs more than 64 bits");
    return ct__jv_int((int64_t)f);
}

FILTER(int_value) {
    UNUSED;
    ct_jv otherwise = given(arg[0]) ? arg[0] : ct__jv_int(0), number = self;
    double f;
    if (self.kind == JV_UNDEFINED) ct__jv_fail_undefined(m, self);
    if (self.kind == JV_STRING) {
        const int64_t base = given(arg[1]) ? ct__jv_whole(m, arg[1], "base") : 10;
        number =
            ct__jv_parse_int(m, self, base < 0 || base > 36 ? 1 : (int)base); // 1: there is none
        if (number.kind == JV_MISSING) number = ct__jv_parse_float(m, self);
    }
    if (!ct__jv_number(number, &f)) return otherwise;
    if (number.kind != JV_FLOAT) return ct__jv_int(number.kind == JV_BOOL ? number.b : number.i);
    return isfinite(f) ? whole_part(m, f) : otherwise;
}

FILTER(float_value) {
    UNUSED;
    ct_jv number = self.kind == JV_STRING ? ct__jv_parse_float(m, self) : self;
    double f;
    if (self.kind == JV_UNDEFINED) ct__jv_fail_undefined(m, self);
    if (ct__jv_number(number, &f)) return ct__jv_float(f);
    return given(arg[0]) ? arg[0] : ct__jv_float(0);
}

static ct_jv round_whole(ct_jinja_machine *m, int64_t i, int64_t digits) {
    enum { MOST = 18 }; // zeros of an int64_t
    const int64_t half = 5000000000000000000;
    if (digits >= 0) return ct__jv_int(i);
    if (digits == -MOST - 1 && (i > half || i < -half))
        ct__jinja_fail(m, "an integer needs more than 64 bits");
    if (digits < -MOST) return ct__jv_int(0);
    int64_t unit = 1, up;
    for (; digits < 0; digits++) unit *= 10;
    int64_t down = i / unit, rest = i % unit;
    if (rest < 0) rest += unit, down--;
    if (rest > unit / 2 || (rest == unit / 2 && down % 2)) down++;
    if (__builtin_mul_overflow(down, unit, &up))
        ct__jinja_fail(m, "an integer needs more than 64 bits");
    return ct__jv_int(up);
}

// To the nearest, halves of the exact value to even.
static double round_float(double f, int64_t digits) {
    char text[512];
    if (!isfinite(f) || digits > 323) return f;
    if (digits >= 0) {
        snprintf(text, sizeof text, "%.*f", (int)digits, f);
        return strtod(text, NULL);
    }
    if (digits < -308) return copysign(0, f);
    snprintf(text, sizeof text, "%.0f", f); // all digits of the whole part
    double unit = pow(10, (double)-digits);
    return rint(f / unit) * unit;
}

FILTER(round_value) {
    UNUSED;
    int64_t digits = given(arg[0]) ? ct__jv_whole(m, arg[0], "precision") : 0;
    bool common = !given(arg[1]) || ct__jv_is(arg[1], "common"), up = ct__jv_is(arg[1], "ceil");
    double f;
    if (!common && !up && !ct__jv_is(arg[1], "floor"))
        ct__jinja_fail(m, "round: the method is common, ceil or floor");
    if (self.kind == JV_UNDEFINED) ct__jv_fail_undefined(m, self);
    if (!ct__jv_number(self, &f)) ct__jinja_fail(m, "round: a %s is no number", ct__jv_type(self));
    if (common && self.kind != JV_FLOAT)
        return round_whole(m, ct__jv_whole(m, self, "a number"), digits);
    if (common) return ct__jv_float(round_float(f, digits));
    double unit = pow(10, (double)digits);
    if (!isfinite(f * unit) || unit == 0)
        ct__jinja_fail(m, "round: a float has no digits at a precision of %" PRId64, digits);
    return ct__jv_float((up ? ceil(f * unit) : floor(f * unit)) / unit);
}

FILTER(sum) {
    UNUSED;
    const ct_jv_list *items = ct__jv_items(m, self);
    ct_jv total = given(arg[1]) ? arg[1] : ct__jv_int(0);
    if (total.kind == JV_STRING) ct__jinja_fail(m, "sum: strings are joined, not added");
    for (size_t i = 0; i < items->n; i++)
        total = ct__jv_binary(m, '+', total, look_up(m, items->v[i], arg[0], (ct_jv){0}));
    return total;
}

static ct_jv extreme(ct_jinja_machine *m, ct_jv self, const ct_jv *arg, int sign) {
    const ct_jv_list *items = ct__jv_items(m, self);
    if (!items->n) return ct__jv_undefined(m, "there is no least or greatest item of none");
    ct_jv best = items->v[0], best_key = key_of(m, best, arg[1], arg[0]);
    for (size_t i = 1; i < items->n; i++) {
        ct_jv key = key_of(m, items->v[i], arg[1], arg[0]);
        int order = sign * ct__jv_compare(m, key, best_key, sign > 0 ? ">" : "<");
        if (order <= 0 || order == 2) continue;
        best = items->v[i];
        best_key = key;
    }
    return best;
}

FILTER(min_item) { return UNUSED, extreme(m, self, arg, -1); }
FILTER(max_item) { return UNUSED, extreme(m, self, arg, 1); }

// ------------------------------------------------------------------------------------------- lists

FILTER(length) { return UNUSED, ct__jv_int(ct__jv_length(m, self)); }
FILTER(list) { return UNUSED, own_list(m, self, JV_LIST); }

FILTER(first) {
    UNUSED;
    if (self.kind == JV_GENERATOR && self.list->at < self.list->n)
        return self.list->v[self.list->at++];
    const ct_jv_list *items = ct__jv_items(m, self);
    return items->n ? items->v[0] : ct__jv_undefined(m, "there is no first item of none");
}

FILTER(last) {
    UNUSED;
    if (self.kind == JV_GENERATOR || self.kind == JV_UNDEFINED)
        ct__jinja_fail(m, "last: a %s cannot be walked from its end", ct__jv_type(self));
    const ct_jv_list *items = ct__jv_items(m, self);
    return items->n ? items->v[items->n - 1] : ct__jv_undefined(m, "there is no last item of none");
}

FILTER(items) {
    UNUSED;
    if (self.kind == JV_UNDEFINED) return ct__jv_new_list(m, JV_GENERATOR, 0);
    if (self.kind != JV_DICT) ct__jinja_fail(m, "items: a %s has none", ct__jv_type(self));
    ct_jv pairs = ct__jv_new_list(m, JV_GENERATOR, self.dict->n);
    for (size_t i = 0; i < self.dict->n; i++)
        pairs.list->v[i] = ct__jv_pair(m, self.dict->keys[i], self.dict->values[i]);
    return pairs;
}

FILTER(reverse) {
    UNUSED;
    ct_jv list = own_list(m, self, JV_GENERATOR);
    for (size_t i = 0, n = list.list->n; i < n / 2; i++) {
        ct_jv v = list.list->v[i];
        list.list->v[i] = list.list->v[n - 1 - i];
        list.list->v[n - 1 - i] = v;
    }
    return self.kind == JV_STRING ? ct__jv_join(m, ct__jv_word(m, ""), list.list) : list;
}

// The key of several attributes, "a,b.c", is a list of theirs.
static ct_jv sort_key(ct_jinja_machine *m, ct_jv of, ct_jv paths, ct_jv case_sensitive) {
    ct_jv key = ct__jv_new_list(m, JV_LIST, 0);
    if (paths.kind != JV_STRING) {
        ct__jv_push(m, key.list, key_of(m, of, paths, case_sensitive));
        return key;
    }
    for (size_t at = 0; at <= paths.s->n;) {
        size_t end = at;
        while (end < paths.s->n && paths.s->s[end] != ',') end++;
        ct_jv path = ct__jv_bytes(m, paths.s->s + at, end - at);
        ct__jv_push(m, key.list, key_of(m, of, path, case_sensitive));
        at = end + 1;
    }
    return key;
}

FILTER(sort) {
    UNUSED;
    ct_jv list = own_list(m, self, JV_LIST);
    ct_jv *keys = ct__jinja_room(m, list.list->n, sizeof *keys);
    for (size_t i = 0; i < list.list->n; i++)
        keys[i] = sort_key(m, list.list->v[i], arg[2], arg[1]);
    ct__jv_sort(m, list.list->v, keys, list.list->n, yes(m, arg[0]));
    return list;
}

FILTER(dictsort) {
    UNUSED;
    if (self.kind != JV_DICT) ct__jinja_fail(m, "dictsort: a %s is no dict", ct__jv_type(self));
    bool by_value = ct__jv_is(arg[1], "value");
    if (given(arg[1]) && !by_value && !ct__jv_is(arg[1], "key"))
        ct__jinja_fail(m, "dictsort: it sorts by key or by value");
    const ct_jv_dict *d = self.dict;
    ct_jv list = ct__jv_new_list(m, JV_LIST, d->n), *keys = ct__jinja_room(m, d->n, sizeof *keys);
    for (size_t i = 0; i < d->n; i++) {
        list.list->v[i] = ct__jv_pair(m, d->keys[i], d->values[i]);
        keys[i] = key_of(m, by_value ? d->values[i] : d->keys[i], (ct_jv){0}, arg[0]);
    }
    ct__jv_sort(m, list.list->v, keys, d->n, yes(m, arg[2]));
    return list;
}

FILTER(unique) {
    UNUSED;
    const ct_jv_list *items = ct__jv_items(m, self);
    ct_jv out = ct__jv_new_list(m, JV_GENERATOR, 0), seen = ct__jv_new_dict(m);
    for (size_t i = 0; i < items->n; i++) {
        ct_jv key = key_of(m, items->v[i], arg[1], arg[0]);
        if (ct__jv_find(m, seen.dict, key)) continue;
        ct__jv_set(m, seen.dict, key, ct__jv_none());
        ct__jv_push(m, out.list, items->v[i]);
    }
    return out;
}

FILTER(groupby) {
    UNUSED;
    ct_jv list = own_list(m, self, JV_LIST), out = ct__jv_new_list(m, JV_LIST, 0);
    size_t n = list.list->n;
    ct_jv *items = list.list->v, *keys = ct__jinja_room(m, n, sizeof *keys);
    for (size_t i = 0; i < n; i++) {
        keys[i] = look_up(m, items[i], arg[0], arg[1]);
        if (!yes(m, arg[2])) keys[i] = without_case(m, keys[i]);
    }
    ct__jv_sort(m, items, keys, n, false);
    for (size_t i = 0; i < n;) {
        ct_jv group = ct__jv_new_list(m, JV_LIST, 0);
        size_t first = i;
        for (; i < n && ct__jv_equal(m, keys[i], keys[first]); i++)
            ct__jv_push(m, group.list, items[i]);
        if (i == first) i++; // NaN is not equal to itself
        ct_jv pair = ct__jv_pair(m, look_up(m, items[first], arg[0], arg[1]), group);
        pair.list->group = true;
        ct__jv_push(m, out.list, pair);
    }
    return out;
}

FILTER(batch) {
    UNUSED;
    const ct_jv_list *items = ct__jv_items(m, self);
    int64_t size = ct__jv_whole(m, arg[0], "linecount");
    ct_jv out = ct__jv_new_list(m, JV_GENERATOR, 0), now = ct__jv_new_list(m, JV_LIST, 0);
    for (size_t i = 0; i < items->n; i++) {
        if ((int64_t)now.list->n == size) {
            ct__jv_push(m, out.list, now);
            now = ct__jv_new_list(m, JV_LIST, 0);
        }
        ct__jv_push(m, now.list, items->v[i]);
    }
    if (!now.list->n) return out;
    bool fill = given(arg[1]) && arg[1].kind != JV_NONE;
    const size_t n = now.list->n;
    if (fill && (int64_t)n < size) {
        ct_jv full = ct__jv_new_list(m, JV_LIST, (size_t)size);
        ct__jinja_step(m, 16 * (size_t)size);
        for (size_t i = 0; i < (size_t)size; i++) full.list->v[i] = i < n ? now.list->v[i] : arg[1];
        now = full;
    }
    ct__jv_push(m, out.list, now);
    return out;
}

FILTER(slice) {
    UNUSED;
    const ct_jv_list *items = ct__jv_items(m, self);
    int64_t slices = ct__jv_whole(m, arg[0], "slices"), n = (int64_t)items->n;
    if (slices == 0) ct__jinja_fail(m, "slice: division of %" PRId64 " by zero", n);
    ct_jv out = ct__jv_new_list(m, JV_GENERATOR, slices > 0 ? (size_t)slices : 0);
    bool fill = given(arg[1]) && arg[1].kind != JV_NONE;
    for (int64_t i = 0, at = 0; i < slices; i++) {
        bool longer = i < n % slices;
        ct_jv now = ct__jv_new_list(m, JV_LIST, 0);
        for (int64_t k = 0; k < n / slices + longer; k++) ct__jv_push(m, now.list, items->v[at++]);
        if (fill && !longer) ct__jv_push(m, now.list, arg[1]);
        out.list->v[i] = now;
    }
    return out;
}

// ------------------------------------------------------------------------- filters of each of a list

static ct_jv_args rest_of(const ct_jv_args *all, size_t used) {
    ct_jv_args rest = *all;
    rest.v += used;
    rest.n -= used;
    return rest;
}

FILTER(map) {
    UNUSED;
    ct_jv out = ct__jv_new_list(m, JV_GENERATOR, 0), path = {0}, missing = {0};
    if (!ct__jv_truth(m, self)) return out;
    for (size_t i = 0; i < all->named_n && !all->n; i++) {
        if (ct__jv_is(all->names[i], "attribute")) path = all->named[i];
        if (ct__jv_is(all->names[i], "default")) missing = all->named[i];
    }
    size_t known = (size_t)given(path) + given(missing);
    if (given(path) && all->named_n > known) ct__jinja_fail(m, "map: it has no such argument");
    if (!given(path) && (!all->n || all->v[0].kind != JV_STRING))
        ct__jinja_fail(m, "map: it needs a filter or an attribute");
    ct_jv_args rest = {0};
    if (all->n) rest = rest_of(all, 1);
    const ct_jv_list *items = ct__jv_items(m, self);
    for (size_t i = 0; i < items->n; i++)
        ct__jv_push(m, out.list,
                    given(path) ? look_up(m, items->v[i], path, missing)
                                : ct__jv_call_filter(m, all->v[0], items->v[i], &rest));
    return out;
}

// Those of which a test says `wanted`; by attribute: of an attribute of theirs.
static ct_jv choose(ct_jinja_machine *m, ct_jv self, const ct_jv_args *all, bool by_attribute,
                    bool wanted) {
    ct_jv out = ct__jv_new_list(m, JV_GENERATOR, 0), path = {0};
    size_t used = by_attribute;
    if (!ct__jv_truth(m, self)) return out;
    if (all->n < used) ct__jinja_fail(m, "the name of an attribute is missing");
    if (by_attribute) path = all->v[0];
    const ct_jv_list *items = ct__jv_items(m, self);
    for (size_t i = 0; i < items->n; i++) {
        ct_jv value = look_up(m, items->v[i], path, (ct_jv){0});
        bool holds;
        if (all->n > used) {
            ct_jv_args rest = rest_of(all, used + 1);
            holds = ct__jv_call_test(m, all->v[used], value, &rest);
        } else {
            holds = ct__jv_truth(m, value);
        }
        if (holds == wanted) ct__jv_push(m, out.list, items->v[i]);
    }
    return out;
}

FILTER(select_items) { return UNUSED, choose(m, self, all, false, true); }
FILTER(reject) { return UNUSED, choose(m, self, all, false, false); }
FILTER(selectattr) { return UNUSED, choose(m, self, all, true, true); }
FILTER(rejectattr) { return UNUSED, choose(m, self, all, true, false); }

// ------------------------------------------------------------------------------------------ others

FILTER(otherwise) {
    UNUSED;
    bool missing = self.kind == JV_UNDEFINED || (yes(m, arg[1]) && !ct__jv_truth(m, self));
    return !missing ? self : given(arg[0]) ? arg[0] : ct__jv_word(m, "");
}

FILTER(attr) { // no key of a dict
    UNUSED;
    ct_jv name = ct__jv_string(m, arg[0], "an attribute's name");
    if (self.kind != JV_DICT || ct__jv_method_of(self, name))
        return ct__jv_attribute(m, self, name);
    return ct__jv_no_member(m, self, name);
}

static const ct_jv_function filters[] = {
    {"abs", "", 0, abs_value},
    {"attr", "name", 1, attr},
    {"batch", "linecount fill_with", 1, batch},
    {"capitalize", "", 0, capitalize},
    {"center", "width", 0, center},
    {"count", "", 0, length},
    {"d", "default_value boolean", 0, otherwise},
    {"default", "default_value boolean", 0, otherwise},
    {"dictsort", "case_sensitive by reverse", 0, dictsort},
    {"e", "", 0, escape},
    {"escape", "", 0, escape},
    {"filesizeformat", "binary", 0, filesizeformat},
    {"first", "", 0, first},
    {"float", "default", 0, float_value},
    {"forceescape", "", 0, forceescape},
    {"format", NULL, 0, format},
    {"groupby", "attribute default case_sensitive", 1, groupby},
    {"indent", "width first blank", 0, indent},
    {"int", "default base", 0, int_value},
    {"items", "", 0, items},
    {"join", "d attribute", 0, join},
    {"last", "", 0, last},
    {"length", "", 0, length},
    {"list", "", 0, list},
    {"lower", "", 0, lower},
    {"map", NULL, 0, map},
    {"max", "case_sensitive attribute", 0, max_item},
    {"min", "case_sensitive attribute", 0, min_item},
    {"reject", NULL, 0, reject},
    {"rejectattr", NULL, 0, rejectattr},
    {"replace", "old new count", 2, replace},
    {"reverse", "", 0, reverse},
    {"round", "precision method", 0, round_value},
    {"safe", "", 0, safe},
    {"select", NULL, 0, select_items},
    {"selectattr", NULL, 0, selectattr},
    {"slice", "slices fill_with", 1, slice},
    {"sort", "reverse case_sensitive attribute", 0, sort},
    {"string", "", 0, string},
    {"sum", "attribute start", 0, sum},
    {"title", "", 0, title},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, tojson},
    {"trim", "chars", 0, trim},
    {"truncate", "length killwords end leeway", 0, truncate},
    {"unique", "case_sensitive attribute", 0, unique},
    {"upper", "", 0, upper},
    {"urlencode", "", 0, urlencode},
    {"wordcount", "", 0, wordcount},
    {0},
};

const ct_jv_function *ct__jv_filter(ct_jv name) { return ct__jv_find_in(filters, name); }

ct_jv ct__jv_call_filter(ct_jinja_machine *m, ct_jv name, ct_jv self, const ct_jv_args *args) {
    const ct_jv_function *filter = ct__jv_filter(name);
    if (!filter) ct__jinja_fail(m, "there is no filter %s", ct__jinja_shown(m, name));
    ct__jinja_enter(m);
    ct_jv result = ct__jv_invoke(m, filter, self, args);
    ct__jinja_leave(m);
    return result;
}
