// The training loop: steps, evaluations, metrics and saves of a model that is trained with an
// optimizer.
#ifndef COTAN_TRAIN_H
#define COTAN_TRAIN_H

#include "cotan/optim.h"

#ifdef __cplusplus
extern "C" {
#endif

// Polled between units of work; returning true stops the work and saves it. The library installs no
// signal handlers: one of the program may set a flag that this function reads.
typedef bool (*ct_stop_fn)(void *user);

// The lowest validation loss so far, whatever `min_delta` is; for a resumed run, of the whole run.
typedef struct ct_fit_best {
    double val_loss;
    int64_t steps;               // number of steps of the weights with that loss
    int64_t stale_evaluations;   // evaluations since reference_loss was set
    int64_t evaluations;         // total number; 0: the other members are not set
    int64_t last_evaluated_step; // number of steps of the weights that were evaluated last
    // Reference loss of patience: the latest loss that was lower than the previous reference by
    // more than min_delta.
    double reference_loss;
} ct_fit_best;

// Why a training loop ended.
typedef enum {
    CT_FIT_RUNNING,     // it has not ended
    CT_FIT_DONE,        // all steps are done
    CT_FIT_PATIENCE,    // the validation loss stopped improving (early stopping)
    CT_FIT_STOPPED,     // a callback requested it
    CT_FIT_INTERRUPTED, // `should_stop` requested it
    CT_FIT_FAILED       // see the context's error
} ct_fit_end_reason;

// The state after a step or an evaluation.
typedef struct ct_fit_state {
    int64_t step, steps; // step: the current step, or the last one; from 0
    // Number of steps that the weights have been trained now. A step whose loss was not
    // finite counts, too: its update is made, then the loop ends with an error and saves nothing. With loss
    // scaling the update of such a step is left out instead, and the loop continues.
    int64_t done;
    // Of the last step, before its update; with accumulation, the mean of its micro-batches; NaN:
    // no step since the loop began.
    double loss;
    double val_loss; // latest; NaN: none since the loop began
    bool evaluated;  // val_loss is of this step
    bool improved;   // and it is the lowest so far
    ct_fit_best best;
    ct_fit_end_reason end_reason;
    double lr, grad_norm;    // grad_norm: before clipping
    double loss_scale;       // of the next step; 0: no loss scaling
    double ms, tokens_per_s; // of this step alone
    uint64_t plans_compiled; // since the previous step: by evaluation, step and callbacks
    uint64_t memory;         // bytes of the process
    double seconds_left;     // including evaluations
} ct_fit_state;

// Callbacks of a training loop, which are called between its plans; each function may be NULL. A
// callback may read metrics and variables, record and run anything, or set another schedule
// (ct_optim_set_schedule). An error that it leaves in the context ends the loop after a save; so
// does an error of the metrics, event or plot files.
typedef enum { CT_FIT_CONTINUE, CT_FIT_STOP } ct_fit_action; // STOP: after the current step
typedef struct ct_fit_callback {
    // Called once, before the first step and before old lines are cut from the metrics. All files
    // are open, and nothing in them prevents the run. Data that would be lost later can be moved
    // now. An error ends the loop at once.
    ct_fit_action (*on_begin)(const ct_fit_state *state, void *user);
    // Called after each evaluation, with the weights that were evaluated.
    ct_fit_action (*on_evaluate)(const ct_fit_state *state, void *user);
    // Called after each step, with the updated weights.
    ct_fit_action (*on_step)(const ct_fit_state *state, void *user);
    // Called after each save.
    ct_fit_action (*on_save)(const ct_fit_state *state, void *user);
    // Called once, when the loop has ended or failed.
    void (*on_end)(const ct_fit_state *state, void *user);
    void *user;
} ct_fit_callback;

typedef struct ct_fit_options {
    int64_t steps;           // at least 1
    int64_t first_step;      // steps done before, for a resumed run; default 0
    int64_t accumulate;      // micro-batches per step: see ct_optim_accumulate; default 1
    int64_t eval_every;      // 0: the first step and the last
    int64_t save_every;      // 0: at the end
    int64_t tokens_per_step; // for tokens_per_s
    ct_optim *optim;
    // Records the loss of a micro-batch, a scalar. Micro-batches are counted from 0: those of step
    // s begin at s * accumulate. The loop records the update and runs both as one plan.
    ct_tensor (*loss)(int64_t batch, void *user);
    // Computes the loss on held-out data; NULL: none. Returns false, with the context's error, if
    // it failed. It may call `should_stop` and then return early.
    bool (*evaluate)(double *val_loss, void *user);
    // Early stopping: the loop ends successfully after this number of evaluations in a row without
    // a loss that is below best.reference_loss by more than min_delta; 0: never. The current step
    // is completed then, and all is saved.
    int64_t patience;
    double min_delta;                             // 0 or more
    ct_fit_best best;                             // for a resumed run: that of its latest state
    bool (*save)(int64_t steps_done, void *user); // NULL: nothing is saved
    ct_stop_fn should_stop;                       // NULL: never
    void *user;
    const ct_fit_callback *callbacks; // (n_callbacks) called in this order
    size_t n_callbacks;
    const char *metrics_path; // a file with one JSON object per line; NULL: none
    // A directory for a TensorBoard event file, created if it does not exist; NULL: none.
    const char *tensorboard_dir;
    const char *plot_path; // an SVG plot of the losses, written at every save; NULL: none
    const char *title;     // title of the plot
} ct_fit_options;

// Runs the steps from first_step on; what metrics and plot contain for earlier steps is kept. In
// the line of an evaluation val_loss is of the parameters before the update of the step; in the
// line of the very last step it is of those after it: the ones that are saved. The line at which
// patience or a callback ended the loop has "ended", "patience" or "callback", until a later loop
// continues after it. Returns true if all steps are done, or if patience or CT_FIT_STOP of a callback ended it.
// False: see ct_error_text. The code is CT_E_INTERRUPTED if `should_stop` requested it; then all is
// saved except the micro-batches of an incomplete step. After ct_cancel, which does not wait for
// the end of the step, the code is the same and nothing is saved. If the evaluation after all steps
// is missing, a loop that begins there (first_step = steps) makes it.
CT_API CT_MUST_USE bool ct_fit_at(const ct_fit_options *options, ct_loc here);
#define ct_fit(options) ct_fit_at((options), CT_HERE)

// --------------------------------------------------------------------------------------- diagnosis

typedef enum { CT_HEALTH_GOOD, CT_HEALTH_POOR, CT_HEALTH_BAD } ct_health; // poor: works, but slowly
// Something that the library needs or uses on a machine. The strings are valid during the call.
typedef struct ct_finding {
    const char *name; // "compiler"
    ct_health health;
    const char *found; // what was found, or why it is missing
    const char *hint;  // hint how to fix it; "": none
} ct_finding;
typedef void (*ct_finding_fn)(const ct_finding *finding, void *user);

// Checks processor, cores, memory, environment variables, compiler, cache and libraries, and runs a
// small step on the cpu and the reference device. Both arguments may be NULL. Returns true if
// nothing is bad. It is what `cotan doctor` prints.
CT_API bool ct_diagnose(ct_finding_fn each, void *user);

#ifdef __cplusplus
}
#endif

#endif
