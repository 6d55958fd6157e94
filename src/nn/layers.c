// Layers: variables with names, and the ops between them.
#include "cotan/nn.h"

#include <math.h>

#include "graph/graph.h"
#include "ops/windows.h"

static bool layer_is_given(const void *layer, const char *op, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    return ctx && ct__given(ctx, layer, here, op, "the layer");
}
static ct_tensor layer_poison(ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    return ctx ? ct__poison(ctx, here) : CT_NONE;
}

static ct_nn_init layer_default_init(ct_nn_init init) {
    return init.kind == CT_NN_INIT_DEFAULT ? CT_NN_NORMAL(0.02) : init;
}

// A size that was not set is 0; it would give empty tensors.
static bool layer_check_size(const char *layer, const char *option, int64_t size, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (size > 0 || !ctx) return size > 0;
    return ct__refuse(ctx, CT_E_ARGUMENT, here, layer, ".%s is %lld, it must be at least 1", option,
                      (long long)size);
}

// Checks an option that must not be negative.
static bool layer_check_not_negative(const char *layer, const char *option, double given,
                                     ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!(given < 0) || !ctx) return !(given < 0);
    return ct__refuse(ctx, CT_E_ARGUMENT, here, layer, ".%s is %g, it must be at least 0", option,
                      given);
}

// Checks that the last axis of x has the layer's size. A poisoned x is reported by the op that takes it.
static bool layer_check_last_axis(const char *layer, const char *option, int64_t size, ct_tensor x,
                                  ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct_ok(x) || (ct_rank(x) > 0 && ct_dim(x, -1) == size)) return true;
    return ct__refuse(ctx, CT_E_SHAPE, here, layer,
                      "x is %s, its last axis must be the layer's .%s, %lld",
                      ct__type_text(ct__type_of(x)).s, option, (long long)size);
}

// Checks that x has the layer's channels. A poisoned x, or one without the axis, is reported by the op that
// takes it.
static bool layer_check_channels(const char *layer, const char *option, int64_t channels,
                                 ct_tensor x, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct_ok(x) || ct_rank(x) < 2 || ct_dim(x, 1) == channels) return true;
    return ct__refuse(ctx, CT_E_SHAPE, here, layer,
                      "x is %s, its axis 1 must be the layer's .%s, %lld",
                      ct__type_text(ct__type_of(x)).s, option, (long long)channels);
}

// ------------------------------------------------------------------------------------------ linear

ct_nn_linear ct_nn_linear_with(ct_nn_builder builder, ct_nn_linear_options o) {
    ct_nn_linear layer = {.out_in = o.out_in};
    if (!layer_check_size("linear", "in", o.in, o.here) ||
        !layer_check_size("linear", "out", o.out, o.here))
        return layer;
    ct_ints dims = o.out_in ? CT_DIMS(o.out, o.in) : CT_DIMS(o.in, o.out);
    layer.weight = ct_nn_param_at(builder, "weight", dims, layer_default_init(o.init), o.here);
    if (!o.no_bias)
        layer.bias = ct_nn_param_at(builder, "bias", CT_DIMS(o.out), CT_NN_ZEROS, o.here);
    return layer;
}

ct_tensor ct_nn_linear_apply_at(const ct_nn_linear *layer, ct_tensor x, ct_loc here) {
    if (!layer_is_given(layer, "linear", here)) return layer_poison(here);
    ct_tensor weight = layer->weight;
    if (ct_ok(weight) &&
        !layer_check_last_axis("linear", "in", ct_dim(weight, layer->out_in), x, here))
        return layer_poison(here);
    bool single = ct_ok(x) && ct_rank(x) == 1; // (in,): matmul needs (1, in)
    if (single) x = ct_reshape_at(x, CT_DIMS(1, ct__size_like(x, 0)), here);
    if (layer->out_in) weight = ct_permute_at(weight, CT_AXES(1, 0), here);
    ct_tensor y = ct_matmul_at(x, weight, here); // (..., out)
    if (single && ct_ok(y)) y = ct_reshape_at(y, CT_DIMS(ct__size_like(y, 1)), here);
    if (!layer->bias.bits) return y;
    const bool casts = ct_autocast_dtype() != CT_F32 && ct_ok(y); // as one matmul
    ct_tensor bias = casts ? ct_cast_at(layer->bias, ct_dtype_of(y), here) : layer->bias;
    return ct_add_at(y, bias, here);
}

