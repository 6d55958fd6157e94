// What a run trains: a GPT-2 as models/gpt2 has it, or a stack of any architecture. docs/design/training.md says
// why there are two.
#ifndef COTAN_MODELS_LEARNER_H
#define COTAN_MODELS_LEARNER_H

#include "models/gpt2.h"
#include "models/stack.h"

typedef struct ct_learner { // one of the two
    ct_gpt2 *gpt2;
    ct_lm *lm;
} ct_learner;

// A model in a folder: GPT-2 that cotan train wrote, or anything else that ct_lm_load takes, and as it does.
bool ct__learner_load(const char *dir, bool trainable, ct_learner *model);
void ct__learner_free(ct_learner *model);
ct_params *ct__learner_params(const ct_learner *model);
int64_t ct__learner_vocab(const ct_learner *model);
int64_t ct__learner_context(const ct_learner *model); // of a model without an end: some number

// tokens (B, T) -> (B, T, vocab)
ct_tensor ct__learner_logits(const ct_learner *model, ct_tensor tokens, ct_nn_mode *mode,
                             ct_loc here);
// The mean cross-entropy of targets (B, T).
ct_tensor ct__learner_loss(const ct_learner *model, ct_tensor tokens, ct_tensor targets,
                           ct_nn_mode *mode, ct_loc here);
bool ct__learner_save(const ct_learner *model, const char *dir, ct__config_more more, void *user);

// What a text leaves behind as it is read.
typedef struct ct_learner_cache {
    ct_gpt2_cache *gpt2;
    ct_lm_cache *lm;
    int32_t *pages; // (n_pages)
    int64_t n_pages;
    int64_t most; // tokens that there is room for: the model's context, or fewer
} ct_learner_cache;
// For a text that may come to have `longest` tokens; of GPT-2 as many as its context.
bool ct__learner_cache_new(const ct_learner *model, int64_t longest, ct_learner_cache *cache);
void ct__learner_cache_free(ct_learner_cache *cache);
// The next n tokens, the first of which stands at `position` -> (1, vocab), behind the last of them. `longest`:
// tokens that the text may come to have.
ct_tensor ct__learner_read(const ct_learner *model, ct_learner_cache *cache, const int32_t *tokens,
                           int64_t n, int64_t position, int64_t longest);

#endif
