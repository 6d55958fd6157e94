// The filters of templates: those of jinja2 that compute a value from their operands alone.
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

static bool filter_is_given(ct_jv v) { return v.kind != JV_MISSING; }
static bool filter_is_true(ct_jinja_machine *m, ct_jv v) {
    return filter_is_given(v) && ct__jv_truth(m, v);
}

// -------------------------------------------------------------------------------------- attributes

// Looks up an attribute path "a.0.b" part by part; NONE and MISSING stand for the value itself.
static ct_jv filter_attribute(ct_jinja_machine *m, ct_jv of, ct_jv path, ct_jv missing) {
    if (path.kind == JV_MISSING || path.kind == JV_NONE) return of;
    if (path.kind != JV_STRING) return ct__jv_item(m, of, path);
    for (size_t at = 0; at <= path.s->n;) {
        size_t end = at, digits = at;
        while (end < path.s->n && path.s->s[end] != '.') end++;
        while (digits < end && path.s->s[digits] >= '0' && path.s->s[digits] <= '9') digits++;
        ct_jv part = ct__jv_borrow_string(m, path.s->s + at, end - at);
        if (digits == end && end > at) part = ct__jv_parse_int(m, part, 10);
        of = ct__jv_item(m, of, part);
        if (of.kind == JV_UNDEFINED && filter_is_given(missing) && missing.kind != JV_NONE)
            of = missing;
        at = end + 1;
    }
    return of;
}

static ct_jv filter_fold_case(ct_jinja_machine *m, ct_jv v) {
    return v.kind == JV_STRING ? ct__jv_lower(m, v) : v;
}

static ct_jv filter_key(ct_jinja_machine *m, ct_jv of, ct_jv path, ct_jv case_sensitive) {
    ct_jv key = filter_attribute(m, of, path, (ct_jv){0});
    return filter_is_true(m, case_sensitive) ? key : filter_fold_case(m, key);
}

// The items in a new list.
static ct_jv filter_copy_list(ct_jinja_machine *m, ct_jv v, ct_jv_kind kind) {
    const ct_jv_list *items = ct__jv_items(m, v);
    ct_jv list = ct__jv_new_list(m, kind, items->n);
    ct__jinja_count_steps(m, 16 * items->n);
    if (items->n) memcpy(list.list->v, items->v, items->n * sizeof(ct_jv));
    return list;
}

// -------------------------------------------------------------------------------------------- text

FILTER(filter_upper) { return UNUSED, ct__jv_upper(m, ct__jv_to_string(m, self)); }
FILTER(filter_lower) { return UNUSED, ct__jv_lower(m, ct__jv_to_string(m, self)); }
FILTER(filter_capitalize) { return UNUSED, ct__jv_capitalize(m, ct__jv_to_string(m, self)); }
FILTER(filter_trim) {
    return UNUSED, ct__jv_strip(m, ct__jv_to_string(m, self), arg[0], true, true);
}
FILTER(filter_string) { return UNUSED, ct__jv_to_string(m, self); }
FILTER(filter_escape) { return UNUSED, ct__jv_escape(m, self, false); }
FILTER(filter_forceescape) { return UNUSED, ct__jv_escape(m, self, true); }

FILTER(filter_safe) {
    UNUSED;
    ct_jv text = ct__jv_to_string(m, self);
    text = ct__jv_borrow_string(m, text.s->s, text.s->n);
    text.s->markup = true;
    return text;
}

FILTER(filter_title) { // words begin after whitespace, dashes and opening brackets
    UNUSED;
    ct_jv text = ct__jv_to_string(m, self), out = ct__jv_cstring(m, "");
    for (size_t at = 0, from = 0; at < text.s->n;) {
        size_t before = at;
        uint32_t cp = ct__jv_next_char(text.s, &at);
        bool gap = (ct__uc_class(cp) & CT_UC_SPACE) || (cp < 128 && strchr("-({[<", (int)cp));
        if (!gap && at < text.s->n) continue;
        size_t end = gap ? before : at;
        ct_jv word = ct__jv_borrow_string(m, text.s->s + from, end - from);
        size_t first = 0;
        if (word.s->n) ct__jv_next_char(word.s, &first);
        out = ct__jv_concat(m, out, ct__jv_upper(m, ct__jv_borrow_string(m, word.s->s, first)));
        ct_jv rest = ct__jv_borrow_string(m, word.s->s + first, word.s->n - first);
        out = ct__jv_concat(m, out, ct__jv_lower(m, rest));
        out = ct__jv_concat(m, out, ct__jv_borrow_string(m, text.s->s + end, at - end));
        from = at;
    }
    return out;
}

