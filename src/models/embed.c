// Texts as vectors: what a model makes of their tokens, pooled.
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/os.h"
#include "base/plain.h"
#include "base/text.h"
#include "cotan/embed.h"
#include "io/config.h"
#include "io/json.h"
#include "models/batches.h"
#include "models/lm_gguf.h"
#include "ops/rules.h"
#include "text/tokenizer.h"

enum { DEFAULT_BATCH = 2048, LONGEST = 4096 };

// ---------------------------------------------------------------------------------- what files say

// GGUF files have a number for it: none, mean, first, last, a reranker's.
static ct_embedding usual(const ct_lm *lm) {
    const json_t *said = json_object_get(lm->config.root, CT_LM_GGUF_POOLING);
    const ct_pooling other = lm->spec.bidirectional ? CT_POOL_MEAN : CT_POOL_LAST;
    const ct_pooling of_gguf[] = {other, CT_POOL_MEAN, CT_POOL_CLS, CT_POOL_LAST};
    const json_int_t at = json_integer_value(said);
    return (ct_embedding){.pooling = of_gguf[at >= 0 && at < 4 ? at : 0], .normalised = true};
}

static bool is_there(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

static bool refuse(ct_err *err, const char *path, const char *what, const char *name) {
    return ct__err(err, CT_E_UNSUPPORTED, CT_NOWHERE, path, "%s \"%.80s\" is not known", what,
                   name);
}

static bool read_pooling(const char *path, ct_embedding *how, ct_err *err) {
    static const struct {
        const char *key, *name;
        ct_pooling is;
    } modes[] = {{"pooling_mode_cls_token", "cls", CT_POOL_CLS},
                 {"pooling_mode_mean_tokens", "mean", CT_POOL_MEAN},
                 {"pooling_mode_max_tokens", "max", CT_POOL_MAX},
                 {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", CT_POOL_SQRT},
                 {"pooling_mode_weightedmean_tokens", "weightedmean", CT_POOL_WEIGHTED},
                 {"pooling_mode_lasttoken", "lasttoken", CT_POOL_LAST}};
    ct_config config;
    if (!ct__config_read(path, &config, err)) return false;
    const char *name = json_string_value(json_object_get(config.root, "pooling_mode"));
    int n = 0;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        const bool is = name ? strcmp(name, modes[i].name) == 0
                             : json_is_true(json_object_get(config.root, modes[i].key));
        if (is) how->pooling = modes[i].is;
        n += is;
    }
    bool ok = n == 1;
    if (!ok && name)
        refuse(err, path, "pooling_mode", name);
    else if (!ok)
        ct__err(err, CT_E_UNSUPPORTED, CT_NOWHERE, path,
                "%d ways of pooling are set, one is wanted", n);
    ct__config_close(&config);
    return ok;
}

// modules.json: what a text goes through, one after the other.
static bool read_modules(const char *folder, ct_embedding *how, ct_err *err) {
    char path[LONGEST], *bytes;
    size_t n;
    json_error_t fault;
    snprintf(path, sizeof path, "%s/modules.json", folder);
    if (!is_there(path)) return true;
    if (!ct__file_read(path, &bytes, &n, err)) return false;
    json_t *list = ct__json_read(bytes, n, 0, &fault);
    ct__free(bytes);
    bool ok = json_is_array(list);
    if (!ok)
        ct__err(err, CT_E_FORMAT, CT_NOWHERE, path, "it is no JSON list of modules");
    else
        how->normalised = false;
    for (size_t i = 0; ok && i < json_array_size(list); i++) {
        const json_t *module = json_array_get(list, i);
        const char *type = json_string_value(json_object_get(module, "type"));
        const char *below = json_string_value(json_object_get(module, "path"));
        const char *name = type ? strrchr(type, '.') : NULL;
        name = name ? name + 1 : type ? type : "";
        if (strcmp(name, "Pooling") == 0) {
            char pooling[LONGEST + 256];
            snprintf(pooling, sizeof pooling, "%s/%.200s/config.json", folder, below ? below : ".");
            ok = read_pooling(pooling, how, err);
        } else if (strcmp(name, "Normalize") == 0) {
            how->normalised = true;
        } else if (strcmp(name, "Transformer") != 0) {
            ok = refuse(err, path, "module", name);
        }
    }
    json_decref(list);
    return ok;
}

static bool read_limits(const char *folder, ct_embedding *how, ct_err *err) {
    char path[LONGEST];
    ct_config config;
    snprintf(path, sizeof path, "%s/sentence_bert_config.json", folder);
    if (!is_there(path)) return true;
    if (!ct__config_read(path, &config, err)) return false;
    bool ok = true;
    if (ct__config_has(&config, "max_seq_length") && !ct__config_null(&config, "max_seq_length"))
        ok = ct__config_int(&config, "max_seq_length", 1, INT32_MAX, &how->most, err);
    if (ok && json_is_true(json_object_get(config.root, "do_lower_case")))
        ok = refuse(err, path, "do_lower_case", "true");
    ct__config_close(&config);
    return ok;
}

bool ct_embedding_read_at(const char *path, const ct_lm *lm, ct_embedding *how, ct_loc here) {
    static const char op[] = "embedding_read";
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, path, here, op, "the path") ||
        !ct__given(ctx, lm, here, op, "the model") || !ct__given(ctx, how, here, op, "how") ||
        ctx->err.code)
        return false;
    *how = usual(lm);
    return (read_modules(path, how, &ctx->err) && read_limits(path, how, &ctx->err)) ||
           ct__err_place(&ctx->err, here, op);
}

