#include "io/ggml_blocks.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

// A block's parts follow each other as in the comment above its function, a number in brackets is how
// many bytes it takes; d and m are a scale and a minimum, f16 where nothing else is said. Each product is
// rounded in the order in which the reference takes it.
enum { SMALL = 32, LARGE = 256 };

static unsigned u16(const uint8_t *p) { return p[0] | (unsigned)p[1] << 8; }
static uint32_t u32(const uint8_t *p) { return u16(p) | (uint32_t)u16(p + 2) << 16; }

static float of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float half_of(unsigned code) { // f16
    const uint32_t sign = (uint32_t)(code & 0x8000) << 16, rest = code & 0x7fff;
    const float size = rest >= 0x7c00  ? of_bits(0x7f800000 | (rest & 0x3ff) << 13)
                       : rest >= 0x400 ? of_bits((rest << 13) + (112u << 23))
                                       : (float)rest * 0x1p-24f;
    return sign ? -size : size;
}
static float half(const uint8_t *p) { return half_of(u16(p)); }

// ------------------------------------------------------------------------------------ plain numbers

#define PLAIN(name, c_type)                                                                        \
    static void name(const uint8_t *p, float *y) {                                                 \
        c_type value;                                                                              \
        memcpy(&value, p, sizeof value);                                                           \
        *y = (float)value;                                                                         \
    }
PLAIN(f32, float)
PLAIN(f64, double)
PLAIN(i8, int8_t)
PLAIN(i16, int16_t)
PLAIN(i32, int32_t)
PLAIN(i64, int64_t)
static void f16(const uint8_t *p, float *y) { *y = half(p); }
static void bf16(const uint8_t *p, float *y) { *y = of_bits((uint32_t)u16(p) << 16); }

// ------------------------------------------------------------------------------------ codes of bits

