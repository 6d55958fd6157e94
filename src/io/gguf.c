#include "io/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "io/ggml_blocks.h"
#include "io/utf8.h"

// More than any model has; their descriptions take at most about 50 MB, whatever the file contains.
enum { MAX_PAIRS = 1 << 16, MAX_TENSORS = 1 << 18 };

static const struct {
    const char *name;
    unsigned bytes; // of a value; 0: variable
} types[CT_GGUF_TYPES] = {
    [CT_GGUF_U8] = {"u8", 1},       [CT_GGUF_I8] = {"i8", 1},     [CT_GGUF_U16] = {"u16", 2},
    [CT_GGUF_I16] = {"i16", 2},     [CT_GGUF_U32] = {"u32", 4},   [CT_GGUF_I32] = {"i32", 4},
    [CT_GGUF_F32] = {"f32", 4},     [CT_GGUF_BOOL] = {"bool", 1}, [CT_GGUF_STRING] = {"string", 0},
    [CT_GGUF_ARRAY] = {"array", 0}, [CT_GGUF_U64] = {"u64", 8},   [CT_GGUF_I64] = {"i64", 8},
    [CT_GGUF_F64] = {"f64", 8},
};

const char *ct__gguf_type_name(ct_gguf_type type) { return types[type].name; }

typedef struct reader {
    ct_gguf *g;
    const unsigned char *start, *at, *end;
    ct_err *err;
    // What is being read, for messages: the i-th of n keys, or tensors; NULL: the file.
    const char *what;
    uint64_t i, n;
    ct_gguf_text name; // its name; s is NULL until it is read
} reader;

