// Files as tensors.
#include "cotan/data.h"

#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "graph/graph.h"

static uint32_t big_endian(const unsigned char *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

// The whole file, or NULL with the error in the context; *text is freed with ct__free.
static char *read_file(ct_ctx *ctx, const char *op, const char *path, size_t *n, ct_loc here) {
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
    char *bytes = read_file(ctx, "load_bytes", path, &n, here);
    if (!bytes) return ct__poison(ctx, here);
    ct_tensor t = ct_from_at(bytes, CT_U8, CT_DIMS((int64_t)n), here);
    ct__free(bytes);
    return t;
}

// An IDX file is two zero bytes, a code of the element type, the number of axes, each axis' size in
// four bytes, and the elements, all with the most significant byte first.
typedef struct idx {
    ct_dtype dtype;
    int64_t rank, dims[CT_MAX_RANK];
    size_t elements, begin; // how many, and where the first one is
} idx;

static bool idx_parse(const unsigned char *p, size_t n, const char *path, idx *out, ct_err *err) {
    static const ct_dtype dtypes[16] = {
        [8] = CT_U8, [9] = CT_I8, [11] = CT_I16, [12] = CT_I32, [13] = CT_F32, [14] = CT_F64};
    if (n < 4 || p[0] || p[1] || p[2] < 8 || p[2] > 14) {
        ct__err(err, CT_E_FORMAT, CT_NOWHERE, path, "this is no IDX file");
        if (n > 1 && p[0] == 0x1f && p[1] == 0x8b) ct__err_hint(err, "unpack it: gunzip %s", path);
        return false;
    }
    if (!dtypes[p[2]])
        return ct__err(err, CT_E_UNSUPPORTED, CT_NOWHERE, path,
                       "elements of type %d; types 8, 9 and 11 to 14 are read (u8, i8, i16, i32, "
                       "f32, f64)",
                       p[2]);
    if (p[3] > CT_MAX_RANK || n < 4 + 4 * (size_t)p[3])
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, path, "%d axes do not fit %zu bytes", p[3], n);
    *out = (idx){.dtype = dtypes[p[2]], .rank = p[3], .elements = 1, .begin = 4 + 4 * (size_t)p[3]};
    bool fits = true;
    for (int a = 0; a < out->rank; a++) {
        out->dims[a] = big_endian(p + 4 + 4 * a);
        fits &= !__builtin_mul_overflow(out->elements, (size_t)out->dims[a], &out->elements);
    }
    size_t size = ct_dtype_size(out->dtype), bytes = n - out->begin;
    if (!fits || out->elements != bytes / size || bytes % size)
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, path,
                       "the sizes ask for %s%zu elements of %zu bytes, the file holds %zu bytes",
                       fits ? "" : "more than ", fits ? out->elements : SIZE_MAX, size, bytes);
    return true;
}

// Elements of the machine's byte order, in place.
static void idx_to_host(unsigned char *p, size_t n, size_t size) {
    for (size_t i = 0; size == 2 && i < n; i++, p += 2) {
        uint16_t word = (uint16_t)(p[0] << 8 | p[1]);
        memcpy(p, &word, 2);
    }
    for (size_t i = 0; size == 4 && i < n; i++, p += 4) {
        uint32_t word = big_endian(p);
        memcpy(p, &word, 4);
    }
    for (size_t i = 0; size == 8 && i < n; i++, p += 8) {
        uint64_t word = (uint64_t)big_endian(p) << 32 | big_endian(p + 4);
        memcpy(p, &word, 8);
    }
}

ct_tensor ct_load_idx_at(const char *path, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_NONE;
    size_t n = 0;
    char *bytes = read_file(ctx, "load_idx", path, &n, here);
    if (!bytes) return ct__poison(ctx, here);
    ct_err err = {0};
    idx array;
    ct_tensor t;
    if (idx_parse((unsigned char *)bytes, n, path, &array, &err)) {
        unsigned char *data = (unsigned char *)bytes + array.begin;
        idx_to_host(data, array.elements, ct_dtype_size(array.dtype));
        t = ct_from_at(data, array.dtype, (ct_ints){array.rank, array.dims}, here);
    } else {
        t = ct__fail(ctx, err.code, here, "load_idx", "%s", err.text);
    }
    ct__free(bytes);
    return t;
}
