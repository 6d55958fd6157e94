// Loads and saves tensors with arbitrary names in safetensors files.
#include <string.h>

#include "cotan/binding.h"
#include "cotan/io.h"
#include "graph/graph.h"
#include "io/safetensors.h"
#include "io/utf8.h"

struct ct_safetensors {
    ct_st st;
    char *path;
};

// --------------------------------------------------------------------------------------- reading

// Checks that no string contains a zero byte: callers get names as C strings.
static bool named_check_strings(const ct_st *st, const char *path, ct_err *err) {
    char shown[CT_PRINTABLE];
    for (size_t i = 0; i < st->n; i++) {
        const ct_st_entry *e = &st->entries[i];
        if (strlen(e->name) != e->name_n)
            return ct__err(err, CT_E_UNSUPPORTED, CT_NOWHERE, path,
                           "safetensors: tensor \"%s\": its name holds a zero byte",
                           ct__printable(e->name, e->name_n, shown, sizeof shown));
    }
    for (size_t i = 0; i < st->n_metadata; i++) {
        const ct_st_pair *p = &st->metadata[i];
        if (strlen(p->key) != p->key_n || strlen(p->value) != p->value_n)
            return ct__err(err, CT_E_UNSUPPORTED, CT_NOWHERE, path,
                           "safetensors: __metadata__: key \"%s\" or its value holds a zero byte",
                           ct__printable(p->key, p->key_n, shown, sizeof shown));
    }
    return true;
}

ct_safetensors *ct_safetensors_open_at(const char *path, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, path, here, "safetensors_open", "the path") || ctx->err.code)
        return NULL;
    const size_t n = strlen(path) + 1;
    ct_safetensors *file = ct__calloc(1, sizeof *file);
    char *own = file ? ct__malloc(n) : NULL;
    if (own) {
        memcpy(own, path, n);
        file->path = own;
        if (ct__st_open(own, &file->st, &ctx->err) &&
            named_check_strings(&file->st, own, &ctx->err))
            return file;
        ct__err_locate(&ctx->err, here, "safetensors_open");
    } else {
        ct__err_memory(&ctx->err, here, path, sizeof *file + n);
    }
    ct_safetensors_close(file);
    return NULL;
}

void ct_safetensors_close(ct_safetensors *file) {
    if (!file) return;
    ct__st_close(&file->st);
    ct__free(file->path);
    ct__free(file);
}

size_t ct_safetensors_count(const ct_safetensors *file) { return file ? file->st.n : 0; }
const char *ct_safetensors_name(const ct_safetensors *file, size_t i) {
    return i < ct_safetensors_count(file) ? file->st.entries[i].name : NULL;
}
const char *ct_safetensors_metadata(const ct_safetensors *file, const char *key) {
    return file && key ? ct__st_metadata(&file->st, key) : NULL;
}
const char *ct_safetensors_metadata_key(const ct_safetensors *file, size_t i) {
    return file && i < file->st.n_metadata ? file->st.metadata[i].key : NULL;
}

_Static_assert(CT_MAX_RANK == 32, "the text below");
static bool named_check_entry(const ct_st_entry *e, int64_t *dims, const char *path, ct_err *err) {
    char what[200], shown[CT_PRINTABLE];
    const char *why = NULL;
    if (!e->dtype) why = "Cotan does not compute with that dtype";
    if (!why && e->rank > CT_MAX_RANK) why = "a tensor has 32 axes at most";
    for (size_t i = 0; !why && i < e->rank; i++) {
        if (e->shape[i] > INT64_MAX) why = "a size has 63 bits at most";
        dims[i] = (int64_t)e->shape[i];
    }
    return !why ||
           ct__err(err, CT_E_UNSUPPORTED, CT_NOWHERE, path, "safetensors: tensor \"%s\" is %s: %s",
                   ct__printable(e->name, e->name_n, shown, sizeof shown),
                   ct__st_describe(e, what, sizeof what), why);
}

// Reads the tensor's bytes into newly allocated memory.
static void *named_read_bytes(const ct_safetensors *file, const ct_st_entry *e, ct_err *err) {
    char *bytes = ct__malloc(e->bytes ? (size_t)e->bytes : 1);
    if (!bytes) return ct__null_memory(err, CT_NOWHERE, file->path, (size_t)e->bytes);
    for (ct_st_chunk p = {0}; e->bytes;) {
        if (!ct__st_next_chunk(&file->st, e, &p, err)) {
            ct__free(bytes);
            return NULL;
        }
        if (!p.n) break;
        memcpy(bytes + p.at, p.bytes, p.n);
    }
    for (size_t i = 0; e->dtype == CT_BOOL && i < e->bytes; i++) bytes[i] = bytes[i] != 0;
    return bytes;
}

