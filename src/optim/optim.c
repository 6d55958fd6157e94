// Optimizers: a chain of transforms, the variables of its state, and the step.
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/plain.h"
#include "base/text.h"
#include "optim/stage.h"

#define LEAST_SCALE 0x1p-120

struct ct_optim {
    ct_params *state;
    ct_schedule lr;
    ct_transform *transforms; // (n_transforms)
    size_t n_transforms;
    size_t n;              // parameters
    ct_tensor *params;     // (n)
    const char **names;    // (n) owned by the parameter set
    ct_tensor **slots;     // [transform * CT_TRANSFORM_STATES + k]: (n) state variables, or NULL
    ct_tensor *updates;    // (n) of the step being recorded
    int *stages;           // (n_transforms) of each, or NULL where one is the user's
    int64_t *list;         // (n_transforms) of the update being recorded
    ct_tensor *numbers;    // (n_transforms * CT_STAGE_NUMBERS) of the step being recorded
    ct_tensor *in;         // of the update being recorded
    ct_tensor rate;        // of the step recorded last
    ct_tensor step;        // variable, i32: steps done
    ct_loss_scale scaling; // .initial 0: the loss is not scaled
    ct_tensor scale, good, skipped; // variables of it: f32, i32, i32
    ct_tensor finite; // of the step being recorded: it counts; CT_NONE where it always does
    ct_params *sums;  // of gradients, of the parts of a step; NULL: no step had parts yet
    ct_tensor *sum;   // (n) variables in it
    ct_tensor parts;  // variable in it, i32: how many the sums hold
    int64_t count;    // steps done, but for the pending ones
    int64_t pending;  // recorded, and not known to have run
    uint64_t version; // of the variable `step`, when these were recorded
};

void ct_optim_free(ct_optim *optim) {
    if (!optim) return;
    for (size_t i = 0; optim->slots && i < optim->n_transforms * CT_TRANSFORM_STATES; i++)
        ct__free(optim->slots[i]);
    ct__free(optim->slots);
    ct__free(optim->transforms);
    ct__free(optim->params);
    ct__free(optim->names);
    ct__free(optim->updates);
    ct__free(optim->stages);
    ct__free(optim->list);
    ct__free(optim->numbers);
    ct__free(optim->in);
    ct__free(optim->sum);
    ct_params_free(optim->sums);
    ct_params_free(optim->state);
    ct__free(optim);
}

// What is kept of a parameter beside itself: f16 and bf16 are too short to add up in.
static ct_dtype state_dtype(ct_tensor param) {
    return ct_dtype_of(param) == CT_F64 ? CT_F64 : CT_F32;
}

static ct_ints dims_of(ct_tensor t, int64_t dim[CT_MAX_RANK]) {
    ct_ints dims = {ct_rank(t), dim};
    for (int a = 0; a < dims.n; a++) dim[a] = ct_dim(t, a);
    return dims;
}

// A state begins with zeros, where its parameter lies.
static void assign_zeros(ct_tensor var, ct_tensor param, ct_loc here) {
    int64_t dim[CT_MAX_RANK];
    if (!ct_ok(var)) return;
    ct_tensor zeros = ct_zeros_at(ct_dtype_of(var), dims_of(var, dim), here);
    const ct_var *of = ct__var_of(param);
    ct_assign_at(var, of && of->type.place ? ct__transfer(zeros, of->type.place, here) : zeros,
                 here);
}

// The variable `kind`.`name` of the set, shaped like param, without a value.
static ct_tensor state_like(ct_params *set, const char *kind, const char *name, ct_tensor param,
                            ct_loc here) {
    int64_t dim[CT_MAX_RANK];
    ct_text full = {0};
    ct__textf(&full, "%s.%s", kind, name);
    ct_tensor var = full.failed
                        ? CT_NONE
                        : ct_param_at(set, full.s, state_dtype(param), dims_of(param, dim), here);
    if (full.failed) ct__fail(ct__ctx(), CT_E_MEMORY, here, "optim", "out of memory for a name");
    ct__text_free(&full);
    return var;
}

