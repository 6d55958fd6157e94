// Describes a model's files for cotan info: its architecture, its parameters by type, and its tokenizer.
#ifndef COTAN_TRAIN_DESCRIBE_MODEL_H
#define COTAN_TRAIN_DESCRIBE_MODEL_H

#include "base/error.h"
#include "base/text.h"

// Describes anything that ct__weights_open opens, and the config.json of such a folder.
bool ct__describe_model(const char *path, ct_text *out, ct_err *err);
void ct__add_bytes(ct_text *out, uint64_t bytes); // "24 bytes", "1536 MB"

#endif
