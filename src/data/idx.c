#include "data/idx.h"

#include <string.h>

static uint32_t idx_read_u32(const unsigned char *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

// 0: the code is unknown.
static ct_dtype idx_dtype(unsigned char code) {
    static const ct_dtype dtypes[256] = {
        [8] = CT_U8, [9] = CT_I8, [11] = CT_I16, [12] = CT_I32, [13] = CT_F32, [14] = CT_F64};
    return dtypes[code];
}

bool ct__idx_begins(const void *bytes, size_t n) {
    const unsigned char *p = bytes;
    return n >= 4 && !p[0] && !p[1] && idx_dtype(p[2]) && p[3] && p[3] <= CT_MAX_RANK;
}

bool ct__idx_parse(const char *path, const void *bytes, size_t n, ct_idx *out, ct_err *err) {
    const unsigned char *p = bytes;
    if (n < 4 || p[0] || p[1] || p[2] < 8 || p[2] > 14) {
        ct__err(err, CT_E_FORMAT, CT_NOWHERE, path, "this is no IDX file");
        if (n > 1 && p[0] == 0x1f && p[1] == 0x8b) ct__err_hint(err, "unpack it: gunzip %s", path);
        return false;
    }
    if (!idx_dtype(p[2]))
        return ct__err(err, CT_E_UNSUPPORTED, CT_NOWHERE, path,
                       "elements of type %d; types 8, 9 and 11 to 14 are read (u8, i8, i16, i32, "
                       "f32, f64)",
                       p[2]);
    if (p[3] > CT_MAX_RANK || n < 4 + 4 * (size_t)p[3])
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, path, "%d axes do not fit %zu bytes", p[3], n);
    *out = (ct_idx){
        .dtype = idx_dtype(p[2]), .rank = p[3], .elements = 1, .begin = 4 + 4 * (size_t)p[3]};
    bool fits = true;
    for (int a = 0; a < out->rank; a++) {
        out->dims[a] = idx_read_u32(p + 4 + 4 * a);
        fits &= !__builtin_mul_overflow(out->elements, (size_t)out->dims[a], &out->elements);
    }
    size_t size = ct_dtype_size(out->dtype), have = n - out->begin;
    if (!fits || out->elements != have / size || have % size)
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, path,
                       "the sizes ask for %s%zu elements of %zu bytes, the file holds %zu bytes",
                       fits ? "" : "more than ", fits ? out->elements : SIZE_MAX, size, have);
    return true;
}

void ct__idx_to_host(const ct_idx *array, unsigned char *data) {
    unsigned char *p = data;
    size_t n = array->elements, size = ct_dtype_size(array->dtype);
    for (size_t i = 0; size == 2 && i < n; i++, p += 2) {
        uint16_t word = (uint16_t)(p[0] << 8 | p[1]);
        memcpy(p, &word, 2);
    }
    for (size_t i = 0; size == 4 && i < n; i++, p += 4) {
        uint32_t word = idx_read_u32(p);
        memcpy(p, &word, 4);
    }
    for (size_t i = 0; size == 8 && i < n; i++, p += 8) {
        uint64_t word = (uint64_t)idx_read_u32(p) << 32 | idx_read_u32(p + 4);
        memcpy(p, &word, 8);
    }
}
