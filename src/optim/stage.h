// Stages: what the ready-made transforms do to one parameter. A chain of stages alone is recorded
// as one `update` node a parameter, whose body runs them one after the other.
#ifndef COTAN_OPTIM_STAGE_H
#define COTAN_OPTIM_STAGE_H

#include "cotan/optim.h"
#include "ops/rules.h"

enum { CT_STAGES = 7, CT_STAGE_NUMBERS = 7 }; // how many there are; most numbers of one

// A gradient on its way to becoming what is added to its parameter.
typedef struct ct_travel {
    ct_tensor param, update; // of the same shape; in f32 at least
    ct_tensor *state;        // (n_states) before the step; replaced by those behind it
    const ct_tensor *number; // (n_numbers)
    ct_loc here;
} ct_travel;

typedef struct ct_stage {
    void (*apply)(const ct_transform *self, ct_update *update); // of the transforms of this stage
    int n_states, n_numbers;
    // The numbers of a step: operands, recorded once and shared by all parameters.
    void (*numbers)(const ct_transform *self, const ct_update *update, ct_tensor *number);
    ct_tensor (*one)(const ct_travel *travel); // the update behind the stage
    const char *names[CT_STAGE_NUMBERS];       // of numbers as they are given, in compiled C
} ct_stage;
extern const ct_stage ct__stages[CT_STAGES];
int ct__stage_of(const ct_transform *transform); // its place in the table; -1: written by a user

// The arithmetic of a step on f16 and bf16 is that of f32.
ct_tensor ct__widened(ct_tensor t, ct_loc here);

// Operands: the parameter, its gradient, then each stage's states and numbers. Outputs: the new
// parameter, then the new states. `stages` are places in the table.
#define UPDATE_ATTRS(F, op) F(op, ints, stages)
CT_ATTRS_SHARED(update, UPDATE_ATTRS);

// The variables that add up the gradients of a step's parts; where they are missing they are made,
// by a plan that runs what else is pending, too. NULL: the error stands in the context.
ct_params *ct__optim_sums(ct_optim *optim, ct_loc here);

// A step whose gradients are not finite is left out, and its loss may be anything.
bool ct__optim_scales(const ct_optim *optim);

#endif
