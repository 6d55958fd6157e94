// Evaluates models: perplexity, log-likelihoods and multiple choice, with the counts of
// lm-evaluation-harness.
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "cotan/eval.h"
#include "graph/graph.h"
#include "io/json.h"
#include "models/lm_score.h"
#include "text/text.h"
#include "text/tokenizer.h"

typedef struct eval_job {
    const ct_lm *lm;
    const ct_tokenizer *tokenizer;
    const ct_eval_options *o;
    const char *op;
    int32_t bos;          // the token before a text; -1: there is none
    const char *bos_text; // its text, bos_text_n bytes
    size_t bos_text_n;
    ct_decoder *detokenizer;
} eval_job;

static bool eval_no_memory(const eval_job *j, size_t bytes) {
    return ct__err_memory(&ct__ctx()->err, j->o->here, j->op, bytes);
}

static bool eval_begin(eval_job *j) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, j->lm, j->o->here, j->op, "the model") ||
        !ct__given(ctx, j->tokenizer, j->o->here, j->op, "the tokenizer") || ctx->err.code ||
        !ct__eval_fits(j->lm, j->o, j->op))
        return false;
    j->bos = (int32_t)ct_tokenizer_special(j->tokenizer, CT_BOS);
    if (j->bos < 0) j->bos = (int32_t)ct_tokenizer_special(j->tokenizer, CT_EOS);
    j->detokenizer = ct_decoder_new_at(j->tokenizer, false, j->o->here);
    if (!j->detokenizer) return false;
    if (j->bos >= 0) j->bos_text = ct_decoder_all(j->detokenizer, &j->bos, 1, &j->bos_text_n);
    return j->bos < 0 || j->bos_text;
}
static void eval_end(eval_job *j) { ct_decoder_free(j->detokenizer); }

static bool eval_has_bos(const eval_job *j) {
    if (j->bos >= 0) return true;
    return ct__refuse(
        ct__ctx(), CT_E_ARGUMENT, j->o->here, j->op,
        "the tokenizer has no BOS or EOS token, after which the first token would be scored");
}

// True if the tokens cover the whole text. A character tokenizer omits unknown characters: the rest would
// be another text, with too few bits per byte.
static bool eval_covers_text(const eval_job *j, const ct_encoding *e, size_t n) {
    const ct_tokenizer *t = j->tokenizer;
    size_t covered = 0;
    if (t->normalizers.n || t->pretokenizers.n || t->model.unk >= 0 || t->model.byte_fallback ||
        t->model.kind != CT_MODEL_BPE)
        return true;
    for (size_t i = 0; i < e->n; i++)
        if (!e->special_mask[i]) covered += (size_t)(e->bytes[i].end - e->bytes[i].begin);
    if (covered >= n) return true;
    return ct__refuse(
        ct__ctx(), CT_E_DATA, j->o->here, j->op,
        "%zu of the text's %zu bytes are characters that the tokenizer does not have, and "
        "would not be scored",
        n - covered, n);
}

// Encodes a text with the tokenizer's special tokens, unless the text begins with the first of them.
static bool eval_encode(const eval_job *j, const char *s, size_t n, ct_encoding *e) {
    const bool has_bos =
        j->bos_text_n && n >= j->bos_text_n && memcmp(s, j->bos_text, j->bos_text_n) == 0;
    return ct_tokenizer_encode_with(
        j->tokenizer, n ? s : "", n, e,
        (ct_encode_options){.add_special = !has_bos, .offsets = true, .here = j->o->here});
}

// ---------------------------------------------------------------------------------------- characters

// White space as Python defines it.
static bool eval_is_space(uint32_t cp) { return ct__is_white(cp) || (cp >= 0x1c && cp <= 0x1f); }

static size_t eval_rstrip_length(const char *s, size_t n) {
    size_t eval_end = 0;
    for (size_t at = 0, used; at < n; at += used) {
        uint32_t cp = 0;
        const bool ok = ct__utf8_next(s + at, n - at, &cp, &used) == CT_UTF8_OK;
        if (!ok && !used) used = n - at;
        if (!ok || !eval_is_space(cp)) eval_end = at + used;
    }
    return eval_end;
}

