// How good a model is: texts become tokens, these are judged, and what is counted is what lm-evaluation-harness counts.
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "cotan/eval.h"
#include "graph/graph.h"
#include "io/json.h"
#include "models/lm_score.h"
#include "ops/rules.h"
#include "text/text.h"
#include "text/tokenizer.h"

typedef struct judge {
    const ct_lm *lm;
    const ct_tokenizer *tokenizer;
    const ct_eval_options *o;
    const char *op;
    int32_t first;    // the token that stands in front of a text; -1: there is none
    const char *mark; // what it is as text, mark_n bytes
    size_t mark_n;
    ct_decoder *decoder;
} judge;

static bool no_memory(const judge *j, size_t bytes) {
    return ct__err_memory(&ct__ctx()->err, j->o->here, j->op, bytes);
}

static bool begin(judge *j) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, j->lm, j->o->here, j->op, "the model") ||
        !ct__given(ctx, j->tokenizer, j->o->here, j->op, "the tokenizer") || ctx->err.code ||
        !ct__eval_fits(j->lm, j->o, j->op))
        return false;
    j->first = (int32_t)ct_tokenizer_special(j->tokenizer, CT_BOS);
    if (j->first < 0) j->first = (int32_t)ct_tokenizer_special(j->tokenizer, CT_EOS);
    j->decoder = ct_decoder_new_at(j->tokenizer, false, j->o->here);
    if (!j->decoder) return false;
    if (j->first >= 0) j->mark = ct_decoder_all(j->decoder, &j->first, 1, &j->mark_n);
    return j->first < 0 || j->mark;
}
static void end(judge *j) { ct_decoder_free(j->decoder); }

static bool has_first(const judge *j) {
    if (j->first >= 0) return true;
    ct__fail(ct__ctx(), CT_E_ARGUMENT, j->o->here, j->op,
             "the tokenizer names no token that begins or ends a text, behind which the first one "
             "would be judged");
    return false;
}

// A tokenizer of characters leaves out what it does not know: what is left would be another text, with too small a
// number of bits for each byte.
static bool covers(const judge *j, const ct_encoding *e, size_t n) {
    const ct_tokenizer *t = j->tokenizer;
    size_t covered = 0;
    if (t->normalizers.n || t->pretokenizers.n || t->model.unk >= 0 || t->model.byte_fallback ||
        t->model.kind != CT_MODEL_BPE)
        return true;
    for (size_t i = 0; i < e->n; i++)
        if (!e->added[i]) covered += (size_t)(e->bytes[i].end - e->bytes[i].begin);
    if (covered >= n) return true;
    ct__fail(ct__ctx(), CT_E_DATA, j->o->here, j->op,
             "%zu of the text's %zu bytes are characters that the tokenizer does not know, and so "
             "would not be judged",
             n - covered, n);
    return false;
}

// With what the tokenizer puts around a text, unless the text begins with the first of that.
static bool encode(const judge *j, const char *s, size_t n, ct_encoding *e) {
    const bool has = j->mark_n && n >= j->mark_n && memcmp(s, j->mark, j->mark_n) == 0;
    return ct_tokenizer_encode_with(
        j->tokenizer, n ? s : "", n, e,
        (ct_encode_options){.add_special = !has, .offsets = true, .here = j->o->here});
}

// ------------------------------------------------------------------------------------ characters

// White space as Python has it.
static bool is_space(uint32_t cp) { return ct__is_white(cp) || (cp >= 0x1c && cp <= 0x1f); }

static size_t without_space(const char *s, size_t n) {
    size_t end = 0;
    for (size_t at = 0, used; at < n; at += used) {
        uint32_t cp = 0;
        const bool ok = ct__utf8_next(s + at, n - at, &cp, &used) == CT_UTF8_OK;
        if (!ok && !used) used = n - at;
        if (!ok || !is_space(cp)) end = at + used;
    }
    return end;
}

// Parts between runs of white space, empty ones at the ends counted, as re.split(r"\s+", text) gives them.
static void count(const char *s, size_t n, int64_t *words, int64_t *characters) {
    bool space = false;
    *words = 1;
    *characters = 0;
    for (size_t at = 0, used; at < n; at += used) {
        uint32_t cp = 0;
        const bool ok = ct__utf8_next(s + at, n - at, &cp, &used) == CT_UTF8_OK;
        if (!ok && !used) used = n - at;
        const bool is = ok && is_space(cp);
        *words += is && !space;
        space = is;
        ++*characters;
    }
}