static void make_scale(ct_optim *optim, ct_loc here) {
    optim->scale = ct_param_at(optim->state, "loss_scale", CT_F32, CT_SCALAR, here);
    optim->good = ct_param_at(optim->state, "good_steps", CT_I32, CT_SCALAR, here);
    optim->skipped = ct_param_at(optim->state, "skipped", CT_I32, CT_SCALAR, here);
    ct_assign_at(optim->scale, ct_scalar(optim->scaling.initial, CT_F32), here);
    ct_assign_at(optim->good, ct_scalar(0, CT_I32), here);
    ct_assign_at(optim->skipped, ct_scalar(0, CT_I32), here);
}

static bool make_state(ct_optim *optim, ct_ctx *ctx, ct_loc here) {
    CT_SCOPE;
    optim->step = ct_param_at(optim->state, "step", CT_I32, CT_SCALAR, here);
    ct_assign_at(optim->step, ct_scalar(0, CT_I32), here);
    if (optim->scaling.initial > 0) make_scale(optim, here);
    for (size_t t = 0; t < optim->n_transforms; t++)
        for (int k = 0; k < CT_TRANSFORM_STATES && optim->transforms[t].state[k]; k++) {
            ct_tensor *slot = ct__calloc(optim->n, sizeof *slot);
            if (!slot) return ct__err_memory(&ctx->err, here, "optim", optim->n * sizeof *slot);
            optim->slots[t * CT_TRANSFORM_STATES + (size_t)k] = slot;
            for (size_t i = 0; i < optim->n && !ctx->err.code; i++) {
                slot[i] = state_like(optim->state, optim->transforms[t].state[k], optim->names[i],
                                     optim->params[i], here);
                assign_zeros(slot[i], optim->params[i], here);
            }
        }
    return !ctx->err.code;
}

static bool all_floats(const ct_optim *optim, ct_ctx *ctx, ct_loc here) {
    for (size_t i = 0; i < optim->n; i++) {
        ct_dtype d = ct_dtype_of(optim->params[i]);
        if (ct__is_float(d)) continue;
        ct__fail(ctx, CT_E_DTYPE, here, "optim", "variable \"%s\" is %s, it must be of floats",
                 optim->names[i], ct_dtype_name(d));
        return false;
    }
    return true;
}

// Without a rate nothing would be learned.
static bool usable_rate(ct_ctx *ctx, const ct_schedule *s, ct_loc here) {
    if (s->custom || (s->lr > 0 && isfinite(s->lr))) return true;
    ct__fail(ctx, CT_E_ARGUMENT, here, "optim", "the learning rate is %g, it must be above 0",
             s->lr);
    return false;
}

// A rate that falls must have steps to fall in, and somewhere to stay.
static bool usable_course(ct_ctx *ctx, const ct_schedule *s, ct_loc here) {
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

// A chain of ready-made transforms alone is one node a parameter.
static bool make_stages(ct_optim *optim) {
    size_t n = optim->n_transforms;
    for (size_t t = 0; t < n; t++)
        if (ct__stage_of(&optim->transforms[t]) < 0) return true;
    optim->stages = ct__malloc((n + 1) * sizeof *optim->stages);
    optim->list = ct__malloc((n + 1) * sizeof *optim->list);
    optim->numbers = ct__malloc((n + 1) * CT_STAGE_NUMBERS * sizeof *optim->numbers);
    optim->in = ct__malloc((2 + n * (CT_STAGE_NUMBERS + CT_TRANSFORM_STATES)) * sizeof *optim->in);
    if (!optim->stages || !optim->list || !optim->numbers || !optim->in) return false;
    for (size_t t = 0; t < n; t++) optim->stages[t] = ct__stage_of(&optim->transforms[t]);
    return true;
}

static ct_optim *make_chain(ct_params *params, ct_schedule lr, const ct_transform *transforms,
                            size_t n, ct_loss_scale scaling, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || (n && !ct__given(ctx, transforms, here, "optim", "the list of transforms")) ||
        ctx->err.code || !usable_course(ctx, &lr, here))
        return NULL;
    size_t n_params = ct_params_count(params);
    if (!n_params) {
        ct__fail(ctx, CT_E_ARGUMENT, here, "optim", "there are no variables to optimize");
        return NULL;
    }
    ct_optim *optim = ct__calloc(1, sizeof *optim);
    if (optim) {
        *optim = (ct_optim){.state = ct_params_new(),
                            .lr = lr,
                            .scaling = scaling,
                            .transforms = ct__calloc(n + !n, sizeof *transforms),
                            .n_transforms = n,
                            .n = n_params,
                            .params = ct__calloc(n_params, sizeof(ct_tensor)),
                            .names = ct__calloc(n_params, sizeof(char *)),
                            .updates = ct__calloc(n_params, sizeof(ct_tensor)),
                            .slots = ct__calloc(n * CT_TRANSFORM_STATES + !n, sizeof(ct_tensor *))};
    }
    bool ok = optim && optim->state && optim->transforms && optim->params && optim->names &&
              optim->updates && optim->slots;
    if (ok && n) memcpy(optim->transforms, transforms, n * sizeof *transforms);
    if (!ok || !make_stages(optim)) {
        ct__err_memory(&ctx->err, here, "optim", sizeof *optim);
        ct_optim_free(optim);
        return NULL;
    }
    for (size_t i = 0; i < n_params; i++) {
        optim->params[i] = ct_params_get(params, i);
        optim->names[i] = ct_params_name(params, i);
    }
    // The plan of the first values runs when the scope in make_state ends: look again behind it.
    if (all_floats(optim, ctx, here) && make_state(optim, ctx, here) && !ctx->err.code)
        return optim;
    ct_optim_free(optim);
    return NULL;
}