FILTER(filter_replace) {
    UNUSED;
    bool counted = filter_is_given(arg[2]) && arg[2].kind != JV_NONE;
    return ct__jv_replace(m, ct__jv_to_string(m, self), ct__jv_to_string(m, arg[0]),
                          ct__jv_to_string(m, arg[1]),
                          counted ? ct__jv_require_int(m, arg[2], "count") : -1);
}

FILTER(filter_join) {
    UNUSED;
    const ct_jv_list *items = ct__jv_items(m, self);
    ct_jv between = filter_is_given(arg[0]) ? ct__jv_to_string(m, arg[0]) : ct__jv_cstring(m, "");
    ct_jinja_writer w = {.m = m};
    for (size_t i = 0; i < items->n; i++) {
        if (i) ct__jinja_write(&w, between.s->s, between.s->n);
        ct__jv_write(&w, filter_attribute(m, items->v[i], arg[1], (ct_jv){0}));
    }
    return ct__jinja_writer_string(&w);
}

FILTER(filter_center) {
    UNUSED;
    ct_jv width = filter_is_given(arg[0]) ? arg[0] : ct__jv_int(80);
    const ct_jv_function *method =
        ct__jv_find_function(ct__jv_string_methods, ct__jv_cstring(m, "center"));
    return ct__jv_invoke(m, method, ct__jv_to_string(m, self), &(ct_jv_args){.v = &width, .n = 1});
}

FILTER(filter_indent) {
    UNUSED;
    ct_jv by = arg[0];
    ct_jinja_writer blanks = {.m = m}, w = {.m = m};
    int64_t n =
        filter_is_given(by) && by.kind != JV_STRING ? ct__jv_require_int(m, by, "width") : 4;
    ct__jinja_fill(&blanks, " ", 1, n);
    if (by.kind != JV_STRING) by = ct__jinja_writer_string(&blanks);
    ct_jv text = ct__jv_concat(m, ct__jv_require_string(m, self, "what is indented"),
                               ct__jv_cstring(m, "\n"));
    const ct_jv_list *lines = ct__jv_split_lines(m, text, false);
    for (size_t i = 0; i < lines->n; i++) {
        const ct_jv_string *line = lines->v[i].s;
        if (i) ct__jinja_write_cstring(&w, "\n");
        if (i ? line->n || filter_is_true(m, arg[2]) : filter_is_true(m, arg[1]))
            ct__jinja_write(&w, by.s->s, by.s->n);
        ct__jinja_write(&w, line->s, line->n);
    }
    return ct__jinja_writer_string(&w);
}

FILTER(filter_truncate) {
    UNUSED;
    int64_t length = filter_is_given(arg[0]) ? ct__jv_require_int(m, arg[0], "length") : 255;
    ct_jv end = filter_is_given(arg[2]) ? ct__jv_require_string(m, arg[2], "end")
                                        : ct__jv_cstring(m, "...");
    bool own = filter_is_given(arg[3]) && arg[3].kind != JV_NONE;
    int64_t leeway = own ? ct__jv_require_int(m, arg[3], "leeway") : 5,
            tail = ct__jv_count_chars(m, end.s);
    if (length < tail || leeway < 0)
        ct__jinja_fail(m, "truncate: length must be at least that of end, and leeway 0 or more");
    if (ct__jv_length(m, self) - leeway <= length) return self; // no underflow: neither is below 0
    ct_jv text =
        ct__jv_substring(m, ct__jv_require_string(m, self, "what is truncated"), 0, length - tail);
    const char *blank = filter_is_true(m, arg[1]) ? NULL : memrchr(text.s->s, ' ', text.s->n);
    if (blank) text = ct__jv_borrow_string(m, text.s->s, (size_t)(blank - text.s->s));
    return ct__jv_concat(m, text, end);
}