__attribute__((format(printf, 2, 3))) static bool gguf_refuse(reader *r, const char *format, ...) {
    char text[512], shown[CT_PRINTABLE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *label = r->g->label;
    if (!r->what) return ct__err_part(r->err, label, "gguf", "%s", text);
    if (!r->name.s)
        return ct__err_part(r->err, label, "gguf", "%s %" PRIu64 " of %" PRIu64 ": %s", r->what,
                            r->i + 1, r->n, text);
    return ct__err_part(r->err, label, "gguf", "%s \"%s\": %s", r->what,
                        ct__printable(r->name.s, r->name.n, shown, sizeof shown), text);
}

static uint64_t gguf_bytes_left(const reader *r) { return (uint64_t)(r->end - r->at); }
static uint64_t gguf_offset(const reader *r) { return (uint64_t)(r->at - r->start); }

// Reads n bytes, one number or several.
static bool gguf_read(reader *r, const char *what, void *to, size_t n) {
    if (gguf_bytes_left(r) < n)
        return gguf_refuse(r, "the file ends at byte %zu, in %s", (size_t)(r->end - r->start),
                           what);
    memcpy(to, r->at, n);
    r->at += n;
    return true;
}

static bool gguf_read_string(reader *r, const char *what, ct_gguf_text *text) {
    if (!gguf_read(r, what, &text->n, sizeof text->n)) return false;
    if (text->n > gguf_bytes_left(r))
        return gguf_refuse(r,
                           "%s has %" PRIu64 " bytes by its length, from byte %" PRIu64
                           " on, but the file ends at byte %zu",
                           what, text->n, gguf_offset(r), (size_t)(r->end - r->start));
    text->s = (const char *)r->at;
    r->at += text->n;
    return true;
}

// ---------------------------------------------------------------------------------------- metadata

static bool gguf_read_array(reader *r, ct_gguf_list *list) {
    uint64_t least = types[list->type].bytes ? types[list->type].bytes : sizeof(uint64_t);
    ct_gguf_text text = {0};
    if (list->n > gguf_bytes_left(r) / least)
        return gguf_refuse(
            r,
            "%" PRIu64 " values of type %s from byte %" PRIu64 " on, but the file ends at byte %zu",
            list->n, types[list->type].name, gguf_offset(r), (size_t)(r->end - r->start));
    list->at = r->at;
    if (list->type != CT_GGUF_STRING)
        r->at += list->n * least;
    else
        for (uint64_t i = 0; i < list->n; i++)
            if (!gguf_read_string(r, "a string", &text)) return false;
    list->end = r->at;
    return true;
}

static bool gguf_read_type(reader *r, const char *what, ct_gguf_type *type) {
    uint32_t number = 0;
    if (!gguf_read(r, what, &number, sizeof number)) return false;
    *type = (ct_gguf_type)number;
    return number < CT_GGUF_TYPES ||
           gguf_refuse(r, "%s is %" PRIu32 ", which the format has not", what, number);
}

static bool gguf_read_pair(reader *r, ct_gguf_pair *pair) {
    r->name = (ct_gguf_text){0};
    if (!gguf_read_string(r, "the key", &pair->key)) return false;
    r->name = pair->key;
    if (!gguf_read_type(r, "the type of its value", &pair->type)) return false;
    pair->value = (ct_gguf_list){.type = pair->type, .n = 1};
    if (pair->type != CT_GGUF_ARRAY) return gguf_read_array(r, &pair->value);
    if (!gguf_read_type(r, "the type of the array's elements", &pair->value.type) ||
        !gguf_read(r, "the length of an array", &pair->value.n, sizeof pair->value.n))
        return false;
    if (pair->value.type == CT_GGUF_ARRAY)
        return gguf_refuse(r, "an array of arrays, which is not supported");
    return gguf_read_array(r, &pair->value);
}

static int gguf_compare_strings(ct_gguf_text a, ct_gguf_text b) {
    int c = memcmp(a.s, b.s, a.n < b.n ? a.n : b.n);
    return c ? c : (a.n > b.n) - (a.n < b.n);
}

static int gguf_compare_keys(const void *a, const void *b) {
    const ct_gguf_pair *x = a, *y = b;
    return gguf_compare_strings(x->key, y->key);
}

static bool gguf_refuse_memory(reader *r, size_t bytes) {
    return ct__err_memory(r->err, CT_NOWHERE, r->g->label, bytes);
}

static bool gguf_read_pairs(reader *r, uint64_t n) {
    ct_gguf *g = r->g;
    if (n > MAX_PAIRS)
        return gguf_refuse(r, "%" PRIu64 " keys by its header, at most %d are read", n, MAX_PAIRS);
    g->pairs = ct__arena(&g->arena, n * sizeof *g->pairs);
    if (!g->pairs) return gguf_refuse_memory(r, n * sizeof *g->pairs);
    r->what = "key";
    r->n = n;
    for (r->i = 0; r->i < n; r->i++)
        if (!gguf_read_pair(r, &g->pairs[r->i])) return false;
    g->n_pairs = n;
    if (n) qsort(g->pairs, n, sizeof *g->pairs, gguf_compare_keys);
    for (size_t i = 1; i < n; i++) {
        r->name = g->pairs[i].key;
        if (gguf_compare_keys(&g->pairs[i - 1], &g->pairs[i]) == 0)
            return gguf_refuse(r, "it comes twice");
    }
    r->what = NULL;
    return true;
}

// ----------------------------------------------------------------------------------------- tensors

static const char *gguf_describe(const ct_gguf_tensor *t, char out[120]) {
    size_t n = (size_t)snprintf(out, 120, "(");
    for (int i = 0; i < t->rank; i++)
        n += (size_t)snprintf(out + n, 120 - n, "%s%" PRId64, i ? ", " : "", t->dim[i]);
    snprintf(out + n, 120 - n, "%s) %s", t->rank == 1 ? "," : "", t->type->name);
    return out;
}

static bool gguf_read_shape(reader *r, ct_gguf_tensor *t) {
    uint32_t rank = 0;
    uint64_t size = 0;
    if (!gguf_read(r, "the number of axes", &rank, sizeof rank)) return false;
    if (rank > CT_GGUF_RANK)
        return gguf_refuse(r, "%" PRIu32 " axes, at most %d are allowed", rank, CT_GGUF_RANK);
    t->rank = (int)rank;
    for (uint32_t i = 0; i < rank; i++) {
        if (!gguf_read(r, "the sizes of its axes", &size, sizeof size)) return false;
        if (size > INT64_MAX)
            return gguf_refuse(r, "an axis of %" PRIu64 ", at most %" PRId64 " is allowed", size,
                               INT64_MAX);
        t->dim[rank - 1 - i] = (int64_t)size;
    }
    return true;
}

// Reads the type, and computes the size in bytes from type and shape: a row has whole blocks.
static bool gguf_read_size(reader *r, ct_gguf_tensor *t) {
    uint32_t number = 0;
    uint64_t count = 1;
    char what[120];
    if (!gguf_read(r, "its type", &number, sizeof number)) return false;
    t->type = ct__ggml_type(number);
    if (!t->type)
        return gguf_refuse(r, "its type is %" PRIu32 ", which is none of ggml's types", number);
    for (int i = 0; i < t->rank; i++)
        if (__builtin_mul_overflow(count, (uint64_t)t->dim[i], &count) || count > INT64_MAX)
            return gguf_refuse(r, "the number of elements of %s overflows 63 bits",
                               gguf_describe(t, what));
    if ((t->rank ? t->dim[t->rank - 1] : 1) % t->type->elements)
        return gguf_refuse(r, "%s: a row is no multiple of blocks of %d", gguf_describe(t, what),
                           t->type->elements);
    if (__builtin_mul_overflow(count / t->type->elements, (uint64_t)t->type->bytes, &t->bytes))
        return gguf_refuse(r, "the size of %s in bytes overflows 64 bits", gguf_describe(t, what));
    return true;
}

static bool gguf_read_tensor(reader *r, ct_gguf_tensor *t) {
    ct_gguf_text name;
    r->name = (ct_gguf_text){0};
    if (!gguf_read_string(r, "the name", &name)) return false;
    r->name = name;
    if (memchr(name.s, '\0', name.n)) return gguf_refuse(r, "a zero byte in its name");
    char *copy = ct__arena(&r->g->arena, name.n + 1);
    if (!copy) return gguf_refuse_memory(r, name.n + 1);
    memcpy(copy, name.s, name.n);
    copy[name.n] = '\0';
    t->name = copy;
    return gguf_read_shape(r, t) && gguf_read_size(r, t) &&
           gguf_read(r, "its place", &t->at, sizeof t->at);
}

static int gguf_compare_names(const void *a, const void *b) {
    const ct_gguf_tensor *x = *(ct_gguf_tensor *const *)a, *y = *(ct_gguf_tensor *const *)b;
    return strcmp(x->name, y->name);
}

static int gguf_compare_offsets(const void *a, const void *b) {
    const ct_gguf_tensor *x = *(ct_gguf_tensor *const *)a, *y = *(ct_gguf_tensor *const *)b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return (x > y) - (x < y);
}

// Checks that the tensors' bytes are in the file, and makes offsets in the data offsets in the
// file.
static bool gguf_check_offsets(reader *r, uint64_t begin) {
    uint64_t file = (uint64_t)(r->end - r->start);
    char what[120];
    for (size_t i = 0; i < r->g->n; i++) {
        ct_gguf_tensor *t = &r->g->tensors[i];
        r->name = (ct_gguf_text){t->name, strlen(t->name)};
        if (t->at % r->g->alignment)
            return gguf_refuse(r,
                               "it begins at byte %" PRIu64 " of the data, no multiple of %" PRIu64,
                               t->at, r->g->alignment);
        if (begin > file || t->at > file - begin || t->bytes > file - begin - t->at)
            return gguf_refuse(r,
                               "%s takes %" PRIu64 " bytes from byte %" PRIu64
                               " of the data on, which begin at byte %" PRIu64
                               " of the file, but the file ends at byte %" PRIu64,
                               gguf_describe(t, what), t->bytes, t->at, begin, file);
        t->at += begin;
    }
    return true;
}

// Checks that names differ and that no byte belongs to two tensors, so that unpacking needs no more
// memory than the file's size allows.
static bool gguf_check_overlap(reader *r) {
    size_t n = r->g->n;
    char other[CT_PRINTABLE];
    ct_gguf_tensor **order = ct__malloc((n + 1) * sizeof *order);
    if (!order) return gguf_refuse_memory(r, (n + 1) * sizeof *order);
    for (size_t i = 0; i < n; i++) order[i] = &r->g->tensors[i];
    qsort(order, n, sizeof *order, gguf_compare_names);
    bool ok = true;
    for (size_t i = 1; i < n && ok; i++) {
        r->name = (ct_gguf_text){order[i]->name, strlen(order[i]->name)};
        ok = gguf_compare_names(&order[i - 1], &order[i]) != 0 || gguf_refuse(r, "it comes twice");
    }
    if (ok) qsort(order, n, sizeof *order, gguf_compare_offsets);
    for (size_t i = 1; i < n && ok; i++) {
        const ct_gguf_tensor *t = order[i - 1];
        r->name = (ct_gguf_text){order[i]->name, strlen(order[i]->name)};
        ok =
            order[i]->at - t->at >= t->bytes ||
            gguf_refuse(r, "it begins at byte %" PRIu64 " of the file, inside tensor \"%s\"",
                        order[i]->at, ct__printable(t->name, strlen(t->name), other, sizeof other));
    }
    ct__free(order);
    return ok;
}

static bool gguf_read_tensors(reader *r, uint64_t n) {
    ct_gguf *g = r->g;
    if (n > MAX_TENSORS)
        return gguf_refuse(r, "%" PRIu64 " tensors by its header, at most %d are read", n,
                           MAX_TENSORS);
    g->tensors = ct__arena_zero(&g->arena, n * sizeof *g->tensors);
    if (!g->tensors) return gguf_refuse_memory(r, n * sizeof *g->tensors);
    r->what = "tensor";
    r->n = n;
    for (r->i = 0; r->i < n; r->i++)
        if (!gguf_read_tensor(r, &g->tensors[r->i])) return false;
    g->n = n;
    uint64_t rest = gguf_offset(r) % g->alignment;
    return gguf_check_offsets(r, gguf_offset(r) + (rest ? g->alignment - rest : 0)) &&
           gguf_check_overlap(r);
}

// --------------------------------------------------------------------------------------------- file

static bool gguf_read_alignment(reader *r) {
    int64_t value = 32;
    if (ct__gguf_find(r->g, "general.alignment") &&
        !ct__gguf_int(r->g, "general.alignment", 1, UINT32_MAX, &value, r->err))
        return false;
    r->g->alignment = (uint64_t)value;
    return (value & (value - 1)) == 0 ||
           gguf_refuse(r, "key \"general.alignment\": %" PRId64 " is no power of 2", value);
}

static bool gguf_read_all(reader *r) {
    char shown[CT_PRINTABLE];
    uint32_t version = 0;
    uint64_t counts[2]; // tensors, keys
    if (gguf_bytes_left(r) < 4 || memcmp(r->at, "GGUF", 4) != 0)
        return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->g->label,
                       "this is no GGUF file: it begins with \"%s\"",
                       ct__printable(r->at, gguf_bytes_left(r) < 4 ? gguf_bytes_left(r) : 4, shown,
                                     sizeof shown));
    r->at += 4;
    if (!gguf_read(r, "its version", &version, sizeof version)) return false;
    if (version && !(version & 0xffff))
        return gguf_refuse(
            r, "its numbers have the other byte order (big-endian), which is not supported");
    if (version != 2 && version != 3)
        return gguf_refuse(r, "version %" PRIu32 " is not supported, 2 and 3 are", version);
    r->g->version = version;
    return gguf_read(r, "its header", counts, sizeof counts) && gguf_read_pairs(r, counts[1]) &&
           gguf_read_alignment(r) && gguf_read_tensors(r, counts[0]);
}

