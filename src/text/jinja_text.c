// Values to text, and text to numbers: str(), repr(), json.dumps(), the % operator of strings and
// str.format.
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/utf8.h"
#include "text/jinja_value.h"

// -------------------------------------------------------------------------------------- the writer

static void jinja_writer_reserve(ct_jinja_writer *w, size_t n) {
    ct__jinja_count_steps(w->m, n);
    if (w->max_bytes && n > w->max_bytes - w->n)
        ct__jinja_fail_as(w->m, CT_E_LIMIT, "the template writes more than %zu MB",
                          w->max_bytes / 1000000);
    if (w->cap - w->n < n) {
        size_t cap = 2 * w->cap + n + 32;
        char *bigger = ct__jinja_alloc(w->m, cap, 1);
        if (w->n) memcpy(bigger, w->s, w->n);
        w->s = bigger;
        w->cap = cap;
    }
}

void ct__jinja_write(ct_jinja_writer *w, const char *s, size_t n) {
    jinja_writer_reserve(w, n);
    if (n) memcpy(w->s + w->n, s, n);
    w->n += n;
}

void ct__jinja_fill(ct_jinja_writer *w, const char *s, size_t n, int64_t times) {
    size_t bytes;
    if (times <= 0) return;
    if (__builtin_mul_overflow((size_t)times, n, &bytes) || bytes > w->m->limits.memory)
        ct__jinja_alloc(w->m, (size_t)times, n); // fails: too large
    jinja_writer_reserve(w, bytes);
    for (int64_t i = 0; i < times; i++, w->n += n) memcpy(w->s + w->n, s, n);
}

void ct__jinja_write_cstring(ct_jinja_writer *w, const char *s) {
    ct__jinja_write(w, s, strlen(s));
}

void ct__jinja_writef(ct_jinja_writer *w, const char *format, ...) {
    char text[512]; // a double of 308 digits, and 100 after the point
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof text) ct__jinja_fail(w->m, "a number is too long");
    ct__jinja_write(w, text, (size_t)n);
}

void ct__jinja_write_char(ct_jinja_writer *w, uint32_t cp) {
    char bytes[4];
    ct__jinja_write(w, bytes, ct__utf8_put(cp, bytes));
}

ct_jv ct__jinja_writer_string(ct_jinja_writer *w) {
    return ct__jv_borrow_string(w->m, w->s ? w->s : "", w->n);
}