// Counts the parts between runs of white space, including empty ones at the ends, as re.split(r"\s+", text)
// returns them.
static void eval_count(const char *s, size_t n, int64_t *words, int64_t *characters) {
    bool space = false;
    *words = 1;
    *characters = 0;
    for (size_t at = 0, used; at < n; at += used) {
        uint32_t cp = 0;
        const bool ok = ct__utf8_next(s + at, n - at, &cp, &used) == CT_UTF8_OK;
        if (!ok && !used) used = n - at;
        const bool is = ok && eval_is_space(cp);
        *words += is && !space;
        space = is;
        ++*characters;
    }
}

// ----------------------------------------------------------------------------------- log-likelihoods

typedef struct eval_pair_tokens {
    int32_t *v; // (n) tokens, of which the last `n_scored` are scored
    size_t n, n_scored;
} eval_pair_tokens;

static bool eval_set_tokens(const eval_job *j, const ct_encoding *e, size_t n_scored, bool with_bos,
                            eval_pair_tokens *to) {
    to->v = ct__malloc((e->n + 1) * sizeof *to->v);
    if (!to->v) return eval_no_memory(j, e->n * sizeof *to->v);
    if (with_bos) to->v[to->n++] = j->bos;
    memcpy(to->v + to->n, e->ids, e->n * sizeof *to->v);
    to->n += e->n;
    to->n_scored = n_scored;
    return true;
}

static bool eval_pair_without_context(const eval_job *j, const ct_eval_pair *p,
                                      eval_pair_tokens *to) {
    ct_encoding e = {0};
    bool ok = eval_has_bos(j) &&
              ct_tokenizer_encode_with(j->tokenizer, p->continuation, p->n_continuation, &e,
                                       (ct_encode_options){.here = j->o->here});
    const bool with_bos = ok && e.n && e.ids[0] != j->bos; // else the text itself begins with it
    ok = ok && eval_set_tokens(j, &e, with_bos ? e.n : e.n ? e.n - 1 : 0, with_bos, to);
    ct_encoding_free(&e);
    return ok;
}

static bool eval_pair_with_context(const eval_job *j, const ct_eval_pair *p, eval_pair_tokens *to) {
    ct_encoding given = {0}, all = {0};
    char *text = ct__malloc(p->n_context + p->n_continuation + 1);
    if (!text) return eval_no_memory(j, p->n_context + p->n_continuation);
    memcpy(text, p->context, p->n_context);
    if (p->n_continuation) memcpy(text + p->n_context, p->continuation, p->n_continuation);
    const size_t stripped = eval_rstrip_length(p->context, p->n_context);
    const bool ok = eval_encode(j, text, p->n_context + p->n_continuation, &all) &&
                    eval_encode(j, text, stripped, &given) &&
                    eval_set_tokens(j, &all, all.n > given.n ? all.n - given.n : 0, false, to);
    ct_encoding_free(&given);
    ct_encoding_free(&all);
    ct__free(text);
    return ok;
}

static bool eval_score_pairs(eval_job *j, const ct_eval_pair *pairs, size_t n,
                             ct_lm_score *scores) {
    eval_pair_tokens *tokens = ct__calloc(n + 1, sizeof *tokens);
    ct_lm_score_input *inputs = ct__calloc(n + 1, sizeof *inputs);
    bool ok = (tokens && inputs) || eval_no_memory(j, n * sizeof *inputs);
    for (size_t i = 0; ok && i < n; i++) {
        const ct_eval_pair *p = &pairs[i];
        ok = p->n_context ? eval_pair_with_context(j, p, &tokens[i])
                          : eval_pair_without_context(j, p, &tokens[i]);
        if (ok && (!tokens[i].n_scored || tokens[i].n_scored == tokens[i].n)) {
            ct__fail(ct__ctx(), CT_E_ARGUMENT, j->o->here, j->op,
                     tokens[i].n_scored ? "nothing is given before pair %zu"
                                        : "pair %zu has no token that is scored",
                     i);
            ok = false;
        }
        if (ok) inputs[i] = (ct_lm_score_input){tokens[i].v, tokens[i].n, tokens[i].n_scored};
    }
    ok = ok && ct__score(j->lm, inputs, n, scores, j->o, j->op);
    for (size_t i = 0; tokens && i < n; i++) ct__free(tokens[i].v);
    ct__free(tokens);
    ct__free(inputs);
    return ok;
}

