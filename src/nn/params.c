// Parameters: their names, their initial values, dropout.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cotan/nn.h"
#include "graph/graph.h"

ct_nn_builder ct_nn_builder_for(ct_params *params, uint64_t seed) {
    return (ct_nn_builder){.params = params, .seed = seed};
}

// A path that is truncated fills the buffer, so no name fits after it: ct_nn_param_at reports the error.
ct_nn_builder ct_nn_builder_child(ct_nn_builder builder, const char *format, ...) {
    size_t used = strnlen(builder.path, sizeof builder.path - 1);
    if (used && used + 1 < sizeof builder.path) builder.path[used++] = '.';
    if (!format) { // otherwise the parameter's error would be that its name is too long
        ct_ctx *ctx = ct__ctx();
        if (ctx) ct__given(ctx, format, CT_NOWHERE, "under", "the path");
        return builder;
    }
    va_list args;
    va_start(args, format);
    vsnprintf(builder.path + used, sizeof builder.path - used, format, args);
    va_end(args);
    return builder;
}

// FNV-1a. Equal on every machine: the values drawn for a name are part of the meaning of a seed.
static uint32_t param_hash_name(const char *name) {
    uint32_t h = 2166136261u;
    for (; *name; name++) h = (h ^ (uint8_t)*name) * 16777619u;
    return h;
}

static ct_tensor param_initial_value(const ct_nn_builder *builder, const char *name, ct_ints dims,
                                     ct_nn_init init, ct_loc here) {
    ct_dtype dtype = builder->dtype ? builder->dtype : CT_F32;
    switch (init.kind) {
    case CT_NN_INIT_NORMAL: {
        ct_tensor key = ct_random_key_at((int64_t)builder->seed, here); // (2,)
        key = ct_random_fold_in_at(key, ct_scalar(param_hash_name(name), CT_U32), here);
        return ct_mul_at(ct_random_normal_at(key, dims, here), ct_f(init.std), here);
    }
    case CT_NN_INIT_ONES: return ct_ones_at(dtype, dims, here);
    case CT_NN_INIT_ZEROS:
    case CT_NN_INIT_DEFAULT: break;
    }
    return ct_zeros_at(dtype, dims, here);
}

ct_tensor ct_nn_param_at(ct_nn_builder builder, const char *name, ct_ints dims, ct_nn_init init,
                         ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_NONE;
    if (!ct__given(ctx, name, here, "param", "the name")) return ct__poison(ctx, here);
    char full[CT_NN_MAX_PATH];
    int n = snprintf(full, sizeof full, "%s%s%s", builder.path, *builder.path ? "." : "", name);
    if (n >= (int)sizeof full)
        return ct__fail(ctx, CT_E_ARGUMENT, here, "param",
                        "the name \"%s...\" is longer than %d bytes", full, CT_NN_MAX_PATH - 1);
    ct_dtype dtype = builder.dtype ? builder.dtype : CT_F32;
    ct_tensor var = ct_param_at(builder.params, full, dtype, dims, here);
    if (!builder.skip_init && ct_ok(var))
        ct_assign_at(var, param_initial_value(&builder, full, dims, init, here), here);
    return var;
}

int64_t ct_params_size(const ct_params *params) {
    int64_t size = 0;
    for (size_t i = 0; i < ct_params_count(params); i++) size += ct_size(ct_params_get(params, i));
    return size;
}

ct_tensor ct_nn_dropout_at(ct_tensor x, ct_nn_mode *mode, ct_loc here) {
    if (!mode || !mode->training || mode->dropout <= 0) return x;
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_NONE;
    if (!mode->key.bits) {
        ct__fail(ctx, CT_E_ARGUMENT, here, "dropout", "the mode has no key to draw from");
        ct__err_hint(&ctx->err, "give it one, another each step: .key = ct_random_key(step)");
        return ct__poison(ctx, here);
    }
    ct_tensor key = ct_random_fold_in_at(mode->key, ct_i(mode->n_dropouts++), here); // (2,)
    return ct_dropout_at(x, key, ct_f((double)mode->dropout), here);
}
