#include "io/npz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/utf8.h"

enum { MAX_NAME = CT_ZIP_MAX_NAME - 4 };

#define npz_refuse(npz, err, ...) ct__err_part((err), (npz)->label, "npz", __VA_ARGS__)

// ----------------------------------------------------------------------------------- the directory

static bool npz_leaves_folder(const char *name) {
    if (*name == '/' || *name == '\\') return true;
    for (const char *p = name; *p; p += strcspn(p, "/\\"), p += *p != 0)
        if (strcspn(p, "/\\") == 2 && memcmp(p, "..", 2) == 0) return true;
    return false;
}

static bool npz_set_name(struct ct_npz *npz, ct_npz_entry *e, ct_err *err) {
    const char *name = e->zip.name;
    size_t n = e->zip.name_n;
    char shown[CT_PRINTABLE], bare[CT_PRINTABLE];
    ct__printable(name, n, shown, sizeof shown);
    if (memchr(name, '\0', n) || ct__utf8_bad(name, n) < n)
        return npz_refuse(npz, err, "the name \"%s\" is not UTF-8, or has a zero byte", shown);
    if (npz_leaves_folder(name))
        return npz_refuse(npz, err, "the name \"%s\" leads out of its folder", shown);
    if (n < 4 || memcmp(name + n - 4, ".npy", 4) != 0)
        return npz_refuse(npz, err, "\"%s\" is no array: its name does not end in \".npy\"", shown);
    e->name = ct__arena_printf(&npz->arena, "%.*s", (int)n - 4, name);
    e->part = ct__arena_printf(&npz->arena, "npz: array \"%s\"",
                               ct__printable(name, n - 4, bare, sizeof bare));
    return (e->name && e->part) || ct__err_memory(err, CT_NOWHERE, npz->label, n);
}

static int npz_compare_names(const void *a, const void *b) {
    const ct_npz_entry *x = *(ct_npz_entry *const *)a, *y = *(ct_npz_entry *const *)b;
    return strcmp(x->name, y->name);
}

static int npz_compare_offsets(const void *a, const void *b) {
    const ct_npz_entry *x = *(ct_npz_entry *const *)a, *y = *(ct_npz_entry *const *)b;
    if (x->zip.local != y->zip.local) return x->zip.local < y->zip.local ? -1 : 1;
    return (x > y) - (x < y); // in directory order: messages name the second of two equal ones
}

// Checks that no byte belongs to two arrays: otherwise an archive could unpack to any size.
static bool npz_check_overlap(struct ct_npz *npz, ct_err *err) {
    const ct_npz_entry **order = npz->by_name; // not used for names yet
    for (size_t i = 0; i < npz->n; i++) order[i] = &npz->entries[i];
    if (npz->n) qsort(order, npz->n, sizeof *order, npz_compare_offsets);
    for (size_t i = 1; i < npz->n; i++)
        if (!ct__zip_set_end(&npz->entries[order[i - 1] - npz->entries].zip, &order[i]->zip))
            return ct__err(err, CT_E_FORMAT, CT_NOWHERE, npz->label,
                           "%s: its bytes begin inside those of another array", order[i]->part);
    return true;
}

static bool npz_check_names(struct ct_npz *npz, ct_err *err) {
    const ct_npz_entry **order = npz->by_name;
    if (npz->n) qsort(order, npz->n, sizeof *order, npz_compare_names);
    for (size_t i = 1; i < npz->n; i++)
        if (npz_compare_names(&order[i - 1], &order[i]) == 0)
            return ct__err(err, CT_E_FORMAT, CT_NOWHERE, npz->label, "%s: its name comes twice",
                           order[i]->part);
    return true;
}

