// A training run: what the files of it share. lm_config.c makes one, lm_state.c keeps it in its folder,
// lm_report.c reports it, and lm_train.c runs it.
#ifndef COTAN_MODELS_LM_RUN_H
#define COTAN_MODELS_LM_RUN_H

#include <math.h>

#include "data/loader.h"
#include "models/lm.h"
#include "train/checkpoint.h"

enum { CT_LM_SAMPLE_TOKENS = 100 };

typedef struct ct_lm_run {
    ct_lm_train_options o; // complete, with all defaults filled in
    const char *command;   // "train" or "plan", for errors
    ct_err *err;
    ct_corpus corpus;
    size_t n_train; // number of tokens to train on; the others validate
    ct_text characters;
    ct_tokenizer_bundle bundle; // the tokenizer bundle, unless the corpus has bytes or characters
    bool tokenizer_saved;       // the tokenizer's files are in the folder
    ct_lm *lm;
    ct_lm_cache *cache;
    ct_optim *optim;
    int64_t n_parameters, vocab; // of the model that .from names; 0: none
    char from[CT_RUN_PATH];      // its folder, or the checkpoint's; "": a new model
    ct_lm_dry_run *dry_run;      // the dry run that records; NULL: the run itself
    uint64_t device_limit;       // maximum of bytes on devices; 0: no limit
    ct_lm_plan_fn part;          // is called with each plan of a dry run
    void *part_user;
    ct_text largest;            // the largest tensors, as text
    ct_tensor position, random; // variables: the loader's step, and the seed
    ct_loader loader;
    int32_t *x, *y;     // (B, T)
    float *row_weights; // (B, 1): 1 for a row that counts
    ct_text sample;
    double last_report; // when tokenization was reported last
    double val_loss;    // NaN: this process has not evaluated yet
    bool trained;       // a step was done before, or has begun
    bool keeps_best;    // in a folder of their own: the run has patience, or had it
    // best of the whole run; saved_best: as it is in the newest checkpoint
    ct_fit_best best, saved_best;
    ct_fit_end_reason end;
    ct_lm_resumed resumed;
    int64_t done; // number of steps done by the current weights
    // first: number of steps done before; saved: step of the newest checkpoint, -1: there is none
    int64_t first, saved;
    int lock;                      // of the folder; -1: none
    char default_dir[CT_RUN_PATH]; // the folder's name if .out is not given
    bool replaces_run;             // true: the first save replaces another run
    // where the files are; until a replacement, a folder beside the final one
    char dir[CT_RUN_PATH];
    char metrics_path[CT_RUN_PATH], plot_path[CT_RUN_PATH];
} ct_lm_run;

// False before the first evaluation, and after the best weights were lost until others are kept.
static inline bool ct__lm_run_has_best(const ct_lm_run *r) {
    return r->keeps_best && r->best.evaluations && r->best.val_loss < INFINITY;
}

static inline bool ct__lm_run_should_stop(const ct_lm_run *r) {
    return r->o.should_stop && r->o.should_stop(r->o.user);
}

// ------------------------------------------------------------------------------------ lm_config.c

// Sets the error, which begins with `command`; returns false.
__attribute__((format(printf, 3, 4))) bool ct__lm_config_refuse(ct_err *err, const char *command,
                                                                const char *format, ...);
// Checks the options and makes a run. `command` is the beginning of error messages: "train" or "plan".
ct_lm_run *ct__lm_config_new(const ct_lm_train_options *options, const char *command, ct_ctx *ctx);
// Makes an empty run. Returns NULL with the error set if out of memory.
ct_lm_run *ct__lm_config_alloc(const ct_lm_train_options *options, const char *command,
                               ct_err *err);
// Fills in defaults that depend on the size of the model.
void ct__lm_config_fill_lr(ct_lm_train_options *o);
ct_lm_sizes ct__lm_config_sizes(const ct_lm_run *r, const ct_lm_train_options *o);
// A ct_lm_count_fn; user: the run.
int64_t ct__lm_config_count_parameters(const ct_lm_train_options *o, void *user);
// Finds the model that the run starts from, if it does, and takes its sizes.
bool ct__lm_config_inspect_base(ct_lm_run *r);
// Reads the text, makes the tokenizer and splits the tokens.
bool ct__lm_config_read_text(ct_lm_run *r);

// ------------------------------------------------------------------------------------- lm_state.c

bool ct__lm_state_path(const ct_lm_run *r, const char *dir, const char *name,
                       char path[CT_RUN_PATH]);
// Checks whether a new run may write to the folder; writes nothing.
bool ct__lm_state_could_begin(const ct_lm_run *r);
bool ct__lm_state_make_folder(ct_lm_run *r);   // of a new run
bool ct__lm_state_reopen_folder(ct_lm_run *r); // of a resumed one
// Saves the tokenizer and the tokens beside the model from the beginning. Those of bytes or characters are
// saved with the first checkpoint, so that a run that fails before it leaves nothing that would be lost.
bool ct__lm_state_save_tokenizer(ct_lm_run *r);
// Makes the variables that a resumed run needs besides the optimizer's state, in the same file.
bool ct__lm_state_make(ct_lm_run *r);
bool ct__lm_state_load(ct_lm_run *r); // loads the checkpoint's state over the initial one
// Adds a hint after a failure of the disk or of the device.
void ct__lm_state_hint(ct_lm_run *r);
// Callbacks of the fit loop; user: the run.
bool ct__lm_state_save(int64_t steps_done, void *user);
// Keeps the best weights of runs with patience, since the last weights are those of evaluations that were
// worse. The fit loop reports errors. An evaluation whose weights could not be kept is not counted, so that
// a resumed run repeats it.
ct_fit_action ct__lm_state_keep_best(const ct_fit_state *point, void *user);
// Prunes the folder to the checkpoint's state, after everything that can be refused was checked.
ct_fit_action ct__lm_state_on_resume(const ct_fit_state *point, void *user);

// ------------------------------------------------------------------------------------ lm_report.c

void ct__lm_report(const ct_lm_run *r, ct_lm_event event);
void ct__lm_report_model(ct_lm_run *r, const ct_lm_size *size);
// Reports the memory that was used beside what was planned. If the process used more earlier, for something
// else, its peak is meaningless and nothing is reported.
void ct__lm_report_memory(const ct_lm_run *r, const ct_lm_cost *planned, uint64_t peak_before);
// Reports why the run ended early, and the folder of the best weights.
void ct__lm_report_early_stop(const ct_lm_run *r);
// Reports the held-out loss, of the best weights if they are kept, in nats per byte whatever the tokens
// are.
bool ct__lm_report_done(const ct_lm_run *r);
bool ct__lm_report_sample(ct_lm_run *r);    // generates one; false: the error is set
bool ct__lm_report_should_stop(void *user); // a ct_stop_fn; user: the run

#endif