// --------------------------------------------------------------------------------------- embedding

ct_nn_embedding ct_nn_embedding_with(ct_nn_builder builder, ct_nn_embedding_options o) {
    if (!layer_check_size("embedding", "count", o.count, o.here) ||
        !layer_check_size("embedding", "width", o.width, o.here))
        return (ct_nn_embedding){0};
    return (ct_nn_embedding){ct_nn_param_at(builder, "weight", CT_DIMS(o.count, o.width),
                                            layer_default_init(o.init), o.here)};
}

ct_tensor ct_nn_embedding_apply_at(const ct_nn_embedding *layer, ct_tensor ids, ct_loc here) {
    if (!layer_is_given(layer, "embedding", here)) return layer_poison(here);
    return ct_gather_with((ct_gather_args){.x = layer->weight, .indices = ids, .here = here});
}

// ------------------------------------------------------------------------------------- convolution

// Copies an option's numbers from the caller's block: none, one, or one per spatial axis of `o`; with `sides`
// also two per axis; each at least `least`. Numbers that the op would reject are rejected here.
static bool conv_copy_option(const ct_nn_conv_options *o, const char *option, ct_ints given,
                             int64_t least, bool sides, ct_nn_sizes *values) {
    const int64_t n = o->kernel.n;
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return false;
    if (given.n < 0 || (given.n > 1 && given.n != n && !(sides && given.n == 2 * n))) {
        ct__fail(ctx, CT_E_ARGUMENT, o->here, "conv", ".%s has %lld numbers for %lld %s", option,
                 (long long)given.n, (long long)n, n == 1 ? "axis" : "axes");
        return ct__err_hint(&ctx->err, sides ? CT_PADDING_HINT : CT_LIST_HINT);
    }
    values->n = given.n;
    for (int64_t i = 0; i < given.n; i++) {
        const int64_t v = values->v[i] = given.v[i];
        if (ct__marked(v))
            ct__fail(ctx, CT_E_ARGUMENT, o->here, "conv", ".%s is dynamic, it must be static",
                     option);
        else if (v < least || v > CT_MOST_STEP)
            ct__fail(ctx, CT_E_ARGUMENT, o->here, "conv", ".%s is %lld, it must be at %s %lld",
                     option, (long long)v, v < least ? "least" : "most",
                     (long long)(v < least ? least : CT_MOST_STEP));
        else
            continue;
        return false;
    }
    return true;
}

static bool conv_check(const ct_nn_conv_options *o, int64_t groups) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !layer_check_size("conv", "in", o->in, o->here) ||
        !layer_check_size("conv", "out", o->out, o->here) ||
        !layer_check_size("conv", "groups", groups, o->here))
        return false;
    if (o->kernel.n < 1 || o->kernel.n > CT_NN_MAX_SPATIAL)
        ct__fail(ctx, CT_E_ARGUMENT, o->here, "conv",
                 ".kernel has %lld sizes, it must have one a spatial axis, 1 to %d",
                 (long long)o->kernel.n, CT_NN_MAX_SPATIAL);
    else if (o->in % groups || o->out % groups)
        ct__fail(ctx, CT_E_ARGUMENT, o->here, "conv",
                 "%lld groups do not divide %lld channels in and %lld out", (long long)groups,
                 (long long)o->in, (long long)o->out);
    else if (o->output_padding.n && !o->transposed)
        ct__fail(ctx, CT_E_ARGUMENT, o->here, "conv", ".output_padding needs .transposed");
    else if (o->same && o->transposed)
        ct__fail(ctx, CT_E_ARGUMENT, o->here, "conv", ".same is not allowed with .transposed");
    else if (o->same && o->padding.n)
        ct__fail(ctx, CT_E_ARGUMENT, o->here, "conv", ".padding is given, and .same too");
    else
        return true;
    return false;
}

