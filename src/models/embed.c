// Embeddings and classes of texts: pools the hidden states of their tokens.
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/os.h"
#include "base/fp_env.h"
#include "cotan/embed.h"
#include "io/config.h"
#include "io/json.h"
#include "models/batches.h"
#include "models/lm_gguf.h"
#include "text/tokenizer.h"

enum { DEFAULT_BATCH = 2048, EMBED_MAX_PATH = 4096 };

// ------------------------------------------------------------------------------------- configuration

// Returns the default pooling; GGUF files store a number: none, mean, first, last, a reranker's.
static ct_pooling_config embed_default_config(const ct_lm *lm) {
    const json_t *pooling_type = json_object_get(lm->config.root, CT_LM_GGUF_POOLING);
    const ct_pooling default_pooling = lm->spec.bidirectional ? CT_POOL_MEAN : CT_POOL_LAST;
    const ct_pooling gguf_poolings[] = {default_pooling, CT_POOL_MEAN, CT_POOL_CLS, CT_POOL_LAST};
    const json_int_t index = json_integer_value(pooling_type);
    return (ct_pooling_config){.pooling = gguf_poolings[index >= 0 && index < 4 ? index : 0],
                               .normalised = true};
}

static bool embed_file_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

static bool embed_refuse(ct_err *err, const char *path, const char *kind, const char *name) {
    return ct__err(err, CT_E_UNSUPPORTED, CT_NOWHERE, path, "%s \"%.80s\" is not known", kind,
                   name);
}

static bool embed_read_pooling(const char *path, ct_pooling_config *config, ct_err *err) {
    static const struct {
        const char *key, *name;
        ct_pooling is;
    } modes[] = {{"pooling_mode_cls_token", "cls", CT_POOL_CLS},
                 {"pooling_mode_mean_tokens", "mean", CT_POOL_MEAN},
                 {"pooling_mode_max_tokens", "max", CT_POOL_MAX},
                 {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", CT_POOL_SQRT},
                 {"pooling_mode_weightedmean_tokens", "weightedmean", CT_POOL_WEIGHTED},
                 {"pooling_mode_lasttoken", "lasttoken", CT_POOL_LAST}};
    ct_config file;
    if (!ct__config_read(path, &file, err)) return false;
    const char *name = json_string_value(json_object_get(file.root, "pooling_mode"));
    int n = 0;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        const bool is = name ? strcmp(name, modes[i].name) == 0
                             : json_is_true(json_object_get(file.root, modes[i].key));
        if (is) config->pooling = modes[i].is;
        n += is;
    }
    bool ok = n == 1;
    if (!ok && name)
        embed_refuse(err, path, "pooling_mode", name);
    else if (!ok)
        ct__err(err, CT_E_UNSUPPORTED, CT_NOWHERE, path,
                "%d pooling modes are set, exactly one is needed", n);
    ct__config_close(&file);
    return ok;
}

// Reads modules.json, the sequence of modules that process a text.
static bool embed_read_modules(const char *folder, ct_pooling_config *embedding_config,
                               ct_err *err) {
    char path[EMBED_MAX_PATH], *bytes;
    size_t n;
    json_error_t fault;
    snprintf(path, sizeof path, "%s/modules.json", folder);
    if (!embed_file_exists(path)) return true;
    if (!ct__file_read(path, &bytes, &n, err)) return false;
    json_t *list = ct__json_read(bytes, n, 0, &fault);
    ct__free(bytes);
    bool ok = json_is_array(list);
    if (!ok)
        ct__err(err, CT_E_FORMAT, CT_NOWHERE, path, "it is no JSON list of modules");
    else
        embedding_config->normalised = false;
    for (size_t i = 0; ok && i < json_array_size(list); i++) {
        const json_t *module = json_array_get(list, i);
        const char *type = json_string_value(json_object_get(module, "type"));
        const char *subfolder = json_string_value(json_object_get(module, "path"));
        const char *name = type ? strrchr(type, '.') : NULL;
        name = name ? name + 1 : type ? type : "";
        if (strcmp(name, "Pooling") == 0) {
            char pooling[EMBED_MAX_PATH + 256];
            snprintf(pooling, sizeof pooling, "%s/%.200s/config.json", folder,
                     subfolder ? subfolder : ".");
            ok = embed_read_pooling(pooling, embedding_config, err);
        } else if (strcmp(name, "Normalize") == 0) {
            embedding_config->normalised = true;
        } else if (strcmp(name, "Transformer") != 0) {
            ok = embed_refuse(err, path, "module", name);
        }
    }
    json_decref(list);
    return ok;
}