FILTER(filter_wordcount) {
    UNUSED;
    ct_jv text = ct__jv_to_string(m, self);
    int64_t n = 0;
    bool inside = false;
    for (size_t at = 0; at < text.s->n;) {
        uint32_t cp = ct__jv_next_char(text.s, &at);
        bool letter = cp == '_' || (ct__uc_class(cp) & CT_UC_WORD);
        n += letter && !inside;
        inside = letter;
    }
    ct__jinja_count_steps(m, text.s->n);
    return ct__jv_int(n);
}

FILTER(filter_format) {
    UNUSED;
    if (all->n && all->named_n) ct__jinja_fail(m, "format: values come with names or without");
    ct_jv values = ct__jv_new_list(m, JV_TUPLE, 0);
    for (size_t i = 0; i < all->n; i++) ct__jv_push(m, values.list, all->v[i]);
    if (all->named_n) values = ct__jv_new_dict(m);
    for (size_t i = 0; i < all->named_n; i++)
        ct__jv_dict_set(m, values.dict, all->names[i], all->named[i]);
    return ct__jv_format_percent(m, ct__jv_to_string(m, self), values);
}

FILTER(filter_filesizeformat) {
    UNUSED;
    static const char letters[] = "kMGTPEZY";
    double bytes, base = filter_is_true(m, arg[0]) ? 1024 : 1000, unit = base;
    ct_jv number = self.kind == JV_STRING ? ct__jv_parse_float(m, self) : self;
    if (!ct__jv_to_double(number, &bytes)) ct__jinja_fail(m, "filesizeformat: it needs a number");
    char text[400];
    if (bytes < base) {
        snprintf(text, sizeof text, bytes == 1 ? "1 Byte" : "%.0f Bytes", trunc(bytes));
    } else {
        size_t i = 0;
        while (i < 7 && bytes >= unit * base) unit *= base, i++;
        char letter = base == 1024 && i == 0 ? 'K' : letters[i];
        snprintf(text, sizeof text, "%.1f %c%sB", bytes / unit, letter, base == 1024 ? "i" : "");
    }
    return ct__jv_copy_string(m, text, strlen(text));
}

FILTER(filter_urlencode) {
    UNUSED;
    static const char safe_signs[] = "_.-~/";
    ct_jv text = ct__jv_to_string(m, self);
    if (self.kind == JV_DICT || self.kind == JV_LIST || self.kind == JV_TUPLE)
        ct__jinja_fail(m, "urlencode: it needs a str, not a %s", ct__jv_type_name(self));
    ct_jinja_writer w = {.m = m};
    for (size_t i = 0; i < text.s->n; i++) {
        unsigned char c = (unsigned char)text.s->s[i];
        bool letter = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (letter || (c && strchr(safe_signs, c)))
            ct__jinja_write(&w, text.s->s + i, 1);
        else
            ct__jinja_writef(&w, "%%%02X", c);
    }
    return ct__jinja_writer_string(&w);
}

FILTER(filter_tojson) {
    UNUSED;
    ct_jv_json_style style = {.item = ", ", .item_n = 2, .key = ": ", .key_n = 2};
    ct_jv indent = arg[1];
    style.ascii = filter_is_true(m, arg[0]);
    style.sorted = filter_is_true(m, arg[3]);
    if (filter_is_given(indent) && indent.kind != JV_NONE) {
        ct_jinja_writer blanks = {.m = m};
        int64_t n = indent.kind == JV_STRING ? 0 : ct__jv_require_int(m, indent, "indent");
        ct__jinja_fill(&blanks, " ", 1, n);
        if (indent.kind != JV_STRING) indent = ct__jinja_writer_string(&blanks);
        style.indent = indent.s->s;
        style.indent_n = indent.s->n;
        style.item_n = 1;
    }
    if (filter_is_given(arg[2]) && arg[2].kind != JV_NONE) {
        const ct_jv_list *two = ct__jv_items(m, arg[2]);
        if (two->n != 2) ct__jinja_fail(m, "tojson: separators are two");
        ct_jv item = ct__jv_require_string(m, two->v[0], "a separator");
        ct_jv key = ct__jv_require_string(m, two->v[1], "a separator");
        style = (ct_jv_json_style){item.s->s,    key.s->s,       item.s->n,   key.s->n,
                                   style.indent, style.indent_n, style.ascii, style.sorted};
    }
    ct_jinja_writer w = {.m = m};
    ct__jv_write_json(&w, self, &style, 0);
    return ct__jinja_writer_string(&w);
}

