// Optimizers: a chain of transforms, the variables of its state, and the step.
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/fp_env.h"
#include "base/text.h"
#include "optim/stage.h"

#define MIN_LOSS_SCALE 0x1p-120

struct ct_optim {
    ct_params *state;
    ct_schedule lr;
    ct_transform *transforms; // (n_transforms)
    size_t n_transforms;
    size_t n;             // parameters
    ct_tensor *params;    // (n)
    const char **names;   // (n) owned by the parameter set
    ct_tensor **slots;    // [transform * CT_TRANSFORM_MAX_STATES + k]: (n) state variables, or NULL
    ct_tensor *updates;   // (n) of the step being recorded
    int *stages;          // (n_transforms) index of each stage, or NULL if one is the user's
    int64_t *stage_list;  // (n_transforms) stages of the update being recorded
    ct_tensor *numbers;   // (n_transforms * CT_STAGE_NUMBERS) of the step being recorded
    ct_tensor *in;        // operands of the update being recorded
    ct_tensor lr_operand; // learning rate of the step recorded last
    ct_tensor step;       // variable, i32: number of steps
    ct_loss_scale scaling;          // .initial 0: no loss scaling
    ct_tensor scale, good, skipped; // its variables: f32, i32, i32
    ct_tensor finite;        // of the step being recorded: whether it is applied; CT_NONE: always
    ct_params *sum_params;   // sums of the gradients of a step's micro-batches; NULL: not used yet
    ct_tensor *sum;          // (n) its variables
    ct_tensor n_accumulated; // its variable, i32: number of micro-batches in the sums
    int64_t step_count;      // steps that have run
    int64_t pending;         // steps recorded that are not known to have run
    uint64_t version;        // of the variable `step` when these were recorded
};

void ct_optim_free(ct_optim *optim) {
    if (!optim) return;
    for (size_t i = 0; optim->slots && i < optim->n_transforms * CT_TRANSFORM_MAX_STATES; i++)
        ct__free(optim->slots[i]);
    ct__free(optim->slots);
    ct__free(optim->transforms);
    ct__free(optim->params);
    ct__free(optim->names);
    ct__free(optim->updates);
    ct__free(optim->stages);
    ct__free(optim->stage_list);
    ct__free(optim->numbers);
    ct__free(optim->in);
    ct__free(optim->sum);
    ct_params_free(optim->sum_params);
    ct_params_free(optim->state);
    ct__free(optim);
}

// The dtype of a parameter's state: f16 and bf16 are too narrow for sums.
static ct_dtype optim_state_dtype(ct_tensor param) {
    return ct_dtype_of(param) == CT_F64 ? CT_F64 : CT_F32;
}

static ct_ints optim_dims(ct_tensor t, int64_t dim[CT_MAX_RANK]) {
    ct_ints dims = {ct_rank(t), dim};
    for (int a = 0; a < dims.n; a++) dim[a] = ct_dim(t, a);
    return dims;
}

// Initialises a state with zeros, on the device of its parameter.
static void optim_assign_zeros(ct_tensor var, ct_tensor param, ct_loc here) {
    int64_t dim[CT_MAX_RANK];
    if (!ct_ok(var)) return;
    ct_tensor zeros = ct_zeros_at(ct_dtype_of(var), optim_dims(var, dim), here);
    const ct_var *of = ct__var_of(param);
    ct_assign_at(var, of && of->type.device ? ct__transfer(zeros, of->type.device, here) : zeros,
                 here);
}

// Makes the variable `kind`.`name` of the set, with the shape of param, without a value.
static ct_tensor optim_make_state_like(ct_params *set, const char *kind, const char *name,
                                       ct_tensor param, ct_loc here) {
    int64_t dim[CT_MAX_RANK];
    CT_TEXT full = {0};
    ct__textf(&full, "%s.%s", kind, name);
    ct_tensor var = full.failed ? CT_NONE
                                : ct_param_at(set, full.s, optim_state_dtype(param),
                                              optim_dims(param, dim), here);
    if (full.failed) ct__fail(ct__ctx(), CT_E_MEMORY, here, "optim", "out of memory for a name");
    return var;
}