static bool embed_read_limits(const char *folder, ct_pooling_config *embedding_config,
                              ct_err *err) {
    char path[EMBED_MAX_PATH];
    ct_config config;
    snprintf(path, sizeof path, "%s/sentence_bert_config.json", folder);
    if (!embed_file_exists(path)) return true;
    if (!ct__config_read(path, &config, err)) return false;
    bool ok = true;
    if (ct__config_has(&config, "max_seq_length") && !ct__config_is_null(&config, "max_seq_length"))
        ok = ct__config_int(&config, "max_seq_length", 1, INT32_MAX, &embedding_config->max_tokens,
                            err);
    if (ok && json_is_true(json_object_get(config.root, "do_lower_case")))
        ok = embed_refuse(err, path, "do_lower_case", "true");
    ct__config_close(&config);
    return ok;
}

bool ct_pooling_config_read_at(const char *path, const ct_lm *lm, ct_pooling_config *config,
                               ct_loc here) {
    static const char op[] = "pooling_config_read";
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, path, here, op, "the path") ||
        !ct__given(ctx, lm, here, op, "the model") || !ct__given(ctx, config, here, op, "how") ||
        ctx->err.code)
        return false;
    *config = embed_default_config(lm);
    return (embed_read_modules(path, config, &ctx->err) &&
            embed_read_limits(path, config, &ctx->err)) ||
           ct__err_locate(&ctx->err, here, op);
}

// ----------------------------------------------------------------------------------------- embedding

typedef struct embed_job {
    const ct_lm *lm;
    const ct_tokenizer *tokenizer;
    ct_lm_tokens *sequences;     // (n)
    const int32_t **token_types; // (n) of each sequence the token types, NULL: all 0
    bool has_types;              // some token types are not 0
    size_t n;
    float *vectors;
    const ct_embed_options *o;
    ct_pooling_config how;
    ct_batches batches;
    const char *op;
    ct_encoding first, second; // buffers for one sequence
} embed_job;

static int64_t embed_max_tokens(const embed_job *e) {
    const ct_spec *s = &e->lm->spec;
    const int64_t context = s->context ? s->context - s->first_position : INT32_MAX;
    return e->how.max_tokens && e->how.max_tokens < context ? e->how.max_tokens : context;
}

static bool embed_refuse_length(const embed_job *e, size_t i, size_t n) {
    return ct__refuse(ct__ctx(), CT_E_ARGUMENT, e->o->here, e->op,
                      "text %zu has %zu tokens, the model reads %lld at most", i, n,
                      (long long)embed_max_tokens(e));
}

