// Residual networks (He et al.) with two kinds of block: basic blocks of two 3x3 convolutions, and
// bottlenecks of 1x1, 3x3 and 1x1, whose 3x3 has the stride.
#include "base/fp_env.h"
#include "cotan/models.h"

#include <math.h>
#include <string.h>

#include "base/text.h"
#include "graph/graph.h"
#include "nn/store.h"

enum { STAGES = 4, MAX_BLOCKS = 16, MAX_CONVS = 3 };

// A convolution without bias, and the norm after it.
typedef struct resnet_conv {
    ct_tensor weight; // (out, in, k, k)
    int64_t stride, padding;
    ct_nn_batch_norm norm;
} resnet_conv;

typedef struct resnet_block {
    resnet_conv convs[MAX_CONVS];
    // of the residual connection, where the block changes the shape; else it has no weight
    resnet_conv downsample;
} resnet_block;

struct ct_resnet {
    ct_resnet_config config;
    ct_params *params, *running;
    resnet_conv stem;
    resnet_block blocks[MAX_BLOCKS];
    int n_blocks, n_convs; // convolutions of a block
    ct_nn_linear fc;
};

// -------------------------------------------------------------------------------------- construction

// Returns the number of blocks of each stage; NULL: there is no such depth.
static const int *resnet_stage_blocks(int64_t depth) {
    static const int depth_18[STAGES] = {2, 2, 2, 2}, depth_34_50[STAGES] = {3, 4, 6, 3};
    return depth == 18 ? depth_18 : depth == 34 || depth == 50 ? depth_34_50 : NULL;
}

static bool resnet_check_config(const ct_resnet_config *c, ct_ctx *ctx, ct_loc here) {
    if (!resnet_stage_blocks(c->depth))
        ct__fail(ctx, CT_E_ARGUMENT, here, "resnet", "depth is %lld, it must be 18, 34 or 50",
                 (long long)c->depth);
    else if (c->classes < 1 || c->classes > INT32_MAX)
        ct__fail(ctx, CT_E_ARGUMENT, here, "resnet", "classes is %lld, it must be 1 to %d",
                 (long long)c->classes, INT32_MAX);
    else if (c->dtype && (!ct__is_differentiable(c->dtype) || ct__is_complex(c->dtype)))
        ct__fail(ctx, CT_E_DTYPE, here, "resnet", "dtype is %s, it must be a float",
                 ct_dtype_name(c->dtype));
    else
        return true;
    return false;
}

// The builders of parameters and running statistics, at the same path.
typedef struct resnet_builder {
    ct_nn_builder params, running;
} resnet_builder;

static resnet_builder resnet_prefix(resnet_builder p, const char *name) {
    return (resnet_builder){ct_nn_builder_child(p.params, "%s", name),
                            ct_nn_builder_child(p.running, "%s", name)};
}

// Makes a convolution of in -> out channels with a k x k kernel that keeps the size but for the stride.
// Weights are normal, with a standard deviation that preserves the size of gradients in the backward pass.
static resnet_conv resnet_make_conv(resnet_builder p, const char *conv, const char *norm,
                                    ct_ints in_out, int64_t k, int64_t stride, ct_loc here) {
    int64_t in = in_out.v[0], out = in_out.v[1];
    resnet_conv result = {.stride = stride, .padding = k / 2};
    result.weight = ct_nn_param_at(resnet_prefix(p, conv).params, "weight", CT_DIMS(out, in, k, k),
                                   CT_NN_NORMAL(sqrt(2 / ((double)out * (double)(k * k)))), here);
    resnet_builder norm_builder = resnet_prefix(p, norm);
    result.norm = ct_nn_batch_norm_with(norm_builder.params, norm_builder.running,
                                        (ct_nn_batch_norm_options){.channels = out, .here = here});
    return result;
}