static void optim_make_loss_scale(ct_optim *optim, ct_loc here) {
    optim->scale = ct_param_at(optim->state, "loss_scale", CT_F32, CT_SCALAR, here);
    optim->good = ct_param_at(optim->state, "good_steps", CT_I32, CT_SCALAR, here);
    optim->skipped = ct_param_at(optim->state, "skipped", CT_I32, CT_SCALAR, here);
    ct_assign_at(optim->scale, ct_scalar(optim->scaling.initial, CT_F32), here);
    ct_assign_at(optim->good, ct_scalar(0, CT_I32), here);
    ct_assign_at(optim->skipped, ct_scalar(0, CT_I32), here);
}

static bool optim_make_state(ct_optim *optim, ct_ctx *ctx, ct_loc here) {
    CT_SCOPE;
    optim->step = ct_param_at(optim->state, "step", CT_I32, CT_SCALAR, here);
    ct_assign_at(optim->step, ct_scalar(0, CT_I32), here);
    if (optim->scaling.initial > 0) optim_make_loss_scale(optim, here);
    for (size_t t = 0; t < optim->n_transforms; t++)
        for (int k = 0; k < CT_TRANSFORM_MAX_STATES && optim->transforms[t].state[k]; k++) {
            ct_tensor *slot = ct__calloc(optim->n, sizeof *slot);
            if (!slot) return ct__err_memory(&ctx->err, here, "optim", optim->n * sizeof *slot);
            optim->slots[t * CT_TRANSFORM_MAX_STATES + (size_t)k] = slot;
            for (size_t i = 0; i < optim->n && !ctx->err.code; i++) {
                slot[i] = optim_make_state_like(optim->state, optim->transforms[t].state[k],
                                                optim->names[i], optim->params[i], here);
                optim_assign_zeros(slot[i], optim->params[i], here);
            }
        }
    return !ctx->err.code;
}

static bool optim_check_floats(const ct_optim *optim, ct_ctx *ctx, ct_loc here) {
    for (size_t i = 0; i < optim->n; i++) {
        ct_dtype d = ct_dtype_of(optim->params[i]);
        if (ct__is_float(d)) continue;
        return ct__refuse(ctx, CT_E_DTYPE, here, "optim",
                          "variable \"%s\" is %s, it must be of floats", optim->names[i],
                          ct_dtype_name(d));
    }
    return true;
}

// With a rate of 0 nothing would be learned.
static bool optim_check_lr(ct_ctx *ctx, const ct_schedule *s, ct_loc here) {
    if (s->custom || (s->lr > 0 && isfinite(s->lr))) return true;
    return ct__refuse(ctx, CT_E_ARGUMENT, here, "optim",
                      "the learning rate is %g, it must be above 0", s->lr);
}

// A rate that falls needs steps to fall in, and a final value.
static bool optim_check_schedule(ct_ctx *ctx, const ct_schedule *s, ct_loc here) {
    bool falls = s->shape != CT_LR_CONSTANT;
    if (s->custom) return true;
    if (s->warmup < 0)
        ct__fail(ctx, CT_E_ARGUMENT, here, "optim",
                 "the schedule's warmup is %" PRId64 ", it must be 0 or more", s->warmup);
    else if (falls && s->steps <= s->warmup)
        ct__fail(ctx, CT_E_ARGUMENT, here, "optim",
                 "the schedule's steps are %" PRId64
                 ", they must be more than its warmup, %" PRId64,
                 s->steps, s->warmup);
    else if (falls && !(s->min_lr >= 0 && isfinite(s->min_lr)))
        ct__fail(ctx, CT_E_ARGUMENT, here, "optim",
                 "the schedule's min_lr is %g, it must be 0 or more and finite", s->min_lr);
    return !ctx->err.code;
}

// A chain of built-in transforms only is recorded as one node per parameter.
static bool optim_make_stages(ct_optim *optim) {
    size_t n = optim->n_transforms;
    for (size_t t = 0; t < n; t++)
        if (ct__stage_of(&optim->transforms[t]) < 0) return true;
    optim->stages = ct__malloc((n + 1) * sizeof *optim->stages);
    optim->stage_list = ct__malloc((n + 1) * sizeof *optim->stage_list);
    optim->numbers = ct__malloc((n + 1) * CT_STAGE_NUMBERS * sizeof *optim->numbers);
    optim->in =
        ct__malloc((2 + n * (CT_STAGE_NUMBERS + CT_TRANSFORM_MAX_STATES)) * sizeof *optim->in);
    if (!optim->stages || !optim->stage_list || !optim->numbers || !optim->in) return false;
    for (size_t t = 0; t < n; t++) optim->stages[t] = ct__stage_of(&optim->transforms[t]);
    return true;
}