// Stores the tokens of text i, truncated at the end if they are too many; the last `n_special` tokens are
// special tokens of the tokenizer, and are kept.
static bool embed_store_tokens(embed_job *e, size_t i, const int32_t *ids, size_t n,
                               size_t n_special) {
    const int64_t max_tokens = embed_max_tokens(e);
    const size_t n_kept = (int64_t)n > max_tokens ? (size_t)max_tokens : n;
    ct_ctx *ctx = ct__ctx();
    if (!n) return ct__refuse(ctx, CT_E_ARGUMENT, e->o->here, e->op, "text %zu is empty", i);
    if (n_kept < n && !e->o->truncate) return embed_refuse_length(e, i, n);
    int32_t *v = ct__malloc(n_kept * sizeof *v);
    if (!v) return ct__err_memory(&ctx->err, e->o->here, e->op, n_kept * sizeof *v);
    if (n_kept == n) n_special = 0;
    if (n_special > n_kept) n_special = n_kept;
    memcpy(v, ids, (n_kept - n_special) * sizeof *v);
    memcpy(v + n_kept - n_special, ids + n - n_special, n_special * sizeof *v);
    e->sequences[i] = (ct_lm_tokens){v, n_kept};
    if (e->o->n_tokens) *e->o->n_tokens += (int64_t)n_kept;
    for (size_t k = 0; k < n_kept; k++)
        if (v[k] < 0 || v[k] >= e->lm->spec.vocab)
            return ct__refuse(ctx, CT_E_DATA, e->o->here, e->op,
                              "token %zu of text %zu is %d, it must be 0 to %lld", k, i, (int)v[k],
                              (long long)e->lm->spec.vocab - 1);
    return true;
}

static bool embed_encode_text(const embed_job *e, const char *s, size_t n, bool special,
                              ct_encoding *to) {
    if (!s && n) return ct__given(ct__ctx(), NULL, e->o->here, e->op, "a text");
    return ct_tokenizer_encode_with(
        e->tokenizer, n ? s : "", n, to,
        (ct_encode_options){.add_special = special, .offsets = special, .here = e->o->here});
}

// Truncates both to `max_tokens` tokens together; the longer one is cut first.
static void embed_truncate_pair(size_t *first, size_t *second, size_t max_tokens) {
    size_t *shorter = *first <= *second ? first : second,
           *longer = shorter == first ? second : first;
    if (*first + *second <= max_tokens) return;
    *longer = *shorter > max_tokens              ? *shorter
              : max_tokens - *shorter > *shorter ? max_tokens - *shorter
                                                 : *shorter;
    if (*shorter + *longer <= max_tokens) return;
    *shorter = max_tokens / 2;
    *longer = max_tokens - max_tokens / 2;
}

// Encodes a pair of texts by the tokenizer's template.
static bool embed_encode_pair(embed_job *e, const ct_lm_text *text, size_t i) {
    size_t n, n_special = 0;
    const ct_pair_piece *template = ct__tokenizer_pair(e->tokenizer, &n);
    if (!template || text->ids)
        return ct__refuse(ct__ctx(), CT_E_ARGUMENT, e->o->here, e->op,
                          text->ids ? "text %zu is token ids, which cannot be part of a pair"
                                    : "text %zu is a pair, and the tokenizer has no pair format",
                          i);
    if (!embed_encode_text(e, text->s, text->n, false, &e->first) ||
        !embed_encode_text(e, text->text_pair, text->n_text_pair, false, &e->second))
        return false;
    for (size_t k = 0; k < n; k++) n_special += template[k].id >= 0;
    size_t counts[2] = {e->first.n, e->second.n};
    const size_t total = counts[0] + counts[1] + n_special,
                 max_tokens = (size_t)embed_max_tokens(e);
    if (total > max_tokens && (!e->o->truncate || n_special >= max_tokens))
        return embed_refuse_length(e, i, total);
    embed_truncate_pair(&counts[0], &counts[1], max_tokens - n_special);
    int32_t *ids = ct__malloc((total + 1) * sizeof *ids),
            *types = ct__calloc(total + 1, sizeof *types);
    size_t at = 0;
    for (size_t k = 0; ids && types && k < n; k++) {
        const bool second = template[k].id == CT_PAIR_SECOND;
        const int32_t *from = template[k].id >= 0 ? &template[k].id
                              : second            ? e->second.ids
                                                  : e->first.ids;
        const size_t count = template[k].id >= 0 ? 1 : counts[second];
        if (count) memcpy(ids + at, from, count * sizeof *ids);
        const bool is_known = !e->tokenizer->single_type_id && template[k].kind < e->lm->spec.types;
        for (size_t c = 0; c < count; c++) types[at++] = is_known ? template[k].kind : 0;
    }
    bool ok =
        (ids && types) || ct__err_memory(&ct__ctx()->err, e->o->here, e->op, total * sizeof *ids);
    ok = ok && embed_store_tokens(e, i, ids, at, 0);
    e->token_types[i] = types;
    e->has_types = true;
    ct__free(ids);
    return ok;
}

