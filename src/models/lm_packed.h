// Weights of folders that are published quantised (MLX, FP8, MXFP4), which store several tensors per
// weight.
#ifndef COTAN_MODELS_LM_PACKED_H
#define COTAN_MODELS_LM_PACKED_H

#include <jansson.h>

#include "io/weights.h"
#include "models/stack.h"

typedef enum ct_packed_kind {
    CT_PACKED_NOT,
    CT_PACKED_MLX,   // values of 2 to 8 bits with scales and biases
    CT_PACKED_FP8,   // floats of 8 bits with a scale per block, per row, or per tensor
    CT_PACKED_MXFP4, // floats of 4 bits with an exponent per 32
} ct_packed_kind;

typedef struct ct_packed {
    ct_packed_kind kind;
    const ct_weight *quants, *scales, *biases;
    int bits;                          // of MLX
    int64_t group_size;                // of MLX: values that share a scale
    int64_t block_rows, block_columns; // of FP8: the size of a block
    int64_t n, n_columns;              // the number of rows of the weight, and elements per row
} ct_packed;

// True if weights quantised as the config says can be read; else sets the error.
bool ct__lm_packed_known(const json_t *config, const char *path, ct_err *err);
// Packed expert weights are always stored as (out, in); adjusts the spec to that.
void ct__lm_packed_adapt(ct_lm *lm);
// True if the weight of this name and these sizes is stored as several tensors; their sizes fit, then.
bool ct__lm_packed(const ct_lm *lm, const char *name, ct_ints dims, ct_packed *p);
// True if its tensors have consistent sizes and dtypes; else sets the error.
bool ct__lm_packed_check(const ct_packed *p, ct_err *err);
// Returns the number of rows that are unpacked at a time.
int64_t ct__lm_packed_rows(const ct_packed *p);
// Writes the f32 values of `count` rows from row `first`, a multiple of ct__lm_packed_rows.
bool ct__lm_unpack(const ct_packed *p, int64_t first, int64_t count, float *to, ct_err *err);

// The row lengths that the integer products take are multiples of these.
// for quantised values of 4 bits, and of 8 bits for other rows
enum { CT_LM_CODES_STEP = 128, CT_LM_WIDE_STEP = 64 };
// MLX becomes quantised values less half of their range, MXFP4 becomes integers that are twice its values.
// These return the layout (of 4 or 8 bits), the blocks per row in that layout, the quantised values of a
// row, and a block's scale and offset. A weight's value is (q + zero) * scale + offset.
int ct__lm_packed_zero(const ct_packed *p); // 0: there are no offsets
ct_layout ct__lm_packed_layout(const ct_packed *p);
int64_t ct__lm_packed_groups(const ct_packed *p);
void ct__lm_packed_codes(const ct_packed *p, int64_t row, int8_t *to);
void ct__lm_packed_group(const ct_packed *p, int64_t row, int64_t group, float *scale,
                         float *offset);

#endif
