// What a model's generation_config.json says of how tokens are chosen.
#ifndef COTAN_MODELS_GENERATION_H
#define COTAN_MODELS_GENERATION_H

#include "base/mem.h"
#include "cotan/lm.h"
#include "models/stack.h"

// Of the folder, if it has that file. What `sampling` names, and the keys that are not followed, such as "num_beams,
// forced_eos_token_id" (NULL: all are), lie in the arena.
bool ct__generation_read(const char *folder, const ct_lm *lm, const ct_lm_tokens *ends,
                         ct_arena *arena, ct_lm_sampling *sampling, const char **unfollowed,
                         ct_err *err);

#endif
