// Parts of language-model runs: choosing a size, and drawing text.
#ifndef COTAN_MODELS_LM_H
#define COTAN_MODELS_LM_H

#include "cotan/lm.h"
#include "cotan/models.h"
#include "data/corpus.h"

// Fills in the sizes that the options leave open, by what a run costs on this machine.
typedef struct ct_lm_size {
    bool chosen;     // something was left open
    double gflops;   // measured; 0 where nothing was to be chosen
    uint64_t memory; // bytes of a run, estimated
    double seconds;  // of the training, estimated; 0 where nothing was measured
} ct_lm_size;
bool ct__lm_choose(ct_lm_train_options *options, const ct_corpus *corpus, ct_lm_size *size,
                   ct_err *err);

typedef struct ct_lm_draw {
    const char *prompt;
    size_t prompt_n;
    bool echo; // the prompt is written too
    int64_t length, top_k;
    double temperature;
    uint64_t seed;
    ct_write_fn write;
    ct_stop_fn stop;
    void *user;
} ct_lm_draw;
// `cache` holds one text, as long as the model's context.
bool ct__lm_write(const ct_gpt2 *model, ct_gpt2_cache *cache, const ct_vocab *vocab,
                  const ct_lm_draw *draw, ct_err *err);
// A line's end, or the first character where the vocabulary has none. Returns its bytes in out.
size_t ct__lm_first(const ct_vocab *vocab, char out[4]);

#endif
