// GPT-2: token and position embeddings, pre-norm blocks of attention and MLP, and an output layer tied to
// the token embedding. Attention probabilities have no dropout: the attention op never materialises them.
#include "base/fp_env.h"
#include "models/gpt2.h"

#include <math.h>
#include <string.h>

#include "ops/rules.h"

ct_gpt2_config ct_gpt2_124m(void) {
    return (ct_gpt2_config){
        .vocab = 50257, .context = 1024, .layers = 12, .heads = 12, .width = 768};
}

// Saturating arithmetic: INT64_MAX where the result is larger.
static int64_t gpt2_saturating_add(int64_t a, int64_t b) {
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}
static int64_t gpt2_saturating_mul(int64_t a, int64_t b) {
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

int64_t ct_gpt2_size(const ct_gpt2_config *c) {
    if (!c) return 0;
    int64_t w = c->width, bias = c->no_bias ? 0 : 1;
    int64_t norm = gpt2_saturating_mul(1 + bias, w), square = gpt2_saturating_mul(w, w);
    // attention 4 w^2 + 4 w biases, MLP 8 w^2 + 5 w biases
    int64_t block = gpt2_saturating_add(
        gpt2_saturating_mul(12, square),
        gpt2_saturating_add(gpt2_saturating_mul(2, norm), gpt2_saturating_mul(9 * bias, w)));
    return gpt2_saturating_add(
        gpt2_saturating_add(gpt2_saturating_mul(gpt2_saturating_add(c->vocab, c->context), w),
                            gpt2_saturating_mul(c->layers, block)),
        norm);
}

// -------------------------------------------------------------------------------------- construction

bool ct__gpt2_check(const ct_gpt2_config *c, ct_ctx *ctx, ct_loc here) {
    const struct {
        const char *name;
        int64_t value, max;
    } sizes[] = {{"vocab", c->vocab, INT32_MAX},
                 {"context", c->context, INT32_MAX},
                 {"layers", c->layers, 10000},
                 {"heads", c->heads, INT32_MAX},
                 {"width", c->width, INT32_MAX}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value < 1 || sizes[i].value > sizes[i].max) {
            ct__fail(ctx, CT_E_ARGUMENT, here, "gpt2", "%s is %lld, it must be 1 to %lld",
                     sizes[i].name, (long long)sizes[i].value, (long long)sizes[i].max);
            return false;
        }
    if (c->width % c->heads)
        ct__fail(ctx, CT_E_ARGUMENT, here, "gpt2", "width %lld is no multiple of %lld heads",
                 (long long)c->width, (long long)c->heads);
    else if (!(c->dropout >= 0 && c->dropout < 1))
        ct__fail(ctx, CT_E_ARGUMENT, here, "gpt2", "dropout is %g, it must be from 0 to below 1",
                 c->dropout);
    else if (!(c->norm_eps >= 0))
        ct__fail(ctx, CT_E_ARGUMENT, here, "gpt2", "norm_eps is %g, it must not be negative",
                 c->norm_eps);
    else
        return true;
    return false;
}

void ct_gpt2_free(ct_gpt2 *model) {
    if (!model) return;
    ct_params_free(model->params);
    ct__free((void *)(uintptr_t)model->config.tokenizer);
    ct__free((void *)(uintptr_t)model->config.characters);
    ct__free(model->blocks);
    ct__free(model);
}

static bool gpt2_copy_strings(ct_gpt2_config *c) {
    const char *tokens = c->tokenizer, *characters = c->characters;
    c->tokenizer = tokens ? ct__strdup(tokens) : NULL;
    char *copy = characters ? ct__malloc(c->characters_n + 1) : NULL;
    if (copy) {
        memcpy(copy, characters, c->characters_n);
        copy[c->characters_n] = '\0';
    }
    c->characters = copy;
    return (!tokens || c->tokenizer) && (!characters || copy);
}

static void gpt2_make_block(ct_gpt2_block *block, ct_nn_builder place, const ct_gpt2_config *c,
                            ct_loc here) {
    // Weights that add to the residual stream start smaller, so that their sum over the blocks has the size
    // of one.
    ct_nn_init residual_init = CT_NN_NORMAL(0.02 / sqrt(2 * (double)c->layers));
    ct_nn_norm_options norm = {
        .width = c->width, .no_bias = c->no_bias, .eps = c->norm_eps, .here = here};
    block->ln_1 = ct_nn_norm_with(ct_nn_builder_child(place, "ln_1"), norm);
    block->attn = ct_nn_attention_with(ct_nn_builder_child(place, "attn"),
                                       (ct_nn_attention_options){.width = c->width,
                                                                 .heads = c->heads,
                                                                 .no_bias = c->no_bias,
                                                                 .proj_init = residual_init,
                                                                 .here = here});
    block->ln_2 = ct_nn_norm_with(ct_nn_builder_child(place, "ln_2"), norm);
    block->mlp = ct_nn_mlp_with(
        ct_nn_builder_child(place, "mlp"),
        (ct_nn_mlp_options){
            .width = c->width, .no_bias = c->no_bias, .proj_init = residual_init, .here = here});
}

static void gpt2_make_layers(ct_gpt2 *model, uint64_t seed, bool skip_init, ct_loc here) {
    CT_DEFAULT_ENV;
    const ct_gpt2_config *c = &model->config;
    ct_nn_builder top = ct_nn_builder_for(model->params, seed);
    top.skip_init = skip_init;
    CT_SCOPE; // its end runs the assignments of the first values
    model->wte = ct_nn_embedding_with(
        ct_nn_builder_child(top, "wte"),
        (ct_nn_embedding_options){.count = c->vocab, .width = c->width, .here = here});
    model->wpe = ct_nn_embedding_with(
        ct_nn_builder_child(top, "wpe"),
        (ct_nn_embedding_options){.count = c->context, .width = c->width, .here = here});
    for (int64_t i = 0; i < c->layers; i++)
        gpt2_make_block(&model->blocks[i], ct_nn_builder_child(top, "h.%lld", (long long)i), c,
                        here);
    model->ln_f = ct_nn_norm_with(
        ct_nn_builder_child(top, "ln_f"),
        (ct_nn_norm_options){
            .width = c->width, .no_bias = c->no_bias, .eps = c->norm_eps, .here = here});
}

ct_gpt2 *ct__gpt2_make(const ct_gpt2_config *config, uint64_t seed, bool skip_init, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, config, here, "gpt2", "the config") || ctx->err.code ||
        !ct__gpt2_check(config, ctx, here))
        return NULL;
    ct_gpt2 *model = ct__calloc(1, sizeof *model);
    bool ok = model != NULL;
    if (ok) {
        model->config = *config;
        if (model->config.norm_eps == 0) model->config.norm_eps = 1e-5;
        ok = gpt2_copy_strings(&model->config);
        model->params = ct_params_new();
        model->blocks = ct__calloc((size_t)config->layers, sizeof *model->blocks);
        ok = ok && model->params && model->blocks;
    }
    if (ok)
        gpt2_make_layers(model, seed, skip_init, here);
    else
        ct__err_memory(&ctx->err, here, "gpt2", sizeof *model);
    if (!ctx->err.code) return model;
    ct_gpt2_free(model);
    return NULL;
}