// The i-th code of 4 bits where the low halves of `width` bytes come before their high halves.
static inline int nibble(const uint8_t *codes, int i, int width) {
    return codes[i / (2 * width) * width + i % width] >> (i / width % 2 * 4) & 15;
}
// Of 2 bits, and of 1, where the lowest bits of 32 bytes come before the next ones.
static inline int pair(const uint8_t *codes, int i) {
    return codes[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
}
static inline int single(const uint8_t *codes, int i) { return codes[i % 32] >> (i / 32) & 1; }
// Of 1 bit, a byte's eight one after the other.
static inline int bit(const uint8_t *codes, int i) { return codes[i / 8] >> (i % 8) & 1; }

// ----------------------------------------------------------------------------------- small blocks

static void q4_0(const uint8_t *b, float *y) { // d, codes (16)
    const float d = half(b);
    for (int i = 0; i < SMALL; i++) y[i] = d * (float)(nibble(b + 2, i, 16) - 8);
}
static void q4_1(const uint8_t *b, float *y) { // d, m, codes (16)
    const float d = half(b), m = half(b + 2);
    for (int i = 0; i < SMALL; i++) y[i] = d * (float)nibble(b + 4, i, 16) + m;
}
static void q5_0(const uint8_t *b, float *y) { // d, fifth bits (4), codes (16)
    const float d = half(b);
    for (int i = 0; i < SMALL; i++)
        y[i] = d * (float)((nibble(b + 6, i, 16) | bit(b + 2, i) << 4) - 16);
}
static void q5_1(const uint8_t *b, float *y) { // d, m, fifth bits (4), codes (16)
    const float d = half(b), m = half(b + 2);
    for (int i = 0; i < SMALL; i++)
        y[i] = d * (float)(nibble(b + 8, i, 16) | bit(b + 4, i) << 4) + m;
}
static void q8_0(const uint8_t *b, float *y) { // d, codes (32)
    const float d = half(b);
    for (int i = 0; i < SMALL; i++) y[i] = d * (float)(int8_t)b[2 + i];
}
static void q8_1(const uint8_t *b, float *y) { // d, d times the codes' sum, codes (32)
    const float d = half(b);
    for (int i = 0; i < SMALL; i++) y[i] = d * (float)(int8_t)b[4 + i];
}
static void q1_0(const uint8_t *b, float *y) { // d, signs (16)
    const float d = half(b);
    for (int i = 0; i < 128; i++) y[i] = bit(b + 2, i) ? d : -d;
}

// ------------------------------------------------------------------------ blocks of 256 with scales

static void q2_k(const uint8_t *b, float *y) { // scales and minimums (16), codes (64), d, m
    for (int g = 0; g < 16; g++) {
        const float d = half(b + 80) * (float)(b[g] & 15), m = half(b + 82) * (float)(b[g] >> 4);
        for (int i = 16 * g; i < 16 * (g + 1); i++) y[i] = d * (float)pair(b + 16, i) - m;
    }
}
static float q3_k_scale(const uint8_t *b, int g) {
    const uint8_t *scales = b + 96;
    const int high = scales[8 + g % 4] >> (g / 4 * 2) & 3;
    return half(b + 108) * (float)((nibble(scales, g, 8) | high << 4) - 32);
}
static void q3_k(const uint8_t *b, float *y) { // third bits (32), codes (64), scales (12), d
    for (int g = 0; g < 16; g++) {
        const float d = q3_k_scale(b, g);
        for (int i = 16 * g; i < 16 * (g + 1); i++)
            y[i] = d * (float)(pair(b + 32, i) - (single(b, i) ? 0 : 4));
    }
}

// Scale and minimum of the g-th 32 numbers, from d, m and 6 bits each in 12 bytes.
static void scale_and_minimum(const uint8_t *b, int g, float *d, float *m) {
    const uint8_t *s = b + 4;
    const int scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 2 & 48);
    const int minimum = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | (s[g] >> 2 & 48);
    *d = half(b) * (float)scale;
    *m = half(b + 2) * (float)minimum;
}
static void q4_k(const uint8_t *b, float *y) { // d, m, scales (12), codes (128)
    for (int g = 0; g < 8; g++) {
        float d, m;
        scale_and_minimum(b, g, &d, &m);
        for (int i = 32 * g; i < 32 * (g + 1); i++) y[i] = d * (float)nibble(b + 16, i, 32) - m;
    }
}
static void q5_k(const uint8_t *b, float *y) { // d, m, scales (12), fifth bits (32), codes (128)
    for (int g = 0; g < 8; g++) {
        float d, m;
        scale_and_minimum(b, g, &d, &m);
        for (int i = 32 * g; i < 32 * (g + 1); i++)
            y[i] = d * (float)(nibble(b + 48, i, 32) | single(b + 16, i) << 4) - m;
    }
}
static void q6_k(const uint8_t *b, float *y) { // codes (128), their high bits (64), scales (16), d
    for (int g = 0; g < 16; g++) {
        const float d = half(b + 208) * (float)(int8_t)b[192 + g];
        for (int i = 16 * g; i < 16 * (g + 1); i++)
            y[i] = d * (float)((nibble(b, i, 64) | pair(b + 128, i) << 4) - 32);
    }
}
static void q8_k(const uint8_t *b, float *y) { // d (f32), codes (256), sums of 16 (32)
    const float d = of_bits(u32(b));
    for (int i = 0; i < LARGE; i++) y[i] = d * (float)(int8_t)b[4 + i];
}

// -------------------------------------------------------------------------------- three values, fours

static void tq1_0(const uint8_t *b, float *y) { // digits of base 3, 5 or 4 a byte (52), d
    static const uint8_t power[] = {1, 3, 9, 27, 81};
    const float d = half(b + 52);
    for (int i = 0; i < LARGE; i++) {
        const int k = i < 160 ? i : i < 240 ? i - 160 : i - 240;
        const int width = i < 160 ? 32 : i < 240 ? 16 : 4, from = i < 160 ? 0 : i < 240 ? 32 : 48;
        // A byte is a fraction of 256; its digit is what three times that has in front of the point.
        const uint8_t rest = (uint8_t)(b[from + k % width] * power[k / width]);
        y[i] = d * (float)((rest * 3 >> 8) - 1);
    }
}
static void tq2_0(const uint8_t *b, float *y) { // codes (64), d
    const float d = half(b + 64);
    for (int i = 0; i < LARGE; i++) y[i] = d * (float)(pair(b, i) - 1);
}

