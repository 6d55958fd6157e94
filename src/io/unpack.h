// Quantised weights as their makers publish them, several tensors to a weight, as f32.
//
// Each function fails where the tensors' types and sizes do not go together, or are not of the `count` numbers
// that `to` has room for. Numbers come in row-major order.
#ifndef COTAN_IO_UNPACK_H
#define COTAN_IO_UNPACK_H

#include "io/weights.h"

// MLX's affine codes: u32 (..., n * bits / 32) with scales and biases (..., n / group) in f32, bf16 or f16; 2, 3,
// 4, 5, 6 or 8 bits. As mlx computes them, in the scales' dtype: code times scale is rounded, then the sum.
bool ct__unpack_mlx(const ct_weight *codes, const ct_weight *scales, const ct_weight *biases,
                    int bits, int64_t group, float *to, uint64_t count, ct_err *err);

// Floats of 8 bits (..., m, n) whose blocks of rows x columns numbers share a scale (..., ceil(m / rows),
// ceil(n / columns)), as DeepSeek has them; or all numbers share one, of one element. Scales are f32, bf16, f16
// or powers of 2 (F8_E8M0; u8 that means the same).
bool ct__unpack_fp8(const ct_weight *codes, const ct_weight *scales, int64_t rows, int64_t columns,
                    float *to, uint64_t count, ct_err *err);

// MXFP4 as gpt-oss has it: two codes a byte, the first in the low bits, u8 (..., groups, 16), and for each group
// of 32 an exponent, u8 (..., groups).
bool ct__unpack_mxfp4(const ct_weight *blocks, const ct_weight *scales, float *to, uint64_t count,
                      ct_err *err);

// Do the tensors go together, whatever the count? The functions above ask this themselves.
bool ct__fits_mlx(const ct_weight *codes, const ct_weight *scales, const ct_weight *biases,
                  int bits, int64_t group, ct_err *err);
bool ct__fits_fp8(const ct_weight *codes, const ct_weight *scales, int64_t rows, int64_t columns,
                  ct_err *err);
bool ct__fits_mxfp4(const ct_weight *blocks, const ct_weight *scales, ct_err *err);
// The i-th of a tensor of scales; and n codes that follow each other from the lowest bit of the first byte on.
float ct__scale_at(const ct_weight *scales, uint64_t i);
void ct__unpack_codes(const void *codes, int bits, int64_t n, uint8_t *to);

#endif
