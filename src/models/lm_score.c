// Scores given tokens: the log-likelihoods that a model assigns to them.
#include <string.h>

#include "cotan/eval.h"
#include "models/batches.h"
#include "models/lm_score.h"

// Maximum of logits in memory at one time, unless one row has more.
enum { MAX_LOGITS = 1 << 23, DEFAULT_BATCH = 2048, DEFAULT_CONTEXT = 2048 };

typedef struct score_job {
    const ct_lm *lm;
    const ct_lm_score_input *sequences; // (n)
    ct_lm_score *scores;
    // (n) the input of each sequence: all but its last token, within the context
    ct_lm_tokens *inputs;
    ct_batches batches;
    int32_t *rows,
        *targets;  // (n_scored) of the batch: rows that are scored, and the tokens that follow them
    float *hidden; // (n_scored, width)
    size_t capacity, judged;
    const ct_eval_options *o;
    const char *op;
} score_job;

int64_t ct__eval_context(const ct_lm *lm, const ct_eval_options *o) {
    const int64_t model_context = lm->spec.context ? lm->spec.context : DEFAULT_CONTEXT;
    return o->context ? o->context : model_context;
}

bool ct__eval_fits(const ct_lm *lm, const ct_eval_options *o, const char *op) {
    ct_ctx *ctx = ct__ctx();
    const int64_t model_context = lm->spec.context,
                  max_context = model_context ? model_context : INT32_MAX / 2;
    if (!ct_lm_info(lm).is_generative) {
        ct__fail(ctx, CT_E_ARGUMENT, o->here, op, "%s does not generate text%s", lm->spec.type,
                 lm->has_no_output ? ": its file has no output layer" : "");
    } else if (o->context && (o->context < 2 || o->context > max_context)) {
        ct__fail(ctx, CT_E_ARGUMENT, o->here, op, "context is %lld, it must be 2 to %lld",
                 (long long)o->context, (long long)max_context);
    } else if (o->stride < 0 || o->stride > ct__eval_context(lm, o)) {
        ct__fail(ctx, CT_E_ARGUMENT, o->here, op,
                 "stride is %lld, it must be 1 to %lld, the context", (long long)o->stride,
                 (long long)ct__eval_context(lm, o));
    } else if (o->batch_tokens < 0 || o->batch_tokens > 1 << 24 || o->limit < 0) {
        const bool batch = o->batch_tokens < 0 || o->batch_tokens > 1 << 24;
        ct__fail(ctx, CT_E_ARGUMENT, o->here, op, "%s is %lld, it must be 1 to %lld",
                 batch ? "batch" : "limit", (long long)(batch ? o->batch_tokens : o->limit),
                 batch ? 1LL << 24 : INT64_MAX);
    } else {
        return true;
    }
    return false;
}

static bool score_check_sequence(const score_job *j, size_t i) {
    const ct_lm_score_input *t = &j->sequences[i];
    const int64_t context = ct__eval_context(j->lm, j->o);
    ct_ctx *ctx = ct__ctx();
    if (!t->tokens || t->n_scored >= t->n)
        return ct__refuse(ctx, CT_E_ARGUMENT, j->o->here, j->op,
                          "text %zu has %zu tokens, of which %zu are scored; one at least is given",
                          i, t->n, t->n_scored);
    if (t->n_scored > (size_t)context) {
        return ct__refuse(
            ctx, CT_E_ARGUMENT, j->o->here, j->op,
            "%zu tokens of text %zu are scored; they must be %lld at most, the context",
            t->n_scored, i, (long long)context);
    }
    for (size_t k = 0; k < t->n; k++)
        if (t->tokens[k] < 0 || t->tokens[k] >= j->lm->spec.vocab)
            return ct__refuse(ctx, CT_E_ARGUMENT, j->o->here, j->op,
                              "token %zu of text %zu is %d, it must be 0 to %lld", k, i,
                              (int)t->tokens[k], (long long)j->lm->spec.vocab - 1);
    return true;
}

