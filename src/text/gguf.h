// The text metadata of a GGUF file: its tokenizer and its chat templates.
#ifndef COTAN_TEXT_GGUF_H
#define COTAN_TEXT_GGUF_H

#include <jansson.h>

#include "io/gguf.h"
#include "text/tokenizer.h"

// Builds the tokenizer and finishes it.
bool ct__tokenizer_of_gguf(ct_tokenizer *t, const ct_gguf *gguf, ct_err *err);
// Returns the chat templates and special tokens under the keys of tokenizer_config.json. NULL: an
// error.
json_t *ct__chat_of_gguf(const ct_gguf *gguf, ct_err *err);

#endif
