#include "io/json.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/fp_env.h"

void ct__json_string(ct_text *text, const char *s, size_t n) {
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    ct__text_add(text, "\"");
    for (size_t i = 0, plain = 0; i <= n; i++) {
        bool last = i == n, control = !last && (unsigned char)s[i] < 0x20;
        if (!last && !control && s[i] != '"' && s[i] != '\\') continue;
        ct__text_bytes(text, s + plain, i - plain);
        plain = i + 1;
        if (last) break;
        const char *found = s[i] ? strchr(from, s[i]) : NULL;
        if (found)
            ct__textf(text, "\\%c", to[found - from]);
        else
            ct__textf(text, "\\u%04x", (unsigned)s[i]);
    }
    ct__text_add(text, "\"");
}

void ct__json_real(ct_text *text, double value) {
    char digits[40];
    if (!isfinite(value)) {
        ct__text_add(text, isnan(value) ? "\"nan\"" : value < 0 ? "\"-inf\"" : "\"inf\"");
        return;
    }
    CT_DEFAULT_ENV;
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value) break;
    }
    ct__text_add(text, digits);
    if (!strpbrk(digits, ".e")) ct__text_add(text, ".0"); // reads back as a real
}

json_t *ct__json_read(const char *text, size_t n, size_t flags, json_error_t *fault) {
    const char *zero = n ? memchr(text, '\0', n) : NULL;
    if (!zero) return json_loadb(text, n, flags, fault);
    const char *line = text;
    *fault = (json_error_t){.line = 1, .position = (int)(zero - text), .source = "<buffer>"};
    for (const char *at = text; at < zero; at++)
        if (*at == '\n') fault->line++, line = at + 1;
    fault->column = (int)(zero - line) + 1;
    snprintf(fault->text, sizeof fault->text, "a zero byte");
    return NULL;
}

// Converts whole reals to integers within a value; returns the integer for a real itself, else
// NULL. The JSON library limits the depth.
static json_t *json_restore_integers(json_t *value) {
    const char *key;
    json_t *item, *other;
    size_t i;
    void *next;
    json_object_foreach_safe(value, next, key, item) {
        if ((other = json_restore_integers(item))) json_object_set_new(value, key, other);
    }
    json_array_foreach(value, i, item) {
        if ((other = json_restore_integers(item))) json_array_set_new(value, i, other);
    }
    const double x = json_real_value(value);
    const bool is = json_is_real(value) && floor(x) == x && fabs(x) <= 0x1p53;
    return is ? json_integer((json_int_t)x) : NULL;
}

json_t *ct__json_read_bigint(const char *text, size_t n, size_t flags, json_error_t *fault) {
    json_t *root = ct__json_read(text, n, flags, fault);
    if (root || json_error_code(fault) != json_error_numeric_overflow) return root;
    root = ct__json_read(text, n, flags | JSON_DECODE_INT_AS_REAL, fault);
    if (root) json_decref(json_restore_integers(root));
    return root;
}

static void json_indent(ct_text *text, int depth) {
    ct__text_add(text, "\n");
    for (int i = 0; i < depth; i++) ct__text_add(text, "  ");
}

static void json_put_value(ct_text *text, const json_t *value, int depth, bool canonical);

static void json_put_array(ct_text *text, const json_t *value, int depth, bool canonical) {
    bool plain = true;
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        plain = plain && !json_is_object(item) && !json_is_array(item);
    }
    ct__text_add(text, "[");
    for (size_t i = 0; i < json_array_size(value); i++) {
        if (i) ct__text_add(text, plain ? ", " : ",");
        if (!plain) json_indent(text, depth + 1);
        json_put_value(text, json_array_get(value, i), depth + 1, canonical);
    }
    if (!plain) json_indent(text, depth);
    ct__text_add(text, "]");
}

static int json_compare_keys(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void json_put_object(ct_text *text, const json_t *value, int depth, bool canonical) {
    size_t n = json_object_size(value), i = 0;
    const char *key, **keys = ct__malloc((n + 1) * sizeof *keys);
    json_t *item;
    if (!keys) {
        text->failed = true;
        return;
    }
    json_object_foreach((json_t *)(uintptr_t)value, key, item) keys[i++] = key;
    if (canonical) qsort(keys, n, sizeof *keys, json_compare_keys);
    ct__text_add(text, "{");
    for (i = 0; i < n; i++) {
        if (i) ct__text_add(text, ",");
        json_indent(text, depth + 1);
        ct__json_string(text, keys[i], strlen(keys[i]));
        ct__text_add(text, ": ");
        json_put_value(text, json_object_get(value, keys[i]), depth + 1, canonical);
    }
    if (n) json_indent(text, depth);
    ct__text_add(text, "}");
    ct__free(keys);
}

static void json_put_real(ct_text *text, double value, bool canonical) {
    if (canonical && fabs(value) < 0x1p63 && value == trunc(value))
        ct__textf(text, "%" PRId64, (int64_t)value);
    else
        ct__json_real(text, value);
}

// The recursion is as deep as the value, whose depth the library's parser limits.
static void json_put_value(ct_text *text, const json_t *value, int depth, bool canonical) {
    switch (json_typeof(value)) {
    case JSON_OBJECT: json_put_object(text, value, depth, canonical); break;
    case JSON_ARRAY: json_put_array(text, value, depth, canonical); break;
    case JSON_STRING:
        ct__json_string(text, json_string_value(value), json_string_length(value));
        break;
    case JSON_INTEGER: ct__textf(text, "%" JSON_INTEGER_FORMAT, json_integer_value(value)); break;
    case JSON_REAL: json_put_real(text, json_real_value(value), canonical); break;
    case JSON_TRUE: ct__text_add(text, "true"); break;
    case JSON_FALSE: ct__text_add(text, "false"); break;
    case JSON_NULL: ct__text_add(text, "null"); break;
    }
}

void ct__json_tree(ct_text *text, const json_t *value) {
    json_put_value(text, value, 0, false);
    ct__text_add(text, "\n");
}

void ct__json_canonical(ct_text *text, const json_t *value) {
    json_put_value(text, value, 0, true);
}
