// Optimizers, as chains of gradient transforms over the variables of a parameter set, and learning
// rate schedules.
#ifndef COTAN_OPTIM_H
#define COTAN_OPTIM_H

#include "cotan/cotan.h"

#ifdef __cplusplus
extern "C" {
#endif

// --------------------------------------------------------------------------------------- schedules

// The learning rate of a step, counted from 0. It rises over `warmup` steps, to lr * (s + 1) /
// (warmup + 1) at step s, and then changes to min_lr, which it has from step `steps` on. Errors
// are: a negative warmup; for linear and cosine, steps that are not more than warmup, and a
// negative min_lr; and for all but ct_chain, a rate that is not positive.
typedef enum { CT_LR_CONSTANT, CT_LR_LINEAR, CT_LR_COSINE } ct_lr_shape;
typedef struct ct_schedule {
    ct_lr_shape shape; // default: constant after the warmup
    double lr, min_lr; // min_lr and steps: for linear and cosine; used as f32
    int64_t warmup, steps;
    double (*custom)(int64_t step, void *user); // instead of all above, if not NULL
    void *user;
} ct_schedule;
CT_API double ct_schedule_lr(const ct_schedule *schedule, int64_t step); // NaN: schedule is NULL

// -------------------------------------------------------------------------------------- transforms

typedef struct ct_optim ct_optim;
// Selects parameters, by name and variable.
typedef bool (*ct_mask)(const char *name, ct_tensor param, void *user);
CT_API bool ct_mask_matrices(const char *name, ct_tensor param, void *user); // at least two axes
CT_API bool ct_mask_all(const char *name, ct_tensor param, void *user);

// The state of a step for a transform, which replaces the updates. They begin as the gradients and
// are added to the parameters at the end of the chain. Transforms are recorded like any op. A chain
// that consists only of the predefined transforms below is recorded as one composite per parameter,
// with the same bits.
typedef struct ct_update {
    size_t n;
    const ct_tensor *params;       // (n) values before the step
    ct_tensor *updates;            // (n) to be replaced
    const char *const *names;      // (n)
    const ct_tensor *const *state; // [k][i]: variable of state name k for parameter i
    ct_tensor norm;                // global norm of the gradients, f32 scalar
    ct_tensor lr;                  // of this step, scalar operand
    ct_tensor step_count;          // number of this step, from 1, as f32 scalar
    ct_loc here;
} ct_update;

enum { CT_TRANSFORM_MAX_STATES = 4 };
typedef struct ct_transform {
    void (*apply)(const struct ct_transform *self, ct_update *update);
    // Names of state variables, one per parameter, zero at first: "exp_avg"; NULL ends the list.
    const char *state[CT_TRANSFORM_MAX_STATES];
    double hyperparams[4];
    bool flag;
    ct_mask mask;
    void *user;
} ct_transform;

// Scales all gradients by max_norm / (norm + 1e-6) if that is below 1, as PyTorch does.
CT_API ct_transform ct_clip_by_global_norm(double max_norm);
// m / (sqrt(v) + eps) of the bias-corrected moments; state exp_avg and exp_avg_sq.
CT_API ct_transform ct_scale_by_adam(double beta1, double beta2, double eps);
// Adds decay * parameter where the mask is true (NULL: ct_mask_matrices).
CT_API ct_transform ct_add_decayed_weights(double decay, ct_mask mask, void *user);
// Momentum as in PyTorch's SGD: b = momentum * b + g; state momentum_buffer.
CT_API ct_transform ct_trace(double momentum, bool nesterov);
CT_API ct_transform ct_scale(double factor);
// Multiplies by minus the learning rate: the last transform of a chain that descends.
CT_API ct_transform ct_scale_by_learning_rate(void);

// -------------------------------------------------------------------------------------- optimizers

// Makes an optimizer. NULL, with the error in the context, if it failed. `params` must outlive the
// optimizer. State is created for the variables that are in the set now.
CT_API ct_optim *ct_chain_of(ct_params *params, ct_schedule lr, const ct_transform *transforms,
                             size_t n, ct_loc here);
#define ct_chain(params, lr, ...)                                                                  \
    ct_chain_of((params), (lr), (ct_transform[]){__VA_ARGS__},                                     \
                sizeof((ct_transform[]){__VA_ARGS__}) / sizeof(ct_transform), CT_HERE)
CT_API void ct_optim_free(ct_optim *optim);

// Dynamic loss scaling for gradients in f16, which has no numbers below 6e-8 (Micikevicius et al.
// 2018, section 3.2; the rule is that of PyTorch's GradScaler). Gradients are those of the loss
// times the scale, and are divided by the scale before any use. A step whose gradient norm is not
// finite changes no parameter and no state, and multiplies the scale by `backoff`; after `interval`
// good steps in a row it is multiplied by `growth`. ct_fit ends if no scale gives finite gradients.
// All of it is part of the plan: nothing is read. State "loss_scale" (f32), "good_steps" (i32, in a
// row) and "skipped" (i32, in total); metric "loss_scale": the scale of the next step.
typedef struct ct_loss_scale {
    double initial;         // 65,536 is usual; 0 (default): no loss scaling
    double growth, backoff; // default 2 and 0.5
    int64_t interval;       // default 2,000
} ct_loss_scale;

// Options of all predefined optimizers.
typedef struct ct_optim_options {
    double lr;            // constant; or else:
    ct_schedule schedule; // used if lr is 0
    double clip;          // maximum global norm; 0: no clipping
    ct_num beta1, beta2;  // Adam, AdamW: default 0.9, 0.999
    ct_num eps;           // Adam, AdamW: default 1e-8
    ct_num weight_decay; // AdamW: default 0.01, decoupled; others: default 0, added to the gradient
    ct_mask decay_mask;  // default: ct_mask_matrices
    void *mask_user;
    double momentum; // SGD: default 0
    bool nesterov;   // SGD; needs momentum
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

// Records the gradients of the loss and the updates of parameters and state, which run with the
// plan. The metric "grad_norm" is the global norm of the gradients before clipping. The learning
// rate is computed by the schedule at ct_optim_step_count in this call and is an operand: it never
// compiles anything. The loss must depend on every parameter of the set: an unused one is the error
// CT_E_GRAD. Parameters that are not to be trained must be in another set.
CT_API void ct_optim_step_at(ct_optim *optim, ct_tensor loss, ct_loc here);
#define ct_optim_step(optim, loss) ct_optim_step_at((optim), (loss), CT_HERE)
// Gradient accumulation: a micro-batch of the next step, for batches that do not fit into memory.
// Records the gradients of the loss and adds them to accumulators of the optimizer, which are f32
// or wider and as large as the parameters. The gradient of the step is then ((g1 + g2) + ... + gn)
// / n in the order of the calls, where gn is that of the loss given to ct_optim_step; clipping and
// everything else use this gradient. Two micro-batches whose losses are means over equally many
// rows thus give the step of the mean over all rows, up to rounding. All micro-batches share one
// plan, except the very first, which creates the accumulators. A micro-batch that failed does not
// count; those before it do.
//     for (int i = 0; i < n; i++) {
//         CT_SCOPE;
//         ct_tensor loss = loss_of(batch(i));
//         if (i + 1 < n) ct_optim_accumulate(optim, loss);
//         else ct_optim_step(optim, loss);
//     }
CT_API void ct_optim_accumulate_at(ct_optim *optim, ct_tensor loss, ct_loc here);
#define ct_optim_accumulate(optim, loss) ct_optim_accumulate_at((optim), (loss), CT_HERE)
// Clears the accumulated gradients, so that the micro-batches of a step that is abandoned, for
// example after an error or ct_cancel, do not count for another step. Runs at once, with everything
// that is pending. ct_fit begins with it.
CT_API CT_MUST_USE bool ct_optim_clear_accumulated_at(ct_optim *optim, ct_loc here);
#define ct_optim_clear_accumulated(optim) ct_optim_clear_accumulated_at((optim), CT_HERE)
// Returns the learning rate of the next step.
CT_API double ct_optim_lr(const ct_optim *optim);
// Returns the operand that is the learning rate of the step recorded last, which can be named for
// ct_compile.
CT_API ct_tensor ct_optim_lr_operand(const ct_optim *optim); // CT_NONE: no step was recorded
// Sets another schedule from the next step on; its steps are counted from the optimizer's first
// step. It is not part of the state. On failure it returns false and changes nothing: see
// ct_error_text.
CT_API CT_MUST_USE bool ct_optim_set_schedule_at(ct_optim *optim, ct_schedule schedule,
                                                 ct_loc here);
#define ct_optim_set_schedule(optim, ...)                                                          \
    ct_optim_set_schedule_at((optim), ((ct_schedule){__VA_ARGS__}), CT_HERE)
// Returns the number of steps that are done or pending, including those before a load; a step whose
// plan failed or was discarded does not count.
CT_API int64_t ct_optim_step_count(const ct_optim *optim);
// The state: "step" (i32 scalar) and, for example, "exp_avg.wte.weight". Save and load it with the
// parameters. After other values were assigned to its variables, ct_optim_resume reads the step
// from them and clears accumulated gradients.
CT_API ct_params *ct_optim_state(ct_optim *optim);
CT_API CT_MUST_USE bool ct_optim_resume_at(ct_optim *optim, ct_loc here);
#define ct_optim_resume(optim) ct_optim_resume_at((optim), CT_HERE)

#ifdef __cplusplus
}
#endif

#endif
