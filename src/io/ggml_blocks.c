#include "io/ggml_blocks.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

// The comment of each function lists the fields of a block in order, with their bytes in brackets;
// d and m are a scale and a minimum, f16 unless stated otherwise. Products are rounded in the
// reference's order.
enum { QK = 32, QK_K = 256 };

static unsigned ggml_u16(const uint8_t *p) { return p[0] | (unsigned)p[1] << 8; }
static uint32_t ggml_u32(const uint8_t *p) { return ggml_u16(p) | (uint32_t)ggml_u16(p + 2) << 16; }

static float ggml_f32_from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float ggml_f16_to_f32(unsigned code) { // f16
    const uint32_t sign = (uint32_t)(code & 0x8000) << 16, rest = code & 0x7fff;
    const float size = rest >= 0x7c00  ? ggml_f32_from_bits(0x7f800000 | (rest & 0x3ff) << 13)
                       : rest >= 0x400 ? ggml_f32_from_bits((rest << 13) + (112u << 23))
                                       : (float)rest * 0x1p-24f;
    return sign ? -size : size;
}
static float ggml_read_f16(const uint8_t *p) { return ggml_f16_to_f32(ggml_u16(p)); }

// ----------------------------------------------------------------------------------- plain elements

#define SCALAR(name, c_type)                                                                       \
    static void name(const uint8_t *p, float *y) {                                                 \
        c_type value;                                                                              \
        memcpy(&value, p, sizeof value);                                                           \
        *y = (float)value;                                                                         \
    }
SCALAR(ggml_convert_f32, float)
SCALAR(ggml_convert_f64, double)
SCALAR(ggml_convert_i8, int8_t)
SCALAR(ggml_convert_i16, int16_t)
SCALAR(ggml_convert_i32, int32_t)
SCALAR(ggml_convert_i64, int64_t)
static void ggml_convert_f16(const uint8_t *p, float *y) { *y = ggml_read_f16(p); }
static void ggml_convert_bf16(const uint8_t *p, float *y) {
    *y = ggml_f32_from_bits((uint32_t)ggml_u16(p) << 16);
}

// -------------------------------------------------------------------------------------- packed bits

// Returns the i-th quant of 4 bits where the low halves of `width` bytes come before their high
// halves.
static inline int ggml_nibble(const uint8_t *quants, int i, int width) {
    return quants[i / (2 * width) * width + i % width] >> (i / width % 2 * 4) & 15;
}
// Return the i-th quant of 2 bits, and of 1 bit, where the lowest bits of 32 bytes come before the
// next ones.
static inline int ggml_two_bits(const uint8_t *quants, int i) {
    return quants[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
}
static inline int ggml_plane_bit(const uint8_t *quants, int i) {
    return quants[i % 32] >> (i / 32) & 1;
}
// Returns the i-th bit where each byte has eight consecutive ones.
static inline int ggml_bit(const uint8_t *quants, int i) { return quants[i / 8] >> (i % 8) & 1; }

// ----------------------------------------------------------------------------------- small blocks

// d, d times the quants' sum, quants (32)
static void ggml_dequantize_q8_1(const uint8_t *b, float *y) {
    const float d = ggml_read_f16(b);
    for (int i = 0; i < QK; i++) y[i] = d * (float)(int8_t)b[4 + i];
}
static void ggml_dequantize_q1_0(const uint8_t *b, float *y) { // d, signs (16)
    const float d = ggml_read_f16(b);
    for (int i = 0; i < 128; i++) y[i] = ggml_bit(b + 2, i) ? d : -d;
}

// ------------------------------------------------------------------------------- superblocks of 256

static float ggml_q3_k_scale(const uint8_t *b, int g) {
    const uint8_t *scales = b + 96;
    const int high = scales[8 + g % 4] >> (g / 4 * 2) & 3;
    return ggml_read_f16(b + 108) * (float)((ggml_nibble(scales, g, 8) | high << 4) - 32);
}

// Computes scale and minimum of the g-th 32 elements from d, m and 6 bits each in 12 bytes.
static void ggml_scale_and_min(const uint8_t *b, int g, float *d, float *m) {
    const uint8_t *s = b + 4;
    const int scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 2 & 48);
    const int minimum = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | (s[g] >> 2 & 48);
    *d = ggml_read_f16(b) * (float)scale;
    *m = ggml_read_f16(b + 2) * (float)minimum;
}
// d (f32), quants (256), sums of 16 (32)
static void ggml_dequantize_q8_k(const uint8_t *b, float *y) {
    const float d = ggml_f32_from_bits(ggml_u32(b));
    for (int i = 0; i < QK_K; i++) y[i] = d * (float)(int8_t)b[4 + i];
}

