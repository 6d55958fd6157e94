// Groups sequences of about the same length into padded batches for a forward pass.
#ifndef COTAN_MODELS_BATCHES_H
#define COTAN_MODELS_BATCHES_H

#include "models/stack.h"

typedef struct ct_batches {
    const ct_lm_tokens *sequences; // (n) with at least one token each
    const int32_t *const *
        token_types; // (n) of each sequence the token types, or NULL: all 0; NULL: no sequence has any
    size_t n, next;     // the number of sequences in earlier batches and in this one
    size_t *order;      // (n) the longest first
    int64_t max_tokens; // maximum of tokens per batch, unless a single sequence has more
    // The current batch.
    const size_t *indices; // (rows) indices of sequences
    int64_t rows, time;
    int32_t *tokens, *lengths; // (rows, time), padded with zeros after each sequence; (rows)
    int32_t *batch_types;      // (rows, time); NULL: all 0
} ct_batches;
// Zero it first; the sequences must outlive it. Returns false if out of memory.
bool ct__batches_begin(ct_batches *b, const ct_lm_tokens *sequences,
                       const int32_t *const *token_types, size_t n, int64_t max_tokens);
bool ct__batches_next(ct_batches *b); // returns false if there are no more batches
void ct__batches_free(ct_batches *b);
// Records the batch's pass and returns (rows * time, width), after the last norm.
ct_tensor ct__batches_rows(const ct_batches *b, const ct_lm *lm, ct_lm_pass *pass, ct_loc here);

// Returns the size of an axis that changes from call to call as a dynamic size; a size of 1 has kernels of
// its own.
static inline int64_t ct__varying(int64_t n) { return n > 1 ? CT_DYN(n) : n; }

#endif
