// Blocks of 32 as ggml has them, and files of GGUF: a scale as f16, then its codes, in one piece of bytes. What is
// written is what its reference quantiser writes (gguf.quants of PyPI), byte by byte.
#include "ops/quantise.h"
#include "ops/rules.h"

enum { BLOCK = CT_GGML_BLOCK, HALF = BLOCK / 2, SCALE = 2, BITS_8 = 8, BITS_4 = 4 };

static ct_tensor number(double value, ct_tensor like) { return ct__number_like(value, like); }
static ct_tensor part(ct_tensor x, int64_t from, int64_t to) { // of the last axis
    return ct_slice(x, .start = CT_INTS(from), .stop = CT_INTS(to), .axes = CT_AXES(-1));
}
static ct_tensor joined(ct_tensor a, ct_tensor b) {
    const ct_tensor both[2] = {a, b};
    return ct_concat(both, 2, -1);
}

// f16 (..., 1) as bytes (..., 2), and back.
static ct_tensor bytes_of(ct_tensor scale) {
    ct_tensor bits = ct_bitcast(scale, CT_U16), high = ct_shift_right(bits, number(BITS_8, bits));
    return joined(ct_cast(ct_and(bits, number(255, bits)), CT_U8), ct_cast(high, CT_U8));
}
static ct_tensor scale_at(ct_tensor blocks, int64_t from) {
    ct_tensor low = ct_cast(part(blocks, from, from + 1), CT_U16),
              high = ct_cast(part(blocks, from + 1, from + SCALE), CT_U16);
    ct_tensor code = ct_or(low, ct_shift_left(high, number(BITS_8, high)));
    return ct_cast(ct_bitcast(code, CT_F16), CT_F32);
}

static ct_tensor inverse(ct_tensor scale) {
    ct_tensor zero = number(0, scale);
    return ct_select(ct_equal(scale, zero), zero, ct_div(number(1, scale), scale));
}
// The largest size gets 127; halves are rounded away from 0.
static ct_tensor quantise_q8(ct_tensor x) {
    ct_tensor largest = ct_max(ct_abs(x), .axes = CT_AXES(-1), .keepdims = true);
    ct_tensor scale = ct_div(largest, number(127, largest)), v = ct_mul(x, inverse(scale));
    ct_tensor size = ct_abs(v), whole = ct_floor(size), rest = ct_sub(size, whole);
    whole = ct_add(whole, ct_floor(ct_mul(rest, number(2, rest))));
    ct_tensor code = ct_select(ct_less(v, number(0, v)), ct_neg(whole), whole);
    return joined(bytes_of(ct_cast(scale, CT_F16)), ct_bitcast(ct_cast(code, CT_I8), CT_U8));
}
// What has the largest size, the first of equals, gets -8; what is between is cut off behind a half is added.
static ct_tensor quantise_q4(ct_tensor x) {
    ct_tensor first = ct_one_hot(ct_argmax(ct_abs(x), .axis = -1), BLOCK, CT_BOOL); // (..., 32)
    ct_tensor only = ct_select(first, x, number(0, x));
    ct_tensor largest = ct_sum(only, .axes = CT_AXES(-1), .keepdims = true);
    ct_tensor scale = ct_div(largest, number(-8, largest));
    ct_tensor v = ct_mul(ct_cast(x, CT_F64), ct_cast(inverse(scale), CT_F64));
    v = ct_trunc(ct_cast(ct_add(v, number(8.5, v)), CT_F32));
    ct_tensor code = ct_cast(ct_clamp(v, number(0, v), number(15, v)), CT_U8);
    ct_tensor high = ct_shift_left(part(code, HALF, BLOCK), number(BITS_4, code));
    return joined(bytes_of(ct_cast(scale, CT_F16)), ct_or(part(code, 0, HALF), high));
}

ct_tensor ct__ggml_quantise(ct_tensor x, int bytes) {
    return bytes == CT_GGML_Q8_0 ? quantise_q8(x) : quantise_q4(x);
}
static ct_tensor small_numbers(ct_tensor blocks, int bytes) {
    ct_tensor codes = part(blocks, SCALE, bytes), v;
    if (bytes == CT_GGML_Q8_0) {
        v = ct_cast(ct_bitcast(codes, CT_I8), CT_F32);
    } else {
        ct_tensor low = ct_and(codes, number(15, codes)),
                  high = ct_shift_right(codes, number(BITS_4, codes));
        v = ct_cast(joined(low, high), CT_F32);
        v = ct_sub(v, number(8, v));
    }
    return ct_mul(v, scale_at(blocks, 0));
}

