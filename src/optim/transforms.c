// Gradient transforms: each replaces the updates of all parameters by elementwise functions of
// them, so that what happens to one parameter can run as one kernel. Numbers are operands, recorded
// once a step and shared by all parameters.
#include <math.h>

#include "cotan/optim.h"

bool ct_mask_matrices(const char *name, ct_tensor param, void *user) {
    (void)name, (void)user;
    return ct_rank(param) >= 2;
}

bool ct_mask_all(const char *name, ct_tensor param, void *user) {
    (void)name, (void)param, (void)user;
    return true;
}

static void scale_all(ct_update *u, ct_tensor factor) {
    for (size_t i = 0; i < u->n; i++) u->updates[i] = ct_mul_at(u->updates[i], factor, u->here);
}

static void clip_apply(const ct_transform *self, ct_update *u) {
    ct_loc here = u->here;
    ct_tensor room =
        ct_div_at(ct_f(self->number[0]), ct_add_at(u->norm, ct_f(1e-6), here), here); // ()
    scale_all(u, ct_minimum_at(room, ct_f(1), here));
}
ct_transform ct_clip_by_global_norm(double max_norm) {
    return (ct_transform){.apply = clip_apply, .number = {max_norm}};
}

// 1 - beta^count. expm1 keeps the digits that the subtraction would lose while beta^count is near
// 1.
static ct_tensor correction(const ct_update *u, double beta) {
    ct_tensor exponent = ct_mul_at(u->count, ct_f(log(beta)), u->here);
    return ct_neg_at(ct_expm1_at(exponent, u->here), u->here);
}

static void adam_apply(const ct_transform *self, ct_update *u) {
    ct_loc here = u->here;
    double beta1 = self->number[0], beta2 = self->number[1];
    ct_tensor b1 = ct_f(beta1), c1 = ct_f(1 - beta1), b2 = ct_f(beta2), c2 = ct_f(1 - beta2);
    ct_tensor eps = ct_f(self->number[2]), one = ct_f(1);
    ct_tensor scale1 = ct_div_at(one, correction(u, beta1), here);                   // ()
    ct_tensor scale2 = ct_div_at(one, ct_sqrt_at(correction(u, beta2), here), here); // ()
    for (size_t i = 0; i < u->n; i++) {
        ct_tensor g = u->updates[i], m = u->state[0][i], v = u->state[1][i];
        m = ct_add_at(ct_mul_at(b1, m, here), ct_mul_at(c1, g, here), here);
        v = ct_add_at(ct_mul_at(b2, v, here), ct_mul_at(ct_mul_at(c2, g, here), g, here), here);
        ct_assign_at(u->state[0][i], m, here);
        ct_assign_at(u->state[1][i], v, here);
        ct_tensor size = ct_add_at(ct_mul_at(ct_sqrt_at(v, here), scale2, here), eps, here);
        u->updates[i] = ct_div_at(ct_mul_at(m, scale1, here), size, here);
    }
}
ct_transform ct_scale_by_adam(double beta1, double beta2, double eps) {
    return (ct_transform){
        .apply = adam_apply, .state = {"exp_avg", "exp_avg_sq"}, .number = {beta1, beta2, eps}};
}

static void decay_apply(const ct_transform *self, ct_update *u) {
    ct_tensor decay = ct_f(self->number[0]);
    for (size_t i = 0; i < u->n; i++)
        if (self->mask(u->names[i], u->params[i], self->user))
            u->updates[i] =
                ct_add_at(u->updates[i], ct_mul_at(decay, u->params[i], u->here), u->here);
}
ct_transform ct_add_decayed_weights(double decay, ct_mask mask, void *user) {
    return (ct_transform){.apply = decay_apply,
                          .number = {decay},
                          .mask = mask ? mask : ct_mask_matrices,
                          .user = user};
}

static void trace_apply(const ct_transform *self, ct_update *u) {
    ct_loc here = u->here;
    ct_tensor momentum = ct_f(self->number[0]);
    for (size_t i = 0; i < u->n; i++) {
        ct_tensor g = u->updates[i], b = u->state[0][i];
        b = ct_add_at(ct_mul_at(momentum, b, here), g, here);
        ct_assign_at(u->state[0][i], b, here);
        u->updates[i] = self->flag ? ct_add_at(g, ct_mul_at(momentum, b, here), here) : b;
    }
}
ct_transform ct_trace(double momentum, bool nesterov) {
    return (ct_transform){
        .apply = trace_apply, .state = {"momentum_buffer"}, .number = {momentum}, .flag = nesterov};
}

static void scale_apply(const ct_transform *self, ct_update *u) {
    scale_all(u, ct_f(self->number[0]));
}
ct_transform ct_scale(double factor) {
    return (ct_transform){.apply = scale_apply, .number = {factor}};
}

static void rate_apply(const ct_transform *self, ct_update *u) {
    (void)self;
    scale_all(u, ct_neg_at(u->lr, u->here));
}
ct_transform ct_scale_by_learning_rate(void) { return (ct_transform){.apply = rate_apply}; }
