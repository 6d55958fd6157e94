// The model that a training run trains: a ct_gpt2, or a stack of any architecture. docs/design/training.md
// says why there are two.
#ifndef COTAN_MODELS_LEARNER_H
#define COTAN_MODELS_LEARNER_H

#include "models/gpt2.h"
#include "models/stack.h"

typedef struct ct_learner { // exactly one is set
    ct_gpt2 *gpt2;
    ct_lm *lm;
} ct_learner;

// Loads the model in a folder: a GPT-2 that cotan train wrote, or any model that ct_lm_load takes, in the
// same way.
bool ct__learner_load(const char *dir, bool trainable, ct_learner *model);
void ct__learner_free(ct_learner *model);
ct_params *ct__learner_params(const ct_learner *model);
int64_t ct__learner_vocab(const ct_learner *model);
// of a model without a limit: some large number
int64_t ct__learner_context(const ct_learner *model);

// tokens (B, T) -> (B, T, vocab)
ct_tensor ct__learner_logits(const ct_learner *model, ct_tensor tokens, ct_nn_mode *mode,
                             ct_loc here);
// Returns the mean cross-entropy of targets (B, T).
ct_tensor ct__learner_loss(const ct_learner *model, ct_tensor tokens, ct_tensor targets,
                           ct_nn_mode *mode, ct_loc here);
bool ct__learner_save(const ct_learner *model, const char *dir, ct__config_more add_keys,
                      void *user);

// The key-value cache or the states of one sequence.
typedef struct ct_learner_cache {
    ct_gpt2_cache *gpt2;
    ct_lm_cache *lm;
    int32_t *pages; // (n_pages)
    int64_t n_pages;
    int64_t capacity; // its capacity in tokens: the model's context, or fewer
} ct_learner_cache;
// Makes the cache of a sequence of up to `max_length` tokens; of GPT-2 as many as its context.
bool ct__learner_cache_new(const ct_learner *model, int64_t max_length, ct_learner_cache *cache);
void ct__learner_cache_free(ct_learner_cache *cache);
// Feeds the next n tokens, the first of which is at `position`, and returns the logits (1, vocab) after the
// last of them. `max_length` is the maximum length of the sequence.
ct_tensor ct__learner_read(const ct_learner *model, ct_learner_cache *cache, const int32_t *tokens,
                           int64_t n, int64_t position, int64_t max_length);

#endif