// --------------------------------------------------------------------------------- log-likelihoods

typedef struct pair_tokens {
    int32_t *v; // n of them, of which the last `judged` are
    size_t n, judged;
} pair_tokens;

static bool set_tokens(const judge *j, const ct_encoding *e, size_t judged, bool begun,
                       pair_tokens *to) {
    to->v = ct__malloc((e->n + 1) * sizeof *to->v);
    if (!to->v) return no_memory(j, e->n * sizeof *to->v);
    if (begun) to->v[to->n++] = j->first;
    memcpy(to->v + to->n, e->ids, e->n * sizeof *to->v);
    to->n += e->n;
    to->judged = judged;
    return true;
}

static bool pair_of_nothing_given(const judge *j, const ct_eval_pair *p, pair_tokens *to) {
    ct_encoding e = {0};
    bool ok = has_first(j) && ct_tokenizer_encode_with(j->tokenizer, p->rest, p->n_rest, &e,
                                                       (ct_encode_options){.here = j->o->here});
    const bool begun = ok && e.n && e.ids[0] != j->first; // else the text itself begins so
    ok = ok && set_tokens(j, &e, begun ? e.n : e.n ? e.n - 1 : 0, begun, to);
    ct_encoding_free(&e);
    return ok;
}

static bool pair_of_both(const judge *j, const ct_eval_pair *p, pair_tokens *to) {
    ct_encoding given = {0}, all = {0};
    char *text = ct__malloc(p->n_given + p->n_rest + 1);
    if (!text) return no_memory(j, p->n_given + p->n_rest);
    memcpy(text, p->given, p->n_given);
    if (p->n_rest) memcpy(text + p->n_given, p->rest, p->n_rest);
    const size_t kept = without_space(p->given, p->n_given);
    const bool ok = encode(j, text, p->n_given + p->n_rest, &all) &&
                    encode(j, text, kept, &given) &&
                    set_tokens(j, &all, all.n > given.n ? all.n - given.n : 0, false, to);
    ct_encoding_free(&given);
    ct_encoding_free(&all);
    ct__free(text);
    return ok;
}

static bool score_pairs(judge *j, const ct_eval_pair *pairs, size_t n, ct_lm_score *scores) {
    pair_tokens *tokens = ct__calloc(n + 1, sizeof *tokens);
    ct_lm_judged *texts = ct__calloc(n + 1, sizeof *texts);
    bool ok = (tokens && texts) || no_memory(j, n * sizeof *texts);
    for (size_t i = 0; ok && i < n; i++) {
        const ct_eval_pair *p = &pairs[i];
        ok = p->n_given ? pair_of_both(j, p, &tokens[i]) : pair_of_nothing_given(j, p, &tokens[i]);
        if (ok && (!tokens[i].judged || tokens[i].judged == tokens[i].n)) {
            ct__fail(ct__ctx(), CT_E_ARGUMENT, j->o->here, j->op,
                     tokens[i].judged ? "nothing is given before pair %zu"
                                      : "pair %zu has no token that is judged",
                     i);
            ok = false;
        }
        if (ok) texts[i] = (ct_lm_judged){tokens[i].v, tokens[i].n, tokens[i].judged};
    }
    ok = ok && ct__score(j->lm, texts, n, scores, j->o, j->op);
    for (size_t i = 0; tokens && i < n; i++) ct__free(tokens[i].v);
    ct__free(tokens);
    ct__free(texts);
    return ok;
}

bool ct_eval_log_likelihood_with(const ct_lm *lm, const ct_tokenizer *tokenizer,
                                 const ct_eval_pair *pairs, size_t n, ct_lm_score *scores,
                                 ct_eval_options options) {
    judge j = {
        .lm = lm, .tokenizer = tokenizer, .o = &options, .op = "eval_log_likelihood", .first = -1};
    bool ok = begin(&j);
    if (ok && n)
        ok = ct__given(ct__ctx(), pairs, options.here, j.op, "the pairs") &&
             ct__given(ct__ctx(), scores, options.here, j.op, "the scores");
    ok = ok && score_pairs(&j, pairs, n, scores);
    end(&j);
    return ok;
}

// --------------------------------------------------------------------------------------- perplexity