ct_gpt2 *ct_gpt2_new_at(const ct_gpt2_config *config, uint64_t seed, ct_loc here) {
    return ct__gpt2_make(config, seed, false, here);
}
ct_params *ct_gpt2_params(ct_gpt2 *model) { return model ? model->params : NULL; }
const ct_gpt2_config *ct_gpt2_config_of(const ct_gpt2 *model) {
    return model ? &model->config : NULL;
}

// -------------------------------------------------------------------------------------- forward pass

struct ct_gpt2_cache {
    ct_params *params;
    int64_t layers, batch, capacity;
    ct_nn_cache layer[]; // (layers)
};

static bool gpt2_check_tokens(ct_tensor tokens, int64_t max_time, ct_ctx *ctx, ct_loc here) {
    if (!ct_ok(tokens)) return true; // the ops report it
    int64_t dims[CT_MAX_RANK], time = ct_rank(tokens) == 2 ? ct_dim(tokens, 1) : 0;
    if (time >= 1 && time <= max_time) return true;
    ct_type type = {
        .dtype = (uint8_t)ct_dtype_of(tokens), .rank = (uint8_t)ct_rank(tokens), .dim = dims};
    for (int a = 0; a < type.rank; a++) dims[a] = ct_dim(tokens, a);
    ct__fail(ctx, CT_E_SHAPE, here, "gpt2",
             "the tokens are %s; they must be (batch, time) with a time of 1 to %lld",
             ct__type_text(&type).s, (long long)max_time);
    return false;
}

