// Blocks of ggml, as in GGUF files: a scale as f16 and the quants, contiguous in bytes. Quantised blocks
// equal those of the reference quantiser (gguf.quants on PyPI) byte for byte.
#include "ops/quantise.h"
#include "ops/rules.h"

enum { BLOCK = CT_GGML_BLOCK, HALF = BLOCK / 2, SCALE = 2, BITS_8 = 8, BITS_4 = 4 };

static ct_tensor ggml_constant(double value, ct_tensor like) {
    return ct__number_like(value, like);
}
static ct_tensor ggml_slice_last(ct_tensor x, int64_t from, int64_t to) { // of the last axis
    return ct_slice(x, .start = CT_INTS(from), .stop = CT_INTS(to), .axes = CT_AXES(-1));
}
static ct_tensor ggml_concat(ct_tensor a, ct_tensor b) {
    const ct_tensor both[2] = {a, b};
    return ct_concat(both, 2, -1);
}

// f16 (..., 1) as bytes (..., 2), and back.
static ct_tensor ggml_scale_bytes(ct_tensor scale) {
    ct_tensor bits = ct_bitcast(scale, CT_U16),
              high = ct_shift_right(bits, ggml_constant(BITS_8, bits));
    return ggml_concat(ct_cast(ct_and(bits, ggml_constant(255, bits)), CT_U8),
                       ct_cast(high, CT_U8));
}
static ct_tensor ggml_load_scale(ct_tensor blocks, int64_t from) {
    ct_tensor low = ct_cast(ggml_slice_last(blocks, from, from + 1), CT_U16),
              high = ct_cast(ggml_slice_last(blocks, from + 1, from + SCALE), CT_U16);
    ct_tensor code = ct_or(low, ct_shift_left(high, ggml_constant(BITS_8, high)));
    return ct_cast(ct_bitcast(code, CT_F16), CT_F32);
}

static ct_tensor ggml_reciprocal(ct_tensor scale) {
    ct_tensor zero = ggml_constant(0, scale);
    return ct_select(ct_equal(scale, zero), zero, ct_div(ggml_constant(1, scale), scale));
}
// The largest absolute value becomes 127; halves are rounded away from 0.
static ct_tensor ggml_quantise_q8(ct_tensor x) {
    ct_tensor largest = ct_max(ct_abs(x), .axes = CT_AXES(-1), .keepdims = true);
    ct_tensor scale = ct_div(largest, ggml_constant(127, largest)),
              v = ct_mul(x, ggml_reciprocal(scale));
    ct_tensor size = ct_abs(v), whole = ct_floor(size), rest = ct_sub(size, whole);
    whole = ct_add(whole, ct_floor(ct_mul(rest, ggml_constant(2, rest))));
    ct_tensor code = ct_select(ct_less(v, ggml_constant(0, v)), ct_neg(whole), whole);
    return ggml_concat(ggml_scale_bytes(ct_cast(scale, CT_F16)),
                       ct_bitcast(ct_cast(code, CT_I8), CT_U8));
}
// The element with the largest absolute value, the first one on ties, becomes -8; the others are truncated
// after adding a half.
static ct_tensor ggml_quantise_q4(ct_tensor x) {
    ct_tensor first = ct_one_hot(ct_argmax(ct_abs(x), .axis = -1), BLOCK, CT_BOOL); // (..., 32)
    ct_tensor only = ct_select(first, x, ggml_constant(0, x));
    ct_tensor largest = ct_sum(only, .axes = CT_AXES(-1), .keepdims = true);
    ct_tensor scale = ct_div(largest, ggml_constant(-8, largest));
    ct_tensor v = ct_mul(ct_cast(x, CT_F64), ct_cast(ggml_reciprocal(scale), CT_F64));
    v = ct_trunc(ct_cast(ct_add(v, ggml_constant(8.5, v)), CT_F32));
    ct_tensor code = ct_cast(ct_clamp(v, ggml_constant(0, v), ggml_constant(15, v)), CT_U8);
    ct_tensor high = ct_shift_left(ggml_slice_last(code, HALF, BLOCK), ggml_constant(BITS_4, code));
    return ggml_concat(ggml_scale_bytes(ct_cast(scale, CT_F16)),
                       ct_or(ggml_slice_last(code, 0, HALF), high));
}

ct_tensor ct__ggml_quantise(ct_tensor x, int bytes) {
    return bytes == CT_GGML_Q8_0 ? ggml_quantise_q8(x) : ggml_quantise_q4(x);
}
static ct_tensor ggml_dequantise_32(ct_tensor blocks, int bytes) {
    ct_tensor codes = ggml_slice_last(blocks, SCALE, bytes), v;
    if (bytes == CT_GGML_Q8_0) {
        v = ct_cast(ct_bitcast(codes, CT_I8), CT_F32);
    } else {
        ct_tensor low = ct_and(codes, ggml_constant(15, codes)),
                  high = ct_shift_right(codes, ggml_constant(BITS_4, codes));
        v = ct_cast(ggml_concat(low, high), CT_F32);
        v = ct_sub(v, ggml_constant(8, v));
    }
    return ct_mul(v, ggml_load_scale(blocks, 0));
}

// ------------------------------------------------------------------------------- blocks of 256 (M, bytes)

