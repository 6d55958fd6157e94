// The fit loop. A step is recorded anew each time and its values are fetched behind its scope, so
// that nothing waits for the device earlier than it must.
#include <math.h>

#include "base/os.h"
#include "base/plain.h"
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
    ct_loc record; // for what is recorded and run: has a file in any case
    ct_err *err;
    ct_metrics metrics;
    ct_events events;
    ct_series losses, val_losses;
    ct_fit_point point;
    double begin;   // of the first step's end: what came before says nothing of those to come
    uint64_t plans; // made when the last line was written
    bool stopped;
    int64_t saved;   // steps of the newest save; -1: none
    ct_err failure;  // of a callback or a file, kept while what there is is saved
    bool line;       // the metrics end with the line of the step done last
    bool evaluation; // of a fit that is resumed: which has the validation loss
    bool ended;      // which says why the fit ended
} fit;

static bool stop_wanted(fit *f) {
    if (!f->stopped && f->o->stop) f->stopped = f->o->stop(f->o->user);
    return f->stopped;
}

// --------------------------------------------------------------------------------------- callbacks

typedef enum { ON_BEGIN, ON_EVALUATE, ON_STEP, ON_SAVE } moment;

// An error of a callback, or of the files that tell of the steps, waits: a context with one saves
// nothing. The first is the one to tell. False: it is one that ends all.
static bool set_aside(fit *f) {
    if (!f->err->code) return true;
    f->point.end = CT_FIT_FAILED;
    if (f->err->code == CT_E_INTERRUPTED) return false; // ct_cancel: who called it does not wait
    if (!f->failure.code) f->failure = *f->err;
    ct_error_clear();
    return true;
}

static bool tell(fit *f, moment when) {
    for (size_t i = 0; i < f->o->n_callbacks && !f->failure.code; i++) {
        const ct_fit_callback *c = &f->o->callbacks[i];
        ct_fit_answer (*told)(const ct_fit_point *, void *) = when == ON_BEGIN      ? c->on_begin
                                                              : when == ON_EVALUATE ? c->on_evaluate
                                                              : when == ON_STEP     ? c->on_step
                                                                                    : c->on_save;
        if (!told) continue;
        if (told(&f->point, c->user) == CT_FIT_STOP && !f->point.end) f->point.end = CT_FIT_STOPPED;
        if (!set_aside(f)) return false;
    }
    return true;
}

static void tell_end(fit *f, bool ok) {
    if (!ok && f->point.end != CT_FIT_INTERRUPTED) f->point.end = CT_FIT_FAILED;
    for (size_t i = 0; i < f->o->n_callbacks; i++)
        if (f->o->callbacks[i].on_end)
            f->o->callbacks[i].on_end(&f->point, f->o->callbacks[i].user);
}

// ------------------------------------------------------------------------------------- evaluations

static bool is_finite(fit *f, const char *what, double loss) {
    if (isfinite(loss)) return true;
    ct__err(f->err, CT_E_DATA, f->here, "train", "the %s is %s at step %lld", what,
            isnan(loss) ? "not a number" : "infinite", (long long)f->point.step);
    ct__err_hint(f->err, "a smaller learning rate, a longer warm-up or clipping may help");
    return false;
}

static bool out_of_patience(const fit *f) {
    return f->o->patience > 0 && f->point.best.evaluations > 0 &&
           f->point.best.stale >= f->o->patience;
}

// Any lower loss is the best one; patience counts from one that is lower by enough. Weights that
// are evaluated again, as the first ones of a run that is made longer, count once.
static void compare_with_best(fit *f) {
    ct_fit_point *p = &f->point;
    ct_fit_best *best = &p->best;
    if (best->evaluations && best->newest == p->done) return;
    CT_PLAIN;
    bool first = !best->evaluations++;
    best->newest = p->done;
    best->stale++;
    p->improved = first || p->val_loss < best->val_loss;
    if (p->improved) {
        best->val_loss = p->val_loss;
        best->steps = p->done;
    }
    if (first || p->val_loss < best->counted - f->o->min_delta) {
        best->counted = p->val_loss;
        best->stale = 0;
    }
}

// A function that gave up; without a reason it is an error all the same.
static bool gave_up(fit *f, const char *function) {
    return ct__err(f->err, CT_E_ARGUMENT, f->here, "fit", "%s returned false, and left no error",
                   function);
}

