// Trains a language model on text, from the text files to the folder that is written: the steps, and the dry
// run before them.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/fp_env.h"
#include "base/threefry.h"
#include "graph/plans.h"
#include "io/metrics.h"
#include "models/lm_run.h"
#include "optim/stage.h"

static const char train_smaller_hint[] = "a smaller .batch, .context, .width or .layers needs less";

enum { STREAM_WINDOWS = 0, STREAM_DROPOUT = 1 };

// ------------------------------------------------------------------- the functions of the fit loop

static bool train_make_batches(ct_lm_run *r) {
    size_t B = (size_t)r->o.batch, T = (size_t)r->o.context;
    r->loader = (ct_loader){.tokens = r->corpus.tokens,
                            .n = r->n_train,
                            .batch = B,
                            .context = T,
                            .seed = r->o.seed,
                            .stream = STREAM_WINDOWS};
    // Zeros: rows of a short batch that no window fills must still be valid tokens.
    r->x = ct__calloc(B * T, sizeof *r->x);
    r->y = ct__calloc(B * T, sizeof *r->y);
    r->row_weights = ct__calloc(B, sizeof *r->row_weights);
    return (r->x && r->y && r->row_weights) ||
           ct__err_memory(r->err, CT_NOWHERE, r->command, B * T * sizeof *r->x);
}

// Makes the tensor of a batch. A dry run has no values: its device reads none, and a batch that would not
// fit is to be refused before it is allocated.
static ct_tensor train_batch_tensor(const ct_lm_run *r, const void *values, ct_dtype dtype,
                                    int64_t columns) {
    static const char unread;
    return ct_from(r->dry_run ? &unread : values, dtype, CT_DIMS(r->o.batch, columns));
}

static ct_tensor train_record_loss(int64_t batch, void *user) {
    ct_lm_run *r = user;
    r->trained = true;
    r->loader.step = (uint64_t)batch;
    if (!r->dry_run) ct__loader_next(&r->loader, r->x, r->y);
    ct_tensor x = train_batch_tensor(r, r->x, CT_I32, r->o.context),
              y = train_batch_tensor(r, r->y, CT_I32, r->o.context);
    ct_nn_mode mode = {.training = true, .dropout = (float)r->o.dropout};
    if (r->o.dropout > 0) {
        ct_u32x2 seed = {{(uint32_t)r->o.seed, (uint32_t)(r->o.seed >> 32)}};
        ct_u32x2 key = ct__threefry(seed, (ct_u32x2){{STREAM_DROPOUT, 0}});
        key = ct__threefry(key, (ct_u32x2){{(uint32_t)batch, (uint32_t)((uint64_t)batch >> 32)}});
        mode.key = ct_from(key.v, CT_U32, CT_DIMS(2));
    }
    // Assigned with the step, so that it always belongs to this step, and saving needs no plan of its own.
    if ((batch + 1) % r->o.accumulate == 0) {
        r->done = (batch + 1) / r->o.accumulate;
        ct_assign(r->position, ct_scalar((double)r->done, CT_I64));
    }
    CT_AUTOCAST(r->o.precision);
    return ct_lm_loss(r->lm, x, y, &mode);
}

// Sums the losses of the rows that count, so that the last batch, which may be short, has the shape of all
// others and needs no plan of its own.
static void train_eval_batch(ct_lm_run *r) {
    CT_SCOPE;
    ct_tensor x = train_batch_tensor(r, r->x, CT_I32, r->o.context),
              y = train_batch_tensor(r, r->y, CT_I32, r->o.context);
    ct_tensor count = train_batch_tensor(r, r->row_weights, CT_F32, 1);
    CT_AUTOCAST(r->o.precision);
    ct_tensor logits = ct_lm_logits(r->lm, x, NULL);                 // (B, T, vocab)
    ct_tensor losses = ct_cross_entropy(logits, y, .per_row = true); // (B, T)
    ct_metric("val_sum", ct_sum(ct_mul(losses, count)));
}

static bool train_add_eval_batch(ct_lm_run *r, ct_windows *windows, double *sum) {
    CT_DEFAULT_ENV;
    size_t rows = ct__windows_next(windows, r->x, r->y);
    for (size_t b = 0; b < (size_t)r->o.batch; b++) r->row_weights[b] = b < rows ? 1 : 0;
    train_eval_batch(r);
    if (r->err->code) return false;
    *sum += ct_metric_value("val_sum");
    return !r->err->code;
}

