// Matrix products that read quantised values in place; blocks of ggml.
#ifndef COTAN_OPS_QUANTISE_H
#define COTAN_OPS_QUANTISE_H

#include "graph/graph.h"

// The pattern matcher (`larger`) of a matrix product, after that of attention.
ct_tensor ct__match_dequantised_product(const ct_match *match);

// ct_quantised_matmul of x (M, K) with one of several quantised matrices: codes and scales have one more
// leading axis. `which` is i32, () or per row (M). The selected matrix is read in place.
ct_tensor ct__chosen_matmul(ct_tensor x, ct_tensor codes, ct_tensor scales, ct_layout as,
                            ct_tensor which, ct_loc here);

// Dequantises codes (..., K) of 4 or 8 bits to f32, where blocks share a scale and an offset (..., blocks) of
// one dtype: code times scale plus offset, each rounded to that dtype.
ct_tensor ct__dequantise_offset(ct_tensor codes, ct_tensor scales, ct_tensor offsets, ct_loc here);

enum { CT_GGML_BLOCK = 32, CT_GGML_LARGE_BLOCK = 256 }; // elements
enum {                                                  // bytes of a block
    CT_GGML_Q8_0 = 34,
    CT_GGML_Q4_0 = 18,
    CT_GGML_Q4_K = 144,
    CT_GGML_Q5_K = 176,
    CT_GGML_Q6_K = 210,
};
// Blocks (..., 32) of f32 to bytes (..., bytes), and bytes to the f32 values in order.
ct_tensor ct__ggml_quantise(ct_tensor x, int bytes);
ct_tensor ct__ggml_numbers(ct_tensor blocks, int bytes);

#endif