static ct_optim *optim_make_chain(ct_params *params, ct_schedule lr, const ct_transform *transforms,
                                  size_t n, ct_loss_scale scaling, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || (n && !ct__given(ctx, transforms, here, "optim", "the list of transforms")) ||
        ctx->err.code || !optim_check_schedule(ctx, &lr, here))
        return NULL;
    size_t n_params = ct_params_count(params);
    if (!n_params) {
        ct__fail(ctx, CT_E_ARGUMENT, here, "optim", "there are no variables to optimize");
        return NULL;
    }
    ct_optim *optim = ct__calloc(1, sizeof *optim);
    if (optim) {
        *optim =
            (ct_optim){.state = ct_params_new(),
                       .lr = lr,
                       .scaling = scaling,
                       .transforms = ct__calloc(n + !n, sizeof *transforms),
                       .n_transforms = n,
                       .n = n_params,
                       .params = ct__calloc(n_params, sizeof(ct_tensor)),
                       .names = ct__calloc(n_params, sizeof(char *)),
                       .updates = ct__calloc(n_params, sizeof(ct_tensor)),
                       .slots = ct__calloc(n * CT_TRANSFORM_MAX_STATES + !n, sizeof(ct_tensor *))};
    }
    bool ok = optim && optim->state && optim->transforms && optim->params && optim->names &&
              optim->updates && optim->slots;
    if (ok && n) memcpy(optim->transforms, transforms, n * sizeof *transforms);
    if (!ok || !optim_make_stages(optim)) {
        ct__err_memory(&ctx->err, here, "optim", sizeof *optim);
        ct_optim_free(optim);
        return NULL;
    }
    for (size_t i = 0; i < n_params; i++) {
        optim->params[i] = ct_params_get(params, i);
        optim->names[i] = ct_params_name(params, i);
    }
    // The plan of the initial values runs when the scope in optim_make_state ends: the error is checked again
    // after it.
    if (optim_check_floats(optim, ctx, here) && optim_make_state(optim, ctx, here) &&
        !ctx->err.code)
        return optim;
    ct_optim_free(optim);
    return NULL;
}

ct_optim *ct_chain_of(ct_params *params, ct_schedule lr, const ct_transform *transforms, size_t n,
                      ct_loc here) {
    return optim_make_chain(params, lr, transforms, n, (ct_loss_scale){0}, here);
}

static bool transform_applies(const ct_transform *transform, const ct_update *u, size_t i) {
    return !transform->mask || transform->mask(u->names[i], u->params[i], transform->user);
}

// Assigns a variable its value after the step, unless the step is skipped.
static void optim_assign_if_finite(const ct_optim *optim, ct_tensor var, ct_tensor value,
                                   ct_loc here) {
    ct_assign_at(var, optim->finite.bits ? ct_select_at(optim->finite, value, var, here) : value,
                 here);
}

// Records one parameter's node, and the assignments of its results.
static void optim_record_update(ct_optim *optim, const ct_update *u, size_t i) {
    ct_tensor *in = optim->in;
    int n_in = 0, n_list = 0, n_out = 0;
    in[n_in++] = u->params[i];
    in[n_in++] = u->updates[i];
    for (size_t t = 0; t < optim->n_transforms; t++) {
        if (!transform_applies(&optim->transforms[t], u, i)) continue;
        const ct_stage *stage = &ct__stages[optim->stages[t]];
        optim->stage_list[n_list++] = optim->stages[t];
        for (int k = 0; k < stage->n_states; k++)
            in[n_in++] = optim->slots[t * CT_TRANSFORM_MAX_STATES + (size_t)k][i];
        for (int k = 0; k < stage->n_numbers; k++)
            in[n_in++] = optim->numbers[t * CT_STAGE_NUMBERS + (size_t)k];
    }
    update_attrs attrs = {.stages = {n_list, optim->stage_list}};
    ct_tensor out = ct__record(&ct__op_update, &attrs, in, n_in, u->here);
    optim_assign_if_finite(optim, u->params[i], out, u->here);
    for (int s = 0, at = 2; s < n_list; s++) {
        const ct_stage *stage = &ct__stages[optim->stage_list[s]];
        for (int k = 0; k < stage->n_states; k++)
            optim_assign_if_finite(optim, in[at + k], ct__output(out, (uint32_t)++n_out), u->here);
        at += stage->n_states + stage->n_numbers;
    }
}

