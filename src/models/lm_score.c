// Log-likelihoods of texts: what a model says of tokens that are given.
#include <string.h>

#include "cotan/eval.h"
#include "models/batches.h"
#include "models/lm_score.h"

// Scores of the whole vocabulary that are in memory at one time, at most, unless one row has more.
enum { MOST_SCORES = 1 << 23, DEFAULT_BATCH = 2048, DEFAULT_CONTEXT = 2048 };

typedef struct judging {
    const ct_lm *lm;
    const ct_lm_judged *texts; // (n)
    ct_lm_score *scores;
    ct_lm_tokens
        *read; // (n) of each text what the model reads: all but its last token, within the context
    ct_batches batches;
    int32_t *rows,
        *wanted;   // (judged) of the pass: rows that are judged, and the tokens that follow them
    float *hidden; // (judged, width)
    size_t room, judged;
    const ct_eval_options *o;
    const char *op;
} judging;

int64_t ct__eval_context(const ct_lm *lm, const ct_eval_options *o) {
    const int64_t own = lm->spec.context ? lm->spec.context : DEFAULT_CONTEXT;
    return o->context ? o->context : own;
}

bool ct__eval_fits(const ct_lm *lm, const ct_eval_options *o, const char *op) {
    ct_ctx *ctx = ct__ctx();
    const int64_t own = lm->spec.context, most = own ? own : INT32_MAX / 2;
    if (!ct_lm_look(lm).writes) {
        ct__fail(ctx, CT_E_ARGUMENT, o->here, op, "%s does not go on with a text%s", lm->spec.type,
                 lm->headless ? ": its file has no output layer" : "");
    } else if (o->context && (o->context < 2 || o->context > most)) {
        ct__fail(ctx, CT_E_ARGUMENT, o->here, op, "context is %lld, it must be 2 to %lld",
                 (long long)o->context, (long long)most);
    } else if (o->stride < 0 || o->stride > ct__eval_context(lm, o)) {
        ct__fail(ctx, CT_E_ARGUMENT, o->here, op,
                 "stride is %lld, it must be 1 to %lld, the context", (long long)o->stride,
                 (long long)ct__eval_context(lm, o));
    } else if (o->batch < 0 || o->batch > 1 << 24 || o->limit < 0) {
        const bool batch = o->batch < 0 || o->batch > 1 << 24;
        ct__fail(ctx, CT_E_ARGUMENT, o->here, op, "%s is %lld, it must be 1 to %lld",
                 batch ? "batch" : "limit", (long long)(batch ? o->batch : o->limit),
                 batch ? 1LL << 24 : INT64_MAX);
    } else {
        return true;
    }
    return false;
}

static bool text_fits(const judging *j, size_t i) {
    const ct_lm_judged *t = &j->texts[i];
    const int64_t context = ct__eval_context(j->lm, j->o);
    ct_ctx *ctx = ct__ctx();
    if (!t->tokens || t->judged >= t->n) {
        ct__fail(ctx, CT_E_ARGUMENT, j->o->here, j->op,
                 "text %zu has %zu tokens, of which %zu are judged; one at least is given", i, t->n,
                 t->judged);
        return false;
    }
    if (t->judged > (size_t)context) {
        ct__fail(ctx, CT_E_ARGUMENT, j->o->here, j->op,
                 "%zu tokens of text %zu are judged; they must be %lld at most, the context",
                 t->judged, i, (long long)context);
        return false;
    }
    for (size_t k = 0; k < t->n; k++)
        if (t->tokens[k] < 0 || t->tokens[k] >= j->lm->spec.vocab) {
            ct__fail(ctx, CT_E_ARGUMENT, j->o->here, j->op,
                     "token %zu of text %zu is %d, the model knows 0 to %lld", k, i,
                     (int)t->tokens[k], (long long)j->lm->spec.vocab - 1);
            return false;
        }
    return true;
}

// Which rows of the pass are judged, and what follows them.
static bool list_rows(judging *j) {
    const ct_batches *b = &j->batches;
    size_t n = 0;
    for (int64_t i = 0; i < b->rows; i++) n += j->texts[b->which[i]].judged;
    if (n > j->room) {
        ct__free(j->rows), ct__free(j->wanted), ct__free(j->hidden);
        j->room = n;
        j->rows = ct__malloc(n * sizeof *j->rows);
        j->wanted = ct__malloc(n * sizeof *j->wanted);
        j->hidden = ct__malloc(n * (size_t)j->lm->spec.width * sizeof *j->hidden);
        if (!j->rows || !j->wanted || !j->hidden) {
            j->room = 0;
            return ct__err_memory(&ct__ctx()->err, j->o->here, j->op, n * sizeof *j->rows);
        }
    }
    j->judged = 0;
    for (int64_t i = 0; i < b->rows; i++) {
        const ct_lm_judged *t = &j->texts[b->which[i]];
        for (size_t k = 0; k < t->judged; k++) {
            j->rows[j->judged] = (int32_t)(i * b->time + b->lengths[i] - (int64_t)(t->judged - k));
            j->wanted[j->judged++] = t->tokens[t->n - t->judged + k];
        }
    }
    return true;
}

static bool read_pass(judging *j) {
    CT_SCOPE;
    const ct_loc here = j->o->here;
    ct_lm_pass pass;
    ct_tensor x = ct__batches_rows(&j->batches, j->lm, &pass, here); // (B * T, width)
    ct_tensor rows = ct_from_at(j->rows, CT_I32, CT_DIMS(ct__varying((int64_t)j->judged)), here);
    x = ct_gather_with((ct_gather_args){.x = x, .indices = rows, .here = here}); // (judged, width)
    const float *values = ct_data_at(x, here);
    if (values) memcpy(j->hidden, values, j->judged * (size_t)j->lm->spec.width * sizeof *values);
    return values;
}