// ------------------------------------------------------------------------------- blocks of 256 (M, bytes)

static ct_tensor bits(ct_tensor x, ct_tensor from, int64_t mask) { // of u8, from those bits on
    return ct_and(ct_shift_right(x, from), number((double)mask, x));
}
// 0, by, 2 by ... along the first of so many axes.
static ct_tensor steps(int64_t n, int64_t by, int64_t rank) {
    const int64_t dim[3] = {n, 1, 1};
    ct_tensor i = ct_iota(CT_U8, ((ct_ints){rank, dim}), 0);
    return ct_mul(i, number((double)by, i));
}

// Of Q4_K and Q5_K: d, m, eight scales and minimums of 6 bits in 12 bytes; (M, 8, 1) f32.
static ct_tensor scale_of_6_bits(ct_tensor blocks, bool minimum) {
    ct_tensor x = ct_reshape(blocks, CT_DIMS(-1, 1, ct_dim(blocks, -1))); // (M, 1, bytes)
    ct_tensor own = part(x, minimum ? 8 : 4, minimum ? 12 : 8), last = part(x, 12, 16); // (M, 1, 4)
    ct_tensor half = steps(2, 1, 2), six = number(6, own), four = number(BITS_4, own);  // (2, 1)
    ct_tensor low = minimum ? ct_shift_right(last, four) : ct_and(last, number(15, last));
    ct_tensor later = ct_or(low, ct_shift_left(ct_shift_right(own, six), four));
    ct_tensor code = ct_select(ct_equal(half, number(0, half)), ct_and(own, number(63, own)),
                               later); // (M, 2, 4)
    ct_tensor by = ct_reshape(scale_at(blocks, minimum ? 2 : 0), CT_DIMS(-1, 1, 1));
    return ct_mul(by, ct_cast(ct_reshape(code, CT_DIMS(-1, 8, 1)), CT_F32));
}
// The low halves of each 32 bytes, then their high ones: (M, 8, 32) u8.
static ct_tensor halves_of_32(ct_tensor codes) {
    codes = ct_reshape(codes, CT_DIMS(-1, 4, 1, 32));
    return ct_reshape(bits(codes, steps(2, BITS_4, 2), 15), CT_DIMS(-1, 8, 32));
}
static ct_tensor q4_k_numbers(ct_tensor blocks, bool fifth) { // Q5_K has a fifth bit of each
    ct_tensor code =
        halves_of_32(fifth ? part(blocks, 48, CT_GGML_Q5_K) : part(blocks, 16, CT_GGML_Q4_K));
    if (fifth) {
        ct_tensor high = ct_reshape(part(blocks, 16, 48), CT_DIMS(-1, 1, 32));
        high = bits(high, steps(8, 1, 2), 1); // (M, 8, 32)
        code = ct_or(code, ct_shift_left(high, number(BITS_4, high)));
    }
    ct_tensor product = ct_mul(scale_of_6_bits(blocks, false), ct_cast(code, CT_F32));
    return ct_sub(product, scale_of_6_bits(blocks, true));
}
// Low 4 bits (128), high 2 bits (64), sixteen scales of i8, d.
static ct_tensor q6_k_numbers(ct_tensor blocks) {
    ct_tensor low = ct_reshape(part(blocks, 0, 128), CT_DIMS(-1, 2, 1, 2, 32)),
              high = ct_reshape(part(blocks, 128, 192), CT_DIMS(-1, 2, 1, 32));
    low = ct_reshape(bits(low, steps(2, BITS_4, 3), 15), CT_DIMS(-1, 2, 4, 32));
    high = bits(high, steps(4, 2, 2), 3); // (M, 2, 4, 32)
    ct_tensor code = ct_cast(ct_or(low, ct_shift_left(high, number(BITS_4, high))), CT_F32);
    code = ct_reshape(ct_sub(code, number(32, code)), CT_DIMS(-1, 16, 16));
    ct_tensor scale = ct_cast(ct_bitcast(part(blocks, 192, 208), CT_I8), CT_F32); // (M, 16)
    scale = ct_reshape(ct_mul(scale_at(blocks, 208), scale), CT_DIMS(-1, 16, 1));
    return ct_mul(scale, code);
}

ct_tensor ct__ggml_numbers(ct_tensor blocks, int bytes) {
    if (bytes < CT_GGML_Q4_K) return small_numbers(blocks, bytes);
    blocks = ct_reshape(blocks, CT_DIMS(-1, bytes));
    return bytes == CT_GGML_Q6_K ? q6_k_numbers(blocks)
                                 : q4_k_numbers(blocks, bytes == CT_GGML_Q5_K);
}