// ----------------------------------------------------------------------------------------- numbers

FILTER(filter_abs) {
    UNUSED;
    double f;
    if (!ct__jv_to_double(self, &f))
        ct__jinja_fail(m, "abs: a %s is no number", ct__jv_type_name(self));
    return signbit(f) ? ct__jv_negate(m, self) : self.kind == JV_BOOL ? ct__jv_int(self.b) : self;
}

static ct_jv filter_truncate_float(ct_jinja_machine *m, double f) {
    if (fabs(f) >= 0x1p63) ct__jinja_fail(m, "an integer needs more than 64 bits");
    return ct__jv_int((int64_t)f);
}

FILTER(filter_int) {
    UNUSED;
    ct_jv default_value = filter_is_given(arg[0]) ? arg[0] : ct__jv_int(0), number = self;
    double f;
    if (self.kind == JV_UNDEFINED) ct__jv_fail_undefined(m, self);
    if (self.kind == JV_STRING) {
        const int64_t base = filter_is_given(arg[1]) ? ct__jv_require_int(m, arg[1], "base") : 10;
        number =
            ct__jv_parse_int(m, self, base < 0 || base > 36 ? 1 : (int)base); // 1: no such base
        if (number.kind == JV_MISSING) number = ct__jv_parse_float(m, self);
    }
    if (!ct__jv_to_double(number, &f)) return default_value;
    if (number.kind != JV_FLOAT) return ct__jv_int(number.kind == JV_BOOL ? number.b : number.i);
    return isfinite(f) ? filter_truncate_float(m, f) : default_value;
}

FILTER(filter_float) {
    UNUSED;
    ct_jv number = self.kind == JV_STRING ? ct__jv_parse_float(m, self) : self;
    double f;
    if (self.kind == JV_UNDEFINED) ct__jv_fail_undefined(m, self);
    if (ct__jv_to_double(number, &f)) return ct__jv_float(f);
    return filter_is_given(arg[0]) ? arg[0] : ct__jv_float(0);
}

static ct_jv filter_round_int(ct_jinja_machine *m, int64_t i, int64_t digits) {
    enum { MAX_ZEROS = 18 }; // zeros of an int64_t
    const int64_t half = 5000000000000000000;
    if (digits >= 0) return ct__jv_int(i);
    if (digits == -MAX_ZEROS - 1 && (i > half || i < -half))
        ct__jinja_fail(m, "an integer needs more than 64 bits");
    if (digits < -MAX_ZEROS) return ct__jv_int(0);
    int64_t unit = 1, up;
    for (; digits < 0; digits++) unit *= 10;
    int64_t down = i / unit, rest = i % unit;
    if (rest < 0) rest += unit, down--;
    if (rest > unit / 2 || (rest == unit / 2 && down % 2)) down++;
    if (__builtin_mul_overflow(down, unit, &up))
        ct__jinja_fail(m, "an integer needs more than 64 bits");
    return ct__jv_int(up);
}

// To the nearest; a tie of the exact value rounds to even.
static double filter_round_float(double f, int64_t digits) {
    char text[512];
    if (!isfinite(f) || digits > 323) return f;
    if (digits >= 0) {
        snprintf(text, sizeof text, "%.*f", (int)digits, f);
        return strtod(text, NULL);
    }
    if (digits < -308) return copysign(0, f);
    snprintf(text, sizeof text, "%.0f", f); // all digits of the integer part
    double unit = pow(10, (double)-digits);
    return rint(f / unit) * unit;
}

FILTER(filter_round) {
    UNUSED;
    int64_t digits = filter_is_given(arg[0]) ? ct__jv_require_int(m, arg[0], "precision") : 0;
    bool common = !filter_is_given(arg[1]) || ct__jv_equals_cstring(arg[1], "common"),
         up = ct__jv_equals_cstring(arg[1], "ceil");
    double f;
    if (!common && !up && !ct__jv_equals_cstring(arg[1], "floor"))
        ct__jinja_fail(m, "round: the method is common, ceil or floor");
    if (self.kind == JV_UNDEFINED) ct__jv_fail_undefined(m, self);
    if (!ct__jv_to_double(self, &f))
        ct__jinja_fail(m, "round: a %s is no number", ct__jv_type_name(self));
    if (common && self.kind != JV_FLOAT)
        return filter_round_int(m, ct__jv_require_int(m, self, "a number"), digits);
    if (common) return ct__jv_float(filter_round_float(f, digits));
    double unit = pow(10, (double)digits);
    if (!isfinite(f * unit) || unit == 0)
        ct__jinja_fail(m, "round: a float has no digits at a precision of %" PRId64, digits);
    return ct__jv_float((up ? ceil(f * unit) : floor(f * unit)) / unit);
}