static bool evaluate(fit *f) {
    ct_fit_point *p = &f->point;
    double value = NAN;
    if (!f->o->evaluate) return true;
    if (!f->o->evaluate(&value, f->o->user)) return gave_up(f, "evaluate");
    if (f->err->code) return false;
    if (stop_wanted(f)) return true; // it may have left before it was done
    p->val_loss = value;
    p->evaluated = true;
    if (!is_finite(f, "validation loss", value)) return false;
    compare_with_best(f);
    if (!tell(f, ON_EVALUATE)) return false;
    if (!p->end && out_of_patience(f)) p->end = CT_FIT_PATIENCE;
    return true;
}

// ------------------------------------------------------------------------------------------- steps

static int64_t parts_of(const ct_fit_options *o) { return o->accumulate > 1 ? o->accumulate : 1; }

// What the function of the loss returned: who called the fit recorded none of what is done with it.
static bool is_loss(fit *f, ct_tensor t) {
    ct_val v;
    uint32_t out;
    ct_slot_past past;
    if (f->err->code) return false;
    if (!t.bits)
        return ct__err(f->err, CT_E_ARGUMENT, f->here, "fit",
                       "the function of the loss returned no tensor");
    if (!ct__peek(t, &out) && ct__stale_past(t, &past) && past.kind == CT_PAST_SCOPE) {
        ct__err(f->err, CT_E_STALE, f->here, "fit",
                "the function of the loss returned a tensor whose scope had ended: made at %s:%u",
                past.made.file ? past.made.file : "?", past.made.line);
        ct__err_hint(f->err, "it needs no CT_SCOPE: each step has one");
        return false;
    }
    if (!ct__resolve(ct__ctx(), t, &v, "fit", CT_OUTPUT(0), f->record)) return false;
    const ct_type *type = ct__type(v);
    if (ct__count(type) == 1) return true;
    ct__err(f->err, CT_E_SHAPE, f->here, "fit", "the loss must be one float, it is %s",
            ct__type_text(type).s);
    ct__err_hint(f->err, "ct_mean or ct_sum makes it one number");
    return false;
}

// Where the loss is scaled, one that is not finite is a step that was left out; its scale falls with
// each of them, and where it says nothing any more, the model is broken. So it is where the scale has fallen
// that far by gradients alone.
static bool is_usable_loss(fit *f, double loss, bool last) {
    ct_fit_point *p = &f->point;
    if (!ct__optim_scales(f->o->optim)) return is_finite(f, "loss", loss);
    if (!last) return true;
    p->loss_scale = ct_metric_value("loss_scale");
    if (f->err->code || (p->loss_scale < 1 && !is_finite(f, "loss", p->loss))) return false;
    return p->loss_scale >= 0x1p-40 || ct__err(f->err, CT_E_DATA, f->here, "train",
                                               "the gradients are not finite at step %lld, "
                                               "whatever the scale of the loss, which has "
                                               "fallen to %.2g",
                                               (long long)p->step, p->loss_scale);
}

// Part k of the step; its loss is added to `sum`. The last one makes the update, whatever its loss
// is.
static bool run_part(fit *f, int64_t k, int64_t parts, double *sum) {
    ct_fit_point *p = &f->point;
    ct_scope turn = ct_scope_begin(f->record);
    ct_tensor of_part = f->o->loss(p->step * parts + k, f->o->user);
    if (!is_loss(f, of_part)) {
        ct_scope_end(turn, f->record);
        return false;
    }
    ct_metric_at("loss", of_part, f->record);
    if (k + 1 < parts)
        ct_optim_accumulate_at(f->o->optim, of_part, f->record);
    else
        ct_optim_step_at(f->o->optim, of_part, f->record);
    ct_scope_end(turn, f->record);
    if (f->err->code) return false;
    double loss = ct_metric_value("loss");
    if (f->err->code) return false;
    {
        CT_PLAIN;
        *sum += loss;
        if (k + 1 == parts) p->loss = *sum / (double)parts;
    }
    if (k + 1 == parts) p->done = p->step + 1;
    return is_usable_loss(f, loss, k + 1 == parts);
}

// Where the fit is to stop between two parts, the step is not done.
static bool step(fit *f) {
    ct_fit_point *p = &f->point;
    int64_t parts = parts_of(f->o);
    double begin = ct__now(), sum = 0;
    p->lr = ct_optim_lr(f->o->optim);
    for (int64_t k = 0; k < parts; k++) {
        if (k && stop_wanted(f)) return ct_optim_forget_parts_at(f->o->optim, f->record);
        if (!run_part(f, k, parts, &sum)) return false;
    }
    p->grad_norm = ct_metric_value("grad_norm");
    if (f->err->code) return false;
    double seconds = ct__now() - begin;
    p->ms = seconds * 1e3;
    p->tokens_per_s = seconds > 0 ? (double)f->o->tokens_per_step / seconds : 0;
    return true;
}