// Lists the rows of the batch that are scored, and the tokens that follow them.
static bool score_list_rows(score_job *j) {
    const ct_batches *b = &j->batches;
    size_t n = 0;
    for (int64_t i = 0; i < b->rows; i++) n += j->sequences[b->indices[i]].n_scored;
    if (n > j->capacity) {
        ct__free(j->rows), ct__free(j->targets), ct__free(j->hidden);
        j->capacity = n;
        j->rows = ct__malloc(n * sizeof *j->rows);
        j->targets = ct__malloc(n * sizeof *j->targets);
        j->hidden = ct__malloc(n * (size_t)j->lm->spec.width * sizeof *j->hidden);
        if (!j->rows || !j->targets || !j->hidden) {
            j->capacity = 0;
            return ct__err_memory(&ct__ctx()->err, j->o->here, j->op, n * sizeof *j->rows);
        }
    }
    j->judged = 0;
    for (int64_t i = 0; i < b->rows; i++) {
        const ct_lm_score_input *t = &j->sequences[b->indices[i]];
        for (size_t k = 0; k < t->n_scored; k++) {
            j->rows[j->judged] =
                (int32_t)(i * b->time + b->lengths[i] - (int64_t)(t->n_scored - k));
            j->targets[j->judged++] = t->tokens[t->n - t->n_scored + k];
        }
    }
    return true;
}

static bool score_forward(score_job *j) {
    CT_SCOPE;
    const ct_loc here = j->o->here;
    ct_lm_pass pass;
    ct_tensor x = ct__batches_rows(&j->batches, j->lm, &pass, here); // (B * T, width)
    ct_tensor rows = ct_from_at(j->rows, CT_I32, CT_DIMS(ct__varying((int64_t)j->judged)), here);
    // (n_scored, width)
    x = ct_gather_with((ct_gather_args){.x = x, .indices = rows, .here = here});
    const float *values = ct_data_at(x, here);
    if (values) memcpy(j->hidden, values, j->judged * (size_t)j->lm->spec.width * sizeof *values);
    return values;
}

// Computes the log-probabilities of the target tokens of n rows, and whether they are the most probable
// ones.
static bool score_rows(score_job *j, size_t from, size_t n, double *log_p, bool *is_best) {
    CT_SCOPE;
    const ct_loc here = j->o->here;
    const int64_t m = ct__varying((int64_t)n);
    const ct_lm_pass pass = {.lm = j->lm, .here = here};
    ct_tensor x = ct_from_at(j->hidden + from * (size_t)j->lm->spec.width, CT_F32,
                             CT_DIMS(m, j->lm->spec.width), here);
    ct_tensor targets = ct_from_at(j->targets + from, CT_I32, CT_DIMS(m, 1), here);
    ct_tensor scores = ct__stack_logits(&pass, x); // (M, vocab)
    ct_tensor target_logits = ct_take_along_with(
        (ct_take_along_args){.x = scores, .indices = targets, .axis = 1, .here = here}); // (M, 1)
    ct_tensor log_sum = ct_logsumexp_with((ct_logsumexp_args){
        .x = scores, .axes = CT_AXES(1), .keepdims = true, .here = here}); // (M, 1)
    ct_tensor best = ct_argmax_with(
        (ct_argmax_args){.x = scores, .axis = 1, .keepdims = true, .here = here}); // (M, 1)
    ct_tensor logprobs = ct_sub_at(target_logits, log_sum, here);
    ct_tensor outputs[] = {logprobs, best};
    if (!ct_eval_at(outputs, 2, here)) return false;
    const float *logs = ct_data_at(logprobs, here);
    const int32_t *best_ids = ct_data_at(best, here);
    if (!logs || !best_ids) return false;
    for (size_t i = 0; i < n; i++) {
        log_p[i] = (double)logs[i];
        is_best[i] = best_ids[i] == j->targets[from + i];
    }
    return true;
}