static void optim_record_stages(ct_optim *optim, const ct_update *u) {
    for (size_t t = 0; t < optim->n_transforms; t++)
        ct__stages[optim->stages[t]].numbers(&optim->transforms[t], u,
                                             optim->numbers + t * CT_STAGE_NUMBERS);
    for (size_t i = 0; i < optim->n; i++) optim_record_update(optim, u, i);
}

// Records a chain with transforms of the user, which record their operations themselves.
static void optim_record_chain(ct_optim *optim, ct_update *u) {
    for (size_t t = 0; t < optim->n_transforms; t++) {
        u->state = (const ct_tensor *const *)&optim->slots[t * CT_TRANSFORM_MAX_STATES];
        optim->transforms[t].apply(&optim->transforms[t], u);
    }
    for (size_t i = 0; i < optim->n; i++) {
        ct_tensor sum = ct_add_at(ct__widened(u->params[i], u->here),
                                  ct__widened(u->updates[i], u->here), u->here);
        ct_assign_at(u->params[i], sum, u->here);
    }
}

// A step counts when its plan has run, which is when the variable got its next version; a plan that failed or
// was abandoned leaves no assignment pending.
static void optim_update_step_count(ct_optim *optim) {
    const ct_var *step = ct__var_of(optim->step);
    if (!optim->pending || !step || (step->version == optim->version && step->writer)) return;
    if (step->version != optim->version && !step->broken) optim->step_count += optim->pending;
    optim->pending = 0;
}

static void optim_move_state(ct_ctx *ctx, ct_tensor state, ct_tensor param, ct_loc here) {
    const ct_var *of = ct__var_of(param), *var = ct__var_of(state);
    if (of && var && var->type.device != of->type.device)
        ct__var_move(ctx, state, of->type.device, here);
}

// Moves the states of parameters that were moved to other devices.
static void optim_follow_params(ct_ctx *ctx, const ct_optim *optim, ct_loc here) {
    for (size_t i = 0; i < optim->n; i++) {
        for (size_t s = 0; s < optim->n_transforms * CT_TRANSFORM_MAX_STATES; s++)
            if (optim->slots[s]) optim_move_state(ctx, optim->slots[s][i], optim->params[i], here);
        if (optim->sum) optim_move_state(ctx, optim->sum[i], optim->params[i], here);
    }
}

// ------------------------------------------------------------------------- micro-batches of a step

static bool optim_make_sums(ct_optim *optim, ct_ctx *ctx, ct_loc here) {
    ct_tensor *sum = ct__calloc(optim->n, sizeof *sum);
    ct_params *sums = sum ? ct_params_new() : NULL;
    if (sums) {
        optim->n_accumulated = ct_param_at(sums, "parts", CT_I32, CT_SCALAR, here);
        for (size_t i = 0; i < optim->n && !ctx->err.code; i++)
            sum[i] = optim_make_state_like(sums, "sum", optim->names[i], optim->params[i], here);
    } else {
        ct__err_memory(&ctx->err, here, "optim", optim->n * sizeof *sum);
    }
    if (ctx->err.code) {
        ct_params_free(sums);
        ct__free(sum);
        return false;
    }
    optim->sum = sum;
    optim->sum_params = sums;
    return true;
}

// All sums get their initial values in one plan, so one variable is representative. If that plan was
// abandoned, they have none.
static bool optim_has_sums(const ct_optim *optim) {
    const ct_var *parts = optim->sum ? ct__var_of(optim->n_accumulated) : NULL;
    return parts && (parts->storage || parts->writer);
}

// Makes the sums if they are missing; their initial zeros are recorded with the caller's operations, which
// may be in the middle of a step.
static bool optim_begin_sums(ct_optim *optim, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || ctx->err.code || (!optim->sum && !optim_make_sums(optim, ctx, here))) return false;
    if (optim_has_sums(optim)) return true;
    ct_assign_at(optim->n_accumulated, ct_scalar(0, CT_I32), here);
    for (size_t i = 0; i < optim->n; i++) optim_assign_zeros(optim->sum[i], optim->params[i], here);
    return !ctx->err.code;
}

ct_params *ct__optim_make_sums(ct_optim *optim, ct_loc here) {
    {
        CT_SCOPE;
        if (!optim_begin_sums(optim, here)) return NULL;
    }
    return ct_failed() ? NULL : optim->sum_params; // the plan ran when the scope ended
}