// tokens (B, T) -> (B, T, width), the output of the last block. Each block is a region that gradients may
// recompute.
static ct_tensor gpt2_blocks(const ct_gpt2 *model, ct_tensor tokens, ct_gpt2_cache *cache,
                             ct_tensor position, ct_nn_mode *mode, ct_loc here) {
    const ct_gpt2_config *c = &model->config;
    ct_tensor positions; // (T, width)
    if (cache)
        positions = ct_dynamic_slice_with(
            (ct_dynamic_slice_args){.x = model->wpe.weight,
                                    .starts = position,
                                    .axes = CT_AXES(0),
                                    .sizes = CT_DIMS(ct__size_like(tokens, 1)),
                                    .here = here});
    else
        positions = ct_slice_with((ct_slice_args){.x = model->wpe.weight,
                                                  .axes = CT_AXES(0),
                                                  .stop = CT_INTS(ct__size_like(tokens, 1)),
                                                  .here = here});
    ct_tensor x = ct_nn_embedding_apply_at(&model->wte, tokens, here); // (B, T, width)
    x = ct_nn_dropout_at(ct_add_at(x, positions, here), mode, here);
    ct_ctx *ctx = ct__ctx();
    for (int64_t i = 0; i < c->layers; i++) {
        const ct_gpt2_block *b = &model->blocks[i];
        const uint16_t region = ct__region_begin(ctx);
        ct_tensor a = ct_nn_norm_apply_at(&b->ln_1, x, here);
        a = ct_nn_attention_apply_at(&b->attn, a, cache ? &cache->layer[i] : NULL, position, mode,
                                     here);
        x = ct_add_at(x, a, here);
        ct_tensor m = ct_nn_norm_apply_at(&b->ln_2, x, here);
        x = ct_add_at(x, ct_nn_mlp_apply_at(&b->mlp, m, mode, here), here);
        ct__region_end(ctx, region);
    }
    return x;
}

// x (..., width) -> (..., vocab)
static ct_tensor gpt2_output_layer(const ct_gpt2 *model, ct_tensor x, ct_loc here) {
    return ct_matmul_at(x, ct_permute_at(model->wte.weight, CT_AXES(1, 0), here), here);
}

// (B, T, width) -> (B, vocab), the logits of the last position
static ct_tensor gpt2_last_logits(const ct_gpt2 *model, ct_tensor x, ct_loc here) {
    ct_tensor last = ct_slice_with((ct_slice_args){
        .x = x, .axes = CT_AXES(1), .start = CT_INTS(-1), .here = here}); // (B, 1, width)
    last = ct_reshape_at(last, CT_DIMS(ct__size_like(x, 0), model->config.width), here);
    return gpt2_output_layer(model, ct_nn_norm_apply_at(&model->ln_f, last, here), here);
}

ct_tensor ct_gpt2_hidden_at(const ct_gpt2 *model, ct_tensor tokens, ct_nn_mode *mode, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_NONE;
    if (!ct__given(ctx, model, here, "gpt2", "the model") ||
        !gpt2_check_tokens(tokens, model->config.context, ctx, here))
        return ct__poison(ctx, here);
    if (mode && mode->training && mode->dropout == 0 && mode->key.bits)
        mode->dropout = (float)model->config.dropout;
    ct_tensor x = gpt2_blocks(model, tokens, NULL, CT_NONE, mode, here);
    return ct_nn_norm_apply_at(&model->ln_f, x, here);
}

