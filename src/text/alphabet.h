// Bytes or characters as a tokenizer: converts a run's vocabulary to the format that other programs
// read.
#ifndef COTAN_TEXT_ALPHABET_H
#define COTAN_TEXT_ALPHABET_H

#include "data/corpus.h"

// Writes the tokenizer.json with a token for each byte or character and the ids of the vocabulary.
void ct__alphabet_json(const ct_vocab *vocab, ct_text *json);
// The same for the config.json of a run, which has the keys "tokenizer" and "vocabulary". False: the
// folder has no such file (no error), or the file is invalid.
bool ct__alphabet_of(const char *folder, ct_text *json, ct_err *err);

#endif
