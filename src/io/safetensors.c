#include "io/safetensors.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/text.h"
#include "graph/type.h"
#include "io/crc32c.h"
#include "io/jscan.h"
#include "io/json.h"
#include "io/utf8.h"

// The format's element types in its order, which is the order of alignment. Types that Cotan lacks
// are checked, listed and found, too.
static const struct element_type {
    const char *name, *lower;
    int bits;
} element_types[] = {
    {"BOOL", "bool", 8},
    {"F4", "f4", 4},
    {"F6_E2M3", "f6_e2m3", 6},
    {"F6_E3M2", "f6_e3m2", 6},
    {"U8", "u8", 8},
    {"I8", "i8", 8},
    {"F8_E5M2", "f8_e5m2", 8},
    {"F8_E4M3", "f8_e4m3", 8},
    {"F8_E8M0", "f8_e8m0", 8},
    {"F8_E4M3FNUZ", "f8_e4m3fnuz", 8},
    {"F8_E5M2FNUZ", "f8_e5m2fnuz", 8},
    {"I16", "i16", 16},
    {"U16", "u16", 16},
    {"F16", "f16", 16},
    {"BF16", "bf16", 16},
    {"I32", "i32", 32},
    {"U32", "u32", 32},
    {"F32", "f32", 32},
    {"C64", "c64", 64},
    {"F64", "f64", 64},
    {"I64", "i64", 64},
    {"U64", "u64", 64},
};
enum { N_ELEMENT_TYPES = sizeof element_types / sizeof element_types[0], MAX_HEADER = 100000000 };

typedef struct reader {
    ct_jscan js;
    const char *label;
    ct_st *st;
    ct_err *err;
    size_t cap, metadata_cap; // of the growing lists, which are copied into the arena at the end
    ct_st_entry *entries;
    ct_st_pair *metadata;
    uint64_t *dims;
    size_t dims_cap;
} reader;

#define st_refuse(r, ...) ct__err_part((r)->err, (r)->label, "safetensors", __VA_ARGS__)

static bool st_refuse_memory(reader *r, size_t bytes) {
    return ct__err_memory(r->err, CT_NOWHERE, r->label, bytes);
}

