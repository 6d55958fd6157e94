// The fit loop. A step is recorded anew each time and its values are fetched behind its scope, so
// that nothing waits for the device earlier than it must.
#include <math.h>

#include "base/os.h"
#include "cotan/train.h"
#include "graph/graph.h"
#include "io/events.h"
#include "io/metrics.h"
#include "io/svg.h"

typedef struct fit {
    const ct_fit_options *o;
    ct_err *err;
    ct_metrics metrics;
    ct_events events;
    ct_series losses, val_losses;
    ct_fit_point point;
    double begin;   // of the first step's end: what came before says nothing of those to come
    uint64_t plans; // made when the last line was written
    bool stopped;
} fit;

static bool stop_wanted(fit *f) {
    if (!f->stopped && f->o->stop) f->stopped = f->o->stop(f->o->user);
    return f->stopped;
}

static bool is_finite(fit *f, const char *what, double loss) {
    if (isfinite(loss)) return true;
    ct__err(f->err, CT_E_DATA, CT_NOWHERE, "train", "the %s is %s at step %lld", what,
            isnan(loss) ? "not a number" : "infinite", (long long)f->point.step);
    ct__err_hint(f->err, "a smaller learning rate, a longer warm-up or clipping may help");
    return false;
}

static bool evaluate(fit *f) {
    double value = NAN;
    if (!f->o->evaluate) return true;
    if (!f->o->evaluate(&value, f->o->user) || f->err->code) return false;
    if (stop_wanted(f)) return true; // it may have left before it was done
    f->point.val_loss = value;
    f->point.evaluated = true;
    return is_finite(f, "validation loss", value);
}

static bool step(fit *f) {
    ct_fit_point *p = &f->point;
    double begin = ct__now();
    p->lr = ct_optim_lr(f->o->optim);
    {
        CT_SCOPE;
        ct_tensor loss = f->o->loss(p->step, f->o->user);
        ct_metric("loss", loss);
        ct_optim_step(f->o->optim, loss);
    }
    if (f->err->code) return false;
    p->loss = ct_metric_value("loss");
    p->grad_norm = ct_metric_value("grad_norm");
    if (f->err->code) return false;
    double seconds = ct__now() - begin;
    p->ms = seconds * 1e3;
    p->tokens_per_s = seconds > 0 ? (double)f->o->tokens_per_step / seconds : 0;
    return is_finite(f, "loss", p->loss);
}

static bool write_line(fit *f) {
    ct_fit_point *p = &f->point;
    uint64_t plans = ct_get_stats().plans_made;
    p->plans_compiled = plans - f->plans;
    f->plans = plans;
    const ct_metric_field fields[] = {
        CT_FIELD_INT("step", p->step),
        CT_FIELD_REAL("loss", p->loss),
        CT_FIELD_REAL("lr", p->lr),
        CT_FIELD_REAL("grad_norm", p->grad_norm),
        CT_FIELD_REAL("ms", p->ms),
        CT_FIELD_REAL("tokens_per_s", p->tokens_per_s),
        CT_FIELD_INT("plans_compiled", (int64_t)p->plans_compiled),
        CT_FIELD_REAL("val_loss", p->val_loss),
    };
    size_t n = sizeof fields / sizeof *fields - !p->evaluated;
    if (f->o->metrics && !ct__metrics_add(&f->metrics, fields, n, f->err)) return false;
    const ct_scalar_event scalars[] = {{"loss", p->loss},
                                       {"lr", p->lr},
                                       {"grad_norm", p->grad_norm},
                                       {"tokens_per_s", p->tokens_per_s},
                                       {"val_loss", p->val_loss}};
    size_t shown = sizeof scalars / sizeof *scalars - !p->evaluated;
    if (f->o->events && !ct__events_add(&f->events, p->step, scalars, shown, f->err)) return false;
    bool ok = ct__series_add(&f->losses, (double)p->step, p->loss);
    if (p->evaluated) ok = ok && ct__series_add(&f->val_losses, (double)p->step, p->val_loss);
    return ok || ct__err_memory(f->err, CT_NOWHERE, "train", f->losses.cap * 2 * sizeof(double));
}

