// Loading files as tensors.
#include "cotan/data.h"

#include "base/mem.h"
#include "base/os.h"
#include "data/idx.h"
#include "graph/graph.h"

// Returns the whole file, to be freed with ct__free, or NULL and an error in the context.
static char *load_read_file(ct_ctx *ctx, const char *op, const char *path, size_t *n, ct_loc here) {
    ct_err err = {0};
    char *bytes = NULL;
    if (!path)
        ct__fail(ctx, CT_E_ARGUMENT, here, op, "the path must not be NULL");
    else if (!ct__file_read(path, &bytes, n, &err))
        ct__fail(ctx, err.code, here, op, "%s", err.text);
    return bytes;
}

ct_tensor ct_load_bytes_at(const char *path, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_NONE;
    size_t n = 0;
    char *bytes = load_read_file(ctx, "load_bytes", path, &n, here);
    if (!bytes) return ct__poison(ctx, here);
    ct_tensor t = ct_from_at(bytes, CT_U8, CT_DIMS((int64_t)n), here);
    ct__free(bytes);
    return t;
}

ct_tensor ct_load_idx_at(const char *path, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_NONE;
    size_t n = 0;
    char *bytes = load_read_file(ctx, "load_idx", path, &n, here);
    if (!bytes) return ct__poison(ctx, here);
    ct_err err = {0};
    ct_idx array;
    ct_tensor t;
    if (ct__idx_parse(path, bytes, n, &array, &err)) {
        unsigned char *data = (unsigned char *)bytes + array.begin;
        ct__idx_to_host(&array, data);
        t = ct_from_at(data, array.dtype, (ct_ints){array.rank, array.dims}, here);
    } else {
        t = ct__fail(ctx, err.code, here, "load_idx", "%s", err.text);
    }
    ct__free(bytes);
    return t;
}
