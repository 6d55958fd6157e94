// Loads and saves tensors in NumPy's files.
#include <stdio.h>
#include <string.h>

#include "base/os.h"
#include "cotan/io.h"
#include "graph/graph.h"
#include "io/npz.h"
#include "io/utf8.h"

static const char npy_part[] = "npy";

// --------------------------------------------------------------------------------------- reading

static ct_tensor arrays_make_leaf(const ct_npy *npy, const void *data, ct_loc here) {
    return ct_from_at(data, npy->dtype, (ct_ints){npy->rank, npy->shape}, here);
}

// Makes a leaf of the elements at `data`, which are converted if they have another layout than
// Cotan's.
static ct_tensor arrays_make_tensor(ct_ctx *ctx, const char *label, const ct_npy *npy,
                                    const void *data, ct_loc here) {
    if (ct__npy_is_native(npy, data)) return arrays_make_leaf(npy, data, here);
    void *copy = ct__malloc(npy->bytes ? npy->bytes : 1);
    if (!copy) {
        ct__err_memory(&ctx->err, here, label, npy->bytes);
        return ct__poison(ctx, here);
    }
    ct__npy_convert(npy, data, copy);
    ct_tensor t = arrays_make_leaf(npy, copy, here);
    ct__free(copy);
    return t;
}

static bool arrays_parse_npy(const char *path, const void *map, size_t n, ct_npy *npy,
                             ct_err *err) {
    ct_npy_name name = {path, npy_part};
    size_t prefix;
    return ct__npy_prefix(name, map, n < CT_NPY_FIXED ? n : CT_NPY_FIXED, &prefix, err) &&
           ct__npy_parse(name, map, prefix < n ? prefix : n, n, npy, err) &&
           ct__npy_check_dtype(name, npy, err);
}

// Adds a hint to the error if the file's first bytes are those of NumPy's other format.
static void arrays_hint_format(ct_err *err, const char *path, const char *begin, const char *hint) {
    ct_file file;
    ct_err ignored = {0};
    char found[8];
    size_t n = strlen(begin);
    if (err->code != CT_E_FORMAT || !ct__file_handle_open(path, &file, &ignored)) return;
    if (file.n >= n && ct__file_read_at(&file, 0, found, n, &ignored) && !memcmp(found, begin, n))
        ct__err_hint(err, "%s", hint);
    ct__file_handle_close(&file);
}

ct_tensor ct_load_npy_at(const char *path, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    const void *map;
    size_t n;
    ct_npy npy;
    if (!ctx) return CT_NONE;
    if (!ct__given(ctx, path, here, "load_npy", "the path") || ctx->err.code)
        return ct__poison(ctx, here);
    ct_tensor t = CT_NONE;
    if (ct__file_map(path, &map, &n, &ctx->err)) {
        if (arrays_parse_npy(path, map ? map : "", n, &npy, &ctx->err))
            t = arrays_make_tensor(ctx, path, &npy, (const char *)map + npy.begin, here);
        ct__file_unmap(map, n);
    }
    if (!t.bits) arrays_hint_format(&ctx->err, path, "PK", "it may be an npz file: ct_npz_open");
    ct__err_locate(&ctx->err, here, "load_npy");
    return t.bits ? t : ct__poison(ctx, here);
}

ct_npz *ct_npz_open_at(const char *path, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, path, here, "npz_open", "the path") || ctx->err.code) return NULL;
    ct_npz *npz = ct__calloc(1, sizeof *npz);
    if (!npz) return ct__null_memory(&ctx->err, here, path, sizeof *npz);
    if (ct__npz_open(path, npz, &ctx->err)) return npz;
    arrays_hint_format(&ctx->err, path, "\x93NUMPY", "it is an npy file: ct_load_npy");
    ct__err_locate(&ctx->err, here, "npz_open");
    ct__free(npz);
    return NULL;
}

void ct_npz_close(ct_npz *npz) {
    if (!npz) return;
    ct__npz_close(npz);
    ct__free(npz);
}

size_t ct_npz_count(const ct_npz *npz) { return npz ? npz->n : 0; }
const char *ct_npz_name(const ct_npz *npz, size_t i) {
    return i < ct_npz_count(npz) ? npz->entries[i].name : NULL;
}

