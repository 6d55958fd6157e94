// Reads and writes GPT-2 in Hugging Face's files: model.safetensors and config.json.
#include <stdio.h>
#include <string.h>

#include "base/os.h"
#include "base/text.h"
#include "io/config.h"
#include "models/gpt2.h"
#include "nn/store.h"
#include "train/checkpoint.h"

static const char gpt2_weights_name[] = "model.safetensors", gpt2_config_name[] = "config.json";

static bool gpt2_path(ct_text *path, const char *dir, const char *name, ct_err *err) {
    ct__textf(path, "%s/%s", dir, name);
    return !path->failed || ct__err_memory(err, CT_NOWHERE, "gpt2", strlen(dir));
}

// ------------------------------------------------------------------------------------------- weights

static bool gpt2_is_bias(const char *name) { return ct__ends_with(name, ".bias"); }

// True for names that a file may hold besides the parameters: the causal masks that old files store, a copy
// of the output layer, and the biases of a model that has none (all are checked to change nothing).
static bool gpt2_is_ignored(const char *name, void *user) {
    const ct_gpt2_config *config = user;
    if (strncmp(name, "h.", 2) == 0 &&
        (ct__ends_with(name, ".attn.bias") || ct__ends_with(name, ".attn.masked_bias")))
        return true;
    return strcmp(name, "lm_head.weight") == 0 || (config->no_bias && gpt2_is_bias(name));
}

static bool gpt2_is_zero(const ct_st *file, const ct_st_entry *entry, bool *zero, ct_err *err) {
    bool ok = true;
    *zero = true;
    for (ct_st_chunk p = {0}; *zero && (ok = ct__st_next_chunk(file, entry, &p, err)) && p.n;)
        for (size_t i = 0; i < p.n; i++) *zero = *zero && !((const char *)p.bytes)[i];
    return ok;
}

static bool gpt2_has_same_bytes(const ct_st *file, const ct_st_entry *a, const ct_st_entry *b,
                                bool *same, ct_err *err) {
    bool ok = true;
    *same = a->bytes == b->bytes;
    for (ct_st_chunk x = {0}, y = {0};
         *same &&
         (ok = ct__st_next_chunk(file, a, &x, err) && ct__st_next_chunk(file, b, &y, err)) && x.n;)
        *same = memcmp(x.bytes, y.bytes, x.n) == 0;
    return ok;
}

static bool gpt2_check_ignored(const ct_gpt2 *model, const ct_st *file, const ct_store_rules *rules,
                               ct_err *err) {
    const ct_st_entry *head = ct__st_find(file, "lm_head.weight"),
                      *wte = ct__store_find(file, rules, "wte.weight");
    bool same = true;
    if (head && wte && !gpt2_has_same_bytes(file, head, wte, &same, err)) return false;
    if (!same)
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, "gpt2",
                       "%s: \"lm_head.weight\" differs from \"wte.weight\": the output layer of "
                       "this model is the embedding",
                       rules->path);
    for (size_t i = 0; model->config.no_bias && i < file->n; i++) {
        const ct_st_entry *entry = &file->entries[i];
        bool zero = true;
        if (gpt2_is_bias(entry->name) && !ct__ends_with(entry->name, ".attn.bias") &&
            !gpt2_is_zero(file, entry, &zero, err))
            return false;
        if (!zero)
            return ct__err(err, CT_E_FORMAT, CT_NOWHERE, "gpt2",
                           "%s: \"%.200s\" is not zero, but the model has no biases", rules->path,
                           entry->name);
    }
    return true;
}

static ct_store_rules gpt2_store_rules(const ct_gpt2_config *config, const char *path) {
    return (ct_store_rules){.path = path,
                            .prefix = "transformer.",
                            .prefix_optional = true,
                            .ignored = gpt2_is_ignored,
                            .user = (void *)(uintptr_t)config};
}

static bool gpt2_open_weights(const char *path, ct_st *file, ct_err *err) {
    return ct__st_open(path, file, err) && ct__st_verify(file, path, false, err);
}