// ---------------------------------------------------------------------- ternary, and floats of 4 bits

// digits of base 3, 5 or 4 a byte (52), d
static void ggml_dequantize_tq1_0(const uint8_t *b, float *y) {
    static const uint8_t power[] = {1, 3, 9, 27, 81};
    const float d = ggml_read_f16(b + 52);
    for (int i = 0; i < QK_K; i++) {
        const int k = i < 160 ? i : i < 240 ? i - 160 : i - 240;
        const int width = i < 160 ? 32 : i < 240 ? 16 : 4, from = i < 160 ? 0 : i < 240 ? 32 : 48;
        // A byte is a fraction of 256; its first digit is the integer part of three times that.
        const uint8_t rest = (uint8_t)(b[from + k % width] * power[k / width]);
        y[i] = d * (float)((rest * 3 >> 8) - 1);
    }
}
static void ggml_dequantize_tq2_0(const uint8_t *b, float *y) { // quants (64), d
    const float d = ggml_read_f16(b + 64);
    for (int i = 0; i < QK_K; i++) y[i] = d * (float)(ggml_two_bits(b, i) - 1);
}

static const int8_t doubled_f4[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
// scales of 16 (e4m3 without sign) (4), quants (32)
static void ggml_dequantize_nvfp4(const uint8_t *b, float *y) {
    for (int g = 0; g < 4; g++) {
        const int exponent = b[g] >> 3 & 15, mantissa = b[g] & 7;
        const float d = b[g] == 0x7f ? 0 // NaN
                        : exponent   ? ldexpf((float)(8 + mantissa), exponent - 11)
                                     : ldexpf((float)mantissa, -10);
        for (int i = 16 * g; i < 16 * (g + 1); i++)
            y[i] = d * (float)doubled_f4[ggml_nibble(b + 4, i, 8)];
    }
}

static const int8_t iq4_nl_values[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                       1,    13,   25,  38,  53,  69,  89,  113};
static float ggml_iq4_xs_scale(const uint8_t *b, int g) {
    const unsigned low = b[4 + g / 2] >> (g % 2 * 4) & 15, high = ggml_u16(b + 2) >> (2 * g) & 3;
    return ggml_read_f16(b) * (float)((int)(low | high << 4) - 32);
}

// ----------------------------------------------------------------------------------- quants and scales

// These unpack blocks to signed quants: unsigned ones minus half of their range.

// Unpacks the low halves of 16 bytes, then the high halves, minus 8, in loops that compilers
// vectorise.
static inline void ggml_split_nibbles(const uint8_t *restrict b, int8_t *restrict quants) {
    for (int i = 0; i < 16; i++) quants[i] = (int8_t)((b[i] & 15) - 8);
    for (int i = 0; i < 16; i++) quants[16 + i] = (int8_t)((b[i] >> 4) - 8);
}
// d, quants (16)
static void ggml_unpack_q4_0(const uint8_t *restrict b, int8_t *restrict quants,
                             float *restrict scales, float *restrict offsets) {
    (void)offsets;
    *scales = ggml_read_f16(b);
    ggml_split_nibbles(b + 2, quants);
}
// d, m, quants (16)
static void ggml_unpack_q4_1(const uint8_t *restrict b, int8_t *restrict quants,
                             float *restrict scales, float *restrict offsets) {
    *scales = ggml_read_f16(b);
    *offsets = ggml_read_f16(b + 2);
    ggml_split_nibbles(b + 4, quants);
}
// d, fifth bits (4), quants (16)
static void ggml_unpack_q5_0(const uint8_t *restrict b, int8_t *restrict quants,
                             float *restrict scales, float *restrict offsets) {
    (void)offsets;
    *scales = ggml_read_f16(b);
    for (int i = 0; i < QK; i++)
        quants[i] = (int8_t)((ggml_nibble(b + 6, i, 16) | ggml_bit(b + 2, i) << 4) - 16);
}
// d, m, fifth bits (4), quants (16)
static void ggml_unpack_q5_1(const uint8_t *restrict b, int8_t *restrict quants,
                             float *restrict scales, float *restrict offsets) {
    *scales = ggml_read_f16(b);
    *offsets = ggml_read_f16(b + 2);
    for (int i = 0; i < QK; i++)
        quants[i] = (int8_t)((ggml_nibble(b + 8, i, 16) | ggml_bit(b + 4, i) << 4) - 16);
}
// d, quants (32)
static void ggml_unpack_q8_0(const uint8_t *restrict b, int8_t *restrict quants,
                             float *restrict scales, float *restrict offsets) {
    (void)offsets;
    *scales = ggml_read_f16(b);
    memcpy(quants, b + 2, QK);
}
// scales and minimums (16), quants (64), d, m
static void ggml_unpack_q2_k(const uint8_t *restrict b, int8_t *restrict quants,
                             float *restrict scales, float *restrict offsets) {
    for (int g = 0; g < 16; g++) {
        scales[g] = ggml_read_f16(b + 80) * (float)(b[g] & 15);
        offsets[g] = -ggml_read_f16(b + 82) * (float)(b[g] >> 4);
    }
    for (int i = 0; i < QK_K; i++) quants[i] = (int8_t)(ggml_two_bits(b + 16, i) - 2);
}
// third bits (32), quants (64), scales (12), d
static void ggml_unpack_q3_k(const uint8_t *restrict b, int8_t *restrict quants,
                             float *restrict scales, float *restrict offsets) {
    (void)offsets;
    for (int g = 0; g < 16; g++) scales[g] = ggml_q3_k_scale(b, g);
    for (int i = 0; i < QK_K; i++)
        quants[i] = (int8_t)(ggml_two_bits(b + 32, i) - (ggml_plane_bit(b, i) ? 0 : 4));
}
// d, m, scales (12), quants (128)
static void ggml_unpack_q4_k(const uint8_t *restrict b, int8_t *restrict quants,
                             float *restrict scales, float *restrict offsets) {
    for (int g = 0; g < 8; g++) {
        float m;
        ggml_scale_and_min(b, g, &scales[g], &m);
        offsets[g] = -m;
    }
    for (int c = 0; c < 4; c++, quants += 64)
        for (int i = 0; i < 32; i++) {
            const uint8_t both = b[16 + 32 * c + i];
            quants[i] = (int8_t)((both & 15) - 8);
            quants[32 + i] = (int8_t)((both >> 4) - 8);
        }
}
// d, m, scales (12), fifth bits (32), quants (128)
static void ggml_unpack_q5_k(const uint8_t *restrict b, int8_t *restrict quants,
                             float *restrict scales, float *restrict offsets) {
    for (int g = 0; g < 8; g++) {
        float m;
        ggml_scale_and_min(b, g, &scales[g], &m);
        offsets[g] = -m;
    }
    for (int i = 0; i < QK_K; i++)
        quants[i] = (int8_t)((ggml_nibble(b + 48, i, 32) | ggml_plane_bit(b + 16, i) << 4) - 16);
}
// quants (128), their high bits (64), scales (16), d
static void ggml_unpack_q6_k(const uint8_t *restrict b, int8_t *restrict quants,
                             float *restrict scales, float *restrict offsets) {
    (void)offsets;
    for (int g = 0; g < 16; g++) scales[g] = ggml_read_f16(b + 208) * (float)(int8_t)b[192 + g];
    for (int c = 0; c < 2; c++, quants += 128, b += 64)
        for (int i = 0; i < 32; i++) {
            const uint8_t high = b[128 - 32 * c + i], first = b[i], second = b[32 + i];
            quants[i] = (int8_t)(((first & 15) | (high << 4 & 48)) - 32);
            quants[32 + i] = (int8_t)(((second & 15) | (high << 2 & 48)) - 32);
            quants[64 + i] = (int8_t)((first >> 4 | (high & 48)) - 32);
            quants[96 + i] = (int8_t)((second >> 4 | (high >> 2 & 48)) - 32);
        }
}
// exponent of 2 (1), quants (16)
static void ggml_unpack_mxfp4(const uint8_t *restrict b, int8_t *restrict quants,
                              float *restrict scales, float *restrict offsets) {
    (void)offsets;
    *scales = *b > 1 ? ggml_f32_from_bits((*b - 1u) << 23) : ggml_f32_from_bits(0x00200000u << *b);
    for (int i = 0; i < QK; i++) quants[i] = doubled_f4[ggml_nibble(b + 1, i, 16)];
}
// d, quants (16)
static void ggml_unpack_iq4_nl(const uint8_t *restrict b, int8_t *restrict quants,
                               float *restrict scales, float *restrict offsets) {
    (void)offsets;
    *scales = ggml_read_f16(b);
    for (int i = 0; i < QK; i++) quants[i] = iq4_nl_values[ggml_nibble(b + 2, i, 16)];
}
// d, scales' high bits (2), low ones (4), quants (128)
static void ggml_unpack_iq4_xs(const uint8_t *restrict b, int8_t *restrict quants,
                               float *restrict scales, float *restrict offsets) {
    (void)offsets;
    for (int g = 0; g < 8; g++) scales[g] = ggml_iq4_xs_scale(b, g);
    for (int i = 0; i < QK_K; i++) quants[i] = iq4_nl_values[ggml_nibble(b + 8, i, 16)];
}

// --------------------------------------------------------------------------------------- lattice points

#include "io/ggml_points.inc"

static int8_t iq2_xxs_grid[256][8], iq2_xs_grid[512][8], iq2_s_grid[1024][8], iq1_grid[2048][8];
static int8_t iq3_xxs_grid[256][4], iq3_s_grid[512][4];

static void ggml_fill_grid(const char *gaps, const int8_t *values, int base, int width,
                           int8_t *to) {
    int code = 0;
    for (; *gaps; gaps++) {
        code += *gaps - '0';
        if (*gaps == 'z') continue;
        for (int i = 0, rest = code; i < width; i++, rest /= base) *to++ = values[rest % base];
    }
}

static void ggml_fill_grids(void) {
    static const int8_t three[] = {8, 25, 43}, signs[] = {-1, 0, 1},
                        eight[] = {4, 12, 20, 28, 36, 44, 52, 62},
                        odd[] = {1, 3, 5, 7, 9, 11, 13, 15};
    ggml_fill_grid(iq2_xxs_points, three, 3, 8, iq2_xxs_grid[0]);
    ggml_fill_grid(iq2_xs_points, three, 3, 8, iq2_xs_grid[0]);
    ggml_fill_grid(iq2_s_points, three, 3, 8, iq2_s_grid[0]);
    ggml_fill_grid(iq3_xxs_points, eight, 8, 4, iq3_xxs_grid[0]);
    ggml_fill_grid(iq3_s_points, odd, 8, 4, iq3_s_grid[0]);
    ggml_fill_grid(iq1_s_points, signs, 3, 8, iq1_grid[0]);
}

static void ggml_init_grids(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, ggml_fill_grids);
}