static bool train_evaluate(double *val_loss, void *user) {
    ct_lm_run *r = user;
    ct_windows windows = {.tokens = r->corpus.tokens + r->n_train,
                          .n = r->corpus.n - r->n_train,
                          .batch = (size_t)r->o.batch,
                          .context = (size_t)r->o.context};
    size_t count = ct__windows_count(&windows), done = 0;
    // The windows are the same, whatever the number of batches per step.
    double max_batches = r->o.eval_batches.value * (double)r->o.accumulate, sum = 0;
    for (double batch = 0; windows.next < count && (max_batches == 0 || batch < max_batches);
         batch++) {
        if (ct__lm_run_should_stop(r)) return true;
        if (!train_add_eval_batch(r, &windows, &sum)) return false;
        done = windows.next;
    }
    {
        CT_DEFAULT_ENV;
        *val_loss = r->val_loss = sum / ((double)done * (double)r->o.context);
    }
    return isfinite(r->val_loss) ? ct__lm_report_sample(r)
                                 : true; // else the fit loop reports the error
}

static ct_fit_action train_report_step(const ct_fit_state *point, void *user) {
    ct__lm_report(user, (ct_lm_event){.kind = CT_LM_STEP, .state = *point});
    return CT_FIT_CONTINUE;
}

static void train_on_end(const ct_fit_state *point, void *user) {
    ct_lm_run *r = user;
    r->end = point->end_reason;
    r->done = point->done;
}

// ------------------------------------------------------------------------- the model and its state

// Reports the latest plan of a dry run.
static bool train_report_plan(ct_lm_run *r, const char *name) {
    return !r->dry_run || ct__dry_run_report(r->dry_run, name);
}

// Makes a new model, or loads the one that the run starts from.
static bool train_make_model(ct_lm_run *r) {
    const ct_lm_train_options *o = &r->o;
    if (*r->from) {
        r->lm =
            ct_lm_load_with(r->from, (ct_lm_load_options){.trainable = true, .here = CT_NOWHERE});
    } else {
        const ct_lm_sizes sizes = ct__lm_config_sizes(r, o);
        r->lm = ct__lm_new(&sizes, o->seed, CT_HERE);
    }
    return r->lm != NULL;
}

static bool train_make_all(ct_lm_run *r) {
    const ct_lm_train_options *o = &r->o;
    // Loaded weights make no plan.
    if (!train_make_model(r) || (!*r->from && !train_report_plan(r, "initial weights")))
        return false;
    r->optim = ct__lm_optim(ct_lm_params(r->lm), o);
    if (!r->optim || !train_report_plan(r, "initial optimizer state")) return false;
    if (r->o.on_event &&
        !(r->cache = ct__lm_sample_cache_new(r->lm, CT_LM_SAMPLE_TOKENS + CT_LM_PROMPT)))
        return false;
    return ct__lm_state_make(r);
}

static void train_free_model(ct_lm_run *r) {
    ct__lm_cache_free(r->cache);
    ct_optim_free(r->optim);
    ct_lm_free(r->lm);
    ct__free(r->x);
    ct__free(r->y);
    ct__free(r->row_weights);
}

static void train_run_free(ct_lm_run *r) {
    train_free_model(r);
    ct__lm_resumed_free(&r->resumed);
    if (r->replaces_run) ct__run_abandon_replace(r->o.out); // the run was never saved
    ct__run_unlock(r->lock);
    ct__corpus_free(&r->corpus);
    ct__bundle_free(&r->bundle);
    ct__text_free(&r->characters);
    ct__text_free(&r->sample);
    ct__text_free(&r->largest);
}

// ----------------------------------------------------------------------------------------- dry run

static uint64_t train_param_bytes(const ct_params *params) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < ct_params_count(params); i++) {
        ct_tensor var = ct_params_get(params, i);
        bytes += (uint64_t)ct_size(var) * ct_dtype_size(ct_dtype_of(var));
    }
    return bytes;
}

// Records a step as ct_fit does; of the batches before the last, which are alike, one.
static bool train_record_step(ct_lm_run *r, bool reports) {
    if (r->o.accumulate > 1) {
        {
            CT_SCOPE;
            ct_tensor loss = train_record_loss(0, r);
            ct_metric("loss", loss);
            ct_optim_accumulate(r->optim, loss);
        }
        if (reports && !train_report_plan(r, "micro-batch")) return false;
    }
    {
        CT_SCOPE;
        ct_tensor loss = train_record_loss(r->o.accumulate - 1, r);
        ct_metric("loss", loss);
        ct_optim_step(r->optim, loss);
    }
    return !reports || train_report_plan(r, "step");
}