// Windows over tokens v[0 .. n), where v[-1] is the first token's mark.
static size_t make_windows(const int32_t *v, int64_t n, int64_t context, int64_t stride,
                           ct_lm_judged *to) {
    size_t made = 0;
    for (int64_t done = 0, end; done < n; done = end) {
        const int64_t most = done ? stride : context;
        end = n - done < most ? n : done + most;
        const int64_t from =
            end - context > 0 ? end - context : 0; // what it reads begins one before
        if (to)
            to[made] = (ct_lm_judged){v + from - 1, (size_t)(end - from + 1), (size_t)(end - done)};
        made++;
    }
    return made;
}

// Tokens v[0 .. n), v[-1] being the mark.
static bool add_windows(const judge *j, const int32_t *v, int64_t n, ct_perplexity *sum) {
    const int64_t context = ct__eval_context(j->lm, j->o);
    const int64_t stride = j->o->stride ? j->o->stride : context;
    const size_t made = make_windows(NULL, n, context, stride, NULL);
    ct_lm_judged *windows = ct__malloc((made + 1) * sizeof *windows);
    ct_lm_score *scores = ct__malloc((made + 1) * sizeof *scores);
    bool ok = (windows && scores) || no_memory(j, made * sizeof *windows);
    if (ok) {
        make_windows(v, n, context, stride, windows);
        ok = ct__score(j->lm, windows, made, scores, j->o, j->op);
    }
    for (size_t i = 0; ok && i < made; i++) sum->log_likelihood += scores[i].log_likelihood;
    if (ok) sum->tokens += n, sum->windows += (int64_t)made;
    ct__free(windows);
    ct__free(scores);
    return ok;
}

// Where nothing stands in front of a text, its own first token does, which nothing predicts; `skipped` takes its bytes.
static bool add_text(const judge *j, const ct_encoding *e, size_t *skipped, ct_perplexity *sum) {
    *skipped = 0;
    if (j->first < 0 && e->n) *skipped = e->bytes[0].end;
    if (j->first < 0 && e->n > 1) return add_windows(j, e->ids + 1, (int64_t)e->n - 1, sum);
    if (j->first < 0) {
        ct__fail(
            ct__ctx(), CT_E_ARGUMENT, j->o->here, j->op,
            "the text has fewer than 2 tokens, and the tokenizer names none that begins or ends a "
            "text, behind which the first one would be judged");
        return false;
    }
    int32_t *tokens = ct__malloc((e->n + 1) * sizeof *tokens);
    if (!tokens) return no_memory(j, e->n * sizeof *tokens);
    tokens[0] = j->first;
    if (e->n) memcpy(tokens + 1, e->ids, e->n * sizeof *tokens);
    const bool ok = add_windows(j, tokens + 1, (int64_t)e->n, sum);
    ct__free(tokens);
    return ok;
}

bool ct_eval_perplexity_with(const ct_lm *lm, const ct_tokenizer *tokenizer, const char *text,
                             size_t n, ct_perplexity *sum, ct_eval_options options) {
    judge j = {
        .lm = lm, .tokenizer = tokenizer, .o = &options, .op = "eval_perplexity", .first = -1};
    ct_encoding e = {0};
    size_t skipped;
    int64_t words, characters;
    bool ok = begin(&j) && ct__given(ct__ctx(), text, options.here, j.op, "the text") &&
              ct__given(ct__ctx(), sum, options.here, j.op, "the sum");
    if (ok && !n) {
        ct__fail(ct__ctx(), CT_E_ARGUMENT, options.here, j.op, "the text is empty");
        ok = false;
    }
    ok = ok && encode(&j, text, n, &e) && covers(&j, &e, n) && add_text(&j, &e, &skipped, sum);
    if (ok) {
        count(text + skipped, n - skipped, &words, &characters);
        sum->words += words;
        sum->bytes += (int64_t)(n - skipped);
    }
    ct_encoding_free(&e);
    end(&j);
    return ok;
}

// ------------------------------------------------------------------------------------------ choices

typedef struct question {
    size_t first, choices, gold; // its choices are pairs from `first` on
} question;
typedef struct task {
    const char *path;
    size_t line; // that is read
    ct_arena arena;
    question *questions; // (n)
    ct_eval_pair *pairs; // (n_pairs)
    size_t n, cap, n_pairs, pairs_cap;
    ct_err *err;
} task;

