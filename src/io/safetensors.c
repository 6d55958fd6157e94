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

// The format's element types in its order, which is the order of alignment. Those that Cotan lacks
// are still checked, listed and found.
static const struct kind {
    const char *name, *lower;
    int bits;
} kinds[] = {
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
enum { KINDS = sizeof kinds / sizeof kinds[0], LARGEST_HEADER = 100000000 };

typedef struct reader {
    ct_jscan js;
    const char *label;
    ct_st *st;
    ct_err *err;
    size_t cap, metadata_cap; // of the growing lists, copied into the arena at the end
    ct_st_entry *entries;
    ct_st_pair *metadata;
    uint64_t *dims;
    size_t dims_cap;
} reader;

#define refuse(r, ...) ct__err_part((r)->err, (r)->label, "safetensors", __VA_ARGS__)

static bool refuse_memory(reader *r, size_t bytes) {
    return ct__err_memory(r->err, CT_NOWHERE, r->label, bytes);
}

// A refusal that begins with the tensor's name.
__attribute__((format(printf, 3, 4))) static bool refuse_in(reader *r, ct_jstr name,
                                                            const char *format, ...) {
    char text[512], shown[CT_PRINTABLE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return refuse(r, "tensor \"%s\": %s", ct__printable(name.s, name.n, shown, sizeof shown), text);
}

// What the scanner found wrong, with its place in the file.
static bool refuse_json(reader *r) {
    if (r->js.memory) return refuse_memory(r, (size_t)(r->js.end - r->js.start));
    return refuse(r, "the header is not JSON: %s at byte %zu of the file",
                  r->js.wrong ? r->js.wrong : "a value was expected",
                  8 + (size_t)(r->js.at - r->js.start));
}

static bool colon(reader *r) {
    return ct__js_take(&r->js, ':') || (ct__js_fail(&r->js, "':' was expected"), refuse_json(r));
}

static bool read_metadata(reader *r) {
    char kind = ct__js_kind(&r->js), shown[CT_PRINTABLE];
    if (kind == 'n') return ct__js_skip(&r->js, 1) || refuse_json(r);
    if (kind == 0) return refuse_json(r);
    if (kind != '{') return refuse(r, "__metadata__ is %s, not an object", ct__js_kind_name(kind));
    ct__js_take(&r->js, '{');
    for (bool first = true; ct__js_member(&r->js, '}', &first);) {
        ct_jstr key, value;
        if (!ct__js_string(&r->js, &key)) return refuse_json(r);
        if (!colon(r)) return false;
        kind = ct__js_kind(&r->js);
        if (kind != '"' && kind != 0)
            return refuse(r, "__metadata__: the value of \"%s\" is %s, not a string",
                          ct__printable(key.s, key.n, shown, sizeof shown), ct__js_kind_name(kind));
        if (!ct__js_string(&r->js, &value)) return refuse_json(r);
        if (!CT_GROW(r->metadata, r->metadata_cap, r->st->n_metadata + 1))
            return refuse_memory(r, r->metadata_cap * 2 * sizeof *r->metadata);
        r->metadata[r->st->n_metadata++] = (ct_st_pair){key.s, value.s, key.n, value.n};
    }
    return !r->js.wrong || refuse_json(r);
}

// CT_DEFAULT: Cotan has none.
static ct_dtype dtype_of(const char *name) {
    for (ct_dtype d = CT_DEFAULT + 1; d < CT_DTYPE_COUNT; d++)
        if (ct__dtype(d)->safetensors && strcmp(ct__dtype(d)->safetensors, name) == 0) return d;
    return CT_DEFAULT;
}

static bool read_kind(reader *r, ct_jstr name, ct_st_entry *e) {
    char kind = ct__js_kind(&r->js), shown[CT_PRINTABLE];
    ct_jstr word;
    if (kind == 0) return refuse_json(r);
    if (kind != '"') return refuse_in(r, name, "dtype is %s, not a string", ct__js_kind_name(kind));
    if (!ct__js_string(&r->js, &word)) return refuse_json(r);
    for (int k = 0; k < KINDS; k++)
        if (strlen(kinds[k].name) == word.n && memcmp(kinds[k].name, word.s, word.n) == 0) {
            e->kind = kinds[k].name;
            e->kind_rank = k;
            e->dtype = dtype_of(kinds[k].name);
            e->bits = kinds[k].bits;
            return true;
        }
    return refuse_in(r, name, "unknown dtype \"%s\"",
                     ct__printable(word.s, word.n, shown, sizeof shown));
}

// An array of integers into r->dims; `what` names the key.
static bool read_integers(reader *r, ct_jstr name, const char *what, size_t *n) {
    char kind = ct__js_kind(&r->js), shown[CT_PRINTABLE];
    *n = 0;
    if (kind == 0) return refuse_json(r);
    if (kind != '[')
        return refuse_in(r, name, "%s is %s, not an array", what, ct__js_kind_name(kind));
    ct__js_take(&r->js, '[');
    for (bool first = true, is_u64; ct__js_member(&r->js, ']', &first); ++*n) {
        kind = ct__js_kind(&r->js);
        if (kind == 0) return refuse_json(r);
        if (kind != '0')
            return refuse_in(r, name, "%s[%zu] is %s, not a number", what, *n,
                             ct__js_kind_name(kind));
        if (!CT_GROW(r->dims, r->dims_cap, *n + 1))
            return refuse_memory(r, r->dims_cap * 2 * sizeof *r->dims);
        const char *text = r->js.at;
        if (!ct__js_number(&r->js, &r->dims[*n], &is_u64)) return refuse_json(r);
        if (!is_u64)
            return refuse_in(r, name, "%s[%zu] is %s, not an integer from 0 to %" PRIu64, what, *n,
                             ct__printable(text, (size_t)(r->js.at - text), shown, sizeof shown),
                             UINT64_MAX);
    }
    return !r->js.wrong || refuse_json(r);
}

static bool read_shape(reader *r, ct_jstr name, ct_st_entry *e) {
    if (!read_integers(r, name, "shape", &e->rank)) return false;
    uint64_t *shape = ct__arena(&r->st->arena, e->rank * sizeof *shape);
    if (!shape) return refuse_memory(r, e->rank * sizeof *shape);
    if (e->rank) memcpy(shape, r->dims, e->rank * sizeof *shape);
    e->shape = shape;
    return true;
}

static bool read_offsets(reader *r, ct_jstr name, ct_st_entry *e) {
    size_t n;
    if (!read_integers(r, name, "data_offsets", &n)) return false;
    if (n != 2) return refuse_in(r, name, "data_offsets has %zu numbers, not 2: begin and end", n);
    if (r->dims[1] < r->dims[0])
        return refuse_in(
            r, name, "data_offsets begin at byte %" PRIu64 " and end before it, at byte %" PRIu64,
            r->dims[0], r->dims[1]);
    e->begin = r->dims[0];
    e->bytes = r->dims[1] - r->dims[0];
    return true;
}

static const char *const fields[] = {"dtype", "shape", "data_offsets"};

static bool read_field(reader *r, ct_jstr name, ct_st_entry *e, unsigned *seen) {
    ct_jstr key;
    if (!ct__js_string(&r->js, &key)) return refuse_json(r);
    if (!colon(r)) return false;
    for (unsigned f = 0; f < 3; f++) {
        if (strlen(fields[f]) != key.n || memcmp(fields[f], key.s, key.n) != 0) continue;
        if (*seen & 1u << f) return refuse_in(r, name, "%s appears twice", fields[f]);
        *seen |= 1u << f;
        return f == 0   ? read_kind(r, name, e)
               : f == 1 ? read_shape(r, name, e)
                        : read_offsets(r, name, e);
    }
    // Keys that the format may gain later are checked as JSON and ignored, as the reference does.
    return ct__js_skip(&r->js, 2) || refuse_json(r);
}

static bool read_tensor(reader *r, ct_jstr name) {
    ct_st_entry e = {.name = name.s, .name_n = name.n};
    unsigned seen = 0;
    char kind = ct__js_kind(&r->js);
    if (kind == 0) return refuse_json(r);
    if (kind != '{')
        return refuse_in(r, name, "its description is %s, not an object", ct__js_kind_name(kind));
    ct__js_take(&r->js, '{');
    for (bool first = true; ct__js_member(&r->js, '}', &first);)
        if (!read_field(r, name, &e, &seen)) return false;
    if (r->js.wrong) return refuse_json(r);
    for (unsigned f = 0; f < 3; f++)
        if (!(seen & 1u << f)) return refuse_in(r, name, "%s is missing", fields[f]);
    if (!CT_GROW(r->entries, r->cap, r->st->n + 1))
        return refuse_memory(r, r->cap * 2 * sizeof *r->entries);
    r->entries[r->st->n++] = e;
    return true;
}

static bool read_header(reader *r) {
    bool seen_metadata = false;
    ct__js_take(&r->js, '{');
    for (bool first = true; ct__js_member(&r->js, '}', &first);) {
        ct_jstr key;
        if (!ct__js_string(&r->js, &key)) return refuse_json(r);
        if (!colon(r)) return false;
        if (key.n != 12 || memcmp(key.s, "__metadata__", 12) != 0) {
            if (!read_tensor(r, key)) return false;
            continue;
        }
        if (seen_metadata) return refuse(r, "__metadata__ appears twice");
        seen_metadata = true;
        if (!read_metadata(r)) return false;
    }
    if (r->js.wrong) return refuse_json(r);
    if (ct__js_kind(&r->js) || r->js.at != r->js.end) {
        ct__js_fail(&r->js, "text after the closing '}'");
        return refuse_json(r);
    }
    return true;
}

static int compare_bytes(const char *a, size_t an, const char *b, size_t bn) {
    int c = memcmp(a, b, an < bn ? an : bn);
    return c ? c : (an > bn) - (an < bn);
}

static int by_name(const void *a, const void *b) {
    const ct_st_entry *x = *(ct_st_entry *const *)a, *y = *(ct_st_entry *const *)b;
    return compare_bytes(x->name, x->name_n, y->name, y->name_n);
}

static int by_key(const void *a, const void *b) {
    const ct_st_pair *x = a, *y = b;
    return compare_bytes(x->key, x->key_n, y->key, y->key_n);
}

static int by_place(const void *a, const void *b) {
    const ct_st_entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return compare_bytes(x->name, x->name_n, y->name, y->name_n);
}

// The lists into the arena, sorted; sorting, unlike a hash table, has no inputs that make it slow.
static bool settle(reader *r) {
    ct_st *st = r->st;
    char shown[CT_PRINTABLE];
    st->entries = ct__arena(&st->arena, st->n * sizeof *st->entries);
    st->by_name = ct__arena(&st->arena, st->n * sizeof *st->by_name);
    st->metadata = ct__arena(&st->arena, st->n_metadata * sizeof *st->metadata);
    if (!st->entries || !st->by_name || !st->metadata)
        return refuse_memory(r, st->n * sizeof *st->entries);
    if (st->n) memcpy(st->entries, r->entries, st->n * sizeof *st->entries);
    if (st->n_metadata) memcpy(st->metadata, r->metadata, st->n_metadata * sizeof *st->metadata);
    qsort(st->entries, st->n, sizeof *st->entries, by_place);
    for (size_t i = 0; i < st->n; i++) st->by_name[i] = &st->entries[i];
    qsort(st->by_name, st->n, sizeof *st->by_name, by_name);
    qsort(st->metadata, st->n_metadata, sizeof *st->metadata, by_key);
    for (size_t i = 1; i < st->n; i++)
        if (by_name(&st->by_name[i - 1], &st->by_name[i]) == 0)
            return refuse(
                r, "tensor \"%s\" appears twice",
                ct__printable(st->by_name[i]->name, st->by_name[i]->name_n, shown, sizeof shown));
    for (size_t i = 1; i < st->n_metadata; i++)
        if (by_key(&st->metadata[i - 1], &st->metadata[i]) == 0)
            return refuse(
                r, "__metadata__: key \"%s\" appears twice",
                ct__printable(st->metadata[i].key, st->metadata[i].key_n, shown, sizeof shown));
    return true;
}

const char *ct__st_describe(const ct_st_entry *e, char *out, size_t cap) {
    const char *dtype = e->dtype ? ct_dtype_name(e->dtype) : kinds[e->kind_rank].lower;
    return ct__shape_text(out, cap, dtype, e->rank, e->shape, 0);
}

// The bytes that dtype and shape call for. Products are taken in order and may not overflow, even
// where a later dimension is 0: so the reference does.
static bool sized(reader *r, const ct_st_entry *e, uint64_t *bytes) {
    ct_jstr name = {e->name, e->name_n};
    char what[200];
    uint64_t count = 1;
    bool fits = true;
    for (size_t i = 0; i < e->rank && fits; i++)
        fits = !__builtin_mul_overflow(count, e->shape[i], &count);
    if (!fits || __builtin_mul_overflow(count, (uint64_t)e->bits, &count))
        return refuse_in(r, name, "the size of %s in bits overflows 64 bits",
                         ct__st_describe(e, what, sizeof what));
    if (count % 8)
        return refuse_in(r, name, "%s takes %" PRIu64 " bits, not a whole number of bytes",
                         ct__st_describe(e, what, sizeof what), count);
    *bytes = count / 8;
    return true;
}

// Every byte behind the header belongs to exactly one tensor. `data`: these bytes, or NULL.
static bool check_places(reader *r, const char *data, uint64_t data_n) {
    uint64_t end = 0, need = 0;
    char what[200], before[CT_PRINTABLE];
    for (size_t i = 0; i < r->st->n; i++) {
        ct_st_entry *e = &r->st->entries[i];
        ct_jstr name = {e->name, e->name_n};
        if (e->begin > end)
            return refuse_in(r, name,
                             "it begins at byte %" PRIu64
                             " of the data, but what is before it ends "
                             "at %" PRIu64 ": the bytes between belong to no tensor",
                             e->begin, end);
        if (e->begin < end)
            return refuse_in(r, name,
                             "it begins at byte %" PRIu64
                             " of the data, inside tensor \"%s\", which ends at %" PRIu64,
                             e->begin,
                             ct__printable(e[-1].name, e[-1].name_n, before, sizeof before), end);
        if (!sized(r, e, &need)) return false;
        if (need != e->bytes)
            return refuse_in(r, name,
                             "bytes %" PRIu64 " to %" PRIu64 " are %" PRIu64
                             " bytes, but %s takes %" PRIu64,
                             e->begin, e->begin + e->bytes, e->bytes,
                             ct__st_describe(e, what, sizeof what), need);
        end += e->bytes;
        if (end > data_n)
            return refuse_in(r, name,
                             "it ends at byte %" PRIu64 " of the data, but the file holds %" PRIu64
                             " bytes of data: it is cut short",
                             end, data_n);
        if (data) e->data = data + e->begin;
    }
    if (end < data_n)
        return refuse(r,
                      "the tensors end at byte %" PRIu64 " of the data, but the file holds %" PRIu64
                      " bytes of data: %" PRIu64 " at the end belong to no tensor",
                      end, data_n, data_n - end);
    return true;
}

// The fixed part, of which the first bytes of the n are: how long the header is.
static bool measure_header(reader *r, const unsigned char *bytes, size_t n, size_t *header) {
    uint64_t length = 0;
    if (n < 8)
        return refuse(r, "the file has %zu bytes, but the length of the header alone takes 8", n);
    for (int i = 7; i >= 0; i--) length = length << 8 | bytes[i];
    if (length > LARGEST_HEADER)
        return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->label,
                       "this is no safetensors file: its header would take %" PRIu64
                       " bytes, at most %d are allowed",
                       length, LARGEST_HEADER);
    if (length > n - 8)
        return refuse(r,
                      "the header takes %" PRIu64 " bytes by its length, but only %zu follow: the "
                      "file is cut short",
                      length, n - 8);
    *header = (size_t)length;
    return length > 0 || refuse(r, "the header is empty");
}

static bool check_text(reader *r, const char *header, size_t n) {
    size_t bad = ct__utf8_bad(header, n);
    if (bad < n) return refuse(r, "the header is not UTF-8 at byte %zu of the file", 8 + bad);
    char shown[CT_PRINTABLE];
    return header[0] == '{' || refuse(r, "the header begins with \"%s\", not with '{'",
                                      ct__printable(header, 1, shown, sizeof shown));
}

static bool read_all(reader *r, const char *header, size_t n, const char *data, uint64_t data_n) {
    ct_st *st = r->st;
    r->js = (ct_jscan){.start = header, .at = header, .end = header + n, .arena = &st->arena};
    bool ok =
        check_text(r, header, n) && read_header(r) && settle(r) && check_places(r, data, data_n);
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
    bool ok = measure_header(&r, bytes, n, &header) &&
              read_all(&r, text, header, text + header, n - 8 - header);
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
         measure_header(&r, first, (size_t)n, &header);
    char *text = ok ? ct__arena(&st->arena, header) : NULL;
    if (ok && !text) ok = refuse_memory(&r, header);
    ok = ok && ct__file_read_at(&st->file, 8, text, header, err) &&
         read_all(&r, text, header, NULL, n - 8 - header);
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
        int c = compare_bytes(e->name, e->name_n, name, n);
        if (c == 0) return e;
        if (c < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

bool ct__st_next(const ct_st *st, const ct_st_entry *entry, ct_st_piece *piece, ct_err *err) {
    piece->at += piece->n;
    uint64_t left = entry->bytes - piece->at;
    piece->n = left < sizeof piece->room ? (size_t)left : sizeof piece->room;
    piece->bytes = st->file.path ? piece->room : (const char *)entry->data + piece->at;
    uint64_t place = 8 + st->header_n + entry->begin + piece->at;
    return !st->file.path || ct__file_read_at(&st->file, place, piece->room, piece->n, err);
}

const char *ct__st_metadata(const ct_st *st, const char *key) {
    ct_st_pair wanted = {.key = key, .key_n = strlen(key)};
    const ct_st_pair *found = st->n_metadata ? bsearch(&wanted, st->metadata, st->n_metadata,
                                                       sizeof *st->metadata, by_key)
                                             : NULL;
    return found ? found->value : NULL;
}

// ------------------------------------------------------------------------------------------ writer

typedef struct writer {
    const char *path;
    ct_err *err;
    const ct_st_out **order;
    ct_st_pair *metadata;
    bool sealed; // the header holds its own checksum
    ct_text header;
} writer;

static bool refuse_write(writer *w, const char *name, const char *what) {
    char shown[CT_PRINTABLE];
    return ct__err(w->err, CT_E_ARGUMENT, CT_NOWHERE, w->path, "safetensors: tensor \"%s\": %s",
                   ct__printable(name, strlen(name), shown, sizeof shown), what);
}

static int kind_of(ct_dtype dtype) {
    const char *name = ct__dtype(dtype)->safetensors;
    for (int k = 0; k < KINDS && name; k++)
        if (strcmp(kinds[k].name, name) == 0) return k;
    return -1;
}

static int by_alignment(const void *a, const void *b) {
    const ct_st_out *x = *(ct_st_out *const *)a, *y = *(ct_st_out *const *)b;
    int difference = kind_of(y->dtype) - kind_of(x->dtype);
    return difference ? difference : strcmp(x->name, y->name);
}

static bool out_bytes(writer *w, const ct_st_out *e, uint64_t *bytes) {
    uint64_t count = 1;
    for (size_t i = 0; i < e->rank; i++) {
        if (e->shape[i] < 0) return refuse_write(w, e->name, "a dimension is negative");
        if (__builtin_mul_overflow(count, (uint64_t)e->shape[i], &count))
            return refuse_write(w, e->name, "its size overflows 64 bits");
    }
    if (__builtin_mul_overflow(count, (uint64_t)kinds[kind_of(e->dtype)].bits, &count))
        return refuse_write(w, e->name, "its size overflows 64 bits");
    if (count % 8) return refuse_write(w, e->name, "its elements fill no whole number of bytes");
    *bytes = count / 8;
    if (*bytes && !e->data) return refuse_write(w, e->name, "it has no data");
    return true;
}

static bool put_metadata(writer *w, size_t n) {
    char shown[CT_PRINTABLE];
    ct__text_add(&w->header, "\"__metadata__\":{");
    for (size_t i = 0; i < n; i++) {
        const ct_st_pair *p = &w->metadata[i];
        if (ct__utf8_bad(p->key, p->key_n) < p->key_n ||
            ct__utf8_bad(p->value, p->value_n) < p->value_n)
            return ct__err(w->err, CT_E_ARGUMENT, CT_NOWHERE, w->path,
                           "safetensors: __metadata__: key \"%s\" or its value is not UTF-8",
                           ct__printable(p->key, p->key_n, shown, sizeof shown));
        if (i && by_key(p - 1, p) == 0)
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

static bool put_entry(writer *w, const ct_st_out *e, uint64_t *at) {
    uint64_t bytes, end;
    size_t n = strlen(e->name);
    if (kind_of(e->dtype) < 0) {
        refuse_write(w, e->name, "the format has no name for its dtype");
        if (e->dtype == CT_I4 || e->dtype == CT_U4)
            ct__err_hint(w->err, "save it wider: ct_cast(x, CT_%s)",
                         e->dtype == CT_I4 ? "I8" : "U8");
        return false;
    }
    if (ct__utf8_bad(e->name, n) < n) return refuse_write(w, e->name, "its name is not UTF-8");
    if (strcmp(e->name, "__metadata__") == 0)
        return refuse_write(w, e->name, "this name is reserved by the format");
    if (!out_bytes(w, e, &bytes)) return false;
    if (__builtin_add_overflow(*at, bytes, &end))
        return refuse_write(w, e->name, "its size overflows 64 bits");
    ct__json_string(&w->header, e->name, n);
    ct__textf(&w->header, ":{\"dtype\":\"%s\",\"shape\":[", kinds[kind_of(e->dtype)].name);
    for (size_t i = 0; i < e->rank; i++)
        ct__textf(&w->header, "%s%" PRId64, i ? "," : "", e->shape[i]);
    ct__textf(&w->header, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", *at, end);
    *at = end;
    return true;
}

// The header's own checksum as it stands in the header, and before it is known.
#define CHECKSUM "cotan.crc32c"
static const char own_key[] = "\"" CHECKSUM "\":\"",
                  own_unknown[] = "\"" CHECKSUM "\":\"00000000\"";
enum { OWN_KEY = sizeof own_key - 1 };

static void seal_header(writer *w) {
    char digits[9], *at = strstr(w->header.s, own_unknown); // quotes inside texts are escaped
    if (!w->sealed || !at) return;
    snprintf(digits, sizeof digits, "%08" PRIx32, ct__crc32c(w->header.s, w->header.n));
    memcpy(at + OWN_KEY, digits, 8);
}

static bool put_header(writer *w, size_t n, size_t n_metadata) {
    uint64_t at = 0;
    ct__text_add(&w->header, "{");
    if (n_metadata && !put_metadata(w, n_metadata)) return false;
    for (size_t i = 0; i < n; i++) {
        const ct_st_out *e = w->order[i];
        if (i || n_metadata) ct__text_add(&w->header, ",");
        if (!put_entry(w, e, &at)) return false;
    }
    ct__text_add(&w->header, "}");
    while (w->header.n % 8 && !w->header.failed) ct__text_add(&w->header, " ");
    if (w->header.failed) return ct__err_memory(w->err, CT_NOWHERE, w->path, w->header.cap * 2);
    if (w->header.n > LARGEST_HEADER)
        return ct__err(w->err, CT_E_ARGUMENT, CT_NOWHERE, w->path,
                       "safetensors: the header takes %zu bytes, at most %d are allowed",
                       w->header.n, LARGEST_HEADER);
    seal_header(w);
    return true;
}

static int by_out_name(const void *a, const void *b) {
    return strcmp((*(ct_st_out *const *)a)->name, (*(ct_st_out *const *)b)->name);
}

static bool put_file(writer *w, size_t n) {
    ct_atomic_file file;
    unsigned char length[8];
    uint64_t bytes;
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)w->header.n >> 8 * i);
    bool ok = ct__atomic_file_begin(&file, w->path, 0, w->err) &&
              ct__atomic_file_write(&file, length, sizeof length, w->err) &&
              ct__atomic_file_write(&file, w->header.s, w->header.n, w->err);
    for (size_t i = 0; i < n && ok; i++)
        ok = out_bytes(w, w->order[i], &bytes) &&
             ct__atomic_file_write(&file, w->order[i]->data, (size_t)bytes, w->err);
    if (ok) return ct__atomic_file_commit(&file, w->err);
    ct__atomic_file_abandon(&file);
    return false;
}

static bool write_file(const char *path, const ct_st_out *entries, size_t n,
                       const ct_st_pair *metadata, size_t n_metadata, bool sealed, ct_err *err) {
    writer w = {.path = path, .err = err, .sealed = sealed};
    w.order = ct__calloc(n, sizeof *w.order);
    w.metadata = ct__calloc(n_metadata, sizeof *w.metadata);
    bool ok = w.order && w.metadata;
    if (!ok) ct__err_memory(err, CT_NOWHERE, path, n * sizeof *w.order);
    if (ok && n_metadata) memcpy(w.metadata, metadata, n_metadata * sizeof *metadata);
    if (ok) qsort(w.metadata, n_metadata, sizeof *w.metadata, by_key);
    for (size_t i = 0; i < n && ok; i++) w.order[i] = &entries[i];
    if (ok) qsort(w.order, n, sizeof *w.order, by_out_name);
    for (size_t i = 1; i < n && ok; i++)
        if (by_out_name(&w.order[i - 1], &w.order[i]) == 0)
            ok = refuse_write(&w, w.order[i]->name, "it is given twice");
    if (ok) qsort(w.order, n, sizeof *w.order, by_alignment);
    ok = ok && put_header(&w, n, n_metadata) && put_file(&w, n);
    ct__text_free(&w.header);
    ct__free(w.order);
    ct__free(w.metadata);
    return ok;
}

bool ct__st_write(const char *path, const ct_st_out *entries, size_t n, const ct_st_pair *metadata,
                  size_t n_metadata, ct_err *err) {
    return write_file(path, entries, n, metadata, n_metadata, false, err);
}

// --------------------------------------------------------------------------------------- checksums

static const char tensor_prefix[] = CHECKSUM ".";
enum { PREFIX = sizeof tensor_prefix - 1 };

bool ct__st_is_checksum(const ct_st_pair *pair) {
    return (pair->key_n == PREFIX - 1 && memcmp(pair->key, CHECKSUM, PREFIX - 1) == 0) ||
           (pair->key_n >= PREFIX && memcmp(pair->key, tensor_prefix, PREFIX) == 0);
}

static char *checksum_key(ct_arena *arena, const char *name, size_t n) {
    char *key = ct__arena(arena, PREFIX + n + 1);
    if (!key) return NULL;
    memcpy(key, tensor_prefix, PREFIX);
    memcpy(key + PREFIX, name, n + 1);
    return key;
}

// An entry that ct__st_write is going to refuse gets any.
static bool add_checksum(ct_arena *arena, const ct_st_out *e, ct_st_pair *pair) {
    writer w = {.path = ""};
    size_t n = strlen(e->name);
    uint64_t bytes = 0;
    if (kind_of(e->dtype) < 0 || !out_bytes(&w, e, &bytes)) bytes = 0;
    char *key = checksum_key(arena, e->name, n);
    char *value = ct__arena_printf(arena, "%08" PRIx32, ct__crc32c(e->data, (size_t)bytes));
    if (!key || !value) return false;
    *pair = (ct_st_pair){key, value, PREFIX + n, 8};
    return true;
}

bool ct__st_write_checked(const char *path, const ct_st_out *entries, size_t n,
                          const ct_st_pair *metadata, size_t n_metadata, ct_err *err) {
    ct_arena arena = {0};
    size_t count = n + n_metadata + 1;
    ct_st_pair *pairs = ct__arena(&arena, count * sizeof *pairs);
    bool ok = pairs != NULL;
    for (size_t i = 0; i < n && ok; i++) ok = add_checksum(&arena, &entries[i], &pairs[i]);
    if (!ok) ct__err_memory(err, CT_NOWHERE, path, count * sizeof *pairs);
    if (ok) {
        if (n_metadata) memcpy(pairs + n, metadata, n_metadata * sizeof *pairs);
        pairs[count - 1] = (ct_st_pair){CHECKSUM, "00000000", PREFIX - 1, 8};
    }
    ok = ok && write_file(path, entries, n, pairs, count, true, err);
    ct__arena_free(&arena);
    return ok;
}

__attribute__((format(printf, 4, 5))) static bool
damaged(ct_err *err, const char *label, const ct_st_entry *e, const char *format, ...) {
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

// The checksum that the header holds of the tensor, or of itself, and this one.
static bool compare(const ct_st *st, const ct_st_entry *e, uint32_t crc, const char *label,
                    ct_err *err) {
    ct_arena arena = {0};
    char said[CT_PRINTABLE], digits[9];
    char *key = e ? checksum_key(&arena, e->name, e->name_n) : CHECKSUM;
    ct_st_pair wanted = {.key = key, .key_n = e ? PREFIX + e->name_n : PREFIX - 1}, *pair = NULL;
    if (key && st->n_metadata)
        pair = bsearch(&wanted, st->metadata, st->n_metadata, sizeof *st->metadata, by_key);
    ct__arena_free(&arena);
    if (!key) return ct__err_memory(err, CT_NOWHERE, label, e->name_n);
    if (!pair) return damaged(err, label, e, "it has no checksum");
    snprintf(digits, sizeof digits, "%08" PRIx32, crc);
    if (pair->value_n == 8 && memcmp(pair->value, digits, 8) == 0) return true;
    return damaged(err, label, e, "the CRC-32C of its bytes is %s, not %s", digits,
                   ct__printable(pair->value, pair->value_n, said, sizeof said));
}

static bool verify_header(const ct_st *st, const char *label, ct_err *err) {
    char *copy = ct__malloc(st->header_n + 1);
    if (!copy) return ct__err_memory(err, CT_NOWHERE, label, st->header_n + 1);
    memcpy(copy, st->header, st->header_n);
    copy[st->header_n] = '\0';
    char *at = strstr(copy, own_key);
    if (at && at + OWN_KEY + 8 <= copy + st->header_n) memset(at + OWN_KEY, '0', 8);
    bool ok = compare(st, NULL, ct__crc32c(copy, st->header_n), label, err);
    ct__free(copy);
    return ok;
}

bool ct__st_verify(const ct_st *st, const char *label, bool required, ct_err *err) {
    bool any = required;
    for (size_t i = 0; i < st->n_metadata && !any; i++) any = ct__st_is_checksum(&st->metadata[i]);
    if (any && !verify_header(st, label, err)) return false;
    for (size_t i = 0; i < st->n && any; i++) {
        const ct_st_entry *e = &st->entries[i];
        uint32_t crc = 0;
        bool read = true;
        for (ct_st_piece p = {0}; (read = ct__st_next(st, e, &p, err)) && p.n;)
            crc = ct__crc32c_more(crc, p.bytes, p.n);
        if (!read || !compare(st, e, crc, label, err)) return false;
    }
    return true;
}