ct_nn_conv ct_nn_conv_with(ct_nn_builder builder, ct_nn_conv_options o) {
    const int64_t groups = o.groups ? o.groups : 1;
    ct_nn_conv layer = {.in = o.in, .groups = groups, .same = o.same, .transposed = o.transposed};
    if (!conv_check(&o, groups) ||
        !conv_copy_option(&o, "stride", o.stride, 1, false, &layer.stride) ||
        !conv_copy_option(&o, "padding", o.padding, 0, true, &layer.padding) ||
        !conv_copy_option(&o, "dilation", o.dilation, 1, false, &layer.dilation) ||
        !conv_copy_option(&o, "output_padding", o.output_padding, 0, false, &layer.output_padding))
        return layer;
    int64_t dims[2 + CT_NN_MAX_SPATIAL] = {o.out, o.in / groups};
    double inputs = (double)(o.in / groups); // of one output
    if (o.transposed) dims[0] = o.in, dims[1] = o.out / groups;
    for (int64_t i = 0; i < o.kernel.n; i++) {
        if (!layer_check_size("conv", "kernel", o.kernel.v[i], o.here)) return layer;
        dims[2 + i] = o.kernel.v[i];
        inputs *= (double)o.kernel.v[i];
    }
    const ct_nn_init init =
        o.init.kind == CT_NN_INIT_DEFAULT ? CT_NN_NORMAL(sqrt(2 / inputs)) : o.init;
    layer.weight = ct_nn_param_at(builder, "weight", (ct_ints){2 + o.kernel.n, dims}, init, o.here);
    if (!o.no_bias)
        layer.bias = ct_nn_param_at(builder, "bias", CT_DIMS(o.out), CT_NN_ZEROS, o.here);
    return layer;
}

static ct_ints conv_sizes(const ct_nn_sizes *sizes) { return (ct_ints){sizes->n, sizes->v}; }

ct_tensor ct_nn_conv_apply_at(const ct_nn_conv *layer, ct_tensor x, ct_loc here) {
    if (!layer_is_given(layer, "conv", here)) return layer_poison(here);
    if (ct_ok(layer->weight) && !layer_check_channels("conv", "in", layer->in, x, here))
        return layer_poison(here);
    if (layer->transposed)
        return ct_conv_transpose_with(
            (ct_conv_transpose_args){.x = x,
                                     .weight = layer->weight,
                                     .bias = layer->bias,
                                     .stride = conv_sizes(&layer->stride),
                                     .padding = conv_sizes(&layer->padding),
                                     .dilation = conv_sizes(&layer->dilation),
                                     .output_padding = conv_sizes(&layer->output_padding),
                                     .groups = layer->groups,
                                     .here = here});
    return ct_conv_with((ct_conv_args){.x = x,
                                       .weight = layer->weight,
                                       .bias = layer->bias,
                                       .stride = conv_sizes(&layer->stride),
                                       .padding = conv_sizes(&layer->padding),
                                       .dilation = conv_sizes(&layer->dilation),
                                       .same = layer->same,
                                       .groups = layer->groups,
                                       .here = here});
}

// -------------------------------------------------------------------------------------------- norm

ct_nn_norm ct_nn_norm_with(ct_nn_builder builder, ct_nn_norm_options o) {
    ct_nn_norm layer = {.eps = o.eps > 0 ? o.eps : 1e-5, .rms = o.rms};
    if (!layer_check_size("norm", "width", o.width, o.here) ||
        !layer_check_not_negative("norm", "eps", o.eps, o.here))
        return layer;
    layer.weight = ct_nn_param_at(builder, "weight", CT_DIMS(o.width), CT_NN_ONES, o.here);
    if (!o.no_bias && !o.rms)
        layer.bias = ct_nn_param_at(builder, "bias", CT_DIMS(o.width), CT_NN_ZEROS, o.here);
    return layer;
}

ct_tensor ct_nn_norm_apply_at(const ct_nn_norm *layer, ct_tensor x, ct_loc here) {
    if (!layer_is_given(layer, "norm", here)) return layer_poison(here);
    if (ct_ok(layer->weight) &&
        !layer_check_last_axis("norm", "width", ct_dim(layer->weight, 0), x, here))
        return layer_poison(here);
    if (layer->rms)
        return ct_rms_norm_with((ct_rms_norm_args){
            .x = x, .weight = layer->weight, .eps = CT_F(layer->eps), .here = here});
    return ct_layer_norm_with((ct_layer_norm_args){.x = x,
                                                   .weight = layer->weight,
                                                   .bias = layer->bias,
                                                   .eps = CT_F(layer->eps),
                                                   .here = here});
}

