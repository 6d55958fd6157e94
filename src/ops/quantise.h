// A product that reads codes where they lie; blocks of ggml.
#ifndef COTAN_OPS_QUANTISE_H
#define COTAN_OPS_QUANTISE_H

#include "graph/graph.h"

// `larger` of a product of matrices, after attention's.
ct_tensor ct__product_of_codes(const ct_match *match);

// ct_quantised_matmul of x (M, K) with one of several matrices of codes, in front of whose axes they and their scales
// have one more: `which` i32, () or of each row (M). It is read where it lies.
ct_tensor ct__chosen_matmul(ct_tensor x, ct_tensor codes, ct_tensor scales, ct_layout as,
                            ct_tensor which, ct_loc here);

enum { CT_GGML_BLOCK = 32, CT_GGML_LARGE_BLOCK = 256 }; // elements
enum {                                                  // bytes of a block
    CT_GGML_Q8_0 = 34,
    CT_GGML_Q4_0 = 18,
    CT_GGML_Q4_K = 144,
    CT_GGML_Q5_K = 176,
    CT_GGML_Q6_K = 210,
};
// Blocks (..., 32) of f32 as bytes (..., bytes), and the numbers that bytes stand for, in their order.
ct_tensor ct__ggml_quantise(ct_tensor x, int bytes);
ct_tensor ct__ggml_numbers(ct_tensor blocks, int bytes);

#endif