static bool npz_read_directory(struct ct_npz *npz, ct_err *err) {
    npz->n = (size_t)npz->zip.n;
    npz->entries = ct__arena_zero(&npz->arena, npz->n * sizeof *npz->entries);
    npz->by_name = ct__arena_zero(&npz->arena, npz->n * sizeof *npz->by_name);
    if (!npz->entries || !npz->by_name)
        return ct__err_memory(err, CT_NOWHERE, npz->label, npz->n * sizeof *npz->entries);
    for (size_t i = 0; i < npz->n; i++) {
        ct_npz_entry *e = &npz->entries[i];
        if (!ct__zip_next(&npz->zip, &npz->arena, &e->zip, err) || !npz_set_name(npz, e, err) ||
            !ct__zip_check(&npz->zip, &e->zip, e->part, err))
            return false;
    }
    if (!ct__zip_check_end(&npz->zip, err) || !npz_check_overlap(npz, err) ||
        !npz_check_names(npz, err))
        return false;
    for (size_t i = 0; i < npz->n; i++)
        if (!ct__zip_locate(&npz->zip, &npz->entries[i].zip, npz->entries[i].part, err))
            return false;
    return true;
}

bool ct__npz_open(const char *path, struct ct_npz *npz, ct_err *err) {
    *npz = (struct ct_npz){.zip.file.fd = -1};
    npz->label = ct__arena_str(&npz->arena, path);
    bool ok = npz->label
                  ? ct__zip_open(npz->label, "npz", &npz->zip, err) && npz_read_directory(npz, err)
                  : ct__err_memory(err, CT_NOWHERE, path, strlen(path) + 1);
    if (!ok) ct__npz_close(npz);
    return ok;
}

void ct__npz_close(struct ct_npz *npz) {
    if (npz->label) ct__zip_close(&npz->zip);
    ct__arena_free(&npz->arena);
    *npz = (struct ct_npz){0};
}

const ct_npz_entry *ct__npz_find(const struct ct_npz *npz, const char *name) {
    ct_npz_entry key = {.name = name};
    const ct_npz_entry *wanted = &key, **found = NULL;
    if (npz->n)
        found = bsearch(&wanted, npz->by_name, npz->n, sizeof *npz->by_name, npz_compare_names);
    return found ? *found : NULL;
}

// -------------------------------------------------------------------------------------- the arrays

// Reads everything before the data.
static bool npz_read_head(struct ct_npz *npz, const ct_npz_entry *e, ct_zip_stream *stream,
                          ct_npy *npy, ct_err *err) {
    char fixed[CT_NPY_FIXED];
    ct_npy_name name = {npz->label, e->part};
    uint64_t bytes = e->zip.bytes;
    size_t n = bytes < sizeof fixed ? (size_t)bytes : sizeof fixed, prefix;
    if (!ct__zip_stream_read(stream, fixed, n, err) ||
        !ct__npy_prefix(name, fixed, n, &prefix, err))
        return false;
    // If the header claims more bytes than the entry has, the parser reports it.
    if (prefix > bytes) return ct__npy_parse(name, fixed, n, bytes, npy, err);
    char *head = ct__malloc(prefix < n ? n : prefix);
    if (!head) return ct__err_memory(err, CT_NOWHERE, npz->label, prefix);
    memcpy(head, fixed, n);
    bool ok = (prefix <= n || ct__zip_stream_read(stream, head + n, prefix - n, err)) &&
              ct__npy_parse(name, head, prefix, bytes, npy, err);
    ct__free(head);
    return ok;
}

bool ct__npz_read_header(struct ct_npz *npz, const ct_npz_entry *e, ct_npy *npy, ct_err *err) {
    ct_zip_stream stream;
    if (!ct__zip_stream_open(&npz->zip, &e->zip, e->part, &stream, err)) return false;
    bool ok = npz_read_head(npz, e, &stream, npy, err);
    ct__zip_stream_close(&stream);
    return ok;
}

static bool npz_read_data(struct ct_npz *npz, const ct_npz_entry *e, ct_zip_stream *stream,
                          ct_npy *npy, void **data, ct_err *err) {
    if (!npz_read_head(npz, e, stream, npy, err) ||
        !ct__npy_check_dtype((ct_npy_name){npz->label, e->part}, npy, err))
        return false;
    *data = ct__malloc(npy->bytes ? npy->bytes : 1);
    if (!*data) return ct__err_memory(err, CT_NOWHERE, npz->label, npy->bytes);
    return ct__zip_stream_read(stream, *data, npy->bytes, err) && ct__zip_stream_check(stream, err);
}