ct_optim *ct_chain_of(ct_params *params, ct_schedule lr, const ct_transform *transforms, size_t n,
                      ct_loc here) {
    return make_chain(params, lr, transforms, n, (ct_loss_scale){0}, here);
}

static bool takes(const ct_transform *transform, const ct_update *u, size_t i) {
    return !transform->mask || transform->mask(u->names[i], u->params[i], transform->user);
}

// What a step gives a variable, which keeps its own where the step does not count.
static void assign_if_finite(const ct_optim *optim, ct_tensor var, ct_tensor value, ct_loc here) {
    ct_assign_at(var, optim->finite.bits ? ct_select_at(optim->finite, value, var, here) : value,
                 here);
}

// One parameter's node, and the assignments of what comes out of it.
static void record_update(ct_optim *optim, const ct_update *u, size_t i) {
    ct_tensor *in = optim->in;
    int n_in = 0, n_list = 0, n_out = 0;
    in[n_in++] = u->params[i];
    in[n_in++] = u->updates[i];
    for (size_t t = 0; t < optim->n_transforms; t++) {
        if (!takes(&optim->transforms[t], u, i)) continue;
        const ct_stage *stage = &ct__stages[optim->stages[t]];
        optim->list[n_list++] = optim->stages[t];
        for (int k = 0; k < stage->n_states; k++)
            in[n_in++] = optim->slots[t * CT_TRANSFORM_STATES + (size_t)k][i];
        for (int k = 0; k < stage->n_numbers; k++)
            in[n_in++] = optim->numbers[t * CT_STAGE_NUMBERS + (size_t)k];
    }
    update_attrs attrs = {.stages = {n_list, optim->list}};
    ct_tensor out = ct__record(&ct__op_update, &attrs, in, n_in, u->here);
    assign_if_finite(optim, u->params[i], out, u->here);
    for (int s = 0, at = 2; s < n_list; s++) {
        const ct_stage *stage = &ct__stages[optim->list[s]];
        for (int k = 0; k < stage->n_states; k++)
            assign_if_finite(optim, in[at + k], ct__output(out, (uint32_t)++n_out), u->here);
        at += stage->n_states + stage->n_numbers;
    }
}

static void record_stages(ct_optim *optim, const ct_update *u) {
    for (size_t t = 0; t < optim->n_transforms; t++)
        ct__stages[optim->stages[t]].numbers(&optim->transforms[t], u,
                                             optim->numbers + t * CT_STAGE_NUMBERS);
    for (size_t i = 0; i < optim->n; i++) record_update(optim, u, i);
}

// A chain with transforms of the user: what they do is known by what they record.
static void record_chain(ct_optim *optim, ct_update *u) {
    for (size_t t = 0; t < optim->n_transforms; t++) {
        u->state = (const ct_tensor *const *)&optim->slots[t * CT_TRANSFORM_STATES];
        optim->transforms[t].apply(&optim->transforms[t], u);
    }
    for (size_t i = 0; i < optim->n; i++) {
        ct_tensor sum = ct_add_at(ct__widened(u->params[i], u->here),
                                  ct__widened(u->updates[i], u->here), u->here);
        ct_assign_at(u->params[i], sum, u->here);
    }
}

