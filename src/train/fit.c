// The fit loop. A step is recorded anew each time, and its values are fetched after the end of its scope,
// so that nothing waits for the device earlier than necessary.
#include <math.h>

#include "base/os.h"
#include "base/fp_env.h"
#include "cotan/train.h"
#include "graph/graph.h"
#include "graph/handle.h"
#include "io/events.h"
#include "io/metrics.h"
#include "io/svg.h"
#include "optim/stage.h"

typedef struct fit {
    const ct_fit_options *o;
    ct_loc here;   // of the call, for errors; none where a run is a program's
    ct_loc record; // for what is recorded and run; always has a file
    ct_err *err;
    ct_metrics metrics;
    ct_events events;
    ct_series losses, val_losses;
    ct_fit_state point;
    double begin;   // end of the first step: the time before it is no estimate of later steps
    uint64_t plans; // plans that existed when the last line was written
    bool stopped;
    int64_t saved;   // steps of the newest save; -1: none
    ct_err failure;  // of a callback or a file; kept while the current state is saved
    bool line;       // the metrics end with the line of the latest step
    bool evaluation; // of a resumed fit: that line has the validation loss
    bool ended;      // that line says why the fit ended
} fit;

static bool fit_should_stop(fit *f) {
    if (!f->stopped && f->o->should_stop) f->stopped = f->o->should_stop(f->o->user);
    return f->stopped;
}

// ----------------------------------------------------------------------------------------- callbacks

typedef enum { FIT_ON_BEGIN, FIT_ON_EVALUATE, FIT_ON_STEP, FIT_ON_SAVE } fit_event;

// Keeps the first error of a callback, or of the files that report the steps, until the end: a context with
// an error saves nothing. Returns false if the error ends the fit at once.
static bool fit_defer_error(fit *f) {
    if (!f->err->code) return true;
    f->point.end_reason = CT_FIT_FAILED;
    if (f->err->code == CT_E_INTERRUPTED) return false; // ct_cancel: its caller does not wait
    if (!f->failure.code) f->failure = *f->err;
    ct_error_clear();
    return true;
}

static bool fit_call_callbacks(fit *f, fit_event when) {
    for (size_t i = 0; i < f->o->n_callbacks && !f->failure.code; i++) {
        const ct_fit_callback *c = &f->o->callbacks[i];
        ct_fit_action (*callback)(const ct_fit_state *, void *) =
            when == FIT_ON_BEGIN      ? c->on_begin
            : when == FIT_ON_EVALUATE ? c->on_evaluate
            : when == FIT_ON_STEP     ? c->on_step
                                      : c->on_save;
        if (!callback) continue;
        if (callback(&f->point, c->user) == CT_FIT_STOP && !f->point.end_reason)
            f->point.end_reason = CT_FIT_STOPPED;
        if (!fit_defer_error(f)) return false;
    }
    return true;
}

static void fit_call_on_end(fit *f, bool ok) {
    if (!ok && f->point.end_reason != CT_FIT_INTERRUPTED) f->point.end_reason = CT_FIT_FAILED;
    for (size_t i = 0; i < f->o->n_callbacks; i++)
        if (f->o->callbacks[i].on_end)
            f->o->callbacks[i].on_end(&f->point, f->o->callbacks[i].user);
}

// --------------------------------------------------------------------------------------- evaluations

static bool fit_check_finite(fit *f, const char *name, double loss) {
    if (isfinite(loss)) return true;
    ct__err(f->err, CT_E_DATA, f->here, "train", "the %s is %s at step %lld", name,
            isnan(loss) ? "not a number" : "infinite", (long long)f->point.step);
    return ct__err_hint(f->err, "a smaller learning rate, a longer warm-up or clipping may help");
}

static bool fit_is_out_of_patience(const fit *f) {
    return f->o->patience > 0 && f->point.best.evaluations > 0 &&
           f->point.best.stale_evaluations >= f->o->patience;
}

// Updates the best loss and patience. Any lower loss is the best one; patience counts from one that is
// lower by at least min_delta. Weights that are evaluated again, as the first ones of a longer resumed run,
// count once.
static void fit_update_best(fit *f) {
    ct_fit_state *p = &f->point;
    ct_fit_best *best = &p->best;
    if (best->evaluations && best->last_evaluated_step == p->done) return;
    CT_DEFAULT_ENV;
    bool is_first = !best->evaluations++;
    best->last_evaluated_step = p->done;
    best->stale_evaluations++;
    p->improved = is_first || p->val_loss < best->val_loss;
    if (p->improved) {
        best->val_loss = p->val_loss;
        best->steps = p->done;
    }
    if (is_first || p->val_loss < best->reference_loss - f->o->min_delta) {
        best->reference_loss = p->val_loss;
        best->stale_evaluations = 0;
    }
}

