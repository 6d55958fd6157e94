// ggml's tensor types: plain elements, and blocks of a row's elements that share a scale.
#ifndef COTAN_IO_GGML_BLOCKS_H
#define COTAN_IO_GGML_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cotan/cotan.h"

typedef struct ct_ggml_type {
    const char *name;    // "Q4_K"; NULL: no type has this id
    ct_dtype dtype;      // CT_DEFAULT: blocks
    int elements, bytes; // of a block; a plain element is a block of one
    void (*dequantize)(const uint8_t *block, float *to); // NULL: through unpack
    // For blocks with element = (quant + zero_point) * scale + offset: bits of a quant, 4 or 8, in
    // two's complement; number of elements that share scale and offset; what is subtracted from the
    // file's unsigned quants, 0 if there are no offsets. bits is 0 for other blocks.
    int bits, group, zero_point;
    void (*unpack)(const uint8_t *restrict block, int8_t *restrict quants, float *restrict scales,
                   float *restrict offsets);
} ct_ggml_type;

const ct_ggml_type *ct__ggml_type(uint32_t number); // by the id in files; NULL: there is none
uint32_t ct__ggml_type_id(const ct_ggml_type *type);
// Dequantises n blocks, aligned to 1 only, to f32, bit for bit as ggml's reference does.
void ct__ggml_dequantize(const ct_ggml_type *type, const void *blocks, size_t n, float *to);

#endif
