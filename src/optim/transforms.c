// Gradient transforms: each replaces the updates of all parameters by elementwise functions of them, so that
// all stages of one parameter can run as one kernel. Numbers are operands, recorded once per step and shared
// by all parameters.
#include <math.h>

#include "optim/stage.h"

bool ct_mask_matrices(const char *name, ct_tensor param, void *user) {
    (void)name, (void)user;
    return ct_rank(param) >= 2;
}

bool ct_mask_all(const char *name, ct_tensor param, void *user) {
    (void)name, (void)param, (void)user;
    return true;
}

// ------------------------------------------------------------------------------------------ stages

static ct_tensor stage_multiply_by_number(const ct_step_context *t) {
    return ct_mul_at(t->update, t->number[0], t->here);
}

static void clip_step_numbers(const ct_transform *self, const ct_update *u, ct_tensor *number) {
    ct_tensor ratio = ct_div_at(ct_f(self->hyperparams[0]), ct_add_at(u->norm, ct_f(1e-6), u->here),
                                u->here); // ()
    number[0] = ct_minimum_at(ratio, ct_f(1), u->here);
}

// 1 - beta^count. expm1 preserves the digits that the subtraction would lose while beta^count is near 1.
static ct_tensor adam_bias_correction(const ct_update *u, double beta) {
    ct_tensor exponent = ct_mul_at(u->step_count, ct_f(log(beta)), u->here);
    return ct_neg_at(ct_expm1_at(exponent, u->here), u->here);
}

static void adam_step_numbers(const ct_transform *self, const ct_update *u, ct_tensor *number) {
    double beta1 = self->hyperparams[0], beta2 = self->hyperparams[1];
    ct_tensor one = ct_f(1);
    number[0] = ct_f(beta1);
    number[1] = ct_f(1 - beta1);
    number[2] = ct_f(beta2);
    number[3] = ct_f(1 - beta2);
    number[4] = ct_f(self->hyperparams[2]); // eps
    number[5] = ct_div_at(one, adam_bias_correction(u, beta1), u->here);
    number[6] = ct_div_at(one, ct_sqrt_at(adam_bias_correction(u, beta2), u->here), u->here);
}
static ct_tensor adam_apply_one(const ct_step_context *t) {
    const ct_tensor *n = t->number;
    ct_tensor g = t->update, m = t->state[0], v = t->state[1];
    ct_loc here = t->here;
    m = ct_add_at(ct_mul_at(n[0], m, here), ct_mul_at(n[1], g, here), here);
    v = ct_add_at(ct_mul_at(n[2], v, here), ct_mul_at(ct_mul_at(n[3], g, here), g, here), here);
    t->state[0] = m;
    t->state[1] = v;
    ct_tensor size = ct_add_at(ct_mul_at(ct_sqrt_at(v, here), n[6], here), n[4], here);
    return ct_div_at(ct_mul_at(m, n[5], here), size, here);
}

static void stage_first_number(const ct_transform *self, const ct_update *u, ct_tensor *number) {
    (void)u;
    number[0] = ct_f(self->hyperparams[0]);
}
static ct_tensor decay_apply_one(const ct_step_context *t) {
    return ct_add_at(t->update, ct_mul_at(t->number[0], t->param, t->here), t->here);
}
static ct_tensor trace_apply_one(const ct_step_context *t) {
    ct_tensor b = ct_add_at(ct_mul_at(t->number[0], t->state[0], t->here), t->update, t->here);
    return t->state[0] = b;
}
static ct_tensor nesterov_apply_one(const ct_step_context *t) {
    return ct_add_at(t->update, ct_mul_at(t->number[0], trace_apply_one(t), t->here), t->here);
}

static void lr_step_numbers(const ct_transform *self, const ct_update *u, ct_tensor *number) {
    (void)self;
    number[0] = ct_neg_at(u->lr, u->here);
}