ct_nn_group_norm ct_nn_group_norm_with(ct_nn_builder builder, ct_nn_group_norm_options o) {
    ct_nn_group_norm layer = {
        .channels = o.channels, .groups = o.groups ? o.groups : 1, .eps = o.eps > 0 ? o.eps : 1e-5};
    if (!layer_check_size("group_norm", "channels", o.channels, o.here) ||
        !layer_check_size("group_norm", "groups", layer.groups, o.here) ||
        !layer_check_not_negative("group_norm", "eps", o.eps, o.here))
        return layer;
    ct_ctx *ctx = ct__ctx();
    if (o.channels % layer.groups && ctx)
        ct__fail(ctx, CT_E_ARGUMENT, o.here, "group_norm",
                 "%lld groups do not divide %lld channels", (long long)layer.groups,
                 (long long)o.channels);
    if (o.channels % layer.groups || o.no_affine) return layer;
    layer.weight = ct_nn_param_at(builder, "weight", CT_DIMS(o.channels), CT_NN_ONES, o.here);
    layer.bias = ct_nn_param_at(builder, "bias", CT_DIMS(o.channels), CT_NN_ZEROS, o.here);
    return layer;
}

ct_tensor ct_nn_group_norm_apply_at(const ct_nn_group_norm *layer, ct_tensor x, ct_loc here) {
    if (!layer_is_given(layer, "group_norm", here) ||
        !layer_check_channels("group_norm", "channels", layer->channels, x, here))
        return layer_poison(here);
    return ct_group_norm_with((ct_group_norm_args){.x = x,
                                                   .weight = layer->weight,
                                                   .bias = layer->bias,
                                                   .groups = layer->groups,
                                                   .eps = CT_F(layer->eps),
                                                   .here = here});
}

ct_nn_batch_norm ct_nn_batch_norm_with(ct_nn_builder builder, ct_nn_builder running,
                                       ct_nn_batch_norm_options o) {
    ct_nn_batch_norm layer = {.eps = o.eps > 0 ? o.eps : 1e-5,
                              .momentum = o.momentum > 0 ? o.momentum : 0.1};
    if (!layer_check_size("batch_norm", "channels", o.channels, o.here) ||
        !layer_check_not_negative("batch_norm", "eps", o.eps, o.here) ||
        !layer_check_not_negative("batch_norm", "momentum", o.momentum, o.here))
        return layer;
    ct_ctx *ctx = ct__ctx();
    if (o.momentum > 1 && ctx)
        ct__fail(ctx, CT_E_ARGUMENT, o.here, "batch_norm", ".momentum is %g, it must be at most 1",
                 o.momentum);
    if (o.momentum > 1) return layer;
    ct_ints dims = CT_DIMS(o.channels);
    if (!o.no_affine) {
        layer.weight = ct_nn_param_at(builder, "weight", dims, CT_NN_ONES, o.here);
        layer.bias = ct_nn_param_at(builder, "bias", dims, CT_NN_ZEROS, o.here);
    }
    layer.mean = ct_nn_param_at(running, "running_mean", dims, CT_NN_ZEROS, o.here);
    layer.var = ct_nn_param_at(running, "running_var", dims, CT_NN_ONES, o.here);
    return layer;
}

ct_tensor ct_nn_batch_norm_apply_at(const ct_nn_batch_norm *layer, ct_tensor x,
                                    const ct_nn_mode *mode, ct_loc here) {
    if (!layer_is_given(layer, "batch_norm", here)) return layer_poison(here);
    if (ct_ok(layer->mean) &&
        !layer_check_channels("batch_norm", "channels", ct_dim(layer->mean, 0), x, here))
        return layer_poison(here);
    // The values assigned to them depend on their older versions: no gradient flows back through calls.
    ct_tensor mean = ct_stop_gradient_at(layer->mean, here),
              var = ct_stop_gradient_at(layer->var, here);
    if (!mode || !mode->training)
        return ct_batch_norm_with((ct_batch_norm_args){.x = x,
                                                       .mean = mean,
                                                       .var = var,
                                                       .weight = layer->weight,
                                                       .bias = layer->bias,
                                                       .eps = CT_F(layer->eps),
                                                       .here = here});
    ct_batch_norm_train_out out =
        ct_batch_norm_train_with((ct_batch_norm_train_args){.x = x,
                                                            .mean = mean,
                                                            .var = var,
                                                            .weight = layer->weight,
                                                            .bias = layer->bias,
                                                            .eps = CT_F(layer->eps),
                                                            .momentum = CT_F(layer->momentum),
                                                            .here = here});
    if (!ct_ok(out.y)) return out.y;
    ct_assign_at(layer->mean, out.mean, here);
    ct_assign_at(layer->var, out.var, here);
    return out.y;
}