bool ct_eval_log_likelihood_with(const ct_lm *lm, const ct_tokenizer *tokenizer,
                                 const ct_eval_pair *pairs, size_t n, ct_lm_score *scores,
                                 ct_eval_options options) {
    eval_job j = {
        .lm = lm, .tokenizer = tokenizer, .o = &options, .op = "eval_log_likelihood", .bos = -1};
    bool ok = eval_begin(&j);
    if (ok && n)
        ok = ct__given(ct__ctx(), pairs, options.here, j.op, "the pairs") &&
             ct__given(ct__ctx(), scores, options.here, j.op, "the scores");
    ok = ok && eval_score_pairs(&j, pairs, n, scores);
    eval_end(&j);
    return ok;
}

// ---------------------------------------------------------------------------------------- perplexity

// Makes the windows over tokens v[0 .. n), where v[-1] is the token before the text.
static size_t eval_make_windows(const int32_t *v, int64_t n, int64_t context, int64_t stride,
                                ct_lm_score_input *to) {
    size_t n_windows = 0;
    for (int64_t begin = 0, eval_end; begin < n; begin = eval_end) {
        const int64_t max_tokens = begin ? stride : context;
        eval_end = n - begin < max_tokens ? n : begin + max_tokens;
        const int64_t from =
            eval_end - context > 0 ? eval_end - context : 0; // its input begins one token earlier
        if (to)
            to[n_windows] = (ct_lm_score_input){v + from - 1, (size_t)(eval_end - from + 1),
                                                (size_t)(eval_end - begin)};
        n_windows++;
    }
    return n_windows;
}

// Scores tokens v[0 .. n), where v[-1] is the token before the text.
static bool eval_add_windows(const eval_job *j, const int32_t *v, int64_t n, ct_perplexity *sum) {
    const int64_t context = ct__eval_context(j->lm, j->o);
    const int64_t stride = j->o->stride ? j->o->stride : context;
    const size_t n_windows = eval_make_windows(NULL, n, context, stride, NULL);
    ct_lm_score_input *windows = ct__malloc((n_windows + 1) * sizeof *windows);
    ct_lm_score *scores = ct__malloc((n_windows + 1) * sizeof *scores);
    bool ok = (windows && scores) || eval_no_memory(j, n_windows * sizeof *windows);
    if (ok) {
        eval_make_windows(v, n, context, stride, windows);
        ok = ct__score(j->lm, windows, n_windows, scores, j->o, j->op);
    }
    for (size_t i = 0; ok && i < n_windows; i++) sum->log_likelihood += scores[i].log_likelihood;
    if (ok) sum->tokens += n, sum->windows += (int64_t)n_windows;
    ct__free(windows);
    ct__free(scores);
    return ok;
}

// Scores a text. Without a token before it, the text's own first token is not predicted by anything;
// `skipped` gets its bytes.
static bool eval_add_text(const eval_job *j, const ct_encoding *e, size_t *skipped,
                          ct_perplexity *sum) {
    *skipped = 0;
    if (j->bos < 0 && e->n) *skipped = e->bytes[0].end;
    if (j->bos < 0 && e->n > 1) return eval_add_windows(j, e->ids + 1, (int64_t)e->n - 1, sum);
    if (j->bos < 0)
        return ct__refuse(
            ct__ctx(), CT_E_ARGUMENT, j->o->here, j->op,
            "the text has fewer than 2 tokens, and the tokenizer has no BOS or EOS token, "
            "after which the first token would be scored");
    int32_t *tokens = ct__malloc((e->n + 1) * sizeof *tokens);
    if (!tokens) return eval_no_memory(j, e->n * sizeof *tokens);
    tokens[0] = j->bos;
    if (e->n) memcpy(tokens + 1, e->ids, e->n * sizeof *tokens);
    const bool ok = eval_add_windows(j, tokens + 1, (int64_t)e->n, sum);
    ct__free(tokens);
    return ok;
}