// Reports an error that begins with the tensor's name.
__attribute__((format(printf, 3, 4))) static bool st_refuse_tensor(reader *r, ct_jstr name,
                                                                   const char *format, ...) {
    char text[512], shown[CT_PRINTABLE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return st_refuse(r, "tensor \"%s\": %s", ct__printable(name.s, name.n, shown, sizeof shown),
                     text);
}

// Reports the scanner's error, with its offset in the file.
static bool st_refuse_json(reader *r) {
    if (r->js.is_out_of_memory) return st_refuse_memory(r, (size_t)(r->js.end - r->js.start));
    return st_refuse(r, "the header is not JSON: %s at byte %zu of the file",
                     r->js.error ? r->js.error : "a value was expected",
                     8 + (size_t)(r->js.at - r->js.start));
}

static bool st_read_colon(reader *r) {
    return ct__js_take(&r->js, ':') || (ct__js_fail(&r->js, "':' was expected"), st_refuse_json(r));
}

static bool st_read_metadata(reader *r) {
    char kind = ct__js_kind(&r->js), shown[CT_PRINTABLE];
    if (kind == 'n') return ct__js_skip(&r->js, 1) || st_refuse_json(r);
    if (kind == 0) return st_refuse_json(r);
    if (kind != '{')
        return st_refuse(r, "__metadata__ is %s, not an object", ct__js_kind_name(kind));
    ct__js_take(&r->js, '{');
    for (bool first = true; ct__js_member(&r->js, '}', &first);) {
        ct_jstr key, value;
        if (!ct__js_string(&r->js, &key)) return st_refuse_json(r);
        if (!st_read_colon(r)) return false;
        kind = ct__js_kind(&r->js);
        if (kind != '"' && kind != 0)
            return st_refuse(r, "__metadata__: the value of \"%s\" is %s, not a string",
                             ct__printable(key.s, key.n, shown, sizeof shown),
                             ct__js_kind_name(kind));
        if (!ct__js_string(&r->js, &value)) return st_refuse_json(r);
        if (!CT_GROW(r->metadata, r->metadata_cap, r->st->n_metadata + 1))
            return st_refuse_memory(r, r->metadata_cap * 2 * sizeof *r->metadata);
        r->metadata[r->st->n_metadata++] = (ct_st_pair){key.s, value.s, key.n, value.n};
    }
    return !r->js.error || st_refuse_json(r);
}

// Returns CT_DEFAULT if Cotan lacks the type.
static ct_dtype st_dtype_from_name(const char *name) {
    for (ct_dtype d = CT_DEFAULT + 1; d < CT_DTYPE_COUNT; d++)
        if (ct__dtype(d)->safetensors && strcmp(ct__dtype(d)->safetensors, name) == 0) return d;
    return CT_DEFAULT;
}

static bool st_read_dtype(reader *r, ct_jstr name, ct_st_entry *e) {
    char kind = ct__js_kind(&r->js), shown[CT_PRINTABLE];
    ct_jstr type;
    if (kind == 0) return st_refuse_json(r);
    if (kind != '"')
        return st_refuse_tensor(r, name, "dtype is %s, not a string", ct__js_kind_name(kind));
    if (!ct__js_string(&r->js, &type)) return st_refuse_json(r);
    for (int k = 0; k < N_ELEMENT_TYPES; k++)
        if (strlen(element_types[k].name) == type.n &&
            memcmp(element_types[k].name, type.s, type.n) == 0) {
            e->kind = element_types[k].name;
            e->kind_index = k;
            e->dtype = st_dtype_from_name(element_types[k].name);
            e->bits = element_types[k].bits;
            return true;
        }
    return st_refuse_tensor(r, name, "unknown dtype \"%s\"",
                            ct__printable(type.s, type.n, shown, sizeof shown));
}

// Reads an array of integers into r->dims; `what` names the key in errors.
static bool st_read_integers(reader *r, ct_jstr name, const char *what, size_t *n) {
    char kind = ct__js_kind(&r->js), shown[CT_PRINTABLE];
    *n = 0;
    if (kind == 0) return st_refuse_json(r);
    if (kind != '[')
        return st_refuse_tensor(r, name, "%s is %s, not an array", what, ct__js_kind_name(kind));
    ct__js_take(&r->js, '[');
    for (bool first = true, is_u64; ct__js_member(&r->js, ']', &first); ++*n) {
        kind = ct__js_kind(&r->js);
        if (kind == 0) return st_refuse_json(r);
        if (kind != '0')
            return st_refuse_tensor(r, name, "%s[%zu] is %s, not a number", what, *n,
                                    ct__js_kind_name(kind));
        if (!CT_GROW(r->dims, r->dims_cap, *n + 1))
            return st_refuse_memory(r, r->dims_cap * 2 * sizeof *r->dims);
        const char *text = r->js.at;
        if (!ct__js_number(&r->js, &r->dims[*n], &is_u64)) return st_refuse_json(r);
        if (!is_u64)
            return st_refuse_tensor(
                r, name, "%s[%zu] is %s, not an integer from 0 to %" PRIu64, what, *n,
                ct__printable(text, (size_t)(r->js.at - text), shown, sizeof shown), UINT64_MAX);
    }
    return !r->js.error || st_refuse_json(r);
}

static bool st_read_shape(reader *r, ct_jstr name, ct_st_entry *e) {
    if (!st_read_integers(r, name, "shape", &e->rank)) return false;
    uint64_t *shape = ct__arena(&r->st->arena, e->rank * sizeof *shape);
    if (!shape) return st_refuse_memory(r, e->rank * sizeof *shape);
    if (e->rank) memcpy(shape, r->dims, e->rank * sizeof *shape);
    e->shape = shape;
    return true;
}

static bool st_read_offsets(reader *r, ct_jstr name, ct_st_entry *e) {
    size_t n;
    if (!st_read_integers(r, name, "data_offsets", &n)) return false;
    if (n != 2)
        return st_refuse_tensor(r, name, "data_offsets has %zu numbers, not 2: begin and end", n);
    if (r->dims[1] < r->dims[0])
        return st_refuse_tensor(
            r, name, "data_offsets begin at byte %" PRIu64 " and end before it, at byte %" PRIu64,
            r->dims[0], r->dims[1]);
    e->begin = r->dims[0];
    e->bytes = r->dims[1] - r->dims[0];
    return true;
}

static const char *const field_names[] = {"dtype", "shape", "data_offsets"};

static bool st_read_field(reader *r, ct_jstr name, ct_st_entry *e, unsigned *seen) {
    ct_jstr key;
    if (!ct__js_string(&r->js, &key)) return st_refuse_json(r);
    if (!st_read_colon(r)) return false;
    for (unsigned f = 0; f < 3; f++) {
        if (strlen(field_names[f]) != key.n || memcmp(field_names[f], key.s, key.n) != 0) continue;
        if (*seen & 1u << f) return st_refuse_tensor(r, name, "%s appears twice", field_names[f]);
        *seen |= 1u << f;
        return f == 0   ? st_read_dtype(r, name, e)
               : f == 1 ? st_read_shape(r, name, e)
                        : st_read_offsets(r, name, e);
    }
    // Keys that the format may add later are checked as JSON and ignored, as the reference does.
    return ct__js_skip(&r->js, 2) || st_refuse_json(r);
}

static bool st_read_tensor(reader *r, ct_jstr name) {
    ct_st_entry e = {.name = name.s, .name_n = name.n};
    unsigned seen = 0;
    char kind = ct__js_kind(&r->js);
    if (kind == 0) return st_refuse_json(r);
    if (kind != '{')
        return st_refuse_tensor(r, name, "its description is %s, not an object",
                                ct__js_kind_name(kind));
    ct__js_take(&r->js, '{');
    for (bool first = true; ct__js_member(&r->js, '}', &first);)
        if (!st_read_field(r, name, &e, &seen)) return false;
    if (r->js.error) return st_refuse_json(r);
    for (unsigned f = 0; f < 3; f++)
        if (!(seen & 1u << f)) return st_refuse_tensor(r, name, "%s is missing", field_names[f]);
    if (!CT_GROW(r->entries, r->cap, r->st->n + 1))
        return st_refuse_memory(r, r->cap * 2 * sizeof *r->entries);
    r->entries[r->st->n++] = e;
    return true;
}

static bool st_read_header(reader *r) {
    bool seen_metadata = false;
    ct__js_take(&r->js, '{');
    for (bool first = true; ct__js_member(&r->js, '}', &first);) {
        ct_jstr key;
        if (!ct__js_string(&r->js, &key)) return st_refuse_json(r);
        if (!st_read_colon(r)) return false;
        if (key.n != 12 || memcmp(key.s, "__metadata__", 12) != 0) {
            if (!st_read_tensor(r, key)) return false;
            continue;
        }
        if (seen_metadata) return st_refuse(r, "__metadata__ appears twice");
        seen_metadata = true;
        if (!st_read_metadata(r)) return false;
    }
    if (r->js.error) return st_refuse_json(r);
    if (ct__js_kind(&r->js) || r->js.at != r->js.end) {
        ct__js_fail(&r->js, "text after the closing '}'");
        return st_refuse_json(r);
    }
    return true;
}

static int st_compare_bytes(const char *a, size_t an, const char *b, size_t bn) {
    int c = memcmp(a, b, an < bn ? an : bn);
    return c ? c : (an > bn) - (an < bn);
}

static int st_compare_names(const void *a, const void *b) {
    const ct_st_entry *x = *(ct_st_entry *const *)a, *y = *(ct_st_entry *const *)b;
    return st_compare_bytes(x->name, x->name_n, y->name, y->name_n);
}

static int st_compare_keys(const void *a, const void *b) {
    const ct_st_pair *x = a, *y = b;
    return st_compare_bytes(x->key, x->key_n, y->key, y->key_n);
}

static int st_compare_offsets(const void *a, const void *b) {
    const ct_st_entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return st_compare_bytes(x->name, x->name_n, y->name, y->name_n);
}

// Copies the lists into the arena and sorts them. Unlike a hash table, sorting has no slow inputs.
static bool st_sort_lists(reader *r) {
    ct_st *st = r->st;
    char shown[CT_PRINTABLE];
    st->entries = ct__arena(&st->arena, st->n * sizeof *st->entries);
    st->by_name = ct__arena(&st->arena, st->n * sizeof *st->by_name);
    st->metadata = ct__arena(&st->arena, st->n_metadata * sizeof *st->metadata);
    if (!st->entries || !st->by_name || !st->metadata)
        return st_refuse_memory(r, st->n * sizeof *st->entries);
    if (st->n) memcpy(st->entries, r->entries, st->n * sizeof *st->entries);
    if (st->n_metadata) memcpy(st->metadata, r->metadata, st->n_metadata * sizeof *st->metadata);
    qsort(st->entries, st->n, sizeof *st->entries, st_compare_offsets);
    for (size_t i = 0; i < st->n; i++) st->by_name[i] = &st->entries[i];
    qsort(st->by_name, st->n, sizeof *st->by_name, st_compare_names);
    qsort(st->metadata, st->n_metadata, sizeof *st->metadata, st_compare_keys);
    for (size_t i = 1; i < st->n; i++)
        if (st_compare_names(&st->by_name[i - 1], &st->by_name[i]) == 0)
            return st_refuse(
                r, "tensor \"%s\" appears twice",
                ct__printable(st->by_name[i]->name, st->by_name[i]->name_n, shown, sizeof shown));
    for (size_t i = 1; i < st->n_metadata; i++)
        if (st_compare_keys(&st->metadata[i - 1], &st->metadata[i]) == 0)
            return st_refuse(
                r, "__metadata__: key \"%s\" appears twice",
                ct__printable(st->metadata[i].key, st->metadata[i].key_n, shown, sizeof shown));
    return true;
}

const char *ct__st_describe(const ct_st_entry *e, char *out, size_t cap) {
    const char *dtype = e->dtype ? ct_dtype_name(e->dtype) : element_types[e->kind_index].lower;
    return ct__shape_text(out, cap, dtype, e->rank, e->shape, 0);
}

// Computes the size in bytes from dtype and shape. Products are taken in order and may not
// overflow, even if a later dimension is 0, as in the reference.
static bool st_compute_size(reader *r, const ct_st_entry *e, uint64_t *bytes) {
    ct_jstr name = {e->name, e->name_n};
    char what[200];
    uint64_t count = 1;
    bool fits = true;
    for (size_t i = 0; i < e->rank && fits; i++)
        fits = !__builtin_mul_overflow(count, e->shape[i], &count);
    if (!fits || __builtin_mul_overflow(count, (uint64_t)e->bits, &count))
        return st_refuse_tensor(r, name, "the size of %s in bits overflows 64 bits",
                                ct__st_describe(e, what, sizeof what));
    if (count % 8)
        return st_refuse_tensor(r, name, "%s takes %" PRIu64 " bits, not a whole number of bytes",
                                ct__st_describe(e, what, sizeof what), count);
    *bytes = count / 8;
    return true;
}

// Checks that every byte after the header belongs to exactly one tensor. `data`: these bytes, or
// NULL.
static bool st_check_offsets(reader *r, const char *data, uint64_t data_n) {
    uint64_t end = 0, need = 0;
    char what[200], before[CT_PRINTABLE];
    for (size_t i = 0; i < r->st->n; i++) {
        ct_st_entry *e = &r->st->entries[i];
        ct_jstr name = {e->name, e->name_n};
        if (e->begin > end)
            return st_refuse_tensor(r, name,
                                    "it begins at byte %" PRIu64
                                    " of the data, but what is before it ends "
                                    "at %" PRIu64 ": the bytes between belong to no tensor",
                                    e->begin, end);
        if (e->begin < end)
            return st_refuse_tensor(
                r, name,
                "it begins at byte %" PRIu64
                " of the data, inside tensor \"%s\", which ends at %" PRIu64,
                e->begin, ct__printable(e[-1].name, e[-1].name_n, before, sizeof before), end);
        if (!st_compute_size(r, e, &need)) return false;
        if (need != e->bytes)
            return st_refuse_tensor(r, name,
                                    "bytes %" PRIu64 " to %" PRIu64 " are %" PRIu64
                                    " bytes, but %s takes %" PRIu64,
                                    e->begin, e->begin + e->bytes, e->bytes,
                                    ct__st_describe(e, what, sizeof what), need);
        end += e->bytes;
        if (end > data_n)
            return st_refuse_tensor(r, name,
                                    "it ends at byte %" PRIu64
                                    " of the data, but the file holds %" PRIu64
                                    " bytes of data: it is cut short",
                                    end, data_n);
        if (data) e->data = data + e->begin;
    }
    if (end < data_n)
        return st_refuse(r,
                         "the tensors end at byte %" PRIu64
                         " of the data, but the file holds %" PRIu64 " bytes of data: %" PRIu64
                         " at the end belong to no tensor",
                         end, data_n, data_n - end);
    return true;
}

// Reads the header's size from the first bytes of the file of n bytes.
static bool st_read_header_size(reader *r, const unsigned char *bytes, size_t n, size_t *header) {
    uint64_t length = 0;
    if (n < 8)
        return st_refuse(r, "the file has %zu bytes, but the length of the header alone takes 8",
                         n);
    for (int i = 7; i >= 0; i--) length = length << 8 | bytes[i];
    if (length > MAX_HEADER)
        return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->label,
                       "this is no safetensors file: its header would take %" PRIu64
                       " bytes, at most %d are allowed",
                       length, MAX_HEADER);
    if (length > n - 8)
        return st_refuse(r,
                         "the header takes %" PRIu64
                         " bytes by its length, but only %zu follow: the "
                         "file is cut short",
                         length, n - 8);
    *header = (size_t)length;
    return length > 0 || st_refuse(r, "the header is empty");
}