bool ct__npz_read(struct ct_npz *npz, const ct_npz_entry *e, ct_npy *npy, void **data,
                  ct_err *err) {
    ct_zip_stream stream;
    *data = NULL;
    if (!ct__zip_stream_open(&npz->zip, &e->zip, e->part, &stream, err)) return false;
    bool ok = npz_read_data(npz, e, &stream, npy, data, err);
    ct__zip_stream_close(&stream);
    if (ok) return true;
    ct__free(*data);
    *data = NULL;
    return false;
}

// ----------------------------------------------------------------------------------------- writing

typedef struct writer {
    ct_atomic_file file;
    ct_zip_out zip;
    ct_err *err;
} writer;

static bool npz_check_out(writer *w, const ct_npz_out *e) {
    char shown[CT_PRINTABLE];
    size_t n = strlen(e->name);
    const char *what = NULL;
    if (n > MAX_NAME)
        what = "the name is too long";
    else if (ct__utf8_bad(e->name, n) < n)
        what = "the name is not UTF-8";
    else if (npz_leaves_folder(e->name))
        what = "the name leads out of its folder";
    return !what ||
           ct__err(w->err, CT_E_ARGUMENT, CT_NOWHERE, w->file.path, "npz: array \"%s\": %s",
                   ct__printable(e->name, n, shown, sizeof shown), what);
}

static bool npz_put_entry(writer *w, const ct_npz_out *e, bool deflate) {
    ct_text head = {0}, name = {0};
    char part[CT_PRINTABLE + 16], shown[CT_PRINTABLE];
    uint64_t bytes = ct_dtype_size(e->dtype); // a tensor's: the product does not overflow
    for (int i = 0; i < e->rank; i++) bytes *= (uint64_t)e->shape[i];
    snprintf(part, sizeof part, "npz: array \"%s\"",
             ct__printable(e->name, strlen(e->name), shown, sizeof shown));
    ct__textf(&name, "%s.npy", e->name);
    bool ok = ct__npy_header((ct_npy_name){w->file.path, part}, e->dtype, e->rank, e->shape, &head,
                             w->err) &&
              (!name.failed || ct__err_memory(w->err, CT_NOWHERE, w->file.path, name.cap * 2));
    const ct_zip_chunk chunks[] = {{head.s, head.n}, {e->data, bytes}};
    ok = ok && ct__zip_add(&w->zip, name.s, chunks, 2, deflate, w->err);
    ct__text_free(&head);
    ct__text_free(&name);
    return ok;
}

static bool npz_check_out_names(writer *w, const ct_npz_out *entries, size_t n) {
    const ct_npz_out **order = ct__malloc((n + 1) * sizeof *order);
    char shown[CT_PRINTABLE];
    bool ok = order || ct__err_memory(w->err, CT_NOWHERE, w->file.path, n * sizeof *order);
    for (size_t i = 0; i < n && ok; i++) {
        order[i] = &entries[i];
        ok = npz_check_out(w, order[i]);
    }
    // The name is the first member of both structs, and the comparison uses only that.
    _Static_assert(offsetof(ct_npz_out, name) == 0 && offsetof(ct_npz_entry, name) == 0, "by_name");
    if (ok && n) qsort(order, n, sizeof *order, npz_compare_names);
    for (size_t i = 1; i < n && ok; i++)
        if (strcmp(order[i - 1]->name, order[i]->name) == 0)
            ok =
                ct__err(w->err, CT_E_ARGUMENT, CT_NOWHERE, w->file.path,
                        "npz: array \"%s\": the name is given twice",
                        ct__printable(order[i]->name, strlen(order[i]->name), shown, sizeof shown));
    ct__free(order);
    return ok;
}

bool ct__npz_write(const char *path, const ct_npz_out *entries, size_t n, bool deflate,
                   ct_err *err) {
    writer w = {.err = err, .zip.file = &w.file};
    if (!ct__atomic_file_begin(&w.file, path, 0, err)) return false;
    bool ok = npz_check_out_names(&w, entries, n);
    for (size_t i = 0; i < n && ok; i++) ok = npz_put_entry(&w, &entries[i], deflate);
    ok = ok && ct__zip_finish(&w.zip, err) && ct__atomic_file_commit(&w.file, err);
    if (!ok) ct__atomic_file_abandon(&w.file);
    ct__zip_out_free(&w.zip);
    return ok;
}