static const int8_t twice_f4[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
static void mxfp4(const uint8_t *b, float *y) { // exponent of 2 (1), codes (16)
    const float d = *b > 1 ? of_bits((*b - 1u) << 23) : of_bits(0x00200000u << *b);
    for (int i = 0; i < SMALL; i++) y[i] = d * (float)twice_f4[nibble(b + 1, i, 16)];
}
static void nvfp4(const uint8_t *b, float *y) { // scales of 16 (e4m3 without sign) (4), codes (32)
    for (int g = 0; g < 4; g++) {
        const int exponent = b[g] >> 3 & 15, mantissa = b[g] & 7;
        const float d = b[g] == 0x7f ? 0 // the code of NaN
                        : exponent   ? ldexpf((float)(8 + mantissa), exponent - 11)
                                     : ldexpf((float)mantissa, -10);
        for (int i = 16 * g; i < 16 * (g + 1); i++) y[i] = d * (float)twice_f4[nibble(b + 4, i, 8)];
    }
}

static const int8_t uneven[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                1,    13,   25,  38,  53,  69,  89,  113};
static void iq4_nl(const uint8_t *b, float *y) { // d, codes (16)
    const float d = half(b);
    for (int i = 0; i < SMALL; i++) y[i] = d * (float)uneven[nibble(b + 2, i, 16)];
}
static float iq4_xs_scale(const uint8_t *b, int g) {
    const unsigned low = b[4 + g / 2] >> (g % 2 * 4) & 15, high = u16(b + 2) >> (2 * g) & 3;
    return half(b) * (float)((int)(low | high << 4) - 32);
}
// d, scales' high bits (2), low ones (4), codes (128)
static void iq4_xs(const uint8_t *b, float *y) {
    for (int g = 0; g < 8; g++) {
        const float d = iq4_xs_scale(b, g);
        for (int i = 32 * g; i < 32 * (g + 1); i++) y[i] = d * (float)uneven[nibble(b + 8, i, 16)];
    }
}

// ------------------------------------------------------------------------------------ codes and scales

// The same blocks as codes: those without a sign less half of their range.
// The low halves of 16 bytes, then the high ones, less 8: in loops that compilers make vectors of.
static inline void put_nibbles(const uint8_t *restrict b, int8_t *restrict codes) {
    for (int i = 0; i < 16; i++) codes[i] = (int8_t)((b[i] & 15) - 8);
    for (int i = 0; i < 16; i++) codes[16 + i] = (int8_t)((b[i] >> 4) - 8);
}
static void q4_0_parts(const uint8_t *restrict b, int8_t *restrict codes, float *restrict scales,
                       float *restrict offsets) {
    (void)offsets;
    *scales = half(b);
    put_nibbles(b + 2, codes);
}
static void q4_1_parts(const uint8_t *restrict b, int8_t *restrict codes, float *restrict scales,
                       float *restrict offsets) {
    *scales = half(b);
    *offsets = half(b + 2);
    put_nibbles(b + 4, codes);
}
static void q5_0_parts(const uint8_t *restrict b, int8_t *restrict codes, float *restrict scales,
                       float *restrict offsets) {
    (void)offsets;
    *scales = half(b);
    for (int i = 0; i < SMALL; i++)
        codes[i] = (int8_t)((nibble(b + 6, i, 16) | bit(b + 2, i) << 4) - 16);
}
static void q5_1_parts(const uint8_t *restrict b, int8_t *restrict codes, float *restrict scales,
                       float *restrict offsets) {
    *scales = half(b);
    *offsets = half(b + 2);
    for (int i = 0; i < SMALL; i++)
        codes[i] = (int8_t)((nibble(b + 8, i, 16) | bit(b + 4, i) << 4) - 16);
}
static void q8_0_parts(const uint8_t *restrict b, int8_t *restrict codes, float *restrict scales,
                       float *restrict offsets) {
    (void)offsets;
    *scales = half(b);
    memcpy(codes, b + 2, SMALL);
}
static void q2_k_parts(const uint8_t *restrict b, int8_t *restrict codes, float *restrict scales,
                       float *restrict offsets) {
    for (int g = 0; g < 16; g++) {
        scales[g] = half(b + 80) * (float)(b[g] & 15);
        offsets[g] = -half(b + 82) * (float)(b[g] >> 4);
    }
    for (int i = 0; i < LARGE; i++) codes[i] = (int8_t)(pair(b + 16, i) - 2);
}
static void q3_k_parts(const uint8_t *restrict b, int8_t *restrict codes, float *restrict scales,
                       float *restrict offsets) {
    (void)offsets;
    for (int g = 0; g < 16; g++) scales[g] = q3_k_scale(b, g);
    for (int i = 0; i < LARGE; i++) codes[i] = (int8_t)(pair(b + 32, i) - (single(b, i) ? 0 : 4));
}
static void q4_k_parts(const uint8_t *restrict b, int8_t *restrict codes, float *restrict scales,
                       float *restrict offsets) {
    for (int g = 0; g < 8; g++) {
        float m;
        scale_and_minimum(b, g, &scales[g], &m);
        offsets[g] = -m;
    }
    for (int c = 0; c < 4; c++, codes += 64)
        for (int i = 0; i < 32; i++) {
            const uint8_t both = b[16 + 32 * c + i];
            codes[i] = (int8_t)((both & 15) - 8);
            codes[32 + i] = (int8_t)((both >> 4) - 8);
        }
}
static void q5_k_parts(const uint8_t *restrict b, int8_t *restrict codes, float *restrict scales,
                       float *restrict offsets) {
    for (int g = 0; g < 8; g++) {
        float m;
        scale_and_minimum(b, g, &scales[g], &m);
        offsets[g] = -m;
    }
    for (int i = 0; i < LARGE; i++)
        codes[i] = (int8_t)((nibble(b + 48, i, 32) | single(b + 16, i) << 4) - 16);
}
static void q6_k_parts(const uint8_t *restrict b, int8_t *restrict codes, float *restrict scales,
                       float *restrict offsets) {
    (void)offsets;
    for (int g = 0; g < 16; g++) scales[g] = half(b + 208) * (float)(int8_t)b[192 + g];
    for (int c = 0; c < 2; c++, codes += 128, b += 64)
        for (int i = 0; i < 32; i++) {
            const uint8_t high = b[128 - 32 * c + i], first = b[i], second = b[32 + i];
            codes[i] = (int8_t)(((first & 15) | (high << 4 & 48)) - 32);
            codes[32 + i] = (int8_t)(((second & 15) | (high << 2 & 48)) - 32);
            codes[64 + i] = (int8_t)((first >> 4 | (high & 48)) - 32);
            codes[96 + i] = (int8_t)((second >> 4 | (high >> 2 & 48)) - 32);
        }
}
static void mxfp4_parts(const uint8_t *restrict b, int8_t *restrict codes, float *restrict scales,
                        float *restrict offsets) {
    (void)offsets;
    *scales = *b > 1 ? of_bits((*b - 1u) << 23) : of_bits(0x00200000u << *b);
    for (int i = 0; i < SMALL; i++) codes[i] = twice_f4[nibble(b + 1, i, 16)];
}
static void iq4_nl_parts(const uint8_t *restrict b, int8_t *restrict codes, float *restrict scales,
                         float *restrict offsets) {
    (void)offsets;
    *scales = half(b);
    for (int i = 0; i < SMALL; i++) codes[i] = uneven[nibble(b + 2, i, 16)];
}
static void iq4_xs_parts(const uint8_t *restrict b, int8_t *restrict codes, float *restrict scales,
                         float *restrict offsets) {
    (void)offsets;
    for (int g = 0; g < 8; g++) scales[g] = iq4_xs_scale(b, g);
    for (int i = 0; i < LARGE; i++) codes[i] = uneven[nibble(b + 8, i, 16)];
}

// ----------------------------------------------------------------------------------- points of lattices

#include "io/ggml_points.inc"

static int8_t iq2_xxs_grid[256][8], iq2_xs_grid[512][8], iq2_s_grid[1024][8], iq1_grid[2048][8];
static int8_t iq3_xxs_grid[256][4], iq3_s_grid[512][4];

static void fill_grid(const char *gaps, const int8_t *values, int base, int width, int8_t *to) {
    int code = 0;
    for (; *gaps; gaps++) {
        code += *gaps - '0';
        if (*gaps == 'z') continue;
        for (int i = 0, rest = code; i < width; i++, rest /= base) *to++ = values[rest % base];
    }
}

static void fill_grids(void) {
    static const int8_t three[] = {8, 25, 43}, signs[] = {-1, 0, 1},
                        eight[] = {4, 12, 20, 28, 36, 44, 52, 62},
                        odd[] = {1, 3, 5, 7, 9, 11, 13, 15};
    fill_grid(iq2_xxs_points, three, 3, 8, iq2_xxs_grid[0]);
    fill_grid(iq2_xs_points, three, 3, 8, iq2_xs_grid[0]);
    fill_grid(iq2_s_points, three, 3, 8, iq2_s_grid[0]);
    fill_grid(iq3_xxs_points, eight, 8, 4, iq3_xxs_grid[0]);
    fill_grid(iq3_s_points, odd, 8, 4, iq3_s_grid[0]);
    fill_grid(iq1_s_points, signs, 3, 8, iq1_grid[0]);
}

static void need_grids(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_grids);
}