// A step counts when its plan ran, which is when the variable got its next version; a plan that
// failed, or was given up for an error, leaves no assignment pending.
static void settle(ct_optim *optim) {
    const ct_var *step = ct__var_of(optim->step);
    if (!optim->pending || !step || (step->version == optim->version && step->writer)) return;
    if (step->version != optim->version && !step->broken) optim->count += optim->pending;
    optim->pending = 0;
}

static void follow_one(ct_ctx *ctx, ct_tensor state, ct_tensor param, ct_loc here) {
    const ct_var *of = ct__var_of(param), *var = ct__var_of(state);
    if (of && var && var->type.place != of->type.place)
        ct__var_move(ctx, state, of->type.place, here);
}

// What is kept of parameters that moved to other devices goes where they are.
static void follow(ct_ctx *ctx, const ct_optim *optim, ct_loc here) {
    for (size_t i = 0; i < optim->n; i++) {
        for (size_t s = 0; s < optim->n_transforms * CT_TRANSFORM_STATES; s++)
            if (optim->slots[s]) follow_one(ctx, optim->slots[s][i], optim->params[i], here);
        if (optim->sum) follow_one(ctx, optim->sum[i], optim->params[i], here);
    }
}

// ----------------------------------------------------------------------------- the parts of a step

static bool make_sums(ct_optim *optim, ct_ctx *ctx, ct_loc here) {
    ct_tensor *sum = ct__calloc(optim->n, sizeof *sum);
    ct_params *sums = sum ? ct_params_new() : NULL;
    if (sums) {
        optim->parts = ct_param_at(sums, "parts", CT_I32, CT_SCALAR, here);
        for (size_t i = 0; i < optim->n && !ctx->err.code; i++)
            sum[i] = state_like(sums, "sum", optim->names[i], optim->params[i], here);
    } else {
        ct__err_memory(&ctx->err, here, "optim", optim->n * sizeof *sum);
    }
    if (ctx->err.code) {
        ct_params_free(sums);
        ct__free(sum);
        return false;
    }
    optim->sum = sum;
    optim->sums = sums;
    return true;
}

// All sums get their first values in one plan, so one variable tells of all. Where that plan was
// given up they have none.
static bool has_sums(const ct_optim *optim) {
    const ct_var *parts = optim->sum ? ct__var_of(optim->parts) : NULL;
    return parts && (parts->storage || parts->writer);
}

// The sums, made where they are missing; their first zeros are recorded with what the caller
// records, which may be in the middle of something.
static bool begin_sums(ct_optim *optim, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || ctx->err.code || (!optim->sum && !make_sums(optim, ctx, here))) return false;
    if (has_sums(optim)) return true;
    ct_assign_at(optim->parts, ct_scalar(0, CT_I32), here);
    for (size_t i = 0; i < optim->n; i++) assign_zeros(optim->sum[i], optim->params[i], here);
    return !ctx->err.code;
}

ct_params *ct__optim_sums(ct_optim *optim, ct_loc here) {
    {
        CT_SCOPE;
        if (!begin_sums(optim, here)) return NULL;
    }
    return ct_failed() ? NULL : optim->sums; // the plan ran when the scope ended
}

bool ct_optim_forget_parts_at(ct_optim *optim, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, optim, here, "optim_forget_parts", "the optimizer")) return false;
    if (has_sums(optim)) {
        CT_SCOPE;
        ct_assign_at(optim->parts, ct_scalar(0, CT_I32), here);
    }
    return !ctx->err.code;
}

// The sums with the gradients in optim->updates. Those of a step that is done are as good as zero:
// that is a matter of values, so that all parts are one plan, and one that failed was none.
static void add_to_sums(ct_optim *optim, ct_loc here) {
    ct_tensor first = ct_equal_at(optim->parts, ct_i(0), here); // ()
    for (size_t i = 0; i < optim->n; i++) {
        ct_tensor before = ct_select_at(first, ct_f(0), optim->sum[i], here);
        optim->updates[i] = ct_add_at(before, ct__widened(optim->updates[i], here), here);
    }
}

// The mean of the gradients in optim->updates and those in the sums, which are done with.
static void take_mean(ct_optim *optim, ct_loc here) {
    ct_tensor parts = ct_add_at(optim->parts, ct_i(1), here); // ()
    ct_tensor count[2] = {CT_NONE, CT_NONE};                  // f32, f64
    add_to_sums(optim, here);
    for (size_t i = 0; i < optim->n; i++) {
        bool wide = state_dtype(optim->params[i]) == CT_F64;
        if (!count[wide].bits) count[wide] = ct_cast_at(parts, wide ? CT_F64 : CT_F32, here);
        optim->updates[i] = ct_div_at(optim->updates[i], count[wide], here);
    }
    ct_assign_at(optim->parts, ct_scalar(0, CT_I32), here);
}