// -------------------------------------------------------------------------------------- embedding

typedef struct embedding {
    const ct_lm *lm;
    const ct_tokenizer *tokenizer;
    ct_lm_tokens *texts;   // (n)
    const int32_t **kinds; // (n) of each text's tokens, NULL: all of the first kind
    bool of_kinds;         // some are not
    size_t n;
    float *vectors;
    const ct_embed_options *o;
    ct_embedding how;
    ct_batches batches;
    const char *op;
    ct_encoding first, second; // memory of one text's
} embedding;

static int64_t most_tokens(const embedding *e) {
    const ct_spec *s = &e->lm->spec;
    const int64_t context = s->context ? s->context - s->first_position : INT32_MAX;
    return e->how.most && e->how.most < context ? e->how.most : context;
}

static bool too_long(const embedding *e, size_t i, size_t n) {
    ct__fail(ct__ctx(), CT_E_ARGUMENT, e->o->here, e->op,
             "text %zu has %zu tokens, the model reads %lld at most", i, n,
             (long long)most_tokens(e));
    return false;
}

// Keeps tokens of text i, whose end may be too much; `behind` of them the tokenizer put there, and stay.
static bool keep(embedding *e, size_t i, const int32_t *ids, size_t n, size_t behind) {
    const int64_t most = most_tokens(e);
    const size_t kept = (int64_t)n > most ? (size_t)most : n;
    ct_ctx *ctx = ct__ctx();
    if (!n) {
        ct__fail(ctx, CT_E_ARGUMENT, e->o->here, e->op, "text %zu is empty", i);
        return false;
    }
    if (kept < n && !e->o->truncate) return too_long(e, i, n);
    int32_t *v = ct__malloc(kept * sizeof *v);
    if (!v) return ct__err_memory(&ctx->err, e->o->here, e->op, kept * sizeof *v);
    if (kept == n) behind = 0;
    if (behind > kept) behind = kept;
    memcpy(v, ids, (kept - behind) * sizeof *v);
    memcpy(v + kept - behind, ids + n - behind, behind * sizeof *v);
    e->texts[i] = (ct_lm_tokens){v, kept};
    if (e->o->tokens) *e->o->tokens += (int64_t)kept;
    for (size_t k = 0; k < kept; k++)
        if (v[k] < 0 || v[k] >= e->lm->spec.vocab) {
            ct__fail(ctx, CT_E_DATA, e->o->here, e->op,
                     "token %zu of text %zu is %d, the model knows 0 to %lld", k, i, (int)v[k],
                     (long long)e->lm->spec.vocab - 1);
            return false;
        }
    return true;
}

static bool encode_one(const embedding *e, const char *s, size_t n, bool special, ct_encoding *to) {
    if (!s && n) return ct__given(ct__ctx(), NULL, e->o->here, e->op, "a text");
    return ct_tokenizer_encode_with(
        e->tokenizer, n ? s : "", n, to,
        (ct_encode_options){.add_special = special, .offsets = special, .here = e->o->here});
}