// A point of n values times a scale, each with its sign, of which 1 is minus.
static inline void put(float scale, const int8_t *point, int n, unsigned signs, float *y) {
    for (int i = 0; i < n; i++) y[i] = scale * (float)point[i] * (signs >> i & 1 ? -1.0f : 1.0f);
}
// Eight signs in 7 bits: there is an even number of minuses.
static inline unsigned even_signs(uint32_t seven) {
    seven &= 127;
    return seven | (unsigned)__builtin_parity(seven) << 7;
}
// The scale of the k-th eight numbers, whose codes of 4 bits are those of 16 numbers.
static inline float scale_of_16(float d, const uint8_t *scales, int k) {
    return d * (0.5f + (float)(scales[k / 4] >> (k / 2 % 2 * 4) & 15)) * 0.25f;
}

// d, then of 32 numbers each: points of 8 (4), their signs and the scale's 4 bits (4)
static void iq2_xxs(const uint8_t *b, float *y) {
    need_grids();
    for (int k = 0; k < LARGE / 8; k++) {
        const uint8_t *points = b + 2 + k / 4 * 8;
        const uint32_t signs = u32(points + 4);
        const float scale = half(b) * (0.5f + (float)(signs >> 28)) * 0.25f;
        put(scale, iq2_xxs_grid[points[k % 4]], 8, even_signs(signs >> (k % 4 * 7)), y + 8 * k);
    }
}
static void iq2_xs(const uint8_t *b, float *y) { // d, points of 8 with their signs (64), scales (8)
    need_grids();
    for (int k = 0; k < LARGE / 8; k++) {
        const unsigned code = u16(b + 2 + 2 * k);
        put(scale_of_16(half(b), b + 66, k), iq2_xs_grid[code & 511], 8, even_signs(code >> 9),
            y + 8 * k);
    }
}
// d, points of 8 (32), signs (32), the points' high bits (8), scales (8)
static void iq2_s(const uint8_t *b, float *y) {
    need_grids();
    for (int k = 0; k < LARGE / 8; k++) {
        const int code = b[2 + k] | (b[66 + k / 4] >> (k % 4 * 2) & 3) << 8;
        put(scale_of_16(half(b), b + 74, k), iq2_s_grid[code], 8, b[34 + k], y + 8 * k);
    }
}
static void iq3_xxs(const uint8_t *b, float *y) { // d, points of 4 (64), signs and scales (32)
    need_grids();
    for (int k = 0; k < LARGE / 4; k++) {
        const uint32_t signs = u32(b + 66 + k / 8 * 4);
        const float scale = half(b) * (0.5f + (float)(signs >> 28)) * 0.5f;
        put(scale, iq3_xxs_grid[b[2 + k]], 4, even_signs(signs >> (k / 2 % 4 * 7)) >> (k % 2 * 4),
            y + 4 * k);
    }
}
static void iq3_s(const uint8_t *b,
                  float *y) { // d, points of 4 (64), high bits (8), signs (32), scales (4)
    need_grids();
    for (int k = 0; k < LARGE / 4; k++) {
        const int code = b[2 + k] | bit(b + 66, k) << 8,
                  scale = b[106 + k / 16] >> (k / 8 % 2 * 4) & 15;
        put(half(b) * (float)(1 + 2 * scale), iq3_s_grid[code], 4, b[74 + k / 2] >> (k % 2 * 4),
            y + 4 * k);
    }
}