// Records everything that a run records, in its order: making the model, an evaluation, a sample, a step.
static bool train_record_all(ct_lm_run *r, ct_lm_cost *cost) {
    if (!train_make_all(r)) return false;
    cost->batches =
        (uint64_t)r->o.batch * (2 * (uint64_t)r->o.context * sizeof *r->x + sizeof *r->row_weights);
    // Half as much again while the losses are plotted.
    cost->loss_history =
        ct__series_bytes(r->o.steps) * 3 / 2 + ct__series_bytes(r->o.steps / r->o.eval_every + 2);
    cost->weights = train_param_bytes(ct_lm_params(r->lm));
    cost->optimizer_state = train_param_bytes(ct_optim_state(r->optim));
    if (r->o.accumulate > 1) {
        const ct_params *sums = ct__optim_make_sums(r->optim, CT_NOWHERE);
        if (!sums || !train_report_plan(r, "initial accumulators")) return false;
        cost->grad_accumulators = train_param_bytes(sums);
    }
    train_eval_batch(r);
    if (!train_report_plan(r, "evaluation")) return false;
    if (r->o.on_event && (!ct__lm_dry_run_generate(r->lm, r->cache, 1, CT_LM_SAMPLE_TOKENS) ||
                          !train_report_plan(r, "sample")))
        return false;
    if (!train_record_step(r, true)) return false;
    // Once more, with the memory of all plans allocated; the plans are cached.
    train_eval_batch(r);
    if (r->o.on_event && !ct__lm_dry_run_generate(r->lm, r->cache, 1, CT_LM_SAMPLE_TOKENS))
        return false;
    return train_record_step(r, false) && !r->err->code;
}

// Makes one dry run that keeps within real->device_limit.
static bool train_dry_run_once(ct_lm_run *real, const ct_lm_train_options *options,
                               ct_lm_cost *cost) {
    ct_lm_run *r = ct__lm_config_alloc(options, real->command, real->err);
    if (!r) return false;
    ct_lm_dry_run h = {.part = real->part, .user = real->part_user};
    *cost = (ct_lm_cost){0};
    bool ok = ct__dry_run_begin(&h, ct__ctx(), real->device_limit, real->err);
    if (ok) {
        r->err = &h.ctx->err;
        r->dry_run = &h;
        // The text belongs to the run itself.
        r->corpus = real->corpus;
        r->n_train = real->n_train;
        r->characters = real->characters;
        r->bundle = real->bundle;
        memcpy(r->from, real->from, sizeof r->from);
        ok = train_record_all(r, cost);
        train_free_model(r);
    }
    ct__free(r);
    ct__dry_run_end(&h, cost, real->err);
    ct__text_free(&real->largest);
    real->largest = h.largest;
    return ok && !real->err->code;
}

// Makes dry runs until the run fits: gradients recompute as few blocks as necessary. The process's memory
// outside of devices is only known when everything is planned, and differs between dry runs, so that one
// more may not be enough and a reserve is left.
static bool train_dry_run(const ct_lm_train_options *options, bool may_remat, ct_lm_cost *cost,
                          void *user) {
    enum { MAX_TURNS = 4, SPARE_PART = 32 };
    ct_lm_run *real = user;
    real->device_limit = 0;
    bool ok = train_dry_run_once(real, options, cost);
    for (int turn = 1;
         turn <= MAX_TURNS && ok && may_remat && cost->recomputed_blocks < cost->blocks; turn++) {
        const uint64_t available = ct__lm_room(cost),
                       limit = real->device_limit ? real->device_limit : cost->devices;
        if (cost->total <= available) break;
        const uint64_t excess = cost->total - available + cost->process / SPARE_PART;
        real->device_limit = excess < limit && turn < MAX_TURNS ? limit - excess : 1;
        ok = train_dry_run_once(real, options, cost);
    }
    return ok;
}

// Reads the text, chooses the sizes and estimates the cost: everything that is known before anything is
// written.
static bool train_prepare(ct_lm_run *r, ct_lm_size *size) {
    bool resumed = r->o.resume != NULL;
    if (!ct__lm_config_inspect_base(r) || !ct__lm_config_read_text(r)) return false;
    if (resumed && !ct__lm_same_text(&r->resumed, &r->corpus, r->o.chars, r->err)) return false;
    if (!ct__lm_choose(&r->o, r->command, &r->corpus, ct__lm_config_count_parameters, train_dry_run,
                       r, size, r->err))
        return false;
    ct__lm_config_fill_lr(&r->o);
    ct__lm_report_model(r, size);
    return true;
}

