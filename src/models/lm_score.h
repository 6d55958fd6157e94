// What the evaluations of a model share: their checks and the scoring of tokens.
#ifndef COTAN_MODELS_LM_SCORE_H
#define COTAN_MODELS_LM_SCORE_H

#include "cotan/eval.h"

// Returns the number of tokens that the model sees at once.
int64_t ct__eval_context(const ct_lm *lm, const ct_eval_options *o);
// True if the model has logits and the options are in their ranges; else sets the error.
bool ct__eval_fits(const ct_lm *lm, const ct_eval_options *o, const char *op);
// ct_lm_score_tokens; `op` is the beginning of errors.
bool ct__score(const ct_lm *lm, const ct_lm_score_input *sequences, size_t n, ct_lm_score *scores,
               const ct_eval_options *o, const char *op);

#endif
