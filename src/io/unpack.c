#include "io/unpack.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "graph/type.h"
#include "io/utf8.h"

__attribute__((format(printf, 3, 4))) static bool refuse(const ct_weight *w, ct_err *err,
                                                         const char *format, ...) {
    char text[512], shown[CT_PRINTABLE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ct__err(err, CT_E_FORMAT, CT_NOWHERE, w->path, "tensor \"%s\": %s",
                   ct__printable(w->name, strlen(w->name), shown, sizeof shown), text);
}

static const char *describe(const ct_weight *w, char out[200]) {
    uint64_t dim[CT_MAX_RANK] = {0};
    for (size_t i = 0; i < w->rank; i++) dim[i] = (uint64_t)w->dim[i];
    return ct__shape_text(out, 200, w->dtype ? ct_dtype_name(w->dtype) : w->kind, w->rank, dim, 0);
}

static bool misfit(const ct_weight *w, const ct_weight *other, const char *what, ct_err *err) {
    char mine[200], its[200];
    return refuse(w, err, "%s does not go with %s %s", describe(w, mine), what,
                  describe(other, its));
}

static bool same_dims(const ct_weight *a, const ct_weight *b, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

static uint64_t product(const ct_weight *w, size_t n) { // of the first n axes of a tensor in a file
    uint64_t rows = 1;
    for (size_t i = 0; i < n; i++) rows *= (uint64_t)w->dim[i];
    return rows;
}

static bool counts(const ct_weight *w, uint64_t found, uint64_t wanted, ct_err *err) {
    char what[200];
    return found == wanted || refuse(w, err, "%s stands for %" PRIu64 " numbers, not for %" PRIu64,
                                     describe(w, what), found, wanted);
}

// --------------------------------------------------------------------------------------------- scales

static float of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

// Rounded to the dtype, to even.
static float rounded(ct_dtype dtype, float v) {
    const uint32_t bits = bits_of(v), size = bits & 0x7fffffff;
    if (dtype == CT_F32 || size >= 0x7f800000) return v;
    if (dtype == CT_BF16) return of_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
    if (size < 0x38800000) return copysignf((fabsf(v) + 0.5f) - 0.5f, v); // f16's subnormals
    const uint32_t near = (size + 0xfff + (size >> 13 & 1)) & ~0x1fffu;
    return copysignf(near < 0x47800000 ? of_bits(near) : INFINITY, v);
}

static bool is_scale(const ct_weight *w) {
    return w->dtype == CT_F32 || w->dtype == CT_F16 || w->dtype == CT_BF16;
}
static bool is_power(const ct_weight *w) {
    return w->dtype == CT_U8 || strcmp(w->kind, "F8_E8M0") == 0;
}

float ct__scale_at(const ct_weight *w, uint64_t i) {
    const unsigned char *bytes = w->data;
    float value;
    uint16_t half;
    if (is_power(w)) // the one code that is no number, in the dtype of these
        return bytes[i] == 255 && w->dtype != CT_U8 ? NAN : ldexpf(1, bytes[i] - 127);
    if (w->dtype == CT_F32) {
        memcpy(&value, bytes + 4 * i, sizeof value);
        return value;
    }
    memcpy(&half, bytes + 2 * i, sizeof half);
    return w->dtype == CT_BF16 ? of_bits((uint32_t)half << 16)
                               : (float)ct__decode_float(CT_F16, half);
}

// ----------------------------------------------------------------------------------------------- MLX

enum { MOST_GROUP = 128 };
void ct__unpack_codes(const void *codes, int bits, int64_t n, uint8_t *to) {
    const unsigned char *from = codes;
    uint32_t held = 0;
    int have = 0;
    for (int64_t i = 0; i < n; i++) {
        for (; have < bits; have += 8) held |= (uint32_t)*from++ << have;
        to[i] = (uint8_t)(held & ((1u << bits) - 1));
        held >>= bits;
        have -= bits;
    }
}
static void unpack_group(const unsigned char *from, int bits, int64_t n, float scale, float bias,
                         ct_dtype dtype, float *to) {
    uint8_t code[MOST_GROUP];
    ct__unpack_codes(from, bits, n, code);
    for (int64_t i = 0; i < n; i++)
        to[i] = rounded(dtype, rounded(dtype, (float)code[i] * scale) + bias);
}

bool ct__fits_mlx(const ct_weight *codes, const ct_weight *scales, const ct_weight *biases,
                  int bits, int64_t group, ct_err *err) {
    if (bits < 2 || bits > 8 || bits == 7 || (group != 32 && group != 64 && group != 128))
        return refuse(codes, err, "%d bits in groups of %" PRId64 " are none of mlx's", bits,
                      group);
    size_t last = codes->rank - 1;
    if (codes->dtype != CT_U32 || !codes->rank || scales->rank != codes->rank ||
        !is_scale(scales) || !same_dims(codes, scales, last) || codes->dim[last] % bits ||
        (uint64_t)(codes->dim[last] / bits) * 32 != (uint64_t)scales->dim[last] * (uint64_t)group)
        return misfit(codes, scales, "the scales", err);
    if (biases->dtype != scales->dtype || biases->rank != scales->rank ||
        !same_dims(scales, biases, scales->rank))
        return misfit(scales, biases, "the biases", err);
    return true;
}

bool ct__unpack_mlx(const ct_weight *codes, const ct_weight *scales, const ct_weight *biases,
                    int bits, int64_t group, float *to, uint64_t count, ct_err *err) {
    if (!ct__fits_mlx(codes, scales, biases, bits, group, err)) return false;
    uint64_t groups = product(scales, scales->rank), stride = (uint64_t)(group * bits / 8);
    if (!counts(codes, groups * (uint64_t)group, count, err)) return false;
    for (uint64_t i = 0; i < groups; i++)
        unpack_group((const unsigned char *)codes->data + i * stride, bits, group,
                     ct__scale_at(scales, i), ct__scale_at(biases, i), scales->dtype,
                     to + i * (uint64_t)group);
    return true;
}

// ----------------------------------------------------------------------------------------------- FP8

static int64_t ceil_div(int64_t n, int64_t by) { return n / by + (n % by != 0); }

bool ct__fits_fp8(const ct_weight *codes, const ct_weight *scales, int64_t rows, int64_t columns,
                  ct_err *err) {
    size_t r = codes->rank;
    bool one = product(scales, scales->rank) == 1;
    if ((codes->dtype != CT_F8E4M3 && codes->dtype != CT_F8E5M2) ||
        !(is_scale(scales) || is_power(scales)) ||
        (!one && (r < 2 || scales->rank != r || rows < 1 || columns < 1 ||
                  !same_dims(codes, scales, r - 2) ||
                  scales->dim[r - 2] != ceil_div(codes->dim[r - 2], rows) ||
                  scales->dim[r - 1] != ceil_div(codes->dim[r - 1], columns))))
        return misfit(codes, scales, "the scales", err);
    return true;
}

bool ct__unpack_fp8(const ct_weight *codes, const ct_weight *scales, int64_t rows, int64_t columns,
                    float *to, uint64_t count, ct_err *err) {
    size_t r = codes->rank;
    bool one = product(scales, scales->rank) == 1;
    if (!ct__fits_fp8(codes, scales, rows, columns, err) ||
        !counts(codes, product(codes, r), count, err))
        return false;
    if (count == 0) return true;
    float number[256];
    for (uint32_t c = 0; c < 256; c++) number[c] = (float)ct__decode_float(codes->dtype, c);
    const unsigned char *code = codes->data;
    if (one) {
        const float scale = ct__scale_at(scales, 0);
        for (uint64_t i = 0; i < count; i++) to[i] = number[code[i]] * scale;
        return true;
    }
    const int64_t m = codes->dim[r - 2], n = codes->dim[r - 1], wide = scales->dim[r - 1];
    if (columns > n) columns = n;
    for (uint64_t row = 0; row < product(codes, r - 1); row++) {
        const uint64_t matrix = row / (uint64_t)m, in = row % (uint64_t)m / (uint64_t)rows;
        const uint64_t first = (matrix * (uint64_t)scales->dim[r - 2] + in) * (uint64_t)wide;
        for (int64_t begin = 0; begin < n; begin += columns) {
            const float scale = ct__scale_at(scales, first + (uint64_t)(begin / columns));
            const int64_t end = n - begin < columns ? n : begin + columns;
            for (int64_t i = begin; i < end; i++) *to++ = number[*code++] * scale;
        }
    }
    return true;
}

// --------------------------------------------------------------------------------------------- MXFP4

bool ct__fits_mxfp4(const ct_weight *blocks, const ct_weight *scales, ct_err *err) {
    size_t r = scales->rank;
    if (blocks->dtype != CT_U8 || !is_power(scales) || blocks->rank != r + 1 ||
        blocks->dim[r] != 16 || !same_dims(blocks, scales, r))
        return misfit(blocks, scales, "the scales", err);
    return true;
}

bool ct__unpack_mxfp4(const ct_weight *blocks, const ct_weight *scales, float *to, uint64_t count,
                      ct_err *err) {
    size_t r = scales->rank;
    if (!ct__fits_mxfp4(blocks, scales, err)) return false;
    uint64_t groups = product(scales, r);
    if (!counts(blocks, 2 * blocks->bytes, count, err)) return false;
    float number[16];
    for (uint32_t c = 0; c < 16; c++) number[c] = (float)ct__decode_float(CT_F4, c);
    const unsigned char *code = blocks->data;
    for (uint64_t g = 0; g < groups; g++) {
        const float scale = ct__scale_at(scales, g);
        for (int i = 0; i < 16; i++, code++) {
            *to++ = number[*code & 15] * scale;
            *to++ = number[*code >> 4] * scale;
        }
    }
    return true;
}
