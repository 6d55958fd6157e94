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

// What is known behind a step.
typedef struct ct_fit_point {
    int64_t step, steps;
    double loss;             // before the step's update
    double val_loss;         // newest; NaN: none yet
    bool evaluated;          // val_loss is this step's
    double lr, grad_norm;    // norm of the gradients before clipping
    double ms, tokens_per_s; // of this step alone
    uint64_t plans_compiled; // since the step before: by evaluation, step and callbacks
    uint64_t memory;         // bytes of the process
    double seconds_left;     // evaluations included
} ct_fit_point;

typedef struct ct_fit_options {
    int64_t steps;           // at least 1
    int64_t first_step;      // steps done before, of a run that is resumed; default 0
    int64_t eval_every;      // 0: the first step and the last
    int64_t save_every;      // 0: when done
    int64_t tokens_per_step; // for tokens_per_s
    ct_optim *optim;
    // Records the loss of a step, a scalar. The loop records the update and lets both run as one
    // plan.
    ct_tensor (*loss)(int64_t step, void *user);
    // The loss on held-out data; NULL: none. False, with the context's error: it failed. It may ask
    // whether to stop, and then leave at once.
    bool (*evaluate)(double *val_loss, void *user);
    bool (*save)(int64_t steps_done, void *user);          // NULL: nothing is saved
    bool (*report)(const ct_fit_point *point, void *user); // NULL: nobody is told
    ct_stop_fn stop;                                       // NULL: never
    void *user;
    const char *metrics; // a file of one JSON object a line; NULL: none
    const char *events;  // a folder that gets a file of TensorBoard's; NULL: none
    const char *plot;    // an SVG of the losses, written whenever the model is saved; NULL: none
    const char *title;   // of the plot
} ct_fit_options;

// Runs the steps from first_step on; what metrics and plot hold of those before stays. On an
// evaluation's line val_loss is of the parameters before the step's update, on the last line of
// those behind it: the ones saved. False: see ct_error_text; the code is CT_E_INTERRUPTED where
// `stop` asked for it, and all is saved then; after ct_cancel, which is for those who cannot wait
// for the step's end, it is the same code and nothing is saved.
CT_API CT_MUST_USE bool ct_fit(const ct_fit_options *options);

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

// Looks at processor, cores, memory, compiler, cache and libraries, and runs a small step on the
// cpu and the reference device; each may be NULL. True: nothing was bad. What `cotan doctor`
// prints.
CT_API bool ct_diagnose(ct_finding_fn each, void *user);

#ifdef __cplusplus
}
#endif

#endif