// Reports a function that returned false; it is an error even without a reason.
static bool fit_function_failed(fit *f, const char *function) {
    return ct__err(f->err, CT_E_ARGUMENT, f->here, "fit", "%s returned false, and left no error",
                   function);
}

static bool fit_evaluate(fit *f) {
    ct_fit_state *p = &f->point;
    double value = NAN;
    if (!f->o->evaluate) return true;
    if (!f->o->evaluate(&value, f->o->user)) return fit_function_failed(f, "evaluate");
    if (f->err->code) return false;
    if (fit_should_stop(f)) return true; // it may have returned early
    p->val_loss = value;
    p->evaluated = true;
    if (!fit_check_finite(f, "validation loss", value)) return false;
    fit_update_best(f);
    if (!fit_call_callbacks(f, FIT_ON_EVALUATE)) return false;
    if (!p->end_reason && fit_is_out_of_patience(f)) p->end_reason = CT_FIT_PATIENCE;
    return true;
}

// --------------------------------------------------------------------------------------------- steps

static int64_t fit_micro_batches(const ct_fit_options *o) {
    return o->accumulate > 1 ? o->accumulate : 1;
}

// Checks the tensor that the loss function returned. The caller of the fit recorded none of the operations
// on it.
static bool fit_check_loss(fit *f, ct_tensor t) {
    ct_val v;
    uint32_t out;
    ct_slot_past freed;
    if (f->err->code) return false;
    if (!t.bits)
        return ct__err(f->err, CT_E_ARGUMENT, f->here, "fit",
                       "the function of the loss returned no tensor");
    if (!ct__peek(t, &out) && ct__stale_past(t, &freed) && freed.kind == CT_PAST_SCOPE) {
        ct__err(f->err, CT_E_STALE, f->here, "fit",
                "the function of the loss returned a tensor whose scope had ended: made at %s:%u",
                freed.made.file ? freed.made.file : "?", freed.made.line);
        return ct__err_hint(f->err, "it needs no CT_SCOPE: each step has one");
    }
    if (!ct__resolve(ct__ctx(), t, &v, "fit", CT_OUTPUT(0), f->record)) return false;
    const ct_type *type = ct__type(v);
    if (ct__count(type) == 1) return true;
    ct__err(f->err, CT_E_SHAPE, f->here, "fit", "the loss must be one float, it is %s",
            ct__type_text(type).s);
    return ct__err_hint(f->err, "ct_mean or ct_sum makes it one number");
}

// With loss scaling, a loss that is not finite is a skipped step; the scale falls with each of them, and
// when it is too small the model is broken. That is also so if the scale fell so far by gradients alone.
static bool fit_check_loss_value(fit *f, double loss, bool last) {
    ct_fit_state *p = &f->point;
    if (!ct__optim_has_loss_scale(f->o->optim)) return fit_check_finite(f, "loss", loss);
    if (!last) return true;
    p->loss_scale = ct_metric_value("loss_scale");
    if (f->err->code || (p->loss_scale < 1 && !fit_check_finite(f, "loss", p->loss))) return false;
    return p->loss_scale >= 0x1p-40 || ct__err(f->err, CT_E_DATA, f->here, "train",
                                               "the gradients are not finite at step %lld, "
                                               "whatever the scale of the loss, which has "
                                               "fallen to %.2g",
                                               (long long)p->step, p->loss_scale);
}

// Runs micro-batch k of the step and adds its loss to `sum`. The last one makes the update, whatever its
// loss is.
static bool fit_run_micro_batch(fit *f, int64_t k, int64_t n_parts, double *sum) {
    ct_fit_state *p = &f->point;
    ct_scope scope = ct_scope_begin(f->record);
    ct_tensor loss_tensor = f->o->loss(p->step * n_parts + k, f->o->user);
    if (!fit_check_loss(f, loss_tensor)) {
        ct_scope_end(scope, f->record);
        return false;
    }
    ct_metric_at("loss", loss_tensor, f->record);
    if (k + 1 < n_parts)
        ct_optim_accumulate_at(f->o->optim, loss_tensor, f->record);
    else
        ct_optim_step_at(f->o->optim, loss_tensor, f->record);
    ct_scope_end(scope, f->record);
    if (f->err->code) return false;
    double loss = ct_metric_value("loss");
    if (f->err->code) return false;
    {
        CT_DEFAULT_ENV;
        *sum += loss;
        if (k + 1 == n_parts) p->loss = *sum / (double)n_parts;
    }
    if (k + 1 == n_parts) p->done = p->step + 1;
    return fit_check_loss_value(f, loss, k + 1 == n_parts);
}

