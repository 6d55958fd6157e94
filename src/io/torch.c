#include "io/torch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/pickle.h"
#include "io/utf8.h"
#include "io/zip.h"

enum { MAX_DEPTH = 32, MAX_TENSORS = 1 << 18, MAX_NAME = 1024 };

typedef struct storage {
    const char *key;
    const char *data;
    uint64_t bytes;
} storage;

typedef struct reader {
    const ct_weights_file *file;
    ct_arena *arena;
    ct_err *err;
    storage *storages; // sorted by key
    size_t n_storages, storages_cap;
    ct_weight *entries;
    size_t n, cap;
    uint64_t copied; // bytes of strided views that were copied
    ct_text name;    // names of the enclosing dicts, each followed by "."
} reader;

#define torch_refuse(r, ...) ct__err_part((r)->err, (r)->file->path, "pytorch", __VA_ARGS__)

static bool torch_refuse_memory(reader *r, size_t bytes) {
    return ct__err_memory(r->err, CT_NOWHERE, r->file->path, bytes);
}

static uint64_t torch_element_size(const ct_pickle_type *type) {
    return type->dtype ? ct_dtype_size(type->dtype) : 1;
}

// ----------------------------------------------------------------------------------------- storages

static int torch_compare_keys(const void *a, const void *b) {
    const storage *x = a, *y = b;
    return strcmp(x->key, y->key);
}

static bool torch_add_storage(reader *r, const char *key, const void *data, uint64_t bytes) {
    if (!CT_GROW(r->storages, r->storages_cap, r->n_storages + 1))
        return torch_refuse_memory(r, r->storages_cap * 2 * sizeof *r->storages);
    r->storages[r->n_storages++] = (storage){key, data, bytes};
    return true;
}

// Finds a storage, which must have as many bytes as the pickle says.
static const storage *torch_find_storage(reader *r, const ct_pickle_storage *wanted) {
    char shown[CT_PRINTABLE];
    const storage key = {.key = wanted->key}, *found = NULL;
    ct__printable(wanted->key, strlen(wanted->key), shown, sizeof shown);
    if (r->n_storages)
        found = bsearch(&key, r->storages, r->n_storages, sizeof *r->storages, torch_compare_keys);
    if (!found) return (torch_refuse(r, "storage \"%s\" is missing", shown), NULL);
    uint64_t need, elements = (uint64_t)wanted->elements;
    if (__builtin_mul_overflow(elements, torch_element_size(wanted->type), &need) ||
        need != found->bytes)
        return (torch_refuse(r,
                             "storage \"%s\" has %" PRIu64 " bytes, not those of %" PRIu64
                             " elements of %s",
                             shown, found->bytes, elements, wanted->type->name),
                NULL);
    return found;
}

// ------------------------------------------------------------------------------------------- tensors

static bool torch_is_contiguous(const ct_pickle_tensor *t) {
    int64_t stride = 1;
    for (size_t i = t->rank; i-- > 0; stride *= t->dim[i])
        if (t->dim[i] != 1 && t->stride[i] != stride) return false;
    return true;
}

// Copies a strided view, which is not empty, in row-major order.
static void torch_copy_strided(const ct_pickle_tensor *t, const char *from, size_t size, char *to) {
    int64_t at[CT_MAX_RANK] = {0};
    size_t inner = t->rank - 1; // a view that is not contiguous has axes
    for (;;) {
        const char *row = from;
        for (int64_t i = 0; i < t->dim[inner]; i++, to += size) {
            memcpy(to, row, size);
            row += (size_t)t->stride[inner] * size;
        }
        size_t axis = inner;
        for (; axis-- > 0;) {
            from += (size_t)t->stride[axis] * size;
            if (++at[axis] < t->dim[axis]) break;
            from -= (size_t)t->dim[axis] * (size_t)t->stride[axis] * size;
            at[axis] = 0;
        }
        if (axis == SIZE_MAX) return;
    }
}

// Computes the number of elements, and one more than the last index in the storage that the view
// reads. Returns false if either overflows 63 bits.
static bool torch_measure_view(const ct_pickle_tensor *t, int64_t *count, int64_t *end) {
    int64_t reach;
    *count = 1;
    *end = t->offset;
    for (size_t i = 0; i < t->rank; i++)
        if (t->dim[i] == 0) return *count = 0, true;
    for (size_t i = 0; i < t->rank; i++)
        if (__builtin_mul_overflow(*count, t->dim[i], count) ||
            __builtin_mul_overflow(t->dim[i] - 1, t->stride[i], &reach) ||
            __builtin_add_overflow(*end, reach, end))
            return false;
    return !__builtin_add_overflow(*end, 1, end);
}