static bool embed_encode(embed_job *e, const ct_lm_text *text, size_t i) {
    if (text->text_pair) return embed_encode_pair(e, text, i);
    if (text->ids) return embed_store_tokens(e, i, text->ids, text->n_ids, 0);
    ct_encoding *tokens = &e->first;
    if (!embed_encode_text(e, text->s, text->n, true, tokens)) return false;
    size_t n_special = 0;
    while (n_special < tokens->n && tokens->special_mask[tokens->n - 1 - n_special]) n_special++;
    return embed_store_tokens(e, i, tokens->ids, tokens->n, n_special);
}

// rows (n, width) -> to (width)
static void embed_pool(const embed_job *e, const float *rows, int64_t n, double *sum, float *to) {
    const int64_t width = e->lm->spec.width;
    const ct_pooling pooling = e->how.pooling;
    const double init = pooling == CT_POOL_MAX ? -INFINITY : 0;
    for (int64_t k = 0; k < width; k++) sum[k] = init;
    for (int64_t i = 0; i < n; i++) {
        if ((pooling == CT_POOL_CLS && i) || (pooling == CT_POOL_LAST && i < n - 1)) continue;
        const double w = pooling == CT_POOL_WEIGHTED ? (double)(i + 1) : 1;
        for (int64_t k = 0; k < width; k++) {
            const double x = (double)rows[i * width + k];
            sum[k] = pooling == CT_POOL_MAX ? fmax(sum[k], x) : sum[k] + w * x;
        }
    }
    double scale = pooling == CT_POOL_MEAN       ? 1 / (double)n
                   : pooling == CT_POOL_SQRT     ? 1 / sqrt((double)n)
                   : pooling == CT_POOL_WEIGHTED ? 2 / ((double)n * (double)(n + 1))
                                                 : 1;
    double squares = 0;
    for (int64_t k = 0; k < width; k++) squares += sum[k] * scale * sum[k] * scale;
    if (e->how.normalised) scale /= fmax(sqrt(squares), 1e-12);
    for (int64_t k = 0; k < width; k++) to[k] = (float)(sum[k] * scale);
}

static bool embed_forward(embed_job *e, double *sum) {
    CT_SCOPE;
    const ct_batches *b = &e->batches;
    const size_t width = (size_t)e->lm->spec.width;
    ct_lm_pass pass;
    ct_tensor x = ct__batches_rows(b, e->lm, &pass, e->o->here); // (B * T, width)
    const float *rows = ct_data_at(x, e->o->here);
    if (!rows) return false;
    CT_DEFAULT_ENV;
    for (int64_t i = 0; i < b->rows; i++)
        embed_pool(e, rows + (size_t)(i * b->time) * width, b->lengths[i], sum,
                   e->vectors + b->indices[i] * width);
    return true;
}