static bool st_check_text(reader *r, const char *header, size_t n) {
    size_t bad = ct__utf8_bad(header, n);
    if (bad < n) return st_refuse(r, "the header is not UTF-8 at byte %zu of the file", 8 + bad);
    char shown[CT_PRINTABLE];
    return header[0] == '{' || st_refuse(r, "the header begins with \"%s\", not with '{'",
                                         ct__printable(header, 1, shown, sizeof shown));
}

static bool st_read_all(reader *r, const char *header, size_t n, const char *data,
                        uint64_t data_n) {
    ct_st *st = r->st;
    r->js = (ct_jscan){.start = header, .at = header, .end = header + n, .arena = &st->arena};
    bool ok = st_check_text(r, header, n) && st_read_header(r) && st_sort_lists(r) &&
              st_check_offsets(r, data, data_n);
    st->header = header;
    st->header_n = n;
    ct__free(r->entries);
    ct__free(r->metadata);
    ct__free(r->dims);
    return ok;
}

bool ct__st_parse(const char *label, const void *bytes, size_t n, ct_st *st, ct_err *err) {
    *st = (ct_st){0};
    reader r = {.label = label, .st = st, .err = err};
    const char *text = (const char *)bytes + 8;
    size_t header = 0;
    bool ok = st_read_header_size(&r, bytes, n, &header) &&
              st_read_all(&r, text, header, text + header, n - 8 - header);
    if (!ok) ct__st_close(st);
    return ok;
}