// So that both have `most` tokens together, the longer one loses its end first.
static void shorten(size_t *first, size_t *second, size_t most) {
    size_t *less = *first <= *second ? first : second, *more = less == first ? second : first;
    if (*first + *second <= most) return;
    *more = *less > most ? *less : most - *less > *less ? most - *less : *less;
    if (*less + *more <= most) return;
    *less = most / 2;
    *more = most - most / 2;
}

// Two texts as the tokenizer's file puts them together.
static bool encode_two(embedding *e, const ct_lm_text *text, size_t i) {
    size_t n, own = 0;
    const ct_pair_piece *piece = ct__tokenizer_pair(e->tokenizer, &n);
    if (!piece || text->ids) {
        ct__fail(ct__ctx(), CT_E_ARGUMENT, e->o->here, e->op,
                 text->ids
                     ? "text %zu is tokens, with which no other text is read"
                     : "text %zu is two, and the tokenizer does not say how two stand together",
                 i);
        return false;
    }
    if (!encode_one(e, text->s, text->n, false, &e->first) ||
        !encode_one(e, text->second, text->n_second, false, &e->second))
        return false;
    for (size_t k = 0; k < n; k++) own += piece[k].id >= 0;
    size_t left[2] = {e->first.n, e->second.n};
    const size_t all = left[0] + left[1] + own, most = (size_t)most_tokens(e);
    if (all > most && (!e->o->truncate || own >= most)) return too_long(e, i, all);
    shorten(&left[0], &left[1], most - own);
    int32_t *ids = ct__malloc((all + 1) * sizeof *ids), *kinds = ct__calloc(all + 1, sizeof *kinds);
    size_t at = 0;
    for (size_t k = 0; ids && kinds && k < n; k++) {
        const bool second = piece[k].id == CT_PAIR_SECOND;
        const int32_t *from = piece[k].id >= 0 ? &piece[k].id
                              : second         ? e->second.ids
                                               : e->first.ids;
        const size_t count = piece[k].id >= 0 ? 1 : left[second];
        if (count) memcpy(ids + at, from, count * sizeof *ids);
        const bool known = !e->tokenizer->one_kind && piece[k].kind < e->lm->spec.types;
        for (size_t c = 0; c < count; c++) kinds[at++] = known ? piece[k].kind : 0;
    }
    bool ok =
        (ids && kinds) || ct__err_memory(&ct__ctx()->err, e->o->here, e->op, all * sizeof *ids);
    ok = ok && keep(e, i, ids, at, 0);
    e->kinds[i] = kinds;
    e->of_kinds = true;
    ct__free(ids);
    return ok;
}

static bool encode(embedding *e, const ct_lm_text *text, size_t i) {
    if (text->second) return encode_two(e, text, i);
    if (text->ids) return keep(e, i, text->ids, text->n_ids, 0);
    ct_encoding *found = &e->first;
    if (!encode_one(e, text->s, text->n, true, found)) return false;
    size_t behind = 0;
    while (behind < found->n && found->added[found->n - 1 - behind]) behind++;
    return keep(e, i, found->ids, found->n, behind);
}

// rows (n, width) -> to (width)
static void pool(const embedding *e, const float *rows, int64_t n, double *sum, float *to) {
    const int64_t width = e->lm->spec.width;
    const ct_pooling by = e->how.pooling;
    const double first = by == CT_POOL_MAX ? -INFINITY : 0;
    for (int64_t k = 0; k < width; k++) sum[k] = first;
    for (int64_t i = 0; i < n; i++) {
        if ((by == CT_POOL_CLS && i) || (by == CT_POOL_LAST && i < n - 1)) continue;
        const double w = by == CT_POOL_WEIGHTED ? (double)(i + 1) : 1;
        for (int64_t k = 0; k < width; k++) {
            const double x = (double)rows[i * width + k];
            sum[k] = by == CT_POOL_MAX ? fmax(sum[k], x) : sum[k] + w * x;
        }
    }
    double scale = by == CT_POOL_MEAN       ? 1 / (double)n
                   : by == CT_POOL_SQRT     ? 1 / sqrt((double)n)
                   : by == CT_POOL_WEIGHTED ? 2 / ((double)n * (double)(n + 1))
                                            : 1;
    double length = 0;
    for (int64_t k = 0; k < width; k++) length += sum[k] * scale * sum[k] * scale;
    if (e->how.normalised) scale /= fmax(sqrt(length), 1e-12);
    for (int64_t k = 0; k < width; k++) to[k] = (float)(sum[k] * scale);
}