// Reports a name that the file lacks, with the file's first names and the most similar one.
static void arrays_refuse_name(ct_ctx *ctx, const ct_npz *npz, const char *name, ct_loc here) {
    enum { LISTED = 4 };
    char shown[CT_PRINTABLE], listed[LISTED * (CT_PRINTABLE + 4) + 1] = "";
    const char *near = NULL;
    size_t n = 0;
    for (size_t i = 0; i < npz->n && i < LISTED; i++) {
        const char *other = npz->entries[i].name;
        n += (size_t)snprintf(listed + n, sizeof listed - n, "%s\"%s\"", i ? ", " : ": ",
                              ct__printable(other, strlen(other), shown, sizeof shown));
    }
    ct__fail(ctx, CT_E_ARGUMENT, here, "npz_get", "%s has no array \"%s\"; it has %zu%s%s",
             npz->label, ct__printable(name, strlen(name), shown, sizeof shown), npz->n, listed,
             npz->n > LISTED ? ", ..." : "");
    for (size_t i = 0; i < npz->n; i++) {
        const char *other = npz->entries[i].name, *const both[] = {near ? near : other, other,
                                                                   NULL};
        near = ct__nearest(name, both);
    }
    if (near)
        ct__err_hint(&ctx->err, "did you mean \"%s\"?",
                     ct__printable(near, strlen(near), shown, sizeof shown));
}

ct_tensor ct_npz_get_at(ct_npz *npz, const char *name, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    ct_npy npy;
    void *data;
    if (!ctx) return CT_NONE;
    if (ctx->err.code) return ct__poison(ctx, here);
    if (!npz) return ct__fail(ctx, CT_E_ARGUMENT, here, "npz_get", "the file is not open");
    if (!ct__given(ctx, name, here, "npz_get", "the name")) return ct__poison(ctx, here);
    const ct_npz_entry *entry = ct__npz_find(npz, name);
    if (!entry) {
        arrays_refuse_name(ctx, npz, name, here);
        return ct__poison(ctx, here);
    }
    if (!ct__npz_read(npz, entry, &npy, &data, &ctx->err)) {
        ct__err_locate(&ctx->err, here, "npz_get");
        return ct__poison(ctx, here);
    }
    ct_tensor t = arrays_make_tensor(ctx, npz->label, &npy, data, here);
    ct__free(data);
    return t;
}

// --------------------------------------------------------------------------------------- writing

typedef struct host_tensor { // a tensor on the host
    int64_t dim[CT_MAX_RANK];
    int rank;
    const void *data;
} host_tensor;

static bool arrays_get_host(ct_tensor t, host_tensor *h, ct_loc here) {
    h->data = ct_data_at(t, here);
    h->rank = ct_rank(t);
    for (int a = 0; a < h->rank; a++) h->dim[a] = ct_dim(t, a);
    return h->data != NULL;
}

static bool arrays_write_npy(const char *path, const ct_text *head, const void *data, size_t bytes,
                             ct_err *err) {
    ct_atomic_file file;
    if (!ct__atomic_file_begin(&file, path, 0, err)) return false;
    bool ok = ct__atomic_file_write(&file, head->s, head->n, err) &&
              ct__atomic_file_write(&file, data, bytes, err) && ct__atomic_file_commit(&file, err);
    if (!ok) ct__atomic_file_abandon(&file);
    return ok;
}

bool ct_save_npy_at(const char *path, ct_tensor t, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, path, here, "save_npy", "the path") || ctx->err.code) return false;
    CT_SCOPE; // for what reading a variable records
    host_tensor h;
    CT_TEXT head = {0};
    bool ok = arrays_get_host(t, &h, here) &&
              ct__npy_header((ct_npy_name){path, npy_part}, ct_dtype_of(t), h.rank, h.dim, &head,
                             &ctx->err);
    ok = ok && arrays_write_npy(path, &head, h.data,
                                (size_t)ct_size(t) * ct_dtype_size(ct_dtype_of(t)), &ctx->err);
    return ok || ct__err_locate(&ctx->err, here, "save_npy");
}

bool ct_save_npz_with(const char *path, const ct_named_tensor *tensors, size_t n,
                      ct_npz_options options) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, path, options.here, "save_npz", "the path") ||
        (n && !ct__given(ctx, tensors, options.here, "save_npz", "the list of tensors")) ||
        ctx->err.code)
        return false;
    CT_SCOPE; // for what reading variables records
    ct_npz_out *out = ct__calloc(n + 1, sizeof *out);
    host_tensor *all = ct__calloc(n + 1, sizeof *all);
    bool ok = (out && all) || ct__err_memory(&ctx->err, options.here, "save_npz", n * sizeof *all);
    for (size_t i = 0; i < n && ok; i++) {
        ok = tensors[i].name || ct__err(&ctx->err, CT_E_ARGUMENT, options.here, "save_npz",
                                        "tensor %zu has no name", i);
        ok = ok && arrays_get_host(tensors[i].tensor, &all[i], options.here);
        if (!ok) break;
        out[i] = (ct_npz_out){.name = tensors[i].name,
                              .dtype = ct_dtype_of(tensors[i].tensor),
                              .rank = all[i].rank,
                              .shape = all[i].dim,
                              .data = all[i].data};
    }
    ok = ok && ct__npz_write(path, out, n, options.deflate, &ctx->err);
    ct__free(out);
    ct__free(all);
    return ok || ct__err_locate(&ctx->err, options.here, "save_npz");
}
