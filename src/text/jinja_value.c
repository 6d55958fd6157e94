// Values: construction, comparison, operators, members and calls.
#include "text/jinja_value.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/utf8.h"

enum {
    MAX_DEPTH = 1000,    // maximum nesting of values, calls and nodes
    MAX_LINEAR_KEYS = 8, // smaller dicts are searched linearly
};

typedef struct ct_jv_buffer { // a buffer that a string can grow into
    char *s;
    size_t n, cap;
} ct_jv_buffer;

// ------------------------------------------------------------------------------- failing, counting

__attribute__((format(printf, 3, 0))) static _Noreturn void
value_fail(ct_jinja_machine *m, ct_code code, const char *format, va_list args) {
    char text[CT_ERROR_TEXT];
    vsnprintf(text, sizeof text, format, args);
    ct__err(m->err, code, CT_NOWHERE, m->name, "line %d: %s", m->line, text);
    longjmp(m->failed, 1);
}

void ct__jinja_fail(ct_jinja_machine *m, const char *format, ...) {
    va_list args;
    va_start(args, format);
    value_fail(m, CT_E_FORMAT, format, args);
}

void ct__jinja_fail_as(ct_jinja_machine *m, ct_code code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    value_fail(m, code, format, args);
}

void *ct__jinja_alloc(ct_jinja_machine *m, size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > m->limits.memory ||
        m->arena.bytes > m->limits.memory - bytes)
        ct__jinja_fail_as(m, CT_E_LIMIT, "the template takes more than %zu MB of memory",
                          m->limits.memory / 1000000);
    void *memory = ct__arena_zero(&m->arena, bytes);
    if (!memory)
        ct__jinja_fail_as(m, CT_E_MEMORY, "out of memory: %zu bytes were asked for", bytes);
    return memory;
}

void ct__jinja_count_steps(ct_jinja_machine *m, size_t bytes) {
    m->steps += 1 + (int64_t)(bytes / 16);
    if (m->steps > m->limits.steps)
        ct__jinja_fail_as(m, CT_E_LIMIT, "the template takes more than %" PRId64 " steps",
                          m->limits.steps);
}

void ct__jinja_enter(ct_jinja_machine *m) {
    ct__jinja_count_steps(m, 0);
    if (++m->depth > MAX_DEPTH)
        ct__jinja_fail_as(m, CT_E_LIMIT, "more than %d calls or values inside each other",
                          MAX_DEPTH);
}

const char *ct__jinja_printable(ct_jinja_machine *m, ct_jv v) {
    ct_jinja_writer w = {.m = m};
    ct__jv_repr(&w, v);
    char *out = ct__jinja_alloc(m, CT_PRINTABLE, 1);
    return ct__printable(w.s ? w.s : "", w.n, out, CT_PRINTABLE);
}

// ------------------------------------------------------------------------------------ constructors

ct_jv ct__jv_borrow_string(ct_jinja_machine *m, const char *s, size_t n) {
    ct_jv_string *string = ct__jinja_alloc(m, 1, sizeof *string);
    *string = (ct_jv_string){.s = s, .n = n, .chars = -1};
    return (ct_jv){.kind = JV_STRING, .s = string};
}

ct_jv ct__jv_copy_string(ct_jinja_machine *m, const char *s, size_t n) {
    char *copy = ct__jinja_alloc(m, n, 1);
    memcpy(copy, s, n);
    return ct__jv_borrow_string(m, copy, n);
}

ct_jv ct__jv_undefined(ct_jinja_machine *m, const char *hint) {
    ct_jv_undefined *undefined = ct__jinja_alloc(m, 1, sizeof *undefined);
    undefined->hint = hint;
    return (ct_jv){.kind = JV_UNDEFINED, .undefined = undefined};
}

ct_jv ct__jv_undefined_member(ct_jinja_machine *m, ct_jv of, ct_jv name) {
    ct_jv v = ct__jv_undefined(m, NULL);
    v.undefined->of = of.kind;
    v.undefined->name = name;
    return v;
}

void ct__jv_fail_undefined(ct_jinja_machine *m, ct_jv v) {
    const ct_jv_undefined *u = v.undefined;
    if (u->hint) ct__jinja_fail(m, "%s", u->hint);
    const char *name = ct__jinja_printable(m, u->name);
    if (u->of == JV_MISSING) ct__jinja_fail(m, "%s is undefined", name);
    const char *type = ct__jv_type_name((ct_jv){.kind = u->of});
    if (u->of == JV_NONE) ct__jinja_fail(m, "None has no member %s", name);
    ct__jinja_fail(m, "a %s has no member %s", type, name);
}

ct_jv ct__jv_new_list(ct_jinja_machine *m, ct_jv_kind kind, size_t n) {
    ct_jv_list *list = ct__jinja_alloc(m, 1, sizeof *list);
    *list = (ct_jv_list){.v = n ? ct__jinja_alloc(m, n, sizeof(ct_jv)) : NULL, .n = n, .cap = n};
    return (ct_jv){.kind = kind, .list = list};
}

