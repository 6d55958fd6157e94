// Texts that a model reads many at a time: those of about one length make a pass.
#ifndef COTAN_MODELS_BATCHES_H
#define COTAN_MODELS_BATCHES_H

#include "models/stack.h"

typedef struct ct_batches {
    const ct_lm_tokens *texts; // (n) at least one token each
    const int32_t *const
        *kinds;     // (n) of each text's tokens their kinds, or NULL: all 0; NULL: of none
    size_t n, next; // done and in the pass
    size_t *order;  // (n) the longest first
    int64_t most;   // tokens of a pass, unless a single text has more
    // The pass.
    const size_t *which; // (rows) texts
    int64_t rows, time;
    int32_t *tokens, *lengths; // (rows, time), filled up by zeros behind the texts; (rows)
    int32_t *kind;             // (rows, time); NULL: all 0
} ct_batches;
// Zero it first; the texts must outlive it. False: no memory.
bool ct__batches_begin(ct_batches *b, const ct_lm_tokens *texts, const int32_t *const *kinds,
                       size_t n, int64_t most);
bool ct__batches_next(ct_batches *b); // false: there are no more
void ct__batches_free(ct_batches *b);
// Of the pass -> (rows * time, width), behind the last norm, recorded.
ct_tensor ct__batches_rows(const ct_batches *b, const ct_lm *lm, ct_lm_pass *pass, ct_loc here);

// A size that changes from call to call; 1 has kernels of its own.
static inline int64_t ct__varying(int64_t n) { return n > 1 ? CT_DYN(n) : n; }

#endif