// Applies a stage by itself, in a chain with transforms of the user.
static void stage_apply(int stage_index, const ct_transform *self, ct_update *u) {
    const ct_stage *stage = &ct__stages[stage_index];
    ct_tensor number[CT_STAGE_NUMBERS], state[CT_TRANSFORM_MAX_STATES];
    stage->numbers(self, u, number);
    for (size_t i = 0; i < u->n; i++) {
        if (self->mask && !self->mask(u->names[i], u->params[i], self->user)) continue;
        for (int k = 0; k < stage->n_states; k++) state[k] = u->state[k][i];
        ct_step_context context = {.param = ct__widened(u->params[i], u->here),
                                   .update = ct__widened(u->updates[i], u->here),
                                   .state = state,
                                   .number = number,
                                   .here = u->here};
        u->updates[i] = stage->apply_one(&context);
        for (int k = 0; k < stage->n_states; k++) ct_assign_at(u->state[k][i], state[k], u->here);
    }
}

enum { STAGE_CLIP, STAGE_ADAM, STAGE_DECAY, STAGE_TRACE, STAGE_NESTEROV, STAGE_SCALE, STAGE_LR };
#define STAGE_TRANSFORM(name, STAGE)                                                               \
    static void transform_##name(const ct_transform *self, ct_update *u) {                         \
        stage_apply(STAGE_##STAGE, self, u);                                                       \
    }
STAGE_TRANSFORM(clip, CLIP)
STAGE_TRANSFORM(adam, ADAM)
STAGE_TRANSFORM(decay, DECAY)
STAGE_TRANSFORM(trace, TRACE)
STAGE_TRANSFORM(nesterov, NESTEROV)
STAGE_TRANSFORM(scale, SCALE)
STAGE_TRANSFORM(lr, LR)

const ct_stage ct__stages[CT_STAGES] = {
    [STAGE_CLIP] = {transform_clip, 0, 1, clip_step_numbers, stage_multiply_by_number, {NULL}},
    [STAGE_ADAM] = {transform_adam,
                    2,
                    7,
                    adam_step_numbers,
                    adam_apply_one,
                    {"beta1", "one_minus_beta1", "beta2", "one_minus_beta2", "eps"}},
    [STAGE_DECAY] = {transform_decay, 0, 1, stage_first_number, decay_apply_one, {"weight_decay"}},
    [STAGE_TRACE] = {transform_trace, 1, 1, stage_first_number, trace_apply_one, {"momentum"}},
    [STAGE_NESTEROV] =
        {transform_nesterov, 1, 1, stage_first_number, nesterov_apply_one, {"momentum"}},
    [STAGE_SCALE] =
        {transform_scale, 0, 1, stage_first_number, stage_multiply_by_number, {"scale"}},
    [STAGE_LR] = {transform_lr, 0, 1, lr_step_numbers, stage_multiply_by_number, {NULL}},
};

int ct__stage_of(const ct_transform *transform) {
    for (int i = 0; i < CT_STAGES; i++)
        if (transform->apply == ct__stages[i].apply) return i;
    return -1;
}

// -------------------------------------------------------------------------------------- transforms

ct_transform ct_clip_by_global_norm(double max_norm) {
    return (ct_transform){.apply = transform_clip, .hyperparams = {max_norm}};
}
ct_transform ct_scale_by_adam(double beta1, double beta2, double eps) {
    return (ct_transform){.apply = transform_adam,
                          .state = {"exp_avg", "exp_avg_sq"},
                          .hyperparams = {beta1, beta2, eps}};
}
ct_transform ct_add_decayed_weights(double weight, ct_mask mask, void *user) {
    return (ct_transform){.apply = transform_decay,
                          .hyperparams = {weight},
                          .mask = mask ? mask : ct_mask_matrices,
                          .user = user};
}
ct_transform ct_trace(double momentum, bool with_nesterov) {
    return (ct_transform){.apply = with_nesterov ? transform_nesterov : transform_trace,
                          .state = {"momentum_buffer"},
                          .hyperparams = {momentum},
                          .flag = with_nesterov};
}
ct_transform ct_scale(double factor) {
    return (ct_transform){.apply = transform_scale, .hyperparams = {factor}};
}
ct_transform ct_scale_by_learning_rate(void) { return (ct_transform){.apply = transform_lr}; }