// --------------------------------------------------------------------------------------------- MLP

ct_tensor ct_nn_activate_at(ct_nn_activation which, ct_tensor x, ct_loc here) {
    switch (which) {
    case CT_NN_GELU_TANH: return ct_gelu_with((ct_gelu_args){.x = x, .here = here});
    case CT_NN_GELU: return ct_gelu_with((ct_gelu_args){.x = x, .exact = true, .here = here});
    case CT_NN_SILU: return ct_silu_at(x, here);
    case CT_NN_RELU: return ct_relu_at(x, here);
    case CT_NN_TANH: return ct_tanh_at(x, here);
    case CT_NN_IDENTITY: return x;
    }
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_NONE;
    return ct__fail(ctx, CT_E_ARGUMENT, here, "activate", "there is no activation %d", (int)which);
}

ct_nn_mlp ct_nn_mlp_with(ct_nn_builder builder, ct_nn_mlp_options o) {
    int64_t hidden = o.hidden ? o.hidden : 4 * o.width;
    ct_nn_mlp layer = {.activation = o.activation};
    if (!layer_check_size("mlp", "width", o.width, o.here)) return layer;
    layer.fc = ct_nn_linear_with(
        ct_nn_builder_child(builder, "c_fc"),
        (ct_nn_linear_options){
            .in = o.width, .out = hidden, .no_bias = o.no_bias, .init = o.init, .here = o.here});
    layer.proj = ct_nn_linear_with(ct_nn_builder_child(builder, "c_proj"),
                                   (ct_nn_linear_options){.in = hidden,
                                                          .out = o.width,
                                                          .no_bias = o.no_bias,
                                                          .init = o.proj_init,
                                                          .here = o.here});
    return layer;
}

ct_tensor ct_nn_mlp_apply_at(const ct_nn_mlp *layer, ct_tensor x, ct_nn_mode *mode, ct_loc here) {
    if (!layer_is_given(layer, "mlp", here)) return layer_poison(here);
    ct_tensor h = ct_nn_linear_apply_at(&layer->fc, x, here); // (..., hidden)
    h = ct_nn_activate_at(layer->activation, h, here);
    return ct_nn_dropout_at(ct_nn_linear_apply_at(&layer->proj, h, here), mode, here);
}

// --------------------------------------------------------------------------------------- attention

ct_nn_attention ct_nn_attention_with(ct_nn_builder builder, ct_nn_attention_options o) {
    ct_nn_attention layer = {.heads = o.heads, .width = o.width};
    if (!layer_check_size("attention", "width", o.width, o.here)) return layer;
    if (o.heads < 1 || o.width % o.heads) {
        ct_ctx *ctx = ct__ctx();
        if (ctx)
            layer.attn.weight = ct__fail(ctx, CT_E_ARGUMENT, o.here, "attention",
                                         "width %lld is no multiple of %lld heads",
                                         (long long)o.width, (long long)o.heads);
        layer.proj = layer.attn;
        return layer;
    }
    layer.attn = ct_nn_linear_with(ct_nn_builder_child(builder, "c_attn"),
                                   (ct_nn_linear_options){.in = o.width,
                                                          .out = 3 * o.width,
                                                          .no_bias = o.no_bias,
                                                          .init = o.init,
                                                          .here = o.here});
    layer.proj = ct_nn_linear_with(ct_nn_builder_child(builder, "c_proj"),
                                   (ct_nn_linear_options){.in = o.width,
                                                          .out = o.width,
                                                          .no_bias = o.no_bias,
                                                          .init = o.proj_init,
                                                          .here = o.here});
    return layer;
}