// Writes a point of n values times a scale, with a sign bit for each value, 1 for minus.
static inline void ggml_put_point(float scale, const int8_t *point, int n, unsigned signs,
                                  float *y) {
    for (int i = 0; i < n; i++) y[i] = scale * (float)point[i] * (signs >> i & 1 ? -1.0f : 1.0f);
}
// Expands 7 bits to eight signs: the number of minuses is even.
static inline unsigned ggml_even_signs(uint32_t seven) {
    seven &= 127;
    return seven | (unsigned)__builtin_parity(seven) << 7;
}
// Returns the scale of the k-th eight elements; 16 elements share one of 4 bits.
static inline float ggml_scale_of_16(float d, const uint8_t *scales, int k) {
    return d * (0.5f + (float)(scales[k / 4] >> (k / 2 % 2 * 4) & 15)) * 0.25f;
}

// d, then for each 32 elements: points of 8 (4), their signs and the scale's 4 bits (4)
static void ggml_dequantize_iq2_xxs(const uint8_t *b, float *y) {
    ggml_init_grids();
    for (int k = 0; k < QK_K / 8; k++) {
        const uint8_t *points = b + 2 + k / 4 * 8;
        const uint32_t signs = ggml_u32(points + 4);
        const float scale = ggml_read_f16(b) * (0.5f + (float)(signs >> 28)) * 0.25f;
        ggml_put_point(scale, iq2_xxs_grid[points[k % 4]], 8, ggml_even_signs(signs >> (k % 4 * 7)),
                       y + 8 * k);
    }
}
// d, points of 8 with their signs (64), scales (8)
static void ggml_dequantize_iq2_xs(const uint8_t *b, float *y) {
    ggml_init_grids();
    for (int k = 0; k < QK_K / 8; k++) {
        const unsigned code = ggml_u16(b + 2 + 2 * k);
        ggml_put_point(ggml_scale_of_16(ggml_read_f16(b), b + 66, k), iq2_xs_grid[code & 511], 8,
                       ggml_even_signs(code >> 9), y + 8 * k);
    }
}
// d, points of 8 (32), signs (32), the points' high bits (8), scales (8)
static void ggml_dequantize_iq2_s(const uint8_t *b, float *y) {
    ggml_init_grids();
    for (int k = 0; k < QK_K / 8; k++) {
        const int code = b[2 + k] | (b[66 + k / 4] >> (k % 4 * 2) & 3) << 8;
        ggml_put_point(ggml_scale_of_16(ggml_read_f16(b), b + 74, k), iq2_s_grid[code], 8,
                       b[34 + k], y + 8 * k);
    }
}
// d, points of 4 (64), signs and scales (32)
static void ggml_dequantize_iq3_xxs(const uint8_t *b, float *y) {
    ggml_init_grids();
    for (int k = 0; k < QK_K / 4; k++) {
        const uint32_t signs = ggml_u32(b + 66 + k / 8 * 4);
        const float scale = ggml_read_f16(b) * (0.5f + (float)(signs >> 28)) * 0.5f;
        ggml_put_point(scale, iq3_xxs_grid[b[2 + k]], 4,
                       ggml_even_signs(signs >> (k / 2 % 4 * 7)) >> (k % 2 * 4), y + 4 * k);
    }
}
// d, points of 4 (64), high bits (8), signs (32), scales (4)
static void ggml_dequantize_iq3_s(const uint8_t *b, float *y) {
    ggml_init_grids();
    for (int k = 0; k < QK_K / 4; k++) {
        const int code = b[2 + k] | ggml_bit(b + 66, k) << 8,
                  scale = b[106 + k / 16] >> (k / 8 % 2 * 4) & 15;
        ggml_put_point(ggml_read_f16(b) * (float)(1 + 2 * scale), iq3_s_grid[code], 4,
                       b[74 + k / 2] >> (k % 2 * 4), y + 4 * k);
    }
}