static bool embed_all_texts(embed_job *e, const ct_lm_text *texts) {
    const ct_embed_options *o = e->o;
    ct_ctx *ctx = ct__ctx();
    double *sum = ct__malloc((size_t)e->lm->spec.width * sizeof *sum);
    e->sequences = ct__calloc(e->n + 1, sizeof *e->sequences);
    e->token_types = ct__calloc(e->n + 1, sizeof *e->token_types);
    bool ok = (sum && e->sequences && e->token_types) ||
              ct__err_memory(&ctx->err, o->here, e->op, e->n * sizeof *e->sequences);
    for (size_t i = 0; ok && i < e->n; i++) ok = embed_encode(e, &texts[i], i);
    const bool kinds = e->has_types && e->lm->spec.types > 1;
    if (ok && !ct__batches_begin(&e->batches, e->sequences, kinds ? e->token_types : NULL, e->n,
                                 o->batch_tokens ? o->batch_tokens : DEFAULT_BATCH))
        ok = ct__err_memory(&ctx->err, o->here, e->op, e->n * sizeof *e->sequences);
    while (ok && ct__batches_next(&e->batches)) {
        ok = embed_forward(e, sum);
        if (ok && o->progress) o->progress((int64_t)e->batches.next, (int64_t)e->n, o->user);
        if (ok && o->should_stop && o->should_stop(o->user)) {
            ct__fail(ctx, CT_E_INTERRUPTED, o->here, e->op, "stopped after %zu of %zu texts",
                     e->batches.next, e->n);
            ok = false;
        }
    }
    ct__free(sum);
    return ok;
}

static void embed_job_free(embed_job *e) {
    for (size_t i = 0; e->sequences && i < e->n; i++)
        ct__free((int32_t *)(uintptr_t)e->sequences[i].v);
    for (size_t i = 0; e->token_types && i < e->n; i++)
        ct__free((int32_t *)(uintptr_t)e->token_types[i]);
    ct__free(e->sequences);
    ct__free(e->token_types);
    ct_encoding_free(&e->first);
    ct_encoding_free(&e->second);
    ct__batches_free(&e->batches);
}

static bool embed_options_check(const embed_job *e) {
    ct_ctx *ctx = ct__ctx();
    const ct_embed_options *o = e->o;
    if (e->lm->reader) {
        ct__fail(ctx, CT_E_ARGUMENT, o->here, e->op, "%s is an encoder-decoder model",
                 e->lm->spec.type);
    } else if ((unsigned)o->pooling.pooling > CT_POOL_WEIGHTED) {
        ct__fail(ctx, CT_E_ARGUMENT, o->here, e->op, "pooling is %d, it must be 0 to %d",
                 (int)o->pooling.pooling, (int)CT_POOL_WEIGHTED);
    } else if (o->batch_tokens < 0 || o->batch_tokens > 1 << 24 || o->pooling.max_tokens < 0) {
        ct__fail(ctx, CT_E_ARGUMENT, o->here, e->op, "batch is %lld, it must be 1 to %d",
                 (long long)o->batch_tokens, 1 << 24);
    } else {
        return true;
    }
    return false;
}

static bool embed_check_arguments(const embed_job *e, const ct_lm_text *texts, const float *out,
                                  const char *output) {
    ct_ctx *ctx = ct__ctx();
    const ct_loc here = e->o->here;
    return ctx && ct__given(ctx, e->lm, here, e->op, "the model") &&
           ct__given(ctx, e->tokenizer, here, e->op, "the tokenizer") &&
           (!e->n || (ct__given(ctx, texts, here, e->op, "the texts") &&
                      ct__given(ctx, out, here, e->op, output))) &&
           !ctx->err.code && embed_options_check(e);
}

bool ct_lm_embed_with(const ct_lm *lm, const ct_tokenizer *tokenizer, const ct_lm_text *texts,
                      size_t n, float *vectors, ct_embed_options o) {
    embed_job e = {
        .lm = lm, .tokenizer = tokenizer, .n = n, .vectors = vectors, .o = &o, .op = "lm_embed"};
    if (!embed_check_arguments(&e, texts, vectors, "the vectors")) return false;
    e.how = o.pooling.pooling == CT_POOL_AUTO ? embed_default_config(lm) : o.pooling;
    if (o.n_tokens) *o.n_tokens = 0;
    const bool ok = embed_all_texts(&e, texts);
    embed_job_free(&e);
    return ok;
}