// Checked before a model is made: a few bytes of config.json can ask for thousands of layers.
static bool gpt2_has_layers(const ct_st *file, const ct_gpt2_config *c, const char *path,
                            ct_err *err) {
    ct_store_rules rules = gpt2_store_rules(c, path);
    for (int64_t i = 0; i < c->layers; i++) {
        char name[40];
        snprintf(name, sizeof name, "h.%lld.ln_1.weight", (long long)i);
        if (!ct__store_find(file, &rules, name)) return ct__store_missing(file, path, name, err);
    }
    return true;
}

static bool gpt2_load_params(ct_gpt2 *model, const ct_st *file, const char *path, ct_err *err) {
    ct_store_rules rules = gpt2_store_rules(&model->config, path);
    return gpt2_check_ignored(model, file, &rules, err) &&
           ct__store_load(model->params, file, &rules, err);
}

bool ct_gpt2_load_weights_at(ct_gpt2 *model, const char *path, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, model, here, "gpt2", "the model") ||
        !ct__given(ctx, path, here, "gpt2", "the path") || ctx->err.code)
        return false;
    ct_st file;
    bool ok = gpt2_open_weights(path, &file, &ctx->err) &&
              gpt2_load_params(model, &file, path, &ctx->err);
    ct__st_close(&file);
    return ok || ct__err_place(&ctx->err, here, "gpt2_load_weights");
}

// Adds biases of zero to the file of a model without biases, so that it is a complete GPT-2.
static bool gpt2_add_zero_biases(ct_store *store, const ct_gpt2 *model, const void *zeros,
                                 ct_err *err) {
    const ct_gpt2_config *c = &model->config;
    const struct {
        const char *name;
        int64_t n;
    } of_block[] = {{"ln_1.bias", c->width},         {"attn.c_attn.bias", 3 * c->width},
                    {"attn.c_proj.bias", c->width},  {"ln_2.bias", c->width},
                    {"mlp.c_fc.bias", 4 * c->width}, {"mlp.c_proj.bias", c->width}};
    for (int64_t i = 0; i < c->layers; i++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "h.%lld.", (long long)i);
        for (size_t k = 0; k < sizeof of_block / sizeof *of_block; k++)
            if (!ct__store_put(store, prefix, of_block[k].name, CT_F32, CT_DIMS(of_block[k].n),
                               zeros, err))
                return false;
    }
    return ct__store_put(store, "ln_f.", "bias", CT_F32, CT_DIMS(c->width), zeros, err);
}

static bool gpt2_save_weights(const ct_gpt2 *model, const char *path, ct_err *err, ct_loc here) {
    CT_SCOPE;
    ct_store store = {0};
    const char *numerics = ct_numerics();
    const ct_st_pair about[] = {{"cotan.numerics", numerics, 14, strlen(numerics)},
                                // transformers refuses files without "format"
                                {"format", "pt", 6, 2}};
    void *zeros = model->config.no_bias ? ct__calloc(4 * (size_t)model->config.width, 4) : NULL;
    bool ok = ct__store_add(&store, model->params, "", err, here);
    if (ok && model->config.no_bias)
        ok = zeros ? gpt2_add_zero_biases(&store, model, zeros, err)
                   : ct__err_memory(err, CT_NOWHERE, "gpt2", 16 * (size_t)model->config.width);
    ok = ok && ct__st_write_checked(path, store.out, store.n, about, 2, err);
    ct__store_free(&store);
    ct__free(zeros);
    return ok;
}

// --------------------------------------------------------------------------------------- config.json