static inline void put_shifted(float scale, const int8_t *point, bool down, float *y) {
    for (int i = 0; i < 8; i++) y[i] = scale * ((float)point[i] + (down ? -0.125f : 0.125f));
}
// d, points of 8 (32), of 32 numbers each the points' high bits, the scale's 3 and the shift's sign (2)
static void iq1_s(const uint8_t *b, float *y) {
    need_grids();
    for (int k = 0; k < LARGE / 8; k++) {
        const unsigned high = u16(b + 34 + k / 4 * 2);
        const unsigned code = b[2 + k] | (high >> (k % 4 * 3) & 7) << 8;
        put_shifted(half(b) * (float)(2 * (high >> 12 & 7) + 1), iq1_grid[code], high >> 15,
                    y + 8 * k);
    }
}
// points of 8 (32), their high bits and the shifts' signs (16), scales of 3 bits, four in two bytes whose
// highest 4 bits are a part of d (8)
static void iq1_m(const uint8_t *b, float *y) {
    need_grids();
    unsigned d = 0;
    for (int i = 0; i < 4; i++) d |= u16(b + 48 + 2 * i) >> 12 << (4 * i);
    for (int k = 0; k < LARGE / 8; k++) {
        const int high = b[32 + k / 2] >> (k % 2 * 4), g = k / 2;
        const unsigned scale = u16(b + 48 + g / 4 * 2) >> (g % 4 * 3) & 7;
        put_shifted(half_of(d) * (float)(2 * scale + 1), iq1_grid[b[k] | (high & 7) << 8], high & 8,
                    y + 8 * k);
    }
}