// Makes a block of in -> out channels; a bottleneck computes with a quarter of `out`.
static void resnet_make_block(resnet_block *b, resnet_builder p, bool bottleneck, int64_t in,
                              int64_t out, int64_t stride, ct_loc here) {
    if (bottleneck) {
        int64_t inner = out / 4;
        b->convs[0] = resnet_make_conv(p, "conv1", "bn1", CT_DIMS(in, inner), 1, 1, here);
        b->convs[1] = resnet_make_conv(p, "conv2", "bn2", CT_DIMS(inner, inner), 3, stride, here);
        b->convs[2] = resnet_make_conv(p, "conv3", "bn3", CT_DIMS(inner, out), 1, 1, here);
    } else {
        b->convs[0] = resnet_make_conv(p, "conv1", "bn1", CT_DIMS(in, out), 3, stride, here);
        b->convs[1] = resnet_make_conv(p, "conv2", "bn2", CT_DIMS(out, out), 3, 1, here);
    }
    if (stride != 1 || in != out)
        b->downsample =
            resnet_make_conv(p, "downsample.0", "downsample.1", CT_DIMS(in, out), 1, stride, here);
}

static void resnet_make_layers(ct_resnet *model, uint64_t seed, ct_loc here) {
    CT_DEFAULT_ENV;
    const ct_resnet_config *c = &model->config;
    const int *stages = resnet_stage_blocks(c->depth);
    bool bottleneck = c->depth == 50;
    resnet_builder top = {ct_nn_builder_for(model->params, seed),
                          ct_nn_builder_for(model->running, seed)};
    top.params.dtype = top.running.dtype = c->dtype;
    CT_SCOPE; // its end runs the assignments of the first values
    model->n_convs = bottleneck ? 3 : 2;
    model->stem = resnet_make_conv(top, "conv1", "bn1", CT_DIMS(3, 64), c->small_images ? 3 : 7,
                                   c->small_images ? 1 : 2, here);
    int64_t in = 64;
    for (int s = 0; s < STAGES; s++)
        for (int i = 0; i < stages[s]; i++) {
            resnet_builder p = {ct_nn_builder_child(top.params, "layer%d.%d", s + 1, i),
                                ct_nn_builder_child(top.running, "layer%d.%d", s + 1, i)};
            int64_t out = (bottleneck ? 256ll : 64ll) << s;
            resnet_make_block(&model->blocks[model->n_blocks++], p, bottleneck, in, out,
                              s > 0 && i == 0 ? 2 : 1, here);
            in = out;
        }
    model->fc =
        ct_nn_linear_with(ct_nn_builder_child(top.params, "fc"),
                          (ct_nn_linear_options){.in = in,
                                                 .out = c->classes,
                                                 .out_in = true,
                                                 .init = CT_NN_NORMAL(sqrt(1 / (3.0 * (double)in))),
                                                 .here = here});
}

ct_resnet *ct_resnet_new_at(const ct_resnet_config *config, uint64_t seed, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, config, here, "resnet", "the config") || ctx->err.code ||
        !resnet_check_config(config, ctx, here))
        return NULL;
    ct_resnet *model = ct__calloc(1, sizeof *model);
    if (model) {
        model->config = *config;
        model->params = ct_params_new();
        model->running = ct_params_new();
    }
    if (model && model->params && model->running)
        resnet_make_layers(model, seed, here);
    else
        ct__err_memory(&ctx->err, here, "resnet", sizeof *model);
    if (!ctx->err.code) return model;
    ct_resnet_free(model);
    return NULL;
}

void ct_resnet_free(ct_resnet *model) {
    if (!model) return;
    ct_params_free(model->params);
    ct_params_free(model->running);
    ct__free(model);
}

ct_params *ct_resnet_params(ct_resnet *model) { return model ? model->params : NULL; }
ct_params *ct_resnet_running_stats(ct_resnet *model) { return model ? model->running : NULL; }

// -------------------------------------------------------------------------------------- forward pass

static ct_tensor resnet_apply_conv(const resnet_conv *layer, ct_tensor x, const ct_nn_mode *mode,
                                   ct_loc here) {
    ct_tensor y = ct_conv_with((ct_conv_args){.x = x,
                                              .weight = layer->weight,
                                              .stride = CT_INTS(layer->stride),
                                              .padding = CT_INTS(layer->padding),
                                              .here = here}); // (N, out, H, W)
    return ct_nn_batch_norm_apply_at(&layer->norm, y, mode, here);
}