bool ct__gguf_parse(const char *label, const void *bytes, size_t n, ct_gguf *gguf, ct_err *err) {
    *gguf = (ct_gguf){.label = label};
    reader r = {.g = gguf,
                .start = bytes,
                .at = bytes,
                .end = (const unsigned char *)bytes + n,
                .err = err};
    bool ok = gguf_read_all(&r);
    if (!ok) ct__gguf_close(gguf);
    return ok;
}

void ct__gguf_close(ct_gguf *gguf) {
    ct__arena_free(&gguf->arena);
    *gguf = (ct_gguf){0};
}

bool ct__gguf_open(const char *path, ct_gguf_file *file, ct_err *err) {
    *file = (ct_gguf_file){0};
    if (ct__file_map(path, &file->map, &file->n, err) &&
        ct__gguf_parse(path, file->map ? file->map : "", file->n, &file->gguf, err))
        return true;
    ct__gguf_file_close(file);
    return false;
}
void ct__gguf_file_close(ct_gguf_file *file) {
    ct__gguf_close(&file->gguf);
    ct__file_unmap(file->map, file->n);
    *file = (ct_gguf_file){0};
}

// ------------------------------------------------------------------------------------------ values

const ct_gguf_pair *ct__gguf_find(const ct_gguf *gguf, const char *key) {
    const ct_gguf_pair wanted = {.key = {key, strlen(key)}};
    if (!gguf->n_pairs) return NULL;
    return bsearch(&wanted, gguf->pairs, gguf->n_pairs, sizeof *gguf->pairs, gguf_compare_keys);
}