// The gradients of the loss, scaled where the optimizer scales it, in optim->updates; false: the
// error stands in the context.
static bool record_gradients(ct_optim *optim, ct_tensor loss, ct_loc here) {
    if (optim->scaling.initial > 0) loss = ct_mul_at(ct__widened(loss, here), optim->scale, here);
    ct_grad_at(loss, optim->params, optim->n, optim->updates, here);
    return ct_ok(optim->updates[0]);
}

void ct_optim_accumulate_at(ct_optim *optim, ct_tensor loss, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, optim, here, "optim_accumulate", "the optimizer")) return;
    CT_DEFAULT_ENV;
    follow(ctx, optim, here);
    if (!begin_sums(optim, here) || !record_gradients(optim, loss, here)) return;
    add_to_sums(optim, here);
    for (size_t i = 0; i < optim->n; i++) ct_assign_at(optim->sum[i], optim->updates[i], here);
    ct_assign_at(optim->parts, ct_add_at(optim->parts, ct_i(1), here), here);
}

// ------------------------------------------------------------------------------ scaling of the loss

static void unscale(ct_optim *optim, ct_loc here) {
    ct_tensor inverse = ct_div_at(ct_f(1), optim->scale, here); // ()
    for (size_t i = 0; i < optim->n; i++)
        optim->updates[i] = ct_mul_at(ct__widened(optim->updates[i], here), inverse, here);
}

// The next step's scale, and what is counted. A scale that would grow beyond f32 stays.
static void record_scale(ct_optim *optim, ct_loc here) {
    const ct_loss_scale *s = &optim->scaling;
    ct_tensor good = ct_select_at(optim->finite, ct_add_at(optim->good, ct_i(1), here), ct_i(0),
                                  here);                                 // ()
    ct_tensor full = ct_greater_equal_at(good, ct_i(s->interval), here); // ()
    ct_tensor grown = ct_mul_at(optim->scale, ct_f(s->growth), here);    // ()
    ct_tensor grows = ct_and_at(full, ct_is_finite_at(grown, here), here);
    ct_tensor less = ct_mul_at(optim->scale, ct_f(s->backoff), here); // ()
    less = ct_maximum_at(less, ct_f(LEAST_SCALE), here); // of which the inverse is finite
    ct_tensor scale = ct_select_at(grows, grown, optim->scale, here);
    scale = ct_select_at(optim->finite, scale, less, here);
    ct_assign_at(optim->scale, scale, here);
    ct_assign_at(optim->good, ct_select_at(full, ct_i(0), good, here), here);
    ct_metric_at("loss_scale", scale, here);
}

// Steps that changed the parameters, this one among them.
static ct_tensor count_of(ct_optim *optim, ct_tensor done, ct_loc here) {
    if (!optim->finite.bits) return ct_cast_at(done, CT_F32, here);
    ct_tensor skipped = optim->skipped; // before this step
    ct_assign_at(skipped,
                 ct_select_at(optim->finite, skipped, ct_add_at(skipped, ct_i(1), here), here),
                 here);
    return ct_cast_at(ct_sub_at(done, skipped, here), CT_F32, here);
}

bool ct__optim_scales(const ct_optim *optim) { return optim->scaling.initial > 0; }

// ---------------------------------------------------------------------------------------- the step

void ct_optim_step_at(ct_optim *optim, ct_tensor loss, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, optim, here, "optim_step", "the optimizer")) return;
    CT_DEFAULT_ENV; // what transforms compute while they record
    follow(ctx, optim, here);
    if (!record_gradients(optim, loss, here)) return;
    if (has_sums(optim)) take_mean(optim, here);
    if (ct__optim_scales(optim)) unscale(optim, here);
    ct_tensor norm = ct__record(&ct__op_global_norm, NULL, optim->updates, (int)optim->n, here);
    optim->finite = ct__optim_scales(optim) ? ct_is_finite_at(norm, here) : CT_NONE;
    ct_tensor done = ct_add_at(optim->step, ct_i(1), here);
    ct_update update = {.n = optim->n,
                        .params = optim->params,
                        .updates = optim->updates,
                        .names = optim->names,
                        .norm = norm,
                        .lr = ct_f(ct_optim_lr(optim)),
                        .count = count_of(optim, done, here),
                        .here = here};
    optim->rate = update.lr;
    if (optim->stages)
        record_stages(optim, &update);
    else
        record_chain(optim, &update);
    if (ct__optim_scales(optim)) record_scale(optim, here);
    ct_assign_at(optim->step, done, here);
    ct_metric_at("grad_norm", update.norm, here);
    settle(optim);
    const ct_var *step = ct__var_of(optim->step);
    if (step) optim->version = step->version;
    optim->pending++;
}

