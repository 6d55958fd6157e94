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
static ct_tensor scale_of(ct_tensor blocks) {
    ct_tensor low = ct_cast(part(blocks, 0, 1), CT_U16),
              high = ct_cast(part(blocks, 1, SCALE), CT_U16);
    ct_tensor bits = ct_or(low, ct_shift_left(high, number(BITS_8, high)));
    return ct_cast(ct_bitcast(bits, CT_F16), CT_F32);
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
ct_tensor ct__ggml_numbers(ct_tensor blocks, int bytes) {
    ct_tensor codes = part(blocks, SCALE, bytes), v;
    if (bytes == CT_GGML_Q8_0) {
        v = ct_cast(ct_bitcast(codes, CT_I8), CT_F32);
    } else {
        ct_tensor low = ct_and(codes, number(15, codes)),
                  high = ct_shift_right(codes, number(BITS_4, codes));
        v = ct_cast(joined(low, high), CT_F32);
        v = ct_sub(v, number(8, v));
    }
    return ct_mul(v, scale_of(blocks));
}