static bool run_pass(embedding *e, double *sum) {
    CT_SCOPE;
    const ct_batches *b = &e->batches;
    const size_t width = (size_t)e->lm->spec.width;
    ct_lm_pass pass;
    ct_tensor x = ct__batches_rows(b, e->lm, &pass, e->o->here); // (B * T, width)
    const float *rows = ct_data_at(x, e->o->here);
    if (!rows) return false;
    CT_PLAIN;
    for (int64_t i = 0; i < b->rows; i++)
        pool(e, rows + (size_t)(i * b->time) * width, b->lengths[i], sum,
             e->vectors + b->which[i] * width);
    return true;
}

static bool embed_all(embedding *e, const ct_lm_text *texts) {
    const ct_embed_options *o = e->o;
    ct_ctx *ctx = ct__ctx();
    double *sum = ct__malloc((size_t)e->lm->spec.width * sizeof *sum);
    e->texts = ct__calloc(e->n + 1, sizeof *e->texts);
    e->kinds = ct__calloc(e->n + 1, sizeof *e->kinds);
    bool ok = (sum && e->texts && e->kinds) ||
              ct__err_memory(&ctx->err, o->here, e->op, e->n * sizeof *e->texts);
    for (size_t i = 0; ok && i < e->n; i++) ok = encode(e, &texts[i], i);
    const bool kinds = e->of_kinds && e->lm->spec.types > 1;
    if (ok && !ct__batches_begin(&e->batches, e->texts, kinds ? e->kinds : NULL, e->n,
                                 o->batch ? o->batch : DEFAULT_BATCH))
        ok = ct__err_memory(&ctx->err, o->here, e->op, e->n * sizeof *e->texts);
    while (ok && ct__batches_next(&e->batches)) {
        ok = run_pass(e, sum);
        if (ok && o->progress) o->progress((int64_t)e->batches.next, (int64_t)e->n, o->user);
        if (ok && o->stop && o->stop(o->user)) {
            ct__fail(ctx, CT_E_INTERRUPTED, o->here, e->op, "stopped after %zu of %zu texts",
                     e->batches.next, e->n);
            ok = false;
        }
    }
    ct__free(sum);
    return ok;
}

static void free_embedding(embedding *e) {
    for (size_t i = 0; e->texts && i < e->n; i++) ct__free((int32_t *)(uintptr_t)e->texts[i].v);
    for (size_t i = 0; e->kinds && i < e->n; i++) ct__free((int32_t *)(uintptr_t)e->kinds[i]);
    ct__free(e->texts);
    ct__free(e->kinds);
    ct_encoding_free(&e->first);
    ct_encoding_free(&e->second);
    ct__batches_free(&e->batches);
}

static bool options_fit(const embedding *e) {
    ct_ctx *ctx = ct__ctx();
    const ct_embed_options *o = e->o;
    if (e->lm->reader) {
        ct__fail(ctx, CT_E_ARGUMENT, o->here, e->op, "%s reads one text and writes another",
                 e->lm->spec.type);
    } else if ((unsigned)o->how.pooling > CT_POOL_WEIGHTED) {
        ct__fail(ctx, CT_E_ARGUMENT, o->here, e->op, "pooling is %d, it must be 0 to %d",
                 (int)o->how.pooling, (int)CT_POOL_WEIGHTED);
    } else if (o->batch < 0 || o->batch > 1 << 24 || o->how.most < 0) {
        ct__fail(ctx, CT_E_ARGUMENT, o->here, e->op, "batch is %lld, it must be 1 to %d",
                 (long long)o->batch, 1 << 24);
    } else {
        return true;
    }
    return false;
}

static bool given(const embedding *e, const ct_lm_text *texts, const float *out, const char *what) {
    ct_ctx *ctx = ct__ctx();
    const ct_loc here = e->o->here;
    return ctx && ct__given(ctx, e->lm, here, e->op, "the model") &&
           ct__given(ctx, e->tokenizer, here, e->op, "the tokenizer") &&
           (!e->n || (ct__given(ctx, texts, here, e->op, "the texts") &&
                      ct__given(ctx, out, here, e->op, what))) &&
           !ctx->err.code && options_fit(e);
}

