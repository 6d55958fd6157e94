// Residual networks (He et al.) of two kinds of block: basic ones of two 3x3 convolutions, and
// bottlenecks of 1x1, 3x3 and 1x1, the 3x3 with the stride.
#include "base/plain.h"
#include "cotan/models.h"

#include <math.h>
#include <string.h>

#include "base/text.h"
#include "graph/graph.h"
#include "nn/store.h"
#include "ops/rules.h"

enum { STAGES = 4, MOST_BLOCKS = 16, MOST_CONVS = 3 };

// A convolution without bias, and the norm behind it.
typedef struct conv_norm {
    ct_tensor weight; // (out, in, k, k)
    int64_t stride, padding;
    ct_nn_batch_norm norm;
} conv_norm;

typedef struct block {
    conv_norm convs[MOST_CONVS];
    conv_norm downsample; // of what is added, where the block changes its shape; else no weight
} block;

struct ct_resnet {
    ct_resnet_config config;
    ct_params *params, *running;
    conv_norm stem;
    block blocks[MOST_BLOCKS];
    int n_blocks, n_convs; // of a block
    ct_nn_linear fc;
};

// ---------------------------------------------------------------------------------------- building

// Blocks of each stage; NULL: there is no such depth.
static const int *stages_of(int64_t depth) {
    static const int of_18[STAGES] = {2, 2, 2, 2}, of_34_and_50[STAGES] = {3, 4, 6, 3};
    return depth == 18 ? of_18 : depth == 34 || depth == 50 ? of_34_and_50 : NULL;
}

static bool makes_a_model(const ct_resnet_config *c, ct_ctx *ctx, ct_loc here) {
    if (!stages_of(c->depth))
        ct__fail(ctx, CT_E_ARGUMENT, here, "resnet", "depth is %lld, it must be 18, 34 or 50",
                 (long long)c->depth);
    else if (c->classes < 1 || c->classes > INT32_MAX)
        ct__fail(ctx, CT_E_ARGUMENT, here, "resnet", "classes is %lld, it must be 1 to %d",
                 (long long)c->classes, INT32_MAX);
    else if (c->dtype && (!ct__has_slope(c->dtype) || ct__is_complex(c->dtype)))
        ct__fail(ctx, CT_E_DTYPE, here, "resnet", "dtype is %s, it must be a float",
                 ct_dtype_name(c->dtype));
    else
        return true;
    return false;
}

// Where a model's layers go: both places have the same path.
typedef struct places {
    ct_nn_place params, running;
} places;

static places under(places p, const char *name) {
    return (places){ct_nn_under(p.params, "%s", name), ct_nn_under(p.running, "%s", name)};
}

// in -> out channels by a kernel of k x k, which keeps the size but for the stride. Weights are
// normal, with such a deviation that gradients keep their size on the way back.
static conv_norm make_conv(places p, const char *conv, const char *norm, ct_ints in_out, int64_t k,
                           int64_t stride, ct_loc here) {
    int64_t in = in_out.v[0], out = in_out.v[1];
    conv_norm made = {.stride = stride, .padding = k / 2};
    made.weight = ct_nn_param_at(under(p, conv).params, "weight", CT_DIMS(out, in, k, k),
                                 CT_NN_NORMAL(sqrt(2 / ((double)out * (double)(k * k)))), here);
    places of_norm = under(p, norm);
    made.norm = ct_nn_batch_norm_with(of_norm.params, of_norm.running,
                                      (ct_nn_batch_norm_options){.channels = out, .here = here});
    return made;
}

// A block of in -> out channels, which a bottleneck computes by a quarter of `out`.
static void make_block(block *b, places p, bool bottleneck, int64_t in, int64_t out, int64_t stride,
                       ct_loc here) {
    if (bottleneck) {
        int64_t inner = out / 4;
        b->convs[0] = make_conv(p, "conv1", "bn1", CT_DIMS(in, inner), 1, 1, here);
        b->convs[1] = make_conv(p, "conv2", "bn2", CT_DIMS(inner, inner), 3, stride, here);
        b->convs[2] = make_conv(p, "conv3", "bn3", CT_DIMS(inner, out), 1, 1, here);
    } else {
        b->convs[0] = make_conv(p, "conv1", "bn1", CT_DIMS(in, out), 3, stride, here);
        b->convs[1] = make_conv(p, "conv2", "bn2", CT_DIMS(out, out), 3, 1, here);
    }
    if (stride != 1 || in != out)
        b->downsample =
            make_conv(p, "downsample.0", "downsample.1", CT_DIMS(in, out), 1, stride, here);
}

