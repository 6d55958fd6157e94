// Stages: what the built-in transforms do to one parameter. A chain of stages only is recorded as one
// `update` node per parameter, whose body runs them in order.
#ifndef COTAN_OPTIM_STAGE_H
#define COTAN_OPTIM_STAGE_H

#include "cotan/optim.h"
#include "ops/rules.h"

enum { CT_STAGES = 7, CT_STAGE_NUMBERS = 7 }; // number of stages; maximum of `n_numbers`

// State of one parameter's step: the gradient becomes, stage by stage, the update added to the parameter.
typedef struct ct_step_context {
    ct_tensor param, update; // of the same shape; at least f32
    ct_tensor *state;        // (n_states) before the step; replaced by the new ones
    const ct_tensor *number; // (n_numbers)
    ct_loc here;
} ct_step_context;

typedef struct ct_stage {
    void (*apply)(const ct_transform *self, ct_update *update); // of the transforms of this stage
    int n_states, n_numbers;
    // The numbers of a step: operands, recorded once and shared by all parameters.
    void (*numbers)(const ct_transform *self, const ct_update *update, ct_tensor *number);
    ct_tensor (*apply_one)(const ct_step_context *context); // returns the update after the stage
    const char *names[CT_STAGE_NUMBERS];                    // of constant numbers, in compiled C
} ct_stage;
extern const ct_stage ct__stages[CT_STAGES];
int ct__stage_of(const ct_transform *transform); // its index in the table; -1: a user's transform

// A step on f16 and bf16 is computed in f32.
ct_tensor ct__widened(ct_tensor t, ct_loc here);

// Operands: the parameter, its gradient, then each stage's states and numbers. Outputs: the new parameter,
// then the new states. `stages` are indices in the table.
#define UPDATE_ATTRS(F, op) F(op, ints, stages)
CT_ATTRS_SHARED(update, UPDATE_ATTRS);

// The variables that accumulate the gradients of a step's micro-batches. If they are missing, they are made
// by a plan that also runs other pending work. NULL: the error is in the context.
ct_params *ct__optim_make_sums(ct_optim *optim, ct_loc here);

// True with loss scaling: a step whose gradients are not finite is skipped, and its loss may be any value.
bool ct__optim_has_loss_scale(const ct_optim *optim);

#endif