// The shortest digits that parse to the same double, in Python's format.
void ct__jv_write_float(ct_jinja_writer *w, double f) {
    char digits[40];
    if (!isfinite(f)) {
        ct__jinja_write_cstring(w, isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    int precision = 0;
    do snprintf(digits, sizeof digits, "%.*e", precision, f);
    while (strtod(digits, NULL) != f && ++precision < 17);
    int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent < -4 || exponent >= 16)
        ct__jinja_write_cstring(w, digits);
    else if (precision <= exponent)
        ct__jinja_writef(w, "%.0f.0", f);
    else
        ct__jinja_writef(w, "%.*f", precision - exponent, f);
}

// -------------------------------------------------------------------------------------------- repr

static void repr_write_string(ct_jinja_writer *w, const ct_jv_string *s) {
    bool single = memchr(s->s, '\'', s->n) != NULL, both = memchr(s->s, '"', s->n) != NULL;
    char quote = single && !both ? '"' : '\'';
    if (s->markup) ct__jinja_write_cstring(w, "Markup(");
    ct__jinja_write(w, &quote, 1);
    for (size_t at = 0; at < s->n;) {
        size_t from = at;
        uint32_t cp = ct__jv_next_char(s, &at);
        if (cp == (unsigned char)quote || cp == '\\')
            ct__jinja_writef(w, "\\%c", (char)cp);
        else if (cp == '\n' || cp == '\r' || cp == '\t')
            ct__jinja_write_cstring(w, cp == '\n' ? "\\n" : cp == '\r' ? "\\r" : "\\t");
        else if (ct__uc_class(cp) & CT_UC_PRINTABLE)
            ct__jinja_write(w, s->s + from, at - from);
        else if (cp < 0x100)
            ct__jinja_writef(w, "\\x%02" PRIx32, cp);
        else
            ct__jinja_writef(w, cp < 0x10000 ? "\\u%04" PRIx32 : "\\U%08" PRIx32, cp);
    }
    ct__jinja_write(w, &quote, 1);
    if (s->markup) ct__jinja_write_cstring(w, ")");
}

static void repr_write_items(ct_jinja_writer *w, const ct_jv_list *list, const char *open,
                             const char *close) {
    ct__jinja_write_cstring(w, open);
    for (size_t i = 0; i < list->n; i++) {
        if (i) ct__jinja_write_cstring(w, ", ");
        ct__jv_repr(w, list->v[i]);
    }
    ct__jinja_write_cstring(w, close);
}

static void repr_write_dict(ct_jinja_writer *w, const ct_jv_dict *dict) {
    ct__jinja_write_cstring(w, "{");
    for (size_t i = 0; i < dict->n; i++) {
        if (i) ct__jinja_write_cstring(w, ", ");
        ct__jv_repr(w, dict->keys[i]);
        ct__jinja_write_cstring(w, ": ");
        ct__jv_repr(w, dict->values[i]);
    }
    ct__jinja_write_cstring(w, "}");
}

static void repr_write_range(ct_jinja_writer *w, const ct_jv_list *list) {
    ct__jinja_writef(w, "range(%" PRId64 ", %" PRId64, list->range[0], list->range[1]);
    if (list->range[2] != 1) ct__jinja_writef(w, ", %" PRId64, list->range[2]);
    ct__jinja_write_cstring(w, ")");
}

void ct__jv_repr(ct_jinja_writer *w, ct_jv v) {
    ct__jinja_enter(w->m);
    switch (v.kind) {
    case JV_MISSING:
    case JV_UNDEFINED: ct__jinja_write_cstring(w, "Undefined"); break;
    case JV_NONE: ct__jinja_write_cstring(w, "None"); break;
    case JV_BOOL: ct__jinja_write_cstring(w, v.b ? "True" : "False"); break;
    case JV_INT: ct__jinja_writef(w, "%" PRId64, v.i); break;
    case JV_FLOAT: ct__jv_write_float(w, v.f); break;
    case JV_STRING: repr_write_string(w, v.s); break;
    case JV_LIST: repr_write_items(w, v.list, "[", "]"); break;
    case JV_TUPLE: repr_write_items(w, v.list, "(", v.list->n == 1 ? ",)" : ")"); break;
    case JV_RANGE: repr_write_range(w, v.list); break;
    case JV_VIEW:
        ct__jinja_writef(w, "dict_%s(", v.list->view);
        repr_write_items(w, v.list, "[", "])");
        break;
    case JV_DICT: repr_write_dict(w, v.dict); break;
    case JV_NAMESPACE:
        ct__jinja_write_cstring(w, "<Namespace ");
        repr_write_dict(w, v.dict);
        ct__jinja_write_cstring(w, ">");
        break;
    case JV_LOOP:
        ct__jinja_writef(w, "<LoopContext %zu/%zu>", v.loop->at + 1, v.loop->items->n);
        break;
    default: ct__jinja_writef(w, "<%s>", ct__jv_type_name(v));
    }
    ct__jinja_leave(w->m);
}

void ct__jv_write(ct_jinja_writer *w, ct_jv v) {
    if (v.kind == JV_STRING)
        ct__jinja_write(w, v.s->s, v.s->n);
    else if (v.kind != JV_UNDEFINED)
        ct__jv_repr(w, v);
}

ct_jv ct__jv_to_string(ct_jinja_machine *m, ct_jv v) {
    if (v.kind == JV_STRING) return v;
    ct_jinja_writer w = {.m = m};
    ct__jv_write(&w, v);
    return ct__jinja_writer_string(&w);
}

ct_jv ct__jv_require_string(ct_jinja_machine *m, ct_jv v, const char *what) {
    if (v.kind == JV_UNDEFINED) ct__jv_fail_undefined(m, v);
    if (v.kind != JV_STRING)
        ct__jinja_fail(m, "%s must be a str, not a %s", what, ct__jv_type_name(v));
    return v;
}

int64_t ct__jv_require_int(ct_jinja_machine *m, ct_jv v, const char *what) {
    if (v.kind == JV_UNDEFINED) ct__jv_fail_undefined(m, v);
    if (v.kind != JV_INT && v.kind != JV_BOOL)
        ct__jinja_fail(m, "%s must be an int, not a %s", what, ct__jv_type_name(v));
    return v.kind == JV_BOOL ? v.b : v.i;
}

static const char *const html_entities[] = {
    ['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&#34;", ['\''] = "&#39;"};

ct_jv ct__jv_escape(ct_jinja_machine *m, ct_jv v, bool force) {
    if (v.kind == JV_STRING && v.s->markup && !force) return v;
    ct_jv text = ct__jv_to_string(m, v);
    ct_jinja_writer w = {.m = m};
    for (size_t i = 0; i < text.s->n; i++) {
        unsigned char c = (unsigned char)text.s->s[i];
        if (c < sizeof html_entities / sizeof *html_entities && html_entities[c])
            ct__jinja_write_cstring(&w, html_entities[c]);
        else
            ct__jinja_write(&w, text.s->s + i, 1);
    }
    text = ct__jinja_writer_string(&w);
    text.s->markup = true;
    return text;
}

// -------------------------------------------------------------------------------------------- JSON

static void json_write_string(ct_jinja_writer *w, const ct_jv_string *s, bool ascii) {
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    ct__jinja_write_cstring(w, "\"");
    for (size_t at = 0; at < s->n;) {
        size_t start = at;
        uint32_t cp = ct__jv_next_char(s, &at);
        const char *found = cp && cp < 128 ? strchr(from, (int)cp) : NULL;
        if (found)
            ct__jinja_writef(w, "\\%c", to[found - from]);
        else if (cp >= 0x10000 && ascii)
            ct__jinja_writef(w, "\\u%04" PRIx32 "\\u%04" PRIx32, 0xd7c0 + (cp >> 10),
                             0xdc00 + (cp & 1023));
        else if (cp < 0x20 || (cp > 126 && ascii && cp != 127))
            ct__jinja_writef(w, "\\u%04" PRIx32, cp);
        else
            ct__jinja_write(w, s->s + start, at - start);
    }
    ct__jinja_write_cstring(w, "\"");
}

static void json_write_float(ct_jinja_writer *w, double f) {
    if (isfinite(f))
        ct__jv_write_float(w, f);
    else
        ct__jinja_write_cstring(w, isnan(f) ? "NaN" : f < 0 ? "-Infinity" : "Infinity");
}

// A key as a string; only scalars can be keys.
static ct_jv json_key_string(ct_jinja_machine *m, ct_jv key) {
    ct_jinja_writer w = {.m = m};
    if (key.kind == JV_STRING) return key;
    if (key.kind == JV_NONE)
        ct__jinja_write_cstring(&w, "null");
    else if (key.kind == JV_BOOL)
        ct__jinja_write_cstring(&w, key.b ? "true" : "false");
    else if (key.kind == JV_FLOAT)
        json_write_float(&w, key.f);
    else if (key.kind == JV_INT)
        ct__jv_repr(&w, key);
    else
        ct__jinja_fail(m, "tojson: a %s cannot be a key", ct__jv_type_name(key));
    return ct__jinja_writer_string(&w);
}

static void json_write_line_end(ct_jinja_writer *w, const ct_jv_json_style *style, int depth) {
    if (!style->indent) return;
    ct__jinja_write_cstring(w, "\n");
    for (int i = 0; i < depth; i++) ct__jinja_write(w, style->indent, style->indent_n);
}

static void json_write_dict(ct_jinja_writer *w, const ct_jv_dict *dict,
                            const ct_jv_json_style *style, int depth) {
    ct_jv *order = ct__jinja_alloc(w->m, dict->n, 2 * sizeof *order), *keys = order + dict->n;
    for (size_t i = 0; i < dict->n; i++) {
        order[i] = ct__jv_int((int64_t)i);
        keys[i] = dict->keys[i];
    }
    if (style->sorted) ct__jv_sort(w->m, order, keys, dict->n, false);
    ct__jinja_write_cstring(w, "{");
    for (size_t i = 0; i < dict->n; i++) {
        if (i) ct__jinja_write(w, style->item, style->item_n);
        json_write_line_end(w, style, depth + 1);
        json_write_string(w, json_key_string(w->m, keys[i]).s, style->ascii);
        ct__jinja_write(w, style->key, style->key_n);
        ct__jv_write_json(w, dict->values[order[i].i], style, depth + 1);
    }
    if (dict->n) json_write_line_end(w, style, depth);
    ct__jinja_write_cstring(w, "}");
}

void ct__jv_write_json(ct_jinja_writer *w, ct_jv v, const ct_jv_json_style *style, int depth) {
    ct__jinja_enter(w->m);
    switch (v.kind) {
    case JV_NONE: ct__jinja_write_cstring(w, "null"); break;
    case JV_BOOL: ct__jinja_write_cstring(w, v.b ? "true" : "false"); break;
    case JV_INT: ct__jv_repr(w, v); break;
    case JV_FLOAT: json_write_float(w, v.f); break;
    case JV_STRING: json_write_string(w, v.s, style->ascii); break;
    case JV_DICT: json_write_dict(w, v.dict, style, depth); break;
    case JV_LIST:
    case JV_TUPLE:
        ct__jinja_write_cstring(w, "[");
        for (size_t i = 0; i < v.list->n; i++) {
            if (i) ct__jinja_write(w, style->item, style->item_n);
            json_write_line_end(w, style, depth + 1);
            ct__jv_write_json(w, v.list->v[i], style, depth + 1);
        }
        if (v.list->n) json_write_line_end(w, style, depth);
        ct__jinja_write_cstring(w, "]");
        break;
    default: ct__jinja_fail(w->m, "tojson: a %s has no JSON", ct__jv_type_name(v));
    }
    ct__jinja_leave(w->m);
}

// --------------------------------------------------------------------------------- text to numbers

// The digits without the whitespace around and without the underscores, which may occur between two
// digits; NULL: another character.
static const char *number_clean_digits(ct_jinja_machine *m, ct_jv text) {
    text = ct__jv_strip(m, text, (ct_jv){0}, true, true);
    const char *s = text.s->s;
    char *out = ct__jinja_alloc(m, text.s->n + 1, 1), *to = out;
    for (size_t i = 0; i < text.s->n; i++) {
        bool inner = i > 0 && i + 1 < text.s->n && isalnum((unsigned char)s[i - 1]) &&
                     isalnum((unsigned char)s[i + 1]);
        if (s[i] == '_' && inner) continue;
        if (!isascii(s[i]) || !(isalnum((unsigned char)s[i]) || strchr("+-.", s[i])) || !s[i])
            return NULL;
        *to++ = s[i];
    }
    return out;
}

ct_jv ct__jv_parse_int(ct_jinja_machine *m, ct_jv text, int base) {
    const char *s = number_clean_digits(m, text);
    if (!s) return (ct_jv){0};
    bool minus = *s == '-';
    if (*s == '-' || *s == '+') s++;
    int prefix = *s == '0' && strchr("xX", s[1]) && s[1]   ? 16
                 : *s == '0' && strchr("oO", s[1]) && s[1] ? 8
                 : *s == '0' && strchr("bB", s[1]) && s[1] ? 2
                                                           : 0;
    if (prefix && (base == prefix || base == 0)) s += 2, base = prefix;
    bool zeros = base == 0 && *s == '0' && s[strspn(s, "0")]; // 012 is no valid literal
    if (base == 0) base = 10;
    if (!*s || zeros || base < 2 || base > 36) return (ct_jv){0};
    int64_t value = 0;
    bool over = false;
    for (; *s; s++) {
        int digit = isdigit((unsigned char)*s)   ? *s - '0'
                    : isalpha((unsigned char)*s) ? tolower((unsigned char)*s) - 'a' + 10
                                                 : 99;
        if (digit >= base) return (ct_jv){0};
        over |= __builtin_mul_overflow(value, base, &value);
        over |= minus ? __builtin_sub_overflow(value, digit, &value)
                      : __builtin_add_overflow(value, digit, &value);
    }
    if (over)
        ct__jinja_fail(m, "an integer needs more than 64 bits: %s", ct__jinja_printable(m, text));
    return ct__jv_int(value);
}

ct_jv ct__jv_parse_float(ct_jinja_machine *m, ct_jv text) {
    static const char *const words[] = {"inf", "infinity", "nan"};
    const char *s = number_clean_digits(m, text);
    if (!s) return (ct_jv){0};
    double sign = *s == '-' ? -1 : 1;
    const char *digits = s + (*s == '-' || *s == '+');
    for (int i = 0; i < 3; i++)
        if (strcasecmp(digits, words[i]) == 0) return ct__jv_float(sign * (i < 2 ? INFINITY : NAN));
    if (!(isdigit((unsigned char)*digits) || *digits == '.') ||
        strspn(digits, "0123456789+-.eE") != strlen(digits))
        return (ct_jv){0};
    char *end;
    double f = strtod(digits, &end);
    return *end ? (ct_jv){0} : ct__jv_float(sign * f);
}

// ------------------------------------------------------------------------------- number formatting

// One field of either kind of format.
typedef struct format_field {
    uint32_t fill;
    char align, sign; // '<' '>' '^' '=', 0: the type's default; '+' ' ' 0
    bool alternate, zero, comma;
    char group;               // thousands separator: ',' or '_'
    int64_t width, precision; // -1: none
    char type;
} format_field;

static void format_write_padded(ct_jinja_writer *w, const format_field *f, ct_jv text, size_t sign,
                                char align) {
    int64_t n = ct__jv_count_chars(w->m, text.s), gap = f->width > n ? f->width - n : 0;
    int64_t left = align == '<' ? 0 : align == '^' ? gap / 2 : gap;
    if (f->align) align = f->align, left = align == '<' ? 0 : align == '^' ? gap / 2 : gap;
    if (align != '=') sign = 0;
    if (gap > 1 << 24) ct__jinja_fail(w->m, "a field is %" PRId64 " characters wide", f->width);
    char fill[4];
    const size_t fill_n = ct__utf8_put(f->fill, fill);
    ct__jinja_write(w, text.s->s, sign);
    ct__jinja_fill(w, fill, fill_n, left);
    ct__jinja_write(w, text.s->s + sign, text.s->n - sign);
    ct__jinja_fill(w, fill, fill_n, gap - left);
}

static const char *format_sign(const format_field *f, bool minus) {
    return minus ? "-" : f->sign == '+' ? "+" : f->sign == ' ' ? " " : "";
}

// Writes digits in groups, counted from the point (or the end) to the left.
static void format_write_grouped(ct_jinja_writer *w, const char *digits, size_t n, char group,
                                 size_t by) {
    for (size_t i = 0; i < n; i++) {
        ct__jinja_write(w, digits + i, 1);
        if (group && (n - i - 1) % by == 0 && i + 1 < n) ct__jinja_write(w, &group, 1);
    }
}

static void format_write_int(ct_jinja_writer *w, int64_t value, const format_field *f) {
    char digits[72];
    size_t n = 0, by = strchr("xXob", f->type) && f->type ? 4 : 3;
    uint64_t u = value < 0 ? -(uint64_t)value : (uint64_t)value;
    unsigned base = f->type == 'b' ? 2 : f->type == 'o' ? 8 : by == 4 ? 16 : 10;
    const char *alphabet = f->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    do digits[sizeof digits - ++n] = alphabet[u % base];
    while (u /= base);
    ct__jinja_write_cstring(w, format_sign(f, value < 0));
    if (f->alternate && base != 10) ct__jinja_writef(w, "0%c", f->type);
    ct__jinja_fill(w, "0", 1, f->precision - (int64_t)n);
    format_write_grouped(w, digits + sizeof digits - n, n, f->group, by);
}

static void format_write_float(ct_jinja_writer *w, double value, const format_field *f) {
    bool minus = signbit(value) && !isnan(value);
    ct__jinja_write_cstring(w, format_sign(f, minus));
    double positive = fabs(value);
    if (!isfinite(value)) {
        bool upper = f->type && isupper((unsigned char)f->type);
        ct__jinja_write_cstring(w,
                                isnan(value) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf"));
        if (f->type == '%') ct__jinja_write_cstring(w, "%");
        return;
    }
    ct_jinja_writer digits = {.m = w->m};
    if (f->precision > 100)
        ct__jinja_fail(w->m, "a float has %" PRId64 " digits in a format, at most 100 are written",
                       f->precision);
    int precision = f->precision < 0 ? 6 : (int)f->precision;
    switch (f->type) {
    case 'e':
        ct__jinja_writef(&digits, f->alternate ? "%#.*e" : "%.*e", precision, positive);
        break;
    case 'E':
        ct__jinja_writef(&digits, f->alternate ? "%#.*E" : "%.*E", precision, positive);
        break;
    case 'g':
        ct__jinja_writef(&digits, f->alternate ? "%#.*g" : "%.*g", precision, positive);
        break;
    case 'G':
        ct__jinja_writef(&digits, f->alternate ? "%#.*G" : "%.*G", precision, positive);
        break;
    case '%': ct__jinja_writef(&digits, "%.*f%%", precision, 100 * positive); break;
    case 'f':
    case 'F':
        ct__jinja_writef(&digits, f->alternate ? "%#.*f" : "%.*f", precision, positive);
        break;
    default: ct__jv_write_float(&digits, positive);
    }
    size_t n = 0;
    while (n < digits.n && isdigit((unsigned char)digits.s[n])) n++;
    format_write_grouped(w, digits.s, n, f->group, 3);
    ct__jinja_write(w, digits.s + n, digits.n - n);
}

static void format_write_number(ct_jinja_writer *w, ct_jv v, const format_field *f) {
    ct_jinja_writer text = {.m = w->m};
    double d;
    bool real = f->type && strchr("eEfFgG%", f->type);
    if (v.kind == JV_FLOAT || real) {
        if (!ct__jv_to_double(v, &d))
            ct__jinja_fail(w->m, "a %s is no number", ct__jv_type_name(v));
        format_write_float(&text, d, f);
    } else {
        format_write_int(&text, ct__jv_require_int(w->m, v, "what a number's place is given"), f);
    }
    size_t sign = text.n && strchr("+- ", text.s[0]) ? 1 : 0;
    if (f->alternate && f->type && strchr("xXob", f->type)) sign += 2;
    format_write_padded(w, f, ct__jinja_writer_string(&text), sign, f->zero ? '=' : '>');
}

static void format_write_string(ct_jinja_writer *w, ct_jv text, const format_field *f, char align) {
    if (f->precision >= 0) text = ct__jv_substring(w->m, text, 0, f->precision);
    format_write_padded(w, f, text, 0, align);
}

// A number of a format; -1: none.
static int64_t format_parse_number(ct_jinja_machine *m, const char *s, size_t n, size_t *at) {
    int64_t value = -1;
    for (; *at < n && isdigit((unsigned char)s[*at]); ++*at) {
        value = (value < 0 ? 0 : value) * 10 + (s[*at] - '0');
        if (value > 1 << 24) ct__jinja_fail(m, "a number of a format is too large");
    }
    return value;
}

// ----------------------------------------------------------------------- the % operator of strings

typedef struct percent_values {
    ct_jv all;
    size_t at;
    bool several, named; // a tuple; a value was read by name
} percent_values;

static ct_jv percent_next_value(ct_jinja_machine *m, percent_values *values) {
    if (values->several ? values->at < values->all.list->n : values->at == 0) {
        values->at++;
        return values->several ? values->all.list->v[values->at - 1] : values->all;
    }
    ct__jinja_fail(m, "%%: the format needs more values than are given");
}

static ct_jv percent_value_by_name(ct_jinja_machine *m, const ct_jv_string *s, size_t *at,
                                   percent_values *values) {
    size_t start = ++*at;
    while (*at < s->n && s->s[*at] != ')') ++*at;
    if (*at == s->n || values->all.kind != JV_DICT)
        ct__jinja_fail(m, "%%: a format of names needs a dict");
    ct_jv *found =
        ct__jv_dict_find(m, values->all.dict, ct__jv_copy_string(m, s->s + start, (*at)++ - start));
    if (!found) ct__jinja_fail(m, "%%: the dict lacks a name of the format");
    values->named = true;
    return *found;
}

static void percent_write_field(ct_jinja_writer *w, ct_jv v, format_field *f) {
    double d;
    ct_jinja_writer repr = {.m = w->m};
    switch (f->type) {
    case 's': format_write_string(w, ct__jv_to_string(w->m, v), f, '>'); break;
    case 'r':
    case 'a':
        ct__jv_repr(&repr, v);
        format_write_string(w, ct__jinja_writer_string(&repr), f, '>');
        break;
    case 'c':
        if (v.kind == JV_STRING && ct__jv_count_chars(w->m, v.s) == 1) {
            format_write_string(w, v, f, '>');
            break;
        }
        int64_t cp = ct__jv_require_int(w->m, v, "the value of %c");
        if (cp < 0 || cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
            ct__jinja_fail(w->m, "%%c: %" PRId64 " is no character", cp);
        ct__jinja_write_char(&repr, (uint32_t)cp);
        format_write_string(w, ct__jinja_writer_string(&repr), f, '>');
        break;
    case 'd':
    case 'i':
    case 'u':
        if (v.kind == JV_FLOAT && isfinite(v.f) && fabs(v.f) < 0x1p63) v = ct__jv_int((int64_t)v.f);
        f->type = 'd';
        format_write_number(w, v, f);
        break;
    case 'x':
    case 'X':
    case 'o': format_write_number(w, v, f); break;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        if (!ct__jv_to_double(v, &d))
            ct__jinja_fail(w->m, "a %s is no number", ct__jv_type_name(v));
        format_write_number(w, ct__jv_float(d), f);
        break;
    default: ct__jinja_fail(w->m, "%%: the format has an unknown letter");
    }
}

ct_jv ct__jv_format_percent(ct_jinja_machine *m, ct_jv format, ct_jv values) {
    const ct_jv_string *s = format.s;
    ct_jinja_writer w = {.m = m};
    percent_values from = {.all = values, .several = values.kind == JV_TUPLE};
    for (size_t at = 0; at < s->n;) {
        size_t start = at;
        while (at < s->n && s->s[at] != '%') at++;
        ct__jinja_write(&w, s->s + start, at - start);
        if (at == s->n) break;
        format_field f = {.fill = ' ', .width = -1, .precision = -1};
        ct_jv named = {0};
        bool given = false;
        if (++at < s->n && s->s[at] == '(') named = percent_value_by_name(m, s, &at, &from);
        for (; at < s->n && strchr("#0- +", s->s[at]) && s->s[at]; at++) {
            if (s->s[at] == '#') f.alternate = true;
            if (s->s[at] == '0') f.zero = true;
            if (s->s[at] == '-') f.align = '<';
            if (s->s[at] == '+' || (s->s[at] == ' ' && !f.sign)) f.sign = s->s[at];
        }
        if (at < s->n && s->s[at] == '*')
            at++, f.width = ct__jv_require_int(m, percent_next_value(m, &from), "*"), given = true;
        else
            f.width = format_parse_number(m, s->s, s->n, &at);
        if (given && f.width < 0) // left-aligned, as with a minus before the width
            f.align = '<', f.width = f.width < -INT64_MAX ? INT64_MAX : -f.width;
        if (at < s->n && s->s[at] == '.') {
            at++;
            f.precision = format_parse_number(m, s->s, s->n, &at);
            if (f.precision < 0) f.precision = 0;
        }
        while (at < s->n && strchr("hlL", s->s[at]) && s->s[at]) at++;
        if (at == s->n) ct__jinja_fail(m, "%%: the format ends within a field");
        f.type = s->s[at++];
        if (f.type == '%') {
            ct__jinja_write_cstring(&w, "%");
            continue;
        }
        if (f.zero && !f.align && !strchr("srac", f.type)) f.fill = '0';
        percent_write_field(&w, named.kind != JV_MISSING ? named : percent_next_value(m, &from),
                            &f);
    }
    bool left = from.several ? from.at < values.list->n
                             : from.at == 0 && !from.named && values.kind != JV_DICT &&
                                   values.kind != JV_LIST;
    if (left) ct__jinja_fail(m, "%%: not all values were used by the format");
    return ct__jinja_writer_string(&w);
}

// -------------------------------------------------------------------------------------- str.format

// [[fill]align][sign][#][0][width][,][.precision][type]
static format_field format_parse_spec(ct_jinja_machine *m, const char *s, size_t n) {
    format_field f = {.fill = ' ', .width = -1, .precision = -1};
    ct_jv_string text = {.s = s, .n = n};
    size_t at = 0, after_fill = 0;
    uint32_t fill = n ? ct__jv_next_char(&text, &after_fill) : 0;
    if (after_fill < n && strchr("<>^=", s[after_fill]) && s[after_fill])
        f.fill = fill, f.align = s[after_fill], at = after_fill + 1;
    else if (n && strchr("<>^=", s[0]) && s[0])
        f.align = s[at++];
    if (at < n && strchr("+- ", s[at]) && s[at]) f.sign = s[at++];
    if (at < n && s[at] == '#') f.alternate = true, at++;
    if (at < n && s[at] == '0') {
        if (!f.align) f.fill = '0', f.zero = true;
        at++;
    }
    f.width = format_parse_number(m, s, n, &at);
    if (at < n && (s[at] == ',' || s[at] == '_')) f.group = s[at++];
    if (at < n && s[at] == '.') {
        at++;
        f.precision = format_parse_number(m, s, n, &at);
        if (f.precision < 0) ct__jinja_fail(m, "format: a precision is missing");
    }
    if (at < n) f.type = s[at++];
    if (at < n || (f.type && !strchr("sdboxXeEfFgG%", f.type)))
        ct__jinja_fail(m, "format: %s is no format",
                       ct__jinja_printable(m, ct__jv_copy_string(m, s, n)));
    return f;
}

static void format_write_field(ct_jinja_writer *w, ct_jv v, const char *spec, size_t n) {
    if (!n) {
        ct__jv_write(w, v);
        return;
    }
    format_field f = format_parse_spec(w->m, spec, n);
    bool plain = v.kind == JV_BOOL && (!f.type || f.type == 's'); // True, not 1
    if (v.kind == JV_FLOAT && f.precision >= 0 && !f.type) f.type = 'g';
    if (v.kind == JV_STRING && (!f.type || f.type == 's') && f.align != '=')
        format_write_string(w, v, &f, '<');
    else if (v.kind == JV_FLOAT && f.type && strchr("sdboxX", f.type))
        ct__jinja_fail(w->m, "format: a float has no format %c", f.type);
    else if ((v.kind == JV_INT || v.kind == JV_FLOAT || v.kind == JV_BOOL) && f.type != 's' &&
             (f.precision < 0 || v.kind == JV_FLOAT || (f.type && strchr("eEfFgG%", f.type))))
        format_write_number(w, plain ? ct__jv_int(v.b) : v, &f);
    else
        ct__jinja_fail(w->m, "format: a %s takes no such format", ct__jv_type_name(v));
}

// A field's value: a name or an index, then members of it.
static ct_jv format_field_value(ct_jinja_machine *m, const char *s, size_t n,
                                const ct_jv_args *args, size_t *next_index) {
    size_t at = strcspn(s, ".[!:}");
    if (at > n) at = n;
    ct_jv v = {0}, name = ct__jv_copy_string(m, s, at);
    size_t digits = 0;
    int64_t i = format_parse_number(m, s, at, &digits);
    if (at == 0) i = (int64_t)(*next_index)++;
    if (at == 0 || (digits == at && i >= 0)) {
        if (i >= (int64_t)args->n) ct__jinja_fail(m, "format: there is no value %" PRId64, i);
        v = args->v[i];
    } else {
        for (size_t k = 0; k < args->named_n; k++)
            if (ct__jv_equal(m, args->names[k], name)) v = args->named[k];
        if (v.kind == JV_MISSING)
            ct__jinja_fail(m, "format: there is no value %s", ct__jinja_printable(m, name));
    }
    while (at < n) {
        bool item = s[at] == '[';
        size_t from = ++at;
        while (at < n && (item ? s[at] != ']' : s[at] != '.' && s[at] != '[')) at++;
        if (item && at == n) ct__jinja_fail(m, "format: a ']' is missing");
        ct_jv part = ct__jv_copy_string(m, s + from, at - from);
        ct_jv number = item ? ct__jv_parse_int(m, part, 10) : (ct_jv){0};
        v = item ? ct__jv_item(m, v, number.kind == JV_INT ? number : part)
                 : ct__jv_attribute(m, v, part);
        at += item;
    }
    return v;
}

ct_jv ct__jv_format(ct_jinja_machine *m, ct_jv format, const ct_jv_args *args) {
    const ct_jv_string *s = format.s;
    ct_jinja_writer w = {.m = m};
    size_t next_index = 0;
    for (size_t at = 0; at < s->n;) {
        char c = s->s[at];
        if (c != '{' && c != '}') {
            ct__jinja_write(&w, &c, 1);
            at++;
            continue;
        }
        if (at + 1 < s->n && s->s[at + 1] == c) {
            ct__jinja_write(&w, &c, 1);
            at += 2;
            continue;
        }
        const char *start = s->s + at + 1;
        const char *end = c == '{' ? memchr(start, '}', s->n - at - 1) : NULL;
        if (!end) ct__jinja_fail(m, "format: a single brace");
        size_t n = (size_t)(end - start), name = 0;
        while (name < n && start[name] != '!' && start[name] != ':') name++;
        size_t spec = name;
        ct_jinja_writer repr = {.m = m};
        ct_jv v = format_field_value(m, start, name, args, &next_index);
        if (spec + 1 < n && start[spec] == '!') {
            char conversion = start[spec + 1];
            spec += 2;
            if (conversion != 'r' && conversion != 's')
                ct__jinja_fail(m, "format: only !r and !s are known");
            if (conversion == 'r')
                ct__jv_repr(&repr, v);
            else
                ct__jv_write(&repr, v);
            v = ct__jinja_writer_string(&repr);
        }
        if (spec < n && start[spec] != ':') ct__jinja_fail(m, "format: a ':' is missing");
        if (memchr(start, '{', n)) ct__jinja_fail(m, "format: fields inside fields are not known");
        format_write_field(&w, v, start + (spec < n ? spec + 1 : n), spec < n ? n - spec - 1 : 0);
        at += n + 2;
    }
    return ct__jinja_writer_string(&w);
}