static bool torch_locate_tensor(reader *r, const ct_pickle_tensor *t, const char *shown,
                                ct_weight *to) {
    const storage *s = torch_find_storage(r, t->storage);
    int64_t count, end;
    uint64_t size = torch_element_size(t->type);
    if (!s) return false;
    if (!torch_measure_view(t, &count, &end) || (count && (uint64_t)end > s->bytes / size))
        return torch_refuse(
            r, "tensor \"%s\": it reaches beyond its storage, which has %" PRIu64 " elements",
            shown, s->bytes / size);
    if (__builtin_mul_overflow((uint64_t)count, size, &to->bytes))
        return torch_refuse(r, "tensor \"%s\": its size in bytes overflows 64 bits", shown);
    to->data = s->data;
    if (count) to->data = s->data + (uint64_t)t->offset * size;
    if (count && !torch_is_contiguous(t)) {
        r->copied += to->bytes < r->file->n ? to->bytes : r->file->n + 1;
        if (r->copied > r->file->n)
            return torch_refuse(
                r, "tensor \"%s\": what are views in another order take more bytes than the file",
                shown);
        char *copy = ct__arena(r->arena, to->bytes);
        if (!copy) return torch_refuse_memory(r, to->bytes);
        torch_copy_strided(t, to->data, size, copy);
        to->data = copy;
    }
    to->at =
        (uint64_t)(s->data - (const char *)r->file->map) + (count ? (uint64_t)t->offset * size : 0);
    return true;
}

static bool torch_add_tensor(reader *r, const ct_pickle_tensor *t, const char *name, size_t n) {
    char shown[CT_PRINTABLE];
    if (!CT_GROW(r->entries, r->cap, r->n + 1))
        return torch_refuse_memory(r, r->cap * 2 * sizeof *r->entries);
    if (r->n == MAX_TENSORS) return torch_refuse(r, "more than %d tensors", MAX_TENSORS);
    ct_weight *to = &r->entries[r->n++];
    *to = (ct_weight){
        .name = ct__arena_printf(r->arena, "%s%.*s", r->name.n ? r->name.s : "", (int)n, name),
        .dtype = t->type->dtype,
        .block = -1,
        .rank = t->rank,
        .path = r->file->path,
        .kind = t->type->name,
    };
    if (!to->name) return torch_refuse_memory(r, r->name.n + n);
    if (t->rank) memcpy(to->dim, t->dim, t->rank * sizeof *t->dim);
    return torch_locate_tensor(r, t, ct__printable(to->name, strlen(to->name), shown, sizeof shown),
                               to);
}

// Adds the tensors in a dict and in its nested dicts.
static bool torch_add_dict(reader *r, ct_pickle_value *dict, int depth) {
    size_t outer = r->name.n;
    char number[24];
    if (dict->visited) return torch_refuse(r, "a dict is in two places, or in itself");
    if (depth == MAX_DEPTH) return torch_refuse(r, "dicts in dicts, more than %d deep", MAX_DEPTH);
    dict->visited = true;
    for (size_t i = 0; i + 1 < dict->count; i += 2) {
        const ct_pickle_value *key = dict->items[i];
        ct_pickle_value *item = dict->items[i + 1];
        const char *name = key->s;
        size_t n = key->n;
        if (item->kind != CT_PICKLE_TENSOR && item->kind != CT_PICKLE_DICT) continue;
        if (key->kind == CT_PICKLE_INT) {
            n = (size_t)snprintf(number, sizeof number, "%" PRId64, key->integer);
            name = number;
        } else if (key->kind != CT_PICKLE_TEXT) {
            continue;
        } else if (memchr(name, '\0', n)) {
            return torch_refuse(r, "a zero byte in the name of a tensor");
        }
        if (outer + n > MAX_NAME)
            return torch_refuse(r, "the name of a tensor has %zu bytes, at most %d are read",
                                outer + n, MAX_NAME);
        if (item->kind == CT_PICKLE_TENSOR) {
            if (!torch_add_tensor(r, item->tensor, name, n)) return false;
            continue;
        }
        ct__text_bytes(&r->name, name, n);
        ct__text_add(&r->name, ".");
        if (r->name.failed) return torch_refuse_memory(r, r->name.n + n);
        if (!torch_add_dict(r, item, depth + 1)) return false;
        r->name.n = outer;
        r->name.s[outer] = '\0';
    }
    return true;
}