bool ct_lm_plan(const ct_lm_train_options *options, ct_lm_plan_fn on_plan, void *user,
                ct_lm_cost *cost) {
    ct_ctx *ctx = ct__ctx();
    ct_lm_size size = {0};
    if (!ctx || !ct__given(ctx, options, CT_NOWHERE, "plan", "the options") ||
        !ct__given(ctx, cost, CT_NOWHERE, "plan", "the pointer to the cost") || ctx->err.code)
        return false;
    if (options->resume || ct__num_given(options->resume_step))
        return ct__lm_config_refuse(
            &ctx->err, "plan",
            ".resume is not allowed for a plan: a resumed run needs what it needed before");
    ct_lm_run *r = ct__lm_config_new(options, "plan", ctx);
    if (!r) return false;
    bool ok = train_prepare(r, &size);
    // Choosing makes dry runs of several sizes; only the chosen one is reported.
    r->part = on_plan;
    r->part_user = user;
    ok = ok && train_dry_run_once(r, &r->o, &size.cost);
    size.cost.capacity = ct__lm_room(&size.cost);
    size.cost.capacity_is_limit = ct_memory_limit() > 0;
    *cost = size.cost;
    train_run_free(r);
    ct__free(r);
    return ok;
}

// ---------------------------------------------------------------------------------------- training

static bool train_run_all(ct_lm_run *r) {
    ct_lm_size size = {0};
    uint64_t peak = ct_get_stats().peak_memory;
    bool resumed = r->o.resume != NULL;
    // A new folder is made when the run is known to fit.
    if (resumed && !ct__lm_state_reopen_folder(r)) return false;
    if (!resumed && r->o.out && !ct__lm_state_could_begin(r)) return false;
    if (!train_prepare(r, &size)) return false;
    if (!ct__lm_fits(&size.cost, r->command, &r->largest, train_smaller_hint, r->err)) return false;
    if ((!resumed && !ct__lm_state_make_folder(r)) || !ct__lm_state_save_tokenizer(r) ||
        !train_make_batches(r))
        return false;
    ct__ctx_limit_memory(ct__ctx(), r->device_limit);
    if (!train_make_all(r)) return false;
    if (resumed && !ct__lm_state_load(r)) return false;
    const ct_fit_callback callbacks = {.on_begin = resumed ? ct__lm_state_on_resume : NULL,
                                       .on_evaluate = ct__lm_state_keep_best,
                                       .on_step = train_report_step,
                                       .on_end = train_on_end,
                                       .user = r};
    ct_fit_options fit = {.steps = r->o.steps,
                          .first_step = r->first,
                          .accumulate = r->o.accumulate,
                          .patience = (int64_t)r->o.patience.value,
                          .min_delta = r->o.min_delta.value,
                          .best = r->best,
                          .eval_every = r->o.eval_every,
                          .save_every = r->o.save_every,
                          .tokens_per_step = r->o.accumulate * r->o.batch * r->o.context,
                          .optim = r->optim,
                          .loss = train_record_loss,
                          .evaluate = train_evaluate,
                          .save = ct__lm_state_save,
                          .should_stop = r->o.should_stop ? ct__lm_report_should_stop : NULL,
                          .user = r,
                          .callbacks = &callbacks,
                          .n_callbacks = 1,
                          .metrics_path = r->metrics_path,
                          .tensorboard_dir = r->dir,
                          .plot_path = r->plot_path,
                          .title = "loss"};
    if (!ct_fit_at(&fit, CT_NOWHERE)) {
        if (r->err->code == CT_E_DEVICE) {
            r->err->hint_final = strstr(r->err->text, "\n  hint: "); // whatever failed after it
            ct__lm_state_hint(r);
        }
        return false;
    }
    double value; // if all steps were done before, nothing was evaluated
    if (isnan(r->val_loss) && !train_evaluate(&value, r)) return false;
    if (isnan(r->val_loss)) // it was stopped
        return ct__err(r->err, CT_E_INTERRUPTED, CT_NOWHERE, r->command,
                       "stopped after %" PRId64 " of %" PRId64 " steps", r->done, r->o.steps);
    ct__lm_report_early_stop(r);
    ct__lm_report_memory(r, &size.cost, peak);
    return ct__lm_report_done(r);
}

bool ct_lm_train(const ct_lm_train_options *options) {
    ct_lm_run *r = ct__lm_config_new(options, "train", ct__ctx());
    if (!r) return false;
    bool ok = train_run_all(r);
    ct__ctx_limit_memory(ct__ctx(), 0);
    train_run_free(r);
    ct__free(r);
    return ok;
}