void ct__jv_push(ct_jinja_machine *m, ct_jv_list *list, ct_jv v) {
    ct__jinja_count_steps(m, 0);
    if (list->n == list->cap) {
        size_t cap = list->cap ? 2 * list->cap : 4;
        ct_jv *bigger = ct__jinja_alloc(m, cap, sizeof *bigger);
        if (list->n) memcpy(bigger, list->v, list->n * sizeof *bigger);
        list->v = bigger;
        list->cap = cap;
    }
    list->v[list->n++] = v;
}

ct_jv ct__jv_pair(ct_jinja_machine *m, ct_jv a, ct_jv b) {
    ct_jv pair = ct__jv_new_list(m, JV_TUPLE, 2);
    pair.list->v[0] = a;
    pair.list->v[1] = b;
    return pair;
}

// Appending to a string many times copies it only a few times: the first string that is extended
// uses the free capacity after its end.
ct_jv ct__jv_concat(ct_jinja_machine *m, ct_jv a, ct_jv b) {
    const ct_jv_string *left = a.s, *right = b.s;
    ct_jv_buffer *buffer = left->buffer;
    ct__jinja_count_steps(m, right->n);
    if (!buffer || left->s + left->n != buffer->s + buffer->n ||
        buffer->cap - buffer->n < right->n) {
        ct__jinja_count_steps(m, left->n);
        size_t n = left->n + right->n;
        buffer = ct__jinja_alloc(m, 1, sizeof *buffer);
        buffer->cap = n < 64 ? n : 2 * n;
        buffer->s = ct__jinja_alloc(m, buffer->cap, 1);
        memcpy(buffer->s, left->s, left->n);
        buffer->n = left->n;
    }
    memcpy(buffer->s + buffer->n, right->s, right->n);
    ct_jv sum = ct__jv_borrow_string(m, buffer->s + buffer->n - left->n, left->n + right->n);
    buffer->n += right->n;
    sum.s->buffer = buffer;
    return sum;
}

// --------------------------------------------------------------------------- types and conversions

const char *ct__jv_type_name(ct_jv v) {
    switch (v.kind) {
    case JV_MISSING:
    case JV_UNDEFINED: return "Undefined";
    case JV_NONE: return "NoneType";
    case JV_BOOL: return "bool";
    case JV_INT: return "int";
    case JV_FLOAT: return "float";
    case JV_STRING: return "str";
    case JV_LIST: return "list";
    case JV_TUPLE: return "tuple";
    case JV_RANGE: return "range";
    case JV_VIEW: return "dict view";
    case JV_GENERATOR: return "generator";
    case JV_DICT: return "dict";
    case JV_NAMESPACE: return "namespace";
    case JV_MACRO: return "macro";
    case JV_FUNCTION: return "function";
    case JV_METHOD: return "method";
    case JV_LOOP: return "loop";
    case JV_CYCLER: return "cycler";
    case JV_JOINER: break;
    }
    return "joiner";
}

bool ct__jv_equals_cstring(ct_jv v, const char *word) {
    return v.kind == JV_STRING && v.s->n == strlen(word) && memcmp(v.s->s, word, v.s->n) == 0;
}

bool ct__jv_truth(ct_jinja_machine *m, ct_jv v) {
    switch (v.kind) {
    case JV_MISSING:
    case JV_UNDEFINED:
    case JV_NONE: return false;
    case JV_BOOL: return v.b;
    case JV_INT: return v.i != 0;
    case JV_FLOAT: return v.f != 0;
    case JV_STRING:
    case JV_LIST:
    case JV_TUPLE:
    case JV_RANGE:
    case JV_VIEW:
    case JV_DICT:
    case JV_LOOP: return ct__jv_length(m, v) != 0;
    default: return true;
    }
}

bool ct__jv_to_double(ct_jv v, double *f) {
    if (v.kind == JV_FLOAT)
        *f = v.f;
    else if (v.kind == JV_INT)
        *f = (double)v.i;
    else if (v.kind == JV_BOOL)
        *f = v.b;
    else
        return false;
    return true;
}

static bool value_as_int(ct_jv v, int64_t *i) {
    if (v.kind == JV_INT)
        *i = v.i;
    else if (v.kind == JV_BOOL)
        *i = v.b;
    else
        return false;
    return true;
}

int64_t ct__jv_length(ct_jinja_machine *m, ct_jv v) {
    switch (v.kind) {
    case JV_UNDEFINED: return 0;
    case JV_STRING: return ct__jv_count_chars(m, v.s);
    case JV_LIST:
    case JV_TUPLE:
    case JV_RANGE:
    case JV_VIEW: return (int64_t)v.list->n;
    case JV_DICT: return (int64_t)v.dict->n;
    case JV_LOOP: return (int64_t)v.loop->items->n;
    default: ct__jinja_fail(m, "a %s has no length", ct__jv_type_name(v));
    }
}

bool ct__jv_iterable(ct_jv v) {
    return (v.kind >= JV_STRING && v.kind <= JV_DICT) || v.kind == JV_UNDEFINED;
}

