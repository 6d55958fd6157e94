// The fit loop: steps, evaluations, metrics and saves of a model that is trained with an optimizer.
#ifndef COTAN_TRAIN_H
#define COTAN_TRAIN_H

#include "cotan/optim.h"

#ifdef __cplusplus
extern "C" {
#endif

// Asked between pieces of work; true: stop, and save what there is. Nothing here installs signal
// handlers: a program's own may set a flag that this function reads.
typedef bool (*ct_stop_fn)(void *user);

// The lowest validation loss so far, whatever `min_delta` is; in a run that is resumed, that of the
// whole run.
typedef struct ct_fit_best {
    double val_loss;
    int64_t steps;       // done by the weights that had it
    int64_t stale;       // evaluations since `counted`
    int64_t evaluations; // in all; 0: the other members say nothing
    int64_t newest;      // steps done by the weights that were evaluated last
    double counted; // what patience counts from: the newest loss that was below the one counted
                    // before by more than min_delta
} ct_fit_best;

// Why a fit ended.
typedef enum {
    CT_FIT_RUNNING,     // it has not
    CT_FIT_DONE,        // all steps are done
    CT_FIT_PATIENCE,    // the validation loss did not improve any more
    CT_FIT_STOPPED,     // a callback asked for it
    CT_FIT_INTERRUPTED, // `stop` asked for it
    CT_FIT_FAILED       // the context's error says why
} ct_fit_end;

// What is known behind a step, or an evaluation.
typedef struct ct_fit_point {
    int64_t step, steps; // step: at hand, or done last; from 0
    int64_t done;        // steps that the weights have behind them, as they are now: with the one
                         // whose loss was no finite number, which ends the fit behind its update,
                         // but where the optimizer scales the loss: it leaves such a step out
    double loss;     // of the step done last, before its update; with parts, the mean of theirs;
                     // NaN: none was done yet since the fit began
    double val_loss; // newest; NaN: none yet since the fit began
    bool evaluated;  // val_loss is this step's
    bool improved;   // and the lowest so far
    ct_fit_best best;
    ct_fit_end end;
    double lr, grad_norm;    // norm of the gradients before clipping
    double loss_scale;       // of the next step; 0: the optimizer scales no loss
    double ms, tokens_per_s; // of this step alone
    uint64_t plans_compiled; // since the step before: by evaluation, step and callbacks
    uint64_t memory;         // bytes of the process
    double seconds_left;     // evaluations included
} ct_fit_point;

// Who is told of a fit as it goes, between its plans; each function may be NULL. It may read
// metrics and variables, record and run what it likes, or give the optimizer another schedule
// (ct_optim_set_schedule). An error that it leaves in the context ends the fit, behind a save; so
// does one of the files that tell of the steps.
typedef enum { CT_FIT_GO_ON, CT_FIT_STOP } ct_fit_answer; // STOP: when the step at hand is done
typedef struct ct_fit_callback {
    // Once, before the first step and before anything is cut off the metrics; all files are open,
    // and nothing in them stands against going on. What would be lost otherwise may go now. An
    // error ends the fit at once.
    ct_fit_answer (*on_begin)(const ct_fit_point *point, void *user);
    // Behind each evaluation, with the weights that were evaluated.
    ct_fit_answer (*on_evaluate)(const ct_fit_point *point, void *user);
    // Behind each step, with the updated weights.
    ct_fit_answer (*on_step)(const ct_fit_point *point, void *user);
    // When all is saved.
    ct_fit_answer (*on_save)(const ct_fit_point *point, void *user);
    // Once, when all is done or has failed.
    void (*on_end)(const ct_fit_point *point, void *user);
    void *user;
} ct_fit_callback;

typedef struct ct_fit_options {
    int64_t steps;           // at least 1
    int64_t first_step;      // steps done before, of a run that is resumed; default 0
    int64_t accumulate;      // batches a step: see ct_optim_accumulate; default 1
    int64_t eval_every;      // 0: the first step and the last
    int64_t save_every;      // 0: when done
    int64_t tokens_per_step; // for tokens_per_s
    ct_optim *optim;
    // Records the loss of a batch, a scalar. Batches are counted from 0: step s has those from
    // s * accumulate on. The loop records the update and lets both run as one plan.
    ct_tensor (*loss)(int64_t batch, void *user);
    // The loss on held-out data; NULL: none. False, with the context's error: it failed. It may ask
    // whether to stop, and then leave at once.
    bool (*evaluate)(double *val_loss, void *user);
    // Early stopping: the fit ends well when so many evaluations in a row gave no loss below
    // best.counted by more than min_delta; 0: never. The step at hand is done then, and all saved.
    int64_t patience;
    double min_delta;                             // 0 or more
    ct_fit_best best;                             // of a run that is resumed: its newest point's
    bool (*save)(int64_t steps_done, void *user); // NULL: nothing is saved
    ct_stop_fn stop;                              // NULL: never
    void *user;
    const ct_fit_callback *callbacks; // (n_callbacks), told in this order
    size_t n_callbacks;
    const char *metrics; // a file of one JSON object a line; NULL: none
    const char *events;  // a folder, made where it is missing, that gets a file of TensorBoard's;
                         // NULL: none
    const char *plot;    // an SVG of the losses, written whenever the model is saved; NULL: none
    const char *title;   // of the plot
} ct_fit_options;

// Runs the steps from first_step on; what metrics and plot hold of those before stays. On an
// evaluation's line val_loss is of the parameters before the step's update, on that of the last of
// all steps of those behind it: the ones saved. The line on which patience or a callback ended the
// fit has "ended", "patience" or "callback", until a fit goes on behind it. True: all steps are
// done, or that was so. False: see ct_error_text; the code is CT_E_INTERRUPTED where `stop` asked
// for it, and all is saved then, but for the parts of a step that was not done; after ct_cancel,
// which is for those who cannot wait for the step's end, it is the same code and nothing is saved.
// Where the evaluation behind all steps is missing, a fit from there (first_step = steps) makes it.
CT_API CT_MUST_USE bool ct_fit_at(const ct_fit_options *options, ct_loc here);
#define ct_fit(options) ct_fit_at((options), CT_HERE)

// ------------------------------------------------------------------------------------- the machine

typedef enum { CT_HEALTH_GOOD, CT_HEALTH_POOR, CT_HEALTH_BAD } ct_health; // poor: works, but slowly
// Something that the library needs or uses of a machine. The texts live as long as the call.
typedef struct ct_finding {
    const char *what; // "compiler"
    ct_health health;
    const char *found; // what is there, or why it is not
    const char *mend;  // what to do about it; "": nothing
} ct_finding;
typedef void (*ct_finding_fn)(const ct_finding *finding, void *user);

// Looks at processor, cores, memory, what the environment asks for, compiler, cache and libraries,
// and runs a small step on the cpu and the reference device; each may be NULL. True: nothing was
// bad. What `cotan doctor` prints.
CT_API bool ct_diagnose(ct_finding_fn each, void *user);

#ifdef __cplusplus
}
#endif

#endif