bool ct_eval_perplexity_with(const ct_lm *lm, const ct_tokenizer *tokenizer, const char *text,
                             size_t n, ct_perplexity *sum, ct_eval_options options) {
    eval_job j = {
        .lm = lm, .tokenizer = tokenizer, .o = &options, .op = "eval_perplexity", .bos = -1};
    ct_encoding e = {0};
    size_t skipped;
    int64_t words, characters;
    bool ok = eval_begin(&j) && ct__given(ct__ctx(), text, options.here, j.op, "the text") &&
              ct__given(ct__ctx(), sum, options.here, j.op, "the sum");
    if (ok && !n) {
        ct__fail(ct__ctx(), CT_E_ARGUMENT, options.here, j.op, "the text is empty");
        ok = false;
    }
    ok = ok && eval_encode(&j, text, n, &e) && eval_covers_text(&j, &e, n) &&
         eval_add_text(&j, &e, &skipped, sum);
    if (ok) {
        eval_count(text + skipped, n - skipped, &words, &characters);
        sum->words += words;
        sum->bytes += (int64_t)(n - skipped);
    }
    ct_encoding_free(&e);
    eval_end(&j);
    return ok;
}

// ----------------------------------------------------------------------------------- multiple choice

typedef struct eval_question {
    size_t first, choices, gold; // its choices are the pairs from `first`
} eval_question;
typedef struct eval_task {
    const char *path;
    size_t line; // being read
    ct_arena arena;
    eval_question *questions; // (n)
    ct_eval_pair *pairs;      // (n_pairs)
    size_t n, cap, n_pairs, pairs_cap;
    ct_err *err;
} eval_task;

static bool __attribute__((format(printf, 2, 3)))
eval_bad_line(const eval_task *t, const char *format, ...) {
    CT_TEXT text = {0};
    va_list args;
    va_start(args, format);
    ct__textf_v(&text, format, args);
    va_end(args);
    ct__err(t->err, CT_E_FORMAT, CT_NOWHERE, t->path, "line %zu: %s", t->line,
            text.s ? text.s : "");
    return false;
}

// Returns the value of the first key (NULL-terminated list) that exists.
static const json_t *eval_find_key(const json_t *o, const char *const *keys, const char **key) {
    for (size_t i = 0; keys[i]; i++) {
        const json_t *value = json_object_get(o, keys[i]);
        if (key) *key = keys[i];
        if (value) return value;
    }
    return NULL;
}

static bool eval_copy_text(eval_task *t, const json_t *text, const char *prefix, const char **s,
                           size_t *n) {
    const size_t b = strlen(prefix), m = json_string_length(text);
    char *to = ct__arena(&t->arena, b + m + 1);
    if (!to) return ct__err_memory(t->err, CT_NOWHERE, t->path, b + m);
    memcpy(to, prefix, b);
    memcpy(to + b, json_string_value(text), m + 1);
    *s = to;
    *n = b + m;
    return true;
}

static bool eval_add_choice(eval_task *t, const json_t *choice, const ct_eval_pair *context) {
    const size_t i = t->n_pairs - t->questions[t->n].first;
    ct_eval_pair pair = *context;
    if (!json_is_string(choice)) return eval_bad_line(t, "choice %zu is no text", i);
    if (!json_string_length(choice)) return eval_bad_line(t, "choice %zu is empty", i);
    if (!CT_GROW(t->pairs, t->pairs_cap, t->n_pairs + 1))
        return ct__err_memory(t->err, CT_NOWHERE, t->path, t->n_pairs * sizeof pair);
    if (!eval_copy_text(t, choice, " ", &pair.continuation, &pair.n_continuation)) return false;
    t->pairs[t->n_pairs++] = pair;
    return true;
}