bool ct__st_open(const char *path, ct_st *st, ct_err *err) {
    *st = (ct_st){0};
    reader r = {.label = path, .st = st, .err = err};
    unsigned char first[8];
    size_t header = 0;
    bool ok = ct__file_handle_open(path, &st->file, err);
    uint64_t n = st->file.n;
    ok = ok && ct__file_read_at(&st->file, 0, first, n < 8 ? (size_t)n : 8, err) &&
         st_read_header_size(&r, first, (size_t)n, &header);
    char *text = ok ? ct__arena(&st->arena, header) : NULL;
    if (ok && !text) ok = st_refuse_memory(&r, header);
    ok = ok && ct__file_read_at(&st->file, 8, text, header, err) &&
         st_read_all(&r, text, header, NULL, n - 8 - header);
    if (!ok) ct__st_close(st);
    return ok;
}

void ct__st_close(ct_st *st) {
    if (st->file.path) ct__file_handle_close(&st->file);
    ct__arena_free(&st->arena);
    *st = (ct_st){0};
}

const ct_st_entry *ct__st_find(const ct_st *st, const char *name) {
    size_t low = 0, high = st->n, n = strlen(name);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const ct_st_entry *e = st->by_name[middle];
        int c = st_compare_bytes(e->name, e->name_n, name, n);
        if (c == 0) return e;
        if (c < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

bool ct__st_next_chunk(const ct_st *st, const ct_st_entry *entry, ct_st_chunk *chunk, ct_err *err) {
    chunk->at += chunk->n;
    uint64_t left = entry->bytes - chunk->at;
    chunk->n = left < sizeof chunk->buffer ? (size_t)left : sizeof chunk->buffer;
    chunk->bytes = st->file.path ? chunk->buffer : (const char *)entry->data + chunk->at;
    uint64_t offset = 8 + st->header_n + entry->begin + chunk->at;
    return !st->file.path || ct__file_read_at(&st->file, offset, chunk->buffer, chunk->n, err);
}

const char *ct__st_metadata(const ct_st *st, const char *key) {
    ct_st_pair wanted = {.key = key, .key_n = strlen(key)};
    const ct_st_pair *found = st->n_metadata ? bsearch(&wanted, st->metadata, st->n_metadata,
                                                       sizeof *st->metadata, st_compare_keys)
                                             : NULL;
    return found ? found->value : NULL;
}

// ------------------------------------------------------------------------------------------ writer

typedef struct writer {
    const char *path;
    ct_err *err;
    const ct_st_out **order;
    ct_st_pair *metadata;
    bool has_checksum; // the header contains its own checksum
    ct_text header;
} writer;

static bool st_refuse_write(writer *w, const char *name, const char *what) {
    char shown[CT_PRINTABLE];
    return ct__err(w->err, CT_E_ARGUMENT, CT_NOWHERE, w->path, "safetensors: tensor \"%s\": %s",
                   ct__printable(name, strlen(name), shown, sizeof shown), what);
}

static int st_type_index(ct_dtype dtype) {
    const char *name = ct__dtype(dtype)->safetensors;
    for (int k = 0; k < N_ELEMENT_TYPES && name; k++)
        if (strcmp(element_types[k].name, name) == 0) return k;
    return -1;
}

static int st_compare_alignment(const void *a, const void *b) {
    const ct_st_out *x = *(ct_st_out *const *)a, *y = *(ct_st_out *const *)b;
    int difference = st_type_index(y->dtype) - st_type_index(x->dtype);
    return difference ? difference : strcmp(x->name, y->name);
}

static bool st_out_size(writer *w, const ct_st_out *e, uint64_t *bytes) {
    uint64_t count = 1;
    for (size_t i = 0; i < e->rank; i++) {
        if (e->shape[i] < 0) return st_refuse_write(w, e->name, "a dimension is negative");
        if (__builtin_mul_overflow(count, (uint64_t)e->shape[i], &count))
            return st_refuse_write(w, e->name, "its size overflows 64 bits");
    }
    if (__builtin_mul_overflow(count, (uint64_t)element_types[st_type_index(e->dtype)].bits,
                               &count))
        return st_refuse_write(w, e->name, "its size overflows 64 bits");
    if (count % 8) return st_refuse_write(w, e->name, "its elements fill no whole number of bytes");
    *bytes = count / 8;
    if (*bytes && !e->data) return st_refuse_write(w, e->name, "it has no data");
    return true;
}

static bool st_put_metadata(writer *w, size_t n) {
    char shown[CT_PRINTABLE];
    ct__text_add(&w->header, "\"__metadata__\":{");
    for (size_t i = 0; i < n; i++) {
        const ct_st_pair *p = &w->metadata[i];
        if (ct__utf8_bad(p->key, p->key_n) < p->key_n ||
            ct__utf8_bad(p->value, p->value_n) < p->value_n)
            return ct__err(w->err, CT_E_ARGUMENT, CT_NOWHERE, w->path,
                           "safetensors: __metadata__: key \"%s\" or its value is not UTF-8",
                           ct__printable(p->key, p->key_n, shown, sizeof shown));
        if (i && st_compare_keys(p - 1, p) == 0)
            return ct__err(w->err, CT_E_ARGUMENT, CT_NOWHERE, w->path,
                           "safetensors: __metadata__: key \"%s\" is given twice",
                           ct__printable(p->key, p->key_n, shown, sizeof shown));
        if (i) ct__text_add(&w->header, ",");
        ct__json_string(&w->header, p->key, p->key_n);
        ct__text_add(&w->header, ":");
        ct__json_string(&w->header, p->value, p->value_n);
    }
    ct__text_add(&w->header, "}");
    return true;
}

static bool st_put_entry(writer *w, const ct_st_out *e, uint64_t *at) {
    uint64_t bytes, end;
    size_t n = strlen(e->name);
    if (st_type_index(e->dtype) < 0) {
        st_refuse_write(w, e->name, "the format has no name for its dtype");
        if (e->dtype == CT_I4 || e->dtype == CT_U4)
            ct__err_hint(w->err, "save it wider: ct_cast(x, CT_%s)",
                         e->dtype == CT_I4 ? "I8" : "U8");
        return false;
    }
    if (ct__utf8_bad(e->name, n) < n) return st_refuse_write(w, e->name, "its name is not UTF-8");
    if (strcmp(e->name, "__metadata__") == 0)
        return st_refuse_write(w, e->name, "this name is reserved by the format");
    if (!st_out_size(w, e, &bytes)) return false;
    if (__builtin_add_overflow(*at, bytes, &end))
        return st_refuse_write(w, e->name, "its size overflows 64 bits");
    ct__json_string(&w->header, e->name, n);
    ct__textf(&w->header, ":{\"dtype\":\"%s\",\"shape\":[",
              element_types[st_type_index(e->dtype)].name);
    for (size_t i = 0; i < e->rank; i++)
        ct__textf(&w->header, "%s%" PRId64, i ? "," : "", e->shape[i]);
    ct__textf(&w->header, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", *at, end);
    *at = end;
    return true;
}

// The header's own checksum as written in the header, and its form before it is known.
#define CHECKSUM "cotan.crc32c"
static const char header_key[] = "\"" CHECKSUM "\":\"",
                  header_key_zeros[] = "\"" CHECKSUM "\":\"00000000\"";
enum { N_HEADER_KEY = sizeof header_key - 1 };

static void st_set_header_checksum(writer *w) {
    char digits[9],
        *at = strstr(w->header.s, header_key_zeros); // quotes inside strings are escaped
    if (!w->has_checksum || !at) return;
    snprintf(digits, sizeof digits, "%08" PRIx32, ct__crc32c(w->header.s, w->header.n));
    memcpy(at + N_HEADER_KEY, digits, 8);
}

static bool st_put_header(writer *w, size_t n, size_t n_metadata) {
    uint64_t at = 0;
    ct__text_add(&w->header, "{");
    if (n_metadata && !st_put_metadata(w, n_metadata)) return false;
    for (size_t i = 0; i < n; i++) {
        const ct_st_out *e = w->order[i];
        if (i || n_metadata) ct__text_add(&w->header, ",");
        if (!st_put_entry(w, e, &at)) return false;
    }
    ct__text_add(&w->header, "}");
    while (w->header.n % 8 && !w->header.failed) ct__text_add(&w->header, " ");
    if (w->header.failed) return ct__err_memory(w->err, CT_NOWHERE, w->path, w->header.cap * 2);
    if (w->header.n > MAX_HEADER)
        return ct__err(w->err, CT_E_ARGUMENT, CT_NOWHERE, w->path,
                       "safetensors: the header takes %zu bytes, at most %d are allowed",
                       w->header.n, MAX_HEADER);
    st_set_header_checksum(w);
    return true;
}

static int st_compare_out_names(const void *a, const void *b) {
    return strcmp((*(ct_st_out *const *)a)->name, (*(ct_st_out *const *)b)->name);
}

static bool st_put_file(writer *w, size_t n) {
    ct_atomic_file file;
    unsigned char length[8];
    uint64_t bytes;
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)w->header.n >> 8 * i);
    bool ok = ct__atomic_file_begin(&file, w->path, 0, w->err) &&
              ct__atomic_file_write(&file, length, sizeof length, w->err) &&
              ct__atomic_file_write(&file, w->header.s, w->header.n, w->err);
    for (size_t i = 0; i < n && ok; i++)
        ok = st_out_size(w, w->order[i], &bytes) &&
             ct__atomic_file_write(&file, w->order[i]->data, (size_t)bytes, w->err);
    if (ok) return ct__atomic_file_commit(&file, w->err);
    ct__atomic_file_abandon(&file);
    return false;
}

static bool st_write_file(const char *path, const ct_st_out *entries, size_t n,
                          const ct_st_pair *metadata, size_t n_metadata, bool has_checksum,
                          ct_err *err) {
    writer w = {.path = path, .err = err, .has_checksum = has_checksum};
    w.order = ct__calloc(n, sizeof *w.order);
    w.metadata = ct__calloc(n_metadata, sizeof *w.metadata);
    bool ok = w.order && w.metadata;
    if (!ok) ct__err_memory(err, CT_NOWHERE, path, n * sizeof *w.order);
    if (ok && n_metadata) memcpy(w.metadata, metadata, n_metadata * sizeof *metadata);
    if (ok) qsort(w.metadata, n_metadata, sizeof *w.metadata, st_compare_keys);
    for (size_t i = 0; i < n && ok; i++) w.order[i] = &entries[i];
    if (ok) qsort(w.order, n, sizeof *w.order, st_compare_out_names);
    for (size_t i = 1; i < n && ok; i++)
        if (st_compare_out_names(&w.order[i - 1], &w.order[i]) == 0)
            ok = st_refuse_write(&w, w.order[i]->name, "it is given twice");
    if (ok) qsort(w.order, n, sizeof *w.order, st_compare_alignment);
    ok = ok && st_put_header(&w, n, n_metadata) && st_put_file(&w, n);
    ct__text_free(&w.header);
    ct__free(w.order);
    ct__free(w.metadata);
    return ok;
}

bool ct__st_write(const char *path, const ct_st_out *entries, size_t n, const ct_st_pair *metadata,
                  size_t n_metadata, ct_err *err) {
    return st_write_file(path, entries, n, metadata, n_metadata, false, err);
}

// --------------------------------------------------------------------------------------- checksums

static const char tensor_prefix[] = CHECKSUM ".";
enum { N_PREFIX = sizeof tensor_prefix - 1 };

bool ct__st_is_checksum(const ct_st_pair *pair) {
    return (pair->key_n == N_PREFIX - 1 && memcmp(pair->key, CHECKSUM, N_PREFIX - 1) == 0) ||
           (pair->key_n >= N_PREFIX && memcmp(pair->key, tensor_prefix, N_PREFIX) == 0);
}

static char *st_checksum_key(ct_arena *arena, const char *name, size_t n) {
    char *key = ct__arena(arena, N_PREFIX + n + 1);
    if (!key) return NULL;
    memcpy(key, tensor_prefix, N_PREFIX);
    memcpy(key + N_PREFIX, name, n + 1);
    return key;
}

// Adds a tensor's checksum; that of an entry that ct__st_write will reject is arbitrary.
static bool st_add_checksum(ct_arena *arena, const ct_st_out *e, ct_st_pair *pair) {
    writer w = {.path = ""};
    size_t n = strlen(e->name);
    uint64_t bytes = 0;
    if (st_type_index(e->dtype) < 0 || !st_out_size(&w, e, &bytes)) bytes = 0;
    char *key = st_checksum_key(arena, e->name, n);
    char *value = ct__arena_printf(arena, "%08" PRIx32, ct__crc32c(e->data, (size_t)bytes));
    if (!key || !value) return false;
    *pair = (ct_st_pair){key, value, N_PREFIX + n, 8};
    return true;
}

bool ct__st_write_checked(const char *path, const ct_st_out *entries, size_t n,
                          const ct_st_pair *metadata, size_t n_metadata, ct_err *err) {
    CT_ARENA arena = {0};
    size_t count = n + n_metadata + 1;
    ct_st_pair *pairs = ct__arena(&arena, count * sizeof *pairs);
    bool ok = pairs != NULL;
    for (size_t i = 0; i < n && ok; i++) ok = st_add_checksum(&arena, &entries[i], &pairs[i]);
    if (!ok) ct__err_memory(err, CT_NOWHERE, path, count * sizeof *pairs);
    if (ok) {
        if (n_metadata) memcpy(pairs + n, metadata, n_metadata * sizeof *pairs);
        pairs[count - 1] = (ct_st_pair){CHECKSUM, "00000000", N_PREFIX - 1, 8};
    }
    ok = ok && st_write_file(path, entries, n, pairs, count, true, err);
    return ok;
}

__attribute__((format(printf, 4, 5))) static bool
st_refuse_damaged(ct_err *err, const char *label, const ct_st_entry *e, const char *format, ...) {
    char name[CT_PRINTABLE], text[200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!e)
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, label,
                       "safetensors: the header is damaged: %s", text);
    return ct__err(err, CT_E_FORMAT, CT_NOWHERE, label, "safetensors: tensor \"%s\" is damaged: %s",
                   ct__printable(e->name, e->name_n, name, sizeof name), text);
}

