// Bytes or characters as a tokenizer: what a run says of its tokens, as other programs read it.
#ifndef COTAN_TEXT_ALPHABET_H
#define COTAN_TEXT_ALPHABET_H

#include "data/corpus.h"

// tokenizer.json of a token for each byte or character, with the ids that the vocabulary has.
void ct__alphabet_json(const ct_vocab *vocab, ct_text *json);
// The same of a run's config.json, which says "tokens" and "vocabulary"; false: the folder has none that says it
// (no error), or it is wrong.
bool ct__alphabet_of(const char *folder, ct_text *json, ct_err *err);

#endif