static void look_around(fit *f) {
    ct_fit_point *p = &f->point;
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

static const char *const ends[CT_FIT_FAILED + 1] = {
    [CT_FIT_PATIENCE] = "patience", [CT_FIT_STOPPED] = "callback"};

static bool add_to_metrics(fit *f) {
    const ct_fit_point *p = &f->point;
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
    if (ends[p->end]) fields[n++] = CT_FIELD_TEXT("ended", ends[p->end]);
    f->line = f->o->metrics && ct__metrics_add(&f->metrics, fields, n, f->err);
    f->ended = ends[p->end];
    return f->line || !f->o->metrics;
}

// Changes the line of the step done last, where there is one.
static bool amend_metrics(fit *f, const char *without, const ct_metric_field *with) {
    return !f->line || ct__metrics_amend(&f->metrics, without, with, f->err);
}

static bool add_to_series(fit *f) {
    const ct_fit_point *p = &f->point;
    bool ok = ct__series_add(&f->losses, (double)p->step, p->loss);
    if (p->evaluated) ok = ok && ct__series_add(&f->val_losses, (double)p->step, p->val_loss);
    return ok || ct__err_memory(f->err, f->here, "train", f->losses.cap * 2 * sizeof(double));
}

// The step, in all places that tell of it.
static bool write_step(fit *f) {
    const ct_fit_point *p = &f->point;
    const ct_scalar_event scalars[] = {{"loss", p->loss},
                                       {"lr", p->lr},
                                       {"grad_norm", p->grad_norm},
                                       {"tokens_per_s", p->tokens_per_s},
                                       {"val_loss", p->val_loss}};
    size_t shown = sizeof scalars / sizeof *scalars - !p->evaluated;
    return add_to_series(f) && add_to_metrics(f) &&
           (!f->o->events || ct__events_add(&f->events, p->step, scalars, shown, f->err));
}

static bool save(fit *f) {
    // A checkpoint's steps are never missing in the metrics, whatever is lost with the power.
    if (f->metrics.fd >= 0 && !ct__metrics_sync(&f->metrics, f->err) && !set_aside(f)) return false;
    if (f->o->save && !f->o->save(f->point.done, f->o->user)) return gave_up(f, "save");
    f->saved = f->point.done;
    return (!f->o->plot || ct__svg_loss_write(f->o->plot, f->o->title ? f->o->title : "loss",
                                              &f->losses, &f->val_losses, f->err)) &&
           tell(f, ON_SAVE);
}

// One step, with the evaluation that belongs to it.
static bool advance(fit *f) {
    const ct_fit_options *o = f->o;
    ct_fit_point *p = &f->point;
    bool last = p->step == o->steps - 1;
    bool due = p->step == 0 || (o->eval_every > 0 && p->step % o->eval_every == 0);
    p->evaluated = p->improved = false;
    if (due && !last && !evaluate(f)) return false;
    if (f->failure.code || stop_wanted(f)) return true;
    if (!step(f)) return false;
    if (p->done == p->step) return true;
    if (last && !evaluate(f)) return false;
    if (last && p->end != CT_FIT_FAILED) p->end = CT_FIT_DONE; // whatever else would have ended it
    look_around(f);
    if (!tell(f, ON_STEP) || (!write_step(f) && !set_aside(f))) return false;
    bool save_now = o->save_every > 0 && p->done % o->save_every == 0;
    return p->end || !save_now || save(f);
}

// All steps are done, and somebody stopped the fit in the evaluation behind them.
static bool lacks_last_evaluation(const fit *f) {
    const ct_fit_best *best = &f->point.best;
    if (!f->o->evaluate || f->point.done < f->point.steps) return false;
    return best->evaluations ? best->newest != f->point.done : f->line && !f->evaluation;
}

// Made up for, it stands where it would have stood.
static bool evaluate_last(fit *f) {
    ct_fit_point *p = &f->point;
    if (!evaluate(f)) return false;
    if (!p->evaluated || f->evaluation) return true;
    const ct_scalar_event scalar = {"val_loss", p->val_loss};
    const ct_metric_field field = CT_FIELD_REAL("val_loss", p->val_loss);
    bool ok = ct__series_add(&f->val_losses, (double)p->step, p->val_loss) ||
              ct__err_memory(f->err, f->here, "train", f->val_losses.cap * 2 * sizeof(double));
    ok = ok && amend_metrics(f, NULL, &field) &&
         (!f->o->events || ct__events_add(&f->events, p->step, &scalar, 1, f->err));
    return ok || set_aside(f);
}

static bool run_steps(fit *f) {
    ct_fit_point *p = &f->point;
    if (p->done == p->steps) {
        if (lacks_last_evaluation(f) && !evaluate_last(f)) return false;
        if (p->end != CT_FIT_FAILED) p->end = CT_FIT_DONE;
        return true;
    }
    if (!p->end && out_of_patience(f)) p->end = CT_FIT_PATIENCE; // it had ended before
    if (!p->end && !amend_metrics(f, "ended", NULL)) return false;
    while (p->done < p->steps && !p->end && !stop_wanted(f)) {
        p->step = p->done;
        if (!advance(f)) return false;
    }
    return true;
}

// What is missing in the line of the step done last: it could not be written, or a callback ended
// the fit behind it, on a save.
static bool mend_metrics(fit *f) {
    const ct_fit_point *p = &f->point;
    const ct_metric_field why = CT_FIELD_TEXT("ended", ends[p->end]);
    if (p->done == f->o->first_step || !f->o->metrics) return true;
    if (!f->line) return add_to_metrics(f);
    return p->end != CT_FIT_STOPPED || f->ended || amend_metrics(f, NULL, &why);
}

static bool run(fit *f) {
    ct_fit_point *p = &f->point;
    f->plans = ct_get_stats().plans_made;
    if (!run_steps(f) || (!mend_metrics(f) && !set_aside(f))) return false;
    if (!p->end) p->end = f->stopped ? CT_FIT_INTERRUPTED : CT_FIT_DONE;
    if (f->saved != p->done && !save(f)) return false;
    if (f->failure.code) {
        *f->err = f->failure;
        return false;
    }
    // Asked to stop in the last evaluation: that one is missing.
    if (f->stopped) p->end = CT_FIT_INTERRUPTED;
    if (p->end != CT_FIT_INTERRUPTED) return true;
    return ct__err(f->err, CT_E_INTERRUPTED, f->here, "train", "stopped after %lld of %lld steps",
                   (long long)p->done, (long long)p->steps);
}

static bool ends_at(const ct_series *series, int64_t step) {
    return series->n && series->newest == (double)step;
}

// Nothing of what the file holds goes before all is known to be well.
static bool open_metrics(fit *f) {
    static const char *const names[] = {"loss", "val_loss"};
    const char *path = f->o->metrics;
    int64_t first = f->o->first_step;
    ct_series s[2] = {0};
    if (!path) return true;
    if (!first) return ct__metrics_open(path, false, &f->metrics, f->err);
    bool ok = ct__metrics_read_before(path, first, names, 2, s, f->err) &&
              ct__metrics_open(path, true, &f->metrics, f->err);
    f->losses = s[0];
    f->val_losses = s[1];
    f->line = ends_at(&s[0], first - 1);
    f->evaluation = ends_at(&s[1], first - 1);
    return ok;
}

static bool begin(fit *f) {
    if (!tell(f, ON_BEGIN)) return false;
    if (!f->failure.code)
        return !f->o->metrics || !f->o->first_step ||
               ct__metrics_cut(f->o->metrics, f->o->first_step, f->err);
    *f->err = f->failure;
    return false;
}

// ----------------------------------------------------------------------------------------- options

static bool usable(const ct_fit_options *o, ct_err *err, ct_loc here) {
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
        !usable(options, &ctx->err, here))
        return false;
    fit f = {.o = options,
             .here = here,
             .record = here.file ? here : CT_HERE,
             .err = &ctx->err,
             .metrics.fd = -1,
             .events.fd = -1,
             .saved = -1};
    f.point = (ct_fit_point){.steps = options->steps,
                             .step = options->first_step ? options->first_step - 1 : 0,
                             .done = options->first_step,
                             .loss = NAN,
                             .val_loss = NAN,
                             .seconds_left = NAN,
                             .best = options->best};
    bool ok = open_metrics(&f);
    ok = ok &&
         (!options->events || ct__events_open(options->events, f.point.done, &f.events, f.err));
    // What a fit or a loop that died in the middle of a step has added up is not this one's.
    ok = ok && ct_optim_forget_parts_at(options->optim, f.record) &&
         (parts_of(options) == 1 || ct__optim_sums(options->optim, f.record));
    ok = ok && begin(&f) && run(&f);
    ct__err_place(f.err, here, "fit");
    tell_end(&f, ok);
    ct__metrics_close(&f.metrics);
    ct__events_close(&f.events);
    ct__series_free(&f.losses);
    ct__series_free(&f.val_losses);
    return ok && !ctx->err.code;
}