static bool resnet_check_images(ct_tensor images, ct_ctx *ctx, ct_loc here) {
    if (!ct_ok(images) || (ct_rank(images) == 4 && ct_dim(images, 1) == 3))
        return true; // the ops report what is no tensor
    return ct__refuse(ctx, CT_E_SHAPE, here, "resnet",
                      "the images are %s; they must be (batch, 3, height, width)",
                      ct__type_text(ct__type_of(images)).s);
}

ct_tensor ct_resnet_logits_at(const ct_resnet *model, ct_tensor images, const ct_nn_mode *mode,
                              ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_NONE;
    if (!ct__given(ctx, model, here, "resnet", "the model") ||
        !resnet_check_images(images, ctx, here))
        return ct__poison(ctx, here);
    ct_tensor x =
        ct_relu_at(resnet_apply_conv(&model->stem, images, mode, here), here); // (N, 64, H, W)
    if (!model->config.small_images)
        x = ct_max_pool_with((ct_max_pool_args){.x = x,
                                                .kernel = CT_INTS(3, 3),
                                                .stride = CT_INTS(2),
                                                .padding = CT_INTS(1),
                                                .here = here});
    for (int i = 0; i < model->n_blocks; i++) {
        const resnet_block *b = &model->blocks[i];
        const uint16_t region = ct__region_begin(ctx); // which gradients may recompute
        ct_tensor y = x;
        for (int k = 0; k < model->n_convs; k++) {
            if (k > 0) y = ct_relu_at(y, here);
            y = resnet_apply_conv(&b->convs[k], y, mode, here);
        }
        if (b->downsample.weight.bits) x = resnet_apply_conv(&b->downsample, x, mode, here);
        x = ct_relu_at(ct_add_at(y, x, here), here); // (N, C, H, W)
        ct__region_end(ctx, region);
    }
    x = ct_mean_with((ct_mean_args){.x = x, .axes = CT_AXES(2, 3), .here = here}); // (N, C)
    return ct_nn_linear_apply_at(&model->fc, x, here);                             // (N, classes)
}

// --------------------------------------------------------------------------------------------- files

static bool resnet_is_ignored(const char *name, void *other) {
    return ct_params_find(other, name).bits || ct__ends_with(name, ".num_batches_tracked");
}

static ct_store_rules resnet_store_rules(const ct_params *other, const char *path) {
    return (ct_store_rules){
        .path = path, .ignored = resnet_is_ignored, .user = (void *)(uintptr_t)other};
}

bool ct_resnet_load_weights_at(ct_resnet *model, const char *path, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, model, here, "resnet", "the model") ||
        !ct__given(ctx, path, here, "resnet", "the path") || ctx->err.code)
        return false;
    ct_store_rules params = resnet_store_rules(model->running, path),
                   running = resnet_store_rules(model->params, path);
    ct_st file;
    bool ok = ct__st_open(path, &file, &ctx->err) && ct__st_verify(&file, path, false, &ctx->err) &&
              ct__store_check(model->params, &file, &params, &ctx->err) &&
              ct__store_load(model->running, &file, &running, &ctx->err) &&
              ct__store_load(model->params, &file, &params, &ctx->err);
    ct__st_close(&file);
    return ok || ct__err_locate(&ctx->err, here, "resnet_load_weights");
}

bool ct_resnet_save_weights_at(const ct_resnet *model, const char *path, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, model, here, "resnet", "the model") ||
        !ct__given(ctx, path, here, "resnet", "the path") || ctx->err.code)
        return false;
    CT_SCOPE;
    ct_store store = {0};
    const char *numerics = ct_numerics();
    const ct_st_pair about[] = {{"cotan.numerics", numerics, 14, strlen(numerics)},
                                {"format", "pt", 6, 2}};
    bool ok = ct__store_add(&store, model->params, "", &ctx->err, here) &&
              ct__store_add(&store, model->running, "", &ctx->err, here) &&
              ct__st_write_checked(path, store.out, store.n, about, 2, &ctx->err);
    ct__store_free(&store);
    return ok || ct__err_locate(&ctx->err, here, "resnet_save_weights");
}