static bool report(fit *f) {
    ct_fit_point *p = &f->point;
    double now = ct__now();
    int64_t done = p->step - f->o->first_step;
    if (!done) f->begin = now;
    p->seconds_left =
        done ? (now - f->begin) / (double)done * (double)(p->steps - 1 - p->step) : NAN;
    p->memory = ct__resident_bytes();
    return !f->o->report || f->o->report(p, f->o->user);
}

static bool save(fit *f, int64_t done) {
    // A checkpoint's steps are never missing in the metrics, whatever is lost with the power.
    if (f->metrics.fd >= 0 && !ct__metrics_sync(&f->metrics, f->err)) return false;
    if (f->o->save && !f->o->save(done, f->o->user)) return false;
    return !f->o->plot || ct__svg_loss_write(f->o->plot, f->o->title ? f->o->title : "loss",
                                             &f->losses, &f->val_losses, f->err);
}

// One step, with the evaluation that belongs to it.
static bool advance(fit *f) {
    const ct_fit_options *o = f->o;
    ct_fit_point *p = &f->point;
    bool last = p->step == o->steps - 1;
    bool due = p->step == 0 || (o->eval_every > 0 && p->step % o->eval_every == 0);
    p->evaluated = false;
    if (due && !last && !evaluate(f)) return false;
    if (stop_wanted(f)) return true;
    if (!step(f) || (last && !evaluate(f)) || !write_line(f) || !report(f)) return false;
    bool save_now = o->save_every > 0 && (p->step + 1) % o->save_every == 0;
    p->step++;
    return last || !save_now || save(f, p->step);
}

static bool run(fit *f) {
    f->plans = ct_get_stats().plans_made;
    while (f->point.step < f->o->steps && !stop_wanted(f))
        if (!advance(f)) return false;
    if (!save(f, f->point.step)) return false;
    if (!f->stopped) return true;
    return ct__err(f->err, CT_E_INTERRUPTED, CT_NOWHERE, "train",
                   "stopped after %lld of %lld steps", (long long)f->point.step,
                   (long long)f->o->steps);
}

static bool open_metrics(fit *f) {
    static const char *const names[] = {"loss", "val_loss"};
    const char *path = f->o->metrics;
    int64_t first = f->o->first_step;
    if (!path) return true;
    if (!first) return ct__metrics_open(path, false, &f->metrics, f->err);
    ct_series s[2] = {0};
    bool ok = ct__metrics_cut(path, first, f->err) &&
              ct__metrics_open(path, true, &f->metrics, f->err) &&
              ct__metrics_read(path, names, 2, s, f->err);
    f->losses = s[0];
    f->val_losses = s[1];
    if (s[1].n) f->point.val_loss = s[1].y[s[1].n - 1];
    return ok;
}

bool ct_fit(const ct_fit_options *options) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, options, CT_NOWHERE, "fit", "the options") || ctx->err.code)
        return false;
    fit f = {.o = options, .err = &ctx->err, .metrics.fd = -1, .events.fd = -1};
    f.point = (ct_fit_point){.steps = options->steps, .val_loss = NAN, .seconds_left = NAN};
    f.point.step = options->first_step;
    if (options->steps < 1 || !options->loss || !options->optim)
        return ct__err(f.err, CT_E_ARGUMENT, CT_NOWHERE, "fit",
                       "an optimizer, a loss and at least one step are needed");
    if (options->first_step < 0 || options->first_step > options->steps)
        return ct__err(f.err, CT_E_ARGUMENT, CT_NOWHERE, "fit", "first_step is %lld of %lld steps",
                       (long long)options->first_step, (long long)options->steps);
    bool ok = open_metrics(&f);
    ok = ok &&
         (!options->events || ct__events_open(options->events, f.point.step, &f.events, f.err));
    ok = ok && run(&f);
    // A callback that gave up without a reason is an error all the same.
    if (!ok) ct__err(f.err, CT_E_ARGUMENT, CT_NOWHERE, "fit", "a callback failed");
    ct__metrics_close(&f.metrics);
    ct__events_close(&f.events);
    ct__series_free(&f.losses);
    ct__series_free(&f.val_losses);
    return ok;
}
