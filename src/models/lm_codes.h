// Weights that become codes of 4 or 8 bits, with scales and offsets: of ggml's blocks, and of folders that are
// published quantised.
#ifndef COTAN_MODELS_LM_CODES_H
#define COTAN_MODELS_LM_CODES_H

#include "io/weights.h"
#include "models/lm_packed.h"
#include "models/stack.h"

// Is there a layout of ours for the weight, whose rows have so many numbers?
bool ct__lm_codes_of(const ct_weight *w, int64_t width, ct_layout *layout);

// Makes the variables of a weight of codes, `dims` (..., out, in), below the names NAME, NAME.scales and NAME.offsets:
// codes, scales for so many groups of a row, and offsets. w->layout is given; where `grouped` asks for it and rows go
// into groups, it becomes one of groups.
bool ct__lm_codes_make(ct_lm *lm, const char *name, ct_ints dims, int64_t groups, bool offsets,
                       bool grouped, ct_weight_pair *w, ct_loc here);
// The sizes (out, in) that the codes of a weight stand for.
void ct__lm_codes_sizes(const ct_weight_pair *w, int64_t *out, int64_t *in);
// Makes the variable of a weight of blocks that are read where they lie; false: they cannot be, which the error says.
bool ct__lm_blocks_make(ct_lm *lm, const char *name, ct_ints dims, const ct_weight *weight,
                        ct_weight_pair *w, ct_loc here);
// Would the blocks of the model's files take too much of this machine's memory as codes?
bool ct__lm_is_too_large(const ct_lm *lm);

// Gives them their values, by all cores, from n weights, an expert after the other.
typedef struct ct_codes_source {
    const ct_weight *weight;
    ct_packed packed; // where its kind says so
} ct_codes_source;
bool ct__lm_codes_fill(ct_lm *lm, const ct_weight_pair *w, const ct_codes_source *from, int64_t n,
                       ct_loc here);

#endif
