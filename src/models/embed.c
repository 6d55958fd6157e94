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
#include "ops/rules.h"

enum { DEFAULT_BATCH = 2048, LONGEST = 4096 };

// ---------------------------------------------------------------------------------- what files say

static ct_embedding usual(const ct_lm *lm) {
    return (ct_embedding){.pooling = lm->spec.bidirectional ? CT_POOL_MEAN : CT_POOL_LAST,
                          .normalised = true};
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
    ct_lm_tokens *texts; // (n)
    size_t n;
    float *vectors;
    const ct_embed_options *o;
    ct_embedding how;
    ct_batches batches;
} embedding;
static const char embed_op[] = "lm_embed";

static int64_t most_tokens(const embedding *e) {
    const ct_spec *s = &e->lm->spec;
    const int64_t context = s->context ? s->context - s->first_position : INT32_MAX;
    return e->how.most && e->how.most < context ? e->how.most : context;
}

// Keeps tokens of text i, whose end may be too much; `behind` of them the tokenizer put there, and stay.
static bool keep(embedding *e, size_t i, const int32_t *ids, size_t n, size_t behind) {
    const int64_t most = most_tokens(e);
    const size_t kept = (int64_t)n > most ? (size_t)most : n;
    ct_ctx *ctx = ct__ctx();
    if (!n) {
        ct__fail(ctx, CT_E_ARGUMENT, e->o->here, embed_op, "text %zu is empty", i);
        return false;
    }
    if (kept < n && !e->o->truncate) {
        ct__fail(ctx, CT_E_ARGUMENT, e->o->here, embed_op,
                 "text %zu has %zu tokens, the model reads %lld at most", i, n, (long long)most);
        return false;
    }
    int32_t *v = ct__malloc(kept * sizeof *v);
    if (!v) return ct__err_memory(&ctx->err, e->o->here, embed_op, kept * sizeof *v);
    if (kept == n) behind = 0;
    if (behind > kept) behind = kept;
    memcpy(v, ids, (kept - behind) * sizeof *v);
    memcpy(v + kept - behind, ids + n - behind, behind * sizeof *v);
    e->texts[i] = (ct_lm_tokens){v, kept};
    if (e->o->tokens) *e->o->tokens += (int64_t)kept;
    for (size_t k = 0; k < kept; k++)
        if (v[k] < 0 || v[k] >= e->lm->spec.vocab) {
            ct__fail(ctx, CT_E_DATA, e->o->here, embed_op,
                     "token %zu of text %zu is %d, the model knows 0 to %lld", k, i, (int)v[k],
                     (long long)e->lm->spec.vocab - 1);
            return false;
        }
    return true;
}

static bool encode(embedding *e, const ct_lm_text *text, size_t i, ct_encoding *found) {
    if (text->ids) return keep(e, i, text->ids, text->n_ids, 0);
    if (!text->s && text->n) return ct__given(ct__ctx(), NULL, e->o->here, embed_op, "a text");
    if (!ct_tokenizer_encode_with(
            e->tokenizer, text->n ? text->s : "", text->n, found,
            (ct_encode_options){.add_special = true, .offsets = true, .here = e->o->here}))
        return false;
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
    ct_encoding found = {0};
    double *sum = ct__malloc((size_t)e->lm->spec.width * sizeof *sum);
    e->texts = ct__calloc(e->n + 1, sizeof *e->texts);
    bool ok =
        (sum && e->texts) || ct__err_memory(&ctx->err, o->here, embed_op, e->n * sizeof *e->texts);
    for (size_t i = 0; ok && i < e->n; i++) ok = encode(e, &texts[i], i, &found);
    ct_encoding_free(&found);
    if (ok && !ct__batches_begin(&e->batches, e->texts, e->n, o->batch ? o->batch : DEFAULT_BATCH))
        ok = ct__err_memory(&ctx->err, o->here, embed_op, e->n * sizeof *e->texts);
    while (ok && ct__batches_next(&e->batches)) {
        ok = run_pass(e, sum);
        if (ok && o->progress) o->progress((int64_t)e->batches.next, (int64_t)e->n, o->user);
        if (ok && o->stop && o->stop(o->user)) {
            ct__fail(ctx, CT_E_INTERRUPTED, o->here, embed_op, "stopped after %zu of %zu texts",
                     e->batches.next, e->n);
            ok = false;
        }
    }
    ct__free(sum);
    return ok;
}

static bool options_fit(const ct_lm *lm, const ct_embed_options *o) {
    ct_ctx *ctx = ct__ctx();
    if (lm->reader) {
        ct__fail(ctx, CT_E_ARGUMENT, o->here, embed_op, "%s reads one text and writes another",
                 lm->spec.type);
    } else if ((unsigned)o->how.pooling > CT_POOL_WEIGHTED) {
        ct__fail(ctx, CT_E_ARGUMENT, o->here, embed_op, "pooling is %d, it must be 0 to %d",
                 (int)o->how.pooling, (int)CT_POOL_WEIGHTED);
    } else if (o->batch < 0 || o->batch > 1 << 24 || o->how.most < 0) {
        ct__fail(ctx, CT_E_ARGUMENT, o->here, embed_op, "batch is %lld, it must be 1 to %d",
                 (long long)o->batch, 1 << 24);
    } else {
        return true;
    }
    return false;
}

bool ct_lm_embed_with(const ct_lm *lm, const ct_tokenizer *tokenizer, const ct_lm_text *texts,
                      size_t n, float *vectors, ct_embed_options o) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, lm, o.here, embed_op, "the model") ||
        !ct__given(ctx, tokenizer, o.here, embed_op, "the tokenizer") ||
        (n && (!ct__given(ctx, texts, o.here, embed_op, "the texts") ||
               !ct__given(ctx, vectors, o.here, embed_op, "the vectors"))) ||
        ctx->err.code || !options_fit(lm, &o))
        return false;
    embedding e = {.lm = lm, .tokenizer = tokenizer, .n = n, .vectors = vectors, .o = &o};
    e.how = o.how.pooling == CT_POOL_AUTO ? usual(lm) : o.how;
    if (o.tokens) *o.tokens = 0;
    const bool ok = embed_all(&e, texts);
    for (size_t i = 0; e.texts && i < n; i++) ct__free((int32_t *)(uintptr_t)e.texts[i].v);
    ct__free(e.texts);
    ct__batches_free(&e.batches);
    return ok;
}