ct_jv_list *ct__jv_items(ct_jinja_machine *m, ct_jv v) {
    if (v.kind == JV_LIST || v.kind == JV_TUPLE || v.kind == JV_RANGE || v.kind == JV_VIEW)
        return v.list;
    if (!ct__jv_iterable(v)) ct__jinja_fail(m, "a %s cannot be iterated", ct__jv_type_name(v));
    ct_jv_list *items = ct__jv_new_list(m, JV_LIST, 0).list;
    if (v.kind == JV_GENERATOR) {
        items->v = v.list->at ? v.list->v + v.list->at : v.list->v;
        items->n = items->cap = v.list->n - v.list->at;
        v.list->at = v.list->n;
    } else if (v.kind == JV_DICT) {
        items->v = v.dict->keys; // which no template can change
        items->n = items->cap = v.dict->n;
    } else if (v.kind == JV_STRING) {
        for (size_t at = 0; at < v.s->n;) {
            size_t from = at;
            ct__jv_next_char(v.s, &at);
            ct__jv_push(m, items, ct__jv_borrow_string(m, v.s->s + from, at - from));
        }
    }
    return items;
}

// -------------------------------------------------------------------------------------- comparison

// Compares an integer with a double exactly: < 0, 0, > 0, or 2 for NaN.
static int value_compare_int_double(int64_t i, double f) {
    if (isnan(f)) return 2;
    if (f >= 0x1p63) return -1;
    if (f < -0x1p63) return 1;
    int64_t t = (int64_t)f; // towards 0
    if (i != t) return i < t ? -1 : 1;
    double rest = f - (double)t;
    return rest > 0 ? -1 : rest < 0;
}

static int value_compare_numbers(ct_jv a, ct_jv b) {
    int64_t i = 0, j = 0;
    bool int_a = value_as_int(a, &i), int_b = value_as_int(b, &j);
    if (int_a && int_b) return i < j ? -1 : i > j;
    if (int_a) return value_compare_int_double(i, b.f);
    if (int_b) {
        int reversed = value_compare_int_double(j, a.f);
        return reversed == 2 ? 2 : -reversed;
    }
    if (isnan(a.f) || isnan(b.f)) return 2;
    return a.f < b.f ? -1 : a.f > b.f;
}

static bool value_lists_equal(ct_jinja_machine *m, const ct_jv_list *a, const ct_jv_list *b) {
    bool equal = a->n == b->n;
    for (size_t i = 0; equal && i < a->n; i++) equal = ct__jv_equal(m, a->v[i], b->v[i]);
    return equal;
}

static bool value_dicts_equal(ct_jinja_machine *m, const ct_jv_dict *a, const ct_jv_dict *b) {
    bool equal = a->n == b->n;
    for (size_t i = 0; equal && i < a->n; i++) {
        const ct_jv *other = ct__jv_dict_find(m, b, a->keys[i]);
        equal = other && ct__jv_equal(m, a->values[i], *other);
    }
    return equal;
}

bool ct__jv_equal(ct_jinja_machine *m, ct_jv a, ct_jv b) {
    double f, g;
    if (ct__jv_to_double(a, &f) && ct__jv_to_double(b, &g)) return value_compare_numbers(a, b) == 0;
    if (a.kind != b.kind) return false;
    ct__jinja_enter(m);
    bool equal;
    switch (a.kind) {
    case JV_STRING:
        ct__jinja_count_steps(m, a.s->n);
        equal = a.s->n == b.s->n && memcmp(a.s->s, b.s->s, a.s->n) == 0;
        break;
    case JV_LIST:
    case JV_TUPLE:
    case JV_RANGE: equal = value_lists_equal(m, a.list, b.list); break;
    case JV_VIEW: // keys and items compare as sets, values by identity
        equal = a.list == b.list || (a.list->view == b.list->view && *a.list->view != 'v' &&
                                     value_lists_equal(m, a.list, b.list));
        break;
    case JV_DICT: equal = value_dicts_equal(m, a.dict, b.dict); break;
    case JV_METHOD:
        equal = a.method->function == b.method->function &&
                ct__jv_equal(m, a.method->self, b.method->self);
        break;
    case JV_FUNCTION: equal = a.function == b.function; break;
    case JV_UNDEFINED:
    case JV_MISSING:
    case JV_NONE: equal = true; break;
    default: equal = a.list == b.list; // identity
    }
    ct__jinja_leave(m);
    return equal;
}

int ct__jv_compare(ct_jinja_machine *m, ct_jv a, ct_jv b, const char *sign) {
    double f, g;
    ct__jinja_count_steps(m, 0);
    if (ct__jv_to_double(a, &f) && ct__jv_to_double(b, &g)) return value_compare_numbers(a, b);
    if (a.kind == JV_UNDEFINED) ct__jv_fail_undefined(m, a);
    if (b.kind == JV_UNDEFINED) ct__jv_fail_undefined(m, b);
    if (a.kind == JV_STRING && b.kind == JV_STRING) {
        size_t n = a.s->n < b.s->n ? a.s->n : b.s->n;
        ct__jinja_count_steps(m, n);
        // The byte order of UTF-8 is that of its characters.
        int order = n ? memcmp(a.s->s, b.s->s, n) : 0;
        return order ? order : a.s->n < b.s->n ? -1 : a.s->n > b.s->n;
    }
    if (a.kind != b.kind || (a.kind != JV_LIST && a.kind != JV_TUPLE))
        ct__jinja_fail(m, "a %s and a %s cannot be compared by %s", ct__jv_type_name(a),
                       ct__jv_type_name(b), sign);
    ct__jinja_enter(m);
    size_t i = 0, n = a.list->n < b.list->n ? a.list->n : b.list->n;
    while (i < n && ct__jv_equal(m, a.list->v[i], b.list->v[i])) i++;
    int order = i < n ? ct__jv_compare(m, a.list->v[i], b.list->v[i], sign)
                      : (a.list->n > n) - (b.list->n > n);
    ct__jinja_leave(m);
    return order;
}