ct_nn_cache ct_nn_cache_new_at(ct_nn_builder builder, const ct_nn_attention *layer, int64_t batch,
                               int64_t capacity, ct_loc here) {
    if (!layer_is_given(layer, "cache", here))
        return (ct_nn_cache){layer_poison(here), layer_poison(here)};
    if (layer->heads < 1) return (ct_nn_cache){layer->attn.weight, layer->attn.weight};
    ct_ints dims = CT_DIMS(batch, layer->heads, capacity, layer->width / layer->heads);
    ct_nn_cache cache = {.k = ct_nn_param_at(builder, "k", dims, CT_NN_ZEROS, here)};
    cache.v = ct_nn_param_at(builder, "v", dims, CT_NN_ZEROS, here);
    return cache;
}

// Part `which` (0: queries, 1: keys, 2: values) of qkv (B, T, 3 * width), as (B, heads, T, width / heads).
static ct_tensor attention_part(const ct_nn_attention *layer, ct_tensor qkv, int which,
                                ct_loc here) {
    int64_t from = which * layer->width, width = layer->width / layer->heads;
    ct_tensor x = ct_slice_with((ct_slice_args){.x = qkv,
                                                .axes = CT_AXES(-1),
                                                .start = CT_INTS(from),
                                                .stop = CT_INTS(from + layer->width),
                                                .here = here}); // (B, T, width)
    ct_ints split = CT_DIMS(ct__size_like(x, 0), ct__size_like(x, 1), layer->heads, width);
    return ct_permute_at(ct_reshape_at(x, split, here), CT_AXES(0, 2, 1, 3), here);
}

// Returns the cache with the new part written from `position` on, and assigns it: later reads see it too.
static ct_tensor cache_update(ct_tensor cache, ct_tensor part, ct_tensor position, ct_loc here) {
    ct_tensor now = ct_dynamic_update_with((ct_dynamic_update_args){
        .x = cache, .update = part, .starts = position, .axes = CT_AXES(2), .here = here});
    ct_assign_at(cache, now, here);
    return now;
}

ct_tensor ct_nn_attention_apply_at(const ct_nn_attention *layer, ct_tensor x,
                                   const ct_nn_cache *cache, ct_tensor position, ct_nn_mode *mode,
                                   ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !layer_is_given(layer, "attention", here)) return layer_poison(here);
    if (layer->heads < 1) return layer->attn.weight; // its error was reported
    if (ct_ok(x) && (ct_rank(x) != 3 || ct_dim(x, 2) != layer->width))
        return ct__fail(ctx, CT_E_SHAPE, here, "attention",
                        "x has %d axes, the last of size %lld; it must be (batch, time, %lld)",
                        ct_rank(x), (long long)ct_dim(x, -1), (long long)layer->width);
    if (cache && ct_dim(x, 1) > ct_dim(cache->k, 2))
        return ct__fail(ctx, CT_E_SHAPE, here, "attention",
                        "%lld positions do not fit a cache of %lld", (long long)ct_dim(x, 1),
                        (long long)ct_dim(cache->k, 2));
    ct_tensor qkv = ct_nn_linear_apply_at(&layer->attn, x, here); // (B, T, 3 * width)
    if (!ct_ok(qkv)) return qkv;
    ct_tensor q = attention_part(layer, qkv, 0, here); // (B, heads, T, width / heads)
    ct_tensor k = attention_part(layer, qkv, 1, here), v = attention_part(layer, qkv, 2, here);
    if (cache) {
        k = cache_update(cache->k, k, position, here); // (B, heads, capacity, width / heads)
        v = cache_update(cache->v, v, position, here);
    }
    ct_tensor y = ct_attention_with((ct_attention_args){
        .q = q,
        .k = k,
        .v = v,
        .position = cache ? position : CT_NONE,
        .causal = true,
        .here = here,
    }); // (B, heads, T, width / heads)
    ct_ints joined = CT_DIMS(ct__size_like(x, 0), ct__size_like(x, 1), layer->width);
    y = ct_reshape_at(ct_permute_at(y, CT_AXES(0, 2, 1, 3), here), joined, here);
    return ct_nn_dropout_at(ct_nn_linear_apply_at(&layer->proj, y, here), mode, here);
}
