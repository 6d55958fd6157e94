#include "io/unpack.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "graph/type.h"
#include "io/utf8.h"

__attribute__((format(printf, 3, 4))) static bool unpack_refuse(const ct_weight *w, ct_err *err,
                                                                const char *format, ...) {
    char text[512], shown[CT_PRINTABLE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ct__err(err, CT_E_FORMAT, CT_NOWHERE, w->path, "tensor \"%s\": %s",
                   ct__printable(w->name, strlen(w->name), shown, sizeof shown), text);
}

static const char *unpack_describe(const ct_weight *w, char out[200]) {
    uint64_t dim[CT_MAX_RANK] = {0};
    for (size_t i = 0; i < w->rank; i++) dim[i] = (uint64_t)w->dim[i];
    return ct__shape_text(out, 200, w->dtype ? ct_dtype_name(w->dtype) : w->kind, w->rank, dim, 0);
}

static bool unpack_refuse_mismatch(const ct_weight *w, const ct_weight *other, const char *what,
                                   ct_err *err) {
    char mine[200], its[200];
    return unpack_refuse(w, err, "%s does not go with %s %s", unpack_describe(w, mine), what,
                         unpack_describe(other, its));
}

static bool unpack_has_same_dims(const ct_weight *a, const ct_weight *b, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

// Multiplies the first n dimensions of a stored tensor.
static uint64_t unpack_multiply_dims(const ct_weight *w, size_t n) {
    uint64_t rows = 1;
    for (size_t i = 0; i < n; i++) rows *= (uint64_t)w->dim[i];
    return rows;
}

static bool unpack_check_count(const ct_weight *w, uint64_t found, uint64_t wanted, ct_err *err) {
    char what[200];
    return found == wanted ||
           unpack_refuse(w, err, "%s represents %" PRIu64 " numbers, not %" PRIu64,
                         unpack_describe(w, what), found, wanted);
}

// --------------------------------------------------------------------------------------------- scales

static float unpack_f32_from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static uint32_t unpack_f32_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

// Rounds to the dtype, ties to even.
static float unpack_round(ct_dtype dtype, float v) {
    const uint32_t bits = unpack_f32_bits(v), size = bits & 0x7fffffff;
    if (dtype == CT_F32 || size >= 0x7f800000) return v;
    if (dtype == CT_BF16)
        return unpack_f32_from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
    if (size < 0x38800000) return copysignf((fabsf(v) + 0.5f) - 0.5f, v); // subnormals of f16
    const uint32_t near = (size + 0xfff + (size >> 13 & 1)) & ~0x1fffu;
    return copysignf(near < 0x47800000 ? unpack_f32_from_bits(near) : INFINITY, v);
}

static bool unpack_is_float_scale(const ct_weight *w) {
    return w->dtype == CT_F32 || w->dtype == CT_F16 || w->dtype == CT_BF16;
}
static bool unpack_is_exponent_scale(const ct_weight *w) {
    return w->dtype == CT_U8 || strcmp(w->kind, "F8_E8M0") == 0;
}

float ct__read_scale(const ct_weight *w, uint64_t i) {
    const unsigned char *bytes = w->data;
    float value;
    uint16_t half;
    if (unpack_is_exponent_scale(w)) // F8_E8M0 has one NaN; u8 scales have none
        return bytes[i] == 255 && w->dtype != CT_U8 ? NAN : ldexpf(1, bytes[i] - 127);
    if (w->dtype == CT_F32) {
        memcpy(&value, bytes + 4 * i, sizeof value);
        return value;
    }
    memcpy(&half, bytes + 2 * i, sizeof half);
    return w->dtype == CT_BF16 ? unpack_f32_from_bits((uint32_t)half << 16)
                               : (float)ct__decode_float(CT_F16, half);
}

// ----------------------------------------------------------------------------------------------- MLX

enum { MAX_GROUP = 128 };
void ct__unpack_quants(const void *quants, int bits, int64_t n, uint8_t *to) {
    const unsigned char *from = quants;
    uint32_t buffer = 0;
    int n_bits = 0;
    for (int64_t i = 0; i < n; i++) {
        for (; n_bits < bits; n_bits += 8) buffer |= (uint32_t)*from++ << n_bits;
        to[i] = (uint8_t)(buffer & ((1u << bits) - 1));
        buffer >>= bits;
        n_bits -= bits;
    }
}
static void unpack_mlx_group(const unsigned char *from, int bits, int64_t n, float scale,
                             float bias, ct_dtype dtype, float *to) {
    uint8_t quant[MAX_GROUP];
    ct__unpack_quants(from, bits, n, quant);
    for (int64_t i = 0; i < n; i++)
        to[i] = unpack_round(dtype, unpack_round(dtype, (float)quant[i] * scale) + bias);
}

bool ct__check_mlx(const ct_weight *quants, const ct_weight *scales, const ct_weight *biases,
                   int bits, int64_t group, ct_err *err) {
    if (bits < 2 || bits > 8 || bits == 7 || (group != 32 && group != 64 && group != 128))
        return unpack_refuse(quants, err, "%d bits in groups of %" PRId64 " are none of mlx's",
                             bits, group);
    size_t last = quants->rank - 1;
    if (quants->dtype != CT_U32 || !quants->rank || scales->rank != quants->rank ||
        !unpack_is_float_scale(scales) || !unpack_has_same_dims(quants, scales, last) ||
        quants->dim[last] % bits ||
        (uint64_t)(quants->dim[last] / bits) * 32 != (uint64_t)scales->dim[last] * (uint64_t)group)
        return unpack_refuse_mismatch(quants, scales, "the scales", err);
    if (biases->dtype != scales->dtype || biases->rank != scales->rank ||
        !unpack_has_same_dims(scales, biases, scales->rank))
        return unpack_refuse_mismatch(scales, biases, "the biases", err);
    return true;
}

bool ct__unpack_mlx(const ct_weight *quants, const ct_weight *scales, const ct_weight *biases,
                    int bits, int64_t group, float *to, uint64_t count, ct_err *err) {
    if (!ct__check_mlx(quants, scales, biases, bits, group, err)) return false;
    uint64_t groups = unpack_multiply_dims(scales, scales->rank),
             stride = (uint64_t)(group * bits / 8);
    if (!unpack_check_count(quants, groups * (uint64_t)group, count, err)) return false;
    for (uint64_t i = 0; i < groups; i++)
        unpack_mlx_group((const unsigned char *)quants->data + i * stride, bits, group,
                         ct__read_scale(scales, i), ct__read_scale(biases, i), scales->dtype,
                         to + i * (uint64_t)group);
    return true;
}

// ----------------------------------------------------------------------------------------------- FP8

static int64_t unpack_ceil_div(int64_t n, int64_t by) { return n / by + (n % by != 0); }

bool ct__check_fp8(const ct_weight *quants, const ct_weight *scales, int64_t rows, int64_t columns,
                   ct_err *err) {
    size_t r = quants->rank;
    bool is_single = unpack_multiply_dims(scales, scales->rank) == 1;
    if ((quants->dtype != CT_F8E4M3 && quants->dtype != CT_F8E5M2) ||
        !(unpack_is_float_scale(scales) || unpack_is_exponent_scale(scales)) ||
        (!is_single && (r < 2 || scales->rank != r || rows < 1 || columns < 1 ||
                        !unpack_has_same_dims(quants, scales, r - 2) ||
                        scales->dim[r - 2] != unpack_ceil_div(quants->dim[r - 2], rows) ||
                        scales->dim[r - 1] != unpack_ceil_div(quants->dim[r - 1], columns))))
        return unpack_refuse_mismatch(quants, scales, "the scales", err);
    return true;
}

bool ct__unpack_fp8(const ct_weight *quants, const ct_weight *scales, int64_t rows, int64_t columns,
                    float *to, uint64_t count, ct_err *err) {
    size_t r = quants->rank;
    bool is_single = unpack_multiply_dims(scales, scales->rank) == 1;
    if (!ct__check_fp8(quants, scales, rows, columns, err) ||
        !unpack_check_count(quants, unpack_multiply_dims(quants, r), count, err))
        return false;
    if (count == 0) return true;
    float table[256];
    for (uint32_t c = 0; c < 256; c++) table[c] = (float)ct__decode_float(quants->dtype, c);
    const unsigned char *quant = quants->data;
    if (is_single) {
        const float scale = ct__read_scale(scales, 0);
        for (uint64_t i = 0; i < count; i++) to[i] = table[quant[i]] * scale;
        return true;
    }
    const int64_t m = quants->dim[r - 2], n = quants->dim[r - 1],
                  scale_columns = scales->dim[r - 1];
    if (columns > n) columns = n;
    for (uint64_t row = 0; row < unpack_multiply_dims(quants, r - 1); row++) {
        const uint64_t matrix = row / (uint64_t)m, block_row = row % (uint64_t)m / (uint64_t)rows;
        const uint64_t first =
            (matrix * (uint64_t)scales->dim[r - 2] + block_row) * (uint64_t)scale_columns;
        for (int64_t begin = 0; begin < n; begin += columns) {
            const float scale = ct__read_scale(scales, first + (uint64_t)(begin / columns));
            const int64_t end = n - begin < columns ? n : begin + columns;
            for (int64_t i = begin; i < end; i++) *to++ = table[*quant++] * scale;
        }
    }
    return true;
}

// --------------------------------------------------------------------------------------------- MXFP4

bool ct__check_mxfp4(const ct_weight *blocks, const ct_weight *scales, ct_err *err) {
    size_t r = scales->rank;
    if (blocks->dtype != CT_U8 || !unpack_is_exponent_scale(scales) || blocks->rank != r + 1 ||
        blocks->dim[r] != 16 || !unpack_has_same_dims(blocks, scales, r))
        return unpack_refuse_mismatch(blocks, scales, "the scales", err);
    return true;
}

bool ct__unpack_mxfp4(const ct_weight *blocks, const ct_weight *scales, float *to, uint64_t count,
                      ct_err *err) {
    size_t r = scales->rank;
    if (!ct__check_mxfp4(blocks, scales, err)) return false;
    uint64_t groups = unpack_multiply_dims(scales, r);
    if (!unpack_check_count(blocks, 2 * blocks->bytes, count, err)) return false;
    float table[16];
    for (uint32_t c = 0; c < 16; c++) table[c] = (float)ct__decode_float(CT_F4, c);
    const unsigned char *quant = blocks->data;
    for (uint64_t g = 0; g < groups; g++) {
        const float scale = ct__read_scale(scales, g);
        for (int i = 0; i < 16; i++, quant++) {
            *to++ = table[*quant & 15] * scale;
            *to++ = table[*quant >> 4] * scale;
        }
    }
    return true;
}