static bool gpt2_save_config(const ct_gpt2_config *c, const char *path, ct__config_more add_keys,
                             void *user, ct_err *err) {
    ct_config out;
    bool ok = ct__config_new(path, &out, err);
    if (ok) {
        ct__config_set_string(&out, "model_type", "gpt2", 4);
        ct__config_set_int(&out, "vocab_size", c->vocab);
        ct__config_set_int(&out, "n_positions", c->context);
        ct__config_set_int(&out, "n_embd", c->width);
        ct__config_set_int(&out, "n_layer", c->layers);
        ct__config_set_int(&out, "n_head", c->heads);
        ct__config_set_string(&out, "activation_function", "gelu_new", 8);
        ct__config_set_real(&out, "layer_norm_epsilon", c->norm_eps);
        ct__config_set_real(&out, "initializer_range", 0.02);
        ct__config_set_real(&out, "embd_pdrop", c->dropout);
        ct__config_set_real(&out, "resid_pdrop", c->dropout);
        ct__config_set_real(&out, "attn_pdrop", 0);
        ct__config_set_bool(&out, "tie_word_embeddings", true);
        ct__config_set_bool(&out, "bias", !c->no_bias);
        if (c->tokenizer)
            ct__config_set_string(&out, "tokenizer", c->tokenizer, strlen(c->tokenizer));
        if (c->characters)
            ct__config_set_string(&out, "vocabulary", c->characters, c->characters_n);
        ok = (!add_keys || add_keys(&out, user, err)) && ct__config_write(&out, err);
    }
    ct__config_close(&out);
    return ok;
}

static bool gpt2_read_size(const ct_config *in, const char *key, int64_t *value, ct_err *err) {
    return ct__config_int(in, key, 1, INT32_MAX, value, err);
}

// Refuses configs of models of Hugging Face's GPT-2 class that compute something else.
static bool gpt2_check_config(const ct_config *in, const ct_gpt2_config *c, ct_err *err) {
    static const struct {
        const char *key;
        bool value;
    } needed[] = {{"scale_attn_weights", true},
                  {"scale_attn_by_inverse_layer_idx", false},
                  {"add_cross_attention", false},
                  {"tie_word_embeddings", true}};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        const char *key = needed[i].key;
        bool value = needed[i].value;
        if (ct__config_has(in, key) && !ct__config_bool(in, key, &value, err)) return false;
        if (value != needed[i].value)
            return ct__err(err, CT_E_FORMAT, CT_NOWHERE, in->path,
                           "key \"%s\" is %s, only %s is supported", key, value ? "true" : "false",
                           value ? "false" : "true");
    }
    int64_t inner = 4 * c->width;
    if (ct__config_has(in, "n_inner") && !ct__config_is_null(in, "n_inner") &&
        !gpt2_read_size(in, "n_inner", &inner, err))
        return false;
    return inner == 4 * c->width ||
           ct__err(err, CT_E_FORMAT, CT_NOWHERE, in->path,
                   "key \"n_inner\" is %lld, only 4 * n_embd = %lld is supported", (long long)inner,
                   (long long)(4 * c->width));
}

static bool gpt2_read_eps(const ct_config *in, double *eps, ct_err *err) {
    return ct__config_real(in, "layer_norm_epsilon", 0, 1, eps, err) &&
           (*eps > 0 || ct__err(err, CT_E_FORMAT, CT_NOWHERE, in->path,
                                "key \"layer_norm_epsilon\" is 0, it must be above 0"));
}

static bool gpt2_read_config(const ct_config *in, ct_gpt2_config *c, ct_err *err) {
    static const char *const types[] = {"gpt2", NULL}, *const activations[] = {"gelu_new", NULL},
                             *const kinds[] = {"bytes", "chars", NULL};
    int kind = 0;
    bool bias = true;
    if (!ct__config_choice(in, "model_type", types, &kind, err) ||
        !gpt2_read_size(in, "vocab_size", &c->vocab, err) ||
        !gpt2_read_size(in, "n_positions", &c->context, err) ||
        !gpt2_read_size(in, "n_embd", &c->width, err) ||
        !gpt2_read_size(in, "n_layer", &c->layers, err) ||
        !gpt2_read_size(in, "n_head", &c->heads, err))
        return false;
    if (ct__config_has(in, "activation_function") &&
        !ct__config_choice(in, "activation_function", activations, &kind, err))
        return false;
    if (!gpt2_check_config(in, c, err)) return false;
    if (ct__config_has(in, "layer_norm_epsilon") && !gpt2_read_eps(in, &c->norm_eps, err))
        return false;
    if (ct__config_has(in, "resid_pdrop") &&
        !ct__config_real(in, "resid_pdrop", 0, 1, &c->dropout, err))
        return false;
    if (ct__config_has(in, "bias") && !ct__config_bool(in, "bias", &bias, err)) return false;
    c->no_bias = !bias;
    if (ct__config_has(in, "tokenizer")) {
        if (!ct__config_choice(in, "tokenizer", kinds, &kind, err)) return false;
        c->tokenizer = kinds[kind];
        if (kind == 1 &&
            !ct__config_string(in, "vocabulary", &c->characters, &c->characters_n, err))
            return false;
    }
    return true;
}