// If the fit is stopped between two micro-batches, the step is not done.
static bool fit_step(fit *f) {
    ct_fit_state *p = &f->point;
    int64_t n_parts = fit_micro_batches(f->o);
    double begin = ct__now(), sum = 0;
    p->lr = ct_optim_lr(f->o->optim);
    for (int64_t k = 0; k < n_parts; k++) {
        if (k && fit_should_stop(f)) return ct_optim_clear_accumulated_at(f->o->optim, f->record);
        if (!fit_run_micro_batch(f, k, n_parts, &sum)) return false;
    }
    p->grad_norm = ct_metric_value("grad_norm");
    if (f->err->code) return false;
    double seconds = ct__now() - begin;
    p->ms = seconds * 1e3;
    p->tokens_per_s = seconds > 0 ? (double)f->o->tokens_per_step / seconds : 0;
    return true;
}

static void fit_update_stats(fit *f) {
    ct_fit_state *p = &f->point;
    uint64_t plans = ct_get_stats().plans_made;
    p->plans_compiled = plans - f->plans;
    f->plans = plans;
    double now = ct__now();
    int64_t done = p->step - f->o->first_step;
    if (!done) f->begin = now;
    p->seconds_left =
        done ? (now - f->begin) / (double)done * (double)(p->steps - 1 - p->step) : NAN;
    p->memory = ct__resident_bytes();
}

static const char *const fit_end_names[CT_FIT_FAILED + 1] = {
    [CT_FIT_PATIENCE] = "patience", [CT_FIT_STOPPED] = "callback"};

static bool fit_add_metrics(fit *f) {
    const ct_fit_state *p = &f->point;
    ct_metric_field fields[10] = {
        CT_FIELD_INT("step", p->step),
        CT_FIELD_REAL("loss", p->loss),
        CT_FIELD_REAL("lr", p->lr),
        CT_FIELD_REAL("grad_norm", p->grad_norm),
        CT_FIELD_REAL("ms", p->ms),
        CT_FIELD_REAL("tokens_per_s", p->tokens_per_s),
        CT_FIELD_INT("plans_compiled", (int64_t)p->plans_compiled),
    };
    size_t n = 7;
    if (p->loss_scale > 0) fields[n++] = CT_FIELD_REAL("loss_scale", p->loss_scale);
    if (p->evaluated) fields[n++] = CT_FIELD_REAL("val_loss", p->val_loss);
    if (fit_end_names[p->end_reason])
        fields[n++] = CT_FIELD_TEXT("ended", fit_end_names[p->end_reason]);
    f->line = f->o->metrics_path && ct__metrics_add(&f->metrics, fields, n, f->err);
    f->ended = fit_end_names[p->end_reason];
    return f->line || !f->o->metrics_path;
}

// Changes the line of the latest step, if there is one.
static bool fit_amend_metrics(fit *f, const char *remove_key, const ct_metric_field *with) {
    return !f->line || ct__metrics_amend(&f->metrics, remove_key, with, f->err);
}

static bool fit_add_series(fit *f) {
    const ct_fit_state *p = &f->point;
    bool ok = ct__series_add(&f->losses, (double)p->step, p->loss);
    if (p->evaluated) ok = ok && ct__series_add(&f->val_losses, (double)p->step, p->val_loss);
    return ok || ct__err_memory(f->err, f->here, "train", f->losses.cap * 2 * sizeof(double));
}

// Writes the step to all series and files.
static bool fit_write_step(fit *f) {
    const ct_fit_state *p = &f->point;
    const ct_scalar_event scalars[] = {{"loss", p->loss},
                                       {"lr", p->lr},
                                       {"grad_norm", p->grad_norm},
                                       {"tokens_per_s", p->tokens_per_s},
                                       {"val_loss", p->val_loss}};
    size_t shown = sizeof scalars / sizeof *scalars - !p->evaluated;
    return fit_add_series(f) && fit_add_metrics(f) &&
           (!f->o->tensorboard_dir || ct__events_add(&f->events, p->step, scalars, shown, f->err));
}

static bool fit_save(fit *f) {
    // A checkpoint's steps are never missing in the metrics, even after a power failure.
    if (f->metrics.fd >= 0 && !ct__metrics_sync(&f->metrics, f->err) && !fit_defer_error(f))
        return false;
    if (f->o->save && !f->o->save(f->point.done, f->o->user)) return fit_function_failed(f, "save");
    f->saved = f->point.done;
    return (!f->o->plot_path ||
            ct__svg_loss_write(f->o->plot_path, f->o->title ? f->o->title : "loss", &f->losses,
                               &f->val_losses, f->err)) &&
           fit_call_callbacks(f, FIT_ON_SAVE);
}