static const ct_gguf_pair *gguf_find_required(const ct_gguf *g, const char *key, ct_err *err) {
    const ct_gguf_pair *pair = ct__gguf_find(g, key);
    if (!pair) ct__err_part(err, g->label, "gguf", "key \"%s\" is missing", key);
    return pair;
}

static bool gguf_refuse_type(const ct_gguf *g, const ct_gguf_pair *pair, const char *key,
                             const char *wanted, ct_err *err) {
    const char *of = types[pair->value.type].name;
    if (pair->type == CT_GGUF_ARRAY)
        return ct__err_part(err, g->label, "gguf", "key \"%s\" is an array of %s, not %s", key, of,
                            wanted);
    return ct__err_part(err, g->label, "gguf", "key \"%s\" is of type %s, not %s", key, of, wanted);
}

static bool gguf_is_integer(ct_gguf_type type) {
    return type <= CT_GGUF_I32 || type == CT_GGUF_U64 || type == CT_GGUF_I64;
}
static bool gguf_is_number(ct_gguf_type type) {
    return gguf_is_integer(type) || type == CT_GGUF_F32 || type == CT_GGUF_F64;
}

int64_t ct__gguf_list_int(const ct_gguf_list *list, uint64_t i) {
    const unsigned char *p = list->at + i * types[list->type].bytes;
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        uint64_t u64;
        int64_t i64;
    } v;
    memcpy(&v, p, types[list->type].bytes);
    switch (list->type) {
    case CT_GGUF_U8: return v.u8;
    case CT_GGUF_I8: return v.i8;
    case CT_GGUF_U16: return v.u16;
    case CT_GGUF_I16: return v.i16;
    case CT_GGUF_U32: return v.u32;
    case CT_GGUF_I32: return v.i32;
    case CT_GGUF_U64: return v.u64 > INT64_MAX ? INT64_MAX : v.i64;
    case CT_GGUF_I64: return v.i64;
    case CT_GGUF_BOOL: return v.u8 != 0;
    default: return 0;
    }
}