FILTER(filter_sum) {
    UNUSED;
    const ct_jv_list *items = ct__jv_items(m, self);
    ct_jv total = filter_is_given(arg[1]) ? arg[1] : ct__jv_int(0);
    if (total.kind == JV_STRING) ct__jinja_fail(m, "sum: strings are joined, not added");
    for (size_t i = 0; i < items->n; i++)
        total = ct__jv_binary(m, '+', total, filter_attribute(m, items->v[i], arg[0], (ct_jv){0}));
    return total;
}

static ct_jv filter_extreme(ct_jinja_machine *m, ct_jv self, const ct_jv *arg, int sign) {
    const ct_jv_list *items = ct__jv_items(m, self);
    if (!items->n) return ct__jv_undefined(m, "there is no least or greatest item of none");
    ct_jv best = items->v[0], best_key = filter_key(m, best, arg[1], arg[0]);
    for (size_t i = 1; i < items->n; i++) {
        ct_jv key = filter_key(m, items->v[i], arg[1], arg[0]);
        int order = sign * ct__jv_compare(m, key, best_key, sign > 0 ? ">" : "<");
        if (order <= 0 || order == 2) continue;
        best = items->v[i];
        best_key = key;
    }
    return best;
}

FILTER(filter_min) { return UNUSED, filter_extreme(m, self, arg, -1); }
FILTER(filter_max) { return UNUSED, filter_extreme(m, self, arg, 1); }

// ------------------------------------------------------------------------------------------- lists

FILTER(filter_length) { return UNUSED, ct__jv_int(ct__jv_length(m, self)); }
FILTER(filter_list) { return UNUSED, filter_copy_list(m, self, JV_LIST); }

FILTER(filter_first) {
    UNUSED;
    if (self.kind == JV_GENERATOR && self.list->at < self.list->n)
        return self.list->v[self.list->at++];
    const ct_jv_list *items = ct__jv_items(m, self);
    return items->n ? items->v[0] : ct__jv_undefined(m, "there is no first item of none");
}

FILTER(filter_last) {
    UNUSED;
    if (self.kind == JV_GENERATOR || self.kind == JV_UNDEFINED)
        ct__jinja_fail(m, "last: a %s cannot be walked from its end", ct__jv_type_name(self));
    const ct_jv_list *items = ct__jv_items(m, self);
    return items->n ? items->v[items->n - 1] : ct__jv_undefined(m, "there is no last item of none");
}

FILTER(filter_items) {
    UNUSED;
    if (self.kind == JV_UNDEFINED) return ct__jv_new_list(m, JV_GENERATOR, 0);
    if (self.kind != JV_DICT) ct__jinja_fail(m, "items: a %s has none", ct__jv_type_name(self));
    ct_jv pairs = ct__jv_new_list(m, JV_GENERATOR, self.dict->n);
    for (size_t i = 0; i < self.dict->n; i++)
        pairs.list->v[i] = ct__jv_pair(m, self.dict->keys[i], self.dict->values[i]);
    return pairs;
}

FILTER(filter_reverse) {
    UNUSED;
    ct_jv list = filter_copy_list(m, self, JV_GENERATOR);
    ct__jv_reverse(list.list);
    return self.kind == JV_STRING ? ct__jv_join(m, ct__jv_cstring(m, ""), list.list) : list;
}

// The sort key of several attributes, "a,b.c", is a list of their keys.
static ct_jv filter_sort_key(ct_jinja_machine *m, ct_jv of, ct_jv paths, ct_jv case_sensitive) {
    ct_jv key = ct__jv_new_list(m, JV_LIST, 0);
    if (paths.kind != JV_STRING) {
        ct__jv_push(m, key.list, filter_key(m, of, paths, case_sensitive));
        return key;
    }
    for (size_t at = 0; at <= paths.s->n;) {
        size_t end = at;
        while (end < paths.s->n && paths.s->s[end] != ',') end++;
        ct_jv path = ct__jv_borrow_string(m, paths.s->s + at, end - at);
        ct__jv_push(m, key.list, filter_key(m, of, path, case_sensitive));
        at = end + 1;
    }
    return key;
}