static inline void ggml_put_shifted_point(float scale, const int8_t *point, bool down, float *y) {
    for (int i = 0; i < 8; i++) y[i] = scale * ((float)point[i] + (down ? -0.125f : 0.125f));
}
// d, points of 8 (32), for each 32 elements the points' high bits, the scale's 3 and the shift's
// sign (2)
static void ggml_dequantize_iq1_s(const uint8_t *b, float *y) {
    ggml_init_grids();
    for (int k = 0; k < QK_K / 8; k++) {
        const unsigned high = ggml_u16(b + 34 + k / 4 * 2);
        const unsigned code = b[2 + k] | (high >> (k % 4 * 3) & 7) << 8;
        ggml_put_shifted_point(ggml_read_f16(b) * (float)(2 * (high >> 12 & 7) + 1), iq1_grid[code],
                               high >> 15, y + 8 * k);
    }
}
// points of 8 (32), their high bits and the shifts' signs (16), scales of 3 bits, four in two bytes
// whose highest 4 bits are a part of d (8)
static void ggml_dequantize_iq1_m(const uint8_t *b, float *y) {
    ggml_init_grids();
    unsigned d = 0;
    for (int i = 0; i < 4; i++) d |= ggml_u16(b + 48 + 2 * i) >> 12 << (4 * i);
    for (int k = 0; k < QK_K / 8; k++) {
        const int high = b[32 + k / 2] >> (k % 2 * 4), g = k / 2;
        const unsigned scale = ggml_u16(b + 48 + g / 4 * 2) >> (g % 4 * 3) & 7;
        ggml_put_shifted_point(ggml_f16_to_f32(d) * (float)(2 * scale + 1),
                               iq1_grid[b[k] | (high & 7) << 8], high & 8, y + 8 * k);
    }
}