bool ct__jv_contains(ct_jinja_machine *m, ct_jv all, ct_jv one) {
    if (all.kind == JV_STRING) {
        if (one.kind != JV_STRING)
            ct__jinja_fail(m, "only a str can be in a str, not a %s", ct__jv_type_name(one));
        return ct__jv_search(m, all.s, 0, one.s) <= all.s->n;
    }
    if (all.kind == JV_DICT) return ct__jv_dict_find(m, all.dict, one) != NULL;
    if (!ct__jv_iterable(all)) ct__jinja_fail(m, "nothing is in a %s", ct__jv_type_name(all));
    const ct_jv_list *items = ct__jv_items(m, all);
    for (size_t i = 0; i < items->n; i++)
        if (ct__jv_equal(m, items->v[i], one)) return true;
    return false;
}

// Bottom-up merge sort, from runs of one item on.
void ct__jv_sort(ct_jinja_machine *m, ct_jv *items, ct_jv *keys, size_t n, bool reverse) {
    ct_jv *sorted_items = ct__jinja_alloc(m, n, 2 * sizeof *sorted_items),
          *sorted_keys = sorted_items + n;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t low = 0; low < n; low += 2 * width) {
            size_t middle = low + width < n ? low + width : n;
            size_t high = low + 2 * width < n ? low + 2 * width : n;
            for (size_t i = low, j = middle, k = low; k < high; k++) {
                bool right = i == middle;
                if (!right && j < high) {
                    int order = reverse ? ct__jv_compare(m, keys[i], keys[j], "<")
                                        : ct__jv_compare(m, keys[j], keys[i], "<");
                    right = order < 0;
                }
                size_t from = right ? j++ : i++;
                sorted_items[k] = items[from];
                sorted_keys[k] = keys[from];
            }
        }
        memcpy(items, sorted_items, n * sizeof *sorted_items);
        memcpy(keys, sorted_keys, n * sizeof *sorted_items);
    }
}

// ------------------------------------------------------------------------------------------- dicts

ct_jv ct__jv_new_dict(ct_jinja_machine *m) {
    return (ct_jv){.kind = JV_DICT, .dict = ct__jinja_alloc(m, 1, sizeof(ct_jv_dict))};
}

// Equal numbers have the same hash, whatever their type. The seed is unknown to the author of a
// file.
static uint64_t value_hash(ct_jinja_machine *m, ct_jv key) {
    ct_hash seed = {(uintptr_t)m, m->seed};
    int64_t i = 0;
    if (key.kind == JV_STRING) {
        ct__jinja_count_steps(m, key.s->n);
        return ct__hash_bytes(key.s->s, key.s->n, seed).lo;
    }
    if (key.kind == JV_FLOAT && fabs(key.f) < 0x1p63 && key.f == trunc(key.f))
        key = ct__jv_int((int64_t)key.f);
    if (value_as_int(key, &i) || key.kind == JV_NONE) return ct__hash_bytes(&i, sizeof i, seed).lo;
    if (key.kind == JV_FLOAT) return ct__hash_bytes(&key.f, sizeof key.f, seed).lo;
    if (key.kind == JV_TUPLE) {
        ct__jinja_enter(m);
        uint64_t all = key.list->n;
        for (size_t k = 0; k < key.list->n; k++) all = all * 31 + value_hash(m, key.list->v[k]);
        ct__jinja_leave(m);
        return all;
    }
    if (key.kind == JV_UNDEFINED) return 1;
    ct__jinja_fail(m, "a %s cannot be a key", ct__jv_type_name(key));
}

// The slot of a key, or the free one where it belongs.
static size_t value_dict_slot(ct_jinja_machine *m, const ct_jv_dict *dict, ct_jv key) {
    size_t slot = value_hash(m, key) & (dict->slots - 1);
    while (dict->index[slot] && !ct__jv_equal(m, dict->keys[dict->index[slot] - 1], key))
        slot = (slot + 1) & (dict->slots - 1);
    return slot;
}

ct_jv *ct__jv_dict_find(ct_jinja_machine *m, const ct_jv_dict *dict, ct_jv key) {
    if (dict->index) {
        uint32_t found = dict->index[value_dict_slot(m, dict, key)];
        return found ? &dict->values[found - 1] : NULL;
    }
    if (key.kind != JV_STRING) value_hash(m, key); // fails if the key is not hashable
    for (size_t i = 0; i < dict->n; i++)
        if (ct__jv_equal(m, dict->keys[i], key)) return &dict->values[i];
    return NULL;
}