// Of rows from `from` on: the log-probabilities of what follows, and whether that is the likeliest.
static bool judge_some(judging *j, size_t from, size_t n, double *log_p, bool *likeliest) {
    CT_SCOPE;
    const ct_loc here = j->o->here;
    const int64_t m = ct__varying((int64_t)n);
    const ct_lm_pass pass = {.lm = j->lm, .here = here};
    ct_tensor x = ct_from_at(j->hidden + from * (size_t)j->lm->spec.width, CT_F32,
                             CT_DIMS(m, j->lm->spec.width), here);
    ct_tensor wanted = ct_from_at(j->wanted + from, CT_I32, CT_DIMS(m, 1), here);
    ct_tensor scores = ct__stack_logits(&pass, x); // (M, vocab)
    ct_tensor own = ct_take_along_with(
        (ct_take_along_args){.x = scores, .indices = wanted, .axis = 1, .here = here}); // (M, 1)
    ct_tensor all = ct_logsumexp_with((ct_logsumexp_args){
        .x = scores, .axes = CT_AXES(1), .keepdims = true, .here = here}); // (M, 1)
    ct_tensor best = ct_argmax_with(
        (ct_argmax_args){.x = scores, .axis = 1, .keepdims = true, .here = here}); // (M, 1)
    ct_tensor log = ct_sub_at(own, all, here);
    ct_tensor both[] = {log, best};
    if (!ct_eval_at(both, 2, here)) return false;
    const float *logs = ct_data_at(log, here);
    const int32_t *first = ct_data_at(best, here);
    if (!logs || !first) return false;
    for (size_t i = 0; i < n; i++) {
        log_p[i] = (double)logs[i];
        likeliest[i] = first[i] == j->wanted[from + i];
    }
    return true;
}

static bool judge_pass(judging *j) {
    const size_t fit = (size_t)(MOST_SCORES / j->lm->spec.vocab), piece = fit ? fit : 1;
    double *log_p = ct__malloc((j->judged + 1) * sizeof *log_p);
    bool *likeliest = ct__malloc((j->judged + 1) * sizeof *likeliest);
    bool ok = log_p && likeliest;
    if (!ok) ct__err_memory(&ct__ctx()->err, j->o->here, j->op, j->judged * sizeof *log_p);
    for (size_t at = 0; ok && at < j->judged; at += piece) {
        const size_t left = j->judged - at;
        ok = judge_some(j, at, left < piece ? left : piece, log_p + at, likeliest + at);
    }
    size_t at = 0;
    for (int64_t i = 0; ok && i < j->batches.rows; i++) {
        const size_t which = j->batches.which[i];
        ct_lm_score score = {0, true};
        for (size_t k = 0; k < j->texts[which].judged; k++, at++) {
            score.log_likelihood += log_p[at];
            score.greedy = score.greedy && likeliest[at];
        }
        j->scores[which] = score;
    }
    ct__free(log_p);
    ct__free(likeliest);
    return ok;
}

static bool judge_all(judging *j, size_t n) {
    const ct_eval_options *o = j->o;
    const size_t context = (size_t)ct__eval_context(j->lm, o);
    j->read = ct__malloc((n + 1) * sizeof *j->read);
    if (!j->read) return ct__err_memory(&ct__ctx()->err, o->here, j->op, n * sizeof *j->read);
    for (size_t i = 0; i < n; i++) {
        if (!text_fits(j, i)) return false;
        const size_t all = j->texts[i].n - 1, cut = all > context ? all - context : 0;
        j->read[i] = (ct_lm_tokens){j->texts[i].tokens + cut, all - cut};
    }
    if (!ct__batches_begin(&j->batches, j->read, NULL, n, o->batch ? o->batch : DEFAULT_BATCH))
        return ct__err_memory(&ct__ctx()->err, o->here, j->op, n * sizeof *j->read);
    while (ct__batches_next(&j->batches)) {
        if (!list_rows(j)) return false;
        if (j->judged && !read_pass(j)) return false;
        if (!judge_pass(j)) return false;
        if (o->progress) o->progress((int64_t)j->batches.next, (int64_t)n, o->user);
        if (o->stop && o->stop(o->user)) {
            ct__fail(ct__ctx(), CT_E_INTERRUPTED, o->here, j->op, "stopped after %zu of %zu texts",
                     j->batches.next, n);
            return false;
        }
    }
    return true;
}

bool ct__score(const ct_lm *lm, const ct_lm_judged *texts, size_t n, ct_lm_score *scores,
               const ct_eval_options *o, const char *op) {
    judging j = {.lm = lm, .texts = texts, .scores = scores, .o = o, .op = op};
    const bool ok = judge_all(&j, n);
    ct__batches_free(&j.batches);
    ct__free(j.read);
    ct__free(j.rows);
    ct__free(j.wanted);
    ct__free(j.hidden);
    return ok;
}

bool ct_lm_score_texts_with(const ct_lm *lm, const ct_lm_judged *texts, size_t n,
                            ct_lm_score *scores, ct_eval_options o) {
    static const char op[] = "lm_score_texts";
    ct_ctx *ctx = ct__ctx();
    return ctx && ct__given(ctx, lm, o.here, op, "the model") &&
           (!n || (ct__given(ctx, texts, o.here, op, "the texts") &&
                   ct__given(ctx, scores, o.here, op, "the scores"))) &&
           !ctx->err.code && ct__eval_fits(lm, &o, op) && ct__score(lm, texts, n, scores, &o, op);
}
