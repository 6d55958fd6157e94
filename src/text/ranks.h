// What the formats share that give pieces, and no merges.
#ifndef COTAN_TEXT_RANKS_H
#define COTAN_TEXT_RANKS_H

#include "text/tokenizer.h"

// Of the vocabulary's pieces, by id: SentencePiece's scores and types (1 normal, 2 unknown, 3
// control, 4 user-defined, 5 unused, 6 a byte).
typedef struct ct_pieces {
    float *scores;
    unsigned char *types;
    size_t scores_cap, types_cap;
    bool no_merges; // pieces are characters
    bool any;       // merges make pieces of every type, as llama.cpp has it
    bool parses;    // control pieces that stand in the text are found there
} ct_pieces;
// Makes the model of them. The normalizer is the first step, and leaves user-defined pieces alone.
bool ct__pieces_use(ct_tokenizer *t, const ct_pieces *pieces, ct_err *err);

void ct__model_find_bytes(ct_model *m); // <0x00> to <0xFF>
// A pattern by which text is split into words, and nothing is left out.
bool ct__split_by(ct_tokenizer *t, const char *pattern, ct_err *err);
// The template [bos] text [eos]; -1: none.
bool ct__surround_by(ct_tokenizer *t, int64_t bos, int64_t eos, ct_err *err);

#endif