FILTER(filter_sort) {
    UNUSED;
    ct_jv list = filter_copy_list(m, self, JV_LIST);
    ct_jv *keys = ct__jinja_alloc(m, list.list->n, sizeof *keys);
    for (size_t i = 0; i < list.list->n; i++)
        keys[i] = filter_sort_key(m, list.list->v[i], arg[2], arg[1]);
    ct__jv_sort(m, list.list->v, keys, list.list->n, filter_is_true(m, arg[0]));
    return list;
}

FILTER(filter_dictsort) {
    UNUSED;
    if (self.kind != JV_DICT)
        ct__jinja_fail(m, "dictsort: a %s is no dict", ct__jv_type_name(self));
    bool by_value = ct__jv_equals_cstring(arg[1], "value");
    if (filter_is_given(arg[1]) && !by_value && !ct__jv_equals_cstring(arg[1], "key"))
        ct__jinja_fail(m, "dictsort: it sorts by key or by value");
    const ct_jv_dict *d = self.dict;
    ct_jv list = ct__jv_new_list(m, JV_LIST, d->n), *keys = ct__jinja_alloc(m, d->n, sizeof *keys);
    for (size_t i = 0; i < d->n; i++) {
        list.list->v[i] = ct__jv_pair(m, d->keys[i], d->values[i]);
        keys[i] = filter_key(m, by_value ? d->values[i] : d->keys[i], (ct_jv){0}, arg[0]);
    }
    ct__jv_sort(m, list.list->v, keys, d->n, filter_is_true(m, arg[2]));
    return list;
}

FILTER(filter_unique) {
    UNUSED;
    const ct_jv_list *items = ct__jv_items(m, self);
    ct_jv out = ct__jv_new_list(m, JV_GENERATOR, 0), seen = ct__jv_new_dict(m);
    for (size_t i = 0; i < items->n; i++) {
        ct_jv key = filter_key(m, items->v[i], arg[1], arg[0]);
        if (ct__jv_dict_find(m, seen.dict, key)) continue;
        ct__jv_dict_set(m, seen.dict, key, ct__jv_none());
        ct__jv_push(m, out.list, items->v[i]);
    }
    return out;
}

FILTER(filter_groupby) {
    UNUSED;
    ct_jv list = filter_copy_list(m, self, JV_LIST), out = ct__jv_new_list(m, JV_LIST, 0);
    size_t n = list.list->n;
    ct_jv *items = list.list->v, *keys = ct__jinja_alloc(m, n, sizeof *keys);
    for (size_t i = 0; i < n; i++) {
        keys[i] = filter_attribute(m, items[i], arg[0], arg[1]);
        if (!filter_is_true(m, arg[2])) keys[i] = filter_fold_case(m, keys[i]);
    }
    ct__jv_sort(m, items, keys, n, false);
    for (size_t i = 0; i < n;) {
        ct_jv group = ct__jv_new_list(m, JV_LIST, 0);
        size_t first = i;
        for (; i < n && ct__jv_equal(m, keys[i], keys[first]); i++)
            ct__jv_push(m, group.list, items[i]);
        if (i == first) i++; // NaN is not equal to itself
        ct_jv pair = ct__jv_pair(m, filter_attribute(m, items[first], arg[0], arg[1]), group);
        pair.list->group = true;
        ct__jv_push(m, out.list, pair);
    }
    return out;
}