static void value_grow_dict(ct_jinja_machine *m, ct_jv_dict *dict) {
    size_t cap = dict->cap ? 2 * dict->cap : MAX_LINEAR_KEYS;
    if (cap > UINT32_MAX / 4) ct__jinja_fail(m, "a dict has more than %zu keys", dict->n);
    ct_jv *keys = ct__jinja_alloc(m, cap, 2 * sizeof *keys), *values = keys + cap;
    if (dict->n) {
        memcpy(keys, dict->keys, dict->n * sizeof *keys);
        memcpy(values, dict->values, dict->n * sizeof *values);
    }
    dict->keys = keys;
    dict->values = values;
    dict->cap = cap;
    if (cap == MAX_LINEAR_KEYS) return;
    dict->slots = 2 * cap;
    dict->index = ct__jinja_alloc(m, dict->slots, sizeof *dict->index);
    for (size_t i = 0; i < dict->n; i++)
        dict->index[value_dict_slot(m, dict, dict->keys[i])] = (uint32_t)i + 1;
}

void ct__jv_dict_set(ct_jinja_machine *m, ct_jv_dict *dict, ct_jv key, ct_jv value) {
    ct_jv *found = ct__jv_dict_find(m, dict, key);
    if (found) {
        *found = value;
        return;
    }
    ct__jinja_count_steps(m, 0);
    if (dict->n == dict->cap) value_grow_dict(m, dict);
    if (dict->index) dict->index[value_dict_slot(m, dict, key)] = (uint32_t)dict->n + 1;
    dict->keys[dict->n] = key;
    dict->values[dict->n++] = value;
}

// Recurses as deep as the JSON, whose depth its parser limits; strings are borrowed from the tree.
ct_jv ct__jv_from_json(ct_jinja_machine *m, const json_t *json) {
    ct_jv v = ct__jv_none();
    const char *key;
    json_t *item;
    size_t i;
    ct__jinja_enter(m);
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        v = ct__jv_new_dict(m);
        json_object_foreach((json_t *)(uintptr_t)json, key, item)
            ct__jv_dict_set(m, v.dict, ct__jv_cstring(m, key), ct__jv_from_json(m, item));
        break;
    case JSON_ARRAY:
        v = ct__jv_new_list(m, JV_LIST, json_array_size(json));
        json_array_foreach(json, i, item) v.list->v[i] = ct__jv_from_json(m, item);
        break;
    case JSON_STRING:
        v = ct__jv_borrow_string(m, json_string_value(json), json_string_length(json));
        break;
    case JSON_INTEGER: v = ct__jv_int(json_integer_value(json)); break;
    case JSON_REAL: v = ct__jv_float(json_real_value(json)); break;
    case JSON_TRUE:
    case JSON_FALSE: v = ct__jv_bool(json_is_true(json)); break;
    case JSON_NULL: break;
    }
    ct__jinja_leave(m);
    return v;
}

// --------------------------------------------------------------------------------------- operators

static _Noreturn void value_fail_binary(ct_jinja_machine *m, char op, ct_jv a, ct_jv b) {
    char sign[3] = {op == 'f'   ? '/'
                    : op == 'p' ? '*'
                                : op,
                    op == 'f'   ? '/'
                    : op == 'p' ? '*'
                                : 0,
                    0};
    if (a.kind == JV_UNDEFINED) ct__jv_fail_undefined(m, a);
    if (b.kind == JV_UNDEFINED) ct__jv_fail_undefined(m, b);
    ct__jinja_fail(m, "%s is not defined between a %s and a %s", sign, ct__jv_type_name(a),
                   ct__jv_type_name(b));
}

static ct_jv value_int_power(ct_jinja_machine *m, int64_t a, int64_t b) {
    if (b < 0) {
        if (a == 0) ct__jinja_fail(m, "0 to the power %" PRId64, b);
        return ct__jv_float(pow((double)a, (double)b));
    }
    int64_t result = 1;
    bool over = false;
    for (; b > 0 && !over; b >>= 1) {
        if (b & 1) over = __builtin_mul_overflow(result, a, &result);
        if (b > 1) over |= __builtin_mul_overflow(a, a, &a);
    }
    if (over) ct__jinja_fail(m, "an integer needs more than 64 bits");
    return ct__jv_int(result);
}

static ct_jv value_int_binary(ct_jinja_machine *m, char op, int64_t a, int64_t b) {
    int64_t result = 0;
    bool over = false;
    if (strchr("/f%", op) && b == 0) ct__jinja_fail(m, "division of %" PRId64 " by zero", a);
    switch (op) {
    case '+': over = __builtin_add_overflow(a, b, &result); break;
    case '-': over = __builtin_sub_overflow(a, b, &result); break;
    case '*': over = __builtin_mul_overflow(a, b, &result); break;
    case '/': return ct__jv_float((double)a / (double)b);
    case 'p': return value_int_power(m, a, b);
    default:           // towards minus infinity
        if (b == -1) { // INT64_MIN / -1 is no int64_t
            over = op == 'f' && __builtin_sub_overflow(0, a, &result);
            break;
        }
        result = op == 'f' ? a / b - (a % b != 0 && (a % b < 0) != (b < 0))
                           : a % b + ((a % b != 0 && (a % b < 0) != (b < 0)) ? b : 0);
    }
    if (over) ct__jinja_fail(m, "an integer needs more than 64 bits");
    return ct__jv_int(result);
}

