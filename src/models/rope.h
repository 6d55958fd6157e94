// Rotary positions (Su et al. 2021): how fast the pairs of a head's numbers turn, and what published ways of
// stretching a context make of that.
#ifndef COTAN_MODELS_ROPE_H
#define COTAN_MODELS_ROPE_H

#include "cotan/cotan.h"
#include "models/spec.h"

// Fills spec->turn from rope_parameters, or what older configs have: rope_theta, rope_scaling,
// partial_rotary_factor.
bool ct__rope_read(const char *path, const struct json_t *config, ct_arena *arena, ct_spec *spec,
                   ct_err *err);

typedef struct ct_turned { // what turning takes, of some positions
    ct_tensor cos, sin;    // (..., 1, pairs): an axis of 1 for the heads
} ct_turned;
// positions (...) i32. `length`: tokens of the text, which chooses the speeds where long texts have their own.
ct_turned ct__rope_at(const ct_rope *rope, ct_tensor positions, int64_t length, ct_loc here);
// The last 2 * pairs or, with `first`, the first numbers of x (..., heads, head) turned, the others as they are.
ct_tensor ct__rope_apply(const ct_spec *spec, const ct_rope *rope, ct_turned turned, ct_tensor x,
                         bool first, ct_loc here);

#endif