bool ct_optim_clear_accumulated_at(ct_optim *optim, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, optim, here, "optim_clear_accumulated", "the optimizer"))
        return false;
    if (optim_has_sums(optim)) {
        CT_SCOPE;
        ct_assign_at(optim->n_accumulated, ct_scalar(0, CT_I32), here);
    }
    return !ctx->err.code;
}

// Adds the sums to the gradients in optim->updates. The sums of a completed step count as zero: this is
// decided by a value, so that all micro-batches have the same plan, and one whose plan failed is not counted.
static void optim_add_to_sums(ct_optim *optim, ct_loc here) {
    ct_tensor first = ct_equal_at(optim->n_accumulated, ct_i(0), here); // ()
    for (size_t i = 0; i < optim->n; i++) {
        ct_tensor before = ct_select_at(first, ct_f(0), optim->sum[i], here);
        optim->updates[i] = ct_add_at(before, ct__widened(optim->updates[i], here), here);
    }
}

// Replaces the gradients in optim->updates by the mean of them and those in the sums, which are cleared.
static void optim_take_mean(ct_optim *optim, ct_loc here) {
    ct_tensor parts = ct_add_at(optim->n_accumulated, ct_i(1), here); // ()
    ct_tensor count[2] = {CT_NONE, CT_NONE};                          // f32, f64
    optim_add_to_sums(optim, here);
    for (size_t i = 0; i < optim->n; i++) {
        bool wide = optim_state_dtype(optim->params[i]) == CT_F64;
        if (!count[wide].bits) count[wide] = ct_cast_at(parts, wide ? CT_F64 : CT_F32, here);
        optim->updates[i] = ct_div_at(optim->updates[i], count[wide], here);
    }
    ct_assign_at(optim->n_accumulated, ct_scalar(0, CT_I32), here);
}

// Records the gradients of the loss, scaled if the optimizer scales it, in optim->updates; false: the error
// is in the context.
static bool optim_record_gradients(ct_optim *optim, ct_tensor loss, ct_loc here) {
    if (optim->scaling.initial > 0) loss = ct_mul_at(ct__widened(loss, here), optim->scale, here);
    ct_grad_at(loss, optim->params, optim->n, optim->updates, here);
    return ct_ok(optim->updates[0]);
}

void ct_optim_accumulate_at(ct_optim *optim, ct_tensor loss, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, optim, here, "optim_accumulate", "the optimizer")) return;
    CT_DEFAULT_ENV;
    optim_follow_params(ctx, optim, here);
    if (!optim_begin_sums(optim, here) || !optim_record_gradients(optim, loss, here)) return;
    optim_add_to_sums(optim, here);
    for (size_t i = 0; i < optim->n; i++) ct_assign_at(optim->sum[i], optim->updates[i], here);
    ct_assign_at(optim->n_accumulated, ct_add_at(optim->n_accumulated, ct_i(1), here), here);
}

// ------------------------------------------------------------------------------------ loss scaling

static void optim_unscale(ct_optim *optim, ct_loc here) {
    ct_tensor inverse = ct_div_at(ct_f(1), optim->scale, here); // ()
    for (size_t i = 0; i < optim->n; i++)
        optim->updates[i] = ct_mul_at(ct__widened(optim->updates[i], here), inverse, here);
}

// Records the next step's scale, and the counters. A scale that would exceed f32 stays.
static void optim_record_loss_scale(ct_optim *optim, ct_loc here) {
    const ct_loss_scale *s = &optim->scaling;
    ct_tensor good = ct_select_at(optim->finite, ct_add_at(optim->good, ct_i(1), here), ct_i(0),
                                  here);                                 // ()
    ct_tensor full = ct_greater_equal_at(good, ct_i(s->interval), here); // ()
    ct_tensor grown = ct_mul_at(optim->scale, ct_f(s->growth), here);    // ()
    ct_tensor grows = ct_and_at(full, ct_is_finite_at(grown, here), here);
    ct_tensor less = ct_mul_at(optim->scale, ct_f(s->backoff), here); // ()
    less = ct_maximum_at(less, ct_f(MIN_LOSS_SCALE), here);           // its inverse is finite
    ct_tensor scale = ct_select_at(grows, grown, optim->scale, here);
    scale = ct_select_at(optim->finite, scale, less, here);
    ct_assign_at(optim->scale, scale, here);
    ct_assign_at(optim->good, ct_select_at(full, ct_i(0), good, here), here);
    ct_metric_at("loss_scale", scale, here);
}

