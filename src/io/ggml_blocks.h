// ggml's types of tensors: numbers, and blocks of a row's numbers that share a scale.
#ifndef COTAN_IO_GGML_BLOCKS_H
#define COTAN_IO_GGML_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cotan/cotan.h"

typedef struct ct_ggml_type {
    const char *name;    // "Q4_K"; NULL: there is none of this number
    ct_dtype dtype;      // CT_DEFAULT: blocks
    int elements, bytes; // of a block; a plain number is a block of one
    void (*numbers)(const uint8_t *block, float *to);
    // Of blocks whose numbers are (code + zero) times scale, plus an offset: a code's bits, 4 or 8, as two's complement,
    // how many share scale and offset, and what codes are less than those of the file, which have no sign; 0: there are
    // no offsets. bits 0: of other blocks.
    int bits, group, zero;
    void (*parts)(const uint8_t *restrict block, int8_t *restrict codes, float *restrict scales,
                  float *restrict offsets);
} ct_ggml_type;

const ct_ggml_type *ct__ggml_type(uint32_t number); // as files have it; NULL: there is none
uint32_t ct__ggml_number(const ct_ggml_type *type);
// The numbers of n blocks, aligned to 1 only, as f32: bit for bit those of ggml's reference.
void ct__ggml_floats(const ct_ggml_type *type, const void *blocks, size_t n, float *to);

#endif
