// Language models in GGUF files: converts their metadata to a config.json, and their weight names to those
// of a row of architectures.c.
#ifndef COTAN_MODELS_LM_GGUF_H
#define COTAN_MODELS_LM_GGUF_H

#include "io/weights.h"
#include "models/spec.h"

// The key under which such a config has GGUF's pooling type.
#define CT_LM_GGUF_POOLING "gguf_pooling"

// Returns a new object with what config.json would have; NULL: the error is set. The architecture is the
// row whose `gguf` setting matches.
struct json_t *ct__lm_gguf_config(const ct_weights *files, ct_err *err);
// Adapts the spec of such a config to the weights in the GGUF file: their names, the transforms that
// converters applied, and the rope factors stored among the weights, which are marked in `used`.
bool ct__lm_gguf_adapt(const ct_weights *files, ct_spec *spec, bool *used, ct_err *err);

#endif