// The number of steps that changed the parameters, including this one.
static ct_tensor optim_effective_step(ct_optim *optim, ct_tensor done, ct_loc here) {
    if (!optim->finite.bits) return ct_cast_at(done, CT_F32, here);
    ct_tensor skipped = optim->skipped; // before this step
    ct_assign_at(skipped,
                 ct_select_at(optim->finite, skipped, ct_add_at(skipped, ct_i(1), here), here),
                 here);
    return ct_cast_at(ct_sub_at(done, skipped, here), CT_F32, here);
}

bool ct__optim_has_loss_scale(const ct_optim *optim) { return optim->scaling.initial > 0; }

// ---------------------------------------------------------------------------------------- the step

void ct_optim_step_at(ct_optim *optim, ct_tensor loss, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, optim, here, "optim_step", "the optimizer")) return;
    CT_DEFAULT_ENV; // for numbers that transforms compute while they record
    optim_follow_params(ctx, optim, here);
    if (!optim_record_gradients(optim, loss, here)) return;
    if (optim_has_sums(optim)) optim_take_mean(optim, here);
    if (ct__optim_has_loss_scale(optim)) optim_unscale(optim, here);
    ct_tensor norm = ct__record(&ct__op_global_norm, NULL, optim->updates, (int)optim->n, here);
    optim->finite = ct__optim_has_loss_scale(optim) ? ct_is_finite_at(norm, here) : CT_NONE;
    ct_tensor done = ct_add_at(optim->step, ct_i(1), here);
    ct_update update = {.n = optim->n,
                        .params = optim->params,
                        .updates = optim->updates,
                        .names = optim->names,
                        .norm = norm,
                        .lr = ct_f(ct_optim_lr(optim)),
                        .step_count = optim_effective_step(optim, done, here),
                        .here = here};
    optim->lr_operand = update.lr;
    if (optim->stages)
        optim_record_stages(optim, &update);
    else
        optim_record_chain(optim, &update);
    if (ct__optim_has_loss_scale(optim)) optim_record_loss_scale(optim, here);
    ct_assign_at(optim->step, done, here);
    ct_metric_at("grad_norm", update.norm, here);
    optim_update_step_count(optim);
    const ct_var *step = ct__var_of(optim->step);
    if (step) optim->version = step->version;
    optim->pending++;
}

int64_t ct_optim_step_count(const ct_optim *optim) {
    if (!optim) return 0;
    optim_update_step_count((ct_optim *)(uintptr_t)optim);
    return optim->step_count + optim->pending;
}
double ct_optim_lr(const ct_optim *optim) {
    return optim ? ct_schedule_lr(&optim->lr, ct_optim_step_count(optim)) : NAN;
}
ct_tensor ct_optim_lr_operand(const ct_optim *optim) { return optim ? optim->lr_operand : CT_NONE; }
bool ct_optim_set_schedule_at(ct_optim *optim, ct_schedule schedule, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, optim, here, "optim_set_schedule", "the optimizer") ||
        !optim_check_lr(ctx, &schedule, here) || !optim_check_schedule(ctx, &schedule, here))
        return false;
    optim->lr = schedule;
    return true;
}
ct_params *ct_optim_state(ct_optim *optim) { return optim ? optim->state : NULL; }

bool ct_optim_resume_at(ct_optim *optim, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, optim, here, "optim_resume", "the optimizer")) return false;
    CT_SCOPE;
    double step = ct_item_at(optim->step, here);
    if (isnan(step)) return false;
    optim->step_count = (int64_t)step;
    optim->pending = 0;
    return ct_optim_clear_accumulated_at(optim, here); // the sums belong to another step
}

// ----------------------------------------------------------------------------- built-in optimizers

static ct_schedule options_schedule(const ct_optim_options *o) {
    return o->lr != 0 ? (ct_schedule){.lr = o->lr} : o->schedule;
}

