// Parts of language-model runs: choosing a size, and drawing text.
#ifndef COTAN_MODELS_LM_H
#define COTAN_MODELS_LM_H

#include "cotan/lm.h"
#include "cotan/models.h"
#include "base/text.h"
#include "data/corpus.h"
#include "graph/graph.h"
#include "io/config.h"
#include "models/learner.h"
#include "models/lexis.h"

// A rehearsal: what a run records is recorded once for a dry device, in a context of its own that
// is the thread's until the end. `part` hears of each plan that is told.
typedef struct ct_lm_rehearsal {
    ct_lm_part_fn part; // may be NULL
    void *user;
    ct_ctx *ctx, *outer;
    uint64_t held;  // bytes that devices held when it began
    size_t kernels; // of the parts
    size_t blocks, again;
    ct_text largest; // tensors of the part told last; to be freed
} ct_lm_rehearsal;
// within: bytes that all devices are to hold at most (ct__ctx_within); 0: any.
bool ct__rehearsal_begin(ct_lm_rehearsal *h, ct_ctx *outer, uint64_t within, ct_err *err);
bool ct__rehearsal_part(ct_lm_rehearsal *h, const char *name); // of the plan made last
// Fills in what the devices held and the sums; `cost` has weights, state and batches already. After
// a failed begin, too.
void ct__rehearsal_end(ct_lm_rehearsal *h, ct_lm_cost *cost, ct_err *err);

// Bytes that the process may have in all: the limit asked for, else what it has and what is left.
uint64_t ct__lm_room(const ct_lm_cost *cost);
bool ct__lm_fits(const ct_lm_cost *cost, const char *command, const ct_text *largest,
                 const char *hint, ct_err *err);

// Fills in the sizes that the options leave open, by what a run costs on a machine of this kind: by
// its processor, threads and memory, never by how busy it is. `command` begins its errors.
typedef struct ct_lm_size {
    bool chosen;    // something was left open
    bool crowded;   // a larger one was left out for memory that others have now
    double gflops;  // measured, for `seconds` alone; 0: nothing was measured
    double seconds; // of the training, estimated; 0 where nothing was measured
    ct_lm_cost cost;
} ct_lm_size;
// lessens: where it does not fit, gradients compute blocks again.
typedef bool (*ct_lm_rehearse_fn)(const ct_lm_train_options *options, bool lessens,
                                  ct_lm_cost *cost, void *user);
// Elements of the model of these options; -1: the error is told.
typedef int64_t (*ct_lm_count_fn)(const ct_lm_train_options *options, void *user);
bool ct__lm_choose(ct_lm_train_options *options, const char *command, const ct_corpus *corpus,
                   ct_lm_count_fn count, ct_lm_rehearse_fn rehearse, void *user, ct_lm_size *size,
                   ct_err *err);

bool ct__lm_is_precision(ct_dtype dtype);

// The optimizer of a run, of which lr, min_lr and the like are given.
ct_optim *ct__lm_optim(ct_params *params, const ct_lm_train_options *options);

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
// Where `cache` is full, the newest half of the text is kept. Tokens are lexis' where it has a tokenizer, else the
// vocabulary's.
bool ct__lm_write(const ct_learner *model, ct_learner_cache *cache, const ct_vocab *vocab,
                  const ct_lexis *lexis, const ct_lm_draw *draw, ct_err *err);
// Tokens beyond its bytes that a prompt hardly ever has: what stands in front of a text.
enum { CT_LM_PROMPT = 16 };
// Records what writing `length` tokens behind a prompt of `prompt` tokens runs, once.
bool ct__lm_rehearse_write(const ct_learner *model, ct_learner_cache *cache, size_t prompt,
                           int64_t length);
// A line's end, or the first character where the vocabulary has none. Returns its bytes in out.
size_t ct__lm_first(const ct_vocab *vocab, char out[4]);

// What a run's config.json says of its training, and where it goes on.
typedef struct ct_lm_resumed {
    int64_t step;        // of the checkpoint
    int64_t steps;       // that the run was to have; options->steps may be more
    ct_fit_best best;    // a val_loss of INFINITY: nobody has its weights
    ct_err damage;       // of the checkpoint's best weights; code 0: none
    bool kept_best;      // in the run's folder; else what is called so there is somebody else's
    bool best_in_folder; // it has none that are whole; those in the run's folder are its, and are
    int64_t tokens;
    char checksum[9];  // of the tokens
    int64_t text_sum;  // of the files, where a tokenizer read them; -1: none did
    const char **data; // (n_data) paths, absolute
    size_t n_data;
    ct_config config; // holds the paths
} ct_lm_resumed;
// Adds the options, which must be whole, the text, the steps that the weights beside it have behind
// them and what early stopping knows to a config.json, and seals it.
bool ct__lm_settings_store(ct_config *config, const ct_lm_train_options *options,
                           const ct_corpus *corpus, int64_t done, const ct_fit_best *best,
                           ct_err *err);
// What the run in `dir` was trained with, but for its text.
bool ct__lm_settings_read(const char *dir, ct_lm_train_options *options, ct_err *err);
// Finds the checkpoint that options->resume and resume_step ask for, checks every byte of it, and
// gives `options` what its run was started with; options that say otherwise are an error, but for
// those that may change. A damaged one is named, and one that is whole offered. Where it is damaged
// in its best weights alone it is taken.
bool ct__lm_resume(ct_lm_train_options *options, ct_lm_resumed *resumed, ct_err *err);
// To the error that the model in `dir` could not be read: a checkpoint there that is whole.
void ct__lm_offer_save(const char *dir, ct_err *err);
void ct__lm_resumed_free(ct_lm_resumed *resumed); // also after a failure
void ct__lm_hint_text(ct_err *err); // on the run's text, which is not where it was, or another one
// Is this the text that the run was trained on?
bool ct__lm_same_text(const ct_lm_resumed *resumed, const ct_corpus *corpus, bool chars,
                      ct_err *err);

#endif