ct_tensor ct_safetensors_get_at(ct_safetensors *file, const char *name, ct_loc here) {
    static const char op[] = "safetensors_get";
    ct_ctx *ctx = ct__ctx();
    int64_t dims[CT_MAX_RANK];
    char shown[CT_PRINTABLE];
    if (!ctx) return CT_NONE;
    if (ctx->err.code) return ct__poison(ctx, here);
    if (!file) return ct__fail(ctx, CT_E_ARGUMENT, here, op, "the file is not open");
    if (!ct__given(ctx, name, here, op, "the name")) return ct__poison(ctx, here);
    const ct_st_entry *e = ct__st_find(&file->st, name);
    if (!e)
        return ct__fail(ctx, CT_E_ARGUMENT, here, op, "%s has no tensor \"%s\"; it has %zu",
                        file->path, ct__printable(name, strlen(name), shown, sizeof shown),
                        file->st.n);
    void *bytes = named_check_entry(e, dims, file->path, &ctx->err)
                      ? named_read_bytes(file, e, &ctx->err)
                      : NULL;
    if (!bytes) {
        ct__err_locate(&ctx->err, here, op);
        return ct__poison(ctx, here);
    }
    return ct_adopt_at(bytes, e->dtype, (ct_ints){(int64_t)e->rank, dims}, ct__free, bytes, here);
}

// --------------------------------------------------------------------------------------- writing

// Prepares the value of a tensor, on the host, for writing.
static bool named_prepare_out(ct_ctx *ctx, const ct_named_tensor *t, size_t i, int64_t *dims,
                              ct_st_out *out, ct_loc here) {
    if (!t->name)
        return ct__err(&ctx->err, CT_E_ARGUMENT, here, "save_safetensors", "tensor %zu has no name",
                       i);
    const void *data = ct_data_at(t->tensor, here);
    const int rank = ct_rank(t->tensor);
    for (int a = 0; a < rank; a++) dims[a] = ct_dim(t->tensor, a);
    *out = (ct_st_out){t->name, ct_dtype_of(t->tensor), (size_t)rank, dims, data};
    return data != NULL;
}

bool ct_save_safetensors_with(const char *path, const ct_named_tensor *tensors, size_t n,
                              ct_safetensors_options options) {
    static const char op[] = "save_safetensors";
    ct_ctx *ctx = ct__ctx();
    const ct_loc here = options.here;
    const size_t pairs = options.n_metadata;
    if (!ctx || !ct__given(ctx, path, here, op, "the path") ||
        (n && !ct__given(ctx, tensors, here, op, "the list of tensors")) ||
        (pairs && !ct__given(ctx, options.metadata, here, op, "the metadata")) || ctx->err.code)
        return false;
    CT_SCOPE; // for what reading variables records
    ct_st_out *out = ct__calloc(n + 1, sizeof *out);
    int64_t(*dims)[CT_MAX_RANK] = ct__calloc(n + 1, sizeof *dims);
    ct_st_pair *metadata = ct__calloc(pairs + 1, sizeof *metadata);
    bool ok = (out && dims && metadata) ||
              ct__err_memory(&ctx->err, here, op, n * (sizeof *out + sizeof *dims));
    for (size_t i = 0; i < n && ok; i++)
        ok = named_prepare_out(ctx, &tensors[i], i, dims[i], &out[i], here);
    for (size_t i = 0; i < pairs && ok; i++) {
        const ct_metadata *p = &options.metadata[i];
        ok = (p->key && p->value) || ct__err(&ctx->err, CT_E_ARGUMENT, here, op,
                                             "pair %zu of the metadata has no key or no value", i);
        if (ok) metadata[i] = (ct_st_pair){p->key, p->value, strlen(p->key), strlen(p->value)};
    }
    ok = ok && ct__st_write(path, out, n, metadata, pairs, &ctx->err);
    ct__free(out);
    ct__free(dims);
    ct__free(metadata);
    return ok || ct__err_locate(&ctx->err, here, op);
}
