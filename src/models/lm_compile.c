// Exports a saved model as C ahead of time: the logits of the next token, the logits of a window, or a
// training step. Everything is recorded for a dry device: nothing runs, and unless weights are embedded
// only their sizes are read.
#include <inttypes.h>

#include "graph/plans.h"
#include "models/lm.h"

typedef struct export_job {
    const ct_lm_compile_options *options;
    ct_lm *lm;
    ct_lm_train_options train_options; // STEP: the options that the folder's model was trained with
    int64_t batch, context;
    int32_t *zeros; // (batch, context), the stand-in for tokens
    ct_err *err;
} export_job;

static ct_tensor export_tokens(const export_job *j, int64_t time) {
    return ct_from_at(j->zeros, CT_I32, CT_DIMS(j->batch, time), CT_NOWHERE);
}

static bool export_write_files(const export_job *j, const ct_named_tensor *names, size_t n) {
    ct_compile_args args = {.path = j->options->path, .names = {names, n}};
    if (j->options->embed) args.embed_params = ct_lm_params(j->lm);
    return ct_compile_with(args);
}

static bool export_decode(const export_job *j) {
    ct_lm_cache *cache = ct__lm_decode_cache(j->lm, j->batch, j->context, CT_NOWHERE);
    bool ok = cache != NULL;
    if (ok) {
        CT_SCOPE;
        ct_tensor tokens = export_tokens(j, 1), position = ct_i(0); // (B, 1)
        ct_tensor logits =
            ct_keep_at(ct__lm_decode(j->lm, cache, tokens, position, j->context, CT_NOWHERE),
                       CT_NOWHERE); // (B, vocab)
        const ct_named_tensor names[] = {
            {"tokens", tokens}, {"position", position}, {"logits", logits}};
        ok = export_write_files(j, names, 3);
    }
    ct__lm_cache_free(cache);
    return ok;
}

static bool export_forward(const export_job *j) {
    CT_SCOPE;
    ct_tensor tokens = export_tokens(j, j->context); // (B, T)
    ct_tensor logits = ct_keep_at(ct_lm_logits_at(j->lm, tokens, NULL, CT_NOWHERE), CT_NOWHERE);
    const ct_named_tensor names[] = {{"tokens", tokens}, {"logits", logits}}; // (B, T, vocab)
    return export_write_files(j, names, 2);
}

static bool export_train_step(const export_job *j) {
    static const uint32_t some_key[2];
    ct_optim *optim = ct__lm_optim(ct_lm_params(j->lm), &j->train_options);
    bool ok = optim != NULL;
    if (ok) {
        CT_SCOPE;
        ct_tensor tokens = export_tokens(j, j->context), targets = export_tokens(j, j->context);
        ct_nn_mode mode = {.training = true, .dropout = (float)j->train_options.dropout};
        if (j->train_options.dropout > 0)
            mode.key = ct_from_at(some_key, CT_U32, CT_DIMS(2), CT_NOWHERE);
        const ct_tensor key = mode.key; // which the layers split
        ct_tensor loss;
        {
            CT_AUTOCAST(j->train_options.precision);
            loss = ct_lm_loss_at(j->lm, tokens, targets, &mode, CT_NOWHERE);
        }
        ct_metric_at("loss", loss, CT_NOWHERE);
        ct_optim_step_at(optim, loss, CT_NOWHERE);
        const ct_named_tensor names[] = {{"tokens", tokens},
                                         {"targets", targets},
                                         {"learning_rate", ct_optim_lr_operand(optim)},
                                         {"key", key}};
        ok = export_write_files(j, names, key.bits ? 4 : 3);
    }
    ct_optim_free(optim);
    return ok;
}