// ------------------------------------------------------------------------------------ classification

// vectors (n, width) -> scores (n, labels)
static bool embed_score_classes(const embed_job *e, float *scores) {
    enum { ROWS = 1024 };
    const size_t width = (size_t)e->lm->spec.width, labels = (size_t)e->lm->labels;
    const ct_lm_pass pass = {.lm = e->lm, .here = e->o->here};
    for (size_t i = 0; i < e->n; i += ROWS) {
        CT_SCOPE;
        const size_t rows = e->n - i < ROWS ? e->n - i : ROWS;
        ct_tensor x = ct_from_at(e->vectors + i * width, CT_F32,
                                 CT_DIMS(ct__varying((int64_t)rows), (int64_t)width), e->o->here);
        const float *result = ct_data_at(ct__stack_scores(&pass, x), e->o->here);
        if (!result) return false;
        memcpy(scores + i * labels, result, rows * labels * sizeof *scores);
    }
    return true;
}

bool ct_lm_classify_with(const ct_lm *lm, const ct_tokenizer *tokenizer, const ct_lm_text *texts,
                         size_t n, float *scores, ct_embed_options o) {
    static const ct_pooling poolings[] = {CT_POOL_CLS, CT_POOL_MEAN, CT_POOL_LAST};
    embed_job e = {.lm = lm, .tokenizer = tokenizer, .n = n, .o = &o, .op = "lm_classify"};
    ct_ctx *ctx = ct__ctx();
    if (!embed_check_arguments(&e, texts, scores, "the scores")) return false;
    if (!lm->labels)
        return ct__refuse(ctx, CT_E_ARGUMENT, o.here, e.op,
                          "the model has no classification head (%s)", lm->spec.type);
    e.how = (ct_pooling_config){.pooling = poolings[lm->spec.score_pool],
                                .max_tokens = o.pooling.max_tokens};
    if (o.n_tokens) *o.n_tokens = 0;
    e.vectors = ct__malloc((n * (size_t)lm->spec.width + 1) * sizeof *e.vectors);
    const bool ok = (e.vectors || ct__err_memory(&ctx->err, o.here, e.op,
                                                 n * (size_t)lm->spec.width * sizeof *e.vectors)) &&
                    embed_all_texts(&e, texts) && embed_score_classes(&e, scores);
    ct__free(e.vectors);
    embed_job_free(&e);
    return ok;
}

void ct_lm_class_probabilities(const ct_lm *lm, float *scores, size_t n) {
    CT_DEFAULT_ENV;
    if (!lm || !scores) return;
    const char *type = json_string_value(json_object_get(lm->config.root, "problem_type"));
    const bool is_sigmoid =
        lm->labels == 1 || (type && !strcmp(type, "multi_label_classification"));
    for (size_t i = 0; i < n; i++, scores += lm->labels) {
        double max = -INFINITY, sum = 0;
        for (int64_t k = 0; k < lm->labels; k++) max = fmax(max, (double)scores[k]);
        for (int64_t k = 0; k < lm->labels; k++) sum += exp((double)scores[k] - max);
        for (int64_t k = 0; k < lm->labels; k++)
            scores[k] = (float)(is_sigmoid ? 1 / (1 + exp(-(double)scores[k]))
                                           : exp((double)scores[k] - max) / sum);
    }
}

void ct_lm_label(const ct_lm *lm, int64_t label, char *name, size_t n) {
    char key[24];
    if (!name || !n) return;
    snprintf(key, sizeof key, "%lld", (long long)label);
    const json_t *names = lm ? json_object_get(lm->config.root, "id2label") : NULL;
    const char *label_name = json_string_value(json_object_get(names, key));
    if (label_name)
        snprintf(name, n, "%s", label_name);
    else
        snprintf(name, n, "LABEL_%s", key);
}