static bool eval_add_choices(eval_task *t, const json_t *line, const json_t *list,
                             const ct_eval_pair *context) {
    const json_t *first = json_object_get(line, "sol1"), *second = json_object_get(line, "sol2");
    if (!list && first && second)
        return eval_add_choice(t, first, context) && eval_add_choice(t, second, context);
    if (!list) return eval_bad_line(t, "it has no choices (\"choices\", \"endings\", \"options\")");
    if (!json_is_array(list) || json_array_size(list) < 2)
        return eval_bad_line(t, "choices are a list of two texts or more");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!eval_add_choice(t, json_array_get(list, i), context)) return false;
    return true;
}

// Finds the right choice: by its index, its label among `labels`, or a letter.
static bool eval_find_gold(const eval_task *t, const json_t *line, const json_t *labels,
                           size_t choices, size_t *gold) {
    static const char *const keys[] = {"gold", "label", "answer", "answerKey", NULL};
    const char *key;
    const json_t *value = eval_find_key(line, keys, &key);
    long long number = -1;
    if (!value)
        return eval_bad_line(t, "it does not have the index of the right choice (\"gold\", "
                                "\"label\", \"answer\", \"answerKey\")");
    if (json_is_integer(value)) {
        number = json_integer_value(value);
    } else if (json_is_string(value)) {
        const char *s = json_string_value(value);
        char *eval_end;
        for (size_t i = 0; i < json_array_size(labels) && number < 0; i++)
            if (json_equal(json_array_get(labels, i), value)) number = (long long)i;
        if (number < 0 && s[0] >= 'A' && s[0] <= 'Z' && !s[1]) number = s[0] - 'A';
        if (number < 0 && s[0] >= '0' && s[0] <= '9') {
            number = strtoll(s, &eval_end, 10);
            if (*eval_end) number = -1;
        }
        if (number < 0)
            return eval_bad_line(t, "\"%s\" is \"%.40s\", no label of a choice", key, s);
    } else {
        return eval_bad_line(t, "\"%s\" is no number or label of a choice", key);
    }
    if (number < 0 || number >= (long long)choices)
        return eval_bad_line(t, "\"%s\" is choice %lld, there are 0 to %zu", key, number,
                             choices - 1);
    *gold = (size_t)number;
    return true;
}

static bool eval_add_question(eval_task *t, const json_t *line) {
    static const char *const texts[] = {"query", "ctx", "question", "goal", "context", NULL};
    static const char *const lists[] = {"choices", "endings", "options", NULL};
    if (!json_is_object(line)) return eval_bad_line(t, "it is no JSON object");
    const json_t *text = eval_find_key(line, texts, NULL), *list = eval_find_key(line, lists, NULL),
                 *labels = NULL;
    ct_eval_pair context = {0};
    if (!json_is_string(text))
        return eval_bad_line(
            t, "it has no text (\"query\", \"ctx\", \"question\", \"goal\", \"context\")");
    if (!json_string_length(text)) return eval_bad_line(t, "its text is empty");
    if (json_is_object(list)) {
        labels = json_object_get(list, "label");
        list = json_object_get(list, "text");
    }
    if (!eval_copy_text(t, text, "", &context.context, &context.n_context)) return false;
    if (!CT_GROW(t->questions, t->cap, t->n + 1))
        return ct__err_memory(t->err, CT_NOWHERE, t->path, t->n * sizeof *t->questions);
    eval_question *q = &t->questions[t->n];
    *q = (eval_question){.first = t->n_pairs};
    if (!eval_add_choices(t, line, list, &context)) return false;
    q->choices = t->n_pairs - q->first;
    if (!eval_find_gold(t, line, labels, q->choices, &q->gold)) return false;
    t->n++;
    return true;
}