static bool __attribute__((format(printf, 2, 3))) bad_line(const task *t, const char *format, ...) {
    ct_text text = {0};
    va_list args;
    va_start(args, format);
    ct__textf_v(&text, format, args);
    va_end(args);
    ct__err(t->err, CT_E_FORMAT, CT_NOWHERE, t->path, "line %zu: %s", t->line,
            text.s ? text.s : "");
    ct__text_free(&text);
    return false;
}

// The first of the keys (NULL-terminated) that is there.
static const json_t *find(const json_t *o, const char *const *keys, const char **key) {
    for (size_t i = 0; keys[i]; i++) {
        const json_t *value = json_object_get(o, keys[i]);
        if (key) *key = keys[i];
        if (value) return value;
    }
    return NULL;
}

static bool copy(task *t, const json_t *text, const char *before, const char **s, size_t *n) {
    const size_t b = strlen(before), m = json_string_length(text);
    char *to = ct__arena(&t->arena, b + m + 1);
    if (!to) return ct__err_memory(t->err, CT_NOWHERE, t->path, b + m);
    memcpy(to, before, b);
    memcpy(to + b, json_string_value(text), m + 1);
    *s = to;
    *n = b + m;
    return true;
}

static bool add_choice(task *t, const json_t *choice, const ct_eval_pair *given) {
    const size_t i = t->n_pairs - t->questions[t->n].first;
    ct_eval_pair pair = *given;
    if (!json_is_string(choice)) return bad_line(t, "choice %zu is no text", i);
    if (!json_string_length(choice)) return bad_line(t, "choice %zu is empty", i);
    if (!CT_GROW(t->pairs, t->pairs_cap, t->n_pairs + 1))
        return ct__err_memory(t->err, CT_NOWHERE, t->path, t->n_pairs * sizeof pair);
    if (!copy(t, choice, " ", &pair.rest, &pair.n_rest)) return false;
    t->pairs[t->n_pairs++] = pair;
    return true;
}

static bool add_choices(task *t, const json_t *line, const json_t *list,
                        const ct_eval_pair *given) {
    const json_t *first = json_object_get(line, "sol1"), *second = json_object_get(line, "sol2");
    if (!list && first && second)
        return add_choice(t, first, given) && add_choice(t, second, given);
    if (!list) return bad_line(t, "it has no choices (\"choices\", \"endings\", \"options\")");
    if (!json_is_array(list) || json_array_size(list) < 2)
        return bad_line(t, "choices are a list of two texts or more");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!add_choice(t, json_array_get(list, i), given)) return false;
    return true;
}

// The right choice: its number, its label among `labels`, or a letter.
static bool find_gold(const task *t, const json_t *line, const json_t *labels, size_t choices,
                      size_t *gold) {
    static const char *const keys[] = {"gold", "label", "answer", "answerKey", NULL};
    const char *key;
    const json_t *value = find(line, keys, &key);
    long long number = -1;
    if (!value)
        return bad_line(t, "it does not say which choice is right (\"gold\", \"label\", "
                           "\"answer\", \"answerKey\")");
    if (json_is_integer(value)) {
        number = json_integer_value(value);
    } else if (json_is_string(value)) {
        const char *s = json_string_value(value);
        char *end;
        for (size_t i = 0; i < json_array_size(labels) && number < 0; i++)
            if (json_equal(json_array_get(labels, i), value)) number = (long long)i;
        if (number < 0 && s[0] >= 'A' && s[0] <= 'Z' && !s[1]) number = s[0] - 'A';
        if (number < 0 && s[0] >= '0' && s[0] <= '9') {
            number = strtoll(s, &end, 10);
            if (*end) number = -1;
        }
        if (number < 0) return bad_line(t, "\"%s\" is \"%.40s\", no label of a choice", key, s);
    } else {
        return bad_line(t, "\"%s\" is no number or label of a choice", key);
    }
    if (number < 0 || number >= (long long)choices)
        return bad_line(t, "\"%s\" is choice %lld, there are 0 to %zu", key, number, choices - 1);
    *gold = (size_t)number;
    return true;
}