// Compares a checksum with the stored one of the tensor, or of the header (e is NULL).
static bool st_compare_checksum(const ct_st *st, const ct_st_entry *e, uint32_t crc,
                                const char *label, ct_err *err) {
    ct_arena arena = {0};
    char stored[CT_PRINTABLE], digits[9];
    char *key = e ? st_checksum_key(&arena, e->name, e->name_n) : CHECKSUM;
    ct_st_pair wanted = {.key = key, .key_n = e ? N_PREFIX + e->name_n : N_PREFIX - 1},
               *pair = NULL;
    if (key && st->n_metadata)
        pair =
            bsearch(&wanted, st->metadata, st->n_metadata, sizeof *st->metadata, st_compare_keys);
    ct__arena_free(&arena);
    if (!key) return ct__err_memory(err, CT_NOWHERE, label, e->name_n);
    if (!pair) return st_refuse_damaged(err, label, e, "it has no checksum");
    snprintf(digits, sizeof digits, "%08" PRIx32, crc);
    if (pair->value_n == 8 && memcmp(pair->value, digits, 8) == 0) return true;
    return st_refuse_damaged(err, label, e, "the CRC-32C of its bytes is %s, not %s", digits,
                             ct__printable(pair->value, pair->value_n, stored, sizeof stored));
}