// ------------------------------------------------------------------------------------------- table

// clang-format off
static const ct_ggml_type types[] = { // by the number that files have
    [0]  = {"F32",     CT_F32,       1,   4, f32, 0, 0, 0, NULL},
    [1]  = {"F16",     CT_F16,       1,   2, f16, 0, 0, 0, NULL},
    [2]  = {"Q4_0",    CT_DEFAULT,  32,  18, q4_0, 4, 32, 0, q4_0_parts},
    [3]  = {"Q4_1",    CT_DEFAULT,  32,  20, q4_1, 4, 32, 8, q4_1_parts},
    [6]  = {"Q5_0",    CT_DEFAULT,  32,  22, q5_0, 8, 32, 0, q5_0_parts},
    [7]  = {"Q5_1",    CT_DEFAULT,  32,  24, q5_1, 8, 32, 16, q5_1_parts},
    [8]  = {"Q8_0",    CT_DEFAULT,  32,  34, q8_0, 8, 32, 0, q8_0_parts},
    [9]  = {"Q8_1",    CT_DEFAULT,  32,  36, q8_1, 0, 0, 0, NULL},
    [10] = {"Q2_K",    CT_DEFAULT, 256,  84, q2_k, 4, 16, 2, q2_k_parts},
    [11] = {"Q3_K",    CT_DEFAULT, 256, 110, q3_k, 4, 16, 0, q3_k_parts},
    [12] = {"Q4_K",    CT_DEFAULT, 256, 144, q4_k, 4, 32, 8, q4_k_parts},
    [13] = {"Q5_K",    CT_DEFAULT, 256, 176, q5_k, 8, 32, 16, q5_k_parts},
    [14] = {"Q6_K",    CT_DEFAULT, 256, 210, q6_k, 8, 16, 0, q6_k_parts},
    [15] = {"Q8_K",    CT_DEFAULT, 256, 292, q8_k, 0, 0, 0, NULL},
    [16] = {"IQ2_XXS", CT_DEFAULT, 256,  66, iq2_xxs, 0, 0, 0, NULL},
    [17] = {"IQ2_XS",  CT_DEFAULT, 256,  74, iq2_xs, 0, 0, 0, NULL},
    [18] = {"IQ3_XXS", CT_DEFAULT, 256,  98, iq3_xxs, 0, 0, 0, NULL},
    [19] = {"IQ1_S",   CT_DEFAULT, 256,  50, iq1_s, 0, 0, 0, NULL},
    [20] = {"IQ4_NL",  CT_DEFAULT,  32,  18, iq4_nl, 8, 32, 0, iq4_nl_parts},
    [21] = {"IQ3_S",   CT_DEFAULT, 256, 110, iq3_s, 0, 0, 0, NULL},
    [22] = {"IQ2_S",   CT_DEFAULT, 256,  82, iq2_s, 0, 0, 0, NULL},
    [23] = {"IQ4_XS",  CT_DEFAULT, 256, 136, iq4_xs, 8, 32, 0, iq4_xs_parts},
    [24] = {"I8",      CT_I8,        1,   1, i8, 0, 0, 0, NULL},
    [25] = {"I16",     CT_I16,       1,   2, i16, 0, 0, 0, NULL},
    [26] = {"I32",     CT_I32,       1,   4, i32, 0, 0, 0, NULL},
    [27] = {"I64",     CT_I64,       1,   8, i64, 0, 0, 0, NULL},
    [28] = {"F64",     CT_F64,       1,   8, f64, 0, 0, 0, NULL},
    [29] = {"IQ1_M",   CT_DEFAULT, 256,  56, iq1_m, 0, 0, 0, NULL},
    [30] = {"BF16",    CT_BF16,      1,   2, bf16, 0, 0, 0, NULL},
    [34] = {"TQ1_0",   CT_DEFAULT, 256,  54, tq1_0, 0, 0, 0, NULL},
    [35] = {"TQ2_0",   CT_DEFAULT, 256,  66, tq2_0, 0, 0, 0, NULL},
    [39] = {"MXFP4",   CT_DEFAULT,  32,  17, mxfp4, 8, 32, 0, mxfp4_parts},
    [40] = {"NVFP4",   CT_DEFAULT,  64,  36, nvfp4, 0, 0, 0, NULL},
    [41] = {"Q1_0",    CT_DEFAULT, 128,  18, q1_0, 0, 0, 0, NULL},
};
// clang-format on

const ct_ggml_type *ct__ggml_type(uint32_t number) {
    return number < sizeof types / sizeof *types && types[number].name ? &types[number] : NULL;
}

uint32_t ct__ggml_number(const ct_ggml_type *type) { return (uint32_t)(type - types); }

void ct__ggml_floats(const ct_ggml_type *type, const void *blocks, size_t n, float *to) {
    const uint8_t *from = blocks;
    for (; n; n--, from += type->bytes, to += type->elements) type->numbers(from, to);
}