static bool score_batch(score_job *j) {
    const size_t max_rows = (size_t)(MAX_LOGITS / j->lm->spec.vocab),
                 chunk = max_rows ? max_rows : 1;
    double *log_p = ct__malloc((j->judged + 1) * sizeof *log_p);
    bool *is_best = ct__malloc((j->judged + 1) * sizeof *is_best);
    bool ok = log_p && is_best;
    if (!ok) ct__err_memory(&ct__ctx()->err, j->o->here, j->op, j->judged * sizeof *log_p);
    for (size_t at = 0; ok && at < j->judged; at += chunk) {
        const size_t left = j->judged - at;
        ok = score_rows(j, at, left < chunk ? left : chunk, log_p + at, is_best + at);
    }
    size_t at = 0;
    for (int64_t i = 0; ok && i < j->batches.rows; i++) {
        const size_t index = j->batches.indices[i];
        ct_lm_score score = {0, true};
        for (size_t k = 0; k < j->sequences[index].n_scored; k++, at++) {
            score.log_likelihood += log_p[at];
            score.greedy = score.greedy && is_best[at];
        }
        j->scores[index] = score;
    }
    ct__free(log_p);
    ct__free(is_best);
    return ok;
}

static bool score_all(score_job *j, size_t n) {
    const ct_eval_options *o = j->o;
    const size_t context = (size_t)ct__eval_context(j->lm, o);
    j->inputs = ct__malloc((n + 1) * sizeof *j->inputs);
    if (!j->inputs) return ct__err_memory(&ct__ctx()->err, o->here, j->op, n * sizeof *j->inputs);
    for (size_t i = 0; i < n; i++) {
        if (!score_check_sequence(j, i)) return false;
        const size_t total = j->sequences[i].n - 1, skipped = total > context ? total - context : 0;
        j->inputs[i] = (ct_lm_tokens){j->sequences[i].tokens + skipped, total - skipped};
    }
    if (!ct__batches_begin(&j->batches, j->inputs, NULL, n,
                           o->batch_tokens ? o->batch_tokens : DEFAULT_BATCH))
        return ct__err_memory(&ct__ctx()->err, o->here, j->op, n * sizeof *j->inputs);
    while (ct__batches_next(&j->batches)) {
        if (!score_list_rows(j)) return false;
        if (j->judged && !score_forward(j)) return false;
        if (!score_batch(j)) return false;
        if (o->progress) o->progress((int64_t)j->batches.next, (int64_t)n, o->user);
        if (o->should_stop && o->should_stop(o->user))
            return ct__refuse(ct__ctx(), CT_E_INTERRUPTED, o->here, j->op,
                              "stopped after %zu of %zu texts", j->batches.next, n);
    }
    return true;
}

bool ct__score(const ct_lm *lm, const ct_lm_score_input *sequences, size_t n, ct_lm_score *scores,
               const ct_eval_options *o, const char *op) {
    score_job j = {.lm = lm, .sequences = sequences, .scores = scores, .o = o, .op = op};
    const bool ok = score_all(&j, n);
    ct__batches_free(&j.batches);
    ct__free(j.inputs);
    ct__free(j.rows);
    ct__free(j.targets);
    ct__free(j.hidden);
    return ok;
}

bool ct_lm_score_tokens_with(const ct_lm *lm, const ct_lm_score_input *sequences, size_t n,
                             ct_lm_score *scores, ct_eval_options o) {
    static const char op[] = "lm_score_tokens";
    ct_ctx *ctx = ct__ctx();
    return ctx && ct__given(ctx, lm, o.here, op, "the model") &&
           (!n || (ct__given(ctx, sequences, o.here, op, "the texts") &&
                   ct__given(ctx, scores, o.here, op, "the scores"))) &&
           !ctx->err.code && ct__eval_fits(lm, &o, op) &&
           ct__score(lm, sequences, n, scores, &o, op);
}
