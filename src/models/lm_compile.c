// A saved model as C, ahead of time: the scores of the next token, of all in a window, or a step of
// its training. Recorded for a dry device: nothing runs, and weights are read for their sizes alone
// where they do not stand in the file.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "compile/ahead/ahead.h"
#include "graph/graph.h"
#include "models/lm.h"

typedef struct job {
    const ct_lm_compile_options *o;
    ct_learner model;
    ct_lm_train_options run; // STEP: as the folder's model was trained
    int64_t batch, context;
    int32_t *zeros; // (batch, context), what tokens look like
    ct_err *err;
} job;

static ct_tensor tokens_of(const job *j, int64_t time) {
    return ct_from_at(j->zeros, CT_I32, CT_DIMS(j->batch, time), CT_NOWHERE);
}

static bool write_files(const job *j, const ct_named *names, size_t n) {
    ct_compile_args args = {.path = j->o->path, .names = {names, n}};
    if (j->o->embed) args.embed = ct__learner_params(&j->model);
    return ct_compile_with(args);
}

// A step of a stack, whose texts each have pages of their own, one after the other.
static ct_tensor stack_token(const job *j, ct_lm_cache *cache, ct_tensor tokens,
                             ct_tensor position) {
    const int64_t pages = cache->pages / j->batch;
    ct_tensor first = ct_mul_at(ct_iota_at(CT_I32, CT_DIMS(j->batch, 1), 0, CT_NOWHERE),
                                ct_i(pages), CT_NOWHERE); // (B, 1)
    const ct_lm_part part = {
        .tokens = tokens,
        .position =
            ct_add_at(ct_zeros_at(CT_I32, CT_DIMS(j->batch, 1), CT_NOWHERE), position, CT_NOWHERE),
        .table = ct_add_at(first, ct_iota_at(CT_I32, CT_DIMS(1, pages), 1, CT_NOWHERE), CT_NOWHERE),
        .state = ct_iota_at(CT_I32, CT_DIMS(j->batch), 0, CT_NOWHERE)};
    return ct__lm_step(j->model.lm, cache, &part, 1, j->context, CT_NOWHERE);
}

static bool write_token(const job *j) {
    const int64_t pages = (j->context + CT_LM_PAGE - 1) / CT_LM_PAGE;
    ct_gpt2_cache *gpt2 = NULL;
    ct_lm_cache *lm = NULL;
    if (j->model.gpt2)
        gpt2 = ct_gpt2_cache_new_at(j->model.gpt2, j->batch, j->context, CT_NOWHERE);
    else
        lm = ct__lm_cache_new(j->model.lm, j->batch * pages, j->batch, CT_F32, CT_NOWHERE);
    bool ok = gpt2 || lm;
    if (ok) {
        CT_SCOPE;
        ct_tensor tokens = tokens_of(j, 1), position = ct_i(0); // (B, 1)
        ct_tensor logits =
            gpt2 ? ct_gpt2_decode_at(j->model.gpt2, gpt2, tokens, position, CT_NOWHERE)
                 : stack_token(j, lm, tokens, position);
        logits = ct_keep_at(logits, CT_NOWHERE); // (B, vocab)
        const ct_named names[] = {{"tokens", tokens}, {"position", position}, {"logits", logits}};
        ok = write_files(j, names, 3);
    }
    ct_gpt2_cache_free(gpt2);
    ct__lm_cache_free(lm);
    return ok;
}

static bool write_window(const job *j) {
    CT_SCOPE;
    ct_tensor tokens = tokens_of(j, j->context); // (B, T)
    ct_tensor logits =
        ct_keep_at(ct__learner_logits(&j->model, tokens, NULL, CT_NOWHERE), CT_NOWHERE);
    const ct_named names[] = {{"tokens", tokens}, {"logits", logits}}; // (B, T, vocab)
    return write_files(j, names, 2);
}

static bool write_step(const job *j) {
    static const uint32_t some_key[2];
    ct_optim *optim = ct__lm_optim(ct__learner_params(&j->model), &j->run);
    bool ok = optim != NULL;
    if (ok) {
        CT_SCOPE;
        ct_tensor tokens = tokens_of(j, j->context), targets = tokens_of(j, j->context);
        ct_nn_mode mode = {.training = true, .dropout = (float)j->run.dropout};
        if (j->run.dropout > 0) mode.key = ct_from_at(some_key, CT_U32, CT_DIMS(2), CT_NOWHERE);
        const ct_tensor key = mode.key; // which the layers split
        ct_tensor loss;
        {
            CT_AUTOCAST(j->run.precision);
            loss = ct__learner_loss(&j->model, tokens, targets, &mode, CT_NOWHERE);
        }
        ct_metric_at("loss", loss, CT_NOWHERE);
        ct_optim_step_at(optim, loss, CT_NOWHERE);
        const ct_named names[] = {{"tokens", tokens},
                                  {"targets", targets},
                                  {"learning_rate", ct_optim_rate(optim)},
                                  {"key", key}};
        ok = write_files(j, names, key.bits ? 4 : 3);
    }
    ct_optim_free(optim);
    return ok;
}

