// Samples the next token from logits that ct_lm_process_logits has processed.
#ifndef COTAN_MODELS_LM_SAMPLING_H
#define COTAN_MODELS_LM_SAMPLING_H

#include "cotan/lm.h"
#include "graph/graph.h"

// Applies the logits processors of ct_lm_process_logits in place; `eos_ids` (n_eos_ids) are the eos tokens.
bool ct__lm_bend(float *scores, int64_t vocab, const int32_t *tokens, size_t n, size_t prompt,
                 const ct_lm_sampling *s, const int32_t *eos_ids, size_t n_eos_ids);
// Returns the k-th uniform number in [0, 1), made of 53 random bits.
double ct__lm_uniform(uint64_t seed, uint64_t k);
// Samples the k-th token of a sequence; the most probable one if the temperature is 0. Returns -1 if the
// logits are not finite, or all tokens are excluded.
int32_t ct__lm_draw_token(const float *scores, int64_t vocab, const ct_lm_sampling *s, uint64_t k);
// Returns false, with the context's error set, if an option is out of its range.
bool ct__lm_sampling_fits(const ct_lm_sampling *s, ct_ctx *ctx, const char *op, ct_loc here);
double ct__lm_log_probability(const float *scores, int64_t vocab, int32_t token);

#endif
