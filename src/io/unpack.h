// Dequantises weights that are published as several tensors each to f32.
//
// Each function fails if the tensors' types and sizes do not match, or if they have other than
// `count` elements, the capacity of `to`. Elements are written in row-major order.
#ifndef COTAN_IO_UNPACK_H
#define COTAN_IO_UNPACK_H

#include "io/weights.h"

// MLX's affine quants: u32 (..., n * bits / 32) with scales and biases (..., n / group) in f32,
// bf16 or f16; 2, 3, 4, 5, 6 or 8 bits. Computed as mlx does, in the scales' dtype: quant times
// scale is rounded, then the sum with the bias.
bool ct__unpack_mlx(const ct_weight *quants, const ct_weight *scales, const ct_weight *biases,
                    int bits, int64_t group, float *to, uint64_t count, ct_err *err);

// Floats of 8 bits (..., m, n), as DeepSeek publishes them: blocks of rows x columns elements share
// a scale (..., ceil(m / rows), ceil(n / columns)); a single scale is shared by all elements.
// Scales are f32, bf16, f16 or powers of 2 (F8_E8M0, or u8 with the same meaning).
bool ct__unpack_fp8(const ct_weight *quants, const ct_weight *scales, int64_t rows, int64_t columns,
                    float *to, uint64_t count, ct_err *err);

// MXFP4 as gpt-oss publishes it: two quants a byte, the first in the low bits, u8 (..., groups,
// 16), and one exponent for each group of 32, u8 (..., groups).
bool ct__unpack_mxfp4(const ct_weight *blocks, const ct_weight *scales, float *to, uint64_t count,
                      ct_err *err);

// Check that the tensors match, for any count. The functions above call these themselves.
bool ct__check_mlx(const ct_weight *quants, const ct_weight *scales, const ct_weight *biases,
                   int bits, int64_t group, ct_err *err);
bool ct__check_fp8(const ct_weight *quants, const ct_weight *scales, int64_t rows, int64_t columns,
                   ct_err *err);
bool ct__check_mxfp4(const ct_weight *blocks, const ct_weight *scales, ct_err *err);
// Returns the i-th scale; unpacks n quants that are packed from the lowest bit of the first byte
// on.
float ct__read_scale(const ct_weight *scales, uint64_t i);
void ct__unpack_quants(const void *quants, int bits, int64_t n, uint8_t *to);

#endif