// A step of several batches would be several functions.
static bool one_batch(const job *j) {
    int64_t n = j->run.accumulate;
    if (n == 1 || j->o->batch) return true;
    ct__err(j->err, CT_E_USAGE, CT_NOWHERE, "compile",
            "a step of the run in %s takes %" PRId64 " batches of %" PRId64
            ", a function takes one",
            j->o->dir, n, j->run.batch);
    ct__err_hint(j->err,
                 "--batch %" PRId64 " takes the texts of all of them at once, which is the same "
                 "but for rounding and dropout",
                 n * j->run.batch);
    return false;
}

// What is left open is the model's, or of a step its run's.
static bool fill_in(job *j) {
    const ct_lm_compile_options *o = j->o;
    bool step = o->function == CT_LM_C_STEP;
    int64_t longest = ct__learner_context(&j->model);
    if (step && (!ct__lm_settings_read(o->dir, &j->run, j->err) || !one_batch(j))) return false;
    if (o->context > longest)
        return ct__err(j->err, CT_E_USAGE, CT_NOWHERE, "compile",
                       "--context %" PRId64 " is more than the %" PRId64 " tokens of the model",
                       o->context, longest);
    j->batch = o->batch ? o->batch : step ? j->run.batch : 1;
    j->context = o->context ? o->context : step ? j->run.context : longest;
    j->zeros = ct__calloc((size_t)j->batch, (size_t)j->context * sizeof *j->zeros);
    return j->zeros ||
           ct__err_memory(j->err, CT_NOWHERE, "compile", (size_t)j->batch * sizeof *j->zeros);
}

static bool write_model(job *j) {
    bool ok = fill_in(j);
    switch (j->o->function) {
    case CT_LM_C_TOKEN: ok = ok && write_token(j); break;
    case CT_LM_C_WINDOW: ok = ok && write_window(j); break;
    case CT_LM_C_STEP: ok = ok && write_step(j); break;
    }
    ct__free(j->zeros);
    return ok && !j->err->code;
}

static bool usable(const ct_lm_compile_options *o, ct_err *err) {
    if (!o->dir || !o->path)
        return ct__err(err, CT_E_USAGE, CT_NOWHERE, "compile",
                       "the folder of a model and the path of the files are needed");
    if (o->batch < 0 || o->context < 0 || (unsigned)o->function > CT_LM_C_STEP)
        return ct__err(err, CT_E_USAGE, CT_NOWHERE, "compile", "an option is out of its range");
    const char *slash = strrchr(o->path, '/'), *name = slash ? slash + 1 : o->path;
    if (!ct__ahead_function_name(name))
        return ct__ahead_bad_name(err, CT_E_USAGE, CT_NOWHERE, name);
    if (o->embed && o->function == CT_LM_C_STEP)
        return ct__err(err, CT_E_USAGE, CT_NOWHERE, "compile",
                       "--embed is not for a step of training, which changes the weights");
    return true;
}

bool ct_lm_compile(const ct_lm_compile_options *o) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, o, CT_NOWHERE, "compile", "the options") || ctx->err.code ||
        !usable(o, &ctx->err))
        return false;
    const bool step = o->function == CT_LM_C_STEP; // of weights that are f32
    ct_learner values = {0};                       // with what stands in the file
    if (o->embed && !ct__learner_load(o->dir, step, &values)) {
        ct__lm_offer_save(o->dir, &ctx->err);
        return false;
    }
    ct_lm_rehearsal h = {0};
    ct_lm_cost cost = {0};
    bool ok = ct__rehearsal_begin(&h, ctx, 0, &ctx->err);
    if (ok) {
        job j = {.o = o, .model = values, .err = &h.ctx->err};
        if (!o->embed && !ct__learner_load(o->dir, step, &j.model)) {
            ct__lm_offer_save(o->dir, j.err);
            ok = false;
        }
        ok = ok && write_model(&j);
        if (!o->embed) ct__learner_free(&j.model);
    }
    ct__rehearsal_end(&h, &cost, &ctx->err);
    ct__learner_free(&values);
    return ok;
}
