// Optimizers: chains of gradient transforms over the variables of a parameter set, and schedules.
#ifndef COTAN_OPTIM_H
#define COTAN_OPTIM_H

#include "cotan/cotan.h"

#ifdef __cplusplus
extern "C" {
#endif

// --------------------------------------------------------------------------------------- schedules

// The learning rate by step, counted from 0. It rises over `warmup` steps, at step s to
// lr * (s + 1) / (warmup + 1), and then goes to min_lr, which it has from step `steps` on.
// Refused are a warm-up below 0, of linear and cosine steps that are no more than the warm-up and a
// min_lr below 0, and by all but ct_chain a rate that is not above 0.
typedef enum { CT_LR_CONSTANT, CT_LR_LINEAR, CT_LR_COSINE } ct_lr_shape;
typedef struct ct_schedule {
    ct_lr_shape shape; // default: constant behind the warm-up
    double lr, min_lr; // min_lr and steps: of linear and cosine; applied as f32
    int64_t warmup, steps;
    double (*custom)(int64_t step, void *user); // instead of all above, where not NULL
    void *user;
} ct_schedule;
CT_API double ct_schedule_at(const ct_schedule *schedule, int64_t step); // NaN: no schedule

// -------------------------------------------------------------------------------------- transforms

typedef struct ct_optim ct_optim;
// Which parameters: of each, its name and variable.
typedef bool (*ct_mask)(const char *name, ct_tensor param, void *user);
CT_API bool ct_mask_matrices(const char *name, ct_tensor param, void *user); // two axes or more
CT_API bool ct_mask_all(const char *name, ct_tensor param, void *user);

// What a transform sees of a step: it replaces the updates, which begin as the gradients and are
// added to the parameters at the end of the chain. Recorded like any op. A chain of the ready-made
// ones below alone is recorded as one composition a parameter, with the same bits.
typedef struct ct_update {
    size_t n;
    const ct_tensor *params;       // (n) as they were before the step
    ct_tensor *updates;            // (n) to be replaced
    const char *const *names;      // (n)
    const ct_tensor *const *state; // [k][i]: variable of state name k for parameter i
    ct_tensor norm;                // global norm of the gradients, f32 scalar
    ct_tensor lr;                  // of this step, scalar operand
    ct_tensor count;               // this step's number, from 1, as f32 scalar
    ct_loc here;
} ct_update;

enum { CT_TRANSFORM_STATES = 4 };
typedef struct ct_transform {
    void (*apply)(const struct ct_transform *self, ct_update *update);
    const char *state[CT_TRANSFORM_STATES]; // names of state variables, zero at first, one of each
                                            // a parameter: "exp_avg"; NULL ends the list
    double number[4];
    bool flag;
    ct_mask mask;
    void *user;
} ct_transform;

// Scales all gradients by max_norm / (norm + 1e-6) where that is below 1, as PyTorch does.
CT_API ct_transform ct_clip_by_global_norm(double max_norm);
// m / (sqrt(v) + eps) of the bias-corrected moments; state exp_avg and exp_avg_sq.
CT_API ct_transform ct_scale_by_adam(double beta1, double beta2, double eps);
// Adds decay * parameter where the mask holds (NULL: ct_mask_matrices).
CT_API ct_transform ct_add_decayed_weights(double decay, ct_mask mask, void *user);
// Momentum as PyTorch's SGD has it: b = momentum * b + g; state momentum_buffer.
CT_API ct_transform ct_trace(double momentum, bool nesterov);
CT_API ct_transform ct_scale(double factor);
// Times minus the learning rate: the last of a chain that descends.
CT_API ct_transform ct_scale_by_learning_rate(void);

// -------------------------------------------------------------------------------------- optimizers

// NULL, with the error in the context, when it failed. `params` must outlive the optimizer. State
// is made for the variables that the set holds now.
CT_API ct_optim *ct_chain_of(ct_params *params, ct_schedule lr, const ct_transform *transforms,
                             size_t n, ct_loc here);
#define ct_chain(params, lr, ...)                                                                  \
    ct_chain_of((params), (lr), (ct_transform[]){__VA_ARGS__},                                     \
                sizeof((ct_transform[]){__VA_ARGS__}) / sizeof(ct_transform), CT_HERE)
CT_API void ct_optim_free(ct_optim *optim);

// Dynamic scaling of the loss, for gradients in f16, which has no numbers below 6e-8 (Micikevicius et
// al. 2018, section 3.2; the rule is that of PyTorch's GradScaler). Gradients are those of the loss
// times the scale, divided by it again before anything looks at them. A step whose gradients' norm
// is not finite changes no parameter and no state, and the scale is multiplied by `backoff`; after
// `interval` good steps in a row it is multiplied by `growth`. ct_fit ends where no scale gives finite gradients. All of it is part of the plan: nothing is read.
// State "loss_scale" (f32), "good_steps" (i32, in a row) and "skipped" (i32, in all); metric
// "loss_scale": the next step's.
typedef struct ct_loss_scale {
    double initial;         // 65,536 is usual; 0, the default: the loss is not scaled
    double growth, backoff; // default 2 and 0.5
    int64_t interval;       // default 2,000
} ct_loss_scale;

// Options of all ready-made optimizers.
typedef struct ct_optim_options {
    double lr;            // constant; or else:
    ct_schedule schedule; // used where lr is 0
    double clip;          // global norm; 0: none
    ct_num beta1, beta2;  // Adam, AdamW: default 0.9, 0.999
    ct_num eps;           // Adam, AdamW: default 1e-8
    ct_num weight_decay; // AdamW: default 0.01, decoupled; others: default 0, added to the gradient
    ct_mask decay_mask;  // default: ct_mask_matrices
    void *mask_user;
    double momentum; // SGD: default 0
    bool nesterov;   // SGD; needs a momentum
    ct_loss_scale loss_scale;
    ct_loc here;
} ct_optim_options;
CT_API ct_optim *ct_sgd_with(ct_params *params, ct_optim_options options);
CT_API ct_optim *ct_adam_with(ct_params *params, ct_optim_options options);
CT_API ct_optim *ct_adamw_with(ct_params *params, ct_optim_options options);
#define ct_sgd(...) CT__OPTIM(ct_sgd_with, __VA_ARGS__, .here = CT_HERE)
#define ct_adam(...) CT__OPTIM(ct_adam_with, __VA_ARGS__, .here = CT_HERE)
#define ct_adamw(...) CT__OPTIM(ct_adamw_with, __VA_ARGS__, .here = CT_HERE)
#define CT__OPTIM(make, params, ...) make((params), (ct_optim_options){__VA_ARGS__})

// Records gradients of the loss and the updates of parameters and state; they run with the plan.
// The metric "grad_norm" is the global norm of the gradients before clipping. The learning rate is
// computed here, by the schedule at ct_optim_count, and is an operand: it never compiles anything.
// The loss must depend on every parameter of the set: one that it does not use is an error,
// CT_E_GRAD. What is not to be trained goes into a set of its own.
CT_API void ct_optim_step_at(ct_optim *optim, ct_tensor loss, ct_loc here);
#define ct_optim_step(optim, loss) ct_optim_step_at((optim), (loss), CT_HERE)
// A part of the next step, for batches that do not fit memory at once: records the gradients of the
// loss and adds them to sums that the optimizer keeps, in f32 at least, as large as the parameters.
// The step's gradient is then ((g1 + g2) + ... + gn) / n, in the order of the calls, where gn is
// that of the loss given to ct_optim_step; clipping and all else sees this one. Two parts whose
// losses are means over equally many rows are thus the step of the mean over all rows, up to
// rounding. All parts are one plan, but for the first of all, which makes the sums; one that failed
// was none, those before it count.
//     for (int i = 0; i < n; i++) {
//         CT_SCOPE;
//         ct_tensor loss = loss_of(batch(i));
//         if (i + 1 < n) ct_optim_accumulate(optim, loss);
//         else ct_optim_step(optim, loss);
//     }
CT_API void ct_optim_accumulate_at(ct_optim *optim, ct_tensor loss, ct_loc here);
#define ct_optim_accumulate(optim, loss) ct_optim_accumulate_at((optim), (loss), CT_HERE)
// Empties the sums: the parts of a step that is not to be done, after an error or ct_cancel, say,
// are no other step's. Runs at once, with all that is pending. ct_fit begins with it.
CT_API CT_MUST_USE bool ct_optim_forget_parts_at(ct_optim *optim, ct_loc here);
#define ct_optim_forget_parts(optim) ct_optim_forget_parts_at((optim), CT_HERE)
// The learning rate of the next step.
CT_API double ct_optim_lr(const ct_optim *optim);
// The operand that is the learning rate of the step recorded last, to be named for ct_compile.
CT_API ct_tensor ct_optim_rate(const ct_optim *optim); // CT_NONE: none was
// Another schedule from the next step on; its steps are counted from the optimizer's first. It is
// not part of the state. False, and nothing changes: see ct_error_text.
CT_API CT_MUST_USE bool ct_optim_set_schedule_at(ct_optim *optim, ct_schedule schedule,
                                                 ct_loc here);
#define ct_optim_set_schedule(optim, ...)                                                          \
    ct_optim_set_schedule_at((optim), ((ct_schedule){__VA_ARGS__}), CT_HERE)
// Steps done or pending, those before a load included; one whose plan failed or was given up does
// not count.
CT_API int64_t ct_optim_count(const ct_optim *optim);
// The state: "step" (i32 scalar) and, say, "exp_avg.wte.weight". Save and load it with the rest;
// after its variables were given other values, ct_optim_resume reads the step from them; parts of a
// step that were added up before are forgotten.
CT_API ct_params *ct_optim_state(ct_optim *optim);
CT_API CT_MUST_USE bool ct_optim_resume_at(ct_optim *optim, ct_loc here);
#define ct_optim_resume(optim) ct_optim_resume_at((optim), CT_HERE)

#ifdef __cplusplus
}
#endif

#endif