// Refuses a step of several batches, which would be several functions.
static bool export_check_accumulate(const export_job *j) {
    int64_t n = j->train_options.accumulate;
    if (n == 1 || j->options->batch) return true;
    ct__err(j->err, CT_E_USAGE, CT_NOWHERE, "compile",
            "a step of the run in %s takes %" PRId64 " batches of %" PRId64
            ", a function takes one",
            j->options->dir, n, j->train_options.batch);
    return ct__err_hint(j->err,
                        ".batch %" PRId64
                        " takes the sequences of all of them at once, which is the same "
                        "but for rounding and dropout",
                        n * j->train_options.batch);
}

// Fills in the sizes that the options leave open: the model's, or for a step those of its run.
static bool export_fill_sizes(export_job *j) {
    const ct_lm_compile_options *o = j->options;
    bool step = o->function == CT_LM_C_STEP;
    int64_t max_context = ct__lm_max_context(j->lm);
    if (step &&
        (!ct__lm_settings_read(o->dir, &j->train_options, j->err) || !export_check_accumulate(j)))
        return false;
    if (o->context > max_context)
        return ct__err(j->err, CT_E_USAGE, CT_NOWHERE, "compile",
                       ".context %" PRId64 " is more than the %" PRId64 " tokens of the model",
                       o->context, max_context);
    j->batch = o->batch ? o->batch : step ? j->train_options.batch : 1;
    j->context = o->context ? o->context : step ? j->train_options.context : max_context;
    j->zeros = ct__calloc((size_t)j->batch, (size_t)j->context * sizeof *j->zeros);
    return j->zeros ||
           ct__err_memory(j->err, CT_NOWHERE, "compile", (size_t)j->batch * sizeof *j->zeros);
}

static bool export_model(export_job *j) {
    bool ok = export_fill_sizes(j);
    switch (j->options->function) {
    case CT_LM_C_TOKEN: ok = ok && export_decode(j); break;
    case CT_LM_C_WINDOW: ok = ok && export_forward(j); break;
    case CT_LM_C_STEP: ok = ok && export_train_step(j); break;
    }
    ct__free(j->zeros);
    return ok && !j->err->code;
}

static bool export_options_check(const ct_lm_compile_options *o, ct_err *err) {
    if (!o->dir || !o->path)
        return ct__err(err, CT_E_USAGE, CT_NOWHERE, "compile",
                       "the folder of a model and the path of the files are needed");
    if (o->batch < 0 || o->context < 0 || (unsigned)o->function > CT_LM_C_STEP)
        return ct__err(err, CT_E_USAGE, CT_NOWHERE, "compile", "an option is out of its range");
    if (!ct__check_function_name(o->path, CT_E_USAGE, CT_NOWHERE, err)) return false;
    if (o->embed && o->function == CT_LM_C_STEP)
        return ct__err(err, CT_E_USAGE, CT_NOWHERE, "compile",
                       ".embed is not allowed for a training step, which changes the weights");
    return true;
}

bool ct_lm_compile(const ct_lm_compile_options *o) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, o, CT_NOWHERE, "compile", "the options") || ctx->err.code ||
        !export_options_check(o, &ctx->err))
        return false;
    const bool step = o->function == CT_LM_C_STEP; // a training step needs f32 weights
    ct_lm *embedded = NULL;                        // with the values of the file
    if (o->embed && !(embedded = ct__lm_load_run(o->dir, step))) {
        ct__lm_offer_save(o->dir, &ctx->err);
        return false;
    }
    ct_lm_dry_run h = {0};
    ct_lm_cost cost = {0};
    bool ok = ct__dry_run_begin(&h, ctx, 0, &ctx->err);
    if (ok) {
        export_job j = {.options = o, .lm = embedded, .err = &h.ctx->err};
        if (!o->embed && !(j.lm = ct__lm_load_run(o->dir, step))) {
            ct__lm_offer_save(o->dir, j.err);
            ok = false;
        }
        ok = ok && export_model(&j);
        if (!o->embed) ct_lm_free(j.lm);
    }
    ct__dry_run_end(&h, &cost, &ctx->err);
    ct_lm_free(embedded);
    return ok;
}