// Verifies the checksum, except in files that transformers wrote: that library keeps keys that it does not
// know, the checksum among them, beside values that it adds, drops and changes. It stores its version in
// each file.
static bool gpt2_verify_config(const ct_config *in, ct_err *err) {
    return ct__config_has(in, "transformers_version") || ct__config_verify(in, false, err);
}

// -------------------------------------------------------------------------------- loading and saving

bool ct_gpt2_save_at(const ct_gpt2 *model, const char *dir, ct_loc here) {
    return ct__gpt2_save(model, dir, NULL, NULL, here);
}

bool ct__gpt2_save(const ct_gpt2 *model, const char *dir, ct__config_more add_keys, void *user,
                   ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, model, here, "gpt2", "the model") ||
        !ct__given(ctx, dir, here, "gpt2", "the folder") || ctx->err.code)
        return false;
    ct_text weights = {0}, config = {0};
    bool ok = gpt2_path(&weights, dir, gpt2_weights_name, &ctx->err) &&
              gpt2_path(&config, dir, gpt2_config_name, &ctx->err) &&
              ct__make_dirs(dir, 0777, &ctx->err) &&
              gpt2_save_config(&model->config, config.s, add_keys, user, &ctx->err) &&
              gpt2_save_weights(model, weights.s, &ctx->err, here);
    ct__text_free(&weights);
    ct__text_free(&config);
    return ok || ct__err_place(&ctx->err, here, "gpt2_save");
}

// Reads config.json; an existing folder without one may belong to a run that was never saved.
static bool gpt2_open_config(const char *dir, const char *path, ct_config *in, ct_err *err) {
    if (ct__config_read(path, in, err)) return true;
    if (!ct__is_absent(path)) return false;
    if (ct__is_absent(dir))
        ct__err_hint(err, "there is no such folder");
    else
        ct__err_hint(err, "a model's folder has it; that of a run gets it with the first save");
    return false;
}

ct_gpt2 *ct_gpt2_load_at(const char *dir, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, dir, here, "gpt2", "the folder") || ctx->err.code) return NULL;
    ct_text weights = {0}, config = {0};
    ct_config in = {0};
    ct_gpt2_config c = {0};
    ct_st file = {0};
    ct_gpt2 *model = NULL;
    if (ct__run_is_folder(dir, &ctx->err) &&
        gpt2_path(&weights, dir, gpt2_weights_name, &ctx->err) &&
        gpt2_path(&config, dir, gpt2_config_name, &ctx->err) &&
        gpt2_open_config(dir, config.s, &in, &ctx->err) && gpt2_verify_config(&in, &ctx->err) &&
        gpt2_read_config(&in, &c, &ctx->err) && ct__gpt2_check(&c, ctx, here) &&
        gpt2_open_weights(weights.s, &file, &ctx->err) &&
        gpt2_has_layers(&file, &c, weights.s, &ctx->err))
        model = ct__gpt2_make(&c, 0, true, here);
    if (model && !gpt2_load_params(model, &file, weights.s, &ctx->err)) {
        ct_gpt2_free(model);
        model = NULL;
    }
    ct__st_close(&file);
    ct__config_close(&in);
    ct__text_free(&weights);
    ct__text_free(&config);
    if (!model) ct__err_place(&ctx->err, here, "gpt2_load");
    return model;
}
