// Quantised weights: from ggml's blocks, or from folders that are published quantised, to quantised values
// of 4 or 8 bits with scales and offsets.
#ifndef COTAN_MODELS_LM_CODES_H
#define COTAN_MODELS_LM_CODES_H

#include "io/weights.h"
#include "models/lm_packed.h"
#include "models/stack.h"

// True if there is a layout of this library for the weight, whose rows have `width` elements.
bool ct__lm_codes_of(const ct_weight *w, int64_t width, ct_layout *layout);

// Makes the variables of a quantised weight `dims` (..., out, in), named NAME, NAME.scales and
// NAME.offsets: the quantised values, the scales of `n_blocks` blocks per row, and the offsets. w->layout is
// given; it becomes an interleaved layout where `interleaved` asks for that and the rows fit. `scales` is the
// dtype of scales and offsets in an exact model.
typedef struct ct_codes_form {
    int64_t n_blocks;
    bool offsets, interleaved;
    ct_dtype scales;
} ct_codes_form;
bool ct__lm_codes_make(ct_lm *lm, const char *name, ct_ints dims, ct_codes_form form,
                       ct_weight_pair *w, ct_loc here);
// Returns the sizes (out, in) of the matrix that a quantised weight represents.
void ct__lm_codes_sizes(const ct_weight_pair *w, int64_t *out, int64_t *in);
// Makes the variable of a weight whose blocks are read in place from the file. Returns false with the error
// set if that is not possible.
bool ct__lm_blocks_make(ct_lm *lm, const char *name, ct_ints dims, const ct_weight *weight,
                        ct_weight_pair *w, ct_loc here);
// True if the model's blocks would take too much of this machine's memory after repacking.
bool ct__lm_is_too_large(const ct_lm *lm);

// Fills the variables on all cores from n weights, one expert after the other.
typedef struct ct_codes_source {
    const ct_weight *weight;
    ct_packed packed; // if its kind is not CT_PACKED_NOT
} ct_codes_source;
bool ct__lm_codes_fill(ct_lm *lm, const ct_weight_pair *w, const ct_codes_source *from, int64_t n,
                       ct_loc here);

#endif