FILTER(filter_batch) {
    UNUSED;
    const ct_jv_list *items = ct__jv_items(m, self);
    int64_t size = ct__jv_require_int(m, arg[0], "linecount");
    ct_jv out = ct__jv_new_list(m, JV_GENERATOR, 0), now = ct__jv_new_list(m, JV_LIST, 0);
    for (size_t i = 0; i < items->n; i++) {
        if ((int64_t)now.list->n == size) {
            ct__jv_push(m, out.list, now);
            now = ct__jv_new_list(m, JV_LIST, 0);
        }
        ct__jv_push(m, now.list, items->v[i]);
    }
    if (!now.list->n) return out;
    bool fill = filter_is_given(arg[1]) && arg[1].kind != JV_NONE;
    const size_t n = now.list->n;
    if (fill && (int64_t)n < size) {
        ct_jv full = ct__jv_new_list(m, JV_LIST, (size_t)size);
        ct__jinja_count_steps(m, 16 * (size_t)size);
        for (size_t i = 0; i < (size_t)size; i++) full.list->v[i] = i < n ? now.list->v[i] : arg[1];
        now = full;
    }
    ct__jv_push(m, out.list, now);
    return out;
}

FILTER(filter_slice) {
    UNUSED;
    const ct_jv_list *items = ct__jv_items(m, self);
    int64_t slices = ct__jv_require_int(m, arg[0], "slices"), n = (int64_t)items->n;
    if (slices == 0) ct__jinja_fail(m, "slice: division of %" PRId64 " by zero", n);
    ct_jv out = ct__jv_new_list(m, JV_GENERATOR, slices > 0 ? (size_t)slices : 0);
    bool fill = filter_is_given(arg[1]) && arg[1].kind != JV_NONE;
    for (int64_t i = 0, at = 0; i < slices; i++) {
        bool longer = i < n % slices;
        ct_jv now = ct__jv_new_list(m, JV_LIST, 0);
        for (int64_t k = 0; k < n / slices + longer; k++) ct__jv_push(m, now.list, items->v[at++]);
        if (fill && !longer) ct__jv_push(m, now.list, arg[1]);
        out.list->v[i] = now;
    }
    return out;
}

// -------------------------------------------------------------------- filters applied to each item

static ct_jv_args filter_args_after(const ct_jv_args *all, size_t used) {
    ct_jv_args rest = *all;
    rest.v += used;
    rest.n -= used;
    return rest;
}

FILTER(filter_map) {
    UNUSED;
    ct_jv out = ct__jv_new_list(m, JV_GENERATOR, 0), path = {0}, missing = {0};
    if (!ct__jv_truth(m, self)) return out;
    for (size_t i = 0; i < all->named_n && !all->n; i++) {
        if (ct__jv_equals_cstring(all->names[i], "attribute")) path = all->named[i];
        if (ct__jv_equals_cstring(all->names[i], "default")) missing = all->named[i];
    }
    size_t known = (size_t)filter_is_given(path) + filter_is_given(missing);
    if (filter_is_given(path) && all->named_n > known)
        ct__jinja_fail(m, "map: it has no such argument");
    if (!filter_is_given(path) && (!all->n || all->v[0].kind != JV_STRING))
        ct__jinja_fail(m, "map: it needs a filter or an attribute");
    ct_jv_args rest = {0};
    if (all->n) rest = filter_args_after(all, 1);
    const ct_jv_list *items = ct__jv_items(m, self);
    for (size_t i = 0; i < items->n; i++)
        ct__jv_push(m, out.list,
                    filter_is_given(path) ? filter_attribute(m, items->v[i], path, missing)
                                          : ct__jv_call_filter(m, all->v[0], items->v[i], &rest));
    return out;
}

// The items for which a test gives `wanted`; by_attribute: the test of an attribute of theirs.
static ct_jv filter_select(ct_jinja_machine *m, ct_jv self, const ct_jv_args *all,
                           bool by_attribute, bool wanted) {
    ct_jv out = ct__jv_new_list(m, JV_GENERATOR, 0), path = {0};
    size_t used = by_attribute;
    if (!ct__jv_truth(m, self)) return out;
    if (all->n < used) ct__jinja_fail(m, "the name of an attribute is missing");
    if (by_attribute) path = all->v[0];
    const ct_jv_list *items = ct__jv_items(m, self);
    for (size_t i = 0; i < items->n; i++) {
        ct_jv value = filter_attribute(m, items->v[i], path, (ct_jv){0});
        bool holds;
        if (all->n > used) {
            ct_jv_args rest = filter_args_after(all, used + 1);
            holds = ct__jv_call_test(m, all->v[used], value, &rest);
        } else {
            holds = ct__jv_truth(m, value);
        }
        if (holds == wanted) ct__jv_push(m, out.list, items->v[i]);
    }
    return out;
}

