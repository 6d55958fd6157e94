// What the ways to evaluate a model share.
#ifndef COTAN_MODELS_LM_SCORE_H
#define COTAN_MODELS_LM_SCORE_H

#include "cotan/eval.h"

// Tokens that the model sees at once.
int64_t ct__eval_context(const ct_lm *lm, const ct_eval_options *o);
// Can the model be judged at all, and are the options in their ranges?
bool ct__eval_fits(const ct_lm *lm, const ct_eval_options *o, const char *op);
// ct_lm_score_texts; op: in errors.
bool ct__score(const ct_lm *lm, const ct_lm_judged *texts, size_t n, ct_lm_score *scores,
               const ct_eval_options *o, const char *op);

#endif