static void make_layers(ct_resnet *model, uint64_t seed, ct_loc here) {
    CT_PLAIN;
    const ct_resnet_config *c = &model->config;
    const int *stages = stages_of(c->depth);
    bool bottleneck = c->depth == 50;
    places top = {ct_nn_place_in(model->params, seed), ct_nn_place_in(model->running, seed)};
    top.params.dtype = top.running.dtype = c->dtype;
    CT_SCOPE; // its end runs the assignments of the first values
    model->n_convs = bottleneck ? 3 : 2;
    model->stem = make_conv(top, "conv1", "bn1", CT_DIMS(3, 64), c->small_images ? 3 : 7,
                            c->small_images ? 1 : 2, here);
    int64_t in = 64;
    for (int s = 0; s < STAGES; s++)
        for (int i = 0; i < stages[s]; i++) {
            places p = {ct_nn_under(top.params, "layer%d.%d", s + 1, i),
                        ct_nn_under(top.running, "layer%d.%d", s + 1, i)};
            int64_t out = (bottleneck ? 256ll : 64ll) << s;
            make_block(&model->blocks[model->n_blocks++], p, bottleneck, in, out,
                       s > 0 && i == 0 ? 2 : 1, here);
            in = out;
        }
    model->fc =
        ct_nn_linear_with(ct_nn_under(top.params, "fc"),
                          (ct_nn_linear_options){.in = in,
                                                 .out = c->classes,
                                                 .out_in = true,
                                                 .init = CT_NN_NORMAL(sqrt(1 / (3.0 * (double)in))),
                                                 .here = here});
}

ct_resnet *ct_resnet_new_at(const ct_resnet_config *config, uint64_t seed, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, config, here, "resnet", "the config") || ctx->err.code ||
        !makes_a_model(config, ctx, here))
        return NULL;
    ct_resnet *model = ct__calloc(1, sizeof *model);
    if (model) {
        model->config = *config;
        model->params = ct_params_new();
        model->running = ct_params_new();
    }
    if (model && model->params && model->running)
        make_layers(model, seed, here);
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
ct_params *ct_resnet_running(ct_resnet *model) { return model ? model->running : NULL; }

// ----------------------------------------------------------------------------------------- forward

static ct_tensor apply(const conv_norm *layer, ct_tensor x, const ct_nn_mode *mode, ct_loc here) {
    ct_tensor y = ct_conv_with((ct_conv_args){.x = x,
                                              .weight = layer->weight,
                                              .stride = CT_INTS(layer->stride),
                                              .padding = CT_INTS(layer->padding),
                                              .here = here}); // (N, out, H, W)
    return ct_nn_batch_norm_apply_at(&layer->norm, y, mode, here);
}

static bool images_fit(ct_tensor images, ct_ctx *ctx, ct_loc here) {
    if (!ct_ok(images) || (ct_rank(images) == 4 && ct_dim(images, 1) == 3))
        return true; // the ops say what is no tensor
    ct__fail(ctx, CT_E_SHAPE, here, "resnet",
             "the images are %s; they must be (batch, 3, height, width)",
             ct__type_text(ct__type_of(images)).s);
    return false;
}

ct_tensor ct_resnet_logits_at(const ct_resnet *model, ct_tensor images, const ct_nn_mode *mode,
                              ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_NONE;
    if (!ct__given(ctx, model, here, "resnet", "the model") || !images_fit(images, ctx, here))
        return ct__poison(ctx, here);
    ct_tensor x = ct_relu_at(apply(&model->stem, images, mode, here), here); // (N, 64, H, W)
    if (!model->config.small_images)
        x = ct_max_pool_with((ct_max_pool_args){.x = x,
                                                .kernel = CT_INTS(3, 3),
                                                .stride = CT_INTS(2),
                                                .padding = CT_INTS(1),
                                                .here = here});
    for (int i = 0; i < model->n_blocks; i++) {
        const block *b = &model->blocks[i];
        const uint16_t region = ct__region_begin(ctx); // which gradients may compute again
        ct_tensor y = x;
        for (int k = 0; k < model->n_convs; k++) {
            if (k > 0) y = ct_relu_at(y, here);
            y = apply(&b->convs[k], y, mode, here);
        }
        if (b->downsample.weight.bits) x = apply(&b->downsample, x, mode, here);
        x = ct_relu_at(ct_add_at(y, x, here), here); // (N, C, H, W)
        ct__region_end(ctx, region);
    }
    x = ct_mean_with((ct_mean_args){.x = x, .axes = CT_AXES(2, 3), .here = here}); // (N, C)
    return ct_nn_linear_apply_at(&model->fc, x, here);                             // (N, classes)
}

// ------------------------------------------------------------------------------------------- files

static bool in_other_set(const char *name, void *other) {
    return ct_params_find(other, name).bits || ct__ends_with(name, ".num_batches_tracked");
}

static ct_store_rules rules_beside(const ct_params *other, const char *path) {
    return (ct_store_rules){
        .path = path, .ignored = in_other_set, .user = (void *)(uintptr_t)other};
}

bool ct_resnet_load_weights_at(ct_resnet *model, const char *path, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, model, here, "resnet", "the model") ||
        !ct__given(ctx, path, here, "resnet", "the path") || ctx->err.code)
        return false;
    ct_store_rules params = rules_beside(model->running, path),
                   running = rules_beside(model->params, path);
    ct_st file;
    bool ok = ct__st_open(path, &file, &ctx->err) && ct__st_verify(&file, path, false, &ctx->err) &&
              ct__store_fits(model->params, &file, &params, &ctx->err) &&
              ct__store_load(model->running, &file, &running, &ctx->err) &&
              ct__store_load(model->params, &file, &params, &ctx->err);
    ct__st_close(&file);
    return ok || ct__err_place(&ctx->err, here, "resnet_load_weights");
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
    return ok || ct__err_place(&ctx->err, here, "resnet_save_weights");
}