FILTER(filter_select_items) { return UNUSED, filter_select(m, self, all, false, true); }
FILTER(filter_reject) { return UNUSED, filter_select(m, self, all, false, false); }
FILTER(filter_selectattr) { return UNUSED, filter_select(m, self, all, true, true); }
FILTER(filter_rejectattr) { return UNUSED, filter_select(m, self, all, true, false); }

// ----------------------------------------------------------------------------------- other filters

FILTER(filter_default) {
    UNUSED;
    bool missing =
        self.kind == JV_UNDEFINED || (filter_is_true(m, arg[1]) && !ct__jv_truth(m, self));
    return !missing ? self : filter_is_given(arg[0]) ? arg[0] : ct__jv_cstring(m, "");
}

FILTER(filter_attr) { // ignores the keys of a dict
    UNUSED;
    ct_jv name = ct__jv_require_string(m, arg[0], "an attribute's name");
    if (self.kind != JV_DICT || ct__jv_find_method(self, name))
        return ct__jv_attribute(m, self, name);
    return ct__jv_undefined_member(m, self, name);
}

static const ct_jv_function jinja_filters[] = {
    {"abs", "", 0, filter_abs},
    {"attr", "name", 1, filter_attr},
    {"batch", "linecount fill_with", 1, filter_batch},
    {"capitalize", "", 0, filter_capitalize},
    {"center", "width", 0, filter_center},
    {"count", "", 0, filter_length},
    {"d", "default_value boolean", 0, filter_default},
    {"default", "default_value boolean", 0, filter_default},
    {"dictsort", "case_sensitive by reverse", 0, filter_dictsort},
    {"e", "", 0, filter_escape},
    {"escape", "", 0, filter_escape},
    {"filesizeformat", "binary", 0, filter_filesizeformat},
    {"first", "", 0, filter_first},
    {"float", "default", 0, filter_float},
    {"forceescape", "", 0, filter_forceescape},
    {"format", NULL, 0, filter_format},
    {"groupby", "attribute default case_sensitive", 1, filter_groupby},
    {"indent", "width first blank", 0, filter_indent},
    {"int", "default base", 0, filter_int},
    {"items", "", 0, filter_items},
    {"join", "d attribute", 0, filter_join},
    {"last", "", 0, filter_last},
    {"length", "", 0, filter_length},
    {"list", "", 0, filter_list},
    {"lower", "", 0, filter_lower},
    {"map", NULL, 0, filter_map},
    {"max", "case_sensitive attribute", 0, filter_max},
    {"min", "case_sensitive attribute", 0, filter_min},
    {"reject", NULL, 0, filter_reject},
    {"rejectattr", NULL, 0, filter_rejectattr},
    {"replace", "old new count", 2, filter_replace},
    {"reverse", "", 0, filter_reverse},
    {"round", "precision method", 0, filter_round},
    {"safe", "", 0, filter_safe},
    {"select", NULL, 0, filter_select_items},
    {"selectattr", NULL, 0, filter_selectattr},
    {"slice", "slices fill_with", 1, filter_slice},
    {"sort", "reverse case_sensitive attribute", 0, filter_sort},
    {"string", "", 0, filter_string},
    {"sum", "attribute start", 0, filter_sum},
    {"title", "", 0, filter_title},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, filter_tojson},
    {"trim", "chars", 0, filter_trim},
    {"truncate", "length killwords end leeway", 0, filter_truncate},
    {"unique", "case_sensitive attribute", 0, filter_unique},
    {"upper", "", 0, filter_upper},
    {"urlencode", "", 0, filter_urlencode},
    {"wordcount", "", 0, filter_wordcount},
    {0},
};

const ct_jv_function *ct__jv_find_filter(ct_jv name) {
    return ct__jv_find_function(jinja_filters, name);
}

ct_jv ct__jv_call_filter(ct_jinja_machine *m, ct_jv name, ct_jv self, const ct_jv_args *args) {
    const ct_jv_function *filter = ct__jv_find_filter(name);
    if (!filter) ct__jinja_fail(m, "there is no filter %s", ct__jinja_printable(m, name));
    ct__jinja_enter(m);
    ct_jv result = ct__jv_invoke(m, filter, self, args);
    ct__jinja_leave(m);
    return result;
}