static bool st_verify_header(const ct_st *st, const char *label, ct_err *err) {
    char *copy = ct__malloc(st->header_n + 1);
    if (!copy) return ct__err_memory(err, CT_NOWHERE, label, st->header_n + 1);
    memcpy(copy, st->header, st->header_n);
    copy[st->header_n] = '\0';
    char *at = strstr(copy, header_key);
    if (at && at + N_HEADER_KEY + 8 <= copy + st->header_n) memset(at + N_HEADER_KEY, '0', 8);
    bool ok = st_compare_checksum(st, NULL, ct__crc32c(copy, st->header_n), label, err);
    ct__free(copy);
    return ok;
}

bool ct__st_verify(const ct_st *st, const char *label, bool required, ct_err *err) {
    bool any = required;
    for (size_t i = 0; i < st->n_metadata && !any; i++) any = ct__st_is_checksum(&st->metadata[i]);
    if (any && !st_verify_header(st, label, err)) return false;
    for (size_t i = 0; i < st->n && any; i++) {
        const ct_st_entry *e = &st->entries[i];
        uint32_t crc = 0;
        bool read = true;
        for (ct_st_chunk p = {0}; (read = ct__st_next_chunk(st, e, &p, err)) && p.n;)
            crc = ct__crc32c_extend(crc, p.bytes, p.n);
        if (!read || !st_compare_checksum(st, e, crc, label, err)) return false;
    }
    return true;
}