double ct__gguf_list_real(const ct_gguf_list *list, uint64_t i) {
    float single;
    double real;
    if (list->type == CT_GGUF_F32) {
        memcpy(&single, list->at + i * sizeof single, sizeof single);
        return (double)single;
    }
    if (list->type != CT_GGUF_F64) return (double)ct__gguf_list_int(list, i);
    memcpy(&real, list->at + i * sizeof real, sizeof real);
    return real;
}

bool ct__gguf_int(const ct_gguf *g, const char *key, int64_t low, int64_t high, int64_t *value,
                  ct_err *err) {
    const ct_gguf_pair *pair = gguf_find_required(g, key, err);
    if (!pair) return false;
    if (!gguf_is_integer(pair->type)) return gguf_refuse_type(g, pair, key, "an integer", err);
    int64_t v = ct__gguf_list_int(&pair->value, 0);
    if (v < low || v > high)
        return ct__err_part(err, g->label, "gguf",
                            "key \"%s\" is %" PRId64 ", not from %" PRId64 " to %" PRId64, key, v,
                            low, high);
    *value = v;
    return true;
}

bool ct__gguf_real(const ct_gguf *g, const char *key, double *value, ct_err *err) {
    const ct_gguf_pair *pair = gguf_find_required(g, key, err);
    if (!pair) return false;
    if (!gguf_is_number(pair->type)) return gguf_refuse_type(g, pair, key, "a number", err);
    *value = ct__gguf_list_real(&pair->value, 0);
    return true;
}

bool ct__gguf_bool(const ct_gguf *g, const char *key, bool *value, ct_err *err) {
    const ct_gguf_pair *pair = gguf_find_required(g, key, err);
    if (!pair) return false;
    if (pair->type != CT_GGUF_BOOL) return gguf_refuse_type(g, pair, key, "a bool", err);
    *value = ct__gguf_list_int(&pair->value, 0) != 0;
    return true;
}

bool ct__gguf_text(const ct_gguf *g, const char *key, ct_gguf_text *value, ct_err *err) {
    const ct_gguf_pair *pair = gguf_find_required(g, key, err);
    if (!pair) return false;
    if (pair->type != CT_GGUF_STRING) return gguf_refuse_type(g, pair, key, "a string", err);
    ct_gguf_list list = pair->value;
    return ct__gguf_next(&list, value);
}

bool ct__gguf_list(const ct_gguf *g, const char *key, ct_gguf_type type, ct_gguf_list *value,
                   ct_err *err) {
    const ct_gguf_pair *pair = gguf_find_required(g, key, err);
    char wanted[40];
    if (!pair) return false;
    snprintf(wanted, sizeof wanted, "an array of %s", types[type].name);
    if (pair->type != CT_GGUF_ARRAY || pair->value.type != type)
        return gguf_refuse_type(g, pair, key, wanted, err);
    *value = pair->value;
    return true;
}

// The end is checked again: another process may have changed the lengths in the file.
bool ct__gguf_next(ct_gguf_list *list, ct_gguf_text *text) {
    uint64_t n;
    if (!list->n || (uint64_t)(list->end - list->at) < sizeof n) return false;
    memcpy(&n, list->at, sizeof n);
    list->at += sizeof n;
    if (n > (uint64_t)(list->end - list->at)) return false;
    *text = (ct_gguf_text){(const char *)list->at, n};
    list->at += n;
    list->n--;
    return true;
}
