// Draws of the next token, from scores that ct_lm_process has been through.
#ifndef COTAN_MODELS_LM_SAMPLING_H
#define COTAN_MODELS_LM_SAMPLING_H

#include "cotan/lm.h"
#include "graph/graph.h"

// What ct_lm_process does to scores, where a token of `ends` (n_ends) would end the text.
bool ct__lm_bend(float *scores, int64_t vocab, const int32_t *text, size_t n, size_t prompt,
                 const ct_lm_sampling *s, const int32_t *ends, size_t n_ends);
// 53 random bits as a number from 0 up to 1, of the k-th draw.
double ct__lm_uniform(uint64_t seed, uint64_t k);
// The k-th draw of a text: a token, the likeliest where the temperature is 0; -1: the scores are not finite, or
// nothing is left of them.
int32_t ct__lm_draw_token(const float *scores, int64_t vocab, const ct_lm_sampling *s, uint64_t k);
// False: an option is out of its range, which the context's error says.
bool ct__lm_sampling_fits(const ct_lm_sampling *s, ct_ctx *ctx, const char *op, ct_loc here);
double ct__lm_log_probability(const float *scores, int64_t vocab, int32_t token);

#endif
