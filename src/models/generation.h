// Reads the sampling options of a model's generation_config.json.
#ifndef COTAN_MODELS_GENERATION_H
#define COTAN_MODELS_GENERATION_H

#include "base/mem.h"
#include "cotan/lm.h"
#include "models/stack.h"

// Reads the folder's generation_config.json, if it has one. What `sampling` points to is allocated in the
// arena, as are the keys that are not supported, such as "num_beams, forced_eos_token_id" (NULL: all are).
bool ct__generation_read(const char *folder, const ct_lm *lm, const ct_lm_tokens *ends,
                         ct_arena *arena, ct_lm_sampling *sampling, const char **unsupported,
                         ct_err *err);

#endif