static bool eval_read_task(eval_task *t, const char *bytes, size_t n, size_t limit) {
    for (const char *at = bytes, *limit_end = bytes + n, *stop; at < limit_end && t->n < limit;
         at = stop + 1) {
        json_error_t fault;
        stop = memchr(at, '\n', (size_t)(limit_end - at));
        if (!stop) stop = limit_end;
        t->line++;
        if (eval_rstrip_length(at, (size_t)(stop - at)) == 0) continue;
        json_t *line = ct__json_read(at, (size_t)(stop - at), 0, &fault);
        const bool ok = line ? eval_add_question(t, line)
                             : eval_bad_line(t, "column %d: %s", fault.column, fault.text);
        json_decref(line);
        if (!ok) return false;
    }
    return t->n || ct__err(t->err, CT_E_FORMAT, CT_NOWHERE, t->path, "it has no questions");
}

static size_t eval_best_choice(const eval_task *t, const eval_question *q,
                               const ct_lm_score *scores, int norm) {
    size_t found = 0;
    double best_value = -INFINITY;
    for (size_t i = 0; i < q->choices; i++) {
        const ct_eval_pair *p = &t->pairs[q->first + i];
        double value = scores[q->first + i].log_likelihood;
        int64_t words, characters;
        eval_count(p->continuation + 1, p->n_continuation - 1, &words,
                   &characters); // without the space
        if (norm == 1) value /= (double)characters;
        if (norm == 2) value /= (double)(p->n_continuation - 1);
        if (value > best_value) found = i, best_value = value;
    }
    return found;
}

// Standard error of a fraction p of n.
static double eval_standard_error(double p, double n) {
    return n > 1 ? sqrt(p * (1 - p) / (n - 1)) : NAN;
}

static void eval_count_correct(const eval_task *t, const ct_lm_score *scores,
                               ct_multiple_choice_result *result) {
    double correct[3] = {0};
    for (size_t i = 0; i < t->n; i++)
        for (int norm = 0; norm < 3; norm++)
            correct[norm] +=
                eval_best_choice(t, &t->questions[i], scores, norm) == t->questions[i].gold;
    const double n = (double)t->n;
    *result =
        (ct_multiple_choice_result){.questions = (int64_t)t->n,
                                    .acc = correct[0] / n,
                                    .acc_stderr = eval_standard_error(correct[0] / n, n),
                                    .acc_norm = correct[1] / n,
                                    .acc_norm_stderr = eval_standard_error(correct[1] / n, n),
                                    .acc_bytes = correct[2] / n,
                                    .acc_bytes_stderr = eval_standard_error(correct[2] / n, n)};
}

bool ct_eval_multiple_choice_with(const ct_lm *lm, const ct_tokenizer *tokenizer, const char *path,
                                  ct_multiple_choice_result *result, ct_eval_options options) {
    eval_job j = {
        .lm = lm, .tokenizer = tokenizer, .o = &options, .op = "eval_multiple_choice", .bos = -1};
    eval_task t = {.path = path};
    char *bytes = NULL;
    size_t n;
    ct_lm_score *scores = NULL;
    bool ok = eval_begin(&j) && ct__given(ct__ctx(), path, options.here, j.op, "the path") &&
              ct__given(ct__ctx(), result, options.here, j.op, "the result");
    if (ok) t.err = &ct__ctx()->err;
    ok = ok && ct__file_read(path, &bytes, &n, t.err) &&
         eval_read_task(&t, bytes, n, options.limit ? (size_t)options.limit : SIZE_MAX);
    if (ok) {
        scores = ct__malloc((t.n_pairs + 1) * sizeof *scores);
        ok = (scores || eval_no_memory(&j, t.n_pairs * sizeof *scores)) &&
             eval_score_pairs(&j, t.pairs, t.n_pairs, scores);
    }
    if (ok) eval_count_correct(&t, scores, result);
    ct__free(bytes);
    ct__free(scores);
    ct__free(t.pairs);
    ct__free(t.questions);
    ct__arena_free(&t.arena);
    eval_end(&j);
    return ok;
}
