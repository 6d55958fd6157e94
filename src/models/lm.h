// Internal functions of language-model runs: choosing a size, dry runs, sampling text, and resuming.
#ifndef COTAN_MODELS_LM_H
#define COTAN_MODELS_LM_H

#include "cotan/lm.h"
#include "base/text.h"
#include "data/corpus.h"
#include "graph/graph.h"
#include "io/config.h"
#include "models/tokenizer_bundle.h"
#include "models/stack.h"

// A dry run records what a training run records once, for a dry device, in a context of its own, which is
// the thread's current one until the end. `part` is called with each plan that is reported.
typedef struct ct_lm_dry_run {
    ct_lm_plan_fn part; // may be NULL
    void *user;
    ct_ctx *ctx, *outer;
    uint64_t bytes_before; // bytes that devices held at the beginning
    size_t n_kernels;      // of the reported plans
    size_t blocks, again;
    ct_text largest; // tensors of the plan reported last; to be freed
} ct_lm_dry_run;
// within: maximum of bytes on all devices (ct__ctx_limit_memory); 0: no limit.
bool ct__dry_run_begin(ct_lm_dry_run *h, ct_ctx *outer, uint64_t within, ct_err *err);
bool ct__dry_run_report(ct_lm_dry_run *h, const char *name); // reports the latest plan
// Fills in the devices' bytes and the sums; `cost` has weights, state and batches already. It must be
// called after a failed begin, too.
void ct__dry_run_end(ct_lm_dry_run *h, ct_lm_cost *cost, ct_err *err);

// Returns the bytes that the process may have in all: the memory limit, else its current use plus the
// available memory.
uint64_t ct__lm_room(const ct_lm_cost *cost);
bool ct__lm_fits(const ct_lm_cost *cost, const char *command, const ct_text *largest,
                 const char *hint, ct_err *err);

// Chooses the sizes that the options leave open by the cost of a run on a machine of this kind: by its
// processor, threads and memory, never by its load. `command` is the beginning of errors.
typedef struct ct_lm_size {
    bool is_chosen;       // some size was left open
    bool memory_is_short; // a larger size was rejected because other processes use memory now
    double gflops;        // measured, for `seconds` only; 0: not measured
    double seconds;       // estimated duration of the training; 0 if not measured
    ct_lm_cost cost;
} ct_lm_size;
// lessens: if the run does not fit, gradients recompute blocks.
typedef bool (*ct_lm_dry_run_fn)(const ct_lm_train_options *options, bool lessens, ct_lm_cost *cost,
                                 void *user);
// Returns the number of parameters of the model of these options; -1: the error is set.
typedef int64_t (*ct_lm_count_fn)(const ct_lm_train_options *options, void *user);
bool ct__lm_choose(ct_lm_train_options *options, const char *command, const ct_corpus *corpus,
                   ct_lm_count_fn count, ct_lm_dry_run_fn dry_run, void *user, ct_lm_size *size,
                   ct_err *err);

bool ct__lm_is_precision(ct_dtype dtype);

// Makes the optimizer of a run; lr, min_lr and the like must be set.
ct_optim *ct__lm_optim(ct_params *params, const ct_lm_train_options *options);

typedef struct ct_lm_draw {
    const char *prompt;
    size_t prompt_n;
    bool echo; // the prompt is written too
    int64_t max_tokens, top_k;
    double temperature;
    uint64_t seed;
    ct_write_fn write;
    ct_stop_fn stop;
    void *user;
} ct_lm_draw;
// Makes the cache of one sequence of up to `max_length` tokens, or the model's context.
ct_lm_cache *ct__lm_sample_cache_new(const ct_lm *lm, int64_t max_length);
// Returns the maximum length of a sequence; of a model without a limit some large number.
int64_t ct__lm_max_context(const ct_lm *lm);
// Samples text and writes it. When `cache` is full, the newest half of the sequence is kept. Tokens are the
// tokenizer's if `bundle` has one, else the vocabulary's.
bool ct__lm_write(const ct_lm *lm, ct_lm_cache *cache, const ct_vocab *vocab,
                  const ct_tokenizer_bundle *bundle, const ct_lm_draw *draw, ct_err *err);
// Upper estimate of a prompt's tokens beyond its bytes, for tokens before the text.
enum { CT_LM_PROMPT = 16 };
// Records once what sampling `length` tokens after a prompt of `prompt` tokens runs.
bool ct__lm_dry_run_generate(const ct_lm *lm, ct_lm_cache *cache, size_t prompt, int64_t length);
// Writes the default prompt to `out`: a newline, or the first character if the vocabulary has none. Returns
// its bytes.
size_t ct__lm_first(const ct_vocab *vocab, char out[4]);

// The training state in a run's config.json, from which the run resumes.
typedef struct ct_lm_resumed {
    int64_t step;     // of the checkpoint
    int64_t steps;    // that the run was started with; options->steps may be more
    ct_fit_best best; // a val_loss of INFINITY: its weights are lost
    ct_err damage;    // of the checkpoint's best weights; code 0: none
    bool has_best;    // the run's folder has them; else the best/ that is there is not this run's
    // the checkpoint has no intact best weights; those in the run's folder are its own, and intact
    bool best_in_folder;
    int64_t n_tokens;
    char checksum[9];  // of the tokens
    int64_t text_sum;  // of the files, where a tokenizer read them; -1: none did
    const char **data; // (n_data) paths, absolute
    size_t n_data;
    ct_config config; // owns the paths
} ct_lm_resumed;
// Adds to a config.json the options, which must be complete, the data, the number of steps done by the
// weights beside it and the state of early stopping, and adds its checksum.
bool ct__lm_settings_store(ct_config *config, const ct_lm_train_options *options,
                           const ct_corpus *corpus, int64_t done, const ct_fit_best *best,
                           ct_err *err);
// Reads the options that the run in `dir` was trained with, but for its data.
bool ct__lm_settings_read(const char *dir, ct_lm_train_options *options, ct_err *err);
// Finds the checkpoint that options->resume and resume_step ask for, verifies every byte of it, and fills
// `options` with those of its run. Different options are an error, but for those that may change. The error
// of a damaged checkpoint names it and suggests an intact one. A checkpoint that is damaged in its best
// weights only is accepted.
bool ct__lm_resume(ct_lm_train_options *options, ct_lm_resumed *resumed, ct_err *err);
// Loads the model in a folder that cotan train wrote, whose checksums it verifies, or any model that
// generates text. Returns NULL with the context's error set.
ct_lm *ct__lm_load_run(const char *dir, bool trainable);
// Adds a hint to the error that the model in `dir` could not be read: an intact checkpoint there.
void ct__lm_offer_save(const char *dir, ct_err *err);
void ct__lm_resumed_free(ct_lm_resumed *resumed); // also after a failure
void ct__lm_hint_text(ct_err *err); // adds a hint: the run's data files moved, or have changed
// True if the corpus is the one that the run was trained on.
bool ct__lm_same_text(const ct_lm_resumed *resumed, const ct_corpus *corpus, bool chars,
                      ct_err *err);

#endif