bool ct_lm_embed_with(const ct_lm *lm, const ct_tokenizer *tokenizer, const ct_lm_text *texts,
                      size_t n, float *vectors, ct_embed_options o) {
    embedding e = {
        .lm = lm, .tokenizer = tokenizer, .n = n, .vectors = vectors, .o = &o, .op = "lm_embed"};
    if (!given(&e, texts, vectors, "the vectors")) return false;
    e.how = o.how.pooling == CT_POOL_AUTO ? usual(lm) : o.how;
    if (o.tokens) *o.tokens = 0;
    const bool ok = embed_all(&e, texts);
    free_embedding(&e);
    return ok;
}

// ---------------------------------------------------------------------------------------- classes

// vectors (n, width) -> scores (n, labels)
static bool score(const embedding *e, float *scores) {
    enum { ROWS = 1024 };
    const size_t width = (size_t)e->lm->spec.width, labels = (size_t)e->lm->labels;
    const ct_lm_pass pass = {.lm = e->lm, .here = e->o->here};
    for (size_t i = 0; i < e->n; i += ROWS) {
        CT_SCOPE;
        const size_t rows = e->n - i < ROWS ? e->n - i : ROWS;
        ct_tensor x = ct_from_at(e->vectors + i * width, CT_F32,
                                 CT_DIMS(ct__varying((int64_t)rows), (int64_t)width), e->o->here);
        const float *found = ct_data_at(ct__stack_scores(&pass, x), e->o->here);
        if (!found) return false;
        memcpy(scores + i * labels, found, rows * labels * sizeof *scores);
    }
    return true;
}

bool ct_lm_classify_with(const ct_lm *lm, const ct_tokenizer *tokenizer, const ct_lm_text *texts,
                         size_t n, float *scores, ct_embed_options o) {
    static const ct_pooling poolings[] = {CT_POOL_CLS, CT_POOL_MEAN, CT_POOL_LAST};
    embedding e = {.lm = lm, .tokenizer = tokenizer, .n = n, .o = &o, .op = "lm_classify"};
    ct_ctx *ctx = ct__ctx();
    if (!given(&e, texts, scores, "the scores")) return false;
    if (!lm->labels) {
        ct__fail(ctx, CT_E_ARGUMENT, o.here, e.op,
                 "the model has no head that tells classes of texts apart (%s)", lm->spec.type);
        return false;
    }
    e.how = (ct_embedding){.pooling = poolings[lm->spec.score_pool], .most = o.how.most};
    if (o.tokens) *o.tokens = 0;
    e.vectors = ct__malloc((n * (size_t)lm->spec.width + 1) * sizeof *e.vectors);
    const bool ok = (e.vectors || ct__err_memory(&ctx->err, o.here, e.op,
                                                 n * (size_t)lm->spec.width * sizeof *e.vectors)) &&
                    embed_all(&e, texts) && score(&e, scores);
    ct__free(e.vectors);
    free_embedding(&e);
    return ok;
}

void ct_lm_probabilities(const ct_lm *lm, float *scores, size_t n) {
    CT_PLAIN;
    if (!lm || !scores) return;
    const char *type = json_string_value(json_object_get(lm->config.root, "problem_type"));
    const bool alone = lm->labels == 1 || (type && !strcmp(type, "multi_label_classification"));
    for (size_t i = 0; i < n; i++, scores += lm->labels) {
        double most = -INFINITY, sum = 0;
        for (int64_t k = 0; k < lm->labels; k++) most = fmax(most, (double)scores[k]);
        for (int64_t k = 0; k < lm->labels; k++) sum += exp((double)scores[k] - most);
        for (int64_t k = 0; k < lm->labels; k++)
            scores[k] = (float)(alone ? 1 / (1 + exp(-(double)scores[k]))
                                      : exp((double)scores[k] - most) / sum);
    }
}

void ct_lm_label(const ct_lm *lm, int64_t label, char *name, size_t n) {
    char key[24];
    if (!name || !n) return;
    snprintf(key, sizeof key, "%lld", (long long)label);
    const json_t *names = lm ? json_object_get(lm->config.root, "id2label") : NULL;
    const char *own = json_string_value(json_object_get(names, key));
    if (own)
        snprintf(name, n, "%s", own);
    else
        snprintf(name, n, "LABEL_%s", key);
}