ct_tensor ct_gpt2_logits_at(const ct_gpt2 *model, ct_tensor tokens, ct_nn_mode *mode, ct_loc here) {
    ct_tensor hidden = ct_gpt2_hidden_at(model, tokens, mode, here); // it reports a NULL model
    return model ? gpt2_output_layer(model, hidden, here) : hidden;
}

ct_tensor ct_gpt2_next_logits_at(const ct_gpt2 *model, ct_tensor tokens, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_NONE;
    if (!ct__given(ctx, model, here, "gpt2", "the model") ||
        !gpt2_check_tokens(tokens, model->config.context, ctx, here))
        return ct__poison(ctx, here);
    return gpt2_last_logits(model, gpt2_blocks(model, tokens, NULL, CT_NONE, NULL, here), here);
}

ct_tensor ct_gpt2_loss_at(const ct_gpt2 *model, ct_tensor tokens, ct_tensor targets,
                          ct_nn_mode *mode, ct_loc here) {
    ct_tensor logits = ct_gpt2_logits_at(model, tokens, mode, here); // (B, T, vocab)
    return ct_cross_entropy_with(
        (ct_cross_entropy_args){.logits = logits, .targets = targets, .here = here});
}

// ------------------------------------------------------------------------------------------ decoding

ct_gpt2_cache *ct_gpt2_cache_new_at(const ct_gpt2 *model, int64_t batch, int64_t capacity,
                                    ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, model, here, "gpt2", "the model") || ctx->err.code) return NULL;
    if (capacity == 0) capacity = model->config.context;
    if (batch < 1 || capacity < 1 || capacity > model->config.context) {
        ct__fail(ctx, CT_E_ARGUMENT, here, "gpt2",
                 "a cache of %lld sequences of %lld tokens: it must be 1 or more of 1 to %lld",
                 (long long)batch, (long long)capacity, (long long)model->config.context);
        return NULL;
    }
    size_t layers = (size_t)model->config.layers;
    ct_gpt2_cache *cache = ct__calloc(1, sizeof *cache + layers * sizeof *cache->layer);
    if (cache) cache->params = ct_params_new();
    if (!cache || !cache->params) {
        ct__err_memory(&ctx->err, here, "gpt2", sizeof *cache);
    } else {
        cache->layers = model->config.layers;
        cache->batch = batch;
        cache->capacity = capacity;
        ct_nn_builder top = ct_nn_builder_for(cache->params, 0);
        CT_SCOPE;
        for (size_t i = 0; i < layers; i++)
            cache->layer[i] = ct_nn_cache_new_at(ct_nn_builder_child(top, "h.%zu", i),
                                                 &model->blocks[i].attn, batch, capacity, here);
    }
    if (!ctx->err.code) return cache;
    ct_gpt2_cache_free(cache);
    return NULL;
}

void ct_gpt2_cache_free(ct_gpt2_cache *cache) {
    if (!cache) return;
    ct_params_free(cache->params);
    ct__free(cache);
}

ct_tensor ct_gpt2_decode_at(const ct_gpt2 *model, ct_gpt2_cache *cache, ct_tensor tokens,
                            ct_tensor position, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_NONE;
    if (!ct__given(ctx, model, here, "gpt2", "the model") ||
        !ct__given(ctx, cache, here, "gpt2", "the cache"))
        return ct__poison(ctx, here);
    if (!gpt2_check_tokens(tokens, cache->capacity, ctx, here)) return ct__poison(ctx, here);
    if (ct_ok(tokens) && ct_dim(tokens, 0) != cache->batch)
        return ct__fail(ctx, CT_E_SHAPE, here, "gpt2",
                        "the tokens are of %lld sequences, the cache is made for %lld",
                        (long long)ct_dim(tokens, 0), (long long)cache->batch);
    return gpt2_last_logits(model, gpt2_blocks(model, tokens, cache, position, NULL, here), here);
}