int64_t ct_optim_count(const ct_optim *optim) {
    if (!optim) return 0;
    settle((ct_optim *)(uintptr_t)optim);
    return optim->count + optim->pending;
}
double ct_optim_lr(const ct_optim *optim) {
    return optim ? ct_schedule_at(&optim->lr, ct_optim_count(optim)) : NAN;
}
ct_tensor ct_optim_rate(const ct_optim *optim) { return optim ? optim->rate : CT_NONE; }
bool ct_optim_set_schedule_at(ct_optim *optim, ct_schedule schedule, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, optim, here, "optim_set_schedule", "the optimizer") ||
        !usable_rate(ctx, &schedule, here) || !usable_course(ctx, &schedule, here))
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
    optim->count = (int64_t)step;
    optim->pending = 0;
    return ct_optim_forget_parts_at(optim, here); // the sums were another step's
}

// -------------------------------------------------------------------------------------- ready-made

static ct_schedule schedule_of(const ct_optim_options *o) {
    return o->lr != 0 ? (ct_schedule){.lr = o->lr} : o->schedule;
}

// Numbers with which nothing would be learned, or everything lost.
static bool usable(const ct_optim_options *o) {
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
    ct_schedule lr = schedule_of(o);
    if (!ctx) return false;
    if (!usable_rate(ctx, &lr, o->here)) {
        ct__err_hint(&ctx->err, "set .lr, or .schedule");
        return false;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (numbers[i].value >= 0 && numbers[i].value < numbers[i].below) continue;
        ct__fail(ctx, CT_E_ARGUMENT, o->here, "optim", "%s is %g, it must be 0 or more%s",
                 numbers[i].name, numbers[i].value,
                 numbers[i].below == 1 ? " and below 1" : " and finite");
        return false;
    }
    return true;
}

// Defaults filled in; false: the error stands in the context.
static bool usable_scale(ct_loss_scale *s, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (s->growth == 0) s->growth = 2;
    if (s->backoff == 0) s->backoff = 0.5;
    if (s->interval == 0) s->interval = 2000;
    const float growth = (float)s->growth, backoff = (float)s->backoff; // as the plan has them
    if (s->initial != 0 && !(s->initial >= LEAST_SCALE && s->initial <= FLT_MAX))
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
    if (!usable(&o) || !usable_scale(&o.loss_scale, o.here)) return NULL;
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
    return make_chain(params, schedule_of(&o), chain, n, o.loss_scale, o.here);
}

static ct_optim *adam(ct_params *params, ct_optim_options *o, double decay, bool decoupled) {
    ct_transform chain[5];
    size_t n = 0;
    if (!usable(o) || !usable_scale(&o->loss_scale, o->here)) return NULL;
    ct_transform decayed = ct_add_decayed_weights(decay, o->decay_mask, o->mask_user);
    if (o->clip > 0) chain[n++] = ct_clip_by_global_norm(o->clip);
    if (decay != 0 && !decoupled) chain[n++] = decayed;
    chain[n++] = ct_scale_by_adam(ct__num_or(o->beta1, 0.9), ct__num_or(o->beta2, 0.999),
                                  ct__num_or(o->eps, 1e-8));
    if (decay != 0 && decoupled) chain[n++] = decayed;
    chain[n++] = ct_scale_by_learning_rate();
    return make_chain(params, schedule_of(o), chain, n, o->loss_scale, o->here);
}

ct_optim *ct_adam_with(ct_params *params, ct_optim_options o) {
    return adam(params, &o, ct__num_or(o.weight_decay, 0), false);
}
ct_optim *ct_adamw_with(ct_params *params, ct_optim_options o) {
    return adam(params, &o, ct__num_or(o.weight_decay, 0.01), true);
}