static bool add_question(task *t, const json_t *line) {
    static const char *const texts[] = {"query", "ctx", "question", "goal", "context", NULL};
    static const char *const lists[] = {"choices", "endings", "options", NULL};
    if (!json_is_object(line)) return bad_line(t, "it is no JSON object");
    const json_t *text = find(line, texts, NULL), *list = find(line, lists, NULL), *labels = NULL;
    ct_eval_pair given = {0};
    if (!json_is_string(text))
        return bad_line(t,
                        "it has no text (\"query\", \"ctx\", \"question\", \"goal\", \"context\")");
    if (!json_string_length(text)) return bad_line(t, "its text is empty");
    if (json_is_object(list)) {
        labels = json_object_get(list, "label");
        list = json_object_get(list, "text");
    }
    if (!copy(t, text, "", &given.given, &given.n_given)) return false;
    if (!CT_GROW(t->questions, t->cap, t->n + 1))
        return ct__err_memory(t->err, CT_NOWHERE, t->path, t->n * sizeof *t->questions);
    question *q = &t->questions[t->n];
    *q = (question){.first = t->n_pairs};
    if (!add_choices(t, line, list, &given)) return false;
    q->choices = t->n_pairs - q->first;
    if (!find_gold(t, line, labels, q->choices, &q->gold)) return false;
    t->n++;
    return true;
}

static bool read_task(task *t, const char *bytes, size_t n, size_t limit) {
    for (const char *at = bytes, *all = bytes + n, *stop; at < all && t->n < limit; at = stop + 1) {
        json_error_t fault;
        stop = memchr(at, '\n', (size_t)(all - at));
        if (!stop) stop = all;
        t->line++;
        if (without_space(at, (size_t)(stop - at)) == 0) continue;
        json_t *line = ct__json_read(at, (size_t)(stop - at), 0, &fault);
        const bool ok =
            line ? add_question(t, line) : bad_line(t, "column %d: %s", fault.column, fault.text);
        json_decref(line);
        if (!ok) return false;
    }
    return t->n || ct__err(t->err, CT_E_FORMAT, CT_NOWHERE, t->path, "it has no questions");
}

static size_t best(const task *t, const question *q, const ct_lm_score *scores, int by) {
    size_t found = 0;
    double most = -INFINITY;
    for (size_t i = 0; i < q->choices; i++) {
        const ct_eval_pair *p = &t->pairs[q->first + i];
        double value = scores[q->first + i].log_likelihood;
        int64_t words, characters;
        count(p->rest + 1, p->n_rest - 1, &words, &characters); // without the space
        if (by == 1) value /= (double)characters;
        if (by == 2) value /= (double)(p->n_rest - 1);
        if (value > most) found = i, most = value;
    }
    return found;
}

// Standard error of a part p of n.
static double error_of(double p, double n) { return n > 1 ? sqrt(p * (1 - p) / (n - 1)) : NAN; }

static void count_right(const task *t, const ct_lm_score *scores, ct_choices *result) {
    double right[3] = {0};
    for (size_t i = 0; i < t->n; i++)
        for (int by = 0; by < 3; by++)
            right[by] += best(t, &t->questions[i], scores, by) == t->questions[i].gold;
    const double n = (double)t->n;
    *result = (ct_choices){.questions = (int64_t)t->n,
                           .acc = right[0] / n,
                           .acc_stderr = error_of(right[0] / n, n),
                           .acc_norm = right[1] / n,
                           .acc_norm_stderr = error_of(right[1] / n, n),
                           .acc_bytes = right[2] / n,
                           .acc_bytes_stderr = error_of(right[2] / n, n)};
}

bool ct_eval_choices_with(const ct_lm *lm, const ct_tokenizer *tokenizer, const char *path,
                          ct_choices *result, ct_eval_options options) {
    judge j = {.lm = lm, .tokenizer = tokenizer, .o = &options, .op = "eval_choices", .first = -1};
    task t = {.path = path};
    char *bytes = NULL;
    size_t n;
    ct_lm_score *scores = NULL;
    bool ok = begin(&j) && ct__given(ct__ctx(), path, options.here, j.op, "the path") &&
              ct__given(ct__ctx(), result, options.here, j.op, "the result");
    if (ok) t.err = &ct__ctx()->err;
    ok = ok && ct__file_read(path, &bytes, &n, t.err) &&
         read_task(&t, bytes, n, options.limit ? (size_t)options.limit : SIZE_MAX);
    if (ok) {
        scores = ct__malloc((t.n_pairs + 1) * sizeof *scores);
        ok = (scores || no_memory(&j, t.n_pairs * sizeof *scores)) &&
             score_pairs(&j, t.pairs, t.n_pairs, scores);
    }
    if (ok) count_right(&t, scores, result);
    ct__free(bytes);
    ct__free(scores);
    ct__free(t.pairs);
    ct__free(t.questions);
    ct__arena_free(&t.arena);
    end(&j);
    return ok;
}