static bool torch_add_tensors(reader *r, ct_pickle_value *top) {
    if (r->n_storages) qsort(r->storages, r->n_storages, sizeof *r->storages, torch_compare_keys);
    for (size_t i = 1; i < r->n_storages; i++)
        if (torch_compare_keys(&r->storages[i - 1], &r->storages[i]) == 0)
            return torch_refuse(r, "a storage comes twice");
    if (top->kind != CT_PICKLE_DICT) return torch_refuse(r, "it holds no dict of tensors by name");
    return torch_add_dict(r, top, 0);
}

// ---------------------------------------------------------------------------------------- zip archives

typedef struct archive {
    ct_zip zip;
    ct_arena names;
    ct_zip_entry pickle; // name is NULL until it is found
    char *bytes;         // of the pickle
} archive;

// Unpacks data.pkl, which is small; free it with ct__free.
static char *torch_unzip_pickle(reader *r, const ct_zip *zip, const ct_zip_entry *e) {
    ct_zip_stream stream;
    if (e->bytes > CT_PICKLE_MAX_BYTES)
        return (torch_refuse(r, "data.pkl has %" PRIu64 " bytes, at most %d are read", e->bytes,
                             CT_PICKLE_MAX_BYTES),
                NULL);
    char *bytes = ct__malloc(e->bytes + 1);
    if (!bytes) return (torch_refuse_memory(r, e->bytes + 1), NULL);
    bool ok = ct__zip_stream_open(zip, e, "pytorch", &stream, r->err);
    if (ok) {
        ok = ct__zip_stream_read(&stream, bytes, e->bytes, r->err) &&
             ct__zip_stream_check(&stream, r->err);
        ct__zip_stream_close(&stream);
    }
    if (ok) return bytes;
    ct__free(bytes);
    return NULL;
}

// Uses NAME/data.pkl, NAME/byteorder and NAME/data/KEY; other entries do not describe tensors.
static bool torch_read_entry(reader *r, archive *a, ct_zip_entry *e) {
    const char *name = strchr(e->name, '/');
    char shown[CT_PRINTABLE];
    if (!name || strlen(e->name) < e->name_n) return true;
    name++;
    bool is_data = strncmp(name, "data/", 5) == 0, is_order = strcmp(name, "byteorder") == 0;
    if (!is_data && !is_order && strcmp(name, "data.pkl") != 0) return true;
    if (!ct__zip_check(&a->zip, e, "pytorch", r->err) ||
        !ct__zip_locate(&a->zip, e, "pytorch", r->err))
        return false;
    if (is_data || is_order) {
        if (e->method)
            return torch_refuse(r, "\"%s\" is packed, which PyTorch does not do",
                                ct__printable(e->name, e->name_n, shown, sizeof shown));
        const char *bytes = (const char *)r->file->map + e->begin;
        if (is_order && (e->bytes != 6 || memcmp(bytes, "little", 6) != 0))
            return torch_refuse(
                r, "its numbers have the other byte order (big-endian), which is not supported");
        return is_order || torch_add_storage(r, name + 5, bytes, e->bytes);
    }
    if (a->pickle.name) return torch_refuse(r, "there are two of data.pkl");
    a->pickle = *e;
    return true;
}

static bool torch_read_archive(reader *r, archive *a) {
    ct_zip_entry e;
    ct_pickle pickle = {.label = r->file->path, .part = "pytorch: data.pkl"};
    ct_pickle_value *top;
    size_t used;
    if (a->zip.file.n != r->file->n) return torch_refuse(r, "the file changes while it is read");
    for (uint64_t i = 0; i < a->zip.n; i++)
        if (!ct__zip_next(&a->zip, &a->names, &e, r->err) || !torch_read_entry(r, a, &e))
            return false;
    if (!ct__zip_check_end(&a->zip, r->err)) return false;
    if (!a->pickle.name) return torch_refuse(r, "the archive has no data.pkl");
    a->bytes = torch_unzip_pickle(r, &a->zip, &a->pickle);
    bool ok = a->bytes &&
              ct__pickle_read(&pickle, a->bytes, a->pickle.bytes, &top, &used, r->err) &&
              torch_add_tensors(r, top);
    ct__arena_free(&pickle.arena);
    return ok;
}

static bool torch_read_zip(reader *r) {
    archive a = {0};
    if (!ct__zip_open(r->file->path, "pytorch", &a.zip, r->err)) return false;
    bool ok = torch_read_archive(r, &a);
    ct__zip_close(&a.zip);
    ct__arena_free(&a.names);
    ct__free(a.bytes);
    return ok;
}