// Rejects numbers with which nothing would be learned, or training would diverge.
static bool options_check(const ct_optim_options *o) {
    const struct {
        const char *name;
        double value, below;
    } numbers[] = {{"beta1", ct__num_or(o->beta1, 0), 1},
                   {"beta2", ct__num_or(o->beta2, 0), 1},
                   {"momentum", o->momentum, 1},
                   {"eps", ct__num_or(o->eps, 0), INFINITY},
                   {"weight_decay", ct__num_or(o->weight_decay, 0), INFINITY},
                   {"clip", o->clip, INFINITY}};
    ct_ctx *ctx = ct__ctx();
    ct_schedule lr = options_schedule(o);
    if (!ctx) return false;
    if (!optim_check_lr(ctx, &lr, o->here)) {
        return ct__err_hint(&ctx->err, "set .lr, or .schedule");
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (numbers[i].value >= 0 && numbers[i].value < numbers[i].below) continue;
        return ct__refuse(ctx, CT_E_ARGUMENT, o->here, "optim", "%s is %g, it must be 0 or more%s",
                          numbers[i].name, numbers[i].value,
                          numbers[i].below == 1 ? " and below 1" : " and finite");
    }
    return true;
}

// Fills in defaults; false: the error is in the context.
static bool options_check_loss_scale(ct_loss_scale *s, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (s->growth == 0) s->growth = 2;
    if (s->backoff == 0) s->backoff = 0.5;
    if (s->interval == 0) s->interval = 2000;
    const float growth = (float)s->growth, backoff = (float)s->backoff; // as in the plan
    if (s->initial != 0 && !(s->initial >= MIN_LOSS_SCALE && s->initial <= FLT_MAX))
        ct__fail(ctx, CT_E_ARGUMENT, here, "optim",
                 "the loss scale begins at %g, it must be above 0 and an f32", s->initial);
    else if (!(growth >= 1 && isfinite(growth)) || !(backoff > 0 && backoff < 1))
        ct__fail(
            ctx, CT_E_ARGUMENT, here, "optim",
            "the loss scale grows by %g and backs off by %g, they must be 1 or more, and above "
            "0 and below 1",
            s->growth, s->backoff);
    else if (s->interval < 0 || s->interval > INT32_MAX)
        ct__fail(ctx, CT_E_ARGUMENT, here, "optim",
                 "the loss scale grows after %" PRId64 " steps, it must be 1 or more", s->interval);
    return !ctx->err.code;
}

ct_optim *ct_sgd_with(ct_params *params, ct_optim_options o) {
    if (!options_check(&o) || !options_check_loss_scale(&o.loss_scale, o.here)) return NULL;
    if (o.nesterov && o.momentum == 0) {
        ct__fail(ct__ctx(), CT_E_ARGUMENT, o.here, "optim", "nesterov needs a momentum above 0");
        return NULL;
    }
    ct_transform chain[4];
    size_t n = 0;
    double decay = ct__num_or(o.weight_decay, 0);
    if (o.clip > 0) chain[n++] = ct_clip_by_global_norm(o.clip);
    if (decay != 0) chain[n++] = ct_add_decayed_weights(decay, o.decay_mask, o.mask_user);
    if (o.momentum != 0) chain[n++] = ct_trace(o.momentum, o.nesterov);
    chain[n++] = ct_scale_by_learning_rate();
    return optim_make_chain(params, options_schedule(&o), chain, n, o.loss_scale, o.here);
}

static ct_optim *options_make_adam(ct_params *params, ct_optim_options *o, double decay,
                                   bool decoupled) {
    ct_transform chain[5];
    size_t n = 0;
    if (!options_check(o) || !options_check_loss_scale(&o->loss_scale, o->here)) return NULL;
    ct_transform decayed = ct_add_decayed_weights(decay, o->decay_mask, o->mask_user);
    if (o->clip > 0) chain[n++] = ct_clip_by_global_norm(o->clip);
    if (decay != 0 && !decoupled) chain[n++] = decayed;
    chain[n++] = ct_scale_by_adam(ct__num_or(o->beta1, 0.9), ct__num_or(o->beta2, 0.999),
                                  ct__num_or(o->eps, 1e-8));
    if (decay != 0 && decoupled) chain[n++] = decayed;
    chain[n++] = ct_scale_by_learning_rate();
    return optim_make_chain(params, options_schedule(o), chain, n, o->loss_scale, o->here);
}

ct_optim *ct_adam_with(ct_params *params, ct_optim_options o) {
    return options_make_adam(params, &o, ct__num_or(o.weight_decay, 0), false);
}
ct_optim *ct_adamw_with(ct_params *params, ct_optim_options o) {
    return options_make_adam(params, &o, ct__num_or(o.weight_decay, 0.01), true);
}