static ct_jv value_float_binary(ct_jinja_machine *m, char op, double a, double b) {
    if (strchr("/f%", op) && b == 0) ct__jinja_fail(m, "division by zero");
    double rest;
    switch (op) {
    case '+': return ct__jv_float(a + b);
    case '-': return ct__jv_float(a - b);
    case '*': return ct__jv_float(a * b);
    case '/': return ct__jv_float(a / b);
    case 'p':
        if (a == 0 && b < 0) ct__jinja_fail(m, "0.0 to a negative power");
        rest = pow(a, b);
        if (isinf(rest) && !isinf(a) && !isinf(b)) ct__jinja_fail(m, "a power is too large");
        if (isnan(rest) && !isnan(a) && !isnan(b)) ct__jinja_fail(m, "a power is no real number");
        return ct__jv_float(rest);
    default:
        rest = fmod(a, b);
        double quotient = (a - rest) / b;
        if (rest == 0)
            rest = copysign(0, b);
        else if ((rest < 0) != (b < 0))
            rest += b, quotient -= 1;
        if (op == '%') return ct__jv_float(rest);
        if (quotient == 0) return ct__jv_float(copysign(0, a / b));
        double down = floor(quotient);
        return ct__jv_float(quotient - down > 0.5 ? down + 1 : down);
    }
}

static ct_jv value_repeat(ct_jinja_machine *m, ct_jv value, int64_t times) {
    size_t n = times > 0 ? (size_t)times : 0;
    if (value.kind == JV_STRING) {
        if (!value.s->n) n = 0;
        char *s = ct__jinja_alloc(m, value.s->n, n);
        for (size_t i = 0; i < n; i++) memcpy(s + i * value.s->n, value.s->s, value.s->n);
        ct__jinja_count_steps(m, n * value.s->n);
        return ct__jv_borrow_string(m, s, n * value.s->n);
    }
    size_t items, length = value.list->n;
    if (__builtin_mul_overflow(n, length, &items))
        ct__jinja_alloc(m, n, length); // fails: too large
    ct_jv all = ct__jv_new_list(m, value.kind, items);
    ct__jinja_count_steps(m, 16 * items);
    for (size_t i = 0; i < items; i++) all.list->v[i] = value.list->v[i % length];
    return all;
}

static bool value_is_sequence(ct_jv v) {
    return v.kind == JV_STRING || v.kind == JV_LIST || v.kind == JV_TUPLE;
}

static ct_jv value_add_strings(ct_jinja_machine *m, ct_jv a, ct_jv b) {
    bool markup = a.s->markup || b.s->markup;
    if (markup && !a.s->markup) a = ct__jv_escape(m, a, false);
    if (markup && !b.s->markup) b = ct__jv_escape(m, b, false);
    ct_jv sum = ct__jv_concat(m, a, b);
    sum.s->markup = markup;
    return sum;
}

ct_jv ct__jv_binary(ct_jinja_machine *m, char op, ct_jv a, ct_jv b) {
    int64_t i = 0, j = 0;
    double f = 0, g = 0;
    ct__jinja_count_steps(m, 0);
    if (value_as_int(a, &i) && value_as_int(b, &j)) return value_int_binary(m, op, i, j);
    if (ct__jv_to_double(a, &f) && ct__jv_to_double(b, &g)) return value_float_binary(m, op, f, g);
    if (op == '%' && a.kind == JV_STRING) return ct__jv_format_percent(m, a, b);
    if (op == '+' && a.kind == b.kind && a.kind == JV_STRING) return value_add_strings(m, a, b);
    if (op == '+' && a.kind == b.kind && value_is_sequence(a)) {
        ct_jv sum = ct__jv_new_list(m, a.kind, a.list->n + b.list->n);
        ct__jinja_count_steps(m, 16 * sum.list->n);
        if (a.list->n) memcpy(sum.list->v, a.list->v, a.list->n * sizeof(ct_jv));
        if (b.list->n) memcpy(sum.list->v + a.list->n, b.list->v, b.list->n * sizeof(ct_jv));
        return sum;
    }
    if (op == '*' && value_is_sequence(a) && value_as_int(b, &j)) return value_repeat(m, a, j);
    if (op == '*' && value_is_sequence(b) && value_as_int(a, &i)) return value_repeat(m, b, i);
    value_fail_binary(m, op, a, b);
}

ct_jv ct__jv_negate(ct_jinja_machine *m, ct_jv v) {
    int64_t i;
    if (v.kind == JV_FLOAT) return ct__jv_float(-v.f);
    if (value_as_int(v, &i)) return value_int_binary(m, '-', 0, i);
    if (v.kind == JV_UNDEFINED) ct__jv_fail_undefined(m, v);
    ct__jinja_fail(m, "a %s has no sign", ct__jv_type_name(v));
}

// ----------------------------------------------------------------------------------------- members