// --------------------------------------------------------------------------- files before PyTorch 1.6

typedef struct legacy {
    ct_pickle pickle;
    const unsigned char *at, *end;
} legacy;

static ct_pickle_value *torch_next_pickle(reader *r, legacy *l) {
    ct_pickle_value *v;
    size_t left = (size_t)(l->end - l->at), used;
    if (!ct__pickle_read(&l->pickle, l->at, left < CT_PICKLE_MAX_BYTES ? left : CT_PICKLE_MAX_BYTES,
                         &v, &used, r->err))
        return NULL;
    l->at += used;
    return v;
}

// Reads a storage's number of elements, then these.
static bool torch_read_storage(reader *r, legacy *l, const char *key) {
    const ct_pickle_storage *s = l->pickle.storages;
    uint64_t elements, bytes, left = (uint64_t)(l->end - l->at);
    char shown[CT_PRINTABLE];
    ct__printable(key, strlen(key), shown, sizeof shown);
    while (s && strcmp(s->key, key) != 0) s = s->next;
    if (!s) return torch_refuse(r, "storage \"%s\" is no tensor's", shown);
    if (left < sizeof elements)
        return torch_refuse(r, "the file ends before storage \"%s\"", shown);
    memcpy(&elements, l->at, sizeof elements);
    l->at += sizeof elements;
    if (__builtin_mul_overflow(elements, torch_element_size(s->type), &bytes) ||
        bytes > left - sizeof elements)
        return torch_refuse(r, "storage \"%s\" has %" PRIu64 " elements of %s, more than the file",
                            shown, elements, s->type->name);
    const void *data = l->at;
    l->at += bytes;
    return torch_add_storage(r, s->key, data, bytes);
}

static bool torch_read_pickles(reader *r, legacy *l) {
    ct_pickle_value *top = NULL, *keys = NULL;
    for (int i = 0; i < 3; i++) // the magic number, the format's version, the system's properties
        if (!torch_next_pickle(r, l)) return false;
    if (!(top = torch_next_pickle(r, l)) || !(keys = torch_next_pickle(r, l))) return false;
    if (keys->kind != CT_PICKLE_LIST) return torch_refuse(r, "the storages' keys are no list");
    for (size_t i = 0; i < keys->count; i++) {
        const ct_pickle_value *key = keys->items[i];
        if (key->kind != CT_PICKLE_TEXT) return torch_refuse(r, "a storage's key is no string");
        char *name = ct__arena_printf(r->arena, "%.*s", (int)key->n, key->s);
        if (!name) return torch_refuse_memory(r, key->n);
        if (!torch_read_storage(r, l, name)) return false;
    }
    return torch_add_tensors(r, top);
}

static const unsigned char legacy_magic[] = {0x80, 2,    0x8a, 10,   0x6c, 0xfc, 0x9c, 0x46,
                                             0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};

static bool torch_read_legacy(reader *r) {
    const unsigned char *start = r->file->map;
    char shown[CT_PRINTABLE];
    size_t n = r->file->n;
    if (n < sizeof legacy_magic || memcmp(start, legacy_magic, sizeof legacy_magic) != 0)
        return torch_refuse(r, "it begins with \"%s\", as nothing that torch.save writes",
                            ct__printable_bytes(start, n < 8 ? n : 8, shown, sizeof shown));
    legacy l = {{.label = r->file->path, .part = "pytorch: a pickle"}, start, start + n};
    bool ok = torch_read_pickles(r, &l);
    ct__arena_free(&l.pickle.arena);
    return ok;
}

bool ct__torch_read(const ct_weights_file *file, ct_arena *arena, ct_weight **entries, size_t *n,
                    ct_err *err) {
    reader r = {.file = file, .arena = arena, .err = err};
    bool zip = file->n >= 4 && memcmp(file->map, "PK\3\4", 4) == 0;
    bool ok = zip ? torch_read_zip(&r) : torch_read_legacy(&r);
    *n = r.n;
    *entries = ok ? ct__arena(arena, r.n * sizeof **entries) : NULL;
    if (ok && !*entries) ok = torch_refuse_memory(&r, r.n * sizeof **entries);
    if (ok && r.n) memcpy(*entries, r.entries, r.n * sizeof **entries);
    ct__free(r.entries);
    ct__free(r.storages);
    ct__text_free(&r.name);
    return ok;
}
