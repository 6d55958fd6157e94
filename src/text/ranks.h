// Shared by the formats that have pieces but no merges.
#ifndef COTAN_TEXT_RANKS_H
#define COTAN_TEXT_RANKS_H

#include "text/tokenizer.h"

// Per piece of the vocabulary, by id: SentencePiece's scores and types (1 normal, 2 unknown, 3
// control, 4 user-defined, 5 unused, 6 byte).
typedef struct ct_pieces {
    float *scores;
    unsigned char *types;
    size_t scores_cap, types_cap;
    bool no_merges;       // pieces are characters
    bool merge_all_types; // merges may produce pieces of any type, as in llama.cpp
    bool match_in_text;   // control pieces in the text are recognized
} ct_pieces;
// Builds the model of the pieces. The normalizer must be the first step; it does not change
// user-defined pieces.
bool ct__pieces_build_model(ct_tokenizer *t, const ct_pieces *pieces, ct_err *err);

void ct__model_find_byte_tokens(ct_model *m); // finds <0x00> to <0xFF>
// Adds a pre-tokenizer that isolates the matches of a pattern and drops nothing.
bool ct__tokenizer_add_split(ct_tokenizer *t, const char *pattern, ct_err *err);
// Adds the template [bos] text [eos]; -1: without.
bool ct__tokenizer_add_template(ct_tokenizer *t, int64_t bos, int64_t eos, ct_err *err);

#endif
