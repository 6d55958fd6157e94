// Products of quantised rows and quantised columns: sums of bytes times bytes, exact in each block, then scaled.
#ifndef COTAN_KINDS_QUANTISED_H
#define COTAN_KINDS_QUANTISED_H

#include "kinds/template.h"
#include "kir/target.h"

enum { CT_QUANTISED_BLOCK = 32 }; // codes along k whose products are summed as integers

// out[row, column] = the chain, over blocks in their order and from +0, of
// fma(sum of codes times codes of the block, row's scale times column's scale, before).
typedef struct ct_quantised_spec {
    ct_kval rows, columns;
    int64_t n_rows;       // where they are known; else 0
    int64_t inner;        // k: whole steps
    int bits;             // of the columns' codes: 4 or 8
    int64_t scale_blocks; // blocks that share a scale of the columns; 0: all of a column
    // Four bytes, as i32: of a row's codes from 4 * word on; of a column's codes, as they lie.
    ct_source row_words;    // row, word
    ct_source column_words; // column, word
    ct_source row_scale;    // row, block: f32
    ct_source column_scale; // column, number: f32
    ct_sink out;            // row, column: f32
    ct_target target;
} ct_quantised_spec;

// Codes that a step of the kernel takes: k must be a multiple.
static inline int64_t ct__quantised_step(int bits) { return CT_LANES * 32 / bits; }
void ct__template_quantised(ct_kir *k, const ct_quantised_spec *spec);

#endif