// Runs one step, with the evaluation that belongs to it.
static bool fit_advance(fit *f) {
    const ct_fit_options *o = f->o;
    ct_fit_state *p = &f->point;
    bool last = p->step == o->steps - 1;
    bool is_due = p->step == 0 || (o->eval_every > 0 && p->step % o->eval_every == 0);
    p->evaluated = p->improved = false;
    if (is_due && !last && !fit_evaluate(f)) return false;
    if (f->failure.code || fit_should_stop(f)) return true;
    if (!fit_step(f)) return false;
    if (p->done == p->step) return true;
    if (last && !fit_evaluate(f)) return false;
    // even if another reason would have ended it, too
    if (last && p->end_reason != CT_FIT_FAILED) p->end_reason = CT_FIT_DONE;
    fit_update_stats(f);
    if (!fit_call_callbacks(f, FIT_ON_STEP) || (!fit_write_step(f) && !fit_defer_error(f)))
        return false;
    bool save_now = o->save_every > 0 && p->done % o->save_every == 0;
    return p->end_reason || !save_now || fit_save(f);
}

// True if all steps are done, and the fit was stopped in the evaluation after them.
static bool fit_lacks_last_evaluation(const fit *f) {
    const ct_fit_best *best = &f->point.best;
    if (!f->o->evaluate || f->point.done < f->point.steps) return false;
    return best->evaluations ? best->last_evaluated_step != f->point.done
                             : f->line && !f->evaluation;
}

// Makes the last evaluation late, and writes its result where it would have been written.
static bool fit_evaluate_late(fit *f) {
    ct_fit_state *p = &f->point;
    if (!fit_evaluate(f)) return false;
    if (!p->evaluated || f->evaluation) return true;
    const ct_scalar_event scalar = {"val_loss", p->val_loss};
    const ct_metric_field field = CT_FIELD_REAL("val_loss", p->val_loss);
    bool ok = ct__series_add(&f->val_losses, (double)p->step, p->val_loss) ||
              ct__err_memory(f->err, f->here, "train", f->val_losses.cap * 2 * sizeof(double));
    ok = ok && fit_amend_metrics(f, NULL, &field) &&
         (!f->o->tensorboard_dir || ct__events_add(&f->events, p->step, &scalar, 1, f->err));
    return ok || fit_defer_error(f);
}

static bool fit_run_steps(fit *f) {
    ct_fit_state *p = &f->point;
    if (p->done == p->steps) {
        if (fit_lacks_last_evaluation(f) && !fit_evaluate_late(f)) return false;
        if (p->end_reason != CT_FIT_FAILED) p->end_reason = CT_FIT_DONE;
        return true;
    }
    if (!p->end_reason && fit_is_out_of_patience(f))
        p->end_reason = CT_FIT_PATIENCE; // it had ended before
    if (!p->end_reason && !fit_amend_metrics(f, "ended", NULL)) return false;
    while (p->done < p->steps && !p->end_reason && !fit_should_stop(f)) {
        p->step = p->done;
        if (!fit_advance(f)) return false;
    }
    return true;
}

// Completes the line of the latest step: it could not be written, or a callback ended the fit after it, on
// a save.
static bool fit_complete_metrics(fit *f) {
    const ct_fit_state *p = &f->point;
    const ct_metric_field reason = CT_FIELD_TEXT("ended", fit_end_names[p->end_reason]);
    if (p->done == f->o->first_step || !f->o->metrics_path) return true;
    if (!f->line) return fit_add_metrics(f);
    return p->end_reason != CT_FIT_STOPPED || f->ended || fit_amend_metrics(f, NULL, &reason);
}

static bool fit_run(fit *f) {
    ct_fit_state *p = &f->point;
    f->plans = ct_get_stats().plans_made;
    if (!fit_run_steps(f) || (!fit_complete_metrics(f) && !fit_defer_error(f))) return false;
    if (!p->end_reason) p->end_reason = f->stopped ? CT_FIT_INTERRUPTED : CT_FIT_DONE;
    if (f->saved != p->done && !fit_save(f)) return false;
    if (f->failure.code) {
        *f->err = f->failure;
        return false;
    }
    // The fit was stopped in the last evaluation, which is missing.
    if (f->stopped) p->end_reason = CT_FIT_INTERRUPTED;
    if (p->end_reason != CT_FIT_INTERRUPTED) return true;
    return ct__err(f->err, CT_E_INTERRUPTED, f->here, "train", "stopped after %lld of %lld steps",
                   (long long)p->done, (long long)p->steps);
}

