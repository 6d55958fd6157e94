#include "io/torch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/pickle.h"
#include "io/utf8.h"
#include "io/zip.h"

enum { MAX_DEPTH = 32, MAX_TENSORS = 1 << 18, MAX_NAME = 1024, MAX_PICKLE = 1 << 25 };

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

static const storage *torch_find_storage(const reader *r, const char *key) {
    const storage wanted = {.key = key};
    if (!r->n_storages) return NULL;
    return bsearch(&wanted, r->storages, r->n_storages, sizeof wanted, torch_compare_keys);
}

static int64_t torch_record_bytes(void *user, const char *key) {
    const storage *found = torch_find_storage(user, key);
    return found ? (int64_t)found->bytes : -1;
}

static bool torch_sort_storages(reader *r) {
    if (r->n_storages) qsort(r->storages, r->n_storages, sizeof *r->storages, torch_compare_keys);
    for (size_t i = 1; i < r->n_storages; i++)
        if (torch_compare_keys(&r->storages[i - 1], &r->storages[i]) == 0)
            return torch_refuse(r, "a storage comes twice");
    return true;
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

static bool torch_locate_tensor(reader *r, const ct_pickle_tensor *t, const char *shown,
                                ct_weight *to) {
    const storage *s = torch_find_storage(r, t->storage->key);
    size_t size = ct_dtype_size(t->type->dtype);
    if (t->negated)
        return torch_refuse(
            r, "tensor \"%s\" is conjugated or negated when it is used, which is not supported",
            shown);
    to->bytes = (uint64_t)t->elements * size;
    to->data = s->data + (t->elements ? (uint64_t)t->offset * size : 0);
    to->at = (uint64_t)((const char *)to->data - (const char *)r->file->map);
    if (!t->elements || torch_is_contiguous(t)) return true;
    r->copied += to->bytes < r->file->n ? to->bytes : r->file->n + 1;
    if (r->copied > r->file->n)
        return torch_refuse(
            r, "tensor \"%s\": what are views in another order take more bytes than the file",
            shown);
    char *copy = ct__arena(r->arena, to->bytes);
    if (!copy) return torch_refuse_memory(r, to->bytes);
    torch_copy_strided(t, to->data, size, copy);
    to->data = copy;
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
        } else if (memchr(name, '\0', n) || ct__utf8_bad(name, n) < n) {
            return torch_refuse(r, "the name of a tensor has a zero byte or is not UTF-8");
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
    if (top->kind != CT_PICKLE_DICT) return torch_refuse(r, "it holds no dict of tensors by name");
    return torch_add_dict(r, top, 0);
}

static bool torch_label(reader *r, ct_pickle *pickle, const char *part) {
    pickle->label = ct__arena_printf(r->arena, "%s: pytorch: %s", r->file->path, part);
    pickle->budget = CT_PICKLE_BUDGET(r->file->n);
    return pickle->label || torch_refuse_memory(r, strlen(r->file->path));
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
    if (e->bytes > MAX_PICKLE)
        return (torch_refuse(r, "data.pkl has %" PRIu64 " bytes, at most %d are read", e->bytes,
                             MAX_PICKLE),
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
    ct_pickle pickle = {.record_bytes = torch_record_bytes, .user = r};
    ct_pickle_value *top;
    size_t at = 0;
    if (a->zip.file.n != r->file->n) return torch_refuse(r, "the file changes while it is read");
    for (uint64_t i = 0; i < a->zip.n; i++)
        if (!ct__zip_next(&a->zip, &a->names, &e, r->err) || !torch_read_entry(r, a, &e))
            return false;
    if (!ct__zip_check_end(&a->zip, r->err)) return false;
    if (!a->pickle.name) return torch_refuse(r, "the archive has no data.pkl");
    a->bytes = torch_unzip_pickle(r, &a->zip, &a->pickle);
    bool ok = a->bytes && torch_sort_storages(r) && torch_label(r, &pickle, "data.pkl") &&
              ct__pickle_read(&pickle, a->bytes, a->pickle.bytes, &at, &top, r->err) &&
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

static ct_pickle_value *torch_next_pickle(reader *r, ct_pickle *pickle, size_t *at) {
    ct_pickle_value *v;
    size_t n = r->file->n < MAX_PICKLE ? r->file->n : MAX_PICKLE;
    return ct__pickle_read(pickle, r->file->map, n, at, &v, r->err) ? v : NULL;
}

// Reads a storage's number of elements, then these.
static bool torch_read_storage(reader *r, const ct_pickle *pickle, const char *key, size_t *at) {
    const ct_pickle_storage *s = pickle->storages;
    uint64_t elements, bytes, left = r->file->n - *at;
    char shown[CT_PRINTABLE];
    ct__printable(key, strlen(key), shown, sizeof shown);
    while (s && strcmp(s->key, key) != 0) s = s->next;
    if (!s) return torch_refuse(r, "storage \"%s\" is no tensor's", shown);
    if (left < sizeof elements)
        return torch_refuse(r, "the file ends before storage \"%s\"", shown);
    const char *data = (const char *)r->file->map + *at + sizeof elements;
    memcpy(&elements, data - sizeof elements, sizeof elements);
    if (__builtin_mul_overflow(elements, ct_dtype_size(s->type->dtype), &bytes) ||
        bytes > left - sizeof elements)
        return torch_refuse(r, "storage \"%s\" has %" PRIu64 " elements of %s, more than the file",
                            shown, elements, s->type->name);
    *at += sizeof elements + bytes;
    return torch_add_storage(r, s->key, data, bytes);
}

// The object is read twice, first without the storages, which come after it.
static bool torch_read_pickles(reader *r, ct_pickle *pickle) {
    ct_pickle_value *top, *keys;
    size_t at = 0;
    for (int i = 0; i < 3; i++) // the magic number, the format's version, the system's properties
        if (!torch_next_pickle(r, pickle, &at)) return false;
    size_t begin = at;
    if (!torch_next_pickle(r, pickle, &at) || !(keys = torch_next_pickle(r, pickle, &at)))
        return false;
    if (keys->kind != CT_PICKLE_LIST) return torch_refuse(r, "the storages' keys are no list");
    for (size_t i = 0; i < keys->count; i++) {
        const ct_pickle_value *key = keys->items[i];
        if (key->kind != CT_PICKLE_TEXT) return torch_refuse(r, "a storage's key is no string");
        char *name = ct__arena_printf(r->arena, "%.*s", (int)key->n, key->s);
        if (!name) return torch_refuse_memory(r, key->n);
        if (!torch_read_storage(r, pickle, name, &at)) return false;
    }
    pickle->record_bytes = torch_record_bytes;
    return torch_sort_storages(r) && (top = torch_next_pickle(r, pickle, &begin)) &&
           torch_add_tensors(r, top);
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
    ct_pickle pickle = {.user = r};
    bool ok = torch_label(r, &pickle, "a pickle") && torch_read_pickles(r, &pickle);
    ct__arena_free(&pickle.arena);
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