static ct_tensor ggml_extract_bits(ct_tensor x, ct_tensor from,
                                   int64_t mask) { // of u8, starting at bit `from`
    return ct_and(ct_shift_right(x, from), ggml_constant((double)mask, x));
}
// 0, by, 2 by ... along the first of `rank` axes.
static ct_tensor ggml_step_constants(int64_t n, int64_t by, int64_t rank) {
    const int64_t dim[3] = {n, 1, 1};
    ct_tensor i = ct_iota(CT_U8, ((ct_ints){rank, dim}), 0);
    return ct_mul(i, ggml_constant((double)by, i));
}

// For Q4_K and Q5_K: d, m, then eight scales and minimums of 6 bits in 12 bytes; (M, 8, 1) f32.
static ct_tensor ggml_unpack_scales(ct_tensor blocks, bool minimum) {
    ct_tensor x = ct_reshape(blocks, CT_DIMS(-1, 1, ct_dim(blocks, -1))); // (M, 1, bytes)
    ct_tensor own = ggml_slice_last(x, minimum ? 8 : 4, minimum ? 12 : 8),
              last = ggml_slice_last(x, 12, 16); // (M, 1, 4)
    ct_tensor half = ggml_step_constants(2, 1, 2), six = ggml_constant(6, own),
              four = ggml_constant(BITS_4, own); // (2, 1)
    ct_tensor low = minimum ? ct_shift_right(last, four) : ct_and(last, ggml_constant(15, last));
    ct_tensor later = ct_or(low, ct_shift_left(ct_shift_right(own, six), four));
    // (M, 2, 4)
    ct_tensor code = ct_select(ct_equal(half, ggml_constant(0, half)),
                               ct_and(own, ggml_constant(63, own)), later);
    ct_tensor by = ct_reshape(ggml_load_scale(blocks, minimum ? 2 : 0), CT_DIMS(-1, 1, 1));
    return ct_mul(by, ct_cast(ct_reshape(code, CT_DIMS(-1, 8, 1)), CT_F32));
}
// The low halves of each 32 bytes, then the high halves: (M, 8, 32) u8.
static ct_tensor ggml_unpack_nibbles(ct_tensor codes) {
    codes = ct_reshape(codes, CT_DIMS(-1, 4, 1, 32));
    return ct_reshape(ggml_extract_bits(codes, ggml_step_constants(2, BITS_4, 2), 15),
                      CT_DIMS(-1, 8, 32));
}
static ct_tensor ggml_dequantise_q4_k(ct_tensor blocks,
                                      bool fifth) { // Q5_K has a fifth bit per quant
    ct_tensor code = ggml_unpack_nibbles(fifth ? ggml_slice_last(blocks, 48, CT_GGML_Q5_K)
                                               : ggml_slice_last(blocks, 16, CT_GGML_Q4_K));
    if (fifth) {
        ct_tensor high = ct_reshape(ggml_slice_last(blocks, 16, 48), CT_DIMS(-1, 1, 32));
        high = ggml_extract_bits(high, ggml_step_constants(8, 1, 2), 1); // (M, 8, 32)
        code = ct_or(code, ct_shift_left(high, ggml_constant(BITS_4, high)));
    }
    ct_tensor product = ct_mul(ggml_unpack_scales(blocks, false), ct_cast(code, CT_F32));
    return ct_sub(product, ggml_unpack_scales(blocks, true));
}
// Low 4 bits (128), high 2 bits (64), sixteen scales of i8, d.
static ct_tensor ggml_dequantise_q6_k(ct_tensor blocks) {
    ct_tensor low = ct_reshape(ggml_slice_last(blocks, 0, 128), CT_DIMS(-1, 2, 1, 2, 32)),
              high = ct_reshape(ggml_slice_last(blocks, 128, 192), CT_DIMS(-1, 2, 1, 32));
    low = ct_reshape(ggml_extract_bits(low, ggml_step_constants(2, BITS_4, 3), 15),
                     CT_DIMS(-1, 2, 4, 32));
    high = ggml_extract_bits(high, ggml_step_constants(4, 2, 2), 3); // (M, 2, 4, 32)
    ct_tensor code = ct_cast(ct_or(low, ct_shift_left(high, ggml_constant(BITS_4, high))), CT_F32);
    code = ct_reshape(ct_sub(code, ggml_constant(32, code)), CT_DIMS(-1, 16, 16));
    ct_tensor scale =
        ct_cast(ct_bitcast(ggml_slice_last(blocks, 192, 208), CT_I8), CT_F32); // (M, 16)
    scale = ct_reshape(ct_mul(ggml_load_scale(blocks, 208), scale), CT_DIMS(-1, 16, 1));
    return ct_mul(scale, code);
}

ct_tensor ct__ggml_numbers(ct_tensor blocks, int bytes) {
    if (bytes < CT_GGML_Q4_K) return ggml_dequantise_32(blocks, bytes);
    blocks = ct_reshape(blocks, CT_DIMS(-1, bytes));
    return bytes == CT_GGML_Q6_K ? ggml_dequantise_q6_k(blocks)
                                 : ggml_dequantise_q4_k(blocks, bytes == CT_GGML_Q5_K);
}