// A list index that is not a number raises an error in Python and is undefined in a template.
static const ct_jv *value_list_element(ct_jv of, ct_jv key) {
    int64_t i;
    if (!value_as_int(key, &i)) return NULL;
    if (i < 0) i += (int64_t)of.list->n;
    return i >= 0 && i < (int64_t)of.list->n ? &of.list->v[i] : NULL;
}

static bool value_find_item(ct_jinja_machine *m, ct_jv of, ct_jv key, ct_jv *found) {
    const ct_jv *at = NULL;
    if (of.kind == JV_DICT) {
        bool hashable = key.kind != JV_LIST && key.kind != JV_DICT;
        at = hashable ? ct__jv_dict_find(m, of.dict, key) : NULL;
    } else if (of.kind == JV_LIST || of.kind == JV_TUPLE || of.kind == JV_RANGE) {
        at = value_list_element(of, key);
    } else if (of.kind == JV_STRING && (key.kind == JV_INT || key.kind == JV_BOOL)) {
        int64_t i = ct__jv_require_int(m, key, "an index"), n = ct__jv_count_chars(m, of.s);
        if (i < 0) i += n;
        if (i < 0 || i >= n) return false;
        *found = ct__jv_substring(m, of, i, i + 1);
        return true;
    }
    if (at) *found = *at;
    return at != NULL;
}

static bool value_loop_member(ct_jinja_machine *m, ct_jv_loop *loop, ct_jv name, ct_jv *found) {
    int64_t at = (int64_t)loop->at, n = (int64_t)loop->items->n;
    if (ct__jv_equals_cstring(name, "index"))
        *found = ct__jv_int(at + 1);
    else if (ct__jv_equals_cstring(name, "index0"))
        *found = ct__jv_int(at);
    else if (ct__jv_equals_cstring(name, "revindex"))
        *found = ct__jv_int(n - at);
    else if (ct__jv_equals_cstring(name, "revindex0"))
        *found = ct__jv_int(n - at - 1);
    else if (ct__jv_equals_cstring(name, "first"))
        *found = ct__jv_bool(at == 0);
    else if (ct__jv_equals_cstring(name, "last"))
        *found = ct__jv_bool(at == n - 1);
    else if (ct__jv_equals_cstring(name, "length"))
        *found = ct__jv_int(n);
    else if (ct__jv_equals_cstring(name, "depth"))
        *found = ct__jv_int(1);
    else if (ct__jv_equals_cstring(name, "depth0"))
        *found = ct__jv_int(0);
    else if (ct__jv_equals_cstring(name, "previtem"))
        *found = at > 0 ? loop->items->v[at - 1] : ct__jv_undefined(m, "there is no previous item");
    else if (ct__jv_equals_cstring(name, "nextitem"))
        *found = at + 1 < n ? loop->items->v[at + 1] : ct__jv_undefined(m, "there is no next item");
    else
        return false;
    return true;
}

// Looks up what Python calls an attribute: data of the kind's own, and its methods.
static bool value_find_attribute(ct_jinja_machine *m, ct_jv of, ct_jv name, ct_jv *found) {
    if (name.s->n && name.s->s[0] == '_') return false;
    if (of.kind == JV_LOOP && value_loop_member(m, of.loop, name, found)) return true;
    if (of.kind == JV_NAMESPACE) {
        const ct_jv *at = ct__jv_dict_find(m, of.dict, name);
        if (at) *found = *at;
        return at != NULL;
    }
    if (of.kind == JV_MACRO && ct__jv_equals_cstring(name, "name")) {
        *found = ct__jv_macro_name(of.macro);
        return true;
    }
    if (of.kind == JV_CYCLER && ct__jv_equals_cstring(name, "current")) {
        *found = of.cycler->items->v[of.cycler->at];
        return true;
    }
    if (of.kind == JV_TUPLE && of.list->group &&
        (ct__jv_equals_cstring(name, "grouper") || ct__jv_equals_cstring(name, "list"))) {
        *found = of.list->v[ct__jv_equals_cstring(name, "list")];
        return true;
    }
    const ct_jv_function *function = ct__jv_find_method(of, name);
    if (!function) return false;
    if (!function->call) {
        *found = ct__jv_undefined(m, "lists and dicts cannot be changed in place");
        return true;
    }
    ct_jv_method *method = ct__jinja_alloc(m, 1, sizeof *method);
    *method = (ct_jv_method){function, of};
    *found = (ct_jv){.kind = JV_METHOD, .method = method};
    return true;
}

ct_jv ct__jv_attribute(ct_jinja_machine *m, ct_jv of, ct_jv name) {
    ct_jv found;
    ct__jinja_count_steps(m, 0);
    if (of.kind == JV_UNDEFINED) ct__jv_fail_undefined(m, of);
    if (value_find_attribute(m, of, name, &found) || value_find_item(m, of, name, &found))
        return found;
    return ct__jv_undefined_member(m, of, name);
}

ct_jv ct__jv_item(ct_jinja_machine *m, ct_jv of, ct_jv key) {
    ct_jv found;
    ct__jinja_count_steps(m, 0);
    if (of.kind == JV_UNDEFINED) ct__jv_fail_undefined(m, of);
    if (value_find_item(m, of, key, &found)) return found;
    if (key.kind == JV_STRING && value_find_attribute(m, of, key, &found)) return found;
    return ct__jv_undefined_member(m, of, key);
}

