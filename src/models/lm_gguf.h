// Language models in GGUF files: their metadata as a config.json, their weights' names for those of a row.
#ifndef COTAN_MODELS_LM_GGUF_H
#define COTAN_MODELS_LM_GGUF_H

#include "io/weights.h"
#include "models/spec.h"

// Under this key such a config has GGUF's number of how tokens are pooled.
#define CT_LM_GGUF_POOLING "gguf_pooling"

// What config.json would have, a new object; NULL: the error is told. An architecture is the row whose `gguf` it is.
struct json_t *ct__lm_gguf_config(const ct_weights *files, ct_err *err);
// The spec of such a config as weights in GGUF have it: their names, what is done to weights on their way there, and
// factors of the rotation that stand among them, which become `used`.
bool ct__lm_gguf_adapt(const ct_weights *files, ct_spec *spec, bool *used, ct_err *err);

#endif
