// Rotary position embeddings (Su et al. 2021): the frequencies, with the published ways of extending a
// context, and their application to queries and keys.
#ifndef COTAN_MODELS_ROPE_H
#define COTAN_MODELS_ROPE_H

#include "cotan/cotan.h"
#include "models/spec.h"

// Fills spec->ropes from rope_parameters, or from the keys of older configs: rope_theta, rope_scaling,
// partial_rotary_factor.
bool ct__rope_read(const char *path, const struct json_t *config, ct_arena *arena, ct_spec *spec,
                   ct_err *err);

typedef struct ct_rope_tables { // cos and sin tables of some positions
    ct_tensor cos, sin;         // (..., 1, pairs): an axis of 1 for the heads
} ct_rope_tables;
// Computes the tables of positions (...) i32. `length` is the number of tokens of the sequence, which
// chooses the frequencies where long sequences have their own.
ct_rope_tables ct__rope_at(const ct_rope *rope, ct_tensor positions, int64_t length, ct_loc here);
// Rotates the last 2 * pairs elements of x (..., heads, head), or the first ones with `first`; the others
// stay as they are.
ct_tensor ct__rope_apply(const ct_spec *spec, const ct_rope *rope, ct_rope_tables turned,
                         ct_tensor x, bool first, ct_loc here);

#endif