// ------------------------------------------------------------------------------------------- types

// clang-format off
static const ct_ggml_type types[] = { // by the id in files
    [0]  = {"F32",     CT_F32,       1,   4, ggml_convert_f32, 0, 0, 0, NULL},
    [1]  = {"F16",     CT_F16,       1,   2, ggml_convert_f16, 0, 0, 0, NULL},
    [2]  = {"Q4_0",    CT_DEFAULT,  32,  18, NULL, 4, 32, 0, ggml_unpack_q4_0},
    [3]  = {"Q4_1",    CT_DEFAULT,  32,  20, NULL, 4, 32, 8, ggml_unpack_q4_1},
    [6]  = {"Q5_0",    CT_DEFAULT,  32,  22, NULL, 8, 32, 0, ggml_unpack_q5_0},
    [7]  = {"Q5_1",    CT_DEFAULT,  32,  24, NULL, 8, 32, 16, ggml_unpack_q5_1},
    [8]  = {"Q8_0",    CT_DEFAULT,  32,  34, NULL, 8, 32, 0, ggml_unpack_q8_0},
    [9]  = {"Q8_1",    CT_DEFAULT,  32,  36, ggml_dequantize_q8_1, 0, 0, 0, NULL},
    [10] = {"Q2_K",    CT_DEFAULT, 256,  84, NULL, 4, 16, 2, ggml_unpack_q2_k},
    [11] = {"Q3_K",    CT_DEFAULT, 256, 110, NULL, 4, 16, 0, ggml_unpack_q3_k},
    [12] = {"Q4_K",    CT_DEFAULT, 256, 144, NULL, 4, 32, 8, ggml_unpack_q4_k},
    [13] = {"Q5_K",    CT_DEFAULT, 256, 176, NULL, 8, 32, 16, ggml_unpack_q5_k},
    [14] = {"Q6_K",    CT_DEFAULT, 256, 210, NULL, 8, 16, 0, ggml_unpack_q6_k},
    [15] = {"Q8_K",    CT_DEFAULT, 256, 292, ggml_dequantize_q8_k, 0, 0, 0, NULL},
    [16] = {"IQ2_XXS", CT_DEFAULT, 256,  66, ggml_dequantize_iq2_xxs, 0, 0, 0, NULL},
    [17] = {"IQ2_XS",  CT_DEFAULT, 256,  74, ggml_dequantize_iq2_xs, 0, 0, 0, NULL},
    [18] = {"IQ3_XXS", CT_DEFAULT, 256,  98, ggml_dequantize_iq3_xxs, 0, 0, 0, NULL},
    [19] = {"IQ1_S",   CT_DEFAULT, 256,  50, ggml_dequantize_iq1_s, 0, 0, 0, NULL},
    [20] = {"IQ4_NL",  CT_DEFAULT,  32,  18, NULL, 8, 32, 0, ggml_unpack_iq4_nl},
    [21] = {"IQ3_S",   CT_DEFAULT, 256, 110, ggml_dequantize_iq3_s, 0, 0, 0, NULL},
    [22] = {"IQ2_S",   CT_DEFAULT, 256,  82, ggml_dequantize_iq2_s, 0, 0, 0, NULL},
    [23] = {"IQ4_XS",  CT_DEFAULT, 256, 136, NULL, 8, 32, 0, ggml_unpack_iq4_xs},
    [24] = {"I8",      CT_I8,        1,   1, ggml_convert_i8, 0, 0, 0, NULL},
    [25] = {"I16",     CT_I16,       1,   2, ggml_convert_i16, 0, 0, 0, NULL},
    [26] = {"I32",     CT_I32,       1,   4, ggml_convert_i32, 0, 0, 0, NULL},
    [27] = {"I64",     CT_I64,       1,   8, ggml_convert_i64, 0, 0, 0, NULL},
    [28] = {"F64",     CT_F64,       1,   8, ggml_convert_f64, 0, 0, 0, NULL},
    [29] = {"IQ1_M",   CT_DEFAULT, 256,  56, ggml_dequantize_iq1_m, 0, 0, 0, NULL},
    [30] = {"BF16",    CT_BF16,      1,   2, ggml_convert_bf16, 0, 0, 0, NULL},
    [34] = {"TQ1_0",   CT_DEFAULT, 256,  54, ggml_dequantize_tq1_0, 0, 0, 0, NULL},
    [35] = {"TQ2_0",   CT_DEFAULT, 256,  66, ggml_dequantize_tq2_0, 0, 0, 0, NULL},
    [39] = {"MXFP4",   CT_DEFAULT,  32,  17, NULL, 8, 32, 0, ggml_unpack_mxfp4},
    [40] = {"NVFP4",   CT_DEFAULT,  64,  36, ggml_dequantize_nvfp4, 0, 0, 0, NULL},
    [41] = {"Q1_0",    CT_DEFAULT, 128,  18, ggml_dequantize_q1_0, 0, 0, 0, NULL},
};
// clang-format on

const ct_ggml_type *ct__ggml_type(uint32_t number) {
    return number < sizeof types / sizeof *types && types[number].name ? &types[number] : NULL;
}

uint32_t ct__ggml_type_id(const ct_ggml_type *type) { return (uint32_t)(type - types); }

// Dequantises a block through its quants and scales; types without a zero point have no offsets.
static void ggml_dequantize_unpacked(const ct_ggml_type *type, const uint8_t *block, float *y) {
    int8_t quants[QK_K];
    float scales[QK_K / 16], offsets[QK_K / 16];
    type->unpack(block, quants, scales, offsets);
    for (int i = 0, g = 0; i < type->elements; g++)
        for (const int end = i + type->group; i < end; i++) {
            y[i] = scales[g] * (float)(quants[i] + type->zero_point);
            if (type->zero_point) y[i] += offsets[g];
        }
}

void ct__ggml_dequantize(const ct_ggml_type *type, const void *blocks, size_t n, float *to) {
    const uint8_t *from = blocks;
    for (; n; n--, from += type->bytes, to += type->elements)
        if (type->unpack)
            ggml_dequantize_unpacked(type, from, to);
        else
            type->dequantize(from, to);
}
