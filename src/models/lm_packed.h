// Weights of folders that are published quantised: several tensors to a weight.
#ifndef COTAN_MODELS_LM_PACKED_H
#define COTAN_MODELS_LM_PACKED_H

#include <jansson.h>

#include "io/weights.h"
#include "models/stack.h"

typedef enum ct_packed_kind {
    CT_PACKED_NOT,
    CT_PACKED_MLX,   // codes of 2 to 8 bits with scales and biases
    CT_PACKED_FP8,   // floats of 8 bits, of which blocks, rows, or all share a scale
    CT_PACKED_MXFP4, // floats of 4 bits, 32 with an exponent
} ct_packed_kind;

typedef struct ct_packed {
    ct_packed_kind kind;
    const ct_weight *codes, *scales, *biases;
    int bits;              // of MLX
    int64_t group;         // of MLX: codes that share a scale
    int64_t rows, columns; // of FP8: a block's
    int64_t n, width;      // the weight as rows, and numbers of one
} ct_packed;

// Can weights be read that are quantised as the config says?
bool ct__lm_packed_known(const json_t *config, const char *path, ct_err *err);
// Experts' weights that are packed stand as (out, in), whatever they do otherwise.
void ct__lm_packed_adapt(ct_lm *lm);
// Is the weight of this name and these sizes one of several tensors? Its sizes fit, then.
bool ct__lm_packed(const ct_lm *lm, const char *name, ct_ints dims, ct_packed *p);
// Do its tensors go together?
bool ct__lm_packed_check(const ct_packed *p, ct_err *err);
// Rows that are unpacked at a time.
int64_t ct__lm_packed_rows(const ct_packed *p);
// The numbers of `count` rows from `first`, a multiple of these, on.
bool ct__lm_unpack(const ct_packed *p, int64_t first, int64_t count, float *to, ct_err *err);

// The product of codes of 4 bits takes rows of a multiple of this.
enum { CT_LM_CODES_STEP = 128, CT_LM_WIDE_STEP = 64 }; // of 4 bits, and of 8, which other rows have
// Of MLX, which becomes codes less half of their range, and of MXFP4, which becomes twice its numbers: the layout, of 4
// or 8 bits, and the groups of a row as that has them; codes and the two numbers of a group.
ct_layout ct__lm_packed_layout(const ct_packed *p);
int64_t ct__lm_packed_groups(const ct_packed *p);
void ct__lm_packed_codes(const ct_packed *p, int64_t row, int8_t *to);
void ct__lm_packed_group(const ct_packed *p, int64_t row, int64_t group, float *scale,
                         float *offset);

#endif