// Python's rule for a slice's bound: a negative one counts from the end, then it is clamped.
static int64_t value_slice_bound(ct_jinja_machine *m, ct_jv v, int64_t n, int64_t low, int64_t high,
                                 int64_t missing) {
    if (v.kind == JV_NONE || v.kind == JV_MISSING) return missing;
    int64_t i = ct__jv_require_int(m, v, "a slice's end");
    if (i < 0) i = i < -n ? -n - 1 + n : i + n;
    return i < low ? low : i > high ? high : i;
}

ct_jv ct__jv_slice(ct_jinja_machine *m, ct_jv of, ct_jv from, ct_jv to, ct_jv step) {
    if (of.kind == JV_UNDEFINED) ct__jv_fail_undefined(m, of);
    if (!value_is_sequence(of) && of.kind != JV_RANGE)
        return ct__jv_undefined_member(m, of, ct__jv_cstring(m, ":"));
    int64_t n = ct__jv_length(m, of), by = 1;
    if (step.kind != JV_NONE && step.kind != JV_MISSING)
        by = ct__jv_require_int(m, step, "a slice's step");
    if (by == 0) ct__jinja_fail(m, "a slice's step is 0");
    bool back = by < 0;
    int64_t i = value_slice_bound(m, from, n, back ? -1 : 0, back ? n - 1 : n, back ? n - 1 : 0);
    int64_t end = value_slice_bound(m, to, n, back ? -1 : 0, back ? n - 1 : n, back ? -1 : n);
    if (of.kind == JV_STRING && by == 1) return ct__jv_substring(m, of, i, end);
    const ct_jv_list *items = ct__jv_items(m, of);
    ct_jv cut = ct__jv_new_list(m, of.kind == JV_TUPLE ? JV_TUPLE : JV_LIST, 0);
    while (back ? i > end : i < end) {
        ct__jv_push(m, cut.list, items->v[i]);
        if (__builtin_add_overflow(i, by, &i)) break;
    }
    return of.kind == JV_STRING ? ct__jv_join(m, ct__jv_cstring(m, ""), cut.list) : cut;
}

// ------------------------------------------------------------------------------------------- calls

static bool value_find_parameter(const char *params, ct_jv name, int *index) {
    *index = 0;
    for (const char *at = params; *at; (*index)++) {
        size_t n = strcspn(at, " ");
        if (n == name.s->n && memcmp(at, name.s->s, n) == 0) return true;
        at += n + (at[n] == ' ');
    }
    return false;
}

ct_jv ct__jv_invoke(ct_jinja_machine *m, const ct_jv_function *f, ct_jv self,
                    const ct_jv_args *args) {
    enum { MAX_ARGS = 8 };
    ct_jv arg[MAX_ARGS] = {0};
    int index;
    if (!f->params) return f->call(m, self, arg, args);
    size_t max_args = *f->params ? 1 : 0;
    for (const char *at = f->params; *at; at++) max_args += *at == ' ';
    if (args->n > max_args)
        ct__jinja_fail(m, "%s takes at most %zu arguments, not %zu", f->name, max_args, args->n);
    for (size_t i = 0; i < args->n; i++) arg[i] = args->v[i];
    for (size_t i = 0; i < args->named_n; i++) {
        if (!value_find_parameter(f->params, args->names[i], &index))
            ct__jinja_fail(m, "%s has no argument %s", f->name,
                           ct__jinja_printable(m, args->names[i]));
        if (arg[index].kind != JV_MISSING)
            ct__jinja_fail(m, "%s is given %s twice", f->name,
                           ct__jinja_printable(m, args->names[i]));
        arg[index] = args->named[i];
    }
    for (int i = 0; i < f->required; i++)
        if (arg[i].kind == JV_MISSING)
            ct__jinja_fail(m, "%s needs %d argument%s", f->name, f->required,
                           f->required == 1 ? "" : "s");
    return f->call(m, self, arg, args);
}

ct_jv ct__jv_call(ct_jinja_machine *m, ct_jv callee, const ct_jv_args *args) {
    ct_jv result = ct__jv_none();
    ct__jinja_enter(m);
    switch (callee.kind) {
    case JV_MACRO: result = ct__jv_call_macro(m, callee.macro, args); break;
    case JV_FUNCTION: result = ct__jv_invoke(m, callee.function, callee, args); break;
    case JV_METHOD:
        result = ct__jv_invoke(m, callee.method->function, callee.method->self, args);
        break;
    case JV_JOINER: // empty at the first call, then the separator
        result = callee.cycler->at ? callee.cycler->items->v[0] : ct__jv_cstring(m, "");
        callee.cycler->at = 1;
        break;
    case JV_UNDEFINED: ct__jv_fail_undefined(m, callee);
    default: ct__jinja_fail(m, "a %s cannot be called", ct__jv_type_name(callee));
    }
    ct__jinja_leave(m);
    return result;
}

const ct_jv_function *ct__jv_find_function(const ct_jv_function *table, ct_jv name) {
    for (; table->name; table++)
        if (ct__jv_equals_cstring(name, table->name)) return table;
    return NULL;
}