static bool fit_series_ends_at(const ct_series *series, int64_t step) {
    return series->n && series->last_step == (double)step;
}

// Opens the metrics; nothing in the file is removed before everything is known to be correct.
static bool fit_open_metrics(fit *f) {
    static const char *const names[] = {"loss", "val_loss"};
    const char *path = f->o->metrics_path;
    int64_t first = f->o->first_step;
    ct_series s[2] = {0};
    if (!path) return true;
    if (!first) return ct__metrics_open(path, false, &f->metrics, f->err);
    bool ok = ct__metrics_read_before(path, first, names, 2, s, f->err) &&
              ct__metrics_open(path, true, &f->metrics, f->err);
    f->losses = s[0];
    f->val_losses = s[1];
    f->line = fit_series_ends_at(&s[0], first - 1);
    f->evaluation = fit_series_ends_at(&s[1], first - 1);
    return ok;
}

static bool fit_begin(fit *f) {
    if (!fit_call_callbacks(f, FIT_ON_BEGIN)) return false;
    if (!f->failure.code)
        return !f->o->metrics_path || !f->o->first_step ||
               ct__metrics_truncate(f->o->metrics_path, f->o->first_step, f->err);
    *f->err = f->failure;
    return false;
}

// ------------------------------------------------------------------------------------------- options

static bool fit_check_options(const ct_fit_options *o, ct_err *err, ct_loc here) {
    if (!o->optim || !o->loss)
        return ct__err(err, CT_E_ARGUMENT, here, "fit", "%s must not be NULL",
                       !o->optim ? "the optimizer" : "the function of the loss");
    if (o->steps < 1)
        return ct__err(err, CT_E_ARGUMENT, here, "fit", "steps is %lld, it must be 1 or more",
                       (long long)o->steps);
    if (o->first_step < 0 || o->first_step > o->steps)
        return ct__err(err, CT_E_ARGUMENT, here, "fit", "first_step is %lld of %lld steps",
                       (long long)o->first_step, (long long)o->steps);
    if (o->accumulate < 0 || o->patience < 0)
        return ct__err(err, CT_E_ARGUMENT, here, "fit", "%s is %lld, it must be 0 or more",
                       o->accumulate < 0 ? "accumulate" : "patience",
                       (long long)(o->accumulate < 0 ? o->accumulate : o->patience));
    if (!(o->min_delta >= 0 && isfinite(o->min_delta)))
        return ct__err(err, CT_E_ARGUMENT, here, "fit", "min_delta is %g, it must be 0 or more",
                       o->min_delta);
    if (o->patience && !o->evaluate)
        return ct__err(err, CT_E_ARGUMENT, here, "fit",
                       "patience is %lld, but there is no function that evaluates",
                       (long long)o->patience);
    if (o->n_callbacks && !o->callbacks)
        return ct__err(err, CT_E_ARGUMENT, here, "fit", "the callbacks must not be NULL");
    return true;
}

bool ct_fit_at(const ct_fit_options *options, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, options, here, "fit", "the options") || ctx->err.code ||
        !fit_check_options(options, &ctx->err, here))
        return false;
    fit f = {.o = options,
             .here = here,
             .record = here.file ? here : CT_HERE,
             .err = &ctx->err,
             .metrics.fd = -1,
             .events.fd = -1,
             .saved = -1};
    f.point = (ct_fit_state){.steps = options->steps,
                             .step = options->first_step ? options->first_step - 1 : 0,
                             .done = options->first_step,
                             .loss = NAN,
                             .val_loss = NAN,
                             .seconds_left = NAN,
                             .best = options->best};
    bool ok = fit_open_metrics(&f);
    ok = ok && (!options->tensorboard_dir ||
                ct__events_open(options->tensorboard_dir, f.point.done, &f.events, f.err));
    // Gradients that an interrupted fit or loop accumulated do not belong to this fit.
    ok = ok && ct_optim_clear_accumulated_at(options->optim, f.record) &&
         (fit_micro_batches(options) == 1 || ct__optim_make_sums(options->optim, f.record));
    ok = ok && fit_begin(&f) && fit_run(&f);
    ct__err_locate(f.err, here, "fit");
    fit_call_on_end(&f, ok);
    ct__metrics_close(&f.metrics);
    ct__events_close(&f.events);
    ct__series_free(&f.losses);
    ct__series_free(&f.val_losses);
    return ok && !ctx->err.code;
}
